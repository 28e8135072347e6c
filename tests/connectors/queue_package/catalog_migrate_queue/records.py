"""Records in Spark: a Python data source that reads them, and the writer of batches."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)

from catalog_migrate.connectors.base import Batch
from catalog_migrate.connectors.positions import OffsetRange
from catalog_migrate.connectors.query import QuerySpec, written_columns
from catalog_migrate.connectors.values import start_of
from catalog_migrate.errors import EngineFailure, QueryFenced
from catalog_migrate_queue.directory import Directory, Fenced, NoQueues

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

SCHEMA = (
    "key BINARY, value BINARY, topic STRING, partition INT, offset BIGINT, timestamp TIMESTAMP"
)


def stream(spark: SparkSession, path: str, queue: str, start: str) -> DataFrame:
    """Return the records of a queue as a stream."""
    spark.dataSource.register(Records)
    options = {"directory": path, "queue": queue, "start": start}
    return spark.readStream.format(Records.name()).options(**options).load()


def batch(spark: SparkSession, path: str, ranges: Sequence[OffsetRange]) -> DataFrame:
    """Return the records of ranges."""
    if not ranges:
        return spark.createDataFrame([], SCHEMA)
    spark.dataSource.register(Records)
    options = {"directory": path, "ranges": json.dumps(ranges)}
    return spark.read.format(Records.name()).options(**options).load()


class Range(InputPartition):
    """Offsets of one partition."""

    def __init__(self, queue: str, partition: int, first: int, until: int) -> None:
        self.place = (queue, partition, first, until)


class Records(DataSource):
    """What Spark calls."""

    @classmethod
    def name(cls) -> str:
        return "catalog_migrate_queue"

    def schema(self) -> str:
        return SCHEMA

    def reader(self, schema: StructType) -> RangesReader:
        return RangesReader(self.options)

    def streamReader(self, schema: StructType) -> StreamReader:  # noqa: N802
        return StreamReader(self.options)


class _Reads:
    def __init__(self, options: dict[str, str]) -> None:
        self.options = options
        self.directory = Directory(options["directory"])

    def read(self, partition: Range) -> Iterator[tuple[Any, ...]]:
        queue, number, first, until = partition.place
        for record in self.directory.read(queue, number, first, until):
            key = None if record.key is None else record.key.encode()
            moment = datetime.fromtimestamp(record.moment / 1000, timezone.utc)
            yield key, record.value.encode(), queue, number, record.offset, moment


class RangesReader(_Reads, DataSourceReader):
    """Ranges as a batch."""

    def partitions(self) -> list[InputPartition]:
        return [Range(*each) for each in json.loads(self.options["ranges"])]


class StreamReader(_Reads, DataSourceStreamReader):
    """A queue as a stream; Spark keeps the offsets in its checkpoint, as JSON."""

    def _each(self) -> Iterator[tuple[int, tuple[int, int]]]:
        queue = self.options["queue"]
        for number in self.directory.partitions(queue):
            yield number, self.directory.bounds(queue, number)

    def initialOffset(self) -> dict[str, dict[str, int]]:  # noqa: N802
        queue, start = self.options["queue"], self.options["start"]
        moment = start_of(start)
        found = {}
        for number, (oldest, newest) in self._each():
            at: int | None = oldest if start == "earliest" else newest
            if moment is not None:
                at = self.directory.since(queue, number, int(moment.timestamp() * 1000))
            found[str(number)] = newest if at is None else at
        return {queue: found}

    def latestOffset(  # noqa: N802
        self, start: Any = None, limit: Any = None,
    ) -> dict[str, dict[str, int]]:
        return {self.options["queue"]: {str(number): until for number, (_, until) in self._each()}}

    def partitions(
        self, start: dict[str, dict[str, int]], end: dict[str, dict[str, int]]
    ) -> list[InputPartition]:
        ranges = []
        for queue, ends in end.items():
            for number, until in ends.items():
                oldest, _ = self.directory.bounds(queue, int(number))
                first = start.get(queue, {}).get(number, 0)
                if first > until or (first < until and first < oldest):
                    raise NoQueues(
                        f"{queue}:{number} has records {oldest} to {until}, the source is at"
                        f" {first}"
                    )
                if first < until:
                    ranges.append(Range(queue, int(number), first, until))
        return ranges


class QueueWriter:
    """Appends each batch as one segment."""

    def __init__(self, spec: QuerySpec, directory: Directory, queue: str) -> None:
        self._spec, self._directory, self._queue = spec, directory, queue

    def write(self, batch: Batch) -> None:
        """Append the rows, unless the queue has the batch."""
        columns = [F.col(f"`{column.name}`") for column in written_columns(self._spec)]
        keys = [F.col(f"`{name}`") for name in self._spec.external.key]
        key = F.to_json(F.struct(*keys)) if keys else F.lit(None).cast("string")
        rows = batch.frame.select(key, F.to_json(F.struct(*columns))).collect()
        try:
            self._directory.append(
                self._queue, 0, map(tuple, rows), query=batch.query_id, batch=batch.number
            )
        except Fenced as error:
            raise QueryFenced(f"sink {self._spec.name}: {error}") from error
        except (NoQueues, OSError) as error:
            raise EngineFailure(
                f"sink {self._spec.name}: {error}", condition="QUEUE", transient=True
            ) from error

    def cancel(self) -> None:
        """Nothing to break off: the one effect of a batch is its segment."""
