"""Heartbeats of leases: a small Delta table beside the log, one row a lease.

Renewals stay out of the log, so that a held lease is no version that a writer must race with.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from catalog_migrate.catalog.delta_files import CommitFiles
from catalog_migrate.errors import CatalogCorrupt, CatalogWriteRefused
from catalog_migrate.storage import Storage, plainly

if TYPE_CHECKING:
    from catalog_migrate.catalog.remote_files import RemoteCommits

_ATTEMPTS = 20
_TIDY_EVERY = 64
_CONFIGURATION = {
    "delta.enableExpiredLogCleanup": "true",
    "delta.logRetentionDuration": "interval 1 hours",
}
_RETENTION_HOURS = 1


class Renewals:
    """The newest heartbeat of each lease; every write replaces the table's one small file."""

    __slots__ = ("_directory", "_files", "_storage")

    def __init__(
        self, directory: Path | str, files: CommitFiles | RemoteCommits, storage: Storage
    ) -> None:
        self._directory = directory
        self._files = files
        self._storage = storage

    def heartbeat(self, key: str) -> str | None:
        """The newest heartbeat of a lease, None before the first."""
        if self._files.newest() is None:
            return None
        return self._read()[1].get(key)

    def renew(self, key: str, beat: str) -> None:
        """Write a heartbeat; renewals of other leases at the same time are kept.

        Raises :class:`CatalogWriteRefused` when the store does not take it.
        """
        from deltalake import CommitProperties, PostCommitHookProperties, write_deltalake
        from deltalake.exceptions import CommitFailedError, DeltaError

        refused: Exception = RuntimeError("other processes were faster every time")
        for _ in range(_ATTEMPTS):
            table, beats = (None, {}) if self._files.newest() is None else self._read()
            beats[key] = beat
            try:
                write_deltalake(
                    str(self._directory) if table is None else table,
                    _arrow(beats),
                    mode="error" if table is None else "overwrite",
                    configuration=_CONFIGURATION if table is None else None,
                    storage_options=self._options() if table is None else None,
                    commit_properties=CommitProperties(max_commit_retries=0),
                    post_commithook_properties=PostCommitHookProperties(
                        create_checkpoint=False, cleanup_expired_logs=False
                    ),
                )
            except CommitFailedError as error:
                refused = error
                continue
            except (DeltaError, OSError) as error:
                refused = error
                if table is None and self._files.newest() is not None:
                    continue  # another process created the table in this very moment
                break
            if table is not None and table.version() % _TIDY_EVERY == 0:
                self._tidy(table)
            return
        raise CatalogWriteRefused(
            f"the heartbeat of the lease {key!r} could not be written to {self._directory}: "
            f"{self._storage.hidden(plainly(refused))}",
            remedy="make the catalog directory writable, or free space on its disk",
        ) from self._storage.cause(refused)

    def _read(self) -> tuple[Any, dict[str, str]]:
        from deltalake import DeltaTable, QueryBuilder
        from deltalake.exceptions import DeltaError

        try:
            table = DeltaTable(str(self._directory), storage_options=self._options())
            query = QueryBuilder().register("beats", table)
            found = query.execute("SELECT key, beat FROM beats").read_all()
            pairs = zip(found.column(0).to_pylist(), found.column(1).to_pylist(), strict=True)
            return table, {str(key): str(beat) for key, beat in pairs}
        except (DeltaError, OSError) as error:
            raise CatalogCorrupt(
                f"the heartbeats in {self._directory} cannot be read:"
                f" {self._storage.hidden(plainly(error))}",
                remedy="when no process works on the catalog, delete this directory: "
                "it holds nothing else",
            ) from self._storage.cause(error)

    def _options(self) -> dict[str, str] | None:
        return self._storage.options() if self._storage else None

    def _tidy(self, table: Any) -> None:
        """Bound the size of the table's directory; whoever reads an old file looks again."""
        from deltalake.exceptions import DeltaError

        try:
            table.create_checkpoint()
            table.cleanup_metadata()
            table.vacuum(
                retention_hours=_RETENTION_HOURS, enforce_retention_duration=False, dry_run=False
            )
        except (DeltaError, OSError):
            return  # another process tidies, or the next round does


def _arrow(beats: dict[str, str]) -> Any:
    from arro3.core import Array, DataType, Table

    keys = sorted(beats)
    return Table.from_pydict(
        {
            "key": Array(keys, DataType.string()),
            "beat": Array([beats[key] for key in keys], DataType.string()),
        }
    )
