"""The durable log as a Delta table, written and read by delta-rs alone (no JVM, no pyarrow).

The Delta version is the compare-and-set token: a commit names the version it follows and is made
with ``max_commit_retries=0``, so it lands exactly there or not at all (Delta protocol, *Delta Log
Entries*: a version is created at most once). ``DeltaTable.to_pyarrow_*`` must not be used here: it
imports pandas and has aborted the interpreter at exit.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Literal, NoReturn
from urllib.parse import unquote

from catalog_migrate.catalog.kept_state import decode_kept, encode_kept
from catalog_migrate.catalog.log import LogRow, corrupt_log_error, remedy_unreadable
from catalog_migrate.catalog.process import this_host, this_user
from catalog_migrate.catalog.records import ConfigRecord
from catalog_migrate.catalog.side_tables import AuditTable, OperationsTable, Renewals
from catalog_migrate.catalog.state import (
    State,
    UnreadCollections,
    sum_rows,
)
from catalog_migrate.delta.log import OURS, Commit, commit_log
from catalog_migrate.errors import (
    CatalogCorrupt,
    CatalogMigrateError,
    CatalogNotFound,
    CatalogWriteRefused,
    CommitConflict,
    CommitOutcomeUnknown,
    NotACatalog,
    UsageError,
)
from catalog_migrate.store import store_at
from catalog_migrate.store.address import (
    Storage,
    directory_of,
    is_remote,
    plainly,
    remember,
    resolved,
)
from catalog_migrate.store.object_store import (
    PROBES,
    remedy_of_refusal,
    require_fit,
    store_error,
)

if TYPE_CHECKING:
    from deltalake import DeltaTable

_CONFIGURATION = {
    "delta.enableExpiredLogCleanup": "false",
    "delta.logRetentionDuration": "interval 36500 days",
}
"""History stays: delta-rs would delete old commit files when it makes a checkpoint."""

_STATES = "states"
"""The folder of the state that is kept as one object."""
_COLUMNS = ("kind", "key", "value", "diff")
_PARTS = frozenset({"log", "renewals", "audit", "operations_log", _STATES})
_ROWS = "SELECT kind, key, value, diff FROM log"
_REFUSALS = (
    "permission denied", "read-only file system", "no space left", "disk quota exceeded",
    "operation not permitted", "os error 13", "os error 30", "os error 28", "os error 122",
)
_FAILED_READ = "restore the catalog directory from a backup; nothing was written"


class DeltaLog:
    """The :class:`~catalog_migrate.catalog.log.CatalogLog` at ``uri``; cheap, safe to share by
    threads.

    ``uri`` is a directory or an address on an object store, whose options are ``storage`` and
    appear in no message. UsageError for an address or options that cannot keep a catalog.
    """

    def __init__(self, uri: str, storage: Storage | None = None) -> None:
        self._uri = uri
        self._storage = storage or Storage()
        self._is_remote = is_remote(uri)
        if self._is_remote:
            self._storage.refuse_unsafe(uri)
        self._store = store_at(uri if self._is_remote else directory_of(uri), self._storage)
        self._root = self._store.address
        self._path = self._store.place("log")
        self._lock = threading.RLock()
        self._forget()

    @property
    def uri(self) -> str:
        """The address as it was given."""
        return self._uri

    @property
    def home(self) -> str | None:
        """The catalog's real directory, whatever link or spelling it was reached by."""
        return resolved(self._root)

    @property
    def storage(self) -> Storage:
        """The options that were given; their text form shows names only."""
        return self._storage

    def exists(self) -> bool:
        if self._is_remote:
            return self._commits.newest() is not None
        try:
            if not self._store.exists(""):
                return False
            if not self._store.exists("/"):
                raise self._not_ours("a file is there")
            names = set(self._store.names())
        except OSError as error:
            raise CatalogCorrupt(
                f"the catalog directory {self._root} cannot be read: {error.strerror}",
                remedy=remedy_unreadable(error, _FAILED_READ), file=self._root,
            ) from error
        if self._commits.newest() is not None:
            return True
        strange = sorted(names - _PARTS)
        if strange:
            if any(name.startswith("lost-") for name in strange):
                raise NotACatalog(
                    f"{self._root} has no log: what was left of a lost one was moved into it, and"
                    " no other was made yet",
                    remedy="call the same catalog-migrate rebuild again",
                )
            if "warehouse" in strange:
                raise NotACatalog(
                    f"{self._root} has lost its log: the directory holds a warehouse and no log",
                    remedy="restore it from a backup, or make it again: catalog-migrate rebuild",
                )
            raise self._not_ours(f"the directory holds {strange[0]!r} and no log")
        return False

    def create(self, rows: Sequence[LogRow], *, commit_id: str) -> int:
        with self._lock:
            if self.exists():
                raise self._conflict(0)
            if self._is_remote:
                strange = sorted(
                    name for name in {*self._store.names()} - _PARTS
                    if not name.startswith(PROBES)  # of a start that is under way, or was killed
                )
                if strange:
                    raise self._not_ours(f"the prefix holds {strange[0]!r} and no log")
                require_fit(self._root, self._storage)
            return self._commit(
                rows, follows=-1, commit_id=commit_id,
                metadata={
                    "kind": "create", "serial": "0", "who": this_user(),
                    "host": this_host(),
                },
            )

    def move_lost_log(self) -> str | None:
        """Move what is left of a lost log out of the way, heartbeats too; where it is now.

        None when nothing is left. The names are never used again.
        """
        with self._lock:
            if self._is_remote:
                raise UsageError(
                    f"a log on an object store cannot be moved out of the way: {self._root}",
                    remedy="copy what is left to a directory, and make the catalog again there",
                )
            left = [name for name in sorted(_PARTS) if self._store.exists(name)]
            if not left:
                return None
            number = 1
            while self._store.exists(kept := f"lost-{number}"):
                number += 1
            self._store.make_folder(kept)
            for name in left:
                self._store.move(name, f"{kept}/{name}")
            self._forget()
            return self._store.place(kept)

    def recreate(self, rows: Sequence[LogRow], *, commit_id: str, serial: int) -> int:
        """Create the log in a directory that has other things in it: after its loss only."""
        with self._lock:
            self._forget()
            if self._commits.newest() is not None:
                raise self._conflict(0)
            return self._commit(
                rows, follows=-1, commit_id=commit_id,
                metadata={"kind": "rebuild", "serial": str(serial)},
            )

    def _forget(self) -> None:
        """Know nothing of what stands there."""
        self._commits = commit_log(self._path, self._storage, corrupt_log_error)
        self._renewals = Renewals(self._store.place("renewals"), self._storage)
        self._audit = AuditTable(self._store.place("audit"), self._storage)
        self._operations = OperationsTable(self._store.place("operations_log"), self._storage)
        self._table: DeltaTable | None = None
        self._state: State | None = None
        self._kept_version: int | None = None

    def version(self) -> int:
        """The newest version, by a listing."""
        newest = self._commits.newest()
        if newest is None:
            raise self._absent()
        return newest

    def read(self) -> State:
        """The newest state; kept, so that reading an unchanged log again costs a listing."""
        with self._lock:
            state = self._state
            newest = self._commits.verify()
            if newest is None:
                raise self._absent()
            if state is None or state.version != newest:
                kept = self._read_kept(newest) if state is None or self._is_remote else None
                self._state = state = kept or self._query(self._load(newest))
                if self._storage:
                    self._remember_rows(state)
            return state

    def _read_kept(self, version: int) -> State | None:
        """The state that was kept as one object; None where none was, or that of another log.

        A log of n commits is opened by some 4n requests, which on an object store take seconds. On
        a disk the large collections are left to the log, which is read when one is looked at: its
        files are known by their sizes until then.
        """
        try:
            kept = decode_kept(self._store.read(_state_name(version)))
            if kept is None or kept.commit_id != self._commits.commit_id(version):
                return None
            if bool(kept.files) is self._is_remote or any(
                self._store.size(name) != size for name, size in kept.files.items()
            ):
                return None
        except FileNotFoundError:
            return None
        except OSError:
            if self._is_remote:
                raise
            return None
        self._kept_version = version
        raw = kept.collections
        if kept.files:
            raw = UnreadCollections(raw, lambda: self._read_again(version, kept.commit_id))
        return State.from_kept(version, raw, kept.answers)

    def _read_again(self, version: int, commit_id: str) -> State:
        """The rows of a version of which the small collections were kept."""
        with self._lock:
            self._commits.verify()
            if self._commits.commit_id(version) != commit_id:
                raise CatalogCorrupt(
                    f"version {version} of {self._path} is not the commit that it was",
                    remedy="run again", file=self._commits.place(version),
                )
            return self._query(self._load(version))

    def keep_state(self) -> None:
        """Keep the newest state for the next process that opens the log, in place of those before.

        What fails is nothing: the log is whole without it.
        """
        with suppress(CatalogMigrateError, OSError), self._lock:
            if self._state is not None and self._state.version == self._kept_version:
                return
            state = self.read()
            commit_id = self._commits.commit_id(state.version)
            if commit_id is None:
                return
            files = {} if self._is_remote else self._list_files(state.version)
            name = _state_name(state.version)
            data = encode_kept(state, commit_id, files)
            self._store.make_folder(_STATES, above=True)
            if not self._store.put_if_absent(name, data, durable=self._is_remote):
                self._store.delete(name)  # of a log that was here before
                self._store.put_if_absent(name, data, durable=self._is_remote)
            self._kept_version = state.version
            for other in self._store.names(_STATES):
                if other.isdecimal() and f"{_STATES}/{other}" < name:  # no other's partial file
                    self._store.delete(f"{_STATES}/{other}")

    def _list_files(self, version: int) -> dict[str, int]:
        """Return the files that a reader of a version opens beside commits, with their sizes."""
        data = (unquote(uri).rpartition("/")[2] for uri in self._load(version).file_uris())
        names = [f"log/{name}" for name in (*data, *self._commits.list_checkpoint())]
        return {name: self._store.size(name) for name in names}

    def _remember_rows(self, state: State) -> None:
        """Have the options found by whoever opens a table of this catalog."""
        record = state.find("config", "warehouse")  # no more is decoded here
        if isinstance(record, ConfigRecord):
            remember(record.value, self._storage)

    def read_at(self, version: int) -> State:
        from deltalake.exceptions import DeltaError

        from catalog_migrate.delta.table import load_table

        newest = self._commits.whole()
        if newest is None:
            raise self._absent()
        self._commits.commit(version)
        try:
            table = load_table(self._path, self._storage, version=version)
        except (DeltaError, OSError) as error:
            raise CatalogCorrupt(
                f"the log {self._path} cannot be read as of version {version}: "
                f"{self._message_of(error)}",
                remedy=remedy_unreadable(error, _FAILED_READ),
                file=self._commits.place(version),
            ) from self._cause(error)
        return self._query(table)

    def commits(self, *, upto: int | None = None) -> Iterator[Commit]:
        newest = self._commits.whole()
        if newest is None:
            raise self._absent()
        for version in range(newest if upto is None else min(upto, newest), -1, -1):
            yield self._commits.commit(version)

    def keep_audit(self) -> int:
        """Copy what the audit table, and that of executed operations, lacks."""
        copied = self._audit.catch_up(self)
        if copied or not self._operations.exists():
            self._operations.catch_up(self)
        return copied

    def append(
        self, rows: Sequence[LogRow], *, follows: int, commit_id: str,
        metadata: Mapping[str, str], state: State | None = None,
    ) -> int:
        with self._lock:
            version = self._commit(rows, follows=follows, commit_id=commit_id, metadata=metadata)
            if state is not None and version == follows + 1:
                self._state = state
            return version

    def find_commit(self, commit_id: str, *, after: int) -> int | None:
        newest = self._commits.newest()
        if newest is None:
            return None
        for version in range(newest, max(after, -1), -1):
            if self._commits.commit_id(version) == commit_id:
                return version
        return None

    def live_files(self) -> int:
        with self._lock:
            return len(self._load(self.version()).file_uris())

    def compact(self, *, follows: int, commit_id: str) -> int:
        """Rewrite the state of version ``follows`` into one file as the next version.

        A Delta checkpoint is made as a step of its own, so that opening stays cheap too.
        """
        from deltalake.exceptions import DeltaError

        with self._lock:
            state = self.read()
            if state.version != follows:
                raise self._conflict(follows + 1)
            version = self._commit(
                [LogRow(*row, 1) for row in state.rows], follows=follows, commit_id=commit_id,
                metadata={"kind": "compact"}, mode="overwrite",
            )
            if version == follows + 1:
                self._state = state.at(version)
            try:
                self._load(version).create_checkpoint()
            except (DeltaError, OSError):
                return version  # only slower to open; the next compaction makes another
            return version

    def renew(self, key: str, beat: str) -> None:
        with self._lock:
            self._renewals.renew(key, beat)

    def heartbeat(self, key: str) -> str | None:
        with self._lock:
            return self._renewals.heartbeat(key)

    @property
    def longest_pause(self) -> float:
        """See :meth:`CatalogLog.longest_pause`."""
        return 1.0 if self._is_remote else 0.01

    def wait(self, seconds: float) -> None:
        time.sleep(seconds)

    def _commit(
        self, rows: Sequence[LogRow], *, follows: int, commit_id: str, metadata: Mapping[str, str],
        mode: Literal["append", "overwrite"] = "append",
    ) -> int:
        from deltalake import PostCommitHookProperties

        from catalog_migrate.delta.table import write_rows

        newest = self._commits.newest()
        if (-1 if newest is None else newest) != follows:
            raise self._conflict(follows + 1)
        said = {f"{OURS}{name}": text for name, text in {**metadata, "commit": commit_id}.items()}
        try:
            write_rows(
                self._path if follows < 0 else self._load(follows), _arrow(rows), mode=mode,
                storage=self._storage, configuration=_CONFIGURATION, said=said,
                hooks=PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False),
            )
        except CatalogMigrateError:
            raise
        except Exception as error:  # noqa: BLE001 - whatever it says, the log itself is asked
            return self._outcome(error, follows, commit_id)
        if self._commits.commit_id(follows + 1) != commit_id:
            raise CommitOutcomeUnknown(
                f"version {follows + 1} of {self._path} is not the commit that was made",
                remedy="run again; if it recurs, the store has no put-if-absent (doctor)",
                commit_id=commit_id,
            )
        return follows + 1

    def _outcome(self, error: Exception, follows: int, commit_id: str) -> int:
        """What became of a commit whose call failed: the log knows, the error does not."""
        self._table = None
        try:
            found = self.find_commit(commit_id, after=follows)
            newest = self._commits.newest()
        except CatalogMigrateError as unreadable:
            raise CommitOutcomeUnknown(
                f"a commit to {self._path} failed and the log cannot be read to find it: "
                f"{unreadable.message}",
                remedy="run again when the store answers", commit_id=commit_id,
            ) from error
        if found is not None:
            return found
        if newest is not None and newest > follows:
            raise self._conflict(follows + 1) from error
        text = str(error).lower()
        if isinstance(error, OSError) or any(refusal in text for refusal in _REFUSALS):
            raise CatalogWriteRefused(
                f"the catalog {self._root} cannot be written: {self._message_of(error)}",
                remedy="make the directory writable for this user, or free space on its disk; "
                "nothing was changed",
            ) from self._cause(error)
        refusal = remedy_of_refusal(str(error)) if self._is_remote else None
        if refusal is not None:
            raise CatalogWriteRefused(
                f"the catalog {self._root} cannot be written: {self._message_of(error)}",
                remedy=f"{refusal}; nothing was changed",
            ) from self._cause(error)
        raise CommitOutcomeUnknown(
            f"a commit to {self._path} failed and is not in the log: {self._message_of(error)}",
            remedy="run again: what was meant is computed afresh", commit_id=commit_id,
        ) from self._cause(error)

    def _message_of(self, error: Exception) -> str:
        """What delta-rs says, on one line and without an option of the store."""
        return self._storage.hidden(plainly(error))

    def _cause(self, error: Exception) -> Exception:
        """The error to raise from: on an object store a copy without what is secret."""
        return self._storage.cause(error) if self._is_remote else error

    def _load(self, version: int) -> DeltaTable:
        """The table at exactly ``version``, even when others have committed since."""
        from deltalake.exceptions import DeltaError

        from catalog_migrate.delta.table import load_table

        try:
            if self._table is None:
                self._table = load_table(self._path, self._storage)
            elif self._table.version() < version:
                self._table.update_incremental()
            if self._table.version() != version:
                self._table = load_table(self._path, self._storage, version=version)
        except (DeltaError, OSError) as error:
            self._table = None
            self._commits.verify()
            raise CatalogCorrupt(
                f"the log {self._path} cannot be read: {self._message_of(error)}",
                remedy=remedy_unreadable(error, _FAILED_READ), file=self._path,
            ) from self._cause(error)
        return self._table

    def _query(self, table: DeltaTable) -> State:
        from deltalake import QueryBuilder

        try:
            # summed here and not by a GROUP BY, which takes three times the memory
            rows = [
                row
                for batch in QueryBuilder().register("log", table).execute(_ROWS)
                for row in zip(*(batch.column(i).to_pylist() for i in range(4)), strict=True)
            ]
        except Exception as error:  # noqa: BLE001 - raised again with the file at fault
            self._blame(table, error)
        return State.from_rows(table.version(), sum_rows(rows))

    def _blame(self, table: DeltaTable, error: Exception) -> NoReturn:
        """Raise the most telling error for a table that was opened and cannot be read."""
        self._refuse_other_columns(table, error)
        if self._is_remote:
            raise store_error(self._path, error, self._storage) from self._storage.cause(error)
        actions = table.get_add_actions(flatten=True)
        sizes = zip(
            actions.column("path").to_pylist(), actions.column("size_bytes").to_pylist(),
            strict=True,
        )
        for name, size in sizes:
            name = f"log/{unquote(str(name))}"
            is_there = self._store.exists(name)
            if not is_there or self._store.size(name) != size:
                path = self._store.place(name)
                raise CatalogCorrupt(
                    f"the data file {path} of the catalog's log "
                    + ("is truncated" if is_there else "is missing"),
                    remedy=_FAILED_READ, file=path,
                ) from error
        raise CatalogCorrupt(
            f"the log {self._path} cannot be read: {error}",
            remedy=remedy_unreadable(error, _FAILED_READ), file=self._path,
        ) from error

    def _refuse_other_columns(self, table: DeltaTable, error: Exception) -> None:
        columns = tuple(field.name for field in table.schema().fields)
        if columns != _COLUMNS:
            raise self._not_ours(
                f"a table with the columns {', '.join(columns)}"
            ) from self._cause(error)

    def _conflict(self, version: int) -> CommitConflict:
        return CommitConflict(
            f"version {version} of {self._path} is another writer's",
            remedy="read again and decide again", version=version,
        )

    def _absent(self) -> CatalogMigrateError:
        if self.exists():  # raises NotACatalog for anything else
            return CatalogCorrupt(f"the log {self._path} comes and goes", remedy=_FAILED_READ)
        return CatalogNotFound(
            f"there is no catalog at {self._root}",
            remedy="give the right --catalog; where there never was one, catalog-migrate bootstrap"
            " or apply creates it; where there was: docs/administration.md, A lost log",
        )

    def _not_ours(self, what: str) -> NotACatalog:
        return NotACatalog(
            f"{self._root} is not a catalog: {what}",
            remedy="give the directory of a catalog, or one that is empty or absent",
        )


def _state_name(version: int) -> str:
    return f"{_STATES}/{version:020d}"


def _arrow(rows: Sequence[LogRow]) -> Any:
    from arro3.core import Array, DataType, Table

    text = DataType.string()
    return Table.from_pydict(
        {
            "kind": Array([row[0] for row in rows], text),
            "key": Array([row[1] for row in rows], text),
            "value": Array([row[2] for row in rows], text),
            "diff": Array([row[3] for row in rows], DataType.int32()),
        }
    )
