"""Nothing comes into force that no table can live under, or that cannot be created."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import Row

from catalog_migrate.engine.spark.engine import SparkEngine
from catalog_migrate.errors import EngineFailure, MigrationBlocked
from catalog_migrate.planner.plan import Plan
from catalog_migrate.planner.plan_validation import DOES_NOT_BIND, DOES_NOT_HOLD, ROWS_REFUSED
from catalog_migrate.report.verdict import verdict

pytestmark = pytest.mark.spark


def test_expressions_are_proven_before_the_commit(shop: Any) -> None:
    """Each text at fault is named with its object, column and expression; the next release, whose
    view has columns without aliases, comes into force."""
    shop.start(shop.release("1"))
    before = shop.open().state()
    broken = shop.release(
        "2",
        fresh="CREATE TABLE {s}.fresh (n INT NOT NULL DEFAULT 'abc', CHECK (nope > 0));",
        f="CREATE FUNCTION {s}.f(x INT) RETURNS INT RETURN x + y;",
    )
    with pytest.raises(MigrationBlocked) as caught:
        shop.start(broken)
    found = {(b.name, b.column, b.code) for b in caught.value.plan.blocked}
    assert found == {
        (f"{shop.schema}.fresh", None, DOES_NOT_HOLD), (f"{shop.schema}.fresh", "n", DOES_NOT_HOLD),
        (f"function:{shop.schema}.f", None, DOES_NOT_BIND),
    }
    assert "CHECK check_1 (nope > 0) cannot be in force: [UNRESOLVED_COLUMN" in str(caught.value)
    assert "DEFAULT of n ('abc') cannot be in force: [CAST_INVALID_INPUT" in str(caught.value)
    after = shop.open().state()
    assert (after.serial, after.shards, after.intents) == (before.serial, before.shards, {})
    named = shop.release(
        "3", counted="CREATE VIEW {s}.counted (n BIGINT) AS SELECT count(*) FROM {s}.orders;"
    )
    report = shop.start(named)
    assert (report.outcome, report.plan.bound, report.plan.unproven) == ("migrated", True, ())
    assert shop.rows("counted") == [Row(n=0)]


ORDERS = "CREATE TABLE {s}.orders ("


def test_a_bound_plan_has_looked_at_the_rows(shop: Any) -> None:
    """Rows that the new table would not take block a bound plan, with column or CHECK, how many
    they are and what to do, without a value; a start of it fails. What all rows fit is SAFE."""
    shop.start(shop.release("1"))
    shop.append("orders", [(1, "11", "first"), (2, "secret", None), (3, None, "third")])
    refused = {
        "id BIGINT NOT NULL, qty STRING, note STRING, n INT NOT NULL USING CAST(NULL AS INT)":
            ("n", "column n USING CAST(NULL AS INT) is NULL on 3 rows, and the column is NOT NULL"),
        "id BIGINT NOT NULL, qty INT USING CAST(qty AS INT), note STRING":
            ("qty", "column qty USING CAST(qty AS INT) fails on a row [CAST_INVALID_INPUT]"),
        "id BIGINT NOT NULL, qty STRING, note STRING NOT NULL USING upper(note)":
            ("note", "column note USING upper(note) is NULL on 1 row, and the column is NOT NULL"),
        "id BIGINT NOT NULL, qty STRING, note VARCHAR(4) USING note":
            ("note", "column note USING note is longer than VARCHAR(4) on 2 rows"),
        "id BIGINT NOT NULL, qty STRING, note STRING, n INT DEFAULT 0, CHECK (n + id > 2)":
            (None, "the CHECK check_1 (n + id > 2) does not hold on 2 rows"),
        "id BIGINT NOT NULL, qty STRING, note STRING, g BIGINT NOT NULL GENERATED ALWAYS AS"
        " (length(note) * id)":
            ("g", "column g = length(note) * id is NULL on 1 row, and the column is NOT NULL"),
    }
    for columns, (column, reason) in refused.items():
        release = shop.release("2", orders=f"{ORDERS}{columns});")
        plan = _bound(shop, release)
        assert [(b.code, b.column, b.reason) for b in plan.blocked] == [
            (ROWS_REFUSED, column, reason)
        ], columns
        assert (verdict(plan).kind, plan.applyable) == ("blocked", False)
        assert "correct those rows of" in plan.blocked[0].remedy
        with pytest.raises(EngineFailure):
            shop.start(release)
        assert shop.open().status().release == "1"
    fits = shop.release("2", orders=ORDERS + "id BIGINT NOT NULL, qty STRING, note STRING NOT NULL"
                        " USING coalesce(note, ''), n INT NOT NULL DEFAULT 7, CHECK (n + id > 7));")
    plan = _bound(shop, fits)
    assert (plan.blocked, plan.unproven, plan.applyable) == ((), (), True)
    assert shop.start(fits).outcome == "migrated"
    assert [row.n for row in shop.rows("orders")] == [7, 7, 7]
    filled = shop.release("3", orders=(shop.home / "release-2" / "orders.sql").read_text(),
                          made="CREATE TABLE {s}.made (id INT NOT NULL) FILLED FROM (SELECT"
                          " CAST(id AS INT) FROM {s}.orders);")
    assert verdict(_bound(shop, filled)).word == "SAFE, NOT PROVEN"


def _bound(shop: Any, release: Path) -> Plan:
    catalog = shop.open()
    return catalog.bind(catalog.migration(release), SparkEngine(shop.spark))
