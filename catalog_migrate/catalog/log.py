"""The port that the durable log sits behind, a Delta table or, for simulations, memory.

And what is said of a file of the log that cannot be read: whether it is lost, and what to do.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol

from catalog_migrate.catalog.process import this_user
from catalog_migrate.catalog.state import State
from catalog_migrate.delta.log import Commit
from catalog_migrate.errors import CatalogCorrupt
from catalog_migrate.store.address import Storage, plainly

_RESTORE = "restore this file from a backup, or the whole catalog directory; nothing was written"
_NOT_ALLOWED = ("permission denied", "operation not permitted", "os error 13)", "os error 1)")
_FAILING = ("input/output error", "os error 5)")


class LogRow(NamedTuple):
    """One row of the log: the state is the sum of ``diff`` over equal (kind, key, value)."""

    kind: str
    key: str
    value: str
    diff: int


class CatalogLog(Protocol):
    """An append-only table of :class:`LogRow` with compare-and-set by version.

    Every method may raise :class:`CatalogCorrupt` (a file is missing or
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

    @property
    def storage(self) -> Storage:
        """The options that were given with it, for the object stores of its log and its rows."""
        ...

    def exists(self) -> bool:
        """Return whether a log is there. Raises NotACatalog when something else is."""
        ...

    def create(self, rows: Sequence[LogRow], *, commit_id: str) -> int:
        """Create the log with its first rows as version 0; CommitConflict if it exists."""
        ...

    def version(self) -> int:
        """Return the newest version; CatalogNotFound when there is no log."""
        ...

    def read(self) -> State:
        """Return the newest state, the same value until the next commit. Not one byte is written.

        Raises as :meth:`~catalog_migrate.catalog.state.State.from_rows`.
        """
        ...

    def read_at(self, version: int) -> State:
        """Return the state as of an earlier version; read-only."""
        ...

    def commits(self, *, upto: int | None = None) -> Iterator[Commit]:
        """Return every commit from version ``upto`` (default: the newest) down to 0, newest first.

        Each is read when it is asked for. CatalogCorrupt names the file of one that is missing
        anywhere, or that is not as commits are.
        """
        ...

    def keep_audit(self) -> int:
        """Copy what the audit table lacks of the commits' own words; how many rows that were.

        Repeatable and safe beside others: each commit is there once.
        """
        ...

    def keep_state(self) -> None:
        """Keep the newest state where the next process opens the log by it; never raises."""
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
        """Return the version above ``after`` that carries this commit id, or None."""
        ...

    def live_files(self) -> int:
        """Return how many data files a read opens now."""
        ...

    def compact(self, *, follows: int, commit_id: str) -> int:
        """Rewrite the state into one file by one compare-and-set at ``follows + 1``."""
        ...

    def renew(self, key: str, beat: str) -> None:
        """Put a lease's newest heartbeat into the side table (not a version of the log)."""
        ...

    def heartbeat(self, key: str) -> str | None:
        """Return the newest heartbeat of a lease, opaque, compared for equality only."""
        ...

    @property
    def longest_pause(self) -> float:
        """The longest pause, in seconds, of a caller that waits for the next version: on an object
        store each look at it is a request."""
        ...

    def wait(self, seconds: float) -> None:
        """Let other writers go first, after a lost race; at most so long."""
        ...


def corrupt_log_error(place: str, what: str, cause: Exception | None = None) -> CatalogCorrupt:
    """Return the error for a file of the catalog's log that is missing or not as commits are."""
    return CatalogCorrupt(
        f"the file {place} of the catalog's log {what}",
        remedy=remedy_unreadable(cause, _RESTORE), file=place,
    )


def is_withheld(error: BaseException | None) -> bool:
    """Whether the cause of a failed read is the system's, and says nothing of the log itself.

    A file of another user, a directory without its mode bits, a mount that does not answer: the
    log may be whole. Only what is not there, or holds something else, is lost.
    """
    if isinstance(error, FileNotFoundError | NotADirectoryError):
        return False
    if isinstance(error, OSError) and error.errno is not None:
        return True
    return error is not None and any(
        each in plainly(error).lower() for each in (*_NOT_ALLOWED, *_FAILING)
    )


def remedy_unreadable(error: BaseException | None, otherwise: str) -> str:
    """Return what to do about a file of the catalog that cannot be read because of ``error``.

    A backup put over a log that merely may not be read would forget what was committed since.
    """
    if not is_withheld(error):
        return otherwise
    if isinstance(error, PermissionError) or any(
        each in plainly(error or OSError()).lower() for each in _NOT_ALLOWED
    ):
        return (
            f"make it readable for this user ({this_user()}): the log may well be whole, do not "
            "restore or rebuild it; nothing was written"
        )
    return (
        "see that its disk or mount answers and try again: the log may well be whole; only if the "
        "file is lost restore it from a backup; nothing was written"
    )
