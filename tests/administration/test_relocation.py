"""A moved catalog is followed, a copied one becomes an installation of its own, or is refused."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import cast

import pytest

from catalog_migrate.administration.adoption import adopt
from catalog_migrate.administration.relocation import (
    Relocation,
    list_shared_directories,
    relocate,
)
from catalog_migrate.catalog.clock import SystemClock
from catalog_migrate.catalog.lease import acquire
from catalog_migrate.catalog.memory_log import MemoryLog
from catalog_migrate.catalog.opening import EXPORTED, create_catalog
from catalog_migrate.catalog.records import (
    AllocatorRecord,
    ConfigRecord,
    HoldRecord,
    ItemRecord,
    MappingRecord,
    OperationRecord,
    ReleaseRecord,
    SessionRecord,
    ShardRecord,
    StreamRecord,
    identity_text,
)
from catalog_migrate.catalog.state import State
from catalog_migrate.cli.main import main as command_line
from catalog_migrate.engine.port import Engine, Registration
from catalog_migrate.engine.spark.shards import Shards
from catalog_migrate.errors import CatalogExported, CatalogMoved, RelocationRefused
from catalog_migrate.migrations.actions import is_ours, own_views_place, shard_at
from catalog_migrate.migrations.cleanup import clean_up, find_expired, remove_data
from catalog_migrate.migrations.execution_context import ExecutionContext
from catalog_migrate.migrations.reconcile import list_pending_work
from catalog_migrate.migrations.rollback import plan_rollback, read_past
from catalog_migrate.model.names import ItemName
from catalog_migrate.model.objects import External, ObjectDefinition
from catalog_migrate.streams.ddl.migrations import MigratedStreams
from catalog_migrate.streams.runtime import shard_handover
from tests.decisions import Changes, commit
from tests.services.left_behind import leave

from .conftest import ORDERS, Killed, Place, killed_at, properties, release_of, wanted


def codes(error: RelocationRefused) -> list[str]:
    """The codes of all reasons, sorted."""
    return sorted(problem.code for problem in error.problems)


def nothing(place: Place, name: str) -> None:
    """Try to write something harmless."""
    def decide(_: object) -> Changes:
        changes = Changes()
        changes.put("operation", "harmless", OperationRecord("test", "pending"))
        return changes

    commit(place.log(name), decide, kind="test")


def copied(place: Place, name: str = "copy", of: str = "catalog") -> None:
    """Copy a catalog with the warehouse in it, as ``cp -r`` does."""
    shutil.copytree(place.home / of, place.home / name)


class TestRefusedUntilTold:
    def test_a_copy_cannot_be_written(self, place: Place) -> None:
        """Any commit is refused and says what to do; reading is free."""
        place.installed()
        copied(place)
        with pytest.raises(CatalogMoved) as refused:
            nothing(place, "copy")
        assert "relocate" in str(refused.value)
        assert place.state("copy").lineage == place.state().lineage
        with pytest.raises(CatalogMoved):
            acquire(place.log("copy"), holder="me", clock=SystemClock())
        nothing(place, "catalog")

    def test_another_spelling_of_the_same_place_is_no_copy(self, place: Place) -> None:
        """A symbolic link to the catalog is the catalog."""
        place.installed()
        (place.home / "link").symlink_to(place.home / "catalog")
        nothing(place, "link")

    def test_a_move_is_refused_while_the_original_stands(self, place: Place) -> None:
        """Without a word about a new lineage a copy stays one."""
        place.installed()
        copied(place)
        before = place.files()
        with pytest.raises(RelocationRefused) as refused:
            relocate(place.log("copy"))
        assert codes(refused.value) == ["CM0821"]
        assert place.files() == before

    def test_a_catalog_whose_export_was_cut_off_is_exported_first(self, place: Place) -> None:
        """Its tables may be plain ones already; nothing is written."""
        place.installed()
        changes = Changes()
        changes.put("config", EXPORTED, ConfigRecord(value="pending"))
        leave(place.log(), changes)
        before = place.files()
        with pytest.raises(CatalogExported) as refused:
            relocate(place.log(), warehouse=str(place.home / "elsewhere"))
        assert "catalog-migrate export" in str(refused.value)
        assert place.files() == before

    def test_a_new_lineage_is_for_copies_only(self, place: Place) -> None:
        """The original never changes its lineage."""
        place.installed()
        with pytest.raises(RelocationRefused) as refused:
            relocate(place.log(), new_lineage=True)
        assert codes(refused.value) == ["CM0822"]


class TestCopy:
    def test_takes_a_new_lineage_and_leaves_the_original_alone(self, place: Place) -> None:
        """Its shards are its own, with its mark; both can be written afterwards."""
        original = place.installed()
        copied(place)
        done = relocate(place.log("copy"), new_lineage=True)
        state = place.state("copy")
        assert state.lineage == done.lineage != original.lineage
        assert state.setting("warehouse") == place.warehouse("copy")
        shard = state.items["i1"].shard
        mine = properties(f"{place.warehouse('copy')}/{shard}")
        theirs = properties(f"{place.warehouse()}/{shard}")
        assert mine["catalog_migrate.lineage"] == state.lineage
        assert theirs["catalog_migrate.lineage"] == original.lineage
        nothing(place, "copy")
        nothing(place, "catalog")

    def test_nothing_that_lived_in_the_original_lives_in_the_copy(self, place: Place) -> None:
        """Leases are free at a higher epoch, sessions are gone, acts under way have ended, and
        sources and sinks wait for a word."""
        place.installed()
        lease = acquire(place.log(), holder="the original", clock=SystemClock())

        changes = Changes()
        changes.put("session", "x", SessionRecord(
            release="1", serial=1, holder="h", host="h", boot_id="b", pid=1, started="s",
        ))
        changes.put("operation", "o1", OperationRecord("alter", "trial"))
        leave(place.log(), changes)
        add_source(place)
        copied(place)
        done = relocate(place.log("copy"), new_lineage=True)
        state = place.state("copy")
        assert state.sessions == {}
        row = state.leases["migration"]
        assert (row.holder, row.epoch) == ("", lease.epoch + 1)
        assert state.operations["o1"].state == "failed"
        assert done.held == ("shop.src",)
        hold = state.holds["i7/operator/0"]
        assert isinstance(hold, HoldRecord)
        assert "copied" in hold.reason
        assert place.state().leases["migration"].holder == "the original"
        lease.release()

    def test_without_rows_of_its_own_is_refused(self, place: Place) -> None:
        """The warehouse lies elsewhere and was not copied; an adopted table neither."""
        place.installed()
        outside = place.table("outside")
        adopt(place.log(), release_of("CREATE TABLE shop.outside (id BIGINT, qty INT);"),
              [wanted("shop.outside", outside)], warehouse="ignored")
        copied(place)
        with pytest.raises(RelocationRefused) as refused:
            relocate(place.log("copy"), new_lineage=True, warehouse=place.warehouse())
        assert codes(refused.value) == ["CM0823", "CM0823"]
        theirs = str(place.home / "data" / "copy of outside")
        shutil.copytree(outside, theirs)
        done = relocate(place.log("copy"), new_lineage=True, tables={"shop.outside": theirs})
        state = place.state("copy")
        assert (state.items["i2"].shard, state.shards[outside].state) == (theirs, "gone")
        assert properties(theirs)["catalog_migrate.lineage"] == done.lineage
        assert properties(outside)["catalog_migrate.lineage"] == place.state().lineage

    def test_never_removes_what_is_the_originals(self, place: Place) -> None:
        """Directories that the original adopted stay as they are, in force there or retired,
        whatever the copy cleans up and however long after."""
        place.installed()
        in_force, retired = place.table("in force"), place.table("retired")
        adopt(place.log(), release_of("CREATE TABLE shop.outside (id BIGINT, qty INT);"),
              [wanted("shop.outside", in_force)], warehouse="ignored")

        def replaced(_: object) -> Changes:
            changes = Changes()
            changes.put("shard", retired, ShardRecord(
                item_id="i1", global_id="s1", state="retired", retired_at=1, retired_serial=1,
            ))
            return changes

        commit(place.log(), replaced, kind="test")
        copied(place)
        own = str(place.home / "data" / "copy of it")
        shutil.copytree(in_force, own)
        relocate(place.log("copy"), new_lineage=True, tables={"shop.outside": own})
        lease = acquire(place.log("copy"), holder="me", clock=SystemClock())
        work = ExecutionContext(
            cast(Engine, Shards(None)), place.log("copy"), SystemClock(),
            place.warehouse("copy"), MigratedStreams(), lease=lease,
        )
        state = remove_data(work, clean_up(work, place.state("copy")))
        lease.release()
        for path in (in_force, retired):
            assert len(list(Path(path).glob("*.parquet"))) == 1
            assert state.shards[path].state == "gone"
        assert find_expired(state, SystemClock().wall() + 1e9, 0.0, MigratedStreams()) == []
        assert not [each for each in list_pending_work(state) if "removal" in each]

    @pytest.mark.parametrize("step", ["mark", "commit"])
    def test_killed_in_between_is_finished_by_the_same_call(self, place: Place, step: str) -> None:
        """A second run takes the marks of the first for its own."""
        place.installed("catalog", "shop.a", "shop.b")
        copied(place)
        at = "commit" if step == "commit" else f"mark {place.warehouse('copy')}/shop/b"
        with pytest.raises(Killed):
            relocate(place.log("copy"), new_lineage=True, on_step=killed_at(at))
        with pytest.raises(CatalogMoved):
            nothing(place, "copy")
        done = relocate(place.log("copy"), new_lineage=True)
        for item in place.state("copy").items.values():
            marks = properties(f"{place.warehouse('copy')}/{item.shard}")
            assert marks["catalog_migrate.lineage"] == done.lineage

    def test_killed_right_after_its_commit(self, place: Place) -> None:
        """Called again there is nothing to do; once it has lived on it is an original."""
        place.installed()
        copied(place)
        done = relocate(place.log("copy"), new_lineage=True)
        before = place.files()
        again = relocate(place.log("copy"), new_lineage=True)
        assert (again.changed, again.lineage, again.tables) == (False, done.lineage, done.tables)
        assert place.files() == before
        with pytest.raises(RelocationRefused):
            relocate(place.log("copy"), new_lineage=True, warehouse=str(place.home / "nowhere"))
        nothing(place, "copy")
        with pytest.raises(RelocationRefused):
            relocate(place.log("copy"), new_lineage=True)

    def test_a_copy_of_a_copy(self, place: Place) -> None:
        """It has that one's history, and becomes an installation of its own all the same."""
        place.installed()
        copied(place)
        first = relocate(place.log("copy"), new_lineage=True)
        shutil.copytree(place.home / "copy", place.home / "second")
        second = relocate(place.log("second"), new_lineage=True)
        assert second.changed
        assert second.lineage != first.lineage
        assert place.state("second").setting("warehouse") == place.warehouse("second")


class TestMove:
    def test_catalog_and_warehouse_together(self, place: Place) -> None:
        """The lineage stays, the shards are found beside the catalog, old names are still ours."""
        original = place.installed()
        (place.home / "catalog").rename(place.home / "moved")
        with pytest.raises(CatalogMoved):
            nothing(place, "moved")
        done = relocate(place.log("moved"))
        state = place.state("moved")
        assert (state.lineage, state.setting("warehouse"), done.tables) == (
            original.lineage, place.warehouse("moved"), 1,
        )
        shard = state.items["i1"].shard
        old = Registration(
            ItemName("shop", "orders"), "table", f"{place.warehouse()}/{shard}"
        )
        assert is_ours(state, state.setting("warehouse"), old)
        assert shard_at(state, state.setting("warehouse"), f"{old.location}") == shard
        assert state.operations["reconcile"].state == "pending"

    def test_the_warehouse_alone(self, place: Place) -> None:
        """Nothing to do before it moved; refused while a table is missing; then one commit."""
        place.installed("catalog", "shop.a", "shop.b")
        assert not relocate(place.log()).changed
        elsewhere = place.home / "elsewhere"
        (place.home / "catalog" / "warehouse").rename(elsewhere)
        hidden = elsewhere / "shop" / "b"
        hidden.rename(place.home / "b")
        before = place.files()
        with pytest.raises(RelocationRefused) as refused:
            relocate(place.log(), warehouse=str(elsewhere))
        assert codes(refused.value) == ["CM0824"]
        assert "shop.b" in str(refused.value)
        assert place.files() == before
        (place.home / "b").rename(hidden)
        looked: Relocation = relocate(place.log(), warehouse=str(elsewhere), dry_run=True)
        assert (looked.tables, place.state().setting("warehouse")) == (2, place.warehouse())
        relocate(place.log(), warehouse=str(elsewhere))
        assert place.state().setting("warehouse") == str(elsewhere)

    def test_a_table_of_other_columns_or_owners_is_refused(self, place: Place) -> None:
        """A warehouse that only looks alike is not taken for ours."""
        place.installed("catalog")
        place.installed("other")
        with pytest.raises(RelocationRefused) as refused:
            relocate(place.log(), warehouse=place.warehouse("other"))
        assert codes(refused.value) == ["CM0826"]

    def test_an_adopted_table(self, place: Place) -> None:
        """Its new place is said by name; the old row ends as gone."""
        path = place.table("orders")
        adopt(place.log(), release_of(ORDERS), [wanted("shop.orders", path)],
              warehouse=place.warehouse())
        new = str(place.home / "data" / "renamed")
        shutil.move(path, new)
        relocate(place.log(), tables={"shop.orders": new})
        state = place.state()
        assert (state.items["i1"].shard, state.shards[path].state) == (new, "gone")

    def test_a_sink_goes_on_where_its_adopted_table_is_now(self, place: Place) -> None:
        """It reads the directory in its new place, and looks for no other shard to follow."""
        path = place.table("orders")
        adopt(place.log(), release_of(ORDERS), [wanted("shop.orders", path)],
              warehouse=place.warehouse())

        def add_sink(state: State) -> Changes:
            changes = Changes()
            sink = ObjectDefinition("shop", "sink", "k", external=External(connector="KAFKA"))
            for letter in "iu":
                changes.put("allocator", letter, AllocatorRecord(next=8))
            changes.put("mapping", identity_text(sink.identity), MappingRecord(
                schema="shop", kind="sink", name="k", owner="user", item_id="i7",
                global_id="u7", fingerprint="1:0", definition_hash="", storage_hash="",
            ))
            changes.put("item", "i7", ItemRecord(
                owner="user", global_id="u7", definition=sink, uses=("i1",),
                links={"reads": "i1"},
            ))
            changes.put("stream", "i7", StreamRecord(checkpoint="c", reads=path))
            return changes

        commit(place.log(), add_sink, kind="test")
        new = str(place.home / "data" / "renamed")
        shutil.move(path, new)
        relocate(place.log(), tables={"shop.orders": new})
        state = place.state()
        assert state.streams["i7"].reads == new
        assert not shard_handover.pending(state, "i7")

    def test_an_operation_that_ends_with_the_move_holds_nobody(self, place: Place) -> None:
        """Its holds go with it, for nobody would ever lift them; an operator's stay."""
        place.installed()
        add_source(place)

        changes = Changes()
        changes.put("operation", "o1", OperationRecord("unsafe", "stopping"))
        for holder in ("operation:o1", "operator"):
            changes.put("hold", f"i7/{holder}/1", HoldRecord("i7", holder, "why"))
        leave(place.log(), changes)
        shutil.move(place.home / "catalog", place.home / "moved")
        relocate(place.log("moved"))
        state = place.state("moved")
        assert state.operations["o1"].state == "stale"
        assert [each.holder for each in state.holds.values()] == ["operator"]

    def test_a_moved_table_is_the_same_table_to_a_rollback(self, place: Place) -> None:
        """Going back to before the move changes nothing of it: its rows are where they are now."""
        path = place.table("orders")
        adopt(place.log(), release_of(ORDERS), [wanted("shop.orders", path)],
              warehouse=place.warehouse())

        def put_in_force(state: State) -> Changes:
            changes = Changes()
            changes.put("release", "release/000001", ReleaseRecord(
                "release", "1", "hash", state.serial + 1, in_force=True
            ))
            changes.raise_serial()
            return changes

        before = commit(place.log(), put_in_force, kind="migrate").serial
        for name in ("renamed", "renamed again"):
            new = str(place.home / "data" / name)
            shutil.move(path, new)
            relocate(place.log(), tables={"shop.orders": new})
            path = new
        plan = plan_rollback(
            place.log(), read_past(place.log(), before), place.state(),
            grown=lambda *_: None, sizes=lambda _: (3, 1),
        ).plan
        assert (plan.applyable, plan.steps) == (True, ())


def add_source(place: Place) -> None:
    """A source that was started once, as DDL and a runtime leave it."""
    external = External(connector="KAFKA", options={})
    definition = ObjectDefinition("shop", "source", "src", external=external)
    link: Mapping[str, str] = {}

    def decide(_: object) -> Changes:
        changes = Changes()
        changes.put("allocator", "i", AllocatorRecord(next=8))
        changes.put("allocator", "u", AllocatorRecord(next=8))
        changes.put("mapping", "relation:shop.src", MappingRecord(
            schema="shop", kind="source", name="src", owner="user", item_id="i7",
            global_id="u7", fingerprint="1:0", definition_hash="", storage_hash="",
        ))
        changes.put("item", "i7", ItemRecord(
            owner="user", global_id="u7", definition=definition, links=dict(link),
        ))
        changes.put("stream", "i7", StreamRecord(checkpoint="c"))
        return changes

    commit(place.log(), decide, kind="test")


def test_a_link_to_the_original_counts_while_its_disk_is_away(tmp_path: Path) -> None:
    """A copy would go through it one day; that nobody can look does not make it the copy's."""
    rows = tmp_path / "disk" / "s" / "t" / "x"
    (rows / "_delta_log").mkdir(parents=True)
    link = tmp_path / "copy" / "s" / "t" / "x"
    link.parent.mkdir(parents=True)
    link.symlink_to(rows)
    log = MemoryLog()
    state = create_catalog(log, warehouse=str(tmp_path / "copy"))
    changes = Changes()
    changes.put("shard", "s/t/x", ShardRecord(item_id="i1", global_id="s1", state="live"))
    (tmp_path / "disk").rename(tmp_path / "away")
    found = list_shared_directories(
        state.apply_edits(state.version, changes.effective(state)), str(tmp_path / "former"),
        str(tmp_path / "copy"), {str(rows)},
    )
    assert list(found) == [str(link)]


class TestOwnViews:
    """Our own views are told to move; the next start takes them along."""

    def test_the_place_is_committed(
        self, place: Place, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """The command says from where to where, and may be given again; nothing else changes."""
        place.installed()
        before = place.state()
        call = ["relocate", "--catalog", str(place.home / "catalog"), "--own-views"]
        for was in ("none yet", "catalog_migrate_12345678"):
            assert command_line([*call, "catalog_migrate_12345678"]) == 0
            assert capsys.readouterr().out == (
                f"own views: {was} -> catalog_migrate_12345678\nnext: catalog-migrate bootstrap\n"
            )
        after = place.state()
        assert own_views_place(after) == "catalog_migrate_12345678"
        assert (after.serial, after.mappings) == (before.serial, before.mappings)

    @pytest.mark.parametrize("arguments", [
        ("shop",), ("catalog_migrate_x",), ("catalog_migrate", "--new-lineage"),
    ])
    def test_where_they_cannot_be(self, place: Place, arguments: tuple[str, ...]) -> None:
        """A schema that releases may use, and another move in the same call, are refused."""
        place.installed()
        call = ["relocate", "--catalog", str(place.home / "catalog"), "--own-views"]
        assert command_line([*call, *arguments]) == 64
        assert own_views_place(place.state()) is None
