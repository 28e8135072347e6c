"""The statements of the documentation, for every test that wants all of them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from catalog_migrate.sql.parser import Parsed, parse

PAGE = Path(__file__).parents[2] / "docs" / "statements.md"


@pytest.fixture(scope="session")
def page() -> str:
    """The page that documents every statement."""
    return PAGE.read_text()


@pytest.fixture(scope="session")
def examples(page: str) -> tuple[Parsed, ...]:
    """Every example of the page, parsed."""
    blocks = re.findall(r"^```sql\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    return tuple(parsed for block in blocks for parsed in parse(block))
