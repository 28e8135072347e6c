"""The SQL text that the Spark engine issues."""

from __future__ import annotations

from catalog_migrate.engine.port import FunctionSpec, ShardSpec, ViewSpec
from catalog_migrate.engine.spark import statements
from catalog_migrate.model.names import ItemName
from catalog_migrate.model.objects import Argument, Column


def test_a_view_whose_types_agree_keeps_its_body():
    """A body with the contract's types is written as it stands, columns and comments quoted."""
    view = ViewSpec(
        ItemName("s", "v"), [Column("a b", "INT", comment="it's")], "SELECT 1;", "note", {"k": "v"}
    )
    assert statements.create_view(view, ["INT"]) == (
        "CREATE OR REPLACE VIEW `s`.`v` (`a b` COMMENT 'it\\'s') COMMENT 'note'"
        " TBLPROPERTIES ('k' = 'v') WITH SCHEMA BINDING AS SELECT 1"
    )


def test_a_view_casts_only_the_columns_that_differ():
    """An up-cast is written as a cast around the body, by position, also behind a comment."""
    view = ViewSpec(
        ItemName("s", "v"), [Column("a", "BIGINT"), Column("b", "STRING")], "SELECT x, y -- end"
    )
    assert statements.create_view(view, ["INT", "STRING"]) == (
        "CREATE OR REPLACE VIEW `s`.`v` (`a`, `b`) WITH SCHEMA BINDING AS"
        " SELECT CAST(c0 AS BIGINT) AS `a`, c1 AS `b` FROM (SELECT x, y -- end\n) AS body (c0, c1)"
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
