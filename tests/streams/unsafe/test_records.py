"""What is on record of unsafe operations: values, and the texts of earlier formats."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from catalog_migrate.catalog.memory_log import MemoryLog
from catalog_migrate.catalog.opening import create_catalog, read_state
from catalog_migrate.catalog.records import OperationRecord, UnsafeAct
from catalog_migrate.catalog.state import State, decode_record, encode_record
from catalog_migrate.catalog.updates import Put, RaiseFormat, preview
from catalog_migrate.connectors.positions import OffsetRange
from catalog_migrate.streams.catalog.operation_records import (
    Chunk,
    Restore,
    Totals,
    chunks_in,
    commit_in,
    edit_in,
    encode_edit,
    moves_in,
    with_act,
)
from catalog_migrate.streams.catalog.query_spec import first_stream
from catalog_migrate.streams.checkpoint.edit import Edit, OffsetEdit
from catalog_migrate.streams.positions.requests import request_in

FROZEN: dict[str, Any] = json.loads(
    (Path(__file__).parent / "frozen" / "format-5.json").read_bytes()
)
"""Rows of unsafe operations as a version of format 5 left them."""
EDIT = Edit(3, (
    OffsetEdit(2, 0, '{"u32-t":{"0":10}}', '{"u32-t":{"0":8}}'),
    OffsetEdit(3, 0, '{"u32-t":{"0":12}}', '{"u32-t":{"0":8}}'),
))


def row(case: str) -> OperationRecord:
    found = decode_record("operation", "op", json.dumps(FROZEN[case]))
    assert isinstance(found, OperationRecord)
    return found


def test_a_restore_of_an_earlier_version() -> None:
    """All that it was about to commit is read, and nothing counts as changed until then."""
    (part,) = request_in(row("restoring")).parts
    assert (part.restore, part.targets) == (0, {"u32-t:0": "8"})
    commit = commit_in(row("restoring"))
    (move,) = commit.moves
    assert (move.line, move.target, move.edit) == (
        '{"u32-t":{"0":12}}', '{"u32-t":{"0":8}}', EDIT,
    )
    assert (move.generation, move.version, move.snapshot) == (2, 1, 2)
    assert move.topics_after == move.topics == {"u32-t": "2H0Ld/NwQ3akK3r3KfimVg"}
    assert move.upstream_after == move.upstream == "y9SMB6GTQ72MSFjhF3D3yA"
    assert commit.restore == Restore("default/s/efd0b70aa7394518a8450db1f5070fd0", 0, 1, gone=2)
    assert (commit.totals, commit.injected, commit.moved) == (
        Totals(), 1, ("u32-t:0 from 12 to 8",),
    )
    assert moves_in(row("restoring")) == ()


def test_what_an_earlier_version_committed() -> None:
    """Its images are read as the moves that it made, a RESTORE with what it took away."""
    (move,) = moves_in(row("restored"))
    (announced,) = commit_in(row("restoring")).moves
    assert (move.line, move.target, move.generation) == (
        announced.line, announced.target, announced.generation,
    )
    assert move.restore == announced.restore
    assert move.base == 2
    (move,) = moves_in(row("backfilling"))
    assert (move.target, move.restore, move.base) == ('{"u":{"0":5}}', None, 1)
    assert chunks_in(row("backfilling")) == (Chunk("i6", (OffsetRange("u", 0, 4, 5),)),)


@pytest.mark.parametrize("case", sorted(FROZEN))
def test_a_row_of_an_earlier_version_stays_as_it_is(case: str) -> None:
    """Whatever else is said of it: texts stay texts, so that the version reads it that wrote it."""
    said = with_act(row(case), acknowledged="ann")
    expected = {**FROZEN[case], "unsafe": {**FROZEN[case]["unsafe"], "acknowledged": "ann"}}
    assert json.loads(encode_record(said)) == expected


def test_values_come_back() -> None:
    """What is committed is on record as values; no text has JSON but the lines of checkpoints."""
    commit = commit_in(row("restoring"))
    act = UnsafeAct("ann", "h", "at", "r", msgspec.to_builtins(request_in(row("restoring"))))
    there = OperationRecord("unsafe", "committed", unsafe=act)
    there = with_act(there, commit=msgspec.to_builtins(commit))
    text = encode_record(there)
    back = decode_record("operation", "op", text)
    assert isinstance(back, OperationRecord)
    assert (commit_in(back), request_in(back)) == (commit, request_in(row("restoring")))
    texts = set(_texts(json.loads(text)))
    assert {each for each in texts if each.startswith(("{", "["))} == {
        line for move in commit.moves for line in (move.line, move.target)
    } | {line for each in EDIT.lines for line in (each.before, each.after)}


def _texts(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    below = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [text for each in below for text in _texts(each)]


@pytest.fixture
def state() -> State:
    """A new catalog."""
    log = MemoryLog()
    create_catalog(log, warehouse="/warehouse")
    return read_state(log)


def test_an_edit_is_written_as_the_catalog_has_it(state: State) -> None:
    """A text until the format is raised, which a sink that follows its table does not do; either
    is read back."""
    assert encode_edit(state, None) == ""
    raised = preview(state, [RaiseFormat(6)])
    assert raised.setting("format_version") == "6"
    assert preview(raised, [RaiseFormat(5)]).setting("format_version") == "6"
    for each, kind in ((state, str), (raised, dict)):
        written = encode_edit(each, EDIT)
        assert isinstance(written, kind)
        stream = msgspec.structs.replace(first_stream("i5"), edit=written)
        again = preview(each, [Put("stream", "i5", stream)])
        assert edit_in(decode_record("stream", "i5", again.raw["stream"]["i5"])) == EDIT  # type: ignore[arg-type]
