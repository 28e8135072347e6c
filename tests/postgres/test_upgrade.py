"""Every real row of PostgreSQL 15's catalog is there after each step, column by column."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from catalog_migrate.api import Catalog
from catalog_migrate.errors import MigrationBlocked

from .conftest import FIXTURES, changed_tables, manifest

pytestmark = pytest.mark.spark

DECISIONS = ("using", "default", "renamed_from", "dropped")
WIDENED = {("SMALLINT", "INT"), ("SMALLINT", "BIGINT"), ("INT", "BIGINT"), ("FLOAT", "DOUBLE")}


def stripped(version: int, directory: Path) -> Path:
    """The manifest without a single decision."""
    content = json.loads((FIXTURES / f"{version}.json").read_text(encoding="utf-8"))
    for one in content["objects"]:
        for part in (one, *one.get("columns", ())):
            for key in DECISIONS:
                part.pop(key, None)
    path = directory / f"{version}.json"
    path.write_text(json.dumps(content), encoding="utf-8")
    return path


def undecided(old: int, new: int) -> set[tuple[str, str]]:
    """(table, column) that nobody may guess, worked out from the two manifests alone.

    Those are columns that went, that changed their type in a way that is not a widening, and new
    ones that must not be NULL.
    """
    before, after = manifest(old), manifest(new)
    found = set()
    for name, one in after.items():
        if one["kind"] != "table" or name not in before:
            continue
        columns = {column["name"]: column for column in one["columns"]}
        earlier = {column["name"]: column for column in before[name]["columns"]}
        found |= {(name, column) for column in earlier.keys() - columns.keys()}
        for column, facts in columns.items():
            was = earlier.get(column)
            if was is None:
                if not facts.get("nullable", True):
                    found.add((name, column))
                continue
            retyped = was["type"] != facts["type"]
            tightened = was.get("nullable", True) and not facts.get("nullable", True)
            if tightened or (retyped and (was["type"], facts["type"]) not in WIDENED):
                found.add((name, column))
    return found


def shape(server: Any, version: int) -> dict[str, Any]:
    """Relations whose columns in Spark are not those of the manifest."""
    wrong = {}
    for name, one in manifest(version).items():
        fields = server.spark.table(name).schema
        found = [field.name for field in fields]
        wanted = [column["name"] for column in one["columns"]]
        if found != wanted:
            wrong[name] = (wanted, found)
    return wrong


def approvals(plan: Any) -> tuple[str, ...]:
    """What the plan says may be approved, entry by entry."""
    assert all(one.remedy.startswith("--approve ") for one in plan.blocked)
    return tuple(one.remedy.removeprefix("--approve ") for one in plan.blocked)


def refuse_without_decisions(server: Any, old: int, new: int, directory: Path) -> None:
    """A release that is stripped of its decisions is blocked whole, and nothing is touched."""
    serial = server.open().state().serial
    with pytest.raises(MigrationBlocked) as caught:
        server.start(stripped(new, directory))
    blocked = [(one.name, one.column) for one in caught.value.plan.blocked]
    assert set(blocked) == undecided(old, new)
    assert len(blocked) == len(set(blocked))
    assert all(one.remedy for one in caught.value.plan.blocked)
    assert server.open().state().serial == serial


@pytest.mark.parametrize(
    "by_spark", [False, pytest.param(True, marks=pytest.mark.soak)], ids=["", "by_spark"]
)
def test_fifteen_to_sixteen_and_back_and_to_eighteen(
    servers: Any, tmp_path: Path, by_spark: bool
) -> None:
    """To 16, back to 15, to 16 again, then 18: each time 20,817 rows are what the release says.

    Without their decisions 16 and 18 are refused; what was replaced is fenced out.
    """
    server = servers()

    def require(version: int, report: Any, outcome: str) -> None:
        assert (report.outcome, report.release) == (outcome, str(version))
        assert server.differing(version, by_spark=by_spark) == set()
        assert server.open().status().pending == 0

    assert server.load() == 20_817
    assert server.differing(15, by_spark=by_spark) == set()
    refuse_without_decisions(server, 15, 16, tmp_path)
    before = server.open().state().serial
    report = server.start(16)
    require(16, report, "migrated")
    assert report.unfilled == ()
    assert report.plan.point_of_no_return.after == "retention"
    assert shape(server, 16) == {}

    newer = server.open().status().serial
    catalog = Catalog.open(server.catalog, mode="write")
    back = catalog.plan_rollback(before)
    given = approvals(back)
    # columns that 16 added in place are all that can be lost: nothing was written since
    assert {one.code for one in back.blocked} <= {"CM0302", "CM0305"}
    require(15, catalog.rollback(spark=server.spark, to=before, approve=given), "rolled_back")
    assert server.start(15).outcome == "unchanged"
    assert server.start(16).outcome == "fenced_out"
    again = approvals(catalog.plan_rollback(newer))
    require(16, catalog.rollback(spark=server.spark, to=newer, approve=again), "rolled_back")
    assert server.start(16).outcome == "unchanged"

    refuse_without_decisions(server, 16, 18, tmp_path)
    attributes = server.shard("pg_catalog.pg_attribute")
    report = server.start(18)
    require(18, report, "migrated")
    assert report.unfilled == ()
    assert shape(server, 18) == {}
    # a column of 3,054 rows went in place, the only one of the series that may
    point = report.plan.point_of_no_return
    assert (point.after, point.names) == ("commit", ("pg_catalog.pg_attribute.attcacheoff",))
    assert server.shard("pg_catalog.pg_attribute") == attributes
    assert server.start(18).outcome == "unchanged"
    assert server.start(15).outcome == "fenced_out"
    assert server.start(16).outcome == "fenced_out"

    # tables that nothing changed keep their very shard through it all
    state = server.open().state()
    copied = {
        str(state.items[record.item_id].definition.item_name)
        for record in state.shards.values()
        if record.source is not None and record.item_id in state.items
    }
    assert copied <= changed_tables(15, 18)
    assert {"pg_catalog.pg_attribute", "pg_catalog.pg_database"} <= copied
