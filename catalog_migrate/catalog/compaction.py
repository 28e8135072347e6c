"""Keeps reads cheap: a read costs one file open per commit since the last compaction."""

from __future__ import annotations

from uuid import uuid4

from catalog_migrate.catalog.log import CatalogLog
from catalog_migrate.errors import CatalogWriteRefused, CommitConflict, CommitOutcomeUnknown

FILES = 64
"""Most data files that a read may have to open (64: about 50 ms, STACK section 8)."""


def compact_when_due(log: CatalogLog, *, files: int = FILES) -> bool:
    """Rewrite the log into one file when more than ``files`` are live; whether it was done.

    Best effort: the state is the same with or without it, so losing the race, or being refused,
    is no failure of the commit before it.
    """
    if log.live_files() <= files:
        return False
    try:
        log.compact(follows=log.version(), commit_id=uuid4().hex)
    except (CommitConflict, CommitOutcomeUnknown, CatalogWriteRefused):
        return False
    return True
