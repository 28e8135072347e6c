"""The text of a user's object that binds again after a release: as it is written, or with the
columns and relations renamed that the release renames.

Where a text names a renamed column Spark says: it is analysed on the old shapes, with a name that
nothing else has in the place of each such column, until every place is found. What comes out is
taken only if it means on the new shapes what the original meant on the old ones.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from catalog_migrate.engine.port import (
    FunctionSpec,
    QueryAnalysis,
    QueryRequest,
    UserDefinition,
)
from catalog_migrate.model.names import ItemName, quote_sql
from catalog_migrate.model.objects import Column
from catalog_migrate.sql.references import has_star, splice
from catalog_migrate.sql.substitution import place_before
from catalog_migrate.users.asking import Analyse
from catalog_migrate.users.column_changes import Key, ShapeChanges
from catalog_migrate.users.meaning import compare_plans
from catalog_migrate.users.renaming import (
    Edit,
    Part,
    name_items,
    parts_of,
    pieces_of,
    rename_relations,
    spell,
)

_COLUMN = "catalog_migrate_column_"
_OUTPUT = "catalog_migrate_output_"
_FEWEST = 20
"""Analyses that are always allowed for; each name that may be a renamed column allows for more."""


class Repair(msgspec.Struct, frozen=True):
    """The ``sql`` of a query or body that binds again, and the columns and relations that are
    ``renamed`` in it (old name, new name); empty where it only needs to be stored again."""

    sql: str
    renamed: tuple[tuple[str, str], ...] = ()


def propose_repair(
    definition: UserDefinition, old: QueryRequest, new: QueryRequest, changes: ShapeChanges,
    analyse: Analyse,
) -> Repair | None:
    """Return a text for ``definition`` that binds on the shapes of ``new`` and means what it meant.

    ``old`` and ``new`` are the requests of its text as it is, on the shapes before and after
    ``changes``. None where no text is found for sure. Repeatable; writes nothing.
    """
    (before,) = analyse([msgspec.structs.replace(old, plan=True)])
    if before.columns is None or before.plan is None:
        return None
    search = _Search(definition, old, new, changes, analyse, before)
    if search.is_as_meant(definition.sql, as_written=True):
        return Repair(definition.sql)
    return search.renamed()


@dataclass(frozen=True, slots=True)
class _Column:
    """A renamed column, or one that is called as a renamed one was: of which relation, and its
    names."""

    relation: Key
    old: str
    new: str


@dataclass(slots=True)
class _Search:
    definition: UserDefinition
    old: QueryRequest
    new: QueryRequest
    changes: ShapeChanges
    analyse: Analyse
    before: QueryAnalysis
    columns: list[_Column] = field(init=False)
    parts: list[Part] = field(init=False)
    left: int = field(init=False)  # analyses that are still allowed
    seen: dict[str, QueryAnalysis] = field(default_factory=dict)  # on the marked shapes, by text

    def __post_init__(self) -> None:
        self.columns = list(self._list_renamed_columns())
        names = {column.old for column in self.columns}
        self.columns += self._namesakes(names)
        self.parts = [part for part in parts_of(self.definition.sql) if part.name in names]
        self.left = _FEWEST + 4 * len(self.parts)

    def _list_renamed_columns(self) -> Iterator[_Column]:
        spelt = {
            (name.folded, column.name.lower()): column.name
            for name, columns in self.new.parents.items() for column in columns or ()
        }
        read = {name.folded for name in self.old.parents}
        for key, change in sorted(self.changes.items()):
            if change.continues in read:
                for to, of in sorted(change.renamed.items()):
                    yield _Column(change.continues, of, spelt.get((key, to), to))

    def _namesakes(self, names: Collection[str]) -> Iterator[_Column]:
        """The columns of other relations that are called as renamed ones were: were they left
        alone, a name could come to mean one of them."""
        renamed = {(column.relation, column.old) for column in self.columns}
        for name, columns in self.old.parents.items():
            for column in columns or ():
                old = column.name.lower()
                if old in names and (name.folded, old) not in renamed:
                    yield _Column(name.folded, old, "")

    # -- what is accepted --------------------------------------------------------------------
    def is_as_meant(self, sql: str, *, as_written: bool = False) -> bool:
        """Whether a text binds on the new shapes, means the same and gives columns of the same
        names. ``as_written``: nothing in it is changed, so that what a ``*`` gives may come and
        go, and a column of another type is the reader's to compare as it is."""
        (after,) = self._ask([msgspec.structs.replace(self.new, sql=sql, plan=True)])
        if after.columns is None or after.plan is None or self.before.plan is None:
            return False
        assert self.before.columns is not None
        outputs = [column.name for column in self.before.columns]
        names = folded_names(after.columns)
        by_name = self.definition.kind == "view" and not self._has_own_names
        if by_name and as_written:
            outputs = [name for name in outputs if name.lower() in names]
        elif not self._gives_columns(sql, outputs, names):
            return False
        found = compare_plans(
            self.before.plan, after.plan, self.changes, outputs if by_name else None
        )
        return not found or (as_written and found.by_type)

    def _gives_columns(self, sql: str, outputs: Sequence[str], names: Sequence[str]) -> bool:
        """Whether a text that gives ``names`` gives the columns that the object is read by."""
        if self.definition.kind != "view":
            return len(names) == len(outputs)
        if self._has_own_names:  # each is called as the view has it
            return names == folded_names(self.definition.columns)
        return _is_within([name.lower() for name in outputs], names) and (
            len(outputs) == len(names) or has_star(sql)
        )

    @property
    def _has_own_names(self) -> bool:
        """Whether a view calls its columns otherwise than its query does."""
        definition = self.definition
        return bool(definition.outputs) and folded_names(definition.columns) != [
            name.lower() for name in definition.outputs
        ]

    def _ask(self, requests: Sequence[QueryRequest]) -> Sequence[QueryAnalysis]:
        self.left -= len(requests)
        return self.analyse(requests)

    # -- the search --------------------------------------------------------------------------
    def renamed(self) -> Repair | None:
        """Return the text with what is renamed called by its new names."""
        if not self.columns:
            return self._finish([])
        return self._go_on([])

    def _go_on(self, edits: list[Edit]) -> Repair | None:
        """Find the next place, and try there what it may be."""
        if self.left <= 0:
            return None
        found = self._look(edits)
        if found.columns is not None:
            return self._finish(edits)
        for part in self._places(found, edits):
            for edit in self._choices(part, edits):
                repair = self._go_on([*edits, edit]) if self._resolves(found, edit, edits) else None
                if repair is not None:
                    return repair
        return None

    def _look(self, edits: Sequence[Edit]) -> QueryAnalysis:
        """What Spark makes of the text with these edits, on the marked shapes."""
        sql = splice(self.definition.sql, pieces_of(edits))
        if sql not in self.seen:
            (self.seen[sql],) = self._ask([self._on_marked_shapes(sql)])
        return self.seen[sql]

    def _resolves(self, found: QueryAnalysis, edit: Edit, edits: Sequence[Edit]) -> bool:
        """Whether an edit leads past the name that was not found."""
        if self.left <= 0:
            return False
        after = self._look([*edits, edit])
        if after.columns is not None or after.condition != found.condition:
            return True
        if after.place is not None:
            start, end = place_before(pieces_of([*edits, edit]), *after.place)
            return not (start <= edit.start and edit.end <= end)
        return edit.name not in (after.missing or "")

    def _places(self, found: QueryAnalysis, edits: Sequence[Edit]) -> list[Part]:
        """The parts of names that may be what Spark did not find."""
        done = {edit.start for edit in edits}
        parts = [part for part in self.parts if part.start not in done]
        if found.place is not None:
            start, end = place_before(pieces_of(edits), *found.place)
            return [part for part in parts if start <= part.start and part.end <= end]
        if found.missing is None:
            return parts
        missing = {part.name for part in parts_of(found.missing)}
        return [part for part in parts if part.name in missing]

    def _choices(self, part: Part, edits: Sequence[Edit]) -> Iterator[Edit]:
        """What a part of a name may be: a renamed column, or what a query within is called."""
        quoted = self.definition.sql[part.start] == "`"
        for number, column in enumerate(self.columns):
            if column.old == part.name:
                alias = f"{_OUTPUT}{self._output(part)}" if part.is_item else None
                yield Edit(part.start, part.end, _mark(f"{_COLUMN}{number}", quoted), alias)
        output = f"{_OUTPUT}{self._output(part)}"
        if any(edit.alias == output for edit in edits):
            yield Edit(part.start, part.end, _mark(output, quoted))

    def _output(self, part: Part) -> int:
        """The number of an item's name, one for all items of that name."""
        return next(at for at, column in enumerate(self.columns) if column.old == part.name)

    def _on_marked_shapes(self, sql: str) -> QueryRequest:
        """A request on the old shapes, in which what is renamed has a name of its own."""
        marked = {
            (column.relation, column.old): f"{_COLUMN}{number}"
            for number, column in enumerate(self.columns)
        }
        parents = {
            name: None if columns is None else [
                msgspec.structs.replace(
                    column,
                    name=marked.get((name.folded, column.name.lower()), column.name),
                )
                for column in columns
            ]
            for name, columns in self.old.parents.items()
        }
        functions = [_without_body(each) for each in self.old.functions]
        return msgspec.structs.replace(self.old, sql=sql, parents=parents, functions=functions)

    def _finish(self, edits: Sequence[Edit]) -> Repair | None:
        """The text by the new names, if it is as it was meant: with no more aliases than it
        needs."""
        used = {edit.name.strip("`") for edit in edits}
        fewest = [
            edit if edit.alias is None or edit.alias in used or self._is_given(edit)
            else Edit(edit.start, edit.end, edit.name)
            for edit in edits
        ]
        for some in ([fewest] if fewest == edits else [fewest, list(edits)]):
            named = splice(
                self.definition.sql, pieces_of([self._apply_names(edit) for edit in some])
            )
            for sql in self._with_relations(named):
                if self.left > 0 and self.is_as_meant(sql):
                    return Repair(sql, tuple(sorted(self._names(edits))))
        return None

    def _is_given(self, edit: Edit) -> bool:
        """Whether an item is one of the columns that a view has."""
        return self.definition.kind == "view" and any(
            part.start == edit.start and part.depth == 0 for part in self.parts
        )

    def _apply_names(self, edit: Edit) -> Edit:
        """An edit with the names that the text is to have."""
        written = self.definition.sql[edit.start : edit.end]
        mark = edit.name.strip("`")
        if mark.startswith(_OUTPUT):
            return Edit(edit.start, edit.end, written)
        column = self.columns[int(mark.removeprefix(_COLUMN))]
        if not column.new:
            return Edit(edit.start, edit.end, written)
        alias = written if edit.alias else None
        return Edit(edit.start, edit.end, spell(column.new, written), alias)

    def _with_relations(self, sql: str) -> Iterator[str]:
        """The text by the new names of relations, and with its columns called as the view has
        them."""
        texts, renamed = [sql], self._find_renamed_relations()
        if renamed:
            texts = [
                rename_relations(sql, renamed, self.old.namespace, aliased=aliased)
                for aliased in (False, True)
            ]
        for text in dict.fromkeys(texts):
            own = self._own_names(text)
            if own is not None:
                yield own

    def _find_renamed_relations(self) -> dict[Key, ItemName]:
        """The new names of relations that are called otherwise."""
        new = {name.folded: name for name in self.new.parents}
        return {
            change.continues: new[key] for key, change in self.changes.items()
            if change.continues != key and key in new
        }

    def _own_names(self, sql: str) -> str | None:
        """The text with each column called as the view has it, where its query does not."""
        definition = self.definition
        if definition.kind != "view" or not self._has_own_names:
            return sql
        if len(definition.columns) != len(definition.outputs):
            return None
        return name_items(sql, {
            at: column.name
            for at, (column, output) in enumerate(
                zip(definition.columns, definition.outputs, strict=True)
            )
            if column.name.lower() != output.lower()
        })

    def _names(self, edits: Iterable[Edit]) -> Iterator[tuple[str, str]]:
        seen = {edit.name.strip("`") for edit in edits}
        for number, column in enumerate(self.columns):
            if column.new and f"{_COLUMN}{number}" in seen:
                yield column.old, column.new
        sql, namespace = self.definition.sql, self.old.namespace
        for key, name in self._find_renamed_relations().items():
            if rename_relations(sql, {key: name}, namespace, aliased=False) != sql:
                yield ".".join(key), str(name)


def folded_names(columns: Iterable[Column]) -> list[str]:
    """Return the names of columns as they are compared."""
    return [column.name.lower() for column in columns]


def _is_within(some: Sequence[str], names: Sequence[str]) -> bool:
    """Whether all of ``some`` are among ``names``, in their order."""
    rest: Iterator[str] = iter(names)
    return all(name in rest for name in some)


def _mark(name: str, quoted: bool) -> str:
    return quote_sql(name) if quoted else name


def _without_body(function: FunctionSpec) -> FunctionSpec:
    """A function of the same shape that reads nothing."""
    if isinstance(function.returns, str):
        body = f"CAST(NULL AS {function.returns})"
    else:
        items: Mapping[str, str] = {each.name: each.type for each in function.returns}
        body = "SELECT " + ", ".join(
            f"CAST(NULL AS {type_}) AS {quote_sql(name)}" for name, type_ in items.items()
        )
    return msgspec.structs.replace(function, body=body)
