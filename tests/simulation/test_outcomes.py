"""What a start reports, where the simulated engine makes it easy to see."""

from __future__ import annotations

from catalog_migrate.model.objects import Column, ObjectDefinition
from tests.simulation.draft import DraftedRelease
from tests.simulation.installation import Installation, release_of

TABLE = ObjectDefinition("s", "table", "t", (Column("k", "BIGINT", False),), depends_on=())


def test_a_release_of_another_name_and_the_same_objects_is_unchanged() -> None:
    """Its name is put on record; nobody is said to have been followed."""
    place = Installation(persistent=False)
    outcomes = []
    for name in ("1", "2", "2"):
        draft = DraftedRelease(name, (TABLE,), {}, (), ())
        outcomes.append(place.start(draft, release_of(draft))[1].outcome)
    assert outcomes == ["initialized", "unchanged", "unchanged"]
    state = place.state()
    assert state is not None
    in_force = state.release_in_force()
    assert in_force is not None
    assert in_force.name == "2"
