"""The grammar of Spark's queries: what it takes, what it refuses and where, mistakes it finds."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from catalog_migrate.sql.grammar import NotUnderstood, Refusal, refusal
from catalog_migrate.sql.release_dialect import parse
from catalog_migrate.sql.tokens import tokenise

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[2]
KEYWORDS = ("SELECT", "FROM", "WHERE", "JOIN", "ON", "AS", "CAST", "CASE", "WHEN", "THEN", "END",
            "GROUP", "ORDER", "BY", "UNION", "AND", "OR", "NULL", "IS", "LEFT")

TAKEN = """
SELECT a FROM t WHERE;
SELECT from FROM t;
SELECT 1 AS from, 2 AS select, order, date, "x" y FROM t;
SELECT left(a, 2), if(a, b, c), filter(a, x -> x) FROM t left JOIN u;
FROM t SELECT a WHERE b SELECT c;
FROM t |> WHERE a > 1 |> EXTEND a + 1 AS b |> DROP c |> AGGREGATE count(*) AS n GROUP BY a;
WITH RECURSIVE t(n) MAX RECURSION LEVEL 9 AS (SELECT 1 UNION ALL SELECT n+1 FROM t) SELECT *
  FROM t;
SELECT a:b.c[0]::int, a COLLATE UTF8_LCASE, a::DECIMAL(10,2)[0], x.y.* EXCEPT (a, b) FROM t;
SELECT a FROM t QUALIFY row_number() OVER (ORDER BY a) = 1;
SELECT a FROM t FOR VERSION AS OF 3 TABLESAMPLE (5 ROWS) AS x, LATERAL (SELECT 1) y;
SELECT a FROM (t JOIN u ON a = b) NATURAL LEFT JOIN v CROSS JOIN w LEFT ANTI JOIN z USING (a,
  b);
SELECT a FROM t LATERAL VIEW OUTER explode(x) e AS y PIVOT (sum(b) AS s FOR c IN (1 AS d, 2))
  AS p;
SELECT a FROM t UNPIVOT INCLUDE NULLS ((a, b) FOR n IN ((c, d) AS x, (e, f) y)) AS p;
SELECT a FROM t GROUP BY CUBE (a, (b, c)), GROUPING SETS ((a), ()) HAVING a > 1 ORDER BY a
  NULLS LAST;
SELECT sum(a) FILTER (WHERE b) OVER (PARTITION BY a ORDER BY b ROWS BETWEEN 1 PRECEDING AND
  CURRENT ROW);
SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY a DESC), lag(a) RESPECT NULLS OVER w FROM t
  WINDOW w AS ();
SELECT extract(YEAR FROM a), trim(BOTH 'x' FROM a), substring(a FROM 1 FOR 2), position('a' IN
  b) FROM t;
SELECT CAST(x AS STRUCT<a: INT NOT NULL COMMENT 'c', b: ARRAY<MAP<INT,STRING>>>), TRY_CAST(y AS
  s.money);
SELECT INTERVAL 1 DAY 2 HOUR, INTERVAL '1-2' YEAR TO MONTH, DATE '2020-01-01', X'1F', .5, 1e3,
  -2L, 1.5BD;
SELECT (SELECT 1), (a, b) IN (SELECT 1, 2), NOT EXISTS (SELECT 1), exists(z, x -> x > 1), a NOT
  LIKE ANY ('b');
SELECT a <=> b, a == b, a >>> 1, a << 2, a !> 2, ~a, a DIV b, a IS NOT DISTINCT FROM b, :p, ?
  FROM t;
SELECT * FROM f(TABLE(t) PARTITION BY a ORDER BY b, c => 1) AS g(y);
SELECT a FROM IDENTIFIER('s' || '.t'), VALUES (1, 2), (3, 4) AS v(a, b);
(SELECT 1) EXCEPT ALL (SELECT 2) ORDER BY 1 LIMIT ALL OFFSET 2;
SELECT TRANSFORM(a) USING 'cat' AS (b STRING) FROM t;
VALUES (1, 2);
TABLE t
"""
"""Each of these was accepted by Spark 4.2's own parser."""

REFUSED = {
    "SELCT a FROM s.u": Refusal(0, "SELCT", "SELECT for SELCT"),
    "SELECT a FORM s.u": Refusal(14, "s", "FROM for FORM"),
    "SELECT a, FROM s.u": Refusal(8, ",", "it without the ,"),
    "SELECT a b c FROM t": Refusal(11, "c", None),
    "SELECT a FROM t WHER b > 1": Refusal(21, "b", "WHERE for WHER"),
    "SELECT a FROM t GROPU BY a": Refusal(22, "BY", "GROUP for GROPU"),
    "SELECT a FROM t JION u ON a = b": Refusal(21, "u", "JOIN for JION"),
    "SELECT a FROM t ORDER a": Refusal(22, "a", None),
    "SELECT a FROM t LIMIT 5 LIMIT 6": Refusal(24, "LIMIT", None),
    "SELECT a FROM t WHERE a = = 1": Refusal(26, "=", None),
    "SELECT (a FROM t": Refusal(15, "t", None),
    "SELECT a) FROM t": Refusal(8, ")", None),
    "SELECT CASE WHEN a THEN 1 ELS 2 END FROM t": Refusal(26, "ELS", "ELSE for ELS"),
    "SELECT CAST(a INT) FROM t": Refusal(14, "INT", None),
    "SELECT a IS NULL IS NULL FROM t": Refusal(20, "NULL", None),
    "SELECT a FROM t JOIN u ON a = b USING (c)": Refusal(32, "USING", None),
    "SELECT a IN (1, 2, ) FROM t": Refusal(17, ",", "it without the ,"),
    "INSERT INTO t SELECT 1": Refusal(0, "INSERT", None),
    "": Refusal(0, "", None),
}
"""Each of these was refused by it."""


@pytest.mark.parametrize("text", TAKEN.strip().split(";\n"))
def test_what_spark_takes_is_taken(text: str) -> None:
    """Keywords that are names, every clause, operator and special call."""
    assert refusal(text, "query") is None


@pytest.mark.parametrize(("text", "found"), REFUSED.items())
def test_what_spark_refuses_has_a_place(text: str, found: Refusal) -> None:
    """The token that nothing explains, and the keyword that was probably meant."""
    assert refusal(text, "query") == found


def test_an_expression_is_one() -> None:
    """A body that breaks off is refused at its end; a query passes where one may stand."""
    assert refusal("x + 1", "expression") is None
    assert refusal("x +", "query", "expression") == Refusal(3, "", None)
    assert refusal("SELECT 1", "expression") == Refusal(7, "1", None)
    assert refusal("SELECT 1", "query", "expression") is None


@pytest.mark.parametrize(
    "text", ["SELECT ${x} FROM t", "SELECT " + "(" * 3000 + "1" + ")" * 3000],
    ids=["a variable", "nested"],
)
def test_where_there_is_no_telling_nothing_is_refused(text: str) -> None:
    """A text that Spark changes before it reads it, and one that nests too deeply."""
    with pytest.raises(NotUnderstood):
        refusal(text, "query")


def corpus() -> list[str]:
    """The queries of PostgreSQL's catalogs and of every SQL file in the repository."""
    texts: set[str] = set()
    for file in (ROOT / "fixtures" / "postgres_catalog").glob("*.json"):
        objects = json.loads(file.read_text())["objects"]
        texts.update(one["sql"] for one in objects if one.get("sql"))
    for folder in ("fixtures", "builtins", "tests"):
        for file in (ROOT / folder).rglob("*.sql"):
            found = parse(file.read_text(), default_schema="s").statements
            texts.update(one.definition.sql for one in found if one.definition.sql)
    return sorted(text for text in texts if "${" not in text)


def spoilt(text: str, chance: random.Random) -> str:
    """``text`` with one keyword left out, mistyped, or swapped with what follows it."""
    tokens = tokenise(text)
    places = [
        place for place, token in enumerate(tokens[:-1]) if token.text.upper() in KEYWORDS
    ]
    place = chance.choice(places)
    token, following = tokens[place], tokens[place + 1]
    at = chance.randrange(len(token.text) - 1)
    pair = token.text[at : at + 2][::-1]
    written = chance.choice((
        "", token.text[:at] + token.text[at + 1 :], token.text[:at] + pair + token.text[at + 2 :],
        f"{following.text} {token.text}",
    ))
    end = following.end if written.endswith(f" {token.text}") else token.end
    return text[: token.start] + written + text[end:]


def test_no_query_of_the_repository_is_refused() -> None:
    """What real releases hold parses."""
    texts = corpus()
    assert len(texts) > 150
    assert [text for text in texts if refusal(text, "query") is not None] == []


def test_most_slips_are_found() -> None:
    """Of queries with one keyword dropped, mistyped or swapped, nine of ten are no SQL to it.

    The rest still is to Spark: AS may be missing, a mistyped word may be a name.
    """
    chance = random.Random(20)
    texts = [text for text in corpus() if len(re.findall(r"\bFROM\b", text))]
    slips = [spoilt(chance.choice(texts), chance) for _ in range(400)]
    found = sum(refusal(text, "query") is not None for text in slips)
    assert found >= 320


@pytest.mark.spark
def test_nothing_is_refused_that_spark_parses(spark: SparkSession) -> None:
    """Not one of the repository's queries, with a slip or without, is refused wrongly."""
    from pyspark.errors import ParseException

    def parses(text: str) -> bool:
        try:
            parser.parseQuery(text)
        except ParseException:
            return False
        return True

    parser = spark._jsparkSession.sessionState().sqlParser()
    chance = random.Random(22)
    texts = [text for text in corpus() if " FROM " in text]
    tried = [
        *(text for text in TAKEN.strip().split(";\n") if "money" not in text),
        *filter(None, REFUSED), *texts[::4],
        *(spoilt(chance.choice(texts), chance) for _ in range(200)),
    ]
    wrongly = [text for text in tried if refusal(text, "query") is not None and parses(text)]
    assert wrongly == []
    passed = [text for text in tried if refusal(text, "query") is None and not parses(text)]
    assert len(passed) < len(tried) // 20
