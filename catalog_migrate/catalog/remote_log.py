"""The durable log on an object store: the same Delta table, committed by put-if-absent.

delta-rs creates a commit's object only where none is, which is the compare-and-set that the log
needs (``doctor`` proves it on the catalog's own store). Options come from the caller or from the
store's own variables, and appear in no message.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, NoReturn

from catalog_migrate.catalog.audit import AuditTable
from catalog_migrate.catalog.delta_log import DeltaLog
from catalog_migrate.catalog.remote_files import RemoteCommits, failure
from catalog_migrate.catalog.renewals import Renewals
from catalog_migrate.storage import Storage

if TYPE_CHECKING:
    from deltalake import DeltaTable


class RemoteLog(DeltaLog):
    """The log of the catalog at ``uri`` (``s3://bucket/path`` and the like)."""

    def __init__(self, uri: str, storage: Storage) -> None:
        storage.refuse_unsafe(uri)
        self._uri = uri
        self._root = uri.rstrip("/")
        self._path = f"{self._root}/log"
        self._storage = storage
        self._files = RemoteCommits(self._path, storage)
        beats = f"{self._root}/renewals"
        self._renewals = Renewals(beats, RemoteCommits(beats, storage), storage)
        told = f"{self._root}/audit"
        self._audit = AuditTable(told, RemoteCommits(told, storage), storage)
        self._lock = threading.RLock()
        self._table = None
        self._snapshot = None

    def exists(self) -> bool:
        """Whether a log is there."""
        return self._files.newest() is not None

    def _blame(self, table: DeltaTable, error: Exception) -> NoReturn:
        """Not our columns, or a store that does not answer."""
        self._refuse_other_columns(table, error)
        raise failure(str(self._path), error, self._storage) from self._storage.cause(error)
