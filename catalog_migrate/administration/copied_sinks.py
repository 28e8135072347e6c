"""Gives the sinks of a copied installation query ids of their own.

What a sink has sent is known outside by its query id and a batch number: in the ledger beside a
POSTGRES table, in the headers of Kafka's records. A copy that went on under the original's id would
pass for it, and the original's next batch for one that is there already: its rows would be lost.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from catalog_migrate.catalog.records import StreamRecord
from catalog_migrate.catalog.state import State
from catalog_migrate.errors import CheckpointCorrupt
from catalog_migrate.streams.checkpoint.directory import Checkpoint
from catalog_migrate.streams.checkpoint.identity import new_query_id
from catalog_migrate.streams.specs import CHECKPOINTS


def unready(state: State, warehouse: str) -> Iterator[str]:
    """Names of sinks whose checkpoint in ``warehouse`` cannot be gone on from, with the reason."""
    for item_id, stream in _sinks(state):
        name = state.items[item_id].definition.item_name
        checkpoint = Checkpoint(Path(warehouse, stream.checkpoint))
        try:
            if checkpoint.query_id is not None and checkpoint.restoring is not None:
                yield f"{name}: a snapshot was being put back into {checkpoint.path}"
        except CheckpointCorrupt as error:
            yield f"{name}: {error.message}"


def part(
    state: State, warehouse: str, lineage: str, on_step: Callable[[str], None]
) -> dict[str, StreamRecord]:
    """Copy the checkpoint of each sink to a place of its own and change its query id there.

    ``warehouse`` is the copy's, ``lineage`` its new one. Returns the records to be committed, by
    item id. Killed before that, the copies are nobody's and a second run makes others.
    """
    records: dict[str, StreamRecord] = {}
    for item_id, stream in _sinks(state):
        old = Path(warehouse, stream.checkpoint)
        if Checkpoint(old).query_id is None:
            continue
        directory = f"{CHECKPOINTS}/{item_id}/{lineage}"
        new = Path(warehouse, directory)
        on_step(f"part {new}")
        shutil.copytree(old, new, ignore=shutil.ignore_patterns("*.tmp"))
        new_query_id(Checkpoint(new), {}, active=())
        records[item_id] = msgspec.structs.replace(stream, checkpoint=directory)
    return records


def _sinks(state: State) -> Iterator[tuple[str, StreamRecord]]:
    for item_id, stream in sorted(state.streams.items()):
        item = state.items.get(item_id)
        if item is not None and item.definition.kind == "sink":
            yield item_id, stream
