"""What a query's progress and its checkpoint say, without Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from catalog_migrate.streams.checkpoint.directory import Checkpoint
from catalog_migrate.streams.spark.running import is_settled, lag_of

BEHIND = {"maxOffsetsBehindLatest": "3"}


@pytest.mark.parametrize(
    ("sources", "lag"),
    [
        ([{"metrics": BEHIND, "endOffset": {"t": {"0": 5, "1": 2}},
           "latestOffset": {"t": {"0": 7, "1": 2, "2": 4}}}], 6),
        ([{"metrics": BEHIND, "endOffset": None, "latestOffset": {"t": {"0": 7}}}], 7),
        ([{"metrics": {"numBytesOutstanding": "0"}, "endOffset": {}}], 0),
        ([{"metrics": {"numBytesOutstanding": "10"}}], None),
        ([{"metrics": {}}], None),
        ([{}], None),
    ],
    ids=["partitions", "first batch", "delta at the end", "delta behind", "files", "nothing said"],
)  # fmt: skip
def test_lag(sources: list[dict[str, Any]], lag: int | None) -> None:
    """Kafka's lag is counted in records; another source's only when nothing is left."""
    assert lag_of(sources) == lag


def test_settled_checkpoint(tmp_path: Path) -> None:
    """A checkpoint is settled when its newest batch is committed; a new one is."""
    checkpoint = Checkpoint(tmp_path)
    assert is_settled(checkpoint)
    for log, names in {"offsets": ("8", "9", "10", ".10.crc"), "commits": ("8", "9")}.items():
        (tmp_path / log).mkdir()
        for name in names:
            (tmp_path / log / name).write_text("")
    assert not is_settled(checkpoint)
    (tmp_path / "commits" / "10").write_text("")
    assert is_settled(checkpoint)
