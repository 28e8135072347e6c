"""What a record must look like for each FORMAT, on real Spark without a broker."""

from __future__ import annotations

from datetime import datetime, timezone
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest

from catalog_migrate.connectors.query import QuerySpec
from catalog_migrate.model.names import ItemName
from catalog_migrate.model.objects import Column, External

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

POSITION = (
    Column("_topic", "STRING"), Column("_partition", "INT"), Column("_offset", "BIGINT"),
    Column("_timestamp", "TIMESTAMP"),
)  # fmt: skip
ORDERS = (
    Column("id", "BIGINT", nullable=False), Column("price", "DECIMAL(6,2)"),
    Column("code", "VARCHAR(3)"), Column("tags", "ARRAY<STRING>"),
    Column("at", "TIMESTAMP"), Column("inner", "STRUCT<a: INT, b: BOOLEAN>"),
)  # fmt: skip
RECORD = "key BINARY, value BINARY, topic STRING, partition INT, offset BIGINT, timestamp TIMESTAMP"
MOMENT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=timezone.utc)


def spec(columns: tuple[Column, ...], format_: str, **include: str) -> QuerySpec:
    """A Kafka source of those columns."""
    return QuerySpec(
        item_id="u1", name=ItemName("default", "s"), kind="source",
        external=External(connector="KAFKA", format=format_, include=include),
        columns=columns + POSITION, connection={}, shard="", checkpoint="",
    )  # fmt: skip


def records(spark: SparkSession, *values: bytes | None) -> Any:
    """Records of one topic as the connector gives them, offsets from 10 on."""
    return spark.createDataFrame(
        [
            (f"k{number}".encode(), value, "t", 1, 10 + number, MOMENT)
            for number, value in enumerate(values)
        ],
        RECORD,
    )


def problems(spark: SparkSession, columns: tuple[Column, ...], format_: str, *values: Any) -> Any:
    """What is wrong with each value; None for a good one."""
    from catalog_migrate.streams.spark import decoding

    decoded = decoding.decode(records(spark, *values), spec(columns, format_))
    found = {row["_offset"]: row["error"] for row in decoding.unreadable(decoded).collect()}
    good = {
        row["_offset"] for row in decoding.readable(decoded, spec(columns, format_)).collect()
    }
    assert good | set(found) == {10 + number for number in range(len(values))}
    assert not good & set(found)
    return [found.get(10 + number) for number in range(len(values))]


class TestJson:
    def test_declared_columns(self, spark: SparkSession) -> None:
        """Values come out in the declared types, undeclared fields and absent ones are no fault."""
        from catalog_migrate.streams.spark import decoding

        source = spec(ORDERS, "JSON")
        frame = records(
            spark,
            b'{"id": 1, "price": 12.34, "code": "abc", "tags": ["x", null], "more": {},'
            b' "at": "2026-01-02T03:04:05.123456Z", "inner": {"a": 7, "b": true}}',
            ' {"id": 2, "code": "äöü"} '.encode(),
        )
        rows = decoding.all_or_fail(frame, source).collect()
        assert [tuple(row)[:4] for row in rows] == [
            (1, Decimal("12.34"), "abc", ["x", None]), (2, None, "äöü", None),
        ]
        assert rows[0]["inner"].asDict() == {"a": 7, "b": True}
        assert rows[0]["at"].microsecond == 123456
        assert [tuple(row)[6:9] for row in rows] == [("t", 1, 10), ("t", 1, 11)]

    def test_what_does_not_fit(self, spark: SparkSession) -> None:
        """Each kind of bad record is seen and named: also what Spark's parser passes over."""
        not_one = "it is not one JSON object of the declared columns"
        assert problems(
            spark, ORDERS, "JSON",
            b'{"id": 1}', None, b"", b"  ", b"null", b"[]", b'[{"id": 1}]', b"7", b"{id: 1",
            b'{"id": 1}{"id": 2}', b'{"id": 1},{"id": 2}', b'{"id": 1} garbage', b'{"id": 1}]}',
            b'{"id": "x"}', b'{"id": 1, "price": "a", "tags": 5}', b'{"id": 99999999999999999999}',
            b'{"price": 1}', b'{"id": 1, "code": "abcd"}', b'{"id": 1, "code": "\xff"}',
            b'{"id": 1, "price": 99999.5}', b'{"id": 1, "inner": {"a": "x"}}',
        ) == [
            None, "it has no value", not_one, not_one, not_one, not_one, not_one, not_one, not_one,
            not_one, not_one, not_one, not_one,
            "its value does not fit id BIGINT",
            "its value does not fit price DECIMAL(6,2), tags ARRAY<STRING>",
            "its value does not fit id BIGINT",
            "it has no id, which is NOT NULL", "its code is longer than VARCHAR(3)",
            "it is not UTF-8",
            "its value does not fit price DECIMAL(6,2)",
            "a value inside of it does not fit the declared type",
        ]  # fmt: skip

    def test_failing(self, spark: SparkSession) -> None:
        """Under ON ERROR FAIL the message says topic, partition and offset, not the value."""
        from catalog_migrate.connectors.secrets import Redactor
        from catalog_migrate.streams.spark import decoding, running

        source = spec(ORDERS, "JSON")
        frame = records(spark, b'{"id": 1}', b'{"id": "private"}')
        rows = decoding.all_or_fail(frame, source)
        with pytest.raises(Exception, match="topic t, partition 1, offset 11: its value") as caught:
            rows.collect()
        failure = running.explain(list(running.python_causes(caught.value)), Redactor(()))
        assert failure.condition == "BAD_RECORD"
        assert "private" not in "".join(failure.causes)


class TestKey:
    def test_key_that_is_no_text(self, spark: SparkSession) -> None:
        """A key shown as STRING must be UTF-8; no key at all is NULL."""
        from catalog_migrate.streams.spark import decoding

        source = spec((Column("line", "STRING"), Column("k", "STRING")), "TEXT", KEY="k")
        rows = [(b"k", b"a", "t", 0, 0, MOMENT), (b"\xff", b"b", "t", 0, 1, MOMENT),
                (None, b"c", "t", 0, 2, MOMENT)]  # fmt: skip
        decoded = decoding.decode(spark.createDataFrame(rows, RECORD), source)
        assert [(r["line"], r["k"]) for r in decoding.readable(decoded, source).collect()] == [
            ("a", "k"), ("c", None),
        ]
        assert [r["error"] for r in decoding.unreadable(decoded).collect()] == [
            "its key is not UTF-8"
        ]


class TestTextAndBytes:
    def test_text(self, spark: SparkSession) -> None:
        """TEXT is the value as UTF-8, and what is not is bad; no value is NULL."""
        column = (Column("line", "STRING"),)
        assert problems(spark, column, "TEXT", b"a b", None, b"\xff\xfe") == [
            None, None, "it is not UTF-8",
        ]

    def test_bytes_and_include(self, spark: SparkSession) -> None:
        """BYTES is the value as it is; INCLUDE shows key and position under the names given."""
        from catalog_migrate.streams.spark import decoding

        columns = (
            Column("raw", "BINARY"), Column("k", "BINARY"), Column("p", "INT"),
            Column("o", "BIGINT"), Column("ts", "TIMESTAMP"),
        )  # fmt: skip
        source = spec(columns, "BYTES", KEY="k", PARTITION="p", OFFSET="o", TIMESTAMP="ts")
        frame = records(spark, b"\x00\xff", None)
        rows = decoding.all_or_fail(frame, source).collect()
        assert [tuple(row)[:4] for row in rows] == [
            (bytearray(b"\x00\xff"), bytearray(b"k0"), 1, 10), (None, bytearray(b"k1"), 1, 11),
        ]
        assert rows[0]["ts"] == rows[0]["_timestamp"]

    def test_not_null(self, spark: SparkSession) -> None:
        """A record without a value is bad where the column is NOT NULL."""
        column = (Column("raw", "BINARY", nullable=False),)
        assert problems(spark, column, "BYTES", b"x", None) == [
            None, "it has no raw, which is NOT NULL",
        ]
