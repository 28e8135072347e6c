"""What statements, runtimes and operations require of a catalog and write into it, as values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec
import pytest

from catalog_migrate.catalog import commits
from catalog_migrate.catalog.commits import Commit
from catalog_migrate.catalog.memory_log import MemoryLog
from catalog_migrate.catalog.process import this_process
from catalog_migrate.catalog.records import (
    ClusterRecord,
    HoldRecord,
    LeaseRecord,
    OperationRecord,
    StreamRecord,
    UnsafeAct,
)
from catalog_migrate.catalog.requirements import Requirement
from catalog_migrate.catalog.state import State
from catalog_migrate.catalog.updates import (
    Amend,
    Delete,
    Put,
    Update,
    edits_of,
    find_effects,
    preview,
)
from catalog_migrate.errors import CommitConflict, UnsafeRefused
from catalog_migrate.sql.parser import parse_one
from catalog_migrate.streams.catalog import dependencies
from catalog_migrate.streams.catalog.query_spec import first_stream
from catalog_migrate.streams.catalog.requirements import (
    NoOperationOn,
    NoRuntime,
    Unaltered,
    Unless,
    ask_for,
)
from catalog_migrate.streams.catalog.updates import (
    ForgetAlters,
    Hold,
    LiftHolds,
    MoveOperation,
    RecordUpstream,
    Redefine,
)
from catalog_migrate.streams.ddl.plans import Planned, plan_statement
from catalog_migrate.streams.positions.operation_row import Allowed
from catalog_migrate.streams.positions.planning import Bound
from catalog_migrate.streams.positions.requests import Request, request_of

ME = this_process()
LEASE = LeaseRecord(
    epoch=1, holder="here", host=ME.host, boot_id=ME.boot_id, pid=ME.pid, started=ME.started
)


class Place(NamedTuple):
    """A catalog with the source ``s`` and its connection ``base``, and what was planned on it."""

    state: State
    source: dependencies.CatalogEntry
    base: dependencies.CatalogEntry
    request: Request

    @property
    def cluster(self) -> str:
        return self.source.item.links["cluster"]

    def row(self, kind: str = "alter", state: str = "trial", **fields: Any) -> OperationRecord:
        return OperationRecord(
            kind=kind, state=state, cluster=self.cluster, target=self.source.item_id,
            dependents=(self.source.item_id,), **fields,
        )

    def with_(self, *updates: Update) -> State:
        return preview(self.state, updates)


@pytest.fixture
def place(setting: Any, state: Callable[[], State]) -> Place:
    """Nothing is at work, nobody is alive."""
    statement: Any = parse_one("ALTER SOURCE s UNSAFE INJECT OFFSETS (TO latest)")
    found = state()
    return Place(
        found, dependencies.find(found, "source", "s"),
        dependencies.find(found, "connection", "base"), request_of(found, statement),
    )


def altered(place: Place) -> State:
    """Another process has altered the source meanwhile."""
    statement = parse_one("ALTER SOURCE s SET (TRIGGER = '7 seconds')")
    return place.with_(*plan_statement(place.state, statement).updates)


def dropped(place: Place) -> State:
    """Another process has dropped it."""
    statement = parse_one("DROP SOURCE s CASCADE")
    return place.with_(*plan_statement(place.state, statement).updates)


def moved(place: Place) -> State:
    """Another process has edited its positions."""
    stream = msgspec.structs.replace(first_stream(place.source.item_id), generation=1)
    return place.with_(Put("stream", place.source.item_id, stream))


def renamed(place: Place) -> State:
    """It has another name and comment, which restart nothing."""
    statement = parse_one("ALTER SOURCE s RENAME TO r")
    return place.with_(*plan_statement(place.state, statement).updates)


def alive(place: Place) -> State:
    """A runtime has the cluster, its gate is closed."""
    return place.with_(Put("lease", f"cluster/{place.cluster}", LEASE))


def opened(place: Place) -> State:
    """The gate of the cluster is open."""
    return place.with_(Put("cluster", place.cluster, ClusterRecord(unsafe=True)))


def under(kind: str, row_state: str) -> Callable[[Place], State]:
    """An operation ``1`` is on record for the source."""
    return lambda place: place.with_(Put("operation", "1", place.row(kind, row_state)))


def unaltered(place: Place) -> Requirement:
    return Unaltered(place.source.item_id, place.source.item.definition)


def no_operation(kind: str) -> Callable[[Place], Requirement]:
    return lambda place: NoOperationOn(kind, frozenset({place.source.item_id}))


def bound(place: Place) -> Requirement:
    return Bound(place.request)


def no_runtime(place: Place) -> Requirement:
    return NoRuntime(place.cluster)


def allowed(place: Place) -> Requirement:
    act = UnsafeAct(who="ann", host="h", at="", reason="because", request="")
    return Allowed(place.row("unsafe", "requested", unsafe=act, detail={"summary": "this"}))


def unless(key: str) -> Callable[[Place], Requirement]:
    return lambda place: Unless(key, (no_operation("alter")(place),))


@pytest.mark.parametrize(("requirement", "meanwhile", "said"), [
    (unaltered, renamed, ""),
    (unaltered, altered, "s was changed by another process meanwhile: TRIGGER"),
    (unaltered, dropped, "s was dropped meanwhile"),
    (no_operation("alter"), under("alter", "trial"), "operation 1 is at work .* s"),
    (no_operation("alter"), under("alter", "confirmed"), ""),
    (no_operation("alter"), under("unsafe", "stopping"), ""),
    (no_operation("unsafe"), under("unsafe", "stopping"), "operation 1 is at work"),
    (no_operation("unsafe"), under("unsafe", "backfilling"), r"s \(backfilling\)"),
    (no_operation("unsafe"), under("alter", "trial"), "operation 1 is at work"),
    (unless("1"), under("alter", "trial"), ""),
    (unless("2"), under("alter", "trial"), "operation 1 is at work"),
    (bound, renamed, ""),
    (bound, altered, "changed by another process meanwhile: TRIGGER"),
    (bound, dropped, "s was dropped meanwhile"),
    (bound, moved, r"positions of .* were changed by another process .*edit 1, planned on 0"),
    (no_runtime, altered, ""),
    (no_runtime, alive, "a runtime of cluster default.main was started meanwhile"),
    (allowed, opened, ""),
    (allowed, alive, "this was refused, nothing was done"),
])
def test_requirements(
    place: Place, requirement: Callable[[Place], Requirement],
    meanwhile: Callable[[Place], State], said: str,
) -> None:
    """Each, in a state that another process has left: it holds, or says what is wrong."""
    wanted, state = requirement(place), meanwhile(place)
    if not said:
        wanted.check(state)
        return
    with pytest.raises((CommitConflict, UnsafeRefused), match=said):
        wanted.check(state)


def test_an_operation_is_asked_for_once(place: Place, log: MemoryLog) -> None:
    """The same row under its key again is no second commit, though it is at work by then."""
    row = place.row(state="validating", before=place.source.item.definition)
    wanted = ask_for(row, "1", "operation", "about it")
    first = commits.commit(log, wanted)
    assert commits.commit(log, wanted).version == first.version
    with pytest.raises(CommitConflict, match="operation 1 is at work"):
        commits.commit(log, ask_for(row, "2", "operation", None))


def test_a_statement_is_planned_again_on_a_newer_state(place: Place) -> None:
    """Its effect counts for the state that it was planned on; any other gives its own."""
    statement = parse_one("CREATE CONNECTION new TO KAFKA (BROKER 'n.example.com:9092')")
    effect = plan_statement(place.state, statement)
    planned = Planned(statement, effect, place.state.version)
    assert tuple(edits_of(place.state, [planned])) == effect.updates
    other = plan_statement(
        place.state, parse_one("CREATE CONNECTION first TO KAFKA (BROKER 'n.example.com:9092')")
    )
    newer = place.state.apply_edits(place.state.version + 1, {}).apply_edits(
        place.state.version + 1, find_effects(place.state, other.updates)
    )
    after = preview(newer, [planned])
    assert {"first", "new"} <= {
        item.definition.name for item in after.items.values()
        if item.definition.kind == "connection"
    }


class TestUpdates:
    """What each comes to."""

    def test_hold(self, place: Place) -> None:
        """A hold is put once; another reason takes its place, and a dropped query has none."""
        record = HoldRecord(item_id=place.source.item_id, holder="upstream", reason="lost")
        key = f"{place.source.item_id}/upstream/1"
        held = place.with_(Hold(record))
        assert held.holds[key] == record
        assert edits_of(held, [Hold(msgspec.structs.replace(record, since="later"))]) == []
        other = msgspec.structs.replace(record, reason="other")
        assert edits_of(held, [Hold(other)]) == [Put("hold", key, other)]
        assert edits_of(dropped(place), [Hold(record)]) == []

    def test_lift_holds(self, place: Place) -> None:
        """Those that the query met itself go; the operator's stays."""
        item = place.source.item_id
        holds = [
            Put("hold", f"{item}/{holder}/1", HoldRecord(item_id=item, holder=holder, reason="r"))
            for holder in ("upstream", "failure", "operator")
        ]
        lifted = preview(place.with_(*holds), [LiftHolds(frozenset({item}))])
        assert [hold.holder for hold in lifted.holds.values()] == ["operator"]

    def test_record_upstream(self, place: Place) -> None:
        """What was found out joins what is on record by now."""
        item = place.source.item_id
        note = RecordUpstream(item, first_stream(item), "id", {"t": "1"}, "shard")
        now = place.with_(Put("stream", item, msgspec.structs.replace(
            first_stream(item), topics={"u": "2"}, reads="own", generation=4
        )))
        stream: StreamRecord = preview(now, [note]).streams[item]
        assert (stream.upstream, stream.topics, stream.reads, stream.generation) == (
            "id", {"t": "1", "u": "2"}, "own", 4,
        )
        assert place.with_(note).streams[item].reads == "shard"
        assert edits_of(dropped(place), [note]) == []

    def test_redefine(self, place: Place) -> None:
        """The new definition, under the name of now; not over another one than it is for."""
        item, before = place.source.item_id, place.source.item.definition
        now = renamed(place)
        after = altered(place).items[item].definition
        redefine = Redefine(item, after, place.source.item.links, over=before)
        found = preview(now, [redefine]).items[item].definition
        assert (found.name, found.external) == ("r", after.external)
        assert edits_of(altered(place), [redefine]) == []
        assert edits_of(dropped(place), [redefine]) == []
        assert preview(now, [redefine]).serial == now.serial + 1

    def test_move_operation(self, place: Place) -> None:
        """The row goes on with all that is on record of it; its holds come and go with its state.
        """
        item = place.source.item_id
        begun = place.with_(Put("operation", "1", place.row(
            "unsafe", "requested", detail={"since": "then", "phase": "old"},
            unsafe=UnsafeAct(who="ann", host="h", at="", reason="because", request=""),
        )))
        stopped = preview(begun, [MoveOperation("1", "stopping", detail={"more": "x"})])
        assert stopped.operations["1"].detail == {"since": "then", "more": "x"}
        assert [hold.item_id for hold in stopped.holds.values()] == [item]
        done = preview(stopped, [
            MoveOperation("1", "done", fields={"limit": 5.0}, act={"injected": 2})
        ])
        assert not done.holds
        row = done.operations["1"]
        assert row.unsafe is not None
        assert (row.state, row.limit) == ("done", 5.0)
        assert (row.unsafe.injected, row.unsafe.who) == (2, "ann")

    def test_forget_alters(self, place: Place) -> None:
        """The newest that have ended stay, and whatever is open."""
        rows = [
            Put("operation", f"{number}", place.row("alter", "trial" if number == 0 else "failed"))
            for number in range(5)
        ]
        assert edits_of(place.with_(*rows), [ForgetAlters(keep=2)]) == [
            Delete("operation", "1"), Delete("operation", "2"),
        ]


def test_what_a_commit_of_an_operation_says() -> None:
    """It prints as what it is: requirements, then updates."""
    wanted = Commit(
        "done", (LiftHolds(frozenset({"i3"})), Amend("stream", "i3", {"reads": "s/1"})),
        (NoRuntime("i1"),), reason="because",
    )
    assert str(wanted) == (
        "Commit(kind='done', updates=(LiftHolds(item_ids=frozenset({'i3'})),"
        " Amend(collection='stream', key='i3', fields={'reads': 's/1'}, where={})),"
        " requirements=(NoRuntime(cluster='i1'),), reason='because', executed=(),"
        " rollback_to=None, anyway=False)"
    )
