"""The planner on PostgreSQL's own catalog at three releases."""

from __future__ import annotations

from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from catalog_migrate.planner.baseline import Baseline
from catalog_migrate.planner.planning import plan_migration
from catalog_migrate.release.loader import load_release
from catalog_migrate.release.release import Release

DATA = Path(__file__).parents[2].parent / "shared" / "data" / "postgres_catalog"
pytestmark = pytest.mark.skipif(not DATA.exists(), reason="the shared data are not here")


@cache
def release(version: int) -> Release:
    """One of the three manifests."""
    return load_release(DATA / f"{version}.json")


def stripped(version: int) -> Release:
    """The manifest without its decisions."""
    whole = release(version)
    return replace_objects(
        whole,
        tuple(
            replace(
                one,
                dropped=(),
                columns=tuple(
                    replace(column, using=None, default=None, renamed_from=None)
                    for column in one.columns
                ),
            )
            for one in whole.objects
        ),
    )


def replace_objects(whole: Release, objects: tuple[Any, ...]) -> Release:
    """The release with other objects of the same names."""
    return Release(whole.name, objects, whole.manifest_hash, whole.uses, whole.places)


@pytest.mark.parametrize(
    ("old", "new", "own", "create", "migrate", "unchanged"),
    [(15, 16, 22, 1, 65, 143), (16, 18, 24, 4, 97, 112), (15, 18, 35, 5, 102, 106)],
)
def test_series_is_decided_and_counted(
    old: int, new: int, own: int, create: int, migrate: int, unchanged: int
) -> None:
    """Each path has its known number of changed objects, nothing dropped, nothing undecided."""
    plan = plan_migration(Baseline.from_release(release(old)), release(new)).plan
    assert plan.summary == {
        "create": create, "drop": 0, "migrate": migrate, "redefine": 0, "update": 0, "refresh": 0,
        "restart": 0, "unchanged": unchanged,
    }
    assert sum(change.cause == "self" for change in plan.changes) == own
    assert (plan.blocked, plan.applyable) == ((), True)
    ops = Counter(step.op for step in plan.steps)
    tables = sum(change.kind == "table" for change in plan.changes)
    moved = Counter(change.contents for change in plan.changes if change.kind == "table")
    assert moved.total() == tables
    assert (ops["copy"], ops["populate"], ops["evolve"]) == (
        moved["copy"], moved["derived"], moved["evolve"]
    )
    assert ops["create"] == ops["drop"] + create
    stays = sum(
        change.kind == "table" and change.action == "migrate" and change.contents != "copy"
        for change in plan.changes
    )
    assert ops["drop"] == len(plan.drops) - stays


def test_same_release_is_no_change() -> None:
    """Planning the release in force is empty."""
    assert plan_migration(Baseline.from_release(release(16)), release(16)).plan.is_empty


def test_detour_by_16_ends_in_the_same_objects(make: Any) -> None:
    """15 to 16 to 18 and 15 to 18 differ in nothing but ids."""
    first = Baseline.from_release(release(15))
    second = make.after(first, plan_migration(first, release(16)))
    detour = make.after(second, plan_migration(second, release(18)))
    direct = make.after(first, plan_migration(first, release(18)))

    def end(baseline: Baseline) -> dict[Any, Any]:
        return {
            identity: (held.definition, held.applied, set(held.uses))
            for identity, held in baseline.objects.items()
        }

    assert end(detour) == end(direct)


@pytest.mark.parametrize(("old", "new"), [(15, 16), (16, 18), (15, 18)])
def test_without_decisions_every_undecided_column_is_blocked(old: int, new: int) -> None:
    """Stripped of its decisions, the plan is blocked once for each column that needed one."""
    baseline = Baseline.from_release(release(old))
    decided = plan_migration(baseline, release(new))
    needed = set()
    for target in decided.targets:
        if target.contents != "copy" and not target.reshape:
            continue
        before = {
            column.name: column for column in baseline.objects[target.old].definition.columns
        }
        for column in target.definition.columns:
            was = before.get(column.name)
            if column.using is not None and (was is None or was.type != column.type):
                needed.add((f"{target.definition.key}", column.name))
            if column.renamed_from is not None and was is None:
                needed.add((f"{target.definition.key}", column.renamed_from))
        needed.update(
            (f"{target.definition.key}", name)
            for name in target.definition.dropped
            if name in before
        )
    plan = plan_migration(baseline, stripped(new)).plan
    assert not plan.applyable
    assert {(one.name, one.column) for one in plan.blocked} == needed
    assert len(plan.blocked) == len(needed)
    assert all(one.remedy for one in plan.blocked)


def test_stripped_renames_are_asked_about() -> None:
    """The two renamed columns of 18 are found as probable renames."""
    plan = plan_migration(Baseline.from_release(release(16)), stripped(18)).plan
    asked = {(one.name, one.old_name, one.column) for one in plan.questions}
    assert {
        ("pg_catalog.pg_collation", "colliculocale", "colllocale"),
        ("pg_catalog.pg_database", "daticulocale", "datlocale"),
    } <= asked
