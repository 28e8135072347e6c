"""What ``release compile`` writes for the ``*`` of a query, and what it wrote before.

``golden/stars.json`` has queries with the text of now and that of the versions which wrote a whole
query anew by sqlglot 30.30.0: those texts are in catalogs and manifests. ``same`` says that the two
are one query; where not, the earlier text means something else than its source (it folds the name
of a field, drops an argument). ``alike`` has the queries one token away for which sqlglot wrote
just what it wrote for the query itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from catalog_migrate.model.objects import Column
from catalog_migrate.release.manifest import expand_star
from catalog_migrate.sql.qualified import _AS_CASTS as AS_CASTS
from catalog_migrate.sql.qualified import _SPELLINGS as SPELLINGS
from catalog_migrate.sql.qualified import is_qualified_form
from catalog_migrate.sql.stars import write_stars_out
from tests.release.star_mutants import mutants

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

GOLDEN = msgspec.json.decode(Path(__file__).with_name("golden").joinpath("stars.json").read_bytes())
TABLES = {tuple(name.split(".")): names for name, names in GOLDEN["tables"].items()}


def columns_of(schema: str, name: str) -> list[str] | None:
    """The columns of a table."""
    return TABLES.get((schema, name))


def columns(names: list[str]) -> tuple[Column, ...]:
    """Columns of these names; types play no role."""
    return tuple(Column(name, "STRING") for name in names)


def written(query: str, case: dict[str, Any]) -> str:
    """The query with its ``*`` written out."""
    known = {name: columns(names) for name, names in TABLES.items()}
    found = expand_star(query, known, columns(case["columns"]))
    assert found is not None
    return found


@pytest.mark.parametrize("case", GOLDEN["cases"], ids=lambda case: case["query"])
def test_a_star_is_written_as_it_was(case: dict[str, Any]) -> None:
    """Another text is another definition hash: the view would be created again by an upgrade."""
    assert written(case["query"], case) == case["written"]


@pytest.mark.parametrize("case", GOLDEN["cases"], ids=lambda case: case["query"])
def test_what_an_earlier_version_wrote_is_the_same_query(case: dict[str, Any]) -> None:
    """The earlier text of a query is told to be that query, and no other text is."""
    assert is_qualified_form(case["earlier"], case["written"], columns_of) is case["same"]
    assert not is_qualified_form(case["earlier"], case["written"] + "\nLIMIT 7", columns_of)


@pytest.mark.parametrize(
    "case", [case for case in GOLDEN["cases"] if "alike" in case], ids=lambda case: case["query"]
)
def test_a_query_one_token_away_is_another(case: dict[str, Any]) -> None:
    """Only what the earlier version wrote in the same text counts as the same."""
    found = []
    for query in mutants(case["query"]):
        text = written(query, case)
        if text == case["earlier"] or is_qualified_form(case["earlier"], text, columns_of):
            found.append(query)
    assert found == case["alike"]


@pytest.mark.parametrize(
    ("earlier", "now"),
    [
        # a bare name that may be the other table's, or none at all
        ("SELECT `a`.`id` AS `id` FROM `shop`.`orders` AS `a` JOIN `shop`.`customers` AS `c` ON "
         "`a`.`customer` = `c`.`id`",
         "SELECT id FROM shop.orders a JOIN shop.customers c ON a.customer = c.id"),
        ("SELECT `o`.`name` AS `name` FROM `shop`.`orders` AS `o`",
         "SELECT name FROM shop.orders o"),
        # a column of the outer query, hidden by one of the inner
        ("SELECT `o`.`id` AS `id` FROM `shop`.`orders` AS `o` WHERE EXISTS(SELECT 1 AS `1` FROM "
         "`shop`.`customers` AS `c` WHERE `o`.`id` = 1)",
         "SELECT o.id FROM shop.orders o WHERE EXISTS (SELECT 1 FROM shop.customers c "
         "WHERE id = 1)"),
        # brackets decide
        ("SELECT `o`.`id` + 1 AS `x`, `o`.`id` + 1 * 2 AS `y` FROM `shop`.`orders` AS `o`",
         "SELECT o.id + 1 AS x, x * 2 AS y FROM shop.orders o"),
        ("SELECT `o`.`id` AS `id` FROM `shop`.`orders` AS `o` WHERE NOT `o`.`id` = 1 AND "
         "`o`.`total` IS NULL",
         "SELECT o.id FROM shop.orders o WHERE o.id = 1 AND o.total IS NOT NULL"),
        # ORDER BY takes the item, not the column
        ("SELECT UPPER(`o`.`id`) AS `id` FROM `shop`.`orders` AS `o` ORDER BY `o`.`id`",
         "SELECT upper(o.id) AS id FROM shop.orders o ORDER BY id"),
        ("SELECT TO_JSON(STRUCT(`o`.`id` AS `key`)) AS `j` FROM `shop`.`orders` AS `o`",
         "SELECT to_json(struct(o.id AS Key)) AS j FROM shop.orders o"),
        # RIGHT JOIN takes the right one
        ("SELECT COALESCE(`o`.`id`, `c`.`id`) AS `id` FROM `shop`.`orders` AS `o` RIGHT JOIN "
         "`shop`.`customers` AS `c` ON `o`.`id` = `c`.`id`",
         "SELECT o.id FROM shop.orders o RIGHT JOIN shop.customers c USING (id)"),
        ("SELECT /*+ BROADCAST(`c`) */ `o`.`id` AS `id` FROM `shop`.`orders` AS `o`",
         "SELECT /*+ MERGE(c) */ o.id FROM shop.orders o"),
        ("SELECT COALESCE(`o`.`id`, `c`.`id`) AS `id` FROM `shop`.`orders` AS `o` RIGHT JOIN "
         "`shop`.`customers` AS `c` ON `o`.`id` = `c`.`id`",
         "SELECT id FROM shop.orders o RIGHT JOIN shop.customers c USING (id)"),
        ("SELECT COALESCE(`c`.`id`, `o`.`id`) AS `id` FROM `shop`.`orders` AS `o` LEFT JOIN "
         "`shop`.`customers` AS `c` ON `o`.`id` = `c`.`id`",
         "SELECT id FROM shop.orders o LEFT JOIN shop.customers c USING (id)"),
        ("SELECT NULLIF(`o`.`id`, `c`.`id`) AS `id` FROM `shop`.`orders` AS `o` LEFT JOIN "
         "`shop`.`customers` AS `c` ON `o`.`id` = `c`.`id`",
         "SELECT id FROM shop.orders o LEFT JOIN shop.customers c USING (id)"),
        # USING compares the columns of its name
        ("SELECT COALESCE(`o`.`id`, `c`.`id`) AS `id` FROM `shop`.`orders` AS `o` JOIN "
         "`shop`.`customers` AS `c` ON `o`.`customer` = `c`.`id`",
         "SELECT id FROM shop.orders o JOIN shop.customers c USING (id)"),
        ("SELECT COALESCE(`o`.`id`, `c`.`id`) AS `id` FROM `shop`.`orders` AS `o` JOIN "
         "`shop`.`customers` AS `c` ON `o`.`customer` = `c`.`id`",
         "SELECT id FROM shop.orders o JOIN shop.customers c ON o.customer = c.id"),
        # a field of a column, or a column of a relation
        ("SELECT `o`.`customer`.`name` AS `name` FROM `shop`.`orders` AS `o` JOIN "
         "`shop`.`customers` AS `customer` ON `o`.`id` = `customer`.`id`",
         "SELECT customer.name FROM shop.orders o JOIN shop.customers customer "
         "ON o.id = customer.id"),
        # a name in a list is no qualifier of the next
        ("SELECT `o`.`id` AS `id`, `o`.`total` AS `o` FROM `shop`.`orders` AS `o` "
         "ORDER BY `o`, `id`",
         "SELECT o.id, o.total AS o FROM shop.orders o ORDER BY id"),
        # a column goes before an item of its name
        ("SELECT UPPER(`o`.`customer`) AS `customer` FROM `shop`.`orders` AS `o` "
         "WHERE UPPER(`o`.`customer`) = 'x'",
         "SELECT upper(o.customer) AS customer FROM shop.orders o WHERE customer = 'x'"),
        ("SELECT CURRENT_DATE AS `current_date` FROM `shop`.`orders` AS `o`",
         "SELECT `current_date` FROM shop.orders o"),
        ("SELECT `o`.`id` AS `id` FROM `shop`.`orders` AS `o` ORDER BY `id` DESC",
         "SELECT o.id FROM shop.orders o ORDER BY id DESC NULLS FIRST"),
        ("SELECT `o`.`id` AS `id` FROM `shop`.`orders` AS `o` ORDER BY `total`",
         "SELECT o.id FROM shop.orders o ORDER BY 1"),
    ],
)  # fmt: skip
def test_what_no_rule_explains_is_another_query(earlier: str, now: str) -> None:
    """A difference that changes, or may change, what is selected is never overlooked."""
    assert not is_qualified_form(earlier, now, columns_of)
    assert not is_qualified_form(WITH_STAR[0] + earlier, WITH_STAR[1] + now, columns_of)


@pytest.mark.parametrize(
    ("earlier", "now"),
    [
        ("CONCAT(`o`.`customer`, 'A')", "concat(o.customer, 'a')"),
        ("'1'", "1"),
        ("TRY_CAST(`o`.`total` AS INT)", "o.total::INT"),
        ("CAST(`o`.`total` AS STRING)", "o.total::INT"),
        ("CAST('2020-01-01' AS DATE)", "DATE '2020-01-02'"),
        ("CAST('2020-01-01' AS DATE)", "TIMESTAMP '2020-01-01'"),
        ("CAST('now' AS DATE)", "DATE 'now'"),
        ("CAST(2 DIV `o`.`total` AS INT)", "2 DIV o.total::INT"),
        ("CAST(`o`.`id` IS DISTINCT FROM 2 AS INT)", "o.id IS DISTINCT FROM 2::INT"),
        ("CAST(`o`.`id` LIKE 'a' AS STRING)", "o.id LIKE 'a'::STRING"),
        ("CAST(NOT `o`.`id` AS BOOLEAN)", "NOT o.id::BOOLEAN"),
        ("CAST(1 AS BIGINT)", "2L"),
        ("CAST(1 AS BIGINT)", "1S"),
        ("INTERVAL '1' DAY", "INTERVAL 2 DAY"),
        ("NOW()", "current_timestamp"),
        ("COALESCE(`o`.`id`, 1, 2)", "nvl(o.id, 1)"),
        ("COALESCE(1, `o`.`id`)", "nvl(o.id, 1)"),
        ("LOCATE('a', `o`.`customer`)", "instr(o.customer, 'a', 2)"),
        ("LOCATE(`o`.`customer`, 'a')", "instr(o.customer, 'a')"),
        ("INSTR('a', `o`.`customer`)", "instr(o.customer, 'a')"),
        ("DATE_ADD(`o`.`at`, 7 * -1)", "date_sub(o.at, -7)"),
        ("DATE_ADD(`o`.`at`, 7)", "date_sub(o.at, 7)"),
        ("DATE_ADD(`o`.`at`, -7)", "date_sub(o.at, 7)"),
        ("ADD_MONTHS(`o`.`at`, 7 * -1)", "date_sub(o.at, 7)"),
        ("2 * `o`.`total` % 3", "2 * mod(o.total, 3)"),
        ("2 - `o`.`total` % 3", "2 - mod(3, o.total)"),
        ("`o`.`total` % 3 + 1", "mod(o.total, 3 + 1)"),
        ("`o`.`total` % 3 AS `r`, 1", "mod(o.total, 3 r), 1"),
        ("FIRST(`o`.`total`) IGNORE NULLS", "max(o.total, true)"),
        ("ARRAY(`o`.`id` AS `a`)", "named_struct('a', o.id)"),
        ("STRUCT(`o`.`id` AS `b`)", "named_struct('a', o.id)"),
        ("STRUCT(`o`.`id` AS `a`)", "named_struct('a', o.id, 'b', o.total)"),
        ("TO_JSON(STRUCT(`o`.`id` + 1 AS `_col_0`))", "to_json(struct(o.id + 1))"),
        *(
            (f"NOT `o`.`total` {sign} `o`.`id` IS NULL", f"o.total {sign} o.id IS NOT NULL")
            for sign in ("AND", "OR")
        ),
        *(
            (f"{name.upper()}(`o`.`id`)", f"{name}(o.ID)") for name in (
                "struct", "named_struct", "to_json", "to_csv", "to_xml", "to_avro", "to_protobuf",
                "typeof", "to_variant_object", "schema_of_json", "schema_of_csv", "schema_of_xml",
                "map", "transform", "stack", "table", "unpivot",
            )
        ),
    ],
)
def test_what_no_rule_explains_is_another_expression(earlier: str, now: str) -> None:
    """Arguments, literals and names of fields are compared as they are."""
    was = f"SELECT {earlier} AS `x` FROM `shop`.`orders` AS `o`"
    is_ = f"SELECT {now} AS x FROM shop.orders o"
    assert not is_qualified_form(WITH_STAR[0] + was, WITH_STAR[1] + is_, columns_of)


@pytest.mark.parametrize(
    ("names", "query", "same"),
    [
        ("`id`, `name`, `x`", "SELECT *, name:a.b x FROM shop.customers", True),
        ("`id`, `x`, `name`", "SELECT *, name:a.b x FROM shop.customers", False),
        ("`id`, `x`", "SELECT *, name:a.b x FROM shop.customers", False),
        ("`id`, `name`, `x`", "SELECT *, id !< 2 FROM shop.customers", False),
        ("`id`, `name`, `x`", "SELECT *, name:a.c x FROM shop.customers", False),
    ],
)
def test_columns_selected_by_name_are_the_query_where_they_are_all_in_its_order(
    names: str, query: str, same: bool
) -> None:
    """A view takes its columns by their place: those in another order, or fewer, are a change."""
    now = write_stars_out(query, columns_of)
    assert now is not None
    earlier = f"SELECT {names} FROM ({query.replace('a.c', 'a.b')})"
    assert is_qualified_form(earlier, now, columns_of) is same


def test_nothing_is_explained_without_a_star() -> None:
    """What an author wrote with every column named has no earlier text but its own."""
    earlier = (
        "SELECT `o`.`id` AS `id`, COALESCE(`o`.`total`, 1) AS `n` FROM `shop`.`orders` AS `o`"
    )
    now = "SELECT o.id, nvl(o.total, 1) AS n FROM shop.orders o"
    assert not is_qualified_form(earlier, now, columns_of)
    assert is_qualified_form(earlier, now.replace("o.id", "`o`.`id`"), columns_of)


WITH_STAR = ("SELECT `t`.`id` AS `id`, `t`.`name` AS `name` FROM `shop`.`customers` AS `t` UNION ",
             "SELECT `t`.`id`, `t`.`name` FROM shop.customers t UNION ")  # fmt: skip
"""The text of before and that of now for a query with a ``*``."""

ROWS = sorted({*SPELLINGS, *AS_CASTS, "array_size", "timestamp", "to_timestamp"})
OTHERS = SPELLINGS | {name: f"cast as {name}" for name in AS_CASTS} | {
    "array_size": "size", "timestamp": "cast as timestamp", "to_timestamp": "cast as timestamp",
}


def call(name: str, arguments: str) -> str:
    """A call of a function, or a cast."""
    if name.startswith("cast as "):
        return f"CAST({arguments} AS {name.removeprefix('cast as ').upper()})"
    return f"{name}({arguments})"


@pytest.mark.parametrize("name", ROWS)
def test_a_function_that_an_author_replaced_is_a_change(name: str) -> None:
    """Another name for a function is the library's only in a text of the library's, and beside a
    ``*`` that was written out; an author's own text, and the other way about, it is a change."""
    other = OTHERS[name]
    one, now = (f"SELECT {call(each, 'o.total')} AS n FROM shop.orders o" for each in (name, other))
    written = call(other, "`").upper().replace("`", "`o`.`total`")
    was = f"SELECT {written} AS `n` FROM `shop`.`orders` AS `o`"
    same = name in SPELLINGS or name in AS_CASTS
    assert is_qualified_form(WITH_STAR[0] + was, WITH_STAR[1] + one, columns_of) is same
    assert not is_qualified_form(WITH_STAR[1] + one, WITH_STAR[0] + was, columns_of)
    for left, right in [(was, one), (one, now), (now, one), (one, was)]:
        assert not is_qualified_form(left, right, columns_of)
        assert not is_qualified_form(WITH_STAR[1] + left, WITH_STAR[1] + right, columns_of)
    quoted = one.replace("o.total", "`o`.`total`").replace("AS n", "AS `n`")
    assert not is_qualified_form(quoted, now.replace("SELECT ", "SELECT `o`.`id`, "), columns_of)


VALUES = (
    "NULL", "1", "-2.5D", "'abc'", "'2020-01-02'", "array(1, NULL, 2)", "CAST(NULL AS array<int>)",
    "map(1, 2)", "DATE '2020-01-02'", "timestamp_ntz '2020-01-02 03:04:05'", "X'6162'", "true",
)
ARGUMENTS = {
    "approx_percentile": ("1, 0.5", "NULL, 0.5"), "curdate": ("",), "pow": ("2, 3", "'x', 1"),
    "date_diff": ("DATE '2020-01-02', '2020-01-01'", "DAY, DATE '2020-01-02', now()", "'x', 'y'"),
    "ifnull": ("NULL, 1", "1, 'a'"), "nvl": ("NULL, 1", "1, 'a'"), "random": ("7", "NULL"),
    "reduce": ("array(1, 2), 0, (a, x) -> a + x",),
    "substr": ("'abc', 0, 2", "X'6162', -1", "1, 1"),
    "to_unix_timestamp": ("'2020-01-02', 'yyyy-MM-dd'", "'x'", "DATE '2020-01-02'"),
}
MODES = (
    {"spark.sql.ansi.enabled": "true"}, {"spark.sql.ansi.enabled": "false"},
    {"spark.sql.ansi.enabled": "false", "spark.sql.timestampType": "TIMESTAMP_NTZ"},
)


@pytest.mark.spark
@pytest.mark.parametrize("mode", MODES, ids=str)
def test_what_counts_as_one_function_is_one_to_spark(
    spark: SparkSession, mode: dict[str, str]
) -> None:
    """Both names give one value of one type, or none at all, with ANSI and without."""
    from pyspark.errors import PySparkException

    def value(text: str) -> object:
        try:
            found = spark.sql(f"SELECT {text} AS v")
            return found.schema, repr(found.collect()[0][0])
        except PySparkException:
            return None

    before = {key: spark.conf.get(key) for key in mode}
    for key, said in mode.items():
        spark.conf.set(key, said)
    try:
        differ = [
            (name, arguments) for name in [*SPELLINGS, *AS_CASTS]
            for arguments in ARGUMENTS.get(name, VALUES)
            if value(call(name, arguments)) != value(call(OTHERS[name], arguments))
        ]
    finally:
        for key, said in before.items():
            spark.conf.set(key, str(said))
    assert differ == []


JOINED = {("star", "a"): ["x", "k"], ("star", "b"): ["y", "k"], ("star", "c"): ["z", "k"],
          ("star", "d"): ["w"]}  # fmt: skip

MERGED = [
    # what is merged is first, also behind the name of a relation and in a semi join
    ("SELECT a.* FROM star.a JOIN star.b USING (k)",
     "SELECT `a`.`k`, `a`.`x` FROM star.a JOIN star.b USING (k)"),
    ("SELECT b.*, a.* FROM star.a RIGHT JOIN star.b USING (k)",
     "SELECT `b`.`k`, `b`.`y`, `a`.`k`, `a`.`x` FROM star.a RIGHT JOIN star.b USING (k)"),
    ("SELECT b.*, a.* FROM star.a FULL JOIN star.b USING (k)",
     "SELECT `b`.`k`, `b`.`y`, `a`.`k`, `a`.`x` FROM star.a FULL JOIN star.b USING (k)"),
    ("SELECT a.* FROM star.a NATURAL JOIN star.b",
     "SELECT `a`.`k`, `a`.`x` FROM star.a NATURAL JOIN star.b"),
    ("SELECT * FROM star.a LEFT SEMI JOIN star.b USING (k)",
     "SELECT `a`.`k`, `a`.`x` FROM star.a LEFT SEMI JOIN star.b USING (k)"),
    ("SELECT * FROM star.a LEFT ANTI JOIN star.b USING (k)",
     "SELECT `a`.`k`, `a`.`x` FROM star.a LEFT ANTI JOIN star.b USING (k)"),
    ("SELECT a.* FROM star.a LEFT ANTI JOIN star.b USING (k)",
     "SELECT `a`.`k`, `a`.`x` FROM star.a LEFT ANTI JOIN star.b USING (k)"),
    ("SELECT * FROM star.a JOIN star.b USING (k) JOIN star.c USING (k)",
     "SELECT `k`, `a`.`x`, `b`.`y`, `c`.`z` FROM star.a JOIN star.b USING (k) "
     "JOIN star.c USING (k)"),
    ("SELECT * FROM star.a LEFT SEMI JOIN star.c USING (k) NATURAL JOIN star.d", None),
    ("SELECT c.*, a.x FROM star.a JOIN star.b USING (k) JOIN star.c ON a.x = c.z",
     "SELECT `c`.`z`, `c`.`k`, a.x FROM star.a JOIN star.b USING (k) "
     "JOIN star.c ON a.x = c.z"),
    # which of two is merged, or in which order
    ("SELECT a.* FROM star.a JOIN star.b USING (k) JOIN star.c USING (k)", None),
    ("SELECT c.* FROM star.c JOIN star.a ON x = z JOIN star.b USING (k)", None),
    ("SELECT a.* FROM star.c, star.a JOIN star.b USING (k)", None),
    ("SELECT * FROM star.d, star.a JOIN star.b USING (k)", None),
    ("SELECT * FROM (SELECT a.k AS key, b.* FROM star.a JOIN star.b ON a.x = b.y "
     "JOIN star.c USING (k))", None),
    ("SELECT x, y FROM (SELECT * FROM star.a JOIN star.b ON a.x = b.y JOIN star.c USING (k))",
     None),
    ("SELECT * FROM star.a NATURAL JOIN star.b NATURAL JOIN star.c", None),
    # one name twice
    ("SELECT 1 AS one FROM (SELECT t.* FROM (SELECT 1 AS k, 2 AS k) t)", None),
    ("SELECT 1 AS one FROM (SELECT * FROM (SELECT 1 AS k, 2 AS K))", None),
]  # fmt: skip


@pytest.mark.parametrize(("query", "expected"), MERGED)
def test_the_order_is_that_of_spark(query: str, expected: str | None) -> None:
    """What USING and NATURAL merge comes first; a ``*`` whose order is not certain stays."""
    found = write_stars_out(query, lambda schema, name: JOINED.get((schema, name)))
    assert found == expected


@pytest.fixture
def tables(spark: SparkSession) -> Iterator[None]:
    """The tables of the queries."""
    kinds = {"id": "INT", "total": "INT", "customer": "INT", "at": "TIMESTAMP"}
    schemas = {schema for schema, _ in TABLES | JOINED}
    for schema in schemas:
        spark.sql(f"CREATE SCHEMA {schema}")
    for (schema, name), names in (TABLES | JOINED).items():
        listed = ", ".join(f"{each} {kinds.get(each, 'STRING')}" for each in names)
        spark.sql(f"CREATE TABLE {schema}.{name} ({listed}) USING parquet")
    yield
    for schema in schemas:
        spark.sql(f"DROP SCHEMA {schema} CASCADE")


@pytest.mark.spark
@pytest.mark.usefixtures("tables")
def test_spark_finds_the_same_columns_in_both_texts(spark: SparkSession) -> None:
    """Whatever is written out has the columns of its source, in their order."""
    from pyspark.errors import AnalysisException

    def selected(text: str) -> list[str] | str | None:
        try:
            return spark.sql(text).columns
        except AnalysisException as error:
            return error.getCondition()

    pairs = [(case["query"], case["written"]) for case in GOLDEN["cases"]]
    pairs += [(query, expected) for query, expected in MERGED if expected is not None]
    found = [(selected(query), selected(text), text) for query, text in pairs]
    assert [each for each in found if each[0] != each[1]] == []
    assert sum(isinstance(each[0], list) for each in found) > len(found) * 0.9
