"""Between Spark's ``foreachBatch`` and a writer: whose batch it is, errors kept, a way to stop.

And the writer of a source with ON ERROR INTO: good rows to its shard, bad ones to their table; and
how every writer puts values as JSON: nulls shown, microseconds kept, UTC.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Protocol

import msgspec
from pyspark.sql import functions as F  # noqa: N812 (the name everybody knows it by)

from catalog_migrate.errors import EngineFailure
from catalog_migrate.model.names import quote_sql
from catalog_migrate.streams.queries import QuerySpec
from catalog_migrate.streams.spark import decoding

if TYPE_CHECKING:
    from pyspark.sql import Column as Expression
    from pyspark.sql import DataFrame

class Batch(msgspec.Struct, frozen=True):
    """One batch to write: its rows, its number, and the query it belongs to."""

    frame: DataFrame
    number: int
    query_id: str


class BatchWriter(Protocol):
    """Writes the batches of one query."""

    def write(self, batch: Batch) -> None:
        """Write one batch; called by one thread at a time, again with the same after a crash."""

    def cancel(self) -> None:
        """Break off the write under way, from another thread; it then raises."""


class BatchGate:
    """The function given to ``foreachBatch``.

    Spark wraps what a Python function raises into text, so the error itself is kept here.
    """

    def __init__(self, writer: BatchWriter, scrubbed: Callable[[BaseException], BaseException]):
        self._writer = writer
        self._scrubbed = scrubbed
        self._lock = threading.Lock()
        self._writing = False
        self._closed = False
        self._error: BaseException | None = None

    @property
    def error(self) -> BaseException | None:
        """What the last batch raised, scrubbed; None when it ended well."""
        return self._error

    def __call__(self, frame: DataFrame, number: int) -> None:
        """Write one batch of the stream."""
        with self._lock:
            if self._closed:
                raise EngineFailure("the query was stopped", condition="QUERY_STOPPED")
            self._writing = True
            self._error = None
        try:
            # Within foreachBatch the calling thread is the stream's own, and carries its id.
            query_id = frame.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId")
            self._writer.write(Batch(frame, number, str(query_id)))
        except Exception as error:
            self._error = self._scrubbed(error)
            if self._error is error:
                raise
            raise self._error from None
        finally:
            with self._lock:
                self._writing = False

    def close_if_free(self) -> bool:
        """Begin no further batch, unless one is being written; whether it is closed."""
        with self._lock:
            self._closed = self._closed or not self._writing
            return self._closed

    def close(self) -> None:
        """Begin no further batch, and break off the one under way."""
        with self._lock:
            self._closed = True
            writing = self._writing
        if writing:
            self._writer.cancel()


class SortingWriter:
    """Writes both tables under the same (query, batch), so that each skips a batch it has.

    ``decoded`` makes persisted rows and problems of a batch's records; without it they are decoded
    already. Without ``dead_letters`` a bad record fails the batch.
    Both are written even when they get no row: the transaction in a table's log is the proof that
    the batch arrived there.
    """

    def __init__(
        self, spec: QuerySpec, dead_letters: str | None,
        decoded: Callable[[DataFrame], DataFrame] | None = None,
    ) -> None:
        self._spec = spec
        self._dead_letters = dead_letters
        self._decoded = decoded or _persisted

    def write(self, batch: Batch) -> None:
        """Decode once, write twice."""
        decoded = self._decoded(batch.frame)
        try:
            if self._dead_letters is None:
                self._require_readable(decoded)
            else:
                self._append(decoding.unreadable(decoded), self._dead_letters, batch)
            self._append(decoding.readable(decoded, self._spec), self._spec.shard, batch)
        finally:
            decoded.unpersist()

    def cancel(self) -> None:
        """Nothing of its own to break off: each write is a Spark job."""

    @staticmethod
    def _require_readable(decoded: DataFrame) -> None:
        """ON ERROR FAIL: EngineFailure that says where the first bad record lies, and why."""
        found = decoding.first_unreadable(decoded)
        if found is not None:
            raise EngineFailure(found)

    @staticmethod
    def _append(rows: DataFrame, path: str, batch: Batch) -> None:
        append_once(rows, path, batch.query_id, batch.number)


def _persisted(frame: DataFrame) -> DataFrame:
    return frame.persist()


def append_once(rows: DataFrame, path: str, app: str, version: int) -> None:
    """Append to a table under the transaction (app, version); a table that has it skips it."""
    (
        rows.write.format("delta")
        .mode("append")
        .option("txnAppId", app)
        .option("txnVersion", str(version))
        .save(path)
    )


JSON_OPTIONS = MappingProxyType({
    "ignoreNullFields": "false",
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
    "timeZone": "UTC",
})
"""Spark's own default drops nulls and everything below a millisecond."""


def json_of(columns: Sequence[str], *, nulls: bool = True) -> Expression:
    """One JSON object of those columns; BINARY is base64. Without ``nulls`` their fields miss."""
    options = {**JSON_OPTIONS, "ignoreNullFields": str(not nulls).lower()}
    return F.to_json(F.struct(*(F.col(quote_sql(name)) for name in columns)), options)
