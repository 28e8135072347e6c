"""Undo with RESTORE of the table: exact, or refused with the reason; on a real broker and Delta."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from catalog_migrate.catalog.records import ConfigRecord, OperationRecord, ShardRecord
from catalog_migrate.connectors.kafka.positions import KafkaCodec
from catalog_migrate.delta.table import shard_version
from catalog_migrate.errors import UnsafeBlocked
from catalog_migrate.sql.parser import parse_one
from catalog_migrate.streams.catalog import dependencies
from catalog_migrate.streams.catalog.operation_records import commit_in, moves_in
from catalog_migrate.streams.catalog.query_spec import first_stream
from catalog_migrate.streams.catalog.tables import DeltaTables
from catalog_migrate.streams.checkpoint.codecs import DeltaCodec, DeltaPosition
from catalog_migrate.streams.checkpoint.directory import Checkpoint
from catalog_migrate.streams.ddl.execute import unsafe_result
from catalog_migrate.streams.positions import restore
from catalog_migrate.streams.positions.audit import actual
from catalog_migrate.streams.positions.render import render
from catalog_migrate.streams.positions.requests import joint
from catalog_migrate.streams.positions.restore import undo_request
from tests.decisions import Changes, commit
from tests.services.checkpoints import adopt, root

if TYPE_CHECKING:
    from .conftest import Stage

pytestmark = pytest.mark.services
At = Callable[..., str]


class Table:
    """The shard of source ``s`` as its query fills it; offsets of partition 0."""

    def __init__(self, stage: Stage, topic: str) -> None:
        self.stage, self.topic = stage, topic
        self.path = str(stage.warehouse / str(stage.state.items[stage.id].shard))

    def append(self, offsets: range, *, batch: int | None = None, app: str | None = None) -> None:
        """A batch of the query (with its entries in the checkpoint), or somebody else's rows."""
        from arro3.core import Array, DataType, Table
        from deltalake import CommitProperties, Transaction, write_deltalake

        done = []
        if batch is not None:
            done = [Transaction(app or str(self.stage.checkpoint.query_id), batch)]
        data: Any = Table.from_pydict({
            "id": Array(list(offsets), type=DataType.int64()),
            "_topic": Array([self.topic] * len(offsets), type=DataType.utf8()),
            "_partition": Array([0] * len(offsets), type=DataType.int32()),
            "_offset": Array(list(offsets), type=DataType.int64()),
        })
        write_deltalake(
            self.path, data, mode="append",
            commit_properties=CommitProperties(app_transactions=done),
        )
        if batch is not None and batch > 2:
            line = KafkaCodec().write({(self.topic, 0): offsets.stop})
            self.stage.write_offsets(batch, line)
            self.stage.write_commit(batch)

    @property
    def version(self) -> int:
        return shard_version(self.path) or 0

    @property
    def ids(self) -> list[int]:
        from deltalake import DeltaTable, QueryBuilder

        table = QueryBuilder().register("t", DeltaTable(self.path)).execute("SELECT id FROM t")
        return sorted(table.read_all().column("id").to_pylist())


@pytest.fixture
def filled(stage: Stage, at: At) -> Table:
    """Source ``s`` at 8 of 20 records with 8 rows in its table (version 0)."""
    table = Table(stage, at([20], {0: 8}))
    table.append(range(8), batch=2)
    return table


def sink(stage: Stage, consumed: int) -> Checkpoint:
    """Sink ``k`` below ``s``, which has sent versions up to ``consumed``; its checkpoint."""
    from deltalake import DeltaTable

    stage.run("CREATE SINK k IN CLUSTER main FROM s INTO KAFKA CONNECTION c (TOPIC 'out') "
              "KEY (id) FORMAT JSON")
    state = stage.state
    item = dependencies.find(state, "sink", "k").item_id
    shard = state.items[stage.id].shard or ""
    stage.put("stream", item, msgspec.structs.replace(first_stream(item), reads=shard))
    checkpoint = Checkpoint(f"{stage.warehouse}/{first_stream(item).checkpoint}")
    for name in ("offsets", "commits"):
        (root(checkpoint) / name).mkdir(parents=True)
    (root(checkpoint) / "metadata").write_text(json.dumps({"id": str(uuid.uuid4())}))
    table_id = str(DeltaTable(f"{stage.warehouse}/{shard}").metadata().id)
    for batch in (0, 1):
        line = DeltaCodec().write(DeltaPosition(table_id, consumed + batch))
        (root(checkpoint) / f"offsets/{batch}").write_text(
            'v1\n{"batchWatermarkMs":0,"batchTimestampMs":1,"conf":{}}\n' + line
        )
        (root(checkpoint) / f"commits/{batch}").write_text('v1\n{"nextBatchWatermarkMs":0}')
    adopt(checkpoint, item=item, sources=[f"source {item}"])
    return checkpoint


def line_of(checkpoint: Checkpoint) -> DeltaPosition:
    latest = checkpoint.latest_offsets
    assert latest is not None
    found = DeltaCodec().read(checkpoint.entry(latest).sources[0])
    assert found is not None
    return found


def now(stage: Stage) -> dict[int, int]:
    """Next record by partition in the newest entry."""
    (partitions,) = json.loads(stage.lines()[-1]).values()
    return {int(number): offset for number, offset in partitions.items()}


def undo(stage: Stage, key: str, **options: Any) -> Any:
    asked = undo_request(stage.state, key, restore_table=True)
    return stage.executor(**options).unsafe.run(asked, "back", confirm=lambda _: True)


def test_exact(stage: Stage, filled: Table) -> None:
    """Rows that came since go, positions are those of then, the sink goes on after the RESTORE.

    What it has sent of them is counted as coming again; undone once more, all is as before.
    """
    key = stage.unsafe("INJECT OFFSETS (TO 'shift 4')").operation  # 8 to 11 are skipped
    filled.append(range(12, 15), batch=3)
    filled.append(range(15, 17), batch=4)
    below = sink(stage, consumed=1)
    plan = stage.executor().unsafe.plan(undo_request(stage.state, key, restore_table=True), "")
    assert (plan.totals.doubled, plan.totals.skipped) == (3, 0)
    assert "the table goes back to version 0, it is at 2; 5 rows go" in plan.items[0].notes[0]
    stays = (
        "3 rows that go from the table were sent before: they stay in topic out, where the last "
        "one of each key (id) counts; 3 of them are sent again"
    )
    assert plan.items[1].notes == (stays,)
    assert f"note: {stays}" in render(plan)
    assert plan.items[1].stays == 3
    assert render(plan).endswith(
        "\n3 records doubled, 0 skipped; 0 already expired;"
        " 3 rows that go from the table stay below sink default.k"
    )

    outcome = undo(stage, key)
    assert unsafe_result(outcome).notices[-1] == stays
    assert filled.ids == list(range(8))
    assert now(stage) == {0: 8}
    assert filled.version == 3
    assert (line_of(below).version, below.latest_offsets) == (4, 1)
    assert stage.operation.unsafe.doubled == 3  # type: ignore[union-attr]
    assert stage.operation.unsafe.sources == ("default.s",)  # type: ignore[union-attr]
    assert not stage.state.holds

    act = stage.operation.unsafe
    assert act is not None
    assert (act.restored, act.removed, act.brought_back) == (0, 5, 0)
    assert act.partitions == (f"{filled.topic}:0 from 17 to 8",)

    filled.append(range(8, 12), batch=5)
    again = stage.executor().unsafe.plan(
        undo_request(stage.state, outcome.key, restore_table=True), ""
    )
    assert again.items[0].notes[0].endswith(
        "4 rows go, and come again as far as they are read again; "
        "5 rows that had been taken away come back"
    )
    undo(stage, outcome.key)
    act = stage.operation.unsafe
    assert (act.restored, act.removed, act.brought_back) == (2, 4, 5)
    assert filled.ids == [*range(8), *range(12, 17)]
    assert now(stage) == {0: 17}


def test_rows_that_stay(stage: Stage, filled: Table) -> None:
    """An undo of positions alone says what stays in the table, doubled or not, and what takes it
    away; with another writer it says why that would be refused."""
    key = stage.unsafe("INJECT OFFSETS (TO 'shift -3')").operation  # 5 to 7 come again
    asked = undo_request(stage.state, key)
    assert stage.executor().unsafe.plan(asked, "").items[0].notes == ()
    filled.append(range(5, 10), batch=3)
    stays = f"5 rows that came since operation {key} stay in the table; doubled among them: 3 rows"
    plan = stage.executor().unsafe.plan(asked, "")
    assert plan.items[0].notes == (
        f"{stays} of {filled.topic}:0",
        "to take them away as well: the same undo with --restore-table",
    )
    assert plan.totals.doubled == 2
    filled.append(range(1))
    outcome = stage.executor().unsafe.run(asked, "back", confirm=lambda _: True)
    said = unsafe_result(outcome).notices
    assert "6 rows that came since" in said[-2]
    assert said[-1].startswith("--restore-table, which takes rows away as well, would be refused: ")
    assert filled.ids == sorted([*range(8), *range(5, 10), 0])


def test_several_sources(stage: Stage, filled: Table) -> None:
    """A table is taken back for one source alone: said with the sources and what does go."""
    other = stage.topic("o", [5])
    stage.run(
        f"CREATE SOURCE s2 (id BIGINT) IN CLUSTER main FROM KAFKA CONNECTION c (TOPIC '{other}') "
        "FORMAT JSON"
    )
    both: Any = [
        parse_one(f"ALTER SOURCE {name} UNSAFE INJECT OFFSETS (TO latest)") for name in ("s", "s2")
    ]
    outcome = stage.executor().unsafe.run(joint(both, stage.state), "r", confirm=lambda _: True)
    assert outcome.key is not None
    with pytest.raises(UnsafeBlocked, match=r"is on source default\.s, source default\.s2"):
        undo_request(stage.state, outcome.key, restore_table=True)
    filled.append(range(20, 22), batch=3)
    plan = stage.executor().unsafe.plan(undo_request(stage.state, outcome.key), "")
    assert "works for an operation on one source alone" in plan.items[0].notes[1]


def test_nothing_since(stage: Stage, filled: Table) -> None:
    """Without a row since, positions go back and the table is not touched."""
    key = stage.unsafe("INJECT OFFSETS (TO 'shift 4')").operation
    undo(stage, key)
    assert (now(stage), filled.version) == ({0: 8}, 0)


@pytest.mark.parametrize("case", ["writer", "definition", "stateful", "replaced", "below"])
def test_refused(stage: Stage, filled: Table, case: str) -> None:
    """Another writer, another table, state, a sink that is behind: named, nothing is touched."""
    from deltalake import DeltaTable

    filled.append(range(8, 10), batch=3)
    key = stage.unsafe("INJECT OFFSETS (TO 'shift -2')").operation
    filled.append(range(8, 10), batch=4)
    match case:
        case "writer":
            filled.append(range(90, 91))
            message = r"another process has written into its table since: version 3 \(WRITE\)"
        case "definition":
            DeltaTable(filled.path).alter.set_table_properties({"delta.appendOnly": "true"})
            message = r"since: version 3 \(SET TBLPROPERTIES\)"
        case "stateful":
            (root(stage.checkpoint) / "state" / "0").mkdir(parents=True)
            message = "its query keeps state"
        case "replaced":
            item, other = stage.state.items[stage.id], "default/s/other"
            changes = Changes()
            record = ShardRecord(item_id=stage.id, global_id=item.global_id, state="live")
            changes.put("shard", other, record)
            changes.put("item", stage.id, msgspec.structs.replace(item, shard=other))
            commit(stage.log, lambda _: changes, kind="test")
            message = "its table was replaced by another"
        case _:
            sink(stage, consumed=0)
            message = r"sink default\.k below has rows to send that stay in the table"
    with pytest.raises(UnsafeBlocked, match=message):
        undo(stage, key)
    assert len(filled.ids) == 12 + (case == "writer")
    assert now(stage) == {0: 10}


class Died(BaseException):
    """The process is gone."""


@pytest.mark.parametrize(
    "every", [2, pytest.param(1, marks=pytest.mark.soak)], ids=["second step", "step"]
)
def test_killed_at_every(
    stage: Stage, filled: Table, monkeypatch: pytest.MonkeyPatch, every: int
) -> None:
    """Killed before or after any commit, to the catalog or to the table: all or nothing, once."""
    real, batch, outcomes = restore.restore_table, 3, set()
    for point in range(every, 40, every):
        key = stage.unsafe("INJECT OFFSETS (TO 'shift 2')").operation
        assert key is not None
        filled.append(range(10, 12), batch=batch)
        batch += 1
        asked = undo_request(stage.state, key, restore_table=True)
        calls = 0

        def step(point: int = point) -> None:
            nonlocal calls
            calls += 1
            if calls == point:
                raise Died

        def perform(*arguments: Any) -> None:
            step()
            real(*arguments)
            step()

        def hook(call: str) -> None:
            if call.startswith("append"):
                step()

        client = stage.executor(log=stage.log.attach(hook)).unsafe
        name = f"undo-{point:03d}"
        with monkeypatch.context() as patch:
            patch.setattr(restore, "restore_table", perform)
            try:
                client.run(asked, "back", confirm=lambda _: True, key=name)
            except Died:
                for lease_key, lease in stage.state.leases.items():
                    dead = msgspec.structs.replace(lease, holder="", host="")
                    stage.put("lease", lease_key, dead)
            else:
                assert (filled.ids, now(stage)) == (list(range(8)), {0: 8})
                break
        if name in stage.state.operations:
            try:
                stage.executor().unsafe.run(asked, "back", confirm=lambda _: True, key=name)
            except UnsafeBlocked as error:
                outcomes.add("restored" if "table was restored" in str(error) else "refused")
        assert not stage.state.holds
        if name in stage.state.operations and stage.state.operations[name].state == "done":
            outcomes.add("done")
            assert (filled.ids, now(stage)) == (list(range(8)), {0: 8})
        else:
            assert (filled.ids, now(stage)) == ([*range(8), 10, 11], {0: 12})
            undo(stage, key)
            assert (filled.ids, now(stage)) == (list(range(8)), {0: 8})
    assert outcomes == {"done", "refused", "restored"}


def as_of_format_5(row: OperationRecord) -> OperationRecord:
    """The row as a version of format 5 has it while the table goes back."""
    act, commit = row.unsafe, commit_in(row)
    assert act is not None
    (move,) = commit.moves
    assert move.restore is not None
    image = {
        "item_id": move.item_id, "definition": move.definition, "links": move.links,
        "line": move.line, "lines": [move.line], "batch": 3, "generation": move.generation,
        "target": move.target, "upstream": move.upstream, "topics": move.topics,
        "version": move.version, "shard": move.shard, "restored": move.restore.version,
    }
    prepared = {
        "images": [image], "edits": {move.item_id: move.edit},
        "upstreams": {move.item_id: move.upstream_after},
        "topics": {move.item_id: move.topics_after}, "totals": commit.totals,
        "injected": commit.injected, "snapshots": {move.item_id: move.snapshot},
        "restore": move.restore, "chunks": [], "expired": [], "partitions": commit.moved,
        "retaken": {},
    }
    return msgspec.structs.replace(row, unsafe=msgspec.structs.replace(
        act, request=msgspec.json.encode(act.request).decode(), commit=None,
        prepared=msgspec.json.encode(prepared).decode(),
    ))


@pytest.mark.parametrize("is_restored", [True, False])
def test_begun_by_an_earlier_version(
    stage: Stage, filled: Table, monkeypatch: pytest.MonkeyPatch, is_restored: bool
) -> None:
    """What it has on record is committed where its table went back, else it changed nothing."""
    key = stage.unsafe("INJECT OFFSETS (TO 'shift 2')").operation
    assert key is not None
    filled.append(range(10, 12), batch=3)
    asked, real = undo_request(stage.state, key, restore_table=True), restore.restore_table

    def die(*arguments: Any) -> None:
        if is_restored:
            real(*arguments)
        raise Died

    with monkeypatch.context() as patch:
        patch.setattr(restore, "restore_table", die)
        with pytest.raises(Died):
            stage.executor().unsafe.run(asked, "back", confirm=lambda _: True, key="undo")
    for lease_key, lease in stage.state.leases.items():
        stage.put("lease", lease_key, msgspec.structs.replace(lease, holder="", host=""))
    left = stage.state.operations["undo"]
    assert left.state == "restoring"
    stage.put("operation", "undo", as_of_format_5(left))
    stage.put("config", "format_version", ConfigRecord(value="5"))
    client = stage.executor().unsafe
    if not is_restored:
        with pytest.raises(UnsafeBlocked, match="stopped before its table was restored"):
            client.run(asked, "back", confirm=lambda _: True, key="undo")
        assert (filled.ids, now(stage)) == ([*range(8), 10, 11], {0: 12})
        assert stage.state.setting("format_version") == "5"
        return
    client.run(asked, "back", confirm=lambda _: True, key="undo")
    assert (filled.ids, now(stage)) == (list(range(8)), {0: 8})
    (before,), (after,) = commit_in(left).moves, moves_in(stage.state.operations["undo"])
    assert after == before
    assert stage.state.setting("format_version") == "6"


def test_counted_from_the_stop_on(stage: Stage, filled: Table) -> None:
    """Records that an earlier operation doubled are not counted again by the next one."""
    first = stage.unsafe("INJECT OFFSETS (TO 'shift -4')").operation
    filled.append(range(4, 8), batch=3)
    state = stage.state
    assert actual(state, state.operations[first], DeltaTables()) == (4, 0)
    second = stage.unsafe("INJECT OFFSETS (TO 'shift -4')").operation
    filled.append(range(4, 8), batch=4)
    state = stage.state
    assert actual(state, state.operations[second], DeltaTables()) == (4, 0)
    assert actual(state, state.operations[first], DeltaTables()) is None
