"""Sources on PostgreSQL by the dozen on one runtime: seconds and memory a source."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from bench.measure import Cost, Measure
from catalog_migrate.api import Catalog
from catalog_migrate.catalog.opening import create_catalog, open_log
from catalog_migrate.delta.table import load_table
from catalog_migrate.streams.catalog import dependencies
from catalog_migrate.streams.catalog.cluster_log import latest
from tests.services.postgres import PostgresServer
from tests.streams.crash.runtime_process import CommandProcess

SOURCES = 60
ROWS = 200
"""Rows of each table before the first start."""
PATIENCE = 45 * 60.0
"""Seconds that all of them may take on a loaded machine."""
_SECRET = "CATALOG_MIGRATE_BENCH_MANY"


class Taken(NamedTuple):
    """What so many running sources took: seconds since the runtime began, MiB by process."""

    sources: int
    seconds: float
    driver: float
    jvm: float
    workers: float

    @property
    def memory(self) -> float:
        """MiB of all of its processes."""
        return self.driver + self.jvm + self.workers


class Outcome(NamedTuple):
    """``taken`` with the first source and with all; seconds until a change to each table was in
    every mirror; how often a process of Python came up too late."""

    taken: list[Taken]
    arrived: float
    late: int


def measures(directory: Path) -> Iterator[Measure]:
    """One row: a source of many, beside the first one."""
    found = start_many(directory / "many", SOURCES)
    first, last = found.taken[0], found.taken[-1]
    each = (last.memory - first.memory) / (last.sources - first.sources)
    yield Measure(
        f"one of {SOURCES} sources on PostgreSQL (FORMAT MIRROR) that start on one runtime",
        Cost(last.seconds / last.sources, peak=int(each * 2**20)),
        "the first of them, start of the runtime included",
        Cost(first.seconds, peak=int(first.memory * 2**20)),
        "all run, the lease is kept", True,
        f"all after {last.seconds:.0f} s; driver {last.driver:.0f} MiB, JVM {last.jvm:.0f} MiB,"
        f" processes of Python {last.workers:.0f} MiB; a change to each table in all mirrors after"
        f" {found.arrived:.0f} s; {found.late} processes of Python came up too late and were"
        " started again",
    )


def start_many(directory: Path, count: int) -> Outcome:
    """Start so many mirrors by ``catalog-migrate run``, change each table, and end the runtime.

    Raises AssertionError where it ends by itself, loses its lease, holds a source, or a mirror does
    not become its table in time.
    """
    directory.mkdir(parents=True)
    settings = {
        "max_replication_slots": str(count + 8), "max_wal_senders": "32",
        "max_connections": str(4 * count + 40),
    }
    with PostgresServer(directory / "postgres", settings=settings) as server:
        _create_tables(server, count)
        catalog = _declare(directory, server, count)
        process = CommandProcess(
            directory / "run.log", "run", "--cluster", "main", "--catalog", f"{directory}/catalog"
        )
        try:
            taken = _started(catalog, process, count)
            began = time.monotonic()
            with server.connect("owner", "shop") as session:
                for number in range(count):
                    session.execute(f"INSERT INTO t{number} VALUES (0, 'new')".encode())
            _await_rows(directory, catalog, process, count)
            arrived = time.monotonic() - began
            process.process.terminate()
            assert process.end() == 0, process.output[-3000:]
        finally:
            process.close()
    said = process.output
    assert "taken over" not in said, said[-3000:]
    assert "is held" not in said, said[-3000:]
    return Outcome(taken, arrived, said.count("connect back"))


def _create_tables(server: PostgresServer, count: int) -> None:
    server.create_user("cdc", "word", replication=True)
    server.create_database("shop")
    with server.connect("owner", "shop") as session:
        for number in range(count):
            for statement in (
                f"CREATE TABLE t{number} (id int PRIMARY KEY, v text)",
                f"INSERT INTO t{number} SELECT n, 'row ' || n FROM generate_series(1, {ROWS}) AS n",
                f"GRANT SELECT ON t{number} TO cdc",
            ):
                session.execute(statement.encode())
        session.execute("CREATE PUBLICATION p FOR ALL TABLES")


def _declare(directory: Path, server: PostgresServer, count: int) -> Catalog:
    os.environ[_SECRET] = "word"
    create_catalog(open_log(f"{directory}/catalog"), warehouse=f"{directory}/warehouse")
    catalog = Catalog.open(f"{directory}/catalog", mode="write")
    catalog.execute(
        f"CREATE CLUSTER main; CREATE SECRET pw AS 'env:{_SECRET}';"
        f"CREATE CONNECTION pg TO POSTGRES (HOST '127.0.0.1', PORT {server.port}, DATABASE 'shop',"
        " USER 'cdc', PASSWORD SECRET pw, SSL MODE 'disable')"
    )
    for number in range(count):
        catalog.execute(
            f"CREATE SOURCE s{number} IN CLUSTER main FROM POSTGRES CONNECTION pg (PUBLICATION 'p',"
            f" TABLES (t{number} AS m{number})) FORMAT MIRROR"
        )
    return catalog


def _started(catalog: Catalog, process: CommandProcess, count: int) -> list[Taken]:
    """What was taken when the first source ran, and when all did."""
    began, taken = time.monotonic(), list[Taken]()
    marks = [1, count]
    while marks:
        assert process.running, process.output[-3000:]
        assert time.monotonic() - began < PATIENCE, process.output[-3000:]
        running = sum(each.state == "running" for each in latest(catalog.state()).values())
        while marks and running >= marks[0]:
            seconds = time.monotonic() - began
            taken.append(Taken(marks.pop(0), seconds, *_memory_of(process.process.pid)))
        time.sleep(0.5)
    return taken


def _await_rows(directory: Path, catalog: Catalog, process: CommandProcess, count: int) -> None:
    state, began = catalog.state(), time.monotonic()
    items = [dependencies.find(state, "relation", f"m{number}").item for number in range(count)]
    missing = {f"{directory}/warehouse/{item.shard}" for item in items}
    while missing:
        assert process.running, process.output[-3000:]
        assert time.monotonic() - began < PATIENCE, f"{len(missing)} mirrors lack a row"
        missing = {path for path in missing if load_table(path).count() != ROWS + 1}
        time.sleep(0.5)


def _memory_of(session: int) -> tuple[float, float, float]:
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
