"""Connections, sources and sinks that come with a release: brought in, altered, left to users."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from catalog_migrate.catalog.state import State
from catalog_migrate.errors import InvalidOptions, InvalidRelease
from catalog_migrate.release.loader import load_release, load_texts
from catalog_migrate.streams.catalog import dependencies
from catalog_migrate.streams.ddl.bundled_streams import plan_bundled_streams
from tests.decisions import commit

Ship = Callable[[str], list[str]]

V1 = """
CREATE SINK k FROM s INTO KAFKA CONNECTION c (TOPIC 'o') FORMAT JSON;
CREATE SOURCE s (id BIGINT) FROM KAFKA CONNECTION c (TOPIC 't') FORMAT JSON;
CREATE CONNECTION c TO KAFKA (USING CONNECTION base, kafka.linger.ms '5');
CREATE CONNECTION base TO KAFKA (BROKER 'a.example.com:9092');
"""


def statements(text: str) -> Sequence[str]:
    """A release's statements in canonical form."""
    return load_texts([("streams.sql", text)], name="r", default_schema="app").statements


@pytest.fixture
def ship(log: Any, state: Callable[[], State]) -> Ship:
    """Bring a release's statements in force; what became of each."""

    def run(text: str) -> list[str]:
        shipping = plan_bundled_streams(state(), statements(text))
        if shipping.updates:
            commit(log, lambda _: shipping.updates, kind="ship")
        return [f"{each.action} {each.name}" for each in shipping.streams]

    return run


def test_in_any_order(ship: Ship, state: Callable[[], State]) -> None:
    """Statements may stand in any order; what is used comes first."""
    assert ship(V1) == ["create app.base", "create app.c", "create app.s", "create app.k"]
    assert {m.owner for m in state().mappings.values()} == {"shipped"}
    assert ship(V1) == []


def test_the_next_release_alters(ship: Ship, state: Callable[[], State]) -> None:
    """What nobody touched is as the newest release says."""
    ship(V1)
    assert ship(V1.replace("a.example.com", "b.example.com")) == ["alter app.base"]
    base = dependencies.find(state(), "connection", "app.base")
    assert base.external.options["BROKER"] == "b.example.com:9092"


def test_the_users_word_stands(ship: Ship, do: Any, state: Callable[[], State]) -> None:
    """A user's ALTER survives the next release, which says so once, and the one after it."""
    ship(V1)
    do("ALTER CONNECTION app.base SET (BROKER 'mine.example.com:9092')")
    assert ship(V1) == []
    newer = V1.replace("a.example.com", "b.example.com")
    assert ship(newer) == ["keep app.base"]
    assert ship(newer) == []
    base = dependencies.find(state(), "connection", "app.base")
    assert base.external.options["BROKER"] == "mine.example.com:9092"


def test_nothing_is_taken_away(ship: Ship, do: Any, state: Callable[[], State]) -> None:
    """What a release no longer ships becomes the user's, who may drop it then."""
    ship(V1)
    assert ship("CREATE CONNECTION base TO KAFKA (BROKER 'a.example.com:9092')") == [
        "hand over app.c", "hand over app.s", "hand over app.k"
    ]
    do("DROP SINK app.k; DROP SOURCE app.s; DROP CONNECTION app.c")
    assert dependencies.lookup(state(), "connection", "app.c") is None


def test_a_users_object_stays(ship: Ship, do: Any, state: Callable[[], State]) -> None:
    """A name that a user has is left to the user."""
    do("CREATE CONNECTION app.base TO KAFKA (BROKER 'mine.example.com:9092')")
    assert ship("CREATE CONNECTION base TO KAFKA (BROKER 'a.example.com:9092')") == [
        "keep app.base"
    ]
    assert dependencies.find(state(), "connection", "app.base").mapping.owner == "user"


def test_options_are_checked(state: Callable[[], State]) -> None:
    """What is wrong with a statement is said when the release is planned."""
    with pytest.raises(InvalidOptions, match="BROKR"):
        plan_bundled_streams(state(), ["CREATE CONNECTION app.c TO KAFKA (BROKR 'a:1')"])


def test_what_needs_no_catalog_is_told_with_its_place() -> None:
    """A value instead of a reference, options that are not there and values that are none: all at
    once, with file, line and column, and never with what may be a secret."""
    text = (
        "CREATE SECRET s.k AS 'HUSHVALUE';\n"
        "CREATE CONNECTION c TO KAFKA (BROKR 'a:1');\n"
        "  CREATE CONNECTION d TO KAFKA (USING CONNECTION base, NONSENSE 'x');\n"
        "CREATE SOURCE o (id BIGINT) FROM KAFKA CONNECTION d (TOPC 't') FORMAT JSON;\n"
        "CREATE SECRET s.k AS 'HUSHAGAIN';\n"
        "CREATE SOURCE q FROM POSTGRES CONNECTION d (PUBLICATION 'p', TABLES (t));\n"
    )
    with pytest.raises(InvalidRelease) as caught:
        load_texts([("a.sql", text)], name="r", default_schema="app")
    problems = caught.value.problems
    assert [(p.code, p.file, p.line, p.column) for p in problems] == [
        ("CM0117", "a.sql", 1, 1),
        ("CM0711", "a.sql", 2, 1),
        ("CM0712", "a.sql", 2, 1),
        ("CM0711", "a.sql", 3, 3),
        ("CM0711", "a.sql", 4, 1),
        ("CM0712", "a.sql", 4, 1),
        ("CM0102", "a.sql", 5, 1),
        ("CM0751", "a.sql", 6, 1),
    ]
    assert "connection app.c: " in problems[1].message
    assert "BROKER" in str(problems[1].remedy)
    assert "TOPIC" in str(problems[4].remedy)
    assert "HUSH" not in str(caught.value)


def test_a_base_that_only_the_catalog_has() -> None:
    """What a connection may inherit is not missed before the catalog is known."""
    text = "CREATE CONNECTION app.c TO KAFKA (USING CONNECTION app.base, kafka.linger.ms = '5');"
    assert statements(text) == (text,)


def test_places_of_mistakes() -> None:
    """Every mistake has file, line and column; others of the same release are reported with it."""
    text = "CREATE TABLE app.t (id BIGINT);\n\n  CREATE CONNECTION c TO KAFKA (;\n" \
           "CREATE SECRET s AS 'env:A';\nCREATE SECRET s AS 'env:B';\n"
    with pytest.raises(InvalidRelease) as caught:
        load_texts([("a.sql", text)], name="r")
    assert [(p.code, p.file, p.line) for p in caught.value.problems] == [
        ("CM0101", "a.sql", 3), ("CM0102", "a.sql", 5)
    ]


def test_through_a_manifest(tmp_path: Path) -> None:
    """A compiled manifest ships the same statements, under the same hash."""
    from catalog_migrate.release.manifest import encode_manifest

    release = load_texts([("streams.sql", V1)], name="r", default_schema="app")
    manifest = tmp_path / "r.json"
    manifest.write_bytes(encode_manifest("r", release.objects, statements=release.statements))
    assert load_release(manifest).statements == release.statements


def test_paused_counts_once(ship: Ship, do: Any, state: Callable[[], State]) -> None:
    """PAUSED of a release holds what it creates; a later start takes no RESUME back."""
    paused = V1.replace("FORMAT JSON", "FORMAT JSON PAUSED", 1)
    ship(paused)
    assert [hold.holder for hold in state().holds.values()] == ["operator"]
    do("RESUME SINK app.k")
    assert ship(paused) == []
    assert dict(state().holds) == {}
