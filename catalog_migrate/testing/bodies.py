"""What the simulated engine understands of SQL: simple SELECT bodies and column expressions.

Not a parser: bodies have the shape ``SELECT item, ... FROM s.t [alias] [JOIN ...] [WHERE ...]``,
which is what the simulation's releases and the engine's contract suite are made of.
Expressions are a column, a literal, a CAST or TRY_CAST; any other one becomes a token that is equal
for equal text over equal values, so that rows can be compared across paths without evaluating SQL.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from catalog_migrate.engine.port import (
    AnyRequest,
    BindRequest,
    BindResult,
    ExpressionRequest,
    FunctionSpec,
    QueryAnalysis,
    QueryRequest,
    UserDefinition,
    contract_reason,
    fill_reason,
)
from catalog_migrate.errors import EngineFailure
from catalog_migrate.model.names import REMEMBERED, ItemName
from catalog_migrate.model.objects import Argument, Column
from catalog_migrate.model.types import is_up_cast

Row = Mapping[str, Any]
"""One row: column name, folded, -> value."""

_NAME = r"(?:`(?:[^`]|``)+`|[A-Za-z_]\w*)"
_PATH = re.compile(rf"{_NAME}(?:\s*\.\s*{_NAME})*\Z")
_PART = re.compile(_NAME)
_CALL = re.compile(rf"({_NAME}(?:\s*\.\s*{_NAME})?)\s*\((.*)\)\Z", re.DOTALL)
_CAST = re.compile(
    r"(?:TRY_)?CAST\s*\((.*)\sAS\s+([^()]+(?:\([^()]*\))?[^()]*)\)\Z", re.I | re.DOTALL
)
_ALIAS = re.compile(rf"(.*?)\s+AS\s+({_NAME})\Z", re.I | re.DOTALL)
_SELECT = re.compile(r"\s*SELECT\s+(.*?)(?:\s+FROM\s+(.*))?\Z", re.I | re.DOTALL)
_FROM_END = re.compile(r"\s(?:WHERE|GROUP|ORDER|HAVING|LIMIT)\s", re.I)
_WHERE = re.compile(r"\sWHERE\s+(.*?)\s*\Z", re.I | re.DOTALL)
_FROM_SPLIT = re.compile(r",|\s(?:INNER\s+|LEFT\s+|CROSS\s+)?JOIN\s", re.I)
_RELATION = re.compile(
    rf"\s*({_NAME}(?:\s*\.\s*{_NAME}){{0,2}})(\(\))?(?:\s+(?:AS\s+)?(?!ON\b)({_NAME}))?", re.I
)
_STAR = re.compile(rf"(?:({_NAME})\s*\.\s*)?\*\Z")
_REFERENCE = re.compile(rf"(?<![\w.`#])(?:{_NAME}\.)?{_NAME}(?![\w.`(#])")
_QUALIFIED = re.compile(rf"(?<![.\w`])({_NAME})\.{_NAME}(?![.\w`])")
_INTEGER = re.compile(r"-?\d+\Z")
_ABOVE = re.compile(rf"\s*({_NAME})\s*>\s*(-?\d+)\s*\Z")
_STRING = re.compile(r"'((?:[^']|'')*)'\Z")
_RANGES = {"TINYINT": 2**7, "SMALLINT": 2**15, "INT": 2**31, "BIGINT": 2**63}


@dataclass(frozen=True, slots=True, eq=False)
class Body:
    """A view's text, split; the same one for the same text, so compared by identity.

    ``items`` are (expression, column name) pairs, ``relations`` what is read, by alias (one without
    a schema has an empty one, a function's rows have ``()`` behind its name), ``functions`` what is
    called, ``condition`` what stands behind WHERE, ``compared`` the columns with an alias before
    them in conditions.
    """

    items: tuple[tuple[str, str], ...]
    relations: tuple[tuple[str, ItemName], ...]
    functions: tuple[ItemName, ...] = ()
    condition: str = ""
    compared: tuple[str, ...] = ()


def _unquote(part: str) -> str:
    return part[1:-1].replace("``", "`") if part.startswith("`") else part


def _parts(path: str) -> tuple[str, ...]:
    return tuple(_unquote(part) for part in _PART.findall(path))


def _split_top(text: str) -> list[str]:
    """Split at commas that stand in no parentheses and no quotes."""
    pieces, depth, start, quote = [], 0, 0, ""
    for position, letter in enumerate(text):
        if quote:
            quote = "" if letter == quote else quote
        elif letter in "'`":
            quote = letter
        elif letter == "(":
            depth += 1
        elif letter == ")":
            depth -= 1
        elif letter == "," and depth == 0:
            pieces.append(text[start:position])
            start = position + 1
    pieces.append(text[start:])
    return [piece.strip() for piece in pieces]


@lru_cache(maxsize=REMEMBERED)
def read_body(sql: str) -> Body:
    """Split a SELECT; EngineFailure PARSE_SYNTAX_ERROR for what does not look like one."""
    match = _SELECT.match(sql.strip().rstrip(";"))
    if match is None:
        raise EngineFailure(f"cannot parse {sql!r}", condition="PARSE_SYNTAX_ERROR")
    items = list(map(_read_item, _split_top(match[1])))
    relations = list(_read_relations(sql, match[2])) if match[2] else []
    called = dict.fromkeys(name for expression, _ in items for name in _find_calls(expression))
    condition = _WHERE.search(match[2] or "")
    aliases = {alias for alias, _ in relations}
    compared = (
        found[0] for piece in re.split(r"\s(?:ON|WHERE)\s", match[2] or "", flags=re.I)[1:]
        for found in _QUALIFIED.finditer(piece) if _unquote(found[1]).lower() in aliases
    )
    return Body(
        tuple(items), tuple(relations), tuple(called), condition[1] if condition else "",
        tuple(compared),
    )


def _read_item(piece: str) -> tuple[str, str]:
    """An item of a select list, and what it is called."""
    alias = _ALIAS.match(piece)
    if alias:
        return alias[1].strip(), _unquote(alias[2])
    return piece, _parts(piece)[-1] if _PATH.match(piece) else piece


def _read_relations(sql: str, text: str) -> Iterator[tuple[str, ItemName]]:
    """What a FROM reads, by alias."""
    for piece in _FROM_SPLIT.split(_FROM_END.split(text + " ")[0]):
        relation = _RELATION.match(piece)
        if relation is None:
            raise EngineFailure(f"cannot parse {sql!r}", condition="PARSE_SYNTAX_ERROR")
        *schema, name = _parts(relation[1])
        alias = _unquote(relation[3]) if relation[3] else name
        yield alias.lower(), ItemName(schema[-1] if schema else "", name + (relation[2] or ""))


def _find_calls(expression: str) -> Iterator[ItemName]:
    """The functions with a schema that an expression calls, arguments included."""
    call = _CALL.match(expression)
    if call is None:
        return
    if "." in call[1]:
        yield ItemName(*_parts(call[1]))
    for argument in filter(None, _split_top(call[2])):
        yield from _find_calls(argument)


def analyse(
    body: Body, columns_of: Callable[[ItemName], Sequence[Column] | None],
    returns_of: Callable[[ItemName], str | None],
) -> tuple[Column, ...]:
    """The columns that a body yields.

    ``columns_of`` gives a relation's columns (None: there is no such relation), ``returns_of`` a
    function's canonical return type. EngineFailure with Spark's condition when it does not analyse.
    """
    scope: list[tuple[Column, ...]] = []
    for _, relation in body.relations:
        columns = columns_of(relation)
        if columns is None:
            function = find_row_function(relation)
            raise EngineFailure(
                f"{relation} cannot be found", missing=str(function or relation),
                condition="UNRESOLVABLE_TABLE_VALUED_FUNCTION" if function
                else "TABLE_OR_VIEW_NOT_FOUND",
            )
        scope.append(tuple(columns))
    return _analyse_body(body, tuple(scope), tuple(map(returns_of, body.functions)))


def find_row_function(relation: ItemName) -> ItemName | None:
    """The function that a relation of a body is a call of, None for a table or view."""
    schema, name = relation
    return ItemName(schema, name[:-2]) if name.endswith("()") else None


def evaluate(
    body: Body, names: Sequence[str], rows_of: Callable[[ItemName], Sequence[Row]]
) -> list[dict[str, Any]]:
    """The rows that a body over one relation gives, its values under ``names`` in their order.

    A WHERE of the form ``column > integer`` is applied, any other one is met by every row.
    EngineFailure for a body over more than one relation.
    """
    if len(body.relations) != 1:
        raise EngineFailure(
            "only bodies over one relation are evaluated", condition="UNSUPPORTED_FEATURE"
        )
    meets = compile_check(body.condition)
    compiled = [compile_expression(expression) for expression, _ in body.items]
    return [
        {name.lower(): value(row) for name, value in zip(names, compiled, strict=True)}
        for row in rows_of(body.relations[0][1]) if meets(row)
    ]


@lru_cache(maxsize=REMEMBERED)
def _analyse_body(
    body: Body, read: tuple[tuple[Column, ...], ...], returns: tuple[str | None, ...]
) -> tuple[Column, ...]:
    """:func:`analyse` with what was found: columns per relation, return types per function."""
    scope = [
        (alias, relation, columns)
        for (alias, relation), columns in zip(body.relations, read, strict=True)
    ]
    returns_of = dict(zip(body.functions, returns, strict=True)).get
    result: list[Column] = []
    for expression, name in body.items:
        star = _STAR.match(expression)
        if star is not None:
            alias = _unquote(star[1]).lower() if star[1] else None
            result.extend(
                Column(c.name, c.type, c.nullable)
                for each, _, cs in scope if alias in (None, each) for c in cs
            )
            continue
        kind, nullable = _type_of(expression, scope, returns_of)
        result.append(Column(name, kind, nullable))
    for path in body.compared:
        _resolve(_parts(path), scope)
    return tuple(result)


_LITERALS = (
    (_INTEGER, "INT"), (_STRING, "STRING"),
    (re.compile(r"(?:TRUE|FALSE)\Z", re.I), "BOOLEAN"), (re.compile(r"NULL\Z", re.I), "VOID"),
)
"""How literals are written, and their types."""


def _type_of(
    expression: str, scope: Sequence[tuple[str, ItemName, Sequence[Column]]],
    returns_of: Callable[[ItemName], str | None],
) -> tuple[str, bool]:
    """(canonical type, nullable) of an expression."""
    for pattern, kind in _LITERALS:
        if pattern.match(expression):
            return kind, kind == "VOID"
    cast = _CAST.match(expression)
    if cast:
        return cast[2].strip().upper(), _type_of(cast[1].strip(), scope, returns_of)[1]
    if _PATH.match(expression):
        column = _resolve(_parts(expression), scope)
        return column.type, column.nullable
    call = _CALL.match(expression)
    if call and "." in call[1]:
        for argument in filter(None, _split_top(call[2])):
            _type_of(argument, scope, returns_of)
        return _returned(ItemName(*_parts(call[1])), returns_of), True
    known = {c.name.lower(): c for _, _, columns in scope for c in columns}
    mentioned = [known[part.lower()] for part in _parts(expression) if part.lower() in known]
    if not mentioned:
        raise EngineFailure(
            f"cannot resolve {expression!r}", condition="UNRESOLVED_COLUMN", missing=expression
        )
    return mentioned[0].type, any(column.nullable for column in mentioned)


def _returned(function: ItemName, returns_of: Callable[[ItemName], str | None]) -> str:
    returns = returns_of(function)
    if returns is None:
        raise EngineFailure(
            f"the function {function} cannot be found", condition="UNRESOLVED_ROUTINE",
            missing=str(function),
        )
    return returns


def _resolve(
    path: Sequence[str], scope: Sequence[tuple[str, ItemName, Sequence[Column]]]
) -> Column:
    *qualifier, name = (part.lower() for part in path)
    found = [
        column
        for alias, relation, columns in scope
        if not qualifier or qualifier in ([alias], list(relation.folded))
        for column in columns
        if column.name.lower() == name
    ]
    if len(found) != 1:
        condition = "AMBIGUOUS_REFERENCE" if found else "UNRESOLVED_COLUMN.WITH_SUGGESTION"
        written = ".".join(path)
        raise EngineFailure(
            f"column {written} cannot be resolved", condition=condition, missing=written
        )
    return found[0]


@lru_cache(maxsize=REMEMBERED)
def compile_expression(expression: str) -> Callable[[Row], Any]:
    """A function from a row to the expression's value; EngineFailure while it runs on a row."""
    text = expression.strip()
    if _INTEGER.match(text):
        number = int(text)
        return lambda _: number
    string = _STRING.match(text)
    if string:
        literal = string[1].replace("''", "'")
        return lambda _: literal
    if text.upper() in _CONSTANTS:
        constant = _CONSTANTS[text.upper()]
        return lambda _: constant
    cast = _CAST.match(text)
    if cast:
        inner, target = compile_expression(cast[1].strip()), cast[2].strip().upper()
        convert = _try_cast if text[:4].upper() == "TRY_" else cast_value
        return lambda row: convert(inner(row), target)
    if _PATH.match(text):
        name = _parts(text)[-1].lower()
        return lambda row: _read(row, name)
    words = tuple(dict.fromkeys(part.lower() for part in _parts(text)))
    return lambda row: _token(text, words, row)


@lru_cache(maxsize=1024)
def compile_check(expression: str) -> Callable[[Row], bool]:
    """Whether a row meets a CHECK: ``column > integer``; NULL meets it, as in SQL.

    Any other expression is met by every row.
    """
    match = _ABOVE.match(expression)
    if match is None:
        return lambda _: True
    name, limit = _unquote(match[1]).lower(), int(match[2])

    def holds(row: Row) -> bool:
        value = row.get(name)
        return value is None or bool(value > limit)

    return holds


_CONSTANTS: Mapping[str, Any] = {"TRUE": True, "FALSE": False, "NULL": None}


def _read(row: Row, name: str) -> Any:
    try:
        return row[name]
    except KeyError as error:
        raise EngineFailure(
            f"column {name} cannot be resolved", condition="UNRESOLVED_COLUMN.WITH_SUGGESTION"
        ) from error


def _token(text: str, words: tuple[str, ...], row: Row) -> str:
    values = ",".join(f"{word}={row[word]!r}" for word in words if word in row)
    return f"<{text}|{values}>"


def _try_cast(value: Any, target: str) -> Any:
    """TRY_CAST: NULL where CAST would fail."""
    try:
        return cast_value(value, target)
    except EngineFailure:
        return None


def cast_value(value: Any, target: str) -> Any:
    """ANSI CAST: out of range and malformed numbers fail; tokens and other types pass unchanged."""
    if value is None:
        return None
    if target in _RANGES:
        if isinstance(value, str):
            if value.startswith("<"):
                return value
            try:
                value = int(value)
            except ValueError as error:
                raise EngineFailure(
                    f"{value!r} cannot be cast to {target}", condition="CAST_INVALID_INPUT"
                ) from error
        limit = _RANGES[target]
        if isinstance(value, int) and not -limit <= value < limit:
            raise EngineFailure(f"{value} overflows {target}", condition="CAST_OVERFLOW")
        return value
    if target == "STRING" and not isinstance(value, str):
        return str(value).lower() if isinstance(value, bool) else str(value)
    return value


def scalar_returns(function: FunctionSpec | None) -> str | None:
    """The type of a call as a value; None for a function that is not there."""
    if function is None:
        return None
    return function.returns if isinstance(function.returns, str) else "STRUCT"


def bind(request: AnyRequest) -> BindResult:
    """Analyse a body with its contract, or an expression of a table, against what it reads."""
    if isinstance(request, BindRequest):
        return _bind_view(request)
    if isinstance(request, ExpressionRequest):
        try:
            _require_evaluable(request)
        except EngineFailure as error:
            return BindResult(request.name, f"{error.condition}: {error.message}")
    return BindResult(request.name, None)


def _bind_view(request: BindRequest) -> BindResult:
    view = request.view
    parents = {name.folded: columns for name, columns in request.parents.items()}
    functions = {function.name.folded: function for function in request.functions}
    try:
        found = analyse(
            read_body(view.sql), lambda name: parents.get(name.folded),
            lambda name: scalar_returns(functions.get(name.folded)),
        )
    except EngineFailure as error:
        return BindResult(view.name, f"{error.condition}: {error.message}")
    fits = fill_reason if request.fills else contract_reason
    return BindResult(view.name, fits(view.columns, found), found)


def analyse_query(
    request: QueryRequest, columns_of: Callable[[ItemName], Sequence[Column] | None],
    returns_of: Callable[[ItemName], str | None],
) -> QueryAnalysis:
    """Analyse a user's text; ``columns_of`` and ``returns_of`` give what the catalog has by name.

    An error of theirs is one of the text too: what it reads cannot be read.
    """
    names = _Names(request, columns_of, returns_of)
    try:
        if request.scalar:
            value = names.value_of(request.name, request.sql, request.arguments)
            plan = f"Project [{request.sql.strip()} AS value#0]\n+- OneRowRelation"
            return QueryAnalysis((value,), plan=plan if request.plan else None)
        body = read_body(request.sql)
        found = analyse(body, names.columns, names.returns)
        read = [names.columns(name) or () for _, name in body.relations]
        plan = _plan(body, read, request.namespace)
        return QueryAnalysis(found, plan=plan if request.plan else None)
    except EngineFailure as error:
        missing = error.data.get("missing")
        return QueryAnalysis(
            None, error.condition, error.message, missing, _place(missing, request.sql)
        )


class _Names:
    """What names in a user's text stand for."""

    def __init__(
        self, request: QueryRequest, columns_of: Callable[[ItemName], Sequence[Column] | None],
        returns_of: Callable[[ItemName], str | None],
    ) -> None:
        self._namespace = request.namespace
        self._parents = {name.folded: columns for name, columns in request.parents.items()}
        self._functions = {function.name.folded: function for function in request.functions}
        self._columns_of, self._returns_of = columns_of, returns_of

    def columns(self, name: ItemName) -> Sequence[Column] | None:
        name = name if name.schema else ItemName(self._namespace, name.name)
        function = find_row_function(name)
        stand_in = None if function is None else self._functions.get(function.folded)
        if stand_in is not None and not isinstance(stand_in.returns, str):
            return stand_in.returns
        if name.folded in self._parents:
            return self._parents[name.folded]
        return self._columns_of(name)

    def returns(self, name: ItemName) -> str | None:
        if name.folded in self._functions:
            called = self._functions.pop(name.folded)  # one that calls itself is not there
            if isinstance(called.returns, str):
                self.value_of(called.name, called.body, called.arguments)
            self._functions[name.folded] = called
            return scalar_returns(called)
        return None if name.folded in self._parents else self._returns_of(name)

    def value_of(self, name: ItemName, sql: str, arguments: Sequence[Argument]) -> Column:
        scope = tuple(Column(each.name, each.type) for each in arguments)
        return Column("", *_type_of(sql.strip(), [(name.name.lower(), name, scope)], self.returns))


def _plan(body: Body, read: Sequence[Sequence[Column]], namespace: str) -> str:
    """The analysed plan of a body as Spark prints it; each relation is a leaf."""
    numbers = iter(range(10_000))
    ids = [{column.name.lower(): next(numbers) for column in columns} for columns in read]
    scopes = [
        (alias, each, columns)
        for (alias, _), each, columns in zip(body.relations, ids, read, strict=True)
    ]
    items = [
        text for item in body.items for text in _printed_items(item, scopes, numbers)
    ]
    leaves = [
        _leaf(alias, f"spark_catalog.{schema or namespace}.{name}", each)
        for (alias, (schema, name)), each in zip(body.relations, ids, strict=True)
    ]
    tree = leaves[0] if leaves else ["OneRowRelation"]
    for leaf in leaves[1:]:
        conditions = " AND ".join(f"({_printed(each, scopes)})" for each in body.compared) or "true"
        tree = [
            f"Join Inner, ({conditions})", *_below(tree, ":- ", ":  "), *_below(leaf, "+- ", "   ")
        ]
    if body.condition:
        tree = [f"Filter ({_printed(body.condition, scopes)})", *_below(tree, "+- ", "   ")]
    return "\n".join([f"Project [{', '.join(items)}]", *_below(tree, "+- ", "   ")])


_Scope = tuple[str, Mapping[str, int], Sequence[Column]]
"""An alias, the ids of its columns by folded name, and the columns."""


def _leaf(alias: str, name: str, ids: Mapping[str, int]) -> list[str]:
    columns = ", ".join(f"{column}#{number}" for column, number in ids.items())
    return [
        f"SubqueryAlias {alias}", f"+- SubqueryAlias {name}",
        f"   +- LogicalRDD [{columns}], false",
    ]


def _printed(expression: str, scopes: Sequence[_Scope]) -> str:
    """An expression with the ids behind the names of columns."""
    found = []
    for alias, ids, _ in scopes:
        for match in _REFERENCE.finditer(expression):
            *qualifier, name = (part.lower() for part in _parts(match[0]))
            if name in ids and qualifier in ([], [alias]):
                found.append((match.start(), match.end(), f"{name}#{ids[name]}"))
    for start, end, text in sorted(found, reverse=True):
        expression = expression[:start] + text + expression[end:]
    return expression


def _printed_items(
    item: tuple[str, str], scopes: Sequence[_Scope], numbers: Iterator[int]
) -> Iterator[str]:
    expression, name = item
    star = _STAR.match(expression)
    if star is not None:
        for alias, ids, columns in scopes:
            if not star[1] or _unquote(star[1]).lower() == alias:
                yield from (f"{each.name}#{ids[each.name.lower()]}" for each in columns)
        return
    text = _printed(expression, scopes)
    bare = text.partition("#")
    same = _PATH.match(bare[0]) and bare[2].isdigit() and bare[0].lower() == name.lower()
    yield text if same else f"{text} AS {name}#{next(numbers)}"


def _below(tree: Sequence[str], first: str, others: str) -> list[str]:
    return [(others if number else first) + line for number, line in enumerate(tree)]


def _place(name: str | None, sql: str) -> tuple[int, int] | None:
    """Where a name is in a text first, as a whole."""
    found = name and re.search(rf"(?<![.\w]){re.escape(name)}(?![.\w])", sql, re.I)
    return found.span() if found else None


def view_columns(view: UserDefinition, found: Sequence[Column]) -> tuple[Column, ...]:
    """The columns that a user's view has when its query gives ``found``, as its mode has it.

    EngineFailure INCOMPATIBLE_VIEW_SCHEMA_CHANGE where a column of its query is not there (so
    often) any more, CANNOT_UP_CAST_DATATYPE for BINDING.
    """
    given: dict[str, list[Column]] = {}
    for column in found:
        given.setdefault(column.name.lower(), []).append(column)
    if view.schema_mode == "EVOLUTION":
        if len(given) != len(found):
            raise EngineFailure(
                f"the query of {view.name} gives a column twice", condition="COLUMN_ALREADY_EXISTS"
            )
        return tuple(found)
    wanted = Counter(output.lower() for output in view.outputs)
    columns: list[Column] = []
    pairs: list[tuple[Column, Column]] = []
    for stored, output in zip(view.columns, view.outputs, strict=True):
        candidates = given.get(output.lower(), [])
        if len(candidates) != wanted[output.lower()]:
            raise EngineFailure(
                f"the query of {view.name} gives {len(candidates)} columns {output}",
                condition="INCOMPATIBLE_VIEW_SCHEMA_CHANGE", missing=output,
            )
        wanted[output.lower()] -= 1
        pairs.append((stored, candidates.pop(0)))
    for stored, now in pairs:
        if view.schema_mode == "BINDING" and now.type != stored.type and not is_up_cast(
            now.type, stored.type
        ):
            raise EngineFailure(
                f"column {stored.name}: {now.type} is no up-cast to {stored.type}",
                condition="CANNOT_UP_CAST_DATATYPE",
            )
        kept = now.type if view.schema_mode == "TYPE EVOLUTION" else stored.type
        columns.append(Column(stored.name, kept, now.nullable))
    return tuple(columns)


def _require_evaluable(request: ExpressionRequest) -> None:
    """EngineFailure for an expression over a column that is not there, or a default of no use."""
    text = request.sql.strip()
    if request.role == "default":
        cast_value(compile_expression(text)({}), request.type)
        return
    scope = [("", request.name, request.columns)]
    above = _ABOVE.match(text)
    path = above[1] if above else text
    while cast := _CAST.match(path):
        path = cast[1].strip()
    if _PATH.match(path) and path.upper() not in _CONSTANTS:
        found = _resolve(_parts(path), scope)
        if request.role == "check" and not above and found.type != "BOOLEAN":
            raise EngineFailure(
                f"it gives {found.type}, and a CHECK is BOOLEAN",
                condition="DELTA_NON_BOOLEAN_CHECK_CONSTRAINT",
            )
