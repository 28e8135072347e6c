"""What must hold before a checkpoint is touched, or its query is started.

Whoever touches one has stopped its query. A query of another process is kept out by the cluster's
lease and, where the lease was taken over, by a new query id.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress

from catalog_migrate.errors import (
    BehindSink,
    CheckpointCorrupt,
    ForeignCheckpoint,
    SourcesChanged,
    UnsettledCheckpoint,
)
from catalog_migrate.streams.checkpoint.directory import Checkpoint, State
from catalog_migrate.streams.checkpoint.files import Mark, read_tagged_mark, write_mark


def require_item(checkpoint: Checkpoint, item: str, mark: Mark | None) -> Mark | None:
    """Return the mark that was read, None on an empty checkpoint without one.

    Raises :class:`ForeignCheckpoint` when it is another item's, or has been run and has
    no mark.
    """
    if mark is None:
        if checkpoint.query_id is None and checkpoint.latest_offsets is None:
            return None
        raise ForeignCheckpoint(
            f"the checkpoint {checkpoint.address} has been used, but not by {item}",
            remedy="give the item a directory of its own",
            item=item,
        )
    if mark.item != item:
        raise ForeignCheckpoint(
            f"the checkpoint {checkpoint.address} belongs to {mark.item}, not to {item}",
            remedy="give each item a directory of its own",
            item=item,
            owner=mark.item,
        )
    return mark


def clear_torn_start(checkpoint: Checkpoint) -> tuple[str, ...]:
    """Take away what a first start left half-written; the files removed, none mostly.

    Before batch 0 is written down nothing was read or sent, so a query that was killed in its very
    first file begins anew. From then on nothing is touched: a broken file is an error.
    """
    if checkpoint.latest_commits is not None or (checkpoint.latest_offsets or 0) > 0:
        return ()
    torn = []
    if checkpoint.latest_offsets == 0:
        try:
            checkpoint.entry(0)
            return ()
        except CheckpointCorrupt:
            torn.append(checkpoint.offsets_file(0))
    try:
        checkpoint.query_id  # noqa: B018 - it is read for what it raises
    except CheckpointCorrupt:
        torn.append("metadata")
    first = checkpoint.initial_offsets(0)
    with suppress(FileNotFoundError):
        if not checkpoint.store.size(first):
            torn.append(first)
    for name in torn:
        checkpoint.files.remove(checkpoint.store, name)
    return tuple(torn)


def claim(checkpoint: Checkpoint, *, item: str, sources: Sequence[str]) -> Mark:
    """Mark a checkpoint as ``item``'s with these sources in this order, or see that it is.

    Writes nothing when the mark is right. Raises :class:`ForeignCheckpoint`,
    :class:`SourcesChanged`.
    """
    found, tag = read_tagged_mark(checkpoint.store)
    mark = require_item(checkpoint, item, found) or Mark(item)
    if mark.sources is None:
        _require_count(checkpoint, sources)
        mark = Mark(item, mark.generation, tuple(sources))
        write_mark(checkpoint.files, checkpoint.store, mark, tag)
    require_sources(checkpoint, sources)
    return mark


def require_sources(
    checkpoint: Checkpoint, sources: Sequence[str], state: State | None = None
) -> None:
    """:class:`SourcesChanged` when the sources are not those of the mark, in their order.

    Spark gives the i-th line to the i-th source of the query, whatever it is; two swapped Kafka
    sources fail late, two swapped tables read the wrong rows. ``state`` is the checkpoint's where
    it is known.
    """
    mark = checkpoint.mark
    if mark is not None and mark.sources is not None and mark.sources != tuple(sources):
        raise _changed(checkpoint, mark.sources, sources)
    _require_count(checkpoint, sources, state)


def require_above_sinks(
    checkpoint: Checkpoint, sinks: Mapping[str, int | None], state: State | None = None
) -> None:
    """:class:`BehindSink` when a sink has a batch above the checkpoint's newest.

    ``sinks`` gives the newest batch that each has, None for none. A Delta sink would skip the
    batches in between without an error. ``state`` is the checkpoint's where it is known.
    """
    latest = checkpoint.latest_offsets if state is None else state.batch
    for name, batch in sorted(sinks.items()):
        if batch is not None and (latest is None or batch > latest):
            raise BehindSink(
                f"{name} has batch {batch} of {checkpoint.address}, whose newest is"
                f" {'none' if latest is None else latest}",
                remedy="the checkpoint is an older one or lost: give it a new query id, or restore"
                " the newer one",
                sink=name,
                batch=batch,
                latest=latest,
            )


def check_start(
    checkpoint: Checkpoint,
    *,
    item: str,
    sources: Sequence[str],
    generation: int,
    sinks: Mapping[str, int | None],
) -> None:
    """Everything that must hold when a query is about to start on a checkpoint.

    An uncommitted entry is fine: Spark runs that batch again. Raises as the guards above, and
    :class:`UnsettledCheckpoint` when the checkpoint is broken or a committed edit is not applied.
    """
    mark = require_item(checkpoint, item, checkpoint.mark)
    state = checkpoint.state()
    if state.kind == "broken":
        raise UnsettledCheckpoint(
            f"the checkpoint {checkpoint.address} is broken: {state.reason}",
            remedy="restore a snapshot of it",
            batch=state.batch,
        )
    applied = 0 if mark is None else mark.generation
    if applied != generation:
        raise UnsettledCheckpoint(
            f"the checkpoint {checkpoint.address} has edit {applied} of its position, the catalog"
            f" has {generation}",
            remedy="apply the committed edit first",
            batch=state.batch,
        )
    require_sources(checkpoint, sources, state)
    require_above_sinks(checkpoint, sinks, state)


def _require_count(
    checkpoint: Checkpoint, sources: Sequence[str], state: State | None = None
) -> None:
    latest = checkpoint.latest_offsets if state is None else state.batch
    if latest is not None:
        found = len(checkpoint.entry(latest).sources)
        if found != len(sources):
            raise SourcesChanged(
                f"the query of {checkpoint.address} had {found} sources, now it has {len(sources)}",
                remedy="a query with other sources needs a checkpoint of its own",
            )


def _changed(checkpoint: Checkpoint, before: Sequence[str], after: Sequence[str]) -> SourcesChanged:
    return SourcesChanged(
        f"the sources of {checkpoint.address} were {', '.join(before)}; now they are"
        f" {', '.join(after)}",
        remedy="keep the sources and their order, or give the query a checkpoint of its own",
        before=tuple(before),
        after=tuple(after),
    )
