"""What is another's stays as it is: files beside our rows, tables made anew there, names."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import cast

import msgspec
import pytest
from deltalake import DeltaTable, write_deltalake

from catalog_migrate.administration.adoption import adopt, sort_registrations
from catalog_migrate.administration.relocation import relocate
from catalog_migrate.api import Catalog
from catalog_migrate.catalog.clock import SystemClock
from catalog_migrate.catalog.lease import acquire
from catalog_migrate.catalog.records import (
    AllocatorRecord,
    IntentRecord,
    ItemRecord,
    MappingRecord,
    SealedShard,
    ShardRecord,
    StreamRecord,
    identity_text,
)
from catalog_migrate.catalog.state import State
from catalog_migrate.engine.port import Engine, Registration
from catalog_migrate.engine.spark.shards import Shards, create_placeholder
from catalog_migrate.errors import (
    AdoptionRefused,
    CatalogMoved,
    CommitConflict,
    EngineFailure,
    RelocationRefused,
)
from catalog_migrate.migrations.actions import is_ours
from catalog_migrate.migrations.cleanup import clean_up, remove_data
from catalog_migrate.migrations.execution_context import ExecutionContext
from catalog_migrate.model.names import ItemName
from catalog_migrate.model.objects import External, ObjectDefinition
from catalog_migrate.store import store_at
from catalog_migrate.streams.checkpoint.directory import RESTORING_NAME, Checkpoint
from catalog_migrate.streams.ddl.migrations import MigratedStreams
from catalog_migrate.testing.engine import SimulatedEngine
from catalog_migrate.testing.world import World
from tests.decisions import Changes, commit
from tests.services.left_behind import leave

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

INNER = "CREATE TABLE shop.inner (id BIGINT, qty INT);"


def adopted(place: Place, name: str = "shop.orders", path: str | None = None) -> str:
    """A table (id, qty) of three rows that the catalog has adopted; its directory."""
    path = path or place.table("orders")
    adopt(place.log(), release_of(f"CREATE TABLE {name} (id BIGINT, qty INT);"),
          [wanted(name, path)], warehouse=place.warehouse())
    return path


def put_shard(place: Place, path: str, record: ShardRecord) -> None:
    """Commit the record of a shard."""
    def decide(_: State) -> Changes:
        changes = Changes()
        changes.put("shard", path, record)
        return changes

    commit(place.log(), decide, kind="test")


def given_up(place: Place, path: str) -> None:
    """The adopted table at ``path`` was copied by a migration, and its retention is over."""
    def decide(state: State) -> Changes:
        changes = Changes()
        item_id = state.shards[path].item_id
        copy = f"shop/orders/{1:032x}"
        place.shard(state, item_id, state.items[item_id].definition, copy, source=path)
        place.record(changes, item_id, state.items[item_id].definition, copy)
        changes.put("shard", path, msgspec.structs.replace(
            state.shards[path], state="gone", retired_at=1, retired_serial=1, removing=True,
        ))
        return changes

    Shards(None).seal(path, follows=DeltaTable(path).version(), app_id="catalog_migrate/x", epoch=1)
    commit(place.log(), decide, kind="test")


def start(place: Place, name: str = "catalog") -> State:
    """What a start does on disk before anything else: cleaning up, and what was given up goes."""
    lease = acquire(place.log(name), holder="me", clock=SystemClock())
    try:
        work = ExecutionContext(
            cast(Engine, Shards(None)), place.log(name), SystemClock(),
            place.state(name).setting("warehouse"), MigratedStreams(), lease=lease,
        )
        return remove_data(work, clean_up(work, place.state(name)))
    finally:
        lease.release()


class TestGivenUp:
    def test_only_what_is_the_tables_goes(self, place: Place) -> None:
        """An adopted directory that is given up keeps what no VACUUM would take: checkpoints of
        others' queries, and tables that lie inside."""
        path = adopted(place)
        query = Path(path, "_checkpoints", "q", "offsets", "0")
        query.parent.mkdir(parents=True)
        query.write_text("v1")
        write_deltalake(f"{path}/archive", rows_of([1, 2]))
        write_deltalake(f"{path}/more/archive", rows_of([1]))
        Path(path, "more", "part-0.parquet").write_bytes(b"PAR1")
        Path(path, ".part-0.parquet.crc").write_bytes(b"crc")
        given_up(place, path)
        state = start(place)
        assert not state.shards[path].removing
        assert not list(Path(path).glob("*.parquet"))
        assert not list(Path(path).glob(".*.crc"))
        assert query.read_text() == "v1"
        assert len(list(Path(path, "archive").glob("*.parquet"))) == 1
        assert [each.name for each in Path(path, "more").iterdir()] == ["archive"]

    def test_partitions_and_change_data_go(self, place: Place) -> None:
        """Directories of a partition column are data whatever it is called, and so are changes."""
        path = str(place.home / "data" / "parts")
        for part in ("_day=1", "_change_data", "_delta_index"):
            Path(path, part).mkdir(parents=True)
            Path(path, part, "part-0.parquet").write_bytes(b"PAR1")
        Path(path, "_delta_log").mkdir()
        Shards(None).delete_shard_data(path)
        assert [each.name for each in Path(path).iterdir()] == ["_delta_log"]

    def test_a_table_that_was_made_anew_there_stays(self, place: Place) -> None:
        """Somebody took the sealed table away and made one of his own in its place: his rows
        stay when the retention of ours is over."""
        path = adopted(place)
        given_up(place, path)
        shutil.rmtree(path)
        write_deltalake(path, rows_of([7, 8]))
        state = start(place)
        assert not state.shards[path].removing
        assert len(list(Path(path).glob("*.parquet"))) == 1


    def test_files_of_a_managed_name_whose_log_is_lost(self, place: Place) -> None:
        """The name is not dropped, which would take the files along: they may be all that is
        left of the table."""
        path = place.table("orders")
        shutil.rmtree(f"{path}/_delta_log")
        with pytest.raises(EngineFailure, match="no Delta log"):
            create_placeholder(path)
        shutil.rmtree(path)
        assert create_placeholder(path) is None


class TestAdoption:
    def test_the_shadow_table_of_a_name_that_was_being_dropped(self, place: Place) -> None:
        """A drop that was killed half-way left a managed name on an empty shadow table: its rows
        lie elsewhere, so that it is left alone with the reason."""
        path = place.table("orders")
        shadow = create_placeholder(path)
        name = ItemName("shop", "orders")
        tables, left = sort_registrations(
            [Registration(name, "table", shadow, managed=True)], asked=False
        )
        assert (tables, [each.name for each in left]) == ([], [name])
        assert "placeholder" in left[0].reason

    def test_a_directory_that_holds_the_catalog_or_its_warehouse(self, place: Place) -> None:
        """What a migration would remove one day must not have the catalog in it."""
        path = place.table("orders")
        for home, warehouse in (
            (f"{path}/catalog", str(place.home / "w")), (str(place.home / "c"), f"{path}/w"),
        ):
            from catalog_migrate.catalog.opening import open_log

            with pytest.raises(AdoptionRefused) as refused:
                adopt(open_log(home), release_of(ORDERS), [wanted("shop.orders", path)],
                      warehouse=warehouse)
            assert [problem.code for problem in refused.value.problems] == ["CM0812"]

    def test_a_directory_that_holds_a_table_adopted_before(self, place: Place) -> None:
        """The inner one first, the outer one in a later call: refused as in one call."""
        outer = str(place.home / "data" / "orders")
        inner = place.table("orders/inner")
        adopted(place, "shop.inner", inner)
        write_deltalake(outer, rows_of([1]))
        with pytest.raises(AdoptionRefused) as refused:
            adopt(place.log(), release_of(ORDERS + INNER), [wanted("shop.orders", outer)],
                  warehouse=place.warehouse())
        assert [problem.code for problem in refused.value.problems] == ["CM0812"]


class TestCopy:
    def test_names_of_the_originals_adopted_tables_are_not_the_copys(self, place: Place) -> None:
        """On a metastore that both use, the original's name is in the way, never dropped."""
        path = adopted(place)
        shutil.copytree(place.home / "catalog", place.home / "copy")
        own = str(place.home / "data" / "own")
        shutil.copytree(path, own)
        relocate(place.log("copy"), new_lineage=True, tables={"shop.orders": own})
        theirs = Registration(ItemName("shop", "orders"), "table", path)
        state = place.state("copy")
        assert not is_ours(state, state.setting("warehouse"), theirs)
        assert is_ours(place.state(), place.warehouse(), theirs)
        mine = Registration(ItemName("shop", "orders"), "table", own)
        assert is_ours(state, state.setting("warehouse"), mine)
        # what was the original's stays so when the copy is moved afterwards
        (place.home / "copy").rename(place.home / "moved")
        relocate(place.log("moved"))
        state = place.state("moved")
        assert not is_ours(state, state.setting("warehouse"), theirs)

    def test_names_that_were_copied_too_are_the_copys(self, place: Place) -> None:
        """A copied metastore has the original's locations in it, and they are pointed anew."""
        path = adopted(place)
        shutil.copytree(place.home / "catalog", place.home / "copy")
        own = str(place.home / "data" / "own")
        shutil.copytree(path, own)
        relocate(place.log("copy"), new_lineage=True, names_copied=True,
                 tables={"shop.orders": own})
        state = place.state("copy")
        old = Registration(ItemName("shop", "orders"), "table", path)
        assert is_ours(state, state.setting("warehouse"), old)

    def test_a_link_to_the_originals_rows_is_no_copy(self, place: Place) -> None:
        """A warehouse that was copied with symbolic links in it leads to the original's tables."""
        place.installed()
        elsewhere = place.home / "big disk"
        (place.home / "catalog" / "warehouse" / "shop").rename(elsewhere)
        (place.home / "catalog" / "warehouse" / "shop").symlink_to(elsewhere)
        shutil.copytree(place.home / "catalog", place.home / "copy", symlinks=True)
        shard = f"{place.warehouse()}/{place.state().items['i1'].shard}"
        before = properties(shard)
        with pytest.raises(RelocationRefused) as refused:
            relocate(place.log("copy"), new_lineage=True)
        assert [problem.code for problem in refused.value.problems] == ["CM0823"]
        assert properties(shard) == before


def add_sink(
    place: Place, checkpoint: str = "_checkpoints/i9/1", reads: str = ""
) -> Path:
    """A sink INTO POSTGRES that has sent batch 0; its checkpoint's directory."""
    definition = ObjectDefinition(
        "shop", "sink", "out", external=External(connector="POSTGRES", options={})
    )

    def decide(_: State) -> Changes:
        changes = Changes()
        changes.put("allocator", "i", AllocatorRecord(next=10))
        changes.put("allocator", "u", AllocatorRecord(next=10))
        changes.put("mapping", identity_text(definition.identity), MappingRecord(
            schema="shop", kind="sink", name="out", owner="user", item_id="i9",
            global_id="u9", fingerprint="1:0", definition_hash="", storage_hash="",
        ))
        changes.put("item", "i9", ItemRecord(owner="user", global_id="u9", definition=definition))
        changes.put("stream", "i9", StreamRecord(
            checkpoint=checkpoint, upstream="pg", reads=reads,
        ))
        return changes

    commit(place.log(), decide, kind="test")
    about = json.dumps({"id": QUERY}).encode()
    store_at(f"{place.warehouse()}/{checkpoint}").put_all(
        {"offsets/0": b"v1\n{}", "commits/0": b"v1\n{}", "metadata": about}
    )
    return Path(place.warehouse(), checkpoint)


QUERY = "4390c917-4440-44d6-bf46-bb59b73796fe"


class TestCopyOfOneThatMoved:
    def test_the_originals_present_directories_are_never_taken(self, place: Place) -> None:
        """The original moved after the copy was made, to where the copy says its own rows are."""
        place.installed()
        path = adopted(place, "shop.more", place.table("more"))
        shutil.copytree(place.home / "catalog", place.home / "copy")
        moved = place.home / "elsewhere"
        Path(place.warehouse()).rename(moved)
        other = str(place.home / "data" / "other")
        shutil.move(path, other)
        relocate(place.log(), warehouse=str(moved), tables={"shop.more": other})
        before = place.files()
        with pytest.raises(RelocationRefused) as refused:
            relocate(place.log("copy"), new_lineage=True, warehouse=str(moved),
                     tables={"shop.more": other})
        assert [problem.code for problem in refused.value.problems] == ["CM0823", "CM0823"]
        assert place.files() == before


def test_a_copy_names_nothing(place: Place) -> None:
    """Names in a session that lead to the original's rows would be written to."""
    place.installed()
    shutil.copytree(place.home / "catalog", place.home / "copy")
    engine = SimulatedEngine(World(), persistent=False)
    with pytest.raises(CatalogMoved):
        Catalog.open(str(place.home / "copy"), mode="write").repair(engine)
    assert not engine.observe("shop")


class TestSinksOfACopy:
    def test_go_on_under_ids_of_their_own(self, place: Place) -> None:
        """A ledger tells batches apart by query ids: what the copy sends must never pass for the
        original's. Positions stay; the original and its copied directory are left alone."""
        place.installed()
        directory = add_sink(place)
        shutil.copytree(place.home / "catalog", place.home / "copy")
        relocate(place.log("copy"), new_lineage=True)
        stream = place.state("copy").streams["i9"]
        mine = Checkpoint(Path(place.warehouse("copy"), stream.checkpoint))
        assert mine.query_id not in (None, QUERY)
        assert (mine.latest_offsets, mine.latest_commits, stream.upstream) == (0, 0, "pg")
        assert Checkpoint(directory).query_id == QUERY
        assert Checkpoint(
            Path(place.warehouse("copy"), "_checkpoints/i9/1")
        ).query_id == QUERY
        assert place.state().streams["i9"].checkpoint == "_checkpoints/i9/1"

    def test_read_the_copied_directory_of_an_adopted_table(self, place: Place) -> None:
        """Not the original's, from which nothing would lead on to the copy's."""
        place.installed()
        path = adopted(place, "shop.more", place.table("more"))
        add_sink(place, reads=path)
        shutil.copytree(place.home / "catalog", place.home / "copy")
        own = str(place.home / "data" / "own")
        shutil.copytree(path, own)
        relocate(place.log("copy"), new_lineage=True, tables={"shop.more": own})
        assert place.state("copy").streams["i9"].reads == own

    def test_killed_in_between_it_is_finished_by_the_same_call(self, place: Place) -> None:
        """The second run leaves what the first one copied."""
        place.installed()
        add_sink(place)
        shutil.copytree(place.home / "catalog", place.home / "copy")
        with pytest.raises(Killed):
            relocate(place.log("copy"), new_lineage=True, on_step=killed_at("commit"))
        done = relocate(place.log("copy"), new_lineage=True)
        stream = place.state("copy").streams["i9"]
        assert stream.checkpoint == f"_checkpoints/i9/{done.lineage}"
        assert Checkpoint(Path(place.warehouse("copy"), stream.checkpoint)).query_id != QUERY

    def test_a_checkpoint_in_the_middle_of_a_restore_is_refused(self, place: Place) -> None:
        """What a snapshot brings back is the original's id."""
        place.installed()
        directory = add_sink(place)
        (directory / RESTORING_NAME).write_text("1")
        shutil.copytree(place.home / "catalog", place.home / "copy")
        before = place.files()
        with pytest.raises(RelocationRefused) as refused:
            relocate(place.log("copy"), new_lineage=True)
        assert [problem.code for problem in refused.value.problems] == ["CM0828"]
        assert place.files() == before

    def test_a_link_to_the_originals_checkpoints_is_refused(self, place: Place) -> None:
        """Two runtimes on one checkpoint would take each other's batches."""
        place.installed()
        add_sink(place)
        checkpoints = Path(place.warehouse(), "_checkpoints")
        checkpoints.rename(place.home / "checkpoints")
        checkpoints.symlink_to(place.home / "checkpoints")
        shutil.copytree(place.home / "catalog", place.home / "copy", symlinks=True)
        with pytest.raises(RelocationRefused) as refused:
            relocate(place.log("copy"), new_lineage=True)
        assert [problem.code for problem in refused.value.problems] == ["CM0823"]


class TestLinksOfACopy:
    @pytest.mark.parametrize("what", ["retired", "building", "shadow table"])
    def test_a_link_to_what_the_original_may_still_need(self, place: Place, what: str) -> None:
        """Not only tables: the copy would remove the original's earlier versions, and the shards
        and shadow tables of an attempt that is under way there."""
        state = place.installed()
        shard = f"old/orders/{7:032x}"
        definition = state.items["i1"].definition
        directory = Path(place.shard(state, "i1", definition, shard))

        def known(_: State) -> Changes:
            changes = Changes()
            if what == "shadow table":
                changes.put("intent", "0", IntentRecord(
                    epoch=0, plan_hash="p", release="2", paths=(shard,)
                ))
            else:
                changes.put("shard", shard, ShardRecord(
                    item_id="i1", global_id="s1", state=what,  # type: ignore[arg-type]
                    retired_at=1 if what == "retired" else None,
                ))
            return changes

        commit(place.log(), known, kind="test")
        elsewhere = place.home / "big disk"
        directory.parent.parent.rename(elsewhere)
        directory.parent.parent.symlink_to(elsewhere)
        shutil.copytree(place.home / "catalog", place.home / "copy", symlinks=True)
        with pytest.raises(RelocationRefused) as refused:
            relocate(place.log("copy"), new_lineage=True)
        assert [problem.code for problem in refused.value.problems] == ["CM0823"]
        assert list(directory.glob("*.parquet"))


class TestMove:
    def test_below_a_runtime_that_is_at_work(self, place: Place) -> None:
        """It would go on writing in the old place: refused until it has stopped, also when it is
        started at the last moment."""
        path = adopted(place)
        new = str(place.home / "data" / "new")
        shutil.copytree(path, new)
        lease = acquire(place.log(), holder="runtime", clock=SystemClock(), key="cluster/i5")
        with pytest.raises(RelocationRefused) as refused:
            relocate(place.log(), tables={"shop.orders": new})
        assert [problem.code for problem in refused.value.problems] == ["CM0806"]
        lease.release()

        def starts(step: str) -> None:
            if step == "commit":
                acquire(place.log(), holder="runtime", clock=SystemClock(), key="cluster/i5")

        with pytest.raises(CommitConflict, match="started"):
            relocate(place.log(), tables={"shop.orders": new}, on_step=starts)
        assert place.state().items["i1"].shard == path

    def test_into_another_table_or_the_warehouse(self, place: Place) -> None:
        """A directory in which something else is tidied is no place for a table, and a table's is
        none for the catalog."""
        path = adopted(place)
        place.table("others")
        for new in (place.home / "data" / "others" / "mine", place.home / "catalog" / "mine"):
            shutil.move(path, new)
            with pytest.raises(RelocationRefused) as refused:
                relocate(place.log(), tables={"shop.orders": str(new)})
            assert [problem.code for problem in refused.value.problems] == ["CM0827"]
            shutil.move(new, path)
        (place.home / "catalog").rename(Path(path, "catalog"))
        from catalog_migrate.catalog.opening import open_log

        with pytest.raises(RelocationRefused) as refused:
            relocate(open_log(f"{path}/catalog"))
        assert {problem.code for problem in refused.value.problems} == {"CM0827"}

    @pytest.mark.parametrize("which", ["warehouse", "table"])
    def test_rows_that_came_while_it_was_copied_are_not_left_behind(
        self, place: Place, which: str
    ) -> None:
        """Copied instead of moved, with writers at work: refused, also when an earlier try has
        marked the new place, until it was copied again or the old one is taken away."""
        if which == "warehouse":
            place.installed()
            old = f"{place.warehouse()}/{place.state().items['i1'].shard}"
            new = str(place.home / "elsewhere" / str(place.state().items["i1"].shard))
        else:
            old, new = adopted(place), str(place.home / "data" / "new")

        def follow(die: bool) -> None:
            listen = killed_at("commit") if die else (lambda _: None)
            if which == "warehouse":
                relocate(place.log(), warehouse=str(place.home / "elsewhere"), on_step=listen)
            else:
                relocate(place.log(), tables={"shop.orders": new}, on_step=listen)

        shutil.copytree(old, new)
        if which == "table":
            with pytest.raises(Killed):
                follow(die=True)
        write_deltalake(old, rows_of([9]), mode="append")
        with pytest.raises(RelocationRefused) as refused:
            follow(die=False)
        assert [problem.code for problem in refused.value.problems] == ["CM0829"]
        shutil.rmtree(new)
        shutil.copytree(old, new)
        follow(die=False)
        assert DeltaTable(new).version() >= DeltaTable(old).version()

    def test_one_directory_for_two_tables(self, place: Place) -> None:
        """A path that is said twice, or is another table's, is refused with every reason."""
        first, second = place.table("a"), place.table("b")
        adopt(place.log(), release_of("CREATE TABLE shop.a (id BIGINT, qty INT);"
                                      "CREATE TABLE shop.b (id BIGINT, qty INT);"),
              [wanted("shop.a", first), wanted("shop.b", second)], warehouse=place.warehouse())
        before = place.files()
        new = str(place.home / "data" / "new")
        shutil.copytree(first, new)
        before = place.files()
        for tables in ({"shop.a": new, "shop.b": new}, {"shop.a": second},
                       {"shop.a": second, "shop.b": first}):
            with pytest.raises(RelocationRefused) as refused:
                relocate(place.log(), tables=tables)
            assert {problem.code for problem in refused.value.problems} == {"CM0827"}
        assert place.files() == before

    def test_a_directory_that_holds_the_warehouse(self, place: Place) -> None:
        """As at adoption: what may be removed one day holds nothing else of ours."""
        path = adopted(place)
        new = place.home / "catalog"
        for each in Path(path).iterdir():
            shutil.move(str(each), new / each.name)
        with pytest.raises(RelocationRefused) as refused:
            relocate(place.log(), tables={"shop.orders": str(new)})
        assert {problem.code for problem in refused.value.problems} == {"CM0827"}

    def test_the_seal_of_an_attempt_that_died_is_taken_off_where_the_table_is_now(
        self, place: Place
    ) -> None:
        """A migration was killed behind its seal, then the table was moved: it takes rows again
        after the next start."""
        path = adopted(place)
        version = DeltaTable(path).version()
        Shards(None).seal(path, follows=version, app_id=place.state().app_id, epoch=0)

        changes = Changes()
        changes.put("intent", "0", IntentRecord(
            epoch=0, plan_hash="p", release="2",
            seals=(SealedShard(path=path, follows=version, properties={}),),
        ))
        leave(place.log(), changes)
        new = str(place.home / "data" / "renamed")
        shutil.move(path, new)
        relocate(place.log(), tables={"shop.orders": new})
        start(place)
        write_deltalake(new, rows_of([9]), mode="append")
