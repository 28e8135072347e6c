"""What stands still, why, and what to do next; the gate of a cluster; no service is needed."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from catalog_migrate.api import Status
from catalog_migrate.catalog.clock import SystemClock
from catalog_migrate.catalog.lease import acquire
from catalog_migrate.catalog.memory_log import MemoryLog
from catalog_migrate.catalog.opening import create_catalog, read_state
from catalog_migrate.catalog.process import this_process
from catalog_migrate.catalog.records import ClusterRecord, HoldRecord, LeaseRecord
from catalog_migrate.cli.inspection import status_document, status_text
from catalog_migrate.streams.catalog import dependencies
from catalog_migrate.streams.catalog.cluster_log import ClusterLog, QueryStatus, log_path
from catalog_migrate.streams.catalog.failures import Failure
from catalog_migrate.streams.catalog.queries import OfflineQueries
from catalog_migrate.streams.catalog.tables import DeltaTables
from catalog_migrate.streams.ddl.show import StalledQuery, show, stalled_queries
from catalog_migrate.streams.positions.audit import Unseen
from catalog_migrate.streams.runtime.supervisor import Supervisor
from tests.decisions import Changes, commit

Do = Callable[[str], Any]


def put(log: MemoryLog, collection: str, key: str, record: Any) -> None:
    changes = Changes()
    changes.put(collection, key, record)
    commit(log, lambda _: changes, kind="test")


def still(log: MemoryLog) -> list[StalledQuery]:
    return list(stalled_queries(read_state(log)))


def runtime(log: MemoryLog) -> str:
    """A runtime of cluster ``main`` lives in this process; its item id."""
    cluster = dependencies.find(read_state(log), "cluster", "main").item_id
    put(log, "lease", f"cluster/{cluster}", LEASE)
    return cluster


_ME = this_process()
LEASE = LeaseRecord(
    epoch=1, holder="here", host=_ME.host, boot_id=_ME.boot_id, pid=_ME.pid, started=_ME.started
)


@pytest.fixture
def log(tmp_path: Path) -> MemoryLog:
    """An empty catalog, whose clusters write their logs."""
    log = MemoryLog()
    create_catalog(log, warehouse=str(tmp_path))
    return log


@pytest.fixture
def laid_out(log: MemoryLog, source_and_sink: None) -> MemoryLog:
    """Source ``s`` and sink ``k`` below it."""
    return log


def test_without_a_runtime_all_stand_still(laid_out: MemoryLog) -> None:
    """The next command starts the runtime."""
    run = "catalog-migrate run --cluster default.main"
    assert [(each.name, each.state, each.next, each.statements) for each in still(laid_out)] == [
        ("default.k", "no runtime", run, ()), ("default.s", "no runtime", run, ()),
    ]


@pytest.mark.parametrize(
    ("holder", "next_"),
    [
        ("operator", 'catalog-migrate sql -c "RESUME SOURCE default.s"'),
        (
            "upstream",
            'catalog-migrate sql -c "ALTER SOURCE default.s UNSAFE RESET SPLITS WITH (ACCEPT NEW '
            "TOPIC = true) REASON 'the upstream changed'\"",
        ),
        ("operation:1", 'catalog-migrate sql -c "SHOW OPERATIONS"'),
        ("failure", 'catalog-migrate sql -c "RESUME SOURCE default.s"'),
    ],
)
def test_held(laid_out: MemoryLog, holder: str, next_: str) -> None:
    """Each hold is told with its reason and since when, and what lifts it; the sink runs."""
    runtime(laid_out)
    item = dependencies.find(read_state(laid_out), "source", "s").item_id
    since = "2026-01-31T00:00:00+00:00"
    put(laid_out, "hold", f"{item}/{holder}/1", HoldRecord(item, holder, "because", since))
    (found,) = still(laid_out)
    assert (found.kind, found.name, found.state) == ("source", "default.s", "held")
    assert found.reasons == (f"{holder}: because (since {since})",)
    assert found.next == next_


@pytest.mark.parametrize(
    ("lives", "holder", "next_"),
    [
        (False, "operation:1", "run --cluster default.main"),
        (False, "fence", "run --cluster default.main"),
        (True, "fence", 'sql -c "VALIDATE CONNECTION default.c"'),
        (False, "operator", 'sql -c "RESUME SOURCE default.s"'),
    ],
)
def test_what_lifts_a_hold(laid_out: MemoryLog, lives: bool, holder: str, next_: str) -> None:
    """Where only a runtime lifts it and none lives, the next command is to start one; a fence is
    lifted once the destination answers."""
    if lives:
        runtime(laid_out)
    item = dependencies.find(read_state(laid_out), "source", "s").item_id
    put(laid_out, "hold", f"{item}/{holder}/1", HoldRecord(item, holder, "because"))
    (found,) = (each for each in still(laid_out) if each.name == "default.s")
    assert found.next == f"catalog-migrate {next_}"


@pytest.mark.parametrize(
    ("error", "next_"),
    [
        (
            "[USER_RAISED_EXCEPTION] cannot read the record at topic a.b-c, partition 2, offset 30:"
            " it is not one JSON object of the declared columns",
            "ALTER SOURCE default.s UNSAFE INJECT OFFSETS ('a.b-c:2' = 31) REASON 'record 30 "
            "cannot be read'",
        ),
        (
            "[KAFKA_DATA_LOSS.PARTITIONS_DELETED] Partitions were deleted",
            "ALTER SOURCE default.s UNSAFE RESET SPLITS REASON 'partitions are missing'",
        ),
        (
            "[KAFKA_DATA_LOSS.COULD_NOT_READ_OFFSET_RANGE] Could not read records",
            "ALTER SOURCE default.s UNSAFE INJECT OFFSETS (TO committed) WITH (POLICY = clamp) "
            "REASON 'records have expired'",
        ),
        (
            "caused by: KafkaIllegalStateException: Some data may have been lost because they are "
            "not available in Kafka any more; either the data was aged out",
            "ALTER SOURCE default.s UNSAFE INJECT OFFSETS (TO committed) WITH (POLICY = clamp) "
            "REASON 'records have expired'",
        ),
        ("[STREAM_FAILED] no route to host", "VALIDATE CONNECTION default.c"),
    ],
)
@pytest.mark.parametrize("state", ["backing_off", "starting"])
def test_failing(
    laid_out: MemoryLog, state: str, error: str, next_: str
) -> None:
    """What a source fails of decides the next command, also while it is tried once more."""
    cluster = runtime(laid_out)
    item = dependencies.find(read_state(laid_out), "source", "s").item_id
    log = ClusterLog(log_path(read_state(laid_out), cluster), "here")
    log.write([QueryStatus(item, "default.s", "source", state, error=error)])
    (found,) = stalled_queries(read_state(laid_out))
    assert (found.name, found.state, found.reasons) == ("default.s", state, (error,))
    assert found.statements == (next_,)
    assert found.next == f'catalog-migrate sql -c "{next_}"'


@pytest.mark.parametrize("living", [True, False])
@pytest.mark.parametrize(
    ("runtime_", "since"),
    [("there", ""), ("here", "2999-01-01T00:00:00+00:00")],
    ids=["another process", "another life of this one"],
)
def test_what_a_dead_runtime_said(
    laid_out: MemoryLog, living: bool, runtime_: str, since: str
) -> None:
    """It is told as such, with its age, until the living one reports: ``running`` and a lag of 0
    are nobody's word on how things are."""
    cluster = runtime(laid_out)
    item = dependencies.find(read_state(laid_out), "source", "s").item_id
    lease = msgspec.structs.replace(LEASE, since=since) if living else LeaseRecord(epoch=1)
    put(laid_out, "lease", f"cluster/{cluster}", lease)
    dead = ClusterLog(log_path(read_state(laid_out), cluster), runtime_)

    def shown() -> dict[str, object]:
        rows = show(read_state(laid_out), "sources")
        (row,) = (dict(zip(rows.columns, each, strict=True)) for each in rows.values)
        return row

    status = QueryStatus(item, "default.s", "source", "running", "r", "q", 7, 12, 0)
    dead.write([status])
    row = shown()
    assert row["state"] == ("starting" if living else "no runtime")
    assert [row[name] for name in ("batch", "rows", "lag", "at", "error", "run_id")] == [None] * 6
    assert re.fullmatch(
        r"running, batch 7, rows 12, lag 0: a runtime that has ended, \d+ s ago",
        str(row["earlier"]),
    )
    if living:
        put(laid_out, "lease", f"cluster/{cluster}", LEASE)
        dead = ClusterLog(log_path(read_state(laid_out), cluster), "here")
        dead.write([msgspec.structs.replace(status, state="starting", lag=5061)])
        row = shown()
        assert (row["state"], row["lag"], row["earlier"]) == ("starting", 5061, None)
        hold = HoldRecord(item_id=item, holder="failure", reason="no topic t", since="2026-01-31")
        put(laid_out, "hold", f"{item}/failure", hold)
        assert shown()["state"] == "held"


@pytest.mark.parametrize(
    ("error", "shown"),
    [
        ("no topic t", "no topic t"),
        ("[STREAM_FAILED] Query a [id = 1] / caused by: SparkException: Job aborted / caused by: "
         "TimeoutException: Call: listTopics", "TimeoutException: Call: listTopics"),
        ("[STREAM_FAILED] Query a / caused by: [KAFKA_DATA_LOSS.PARTITIONS_DELETED] Some data may "
         "have been lost because they are not available in Kafka any more; or it is gone. Reason: "
         "Partitions t-1 have been deleted. / caused by: OffsetOutOfRangeException: t-1",
         "[KAFKA_DATA_LOSS.PARTITIONS_DELETED] Partitions t-1 have been deleted."),
        ("x" * 2000, "x" * 199 + "…"),
    ],
    ids=["one", "innermost", "class", "long"],
)
def test_an_error_in_a_line(
    laid_out: MemoryLog, error: str, shown: str
) -> None:
    """SHOW SOURCES tells what the chain comes to, status the whole of it."""
    cluster = runtime(laid_out)
    item = dependencies.find(read_state(laid_out), "source", "s").item_id
    log = ClusterLog(log_path(read_state(laid_out), cluster), "here")
    log.write([QueryStatus(item, "default.s", "source", "backing_off", error=error)])
    rows = show(read_state(laid_out), "sources")
    assert dict(zip(rows.columns, rows.values[0], strict=True))["error"] == shown
    (found,) = stalled_queries(read_state(laid_out))
    assert found.reasons == (error,)


def test_what_a_dead_runtime_failed_of(laid_out: MemoryLog) -> None:
    """It is no reason to act: the one that has taken over has not said that anything fails."""
    cluster = runtime(laid_out)
    item = dependencies.find(read_state(laid_out), "source", "s").item_id
    log = ClusterLog(log_path(read_state(laid_out), cluster), "there")
    log.write([QueryStatus(item, "default.s", "source", "backing_off", error="no route to host")])
    assert stalled_queries(read_state(laid_out)) == ()


@pytest.mark.parametrize("number", [3, 8])
def test_status_reminds_of_the_newest(number: int) -> None:
    """Of what nobody has acknowledged the newest three are shown, and how many more there are;
    programs are told all."""
    unseen = tuple(
        Unseen(f"key-{each}", "set", "done", "2026-01-31", "default.s", 1, 0, 0, "", "because")
        for each in range(number)
    )
    status = Status("r", 1, "l", 0, (), None, None, 0, (), "/w", (), unsafe=unseen)
    shown = status_text(status)
    assert [f"key-{each}" in shown for each in range(number)] == [
        each >= number - 3 for each in range(number)
    ]
    more = "… and 5 older, not acknowledged: catalog-migrate unsafe list"
    assert (more in shown) is (number == 8)
    assert len(status_document(status)["unsafe"]) == number  # type: ignore[arg-type]


def test_the_gate_is_shown(laid_out: MemoryLog) -> None:
    """SHOW CLUSTERS tells a living runtime's gate; a dead one's only as what it left."""

    def gate() -> object:
        rows = show(read_state(laid_out), "clusters")
        (row,) = (dict(zip(rows.columns, each, strict=True)) for each in rows.values)
        return row["unsafe_ops"]

    assert gate() == "closed: no runtime was ever started"
    cluster = runtime(laid_out)
    put(laid_out, "cluster", cluster, ClusterRecord(unsafe=True))
    assert gate() == "open"
    put(laid_out, "lease", f"cluster/{cluster}", LeaseRecord(epoch=1))
    assert gate() == "no runtime lives; the last one left it open"


def test_a_hold_says_the_newest_reason(laid_out: MemoryLog) -> None:
    """A source that is held because its topic was gone says when it is there again as another."""
    state = read_state(laid_out)
    cluster, item = (
        dependencies.find(state, kind, name).item_id
        for kind, name in (("cluster", "main"), ("source", "s"))
    )
    clock = SystemClock()
    lease = acquire(laid_out, holder="test", clock=clock, key=f"cluster/{cluster}", wait=0)
    supervisor = Supervisor(
        log=laid_out, lease=lease, engine=OfflineQueries(DeltaTables()), clock=clock,
        cluster=cluster, ensure_shards=lambda _state, _item: None,
    )
    for reason in ("topic t is missing", "topic t was recreated"):
        supervisor.hold(item, Failure("CM0752", reason))
    (hold,) = read_state(laid_out).holds.values()
    assert hold.reason == "topic t was recreated"
    assert hold.since
