"""Every real row of PostgreSQL 15's catalog is there after each upgrade, column by column."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from catalog_migrate.errors import MigrationBlocked

pytestmark = pytest.mark.spark

FIXTURES = Path(__file__).parents[2] / "fixtures" / "postgres_catalog"
DECISIONS = ("using", "default", "renamed_from", "dropped")
WIDENED = {("SMALLINT", "INT"), ("SMALLINT", "BIGINT"), ("INT", "BIGINT"), ("FLOAT", "DOUBLE")}


def objects(version: int) -> dict[str, dict[str, Any]]:
    """The objects of a manifest by name."""
    content = json.loads((FIXTURES / f"{version}.json").read_text(encoding="utf-8"))
    return {f"{one['schema']}.{one['name']}": one for one in content["objects"]}


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
    before, after = objects(old), objects(new)
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
    for name, one in objects(version).items():
        fields = server.spark.table(name).schema
        found = [field.name for field in fields]
        wanted = [column["name"] for column in one["columns"]]
        if found != wanted:
            wrong[name] = (wanted, found)
    return wrong


def test_fifteen_to_sixteen_to_eighteen(server: Any, tmp_path: Path) -> None:
    """The detour by 16 keeps each of 20,817 rows; stripped of its decisions it is blocked whole."""
    assert server.load() == 20_817
    assert server.differing(15) == {}
    for old, new in ((15, 16), (16, 18)):
        state = server.open().state()
        with pytest.raises(MigrationBlocked) as caught:
            server.start(stripped(new, tmp_path))
        blocked = [(one.name, one.column) for one in caught.value.plan.blocked]
        assert set(blocked) == undecided(old, new)
        assert len(blocked) == len(set(blocked))
        assert all(one.remedy for one in caught.value.plan.blocked)
        assert server.open().state().serial == state.serial
        report = server.start(new)
        assert (report.outcome, report.release, report.unfilled) == ("migrated", str(new), ())
        assert server.differing(new) == {}
        assert shape(server, new) == {}
        assert server.open().status().pending == 0
        point = report.plan.point_of_no_return
        if new == 16:
            assert point.after == "retention"
            attributes = server.shard("pg_catalog.pg_attribute")
    # a column of 3,054 rows went in place, the only one of the series that may
    assert (point.after, point.names) == ("commit", ("pg_catalog.pg_attribute.attcacheoff",))
    assert server.shard("pg_catalog.pg_attribute") == attributes
    assert server.start(18).outcome == "unchanged"
    assert server.start(15).outcome == "fenced_out"
    assert server.start(16).outcome == "fenced_out"

    # tables that nothing changed keep their very shard through both upgrades
    state = server.open().state()
    copied = {
        str(state.items[record.item_id].definition.item_name)
        for record in state.shards.values()
        if record.source is not None and record.item_id in state.items
    }
    changed = {
        name
        for name, one in objects(18).items()
        if one["kind"] == "table"
        and name in objects(15)
        and one["columns"] != objects(15)[name]["columns"]
    }
    assert copied <= changed
    assert {"pg_catalog.pg_attribute", "pg_catalog.pg_database"} <= copied
