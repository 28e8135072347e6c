"""Nothing comes into force that no table can live under, or that cannot be created."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import Row

from catalog_migrate.errors import MigrationBlocked
from catalog_migrate.planner.plan_validation import DOES_NOT_BIND, DOES_NOT_HOLD

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
