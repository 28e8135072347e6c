"""Copies rows into a new shard: their bulk, and after the seal what was appended meanwhile.

They come from the shard in force, or are restored from the retired ones of earlier.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from msgspec.structs import replace

from catalog_migrate.errors import CommitConflict, PrepareFailed, RowNotConverted
from catalog_migrate.migrations.build_tables import BuildTable
from catalog_migrate.migrations.execution_context import ExecutionContext, NewShard
from catalog_migrate.model.names import quote_sql
from catalog_migrate.planner.plan import Segment


@dataclass(frozen=True)
class CopyTable(BuildTable):
    """Copy the rows of the table in force, or of retired shards, into a new directory.

    What comes meanwhile is copied when that table is sealed.
    """

    copy: Callable[[NewShard], NewShard]

    def bring_rows(self, context: ExecutionContext) -> NewShard:  # noqa: ARG002 - it has its own
        """Return what the directory is with the rows of now."""
        return self.copy(self.shard)


def copy_bulk(work: ExecutionContext, shard: NewShard) -> NewShard:
    """Return the rows that the old shard, or the retired ones of a rollback, have now; repeatable.

    How long it took is put into the size, where that is known.
    """
    began = work.clock.monotonic()
    copied = _copy_bulk(work, shard)
    if copied.size is None:
        return copied
    seconds = round(work.clock.monotonic() - began, 3)
    return replace(copied, size=copied.size._replace(seconds=seconds))


def _copy_bulk(work: ExecutionContext, shard: NewShard) -> NewShard:
    if shard.target.segments:
        return restore_from_segments(work, shard)
    source = work.absolute(shard.source or "")
    target = work.absolute(shard.path)
    version = work.engine.shard_version(source)
    if version is None:
        raise PrepareFailed(
            f"the shard of {shard.target.definition.item_name} is missing: {shard.source}",
            remedy="restore the directory, or drop the table with --approve",
        )
    # a retry after an unknown outcome must not double rows: the target is private, so empty it
    if work.engine.shard_size(target)[0] != 0:
        work.engine.truncate_shard(target)
    with converting(shard):
        copied = work.engine.copy_rows(source, version, target, shard.target.projection)
    return replace(shard, source_version=version, version=copied.version, rows=copied.rows)


def copy_tail(work: ExecutionContext, shard: NewShard, sealed: int) -> NewShard:
    """Copy what came between the bulk copy and the seal; count both sides."""
    upto = sealed - 1
    source = work.absolute(shard.source or "")
    target = work.absolute(shard.path)
    if shard.target.segments:
        if shard.target.segments[-1].path == shard.source:
            return restore_from_tail(work, shard, upto, sealed)
        return replace(shard, source_version=sealed)  # nothing is taken from what is left behind
    after = shard.source_version if shard.source_version is not None else -1
    if upto > after:
        with converting(shard):
            tail = work.engine.copy_tail(source, after, upto, target, shard.target.projection)
        if tail is None:  # rows were changed or removed meanwhile: the bulk copy is no base
            work.engine.truncate_shard(target)
            with converting(shard):
                copied = work.engine.copy_rows(source, upto, target, shard.target.projection)
            shard = replace(shard, rows=copied.rows, version=copied.version)
        else:
            shard = replace(shard, rows=shard.rows + tail.rows, version=tail.version)
    version = work.engine.shard_version(target)
    expected = work.engine.count_rows(source, upto)
    found = work.engine.count_rows(target, version if version is not None else 0)
    if expected != found:
        raise PrepareFailed(
            f"{shard.target.definition.item_name}: {expected} rows were to be copied,"
            f" {found} arrived",
            remedy="start again; the old release is still in force",
        )
    return replace(shard, source_version=sealed, version=version, rows=found)


@contextmanager
def converting(shard: NewShard) -> Iterator[None]:
    """Say of a row that cannot be converted which table it is in, what was written, what to do."""
    try:
        yield
    except RowNotConverted as failure:
        said = failure.message
        expressions = dict(shard.target.projection)
        for column in shard.target.definition.columns:
            if column.using is not None and column.name in expressions:
                name = quote_sql(column.name)
                said = said.replace(
                    f"column {name} = {expressions[column.name]} ",
                    f"column {name} USING {column.using} ",
                )
        raise RowNotConverted(
            f"{shard}: {said}; the table is as it was",
            condition=failure.condition,
            remedy=f"the old release is in force; correct those rows of {shard}, or the USING of"
            " the column in the release (for example try_cast, with coalesce where NULL is not"
            " allowed), and start again",
        ) from failure


def restore_from_segments(work: ExecutionContext, shard: NewShard) -> NewShard:
    """Copy every segment, oldest first; repeatable, because the shard is private.

    Raises CommitConflict when rows were changed since the plan was made, so that it is made again.
    """
    target = work.absolute(shard.path)
    if work.engine.shard_size(target)[0] != 0:
        work.engine.truncate_shard(target)
    rows = expected = 0
    upto: int | None = None
    version: int | None = None
    for segment in shard.target.segments:
        source = work.absolute(segment.path)
        upto = segment.upto if segment.upto is not None else work.engine.shard_version(source)
        if upto is None:
            raise PrepareFailed(
                f"the shard {segment.path} of {shard} is missing",
                remedy="restore the directory and start again; nothing was changed",
            )
        if segment.after is None and segment.projection is not None:
            copied = work.engine.copy_rows(source, upto, target, segment.projection)
            expected += work.engine.count_rows(source, upto)
            rows, version = rows + copied.rows, copied.version
        else:
            more, newest = _append(work, shard, segment, segment.after or 0, upto)
            expected += more
            rows += more
            version = newest if newest is not None else version
    if version is None:
        version = work.engine.shard_version(target)
    back = replace(shard, source_version=upto, version=version, rows=rows, expected=expected)
    _verify(work, back)
    return back


def restore_from_tail(work: ExecutionContext, shard: NewShard, upto: int, sealed: int) -> NewShard:
    """Return what was appended between the copy and the seal."""
    last = shard.target.segments[-1]
    after = shard.source_version if shard.source_version is not None else 0
    if upto > after:
        more, newest = _append(work, shard, last, after, upto)
        shard = replace(
            shard, expected=shard.expected + more,
            version=newest if newest is not None else shard.version,
        )
        _verify(work, shard)
    return replace(shard, source_version=sealed, rows=shard.expected)


def _append(
    work: ExecutionContext, shard: NewShard, segment: Segment, after: int, upto: int
) -> tuple[int, int | None]:
    """(rows that came, version of the new shard that has them); None where nothing was written."""
    source, target = work.absolute(segment.path), work.absolute(shard.path)
    again = "plan the rollback again; nothing was changed"
    if segment.projection is None:
        if segment.left_out:
            return 0, None
        if work.engine.count_appended(source, after, upto) != 0:
            raise CommitConflict(
                f"rows were written to {shard} that its earlier columns cannot hold", remedy=again
            )
        return 0, None
    copied = work.engine.copy_tail(source, after, upto, target, segment.projection)
    if copied is None:
        raise CommitConflict(
            f"rows of {shard} were changed or removed since the rollback was planned", remedy=again
        )
    more = work.engine.count_rows(source, upto) - work.engine.count_rows(source, after)
    return more, copied.version


def _verify(work: ExecutionContext, shard: NewShard) -> None:
    target = work.absolute(shard.path)
    found = work.engine.count_rows(target, shard.version if shard.version is not None else 0)
    if found != shard.expected:
        raise PrepareFailed(
            f"{shard}: {shard.expected} rows were to be copied, {found} arrived",
            remedy="start again; nothing was changed",
        )
