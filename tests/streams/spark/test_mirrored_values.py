"""Values that Spark has put into a mirror, against the same read without Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from catalog_migrate.connectors.postgres.comparison import Bucket, ComparedColumn, digests, look
from catalog_migrate.connectors.postgres.sessions import session
from catalog_migrate.connectors.postgres.snapshot import chunks, copy_lines, selection
from catalog_migrate.connectors.postgres.survey import discover
from catalog_migrate.connectors.postgres.types import spark_value
from catalog_migrate.connectors.postgres.values import table_values
from catalog_migrate.model.names import quote_sql
from catalog_migrate.streams.ddl.validation import _batches
from tests.services.postgres_types import TYPES, literal

if TYPE_CHECKING:
    from tests.services.upstream import Upstream

    from .conftest import Workshop

pytestmark = [pytest.mark.spark, pytest.mark.services]


def test_each_type_of_postgres(workshop: Workshop, upstream: Upstream) -> None:
    """At the edges of every type, and for NULL, what the stream's SQL writes is value for value
    what is read upstream without Spark."""
    from catalog_migrate.streams.spark.sources import query_session

    listed = ", ".join(f'"c {n}" {type_}' for n, type_ in enumerate(TYPES))
    rows = [
        ", ".join(literal(values[row % len(values)], type_) for type_, values in TYPES.items())
        for row in range(max(map(len, TYPES.values())))
    ]
    upstream.sql(
        f"CREATE TABLE t (id int PRIMARY KEY, {listed})",
        f"INSERT INTO t VALUES {', '.join(f'({n}, {row})' for n, row in enumerate(rows))}",
        "INSERT INTO t (id) VALUES (-1)",
    )
    (table,) = discover(upstream.connection, ["t"])
    assert len(TYPES) >= 28
    columns = [
        ComparedColumn(each.name, each.name, str(each.spark_type), each.name == "id")
        for each in table.columns
    ]
    width = len(columns)
    with session(upstream.connection) as opened:
        query = selection(opened, table, "p", [f'"{each.upstream}"' for each in columns])
        (texts,) = chunks(copy_lines(opened, query), width, 1000)
    spark = query_session(workshop.spark)
    images = [(texts[at:at + width],) for at in range(0, len(texts), width)]
    path = str(workshop.directory / "values")
    spark.createDataFrame(images, "after ARRAY<STRING>").selectExpr(*(
        f"{spark_value(column.type, f'get(after, {place})')} AS {quote_sql(column.ours)}"
        for place, column in enumerate(columns)
    )).write.format("delta").option("delta.columnMapping.mode", "name").save(path)

    def apart(compared: list[ComparedColumn]) -> bool:
        """Whether these columns are not the same on both sides."""
        there = look(upstream.connection, table, compared, Bucket(0, 1), publication="p").rows
        found = []
        for batch in _batches(path, [each.ours for each in compared], alive=False):
            values = [
                table_values(each.type, value) for each, value in zip(compared, batch, strict=True)
            ]
            found += list(zip(*(each.tolist() for each in digests(compared, values)), strict=True))
        assert len(found) == len(rows) + 1
        return sorted(found) != sorted(
            zip(there.keys.tolist(), there.digests.tolist(), strict=True)
        )

    if apart(columns):
        wrong = [column for column in columns[1:] if apart([columns[0], column])]
        raise AssertionError(wrong)
