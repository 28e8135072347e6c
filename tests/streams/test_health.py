"""Which sources and sinks need a person, and what the log of a cluster has of one."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import msgspec
import pytest

from catalog_migrate.catalog.memory_log import MemoryLog
from catalog_migrate.catalog.opening import create_catalog, read_state
from catalog_migrate.catalog.process import this_process
from catalog_migrate.catalog.records import ClusterRecord, HoldRecord, LeaseRecord
from catalog_migrate.cli.inspection import streams_document, streams_text
from catalog_migrate.delta.log import has_log
from catalog_migrate.delta.table import load_table
from catalog_migrate.errors import UsageError
from catalog_migrate.streams.catalog import cluster_log, dependencies
from catalog_migrate.streams.catalog.cluster_log import ClusterLog, QueryStatus, latest, log_path
from catalog_migrate.streams.ddl.execute import Executor
from catalog_migrate.streams.ddl.health import Limits, StreamsHealth, streams_health
from catalog_migrate.streams.ddl.log_entries import log_entries, moment_of
from catalog_migrate.streams.runtime.lag import Lag
from catalog_migrate.streams.runtime.ports import Ports
from tests.decisions import Changes, commit

Do = Callable[[str], Any]
NOW = 1_800_000_000.0
_ME = this_process()
LEASE = LeaseRecord(
    epoch=1, holder="here", host=_ME.host, boot_id=_ME.boot_id, pid=_ME.pid, started=_ME.started,
)


class Place:
    """Source ``s`` on Kafka and sink ``k`` below it, in cluster ``main``."""

    def __init__(self, log: MemoryLog) -> None:
        self.log = log

    def put(self, collection: str, key: str, record: Any) -> None:
        changes = Changes()
        changes.put(collection, key, record)
        commit(self.log, lambda _: changes, kind="test")

    def id(self, kind: str, name: str) -> str:
        return dependencies.find(read_state(self.log), kind, name).item_id

    def runs(self, *, beat: float | None = 5.0, lease: LeaseRecord = LEASE) -> None:
        """A runtime has the cluster; its newest heartbeat was ``beat`` seconds before NOW."""
        cluster = self.id("cluster", "main")
        self.put("lease", f"cluster/{cluster}", lease)
        self.put("cluster", cluster, ClusterRecord())
        self.log.renew(f"cluster/{cluster}", "1:x" if beat is None else f"1:x:{NOW - beat:.0f}")

    def reports(self, *statuses: QueryStatus, runtime: str = "here") -> None:
        path = log_path(read_state(self.log), self.id("cluster", "main"))
        log = ClusterLog(path, runtime)
        log.write(statuses)
        if log.untidy:
            log.tidy()

    def status(self, state: str, **more: Any) -> QueryStatus:
        return QueryStatus(self.id("source", "s"), "default.s", "source", state, **more)

    def sink(self, state: str = "running", **more: Any) -> QueryStatus:
        return QueryStatus(self.id("sink", "k"), "default.k", "sink", state, **more)

    def health(self, limits: Limits | None = None) -> StreamsHealth:
        return streams_health(
            read_state(self.log), self.log, ports=Ports(), now=NOW, limits=limits
        )


@pytest.fixture
def log(tmp_path: Path) -> MemoryLog:
    """An empty catalog, whose clusters write their logs."""
    log = MemoryLog()
    create_catalog(log, warehouse=str(tmp_path))
    return log


@pytest.fixture
def place(log: MemoryLog, source_and_sink: None) -> Place:
    """All is declared and nothing runs."""
    return Place(log)


def states(health: StreamsHealth) -> dict[str, tuple[str, bool]]:
    return {query.name: (query.state, query.ok) for query in health.queries}


def test_no_streams(log: MemoryLog) -> None:
    """A catalog without any is well."""
    health = streams_health(read_state(log), log, ports=Ports(), now=NOW)
    assert (health.ok, streams_text(health)) == (True, "no sources and no sinks\n")


def test_never_run(place: Place) -> None:
    """What was declared and never run has not stopped."""
    health = place.health()
    assert states(health) == {
        "default.s": ("no runtime", True), "default.k": ("no runtime", True),
    }
    assert health.ok


@pytest.mark.parametrize(
    ("state", "more", "ok"),
    [
        ("running", {}, True),
        ("starting", {}, True),
        ("starting", {"error": "no route to host"}, False),
        ("backing_off", {"error": "no route to host"}, False),
        ("stopped", {}, False),
        ("stopped", {"error": "it waits for source default.s"}, False),
    ],
)
def test_what_a_runtime_reports(
    place: Place, state: str, more: dict[str, Any], ok: bool
) -> None:
    """Only what runs, or starts for the first time, is well."""
    place.runs()
    place.reports(place.status(state, **more), place.sink())
    health = place.health()
    assert states(health) == {"default.s": (state, ok), "default.k": ("running", True)}
    assert health.ok is ok
    (source, _) = health.queries
    assert source.reasons == tuple(more.values())


def test_the_log_of_a_cluster_is_read_once(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sources, sinks and what does not run are of one reading, also of a log on a store."""
    place.runs()
    place.reports(place.status("running"), place.sink())
    reads: list[str] = []

    def count(path: str) -> bool:
        reads.append(path)
        return has_log(path)

    monkeypatch.setattr(cluster_log, "has_log", count)
    assert place.health().ok
    assert reads == [log_path(read_state(place.log), place.id("cluster", "main"))]


@pytest.mark.parametrize("lives", [True, False])
def test_a_hold(place: Place, lives: bool) -> None:
    """Whether a runtime lives or not; its reason and what to do next are said."""
    if lives:
        place.runs()
    item = place.id("source", "s")
    place.put("hold", f"{item}/operator/1", HoldRecord(item, "operator", "because"))
    (source, _) = place.health().queries
    assert (source.state, source.ok, source.reasons) == ("held", False, ("operator: because",))
    assert source.next is not None
    assert "RESUME SOURCE default.s" in source.next
    assert not place.health().ok


def test_a_runtime_that_ended(place: Place) -> None:
    """Its queries stopped with it."""
    place.runs()
    place.reports(place.status("running"), place.sink())
    place.put("lease", f"cluster/{place.id('cluster', 'main')}", LeaseRecord(epoch=1))
    health = place.health()
    assert states(health) == {
        "default.s": ("no runtime", False), "default.k": ("no runtime", False),
    }
    assert {query.next for query in health.queries} == {
        "catalog-migrate run --cluster default.main"
    }


@pytest.mark.parametrize(("beat", "ok"), [(5.0, True), (59.0, True), (61.0, False), (None, True)])
def test_a_runtime_that_is_silent(place: Place, beat: float | None, ok: bool) -> None:
    """One of another machine that does not renew its lease is not believed to run anything; a
    heartbeat of an earlier version says no time."""
    place.runs(beat=beat, lease=msgspec.structs.replace(LEASE, host="other", boot_id="other"))
    place.reports(place.status("running"), place.sink())
    health = place.health()
    found = ("running" if ok else "no runtime", ok)
    assert states(health) == {"default.s": found, "default.k": found}
    (runtime,) = health.runtimes
    assert (runtime.heartbeat, runtime.lives) == (beat, ok)
    if not ok:
        assert health.queries[0].reasons == (
            "here has the cluster and has not renewed its lease for 61 s: it is dead, or cannot"
            " reach the catalog",
        )


@pytest.mark.parametrize(
    ("limits", "lag", "exceeded"),
    [
        (Limits(), Lag(10**9, 5, 10**12, 10**6), ()),
        (Limits(records=100), Lag(records=100), ()),
        (Limits(records=100), Lag(records=1234), (
            "1,234 records behind, streams.lag_records is 100",
        )),
        (Limits(records=100), Lag(), ()),
        (Limits(bytes=0, seconds=2.5), Lag(bytes=1, seconds=61.5), (
            "1 bytes behind, streams.lag_bytes is 0",
            "61.5 seconds behind, streams.lag_seconds is 2",
        )),
        (Limits(bytes=5), Lag(records=10**6, versions=9), ()),
    ],
)
def test_limits(limits: Limits, lag: Lag, exceeded: tuple[str, ...]) -> None:
    """A lag is too much above its limit; one that is not known is above none."""
    assert limits.exceeded(lag) == exceeded
    assert limits.declared is (limits != Limits())


def test_behind_a_limit(place: Place) -> None:
    """A query that runs and is too far behind needs a person; another is as well as before."""
    place.runs()
    place.reports(place.status("running", lag=101, batch=7, rows=12), place.sink(lag=0))
    assert place.health().ok
    assert place.health(Limits(records=101)).ok
    health = place.health(Limits(records=100))
    assert states(health) == {"default.s": ("running", False), "default.k": ("running", True)}
    assert health.queries[0].reasons == ("101 records behind, streams.lag_records is 100",)
    assert health.queries[0].next == "catalog-migrate source log default.s --since 1h"
    lines = streams_text(health).splitlines()
    assert lines[0].split() == [
        "kind", "name", "cluster", "state", "lag", "batch", "rows", "reported", "(UTC)",
    ]
    assert lines[1].startswith(
        "source  default.s  default.main  running  101 records  7      12    2"
    )
    assert lines[3:] == [
        "runtime of default.main: here since ; its lease was renewed 5 s ago",
        "source default.s: running",
        "  101 records behind, streams.lag_records is 100",
        "  next: catalog-migrate source log default.s --since 1h",
    ]
    document = msgspec.json.decode(msgspec.json.encode(streams_document(health)))
    assert document["ok"] is False
    assert document["streams"][0]["lag"] == {
        "records": 101, "versions": None, "bytes": None, "seconds": None,
    }
    assert document["runtimes"] == [{
        "cluster": "default.main", "holder": "here", "since": "", "heartbeat_seconds": 5.0,
        "lives": True,
    }]


# -- the log ---------------------------------------------------------------------------------------


def entries(place: Place, **more: Any) -> list[dict[str, object]]:
    rows = log_entries(read_state(place.log), place.id("source", "s"), **more)
    return [dict(zip(rows.columns, values, strict=True)) for values in rows.values]


def test_the_log_of_a_query(place: Place) -> None:
    """What was reported of it alone, the newest last, from one runtime to the next; SHOW has the
    same."""
    assert entries(place) == []
    for batch in range(5):
        place.reports(place.status("running", batch=batch, rows=batch), place.sink(batch=batch))
    place.reports(place.status("backing_off", error="no route", restarts=1), runtime="there")
    found = entries(place)
    assert [row["batch"] for row in found] == [0, 1, 2, 3, 4, None]
    assert [row["at"] for row in found] == sorted(str(row["at"]) for row in found)
    newest = found[-1]
    assert datetime.fromisoformat(str(newest.pop("at")).replace("Z", "+00:00")).tzinfo is not None
    assert {name: value for name, value in newest.items() if value is not None} == {
        "state": "backing_off", "error": "no route", "restarts": 1, "runtime": "there",
    }
    assert [row["batch"] for row in entries(place, limit=2)] == [4, None]
    assert entries(place, since=datetime.now(timezone.utc) + timedelta(hours=1)) == []
    assert len(entries(place, since=datetime.now(timezone.utc) - timedelta(days=400))) == 6
    executor = Executor(place.log, lambda *_: None)
    (shown,) = executor.run("SHOW SOURCE s LOG LIMIT 2")
    assert shown.rows == log_entries(read_state(place.log), place.id("source", "s"), limit=2)
    (shown,) = executor.run("SHOW SINK k LOG")
    assert shown.rows is not None
    assert len(shown.rows.values) == 5


def test_a_log_that_grows(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each report adds a small file; they are put together again and again, every row kept."""
    monkeypatch.setattr(cluster_log, "TIDY_INTERVAL", 20)
    for batch in range(65):
        place.reports(place.status("running", batch=batch))
    assert [row["batch"] for row in entries(place)] == list(range(65))
    assert latest(read_state(place.log))[place.id("source", "s")].batch == 64
    files = load_table(log_path(read_state(place.log), place.id("cluster", "main"))).file_uris()
    assert len(files) < 20


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("30s", 30), ("45m", 2700), ("45 min", 2700), ("1h", 3600), ("2D", 172_800), ("0s", 0)],
)
def test_how_long_ago(text: str, seconds: int) -> None:
    """A number and a unit."""
    now = datetime.now(timezone.utc)
    assert now - moment_of(text, now) == timedelta(seconds=seconds)


@pytest.mark.parametrize(
    "text", ["2026-01-31T02:15:00Z", "2026-01-31 02:15", "2026-01-31T03:15:00+01:00"]
)
def test_a_time(text: str) -> None:
    """ISO 8601, in UTC unless it says otherwise."""
    moment = moment_of(text, datetime.now(timezone.utc))
    assert moment == datetime(2026, 1, 31, 2, 15, tzinfo=timezone.utc)


@pytest.mark.parametrize("text", ["", "h", "-1h", "1 fortnight", "yesterday", "999999999d", "1'h"])
def test_no_time(text: str) -> None:
    """Anything else is a usage error that says what to write."""
    with pytest.raises(UsageError, match="write how long ago"):
        moment_of(text, datetime.now(timezone.utc))
