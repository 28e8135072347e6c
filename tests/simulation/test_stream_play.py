"""Tests of runtimes, clients and producers played against one another."""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain, count
from pathlib import Path
from typing import Any

import pytest

from catalog_migrate.catalog.records import StreamRecord
from catalog_migrate.connections.secrets import Redactor
from catalog_migrate.streams import supervisor, takeover
from catalog_migrate.streams.execute import Executor
from catalog_migrate.streams.unsafe import backfill, planning
from tests.simulation.stream_play import failure_of, tell
from tests.simulation.stream_scenario import (
    StreamScenario,
    decode_streams,
    draw_moves,
    draw_streams,
    encode_streams,
)
from tests.simulation.streaming import StreamWorld

SEEDS = Path(__file__).with_name("seeds") / "streams"
"""Every schedule of streams that ever failed."""

SEARCHED = 60
"""Seeds that are searched for a fault after the kept schedules."""


def kept() -> list[StreamScenario]:
    return [decode_streams(file.read_bytes()) for file in sorted(SEEDS.glob("*.json"))]


def test_no_runtime_that_dies_loses_or_doubles_a_record() -> None:
    """Killed, stopped, suspended, cut off in any state of an operation: every operation ends, and
    every record is in its table as often as the committed positions say."""
    assert [seed for seed in range(40) if failure_of(draw_streams(seed))] == []


def test_no_row_changes_its_key_while_sources_go_from_topic_to_topic() -> None:
    """Whatever topic a source goes over to, back to, or finds created again: its sinks, however
    late, send each row with the key of the topic that it was read of."""
    assert [seed for seed in range(40) if failure_of(draw_moves(seed))] == []


@pytest.mark.parametrize("name", sorted(file.stem for file in SEEDS.glob("*.json")))
def test_a_schedule_that_ever_failed_passes(name: str) -> None:
    """Kept schedules hold now, and for good."""
    assert failure_of(decode_streams((SEEDS / f"{name}.json").read_bytes())) is None


def test_a_scenario_is_told_alike_twice_and_survives_being_kept() -> None:
    """The story hangs on the scenario alone, random names of files and operations apart."""
    for seed in (3, 8):
        scenario = draw_streams(seed)
        assert decode_streams(encode_streams(scenario)) == scenario
        assert len(tell(scenario).splitlines()) == len(tell(scenario).splitlines())


_NUMBERS = count()


def _bars_nothing(_: StreamWorld, __: str) -> Callable[[str, str], int | None]:
    return lambda old, new: None


@pytest.mark.parametrize(
    ("owner", "name", "value"),
    [
        (takeover, "_restored", lambda *_: None),
        (Executor, "_same_target", lambda *_: None),
        (StreamWorld, "fence", _bars_nothing),
        (Redactor, "scrub", lambda _, text: text),
        (backfill, "transaction", lambda key: f"{key}/{next(_NUMBERS)}"),
        (StreamRecord, "known_topics", property(lambda record: record.topics)),
        (planning, "is_drained", lambda *_, **__: True),
        (planning, "sent_before", lambda *_: []),
        (supervisor, "require_there", lambda *_: None),
    ],
    ids=[
        "a torn restore is taken over", "an ALTER in a trial", "nothing is barred",
        "a secret is told", "a chunk comes twice", "former topics are forgotten",
        "nobody waits for sinks", "a sink goes back over another topic",
        "a source begins before its topic",
    ],
)
def test_a_fault_put_in_on_purpose_is_found(
    owner: Any, name: str, value: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some schedule fails as soon as the fault is there."""
    monkeypatch.setattr(owner, name, value)
    scenarios = chain(kept(), map(draw_streams, range(SEARCHED)))
    assert any(failure_of(scenario) for scenario in scenarios)
