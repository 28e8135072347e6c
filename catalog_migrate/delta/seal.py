"""The seal of a shard: one commit after which appends from anywhere fail loudly, and its undoing.

A writer that never pauses takes every next version, so a seal that named one exact version would
never land. It carries its holder's epoch as a Delta application transaction instead and goes behind
whatever *data* came meanwhile; Delta's own conflict check refuses it behind a change of metadata
and behind the fence of another holder (Delta protocol, *Transaction Identifiers*).
"""

from __future__ import annotations

from collections.abc import Mapping
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from catalog_migrate.delta.log import put_commit
from catalog_migrate.delta.table import (
    commit_nothing,
    create_empty,
    form_of,
    open_table,
    view_table,
)
from catalog_migrate.engine_failures import failing
from catalog_migrate.errors import EngineFailure
from catalog_migrate.store.address import is_remote

if TYPE_CHECKING:
    from deltalake import DeltaTable

    from catalog_migrate.delta.table import TableView

CONSTRAINTS = "delta.constraints."
"""What the name of a CHECK follows in a table's configuration."""
SEAL_CONSTRAINT = "catalog_migrate_sealed"
SEAL = {
    CONSTRAINTS + SEAL_CONSTRAINT: "1 = 0",
    "delta.appendOnly": "true",
    # Without it delta-rs goes on appending and merging by path (tried).
    "delta.minWriterVersion": "3",
}
"""What sealing sets, in one commit."""
_UNSEALED = {"delta.appendOnly": "false", "delta.minWriterVersion": "2"}
"""What a property that was not set before the seal is put back to; delta-rs cannot unset one."""

_RACES = 200
"""Versions that other writers may take from one commit before delta-rs gives it up."""
_OVERTAKEN = (
    "FENCED", "DELTA_METADATA_CHANGED", "DELTA_CONCURRENT_APPEND", "DELTA_CONCURRENT_WRITE",
)
_ATTEMPTS = 20
"""Commits of a seal that may be refused for data that others removed meanwhile."""


def seal_properties(path: str) -> Mapping[str, str | None]:
    """What the properties that :func:`seal` sets are now (None: not set)."""
    standing = view_table(path).metadata().configuration
    return {name: standing.get(name) for name in SEAL}


def is_sealed(path: str) -> bool:
    """Whether the seal's constraint stands at the newest version."""
    return _is_sealed(view_table(path))


def seal(path: str, *, follows: int, app_id: str, epoch: int) -> int:
    """Seal behind version ``follows`` and the data that came after it; the seal's version.

    EngineFailure ``SEAL_CONFLICT`` when metadata or protocol are no more as they were at
    ``follows``, when it is sealed already, or when a holder of a newer epoch than ``epoch`` has
    fenced ``app_id``: then somebody else has the right to the shard, or the plan is out of date.
    """
    if is_remote(path):
        return _seal_there(path, follows, app_id, epoch)
    from deltalake import CommitProperties, Transaction
    from deltalake.exceptions import CommitFailedError

    planned = form_of(view_table(path, version=follows))
    refused: CommitFailedError | None = None
    for _ in range(_ATTEMPTS):
        table = open_table(path)
        if (table.transaction_version(app_id) or 0) > epoch:
            raise _conflict(path, f"a holder of an epoch above {epoch} has fenced it") from refused
        if form_of(table) != planned:
            raise _conflict(path, f"its metadata changed after version {follows}") from refused
        with failing(f"seal {path}"):
            try:
                table.alter.set_table_properties(
                    SEAL,
                    raise_if_not_exists=False,
                    commit_properties=CommitProperties(
                        max_commit_retries=_RACES,
                        app_transactions=[Transaction(app_id, epoch)],
                    ),
                )
            except CommitFailedError as error:
                refused = error
                continue
        return _sealed_at(path, table.version())
    raise _conflict(path, f"{_ATTEMPTS} attempts lost against other writers") from refused


def _seal_there(path: str, follows: int, app_id: str, epoch: int) -> int:
    """The same on an object store: what delta-rs makes of the table, worked out on this machine."""
    planned, table = form_of(view_table(path, version=follows)), view_table(path)
    if (table.transaction_version(app_id) or 0) > epoch:
        raise _conflict(path, f"a holder of an epoch above {epoch} has fenced it")
    if form_of(table) != planned:
        raise _conflict(path, f"its metadata changed after version {follows}")
    with failing(f"seal {path}"), TemporaryDirectory(prefix="catalog-migrate-") as here:
        create_empty(here, planned)
        shadow = open_table(here)
        shadow.alter.set_table_properties(SEAL, raise_if_not_exists=False)
        actions = form_of(shadow).actions(planned)
    try:
        return put_commit(
            path, actions, follows=table.version(), operation="SET TBLPROPERTIES", app_id=app_id,
            epoch=epoch,
        )
    except EngineFailure as error:
        if error.condition not in _OVERTAKEN:
            raise
        raise _conflict(path, error.message) from error


def unseal(
    path: str, properties: Mapping[str, str | None], *, app_id: str = "", epoch: int = 0
) -> None:
    """Put the earlier values back, then take the constraint off: its absence is the proof.

    Where somebody else took only the constraint off, the rest of the seal goes too. Both commits
    name the exact version that they follow. With ``app_id`` the seal of a holder with a later epoch
    is left alone: EngineFailure ``FENCED``.
    """
    from deltalake import CommitProperties
    from deltalake.exceptions import CommitFailedError

    exactly = CommitProperties(max_commit_retries=0)
    earlier = {name: properties.get(name) or value for name, value in _UNSEALED.items()}
    table = open_table(path)
    if not _is_sealed(table) and not _rest_of_seal(table, properties):
        return
    with failing(f"unseal {path}"):
        try:
            _require_epoch(table, path, app_id, epoch)
            table.alter.set_table_properties(
                earlier, raise_if_not_exists=False, commit_properties=exactly
            )
            table = open_table(path)
            if not _is_sealed(table):
                return
            _require_epoch(table, path, app_id, epoch)
            table.alter.drop_constraint(
                SEAL_CONSTRAINT, raise_if_not_exists=False, commit_properties=exactly
            )
        except CommitFailedError as error:
            raise _conflict(path, "another commit came between") from error


def fence(path: str, app_id: str, epoch: int) -> None:
    """An empty commit with ``Transaction(app_id, epoch)``: a seal of an older epoch then loses.

    Like the seal it goes behind whatever others append. A seal that lands under it makes it fail
    with a transient EngineFailure; then it is to be tried again. EngineFailure ``FENCED`` when the
    table carries a later epoch already.
    """
    table = open_table(path)
    _require_epoch(table, path, app_id, epoch)
    with failing(f"fence {path}"):
        commit_nothing(table, {app_id: epoch}, races=_RACES)


def _require_epoch(table: DeltaTable, path: str, app_id: str, epoch: int) -> None:
    held = (table.transaction_version(app_id) or 0) if app_id else 0
    if held > epoch:
        raise EngineFailure(
            f"{path} is worked on under epoch {held}, this is {epoch}", condition="FENCED"
        )


def _is_sealed(table: TableView) -> bool:
    return CONSTRAINTS + SEAL_CONSTRAINT in table.metadata().configuration


def _rest_of_seal(table: DeltaTable, earlier: Mapping[str, str | None]) -> bool:
    """Whether all that a seal sets but its constraint is set, and was not before."""
    rest = {name: value for name, value in SEAL.items() if not name.startswith(CONSTRAINTS)}
    standing = table.metadata().configuration
    return all(standing.get(name) == value for name, value in rest.items()) and any(
        earlier.get(name) != value for name, value in rest.items()
    )


def _sealed_at(path: str, version: int) -> int:
    """The version of the sealing commit: at or below ``version``, and the first that is sealed."""
    while version > 0 and _is_sealed(view_table(path, version=version - 1)):
        version -= 1
    return version


def _conflict(path: str, why: str) -> EngineFailure:
    return EngineFailure(f"cannot seal {path}: {why}", condition="SEAL_CONFLICT", transient=True)
