"""What `status` and `show` say of users' views and functions that are on record."""

from __future__ import annotations

import json

import pytest

from catalog_migrate.api.status import describe_object, status_of
from catalog_migrate.catalog.log import CatalogLog
from catalog_migrate.catalog.memory_log import MemoryLog
from catalog_migrate.catalog.opening import create_catalog
from catalog_migrate.catalog.records import (
    AllocatorRecord,
    ItemRecord,
    MappingRecord,
    UserObjectRecord,
    identity_text,
)
from catalog_migrate.catalog.state import State
from catalog_migrate.cli.inspection import object_text, status_document, status_text
from catalog_migrate.errors import UnknownObject
from catalog_migrate.model.objects import Column, ObjectDefinition
from tests.decisions import Changes, commit

H = "1:" + "0" * 32
BROKEN = UserObjectRecord(
    "team", "view", "Cities", reads=("relation:s.t",), state="broken",
    condition="UNRESOLVED_COLUMN.WITH_SUGGESTION", reason="no column town", release="2",
    since="2027-01-15T08:00:00+00:00", original="SELECT town FROM s.t",
    repaired="SELECT city AS town FROM s.t", repaired_at=4, serial=4,
)
READS_IT = UserObjectRecord("team", "function", "f", reads=("relation:team.cities",), serial=4)


@pytest.fixture
def state() -> State:
    """A catalog with one table, a user's view over it that broke, and a function over that."""
    log: CatalogLog = MemoryLog("memory:users")
    create_catalog(log, warehouse="/w")

    def changes_for(_: State) -> Changes:
        changes = Changes()
        changes.put("allocator", "i", AllocatorRecord(2))
        changes.put("allocator", "s", AllocatorRecord(2))
        changes.put("mapping", "relation:s.t", MappingRecord(
            schema="s", kind="view", name="t", owner="release", item_id="i1", global_id="s1",
            fingerprint=H, definition_hash=H, storage_hash=H, text_hash=H, comment_hash=H,
        ))
        changes.put("item", "i1", ItemRecord("release", "s1", ObjectDefinition(
            schema="s", kind="view", name="t", columns=(Column("city", "STRING"),), sql="SELECT 1",
        )))
        for row in (BROKEN, READS_IT):
            changes.put("user_object", identity_text(row.key.identity), row)
        return changes

    return commit(log, changes_for, kind="test")


NEXT = (
    "its owner alters or drops it (catalog-migrate show team.Cities);"
    " catalog-migrate status --users looks again"
)


def test_status(state: State) -> None:
    """Those that are broken are listed with Spark's error class, reason, release, since when."""
    found = status_of(state)
    assert found.users == (BROKEN,)
    lines = status_text(found).splitlines()
    at = lines.index(
        "users      view team.Cities: broken since 2027-01-15T08:00:00+00:00 by release 2:"
        " [UNRESOLVED_COLUMN.WITH_SUGGESTION] no column town"
    )
    assert lines[at + 1] == f"             next: {NEXT}"
    assert json.loads(json.dumps(status_document(found)["users"])) == [{
        "kind": "view", "name": "team.Cities", "state": "broken",
        "condition": "UNRESOLVED_COLUMN.WITH_SUGGESTION", "reason": "no column town",
        "release": "2", "since": "2027-01-15T08:00:00+00:00", "next": NEXT,
    }]


def test_show(state: State) -> None:
    """A user's object shows what it reads and how it is, one of ours which users' read it."""
    found = describe_object(state, "team.cities")
    assert (found["depends_on"], found["state"], found["condition"], found["users_objects"]) == (
        ["s.t"], "broken", "UNRESOLVED_COLUMN.WITH_SUGGESTION", ["function:team.f"],
    )
    assert object_text(found) == (
        "team.Cities\n"
        "  kind        view\n"
        "  state       broken\n"
        "  since       2027-01-15T08:00:00+00:00\n"
        "  by release  2\n"
        "  error       UNRESOLVED_COLUMN.WITH_SUGGESTION\n"
        "  reason      no column town\n"
        "depends on\n"
        "  s.t\n"
        "read by users' objects\n"
        "  function:team.f\n"
        "sql before its repair\n"
        "  SELECT town FROM s.t\n"
    )
    assert describe_object(state, "function:team.f")["depends_on"] == ["team.Cities"]
    assert describe_object(state, "s.t")["users_objects"] == ["team.Cities"]
    with pytest.raises(UnknownObject, match="nothing in this catalog") as caught:
        describe_object(state, "team.city")
    assert caught.value.remedy == "did you mean team.Cities?"
