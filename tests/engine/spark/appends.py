"""One writer of a race: ``python -m tests.engine.spark.appends KIND ADDRESS NUMBER COUNT PLACE``.

``KIND`` is ``spark`` or ``delta-rs``; the store's options come by the environment. It says in the
directory ``PLACE`` that it is ready, waits until all may begin, appends ``COUNT`` rows in as many
commits, and prints for each what its writer was told.

An ``ADDRESS`` of the form ``CATALOG#TABLE`` is looked up in the catalog before each append, and an
append that is refused because the table has moved is tried again where it is then.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

COLUMNS = ("writer", "number")
_PATIENCE = 300.0


def make_table(address: str, storage_options: dict[str, str] | None = None) -> None:
    """An empty table for the rows of all writers."""
    from deltalake import DeltaTable, Schema
    from deltalake.schema import Field, PrimitiveType

    fields = [Field(name, PrimitiveType("long")) for name in COLUMNS]
    DeltaTable.create(address, Schema(fields), storage_options=storage_options)


def append_by_spark(spark: Any, address: str, writer: int, number: int) -> None:
    """One row in one commit by Spark."""
    spark.range(number, number + 1, 1, 1).selectExpr(
        f"CAST({writer} AS BIGINT) AS writer", "id AS number"
    ).write.format("delta").mode("append").save(address)


def append_by_delta_rs(
    address: str, writer: int, number: int, storage_options: dict[str, str] | None = None
) -> None:
    """One row in one commit by delta-rs."""
    from arro3.core import Array, DataType, Table
    from deltalake import CommitProperties, write_deltalake

    row = dict(zip(COLUMNS, (writer, number), strict=True))
    rows = Table.from_pydict({name: Array([v], DataType.int64()) for name, v in row.items()})
    write_deltalake(
        address, rows, mode="append", storage_options=storage_options,
        commit_properties=CommitProperties(max_commit_retries=200), schema_mode="merge",
    )


def rows_of(address: str, storage_options: dict[str, str] | None = None) -> list[tuple[int, int]]:
    """What is in the table now, as delta-rs reads it."""
    from deltalake import DeltaTable

    table = DeltaTable(address, storage_options=storage_options).to_pyarrow_table()
    return sorted((row["writer"], row["number"]) for row in table.to_pylist())


def located(address: str, storage_options: dict[str, str] | None = None) -> Callable[[], str]:
    """Where the rows are when they are asked for; options by default from the environment."""
    catalog, of_table, name = address.partition("#")
    if not of_table:
        return lambda: address

    from catalog_migrate.api import Catalog

    options = storage_options or {
        key.lower(): value for key, value in os.environ.items() if key.startswith("AWS_")
    }
    return lambda: str(Catalog.open(catalog, storage_options=options).show(name)["location"])


def until_taken(append: Callable[[], None]) -> None:
    """Append once the table is not sealed any more: it is in another place then.

    Spark and delta-rs have words of their own for a seal, before it and behind it; a refusal of an
    append that did commit would show as a row that is there twice.
    """
    deadline = time.monotonic() + _PATIENCE
    while True:
        try:
            return append()
        except Exception:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)


def main(kind: str, address: str, writer: int, count: int, place: Path) -> None:
    append: Callable[[int], None]
    where = located(address)
    if kind == "spark":
        from catalog_migrate.engine.spark.session import local_session

        spark = local_session(
            str(place / f"warehouse-{writer}"), addresses=[address],
            conf={"spark.master": "local[1]", "spark.driver.memory": "768m"},
        )
        spark.read.format("delta").load(where()).count()

        def append(number: int) -> None:
            append_by_spark(spark, where(), writer, number)
    else:
        def append(number: int) -> None:
            append_by_delta_rs(where(), writer, number)
            time.sleep(0.2)  # Spark is slower, and is to be met until the end

    (place / f"ready-{writer}").touch()
    while not (place / "go").exists():
        time.sleep(0.05)
    told = []
    for number in range(count):
        try:
            if where() == address:
                append(number)
            else:
                until_taken(lambda number=number: append(number))
            told.append("done")
        except Exception as error:  # noqa: BLE001 - told to who counts
            told.append(str(error)[:500])
    print(json.dumps(told))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), Path(sys.argv[5]))
