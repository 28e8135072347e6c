"""PostgreSQL's catalog goes from 15 to 16, back to 15 and forth to 16 again, every row kept."""

from __future__ import annotations

from typing import Any

import pytest

from catalog_migrate.api import Catalog

pytestmark = pytest.mark.spark

WITHOUT = "information_schema"


def approvals(plan: Any) -> tuple[str, ...]:
    """What the plan says may be approved, entry by entry."""
    assert all(one.remedy.startswith("--approve ") for one in plan.blocked)
    return tuple(one.remedy.removeprefix("--approve ") for one in plan.blocked)


def test_fifteen_sixteen_fifteen_sixteen(server: Any) -> None:
    """Each way all 20,817 rows are what the release says; both old releases start unchanged."""
    assert server.load() == 20_817
    before = server.open().state()
    server.start(16)
    newer = server.open().status().serial
    catalog = Catalog.open(server.catalog, mode="write")
    back = catalog.plan_rollback(before.serial)
    given = approvals(back)
    # columns that 16 added in place are all that can be lost: nothing was written since
    assert {one.code for one in back.blocked} <= {"CM0302", "CM0305"}
    report = catalog.rollback(spark=server.spark, to=before.serial, approve=given)
    assert (report.outcome, report.release) == ("rolled_back", "15")
    assert server.differing(15) == {}
    assert server.start(15).outcome == "unchanged"
    assert server.start(16).outcome == "fenced_out"
    again = approvals(catalog.plan_rollback(newer))
    report = catalog.rollback(spark=server.spark, to=newer, approve=again)
    assert (report.outcome, report.release) == ("rolled_back", "16")
    assert server.differing(16) == {}
    assert server.start(16).outcome == "unchanged"
    assert server.open().status().pending == 0
