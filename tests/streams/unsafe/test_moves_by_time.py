"""Positions that go over to another topic by the time of the last stored record."""

from __future__ import annotations

import json
import time
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from catalog_migrate.connectors.base import Contents
from catalog_migrate.errors import UnsafeBlocked
from catalog_migrate.sql.parser import parse_one
from catalog_migrate.streams.catalog import dependencies
from catalog_migrate.streams.catalog.tables import last_times
from catalog_migrate.streams.checkpoint.targets import Target
from catalog_migrate.streams.positions.forecast import translate
from catalog_migrate.streams.positions.requests import request_of

if TYPE_CHECKING:
    from .conftest import Stage


def contents(*partitions: int) -> Contents:
    bounds = {("n", each): (0, 9) for each in partitions}
    return Contents("c", {"n": "id"}, bounds, lambda _m, _p: {})


def store(path: Path, rows: list[tuple[str, int, int, int]]) -> None:
    """A shard with (topic, partition, offset, milliseconds)."""
    from arro3.core import Array, DataType, Table
    from deltalake import write_deltalake

    topics, partitions, offsets, times = (list(each) for each in zip(*rows, strict=True))
    moment = Array([each * 1000 for each in times], type=DataType.int64())
    data: Any = Table.from_pydict({
        "_topic": Array(topics, type=DataType.utf8()),
        "_partition": Array(partitions, type=DataType.int32()),
        "_offset": Array(offsets, type=DataType.int64()),
        "_timestamp": moment.cast(DataType.timestamp("us", tz="UTC")),
    })
    write_deltalake(str(path), data, mode="append")


def test_the_last_stored_record(tmp_path: Path) -> None:
    """The time of the record with the highest offset counts, per partition, of these topics."""
    now = 1_767_225_600_123
    store(tmp_path, [("o", 0, 4, now), ("o", 0, 5, now - 9), ("o", 1, 1, now + 7), ("x", 0, 1, 1)])
    assert last_times(str(tmp_path), {"o"}) == {("o", 0): now - 9, ("o", 1): now + 7}


def test_partition_by_partition() -> None:
    """With the same partitions each goes on for itself; ties are read again, or passed over."""
    times = {("o", 0): 100, ("o", 1): 200}
    assert translate(times, contents(0, 1), "double")[0] == {
        ("n", 0): Target("time", 100, "100 ms since 1970"),
        ("n", 1): Target("time", 200, "200 ms since 1970"),
    }
    skipping, _ = translate(times, contents(0, 1), "skip")
    assert [target.value for target in skipping.values()] == [101, 201]


@pytest.mark.parametrize("partitions", [(0,), (0, 1, 2)])
def test_other_partitions(partitions: tuple[int, ...]) -> None:
    """With fewer or more partitions all go on after the oldest: nothing is lost, and it is said."""
    targets, notes = translate({("o", 0): 100, ("o", 1): 200}, contents(*partitions), "double")
    assert {target.value for target in targets.values()} == {100}
    assert "partitions are others than before" in notes[0]


def test_nothing_stored() -> None:
    """What cannot be translated is listed and begins at START."""
    targets, notes = translate({}, contents(0), "double")
    assert targets == {}
    assert notes == ["n:0: no record was stored yet, it begins at START"]


@pytest.mark.services
@pytest.mark.parametrize(("ties", "wanted"), [("double", {0: 2}), ("skip", {0: 3})])
def test_a_mirrored_topic(stage: Stage, ties: str, wanted: dict[int, int]) -> None:
    """After a move to a mirror the source goes on at the last stored record, or right behind."""
    stage.kafka.create_topic(f"u{stage.number}-n", 1)
    stage.kafka.allow("app", f"u{stage.number}-n", "READ", "DESCRIBE", "DESCRIBE_CONFIGS")
    old, new = stage.topic("t", [0]), f"u{stage.number}-n"
    for number in range(5):
        record = [(str(number), json.dumps({"id": number}))]
        stage.kafka.produce(new, record, partition=0)
        time.sleep(0.01)
    times = [each.timestamp for each in stage.kafka.consume_all(new)]
    stage.source(old)
    stage.started(old, {0: 103})
    stage.open_gate()
    item = stage.state.items[stage.id]
    store(stage.warehouse / str(item.shard), [(old, 0, 102, times[2]), (old, 0, 101, times[1])])
    stage.unsafe(
        f"SET (TOPIC = '{new}') WITH (TRANSLATE BY = 'timestamp', TIES = '{ties}', "
        "ACCEPT NEW TOPIC = true)"
    )
    assert stage.positions() == wanted
    assert datetime.fromtimestamp(times[2] / 1000, timezone.utc).year >= 2024
    assert dependencies.external_of(stage.state.items[stage.id]).options["TOPIC"] == new


@pytest.mark.services
def test_when_they_were_written(stage: Stage) -> None:
    """A dry run with times says when the records that come twice were written, or that nobody
    knows."""
    topic = stage.topic("t", [10, 10])
    stage.source(topic)
    stage.started(topic, {0: 8, 1: 8})
    stage.open_gate()
    shard = stage.warehouse / str(stage.state.items[stage.id].shard)
    store(shard, [(topic, 0, each, 1_767_225_600_000 + each * 1000) for each in range(8)])
    statement = parse_one("ALTER SOURCE s UNSAFE INJECT OFFSETS (TO 'shift -3') REASON 'r'")
    asked = request_of(stage.state, statement)  # type: ignore[arg-type]
    plan = stage.executor().unsafe.plan(asked, "r", with_times=True)
    known, unknown = (row.note for row in plan.items[0].rows)
    assert known == "written 2026-01-01T00:00:05Z to 2026-01-01T00:00:07Z"
    assert unknown == "written at unknown times"


@pytest.mark.services
def test_nobody_to_translate(stage: Stage) -> None:
    """A setting that is no way to translate is refused with those that are."""
    stage.source(stage.topic("t", [1]))
    stage.open_gate()
    with pytest.raises(UnsafeBlocked, match="TRANSLATE BY is 'name'"):
        stage.unsafe("RESET SPLITS WITH (TRANSLATE BY = 'name')")
