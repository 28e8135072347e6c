"""Proving views against typed empty stand-ins of their parents: temporary views, nothing else.

The names of parents and functions in a body are replaced by those of the stand-ins, the result is
analysed (never run), and the analysed types are compared with the contract.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from catalog_migrate.delta import datatypes
from catalog_migrate.engine.port import (
    BindRequest,
    BindResult,
    FunctionSpec,
    contract_reason,
    fill_reason,
)
from catalog_migrate.engine.spark import statements
from catalog_migrate.engine.spark.statements import run
from catalog_migrate.engine_failures import failing
from catalog_migrate.errors import EngineFailure
from catalog_migrate.model.names import ItemName, quote_sql
from catalog_migrate.model.objects import Column
from catalog_migrate.sql.references import Occurrence, occurrences, splice
from catalog_migrate.sql.tokens import Token, tokenise

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Signature = tuple[tuple[str, str, bool], ...]
"""Names, types and nullability of a relation: relations of one signature share a stand-in."""
Names = Mapping[tuple[str, str], str]
"""Folded (schema, name) -> name of the stand-in."""

_TOGETHER = 8
"""Most bodies in one analysis: it spares statements, and its cost grows with their square."""

_serial = itertools.count(1)
_AFTER_RELATION = frozenset({
    "on", "using", "where", "group", "having", "order", "sort", "cluster", "distribute", "limit",
    "offset", "window", "qualify", "union", "except", "minus", "intersect", "join", "inner", "left",
    "right", "full", "cross", "natural", "semi", "anti", "lateral", "pivot", "unpivot",
    "tablesample", "for", "version", "timestamp", "select", "with", "set",
})  # fmt: skip


def stand_in_text(sql: str, relations: Names, functions: Names) -> str:
    """The body with parents and functions replaced by their stand-ins; lines stay where they are.

    A relation without an alias gets its bare name as one, so that ``t.x`` still resolves, and
    ``s.t.x`` becomes ``t.x``.
    """
    tokens = tokenise(sql)
    found = occurrences(tokens)
    pieces: list[tuple[int, int, str | None]] = []
    taken: set[int] = set()
    by_start = {token.start: index for index, token in enumerate(tokens)}
    for name in found:
        replacement = _replacement(name, tokens, by_start, relations, functions)
        if replacement is not None:
            pieces.append((name.start, name.end, replacement))
        taken.update(range(name.start, name.end))
    for first, second in _qualified_columns(tokens, relations, taken):
        pieces.append((first, second, ""))
    return splice(sql, sorted(pieces))


def _replacement(
    name: Occurrence, tokens: Sequence[Token], by_start: Mapping[int, int], relations: Names,
    functions: Names,
) -> str | None:
    key = name.name
    if key is None or key[0] is None or name.kind == "type":
        return None
    full = key[0], key[1]
    if name.kind == "function" or (full not in relations and full in functions):
        stand_in = functions.get(full)
        return None if stand_in is None else quote_sql(stand_in)
    stand_in = relations.get(full)
    if stand_in is None:
        return None
    index = by_start[name.start]
    while index < len(tokens) and tokens[index].start < name.end:
        index += 1
    alias = "" if _has_alias(tokens, index) else f" AS {quote_sql(name.parts[-1])}"
    return quote_sql(stand_in) + alias


def _has_alias(tokens: Sequence[Token], index: int) -> bool:
    """Whether the token behind a relation is its alias."""
    if index >= len(tokens):
        return False
    token = tokens[index]
    if token.kind == "quoted":
        return True
    return token.kind == "word" and token.text.lower() not in _AFTER_RELATION


def _qualified_columns(
    tokens: Sequence[Token], relations: Names, taken: set[int]
) -> Iterable[tuple[int, int]]:
    """Spans of ``s.`` in ``s.t.column`` where s.t is replaced."""
    for index in range(len(tokens) - 4):
        first, dot, second, dot2 = tokens[index : index + 4]
        if dot.text != "." or dot2.text != "." or first.start in taken:
            continue
        if index and tokens[index - 1].text == ".":
            continue
        if (_bare(first).lower(), _bare(second).lower()) in relations:
            yield first.start, second.start


def _bare(token: Token) -> str:
    text = token.text
    return text[1:-1].replace("``", "`") if text.startswith("`") else text


class Binding:
    """Binds on one session; remembers what it analysed for :meth:`body_types`."""

    def __init__(self, spark: SparkSession, threads: int) -> None:
        self._spark: SparkSession = spark
        self._threads = threads
        self._analysed: dict[tuple[str, str, str], tuple[str, ...]] = {}

    def body_types(self, name: ItemName, sql: str, contract: Sequence[Column]) -> tuple[str, ...]:
        """Types of a body's columns: as bound before, else analysed now against the real names."""
        known = self._analysed.get(_key(name, sql, contract))
        if known is not None:
            return known
        with failing(f"analyse the view {name}"):
            columns = self._columns(sql)
        reason = contract_reason(contract, columns)
        if reason is not None:
            raise EngineFailure(
                f"cannot create the view {name}: {reason}", condition="CANNOT_UP_CAST_DATATYPE"
            )
        return tuple(column.type for column in columns)

    def bind(self, requests: Sequence[BindRequest]) -> Sequence[BindResult]:
        """Analyse every request; stand-ins are dropped before it returns."""
        if not requests:
            return []
        stand_ins: dict[Signature, str] = {}
        functions: dict[tuple[str, str], str] = {}
        try:
            with ThreadPoolExecutor(self._threads, "bind") as pool:
                self._create_relations(requests, stand_ins, pool)
                self._create_functions(requests, stand_ins, functions)
                size = min(_TOGETHER, -(-len(requests) // self._threads))
                batches = [requests[at : at + size] for at in range(0, len(requests), size)]
                found = pool.map(lambda some: self._bind_all(some, stand_ins, functions), batches)
                return [result for results in found for result in results]
        finally:
            for view in set(stand_ins.values()):
                self._spark.catalog.dropTempView(view)
            for function in functions.values():
                with failing("drop a stand-in"):
                    run(self._spark, f"DROP TEMPORARY FUNCTION IF EXISTS {quote_sql(function)}")

    def _bind_all(
        self, requests: Sequence[BindRequest], stand_ins: Mapping[Signature, str], functions: Names,
    ) -> list[BindResult]:
        """Bodies side by side in one analysis; each for itself when they do not analyse so.

        Only the body at fault then fails, with a reason and a line of its own.
        """
        texts = [
            stand_in_text(request.view.sql, _relation_names(request, stand_ins), functions)
            for request in requests
        ]
        if len(requests) > 1:
            try:
                with failing("bind views"):
                    together = self._fields(statements.side_by_side(texts))
            except EngineFailure:
                pass  # every body is tried again by itself
            else:
                return [
                    self._compared(request, _columns(field["type"]["fields"]))
                    for request, field in zip(requests, together, strict=True)
                ]
        return [
            self._bind(request, text, _relation_names(request, stand_ins), functions)
            for request, text in zip(requests, texts, strict=True)
        ]

    def _bind(
        self, request: BindRequest, text: str, relations: Names, functions: Names
    ) -> BindResult:
        view = request.view
        try:
            with failing(f"bind {view.name}"):
                columns = self._columns(text)
        except EngineFailure as error:
            return BindResult(view.name, _readable(error, relations, functions))
        return self._compared(request, columns)

    def _compared(self, request: BindRequest, columns: Sequence[Column]) -> BindResult:
        """Analysed columns against the contract; what fits is remembered."""
        view = request.view
        if request.fills:
            return BindResult(view.name, fill_reason(view.columns, columns), columns)
        reason = contract_reason(view.columns, columns)
        if reason is None:
            self._analysed[_key(view.name, view.sql, view.columns)] = tuple(
                column.type for column in columns
            )
        return BindResult(view.name, reason, columns)

    def _columns(self, sql: str) -> Sequence[Column]:
        return _columns(self._fields(sql))

    def _fields(self, sql: str) -> Sequence[Mapping[str, Any]]:
        fields: Sequence[Mapping[str, Any]] = json.loads(
            statements.schema(self._spark, sql).json()
        )["fields"]
        return fields

    def _create_relations(
        self, requests: Sequence[BindRequest], names: dict[Signature, str],
        pool: ThreadPoolExecutor,
    ) -> None:
        """A temporary view for every relation that is read, all in ``names`` before the first."""
        from pyspark.sql.types import StructType

        wanted = {
            _signature(columns): columns
            for request in requests
            for columns in request.parents.values()
        }
        names.update({sign: f"catalog_migrate_bind_{next(_serial)}" for sign in wanted})

        def create(signature: Signature) -> None:
            columns = StructType.fromJson(datatypes.json_schema(wanted[signature], stored=False))
            with failing("create a stand-in"):
                frame = self._spark.createDataFrame([], columns)
                frame.createOrReplaceTempView(names[signature])

        list(pool.map(create, wanted))

    def _create_functions(
        self, requests: Sequence[BindRequest], stand_ins: Mapping[Signature, str],
        created: dict[tuple[str, str], str],
    ) -> None:
        """Temporary functions, those first that call no other one still missing.

        A function that never comes is left out: the views that call it then say so.
        """
        wanted: dict[tuple[str, str], FunctionSpec] = {}
        relations: dict[tuple[str, str], str] = {}
        for request in requests:
            wanted |= {function.name.folded: function for function in request.functions}
            relations |= _relation_names(request, stand_ins)
        names = {key: f"catalog_migrate_bind_{next(_serial)}" for key in wanted}
        while wanted:
            before = len(created)
            for key, function in list(wanted.items()):
                body = stand_in_text(function.body, relations, names)
                spec = FunctionSpec(function.name, function.arguments, function.returns, body)
                try:
                    with failing(f"bind the function {function.name}"):
                        run(self._spark, statements.create_function(spec, temporary_as=names[key]))
                except EngineFailure:
                    continue
                created[key] = names[key]
                del wanted[key]
            if len(created) == before:
                return


def _columns(fields: Iterable[Mapping[str, Any]]) -> Sequence[Column]:
    """Columns of a schema as Spark writes it in JSON."""
    return tuple(
        Column(field["name"], datatypes.canonical_of(field["type"]), field["nullable"])
        for field in fields
    )


def _signature(columns: Sequence[Column]) -> Signature:
    return tuple((column.name, column.type, column.nullable) for column in columns)


def _relation_names(
    request: BindRequest, stand_ins: Mapping[Signature, str]
) -> dict[tuple[str, str], str]:
    return {
        name.folded: stand_ins[_signature(columns)] for name, columns in request.parents.items()
    }


def _key(name: ItemName, sql: str, contract: Sequence[Column]) -> tuple[str, str, str]:
    return "{}.{}".format(*name.folded), sql, repr(_signature(contract))


def _readable(error: EngineFailure, relations: Names, functions: Names) -> str:
    """Spark's reason with the real names in place of the stand-ins'."""
    text = error.message.partition(": ")[2] or error.message
    for (schema, name), stand_in in {**relations, **functions}.items():
        text = text.replace(f"`{stand_in}`", f"`{schema}`.`{name}`")
        text = text.replace(stand_in, f"{schema}.{name}")
    return text
