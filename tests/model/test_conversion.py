"""What turns a value of one type into one of another, and what that leaves open."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from catalog_migrate.model.conversion import conversion, is_complete
from catalog_migrate.model.types import canonical_type
from tests.model.test_types import ATOMS

CONVERSIONS = [
    ("INT", "INT", "c"),
    ("STRING", "INT", "CAST(c AS INT)"),
    ("ARRAY<INT>", "ARRAY<BIGINT>", "CAST(c AS ARRAY<BIGINT>)"),
    ("STRUCT<a: INT, b: INT>", "STRUCT<b: INT>", "IF(c IS NULL, NULL, named_struct('b', c.`b`))"),
    ("ARRAY<STRUCT<a: INT>>", "ARRAY<STRUCT<b: INT>>",
     "transform(c, e1 -> IF(e1 IS NULL, NULL, named_struct('b', CAST(NULL AS INT))))"),
    ("MAP<INT, STRUCT<a: INT>>", "MAP<INT, STRUCT<a: INT, b: DATE>>",
     "transform_values(c, (k1, v1) -> IF(v1 IS NULL, NULL,"
     " named_struct('a', v1.`a`, 'b', CAST(NULL AS DATE))))"),
    ("STRUCT<a: INT NOT NULL>", "STRUCT<a: BIGINT NOT NULL, `it's`: INT>",
     "IF(c IS NULL, NULL, named_struct('a', coalesce(CAST(c.`a` AS BIGINT), 0L),"
     " 'it\\'s', CAST(NULL AS INT)))"),
]  # fmt: skip


@pytest.mark.parametrize(("source", "target", "expected"), CONVERSIONS)
def test_a_conversion_is_a_cast_where_there_is_one(
    source: str, target: str, expected: str
) -> None:
    """Structs with other fields are put together by name, wherever they are."""
    assert conversion("c", source, target) == expected
    assert is_complete(expected)


@pytest.mark.parametrize(
    ("source", "target", "expected"),
    [
        ("DATE", "INT", "<expression over the old columns>"),
        ("STRUCT<a: INT>", "STRUCT<a: INT, b: INT NOT NULL>",
         "IF(c IS NULL, NULL, named_struct('a', c.`a`, 'b', <value of b>))"),
        ("STRUCT<a: INT>", "STRUCT<a: INT NOT NULL>",
         "IF(c IS NULL, NULL, named_struct('a', coalesce(c.`a`, <value of a>)))"),
    ],
)  # fmt: skip
def test_what_a_conversion_cannot_know_is_left_open(
    source: str, target: str, expected: str
) -> None:
    """A value for a field that is NOT NULL, and what Spark has no CAST for."""
    assert conversion("c", source, target) == expected
    assert not is_complete(expected)


STRICT = "STRUCT<a: STRING NOT NULL, b: INT>"
STRICT_AS_NULL = (
    "IF(c IS NULL OR TRY_CAST(c.`a` AS INT) IS NULL, NULL,"
    " named_struct('a', coalesce(TRY_CAST(c.`a` AS INT), 0)))"
)


@pytest.mark.parametrize(
    ("source", "target", "nullable", "expected"),
    [
        (STRICT, "STRUCT<a: INT NOT NULL>", True, STRICT_AS_NULL),
        (STRICT, "STRUCT<a: INT NOT NULL>", False,
         STRICT_AS_NULL.replace(", 0)", ", <value of a>)")),
        ("STRUCT<a: INT NOT NULL, b: INT>", "STRUCT<a: BIGINT NOT NULL>", False,
         "IF(c IS NULL, NULL, named_struct('a', coalesce(TRY_CAST(c.`a` AS BIGINT), 0L)))"),
        (f"ARRAY<{STRICT}>", "ARRAY<STRUCT<a: INT NOT NULL>>", False,
         f"transform(c, e1 -> {STRICT_AS_NULL})".replace("c.`a`", "e1.`a`")
         .replace("IF(c ", "IF(e1 ")),
        (f"STRUCT<s: {STRICT}, x: INT>", "STRUCT<s: STRUCT<a: INT NOT NULL>>", False,
         f"IF(c IS NULL, NULL, named_struct('s', {STRICT_AS_NULL}))".replace("c.`a`", "c.`s`.`a`")
         .replace("IF(c IS NULL OR", "IF(c.`s` IS NULL OR")),
    ],
)  # fmt: skip
def test_no_value_takes_the_place_of_one_that_does_not_fit(
    source: str, target: str, nullable: bool, expected: str
) -> None:
    """A struct goes with its field that is NOT NULL; the whole only where it may be NULL."""
    found = conversion("c", source, target, or_null=True, nullable=nullable)
    assert found == expected
    assert is_complete(found) == ("<" not in expected)


@pytest.mark.spark
def test_what_does_not_fit_is_null_in_spark(spark: Any) -> None:
    """Of 'abc' comes NULL and no 0; what fits, and an empty struct, are as they were."""
    made = conversion("c", STRICT, "STRUCT<a: INT NOT NULL>", or_null=True)
    rows = spark.sql(
        f"SELECT to_json({made}) FROM VALUES (1, named_struct('a', '7', 'b', 1)),"
        " (2, named_struct('a', 'abc', 'b', 1)), (3, NULL) AS t(n, c) ORDER BY n"
    ).collect()
    assert [row[0] for row in rows] == ['{"a":7}', None, None]


@pytest.mark.spark
def test_casts_agree_with_spark_itself(spark: Any) -> None:
    """Among all atoms a conversion is a CAST exactly where Spark's Cast.canAnsiCast has one."""
    jvm = spark.sparkContext._jvm
    cast = jvm.org.apache.spark.sql.catalyst.expressions.Cast
    parser = spark._jsparkSession.sessionState().sqlParser()
    texts = dict.fromkeys(map(canonical_type, ATOMS))
    types = {text: parser.parseDataType(text) for text in texts}
    wrong = [
        (source, target)
        for source, target in itertools.product(texts, repeat=2)
        if "VOID" not in (source, target)
        if cast.canAnsiCast(types[source], types[target])
        != is_complete(conversion("c", source, target))
    ]
    assert wrong == []
