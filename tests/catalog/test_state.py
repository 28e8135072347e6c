"""The state as the sum of rows, decoded on demand, and the JSON of records frozen in files."""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog_migrate.catalog.commits import rows_of
from catalog_migrate.catalog.log import LogRow
from catalog_migrate.catalog.memory_log import MemoryLog
from catalog_migrate.catalog.opening import read_state
from catalog_migrate.catalog.records import (
    COLLECTIONS,
    AllocatorRecord,
    ClusterRecord,
    ColumnIds,
    ConfigRecord,
    HoldRecord,
    IntentRecord,
    ItemRecord,
    LeaseRecord,
    MappingRecord,
    OperationRecord,
    Record,
    ReleaseRecord,
    SealedShard,
    SessionRecord,
    ShardRecord,
    StreamRecord,
    TombstoneRecord,
    UnsafeAct,
    UserObjectRecord,
    identity_text,
)
from catalog_migrate.catalog.state import State, decode_record, encode_record, sum_rows
from catalog_migrate.errors import CatalogCorrupt, UnsupportedFormat
from catalog_migrate.model.layout import PlacedColumn, Shape
from catalog_migrate.model.objects import Check, Column, External, ObjectDefinition
from tests.decisions import Changes, commit

GOLDEN = Path(__file__).parent / "golden"
H = "1:" + "0123456789abcdef" * 2

RECORDS: dict[str, Record] = {
    "config": ConfigRecord(value="UTC"),
    "release": ReleaseRecord(
        owner="release", name="1.0", manifest_hash=H, serial=3, in_force=True
    ),
    "allocator": AllocatorRecord(next=17),
    "mapping": MappingRecord(
        schema="Sales", kind="table", name="Order Lines", owner="release", item_id="i4",
        global_id="s9", fingerprint=H, definition_hash=H, storage_hash=H, text_hash=H,
        comment_hash=H, applied=(H,),
    ),
    "item": ItemRecord(
        owner="release", global_id="s9",
        definition=ObjectDefinition(
            schema="Sales", kind="table", name="Order Lines",
            columns=(
                Column(name="id", type="BIGINT", nullable=False, comment="key"),
                Column(name="näme", type="STRING", renamed_from="label", using="trim(label)"),
            ),
            dropped=("old",), depends_on=(), properties={"b": "2", "a": "1"},
            partitioned_by=("id",), checks=(Check(name="positive", expression="id > 0"),),
        ),
        uses=("i1", "i2"), shard="sales/order lines/7f",
    ),
    "shard": ShardRecord(
        item_id="i4", global_id="s9", state="retired", source="sales/x/1", source_version=5,
        version=2, evolve=True, sealed_version=6, retired_at=1_800_000_000, retired_serial=4,
        unfilled=True,
    ),
    "tombstone": TombstoneRecord(
        item_id="i5", global_id="s6", schema="s", kind="view", name="v", serial=4, position=2,
        definition_hash=H, users=("relation:s.w",),
    ),
    "intent": IntentRecord(
        epoch=8, plan_hash=H, release="1.1", paths=("s/t/1",),
        seals=(SealedShard(path="s/t/0", follows=3, properties={"delta.appendOnly": None}),),
    ),
    "lease": LeaseRecord(
        epoch=8, holder="pod-1", host="h", boot_id="b/pid:[1]", pid=12, started="345",
        since="2027-01-15T08:00:00+00:00",
    ),
    "operation": OperationRecord(kind="alter", state="running", detail={"step": "stop"}),
    "hold": HoldRecord(item_id="i7", holder="operator", reason="disk is full", since="2026-01-01"),
    "cluster": ClusterRecord(unsafe=True),
    "session": SessionRecord(
        release="16", serial=4, holder="pod-1/12", host="pod-1", boot_id="b/pid:[1]", pid=12,
        started="345", since="2027-01-15T08:00:00+00:00", folded=3,
    ),
    "stream": StreamRecord(
        checkpoint="_checkpoints/i7/1", upstream="MkU3OEVBNTcwNTJENDM2Qk",
        topics={"orders": "xYz-1"}, generation=2,
    ),
    "user_object": UserObjectRecord(
        schema="team", kind="view", name="Cities", reads=("relation:sales.`order lines`",),
        state="broken", condition="UNRESOLVED_COLUMN.WITH_SUGGESTION", reason="no column label",
        release="1.1", since="2027-01-15T08:00:00+00:00", original="SELECT label FROM s.t",
        repaired="SELECT name AS label FROM s.t", repaired_at=4, serial=4, due="put back",
    ),
}


class TestGolden:
    @pytest.mark.parametrize("collection", sorted(COLLECTIONS))
    def test_bytes(self, collection: str) -> None:
        """The JSON of each record is what the files of format 1 hold, byte for byte."""
        text = (GOLDEN / f"{collection}.json").read_text(encoding="utf-8")
        assert encode_record(RECORDS[collection]) + "\n" == text

    @pytest.mark.parametrize("collection", sorted(COLLECTIONS))
    def test_read_back(self, collection: str) -> None:
        """A record of format 1 is read back whole."""
        text = (GOLDEN / f"{collection}.json").read_text(encoding="utf-8")
        assert decode_record(collection, "k", text) == RECORDS[collection]

    def test_format_2(self) -> None:
        """What is to become of a shard in place, by physical names, is the record of format 2."""
        shard = ShardRecord(
            item_id="i4", global_id="s9", state="live", evolve=True,
            shape=Shape((PlacedColumn("c", "b", "INT"), PlacedColumn("", "d", "INT")), ("a",)),
        )
        text = (GOLDEN / "shard-2.json").read_text(encoding="utf-8")
        assert encode_record(shard) + "\n" == text
        assert decode_record("shard", "k", text) == shard

    def test_format_3(self) -> None:
        """Which column is which is part of a table's record since format 3."""
        item = ItemRecord(
            owner="release", global_id="s9", shard="s/t/7f",
            definition=ObjectDefinition(
                schema="s", kind="table", name="t",
                columns=(Column(name="id", type="INT"), Column(name="note", type="STRING")),
            ),
            column_ids=ColumnIds(ids=(1, 4), last=6, values=(1, 6), taken={"more": 5}),
        )
        text = (GOLDEN / "item-3.json").read_text(encoding="utf-8")
        assert encode_record(item) + "\n" == text
        assert decode_record("item", "k", text) == item
        assert item.name_of == {1: "id", 4: "note"}

    def test_format_5(self) -> None:
        """Properties still to be unset, and seals that outlive their commit."""
        for collection, record in (
            ("shard", ShardRecord(
                item_id="i4", global_id="s9", state="live", evolve=True, unset=("a", "delta.b"),
            )),
            ("intent", IntentRecord(
                epoch=8, plan_hash=H, release="1.1", committed=True,
                seals=(SealedShard(path="s/t/0", follows=3, properties={"b": None}),),
            )),
        ):
            text = (GOLDEN / f"{collection}-5.json").read_text(encoding="utf-8")
            assert encode_record(record) + "\n" == text
            assert decode_record(collection, "k", text) == record

    def test_columns_without_ids(self) -> None:
        """A table of format 2 has its columns numbered in their order."""
        text = (GOLDEN / "item.json").read_text(encoding="utf-8")
        item = decode_record("item", "k", text)
        assert isinstance(item, ItemRecord)
        assert item.name_of == {1: "id", 2: "näme"}

    def test_given_up(self) -> None:
        """A shard that is gone and whose files are still to be deleted; older tools leave those."""
        shard = ShardRecord(
            item_id="i4", global_id="s9", state="gone", retired_at=1_800_000_000, removing=True
        )
        text = (GOLDEN / "shard-removing.json").read_text(encoding="utf-8")
        assert encode_record(shard) + "\n" == text
        assert decode_record("shard", "k", text) == shard

    def test_put_together(self) -> None:
        """A shard that a rollback made of several, and one whose directory was moved."""
        for name, shard in (
            ("put-together", ShardRecord(
                item_id="i4", global_id="s9", state="live", source="s/t/2", source_version=3,
                version=4, rows_of=("s/t/0", "s/t/1", "s/t/2"),
            )),
            ("moved", ShardRecord(
                item_id="i4", global_id="s9", state="gone", retired_at=1_800_000_000,
                moved_to="/data/new",
            )),
        ):
            text = (GOLDEN / f"shard-{name}.json").read_text(encoding="utf-8")
            assert encode_record(shard) + "\n" == text
            assert decode_record("shard", "k", text) == shard

    def test_later_fields(self) -> None:
        """A field that a later tool of the same format added is passed over."""
        assert decode_record("allocator", "i", '{"next":3,"new":1}') == AllocatorRecord(next=3)

    def test_identity_text(self) -> None:
        """Keys of mappings are folded and quoted where they must be; they never change."""
        assert identity_text(("relation", "sales", "order lines")) == "relation:sales.`order lines`"
        assert identity_text(("function", "s", "f")) == "function:s.f"


rows = st.lists(
    st.tuples(
        st.sampled_from(["item", "shard"]), st.sampled_from("abc"), st.sampled_from("xyz")
    ),
    unique=True,
)


class TestSum:
    @given(kept=rows, gone=rows, order=st.randoms(use_true_random=False))
    def test_any_order(self, kept: Any, gone: Any, order: Any) -> None:
        """The sum is what was added and not retracted, whatever the order of the rows."""
        log = [LogRow(*row, 1) for row in kept]
        log += [LogRow(*row, diff) for row in gone if row not in kept for diff in (1, -1)]
        order.shuffle(log)
        assert sorted(sum_rows(log)) == sorted(kept)

    @pytest.mark.parametrize("diff", [2, -1])
    def test_contradiction(self, diff: int) -> None:
        """A row that is there twice, or was retracted without being there, is corruption."""
        with pytest.raises(CatalogCorrupt, match=rf"item 'i1' is in the log {diff} times"):
            sum_rows([LogRow("item", "i1", "{}", diff)])

    edits = st.lists(
        st.dictionaries(st.sampled_from("abcd"), st.none() | st.integers(0, 3)), max_size=8
    )

    @given(history=edits)
    def test_commits(self, history: list[dict[str, int | None]]) -> None:
        """After any commits the summed rows, the carried state and a plain dict agree."""
        log = [LogRow("config", "format_version", '{"value":"1"}', 1),
               LogRow("config", "serial", '{"value":"0"}', 1)]
        state = State.from_rows(0, sum_rows(log))
        model: dict[str, int] = {}
        serial = 0
        for edit in history:
            changes = Changes()
            changes.raise_serial()
            for key, value in edit.items():
                if value is None:
                    changes.delete("allocator", key)
                else:
                    changes.put("allocator", key, AllocatorRecord(next=value))
            effective = changes.effective(state)
            log += rows_of(state, effective)
            state = state.apply_edits(state.version + 1, effective) if effective else state
            old = dict(model)
            for key, value in edit.items():
                if value is None:
                    model.pop(key, None)
                else:
                    model[key] = value
            serial += old != model
            assert {key: row.next for key, row in state.allocators.items()} == model
            assert state.serial == serial
        again = State.from_rows(state.version, sum_rows(log))
        assert {name: dict(rows) for name, rows in again.raw.items() if rows} == {
            name: dict(rows) for name, rows in state.raw.items() if rows
        }


def _state(**records: dict[str, Record]) -> State:
    rows = [("config", "format_version", '{"value":"1"}'), ("config", "serial", '{"value":"0"}')]
    rows += [
        (collection, key, encode_record(record))
        for collection, entries in records.items()
        for key, record in entries.items()
    ]
    return State.from_rows(0, rows)


class TestState:
    def test_release_history(self) -> None:
        """Releases come by owner and number, not by text; the one in force is found by owner."""
        state = _state(
            release={
                f"release/{n}": ReleaseRecord("release", f"r{n}", H, n, in_force=n == 10)
                for n in (10, 9, 2)
            }
            | {"system/1": ReleaseRecord("system", "0.1", H, 1, in_force=True)},
        )
        assert [row.name for row in state.releases] == ["r2", "r9", "r10", "0.1"]
        assert list(state.release_rows("release")) == ["release/2", "release/9", "release/10"]
        in_force = state.release_in_force()
        assert in_force is not None
        assert in_force.name == "r10"
        system = state.release_in_force("system")
        assert system is not None
        assert system.name == "0.1"
        assert state.release_in_force("user") is None

    def test_unbound_user_objects(self) -> None:
        """Users' objects that do not bind are found by name; what they are is said in words."""
        state = _state(user_object={
            f"relation:team.{name}": UserObjectRecord(
                "team", "view", name, state=now, condition="X", reason="no column a",
                release="16", since="2027-01-15T08:00:00+00:00",
            )
            for name, now in (("c", "unknown"), ("b", "bound"), ("a", "broken"))
        })
        assert [str(row) for row in state.unbound_user_objects] == [
            f"view team.{name}: {now} since 2027-01-15T08:00:00+00:00 by release 16: [X]"
            " no column a" for name, now in (("a", "broken"), ("c", "unknown"))
        ]

    def test_tombstones_in_work_order(self) -> None:
        """Tombstones come by serial, then position, as numbers."""
        def stone(serial: int, position: int) -> TombstoneRecord:
            return TombstoneRecord("i1", "s1", "s", "view", "v", serial, position)

        state = _state(
            tombstone={f"{s}/{p}": stone(s, p) for s, p in [(10, 0), (9, 11), (9, 2)]}
        )
        order = [(row.serial, row.position) for row in state.tombstones]
        assert order == [(9, 2), (9, 11), (10, 0)]

    def test_an_unsafe_act_that_says_no_numbers(self) -> None:
        """It did nothing to any record or row."""
        act = UnsafeAct("w", "h", "2027-01-15T08:00:00+00:00", "because", "skip 2")
        assert {getattr(act, name) for name in (
            "injected", "doubled", "skipped", "expired", "removed", "brought_back",
            "backfill_records",
        )} == {0}

    def test_items_of_a_kind(self) -> None:
        """Their shards, sorted, of those that have one; a kind is not found in another's text."""
        def item(kind: str, name: str, shard: str | None) -> ItemRecord:
            properties = {"like": '"kind":"table"'}
            definition = ObjectDefinition("s", kind, name, (), properties=properties)  # type: ignore[arg-type]
            return ItemRecord("release", "s1", definition, shard=shard)

        state = _state(item={
            "i1": item("table", "b", "s/b/1"), "i2": item("table", "a", "s/a/1"),
            "i3": item("table", "c", None), "i4": item("view", "v", "s/v/1"),
        })
        assert state.shards_of_kind("table") == ("s/a/1", "s/b/1")
        assert state.shards_of_kind("view") == ("s/v/1",)
        assert state.shards_of_kind("sink") == ()

    @pytest.mark.parametrize("registry", [None, "team"])
    def test_registries(self, registry: str | None) -> None:
        """A source that reads by a schema registry is told from one that does not."""
        definition = ObjectDefinition(
            "s", "source", "o", (), external=External("kafka", {}, registry=registry)
        )
        state = _state(item={"i1": ItemRecord("user", "s1", definition)})
        assert state.has_registries is (registry is not None)
        assert not _state().has_registries

    def test_lazy(self) -> None:
        """A record that cannot be read harms nobody who does not look at its collection."""
        rows = [("config", "format_version", '{"value":"1"}'), ("item", "i1", "{oops")]
        state = State.from_rows(3, rows)
        assert dict(state.leases) == {}
        with pytest.raises(CatalogCorrupt, match="item 'i1' of the catalog is not readable"):
            state.items.get("i1")

    @pytest.mark.parametrize(
        ("collection", "ask"),
        [
            ("mapping", lambda state: state.has_streams),
            ("mapping", lambda state: state.has_owner("user")),
            ("item", lambda state: state.list_quarantined()),
            ("item", lambda state: state.shards_of_kind("log")),
            ("shard", lambda state: state.has_pending_changes),
        ],
    )
    def test_a_glance_names_what_is_not_readable(self, collection: str, ask: Any) -> None:
        """Also a question that needs a few fields of each record says which one is none."""
        state = State(0, {collection: {"k": '{"kind":"connection'}})
        with pytest.raises(CatalogCorrupt, match=f"{collection} 'k' of the catalog is not"):
            ask(state)

    def test_unknown_collection(self) -> None:
        """Rows of a collection that this tool does not know are carried along."""
        rows = [("config", "format_version", '{"value":"1"}'), ("audit", "k", "{}")]
        state = State.from_rows(3, rows)
        assert state.raw["audit"] == {"k": "{}"}
        assert state.apply_edits(4, {("config", "x"): '{"value":"1"}'}).raw["audit"] == {"k": "{}"}

    def test_two_values(self) -> None:
        """Two values under one key are corruption."""
        rows = [("config", "a", '{"value":"1"}'), ("config", "a", '{"value":"2"}')]
        with pytest.raises(CatalogCorrupt, match="config 'a' has two values"):
            State.from_rows(0, rows)

    @pytest.mark.parametrize(
        ("text", "error"),
        [('{"value":"7"}', UnsupportedFormat), ('{"value":"x"}', CatalogCorrupt),
         (None, CatalogCorrupt)],
    )
    def test_format(self, text: str | None, error: type[Exception]) -> None:
        """A newer format is refused; one that is missing or no number is corruption."""
        rows = [("config", "serial", '{"value":"1"}')]
        rows += [("config", "format_version", text)] if text is not None else []
        with pytest.raises(error):
            State.from_rows(0, rows)

    def test_immutable(self) -> None:
        """Collections cannot be written to, and a changed state leaves the old one alone."""
        state = _state(allocator={"i": AllocatorRecord(1)})
        with pytest.raises(TypeError):
            state.allocators["i"] = AllocatorRecord(2)  # type: ignore[index]
        state.apply_edits(1, {("allocator", "i"): '{"next":5}'})
        assert state.allocators["i"].next == 1


class TestKeptState:
    """A snapshot carries what was made of it; a commit of our own leads on to the next one."""

    def test_read_once(self, memory: MemoryLog) -> None:
        """Two readers of one version share one state, whose rows are those of the log."""
        first = read_state(memory)
        assert read_state(memory) is first
        assert sorted(memory.read().rows) == sorted(memory.replay().rows)

    def test_own_commit(self, memory: MemoryLog, build: Any) -> None:
        """After a commit the next reader gets its outcome, equal to the sum of all rows."""
        after = commit(memory, build.tables("a", "b"), kind="test")
        again = read_state(memory)
        assert again.items is after.items
        assert again.version == after.version
        assert memory.replay().raw == again.raw

    def test_foreign_commit(self, memory: MemoryLog) -> None:
        """A commit whose writer hands over no state is read from the rows."""
        before = read_state(memory)
        memory.append(
            [LogRow("operation", "o", '{"kind":"k","state":"s"}', 1)],
            follows=before.version, commit_id="x", metadata={},
        )
        assert read_state(memory).operations["o"].state == "s"


def test_changed_while_another_thread_asks(memory: MemoryLog) -> None:
    """A state may be asked in one thread while another one makes the next of it."""
    raw = read_state(memory).raw
    edits = {("config", "other"): '{"value":"x"}'}
    ended = threading.Event()
    shown: list[State] = []
    heard: set[int] = set()

    def ask() -> None:
        while not ended.is_set():
            for state in shown[-1:]:
                heard.add(state.serial)

    asking = threading.Thread(target=ask)
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        asking.start()
        for _ in range(20_000):
            state = State(1, raw)
            state.release_in_force()
            shown[:] = [state]
            state.apply_edits(2, edits)
    finally:
        sys.setswitchinterval(interval)
        ended.set()
        asking.join()
    assert heard == {0}


def test_what_an_unsafe_act_leaves_out_is_none() -> None:
    """No partition was put elsewhere and no record counted, but where the row says so."""
    act = UnsafeAct("w", "h", "2027-01-15T08:00:00+00:00", "because", {})
    read = msgspec.json.decode(msgspec.json.encode(act), type=UnsafeAct)
    numbers = {
        name: value for name in UnsafeAct.__struct_fields__
        if type(value := getattr(read, name)) in (int, float)
    }
    assert numbers == dict.fromkeys((
        "injected", "doubled", "skipped", "expired", "seconds", "removed", "brought_back",
        "backfill_records",
    ), 0)
