"""Texts of users that a release breaks, and those that bind again; None: to be looked at."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from catalog_migrate.engine.port import QueryRequest, UserDefinition
from catalog_migrate.model.names import ItemName
from catalog_migrate.model.objects import Argument, Column
from catalog_migrate.users.column_changes import ShapeChange, compare_shape

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from catalog_migrate.engine.port import QueryAnalysis
    from catalog_migrate.users.repair import Repair

    Analyse = Callable[[Sequence[QueryRequest]], Sequence[QueryAnalysis]]

OLD = {
    "orders": (
        ("id", "BIGINT"), ("customer_id", "BIGINT"), ("city", "STRING"), ("zone", "STRING"),
        ("qty", "INT"), ("day", "STRING"), ("tags", "ARRAY<STRING>"), ("my total", "INT"),
        ("info", "STRUCT<a: INT, city: STRING>"),
    ),
    "customers": (("id", "BIGINT"), ("name", "STRING"), ("customer_id", "BIGINT")),
    "visits": (("id", "BIGINT"), ("customer_id", "BIGINT"), ("page", "STRING")),
}
RENAMES = {
    "orders": {
        "customer_id": "buyer_id", "city": "zone", "zone": "city", "my total": "sum of all",
        "info": "details",
    },
    "customers": {"name": "full_name"},
}
GONE = {"orders": ("qty",)}
RETYPED = {"orders": {"day": "DATE"}}
MOVED = {"visits": "views"}
"""Relations that are called otherwise."""


def new_shape(name: str) -> tuple[tuple[str, str], ...]:
    """The columns of a relation after the release."""
    renames, types = RENAMES.get(name, {}), RETYPED.get(name, {})
    return tuple(
        (renames.get(column, column), types.get(column, type_))
        for column, type_ in OLD[name] if column not in GONE.get(name, ())
    )


class Case(NamedTuple):
    """A text, and the one that binds again; ``columns`` are a view's own names of them. A
    ``function`` takes an argument ``customer`` and gives a value, or rows."""

    sql: str
    repaired: str | None
    columns: tuple[str, ...] = ()
    function: str = ""

    def __str__(self) -> str:
        return f"{self.function or 'view'}: {self.sql}"


CASES: tuple[Case, ...] = (
    Case(
        "SELECT id, customer_id FROM shop.orders",
        "SELECT id, buyer_id AS customer_id FROM shop.orders"),
    Case("SELECT customer_id AS c FROM shop.orders", "SELECT buyer_id AS c FROM shop.orders"),
    Case(
        "select O.Customer_ID from shop.orders o", "select O.buyer_id AS Customer_ID from "
        "shop.orders o"),
    Case("SELECT `customer_id`, `o`.`my total` FROM shop.orders o",
         "SELECT `buyer_id` AS `customer_id`, `o`.`sum of all` AS `my total` FROM shop.orders o"),
    Case("SELECT shop.orders.customer_id, orders.id FROM shop.orders",
         "SELECT shop.orders.buyer_id AS customer_id, orders.id FROM shop.orders"),
    Case("SELECT id FROM shop.orders -- customer_id\nWHERE customer_id = 1 AND 'customer_id' <> ''",
         "SELECT id FROM shop.orders -- customer_id\nWHERE buyer_id = 1 AND 'customer_id' <> ''"),
    Case("SELECT city FROM shop.orders WHERE customer_id > 0",
         "SELECT zone AS city FROM shop.orders WHERE buyer_id > 0"),
    Case(
        "SELECT city, zone, concat(city, '-', zone) AS both FROM shop.orders ORDER BY zone, "
        "customer_id",
         "SELECT zone AS city, city AS zone, concat(zone, '-', city) AS both FROM "
         "shop.orders ORDER BY zone, buyer_id"),
    Case("SELECT o.id, c.name FROM shop.orders o JOIN shop.customers c ON o.customer_id = c.id",
         "SELECT o.id, c.full_name AS name FROM shop.orders o JOIN shop.customers c ON "
         "o.buyer_id = c.id"),
    Case("SELECT o.customer_id, c.customer_id AS other FROM shop.orders o, shop.customers c",
         "SELECT o.buyer_id AS customer_id, c.customer_id AS other FROM shop.orders o, "
         "shop.customers c"),
    Case(
        "SELECT a.id, b.customer_id FROM shop.orders a JOIN shop.orders b ON a.customer_id = "
        "b.customer_id",
         "SELECT a.id, b.buyer_id AS customer_id FROM shop.orders a JOIN shop.orders b ON "
         "a.buyer_id = b.buyer_id"),
    Case("SELECT id, name FROM shop.orders JOIN shop.customers USING (id) WHERE name <> ''",
         "SELECT id, full_name AS name FROM shop.orders JOIN shop.customers USING (id) WHERE "
         "full_name <> ''"),
    Case(
        "SELECT customer_id, count(*) AS n FROM shop.orders GROUP BY customer_id HAVING "
        "customer_id > 1 ORDER BY customer_id",
         "SELECT buyer_id AS customer_id, count(*) AS n FROM shop.orders GROUP BY buyer_id "
         "HAVING buyer_id > 1 ORDER BY buyer_id"),
    Case("SELECT DISTINCT customer_id FROM shop.orders ORDER BY customer_id",
         "SELECT DISTINCT buyer_id AS customer_id FROM shop.orders ORDER BY customer_id"),
    Case(
        "SELECT customer_id, row_number() OVER (PARTITION BY customer_id ORDER BY id) AS r "
        "FROM shop.orders",
         "SELECT buyer_id AS customer_id, row_number() OVER (PARTITION BY buyer_id ORDER BY "
         "id) AS r FROM shop.orders"),
    Case("SELECT id, sum(id) OVER w AS s FROM shop.orders WINDOW w AS (PARTITION BY customer_id)",
         "SELECT id, sum(id) OVER w AS s FROM shop.orders WINDOW w AS (PARTITION BY buyer_id)"),
    Case(
        "WITH q AS (SELECT customer_id, id FROM shop.orders) SELECT q.customer_id, id FROM q "
        "WHERE customer_id > 1",
         "WITH q AS (SELECT buyer_id AS customer_id, id FROM shop.orders) SELECT "
         "q.customer_id, id FROM q WHERE customer_id > 1"),
    Case("WITH q AS (SELECT * FROM shop.orders) SELECT q.customer_id, id FROM q",
         "WITH q AS (SELECT * FROM shop.orders) SELECT q.buyer_id AS customer_id, id FROM q"),
    Case("SELECT * FROM (SELECT id, customer_id FROM shop.orders) q",
         "SELECT * FROM (SELECT id, buyer_id AS customer_id FROM shop.orders) q"),
    Case("SELECT id FROM shop.customers WHERE id IN (SELECT customer_id FROM shop.orders)",
         "SELECT id FROM shop.customers WHERE id IN (SELECT buyer_id FROM shop.orders)"),
    Case(
        "SELECT c.id FROM shop.customers c WHERE EXISTS (SELECT 1 FROM shop.orders WHERE "
        "name = city)",
         "SELECT c.id FROM shop.customers c WHERE EXISTS (SELECT 1 FROM shop.orders WHERE "
         "full_name = zone)"),
    Case(
        "SELECT id, (SELECT max(c.name) FROM shop.customers c WHERE c.id = o.customer_id) AS "
        "m FROM shop.orders o",
         "SELECT id, (SELECT max(c.full_name) FROM shop.customers c WHERE c.id = o.buyer_id) "
         "AS m FROM shop.orders o"),
    Case(
        "SELECT transform(tags, city -> concat(city, zone)) AS t FROM shop.orders WHERE "
        "customer_id > 1",
         None),
    Case("SELECT transform(tags, x -> concat(x, customer_id)) AS t FROM shop.orders",
         "SELECT transform(tags, x -> concat(x, buyer_id)) AS t FROM shop.orders"),
    Case("SELECT id AS customer_id FROM shop.orders WHERE customer_id = 2",
         "SELECT id AS customer_id FROM shop.orders WHERE buyer_id = 2"),
    Case("SELECT customer_id + 1 AS customer_id FROM shop.orders ORDER BY customer_id",
         "SELECT buyer_id + 1 AS customer_id FROM shop.orders ORDER BY customer_id"),
    Case("SELECT info.city, o.info.a AS a FROM shop.orders o",
         "SELECT details.city, o.details.a AS a FROM shop.orders o"),
    Case("SELECT customer_id FROM shop.orders UNION ALL SELECT customer_id FROM shop.customers",
         "SELECT buyer_id AS customer_id FROM shop.orders UNION ALL SELECT customer_id FROM "
         "shop.customers"),
    Case("SELECT customer_id FROM shop.customers EXCEPT SELECT customer_id FROM shop.orders",
         "SELECT customer_id FROM shop.customers EXCEPT SELECT buyer_id AS customer_id FROM "
         "shop.orders"),
    Case(
        "SELECT CASE WHEN customer_id = 1 THEN name ELSE 'x' END AS n, customer_id FROM "
        "shop.orders o JOIN (SELECT name, id AS i FROM shop.customers) c ON i = customer_id",
         "SELECT CASE WHEN buyer_id = 1 THEN name ELSE 'x' END AS n, buyer_id AS customer_id "
         "FROM shop.orders o JOIN (SELECT full_name AS name, id AS i FROM shop.customers) c "
         "ON i = buyer_id"),
    Case("SELECT id, t.x FROM shop.orders LATERAL VIEW explode(array(customer_id, id)) t AS x",
         "SELECT id, t.x FROM shop.orders LATERAL VIEW explode(array(buyer_id, id)) t AS x"),
    Case(
        "SELECT * FROM (SELECT customer_id, id, page FROM shop.visits) PIVOT (max(id) FOR "
        "page IN ('a' AS a))",
         "SELECT * FROM (SELECT customer_id, id, page FROM shop.views) PIVOT (max(id) FOR "
         "page IN ('a' AS a))"),
    Case("FROM shop.orders |> WHERE customer_id > 1 |> SELECT id, customer_id",
         "FROM shop.orders |> WHERE buyer_id > 1 |> SELECT id, buyer_id AS customer_id"),
    Case("SELECT id FROM shop.visits WHERE visits.page = 'x' AND shop.visits.id > 1",
         "SELECT id FROM shop.views AS visits WHERE visits.page = 'x' AND visits.id > 1"),
    Case("SELECT v.id FROM shop.visits v JOIN shop.orders ON v.customer_id = orders.customer_id",
         "SELECT v.id FROM shop.views v JOIN shop.orders ON v.customer_id = orders.buyer_id"),
    Case("TABLE shop.visits", "TABLE shop.views"),
    # a view with names of its own
    Case(
        "SELECT customer_id, max(qty) FROM shop.orders GROUP BY customer_id", None,
        ("who", "most")),
    Case("SELECT customer_id, max(id) FROM shop.orders GROUP BY 1",
         "SELECT buyer_id AS who, max(id) AS most FROM shop.orders GROUP BY 1", ("who", "most")),
    # functions
    Case("(SELECT max(id) FROM shop.orders WHERE customer_id = customer)",
         "(SELECT max(id) FROM shop.orders WHERE buyer_id = customer)", (), "scalar"),
    Case("SELECT id, customer_id FROM shop.orders WHERE customer_id = customer",
         "SELECT id, buyer_id FROM shop.orders WHERE buyer_id = customer", (), "table"),
    # what only needs to be stored again
    Case("SELECT * FROM shop.customers", "SELECT * FROM shop.customers"),
    Case("SELECT id, day FROM shop.orders", "SELECT id, day FROM shop.orders"),
    Case(
        "SELECT id FROM shop.orders WHERE day > '2024'",
        "SELECT id FROM shop.orders WHERE day > '2024'"),
    # nothing is sure
    Case("SELECT id, qty FROM shop.orders", None),
    Case("SELECT o.id FROM shop.orders o JOIN shop.customers c USING (customer_id)", None),
    Case("SELECT max(id) AS m FROM shop.orders NATURAL JOIN shop.customers", None),
    Case("SELECT nothing FROM shop.orders", None),
    Case("SELECT * FROM shop.orders WHERE customer_id > 1", None),
    Case(
        "SELECT count(DISTINCT *) AS n, customer_id FROM shop.orders WHERE qty > 1 GROUP BY "
        "customer_id", None),
)  # fmt: skip


def columns_of(shape: Sequence[tuple[str, str]]) -> tuple[Column, ...]:
    return tuple(Column(name, type_) for name, type_ in shape)


def changes() -> dict[tuple[str, str], ShapeChange]:
    """What the release does to the relations."""
    return {
        ("shop", MOVED.get(name, name)): compare_shape(
            ItemName("shop", name), columns_of(shape), columns_of(new_shape(name)),
            RENAMES.get(name),
        )
        for name, shape in OLD.items()
    }


def requests_of(case: Case) -> tuple[QueryRequest, QueryRequest]:
    """The requests of a case's text before and after the release."""
    name = ItemName("team", "f" if case.function else "v")
    arguments = (Argument("customer", "BIGINT"),) if case.function else ()
    before = {ItemName("shop", each): columns_of(shape) for each, shape in OLD.items()}
    after: Mapping[ItemName, Sequence[Column] | None] = {
        ItemName("shop", each): None for each in MOVED
    } | {ItemName("shop", MOVED.get(each, each)): columns_of(new_shape(each)) for each in OLD}
    old, new = (
        QueryRequest(
            name, case.sql, parents, namespace="shop", arguments=arguments,
            scalar=case.function == "scalar",
        )
        for parents in (before, after)
    )
    return old, new


def repair(case: Case, analyse: Analyse) -> Repair | None:
    """What is proposed for a case."""
    from catalog_migrate.users.repair import propose_repair

    old, new = requests_of(case)
    (found,) = analyse([old])
    outputs = [column.name for column in found.columns or ()]
    names = case.columns or outputs
    definition = UserDefinition(
        old.name, "function" if case.function else "view", case.sql,
        [Column(name, c.type) for name, c in zip(names, found.columns or (), strict=True)],
        tuple(outputs), "shop", arguments=old.arguments,
    )
    return propose_repair(definition, old, new, changes(), analyse)
