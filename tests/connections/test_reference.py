"""The page of the documentation is the tables'."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from catalog_migrate.connectors.base import connector_names, find_connector
from catalog_migrate.connectors.postgres import ledger
from tests.connections.reference import page

PAGE = Path(__file__).parents[2] / "docs" / "connections.md"


def test_page_is_up_to_date() -> None:
    """docs/connections.md is what the module prints."""
    printed = subprocess.run(
        [sys.executable, "-m", "tests.connections.reference"],
        check=True, capture_output=True, text=True,
    ).stdout
    assert PAGE.read_text(encoding="utf-8") == printed == page()


def test_every_option_is_on_it() -> None:
    """Each option of each section stands on the page."""
    for connector in map(find_connector, connector_names()):
        for section in map(connector.section, ("connection", "source", "sink")):
            for name in () if section is None else section.names:
                assert f"| `{name}` |" in page()


def test_ledger_statement_is_the_sinks_own() -> None:
    """The statement that an administrator runs makes the table that the sink would make."""
    statement = ledger._CREATE.format(f"the_schema.{ledger.LEDGER}")
    assert " ".join(statement.split()) in " ".join(page().split())
