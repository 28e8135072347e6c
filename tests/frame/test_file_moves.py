"""How much a migrating start and an ALTER take: moves between files, reads, parses, plans."""

from __future__ import annotations

from bench import statements
from bench.start import describe, trace_start

MOST = 551
"""A reader follows each of them; a change that needs more looks first for a shorter way."""


def test_a_start_that_migrates_two_objects_keeps_to_few_files() -> None:
    """A column comes to a table, and to the view that reads it."""
    trace = trace_start()
    assert 0 < trace.moves <= MOST
    assert 0 < trace.calls["read_state"] <= 3
    assert 0 < trace.calls["order_waves"] <= 1
    assert trace.calls["plan_migration"] == 1
    assert f"| moves between files | {trace.moves} |" in describe(trace)


def test_an_alter_from_the_command_line_is_parsed_once_and_passed_on() -> None:
    """Its text is parsed once; few files have what is planned of it in hand."""
    passage = statements.trace_alter()
    assert passage.parses == 1
    assert 0 < len(passage.files) <= 8
    assert 0 < len(passage.returns) <= 4
    assert "| parses | 1 |" in statements.describe(passage)
