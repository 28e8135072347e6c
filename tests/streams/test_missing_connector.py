"""A connector whose package is not installed any more: its items are kept, and the others go on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from catalog_migrate.catalog.records import ClusterRecord
from catalog_migrate.connectors import base
from catalog_migrate.errors import ConnectorMissing, RefusedStatement, UnsafeBlocked
from catalog_migrate.model.connector_names import ENTRY_POINTS
from catalog_migrate.streams.catalog import dependencies
from catalog_migrate.streams.catalog.cluster_log import QueryStatus, decode_failure
from catalog_migrate.streams.catalog.failures import Failure
from catalog_migrate.streams.catalog.query_spec import first_stream
from catalog_migrate.streams.positions.positions import sent_before
from catalog_migrate.streams.upstreams.upstream import input_known
from tests.simulation.streaming import StreamWorld
from tests.streams.test_operations import Stage

MODULE = """
from catalog_migrate.connectors.base import Connector, Identity, Source
from catalog_migrate.connectors.positions import PartitionCodec
from catalog_migrate.connectors.sections import Section
from catalog_migrate.connectors.values import Option

class QueueSource(Source):
    section = Section(
        options=(Option('TOPIC', 'topics', 'The queue.', 'q', required=True),),
        default_format='JSON', formats=('JSON',), includes=('KEY',), records=True,
    )
    codec = PartitionCodec()
    def check(self, resolved, external, columns, *, subject, timeout):
        return ()
    def reader(self, spark, spec):
        raise NotImplementedError
    def survey(self, spec, *, timeout=10.0, sample=True):
        raise NotImplementedError
    def read_range(self, spark, spec, ranges):
        raise NotImplementedError

class Queue(Connector):
    name = 'QUEUE'
    connection = Section(options=(Option('BROKER', 'text', 'Where.', 'q:1', required=True),))
    source = QueueSource()
    def check(self, resolved, *, subject, timeout):
        return ()
    def identify(self, resolved, names=(), *, subject, timeout, reads=False):
        raise NotImplementedError
    def names(self, external):
        return (external.options['TOPIC'],)

CONNECTOR = Queue()
"""

STATEMENTS = (
    "CREATE CONNECTION q TO QUEUE (BROKER 'a:9092')",
    "CREATE SOURCE w (id BIGINT) IN CLUSTER main FROM QUEUE CONNECTION q (TOPIC 'u') FORMAT JSON",
)


@pytest.fixture
def package(tmp_path: Path) -> Iterator[pytest.MonkeyPatch]:
    """A package with the connector QUEUE, as long as the paths are patched."""
    place = tmp_path / "site"
    info = place / "catalog_migrate_queue-1.0.dist-info"
    info.mkdir(parents=True)
    (place / "queue_connector_of_tests.py").write_text(MODULE)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: catalog_migrate_queue\n"
                                   "Version: 1.0\n")
    (info / "entry_points.txt").write_text(
        f"[{ENTRY_POINTS}]\nQUEUE = queue_connector_of_tests:CONNECTOR\n"
    )
    patch = pytest.MonkeyPatch()
    patch.syspath_prepend(place)
    yield patch
    patch.undo()
    base._find.cache_clear()


@pytest.fixture
def stage(tmp_path: Path, package: pytest.MonkeyPatch) -> Stage:
    """A catalog with a source on QUEUE beside others, on a machine that has its package no more."""
    stage = Stage(tmp_path, StreamWorld({"t": [3, 2], "u": [4]}))
    for statement in STATEMENTS:
        stage.client(lambda: None).run(statement + " WITH (VALIDATE = false)" * (
            "CONNECTION q TO" in statement
        ))
    package.undo()
    base._find.cache_clear()
    return stage


def test_it_is_held_with_the_package_to_install(stage: Stage) -> None:
    """The source is held for its reason; the sources beside it run."""
    for _ in range(30):
        stage.turn()
    item_id = dependencies.find(stage.state, "source", "w").item_id
    (hold,) = [each for each in stage.state.holds.values() if each.item_id == item_id]
    assert "QUEUE is no type of connection" in hold.reason
    assert "pip install catalog_migrate_queue" in str(hold)
    running = {each.item_id for each in stage.supervisor.managed.values() if each.active}
    assert len(running) == 2
    assert item_id not in running


def test_it_is_shown_and_kept(stage: Stage) -> None:
    """SHOW has it, as it was created; statements on others work, those on it name what lacks."""
    client = stage.client(lambda: None)
    (created,) = client.run("SHOW CREATE SOURCE w")
    assert "FROM QUEUE CONNECTION" in str(created)
    assert "_offset" not in str(created)
    for what in ("SOURCES", "SINKS", "CONNECTIONS", "CLUSTERS", "SECRETS"):
        client.run(f"SHOW {what}")
    client.run("CREATE CONNECTION other TO KAFKA (BROKER 'b:9092') WITH (VALIDATE = false)")
    with pytest.raises((ConnectorMissing, RefusedStatement), match="QUEUE is no type"):
        client.run("ALTER CONNECTION q SET (BROKER = 'b:9092') WITH (VALIDATE = false)")


def test_it_goes_on_once_the_package_is_there(
    stage: Stage, package: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """With the package installed and the hold lifted it is as any other."""
    for _ in range(10):
        stage.turn()
    item_id = dependencies.find(stage.state, "source", "w").item_id
    assert not stage.supervisor.managed[item_id].active
    package.syspath_prepend(tmp_path / "site")
    stage.client(lambda: None).run("RESUME SOURCE w")
    stage.supervisor.clock.sleep(60)
    for _ in range(30):
        stage.turn()
    assert stage.supervisor.managed[item_id].active


def test_no_first_positions_where_the_reader_takes_none(
    stage: Stage, package: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Positions before the first batch are refused, for a reader that would not look at them."""
    package.syspath_prepend(tmp_path / "site")
    cluster = stage.supervisor.cluster
    stage.put("cluster", cluster, ClusterRecord(unsafe=True))
    client = stage.client(lambda: None)
    with pytest.raises(UnsafeBlocked, match="has read nothing yet, and QUEUE sources take no"):
        client.run("EXPLAIN ALTER SOURCE w UNSAFE INJECT OFFSETS ('u:0' = 1) REASON 'twice'")


def test_a_sink_waits_for_what_its_source_is(
    stage: Stage, package: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Whether the source has topics with ids is not known without its package: a sink with row keys
    waits until it was identified where it runs, and one without row keys need not."""
    package.syspath_prepend(tmp_path / "site")
    client = stage.client(lambda: None)
    client.run("CREATE SINK wk FROM w INTO KAFKA CONNECTION c (TOPIC 'o') FORMAT JSON")
    package.undo()
    base._find.cache_clear()
    state = stage.state
    source = dependencies.find(state, "source", "w").item_id
    sink = dependencies.find(state, "sink", "wk").item_id
    assert not input_known(state, sink)
    stage.put("stream", source, msgspec.structs.replace(first_stream(source), upstream="other"))
    assert input_known(stage.state, sink)
    monkeypatch = pytest.MonkeyPatch()
    monkeypatch.setattr(base, "OURS", {})
    base._find.cache_clear()
    try:
        with pytest.raises(ConnectorMissing):
            sent_before(stage.state, sink, ())
    finally:
        monkeypatch.undo()
        base._find.cache_clear()


SINK = "CREATE SINK wk FROM {} INTO KAFKA CONNECTION c (TOPIC 'o') FORMAT JSON"


def _report(stage: Stage, kind: str, name: str) -> tuple[QueryStatus, Failure]:
    for _ in range(10):
        stage.turn()
    item_id = dependencies.find(stage.state, kind, name).item_id
    (found,) = [
        each for each in stage.supervisor.statuses(stage.state) if each.item_id == item_id
    ]
    failure = decode_failure(found)
    assert failure is not None
    return found, failure


def test_a_sink_that_waits_says_for_what(
    stage: Stage, package: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Its report names the source, and the package that this machine lacks; it is not held, for
    once the source was identified where it runs the sink starts, and reports nothing of it."""
    package.syspath_prepend(tmp_path / "site")
    stage.client(lambda: None).run(SINK.format("w"))
    package.undo()
    base._find.cache_clear()
    status, failure = _report(stage, "sink", "wk")
    assert (status.state, failure.code) == ("stopped", "AWAITS_SOURCE")
    assert status.error is not None
    assert status.error.startswith("it waits for source default.w: the keys of its rows have the")
    assert "; QUEUE is no type of connection that is installed here" in status.error
    assert failure.remedy.startswith("pip install catalog_migrate_queue")
    assert failure.statements == ("SHOW SOURCES",)
    sink = dependencies.find(stage.state, "sink", "wk").item_id
    assert not [hold for hold in stage.state.holds.values() if hold.item_id == sink]
    source = dependencies.find(stage.state, "source", "w").item_id
    stage.put("stream", source, msgspec.structs.replace(first_stream(source), upstream="other"))
    stage.turn()
    stage.turn()
    (status,) = [each for each in stage.supervisor.statuses(stage.state) if each.item_id == sink]
    assert status.failure is None or "AWAITS_SOURCE" not in status.failure
    assert stage.supervisor.managed[sink].fingerprint


def test_a_sink_waits_for_a_source_that_is_held(stage: Stage) -> None:
    """Also of a connector that is installed: the report says that it is the source that is late."""
    stage.client(lambda: None).run(
        "CREATE SOURCE v (id BIGINT) IN CLUSTER main FROM KAFKA CONNECTION c (TOPIC 'v')"
        " FORMAT JSON; PAUSE SOURCE v; " + SINK.format("v")
    )
    status, failure = _report(stage, "sink", "wk")
    assert (status.state, failure.code, failure.passing) == ("stopped", "AWAITS_SOURCE", True)
    assert status.error is not None
    assert "which are on record once the source has started" in status.error
    assert "installed" not in status.error
    assert failure.remedy == "it starts by itself then; see why the source has not"
