"""Following a table from shard to shard, on real Delta logs and checkpoint directories."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

from catalog_migrate.catalog import commits
from catalog_migrate.catalog.memory_log import MemoryLog
from catalog_migrate.catalog.opening import create_catalog, read_state
from catalog_migrate.catalog.records import ShardRecord, StreamRecord
from catalog_migrate.catalog.state import State
from catalog_migrate.delta.table import make_append_only, shard_version
from catalog_migrate.engine.spark.shards import Shards
from catalog_migrate.errors import EngineFailure, PositionLost
from catalog_migrate.migrations.cleanup import find_expired
from catalog_migrate.model.objects import Column, ObjectDefinition
from catalog_migrate.sql.parser import parse
from catalog_migrate.streams.catalog import dependencies
from catalog_migrate.streams.catalog.statement_changes import Draft
from catalog_migrate.streams.catalog.tables import DeltaTables, ShardMaker
from catalog_migrate.streams.checkpoint.codecs import DeltaCodec, DeltaPosition
from catalog_migrate.streams.checkpoint.delta_tables import has_rows_between
from catalog_migrate.streams.checkpoint.directory import Checkpoint
from catalog_migrate.streams.checkpoint.guards import claim
from catalog_migrate.streams.ddl.migrations import MigratedStreams
from catalog_migrate.streams.ddl.plans import plan_statement
from catalog_migrate.streams.runtime import shard_handover
from catalog_migrate.streams.runtime.lag import Lag, sink_lag, sink_lags
from catalog_migrate.streams.runtime.ports import Ports
from tests.decisions import Changes, commit
from tests.services.checkpoints import adopt, root

QUERY = "4390c917-4440-44d6-bf46-bb59b73796fe"
SINK = "CREATE SINK {} FROM t INTO POSTGRES CONNECTION pg (TABLE 't') {}"


class Place:
    """A catalog with the table ``t`` (its rows in real Delta tables) and the sink ``k`` on it."""

    def __init__(self, directory: Path) -> None:
        self.warehouse = str(directory)
        self.log = MemoryLog()
        create_catalog(self.log, warehouse=self.warehouse)
        self.shard = "default/t/1"
        definition = ObjectDefinition(
            schema="default", kind="table", name="t", columns=(Column("id", "BIGINT"),)
        )
        draft = Draft(self.state)
        self.table = draft.create(definition, shard=self.shard)
        commit(self.log, lambda _: draft.updates, kind="test")
        self.versions = {self.shard: self.append(self.shard, 1)}
        self.do("CREATE CONNECTION pg TO POSTGRES (HOST 'db.example.com', DATABASE 'shop', "
                "USER 'app')")
        self.do(SINK.format("k", ""))
        self.sink = dependencies.find(self.state, "sink", "k").item_id
        self.checkpoint = Checkpoint(directory / "_checkpoints" / self.sink / "1")

    @property
    def state(self) -> State:
        return read_state(self.log)

    @property
    def stream(self) -> StreamRecord:
        return self.state.streams[self.sink]

    def do(self, text: str) -> None:
        (parsed,) = parse(text)
        changes = plan_statement(self.state, parsed.statement).updates
        assert changes is not None
        commit(self.log, lambda _: changes, kind="test")

    def path(self, shard: str) -> str:
        return f"{self.warehouse}/{shard}"

    def append(self, shard: str, rows: int) -> int:
        from arro3.core import Array, DataType, Table
        from deltalake import DeltaTable, write_deltalake

        data: Any = Table.from_pydict({"id": Array(list(range(rows)), type=DataType.int64())})
        write_deltalake(self.path(shard), data, mode="append")
        return DeltaTable(self.path(shard)).version()

    def seal(self, shard: str) -> int:
        version = shard_version(self.path(shard))
        assert version is not None
        return Shards(None).seal(
            self.path(shard), follows=version, app_id="catalog_migrate/test", epoch=1
        )

    def started(self, reads: str) -> None:
        """The sink was started when its table was in that shard."""
        record = StreamRecord(checkpoint=f"_checkpoints/{self.sink}/1", reads=reads, upstream="u")
        self.put(lambda changes, _: changes.put("stream", self.sink, record))

    def migrated(self, *, copied: bool = True) -> str:
        """The table gets another shard: a copy of the sealed old one."""
        old, new = self.shard, f"default/t/{int(self.shard.rsplit('/', 1)[1]) + 1}"
        seal = self.seal(old)
        version = self.append(new, 1)

        def write(changes: Changes, state: State) -> None:
            item = state.items[self.table]
            changes.put("item", self.table, msgspec.structs.replace(item, shard=new))
            changes.put("shard", old, msgspec.structs.replace(
                state.shards[old], state="retired", retired_at=0, sealed_version=seal))
            changes.put("shard", new, ShardRecord(
                item_id=self.table, global_id="g", state="live", version=version,
                source=old if copied else None, source_version=seal if copied else None))

        self.put(write)
        self.shard = new
        return new

    def put(self, write: Callable[[Changes, State], None], kind: str = "test") -> State:
        def decide(state: State) -> Changes:
            changes = Changes()
            write(changes, state)
            return changes

        return commit(self.log, decide, kind=kind)

    def read(self, shard: str, upto: int, *, batches: int = 2, committed: bool = True) -> None:
        """A checkpoint whose last batch ends behind the version ``upto`` of a shard."""
        from deltalake import DeltaTable

        top = root(self.checkpoint)
        for part in ("offsets", "commits"):
            (top / part).mkdir(parents=True)
        (top / "metadata").write_text(f'{{"id":"{QUERY}"}}')
        table_id = str(DeltaTable(self.path(shard)).metadata().id)
        head = {"batchWatermarkMs": 0, "batchTimestampMs": 1, "conf": {}}
        for number in range(batches):
            position = DeltaPosition(table_id, upto + 1 - (batches - 1 - number))
            text = "\n".join(["v1", json.dumps(head), DeltaCodec().write(position)])
            (top / "offsets" / str(number)).write_text(text)
            if committed or number < batches - 1:
                (top / "commits" / str(number)).write_text('v1\n{"nextBatchWatermarkMs":0}')
        adopt(self.checkpoint, item=self.sink, sources=[self.table])

    def step(self) -> bool:
        return shard_handover.step(
            self.state, self.sink, self.checkpoint, DeltaTables(),
            commit=partial(commits.commit, self.log),
        ) is not None

    def positions(self) -> list[DeltaPosition | None]:
        """Of the last two batches."""
        newest = self.checkpoint.latest_offsets
        assert newest is not None
        return [DeltaCodec().read(self.checkpoint.entry(number).sources[0])
                for number in range(max(0, newest - 1), newest + 1)]

    def target(self, shard: str) -> DeltaPosition:
        from deltalake import DeltaTable

        version = self.state.shards[shard].version
        assert version is not None
        return DeltaPosition(str(DeltaTable(self.path(shard)).metadata().id), version + 1)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """The sink stands in the table's only shard."""
    place = Place(tmp_path)
    place.started(place.shard)
    return place


def test_nothing_to_follow(place: Place) -> None:
    """A sink in its table's shard stays; retention keeps nothing for it."""
    assert not shard_handover.pending(place.state, place.sink)
    assert shard_handover.still_read(place.state) == frozenset()


def test_drained_at_the_seal(place: Place) -> None:
    """Read up to the last row: the seal holds no rows, so the sink goes on behind the copy."""
    old, last = place.shard, place.append(place.shard, 2)
    new = place.migrated()
    place.append(new, 3)  # appended after the copy: not skipped
    place.read(old, last)
    assert shard_handover.pending(place.state, place.sink)
    assert place.step()
    assert (place.stream.reads, place.stream.generation) == (new, 1)
    assert place.positions() == [place.target(new)] * 2
    assert not shard_handover.pending(place.state, place.sink)
    assert shard_handover.still_read(place.state) == frozenset()


def test_not_drained(place: Place) -> None:
    """With a row still to read it stays where it is, and nothing is committed."""
    old, before = place.shard, place.versions[place.shard]
    place.append(old, 1)
    place.migrated()
    place.read(old, before)
    version = place.log.version()
    assert not place.step()
    assert place.log.version() == version
    assert place.stream.reads == old


def test_an_uncommitted_batch_is_not_drained(place: Place) -> None:
    """A batch under way is finished on the old shard, wherever it ends."""
    old, last = place.shard, place.append(place.shard, 1)
    place.migrated()
    place.read(old, last, committed=False)
    assert not place.step()


def test_in_the_midst_of_a_version(place: Place) -> None:
    """A position within a version, or in the first snapshot, is not drained."""
    old, last = place.shard, place.append(place.shard, 1)
    place.migrated()
    place.read(old, last, batches=1)
    entry = root(place.checkpoint) / "offsets/0"
    whole = entry.read_text()
    for half in ('"index":0', '"isStartingVersion":true'):
        name = half.split(":", 1)[0]
        value = '-1' if name == '"index"' else 'false'
        entry.write_text(whole.replace(f"{name}:{value}", half))
        assert not place.step()
    entry.write_text(whole)
    assert place.step()


def test_never_read(place: Place) -> None:
    """A sink without any batch begins in the new shard, which holds all rows: nothing to edit."""
    new = place.migrated()
    claim(place.checkpoint, item=place.sink, sources=[place.table])
    assert place.step()
    assert (place.stream.reads, place.stream.generation, place.stream.edit) == (new, 0, "")


def test_through_two_retired_shards(place: Place) -> None:
    """Two migrations while it stood still: one shard a step, none skipped, all kept till then."""
    first, last = place.shard, place.append(place.shard, 1)
    second = place.migrated()
    between = place.append(second, 1)
    third = place.migrated()
    place.read(first, last)
    assert shard_handover.still_read(place.state) == {first, second, third}
    assert find_expired(place.state, 100.0, 1.0, MigratedStreams()) == []
    assert place.step()
    assert place.stream.reads == second
    assert find_expired(place.state, 100.0, 1.0, MigratedStreams()) == [first]
    # the row between the two migrations is still to be read
    assert not place.step()
    newest = place.checkpoint.latest_offsets
    assert newest is not None
    for batch in (newest - 1, newest):
        position = place.positions()[0]
        assert position is not None
        line = DeltaCodec().write(DeltaPosition(position.table_id, between + 1))
        place.checkpoint.write_offset(batch, 0, line)
    assert place.step()
    assert (place.stream.reads, place.stream.generation) == (third, 2)
    assert place.positions() == [place.target(third)] * 2
    assert set(find_expired(place.state, 100.0, 1.0, MigratedStreams())) == {first, second}


def test_cut_off_between_commit_and_edit(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """The commit is made, the files are not edited: no further step until they are, by a start."""
    old, last = place.shard, place.append(place.shard, 1)
    second = place.migrated()
    place.read(old, last)
    before = place.positions()

    class Cut(Exception):
        pass

    def cut(*_: object, **__: object) -> bool:
        raise Cut

    with monkeypatch.context() as patched:
        patched.setattr(shard_handover, "apply", cut)
        with pytest.raises(Cut):
            place.step()
    assert place.stream.reads == second
    assert place.positions() == before
    third = place.migrated()
    # its lines are still of the first shard: what they say of the second is nothing
    assert not place.step()
    assert shard_handover.apply_committed(place.checkpoint, place.sink, place.stream)
    assert place.positions() == [place.target(second)] * 2
    assert not shard_handover.apply_committed(place.checkpoint, place.sink, place.stream)
    assert place.step()
    assert place.stream.reads == third


def test_somebody_else_committed_first(place: Place) -> None:
    """A position that was changed meanwhile is not overwritten."""
    old, last = place.shard, place.append(place.shard, 1)
    place.migrated()
    place.read(old, last)
    stale = place.state
    changed = msgspec.structs.replace(place.stream, topics={"x": "y"})
    place.put(lambda changes, _: changes.put("stream", place.sink, changed))
    shard_handover.step(
        stale, place.sink, place.checkpoint, DeltaTables(),
        commit=partial(commits.commit, place.log),
    )
    assert place.stream == changed


def test_no_trail(place: Place) -> None:
    """A shard that nothing was copied from is an error, once its rows were sent."""
    old, before = place.shard, place.versions[place.shard]
    last = place.append(old, 1)
    place.migrated(copied=False)
    place.read(old, before)
    assert not place.step()
    newest = place.checkpoint.latest_offsets
    position = place.positions()[-1]
    assert newest is not None
    assert position is not None
    line = DeltaCodec().write(DeltaPosition(position.table_id, last + 1))
    place.checkpoint.write_offset(newest, 0, line)
    with pytest.raises(PositionLost, match=r"default\.k .*default\.t"):
        place.step()
    assert old in shard_handover.still_read(place.state)


def test_what_makes_a_batch(place: Place) -> None:
    """Properties and a seal make none, rows do; of a change only ON CHANGE skip makes none."""
    from deltalake import DeltaTable

    path = place.path(place.shard)
    start = shard_version(path)
    assert start is not None
    assert make_append_only(path)
    assert not make_append_only(path)
    place.seal(place.shard)
    now = shard_version(path)
    assert now is not None
    assert not has_rows_between(path, start, now)
    assert has_rows_between(path, start - 1, now)
    Shards(None).unseal(path, {"delta.appendOnly": "false"})
    DeltaTable(path).optimize.compact()
    DeltaTable(path).delete("id = 0")
    changed = shard_version(path)
    assert changed is not None
    assert has_rows_between(path, now, changed)
    assert not has_rows_between(path, now, changed, skip_changes=True)
    with pytest.raises(EngineFailure, match="version"):
        has_rows_between(path, now, changed + 1, skip_changes=True)


def test_a_table_under_a_sink_only_grows(place: Place) -> None:
    """Unless every sink on it says ON CHANGE skip; a seal that is taken off leaves it so."""
    from deltalake import DeltaTable

    def configuration() -> dict[str, Any]:
        return dict(DeltaTable(path).metadata().configuration)

    path = place.path(place.shard)
    maker = ShardMaker.local()
    place.do(SINK.format("skipping", "WITH (ON CHANGE = 'skip')"))
    skipping = dependencies.find(place.state, "sink", "skipping").item_id
    maker.ensure(place.state, skipping)
    assert "delta.appendOnly" not in configuration()
    maker.ensure(place.state, place.sink)
    assert configuration()["delta.appendOnly"] == "true"
    shards = Shards(None)
    earlier = shards.seal_properties(path)
    place.seal(place.shard)
    shards.unseal(path, earlier)
    assert configuration()["delta.appendOnly"] == "true"
    assert not shards.is_sealed(path)


def test_a_dropped_sink_leaves_the_table_as_it_is(place: Place) -> None:
    """The last sink's DROP says that the table still only grows, and how to change that."""

    def notices(text: str) -> tuple[str, ...]:
        (parsed,) = parse(text)
        return plan_statement(place.state, parsed.statement).notices

    assert any("delta.appendOnly" in text for text in notices("DROP SINK k"))
    place.do(SINK.format("another", ""))
    assert notices("DROP SINK k") == ()


def test_the_copy_of_a_target_knows_its_batches(place: Place) -> None:
    """A table that takes dead letters is copied: a batch that it has is not taken again."""
    from deltalake import CommitProperties, DeltaTable, Transaction

    place.do("CREATE CONNECTION c TO KAFKA (BROKER 'a.example.com:9092')")
    place.do("CREATE SOURCE s (id INT) FROM KAFKA CONNECTION c (TOPIC 'x') FORMAT JSON "
             "ON ERROR INTO bad")
    source, bad = (dependencies.find(place.state, kind, name).item_id
                   for kind, name in (("source", "s"), ("table", "bad")))
    old, new = place.path("default/bad/1"), place.path("default/bad/2")
    place.append("default/bad/1", 1)
    place.append("default/bad/2", 1)
    record = StreamRecord(checkpoint="_checkpoints/bad/1", upstream="u")
    place.put(lambda changes, _: changes.put("stream", source, record))

    def carry() -> int:
        return shard_handover.carry_transactions(place.state, bad, old, new)

    assert carry() == 0  # never started
    checkpoint = Path(place.warehouse, "_checkpoints/bad/1")
    checkpoint.mkdir(parents=True)
    (checkpoint / "metadata").write_text(f'{{"id":"{QUERY}"}}')
    assert carry() == 0  # never wrote there
    table = DeltaTable(old)
    table.create_write_transaction(
        [], "append", table.schema(),
        commit_properties=CommitProperties(app_transactions=[Transaction(QUERY, 7)]),
    )
    for _ in range(2):
        assert carry() == 1
        assert DeltaTable(new).transaction_version(QUERY) == 7
    assert DeltaTable(new).version() == 1
    assert shard_handover.carry_transactions(place.state, place.table, old, new) == 0


def test_how_far_a_sink_is_behind(place: Place) -> None:
    """Rows of its table that it has not written, and the versions that brought them: of a table
    that was migrated those of the old shard, and those behind the copies; seals and properties are
    none. What was never read is all of it."""
    ports = Ports()
    place.append(place.shard, 2)
    assert sink_lag(place.state, place.sink, ports=ports) == Lag(3, 1)  # a first start has all
    last = place.append(place.shard, 4)
    place.read(place.shard, last)
    assert sink_lag(place.state, place.sink, ports=ports) == Lag(0, 0)
    make_append_only(place.path(place.shard))
    assert sink_lag(place.state, place.sink, ports=ports) == Lag(0, 0)
    place.append(place.shard, 5)
    place.append(place.shard, 6)
    assert sink_lag(place.state, place.sink, ports=ports) == Lag(11, 2)
    new = place.migrated()
    place.append(new, 7)
    place.append(place.migrated(), 8)
    assert sink_lag(place.state, place.sink, ports=ports) == Lag(26, 4)
    assert sink_lags(place.state, [place.sink], ports=ports) == {place.sink: Lag(26, 4)}


def test_how_far_without_a_table(place: Place) -> None:
    """An upgrade that took the table away, or made a view of it, leaves nothing to count."""
    place.put(lambda changes, _: changes.delete("stream", place.sink))
    item = place.state.items[place.table]
    view = msgspec.structs.replace(item, shard=None)
    place.put(lambda changes, _: changes.put("item", place.table, view))
    assert sink_lag(place.state, place.sink, ports=Ports()) is None
    sink = place.state.items[place.sink]
    links = {role: link for role, link in sink.links.items() if role != "reads"}
    place.put(lambda changes, _: changes.put(
        "item", place.sink, msgspec.structs.replace(sink, links=links)
    ))
    assert sink_lag(place.state, place.sink, ports=Ports()) is None


def test_how_far_in_the_midst_of_a_version(place: Place) -> None:
    """A version of which a part was read counts whole, that of a first start with what was there;
    many versions are told by their ends. A log that cannot be read gives no number."""
    last = place.append(place.shard, 2)
    place.read(place.shard, last, batches=1)
    entry = root(place.checkpoint) / "offsets/0"
    whole = entry.read_text()
    place.append(place.shard, 4)
    entry.write_text(whole.replace('"index":-1', '"index":0'))
    assert sink_lag(place.state, place.sink, ports=Ports()) == Lag(4, 1)
    at = last + 1
    entry.write_text(whole.replace('"isStartingVersion":false', '"isStartingVersion":true')
                     .replace(f'"reservoirVersion":{at}', f'"reservoirVersion":{last}'))
    assert sink_lag(place.state, place.sink, ports=Ports()) == Lag(7, 2)
    entry.write_text(whole)
    for _ in range(101):
        place.append(place.shard, 1)
    assert sink_lag(place.state, place.sink, ports=Ports()) == Lag(105, 102)
    log = Path(place.path(place.shard)) / "_delta_log"
    for each in log.iterdir():
        each.write_text("no commit")
    assert sink_lags(place.state, [place.sink], ports=Ports()) == {place.sink: None}
