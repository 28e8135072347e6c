"""What stops an upgrade, and what it leaves: the old release in force, whole and writable."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import Row

from catalog_migrate.cli.main import main
from catalog_migrate.delta import seal as seals
from catalog_migrate.engine.spark.shards import SHOW_VALUES
from catalog_migrate.errors import CatalogMigrateError, MigrationBlocked, NotReconciled
from catalog_migrate.model.progress import Progress
from catalog_migrate.planner.plan_validation import DOES_NOT_BIND, NAME_HELD

pytestmark = pytest.mark.spark

Said = pytest.CaptureFixture[str]
FRESH = "CREATE TABLE {s}.fresh (ours STRING);"
ROWS = [(1, "10", "a"), (2, "a dozen", "private")]
"""Two orders, one of which has a quantity that is no number."""
RETYPED = (
    "CREATE TABLE {s}.orders (id BIGINT NOT NULL, qty INT USING CAST(qty AS INT), note STRING);"
)
BARE = RETYPED.replace("CAST(qty AS INT)", "qty")


def test_the_old_release_stays_in_force_until_its_rows_are_mended(
    shop: Any, tmp_path: Path
) -> None:
    """One release after another is refused before its commit; the last one then goes through."""
    shop.start(shop.release("1"))
    shop.append("orders", ROWS)
    a_view_that_does_not_bind_blocks_before_anything_is_done(shop)
    a_dependent_that_no_longer_binds_blocks_too(shop)
    a_foreign_table_under_a_new_name_blocks_and_is_left_alone(shop, tmp_path)
    a_row_that_the_expression_refuses_stops_the_upgrade(shop)
    a_failure_after_other_tables_were_built_unseals_all(shop)
    a_check_that_an_old_row_breaks_stops_the_upgrade(shop)
    after_the_row_is_mended_the_upgrade_goes_through(shop)


def test_what_goes_wrong_behind_our_back_and_is_mended(
    shop: Any, tmp_path: Path, capsys: Said
) -> None:
    """Names that others took, a seal written over, columns and files changed by hand."""
    shop.start(shop.release("1"))
    shop.append("orders", ROWS)
    a_name_that_a_start_cannot_make_is_named(shop, tmp_path)
    a_seal_that_another_spark_wrote_over_stops_the_upgrade(shop, tmp_path)
    a_change_refused_after_the_commit_becomes_a_copy(shop)
    status_names_the_step_that_fails(shop, capsys)
    names_that_a_commit_could_not_make_stay_pending(shop, tmp_path)


def a_view_that_does_not_bind_blocks_before_anything_is_done(shop: Any) -> None:
    """The refusal names the view and Spark's reason; not a row, name or file has changed."""
    release = shop.release(
        "2",
        orders="CREATE TABLE {s}.orders (id BIGINT NOT NULL, qty STRING, note STRING, x INT);",
        big="CREATE VIEW {s}.big (id BIGINT, note STRING) AS SELECT id, remark FROM {s}.orders;",
    )
    state = shop.open().state()
    with pytest.raises(MigrationBlocked) as caught:
        shop.start(release)
    (blocked,) = caught.value.plan.blocked
    assert (blocked.name, blocked.code) == (f"{shop.schema}.big", DOES_NOT_BIND)
    assert "UNRESOLVED_COLUMN" in blocked.reason
    assert "remark" in blocked.reason
    after = shop.open().state()
    assert (after.serial, after.intents) == (state.serial, {})
    assert after.shards == state.shards
    assert shop.open().status().release == "1"
    assert shop.rows("big") == [Row(id=2, note="private")]


def a_dependent_that_no_longer_binds_blocks_too(shop: Any) -> None:
    """A view whose own text did not change is proven against its new parents."""
    release = shop.release(
        "2",
        orders="CREATE TABLE {s}.orders (id BIGINT NOT NULL, qty STRING, remark STRING"
        " RENAMED FROM note);",
    )
    with pytest.raises(MigrationBlocked) as caught:
        shop.start(release)
    assert [b.name for b in caught.value.plan.blocked] == [f"{shop.schema}.big"]
    assert shop.open().status().release == "1"


def a_foreign_table_under_a_new_name_blocks_and_is_left_alone(
    shop: Any, tmp_path: Path
) -> None:
    """A table of somebody else under the name of a new built-in is named and stays as it is."""
    spark, name = shop.spark, f"{shop.schema}.fresh"
    spark.sql(f"CREATE TABLE {name} (theirs INT) USING delta LOCATION '{tmp_path}/theirs'")
    spark.sql(f"INSERT INTO {name} VALUES (42)")
    before = shop.open().state()
    rows = {path: facts for path, facts in shop.listing().items() if "/warehouse" in path}
    release = shop.release("2", fresh=FRESH)
    with pytest.raises(MigrationBlocked) as caught:
        shop.start(release)
    (blocked,) = caught.value.plan.blocked
    assert (caught.value.code, caught.value.exit_code) == ("CM0300", 3)
    assert (blocked.name, blocked.code) == (name, NAME_HELD)
    assert blocked.remedy == (
        f"take a Delta table over, with its rows: catalog-migrate init --adopt --table {name}; or"
        f" rename or drop what has the name {name}; it is never replaced"
    )
    assert "theirs" in blocked.reason
    after = shop.open().state()
    assert (after.serial, after.shards, after.intents) == (before.serial, before.shards, {})
    assert rows.items() <= shop.listing().items()
    assert spark.table(name).collect() == [Row(theirs=42)]
    spark.sql(f"DROP TABLE {name}")


def a_row_that_the_expression_refuses_stops_the_upgrade(shop: Any) -> None:
    """The error names table, column and what to do; the value only to a caller who wants it.

    The old table is in force, unsealed and writable.
    """
    old = shop.shard("orders")
    with pytest.raises(CatalogMigrateError) as caught:
        shop.start(shop.release("2", orders=BARE, fresh=FRESH))
    text = str(caught.value)
    assert f"{shop.schema}.orders" in text or f"{shop.schema}/orders" in text
    assert "column `qty` USING qty fails on a row [CAST_INVALID_INPUT]; spark.catalog" in text
    assert "dozen" not in text
    assert "; the table is as it was" in text
    assert "remedy: the old release is in force; correct those rows of " in text
    assert f"{shop.schema}.orders, or the USING" in text
    shop.spark.conf.set(SHOW_VALUES, "true")
    with pytest.raises(CatalogMigrateError) as shown:
        shop.start(shop.release("2", orders=BARE, fresh=FRESH))
    shop.spark.conf.unset(SHOW_VALUES)
    assert "column `qty` USING qty fails on a row with qty=a dozen: " in str(shown.value)
    assert "private" not in str(shown.value)  # nothing of the row but what was converted
    status = shop.open().status()
    assert (status.release, status.pending, shop.open().state().intents) == ("1", 0, {})
    assert shop.shard("orders") == old
    shop.append("orders", [(3, "30", None)])
    assert [row.id for row in shop.rows("orders")] == [1, 2, 3]
    directories = (shop.catalog / "warehouse" / shop.schema / "orders").iterdir()
    assert [str(path) for path in directories] == [old]


def a_failure_after_other_tables_were_built_unseals_all(shop: Any) -> None:
    """Two tables are copied and one fails: both old shards take rows again, no new one is left."""
    shards = {shop.shard("orders"), shop.shard("tags")}
    shop.append("tags", [("7",)])
    with pytest.raises(CatalogMigrateError):
        shop.start(
            shop.release(
                "2", orders=RETYPED, tags="CREATE TABLE {s}.tags (tag INT USING CAST(tag AS INT));"
            )
        )
    shop.append("tags", [("eight",)])
    shop.append("orders", [(4, None, None)])
    assert [row.tag for row in shop.rows("tags")] == ["7", "eight"]
    from catalog_migrate.engine.spark.engine import SparkEngine

    left = SparkEngine(shop.spark).list_shards(str(shop.catalog / "warehouse" / shop.schema))
    assert set(left) == shards


def a_check_that_an_old_row_breaks_stops_the_upgrade(shop: Any) -> None:
    """A new CHECK that a row breaks is refused before the commit; the old release stays."""
    shop.append("tags", [("x",)])
    with pytest.raises(CatalogMigrateError, match="tags") as caught:
        shop.start(
            shop.release("2", tags="CREATE TABLE {s}.tags (tag STRING, CHECK (tag <> 'x'));")
        )
    assert "1 row violates the CHECK check_1 (tag <> 'x')" in str(caught.value)
    assert (shop.open().status().release, shop.open().status().pending) == ("1", 0)
    shop.append("tags", [("y",)])


def after_the_row_is_mended_the_upgrade_goes_through(shop: Any) -> None:
    """The very same release is applied once the row that it refused is right, and the name that
    somebody else had is free.
    """
    DeltaTable(shop.shard("orders")).update(predicate="id = 2", new_values={"qty": "12"})
    assert shop.start(shop.release("2", orders=BARE, fresh=FRESH)).outcome == "migrated"
    assert shop.rows("orders") == [
        Row(id=1, qty=10, note="a"), Row(id=2, qty=12, note="private"),
        Row(id=3, qty=30, note=None), Row(id=4, qty=None, note=None),
    ]  # fmt: skip
    assert shop.spark.table(f"{shop.schema}.fresh").columns == ["ours"]


def a_name_that_a_start_cannot_make_is_named(shop: Any, tmp_path: Path) -> None:
    """A start with nothing to commit whose name others took is NotReconciled, and writes nothing:
    the next one makes the name, and nothing was pending for other processes.
    """
    spark, name = shop.spark, f"{shop.schema}.tags"
    shop.forget()
    spark.sql(f"CREATE DATABASE {shop.schema}")
    spark.sql(f"CREATE TABLE {name} (theirs INT) USING delta LOCATION '{tmp_path}/theirs'")
    with pytest.raises(NotReconciled) as caught:
        shop.start(shop.release("1"))
    assert caught.value.exit_code == 6
    assert [(f.step, f.name) for f in caught.value.failures] == [("create", name)]
    status = shop.open().status()
    assert (status.pending, status.failure) == (0, None)
    assert shop.rows("big") == [Row(id=2, note="private")]
    assert spark.table(name).columns == ["theirs"]
    spark.sql(f"DROP TABLE {name}")
    assert shop.start(shop.release("1")).outcome == "unchanged"
    assert spark.table(name).columns == ["tag"]


def a_seal_that_another_spark_wrote_over_stops_the_upgrade(
    shop: Any, tmp_path: Path
) -> None:
    """On a local file system a Spark may rename its commit over a seal, and is told that its row
    is in the table. The upgrade notices, and the next one takes that row along."""
    shard = shop.shard("tags")
    release = shop.release(
        "2", tags="CREATE TABLE {s}.tags (tag INT USING CAST(tag AS INT));"
    )
    seal = seals.seal

    def written_over(path: str, **holder: Any) -> int:
        before = tmp_path / "before"
        shutil.copytree(path, before)  # what the other Spark saw when it looked
        version = seal(path, **holder)
        shop.spark.sql(f"INSERT INTO delta.`{before}` VALUES ('7')")
        for data in before.glob("*.parquet"):
            shutil.copy(data, path)
        theirs = before / "_delta_log" / f"{version:020d}.json"
        os.replace(theirs, Path(path) / "_delta_log" / theirs.name)
        return version

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(seals, "seal", written_over)
        with pytest.raises(CatalogMigrateError, match="written over by another") as caught:
            shop.start(release)
    assert "start again" in (caught.value.remedy or "")
    assert (shop.open().status().release, shop.shard("tags")) == ("1", shard)
    assert shop.start(release).outcome == "migrated"
    assert [row.tag for row in shop.rows("tags")] == [7]


def a_change_refused_after_the_commit_becomes_a_copy(shop: Any) -> None:
    """A column that somebody added behind our back refuses the change in place: the table is
    copied instead, with its rows, and nothing stays pending.
    """
    spark, shard = shop.spark, shop.shard("tags")
    spark.sql(f"INSERT INTO {shop.schema}.tags VALUES (8), (9)")
    spark.sql(f"ALTER TABLE {shop.schema}.tags ADD COLUMN extra STRING")
    release = shop.release("3", tags="CREATE TABLE {s}.tags (tag INT, extra INT);")
    assert shop.start(release).outcome == "migrated"
    status = shop.open().status()
    assert (status.release, status.failure, status.pending) == ("3", None, 0)
    assert shop.shard("tags") != shard
    rows = shop.rows("tags")
    assert sorted(row.tag for row in rows) == [7, 8, 9]
    assert {row.extra for row in rows} == {None}
    assert dict(spark.table(f"{shop.schema}.tags").dtypes) == {"tag": "int", "extra": "int"}
    assert shop.start(release).outcome == "unchanged"


def status_names_the_step_that_fails(
    shop: Any, capsys: Said
) -> None:
    """A change in place that Spark refuses, of a table that cannot be copied either: ``status``
    names step, error class, attempts and the next command at each try, until it is mended.
    """
    spark, shard = shop.spark, Path(shop.shard("tags"))
    spark.sql(f"ALTER TABLE {shop.schema}.tags ADD COLUMN more STRING")
    away = {data.rename(shop.home / data.name): data for data in shard.glob("*.parquet")}
    release = shop.release("4", tags="CREATE TABLE {s}.tags (tag INT, extra INT, more INT);")
    for _ in range(2):
        with pytest.raises(NotReconciled) as caught:
            shop.start(release)
        assert caught.value.exit_code == 6
        status = shop.open().status()
        assert status.release == "4"
        assert status.failure is not None
        assert status.failure["step"] == f"evolve {shop.schema}.tags"
        assert status.failure["condition"] == "DELTA_ALTER_TABLE_CHANGE_COL_NOT_SUPPORTED"
        assert "more" in status.failure["reason"]
        assert "the copy instead failed too" in status.failure["reason"]
        assert any(entry.startswith(f"evolve of {shop.schema}/tags/") for entry in status.work)
        assert main(["status", "--catalog", str(shop.catalog)]) == 0
        lines = capsys.readouterr().out.splitlines()
        assert f"  step: evolve {shop.schema}.tags" in lines
        assert "  condition: DELTA_ALTER_TABLE_CHANGE_COL_NOT_SUPPORTED" in lines
        assert "  attempts: 1" in lines
        assert lines[-1] == "next       catalog-migrate bootstrap, or start the application"
    for file, data in away.items():
        file.rename(data)
    assert shop.start(release).outcome == "resumed"
    status = shop.open().status()
    assert (status.failure, status.pending) == (None, 0)
    assert shop.rows("tags") == [Row(tag=tag, extra=None, more=None) for tag in (7, 8, 9)]


def names_that_a_commit_could_not_make_stay_pending(shop: Any, tmp_path: Path) -> None:
    """A name that others take between the look and the commit is on record until a start made it.

    A start that fails in the same way writes nothing, one that makes the name clears it once.
    """
    spark, name = shop.spark, f"{shop.schema}.fresh"
    release = shop.release(
        "5", fresh=FRESH, tags="CREATE TABLE {s}.tags (tag INT, extra INT, more INT);"
    )

    def take(progress: Progress) -> None:
        if progress.phase == "build":
            spark.sql(
                f"CREATE TABLE IF NOT EXISTS {name} (theirs INT) USING delta"
                f" LOCATION '{tmp_path}/taken'"
            )

    with pytest.raises(NotReconciled):
        shop.start(release, on_progress=take)
    status, state = shop.open().status(), shop.open().state()
    assert (status.release, status.pending) == ("5", 1)
    assert (status.failure or {})["step"] == f"create {name}"
    with pytest.raises(NotReconciled):
        shop.start(release)
    again = shop.open().state()
    assert (again.serial, again.operations) == (state.serial, state.operations)
    assert again.leases == state.leases
    spark.sql(f"DROP TABLE {name}")
    assert shop.start(release).outcome == "resumed"
    assert spark.table(name).columns == ["ours"]
    status, mended = shop.open().status(), shop.open().state()
    assert (status.pending, status.failure, mended.operations) == (0, None, {})
    assert mended.leases == state.leases
    assert shop.start(release).outcome == "unchanged"
    assert shop.open().state().version == mended.version
