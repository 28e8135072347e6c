"""The port that the durable log sits behind; a Delta table or, for simulations, memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol

from catalog_migrate.catalog.state import LogSnapshot, State
from catalog_migrate.delta.commits import Commit


class LogRow(NamedTuple):
    """One row of the log: the state is the sum of ``diff`` over equal (kind, key, value)."""

    kind: str
    key: str
    value: str
    diff: int


class CatalogLog(Protocol):
    """An append-only table of :class:`LogRow` with compare-and-set by version.

    Every method may raise :class:`~catalog_migrate.errors.CatalogCorrupt` (a file is missing or
    truncated) or :class:`~catalog_migrate.errors.CatalogWriteRefused`.
    """

    @property
    def uri(self) -> str:
        """Where the log is, for messages."""
        ...

    @property
    def home(self) -> str | None:
        """The place by which a copy of the catalog is told from it; None where none is told."""
        ...

    def exists(self) -> bool:
        """Whether a log is there. Raises NotACatalog when something else is."""
        ...

    def create(self, rows: Sequence[LogRow], *, commit_id: str) -> int:
        """Create the log with its first rows as version 0; CommitConflict if it exists."""
        ...

    def version(self) -> int:
        """The newest version; CatalogNotFound when there is no log."""
        ...

    def read(self) -> LogSnapshot:
        """The newest state. Read-only: not one byte is written."""
        ...

    def read_at(self, version: int) -> LogSnapshot:
        """The state as of an earlier version; read-only."""
        ...

    def commits(self, *, upto: int | None = None) -> Iterator[Commit]:
        """Every commit from version ``upto`` (default: the newest) down to 0, newest first.

        Each is read when it is asked for. CatalogCorrupt names the file of one that is missing
        anywhere, or that is not as commits are.
        """
        ...

    def keep_audit(self) -> int:
        """Copy what the audit table lacks of the commits' own words; how many rows that were.

        Repeatable and safe beside others: each commit is there once.
        """
        ...

    def append(
        self, rows: Sequence[LogRow], *, follows: int, commit_id: str,
        metadata: Mapping[str, str], state: State | None = None,
    ) -> int:
        """Commit exactly version ``follows + 1`` and return it.

        ``state`` is what the rows make of version ``follows``, where the caller knows it: kept for
        the next :meth:`read`, so that it decodes nothing.

        Raises CommitConflict when that version exists already with another commit id. After any
        other error the log is searched for ``commit_id`` before anything is concluded: found means
        success; CommitOutcomeUnknown when it cannot be told.
        """
        ...

    def find_commit(self, commit_id: str, *, after: int) -> int | None:
        """The version above ``after`` that carries this commit id, or None."""
        ...

    def live_files(self) -> int:
        """How many data files a read opens now."""
        ...

    def compact(self, *, follows: int, commit_id: str) -> int:
        """Rewrite the state into one file by one compare-and-set at ``follows + 1``."""
        ...

    def renew(self, key: str, beat: str) -> None:
        """Put a lease's newest heartbeat into the side table (not a version of the log)."""
        ...

    def heartbeat(self, key: str) -> str | None:
        """The newest heartbeat of a lease, opaque, compared for equality only."""
        ...

    def wait(self, seconds: float) -> None:
        """Let other writers go first, after a lost race; at most so long."""
        ...
