"""What Spark's analyser makes of users' texts, against stand-ins of what they read.

Nothing is run and nothing written. A text that does not analyse comes back with Spark's error
class, the name that was not found and its place in the text as the user wrote it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from threading import Lock
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from catalog_migrate.delta import datatypes
from catalog_migrate.engine.port import QueryAnalysis
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
from catalog_migrate.engine_failures import failing
from catalog_migrate.errors import EngineFailure, MetastoreFailure, UnknownType
from catalog_migrate.model.names import ItemName, quote_part, quote_sql
from catalog_migrate.model.objects import Column
from catalog_migrate.sql.references import occurrences, splice
from catalog_migrate.sql.substitution import Piece, find_pieces, place_before
from catalog_migrate.sql.tokens import Token, tokenise

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from catalog_migrate.engine.port import FunctionSpec, QueryRequest

Key = tuple[str, str]
"""Folded (schema, name)."""

_TOGETHER = 8
"""Most texts in one analysis: it spares statements, and its cost grows with their square."""
_LONG = 20_000
"""Characters from which on a text is analysed by itself."""
_WHOLE = {
    "spark.sql.debug.maxToStringFields": "1000000",
    "spark.sql.maxMetadataStringLength": "1000000",
}
"""Settings with which Spark leaves nothing out of a plan that it writes."""
_BODY = "catalog_migrate_body"
_MISSING = (
    "objectName", "relationName", "routineName", "colName", "columnName", "fieldName",
    "targetString",
)
"""What Spark calls the name that it did not find, by error class."""
_PART = re.compile(r"`((?:[^`]|``)*)`")
_ANALYSED = re.compile(
    r"== Analyzed Logical Plan ==\n(.*?)\n== Optimized Logical Plan ==", re.DOTALL
)

T = TypeVar("T")


class Analysis:
    """Analyses users' texts on one session."""

    def __init__(self, spark: SparkSession, threads: int) -> None:
        self._spark: SparkSession = spark
        self._threads: int = threads
        self._built_in: frozenset[str] | None = None
        self._plans = Lock()

    def analyse(self, requests: Sequence[QueryRequest]) -> Sequence[QueryAnalysis]:
        """Analyse every request; stand-ins are dropped before it returns."""
        if not requests:
            return []
        stand_ins = _StandIns()
        listed = _Functions(self)
        with (
            drop_afterwards(self._spark, stand_ins.relations, stand_ins.functions),
            ThreadPoolExecutor(self._threads, "analyse") as pool,
            self._whole_plans(any(request.plan for request in requests)),
        ):
            texts = [_Text(request, stand_ins, listed) for request in requests]
            list(pool.map(
                lambda item: create_relation(self._spark, *item), stand_ins.relations.items()
            ))
            for name, (function, body) in stand_ins.functions.items():
                try:
                    create_function(self._spark, name, function, body)
                except EngineFailure as error:
                    stand_ins.refused[name] = error
            found = pool.map(partial(self._analyse_together, stand_ins), _batches(
                texts, self._threads
            ))
            results = {text: result for some in found for text, result in some}
            return [results[text] for text in texts]

    def _analyse_together(
        self, stand_ins: _StandIns, texts: Sequence[_Text]
    ) -> list[tuple[_Text, QueryAnalysis]]:
        """What texts come to, side by side in one analysis where they all analyse."""
        if len(texts) > 1:
            try:
                with failing("analyse"):
                    together = self._schema(statements.side_by_side([t.sql for t in texts]))
            except EngineFailure:
                pass  # every text is tried again by itself
            else:
                return [
                    (text, QueryAnalysis(text.columns(found["type"]["fields"])))
                    for text, found in zip(texts, together, strict=True)
                ]
        return [(text, self._analyse_alone(stand_ins, text)) for text in texts]

    def _analyse_alone(self, stand_ins: _StandIns, text: _Text) -> QueryAnalysis:
        try:
            with failing(f"analyse {text.request.name}"):
                if not text.request.plan:
                    return QueryAnalysis(text.columns(self._schema(text.sql)))
                fields, plan = self._plan(text.sql)
                plan = real_names(plan, text.names, whole=True)
                return QueryAnalysis(text.columns(fields), plan=plan)
        except EngineFailure as error:
            return text.refusal(error, stand_ins.refused)

    def _schema(self, sql: str) -> Sequence[Mapping[str, Any]]:
        fields: Sequence[Mapping[str, Any]] = json.loads(
            statements.schema(self._spark, sql).json()
        )["fields"]
        return fields

    def _plan(self, sql: str) -> tuple[Sequence[Mapping[str, Any]], str]:
        """The columns of a query and its analysed plan."""
        if is_connect(self._spark):
            fields = self._schema(sql)
            (shown,) = statements.rows(self._spark, f"EXPLAIN EXTENDED {sql}")
            section = _ANALYSED.search(shown[0])
            # the first line lists the columns
            return fields, section[1].partition("\n")[2] if section else ""
        with statements.as_written(self._spark, sql) as spelled:
            session: Any = self._spark
            # a thread that has no active session writes plans by the settings of none
            session._get_j_spark_session_class(session._jvm).setActiveSession(session._jsparkSession)
            frame = self._spark.sql(spelled)
            analysed: str = frame._jdf.queryExecution().analyzed().toString()
            return json.loads(frame.schema.json())["fields"], analysed

    @contextmanager
    def _whole_plans(self, wanted: bool) -> Iterator[None]:
        """Have Spark write plans with every column while the block runs."""
        if not wanted:
            yield
            return
        with self._plans:
            before = {name: self._spark.conf.get(name, None) for name in _WHOLE}
            for name, value in _WHOLE.items():
                self._spark.conf.set(name, value)
            try:
                yield
            finally:
                for name, value_before in before.items():
                    if value_before is None:
                        self._spark.conf.unset(name)
                    else:
                        self._spark.conf.set(name, value_before)

    def list_built_in_functions(self) -> frozenset[str]:
        """Functions of every session, folded: a name without a schema is one of these first."""
        if self._built_in is None:
            with failing("list the functions that are built in"):
                shown = statements.rows(self._spark, "SHOW SYSTEM FUNCTIONS")
            self._built_in = frozenset(row[0].lower() for row in shown)
        return self._built_in

    def user_functions(self, schema: str | None) -> frozenset[str]:
        """Bare names, folded, of the functions of a schema (None: the session's current one) and
        of the session alone; none where the schema is missing."""
        of = "" if schema is None else f" IN {quote_sql(schema)}"
        try:
            with failing("list the functions of a schema"):
                shown = statements.rows(self._spark, f"SHOW `USER` FUNCTIONS{of}")
        except EngineFailure:
            return frozenset()
        return frozenset(row[0].rpartition(".")[2].lower() for row in shown)


def _batches(texts: Sequence[_Text], threads: int) -> Iterator[Sequence[_Text]]:
    """Texts that are tried together: short ones whose plan is not asked for."""
    together = []
    for text in texts:
        if text.request.plan or len(text.sql) > _LONG:
            yield [text]
        else:
            together.append(text)
    size = min(_TOGETHER, -(-len(together) // threads))
    for at in range(0, len(together), size or 1):
        yield together[at : at + size]


@dataclass(slots=True)
class _StandIns:
    """Stand-ins of a call, by their names: columns of relations; functions with their body over
    stand-ins, those first that others call. ``refused`` says why Spark does not take a function."""

    relations: dict[str, Sequence[Column]] = field(default_factory=dict)
    functions: dict[str, tuple[FunctionSpec, str]] = field(default_factory=dict)
    refused: dict[str, EngineFailure] = field(default_factory=dict)
    _of_relation: dict[tuple[Key | None, Signature], str] = field(default_factory=dict)
    _of_function: dict[str, str] = field(default_factory=dict)

    def of_relation(self, columns: Sequence[Column], own: Key | None = None) -> str:
        """The stand-in of a relation; relations of the same columns share one, unless it is to be
        a relation's ``own``."""
        key = own, signature(columns)
        name = self._of_relation.get(key)
        if name is None:
            name = self._of_relation[key] = new_name()
            self.relations[name] = columns
        return name

    def of_function(self, function: FunctionSpec, body: str) -> str:
        """Return the stand-in of a function with this body over stand-ins."""
        key = repr((function.arguments, function.returns, body))
        name = self._of_function.get(key)
        if name is None:
            name = self._of_function[key] = new_name()
            self.functions[name] = function, body
        return name


class _Functions:
    """Which functions a name without a schema may mean; listed once, and only when asked."""

    def __init__(self, analysis: Analysis) -> None:
        self._analysis = analysis
        self._listed: dict[str | None, frozenset[str]] = {}

    def of(self, namespace: str, replaced: Container[Key]) -> Container[str]:
        """Folded names that mean a function of ``namespace``, or one of this session that a view
        does not see."""
        return _Local(self, namespace, replaced)

    def is_local(self, name: str, namespace: str, replaced: Container[Key]) -> bool:
        if name in self._analysis.list_built_in_functions():
            return False
        if (namespace.lower(), name) in replaced:
            return True
        return name in self._of_schema(namespace) or name in self._of_schema(None)

    def _of_schema(self, schema: str | None) -> frozenset[str]:
        if schema not in self._listed:
            self._listed[schema] = self._analysis.user_functions(schema)
        return self._listed[schema]


@dataclass(frozen=True, slots=True)
class _Local:
    functions: _Functions
    namespace: str
    replaced: Container[Key]

    def __contains__(self, name: object) -> bool:
        return self.functions.is_local(str(name), self.namespace, self.replaced)


class _Lookup(Mapping[Key, str], Generic[T]):
    """Names of stand-ins, each made when it is first looked up."""

    def __init__(self, known: Mapping[Key, T], make: Callable[[Key, T], str]) -> None:
        self._known = known
        self._make = make
        self._made: dict[Key, str] = {}

    def __contains__(self, key: object) -> bool:
        return key in self._known

    def __getitem__(self, key: Key) -> str:
        if key not in self._made:
            self._made[key] = self._make(key, self._known[key])
        return self._made[key]

    def __iter__(self) -> Iterator[Key]:
        return iter(self._known)

    def __len__(self) -> int:
        return len(self._known)


class _Text:
    """The text that is analysed for a request, and the way back from it to what the user wrote.

    ``names`` are the real names of its stand-ins.
    """

    def __init__(
        self, request: QueryRequest, stand_ins: _StandIns, listed: _Functions
    ) -> None:
        self.request = request
        self.names: dict[str, Key] = {}
        self._stand_ins = stand_ins
        self._listed = listed
        self._calls: list[Key] = []
        parents = {name.folded: (name, columns) for name, columns in request.parents.items()}
        functions: dict[Key, FunctionSpec | None] = {
            key: None for key, (_, columns) in parents.items() if columns is None
        }
        functions |= {function.name.folded: function for function in request.functions}
        self._relations = _Lookup(parents, self._stand_in_of_relation)
        self._functions = _Lookup(functions, self._stand_in_of_function)
        self._pieces = self._stand_in_pieces(request.sql, request.namespace)
        body = splice(request.sql, self._pieces).rstrip().rstrip(";")
        self.sql, self._offset = self._whole(body)

    def _stand_in_pieces(self, sql: str, namespace: str) -> list[Piece]:
        if not namespace:  # of another catalog
            return find_pieces(sql, self._relations, self._functions)
        return find_pieces(
            sql, self._relations, self._functions, namespace=namespace,
            local=self._listed.of(namespace, self._functions),
        )

    def _stand_in_of_relation(
        self, key: Key, parent: tuple[ItemName, Sequence[Column] | None]
    ) -> str:
        name, columns = parent
        if columns is None:
            stand_in = new_name()  # which nothing has
        else:
            stand_in = self._stand_ins.of_relation(columns, key if self.request.plan else None)
        self.names.setdefault(stand_in, (name.schema, name.name))
        return stand_in

    def _stand_in_of_function(self, key: Key, function: FunctionSpec | None) -> str:
        if function is None or key in self._calls:
            stand_in = new_name()
        else:
            self._calls.append(key)
            pieces = self._stand_in_pieces(function.body, function.name.schema)
            stand_in = self._stand_ins.of_function(function, splice(function.body, pieces))
            self._calls.pop()
        schema, name = key if function is None else function.name
        self.names[stand_in] = schema, name
        return stand_in

    def _whole(self, body: str) -> tuple[str, int]:
        """The query over a body, and where in it the body begins: a function's arguments are the
        columns of a relation with its name."""
        name, source = self.request.name, ""
        if self.request.arguments and (self.request.scalar or self._names_argument(body)):
            arguments = [Column(each.name, each.type) for each in self.request.arguments]
            relation = self._stand_ins.of_relation(arguments)
            self.names[relation] = name.schema, name.name
            source = f" FROM {quote_sql(relation)} AS {quote_sql(name.name)}"
        if self.request.scalar:
            before, behind = "SELECT (", f"\n) AS {quote_sql(name.name)}{source}"
        elif source:
            before = f"SELECT {_BODY}.*{source}, LATERAL ("
            behind = f"\n) AS {_BODY}"
        else:
            # in brackets only a query is one: Spark would run a command that others put there
            before, behind = "(", "\n)"
        return f"{before}{body}{behind}", len(before)

    def _names_argument(self, body: str) -> bool:
        arguments = {argument.name.lower() for argument in self.request.arguments}
        return any(each.is_name and each.name.lower() in arguments for each in tokenise(body))

    def columns(self, fields: Sequence[Mapping[str, Any]]) -> Sequence[Column]:
        """Analysed columns; a scalar function's has no name."""
        return tuple(
            Column(
                "" if self.request.scalar else real_names(each["name"], self.names, whole=True),
                _type_of(each), each["nullable"],
            )
            for each in fields
        )

    def refusal(
        self, error: EngineFailure, refused: Mapping[str, EngineFailure]
    ) -> QueryAnalysis:
        """Return what Spark says of a text that it does not analyse.

        Without a condition where that is no fault of the text.
        """
        condition = _condition(error)
        said = _message(error)
        reason = real_names(said, self.names)
        if condition is None:
            return QueryAnalysis(reason=reason)
        found = _missing(error)
        if found is not None and found in refused:
            inner = refused[found]
            name = ItemName(*self.names[found])
            return QueryAnalysis(
                condition=inner.condition,
                reason=f"it calls {name}, which does not bind: "
                + real_names(_message(inner), self.names),
            )
        missing = None
        if found is not None:
            known = self.names.get(found)
            missing = found if known is None else str(ItemName(*known))
        return QueryAnalysis(
            condition=condition, reason=reason, missing=missing,
            place=self._place(error, missing) if missing else None,
        )

    def _place(self, error: EngineFailure, missing: str) -> tuple[int, int] | None:
        """Where in the user's text the name is that Spark did not find; None where that is not
        plain: Spark may point to no more than the clause."""
        tokens = tokenise(self.request.sql)
        span = _span(error, self.sql)
        if span is None:
            if error.condition != "UNRESOLVED_USING_COLUMN_FOR_JOIN":
                return None
            found = list(_in_using(tokens, missing))
        else:
            start, end = span[0] - self._offset, span[1] - self._offset
            start, end = place_before(self._pieces, max(start, 0), max(end, 0))
            found = [
                (first, last) for first, last in _spelt(tokens, missing)
                if start <= first and last <= end
            ] or [
                (name.start, name.end) for name in occurrences(tokens)
                if start <= name.start and name.end <= end and name.kind != "type"
                and name.parts[-1].lower() == _parts(missing)[-1]
            ]
        return found[0] if len(found) == 1 else None


def _parts(name: str) -> tuple[str, ...]:
    """The parts, folded, of a name as it is shown."""
    return tuple(token.name.lower() for token in tokenise(name) if token.is_name)


def _spelt(tokens: Sequence[Token], name: str) -> Iterator[tuple[int, int]]:
    """Where a text has this name, with nothing behind it that makes it another one."""
    parts = _parts(name)
    length = 2 * len(parts) - 1
    for index, token in enumerate(tokens):
        some = tokens[index : index + length]
        if token.is_name and len(some) == length and all(
            each.is_name and each.name.lower() == part
            for each, part in zip(some[::2], parts, strict=True)
        ) and all(each.is_operator(".") for each in some[1::2]):
            yield token.start, some[-1].end


def _in_using(tokens: Sequence[Token], name: str) -> Iterator[tuple[int, int]]:
    """Where a column is named in a list behind USING."""
    inside = False
    for index, token in enumerate(tokens):
        if token.is_operator("(") and index and tokens[index - 1].is_word("using"):
            inside = True
        elif token.is_operator(")"):
            inside = False
        elif inside and token.is_name and token.name.lower() == _parts(name)[-1]:
            yield token.start, token.end


def _type_of(field: Mapping[str, Any]) -> str:
    """The canonical type of a column, or Spark's own spelling of one that no release may have."""
    collation = field["metadata"].get("__COLLATIONS", {}).get(field["name"])
    if collation is not None:
        return f"string collate {collation.rpartition('.')[2]}"
    try:
        return datatypes.canonical_of(field["type"])
    except UnknownType:
        return datatypes.text_of(field["type"])


def _message(error: EngineFailure) -> str:
    return error.reason or error.message


def _condition(error: EngineFailure) -> str | None:
    """Spark's error class, where its analyser refused the text; None for any other failure."""
    asked: Callable[[], str | None] | None = getattr(error.__cause__, "getCondition", None)
    condition = asked() if asked is not None else None
    if not condition or error.transient or isinstance(error, MetastoreFailure):
        return None
    return None if condition.startswith("INTERNAL_ERROR") else condition


def _missing(error: EngineFailure) -> str | None:
    """The name that Spark did not find, as ``s.t`` or ``column``."""
    asked: Callable[[], Mapping[str, str] | None] = error.__cause__.getMessageParameters  # type: ignore[union-attr]
    parameters = asked() or {}
    keys = ("name",) if error.condition == "UNRESOLVABLE_TABLE_VALUED_FUNCTION" else _MISSING
    named = next((parameters[each] for each in keys if each in parameters), None)
    if named is None:
        return None
    return ".".join(quote_part(part.replace("``", "`")) for part in _PART.findall(named)) or named


def _span(error: EngineFailure, sql: str) -> tuple[int, int] | None:
    """Where in the analysed text Spark found the fault; None where that is in another text."""
    contexts: Sequence[Any] = error.__cause__.getQueryContext()  # type: ignore[union-attr]
    for context in contexts:
        if context.contextType().name != "SQL" or context.objectType():
            continue
        start, stop = int(context.startIndex()), int(context.stopIndex())
        if 0 <= start <= stop < len(sql):
            return start, stop + 1
    return None
