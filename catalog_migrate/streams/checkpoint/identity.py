"""A new query id for a checkpoint, with the old one fenced in every sink.

Needed when a runtime is taken over that is not proven dead: it may wake up in the middle of a
batch. Under a new id its writes cannot collide with ours, and the fence makes them vanish.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Collection, Mapping
from functools import partial

from catalog_migrate.errors import UsageError
from catalog_migrate.streams.checkpoint.delta_tables import fence_delta
from catalog_migrate.streams.checkpoint.directory import Checkpoint
from catalog_migrate.streams.checkpoint.guards import require_stopped

Fence = Callable[[str, str], int | None]
"""Bars an old query id (first) and carries its newest batch, the result, to a new one (second)."""


def delta_fence(path: str) -> Fence:
    """The fence of a Delta table."""
    return partial(fence_delta, path)


def new_query_id(
    checkpoint: Checkpoint,
    fences: Mapping[str, Fence],
    *,
    active: Collection[str],
    successor: str | None = None,
) -> Mapping[str, int | None]:
    """Give the checkpoint a new query id; the newest batch that each sink has under it.

    ``fences`` bars the old id in every sink, dead letters included, by name; all are raised before
    the id changes. Batch ids go on as before, an uncommitted entry stays and is settled afterwards
    as usual. After a cut anywhere the call can be repeated. A checkpoint that was never started
    has no id to change. ``successor`` is the new id, a random one by default.

    Raises :class:`QueryRunning`, :class:`UsageError` when ``successor`` is no UUID, and what a
    fence raises.
    """
    require_stopped(checkpoint, active)
    old = checkpoint.query_id
    if old is None:
        return dict.fromkeys(fences)
    try:
        new = str(uuid.UUID(successor)) if successor is not None else str(uuid.uuid4())
    except ValueError as error:
        raise UsageError(f"not a query id: {successor}") from error
    if new == old:
        raise UsageError(f"the query of {checkpoint.path} already has the id {new}")
    batches = {name: fence(old, new) for name, fence in fences.items()}
    content = json.dumps({"id": new}, separators=(",", ":"))
    checkpoint.files.replace(checkpoint.path / "metadata", content.encode())
    return batches
