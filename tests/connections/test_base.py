"""How a connector is found: ours by an import string, others by their entry point, when used."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import pytest

from catalog_migrate.connectors.base import (
    Connector,
    connector_names,
    find_connector,
    find_if_installed,
    partition_codec,
    require_installed,
)
from catalog_migrate.errors import ConnectorMissing, SyntaxProblem, UnsafeBlocked
from catalog_migrate.model import connector_names as names
from catalog_migrate.model.objects import External
from catalog_migrate.sql.parser import parse_one
from catalog_migrate.sql.printer import render


@pytest.fixture
def queue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """An installed package with a connector of its own, which is named in lower case."""
    module = f"queue_of_{tmp_path.name.replace('-', '_')}"
    (tmp_path / f"{module}.py").write_text(
        "from catalog_migrate.connectors.base import Connector\n"
        "from catalog_migrate.connectors.sections import Section\n"
        "class Queue(Connector):\n"
        "    name = 'QUEUE'\n"
        "    connection = Section(options=())\n"
        "    def check(self, resolved, *, subject, timeout):\n"
        "        return ()\n"
        "CONNECTOR = Queue()\n"
    )
    info = tmp_path / f"{module}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        f"[{names.ENTRY_POINTS}]\nqueue = {module}:CONNECTOR\nkafka = {module}:CONNECTOR\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    yield module
    from catalog_migrate.connectors import base

    base._find.cache_clear()


def test_ours_are_named_in_their_order() -> None:
    """Each name leads to the connector of that name, whatever its case."""
    assert [find_connector(name).name for name in connector_names()] == list(connector_names())
    assert find_connector("kafka") is find_connector("KAFKA")


def test_one_of_another_package_is_loaded_when_it_is_used(queue: str) -> None:
    """A statement may name it, which imports nothing; it is imported once, when it is asked for."""
    statement = parse_one("CREATE CONNECTION c TO queue (PATH '/q')")
    assert "TO QUEUE" in render(statement)
    assert queue not in sys.modules
    found = find_connector("Queue")
    assert isinstance(found, Connector)
    assert queue in sys.modules
    assert find_connector("QUEUE") is found


@pytest.mark.usefixtures("queue")
def test_ours_cannot_be_replaced() -> None:
    """A package that registers a name of ours is not asked."""
    assert find_connector("KAFKA").source is not None


def test_a_missing_one_is_named() -> None:
    """Whoever needs it gets its name and what to install; a statement that names it is refused."""
    with pytest.raises(ConnectorMissing, match="QUEUE is no type of connection") as caught:
        find_connector("QUEUE")
    assert caught.value.connector == "QUEUE"
    assert "install the package" in str(caught.value.remedy)
    assert find_if_installed("QUEUE") is None
    with pytest.raises(SyntaxProblem, match="SSH TUNNEL"):
        parse_one("CREATE CONNECTION c TO QUEUE (PATH '/q')")


@pytest.mark.parametrize(("code", "words"), [
    ("import no_such_client\n", "cannot be loaded: ModuleNotFoundError: No module named"),
    ("CONNECTOR = 1\n", "does not implement Connector"),
    ("""
from catalog_migrate.connectors.base import Connector, Sink, Source
from catalog_migrate.connectors.sections import Section
class In(Source):
    section = Section(options=(), records=True)
    def check(self, resolved, external, columns, *, subject, timeout): return ()
    def reader(self, spark, spec): return None
class Out(Sink):
    section = Section(options=())
    ledger = "it"
    def check(self, resolved, external, columns, *, subject, timeout): return ()
    def writer(self, spark, spec): return None
    def destination(self, external): return ""
class Queue(Connector):
    name = "QUEUE"
    connection = Section(options=())
    source, sink, shares_client = In(), Out(), True
    def check(self, resolved, *, subject, timeout): return ()
CONNECTOR = Queue()
""", "does not implement Queue.identify, Queue.access, In.survey, In.read_range, Out.last_batch,"
        " Out.require_ledger, Out.fence, In.codec"),
])
def test_a_package_that_does_not_work_is_named(
    queue: str, tmp_path: Path, code: str, words: str
) -> None:
    """The error has the package and the cause; its items are held as those of a missing one, and
    the remedy is not to install what is there."""
    (tmp_path / f"{queue}.py").write_text(code)
    with pytest.raises(ConnectorMissing) as caught:
        find_connector("QUEUE")
    assert caught.value.message.startswith(f"the connector QUEUE of {queue} ({queue}:CONNECTOR) ")
    assert words in caught.value.message
    assert find_if_installed("QUEUE") is None
    with pytest.raises(ConnectorMissing, match="the connector QUEUE of") as again:
        require_installed(External(connector="QUEUE", package=queue))
    assert again.value.remedy == caught.value.remedy


def test_packages_are_read_again_once_one_was_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A name that no package has costs no look at all of them each time, and is found as soon as
    one is installed."""
    place, reads = tmp_path / "site", []
    place.mkdir()
    monkeypatch.syspath_prepend(place)

    def count(group: str) -> Any:
        reads.append(group)
        return entry_points(group=group)

    monkeypatch.setattr(names, "entry_points", count)
    assert [names.find_plugin(name) for name in ("LATE", "LATE", "OTHER", "kafka")] == [None] * 4
    assert reads == [names.ENTRY_POINTS]
    info = place / "late-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: late\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[{names.ENTRY_POINTS}]\nlate = late:CONNECTOR\n")
    os.utime(place, ns=(1, 1))  # the clock of a file system may not have ticked since
    found = names.find_plugin("LATE")
    assert found is not None
    assert (found.value, len(reads)) == ("late:CONNECTOR", 2)
    assert names.package_of("late") == "late"


def test_a_lookup_imports_that_connector_only() -> None:
    """Neither the others, nor a client library, nor Spark; no entry point is looked for."""
    program = (
        "import sys, importlib.metadata as m\n"
        "def scan(**_): raise AssertionError('scanned')\n"
        "m.entry_points = scan\n"
        "from catalog_migrate.connectors.base import find_connector\n"
        "find_connector('FILES')\n"
        "found = [n for n in sys.modules if n.startswith(('catalog_migrate.connectors.kafka',"
        " 'catalog_migrate.connectors.postgres', 'confluent_kafka', 'psycopg', 'pyspark',"
        " 'deltalake'))]\n"
        "assert found == [], found\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


@pytest.mark.parametrize("name", ["FILES", "POSTGRES"])
def test_positions_that_are_of_no_partition(name: str) -> None:
    """A source whose codec has no partitions, or that has none, is refused with what to do."""
    with pytest.raises(UnsafeBlocked, match=f"{name} sources have no positions by partition") as at:
        partition_codec(External(connector=name))
    assert "create another source" in (at.value.remedy or "")
