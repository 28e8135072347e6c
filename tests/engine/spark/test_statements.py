"""The SQL text that the Spark engine issues."""

from __future__ import annotations

import json

from catalog_migrate.delta import datatypes
from catalog_migrate.engine.port import FunctionSpec, ShardSpec, ViewSpec
from catalog_migrate.engine.spark import shards, statements
from catalog_migrate.engine.spark.registrations import parse_comment
from catalog_migrate.engine.spark.statements import BodyColumn
from catalog_migrate.model.names import ItemName
from catalog_migrate.model.objects import Argument, Check, Column


def test_a_view_whose_types_agree_keeps_its_body():
    """A body with the contract's types is written as it stands, columns and comments quoted."""
    view = ViewSpec(
        ItemName("s", "v"), [Column("a b", "INT", comment="it's")], "SELECT 1;", "note", {"k": "v"}
    )
    assert statements.create_view(view, [BodyColumn("INT")]) == (
        "CREATE OR REPLACE VIEW `s`.`v` (`a b` COMMENT 'it\\'s') COMMENT 'note'"
        " TBLPROPERTIES ('k' = 'v') WITH SCHEMA BINDING AS SELECT 1"
    )


def test_a_view_casts_only_the_columns_that_differ():
    """An up-cast is written as a cast around the body, by position, also behind a comment."""
    view = ViewSpec(
        ItemName("s", "v"), [Column("a", "BIGINT"), Column("b", "STRING")], "SELECT x, y -- end"
    )
    assert statements.create_view(view, [BodyColumn("INT"), BodyColumn("STRING")]) == (
        "CREATE OR REPLACE VIEW `s`.`v` (`a`, `b`) WITH SCHEMA BINDING AS"
        " SELECT CAST(c0 AS BIGINT) AS `a`, c1 AS `b` FROM (SELECT x, y -- end\n) AS body (c0, c1)"
    )


def test_a_view_names_the_columns_that_its_body_does_not():
    """A name that Spark made up becomes the contract's, and the type stays the body's."""
    view = ViewSpec(
        ItemName("s", "v"), [Column("n", "BIGINT"), Column("b", "STRING"), Column("c", "BIGINT")],
        "SELECT count(*), b, 1 + 1 FROM t",
    )
    found = [BodyColumn("BIGINT", named=False), BodyColumn("STRING"), BodyColumn("INT", False)]
    assert statements.create_view(view, found) == (
        "CREATE OR REPLACE VIEW `s`.`v` (`n`, `b`, `c`) WITH SCHEMA BINDING AS SELECT coalesce(c0)"
        " AS `n`, c1 AS `b`, CAST(c2 AS BIGINT) AS `c` FROM (SELECT count(*), b, 1 + 1 FROM t\n)"
        " AS body (c0, c1, c2)"
    )


def test_a_function_carries_its_properties_in_its_comment():
    """What is written into a function's comment is read back, whatever the comment says."""
    properties = {"catalog_migrate.id": "s1", "odd": "*/ 'quoted' */"}
    text = statements.write_function_comment("says /*catalog_migrate {}*/ itself", properties)
    assert text is not None
    assert statements.read_function_comment(text) == properties
    assert statements.read_function_comment("a comment of someone else") == {}
    assert statements.read_function_comment("/*catalog_migrate broken*/") == {}


def test_a_table_function_declares_its_columns():
    """Arguments with defaults and table results are spelled out."""
    function = FunctionSpec(
        ItemName("s", "f"), [Argument("x", "INT", "3")], [Column("a", "INT")], "SELECT x"
    )
    assert statements.create_function(function) == (
        "CREATE OR REPLACE FUNCTION `s`.`f` (`x` INT DEFAULT 3) RETURNS TABLE (`a` INT)"
        " RETURN SELECT x"
    )


def test_a_clustered_shard_is_created_by_a_statement():
    """Nullability, comments, clustering and properties stand where Spark expects them."""
    shard = ShardSpec(
        "/w/a", [Column("a", "INT", False, comment="c")], clustered_by=["a"], properties={"k": "v"}
    )
    assert statements.create_shard(shard) == (
        "CREATE TABLE delta.`/w/a` (`a` INT NOT NULL COMMENT 'c') USING delta CLUSTER BY (`a`)"
        " TBLPROPERTIES ('k' = 'v')"
    )


def test_bodies_stand_side_by_side_in_one_query():
    """Each body is a subquery whose columns come as one struct, also behind a comment."""
    assert statements.side_by_side(["SELECT 1 AS a; ", "SELECT 2 -- end"]) == (
        "SELECT struct(q0.*) AS q0, struct(q1.*) AS q1"
        " FROM (SELECT 1 AS a\n) AS q0, (SELECT 2 -- end\n) AS q1"
    )


class Recorded:
    """A session that keeps what it is told to run, and under which settings."""

    def __init__(self, settings: dict[str, str]) -> None:
        self.settings = settings
        self.ran: list[tuple[str, dict[str, str]]] = []
        self.conf = self

    def get(self, key: str, default: str | None = None) -> str | None:
        return self.settings.get(key, default)

    def set(self, key: str, value: str) -> None:
        self.settings[key] = value

    def unset(self, key: str) -> None:
        del self.settings[key]

    def sql(self, text: str) -> None:
        self.ran.append((text, dict(self.settings)))


def test_every_statement_escapes_the_quotes_of_its_strings():
    """A doubled quote is one string to Spark 4.1 and two to 4.0; an escaped one is one to all."""
    spark = Recorded({})
    statements.run(spark, "CREATE VIEW v COMMENT 'it''s' AS SELECT 'it''s', r'a''b' -- don''t")
    assert spark.ran == [
        (r"CREATE VIEW v COMMENT 'it\'s' AS SELECT 'it\'s', r'a''b' -- don''t", {})
    ]


def test_a_session_without_escapes_reads_a_statement_by_the_common_rule():
    """Its setting is put aside for a text with an escape, and stands again afterwards."""
    raw = "spark.sql.parser.escapedStringLiterals"
    spark = Recorded({raw: "true"})
    for text in ("SELECT 1", "SELECT 'it''s'", "SELECT '${env:HOME}'"):
        statements.run(spark, text)
    assert spark.ran == [
        ("SELECT 1", {raw: "true"}),
        (r"SELECT 'it\'s'", {raw: "false"}),
        ("SELECT '${env:HOME}'", {raw: "true", "spark.sql.variable.substitute": "false"}),
    ]
    assert spark.settings == {raw: "true"}


def test_what_delta_keeps_escapes_its_quotes_too():
    """A CHECK and a generated column are read by whichever Spark opens the table later."""
    check = Check("c", "a <> 'it''s'")
    found = shards.configuration(ShardSpec("/w/a", [Column("a", "STRING")], checks=[check]))
    assert found == {"delta.constraints.c": r"a <> 'it\'s'"}
    column = Column("b", "STRING", generated="concat(a, 'it''s')")
    (field,) = datatypes.json_schema([column], stored=True)["fields"]
    assert field["metadata"] == {"delta.generationExpression": r"concat(a, 'it\'s')"}


def test_the_comment_of_a_function_is_found_in_what_each_minor_tells():
    """A line of its own since 4.2, before it in the JSON of the usage; none is none."""
    assert parse_comment(["Function: s.f", "Comment:       it's: so", "Body: 1"]) == "it's: so"
    stored = json.dumps({"sqlFunction.returnType": "INT", "sqlFunction.comment": 'it\'s "so"'})
    assert parse_comment(["Class: sqlFunction.", f"Usage: {stored}"]) == 'it\'s "so"'
    for nothing in ([], ["Usage: {"], ["Usage: {}"], ["Usage: N/A."], ["Function: Comment:"]):
        assert parse_comment(nothing) == ""
