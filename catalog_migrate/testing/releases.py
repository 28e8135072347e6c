"""Random releases and chains of them: small, valid, with every decision that a migration needs.

Pure in the seed. A chain starts with a draft of tables, views and functions and mutates it; each
:class:`DraftedRelease` says, beside its definitions, what becomes of rows: its ``tables`` name
every table and column by a number that lasts through renames, so that a test can tell what a row
must look like after any path through the chain. A name is never used for two things in one chain,
because skipping a release would make them one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from random import Random

from catalog_migrate.model.hashes import text_hash
from catalog_migrate.model.objects import Argument, Column, ObjectDefinition

SCHEMA = "s"


@dataclass(frozen=True, slots=True)
class ColumnShape:
    """A table's column: its lasting number, and what it is called and holds in one release."""

    number: int
    name: str
    type: str
    nullable: bool
    default: str | None


@dataclass(frozen=True, slots=True)
class TableShape:
    """A table of one release: its lasting number, name and columns in order."""

    number: int
    name: str
    columns: tuple[ColumnShape, ...]


@dataclass(frozen=True, slots=True)
class DraftedRelease:
    """Definitions with the oracle for rows; ``approve`` are the approvals that it needs."""

    name: str
    objects: tuple[ObjectDefinition, ...]
    tables: Mapping[int, TableShape]
    approve: tuple[str, ...]
    mutations: tuple[str, ...]


@dataclass(slots=True)
class _Column:
    number: int
    name: str
    type: str
    nullable: bool
    initial: bool
    using: str | None = None
    default: str | None = None
    earlier: tuple[str, ...] = ()
    comment: str | None = None


@dataclass(slots=True)
class _Table:
    number: int
    name: str
    columns: list[_Column]
    dropped: list[str] = field(default_factory=list)
    earlier: tuple[str, ...] = ()
    comment: str | None = None
    partition: int | None = None


@dataclass(slots=True)
class _Pick:
    """One column of a view: its number and name, and the parent's column that it shows."""

    number: int
    name: str
    parent: int
    column: int


@dataclass(slots=True)
class _View:
    number: int
    name: str
    parents: list[int]
    picks: list[_Pick]
    function: int | None = None
    threshold: int = 0
    comment: str | None = None


@dataclass(slots=True)
class _Function:
    number: int
    name: str
    constant: int


@dataclass(slots=True)
class _Shown:
    """A relation's column as its users see it."""

    number: int
    name: str
    type: str
    nullable: bool


class _Draft:
    """The chain's present state; :meth:`mutate` changes it, :meth:`render` spells it out."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.last = 0
        self.tables: dict[int, _Table] = {}
        self.views: dict[int, _View] = {}
        self.functions: dict[int, _Function] = {}
        self.approve: list[str] = []
        self.started = False

    def number(self) -> int:
        """A number that nothing in this chain had."""
        self.last += 1
        return self.last

    # what there is ---------------------------------------------------------------------------
    def shown(self, relation: int) -> dict[int, _Shown]:
        """The columns of a relation by number, in order; less what a drop took from below it."""
        table = self.tables.get(relation)
        if table is not None:
            return {c.number: _Shown(c.number, c.name, c.type, c.nullable) for c in table.columns}
        view = self.views.get(relation)
        if view is None:
            return {}
        below = {parent: self.shown(parent) for parent in view.parents}
        result = {}
        for pick in view.picks:
            seen = below[pick.parent].get(pick.column)
            if seen is not None:
                result[pick.number] = _Shown(pick.number, pick.name, seen.type, seen.nullable)
        return result

    def relation_name(self, relation: int) -> str:
        """The present name of a table or view."""
        held = self.tables.get(relation) or self.views[relation]
        return held.name

    def reads(self, view: int, relation: int) -> bool:
        """Whether a relation is a view or reads it, directly or not."""
        if view == relation:
            return True
        held = self.views.get(relation)
        return held is not None and any(self.reads(view, parent) for parent in held.parents)

    # additions -------------------------------------------------------------------------------
    def add_column(self, table: _Table, *, nullable: bool) -> None:
        """A new column; a NOT NULL one of a table that may have rows carries its DEFAULT."""
        number = self.number()
        kind = self.random.choice(("INT", "BIGINT", "STRING"))
        default = None
        if not nullable and self.started:
            default = "'new'" if kind == "STRING" else str(self.random.randrange(9))
        table.columns.append(
            _Column(number, f"c{number}", kind, nullable, not self.started, default=default)
        )

    def add_table(self) -> None:
        """A new table with its key and one to three other columns."""
        number = self.number()
        key = _Column(self.number(), f"k{number}", "BIGINT", False, True)
        table = _Table(number, f"t{number}", [key])
        for _ in range(self.random.randint(1, 3)):
            column = self.number()
            kind = self.random.choice(("INT", "BIGINT", "STRING"))
            nullable = self.random.random() < 0.7
            table.columns.append(_Column(column, f"c{column}", kind, nullable, True))
        self.tables[number] = table

    def add_view(self) -> None:
        """A new view of one or two relations that there are."""
        number = self.number()
        view = _View(number, f"v{number}", [], [])
        self.views[number] = view
        self.choose_parents(view)
        if not view.parents:
            del self.views[number]

    def choose_parents(self, view: _View) -> None:
        """Give a view other parents (never one that reads it), and columns of theirs."""
        candidates = [
            relation
            for relation in (*self.tables, *self.views)
            if not self.reads(view.number, relation)
        ]
        if not candidates:
            return
        count = min(len(candidates), self.random.choice((1, 1, 2)))
        view.parents = self.random.sample(candidates, count)
        view.picks = []
        for parent in view.parents:
            numbers = list(self.shown(parent))
            for column in self.random.sample(numbers, min(2, len(numbers))):
                pick = self.number()
                view.picks.append(_Pick(pick, f"x{pick}", parent, column))

    def add_function(self) -> None:
        """A new function."""
        number = self.number()
        self.functions[number] = _Function(number, f"f{number}", self.random.randrange(9))

    # removals --------------------------------------------------------------------------------
    def settle(self) -> None:
        """Take from views what they can no longer read; a view without columns goes."""
        changed = True
        while changed:
            changed = False
            for view in list(self.views.values()):
                if view.function is not None and view.function not in self.functions:
                    view.function = None
                there = [p for p in view.parents if p in self.tables or p in self.views]
                below = {parent: self.shown(parent) for parent in there}
                picks = [p for p in view.picks if p.column in below.get(p.parent, ())]
                if len(picks) == len(view.picks) and len(there) == len(view.parents):
                    continue
                changed = True
                view.picks = picks
                view.parents = [p for p in there if any(pick.parent == p for pick in picks)]
                if not picks:
                    del self.views[view.number]
                break

    def drop_table(self, table: _Table) -> None:
        """Drop a table, with the approval under every name that it ever had."""
        del self.tables[table.number]
        self.approve += [f"{SCHEMA}.{name}" for name in (table.name, *table.earlier)]

    # rendering -------------------------------------------------------------------------------
    def render(self, name: str, mutations: tuple[str, ...]) -> DraftedRelease:
        """The release as it stands now, in no particular order."""
        objects = [
            *(_render_table(table) for table in self.tables.values()),
            *(_render_view(self, view) for view in self.views.values()),
            *(_render_function(function) for function in self.functions.values()),
        ]
        self.random.shuffle(objects)
        shapes = {
            table.number: TableShape(
                table.number,
                table.name,
                tuple(
                    ColumnShape(c.number, c.name, c.type, c.nullable, c.default)
                    for c in table.columns
                ),
            )
            for table in self.tables.values()
        }
        return DraftedRelease(name, tuple(objects), shapes, tuple(self.approve), mutations)


def _earlier(names: tuple[str, ...]) -> str | tuple[str, ...] | None:
    return names or None


def _render_table(table: _Table) -> ObjectDefinition:
    partition = next((c.name for c in table.columns if c.number == table.partition), None)
    return ObjectDefinition(
        schema=SCHEMA,
        kind="table",
        name=table.name,
        columns=tuple(
            Column(
                c.name, c.type, c.nullable, using=c.using, default=c.default,
                renamed_from=_earlier(c.earlier), comment=c.comment,
            )
            for c in table.columns
        ),
        renamed_from=_earlier(table.earlier),
        dropped=tuple(table.dropped),
        comment=table.comment,
        partitioned_by=() if partition is None else (partition,),
    )  # fmt: skip


def _render_view(draft: _Draft, view: _View) -> ObjectDefinition:
    below = {parent: draft.shown(parent) for parent in view.parents}
    items, columns = [], []
    for pick in view.picks:
        seen = below[pick.parent][pick.column]
        items.append(f"r{pick.parent}.{seen.name} AS {pick.name}")
        columns.append(Column(pick.name, seen.type, seen.nullable))
    uses = [f"{SCHEMA}.{draft.relation_name(parent)}" for parent in view.parents]
    if view.function is not None:
        function = draft.functions[view.function]
        items.append(f"{SCHEMA}.{function.name}({view.threshold}) AS y{view.number}")
        columns.append(Column(f"y{view.number}", "BIGINT", True))
        uses.append(f"function:{SCHEMA}.{function.name}")
    read = ", ".join(
        f"{SCHEMA}.{draft.relation_name(parent)} r{parent}" for parent in view.parents
    )
    sql = f"SELECT {', '.join(items)} FROM {read} WHERE {view.threshold} < 100"
    return ObjectDefinition(
        schema=SCHEMA, kind="view", name=view.name, columns=tuple(columns),
        depends_on=tuple(uses), sql=sql, comment=view.comment,
        definition_hash=_hash(sql), text_hash=_hash(sql),
    )  # fmt: skip


def _render_function(function: _Function) -> ObjectDefinition:
    body = f"x + {function.constant}"
    return ObjectDefinition(
        schema=SCHEMA, kind="function", name=function.name, depends_on=(),
        arguments=(Argument("x", "BIGINT"),), returns="BIGINT", body=body,
        definition_hash=_hash(body), text_hash=_hash(body),
    )  # fmt: skip


@lru_cache(maxsize=4096)
def _hash(text: str) -> str:
    return text_hash(text)


# mutations -----------------------------------------------------------------------------------
def _table(draft: _Draft) -> _Table | None:
    return draft.random.choice(list(draft.tables.values())) if draft.tables else None


def _view(draft: _Draft) -> _View | None:
    return draft.random.choice(list(draft.views.values())) if draft.views else None


def _column(
    draft: _Draft, fits: Callable[[_Table, _Column], bool]
) -> tuple[_Table, _Column] | None:
    found = [(t, c) for t in draft.tables.values() for c in t.columns[1:] if fits(t, c)]
    return draft.random.choice(found) if found else None


def _add_nullable(draft: _Draft) -> None:
    table = _table(draft)
    if table is not None:
        draft.add_column(table, nullable=True)


def _add_not_null(draft: _Draft) -> None:
    table = _table(draft)
    if table is not None:
        draft.add_column(table, nullable=False)


def _widen(draft: _Draft) -> None:
    found = _column(draft, lambda _, c: c.type == "INT" and c.using is None)
    if found:
        found[1].type = "BIGINT"


def _narrow(draft: _Draft) -> None:
    """BIGINT to INT by USING, of a column that is as old as its table and kept its name."""
    found = _column(
        draft, lambda _, c: c.type == "BIGINT" and c.initial and not c.earlier and c.using is None
    )
    if found:
        found[1].type = "INT"
        found[1].using = f"CAST({found[1].name} AS INT)"


def _relax(draft: _Draft) -> None:
    found = _column(draft, lambda _, c: not c.nullable and c.default is None)
    if found:
        found[1].nullable = True


def _rename_column(draft: _Draft) -> None:
    found = _column(draft, lambda _, c: c.using is None)
    if found:
        column = found[1]
        column.earlier = (column.name, *column.earlier)
        column.name = f"c{draft.number()}"


def _drop_column(draft: _Draft) -> None:
    found = _column(draft, lambda t, c: len(t.columns) > 2 and c.number != t.partition)
    if found:
        table, column = found
        table.columns.remove(column)
        table.dropped += [column.name, *column.earlier]


def _rename_table(draft: _Draft) -> None:
    table = _table(draft)
    if table is not None:
        table.earlier = (table.name, *table.earlier)
        table.name = f"t{draft.number()}"


def _drop_table(draft: _Draft) -> None:
    table = _table(draft)
    if table is not None and len(draft.tables) > 1:
        draft.drop_table(table)


def _drop_view(draft: _Draft) -> None:
    view = _view(draft)
    if view is not None:
        del draft.views[view.number]


def _drop_function(draft: _Draft) -> None:
    if draft.functions:
        del draft.functions[draft.random.choice(list(draft.functions))]


def _rewrite_view(draft: _Draft) -> None:
    view = _view(draft)
    if view is not None:
        view.threshold += 1


def _rewrite_function(draft: _Draft) -> None:
    if draft.functions:
        draft.functions[draft.random.choice(list(draft.functions))].constant += 1


def _change_parents(draft: _Draft) -> None:
    view = _view(draft)
    if view is not None:
        draft.choose_parents(view)


def _call_function(draft: _Draft) -> None:
    view = _view(draft)
    if view is not None and draft.functions:
        view.function = draft.random.choice(list(draft.functions))


def _comment(draft: _Draft) -> None:
    table, view = _table(draft), _view(draft)
    text = f"note {draft.number()}"
    if view is not None and draft.random.random() < 0.3:
        view.comment = text
    elif table is not None and draft.random.random() < 0.5:
        table.comment = text
    elif table is not None:
        draft.random.choice(table.columns).comment = text


def _partition(draft: _Draft) -> None:
    found = _column(draft, lambda _, c: c.type == "STRING")
    if found:
        found[0].partition = found[1].number


MUTATIONS: Mapping[str, Callable[[_Draft], None]] = {
    "add nullable column": _add_nullable,
    "add NOT NULL column": _add_not_null,
    "widen column": _widen,
    "narrow column": _narrow,
    "relax column": _relax,
    "rename column": _rename_column,
    "drop column": _drop_column,
    "rename table": _rename_table,
    "drop table": _drop_table,
    "add table": _Draft.add_table,
    "add view": _Draft.add_view,
    "drop view": _drop_view,
    "add function": _Draft.add_function,
    "drop function": _drop_function,
    "rewrite view": _rewrite_view,
    "rewrite function": _rewrite_function,
    "change parents": _change_parents,
    "call function": _call_function,
    "comment": _comment,
    "partition": _partition,
}
"""Every mutation by name."""


def draft_chain(seed: int, length: int) -> tuple[DraftedRelease, ...]:
    """``length`` releases named ``1``, ``2``, …, each one to three mutations after the last."""
    random = Random(seed)  # noqa: S311 - schedules must be repeatable, not secret
    draft = _Draft(random)
    for _ in range(random.randint(1, 3)):
        draft.add_table()
    for _ in range(random.randint(0, 1)):
        draft.add_function()
    for _ in range(random.randint(1, 3)):
        draft.add_view()
    draft.started = True
    chain = [draft.render("1", ())]
    names = list(MUTATIONS)
    for position in range(2, length + 1):
        chosen = tuple(random.sample(names, random.randint(1, 3)))
        for mutation in chosen:
            MUTATIONS[mutation](draft)
            draft.settle()
        chain.append(draft.render(str(position), chosen))
    return tuple(chain)
