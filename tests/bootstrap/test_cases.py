"""Releases that once broke a table or an installation, from their first start to the last one.

Cases of the same kind have stories of their own: properties that come and go
(``test_properties``), a table that is split (``test_filled_tables``), fields of structs
(``test_struct_fields``).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest

from catalog_migrate.errors import CatalogMigrateError
from catalog_migrate.report.verdict import verdict

pytestmark = pytest.mark.spark

ROLLBACK = "-- the release before this one again"
"""Stands for the text of a release."""


class Step(NamedTuple):
    """One release: its text, what its unbound plan says, and what a start makes of it.

    ``word`` is the verdict, or the code that the release is refused with before any plan. ``used``
    is what the application runs afterwards; ``found`` are queries with their rows. A release that
    is refused has ``refused``, the code of its error, and what its text ``says``.
    """

    text: str
    word: str
    used: tuple[str, ...] = ()
    found: tuple[tuple[str, list[tuple[Any, ...]]], ...] = ()
    copied: int = 0
    refused: str = ""
    says: str = ""
    approve: tuple[str, ...] = ()


T = "SELECT * FROM {s}.t ORDER BY id"
DETAIL = "DESCRIBE DETAIL {s}.t"
"""Of its answer only what a table is clustered by is compared."""
VECTORS = " WITH ('delta.enableDeletionVectors' = 'true');"

CASES: dict[str, tuple[Step, ...]] = {
    "deletion vectors": (
        Step(
            "CREATE TABLE {s}.t (id INT, a STRING)" + VECTORS, "",
            (
                "INSERT INTO {s}.t SELECT /*+ COALESCE(1) */ id, 'x' FROM range(1, 4)",
                "DELETE FROM {s}.t WHERE id = 2",
            ),
            ((T, [(1, "x"), (3, "x")]),),
        ),
        Step(
            "CREATE TABLE {s}.t (id BIGINT, a STRING)" + VECTORS, "SAFE",
            ("INSERT INTO {s}.t VALUES (5000000000, 'new')", "DELETE FROM {s}.t WHERE id = 1"),
            ((T, [(3, "x"), (5000000000, "new")]),), copied=2,
        ),
    ),
    "clustered table": (
        Step(
            "CREATE TABLE {s}.t (id INT, v STRING) CLUSTER BY (id);", "",
            ("INSERT INTO {s}.t VALUES (1, 'a'), (2, 'b')",),
        ),
        Step(
            "CREATE TABLE {s}.t (id BIGINT, v STRING) CLUSTER BY (id);", "SAFE",
            ("INSERT INTO {s}.t VALUES (5000000000, 'c')",),
            (
                (T, [(1, "a"), (2, "b"), (5000000000, "c")]),
                (DETAIL, [(["id"],)]),
            ),
            copied=2,
        ),
        Step(
            "CREATE TABLE {s}.t (id BIGINT, v STRING);", "SAFE",
            ("INSERT INTO {s}.t VALUES (4, 'd')",),
            (
                (T, [(1, "a"), (2, "b"), (4, "d"), (5000000000, "c")]),
                (DETAIL, [([],)]),
            ),
            copied=3,
        ),
        Step(
            ROLLBACK, "",
            ("INSERT INTO {s}.t VALUES (5, 'e')",),
            (
                (T, [(1, "a"), (2, "b"), (4, "d"), (5, "e"), (5000000000, "c")]),
                (DETAIL, [(["id"],)]),
            ),
        ),
        Step(
            "CREATE TABLE {s}.other (id BIGINT);", "NEEDS 1 DECISION", approve=("{s}.t",),
            found=(("SHOW TABLES IN {s} LIKE 't'", []),),
        ),
    ),
    "case of a field's name": (
        Step(
            "CREATE TABLE {s}.t (id INT, a STRING);"
            "CREATE VIEW {s}.jv (j STRING) AS SELECT to_json(struct(id AS userid)) AS j FROM {s}.t;"
            "CREATE FUNCTION {s}.f(x INT) RETURNS STRING RETURN to_json(struct(x AS myKey));", "",
            ("INSERT INTO {s}.t VALUES (1, 'x')",),
            (("SELECT j, {s}.f(2) FROM {s}.jv", [('{"userid":1}', '{"myKey":2}')]),),
        ),
        Step(
            "CREATE TABLE {s}.t (ID INT, a STRING);"
            "CREATE VIEW {s}.jv (j STRING) AS SELECT to_json(struct(id AS userId)) AS j FROM {s}.t;"
            "CREATE FUNCTION {s}.f(x INT) RETURNS STRING RETURN to_json(struct(x AS mykey));",
            "SAFE, NOT PROVEN",
            found=(("SELECT j, {s}.f(2) FROM {s}.jv", [('{"userId":1}', '{"mykey":2}')]),),
        ),
    ),
    "carriage return": (
        Step(
            "CREATE TABLE {s}.t (id INT);\r-- c\r"
            "CREATE VIEW {s}.v (id INT) AS SELECT id FROM {s}.t;",
            "", ("INSERT INTO {s}.t VALUES (1)",), (("SELECT * FROM {s}.v", [(1,)]),),
        ),
        Step(
            "CREATE TABLE {s}.t (id INT);\n"
            "CREATE VIEW {s}.crv (a INT, b INT) AS SELECT 1 -- note\r , 2 AS b;\r\n"
            "CREATE VIEW {s}.w (id INT) AS SELECT id -- \\\nnot the end of it\n FROM {s}.t;\n",
            "SAFE, NOT PROVEN",
            found=(("SELECT * FROM {s}.crv, {s}.w", [(1, 2, 1)]),),
        ),
    ),
    "view without alias": (
        Step(
            "CREATE TABLE {s}.t (id INT, a STRING);"
            "CREATE VIEW {s}.v (n BIGINT) AS SELECT count(*) AS n FROM {s}.t;", "",
            ("INSERT INTO {s}.t VALUES (1, 'x')",), (("SELECT n FROM {s}.v", [(1,)]),),
        ),
        Step(
            "CREATE TABLE {s}.t (id INT, a STRING);"
            "CREATE VIEW {s}.v (n BIGINT) AS SELECT count(*) FROM {s}.t;"
            "CREATE VIEW {s}.u (x STRING) AS SELECT upper(a) FROM {s}.t;",
            "SAFE, NOT PROVEN", found=(("SELECT n, x FROM {s}.v, {s}.u", [(1, "X")]),),
        ),
    ),
    "check over no column": (
        Step(
            "CREATE TABLE {s}.t (id INT, CHECK (nope > 0));", "", refused="CM0300",
            says="CHECK check_1 (nope > 0) cannot be in force: [UNRESOLVED_COLUMN",
        ),
        Step(
            "CREATE TABLE {s}.t (id INT, CHECK (id > 0));", "",
            ("INSERT INTO {s}.t VALUES (1)",), ((T, [(1,)]),),
        ),
        Step(
            "CREATE TABLE {s}.t (id INT, CHECK (id > 1));", "SAFE, NOT PROVEN", refused="CM0400",
            says="1 row violates the CHECK check_1 (id > 1)",
            used=("INSERT INTO {s}.t VALUES (2)",), found=((T, [(1,), (2,)]),),
        ),
    ),
    "swapped tables": (
        Step(
            "CREATE TABLE {s}.a (k INT, v STRING); CREATE TABLE {s}.b (k INT, v STRING);"
            "CREATE TABLE {s}.c (k INT, v STRING); CREATE TABLE {s}.d (k BIGINT, w INT);", "",
            (
                "INSERT INTO {s}.a VALUES (1, 'a')", "INSERT INTO {s}.b VALUES (2, 'b')",
                "INSERT INTO {s}.c VALUES (3, 'c')", "INSERT INTO {s}.d VALUES (4, 40)",
            ),
        ),
        Step(
            "CREATE TABLE {s}.a (k INT, v STRING) RENAMED FROM {s}.b;"
            "CREATE TABLE {s}.b (k INT, v STRING) RENAMED FROM {s}.a;"
            "CREATE TABLE {s}.c (k BIGINT, w INT) RENAMED FROM {s}.d;"
            "CREATE TABLE {s}.d (k INT, v STRING) RENAMED FROM {s}.c;", "SAFE",
            ("INSERT INTO {s}.a VALUES (5, 'new')", "INSERT INTO {s}.c VALUES (6, 60)"),
            (
                ("SELECT * FROM {s}.a ORDER BY k", [(2, "b"), (5, "new")]),
                ("SELECT * FROM {s}.b", [(1, "a")]),
                ("SELECT * FROM {s}.c ORDER BY k", [(4, 40), (6, 60)]),
                ("SELECT * FROM {s}.d", [(3, "c")]),
            ),
        ),
    ),
    "reader version": (
        Step("CREATE TABLE {s}.t (id INT) WITH ('delta.minReaderVersion' = '3');", "",
             refused="CM0100", says="delta.minReaderVersion"),
        Step("CREATE TABLE {s}.t (id INT);", "", ("INSERT INTO {s}.t VALUES (1)",)),
        Step(
            "CREATE TABLE {s}.t (id INT) WITH ('delta.minReaderVersion' = '3');", "CM0100",
            refused="CM0100", says="delta.minReaderVersion",
            used=("INSERT INTO {s}.t VALUES (2)",), found=((T, [(1,), (2,)]),),
        ),
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_case(shop: Any, case: str) -> None:
    """Each release comes into force with every row, or is refused before anything is done."""
    force = None
    for number, step in enumerate(CASES[case], start=1):
        force = take(shop, step, str(number), force)


def take(shop: Any, step: Step, name: str, force: str | None) -> str | None:
    """Plan and start one release; the release that is in force afterwards."""
    approve = tuple(each.format(s=shop.schema) for each in step.approve)
    release = shop.release(name, orders=step.text, tags=None, big=None, doubled=None)
    if step.word:
        assert planned(shop, release) == step.word
    if step.refused:
        with pytest.raises(CatalogMigrateError) as caught:
            shop.start(release)
        assert caught.value.code == step.refused, caught.value
        assert step.says in str(caught.value)
    elif step.text == ROLLBACK:
        catalog = type(shop.open()).open(shop.catalog, mode="write")
        report = catalog.rollback(spark=shop.spark)
        assert report.outcome == "rolled_back"
        force = report.release
    else:
        report = shop.start(release, approve=approve)
        outcome = "initialized" if force is None else "migrated"
        assert (report.outcome, report.rows_copied) == (outcome, step.copied)
        force = name
    if force is not None:
        status = shop.open().status()
        assert (status.release, status.pending) == (force, 0)
    for text in step.used:
        shop.spark.sql(text.replace("{s}", shop.schema))
    for query, rows in step.found:
        found = shop.spark.sql(query.replace("{s}", shop.schema))
        if query is DETAIL:
            found = found.select("clusteringColumns")
        assert [tuple(row) for row in found.collect()] == rows, query
    return force


def planned(shop: Any, release: Any) -> str:
    """The verdict of a plan that nothing has bound, or the code of the error instead of it."""
    try:
        return verdict(shop.open().plan(release)).word
    except CatalogMigrateError as error:
        return error.code
