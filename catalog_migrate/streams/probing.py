"""Probes of restarted queries that are under way while the queries start."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType

from catalog_migrate.catalog.state import State
from catalog_migrate.streams.probes import Verdict
from catalog_migrate.streams.upstream import Upstream

Answer = tuple[Mapping[str, Verdict], Mapping[str, Upstream]]
"""By item id: what is wrong with a query's access, or that all is well; and whom it reaches."""


class Probing:
    """Asks for all queries of an operation at once, in a thread of its own.

    ``probe`` gives an :data:`Answer` for the items of a state; what it raises is raised where the
    answer is read. A context manager, whose end waits for the probe that is under way.
    """

    __slots__ = ("_asked", "_first", "_items", "_pool", "_probe", "_verdicts")

    def __init__(self, probe: Callable[[State, Sequence[str]], Answer]) -> None:
        self._probe = probe
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="probe")
        self._items: frozenset[str] | None = None
        self._first: Future[Answer] | None = None
        self._asked: Future[Answer] | None = None
        self._verdicts: dict[str, Verdict] = {}

    def __enter__(self) -> Probing:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._pool.shutdown(wait=True)

    def ask(self, state: State, item_ids: Collection[str]) -> None:
        """Begin with these items, unless that was begun already."""
        if self._items != frozenset(item_ids):
            self._items = frozenset(item_ids)
            self._first = self._asked = self._pool.submit(self._probe, state, sorted(item_ids))
            self._verdicts.clear()

    def ask_again(self, state: State, item_ids: Collection[str]) -> bool:
        """Begin with some of the items once more; False while a probe is under way."""
        if self._asked is not None and not self._asked.done():
            return False
        self._asked = self._pool.submit(self._probe, state, sorted(item_ids))
        return True

    def verdicts(self) -> Mapping[str, Verdict]:
        """The newest answers that are there."""
        if self._asked is not None and self._asked.done():
            self._verdicts.update(self._asked.result()[0])
        return self._verdicts

    def upstreams(self) -> Mapping[str, Upstream]:
        """Whom each query reaches; waits for the first answer."""
        return {} if self._first is None else self._first.result()[1]
