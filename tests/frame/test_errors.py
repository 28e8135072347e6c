"""The errors: one file, a code and an exit code each, what they carry and print."""

from __future__ import annotations

import ast
import pickle
from pathlib import Path

import pytest

from catalog_migrate import errors
from catalog_migrate.errors import (
    CatalogMigrateError,
    NotSettled,
    Problem,
    Refusal,
    SourceDiffers,
    StalePlan,
    UnsafeBlocked,
    UnsafeRefused,
    ValidationFailed,
    suggest,
)

ROOT = Path(__file__).parents[2]


def every_error() -> set[type[CatalogMigrateError]]:
    """All errors of the product."""
    kinds = vars(errors).values()
    return {
        kind for kind in kinds
        if isinstance(kind, type) and issubclass(kind, CatalogMigrateError)
    } - {CatalogMigrateError}


def test_every_exit_code_has_a_runbook_page() -> None:
    """The frozen exit codes, and those of all error classes, each have their page."""
    pages = {int(page.stem.split("-")[1]) for page in (ROOT / "docs/runbooks").glob("exit-*.md")}
    raised = {kind.exit_code for kind in every_error()}
    assert pages == {0, 1, 2, 3, 4, 5, 6, 7, 8, 64, 78, 130}
    assert raised <= pages


def test_every_error_code_is_used_once() -> None:
    """Codes never share a meaning."""
    codes = [kind.code for kind in every_error() if "code" in vars(kind)]
    assert len(codes) == len(set(codes))


def test_every_error_stands_in_errors() -> None:
    """An error, its code and its exit code are looked up in one file."""
    ours = {"CatalogMigrateError", *(kind.__name__ for kind in every_error())}
    elsewhere = [
        f"{path.relative_to(ROOT)}: {node.name}"
        for path in (ROOT / "catalog_migrate").rglob("*.py") if path != Path(errors.__file__)
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ClassDef) and ours & {ast.unparse(base) for base in node.bases}
    ]
    assert elsewhere == []


def test_an_exception_keeps_its_old_name() -> None:
    """What was renamed is caught under both names; the old one is deprecated."""
    for old, new in (("LostTrail", "PositionLost"), ("CatalogGivenBack", "CatalogExported")):
        with pytest.warns(DeprecationWarning, match=new):
            assert getattr(errors, old) is getattr(errors, new)
    with pytest.raises(AttributeError, match="NoSuchError"):
        errors.NoSuchError  # noqa: B018


def test_every_error_survives_pickling() -> None:
    """What a worker raises arrives with its text, its data and its attributes."""
    for kind in every_error():
        error = kind("what happened", remedy="what to do", holder="far")
        copy = pickle.loads(pickle.dumps(error))
        assert type(copy) is kind
        assert str(copy) == str(error)
        assert copy.data == error.data
        assert [getattr(copy, name) for name in kind.carries] == [
            error.data[name] for name in kind.carries
        ]


@pytest.mark.parametrize(("kind", "line"), [
    (NotSettled, "  a"),
    (SourceDiffers, "  a"),
    (StalePlan, "  a"),
    (UnsafeBlocked, "  a"),
    (UnsafeRefused, "  missing: a"),
    (ValidationFailed, "  a"),
])
def test_an_error_lists_all_that_is_wrong(kind: type[CatalogMigrateError], line: str) -> None:
    """Below message and remedy, an entry a line; the list is a tuple whatever was given."""
    error = kind("no", remedy="do", **{kind.listed: ["a", "b"]})
    assert str(error) == f"{kind.code}: no\n  remedy: do\n{line}\n{line[:-1]}b"
    assert getattr(error, kind.listed) == error.data[kind.listed] == ("a", "b")
    assert getattr(kind("no"), kind.listed) == ()


def test_a_problem_is_listed_with_its_place() -> None:
    """Problems have no indentation: each begins with its file."""
    found = Problem("CM0101", "no type", file="a.sql", line=3, column=4, remedy="write one")
    assert str(Refusal("no", problems=[found])) == (
        "CM0809: no\na.sql:3:4: CM0101 no type\n    remedy: write one"
    )


def test_a_remedy_names_the_nearest_words() -> None:
    """At most so many of them, of a mapping what they stand for; without any it is another."""
    assert suggest("tabel", ["view", "table"], "write one") == "did you mean table?"
    assert suggest("colour", {"color": "x.color", "colors": "x.colors"}, "", most=2) == (
        "did you mean x.color or x.colors?"
    )
    assert suggest("zzz", ["view"], "write one") == "write one"
