"""Sixty sources on one runtime: all of them start, and what that takes is printed."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from catalog_migrate.api import Catalog
from catalog_migrate.catalog.opening import create_catalog, open_log
from catalog_migrate.delta.table import load_table
from catalog_migrate.streams import dependencies
from catalog_migrate.streams.status import latest
from tests.services.postgres import PostgresServer
from tests.streams.crash.runtime_process import CommandProcess

pytestmark = [pytest.mark.spark, pytest.mark.services, pytest.mark.soak]

SOURCES = int(os.environ.get("MANY_SOURCES", "60"))
ROWS = 200
"""Rows of each table before the first start."""
PATIENCE = 45 * 60.0
"""Seconds that all starts may take on a loaded machine; nothing is asserted about times."""


class Taken(NamedTuple):
    """What so many running sources took: seconds since the runtime began, MiB by process."""

    sources: int
    seconds: float
    driver: float
    jvm: float
    workers: float

    def line(self) -> str:
        return (
            f"| {self.sources} | {self.seconds:.0f} | {self.driver:.0f} | {self.jvm:.0f} |"
            f" {self.workers:.0f} |"
        )


def memory_of(session: int) -> tuple[float, float, float]:
    """MiB of the driver, its JVM and processes of Python, pages that they share counted once."""
    driver = jvm = workers = 0.0
    for place in Path("/proc").iterdir():
        if not place.name.isdecimal():
            continue
        try:
            stat = (place / "stat").read_text()
            if int(stat.rpartition(")")[2].split()[3]) != session:
                continue
            found = re.search(r"^Pss:\s+(\d+) kB", (place / "smaps_rollup").read_text(), re.M)
            name = (place / "comm").read_text().strip()
        except OSError:
            continue
        size = int(found[1]) / 1024 if found is not None else 0.0
        if place.name == str(session):
            driver += size
        elif name == "java":
            jvm += size
        else:
            workers += size
    return driver, jvm, workers


@pytest.fixture
def server(tmp_path: Path) -> Iterator[PostgresServer]:
    """A server with slots and connections for all, and a table for each."""
    settings = {
        "max_replication_slots": str(SOURCES + 8), "max_wal_senders": "32",
        "max_connections": str(4 * SOURCES + 40),
    }
    with PostgresServer(tmp_path / "postgres", settings=settings) as server:
        server.create_user("cdc", "word", replication=True)
        server.create_database("shop")
        with server.connect("owner", "shop") as session:
            for number in range(SOURCES):
                session.execute(f"CREATE TABLE t{number} (id int PRIMARY KEY, v text)".encode())
                session.execute(
                    f"INSERT INTO t{number} SELECT n, 'row ' || n FROM generate_series(1, {ROWS})"
                    " AS n".encode()
                )
                session.execute(f"GRANT SELECT ON t{number} TO cdc".encode())
            session.execute("CREATE PUBLICATION p FOR ALL TABLES")
        yield server


def test_sixty_sources(
    tmp_path: Path, server: PostgresServer, monkeypatch: pytest.MonkeyPatch, record_property: object
) -> None:
    """All run and mirror their tables, none was ever given up, the runtime keeps its lease and
    ends cleanly. ``-s`` prints the table of docs/streams.md."""
    monkeypatch.setenv("MANY_PW", "word")
    create_catalog(open_log(f"{tmp_path}/catalog"), warehouse=f"{tmp_path}/warehouse")
    catalog = Catalog.open(f"{tmp_path}/catalog", mode="write")
    catalog.execute(
        "CREATE CLUSTER main; CREATE SECRET pw AS 'env:MANY_PW';"
        f"CREATE CONNECTION pg TO POSTGRES (HOST '127.0.0.1', PORT {server.port}, DATABASE 'shop',"
        " USER 'cdc', PASSWORD SECRET pw, SSL MODE 'disable')"
    )
    for number in range(SOURCES):
        catalog.execute(
            f"CREATE SOURCE s{number} IN CLUSTER main FROM POSTGRES CONNECTION pg (PUBLICATION 'p',"
            f" TABLES (t{number} AS m{number})) FORMAT MIRROR"
        )
    began = time.monotonic()
    process = CommandProcess(
        tmp_path / "run.log", "run", "--cluster", "main", "--catalog", f"{tmp_path}/catalog"
    )
    taken: list[Taken] = []
    try:
        marks = [count for count in (1, 10, 20, 40) if count < SOURCES] + [SOURCES]
        while marks:
            assert process.running, process.output[-3000:]
            assert time.monotonic() - began < PATIENCE, process.output[-3000:]
            statuses = latest(catalog.state()).values()
            running = sum(each.state == "running" for each in statuses)
            while marks and running >= marks[0]:
                taken.append(Taken(
                    marks.pop(0), time.monotonic() - began, *memory_of(process.process.pid)
                ))
            time.sleep(1.0)
        changed = time.monotonic()
        with server.connect("owner", "shop") as session:
            for number in range(SOURCES):
                session.execute(f"INSERT INTO t{number} VALUES (0, 'new')".encode())
        state = catalog.state()
        missing = {
            f"{tmp_path}/warehouse/{dependencies.find(state, 'relation', f'm{number}').item.shard}"
            for number in range(SOURCES)
        }
        while missing:
            assert process.running, process.output[-3000:]
            assert time.monotonic() - changed < PATIENCE, len(missing)
            missing = {path for path in missing if load_table(path).count() != ROWS + 1}
            time.sleep(1.0)
        arrived = time.monotonic() - changed
        process.process.terminate()
        assert process.end() == 0
    finally:
        process.close()
    late = process.output.count("connect back")
    lines = [each.line() for each in taken]
    print(f"\n{os.cpu_count()} cores, load {os.getloadavg()[0]:.0f}; a change to each of {SOURCES}"
          f" tables was in all mirrors after {arrived:.0f} s; late workers: {late}")
    print("\n".join(lines))
    record_property("rows", SOURCES * (ROWS + 1))  # type: ignore[operator]
    assert "taken over" not in process.output
    assert "is held" not in process.output
