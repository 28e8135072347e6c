"""Canonical types in JSON and back."""

from __future__ import annotations

import pytest

from catalog_migrate.delta import datatypes
from catalog_migrate.model.objects import Column


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
