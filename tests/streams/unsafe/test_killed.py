"""An operator's process killed with SIGKILL at any moment: its operation is done once, or not at
all, whoever says it again. ``CRASH_UNSAFE`` says how often (``make crash-unsafe``)."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from catalog_migrate.catalog.opening import create_catalog, open_log
from tests.series import within_minutes

from .conftest import Stage
from .test_undo_with_table import Table, now

if TYPE_CHECKING:
    from tests.services.kafka import KafkaCluster

pytestmark = pytest.mark.services

ROUNDS = int(os.environ.get("CRASH_UNSAFE", "1"))
SEED = int(os.environ.get("CRASH_SEED", "20260131"))


def command(directory: Path, key: str) -> list[str]:
    return [
        sys.executable, "-m", "catalog_migrate.cli.main", "unsafe", "inject-offsets", "s", "--to",
        "shift -1", "--reason", "killed", "--yes", "--id", key, "--catalog",
        str(directory / "catalog"),
    ]


def undoing(directory: Path, operation: str, key: str) -> list[str]:
    return [
        sys.executable, "-m", "catalog_migrate.cli.main", "unsafe", "undo", operation,
        "--restore-table", "--reason", "killed", "--yes", "--id", key, "--catalog",
        str(directory / "catalog"),
    ]


def test_killed_while_a_table_goes_back(
    tmp_path: Path, kafka: KafkaCluster, monkeypatch: pytest.MonkeyPatch,
    record_property: Callable[[str, object], None],
) -> None:
    """Killed before or after RESTORE, then said again: table and positions of then, or both now."""
    monkeypatch.setenv("STAGE_PW", kafka.users["app"])
    log = open_log(str(tmp_path / "catalog"))
    create_catalog(log, warehouse=str(tmp_path / "warehouse"))
    stage = Stage(log, tmp_path / "warehouse", kafka)  # type: ignore[arg-type]
    topic = stage.topic("t", [20])
    stage.source(topic)
    stage.started(topic, {0: 8})
    stage.open_gate()
    table = Table(stage, topic)
    table.append(range(8), batch=2)
    dice, longest = random.Random(SEED), 3.0
    for number in within_minutes(range(ROUNDS)):
        skipped = stage.unsafe("INJECT OFFSETS (TO 'shift 2')").operation
        assert skipped is not None
        table.append(range(10, 12), batch=3 + number)
        key = f"undo-{number:03d}"
        process = subprocess.Popen(
            undoing(tmp_path, skipped, key), stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        begun = time.monotonic()
        while key not in stage.state.operations and process.poll() is None and (
            time.monotonic() - begun < longest
        ):
            time.sleep(0.005)
        time.sleep(dice.random() * 0.3)
        process.kill()
        process.wait()
        for again in (key, f"{key}-again"):
            if again == key and key not in stage.state.operations:
                continue
            if stage.state.operations.get(key) and stage.state.operations[key].state == "done":
                break
            ended = subprocess.run(
                undoing(tmp_path, skipped, again), capture_output=True, text=True, timeout=120,
                check=False,
            )
            state = stage.state.operations[again].state
            assert (ended.returncode, state) in ((0, "done"), (3, "refused")), ended.stderr
            if state == "done":
                break
            assert (table.ids, now(stage)) == ([*range(8), 10, 11], {0: 12}), (number, SEED)
        assert (table.ids, now(stage)) == (list(range(8)), {0: 8}), (number, SEED)
        assert not stage.state.holds
        record_property("rounds", 1)
        record_property("kills", 1)


def test_killed_at_any_moment(
    tmp_path: Path, kafka: KafkaCluster, monkeypatch: pytest.MonkeyPatch,
    record_property: Callable[[str, object], None],
) -> None:
    """Killed between any two steps, then said again under the same id: one record back, once."""
    monkeypatch.setenv("STAGE_PW", kafka.users["app"])
    log = open_log(str(tmp_path / "catalog"))
    create_catalog(log, warehouse=str(tmp_path / "warehouse"))
    stage = Stage(log, tmp_path / "warehouse", kafka)  # type: ignore[arg-type]
    topic = stage.topic("t", [200])
    stage.source(topic)
    stage.started(topic, {0: 150})
    stage.open_gate()
    dice, at = random.Random(SEED), 150
    longest = 0.0
    for number in within_minutes(range(ROUNDS + 1)):
        argv = command(tmp_path, f"op-{number:03d}")
        process = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        begun = time.monotonic()
        if number == 0:  # the first one is let live, to know how long one takes
            assert process.wait(300) == 0
            longest = time.monotonic() - begun
            at -= 1
            assert stage.positions() == {0: at}
            continue
        while f"op-{number:03d}" not in stage.state.operations and process.poll() is None and (
            time.monotonic() - begun < longest * dice.random()
        ):
            time.sleep(0.005)
        time.sleep(dice.random() * 0.3)
        process.kill()
        process.wait()
        again = subprocess.run(argv, capture_output=True, text=True, timeout=300, check=False)
        row = stage.state.operations[f"op-{number:03d}"]
        assert (again.returncode, row.state) in ((0, "done"), (3, "refused")), again.stderr
        at -= row.state == "done"
        assert stage.positions() == {0: at}, (number, SEED)
        assert not stage.state.holds
        assert stage.checkpoint.latest_offsets == 2
        generation = stage.state.streams[stage.id].generation
        assert stage.checkpoint.mark.generation == generation == 150 - at  # type: ignore[union-attr]
        record_property("rounds", 1)
        record_property("kills", 1)
