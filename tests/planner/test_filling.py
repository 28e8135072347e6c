"""What a new table is filled from: found in force by any name that leads there, or refused."""

from __future__ import annotations

import pytest

from catalog_migrate.errors import InvalidRelease
from catalog_migrate.model.names import Identity
from catalog_migrate.model.sizes import TableSize
from catalog_migrate.planner.baseline import Baseline
from catalog_migrate.planner.plan import Migration
from catalog_migrate.planner.planning import plan_migration
from catalog_migrate.release.loader import load_texts
from catalog_migrate.release.manifest import compile_release, decode_manifest
from catalog_migrate.release.release import Release
from catalog_migrate.sql.references import whole_relation

OLD = """
CREATE FUNCTION twice(x BIGINT) RETURNS BIGINT RETURN x * 2;
CREATE TABLE customers (id BIGINT, street STRING);
CREATE TABLE notes (id BIGINT, note STRING);
CREATE VIEW streets (id BIGINT, street STRING) AS SELECT twice(id), street FROM customers;
"""
NEW = OLD + "CREATE TABLE made (id BIGINT, street STRING) FILLED FROM ({});"


def load(text: str, name: str = "2") -> Release:
    """A release of one text."""
    return load_texts([("all.sql", text)], name=name, default_schema="s")


def planned(new: str, *approve: str, old: str = OLD) -> Migration:
    """The migration between two texts."""
    return plan_migration(
        Baseline.from_release(load(old, "1")), load(new), approve=approve,
        sizes=lambda item: TableSize(7, 100) if item == "i2" else None,
    )


def filled(migration: Migration) -> tuple[str, tuple[str, ...], Identity | None]:
    """The query, what it reads, and whose rows it counts."""
    (target,) = [each for each in migration.targets if each.fill is not None]
    assert target.fill is not None
    return (
        target.fill.query, tuple(str(each.key) for each in target.fill.objects),
        target.fill.counted,
    )


def test_it_reads_what_is_in_force() -> None:
    """Tables, and what views and functions lead to, in the order in which they are needed."""
    migration = planned(NEW.format("SELECT id, street FROM customers"))
    assert filled(migration) == (
        "SELECT id, street FROM s.customers", ("s.customers",), ("relation", "s", "customers")
    )
    (change,) = migration.plan.changes
    assert (change.action, change.contents, change.rows) == ("create", "fill", 7)
    assert [(step.op, step.name) for step in migration.plan.steps] == [
        ("fill", "s.made"), ("seal", "s.customers"), ("unseal", "s.customers"),
        ("create", "s.made"),
    ]
    through = planned(NEW.format("SELECT t.id, note FROM streets t JOIN notes USING (id)"))
    query, objects, counted = filled(through)
    assert (query, counted) == ("SELECT t.id, note FROM s.streets t JOIN s.notes USING (id)", None)
    assert objects == ("function:s.twice", "s.customers", "s.notes", "s.streets")


def test_a_name_that_is_not_in_force_leads_to_the_one_that_it_continues() -> None:
    """Of an object that the release renames: its new name, and any that it had."""
    renamed = NEW.replace(
        "CREATE TABLE notes (id BIGINT, note STRING);",
        "CREATE TABLE remarks (id BIGINT, note STRING) RENAMED FROM (hints, notes);",
    )
    for name in ("remarks", "s.hints", "NOTES"):
        query, objects, counted = filled(planned(renamed.format(f"SELECT id, note FROM {name}")))
        assert (query, objects) == ("SELECT id, note FROM s.notes", ("s.notes",)), name
        assert counted == ("relation", "s", "notes")


def test_a_name_from_before_the_release_in_force_leads_nowhere() -> None:
    """Where the rename is behind it, the table has one name in force, and the query gives that."""
    renamed = NEW.replace("CREATE TABLE notes (id BIGINT, note STRING);", "") + (
        "CREATE TABLE remarks (id BIGINT, note STRING) RENAMED FROM notes;"
    )
    (entry,) = planned(
        renamed.format("SELECT id, note FROM notes"), old=OLD.replace("notes", "remarks")
    ).plan.blocked
    assert (entry.name, entry.code, entry.reason) == (
        "s.made", "CM0334",
        "FILLED FROM reads s.notes, which the release in force does not have",
    )


def test_what_is_missing_in_force_is_asked_for() -> None:
    """A table of the new release alone is not read; by an approval the other one starts empty."""
    new = NEW.format("SELECT id, note FROM fresh") + "CREATE TABLE fresh (id BIGINT, note STRING);"
    (entry,) = planned(new).plan.blocked
    assert (entry.name, entry.code, entry.reason) == (
        "s.made", "CM0334",
        "FILLED FROM reads s.fresh, which the release in force does not have",
    )
    approved = planned(new, "s.made").plan
    assert approved.applyable
    assert approved.approved == ("s.made",)
    assert {step.op for step in approved.steps} == {"build", "create"}


@pytest.mark.parametrize("old", ["", "CREATE TABLE made (id BIGINT, street STRING);"])
def test_there_is_nothing_to_fill(old: str) -> None:
    """In a fresh installation, and where the table is there already: the decision is recorded."""
    release = load(NEW.format("SELECT id, street FROM customers"))
    baseline = Baseline.from_release(load(OLD + old, "1")) if old else Baseline.empty()
    migration = plan_migration(baseline, release)
    assert migration.plan.applyable
    assert not any(target.fill for target in migration.targets)
    made = next(each for each in migration.targets if each.definition.name == "made")
    assert len(made.applied) == 1


def test_it_is_no_dependency_of_the_new_release() -> None:
    """What it reads may go; a compiled manifest has the query with its names in full."""
    release = load("CREATE TABLE made (id BIGINT) FILLED FROM (SELECT id FROM customers);")
    assert release.uses == {("relation", "s", "made"): ()}
    (compiled,) = decode_manifest(compile_release(release, None)).objects
    assert compiled.filled_from == "SELECT id FROM s.customers"


@pytest.mark.parametrize(
    ("text", "code", "message"),
    [
        ("CREATE TABLE t (a INT) FILLED FROM (SELECT 1 AS a) WITH (contents = 'derived');",
         "CM0106", "table s.t has FILLED FROM"),
        ("CREATE TABLE t (a INT, b INT) FILLED FROM (SELECT 1 AS a);",
         "CM0105", "table s.t has 2 columns to fill, its FILLED FROM selects 1"),
        ("CREATE TABLE t (a INT) FILLED FROM (SELECT 1 AS a FROM);", "CM0119",
         "FILLED FROM of s.t is no SQL of Spark: it ends too early"),
        ("CREATE VIEW v (a INT) FILLED FROM (SELECT 1) AS SELECT 1 AS a;", "CM0101",
         "expected a clause of CREATE VIEW, found 'FILLED'"),
        ("CREATE TABLE t (a INT) FILLED FROM SELECT 1;", "CM0101", "expected `(`"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_query_is_found_in_the_release(
    text: str, code: str, message: str
) -> None:
    """Its place, its number of columns and its syntax, without a catalog and without Spark."""
    from catalog_migrate.release.loader import require_bodies

    with pytest.raises(InvalidRelease) as caught:
        require_bodies(load(text))
    (problem,) = caught.value.problems
    assert problem.code == code
    assert message in problem.message


@pytest.mark.parametrize(
    ("query", "relation"),
    [
        ("SELECT a, b FROM s.t", ("s", "t")),
        ("SELECT * FROM s.T AS x", ("s", "t")),
        ("SELECT t.a + 1 AS b FROM `s`.`t` t", ("s", "t")),
        ("SELECT count(*) FROM s.t", None),
        ("SELECT DISTINCT a FROM s.t", None),
        ("SELECT a FROM s.t WHERE a > 1", None),
        ("SELECT a FROM s.t LIMIT 3", None),
        ("SELECT a FROM s.t, s.u", None),
        ("SELECT a FROM s.t UNION ALL SELECT a FROM s.t", None),
        ("WITH t AS (SELECT 1) SELECT * FROM t", None),
        ("FROM s.t |> SELECT a", None),
        ("SELECT a FROM s.t TABLESAMPLE (10 ROWS)", None),
    ],
)  # fmt: skip
def test_only_a_query_of_every_row_of_one_table_is_counted(
    query: str, relation: tuple[str, str] | None
) -> None:
    """By its text alone, and never where that is not plain."""
    assert whole_relation(query) == relation
