"""What ``doctor`` finds of streams: on directories, in a catalog, and on a real PostgreSQL."""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from msgspec.structs import replace

from catalog_migrate.catalog.memory_log import MemoryLog
from catalog_migrate.catalog.opening import create_catalog, read_state
from catalog_migrate.catalog.process import this_process
from catalog_migrate.catalog.records import (
    ClusterRecord,
    HoldRecord,
    LeaseRecord,
    OperationRecord,
    StreamRecord,
)
from catalog_migrate.model.findings import Finding
from catalog_migrate.streams.catalog import dependencies
from catalog_migrate.streams.catalog.cluster_log import ClusterLog, QueryStatus, log_path
from catalog_migrate.streams.catalog.query_spec import slot_of
from catalog_migrate.streams.checkpoint.directory import Checkpoint
from catalog_migrate.streams.ddl.examination import LONG_START, examine_streams
from catalog_migrate.streams.ddl.execute import Executor
from catalog_migrate.streams.runtime.ports import Ports
from tests.decisions import Changes, commit
from tests.services.checkpoints import root

if TYPE_CHECKING:
    from tests.services.upstream import Upstream

RUN = "catalog-migrate run --cluster default.main"
QUERY = "4390c917-4440-44d6-bf46-bb59b73796fe"


class Place:
    """A catalog in memory whose tables lie in a directory."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.log = MemoryLog()
        create_catalog(self.log, warehouse=str(directory))

    def do(self, sql: str) -> None:
        Executor(self.log, lambda *_: None).run(sql)

    def put(self, collection: str, key: str, record: Any) -> None:
        changes = Changes()
        changes.put(collection, key, record)
        commit(self.log, lambda _: changes, kind="test")

    def id(self, kind: str, name: str) -> str:
        return dependencies.find(read_state(self.log), kind, name).item_id

    def started(self, name: str) -> Checkpoint:
        """A source that was started once; where its checkpoint is to be."""
        item = self.id("source", name)
        record = StreamRecord(checkpoint=f"_checkpoints/{item}/1", upstream="u")
        self.put("stream", item, record)
        return Checkpoint(self.directory / "_checkpoints" / item / "1")

    def runtime(self, beat: float | None = 3.0, **more: Any) -> None:
        """A runtime of this process has the cluster, and renewed its lease so long ago."""
        me, cluster = this_process(), self.id("cluster", "main")
        lease = LeaseRecord(
            epoch=1, holder="here", host=me.host, boot_id=me.boot_id, pid=me.pid,
            started=me.started, since="2026-01-31T00:00:00+00:00",
        )
        self.put("lease", f"cluster/{cluster}", replace(lease, **more))
        self.put("cluster", cluster, ClusterRecord())
        self.log.renew(f"cluster/{cluster}", f"1:x:{time.time() - (beat or 0):.0f}")

    def found(self, now: float | None = None) -> dict[str, list[Finding]]:
        """All findings by what they are of."""
        by: dict[str, list[Finding]] = {}
        for each in examine_streams(
            read_state(self.log), self.log, ports=Ports(), now=time.time() if now is None else now
        ):
            by.setdefault(each.subject, []).append(each)
        return by

    def bad(self) -> dict[str, list[Finding]]:
        """Those that are not well; each has a remedy."""
        wrong = {
            subject: [each for each in findings if not each.ok]
            for subject, findings in self.found().items()
        }
        assert all(each.remedy for findings in wrong.values() for each in findings)
        return {subject: findings for subject, findings in wrong.items() if findings}


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """A source on files in cluster ``main``."""
    place = Place(tmp_path)
    (tmp_path / "in").mkdir()
    place.do(
        f"CREATE CLUSTER main; CREATE CONNECTION files TO FILES (PATH '{tmp_path}');"
        "CREATE SOURCE s (id BIGINT) IN CLUSTER main FROM FILES CONNECTION files (PATH 'in') "
        "FORMAT JSON"
    )
    return place


def test_nothing_declared(tmp_path: Path) -> None:
    """A catalog without streams has no findings of them."""
    assert Place(tmp_path).found() == {}


def test_all_is_well(place: Place) -> None:
    """What is well takes a line a kind: before the first run, and under a runtime."""
    assert {subject: [(each.ok, each.message) for each in found]
            for subject, found in place.found().items()} == {
        "runtime": [(True, "default.main: none")], "connection": [(True, "1 answer")],
        "streams": [(True, "1 no runtime")],
    }
    place.runtime()
    path = log_path(read_state(place.log), place.id("cluster", "main"))
    ClusterLog(path, "here").write([
        QueryStatus(place.id("source", "s"), "default.s", "source", "running")
    ])
    checkpoint = place.started("s")
    root(checkpoint).mkdir(parents=True)
    (root(checkpoint) / "metadata").write_text(f'{{"id":"{QUERY}"}}')
    found = place.found()
    (runtime,) = found.pop("runtime")
    assert runtime.ok
    assert runtime.message.startswith(
        "default.main: here since 2026-01-31T00:00:00+00:00, lease renewed 3 s ago"
    )
    assert {subject: [each.message for each in findings] for subject, findings in found.items()} \
        == {"connection": ["1 answer"], "streams": ["1 running"], "checkpoint": ["1 present"]}


@pytest.mark.parametrize(
    ("beat", "more", "message"),
    [
        (None, {"holder": ""}, "default.main: none"),
        (3.0, {"pid": 2**22 + 1, "started": "0"}, "default.main: here, which has it since "
         "2026-01-31T00:00:00+00:00, is dead"),
        (300.0, {"host": "other", "boot_id": "other"}, "default.main: here, which has it since "
         "2026-01-31T00:00:00+00:00, does not renew its lease, lease renewed 300 s ago"),
    ],
    ids=["ended", "dead", "silent"],
)
def test_a_runtime_that_does_not_run(
    place: Place, beat: float | None, more: dict[str, Any], message: str
) -> None:
    """It is named with what is known of it, and so is the source that stands still without it."""
    place.runtime(beat, **more)
    bad = place.bad()
    (runtime,) = bad.pop("runtime")
    assert runtime.message == message
    assert runtime.remedy is not None
    assert runtime.remedy.startswith(RUN)
    (source,) = bad.pop("source")
    assert source.message.startswith("default.s: no runtime: ")
    assert source.remedy == RUN
    assert bad == {}


def test_a_hold_and_a_failure(place: Place) -> None:
    """The reason in full, and the command that status has."""
    place.runtime()
    item = place.id("source", "s")
    path = log_path(read_state(place.log), place.id("cluster", "main"))
    ClusterLog(path, "here").write([
        QueryStatus(item, "default.s", "source", "backing_off", error="no route to host")
    ])
    (failing,) = place.bad()["source"]
    assert failing.message == "default.s: backing_off: no route to host"
    place.put("hold", f"{item}/operator/1", HoldRecord(item, "operator", "disk"))
    (held,) = place.bad()["source"]
    assert held.message == "default.s: held: operator: disk"
    assert held.remedy is not None
    assert "RESUME SOURCE default.s" in held.remedy


def test_a_start_that_does_not_end(place: Place) -> None:
    """For some minutes it is a start, then a finding that says where to look."""
    place.runtime()
    path = log_path(read_state(place.log), place.id("cluster", "main"))
    ClusterLog(path, "here").write([
        QueryStatus(place.id("source", "s"), "default.s", "source", "starting")
    ])
    assert [each.message for each in place.found()["streams"]] == ["1 starting"]
    place.runtime(beat=-LONG_START)
    later = place.found(time.time() + LONG_START + 5)
    assert "streams" not in later
    (source,) = later["source"]
    assert not source.ok
    assert source.message.startswith("default.s: starting for 6")
    assert source.remedy is not None
    assert source.remedy.startswith("catalog-migrate source log default.s --since 1h")


def test_connections(place: Place, tmp_path: Path) -> None:
    """One that does not answer is named with its option; a secret that is elsewhere says so."""
    place.do("CREATE SECRET pw AS 'env:NOWHERE_TO_BE_FOUND';"
             "CREATE CONNECTION pg TO POSTGRES (HOST '127.0.0.1', PORT 1, DATABASE 'x', USER 'u')"
             " WITH (VALIDATE = false);"
             "CREATE CONNECTION hidden TO POSTGRES (HOST '127.0.0.1', PORT 1, DATABASE 'x',"
             " USER 'u', PASSWORD SECRET pw) WITH (VALIDATE = false)")
    assert [each.message for each in place.found()["connection"] if each.ok] == ["1 answer"]
    dead, hidden = sorted(place.bad()["connection"], key=lambda each: "hidden" in each.message)
    assert dead.message.startswith("default.pg: ")
    assert hidden.message.startswith("default.hidden: ")
    assert hidden.remedy == "run doctor where the runtime runs: it has the secret there"


@pytest.mark.parametrize("damage", ["missing", "torn"])
def test_checkpoints(place: Place, damage: str) -> None:
    """A source that was started once has one; without it a start would begin anew."""
    checkpoint = place.started("s")
    if damage == "torn":
        root(checkpoint).mkdir(parents=True)
        (root(checkpoint) / "metadata").write_text("{")
    (found,) = place.bad()["checkpoint"]
    if damage == "missing":
        assert found.message == (
            "source default.s was started before, and its checkpoint is missing: "
            f"{checkpoint.address}"
        )
        assert found.remedy is not None
        assert found.remedy.startswith("PAUSE SOURCE default.s")
    else:
        assert found.message.startswith("source default.s: ")
        assert "metadata" in found.message
    shutil.rmtree(checkpoint.address, ignore_errors=True)


@pytest.mark.services
def test_slots(
    tmp_path: Path, upstream: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log that a slot keeps and who reads it; a slot that is missing, that is lost, whose
    source was dropped, or whose server does not answer, each with what to do."""
    place = Place(tmp_path)
    monkeypatch.setenv("PG_OF_DOCTOR", upstream.password)
    upstream.sql("CREATE TABLE t (id int PRIMARY KEY)", "CREATE PUBLICATION p FOR TABLE t")
    place.do(
        "CREATE CLUSTER main; CREATE SECRET pw AS 'env:PG_OF_DOCTOR';"
        f"CREATE CONNECTION pg TO POSTGRES (HOST '127.0.0.1', PORT {upstream.server.port},"
        f" DATABASE '{upstream.database}', USER '{upstream.role}', PASSWORD SECRET pw,"
        " SSL MODE 'disable');"
        "CREATE SOURCE s IN CLUSTER main FROM POSTGRES CONNECTION pg (PUBLICATION 'p', TABLES (t))"
    )
    item = place.id("source", "s")
    slot = slot_of(read_state(place.log), item)
    assert "slot" not in place.found()  # its first start makes it
    place.started("s")
    (finding,) = place.bad()["slot"]
    assert finding.message == f"source default.s: there is no slot {slot}"
    assert finding.remedy is not None
    assert "ALTER SOURCE default.s UNSAFE RESET SPLITS" in finding.remedy

    upstream.sql(f"SELECT pg_create_logical_replication_slot('{slot}', 'pgoutput')")
    upstream.sql("INSERT INTO t SELECT generate_series(1, 1000)")
    (finding,) = place.found()["slot"]
    assert finding.ok
    assert finding.message.startswith(f"source default.s: slot {slot} keeps ")
    assert finding.message.endswith(" bytes of log (reserved), no process reads it")
    kept = int(finding.message.partition(" keeps ")[2].partition(" ")[0].replace(",", ""))
    assert kept > 10_000

    pg = upstream.server
    pg.execute("ALTER SYSTEM SET max_slot_wal_keep_size = '1MB'")
    pg.execute("SELECT pg_reload_conf()")
    try:
        for number in range(3):
            upstream.sql(f"INSERT INTO t VALUES ({-number})")
            pg.execute("SELECT pg_switch_wal()")
        pg.execute("CHECKPOINT")
        (finding,) = place.bad()["slot"]
        assert finding.message == f"source default.s: slot {slot} is lost (wal_removed)"
        assert finding.remedy is not None
        assert finding.remedy.startswith("raise max_slot_wal_keep_size")
    finally:
        pg.execute("ALTER SYSTEM RESET max_slot_wal_keep_size")
        pg.execute("SELECT pg_reload_conf()")

    gone = OperationRecord(
        kind="slot", state="pending", cluster=place.id("cluster", "main"), target="",
        detail={"slot": "other", "source": "default.old", "server": "h/d", "upstream": "",
                "folder": str(tmp_path)},
    )
    place.put("operation", "slot/i9", gone)
    monkeypatch.setenv("PG_OF_DOCTOR", "another password")
    (of_source, of_dropped) = place.bad()["slot"]
    assert of_source.message.startswith("source default.s: ")
    assert of_dropped.message.startswith("other of the dropped source default.old keeps the log")
    text = repr(place.found())
    assert upstream.password not in text
    assert "another password" not in text
