"""What reading and editing a checkpoint can raise."""

from __future__ import annotations

from catalog_migrate.errors import CatalogMigrateError


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
    """The query of a checkpoint is active; its files may only be touched while it is stopped."""

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
