from __future__ import annotations

import itertools
import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog_migrate.errors import UnknownType
from catalog_migrate.model import types
from catalog_migrate.model.types import (
    AddedField,
    canonical_type,
    find_added_fields,
    is_cast,
    is_lossless,
    is_null_from_cast,
    is_up_cast,
    parse_type,
)

SPELLINGS = [
    ("TINYINT", "TINYINT"), ("byte", "TINYINT"),
    ("SMALLINT", "SMALLINT"), ("Short", "SMALLINT"),
    ("INT", "INT"), ("int", "INT"), ("INTEGER", "INT"), ("integer", "INT"), (" int\n", "INT"),
    ("`int`", None),
    ("BIGINT", "BIGINT"), ("long", "BIGINT"),
    ("FLOAT", "FLOAT"), ("real", "FLOAT"), ("DOUBLE", "DOUBLE"), ("double precision", None),
    ("DECIMAL", "DECIMAL(10,0)"), ("dec", "DECIMAL(10,0)"), ("numeric", "DECIMAL(10,0)"),
    ("DECIMAL(5)", "DECIMAL(5,0)"), ("decimal ( 12 , 2 )", "DECIMAL(12,2)"),
    ("NUMERIC(38,38)", "DECIMAL(38,38)"), ("DEC(1)", "DECIMAL(1,0)"),
    ("DECIMAL(0)", None), ("DECIMAL(39)", None), ("DECIMAL(5,6)", None), ("DECIMAL(5,-1)", None),
    ("DECIMAL()", None), ("DECIMAL(1,2,3)", None), ("DECIMAL(a)", None), ("DECIMAL(5", None),
    ("STRING", "STRING"), ("string(5)", None), ("TEXT", None),
    ("CHAR(3)", "CHAR(3)"), ("character(3)", "CHAR(3)"), ("varchar( 20 )", "VARCHAR(20)"),
    ("CHAR", None), ("VARCHAR", None), ("VARCHAR(0)", None), ("CHAR(1,2)", None),
    ("BINARY", "BINARY"), ("BOOLEAN", "BOOLEAN"), ("bool", None),
    ("DATE", "DATE"), ("TIMESTAMP", "TIMESTAMP"), ("timestamp_ltz", "TIMESTAMP"),
    ("TIMESTAMP_NTZ", "TIMESTAMP_NTZ"), ("datetime", None),
    ("VARIANT", "VARIANT"), ("VOID", "VOID"), ("null", None),
    ("INTERVAL", "INTERVAL"),
    ("INTERVAL YEAR", "INTERVAL YEAR"), ("interval month", "INTERVAL MONTH"),
    ("INTERVAL  YEAR to MONTH", "INTERVAL YEAR TO MONTH"),
    ("INTERVAL DAY", "INTERVAL DAY"), ("INTERVAL HOUR", "INTERVAL HOUR"),
    ("INTERVAL MINUTE", "INTERVAL MINUTE"), ("INTERVAL SECOND", "INTERVAL SECOND"),
    ("INTERVAL DAY TO HOUR", "INTERVAL DAY TO HOUR"),
    ("INTERVAL DAY TO MINUTE", "INTERVAL DAY TO MINUTE"),
    ("interval day to second", "INTERVAL DAY TO SECOND"),
    ("INTERVAL HOUR TO MINUTE", "INTERVAL HOUR TO MINUTE"),
    ("INTERVAL HOUR TO SECOND", "INTERVAL HOUR TO SECOND"),
    ("INTERVAL MINUTE TO SECOND", "INTERVAL MINUTE TO SECOND"),
    ("INTERVAL MONTH TO YEAR", None), ("INTERVAL DAY TO DAY", None),
    ("INTERVAL YEAR TO SECOND", None), ("INTERVAL DAY TO", None),
    ("array<integer>", "ARRAY<INT>"), ("ARRAY < ARRAY<DEC> >", "ARRAY<ARRAY<DECIMAL(10,0)>>"),
    ("ARRAY", None), ("ARRAY<>", None), ("ARRAY<INT", None), ("ARRAY<INT>>", None),
    ("ARRAY<INT NOT NULL>", None),
    ("map<string,long>", "MAP<STRING, BIGINT>"), ("MAP<INT>", None), ("MAP<INT,INT,INT>", None),
    ("struct<a:int,b:string>", "STRUCT<a: INT, b: STRING>"),
    ("STRUCT<a INT not null, B STRING>", "STRUCT<a: INT NOT NULL, B: STRING>"),
    ("struct<`odd name`: int, `tick``s`: date>", "STRUCT<`odd name`: INT, `tick``s`: DATE>"),
    ("STRUCT<a: INT COMMENT 'it''s, <odd>', b: INT NOT NULL COMMENT \"x\">",
     "STRUCT<a: INT, b: INT NOT NULL>"),
    ("STRUCT<comment: STRING COMMENT 'x'>", "STRUCT<comment: STRING>"),
    ("STRUCT<i: INTERVAL DAY NOT NULL>", "STRUCT<i: INTERVAL DAY NOT NULL>"),
    ("STRUCT<s: STRUCT<t: ARRAY<MAP<STRING, REAL>>>>",
     "STRUCT<s: STRUCT<t: ARRAY<MAP<STRING, FLOAT>>>>"),
    ("STRUCT<>", "STRUCT<>"),
    ("STRUCT<a: INT, A: INT>", None), ("STRUCT<a: INT,>", None), ("STRUCT<a: INT COMMENT x>", None),
    ("STRUCT<a>", None), ("STRUCT<a: INT NOT>", None), ("STRUCT<(a: INT>", None),
    ("", None), ("   ", None), ("INT INT", None), ("INT NOT NULL", None), ("int; drop", None),
    ("nowhere.thing", None), ("a.b.c", None), ("s.(", None), ("*", None),
]  # fmt: skip


@pytest.mark.parametrize(("text", "canonical"), SPELLINGS, ids=repr)
def test_every_spelling_has_one_canonical_form_or_is_refused(
    text: str, canonical: str | None
) -> None:
    """A known spelling becomes Spark's canonical one; anything else is an UnknownType."""
    if canonical is None:
        with pytest.raises(UnknownType):
            canonical_type(text)
    else:
        assert canonical_type(text) == canonical
        assert canonical_type(canonical) == canonical
        assert str(parse_type(text)) == canonical


def test_an_unknown_type_says_what_and_what_to_write() -> None:
    """The error names the text, the reason and the type to write instead."""
    with pytest.raises(UnknownType) as caught:
        canonical_type("MAP<STRING, text>")
    assert str(caught.value) == (
        "CM0120: 'MAP<STRING, text>' is not a type: there is no type 'text'\n  remedy: write STRING"
    )
    assert pickle.loads(pickle.dumps(caught.value)).data == caught.value.data


def test_very_deep_nesting_is_refused_instead_of_exhausting_the_stack() -> None:
    """Two thousand nested arrays give an UnknownType with a short message."""
    with pytest.raises(UnknownType, match="nested deeper than 100 levels") as caught:
        canonical_type("ARRAY<" * 2000 + "INT" + ">" * 2000)
    assert len(str(caught.value)) < 300


USER_TYPES = {
    ("shop", "money"): "DECIMAL(12,2)",
    ("shop", "line"): "STRUCT<price: Shop.Money NOT NULL, n: INT>",
    ("shop", "odd name"): "ARRAY<shop.line>",
}


def test_user_types_are_expanded_through_each_other() -> None:
    """A qualified name of any case stands for its definition, which may use other user types."""
    assert canonical_type("SHOP.MONEY", USER_TYPES) == "DECIMAL(12,2)"
    assert canonical_type("map<int, shop.`Odd Name`>", USER_TYPES) == (
        "MAP<INT, ARRAY<STRUCT<price: DECIMAL(12,2) NOT NULL, n: INT>>>"
    )


def test_the_cache_notices_that_a_user_type_changed() -> None:
    """The same text with other definitions, however deep, gives another canonical type."""
    changed = {**USER_TYPES, ("shop", "money"): "DECIMAL(14,2)"}
    assert canonical_type("array<shop.line>", USER_TYPES) == (
        "ARRAY<STRUCT<price: DECIMAL(12,2) NOT NULL, n: INT>>"
    )
    assert canonical_type("array<shop.line>", changed) == (
        "ARRAY<STRUCT<price: DECIMAL(14,2) NOT NULL, n: INT>>"
    )
    with pytest.raises(UnknownType, match=r"no type shop\.line in the release"):
        canonical_type("array<shop.line>")


def test_user_types_that_contain_each_other_are_refused_with_the_circle() -> None:
    """The error prints the circle, not the way into it."""
    circle = {("s", "a"): "s.b", ("s", "b"): "ARRAY<s.c>", ("s", "c"): "STRUCT<x: S.B>"}
    with pytest.raises(UnknownType, match=r"types contain each other: s\.b -> s\.c -> s\.b"):
        canonical_type("s.a", circle)


ATOMS = (
    "TINYINT", "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "DECIMAL(2,0)", "DECIMAL(9,0)",
    "DECIMAL(10,0)", "DECIMAL(10,2)", "DECIMAL(18,0)", "DECIMAL(19,0)", "DECIMAL(20,0)",
    "DECIMAL(38,10)", "STRING", "BINARY", "BOOLEAN", "DATE", "TIMESTAMP", "TIMESTAMP_NTZ",
    "VARIANT", "VOID", "INTERVAL YEAR", "INTERVAL YEAR TO MONTH", "INTERVAL DAY",
    "INTERVAL DAY TO SECOND",
)  # fmt: skip

UP_CASTS = [
    ("TINYINT", "SMALLINT", True), ("INT", "BIGINT", True), ("BIGINT", "INT", False),
    ("BIGINT", "FLOAT", True), ("FLOAT", "DOUBLE", True), ("DOUBLE", "FLOAT", False),
    ("INT", "DECIMAL(10,0)", True), ("INT", "DECIMAL(11,2)", False),
    ("BIGINT", "DECIMAL(19,0)", False), ("BIGINT", "DECIMAL(20,0)", True),
    ("DECIMAL(9,0)", "INT", True), ("DECIMAL(10,0)", "INT", False),
    ("DECIMAL(10,2)", "DECIMAL(12,3)", True), ("DECIMAL(10,2)", "DECIMAL(10,3)", False),
    ("DECIMAL(10,2)", "DOUBLE", False), ("FLOAT", "DECIMAL(38,10)", False),
    ("DATE", "TIMESTAMP", True), ("DATE", "TIMESTAMP_NTZ", True), ("TIMESTAMP", "DATE", False),
    ("TIMESTAMP", "TIMESTAMP_NTZ", True), ("TIMESTAMP_NTZ", "TIMESTAMP", True),
    ("TIMESTAMP", "BIGINT", True), ("BIGINT", "TIMESTAMP", True),
    ("DOUBLE", "STRING", True), ("BINARY", "STRING", True), ("STRING", "INT", False),
    ("VARIANT", "STRING", False), ("INTERVAL DAY", "STRING", True), ("INTERVAL", "STRING", True),
    ("VARCHAR(5)", "STRING", True), ("STRING", "VARCHAR(5)", False),
    ("VARCHAR(5)", "VARCHAR(6)", True), ("VARCHAR(6)", "VARCHAR(5)", False),
    ("CHAR(5)", "VARCHAR(5)", True), ("CHAR(5)", "CHAR(6)", False),
    ("VOID", "ARRAY<INT>", True), ("INT", "VOID", False),
    ("INTERVAL DAY", "INTERVAL HOUR TO SECOND", True), ("INTERVAL DAY", "INTERVAL YEAR", False),
    ("ARRAY<INT>", "ARRAY<BIGINT>", True), ("ARRAY<INT>", "STRING", False),
    ("ARRAY<BIGINT>", "ARRAY<INT>", False),
    ("MAP<INT, DATE>", "MAP<BIGINT, STRING>", True), ("MAP<INT, INT>", "MAP<BYTE, INT>", False),
    ("STRUCT<a: INT>", "STRUCT<b: BIGINT>", True),
    ("STRUCT<a: INT>", "STRUCT<a: INT, b: INT>", False),
    ("STRUCT<a: INT NOT NULL>", "STRUCT<a: INT>", True),
    ("STRUCT<a: INT>", "STRUCT<a: INT NOT NULL>", False),
    ("STRUCT<a: INT>", "MAP<STRING, INT>", False),
]  # fmt: skip


@pytest.mark.parametrize(("source", "target", "expected"), UP_CASTS)
def test_up_casts_are_those_of_spark(source: str, target: str, expected: bool) -> None:
    """Exactly what SCHEMA BINDING casts by itself is an up-cast."""
    assert is_up_cast(source, target) is expected


LOSSLESS = [
    ("TINYINT", "FLOAT", True), ("SMALLINT", "FLOAT", True), ("INT", "FLOAT", False),
    ("INT", "DOUBLE", True), ("BIGINT", "DOUBLE", False), ("FLOAT", "DOUBLE", True),
    ("INT", "BIGINT", True), ("BIGINT", "INT", False), ("BIGINT", "TIMESTAMP", False),
    ("BIGINT", "DECIMAL(19,0)", True), ("BIGINT", "DECIMAL(18,0)", False),
    ("INT", "DECIMAL(12,2)", True), ("INT", "DECIMAL(11,2)", False),
    ("DECIMAL(10,2)", "DECIMAL(12,4)", True), ("DECIMAL(10,2)", "DECIMAL(11,4)", False),
    ("DECIMAL(18,0)", "BIGINT", True), ("DECIMAL(19,0)", "BIGINT", False),
    ("DECIMAL(5,1)", "BIGINT", False), ("DECIMAL(10,2)", "DOUBLE", False),
    ("INT", "STRING", True), ("BOOLEAN", "STRING", True), ("DECIMAL(3,1)", "STRING", True),
    ("DATE", "STRING", True), ("DOUBLE", "STRING", False), ("TIMESTAMP", "STRING", False),
    ("BINARY", "STRING", False), ("STRING", "INT", False),
    ("DATE", "TIMESTAMP_NTZ", False), ("DATE", "TIMESTAMP", False),
    ("TIMESTAMP", "TIMESTAMP_NTZ", False),
    ("CHAR(3)", "STRING", True), ("VARCHAR(3)", "VARCHAR(4)", True), ("CHAR(3)", "CHAR(4)", False),
    ("STRING", "VARCHAR(4)", False),
    ("VOID", "DATE", True), ("BOOLEAN", "INT", False),
    ("INTERVAL DAY", "INTERVAL DAY TO SECOND", True), ("INTERVAL DAY TO SECOND", "INTERVAL DAY",
     False), ("INTERVAL YEAR", "INTERVAL MONTH", True), ("INTERVAL", "INTERVAL DAY", False),
    ("INTERVAL DAY", "INTERVAL MONTH", False),
    ("ARRAY<INT>", "ARRAY<BIGINT>", True), ("ARRAY<INT>", "ARRAY<FLOAT>", False),
    ("MAP<INT, FLOAT>", "MAP<BIGINT, DOUBLE>", True), ("MAP<INT, INT>", "MAP<INT, BYTE>", False),
    ("STRUCT<a: INT>", "STRUCT<A: BIGINT>", True),
    ("STRUCT<a: INT, b: INT>", "STRUCT<b: INT, a: INT>", False),
    ("STRUCT<a: INT>", "STRUCT<a: INT NOT NULL>", False),
    ("STRUCT<a: INT NOT NULL>", "STRUCT<a: INT>", True),
]  # fmt: skip


@pytest.mark.parametrize(("source", "target", "expected"), LOSSLESS)
def test_lossless_casts_keep_every_value(source: str, target: str, expected: bool) -> None:
    """A cast is lossless only when no value rounds, overflows, pads, shifts or changes its name."""
    assert is_lossless(source, target) is expected


_atoms = st.sampled_from(ATOMS)
_types = st.recursive(
    _atoms,
    lambda inner: st.one_of(
        inner.map("ARRAY<{}>".format),
        st.tuples(inner, inner).map(lambda pair: f"MAP<{pair[0]}, {pair[1]}>"),
        st.lists(st.tuples(inner, st.sampled_from(["", " NOT NULL"])), max_size=3).map(
            lambda fields: "STRUCT<{}>".format(
                ", ".join(f"f{i}: {of}{null}" for i, (of, null) in enumerate(fields))
            )
        ),
    ),
    max_leaves=6,
)


@given(_types)
def test_a_canonical_type_is_a_fixed_point(text: str) -> None:
    """Canonical texts of any nesting are read back as they are, in any case and spacing."""
    assert canonical_type(text) == text
    assert canonical_type(text.lower().replace(",", " ,  ")).lower() == text.lower()
    assert is_up_cast(text, text)
    assert is_lossless(text, text)


@given(st.text(alphabet="INT<>(),: `'aARRYSTUC1.", max_size=30))
def test_no_text_breaks_the_parser(text: str) -> None:
    """Whatever stands there is either a type or an UnknownType."""
    try:
        canonical = canonical_type(text)
    except UnknownType:
        return
    assert canonical_type(canonical) == canonical


def test_a_text_is_parsed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every later look-up of the same text does without the parser."""
    texts = [f"decimal({number + 8},2)" for number in range(30)]
    first = [canonical_type(text) for text in texts]
    monkeypatch.setattr(types, "_Parser", None)
    assert [canonical_type(text) for text in texts] == first


def test_added_fields_are_named_as_alter_table_names_them() -> None:
    """By the way to each, and by the field before it; nothing else may differ."""
    assert find_added_fields(
        "STRUCT<a: INT, l: ARRAY<STRUCT<x: INT>>>",
        "STRUCT<z: DATE, a: INT, l: ARRAY<STRUCT<x: INT, y: STRUCT<q: INT>>>, b: BIGINT>",
    ) == (
        AddedField(("z",), "DATE", None),
        AddedField(("l", "element", "y"), "STRUCT<q: INT>", "x"),
        AddedField(("b",), "BIGINT", "l"),
    )
    assert find_added_fields("MAP<STRUCT<a: INT>, INT>", "MAP<STRUCT<a: INT, b: INT>, INT>") == (
        AddedField(("key", "b"), "INT", "a"),
    )
    assert find_added_fields("STRUCT<a: INT>", "STRUCT<a: INT>") == ()
    assert find_added_fields("STRUCT<a: INT>", "STRUCT<A: INT, b: INT>") is None
    assert find_added_fields("STRUCT<a: INT>", "STRUCT<a: BIGINT, b: INT>") is None
    assert find_added_fields("INT", "BIGINT") is None


@pytest.mark.spark
def test_casts_and_spellings_agree_with_spark_itself(spark: Any) -> None:
    """For all pairs of sample types our answers are those of Spark's Cast: canUpCast, canAnsiCast,
    and forceNullable of what is cast."""
    jvm = spark.sparkContext._jvm
    cast = jvm.org.apache.spark.sql.catalyst.expressions.Cast
    nested = [text for text, *_ in UP_CASTS if "<" in text and "BYTE" not in text]
    nested += [text for _, text, _ in UP_CASTS if "<" in text and "BYTE" not in text]
    texts = [*ATOMS, *dict.fromkeys(nested)]
    parser = spark._jsparkSession.sessionState().sqlParser()
    types = {text: parser.parseDataType(text) for text in texts}
    wrong = [
        (source, target)
        for source, target in itertools.product(texts, repeat=2)
        if cast.canUpCast(types[source], types[target]) != is_up_cast(source, target)
    ]
    assert wrong == []
    nested += ["MAP<DATE, INT>", "MAP<INT, INT>", "MAP<STRING, INT>", "ARRAY<MAP<INT, INT>>"]
    nested += [
        "STRUCT<a: INT>", "STRUCT<a: INT NOT NULL>", "STRUCT<b: STRING NOT NULL>",
        "STRUCT<a: INT, b: VARIANT>", "ARRAY<VARIANT>", "ARRAY<DATE>", "MAP<STRING, VARIANT>",
    ]
    texts = [*ATOMS, "INTERVAL", "DECIMAL(3,1)", "DECIMAL(38,18)", *dict.fromkeys(nested)]
    types = {text: parser.parseDataType(text) for text in texts}
    differ = []
    for source, target in itertools.product(texts, repeat=2):
        pair = types[source], types[target]
        if cast.canAnsiCast(*pair) != is_cast(source, target):
            differ.append((source, target, is_cast(source, target)))
        elif is_cast(source, target) and (
            cast.forceNullable(*pair) != is_null_from_cast(source, target)
        ):
            differ.append((source, target, "null", is_null_from_cast(source, target)))
    assert differ == []
    for text, canonical in SPELLINGS:
        if canonical is not None:
            assert parser.parseDataType(text).equals(parser.parseDataType(canonical)) or (
                "COMMENT" in text
            )
