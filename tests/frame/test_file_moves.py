"""How much a migrating start takes: moves between files, reads of the log, plans, orders."""

from __future__ import annotations

from bench.start import describe, trace_start

MOST = 675
"""A reader follows each of them; a change that needs more looks first for a shorter way."""


def test_a_start_that_migrates_two_objects_keeps_to_few_files() -> None:
    """A column comes to a table, and to the view that reads it."""
    trace = trace_start()
    assert 0 < trace.moves <= MOST
    assert 0 < trace.calls["read_state"] <= 3
    assert 0 < trace.calls["order_waves"] <= 2
    assert trace.calls["plan_migration"] == 1
    assert f"| moves between files | {trace.moves} |" in describe(trace)
