"""Fills a new shard from the retired ones of earlier, and from what was written since."""

from __future__ import annotations

from msgspec.structs import replace

from catalog_migrate.catalog.errors import CommitConflict
from catalog_migrate.planner.plan import Segment
from catalog_migrate.reconciler.execution_context import ExecutionContext, NewShard, PrepareFailed


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
                f"the shard {segment.path} of {shard} is gone",
                remedy="restore the directory and start again; nothing was changed",
            )
        if segment.after is None and segment.projection is not None:
            copied = work.engine.copy_rows(source, upto, target, segment.projection)
            expected += work.engine.count_rows(source, upto)
            rows, version = rows + copied.rows, copied.version
        else:
            more, newest = _appended(work, shard, segment, segment.after or 0, upto)
            expected += more
            rows += more
            version = newest if newest is not None else version
    if version is None:
        version = work.engine.shard_version(target)
    back = replace(shard, source_version=upto, version=version, rows=rows, expected=expected)
    _verify(work, back)
    return back


def restore_from_tail(work: ExecutionContext, shard: NewShard, upto: int, sealed: int) -> NewShard:
    """What was appended between the copy and the seal."""
    last = shard.target.segments[-1]
    after = shard.source_version if shard.source_version is not None else 0
    if upto > after:
        more, newest = _appended(work, shard, last, after, upto)
        shard = replace(
            shard, expected=shard.expected + more,
            version=newest if newest is not None else shard.version,
        )
        _verify(work, shard)
    return replace(shard, source_version=sealed, rows=shard.expected)


def _appended(
    work: ExecutionContext, shard: NewShard, segment: Segment, after: int, upto: int
) -> tuple[int, int | None]:
    """(rows that came, version of the new shard that has them); None where nothing was written."""
    source, target = work.absolute(segment.path), work.absolute(shard.path)
    again = "plan the rollback again; nothing was changed"
    if segment.projection is None:
        if segment.left_out:
            return 0, None
        if work.engine.grown(source, after, upto) != 0:
            raise CommitConflict(
                f"rows were written to {shard} that the columns of then cannot hold", remedy=again
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
