"""The point of no return of a plan: from when on a rollback cannot bring back what was."""

from __future__ import annotations

from collections.abc import Sequence

from catalog_migrate.model.names import quote_part
from catalog_migrate.planner.plan import Change, PointOfNoReturn

_AT_THE_COMMIT = (
    "The commit. Right after it the reconciler drops these columns in place, with their values,"
    " and from then on a rollback to a serial before it is refused (CM0340)."
)
_AFTER_RETENTION = (
    "When the old directories of these tables are removed: seven days after the commit. Until then"
    " a rollback takes their rows from there."
)


def point_of_no_return(changes: Sequence[Change]) -> PointOfNoReturn | None:
    """Until when a plan can be taken back: dropped columns in place go at once, tables later."""
    columns = tuple(
        f"{change.name}.{quote_part(column.name)}"
        for change in changes
        if change.contents == "evolve"
        for column in change.columns
        if column.change == "removed"
    )
    tables = tuple(
        change.old_name or change.name
        for change in changes
        if (change.contents in ("copy", "derived") and change.action != "create")
        or (change.kind == "table" and change.action == "drop")
    )
    if columns:
        return PointOfNoReturn("commit", columns, tables, _AT_THE_COMMIT)
    return PointOfNoReturn("retention", tables, (), _AFTER_RETENTION) if tables else None
