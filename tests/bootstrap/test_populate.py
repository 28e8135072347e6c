"""Derived tables: filled by the application, filled anew after a migration."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import Row

from catalog_migrate.errors import PrepareFailed

pytestmark = pytest.mark.spark

COUNTS = "CREATE TABLE {s}.counts (n BIGINT) WITH (contents = 'derived');"
LATE = "CREATE TABLE {s}.late (n BIGINT) WITH (contents = 'derived');"
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


def test_derived_tables_from_their_first_rows_to_new_ones(shop: Any) -> None:
    """Filled when they are made, listed while they are not, and filled anew in a new shard."""
    callback = Callback()
    release = shop.release("1", counts=COUNTS)
    a_new_one_is_filled_once(shop, release, callback)
    without_a_callback_it_is_empty_and_listed(shop)
    a_callback_that_fails_leaves_the_old_release_in_force(shop)
    a_migrated_one_is_filled_into_a_new_shard(shop, callback)


def a_new_one_is_filled_once(shop: Any, release: Any, callback: Callback) -> None:
    """The callback gets the name and the new shard; a start with nothing to do does not call it."""
    report = shop.start(release, populate=callback)
    assert (report.outcome, report.unfilled) == ("initialized", ())
    assert callback.calls == [(f"{shop.schema}.counts", shop.shard("counts"))]
    assert shop.rows("counts") == [Row(n=1)]
    assert shop.start(release, populate=callback).outcome == "unchanged"
    assert len(callback.calls) == 1


def without_a_callback_it_is_empty_and_listed(shop: Any) -> None:
    """Nobody filled it: the report and ``status`` say so until a start brings a callback.

    One that fails leaves the table as it was, empty and listed.
    """
    release = shop.release("1.1", counts=COUNTS, late=LATE)
    unfilled = (f"{shop.schema}.late",)
    assert shop.start(release).unfilled == unfilled
    assert shop.rows("late") == []
    assert shop.start(release).unfilled == unfilled
    assert shop.open().status().unfilled == unfilled
    old = shop.shard("late")

    def fails(spark: Any, name: str, path: str) -> None:
        raise LookupError("no source")

    with pytest.raises(PrepareFailed, match="LookupError: no source"):
        shop.start(release, populate=fails)
    assert shop.shard("late") == old
    assert shop.open().status().unfilled == unfilled
    assert shop.open().state().intents == {}
    callback = Callback()
    assert shop.start(release, populate=callback).unfilled == ()
    assert [name for name, _ in callback.calls] == list(unfilled)
    assert shop.rows("late") == [Row(n=1)]
    assert shop.open().status().unfilled == ()


def a_callback_that_fails_leaves_the_old_release_in_force(shop: Any) -> None:
    """PrepareFailed names the table and the callback's own error; nothing of the attempt stays."""
    old = shop.shard("counts")

    def half(spark: Any, name: str, path: str) -> None:
        spark.createDataFrame([(9, "half")], "n BIGINT, what STRING").write.format("delta").mode(
            "append"
        ).save(path)
        raise ZeroDivisionError("no orders yet")

    with pytest.raises(PrepareFailed, match=r"counts.*ZeroDivisionError: no orders yet") as caught:
        shop.start(shop.release("2", counts=WIDER, late=LATE), populate=half)
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    assert shop.open().status().release == "1.1"
    assert shop.open().state().intents == {}
    assert shop.rows("counts") == [Row(n=1)]
    left = (shop.catalog / "warehouse" / shop.schema / "counts").iterdir()
    assert [str(path) for path in left] == [old]


def a_migrated_one_is_filled_into_a_new_shard(shop: Any, callback: Callback) -> None:
    """A changed derived table gets a new shard, which the callback fills; no old row is copied."""
    report = shop.start(shop.release("2", counts=WIDER, late=LATE), populate=callback)
    assert (report.outcome, report.rows_copied) == ("migrated", 0)
    (_, first), (_, second) = callback.calls
    assert first != second == shop.shard("counts")
    assert shop.rows("counts") == [Row(n=2, what="orders")]
