"""A small Delta table beside the log: made when it is first written, and never waited for."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from catalog_migrate.catalog.delta_files import CommitFiles
from catalog_migrate.errors import CatalogCorrupt, CatalogWriteRefused
from catalog_migrate.storage import Storage, plainly

if TYPE_CHECKING:
    from deltalake import DeltaTable, PostCommitHookProperties, Transaction

    from catalog_migrate.catalog.remote_files import RemoteCommits

ATTEMPTS = 20
"""How often a writer tries again when others were faster."""


class Lost(Exception):
    """Somebody else's commit took the version: look at the table again."""


class SideTable:
    """One table in ``directory``; what is said of it calls it ``name``.

    ``configuration`` are the table's properties, given when it is made. ``remedy_unreadable`` and
    ``remedy_unwritable`` tell an operator what to do when it fails.
    """

    __slots__ = (
        "_configuration", "_directory", "_files", "_name", "_remedy_unreadable",
        "_remedy_unwritable", "_storage",
    )

    def __init__(
        self, directory: Path | str, files: CommitFiles | RemoteCommits, storage: Storage, *,
        name: str, configuration: Mapping[str, str], remedy_unreadable: str,
        remedy_unwritable: str,
    ) -> None:
        self._directory = directory
        self._files = files
        self._storage = storage
        self._name = name
        self._configuration = dict(configuration)
        self._remedy_unreadable = remedy_unreadable
        self._remedy_unwritable = remedy_unwritable

    def exists(self) -> bool:
        """Whether anything was ever written."""
        return self._files.newest() is not None

    def open(self) -> DeltaTable | None:
        """The table as it is now, None before the first write; CatalogCorrupt if unreadable."""
        from deltalake import DeltaTable
        from deltalake.exceptions import DeltaError

        if not self.exists():
            return None
        try:
            return DeltaTable(str(self._directory), storage_options=self._options())
        except (DeltaError, OSError) as error:
            raise self.unreadable(error) from self._storage.cause(error)

    def write(
        self, table: DeltaTable | None, rows: Any, *, mode: Literal["append", "overwrite"],
        transaction: Transaction | None = None,
        post_commit: PostCommitHookProperties | None = None,
    ) -> None:
        """One commit onto ``table`` just as it was opened (None: it is made).

        ``rows`` is an Arrow table. Raises :class:`Lost` when another process was faster, and
        CatalogWriteRefused when the store does not take it.
        """
        from deltalake import CommitProperties, write_deltalake
        from deltalake.exceptions import CommitFailedError, DeltaError

        try:
            write_deltalake(
                str(self._directory) if table is None else table,
                rows,
                mode="error" if table is None else mode,
                configuration=self._configuration if table is None else None,
                storage_options=self._options() if table is None else None,
                commit_properties=CommitProperties(
                    max_commit_retries=0,
                    app_transactions=None if transaction is None else [transaction],
                ),
                post_commithook_properties=post_commit,
            )
        except CommitFailedError as error:
            raise Lost from error
        except (DeltaError, OSError) as error:
            if table is None and self.exists():
                raise Lost from error  # another process created it in this very moment
            raise self.refused(error) from self._storage.cause(error)

    def unreadable(self, error: Exception) -> CatalogCorrupt:
        """What a reader raises when the table, or its rows, cannot be read."""
        return CatalogCorrupt(
            f"{self._name} {self._directory} cannot be read: "
            f"{self._storage.hidden(plainly(error))}",
            remedy=self._remedy_unreadable, file=str(self._directory),
        )

    def refused(self, error: Exception | None) -> CatalogWriteRefused:
        """What a writer raises when it gives up; ``error`` None: others were always faster."""
        return CatalogWriteRefused(
            f"{self._name} {self._directory} could not be written: "
            + ("other processes were faster every time" if error is None
               else self._storage.hidden(plainly(error))),
            remedy=self._remedy_unwritable,
        )

    def cause(self, error: BaseException) -> Exception:
        """What may be chained to an error of ours without telling storage options."""
        return self._storage.cause(error)

    def _options(self) -> dict[str, str] | None:
        return self._storage.options() if self._storage else None
