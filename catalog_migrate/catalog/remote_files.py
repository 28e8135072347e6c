"""The commits of a Delta table on an object store, asked of delta-rs: there is nothing to list."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from catalog_migrate.catalog.delta_files import COMMIT_KEY, commit_of
from catalog_migrate.delta.log import LOG, commit_name
from catalog_migrate.errors import CatalogCorrupt, StoreFailure
from catalog_migrate.storage import Storage, plainly

if TYPE_CHECKING:
    from deltalake import DeltaTable

    from catalog_migrate.catalog.log import Commit


class RemoteCommits:
    """What :class:`~catalog_migrate.catalog.delta_files.CommitFiles` tells, for ``table`` (a URI).

    Every question goes to the store, but for commit ids, which never change. Raises StoreFailure
    when the store does not answer.
    """

    __slots__ = ("_address", "_entries", "_lock", "_storage", "_table")

    def __init__(self, table: str, storage: Storage) -> None:
        self._address = table
        self._storage = storage
        self._table: DeltaTable | None = None
        self._entries: dict[int, Mapping[str, Any]] = {}
        self._lock = threading.RLock()

    def newest(self) -> int | None:
        """The newest version, None when there is no commit."""
        with self._lock:
            table = self._current()
            return None if table is None else table.version()

    def verify(self) -> int | None:
        """Like :meth:`newest`; an object is there whole or not at all."""
        return self.newest()

    def commit_id(self, version: int) -> str | None:
        """The commit id that a version carries, None for a version or an id that is not there."""
        entry = self._entry(version)
        found = None if entry is None else entry.get(COMMIT_KEY)
        return found if isinstance(found, str) else None

    def commit(self, version: int) -> Commit:
        """One commit with what it says about itself; CatalogCorrupt when it is not there."""
        entry = self._entry(version)
        if entry is None:
            raise CatalogCorrupt(
                f"version {version} of {self._address} is missing", file=self.path(version),
                remedy="restore the catalog from a backup; nothing was written",
            )
        return commit_of(version, self.path(version), entry)

    def whole(self) -> int | None:
        """The newest version."""
        return self.newest()

    def actions(self, version: int) -> Sequence[Mapping[str, Any]]:
        """What a commit says of itself; its other actions are read by delta-rs alone."""
        self.commit(version)
        return [{"commitInfo": self._entries[version]}]

    def path(self, version: int) -> str:
        """The object of one version, for messages."""
        return f"{self._address}/{LOG}/{commit_name(version)}"

    def _entry(self, version: int) -> Mapping[str, Any] | None:
        """A commit's own metadata, which never changes."""
        with self._lock:
            if version in self._entries:
                return self._entries[version]
            table = self._current()
            if table is None or table.version() < version:
                return None
            try:
                entries = table.history(table.version() - version + 1)
            except Exception as error:  # noqa: BLE001 - raised again without what is secret
                raise failure(self._address, error, self._storage) from self._storage.cause(error)
            self._entries.update({int(entry["version"]): entry for entry in entries})
            return self._entries.get(version)

    def _current(self) -> DeltaTable | None:
        """The table at its newest version, None when there is none."""
        from deltalake import DeltaTable
        from deltalake.exceptions import TableNotFoundError

        try:
            if self._table is None:
                self._table = DeltaTable(self._address, storage_options=self._storage.options())
            else:
                self._table.update_incremental()
        except TableNotFoundError:
            self._table = None
        except Exception as error:  # noqa: BLE001 - raised again without what is secret
            self._table = None
            raise failure(self._address, error, self._storage) from self._storage.cause(error)
        return self._table


def failure(address: str, error: BaseException, storage: Storage) -> StoreFailure:
    """The typed error for a store that did not answer, or said no."""
    return StoreFailure(
        f"the store of {address} did not do what was asked: {storage.hidden(plainly(error))}",
        remedy="check the address, the network and [storage_options] (or the store's own"
        " variables); nothing was changed that is not in the log",
    )
