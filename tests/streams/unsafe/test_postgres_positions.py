"""Unsafe operations on POSTGRES sources: what a server's slot allows, and what is committed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from catalog_migrate.catalog.clock import SystemClock
from catalog_migrate.catalog.memory_log import MemoryLog
from catalog_migrate.catalog.opening import create_catalog, read_state
from catalog_migrate.catalog.records import ClusterRecord, HoldRecord, OperationRecord
from catalog_migrate.connectors.postgres.types import DiscoveredColumn, DiscoveredTable, Position
from catalog_migrate.connectors.query import QuerySpec
from catalog_migrate.connectors.resolved import Resolved
from catalog_migrate.errors import InvalidPosition, OtherServer, SlotAhead, SlotLost, UnsafeBlocked
from catalog_migrate.sql import statements as st
from catalog_migrate.sql.parser import parse, parse_one
from catalog_migrate.store import store_at
from catalog_migrate.streams.catalog import dependencies
from catalog_migrate.streams.catalog.query_spec import first_stream, spec_of
from catalog_migrate.streams.catalog.upstream_tables import (
    SNAPSHOT_LOADED,
    apply_discovery,
    hold_of,
)
from catalog_migrate.streams.checkpoint.directory import Checkpoint
from catalog_migrate.streams.ddl.execute import Executor, Result
from catalog_migrate.streams.ddl.plans import plan_statement
from catalog_migrate.streams.positions.client import UnsafeClient
from catalog_migrate.streams.positions.plan import UnsafePlan, decode_plan, encode_plan
from catalog_migrate.streams.positions.planning import approve
from catalog_migrate.streams.positions.positions_file import export
from catalog_migrate.streams.positions.render import render
from catalog_migrate.streams.positions.requests import request_of
from catalog_migrate.streams.positions.restore import undo_request
from catalog_migrate.streams.runtime.ports import Ports
from catalog_migrate.streams.upstreams.databases import ServerDatabases, SlotContents
from catalog_migrate.streams.upstreams.upstream import ServerUpstreams, Upstream
from tests.decisions import Changes, commit
from tests.services.checkpoints import adopt, root

SYSTEM, START, END = "7", 0x100, 0x900


def upstream(name: str, oid: int = 20) -> DiscoveredTable:
    columns = (
        DiscoveredColumn("id", "bigint", oid, -1, "BIGINT", False, ""),
        DiscoveredColumn("v", "text", 25, -1, "STRING", False, ""),
    )
    return DiscoveredTable("public", name, columns, ("id",), "default")


class Server(ServerUpstreams, ServerDatabases):
    """A server with two tables; each commit of ``commits`` changed ``a`` once and ``b`` twice."""

    def __init__(self) -> None:
        self.system, self.timeline = SYSTEM, 1
        self.slot_from: int | None = 0x400
        self.problem, self.foreign = "", ""
        self.commits = [0x450, 0x500, 0x550, 0x600]
        self.oid = 20

    def identify(self, spec: QuerySpec) -> Upstream:  # type: ignore[override]
        del spec
        return Upstream(f"{self.system}/16385")

    @contextmanager
    def slot(  # type: ignore[override]
        self, spec: QuerySpec, position: Position | None, *, timeout: float = 30.0
    ) -> Iterator[SlotContents]:
        del spec, timeout

        def counts(start: int, end: int) -> Mapping[str, int] | None:
            if self.slot_from is None or start < self.slot_from:
                return None
            found = sum(start <= each < end for each in self.commits)
            return {"public.a": found, "public.b": 2 * found}

        yield SlotContents(
            self.system, self.timeline, self.slot_from, END, None if self.foreign else position,
            counts, self.problem, self.foreign,
        )

    def tables(  # type: ignore[override]
        self, connection: Resolved, names: Sequence[str], *, publication: str | None = None
    ) -> tuple[DiscoveredTable, ...]:
        del connection, publication
        return tuple(upstream(each.split('"')[3], self.oid) for each in names)


class Place:
    """Source ``s`` at 0x500 after three batches, its gate open, its server simulated."""

    def __init__(self, warehouse: Path, more: str = "") -> None:
        self.log = MemoryLog()
        create_catalog(self.log, warehouse=str(warehouse))
        self.server = Server()
        self.ports = Ports(upstreams=self.server, databases=self.server)
        for parsed in parse(
            "CREATE CLUSTER main; CREATE CONNECTION pg TO POSTGRES (HOST 'h', DATABASE 'd',"
            " USER 'u')"
        ):
            self.commit_effect(parsed.statement)
        statement = parse_one(
            "CREATE SOURCE s IN CLUSTER main FROM POSTGRES CONNECTION pg (PUBLICATION 'p', TABLES"
            f" (a, b)) {more}"
        )
        assert isinstance(statement, st.CreateSource)
        self.commit_effect(apply_discovery(statement, [upstream("a"), upstream("b")]))
        self.id = dependencies.find(self.state, "source", "s").item_id
        cluster = dependencies.find(self.state, "cluster", "main").item_id
        self.put("cluster", cluster, ClusterRecord(unsafe=True))
        self.put("stream", self.id, msgspec.structs.replace(
            first_stream(self.id), upstream=f"{SYSTEM}/16385"
        ))
        path = root(self.checkpoint)
        for name in ("offsets", "commits"):
            (path / name).mkdir(parents=True)
        (path / "metadata").write_text('{"id":"4390c917-4440-44d6-bf46-bb59b73796fe"}')
        meta = '{"batchWatermarkMs":0,"batchTimestampMs":1,"conf":{}}'
        for batch, lsn in enumerate((0x300, 0x400, 0x500)):
            line = Position(lsn, 1, SYSTEM).json()
            (path / f"offsets/{batch}").write_text(f"v1\n{meta}\n{line}")
            (path / f"commits/{batch}").write_text('v1\n{"nextBatchWatermarkMs":0}')
        adopt(self.checkpoint, item=self.id, sources=[f"source {self.id}"])
        self.loaded(START)

    def loaded(self, lsn: int) -> None:
        """As a start leaves it that has taken the newest snapshot."""
        store = store_at(self.spec.snapshot)
        store.make_folder("x", above=True)
        store.put_if_absent(SNAPSHOT_LOADED, Position(lsn, 1, self.server.system).json().encode())

    def commit_effect(self, statement: Any) -> None:
        changes = plan_statement(self.state, statement).updates
        assert changes is not None
        commit(self.log, lambda _: changes, kind="test")

    def put(self, collection: str, key: str, record: Any) -> None:
        changes = Changes()
        changes.put(collection, key, record)
        commit(self.log, lambda _: changes, kind="test")

    @property
    def state(self) -> Any:
        return read_state(self.log)

    @property
    def spec(self) -> QuerySpec:
        return spec_of(self.state, self.id)

    @property
    def checkpoint(self) -> Checkpoint:
        return Checkpoint(self.spec.checkpoint)

    def lines(self) -> list[str]:
        return [self.checkpoint.entry(batch).sources[0] for batch in (1, 2)]

    def plan(self, actions: str) -> UnsafePlan:
        statement = parse_one(f"ALTER SOURCE s UNSAFE {actions} REASON 'test'")
        assert isinstance(statement, st.Unsafe)
        client = UnsafeClient(
            self.log, lambda _state, _item: None, SystemClock(), ports=self.ports
        )
        return client.plan(request_of(self.state, statement), "test")

    def run(self, text: str) -> Result:
        executor = Executor(
            self.log, lambda _state, _item: None, SystemClock(), confirm=lambda _: True,
            ports=self.ports,
        )
        (result,) = executor.run(text)
        return result

    def unsafe(self, actions: str) -> OperationRecord:
        result = self.run(f"ALTER SOURCE s UNSAFE {actions} REASON 'test'")
        assert result.operation is not None
        return self.state.operations[result.operation]

    def newest(self) -> str:
        return max(self.state.operations)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


@pytest.fixture
def mirror(tmp_path: Path) -> Place:
    return Place(tmp_path, "FORMAT MIRROR")


def counts(plan: UnsafePlan) -> dict[str, tuple[int, int]]:
    return {row.topic: (row.doubled, row.skipped) for row in plan.items[0].rows}


class TestPositions:
    def test_forth_and_back(self, place: Place) -> None:
        """Changes between are counted by table; both lines of the checkpoint say the new place."""
        forth = place.plan("INJECT OFFSETS (TO '0/600')")
        assert counts(forth) == {"public.a": (0, 2), "public.b": (0, 4)}
        assert forth.totals.exact
        text = render(forth)
        assert "positions are where the next transaction to read may commit" in text
        assert "public.a 0/500 0/600 0/400 0/900 0 2" in " ".join(text.split())
        assert "the tables will lack the changes passed over" in text
        assert "6 skipped" in text
        row = place.unsafe("INJECT OFFSETS (TO '0/600')")
        assert row.unsafe is not None
        assert row.unsafe.partitions == (
            "public.a from 0/500 to 0/600", "public.b from 0/500 to 0/600"
        )
        assert place.lines() == [Position(0x600, 1, SYSTEM).json()] * 2
        assert export(place.state, "source", "s").lsn == "0/600"
        back = place.plan("INJECT OFFSETS (TO '0/500')")
        assert counts(back) == {"public.a": (2, 0), "public.b": (4, 0)}
        assert "stand twice in the tables" in render(back)
        request = undo_request(place.state, place.newest())
        assert request.parts[0].everywhere == "0/500"
        with pytest.raises(UnsafeBlocked, match="--restore-table does not take"):
            undo_request(place.state, place.newest(), restore_table=True)

    def test_a_mirror_says_what_it_does_with_them(self, mirror: Place) -> None:
        assert "older than its row" in render(mirror.plan("INJECT OFFSETS (TO '0/400')"))
        assert "RESET SPLITS brings" in render(mirror.plan("INJECT OFFSETS (TO latest)"))

    def test_nothing_changes_where_it_stands(self, place: Place) -> None:
        assert not place.plan("INJECT OFFSETS (TO committed)").changes

    @pytest.mark.parametrize(
        ("target", "said"),
        [
            ("'0/3FF'", "0/3FF is gone, the slot has the changes from 0/400 on"),
            ("'0/901'", "0/901 is beyond the end of the server's log, 0/900"),
        ],
    )
    def test_only_what_the_slot_has(self, place: Place, target: str, said: str) -> None:
        with pytest.raises(UnsafeBlocked) as caught:
            place.plan(f"INJECT OFFSETS (TO {target})")
        assert said in caught.value.problems
        clamped = place.plan(f"INJECT OFFSETS (TO {target}) WITH (POLICY = 'clamp')")
        assert "clamped to" in clamped.items[0].notes[0]

    def test_a_slot_that_was_advanced(self, place: Place) -> None:
        """The source goes on with what the slot has; how much is lost nobody can say."""
        place.server.slot_from = 0x580
        plan = place.plan("INJECT OFFSETS (TO earliest)")
        assert not plan.totals.exact
        assert "between 0/500 and 0/580 is not known" in render(plan)
        place.unsafe("INJECT OFFSETS (TO latest)")
        assert place.lines()[1] == Position(END, 1, SYSTEM).json()

    @pytest.mark.parametrize(
        ("actions", "error", "said"),
        [
            ("INJECT OFFSETS (TO '17')", InvalidPosition, "is no log sequence number"),
            ("INJECT OFFSETS (TO 'shift -3')", InvalidPosition, "is no log sequence number"),
            ("INJECT OFFSETS ('public.a' = 5)", UnsafeBlocked, "one position for all"),
            ("INJECT VERSION 3", UnsafeBlocked, "has no version"),
            ("RESET SPLITS ('public.c')", UnsafeBlocked, r"does not read public\.c"),
            ("RESET SPLITS, INJECT OFFSETS (TO latest)", UnsafeBlocked, "says itself where"),
            ("INJECT OFFSETS (TO latest) WITH (BACKFILL = true)", UnsafeBlocked, "no records"),
            ("SET (SLOT = 'x')", UnsafeBlocked, "positions mean nothing there"),
            ("SET (SLOT = 'x'), RESET SPLITS ('public.a')", UnsafeBlocked, "all of its tables"),
        ],
    )
    def test_bad_input(
        self, place: Place, actions: str, error: type[Exception], said: str
    ) -> None:
        with pytest.raises(error, match=said):
            place.plan(actions)


    @pytest.mark.parametrize(
        "actions", ["INJECT OFFSETS (TO '0/600')", "RESET SPLITS", "RESET SPLITS ('public.a')"]
    )
    def test_explained_and_as_a_file(self, place: Place, actions: str) -> None:
        """EXPLAIN shows the plan and does nothing; its file is applied with its numbers."""
        shown = place.run(f"EXPLAIN ALTER SOURCE s UNSAFE {actions}").summary
        assert "public.a" in shown
        assert "missing: a reason" in shown
        assert not place.state.operations
        plan = place.plan(actions)
        read = decode_plan(encode_plan(plan), "plan.json")
        assert read == plan
        request = approve(place.state, read, 0)
        client = UnsafeClient(
            place.log, lambda _state, _item: None, SystemClock(), ports=place.ports
        )
        outcome = client.run(request, "reviewed", confirm=lambda _: True)
        assert outcome.row is not None
        assert outcome.row.state == "done"

    def test_whom_it_concerns(self, place: Place) -> None:
        """What reads a table for one upstream is below the source."""
        for parsed in parse(
            "CREATE CONNECTION k TO KAFKA (BROKER 'b:9092'); CREATE SINK x IN CLUSTER main FROM a"
            " INTO KAFKA CONNECTION k (TOPIC 'o') FORMAT JSON"
        ):
            place.commit_effect(parsed.statement)
        jobs = place.plan("INJECT OFFSETS (TO latest)").items[0].jobs
        assert [(job.kind, job.name, job.takes) for job in jobs] == [
            ("sink", "default.x", "append")
        ]


class TestSnapshots:
    def test_a_lost_slot(self, mirror: Place) -> None:
        """The record asks for a new snapshot, the lines begin anew, and the hold goes."""
        mirror.server.slot_from, mirror.server.problem = None, "replication slot x is lost"
        mirror.put("hold", f"{mirror.id}/upstream/1", HoldRecord(mirror.id, "upstream", "lost", ""))
        with pytest.raises(UnsafeBlocked, match="cannot be put there"):
            mirror.plan("INJECT OFFSETS (TO latest)")
        with pytest.raises(UnsafeBlocked, match="cannot read on where it is"):
            mirror.plan("RESET SPLITS ('public.a')")
        plan = mirror.plan("RESET SPLITS")
        text = render(plan)
        assert "new snapshot: public.a, public.b" in text
        assert "rows that are gone there go here too" in text
        assert "between 0/500 and 0/900 is not known" in text
        row = mirror.unsafe("RESET SPLITS")
        assert row.state == "done"
        assert row.unsafe is not None
        assert row.unsafe.reset
        assert row.unsafe.partitions[-2:] == ("public.a copied again", "public.b copied again")
        stream = mirror.state.streams[mirror.id]
        assert (stream.snapshot, stream.snapshot_tables, stream.upstream) == (
            2, (), f"{SYSTEM}/16385"
        )
        assert mirror.lines() == ["-", "-"]
        assert not mirror.state.holds
        assert mirror.spec.snapshot.endswith("/snapshot-2")
        with pytest.raises(UnsafeBlocked, match="has taken a new snapshot"):
            undo_request(mirror.state, mirror.newest())
        # until it is taken there is no position; a table of it is no other snapshot
        with pytest.raises(UnsafeBlocked, match="has not read a change"):
            mirror.plan("INJECT OFFSETS (TO latest)")
        mirror.server.slot_from, mirror.server.problem = 0x800, ""
        mirror.unsafe("RESET SPLITS ('public.a')")
        stream = mirror.state.streams[mirror.id]
        assert (stream.snapshot, stream.snapshot_tables) == (3, ())

    def test_another_server(self, place: Place) -> None:
        """It has to be meant; the positions are of it from then on."""
        place.server.system, place.server.foreign = "8", "the server has the system identifier 8"
        with pytest.raises(UnsafeBlocked, match="another server than the one") as caught:
            place.plan("RESET SPLITS")
        assert caught.value.problems == ("the server was 7/16385 and is 8/16385",)
        accepted = "RESET SPLITS WITH (ACCEPT NEW TOPIC = true)"
        assert "the slot of before stays on its server" in render(place.plan(accepted))
        place.unsafe(accepted)
        assert place.state.streams[place.id].upstream == "8/16385"

    def test_one_table(self, place: Place) -> None:
        """The position stays; what was asked for and not taken is asked for with the next."""
        plan = place.plan("RESET SPLITS ('public.a')")
        assert plan.changes
        assert (plan.totals.doubled, plan.totals.skipped, plan.totals.exact) == (0, 0, True)
        assert "appended with _operation 'snapshot'" in render(plan)
        place.unsafe("RESET SPLITS ('public.a')")
        place.unsafe("RESET SPLITS ('public.b')")
        stream = place.state.streams[place.id]
        assert (stream.snapshot, stream.snapshot_tables) == (3, ("public.a", "public.b"))
        assert place.lines() == [Position(0x500, 1, SYSTEM).json()] * 2
        place.loaded(START)
        place.unsafe("RESET SPLITS ('public.b')")
        assert place.state.streams[place.id].snapshot_tables == ("public.b",)

    def test_another_type_is_no_snapshot(self, place: Place) -> None:
        """Our table was made for the type of before: it is refused before anything stops."""
        place.server.oid = 25
        with pytest.raises(UnsafeBlocked, match="cannot copy its tables again") as caught:
            place.plan("RESET SPLITS")
        assert caught.value.problems[0] == "id of public.a is bigint now, and was taken as BIGINT"


def test_holds_say_the_statement() -> None:
    """What the server's errors advise names the source."""
    from catalog_migrate.connectors.postgres import server

    position = Position(0x500, 1, SYSTEM)
    slot = server.Slot("x", "pgoutput", "d", None, 0x600, 0x600, "reserved", None, False, 0, END,
                       True)
    with pytest.raises(SlotAhead) as ahead:
        server.check_slot(slot, "x", position)
    assert "UNSAFE INJECT OFFSETS (TO earliest)" in hold_of(ahead.value, "shop.s").remedy
    with pytest.raises(SlotLost) as lost:
        server.check_slot(msgspec.structs.replace(slot, wal_status="lost"), "x", position)
    assert hold_of(lost.value, "shop.s").statements == (
        "ALTER SOURCE shop.s UNSAFE RESET SPLITS REASON 'changes cannot be read any more'",
    )
    assert OtherServer.code == "CM0777"
