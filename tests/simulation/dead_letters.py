"""A table of dead letters in a chain of releases: what users' sources write into, and may lose."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from msgspec.structs import replace

from catalog_migrate.connectors.query import DEAD_LETTER_COLUMNS
from catalog_migrate.model.objects import Column, ObjectDefinition
from tests.simulation.draft import ColumnShape, DraftedRelease, TableShape

Fate = Literal["table", "renamed", "dropped", "view"]
"""What a release has of it: the table, under its first or another name; nothing; a view."""

NUMBER = 1_000_000
"""The table's lasting number, above all that are drawn; its columns have the next ones."""

_FIRST, _RENAMED = f"t{NUMBER}", f"t{NUMBER + 100}"


def with_letters(
    drafts: Sequence[DraftedRelease], fates: Sequence[Fate]
) -> tuple[DraftedRelease, ...]:
    """The chain with the table; each release by its fate, those behind the last by the last."""
    return tuple(
        _with(draft, fates[min(number, len(fates) - 1)]) for number, draft in enumerate(drafts)
    )


def _with(draft: DraftedRelease, fate: Fate) -> DraftedRelease:
    approve = (*draft.approve, f"s.{_FIRST}", f"s.{_RENAMED}")
    if fate == "dropped":
        return replace(draft, approve=approve)
    if fate == "view":
        return replace(draft, approve=approve, objects=(*draft.objects, _view(draft)))
    name, earlier = (_FIRST, None) if fate == "table" else (_RENAMED, (f"s.{_FIRST}",))
    table = ObjectDefinition(
        schema="s", kind="table", name=name, columns=DEAD_LETTER_COLUMNS, depends_on=(),
        renamed_from=earlier,
    )
    shape = TableShape(NUMBER, name, tuple(
        ColumnShape(NUMBER + 1 + position, column.name, column.type, column.nullable, None)
        for position, column in enumerate(DEAD_LETTER_COLUMNS)
    ))
    return replace(
        draft, approve=approve, objects=(*draft.objects, table),
        tables={**draft.tables, NUMBER: shape},
    )


def _view(draft: DraftedRelease) -> ObjectDefinition:
    """Under the table's name: a view that reads some other table, if there is one."""
    tables = sorted((d.item_name, d) for d in draft.objects if d.kind == "table")
    if not tables:
        return ObjectDefinition(
            schema="s", kind="view", name=_FIRST, columns=(Column("one", "INT", False),),
            depends_on=(), sql="SELECT 1 AS one", was="table",
        )
    name, read = tables[0]
    key = read.columns[0]
    return ObjectDefinition(
        schema="s", kind="view", name=_FIRST, columns=(Column("k", key.type, key.nullable),),
        depends_on=(str(name),), sql=f"SELECT r.{key.name} AS k FROM {name} r", was="table",
    )
