"""Several processes on one thread of time: who goes on, and when, is decided here and nowhere else.

Each task has a thread to itself while it lasts, but only the one that holds the turn runs. It gives
the turn away at calls that it announces, when it sleeps and when it ends. Time stands still but for
a tick at every announced call; when all wait, it jumps to the first that wakes. So a run is a
function of what tasks do and of the turns that a scenario asks for: told alike however often it is
told.
"""

from __future__ import annotations

import _thread
import os
import threading
from collections.abc import Callable
from typing import ClassVar

from tests.simulation.crashes import SimulatedCrash

LONGEST = 20_000
"""Announced calls of one run; more is a run that does not end."""


SHORTEST = 0.02
"""Seconds that a sleep lasts at least: looks that come more often show nothing else."""


class Endless(AssertionError):
    """The tasks go on for ever."""


class _Thread:
    """A thread that runs one task after another: to start one took as long as ten turns."""

    idle: ClassVar[list[_Thread]] = []

    __slots__ = ("_body", "_gate", "_task")

    def __init__(self) -> None:
        self._body: Callable[[Task, Callable[[], None]], None]
        self._task: Task
        self._gate = threading.Lock()
        self._gate.acquire()
        # a Thread waits until its thread has begun, and is waited for: two turns more
        _thread.start_new_thread(self._live, ())

    @classmethod
    def begin(cls, body: Callable[[Task, Callable[[], None]], None], task: Task) -> None:
        """Let ``body`` begin with a task, and with what it is to call before its last turn."""
        try:
            thread = cls.idle.pop()
        except IndexError:
            thread = cls()
        thread._body, thread._task = body, task
        thread._gate.release()

    def _live(self) -> None:
        while True:
            self._gate.acquire()
            body, task = self._body, self._task
            del self._body, self._task
            body(task, self._is_free)
            del body, task

    def _is_free(self) -> None:
        """The next task may be given to it: it is taken up as soon as this one has returned."""
        self.idle.append(self)


if hasattr(os, "register_at_fork"):  # the threads of a parent are not its child's
    os.register_at_fork(after_in_child=_Thread.idle.clear)


class Task:
    """One process: what it runs, when it may go on (seconds) and whether it has ended."""

    __slots__ = ("_gate", "_run", "_started", "ended", "name", "number", "wakes")

    def __init__(self, number: int, name: str, run: Callable[[], None], wakes: float) -> None:
        self.number = number
        self.name = name
        self.wakes = wakes
        self.ended = False
        self._run = run
        self._gate = threading.Lock()
        self._gate.acquire()
        self._started = False

    def resume(self, body: Callable[[Task, Callable[[], None]], None]) -> None:
        """Let it go on; the caller then waits, or has ended."""
        if not self._started:
            self._started = True
            _Thread.begin(body, self)
        else:
            self._gate.release()

    def wait(self) -> None:
        """Wait for :meth:`resume`."""
        self._gate.acquire()

    def run(self) -> None:
        """What the process does, to its end; once."""
        run = self._run
        del self._run  # it knows this task: a circle, which only the collector would find
        run()


class Scheduler:
    """Runs tasks until all have ended. ``now`` is in seconds, ``step`` counts announced calls."""

    def __init__(self, tick: float = 0.02) -> None:
        self.now = 0.0
        self.step = 0
        self.tick = tick
        self.failure: BaseException | None = None
        self.current: Task | None = None
        self._tasks: list[Task] = []
        self._home = threading.Lock()
        self._home.acquire()

    def add(self, name: str, run: Callable[[], None], *, at: float = 0.0) -> Task:
        """A task that begins at a time."""
        task = Task(len(self._tasks), name, run, at)
        self._tasks.append(task)
        return task

    def run(self) -> None:
        """Run all tasks to their ends; raises what :meth:`fail` was given."""
        first = self._next(-1)
        if first is None:
            return
        self.current = first
        first.resume(self._body)
        self._home.acquire()
        if self.failure is not None:
            raise self.failure

    # what the task that holds the turn may do ------------------------------------------------
    def advance(self) -> None:
        """One announced call: time ticks. SimulatedCrash once the run has failed."""
        if self.failure is not None:
            raise SimulatedCrash("the run has failed")
        self.step += 1
        self.now += self.tick
        if self.step > LONGEST:
            self.fail(Endless(f"no end after {LONGEST} calls"))

    def fail(self, failure: BaseException) -> None:
        """End the run: every task dies at its next call. Raises SimulatedCrash."""
        if self.failure is None:
            self.failure = failure
        raise SimulatedCrash("the run has failed")

    def pause(self, task: Task, seconds: float) -> None:
        """The task sleeps, others go on."""
        task.wakes = self.now + seconds
        self._give(task, self._next(task.number))

    def turn(self, task: Task, to: int) -> None:
        """Give the turn to the ``to``-th of the others that are ready; without one, keep it."""
        ready = [
            other for other in self._tasks
            if other is not task and not other.ended and other.wakes <= self.now
        ]
        if ready:
            self._give(task, ready[to % len(ready)])

    # ---------------------------------------------------------------------------------------
    def _give(self, task: Task, to: Task | None) -> None:
        if to is not None and to is not task:
            self.current = to
            to.resume(self._body)
            task.wait()
        if self.failure is not None:
            raise SimulatedCrash("the run has failed")

    def _next(self, after: int) -> Task | None:
        """The next that is ready, in the order of their numbers; time jumps when none is."""
        living = [task for task in self._tasks if not task.ended]
        if not living:
            return None
        ready = [task for task in living if task.wakes <= self.now]
        if not ready:
            soonest = min(living, key=lambda task: (task.wakes, task.number))
            self.now = soonest.wakes
            return soonest
        return next((task for task in ready if task.number > after), ready[0])

    def _body(self, task: Task, free: Callable[[], None]) -> None:
        try:
            if self.failure is None:
                task.run()
        except SimulatedCrash:
            pass
        except BaseException as error:  # noqa: BLE001 - it ends the run, and is raised by it
            self.failure = self.failure or error
        task.ended = True
        if self.failure is not None:
            for other in self._tasks:
                other.wakes = 0.0
        following = self._next(task.number)
        free()
        if following is None:
            self._home.release()
        else:
            self.current = following
            following.resume(self._body)


class ProcessClock:
    """A process's own clock: implements :class:`catalog_migrate.catalog.clock.Clock`.

    Its monotonic clock began at some time of its own and stands still while the machine is
    suspended; its wall clock is wrong by ``skew`` seconds. Both may be changed while it runs.
    ``stretch`` lets a sleep of up to a second last so many times longer than asked for, as on a
    busy machine: a challenger then needs few looks to see a lease expire.
    """

    simulated = True

    def __init__(
        self, scheduler: Scheduler, *, began: float = 0.0, skew: float = 0.0, stretch: float = 4.0
    ) -> None:
        self._scheduler = scheduler
        self._began = began
        self._stretch = stretch
        self.skew = skew
        self.lost = 0.0
        self.task: Task | None = None

    def monotonic(self) -> float:
        """Seconds since this machine began, less those that it was suspended for."""
        return self._scheduler.now - self.lost + self._began

    def wall(self) -> float:
        """What this machine takes for the time."""
        return 1_700_000_000.0 + self._scheduler.now + self.skew

    def sleep(self, seconds: float) -> None:
        """Let others go on meanwhile."""
        seconds = max(seconds, SHORTEST) * (self._stretch if seconds <= 1.0 else 1.0)
        if self.task is None:
            self._scheduler.now += seconds
        else:
            self._scheduler.pause(self.task, seconds)
