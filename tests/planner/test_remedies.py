"""What a blocked plan says to write: written as it stands, the plan is not blocked any more."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

import pytest
from msgspec.structs import replace

from catalog_migrate.planner.baseline import Baseline
from catalog_migrate.planner.plan import Blocked, Plan
from catalog_migrate.planner.planning import plan_migration
from catalog_migrate.policy import Policy, Rule
from catalog_migrate.release.loader import load_manifest, load_texts
from catalog_migrate.release.release import Release


class Retype(NamedTuple):
    """A column that gets another type; ``missing`` is what the remedy leaves to its author."""

    old: str
    new: str
    missing: Mapping[str, str] = {}


_ANY = "<expression over the old columns>"
RETYPES = (
    Retype("STRING", "INT"), Retype("STRING", "DATE"), Retype("STRING", "TIMESTAMP_NTZ"),
    Retype("STRING", "BOOLEAN"), Retype("STRING", "BINARY"), Retype("STRING", "VARCHAR(5)"),
    Retype("STRING", "CHAR(3)"), Retype("VARCHAR(9)", "VARCHAR(5)"),
    Retype("INT", "STRING"), Retype("BIGINT", "INT"), Retype("INT", "BOOLEAN"),
    Retype("INT", "FLOAT"), Retype("DOUBLE", "DECIMAL(10,2)"), Retype("DECIMAL(10,2)", "INT"),
    Retype("BOOLEAN", "INT"), Retype("BOOLEAN", "STRING"), Retype("BINARY", "STRING"),
    Retype("DATE", "TIMESTAMP"), Retype("TIMESTAMP", "DATE"), Retype("TIMESTAMP", "BIGINT"),
    Retype("TIMESTAMP", "TIMESTAMP_NTZ"), Retype("DATE", "STRING"),
    Retype("INT", "DATE", {_ANY: "date_from_unix_date(c)"}),
    Retype("DATE", "INT", {_ANY: "unix_date(c)"}),
    Retype("STRING", "ARRAY<INT>", {_ANY: "from_json(c, 'ARRAY<INT>')"}),
    Retype("STRING", "STRUCT<a: INT>", {_ANY: "from_json(c, 'a INT')"}),
    Retype("INT", "ARRAY<INT>", {_ANY: "array(c)"}),
    Retype("ARRAY<INT>", "STRING"), Retype("ARRAY<STRING>", "ARRAY<INT>"),
    Retype("MAP<STRING, STRING>", "MAP<STRING, INT>"),
    Retype("MAP<STRING, INT>", "MAP<INT, INT>"),
    Retype("STRUCT<a: INT, b: STRING>", "STRUCT<a: INT>"),
    Retype("STRUCT<a: INT, b: STRING>", "STRUCT<b: STRING, a: INT>"),
    Retype("STRUCT<a: INT>", "STRUCT<b: INT>"),
    Retype("STRUCT<a: STRING>", "STRUCT<a: INT>"),
    Retype("STRUCT<a: INT>", "STRUCT<a: INT, b: INT NOT NULL>", {"<value of b>": "0"}),
    Retype("STRUCT<a: INT>", "STRUCT<a: INT NOT NULL>", {"<value of a>": "0"}),
    Retype("ARRAY<STRUCT<a: INT, b: INT>>", "ARRAY<STRUCT<b: INT>>"),
    Retype("MAP<STRING, STRUCT<a: INT, b: INT>>", "MAP<STRING, STRUCT<b: BIGINT>>"),
    Retype("MAP<STRUCT<a: INT, b: INT>, STRING>", "MAP<STRUCT<a: INT>, STRING>"),
    Retype("STRUCT<x: ARRAY<STRUCT<a: STRING>>>", "STRUCT<x: ARRAY<STRUCT<a: INT, b: INT>>>"),
)  # fmt: skip


def planned(old: str, new: str, *approve: str, policy: Policy | None = None) -> Plan:
    """The plan from one release to another."""
    return plan_migration(
        Baseline.from_release(load(old)), load(new), approve=approve, policy=policy
    ).plan


def load(text: str) -> Release:
    """A release of one text."""
    return load_texts([("all.sql", text)], name="r", default_schema="s")


def blocked(plan: Plan) -> Blocked:
    """The one reason that a plan is blocked for."""
    (entry,) = plan.blocked
    return entry


def completed(remedy: str, missing: Mapping[str, str]) -> str:
    """A remedy with what it leaves to its author."""
    for place, text in missing.items():
        assert place in remedy
        remedy = remedy.replace(place, text)
    assert not re.search(r"<(?:value|expression)[^>]*>", remedy), remedy
    return remedy


@pytest.mark.parametrize("case", RETYPES, ids=lambda case: f"{case.old} to {case.new}")
def test_another_type(case: Retype) -> None:
    """CM0301: the line that is offered takes the place of the column's."""
    table = "CREATE TABLE t (id INT, {});".format
    old = table(f"c {case.old}")
    entry = blocked(planned(old, table(f"c {case.new}")))
    assert (entry.code, entry.column) == ("CM0301", "c")
    assert planned(old, table(completed(entry.remedy, case.missing))).applyable


COLUMNS: tuple[tuple[str, str, str, str, Mapping[str, str]], ...] = (
    ("CM0301", "a STRING", "n INT RENAMED FROM a", "n", {}),
    ("CM0301", "a STRING", "`odd name` INT RENAMED FROM (b, a)", "odd name", {}),
    ("CM0303", "a STRING", "a STRING, n INT NOT NULL", "n", {_ANY: "7"}),
    ("CM0304", "a STRING", "a STRING NOT NULL", "a", {"<value for NULL>": "''"}),
    ("CM0304", "a STRING", "n STRING NOT NULL RENAMED FROM a", "n", {"<value for NULL>": "''"}),
)


@pytest.mark.parametrize(("code", "old", "new", "column", "missing"), COLUMNS)
def test_another_column(
    code: str, old: str, new: str, column: str, missing: Mapping[str, str]
) -> None:
    """A new one that is NOT NULL, one that becomes it, one with another name."""
    table = "CREATE TABLE t (id INT, {});".format
    entry = blocked(planned(table(old), table(new)))
    assert (entry.code, entry.column) == (code, column)
    kept = [line for line in new.split(", ") if not line.startswith((column, f"`{column}`"))]
    if code != "CM0303":
        kept = []
    offered = completed(entry.remedy, missing)
    assert planned(table(old), table(", ".join((*kept, offered)))).applyable


def test_columns_that_go() -> None:
    """CM0302: a clause for each, one behind the other."""
    old, new = "CREATE TABLE t (id INT, a INT, `b c` INT);", "CREATE TABLE t (id INT) {};"
    entries = planned(old, new.format("")).blocked
    assert [entry.code for entry in entries] == ["CM0302", "CM0302"]
    assert planned(old, new.format(" ".join(entry.remedy for entry in entries))).applyable


GIVEN_UP = (
    ("drop", "CM0305", "CREATE TABLE t (id INT); CREATE TABLE kept (a INT);",
     "CREATE TABLE kept (a INT);"),
    ("fill", "CM0334", "CREATE TABLE kept (a INT);",
     "CREATE TABLE kept (a INT); CREATE TABLE t (id INT) FILLED FROM (SELECT a FROM missing);"),
)  # fmt: skip


@pytest.mark.parametrize(("what", "code", "old", "new"), GIVEN_UP)
def test_an_approval(what: str, code: str, old: str, new: str) -> None:
    """A table that goes, or one that is filled from what is not in force."""
    entry = blocked(planned(old, new))
    assert entry.code == code
    approved = re.match(r"--approve (\S+)", entry.remedy)
    assert approved is not None, what
    assert planned(old, new, approved[1]).applyable


def test_a_table_that_goes_by_a_statement() -> None:
    """CM0305: the other thing that is offered."""
    _, _, old, new = GIVEN_UP[0]
    remedy = blocked(planned(old, new)).remedy
    offered = re.search(r"\(or (DROPPED TABLE \S+) in the release\)", remedy)
    assert offered is not None
    assert planned(old, f"{new} {offered[1]};").applyable


def test_a_rule_that_asks() -> None:
    """CM0309: the approval that it names."""
    policy = Policy(rules=(Rule("convert", "approve"),))
    old, new = "CREATE TABLE t (c STRING);", "CREATE TABLE t (c INT USING CAST(c AS INT));"
    entry = blocked(planned(old, new, policy=policy))
    assert (entry.code, entry.remedy) == ("CM0309", "--approve s.t.c")
    assert planned(old, new, "s.t.c", policy=policy).applyable


def test_a_rename_that_cannot_be() -> None:
    """CM0312: either thing that is offered: leave it out, or let the other one go on elsewhere."""
    old = "CREATE TABLE a (x INT); CREATE TABLE b (y INT);"
    new = "CREATE TABLE a (x INT){}; CREATE TABLE b (y INT){};".format
    entry = blocked(planned(old, new(" RENAMED FROM b", "")))
    assert entry.code == "CM0312"
    assert entry.remedy.startswith("take s.b out of RENAMED FROM, or let what has the name go on")
    assert planned(old, new("", "")).applyable
    swapped = "CREATE TABLE a (y INT) RENAMED FROM b; CREATE TABLE b (x INT) RENAMED FROM a;"
    assert planned(old, swapped).applyable


def test_what_is_to_be_called_otherwise_or_written() -> None:
    """CM0306 and CM0307: another name, and the SQL of a view."""
    free = "CREATE TABLE kept (a INT);"
    named = free + "CREATE TABLE {} (a INT);"
    baseline = replace(Baseline.from_release(load(free)), taken={("relation", "s", "t"): "user"})
    entry = blocked(plan_migration(baseline, load(named.format("t"))).plan)
    assert (entry.code, entry.remedy) == (
        "CM0306",
        "rename or drop that object, or call the table of the release otherwise",
    )
    assert plan_migration(baseline, load(named.format("u"))).plan.applyable
    view = '"kind": "view", "name": "v", "columns": [{"name": "a", "type": "INT"}], %s'
    manifest = '{"format_version": "1.0", "release": "2", "objects": [{"schema": "s", %s}]}'
    empty, whole = (
        load_manifest((manifest % (view % text)).encode())
        for text in ('"depends_on": []', '"sql": "SELECT 1 AS a"')
    )
    baseline = Baseline.from_release(load(free))
    entry = blocked(plan_migration(baseline, empty, approve=["s.kept"]).plan)
    assert (entry.code, entry.remedy) == ("CM0307", "write the SQL of s.v into the release")
    assert plan_migration(baseline, whole, approve=["s.kept"]).plan.applyable

