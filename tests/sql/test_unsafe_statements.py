"""The unsafe statements: their actions, their order and their gate of words."""

from __future__ import annotations

import pytest

from catalog_migrate.errors import SyntaxProblem
from catalog_migrate.sql.parser import parse_one
from catalog_migrate.sql.statements import (
    DropOptions,
    InjectOffsets,
    InjectVersion,
    ResetOptions,
    ResetSplits,
    SetOptions,
    Unsafe,
)


def test_a_move_is_one_operation() -> None:
    """All actions of one statement come in order, with settings and reason."""
    statement = parse_one(
        "ALTER SOURCE IF EXISTS s UNSAFE SET (TOPIC 'b'), DROP (x), RESET (START), RESET SPLITS,"
        " RESET SPLITS ('b:0'), INJECT OFFSETS ('b:0' = 7, 'b:1' NULL, 'b:2' latest)"
        " WITH (SKIP VALIDATE = true) REASON 'moved'"
    )
    assert statement == Unsafe(
        "source", "s",
        (
            SetOptions({"TOPIC": "b"}), DropOptions(("X",)), ResetOptions(("START",)),
            ResetSplits(), ResetSplits(("b:0",)),
            InjectOffsets({"b:0": "7", "b:1": None, "b:2": "latest"}),
        ),
        "moved", {"SKIP VALIDATE": "true"}, True,
    )


def test_one_target_for_all() -> None:
    """TO stands for every split."""
    statement = parse_one("ALTER SOURCE s UNSAFE INJECT OFFSETS (TO 'shift -100') REASON 'r'")
    assert statement == Unsafe("source", "s", (InjectOffsets(everywhere="shift -100"),), "r")


def test_a_sinks_version() -> None:
    """A sink's position is a version of the table it reads."""
    statement = parse_one("ALTER SINK k UNSAFE INJECT VERSION 12 REASON 'r'")
    assert statement == Unsafe("sink", "k", (InjectVersion(12),), "r")


@pytest.mark.parametrize("actions", ["RESET SPLITS", "INJECT OFFSETS (TO 'latest')"])
def test_what_is_missing_is_told_by_the_gates(actions: str) -> None:
    """Without UNSAFE and REASON it is read all the same, so that all that is missing is told."""
    statement = parse_one(f"ALTER SOURCE s {actions}")
    assert isinstance(statement, Unsafe)
    assert (statement.said, statement.reason) == (False, "")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "ALTER SOURCE s UNSAFE RESET SPLITS BECAUSE",
            "line 1, column 36: expected `(`, `,`, WITH, REASON or the end of the statement, found "
            "'BECAUSE'",
        ),
        (
            "ALTER SOURCE s UNSAFE INJECT OFFSETS ('t:0' = -1) REASON 'r'",
            "line 1, column 47: expected NULL, a number or a target in quotes, found '-'",
        ),
        (
            "ALTER SOURCE s UNSAFE INJECT OFFSETS ('t:0' = 1, 't:0' = 2) REASON 'r'",
            "line 1, column 50: t:0 is given twice",
        ),
        (
            "ALTER SOURCE s UNSAFE INJECT OFSETS (TO 'x') REASON 'r'",
            "line 1, column 30: expected OFFSETS or VERSION, found 'OFSETS'; did you mean OFFSETS?",
        ),
        (
            "ALTER SINK k UNSAFE INJECT VERSION 1.5 REASON 'r'",
            "line 1, column 36: expected the number of a version, found '1.5'",
        ),
        (
            "ALTER CONNECTION c UNSAFE SET (a 1) REASON 'r'",
            "line 1, column 20: expected SET, DROP, RESET, RENAME, ROTATE KEYS or AS, found "
            "'UNSAFE'",
        ),
    ],
)
def test_errors(text: str, message: str) -> None:
    """What is missing or wrong is said with its place."""
    with pytest.raises(SyntaxProblem) as caught:
        parse_one(text)
    assert caught.value.message == message
