"""Sources on PostgreSQL: changes and mirrors, against the same by hand on the same slot."""

from __future__ import annotations

import itertools
import json
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from pyarrow import parquet

from bench.measure import Cost, Measure, paired
from catalog_migrate.connectors.postgres import server, survey
from catalog_migrate.connectors.postgres.pgoutput import decode
from catalog_migrate.connectors.postgres.sessions import session
from catalog_migrate.connectors.query import OutputTable, QuerySpec
from catalog_migrate.connectors.secrets import Secret
from catalog_migrate.delta.table import load_table
from catalog_migrate.engine.port import ShardSpec
from catalog_migrate.engine.spark.session import local_session
from catalog_migrate.engine.spark.shards import Shards
from catalog_migrate.model.names import ItemName
from catalog_migrate.model.objects import Column as OurColumn
from catalog_migrate.model.objects import External, UpstreamTable
from catalog_migrate.streams.catalog.queries import RunningQuery
from catalog_migrate.streams.catalog.upstream_tables import (
    SNAPSHOT_LOADED,
    TRANSACTION_COLUMNS,
    columns_of,
    our_columns,
)
from catalog_migrate.streams.spark.engine import SparkQueries
from catalog_migrate.streams.spark.postgres_source import changes_rows
from catalog_migrate.streams.spark.sources import query_session
from catalog_migrate.streams.upstreams.table_snapshots import expected
from tests.services.postgres import PostgresServer
from tests.services.replication import changes_range, slot_state

if TYPE_CHECKING:
    import psycopg
    from pyspark.sql import SparkSession

    from catalog_migrate.connectors.postgres.types import Position
    from catalog_migrate.connectors.resolved import Resolved

CHANGES = 200_000
MIRRORED, KEYS = 100_000, 10_000
ROUNDS = 5
RATE, WRITES = 500, 0.1
"""Changes a second of the freshness, and how often a transaction of them is committed."""
FRESHNESS = float(os.environ.get("FRESHNESS", "60"))
"""Seconds that they are written for: ``make bench ONLY=postgres FRESHNESS=600``."""
MERGE = """
MERGE INTO delta.`{path}` AS t USING (
  SELECT CAST(key AS BIGINT) AS id, last.after[1] AS name, last.lsn, last.operation,
         CAST(last.after[2] AS DECIMAL(12,2)) AS amount,
         CAST(replace(last.after[3], '+00', 'Z') AS TIMESTAMP) AS at
  FROM (SELECT coalesce(after[0], before[0]) AS key,
               max_by(struct(lsn, operation, after), struct(lsn, sequence)) AS last
        FROM changes GROUP BY 1)
) AS s ON t.id = s.id
WHEN MATCHED AND s.operation = 'delete' THEN DELETE
WHEN MATCHED THEN UPDATE SET t.name = s.name, t.amount = s.amount, t.at = s.at, t._lsn = s.lsn
WHEN NOT MATCHED AND s.operation <> 'delete' THEN
  INSERT (id, name, amount, at, _lsn) VALUES (s.id, s.name, s.amount, s.at, s.lsn)
"""
_numbers = itertools.count(1)


def measures(directory: Path) -> Iterator[Measure]:
    """Both in one session, which is stopped at the end."""
    spark = local_session(warehouse_dir=str(directory / "postgres-spark"))
    try:
        with PostgresServer(directory / "postgres") as postgres:
            bench = Bench(spark, postgres, directory / "postgres-tables")
            yield bench.changes()
            yield bench.mirror()
            yield bench.freshness()
    finally:
        spark.stop()


class Bench:
    """One server, and a table with a slot for each measure."""

    def __init__(self, spark: SparkSession, postgres: PostgresServer, directory: Path) -> None:
        self.spark, self.directory = spark, directory
        self.queries = SparkQueries(spark)
        self.postgres = postgres
        postgres.create_database("shop")
        postgres.create_user("cdc", "word of cdc", replication=True)
        self.connection: Resolved = {
            "HOST": "127.0.0.1", "PORT": str(postgres.port), "DATABASE": "shop", "USER": "cdc",
            "PASSWORD": Secret("word of cdc"), "SSL MODE": "disable",
        }  # fmt: skip

    def changes(self) -> Measure:
        """Every change of a transaction into a table, by a source that runs."""
        with self._running(
            "rows", "CHANGES", "INSERT INTO rows (name, amount, at) SELECT 'customer ' || n % 977,"
            f" n * 0.25, '2026-01-01'::timestamptz + n * interval '1 s'"
            f" FROM generate_series(1, {CHANGES}) n",
        ) as running:

            path = self._shard(running.table.columns)

            def bare() -> Cost:
                rows = changes_rows(changes_range(
                    self.spark, self.connection, slot=running.beside, publication="rows",
                    tables=running.expected, start=running.start, end=running.end,
                ), running.table).persist()
                assert rows.count() == CHANGES
                began = time.perf_counter()
                with session(self.connection) as opened, opened.transaction():
                    messages = server.peek(opened, running.beside, "rows", running.end.lsn)
                    found = decode(
                        messages, start=running.start.lsn, end=running.end.lsn,
                        tables=running.expected,
                    )
                    assert sum(1 for _ in found) == CHANGES
                rows.write.format("delta").mode("append").save(path)
                cost = Cost(time.perf_counter() - began)
                rows.unpersist()
                return cost

            found, baseline = paired(running.arrive, bare, rounds=ROUNDS, warm=3)
            assert load_table(running.table.shard).count() == CHANGES * running.written
        rates = [CHANGES / each.wall for each in (found, baseline)]
        return Measure(
            f"{CHANGES:,} changes of PostgreSQL into FORMAT CHANGES", found,
            "peeked and decoded one by one, and a Delta append of the same rows by Spark", baseline,
            "≥ 0.8× its rate", rates[0] >= 0.8 * rates[1],
            f"{rates[0]:,.0f} changes/s against {rates[1]:,.0f}",
        )  # fmt: skip

    def mirror(self) -> Measure:
        """Updates of rows into a mirror by a source that runs, against a MERGE by hand."""
        spark = query_session(self.spark)
        with self._running(
            "current", "MIRROR", *(
                f"INSERT INTO current SELECT n, 'customer ' || n, {round_}, clock_timestamp()"
                f" FROM generate_series(1, {KEYS}) n ON CONFLICT (id) DO UPDATE SET"
                f" amount = {round_}, at = clock_timestamp()" for round_ in range(MIRRORED // KEYS)
            ),
        ) as running:
            path = self._shard(running.table.columns)

            def by_hand() -> Cost:
                began = time.perf_counter()
                changes_range(
                    spark, self.connection, slot=running.beside, publication="current",
                    tables=running.expected, start=running.start, end=running.end,
                ).createOrReplaceTempView("changes")
                spark.sql(MERGE.format(path=path))
                cost = Cost(time.perf_counter() - began)
                assert load_table(path).count() == KEYS
                return cost

            found, baseline = paired(running.arrive, by_hand, rounds=ROUNDS, warm=3)
            assert load_table(running.table.shard).count() == KEYS
        rates = [MIRRORED / each.wall for each in (found, baseline)]
        return Measure(
            f"{MIRRORED:,} changes of {KEYS:,} rows into FORMAT MIRROR", found,
            "the same MERGE by hand, reading included", baseline, "≥ 0.9× its rate",
            rates[0] >= 0.9 * rates[1], f"{rates[0]:,.0f} changes/s against {rates[1]:,.0f}",
        )

    def freshness(self) -> Measure:
        """From upstream's commit to ours, of a mirror that is written to all the time."""
        with self._running(
            "fresh", "MIRROR", f"INSERT INTO fresh SELECT n, 'customer ' || n, 0, now()"
            f" FROM generate_series(1, {KEYS}) n", trigger="1 second",
        ) as running:
            written = self._write(running)
            running.wait()
            took = sorted(list(running.delays())[-written:])  # without the first, which is all rows
        p50, p99 = (took[min(len(took) - 1, int(len(took) * part))] for part in (0.5, 0.99))
        changes = round(RATE * WRITES)
        return Measure(
            f"freshness of a MIRROR at {RATE} changes/s, upstream's commit to ours", Cost(p50),
            "p99 of the same", Cost(p99), "p50 ≤ 3 s, p99 ≤ 10 s", p50 <= 3 and p99 <= 10,
            f"{written * changes:,} changes in {written:,} transactions in {FRESHNESS:.0f} s, the"
            f" latest after {took[-1]:.1f} s",
        )

    def _write(self, running: Running) -> int:
        """Update rows at RATE for FRESHNESS seconds; how many transactions that were."""
        began = time.monotonic()
        changes, written = round(RATE * WRITES), 0
        while (due := written * WRITES) < FRESHNESS:
            time.sleep(max(0.0, began + due - time.monotonic()))
            first = written * changes % KEYS
            running.commit(
                f"UPDATE fresh SET amount = {written}, at = clock_timestamp()"
                f" WHERE id BETWEEN {first + 1} AND {first + changes}"
            )
            written += 1
        return written

    @contextmanager
    def _running(
        self, name: str, format_: str, *statements: str, trigger: str = "10 milliseconds"
    ) -> Iterator[Running]:
        """A source of a new table that runs, with the first transaction in."""
        with self.postgres.connect(database="shop") as opened:
            opened.execute(
                f"CREATE TABLE {name} (id bigserial PRIMARY KEY, name text, amount numeric(12,2),"
                " at timestamptz)".encode()
            )
            opened.execute(f"CREATE PUBLICATION {name} FOR TABLE {name}".encode())
            opened.execute(f"GRANT SELECT ON {name} TO cdc".encode())
            for slot in (f"slot_{name}", f"beside_{name}"):
                with server.create_slot(self.connection, slot) as made:
                    start = made.position
            (there,) = survey.discover(self.connection, [name], publication=name)
            external = External(
                connector="POSTGRES", options={"PUBLICATION": name}, format=format_,
                settings={"TRIGGER": trigger},
            )
            upstream = UpstreamTable(there.full_name, name, columns_of(there), there.key)
            columns = our_columns(upstream, external)
            table = OutputTable(
                upstream, ItemName("bench", name), columns, tuple(range(1, len(columns) + 1)),
                self._shard(columns),
            )
            place = self.directory / f"query-{name}"
            (place / "snapshot").mkdir(parents=True)
            # the rows of before are in the table: there were none
            (place / "snapshot" / SNAPSHOT_LOADED).write_text(start.json())
            spec = QuerySpec(
                item_id="i1", name=ItemName("bench", "s"), kind="source", external=external,
                columns=TRANSACTION_COLUMNS, connection=self.connection,
                shard=self._shard(TRANSACTION_COLUMNS), checkpoint=str(place / "checkpoint"),
                tables=(table,), slot=f"slot_{name}",
            )  # fmt: skip
            query = self.queries.prepare(spec).start()
            try:
                running = Running(self.connection, spec, statements, opened, query, start)
                running.arrive()
                yield running
            finally:
                query.stop(drain=0.0)

    def _shard(self, columns: tuple[OurColumn, ...]) -> str:
        path = str(self.directory / f"table-{next(_numbers)}")
        Shards(self.spark).create_shard(ShardSpec(path=path, columns=columns))
        return path


class Running:
    """A source that runs; the slot ``beside`` its own still has what was written last, from
    ``start`` to ``end``."""

    def __init__(
        self, connection: Resolved, spec: QuerySpec, statements: Sequence[str],
        opened: psycopg.Connection[Any], query: RunningQuery, start: Position,
    ) -> None:
        self._connection, self._spec, self._statements = connection, spec, statements
        self._opened, self._query = opened, query
        (self.table,) = spec.tables
        self.expected = expected(spec)
        self.beside = spec.slot.replace("slot_", "beside_")
        self.start = self.end = start
        self.written = 0
        self._log, self._version = Path(spec.shard) / "_delta_log", 0

    def arrive(self) -> Cost:
        """Commit one transaction; from then until its row is in the source's own table."""
        server.advance(self._connection, self.beside, self.end.lsn)
        self.start = self.end
        self.commit(*self._statements)
        began = time.perf_counter()
        self.wait()
        cost = Cost(time.perf_counter() - began)
        state = slot_state(self._connection, self.beside)
        assert state is not None
        self.end = msgspec.structs.replace(self.start, lsn=state.log_end)
        return cost

    def commit(self, *statements: str) -> None:
        """Commit one transaction upstream."""
        self.written += 1
        with self._opened.transaction():
            for statement in statements:
                self._opened.execute(statement.encode())

    def wait(self) -> None:
        """Wait until every transaction is in the source's own table, which is written last."""
        began = time.perf_counter()
        while not self._is_in():
            assert self._query.active, self._query.failure()
            assert time.perf_counter() - began < 600
            time.sleep(0.005)

    def delays(self) -> Iterator[float]:
        """Seconds from the commit of each transaction upstream to that of the version that has its
        row."""
        for version in sorted(self._log.glob("*.json")):
            at = version.stat().st_mtime
            for line in version.read_text("utf-8").splitlines():
                if "add" in (action := json.loads(line)):
                    file = Path(self._spec.shard) / action["add"]["path"]
                    rows = parquet.read_table(file, columns=["_committed"])
                    for committed in rows.column(0).to_pylist():
                        yield at - committed.timestamp()

    def _is_in(self) -> bool:
        if not (self._log / f"{self._version + 1:020}.json").exists():
            return False
        table = load_table(self._spec.shard)
        self._version = table.version()
        return table.count() == self.written
