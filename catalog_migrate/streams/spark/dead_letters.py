"""One batch of a source with ON ERROR INTO: good rows to its shard, bad ones to their table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from catalog_migrate.streams.queries import QuerySpec
from catalog_migrate.streams.spark import decoding

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from catalog_migrate.streams.spark.batches import Batch


class SortingWriter:
    """Writes both tables under the same (query, batch), so that each skips a batch it has.

    Both are written even when they get no row: the transaction in a table's log is the proof that
    the batch arrived there.
    """

    def __init__(self, spec: QuerySpec, dead_letters: str) -> None:
        self._spec = spec
        self._dead_letters = dead_letters

    def write(self, batch: Batch) -> None:
        """Decode once, write twice."""
        decoded = batch.frame.persist()
        try:
            self._append(decoding.unreadable(decoded), self._dead_letters, batch)
            self._append(decoding.readable(decoded, self._spec), self._spec.shard, batch)
        finally:
            decoded.unpersist()

    def cancel(self) -> None:
        """Nothing of its own to break off: each write is a Spark job."""

    @staticmethod
    def _append(rows: DataFrame, path: str, batch: Batch) -> None:
        append_once(rows, path, batch.query_id, batch.number)


def append_once(rows: DataFrame, path: str, app: str, version: int) -> None:
    """Append to a table under the transaction (app, version); a table that has it skips it."""
    (
        rows.write.format("delta")
        .mode("append")
        .option("txnAppId", app)
        .option("txnVersion", str(version))
        .save(path)
    )
