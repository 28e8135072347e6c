"""PostgreSQL's text as values without Spark, and rows as digests that can be compared.

:func:`upstream_values` gives what :func:`~catalog_migrate.connectors.postgres.types.spark_value`
gives in Spark, :func:`table_values` what is in a table of ours, both as Arrow in one form: whole
numbers as 64 bits, dates as days and timestamps as microseconds since 1970. A digest of a row is
xxh3_64 of its values, each behind its length; a sum of digests does not depend on the order of the
rows.

:func:`key_sql` and :func:`key_texts` put a value of a key into one text, there and here, by which
rows fall into the same bucket on both sides.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa


_FIRST_DAY, _LAST_DAY = -719_162, 2_932_896
"""0001-01-01 and 9999-12-31, which infinity becomes."""
_SECOND = 1_000_000
_DAY = 86_400 * _SECOND
_LARGEST_MICROS, _LARGEST_DAY = (1 << 63) - 1, 95_026_236
"""Timestamps and dates behind these (262142-12-31) become what infinity does."""
_PLAIN = r"^\d{4}-\d\d-\d\d( \d\d:\d\d:\d\d(\.\d{1,6})?(\+00)?)?$"
_MOMENT = re.compile(
    r"(\d+)-(\d\d)-(\d\d)(?: (\d\d):(\d\d):(\d\d)(?:\.(\d{1,6}))?(?:\+00)?)?( BC)?\Z"
)


def kind_of(spark: str) -> str:
    """The word of one of our types, without its digits; texts of every kind are STRING."""
    word = spark.partition("(")[0].strip().upper()
    return "STRING" if word in ("VARCHAR", "CHAR") else word


def is_comparable(spark: str) -> bool:
    """Whether values of a type are known here: those that a PostgreSQL column ever becomes."""
    return kind_of(spark) in _READERS


# -- values ----------------------------------------------------------------------------------------


def upstream_values(spark: str, texts: pa.Array) -> pa.Array:
    """The values of a column of type ``spark`` from PostgreSQL's texts; NULL stays NULL.

    Raises ValueError for a text that is no value of the type.
    """
    return _READERS[kind_of(spark)](texts, spark)


def table_values(spark: str, column: pa.Array) -> pa.Array:
    """A column of a table of ours of type ``spark`` in the same form."""
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = kind_of(spark)
    if kind == "DATE":
        return pc.cast(pc.cast(pc.cast(column, pa.date32()), pa.int32()), pa.int64())
    if kind in ("TIMESTAMP", "TIMESTAMP_NTZ"):
        return pc.cast(pc.cast(column, pa.timestamp("us", column.type.tz)), pa.int64())
    if kind == "DECIMAL":
        return pc.cast(column, _decimal_type(spark))
    plain = {
        "BOOLEAN": pa.bool_(), "FLOAT": pa.float32(), "DOUBLE": pa.float64(),
        "BINARY": pa.binary(), "STRING": pa.string(),
    }
    return pc.cast(column, plain.get(kind, pa.int64()))


def _boolean(texts: pa.Array, _: str) -> pa.Array:
    import pyarrow.compute as pc

    return pc.equal(texts, "t")


def _whole(texts: pa.Array, _: str) -> pa.Array:
    import pyarrow as pa
    import pyarrow.compute as pc

    return pc.cast(texts, pa.int64())


def _float(texts: pa.Array, _: str) -> pa.Array:
    import pyarrow as pa
    import pyarrow.compute as pc

    return pc.cast(texts, pa.float32())


def _double(texts: pa.Array, _: str) -> pa.Array:
    import pyarrow as pa
    import pyarrow.compute as pc

    return pc.cast(texts, pa.float64())


def _decimal(texts: pa.Array, spark: str) -> pa.Array:
    import pyarrow.compute as pc

    return pc.cast(pc.if_else(pc.equal(texts, "NaN"), None, texts), _decimal_type(spark))


def _binary(texts: pa.Array, _: str) -> pa.Array:
    import pyarrow as pa

    values = [None if text is None else bytes.fromhex(text[2:]) for text in texts.to_pylist()]
    return pa.array(values, pa.binary())


def _text(texts: pa.Array, _: str) -> pa.Array:
    return texts


def _date(texts: pa.Array, spark: str) -> pa.Array:
    import pyarrow as pa
    import pyarrow.compute as pc

    def plain(values: pa.Array) -> pa.Array:
        return pc.cast(pc.cast(values, pa.date32()), pa.int32())

    def one(text: str) -> int:
        found = _micros(text, spark) // _DAY
        return found if found <= _LARGEST_DAY else _LAST_DAY

    return _moments(texts, plain, one)


def _timestamp(texts: pa.Array, spark: str) -> pa.Array:
    import pyarrow as pa
    import pyarrow.compute as pc

    def plain(values: pa.Array) -> pa.Array:
        without = pc.replace_substring_regex(values, r"\+00$", "")
        return pc.cast(pc.cast(without, pa.timestamp("us")), pa.int64())

    def one(text: str) -> int:
        found = _micros(text, spark)
        return found if found <= _LARGEST_MICROS else _micros("infinity", spark)

    return _moments(texts, plain, one)


def _moments(
    texts: pa.Array, plain: Callable[[pa.Array], pa.Array], one: Callable[[str], int]
) -> pa.Array:
    """Texts of four digits of a year all at once, the few others one by one."""
    import pyarrow as pa
    import pyarrow.compute as pc

    is_plain = pc.match_substring_regex(texts, _PLAIN)
    found = pc.cast(plain(pc.if_else(is_plain, texts, None)), pa.int64())
    if pc.any(pc.invert(is_plain)).as_py():
        others = [
            None if text is None or plain_ else one(text)
            for text, plain_ in zip(texts.to_pylist(), is_plain.to_pylist(), strict=True)
        ]
        found = pc.coalesce(found, pa.array(others, pa.int64()))
    return found


def _micros(text: str, spark: str) -> int:
    """Microseconds since 1970 of a text that PostgreSQL prints, in years counted without a gap."""
    if text == "-infinity":
        return _FIRST_DAY * _DAY
    if text == "infinity":
        return _LAST_DAY * _DAY + (_DAY - 1)
    match = _MOMENT.match(text)
    if match is None:
        raise ValueError(f"no value of {spark}")
    year, month, day, hour, minute, second = (int(each or 0) for each in match.groups()[:6])
    if match[8]:
        year = 1 - year
    micros = int((match[7] or "").ljust(6, "0"))
    seconds = (hour * 60 + minute) * 60 + second
    return _days(year, month, day) * _DAY + seconds * _SECOND + micros


def _days(year: int, month: int, day: int) -> int:
    """Days since 1970 in the Gregorian calendar, also before it was there."""
    shifted = year - (month <= 2)
    era = shifted // 400
    of_era = shifted - era * 400
    of_year = (153 * (month + (-3 if month > 2 else 9)) + 2) // 5 + day - 1
    return era * 146_097 + of_era * 365 + of_era // 4 - of_era // 100 + of_year - 719_468


def _decimal_type(spark: str) -> pa.DataType:
    import pyarrow as pa

    digits = re.findall(r"\d+", spark)
    precision, scale = (int(digits[0]), int(digits[1])) if len(digits) == 2 else (10, 0)
    return pa.decimal128(precision, scale)


_READERS: Mapping[str, Callable[[Any, str], Any]] = {
    "BOOLEAN": _boolean, "SMALLINT": _whole, "INT": _whole, "BIGINT": _whole, "FLOAT": _float,
    "DOUBLE": _double, "DECIMAL": _decimal, "DATE": _date, "TIMESTAMP_NTZ": _timestamp,
    "TIMESTAMP": _timestamp, "BINARY": _binary, "STRING": _text,
}


# -- digests ---------------------------------------------------------------------------------------


def row_digests(columns: Sequence[pa.Array]) -> np.ndarray[Any, Any]:
    """A digest of each row of columns in the form of :func:`upstream_values`, as 64 bits."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc
    from xxhash import xxh3_64_intdigest

    parts: list[pa.Array] = []
    for column in columns:
        value = pc.cast(pc.cast(_bits(column), _texts_of(column)), pa.binary())
        length = pc.cast(pc.cast(pc.binary_length(value), pa.string()), pa.binary())
        parts += [length, value]
    joined = pc.binary_join_element_wise(
        *parts, b":", null_handling="replace", null_replacement=b"\0"
    )
    return np.fromiter(
        map(xxh3_64_intdigest, joined.to_pylist()), dtype=np.uint64, count=len(joined)
    )


def _texts_of(column: pa.Array) -> pa.DataType:
    import pyarrow as pa

    return pa.binary() if pa.types.is_binary(column.type) else pa.string()


def _bits(column: pa.Array) -> pa.Array:
    """A column of floats as the bits of its values, all NaN alike; any other as it is."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    if not pa.types.is_floating(column.type):
        return column
    values = pc.fill_null(column, 0.0).to_numpy(zero_copy_only=False).copy()
    values[np.isnan(values)] = np.nan
    bits = values.view(np.uint32 if column.type == pa.float32() else np.uint64)
    return pc.if_else(pc.is_valid(column), pa.array(bits), None)


# -- buckets ---------------------------------------------------------------------------------------


def key_texts(spark: str, values: pa.Array) -> list[str]:
    """Each value of a column of a key in the text that :func:`key_sql` gives it on the server."""
    kind = kind_of(spark)
    return ["" if value is None else _key_text(kind, value) for value in values.to_pylist()]


def _key_text(kind: str, value: Any) -> str:
    if kind == "BOOLEAN":
        return "t" if value else "f"
    if kind in ("FLOAT", "DOUBLE"):
        import struct

        packed = struct.pack(">f" if kind == "FLOAT" else ">d", value or 0.0)
        return "nan" if value != value else packed.hex()
    if kind == "DECIMAL":
        return format(value, "f")
    if kind == "DATE":
        return str(min(max(value, _FIRST_DAY), _LAST_DAY))
    if kind in ("TIMESTAMP", "TIMESTAMP_NTZ"):
        return str(min(max(value, _FIRST_DAY * _DAY), (_LAST_DAY + 1) * _DAY - 1) // _SECOND)
    return value.hex() if kind == "BINARY" else str(value)


def key_sql(spark: str, column: str) -> str:
    """A value of a key as text in PostgreSQL's SQL; ``column`` is quoted.

    Values that ours have no counterpart for fall together with those that they become.
    """
    kind = kind_of(spark)
    if kind in ("FLOAT", "DOUBLE"):
        size = 4 if kind == "FLOAT" else 8
        plain = f"CASE WHEN {column} = 0 THEN 0 ELSE {column} END::float{size}"
        return (
            f"CASE WHEN {column} = 'NaN' THEN 'nan' ELSE encode(float{size}send({plain}), 'hex')"
            " END"
        )
    if kind == "DECIMAL":
        digits = spark.partition("(")[2].rstrip(")") or "10,0"
        return (
            f"CASE WHEN {column} <> 'NaN' THEN format('%s', CAST({column} AS numeric({digits})))"
            " END"
        )
    if kind == "DATE":
        return (
            f"CASE WHEN {column} IS NOT NULL THEN (least(greatest({column}::date,"
            " date '0001-01-01'), date '9999-12-31') - date '1970-01-01')::text END"
        )
    if kind in ("TIMESTAMP", "TIMESTAMP_NTZ"):
        type_ = "timestamptz" if kind == "TIMESTAMP" else "timestamp"
        within = (
            f"least(greatest({column}::{type_}, {type_} '0001-01-01 00:00:00'),"
            f" {type_} '9999-12-31 23:59:59')"
        )
        return (
            f"CASE WHEN {column} IS NOT NULL THEN"
            f" extract(epoch FROM date_trunc('second', {within}))::bigint::text END"
        )
    # format and not a cast to text, which is another thing for boolean and char(n)
    return f"encode({column}, 'hex')" if kind == "BINARY" else f"format('%s', {column})"


def bucket_sql(keys: Sequence[str], buckets: int, number: int) -> str:
    """The condition of one of so many buckets; ``keys`` are what :func:`key_sql` gives."""
    text = "concat_ws('|', " + ", ".join(f"coalesce({key}, '')" for key in keys) + ")"
    first = f"substring(sha256(convert_to({text}, 'UTF8')) FROM 1 FOR 4)"
    return f"('x' || encode({first}, 'hex'))::bit(32)::bigint % {buckets} = {number}"


def bucket_numbers(keys: Sequence[Sequence[str]], buckets: int) -> np.ndarray[Any, Any]:
    """The bucket of each row by the texts of its key, a sequence for each column."""
    import numpy as np

    found = (
        int.from_bytes(hashlib.sha256("|".join(row).encode()).digest()[:4], "big") % buckets
        for row in zip(*keys, strict=True)
    )
    return np.fromiter(found, dtype=np.int64, count=len(keys[0]))
