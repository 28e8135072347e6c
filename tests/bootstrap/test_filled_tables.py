"""A table that is split, on real Spark: the new one is filled from the old one's rows, once."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import Row

from catalog_migrate.errors import MigrationBlocked, RowNotConverted

pytestmark = pytest.mark.spark

WHOLE = (
    "CREATE TABLE {s}.customers (id BIGINT NOT NULL, name STRING, street STRING, city STRING);"
)
SPLIT = "CREATE TABLE {s}.customers (id BIGINT NOT NULL, name STRING) DROPPED (street, city);"
ADDRESSES = (
    "CREATE TABLE {s}.addresses (customer_id BIGINT NOT NULL, street STRING, city STRING)"
    " FILLED FROM (SELECT id, street, city FROM {s}.customers);"
)


def release(shop: Any, name: str, *texts: str) -> Any:
    """A release of these texts alone."""
    keys = ("orders", "tags", "big", "doubled")
    return shop.release(name, **dict(zip(keys, (*texts, "", "", ""), strict=False)))


def test_a_table_is_split(shop: Any) -> None:
    """The rows of the new table are the old one's, although its columns go in the same migration.

    The old table is sealed for the last read and open afterwards. What was filled is never filled
    again, and a fresh installation has nothing to fill it from.
    """
    shop.start(release(shop, "1", WHOLE))
    shop.append("customers", [(1, "a", "s1", "c1"), (2, "b", None, None)])
    shard = shop.shard("customers")

    def late(progress: Any) -> None:
        if progress.phase == "fill":  # a writer between the first read and the seal
            shop.spark.sql(f"INSERT INTO delta.`{shard}` VALUES (7, 'late', 's7', 'c7')")

    report = shop.start(release(shop, "2", SPLIT, ADDRESSES), on_progress=late)
    assert report.outcome == "migrated"
    filled = next(c for c in report.plan.changes if c.name == f"{shop.schema}.addresses")
    assert (filled.action, filled.contents, filled.rows) == ("create", "fill", 2)
    assert [step.describe() for step in report.plan.steps[:4]] == [
        f"fill table {shop.schema}.addresses", f"seal table {shop.schema}.customers",
        f"evolve table {shop.schema}.customers", f"unseal table {shop.schema}.customers",
    ]
    assert shop.rows("addresses") == [
        Row(customer_id=1, street="s1", city="c1"), Row(customer_id=2, street=None, city=None),
        Row(customer_id=7, street="s7", city="c7"),
    ]
    assert shop.rows("customers") == [
        Row(id=1, name="a"), Row(id=2, name="b"), Row(id=7, name="late")
    ]
    shop.append("customers", [(3, "c")])
    shop.append("addresses", [(3, "s3", "c3")])
    assert shop.start(release(shop, "2", SPLIT, ADDRESSES)).outcome == "unchanged"
    assert len(shop.rows("addresses")) == 4
    renamed = SPLIT.replace("name STRING", "label STRING RENAMED FROM name")
    shop.start(release(shop, "3", renamed, ADDRESSES))
    assert len(shop.rows("addresses")) == 4


FIRST = (
    "CREATE FUNCTION {s}.twice (x BIGINT) RETURNS BIGINT RETURN x * 2;"
    "CREATE TABLE {s}.orders (id BIGINT NOT NULL, customer BIGINT, price DECIMAL(10,2));"
    "CREATE TABLE {s}.customers (id BIGINT NOT NULL, name STRING);"
    "CREATE VIEW {s}.named (id BIGINT, label STRING) AS"
    " SELECT c.id, upper(c.name) AS label FROM {s}.customers c"
    " WHERE c.name IS NOT NULL -- all with a name\n;"
)
TOTALS = (
    "CREATE TABLE {s}.totals (id BIGINT NOT NULL, label VARCHAR(9), double_id INT, total DOUBLE,"
    " even BOOLEAN GENERATED ALWAYS AS (id % 2 = 0), CONSTRAINT small CHECK (total < 100))"
    " PARTITIONED BY (label) FILLED FROM (\n"
    "WITH sums AS (SELECT customer, sum(price) AS total FROM {s}.orders GROUP BY customer)\n"
    "SELECT named.id, label, {s}.twice(named.id), coalesce(total, 0)\n"
    "FROM {s}.named LEFT JOIN sums ON customer = named.id -- by a view, a function, a join\n);"
)


def test_what_a_query_reads_and_what_stops_it(shop: Any) -> None:
    """Views and functions of the release in force count, whatever names the session has by now.

    What does not bind is found before anything is done; a row that does not fit leaves all as it
    was, and no value of it is in the error. A rollback drops the table as any other.
    """
    shop.start(release(shop, "1", FIRST))
    shop.spark.sql(f"INSERT INTO {shop.schema}.orders VALUES (1, 1, 10), (2, 1, 20), (3, 3, 5)")
    shop.append("customers", [(1, "ada"), (2, "bob"), (3, None)])
    wanted = release(shop, "2", FIRST, TOTALS)
    fresh_installation(shop, wanted)
    shop.forget()
    what_does_not_bind(shop)
    what_no_row_fits(shop)
    shop.forget()
    before = shop.start(release(shop, "1", FIRST)).serial
    report = shop.start(release(shop, "2", FIRST, TOTALS))
    assert [step.describe().replace(shop.schema, "s") for step in report.plan.steps[:5]] == [
        "fill table s.totals", "seal table s.customers", "seal table s.orders",
        "unseal table s.customers", "unseal table s.orders",
    ]
    assert shop.rows("totals") == [
        Row(id=1, label="ADA", double_id=2, total=30.0, even=False),
        Row(id=2, label="BOB", double_id=4, total=0.0, even=True),
    ]
    shop.append("customers", [(4, "dee")])
    going_back(shop, before)


def fresh_installation(shop: Any, wanted: Any) -> None:
    """There is nothing to read: the table starts empty."""
    from catalog_migrate.hook import bootstrap

    shop.forget()
    report = bootstrap(shop.spark, release=wanted, catalog=shop.home / "fresh")
    assert (report.outcome, shop.rows("totals")) == ("initialized", [])


def what_does_not_bind(shop: Any) -> None:
    """Each slip is named with the table, and no table is touched."""

    def tables() -> dict[str, tuple[int, int]]:
        return {path: facts for path, facts in shop.listing().items() if "/warehouse/" in path}

    before = tables()
    table = "CREATE TABLE {s}.copies (id INT NOT NULL, name STRING) FILLED FROM (%s);"
    for query, code, reason in (
        ("SELECT id, nme FROM {s}.customers", "CM0330", "UNRESOLVED_COLUMN"),
        ("SELECT name, id FROM {s}.customers", "CM0330", "in another order: write id, name"),
        ("SELECT label, id FROM {s}.named", "CM0330", "column id: STRING is not stored as INT"),
        ("SELECT * FROM {s}.orders", "CM0330", "the query yields 3 columns, the table has 2"),
        ("SELECT id, label FROM {s}.nowhere", "CM0334", "the release in force does not have"),
    ):
        with pytest.raises(MigrationBlocked) as caught:
            shop.start(release(shop, "2", FIRST, table % query))
        (entry,) = caught.value.plan.blocked
        assert (entry.name, entry.code) == (f"{shop.schema}.copies", code)
        assert reason in entry.reason
    assert tables() == before


def what_no_row_fits(shop: Any) -> None:
    """A CHECK, NOT NULL and a type: named, without the row, and the old release goes on."""
    table = "CREATE TABLE {s}.copies (id INT NOT NULL, name STRING NOT NULL %s) FILLED FROM (%s);"
    for check, query, reason in (
        (", CONSTRAINT few CHECK (id < 2)", "SELECT id, 'x' FROM {s}.customers",
         "gives a row that violates CHECK few (id < 2)"),
        ("", "SELECT id, name FROM {s}.customers", "gives NULL for column name, which is NOT NULL"),
        ("", "SELECT id + 3000000000, 'x' FROM {s}.customers", "fails [CAST_OVERFLOW"),
    ):
        with pytest.raises(RowNotConverted) as caught:
            shop.start(release(shop, "2", FIRST, table % (check, query)))
        assert caught.value.message.startswith(f"{shop.schema}.copies: FILLED FROM {reason}")
        assert "bob" not in str(caught.value)
        assert "3000000002" not in str(caught.value)
    status = shop.open().status()
    assert (status.release, status.pending) == ("1", 0)


FORMS = {
    "SELECT customers.id, {s}.customers.name FROM {s}.customers WHERE customers.id IN"
    " (SELECT customer FROM {s}.orders o WHERE o.customer = customers.id)":
        [(1, "ada"), (3, None)],
    "SELECT customers.* FROM `{s}`.`CUSTOMERS` WHERE id < 3": [(1, "ada"), (2, "bob")],
    "SELECT id, tag FROM {s}.customers LATERAL VIEW explode(split(name, 'd')) t AS tag":
        [(1, "a"), (1, "a"), (2, "bob")],
    "SELECT DISTINCT customer, CAST(max(price) OVER (PARTITION BY customer) AS STRING)"
    " FROM {s}.orders": [(1, "20.00"), (3, "5.00")],
    "WITH customers AS (SELECT id FROM {s}.orders) SELECT id, ';)' FROM customers -- )\n":
        [(1, ";)"), (2, ";)"), (3, ";)")],
    "TABLE {s}.named": [(1, "ADA"), (2, "BOB")],
    "VALUES (1, 'x')": [(1, "x")],
}  # fmt: skip


def test_queries_of_every_form(shop: Any) -> None:
    """What names a table or a column in full, in a subquery, behind a CTE of the same name: each
    table of one release has what Spark finds for its query."""
    shop.start(release(shop, "1", FIRST))
    shop.spark.sql(f"INSERT INTO {shop.schema}.orders VALUES (1, 1, 10), (2, 1, 20), (3, 3, 5)")
    shop.append("customers", [(1, "ada"), (2, "bob"), (3, None)])
    tables = "".join(
        f"CREATE TABLE {{s}}.f{number} (a BIGINT, b STRING) FILLED FROM ({query});"
        for number, query in enumerate(FORMS)
    )
    shop.start(release(shop, "2", FIRST, tables))
    found = [[tuple(row) for row in shop.rows(f"f{number}")] for number in range(len(FORMS))]
    assert found == list(FORMS.values())
    assert shop.open().status().pending == 0
    shop.append("customers", [(4, "open again")])


def going_back(shop: Any, serial: int) -> None:
    """The table is dropped with its rows, and a later start fills it again from what is there."""
    from catalog_migrate.hook import rollback

    with pytest.raises(MigrationBlocked):
        rollback(shop.spark, to=serial, catalog=shop.catalog)
    name = f"{shop.schema}.totals"
    rollback(shop.spark, to=serial, catalog=shop.catalog, approve=[name])
    assert not shop.spark.catalog.tableExists(name)
    shop.start(release(shop, "2b", FIRST, TOTALS))
    assert [row.label for row in shop.rows("totals")] == ["ADA", "BOB", "DEE"]
