"""Words for people that several layers need alike."""

from __future__ import annotations

import pytest

from catalog_migrate.model.wording import align, join_some, list_first


@pytest.mark.parametrize(("number", "shown"), [
    (0, []), (2, ["0", "1"]), (3, ["0", "1", "… and 1 more"]),
    (1_002, ["0", "1", "… and 1,000 more"]),
])
def test_a_long_list_says_how_long_it_is(number: int, shown: list[str]) -> None:
    """Only one that is longer than what is shown does."""
    assert list_first([str(each) for each in range(number)], 2) == shown


def test_some_names_in_a_sentence() -> None:
    """The first ones, and how many more there are."""
    assert join_some([], 2) == ""
    assert join_some(["a", "b"], 2) == "a, b"
    assert join_some(["a", "b", "c", "d"], 2) == "a, b and 2 more"


def test_a_table_is_aligned() -> None:
    """Each column is as wide as its widest cell, numbers flush right, no blanks at the end."""
    rows = [("name", "rows", "note"), ("orders", "12", ""), ("o", "1,234", "x")]
    assert align(rows, right={1}) == [
        "name     rows  note", "orders     12", "o       1,234  x",
    ]
    assert align([]) == []
