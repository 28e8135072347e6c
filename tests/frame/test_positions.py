"""What an unsafe operation passes through: six structs, and the values that these are made of."""

from __future__ import annotations

import ast
from pathlib import Path

ROOT = Path(__file__).parents[2] / "catalog_migrate"

PLACES = (
    *sorted((ROOT / "streams" / "positions").glob("*.py")),
    ROOT / "streams" / "catalog" / "operation_records.py",
    ROOT / "streams" / "checkpoint" / "edit.py",
)

PATH = {
    "Request": {"ItemRequest"},
    "UnsafePlan": {"ItemPlan", "Row", "Totals", "Job", "Refusal"},
    "UnsafeCommit": {"Move", "Restore", "Chunk"},
    "Outcome": set(),
    "Edit": {"OffsetEdit"},
}
"""The structs of one statement with their field values; the sixth is the record, UnsafeAct."""

BESIDE = {
    "Exported",  # positions as a file
    "Missing",  # what the gate asks for
    "Unseen",  # what status reminds of
    "Settled", "Finish", "Remove", "Complete", "Refuse",  # decisions on an uncommitted entry
}

ACTS = {"apply", "check", "run", "look", "predict", "tend"}
"""Methods of what does something: updates, requirements, operations, surveys, a forecast."""


def values(path: Path) -> set[str]:
    """Structs, dataclasses and named tuples of a module that have no such method."""
    found = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if not isinstance(node, ast.ClassDef):
            continue
        heads = " ".join(map(ast.unparse, (*node.bases, *node.decorator_list)))
        methods = {each.name for each in node.body if isinstance(each, ast.FunctionDef)}
        if any(word in heads for word in ("Struct", "dataclass", "NamedTuple")) and (
            not methods & ACTS
        ):
            found.add(node.name)
    return found


def test_one_statement_goes_through_six_structs() -> None:
    """None carries another from hop to hop: a struct that is added is a value of one of them."""
    found = set().union(*map(values, PLACES))
    assert found == {*PATH, *(each for below in PATH.values() for each in below)} | BESIDE


def test_no_record_has_a_text_where_a_value_is_meant() -> None:
    """JSON is encoded to a text for older catalogs alone, and in files of plans."""
    encoders = {
        f"{path.name}:{ast.unparse(node)}"
        for path in PLACES for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "msgspec.json.encode"
    }
    assert {each.partition(":")[0] for each in encoders} == {"operation_records.py", "plan.py"}
    assert "operation_records.py:msgspec.json.encode(edit)" in encoders
