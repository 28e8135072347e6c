"""Canonical types in JSON and back."""

from __future__ import annotations

import pytest

from catalog_migrate.delta import datatypes
from catalog_migrate.model.objects import Column
from catalog_migrate.model.types import parse_type


@pytest.mark.parametrize(
    "text",
    ["INT", "BIGINT", "TINYINT", "SMALLINT", "FLOAT", "DOUBLE", "STRING", "BINARY", "BOOLEAN",
     "DATE", "TIMESTAMP", "TIMESTAMP_NTZ", "VARIANT", "DECIMAL(38,6)", "ARRAY<INT>",
     "MAP<STRING, ARRAY<DATE>>", "STRUCT<a: INT NOT NULL, `b c`: STRUCT<d: DECIMAL(3,1)>>",
     "INTERVAL DAY TO SECOND", "INTERVAL YEAR", "VARCHAR(3)", "CHAR(2)",
     "ARRAY<VARCHAR(7)>"],
)
def test_a_stored_column_comes_back_as_it_was(text):
    """Every canonical type survives the way through a stored schema, with its comment."""
    column = Column("x", text, False, comment="c")
    assert datatypes.columns_of(datatypes.json_schema([column], stored=True)) == (column,)


def test_queries_know_no_lengths():
    """CHAR and VARCHAR are strings at any depth."""
    assert datatypes.without_lengths("ARRAY<VARCHAR(7)>") == "ARRAY<STRING>"
    assert datatypes.without_lengths("CHAR(1)") == "STRING"


def test_a_type_is_found_at_any_depth():
    """In an element, a key, a value and any field."""
    for text in ("CHAR(1)", "ARRAY<CHAR(1)>", "MAP<CHAR(1), INT>", "MAP<INT, CHAR(1)>",
                 "STRUCT<a: INT, b: ARRAY<CHAR(1)>>"):
        assert datatypes.holds(parse_type(text), "CHAR", "VARCHAR")
        assert not datatypes.holds(parse_type(text), "VARCHAR")


def test_what_is_inside_may_be_null():
    """An element and a value have no word of their own for it."""
    assert datatypes.json_type("ARRAY<MAP<INT, INT>>") == {
        "type": "array", "containsNull": True, "elementType": {
            "type": "map", "keyType": "integer", "valueType": "integer", "valueContainsNull": True,
        },
    }
