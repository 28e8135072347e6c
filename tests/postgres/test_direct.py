"""PostgreSQL's tables from 15 to 18 at once, with foreign writers at work meanwhile."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from catalog_migrate.errors import PrepareFailed

from .conftest import changed_tables

if TYPE_CHECKING:
    from catalog_migrate.hook import BootstrapReport

pytestmark = pytest.mark.spark

TABLE = "pg_catalog.pg_attribute"
FIRST = 900_000
"""``attrelid`` of the rows that the writers append; each row has a number of its own."""


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
            self._stop.wait(0.5)

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


def test_rows_of_foreign_writers_are_refused_or_kept(servers: Any) -> None:
    """Appends by name, by path and by delta-rs during 15 -> 18: acknowledged means there, once.

    The releases are the nine tables that change on the way and one that does not. The views, and
    the other tables, go the way by 16 in ``test_upgrade``.
    """
    import pyarrow
    import pyarrow.parquet
    from deltalake import write_deltalake
    from deltalake.exceptions import DeltaError
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    tables = changed_tables(15, 18)
    assert len(tables) == 9
    server = servers(tables | {"pg_catalog.pg_am"})
    assert server.load() == 4_399
    spark = server.spark
    file = (
        Path(__file__).parents[2]
        / "fixtures"
        / "postgres_catalog"
        / "rows_15"
        / (f"{TABLE}.parquet")
    )
    one = pyarrow.parquet.read_table(file).slice(0, 1)
    place = one.schema.get_field_index("attrelid")
    old = server.shard(TABLE)
    template = spark.read.parquet(str(file)).limit(1).localCheckpoint()

    def row(number: int) -> Any:
        from pyspark.sql import functions as f

        return template.withColumn("attrelid", f.lit(number).cast("bigint"))

    def by_name(number: int) -> None:
        row(number).write.mode("append").insertInto(TABLE)

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
        report = start_over(lambda: server.start(18))
    assert (report.outcome, report.release) == ("migrated", "18")
    writers = (first, second, third)
    acknowledged = set().union(*(writer.acknowledged for writer in writers))
    found = [
        r.attrelid
        for r in spark.sql(f"SELECT attrelid FROM {TABLE} WHERE attrelid > {FIRST}").collect()
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
    assert server.shard(TABLE) != old

    # and the real rows: 15 -> 18 in one step makes of each what the decisions say
    spark.sql(f"DELETE FROM {TABLE} WHERE attrelid > {FIRST}")
    assert server.differing(18) == set()
    assert (server.open().status().release, server.open().status().pending) == ("18", 0)
