"""Which schemas of Avro become which columns, and what a sink registers."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog_migrate.connectors.registry.avro import (
    END_MARK,
    UnfitSchema,
    reading,
    unwritable,
    written_schema,
)
from catalog_migrate.model.objects import Column
from catalog_migrate.streams.upstreams.schemas import json_schema, record_name

DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2}
FIXED = {"type": "fixed", "name": "F", "size": 8}
ENUM = {"type": "enum", "name": "E", "symbols": ["A"]}
DATE = {"type": "int", "logicalType": "date"}
MILLIS = {"type": "long", "logicalType": "timestamp-millis"}
LOCAL = {"type": "long", "logicalType": "local-timestamp-micros"}


def record(*fields: tuple[str, Any]) -> dict[str, Any]:
    return {
        "type": "record", "name": "R", "namespace": "n",
        "fields": [{"name": name, "type": type_} for name, type_ in fields],
    }


def problem(schema: Any, column: str) -> str | None:
    """Why a field of a schema does not fit a column; None when it does."""
    try:
        reading(json.dumps(record(("c", schema))), (), [Column("c", column)])
    except UnfitSchema as error:
        return str(error)
    return None


@pytest.mark.parametrize(
    ("schema", "columns"),
    [
        ("boolean", "BOOLEAN"), ("int", "INT BIGINT DOUBLE DECIMAL(10,0) DECIMAL(12,2)"),
        ("long", "BIGINT DECIMAL(19,0) DECIMAL(38,10)"), ("float", "FLOAT DOUBLE"),
        ("double", "DOUBLE"), ("string", "STRING VARCHAR(5) CHAR(5)"), (ENUM, "STRING"),
        ("bytes", "BINARY"), (FIXED, "BINARY"), (DECIMAL, "DECIMAL(6,2) DECIMAL(10,3)"),
        (DATE, "DATE"), (MILLIS, "TIMESTAMP"), (LOCAL, "TIMESTAMP_NTZ"),
        (["null", "int"], "INT BIGINT DOUBLE"),
        (["string", "null"], "STRING"), ([FIXED], "BINARY"),
        ({"type": "int", "logicalType": "time-millis"}, "INT BIGINT DOUBLE"),
        ({"type": "array", "items": ["null", "int"]}, "ARRAY<BIGINT>"),
        ({"type": "map", "values": "float"}, "MAP<STRING,DOUBLE>"),
        (record(("a", "int"), ("b", "int")), "STRUCT<b:BIGINT,more:STRING>"),
    ],
)  # fmt: skip
def test_what_fits(schema: Any, columns: str) -> None:
    """Each of these columns holds every value of the schema, and no other of the simple ones."""
    fine = columns.split()
    assert [problem(schema, column) for column in fine] == [None] * len(fine)
    simple = ("BOOLEAN", "TINYINT", "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "STRING",
              "BINARY", "DATE", "TIMESTAMP", "TIMESTAMP_NTZ", "DECIMAL(3,1)", "VARIANT",
              "ARRAY<INT>", "MAP<STRING,INT>", "STRUCT<z:INT>")  # fmt: skip
    others = [each for each in simple if each not in fine]
    if isinstance(schema, dict) and schema["type"] in ("array", "map", "record"):
        others = others[:-3]
    for column in others:
        assert problem(schema, column) is not None, column


def test_what_is_said() -> None:
    """The message names the field, what it is, and what it should fit."""
    assert problem(DECIMAL, "DECIMAL(4,2)") == (
        "its field c is decimal(6,2), which does not fit DECIMAL(4,2)")  # fmt: skip
    assert problem(["int", "string"], "INT") == (
        "its field c is a union of several types (int, string), which no column is")  # fmt: skip
    assert problem(record(("a", "string")), "STRUCT<a:INT>") == (
        "its field c.a is string, which does not fit INT")  # fmt: skip
    assert problem("Nobody", "INT") == (
        "its field c is its schema uses Nobody, which it does not hold, which no column is")
    loop = {"type": "record", "name": "L", "fields": [{"name": "next", "type": ["null", "L"]}]}
    assert problem(loop, "STRUCT<next:STRUCT<next:INT>>") == (
        "its field c.next holds itself, which no column does")  # fmt: skip
    nullable = record(("a", ["null", "int"]))
    assert problem(nullable, "STRUCT<a:INT NOT NULL>") == (
        "its field c.a may be null, the column's may not")  # fmt: skip
    with pytest.raises(UnfitSchema, match="its schema is string, no record"):
        reading('"string"', (), [Column("c", "INT")])


def test_names_across_schemas() -> None:
    """What a schema imports, names twice or names by its namespace stands in the one text whole."""
    imported = json.dumps({"type": "fixed", "name": "n.F", "size": 2})
    schema = json.dumps(record(("unused", ENUM), ("a", "F"), ("b", ["null", "n.F"]), ("e", "E")))
    found = reading(schema, [imported], [Column("b", "BINARY"), Column("e", "STRING")])
    assert found.columns.keys() == {"b", "e"}
    reader = json.loads(found.reader)["fields"][0]["type"]
    assert [field["name"] for field in reader["fields"]] == ["b", "e"]
    assert reader["fields"][0]["type"][1] == {
        "type": "fixed", "size": 2, "namespace": "n", "name": "F"
    }
    assert reader["fields"][1]["type"]["symbols"] == ["A"]
    writer = json.loads(found.writer)["fields"][0]["type"]
    assert writer["fields"][2]["type"] == ["null", "n.F"]


def test_the_end_mark_has_no_beginning_that_ends_it() -> None:
    """Else bytes left over could shift it onto itself."""
    mark = bytes.fromhex(END_MARK)
    assert len(mark) == 16
    assert [size for size in range(1, 16) if mark[:size] == mark[-size:]] == []


TYPES = st.sampled_from(
    ["BOOLEAN", "INT", "BIGINT", "FLOAT", "DOUBLE", "STRING", "BINARY", "DATE", "TIMESTAMP",
     "TIMESTAMP_NTZ", "DECIMAL(9,2)", "VARCHAR(3)", "ARRAY<INT>", "MAP<STRING,DATE>",
     "STRUCT<a:STRUCT<a:INT NOT NULL>,b:ARRAY<STRUCT<c:STRING>>>"]
)  # fmt: skip


@given(st.lists(st.tuples(TYPES, st.booleans()), min_size=1, max_size=4))
def test_a_sinks_schema_is_read_back_by_its_columns(types: list[tuple[str, bool]]) -> None:
    """What a sink writes, a source of the same columns reads; fastavro takes the schema too."""
    import fastavro

    columns = [Column(f"c{n}", type_, nullable=null) for n, (type_, null) in enumerate(types)]
    text = written_schema(columns, "shop.Order")
    assert None not in reading(text, (), columns).columns.values()
    fastavro.parse_schema(json.loads(text))
    assert json.loads(json_schema(columns, "o"))["properties"].keys() == {c.name for c in columns}


def test_what_cannot_be_written() -> None:
    """Names and types that Avro has not are named."""
    columns = [Column("a b", "INT"), Column("v", "VARIANT"), Column("m", "MAP<INT,INT>")]
    assert list(unwritable([*columns, Column("fine", "INT")])) == [
        "a b is no name of a field in Avro: letters, digits and _",
        "v is VARIANT, which Avro has no type for",
        "m is MAP<INT, INT>, which Avro has no type for",
    ]
    with pytest.raises(UnfitSchema, match="no name of a record"):
        written_schema(columns, "shop.1st")
    assert [record_name(each) for each in ("p1-in", "shop.orders", "1.x")] == [
        "p1_in", "shop.orders", "_1.x",
    ]
