"""What the tests of queries share: shards and specs of one directory, and waiting for queries."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from catalog_migrate.connectors.query import QuerySpec
from catalog_migrate.connectors.secrets import Secret
from catalog_migrate.engine.port import ShardSpec
from catalog_migrate.model.names import ItemName
from catalog_migrate.model.objects import Column, External

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from catalog_migrate.streams.spark.engine import SparkQueries
    from catalog_migrate.streams.spark.running import SparkRunningQuery
    from tests.services.kafka import KafkaCluster
    from tests.services.postgres import PostgresServer

PATIENCE = 120.0
POSITION = (
    Column("_topic", "STRING"), Column("_partition", "INT"), Column("_offset", "BIGINT"),
    Column("_timestamp", "TIMESTAMP"),
)  # fmt: skip
DEAD_LETTERS = (
    *POSITION, Column("key", "BINARY"), Column("value", "BINARY"), Column("error", "STRING"),
)  # fmt: skip
_numbers = itertools.count(1)


def columns_of(text: str) -> tuple[Column, ...]:
    """``"id BIGINT NOT NULL, name STRING"`` as columns; types without commas or blanks."""
    columns = []
    for part in text.split(", "):
        name, type_, *rest = part.split(" ")
        columns.append(Column(name, type_, nullable=not rest))
    return tuple(columns)


class Workshop:
    """Shards, specs and queries of one test; its queries are stopped at the end."""

    def __init__(self, spark: SparkSession, queries: SparkQueries, directory: Path) -> None:
        self.spark = spark
        self.queries = queries
        self.directory = directory
        self._running: list[SparkRunningQuery] = []

    def shard(self, name: str, columns: tuple[Column, ...]) -> str:
        """Create an empty shard; return its directory."""
        from catalog_migrate.engine.spark.shards import Shards

        path = str(self.directory / name)
        Shards(self.spark).create_shard(ShardSpec(path=path, columns=columns))
        return path

    def source(
        self,
        connector: str,
        connection: dict[str, Any],
        columns: str,
        options: dict[str, str],
        *,
        dead_letters: bool = False,
        include: dict[str, str] | None = None,
        included: str = "",
        settings: dict[str, str] | None = None,
        format: str | None = None,  # noqa: A002 - the word of the statement
    ) -> QuerySpec:
        """A source with its shard."""
        name = f"source{next(_numbers)}"
        all_columns = columns_of(f"{columns}, {included}" if included else columns)
        if connector == "KAFKA":
            all_columns += POSITION
        bad = self.shard(f"{name}-dead", DEAD_LETTERS) if dead_letters else None
        return QuerySpec(
            item_id=f"u-{name}",
            name=ItemName("default", name),
            kind="source",
            external=External(
                connector=connector, options=dict(options), format=format,
                include=include or {}, dead_letters="dead" if bad else None,
                settings={"TRIGGER": "100 milliseconds", **(settings or {})},
            ),
            columns=all_columns,
            connection=connection,
            shard=self.shard(name, all_columns),
            checkpoint=str(self.directory / f"{name}-checkpoint"),
            dead_letters=bad,
        )

    def sink(
        self,
        connector: str,
        connection: dict[str, Any],
        reads: tuple[str, tuple[Column, ...]],
        options: dict[str, str],
        *,
        key: tuple[str, ...] = (),
        order_by: tuple[str, ...] = (),
        settings: dict[str, str] | None = None,
        topic_ids: dict[str, str] | None = None,
        dead_letters: bool = False,
    ) -> QuerySpec:
        """A sink that reads a shard (path, columns)."""
        name = f"sink{next(_numbers)}"
        bad = self.shard(f"{name}-dead", DEAD_LETTERS) if dead_letters else None
        return QuerySpec(
            item_id=f"u-{name}",
            name=ItemName("default", name),
            kind="sink",
            external=External(
                connector=connector, options=dict(options), key=key, order_by=order_by,
                settings={"TRIGGER": "100 milliseconds", **(settings or {})},
                dead_letters="dead" if bad else None,
            ),
            columns=reads[1],
            connection=connection,
            shard=reads[0],
            checkpoint=str(self.directory / f"{name}-checkpoint"),
            dead_letters=bad,
            topic_ids=topic_ids or {},
        )

    def start(self, spec: QuerySpec) -> SparkRunningQuery:
        """Start a query that ends with the test."""
        query = self.queries.prepare(spec).start()
        self._running.append(query)
        return query

    def run(self, spec: QuerySpec, rows: int) -> SparkRunningQuery:
        """Start a query, wait until it has read so many rows and committed them, and stop it."""
        query = self.start(spec)
        self.await_rows(query, rows)
        assert query.stop(drain=PATIENCE)
        return query

    @staticmethod
    def await_rows(query: SparkRunningQuery, rows: int) -> None:
        """Wait until a query has read so many rows since its start."""

        def enough() -> bool:
            failure = query.failure()
            assert failure is None, failure
            progress = query.progress()
            return progress is not None and progress.total_rows >= rows

        await_that(enough)

    @staticmethod
    def await_failure(query: SparkRunningQuery) -> Any:
        """Wait until a query has died; return why."""
        await_that(lambda: query.failure() is not None)
        return query.failure()

    def insert(self, path: str, values: str) -> None:
        """Append rows, given as SQL's VALUES, in one commit."""
        self.spark.sql(f"INSERT INTO delta.`{path}` VALUES {values}")

    def rows(self, path: str, select: str = "*", order: str = "1") -> list[tuple[Any, ...]]:
        """Rows of a shard as tuples."""
        frame = self.spark.sql(f"SELECT {select} FROM delta.`{path}` ORDER BY {order}")
        return [tuple(row) for row in frame.collect()]

    def close(self) -> None:
        """Stop what still runs."""
        for query in self._running:
            if query.active:
                query.stop(drain=0.0)


def await_that(condition: Callable[[], bool], seconds: float = PATIENCE) -> None:
    """Wait until a condition holds; fail the test when it does not in time."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds} s"
        time.sleep(0.02)


def newest_batch(spec: QuerySpec, log: str = "commits") -> int:
    """The newest entry of a log of the spec's checkpoint."""
    names = (Path(spec.checkpoint) / log).iterdir()
    return max(int(entry.name) for entry in names if entry.name.isdecimal())


@pytest.fixture(scope="session")
def queries(spark: SparkSession) -> SparkQueries:
    """The engine of queries on the run's Spark session."""
    from catalog_migrate.streams.spark.engine import SparkQueries

    return SparkQueries(spark)


@pytest.fixture
def workshop(
    spark: SparkSession, queries: SparkQueries, tmp_path: Path
) -> Iterator[Workshop]:
    """A place for shards, checkpoints and queries."""
    made = Workshop(spark, queries, tmp_path)
    yield made
    made.close()


@pytest.fixture
def forget_commit() -> Callable[[QuerySpec], int]:
    """Undo the newest commit of a checkpoint, as a crash right before it would; return it."""

    def forget(spec: QuerySpec) -> int:
        newest = newest_batch(spec)
        for name in (str(newest), f".{newest}.crc"):
            (Path(spec.checkpoint) / "commits" / name).unlink(missing_ok=True)
        return newest

    return forget


@pytest.fixture
def kafka_connection(kafka: KafkaCluster) -> dict[str, Any]:
    """Effective options of a connection to the cluster, with a password."""
    user, password = next(iter(kafka.users.items()))
    return {
        "BROKER": kafka.bootstrap,
        "SECURITY PROTOCOL": "SASL_PLAINTEXT",
        "SASL MECHANISMS": "SCRAM-SHA-512",
        "SASL USERNAME": user,
        "SASL PASSWORD": Secret(password),
    }


@pytest.fixture
def topic(kafka: KafkaCluster) -> str:
    """A new topic of two partitions."""
    name = f"topic{next(_numbers)}"
    kafka.create_topic(name, partitions=2)
    return name


@pytest.fixture
def database(postgres: PostgresServer) -> dict[str, Any]:
    """Effective options of a connection to a new database and its own role."""
    number = next(_numbers)
    name, role, password = f"shop{number}", f"writer{number}", f"pg-marker-{number}"
    postgres.create_database(name)
    postgres.create_user(role, password)
    postgres.execute(f"GRANT CREATE ON DATABASE {name} TO {role}")
    return {
        "HOST": "127.0.0.1",
        "PORT": str(postgres.port),
        "DATABASE": name,
        "USER": role,
        "PASSWORD": Secret(password),
        "SSL MODE": "disable",
    }


@pytest.fixture
def sql(postgres: PostgresServer, database: dict[str, Any]) -> Callable[..., list[tuple[Any, ...]]]:
    """Run one statement as the sink's own role; return its rows."""

    def run(statement: str) -> list[tuple[Any, ...]]:
        return postgres.execute(statement, user=database["USER"], database=database["DATABASE"])

    return run


