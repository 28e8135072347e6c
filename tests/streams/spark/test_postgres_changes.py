"""Changes of PostgreSQL tables on Spark: every one once, typed failures, no password anywhere."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from catalog_migrate.connectors.postgres import server, survey
from catalog_migrate.connectors.postgres.preflight import preflight
from catalog_migrate.connectors.postgres.sessions import session
from catalog_migrate.connectors.postgres.snapshot import stage
from catalog_migrate.connectors.postgres.types import Position, is_unfit, spark_value
from catalog_migrate.connectors.secrets import Redactor, Secret
from catalog_migrate.errors import ChangesMissing, ConnectionFailed, SlotMissing, TableChanged
from tests.services.replication import changes_range, slot_state

from .conftest import await_that

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from catalog_migrate.streams.catalog.queries import QueryFailure
    from tests.services.upstream import Upstream

MARKER = "wrong-marker-of-a-password"
SUMMARY = ("commit", "table")
Write = Callable[["DataFrame", int], None]


class Story:
    """One source into one table, by batches that are appended once."""

    def __init__(self, spark: SparkSession, upstream: Upstream, directory: Path) -> None:
        from catalog_migrate.streams.spark.sources import query_session

        self.spark, self.upstream = query_session(spark), upstream
        self.checkpoint, self.table = directory / "checkpoint", str(directory / "table")
        self.slot = upstream.slot("story")
        self.texts: list[str] = []
        """Everything that was said of the queries."""

    def prepare(self, files: Path) -> None:
        """Slot and snapshot, its rows in the table."""
        from catalog_migrate.connectors.postgres.changes import SCHEMA

        connection = self.upstream.connection
        found = survey.discover(connection, ["a", "b"], publication="p")
        self.tables = {one.full_name: one.expected() for one in found}
        files.mkdir()
        with server.create_slot(connection, self.slot) as slot:
            stage(
                connection, slot, found, lambda name, data: void((files / name).write_bytes(data)),
                publication="p",
            )
        self.start = slot.position
        rows = self.spark.read.schema(SCHEMA).parquet(f"{files}/*.parquet")
        rows.write.format("delta").save(self.table)

    def append(self, frame: DataFrame, batch: int) -> None:
        """Append a batch, once."""
        (
            frame.where("operation NOT IN ('commit', 'table')").write.format("delta")
            .mode("append").option("txnAppId", "story").option("txnVersion", batch)
            .save(self.table)
        )

    def append_and_fail(self, frame: DataFrame, batch: int) -> None:
        """Die between the rows and Spark's own commit."""
        self.append(frame, batch)
        raise RuntimeError("in the middle of a batch")

    def query(self, write: Write) -> StreamingQuery:
        """Start the stream at the checkpoint."""
        from catalog_migrate.connectors.postgres.changes import Settings, changes

        frame = changes(self.spark, Settings(
            self.upstream.connection, self.slot, "p", self.tables, self.start
        ))
        self.texts.append(frame._jdf.queryExecution().toString())
        return (
            frame.writeStream.foreachBatch(write)
            .option("checkpointLocation", str(self.checkpoint))
            .trigger(processingTime="50 milliseconds").start()
        )

    def run(self, write: Write | None = None) -> QueryFailure | None:
        """Read all there is, then stop; why it failed when it did.

        Spark gives its Python worker ten seconds to come up, which a loaded machine may need.
        """
        from catalog_migrate.streams.spark.running import failure_of

        for _ in range(5):
            query = self.query(write or self.append)
            try:
                query.processAllAvailable()
            except Exception as error:  # noqa: BLE001 - looked at below
                self.texts.append(str(error))
            failure = failure_of(query, None, Redactor([]))
            self.texts += [str(query.lastProgress), str(failure)]
            query.stop()
            if failure is None or "Python worker to connect back" not in str(failure.causes):
                return failure
        raise AssertionError(failure)

    def range(self, end: int) -> list[Any]:
        """What lies between the start and ``end``."""
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


@pytest.mark.soak
def test_every_change_once_through_stops(
    spark: SparkSession, upstream: Upstream, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Snapshot, stream, a batch that dies after it was written, a restart: the table has every row
    and change once, the slot stands where Spark has committed, and the same range can be read as a
    batch until then. A column that is added comes out typed. The password is in no plan,
    progress, checkpoint, failure or log."""
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
    state = slot_state(upstream.connection, story.slot)
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
    state = slot_state(upstream.connection, story.slot)
    assert state is not None
    assert story.start.lsn < (state.confirmed or 0) <= rows[-1]["lsn"] + 1000

    upstream.sql("ALTER TABLE b ADD COLUMN more int", "INSERT INTO b VALUES (9, 9)")
    failure = story.run()
    assert failure is not None
    assert isinstance(failure.error, TableChanged)
    assert failure.condition == "CM0779"
    assert [one.name for one in failure.error.new] == ["id", "more"]
    files = [one.read_text(errors="replace") for one in story.checkpoint.rglob("*")
             if one.is_file()]
    everything = "\n".join([*story.texts, *files, caplog.text])
    assert len(files) > 3
    assert story.start.system in everything
    assert upstream.password not in everything


def test_values(spark: SparkSession) -> None:
    """PostgreSQL's texts become values; what our types cannot hold becomes what the page says."""
    from catalog_migrate.streams.spark.sources import query_session

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
        ("DATE", "4714-11-24 BC", "-4713-11-24"), ("DATE", "262142-12-31", "+262142-12-31"),
        ("DATE", "262143-01-01", "9999-12-31"), ("DATE", "5874897-12-31", "9999-12-31"),
        ("TIMESTAMP", "12024-01-01 00:00:00+00", "+12024-01-01 00:00:00"),
        ("TIMESTAMP", "294247-01-10 04:00:54.775807+00", "+294247-01-10 04:00:54.775807"),
        ("TIMESTAMP", "294247-01-10 04:00:54.775808+00", "9999-12-31 23:59:59.999999"),
        ("TIMESTAMP", "294276-12-31 23:59:59.999999+00", "9999-12-31 23:59:59.999999"),
        ("TIMESTAMP", "4714-11-24 00:00:00+00 BC", "-4713-11-24 00:00:00"),
        ("TIMESTAMP_NTZ", "294247-01-10 04:00:54.7758", "+294247-01-10 04:00:54.7758"),
        ("TIMESTAMP_NTZ", "294247-01-10 04:00:55", "9999-12-31 23:59:59.999999"),
        ("TIMESTAMP_NTZ", "294276-12-31 23:59:59.999999", "9999-12-31 23:59:59.999999"),
        ("FLOAT", "1e-45", "1.4E-45"), ("DOUBLE", "-0", "-0.0"), ("DOUBLE", "5e-324", "4.9E-324"),
        ("DECIMAL(38,38)", "-0." + "9" * 38, None), ("BINARY", "\\x", ""),
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
    unfit = [
        ("TIMESTAMP", "294276-12-31 23:59:59.999999+00", True, True), ("SMALLINT", "40000", False,
        True), ("DECIMAL(3,1)", "100.0", False, True), ("DECIMAL(3,1)", "NaN", False, False),
        ("DATE", "2024-02-29", True, False), ("VARCHAR(3)", "four", False, True),
        ("DOUBLE", "NaN", False, False), ("STRING", "any", False, False),
    ]
    asked = [is_unfit(kind, f"'{text}'", key=key) for kind, text, key, _ in unfit]
    assert list(session.sql(f"SELECT {', '.join(asked)}").collect()[0]) == [
        each[3] for each in unfit
    ]


def confirmed(upstream: Upstream, slot: str) -> int | None:
    """How far a slot was advanced."""
    state = slot_state(upstream.connection, slot)
    return None if state is None else state.confirmed


@contextmanager
def reading(upstream: Upstream, slot: str) -> Iterator[None]:
    """Somebody else reads from a slot meanwhile, as a replication client."""
    import psycopg

    parameters = upstream.server.parameters(upstream.role, upstream.database)
    other = psycopg.connect(**parameters, replication="database", autocommit=True)
    try:
        other.pgconn.exec_(
            f"START_REPLICATION SLOT {slot} LOGICAL 0/0 (proto_version '1',"
            " publication_names 'p')".encode()
        )
        yield
    finally:
        other.close()
        await_that(lambda: not in_use(upstream, slot))


def in_use(upstream: Upstream, slot: str) -> bool:
    """Whether somebody reads from a slot."""
    state = slot_state(upstream.connection, slot)
    return state is not None and state.active_pid is not None


def test_the_reader_looks_upstream(upstream: Upstream) -> None:
    """Each position has the fingerprint of what its tables depend on. What loses nothing goes on;
    what may have, also since a batch was planned, ends the stream by a typed error, and so it does
    after a restart. A position that was reached before there were fingerprints is gone on from."""
    from catalog_migrate.connectors.postgres import changes as postgres_changes

    upstream.sql("CREATE TABLE t (id int PRIMARY KEY)", "CREATE PUBLICATION p FOR TABLE t")
    names = survey.names_of(["t"])
    with session(upstream.connection) as opened:
        recorded = survey.read_survey(opened, "p", names).survey
    (table,) = survey.discover(upstream.connection, ["t"], publication="p")
    with server.create_slot(upstream.connection, upstream.slot("s")) as slot:
        pass
    settings = postgres_changes.Settings(
        upstream.connection, slot.name, "p", {"public.t": table.expected()}, slot.position,
        watch=survey.Watch(slot.name, "p", names, {"public.t": ("id",)}, recorded),
    )

    def batch(reader: Any, start: dict[str, Any]) -> dict[str, Any]:
        """Plan one and read it."""
        end: dict[str, Any] = reader.latestOffset(start, None)
        for part in reader.partitions(start, end):
            list(reader.read(part))
        return end

    reader = postgres_changes.StreamReader(settings)
    upstream.sql("INSERT INTO t VALUES (1)")
    first = batch(reader, slot.position.offset())
    assert first["catalog"] == recorded.fingerprint
    upstream.sql("GRANT SELECT ON t TO PUBLIC")
    assert reader.latestOffset(first, None) == first
    upstream.sql("INSERT INTO t VALUES (2)")
    second = batch(reader, first)
    assert second["catalog"] != first["catalog"]
    restarted = postgres_changes.StreamReader(settings)
    assert restarted.latestOffset(second, None) == second
    upstream.sql("GRANT DELETE ON t TO PUBLIC")
    settings.heartbeat = 0.001
    idle = restarted.latestOffset(second, None)
    settings.heartbeat = 0.0
    assert idle["lsn"] != second["lsn"]
    assert idle["catalog"] not in ("", second["catalog"])
    upstream.sql("INSERT INTO t VALUES (3)")
    third = reader.latestOffset(second, None)
    upstream.sql(
        "ALTER PUBLICATION p DROP TABLE t", "INSERT INTO t VALUES (4)",
        "ALTER PUBLICATION p ADD TABLE t",
    )
    (part,) = reader.partitions(second, third)
    again = postgres_changes.StreamReader(settings)
    for act in (
        lambda: list(reader.read(part)), lambda: reader.latestOffset(second, None),
        lambda: again.latestOffset(third, None),
    ):
        with pytest.raises(postgres_changes.Failed) as caught:
            act()
        told = postgres_changes.parse_failure(str(caught.value))
        assert isinstance(told, ChangesMissing)
        assert "public.t: it was dropped from publication p and added again" in told.message
        assert told.data["table"] == "public.t"
    for each in (reader, restarted, again):
        each.stop()


@pytest.mark.parametrize("says_where", [True, False], ids=["4.2", "4.0"])
def test_the_reader_by_hand(
    upstream: Upstream, says_where: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An idle stream stays where it is and makes no batch; a heartbeat, and much log of others,
    move it on; the slot follows what was committed and nothing else. PySpark before 4.2 does not
    say where a batch begins: after a restart the reader goes on from the end of the log."""
    from catalog_migrate.connectors.postgres import changes as postgres_changes
    from catalog_migrate.connectors.postgres.changes import Settings, StreamReader

    upstream.sql(
        "CREATE TABLE t (id int PRIMARY KEY, v text)", "CREATE TABLE other (v text)",
        "CREATE PUBLICATION p FOR TABLE t",
    )
    (table,) = survey.discover(upstream.connection, ["t"], publication="p")
    with server.create_slot(upstream.connection, upstream.slot("s")) as slot:
        pass
    settings = Settings(
        upstream.connection, slot.name, "p", {"public.t": table.expected()}, slot.position
    )
    reader = StreamReader(settings)
    at = reader.initialOffset()
    assert Position.of(at) == slot.position

    def latest() -> dict[str, Any]:
        return reader.latestOffset(at, None) if says_where else reader.latestOffset()

    def read(start: dict[str, Any], end: dict[str, Any]) -> list[Any]:
        return [row for part in reader.partitions(start, end) for batch in reader.read(part)
                for row in batch.to_pylist() if row["operation"] not in SUMMARY]

    if not says_where:
        at = latest()
        assert read(slot.position.offset(), at) == []
    assert latest() == at
    upstream.sql("INSERT INTO other VALUES ('x')")
    assert latest() == at
    upstream.sql("INSERT INTO t SELECT i FROM generate_series(1, 3) AS i")
    end = latest()
    assert [row["after"] for row in read(at, end)] == [[str(i), None] for i in (1, 2, 3)]
    assert read(at, end) == read(at, end)
    assert confirmed(upstream, slot.name) == Position.of(at).lsn
    reader.commit(end)
    assert confirmed(upstream, slot.name) == Position.of(end).lsn
    at = end
    assert latest() == at
    upstream.sql("INSERT INTO other SELECT repeat('x', 2000) FROM generate_series(1, 600)")
    end = latest()
    assert Position.of(end).lsn > Position.of(at).lsn + postgres_changes.FOREIGN
    assert read(at, end) == []
    at = end
    # Spark calls commit() with the next batch only; asked for that, the slot has followed already
    assert latest() == at
    assert confirmed(upstream, slot.name) == Position.of(at).lsn
    settings.heartbeat = 0.001
    end = latest()
    assert Position.of(end).lsn > Position.of(at).lsn
    settings.heartbeat = 0
    at = end
    upstream.sql("INSERT INTO t VALUES (4)")
    upstream.server.disconnect(upstream.role)
    end = latest()
    assert [row["after"] for row in read(at, end)] == [["4", None]]
    settings.tables = {}
    assert read(at, end) == []
    if says_where:
        monkeypatch.setattr(postgres_changes, "_PATIENCE", 0.3)
        with reading(upstream, slot.name):
            assert preflight(
                upstream.connection, "p", slot.name, ["t"], format="CHANGES"
            )[0].message.startswith(f"slot {slot.name} is in use by the process")
            with pytest.raises(postgres_changes.Failed, match="CM0773: another process reads"):
                read(at, end)
    monkeypatch.setattr(postgres_changes, "_PATIENCE", 30.0)
    assert server.drop_slot(upstream.connection, slot.name)
    with pytest.raises(postgres_changes.Failed) as caught:
        latest()
    assert isinstance(postgres_changes.parse_failure(str(caught.value)), SlotMissing)
    reader.stop()
    settings.connection["PASSWORD"] = Secret(MARKER)
    with pytest.raises(postgres_changes.Failed) as caught:
        StreamReader(settings).latestOffset(at)
    refused = postgres_changes.parse_failure(str(caught.value))
    assert isinstance(refused, ConnectionFailed)
    assert "password authentication failed" in refused.message
    for password in (upstream.password, MARKER):
        assert password not in f"{vars(settings)} {caught.value}"
