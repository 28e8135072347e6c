"""The invariants, asserted on a simulated world and its catalog."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from operator import is_not
from typing import Any

from catalog_migrate.catalog.check import check
from catalog_migrate.catalog.log import LogRow
from catalog_migrate.catalog.records import RECONCILE
from catalog_migrate.catalog.state import State
from catalog_migrate.engine.port import ViewSpec
from catalog_migrate.errors import EngineFailure
from catalog_migrate.migrations.commit import read_stored_program
from catalog_migrate.model.names import Identity, ItemName, parse_reference
from catalog_migrate.model.objects import Column
from catalog_migrate.operations.steps import NAMES
from catalog_migrate.planner.baseline import Baseline
from catalog_migrate.planner.plan import Migration
from catalog_migrate.release.release import Release
from catalog_migrate.sql.references import references
from catalog_migrate.testing.bodies import Row
from catalog_migrate.testing.engine import SimulatedEngine
from catalog_migrate.testing.world import Version, World
from tests.simulation.draft import SCHEMAS, TableShape
from tests.simulation.ledger import Ledger, derived_rows

_NOTHING: Mapping[str, str] = {}


class InvariantBroken(AssertionError):
    """An invariant does not hold: ``invariant`` is its number, the message what was found."""

    def __init__(self, invariant: str, message: str) -> None:
        super().__init__(f"{invariant}: {message}")
        self.invariant = invariant


def require(invariant: str, holds: bool, message: object) -> None:
    """Raise InvariantBroken unless it holds.

    The message is made either way: where that is much, at every step, raise it in an ``if``.
    """
    if not holds:
        raise InvariantBroken(invariant, str(message))


def check_orders(baseline: Baseline, release: Release, migration: Migration) -> None:
    """I1: drops are users-first in OLD, creates used-first in NEW."""
    old_uses = {identity: held.uses for identity, held in baseline.objects.items()}
    _require_order(migration.drops, old_uses, users_first=True)
    _require_order(migration.creates, release.uses, users_first=False)


def _require_order(
    order: Sequence[Identity], uses: Mapping[Identity, Iterable[Identity]], *, users_first: bool
) -> None:
    position = {identity: number for number, identity in enumerate(order)}
    require("I1", len(position) == len(order), f"an object stands twice in {order}")
    for identity in order:
        for use in uses.get(identity, ()):
            if use in position and use != identity:
                holds = (position[identity] < position[use]) == users_first
                require("I1", holds, f"{identity} uses {use} in {order}")


class LogSum:
    """The sum of a log's rows, kept apart from every state that the catalog's readers carry on."""

    def __init__(self) -> None:
        self._raw: dict[str, dict[str, str]] = {}
        self._seen = 0
        self._touched: set[str] = set()
        self._checked: dict[str, Mapping[str, str]] = {}

    def follow(self, rows: Sequence[LogRow]) -> None:
        """Add what was written since the last look; a row retracts exactly what stands."""
        for kind, key, value, diff in rows[self._seen :]:
            held = self._raw.get(kind)
            if held is None:
                held = self._raw[kind] = {}
            self._touched.add(kind)
            standing = held.pop(key, None)
            expected = value if diff < 0 else None
            if standing != expected:
                raise InvariantBroken("I6", f"{kind} {key}: {standing!r} is not {expected!r}")
            if diff > 0:
                held[key] = value
        self._seen = len(rows)

    def check(self, state: State) -> None:
        """I6: the log sums up to the state that processes read.

        A collection that no row touched, and that is the very one of the last look, is not compared
        again.
        """
        raw, checked = state.raw, self._checked
        again = {kind for kind, found in raw.items() if found is not checked.get(kind)}
        for kind in again | self._touched | (self._raw.keys() - raw.keys()):
            found = raw.get(kind, _NOTHING)
            if found != self._raw.get(kind, _NOTHING):
                raise InvariantBroken(
                    "I6", f"the log does not sum up to the {kind} rows of the state"
                )
            checked[kind] = found
        self._touched.clear()


class IdentityWatch:
    """I5 over a whole history: an id's columns never change, and an id that went never returns."""

    def __init__(self) -> None:
        self._columns: dict[str, Any] = {}
        self._gone: set[str] = set()
        self._living: set[str] = set()
        self._items: dict[str, int] = {}
        self._known: Mapping[str, Any] = {}
        self._seen: object = None

    def see(self, state: State, tables: Mapping[str, int]) -> None:
        """Look at a committed state; ``tables`` maps a table's name to its lasting number."""
        if state.raw.get("item") is self._seen:
            return
        self._seen = state.raw.get("item")
        living: set[str] = set()
        for item_id, item in state.items.items():
            living |= {item_id, item.global_id}
            if self._known.get(item_id) is item:
                continue
            shape = tuple((c.name, c.type, c.nullable) for c in item.definition.columns)
            before = self._columns.setdefault(item.global_id, shape)
            if before != shape:
                raise InvariantBroken("I5", f"{item.global_id} had {before}, has {shape}")
            if item.definition.kind == "table":
                number = tables[item.definition.name]
                kept = self._items.setdefault(item_id, number)
                if kept != number:
                    raise InvariantBroken("I5", f"{item_id} was table {kept}, is {number}")
        back = living & self._gone
        require("I5", not back, f"ids came back: {sorted(back)}")
        self._gone |= self._living - living
        self._living = living
        self._known = state.items


def table_shards(state: State) -> dict[str, str]:
    """Relative shard path of every table in force, by name."""
    return {
        item.definition.name: item.shard
        for item in state.items.values()
        if item.definition.kind == "table" and item.shard is not None
    }


class ProgramWatch:
    """I11: the names of a committed program go and come in its order, whatever process does it.

    Within one process their places ascend; over all of them nothing is repeated that was done.
    """

    def __init__(self) -> None:
        self._seen: str | None = None
        self._places: dict[tuple[str, Identity], int] = {}
        self._done: set[int] = set()
        self._reached: dict[str, int] = {}
        self.followed = 0
        """How many operations of programs were seen."""

    def see(self, state: State) -> None:
        """Look at a committed state: a commit that has a program begins anew."""
        text = state.raw.get("operation", _NOTHING).get(RECONCILE)
        if text == self._seen:
            return
        self._seen = text
        self._places = {
            (_ACTS[step.op], parse_reference(step.name)): place
            for place, step in enumerate(read_stored_program(state)) if step.phase == NAMES
        }
        self._done.clear()
        self._reached.clear()

    def executed(self, process: str, call: str, name: ItemName, world: World) -> None:
        """A process has changed a name while a program was pending."""
        if not self._places:
            return
        act = "drop" if call == "drop.done" else "put"
        places = [
            self._places[act, (namespace, *name.folded)]
            for namespace in ("relation", "function")
            if (act, (namespace, *name.folded)) in self._places
            and (act == "drop" or (namespace == "function") == (call == "create_function.done"))
        ]
        require("I11", bool(places), f"{process}: {call} {name} is in no step of the program")
        place = min((place for place in places if place not in self._done), default=None)
        require("I11", place is not None, f"{process}: {call} {name} was done already")
        assert place is not None
        before = self._reached.get(process, -1)
        require(
            "I11", place > before, f"{process}: {call} {name} is step {place}, after step {before}"
        )
        self._reached[process] = place
        self._done.add(place)
        self.followed += 1
        self._require_readable(f"{process}: after {call} {name}", world)

    def _require_readable(self, moment: str, world: World) -> None:
        """I1: no view of the program reads a name that is absent at this moment.

        But for a table that is copied under its id, which one that stays may read: Spark registers
        it anew.
        """
        relations, functions = world.names.relations, world.names.functions
        changed = {identity[1:] for _, identity in self._places}
        for key, view in relations.items():
            if isinstance(view, ViewSpec) and key in changed:
                read = _read(view.sql)
                absent = [each for each in read.relations if each not in relations]
                if ("drop", ("relation", *key)) not in self._places:
                    absent = [
                        each for each in absent if ("put", ("relation", *each)) not in self._places
                    ]
                absent += [each for each in read.functions if each[0] and each not in functions]
                if absent:
                    raise InvariantBroken("I1", f"{moment} {view.name} reads the absent {absent}")

    def unknown(self, process: str) -> None:
        """The reply to the last of these was lost: the process may do it again."""
        place = self._reached.pop(process, None)
        if place is not None:
            self._done.discard(place)


_read = lru_cache(maxsize=256)(references)
_ACTS = {"drop": "drop", "create": "put", "redefine": "put", "update": "put"}


class SoundWatch:
    """:func:`catalog_migrate.catalog.check.check` of every state that has something new in it."""

    def __init__(self) -> None:
        self._seen: list[Mapping[str, str] | None] = []

    def see(self, state: State) -> None:
        """Check a state whole, unless nothing that is checked differs from the last one.

        A commit's own check passes over what it does not change: this one judges it.
        """
        found = [state.raw.get(name) for name in _CHECKED]
        if len(found) != len(self._seen) or any(map(is_not, found, self._seen)):
            check(state)
            self._seen = found


_CHECKED = ("mapping", "item", "allocator", "shard", "release")
"""Collections that :func:`check` looks at in a state by itself."""


class KeyWatch:
    """I6 at any moment, even after a crash: every table in force holds every key, once.

    What is as it was at the last look (a shard's version, the number of rows expected) holds still.
    """

    def __init__(self, world: World, ledger: Ledger, warehouse: str) -> None:
        self._world = world
        self._ledger = ledger
        self._warehouse = warehouse
        self._seen: dict[int, tuple[Version, TableShape, int]] = {}

    def see(self, state: State, shards: Mapping[str, str]) -> None:
        """Look at a committed state with these shards in force (:func:`table_shards`)."""
        draft = self._ledger.in_force
        names = set() if draft is None else {shape.name for shape in draft.tables.values()}
        if shards.keys() != names:
            raise InvariantBroken("I6", f"tables {sorted(shards)}, expected {sorted(names)}")
        for number, shape in draft.tables.items() if draft is not None else ():
            path = shards[shape.name]
            shard = self._world.shard(f"{self._warehouse}/{path}")
            version = shard.versions[-1]
            unfilled = shape.derived and state.shards[path].unfilled
            count = -unfilled if shape.derived else self._ledger.count(number)
            seen = self._seen.get(number)
            if (
                seen and seen[0] is version and seen[1] is shape and seen[2] == count
                and not shard.data_deleted
            ):
                continue
            rows = self._world.rows(f"{self._warehouse}/{path}")
            keys = self._ledger.keys(number)
            if shape.derived:
                keys = set()
                if not unfilled:
                    keys = {row[shape.columns[0].name] for row in _derived(shape)}
            found = [next(iter(row.values())) for row in rows]
            if len(found) != len(keys) or set(found) != keys:
                raise InvariantBroken(
                    "I6", f"{shape.name} holds {sorted(found)}, expected {sorted(keys)}"
                )
            self._seen[number] = (version, shape, count)


def check_retired(world: World, state: State, ledger: Ledger, warehouse: str) -> None:
    """At any moment: a replaced shard takes no more rows, or they would be lost (I7), and has those
    that it had for as long as it is on record, so that a rollback may count on them (I6)."""
    for path, record in state.shards.items():
        if record.state != "retired":
            continue
        held = world.shards.get(f"{warehouse}/{path}")
        sealed = held is not None and held.versions[-1].is_sealed
        if not sealed and path.split("/")[1] not in ledger.derived:
            raise InvariantBroken("I7", f"{path} is retired and not sealed")
        if held is not None and held.data_deleted:
            raise InvariantBroken("I6", f"{path} is retired and its data is deleted")


def check_session(
    world: World, session: str, lives: Mapping[str, Sequence[Column]]
) -> None:
    """I6 for a process that lives with the tables of its start (columns by path): each column is
    still there, by its name and type."""
    for path, columns in lives.items():
        held = world.shards.get(path)
        if held is None:
            continue  # its retention is over
        now = {(column.name, column.type) for column in held.versions[-1].columns}
        lost = sorted({(column.name, column.type) for column in columns} - now)
        require("I6", not lost, f"{session} lives with {path} and lost its columns {lost}")


def check_reconciled(
    engine: SimulatedEngine, state: State, ledger: Ledger, warehouse: str, *, late: bool = False
) -> None:
    """I6 after a start that succeeded: the world equals the committed state, row by row.

    ``late``: a directory may lie about that is on record as gone, made by an act that came late.
    """
    world = engine.world
    require("I6", not state.intents, f"intents are left: {sorted(state.intents)}")
    require("I6", not state.tombstones, f"tombstones are left: {state.tombstones}")
    _check_shards(world, state, ledger, warehouse, late=late)
    _check_names(engine, state, warehouse)
    draft = ledger.in_force
    shards = table_shards(state)
    for shape in draft.tables.values() if draft is not None else ():
        path = f"{warehouse}/{shards[shape.name]}"
        newest = world.newest(path)
        found_shape = [(c.name, c.type, c.nullable) for c in newest.columns]
        wanted_shape = [(c.name, c.type, c.nullable) for c in shape.columns]
        require("I6", found_shape == wanted_shape, f"{path}: {found_shape} != {wanted_shape}")
        require("I6", not newest.is_sealed, f"{path} is in force and sealed")
        key = shape.columns[0].name
        require("I6", tuple(newest.checks.items()) == shape.checks, f"{path}: {newest.checks}")
        found = {row[key]: row for row in newest.rows}
        expected = ledger.expected(shape)
        if shape.derived:
            rows = [] if state.shards[shards[shape.name]].unfilled else _derived(shape)
            expected = {row[key]: row for row in rows}
        require("I6", len(found) == len(newest.rows), f"{path} holds a row twice")
        if found != expected:
            differing = [k for k in {**found, **expected} if found.get(k) != expected.get(k)]
            first = differing[0]
            raise InvariantBroken(
                "I6", f"{shape.name}: {found.get(first)}, expected {expected.get(first)}"
            )


def _derived(shape: TableShape) -> list[Row]:
    return derived_rows(shape.columns)


def _check_shards(
    world: World, state: State, ledger: Ledger, warehouse: str, *, late: bool
) -> None:
    """Nothing lies in the warehouse but shards in force and retired, sealed ones.

    A replaced shard of a derived table is not sealed: its rows are the application's to make again.
    """
    used = {item.shard for item in state.items.values() if item.shard is not None}
    for path, record in state.shards.items():
        require("I6", record.state != "building", f"{path} is still being built")
        require("I6", not record.evolve, f"{path} is still to be evolved")
        require("I6", not record.removing, f"the data of {path} is still to be removed")
        require("I6", (record.state == "live") == (path in used), f"{path} is {record.state}")
        held = world.shards.get(f"{warehouse}/{path}")
        if record.state == "retired":
            sealed = held is not None and held.versions[-1].is_sealed
            name = path.split("/")[1]
            require("I6", sealed or name in ledger.derived, f"{path} is retired and not sealed")
    known = {
        f"{warehouse}/{path}" for path, record in state.shards.items()
        if late or record.state in {"live", "retired"}
    }
    stray = set(world.shards) - known
    require("I6", not stray, f"shards that nothing refers to: {sorted(stray)}")


def _check_names(engine: SimulatedEngine, state: State, warehouse: str) -> None:
    items = state.items
    wanted: dict[tuple[str, str, str], str] = {}
    for mapping in state.mappings.values():
        if mapping.kind == "type" or mapping.schema not in SCHEMAS:
            continue  # a type has no registration, a user's own are looked at by themselves
        key = (mapping.kind, mapping.schema, mapping.name)
        wanted[key] = (
            f"{warehouse}/{items[mapping.item_id].shard}"
            if mapping.kind == "table"
            else f"{mapping.global_id} {mapping.definition_hash} {mapping.comment_hash}"
        )
    found: dict[tuple[str, str, str], str] = {}
    for schema in SCHEMAS:
        for held in engine.observe(schema):
            properties = held.properties
            if held.kind != "table" and properties.get("catalog_migrate.lineage") != state.lineage:
                continue  # a user's own
            key = (held.kind, held.name.schema, held.name.name)
            found[key] = held.location or " ".join(
                properties.get(f"catalog_migrate.{part}", "?")
                for part in ("id", "definition", "comment")
            )
    if wanted != found:
        missing = sorted(wanted.items() - found.items())
        extra = sorted(found.items() - wanted.items())
        raise InvariantBroken("I6", f"names: missing {missing}, not wanted {extra}")
    try:
        engine.check_views()
    except EngineFailure as error:
        raise InvariantBroken("I6", f"a view cannot be read: {error}") from error
