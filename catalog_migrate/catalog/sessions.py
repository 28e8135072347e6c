"""Which processes live with the names and columns of which serial (ADR 0022).

A process writes one row when it starts, and never again: after its start it does not come back to
the catalog, so a heartbeat would have nobody to send it. A row therefore says that a process *may*
live, until it is proven dead or taken away by hand. All that depends on it is whether columns that
it reads may be renamed and dropped under it; in doubt they are copied.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from datetime import datetime, timezone

import msgspec

from catalog_migrate.catalog.clock import Clock
from catalog_migrate.catalog.commits import Commit, commit_onto
from catalog_migrate.catalog.log import CatalogLog
from catalog_migrate.catalog.process import proven_dead, this_process
from catalog_migrate.catalog.records import SessionRecord
from catalog_migrate.catalog.state import State
from catalog_migrate.catalog.updates import Delete, Edit, Put
from catalog_migrate.errors import UnknownSession, UsageError

MOST_ROWS = 64
"""Rows kept one by one; what is more is folded into one."""

OTHERS = "others"
"""Key of the row of those that were folded."""


class RegisterSession(msgspec.Struct, frozen=True):
    """Put a process on record, while the catalog is at the serial of its row.

    ``fresh`` is the key of its row where it has none. Rows of the proven dead go on the way.
    """

    holder: str
    row: SessionRecord
    fresh: str

    def apply(self, state: State) -> Iterator[Edit]:
        """Return the row, and what becomes of others."""
        if state.serial != self.row.serial:
            return
        own = own_session(state, self.holder)
        mine = self.fresh if own is None else own[0]
        yield Put("session", mine, self.row)
        others = other_sessions(state, self.holder)
        for key in state.sessions:
            if key not in others and key != mine:
                yield Delete("session", key)
        yield from _fold(others)


class RemoveSessions(msgspec.Struct, frozen=True):
    """Take away the rows of these ids, and all of an older serial than ``before``."""

    ids: frozenset[str]
    before: int | None = None

    def apply(self, state: State) -> Iterator[Edit]:
        """Return what goes; :class:`UnknownSession` for an id that has no row."""
        unknown = sorted(self.ids - state.sessions.keys())
        if unknown:
            raise UnknownSession(
                f"no session has the id {', '.join(unknown)}",
                remedy="`catalog-migrate status` lists them", ids=tuple(unknown),
            )
        for key, row in state.sessions.items():
            if key in self.ids or (self.before is not None and row.serial < self.before):
                yield Delete("session", key)


def own_session(state: State, holder: str) -> tuple[str, SessionRecord] | None:
    """Key and row of this very process, as ``holder``; None when it has none."""
    process = this_process()
    mine = (holder, process.host, process.boot_id, process.pid, process.started)
    for key, row in state.sessions.items():
        if (row.holder, row.host, row.boot_id, row.pid, row.started) == mine:
            return key, row
    return None


def other_sessions(state: State, holder: str) -> dict[str, SessionRecord]:
    """Rows of processes that may live, this one (as ``holder``) left out.

    Each is at the serial in force or an older one: whatever comes next is new to all of them.
    """
    own = own_session(state, holder)
    return {
        key: row
        for key, row in sorted(state.sessions.items())
        if (own is None or key != own[0]) and not proven_dead(row)
    }


def register_session(
    log: CatalogLog, state: State, *, release: str, holder: str, clock: Clock,
    token: Callable[[], str],
) -> State | None:
    """Put on record that this process lives with the names of ``state``, before it makes them.

    Nothing is written when its row says so already. None when the catalog has moved to another
    serial: then the names are to be made from that. Rows of the proven dead go on the way.
    """
    serial = state.serial
    own = own_session(state, holder)
    if own is not None and (own[1].release, own[1].serial) == (release, serial):
        return state
    process = this_process()
    since = datetime.fromtimestamp(clock.wall(), timezone.utc).isoformat(timespec="seconds")
    row = SessionRecord(
        release=release, serial=serial, holder=holder, host=process.host, boot_id=process.boot_id,
        pid=process.pid, started=process.started, since=since,
    )
    register = RegisterSession(holder, row, token()[:8])
    before, after = commit_onto(log, Commit("session", (register,)))
    return None if before.serial != serial else after


def _fold(others: dict[str, SessionRecord]) -> Iterator[Edit]:
    """Keep the newest rows and make one of all the rest, so that rows do not grow for ever."""
    single = sorted(
        (key for key in others if key != OTHERS), key=lambda key: (others[key].serial, key)
    )
    excess = single[: max(0, len(single) + 1 - MOST_ROWS)]
    if not excess:
        return
    before = others.get(OTHERS)
    folded = [others[key] for key in excess] + ([before] if before is not None else [])
    for key in excess:
        yield Delete("session", key)
    newest = max(folded, key=lambda row: row.serial)
    yield Put("session", OTHERS, SessionRecord(
        release=newest.release, serial=newest.serial, holder=OTHERS,
        since=max(row.since for row in folded),
        folded=len(excess) + (before.folded if before is not None else 0),
    ))


def remove_sessions(
    log: CatalogLog, ids: Collection[str] = (), *, before: int | None = None
) -> tuple[str, ...]:
    """Take rows of processes that are surely gone away, and return their ids.

    ``before`` takes all rows of an older serial than it. The row of the folded ones goes by the
    newest of them. Raises UnknownSession for an id that has no row; then none is taken.
    """
    if not ids and before is None:
        raise UsageError("no session was named", remedy="name one, or a serial")
    remove = RemoveSessions(frozenset(ids), before)
    earlier, after = commit_onto(log, Commit("unlock", (remove,)))
    return tuple(sorted(earlier.sessions.keys() - after.sessions.keys()))
