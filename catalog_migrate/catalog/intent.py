"""Intents: what an attempt will leave behind when it dies, recorded before it does anything."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from catalog_migrate.catalog.log import CatalogLog
from catalog_migrate.catalog.records import IntentRecord, SealedShard
from catalog_migrate.catalog.state import State
from catalog_migrate.catalog.transaction import Changes, commit
from catalog_migrate.errors import LeaseLost


def put_intent(log: CatalogLog, record: IntentRecord) -> State:
    """Record an attempt under its own epoch; :class:`LeaseLost` when a newer one exists."""

    def decide(_: State) -> Changes:
        changes = Changes()
        changes.put("intent", str(record.epoch), record)
        return changes

    return commit(log, decide, epoch=record.epoch, kind="intent")


def extend_intent(
    log: CatalogLog,
    epoch: int,
    *,
    paths: Iterable[str] = (),
    seals: Iterable[SealedShard] = (),
) -> State:
    """Add paths and seals to the attempt of ``epoch``; a path or seal named twice stays once.

    The first record of a seal wins: a second would remember properties that sealing had changed.
    """
    new_paths, new_seals = tuple(paths), tuple(seals)

    def decide(state: State) -> Changes:
        old = state.intents.get(str(epoch))
        if old is None:
            raise LeaseLost(
                f"the attempt of epoch {epoch} was cleaned up by another process",
                remedy="run again", epoch=epoch,
            )
        changes = Changes()
        seals_by_path = {seal.path: seal for seal in (*new_seals, *old.seals)}
        changes.put(
            "intent", str(epoch),
            msgspec.structs.replace(
                old,
                paths=tuple(dict.fromkeys((*old.paths, *new_paths))),
                seals=tuple(sorted(seals_by_path.values(), key=lambda seal: seal.path)),
            ),
        )
        return changes

    return commit(log, decide, epoch=epoch, kind="intent")


def remove_intent(log: CatalogLog, *, epoch: int, of_epoch: int) -> State:
    """Forget the attempt of ``of_epoch`` after cleaning up after it, under the lease ``epoch``."""

    def decide(_: State) -> Changes:
        changes = Changes()
        changes.delete("intent", str(of_epoch))
        return changes

    return commit(log, decide, epoch=epoch, kind="clean up")


def dead_intents(state: State, *, epoch: int) -> tuple[IntentRecord, ...]:
    """Attempts of earlier epochs, oldest first: their holders are gone or fenced."""
    found = (record for record in state.intents.values() if record.epoch < epoch)
    return tuple(sorted(found, key=lambda record: record.epoch))
