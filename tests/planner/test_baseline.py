"""Baselines from a release and from a catalog's state."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from catalog_migrate.catalog.state import State
from catalog_migrate.errors import DependencyCycle
from catalog_migrate.planner.baseline import Baseline
from catalog_migrate.planner.plan import Base
from catalog_migrate.planner.planning import plan_migration

Committed = Callable[..., State]


def test_release_is_numbered_as_in_a_fresh_catalog(make: Any) -> None:
    """Ids follow the creation order, not the order of the definitions."""
    baseline = make.baseline(make.view("a", ["s.z"]), make.table("z"))
    assert [
        (held.definition.name, held.item_id, held.global_id)
        for held in baseline.objects.values()
    ] == [("z", "i1", "s1"), ("a", "i2", "s2")]
    assert (baseline.next_item, baseline.next_global, baseline.base) == (3, 3, Base(release="1"))


def test_cycle_is_an_error(make: Any) -> None:
    """Objects that use each other have no creation order."""
    with pytest.raises(DependencyCycle):
        make.baseline(make.view("a", ["s.b"]), make.view("b", ["s.a"]))


def test_state_gives_back_the_baseline(make: Any, committed: Committed) -> None:
    """What was committed is what is planned from, bound to lineage, serial and release."""
    objects = [make.table("t"), make.view("v", ["s.t"]), make.view("w", ["s.v", "s.t"])]
    baseline = make.baseline(*objects)
    read = Baseline.from_state(committed(baseline), uri="file:/c")
    assert read.base == Base("file:/c", "abc", 3, "1")
    assert (read.next_item, read.next_global) == (4, 4)
    assert {identity: held.item_id for identity, held in read.objects.items()} == {
        identity: held.item_id for identity, held in baseline.objects.items()
    }
    assert set(read.objects["relation", "s", "w"].uses) == {
        ("relation", "s", "v"), ("relation", "s", "t"),
    }
    assert plan_migration(read, make.release(*objects)).targets == ()


def test_names_of_other_owners_are_taken(make: Any, committed: Committed) -> None:
    """A user's objects are no part of the release and block new built-ins of their names."""
    read = Baseline.from_state(committed(make.baseline(make.table("t")), owner="user"))
    assert read.objects == {}
    assert read.taken == {("relation", "s", "t"): "user"}
    plan = plan_migration(read, make.release(make.table("t"))).plan
    assert [one.code for one in plan.blocked] == ["CM0306"]
