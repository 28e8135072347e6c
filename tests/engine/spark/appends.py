"""One writer of a race: ``python -m tests.engine.spark.appends KIND ADDRESS NUMBER COUNT PLACE``.

``KIND`` is ``spark`` or ``delta-rs``; the store's options come by the environment. It says in the
directory ``PLACE`` that it is ready, waits until all may begin, appends ``COUNT`` rows in as many
commits, and prints for each what its writer was told.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

COLUMNS = ("writer", "number")


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
        commit_properties=CommitProperties(max_commit_retries=200),
    )


def rows_of(address: str, storage_options: dict[str, str] | None = None) -> list[tuple[int, int]]:
    """What is in the table now, as delta-rs reads it."""
    from deltalake import DeltaTable

    table = DeltaTable(address, storage_options=storage_options).to_pyarrow_table()
    return sorted((row["writer"], row["number"]) for row in table.to_pylist())


def main(kind: str, address: str, writer: int, count: int, place: Path) -> None:
    append: Callable[[int], None]
    if kind == "spark":
        from catalog_migrate.engine.spark.session import local_session

        spark = local_session(
            str(place / f"warehouse-{writer}"), addresses=[address],
            conf={"spark.master": "local[1]", "spark.driver.memory": "768m"},
        )
        spark.read.format("delta").load(address).count()

        def append(number: int) -> None:
            append_by_spark(spark, address, writer, number)
    else:
        def append(number: int) -> None:
            append_by_delta_rs(address, writer, number)
            time.sleep(0.2)  # Spark is slower, and is to be met until the end

    (place / f"ready-{writer}").touch()
    while not (place / "go").exists():
        time.sleep(0.05)
    told = []
    for number in range(count):
        try:
            append(number)
            told.append("done")
        except Exception as error:  # noqa: BLE001 - told to who counts
            told.append(str(error)[:500])
    print(json.dumps(told))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), Path(sys.argv[5]))
