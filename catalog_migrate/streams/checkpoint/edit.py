"""Changing a stream's position: the one rule, as a value that can be committed and repeated.

The rule, right for every source, sink and for stateful queries: with the query stopped and the
newest batch N committed, one source's line in offsets/N-1 *and* offsets/N is overwritten in place
with the same target. Both, because Spark hands the first-generation sources (Delta, files) the
range between them at a restart; with N alone they would read or refuse what lies between. Batch ids
are neither added nor used again: a Delta sink skips, without an error, a batch id it has had.

An :class:`Edit` names the exact lines before and after. It is built first, committed to the
catalog with its generation, then applied; whoever starts the query compares the generation with
the checkpoint's mark and applies it again when they differ.
"""

from __future__ import annotations

from collections.abc import Collection

import msgspec

from catalog_migrate.errors import UsageError
from catalog_migrate.streams.checkpoint.codecs import START
from catalog_migrate.streams.checkpoint.directory import Checkpoint
from catalog_migrate.streams.checkpoint.errors import EditConflict, InvalidPosition
from catalog_migrate.streams.checkpoint.files import Mark, read_tagged_mark, tag_of, write_mark
from catalog_migrate.streams.checkpoint.guards import require_item, require_stopped


class LineEdit(msgspec.Struct, frozen=True):
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
    lines: tuple[LineEdit, ...] = ()
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
        lines.append(LineEdit(batch, source, sources[source], line))
    return Edit(latest, tuple(lines), (source,) if line == START else ())


def reset(checkpoint: Checkpoint, source: int) -> Edit:
    """The edit that lets ``source`` begin again where its START option says."""
    return move(checkpoint, source, START)


def begin(checkpoint: Checkpoint, source: int, initial: bytes) -> Edit:
    """The edit that gives a Kafka source without any batch its first positions.

    ``initial`` is what ``KafkaCodec.write_initial`` gives. Raises :class:`UsageError` when there
    is a batch: then :func:`move` is right.
    """
    latest = checkpoint.settled_batch()
    if latest is not None:
        raise UsageError(
            f"{checkpoint.address} has batches up to {latest}: initial offsets would not be read"
        )
    return Edit(None, initial=((source, initial.decode()),))


def combine(*edits: Edit) -> Edit:
    """One edit of several sources of one checkpoint, built from the same state."""
    if not edits:
        raise UsageError("no edits to combine")
    if len({edit.latest for edit in edits}) != 1:
        raise UsageError("edits of different batches cannot be combined")
    lines = tuple(line for edit in edits for line in edit.lines)
    if len({(line.batch, line.source) for line in lines}) != len(lines):
        raise UsageError("two edits change the same source")
    return Edit(
        edits[0].latest,
        tuple(sorted(lines, key=lambda line: (line.batch, line.source))),
        tuple(sorted({source for edit in edits for source in edit.forget})),
        tuple(sorted(pair for edit in edits for pair in edit.initial)),
    )


def undo(edit: Edit) -> Edit:
    """The edit back to the lines before; not for sources that began anew.

    Raises :class:`UsageError` when the edit forgot or wrote initial offsets: restore a snapshot.
    """
    if edit.forget or edit.initial:
        raise UsageError("an edit of initial offsets has no inverse: restore a snapshot")
    lines = tuple(LineEdit(line.batch, line.source, line.after, line.before) for line in edit.lines)
    return Edit(edit.latest, lines)


def needs_edit(checkpoint: Checkpoint, generation: int) -> bool:
    """Whether an edit with this generation was committed, but is not applied here yet."""
    mark = checkpoint.mark
    return (0 if mark is None else mark.generation) < generation


def apply(
    checkpoint: Checkpoint,
    edit: Edit,
    *,
    item: str,
    generation: int,
    active: Collection[str],
) -> bool:
    """Apply a committed edit and mark its generation; whether there was anything left to do.

    Safe to cut off anywhere and to repeat: a checkpoint with the mark is left alone, and one in
    the midst of an edit is carried forward. ``item`` is the owner's id, ``active`` the ids of all
    running queries.

    Raises before anything is written: :class:`QueryRunning`, :class:`ForeignCheckpoint`,
    :class:`UnsettledCheckpoint`, :class:`EditConflict` when the lines are neither those before nor
    those after, or the query has run since. It is raised as well when another process writes
    meanwhile, as the successor of a driver that was fenced and wakes up does: then at the first
    file that both write, over which nothing is written.
    """
    require_stopped(checkpoint, active)
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
        checkpoint.replace_line(line.batch, line.source, line.after, entries.pop(line.batch, None))
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
                remedy="somebody else changed the checkpoint: plan the change of position again",
                found=found,
            )
    return {batch: tag for batch, (_, tag) in entries.items()}
