"""The runtime killed in the middle of an unsafe operation: all or nothing, on real queries."""

from __future__ import annotations

import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from catalog_migrate.catalog.records import OperationRecord
from catalog_migrate.streams.checkpoint.directory import Checkpoint
from tests.series import within_minutes

from .conftest import number_row, once
from .runtime_process import PATIENCE

if TYPE_CHECKING:
    from .conftest import Killable

pytestmark = [pytest.mark.spark, pytest.mark.services, pytest.mark.crash, pytest.mark.soak]

ROWS = 20
ROUNDS = max(1, int(os.environ.get("CRASH_UNSAFE", "1")) // 5)
SEED = int(os.environ.get("CRASH_SEED", "20260131"))


def rows_of(killable: Killable) -> dict[str, OperationRecord]:
    return {key: row for key, row in killable.catalog.state().operations.items()
            if row.kind == "unsafe"}


def test_a_runtime_that_is_killed(
    killable: Killable, record_property: Callable[[str, object], None]
) -> None:
    """Killed when it has begun, then when it has committed: whoever waits for it ends it.

    Done means that one record of each partition came twice, refused that none did. In the end a
    SIGTERM stops the runtime: batches end, no query is left in the middle, the cluster is free.
    """
    killable.kafka.produce(killable.topic_in, [number_row(number) for number in range(ROWS)])
    wanted = once(ROWS)
    for reached in ("stopping", "committed"):
        process = killable.run_cluster(enable_unsafe_ops="true")
        killable.until(lambda: killable.ids("s").total() >= wanted.total(), "all rows")  # noqa: B023
        killable.until(killable.all_run, "three running queries")
        known = set(rows_of(killable))
        client = killable._command(
            f"{reached}.log", "sql", "--yes", "-c", f"ALTER SOURCE {killable.q('s')} UNSAFE "
            "INJECT OFFSETS (TO 'shift -1') REASON 'killed'",
        )
        order = ("requested", "stopping", "committed", "done")
        deadline = time.monotonic() + PATIENCE
        while not any(
            row.state in order[order.index(reached):]
            for key, row in rows_of(killable).items() if key not in known
        ):
            assert time.monotonic() < deadline, client.output
            time.sleep(0.01)
        process.kill()
        code = client.end()
        (row,) = (row for key, row in rows_of(killable).items() if key not in known)
        assert (code, row.state) in ((0, "done"), (3, "refused")), client.output
        assert row.state == "done" or reached == "stopping"
        assert not killable.catalog.state().holds
        record_property("rounds", 1)
        record_property("kills", 1)
        if row.state == "done":
            last = {record.partition: int(record.key or b"0")
                    for record in killable.kafka.consume_all(killable.topic_in)}
            wanted += Counter(last.values())
    process = killable.run_cluster(enable_unsafe_ops="true")
    killable.until(lambda: killable.ids("s").total() >= wanted.total(), "all rows")
    killable.until(killable.all_run, "three running queries")
    assert killable.ids("s") == wanted
    process.signal_driver(signal.SIGTERM)
    assert process.end() == 0, process.output
    assert {each for each, *_ in killable.statuses().values()} == {"stopped"}
    state = killable.catalog.state()
    assert [row.holder for key, row in state.leases.items() if key.startswith("cluster/")] == [""]
    warehouse = state.config["warehouse"].value
    assert len(state.streams) == 3
    assert all(Checkpoint(f"{warehouse}/{each.checkpoint}").state().is_settled
               for each in state.streams.values())


def test_a_runtime_that_reads_what_was_skipped(
    killable: Killable, record_property: Callable[[str, object], None]
) -> None:
    """Killed between or in two chunks, any number of times: each skipped record comes once."""
    dice, sent = random.Random(SEED), ROWS
    killable.kafka.produce(killable.topic_in, [number_row(number) for number in range(sent)])
    process = killable.run_cluster(enable_unsafe_ops="true")
    for _ in within_minutes(range(ROUNDS)):
        killable.until(lambda: killable.ids("s").total() >= sent, "all rows")  # noqa: B023
        killable.until(killable.all_run, "three running queries")
        killable.run(f"PAUSE SOURCE {killable.q('s')}")
        killable.until(lambda: killable.statuses()[killable.q("s")][0] == "held", "a held source")
        killable.kafka.produce(
            killable.topic_in, [number_row(number) for number in range(sent, sent + ROWS)]
        )
        sent += ROWS
        (skipped,) = killable.run(
            f"ALTER SOURCE {killable.q('s')} UNSAFE INJECT OFFSETS (TO latest) "
            "WITH (BACKFILL = true, CHUNK = 3) REASON 'killed'", confirm=lambda _: True,
        )
        key = skipped.operation
        assert key is not None
        killable.run(f"RESUME SOURCE {killable.q('s')}")
        wanted = f"chunk {dice.randint(1, 6)} of 7"
        deadline = time.monotonic() + PATIENCE
        while rows_of(killable)[key].detail.get("phase", "") < wanted and (
            rows_of(killable)[key].state == "backfilling"
        ):
            assert time.monotonic() < deadline, process.output
            time.sleep(0.01)
        time.sleep(dice.random() * 0.3)
        process.kill()
        process = killable.run_cluster(enable_unsafe_ops="true")
        killable.until(lambda: rows_of(killable)[key].state == "done", "the end")  # noqa: B023
        assert killable.ids("s") == once(sent), (key, SEED)
        record_property("rounds", 1)
        record_property("kills", 1)
    killable.until(lambda: len(killable.kafka_ids(killable.topic_out)) >= sent, "all sent")
    assert killable.kafka_ids(killable.topic_out) == once(sent)
    record_property("rows", sent)
