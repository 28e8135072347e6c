"""Which changes of a plan do not keep every row and value as it is, and in what words."""

from __future__ import annotations

import msgspec

from catalog_migrate.planner.plan import Change, ColumnChange, Plan


def losses(plan: Plan) -> list[tuple[Change, list[str]]]:
    """The changes that lose something, decided or not, with what it is."""
    told = ((change, lost_by(change, back=goes_back(plan))) for change in plan.changes)
    return [(change, reasons) for change, reasons in told if reasons]


def goes_back(plan: Plan) -> bool:
    """Whether it leads to what the catalog had at an earlier serial."""
    return plan.target.serial is not msgspec.UNSET


def lost_by(change: Change, *, back: bool = False) -> list[str]:
    """Why values of a table are not all kept as they are; empty for every other change.

    A plan that goes ``back`` names every loss as a risk: it takes what it can from old shards, and
    a column that goes loses nothing where no row was written since.
    """
    if change.risk is not None:
        in_place = change.contents == "evolve" and any(
            column.change == "removed" for column in change.columns
        )
        return [change.risk + (", in place: no rollback brings it back" if in_place else "")]
    if back or change.kind != "table" or change.contents not in {"copy", "evolve"}:
        return []  # a table without rows, and one that the application fills again, go without
    return [
        f"the values of column {column.name} go"
        if column.change == "removed"
        else f"column {column.name} becomes what the conversion to {column.new_type} makes of it"
        for column in change.columns
        if column.change == "removed" or (column.change == "retyped" and not _keeps(column))
    ]


def _keeps(column: ColumnChange) -> bool:
    """Whether every value of the old type is one of the new type."""
    from catalog_migrate.errors import UnknownType
    from catalog_migrate.model.types import is_lossless

    if column.old_type is None or column.new_type is None:
        return False
    try:
        return is_lossless(column.old_type, column.new_type)
    except UnknownType:
        # a plan of a newer tool may hold a type that this one does not know: say so, not nothing
        return False
