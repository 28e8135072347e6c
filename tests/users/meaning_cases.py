"""Queries of users on two shapes of what they read, and what is to be said of each."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from catalog_migrate.engine.port import QueryRequest
from catalog_migrate.model.names import ItemName
from catalog_migrate.model.objects import Column
from catalog_migrate.users.column_changes import ShapeChange, compare_shape
from catalog_migrate.users.meaning import output_names

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from catalog_migrate.engine.port import QueryAnalysis

    Analyse = Callable[[Sequence[QueryRequest]], Sequence[QueryAnalysis]]

ORDERS = (
    ("id", "BIGINT"), ("customer_id", "BIGINT"), ("city", "STRING"), ("zone", "STRING"),
    ("qty", "INT"), ("price", "DECIMAL(10,2)"), ("day", "STRING"), ("tags", "ARRAY<STRING>"),
    ("info", "STRUCT<a: INT, b: STRING>"), ("code", "VARCHAR(5)"),
)
CUSTOMERS = (("id", "BIGINT"), ("name", "STRING"), ("city", "STRING"), ("ref", "INT"))
ARCHIVE = (("id", "BIGINT"), ("name", "STRING"), ("city", "STRING"), ("ref", "INT"))


def changed(columns, *, renamed=(), retyped=(), removed=(), added=(), order=()):
    """The columns after a change."""
    new = [
        (dict(renamed).get(name, name), dict(retyped).get(name, type_))
        for name, type_ in columns if name not in removed
    ]
    new += added
    return tuple(sorted(new, key=lambda each: order.index(each[0])) if order else new)


class Shapes(NamedTuple):
    """The new columns of relations by name, and their renames (old -> new)."""

    new: Mapping[str, tuple]
    renames: Mapping[str, Mapping[str, str]] = {}


OLD = {"orders": ORDERS, "customers": CUSTOMERS, "archive": ARCHIVE}
SHAPES: dict[str, Shapes] = {
    "added": Shapes({
        "orders": changed(ORDERS, added=[("name", "STRING"), ("ref", "INT")]),
        "customers": changed(
            CUSTOMERS, added=[("zone", "STRING"), ("qty", "INT"), ("hits", "INT")]
        ),
    }),
    "both": Shapes({
        "customers": changed(CUSTOMERS, added=[("zone", "STRING")]),
        "archive": changed(ARCHIVE, added=[("zone", "STRING")]),
    }),
    "renamed": Shapes(
        {"orders": changed(ORDERS, renamed=[("customer_id", "buyer_id")])},
        {"orders": {"customer_id": "buyer_id"}},
    ),
    "swapped": Shapes(
        {"orders": changed(ORDERS, renamed=[("city", "zone"), ("zone", "city")])},
        {"orders": {"city": "zone", "zone": "city"}},
    ),
    "passed": Shapes(
        {"orders": changed(ORDERS, renamed=[("city", "zone"), ("zone", "area")])},
        {"orders": {"city": "zone", "zone": "area"}},
    ),
    "replaced": Shapes(
        {"orders": changed(ORDERS, renamed=[("city", "town")], added=[("city", "STRING")])},
        {"orders": {"city": "town"}},
    ),
    "widened": Shapes({
        "orders": changed(ORDERS, retyped=[
            ("qty", "BIGINT"), ("price", "DECIMAL(14,4)"), ("code", "VARCHAR(9)"),
            ("info", "STRUCT<a: INT, b: STRING, c: DATE>"),
        ]),
    }),
    "retyped": Shapes({
        "orders": changed(ORDERS, retyped=[("day", "DATE"), ("qty", "STRING")]),
    }),
    "moved": Shapes({"archive": changed(ARCHIVE, order=["id", "city", "name", "ref"])}),
    "removed": Shapes({"customers": changed(CUSTOMERS, removed=["city"])}),
}


class Case(NamedTuple):
    """A query, the shapes that come, and what is said: by column, and of the rows.

    ``outputs`` are what a view stores; None takes columns by position.
    """

    shapes: str
    sql: str
    columns: Mapping[str, str] = {}
    rows: tuple[str, ...] = ()
    by_position: bool = False

    def __str__(self) -> str:
        return f"{self.shapes}: {self.sql}"


CASES: tuple[Case, ...] = (
    # added columns: what goes on
    Case(
        "added",
        "SELECT id, city FROM shop.orders",
    ),
    Case(
        "added",
        "SELECT * FROM shop.orders",
    ),
    Case(
        "added",
        "SELECT o.*, c.name AS buyer FROM shop.orders o JOIN shop.customers c ON o.id = c.id",
    ),
    Case(
        "added",
        "SELECT count(*) AS n FROM shop.orders",
    ),
    Case(
        "added",
        "SELECT DISTINCT city FROM (SELECT * FROM shop.orders) q",
    ),
    Case(
        "added",
        "SELECT city, sum(qty) AS s FROM shop.orders GROUP BY city HAVING sum(qty) > 1",
    ),
    Case(
        "added",
        "WITH c AS (SELECT * FROM shop.orders) SELECT a.id, b.city FROM c a JOIN c b ON a.id = "
        "b.customer_id",
    ),
    Case(
        "added",
        "SELECT id, row_number() OVER (PARTITION BY city ORDER BY id) AS r FROM shop.orders",
    ),
    Case(
        "added",
        "SELECT id FROM shop.orders o WHERE EXISTS (SELECT * FROM shop.customers c WHERE c.id = "
        "o.customer_id)",
    ),
    Case(
        "added",
        "SELECT id, t.tag FROM shop.orders LATERAL VIEW explode(tags) t AS tag",
    ),
    Case(
        "added",
        "SELECT id, transform(tags, x -> concat(x, city)) AS l FROM shop.orders",
    ),
    Case(
        "added",
        "SELECT city, zone, count(*) AS n FROM (SELECT * FROM shop.orders) GROUP BY ROLLUP "
        "(city, zone)",
    ),
    Case(
        "added",
        "SELECT id FROM shop.orders UNION SELECT id FROM shop.customers",
    ),
    Case(
        "added",
        "SELECT o.id, c.name FROM shop.orders o JOIN shop.customers c USING (city)",
    ),
    Case(
        "added",
        "SELECT * FROM shop.orders ORDER BY id LIMIT 3",
    ),
    Case(
        "added",
        "SELECT id, rand() AS r, uuid() AS u FROM shop.orders TABLESAMPLE (50 PERCENT)",
    ),
    Case(
        "added",
        "SELECT o.id, l.n FROM shop.orders o, LATERAL (SELECT max(name) AS n FROM "
        "shop.customers c WHERE c.id = o.id) l",
    ),
    Case(
        "added",
        "SELECT id, CASE WHEN city = 'a, b#1 AS c)' THEN '(' ELSE city END AS x FROM shop.orders",
    ),
    Case(
        "added",
        "SELECT id, 'a\n+- Filter (b#1 = 2)' AS x FROM shop.orders",
    ),
    # added columns: what means something else
    Case(
        "added",
        "SELECT id FROM shop.orders NATURAL JOIN shop.customers",
        rows=("the NATURAL JOIN now joins on zone, qty, name, ref too",),
    ),
    Case(
        "added",
        "SELECT id, (SELECT max(c.id) FROM shop.customers c WHERE c.ref = qty) AS m FROM "
        "shop.orders",
        columns={
            "m": "a condition: qty now means shop.customers.qty, it meant shop.orders.qty",
        },
    ),
    Case(
        "added",
        "SELECT id FROM shop.orders o WHERE EXISTS (SELECT 1 FROM shop.customers c WHERE c.id = "
        "o.id AND c.name = zone)",
        rows=("a condition: zone now means shop.customers.zone, it meant shop.orders.zone",),
    ),
    Case(
        "added",
        "SELECT id FROM shop.orders o WHERE zone IN (SELECT zone FROM shop.customers c)",
        rows=("zone now means shop.customers.zone, it meant shop.orders.zone",),
    ),
    Case(
        "added",
        "SELECT DISTINCT * FROM shop.orders",
        rows=("DISTINCT now compares name, ref too",),
    ),
    Case(
        "added",
        "SELECT id, city FROM (SELECT DISTINCT * FROM shop.customers)",
        rows=("DISTINCT now compares zone, qty, hits too",),
    ),
    Case(
        "added",
        "SELECT count(DISTINCT *) AS n FROM shop.orders",
        columns={
            "n": "it takes name, ref too",
        },
    ),
    Case(
        "added",
        "SELECT id, struct(*) AS s FROM shop.customers",
        columns={
            "s": "it takes zone, qty, hits too",
        },
    ),
    Case(
        "added",
        "SELECT id, to_json(struct(c.*)) AS s FROM shop.customers c",
        columns={
            "s": "it takes zone, qty, hits too",
        },
    ),
    Case(
        "added",
        "SELECT id, hash(*) AS h FROM shop.customers",
        columns={
            "h": "it takes zone, qty, hits too",
        },
    ),
    Case(
        "added",
        "SELECT *, count(*) AS n FROM shop.customers GROUP BY ALL",
        rows=("GROUP BY now looks at zone, qty, hits too",),
    ),
    Case(
        "added",
        "SELECT * FROM (SELECT city, ref, id FROM shop.customers) PIVOT (max(id) FOR ref IN (1, "
        "2))",
    ),
    Case(
        "added",
        "SELECT * FROM shop.customers PIVOT (max(id) FOR ref IN (1, 2))",
        rows=("GROUP BY now looks at zone, qty, hits too",),
    ),
    Case(
        "added",
        "SELECT qty + 1 AS hits, hits * 2 AS twice FROM shop.orders JOIN shop.archive USING (id)",
    ),
    Case(
        "added",
        "SELECT id + 1 AS hits, hits * 2 AS twice FROM shop.customers",
        columns={
            "twice": "shop.customers.hits is in the place of shop.customers.id",
        },
    ),
    Case(
        "added",
        "SELECT id % 2 AS hits, count(*) AS n FROM shop.archive GROUP BY hits",
    ),
    Case(
        "added",
        "SELECT max(id) AS hits, 1 AS n FROM shop.customers GROUP BY name HAVING hits > 1",
    ),
    Case(
        "added",
        "SELECT id FROM (SELECT *, row_number() OVER (ORDER BY id) AS r FROM shop.orders) WHERE "
        "r = 1",
    ),
    Case(
        "both",
        "SELECT * FROM shop.customers UNION ALL SELECT * FROM shop.archive",
    ),
    Case(
        "both",
        "SELECT * FROM shop.customers UNION SELECT * FROM shop.archive",
        rows=("DISTINCT now compares zone too",),
    ),
    Case(
        "both",
        "SELECT * FROM shop.customers EXCEPT SELECT * FROM shop.archive",
        rows=("EXCEPT now compares zone too",),
    ),
    Case(
        "both",
        "SELECT * FROM shop.customers INTERSECT SELECT * FROM shop.archive",
        rows=("INTERSECT now compares zone too",),
    ),
    Case(
        "both",
        "SELECT id FROM (TABLE shop.customers EXCEPT ALL TABLE shop.archive)",
        rows=("EXCEPT now compares zone too",),
    ),
    Case(
        "both",
        "FROM shop.customers |> SELECT id, name |> WHERE id > 1",
    ),
    Case(
        "both",
        "SELECT c.id FROM shop.customers c NATURAL LEFT JOIN shop.archive",
        rows=("the NATURAL JOIN now joins on zone too",),
    ),
    # renamed columns, and names that pass to another
    Case(
        "renamed",
        "SELECT id, city FROM shop.orders WHERE qty > 1",
    ),
    Case(
        "renamed",
        "SELECT o.id FROM shop.orders o NATURAL JOIN shop.customers c",
    ),
    Case(
        "swapped",
        "SELECT id FROM shop.orders",
    ),
    Case(
        "swapped",
        "SELECT city FROM shop.orders",
        columns={
            "city": "shop.orders.city is what was called zone before",
        },
    ),
    Case(
        "swapped",
        "SELECT * FROM shop.orders",
        columns={
            "city": "shop.orders.city is what was called zone before",
            "zone": "shop.orders.zone is what was called city before",
        },
    ),
    Case(
        "swapped",
        "SELECT id FROM shop.orders WHERE zone = 'x'",
        rows=("a condition: shop.orders.zone is what was called city before",),
    ),
    Case(
        "swapped",
        "SELECT city AS a, zone AS b, id FROM shop.orders ORDER BY 1",
        columns={
            "a": "shop.orders.city is what was called zone before",
            "b": "shop.orders.zone is what was called city before",
        },
        rows=("ORDER BY: shop.orders.city is what was called zone before",),
    ),
    Case(
        "swapped",
        "SELECT id, concat(city, zone) AS c FROM shop.orders",
        columns={
            "c": (
                "shop.orders.city is what was called zone before; shop.orders.zone is what was "
                "called city before"
            ),
        },
    ),
    Case(
        "passed",
        "SELECT zone FROM shop.orders",
        columns={
            "zone": "shop.orders.zone is what was called city before",
        },
    ),
    Case(
        "passed",
        "SELECT o.id FROM shop.orders o JOIN shop.customers c ON o.zone = c.city",
        rows=("the join: shop.orders.zone is what was called city before",),
    ),
    Case(
        "replaced",
        "SELECT city FROM shop.orders",
        columns={
            "city": "shop.orders.city is a new column under the name of an earlier one",
        },
    ),
    Case(
        "replaced",
        "SELECT upper(city) AS u FROM shop.orders",
        columns={
            "u": "shop.orders.city is a new column under the name of an earlier one",
        },
    ),
    # types
    Case(
        "widened",
        "SELECT id, qty, price, code, info FROM shop.orders",
    ),
    Case(
        "widened",
        "SELECT id, qty * 2 AS d, price + qty AS p FROM shop.orders WHERE qty > 5 AND price < 10.5",
    ),
    Case(
        "widened",
        "SELECT o.id FROM shop.orders o JOIN shop.customers c ON o.qty = c.ref",
    ),
    Case(
        "widened",
        "SELECT city, sum(qty) AS q, max(price) AS p FROM shop.orders GROUP BY city HAVING "
        "avg(qty) > 2",
    ),
    Case(
        "widened",
        "SELECT id, info.a, code FROM shop.orders WHERE info.b = code",
    ),
    Case(
        "widened",
        "SELECT id, coalesce(qty, 0) AS q, CASE WHEN qty IN (1, 2) THEN 'x' END AS c FROM "
        "shop.orders ORDER BY qty, price",
    ),
    Case(
        "widened",
        "SELECT DISTINCT qty, price FROM shop.orders",
    ),
    Case(
        "widened",
        "SELECT qty FROM shop.orders UNION ALL SELECT ref FROM shop.customers",
    ),
    Case(
        "widened",
        "SELECT id, hash(qty) AS h FROM shop.orders",
        columns={
            "h": "shop.orders.qty is BIGINT now, it was INT",
        },
    ),
    Case(
        "widened",
        "SELECT id, concat(price, '') AS t, concat(qty, '') AS q FROM shop.orders",
        columns={
            "t": "shop.orders.price is DECIMAL(14,4) now, it was DECIMAL(10,2)",
        },
    ),
    Case(
        "widened",
        "SELECT id, to_json(info) AS j, info IS NULL AS n FROM shop.orders",
        columns={
            "j": (
                "shop.orders.info is STRUCT<a: INT, b: STRING, c: DATE> now, it was STRUCT<a: "
                "INT, b: STRING>"
            ),
        },
    ),
    Case(
        "retyped",
        "SELECT id, day, qty AS n FROM shop.orders",
    ),
    Case(
        "retyped",
        "SELECT id FROM (SELECT id, day AS d FROM shop.orders) WHERE d IS NOT NULL",
    ),
    Case(
        "retyped",
        "SELECT id FROM shop.orders WHERE day = '2024-01-01'",
        rows=("a condition: shop.orders.day is DATE now, it was STRING",),
    ),
    Case(
        "retyped",
        "SELECT id FROM shop.orders ORDER BY day",
        rows=("ORDER BY: shop.orders.day is DATE now, it was STRING",),
    ),
    Case(
        "retyped",
        "SELECT max(qty) AS m FROM shop.orders",
        columns={
            "m": "shop.orders.qty is STRING now, it was INT",
        },
    ),
    Case(
        "retyped",
        "SELECT o.id FROM shop.orders o JOIN shop.customers c ON o.qty = c.ref",
        rows=("the join: shop.orders.qty is STRING now, it was INT",),
    ),
    Case(
        "retyped",
        "SELECT DISTINCT day FROM shop.orders",
        rows=("DISTINCT: shop.orders.day is DATE now, it was STRING",),
    ),
    Case(
        "retyped",
        "SELECT day, count(*) AS n FROM shop.orders GROUP BY day",
        rows=("GROUP BY: shop.orders.day is DATE now, it was STRING",),
    ),
    Case(
        "retyped",
        "SELECT DISTINCT * FROM (SELECT id, day FROM shop.orders)",
        rows=("DISTINCT: shop.orders.day is DATE now, it was STRING",),
    ),
    # order and columns that go
    Case(
        "moved",
        "SELECT * FROM shop.archive",
    ),
    Case(
        "moved",
        "SELECT * FROM shop.archive UNION ALL SELECT * FROM shop.customers",
        columns={
            "name": "shop.customers.city is in the place of shop.customers.name",
            "city": "shop.customers.name is in the place of shop.customers.city",
        },
    ),
    Case(
        "moved",
        "SELECT a, b FROM shop.archive AS t(a, b, c, d)",
        columns={
            "b": "shop.archive.city is in the place of shop.archive.name",
        },
    ),
    Case(
        "moved",
        "SELECT * FROM shop.archive",
        columns={
            "name": "shop.archive.city is in the place of shop.archive.name",
            "city": "shop.archive.name is in the place of shop.archive.city",
        },
        by_position=True,
    ),
    Case(
        "moved",
        "WITH q(a, b, c, d) AS (SELECT * FROM shop.archive) SELECT a, b FROM q",
        columns={
            "b": "shop.archive.city is in the place of shop.archive.name",
        },
    ),
    Case(
        "removed",
        "SELECT id FROM shop.customers",
    ),
    Case(
        "removed",
        "SELECT o.id, (SELECT max(c.name) FROM shop.customers c WHERE city = 'x') AS m FROM "
        "shop.orders o",
        columns={
            "m": "a condition: city now means shop.orders.city, it meant shop.customers.city",
        },
    ),
    Case(
        "removed",
        "SELECT o.id FROM shop.orders o NATURAL JOIN shop.customers c",
        rows=("the NATURAL JOIN no longer joins on city",),
    ),
)  # fmt: skip


def columns_of(shape) -> tuple[Column, ...]:
    return tuple(Column(name, type_) for name, type_ in shape)


def changes_of(shapes: str) -> dict[tuple[str, str], ShapeChange]:
    """What the comparison is handed for these shapes."""
    new, renames = SHAPES[shapes]
    return {
        ("shop", name): compare_shape(
            ItemName("shop", name), columns_of(columns), columns_of(new.get(name, columns)),
            renames.get(name),
        )
        for name, columns in OLD.items()
    }


def outputs_of(case: Case, old: str) -> tuple[str, ...] | None:
    """The names that a view of this query stores: all that it gave on the old shapes."""
    return None if case.by_position else output_names(old)


def plans_of(analyse: Analyse, cases: Sequence[Case]) -> dict[str, list[str]]:
    """The plans of each case on the old and on the new shapes."""
    requests = [
        QueryRequest(ItemName("team", "v"), case.sql, parents_of(shapes), plan=True)
        for case in cases for shapes in (OLD, {**OLD, **SHAPES[case.shapes].new})
    ]
    plans = [analysis.plan or str(analysis.reason) for analysis in analyse(requests)]
    return {str(case): plans[2 * at : 2 * at + 2] for at, case in enumerate(cases)}


def parents_of(shapes) -> dict[ItemName, tuple[Column, ...]]:
    return {ItemName("shop", name): columns_of(shape) for name, shape in shapes.items()}
