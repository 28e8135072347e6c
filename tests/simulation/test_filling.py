"""Tables filled from others on the simulated engine: every call the last, busy writers."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from catalog_migrate.catalog.memory_log import MemoryLog
from catalog_migrate.catalog.opening import read_state
from catalog_migrate.errors import EngineFailure, NotReconciled, RowNotConverted
from catalog_migrate.hook import BootstrapReport
from catalog_migrate.model.names import ItemName
from catalog_migrate.model.objects import Check, Column, ObjectDefinition
from catalog_migrate.release.release import Release
from catalog_migrate.testing.engine import SimulatedEngine
from catalog_migrate.testing.starts import migrate
from catalog_migrate.testing.world import SimulatedClock, World
from tests.simulation.crashes import CrashPoint, SimulatedCrash

QUERY = "SELECT id, street FROM s.customers"
WHOLE = ObjectDefinition(
    "s", "table", "customers",
    (Column("id", "INT"), Column("name", "STRING"), Column("street", "STRING")),
)  # fmt: skip
WANTED = ObjectDefinition(
    "s", "view", "wanted", (Column("id", "INT"), Column("street", "STRING")),
    depends_on=("s.customers",), sql="SELECT id, street FROM s.customers WHERE id > 1",
    text_hash="w", definition_hash="w",
)  # fmt: skip
ADDRESSES = ObjectDefinition(
    "s", "table", "addresses", (Column("customer_id", "INT", nullable=False),
                                Column("street", "STRING")), filled_from=QUERY,
)  # fmt: skip
NARROW = replace(WHOLE, columns=WHOLE.columns[:2], dropped=("street",))
WIDER = replace(WHOLE, columns=(Column("id", "BIGINT"), *WHOLE.columns[1:]))
OLD_ROWS = ({"id": 1, "name": "a", "street": "s1"}, {"id": 2, "name": "b", "street": "s2"})

CHANGES: dict[str, tuple[ObjectDefinition, ...]] = {
    "stays": (WHOLE, ADDRESSES),
    "loses the column in place": (NARROW, ADDRESSES),
    "is copied": (WIDER, ADDRESSES),
    "is dropped": (ADDRESSES,),
}
"""What becomes of the table that is read, and the second release."""


def release(name: str, *objects: ObjectDefinition, dropped: tuple[str, ...] = ()) -> Release:
    """A release whose views read the customers."""
    return Release(
        name=name, objects=objects, manifest_hash=f"hash {name} {objects}",
        uses={one.identity: (WHOLE.identity,) if one.kind == "view" else () for one in objects},
        places={}, dropped=dropped,
    )


ONE = release("1", WHOLE)


def second(change: str) -> Release:
    """The release that brings the addresses."""
    return release("2", *CHANGES[change], dropped=("s.customers",) * (change == "is dropped"))


class Place:
    """An installation with release 1 and its rows, and a writer who only knows its columns."""

    def __init__(self, *, persistent: bool = True, first: Release = ONE) -> None:
        self.world, self.log, self.clock = World(), MemoryLog(), SimulatedClock(stretch=10.0)
        self.persistent = persistent
        self.tokens, self.processes = itertools.count(), itertools.count()
        self.ids = itertools.count(10)
        self.acknowledged: dict[int, bool] = {}
        self.start(first)
        self.customers = self.shard("customers")
        self.world.append(self.customers, OLD_ROWS)

    def start(
        self, wanted: Release, *, on_call: Callable[[str], None] | None = None, **more: Any
    ) -> BootstrapReport:
        self.engine = SimulatedEngine(self.world, persistent=self.persistent, on_call=on_call)
        report = migrate(
            self.engine, self.log.attach(on_call), wanted, warehouse="/w", clock=self.clock,
            holder=f"process {next(self.processes)}", timeout=600.0, session=False,
            token=lambda: f"{next(self.tokens):08d}", **more,
        )
        self.engine.on_call = lambda _: None
        return report

    def shard(self, name: str) -> str:
        """The directory in force of a table."""
        for item in read_state(self.log).items.values():
            if item.definition.name == name:
                return f"/w/{item.shard}"
        raise LookupError(name)

    def write(self) -> None:
        """Append one row of release 1; note whether release 1 was in force when it was taken."""
        number = next(self.ids)
        held = read_state(self.log).release_in_force("release")
        try:
            self.world.append(
                self.customers, [{"id": number, "name": "n", "street": f"s{number}"}]
            )
        except EngineFailure:
            return
        self.acknowledged[number] = held is not None and held.name == "1"

    def check(self, change: str) -> None:
        """Every row of release 1 has its address, once; nothing is sealed but what is retired."""
        state = read_state(self.log)
        held = state.release_in_force("release")
        assert held is not None
        assert (held.name, dict(state.intents), state.is_pending) == ("2", {}, False)
        taken = [n for n, before in self.acknowledged.items() if before or change != "stays"]
        rows = self.engine.read(ItemName("s", "addresses"))
        assert sorted(row["customer_id"] for row in rows) == [1, 2, *taken]
        assert all(row["street"] == f"s{row['customer_id']}" for row in rows)
        for path, record in state.shards.items():
            if record.state != "gone":
                sealed = self.world.newest(f"/w/{path}").is_sealed
                assert sealed == (record.state == "retired")


@pytest.mark.parametrize("change", CHANGES)
def test_rows_that_come_meanwhile_are_filled_too(change: str) -> None:
    """A writer who appends before every call loses no row and doubles none."""
    place = Place()
    report = place.start(second(change), on_call=lambda _: place.write())
    assert report.outcome == "migrated"
    assert len(place.acknowledged) > 10
    place.check(change)


@pytest.mark.parametrize("change", CHANGES)
def test_every_call_may_be_the_last(change: str) -> None:
    """Wherever a start dies, and whoever writes meanwhile, the next one takes it to its end."""
    for at in itertools.count(1):
        place = Place()
        point = CrashPoint(at)

        def on_call(call: str, place: Place = place, point: CrashPoint = point) -> None:
            if len(place.acknowledged) < 5 or "seal" in call:
                place.write()
            point.on_call(call)

        try:
            place.start(second(change), on_call=on_call)
        except SimulatedCrash:
            place.write()
            place.start(second(change))
            place.check(change)
        else:
            break
    assert at > 50


def test_the_release_before_may_come_back_after_a_kill() -> None:
    """What a dead attempt had sealed is open again, and nothing is filled."""
    for at in itertools.count(1):
        place = Place()
        try:
            place.start(second("stays"), on_call=CrashPoint(at).on_call)
        except SimulatedCrash:
            report = place.start(ONE)
            if report.outcome == "fenced_out":
                break
            assert not place.world.newest(place.customers).is_sealed
            assert dict(read_state(place.log).intents) == {}
    assert at > 10


def test_views_of_the_release_before_are_read_through() -> None:
    """A view is what it was: its condition counts, and the table below it is sealed."""
    place = Place(first=release("1", WHOLE, WANTED))
    filled = replace(ADDRESSES, filled_from="SELECT id, street FROM s.wanted")
    report = place.start(release("2", NARROW, filled))
    assert report.plan is not None
    assert [step.describe() for step in report.plan.steps if step.op in ("fill", "seal")] == [
        "fill table s.addresses", "seal table s.customers"
    ]
    assert list(place.engine.read(ItemName("s", "addresses"))) == [
        {"customer_id": 2, "street": "s2"}
    ]


def test_a_row_that_does_not_fit_leaves_the_old_release_in_force() -> None:
    """It violates a CHECK of the new table: nothing is changed, and nothing stays sealed."""
    place = Place()
    strict = replace(ADDRESSES, checks=(Check("later", "customer_id > 1"),))
    with pytest.raises(RowNotConverted, match=r"s\.addresses: FILLED FROM fails"):
        place.start(release("2", NARROW, strict))
    held = read_state(place.log).release_in_force("release")
    assert held is not None
    assert held.name == "1"
    place.write()
    assert len(place.acknowledged) == 1
    place.start(second("loses the column in place"))
    place.check("loses the column in place")


@pytest.mark.parametrize(
    ("before", "after"),
    [("true", None), ("true", "false"), (None, "true"), ("false", None), ("true", "true")],
)
def test_a_seal_does_not_undo_what_a_release_changes(
    before: str | None, after: str | None
) -> None:
    """The table that is read stays, with append-only as declared, wherever a start dies."""

    def whole(value: str | None) -> ObjectDefinition:
        return replace(WHOLE, properties={} if value is None else {"delta.appendOnly": value})

    wanted = release("2", whole(after), ADDRESSES)
    for at in itertools.count(1):
        place = Place(first=release("1", whole(before)))
        assert place.world.newest(place.customers).properties.get("delta.appendOnly") == before
        crashed = False
        try:
            place.start(wanted, on_call=CrashPoint(at).on_call)
        except SimulatedCrash:
            crashed = True
            place.start(wanted)
        newest = place.world.newest(place.customers)
        assert (newest.properties.get("delta.appendOnly"), newest.is_sealed) == (after, False)
        if not crashed:
            break
    assert at > 40


def _refusing(place: Place, *steps: str) -> Callable[[str], None]:
    """A busy writer; once release 2 is in force the engine refuses these steps of customers."""

    def on_call(call: str) -> None:
        place.write()
        held = read_state(place.log).release_in_force("release")
        if held is not None and held.name == "2" and call in steps and (
            place.engine.about == place.customers
        ):
            raise EngineFailure("no such change", condition="DELTA_UNSUPPORTED")

    return on_call


def test_a_change_that_is_refused_is_copied_under_the_seal() -> None:
    """The table that is read loses its column by a copy after all: no row comes in between."""
    change = "loses the column in place"
    place = Place()
    report = place.start(second(change), on_call=_refusing(place, "alter"))
    assert report.outcome == "migrated"
    assert place.shard("customers") != place.customers
    place.check(change)


def test_a_copy_that_fails_too_leaves_its_table_sealed_and_no_other() -> None:
    """`status` has the reason; the other table that was read is open, and the next start ends it.
    """
    pets = replace(WHOLE, name="pets")
    short = replace(NARROW, name="pets")
    names = replace(ADDRESSES, name="names", filled_from="SELECT id, street FROM s.pets")
    place = Place(first=release("1", WHOLE, pets))
    with pytest.raises(NotReconciled) as caught:
        place.start(
            release("2", NARROW, short, ADDRESSES, names),
            on_call=_failing_copy(place, _refusing(place, "alter")),
        )
    assert [(each.step, each.name) for each in caught.value.failures] == [
        ("evolve", "s.customers")
    ]
    assert place.world.newest(place.customers).is_sealed
    assert not place.world.newest(place.shard("pets")).is_sealed
    assert read_state(place.log).operations["reconcile"].detail["step"] == "evolve s.customers"
    place.start(release("2", NARROW, short, ADDRESSES, names))
    place.check("loses the column in place")


def _failing_copy(place: Place, refusing: Callable[[str], None]) -> Callable[[str], None]:
    def on_call(call: str) -> None:
        if call == "copy_rows":
            raise EngineFailure("the disk is full", condition="IO")
        refusing(call)

    return on_call


@pytest.mark.parametrize("change", ["stays", "loses the column in place"])
def test_a_seal_that_cannot_be_taken_off_is_on_record(change: str) -> None:
    """The failed step has its table's name, and the next start takes the seal off."""
    place = Place()
    with pytest.raises(NotReconciled) as caught:
        place.start(second(change), on_call=_refusing(place, "unseal"))
    assert [str(each) for each in caught.value.failures] == [
        "unseal s.customers [DELTA_UNSUPPORTED] after 1 attempt: no such change"
    ]
    assert read_state(place.log).operations["reconcile"].detail["step"] == "unseal s.customers"
    place.start(second(change))
    place.check(change)
