"""RESTORE of a source's shard, exactly once, and known to whoever resumes.

It is one commit that names the exact version it follows, so that a writer who comes between makes
it fail, and it carries the operation as a transaction. By delta-rs: no Spark is needed.
"""

from __future__ import annotations

import msgspec

from catalog_migrate.delta.log import has_log
from catalog_migrate.errors import EngineFailure, UnsafeBlocked
from catalog_migrate.streams.tables import transaction


class Restore(msgspec.Struct, frozen=True):
    """RESTORE of the shard at ``path`` (relative to the warehouse) to version ``to``.

    The commit follows exactly version ``follows``. ``gone`` rows leave by it, and ``back`` rows
    come back that an earlier one had taken away.
    """

    path: str
    to: int
    follows: int
    gone: int = 0
    back: int = 0


def happened(warehouse: str, restore: Restore, key: str) -> bool:
    """Whether the RESTORE of an operation is in the shard's log."""
    from deltalake import DeltaTable
    from deltalake.exceptions import DeltaError

    path = f"{warehouse}/{restore.path}"
    try:
        return DeltaTable(path).transaction_version(transaction(key)) is not None
    except (DeltaError, OSError) as error:
        raise EngineFailure(f"cannot open {path}: {error}") from error


def perform(warehouse: str, restore: Restore, key: str) -> None:
    """Commit the RESTORE at exactly the next version.

    Raises :class:`UnsafeBlocked` when somebody else has taken that, :class:`EngineFailure`; after
    either ask :func:`happened`.
    """
    from deltalake import CommitProperties, DeltaTable, Transaction
    from deltalake.exceptions import CommitFailedError, DeltaError

    path = f"{warehouse}/{restore.path}"
    try:
        DeltaTable(path, version=restore.follows).restore(
            restore.to,
            commit_properties=CommitProperties(
                app_transactions=[Transaction(transaction(key), 0)], max_commit_retries=0
            ),
        )
    except CommitFailedError as error:
        raise UnsafeBlocked(
            f"somebody else has written into the table at {path} in this very moment",
            remedy="see who writes into it besides the source, then plan again",
        ) from error
    except (DeltaError, OSError) as error:
        raise EngineFailure(
            f"the table at {path} cannot be restored to version {restore.to}: {error}",
            remedy="files of that version may have been vacuumed: undo without --restore-table",
        ) from error


def bar(warehouse: str, restore: Restore) -> None:
    """Take the version that a RESTORE would have, so that one under way elsewhere fails."""
    from deltalake import CommitProperties, DeltaTable
    from deltalake.exceptions import CommitFailedError, DeltaError

    path = f"{warehouse}/{restore.path}"
    if not has_log(path):
        return
    try:
        table = DeltaTable(path)
        if table.version() > restore.follows:
            return
        table.create_write_transaction(
            [], "append", table.schema(),
            partition_by=list(table.metadata().partition_columns) or None,
            commit_properties=CommitProperties(max_commit_retries=0),
        )
    except CommitFailedError:
        return  # somebody has taken it: what it was is asked next
    except (DeltaError, OSError) as error:
        raise EngineFailure(f"cannot write to {path}: {error}") from error
