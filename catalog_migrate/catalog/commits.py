"""Commits: values that say what must hold and what is written, and how one is made.

Read, check the requirements, apply the updates, check the catalog, append exactly the next version;
again when another writer was faster. A commit that leaves many files behind it compacts the log.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from typing import NamedTuple
from uuid import uuid4

import msgspec

from catalog_migrate.catalog.check import check
from catalog_migrate.catalog.history import list_touched_items
from catalog_migrate.catalog.log import CatalogLog, LogRow
from catalog_migrate.catalog.opening import require_in_use
from catalog_migrate.catalog.process import this_host, this_user
from catalog_migrate.catalog.requirements import Epoch, Requirement
from catalog_migrate.catalog.state import State
from catalog_migrate.catalog.updates import Update, find_effects
from catalog_migrate.delta.commit import Overtaken
from catalog_migrate.errors import CatalogWriteRefused, CommitConflict, CommitOutcomeUnknown
from catalog_migrate.operations.steps import Executed
from catalog_migrate.retry import retry

_LONGEST_PAUSE = 0.1
"""Seconds: bound of the random pause between two attempts of a commit."""


class Commit(msgspec.Struct, frozen=True):
    """One commit: what it writes where all of its requirements hold, and what it says of itself.

    ``kind`` is a word for the history, ``reason`` what a person gave for it, ``executed`` the
    operations that were executed before it and are in no commit yet, ``rollback_to`` the serial
    gone back to. Requirements are checked in their order. ``anyway`` lets a catalog be written that
    is not in use here (moved, copied or exported): only for what makes it so, or ends it.
    """

    kind: str
    updates: tuple[Update, ...] = ()
    requirements: tuple[Requirement, ...] = ()
    reason: str | None = None
    executed: tuple[Executed, ...] = ()
    rollback_to: int | None = None
    anyway: bool = False

    @property
    def epoch(self) -> int | None:
        """The epoch that it is fenced by; None where none is required."""
        fences = (each for each in self.requirements if isinstance(each, Epoch))
        return next((each.epoch for each in fences), None)


class Committed(NamedTuple):
    """The state that a commit was made on, and the one that it made; the same for none."""

    before: State
    after: State


def commit(log: CatalogLog, wanted: Commit, *, attempts: int = 20) -> State:
    """Make a commit, and return the state after it; nothing is written where nothing changes.

    Requirements and updates are asked again about a fresh state when another writer committed
    meanwhile; whatever they raise ends the commit. Raises :class:`CheckFailed`,
    :class:`CommitConflict` after ``attempts`` lost races, and whatever the log raises.
    """
    return commit_onto(log, wanted, attempts=attempts).after


def commit_onto(log: CatalogLog, wanted: Commit, *, attempts: int = 20) -> Committed:
    """:func:`commit`, also returning the state that it was made on."""

    def attempt() -> Committed:
        before = log.read()
        if not wanted.anyway:
            require_in_use(before, log)
        for requirement in wanted.requirements:
            requirement.check(before)
        effects = find_effects(before, wanted.updates)
        if not effects:
            return Committed(before, before)
        after = before.apply_edits(before.version + 1, effects)
        check(after, before)
        try:
            log.append(
                rows_of(before, effects), follows=before.version, commit_id=uuid4().hex,
                metadata=_metadata(wanted, after, effects), state=after,
            )
        except CommitConflict as error:
            raise Overtaken from error
        compact_when_due(log)
        return Committed(before, after)

    try:
        return retry(attempt, Overtaken, _spread(attempts - 1), sleep=log.wait)
    except Overtaken as error:
        raise CommitConflict(
            f"another writer was faster {attempts} times in a row ({wanted.kind})",
            remedy="run again when the other writers are done", kind=wanted.kind,
        ) from error


def rows_of(state: State, effects: Mapping[tuple[str, str], str | None]) -> list[LogRow]:
    """Return the rows that turn ``state`` into its edited form, retractions first."""
    rows: list[LogRow] = []
    for (collection, key), text in effects.items():
        old = state.raw.get(collection, {}).get(key)
        if old is not None:
            rows.append(LogRow(collection, key, old, -1))
        if text is not None:
            rows.append(LogRow(collection, key, text, 1))
    return rows


def _metadata(
    wanted: Commit, after: State, effects: Mapping[tuple[str, str], str | None]
) -> dict[str, str]:
    """What a commit says about itself: the only source of history and audit."""
    metadata = {
        "kind": wanted.kind, "serial": str(after.serial), "who": this_user(), "host": this_host(),
        "items": list_touched_items(effects),
    }
    in_force = after.release_in_force("release")
    if in_force is not None:
        metadata["release"] = in_force.name
    if wanted.epoch is not None:
        metadata["epoch"] = str(wanted.epoch)
    if wanted.reason:
        metadata["reason"] = wanted.reason
    if wanted.rollback_to is not None:
        metadata["rollback_to"] = str(wanted.rollback_to)
    if wanted.executed:
        metadata["executed"] = msgspec.json.encode(wanted.executed).decode()
    return metadata


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
