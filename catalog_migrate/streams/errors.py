"""What statements on streams, the runtime, unsafe operations and checkpoints can raise."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence

from catalog_migrate.errors import CatalogMigrateError


def key_hash(key: bytes | Sequence[str | None]) -> str:
    """How an error names the key of a row: the SHA-256 of its bytes, or of its text; of several
    columns that of a JSON array."""
    if not isinstance(key, bytes):
        key = (key[0] if len(key) == 1 and key[0] is not None else json.dumps(list(key))).encode()
    return hashlib.sha256(key).hexdigest()[:16]


class ShardGone(CatalogMigrateError, FileNotFoundError):
    """The directory of a table that rows were written to is not there any more."""

    code = "CM0805"

    def __str__(self) -> str:
        return CatalogMigrateError.__str__(self)


class LedgerMismatch(CatalogMigrateError, RuntimeError):
    """A server's ledger and a sink's checkpoint disagree: another database, or a lagging one."""

    code = "CM0745"


class RowRefused(CatalogMigrateError, ValueError):
    """The destination of a sink does not take a row; ``table`` or ``topic``, and where they are
    known ``column``, ``key`` (a hash), and the row's own ``partition`` and ``offset``."""

    code = "CM0747"


class QueryFenced(CatalogMigrateError, RuntimeError):
    """Another runtime took a query over and keeps this one from writing."""

    code = "CM0746"
    exit_code = 5


class UnknownItem(CatalogMigrateError, KeyError):
    """A statement names an object that is not there, or one of another kind."""

    code = "CM0750"

    def __str__(self) -> str:
        return CatalogMigrateError.__str__(self)


class RefusedStatement(CatalogMigrateError, ValueError):
    """A statement that is well written and cannot be carried out on this catalog."""

    code = "CM0751"


class UpstreamChanged(CatalogMigrateError, RuntimeError):
    """The cluster or topic that positions belong to is not the one that is there now."""

    code = "CM0752"


class ValidationFailed(CatalogMigrateError, ValueError):
    """Connection or dependents do not work with the new options; nothing was committed."""

    code = "CM0753"

    def __init__(
        self, message: str, *, verdicts: Sequence[str] = (), remedy: str | None = None
    ) -> None:
        super().__init__(message, remedy=remedy, verdicts=tuple(verdicts))
        self.verdicts = tuple(verdicts)

    def __str__(self) -> str:
        return "\n".join([super().__str__(), *(f"  {verdict}" for verdict in self.verdicts)])


class AlterSetBack(CatalogMigrateError, RuntimeError):
    """The queries did not become healthy on the new definition; the old one is back and works."""

    code = "CM0754"


class AlterFailed(CatalogMigrateError, RuntimeError):
    """Neither the new nor the old definition works now; the old one is committed."""

    code = "CM0755"
    exit_code = 6


class AlterUnfinished(CatalogMigrateError, RuntimeError):
    """An ALTER without an end that is known to be good: its new definition is in force and not all
    queries were healthy on it, or nobody carries it on until the next runtime starts."""

    code = "CM0758"
    exit_code = 6


class PositionLost(CatalogMigrateError, RuntimeError):
    """A sink stands in a shard from which no committed shard leads on."""

    code = "CM0756"


class NotFencedOut(CatalogMigrateError, RuntimeError):
    """A query is held: an earlier runtime, not proven dead, cannot be kept out of its destination.

    It is tried again until it works; no other query waits for it.
    """

    code = "CM0757"


class UnsafeRefused(CatalogMigrateError, PermissionError):
    """An unsafe operation is not allowed, or something that it needs was not said: all of it."""

    code = "CM0760"
    exit_code = 3

    def __init__(
        self, message: str, *, missing: Sequence[str] = (), remedy: str | None = None
    ) -> None:
        super().__init__(message, remedy=remedy, missing=tuple(missing))
        self.missing = tuple(missing)

    def __str__(self) -> str:
        return "\n".join([super().__str__(), *(f"  missing: {each}" for each in self.missing)])


class EndpointFailed(CatalogMigrateError, OSError):
    """The address at which a runtime is to answer over HTTP cannot be bound."""

    code = "CM0603"

    def __str__(self) -> str:
        return CatalogMigrateError.__str__(self)


class UnsafeBlocked(CatalogMigrateError, ValueError):
    """An unsafe operation whose targets or properties do not fit what is there; nothing changed."""

    code = "CM0761"
    exit_code = 3

    def __init__(
        self, message: str, *, problems: Sequence[str] = (), remedy: str | None = None,
        operation: str | None = None,
    ) -> None:
        super().__init__(message, remedy=remedy, problems=tuple(problems), operation=operation)
        self.problems = tuple(problems)

    def __str__(self) -> str:
        return "\n".join([super().__str__(), *(f"  {each}" for each in self.problems)])


class SourceDiffers(CatalogMigrateError, RuntimeError):
    """A mirror is not what its tables are upstream; ``differences`` has a line for each table."""

    code = "CM0788"
    exit_code = 8

    def __init__(
        self, message: str, *, differences: Sequence[str] = (), remedy: str | None = None
    ) -> None:
        super().__init__(message, remedy=remedy, differences=tuple(differences))
        self.differences = tuple(differences)

    def __str__(self) -> str:
        return "\n".join([super().__str__(), *(f"  {each}" for each in self.differences)])


class SourceNotCompared(CatalogMigrateError, RuntimeError):
    """Whether a mirror is what its tables are upstream could not be told, or not of all rows."""

    code = "CM0789"


# -- checkpoints -----------------------------------------------------------------------------------


class CheckpointCorrupt(CatalogMigrateError, ValueError):
    """A file of a streaming checkpoint that Spark did not write so; ``file`` and ``found``."""

    code = "CM0730"

    def __init__(
        self, message: str, *, file: str = "", found: str = "", remedy: str | None = None
    ) -> None:
        super().__init__(message, remedy=remedy, file=file, found=found)
        self.file = file
        self.found = found


class UnsupportedCheckpoint(CatalogMigrateError, ValueError):
    """A checkpoint log of a version that this tool does not know; nothing was changed."""

    code = "CM0731"


class ForeignCheckpoint(CatalogMigrateError, ValueError):
    """A checkpoint directory that belongs to another item, or to nobody we know."""

    code = "CM0732"


class QueryRunning(CatalogMigrateError, RuntimeError):
    """Not raised any more, and kept for who names it: the runtime stops a query before its
    checkpoint is touched."""

    code = "CM0733"


class UnsettledCheckpoint(CatalogMigrateError, RuntimeError):
    """A checkpoint with an uncommitted entry, or broken; it must be settled before an edit."""

    code = "CM0734"


class InvalidPosition(CatalogMigrateError, ValueError):
    """A stream position that is malformed, no number, or outside what the source holds."""

    code = "CM0735"


class EditConflict(CatalogMigrateError, RuntimeError):
    """A checkpoint holds neither the lines before a committed edit nor those after it, or another
    process has written a file of it since that was read; nothing was written over it."""

    code = "CM0736"


class BehindSink(CatalogMigrateError, RuntimeError):
    """A checkpoint's newest batch is, or would be, below what a sink has: rows would be lost."""

    code = "CM0737"


class SnapshotNotFound(CatalogMigrateError, LookupError):
    """No snapshot of a checkpoint has this number."""

    code = "CM0738"


class SourcesChanged(CatalogMigrateError, ValueError):
    """A query's sources are others, or in another order, than those of its checkpoint."""

    code = "CM0739"
