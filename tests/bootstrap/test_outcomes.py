"""Every outcome of a start, on real Spark: one catalog of a few objects from nothing to its end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import Row

from catalog_migrate.errors import EditedPlan, MigrationBlocked, StalePlan
from catalog_migrate.planner.planfile import decode_plan, encode_plan

pytestmark = pytest.mark.spark

RETYPED = (
    "CREATE TABLE {s}.orders (id BIGINT NOT NULL, qty INT USING CAST(qty AS INT), note STRING);"
)
WIDER = "CREATE TABLE {s}.orders (id BIGINT NOT NULL, qty STRING, note STRING, paid BOOLEAN);"
NARROWER = "CREATE TABLE {s}.orders (id BIGINT NOT NULL, qty INT, note STRING);"
WITHOUT_NOTE = "CREATE TABLE {s}.orders (id BIGINT NOT NULL, qty INT);"
ROWS = [(1, "10", "a"), (2, "20", None), (3, None, "c")]


def changed(plan: Any) -> dict[str, tuple[str, str]]:
    """(action, contents) of each changed object by its bare name."""
    return {
        change.name.rsplit(".", 1)[1]: (change.action, change.contents) for change in plan.changes
    }


def test_a_catalog_from_nothing_to_its_fifth_release(shop: Any, tmp_path: Path) -> None:
    """Each outcome where it may come; whatever is refused or has nothing to do writes nothing."""
    nothing_is_there_yet(shop)
    a_first_release_is_blocked(shop)
    the_first_start_and_the_second(shop)
    changes_are_refused_or_planned(shop, tmp_path)
    stale = shop.open().plan(shop.release("3", orders=RETYPED))
    a_column_is_added_in_place(shop)
    the_older_release_and_the_stale_plan_are_refused(shop, stale)
    the_older_release_is_allowed_back(shop)
    the_approved_plan_copies_the_rows(shop, tmp_path)
    what_loses_data_is_approved(shop)
    the_audit_is_a_view(shop)


def nothing_is_there_yet(shop: Any) -> None:
    """``read_only`` where no catalog is yet says what would be created, and creates nothing."""
    report = shop.start(shop.release("1"), read_only=True)
    assert (report.outcome, report.serial) == ("planned", 0)
    assert report.plan is not None
    assert report.plan.summary["create"] == 5
    assert not shop.catalog.exists()


def a_first_release_is_blocked(shop: Any) -> None:
    """A first release whose view does not bind leaves nothing, not even a catalog."""
    release = shop.release(
        "1", big="CREATE VIEW {s}.big (id BIGINT) AS SELECT nope FROM {s}.orders;", doubled=None
    )
    with pytest.raises(MigrationBlocked) as caught:
        shop.start(release)
    assert caught.value.message == "1 obstacle that no approval cures; nothing was touched"
    assert caught.value.remedy == "do what is written below each entry"
    assert not shop.catalog.exists()


def the_first_start_and_the_second(shop: Any) -> None:
    """The first start creates all names; the next one finds nothing to do and writes nothing.

    An in-memory catalog that lost its names has them after the next start, rows and all.
    """
    first = shop.start(shop.release("1"))
    assert (first.outcome, first.release, first.rows_copied) == ("initialized", "1", 0)
    assert first.unfilled == ()
    shop.append("orders", ROWS)
    shop.append("tags", [("kept",)])
    assert shop.rows("doubled") == [Row(id=4), Row(id=6)]
    before = shop.listing()
    again = shop.start(shop.release("1"))
    assert (again.outcome, again.serial, again.names) == ("unchanged", first.serial, 0)
    assert again.plan is not None
    assert again.plan.is_empty
    shop.forget()
    report = shop.start(shop.release("1"))
    assert report.outcome == "unchanged"
    assert report.names >= 5
    assert shop.rows("doubled") == [Row(id=4), Row(id=6)]
    assert shop.listing() == before


def changes_are_refused_or_planned(shop: Any, tmp_path: Path) -> None:
    """Undecided losses, a plan of another release, an edited one; and ``read_only`` of a copy."""
    before = shop.listing()
    with pytest.raises(MigrationBlocked) as blocking:
        shop.start(shop.release("2", orders=NARROWER, tags=None))
    assert blocking.value.exit_code == 3
    assert blocking.value.message == "2 decisions are missing; nothing was touched"
    blocked = {(b.name.rsplit(".", 1)[1], b.column) for b in blocking.value.plan.blocked}
    assert blocked == {("orders", "qty"), ("tags", None)}
    assert all(b.remedy for b in blocking.value.plan.blocked)

    plan = shop.open().plan(shop.release("2", orders=WIDER))
    with pytest.raises(StalePlan) as stale:
        shop.start(shop.release("3", orders=RETYPED), plan=plan)
    assert stale.value.changes == ("the plan was made for release 2, this is 3",)

    release = shop.release("2", orders=RETYPED)
    text = encode_plan(shop.open().plan(release))
    assert decode_plan(text).changes
    file = tmp_path / "edited.json"
    file.write_bytes(text.replace(b'"copy"', b'"evolve"'))
    with pytest.raises(EditedPlan):
        shop.start(release, plan=file)

    report = shop.start(release, read_only=True)
    assert report.outcome == "planned"
    assert changed(report.plan)["orders"] == ("migrate", "copy")
    assert shop.start(shop.release("1"), read_only=True).outcome == "unchanged"
    assert shop.start(shop.release("1")).outcome == "unchanged"
    assert shop.listing() == before


def a_column_is_added_in_place(shop: Any) -> None:
    """A new nullable column is NULL in old rows; the shard stays, dependents get new ids."""
    old = shop.shard("orders")
    report = shop.start(shop.release("2", orders=WIDER))
    assert (report.outcome, report.release, report.rows_copied) == ("migrated", "2", 0)
    assert changed(report.plan) == {
        "orders": ("migrate", "evolve"),
        "big": ("migrate", "none"),
        "doubled": ("migrate", "none"),
    }
    assert shop.shard("orders") == old
    assert shop.rows("orders") == [Row(id=i, qty=q, note=n, paid=None) for i, q, n in ROWS]
    shop.append("orders", [(4, "40", "d", True)])
    assert shop.rows("doubled") == [Row(id=4), Row(id=6), Row(id=8)]


def the_older_release_and_the_stale_plan_are_refused(shop: Any, stale: Any) -> None:
    """Once 2 is in force a process of 1 does nothing and says why, however often it comes.

    A plan made before another upgrade is refused, with what moved.
    """
    before = shop.listing()
    report = shop.start(shop.release("1"))
    assert report.outcome == "fenced_out"
    assert report.reason is not None
    assert "replaced by 2" in report.reason
    assert shop.start(shop.release("0.9")).outcome == "fenced_out"
    assert "paid" in shop.spark.table(f"{shop.schema}.orders").columns
    with pytest.raises(StalePlan) as caught:
        shop.start(shop.release("3", orders=RETYPED), plan=stale)
    assert caught.value.exit_code == 4
    assert any(f"{shop.schema}.orders was migrated since" in c for c in caught.value.changes)
    assert any("release 2 is in force, it was 1" in c for c in caught.value.changes)
    assert shop.listing() == before


def the_older_release_is_allowed_back(shop: Any) -> None:
    """With ``allow_downgrade`` the earlier release comes back in force, decisions provided."""
    from catalog_migrate.hook import Policy

    report = shop.start(
        shop.release("1"),
        policy=Policy(allow_downgrade=True),
        approve=[f"{shop.schema}.orders.paid"],
    )
    assert report.outcome == "migrated"
    assert shop.rows("orders") == [Row(id=i, qty=q, note=n) for i, q, n in [*ROWS, (4, "40", "d")]]
    assert shop.open().status().release == "1"


def the_approved_plan_copies_the_rows(shop: Any, tmp_path: Path) -> None:
    """A plan file that still fits is applied; once applied, it has nothing more to do.

    USING converts each row into a new shard; the old one refuses whoever still writes there.
    """
    release = shop.release("3", orders=RETYPED)
    file = tmp_path / "plan.json"
    file.write_bytes(encode_plan(shop.open().plan(release)))
    old = shop.shard("orders")
    report = shop.start(release, plan=file)
    assert (report.outcome, report.rows_copied) == ("migrated", 4)
    assert changed(report.plan)["orders"] == ("migrate", "copy")
    assert "tags" not in changed(report.plan)
    assert shop.shard("orders") != old
    assert shop.rows("orders") == [
        Row(id=1, qty=10, note="a"),
        Row(id=2, qty=20, note=None),
        Row(id=3, qty=None, note="c"),
        Row(id=4, qty=40, note="d"),
    ]
    assert shop.start(release, plan=file).outcome == "unchanged"
    late = shop.spark.createDataFrame([(9, "90", "late")], "id BIGINT, qty STRING, note STRING")
    with pytest.raises((PySparkException, Py4JJavaError), match="catalog_migrate_sealed"):
        late.write.format("delta").mode("append").save(old)
    shop.append("orders", [(5, 50, "e")])
    assert shop.rows("doubled") == [Row(id=4), Row(id=6), Row(id=8), Row(id=10)]


def what_loses_data_is_approved(shop: Any) -> None:
    """``approve`` names the column or table that may go; the others are untouched."""
    release = shop.release(
        "4",
        orders=WITHOUT_NOTE,
        tags=None,
        doubled=None,
        big="CREATE VIEW {s}.big (id BIGINT) AS SELECT id FROM {s}.orders;",
    )
    name = shop.schema
    report = shop.start(release, approve=[f"{name}.orders.note", f"{name}.tags"])
    assert report.outcome == "migrated"
    assert shop.rows("orders") == [
        Row(id=i, qty=q) for i, q in [(1, 10), (2, 20), (3, None), (4, 40), (5, 50)]
    ]
    names = {row.tableName for row in shop.spark.sql(f"SHOW TABLES IN {name}").collect()}
    assert names == {"orders", "big"}


def the_audit_is_a_view(shop: Any) -> None:
    """Every commit of earlier starts is in a view, each once, with who, release and serials."""
    history = list(shop.open().history(everything=True))
    found = shop.spark.sql(
        "SELECT version, verb, who, release, serial_before, serial_after"
        " FROM catalog_migrate.audit ORDER BY version DESC"
    ).collect()
    assert [tuple(row) for row in found] == [
        (e.version, e.verb, e.who, e.release, e.serial_before, e.serial_after) for e in history
    ]
    assert [row.verb for row in found].count("migrate") == 5
