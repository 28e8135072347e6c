from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from xxhash import xxh3_128

from catalog_migrate.model import hashes
from catalog_migrate.model.objects import Check, Column, ObjectDefinition

GOLDEN: list[dict[str, Any]] = json.loads(
    (Path(__file__).parent / "golden" / "hashes.json").read_text(encoding="utf-8")
)

PLAIN = ObjectDefinition("s", "table", "t", columns=(Column("id", "INT"), Column("v", "STRING")))
RICH = ObjectDefinition(
    "Shop",
    "table",
    "Orders",
    columns=(
        Column("Id", "BIGINT", nullable=False, comment="number of the order"),
        Column("Day", "DATE", generated="CAST(at  AS DATE)", renamed_from=("Date", "D")),
        Column("at", "TIMESTAMP", using="to_timestamp(at, 'yyyy  MM')", default="now()"),
    ),
    renamed_from="shop.Sales",
    dropped=("Note", "flag"),
    comment="one row an order",
    properties={"delta.appendOnly": "true", "a": "Ü"},
    partitioned_by=("Day",),
    clustered_by=("Id", "at"),
    checks=(Check("positive", "id > 0"), Check("Known", "at IS NOT NULL")),
)


def fingerprint(columns: Iterable[tuple[str, str, bool]]) -> str:
    return hashes.schema_fingerprint(Column(*column) for column in columns)


def compute(case: dict[str, Any]) -> str | dict[str, str]:
    """The hash (or the decisions) that one golden case asks for."""
    function, value = case["function"], case["input"]
    if function == "schema_fingerprint":
        return fingerprint(value)
    if function in ("storage_hash", "comment_hash", "decision_hashes"):
        definition = {"plain": PLAIN, "rich": RICH}[value]
        result: str | dict[str, str] = getattr(hashes, function)(definition)
        return result
    return str(getattr(hashes, function)(value))


@pytest.mark.parametrize("case", GOLDEN, ids=lambda case: f"{case['function']}-{case['about']}")
def test_hashes_are_those_of_the_golden_file(case: dict[str, Any]) -> None:
    """Stored catalogs hold these values: a change of one needs a new scheme, not a new file."""
    assert compute(case) == case["output"]


def part(data: bytes) -> bytes:
    return len(data).to_bytes(4, "big") + data


def test_the_schema_recipe_is_the_documented_one() -> None:
    """Tag, number of columns, then folded name, folded type and nullability, length-prefixed."""
    data = b"\x01" + part(b"\0\0\0\1") + part(b"ab") + part(b"struct<x: int>") + part(b"\x01")
    assert fingerprint([("aB", "STRUCT<X: INT>", True)]) == (
        "1:" + xxh3_128(data).hexdigest()
    )


def test_the_definition_recipe_is_the_documented_one() -> None:
    """Its own tag byte, then the tokens."""
    data = b"\x12" + part(b"SELECT") + part("Ä".encode())
    assert hashes.definition_hash(["SELECT", "Ä"]) == "2:" + xxh3_128(data).hexdigest()


_columns = st.lists(
    st.tuples(st.text(max_size=4), st.sampled_from(["INT", "STRING", "DATE"]), st.booleans()),
    max_size=4,
)


@given(_columns, _columns)
def test_fingerprints_are_equal_exactly_when_the_folded_columns_are(
    left: list[tuple[str, str, bool]], right: list[tuple[str, str, bool]]
) -> None:
    """No boundary between parts can be moved without changing the hash."""
    same = [(n.lower(), t, b) for n, t, b in left] == [(n.lower(), t, b) for n, t, b in right]
    assert (fingerprint(left) == fingerprint(right)) is same


def test_order_type_nullability_and_number_of_columns_count() -> None:
    """Each of them changes the fingerprint; the case of a name does not."""
    base = [("a", "INT", True), ("b", "INT", True)]
    variants = [
        base,
        base[::-1],
        base[:1],
        [("a", "BIGINT", True), base[1]],
        [("a", "INT", False), base[1]],
        [("c", "INT", True), base[1]],
        [],
    ]
    assert len({fingerprint(columns) for columns in variants}) == len(variants)
    assert fingerprint([("A", "INT", True), ("B", "INT", True)]) == (
        fingerprint(base)
    )


def test_hashes_of_different_kinds_never_agree() -> None:
    """The same parts under another tag give another hash."""
    values = {
        hashes.definition_hash(["x"]),
        hashes.dependency_hash(["x"]),
        hashes.text_hash("x"),
    }
    assert len(values) == 3


def test_dependencies_are_a_set_without_case() -> None:
    """Order, repetition and case of declared dependencies are no change."""
    assert hashes.dependency_hash(["s.b", "S.A", "s.a"]) == hashes.dependency_hash(["s.a", "s.b"])
    assert hashes.dependency_hash(["s.a"]) != hashes.dependency_hash(["s.a", "s.b"])


def changed(**fields: Any) -> ObjectDefinition:
    """RICH with other fields."""
    return ObjectDefinition(**{name: getattr(RICH, name) for name in RICH.__struct_fields__}
                            | fields)  # fmt: skip


def test_storage_ignores_the_order_of_checks_and_properties_and_white_space() -> None:
    """What is stored the same way has the same hash."""
    same = changed(
        checks=(Check("KNOWN", " at IS\n NOT NULL "), Check("positive", "id > 0")),
        properties={"a": "Ü", "delta.appendOnly": "true"},
        comment="other",
        partitioned_by=("DAY",),
    )
    assert hashes.storage_hash(same) == hashes.storage_hash(RICH)


@pytest.mark.parametrize(
    "fields",
    [
        {"partitioned_by": ()},
        {"clustered_by": ("at", "Id")},
        {"checks": (Check("positive", "id > 1"), RICH.checks[1])},
        {"properties": {"a": "Ü"}},
        {"columns": RICH.columns[::2]},
        {"partitioned_by": ("Day", "Id"), "clustered_by": ("at",)},
    ],
    ids=["partitioning", "clustering", "check", "property", "generated", "moved between lists"],
)
def test_storage_changes_with_each_of_its_parts(fields: dict[str, Any]) -> None:
    """Partitioning, order of clustering, CHECKs, properties and generated columns count."""
    assert hashes.storage_hash(changed(**fields)) != hashes.storage_hash(RICH)


def test_white_space_inside_quotes_counts() -> None:
    """Only space between tokens is folded."""
    one = changed(checks=(Check("c", "a = 'x  y'"),))
    other = changed(checks=(Check("c", "a = 'x y'"),))
    assert hashes.storage_hash(one) != hashes.storage_hash(other)


def test_comments_count_only_in_the_comment_hash() -> None:
    """An empty comment is none; a column's comment belongs to its column."""
    bare = changed(comment="", columns=tuple(Column(c.name, c.type) for c in RICH.columns))
    assert hashes.comment_hash(bare) == hashes.comment_hash(PLAIN)
    assert hashes.comment_hash(bare) != hashes.comment_hash(RICH)
    moved = (Column("a", "INT", comment="x"), Column("b", "INT"))
    other = (Column("a", "INT"), Column("b", "INT", comment="x"))
    assert hashes.comment_hash(changed(columns=moved)) != hashes.comment_hash(
        changed(columns=other)
    )


def test_each_decision_has_its_label_and_its_own_hash() -> None:
    """Labels are folded; the hash covers what was decided and for what."""
    decisions = hashes.decision_hashes(RICH)
    assert list(decisions) == [
        "renamed_from", "renamed_from:day", "using:at", "default:at", "dropped:note",
        "dropped:flag",
    ]  # fmt: skip
    assert len(set(decisions.values())) == 6
    assert hashes.decision_hashes(PLAIN) == {}


def test_a_decision_keeps_its_hash_when_only_the_type_changes() -> None:
    """An old USING, already applied, must not decide a later change of type."""
    before = changed(columns=(Column("x", "INT", using="length(x)"),))
    after = changed(columns=(Column("X", "BIGINT", using="length(x)\n"),))
    assert hashes.decision_hashes(before) == hashes.decision_hashes(after)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("a > 0 -- c\n AND b > 0", "a > 0 -- c AND b > 0"),
        ("a > 0 -- c\r AND b > 0", "a > 0 -- c AND b > 0"),
        (r"a <> r'\' || 'x  y'", r"a <> r'\' || 'x y'"),
        ("a /* /* */ */ > 'x  y'", "a /* /* */ */ > 'x y'"),
        ("a > 0 /* 'x */ AND b = 'y  z'", "a > 0 /* 'x */ AND b = 'y z'"),
    ],
)
def test_where_a_comment_or_a_raw_string_ends_counts(one: str, other: str) -> None:
    """What scheme 1 took for one expression is two: a constraint, a decision each."""
    for make in (hashes.storage_hash, hashes.decision_hashes):
        assert make(expressed(one)) != make(expressed(other))  # type: ignore[operator]


def test_comments_in_expressions_are_blanks() -> None:
    """A comment in an expression can change, and can come or go with the blanks around it."""
    texts = ["a > 0 -- c\n AND b", "a > 0 /* other */ AND b", "a > 0\n\tAND b -- end"]
    assert len({hashes.storage_hash(expressed(text)) for text in texts}) == 1


def test_what_is_stored_under_scheme_1_is_stamped_again() -> None:
    """Where the recipe changed, the stored hashes are those of scheme 2; others stay."""
    plain, comment = expressed("a  > 0"), expressed("a > 0 -- c\n")
    old = hashes._decision_in_scheme_1("using:x", ("a > 0 -- c\n",))
    assert hashes.restamp_storage("1:0", comment) == hashes.storage_hash(comment)
    assert hashes.restamp_storage("1:0", plain) == "1:0"
    assert hashes.restamp_decisions([old], comment) == (
        old, hashes.decision_hashes(comment)["using:x"]
    )
    assert hashes.restamp_decisions([], comment) == ()


def expressed(text: str) -> ObjectDefinition:
    """A table with a CHECK and a USING of that text."""
    return ObjectDefinition(
        "s", "table", "t", columns=(Column("x", "INT", using=text),), checks=(Check("c", text),)
    )
