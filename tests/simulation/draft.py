"""A release while it is drawn up: tables, views, functions and types by lasting numbers.

:mod:`tests.simulation.mutations` changes a draft, :meth:`Draft.render` spells it out as
definitions with every decision that a migration to it needs, from any earlier release of its chain.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from random import Random

import msgspec
from msgspec.structs import replace

from catalog_migrate.model.hashes import text_hash
from catalog_migrate.model.objects import Argument, Check, Column, ObjectDefinition

SCHEMAS = ("s", "z")
"""Where objects lie; most are in the first."""


class ColumnShape(msgspec.Struct, frozen=True):
    """A table's column: its lasting number, and what it is called and holds in one release."""

    number: int
    name: str
    type: str
    nullable: bool
    default: str | None


class Filling(msgspec.Struct, frozen=True):
    """Where a new table's rows come from: a table by its lasting number and name, and the numbers
    and names of its columns by those of the new one's."""

    source: int
    name: str
    columns: Mapping[int, tuple[int, str]]


class TableShape(msgspec.Struct, frozen=True):
    """A table of one release: its lasting number, name, columns in order and CHECKs by name.

    ``derived``: its rows are the application's, not the writers'. ``filled`` says where the first
    ones come from.
    """

    number: int
    name: str
    columns: tuple[ColumnShape, ...]
    derived: bool = False
    checks: tuple[tuple[str, str], ...] = ()
    filled: Filling | None = None


class DraftedRelease(msgspec.Struct, frozen=True):
    """Definitions with the oracle for rows; ``approve`` are the approvals that it needs."""

    name: str
    objects: tuple[ObjectDefinition, ...]
    tables: Mapping[int, TableShape]
    approve: tuple[str, ...]
    mutations: tuple[str, ...]

    def number_of(self, definition: ObjectDefinition) -> int:
        """The lasting number of an object: its name ends in it, unless it is a renamed table."""
        for number, shape in self.tables.items():
            if definition.kind == "table" and shape.name == definition.name:
                return number
        return int(definition.name[1:])

    def columns_of(self, definition: ObjectDefinition) -> str:
        """A table's columns in words; empty for anything else."""
        shape = next((s for s in self.tables.values() if s.name == definition.name), None)
        if shape is None or definition.kind != "table":
            return ""
        columns = ", ".join(
            f"{c.name} {c.type}{'' if c.nullable else ' NOT NULL'}" for c in shape.columns
        )
        return f"({columns}){' derived' if shape.derived else ''}"

    def less(self, without: Collection[int]) -> DraftedRelease:
        """The release without some objects, by number; ValueError when others use one of them."""
        kept = tuple(each for each in self.objects if self.number_of(each) not in without)
        left_out = {
            (each.schema, each.name) for each in self.objects if self.number_of(each) in without
        }
        for each in kept:
            for use in each.depends_on or ():
                if tuple(use.rpartition(":")[2].split(".")) in left_out:
                    raise ValueError(f"{each.key} uses {use}")
        tables = {number: shape for number, shape in self.tables.items() if number not in without}
        return replace(self, objects=kept, tables=tables)


@dataclass(slots=True)
class DraftColumn:
    """A table's column; ``alias`` is the number of the type of the release that it is of."""

    number: int
    name: str
    type: str
    nullable: bool
    initial: bool
    using: str | None = None
    default: str | None = None
    earlier: tuple[str, ...] = ()
    comment: str | None = None
    alias: int | None = None


@dataclass(slots=True)
class DraftTable:
    """A table; its first column is the key that rows are told apart by and never changes.

    ``earlier`` are its earlier names with their schemas, newest first.
    """

    number: int
    schema: str
    name: str
    columns: list[DraftColumn]
    dropped: list[str] = field(default_factory=list)
    earlier: tuple[str, ...] = ()
    comment: str | None = None
    partition: int | None = None
    checks: dict[str, str] = field(default_factory=dict)
    derived: bool = False
    was: str | None = None
    filled: Filling | None = None


@dataclass(slots=True)
class Pick:
    """One column of a view: its number and name, and the parent's column that it shows."""

    number: int
    name: str
    parent: int
    column: int


@dataclass(slots=True)
class DraftView:
    """A view of one or two relations, by their numbers."""

    number: int
    schema: str
    name: str
    parents: list[int]
    picks: list[Pick]
    function: int | None = None
    threshold: int = 0
    comment: str | None = None
    earlier: tuple[str, ...] = ()
    was: str | None = None


@dataclass(slots=True)
class DraftFunction:
    """A function of one BIGINT that adds a constant."""

    number: int
    schema: str
    name: str
    constant: int


@dataclass(slots=True)
class DraftType:
    """A type: another name for one of Spark's."""

    number: int
    schema: str
    name: str
    definition: str


@dataclass(slots=True)
class Shown:
    """A relation's column as its users see it."""

    name: str
    type: str
    nullable: bool


class Draft:
    """The chain's present state; every choice is taken from ``random``."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.last = 0
        self.tables: dict[int, DraftTable] = {}
        self.views: dict[int, DraftView] = {}
        self.functions: dict[int, DraftFunction] = {}
        self.types: dict[int, DraftType] = {}
        self.approve: list[str] = []
        self.started = False
        self.former: set[int] = set()
        """Tables of the release before, by number."""

    def number(self) -> int:
        """A number that nothing in this chain had."""
        self.last += 1
        return self.last

    def schema(self) -> str:
        """Where a new object goes."""
        return self.random.choice((SCHEMAS[0], SCHEMAS[0], SCHEMAS[1]))

    # what there is ---------------------------------------------------------------------------
    def shown(self, relation: int) -> dict[int, Shown]:
        """The columns of a relation by number, in order; less what a drop took from below it."""
        table = self.tables.get(relation)
        if table is not None:
            return {c.number: Shown(c.name, c.type, c.nullable) for c in table.columns}
        view = self.views.get(relation)
        if view is None:
            return {}
        below = {parent: self.shown(parent) for parent in view.parents}
        result = {}
        for pick in view.picks:
            seen = below[pick.parent].get(pick.column)
            if seen is not None:
                result[pick.number] = Shown(pick.name, seen.type, seen.nullable)
        return result

    def relation_name(self, relation: int) -> str:
        """The present name of a table or view, with its schema."""
        held = self.tables.get(relation) or self.views[relation]
        return f"{held.schema}.{held.name}"

    def reads(self, view: int, relation: int) -> bool:
        """Whether a relation is a view or reads it, directly or not."""
        if view == relation:
            return True
        held = self.views.get(relation)
        return held is not None and any(self.reads(view, parent) for parent in held.parents)

    # additions -------------------------------------------------------------------------------
    def add_column(self, table: DraftTable, *, nullable: bool) -> None:
        """A new column; a NOT NULL one of a table that may have rows carries its DEFAULT."""
        column = self._column(nullable)
        column.initial = not self.started
        if not nullable and self.started:
            column.default = "'new'" if column.type == "STRING" else str(self.random.randrange(9))
        table.columns.append(column)

    def _column(self, nullable: bool) -> DraftColumn:
        number = self.number()
        alias = None
        kind = self.random.choice(("INT", "BIGINT", "STRING"))
        if self.types and self.random.random() < 0.5:
            chosen = self.random.choice(list(self.types.values()))
            alias, kind = chosen.number, chosen.definition
        return DraftColumn(number, f"c{number}", kind, nullable, True, alias=alias)

    def key(self, number: int) -> DraftColumn:
        """The key of a new table."""
        return DraftColumn(self.number(), f"k{number}", "BIGINT", False, True)

    def add_table(self, *, derived: bool = False) -> DraftTable:
        """A new table with its key and one to three other columns."""
        number = self.number()
        table = DraftTable(number, self.schema(), f"t{number}", [self.key(number)])
        table.derived = derived
        for _ in range(self.random.randint(1, 3)):
            table.columns.append(self._column(self.random.random() < 0.7))
        self.tables[number] = table
        return table

    def add_filled_table(self) -> None:
        """A new table with the key and some columns of one of the release before.

        Of one that was not filled itself, and of columns that never had another name: an
        installation may skip any release.
        """
        found = [
            table for table in self.tables.values()
            if table.number in self.former
            and not (table.derived or table.earlier or table.was or table.filled)
        ]
        if not found:
            return
        source = self.random.choice(found)
        number = self.number()
        key = self.key(number)
        table = DraftTable(number, self.schema(), f"t{number}", [key])
        pairs = {key.number: (source.columns[0].number, source.columns[0].name)}
        for column in source.columns[1:]:
            if column.initial and column.nullable and not (column.earlier or column.using):
                new = DraftColumn(self.number(), "", column.type, True, True)
                new.name = f"c{new.number}"
                table.columns.append(new)
                pairs[new.number] = (column.number, column.name)
        table.filled = Filling(source.number, f"{source.schema}.{source.name}", pairs)
        self.tables[number] = table

    def add_view(self) -> None:
        """A new view of one or two relations that there are."""
        number = self.number()
        view = DraftView(number, self.schema(), f"v{number}", [], [])
        self.views[number] = view
        self.choose_parents(view)
        if not view.parents:
            del self.views[number]

    def choose_parents(self, view: DraftView) -> None:
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
                view.picks.append(Pick(pick, f"x{pick}", parent, column))

    def add_function(self) -> None:
        """A new function."""
        number = self.number()
        self.functions[number] = DraftFunction(
            number, self.schema(), f"f{number}", self.random.randrange(9)
        )

    def add_type(self) -> None:
        """A new type; columns that come later may be of it."""
        number = self.number()
        self.types[number] = DraftType(
            number, self.schema(), f"y{number}", self.random.choice(("INT", "BIGINT", "STRING"))
        )

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

    def drop_table(self, table: DraftTable) -> None:
        """Drop a table, with the approval under every name that it ever had."""
        del self.tables[table.number]
        self.approve += [f"{table.schema}.{table.name}", *table.earlier]

    # rendering -------------------------------------------------------------------------------
    def render(self, name: str, mutations: tuple[str, ...]) -> DraftedRelease:
        """The release as it stands now, in no particular order."""
        objects = [
            *(_render_type(kind) for kind in self.types.values()),
            *(_render_table(self, table) for table in self.tables.values()),
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
                table.derived,
                tuple(table.checks.items()),
                table.filled,
            )
            for table in self.tables.values()
        }
        self.former = set(self.tables)
        # where the one that is read is not there yet, the new one starts empty
        empty = (f"{t.schema}.{t.name}" for t in self.tables.values() if t.filled is not None)
        return DraftedRelease(name, tuple(objects), shapes, (*self.approve, *empty), mutations)


def _render_table(draft: Draft, table: DraftTable) -> ObjectDefinition:
    partition = next((c.name for c in table.columns if c.number == table.partition), None)
    aliases = dict.fromkeys(c.alias for c in table.columns if c.alias in draft.types)
    return ObjectDefinition(
        schema=table.schema,
        kind="table",
        name=table.name,
        columns=tuple(
            Column(
                c.name, c.type, c.nullable, using=c.using, default=c.default,
                renamed_from=c.earlier or None, comment=c.comment,
            )
            for c in table.columns
        ),
        contents="derived" if table.derived else None,
        renamed_from=table.earlier or None,
        dropped=tuple(table.dropped),
        depends_on=tuple(_type_name(draft, alias) for alias in aliases if alias is not None),
        comment=table.comment,
        was=table.was,
        partitioned_by=() if partition is None else (partition,),
        checks=tuple(Check(name, expression) for name, expression in table.checks.items()),
        filled_from=None if table.filled is None else _query(table, table.filled),
    )  # fmt: skip


def _query(table: DraftTable, filled: Filling) -> str:
    """One value for each column that there is by now."""
    items = (
        filled.columns[c.number][1] if c.number in filled.columns else c.default or "NULL"
        for c in table.columns
    )
    return f"SELECT {', '.join(items)} FROM {filled.name}"


def _type_name(draft: Draft, number: int) -> str:
    held = draft.types[number]
    return f"type:{held.schema}.{held.name}"


def _render_view(draft: Draft, view: DraftView) -> ObjectDefinition:
    below = {parent: draft.shown(parent) for parent in view.parents}
    items, columns = [], []
    for pick in view.picks:
        seen = below[pick.parent][pick.column]
        items.append(f"r{pick.parent}.{seen.name} AS {pick.name}")
        columns.append(Column(pick.name, seen.type, seen.nullable))
    uses = [draft.relation_name(parent) for parent in view.parents]
    read = ", ".join(f"{draft.relation_name(parent)} r{parent}" for parent in view.parents)
    if view.function is not None:
        function = draft.functions[view.function]
        called = f"{function.schema}.{function.name}"
        items.append(f"{called}({view.threshold}) AS y{view.number}")
        columns.append(Column(f"y{view.number}", "BIGINT", True))
        uses.append(f"function:{called}")
    sql = f"SELECT {', '.join(items)} FROM {read} WHERE {view.threshold} < 100"
    return ObjectDefinition(
        schema=view.schema, kind="view", name=view.name, columns=tuple(columns),
        renamed_from=view.earlier or None, depends_on=tuple(uses), sql=sql, comment=view.comment,
        was=view.was, definition_hash=_hash(sql), text_hash=_hash(sql),
    )  # fmt: skip


def _render_function(function: DraftFunction) -> ObjectDefinition:
    body = f"x + {function.constant}"
    return ObjectDefinition(
        schema=function.schema, kind="function", name=function.name, depends_on=(),
        arguments=(Argument("x", "BIGINT"),), returns="BIGINT", body=body,
        definition_hash=_hash(body), text_hash=_hash(body),
    )  # fmt: skip


def _render_type(kind: DraftType) -> ObjectDefinition:
    return ObjectDefinition(
        schema=kind.schema, kind="type", name=kind.name, depends_on=(), definition=kind.definition,
        definition_hash=_hash(kind.definition), text_hash=_hash(kind.definition),
    )  # fmt: skip


@lru_cache(maxsize=4096)
def _hash(text: str) -> str:
    return text_hash(text)
