"""The guide to connectors shows code that runs: every block of it stands in the example's files."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "tests" / "connectors" / "queue_package"
BLOCKS = re.findall(
    r"^```(python|toml)\n(.*?)^```$", (ROOT / "docs" / "connectors.md").read_text("utf-8"),
    re.MULTILINE | re.DOTALL,
)


@pytest.mark.parametrize("block", [text for _, text in BLOCKS], ids=range(len(BLOCKS)))
def test_a_block_stands_in_the_example(block: str) -> None:
    """As it is there, letter by letter."""
    files = [
        *PACKAGE.glob("*.toml"), *PACKAGE.rglob("catalog_migrate_queue/*.py"),
        PACKAGE.parent / "test_suite.py",
    ]
    assert any(block.strip("\n") in file.read_text("utf-8") for file in files)


def test_it_shows_what_matters() -> None:
    """Package, options, connector, positions, source, reader, sink, writer, suite."""
    shown = "".join(text for _, text in BLOCKS)
    for name in ("entry-points", "CONNECTION = Section", "class Queue(", "class QueueCodec",
                 "class QueueSource", "class StreamReader", "class QueueSink", "class QueueWriter",
                 "class TestQueue("):
        assert name in shown
