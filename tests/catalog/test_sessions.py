"""Who may live with the names of an older serial: rows of sessions."""

from __future__ import annotations

import itertools

import msgspec
import pytest

from catalog_migrate.catalog.clock import SystemClock
from catalog_migrate.catalog.memory_log import MemoryLog
from catalog_migrate.catalog.opening import create_catalog, read_state
from catalog_migrate.catalog.process import this_process
from catalog_migrate.catalog.records import SessionRecord
from catalog_migrate.catalog.sessions import (
    MOST_ROWS,
    OTHERS,
    other_sessions,
    own_session,
    register_session,
    remove_sessions,
)
from catalog_migrate.catalog.state import State
from catalog_migrate.errors import UnknownSession, UsageError
from tests.decisions import Changes, commit


class Log(MemoryLog):
    """A catalog in memory that processes sign in to."""

    def __init__(self) -> None:
        super().__init__()
        create_catalog(self, warehouse="/w")
        self._numbers = itertools.count(1)

    def enter(self, holder: str, release: str = "1", state: State | None = None) -> State | None:
        return register_session(
            self, state or read_state(self), release=release, holder=holder, clock=SystemClock(),
            token=lambda: f"{next(self._numbers):08d}-rest",
        )

    def raise_serial(self) -> None:
        def decide(state: State) -> Changes:
            changes = Changes()
            changes.raise_serial()
            changes.put("session", "kick", SessionRecord(release="", serial=state.serial))
            return changes

        commit(self, decide, kind="test")
        commit(self, lambda _: _without("kick"), kind="test")

    def put(self, key: str, row: SessionRecord) -> None:
        changes = Changes()
        changes.put("session", key, row)
        commit(self, lambda _: changes, kind="test")

    @property
    def rows(self) -> dict[str, SessionRecord]:
        return dict(read_state(self).sessions)


def _without(key: str) -> Changes:
    changes = Changes()
    changes.delete("session", key)
    return changes


@pytest.fixture
def log() -> Log:
    return Log()


def test_a_process_signs_in_once(log: Log) -> None:
    """A repeated start of one process re-uses its row and commits nothing while it is right."""
    assert log.enter("a") is not None
    version = log.version()
    assert log.enter("a") is not None
    assert log.version() == version
    (key,) = log.rows
    log.raise_serial()
    log.enter("a", release="2")
    assert [(k, row.release, row.serial) for k, row in log.rows.items()] == [(key, "2", 1)]


def test_a_row_says_who_it_is(log: Log) -> None:
    """Release, serial and the process, as a lease has them; the process finds itself again."""
    log.enter("a", release="7")
    ((key, row),) = log.rows.items()
    process = this_process()
    assert (key, row.release, row.serial, row.holder) == ("00000001", "7", 0, "a")
    assert (row.host, row.pid, row.started) == (process.host, process.pid, process.started)
    state = read_state(log)
    assert own_session(state, "a") == (key, row)
    assert own_session(state, "b") is None
    assert other_sessions(state, "a") == {}
    assert other_sessions(state, "b") == {key: row}


def test_a_catalog_that_moved_is_not_signed_in_to(log: Log) -> None:
    """Names of an older serial are never made after a row at a newer one: nothing is written."""
    old = read_state(log)
    log.raise_serial()
    version = log.version()
    assert log.enter("a", state=old) is None
    assert log.version() == version


def test_the_proven_dead_do_not_count_and_go(log: Log) -> None:
    """A process of this machine that ended is no session; its row goes with the next one."""
    process = this_process()
    dead = SessionRecord(
        release="1", serial=0, holder="x", host=process.host, boot_id=process.boot_id,
        pid=process.pid, started="1",
    )
    elsewhere = msgspec.structs.replace(dead, host="another machine")
    log.put("dead", dead)
    log.put("far", elsewhere)
    assert set(other_sessions(read_state(log), "a")) == {"far"}
    log.enter("a")
    assert set(log.rows) == {"far", "00000001"}


def test_rows_are_bounded(log: Log) -> None:
    """What is above the bound becomes one row that is as new as the newest of them."""
    for number in range(MOST_ROWS):
        log.put(f"n{number:03d}", SessionRecord(release="1", serial=number, host="far", holder="x"))
    log.enter("a")
    assert len(log.rows) == MOST_ROWS + 1
    others = log.rows[OTHERS]
    assert (others.folded, others.serial) == (1, 0)
    assert "n000" not in log.rows
    log.put("n900", SessionRecord(release="1", serial=900, host="far", holder="x"))
    log.enter("b")
    assert len(log.rows) == MOST_ROWS + 1
    # a's row was of serial 0, the oldest of those left; then n001
    assert (log.rows[OTHERS].folded, log.rows[OTHERS].serial) == (3, 1)
    assert OTHERS in other_sessions(read_state(log), "b")


def test_rows_are_taken_away_by_hand(log: Log) -> None:
    """By id, by serial, both at once; the answer is what went."""
    for number in range(4):
        log.put(f"n{number}", SessionRecord(release="1", serial=number, host="far"))
    assert remove_sessions(log, ["n3"], before=2) == ("n0", "n1", "n3")
    assert set(log.rows) == {"n2"}
    assert remove_sessions(log, before=1) == ()


def test_an_unknown_id_is_an_error(log: Log) -> None:
    """Nothing is taken when one of the ids has no row, so that a slip is noticed."""
    log.enter("a")
    with pytest.raises(UnknownSession) as caught:
        remove_sessions(log, ["00000001", "00000009"])
    assert "00000009" in str(caught.value)
    assert "00000001" not in caught.value.message
    assert set(log.rows) == {"00000001"}
    with pytest.raises(UsageError):
        remove_sessions(log)
