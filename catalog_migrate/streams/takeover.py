"""Fencing out a runtime that is not proven dead: it may wake up in the middle of a batch.

Its queries go on under new ids in copies of their checkpoints, and the old ids are barred in every
destination. The woken runtime then writes into directories that nobody reads, and its batches are
skipped (Delta, Postgres) or droppable by header (Kafka).
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from catalog_migrate.catalog.records import StreamRecord
from catalog_migrate.catalog.state import State
from catalog_migrate.catalog.transaction import Changes
from catalog_migrate.streams import wiring
from catalog_migrate.streams.checkpoint.directory import Checkpoint
from catalog_migrate.streams.checkpoint.identity import Fence, delta_fence, new_query_id
from catalog_migrate.streams.queries import QuerySpec
from catalog_migrate.streams.specs import CHECKPOINTS, spec_of

if TYPE_CHECKING:
    from catalog_migrate.streams.supervisor import Supervisor


def fence_out(supervisor: Supervisor, state: State) -> State:
    """Move every started query of the cluster to a fenced copy of its checkpoint; repeatable."""
    moved: dict[str, StreamRecord] = {}
    for found in wiring.queries(state, supervisor.cluster):
        stream = state.streams.get(found.item_id)
        if stream is None:
            continue
        directory = f"{CHECKPOINTS}/{found.item_id}/{supervisor.lease.epoch}"
        if directory == stream.checkpoint:
            continue
        old = Path(supervisor.warehouse, stream.checkpoint)
        new = Path(supervisor.warehouse, directory)
        if Checkpoint(old).query_id is None:
            continue
        _copy(old, new)
        fences = _fences(supervisor, state, found.item_id)
        new_query_id(Checkpoint(new), fences, active=())
        moved[found.item_id] = msgspec.structs.replace(stream, checkpoint=directory)
    if not moved:
        return state

    def put(changes: Changes, current: State) -> None:
        for item_id, stream in moved.items():
            if item_id in current.items:
                changes.put("stream", item_id, stream)

    return supervisor.commit(put, "fence out")


def _copy(old: Path, new: Path) -> None:
    """Copy a checkpoint whole, its state too; what another attempt left is replaced."""
    building = new.with_name(f".{new.name}.tmp")
    shutil.rmtree(building, ignore_errors=True)
    shutil.rmtree(new, ignore_errors=True)
    shutil.copytree(old, building, ignore=shutil.ignore_patterns("*.tmp"))
    building.rename(new)


def _fences(supervisor: Supervisor, state: State, item_id: str) -> Mapping[str, Fence]:
    item = state.items[item_id]
    fences: dict[str, Fence] = {}
    if item.definition.kind == "source":
        fences["shard"] = delta_fence(f"{supervisor.warehouse}/{item.shard}")
        dead = state.items.get(item.links.get("dead_letters", ""))
        if dead is not None:
            fences["dead letters"] = delta_fence(f"{supervisor.warehouse}/{dead.shard}")
    elif wiring.external_of(item).connector == "POSTGRES":
        spec = spec_of(state, item_id, supervisor.warehouse, resolve=supervisor.resolve)
        fences["postgres"] = partial(_fence_ledger, spec)
    return fences


def _fence_ledger(spec: QuerySpec, old: str, new: str) -> int | None:
    """Bar the old id in the ledger, and enter its newest batch under the new one."""
    from catalog_migrate.streams.spark.ledger import Ledger

    ledger = Ledger(spec.connection, str(spec.external.options["TABLE"]))
    ledger.fence(old, spec.item_id)
    last = ledger.read(old).last_batch
    if last is not None:
        with ledger.connect(new) as connection, connection.transaction():
            ledger.claim(connection, new, last, spec.item_id)
    return last
