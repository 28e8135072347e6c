"""Users' sinks on the tables of releases: what becomes of them, and of what they send (I6, I8).

A sink is made by the real statements. What it reads, and where it goes on after a migration, is
what the catalog says: shard by shard, to the seal of each and on from the version that holds the
copied rows. It sends every row once, or it was quarantined with a reason.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

import msgspec

from catalog_migrate.catalog.records import StreamRecord
from catalog_migrate.catalog.state import State
from catalog_migrate.catalog.updates import Update
from catalog_migrate.hook import BootstrapReport
from catalog_migrate.sql.parser import parse
from catalog_migrate.streams.catalog import dependencies
from catalog_migrate.streams.catalog.query_spec import first_stream
from catalog_migrate.streams.catalog.tables import ShardMaker
from catalog_migrate.streams.ddl.plans import plan_statement
from catalog_migrate.streams.runtime import shard_handover
from catalog_migrate.testing.engine import SimulatedEngine
from tests.decisions import Changes, commit
from tests.simulation.installation import WAREHOUSE
from tests.simulation.invariants import require, table_shards
from tests.simulation.run import Run

SETTING = """
CREATE CLUSTER IF NOT EXISTS u.main;
CREATE CONNECTION IF NOT EXISTS u.c TO KAFKA (BROKER 'b:9092') WITH (VALIDATE = false);
"""


@dataclass(slots=True)
class Sink:
    """One sink: the lasting number of its table, how far it has read its shard, keys it sent."""

    item_id: str
    number: int
    consumed: int = -1
    sent: list[int] = field(default_factory=list)


class Sinks:
    """All sinks of a run; ``tell`` takes lines of its story."""

    def __init__(self, run: Run, trace: Callable[..., None]) -> None:
        self._run = run
        self._tell = trace
        self._seen: object = None
        self.made: list[Sink] = []

    # what users do -----------------------------------------------------------------------------
    def make(self, random: Random) -> None:
        """A user makes a sink on some table, with one of its columns as the key."""
        state = self._run.place.state()
        found = [] if state is None else sorted(
            (item.definition.item_name, item_id) for item_id, item in state.items.items()
            if item.definition.kind == "table" and not item.definition.is_derived
        )
        if state is None or not found:
            return
        name, table = random.choice(found)
        definition = state.items[table].definition
        key = random.choice(definition.columns).name
        sink = f"u.k{len(self.made) + 1}"
        after = self.say(
            SETTING + f"CREATE SINK {sink} IN CLUSTER u.main FROM {name.schema}.{name.name}"
            f" INTO KAFKA CONNECTION u.c (TOPIC 'o') KEY ({key});"
        )
        item_id = dependencies.find(after, "sink", sink).item_id
        shard = after.items[table].shard or ""
        self.made.append(Sink(item_id, self._run.tables[definition.name]))
        self._put(item_id, msgspec.structs.replace(first_stream(item_id), reads=shard))
        self._tell(f"a user makes the sink {sink} of {name} with the key {key}")

    def say(self, text: str) -> State:
        """Statements of a user, each its own commit."""
        log, engine = self._run.place.log, SimulatedEngine(self._run.place.world)
        maker = ShardMaker(engine.create_shard, engine.shard_version)
        state = self._run.place.state()
        assert state is not None
        for parsed in parse(text):
            statement = parsed.statement
            created: tuple[str, ...] = ()

            def decide(current: State, statement: object = statement) -> tuple[Update, ...]:
                nonlocal created
                effect = plan_statement(current, statement)  # type: ignore[arg-type]
                created = effect.created
                return effect.updates

            state = commit(log, decide, kind="statement")
            for item_id in created:
                maker.ensure(state, item_id)
        return state

    def _put(self, item_id: str, stream: StreamRecord) -> None:
        changes = Changes()
        changes.put("stream", item_id, stream)
        commit(self._run.place.log, lambda _: changes, kind="follow")

    # what their runtime does ---------------------------------------------------------------------
    def send(self) -> None:
        """Every sink sends what it has not sent yet, and follows its table when it may."""
        for sink in self.made:
            state = self._run.place.state()
            if state is not None and state.items[sink.item_id].quarantined is None:
                self._send(sink, state)

    def _send(self, sink: Sink, state: State) -> None:
        stream = state.streams[sink.item_id]
        held = self._run.place.world.shards.get(f"{WAREHOUSE}/{stream.reads}")
        if held is None or held.data_deleted:
            require("I6", False, f"{stream.reads} was removed before a sink had read it")
            return
        before = len(held.versions[sink.consumed].rows) if sink.consumed >= 0 else 0
        rows = held.versions[-1].rows[before:]
        sink.sent += [next(iter(row.values())) for row in rows]
        sink.consumed = len(held.versions) - 1
        record = state.shards[stream.reads]
        if not shard_handover.pending(state, sink.item_id) or record.sealed_version is None:
            return
        path, following_shard, _ = shard_handover.next_shard(state, sink.item_id)
        self._put(sink.item_id, msgspec.structs.replace(stream, reads=path))
        self._tell(f"the sink {sink.item_id} follows its table into {path}")
        version = following_shard.version
        sink.consumed = -1 if version is None else version

    # what must hold ------------------------------------------------------------------------------
    def check(self, state: State) -> None:
        """I8 at any moment: a sink has its table and its key, or says why it has not."""
        if not self.made or state.raw.get("item") is self._seen:
            return
        self._seen = state.raw.get("item")
        for sink in self.made:
            item = state.items.get(sink.item_id)
            require("I8", item is not None, f"{sink.item_id} is gone")
            if item is None or item.quarantined is not None:
                continue
            table = state.items.get(item.links["reads"])
            require("I8", table is not None, f"{sink.item_id} reads what is gone")
            if table is not None:
                definition = table.definition
                require("I8", definition.kind == "table", f"{sink.item_id} reads {definition.key}")
                lost = {name.lower() for name in dependencies.external_of(item).key} - {
                    column.name.lower() for column in definition.columns
                }
                require("I8", not lost, f"{sink.item_id} has lost its key {sorted(lost)}")

    def settle(self, report: BootstrapReport) -> None:
        """At rest: what is quarantined was reported (I8), the others send each row once (I6)."""
        state = self._run.place.state()
        if state is None or not self.made:
            return
        self.check(state)
        for line in state.list_quarantined():
            require("I8", line in report.outstanding, f"{line!r} is not in the report")
        in_force = table_shards(state)
        for sink in self.made:
            while state.items[sink.item_id].quarantined is None:
                self._send(sink, state)
                newest = self._run.place.state()
                assert newest is not None
                done, state = newest.version == state.version, newest
                if done:
                    break
            item = state.items[sink.item_id]
            if item.quarantined is not None:
                continue
            table = state.items[item.links["reads"]].definition.name
            require("I8", table in in_force, f"{sink.item_id} reads {table}")
            sent, expected = Counter(sink.sent), Counter(self._run.ledger.keys(sink.number))
            require(
                "I6", sent == expected,
                f"{sink.item_id} of {table}: lost {sorted((expected - sent).elements())},"
                f" doubled {sorted((sent - expected).elements())}",
            )
