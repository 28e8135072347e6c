"""Heartbeats of leases: a small Delta table beside the log, one row a lease.

Renewals stay out of the log, so that a held lease is no version that a writer must race with.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from catalog_migrate.catalog.delta_files import CommitFiles
from catalog_migrate.catalog.side_table import ATTEMPTS, Lost, SideTable
from catalog_migrate.storage import Storage

if TYPE_CHECKING:
    from deltalake import DeltaTable

    from catalog_migrate.catalog.remote_files import RemoteCommits

_TIDY_EVERY = 64
_RETENTION_HOURS = 1


class Renewals(SideTable):
    """The newest heartbeat of each lease; every write replaces the table's one small file."""

    __slots__ = ()

    def __init__(
        self, directory: Path | str, files: CommitFiles | RemoteCommits, storage: Storage
    ) -> None:
        super().__init__(
            directory, files, storage, name="the table of lease heartbeats",
            configuration={
                "delta.enableExpiredLogCleanup": "true",
                "delta.logRetentionDuration": "interval 1 hours",
            },
            remedy_unreadable="when no process works on the catalog, delete this directory: "
            "it holds nothing else",
            remedy_unwritable="make the catalog directory writable, or free space on its disk",
        )

    def heartbeat(self, key: str) -> str | None:
        """The newest heartbeat of a lease, None before the first."""
        return self._beats(self.open()).get(key)

    def renew(self, key: str, beat: str) -> None:
        """Write a heartbeat; renewals of other leases at the same time are kept.

        Raises :class:`CatalogWriteRefused` when the store does not take it.
        """
        from deltalake import PostCommitHookProperties

        hooks = PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False)
        for _ in range(ATTEMPTS):
            table = self.open()
            beats = self._beats(table)
            beats[key] = beat
            try:
                self.write(table, _arrow(beats), mode="overwrite", post_commit=hooks)
            except Lost:
                continue
            if table is not None and table.version() % _TIDY_EVERY == 0:
                self._tidy(table)
            return
        raise self.refused(None)

    def _beats(self, table: DeltaTable | None) -> dict[str, str]:
        from deltalake import QueryBuilder
        from deltalake.exceptions import DeltaError

        if table is None:
            return {}
        try:
            query = QueryBuilder().register("beats", table)
            found = query.execute("SELECT key, beat FROM beats").read_all()
            pairs = zip(found.column(0).to_pylist(), found.column(1).to_pylist(), strict=True)
            return {str(key): str(beat) for key, beat in pairs}
        except (DeltaError, OSError) as error:
            raise self.unreadable(error) from self.cause(error)

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
