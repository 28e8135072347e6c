"""Hostile names in every position: they mean themselves, or are refused before anything is done."""

from __future__ import annotations

from typing import Any

import pytest

from catalog_migrate.catalog.clock import SystemClock
from catalog_migrate.catalog.memory_log import MemoryLog
from catalog_migrate.catalog.opening import read_state
from catalog_migrate.errors import InvalidName, InvalidRelease
from catalog_migrate.model.names import ItemName, quote_part, quote_sql, split_name
from catalog_migrate.release.loader import load_manifest, load_texts
from catalog_migrate.release.manifest import encode_manifest
from catalog_migrate.sql.parser import parse_one
from catalog_migrate.sql.printer import render
from catalog_migrate.sql.tokens import string_literal, tokenise
from catalog_migrate.testing.engine import SimulatedEngine
from catalog_migrate.testing.starts import migrate
from tests.sql.printer import print_definition

HOSTILE = (
    "a`b", "`", "o'quote", 'dq"x', "back\\slash", "new\nline", "tab\there", "cr\rx", "a.b", "..",
    "../../etc", "/etc/passwd", "-rf", "--x", "a;b", "/*", "*/", "${x}", "{x}", "%s", "%2e%2e",
    "select", "table", "null", "\u0430dmin", "admin", "ﬁ", "x\u202ey", "\u00a0", "日本", "🙂",
    "x" * 255, "a b", " lead", "trail ", "1", "`; DROP SCHEMA x CASCADE; --",
)
"""Quotes, ends of statements and comments, paths, options, reserved words, look-alikes, length."""


@pytest.mark.parametrize("name", HOSTILE)
def test_a_quoted_name_is_one_token_that_means_itself(name: str) -> None:
    """In lists, in SQL and in the statement language the two parts come back as they were."""
    assert split_name(str(ItemName(name, name))) == (name, name)
    assert split_name(ItemName(name, name).sql) == (name, name)
    found = [token.text for token in tokenise(f"{quote_sql(name)} {string_literal(name)} x")]
    assert len(found) == 3
    statement = f"DROP SOURCE {quote_part(name)}.{quote_part(name)}"
    parsed = parse_one(statement)
    assert parse_one(render(parsed)) == parsed


@pytest.mark.parametrize("name", HOSTILE)
def test_columns_comments_and_properties_come_back_as_written(name: str) -> None:
    """Through SQL text and manifest, in every position that may hold anything."""
    quoted, text = quote_sql(name), string_literal(name)
    sql = (
        f"CREATE TYPE s.{quoted} AS STRUCT<{quoted}: INT>;"
        f"CREATE TABLE s.t (id INT COMMENT {text}, {quoted} STRING, other s.{quoted})"
        f" COMMENT {text} WITH ({string_literal('k.' + name)} = {text});"
        f"CREATE VIEW s.v ({quoted} STRING COMMENT {text}) COMMENT {text} AS"
        f" SELECT {quoted} FROM s.t;"
        f"CREATE FUNCTION s.{quoted} ({quoted} INT) RETURNS INT COMMENT {text} RETURN {quoted} + 1;"
    )
    release = load_texts([("r.sql", sql)], name=name)
    again = load_manifest(encode_manifest(release.name, release.objects))
    assert again.name == name
    assert again.by_identity == release.by_identity
    by_name = {(each.kind, each.name): each for each in release.objects}
    table = by_name["table", "t"]
    assert [column.name for column in table.columns] == ["id", name, "other"]
    assert (table.comment, table.columns[0].comment) == (name, name)
    assert by_name["view", "v"].columns[0].name == name
    assert by_name["function", name].arguments[0].name == name
    printed = ";".join(print_definition(each) for each in release.objects)
    assert load_texts([("p.sql", printed)], name=name).by_identity == release.by_identity


@pytest.mark.parametrize("kind", ["TABLE", "VIEW"])
@pytest.mark.parametrize("name", HOSTILE)
def test_a_relation_that_spark_cannot_have_is_refused_with_its_place(kind: str, name: str) -> None:
    """As a schema and as a name, with file and line, before anything is planned."""
    plain = name.replace("_", "").isalnum() and name.isascii()
    body = "(a INT)" if kind == "TABLE" else "(a INT) AS SELECT 1 AS a"
    for place in (f"s.{quote_sql(name)}", f"{quote_sql(name)}.t"):
        text = f"\nCREATE {kind} {place} {body};"
        if plain:
            assert load_texts([("r.sql", text)], name="1").objects
            continue
        with pytest.raises(InvalidRelease) as caught:
            load_texts([("r.sql", text)], name="1")
        (problem,) = caught.value.problems
        assert (problem.code, problem.file, problem.line) == ("CM0115", "r.sql", 2)


def test_an_empty_part_is_no_name() -> None:
    """Nothing has no name."""
    for text in ("", "``", "s.", ".t", "s.``"):
        with pytest.raises(InvalidName):
            split_name(text)


def test_an_upgrade_keeps_hostile_columns(tmp_path: Any) -> None:
    """On the simulated engine: rename and copy among columns of every hostile name."""
    log, engine = MemoryLog(), SimulatedEngine(persistent=True)
    names = [name for name in HOSTILE if name != "admin"]
    first = ", ".join(f"{quote_sql(name)} INT" for name in names)
    second = ", ".join(
        f"{quote_sql(name + 'z')} INT RENAMED FROM {quote_sql(name)}" for name in names
        if len(name) < 255
    )
    for number, columns in (("1", first), ("..", f"{second}, {quote_sql('x' * 255)} INT")):
        release = load_texts([("r.sql", f"CREATE TABLE s.t ({columns});")], name=number)
        report = migrate(
            engine, log, release, warehouse="/w", clock=SystemClock(), holder="a test"
        )
    assert (report.outcome, report.release) == ("migrated", "..")
    state = read_state(log)
    assert all(path.startswith("s/t/") and ".." not in path for path in state.shards)


@pytest.mark.parametrize("text", ["CHECK (b <> '${env:X}')", "c STRING DEFAULT '${x}'"])
def test_an_expression_that_each_writer_would_read_in_its_own_way_is_refused(text: str) -> None:
    """Spark puts variables into CHECKs and defaults whenever it writes, whatever was set before."""
    sql = f"\nCREATE TABLE s.t (b STRING, {text});"
    with pytest.raises(InvalidRelease) as refused:
        load_texts([("r.sql", sql)], name="1")
    (problem,) = refused.value.problems
    assert (problem.code, problem.file, problem.line) == ("CM0118", "r.sql", 2)
    assert load_texts([("r.sql", sql.replace("${", "{"))], name="1").objects
