"""An upgrade of the tool redefines nothing: hashes of an earlier scheme are compared."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from catalog_migrate.planner.baseline import Baseline
from catalog_migrate.planner.diff import compare, is_unchanged
from catalog_migrate.release.loader import load_manifest, load_texts
from catalog_migrate.release.manifest import (
    compile_release,
    decode_manifest,
    encode_manifest,
    is_stale,
)
from catalog_migrate.release.release import Release, definition_facts

FIRST = """
CREATE TABLE s.t (id INT, a STRING, CHECK (id > 0 -- not zero
  AND id < 9));
CREATE VIEW s.v (j STRING) AS SELECT to_json(struct(id AS userid)) AS j FROM s.t;
CREATE FUNCTION s.f(x INT) RETURNS STRING RETURN to_json(struct(x AS myKey));
"""


def release(text: str) -> Release:
    """The release of one file."""
    return load_texts([("r.sql", text)], name="r")


def in_scheme_1(text: str) -> Baseline:
    """What an earlier version of the tool left in the catalog."""
    baseline = Baseline.from_release(release(text))
    return replace(baseline, objects={
        identity: replace(
            held, hashes=held.hashes._replace(definition=f"1:{held.definition.name}")
        )
        if held.hashes.definition else held
        for identity, held in baseline.objects.items()
    })  # fmt: skip


def changed(baseline: Baseline, other: Release) -> list[str]:
    """Objects that are not unchanged."""
    found = [
        compared.definition.name for compared in compare(baseline, other).objects.values()
        if compared.action is not None
    ]
    assert is_unchanged(baseline, other) is (not found)
    return sorted(found)


@pytest.mark.parametrize(
    ("old", "new", "names"),
    [
        ("", "", []),
        ("AS SELECT", "AS -- comment\r  select", []),
        ("FROM s.t", "from `S`.T", []),
        ("userid", "userId", ["v"]),
        ("AS userid", "userid", ["v"]),
        ("myKey", "mykey", ["f"]),
        ("(j STRING)", "(J STRING)", ["v"]),
        ("SELECT to", "SELECT /*+ REPARTITION(2) */ to", ["v"]),
        ("-- not zero", "-- positive", []),
        ("-- not zero\n ", "/* not zero */", []),
        ("  AND id < 9", "-- AND id < 9\n", ["t"]),
    ],
)
def test_what_was_stored_before_is_compared_by_its_definition(
    old: str, new: str, names: list[str]
) -> None:
    """The same release is unchanged; what differs is found, from either scheme."""
    other = release(FIRST.replace(old, new) if old else FIRST)
    assert changed(in_scheme_1(FIRST), other) == names
    assert changed(Baseline.from_release(release(FIRST)), other) == names


def test_a_manifest_of_the_earlier_scheme_changes_nothing() -> None:
    """It loads; its hashes are taken where they are in force, and made again where not."""
    compiled = decode_manifest(compile_release(release(FIRST), None))
    objects = [
        replace(one, definition_hash=f"1:{one.name}") if one.definition_hash else one
        for one in compiled.objects
    ]
    old = load_manifest(encode_manifest("r", objects))
    assert changed(Baseline.from_release(old), release(FIRST)) == []
    assert changed(in_scheme_1(FIRST), old) == []
    assert changed(in_scheme_1(FIRST.replace("userid", "userId")), old) == ["v"]


STARS = """
CREATE TABLE s.t (id INT, a STRING);
CREATE VIEW s.v (id INT, a STRING) AS SELECT * FROM s.t WHERE nvl(a, 'x') <> 'y';
CREATE VIEW s.w (id INT) AS SELECT id FROM s.v;
"""
EARLIER = (
    "SELECT `t`.`id` AS `id`, `t`.`a` AS `a` FROM `s`.`t` AS `t` "
    "WHERE COALESCE(`t`.`a`, 'x') <> 'y'"
)


def compiled(text: str, sql: str | None = None) -> bytes:
    """The manifest of a release; ``sql`` is what an earlier version wrote for the view s.v."""
    found = decode_manifest(compile_release(release(text), None))
    objects = [
        one if sql is None or one.name != "v" else replace(
            one, sql=sql, text_hash=None, definition_hash=None
        )
        for one in found.objects
    ]
    done = [
        replace(one, text_hash=defined[0] or None, definition_hash=defined[1])
        if one.kind != "table" and (defined := definition_facts(one)) else one
        for one in objects
    ]
    return encode_manifest("r", done)


@pytest.mark.parametrize(
    ("old", "new", "names"),
    [
        ("", "", []),
        ("nvl", "ifnull", []),
        ("'y'", "'z'", ["v"]),
        ("WHERE", "-- all\nWHERE", []),
        ("<>", "=", ["v"]),
        ("a STRING);\nCREATE VIEW s.v (id", "b INT, a STRING);\nCREATE VIEW s.v (id", ["t", "v"]),
    ],
)
def test_a_star_that_an_earlier_version_wrote_out_changes_nothing(
    old: str, new: str, names: list[str]
) -> None:
    """A catalog with its texts and a manifest of today are compared by what the texts say, either
    way round; what differs is found."""
    before = load_manifest(compiled(STARS, EARLIER))
    other = STARS.replace(old, new) if old else STARS
    if names == ["t", "v"]:
        other = other.replace("SELECT *", "SELECT id, 1, a").replace(
            "(id INT, a STRING) AS", "(id INT, b INT, a STRING) AS"
        )
    now = load_manifest(compiled(other))
    assert changed(Baseline.from_release(before), now) == names
    assert changed(Baseline.from_release(now), before) == names


def test_a_manifest_with_stars_that_an_earlier_version_wrote_out_is_not_stale() -> None:
    """``release compile --check`` asks for a new one only where the sources changed."""
    earlier = compiled(STARS, EARLIER)
    assert is_stale(earlier, release(STARS)) == ()
    assert is_stale(earlier, release(STARS.replace("'y'", "'z'"))) == ("s.v",)
    assert is_stale(compiled(STARS), release(STARS)) == ()
