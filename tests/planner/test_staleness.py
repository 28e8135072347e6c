"""A plan that no longer fits says why, object by object."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from catalog_migrate.planner.baseline import Baseline
from catalog_migrate.planner.plan import Base
from catalog_migrate.planner.planfile import explain_staleness
from catalog_migrate.planner.planning import plan_migration


def at(baseline: Baseline, serial: int, release: str = "1", lineage: str = "abc") -> Baseline:
    """The baseline as a catalog at this serial has it."""
    return replace(baseline, base=Base("file:/c", lineage, serial, release))


def test_plan_for_this_very_state_is_not_stale(make: Any) -> None:
    """Same lineage, same serial: nothing to explain."""
    baseline = at(make.baseline(make.table("t")), 4)
    assert explain_staleness(plan_migration(baseline, make.release()).plan, baseline) == ()


def test_each_moved_object_is_named(make: Any) -> None:
    """Migrated, dropped and created objects are listed by name, with their ids."""
    old = [make.table("gone"), make.table("t"), make.table("u")]
    baseline = at(make.baseline(*old), 4)
    target = make.release(make.table("t", "a BIGINT"), make.table("u"), make.table("n"))
    plan = plan_migration(baseline, target).plan
    other = make.release(
        make.table("t", "a INT, b INT"), make.table("u", "a INT, c INT"), make.table("n"), name="3"
    )
    moved = at(make.after(baseline, plan_migration(baseline, other, approve=["s.gone"])), 5, "3")
    assert explain_staleness(plan, moved) == (
        "the catalog is at serial 5, the plan was made at 4",
        "release 3 is in force, it was 1",
        "s.gone was dropped since (it was s1)",
        "s.n was created since",
        "s.t was migrated since (s5, it was s2)",
        "s.u was created or migrated since (s6)",
    )


def test_other_catalog_and_bare_comparison(make: Any) -> None:
    """A plan for another catalog, and one made by comparing two releases, are refused at once."""
    baseline = at(make.baseline(make.table("t")), 4)
    plan = plan_migration(baseline, make.release()).plan
    assert explain_staleness(plan, at(baseline, 4, lineage="xyz")) == (
        "the plan was made for catalog abc, this is xyz",
    )
    bare = plan_migration(make.baseline(make.table("t")), make.release()).plan
    assert explain_staleness(bare, baseline) == (
        "the plan compares two releases; it was not made for a catalog",
    )
