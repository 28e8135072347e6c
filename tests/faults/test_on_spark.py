"""The same faults on real Spark: writers by name and by path that never pause, a disk that is full
in the middle of a copy, and files of shards and of the catalog's log that are gone or cut off."""

from __future__ import annotations

import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from catalog_migrate.api import Catalog
from catalog_migrate.errors import CatalogMigrateError
from catalog_migrate.testing.starts import migrate

from .test_disk import DAMAGE, MANY, commits, cut_off, leave, snapshot

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from catalog_migrate.hook import BootstrapReport

pytestmark = [pytest.mark.spark, pytest.mark.crash]

SECONDS = 120.0
LOUD = re.compile(
    r"catalog_migrate_sealed|DELTA_METADATA_CHANGED|DELTA_CONCURRENT|DELTA_PROTOCOL_CHANGED"
    r"|TABLE_OR_VIEW_NOT_FOUND|DELTA_SCHEMA_CHANGED|DELTA_TABLE_ID_MISMATCH"
)
"""What a writer is told: the seal, a change under its append, or a name that is being moved."""

TEXTS = {
    "1": "CREATE TABLE {s}.t (writer BIGINT, n INT, text STRING);",
    "2": "CREATE TABLE {s}.t (writer BIGINT, n BIGINT, text STRING);"
    "CREATE VIEW {s}.v (n BIGINT) AS SELECT n FROM {s}.t;",
}
"""Release 2 copies ``t``."""


class Shop:
    """An installation in the shared session, at release 1 with some rows."""

    def __init__(self, spark: SparkSession, home: Path, sources: Path, schema: str) -> None:
        self.spark = spark
        self.catalog = home / "catalog"
        self.sources = sources
        self.schema = schema
        self.table = f"{schema}.t"

    def start(self, name: str) -> BootstrapReport:
        """Start a release in this session."""
        from catalog_migrate.hook import bootstrap

        directory = self.sources / name
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "a.sql").write_text(TEXTS[name].replace("{s}", self.schema), encoding="utf-8")
        (directory / "release.toml").write_text(f'name = "{name}"\n', encoding="utf-8")
        return bootstrap(self.spark, release=directory, catalog=self.catalog)

    def load(self, rows: int) -> None:
        """Rows of writer 0 whose texts do not compress, in one file."""
        self.spark.range(rows).selectExpr(
            "0L AS writer", "CAST(id AS INT) AS n", "sha2(CAST(id AS STRING), 512) AS text"
        ).coalesce(1).write.insertInto(self.table)

    def shard(self) -> str:
        """Where the rows are."""
        location = Catalog.open(self.catalog).show(self.table)["location"]
        assert isinstance(location, str)
        return location

    def digest(self) -> tuple[int, int, int]:
        """Rows, numbers and texts of writer 0."""
        (row,) = self.spark.sql(
            "SELECT count(*) AS c, sum(n) AS n, sum(CAST(xxhash64(text) AS DECIMAL(38,0))) AS h"
            f" FROM {self.table} WHERE writer = 0"
        ).collect()
        return int(row.c), int(row.n), int(row.h)

    def require(self, release: str) -> None:
        """The release is in force, nothing is pending, no directory is left that nobody knows."""
        opened = Catalog.open(self.catalog)
        state = opened.state()
        status = opened.status()
        assert (status.release, status.pending, status.failure) == (release, 0, None)
        assert not state.intents
        warehouse = Path(state.config["warehouse"].value)
        kept = {path for path, shard in state.shards.items() if shard.state != "gone"}
        found = {str(p.relative_to(warehouse)) for p in warehouse.glob("*/*/*") if p.is_dir()}
        assert found == kept

    def forget(self) -> None:
        """Leave no name in the session, and nothing of these files in its memory."""
        for schema in (self.schema, "catalog_migrate"):
            self.spark.sql(f"DROP DATABASE IF EXISTS `{schema}` CASCADE")
        self.renew()

    def renew(self) -> None:
        """Look at files afresh, as a new process does."""
        self.spark.catalog.clearCache()
        jvm: Any = self.spark._jvm
        jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()


@pytest.fixture
def shops(
    spark: SparkSession, tmp_path: Path, schema_name: str
) -> Iterator[Callable[[Path], Shop]]:
    """Installations at release 1; their names are gone afterwards."""
    made: list[Shop] = []

    def make(home: Path) -> Shop:
        shop = Shop(spark, home, tmp_path / "releases", schema_name)
        made.append(shop)
        shop.forget()
        assert shop.start("1").outcome == "initialized"
        return shop

    yield make
    for shop in made:
        shop.forget()


class Writer:
    """Appends row after row from a thread, without a pause, until it is told to stop.

    ``append`` writes one row to where ``place`` says; after a refusal the place is asked again, and
    the same row is not sent twice.
    """

    def __init__(
        self, shop: Shop, number: int, place: Callable[[], str], *, until: int
    ) -> None:
        self.landed: list[int] = []
        self.refused: dict[int, str] = {}
        self.after = 0
        self._shop = shop
        self._number = number
        self._place = place
        self._until = until
        self._upgraded = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"writer {number}", daemon=True)

    def start(self) -> None:
        """Begin to append."""
        self._thread.start()

    def stop(self) -> None:
        """The upgrade is over: append a few more rows, then end."""
        self._upgraded.set()
        self._thread.join(SECONDS)
        assert not self._thread.is_alive(), self.refused

    def _run(self) -> None:
        number, deadline = 0, time.monotonic() + 2 * SECONDS
        place = self._place()
        while self.after < self._until and time.monotonic() < deadline:
            number += 1
            upgraded = self._upgraded.is_set()
            try:
                self._shop.spark.sql(
                    f"INSERT INTO {place} VALUES ({self._number}L, {number}, 'of a writer')"
                )
            except Exception as error:  # noqa: BLE001 - any error at the writer is a refusal
                self.refused[number] = str(error)
                place = self._place()
            else:
                self.landed.append(number)
                self.after += upgraded


@pytest.mark.parametrize("number", range(MANY))
def test_writers_by_name_and_by_path_lose_no_row(
    shops: Any, tmp_path: Path, number: int, record_property: Any
) -> None:
    """They append throughout an upgrade: what was acknowledged is there once, what was refused is
    not there and was refused with a reason, and both write to the new table in the end."""
    shop = shops(tmp_path / "site")
    by_name = Writer(shop, 1, lambda: shop.table, until=2)
    by_path = Writer(shop, 2, lambda: f"delta.`{shop.shard()}`", until=2)
    for writer in (by_name, by_path):
        writer.start()
    deadline = time.monotonic() + SECONDS
    while not (by_name.landed and by_path.landed):
        assert time.monotonic() < deadline, (by_name.refused, by_path.refused)
        time.sleep(0.02)
    old = shop.shard()
    report = shop.start("2")
    for writer in (by_name, by_path):
        writer.stop()
    assert report.outcome == "migrated"
    assert shop.shard() != old
    assert (by_name.after, by_path.after) == (2, 2)
    assert by_path.refused, "the writer by path never met the seal"
    rows = Counter(
        (row.writer, row.n) for row in shop.spark.table(shop.table).select("writer", "n").collect()
    )
    wanted = Counter((1, n) for n in by_name.landed) + Counter((2, n) for n in by_path.landed)
    record_property("rounds", 1)
    record_property("rows", wanted.total())
    record_property("refused", len(by_name.refused) + len(by_path.refused))
    record_property("lost", (wanted - rows).total())
    record_property("doubled", (rows - wanted).total())
    assert wanted - rows == Counter(), "acknowledged and lost"
    assert rows - wanted == Counter(), "doubled, or refused and there"
    for told in (*by_name.refused.values(), *by_path.refused.values()):
        assert LOUD.search(told), told
    shop.require("2")


@pytest.mark.soak
@pytest.mark.parametrize("room", [16, 64, 256, 512, 1024, 1536])
def test_a_disk_that_is_full_in_the_middle_of_a_copy(
    shops: Any, disk: Path, room: int, record_property: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The copy ends in a typed error and leaves no half of it; with room again it succeeds.

    There was no room to give the lease back either, so the next start waits until it has run out.
    """
    monkeypatch.setitem(migrate.__kwdefaults__, "ttl", 8.0)
    monkeypatch.setitem(migrate.__kwdefaults__, "margin", 2.0)
    shop = shops(disk)
    shop.load(12_000)
    before, old = shop.digest(), shop.shard()
    ballast = leave(disk, room)
    with pytest.raises(CatalogMigrateError) as caught:
        shop.start("2")
    assert caught.value.code.startswith("CM")
    assert caught.value.message
    ballast.unlink()
    assert (shop.digest(), shop.shard()) == (before, old)
    assert Catalog.open(shop.catalog).status().release == "1"
    shop.spark.sql(f"INSERT INTO {shop.table} VALUES (9, 9, 'x')")  # what was sealed is not now
    assert shop.start("2").outcome == "migrated"
    assert shop.digest() == before
    shop.require("2")
    record_property("rounds", 1)
    record_property("rows", before[0])


@pytest.mark.parametrize("damage", DAMAGE if MANY > 1 else [cut_off])
@pytest.mark.parametrize("which", ["data", "commit"] if MANY > 1 else ["data"])
def test_a_damaged_shard_is_not_copied_by_spark(
    shops: Any, tmp_path: Path, damage: Callable[[Path], None], which: str, record_property: Any
) -> None:
    """A file of rows or a commit that is gone or cut off ends the copy; mended, it succeeds."""
    shop = shops(tmp_path / "site")
    shop.load(200)
    before, shard = shop.digest(), Path(shop.shard())
    shop.spark.sql(f"INSERT INTO {shop.table} VALUES (9, 9, 'x')")
    # the newest commit that is gone cannot be told: a log without it is a whole, older one
    file = next(shard.glob("*.parquet")) if which == "data" else commits(shard)[-2]
    content = file.read_bytes()
    damage(file)
    (file.parent / f".{file.name}.crc").unlink(missing_ok=True)
    shop.renew()
    with pytest.raises(CatalogMigrateError) as caught:
        shop.start("2")
    assert "t" in str(caught.value)
    file.write_bytes(content)
    shop.renew()
    assert Catalog.open(shop.catalog).status().release == "1"
    assert shop.start("2").outcome == "migrated"
    assert shop.digest() == before
    shop.require("2")
    record_property("rounds", 1)


@pytest.mark.parametrize("damage", DAMAGE if MANY > 1 else [cut_off])
def test_a_damaged_log_stops_a_start_on_spark(
    shops: Any, tmp_path: Path, damage: Callable[[Path], None], record_property: Any
) -> None:
    """A commit of the catalog that is gone or cut off: a typed error, not one byte is written, and
    the session's names stay as they are."""
    shop = shops(tmp_path / "site")
    shop.load(50)
    before = shop.digest()
    found = commits(shop.catalog / "log")
    file = found[len(found) // 2]
    content = file.read_bytes()
    damage(file)
    written = snapshot(shop.catalog)
    for release in ("1", "2"):
        with pytest.raises(CatalogMigrateError) as caught:
            shop.start(release)
        assert caught.value.remedy
    assert snapshot(shop.catalog) == written
    assert shop.digest() == before
    file.write_bytes(content)
    assert shop.start("2").outcome == "migrated"
    assert shop.digest() == before
    shop.require("2")
    record_property("rounds", 1)
