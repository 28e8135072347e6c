"""The runtime killed in the middle of an unsafe operation: all or nothing, on real queries."""

from __future__ import annotations

import time
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from catalog_migrate.catalog.records import OperationRecord

from .conftest import number_row, once
from .runtime_process import PATIENCE

if TYPE_CHECKING:
    from .conftest import Killable

pytestmark = [pytest.mark.spark, pytest.mark.services]

ROWS = 20


def rows_of(killable: Killable) -> dict[str, OperationRecord]:
    return {key: row for key, row in killable.catalog.state().operations.items()
            if row.kind == "unsafe"}


def test_a_runtime_that_is_killed(killable: Killable) -> None:
    """Killed when it has begun, then when it has committed: whoever waits for it ends it.

    Done means that one record of each partition came twice, refused that none did.
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
        if row.state == "done":
            last = {record.partition: int(record.key or b"0")
                    for record in killable.kafka.consume_all(killable.topic_in)}
            wanted += Counter(last.values())
    killable.run_cluster(enable_unsafe_ops="true")
    killable.until(lambda: killable.ids("s").total() >= wanted.total(), "all rows")
    killable.until(killable.all_run, "three running queries")
    assert killable.ids("s") == wanted
