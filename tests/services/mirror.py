"""A mirror of PostgreSQL tables kept without Spark: the real snapshot, slot, decoder, checkpoint.

Its tables are written as a whole by delta-rs at each batch.

For schedules: a batch ends where a test says, and a test may spoil the rows.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from catalog_migrate.api import Catalog
from catalog_migrate.catalog.clock import SystemClock
from catalog_migrate.catalog.lease import acquire
from catalog_migrate.catalog.state import State
from catalog_migrate.connectors.postgres import server
from catalog_migrate.connectors.postgres.pgoutput import decode
from catalog_migrate.connectors.postgres.sessions import session
from catalog_migrate.connectors.postgres.snapshot import StagedTable
from catalog_migrate.connectors.postgres.types import Position
from catalog_migrate.connectors.query import OutputTable
from catalog_migrate.delta.table import load_table, write_rows
from catalog_migrate.errors import SlotInUse
from catalog_migrate.streams.catalog import dependencies
from catalog_migrate.streams.catalog.cluster_log import cluster_key
from catalog_migrate.streams.catalog.query_spec import first_stream, spec_of
from catalog_migrate.streams.catalog.upstream_tables import keeps_deleted
from catalog_migrate.streams.checkpoint.directory import Checkpoint
from catalog_migrate.streams.positions.positions import postgres_position
from catalog_migrate.streams.upstreams.databases import ServerDatabases
from catalog_migrate.streams.upstreams.table_snapshots import expected, take
from tests.decisions import Changes, commit

Row = tuple[str | None, ...]
_ARROW = {
    "INT": pa.int32(), "BIGINT": pa.int64(), "STRING": pa.string(), "BOOLEAN": pa.bool_(),
    "DECIMAL(10,2)": pa.decimal128(10, 2), "TIMESTAMP": pa.timestamp("us", "UTC"),
}


def _read(type_: str, text: str | None) -> Any:
    if text is None:
        return None
    if type_ == "BOOLEAN":
        return text == "t"
    if type_.startswith("DECIMAL"):
        return None if text == "NaN" else Decimal(text)
    if type_ == "TIMESTAMP":
        return datetime.fromisoformat(text)
    return int(text) if type_ in ("INT", "BIGINT") else text


class Follower:
    """What keeps the tables of one source; :meth:`hold_lease` makes it count as a living runtime.

    ``rows`` are by table and key: image, LSN, and when it was deleted.
    """

    def __init__(self, catalog: Catalog, name: str) -> None:
        self.catalog = catalog
        state = catalog.state()
        self.item_id = dependencies.find(state, "source", name).item_id
        self.spec = spec_of(state, self.item_id)
        self.rows: dict[str, dict[Row, tuple[Row, int, datetime | None]]] = {}
        self.soft = keeps_deleted(self.spec.external)
        self.checkpoint = Checkpoint(self.spec.checkpoint)

    def begin(self) -> None:
        """Slot and snapshot."""
        begins = take(
            self.spec, ServerDatabases(), self._load, lambda _: None, lambda: None
        )
        self._commit(0, begins)

        def started(_: State) -> Changes:
            changes = Changes()
            stream = msgspec.structs.replace(first_stream(self.item_id), upstream=begins.system)
            changes.put("stream", self.item_id, stream)
            return changes

        commit(self.catalog.log, started, kind="test")

    def hold_lease(self) -> Callable[[], None]:
        """Be the runtime of the source's cluster, until the function that is returned is called."""
        cluster = self.catalog.state().items[self.item_id].links["cluster"]
        return acquire(
            self.catalog.log, holder="follower", clock=SystemClock(), key=cluster_key(cluster),
            wait=0,
        ).release

    def go_on(self) -> None:
        """One batch, to the end of the server's log; its rows are there before its commit."""
        position = postgres_position(self.checkpoint, self.spec)
        assert position is not None
        with session(self.spec.connection) as opened, opened.transaction():
            end = server.log_end(opened)
            found = list(decode(
                server.peek(opened, self.spec.slot, self.spec.publication, end),
                start=position.lsn, end=end, tables=expected(self.spec),
            ))
        if not found:
            return
        for change in found:
            table = self._table(change.table)
            rows, keys = self.rows[change.table], self._key_places(table)

            def key(image: Row | None, keys: list[int] = keys) -> Row:
                assert image is not None
                return tuple(image[place] for place in keys)

            at = datetime.fromtimestamp(change.committed / 1_000_000, timezone.utc)
            gone: list[Row] = list(rows) if change.operation == "truncate" else []
            if change.before is not None:
                gone.append(key(change.before))
            kept = rows.get(key(change.before or change.after)) if change.unchanged else None
            for each in gone:
                old = rows.pop(each, None)
                if self.soft and old is not None:
                    rows[each] = (old[0], change.lsn, old[2] or at)
            if change.after is not None:
                image = change.after
                if kept is not None:
                    image = tuple(
                        kept[0][place] if place in change.unchanged else value
                        for place, value in enumerate(image)
                    )
                rows[key(image)] = (image, change.lsn, None)
        for name in {change.table for change in found}:
            self.write(name)
        number = self.checkpoint.latest_commits
        self._commit((number or 0) + 1, Position(end, position.timeline, position.system))
        with session(self.spec.connection) as opened:
            server.advance_slot(opened, self.spec.slot, position.lsn)

    def follow(self, ended: threading.Event, pause: float = 0.05) -> None:
        """Batch after batch until an event."""
        while not ended.wait(pause):
            with suppress(SlotInUse):  # the comparison asks it as well
                self.go_on()

    def write(self, name: str) -> None:
        """The rows of a table upstream into ours, in place of those that are there."""
        table = self._table(name)
        rows = list(self.rows[name].values())
        columns: dict[str, pa.Array] = {}
        for place, column in table.mapped_columns:
            columns[column.name] = pa.array(
                [_read(column.type, image[place]) for image, _, _ in rows], _ARROW[column.type]
            )
        columns["_lsn"] = pa.array([lsn for _, lsn, _ in rows], pa.int64())
        if self.soft:
            columns["_deleted"] = pa.array([at for _, _, at in rows], pa.timestamp("us", "UTC"))
        write_rows(load_table(table.shard), pa.table(columns), mode="overwrite")

    def _load(
        self, table: OutputTable, staged: StagedTable, files: list[str], at: Position
    ) -> None:
        keys = self._key_places(table)
        images = [
            tuple(image) for file in files
            for image in pq.read_table(file).column("after").to_pylist()
        ]
        self.rows[staged.table] = {
            tuple(image[place] for place in keys): (image, at.lsn, None) for image in images
        }
        self.write(staged.table)

    def _table(self, name: str) -> OutputTable:
        return next(each for each in self.spec.tables if each.upstream.full_name == name)

    @staticmethod
    def _key_places(table: OutputTable) -> list[int]:
        return [place for place, column in enumerate(table.upstream.columns)
                if column.name in table.upstream.key]

    def _commit(self, number: int, position: Position) -> None:
        """The entry of a batch and its commit, as Spark writes them."""
        folder = Path(self.spec.checkpoint)
        meta = '{"batchWatermarkMs":0,"batchTimestampMs":0,"conf":{}}'
        for log, text in (
            ("offsets", f"v1\n{meta}\n{position.json()}"),
            ("commits", 'v1\n{"nextBatchWatermarkMs":0}'),
        ):
            (folder / log).mkdir(parents=True, exist_ok=True)
            (folder / log / str(number)).write_text(text)
