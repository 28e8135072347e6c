"""Changes of PostgreSQL tables on Spark: every one once, typed failures, no password anywhere."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from catalog_migrate.connections.findings import ConnectionFailed
from catalog_migrate.connections.secrets import Redactor, Secret
from catalog_migrate.replication import server
from catalog_migrate.replication.errors import TableChanged
from catalog_migrate.replication.position import Position
from catalog_migrate.replication.snapshot import stage
from catalog_migrate.replication.types import spark_value

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from catalog_migrate.streams.queries import QueryFailure
    from tests.services.upstream import Upstream

MARKER = "wrong-marker-of-a-password"
Write = Callable[["DataFrame", int], None]


class Story:
    """One source into one table, by batches that are appended once."""

    def __init__(self, spark: SparkSession, upstream: Upstream, directory: Path) -> None:
        from catalog_migrate.streams.spark.settings import query_session

        self.spark, self.upstream = query_session(spark), upstream
        self.checkpoint, self.table = directory / "checkpoint", str(directory / "table")
        self.slot = upstream.slot("story")
        self.texts: list[str] = []
        """Everything that was said of the queries."""

    def prepare(self, files: Path) -> None:
        """Slot and snapshot, its rows in the table."""
        from catalog_migrate.streams.spark.postgres_changes import snapshot_rows

        connection = self.upstream.connection
        found = server.discover(connection, ["a", "b"], publication="p")
        self.tables = {one.full_name: one.expected() for one in found}
        files.mkdir()
        with server.create_slot(connection, self.slot) as slot:
            manifest = stage(
                connection, slot, found, lambda name, data: void((files / name).write_bytes(data)),
                publication="p",
            )
        self.start = slot.position
        snapshot_rows(self.spark, manifest, str(files)).write.format("delta").save(self.table)

    def append(self, frame: DataFrame, batch: int) -> None:
        """Append a batch, once."""
        frame.write.format("delta").mode("append").option("txnAppId", "story").option(
            "txnVersion", batch
        ).save(self.table)

    def append_and_fail(self, frame: DataFrame, batch: int) -> None:
        """Die between the rows and Spark's own commit."""
        self.append(frame, batch)
        raise RuntimeError("in the middle of a batch")

    def query(self, write: Write, **more: Any) -> StreamingQuery:
        """Start the stream at the checkpoint."""
        from catalog_migrate.streams.spark.postgres_changes import changes

        settings = {
            "connection": self.upstream.connection, "slot": self.slot, "publication": "p",
            "tables": self.tables, "start": self.start, **more,
        }
        frame = changes(self.spark, **settings)
        self.texts.append(frame._jdf.queryExecution().toString())
        return (
            frame.writeStream.foreachBatch(write)
            .option("checkpointLocation", str(self.checkpoint))
            .trigger(processingTime="50 milliseconds").start()
        )

    def run(self, write: Write | None = None, **more: Any) -> QueryFailure | None:
        """Read all there is, then stop; why it failed when it did."""
        from catalog_migrate.streams.spark.causes import failure_of

        query = self.query(write or self.append, **more)
        try:
            query.processAllAvailable()
        except Exception as error:  # noqa: BLE001 - looked at below
            self.texts.append(str(error))
        failure = failure_of(query, None, Redactor([]))
        self.texts += [str(query.lastProgress), str(failure)]
        query.stop()
        return failure

    def range(self, end: int) -> list[Any]:
        """What lies between the start and ``end``."""
        from catalog_migrate.streams.spark.postgres_changes import changes_range

        return changes_range(
            self.spark, self.upstream.connection, slot=self.slot, publication="p",
            tables=self.tables, start=self.start,
            end=Position(end, self.start.timeline, self.start.system),
        ).collect()

    def rows(self) -> list[Any]:
        """What has arrived, in its order."""
        frame = self.spark.read.format("delta").load(self.table)
        return frame.orderBy("lsn", "sequence").collect()


def void(_: object) -> None:
    """For callbacks that return nothing."""


def test_every_change_once_through_stops(
    spark: SparkSession, upstream: Upstream, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Snapshot, stream, a batch that dies after it was written, a restart: the table has every row
    and change once, the slot stands where Spark has committed, and the same range can be read as a
    batch until then. A column that is added and a login that is refused come out typed. The
    password is in no plan, progress, checkpoint, failure or log."""
    caplog.set_level(logging.DEBUG, logger="py4j")
    upstream.sql(
        "CREATE TABLE a (id int PRIMARY KEY, v text)",
        "CREATE TABLE b (id int PRIMARY KEY)", "ALTER TABLE b REPLICA IDENTITY FULL",
        "INSERT INTO a SELECT i, 'before' FROM generate_series(1, 300) AS i",
        "CREATE PUBLICATION p FOR TABLE a, b",
    )
    story = Story(spark, upstream, tmp_path)
    story.prepare(tmp_path / "files")
    both = "WITH x AS (INSERT INTO a VALUES ({0}, 'é') RETURNING id) INSERT INTO b VALUES ({0})"
    upstream.sql(both.format(1001))
    upstream.sql(
        both.format(1002), "UPDATE a SET id = 0 WHERE id = 1", "UPDATE b SET id = 7 WHERE id = 1001"
    )
    assert story.run(story.append_and_fail) is not None
    assert "in the middle of a batch" in story.texts[-3]
    state = server.slot_state(upstream.connection, story.slot)
    assert state is not None
    assert state.confirmed == story.start.lsn
    upstream.sql("DELETE FROM b", "TRUNCATE a")
    first = story.range(state.log_end)
    assert story.run() is None
    rows = story.rows()
    assert sorted(int(row["after"][0]) for row in rows[:300]) == list(range(1, 301))
    later = [(row["table"], row["operation"], row["before"], row["after"]) for row in rows[304:]]
    assert later == [
        ("public.a", "update", ["1", None], ["0", "before"]),
        ("public.b", "update", ["1001"], ["7"]),
        ("public.b", "delete", ["1002"], None), ("public.b", "delete", ["7"], None),
        ("public.a", "truncate", None, None),
    ]
    assert sorted((row["table"], *row["after"]) for row in rows[300:304]) == [
        ("public.a", "1001", "é"), ("public.a", "1002", "é"), ("public.b", "1001"),
        ("public.b", "1002"),
    ]
    assert {(row["lsn"], row["sequence"]) for row in rows[300:]} >= {
        (row["lsn"], row["sequence"]) for row in first
    }
    assert len(first) == 6
    state = server.slot_state(upstream.connection, story.slot)
    assert state is not None
    assert story.start.lsn < (state.confirmed or 0) <= rows[-1]["lsn"] + 1000

    upstream.sql("ALTER TABLE b ADD COLUMN more int", "INSERT INTO b VALUES (9, 9)")
    failure = story.run()
    assert failure is not None
    assert isinstance(failure.error, TableChanged)
    assert failure.condition == "CM0779"
    assert [one.name for one in failure.error.new] == ["id", "more"]
    wrong = {**upstream.connection, "PASSWORD": Secret(MARKER)}
    failure = story.run(connection=wrong)
    assert failure is not None
    assert isinstance(failure.error, ConnectionFailed)
    files = [one.read_text(errors="replace") for one in story.checkpoint.rglob("*")
             if one.is_file()]
    everything = "\n".join([*story.texts, *files, caplog.text])
    assert len(files) > 3
    assert story.start.system in everything
    for password in (upstream.password, MARKER):
        assert password not in everything


def test_values(spark: SparkSession) -> None:
    """PostgreSQL's texts become values; what our types cannot hold becomes what the page says."""
    from catalog_migrate.streams.spark.settings import query_session

    cases = [
        ("BOOLEAN", "t", "true"), ("BOOLEAN", "f", "false"), ("BINARY", "\\xdeadbeef", "DEADBEEF"),
        ("BIGINT", "-9223372036854775808", None), ("DOUBLE", "NaN", None),
        ("DOUBLE", "-Infinity", None), ("FLOAT", "1e-30", "1.0E-30"),
        ("DECIMAL(10,2)", "1.50", None), ("DECIMAL(10,2)", "NaN", ""), ("STRING", "t", None),
        ("DATE", "2024-02-29", None), ("DATE", "infinity", "9999-12-31"),
        ("DATE", "-infinity", "0001-01-01"), ("DATE", "0044-03-15 BC", "-0043-03-15"),
        ("DATE", "0001-03-15 BC", "0000-03-15"), ("DATE", "12024-01-01", "+12024-01-01"),
        ("TIMESTAMP", "2024-01-02 03:04:05.678+00", "2024-01-02 03:04:05.678"),
        ("TIMESTAMP", "infinity", "9999-12-31 23:59:59.999999"),
        ("TIMESTAMP", "0044-03-15 12:00:00+00 BC", "-0043-03-15 12:00:00"),
        ("TIMESTAMP_NTZ", "2024-01-02 03:04:05", None),
        ("TIMESTAMP_NTZ", "-infinity", "0001-01-01 00:00:00"),
        ("TIMESTAMP_NTZ", "0044-03-15 12:00:00.5 BC", "-0043-03-15 12:00:00.5"),
    ]
    session = query_session(spark)
    texts = ", ".join(f"'{text}'" for _, text, _ in cases).replace("\\", "\\\\")
    values = [
        f"coalesce(CAST({'hex' if kind == 'BINARY' else ''}({spark_value(kind, f'x[{at}]')})"
        " AS STRING), '')"
        for at, (kind, _, _) in enumerate(cases)
    ]
    row = session.sql(f"SELECT {', '.join(values)} FROM (SELECT array({texts}) AS x)").collect()[0]
    assert [(*case[:2], value) for case, value in zip(cases, row, strict=True)] == [
        (kind, text, text if value is None else value) for kind, text, value in cases
    ]
