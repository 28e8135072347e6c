"""Sources on PostgreSQL: changes and mirrors, against the same by hand on the same slot."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from bench.measure import Cost, Measure, paired
from catalog_migrate.connections.secrets import Secret
from catalog_migrate.delta.table import load_table
from catalog_migrate.engine.port import ShardSpec
from catalog_migrate.engine.spark.session import local_session
from catalog_migrate.engine.spark.shards import Shards
from catalog_migrate.model.external import External, UpstreamTable
from catalog_migrate.model.names import ItemName
from catalog_migrate.model.objects import Column as OurColumn
from catalog_migrate.replication import server
from catalog_migrate.replication.pgoutput import decode
from catalog_migrate.replication.types import Column, Expected
from catalog_migrate.streams.queries import OutputTable, QuerySpec
from catalog_migrate.streams.spark.engine import SparkQueries
from catalog_migrate.streams.spark.postgres_changes import changes_range
from catalog_migrate.streams.spark.settings import query_session
from catalog_migrate.streams.upstream_tables import TRANSACTION_COLUMNS, columns_of, our_columns
from tests.services.postgres import PostgresServer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from catalog_migrate.connections.clients import Resolved
    from catalog_migrate.replication.position import Position

CHANGES = 200_000
MIRRORED, KEYS = 100_000, 10_000
ROUNDS = 5
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
        """All changes of a slot into FORMAT CHANGES, in one batch of a new query."""
        start, end, table = self._written(
            "rows", "INSERT INTO rows SELECT n, 'customer ' || n % 977, n * 0.25,"
            f" '2026-01-01'::timestamptz + n * interval '1 s' FROM generate_series(1, {CHANGES}) n",
        )

        def bare() -> Cost:
            began = time.perf_counter()
            with server.session(self.connection) as opened, opened.transaction():
                messages = server.peek(opened, "slot_rows", "rows", end.lsn)
                found = decode(messages, start=start.lsn, end=end.lsn, tables={
                    table.full_name: _expected(table),
                })  # fmt: skip
                assert sum(1 for _ in found) == CHANGES
            return Cost(time.perf_counter() - began)

        found, baseline = paired(
            self._run("CHANGES", table, start, CHANGES), bare, rounds=ROUNDS, warm=2
        )
        rates = [CHANGES / each.wall for each in (found, baseline)]
        return Measure(
            f"{CHANGES:,} changes of PostgreSQL into FORMAT CHANGES", found,
            "peeked and decoded, and nothing more", baseline, "≥ 0.9× its rate",
            rates[0] >= 0.9 * rates[1], f"{rates[0]:,.0f} changes/s against {rates[1]:,.0f}",
        )  # fmt: skip

    def mirror(self) -> Measure:
        """Updates of rows into FORMAT MIRROR, against a MERGE over the same range."""
        start, end, table = self._written(
            "current", *(
                f"INSERT INTO current SELECT n, 'customer ' || n, {round_}, now()"
                f" FROM generate_series(1, {KEYS}) n ON CONFLICT (id) DO UPDATE SET"
                f" amount = {round_}, at = now()" for round_ in range(MIRRORED // KEYS)
            ),
        )
        session = query_session(self.spark)

        def by_hand() -> Cost:
            path = self._shard(our_columns(table, External(format="MIRROR")))
            began = time.perf_counter()
            changes_range(
                session, self.connection, slot="slot_current", publication="current",
                tables={table.full_name: _expected(table)}, start=start, end=end,
            ).createOrReplaceTempView("changes")
            session.sql(MERGE.format(path=path))
            cost = Cost(time.perf_counter() - began)
            assert load_table(path).count() == KEYS
            return cost

        found, baseline = paired(
            self._run("MIRROR", table, start, KEYS), by_hand, rounds=ROUNDS, warm=3
        )
        rates = [MIRRORED / each.wall for each in (found, baseline)]
        return Measure(
            f"{MIRRORED:,} changes of {KEYS:,} rows into FORMAT MIRROR", found,
            "the same MERGE by hand", baseline, "≥ 1.0× its rate", rates[0] >= rates[1],
            f"{rates[0]:,.0f} changes/s against {rates[1]:,.0f}",
        )

    def _written(
        self, name: str, *statements: str
    ) -> tuple[Position, Position, UpstreamTable]:
        """A table with a publication and a slot, then the statements; from where to where."""
        with self.postgres.connect(database="shop") as opened:
            opened.execute(
                f"CREATE TABLE {name} (id bigint PRIMARY KEY, name text, amount numeric(12,2),"
                " at timestamptz)".encode()
            )
            opened.execute(f"CREATE PUBLICATION {name} FOR TABLE {name}".encode())
            opened.execute(f"GRANT SELECT ON {name} TO cdc".encode())
            with server.create_slot(self.connection, f"slot_{name}") as slot:
                start = slot.position
            for statement in statements:
                opened.execute(statement.encode())
        state = server.slot_state(self.connection, f"slot_{name}")
        assert state is not None
        (there,) = server.discover(self.connection, [name], publication=name)
        end = type(start)(state.log_end, start.timeline, start.system)
        table = UpstreamTable(there.full_name, name, columns_of(there), there.key)
        return start, end, table

    def _shard(self, columns: tuple[OurColumn, ...]) -> str:
        path = str(self.directory / f"table-{next(_numbers)}")
        Shards(self.spark).create_shard(ShardSpec(path=path, columns=columns))
        return path

    def _run(
        self, format_: str, table: UpstreamTable, start: Position, rows: int
    ) -> Callable[[], Cost]:
        external = External(
            connector="POSTGRES", options={"PUBLICATION": table.into}, format=format_,
        )

        def once() -> Cost:
            place = self.directory / f"query-{next(_numbers)}"
            columns = our_columns(table, external)
            path = self._shard(columns)
            (place / "snapshot").mkdir(parents=True)
            # the rows of before are in the table: there were none
            (place / "snapshot" / "loaded.json").write_text(start.json())
            query = self.queries.prepare(QuerySpec(
                item_id="i1", name=ItemName("bench", "s"), kind="source", external=external,
                columns=TRANSACTION_COLUMNS, connection=self.connection,
                shard=self._shard(TRANSACTION_COLUMNS), checkpoint=str(place / "checkpoint"),
                tables=(OutputTable(
                    table, ItemName("bench", table.into), columns,
                    tuple(range(1, len(columns) + 1)), path,
                ),),
                slot=f"slot_{table.into}",
            ))  # fmt: skip
            began = time.perf_counter()
            started = query.start(once=True)
            assert started.wait(600)
            cost = Cost(time.perf_counter() - began)
            assert started.failure() is None, started.failure()
            assert load_table(path).count() == rows
            return cost

        return once


def _expected(table: UpstreamTable) -> Expected:
    return Expected(tuple(
        Column(each.name, each.type_oid, each.modifier) for each in table.columns
    ))
