"""docs/statements.md shows every statement, and what it shows is right."""

from __future__ import annotations

import re
from typing import get_args

import pytest

from catalog_migrate.errors import SyntaxProblem
from catalog_migrate.sql import statements
from catalog_migrate.sql.parser import Parsed, is_ours, parse
from catalog_migrate.sql.statements import CONNECTORS, KINDS, LISTINGS, RESERVED, Explainable


def test_every_statement_has_an_example(examples: tuple[Parsed, ...]) -> None:
    """Each kind of statement, of action and of unsafe action stands on the page."""
    shown = {type(example.statement) for example in examples}
    assert shown == {*get_args(Explainable), statements.Explain}
    actions = {
        type(action) for example in examples
        for action in getattr(example.statement, "actions", ())
    }
    assert actions == set(get_args(statements.UnsafeAction))


def test_every_kind_and_listing_has_an_example(examples: tuple[Parsed, ...]) -> None:
    """DROP, RENAME, COMMENT and SHOW CREATE are shown for each kind, SHOW for each listing."""
    for statement in (statements.Comment, statements.ShowCreate, statements.Rename):
        kinds = {e.statement.kind for e in examples if isinstance(e.statement, statement)}
        assert kinds == set(KINDS.values())
    drops = {e.statement.kind for e in examples if isinstance(e.statement, statements.Drop)}
    assert drops == set(KINDS.values())
    listed = {e.statement.what for e in examples if isinstance(e.statement, statements.Show)}
    assert listed == set(LISTINGS.values())
    connectors = {
        e.statement.external.connector
        for e in examples if isinstance(e.statement, statements.CreateConnection)
    }
    assert connectors == set(CONNECTORS)


def test_every_example_is_recognised(examples: tuple[Parsed, ...]) -> None:
    """No example would be taken for a statement of Spark."""
    assert [example.text for example in examples if not is_ours(example.text)] == []


def test_the_page_lists_the_keywords(page: str) -> None:
    """The words that need backticks are listed, in order."""
    listed = re.search(r"  Keywords: (.*?)\.\n", page, re.DOTALL)
    assert listed is not None
    assert re.findall(r"`(\w+)`", listed[1]) == sorted(RESERVED)


def test_the_page_shows_an_error_as_it_is(page: str) -> None:
    """The error on the page is the one that the statement under it gives."""
    [shown] = re.findall(r"^```text\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    with pytest.raises(SyntaxProblem) as caught:
        parse("ALTER CONNECTION kafka SETT (BROKER = 'x:9092')")
    assert f"{caught.value}\n" == shown
