"""Tests of runtimes, clients and producers played against one another."""

from __future__ import annotations

from itertools import chain
from pathlib import Path

import msgspec
import pytest

from catalog_migrate.connectors.postgres import watch
from catalog_migrate.connectors.postgres.survey import Survey
from catalog_migrate.operations.order import order_waves
from catalog_migrate.store import Store
from catalog_migrate.streams.catalog.upstream_tables import SNAPSHOT_ATTEMPT
from catalog_migrate.streams.runtime import operations, supervisor
from catalog_migrate.streams.upstreams import table_snapshots
from tests.simulation.stream_faults import CATALOG_FAULTS, FAULTS, NO_FAULT, StreamFault
from tests.simulation.stream_run import explain, failure_of
from tests.simulation.stream_scenario import (
    StreamScenario,
    decode_streams,
    draw_catalog,
    draw_database,
    draw_moves,
    draw_streams,
    encode_streams,
    on_object_store,
)

SEEDS = Path(__file__).with_name("seeds") / "streams"
"""Every schedule of streams that ever failed."""

SEARCHED = 60
"""Seeds that are searched for a fault after the kept schedules."""


def kept() -> list[StreamScenario]:
    return [decode_streams(file.read_bytes()) for file in sorted(SEEDS.glob("*.json"))]


schedules = pytest.mark.parametrize("count", [20, pytest.param(400, marks=pytest.mark.soak)])


@schedules
def test_no_runtime_that_dies_loses_or_doubles_a_record(count: int) -> None:
    """Killed, stopped, suspended, cut off in any state of an operation: every operation ends, and
    every record is in its table as often as the committed positions say."""
    assert [seed for seed in range(count) if failure_of(draw_streams(seed))] == []


@schedules
def test_no_row_changes_its_key_while_sources_go_from_topic_to_topic(count: int) -> None:
    """Whatever topic a source goes over to, back to, or finds created again: its sinks, however
    late, send each row with the key of the topic that it was read of."""
    assert [seed for seed in range(count) if failure_of(draw_moves(seed))] == []


@schedules
def test_no_runtime_that_dies_loses_or_doubles_a_change_of_postgresql(count: int) -> None:
    """Whoever is killed or overtaken in a snapshot, and whatever becomes of the server: each row of
    a snapshot is there once, and each change as often as the committed positions say."""
    assert [seed for seed in range(count) if failure_of(draw_database(seed))] == []


@schedules
def test_no_mirror_runs_and_differs_from_its_source(count: int) -> None:
    """Whatever is altered upstream beside kills, takeovers and ALTERs: a mirror that has read all
    equals its source, or a hold names table and cause; what that says to do makes it equal."""
    assert [seed for seed in range(count) if failure_of(draw_catalog(seed))] == []


@schedules
def test_an_object_store_loses_or_doubles_nothing(count: int) -> None:
    """With checkpoints and snapshots on an object store, whose requests are refused, lost, or
    carried out after their process was killed: as on a disk."""
    drawn = (draw_streams, draw_moves, draw_database, draw_catalog)
    assert [
        (draw.__name__, seed) for draw in drawn for seed in range(count // 4)
        if failure_of(on_object_store(draw(seed)))
    ] == []


@pytest.mark.parametrize("name", sorted(file.stem for file in SEEDS.glob("*.json")))
def test_a_schedule_that_ever_failed_passes(name: str) -> None:
    """Kept schedules hold now, and for good."""
    assert failure_of(decode_streams((SEEDS / f"{name}.json").read_bytes())) is None


def test_a_scenario_is_told_alike_twice_and_survives_being_kept() -> None:
    """The story hangs on the scenario alone, random names of files and operations apart."""
    for seed in (3, 8):
        scenario = draw_streams(seed)
        assert decode_streams(encode_streams(scenario)) == scenario
        assert len(explain(scenario).splitlines()) == len(explain(scenario).splitlines())


def _found(fault: StreamFault = NO_FAULT) -> bool:
    """Whether some schedule fails."""
    scenarios = chain(
        kept(), map(on_object_store, map(draw_database, range(4))), map(draw_database, range(4)),
        map(draw_streams, range(SEARCHED)),
    )
    return any(failure_of(scenario, fault) for scenario in scenarios)


@pytest.mark.parametrize("name", sorted(FAULTS))
def test_a_faulty_port_is_found(name: str) -> None:
    """Some schedule fails as soon as a port breaks a promise."""
    assert _found(FAULTS[name])


@pytest.mark.parametrize("name", sorted(CATALOG_FAULTS))
def test_what_a_mirror_does_not_see_is_found(name: str) -> None:
    """Some kept schedule fails as soon as a mirror goes by less than there is to see."""
    altered = (scenario for scenario in kept() if scenario.ddl)
    assert any(failure_of(scenario, CATALOG_FAULTS[name]) for scenario in altered)


@pytest.mark.parametrize(("owner", "name", "instead", "schedule"), [
    (Survey, "with_missing", lambda survey, _: survey, "a_column_came_back_between_two_looks"),
    (table_snapshots, "_copied", lambda *_: {}, "a_partition_was_truncated_before_a_snapshot"),
    (watch, "_known", lambda watched, _: watched.known, "a_partition_came_and_went_between_starts"),
    (table_snapshots, "columns_gone", lambda _: (), "a_column_was_renamed_and_taken_over"),
    (supervisor, "forget_uncopied", lambda spec: spec, "an_alteration_before_the_first_rows"),
])
def test_what_once_let_a_mirror_differ_is_found(
    monkeypatch: pytest.MonkeyPatch, owner: object, name: str, instead: object, schedule: str
) -> None:
    """Each was a fault of ours that the simulation found: without what mends it, it fails."""
    monkeypatch.setattr(owner, name, instead)
    assert failure_of(decode_streams((SEEDS / f"{schedule}.json").read_bytes())) == "I6"


def test_a_snapshot_that_was_overtaken_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A runtime that was suspended while it copied must not say that its rows count."""

    def put(store: Store, attempt: table_snapshots.Attempt, over: object) -> bool:
        del over
        store.put_all({SNAPSHOT_ATTEMPT: msgspec.json.encode(attempt)})
        return True

    monkeypatch.setattr(table_snapshots, "_put", put)
    scenario = decode_streams((SEEDS / "a_snapshot_was_overtaken.json").read_bytes())
    assert failure_of(scenario) == "I6"


def test_another_order_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sink that stops after its source and starts before it breaks I11."""
    monkeypatch.setattr(
        operations, "order_waves", lambda *graphs, **what: order_waves(*graphs, **what)[::-1]
    )
    assert any(failure_of(draw_moves(seed)) == "I11" for seed in range(20))
