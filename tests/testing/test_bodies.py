"""Tests of what the simulated engine understands of SQL."""

from __future__ import annotations

import pytest

from catalog_migrate.errors import EngineFailure
from catalog_migrate.model.names import ItemName
from catalog_migrate.model.objects import Column
from catalog_migrate.testing.bodies import analyse, cast_value, compile_expression, read_body

COLUMNS = {
    ItemName("s", "t"): (Column("a", "INT", False), Column("b", "STRING")),
    ItemName("s", "u"): (Column("a", "BIGINT"),),
}


def columns_of(sql: str) -> list[tuple[str, str, bool]]:
    found = analyse(
        read_body(sql), COLUMNS.get, lambda name: "BIGINT" if name == ItemName("s", "f") else None
    )
    return [(column.name, column.type, column.nullable) for column in found]


def test_columns_keep_type_and_nullability() -> None:
    """Plain, quoted and qualified columns yield the parent's type; aliases give the name."""
    assert columns_of("SELECT a, `b` AS x FROM s.t") == [
        ("a", "INT", False), ("x", "STRING", True)
    ]
    assert columns_of("SELECT r.a AS p, u.a AS q FROM s.t r JOIN s.u ON r.a = u.a") == [
        ("p", "INT", False), ("q", "BIGINT", True)
    ]


def test_star_casts_literals_and_functions() -> None:
    """A star expands; a CAST, a literal and a function bring their own types."""
    assert columns_of("SELECT * FROM s.u WHERE a > 1") == [("a", "BIGINT", True)]
    assert columns_of("SELECT CAST(a AS DECIMAL(10,2)) AS d, 'x' AS s, s.f(a) AS y FROM s.t") == [
        ("d", "DECIMAL(10,2)", False), ("s", "STRING", False), ("y", "BIGINT", True)
    ]
    assert columns_of("SELECT 1 AS one") == [("one", "INT", False)]


@pytest.mark.parametrize(
    ("sql", "condition"),
    [
        ("SELECT c FROM s.t", "UNRESOLVED_COLUMN.WITH_SUGGESTION"),
        ("SELECT a FROM s.t, s.u", "AMBIGUOUS_REFERENCE"),
        ("SELECT a FROM s.absent", "TABLE_OR_VIEW_NOT_FOUND"),
        ("SELECT s.g(a) AS y FROM s.t", "UNRESOLVED_ROUTINE"),
        ("DELETE FROM s.t", "PARSE_SYNTAX_ERROR"),
    ],
)
def test_what_does_not_analyse_is_refused(sql: str, condition: str) -> None:
    """A body that Spark would refuse is refused with Spark's error class."""
    with pytest.raises(EngineFailure) as failure:
        columns_of(sql)
    assert failure.value.condition == condition


def test_expressions_copy_cast_and_tokenise() -> None:
    """Columns copy, casts convert, anything else is a token of its text and its columns only."""
    row = {"a": 5, "b": None, "z": 1}
    assert compile_expression("`A`")(row) == 5
    assert compile_expression("CAST(a AS STRING)")(row) == "5"
    assert compile_expression("CAST(NULL AS INT)")(row) is None
    assert compile_expression("-3")(row) == -3
    assert compile_expression("'it''s'")(row) == "it's"
    token = compile_expression("a + 1")(row)
    assert token == compile_expression("a + 1")({"a": 5, "z": 2}) == "<a + 1|a=5>"


def test_ansi_casts_fail_on_the_value() -> None:
    """Out of range and malformed numbers fail as ANSI casts do."""
    with pytest.raises(EngineFailure, match="overflows INT"):
        cast_value(2**31, "INT")
    with pytest.raises(EngineFailure) as failure:
        cast_value("x", "INT")
    assert failure.value.condition == "CAST_INVALID_INPUT"
