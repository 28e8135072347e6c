"""Users' views over a table that changes: what Spark makes of each, and what is said beforehand.

Real views over a real table. Everything is said before the first change is made.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, NamedTuple

from pyspark.errors import PySparkException

from catalog_migrate.delta import datatypes
from catalog_migrate.engine.port import (
    QueryAnalysis,
    QueryRequest,
    ShardSpec,
    UserDefinition,
)
from catalog_migrate.engine.spark.engine import SparkEngine
from catalog_migrate.engine_failures import mute
from catalog_migrate.model.names import ItemName
from catalog_migrate.model.objects import Argument, Column
from catalog_migrate.users.column_changes import compare_shape
from catalog_migrate.users.judgement import Judgement, judge
from catalog_migrate.users.meaning import Comparison, compare_plans

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SCHEMA = "matrix"
T, U = ItemName(SCHEMA, "t"), ItemName(SCHEMA, "u")
K, A, B = Column("k", "INT", False), Column("a", "INT"), Column("b", "STRING")
OLD = (K, A, B)
OTHER = (Column("k", "INT"), Column("d", "STRING"))
VALUES: Mapping[str, Sequence[str]] = {
    "k": ("1", "2", "3", "4"), "a": ("10", "20", "20", "NULL"), "b": ("'1'", "'2'", "'3'", "'4'"),
    "d": ("'x'", "'x'", "'z'", "'z'"), "e": ("'2026-01-01'", "'2026-01-02'", "NULL", "NULL"),
}
"""Rows of ``t`` by its columns: one that is renamed keeps its values."""
OTHER_VALUES = (("1", "2", "3", "3"), ("'x'", "'y'", "'z'", "'x'"))


class Change(NamedTuple):
    """What becomes of the table ``t``; None: it is dropped."""

    title: str
    columns: Sequence[Column] | None
    renames: Mapping[str, str] = {}


def retyped(column: Column, type_: str) -> Sequence[Column]:
    return [Column(each.name, type_) if each is column else each for each in OLD]


CHANGES = (
    Change("gains a column", (*OLD, Column("e", "DATE"))),
    Change("gains a column that the other table has", (*OLD, Column("d", "STRING"))),
    Change("loses `b`", (K, A)),
    Change("loses `a`", (K, B)),
    Change("loses `k`", (A, B)),
    Change("has `b` first", (B, K, A)),
    Change("renames `a` to `z`", (K, Column("z", "INT"), B), {"a": "z"}),
    Change("renames `b` to `d`", (K, A, Column("d", "STRING")), {"b": "d"}),
    Change("`a` becomes BIGINT", retyped(A, "BIGINT")),
    Change("`a` becomes SMALLINT", retyped(A, "SMALLINT")),
    Change("`a` becomes STRING", retyped(A, "STRING")),
    Change("`a` becomes DATE", retyped(A, "DATE")),
    Change("`a` becomes ARRAY<INT>", retyped(A, "ARRAY<INT>")),
    Change("`b` becomes INT", retyped(B, "INT")),
    Change("`b` becomes TIMESTAMP", retyped(B, "TIMESTAMP")),
    Change("`a` becomes NOT NULL", (K, Column("a", "INT", False), B)),
    Change("`k` may be NULL", (Column("k", "INT"), A, B)),
    Change("is dropped", None),
)


class Shape(NamedTuple):
    """A query of a view, with the view's list of columns; or of a function, with what it returns.

    Names without a schema are in the schema of the tables for a view; in a function Spark looks
    for them in the schema that the caller's session is in.
    """

    sql: str
    columns: str = ""
    returns: str = ""


SHAPES = (
    Shape("SELECT k, a, b FROM t"),
    Shape("SELECT a FROM t", "(x)"),
    Shape("SELECT k FROM t WHERE b > '2'"),
    Shape("SELECT a + 1 AS n FROM t"),
    Shape("SELECT * FROM t"),
    Shape("SELECT * FROM t", "(x, y, z)"),
    Shape("SELECT r.*, r.k + 1 AS next FROM t AS r"),
    Shape("SELECT * EXCEPT (b) FROM t"),
    Shape("TABLE t"),
    Shape("FROM t |> DROP b"),
    Shape("WITH w AS (SELECT * FROM t) SELECT k, b FROM w"),
    Shape("SELECT DISTINCT * FROM t"),
    Shape("SELECT * FROM t UNION SELECT k, k, d FROM u"),
    Shape("SELECT * FROM t NATURAL JOIN u"),
    Shape("SELECT * FROM t JOIN u USING (k)"),
    Shape("SELECT t.*, u.d FROM t JOIN u ON t.k = u.k"),
    Shape("SELECT * FROM t JOIN u ON t.k = u.k", "(k, a, b, k2, d)"),
    Shape("SELECT t.k, d FROM t LEFT JOIN u ON t.k = u.k"),
    Shape("SELECT k, d FROM u WHERE EXISTS (SELECT 1 FROM t WHERE t.k = u.k AND d = 'x')"),
    Shape("SELECT b, count(*) AS n, sum(a) AS total FROM t GROUP BY b"),
    Shape("SELECT k, max(b) OVER (PARTITION BY a ORDER BY k) AS m FROM t"),
    Shape("SELECT struct(t.*) AS s FROM t"),
    Shape("SELECT array(a) AS s, map(b, a) AS m FROM t"),
    Shape("SELECT k, e.x FROM t LATERAL VIEW explode(array(a, k)) e AS x"),
    Shape("SELECT * FROM t UNPIVOT (value FOR name IN (a, k))"),
    Shape("SELECT * FROM t PIVOT (max(a) FOR b IN ('1' AS one, '2' AS two))"),
    Shape("SELECT count(*) AS n, count(DISTINCT a) AS some FROM t"),
    Shape("SELECT max(a) FROM matrix.t WHERE t.k = x", returns="INT"),
    Shape("SELECT max(b) FROM matrix.t", returns="STRING"),
    Shape("SELECT k, b FROM matrix.t WHERE k = x", returns="TABLE (k INT, b STRING)"),
    Shape("SELECT * FROM matrix.t", returns="TABLE (k INT, a INT, b STRING)"),
)  # fmt: skip
VIEWS = ("COMPENSATION", "BINDING", "TYPE EVOLUTION", "EVOLUTION", "temporary view")
MODES = (*VIEWS, "function")
"""What is made of a shape: views in every schema mode, or a function."""


class Cell(NamedTuple):
    """One view or function after one change: what was said and what Spark makes of it."""

    change: Change
    shape: Shape
    mode: str
    said: Judgement
    found: str

    @property
    def expected(self) -> str:
        """What was said, in the form of ``found``."""
        if self.said.output is None:
            return self.said.condition or f"? {self.said.reason}"
        return shown(self.said.output)


def shown(columns: Sequence[Column]) -> str:
    return ", ".join(
        f"{column.name} {column.type}{'' if column.nullable else ' NOT NULL'}"
        for column in columns
    )


class Matrix:
    """Every shape in every mode, as views and functions of one session."""

    def __init__(
        self, spark: SparkSession, warehouse: str, shapes: Sequence[Shape] = SHAPES,
        modes: Sequence[str] = MODES, rows: bool = False,
    ) -> None:
        self._spark, self._warehouse, self._rows = spark, warehouse, rows
        self._engine = SparkEngine(spark)
        self._shards = 0
        self._engine.ensure_schema(SCHEMA)
        self._change(Change("as it was", OLD))
        self._register(U, OTHER, OTHER_VALUES)
        self._old = self._analyse(shapes, OLD)
        spark.sql(f"USE {SCHEMA}")  # where a user is who writes no schema
        made = {
            (shape, mode): self._make(f"{mode.replace(' ', '_').lower()}_{number}", shape, mode)
            for number, shape in enumerate(shapes)
            for mode in (["function"] if shape.returns else VIEWS) if mode in modes
        }
        spark.sql("USE default")
        listed = {each.name: each for each in self._engine.user_definitions(SCHEMA)}
        self.definitions = {
            key: listed.get(name) or self._temporary(name, key[0]) for key, name in made.items()
        }
        for (shape, _), definition in self.definitions.items():
            assert definition.sql in (shape.sql, f"({shape.sql})"), definition

    def cells(self, changes: Sequence[Change]) -> Iterator[Cell]:
        """Say what becomes of everything, then make the changes, each on the old table."""
        said = [
            [
                judge(definition, self._old[shape], new[shape])
                for (shape, _), definition in self.definitions.items()
            ]
            for new in (self._analyse(self._shapes, change.columns) for change in changes)
        ]
        for change, judgements in zip(changes, said, strict=True):
            self._change(change)
            with ThreadPoolExecutor(4) as pool:
                found = pool.map(self._read, self.definitions, self.definitions.values())
                for (shape, mode), judgement, each in zip(
                    self.definitions, judgements, found, strict=True
                ):
                    yield Cell(change, shape, mode, judgement, each)
            self._change(Change("as it was", OLD))

    def rows(self, change: Change | None = None) -> dict[tuple[Shape, str], list[str] | None]:
        """The rows of everything, sorted, after a change; None where Spark refuses."""
        if change is not None:
            self._change(change)
        with ThreadPoolExecutor(4) as pool:
            found = pool.map(self._rows_of, self.definitions, self.definitions.values())
            rows = dict(zip(self.definitions, found, strict=True))
        if change is not None:
            self._change(Change("as it was", OLD))
        return rows

    def _rows_of(self, key: tuple[Shape, str], definition: UserDefinition) -> list[str] | None:
        try:
            with mute():
                return sorted(map(repr, self._frame(key, definition).collect()))
        except PySparkException:
            return None

    def compared(self, change: Change) -> dict[Shape, Comparison]:
        """What each query means otherwise after a change, by its plans; those that bind."""
        assert change.columns is not None
        new = self._analyse(self._shapes, change.columns)
        shapes = {T.folded: compare_shape(T, OLD, change.columns, change.renames)}
        found = {}
        for shape in self._shapes:
            before, after = self._old[shape].plan, new[shape].plan
            if before is not None and after is not None:
                outputs = [] if shape.returns else self._outputs(shape)
                found[shape] = compare_plans(
                    before, after, shapes, None if shape.returns else outputs
                )
        return found

    def drop(self) -> None:
        for (_, mode), definition in self.definitions.items():
            if mode == "temporary view":
                self._spark.catalog.dropTempView(definition.name.name)
        self._spark.sql(f"DROP SCHEMA {SCHEMA} CASCADE")

    @property
    def _shapes(self) -> Sequence[Shape]:
        return list(self._old)

    def _outputs(self, shape: Shape) -> Sequence[str]:
        columns = self._old[shape].columns
        assert columns is not None, self._old[shape]
        return [column.name for column in columns]

    def _analyse(
        self, shapes: Sequence[Shape], columns: Sequence[Column] | None
    ) -> dict[Shape, QueryAnalysis]:
        """What each query comes to over a table of these columns."""
        requests = [
            QueryRequest(
                ItemName(SCHEMA, "theirs"), f"({each.sql})" if _is_scalar(each) else each.sql,
                {T: columns, U: OTHER}, namespace=SCHEMA, scalar=_is_scalar(each),
                arguments=[Argument("x", "INT")] if each.returns else (), plan=True,
            )
            for each in shapes
        ]
        return dict(zip(shapes, self._engine.analyse(requests), strict=True))

    def _make(self, name: str, shape: Shape, mode: str) -> ItemName:
        full = ItemName("" if mode == "temporary view" else SCHEMA, name)
        body = f"({shape.sql})" if _is_scalar(shape) else shape.sql
        self._spark.sql({
            "function": f"CREATE FUNCTION {full} (x INT) RETURNS {shape.returns} RETURN {body}",
            "temporary view": f"CREATE TEMPORARY VIEW {name} {shape.columns} AS {body}",
        }.get(mode, f"CREATE VIEW {full} {shape.columns} WITH SCHEMA {mode} AS {body}"))
        return full

    def _temporary(self, name: ItemName, shape: Shape) -> UserDefinition:
        """What the session has of a temporary view: no listing gives it, and it binds."""
        columns = [_column(each.jsonValue()) for each in self._spark.table(name.name).schema]
        return UserDefinition(
            name, "view", shape.sql, columns, tuple(self._outputs(shape)), SCHEMA, "BINDING"
        )

    def _read(self, key: tuple[Shape, str], definition: UserDefinition) -> str:
        """The columns that a reader gets now, or Spark's error class."""
        shape, mode = key
        try:
            with mute():
                fields = self._frame(key, definition).schema
        except PySparkException as error:
            return str(error.getCondition())
        columns = [_column(each.jsonValue()) for each in fields]
        if mode == "function":  # a call is put into the query: what it reads may not be NULL
            columns = [
                Column("" if _is_scalar(shape) else each.name, each.type) for each in columns
            ]
        return shown(columns)

    def _frame(self, key: tuple[Shape, str], definition: UserDefinition) -> DataFrame:
        shape, mode = key
        if mode != "function":
            return self._spark.table(str(definition.name))
        call = f"{definition.name}(1)"
        return self._spark.sql(f"SELECT {call}" if _is_scalar(shape) else f"SELECT * FROM {call}")

    def _change(self, change: Change) -> None:
        """Drop the table, and create it with other columns and the same rows."""
        self._spark.sql(f"DROP TABLE IF EXISTS {T}")
        if change.columns is not None:
            before = {new: old for old, new in change.renames.items()}
            self._register(T, change.columns, [
                VALUES[before.get(each.name, each.name)] for each in change.columns
            ])

    def _register(
        self, name: ItemName, columns: Sequence[Column], values: Sequence[Sequence[str]]
    ) -> None:
        self._shards += 1
        path = f"{self._warehouse}/{name.name}{self._shards}"
        self._engine.create_shard(ShardSpec(path, columns))
        self._engine.register_table(name, path)
        if self._rows:
            rows = ", ".join(
                "({})".format(", ".join(
                    f"CAST({value} AS {column.type})"
                    for value, column in zip(row, columns, strict=True)
                ))
                for row in zip(*values, strict=True)
            )
            self._spark.sql(f"INSERT INTO {name} VALUES {rows}")


def _is_scalar(shape: Shape) -> bool:
    return bool(shape.returns) and not shape.returns.startswith("TABLE")


def _column(field: Mapping[str, object]) -> Column:
    return Column(
        str(field["name"]), datatypes.canonical_of(field["type"]), bool(field["nullable"])
    )
