"""Threads that act on several items at once, kept as long as their owner."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

T = TypeVar("T")
R = TypeVar("R")

_inside = threading.local()


class Workers:
    """At most ``threads`` of them, started when they are first needed and kept until the end.

    Py4J gives each thread that speaks to Spark a connection and a thread of the JVM, so new ones
    for every group of statements cost as much as some of the statements. They end with
    :meth:`close`, or with the last reference.
    """

    __slots__ = ("_pool", "threads")

    def __init__(self, threads: int) -> None:
        self.threads = threads
        self._pool: ThreadPoolExecutor | None = None

    def each(self, items: Sequence[T], act: Callable[[T], R]) -> Iterator[tuple[T, R]]:
        """``act`` on every item, results in the order of the items.

        What an act raises is raised at its turn. However this ends, by an exception or because the
        caller wants no more, no act begins after it and none is still under way. Acts that ask for
        workers themselves have none beside theirs: waiting for each other, they might never end.
        """
        if self.threads <= 1 or len(items) <= 1 or getattr(_inside, "working", False):
            return zip(items, map(act, items), strict=True)
        return self._side_by_side(items, act)

    def _side_by_side(self, items: Sequence[T], act: Callable[[T], R]) -> Iterator[tuple[T, R]]:
        from concurrent.futures import wait

        pool = self._start()
        under_way = [pool.submit(act, item) for item in items]
        try:
            for item, future in zip(items, under_way, strict=True):
                yield item, future.result()
        finally:
            # one that was cancelled in the queue of a pool that is shut down never learns of it
            wait([future for future in under_way if not future.cancel()])

    def close(self) -> None:
        """Let the threads go; they are started again when they are needed again.

        An iteration that was interrupted between two results may still be there, held by its
        exception: what it has not begun never begins, what is under way is waited for.
        """
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.shutdown(cancel_futures=True)

    def _start(self) -> ThreadPoolExecutor:
        if self._pool is None:
            from concurrent.futures import ThreadPoolExecutor

            self._pool = ThreadPoolExecutor(self.threads, "worker", _begin)
        return self._pool


def _begin() -> None:
    _inside.working = True
