"""A backfill is a writer: a migration of its table for dead letters is refused until its end."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from arro3.core import Array, DataType, Table
from deltalake import CommitProperties, Transaction, write_deltalake

from catalog_migrate.catalog.opening import read_state
from catalog_migrate.catalog.records import OperationRecord, UnsafeAct
from catalog_migrate.connectors.positions import OffsetRange
from catalog_migrate.errors import PrepareFailed
from catalog_migrate.migrations.prepare import _require_no_backfill
from catalog_migrate.operations.kinds import BACKFILLING
from catalog_migrate.streams.catalog import dependencies
from catalog_migrate.streams.catalog.query_spec import first_stream
from catalog_migrate.streams.catalog.tables import transaction
from catalog_migrate.streams.checkpoint.delta_tables import delta_batch
from catalog_migrate.streams.ddl.migrations import MigratedStreams
from catalog_migrate.streams.positions.backfill import chunks_of
from catalog_migrate.streams.runtime.shard_handover import carry_transactions
from tests.decisions import Changes, commit
from tests.services.left_behind import leave

if TYPE_CHECKING:
    from catalog_migrate.catalog.memory_log import MemoryLog

Do = Callable[[str], Any]


@pytest.fixture
def begun(log: MemoryLog, do: Do) -> tuple[str, str]:
    """Operation ``op`` reads what source ``s`` skipped; item ids of the source and of ``bad``."""
    do(
        "CREATE CLUSTER main; CREATE CONNECTION c TO KAFKA (BROKER 'a.example.com:9092');"
        "CREATE SOURCE s (id BIGINT) IN CLUSTER main FROM KAFKA CONNECTION c (TOPIC 't') "
        "FORMAT JSON ON ERROR INTO bad"
    )
    state = read_state(log)
    source = dependencies.find(state, "source", "s").item_id
    chunks = chunks_of(source, [OffsetRange("t", 0, 0, 10)])
    row = OperationRecord(
        kind="unsafe", state=BACKFILLING, target=source, dependents=(source,),
        unsafe=UnsafeAct(
            who="w", host="h", at="", reason="r", request="",
            backfill=msgspec.json.encode(chunks).decode(),
        ),
    )
    changes = Changes()
    changes.put("operation", "op", row)
    changes.put("stream", source, first_stream(source))
    leave(log, changes)
    return source, state.items[source].links["dead_letters"]


def test_refused_until_it_is_done(log: MemoryLog, begun: tuple[str, str]) -> None:
    """The table for dead letters is named with the operation; other tables are not concerned."""
    _, bad = begun
    shard = read_state(log).items[bad].shard or ""
    with pytest.raises(PrepareFailed, match="operation op is reading what it skipped") as caught:
        _require_no_backfill(MigratedStreams(), read_state(log), {shard: None})
    assert "bad takes its dead letters" in caught.value.message
    _require_no_backfill(MigratedStreams(), read_state(log), {"default/other/1": None})
    changes = Changes()
    row = read_state(log).operations["op"]
    changes.put("operation", "op", msgspec.structs.replace(row, state="done"))
    commit(log, lambda _: changes, kind="test")
    _require_no_backfill(MigratedStreams(), read_state(log), {shard: None})


def test_a_copy_knows_its_chunks(log: MemoryLog, begun: tuple[str, str], tmp_path: Path) -> None:
    """One that was begun after the look: the copy is told which chunks it has, none comes twice."""
    _, bad = begun
    rows: Any = Table.from_pydict({"id": Array([1], type=DataType.int64())})
    old, new = str(tmp_path / "old"), str(tmp_path / "new")
    arrived = CommitProperties(app_transactions=[Transaction(transaction("op"), 4)])
    write_deltalake(old, rows, mode="append", commit_properties=arrived)
    write_deltalake(new, rows, mode="append")
    assert carry_transactions(read_state(log), bad, old, new) == 1
    assert delta_batch(new, transaction("op")) == 4
