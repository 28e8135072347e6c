"""The names that are found in a query are those that Spark's analyser resolves."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from catalog_migrate.sql.references import references

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

QUERIES = tuple("""
TABLE rs.a;
TABLE rs.a UNION TABLE rs.b;
(TABLE rs.a) UNION ALL (TABLE rs.b) EXCEPT TABLE rs.c;
WITH q AS (TABLE rs.a) TABLE q INTERSECT TABLE rs.b;
WITH q AS (TABLE rs.a UNION TABLE rs.b) TABLE q;
SELECT * FROM (TABLE rs.a) q, (VALUES (1), (2)) v(n);
SELECT * FROM VALUES (1, 2), (3, 4) AS v(n, m), rs.a;
FROM rs.a SELECT id;
FROM rs.a SELECT id UNION ALL FROM rs.b SELECT id;
FROM rs.a, rs.b q SELECT q.id WHERE q.id = 1;
FROM (FROM rs.a SELECT id) q JOIN rs.b USING (id) SELECT q.id;
FROM rs.a |> WHERE id > 1 |> SELECT id, x;
FROM rs.a |> JOIN rs.b USING (id) |> AGGREGATE count(*) AS n GROUP BY id;
FROM rs.a |> UNION ALL (TABLE rs.b) |> LIMIT 1;
FROM rs.a |> UNION ALL TABLE rs.b |> EXCEPT DISTINCT (SELECT * FROM rs.c);
FROM rs.a |> EXTEND id + 1 AS c |> SET x = 'y' |> DROP c |> AS q |> ORDER BY q.id;
FROM rs.a |> AS b |> WHERE EXISTS (SELECT 1 FROM rs.c WHERE c.id = b.id);
FROM rs.a |> SELECT id, x |> PIVOT (count(*) AS n FOR x IN ('k', 'l'));
TABLE rs.a |> CROSS JOIN rs.b AS z |> SELECT z.id;
SELECT id FROM rs.a |> UNION ALL SELECT id FROM rs.b;
FROM rs.a |> TABLESAMPLE (10 PERCENT) |> LEFT JOIN rs.b ON true;
SELECT * FROM rs.a, LATERAL (SELECT b.x FROM rs.b WHERE b.id = a.id);
SELECT * FROM rs.a LEFT JOIN LATERAL (SELECT max(id) m FROM rs.b) q ON TRUE;
SELECT * FROM rs.a, LATERAL explode(xs) AS e;
SELECT * FROM rs.a LATERAL VIEW explode(xs) e AS v LATERAL VIEW OUTER posexplode(xs) f AS p, w;
SELECT * FROM rs.a LATERAL VIEW explode(array((SELECT max(id) FROM rs.b))) e AS v;
SELECT * FROM (SELECT id, x FROM rs.a) PIVOT (count(*) FOR x IN ('k', 'l'));
SELECT * FROM (SELECT id, x FROM rs.a) PIVOT (count(*) FOR x IN ('k', 'l')) p JOIN rs.b ON true;
SELECT * FROM (SELECT id, id i2 FROM rs.a) UNPIVOT (v FOR n IN (id, i2)) u, rs.b;
SELECT * FROM rs.a UNPIVOT INCLUDE NULLS (v FOR n IN (id AS `rs.c`)) CROSS JOIN rs.b;
WITH a AS (SELECT * FROM rs.a) SELECT * FROM a, rs.b;
WITH a AS (SELECT * FROM rs.a), b (id) AS (SELECT id FROM a) SELECT * FROM b JOIN rs.b c USING
    (id);
WITH b AS (WITH a AS (SELECT * FROM rs.c) SELECT * FROM a) SELECT * FROM b, rs.a;
WITH q AS (SELECT 1 n) SELECT (WITH q AS (SELECT max(id) m FROM rs.a) SELECT m FROM q), n FROM q;
WITH RECURSIVE q(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM q WHERE n < 3) SELECT * FROM q, rs.a;
WITH RECURSIVE q(n) AS (SELECT id FROM rs.a UNION ALL SELECT n FROM q JOIN rs.b ON n = id) TABLE q;
WITH RECURSIVE q(n) MAX RECURSION LEVEL 5 AS (SELECT 1 UNION ALL SELECT n FROM q) SELECT * FROM q;
WITH a AS (SELECT 1 AS id) SELECT * FROM rs.a, a;
WITH q AS (SELECT * FROM rs.a) FROM q SELECT id;
WITH q AS (SELECT * FROM rs.a) FROM q |> JOIN rs.b USING (id);
SELECT (SELECT max(id) FROM rs.a), id IN (SELECT id FROM rs.b) FROM rs.c;
SELECT id FROM rs.a GROUP BY id HAVING count(*) > (SELECT count(*) FROM rs.b);
SELECT id FROM rs.a ORDER BY (SELECT max(id) FROM rs.b);
SELECT CASE WHEN EXISTS (TABLE rs.b) THEN 1 END FROM rs.a;
SELECT id FROM rs.a WHERE (id, x) IN (SELECT id, x FROM rs.b) AND NOT EXISTS (FROM rs.c SELECT id);
SELECT * FROM rs.a a JOIN rs.b b ON a.id = (SELECT max(id) FROM rs.c);
SELECT id FROM rs.a WHERE id IS DISTINCT FROM x AND id IS NOT DISTINCT FROM (SELECT 1 FROM rs.b);
SELECT * FROM rs.a NATURAL JOIN rs.b;
SELECT * FROM rs.a LEFT ANTI JOIN rs.b USING (id);
SELECT * FROM rs.a SEMI JOIN rs.b ON a.id = b.id FULL OUTER JOIN rs.c ON true;
SELECT * FROM rs.a CROSS JOIN (rs.b JOIN rs.c ON true);
SELECT * FROM ((rs.a)), (rs.b AS q);
SELECT * FROM (((SELECT * FROM rs.a)));
((SELECT id FROM rs.a)) UNION (SELECT id FROM rs.b) ORDER BY id;
SELECT q.id FROM rs.a VERSION AS OF 0 q, rs.b;
SELECT * FROM rs.a FOR SYSTEM_VERSION AS OF 0 q, rs.b;
SELECT * FROM rs.a TABLESAMPLE (10 PERCENT) REPEATABLE (3) s, rs.b TABLESAMPLE (BUCKET 1 OUT OF 2);
SELECT b.id FROM rs.a b, rs.c a WHERE b.id = a.id;
SELECT rs.id FROM rs.a rs, rs.b;
SELECT rs.a.st.city, a.st.city, st.city AS `rs.c` FROM rs.a;
SELECT transform(xs, a -> a + 1), filter(xs, (b, i) -> b > i), aggregate(xs, 0, (c, d) -> c +
    d) FROM rs.a;
SELECT sum(id) OVER (PARTITION BY x ORDER BY id ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) FROM
    rs.a;
SELECT sum(id) OVER w, sum(id) OVER (w) FROM rs.a WINDOW w AS (PARTITION BY x ORDER BY id), b
    AS (ORDER BY id);
SELECT * EXCEPT (id, x) FROM rs.a;
SELECT a.* EXCEPT (st.city), b.* FROM rs.a, rs.b;
SELECT count(DISTINCT id) FILTER (WHERE x IN (SELECT x FROM rs.b)) FROM rs.a;
SELECT id FROM rs.a GROUP BY GROUPING SETS ((id), ()), CUBE (x);
SELECT id FROM rs.a GROUP BY ALL ORDER BY ALL;
SELECT DISTINCT id FROM rs.a DISTRIBUTE BY id SORT BY id;
SELECT extract(YEAR FROM d), substring(x FROM 1 FOR 2), trim(LEADING 'a' FROM x), overlay(x
    PLACING 'y' FROM 1) FROM rs.a;
SELECT trim(BOTH FROM x), position('a' IN x), trim(x FROM x) FROM rs.a;
SELECT `from`, `select`, `join` FROM rs.`from` AS `where`, rs.`select`;
SELECT * FROM rs.`select` `rs.c`, `rs`.`a`;
SELECT * FROM spark_catalog.rs.a, `spark_catalog`.`rs`.`b`;
SELECT * FROM IDENTIFIER('rs.a'), IDENTIFIER('rs' || '.b');
SELECT * FROM IDENTIFIER(concat('rs', '.', 'a')) q JOIN IDENTIFIER('`rs`.`select`') USING (id);
SELECT a.id FROM IDENTIFIER('rs.' 'a') AS a;
TABLE IDENTIFIER('rs.a');
WITH q AS (SELECT * FROM rs.b) SELECT * FROM IDENTIFIER('q');
WITH IDENTIFIER('q') AS (SELECT * FROM rs.b) SELECT * FROM q;
SELECT IDENTIFIER('id') FROM rs.a;
SELECT * FROM rs.tvf(1), rs.a;
SELECT * FROM range(3) AS r, rs.a;
SELECT * FROM explode(array(1)) e, rs.a;
SELECT * FROM inline(array(struct(1, 2))) AS v(n, m) JOIN rs.a ON n = id;
SELECT TRANSFORM (id, x) USING 'cat' AS (i, j) FROM rs.a;
SELECT /*+ BROADCAST(b) */ * FROM rs.a JOIN rs.b USING (id);
SELECT * FROM rs.a AS OF JOIN rs.b;
SELECT id FROM rs.a QUALIFY row_number() OVER (ORDER BY id) = 1;
SELECT id AS from FROM rs.a;
SELECT values.id values FROM rs.a values, rs.b;
SELECT window.id, table.id FROM rs.a window, rs.b table;
SELECT limit.id FROM rs.a limit JOIN rs.b offset ON limit.id = offset.id;
SELECT * FROM rs.a MINUS SELECT * FROM rs.b;
SELECT * FROM rs.a q (c1, c2, c3, c4, c5), rs.b;
SELECT date '2020-01-01', interval 1 day, timestamp'2020-01-01' FROM rs.a, rs.b;
SELECT a.id, (a.x, a.id), struct(a.x AS a) FROM rs.a, rs.b b2;
SELECT date FROM (SELECT d AS date FROM rs.a) date, rs.b;
SELECT a.id FROM rs.a LEFT JOIN (rs.b b INNER JOIN rs.c c ON b.id = c.id) ON a.id = b.id;
SELECT * FROM rs.a ORDER BY id NULLS FIRST OFFSET 1;
SELECT id FROM rs.a WHERE EXISTS (WITH a AS (SELECT * FROM rs.b) SELECT * FROM a);
SELECT * FROM (WITH a AS (TABLE rs.b) SELECT * FROM a), (WITH b AS (TABLE rs.c) TABLE b) q;
SELECT * FROM (SELECT * FROM rs.a UNION TABLE rs.b);
SELECT collate(a.x, 'UTF8_LCASE'), a.x COLLATE UNICODE FROM rs.a, rs.b;
SELECT any_value(id) IGNORE NULLS, percentile_cont(0.5) WITHIN GROUP (ORDER BY id) FROM rs.a;
SELECT listagg(x, ',') WITHIN GROUP (ORDER BY x) FROM rs.a;
SELECT cast(id AS STRING) table, id::INT FROM rs.a;
SELECT first(id) FROM rs.a WHERE x = 'FROM rs.b' -- FROM rs.c;
SELECT exists(xs, b -> b IN (1, 2)) FROM rs.a;
SELECT rs.f(id) FROM rs.a;
SELECT * FROM rs.view_of_c;
SELECT 1 AS id UNION TABLE rs.`select`;
VALUES (1) UNION TABLE rs.`select`;
WITH q (SELECT * FROM rs.a) SELECT * FROM q, rs.b;
WITH a (c1) (SELECT id FROM rs.b) FROM a;
WITH q AS (SELECT 1), r AS (TABLE rs.c) TABLE rs.b;
WITH q AS (SELECT 1 AS id) (SELECT id FROM q) UNION (SELECT id FROM rs.b);
WITH q AS (SELECT 1 AS id), r (FROM q SELECT id) VALUES (1) UNION SELECT id FROM rs.b;
SELECT * FROM VALUES 1, 2 AS v, rs.b;
SELECT * FROM VALUES (1), (2) v JOIN rs.b ON true;
SELECT * FROM rs.a, VALUES ('x') v(y), rs.b q;
SELECT * FROM udtf_of_rs(TABLE(rs.a)), rs.b;
SELECT * FROM udtf_of_rs(TABLE(SELECT * FROM rs.a) PARTITION BY id ORDER BY x) AS q, rs.b;
SELECT * FROM udtf_of_rs(t => TABLE(rs.a) WITH SINGLE PARTITION);
WITH q AS (TABLE rs.a) SELECT * FROM udtf_of_rs(TABLE(q));
SELECT * FROM rs.a table, rs.b values;
SELECT * FROM rs.a AS limit, rs.b AS offset, rs.c;
SELECT * FROM rs.a WHERE id IN (FROM rs.b |> SELECT id) |> INTERSECT ALL TABLE rs.c;
FROM rs.a |> JOIN LATERAL (SELECT * FROM rs.b) q ON q.id = a.id;
SELECT 1 WHERE 1 = (SELECT max(id) FROM rs.a) UNION DISTINCT SELECT 2 EXCEPT ALL SELECT id FROM
    rs.b;
SELECT * FROM rs.a q LEFT SEMI JOIN (TABLE rs.b) r ON q.id = r.id;
SELECT * FROM rs.a JOIN LATERAL rs.tvf(a.id) ON true;
SELECT /* FROM rs.b */ id FROM /* rs.c, */ rs.a -- rs.b;
SELECT count(*) FROM rs.a HAVING count(*) > (SELECT count(*) FROM rs.b);
SELECT a.id IN (TABLE rs.`select`) FROM rs.a;
SELECT array((SELECT max(id) FROM rs.b)), struct((SELECT 1 FROM rs.c LIMIT 1)) FROM rs.a;
SELECT if(EXISTS (SELECT 1 FROM rs.b), 1, 2) FROM VALUES (1);
SELECT x FROM rs.a CROSS JOIN LATERAL (VALUES (1)) v;
FROM rs.a;
FROM rs.a, rs.b LIMIT 3;
SELECT * FROM (FROM rs.a);
SELECT * FROM (rs.a a LEFT JOIN rs.b b USING (id)) JOIN rs.c USING (id);
SELECT current_date, current_timestamp, user FROM rs.a;
SELECT id FROM RS.A UNION SELECT id FROM rs . b;
SELECT id FROM rs./* x */a
""".strip().split(";\n"))

_RELATION = re.compile(r"SubqueryAlias spark_catalog\.rs\.(`[^`]+`|\w+)", re.IGNORECASE)
_TABLES = ("a", "b", "c", "from", "select")


class _One:
    def eval(self, row: object) -> Iterator[tuple[int]]:
        """Give one row."""
        yield (1,)


@pytest.fixture(scope="module")
def parents(spark: SparkSession) -> SparkSession:
    """What the queries read."""
    from pyspark.sql.functions import udtf

    spark.sql("CREATE DATABASE rs")
    columns = "id INT, x STRING, d DATE, xs ARRAY<INT>, st STRUCT<city: STRING>"
    for name in _TABLES:
        of_name = columns if len(name) == 1 else "id INT"
        if name == "from":
            of_name = "`from` INT, `select` INT, `join` INT"
        spark.sql(f"CREATE TABLE rs.`{name}` ({of_name}) USING delta")
    spark.sql("CREATE VIEW rs.view_of_c AS SELECT * FROM rs.c")
    spark.sql("CREATE FUNCTION rs.f(x INT) RETURNS INT RETURN x + 1")
    spark.sql("CREATE FUNCTION rs.tvf(x INT) RETURNS TABLE (n INT) RETURN SELECT x")
    spark.udtf.register("udtf_of_rs", udtf(_One, returnType="n INT"))  # type: ignore[arg-type]
    return spark


def test_names_are_those_of_the_analyser(parents: SparkSession) -> None:
    """In every shape of query: what Spark reads, and nothing else; names of common table
    expressions, aliases, columns and lambdas are none."""
    for query in QUERIES:
        plan = parents.sql(query)._jdf.queryExecution().analyzed().toString()
        theirs = {name.strip("`").lower() for name in _RELATION.findall(plan)} - {"tvf", "f"}
        if "view_of_c" in theirs:
            theirs.remove("c")
        assert references(query).relations == {("rs", name) for name in theirs}, query
