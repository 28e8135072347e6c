"""The audit table: the history of commits as a Delta table of its own, for Spark SQL.

Append-only, and only a copy: it is written from the commits' own words (``catalog/history.py``),
so a process killed between a commit and its audit row loses nothing, the next one copies it. How
far the copy goes is a Delta transaction of the same commit that appends the rows, so that each
commit of the log is there exactly once whoever copies.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from catalog_migrate.catalog.delta_files import CommitFiles
from catalog_migrate.catalog.history import Entry, entries
from catalog_migrate.catalog.side_table import ATTEMPTS, Lost, SideTable
from catalog_migrate.storage import Storage

if TYPE_CHECKING:
    from catalog_migrate.catalog.log import CatalogLog
    from catalog_migrate.catalog.remote_files import RemoteCommits

APPLICATION = "catalog_migrate/audit"
"""Delta application id; its transaction version is the log's version that is copied last."""

TIDIED = 128
"""After so many versions its files are put together: each start that commits adds a small one."""

KEPT_HOURS = 7 * 24
"""How long files that were put together stay for those who read them."""


class AuditTable(SideTable):
    """The audit table in one directory; made when it is first written."""

    __slots__ = ()

    def __init__(
        self, directory: Path | str, files: CommitFiles | RemoteCommits, storage: Storage
    ) -> None:
        super().__init__(
            directory, files, storage, name="the audit table",
            configuration={
                "delta.appendOnly": "true",
                "delta.enableExpiredLogCleanup": "false",
                "delta.logRetentionDuration": "interval 36500 days",
            },
            remedy_unreadable="delete this directory: the next start writes it again from the log",
            remedy_unwritable="make the catalog directory writable, or free space on its disk; the"
            " history is whole without it, and the next start copies what is missing",
        )

    def catch_up(self, log: CatalogLog) -> int:
        """Append every commit of ``log`` that is not there yet; returns how many.

        Raises :class:`CatalogWriteRefused` when the store does not take it and
        :class:`CatalogCorrupt` for a log or an audit that cannot be read.
        """
        from deltalake import Transaction

        for _ in range(ATTEMPTS):
            table = self.open()
            done = -1 if table is None else table.transaction_version(APPLICATION)
            done = -1 if done is None else done
            newest = log.version()
            if newest <= done:
                return 0
            fresh = list(entries(log, down_to=done + 1, upto=newest))[::-1]
            try:
                self.write(
                    table, _arrow(fresh), mode="append",
                    transaction=Transaction(APPLICATION, fresh[-1].version),
                )
            except Lost:  # another process copies too: look how far it came
                continue
            if table is not None and table.version() % TIDIED == TIDIED - 1:
                self._tidy()
            return len(fresh)
        raise self.refused(None)

    def _tidy(self) -> None:
        """Put the small files of many commits together, and delete those put together long ago."""
        from deltalake.exceptions import DeltaError

        table = self.open()
        if table is None:
            return
        try:
            table.optimize.compact()
            table.vacuum(retention_hours=KEPT_HOURS, dry_run=False)
        except (DeltaError, OSError):
            return  # as whole as before; the next time comes


def _arrow(rows: Sequence[Entry]) -> Any:
    from arro3.core import Array, DataType, Table

    text, number = DataType.string(), DataType.int64()
    moments = Array([_microseconds(row.at) for row in rows], number)
    return Table.from_pydict(
        {
            "version": Array([row.version for row in rows], number),
            "commit_id": Array([row.commit_id for row in rows], text),
            "at": moments.cast(DataType.timestamp("us", tz="UTC")),
            "verb": Array([row.verb for row in rows], text),
            "who": Array([row.who for row in rows], text),
            "host": Array([row.host for row in rows], text),
            "serial_before": Array([row.serial_before for row in rows], number),
            "serial_after": Array([row.serial_after for row in rows], number),
            "release": Array([row.release for row in rows], text),
            "epoch": Array([row.epoch for row in rows], number),
            "reason": Array([row.reason for row in rows], text),
        }
    )


def _microseconds(at: str | None) -> int | None:
    return None if at is None else round(datetime.fromisoformat(at).timestamp() * 1_000_000)
