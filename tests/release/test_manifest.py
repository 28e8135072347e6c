"""``release compile``: contracts, written-out stars, hashes, and telling a stale manifest."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from catalog_migrate.errors import InvalidRelease
from catalog_migrate.model.objects import ObjectDefinition
from catalog_migrate.release.loader import load_manifest, load_texts
from catalog_migrate.release.manifest import Analysed, compile_release, creation_order, is_stale
from catalog_migrate.release.release import Release, facts_of

SQL = """
CREATE TYPE s.m AS DECIMAL(18,2);
CREATE TABLE s.t (a INT, b s.m);
CREATE VIEW s.v (a INT, b s.m) AS SELECT * FROM s.t;
CREATE VIEW s.w AS SELECT t.*, v.a AS z FROM s.t JOIN s.v ON t.a = v.a;
"""
COLUMNS = [("a", "int", True), ("b", "decimal(18,2)", True), ("z", "int", True)]


def load(sql: str = SQL) -> Release:
    return load_texts([("a.sql", sql)], name="1", contracts=False)


def analyse(objects: Sequence[ObjectDefinition]) -> Analysed:
    assert [str(one.key) for one in objects] == ["type:s.m", "s.t", "s.v", "s.w"]
    return {("relation", "s", "w"): COLUMNS}


def test_compiled_manifest_is_a_release_of_its_own() -> None:
    """Contracts are filled in, stars written out, edges kept, and planning need not tokenise."""
    release = load_manifest(compile_release(load(), analyse))
    view = release.by_identity["relation", "s", "w"]
    assert [(one.name, one.type) for one in view.columns] == [
        ("a", "INT"), ("b", "DECIMAL(18,2)"), ("z", "INT")
    ]
    assert view.sql == (
        "SELECT `t`.`a`, `t`.`b`, v.a AS z FROM s.t JOIN s.v ON t.a = v.a"
    )
    assert release.uses[view.identity] == (("relation", "s", "t"), ("relation", "s", "v"))
    assert release.uses["relation", "s", "t"] == (("type", "s", "m"),)
    facts = facts_of(view)
    assert (facts.hashes.definition, facts.hashes.text) == (view.definition_hash, view.text_hash)


def test_compile_without_analyser_names_every_view() -> None:
    """Without Spark the views that lack a contract are refused by name."""
    with pytest.raises(InvalidRelease, match=r"a\.sql:5:13: CM0107 view s\.w has no typed"):
        compile_release(load(), None)


def test_analyser_is_not_asked_without_need() -> None:
    """A release whose views all have contracts compiles without Spark."""
    compile_release(load(SQL.replace("s.w AS", "s.w (a INT, b s.m, z INT) AS")), None)


@pytest.mark.parametrize(
    ("before", "after", "names"),
    [
        ("-", "-", ()),
        ("t.*, v.a", "t.*,   v.a", ("s.w",)),
        ("b s.m);\n", "b s.m, c INT);\n", ("s.t", "s.v", "s.w")),
        ("CREATE VIEW s.v", "CREATE TABLE s.u (a INT); CREATE VIEW s.v", ("s.u",)),
        ("CREATE VIEW s.v", "DROPPED TABLE s.gone; CREATE VIEW s.v", ("s.gone",)),
    ],
)
def test_stale_objects_are_named(before: str, after: str, names: tuple[str, ...]) -> None:
    """A manifest is stale in the objects whose source changed, and in what only it knew of them."""
    manifest = compile_release(load(), analyse)
    found = is_stale(manifest, load(SQL.replace(before, after)))
    assert found == (names if after != "t.*,   v.a" else ())


def test_creation_order_is_that_of_the_graph() -> None:
    """What is used comes first, whatever order the statements have."""
    release = load("".join(reversed(SQL.strip().splitlines())))
    assert [str(one.key) for one in creation_order(release)] == ["type:s.m", "s.t", "s.v", "s.w"]


def test_tables_that_are_given_up_are_in_the_manifest() -> None:
    """DROPPED TABLE goes through the manifest, and makes it another one."""
    release = load(SQL + "DROPPED TABLE s.gone, s.`Old`; DROPPED TABLE s.gone;")
    assert release.dropped == ("s.gone", "s.old")
    compiled = compile_release(release, analyse)
    again = load_manifest(compiled)
    assert again.dropped == release.dropped
    assert is_stale(compiled, release) == ()
    assert load_manifest(compile_release(load(), analyse)).dropped == ()
    assert release.manifest_hash != load().manifest_hash
