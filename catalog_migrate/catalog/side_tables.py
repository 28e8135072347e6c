"""Small Delta tables beside the log: heartbeats of leases, and the audit.

Each is made when it is first written, and never waited for.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from catalog_migrate.catalog.history import Entry, entries
from catalog_migrate.catalog.log import corrupt_log_error
from catalog_migrate.delta.commit import Overtaken, commit_onto_newest
from catalog_migrate.delta.log import commit_log
from catalog_migrate.errors import CatalogCorrupt, CatalogWriteRefused
from catalog_migrate.store.address import Storage, is_remote, plainly

if TYPE_CHECKING:
    from deltalake import DeltaTable, PostCommitHookProperties, Transaction

    from catalog_migrate.catalog.log import CatalogLog

APPLICATION = "catalog_migrate/audit"
OPERATIONS = "catalog_migrate/operations_log"
"""Delta application ids; their transaction version is the log's version that is copied last."""

SCANNED = 64
"""So many commits without an operation are looked at again before that is put on record."""

TIDIED = 128
"""After so many versions its files are put together: each start that commits adds a small one."""

KEPT_HOURS = 7 * 24
"""How long files that were put together stay for those who read them."""

_TIDY_EVERY = 64
_RETENTION_HOURS = 1


class SideTable:
    """One table at an address; each kind says its name, its properties, and what to do for it."""

    name: ClassVar[str]
    configuration: ClassVar[Mapping[str, str]]
    """The table's properties, given when it is made."""
    unreadable_remedy: ClassVar[str]
    unwritable_remedy: ClassVar[str]

    def __init__(self, address: str, storage: Storage) -> None:
        self._address = address
        self._storage = storage
        self._commits = commit_log(address, storage, corrupt_log_error)

    def exists(self) -> bool:
        """Return whether anything was ever written."""
        return self._commits.newest() is not None

    def open(self) -> DeltaTable | None:
        """The table as it is now, None before the first write; CatalogCorrupt if unreadable."""
        from deltalake.exceptions import DeltaError

        from catalog_migrate.delta.table import load_table

        if not self.exists():
            return None
        try:
            return load_table(self._address, self._storage)
        except (DeltaError, OSError) as error:
            raise self.unreadable(error) from self._storage.cause(error)

    def write(
        self, table: DeltaTable | None, rows: Any, *, mode: Literal["append", "overwrite"],
        transaction: Transaction | None = None, post_commit: PostCommitHookProperties | None = None,
    ) -> None:
        """One commit onto ``table`` just as it was opened (None: it is made).

        ``rows`` is an Arrow table. Raises :class:`Overtaken` when another process was faster, and
        CatalogWriteRefused when the store does not take it.
        """
        from deltalake.exceptions import CommitFailedError, DeltaError

        from catalog_migrate.delta.table import write_rows

        try:
            write_rows(
                self._address if table is None else table, rows, mode=mode, storage=self._storage,
                configuration=self.configuration, transaction=transaction, hooks=post_commit,
            )
        except CommitFailedError as error:
            raise Overtaken from error
        except (DeltaError, OSError) as error:
            if table is None and self.exists():
                raise Overtaken from error  # another process created it in this very moment
            raise self.write_refused(error) from self._storage.cause(error)

    def unreadable(self, error: Exception) -> CatalogCorrupt:
        """Return what a reader raises when the table, or its rows, cannot be read."""
        return CatalogCorrupt(
            f"{self.name} {self._address} cannot be read: "
            f"{self._storage.hidden(plainly(error))}",
            remedy=self.unreadable_remedy, file=self._address,
        )

    def write_refused(self, error: Exception | None) -> CatalogWriteRefused:
        """What a writer raises when it gives up; ``error`` None: others were always faster."""
        return CatalogWriteRefused(
            f"{self.name} {self._address} could not be written: "
            + ("other processes were faster every time" if error is None
               else self._storage.hidden(plainly(error))),
            remedy=self.unwritable_remedy,
        )

    def cause(self, error: BaseException) -> Exception:
        """Return what may be chained to an error of ours without telling storage options."""
        return self._storage.cause(error)


class Renewals(SideTable):
    """The newest heartbeat of each lease; every write replaces the table's one small file.

    Renewals stay out of the log, so that a held lease is no version that a writer must race with.
    """

    name = "the table of lease heartbeats"
    configuration: ClassVar[Mapping[str, str]] = {
        "delta.enableExpiredLogCleanup": "true",
        "delta.logRetentionDuration": "interval 1 hours",
    }
    unreadable_remedy = (
        "when no process works on the catalog, delete this directory: it holds nothing else"
    )
    unwritable_remedy = "make the catalog directory writable, or free space on its disk"

    def __init__(self, address: str, storage: Storage) -> None:
        super().__init__(address, storage)
        self._written: tuple[DeltaTable | None, dict[str, str]] | None = None

    def heartbeat(self, key: str) -> str | None:
        """Return the newest heartbeat of a lease, None before the first."""
        return self._beats(self.open()).get(key)

    def renew(self, key: str, beat: str) -> None:
        """Write a heartbeat; renewals of other leases at the same time are kept.

        Raises :class:`CatalogWriteRefused` when the store does not take it.
        """
        from deltalake import PostCommitHookProperties

        hooks = PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False)

        def attempt() -> None:
            # what we have written last is the newest, unless the store says otherwise
            (table, beats), self._written = self._written or self._open(), None
            if beats.get(key) == beat:
                return  # it was written, and only the answer was lost
            beats[key] = beat
            self.write(table, _arrow_beats(beats), mode="overwrite", post_commit=hooks)
            if table is not None and table.version() % _TIDY_EVERY == 0:
                self._tidy(table)
            elif table is not None and is_remote(self._address):
                self._written = table, beats

        commit_onto_newest(attempt, too_busy=lambda: self.write_refused(None))

    def _open(self) -> tuple[DeltaTable | None, dict[str, str]]:
        table = self.open()
        return table, self._beats(table)

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


def _arrow_beats(beats: dict[str, str]) -> Any:
    from arro3.core import Array, DataType, Table

    keys = sorted(beats)
    return Table.from_pydict(
        {
            "key": Array(keys, DataType.string()),
            "beat": Array([beats[key] for key in keys], DataType.string()),
        }
    )


class CommitsTable(SideTable, ABC):
    """What the commits say of themselves as a Delta table of its own, for Spark SQL.

    Append-only, and only a copy: it is written from the commits' own words
    (:mod:`catalog_migrate.catalog.history`), so a process killed between a commit and its audit row
    loses nothing, the next one copies it. How far the copy goes is a Delta transaction of the same
    commit that appends the rows: each commit of the log is there exactly once whoever copies.
    """

    application: ClassVar[str]
    configuration: ClassVar[Mapping[str, str]] = {
        "delta.appendOnly": "true",
        "delta.enableExpiredLogCleanup": "false",
        "delta.logRetentionDuration": "interval 36500 days",
    }
    unreadable_remedy = "delete this directory: the next start writes it again from the log"
    unwritable_remedy = (
        "make the catalog directory writable, or free space on its disk; the history is whole"
        " without it, and the next start copies what is missing"
    )

    @abstractmethod
    def rows(self, commits: Sequence[Entry]) -> Any:
        """Return the rows of some commits, oldest first, as an Arrow table."""

    def catch_up(self, log: CatalogLog) -> int:
        """Append what the commits of ``log`` say that is not there yet; returns how many say it.

        Raises :class:`CatalogWriteRefused` when the store does not take it and
        :class:`CatalogCorrupt` for a log or an audit that cannot be read.
        """
        return commit_onto_newest(
            lambda: self._append_newer(log), too_busy=lambda: self.write_refused(None)
        )

    def _append_newer(self, log: CatalogLog) -> int:
        """Append what is not there yet; Overtaken when another process copied meanwhile."""
        from deltalake import Transaction

        standing = self._commits.newest()
        done = None
        if standing is not None:  # known from the newest commit, whether tidied since or not
            done = self._commits.transactions(standing).get(self.application)
        if done is not None and log.version() <= done:
            return 0
        table = self.open()
        done = -1 if table is None else table.transaction_version(self.application)
        done = -1 if done is None else done
        newest = log.version()
        if newest <= done:
            return 0
        fresh = list(entries(log, down_to=done + 1, upto=newest))[::-1]
        rows = self.rows(fresh)
        if table is not None and not rows.num_rows and len(fresh) < SCANNED:
            return 0
        self.write(
            table, rows, mode="append",
            transaction=Transaction(self.application, fresh[-1].version),
        )
        if table is not None and table.version() % TIDIED == TIDIED - 1:
            self._tidy()
        return len(fresh)

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


def _microseconds(at: str | None) -> int | None:
    return None if at is None else round(datetime.fromisoformat(at).timestamp() * 1_000_000)


class AuditTable(CommitsTable):
    """The history: a row a commit."""

    application = APPLICATION
    name = "the audit table"

    def rows(self, commits: Sequence[Entry]) -> Any:
        """Return a row a commit."""
        from arro3.core import Array, DataType, Table

        text, number = DataType.string(), DataType.int64()
        moments = Array([_microseconds(row.at) for row in commits], number)
        return Table.from_pydict(
            {
                "version": Array([row.version for row in commits], number),
                "commit_id": Array([row.commit_id for row in commits], text),
                "at": moments.cast(DataType.timestamp("us", tz="UTC")),
                "verb": Array([row.verb for row in commits], text),
                "who": Array([row.who for row in commits], text),
                "host": Array([row.host for row in commits], text),
                "serial_before": Array([row.serial_before for row in commits], number),
                "serial_after": Array([row.serial_after for row in commits], number),
                "release": Array([row.release for row in commits], text),
                "epoch": Array([row.epoch for row in commits], number),
                "reason": Array([row.reason for row in commits], text),
            }
        )


class OperationsTable(CommitsTable):
    """The operations that were executed, with the commit that followed them."""

    application = OPERATIONS
    name = "the table of executed operations"

    def rows(self, commits: Sequence[Entry]) -> Any:
        """Return a row an operation, in the order of execution."""
        from arro3.core import Array, DataType, Table

        text, number = DataType.string(), DataType.int64()
        found = [
            (row.version, place, one)
            for row in commits for place, one in enumerate(row.executed, start=1)
        ]
        moments = Array([_microseconds(one.started) for *_, one in found], number)
        return Table.from_pydict(
            {
                "version": Array([version for version, *_ in found], number),
                "position": Array([place for _, place, _ in found], number),
                "started": moments.cast(DataType.timestamp("us", tz="UTC")),
                "seconds": Array([one.seconds for *_, one in found], DataType.float64()),
                **{
                    name: Array([getattr(one, name) for *_, one in found], text)
                    for name in ("op", "kind", "name", "id", "phase", "outcome")
                },
            }
        )
