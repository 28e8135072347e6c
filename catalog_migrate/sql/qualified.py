"""Whether a query is one that an earlier version of the tool wrote with all names qualified.

Such a version wrote a view's query anew by a library where a ``*`` was in it: every column behind
its relation, each item and relation with AS, functions and types in one spelling, ``USING`` as
``ON``. Those texts are in catalogs and in manifests. One of them and the query of today are held
side by side here, token by token, with a rule for each thing that was written otherwise; what no
rule explains is another query. A qualified name is explained only where the bare one can mean no
other column.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence

from catalog_migrate.errors import UnknownType
from catalog_migrate.model.types import canonical_type
from catalog_migrate.sql.references import has_star
from catalog_migrate.sql.stars import (
    Block,
    ColumnsOf,
    NotPlain,
    Query,
    Relation,
    closing_brackets,
)
from catalog_migrate.sql.tokens import Token, end_token, string_value, tokenise

_SPELLINGS = {
    "approx_percentile": "percentile_approx", "ceiling": "ceil",
    "char": "chr", "char_length": "length", "character_length": "length", "len": "length",
    "date_diff": "datediff", "ifnull": "coalesce", "nvl": "coalesce",
    "lcase": "lower", "ucase": "upper", "pow": "power", "random": "rand", "sha1": "sha",
    "signum": "sign", "substr": "substring", "var_samp": "variance", "array_agg": "collect_list",
    "reduce": "aggregate", "curdate": "current_date", "to_unix_timestamp": "unix_timestamp",
}
"""Functions that are one under two names, in every mode of Spark (a test compares their results).

``array_size`` is not ``size``, which has -1 for NULL without ANSI. No user's function may have one
of these names.
"""
_AS_CASTS = frozenset({"boolean", "date", "double", "float", "int", "string"})
"""Functions that cast. ``timestamp`` is none: spark.sql.timestampType decides what CAST makes, and
not what it does; ``to_timestamp`` takes other values without ANSI."""
_SUFFIXES = {"l": "bigint", "s": "smallint", "y": "tinyint", "d": "double", "f": "float"}
_SIGNS = {"!=": "<>", "==": "="}
_WITHOUT_ZONE = re.compile(r"\d+-\d+-\d+(?:[ T]\d+:\d+(?::\d+(?:\.\d+)?)?)?")
"""A timestamp that is read alike in a literal and in a CAST, be it with a zone or without."""
_FRAME = frozenset({"rows", "range", "preceding", "following"})
"""Keywords that were left as they were."""
_NEGATED = frozenset({"in", "between", "rlike"})
_TAKES_TRUE = frozenset({"first", "last", "first_value", "last_value"})
_BESIDE_OPERANDS = frozenset({
    "and", "or", "not", "in", "is", "like", "between", "div", "as",
})
_WITHOUT_BRACKETS = frozenset({
    "current_date", "curdate", "current_timestamp", "current_catalog", "localtimestamp",
    "session_user",
})
_READS_NAMES = frozenset({
    "struct", "named_struct", "to_json", "to_csv", "to_xml", "to_avro", "to_protobuf", "typeof",
    "to_variant_object", "schema_of_json", "schema_of_csv", "schema_of_xml", "unpivot", "map",
    "transform", "table", "stack",
})
"""Words with which the case of a name, or what a column without one is called, may be read."""
_GENERATED = re.compile(r"_col_\d+|_q?_?\d+|_[tw]")
_WRAPPED = re.compile(
    r"SELECT (?P<names>(?:`(?:[^`]|``)*`, )*`(?:[^`]|``)*`) FROM \((?P<inside>.*)\)", re.DOTALL
)
"""Columns selected by name from a query, as where it could not be written anew."""
_STARTS = frozenset({"(", ",", "by", "where", "having", "select", "when", "then", "else"})
_STOPS = frozenset({
    "", ")", ",", "as", "order", "having", "limit", "union", "from", "asc", "desc", "then", "else",
    "end",
})
_COMPARED = frozenset({"=", "==", "<>", "!=", "<", "<=", ">", ">=", "and", "or", "between"})


_SAID = frozenset({"word", "operator"})

Place = tuple[int, int]
Rule = Callable[[int, int], Iterator[Place]]
Arguments = Sequence[tuple[int, int]]


def is_qualified_form(old: str, new: str, columns_of: ColumnsOf) -> bool:
    """Return whether ``old`` is the query ``new`` as an earlier version of the tool wrote it.

    ``new`` has its ``*`` written out, ``columns_of`` gives what the relations have now.
    """
    try:
        if (wrapped := _WRAPPED.fullmatch(old)) is not None and has_star(wrapped["inside"]):
            source = Query(wrapped["inside"], columns_of)
            if not source.unresolved:
                return _texts(source.written_out()) == _texts(new) and (
                    [(name or "").lower() for name in source.main or ()]
                    == [token.name.lower() for token in tokenise(wrapped["names"])[::2]]
                )
        was = tokenise(old)
        if not _is_generated(was):
            return False
        query = _with_select_first(new, columns_of)
        if not _has_written_star(query) or _hints(old) != _hints(query.sql) or any(
            token.is_name and _GENERATED.fullmatch(token.name) for token in query.tokens
        ):
            return False
        return _Comparison(was, query).is_same()
    except (NotPlain, LookupError, RecursionError):
        return False


def may_be_qualified_form(sql: str) -> bool:
    """Return whether a text can be such a query at all, told at a glance."""
    return " AS `" in sql or _WRAPPED.fullmatch(sql) is not None


def _is_generated(old: Sequence[Token]) -> bool:
    """Whether a text can be the library's: its keywords and functions are in capitals.

    What an author wrote is no such text, and a change of it is one, however small.
    """
    return all(
        token.kind != "word" or token.text == token.text.upper() or token.value in _FRAME
        or before.is_operator(".", ")")  # a function of a schema, the alias of a LATERAL VIEW
        for before, token in zip((end_token(0), *old), old, strict=False)
    )


def _has_written_star(query: Query) -> bool:
    """Whether an item may have been written for a ``*``: a quoted name, and no alias."""
    return any(
        end - start in (1, 3) and all(
            token.kind == "quoted" for token in query.tokens[start:end:2]
        )
        for block in query.blocks for start, end in block.items
    )


def _texts(sql: str) -> list[str]:
    return [token.value for token in tokenise(sql, hints=True)]


def _hints(sql: str) -> list[str]:
    """The hints of a query, each behind the number of its SELECT."""
    found: list[str] = []
    inside, selects = False, 0
    for token in tokenise(sql, hints=True) if "/*+" in sql else ():
        selects += token.is_word("select")
        if token.is_operator("/*+"):
            inside = True
            found.append(str(selects))
        elif inside:
            found.append(token.value.lower())
            inside = not token.is_operator("*/")
    return found


def _with_select_first(sql: str, columns_of: ColumnsOf) -> Query:
    """The query, each FROM that stands before its SELECT behind the list."""
    query = Query(sql, columns_of)
    for block in query.blocks:
        begins, ends = (block.clauses.get("from") or (0, 0))
        first, last = block.clauses["select"]
        if begins < first and begins < ends:
            place = [query.at(index).start for index in (begins, first, last)]
            moved = " ".join((
                sql[: place[0]], sql[place[1] : place[2]], sql[place[0] : place[1]],
                sql[place[2] :],
            ))
            return _with_select_first(moved, columns_of)
    return query


class _Comparison:
    """Holds the tokens of two queries side by side: ``i`` counts in the old one, ``j`` in the new.

    A rule gives the places behind what it explains.
    """

    def __init__(self, old: Sequence[Token], query: Query) -> None:
        self.old = old
        self.closing = closing_brackets(old)
        self.opening = {closed: opened for opened, closed in self.closing.items()}
        self.query = query
        self.new = query.tokens
        words = {token.value for token in self.new if token.kind == "word"}
        self.exact = not words.isdisjoint(_READS_NAMES)
        self.found: dict[tuple[int, int, int], frozenset[int]] = {}
        self.calls: dict[str, Callable[[int, Arguments], Iterator[int]]] = {
            "mod": self._remainder, "named_struct": self._struct, "instr": self._located,
            "date_sub": self._added,
        }
        self.of_old: dict[str, tuple[Rule, ...]] = {
            "quoted": (self._qualifier,), "string": (self._typed_literal,),
            "cast": (self._cast, self._typed_literal), "try_cast": (self._cast,),
            "coalesce": (self._merged,), "not": (self._negated,), "as": (self._alias,),
            "on": (self._using,), "cross": (self._joined,), "values": (self._joined,),
            "except": (self._joined,), "is": (self._respelt,), ")": (self._respelt,),
        }
        self.of_new: dict[str, tuple[Rule, ...]] = {
            "quoted": (self._alias_of,), "number": (self._number,), "natural": (self._using,),
            "nulls": (self._respelt,), **dict.fromkeys(_WITHOUT_BRACKETS, (self._unbracketed,)),
            **dict.fromkeys(self.calls, (self._called,)),
        }
        """The rules that a token of the old query, or of the new one, calls for."""

    def is_same(self) -> bool:
        return len(self.old) in self.ends(0, 0, len(self.new))

    def ends(self, i: int, j: int, end: int) -> frozenset[int]:
        """Where what is old at ``i`` can end so that it is all that is new from ``j`` to ``end``.
        """
        key = (i, j, end)
        if key not in self.found:
            self.found[key] = frozenset()  # a name that stands for itself
            seen = {(i, j)}
            pending = [(i, j)]
            while pending:
                place = pending.pop()
                reached = {
                    next_ for rule in self._rules(*place) for next_ in rule(*place)
                    if next_[1] <= end
                }
                pending.extend(reached - seen)
                seen |= reached
            self.found[key] = frozenset(at for at, place in seen if place == end)
        return self.found[key]

    def _rules(self, i: int, j: int) -> Iterator[Rule]:
        old, new = self._o(i), self.query.at(j)
        yield self._token
        yield from self.of_old.get(old.value if old.kind in _SAID else old.kind, ())
        yield from self.of_new.get(new.value if new.kind in _SAID else new.kind, ())
        if new.kind == "word":
            yield self._alias_of

    def _o(self, i: int) -> Token:
        return self.old[i] if 0 <= i < len(self.old) else end_token(0)

    def _was(self, i: int, *texts: str) -> bool:
        """Whether these keywords and signs are in the old query at ``i``."""
        return all(_is(self._o(i + at), text) for at, text in enumerate(texts))

    def _now(self, j: int, *texts: str) -> bool:
        return all(_is(self.query.at(j + at), text) for at, text in enumerate(texts))

    # -- tokens and names

    def _token(self, i: int, j: int) -> Iterator[Place]:
        if i < len(self.old) and self._is_token(i, j):
            yield i + 1, j + 1

    def _is_token(self, i: int, j: int) -> bool:
        old, new = self.old[i], self.query.at(j)
        if old.is_name and new.is_name:
            return self._is_name(i, j)
        if old.kind != new.kind:
            return False
        if old.kind == "string":
            return self._is_string(i, j)
        return old.value == _SIGNS.get(new.value, new.value)

    def _is_string(self, i: int, j: int) -> bool:
        old, new = self.old[i], self.query.at(j)
        values = [string_value(each.text) for each in (old, new)]
        if self._was(i - 2, "date_trunc", "("):  # its unit was put in capitals
            values = [value.lower() for value in values]
        return old.is_string is new.is_string and values[0] == values[1]

    def _is_name(self, i: int, j: int) -> bool:
        old, new = self.old[i], self.query.at(j)
        if old.kind == "quoted":
            return self._is_column(old, new, exact=self.exact and not self._was(i + 1, "."))
        called = self._was(i + 1, "(") and self._now(j + 1, "(")
        return new.kind != "quoted" and (old.value == new.value or (
            called and not self._was(i - 1, ".") and _spelling(old.value) == _spelling(new.value)
        ))

    def _is_column(self, old: Token, new: Token, *, exact: bool) -> bool:
        left, right = old.name, new.name
        return left == right if exact else left.lower() == right.lower()

    def _path(self, i: int) -> tuple[str, str] | None:
        """The qualified column at ``i`` of the old query, folded."""
        qualifier, column = self._o(i), self._o(i + 2)
        if qualifier.kind == column.kind == "quoted" and self._was(i + 1, "."):
            return qualifier.name.lower(), column.name.lower()
        return None

    def _is_bare(self, j: int) -> bool:
        """Whether the token at ``j`` begins the name of a column."""
        return self.query.at(j).is_name and not self._now(j - 1, ".") and not self._now(j + 1, "(")

    def _qualifier(self, i: int, j: int) -> Iterator[Place]:
        path, new = self._path(i), self.query.at(j)
        if path is not None and self._is_bare(j) and (
            self._is_column(self._o(i + 2), new, exact=self.exact) and self._means(*path, j)
        ):
            yield i + 3, j + 1

    def _means(self, qualifier: str, column: str, j: int) -> bool:
        """Whether the bare column at ``j`` can be that of this relation alone."""
        block = self.query.block_at(j)
        if block is None or self._is_output(block, qualifier, column, j) or (
            block.pivot is not None and j < block.pivot
        ):
            return False
        if self._now(j + 1, ".") and column in block.aliases:
            return False  # a field of it is not told from a column of a relation
        while block is not None:
            named = [each for each in block.relations if _is_called(each, qualifier)]
            if named:
                return len(named) == 1 and _has_alone(block, named[0], column)
            if any(each.has(column) is not False for each in block.relations):
                return False
            block = block.outer
        return False

    def _is_output(self, block: Block, qualifier: str, column: str, j: int) -> bool:
        """Whether a name in a clause behind the list is that of an item, and no column itself."""
        if not any(
            start <= j < end for word, (start, end) in block.clauses.items()
            if word not in ("select", "from", "where", "group")
        ):
            return False
        return any(
            name is not None and name.lower() == column and [
                token.name.lower() for token in self.new[start:end] if token.is_name
            ] not in ([column], [qualifier, column])
            for name, (start, end) in zip(block.names, block.items, strict=False)
        )

    # -- AS

    def _alias(self, i: int, j: int) -> Iterator[Place]:
        if not self._was(i, "as") or not self._o(i + 1).is_name or self._now(j, "as"):
            return
        if self.query.at(j).is_name and not any(
            self._cast_type(opened - 1) == i for opened in self.closing
        ):
            yield i + 1, j  # AS alone is new
        name = self._o(i + 1).name.lower()
        if self._is_implied(j, name) or (
            self._ends_item(j) and (name == self._derived(i) or self._is_plain(j, name))
        ):
            yield i + 2, j

    def _is_implied(self, j: int, name: str) -> bool:
        """Whether a relation without an alias ends before ``j``, which goes by this name."""
        block = self.query.block_at(j - 1)
        return block is not None and any(
            not each.is_named and each.end == j and _is_called(each, name)
            for each in block.relations
        )

    def _is_plain(self, j: int, name: str) -> bool:
        """Whether an item that ends before ``j`` is the bare name of a column."""
        column, before = self.query.at(j - 1), self.query.at(j - 2)
        return column.is_name and column.name.lower() == name and before.value in (
            ",", "select", "distinct"
        )

    def _ends_item(self, j: int) -> bool:
        block = self.query.block_at(j - 1)
        inside = block is not None and any(ends == j for _, ends in block.items)
        return inside or self._now(j, ",") or self._now(j, ")")  # an argument of STRUCT

    def _derived(self, i: int) -> str | None:
        """The name that an item, which ends before ``i``, was given where it had none."""
        start = i
        while start > 0 and not _begins_item(self._o(start - 1)):
            start = self.opening.get(start - 1, start - 1)
        item, last = self.old[start:i], self._o(i - 1)
        if all(token.kind == "quoted" for token in item[::2]) and all(
            token.is_operator(".") for token in item[1::2]
        ):
            return last.name.lower()
        if last.is_operator("]") and self.opening[i - 1] == i - 3:
            item = self.old[i - 2 : i - 1]
        if len(item) == 1 and item[0].kind in ("string", "number"):
            literal = item[0]
            return string_value(literal.text).lower() if literal.is_string else literal.value
        return self._derived_of_call(start, i)

    def _derived_of_call(self, start: int, i: int) -> str | None:
        if self.closing.get(start + 1) == i - 1 and (inside := self._cast_type(start)) is not None:
            return self._derived(inside)
        if self._was(start + 1, ".") and self.closing.get(start + 3) == i - 1:
            return self._o(start + 2).name.lower()  # a function of a schema
        if self.exact and any(opened < i <= closed for opened, closed in self.closing.items()):
            return None  # such a name may be read
        count, at = 0, start - 1
        while at >= 0 and not self._was(at, "(") and not self._was(at, "select"):
            count += self._was(at, ",")
            at = self.opening.get(at, at) - 1
        return f"_col_{count}"

    # -- types and literals

    def _cast_type(self, i: int) -> int | None:
        """The AS of the cast at ``i`` in the old query."""
        closed = self.closing.get(i + 1)
        if closed is None or not self._o(i).is_word("cast", "try_cast"):
            return None
        found = [at for at in range(i + 2, closed) if self._was(at, "as")]
        return found[-1] if found else None

    def _cast(self, i: int, j: int) -> Iterator[Place]:
        at = self._cast_type(i)
        if at is None:
            return
        closed = self.closing[i + 1]
        kind = _type(self.old[at + 1 : closed])
        word, argument = self.query.at(j).value, self.query.closing.get(j + 1)
        if argument is not None and self._now(j, word, "("):
            inside, found = self._cast_in_call(i, j, argument)
            if found == kind and at in self.ends(i + 2, j + 2, inside):
                yield closed + 1, argument + 1
        if self._was(i, "cast"):
            yield from self._double_colon(i, j, at, kind)

    def _cast_in_call(self, i: int, j: int, argument: int) -> tuple[int, str | None]:
        """Where what a call casts ends, and the type that it casts to."""
        word = self.query.at(j).value
        if word != self._o(i).value:
            return argument, word if word in _AS_CASTS and self._was(i, "cast") else None
        types = [at for at in range(j + 2, argument) if self._now(at, "as")]
        return types[-1] if types else argument, (
            _type(self.new[types[-1] + 1 : argument]) if types else None
        )

    def _double_colon(self, i: int, j: int, at: int, kind: str | None) -> Iterator[Place]:
        index = j
        while self._is_operand(index):
            index = self.query.closing.get(index, index) + 1
            if self._now(index, "::"):
                behind = self.query.closing.get(index + 2, index + 1) + 1
                if kind == _type(self.new[index + 1 : behind]) and at in self.ends(i + 2, j, index):
                    yield self.closing[i + 1] + 1, behind
                index = behind

    def _typed_literal(self, i: int, j: int) -> Iterator[Place]:
        """``CAST('2020-01-01' AS DATE)`` for ``DATE '2020-01-01'``; the same for ``1L``."""
        new, old = self.query.at(j), self._o(i)
        if new.kind == "number" and old.is_string and self._was(i - 1, "interval") and (
            self._now(j - 1, "interval") and string_value(old.text) == new.value
        ):
            yield i + 1, j + 1
        if not self._was(i, "cast", "(") or self._cast_type(i) != i + 3:
            return
        closed = self.closing[i + 1]
        kind = _type(self.old[i + 4 : closed])
        if new.is_word("date", "timestamp") and kind == new.value and (
            self._is_token(i + 2, j + 1)
            and _WITHOUT_ZONE.fullmatch(string_value(self._o(i + 2).text))
        ):
            yield closed + 1, j + 2
        if new.kind == "number" and new.value[:-1] == self._o(i + 2).value and (
            _SUFFIXES.get(new.value[-1]) == kind
        ):
            yield closed + 1, j + 1

    def _unbracketed(self, i: int, j: int) -> Iterator[Place]:
        """``CURRENT_DATE`` for ``current_date()``."""
        word = self.query.at(j).value
        if word in _WITHOUT_BRACKETS and self._now(j, word) and self._was(i, _spelling(word)):
            was, now = self._was(i + 1, "(", ")"), self._now(j + 1, "(", ")")
            if was is not now:
                yield i + 1 + 2 * was, j + 1 + 2 * now

    # -- USING and NATURAL

    def _using(self, i: int, j: int) -> Iterator[Place]:
        if self._now(j, "natural") and not self._was(i, "natural"):
            yield i, j + 1
        block = self.query.block_at(j - 1)
        if not self._was(i, "on") or self._now(j, "on") or block is None:
            return
        for number, relation in enumerate(block.relations):
            if relation.behind == j and relation.merged:
                at = self._condition(i, relation, block.relations[:number])
                if at is not None and relation.is_natural:
                    yield at, j
                elif at is not None and self._now(j, "using"):
                    yield at, self.query.closing[j + 1] + 1

    def _condition(self, i: int, relation: Relation, before: Sequence[Relation]) -> int | None:
        """The token behind the ON at ``i`` that compares the merged columns."""
        for number, column in enumerate(relation.merged):
            left, right = self._path(i + 1), self._path(i + 5)
            if left is None or left[1] != column or right != (relation.name.lower(), column) or (
                not self._was(i, "and" if number else "on") or not self._was(i + 4, "=")
                or not any(_is_called(each, left[0]) and each.has(column) for each in before)
            ):
                return None
            i += 8
        return i

    def _merged(self, i: int, j: int) -> Iterator[Place]:
        """The column of a USING or NATURAL JOIN, as COALESCE of both."""
        first, second = self._path(i + 2), self._path(i + 6)
        block = self.query.block_at(j)
        if first is None or second is None or block is None or first[1] != second[1]:
            return
        if not self._was(i, "coalesce", "(") or self.closing[i + 1] != i + 9:
            return
        if not self._is_bare(j) or self._is_output(block, *first, j):
            return
        join = _join_of(block, first[0], second[0], second[1])
        if self.query.at(j).name.lower() == second[1] and join in ("inner", "left", "full"):
            yield i + 10, j + 1

    # -- predicates, items by number or name

    def _negated(self, i: int, j: int) -> Iterator[Place]:
        """``NOT a IS NULL`` for ``a IS NOT NULL``; IN and BETWEEN likewise."""
        if not self._was(i, "not"):
            return
        if self._now(j, "!"):
            yield i + 1, j + 1
        index = j
        while self._is_operand(index):
            index = self.query.closing.get(index, index) + 1
            is_not = self._now(index, "is", "not")
            if is_not or (self._now(index, "not") and self.query.at(index + 1).value in _NEGATED):
                for behind in self.ends(i + 1, j, index):
                    if is_not and self._was(behind, "is") and not self._was(behind + 1, "not"):
                        yield behind + 1, index + 2
                    elif not is_not and self._o(behind).value in _NEGATED:
                        yield behind, index + 1

    def _is_operand(self, j: int) -> bool:
        """Whether a token is part of an operand, not between two of them."""
        token = self.query.at(j)
        if token.kind == "operator":
            return token.text in (".", "(", "[")
        return token.kind != "end" and not token.is_word(*_BESIDE_OPERANDS)

    def _number(self, i: int, j: int) -> Iterator[Place]:
        """An item for its number in GROUP BY, its name for that in ORDER BY."""
        block, new = self.query.block_at(j), self.query.at(j)
        if block is None or not new.value.isdecimal() or new.kind != "number" or not (
            self._now(j - 1, "by") or self._now(j - 1, ",")
        ) or not 1 <= int(new.value) <= len(block.items) == len(block.names):
            return
        number = int(new.value) - 1
        if _is_in(block, "group", j):
            for at in self.ends(i, *self._expression(block, number)):
                yield at, j + 1
        name = block.names[number]
        if _is_in(block, "order", j) and self._o(i).kind == "quoted" and (
            self._o(i).name.lower() == (f"_col_{number}" if name is None else name.lower())
        ):
            yield i + 1, j + 1

    def _alias_of(self, i: int, j: int) -> Iterator[Place]:
        """An item for its name, where no column has it."""
        block, name = self.query.block_at(j), self.query.at(j).name.lower()
        if block is None or not self._is_bare(j) or self._now(j - 1, "as") or self._now(j + 1, "."):
            return
        if any(each.has(name) is not False for each in block.relations):
            return
        for first, last in self._named(block, name, j):
            for at in self.ends(i + 1, first, last) if self._was(i, "(") else ():
                if self._was(at, ")"):
                    yield at + 1, j + 1
            if self._stays_whole(self._signs(first, last), j, j + 1):
                for at in self.ends(i, first, last):
                    yield at, j + 1

    def _named(self, block: Block, name: str, j: int) -> Iterator[tuple[int, int]]:
        """The expressions that the list gives this name, of items before ``j``."""
        if len(block.items) == len(block.names):
            for number, (_, stop) in enumerate(block.items):
                if stop <= j and (block.names[number] or "").lower() == name:
                    first, last = self._expression(block, number)
                    if last < stop:
                        yield first, last

    def _expression(self, block: Block, number: int) -> tuple[int, int]:
        """Where an item begins and ends, without its alias."""
        start, end = block.items[number]
        if block.names[number] is None or end - start == 1 or self._now(end - 2, "."):
            return start, end
        return start, end - 1 - self._now(end - 2, "as")

    def _signs(self, j: int, end: int) -> frozenset[str]:
        """What is between the operands of an expression, and what follows one without a sign."""
        found, index = set(), j
        while index < end:
            token, before = self.query.at(index), self.query.at(index - 1)
            follows = token.kind != "operator" and index > j and (
                before.kind != "operator" or before.text in (")", "]")
            )
            if follows or not self._is_operand(index):
                found.add(token.value)
            index = self.query.closing.get(index, index) + 1
        return frozenset(found)

    def _stays_whole(self, signs: frozenset[str], j: int, end: int) -> bool:
        """Whether nothing beside these tokens takes apart what has these signs in their place."""
        before, behind = self.query.at(j - 1).value, self.query.at(end)
        starts, stops = _STARTS, _STOPS
        if signs <= {"*", "/", "%"}:
            starts, stops = starts | _COMPARED | {"+"}, stops | _COMPARED | {"+", "-"}
        is_alias = behind.is_name and self._ends_item(end + 1)
        return not signs or (before in starts and (is_alias or behind.value in stops))

    # -- the rest of what was written in another way

    def _joined(self, i: int, j: int) -> Iterator[Place]:
        """``CROSS JOIN`` for a comma, ``EXCEPT`` for MINUS, no brackets around VALUES."""
        if self._now(j, ",") and self._was(i, "cross", "join"):
            block = self.query.block_at(j)
            if block is not None and any(each.behind == j for each in block.relations):
                yield i + 2, j + 1
        if self._now(j, "(", "values") and self._was(i, "values"):
            closed = self.query.closing[j]
            for at in self.ends(i, j + 1, closed):
                yield at, closed + 1
        if self._was(i, "except") and self.query.is_set_operator(j) and (
            self.query.at(j).is_word("minus", "setminus")
        ):
            yield i + 1, j + 1

    def _respelt(self, i: int, j: int) -> Iterator[Place]:
        if self._now(j, "<=>") and self._was(i, "is", "not", "distinct", "from"):
            yield i + 4, j + 1
        if self._now(j, "nulls", "last" if self._was(i - 1, "desc") else "first") and (
            not self._was(i, "nulls")
        ):
            yield i, j + 2
        if self._now(j, ",", "true", ")") and self._was(i, ")", "ignore", "nulls"):
            opened = next(at for at, closed in self.query.closing.items() if closed == j + 2)
            if self.query.at(opened - 1).value in _TAKES_TRUE:
                yield i + 3, j + 3

    def _called(self, i: int, j: int) -> Iterator[Place]:
        """Functions that were written as another one, or as an operator."""
        name, closed = self.query.at(j).value, self.query.closing.get(j + 1)
        write = self.calls.get(name)
        if write is None or closed is None or not self._now(j, name, "("):
            return
        arguments = self._arguments(j + 1)
        if name == "named_struct" or len(arguments) == 2:
            for place in write(i, arguments):
                yield place, closed + 1

    def _arguments(self, j: int) -> list[tuple[int, int]]:
        """The arguments in the brackets that open at ``j``."""
        closed = self.query.closing[j]
        found, start, at = [], j + 1, j + 1
        while at <= closed:
            if at == closed or self._now(at, ","):
                found.append((start, at))
                start = at + 1
            at = self.query.closing.get(at, at) + 1
        return found

    def _remainder(self, i: int, arguments: Arguments) -> Iterator[int]:
        """``a % b`` for ``mod(a, b)``."""
        first, second = arguments
        if self._stays_whole(frozenset("%"), first[0] - 2, second[1] + 1) and not (
            self._signs(*first) | self._signs(*second)
        ):
            for at in self.ends(i, *first):
                if self._was(at, "%"):
                    yield from self.ends(at + 1, *second)

    def _located(self, i: int, arguments: Arguments) -> Iterator[int]:
        """``LOCATE(b, a)`` for ``instr(a, b)``."""
        if self._was(i, "locate", "("):
            for middle in self.ends(i + 2, *arguments[1]):
                if self._was(middle, ",") and (
                    self.closing[i + 1] in self.ends(middle + 1, *arguments[0])
                ):
                    yield self.closing[i + 1] + 1

    def _added(self, i: int, arguments: Arguments) -> Iterator[int]:
        """``DATE_ADD(a, 7 * -1)`` for ``date_sub(a, 7)``."""
        start, end = arguments[1]
        if self._was(i, "date_add", "(") and end == start + 1:
            last = self.closing[i + 1]
            if self._was(last - 3, "*", "-") and self._o(last - 1).value == "1" and (
                last - 3 in self.ends(i + 2, arguments[0][0], end)
            ):
                yield last + 1

    def _struct(self, i: int, arguments: Arguments) -> Iterator[int]:
        """``STRUCT(a AS b)`` for ``named_struct('b', a)``."""
        if not self._was(i, "struct", "("):
            return
        at = i + 2
        for (name, behind), value in zip(arguments[::2], arguments[1::2], strict=False):
            key = self.query.at(name)
            places = [
                end for end in self.ends(at, *value)
                if behind == name + 1 and key.is_string and self._was(end, "as")
                and self._o(end + 1).name == string_value(key.text)
            ]
            if not places:
                return
            at = places[0] + 3
        if len(arguments) % 2 == 0 and self.closing[i + 1] == at - 1:
            yield at


def _is(token: Token, text: str) -> bool:
    return token.kind in ("word", "operator") and token.value == text


def _begins_item(before: Token) -> bool:
    return before.is_operator(",", "(") or before.is_word("select", "distinct")


def _is_in(block: Block, clause: str, j: int) -> bool:
    start, end = block.clauses.get(clause, (0, 0))
    return start < j < end


def _spelling(function: str) -> str:
    return _SPELLINGS.get(function, function)


def _is_called(relation: Relation, name: str) -> bool:
    """Whether a relation is one of this name, which a query without one was given."""
    if relation.name or relation.is_named:
        return relation.name.lower() == name
    return re.fullmatch(r"_q?_?\d+", name) is not None


def _has_alone(block: Block, relation: Relation, column: str) -> bool:
    """Whether of the relations of a block this one has a column and no other may have it."""
    others = [each for each in block.relations if each is not relation]
    has = relation.has(column)
    if has is None:
        return not others and block.outer is None
    return has and all(each.has(column) is False for each in others if each.is_selected)


def _join_of(block: Block, first: str, second: str, column: str) -> str | None:
    """How ``second`` is joined to ``first`` where that merges a column which no other has."""
    places = {each.name.lower(): at for at, each in enumerate(block.relations)}
    if len(places) != len(block.relations) or not places.keys() >= {first, second} or (
        places[first] >= places[second]
    ):
        return None
    joined = block.relations[places[second]]
    others = [
        each for each in block.relations
        if each.is_selected and each.name.lower() not in (first, second)
    ]
    if column not in joined.merged or any(each.has(column) is not False for each in others):
        return None
    return joined.join


def _type(tokens: Sequence[Token]) -> str | None:
    text = " ".join(token.text for token in tokens)
    try:
        return canonical_type(text).lower()
    except UnknownType:
        return None
