"""Queries that start: so many at once, the others in their order.

A start is work for the driver (a plan, a process of Python for the offsets of a source on
PostgreSQL, which Spark gives ten seconds to come up), and goes on until the query's first progress.
Started all together, the queries of a large cluster keep each other from it. Where one was late all
the same, fewer start at once until others have come up: half as many, and one more with each.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field

from catalog_migrate.catalog.clock import Clock
from catalog_migrate.streams.catalog.queries import RunningQuery

TURN = 300.0
"""Seconds after which a start that is still under way counts no more: it copies the rows of a
snapshot, or its first batch takes long, and others need not wait for that. Not sooner: what is slow
because the machine is loaded would let more in, and load it more."""

WORKERS = 64
"""Threads for starts under way, with those that count no more."""

_A_CORE = 2
"""Starts at once for each core: about half of one is waiting."""

Start = Callable[[bool], RunningQuery]
"""Starts a query; whether it had to wait for its turn."""


def starts_by_cores() -> int:
    """Return how many queries this machine starts at once."""
    count = getattr(os, "sched_getaffinity", None)
    return _A_CORE * (len(count(0)) if count is not None else os.cpu_count() or 1)


@dataclass(slots=True)
class Starts:
    """Carries out starts of queries in the order in which they come, at most ``limit`` at once.

    ``outcome`` says of an item id how the start that was begun is over: True for a query that has
    made progress, False for one that has ended, None while it is under way. Methods are called from
    one thread only.
    """

    limit: int
    clock: Clock
    make_pool: Callable[[], Executor]
    outcome: Callable[[str], bool | None]
    _waiting: deque[tuple[str, Start, Future[RunningQuery]]] = field(default_factory=deque)
    _turns: dict[str, float] = field(default_factory=dict)
    _pool: Executor | None = None
    _allowed: int = field(init=False)

    def __post_init__(self) -> None:
        self._allowed = self.limit

    def submit(self, item_id: str, start: Start) -> Future[RunningQuery]:
        """Start a query now or when its turn comes; a future that can be cancelled until then."""
        future: Future[RunningQuery] = Future()
        self._free()
        if not self._waiting and len(self._turns) < self._allowed:
            self._begin(item_id, start, future, late=False)
        else:
            self._waiting.append((item_id, start, future))
        return future

    def slow_down(self) -> None:
        """Start fewer at once: the machine was too loaded for one of them."""
        self._allowed = max(1, self._allowed // 2)

    def admit(self) -> None:
        """Begin those whose turn has come."""
        if not self._waiting:
            return
        self._free()
        while self._waiting and len(self._turns) < self._allowed:
            item_id, start, future = self._waiting.popleft()
            self._begin(item_id, start, future, late=True)

    def close(self) -> None:
        """Wait for what is under way; nothing may wait for its turn any more."""
        if self._pool is not None:
            self._pool.shutdown(wait=True)

    def _free(self) -> None:
        now = self.clock.monotonic()
        for item_id, until in list(self._turns.items()):
            outcome = self.outcome(item_id)
            if outcome:
                self._allowed = min(self.limit, self._allowed + 1)
            if outcome is not None or now >= until:
                del self._turns[item_id]

    def _begin(
        self, item_id: str, start: Start, future: Future[RunningQuery], *, late: bool
    ) -> None:
        if not future.set_running_or_notify_cancel():
            return
        self._turns[item_id] = self.clock.monotonic() + TURN
        if self._pool is None:
            self._pool = self.make_pool()
        self._pool.submit(_carry_out, start, future, late)


def _carry_out(start: Start, future: Future[RunningQuery], late: bool) -> None:
    try:
        query = start(late)
    except BaseException as error:  # noqa: BLE001 - raised where the start is waited for
        future.set_exception(error)
    else:
        future.set_result(query)
