"""What a backfill reads, on any numbers."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from catalog_migrate.connectors.base import Contents
from catalog_migrate.connectors.positions import OffsetRange
from catalog_migrate.streams.catalog.operation_records import Chunk
from catalog_migrate.streams.positions.backfill import (
    chunks_of,
    clip,
    expired_ranges,
    skipped_note,
    skipped_ranges,
)
from catalog_migrate.streams.positions.plan import Row

offsets = st.lists(
    st.tuples(st.integers(0, 50), st.integers(0, 40)).map(lambda pair: (pair[0], sum(pair))),
    max_size=5,
)


@given(offsets, st.integers(1, 30))
def test_every_record_is_in_one_chunk(found: list[tuple[int, int]], size: int) -> None:
    """Chunks are as large as they may be, and nothing is left out or twice."""
    ranges = [OffsetRange("t", number, first, until) for number, (first, until) in enumerate(found)]
    chunks = chunks_of("i1", ranges, size)
    read = [(number, offset) for chunk in chunks for _, number, first, last in chunk.places
            for offset in range(first, last)]
    assert read == [(number, offset) for _, number, first, last in ranges
                    for offset in range(first, last)]
    sizes = [sum(last - first for _, _, first, last in chunk.places) for chunk in chunks]
    assert all(each == size for each in sizes[:-1])
    assert all(0 < each <= size for each in sizes[-1:])


def test_what_is_skipped() -> None:
    """From the old position to the target, as far as it is there; the rest has expired."""
    rows = [
        Row("t", 0, 2, 9, 4, 20, skipped=5, expired=2), Row("t", 1, 5, 3, 0, 9, doubled=2),
        Row("t", 2, None, 3, 0, 9, skipped=3), Row("t", 3, 1, 4, 6, 9, expired=3),
    ]
    ranges = skipped_ranges(rows)
    assert ranges == [("t", 0, 4, 9)]
    assert expired_ranges(rows) == ["t:0: 2 to 3", "t:3: 1 to 3"]
    assert skipped_note(chunks_of("i1", ranges, 3), ["t:0: 2 to 3"]) == (
        "BACKFILL: 5 skipped records are read into the table, in 2 chunks; expired already: "
        "t:0: 2 to 3"
    )


def test_of_the_same_topic_only() -> None:
    """What expired since, and a topic that is another one by now, are left out and told."""
    contents = Contents(
        "c", {"t": "a", "u": "new"}, {("t", 0): (5, 9), ("u", 0): (0, 9)}, lambda *_: {}
    )
    chunk = Chunk("i1", (
        OffsetRange("t", 0, 3, 8), OffsetRange("t", 0, 1, 2), OffsetRange("u", 0, 3, 6),
    ))
    assert clip(chunk, contents, {"t": "a", "u": "old"}) == (
        (("t", 0, 5, 8),),
        ["t:0: 3 to 4 have expired", "t:0: 1 to 1 have expired",
         "u:0: 3 to 5: the topic is another one"],
    )
