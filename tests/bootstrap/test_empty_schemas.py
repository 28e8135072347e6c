"""Schemas that lose their last object: ours go, whatever others made or use stays."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from catalog_migrate.hook import bootstrap
from catalog_migrate.store.address import local_path

pytestmark = pytest.mark.spark

LEFT = ("left_ours", "left_made", "left_viewed", "left_filed", "left_entered")
KEPT = "CREATE TABLE left_kept.t (id BIGINT);"


def test_a_schema_goes_with_its_last_object(spark: Any, tmp_path: Path) -> None:
    """One that the user made, has a view or a file in, or is in, stays; it may come again."""

    def start(name: str, sql: str) -> str:
        release = tmp_path / f"release-{name}"
        release.mkdir(exist_ok=True)
        (release / "all.sql").write_text(sql)
        (release / "release.toml").write_text(f'name = "{name}"\n')
        return bootstrap(spark, release=release, catalog=tmp_path / "catalog").outcome

    def standing() -> set[str]:
        return {row[0] for row in spark.sql("SHOW SCHEMAS").collect() if row[0] in LEFT}

    objects = "".join(
        f"CREATE TABLE {schema}.t (id BIGINT); CREATE VIEW {schema}.v (id BIGINT) AS"
        f" SELECT id FROM {schema}.t; CREATE FUNCTION {schema}.f (x INT) RETURNS INT RETURN x;"
        for schema in LEFT
    )
    spark.sql("CREATE SCHEMA left_made")
    try:
        start("1", KEPT + objects)
        spark.sql("CREATE VIEW left_viewed.mine AS SELECT 1 AS a")
        described = spark.sql("DESCRIBE SCHEMA left_filed").collect()
        place = next(row[1] for row in described if row[0] == "Location")
        mine = Path(local_path(place)) / "mine.txt"
        mine.parent.mkdir(parents=True, exist_ok=True)
        mine.write_text("kept")
        spark.sql("USE left_entered")
        assert standing() == set(LEFT)

        start("2", KEPT)
        assert standing() == set(LEFT) - {"left_ours"}
        assert mine.read_text() == "kept"
        assert spark.table("left_viewed.mine").count() == 1

        spark.sql("USE default")
        start("3", KEPT + "CREATE TABLE left_ours.t (id BIGINT);")
        assert standing() == set(LEFT)
        start("4", KEPT)
        assert standing() == set(LEFT) - {"left_ours"}
        assert start("4", KEPT) == "unchanged"
    finally:
        spark.sql("USE default")
        for row in spark.sql("SHOW SCHEMAS").collect():
            if row[0] != "default":
                spark.sql(f"DROP SCHEMA {row[0]} CASCADE")
