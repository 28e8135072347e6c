"""Hashes of a definition: what changes them and what does not."""

from __future__ import annotations

import msgspec

from catalog_migrate.model.objects import Column, ObjectDefinition
from catalog_migrate.release.release import facts_of

VIEW = ObjectDefinition(
    "s", "view", "v", columns=(Column("a", "INT"),), sql="SELECT a FROM s.t WHERE a > 1"
)


def with_sql(sql: str) -> ObjectDefinition:
    return msgspec.structs.replace(VIEW, sql=sql)


def test_blanks_case_and_comments_change_the_text_hash_only() -> None:
    """Another way to write the same query keeps the definition hash."""
    one, other = facts_of(VIEW), facts_of(with_sql("select a from S.t /* x */\nWHERE a > 1"))
    assert one.hashes.definition == other.hashes.definition
    assert one.hashes.text != other.hashes.text
    assert one.hashes.fingerprint == other.hashes.fingerprint


def test_another_query_changes_the_definition_hash() -> None:
    """A literal in the query counts."""
    changed = facts_of(with_sql("SELECT a FROM s.t WHERE a > 2"))
    assert facts_of(VIEW).hashes.definition != changed.hashes.definition


def test_known_definition_is_taken_over_for_equal_text() -> None:
    """Equal text needs no tokenising: the hash in force is given back as it is."""
    text = facts_of(VIEW).hashes.text
    known = facts_of(VIEW, known_text=text, known_definition="1:known")
    assert known.hashes.definition == "1:known"
    other = with_sql("SELECT 1")
    assert facts_of(other, known_text=text, known_definition="1:k").hashes.definition != "1:k"


def test_a_table_has_no_definition_and_a_view_without_sql_its_dependencies() -> None:
    """Tables have no SQL to hash; a view without SQL hashes the sorted names that it reads."""
    table = facts_of(ObjectDefinition("s", "table", "t", columns=(Column("a", "INT"),)))
    assert (table.hashes.definition, table.hashes.text) == ("", "")
    one = facts_of(msgspec.structs.replace(VIEW, sql=None, depends_on=("s.a", "s.b")))
    other = facts_of(msgspec.structs.replace(VIEW, sql=None, depends_on=("s.b", "s.a")))
    assert one == other
    neither = facts_of(msgspec.structs.replace(VIEW, sql=None))
    assert one.hashes.definition != neither.hashes.definition


def test_a_function_hashes_its_whole_declaration() -> None:
    """Arguments, result and body of a function all count."""
    base = ObjectDefinition("s", "function", "f", returns="INT", body="1")
    hashes = {
        facts_of(one).hashes.definition
        for one in (
            base,
            msgspec.structs.replace(base, returns="BIGINT"),
            msgspec.structs.replace(base, body="2"),
            msgspec.structs.replace(base, returns=(Column("a", "INT"),)),
        )
    }
    assert len(hashes) == 4
