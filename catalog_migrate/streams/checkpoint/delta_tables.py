"""What a Delta table knows about a query, how a query is pointed at one, and new query ids.

A checkpoint gets a new id when a runtime is taken over that is not proven dead: it may wake up in
the middle of a batch. Under a new id its writes cannot collide with ours, and the old one is fenced
in every sink, so that they vanish.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from catalog_migrate.connectors.query import FENCE
from catalog_migrate.delta.commit import ATTEMPTS, Overtaken, commit_onto_newest
from catalog_migrate.delta.log import read_change
from catalog_migrate.delta.table import (
    commit_transactions,
    load_table,
    options_for,
    write_rows,
)
from catalog_migrate.engine_failures import failing
from catalog_migrate.errors import (
    CommitConflict,
    EditConflict,
    EngineFailure,
    InvalidPosition,
    LeaseLost,
)
from catalog_migrate.streams.checkpoint.codecs import DeltaBounds, DeltaPosition
from catalog_migrate.streams.checkpoint.directory import Checkpoint
from catalog_migrate.streams.checkpoint.files import Mark, write_mark

if TYPE_CHECKING:
    from deltalake import DeltaTable


def delta_batch(path: str, query_id: str) -> int | None:
    """Return the newest batch of a query that a Delta sink has, None for none or no table yet.

    For a fenced id it is the newest batch before the fence. Raises :class:`EngineFailure` when the
    table cannot be read.
    """
    table = _table_at(path)
    return None if table is None else _batch(table, query_id)


def delta_target(path: str, consumed: int) -> DeltaPosition:
    """The position after version ``consumed`` of the table at ``path``, for following it there.

    ``consumed`` is the exact version that the reader already has: that of the copy or of the
    ALTER, never "the latest". Raises :class:`InvalidPosition` when the table has no such version,
    :class:`EngineFailure` when it cannot be read.
    """
    table = _required(path)
    if not 0 <= consumed <= table.version():
        raise InvalidPosition(
            f"{path} has versions up to {table.version()}, not {consumed}",
            remedy="take the version from the commit of the copy or of the ALTER",
        )
    return DeltaPosition(str(table.metadata().id), consumed + 1)


def delta_bounds(path: str) -> DeltaBounds:
    """Return the table at ``path``: its id, and the versions that a reader can start from.

    Reads every commit of its log. Raises :class:`EngineFailure` when there is no table or it
    cannot be read.
    """
    table = _required(path)
    with failing(f"read {path}"):
        earliest = min((commit["version"] for commit in table.history()), default=0)
        return DeltaBounds(str(table.metadata().id), int(earliest), table.version())


def has_rows_between(path: str, after: int, upto: int, *, skip_changes: bool = False) -> bool:
    """Whether a stream that has version ``after`` of a table finds a batch up to version ``upto``.

    Only commits that change data make one: not a seal, new properties, or a compaction. With
    ``skip_changes`` those that remove rows are passed over whole, as ``skipChangeCommits`` does.
    Raises :class:`EngineFailure` when a commit of the log is gone or cannot be read.
    """
    for version in range(after + 1, upto + 1):
        change = read_change(path, version)
        if (change.adds and not (skip_changes and change.removes)) or (
            change.removes and not skip_changes
        ):
            return True
    return False


def fence_delta(path: str, query_id: str, successor: str | None = None) -> int | None:
    """Bar ``query_id`` from a Delta sink for good; the newest batch that it had there.

    One empty commit carries the transaction (query_id, 2^63-1), so that whatever a late process
    appends under the old id is skipped; what the id had before, which :func:`delta_batch` goes on
    to tell; and the same batch under ``successor``, so that a batch which arrived under the old id
    is not written again under the new one. Repeatable, also with another successor. A table that
    does not exist yet has nothing to fence.

    Raises :class:`CommitConflict` when the table does not come to rest, :class:`EngineFailure`.
    """
    def attempt() -> int | None:
        table = _table_at(path)
        if table is None:
            return None
        batch = _batch(table, query_id)
        carried = {query_id: FENCE}
        if batch is not None:
            carried[_before_fence(query_id)] = batch
            if successor is not None:
                carried[successor] = batch
        # only ever upwards: a fence repeated late must not set back a successor that went on
        transactions = {
            app: version for app, version in carried.items()
            if (found := table.transaction_version(app)) is None or found < version
        }
        if not transactions:
            return batch
        # the exact next version: what the old id had must not change under our hands
        if not commit_transactions(table, transactions):
            raise Overtaken
        return batch

    return commit_onto_newest(
        attempt, too_busy=lambda: CommitConflict(
            f"{path} was written {ATTEMPTS} times while query {query_id} was being fenced",
            remedy="stop its writers and try again",
        ),
    )


def commit_batch(
    path: str, query_id: str, batch: int, rows: Any = None, *,
    write: Callable[..., None] = write_rows,
) -> None:
    """Write a batch of a query's few rows (an Arrow table), or have a table know that there are
    none for it; one that knows the batch stays as it is.

    ``write`` takes the open table, the rows and the ``transaction``, and raises CommitFailedError
    where another commit has the next version; by default the rows are appended.
    A commit of Spark takes a second longer. Raises :class:`LeaseLost` where the query is barred,
    :class:`EngineFailure` also for rows of a table that delta-rs cannot write,
    :class:`CommitConflict` when the table does not come to rest.
    """
    from deltalake import Transaction
    from deltalake.exceptions import CommitFailedError

    def attempt() -> None:
        table = _required(path)
        with failing(f"commit batch {batch} to {path}"):
            found = table.transaction_version(query_id)
            if found == FENCE:
                raise LeaseLost(f"query {query_id} is barred from {path}: another runtime has it")
            if found is not None and found >= batch:
                return
            # the exact next version: a fence must not come between the look and the commit
            if rows is None:
                if not commit_transactions(table, {query_id: batch}):
                    raise Overtaken
                return
            try:
                write(table, rows, transaction=Transaction(query_id, batch))
            except CommitFailedError as error:
                if _required(path).version() == table.version():
                    raise  # no race: the table has a feature that delta-rs does not write
                raise Overtaken from error

    commit_onto_newest(
        attempt, too_busy=lambda: CommitConflict(
            f"{path} was written {ATTEMPTS} times while a batch was being committed",
            remedy="it is tried again",
        ),
    )


def carry_batch(old: str, new: str, query_id: str) -> int | None:
    """Enter the newest batch that a query has in a sealed table into the one that follows it.

    So that a batch which had arrived before the seal is skipped when it is run again there. One
    empty commit, repeatable; returns the batch, None for none.
    """
    batch = delta_batch(old, query_id)

    def attempt() -> int | None:
        table = _required(new)
        if batch is None:
            return None
        with failing(f"carry transactions to {new}"):
            found = table.transaction_version(query_id)
        if found is not None and found >= batch:
            return batch
        if not commit_transactions(table, {query_id: batch}, behind_data=True):
            raise Overtaken
        return batch

    return commit_onto_newest(
        attempt, too_busy=lambda: CommitConflict(
            f"the metadata of {new} changed {ATTEMPTS} times while a batch was being entered",
            remedy="it is tried again",
        ),
    )


def _batch(table: DeltaTable, query_id: str) -> int | None:
    with failing(f"read the transactions of {table.table_uri}"):
        found = table.transaction_version(query_id)
        return table.transaction_version(_before_fence(query_id)) if found == FENCE else found


def _before_fence(query_id: str) -> str:
    """The transaction that keeps what a fenced id had."""
    return f"catalog_migrate/fenced/{query_id}"


def _required(path: str) -> DeltaTable:
    table = _table_at(path)
    if table is None:
        raise EngineFailure(f"there is no Delta table at {path}")
    return table


def _table_at(path: str) -> DeltaTable | None:
    from deltalake import DeltaTable

    with failing(f"open {path}"):
        known = DeltaTable.is_deltatable(path, options_for(path))
        return load_table(path) if known else None


Fence = Callable[[str, str], int | None]
"""Bars an old query id (first) and carries its newest batch, the result, to a new one (second)."""


def delta_fence(path: str) -> Fence:
    """Return the fence of a Delta table."""
    return partial(fence_delta, path)


def first_query_id(checkpoint: Checkpoint, item: str) -> None:
    """Give ``item``'s checkpoint, which was never started, the id that its query is to start with.

    The query itself may be starting meanwhile: then its own mark and id stay.
    """
    checkpoint.store.make_folder(above=True)
    if checkpoint.mark is None:
        with suppress(EditConflict):
            write_mark(checkpoint.files, checkpoint.store, Mark(item))
    checkpoint.store.put_if_absent("metadata", _metadata(str(uuid.uuid4())))


def _metadata(query_id: str) -> bytes:
    return json.dumps({"id": query_id}, separators=(",", ":")).encode()


def new_query_id(
    checkpoint: Checkpoint, fences: Mapping[str, Fence]
) -> Mapping[str, int | None]:
    """Give the checkpoint a new query id; the newest batch that each sink has under it.

    ``fences`` bars the old id in every sink, dead letters included, by name; all are raised before
    the id changes. Batch ids go on as before, an uncommitted entry stays and is settled afterwards
    as usual. After a cut anywhere the call can be repeated. A checkpoint that was never started
    has no id to change. Raises what a fence raises.
    """
    old = checkpoint.query_id
    if old is None:
        return dict.fromkeys(fences)
    new = str(uuid.uuid4())
    batches = {name: fence(old, new) for name, fence in fences.items()}
    checkpoint.files.replace(checkpoint.store, "metadata", _metadata(new))
    return batches
