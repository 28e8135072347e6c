"""Changing a stream's position: the one rule, as a value that can be committed and repeated.

The rule, right for every source, sink and for stateful queries: with the query stopped and the
newest batch N committed, one source's line in offsets/N-1 *and* offsets/N is overwritten in place
with the same target. Both, because Spark hands the first-generation sources (Delta, files) the
range between them at a restart; with N alone they would read or refuse what lies between. Batch ids
are neither added nor used again: a Delta sink skips, without an error, a batch id it has had.

An :class:`Edit` names the exact lines before and after. It is built first, committed to the
catalog with its generation, then applied; whoever starts the query compares the generation with
the checkpoint's mark and applies it again when they differ.

An uncommitted entry is settled before. It says a range; whether its rows arrived, only the sinks
know. The batch id is never used again for another range. The cases:

    sinks that have it   it is settled by
    all                  Finish: run it once, or its commit by hand when the query is stateless
    none                 Remove
    some, or unknown     Complete: run it once
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import msgspec

from catalog_migrate.connectors.positions import START, write_object
from catalog_migrate.errors import EditConflict, InvalidPosition, UnsettledCheckpoint, UsageError
from catalog_migrate.streams.checkpoint.directory import VERSION, Checkpoint
from catalog_migrate.streams.checkpoint.files import Mark, read_tagged_mark, tag_of, write_mark
from catalog_migrate.streams.checkpoint.guards import require_item


class OffsetEdit(msgspec.Struct, frozen=True):
    """The line of ``source`` (from 0) in the entry of ``batch``, before and after."""

    batch: int
    source: int
    before: str
    after: str


class Edit(msgspec.Struct, frozen=True):
    """Everything that an edit changes; plain JSON for the catalog's row.

    ``latest`` is N, None for a checkpoint without a batch. ``forget`` are sources whose directory
    ``sources/<i>`` goes, because they begin anew; ``initial`` gives a source that has no batch yet
    the initial offsets to write there, as text.
    """

    latest: int | None
    lines: tuple[OffsetEdit, ...] = ()
    forget: tuple[int, ...] = ()
    initial: tuple[tuple[int, str], ...] = ()


def move(checkpoint: Checkpoint, source: int, line: str) -> Edit:
    """The edit that lets ``source`` go on at the position that ``line`` says (see ``codecs``).

    A START line makes it begin anew. Without a batch there is no line to change: a source starts
    where its options say, so the edit is empty; see :func:`begin` for Kafka.

    Raises :class:`UnsettledCheckpoint`, :class:`InvalidPosition` for an unknown source or what is
    no line, :class:`CheckpointCorrupt`.
    """
    if not line or "\n" in line or "\r" in line:
        raise InvalidPosition(f"not the line of an offset: {line!r}")
    latest = checkpoint.settled_batch()
    if latest is None:
        return Edit(None, forget=(source,) if line == START else ())
    lines = []
    for batch in _neighbours(latest):
        sources = checkpoint.entry(batch).sources
        if not 0 <= source < len(sources):
            raise InvalidPosition(
                f"the query of {checkpoint.address} has {len(sources)} sources, none is number"
                f" {source}"
            )
        lines.append(OffsetEdit(batch, source, sources[source], line))
    return Edit(latest, tuple(lines), (source,) if line == START else ())


def reset(checkpoint: Checkpoint, source: int) -> Edit:
    """The edit that lets ``source`` begin again where its START option says."""
    return move(checkpoint, source, START)


def begin(checkpoint: Checkpoint, source: int, initial: bytes) -> Edit:
    """Return the edit that gives a source without any batch its first positions.

    ``initial`` is what ``PartitionCodec.write_initial`` gives. Raises :class:`UsageError` when
    there is a batch: then :func:`move` is right.
    """
    latest = checkpoint.settled_batch()
    if latest is not None:
        raise UsageError(
            f"{checkpoint.address} has batches up to {latest}: initial offsets would not be read"
        )
    return Edit(None, initial=((source, initial.decode()),))


def needs_edit(checkpoint: Checkpoint, generation: int) -> bool:
    """Return whether an edit with this generation was committed, but is not applied here yet."""
    mark = checkpoint.mark
    return (0 if mark is None else mark.generation) < generation


def apply(checkpoint: Checkpoint, edit: Edit, *, item: str, generation: int) -> bool:
    """Apply a committed edit and mark its generation; whether there was anything left to do.

    Safe to cut off anywhere and to repeat: a checkpoint with the mark is left alone, and one in
    the midst of an edit is carried forward. ``item`` is the owner's id.

    Raises before anything is written: :class:`ForeignCheckpoint`, :class:`UnsettledCheckpoint`,
    :class:`EditConflict` when the lines are neither those before nor those after, or the query has
    run since. It is raised as well when another process writes meanwhile, as the successor of a
    driver that was fenced and wakes up does: then at the first file that both write, over which
    nothing is written.
    """
    files, store = checkpoint.files, checkpoint.store
    found, tag = read_tagged_mark(store)
    mark = require_item(checkpoint, item, found) or Mark(item)
    if mark.generation >= generation:
        return False
    entries = _applicable(checkpoint, edit)
    begins = {
        source: tag_of(store, checkpoint.initial_offsets(source)) for source, _ in edit.initial
    }
    for line in edit.lines:
        # the tag of what was looked at; a second line goes into what we put ourselves
        checkpoint.write_offset(line.batch, line.source, line.after, entries.pop(line.batch, None))
    for source in edit.forget:
        files.remove_tree(store, checkpoint.source_directory(source))
    for source, initial in edit.initial:
        files.put(
            store, checkpoint.initial_offsets(source), initial.encode(), begins[source]
        )
    write_mark(files, store, Mark(item, generation, mark.sources), tag)
    return True


def _neighbours(latest: int) -> tuple[int, ...]:
    """N-1 and N, or only batch 0."""
    return (latest - 1, latest) if latest > 0 else (latest,)


def _applicable(checkpoint: Checkpoint, edit: Edit) -> dict[int, str]:
    """The tags of the entries that an edit changes; refuses one of another checkpoint than this."""
    latest = checkpoint.settled_batch()
    if latest != edit.latest:
        raise EditConflict(
            f"the edit of {checkpoint.address} is of batch {edit.latest}, the newest is {latest}",
            remedy="the query has run since: plan the change of position again",
            latest=latest,
        )
    entries = {line.batch: checkpoint.tagged_entry(line.batch) for line in edit.lines}
    for line in edit.lines:
        sources = entries[line.batch][0].sources
        found = sources[line.source] if line.source < len(sources) else None
        if found not in (line.before, line.after):
            raise EditConflict(
                f"{checkpoint.store.place(checkpoint.offsets_file(line.batch))}: source"
                f" {line.source} stands at {found}, neither at {line.before} nor at {line.after}",
                remedy="another process changed the checkpoint: plan the change of position again",
                found=found,
            )
    return {batch: tag for batch, (_, tag) in entries.items()}


# -- an uncommitted entry --------------------------------------------------------------------------


class Settled(msgspec.Struct, frozen=True):
    """Nothing is uncommitted."""


class Finish(msgspec.Struct, frozen=True):
    """All sinks have ``batch``: run the query with ``trigger(once=True)``, they skip it."""

    batch: int


class Remove(msgspec.Struct, frozen=True):
    """No sink has ``batch``: take its entry away."""

    batch: int


class Complete(msgspec.Struct, frozen=True):
    """``missing`` lack ``batch``, or cannot say: run it with ``trigger(once=True)``."""

    batch: int
    missing: tuple[str, ...]


class Refuse(msgspec.Struct, frozen=True):
    """No way to settle ``batch`` without losing or doubling rows; ``reason`` is for people."""

    batch: int | None
    reason: str


Decision = Settled | Finish | Remove | Complete | Refuse


def settlement(
    checkpoint: Checkpoint,
    *,
    sinks: Mapping[str, int | None],
    unknown: Collection[str] = (),
) -> Decision:
    """Return what to do with the checkpoint's uncommitted entry; reads only.

    ``sinks`` gives the newest batch that each sink has (a Delta table's transaction, a ledger's
    row; dead letters count as a sink), None for none; ``unknown`` names sinks that cannot say
    (Kafka).
    """
    state = checkpoint.state()
    batch = state.batch
    if state.kind == "broken":
        return Refuse(batch, state.reason)
    above = [
        f"{name} has batch {has}"
        for name, has in sorted(sinks.items())
        if has is not None and (batch is None or has > batch)
    ]
    if above:
        newest = "no batch" if batch is None else f"batch {batch}"
        return Refuse(batch, f"{', '.join(above)}, but the checkpoint ends with {newest}")
    if state.kind != "uncommitted" or batch is None:
        return Settled()
    missing = tuple(sorted([name for name, has in sinks.items() if has != batch]))
    silent = tuple(sorted(unknown))
    if not sinks and not silent:
        silent = ("the query's output",)
    if not silent and len(missing) == len(sinks):
        return Remove(batch)
    if not silent and not missing:
        return Finish(batch)
    return Complete(batch, tuple(sorted(missing + silent)))


def write_commit(checkpoint: Checkpoint, batch: int) -> None:
    """Commit ``batch`` by hand: every sink has it, the query is stateless. Repeatable.

    Raises :class:`UnsettledCheckpoint` when it is not the uncommitted one.
    """
    if checkpoint.latest_commits == batch == checkpoint.latest_offsets:
        return
    _require_uncommitted(checkpoint, batch)
    watermark = checkpoint.committed_watermark(batch - 1) if batch > 0 else 0
    content = f"{VERSION}\n{write_object({'nextBatchWatermarkMs': watermark})}"
    checkpoint.files.replace(
        checkpoint.store, checkpoint.commits_file(batch), content.encode()
    )


def remove_entry(checkpoint: Checkpoint, batch: int) -> None:
    """Take the uncommitted entry of ``batch`` away, and the state it left. Repeatable.

    Raises :class:`UnsettledCheckpoint` when it is not the uncommitted one.
    """
    before = batch - 1 if batch > 0 else None
    if checkpoint.latest_offsets == before == checkpoint.latest_commits:
        return
    _require_uncommitted(checkpoint, batch)
    # the state first: a crash in between leaves an entry that can be removed, or run, again
    checkpoint.forget_state_after(before)
    checkpoint.files.remove(checkpoint.store, checkpoint.offsets_file(batch))


def perform(checkpoint: Checkpoint, decision: Decision) -> bool:
    """Do the part of a decision that is done on files; whether the checkpoint is settled now.

    False: run the query once (Finish, Complete). Raises :class:`UnsettledCheckpoint` for Refuse.
    """
    match decision:
        case Remove(batch):
            remove_entry(checkpoint, batch)
        case Refuse(batch, reason):
            raise UnsettledCheckpoint(
                f"the checkpoint {checkpoint.address} cannot be settled: {reason}",
                remedy="restore a snapshot of it",
                batch=batch,
            )
        case Settled():
            pass
        case _:
            return False
    return True


def _require_uncommitted(checkpoint: Checkpoint, batch: int) -> None:
    state = checkpoint.state()
    if state.kind != "uncommitted" or state.batch != batch:
        raise UnsettledCheckpoint(
            f"batch {batch} is not the uncommitted one of {checkpoint.address}: it is"
            f" {state.kind} at {state.batch}",
            batch=state.batch,
        )
