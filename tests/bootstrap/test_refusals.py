"""What stops an upgrade, and what it leaves: the old release in force, whole and writable."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import Row

from catalog_migrate.cli.main import main
from catalog_migrate.engine.spark import seals
from catalog_migrate.errors import CatalogMigrateError, MigrationBlocked, NotReconciled
from catalog_migrate.planner.proofs import DOES_NOT_BIND, NAME_HELD

pytestmark = pytest.mark.spark

RETYPED = (
    "CREATE TABLE {s}.orders (id BIGINT NOT NULL, qty INT USING CAST(qty AS INT), note STRING);"
)


@pytest.fixture
def filled(shop: Any) -> Any:
    """The shop at release 1 with two orders, one of which has a quantity that is no number."""
    shop.start(shop.release("1"))
    shop.append("orders", [(1, "10", "a"), (2, "a dozen", None)])
    return shop


def test_a_view_that_does_not_bind_blocks_before_anything_is_done(filled: Any) -> None:
    """The refusal names the view and Spark's reason; not a row, name or file has changed."""
    release = filled.release(
        "2",
        orders="CREATE TABLE {s}.orders (id BIGINT NOT NULL, qty STRING, note STRING, x INT);",
        big="CREATE VIEW {s}.big (id BIGINT, note STRING) AS SELECT id, remark FROM {s}.orders;",
    )
    state = filled.open().state()
    with pytest.raises(MigrationBlocked) as caught:
        filled.start(release)
    (blocked,) = caught.value.plan.blocked
    assert (blocked.name, blocked.code) == (f"{filled.schema}.big", DOES_NOT_BIND)
    assert "UNRESOLVED_COLUMN" in blocked.reason
    assert "remark" in blocked.reason
    after = filled.open().state()
    assert (after.serial, after.intents) == (state.serial, {})
    assert after.shards == state.shards
    assert filled.open().status().release == "1"
    assert filled.rows("big") == [Row(id=2, note=None)]


def test_a_dependent_that_no_longer_binds_blocks_too(filled: Any) -> None:
    """A view whose own text did not change is proven against its new parents."""
    release = filled.release(
        "2",
        orders="CREATE TABLE {s}.orders (id BIGINT NOT NULL, qty STRING, remark STRING"
        " RENAMED FROM note);",
    )
    with pytest.raises(MigrationBlocked) as caught:
        filled.start(release)
    assert [b.name for b in caught.value.plan.blocked] == [f"{filled.schema}.big"]
    assert filled.open().status().release == "1"


def test_a_row_that_the_expression_refuses_stops_the_upgrade(filled: Any) -> None:
    """The error names table, column and value, and what to do, without the rest of the row.

    The old table is in force, unsealed and writable.
    """
    old = filled.shard("orders")
    filled.spark.sql(f"UPDATE {filled.schema}.orders SET note = 'private' WHERE id = 2")
    with pytest.raises(CatalogMigrateError) as caught:
        filled.start(filled.release("2", orders=RETYPED.replace("CAST(qty AS INT)", "qty")))
    text = str(caught.value)
    assert f"{filled.schema}.orders" in text or f"{filled.schema}/orders" in text
    assert "column `qty` USING qty fails on a row with qty=a dozen: " in text
    assert "; the table is as it was" in text
    assert "remedy: the old release is in force; correct those rows of " in text
    assert f"{filled.schema}.orders, or the USING" in text
    assert "private" not in text  # nothing of the row but what was converted
    status = filled.open().status()
    assert (status.release, status.pending, filled.open().state().intents) == ("1", 0, {})
    assert filled.shard("orders") == old
    filled.append("orders", [(3, "30", None)])
    assert [row.id for row in filled.rows("orders")] == [1, 2, 3]
    directories = (filled.catalog / "warehouse" / filled.schema / "orders").iterdir()
    assert [str(path) for path in directories] == [old]


def test_after_the_row_is_mended_the_upgrade_goes_through(filled: Any) -> None:
    """The very same release is applied once the row that it refused is right."""
    release = filled.release("2", orders=RETYPED)
    with pytest.raises(CatalogMigrateError):
        filled.start(release)
    filled.spark.sql(f"UPDATE {filled.schema}.orders SET qty = '12' WHERE id = 2")
    assert filled.start(release).outcome == "migrated"
    assert filled.rows("orders") == [Row(id=1, qty=10, note="a"), Row(id=2, qty=12, note=None)]


def test_a_failure_after_other_tables_were_built_unseals_all(filled: Any) -> None:
    """Two tables are copied and one fails: both old shards take rows again, no new one is left."""
    shards = {filled.shard("orders"), filled.shard("tags")}
    filled.append("tags", [("7",)])
    with pytest.raises(CatalogMigrateError):
        filled.start(
            filled.release(
                "2", orders=RETYPED, tags="CREATE TABLE {s}.tags (tag INT USING CAST(tag AS INT));"
            )
        )
    filled.append("tags", [("eight",)])
    filled.append("orders", [(3, None, None)])
    assert [row.tag for row in filled.rows("tags")] == ["7", "eight"]
    from catalog_migrate.engine.spark.engine import SparkEngine

    left = SparkEngine(filled.spark).list_shards(str(filled.catalog / "warehouse" / filled.schema))
    assert set(left) == shards


def test_a_seal_that_another_spark_wrote_over_stops_the_upgrade(
    filled: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a local file system a Spark may rename its commit over a seal, and is told that its row
    is in the table. The upgrade notices, and the next one takes that row along."""
    shard = filled.shard("tags")
    release = filled.release(
        "2", tags="CREATE TABLE {s}.tags (tag INT USING CAST(tag AS INT));"
    )
    seal = seals.seal

    def written_over(path: str, **holder: Any) -> int:
        before = tmp_path / "before"
        shutil.copytree(path, before)  # what the other Spark saw when it looked
        version = seal(path, **holder)
        filled.spark.sql(f"INSERT INTO delta.`{before}` VALUES ('7')")
        for data in before.glob("*.parquet"):
            shutil.copy(data, path)
        theirs = before / "_delta_log" / f"{version:020d}.json"
        os.replace(theirs, Path(path) / "_delta_log" / theirs.name)
        return version

    monkeypatch.setattr(seals, "seal", written_over)
    with pytest.raises(CatalogMigrateError, match="written over by another writer") as caught:
        filled.start(release)
    assert "start again" in (caught.value.remedy or "")
    assert (filled.open().status().release, filled.shard("tags")) == ("1", shard)
    monkeypatch.setattr(seals, "seal", seal)
    assert filled.start(release).outcome == "migrated"
    assert [row.tag for row in filled.rows("tags")] == [7]


def test_a_foreign_table_under_a_new_name_blocks_and_is_left_alone(
    filled: Any, tmp_path: Any
) -> None:
    """A table of somebody else under the name of a new built-in is named and stays as it is."""
    spark, name = filled.spark, f"{filled.schema}.fresh"
    spark.sql(f"CREATE TABLE {name} (theirs INT) USING delta LOCATION '{tmp_path}/theirs'")
    spark.sql(f"INSERT INTO {name} VALUES (42)")
    before = filled.open().state()
    rows = {path: facts for path, facts in filled.listing().items() if "/warehouse" in path}
    release = filled.release("2", fresh="CREATE TABLE {s}.fresh (ours STRING);")
    with pytest.raises(MigrationBlocked) as caught:
        filled.start(release)
    (blocked,) = caught.value.plan.blocked
    assert (caught.value.code, caught.value.exit_code) == ("CM0300", 3)
    assert (blocked.name, blocked.code) == (name, NAME_HELD)
    assert blocked.remedy == (
        f"take a Delta table over, with its rows: catalog-migrate init --adopt --table {name}; or"
        f" rename or drop what stands under {name}; it is never replaced"
    )
    assert "theirs" in blocked.reason
    after = filled.open().state()
    assert (after.serial, after.shards, after.intents) == (before.serial, before.shards, {})
    assert rows.items() <= filled.listing().items()
    assert spark.table(name).collect() == [Row(theirs=42)]
    spark.sql(f"DROP TABLE {name}")
    assert filled.start(release).outcome == "migrated"
    assert spark.table(name).columns == ["ours"]


def test_what_cannot_be_taken_after_the_commit_is_named(filled: Any, tmp_path: Any) -> None:
    """A name taken by others after the commit is NotReconciled and mended by the next start."""
    spark, name = filled.spark, f"{filled.schema}.tags"
    filled.forget()
    spark.sql(f"CREATE DATABASE {filled.schema}")
    spark.sql(f"CREATE TABLE {name} (theirs INT) USING delta LOCATION '{tmp_path}/theirs'")
    with pytest.raises(NotReconciled) as caught:
        filled.start(filled.release("1"))
    assert caught.value.exit_code == 6
    assert [(f.step, f.name) for f in caught.value.failures] == [("create", name)]
    assert filled.rows("big") == [Row(id=2, note=None)]
    assert spark.table(name).columns == ["theirs"]
    spark.sql(f"DROP TABLE {name}")
    assert filled.start(filled.release("1")).outcome == "unchanged"
    assert spark.table(name).columns == ["tag"]


def test_a_check_that_an_old_row_breaks_stops_the_upgrade(filled: Any) -> None:
    """A new CHECK that a row breaks is refused before the commit; the old release stays."""
    filled.append("tags", [("x",)])
    with pytest.raises(CatalogMigrateError, match="tags"):
        filled.start(
            filled.release("2", tags="CREATE TABLE {s}.tags (tag STRING, CHECK (tag <> 'x'));")
        )
    assert (filled.open().status().release, filled.open().status().pending) == ("1", 0)
    filled.append("tags", [("y",)])


def test_a_change_refused_after_the_commit_becomes_a_copy(filled: Any) -> None:
    """A column that somebody added behind our back refuses the change in place: the table is
    copied instead, with its rows, and nothing stays pending.
    """
    spark, shard = filled.spark, filled.shard("tags")
    spark.sql(f"INSERT INTO {filled.schema}.tags VALUES ('a'), ('b')")
    spark.sql(f"ALTER TABLE {filled.schema}.tags ADD COLUMN extra STRING")
    release = filled.release("2", tags="CREATE TABLE {s}.tags (tag STRING, extra INT);")
    assert filled.start(release).outcome == "migrated"
    status = filled.open().status()
    assert (status.release, status.failure, status.pending) == ("2", None, 0)
    assert filled.shard("tags") != shard
    rows = filled.rows("tags")
    assert sorted(row.tag for row in rows) == ["a", "b"]
    assert {row.extra for row in rows} == {None}
    assert dict(spark.table(f"{filled.schema}.tags").dtypes) == {"tag": "string", "extra": "int"}
    assert filled.start(release).outcome == "unchanged"


def test_status_names_the_step_that_fails(
    filled: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """A change in place that Spark refuses, of a table that cannot be copied either: ``status``
    names step, error class, attempts and the next command at each try, until it is mended.
    """
    spark, shard = filled.spark, Path(filled.shard("tags"))
    spark.sql(f"INSERT INTO {filled.schema}.tags VALUES ('a')")
    spark.sql(f"ALTER TABLE {filled.schema}.tags ADD COLUMN extra STRING")
    (data,) = shard.glob("*.parquet")
    away = data.rename(filled.home / "away")
    release = filled.release("2", tags="CREATE TABLE {s}.tags (tag STRING, extra INT);")
    for _ in range(2):
        with pytest.raises(NotReconciled) as caught:
            filled.start(release)
        assert caught.value.exit_code == 6
        status = filled.open().status()
        assert status.release == "2"
        assert status.failure is not None
        assert status.failure["step"] == f"evolve {filled.schema}.tags"
        assert status.failure["condition"] == "DELTA_ALTER_TABLE_CHANGE_COL_NOT_SUPPORTED"
        assert "extra" in status.failure["reason"]
        assert "the copy instead failed too" in status.failure["reason"]
        assert any(entry.startswith(f"evolve of {filled.schema}/tags/") for entry in status.work)
        assert main(["status", "--catalog", str(filled.catalog)]) == 0
        lines = capsys.readouterr().out.splitlines()
        assert f"  step: evolve {filled.schema}.tags" in lines
        assert "  condition: DELTA_ALTER_TABLE_CHANGE_COL_NOT_SUPPORTED" in lines
        assert "  attempts: 1" in lines
        assert lines[-1] == "next       catalog-migrate bootstrap, or start the application"
    away.rename(data)
    assert filled.start(release).outcome == "resumed"
    status = filled.open().status()
    assert (status.failure, status.pending) == (None, 0)
    assert filled.rows("tags") == [Row(tag="a", extra=None)]
