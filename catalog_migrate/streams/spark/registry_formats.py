"""Records with the number of a schema in a registry: FORMAT AVRO, PROTOBUF and JSON SCHEMA.

Batch by batch: which schemas its records name, each fetched once and kept (a number means one
schema for ever), then one pass over the records. What the registry does not know, what does not fit
the columns and what is not exactly one record of its schema is a problem of that record. A registry
that does not answer fails the batch, which is tried again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from catalog_migrate.connectors.query import QuerySpec, ddl, declared_columns, written_columns
from catalog_migrate.connectors.registry import avro, protobuf
from catalog_migrate.connectors.registry.client import (
    Incompatible,
    RegisteredSchema,
    SchemaRegistry,
    UnknownSchema,
)
from catalog_migrate.delta import datatypes
from catalog_migrate.engine.spark.jars import avro_jars, ensure_jars
from catalog_migrate.engine.spark.session import AVRO_LIMITS
from catalog_migrate.errors import ConnectionFailed, EngineFailure
from catalog_migrate.model.names import quote_sql
from catalog_migrate.model.objects import Column
from catalog_migrate.sql.tokens import string_literal
from catalog_migrate.streams.formats import exact_values
from catalog_migrate.streams.formats.exact_values import exact_of
from catalog_migrate.streams.spark import decoding
from catalog_migrate.streams.upstreams import schemas

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

UNREACHABLE = "SCHEMA_REGISTRY"
"""Condition of a query whose schema registry does not answer as one."""

_AVRO_CLASS = "org.apache.spark.sql.avro.AvroDataToCatalyst"
_HEAD = "__catalog_migrate_head"
_KEY_HEAD = "__catalog_migrate_key_head"
_BODY = "__catalog_migrate_body"
_MESSAGE = "__catalog_migrate_message"
_MESSAGE_PROBLEM = "__catalog_migrate_message_problem"
_FRAME = 5
_SECOND_LOOK = 1.0
_NO_NUMBER = "does not begin with the number of a schema"


def ensure_avro(spark: SparkSession) -> None:
    """Give the calling thread what reads and writes Avro, fetched when it is absent.

    ADD JAR gives classes to its own thread and those started by it, so every thread of a stream
    asks for itself. The limits hold for the whole JVM of the driver, unless it has used Avro
    before. Errors are those of :func:`~catalog_migrate.engine.spark.jars.ensure_jars`.
    """
    jvm = spark._jvm
    assert jvm is not None
    for name, value in AVRO_LIMITS.items():
        if jvm.java.lang.System.getProperty(name) is None:
            jvm.java.lang.System.setProperty(name, value)
    if not jvm.org.apache.spark.util.Utils.classIsLoadable(_AVRO_CLASS):
        for path in ensure_jars(jars=avro_jars()):
            spark.sql(f"ADD JAR {string_literal(path)}")


class _Known(msgspec.Struct, frozen=True):
    """What was found out of a number: the steps that decode, the row, its problem.

    ``steps`` are computed before, for records of the number only; without a row it is all problem.
    """

    problem: str
    steps: tuple[str, ...] = ()
    row: str | None = None


class RegistryDecoder:
    """Decodes batches of one source; what it has learnt of schemas it keeps."""

    def __init__(self, spec: QuerySpec) -> None:
        assert spec.registry is not None
        self._spec = spec
        self._columns = declared_columns(spec)
        self._exact = exact_of(spec.external)
        self._registry = SchemaRegistry(spec.registry, subject=f"connection {spec.registry_name}")
        self._values: dict[int, _Known] = {}
        self._keys: dict[int, _Known] = {}
        self._messages: dict[int, bytes] = {}
        self._recent: tuple[frozenset[int], frozenset[int]] | None = None

    def decode(self, frame: DataFrame) -> DataFrame:
        """The records with row and problem, as :func:`decoding.decode` gives them; persisted.

        Raises :class:`EngineFailure` while the registry does not answer.
        """
        if "AVRO" in (self._spec.external.format, self._spec.external.key_format):
            ensure_avro(frame.sparkSession)
        unknown: dict[int, _Known] = {}
        values, keys = self._recent or self._guessed(unknown)
        while True:
            decoded = self._decoded(frame, values, keys, unknown).persist()
            try:
                found_values, found_keys = self._numbers(decoded)
                missing = (found_values - values, found_keys - keys)
                if not any(missing):
                    self._recent = found_values - set(unknown), found_keys - set(unknown)
                    return decoded
                self._learn(missing[0], missing[1], unknown)
            except BaseException:
                decoded.unpersist()
                raise
            decoded.unpersist()
            values, keys = found_values, found_keys

    def _guessed(self, unknown: dict[int, _Known]) -> tuple[frozenset[int], frozenset[int]]:
        """What the first batch probably names, so that it is not read again for it.

        Nothing where that cannot be asked: what the records name is asked for all the same.
        """
        with suppress(ConnectionFailed, EngineFailure):
            values = self._newest("value")
            keyed = self._spec.external.key_format == "AVRO"
            keys = self._newest("key") if keyed else frozenset()
            self._learn(values, keys, unknown)
            return values, keys
        return frozenset(), frozenset()

    def _newest(self, part: str) -> frozenset[int]:
        found = schemas.newest_schemas(self._spec, self._registry, part)
        return frozenset(newest.id for _, newest in found if newest is not None)

    # -- schemas -----------------------------------------------------------------------------------

    @staticmethod
    def _numbers(decoded: DataFrame) -> tuple[frozenset[int], frozenset[int]]:
        (row,) = decoded.selectExpr(
            f"collect_set({_HEAD}) AS found", f"collect_set({_KEY_HEAD}) AS keys"
        ).collect()
        return _ids(row["found"]), _ids(row["keys"])

    def _learn(
        self, values: Iterable[int], keys: Iterable[int], unknown: dict[int, _Known]
    ) -> None:
        """Fetch what is not known; ``unknown`` gets the numbers that the registry does not have.

        Such a number is asked for twice: a registry of several nodes may know it a moment later.
        """
        wanted = {*values, *keys}
        again = []
        for number in sorted(wanted):
            found = self._fetched(number)
            if found is None:
                again.append(number)
        if again:
            time.sleep(_SECOND_LOOK)
        for number in again:
            if self._fetched(number) is None:
                text = string_literal(f"its schema {number} is not in the registry")
                unknown[number] = _Known(text)

    def _fetched(self, number: int) -> RegisteredSchema | None:
        if number in self._values and number in self._keys:
            return RegisteredSchema(number, "", "")
        try:
            schema = self._registry.schema(number)
        except UnknownSchema:
            return None
        except ConnectionFailed as error:
            raise unreachable(self._spec, error) from error
        self._values[number] = self._value(schema)
        self._keys[number] = self._key(schema)
        return schema

    def _value(self, schema: RegisteredSchema) -> _Known:
        wanted = schemas.KINDS[self._spec.external.format or ""]
        if schema.kind != wanted:
            return _Known(string_literal(f"its schema {schema.id} is {schema.kind}, not {wanted}"))
        if wanted == "JSON":
            steps, row, problem = decoding.json_steps(self._columns, _BODY, exact=self._exact)
            steps = [f"substring(value, {_FRAME + 1}) AS {_BODY}", *steps]
            fields = (
                f"{string_literal(each.name)}, {row}.{quote_sql(each.name)}"
                for each in self._columns
            )
            return _Known(problem, tuple(steps), f"named_struct({', '.join(fields)})")
        if wanted == "PROTOBUF":
            try:
                self._messages[schema.id] = protobuf.compiled(schema.text, schema.references)
            except protobuf.UnfitMessage as error:
                return _Known(string_literal(f"its schema {schema.id}: {error}"))
            return _Known(f"{_MESSAGE_PROBLEM} || ' ({schema.id})'", (), _MESSAGE)
        try:
            reading = avro.reading(schema.text, schema.references.values(), self._columns)
        except avro.UnfitSchema as error:
            return _Known(string_literal(f"its schema {schema.id} does not fit: {error}"))
        name = f"__catalog_migrate_{schema.id}"
        read = _read("value", _head(schema.id), _HEAD, reading.writer, reading.reader)
        return _Known(
            _not_whole(name, f"it is not one whole record of its schema {schema.id}"),
            (f"{read} AS {name}",), _row(self._columns, reading, f"{name}.{avro.ROW}"),
        )

    def _key(self, schema: RegisteredSchema) -> _Known:
        try:
            if schema.kind != "AVRO":
                raise avro.UnfitSchema(f"it is {schema.kind}, not AVRO")
            writer, conversion = avro.key_reading(schema.text, schema.references.values())
        except avro.UnfitSchema as error:
            text = f"the schema {schema.id} of its key does not fit: {error}"
            return _Known(string_literal(text))
        name = f"__catalog_migrate_key_{schema.id}"
        read = _read("key", _head(schema.id), _KEY_HEAD, writer, None)
        return _Known(
            _not_whole(name, f"its key is not one whole value of its schema {schema.id}"),
            (f"{read} AS {name}",), conversion(f"{name}.{avro.ROW}"),
        )

    # -- the pass over the records -----------------------------------------------------------------

    def _decoded(
        self, frame: DataFrame, values: Iterable[int], keys: Iterable[int],
        unknown: dict[int, _Known],
    ) -> DataFrame:
        spec = self._spec
        known = {number: unknown.get(number) or self._values[number] for number in sorted(values)}
        struct = ", ".join(
            f"{quote_sql(each.name)}: {datatypes.without_lengths(each.type)}"
            for each in self._columns
        )
        if spec.external.format == "PROTOBUF":
            frame = self._with_messages(frame, known)
        row = _chosen(_HEAD, known, lambda each: each.row, f"CAST(NULL AS STRUCT<{struct}>)")
        steps = [f"{_framed('value')} AS {_HEAD}", *_steps(known)]
        unread = f"CASE WHEN value IS NULL THEN 'it has no value' ELSE 'it {_NO_NUMBER}' END"
        rules = [
            f"CASE WHEN {_HEAD} IS NULL THEN {unread} END",
            _chosen(_HEAD, known, lambda each: each.problem, "CAST(NULL AS STRING)"),
        ]
        if spec.external.key_format == "AVRO":
            of_keys = {number: unknown.get(number) or self._keys[number] for number in sorted(keys)}
            steps += [f"{_framed('key')} AS {_KEY_HEAD}", *_steps(of_keys)]
            none = "CAST(NULL AS STRING)"
            key = _chosen(_KEY_HEAD, of_keys, lambda each: each.row, none)
            bare = f"key IS NOT NULL AND {_KEY_HEAD} IS NULL"
            rules += [
                f"CASE WHEN {bare} THEN 'its key {_NO_NUMBER}' END",
                _chosen(_KEY_HEAD, of_keys, lambda each: each.problem, none),
            ]
        else:
            steps.append(f"CAST(NULL AS BINARY) AS {_KEY_HEAD}")
            key = "CAST(NULL AS STRING)"
        steps += [f"{row} AS {decoding.ROW}", f"{key} AS {decoding.KEY}"]
        rules += [*decoding.broken_rules(self._columns), *decoding.key_rule(spec)]
        if spec.external.format == "AVRO":
            rules += _texts(self._columns)
            if self._exact is not None:
                rules += exact_values.misfits_of_values(self._columns, decoding.ROW)
        problem = f"coalesce({', '.join(rules)}) AS {decoding.PROBLEM}"
        read = frame.selectExpr("*", *dict.fromkeys(steps), problem)
        # what is kept between the writes: the value of a good record is in its row
        return read.selectExpr(
            "key", f"CASE WHEN {decoding.PROBLEM} IS NOT NULL THEN value END AS value", "topic",
            "partition", "offset", "timestamp", decoding.ROW, decoding.PROBLEM, decoding.KEY, _HEAD,
            _KEY_HEAD,
        )


    def _with_messages(self, frame: DataFrame, known: Iterable[int]) -> DataFrame:
        """The records with the rows of their messages, decoded in Python."""
        from pyspark.sql.types import StringType, StructType

        row = StructType.fromDDL(", ".join(map(ddl, self._columns)))
        wider = StructType(list(frame.schema.fields)).add(_MESSAGE, row)
        return frame.mapInArrow(
            partial(
                protobuf.decoded, schemas={
                    number: self._messages[number] for number in known if number in self._messages
                },
                columns=self._columns, names=(_MESSAGE, _MESSAGE_PROBLEM),
                exact=self._exact is not None,
            ),
            wider.add(_MESSAGE_PROBLEM, StringType()),
        )


def registered(spec: QuerySpec) -> tuple[int, str]:
    """The number and the text of the schema of a sink's rows, registered where it is not yet.

    Raises :class:`EngineFailure`: to be tried again while the registry does not answer.
    """
    assert spec.registry is not None
    subject = f"connection {spec.registry_name}"
    try:
        mine = schemas.written(spec.external, written_columns(spec))
        registry = SchemaRegistry(spec.registry, subject=subject)
        return registry.register(mine.subject, mine.text, mine.kind), mine.text
    except ConnectionFailed as error:
        raise unreachable(spec, error) from error
    except Incompatible as error:
        found = schemas.refusal(spec.registry_name, mine.subject, [str(error)])
        raise EngineFailure(
            f"{spec.kind} {spec.name}: {found.message}", condition="INCOMPATIBLE_SCHEMA",
            remedy=found.remedy,
        ) from None
    except avro.UnfitSchema as error:
        raise EngineFailure(
            f"{spec.kind} {spec.name}: {error}", condition="INCOMPATIBLE_SCHEMA"
        ) from None


def unreachable(spec: QuerySpec, error: ConnectionFailed) -> EngineFailure:
    """Return what fails a query whose registry does not answer; it is tried again."""
    return EngineFailure(
        f"{spec.kind} {spec.name}: {error.message}", condition=UNREACHABLE, transient=True,
        remedy=error.remedy,
    )


def _ids(heads: Iterable[Any]) -> frozenset[int]:
    return frozenset(int.from_bytes(bytes(head)[1:], "big") for head in heads)


def _head(number: int) -> str:
    return f"X'{number:010x}'"


def _framed(column: str) -> str:
    """The five bytes before a value: a zero and the number of its schema; NULL without them."""
    return (
        f"CASE WHEN length({column}) >= {_FRAME} AND substring({column}, 1, 1) = X'00'"
        f" THEN substring({column}, 1, {_FRAME}) END"
    )


def _read(column: str, head: str, heads: str, writer: str, reader: str | None) -> str:
    """A record and the end mark behind it, NULL in each of both where they do not come out."""
    options = ["'mode'", "'PERMISSIVE'"]
    if reader is not None:
        options += ["'avroSchema'", string_literal(reader)]
    return (
        f"CASE WHEN {heads} = {head} THEN from_avro(concat(substring({column}, {_FRAME + 1}),"
        f" X'{avro.END_MARK}'), {string_literal(writer)}, map({', '.join(options)})) END"
    )


def _not_whole(name: str, message: str) -> str:
    whole = f"coalesce({name}.{quote_sql(avro.END)} = X'{avro.END_MARK}', false)"
    return f"CASE WHEN NOT {whole} THEN {string_literal(message)} END"


def _row(columns: Sequence[Column], reading: avro.Reading, record: str) -> str:
    parts = []
    for column in columns:
        conversion = reading.columns[column.name]
        type_ = datatypes.without_lengths(column.type)
        value = (
            f"CAST(NULL AS {type_})" if conversion is None
            else conversion(f"{record}.{quote_sql(column.name)}")
        )
        parts.append(f"{string_literal(column.name)}, {value}")
    return f"named_struct({', '.join(parts)})"


def _steps(known: dict[int, _Known]) -> list[str]:
    return [step for each in known.values() for step in each.steps]


def _chosen(
    heads: str, known: dict[int, _Known], what: Callable[[_Known], str | None], nothing: str
) -> str:
    """By the number of a record one of the expressions."""
    branches = [
        f"WHEN {heads} = {_head(number)} THEN {said}"
        for number, each in known.items() if (said := what(each)) is not None
    ]
    return f"CASE {' '.join(branches)} ELSE {nothing} END" if branches else nothing


def _texts(columns: Sequence[Column]) -> list[str]:
    """Bytes that Avro takes for a text, of a record with the number of another schema."""
    return [
        f"CASE WHEN NOT is_valid_utf8({decoding.ROW}.{quote_sql(column.name)}) THEN "
        + string_literal(f"its {column.name} is not UTF-8") + " END"
        for column in columns if datatypes.without_lengths(column.type) == "STRING"
    ]
