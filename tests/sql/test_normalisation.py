"""What the definition hash takes no notice of, and all that it must not overlook."""

from __future__ import annotations

import pytest

from catalog_migrate.sql.normalisation import normalised_tokens

ALIKE = [
    ("select a from s.t -- c\nwhere b = 'V'", "SELECT a /* c */\r\nFROM\u00a0s.t WHERE b = 'V'"),
    ("SELECT a FROM shop.Orders o", "SELECT a FROM `Shop`.`orders` o"),
    ("SELECT TO_JSON(Struct(a)), s.F(a) FROM s.t", "SELECT to_json(struct(a)), S.f(a) FROM s.t"),
    ("SELECT case When a Then 1 else 2 end FROM s.t",
     "SELECT CASE WHEN a THEN 1 ELSE 2 END FROM s.t"),
    ("SELECT a FROM s.t left outer join s.u using (a) group by a having a is not null",
     "SELECT a FROM s.t LEFT OUTER JOIN s.u USING (a) GROUP BY a HAVING a IS NOT NULL"),
    ("SELECT cast(a as bigint), a::int FROM s.t", "SELECT CAST(a AS BIGINT), a::INT FROM s.t"),
    ("SELECT 1L, 1e3, null, True, not a FROM s.t", "SELECT 1l, 1E3, NULL, TRUE, NOT a FROM s.t"),
    ("with q as (select 1) select * from q union all select 2",
     "WITH q AS (SELECT 1) SELECT * FROM q UNION ALL SELECT 2"),
    ("SELECT sum(a) over (partition by b order by c) FROM s.t where a in (1)",
     "SELECT sum(a) OVER (PARTITION BY b ORDER BY c) FROM s.t WHERE a IN (1)"),
    ("SELECT a FROM s.t where a like 'x' and b between 1 and 2",
     "SELECT a FROM s.t WHERE a LIKE 'x' AND b BETWEEN 1 AND 2"),
    ("(`x` INT) RETURNS INT RETURN case when x then 1 end",
     "(`x` INT) RETURNS INT RETURN CASE WHEN x THEN 1 END"),
    ("SELECT a FROM s.t -- b \\\n and more\n", "SELECT a FROM s.t"),
    ("SELECT a FROM IDENTIFIER('S.T')", "SELECT a FROM s.t"),
]  # fmt: skip

UNLIKE = [
    ("SELECT to_json(struct(a AS userid))", "SELECT to_json(struct(a AS userId))"),
    ("SELECT to_json(struct(a userid))", "SELECT to_json(struct(a userId))"),
    ("SELECT to_json(struct(a AS end))", "SELECT to_json(struct(a AS END))"),
    ("SELECT to_json(struct(a end))", "SELECT to_json(struct(a END))"),
    ("SELECT to_json(struct(a and))", "SELECT to_json(struct(a AND))"),
    ("SELECT to_json(struct(a AS select))", "SELECT to_json(struct(a AS SELECT))"),
    ("SELECT to_json(struct(date, a))", "SELECT to_json(struct(DATE, a))"),
    ("SELECT to_json(struct(case, a))", "SELECT to_json(struct(CASE, a))"),
    ("SELECT to_json(struct(not, a))", "SELECT to_json(struct(NOT, a))"),
    ("SELECT to_json(struct(t.from))", "SELECT to_json(struct(t.FROM))"),
    ("SELECT to_json(struct(`id`))", "SELECT to_json(struct(`Id`))"),
    ("SELECT to_json(from_json(a, 'x INT'))", "SELECT to_json(from_json(a, 'X INT'))"),
    ("SELECT CAST(a AS STRUCT<id: INT>)", "SELECT CAST(a AS STRUCT<Id: INT>)"),
    ("SELECT CAST(a AS STRUCT<int: INT>)", "SELECT CAST(a AS STRUCT<INT: INT>)"),
    ("SELECT named_struct('a', 1)", "SELECT named_struct('A', 1)"),
    ("SELECT a:key FROM s.t", "SELECT a:Key FROM s.t"),
    ("SELECT a:select FROM s.t", "SELECT a:SELECT FROM s.t"),
    ("SELECT to_json(struct(*)) FROM (SELECT id FROM s.t)",
     "SELECT to_json(struct(*)) FROM (SELECT ID FROM s.t)"),
    ("SELECT /*+ BROADCAST(t) */ a FROM s.t", "SELECT a FROM s.t"),
    ("SELECT /*+ REPARTITION(2) */ a FROM s.t", "SELECT /*+ REPARTITION(3) */ a FROM s.t"),
    ("SELECT 'a' FROM s.t", "SELECT 'A' FROM s.t"),
    ("SELECT 'a  b'", "SELECT 'a b'"),
    ("SELECT 'a\r\nb'", "SELECT 'a\nb'"),
    ("SELECT r'\\n'", "SELECT '\\n'"),
    ("SELECT r'\\' || 'a  b'", "SELECT r'\\' || 'a b'"),
    ("SELECT `current_date`", "SELECT current_date"),
    ("SELECT 1 -- a\r , 2", "SELECT 1 -- a , 2"),
    ("SELECT 1 -- a\\\n, 2", "SELECT 1 -- a\n, 2"),
    ("SELECT a FROM delta.`/x/Y`", "SELECT a FROM delta.`/x/y`"),
    ("SELECT a FROM delta.`Y`", "SELECT a FROM delta.`y`"),
    ("SELECT transform(a, x -> x)", "SELECT transform(a, X -> X)"),
    ("SELECT a FROM s.t", "SELECT b FROM s.t"),
    ("SELECT a FROM s.t", "SELECT a FROM s.u"),
    ("SELECT (a + b) * c", "SELECT a + b * c"),
    ("SELECT date'2020-01-01'", "SELECT timestamp'2020-01-01'"),
    ("SELECT 1.0BD", "SELECT 1.0D"),
]  # fmt: skip


@pytest.mark.parametrize(("one", "other"), ALIKE)
def test_what_spark_reads_alike_is_the_same(one: str, other: str) -> None:
    """Blanks, comments, keywords in any case, names that are looked up without case."""
    assert normalised_tokens(one) == normalised_tokens(other)


@pytest.mark.parametrize(("one", "other"), UNLIKE)
def test_what_can_be_read_in_a_value_or_a_plan_counts(one: str, other: str) -> None:
    """The case of aliases, fields and columns, hints, literals, paths and quoted names."""
    assert normalised_tokens(one) != normalised_tokens(other)
