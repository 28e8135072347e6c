"""PostgreSQL's text as values without Spark: calendars, floats, digests, buckets."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog_migrate.connectors.postgres.types import spark_type
from catalog_migrate.connectors.postgres.values import (
    bucket_numbers,
    is_comparable,
    row_digests,
    table_values,
    upstream_values,
)

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


def values(type_: str, *texts: str | None) -> list[Any]:
    return upstream_values(type_, pa.array(texts, pa.string())).to_pylist()


@given(st.datetimes(timezones=st.just(timezone.utc)))
def test_moments(at: datetime) -> None:
    """Every moment of four digits of a year, in each of the three types."""
    text = at.replace(tzinfo=None).isoformat(" ")
    text = text.rstrip("0") if "." in text else text
    micros = (at - _EPOCH) // timedelta(microseconds=1)
    assert values("TIMESTAMP", f"{text}+00", None) == [micros, None]
    assert values("TIMESTAMP_NTZ", text) == [micros]
    assert values("DATE", text[:10]) == [(at - _EPOCH).days]


@pytest.mark.parametrize(
    ("type_", "text", "value"),
    [
        ("DATE", "0001-01-01 BC", -719_528), ("DATE", "0044-03-15 BC", -735_160),
        ("DATE", "4713-01-01 BC", -2_440_550), ("DATE", "12024-01-01", 3_672_148),
        ("DATE", "262142-12-31", 95_026_236), ("DATE", "262143-01-01", 2_932_896),
        ("DATE", "5874897-12-31", 2_932_896),
        ("TIMESTAMP_NTZ", "294247-01-10 04:00:54.775807", (1 << 63) - 1),
        ("TIMESTAMP", "294247-01-10 04:00:54.775808+00", 253_402_300_799_999_999),
        ("TIMESTAMP_NTZ", "294276-12-31 23:59:59.999999", 253_402_300_799_999_999),
        ("DATE", "infinity", 2_932_896), ("DATE", "-infinity", -719_162),
        ("TIMESTAMP", "0044-03-15 12:00:00.5+00 BC", -735_160 * 86_400_000_000 + 43_200_500_000),
        ("TIMESTAMP_NTZ", "infinity", 253_402_300_799_999_999),
        ("TIMESTAMP", "-infinity", -62_135_596_800_000_000),
        ("FLOAT", "0.1", float(np.float32("0.1"))), ("DOUBLE", "1e-310", 1e-310),
        ("DECIMAL(38,10)", "NaN", None), ("DECIMAL(5,2)", "-0.05", Decimal("-0.05")),
        ("BINARY", "\\x00ff", b"\x00\xff"), ("BOOLEAN", "f", False),
        ("BIGINT", "-9223372036854775808", -(1 << 63)), ("VARCHAR(9)", "NaN", "NaN"),
    ],
)
def test_single_values(type_: str, text: str, value: Any) -> None:
    """What four digits of a year do not write, and what our types hold in another way."""
    assert values(type_, text) == [value]


@pytest.mark.parametrize(
    ("type_", "text"), [("INT", "x"), ("DATE", "soon"), ("DECIMAL(5,2)", "1234.5")]
)
def test_a_text_that_is_no_value(type_: str, text: str) -> None:
    """It is an error and never NULL."""
    with pytest.raises(ValueError):
        values(type_, text)


def test_every_type_that_comes_from_upstream_can_be_compared() -> None:
    """Those of all oids of PostgreSQL that have one here."""
    found = {spark_type(oid, (10 << 16 | 2) + 4) for oid in range(1, 6000)} - {None}
    assert len(found) == 12
    assert all(is_comparable(str(each)) for each in found)


def test_digests() -> None:
    """Two rows have one digest if and only if their values are the same: NULL is no empty text, a
    value does not run into the next one, NaN is NaN, and the form that a table has does not
    count."""
    columns = [
        pa.array(["a", "a:1", "", None, "a", None, ""]),
        pa.array(["1:b", "b", None, "", "1:b", "", None]),
        pa.array([float("nan"), 0.0, 1.0, None, -float("nan"), None, 1.0], pa.float64()),
    ]
    found = row_digests(columns).tolist()
    assert found[:4] == [found[4], found[1], found[6], found[5]]
    assert len(set(found)) == 4
    stored = [
        ("TIMESTAMP", pa.array([_EPOCH], pa.timestamp("us", "UTC")), "1970-01-01 00:00:00+00"),
        ("DATE", pa.array([1], pa.date32()), "1970-01-02"), ("INT", pa.array([5], pa.int32()), "5"),
        ("DECIMAL(5,2)", pa.array([Decimal("1.50")], pa.decimal128(5, 2)), "1.5"),
        ("STRING", pa.array(["é"], pa.large_string()), "é"),
        ("BINARY", pa.array([b"\0"], pa.large_binary()), "\\x00"),
        ("FLOAT", pa.array([0.1], pa.float32()), "0.1"), ("BOOLEAN", pa.array([True]), "t"),
    ]
    for type_, column, text in stored:
        assert row_digests([table_values(type_, column)]).tolist() == row_digests(
            [upstream_values(type_, pa.array([text]))]
        ).tolist()


def test_buckets_are_even() -> None:
    """Each of ten buckets has about a tenth of the keys."""
    numbers = bucket_numbers([[str(n) for n in range(10_000)], ["x"] * 10_000], 10)
    assert min(np.bincount(numbers, minlength=10)) > 850
