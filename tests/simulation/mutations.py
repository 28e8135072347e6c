"""What can change from one release to the next; each mutation does nothing where nothing fits."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tests.simulation.draft import (
    SCHEMAS,
    Draft,
    DraftColumn,
    DraftTable,
    DraftView,
)

Mutation = Callable[[Draft], object]


def _table(draft: Draft) -> DraftTable | None:
    return draft.random.choice(list(draft.tables.values())) if draft.tables else None


def _view(draft: Draft) -> DraftView | None:
    return draft.random.choice(list(draft.views.values())) if draft.views else None


def _column(
    draft: Draft, fits: Callable[[DraftTable, DraftColumn], bool]
) -> tuple[DraftTable, DraftColumn] | None:
    found = [(t, c) for t in draft.tables.values() for c in t.columns[1:] if fits(t, c)]
    return draft.random.choice(found) if found else None


# columns -------------------------------------------------------------------------------------
def _add_nullable(draft: Draft) -> None:
    table = _table(draft)
    if table is not None:
        draft.add_column(table, nullable=True)


def _add_not_null(draft: Draft) -> None:
    table = _table(draft)
    if table is not None:
        draft.add_column(table, nullable=False)


def _widen(draft: Draft) -> None:
    found = _column(draft, lambda _, c: c.type == "INT" and c.using is None)
    if found:
        found[1].type, found[1].alias = "BIGINT", None


def _narrow(draft: Draft) -> None:
    """BIGINT to INT by USING, of a column that is as old as its table and kept its name."""
    found = _column(
        draft, lambda _, c: c.type == "BIGINT" and c.initial and not c.earlier and c.using is None
    )
    if found:
        column = found[1]
        column.type, column.alias = "INT", None
        column.using = f"CAST({column.name} AS INT)"


def _relax(draft: Draft) -> None:
    found = _column(draft, lambda _, c: not c.nullable and c.default is None)
    if found:
        found[1].nullable = True


def _rename_column(draft: Draft) -> None:
    found = _column(draft, lambda _, c: c.using is None)
    if found:
        column = found[1]
        column.earlier = (column.name, *column.earlier)
        column.name = f"c{draft.number()}"


def _drop_column(draft: Draft) -> None:
    found = _column(draft, lambda t, c: len(t.columns) > 2 and c.number != t.partition)
    if found:
        table, column = found
        table.columns.remove(column)
        table.dropped += [column.name, *column.earlier]


# tables --------------------------------------------------------------------------------------
def _rename_table(draft: Draft) -> None:
    """Another name, and sometimes another schema too."""
    table = _table(draft)
    if table is not None:
        table.earlier = (f"{table.schema}.{table.name}", *table.earlier)
        table.name = f"t{draft.number()}"
        table.schema = draft.schema()


def _move_table(draft: Draft) -> None:
    """The same name in the other schema; once, because a name must not come back."""
    table = _table(draft)
    if table is not None and not table.earlier:
        table.earlier = (f"{table.schema}.{table.name}",)
        table.schema = SCHEMAS[1 - SCHEMAS.index(table.schema)]


def _drop_table(draft: Draft) -> None:
    table = _table(draft)
    if table is not None and len(draft.tables) > 1:
        draft.drop_table(table)


def _partition(draft: Draft) -> None:
    found = _column(draft, lambda _, c: c.type == "STRING")
    if found:
        found[0].partition = found[1].number


def _add_check(draft: Draft) -> None:
    """A condition on the key that all rows meet; writers try to break it (Schedule.write)."""
    table = _table(draft)
    if table is not None:
        number = draft.number()
        table.checks[f"e{number}"] = f"{table.columns[0].name} > {-draft.random.randrange(9)}"


def _drop_check(draft: Draft) -> None:
    found = [table for table in draft.tables.values() if table.checks]
    if found:
        checks = draft.random.choice(found).checks
        del checks[draft.random.choice(list(checks))]


def _add_derived(draft: Draft) -> None:
    draft.add_table(derived=True)


# views and functions -------------------------------------------------------------------------
def _drop_view(draft: Draft) -> None:
    view = _view(draft)
    if view is not None:
        del draft.views[view.number]


def _drop_function(draft: Draft) -> None:
    if draft.functions:
        del draft.functions[draft.random.choice(list(draft.functions))]


def _rewrite_view(draft: Draft) -> None:
    view = _view(draft)
    if view is not None:
        view.threshold += 1


def _rewrite_function(draft: Draft) -> None:
    if draft.functions:
        draft.functions[draft.random.choice(list(draft.functions))].constant += 1


def _change_parents(draft: Draft) -> None:
    view = _view(draft)
    if view is not None:
        draft.choose_parents(view)


def _call_function(draft: Draft) -> None:
    view = _view(draft)
    if view is not None and draft.functions:
        view.function = draft.random.choice(list(draft.functions))


def _comment(draft: Draft) -> None:
    table, view = _table(draft), _view(draft)
    text = f"note {draft.number()}"
    if view is not None and draft.random.random() < 0.3:
        view.comment = text
    elif table is not None and draft.random.random() < 0.5:
        table.comment = text
    elif table is not None:
        draft.random.choice(table.columns).comment = text


# types ---------------------------------------------------------------------------------------
def _widen_type(draft: Draft) -> None:
    """INT to BIGINT: every column of the type changes with it, but for one with a decision."""
    found = [kind for kind in draft.types.values() if kind.definition == "INT"]
    if found:
        kind = draft.random.choice(found)
        kind.definition = "BIGINT"
        for table in draft.tables.values():
            for column in table.columns:
                if column.alias == kind.number:
                    column.type = "BIGINT"


def _drop_type(draft: Draft) -> None:
    """The type goes, its columns stay what they are."""
    if draft.types:
        number = draft.random.choice(list(draft.types))
        del draft.types[number]
        for table in draft.tables.values():
            for column in table.columns:
                if column.alias == number:
                    column.alias = None


# kinds ---------------------------------------------------------------------------------------
def _table_becomes_view(draft: Draft) -> None:
    """A view under the name and number of a table, whose rows are given up."""
    found = [
        table
        for table in draft.tables.values()
        if table.was is None and not table.derived and len(draft.tables) > 1
    ]
    if not found:
        return
    table = draft.random.choice(found)
    view = DraftView(
        table.number, table.schema, table.name, [], [], earlier=table.earlier, was="table"
    )
    draft.drop_table(table)
    draft.views[view.number] = view
    draft.choose_parents(view)
    if not view.parents:
        del draft.views[view.number]


def _view_becomes_table(draft: Draft) -> None:
    """An empty table under the name and number of a view, with its columns and a key before."""
    found = [view for view in draft.views.values() if view.was is None]
    if not found:
        return
    view = draft.random.choice(found)
    shown = draft.shown(view.number)
    del draft.views[view.number]
    columns = [
        DraftColumn(number, column.name, column.type, True, initial=False)
        for number, column in shown.items()
    ]
    draft.tables[view.number] = DraftTable(
        view.number, view.schema, view.name, [draft.key(view.number), *columns], was="view"
    )


MUTATIONS: Mapping[str, Mutation] = {
    "add nullable column": _add_nullable,
    "add NOT NULL column": _add_not_null,
    "widen column": _widen,
    "narrow column": _narrow,
    "relax column": _relax,
    "rename column": _rename_column,
    "drop column": _drop_column,
    "rename table": _rename_table,
    "move table": _move_table,
    "drop table": _drop_table,
    "add table": Draft.add_table,
    "add derived table": _add_derived,
    "add filled table": Draft.add_filled_table,
    "partition": _partition,
    "add check": _add_check,
    "drop check": _drop_check,
    "add view": Draft.add_view,
    "drop view": _drop_view,
    "rewrite view": _rewrite_view,
    "change parents": _change_parents,
    "call function": _call_function,
    "add function": Draft.add_function,
    "drop function": _drop_function,
    "rewrite function": _rewrite_function,
    "add type": Draft.add_type,
    "widen type": _widen_type,
    "drop type": _drop_type,
    "table becomes view": _table_becomes_view,
    "view becomes table": _view_becomes_table,
    "comment": _comment,
}
"""Every mutation by name."""
