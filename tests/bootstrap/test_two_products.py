"""Two products in one session whose names end with it: side by side, in any order, and at odds."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import Row

from catalog_migrate.administration.relocation import move_own_views
from catalog_migrate.api import Catalog
from catalog_migrate.catalog.opening import open_log
from catalog_migrate.errors import MigrationBlocked, NotReconciled
from catalog_migrate.hook import bootstrap
from catalog_migrate.migrations.actions import own_views_place
from catalog_migrate.planner.plan_validation import NAME_HELD

pytestmark = pytest.mark.spark

SHOP = (
    "CREATE TABLE trade.orders (id BIGINT, qty INT);"
    "CREATE VIEW trade.big (id BIGINT) AS SELECT id FROM trade.orders WHERE qty > 5;"
    "CREATE FUNCTION trade.twice (x BIGINT) RETURNS BIGINT RETURN x * 2;"
    "CREATE TABLE till.receipts (id BIGINT);"
)
STOCK = (
    "CREATE TABLE trade.parts (id BIGINT);"
    "CREATE VIEW trade.few (id BIGINT) AS SELECT id FROM trade.parts WHERE id < 3;"
    "CREATE TABLE store.shelves (id BIGINT);"
)


class Product:
    """One installation: its catalog and its releases."""

    def __init__(self, spark: Any, home: Path) -> None:
        self.spark = spark
        self.home = home
        self.catalog = home / "catalog"

    def start(self, sql: str, name: str = "1", **options: Any) -> Any:
        """One start with a release of these statements."""
        release = self.home / f"release-{name}"
        release.mkdir(parents=True, exist_ok=True)
        (release / "all.sql").write_text(sql)
        (release / "release.toml").write_text(f'name = "{name}"\n')
        return bootstrap(self.spark, release=release, catalog=self.catalog, **options)

    @property
    def views(self) -> str:
        """The schema of its own views, as it is committed."""
        place = own_views_place(Catalog.open(self.catalog).state())
        assert place is not None
        return place

    def tables(self) -> set[str]:
        """Its tables, as its own views have them."""
        rows = self.spark.sql(f"SELECT name FROM {self.views}.objects WHERE kind = 'table'")
        return {row["name"] for row in rows.collect()}


def names_of(spark: Any) -> dict[str, list[str]]:
    """Everything in the session's catalog, by schema."""
    schemas = [row[0] for row in spark.sql("SHOW SCHEMAS").collect()]
    return {
        schema: sorted(
            row["tableName"] for row in spark.sql(f"SHOW TABLES IN {schema}").collect()
            if row["namespace"]
        )
        for schema in schemas if schema != "default"
    }


def forget(spark: Any) -> None:
    """Lose every name, as a new process does."""
    for schema in names_of(spark):
        spark.sql(f"DROP SCHEMA {schema} CASCADE")


@pytest.fixture
def products(spark: Any, tmp_path: Path) -> Iterator[tuple[Product, Product]]:
    """Two places without a catalog, in a session without a name."""
    forget(spark)
    yield Product(spark, tmp_path / "shop"), Product(spark, tmp_path / "stock")
    forget(spark)


def test_two_products_live_side_by_side(products: tuple[Product, Product]) -> None:
    """One story: both begin, start again in both orders, are upgraded, and go back."""
    shop, stock = products
    spark = shop.spark
    a_second_one_begins_beside_the_first(shop, stock)
    every_order_of_starts_has_all_names(shop, stock)
    a_collision_is_refused_before_anything(shop, stock)
    each_is_upgraded_and_goes_back_alone(shop, stock)
    assert spark.sql("SELECT trade.twice(id) AS x FROM trade.big").collect() == [Row(x=4)]


def a_second_one_begins_beside_the_first(shop: Product, stock: Product) -> None:
    """The first has the usual schema for its own views, the second another; both are whole."""
    assert shop.start(SHOP).outcome == "initialized"
    report = stock.start(STOCK)
    assert (report.outcome, report.outstanding) == ("initialized", ())
    assert shop.views == "catalog_migrate"
    assert stock.views.startswith("catalog_migrate_")
    assert shop.tables() == {"orders", "receipts"}
    assert stock.tables() == {"parts", "shelves"}
    shop.spark.sql("INSERT INTO trade.orders VALUES (1, 1), (2, 9)")
    shop.spark.sql("INSERT INTO trade.parts VALUES (1), (7)")
    assert names_of(shop.spark)["trade"] == ["big", "few", "orders", "parts"]


def every_order_of_starts_has_all_names(shop: Product, stock: Product) -> None:
    """In a session without names it does not matter who comes first: the places are durable."""
    before = names_of(shop.spark)
    places = shop.views, stock.views
    for order in ((shop, stock), (stock, shop)):
        forget(shop.spark)
        for product in order:
            report = product.start(SHOP if product is shop else STOCK)
            assert (report.outcome, report.outstanding) == ("unchanged", ())
        assert names_of(shop.spark) == before
        assert (shop.views, stock.views) == places
        assert stock.tables() == {"parts", "shelves"}


def a_collision_is_refused_before_anything(shop: Product, stock: Product) -> None:
    """A third product, and an upgrade, that want a name of another: the message says which, whose
    it is, where, and what to do; there is not one file more, and not one serial."""
    third = Product(shop.spark, shop.home.parent / "third")
    before = names_of(shop.spark)
    lineage = Catalog.open(shop.catalog).state().lineage
    with pytest.raises(MigrationBlocked) as caught:
        third.start(
            "CREATE TABLE fresh.t (a INT); CREATE TABLE trade.ORDERS (a INT);"
            "CREATE VIEW trade.big (a INT) AS SELECT a FROM fresh.t;"
            "CREATE FUNCTION trade.twice (x INT) RETURNS INT RETURN x;"
        )
    blocked = {entry.name: entry for entry in caught.value.plan.blocked}
    assert blocked.keys() == {"trade.orders", "trade.big", "trade.twice"}
    assert {entry.code for entry in blocked.values()} == {NAME_HELD}
    location = Catalog.open(shop.catalog).show("trade.orders")["location"]
    assert blocked["trade.orders"].reason == (
        f"a table of another installation (catalog id {lineage}, at {shop.catalog}): {location}"
    )
    assert blocked["trade.big"].reason == f"a view of another installation (catalog id {lineage})"
    assert "--adopt" not in blocked["trade.orders"].remedy
    assert "another name or schema" in blocked["trade.orders"].remedy
    assert not third.catalog.exists()
    serial = Catalog.open(stock.catalog).state().serial
    with pytest.raises(MigrationBlocked):
        stock.start(STOCK + "CREATE TABLE trade.orders (id BIGINT);", "2")
    state = Catalog.open(stock.catalog).state()
    assert (state.serial, state.release_in_force().name) == (serial, "1")
    assert names_of(shop.spark) == before
    assert third.start("CREATE TABLE fresh.t (a INT);").outcome == "initialized"
    assert third.views not in (shop.views, stock.views)
    shop.spark.sql("DROP SCHEMA fresh CASCADE")


def each_is_upgraded_and_goes_back_alone(shop: Product, stock: Product) -> None:
    """An upgrade that takes names away, and its rollback, leave the other's names as they are."""
    from catalog_migrate.hook import rollback

    before = names_of(shop.spark)
    assert stock.start("CREATE TABLE store.shelves (id BIGINT, more INT);", "2", approve=[
        "trade.parts",
    ]).outcome == "migrated"
    assert names_of(shop.spark)["trade"] == ["big", "orders"]
    assert shop.start(
        SHOP.replace("qty INT", "qty BIGINT"), "2"
    ).outcome == "migrated"
    assert names_of(shop.spark)["store"] == ["shelves"]
    assert rollback(
        stock.spark, catalog=stock.catalog, approve=["store.shelves.more"]
    ).outcome == "rolled_back"
    assert rollback(shop.spark, catalog=shop.catalog).outcome == "rolled_back"
    assert names_of(shop.spark) == before
    assert shop.spark.sql("SELECT * FROM trade.few").collect() == [Row(id=1)]


def test_what_two_committed_before_they_met(
    products: tuple[Product, Product],
) -> None:
    """Two installations made in sessions of their own have their own views in one place, and one
    name in common."""
    shop, stock = products
    shop.start(SHOP)
    forget(shop.spark)
    stock.start(STOCK)
    forget(shop.spark)
    assert shop.views == stock.views == "catalog_migrate"
    the_later_one_starts_without_its_own_views(shop, stock)
    and_moves_them_when_it_is_told_to(shop, stock)
    a_name_in_common_is_not_taken_from_the_other(shop, stock)


def the_later_one_starts_without_its_own_views(shop: Product, stock: Product) -> None:
    """Whoever is first has the schema; the other has every name of its release, and says what is
    missing and how it moves. That is so at each start, and for an upgrade too."""
    assert stock.start(STOCK).outstanding == ()
    lineage, other = (Catalog.open(each.catalog).state().lineage for each in (shop, stock))
    said = (
        f"schema catalog_migrate: another installation (catalog id {other}) has its own views in"
        " this schema, so those of this one are not there; catalog-migrate relocate --own-views"
        f" catalog_migrate_{lineage[:8]}, and start again: they move there for good",
    )
    for sql, name, outcome in (
        (SHOP, "1", "unchanged"), (SHOP + "CREATE TABLE till.x (a INT);", "2", "migrated"),
    ):
        report = shop.start(sql, name)
        assert (report.outcome, report.outstanding) == (outcome, said)
    assert shop.tables() == {"parts", "shelves"}, "which are the other's"
    assert names_of(shop.spark)["till"] == ["receipts", "x"]


def and_moves_them_when_it_is_told_to(shop: Product, stock: Product) -> None:
    """After `relocate --own-views` the next start has them there, in every order of starts."""
    lineage = Catalog.open(shop.catalog).state().lineage
    schema = f"catalog_migrate_{lineage[:8]}"
    move_own_views(open_log(shop.catalog), schema)
    sql = SHOP + "CREATE TABLE till.x (a INT);"
    assert shop.start(sql, "2").outstanding == ()
    assert shop.views == schema
    for order in ((shop, stock), (stock, shop)):
        forget(shop.spark)
        for product in order:
            report = product.start(*((sql, "2") if product is shop else (STOCK, "1")))
            assert (report.outcome, report.outstanding) == ("unchanged", ())
        assert (shop.tables(), stock.tables()) == (
            {"orders", "receipts", "x"}, {"parts", "shelves"},
        )


def a_name_in_common_is_not_taken_from_the_other(shop: Product, stock: Product) -> None:
    """What both have committed is the first one's in a session; the other's start names it."""
    forget(shop.spark)
    sql = STOCK + "CREATE TABLE till.receipts (other INT);"
    assert stock.start(sql, "2").outcome == "migrated"
    with pytest.raises(NotReconciled) as caught:
        shop.start(SHOP + "CREATE TABLE till.x (a INT);", "2")
    (failure,) = caught.value.failures
    assert failure.name == "till.receipts"
    assert f"at {stock.catalog}" in failure.reason
    assert shop.spark.table("till.receipts").columns == ["other"]
    assert shop.spark.table("till.x").columns == ["a"]
    with pytest.raises(MigrationBlocked) as blocked:  # and nothing more is committed meanwhile
        shop.start(SHOP + "CREATE TABLE till.y (a INT);", "3", approve=["till.x"])
    assert [entry.name for entry in blocked.value.plan.blocked] == ["till.receipts"]
    assert Catalog.open(shop.catalog).status().release == "2"
