"""Every real row of PostgreSQL 15's catalog is there after each step, column by column."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from catalog_migrate.api import Catalog
from catalog_migrate.errors import MigrationBlocked

from .conftest import FIXTURES, Server, changed_tables, manifest
from .writers import upgrade_with_writers

if TYPE_CHECKING:
    from catalog_migrate.hook import BootstrapReport

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


def loaded(servers: Any) -> Server:
    """A catalog at 15 with every row."""
    server: Server = servers()
    assert server.load() == 20_817
    assert server.differing(15) == set()
    return server


def back_to(server: Server, serial: int) -> BootstrapReport:
    """A rollback with everything approved that its plan names."""
    catalog = Catalog.open(server.catalog, mode="write")
    plan = catalog.plan_rollback(serial)
    # columns that 16 added in place are all that can be lost: nothing was written since
    assert {one.code for one in plan.blocked} <= {"CM0302", "CM0305"}
    return catalog.rollback(spark=server.spark, to=serial, approve=approvals(plan))


def require(server: Server, version: int, report: Any, outcome: str, **how: bool) -> None:
    """The outcome, every row as the release says, and nothing left to do."""
    assert (report.outcome, report.release) == (outcome, str(version))
    assert server.differing(version, **how) == set()
    assert server.open().status().pending == 0


def copied(server: Server) -> set[str]:
    """Tables that were copied since 15; all others still have their very shard."""
    state = server.open().state()
    return {
        str(state.items[record.item_id].definition.item_name)
        for record in state.shards.values()
        if record.source is not None and record.item_id in state.items
    }


def test_fifteen_to_sixteen_and_back_and_to_eighteen(servers: Any, tmp_path: Path) -> None:
    """To 16, back to 15, then 18 at once: each time 20,817 rows are what the release says.

    Without their decisions 16 and 18 are refused; what was replaced is fenced out. While 18 is made
    foreign writers append to the largest table that it copies.
    """
    server = loaded(servers)
    refuse_without_decisions(server, 15, 16, tmp_path)
    before = server.open().state().serial
    report = server.start(16)
    require(server, 16, report, "migrated")
    assert report.unfilled == ()
    assert report.plan.point_of_no_return.after == "retention"

    require(server, 15, back_to(server, before), "rolled_back")
    assert server.start(15).outcome == "unchanged"
    assert server.start(16).outcome == "fenced_out"

    refuse_without_decisions(server, 15, 18, tmp_path)
    report = upgrade_with_writers(server, "pg_catalog.pg_attribute", "attrelid", 18)
    require(server, 18, report, "migrated")
    assert report.unfilled == ()
    assert report.plan.point_of_no_return.after == "retention"
    assert shape(server, 18) == {}
    assert server.start(18).outcome == "unchanged"
    assert server.start(15).outcome == "fenced_out"
    assert server.start(16).outcome == "fenced_out"

    # tables that nothing changed keep their very shard through it all
    assert copied(server) <= changed_tables(15, 18)
    assert {"pg_catalog.pg_attribute", "pg_catalog.pg_database"} <= copied(server)


@pytest.mark.soak
def test_sixteen_twice_and_to_eighteen_by_spark(servers: Any, tmp_path: Path) -> None:
    """To 16, back to 15, to 16 again, then 18, all rows read by Spark at their names."""
    server = loaded(servers)
    before = server.open().state().serial
    require(server, 16, server.start(16), "migrated", by_spark=True)
    assert shape(server, 16) == {}
    newer = server.open().status().serial
    require(server, 15, back_to(server, before), "rolled_back", by_spark=True)
    require(server, 16, back_to(server, newer), "rolled_back", by_spark=True)
    assert server.start(16).outcome == "unchanged"

    refuse_without_decisions(server, 16, 18, tmp_path)
    attributes = server.shard("pg_catalog.pg_attribute")
    report = upgrade_with_writers(server, "pg_catalog.pg_class", "oid", 18)
    require(server, 18, report, "migrated", by_spark=True)
    assert report.unfilled == ()
    assert shape(server, 18) == {}
    # a column of 3,054 rows went in place, the only one of the series that may
    point = report.plan.point_of_no_return
    assert (point.after, point.names) == ("commit", ("pg_catalog.pg_attribute.attcacheoff",))
    assert server.shard("pg_catalog.pg_attribute") == attributes
    assert copied(server) <= changed_tables(15, 18)
