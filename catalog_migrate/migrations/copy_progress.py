"""Reports how far the copies of a migration are: rows, bytes, and how long the rest may take.

One statement of Spark copies a table, and says how many rows it has when it ends. Until then only
the bytes of the data files that it has written so far are known, which the new directory shows
without asking Spark.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

from msgspec.structs import replace

from catalog_migrate.errors import CatalogMigrateError
from catalog_migrate.migrations.copy_rows import copy_bulk
from catalog_migrate.migrations.execution_context import ExecutionContext, NewShard
from catalog_migrate.model.progress import Progress
from catalog_migrate.model.sizes import TableSize

PHASE = "copy rows"
EVERY = 2.0
"""Seconds between two looks at what is being written."""


class CopyProgress:
    """The figures of copies side by side; where a table's size is unknown there are no totals.

    ``directories`` are to be made, for these tables and others.
    """

    def __init__(
        self, work: ExecutionContext, shards: Sequence[NewShard], directories: int = 0
    ) -> None:
        self._work = work
        self._created, self._directories = 0, directories
        self._reported = Progress(PHASE, 0, len(shards))
        self._total: TableSize | None = None
        sizes = [shard.size for shard in shards]
        known = [size for size in sizes if size is not None]
        if len(known) == len(sizes):
            self._total = TableSize(sum(s.rows for s in known), sum(s.bytes for s in known))
        self._began = work.clock.monotonic()
        self._rows = self._bytes = 0
        self._written: dict[str, int] = {}
        """Bytes so far of each table that is being copied, by its new path."""
        self._running: dict[str, NewShard] = {}
        self._lock = threading.Lock()

    def report_created(self, shard: NewShard) -> None:
        """Report that a directory is there; from any thread."""
        with self._lock:
            self._created += 1
            self._work.on_progress(
                Progress("build", self._created, self._directories, str(shard))
            )

    def copy(self, shard: NewShard) -> NewShard:
        """:func:`copy_bulk`, counted."""
        with self._lock:
            self._running[shard.path] = shard
        rows = size = 0
        try:
            copied = copy_bulk(self._work, shard)
            rows, size = copied.rows, 0 if shard.size is None else shard.size.bytes
        finally:
            with self._lock:  # at once, or a look in between would count its bytes twice
                self._rows += rows
                self._bytes += size
                del self._running[shard.path]
                self._written.pop(shard.path, None)
        return copied

    def report(self, progress: Progress) -> None:
        """Pass on what the caller reports; of copies with the figures of all tables."""
        with self._lock:
            if progress.phase == PHASE:
                self._reported = progress
                progress = self._with_figures(progress)
            self._work.on_progress(progress)

    @contextmanager
    def watch(self) -> Iterator[None]:
        """Report every two seconds as well, by a thread; not in simulated time."""
        lease = self._work.lease
        if not self._reported.total or lease is None or not lease.wants_heartbeat:
            yield
            return
        over = threading.Event()
        watcher = threading.Thread(target=self._watch, args=(over,), name="copies", daemon=True)
        watcher.start()
        try:
            yield
        finally:
            over.set()
            watcher.join()

    def _watch(self, over: threading.Event) -> None:
        # a caller that can take no more reports learns that from its own next one
        with suppress(Exception):
            while not over.wait(EVERY):
                self.look(over)

    def look(self, over: threading.Event) -> None:
        """Report what is written by now, unless it is over meanwhile."""
        for path in list(self._running):
            with suppress(CatalogMigrateError, OSError):
                written = self._work.engine.bytes_written(self._work.absolute(path))
                with self._lock:
                    if path in self._running:
                        self._written[path] = written
        with self._lock:
            running = list(self._running.values())
            if running and not over.is_set():
                named = replace(self._reported, name=str(running[0]))
                self._work.on_progress(self._with_figures(named))

    def _with_figures(self, progress: Progress) -> Progress:
        copied = self._bytes + sum(
            min(self._written.get(path, 0), shard.size.bytes)
            for path, shard in self._running.items() if shard.size is not None
        )
        if self._total is None:
            return replace(progress, rows=self._rows)
        seconds = None
        if copied:
            elapsed = self._work.clock.monotonic() - self._began
            left = max(self._total.bytes - copied, 0)
            seconds = round(elapsed * left / copied, 1)
        return replace(
            progress, rows=self._rows, total_rows=self._total.rows, bytes=copied,
            total_bytes=self._total.bytes, seconds_left=seconds,
        )
