"""Sixty sources on one runtime."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from bench.many import ROWS, SOURCES, start_many


@pytest.mark.spark
@pytest.mark.services
@pytest.mark.soak
def test_sixty_sources(tmp_path: Path, record_property: Callable[[str, object], None]) -> None:
    """All start and mirror their tables, a change to each arrives, none is held, and the runtime
    keeps its lease and ends cleanly."""
    found = start_many(tmp_path / "many", SOURCES)
    assert [each.sources for each in found.taken] == [1, SOURCES]
    record_property("rows", SOURCES * (ROWS + 1))
