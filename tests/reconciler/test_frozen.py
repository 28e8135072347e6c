"""Catalogs of the version before programs were stored open, finish, upgrade and roll back."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from catalog_migrate.catalog.opening import read_state
from catalog_migrate.errors import StalePlan
from catalog_migrate.migrations.reconcile import list_pending_work
from catalog_migrate.planner.plan import Plan
from catalog_migrate.planner.planfile import decode_plan, plan_hash
from catalog_migrate.testing.engine import SimulatedEngine
from catalog_migrate.testing.starts import roll_back
from catalog_migrate.testing.world import SimulatedClock
from tests.reconciler.frozen import HERE, KILLED, THREE, TWO, Place, made

OUTCOMES = {"rest": "unchanged", "intent": "migrated", "tombstones": "resumed"}


def thawed(name: str) -> Place:
    """The world of a frozen catalog and its log, as the earlier version wrote it."""
    place = made(name)
    place.thaw(name)
    return place


def rows(place: Place) -> list[object]:
    """The rows of orders."""
    state = read_state(place.log)
    (path,) = (
        item.shard for item in state.items.values() if item.definition.name == "orders"
    )
    return list(place.world.newest(f"/w/{path}").rows)


@pytest.mark.parametrize("name", KILLED)
def test_it_finishes_upgrades_and_goes_back(name: str) -> None:
    """What was pending is finished by its old records; then release 3, and back to release 2."""
    place = thawed(name)
    pending = list_pending_work(read_state(place.log))
    assert bool(pending) == (name != "rest")
    assert place.start(TWO, "2").outcome == OUTCOMES[name]
    assert list_pending_work(read_state(place.log)) == []
    assert rows(place) == [{"id": 1, "amount": 2, "remark": "kept"}]
    third = place.start(THREE, "3")
    assert third.plan is not None
    assert third.steps == third.plan.steps
    assert [one.outcome for one in third.executed] == ["done"] * len(third.plan.steps)
    serial = third.serial - 1
    back = roll_back(
        SimulatedEngine(place.world, persistent=True), place.log, to=serial,
        clock=SimulatedClock(1_800_000_000.0), holder="back", approve=["s.fresh.x"],
    )
    assert back.outcome == "rolled_back"
    assert rows(place) == [{"id": 1, "amount": 2, "remark": "kept"}]
    names = {name.name for name in place.world.names.relations.values()}
    assert {str(each) for each in names} == {"s.orders", "s.fresh", "s.still", "s.big", "s.first"}


def test_a_plan_of_format_1_0_applies() -> None:
    """A plan that was approved before steps told of copies is the plan made now."""
    place = thawed("rest")
    approved = decode_plan((HERE / "plan.json").read_bytes())
    assert approved.format_version == "1.0"
    with pytest.raises(StalePlan, match="does not describe this catalog"):
        place.start(THREE, "3", plan=approved)  # made for a catalog of another lineage
    base = replace(approved.base, lineage=read_state(place.log).lineage)
    assert place.start(THREE, "3", plan=replace(approved, base=base)).outcome == "migrated"


def test_a_plan_of_format_1_1_applies() -> None:
    """A plan of before tables were filled is the plan made now, with the program that it has."""
    place, approved = planned()
    with pytest.raises(StalePlan):
        place.start(THREE, "3", plan=replace(approved, steps=approved.steps[1:]))
    assert place.start(THREE, "3", plan=approved).outcome == "migrated"


def planned() -> tuple[Place, Plan]:
    """A frozen catalog, and the plan of release 3 as format 1.1 has it."""
    place = thawed("rest")
    plan = place.start(THREE, "3", read_only=True).plan
    assert plan is not None
    older = replace(plan, format_version="1.1")
    return place, replace(older, plan_hash=plan_hash(older))
