"""Users' sources in a catalog that releases migrate: each is served, or quarantined and told (I8).

A source is made by the real statements, with a table of a release for its dead letters and a sink
on it. Its own table is nobody's but the user's: no migration seals, replaces or removes it, also
while the source is quarantined, and all rows are there when it comes back (I6).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from catalog_migrate.catalog.records import ItemRecord
from catalog_migrate.catalog.state import State
from catalog_migrate.connectors.query import DEAD_LETTER_COLUMNS
from catalog_migrate.errors import EngineFailure
from catalog_migrate.hook import BootstrapReport
from catalog_migrate.model.names import ItemName
from catalog_migrate.streams.catalog import dependencies
from catalog_migrate.testing.engine import SimulatedEngine
from tests.simulation.dead_letters import NUMBER
from tests.simulation.installation import WAREHOUSE
from tests.simulation.invariants import require
from tests.simulation.run import Run
from tests.simulation.sinks import SETTING, Sinks


@dataclass(slots=True)
class Source:
    """One source and the sink on it, its table's path and the keys that it has received."""

    name: ItemName
    item_id: str
    sink_id: str
    path: str
    received: list[int] = field(default_factory=list)


class Sources:
    """All sources of a run; ``tell`` takes lines of its story."""

    def __init__(self, run: Run, sinks: Sinks, trace: Callable[..., None]) -> None:
        self._run = run
        self._sinks = sinks
        self._tell = trace
        self._seen: object = None
        self.made: list[Source] = []

    # what users and their runtime do -------------------------------------------------------------
    def make(self) -> None:
        """A user makes a source, whose dead letters go into the release's table if it has one."""
        state = self._run.place.state()
        if state is None:
            return
        letters = next(
            (f" ON ERROR INTO {item.definition.item_name}" for item in state.items.values()
             if _takes_letters(item)), "",
        )
        name = ItemName("u", f"q{len(self.made) + 1}")
        sink = f"u.o{len(self.made) + 1}"
        after = self._sinks.say(
            SETTING + f"CREATE SOURCE {name} (id BIGINT) IN CLUSTER u.main"
            f" FROM KAFKA CONNECTION u.c (TOPIC 't') FORMAT JSON{letters};"
            f" CREATE SINK {sink} IN CLUSTER u.main FROM {name}"
            " INTO KAFKA CONNECTION u.c (TOPIC 'o') KEY (id);"
        )
        found = dependencies.find(after, "source", str(name))
        sink_id = dependencies.find(after, "sink", sink).item_id
        self.made.append(Source(name, found.item_id, sink_id, found.item.shard or ""))
        self._tell(f"a user makes the source {name}{letters}, and the sink {sink} of it")

    def receive(self) -> None:
        """Every source that is not quarantined appends what has come to its own table."""
        state = self._run.place.state()
        for source in self.made if state is not None else ():
            if state.items[source.item_id].quarantined is None:  # type: ignore[union-attr]
                key = len(source.received) + 1
                try:
                    self._run.place.world.append(f"{WAREHOUSE}/{source.path}", [{"id": key}])
                except EngineFailure as error:
                    require("I6", False, f"{source.name} cannot write its own table: {error}")
                source.received.append(key)

    # what must hold ------------------------------------------------------------------------------
    def check(self, state: State) -> None:
        """At any moment: a source has its own table, and its letters' or says why not (I8)."""
        if not self.made or state.raw.get("item") is self._seen:
            return
        self._seen = state.raw.get("item")
        for source in self.made:
            item, sink = state.items.get(source.item_id), state.items.get(source.sink_id)
            require("I8", item is not None and sink is not None, f"{source.name} is gone")
            if item is None or sink is None:
                continue
            held = state.shards.get(source.path)
            require(
                "I6", item.shard == source.path and held is not None and held.state == "live",
                f"{source.name} has lost its table: {item.shard}, {held}",
            )
            letters = state.items.get(item.links.get("dead_letters", ""))
            has = "dead_letters" not in item.links or (
                letters is not None and _takes_letters(letters)
            )
            require(
                "I8", has or item.quarantined is not None,
                f"{source.name} is served, and has no table for its dead letters",
            )
            require(
                "I8", (item.quarantined is None) == (sink.quarantined is None),
                f"{source.name}: {item.quarantined}; the sink on it: {sink.quarantined}",
            )

    def settle(self, engine: SimulatedEngine, report: BootstrapReport) -> None:
        """At rest: quarantined and reported, or served with its name and every row (I8, I6)."""
        state = self._run.place.state()
        if state is None or not self.made:
            return
        self.check(state)
        draft = self._run.ledger.in_force
        there = draft is not None and NUMBER in draft.tables
        for line in state.list_quarantined():
            require("I8", line in report.outstanding, f"{line!r} is not in the report")
        for source in self.made:
            item = state.items[source.item_id]
            served = there or "dead_letters" not in item.links
            aside = item.quarantined
            require("I8", served == (aside is None), f"{source.name}: {aside}, letters: {there}")
            standing = {
                each.name.folded: each.location for each in engine.observe(source.name.schema)
            }
            wanted = f"{WAREHOUSE}/{source.path}" if served else None
            found = standing.get(source.name.folded)
            require("I8", found == wanted, f"{source.name} stands at {found}, not {wanted}")
            rows = [row["id"] for row in self._run.place.world.rows(f"{WAREHOUSE}/{source.path}")]
            require("I6", rows == source.received, f"{source.name} holds {rows}")


def _takes_letters(item: ItemRecord) -> bool:
    definition = item.definition
    shape = [(column.name, column.type) for column in definition.columns]
    return definition.kind == "table" and shape == [
        (column.name, column.type) for column in DEAD_LETTER_COLUMNS
    ]
