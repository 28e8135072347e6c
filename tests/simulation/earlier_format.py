"""Catalogs as earlier versions left them: one that was written so, and histories made alike."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec

from catalog_migrate.catalog.log import LogRow
from catalog_migrate.catalog.memory_log import MemoryLog
from catalog_migrate.testing.world import Shard
from tests.simulation.test_rollback import Place, Rows

FROZEN = Path(__file__).parent / "frozen" / "format-2.json"


def frozen() -> tuple[Place, dict[int, dict[str, Rows]]]:
    """The catalog with its shards, and the rows that its tables had at each serial.

    Columns of ``t`` were renamed, the first time by a copy because its shard refused that; ``x``
    and ``z`` were dropped, and another ``x`` came. Two rollbacks went back to before, and a release
    brought ``z`` in again. A USING replaced the values of ``k``.
    """
    document = json.loads(FROZEN.read_text(encoding="utf-8"))
    place = Place(persistent=False, copies=True)
    for commit_id, metadata, rows in document["log"]:
        place.log._store.add([LogRow(*row) for row in rows], commit_id, metadata, None)
    place.world.shards.update(msgspec.convert(document["shards"], dict[str, Shard]))
    for _ in range(100):  # tokens of paths that were handed out
        place._token()
    return place, {int(serial): tables for serial, tables in document["seen"].items()}


def forget_column_ids(log: MemoryLog) -> None:
    """Make of a log what a tool of format 2 would have written, but for refused changes in place.

    Of those its records say more.
    """
    store = log._store
    store.rows[:] = [_of_format_2(row) for row in store.rows]
    store.kept = None


def _of_format_2(row: LogRow) -> LogRow:
    if row.kind not in ("item", "shard", "config"):
        return row
    record: dict[str, Any] = json.loads(row.value)
    if row.key == "format_version":
        record["value"] = "2"
    for later in {"item": ("column_ids",), "shard": ("columns",)}.get(row.kind, ()):
        record.pop(later, None)
    value = msgspec.json.encode(record).decode()
    return row._replace(value=value)
