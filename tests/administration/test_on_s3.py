"""Tables on S3 are adopted, followed, made again and exported as those on a disk are; no Spark."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, cast

import pytest
from deltalake import DeltaTable, write_deltalake

from catalog_migrate.administration.adoption import adopt
from catalog_migrate.administration.export import export_catalog
from catalog_migrate.administration.rebuild import Answers, rebuild
from catalog_migrate.administration.relocation import relocate
from catalog_migrate.catalog.delta_log import DeltaLog
from catalog_migrate.catalog.log import CatalogLog
from catalog_migrate.catalog.opening import open_log, read_state
from catalog_migrate.delta.table import tables_below
from catalog_migrate.engine.port import ShardSpec
from catalog_migrate.errors import AdoptionRefused, RelocationRefused
from catalog_migrate.store import store_at
from catalog_migrate.streams.checkpoint.directory import Checkpoint
from catalog_migrate.testing.engine import SimulatedEngine
from catalog_migrate.testing.world import World

from .conftest import ORDERS, Place, properties, release_of, rows_of, wanted
from .test_export import settle
from .test_ownership import QUERY, add_sink

if TYPE_CHECKING:
    from tests.services.object_store import ObjectStore

pytestmark = pytest.mark.services


class Bucket(Place):
    """A bucket with customers' tables, and catalogs with their rows, in it."""

    def __init__(self, address: str) -> None:
        super().__init__(cast("Path", address))

    def table(self, name: str, *_: object, **__: object) -> str:
        path = f"{self.home}/data/{name}"
        write_deltalake(path, rows_of([1, 2, 3]))
        return path

    def log(self, name: str = "catalog") -> CatalogLog:
        return open_log(f"{self.home}/{name}")

    def warehouse(self, name: str = "catalog") -> str:
        return f"{self.home}/{name}-rows"

    def copy(self, old: str, new: str) -> None:
        """What people do with a tool of the store."""
        def each(folder: str) -> None:
            for name in list(store_at(old).names(folder)):
                entry = f"{folder}/{name}".lstrip("/")
                if store_at(old).exists(f"{entry}/"):
                    each(entry)
                else:
                    store_at(new).put_if_absent(entry, store_at(old).read(entry))

        each("")


@pytest.fixture
def place(bucket: str, object_store: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> Bucket:
    """The store's options are variables of the process."""
    for name, value in object_store.options.items():
        monkeypatch.setenv(name.upper(), value)
    return Bucket(bucket)


def test_adopted_and_exported(place: Bucket) -> None:
    """By either spelling, once; marked, and unmarked again by an export."""
    path = place.table("orders")
    release = release_of(ORDERS)
    by_s3a = wanted("shop.orders", path.replace("s3:", "s3a:"))
    adopt(place.log(), release, [by_s3a], warehouse=place.warehouse())
    assert properties(path)["catalog_migrate.lineage"] == place.state().lineage
    assert [each.shard for each in place.state().items.values()] == [by_s3a.path]
    with pytest.raises(AdoptionRefused, match="the catalog has it already"):
        adopt(
            place.log(), release_of(ORDERS.replace("orders", "again"), "2"),
            [wanted("shop.again", path)], warehouse=place.warehouse(),
        )
    settle(place)
    engine = SimulatedEngine(World(), persistent=True)
    engine.create_shard(ShardSpec(by_s3a.path, place.state().items["i1"].definition.columns))
    export_catalog(engine, place.log())
    assert properties(path)["catalog_migrate.lineage"] == ""
    assert DeltaTable(path).file_uris()


@pytest.mark.parametrize(
    ("inside", "told"),
    [("catalog-rows/x", "inside the catalog's warehouse"), ("data/t/deep", "another table")],
)
def test_not_inside_something_else(place: Bucket, inside: str, told: str) -> None:
    """A migration would remove it one day with what it lies in."""
    place.table("t")
    path = f"{place.home}/{inside}"
    write_deltalake(path, rows_of([1]))
    with pytest.raises(AdoptionRefused) as found:
        adopt(
            place.log(), release_of(ORDERS), [wanted("shop.orders", path)],
            warehouse=place.warehouse(),
        )
    assert told in str(found.value)


def test_a_warehouse_that_was_moved(place: Bucket) -> None:
    """Followed where every table is, refused where one is not."""
    place.installed("catalog", "shop.orders", "shop.more")
    new = f"{place.home}/elsewhere"
    with pytest.raises(RelocationRefused, match="2 "):
        relocate(place.log(), warehouse=new)
    place.copy(place.warehouse(), new)
    store_at(place.warehouse()).delete()
    relocate(place.log(), warehouse=new)
    assert place.state().setting("warehouse") == new


def test_a_lost_catalog(place: Bucket, tmp_path: Path) -> None:
    """Made again in a directory, from its shards in the bucket."""
    log = DeltaLog(str(tmp_path / "catalog"))
    place.installed("catalog", "shop.orders")
    store_at(f"{place.home}/catalog").delete()
    (shard,) = tables_below(place.warehouse())
    lineage = properties(shard)["catalog_migrate.lineage"]
    rebuilt = rebuild(
        log, release_of(ORDERS), warehouse=place.warehouse(), answers=Answers(lineage=lineage),
    )
    assert [name for name, *_ in rebuilt.tables] == ["shop.orders"]
    assert read_state(log).setting("warehouse") == place.warehouse()


def test_the_sinks_of_a_copy(place: Bucket) -> None:
    """They go on in the bucket from where the original's are, under query ids of their own."""
    place.installed()
    add_sink(place)
    for name in ("catalog", "catalog-rows"):
        place.copy(f"{place.home}/{name}", f"{place.home}/{name.replace('catalog', 'copy')}")
    relocate(place.log("copy"), new_lineage=True, warehouse=place.warehouse("copy"))
    stream = place.state("copy").streams["i9"]
    mine = Checkpoint(f"{place.warehouse('copy')}/{stream.checkpoint}")
    assert mine.query_id not in (None, QUERY)
    assert (mine.latest_offsets, mine.latest_commits) == (0, 0)
    assert Checkpoint(f"{place.warehouse()}/_checkpoints/i9/1").query_id == QUERY
    assert not Path("s3:").exists()
