"""What Spark itself gives of users' views and functions, beside what a plan said of them.

:func:`look` asks a session by public SQL alone, so it serves every catalog and Spark Connect too;
:func:`differences` compares two looks, one before and one after a real change, with ``Plan.users``.
Neither knows the views that it is given.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from catalog_migrate.model.names import ItemName, quote_sql

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from catalog_migrate.planner.plan import UserColumn, UserObject

UNCLEAR = "its text has names that only Spark can read, so it cannot be tried on what changes"
"""The reason of one of which nothing is said: which these are is for the test to know."""
Name = tuple[str, str]
"""Kind and name, as a ``UserObject`` has it."""
Change = tuple[str, str, str, str]
"""Name, change, old and new of a column, as a ``UserColumn`` has them."""


class Shape(NamedTuple):
    """A column as a query gets it; ``behind`` is the type that the text gives by itself."""

    name: str
    type: str
    nullable: bool
    behind: str


@dataclass(frozen=True)
class Truth:
    """An object at one moment: its columns, or the error that a query of it ends with.

    ``rows`` are None where they were not asked for, or cannot be read.
    """

    kind: str
    columns: tuple[Shape, ...] = ()
    condition: str | None = None
    message: str = ""
    rows: Sequence[tuple[Any, ...]] | None = None

    @property
    def binds(self) -> bool:
        return self.condition is None

    def values(self, names: Sequence[str]) -> Counter[str]:
        """How often each row is there, of these columns alone."""
        places = [
            place for name in names
            for place, column in enumerate(self.columns) if column.name == name
        ]
        return Counter(str([row[place] for place in places]) for row in self.rows or ())


@dataclass(frozen=True)
class _Text:
    """A view or function as the catalog has it.

    ``outputs`` are the names of its query's columns that its own columns are bound to, in their
    order; None where they are bound by place.
    """

    name: ItemName
    kind: str
    sql: str
    namespace: str = "default"
    outputs: Sequence[str] | None = None
    arguments: Sequence[tuple[str, str]] = ()
    table: bool = False


def statements(path: Path) -> list[str]:
    """The statements of a file: each ends with a semicolon at the end of a line."""
    text = "\n".join(
        line for line in path.read_text(encoding="utf-8").splitlines()
        if not line.startswith("--")
    )
    return [each.strip() for each in re.split(r";(?:\n|$)", text) if each.strip()]


def look(
    spark: SparkSession, schemas: Iterable[str], *, rows: bool = False
) -> dict[Name, Truth]:
    """Every view and SQL function of the schemas; ``rows`` reads those of views too."""
    return {
        (text.kind, str(text.name)): _truth(spark, text, rows=rows)
        for schema in schemas for text in _texts(spark, schema)
    }


def _texts(spark: SparkSession, schema: str) -> Iterator[_Text]:
    for row in spark.sql(f"SHOW VIEWS IN {quote_sql(schema)}").collect():
        if not row["isTemporary"]:
            yield _view(spark, schema, row["viewName"])
    for row in spark.sql(f"SHOW USER FUNCTIONS IN {quote_sql(schema)}").collect():
        full = row["function"]
        if full.startswith(f"spark_catalog.{schema}."):
            yield _function(spark, schema, full.removeprefix(f"spark_catalog.{schema}."))


def _view(spark: SparkSession, schema: str, name: str) -> _Text:
    view = ItemName(schema, name)
    said = spark.sql(f"DESCRIBE TABLE EXTENDED {view.sql} AS JSON").collect()[0][0]
    facts = json.loads(said)
    namespace = facts["view_catalog_and_namespace"].rpartition(".")[2].strip("`")
    outputs = facts["view_query_output_columns"]
    if facts["view_schema_mode"] == "EVOLUTION" or len(set(outputs)) < len(outputs):
        outputs = None
    return _Text(view, "view", facts["view_text"], namespace, outputs)


def _function(spark: SparkSession, schema: str, name: str) -> _Text:
    lines = spark.sql(f"DESCRIBE FUNCTION EXTENDED {ItemName(schema, name).sql}").collect()
    facts: dict[str, str] = {}
    last = ""
    for line in "\n".join(row[0] for row in lines).splitlines():
        key, colon, value = line.partition(":")
        if colon and re.fullmatch(r"[A-Z][A-Za-z ]*", key):
            last, facts[key] = key, value.strip()
        else:
            facts[last] += f"\n{line.strip()}"
    arguments = [
        (each.split()[0], each.split()[1])
        for each in facts.get("Input", "()").splitlines() if each not in ("", "()")
    ]
    return _Text(
        ItemName(schema, name), "function", facts["Body"], schema, None, arguments,
        facts["Type"] == "TABLE",
    )


def _truth(spark: SparkSession, text: _Text, *, rows: bool) -> Truth:
    from pyspark.errors import PySparkException

    name = text.name.sql
    nulls = ", ".join(f"CAST(NULL AS {type_})" for _, type_ in text.arguments)
    if text.kind == "view":
        query = f"SELECT * FROM {name}"
    elif text.table:
        query = f"SELECT * FROM {name}({nulls})"
    else:
        query = f"SELECT {name}({nulls}) AS ``"
    try:
        found = spark.sql(query)
        shown = [(field.name, _type(field), field.nullable) for field in found.schema]
        behind = _behind(spark, text)
        columns = tuple(
            Shape(*column, behind=each) for column, each in zip(shown, behind, strict=True)
        )
        values = None
        if rows and text.kind == "view":
            values = [tuple(row) for row in found.collect()]
    except PySparkException as error:
        return Truth(text.kind, (), error.getCondition() or "", str(error))
    return Truth(text.kind, columns, rows=values)


def _behind(spark: SparkSession, text: _Text) -> list[str]:
    """The types that the text gives when it is analysed by itself, in the order of the columns."""
    given = ", ".join(
        f"CAST(NULL AS {type_}) AS {quote_sql(name)}" for name, type_ in text.arguments
    ) or "1 AS ``"
    arguments = f"(SELECT {given}) AS {quote_sql(text.name.name)}"
    with _namespace(spark, text.namespace):
        if text.kind == "view":
            found = spark.sql(text.sql)
        elif text.table:
            found = spark.sql(f"SELECT t.* FROM {arguments}, LATERAL ({text.sql}) AS t")
        else:
            found = spark.sql(f"SELECT {text.sql} FROM {arguments}")
        types = [(field.name.lower(), _type(field)) for field in found.schema]
    if text.outputs is None:
        return [type_ for _, type_ in types]
    by_name = dict(types)
    return [by_name[name.lower()] for name in text.outputs]


@contextmanager
def _namespace(spark: SparkSession, schema: str) -> Iterator[None]:
    before = spark.sql("SELECT current_schema()").collect()[0][0]
    spark.sql(f"USE {quote_sql(schema)}")
    try:
        yield
    finally:
        spark.sql(f"USE {quote_sql(before)}")


def _type(field: Any) -> str:
    return str(field.dataType.simpleString()).lower()


def changes(before: Truth, after: Truth) -> set[Change]:
    """What became of each column of an object that a query can read before and after.

    Places count where those that are in both come in another order.
    """
    old = {column.name: (place, column) for place, column in enumerate(before.columns, 1)}
    new = {column.name: (place, column) for place, column in enumerate(after.columns, 1)}
    found = {(name, "removed", old[name][1].type, "") for name in old.keys() - new.keys()}
    found |= {(name, "added", "", new[name][1].type) for name in new.keys() - old.keys()}
    moved = [name for name in old if name in new] != [name for name in new if name in old]
    for name in old.keys() & new.keys():
        (place, column), (now_place, now) = old[name], new[name]
        if column.type != now.type:
            found.add((name, "retyped", column.type, now.type))
        elif column.behind != now.behind:
            found.add((name, "cast", column.type, now.behind))
        if column.nullable != now.nullable:
            found.add((name, "nullability", _null(column), _null(now)))
        if moved and place != now_place:
            found.add((name, "moved", str(place), str(now_place)))
    return found


def have_other_rows(before: Truth, after: Truth) -> bool:
    """Whether columns that kept name and type have other values; not where no rows were read."""
    kept = {(column.name, column.type, column.behind) for column in before.columns} & {
        (column.name, column.type, column.behind) for column in after.columns
    }
    names = sorted(name for name, _, _ in kept)
    return before.rows is not None and after.rows is not None and (
        before.values(names) != after.values(names)
    )


def _null(column: Shape) -> str:
    return "NULL" if column.nullable else "NOT NULL"


def told(columns: Iterable[UserColumn]) -> set[Change]:
    """What a plan says of columns in the form of :func:`changes`; meaning is no shape."""
    return {
        (each.name, each.change, each.old.lower() if "NULL" not in each.old else each.old,
         each.new.lower() if "NULL" not in each.new else each.new)
        for each in columns if each.change != "meaning"
    }


def differences(
    said: Iterable[UserObject], before: Mapping[Name, Truth], after: Mapping[Name, Truth]
) -> list[str]:
    """Where what was said is not what is; empty when every view and column is as it was said.

    An object that was not named must be as it was.
    """
    by_name = {(each.kind, each.name): each for each in said}
    found = [f"{name} was said and is no object" for name in by_name.keys() - before.keys()]
    for name, was in before.items():
        is_now = after[name]
        expected = by_name.get(name)
        if expected is not None:
            found += (f"{name}: {text}" for text in _differing(expected, was, is_now))
        elif (was.columns, was.condition) != (is_now.columns, is_now.condition) or (
            have_other_rows(was, is_now)
        ):
            found.append(f"{name} was not named: {was.condition} -> {is_now.condition}")
    return found


def _differing(said: UserObject, was: Truth, is_now: Truth) -> Iterator[str]:
    if said.reason == UNCLEAR:
        return
    meaning = {each.name for each in said.columns if each.change == "meaning"}
    meant = bool(meaning) or (said.outcome == "changed" and said.reason is not None)
    outcome = _outcome(was, is_now)
    if meant and outcome == "unchanged" and was.binds:
        outcome = "changed"  # the rows that there are need not show it
    if said.outcome != outcome:
        yield f"said {said.outcome}, is {outcome}: {is_now.message[:300]} {said}"
    elif not is_now.binds:
        if said.condition != is_now.condition:
            yield f"said {said.condition}, is {is_now.condition}: {is_now.message[:300]}"
        if said.missing is not None and _plain(said.missing) not in _plain(is_now.message):
            yield f"said {said.missing} is missing, is {is_now.message[:300]}"
    elif was.binds:
        if told(said.columns) != (real := changes(was, is_now)):
            yield f"said {sorted(told(said.columns))}, is {sorted(real)}"
        if have_other_rows(was, is_now) and not meant:
            yield "other rows, and nothing was said of their meaning"


def _outcome(was: Truth, is_now: Truth) -> str:
    if not is_now.binds:
        return "breaks" if was.binds else "broken"
    changed = not was.binds or changes(was, is_now) or have_other_rows(was, is_now)
    return "changed" if changed else "unchanged"


def _plain(text: str) -> str:
    return text.replace("`", "").lower()
