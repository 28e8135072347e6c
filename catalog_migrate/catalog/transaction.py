"""Commits that a function decides; goes as soon as all commits are values."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import msgspec

from catalog_migrate.catalog import commits
from catalog_migrate.catalog.log import CatalogLog
from catalog_migrate.catalog.records import Record
from catalog_migrate.catalog.requirements import Epoch
from catalog_migrate.catalog.state import State
from catalog_migrate.catalog.updates import (
    Delete,
    Edit,
    Put,
    RaiseSerial,
    Update,
    edits_of,
    find_effects,
)
from catalog_migrate.program.steps import Executed


class Changes:
    """What one commit puts and deletes; the last word on a key counts."""

    __slots__ = ("edits",)

    def __init__(self) -> None:
        self.edits: list[Edit] = []

    def apply(self, _: State) -> Iterable[Edit]:
        """Return the edits."""
        return self.edits

    def put(self, collection: str, key: str, record: Record) -> None:
        """Set the record of a key."""
        self.edits.append(Put(collection, key, record))

    def delete(self, collection: str, key: str) -> None:
        """Remove the record of a key; nothing happens when there is none."""
        self.edits.append(Delete(collection, key))

    def raise_serial(self) -> None:
        """Count this commit: it changes mappings, items or committed shards."""
        self.edits.append(RaiseSerial())

    def merge(self, other: Changes) -> None:
        """Take another's edits over; the last word on a key counts."""
        self.edits += other.edits

    def effective(self, state: State) -> dict[tuple[str, str], str | None]:
        """The edits that change ``state``, the raised serial among them."""
        return find_effects(state, (self,))


class Filled(msgspec.Struct, frozen=True):
    put: Callable[[Changes, State], None]

    def apply(self, state: State) -> Iterable[Edit]:
        changes = Changes()
        self.put(changes, state)
        return changes.edits


class _Decided(msgspec.Struct, frozen=True):
    changes_for: Callable[[State], Changes | Sequence[Update] | None]

    def apply(self, state: State) -> Iterable[Edit]:
        changes = self.changes_for(state)
        return () if changes is None else edits_of(
            state, (changes,) if isinstance(changes, Changes) else changes
        )


def commit(
    log: CatalogLog,
    changes_for: Callable[[State], Changes | Sequence[Update] | None],
    *,
    epoch: int | None = None,
    kind: str,
    reason: str | None = None,
    rollback_to: int | None = None,
    executed: Sequence[Executed] = (),
) -> State:
    """Commit what ``changes_for`` makes of the newest state, and return the state after it."""
    return commits.commit(log, commits.Commit(
        kind, (_Decided(changes_for),),
        () if epoch is None else (Epoch("migration", epoch),),
        reason=reason, executed=tuple(executed), rollback_to=rollback_to,
    ))
