"""Derived tables: filled by the application, filled anew after a migration."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import Row

from catalog_migrate.errors import PrepareFailed

pytestmark = pytest.mark.spark

COUNTS = "CREATE TABLE {s}.counts (n BIGINT) WITH (contents = 'derived');"
WIDER = "CREATE TABLE {s}.counts (n BIGINT, what STRING) WITH (contents = 'derived');"


class Callback:
    """Fills ``counts`` with one row and remembers what it was asked for."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, str]] = []

    def __call__(self, spark: Any, name: str, path: str) -> None:
        self.calls.append((name, path))
        schema = spark.read.format("delta").load(path).schema
        row = (len(self.calls), "orders")[: len(schema)]
        spark.createDataFrame([row], schema).write.format("delta").mode("append").save(path)


def test_a_derived_table_is_filled_once(shop: Any) -> None:
    """The callback gets the name and the new shard; a start with nothing to do does not call it."""
    callback = Callback()
    report = shop.start(shop.release("1", counts=COUNTS), populate=callback)
    assert (report.outcome, report.unfilled) == ("initialized", ())
    assert callback.calls == [(f"{shop.schema}.counts", shop.shard("counts"))]
    assert shop.rows("counts") == [Row(n=1)]
    assert shop.start(shop.release("1", counts=COUNTS), populate=callback).outcome == "unchanged"
    assert len(callback.calls) == 1


def test_a_migrated_derived_table_is_filled_into_a_new_shard(shop: Any) -> None:
    """A changed derived table gets a new shard, which the callback fills; no old row is copied."""
    callback = Callback()
    shop.start(shop.release("1", counts=COUNTS), populate=callback)
    report = shop.start(shop.release("2", counts=WIDER), populate=callback)
    assert (report.outcome, report.rows_copied) == ("migrated", 0)
    (_, first), (_, second) = callback.calls
    assert first != second == shop.shard("counts")
    assert shop.rows("counts") == [Row(n=2, what="orders")]


def test_without_a_callback_it_is_empty_and_listed(shop: Any) -> None:
    """Nobody filled it: the report and ``status`` say so until a start brings a callback."""
    release = shop.release("1", counts=COUNTS)
    report = shop.start(release)
    assert report.unfilled == (f"{shop.schema}.counts",)
    assert shop.rows("counts") == []
    assert shop.start(release).unfilled == (f"{shop.schema}.counts",)
    assert shop.open().status().unfilled == (f"{shop.schema}.counts",)
    callback = Callback()
    assert shop.start(release, populate=callback).unfilled == ()
    assert len(callback.calls) == 1
    assert shop.rows("counts") == [Row(n=1)]
    assert shop.open().status().unfilled == ()


def test_a_callback_that_fails_leaves_the_old_release_in_force(shop: Any) -> None:
    """PrepareFailed names the table and the callback's own error; nothing of the attempt stays."""
    shop.start(shop.release("1", counts=COUNTS), populate=Callback())
    old = shop.shard("counts")

    def half(spark: Any, name: str, path: str) -> None:
        spark.createDataFrame([(9, "half")], "n BIGINT, what STRING").write.format("delta").mode(
            "append"
        ).save(path)
        raise ZeroDivisionError("no orders yet")

    with pytest.raises(PrepareFailed, match=r"counts.*ZeroDivisionError: no orders yet") as caught:
        shop.start(shop.release("2", counts=WIDER), populate=half)
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    assert shop.open().status().release == "1"
    assert shop.open().state().intents == {}
    assert shop.rows("counts") == [Row(n=1)]
    left = (shop.catalog / "warehouse" / shop.schema / "counts").iterdir()
    assert [str(path) for path in left] == [old]
    assert shop.start(shop.release("2", counts=WIDER), populate=Callback()).outcome == "migrated"
    assert shop.rows("counts") == [Row(n=1, what="orders")]


def test_a_failing_refill_keeps_the_table_unfilled(shop: Any) -> None:
    """A callback that fails on a later start leaves the table as it was, empty and listed."""
    release = shop.release("1", counts=COUNTS)
    shop.start(release)
    old = shop.shard("counts")

    def fails(spark: Any, name: str, path: str) -> None:
        raise LookupError("no source")

    with pytest.raises(PrepareFailed, match="LookupError: no source"):
        shop.start(release, populate=fails)
    assert shop.shard("counts") == old
    assert shop.open().status().unfilled == (f"{shop.schema}.counts",)
    assert shop.open().state().intents == {}
