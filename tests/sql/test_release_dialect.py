"""CREATE statements: what they declare, the way back, and what an error says."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from catalog_migrate.model.objects import Argument, Check, Column, ObjectDefinition
from catalog_migrate.sql.release_dialect import parse, with_column_lists
from tests.sql.printer import print_definition

CORPUS = [
    ObjectDefinition("shop", "type", "money", definition="DECIMAL(18,2)", comment="it's"),
    ObjectDefinition("s", "type", "p", definition="STRUCT<a: INT NOT NULL COMMENT 'x', b: BIGINT>",
                     renamed_from="s.q"),
    ObjectDefinition(
        "shop", "table", "orders",
        columns=(
            Column("id", "BIGINT", nullable=False, comment="key"),
            Column("total", "shop.money"),
            Column("note", "STRING", renamed_from=("remark", "memo")),
            Column("qty", "BIGINT", using="CAST(qty AS BIGINT)", renamed_from="odd name"),
            Column("state", "STRING", nullable=False, default="coalesce(old, 'a,b)')"),
            Column("flag", "BOOLEAN", using="a IS NOT NULL", default="NULL"),
            Column("tags", "MAP<STRING, ARRAY<STRUCT<k: DECIMAL(3,1)>>>"),
            Column("day", "DATE", generated="CAST(at AS DATE)"),
            Column("check", "INT"),
        ),
        contents="derived", renamed_from=("shop.old", "`a b`.older"), was="view",
        dropped=("legacy_flag", "x y"), comment="a\nb", properties={"delta.x": "1", "o": "it's"},
        partitioned_by=("day",), clustered_by=("id", "qty"),
        checks=(Check("check_1", "qty > 0"), Check("named one", "(total) > (0)")),
    ),
    ObjectDefinition(
        "shop", "view", "big",
        columns=(Column("id", "BIGINT", nullable=False), Column("total", "DECIMAL(18,2)",
                                                                comment="x")),
        sql="WITH q AS (SELECT 1)\nSELECT id, total FROM shop.orders WHERE note <> ';'",
        comment="c", properties={"k": "v"}, was="table", renamed_from="shop.large",
    ),
    ObjectDefinition("s", "view", "no list", sql="SELECT * FROM s.t"),
    ObjectDefinition(
        "shop", "function", "vat",
        arguments=(Argument("x", "shop.money"), Argument("rate", "DOUBLE", default="0.2")),
        returns="shop.money", body="x * rate", comment="tax",
    ),
    ObjectDefinition(
        "shop", "function", "rows", returns=(Column("a", "INT"), Column("b", "ARRAY<STRING>")),
        body="SELECT 1, array('x')",
    ),
]


@pytest.mark.parametrize("definition", CORPUS, ids=lambda definition: str(definition.key))
def test_print_and_parse_round_trip(definition: ObjectDefinition) -> None:
    """Parsing the printed statement gives the very definition back."""
    parsed = parse(print_definition(definition))
    assert parsed.problems == ()
    assert [statement.definition for statement in parsed.statements] == [definition]


def test_statement_of_the_design() -> None:
    """The example table of the design is read with all its decisions."""
    parsed = parse(
        "CREATE TABLE orders (id BIGINT NOT NULL COMMENT 'key', note STRING RENAMED FROM (remark,"
        " memo),\n qty BIGINT USING CAST(qty AS BIGINT), CHECK (qty > 0))\n"
        "DROPPED (legacy_flag) PARTITIONED BY (day) COMMENT '...' WITH (contents = 'retained');",
        default_schema="shop",
    )
    assert parsed.problems == ()
    statement = parsed.statements[0]
    assert statement.definition == ObjectDefinition(
        "shop", "table", "orders",
        columns=(
            Column("id", "BIGINT", nullable=False, comment="key"),
            Column("note", "STRING", renamed_from=("remark", "memo")),
            Column("qty", "BIGINT", using="CAST(qty AS BIGINT)"),
        ),
        contents="retained", dropped=("legacy_flag",), comment="...", partitioned_by=("day",),
        checks=(Check("check_1", "qty > 0"),),
    )
    assert (statement.line, statement.column, statement.columns["qty"]) == (1, 14, (2, 2))


def test_unnamed_checks_get_free_names() -> None:
    """Derived names of CHECKs skip those that are given."""
    parsed = parse("CREATE TABLE s.t (a INT, CHECK (a > 0), CONSTRAINT check_2 CHECK (a > 1), "
                   "CHECK (a > 2))")
    checks = parsed.statements[0].definition.checks
    assert [check.name for check in checks] == ["check_1", "check_2", "check_3"]


@pytest.mark.parametrize(
    ("sql", "line", "column", "message", "remedy"),
    [
        ("DROP TABLE s.t", 1, 1, "expected CREATE, found 'DROP'",
         "a release holds CREATE TYPE, TABLE, VIEW and FUNCTION only, and DROPPED TABLE"),
        ("CREATE TABEL s.t (a INT)", 1, 8, "expected TABLE, VIEW, FUNCTION or TYPE, found 'TABEL'",
         "write CREATE TABLE"),
        ("CREATE OR REPLACE VIEW s.v AS SELECT 1", 1, 8, "OR REPLACE has no meaning here",
         "write CREATE: a release says what is, the plan finds out what changes"),
        ("CREATE TABLE t (a INT)", 1, 14, "t has no schema",
         "write schema.t, or set default_schema in release.toml"),
        ("CREATE TABLE a.b.c (a INT)", 1, 17, "expected a name of two parts, found '.'",
         "write schema.name, without a catalog"),
        ("CREATE TABLE s.t (a INT", 1, 24,
         "expected `,`, `)` or an option of the column, found the end of the statement",
         "known here: NOT NULL, USING, DEFAULT, RENAMED FROM, COMMENT, GENERATED ALWAYS AS"),
        ("CREATE TABLE s.t (\n  a,\n b INT)", 2, 4, "expected the type of column a, found ','",
         None),
        ("CREATE TABLE s.t (a INT) PARTITION BY (a)", 1, 26,
         "expected a clause of CREATE TABLE, found 'PARTITION'", "write PARTITIONED BY"),
        ("CREATE TABLE s.t (a INT) USING delta", 1, 26,
         "expected a clause of CREATE TABLE, found 'USING'",
         "leave it out: every table is a Delta table"),
        ("CREATE TABLE s.t (a INT) COMMENT 'a' COMMENT 'b'", 1, 38, "COMMENT stands here twice",
         None),
        ("CREATE TABLE s.t (a INT) WITH (contents = 'kept')", 1, 32,
         "contents = 'kept' has no meaning for a table",
         "a table has contents = 'retained' or 'derived'"),
        ("CREATE VIEW s.v (a, b) AS SELECT 1, 2", 1, 19, "expected the type of column a, found ','",
         "write the types too, or leave the whole list to `release compile`"),
        ("CREATE VIEW s.v AS SELECT 'x", 1, 27, "a string that never ends", "close it"),
        ("CREATE TABLE s.t (a INT) COMMENT 'x;", 1, 34, "a string that never ends", "close it"),
        ("CREATE VIEW s.v AS", 1, 19, "expected a query, found the end of the statement", None),
    ],
)
def test_syntax_errors(
    sql: str, line: int, column: int, message: str, remedy: str | None
) -> None:
    """An error says where, what was expected, what stands there and what to write instead."""
    problem, = parse(sql, file="a.sql").problems
    assert (problem.file, problem.line, problem.column) == ("a.sql", line, column)
    assert (problem.message, problem.remedy) == (message, remedy)


def test_errors_recover_at_the_next_statement() -> None:
    """Every statement is read, also behind one with an error."""
    parsed = parse("CREATE TABLE s.t (a INT; CREATE VEW s.v AS SELECT 1; CREATE TYPE s.m AS INT;")
    assert [problem.line for problem in parsed.problems] == [1, 1]
    assert [str(one.definition.key) for one in parsed.statements] == ["type:s.m"]


@pytest.mark.parametrize("begin", ["CREATE OR REPLACE SECRET", "ALTER SECRET", "DROP SECRET"])
def test_an_error_of_a_secret_shows_nothing_behind_that_word(begin: str) -> None:
    """What follows may be its value, quoted or not."""
    for value in ("'hunter2'", "hunter2"):
        problem, = parse(f"{begin} s AS {value};").problems
        assert problem.text == begin
        assert "hunter2" not in f"{problem.message} {problem.remedy}"


LISTED = (Column("a", "INT"), Column("count(1)", "STRUCT<`x y`: INT>", nullable=False))
LIST = " (a INT, `count(1)` STRUCT<`x y`: INT> NOT NULL)"


@pytest.mark.parametrize(
    "text",
    [
        "CREATE VIEW s.v@ AS SELECT 1;\n",
        "CREATE VIEW s.v@ -- (why)\n  AS SELECT 1",
        "CREATE VIEW /* s.x */ s.v@/* ( */AS SELECT 1;",
        "create view `s`.`v w`@AS SELECT 1;",
        "CREATE VIEW s . v@\r\nCOMMENT 'x; CREATE VIEW s.x AS'\r\n  AS SELECT 1;\r\n",
        "CREATE VIEW v@\n  RENAMED FROM s.u WITH (k = '1')\nAS (SELECT 1)",
        "-- s.é𝒱\nCREATE TABLE s.t (a INT);\nCREATE VIEW s.é@ AS SELECT 1;CREATE VIEW s.w@ AS"
        " SELECT a FROM s.t;\n\n\tCREATE VIEW s.x (a INT) AS SELECT 1;\n-- end",
    ],
)
def test_column_lists_are_written_behind_the_names_of_views(text: str) -> None:
    """They stand at each @, everything else is as it was, and what is written reads as given."""
    bare = text.replace("@", "")
    places = {(one.line, one.column): LISTED for one in parse(bare, default_schema="s").statements}
    written = with_column_lists(bare, places)
    assert written == text.replace("@", LIST)
    assert with_column_lists(written, places) == written
    before, after = parse(bare, default_schema="s"), parse(written, default_schema="s")
    assert (before.problems, after.problems) == ((), ())
    for old, new in zip(before.statements, after.statements, strict=True):
        lacks = old.definition.kind == "view" and not old.definition.columns
        expected = replace(old.definition, columns=LISTED) if lacks else old.definition
        assert new.definition == expected


def test_views_of_which_no_list_is_known_stay_as_they_are() -> None:
    """Nothing is written behind a name that no list is given for."""
    text = "CREATE VIEW s.v AS SELECT 1;\nCREATE VIEW s.w AS SELECT 1;"
    assert with_column_lists(text, {(2, 13): LISTED}) == text.replace("s.w", f"s.w{LIST}")
