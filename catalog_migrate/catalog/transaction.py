"""Commits: read, decide, check, append exactly the next version; again when somebody was faster.

A commit that leaves many files behind it compacts the log.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from uuid import uuid4

import msgspec

from catalog_migrate.catalog.check import check
from catalog_migrate.catalog.history import touched_items
from catalog_migrate.catalog.log import CatalogLog, LogRow
from catalog_migrate.catalog.opening import require_in_use
from catalog_migrate.catalog.process import this_host, this_user
from catalog_migrate.catalog.records import ConfigRecord, Record
from catalog_migrate.catalog.state import State, find_differences
from catalog_migrate.delta.commit import Overtaken
from catalog_migrate.errors import (
    CatalogWriteRefused,
    CommitConflict,
    CommitOutcomeUnknown,
    LeaseLost,
)
from catalog_migrate.program.steps import Executed
from catalog_migrate.retry import retry

_LONGEST_PAUSE = 0.1
"""Seconds: bound of the random pause between two attempts of a commit."""


class Changes:
    """What one commit puts and deletes; the last word on a key counts."""

    __slots__ = ("_edits", "_raise_serial")

    def __init__(self) -> None:
        self._edits: dict[tuple[str, str], Record | None] = {}
        self._raise_serial = False

    def put(self, collection: str, key: str, record: Record) -> None:
        """Set the record of a key."""
        self._edits[collection, key] = record

    def delete(self, collection: str, key: str) -> None:
        """Remove the record of a key; nothing happens when there is none."""
        self._edits[collection, key] = None

    def raise_serial(self) -> None:
        """Count this commit: it changes mappings, items or committed shards.

        Without any other effective change the serial stays too.
        """
        self._raise_serial = True

    def merge(self, other: Changes) -> None:
        """Take another's edits over; the last word on a key counts."""
        self._edits.update(other._edits)
        self._raise_serial = self._raise_serial or other._raise_serial

    def effective(self, state: State) -> dict[tuple[str, str], str | None]:
        """The edits that change ``state``, the raised serial among them."""
        edits = find_differences(state, self._edits)
        if edits and self._raise_serial:
            serial = ConfigRecord(value=str(state.serial + 1))
            edits |= find_differences(state, {("config", "serial"): serial})
        return edits


def rows_of(state: State, edits: dict[tuple[str, str], str | None]) -> list[LogRow]:
    """The rows that turn ``state`` into its edited form, retractions first."""
    rows: list[LogRow] = []
    for (collection, key), text in edits.items():
        old = state.raw.get(collection, {}).get(key)
        if old is not None:
            rows.append(LogRow(collection, key, old, -1))
        if text is not None:
            rows.append(LogRow(collection, key, text, 1))
    return rows


def require_epoch(state: State, lease_key: str, epoch: int) -> None:
    """Raise :class:`LeaseLost` unless the lease still has this epoch and a holder."""
    lease = state.leases.get(lease_key)
    if lease is not None and lease.epoch == epoch and lease.holder:
        return
    now = "is gone" if lease is None else (
        f"is at epoch {lease.epoch}" + (f", held by {lease.holder!r}" if lease.holder else "")
    )
    raise LeaseLost(
        f"the lease {lease_key!r} of epoch {epoch} was taken over: it {now}",
        remedy="run again; the present holder's work is finished or taken up",
        epoch=epoch, current=lease.epoch if lease else None,
        holder=lease.holder if lease else None,
    )


def _metadata(
    after: State, edits: Mapping[tuple[str, str], str | None], kind: str, epoch: int | None,
    reason: str | None,
) -> dict[str, str]:
    """What a commit says about itself: the only source of history and audit."""
    metadata = {
        "kind": kind, "serial": str(after.serial), "who": this_user(), "host": this_host(),
        "items": touched_items(edits),
    }
    in_force = after.release_in_force("release")
    if in_force is not None:
        metadata["release"] = in_force.name
    if epoch is not None:
        metadata["epoch"] = str(epoch)
    if reason:
        metadata["reason"] = reason
    return metadata


def commit(
    log: CatalogLog,
    changes_for: Callable[[State], Changes | None],
    *,
    epoch: int | None = None,
    kind: str,
    lease_key: str = "migration",
    attempts: int = 20,
    reason: str | None = None,
    anyway: bool = False,
    rollback_to: int | None = None,
    executed: Sequence[Executed] = (),
) -> State:
    """Commit what ``changes_for`` makes of the newest state, and return the state after it.

    ``changes_for`` is called again on a fresh state when another writer committed meanwhile;
    whatever it raises ends the commit. ``epoch`` fences the commit by the lease. ``kind`` is a word
    for the history, ``reason`` what a person gave for it, ``rollback_to`` the serial gone back to,
    ``executed`` the operations that were executed before it and are in no commit yet.
    ``anyway`` lets a catalog be written that is not in use here (moved, copied or exported):
    only for what makes it so, or ends it.

    Raises :class:`LeaseLost`, :class:`CheckFailed`,
    :class:`CommitConflict` after ``attempts`` lost races, and whatever the log raises.
    """

    def attempt() -> State:
        before = State.from_snapshot(log.read())
        if not anyway:
            require_in_use(before, log)
        if epoch is not None:
            require_epoch(before, lease_key, epoch)
        changes = changes_for(before)
        edits = {} if changes is None else changes.effective(before)
        if not edits:
            return before
        after = before.changed(before.version + 1, edits)
        check(after, before)
        metadata = _metadata(after, edits, kind, epoch, reason)
        if rollback_to is not None:
            metadata["rollback_to"] = str(rollback_to)
        if executed:
            metadata["executed"] = msgspec.json.encode(executed).decode()
        try:
            version = log.append(
                rows_of(before, edits), follows=before.version, commit_id=uuid4().hex,
                metadata=metadata, state=after,
            )
        except CommitConflict as error:
            raise Overtaken from error
        compact_when_due(log)
        return after.at(version)

    try:
        return retry(attempt, Overtaken, _spread(attempts - 1), sleep=log.wait)
    except Overtaken as error:
        raise CommitConflict(
            f"another writer was faster {attempts} times in a row ({kind})",
            remedy="run again when the other writers are done", kind=kind,
        ) from error


def _spread(pauses: int) -> Iterator[float]:
    """Random pauses, so that writers do not meet again; each may be twice as long as the last."""
    for number in range(pauses):
        longest = min(_LONGEST_PAUSE, 0.004 * 2**number)
        yield random.uniform(0, longest)  # noqa: S311 - no secret


FILES = 64
"""Most data files that a read may have to open (64: about 50 ms)."""


def compact_when_due(log: CatalogLog) -> bool:
    """Rewrite the log into one file when more than :data:`FILES` are live; whether it was done.

    Best effort: the state is the same with or without it, so losing the race, or being refused,
    is no failure of the commit before it.
    """
    if log.live_files() <= FILES:
        return False
    try:
        log.compact(follows=log.version(), commit_id=uuid4().hex)
    except (CommitConflict, CommitOutcomeUnknown, CatalogWriteRefused):
        return False
    return True
