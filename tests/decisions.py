"""Commits that a test decides by a function of the newest state, and a list of edits for them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec

from catalog_migrate.catalog import commits
from catalog_migrate.catalog.log import CatalogLog
from catalog_migrate.catalog.records import Record
from catalog_migrate.catalog.requirements import Epoch
from catalog_migrate.catalog.state import State
from catalog_migrate.catalog.updates import Delete, Edit, Put, RaiseSerial, Update, find_effects


class Changes:
    """Edits one after the other; an update."""

    def __init__(self) -> None:
        self.edits: list[Edit] = []

    def apply(self, _: State) -> Iterable[Edit]:
        return self.edits

    def put(self, collection: str, key: str, record: Record) -> None:
        self.edits.append(Put(collection, key, record))

    def delete(self, collection: str, key: str) -> None:
        self.edits.append(Delete(collection, key))

    def raise_serial(self) -> None:
        self.edits.append(RaiseSerial())

    def effective(self, state: State) -> dict[tuple[str, str], str | None]:
        return find_effects(state, self.edits)


Decision = Callable[[State], Update | Sequence[Update] | None]


class Decided(msgspec.Struct, frozen=True):
    """What a function makes of the newest state."""

    decide: Decision

    def apply(self, state: State) -> Iterable[Edit]:
        decided = self.decide(state)
        if decided is None:
            return ()
        updates = decided if isinstance(decided, Sequence) else [decided]
        return [edit for update in updates for edit in update.apply(state)]


def commit(
    log: CatalogLog, decide: Decision, *, kind: str, epoch: int | None = None, attempts: int = 20,
    **fields: Any,
) -> State:
    """Commit what ``decide`` makes of the newest state."""
    fences = () if epoch is None else (Epoch("migration", epoch),)
    return commits.commit(
        log, commits.Commit(kind, (Decided(decide),), fences, **fields), attempts=attempts
    )
