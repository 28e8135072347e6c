"""Leases under a clock moved by hand: expiry, margin, proof of death, fencing."""

from __future__ import annotations

import subprocess
import sys
import threading
from typing import Any

import msgspec
import pytest

from catalog_migrate.catalog.clock import SystemClock
from catalog_migrate.catalog.lease import Lease, acquire, unlock
from catalog_migrate.catalog.memory_log import MemoryLog
from catalog_migrate.catalog.opening import create_catalog, read_state
from catalog_migrate.catalog.process import proven_dead, this_process
from catalog_migrate.catalog.records import LeaseRecord, OperationRecord
from catalog_migrate.catalog.state import State
from catalog_migrate.errors import LeaseHeld, LeaseLost, StoreFailure, UsageError
from tests.decisions import Changes, commit


def row(log: Any) -> LeaseRecord:
    return read_state(log).leases["migration"]


def rewrite(log: Any, **fields: Any) -> None:
    """Make the lease look as if another process had taken it."""

    def decide(state: State) -> Changes:
        changes = Changes()
        old = state.leases.get("migration", LeaseRecord(epoch=1))
        changes.put("lease", "migration", msgspec.structs.replace(old, **fields))
        return changes

    commit(log, decide, kind="test")


@pytest.fixture(scope="module")
def dead_pid() -> tuple[int, str]:
    """The number and start time of a process that has ended."""
    code = ("from catalog_migrate.catalog.process import this_process as t; p = t(); "
            "print(p.pid, p.started)")
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    pid, started = done.stdout.split()
    return int(pid), started


def of_dead_process(dead_pid: tuple[int, str]) -> dict[str, Any]:
    me = this_process()
    return {"holder": "dead", "host": me.host, "boot_id": me.boot_id, "pid": dead_pid[0],
            "started": dead_pid[1]}


OF_ANOTHER_HOST = {"holder": "far", "host": "elsewhere", "boot_id": "b", "pid": 7, "started": "9",
                   "since": "2027-01-15T08:00:00+00:00"}


class TestTake:
    def test_free(self, users: Any, clock: Any) -> None:
        """A free lease is taken at once, under the next epoch, with who and since when."""
        create_catalog(users.first, warehouse="w")
        lease = acquire(users.first, holder="pod-1", clock=clock)
        me = this_process()
        assert row(users.second) == LeaseRecord(
            epoch=1, holder="pod-1", host=me.host, boot_id=me.boot_id, pid=me.pid,
            started=me.started, since="2027-01-15T08:01:40+00:00", alone=True,
        )
        assert (lease.epoch, clock.slept) == (1, [])
        assert (users.second.heartbeat("migration") or "").startswith("1:")

    def test_give_back(self, users: Any, clock: Any) -> None:
        """A released lease keeps its epoch, and the next holder need not wait."""
        create_catalog(users.first, warehouse="w")
        acquire(users.first, holder="a", clock=clock).release()
        assert row(users.second) == LeaseRecord(epoch=1)
        assert acquire(users.second, holder="b", clock=clock).epoch == 2
        assert clock.slept == []

    def test_serial_stays(self, memory: MemoryLog, clock: Any) -> None:
        """Leases leave the serial alone."""
        acquire(memory, holder="a", clock=clock).release()
        assert read_state(memory).serial == 0

    def test_keys(self, memory: MemoryLog, clock: Any) -> None:
        """Leases of different keys do not stand in each other's way."""
        acquire(memory, holder="a", clock=clock)
        assert acquire(memory, holder="b", clock=clock, key="cluster/c", wait=0).epoch == 1

    def test_margin_below_ttl(self, memory: MemoryLog, clock: Any) -> None:
        """A margin that is not below the TTL is refused before anything is read."""
        with pytest.raises(UsageError):
            acquire(memory, holder="a", ttl=10, margin=10, clock=clock)


class TestReads:
    """How often the log is read until a lease is held."""

    @pytest.fixture
    def calls(self, memory: MemoryLog, monkeypatch: pytest.MonkeyPatch) -> list[str]:
        """What is asked of the log, in order."""
        told: list[str] = []

        def listen(name: str) -> None:
            act: Any = getattr(MemoryLog, name)

            def heard(self: MemoryLog, *args: Any, **named: Any) -> Any:
                told.append(name)
                return act(self, *args, **named)

            monkeypatch.setattr(MemoryLog, name, heard)

        for name in ("read", "append", "renew"):
            listen(name)
        return told

    def test_a_commit_just_made_is_as_good_as_a_heartbeat(
        self, memory: MemoryLog, clock: Any, calls: list[str]
    ) -> None:
        """A state that was read is not read again before the commit, nor is the log after it."""
        known = read_state(memory)
        calls.clear()
        acquire(memory, holder="a", clock=clock, known=known)
        assert calls == ["read", "append", "renew"]

    def test_a_known_state_that_is_old_is_read_again(
        self, memory: MemoryLog, clock: Any, calls: list[str]
    ) -> None:
        """A lease that was taken since is seen to be held."""
        known = read_state(memory)
        rewrite(memory, **OF_ANOTHER_HOST)
        calls.clear()
        with pytest.raises(LeaseHeld):
            acquire(memory, holder="a", clock=clock, known=known, wait=0)
        assert calls == ["read"]

    @pytest.mark.parametrize(("seconds", "looks"), [(19.9, False), (20.0, True)])
    @pytest.mark.parametrize("taken", [False, True])
    def test_a_commit_whose_reply_is_late_is_looked_for(
        self, memory: MemoryLog, clock: Any, monkeypatch: pytest.MonkeyPatch,
        calls: list[str], seconds: float, looks: bool, taken: bool,
    ) -> None:
        """After TTL less margin a challenger may be about to have the lease: no heartbeat is
        written before the log says whose it is."""
        append = MemoryLog.append

        def late(self: MemoryLog, *args: Any, **named: Any) -> int:
            version = append(self, *args, **named)
            monkeypatch.setattr(MemoryLog, "append", append)
            clock.sleep(seconds)
            if taken and looks:
                rewrite(memory, epoch=2, **OF_ANOTHER_HOST)
            calls.clear()
            return version

        monkeypatch.setattr(MemoryLog, "append", late)
        if taken and looks:
            with pytest.raises(LeaseLost):
                acquire(memory, holder="a", clock=clock)
            assert calls == ["read"]
        else:
            acquire(memory, holder="a", clock=clock)
            assert calls == (["read", "renew"] if looks else ["renew"])


class TestHeld:
    def test_message(self, memory: MemoryLog, clock: Any) -> None:
        """The error says holder, host, process, since when, and how to unlock."""
        rewrite(memory, **OF_ANOTHER_HOST)
        with pytest.raises(LeaseHeld) as caught:
            acquire(memory, holder="b", wait=0, clock=clock)
        assert str(caught.value) == (
            "CM0220: the lease 'migration' is held by 'far' (host elsewhere, process 7) since "
            "2027-01-15T08:00:00+00:00\n"
            "  remedy: wait for it to end; if that process has ended for good: "
            "catalog-migrate unlock --if-holder 'far'"
        )
        assert caught.value.data["holder"] == "far"
        assert caught.value.exit_code == 5
        assert clock.slept == []

    def test_waits(self, memory: MemoryLog, clock: Any) -> None:
        """A living holder is waited for exactly as long as asked, and the caller is told."""
        holder = acquire(memory, holder="a", clock=clock)
        for second in range(5, 60, 5):
            clock.at(100.0 + second, holder.ensure)
        told: list[float] = []
        with pytest.raises(LeaseHeld, match="waited 45 s"):
            acquire(
                memory.attach(), holder="b", wait=45, clock=clock,
                on_wait=lambda _, waited: told.append(waited),
            )
        assert clock.now == pytest.approx(145.0)
        assert told == [float(second) for second in range(45)]

    def test_given_back_while_waiting(self, memory: MemoryLog, clock: Any) -> None:
        """A released lease is taken at the next look, without the margin."""
        clock.at(107.0, acquire(memory, holder="a", clock=clock).release)
        lease = acquire(memory.attach(), holder="b", wait=60, clock=clock)
        assert (lease.epoch, clock.now) == (2, pytest.approx(107.0))

    def test_without_a_wait(self, memory: MemoryLog, clock: Any) -> None:
        """Without a given wait a holder that shows life is not waited for any longer."""
        holder = acquire(memory, holder="a", clock=clock)
        clock.at(112.0, holder.ensure)
        with pytest.raises(LeaseHeld):
            acquire(memory.attach(), holder="b", clock=clock)
        assert clock.now == pytest.approx(112.0)


class TestTakeOver:
    def test_silent_holder(self, memory: MemoryLog, clock: Any) -> None:
        """A holder silent for a whole TTL is taken over; its successor waits the margin."""
        acquire(memory, holder="a", clock=clock)
        lease = acquire(memory.attach(), holder="b", clock=clock)
        assert lease.epoch == 2
        assert row(memory).holder == "b"
        assert clock.now == pytest.approx(100 + 30 + 10)
        assert clock.slept[-1] == 10

    def test_heartbeat_starts_anew(self, memory: MemoryLog, clock: Any) -> None:
        """The TTL counts from the last heartbeat that the challenger saw."""
        holder = acquire(memory, holder="a", clock=clock)
        clock.at(115.0, holder.ensure)
        acquire(memory.attach(), holder="b", wait=600, clock=clock)
        assert clock.now == pytest.approx(115 + 30 + 10)

    def test_wall_clocks_do_not_matter(self, memory: MemoryLog, clock: Any) -> None:
        """A since far in the past or future neither shortens nor lengthens the wait."""
        rewrite(memory, **{**OF_ANOTHER_HOST, "since": "1999-01-01T00:00:00+00:00"})
        acquire(memory, holder="b", clock=clock)
        assert clock.now == pytest.approx(140.0)

    def test_proven_dead(
        self, memory: MemoryLog, clock: Any, dead_pid: tuple[int, str]
    ) -> None:
        """A holder that is proven dead is neither waited for, nor its margin."""
        rewrite(memory, **of_dead_process(dead_pid))
        memory.renew("migration", "1:x")
        lease = acquire(memory, holder="b", wait=0, clock=clock)
        assert (lease.epoch, clock.slept) == (2, [])

    def test_dead_before_it_could_act(
        self, memory: MemoryLog, clock: Any, dead_pid: tuple[int, str]
    ) -> None:
        """A dead process that never wrote a heartbeat was waiting for its own predecessor, which
        may still act: the margin stands."""
        rewrite(memory, epoch=5, **of_dead_process(dead_pid))
        memory.renew("migration", "4:x")
        assert acquire(memory, holder="b", wait=0, clock=clock).epoch == 6
        assert clock.slept == [10]

    def test_dead_before_it_could_act_and_alone(
        self, memory: MemoryLog, clock: Any, dead_pid: tuple[int, str]
    ) -> None:
        """One that died before its first heartbeat and had nobody before it is not waited for."""
        rewrite(memory, epoch=5, alone=True, **of_dead_process(dead_pid))
        memory.renew("migration", "4:x")
        fenced: list[int] = []
        lease = acquire(
            memory, holder="b", wait=0, clock=clock, fence=lambda each: fenced.append(each.epoch)
        )
        assert (lease.epoch, lease.settled, fenced, clock.slept) == (6, True, [], [])

    def test_only_one_wins(self, memory: MemoryLog, clock: Any) -> None:
        """Two challengers of one dead holder: the epoch rises once, the other finds it held."""
        rewrite(memory, **OF_ANOTHER_HOST)
        rival = memory.attach()

        def rival_first(call: str) -> None:
            if call == "append":
                memory.on_call = None
                rewrite(rival, epoch=2, holder="rival")

        def arm() -> None:
            memory.on_call = rival_first

        clock.at(129.0, arm)
        with pytest.raises(LeaseHeld, match="'rival'"):
            acquire(memory, holder="b", wait=32, clock=clock)
        assert row(memory).epoch == 2

    def test_fenced(self, memory: MemoryLog, clock: Any) -> None:
        """After a take-over the earlier holder can neither renew, nor commit, nor give back, and it
        acts on no state of its successor."""
        old = acquire(memory, holder="a", clock=clock)
        assert old.read_state().version == memory.version()
        rewrite(memory, epoch=2, holder="b")
        with pytest.raises(LeaseLost, match="epoch 1 was taken over: it is at epoch 2"):
            old.read_state()
        clock.sleep(11)
        with pytest.raises(LeaseLost, match="epoch 1 was taken over: it is at epoch 2"):
            old.ensure()

        def decide(_: State) -> Changes:
            changes = Changes()
            changes.put("operation", "o", OperationRecord(kind="k", state="s"))
            return changes

        with pytest.raises(LeaseLost):
            commit(memory, decide, epoch=old.epoch, kind="test")
        old.release()
        assert row(memory).holder == "b"
        assert dict(read_state(memory).operations) == {}


class TestEnsure:
    def test_young(self, memory: MemoryLog, clock: Any) -> None:
        """A young renewal needs no call at all."""
        lease = acquire(memory, holder="a", clock=clock)
        calls: list[str] = []
        memory.on_call = calls.append
        clock.sleep(9)
        lease.ensure()
        assert calls == []

    @pytest.mark.parametrize("ttl", [30.0, 600.0])
    def test_renews(self, memory: MemoryLog, clock: Any, ttl: float) -> None:
        """The heartbeat is renewed after ten seconds, once the epoch was looked at; a client that
        waits hears a holder so often however long the TTL is."""
        lease = acquire(memory, holder="a", clock=clock, ttl=ttl)
        before = memory.heartbeat("migration")
        calls: list[str] = []
        memory.on_call = calls.append
        for _ in range(10):
            clock.sleep(10)
            lease.ensure()
        assert memory.heartbeat("migration") != before
        assert calls == ["read", "read.done", "renew", "renew.done"] * 10

    def test_late(self, memory: MemoryLog, clock: Any) -> None:
        """A holder that was away, and that nobody replaced, makes sure by a commit and goes on."""
        lease = acquire(memory, holder="a", clock=clock)
        clock.sleep(500)
        with pytest.raises(LeaseLost, match=r"last renewed 500\.0 s ago"):
            lease.require_fresh()
        lease.ensure()
        lease.require_fresh()
        assert row(memory) == msgspec.structs.replace(row(memory), epoch=1, confirmed=1)

    def test_late_and_taken_over(self, memory: MemoryLog, clock: Any) -> None:
        """Late, and another process has the lease: there is nothing to be made sure of."""
        lease = acquire(memory, holder="a", clock=clock)
        clock.sleep(500)
        rewrite(memory, epoch=2, holder="b")
        with pytest.raises(LeaseLost, match="taken over"):
            lease.ensure()

    def test_late_while_a_challenger_takes(self, memory: MemoryLog, clock: Any) -> None:
        """A challenger that has watched for a TTL does not get a row that was made sure of."""
        lease = acquire(memory, holder="a", clock=clock)
        rewrite(memory, **OF_ANOTHER_HOST)
        woken: list[str] = []

        def wake(call: str) -> None:
            # right before the challenger's commit: it has decided by what it read earlier
            if call == "append" and not woken:
                woken.append(call)
                lease.ensure()

        seen_from = clock.monotonic()
        memory.on_call = wake
        taken = acquire(memory, holder="b", clock=clock, wait=200)
        assert woken
        assert (row(memory).holder, taken.epoch) == ("b", 2)
        assert clock.monotonic() - seen_from >= 2 * 30
        with pytest.raises(LeaseLost):
            lease.require_fresh()

    def test_slow_renewal(self, memory: MemoryLog, clock: Any) -> None:
        """A renewal counts from its beginning: one that took too long allows nothing."""
        lease = acquire(memory, holder="a", clock=clock)
        clock.sleep(15)
        memory.on_call = lambda call: clock.sleep(21) if call == "renew" else None
        with pytest.raises(LeaseLost, match=r"last renewed 21\.0 s ago"):
            lease.ensure()

    def test_heartbeat_thread(self, memory: MemoryLog, clock: Any) -> None:
        """Only real time wants a heartbeat thread."""
        assert acquire(memory, holder="a", clock=clock).wants_heartbeat is False
        real = acquire(memory, holder="a", clock=SystemClock(), key="cluster/c")
        assert real.wants_heartbeat is True

    def test_kept_through_a_long_act(self, memory: MemoryLog) -> None:
        """It is renewed however long one act is, so nobody takes it; at the end it is free."""
        lease = acquire(memory, holder="a", clock=SystemClock(), ttl=3, margin=1)
        with lease.keep(), pytest.raises(LeaseHeld):  # told by the next heartbeat
            acquire(memory.attach(), holder="b", clock=SystemClock(), ttl=3, margin=1)
        assert (row(memory).holder, row(memory).epoch) == ("", 1)
        assert not [each for each in threading.enumerate() if each.name == "lease heartbeat"]

    def test_kept_over_a_store_that_does_not_answer(
        self, memory: MemoryLog, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A renewal that fails ends no heartbeat: the next one is tried."""
        lease = acquire(memory, holder="a", clock=SystemClock(), ttl=3, margin=1)
        ensure, again = Lease.ensure, threading.Event()
        failures = iter((StoreFailure("slow down", remedy="wait"), OSError("cut off")))

        def failing(self: Lease) -> None:
            if error := next(failures, None):
                raise error
            ensure(self)
            again.set()

        monkeypatch.setattr(Lease, "ensure", failing)
        with lease.keep():
            assert again.wait(60)
        assert row(memory).holder == ""

    def test_kept_by_nobody_once_it_failed(self, memory: MemoryLog, clock: Any) -> None:
        """An error inside is raised, and the lease is free."""
        with pytest.raises(ValueError, match="x"), acquire(memory, holder="a", clock=clock).keep():
            raise ValueError("x")
        assert row(memory).holder == ""


class TestUnlock:
    def test_takes_away(self, memory: MemoryLog, clock: Any) -> None:
        """Unlocking frees the lease, fences the holder, and leaves the margin to the next."""
        old = acquire(memory, holder="a", clock=clock)
        unlock(memory, "a")
        assert (row(memory).holder, row(memory).epoch) == ("", 2)
        clock.sleep(10)
        with pytest.raises(LeaseLost):
            old.ensure()
        clock.slept.clear()
        assert acquire(memory, holder="b", clock=clock).epoch == 3
        assert clock.slept == [10]

    def test_dead(self, memory: MemoryLog, clock: Any, dead_pid: tuple[int, str]) -> None:
        """After unlocking a process that is proven dead nobody waits."""
        rewrite(memory, **of_dead_process(dead_pid))
        memory.renew("migration", "1:x")
        unlock(memory, "dead")
        acquire(memory, holder="b", clock=clock)
        assert clock.slept == []

    def test_other_holder(self, memory: MemoryLog, clock: Any) -> None:
        """Unlocking names its holder; a lease that somebody else holds by now stays."""
        acquire(memory, holder="a", clock=clock)
        with pytest.raises(LeaseHeld, match="held by 'a'"):
            unlock(memory, "b")
        assert row(memory).holder == "a"

    def test_free(self, memory: MemoryLog) -> None:
        """Unlocking a free lease does nothing."""
        version = memory.version()
        assert unlock(memory, "a").version == version


class TestProvenDead:
    def test_this_process(self) -> None:
        """The running process is not dead."""
        me = this_process()
        record = LeaseRecord(1, "a", me.host, me.boot_id, me.pid, me.started)
        assert proven_dead(record) is False

    def test_number_reused(self) -> None:
        """A number that belongs to a process started at another time proves the holder dead."""
        me = this_process()
        assert proven_dead(LeaseRecord(1, "a", me.host, me.boot_id, me.pid, "1")) is True

    def test_ended(self, dead_pid: tuple[int, str]) -> None:
        """A process that ended is proven dead."""
        assert proven_dead(LeaseRecord(epoch=1, **of_dead_process(dead_pid))) is True

    def test_killed_and_not_reaped(self) -> None:
        """A killed process that its parent has not waited for is proven dead."""
        code = ("import os, time; from catalog_migrate.catalog.process import this_process; "
                "print(this_process().started, flush=True); time.sleep(60)")
        child = subprocess.Popen(
            [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True
        )
        assert child.stdout is not None
        started = child.stdout.readline().strip()
        me = this_process()
        record = LeaseRecord(1, "a", me.host, me.boot_id, child.pid, started)
        try:
            assert proven_dead(record) is False
            child.kill()
            dead = threading.Event()
            for _ in range(500):
                if proven_dead(record):
                    break
                dead.wait(0.01)
            assert proven_dead(record) is True
        finally:
            child.kill()
            child.stdout.close()
            child.wait()

    @pytest.mark.parametrize(
        "field", [{"host": "x"}, {"boot_id": "x"}, {"boot_id": ""}, {"started": ""}, {"host": ""}]
    )
    def test_elsewhere(self, dead_pid: tuple[int, str], field: dict[str, str]) -> None:
        """Nothing is proven of another host, boot or process namespace, or without the facts."""
        values = {**of_dead_process(dead_pid), **field}
        assert proven_dead(LeaseRecord(epoch=1, **values)) is False
