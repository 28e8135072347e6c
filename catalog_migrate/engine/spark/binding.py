"""Proving texts of a release against typed empty stand-ins of what they read.

A body over stand-ins (:mod:`catalog_migrate.engine.spark.stand_ins`) is analysed, never run, and
the analysed types are compared with the contract.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from catalog_migrate.delta import datatypes
from catalog_migrate.engine.port import (
    AnyRequest,
    BindRequest,
    BindResult,
    ExpressionRequest,
    FunctionRequest,
    FunctionSpec,
    ShardSpec,
    contract_reason,
    fill_reason,
)
from catalog_migrate.engine.spark import statements
from catalog_migrate.engine.spark.connect import is_connect
from catalog_migrate.engine.spark.stand_ins import (
    Signature,
    create_function,
    create_relation,
    drop_afterwards,
    new_name,
    real_names,
    signature,
)
from catalog_migrate.engine.spark.statements import ROW, VALUE, BodyColumn, run
from catalog_migrate.engine_failures import failing
from catalog_migrate.errors import EngineFailure
from catalog_migrate.model.names import ItemName, quote_sql
from catalog_migrate.model.objects import Column
from catalog_migrate.sql.references import occurrences
from catalog_migrate.sql.substitution import Names, replace_names
from catalog_migrate.sql.tokens import tokenise

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_TOGETHER = 8
"""Most bodies in one analysis: it spares statements, and its cost grows with their square."""


class Binding:
    """Binds on one session; remembers what it analysed for :meth:`body_columns`."""

    def __init__(self, spark: SparkSession, threads: int) -> None:
        self._spark: SparkSession = spark
        self._threads: int = threads
        self._analysed: dict[tuple[str, str, str], tuple[BodyColumn, ...]] = {}

    def body_columns(
        self, name: ItemName, sql: str, contract: Sequence[Column]
    ) -> tuple[BodyColumn, ...]:
        """The columns of a body: as bound before, else analysed now against the real names."""
        known = self._analysed.get(_key(name, sql, contract))
        if known is not None:
            return known
        with failing(f"analyse the view {name}"):
            fields = self._fields(sql)
        reason = contract_reason(contract, _columns(fields))
        if reason is not None:
            raise EngineFailure(
                f"cannot create the view {name}: {reason}", condition="CANNOT_UP_CAST_DATATYPE"
            )
        return _body_columns(fields)

    def bind(self, requests: Sequence[AnyRequest]) -> Sequence[BindResult]:
        """Analyse every request; stand-ins are dropped before it returns."""
        if not requests:
            return []
        names = StandIns()
        views, functions = names.relations.values(), names.functions.values()
        with (
            drop_afterwards(self._spark, views, functions),
            ThreadPoolExecutor(self._threads, "bind") as pool,
        ):
            self._create_relations(requests, names, pool)
            self._create_functions(requests, names)
            temporary = self._temporary_functions() - set(names.functions.values())
            size = min(_TOGETHER, -(-len(requests) // self._threads))
            batches = [requests[at : at + size] for at in range(0, len(requests), size)]
            found = pool.map(lambda some: self._bind_all(some, names, temporary), batches)
            return [result for results in found for result in results]

    def _bind_all(
        self, requests: Sequence[AnyRequest], names: StandIns, temporary: Collection[str]
    ) -> list[BindResult]:
        """What each request comes to, its texts side by side with the others' where they can be."""
        results: dict[int, BindResult] = {}
        texts: dict[int, str] = {}
        for number, request in enumerate(requests):
            reason = _find_refused_call(request, temporary)
            if isinstance(request, FunctionRequest):
                failure = names.failures.get(request.name.folded)
                reason = reason or (None if failure is None else self._readable(failure, names))
                results[number] = BindResult(request.name, reason)
            elif reason is not None:
                results[number] = BindResult(request.name, reason)
            else:
                texts[number] = _query(request, names)
        results |= self._analyse(requests, texts, names)
        defaults = [
            number for number in texts
            if results[number].reason is None and _role(requests[number]) == "default"
        ]
        results |= self._evaluate(requests, defaults)
        generated = [
            number for number in texts
            if results[number].reason is None and _role(requests[number]) == "generated"
        ]
        results |= self._try_by_delta(requests, generated)
        return [results[number] for number in range(len(requests))]

    def _analyse(
        self, requests: Sequence[AnyRequest], texts: Mapping[int, str], names: StandIns
    ) -> dict[int, BindResult]:
        """Texts side by side in one analysis; each for itself when they do not analyse so.

        Only the text at fault then fails, with a reason and a line of its own.
        """
        if len(texts) > 1:
            try:
                with failing("bind"):
                    together = self._fields(statements.side_by_side([*texts.values()]))
            except EngineFailure:
                pass  # every text is tried again by itself
            else:
                return {
                    number: self._compare(requests[number], field["type"]["fields"])
                    for number, field in zip(texts, together, strict=True)
                }
        found = {}
        for number, text in texts.items():
            request = requests[number]
            try:
                with failing(f"bind {request.name}"):
                    fields = self._fields(text)
            except EngineFailure as error:
                found[number] = BindResult(request.name, self._reason(request, error, names))
            else:
                found[number] = self._compare(request, fields)
        return found

    def _reason(self, request: AnyRequest, error: EngineFailure, names: StandIns) -> str:
        """Why a text does not bind; for an expression in its own words, not the trial's."""
        if not isinstance(request, ExpressionRequest):
            return self._readable(error, names)
        return _PLACE.sub("", self._reason_of(request, error, names))

    def _reason_of(
        self, request: ExpressionRequest, error: EngineFailure, names: StandIns
    ) -> str:
        if request.role not in _EVERY_WRITER:
            return self._readable(error, names)
        relation = names.relations[signature(request.columns)]
        try:
            with failing("bind"):
                plain = f"SELECT ({request.sql}\n) AS {VALUE} FROM {quote_sql(relation)} AS {ROW}"
                (field,) = self._fields(plain)
        except EngineFailure as refused:
            return self._readable(refused, names)
        found = datatypes.canonical_of(field["type"])
        if request.role == "check" and found != "BOOLEAN":
            return f"it gives {found}, and a CHECK is BOOLEAN"
        why = _REFUSED.get((error.condition or "").partition(".")[0])
        return f"[{error.condition}] {why}" if why else self._readable(error, names)

    def _readable(self, error: EngineFailure, names: StandIns) -> str:
        """Spark's reason with the real names in place of the stand-ins'."""
        text = error.reason or error.message
        text = text.replace(f"`{ROW}`.", "").replace(f"{ROW}.", "")
        for (schema, name), stand_in in names.refused.items():
            if real_names(text, {stand_in: (schema, name)}) != text:
                return f"it calls {schema}.{name}, which does not bind"
        return real_names(text, {
            stand_in: name for name, stand_in in (*names.functions.items(), *names.readers.items())
        })

    def _compare(self, request: AnyRequest, fields: Sequence[Mapping[str, Any]]) -> BindResult:
        """Analysed columns against what they are to be; what fits of a view is remembered."""
        columns = _columns(fields)
        if isinstance(request, BindRequest):
            view = request.view
            if request.fills:
                return BindResult(view.name, fill_reason(view.columns, columns), columns)
            reason = contract_reason(view.columns, columns)
            if reason is None:
                self._analysed[_key(view.name, view.sql, view.columns)] = _body_columns(fields)
            return BindResult(view.name, reason, columns)
        assert isinstance(request, ExpressionRequest)
        found, reason = columns[0].type, None
        if request.role == "check" and found != "BOOLEAN":
            reason = f"it gives {found}, and a CHECK is BOOLEAN"
        elif request.role == "generated":
            wanted = _plain(request.type)
            if _plain(found) != wanted:
                reason = f"it gives {found}, and the column is {request.type}: write a CAST"
        return BindResult(request.name, reason)

    def _try_by_delta(
        self, requests: Sequence[AnyRequest], generated: Sequence[int]
    ) -> dict[int, BindResult]:
        """Generated columns as Delta takes them, those of a table in one CREATE.

        It tells only when a table is created: on a directory that goes again, where this process
        and the driver have one. Through Spark Connect they have none, and nothing is proven.
        """
        if is_connect(self._spark):
            return {
                at: BindResult(requests[at].name, None, proven=False) for at in generated
            }
        tables: dict[tuple[str, str], list[tuple[int, ExpressionRequest]]] = {}
        for at in generated:
            request = requests[at]
            assert isinstance(request, ExpressionRequest)
            tables.setdefault(request.name.folded, []).append((at, request))
        found = {}
        for asked in tables.values():
            if len(asked) > 1 and self._find_delta_refusal([one for _, one in asked]) is None:
                continue
            for at, request in asked:
                reason = self._find_delta_refusal([request])
                if reason is not None:
                    found[at] = BindResult(request.name, reason)
        return found

    def _find_delta_refusal(self, requests: Sequence[ExpressionRequest]) -> str | None:
        """Why Delta does not take expressions of one table for generated columns."""
        names = [f"{VALUE}_{number}" for number in range(len(requests))]
        generated = [
            Column(name, request.type, generated=request.sql)
            for name, request in zip(names, requests, strict=True)
        ]
        with TemporaryDirectory(prefix="catalog-migrate-") as scratch:
            shard = ShardSpec(f"file:{scratch}/table", [*requests[0].columns, *generated])
            try:
                with failing("create a table"):
                    run(self._spark, statements.create_shard(shard))
            except EngineFailure as error:
                return error.reason.replace(f" {names[0]}", "")
        return None

    def _evaluate(
        self, requests: Sequence[AnyRequest], defaults: Sequence[int]
    ) -> dict[int, BindResult]:
        """Defaults are constants, so their values are taken; no Spark job."""
        asked = [(number, requests[number]) for number in defaults]
        pairs = [
            (request.sql, request.type)
            for _, request in asked if isinstance(request, ExpressionRequest)
        ]
        if not pairs:
            return {}
        try:
            with failing("evaluate the defaults"):
                statements.rows(self._spark, statements.evaluate(pairs))
        except EngineFailure as error:
            if len(pairs) == 1:
                reason = error.reason
                return {defaults[0]: BindResult(requests[defaults[0]].name, reason)}
            return {
                at: found for number in defaults
                for at, found in self._evaluate(requests, [number]).items()
            }
        return {}

    def _fields(self, sql: str) -> Sequence[Mapping[str, Any]]:
        fields: Sequence[Mapping[str, Any]] = json.loads(
            statements.schema(self._spark, sql).json()
        )["fields"]
        return fields

    def _temporary_functions(self) -> frozenset[str]:
        """Functions of this session alone, folded: no view or CHECK may call one.

        A catalog that knows no functions lists none. USER is quoted for sessions that reserve it.
        """
        try:
            with failing("list the functions of the session"):
                shown = statements.rows(self._spark, "SHOW `USER` FUNCTIONS")
        except EngineFailure as error:
            if error.condition not in NO_FUNCTIONS:
                raise
            return frozenset()
        return frozenset(
            row[0].lower() for row in shown if "." not in row[0] and row[0] not in _OF_DELTA
        )

    def _create_relations(
        self, requests: Sequence[AnyRequest], names: StandIns, pool: ThreadPoolExecutor
    ) -> None:
        """A temporary view for every relation that is read, all in ``names`` before the first."""
        wanted: dict[Signature, Sequence[Column]] = {}
        for request in requests:
            if isinstance(request, ExpressionRequest):
                wanted[signature(request.columns)] = request.columns
                continue
            for name, columns in request.parents.items():
                wanted[signature(columns)] = columns
                if not isinstance(request, BindRequest) or not request.fills:
                    names.signatures[name.folded] = signature(columns)
                else:  # of OLD: what stays has the same columns in NEW
                    names.signatures.setdefault(name.folded, signature(columns))
        wanted.pop((), None)
        names.relations.update({sign: new_name() for sign in wanted})

        def create(sign: Signature) -> None:
            create_relation(self._spark, names.relations[sign], wanted[sign])

        list(pool.map(create, wanted))

    def _create_functions(self, requests: Sequence[AnyRequest], names: StandIns) -> None:
        """Temporary functions, those first that call no other one still missing.

        A function that never comes is left out, with the reason: what calls it then says so too.
        """
        wanted: dict[tuple[str, str], FunctionSpec] = {}
        for request in requests:
            if isinstance(request, ExpressionRequest):
                continue
            wanted |= {function.name.folded: function for function in request.functions}
            if isinstance(request, FunctionRequest):
                wanted[request.name.folded] = request.function
        stand_ins = {key: new_name() for key in wanted}
        while wanted:
            before = len(names.functions)
            for key, function in list(wanted.items()):
                body = replace_names(function.body, names.readers, stand_ins)
                try:
                    create_function(self._spark, stand_ins[key], function, body)
                except EngineFailure as error:
                    names.failures[key] = error
                    continue
                names.functions[key] = stand_ins[key]
                names.failures.pop(key, None)
                del wanted[key]
            if len(names.functions) == before:
                names.refused.update({key: stand_ins[key] for key in wanted})
                return


@dataclass(slots=True)
class StandIns:
    """The stand-ins of relations, by their signature, and of functions, by folded name.

    ``failures`` says why Spark refuses a function, ``refused`` what stood in for it in vain.
    """

    relations: dict[Signature, str] = field(default_factory=dict)
    signatures: dict[tuple[str, str], Signature] = field(default_factory=dict)
    functions: dict[tuple[str, str], str] = field(default_factory=dict)
    failures: dict[tuple[str, str], EngineFailure] = field(default_factory=dict)
    refused: dict[tuple[str, str], str] = field(default_factory=dict)

    @property
    def readers(self) -> Names:
        """Folded name of a relation -> its stand-in."""
        return {name: self.relations[sign] for name, sign in self.signatures.items()}


_EVERY_WRITER = frozenset({"check", "generated"})
_OF_DELTA = frozenset({"table_changes", "table_changes_by_path"})
"""Functions that Delta's extension brings; Spark lists them like a session's own."""
NO_FUNCTIONS = frozenset({"UNSUPPORTED_FEATURE.CATALOG_OPERATION", "_LEGACY_ERROR_TEMP_1184"})
"""What a catalog that knows no functions answers when it is asked for them."""
_REFUSED = {
    "INVALID_NON_DETERMINISTIC_EXPRESSIONS": "it must be deterministic",
    "UNSUPPORTED_SUBQUERY_EXPRESSION_CATEGORY": "it must have no subquery",
    "UNSUPPORTED_EXPR_FOR_OPERATOR": "it must have no aggregate and no window function",
    "UNSUPPORTED_FEATURE": "it must call built-in functions only",
}
"""What the trial of an expression says by which error class."""
_PLACE = re.compile(r" \(line \d+,? pos(?:ition)? \d+\)")
"""Where it is in the text of a trial, which is not the release's."""
_OF_THE_SESSION = frozenset({
    "current_user", "user", "session_user", "current_catalog", "current_database", "current_schema",
})  # fmt: skip
"""Functions that Spark puts in before it executes a query; Delta's check of a row finds them."""


def _role(request: AnyRequest) -> str:
    return request.role if isinstance(request, ExpressionRequest) else ""


def _query(request: AnyRequest, names: StandIns) -> str:
    """The query that is analysed for a request."""
    if isinstance(request, BindRequest):
        own = {name.folded: names.relations[signature(c)] for name, c in request.parents.items()}
        return replace_names(request.view.sql, own, names.functions)
    assert isinstance(request, ExpressionRequest)
    if request.role == "default":
        return statements.evaluate([(request.sql, request.type)])
    relation = names.relations[signature(request.columns)]
    if request.role in _EVERY_WRITER:
        return statements.for_every_writer(
            relation, request.sql, boolean=request.role == "check"
        )
    # the row beside it: an aggregate would make one row of all
    return (
        f"{statements.evaluate([(request.sql, request.type)])}, struct({ROW}.*) AS {ROW}"
        f" FROM {quote_sql(relation)} AS {ROW}"
    )


def _find_refused_call(request: AnyRequest, temporary: Collection[str]) -> str | None:
    """Why a text must not call a function that it calls; Spark's analyser finds it all the same."""
    words: frozenset[str] = frozenset()
    if isinstance(request, BindRequest):
        text = request.view.sql
    elif isinstance(request, FunctionRequest):
        text = request.function.body
    elif request.role in _EVERY_WRITER:
        text = request.sql
        words = _OF_THE_SESSION - {column.name.lower() for column in request.columns}
    else:
        return None
    tokens = tokenise(text)
    for token in tokens:
        if token.kind == "word" and token.value in words:
            return f"it calls {token.value}, which no INSERT could evaluate"
    for called in occurrences(tokens):
        if called.kind != "function":
            continue
        if len(called.parts) == 1 and called.parts[0].lower() in temporary:
            return (
                f"[INVALID_TEMP_OBJ_REFERENCE] it calls {called.parts[0]}, a function of this"
                " session alone"
            )
        if len(called.parts) > 1 and isinstance(request, ExpressionRequest):
            return (
                f"[UNSUPPORTED_SQL_UDF_USAGE] it calls {'.'.join(called.parts)}, which is not built"
                " in: no INSERT could evaluate it"
            )
    return None


def _plain(type_: str) -> str:
    return datatypes.without_lengths(type_).replace(" NOT NULL", "")


def _body_columns(fields: Iterable[Mapping[str, Any]]) -> tuple[BodyColumn, ...]:
    """Types of a body's columns, and which of them have no name but the one Spark made up."""
    return tuple(
        BodyColumn(
            datatypes.canonical_of(each["type"]), "__autoGeneratedAlias" not in each["metadata"]
        )
        for each in fields
    )


def _columns(fields: Iterable[Mapping[str, Any]]) -> Sequence[Column]:
    """Columns of a schema as Spark writes it in JSON."""
    return tuple(
        Column(field["name"], datatypes.canonical_of(field["type"]), field["nullable"])
        for field in fields
    )


def _key(name: ItemName, sql: str, contract: Sequence[Column]) -> tuple[str, str, str]:
    return "{}.{}".format(*name.folded), sql, repr(signature(contract))
