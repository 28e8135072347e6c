"""Users' objects that are broken, huge, in circles or away: each has its line, the software starts.

One shop on real Spark has all of them at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

import pytest

from catalog_migrate.model.progress import Progress
from catalog_migrate.report import render
from catalog_migrate.users.settings import UserSettings
from tests.users.postgres_users import plan_of

from .conftest import Opened, Shop

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from catalog_migrate.hook import BootstrapReport
    from catalog_migrate.planner.plan import UserObject

pytestmark = [pytest.mark.spark, pytest.mark.soak]

TWO = {
    "orders": (
        "CREATE TABLE {s}.orders (id BIGINT NOT NULL, qty INT USING CAST(qty AS INT),"
        " remark STRING RENAMED FROM note);"
    ),
    "big": (
        "CREATE VIEW {s}.big (id BIGINT, remark STRING) AS"
        " SELECT id, remark FROM {s}.orders WHERE id > 1;"
    ),
}
"""Release 2: a column is called otherwise, another gets another type."""

HUGE = "x" * 5_000_000


class Case(NamedTuple):
    """Statements ({s} the shop's schema, {t} a user's), and what is said of which object."""

    made: tuple[str, ...]
    said: Mapping[str, tuple[str, str]]
    """Outcome and a piece of what is said (reason, missing or condition), by name."""


CASES: dict[str, Case] = {
    "a function that reads itself through a view that reads ours": Case(
        (
            "CREATE FUNCTION {t}.top() RETURNS BIGINT RETURN (SELECT max(id) FROM {s}.orders)",
            "CREATE VIEW {t}.above AS SELECT {t}.top() AS top, note FROM {s}.big",
            "CREATE OR REPLACE FUNCTION {t}.top() RETURNS BIGINT"
            " RETURN (SELECT max(top) FROM {t}.above)",
        ),
        {"{t}.top": ("unknown", "itself"), "{t}.above": ("unknown", "itself")},
    ),
    "a view that reads itself beside ours": Case(
        (
            "CREATE SCHEMA {t}_b", "USE {t}",
            "CREATE VIEW {t}.selfish AS SELECT id FROM {s}.orders",
            "CREATE VIEW {t}_b.selfish AS SELECT id FROM selfish JOIN {s}.orders USING (id)",
            "USE default",
            "ALTER VIEW {t}_b.selfish SET TBLPROPERTIES"
            " ('view.catalogAndNamespace.part.1' = '{t}_b')",
        ),
        {"{t}.selfish": ("unchanged", ""), "{t}_b.selfish": ("unknown", "itself")},
    ),
    "a text of five megabytes": Case(
        (
            f"CREATE VIEW {{t}}.huge AS SELECT id, '{HUGE}' AS pad FROM {{s}}.orders",
            f"CREATE VIEW {{t}}.huge_note AS SELECT note, '{HUGE}' AS pad FROM {{s}}.orders",
        ),
        {"{t}.huge": ("unchanged", ""), "{t}.huge_note": ("breaks", "note")},
    ),
    "odd names": Case(
        (
            "CREATE VIEW {t}.`select` (`a``b`, `; DROP VIEW --`, `ü`) AS"
            " SELECT note, qty, id FROM {s}.orders",
            "CREATE VIEW {t}.`1st` AS SELECT `a``b`, `; DROP VIEW --` FROM {t}.`select`",
            "CREATE FUNCTION {t}.`it's ``odd``; --`() RETURNS STRING"
            " RETURN (SELECT max(note) FROM {s}.big)",
        ),
        {
            "{t}.select": ("breaks", "note"), "{t}.`1st`": ("breaks", "note"),
            "{t}.`it's ``odd``; --`": ("breaks", "note"),
        },
    ),
    "functions that are called as what is ours": Case(
        (
            "CREATE FUNCTION {s}.big(least BIGINT) RETURNS TABLE (id BIGINT, note STRING)"
            " RETURN SELECT id, note FROM {s}.big WHERE id >= least",
            "CREATE FUNCTION {t}.twice(x BIGINT) RETURNS BIGINT RETURN {s}.twice({s}.twice(x))",
            "CREATE VIEW {t}.orders AS SELECT {t}.twice(id) AS id, b.note"
            " FROM {s}.big(2) AS b",
        ),
        {"{s}.big": ("breaks", "note"), "{t}.orders": ("breaks", "note")},
    ),
    "two that break each other": Case(
        (
            "CREATE VIEW {t}.first AS SELECT id, note FROM {s}.orders",
            "CREATE VIEW {t}.second AS SELECT f.note, b.note AS other"
            " FROM {t}.first AS f JOIN {s}.big AS b USING (id)",
            "CREATE OR REPLACE VIEW {t}.third AS SELECT s.other FROM {t}.second AS s"
            " NATURAL JOIN {t}.first AS f",
        ),
        {
            "{t}.first": ("breaks", "note"), "{t}.second": ("breaks", "note"),
            "{t}.third": ("breaks", "note"),
        },
    ),
    "broken before": Case(
        (
            "CREATE TABLE {t}.mine (id BIGINT) USING parquet",
            "CREATE VIEW {t}.orphan AS SELECT o.note FROM {s}.orders AS o JOIN {t}.mine USING (id)",
            "DROP TABLE {t}.mine",
        ),
        {"{t}.orphan": ("broken", "mine")},
    ),
    "properties that were edited by hand": Case(
        (
            *(
                f"CREATE VIEW {{t}}.{name} AS SELECT id, id AS again FROM {{s}}.orders"
                for name in ("nameless", "countless", "modeless", "placeless", "temporary", "unset")
            ),
            "CREATE VIEW {t}.misnamed (x, y) AS SELECT id, id AS again FROM {s}.orders",
            "ALTER VIEW {t}.nameless UNSET TBLPROPERTIES ('view.query.out.col.1')",
            "ALTER VIEW {t}.countless SET TBLPROPERTIES ('view.query.out.numCols' = '1')",
            "ALTER VIEW {t}.modeless SET TBLPROPERTIES ('view.schemaMode' = 'ODD')",
            "ALTER VIEW {t}.placeless UNSET TBLPROPERTIES ('view.catalogAndNamespace.part.1')",
            "ALTER VIEW {t}.temporary SET TBLPROPERTIES ('view.referredTempViewNames' = 'odd')",
            "ALTER VIEW {t}.unset SET TBLPROPERTIES"
            " ('view.sqlConfig.spark.sql.ansi.enabled' = 'maybe')",
            "ALTER VIEW {t}.misnamed UNSET TBLPROPERTIES ('view.query.out.numCols')",
        ),
        {
            "{t}.nameless": ("unknown", "VIEW_QUERY_COLUMN_ARITY"),
            "{t}.countless": ("unknown", "INTERNAL_ERROR"),
            "{t}.modeless": ("unknown", "ViewSchemaMode"),
            "{t}.placeless": ("unknown", "TABLE_NAME_CONTEXT"),
            "{t}.temporary": ("unknown", "TEMP_VIEW_REFERENCE"),
            "{t}.unset": ("unknown", "INVALID_CONF_VALUE"),
            "{t}.misnamed": ("broken", "INCOMPATIBLE_VIEW_SCHEMA_CHANGE"),
        },
    ),
    "another catalog that is not configured any more": Case(
        (),
        {"{t}.abroad": ("broken", "away")},
    ),
    "dropped when it has been listed, and not yet been bound": Case(
        (
            "CREATE VIEW {t}.fleeting AS SELECT note FROM {s}.orders",
            "CREATE SCHEMA {t}_z", "CREATE VIEW {t}_z.fleeting AS SELECT note FROM {s}.orders",
        ),
        {"{t}.fleeting": ("breaks", "note"), "{t}_z.fleeting": ("breaks", "note")},
    ),
}
GONE = ("{t}.fleeting", "{t}_z.fleeting")
"""What another user drops while the start looks."""


def make_abroad(spark: SparkSession, schema: str, theirs: str) -> None:
    """A view that also reads a catalog which only its owner's session has."""
    owner = spark.newSession()
    for name, value in {
        "": "org.apache.spark.sql.execution.datasources.v2.jdbc.JDBCTableCatalog",
        ".url": "jdbc:derby:memory:away;create=true",
        ".driver": "org.apache.derby.iapi.jdbc.AutoloadedDriver",
    }.items():
        owner.conf.set(f"spark.sql.catalog.away{name}", value)
    owner.sql("CREATE TABLE away.APP.people (id BIGINT)")
    owner.sql(
        f"CREATE VIEW {theirs}.abroad AS SELECT o.id, o.note FROM {schema}.orders AS o"
        " JOIN away.APP.people AS p ON p.id = o.id"
    )


class Looked(NamedTuple):
    """The shop behind its upgrade: what was said beforehand, the start's report, and users' texts
    before and after it."""

    shop: Shop
    said: Mapping[str, UserObject]
    report: BootstrapReport
    before: Mapping[str, str]
    after: Mapping[str, str]


def name_of(pattern: str, shop: Shop) -> str:
    return pattern.format(s=shop.schema, t=f"{shop.schema}_team")


def texts(shop: Shop) -> dict[str, str]:
    """What the catalog has of every view of users, whether or not it can be read."""
    store = shop.spark._jsparkSession.sharedState().externalCatalog()
    found = {}
    for schema in (f"{shop.schema}_team", f"{shop.schema}_team_b"):
        names = store.listViews(schema, "*")
        for place in range(names.size()):
            row = store.getTable(schema, names.apply(place))
            found[f"{schema}.{names.apply(place)}"] = f"{row.viewText()} {row.properties()}"
    return found


@pytest.fixture(scope="module")
def looked(opened: Opened) -> Iterator[Looked]:
    """All cases made, release 2 planned and started."""
    with opened() as shop:
        spark, theirs = shop.spark, f"{shop.schema}_team"
        assert shop.start(shop.release("1")).outcome == "initialized"
        spark.sql(f"CREATE SCHEMA {theirs}")
        for case in CASES.values():
            for statement in case.made:
                spark.sql(name_of(statement, shop))
        make_abroad(spark, shop.schema, theirs)
        two = shop.release("2", **TWO)
        before = texts(shop)
        said = {each.name: each for each in plan_of(spark, shop.catalog, two)}
        other = spark.newSession()

        def drop(progress: Progress) -> None:
            if (progress.phase, progress.name) == ("users' objects", theirs):
                other.sql(f"DROP VIEW {theirs}.fleeting")
                other.sql(f"DROP SCHEMA {theirs}_z CASCADE")  # this one is not listed yet

        report = shop.start(two, users=UserSettings(threads=1), on_progress=drop)
        yield Looked(shop, said, report, before, texts(shop))
        for schema in (theirs, f"{theirs}_b"):
            spark.sql(f"DROP SCHEMA {schema} CASCADE")


@pytest.mark.parametrize("case", CASES)
def test_each_is_a_line_of_the_report(looked: Looked, case: str) -> None:
    """The plan has each object of a case with what is known of it, and the start lists those that
    are broken or unknown."""
    for pattern, (outcome, piece) in CASES[case].said.items():
        name = name_of(pattern, looked.shop)
        entry = looked.said[name]
        words = f"{entry.reason} {entry.condition} {entry.missing}"
        assert (entry.outcome, piece in words) == (outcome, True), entry
        lines = [line for line in looked.report.outstanding if f"{name}:" in line]
        listed = pattern not in GONE and outcome not in {"unchanged", "changed"}
        assert bool(lines) == listed, (name, lines)


def test_nothing_is_lost_and_the_software_starts(looked: Looked) -> None:
    """Every text and property of users' objects is as it was; the release is in force."""
    assert looked.report.outcome == "migrated"
    kept = {name: text for name, text in looked.before.items() if not name.endswith("fleeting")}
    assert looked.after == kept
    assert looked.shop.spark.table(f"{looked.shop.schema}.big").columns == ["id", "remark"]


def test_no_report_has_five_megabytes(looked: Looked) -> None:
    """Texts of users are in the plan, and the pages that people read have a part of them."""
    plan = looked.report.plan
    assert plan is not None
    assert len(render(plan, "text")) < 100_000
    assert sum(map(len, looked.report.outstanding)) < 100_000
