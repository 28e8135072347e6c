"""Existing Delta tables are taken over where they lie, by one installation, all or none."""

from __future__ import annotations

import json
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from deltalake import DeltaTable, write_deltalake

from catalog_migrate.administration.adoption import LeftAlone, adopt, propose
from catalog_migrate.api import Catalog
from catalog_migrate.catalog.marks import Marked
from catalog_migrate.catalog.opening import create_catalog
from catalog_migrate.delta.seal import seal
from catalog_migrate.delta.table import shard_size, shard_version
from catalog_migrate.errors import AdoptedElsewhere, AdoptionRefused

from .conftest import (
    ORDERS,
    Killed,
    Place,
    killed_at,
    properties,
    release_of,
    rows_of,
    wanted,
)


def codes(error: AdoptionRefused) -> list[str]:
    """The codes of all reasons, sorted."""
    return sorted(problem.code for problem in error.problems)


class TestDryRun:
    def test_says_what_the_first_migration_does_and_writes_nothing(self, place: Place) -> None:
        """An equal table is unchanged, one of another shape is copied; not a byte is written."""
        same, other = place.table("same"), place.table("other", [1, 2, 3, 4])
        release = release_of(
            "CREATE TABLE shop.same (id BIGINT, qty INT);"
            "CREATE TABLE shop.other (id BIGINT, qty BIGINT);"
        )
        before = place.files()
        found = propose(
            place.log(), release, [wanted("shop.same", same), wanted("shop.other", other)],
            warehouse=place.warehouse(),
        )
        assert [(each.name, each.rows, each.first) for each in found.prospects] == [
            ("shop.other", 4, "migrate (copy)"), ("shop.same", 3, "unchanged"),
        ]
        assert found.serial is None
        assert place.files() == before

    def test_a_table_of_the_schema_that_the_release_lacks_is_left_alone(self, place: Place) -> None:
        """It is listed with the reason; the rest is adopted."""
        orders, strange = place.table("orders"), place.table("strange")
        found = propose(
            place.log(), release_of(ORDERS),
            [wanted("shop.orders", orders, asked=False),
             wanted("shop.strange", strange, asked=False)],
            warehouse=place.warehouse(),
        )
        assert [each.name for each in found.prospects] == ["shop.orders"]
        assert found.left_alone == (
            LeftAlone(wanted("shop.strange", strange).name, "the release does not describe it"),
        )

    def test_a_lossy_difference_counts_its_missing_decisions(self, place: Place) -> None:
        """A column that the release lacks needs a word before the first migration."""
        path = place.table("orders")
        found = propose(
            place.log(), release_of("CREATE TABLE shop.orders (id BIGINT);"),
            [wanted("shop.orders", path)], warehouse=place.warehouse(),
        )
        assert [each.first for each in found.prospects] == [
            "migrate (evolve), 1 decision missing"
        ]


class TestAdopt:
    def test_gives_id_and_fingerprint_and_marks_the_table(self, place: Place) -> None:
        """The rows stay, the catalog has the table, and the table says whose it is."""
        path = place.table("orders")
        files = set(DeltaTable(path).file_uris())
        done = adopt(
            place.log(), release_of(ORDERS), [wanted("shop.orders", path)],
            warehouse=place.warehouse(),
        )
        state = place.state()
        item = state.items["i1"]
        assert (item.shard, item.global_id, done.serial) == (path, "s1", state.serial)
        assert state.shards[path].state == "live"
        assert state.mappings["relation:shop.orders"].fingerprint.startswith("1:")
        assert set(DeltaTable(path).file_uris()) == files
        marks = properties(path)
        assert marks["catalog_migrate.lineage"] == state.lineage
        assert marks["catalog_migrate.name"] == "table:shop.orders"

    def test_the_adopted_table_equals_the_release(self, place: Place) -> None:
        """With layout, CHECK and comment as declared, the plan after it has nothing to do."""
        path = place.table(
            "orders", partition_by="qty", properties={"delta.appendOnly": "false"}
        )
        DeltaTable(path).alter.add_constraint({"positive": "id  >  0"})
        DeltaTable(path).alter.set_table_description("what they bought")
        release = release_of(
            "CREATE TABLE shop.orders (id BIGINT, qty INT, CHECK (id > 0))"
            " PARTITIONED BY (qty) COMMENT 'what they bought';"
        )
        done = adopt(
            place.log(), release, [wanted("shop.orders", path)], warehouse=place.warehouse()
        )
        assert [each.first for each in done.prospects] == ["unchanged"]
        assert done.plan.is_empty

    def test_into_a_catalog_that_has_a_release_in_force(self, place: Place) -> None:
        """More tables come later, with further ids."""
        release = release_of(ORDERS + "CREATE TABLE shop.more (id BIGINT, qty INT);")
        first, second = place.table("orders"), place.table("more")
        for name, path in (("shop.orders", first), ("shop.more", second)):
            adopt(place.log(), release, [wanted(name, path)], warehouse=place.warehouse())
        assert {item: row.shard for item, row in place.state().items.items()} == {
            "i1": first, "i2": second,
        }


class TestTwoInstallations:
    def test_the_second_finds_the_mark(self, place: Place) -> None:
        """It is refused with a typed error that names the first, and leaves no catalog behind."""
        path = place.table("orders")
        release = release_of(ORDERS)
        adopt(place.log("one"), release, [wanted("shop.orders", path)],
              warehouse=place.warehouse("one"))
        version = DeltaTable(path).version()
        with pytest.raises(AdoptedElsewhere) as refused:
            adopt(place.log("two"), release, [wanted("shop.orders", path)],
                  warehouse=place.warehouse("two"))
        assert place.state("one").lineage in str(refused.value)
        assert str(place.home / "one") in str(refused.value)
        assert DeltaTable(path).version() == version
        assert not (place.home / "two").exists()

    def test_the_one_that_loses_the_race_takes_its_marks_back(self, place: Place) -> None:
        """Another installation marks the second table in the moment between look and commit."""
        first, second = place.table("a"), place.table("b")
        release = release_of(
            "CREATE TABLE shop.a (id BIGINT, qty INT); CREATE TABLE shop.b (id BIGINT, qty INT);"
        )

        def race(step: str) -> None:
            if step == f"mark {second}":
                adopt(place.log("fast"), release, [wanted("shop.b", second)],
                      warehouse=place.warehouse("fast"))

        with pytest.raises(AdoptedElsewhere) as lost:
            adopt(place.log("slow"), release,
                  [wanted("shop.a", first), wanted("shop.b", second)],
                  warehouse=place.warehouse("slow"), on_step=race)
        assert isinstance(lost.value.__cause__, Marked)
        assert place.state("slow").items == {}
        assert properties(first)["catalog_migrate.lineage"] == ""
        assert properties(second)["catalog_migrate.lineage"] == place.state("fast").lineage
        # what was let go of may be adopted by the other
        adopt(place.log("fast"), release, [wanted("shop.a", first)],
              warehouse=place.warehouse("fast"))

    def test_tables_of_a_catalog_that_is_gone_are_taken_on_a_word(self, place: Place) -> None:
        """``--forget`` names the lineage whose marks count no more."""
        path = place.table("orders")
        release = release_of(ORDERS)
        adopt(place.log("gone"), release, [wanted("shop.orders", path)],
              warehouse=place.warehouse("gone"))
        lineage = place.state("gone").lineage
        shutil.rmtree(place.home / "gone")
        done = adopt(place.log("new"), release, [wanted("shop.orders", path)],
                     warehouse=place.warehouse("new"), forgotten=[lineage])
        assert done.serial is not None
        assert properties(path)["catalog_migrate.lineage"] == place.state("new").lineage


    def test_one_whose_catalog_stands_is_not_forgotten(self, place: Place) -> None:
        """A word too many: while the other catalog has the table in force, two would own its
        rows. It is free when that one has given it back, or is gone."""
        path = place.table("orders")
        adopt(place.log("other"), release_of(ORDERS), [wanted("shop.orders", path)],
              warehouse=place.warehouse("other"))
        theirs = place.state("other")
        before = place.files()
        with pytest.raises(AdoptedElsewhere) as refused:
            adopt(place.log(), release_of(ORDERS), [wanted("shop.orders", path)],
                  warehouse=place.warehouse(), forgotten=[theirs.lineage])
        assert f"whose catalog is still at {place.home}/other" in str(refused.value)
        assert place.files() == before
        (place.home / "other").rename(place.home / "gone")
        adopt(place.log(), release_of(ORDERS), [wanted("shop.orders", path)],
              warehouse=place.warehouse(), forgotten=[theirs.lineage])
        assert properties(path)["catalog_migrate.lineage"] == place.state().lineage

    def test_two_processes_of_one_installation(self, place: Place) -> None:
        """One adopts the table, the other is told that the catalog has it."""
        path = place.table("orders")
        create_catalog(place.log(), warehouse=place.warehouse())

        def run(_: int) -> str:
            try:
                adopt(place.log(), release_of(ORDERS), [wanted("shop.orders", path)],
                      warehouse=place.warehouse(), wait=120)
            except AdoptionRefused as refused:
                return ",".join(codes(refused))
            return "adopted"

        with ThreadPoolExecutor(2) as pool:
            found = sorted(pool.map(run, range(2)))
        assert found == ["CM0813,CM0814", "adopted"]
        assert list(place.state().items) == ["i1"]


class TestMeaninglessPlaces:
    def test_all_reasons_come_at_once_and_nothing_is_written(self, place: Place) -> None:
        """Inside the catalog, inside another table, no table, the same twice, undescribed."""
        outer = place.table("outer")
        inner = place.table("outer/inner")
        inside = str(place.home / "catalog" / "warehouse" / "t")
        write_deltalake(inside, rows_of([1]))
        twice = place.table("twice")
        nothing = str(place.home / "data" / "nothing")
        names = ("inner", "inside", "twice", "again", "nothing")
        release = release_of(
            "".join(f"CREATE TABLE shop.{name} (id BIGINT, qty INT);" for name in names)
        )
        before = place.files()
        with pytest.raises(AdoptionRefused) as refused:
            propose(
                place.log("other"), release,
                [wanted("shop.inner", inner), wanted("shop.inside", inside),
                 wanted("shop.twice", twice), wanted("shop.again", twice),
                 wanted("shop.nothing", nothing), wanted("shop.strange", outer)],
                warehouse=str(place.home / "catalog" / "warehouse"),
            )
        assert codes(refused.value) == ["CM0811", "CM0812", "CM0812", "CM0813", "CM0816"]
        assert place.files() == before

    def test_a_table_that_holds_another_is_refused(self, place: Place) -> None:
        """Two tables asked for, one inside the other: both are told."""
        outer, inner = place.table("outer"), place.table("outer/inner")
        release = release_of(
            "CREATE TABLE s.o (id BIGINT, qty INT); CREATE TABLE s.i (id BIGINT, qty INT);"
        )
        with pytest.raises(AdoptionRefused) as refused:
            propose(place.log(), release, [wanted("s.o", outer), wanted("s.i", inner)],
                    warehouse=place.warehouse())
        assert codes(refused.value) == ["CM0812", "CM0812"]

    def test_a_name_that_is_in_force_and_a_sealed_table(self, place: Place) -> None:
        """The catalog has an object of that name; a sealed table was replaced by another."""
        release = release_of(ORDERS + "CREATE TABLE shop.old (id BIGINT, qty INT);")
        adopt(place.log(), release, [wanted("shop.orders", place.table("orders"))],
              warehouse=place.warehouse())
        sealed = place.table("old")
        seal(sealed, follows=0, app_id="another", epoch=1)
        with pytest.raises(AdoptionRefused) as refused:
            propose(
                place.log(), release,
                [wanted("shop.orders", place.table("second")), wanted("shop.old", sealed)],
                warehouse=place.warehouse(),
            )
        assert codes(refused.value) == ["CM0814", "CM0818"]

    def test_a_feature_under_which_no_mark_can_be_written(self, place: Place) -> None:
        """A table is refused by the name of the feature, before anything is marked."""
        path = place.table("orders")
        log = Path(path) / "_delta_log" / f"{1:020d}.json"
        protocol = {"minReaderVersion": 1, "minWriterVersion": 7,
                    "writerFeatures": ["clustering", "domainMetadata", "madeUp"]}
        log.write_text(json.dumps({"protocol": protocol}) + "\n", encoding="utf-8")
        with pytest.raises(AdoptionRefused) as refused:
            propose(place.log(), release_of(ORDERS), [wanted("shop.orders", path)],
                    warehouse=place.warehouse())
        assert codes(refused.value) == ["CM0815"]
        assert "the table feature madeUp, which this version does not know" in str(refused.value)

    @pytest.mark.parametrize("readers", [[], ["catalogManaged"], ["madeUp"]])
    def test_a_feature_that_came_after_the_adoption_blocks_the_plan(
        self, place: Place, readers: list[str]
    ) -> None:
        """A release that changes the table is blocked, one that leaves it alone is not."""
        path = place.table("orders")
        adopt(place.log(), release_of(ORDERS), [wanted("shop.orders", path)],
              warehouse=place.warehouse())
        log = Path(path) / "_delta_log" / f"{shard_version(path) or 0:020d}.json"
        number = int(log.stem) + 1
        writers = [*readers, "inCommitTimestamp"] if readers else ["madeUp"]
        protocol = {"minReaderVersion": 3 if readers else 1, "minWriterVersion": 7,
                    **({"readerFeatures": readers} if readers else {}), "writerFeatures": writers}
        log.with_name(f"{number:020d}.json").write_text(json.dumps({"protocol": protocol}) + "\n")
        catalog = Catalog.open(place.log().uri)
        assert catalog.plan(release_of(ORDERS)).blocked == ()
        plan = catalog.plan(release_of("CREATE TABLE shop.orders (id BIGINT, qty BIGINT);"))
        assert [entry.code for entry in plan.blocked] == ["CM0336"]
        assert (readers or ["madeUp"])[0] in plan.blocked[0].reason


class TestInterrupted:
    @pytest.mark.parametrize("step", ["mark", "commit"])
    def test_a_killed_adoption_is_finished_by_the_same_call(self, place: Place, step: str) -> None:
        """Before the commit nothing is adopted; marks left behind are our own."""
        first, second = place.table("a"), place.table("b")
        release = release_of(
            "CREATE TABLE shop.a (id BIGINT, qty INT); CREATE TABLE shop.b (id BIGINT, qty INT);"
        )
        tables = [wanted("shop.a", first), wanted("shop.b", second)]
        at = f"mark {second}" if step == "mark" else step
        with pytest.raises(Killed):
            adopt(place.log(), release, tables, warehouse=place.warehouse(),
                  on_step=killed_at(at))
        assert place.state().items == {}
        done = adopt(place.log(), release, tables, warehouse=place.warehouse())
        assert done.serial == 1
        assert sorted(place.state().shards) == [first, second]

    def test_a_writer_that_appends_meanwhile_loses_no_row(self, place: Place) -> None:
        """Its rows are in the version that the catalog records."""
        path = place.table("orders")

        def append(step: str) -> None:
            if step.startswith("mark"):
                write_deltalake(path, rows_of([7, 8]), mode="append")

        adopt(place.log(), release_of(ORDERS), [wanted("shop.orders", path)],
              warehouse=place.warehouse(), on_step=append)
        assert place.state().shards[path].version == DeltaTable(path).version() == 2
        write_deltalake(path, rows_of([9]), mode="append")
        assert shard_size(path)[0] == 6


def test_an_empty_catalog_may_be_there_already(place: Place) -> None:
    """A crash right after the creation of the catalog is no hindrance."""
    create_catalog(place.log(), warehouse=place.warehouse())
    done = adopt(place.log(), release_of(ORDERS), [wanted("shop.orders", place.table("orders"))],
                 warehouse=place.warehouse())
    assert done.serial == 1
