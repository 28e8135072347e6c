"""The empty plan of a release that is in force, told without comparing anything."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from catalog_migrate.catalog.records import (
    FORMAT_VERSION,
    AllocatorRecord,
    ConfigRecord,
    MappingRecord,
    ReleaseRecord,
)
from catalog_migrate.catalog.state import State, encode_record
from catalog_migrate.planner.assembly import in_force
from catalog_migrate.planner.baseline import Baseline
from catalog_migrate.planner.plan import Base

Rows = list[tuple[str, str, Any]]


def rows_of(*, fingerprint: str = "1:aa") -> Rows:
    """A catalog at serial 3 with one table of release 1, and one of a user's."""
    def mapping(name: str, owner: Any, number: int, hashed: str) -> tuple[str, str, MappingRecord]:
        return "mapping", f"relation:s.{name}", MappingRecord(
            "s", "table", name, owner, f"i{number}", f"s{number}", hashed, "", "1:cc"
        )

    return [
        ("config", "format_version", ConfigRecord(str(FORMAT_VERSION))),
        ("config", "serial", ConfigRecord("3")),
        ("config", "lineage", ConfigRecord("abc")),
        ("allocator", "i", AllocatorRecord(3)),
        ("allocator", "s", AllocatorRecord(4)),
        ("release", "release/000001", ReleaseRecord("release", "1", "h", 3, in_force=True)),
        mapping("t", "release", 1, fingerprint),
        mapping("u", "user", 2, "0:bb"),
    ]


def state_of(rows: Rows) -> State:
    """The rows as they are read back."""
    return State.from_rows(9, [(kind, key, encode_record(record)) for kind, key, record in rows])


def test_the_release_in_force_has_an_empty_plan() -> None:
    """Same name, same hash, as many objects: the plan says so, and no item is looked at."""
    migration = in_force(state_of(rows_of()), "1", "h", 1, uri="file:/c")
    assert migration is not None
    plan = migration.plan
    assert (plan.is_empty, plan.applyable, plan.summary["unchanged"]) == (True, True, 1)
    assert (plan.base, plan.target.release) == (Base("file:/c", "abc", 3, "1"), "1")
    assert (migration.targets, migration.next_item, migration.next_global) == ((), 3, 4)


@pytest.mark.parametrize(
    ("name", "manifest_hash", "objects"), [("2", "h", 1), ("1", "other", 1), ("1", "h", 2)]
)
def test_anything_else_is_compared(name: str, manifest_hash: str, objects: int) -> None:
    """Another name, another hash, another number of objects: no answer."""
    assert in_force(state_of(rows_of()), name, manifest_hash, objects) is None


def test_hashes_of_an_earlier_recipe_are_compared() -> None:
    """An object stamped by another scheme has to be stamped again; a user's object does not."""
    assert in_force(state_of(rows_of(fingerprint="0:aa")), "1", "h", 1) is None


def test_an_empty_catalog_has_nothing_in_force() -> None:
    """Without a release on record the release is compared."""
    rows = [row for row in rows_of() if row[0] != "release"]
    assert in_force(state_of(rows), "1", "h", 1) is None


def test_it_is_the_plan_that_comparing_makes(
    make: Any, committed: Callable[[Baseline], State]
) -> None:
    """Hash for hash the plan that reading every definition comes to."""
    from catalog_migrate.planner.planning import plan_migration

    objects = (make.table("t"), make.view("v", ["s.t"]))
    state = committed(make.baseline(*objects))
    release = make.release(*objects, name="1")
    compared = plan_migration(Baseline.from_state(state, uri="u"), release)
    standing = state.release_in_force()
    assert standing is not None
    known = in_force(state, "1", standing.manifest_hash, 2, uri="u")
    assert known is not None
    assert known.plan.summary == compared.plan.summary
    assert (known.plan.base, known.next_item) == (compared.plan.base, compared.next_item)
