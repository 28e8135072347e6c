"""The outcomes of a start, on real Spark and a release of a few objects."""

from __future__ import annotations

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
WITHOUT_NOTE = "CREATE TABLE {s}.orders (id BIGINT NOT NULL, qty STRING);"
ROWS = [(1, "10", "a"), (2, "20", None), (3, None, "c")]


@pytest.fixture
def filled(shop: Any) -> Any:
    """The shop at release 1 with three orders."""
    shop.start(shop.release("1"))
    shop.append("orders", ROWS)
    return shop


def changed(plan: Any) -> dict[str, tuple[str, str]]:
    """(action, contents) of each changed object by its bare name."""
    return {
        change.name.rsplit(".", 1)[1]: (change.action, change.contents) for change in plan.changes
    }


def test_a_new_catalog_is_initialized_and_then_unchanged(shop: Any) -> None:
    """The first start creates all names; the next one finds nothing to do and writes nothing."""
    first = shop.start(shop.release("1"))
    assert (first.outcome, first.release, first.rows_copied) == ("initialized", "1", 0)
    assert first.unfilled == ()
    shop.append("orders", ROWS)
    assert shop.rows("doubled") == [Row(id=4), Row(id=6)]
    before = shop.listing()
    again = shop.start(shop.release("1"))
    assert (again.outcome, again.serial, again.names) == ("unchanged", first.serial, 0)
    assert again.plan is not None
    assert again.plan.is_empty
    assert shop.listing() == before


def test_a_new_session_gets_its_names_again(filled: Any) -> None:
    """An in-memory catalog that lost its names has them after the next start, rows and all."""
    before = filled.listing()
    filled.forget()
    report = filled.start(filled.release("1"))
    assert report.outcome == "unchanged"
    assert report.names >= 5
    assert filled.rows("doubled") == [Row(id=4), Row(id=6)]
    assert filled.listing() == before


def test_adding_a_nullable_column_evolves_in_place(filled: Any) -> None:
    """A new nullable column is NULL in old rows; the shard stays, dependents get new ids."""
    old = filled.shard("orders")
    report = filled.start(filled.release("2", orders=WIDER))
    assert (report.outcome, report.release, report.rows_copied) == ("migrated", "2", 0)
    assert changed(report.plan) == {
        "orders": ("migrate", "evolve"),
        "big": ("migrate", "none"),
        "doubled": ("migrate", "none"),
    }
    assert filled.shard("orders") == old
    assert filled.rows("orders") == [Row(id=i, qty=q, note=n, paid=None) for i, q, n in ROWS]
    filled.append("orders", [(4, "40", "d", True)])
    assert filled.rows("doubled") == [Row(id=4), Row(id=6), Row(id=8)]


def test_retyping_with_using_copies_the_rows(filled: Any) -> None:
    """USING converts each row into a new shard; the old one refuses whoever still writes there."""
    old = filled.shard("orders")
    report = filled.start(filled.release("2", orders=RETYPED))
    assert (report.outcome, report.rows_copied) == ("migrated", 3)
    assert changed(report.plan)["orders"] == ("migrate", "copy")
    assert "tags" not in changed(report.plan)
    assert filled.shard("orders") != old
    assert filled.rows("orders") == [
        Row(id=1, qty=10, note="a"),
        Row(id=2, qty=20, note=None),
        Row(id=3, qty=None, note="c"),
    ]
    late = filled.spark.createDataFrame([(9, "90", "late")], "id BIGINT, qty STRING, note STRING")
    with pytest.raises((PySparkException, Py4JJavaError), match="catalog_migrate_sealed"):
        late.write.format("delta").mode("append").save(old)
    filled.append("orders", [(4, 40, "d")])
    assert filled.rows("doubled") == [Row(id=4), Row(id=6), Row(id=8)]


def test_undecided_changes_block_all_at_once(filled: Any) -> None:
    """A lossy change without a decision raises with the plan; no file is written or touched."""
    filled.append("tags", [("kept",)])
    before = filled.listing()
    with pytest.raises(MigrationBlocked) as caught:
        filled.start(filled.release("2", orders=NARROWER, tags=None))
    assert caught.value.exit_code == 3
    assert caught.value.message == "2 decisions are missing; nothing was touched"
    blocked = {(b.name.rsplit(".", 1)[1], b.column) for b in caught.value.plan.blocked}
    assert blocked == {("orders", "qty"), ("tags", None)}
    assert all(b.remedy for b in caught.value.plan.blocked)
    assert filled.listing() == before
    assert filled.start(filled.release("1")).outcome == "unchanged"


def test_a_blocked_first_release_creates_no_shard(shop: Any) -> None:
    """A first release whose view does not bind creates no shard and puts nothing in force."""
    release = shop.release(
        "1", big="CREATE VIEW {s}.big (id BIGINT) AS SELECT nope FROM {s}.orders;", doubled=None
    )
    with pytest.raises(MigrationBlocked) as caught:
        shop.start(release)
    assert caught.value.message == "1 obstacle that no approval cures; nothing was touched"
    assert caught.value.remedy == "do what stands below each entry"
    assert not (shop.catalog / "warehouse").exists()
    assert shop.open().status().release is None


def test_approval_allows_what_loses_data(filled: Any) -> None:
    """``approve`` names the column or table that may go; the others are untouched."""
    release = filled.release(
        "2",
        orders=WITHOUT_NOTE,
        tags=None,
        doubled=None,
        big="CREATE VIEW {s}.big (id BIGINT) AS SELECT id FROM {s}.orders;",
    )
    name = filled.schema
    report = filled.start(release, approve=[f"{name}.orders.note", f"{name}.tags"])
    assert report.outcome == "migrated"
    assert filled.rows("orders") == [Row(id=i, qty=q) for i, q, _ in ROWS]
    names = {row.tableName for row in filled.spark.sql(f"SHOW TABLES IN {name}").collect()}
    assert names == {"orders", "big"}


def test_an_older_release_is_fenced_out(filled: Any) -> None:
    """Once 2 is in force a process of 1 does nothing and says why, however often it comes."""
    filled.start(filled.release("2", orders=WIDER))
    before = filled.listing()
    report = filled.start(filled.release("1"))
    assert report.outcome == "fenced_out"
    assert report.reason is not None
    assert "replaced by 2" in report.reason
    assert filled.start(filled.release("0.9")).outcome == "fenced_out"
    assert filled.listing() == before
    assert "paid" in filled.spark.table(f"{filled.schema}.orders").columns


def test_an_older_release_may_be_allowed_back(filled: Any) -> None:
    """With ``allow_downgrade`` the earlier release comes back in force, decisions provided."""
    from catalog_migrate.hook import Policy

    filled.start(filled.release("2", orders=WIDER))
    report = filled.start(
        filled.release("1"),
        policy=Policy(allow_downgrade=True),
        approve=[f"{filled.schema}.orders.paid"],
    )
    assert report.outcome == "migrated"
    assert filled.rows("orders") == [Row(id=i, qty=q, note=n) for i, q, n in ROWS]
    assert filled.open().status().release == "1"


def test_read_only_writes_not_one_byte(filled: Any) -> None:
    """``read_only`` plans an upgrade and leaves every file and name as it was."""
    before = filled.listing()
    report = filled.start(filled.release("2", orders=RETYPED), read_only=True)
    assert report.outcome == "planned"
    assert changed(report.plan)["orders"] == ("migrate", "copy")
    assert filled.start(filled.release("1"), read_only=True).outcome == "unchanged"
    assert filled.listing() == before


def test_read_only_without_a_catalog_creates_none(shop: Any) -> None:
    """``read_only`` where no catalog is yet says what would be created, and creates nothing."""
    report = shop.start(shop.release("1"), read_only=True)
    assert (report.outcome, report.serial) == ("planned", 0)
    assert report.plan is not None
    assert report.plan.summary["create"] == 5
    assert not shop.catalog.exists()


def test_the_approved_plan_is_what_is_applied(filled: Any, tmp_path: Any) -> None:
    """A plan file that still fits is applied; once applied, it has nothing more to do."""
    release = filled.release("2", orders=RETYPED)
    file = tmp_path / "plan.json"
    file.write_bytes(encode_plan(filled.open().plan(release)))
    assert filled.start(release, plan=file).outcome == "migrated"
    assert filled.rows("orders")[0] == Row(id=1, qty=10, note="a")
    assert filled.start(release, plan=file).outcome == "unchanged"


def test_a_stale_plan_is_refused_object_by_object(filled: Any) -> None:
    """A plan made before another upgrade is refused, with what moved; nothing is written."""
    plan = filled.open().plan(filled.release("3", orders=RETYPED))
    filled.start(filled.release("2", orders=WIDER))
    before = filled.listing()
    with pytest.raises(StalePlan) as caught:
        filled.start(filled.release("3", orders=RETYPED), plan=plan)
    assert caught.value.exit_code == 4
    assert any(f"{filled.schema}.orders was migrated since" in c for c in caught.value.changes)
    assert any("release 2 is in force, it was 1" in c for c in caught.value.changes)
    assert filled.listing() == before


def test_a_plan_of_another_release_is_refused(filled: Any) -> None:
    """A plan approved for one release does not let another one through."""
    plan = filled.open().plan(filled.release("2", orders=WIDER))
    before = filled.listing()
    with pytest.raises(StalePlan) as caught:
        filled.start(filled.release("3", orders=RETYPED), plan=plan)
    assert caught.value.changes == ("the plan was made for release 2, this is 3",)
    assert filled.listing() == before


def test_an_edited_plan_is_refused(filled: Any, tmp_path: Any) -> None:
    """A plan file whose text was changed by hand does not match its hash."""
    release = filled.release("2", orders=RETYPED)
    text = encode_plan(filled.open().plan(release))
    assert decode_plan(text).changes
    file = tmp_path / "plan.json"
    file.write_bytes(text.replace(b'"copy"', b'"evolve"'))
    before = filled.listing()
    with pytest.raises(EditedPlan):
        filled.start(release, plan=file)
    assert filled.listing() == before


def test_the_audit_is_a_view(filled: Any) -> None:
    """Every commit of earlier starts is in a view, each once, with who, release and serials."""
    filled.start(filled.release("2", orders=WIDER))
    history = list(filled.open().history(everything=True))
    found = filled.spark.sql(
        "SELECT version, verb, who, release, serial_before, serial_after"
        " FROM catalog_migrate.audit ORDER BY version DESC"
    ).collect()
    assert [tuple(row) for row in found] == [
        (e.version, e.verb, e.who, e.release, e.serial_before, e.serial_after) for e in history
    ]
    assert [row.verb for row in found].count("migrate") == 2
