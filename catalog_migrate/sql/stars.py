"""The ``*`` of a query: what each selects from, and the query with the columns in its place.

The blocks of a query are read on its tokens: which relations each has, under which names and with
which columns. What cannot be told (a function that makes a table, PIVOT) has no columns here, and
a ``*`` over it is not written out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from catalog_migrate.model.names import quote_sql
from catalog_migrate.sql.references import TAKES_BY, splice
from catalog_migrate.sql.tokens import Token, end_token, tokenise

Columns = tuple[str | None, ...] | None
"""The names of the columns in order, None for one that only Spark names; None: not known."""
ColumnsOf = Callable[[str, str], Sequence[str] | None]
"""The columns of a relation by its folded schema and name."""

Selected = list[tuple[str, str | None]]
"""Columns: how each is written, and its name."""

_CLAUSES = frozenset({
    "from", "where", "group", "having", "order", "sort", "cluster", "distribute", "limit", "offset",
    "window", "qualify",
})
_SETS = frozenset({"union", "except", "minus", "setminus", "intersect"})
_QUERIES = frozenset({"select", "with", "from", "values", "table"})
_BEFORE_NAME = frozenset({"select", "by", "where", "and", "or", "having"})
_OUTER = frozenset({"left", "right", "full"})
_NO_ALIAS = frozenset({
    "on", "using", "join", "natural", "inner", "cross", "left", "right", "full", "semi", "anti",
    "lateral", "pivot", "unpivot", "tablesample", "version", "timestamp", "system_version",
    "system_time", "for", "with", "minus", "setminus", "union", "except", "intersect", "watermark",
    "changes", *_CLAUSES,
})
_BEFORE_OPERAND = frozenset({
    "over", "is", "not", "and", "or", "in", "like", "rlike", "ilike", "regexp", "div", "between",
    "collate", "then", "else", "when", "case", "distinct", "all", "from", "escape", "interval",
})
_NO_NAME = frozenset({"null", "true", "false", "unknown", "end"})


class NotPlain(Exception):
    """A query whose ``*`` cannot be written out in its place."""


@dataclass(slots=True)
class Relation:
    """One relation of a FROM: ``name`` as written or implied, ``end`` the token behind it, and
    ``behind`` that behind its alias.

    ``columns`` has what a ``*`` selects, ``is_named`` whether an alias was written; the columns of
    a semi join are not selected.
    """

    name: str
    path: tuple[str, ...]
    columns: Columns
    end: int
    behind: int
    is_named: bool
    join: str = ""
    is_natural: bool = False
    merged: tuple[str, ...] = ()

    @property
    def is_selected(self) -> bool:
        return self.join not in ("semi", "anti")

    def has(self, column: str) -> bool | None:
        """Return whether it has a column, folded; None where that is not known."""
        if self.columns is None:
            return None
        return column in {each.lower() for each in self.columns if each is not None}


@dataclass(slots=True)
class Block:
    """One SELECT: the tokens that it spans, its relations, its items and where clauses begin."""

    start: int
    end: int
    outer: Block | None
    relations: list[Relation] = field(default_factory=list)
    items: list[tuple[int, int]] = field(default_factory=list)
    names: list[str | None] = field(default_factory=list)
    clauses: dict[str, tuple[int, int]] = field(default_factory=dict)
    selects_unknown: bool = False
    pivot: int | None = None

    @property
    def aliases(self) -> list[str]:
        return [each.name.lower() for each in self.relations]


class Query:
    """The blocks of a query; raises NotPlain where it cannot be followed."""

    def __init__(self, sql: str, columns_of: ColumnsOf) -> None:
        self.sql = sql
        self.columns_of = columns_of
        self.tokens: Sequence[Token] = tokenise(sql)
        self.blocks: list[Block] = []
        self.stars: list[tuple[int, int, str]] = []
        self.unresolved = False
        self.closing = closing_brackets(self.tokens)
        self.main = self._query(0, len(self.tokens), {}, None)

    # -- blocks

    def at(self, index: int) -> Token:
        return self.tokens[index] if 0 <= index < len(self.tokens) else end_token(len(self.sql))

    def block_at(self, index: int) -> Block | None:
        """Return the innermost block that the token is in."""
        inside = [block for block in self.blocks if block.start <= index < block.end]
        return min(inside, key=lambda block: block.end - block.start, default=None)

    def written_out(self) -> str:
        """Return the query with each ``*`` as columns; raises NotPlain where one is not known."""
        if self.unresolved:
            raise NotPlain
        return splice(self.sql, sorted(self.stars))

    def _query(
        self, start: int, end: int, ctes: Mapping[str, Columns], outer: Block | None
    ) -> Columns:
        """The columns of the query between two tokens."""
        ctes = dict(ctes)
        if self.at(start).is_word("with") and not self.at(start + 1).is_operator(".", ","):
            start = self._ctes(start + 1, end, ctes)
        found: list[Columns] = []
        at = start
        while True:
            behind = self._term_end(at, end)
            found.append(self._term(at, behind, ctes, outer))
            if behind >= end:
                return found[0]
            at = behind + 1
            if self.at(at).is_word("all", "distinct"):
                at += 1

    def _ctes(self, at: int, end: int, ctes: dict[str, Columns]) -> int:
        if self.at(at).is_word("recursive"):
            raise NotPlain
        while True:
            name, names = self.at(at).name, None
            at += 1
            if self.at(at).is_operator("(") and not self._opens_query(at):
                names = self._names(at)
                at = self.closing[at] + 1
            at += self.at(at).is_word("as")
            if not self.at(at).is_operator("(") or at >= end:
                raise NotPlain
            columns = self._query(at + 1, self.closing[at], ctes, None)
            ctes[name.lower()] = columns if names is None else names
            at = self.closing[at] + 1
            if not self.at(at).is_operator(","):
                return at
            at += 1

    def _term_end(self, start: int, end: int) -> int:
        """The set operator behind the term at ``start``, or the end."""
        at = start
        while at < end:
            at = self._next(at)
            if at < end and self.is_set_operator(at):
                return at
        return end

    def is_set_operator(self, at: int) -> bool:
        token, behind = self.at(at), self.at(at + 1)
        if not token.is_word(*_SETS) or self.at(at - 1).is_operator(",", "."):
            return False
        if behind.is_operator("("):
            return self.at(at - 1).text != "*" or self._opens_query(at + 1)
        return behind.is_word("all", "distinct", *_QUERIES)

    def _term(
        self, start: int, end: int, ctes: Mapping[str, Columns], outer: Block | None
    ) -> Columns:
        first = self.at(start)
        if first.is_operator("("):
            columns = self._query(start + 1, self.closing[start], ctes, outer)
            self._inside(self.closing[start] + 1, end, ctes, outer)
            return columns
        if first.is_word("select", "from"):
            return self._block(start, end, ctes, outer)
        if first.is_word("table") and self.at(start + 1).is_name:
            return self._relation(start + 1, end, ctes, None)[0].columns
        self._inside(start, end, ctes, outer)
        return None

    def _block(
        self, start: int, end: int, ctes: Mapping[str, Columns], outer: Block | None
    ) -> Columns:
        block = Block(start, end, outer)
        self.blocks.append(block)
        at: int | None = start
        bounds: list[tuple[str, int]] = []
        while at is not None and at < end:
            if word := self._clause(at, start):
                if word in block.clauses:
                    raise NotPlain
                bounds.append((word, at))
                block.clauses[word] = (at, end)
            elif self.at(at).is_operator("|>"):
                raise NotPlain
            at = self._next(at)
        if "select" not in block.clauses:
            raise NotPlain
        for (word, begins), following in zip(
            bounds, [*(at for _, at in bounds[1:]), end], strict=True
        ):
            block.clauses[word] = (begins, following)
        if "from" in block.clauses:
            begins, ends = block.clauses["from"]
            self._from(begins + 1, ends, ctes, block)
        begins, ends = block.clauses["select"]
        self._items(begins + 1, ends, block)
        for word, (begins, ends) in block.clauses.items():
            if word != "from":
                self._inside(begins, ends, ctes, block)
        return None if block.selects_unknown else tuple(block.names)

    def _clause(self, at: int, start: int) -> str:
        """The clause that opens at a token, if one does: most of these words may be names too."""
        token, before, behind = self.at(at), self.at(at - 1), self.at(at + 1)
        if token.kind != "word" or behind.is_operator(".", ",", ")"):
            return ""
        if at == start or token.value == "select":
            return token.value if token.value in ("select", "from") else ""
        if before.is_operator(".", ",") or before.is_word("as"):
            return ""
        if token.value in TAKES_BY:
            return token.value if behind.is_word("by") else ""
        return token.value if token.value in _CLAUSES and not self._awaits_operand(at) else ""

    def _awaits_operand(self, at: int) -> bool:
        """Whether an operand must follow what is before a token; so it does IS DISTINCT FROM."""
        before, second = self.at(at - 1), self.at(at - 2)
        return (before.is_word(*_BEFORE_NAME) and not second.is_word("as")) or (
            before.is_word("distinct") and second.is_word("is", "not")
        )

    def _inside(
        self, start: int, end: int, ctes: Mapping[str, Columns], block: Block | None
    ) -> None:
        """Read the queries in brackets between two tokens."""
        at = start
        while at < end:
            if self.at(at).is_operator("(") and self._opens_query(at):
                self._query(at + 1, self.closing[at], ctes, block)
                at = self.closing[at]
            elif self.at(at).is_operator("*") and self._is_star(at):
                self.unresolved |= not any(place[0] <= self.at(at).start < place[1]
                                           for place in self.stars)
            at += 1

    def _is_star(self, at: int) -> bool:
        """Whether a ``*`` stands for columns and no product; COUNT has its own."""
        before = self.at(at - 1)
        if before.is_operator("(") and self.at(at + 1).is_operator(")"):
            return not self.at(at - 2).is_word("count")
        return before.is_operator(".", ",", "(") or before.is_word("select", "distinct", "all")

    def _opens_query(self, at: int) -> bool:
        first = at
        while self.at(first).is_operator("("):
            first += 1
        behind = self.at(first + 1)
        return self.at(first).is_word(*_QUERIES) and not behind.is_operator(",", ")", ".") and (
            self.at(first).value != "values" or first == at + 1
        )

    def _next(self, at: int) -> int:
        """The token behind this one, or behind the brackets that it opens."""
        return self.closing.get(at, at) + 1

    def _names(self, at: int) -> tuple[str, ...]:
        """The names that a list in brackets has, and nothing else."""
        inside = self.tokens[at + 1 : self.closing[at]]
        if not all(token.is_name for token in inside[::2]) or len(inside) % 2 == 0 or not all(
            token.is_operator(",") for token in inside[1::2]
        ):
            raise NotPlain
        return tuple(token.name for token in inside[::2])

    # -- relations

    def _from(self, at: int, end: int, ctes: Mapping[str, Columns], block: Block) -> None:
        join, natural = "", False
        while at < end:
            if self.at(at).is_word("lateral") and self.at(at + 1).is_word("view"):
                at = self._view(at + 2, end, ctes, block)
                continue
            at += self.at(at).is_word("lateral")
            relation, at = self._relation(at, end, ctes, block)
            relation.join, relation.is_natural = join, natural
            if natural:
                relation.merged = _shared(block.relations, relation)
            block.relations.append(relation)
            at = self._condition(at, end, ctes, block)
            if at < end and self.at(at).is_word("pivot", "unpivot"):
                block.pivot = at
                self._inside(at, end, ctes, block)
                return
            join, natural, at = self._join(at, end)

    def _condition(self, at: int, end: int, ctes: Mapping[str, Columns], block: Block) -> int:
        """The token behind ON or USING."""
        if at < end and self.at(at).is_word("using"):
            block.relations[-1].merged = tuple(name.lower() for name in self._names(at + 1))
            return self.closing[at + 1] + 1
        if self.at(at).is_word("on"):
            begins = at
            while at < end and not self._joins(at):
                at = self._next(at)
            self._inside(begins, at, ctes, block)
        return at

    def _join(self, at: int, end: int) -> tuple[str, bool, int]:
        """How the next relation is joined, whether by NATURAL, and the token behind that."""
        join, natural = "inner", False
        if self.at(at).is_operator(","):
            return "", natural, at + 1
        while at < end and not self.at(at).is_word("join", "lateral"):
            word = self.at(at).value
            natural |= word == "natural"
            if word in (*_OUTER, "semi", "anti"):
                join = word
            elif word not in ("natural", "inner", "cross", "outer"):
                raise NotPlain
            at += 1
        return join, natural, at + self.at(at).is_word("join")

    def _joins(self, at: int) -> bool:
        token, behind = self.at(at), self.at(at + 1)
        if token.is_operator(","):
            return True
        if self.at(at - 1).is_operator("."):
            return False
        return token.is_word("join") or (
            token.is_word("natural", "inner", "cross", "pivot", "unpivot", *_OUTER, "semi", "anti")
            and behind.is_word("join", "outer", "semi", "anti", "inner", *_OUTER)
        ) or (token.is_word("lateral") and behind.is_word("view")) or (
            token.is_word("pivot", "unpivot") and behind.is_operator("(")
        )

    def _relation(
        self, at: int, end: int, ctes: Mapping[str, Columns], block: Block | None
    ) -> tuple[Relation, int]:
        """A relation with its alias, and the token behind them."""
        path: tuple[str, ...] = ()
        columns: Columns = None
        if self.at(at).is_operator("(") and self._opens_query(at):
            outer = block.outer if block is not None else None
            lateral = self.at(at - 1).is_word("lateral")
            closed = self.closing[at]
            columns = self._query(at + 1, closed, ctes, block if lateral else outer)
            at = closed + 1
        elif self.at(at).is_word("values"):
            begins = at
            at += 1
            while at < end and not self.at(at).is_name:
                at = self._next(at)
            self._inside(begins, at, ctes, block)
        elif self.at(at).is_name:
            path, at = self._path(at)
            if self.at(at).is_operator("("):
                self._inside(at, self.closing[at], ctes, block)
                path, at = (), self.closing[at] + 1
            else:
                columns = self._columns(path, ctes)
        else:
            raise NotPlain  # joins in brackets
        at = self._sampled(at, end)
        relation = Relation(path[-1] if path else "", path, columns, at, at, is_named=False)
        if at < end:
            self._name(relation)
        return relation, relation.behind

    def _name(self, relation: Relation) -> None:
        """Read the alias of a relation and of its columns."""
        at = relation.end
        if self.at(at).is_word("as") or self._is_alias(at):
            at += self.at(at).is_word("as")
            relation.name, relation.is_named = self.at(at).name, True
            at += 1
            if self.at(at).is_operator("("):
                relation.columns = self._names(at)
                at = self.closing[at] + 1
        relation.behind = at

    def _path(self, at: int) -> tuple[tuple[str, ...], int]:
        path = [self.at(at).name]
        while self.at(at + 1).is_operator("."):
            at += 2
            path.append(self.at(at).name)
        return tuple(path), at + 1

    def _is_alias(self, at: int) -> bool:
        return self.at(at).is_name and not self.at(at).is_word(*_NO_ALIAS)

    def _sampled(self, at: int, end: int) -> int:
        """Behind TABLESAMPLE and AS OF, which may follow the name of a relation."""
        while at < end and self.at(at).is_word("tablesample", "version", "timestamp"):
            if self.at(at).is_word("tablesample"):
                if not self.at(at + 1).is_operator("("):
                    raise NotPlain
                at = self.closing[at + 1] + 1
            elif self.at(at + 1).is_word("as") and self.at(at + 2).is_word("of"):
                at += 4
            else:
                break
        return at

    def _columns(self, path: Sequence[str], ctes: Mapping[str, Columns]) -> Columns:
        folded = [part.lower() for part in path]
        if len(folded) == 1:
            return ctes.get(folded[0])
        if len(folded) == 3 and folded[0] == "spark_catalog":
            del folded[0]
        if len(folded) != 2:
            return None
        found = self.columns_of(folded[0], folded[1])
        return None if found is None else tuple(found)

    def _view(self, at: int, end: int, ctes: Mapping[str, Columns], block: Block) -> int:
        """A LATERAL VIEW: the token behind it."""
        at += self.at(at).is_word("outer")
        while at < end and not self.at(at).is_operator("("):
            at += 1
        if at >= end:
            raise NotPlain
        self._inside(at, self.closing[at], ctes, block)
        at = self.closing[at] + 1
        name, columns = "", []
        if self._is_alias(at) and at < end:
            name = self.at(at).name
            at += 1
        if self.at(at).is_word("as") and at < end:
            while at < end and self.at(at).is_word("as") | self.at(at).is_operator(","):
                columns.append(self.at(at + 1).name)
                at += 2
        block.relations.append(Relation(name, (), tuple(columns) or None, at, at, is_named=True))
        return at

    # -- items

    def _items(self, at: int, end: int, block: Block) -> None:
        at += self.at(at).is_word("distinct", "all") and not self.at(at + 1).is_operator(",")
        while at < end:
            begins = at
            while at < end and not self.at(at).is_operator(","):
                at = self._next(at)
            block.items.append((begins, at))
            block.names.extend(self._item(begins, at, block))
            at += 1

    def _item(self, start: int, end: int, block: Block) -> Sequence[str | None]:
        """The names of an item's columns; a ``*`` is noted with what is to stand for it."""
        star = start
        if self.at(start).is_name and self.at(start + 1).is_operator("."):
            star = min(self._path(start)[1] - 1, end - 1)
        if self.at(star).is_operator("*") and (
            star + 1 == end or self.at(star + 1).is_word("except")
        ):
            return self._star(start, star, end, block)
        last, before = self.at(end - 1), self.at(end - 2)
        if not last.is_name or last.is_word(*_NO_NAME):
            return (None,)
        if end - start == 1 or before.is_operator(".") or before.is_word("as"):
            return (last.name,)
        if any(token.is_word("interval") for token in self.tokens[start:end]):
            return (None,)  # the unit of one is no alias
        return (last.name if self._ends_operand(end - 2) else None,)

    def _ends_operand(self, at: int) -> bool:
        token = self.at(at)
        return token.text in (")", "]") or (
            token.kind in ("word", "quoted", "string", "number")
            and not token.is_word(*_BEFORE_OPERAND)
        )

    def _star(self, start: int, star: int, end: int, block: Block) -> Sequence[str | None]:
        qualifier = [token.name.lower() for token in self.tokens[start:star] if token.is_name]
        selected = self._selected(qualifier, block) if block.pivot is None else []
        if star + 1 < end:
            selected = self._without(selected, star + 2, end)
        if not selected or any(name is None for _, name in selected):
            self.unresolved = block.selects_unknown = True
            return (None,)
        self.stars.append((
            self.at(start).start, self.at(end - 1).end, ", ".join(text for text, _ in selected)
        ))
        return [name for _, name in selected]

    def _without(self, selected: Selected, at: int, end: int) -> Selected:
        """What is selected less the EXCEPT (...) at a token."""
        left_out = {name.lower() for name in self._names(at)}
        if self.closing[at] + 1 != end or not left_out <= {
            (name or "").lower() for _, name in selected
        }:
            raise NotPlain
        return [each for each in selected if (each[1] or "").lower() not in left_out]

    def _selected(self, qualifier: Sequence[str], block: Block) -> Selected:
        """What ``*`` or ``qualifier.*`` stands for; nothing where that is not known."""
        if qualifier:
            named = [
                each for each in block.relations if each.name.lower() == qualifier[-1] and (
                    len(qualifier) == 1
                    or [part.lower() for part in each.path[-len(qualifier) :]] == qualifier
                )
            ]
            return _select_columns(named[0], block) if len(named) == 1 else []
        found: Selected = []
        for number, relation in enumerate(block.relations):
            if relation.merged and not all(each.join for each in block.relations[1:number]):
                raise NotPlain  # a setting decides what a comma binds to
            if not relation.is_selected:
                found = _put_merged_first(found, relation.merged)
                continue
            columns = _columns_of(relation, block)
            if not columns:
                return []
            found = _merge(found, columns, relation.merged)
        return found


def _columns_of(relation: Relation, block: Block) -> Selected:
    names = [name.lower() for name in relation.columns or () if name is not None]
    if len(set(names)) != len(names):
        raise NotPlain
    return [(_qualified(relation, name, block), name) for name in relation.columns or ()]


def _select_columns(relation: Relation, block: Block) -> Selected:
    """What a ``*`` behind the name of a relation stands for."""
    columns = _columns_of(relation, block)
    merges = [number for number, each in enumerate(block.relations) if each.merged]
    taking = [
        number for number in merges
        if any(relation.has(name) is not False for name in block.relations[number].merged)
        and relation in block.relations[: number + 1]
    ]
    if not taking:
        return columns
    number, merged = merges[0], block.relations[merges[0]].merged
    before = [each for each in block.relations[:number] if each.is_selected]
    if len(merges) > 1 or any(
        sum(each.has(name) is not False for each in before) != 1 for name in merged
    ):
        raise NotPlain
    return _put_merged_first(columns, merged)


def _put_merged_first(selected: Selected, merged: Sequence[str]) -> Selected:
    """What is selected, the columns that a join merges before the others, as Spark has them."""
    names = [(name or "").lower() for _, name in selected]
    if any(names.count(name) != 1 for name in merged):
        raise NotPlain
    return [
        *(selected[names.index(name)] for name in merged),
        *(each for each, name in zip(selected, names, strict=True) if name not in merged),
    ]


def _merge(found: Selected, columns: Selected, merged: Sequence[str]) -> Selected:
    """What is selected of a join: first the columns that it merges, each once."""
    left, right = (_put_merged_first(side, merged) for side in (found, columns))
    count = len(merged)
    return [
        *((quote_sql(name or ""), name) for _, name in left[:count]), *left[count:], *right[count:],
    ]


def _qualified(relation: Relation, name: str | None, block: Block) -> str:
    """How a column of a relation is written where the block may have others of its name."""
    column = quote_sql(name or "")
    others = [each for each in block.relations if each is not relation]
    if not relation.name:
        if name is not None and any(each.has(name.lower()) is not False for each in others):
            raise NotPlain
        return column
    if any(each.name.lower() == relation.name.lower() for each in others):
        raise NotPlain
    return f"{quote_sql(relation.name)}.{column}"


def _shared(before: Sequence[Relation], relation: Relation) -> tuple[str, ...]:
    """The columns that a NATURAL JOIN compares, folded, in the order of what is before it."""
    if relation.columns is None or any(each.columns is None for each in before):
        raise NotPlain
    if any(each.merged for each in before):
        raise NotPlain  # which changed the order of its columns
    own = {name.lower() for name in relation.columns if name is not None}
    shared = dict.fromkeys(
        name.lower() for each in before if each.is_selected for name in each.columns or ()
        if name is not None and name.lower() in own
    )
    return tuple(shared)


def closing_brackets(tokens: Sequence[Token]) -> dict[int, int]:
    """Return which bracket closes each opening one; raises NotPlain where one is missing."""
    closing: dict[int, int] = {}
    pending: list[int] = []
    for index, token in enumerate(tokens):
        if token.kind == "error" or token.kind == "variable":
            raise NotPlain
        if token.kind != "operator":
            continue
        if token.text in ("(", "["):
            pending.append(index)
        elif token.text in (")", "]"):
            if not pending:
                raise NotPlain
            closing[pending.pop()] = index
    if pending:
        raise NotPlain
    return closing


def write_stars_out(sql: str, columns_of: ColumnsOf) -> str | None:
    """Return ``sql`` with the columns in place of each ``*``; None where one is not known."""
    try:
        return Query(sql, columns_of).written_out()
    except (NotPlain, LookupError, RecursionError):
        return None
