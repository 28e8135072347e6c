"""Random chains of releases, rolled back to their beginning and forth again: no row is lost."""

from __future__ import annotations

from random import Random
from typing import Any

import msgspec
import pytest

from catalog_migrate.catalog.opening import read_state
from catalog_migrate.catalog.state import State
from catalog_migrate.errors import EngineFailure
from catalog_migrate.migrations.rollback import plan_rollback, read_past
from catalog_migrate.planner.plan import Plan
from catalog_migrate.planner.rollback import IRREVERSIBLE, ROWS_NOT_HELD
from catalog_migrate.policy import Policy, Rule
from catalog_migrate.testing.engine import SimulatedEngine
from catalog_migrate.testing.starts import roll_back
from tests.simulation.installation import WAREHOUSE, Installation, release_of
from tests.simulation.ledger import Ledger
from tests.simulation.releases import draft_chain

Tables = dict[str, dict[Any, dict[str, Any]]]


class NoReturn(Exception):
    """The way back is refused: (table, column) that were dropped in place."""

    def __init__(self, columns: set[tuple[str, str | None]]) -> None:
        super().__init__(columns)
        self.columns = columns


class Chain:
    """One installation that goes through a random chain, with writers between the releases."""

    def __init__(self, seed: int, *, copies: bool = True) -> None:
        """``copies``: the policy keeps the way back, so that nothing is dropped in place."""
        self.goal = 0  # the number of the draft that it goes back to
        self.policy = Policy(rules=(Rule("drop_in_place", "refuse"),)) if copies else None
        self.random = Random(seed)
        self.drafts = draft_chain(seed, 3)
        self.ledger = Ledger(self.drafts)
        self.place = Installation(persistent=True)
        self.approved: frozenset[str] = frozenset()
        self.filled = frozenset(
            str(each.key) for draft in self.drafts for each in draft.objects if each.filled_from
        )

    @property
    def state(self) -> State:
        return read_state(self.place.log)

    def tables(self) -> Tables:
        """Rows of each retained table by their key, which is the first column."""
        found: Tables = {}
        state = self.state
        for row in state.mappings.values():
            definition = state.items[row.item_id].definition
            if row.kind == "table" and not definition.is_derived:
                rows = self.place.world.rows(f"{WAREHOUSE}/{state.items[row.item_id].shard}")
                key = definition.columns[0].name.lower()
                found[str(row.key)] = {each[key]: dict(each) for each in rows}
                assert len(found[str(row.key)]) == len(rows)
        return found

    def shape(self) -> dict[str, Any]:
        """Every object of the release, as defined."""
        state = self.state
        return {
            key: (row.kind, row.fingerprint, row.definition_hash, row.storage_hash,
                  row.comment_hash, row.applied)
            for key, row in sorted(state.mappings.items())
        }

    def write(self) -> None:
        state = self.state
        for row in sorted(state.mappings.values(), key=lambda each: each.item_id):
            item = state.items[row.item_id]
            if row.kind != "table" or item.definition.is_derived:
                continue
            new = [self.ledger.new_row(item.definition.columns, self.random) for _ in range(2)]
            self.place.world.append(f"{WAREHOUSE}/{item.shard}", new)

    def start(self, number: int) -> str:
        draft = self.drafts[number]
        return self.place.start(draft, release_of(draft), policy=self.policy)[1].outcome

    def plan(self, to: int, approve: tuple[str, ...]) -> Plan:
        engine, state = SimulatedEngine(self.place.world, persistent=True), self.state
        return plan_rollback(
            self.place.log, read_past(self.place.log, to), state,
            grown=lambda path, *versions: engine.count_appended(f"{WAREHOUSE}/{path}", *versions),
            sizes=lambda item: engine.shard_size(f"{WAREHOUSE}/{state.items[item].shard}"),
            approve=approve, policy=self.policy,
        ).plan

    def try_back(self, to: int) -> set[str] | None:
        """:meth:`back`; None when a NULL stood in the way."""
        try:
            return self.back(to)
        except EngineFailure as failure:
            if "NULL in the NOT NULL column" not in failure.message:
                raise
            return None

    def back(self, to: int) -> set[str]:
        """Roll back with every approval that is asked for; the tables that leave rows behind."""
        plan = self.plan(to, ())
        gone = {(one.name, one.column) for one in plan.blocked if one.code == IRREVERSIBLE}
        if gone and self.policy is None:
            raise NoReturn(gone)
        assert all(one.remedy.startswith("--approve ") for one in plan.blocked), plan.blocked
        approve = tuple(
            sorted({one.remedy.removeprefix("--approve ").split(" (")[0] for one in plan.blocked})
        )
        self.approved = frozenset(approve)
        again = self.plan(to, approve)
        assert again.applyable, again.blocked
        report = roll_back(
            SimulatedEngine(self.place.world, persistent=True), self.place.log.attach(),
            plan=again, to=to, clock=self.place.clock, holder="rollback",
            token=lambda: f"{next(self.place.tokens):06d}", policy=self.policy,
        )
        assert report.outcome == "rolled_back"
        assert again.target.serial is not msgspec.UNSET
        return {one.name for one in plan.blocked if one.code == ROWS_NOT_HELD}


@pytest.mark.parametrize("seed", range(60))
def test_there_and_back(seed: int) -> None:
    """Back at the first release each of its rows is what it was, and those since are there too."""
    there_and_back(Chain(seed))


@pytest.mark.parametrize("seed", range(60))
def test_there_and_back_with_drops_in_place(seed: int) -> None:
    """The same where columns went in place, or it is refused for exactly such columns."""
    chain = Chain(seed, copies=False)
    try:
        there_and_back(chain)
    except NoReturn as refused:
        for name, column in refused.columns:
            goal = chain.drafts[chain.goal]
            shape = next(one for one in goal.tables.values() if name.endswith(f".{one.name}"))
            number = next(one.number for one in shape.columns if one.name == column)
            others = [draft.tables.get(shape.number) for draft in chain.drafts if draft != goal]
            assert any(
                one is not None and number not in {each.number for each in one.columns}
                for one in others
            )
        assert chain.state.intents == {}
        assert chain.start(2) == ("fenced_out" if chain.goal else "unchanged")


def there_and_back(chain: Chain) -> None:
    seen: list[tuple[int, dict[str, Any], Tables]] = []
    for number in range(3):
        chain.start(number)
        chain.write()
        seen.append((chain.state.serial, chain.shape(), chain.tables()))
    first, last = seen[0], seen[-1]
    if first[0] == last[0]:
        return
    before = chain.state
    held = chain.try_back(first[0])
    if held is None:  # approved, and yet a row holds NULL where that is forbidden again
        assert chain.state.serial == before.serial
        assert chain.state.intents == {}
        return
    left = held
    assert chain.shape() == first[1]
    found = chain.tables()
    assert found.keys() == first[2].keys()
    for name, rows in first[2].items():
        assert {key: found[name][key] for key in rows} == rows, name
        if name not in left:
            keys = {key for tables in seen for key in _continued(tables, rows, chain.filled)}
            assert found[name].keys() >= keys, name
    compared = sum(
        _same_values(chain, number, tables, found, left)
        for number, (_, _, tables) in enumerate(seen)
    )
    assert compared or left or chain.approved or not any(first[2].values())
    in_force = chain.state.release_in_force("release")
    assert in_force is not None
    assert chain.start(int(in_force.name) - 1) == "unchanged"
    assert chain.start(2) == ("fenced_out" if in_force.name != "3" else "unchanged")
    chain.write()
    chain.goal = 2
    chain.back(last[0])
    assert chain.shape() == last[1]
    found = chain.tables()
    for name, rows in last[2].items():
        assert found[name].keys() >= rows.keys(), name
    assert chain.start(2) == "unchanged"


def _same_values(
    chain: Chain, number: int, tables: Tables, found: Tables, left: set[str]
) -> int:
    """What rows of one release had in columns of the first they have there, but for approved ones.

    Returns how many values were compared.
    """
    compared = 0
    first = {shape.number: shape for shape in chain.drafts[0].tables.values()}
    for shape in chain.drafts[number].tables.values():
        then = first.get(shape.number)
        if then is None or then.derived or shape.derived:
            continue
        name = next(one for one in found if one.endswith(f".{then.name}"))
        rows = next(rows for one, rows in tables.items() if one.endswith(f".{shape.name}"))
        if name in left or name in chain.approved:
            continue
        columns = {each.number: each for each in shape.columns}
        for column in then.columns:
            had = columns.get(column.number)
            if had is None or had.type != column.type or f"{name}.{column.name}" in chain.approved:
                continue
            for key, row in rows.items():
                assert found[name][key][column.name] == row[had.name], (name, column.name, key)
                compared += 1
    return compared


def _continued(
    seen: tuple[int, Any, Tables], rows: dict[Any, Any], filled: frozenset[str]
) -> set[Any]:
    """Keys of the table that holds these very rows at another time, whatever it is called.

    One that was filled from it has them too, and is not meant.
    """
    for name, other in seen[2].items():
        if rows and name not in filled and rows.keys() <= other.keys():
            return set(other)
    return set()
