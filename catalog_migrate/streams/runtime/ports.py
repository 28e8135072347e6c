"""By what streams reach outside of the catalog; the simulation hands in its own of each."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Protocol

from catalog_migrate.streams.catalog.cluster_log import ClusterLog
from catalog_migrate.streams.catalog.query_spec import Resolve, resolve_secret
from catalog_migrate.streams.catalog.tables import DeltaTables, Tables
from catalog_migrate.streams.checkpoint.directory import Checkpoint
from catalog_migrate.streams.checkpoint.files import Files
from catalog_migrate.streams.upstreams.databases import Databases, ServerDatabases
from catalog_migrate.streams.upstreams.upstream import ServerUpstreams, Upstreams


class Event(Protocol):
    """A wish that several threads see, as :class:`threading.Event`."""

    def set(self) -> None:
        """Make it known."""

    def is_set(self) -> bool:
        """Return whether it is known."""

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for it, at most ``timeout`` seconds; whether it came."""


class Running(Protocol):
    """What goes on beside its caller, as :class:`threading.Thread`."""

    def is_alive(self) -> bool:
        """Return whether it goes on."""

    def join(self, timeout: float | None = None) -> None:
        """Wait for its end, at most ``timeout`` seconds."""


class Threads(Protocol):
    """Work beside the caller's."""

    def pool(self, workers: int, name: str) -> Executor:
        """Threads for independent acts, at most ``workers`` at once."""

    def run(self, act: Callable[[], None], name: str) -> Running:
        """Begin an act; it does not keep the process from ending."""

    def repeat(self, act: Callable[[], None], seconds: float, until: Event, name: str) -> None:
        """Begin to act every so many seconds until an event comes."""

    def event(self) -> Event:
        """One that has not come."""


class SystemThreads:
    """The port's implementation by threads of the operating system."""

    def pool(self, workers: int, name: str) -> Executor:
        """Threads that are named after what they do."""
        return ThreadPoolExecutor(workers, thread_name_prefix=name)

    def run(self, act: Callable[[], None], name: str) -> Running:
        """In a daemon thread."""
        thread = threading.Thread(target=act, name=name, daemon=True)
        thread.start()
        return thread

    def repeat(self, act: Callable[[], None], seconds: float, until: Event, name: str) -> None:
        """In a daemon thread."""

        def go_on() -> None:
            while not until.wait(seconds):
                act()

        self.run(go_on, name)

    def event(self) -> Event:
        """Return the one of threads."""
        return threading.Event()


@dataclass(frozen=True, slots=True)
class Ports:
    """Secrets, servers, databases that sources read, tables, threads, files of checkpoints, and the
    log of a cluster.

    ``cluster_log`` makes the log at a directory for a runtime's name.
    """

    resolve: Resolve = resolve_secret
    upstreams: Upstreams = field(default_factory=ServerUpstreams)
    tables: Tables = field(default_factory=DeltaTables)
    threads: Threads = field(default_factory=SystemThreads)
    files: Files = field(default_factory=Files)
    cluster_log: Callable[[str, str], ClusterLog] = ClusterLog
    databases: Databases = field(default_factory=ServerDatabases)

    def checkpoint(self, path: str | os.PathLike[str]) -> Checkpoint:
        """Return the checkpoint in a directory."""
        return Checkpoint(path, files=self.files)
