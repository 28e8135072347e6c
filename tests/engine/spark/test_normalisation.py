"""The definition hash against Spark: texts of one hash are one plan, and tokens are Spark's own."""

from __future__ import annotations

import random
import re
from typing import TYPE_CHECKING

import pytest

from catalog_migrate.sql.normalisation import normalised_tokens
from catalog_migrate.sql.tokens import tokenise

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

QUERIES = tuple("""
SELECT to_json(struct(id AS userId, a End, *)) AS j FROM hs.t WHERE a IS NOT NULL;
SELECT /*+ BROADCAST(u) */ t.id, u.a AS Name FROM hs.t JOIN hs.u ON t.id = u.id -- x
WHERE 1 = 1;
SELECT CASE WHEN id > 1 THEN 'x' ELSE r'\\n' END AS c, CAST(id AS BIGINT), id::STRING FROM hs.t;
WITH q AS (SELECT id, a FROM hs.t) SELECT count(DISTINCT id) AS n, a FROM q GROUP BY a ORDER BY a;
SELECT named_struct('Key', id, 'end', a) AS s, map('K', id), st.City, date FROM hs.t;
SELECT transform(array(1, id), Item -> Item + 1) AS xs, hs.f(id), upper(a) FROM hs.t;
SELECT to_json(x) AS j
FROM (SELECT struct(Id, date) AS x FROM hs.t UNION ALL SELECT struct(id, date) FROM hs.t);
SELECT sum(id) OVER (PARTITION BY a ORDER BY id) AS total, (id + 1) * 2, DATE'2020-01-01'
FROM hs.t LIMIT 5;
SELECT id, from_json(t.a, 'Id INT').Id AS f, 1L, 1.5BD, X'1f', "text", 'it\\'s'
FROM hs.t LEFT OUTER JOIN hs.u USING (id);
SELECT CAST(from_json(a, 'k INT') AS STRUCT<Key: INT>) AS k FROM hs.t
WHERE id IN (1, 2) AND NOT id BETWEEN 3 AND 4;
SELECT schema_of_json('{"A": 1}') AS s, EXTRACT(year FROM date) FROM IDENTIFIER('hs.t')
WHERE EXISTS (SELECT 1 FROM hs.u);
SELECT * FROM hs.t PIVOT (count(*) AS n FOR a IN ('x' AS X, 'y'))
""".strip().split(";\n"))

_NUMBERED = re.compile(r"(?:#|CTERelation(?:Def|Ref) |lambda_?\w*#|plan_id=)\d+L?|(?<=_)\d+(?=#)")


@pytest.fixture(scope="module")
def parents(spark: SparkSession) -> SparkSession:
    """What the queries read."""
    spark.sql("CREATE DATABASE hs")
    columns = "id INT, a STRING, date DATE, st STRUCT<City: STRING>"
    for name in ("t", "u"):
        spark.sql(f"CREATE TABLE hs.{name} ({columns}) USING parquet")
    spark.sql("CREATE FUNCTION hs.f(x INT) RETURNS INT RETURN x + 1")
    return spark


def spoilt(text: str, chance: random.Random) -> str:
    """``text`` with a few places written otherwise, with the same meaning or with another one."""
    for _ in range(chance.randint(1, 4)):
        tokens = tokenise(text, hints=True)
        if not tokens:
            break
        token = chance.choice(tokens)
        written = token.text
        kind = chance.randrange(9)
        if kind < 4:
            written = chance.choice((
                written.swapcase(), written.upper(), written.lower(), written.capitalize()
            ))
        elif kind == 4:
            blank = chance.choice((
                "\r", "\r\n", "\t ", "\u00a0", "-- c\n", "-- c\r", "-- c\\\n", "/* c */",
                "/* a /* b */ */", "/*+ c */", "\u2029",
            ))
            written = f"{blank}{written}" if chance.random() < 0.5 else f"{written} {blank}"
        elif kind == 5 and token.kind == "word":
            written = f"`{written}`"
        elif kind == 5 and token.kind == "quoted":
            written = token.value
        elif kind == 6 and token.kind == "string":
            written = chance.choice((f"r{written}", f"({written})", written.replace("'", '"')))
        elif kind == 7:
            written = chance.choice(("", f"({written})", f"{written} {written}"))
        elif kind == 8 and token.kind == "operator":
            written = chance.choice(("+", "*", "<", ",", "="))
        text = text[: token.start] + written + text[token.end :]
    return text


def plan_of(spark: SparkSession, text: str) -> tuple[str, str] | None:
    """The analysed plan without the numbers that Spark gives, and the schema; None: refused."""
    from pyspark.errors import AnalysisException

    try:
        frame = spark.sql(text)
    except AnalysisException:  # a ParseException is one
        return None
    analysed = frame._jdf.queryExecution().analyzed().toString()
    return _NUMBERED.sub("#", analysed), frame.schema.json()


def compare_texts_of_one_hash(spark: SparkSession, seed: int, wanted: int) -> None:
    """Fail at the first of so many texts that has the hash of a query and another plan."""
    chance = random.Random(seed)
    tried = 0
    plans: dict[str, tuple[str, str] | None] = {}
    while tried < wanted:
        query = chance.choice(QUERIES)
        other = spoilt(query, chance)
        if other == query or normalised_tokens(query) != normalised_tokens(other):
            continue
        tried += 1
        plans.setdefault(query, plan_of(spark, query))
        assert plans[query] is not None, query
        assert plan_of(spark, other) == plans[query], other


def test_texts_of_one_hash_are_one_plan(parents: SparkSession) -> None:
    """Whatever is written otherwise in a query: an equal hash is an equal plan and schema."""
    compare_texts_of_one_hash(parents, random.randrange(1 << 30), 40)


@pytest.mark.soak
def test_many_texts_of_one_hash_are_one_plan(parents: SparkSession) -> None:
    """The same with hundreds of texts."""
    compare_texts_of_one_hash(parents, random.randrange(1 << 30), 1000)


TEXTS = (
    "SELECT 1 -- a\\\nb\n,2", "SELECT 1 -- a\\\r\n,2", "SELECT 1 -- a\r,2", "a -- b", "--c",
    "SELECT\u00a01\u2028\u3000,\x0b2", "/* a /*+ b */ c", "/* a /* b */ c */ d", "/**/ d /***/",
    "/*/ d */ e", "/*+ x('*/') */ d", "SELECT /*+a*/ b", "r'a\\' b", "R\"a\\\" b",
    "12L 1bd 1e3 1e3x", "count(*/* c */)",
    "'a\nb' 'it\\'s' \"b\"", "`a``b`.c", "a<=>b<=c<>d!=e==f||g::h->i=>j|>k", "1.5abc a.b",
)  # fmt: skip


def test_tokens_end_where_those_of_spark_do(spark: SparkSession) -> None:
    """Comments, hints, blanks, strings and numbers, whatever the lines end with."""
    parser = spark._jvm.org.apache.spark.sql.catalyst.parser  # type: ignore[union-attr]
    streams = spark._jvm.org.antlr.v4.runtime.CharStreams  # type: ignore[union-attr]
    for text in TEXTS:
        lexer = parser.SqlBaseLexer(parser.UpperCaseCharStream(streams.fromString(text)))
        theirs = [each.getText() for each in lexer.getAllTokens() if each.getChannel() == 0]
        assert [token.text for token in tokenise(text, hints=True)] == theirs, text
