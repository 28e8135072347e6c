"""DECODING 'exact' on real Spark: a table of JSON texts, and what each becomes in a column."""

from __future__ import annotations

from datetime import date, datetime, timezone
from decimal import Decimal
from pathlib import Path
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
RECORD = "key BINARY, value BINARY, topic STRING, partition INT, offset BIGINT, timestamp TIMESTAMP"
TYPES = {
    "y": "TINYINT", "h": "SMALLINT", "i": "INT", "l": "BIGINT", "d": "DECIMAL(10,2)",
    "w": "DECIMAL(38,18)", "f": "FLOAT", "g": "DOUBLE", "s": "STRING", "b": "BOOLEAN",
    "x": "BINARY", "t": "TIMESTAMP", "n": "TIMESTAMP_NTZ", "a": "DATE", "m": "MAP<STRING, INT>",
    "q": "ARRAY<DECIMAL(4,1)>", "r": "STRUCT<d: DECIMAL(4,1), t: TIMESTAMP, u: TINYINT>",
    "z": "MAP<STRING, STRUCT<t: TIMESTAMP>>", "k": "ARRAY<STRUCT<v: ARRAY<DOUBLE>>>",
    "c": "ARRAY<VARCHAR(2)>", "v": "VARCHAR(9)", "o": "STRUCT<p: INT NOT NULL>",
}  # fmt: skip
NOT_ONE = "it is not one JSON object of the declared columns"
TWICE = "it has a name twice in one object"
PAIRS = "it has half of a surrogate pair"
SECONDS = "is a number of seconds outside of the years 1900 to 2200 (TIMESTAMP UNIT says what it" \
          " counts)"


def utc(*parts: int) -> datetime:
    """A moment as PySpark gives it: in the zone of this process, without saying so."""
    moment = datetime(*parts, tzinfo=timezone.utc)  # type: ignore[misc, arg-type]
    return moment.astimezone().replace(tzinfo=None)


class Bad(str):
    """What is wrong with a record."""

    __slots__ = ()


def fits(name: str) -> Bad:
    return Bad(f"its value does not fit {name} {TYPES[name]}")


def exactly(name: str, type_: str = "") -> Bad:
    return Bad(f"its {name} is no value that {type_ or TYPES[name]} holds exactly")


CASES: tuple[tuple[str, str, Any], ...] = (
    ("y", "127", 127), ("y", "-128", -128), ("y", "128", exactly("y")), ("y", "200", exactly("y")),
    ("y", "255", exactly("y")), ("y", "256", fits("y")), ("y", "1.5", fits("y")),
    ("h", "32768", fits("h")), ("i", "2147483647", 2147483647), ("i", "2147483648", fits("i")),
    ("i", "1.5", fits("i")), ("i", "1e2", fits("i")), ("i", '"5"', fits("i")),
    ("i", "true", fits("i")), ("i", "[5]", fits("i")), ("i", '{"a": 5}', fits("i")),
    ("l", "9223372036854775807", 9223372036854775807), ("l", "9223372036854775808", fits("l")),
    ("l", "1.0", fits("l")), ("l", "null", None),
    ("d", "12.34", Decimal("12.34")), ("d", '"12.34"', Decimal("12.34")),
    ("d", "12.340", Decimal("12.34")), ("d", '"12.3400"', Decimal("12.34")),
    ("d", "5", Decimal("5.00")), ("d", "-0.01", Decimal("-0.01")), ("d", "0", Decimal("0.00")),
    ("d", "1.5e1", Decimal("15.00")), ("d", "1E+3", Decimal("1000.00")),
    ("d", '"12.345"', exactly("d")), ("d", "0.005", exactly("d")), ("d", "5e-3", exactly("d")),
    ("d", "1e-10", exactly("d")), ("d", "12.3400000000000000000000000000001", exactly("d")),
    ("d", '"12,5"', exactly("d")), ("d", '"1,234.50"', exactly("d")), ("d", '"x"', fits("d")),
    ("d", "99999999.99", Decimal("99999999.99")), ("d", "100000000", fits("d")),
    ("d", "99999999.995", fits("d")), ("d", '"NaN"', fits("d")), ("d", "true", fits("d")),
    ("d", '""', fits("d")), ("d", '" 12.3"', fits("d")),
    ("w", "0.000000000000000001", Decimal("1E-18")),
    ("w", "12345678901234567890.123456789012345678",
     Decimal("12345678901234567890.123456789012345678")),
    ("w", "0.0000000000000000001", exactly("w")),
    ("w", "1.0000000000000000001", exactly("w")), ("w", "1.00000000000000000010", exactly("w")),
    ("f", "1.5", 1.5), ("f", "1e39", exactly("f")), ("f", "-1e39", exactly("f")),
    ("f", "3.4e38", pytest.approx(3.4e38)),
    ("g", "0.1", 0.1), ("g", "1e308", 1e308), ("g", "7", 7.0), ("g", "1e999", exactly("g")),
    ("g", "-1e999", exactly("g")), ("g", '"NaN"', fits("g")), ("g", '"Infinity"', fits("g")),
    ("g", "NaN", Bad(NOT_ONE)), ("g", "Infinity", Bad(NOT_ONE)), ("g", '"1.5"', fits("g")),
    ("s", '"a"', "a"), ("s", '"\\u00e4\\ud83d\\ude00"', "ä😀"), ("s", '"\\\\ud800"', "\\ud800"),
    ("s", '"\\ud800"', Bad(PAIRS)), ("s", '"\\udc00\\ud800"', Bad(PAIRS)),
    ("s", '"\\ud83d\\\\\\ude00"', Bad(PAIRS)), ("s", '"\\\\\\ud800"', Bad(PAIRS)),
    ("s", '"\\u0000"', "\0"), ("s", "5", "5"), ("s", '{"a":[1,2]}', '{"a":[1,2]}'),
    ("s", "1.10", "1.1"), ("s", "0.1", "0.1"),
    ("s", "12345678901234567890", "12345678901234567890"),
    ("s", "12345678901234567890.12345", "12345678901234567890.12345"), ("s", "1e999", exactly("s")),
    ("s", '"1.2345678901234567890123"', "1.2345678901234567890123"),
    ("s", '{"b": 1.5, "a": "x 1.5 Infinity"}', '{"a":"x 1.5 Infinity","b":1.5}'),
    ("s", '{"b": [1e999]}', exactly("s")),
    ("s", '{"b": 1.5, "a": 0.0001}', '{"a":0.0001,"b":1.5}'), ("s", '"Infinity"', "Infinity"),
    ("s", '{"b": 2, "a": "x"}', '{"b":2,"a":"x"}'),
    ("s", '[12345678901234567890.1]', "[12345678901234567890.1]"),
    ("s", '{"a": 1e2}', '{"a":100.0}'),
    ("b", "true", True), ("b", '"true"', fits("b")), ("b", "1", fits("b")),
    ("x", '"AAE="', bytearray(b"\0\1")), ("x", '"?"', fits("x")),
    ("t", "1700000000", utc(2023, 11, 14, 22, 13, 20)), ("t", "0", utc(1970, 1, 1)),
    ("t", "-2208988800", utc(1900, 1, 1)), ("t", "-2208988801", Bad(f"its t {SECONDS}")),
    ("t", "7289654399", utc(2200, 12, 31, 23, 59, 59)),
    ("t", "7289654400", Bad(f"its t {SECONDS}")),
    ("t", "1700000000000", Bad(f"its t {SECONDS}")),
    ("t", "1700000000000000", Bad(f"its t {SECONDS}")),
    ("t", "1700000000000000000", Bad(f"its t {SECONDS}")),
    ("t", "99999999999999999999", fits("t")), ("t", "1.5", fits("t")), ("t", "1e3", fits("t")),
    ("t", '"1700000000"', fits("t")), ("t", '"12:30"', exactly("t")), ("t", '"T12:30:00"',
     exactly("t")),
    ("t", '"2026-01-02T03:04:05.123456Z"', utc(2026, 1, 2, 3, 4, 5, 123456)),
    ("t", '"2026-01-02T03:04:05.123456000Z"', utc(2026, 1, 2, 3, 4, 5, 123456)),
    ("t", '"2026-01-02T03:04:05.123456789Z"', exactly("t")),
    ("t", '"2026-01-02 03:04:05.5+02:00"', utc(2026, 1, 2, 1, 4, 5, 500000)),
    ("t", '"2026-01-02T03:04Z"', fits("t")), ("t", '"2026-01-02"', utc(2026, 1, 2)),
    ("t", '"2026"', exactly("t")), ("t", '"2026-02"', exactly("t")), ("t", '"x"', fits("t")),
    ("t", '"2026-02-30"', fits("t")), ("t", '"+55840-01-01"', exactly("t")),
    ("t", '"epoch"', fits("t")), ("t", '"now"', fits("t")),
    ("n", '"2026-01-02T03:04:05"', datetime(2026, 1, 2, 3, 4, 5)),
    ("n", '"2026-01-02T03:04:05Z"', fits("n")), ("n", "1700000000", fits("n")),
    ("n", '"2026-01-02T03:04:05.1234567"', exactly("n")), ("n", '"2026"', exactly("n")),
    ("a", '"2026-01-02"', date(2026, 1, 2)), ("a", "19000", fits("a")),
    ("a", '"19000"', exactly("a")), ("a", '"2026"', exactly("a")),
    ("a", '"2026-01-02T12:30:00"', exactly("a")), ("a", '"2026-01-02T00:00:00Z"',
     date(2026, 1, 2)),
    ("m", '{"a": 1, "b": 2}', {"a": 1, "b": 2}), ("m", '{"a": 1, "a": 2}', Bad(TWICE)),
    ("m", '{"a": 1, "\\u0061": 2}', Bad(TWICE)), ("m", "[]", fits("m")), ("m", "{}", {}),
    ("m", '{"a": 1.5}', fits("m")),
    ("q", "[1.5, 2]", [Decimal("1.5"), Decimal("2.0")]),
    ("q", "[1.5, 2.25]", exactly("q", "DECIMAL(4,1)")), ("q", "[]", []),
    ("q", "[null, 2.25]", exactly("q", "DECIMAL(4,1)")), ("q", "1.5", fits("q")),
    ("r", '{"d": 1.5, "t": 1700000000}', (Decimal("1.5"), utc(2023, 11, 14, 22, 13, 20), None)),
    ("r", '{"d": 1.25}', exactly("r", "DECIMAL(4,1)")), ("r", '{"u": 200}',
     exactly("r", "TINYINT")),
    ("r", '{"t": 1700000000000}', Bad(f"its r {SECONDS}")), ("r", '{"d": 1, "d": 2}', Bad(TWICE)),
    ("r", "[]", fits("r")),
    ("z", '{"a": {"t": 1700000000000}}', Bad(f"its z {SECONDS}")),
    ("z", '{"a": {"t": "2026-01-02T00:00:00Z"}, "b": null}', {"a": (utc(2026, 1, 2),), "b": None}),
    ("k", '[{"v": [1.0, 1e999]}]', exactly("k", "DOUBLE")), ("k", '[{"v": [1.0]}]', [([1.0],)]),
    ("c", '["ab"]', ["ab"]), ("c", '["ab", "abc"]', Bad("its c is longer than VARCHAR(2)")),
    ("v", "1.5", "1.5"), ("v", "1.123456789", Bad("its v is longer than VARCHAR(9)")),
    ("o", '{"p": 1}', (1,)), ("o", "{}", Bad("its o lacks p, which is NOT NULL")),
    ("o", "null", None),
)  # fmt: skip
WHOLE: tuple[tuple[str, Any], ...] = (
    ("{'id': 25}", Bad(NOT_ONE)), ('{"id": 1, "id": 2}', Bad(TWICE)),
    ('{"id": 1, "more": {"a": 1, "a": 2}}', Bad(TWICE)), ('{"id": 1, "more": "\\ud800"}',
     Bad(PAIRS)),
    ('{"id": 1}],"rows":[{"id": 2}', Bad(TWICE)), ('{"id": 1}', None), ('{"id": 01}',
     Bad(NOT_ONE)),
    ('{"id": 1, "more": 1e999}', None), ('{"id": 1} // x', Bad(NOT_ONE)),
)  # fmt: skip


def spec(columns: dict[str, str], **options: str) -> QuerySpec:
    """A Kafka source of those columns."""
    return QuerySpec(
        item_id="u1", name=ItemName("default", "s"), kind="source",
        external=External(
            connector="KAFKA", format="JSON",
            options={name.replace("_", " "): value for name, value in options.items()},
        ),
        columns=(
            Column("id", "BIGINT", nullable=False),
            *(Column(name, type_) for name, type_ in columns.items()), *POSITION,
        ),
        connection={}, shard="", checkpoint="",
    )  # fmt: skip


def decoded(spark: SparkSession, source: QuerySpec, values: list[str]) -> list[Any]:
    """By record what is wrong with it, else its row."""
    from catalog_migrate.streams.spark import decoding
    from catalog_migrate.streams.spark.sources import query_session

    frame = query_session(spark).createDataFrame(
        [(None, value.encode(), "t", 0, at, utc(2026, 1, 1)) for at, value in enumerate(values)],
        RECORD,
    )
    found = decoding.decode(frame, source).selectExpr(
        "offset", f"{decoding.PROBLEM} AS problem",
        f"CASE WHEN {decoding.PROBLEM} IS NULL THEN {decoding.ROW} END AS row",
    )
    by_offset = {each["offset"]: each for each in found.collect()}
    return [
        Bad(by_offset[at]["problem"]) if by_offset[at]["problem"] is not None
        else by_offset[at]["row"]
        for at in range(len(values))
    ]


def plain(value: Any) -> Any:
    """Rows as tuples."""
    if isinstance(value, dict):
        return {key: plain(each) for key, each in value.items()}
    if isinstance(value, tuple):
        return tuple(map(plain, value))
    if isinstance(value, list):
        return [plain(each) for each in value]
    return value


@pytest.fixture(scope="module")
def exact(spark: SparkSession) -> list[Any]:
    """What every case of the table comes to, in one job."""
    texts = [f'{{"id": 1, "{name}": {text}}}' for name, text, _ in CASES]
    texts += [text for text, _ in WHOLE]
    return decoded(spark, spec(TYPES, DECODING="exact"), texts)


def test_table(exact: list[Any]) -> None:
    """Each text is the value that it says, or bad; the reason names column, type and fault."""
    wrong = []
    for (name, text, expected), found in zip(CASES, exact, strict=False):
        value = found if isinstance(found, Bad) else plain(found[name])
        if value != expected or isinstance(value, Bad) != isinstance(expected, Bad):
            wrong.append((name, text, expected, value))
    for (text, expected), found in zip(WHOLE, exact[len(CASES):], strict=True):
        value = found if isinstance(found, Bad) else None
        if value != expected:
            wrong.append(("", text, expected, found))
    assert wrong == [], "\n".join(map(str, wrong))


def test_units(spark: SparkSession) -> None:
    """TIMESTAMP UNIT says what a number counts, at any depth; texts mean what they say."""
    columns = {
        "t": "TIMESTAMP", "r": "STRUCT<t: TIMESTAMP, d: DECIMAL(4,1)>", "q": "ARRAY<TIMESTAMP>",
        "z": "MAP<STRING, ARRAY<STRUCT<t: TIMESTAMP>>>", "n": "INT",
    }  # fmt: skip
    moment = utc(2023, 11, 14, 22, 13, 20)
    last = {"milliseconds": 253402300799999, "microseconds": 253402300799999999}
    for unit, number in (("milliseconds", 1700000000000), ("microseconds", 1700000000000000)):
        values = [
            f'{{"id": 1, "t": {number}}}',
            f'{{"id": 1, "r": {{"t": {number}, "d": 1.5}}, "q": [null, {number}], "n": 5,'
            f' "z": {{"a": [{{"t": {number}}}, null], "b": null}}}}',
            '{"id": 1, "t": "2026-01-02T00:00:00Z", "q": ["2026-01-02"]}',
            f'{{"id": 1, "t": {last[unit]}}}', f'{{"id": 1, "t": {last[unit] + 1}}}',
            f'{{"id": 1, "q": [{last[unit] + 1}]}}', '{"id": 1, "t": 9223372036854775807}',
        ]
        rows = decoded(spark, spec(columns, DECODING="exact", TIMESTAMP_UNIT=unit), values)
        assert plain(rows[0]["t"]) == moment
        assert plain(rows[1]["r"]) == (moment, Decimal("1.5"))
        assert plain(rows[1]["q"]) == [None, moment]
        assert plain(rows[1]["z"]) == {"a": [(moment,), None], "b": None}
        assert rows[1]["n"] == 5
        assert plain(rows[2]["t"]) == utc(2026, 1, 2)
        assert rows[3]["t"].year in (9999, 10000)  # in the zone of this process
        beyond = f"is a number of {unit} outside of the years 1 to 9999"
        assert rows[4:] == [Bad(f"its t {beyond}"), Bad(f"its q {beyond}"), Bad(f"its t {beyond}")]



FILE_COLUMNS = {
    "d": "DECIMAL(10,2)", "g": "DOUBLE", "t": "TIMESTAMP", "n": "TIMESTAMP_NTZ", "a": "DATE",
    "s": "STRING", "y": "TINYINT",
}  # fmt: skip
CSV: tuple[tuple[str, str, Any], ...] = (
    ("d", "12.34", Decimal("12.34")), ("d", "12.340", Decimal("12.34")), ("d", "", None),
    ("d", "12.345", exactly("d")), ("d", '"1,234.5"', exactly("d")), ("d", "x", exactly("d")),
    ("d", "100000000", exactly("d")), ("d", "1e2", Decimal("100.00")), ("d", "1e-3", exactly("d")),
    ("g", "1.5", 1.5), ("g", "1e999", exactly("g")), ("g", "NaN", exactly("g")),
    ("t", "2026-01-02T03:04:05.5Z", utc(2026, 1, 2, 3, 4, 5, 500000)), ("t", "12:30", exactly("t")),
    ("t", "1700000000", exactly("t")), ("t", "2026-01-02 03:04:05.1234567", exactly("t")),
    ("t", "2026-02-30", exactly("t")), ("n", "2026-01-02 03:04:05", datetime(2026, 1, 2, 3, 4, 5)),
    ("n", "2026", exactly("n")), ("a", "2026-01-02", date(2026, 1, 2)), ("a", "2026", exactly("a")),
    ("a", "2026-01-02T12:30:00", exactly("a")), ("s", "12.345", "12.345"), ("y", "127", 127),
)  # fmt: skip
LINES: tuple[tuple[str, Any], ...] = (
    ('{"id": 1, "d": 12.34}', Decimal("12.34")), ('{"id": 2, "d": 12.345}', exactly("d")),
    ('{"id": 3, "id": 4}', Bad(TWICE)), ("[]", Bad(NOT_ONE)), ('{"d": 1}',
     Bad("it has no id, which is NOT NULL")), ('{"id": 5, "t": 1700000000000}',
     Bad(f"its t {SECONDS}")),
)  # fmt: skip


def test_files(spark: SparkSession, tmp_path: Path) -> None:
    """Lines of JSON and CSV in files are compared with what was written as records are."""
    from catalog_migrate.connectors.query import ddl
    from catalog_migrate.streams.formats.exact_values import Exact
    from catalog_migrate.streams.spark import decoding, file_lines
    from catalog_migrate.streams.spark.sources import query_session

    session = query_session(spark)
    columns = (
        Column("id", "BIGINT", nullable=False),
        *(Column(name, type_) for name, type_ in FILE_COLUMNS.items()),
    )
    source = QuerySpec(
        item_id="u1", name=ItemName("default", "s"), kind="source",
        external=External(connector="FILES"), columns=columns, connection={}, shard="",
        checkpoint="",
    )  # fmt: skip
    outcome = (
        f"{decoding.PROBLEM} AS problem",
        f"CASE WHEN {decoding.PROBLEM} IS NULL THEN {decoding.ROW} END AS row",
    )
    names = list(FILE_COLUMNS)
    (tmp_path / "a.csv").write_text("\n".join(
        ",".join([str(at), *(text if each == name else "" for each in names)])
        for at, (name, text, _) in enumerate(CSV)
    ))
    read = ", ".join(ddl(each) for each in file_lines.csv_columns(columns, Exact()))
    rows = session.read.schema(read).option("mode", "FAILFAST").csv(str(tmp_path / "a.csv"))
    found = file_lines.decode_csv(rows, source, Exact()).selectExpr(*outcome).collect()
    assert [
        Bad(row["problem"]) if row["problem"] is not None else row["row"][name]
        for row, (name, _, _) in zip(found, CSV, strict=True)
    ] == [expected for _, _, expected in CSV]

    (tmp_path / "a.json").write_text("\n\n".join(text for text, _ in LINES) + "\n  \n")
    lines = session.read.text(str(tmp_path / "a.json"))
    decoded = file_lines.decode_lines(lines, source, Exact(), {}).selectExpr(*outcome)
    assert [
        Bad(row["problem"]) if row["problem"] is not None else row["row"]["d"]
        for row in decoded.collect()
    ] == [expected for _, expected in LINES]
    with pytest.raises(Exception, match=r"cannot read the record at file .*a\.json: its d is no"):
        file_lines.json_lines(lines, source, Exact(), {}).collect()


def test_values_of_other_formats(spark: SparkSession) -> None:
    """What a format with types of its own can give and no column should hold, at any depth."""
    from catalog_migrate.streams.formats import exact_values
    from catalog_migrate.streams.spark.sources import query_session

    columns = (
        Column("m", "MAP<STRING, INT>"), Column("t", "TIMESTAMP"),
        Column("a", "ARRAY<STRUCT<d: DATE, m: MAP<STRING, STRING>>>"), Column("i", "INT"),
    )
    map_twice = """from_json('{"a": 1, "a": 2}', 'MAP<STRING, INT>')"""
    texts_twice = """from_json('{"a": "x", "a": "y"}', 'MAP<STRING, STRING>')"""
    good = {
        "m": "map('a', 1)", "t": "TIMESTAMP '2026-01-02 00:00:00'", "i": "1",
        "a": "array(named_struct('d', DATE '2026-01-02', 'm', map('a', 'b')), NULL)",
    }
    cases: tuple[tuple[dict[str, str], str | None], ...] = (
        ({}, None), ({"m": "NULL", "t": "NULL", "a": "NULL"}, None),
        ({"m": map_twice}, "its m has a key twice"),
        ({"t": "timestamp_millis(1700000000000000)"}, "its t lies outside of the years 1 to 9999"),
        ({"a": "array(named_struct('d', date_from_unix_date(9999999), 'm', map('a', 'b')))"},
         "its a lies outside of the years 1 to 9999"),
        ({"a": f"array(NULL, named_struct('d', DATE '2026-01-02', 'm', {texts_twice}))"},
         "its a has a key twice"),
        ({"a": "array(named_struct('d', DATE '2026-01-02', 'm', map('a', CAST(X'ff' AS STRING))))"},
         "its a has a text that is not UTF-8"),
    )
    rows = " UNION ALL ".join(
        f"SELECT {at} AS at, named_struct("
        + ", ".join(f"'{name}', {({**good, **case})[name]}" for name in ("m", "t", "a", "i"))
        + ") AS row"
        for at, (case, _) in enumerate(cases)
    )
    rules = ", ".join(exact_values.misfits_of_values(columns, "row"))
    found = query_session(spark).sql(
        f"SELECT at, coalesce({rules}) AS problem FROM ({rows}) ORDER BY at"
    )
    assert [row["problem"] for row in found.collect()] == [expected for _, expected in cases]
