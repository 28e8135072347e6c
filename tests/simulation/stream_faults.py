"""Faults put into the streams on purpose: wrappers of ports, each of which breaks one promise."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import Any

from catalog_migrate.streams.checkpoint.directory import Checkpoint
from catalog_migrate.streams.ports import Ports
from catalog_migrate.streams.queries import QueryEngine, QuerySpec
from tests.simulation.streaming import PLAIN


def _same(port: Any) -> Any:
    return port


@dataclass(frozen=True, slots=True)
class StreamFault:
    """What becomes of the ports of each process, and of a runtime's engine."""

    ports: Callable[[Ports], Ports] = _same
    engine: Callable[[QueryEngine], QueryEngine] = _same


NO_FAULT = StreamFault()


class _Wrapped:
    """A port with some of its methods replaced."""

    def __init__(self, port: Any, **methods: Callable[..., Any]) -> None:
        self._port = port
        vars(self).update(methods)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._port, name)


def _tables(**methods: Callable[..., Any]) -> StreamFault:
    def wrapped(ports: Ports) -> Ports:
        return replace(ports, tables=_Wrapped(ports.tables, **methods))

    return StreamFault(wrapped)


class _Whole(Checkpoint):
    """One that never says that it is being restored."""

    @property
    def restoring(self) -> int | None:
        """Nothing is under way."""
        return None


_SEEN: set[str] = set()


class _WholeAtFirst(Ports):
    """A checkpoint is taken for whole when a process looks at it that nobody has looked at yet."""

    def checkpoint(self, path: Any) -> Checkpoint:
        """As the port's."""
        if str(path) in _SEEN:
            return super().checkpoint(path)
        _SEEN.add(str(path))
        return _Whole(path, files=self.files)


def _taken_for_whole(ports: Ports) -> Ports:
    return _WholeAtFirst(
        ports.resolve, ports.upstreams, ports.tables, ports.threads, ports.files,
        ports.cluster_log,
    )


def _told(ports: Ports) -> Ports:
    return replace(ports, resolve=lambda reference: PLAIN + reference)  # type: ignore[arg-type,return-value]


_NUMBERS = count()


def _appends_again(engine: QueryEngine) -> QueryEngine:
    def append_range(
        spec: QuerySpec, places: Sequence[tuple[str, int, int, int]], *, app: str, version: int
    ) -> tuple[str, ...]:
        return engine.append_range(spec, places, app=f"{app}/{next(_NUMBERS)}", version=version)

    return _Wrapped(engine, append_range=append_range)


FAULTS: Mapping[str, StreamFault] = {
    "a torn restore is taken over": StreamFault(_taken_for_whole),
    "nothing is barred": _tables(fence=lambda _: lambda old, new: None),
    "a secret is told": StreamFault(_told),
    "a chunk comes twice": StreamFault(engine=_appends_again),
    "nobody waits for sinks": _tables(has_rows=lambda *_, **__: False),
}
"""Every fault by name."""
