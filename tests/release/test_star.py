"""What ``release compile`` writes for the ``*`` of a query: the text is in catalogs, and hashed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from catalog_migrate.model.objects import Column
from catalog_migrate.release.manifest import expand_star

GOLDEN = msgspec.json.decode(Path(__file__).with_name("golden").joinpath("stars.json").read_bytes())


def columns(names: list[str]) -> tuple[Column, ...]:
    """Columns of these names; types play no role."""
    return tuple(Column(name, "STRING") for name in names)


@pytest.mark.parametrize("case", GOLDEN["cases"], ids=lambda case: case["query"])
def test_a_star_is_written_as_it_was(case: dict[str, Any]) -> None:
    """Another text is another definition hash: the view would be created again by an upgrade."""
    known = {tuple(name.split(".")): columns(names) for name, names in GOLDEN["tables"].items()}
    assert expand_star(case["query"], known, columns(case["columns"])) == case["written"]
