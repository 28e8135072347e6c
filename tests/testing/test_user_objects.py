"""What users' views and functions give in the simulated world, as Spark would have it."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from catalog_migrate.engine.port import (
    FunctionSpec,
    QueryRequest,
    SchemaMode,
    ShardSpec,
    UserDefinition,
    ViewSpec,
)
from catalog_migrate.errors import EngineFailure
from catalog_migrate.model.names import ItemName
from catalog_migrate.model.objects import Argument, Column
from catalog_migrate.testing.engine import SimulatedEngine
from catalog_migrate.testing.world import TableEntry, UserView

MODES: tuple[SchemaMode, ...] = ("COMPENSATION", "BINDING", "TYPE EVOLUTION", "EVOLUTION")
T = ItemName("s", "t")


def engine_with(*columns: Column) -> SimulatedEngine:
    """A table ``s.t`` of these columns."""
    engine = SimulatedEngine(persistent=True)
    engine.ensure_schema("s")
    engine.ensure_schema("u")
    engine.create_shard(ShardSpec("/warehouse/t", columns))
    engine.register_table(T, "/warehouse/t")
    return engine


def change_to(engine: SimulatedEngine, *columns: Column) -> None:
    """The table has other columns."""
    engine.create_shard(ShardSpec("/warehouse/t2", columns))
    engine.world.names.relations[T.folded] = TableEntry(T, "/warehouse/t2")


def make(engine: SimulatedEngine, name: str, sql: str, mode: SchemaMode) -> UserView:
    """A user's view ``u.name`` as it is stored."""
    asked = QueryRequest(ItemName("u", name), sql, {}, namespace="s")
    found = engine.analyse([asked])[0].columns
    assert found is not None
    stored = tuple(Column(c.name, c.type) for c in found)
    outputs = tuple(c.name for c in found)
    view = UserView(
        ItemName("u", name), stored, sql, "his own", {}, mode, outputs, namespace="s"
    )
    engine.world.names.relations[view.name.folded] = view
    return view


def reading(engine: SimulatedEngine, view: UserView) -> str:
    """The columns that a reader gets, or the condition."""
    try:
        return ", ".join(f"{c.name} {c.type}" for c in engine.read_view(view))
    except EngineFailure as failure:
        return str(failure.condition)


A, B = Column("a", "INT"), Column("b", "STRING")

CHANGES: tuple[tuple[str, tuple[Column, ...], str, str], ...] = (
    ("retyped", (Column("a", "BIGINT"), B), "SELECT a FROM t",
     "a INT | CANNOT_UP_CAST_DATATYPE | a BIGINT | a BIGINT"),
    ("lost, named", (A,), "SELECT r.b AS x FROM s.t r", "UNRESOLVED_COLUMN.WITH_SUGGESTION"),
    ("lost, in a condition", (A,), "SELECT r.a FROM t r WHERE r.b > 1",
     "UNRESOLVED_COLUMN.WITH_SUGGESTION"),
    ("lost, by a star", (A,), "SELECT * FROM t",
     "INCOMPATIBLE_VIEW_SCHEMA_CHANGE | INCOMPATIBLE_VIEW_SCHEMA_CHANGE"
     " | INCOMPATIBLE_VIEW_SCHEMA_CHANGE | a INT"),
    ("gained, by a star", (A, B, Column("c", "INT")), "SELECT r.* FROM t r",
     "a INT, b STRING | a INT, b STRING | a INT, b STRING | a INT, b STRING, c INT"),
)  # fmt: skip


@pytest.mark.parametrize(("columns", "sql", "expected"), [c[1:] for c in CHANGES])
def test_each_mode_follows_what_a_view_reads(
    columns: tuple[Column, ...], sql: str, expected: str
) -> None:
    """COMPENSATION, BINDING, TYPE EVOLUTION, EVOLUTION, in this order; one answer is all four's."""
    engine = engine_with(A, B)
    views = [make(engine, f"v{number}", sql, mode) for number, mode in enumerate(MODES)]
    change_to(engine, *columns)
    found = [reading(engine, view) for view in views]
    answers = expected.split(" | ")
    assert found == (answers if len(answers) > 1 else answers * 4)


def test_a_view_over_a_view_that_broke_is_broken_as_that_one() -> None:
    """What reads a user's view has its error; two that read each other have RECURSIVE_VIEW."""
    engine = engine_with(A, B)
    below = make(engine, "below", "SELECT b FROM t", "COMPENSATION")
    above = make(engine, "above", "SELECT b FROM u.below", "COMPENSATION")
    change_to(engine, A)
    assert reading(engine, above) == "UNRESOLVED_COLUMN.WITH_SUGGESTION"
    engine.world.names.relations[below.name.folded] = replace(below, sql="SELECT b FROM u.above")
    assert reading(engine, above) == "RECURSIVE_VIEW"


def test_an_analysis_names_what_is_missing_and_where() -> None:
    """Stand-ins come before what the catalog has; None is a relation that is not there."""
    engine = engine_with(A, B)
    sql = "SELECT r.a, r.b AS x FROM s.t r"
    asked = QueryRequest(ItemName("u", "v"), sql, {T: (A,)})
    found = engine.analyse([asked, replace(asked, parents={T: None}), replace(asked, parents={})])
    assert (found[0].condition, found[0].missing, found[0].place) == (
        "UNRESOLVED_COLUMN.WITH_SUGGESTION", "r.b", (12, 15)
    )
    assert sql[12:15] == "r.b"
    assert (found[1].condition, found[1].missing) == ("TABLE_OR_VIEW_NOT_FOUND", "s.t")
    assert found[2].columns == (Column("a", "INT"), Column("x", "STRING"))


def test_a_plan_has_leaves_projects_joins_and_filters() -> None:
    """As Spark prints it, so that what compares plans of Spark compares these."""
    engine = engine_with(A, B)
    join = "SELECT x.a, y.b AS c, 1 AS one FROM s.t x JOIN t y ON x.b = y.b WHERE x.a > 5"
    star = "SELECT r.* FROM s.t r"
    plans = [
        engine.analyse([QueryRequest(T, sql, {}, namespace="s", plan=True)])[0].plan
        for sql in (join, star)
    ]
    assert plans == [
        "Project [a#0, b#3 AS c#4, 1 AS one#5]\n"
        "+- Filter (a#0 > 5)\n"
        "   +- Join Inner, ((b#1) AND (b#3) AND (a#0))\n"
        "      :- SubqueryAlias x\n"
        "      :  +- SubqueryAlias spark_catalog.s.t\n"
        "      :     +- LogicalRDD [a#0, b#1], false\n"
        "      +- SubqueryAlias y\n"
        "         +- SubqueryAlias spark_catalog.s.t\n"
        "            +- LogicalRDD [a#2, b#3], false",
        "Project [a#0, b#1]\n"
        "+- SubqueryAlias r\n"
        "   +- SubqueryAlias spark_catalog.s.t\n"
        "      +- LogicalRDD [a#0, b#1], false",
    ]


def test_definitions_are_listed_and_replaced_unless_they_changed() -> None:
    """A text is replaced, all else is kept; refused where another definition is found by then."""
    engine = engine_with(A, B)
    view = make(engine, "v", "SELECT b FROM t", "BINDING")
    function = FunctionSpec(
        ItemName("u", "f"), (Argument("x", "BIGINT"),), (Column("a", "INT"),), "SELECT a FROM s.t"
    )
    engine.world.names.functions[function.name.folded] = function
    engine.world.names.relations["u", "ours"] = ViewSpec(
        ItemName("u", "ours"), (A,), "SELECT 1 AS a", properties={"catalog_migrate.id": "s1"}
    )
    assert engine.schemas() == ["s", "u"]
    seen, called = engine.user_definitions("u")
    assert engine.relations_read(seen) == [T]
    assert (seen.outputs, seen.schema_mode, seen.namespace) == (("b",), "BINDING", "s")
    assert called.sql == "SELECT a FROM s.t"
    change_to(engine, A, Column("c", "STRING"))
    engine.replace_text(seen, "SELECT c AS b FROM t")
    changed = engine.world.names.relations[view.name.folded]
    assert changed == replace(view, sql="SELECT c AS b FROM t")
    with pytest.raises(EngineFailure) as refused:
        engine.replace_text(seen, "SELECT c AS b FROM t")
    assert refused.value.condition == "CHANGED"
    engine.replace_text(called, "SELECT r.a FROM s.t r")
    assert engine.world.names.functions[function.name.folded].body == "SELECT r.a FROM s.t r"


def test_a_function_is_called_for_a_value_and_for_rows() -> None:
    """What its body reads is analysed then; one that is not there is Spark's error of the kind."""
    engine = engine_with(A, B)
    rows = FunctionSpec(ItemName("u", "rows"), (), (Column("o", "INT"),), "SELECT a FROM s.t")
    value = FunctionSpec(ItemName("u", "value"), (Argument("x", "BIGINT"),), "BIGINT", "s.g(x)")
    for function in (rows, value):
        engine.world.names.functions[function.name.folded] = function
    asked = [
        QueryRequest(ItemName("u", "q"), sql, {}) for sql in (
            "SELECT * FROM `u`.`rows`()", "SELECT `u`.`value`(CAST(NULL AS BIGINT))",
            "SELECT * FROM u.nothing()", "SELECT u.nothing(1)",
        )
    ]
    found = engine.analyse(asked)
    assert found[0].columns == (Column("o", "INT"),)
    assert [(each.condition, each.missing) for each in found[1:]] == [
        ("UNRESOLVED_ROUTINE", "s.g"), ("UNRESOLVABLE_TABLE_VALUED_FUNCTION", "u.nothing"),
        ("UNRESOLVED_ROUTINE", "u.nothing"),
    ]
    change_to(engine, B)
    assert engine.analyse(asked[:1])[0].condition == "UNRESOLVED_COLUMN.WITH_SUGGESTION"


def test_what_cannot_be_read_is_listed_with_why() -> None:
    """An object without permission keeps its name only; a schema that is not there has nothing."""
    engine = engine_with(A, B)
    view = make(engine, "v", "SELECT b FROM t", "BINDING")
    engine.world.unreadable.add(view.name.folded)
    assert engine.user_definitions("u") == [
        UserDefinition(view.name, "view", unread="no permission to read it")
    ]
    assert engine.user_definitions("nowhere") == []
