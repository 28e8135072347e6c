"""An estimate of a copy by the copies that were made."""

from __future__ import annotations

import pytest

from catalog_migrate.model.sizes import FURTHEST, Copied, estimate_seconds

MB = 1_000_000


@pytest.mark.parametrize(
    ("size", "copies", "seconds"),
    [
        (100, [], None),
        # one alone is a rate
        (50 * MB, [Copied(100 * MB, 8.0)], 4.0),
        (50 * MB, [Copied(100 * MB, 8.0), Copied(100 * MB, 4.0)], 3.0),
        # copies of nothing say what starting one takes
        (0, [Copied(0, 2.0), Copied(0, 4.0)], 3.0),
        (1, [Copied(0, 2.0)], None),
        # what starting takes is told from what the bytes take
        (0, [Copied(1_000, 2.0), Copied(100 * MB, 12.0)], 2.0),
        (200 * MB, [Copied(1_000, 2.0), Copied(100 * MB, 12.0)], 22.0),
        # a line that would begin before 0 is a rate
        (10 * MB, [Copied(10 * MB, 1.0), Copied(20 * MB, 4.0)], 1.7),
        # larger ones were faster: the mean is all that is known
        (30 * MB, [Copied(10 * MB, 3.0), Copied(20 * MB, 2.0)], 2.5),
    ],
)
def test_an_estimate_is_the_line_through_the_copies(
    size: int, copies: list[Copied], seconds: float | None
) -> None:
    """Seconds of starting one and seconds for each byte, neither of them negative."""
    assert estimate_seconds(size, copies) == seconds


def test_small_copies_say_nothing_of_a_large_table() -> None:
    """A rate of tables of a few bytes would make days of a gigabyte."""
    copies = [Copied(900, 0.9), Copied(1_000, 1.1)]
    assert estimate_seconds(FURTHEST * 1_000, copies) == 10.5
    assert estimate_seconds(FURTHEST * 1_000 + 1, copies) is None
