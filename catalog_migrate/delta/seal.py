"""The seal of a shard: one commit after which appends from anywhere fail loudly, and its undoing.

A writer that never pauses takes every next version, so a seal that named one exact version would
never land. It carries its holder's epoch as a Delta application transaction instead and goes behind
whatever *data* came meanwhile, but not behind a change of metadata or protocol, nor behind the
fence of another holder (Delta protocol, *Transaction Identifiers*).

The commits are our own: delta-rs makes none to a table that has a feature which it does not write.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from catalog_migrate.delta.commit import ATTEMPTS, commit_onto_newest, is_overtaken
from catalog_migrate.delta.table import commit_actions, form_of, view_table
from catalog_migrate.errors import EngineFailure

if TYPE_CHECKING:
    from catalog_migrate.delta.table import Form, TableView

CONSTRAINTS = "delta.constraints."
"""What the name of a CHECK follows in a table's configuration."""
SEAL_CONSTRAINT = "catalog_migrate_sealed"
SEAL = {
    CONSTRAINTS + SEAL_CONSTRAINT: "1 = 0",
    "delta.appendOnly": "true",
    # what a table has that was sealed by delta-rs, which obeys CHECKs only where it is set
    "delta.minWriterVersion": "3",
}
"""What sealing sets, in one commit."""
_CHECKED = 3
"""The first version of writers that obey CHECK constraints (and, as those of 2, append-only)."""


def seal_properties(path: str) -> Mapping[str, str | None]:
    """Return what the properties that :func:`seal` sets are now (None: not set)."""
    standing = view_table(path).metadata().configuration
    return {name: standing.get(name) for name in SEAL}


def is_sealed(path: str) -> bool:
    """Return whether the seal's constraint stands at the newest version."""
    return _is_sealed(view_table(path))


def seal(path: str, *, follows: int, app_id: str, epoch: int) -> int:
    """Seal behind version ``follows`` and the data that came after it; the seal's version.

    EngineFailure ``SEAL_CONFLICT`` when metadata or protocol are no more as they were at
    ``follows``, when it is sealed already, or when a holder of a newer epoch than ``epoch`` has
    fenced ``app_id``: then another process has the right to the shard, or the plan is out of date.
    ``UnsupportedTable`` where it has a feature that is not known: that is no conflict.
    """
    planned = form_of(view_table(path, version=follows))

    def attempt() -> int:
        table = view_table(path)
        standing = form_of(table)
        if (table.transaction_version(app_id) or 0) > epoch:
            raise _conflict(path, f"a holder of an epoch above {epoch} has fenced it")
        if not standing.defines_same(planned):
            raise _conflict(path, f"its metadata changed after version {follows}")
        return commit_actions(
            table, _seal(standing).actions(standing), operation="SET TBLPROPERTIES",
            app_id=app_id, epoch=epoch,
        )

    return commit_onto_newest(
        attempt,
        too_busy=lambda: _conflict(path, f"{ATTEMPTS} attempts lost against other writers"),
    )


def _seal(form: Form) -> Form:
    sealed = form.with_configuration({**form.configuration, **SEAL})
    return sealed.under_protocol(_CHECKED, "appendOnly", "checkConstraints")


def unseal(
    path: str, properties: Mapping[str, str | None], *, app_id: str = "", epoch: int = 0
) -> None:
    """Take the seal off and put the earlier values back, in one commit; the protocol stays.

    Where another process took only the constraint off, the rest of the seal goes too. The commit
    names the exact version that it follows: EngineFailure ``SEAL_CONFLICT`` where another came
    between. With ``app_id`` the seal of a holder with a later epoch is left alone: ``FENCED``.
    """
    table = view_table(path)
    if not _is_sealed(table) and not _rest_of_seal(table, properties):
        return
    _require_epoch(table, path, app_id, epoch)
    standing = form_of(table)
    earlier = {name: value for name in SEAL if (value := properties.get(name)) is not None}
    kept = {name: value for name, value in standing.configuration.items() if name not in SEAL}
    unsealed = standing.with_configuration({**kept, **earlier})
    try:
        commit_actions(
            table, unsealed.actions(standing), operation="UNSET TBLPROPERTIES", behind_data=False
        )
    except EngineFailure as error:
        if not is_overtaken(error):
            raise
        raise _conflict(path, "another commit came between") from error


def fence(path: str, app_id: str, epoch: int) -> None:
    """An empty commit with the transaction (app_id, epoch): a seal of an older epoch then loses.

    Like the seal it goes behind whatever others append. A seal that lands under it makes it fail
    with a transient EngineFailure; then it is to be tried again. EngineFailure ``FENCED`` when the
    table carries a later epoch already.
    """
    table = view_table(path)
    _require_epoch(table, path, app_id, epoch)
    commit_actions(table, [], operation="FENCE", app_id=app_id, epoch=epoch)


def _require_epoch(table: TableView, path: str, app_id: str, epoch: int) -> None:
    held = (table.transaction_version(app_id) or 0) if app_id else 0
    if held > epoch:
        raise EngineFailure(
            f"{path} is worked on under epoch {held}, this is {epoch}", condition="FENCED"
        )


def _is_sealed(table: TableView) -> bool:
    return CONSTRAINTS + SEAL_CONSTRAINT in table.metadata().configuration


def _rest_of_seal(table: TableView, earlier: Mapping[str, str | None]) -> bool:
    """Whether all that a seal sets but its constraint is set, and was not before."""
    rest = {name: value for name, value in SEAL.items() if not name.startswith(CONSTRAINTS)}
    standing = table.metadata().configuration
    return all(standing.get(name) == value for name, value in rest.items()) and any(
        earlier.get(name) != value for name, value in rest.items()
    )


def _conflict(path: str, why: str) -> EngineFailure:
    return EngineFailure(f"cannot seal {path}: {why}", condition="SEAL_CONFLICT", transient=True)
