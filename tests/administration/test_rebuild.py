"""A lost log is made again from shards and the release; what cannot be known is asked or listed."""

from __future__ import annotations

import multiprocessing
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable, write_deltalake

from catalog_migrate.administration.adoption import adopt
from catalog_migrate.administration.rebuild import Answers, rebuild
from catalog_migrate.api import Catalog
from catalog_migrate.catalog.delta_log import DeltaLog
from catalog_migrate.catalog.marks import put_mark, refuse_lost
from catalog_migrate.catalog.opening import create_catalog
from catalog_migrate.delta.seal import fence, seal
from catalog_migrate.engine.port import Registration
from catalog_migrate.errors import (
    CatalogCorrupt,
    CatalogLost,
    CatalogWriteRefused,
    NotACatalog,
    RebuildRefused,
)
from catalog_migrate.model.names import ItemName, number_of
from catalog_migrate.planner.baseline import Baseline
from catalog_migrate.planner.planning import plan_migration
from catalog_migrate.store.local import LocalStore
from tests.decisions import Changes, commit

from .conftest import ORDERS, Killed, Place, killed_at, properties, release_of, rows_of, wanted


def delta_log(place: Place, name: str = "catalog") -> DeltaLog:
    """The log, which must be one of files."""
    log = place.log(name)
    assert isinstance(log, DeltaLog)
    return log


def lose(place: Place, name: str = "catalog") -> None:
    """Remove the log and its heartbeats; the warehouse stays."""
    for part in ("log", "renewals", "audit"):
        shutil.rmtree(place.home / name / part, ignore_errors=True)


def codes(error: RebuildRefused) -> list[str]:
    """The codes of all questions, sorted."""
    return sorted(problem.code for problem in error.problems)


def _rebuild_as_nobody(home: str, name: str, answers: Any) -> None:
    """Runs in a process of its own, which gives up its rights once everything is loaded."""
    import deltalake  # noqa: F401 - loaded while its files can still be read

    release = release_of(ORDERS)
    log = DeltaLog(f"{home}/{name}")
    if os.geteuid() == 0:
        os.setgroups([])
        os.setgid(65534)
        os.setuid(65534)
    try:
        rebuild(log, release, warehouse=f"{home}/catalog/warehouse", dry_run=True)
        answers.put(("written", [], "", ""))
    except RebuildRefused as error:
        answers.put(("RebuildRefused", codes(error), error.message, error.problems[0].remedy))
    except Exception as error:  # noqa: BLE001 - told to the test, which expects none
        answers.put((type(error).__name__, [], str(error), ""))


class TestRebuild:
    def test_finds_tables_ids_and_lineage_again(self, place: Place) -> None:
        """The next plan with the release that was in force has nothing to do for the tables."""
        before = place.installed("catalog", "shop.a", "shop.b")
        release = release_of(
            "CREATE TABLE shop.a (id BIGINT, qty INT); CREATE TABLE shop.b (id BIGINT, qty INT);"
        )
        lose(place)
        with pytest.raises(NotACatalog):
            place.state()
        done = rebuild(delta_log(place), release, warehouse=place.warehouse())
        state = place.state()
        assert state.lineage == before.lineage == done.lineage
        assert {i: row.shard for i, row in state.items.items()} == {
            i: row.shard for i, row in before.items.items()
        }
        assert {m: row.fingerprint for m, row in state.mappings.items()} == {
            m: row.fingerprint for m, row in before.mappings.items()
        }
        plan = plan_migration(Baseline.from_state(state), release).plan
        assert plan.is_empty
        assert any("history" in line for line in done.unknown)

    def test_ids_that_were_handed_out_never_come_back(self, place: Place) -> None:
        """Counters start far above everything that is still known."""
        before = place.installed()
        lose(place)
        rebuild(delta_log(place), release_of(ORDERS), warehouse=place.warehouse())
        state = place.state()
        for letter in "isu":
            assert state.allocators[letter].next > before.allocators[letter].next + 1000
        assert number_of(state.items["i1"].global_id) > 1000
        assert state.serial > before.serial + 1000

    def test_nor_does_one_of_a_catalog_that_is_lost_again(self, place: Place) -> None:
        """What was handed out after the first rebuild is passed over by the second: a source that
        got an id again would go on from the checkpoint of another."""
        place.installed()
        lose(place)
        rebuild(delta_log(place), release_of(ORDERS), warehouse=place.warehouse())
        first = place.state()
        source, before = first.allocators["i"].next, first.items["i1"].global_id
        checkpoint = place.home / "catalog" / "warehouse" / "_checkpoints" / f"i{source}" / "1"
        checkpoint.mkdir(parents=True)
        lose(place)
        rebuild(delta_log(place), release_of(ORDERS), warehouse=place.warehouse())
        second = place.state()
        assert set(second.items) == {"i1"}
        for letter in "isu":
            assert second.allocators[letter].next > first.allocators[letter].next + 1000
        assert second.items["i1"].global_id != before
        assert second.serial > first.serial + 1000

    def test_epochs_of_a_catalog_that_is_lost_again_stay_above_those_in_its_shards(
        self, place: Place
    ) -> None:
        """A holder of before can never pass for a later one, nor keep the present from sealing."""
        place.installed()
        lose(place)
        rebuild(delta_log(place), release_of(ORDERS), warehouse=place.warehouse())
        first = place.state()
        path = f"{place.warehouse()}/{first.items['i1'].shard}"
        fence(path, first.app_id, first.leases["migration"].epoch + 7)
        lose(place)
        rebuild(delta_log(place), release_of(ORDERS), warehouse=place.warehouse())
        epoch = place.state().leases["migration"].epoch + 1
        seal(path, follows=DeltaTable(path).version(), app_id=first.app_id, epoch=epoch)

    def test_a_table_that_somebody_marks_meanwhile_is_his(self, place: Place) -> None:
        """An unmarked table that is named, and that another installation adopts before we come
        to mark it: nothing is made again, and its mark stays."""
        place.installed("other", "shop.x")
        path = place.table("orders")
        create_catalog(place.log(), warehouse=place.warehouse())
        lose(place)

        def taken(step: str) -> None:
            if step == "mark":
                adopt(place.log("other"), release_of(ORDERS), [wanted("shop.orders", path)],
                      warehouse="ignored")

        with pytest.raises(RebuildRefused) as refused:
            rebuild(delta_log(place), release_of(ORDERS), warehouse=place.warehouse(),
                    answers=Answers(named={"shop.orders": path}), on_step=taken)
        assert codes(refused.value) == ["CM0835"]
        assert properties(path)["catalog_migrate.lineage"] == place.state("other").lineage
        assert not place.log().exists()

    def test_tables_of_a_catalog_on_an_object_store(self, place: Place) -> None:
        """Whether that still stands is not known here: refused until people say that it is gone."""
        before = place.installed()
        shard = f"{place.warehouse()}/{before.items['i1'].shard}"
        put_mark(shard, {"catalog_migrate.home": "s3://bucket/catalog"}, lambda _: True)
        lose(place)
        with pytest.raises(RebuildRefused) as refused:
            rebuild(delta_log(place, "new"), release_of(ORDERS), warehouse=place.warehouse())
        assert codes(refused.value) == ["CM0835"]
        assert not (place.home / "new").exists()
        rebuild(delta_log(place, "new"), release_of(ORDERS), warehouse=place.warehouse(),
                answers=Answers(lineage=before.lineage))
        assert place.state("new").lineage == before.lineage

    def test_a_corrupt_log_is_moved_away_and_not_removed(self, place: Place) -> None:
        """A cut commit file is what it was, in another place."""
        place.installed()
        cut = next((place.home / "catalog" / "log" / "_delta_log").glob("*1.json"))
        text = cut.read_text(encoding="utf-8")
        cut.write_text(text[: len(text) // 2], encoding="utf-8")
        done = rebuild(delta_log(place), release_of(ORDERS), warehouse=place.warehouse())
        assert done.set_aside is not None
        kept = Path(done.set_aside) / "log" / "_delta_log" / cut.name
        assert kept.read_text(encoding="utf-8") == text[: len(text) // 2]
        assert set(place.state().items) == {"i1"}

    def test_a_dry_run_writes_nothing(self, place: Place) -> None:
        """It says what would be found."""
        place.installed()
        lose(place)
        before = place.files()
        done = rebuild(delta_log(place), release_of(ORDERS), warehouse=place.warehouse(),
                       dry_run=True)
        assert [(name, item) for name, item, _ in done.tables] == [("shop.orders", "i1")]
        assert place.files() == before

    def test_a_whole_log_is_never_made_again(self, place: Place) -> None:
        """Nothing is lost, so nothing is forgotten."""
        place.installed()
        with pytest.raises(RebuildRefused) as refused:
            rebuild(delta_log(place), release_of(ORDERS), warehouse=place.warehouse())
        assert codes(refused.value) == ["CM0831"]

    def test_a_second_catalog_of_the_same_rows(self, place: Place) -> None:
        """A mistyped address: the tables say whose they are, and that catalog is whole."""
        place.installed()
        before = place.files()
        with pytest.raises(RebuildRefused, match="is whole") as refused:
            rebuild(delta_log(place, "catlog"), release_of(ORDERS), warehouse=place.warehouse())
        assert codes(refused.value) == ["CM0831"]
        assert f"the catalog at {place.home / 'catalog'} is whole" in refused.value.message
        assert place.files() == before

    def test_is_at_home_in_the_new_place_by_its_tables_marks_too(self, place: Place) -> None:
        """When that one is lost as well, no empty catalog is made beside its rows."""
        place.installed()
        shutil.move(place.home / "catalog" / "warehouse", place.home / "rows")
        shutil.rmtree(place.home / "catalog")
        rows = str(place.home / "rows")
        rebuild(delta_log(place, "new"), release_of(ORDERS), warehouse=rows)
        shutil.rmtree(place.home / "new")
        with pytest.raises(CatalogLost):
            refuse_lost(delta_log(place, "new"), rows)

    def test_a_catalog_that_is_gone_is_made_again_elsewhere(self, place: Place) -> None:
        """Where nothing stands at the home of the tables, another place will do; nor does a
        catalog of somebody else's that stands there now keep them."""
        before = place.installed()
        lose(place)
        (place.home / "catalog" / "warehouse").rename(place.home / "warehouse")
        rebuild(delta_log(place, "other"), release_of(ORDERS),
                warehouse=str(place.home / "warehouse"))
        assert place.state("other").lineage == before.lineage
        shutil.rmtree(place.home / "other")
        place.installed()
        rebuild(delta_log(place, "other"), release_of(ORDERS),
                warehouse=str(place.home / "warehouse"))
        assert place.state("other").lineage == before.lineage != place.state().lineage

    @pytest.mark.parametrize("name", ["catalog", "catlog"])
    @pytest.mark.parametrize("what", ["log/_delta_log/*1.json", "log/_delta_log",
                                      "log/*.parquet", "log"])
    def test_a_log_that_may_not_be_read_is_not_lost(
        self, place: Place, what: str, name: str
    ) -> None:
        """Another user's files: refused with whose right is missing, here and at its home."""
        place.installed()
        for parent in (place.home, *place.home.parents):
            if parent.stat().st_uid == os.geteuid() and parent.stat().st_mode & 0o005 != 0o005:
                parent.chmod(0o755)
        before = place.files()
        hidden = list((place.home / "catalog").glob(what))
        modes = [path.stat().st_mode for path in hidden]
        for path in hidden:
            path.chmod(0)
        spawn = multiprocessing.get_context("spawn")
        answers = spawn.Queue()
        child = spawn.Process(target=_rebuild_as_nobody, args=(str(place.home), name, answers))
        child.start()
        try:
            kind, found, text, remedy = answers.get(timeout=120)
            child.join(60)
        finally:
            for path, mode in zip(hidden, modes, strict=True):
                path.chmod(mode)
        assert (kind, found) == ("RebuildRefused", ["CM0838"])
        assert "does not say that it is lost" in text
        assert "make it readable for this user" in remedy
        assert "backup" not in remedy
        assert place.files() == before

    def test_a_disk_that_does_not_answer(
        self, place: Place, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """EIO says nothing of the log either: try again, and no word of rebuilding."""
        place.installed()
        read = LocalStore.read

        def fails(store: LocalStore, name: str) -> bytes:
            if name.endswith("1.json"):
                raise OSError(5, "Input/output error")
            return read(store, name)

        monkeypatch.setattr(LocalStore, "read", fails)
        before = place.files()
        with pytest.raises(CatalogCorrupt, match="Input/output error") as corrupt:
            place.state()
        assert "mount answers" in str(corrupt.value.remedy)
        with pytest.raises(RebuildRefused) as refused:
            rebuild(delta_log(place), release_of(ORDERS), warehouse=place.warehouse())
        assert codes(refused.value) == ["CM0838"]
        assert place.files() == before

    @pytest.mark.parametrize("step", ["move the log away", "create"])
    def test_killed_in_between_is_finished_by_the_same_call(self, place: Place, step: str) -> None:
        """Until the log is there again nobody takes the place for an empty one."""
        place.installed()
        (place.home / "catalog" / "log" / "_delta_log" / f"{0:020d}.json").unlink()
        with pytest.raises(Killed):
            rebuild(delta_log(place), release_of(ORDERS), warehouse=place.warehouse(),
                    on_step=killed_at(step))
        if step == "create":
            with pytest.raises(NotACatalog) as between:
                place.state()
            assert "the same catalog-migrate rebuild again" in between.value.remedy
        rebuild(delta_log(place), release_of(ORDERS), warehouse=place.warehouse())
        assert set(place.state().items) == {"i1"}
        commit(place.log(), lambda _: Changes(), kind="test")


class TestQuestions:
    def test_a_table_without_a_shard_is_asked_for(self, place: Place) -> None:
        """An adopted table lies elsewhere; one without rows is said to be missing."""
        adopted = place.table("orders")
        place.installed("catalog", "shop.a")
        adopt(place.log(), release_of(ORDERS), [wanted("shop.orders", adopted)],
              warehouse="ignored")
        release = release_of(
            ORDERS + "CREATE TABLE shop.a (id BIGINT, qty INT); CREATE TABLE shop.none (id INT);"
        )
        lose(place)
        before = place.files()
        with pytest.raises(RebuildRefused) as refused:
            rebuild(delta_log(place), release, warehouse=place.warehouse())
        assert codes(refused.value) == ["CM0834", "CM0834"]
        assert place.files() == before
        rebuild(delta_log(place), release, warehouse=place.warehouse(),
                answers=Answers(named={"shop.orders": adopted}, missing=["shop.none"]))
        assert {row.shard for row in place.state().items.values()} >= {adopted}
        assert len(place.state().items) == 2

    def test_two_shards_without_a_seal(self, place: Place) -> None:
        """Which one is the table is asked; a name in a metastore answers it, or a word."""
        state = place.installed()
        definition = state.items["i1"].definition
        other = place.shard(state, "i1", definition, "shop/orders/" + "f" * 32, [9])
        lose(place)
        with pytest.raises(RebuildRefused) as refused:
            rebuild(delta_log(place), release_of(ORDERS), warehouse=place.warehouse())
        assert codes(refused.value) == ["CM0832"]
        done = rebuild(
            delta_log(place), release_of(ORDERS), warehouse=place.warehouse(),
            registrations=[Registration(ItemName("shop", "orders"), "table", other)],
            dry_run=True,
        )
        assert done.tables[0][2] == "shop/orders/" + "f" * 32
        done = rebuild(delta_log(place), release_of(ORDERS), warehouse=place.warehouse(),
                       answers=Answers(named={"shop.orders": other}))
        assert any("never committed" in line for line in done.left_alone)

    def test_an_attempt_that_was_never_committed_is_left_alone(self, place: Place) -> None:
        """A copy of an unsealed shard was not in force; the next start knows nothing of it."""
        state = place.installed()
        item = state.items["i1"]
        attempt = place.shard(state, "i1", item.definition, "shop/orders/" + "f" * 32, [1],
                              source=item.shard)
        lose(place)
        done = rebuild(delta_log(place), release_of(ORDERS), warehouse=place.warehouse())
        assert done.tables == (("shop.orders", "i1", str(item.shard)),)
        assert [line.partition(":")[0] for line in done.left_alone] == [attempt]

    def test_a_migrated_table_is_its_newest_shard(self, place: Place) -> None:
        """The sealed one was replaced; a copy with fewer rows than it is asked about."""
        state = place.installed()
        item = state.items["i1"]
        path = place.shard(state, "i1", item.definition, "shop/orders/" + "f" * 32, [1, 2],
                           source=item.shard)
        seal(f"{place.warehouse()}/{item.shard}", follows=1, app_id="x", epoch=1)
        lose(place)
        with pytest.raises(RebuildRefused) as refused:
            rebuild(delta_log(place), release_of(ORDERS), warehouse=place.warehouse())
        assert codes(refused.value) == ["CM0833"]
        write_deltalake(path, rows_of([3]), mode="append")
        rebuild(delta_log(place), release_of(ORDERS), warehouse=place.warehouse())
        after = place.state()
        assert after.items["i1"].shard == "shop/orders/" + "f" * 32
        assert after.shards[str(item.shard)].state == "retired"

    def test_a_table_that_was_sealed_when_the_log_was_lost(self, place: Place) -> None:
        """It is named by hand, and the next start takes the seal off."""
        state = place.installed()
        path = f"{place.warehouse()}/{state.items['i1'].shard}"
        seal(path, follows=1, app_id="x", epoch=1)
        lose(place)
        with pytest.raises(RebuildRefused) as refused:
            rebuild(delta_log(place), release_of(ORDERS), warehouse=place.warehouse())
        assert codes(refused.value) == ["CM0832"]
        rebuild(delta_log(place), release_of(ORDERS), warehouse=place.warehouse(),
                answers=Answers(named={"shop.orders": path}))
        after = place.state()
        assert [seal.path for intent in after.intents.values() for seal in intent.seals] == [
            str(state.items["i1"].shard)
        ]
        assert after.items["i1"].definition.checks == ()

    def test_shards_of_two_installations(self, place: Place) -> None:
        """One warehouse, two lineages: it is asked whose catalog is made again."""
        first = place.installed()
        second = place.installed("other", "shop.theirs")
        shutil.copytree(place.home / "other" / "warehouse" / "shop" / "theirs",
                        place.home / "catalog" / "warehouse" / "shop" / "theirs")
        lose(place)
        with pytest.raises(RebuildRefused) as refused:
            rebuild(delta_log(place), release_of(ORDERS), warehouse=place.warehouse())
        assert "CM0835" in codes(refused.value)
        done = rebuild(delta_log(place), release_of(ORDERS), warehouse=place.warehouse(),
                       answers=Answers(lineage=first.lineage))
        assert [name for name, _, _ in done.tables] == ["shop.orders"]
        assert second.lineage in done.left_alone[0]

    def test_a_table_that_the_release_lacks_stays_known(self, place: Place) -> None:
        """Its rows are not given up: a later plan asks about it as about any table that goes."""
        place.installed("catalog", "shop.orders", "shop.extra")
        lose(place)
        rebuild(delta_log(place), release_of(ORDERS), warehouse=place.warehouse())
        plan = plan_migration(Baseline.from_state(place.state()), release_of(ORDERS)).plan
        assert [entry.name for entry in plan.blocked] == ["shop.extra"]


class TestNotMadeAnew:
    def test_a_catalog_is_not_created_beside_rows_of_a_lost_one(self, place: Place) -> None:
        """The warehouse lies elsewhere, the catalog's directory is gone: told, nothing is made."""
        state = place.installed()
        elsewhere = str(place.home / "elsewhere")
        shutil.move(place.warehouse(), elsewhere)
        shutil.rmtree(place.home / "catalog")
        with pytest.raises(CatalogLost) as lost:
            refuse_lost(place.log(), elsewhere)
        assert "rebuild" in str(lost.value)
        with pytest.raises(CatalogLost):
            adopt(place.log(), release_of(ORDERS),
                  [wanted("shop.orders", place.table("orders"))], warehouse=elsewhere)
        with pytest.raises(CatalogLost):
            Catalog.create(place.log().uri, elsewhere)
        assert not (place.home / "catalog").exists()
        refuse_lost(place.log("another"), elsewhere)
        done = rebuild(delta_log(place), release_of(ORDERS), warehouse=elsewhere)
        assert done.lineage == state.lineage

    def test_a_disk_without_room_for_the_new_log(
        self, place: Place, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """It is told where the old one is, not that nothing was changed; with room it goes on."""
        place.installed()
        (place.home / "catalog" / "log" / "_delta_log" / f"{0:020d}.json").unlink()

        def full(*_: object, **__: object) -> int:
            raise CatalogWriteRefused("no space left", remedy="nothing was changed")

        with monkeypatch.context() as broken:
            broken.setattr(DeltaLog, "recreate", full)
            with pytest.raises(CatalogWriteRefused, match="no space left; what was left") as ended:
                rebuild(delta_log(place), release_of(ORDERS), warehouse=place.warehouse())
        assert "it goes on from here" in ended.value.remedy
        rebuild(delta_log(place), release_of(ORDERS), warehouse=place.warehouse())
        assert set(place.state().items) == {"i1"}

    def test_a_disk_without_room_for_the_audit(
        self, place: Place, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The catalog stands by then: it is no failure, and said to be left to the next start."""
        place.installed()
        lose(place)

        def full(_: object) -> int:
            raise CatalogWriteRefused("no space left", remedy="make room")

        with monkeypatch.context() as broken:
            broken.setattr(DeltaLog, "keep_audit", full)
            done = rebuild(delta_log(place), release_of(ORDERS), warehouse=place.warehouse())
        assert "the audit table is left to the next start: no space left" in done.unknown
        assert set(place.state().items) == {"i1"}

    def test_a_directory_that_has_only_its_warehouse_names_the_remedy(self, place: Place) -> None:
        """It is no empty place for a new catalog."""
        place.installed()
        lose(place)
        with pytest.raises(NotACatalog) as lost:
            place.state()
        assert "rebuild" in str(lost.value)
