"""Leases: who may work on the world, judged by the challenger's own monotonic clock.

Taking a lease raises its epoch, so that commits of an earlier holder are refused. Acts outside the
catalog are fenced by time: a holder acts only while its last acknowledged
renewal is younger than ``ttl - margin``, and a new holder acts only ``margin`` after it took over,
unless the earlier process is proven dead or has released the lease. A holder whose renewal is
older (it was stopped, or busy for long) acts again once a commit has rewritten its row: a
challenger takes the row only as it has seen it for a whole TTL, so one of the two loses.

The heartbeat of an epoch is written when its holder may act for the first time. So a lease
without one was taken by a process that died while it still waited for *its* predecessor.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timezone
from typing import NamedTuple
from uuid import uuid4

import msgspec

from catalog_migrate.catalog.clock import Clock, SystemClock
from catalog_migrate.catalog.commits import Commit, commit, commit_onto
from catalog_migrate.catalog.log import CatalogLog
from catalog_migrate.catalog.opening import read_state
from catalog_migrate.catalog.process import proven_dead, this_process
from catalog_migrate.catalog.records import LeaseRecord
from catalog_migrate.catalog.requirements import Epoch
from catalog_migrate.catalog.state import State
from catalog_migrate.catalog.updates import Edit, Put, Swap
from catalog_migrate.errors import (
    CatalogMigrateError,
    LeaseExpired,
    LeaseHeld,
    LeaseLost,
    UsageError,
)

MIGRATION = "migration"
"""Key of the one lease for work on the world; clusters have ``cluster/<item id>``."""

OnWait = Callable[[LeaseRecord, float], None]
"""Told while waiting: who holds the lease, and for how many seconds we have waited."""

HEARTBEAT = 10.0
"""Seconds between two renewals at most, however long the TTL: whoever waits for the holder's work
hears it so often."""

_FREE = LeaseRecord(epoch=0)


class Confirm(msgspec.Struct, frozen=True):
    """Rewrite a lease's row, so that a challenger which watched it has to watch again."""

    key: str

    def apply(self, state: State) -> tuple[Edit]:
        """Return the row with one more confirmation."""
        row = state.leases[self.key]
        return (Put("lease", self.key, msgspec.structs.replace(row, confirmed=row.confirmed + 1)),)


class Release(msgspec.Struct, frozen=True):
    """Release a lease of this epoch; nothing happens when it was taken over."""

    key: str
    epoch: int

    def apply(self, state: State) -> tuple[Edit, ...]:
        """Return the row without a holder."""
        row = state.leases.get(self.key)
        if row is None or row.epoch != self.epoch or not row.holder:
            return ()
        return (Put("lease", self.key, LeaseRecord(epoch=self.epoch)),)


class Unlock(msgspec.Struct, frozen=True):
    """Take the migration lease away from a holder, whether it lives or not."""

    holder: str

    def apply(self, state: State) -> tuple[Edit, ...]:
        """Return the row with a higher epoch; :class:`LeaseHeld` when another process holds it."""
        row = state.leases.get(MIGRATION, _FREE)
        if not row.holder:
            return ()
        if row.holder != self.holder:
            raise _lease_held(row, MIGRATION, 0.0)
        # the process stays on record: while it is not proven dead, its successor waits the margin
        unlocked = msgspec.structs.replace(row, epoch=row.epoch + 1, holder="")
        return (Put("lease", MIGRATION, unlocked),)


class Lease:
    """A lease held by this process under ``epoch``; made by :func:`acquire`.

    ``ttl`` and ``margin`` are seconds. ``settled`` is whether no earlier holder can still be
    acting: none was, it gave the lease back, or it is proven dead. Thread-safe.
    """

    __slots__ = (
        "_clock", "_lock", "_log", "_renewed", "epoch", "holder", "key", "margin", "settled", "ttl"
    )

    def __init__(
        self, log: CatalogLog, clock: Clock, *, key: str, holder: str, epoch: int, ttl: float,
        margin: float,
    ) -> None:
        self._log = log
        self._clock = clock
        self.key = key
        self.holder = holder
        self.epoch = epoch
        self.ttl = ttl
        self.margin = margin
        self.settled = True
        self._renewed = clock.monotonic()
        self._lock = threading.Lock()

    @property
    def held(self) -> Epoch:
        """What a commit under this lease requires."""
        return Epoch(self.key, self.epoch)

    @property
    def wants_heartbeat(self) -> bool:
        """Whether a thread should call :meth:`ensure` during long acts: not in simulated time."""
        return isinstance(self._clock, SystemClock)

    def read_state(self) -> State:
        """Return the newest state, in which this lease is held; :class:`LeaseLost` for any other.

        What a successor has committed must not be taken for our own: one that was stopped would
        act on the successor's objects when it wakes up.
        """
        state = read_state(self._log)
        self.held.check(state)
        return state

    @property
    def interval(self) -> float:
        """Seconds between two renewals."""
        return min(self.ttl / 3, HEARTBEAT)

    def ensure(self) -> None:
        """Prove that acts on the world are still allowed; renews after each :attr:`interval`.

        When the last acknowledged renewal is older than ``ttl - margin``, a challenger may be about
        to take the lease: a commit settles who has it. Raises :class:`LeaseLost` when the lease was
        taken over, :class:`LeaseExpired` when even that took too long: call it again to go on.
        """
        with self._lock:
            started = self._clock.monotonic()
            if started - self._renewed < self.interval:
                return
            if started - self._renewed < self.ttl - self.margin:
                self.read_state()
            else:
                self._confirm()
            self._renew(started)
            self._require_fresh(self._clock.monotonic())

    @property
    def age(self) -> float:
        """Seconds since the last acknowledged renewal."""
        return self._clock.monotonic() - self._renewed

    @property
    def is_fresh(self) -> bool:
        """Whether :meth:`require_fresh` would let its holder act now."""
        return self.age < self.ttl - self.margin

    def require_fresh(self) -> None:
        """:meth:`ensure` without a renewal and without any input or output; thread-safe.

        For threads that act between two heartbeats of another one. Raises :class:`LeaseExpired`.
        """
        self._require_fresh(self._clock.monotonic())

    def beat(self) -> LeaseLost | None:
        """:meth:`ensure` beside the work; what the lease was lost to, where another process has it.

        One that has expired, or whose store does not answer now, is decided by the next beat.
        """
        try:
            self.ensure()
        except LeaseExpired:
            pass
        except LeaseLost as error:
            return error
        except (CatalogMigrateError, OSError):
            pass
        return None

    @contextmanager
    def keep(self) -> Iterator[Lease]:
        """Act inside under this lease, and release it at the end.

        A thread renews it meanwhile, however long one act takes (a copy, a name in a slow
        metastore, a callback); a process that is stopped, or gone, renews nothing.
        """
        done = threading.Event()

        def go_on() -> None:
            while not done.wait(self.interval) and self.beat() is None:
                pass  # what it is lost to is reported by the working thread's ensure(), or commit

        thread = threading.Thread(target=go_on, name="lease heartbeat", daemon=True)
        try:
            if self.wants_heartbeat:
                thread.start()
            yield self
        finally:
            try:
                done.set()
                if thread.ident is not None:
                    thread.join()
            finally:
                self.release()

    def release(self) -> None:
        """Release the lease; the epoch stays. Nothing happens when it was taken over."""
        release = Release(self.key, self.epoch)
        commit(self._log, Commit("release lease", (release,), anyway=True))

    def _confirm(self) -> None:
        commit(self._log, Commit("confirm lease", (Confirm(self.key),), (self.held,)))

    def _renew(self, started: float) -> None:
        """Write a heartbeat; it counts from when the write began, not from its reply."""
        self._log.renew(self.key, _beat(self.epoch, self._clock.wall()))
        self._renewed = started

    def _require_fresh(self, now: float) -> None:
        age = now - self._renewed
        if age >= self.ttl - self.margin:
            raise LeaseExpired(
                f"the lease {self.key!r} of epoch {self.epoch} was last renewed {age:.1f} s ago; "
                f"work needs a renewal younger than {self.ttl - self.margin:.1f} s",
                remedy="run again; what is unfinished is taken up",
                epoch=self.epoch, age=age,
            )


def acquire(
    log: CatalogLog, *, holder: str, ttl: float = 30, margin: float = 10, wait: float | None = None,
    clock: Clock, on_wait: OnWait | None = None, key: str = MIGRATION,
    fence: Callable[[Lease], None] | None = None, anyway: bool = False,
    known: State | None = None,
) -> Lease:
    """Take the lease, waiting while another process holds it.

    ``holder`` is the name that others are shown. ``wait`` (seconds) is how long a held lease is
    waited for, 0 not at all; None waits until it is known whether the holder lives: it is taken
    over when nothing was heard of it for a whole TTL, and the call fails at its next heartbeat.
    A process that is proven dead is not waited for. ``on_wait`` is called at every look.
    ``fence`` keeps an earlier holder out that may still wake up. It is called unless the lease is
    ``settled``, and before the first heartbeat: dying in it leaves a lease that is not settled for
    the next one either. It must be repeatable, and fence its commits by the epoch. ``anyway`` is as
    in :class:`~catalog_migrate.catalog.commits.Commit`. ``known`` is a state that was read already:
    the log is read again where it has moved on since.

    Raises :class:`LeaseHeld` with holder, host, process and since when.
    """
    _require_margin(ttl, margin)
    started = clock.monotonic()
    sight: _Sight | None = None
    state = known or read_state(log)
    while True:
        if log.version() != state.version:
            state = read_state(log)
        found = state.leases.get(key)
        row = found or _FREE
        beat = log.heartbeat(key)
        now = clock.monotonic()
        sight = _watch(sight, row, beat, now)
        dead = sight.is_dead
        if not row.holder or dead or now - sight.since >= ttl:
            settled = _has_no_earlier_holder(row, beat, dead)
            claim = _claim(row, holder, clock, alone=settled)
            # made before the commit: a renewal counts from when its write began
            lease = Lease(
                log, clock, key=key, holder=holder, epoch=claim.epoch, ttl=ttl, margin=margin
            )
            if not _take(log, key, found, claim, anyway=anyway):
                continue
            lease.settled = settled
            _settle(lease, clock, 0.0 if settled else margin, fence)
            return lease
        waited = now - started
        if sight.lives if wait is None else waited >= wait:
            raise _lease_held(row, key, waited)
        if on_wait is not None:
            on_wait(row, waited)
        left = ttl if wait is None else max(wait - waited, 0.001)
        clock.sleep(min(ttl / 20, 1.0, left))


def _require_margin(ttl: float, margin: float) -> None:
    if not 0 <= margin < ttl:
        raise UsageError(
            f"the margin of a lease ({margin} s) must be below its TTL ({ttl} s)",
            remedy="use the defaults: TTL 30, margin 10",
        )


class _Sight(NamedTuple):
    """A lease as a challenger sees it: ``since`` when nothing of it has changed, and whether its
    holder ``lives``, which was heard at this look."""

    row: LeaseRecord
    beat: str | None
    since: float
    lives: bool = False

    @property
    def is_dead(self) -> bool:
        """Whether the holder is proven dead."""
        return bool(self.row.holder) and proven_dead(self.row)


def _watch(earlier: _Sight | None, row: LeaseRecord, beat: str | None, now: float) -> _Sight:
    if earlier is None:
        return _Sight(row, beat, now)
    if (earlier.row, earlier.beat) == (row, beat):
        return _Sight(row, beat, earlier.since)
    return _Sight(row, beat, now, earlier.row.epoch == row.epoch and earlier.beat != beat)


def unlock(log: CatalogLog, if_holder: str) -> State:
    """Take the migration lease away from ``if_holder``, whether it lives or not.

    The epoch is raised, so that its commits are refused from now on; the next holder waits the
    margin. Raises :class:`LeaseHeld` when another process holds it; nothing happens when it is
    free.
    """
    return commit(log, Commit("unlock", (Unlock(if_holder),)))


def _claim(row: LeaseRecord, holder: str, clock: Clock, *, alone: bool) -> LeaseRecord:
    """The row with this process as its holder, under the next epoch."""
    process = this_process()
    since = datetime.fromtimestamp(clock.wall(), timezone.utc).isoformat(timespec="seconds")
    return LeaseRecord(
        epoch=row.epoch + 1, holder=holder, host=process.host, boot_id=process.boot_id,
        pid=process.pid, started=process.started, since=since, alone=alone,
    )


def _take(
    log: CatalogLog, key: str, row: LeaseRecord | None, claim: LeaseRecord, *, anyway: bool
) -> bool:
    """Raise the epoch; whether the lease was still as it was looked at."""
    take = Swap("lease", key, row, claim)
    before, _ = commit_onto(log, Commit("take lease", (take,), anyway=anyway))
    # two threads of one process write the very same row: the row alone does not tell whose
    return before.leases.get(key) == row


def _has_no_earlier_holder(row: LeaseRecord, beat: str | None, dead: bool) -> bool:
    """Whether nobody can still be acting under an earlier epoch.

    One that died before its first heartbeat may have left an earlier one unfenced, unless it was
    alone from the start.
    """
    if not row.holder and not row.host:
        return True  # never held, or released
    acted = beat is not None and beat.partition(":")[0] == str(row.epoch)
    if not row.holder:
        # unlocked: the epoch on record is one above that of the process that lost it
        acted = beat is not None and beat.partition(":")[0] == str(row.epoch - 1)
        dead = proven_dead(row)
    return dead and (acted or row.alone)


def _settle(
    lease: Lease, clock: Clock, margin: float, fence: Callable[[Lease], None] | None
) -> None:
    """Wait out acts of an earlier holder, fence it, then write this epoch's first heartbeat.

    No challenger takes a row that it has not seen for a whole TTL, so the commit that took the
    lease is as good as a heartbeat; where it is too old, the log says who has the lease.
    """
    if margin:
        clock.sleep(margin)
    if fence is not None and not lease.settled:
        lease.read_state()
        fence(lease)
    began = clock.monotonic()  # the heartbeat counts from before the look
    if not (lease.settled and lease.is_fresh):
        lease.read_state()
    lease._renew(began)


def _beat(epoch: int, wall: float) -> str:
    return f"{epoch}:{uuid4().hex}:{wall:.0f}"


def heartbeat_age(beat: str | None, now: float) -> float | None:
    """Seconds since a heartbeat by the clocks of two machines; None for one that does not say.

    For people who look: who may act is judged by one clock alone.
    """
    if beat is None:
        return None
    epoch, _, rest = beat.partition(":")
    _, _, wall = rest.partition(":")
    return max(0.0, now - int(wall)) if wall.isdecimal() and epoch.isdecimal() else None


def _lease_held(row: LeaseRecord, key: str, waited: float) -> LeaseHeld:
    quoted = "'" + row.holder.replace("'", "'\\''") + "'"
    return LeaseHeld(
        f"the lease {key!r} is held by {row.holder!r} (host {row.host}, process {row.pid}) "
        f"since {row.since}" + (f"; waited {waited:.0f} s" if waited else ""),
        remedy="wait for it to end; if that process has ended for good: "
        f"catalog-migrate unlock --if-holder {quoted}",
        holder=row.holder, host=row.host, pid=row.pid, since=row.since, epoch=row.epoch, key=key,
    )
