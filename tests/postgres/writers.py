"""Foreign writers that append to a table of PostgreSQL's catalog while it is upgraded."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from catalog_migrate.errors import PrepareFailed

from .conftest import ROWS, Server

if TYPE_CHECKING:
    from catalog_migrate.hook import BootstrapReport

FIRST = 900_000
"""The key of the rows that the writers append; each row has a number of its own."""

PAUSE = 1.5
"""Seconds between two rows of a writer: some ten of them come during an upgrade."""


class Writer:
    """Appends one row after another from a thread, counting what was acknowledged.

    A failure is a refusal: its row must not be there, and the writer goes on, as it may after the
    upgrade by name.
    """

    def __init__(self, number: int, append: Callable[[int], None]) -> None:
        self.first = FIRST + number * 10_000
        self.append = append
        self.acknowledged: set[int] = set()
        self.refused: dict[int, str] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"writer {number}", daemon=True)

    def _run(self) -> None:
        number = self.first
        while not self._stop.is_set() and len(self.refused) < 20:
            number += 1
            try:
                self.append(number)
            except Exception as error:  # noqa: BLE001 - any error at the writer is a refusal
                self.refused[number] = f"{type(error).__name__}: {error}"
                self._stop.wait(0.2)
            else:
                self.acknowledged.add(number)
            self._stop.wait(PAUSE)

    def __enter__(self) -> Writer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(60)
        assert not self._thread.is_alive()


def start_over(start: Callable[[], BootstrapReport]) -> BootstrapReport:
    """Start again where Spark wrote over a seal, as it may on a local file system.

    The upgrade has noticed it, nothing was changed (docs/guarantees.md).
    """
    for _ in range(5):
        try:
            return start()
        except PrepareFailed as failure:
            if "written over by another writer" not in failure.message:
                raise
    raise AssertionError("five seals in a row were written over")


def upgrade_with_writers(server: Server, table: str, key: str, version: int) -> BootstrapReport:
    """Appends by name, by path and by delta-rs during an upgrade: acknowledged means there, once.

    ``key`` is a column of the table, of 15, which the upgrade copies. The rows of the writers are
    gone afterwards.
    """
    import pyarrow
    import pyarrow.parquet
    from deltalake import write_deltalake
    from deltalake.exceptions import DeltaError
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    spark = server.spark
    file = ROWS / f"{table}.parquet"
    one = pyarrow.parquet.read_table(file).slice(0, 1)
    place = one.schema.get_field_index(key)
    old = server.shard(table)
    template = spark.read.parquet(str(file)).limit(1).localCheckpoint()

    def row(number: int) -> Any:
        from pyspark.sql import functions as f

        return template.withColumn(key, f.lit(number).cast("bigint"))

    def by_name(number: int) -> None:
        row(number).write.mode("append").insertInto(table)

    def by_path(number: int) -> None:
        row(number).write.format("delta").mode("append").save(old)

    def by_delta_rs(number: int) -> None:
        value = pyarrow.array([number], one.schema.field(place).type)
        write_deltalake(old, one.set_column(place, one.schema.field(place), value), mode="append")

    with Writer(0, by_name) as first, Writer(1, by_path) as second, Writer(2, by_delta_rs) as third:
        until = time.monotonic() + 60
        while not all(writer.acknowledged for writer in (first, second, third)):
            assert time.monotonic() < until, (first.refused, second.refused, third.refused)
            time.sleep(0.1)
        report = start_over(lambda: server.start(version))
    writers = (first, second, third)
    acknowledged = set().union(*(writer.acknowledged for writer in writers))
    found = [
        getattr(r, key)
        for r in spark.sql(f"SELECT {key} FROM {table} WHERE {key} > {FIRST}").collect()
    ]
    assert len(found) == len(set(found)), "a row was doubled"
    assert acknowledged - set(found) == set(), "a row was acknowledged and lost"
    refused = set().union(*(writer.refused for writer in writers))
    assert set(found) & refused == set(), "a row was refused and kept"
    # by path the writers stay at the old shard: each must have met the seal in the end
    late = row(FIRST - 1)
    with pytest.raises((PySparkException, Py4JJavaError), match="catalog_migrate_sealed"):
        late.write.format("delta").mode("append").save(old)
    with pytest.raises(DeltaError, match="validation check failed"):
        by_delta_rs(FIRST - 2)
    assert server.shard(table) != old
    spark.sql(f"DELETE FROM {table} WHERE {key} > {FIRST}")
    return report
