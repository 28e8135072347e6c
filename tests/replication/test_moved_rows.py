"""Where unsent values of rows with another key come from, against a table with real values."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog_migrate.connectors.postgres.moved_rows import (
    Carried,
    Key,
    NeverSent,
    SentBefore,
    Step,
    Traced,
    trace,
)

LARGE = (1, 2)
A, B, C = ("a",), ("b",), ("c",)


def steps(*written: tuple[Key | None, Key | None, tuple[int, ...]]) -> list[Step]:
    return [Step((7, number), *each) for number, each in enumerate(written)]


CASES = {
    "a move": ([(A, B, (1, 2))], Traced((), (Carried((7, 0), B, A, (1, 2)),), ())),
    "a value that is sent with the move": (
        [(A, B, (2,))], Traced((), (Carried((7, 0), B, A, (2,)),), ())
    ),
    "a value that was sent before": (
        [(A, A, (2,)), (A, B, (1, 2))],
        Traced((SentBefore((7, 1), 1, (7, 0)),), (Carried((7, 1), B, A, (2,)),), ()),
    ),
    "a value that is sent later": (
        [(A, B, (1, 2)), (B, B, (2,))], Traced((), (Carried((7, 0), B, A, (2,)),), ())
    ),
    "two moves": ([(A, B, (1,)), (B, C, (1, 2))], Traced(
        (SentBefore((7, 1), 2, (7, 0)),), (Carried((7, 1), C, A, (1,)),), ()
    )),
    "two keys are swapped": (
        [(A, C, (1, 2)), (B, A, (1, 2)), (C, B, (1, 2))],
        Traced(
            (), (Carried((7, 1), A, B, (1, 2)), Carried((7, 2), B, A, (1, 2))), ()
        ),
    ),
    "there and back": ([(A, B, (1,)), (B, A, (1, 2))], Traced(
        (SentBefore((7, 1), 2, (7, 0)),), (Carried((7, 1), A, A, (1,)),), ()
    )),
    "a row inserted in the batch": (
        [(None, A, ()), (A, B, (1, 2))],
        Traced((SentBefore((7, 1), 1, (7, 0)), SentBefore((7, 1), 2, (7, 0))), (), ()),
    ),
    "another row under the key of before": (
        [(A, None, ()), (None, A, ()), (A, B, (1,))],
        Traced((SentBefore((7, 2), 1, (7, 1)),), (), ()),
    ),
    "a row that is deleted in the end": ([(A, B, (1, 2)), (B, None, ())], Traced((), (), ())),
    "an insert by a row filter": (
        [(A, None, ()), (None, A, (1,)), (A, A, (1, 2))], Traced((), (), (NeverSent(A, 1),))
    ),
    "the same, and a value that comes later": (
        [(None, A, (1,)), (A, B, (1, 2)), (B, B, (2,))], Traced(
            (SentBefore((7, 1), 2, (7, 0)),), (), ()
        )
    ),
    "a row that keeps its key": ([(A, A, (1, 2))], Traced((), (), ())),
}


@pytest.mark.parametrize("case", CASES)
def test_traced(case: str) -> None:
    """Each value comes from the change, or from the row of before, that had it last."""
    written, wanted = CASES[case]
    assert trace(steps(*written), LARGE) == wanted


@given(st.data())
def test_every_value_is_found(data: st.DataObject) -> None:
    """Whatever is inserted, updated, moved and deleted over few keys: with the values found, the
    last changes of each key give the rows that the table has."""
    keys = [(text,) for text in "abcd"]
    before = {key: {c: f"old {key[0]} {c}" for c in LARGE} for key in keys[:2]}
    rows = {key: dict(values) for key, values in before.items()}
    made: list[Step] = []
    images: list[dict[int, str]] = []
    for number in range(data.draw(st.integers(0, 12))):
        key = data.draw(st.sampled_from(keys))
        if key not in rows:
            made.append(Step((number, 0), None, key))
            rows[key] = {c: f"{number} {c}" for c in LARGE}
        elif data.draw(st.integers(0, 3)) == 0:
            made.append(Step((number, 0), key, None))
            del rows[key]
        else:
            new = data.draw(st.sampled_from([key, *(each for each in keys if each not in rows)]))
            unsent = tuple(c for c in LARGE if data.draw(st.booleans()))
            made.append(Step((number, 0), key, new, unsent))
            values = rows.pop(key)
            rows[new] = {c: values[c] if c in unsent else f"{number} {c}" for c in LARGE}
        last = made[-1]
        images.append({} if last.new is None else {
            c: rows[last.new][c] for c in LARGE if c not in last.unsent
        })
    found = trace(made, LARGE)
    assert not found.never
    for sent in found.sent:
        images[sent.at[0]][sent.column] = images[sent.sent[0]][sent.column]
    for carried in found.carried:
        for column in carried.columns:
            images[carried.at[0]][column] = before[carried.origin][column]
    merged = dict(before)
    for key in {k for step in made for k in (step.old, step.new) if k is not None}:
        touching = [
            (number, step) for number, step in enumerate(made) if key in (step.old, step.new)
        ]
        if touching[-1][1].new != key:
            merged.pop(key, None)
            continue
        values = dict(before.get(key, {}))
        for number, step in touching:
            if step.new == key:
                values |= images[number]
        merged[key] = values
    assert merged == rows
