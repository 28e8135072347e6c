"""Records with the number of a schema, decoded on real Spark against the tests' own registry."""

from __future__ import annotations

import io
import json
import struct
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timezone
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest

from catalog_migrate.connectors.query import QuerySpec
from catalog_migrate.errors import EngineFailure
from catalog_migrate.model.names import ItemName
from catalog_migrate.model.objects import Column, External
from tests.services.schema_registry import SchemaRegistry

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from catalog_migrate.streams.spark.registry_formats import RegistryDecoder

pytestmark = pytest.mark.spark

MOMENT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=timezone.utc)
POSITION = (
    Column("_topic", "STRING"), Column("_partition", "INT"), Column("_offset", "BIGINT"),
    Column("_timestamp", "TIMESTAMP"),
)  # fmt: skip
RECORD = "key BINARY, value BINARY, topic STRING, partition INT, offset BIGINT, timestamp TIMESTAMP"
ORDERS = (
    Column("id", "BIGINT", nullable=False), Column("price", "DECIMAL(10,2)"),
    Column("code", "VARCHAR(3)"), Column("tags", "ARRAY<STRING>"), Column("at", "TIMESTAMP"),
    Column("inner", "STRUCT<b: BOOLEAN, a: BIGINT>"),
    Column("lines", "ARRAY<STRUCT<qty: INT, sku: STRING>>"),
)  # fmt: skip
FIRST = {
    "type": "record", "name": "Order", "namespace": "shop", "fields": [
        {"name": "unused", "type": {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}},
        {"name": "id", "type": "int"},
        {"name": "code", "type": ["null", "Kind"], "default": None},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {"name": "inner", "type": ["null", {"type": "record", "name": "Inner", "fields": [
            {"name": "a", "type": "int"}, {"name": "b", "type": "boolean"}]}]},
    ],
}  # fmt: skip
SECOND = {
    "type": "record", "name": "Order", "namespace": "shop", "fields": [
        {"name": "id", "type": "long"},
        {"name": "price", "type": {
            "type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 1}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "code", "type": "string"},
        {"name": "lines", "type": {"type": "array", "items": {
            "type": "record", "name": "Line", "fields": [
                {"name": "sku", "type": "string"}, {"name": "qty", "type": "int"}]}}},
    ],
}  # fmt: skip


def encoded(schema: Any, value: Any) -> bytes:
    """A value as Avro, without any number before it."""
    import fastavro

    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(json.loads(json.dumps(schema))), value)
    return out.getvalue()


def framed(number: int, content: bytes) -> bytes:
    """With a zero and the number of its schema before it."""
    return b"\0" + struct.pack(">I", number) + content


@pytest.fixture(scope="module")
def registry() -> Iterator[SchemaRegistry]:
    with SchemaRegistry(login=("app", "first-of-app")) as server:
        yield server


def decoder(
    spark: SparkSession, registry: SchemaRegistry, columns: tuple[Column, ...], format_: str,
    **more: Any,
) -> tuple[RegistryDecoder, QuerySpec]:
    """The decoder of a source of those columns."""
    from catalog_migrate.connectors.secrets import Secret
    from catalog_migrate.streams.spark.registry_formats import RegistryDecoder

    spec = QuerySpec(
        item_id="u1", name=ItemName("default", "s"), kind="source",
        external=External(connector="KAFKA", options={"TOPIC": "t"}, format=format_, **more),
        columns=columns + POSITION,
        connection={}, shard="", checkpoint="", registry_name="default.r",
        registry={
            "URL": registry.url, "USERNAME": "app", "PASSWORD": Secret("first-of-app")
        },
    )
    return RegistryDecoder(spec), spec


def decoded(
    spark: SparkSession, decode: RegistryDecoder, spec: QuerySpec, *values: bytes | None,
    keys: tuple[bytes | None, ...] = (),
) -> tuple[dict[int, Any], dict[int, str]]:
    """Rows and problems by the number of the value."""
    from catalog_migrate.streams.spark import decoding

    rows = [
        (keys[number] if keys else None, value, "t", 1, number, MOMENT)
        for number, value in enumerate(values)
    ]
    frame = decode.decode(spark.createDataFrame(rows, RECORD))
    told = decoding.first_unreadable(frame)
    good = decoding.readable(frame, spec).collect()
    bad = decoding.unreadable(frame).collect()
    for row in bad:
        assert row["value"] is None or bytes(row["value"]) == values[row["_offset"]]
    frame.unpersist()
    assert told == next(  # what stops the query under ON ERROR FAIL
        (f"{decoding.BAD_RECORD_MARK}topic t, partition 1, offset {row['_offset']}: {row['error']}"
         for row in sorted(bad, key=lambda row: row["_offset"])), None,
    )  # fmt: skip
    return {row["_offset"]: row for row in good}, {row["_offset"]: row["error"] for row in bad}


def test_avro_in_every_thread(spark: SparkSession, registry: SchemaRegistry) -> None:
    """ADD JAR reaches the thread that says it and those that it starts: each query has its own."""
    from concurrent.futures import ThreadPoolExecutor

    from catalog_migrate.streams.spark.kafka_sink import KafkaSink

    schema = {"type": "record", "name": "T", "fields": [{"name": "id", "type": "long"}]}
    value = framed(registry.register("read-value", schema), encoded(schema, {"id": 1}))
    columns = (Column("id", "BIGINT"),)

    def read() -> None:
        good, bad = decoded(spark, *decoder(spark, registry, columns, "AVRO"), value)
        assert ([row["id"] for row in good.values()], bad) == ([1], {})

    def write() -> None:
        _, spec = decoder(spark, registry, columns, "AVRO")
        out = replace(
            spec, kind="sink", columns=columns, connection={"BROKER": "nobody:1"},
            external=External(connector="KAFKA", options={"TOPIC": "written"}, format="AVRO"),
        )  # fmt: skip
        (row,) = KafkaSink(out).records(spark.sql("SELECT 1L AS id"), 0).collect()
        assert bytes(row["value"])[5:] == encoded(["null", "long"], 1)

    for each in (read, write, read):
        with ThreadPoolExecutor(1) as thread:
            thread.submit(each).result()


def test_avro(spark: SparkSession, registry: SchemaRegistry) -> None:
    """Two schemas in one batch become rows of the columns, exactly; what is not one whole record
    of the schema that it names is told apart, also what Avro itself would take in silence."""
    first, second = registry.register("t-value", FIRST), registry.register("t-value", SECOND)
    other = registry.register("x-value", {"type": "record", "name": "X", "fields": [
        {"name": "id", "type": "string"}]})  # fmt: skip
    json_one = registry.register("j-value", {"type": "object"}, "JSON")
    one = encoded(FIRST, {
        "unused": "B", "id": 7, "code": "A", "tags": ["x", "y"], "inner": {"a": 3, "b": True},
    })  # fmt: skip
    two = encoded(SECOND, {
        "id": 8, "price": Decimal("12.3"), "at": MOMENT, "code": "abc",
        "lines": [{"sku": "s", "qty": 2}],
    })  # fmt: skip
    long_code = encoded(SECOND, {
        "id": 9, "price": Decimal("1"), "at": MOMENT, "code": "abcd", "lines": []})  # fmt: skip
    decode, spec = decoder(spark, registry, ORDERS, "AVRO")
    good, bad = decoded(
        spark, decode, spec,
        framed(first, one), framed(second, two), framed(first, one[:-1]), framed(first, one + b"x"),
        framed(first, two), framed(second, one), framed(999, one), framed(other, b"\x02x"),
        framed(json_one, b"{}"), None, b"\0\0\0", b'{"id": 1}', framed(second, long_code),
        framed(second, b""), framed(second, b"\x0a\xfe\xff\xff\xff\x0e"),
    )  # fmt: skip
    assert [tuple(row)[:4] for row in good.values()] == [
        (7, None, "A", ["x", "y"]), (8, Decimal("12.30"), "abc", None),
    ]
    assert good[0]["inner"].asDict() == {"b": True, "a": 3}
    assert [row.asDict() for row in good[1]["lines"]] == [{"qty": 2, "sku": "s"}]
    assert spark.createDataFrame([(good[1]["at"],)]).first() is not None
    not_whole = "it is not one whole record of its schema"
    assert bad == {
        2: f"{not_whole} {first}", 3: f"{not_whole} {first}", 4: f"{not_whole} {first}",
        5: f"{not_whole} {second}", 6: "its schema 999 is not in the registry",
        7: f"its schema {other} does not fit: its field id is string, which does not fit BIGINT",
        8: f"its schema {json_one} is JSON, not AVRO", 9: "it has no value",
        10: "it does not begin with the number of a schema",
        11: "it does not begin with the number of a schema",
        12: "its code is longer than VARCHAR(3)",
        13: f"{not_whole} {second}", 14: f"{not_whole} {second}",
    }  # fmt: skip
    registry.asked.clear()
    assert len(decoded(spark, decode, spec, framed(first, one))[0]) == 1
    assert registry.asked == []
    third = registry.register("t-value", {**SECOND, "doc": "3"})
    registry.stop()
    with pytest.raises(EngineFailure, match=r"connection default\.r: .* be reached") as caught:
        decoded(spark, decode, spec, framed(third, two))
    registry.start()
    assert (caught.value.condition, caught.value.transient) == ("SCHEMA_REGISTRY", True)
    assert len(decoded(spark, decode, spec, framed(third, two))[0]) == 1


def test_json_schema_and_keys(spark: SparkSession, registry: SchemaRegistry) -> None:
    """JSON behind the number of its schema is read as FORMAT JSON does; a key in Avro is shown as
    its text, or as JSON of its fields."""
    number = registry.register("p-value", {"type": "object", "title": "p"}, "JSON")
    text = registry.register("p-key", '"string"')
    record = registry.register("q-key", {"type": "record", "name": "K", "fields": [
        {"name": "a", "type": "int"}]})  # fmt: skip
    columns = (Column("id", "BIGINT", nullable=False), Column("k", "STRING"))
    decode, spec = decoder(
        spark, registry, columns, "JSON SCHEMA", include={"KEY": "k"}, key_format="AVRO"
    )
    good, bad = decoded(
        spark, decode, spec,
        framed(number, b'{"id": 1}'), framed(number, b'{"id": 2}'), framed(number, b'{"id": 3}{}'),
        framed(number, b'{"id": 4}'), framed(text, b'{"id": 5}'), framed(number, b'{"id": 6}'),
        keys=(
            framed(text, encoded("string", "ä")), framed(record, b"\x06"), None, None, None,
            framed(text, b"\x06x"),
        ),
    )  # fmt: skip
    assert [tuple(row)[:2] for row in good.values()] == [(1, "ä"), (2, '{"a":3}'), (4, None)]
    assert bad == {
        2: "it is not one JSON object of the declared columns",
        4: f"its schema {text} is AVRO, not JSON",
        5: f"its key is not one whole value of its schema {text}",
    }


@pytest.mark.soak
def test_protobuf(spark: SparkSession, registry: SchemaRegistry) -> None:
    """Messages are decoded by Python beside Spark; what is no message of its schema is bad."""
    text = (
        'syntax = "proto3"; package shop; import "google/protobuf/timestamp.proto";'
        " message Order { int64 id = 1; optional string note = 2;"
        " google.protobuf.Timestamp at = 3; repeated string tags = 4; }"
    )
    number = registry.register("m-value", text, "PROTOBUF")
    broken = registry.register("n-value", "message {", "PROTOBUF")
    columns = (
        Column("id", "BIGINT", nullable=False), Column("note", "VARCHAR(3)"),
        Column("at", "TIMESTAMP"), Column("tags", "ARRAY<STRING>"), Column("absent", "INT"),
    )
    one = b"\x08\x07\x12\x01n\x1a\x02\x08\x01\x22\x01t"
    decode, spec = decoder(spark, registry, columns, "PROTOBUF")
    good, bad = decoded(
        spark, decode, spec,
        framed(number, b"\0" + one), framed(number, b"\0"), framed(number, b"\0" + one[:-1]),
        framed(number, b"\0" + one + b"\x28\x01"), framed(number, b"\x02\x04" + one),
        framed(broken, b"\0"), framed(998, b"\0"), None, framed(number, b"\0\x12\x04abcd"),
    )
    (first, second) = good.values()
    assert tuple(first)[:2] + tuple(first)[3:5] == (7, "n", ["t"], None)
    assert first["at"].timestamp() == 1.0
    assert tuple(second)[:5] == (0, None, None, [], None)
    assert bad.pop(5).startswith(f"its schema {broken}: its schema does not compile: ")
    assert bad == {
        2: f"it is not one whole message of its schema ({number})",
        3: f"it holds fields that its schema has not ({number})",
        4: f"it names a message that its schema has not ({number})",
        6: "its schema 998 is not in the registry", 7: "it has no value",
        8: "its note is longer than VARCHAR(3)",
    }


@pytest.mark.soak
def test_what_a_sink_writes_a_source_reads(
    spark: SparkSession, registry: SchemaRegistry
) -> None:
    """Rows of every type of Avro come back as they were, by the schema that the sink registered;
    as JSON they are behind the number of a JSON Schema that takes them."""
    import jsonschema

    from catalog_migrate.connectors.secrets import Secret
    from catalog_migrate.streams.spark.kafka_sink import KafkaSink
    columns = (
        Column("id", "BIGINT", nullable=False), Column("b", "BOOLEAN"), Column("n", "INT"),
        Column("f", "FLOAT"), Column("d", "DOUBLE"), Column("s", "STRING"), Column("raw", "BINARY"),
        Column("day", "DATE"), Column("at", "TIMESTAMP"), Column("local", "TIMESTAMP_NTZ"),
        Column("money", "DECIMAL(20,3)"), Column("tags", "ARRAY<STRING>"),
        Column("counts", "MAP<STRING,INT>"),
        Column("deep", "STRUCT<a: ARRAY<STRUCT<x: DECIMAL(4,1)>>, c: STRING>"),
    )  # fmt: skip
    frame = spark.sql(
        "SELECT 1L AS id, true AS b, 2 AS n, CAST(1.5 AS FLOAT) AS f, CAST(0.1 AS DOUBLE) AS d,"
        " 'ä' AS s, X'00FF' AS raw, DATE'2026-01-02' AS day, TIMESTAMP'2026-01-02 03:04:05.123456Z'"
        " AS at, TIMESTAMP_NTZ'2026-01-02 03:04:05.123456' AS local,"
        " CAST(-12345.678 AS DECIMAL(20,3)) AS money, array('x', NULL) AS tags,"
        " map('k', 1, 'l', NULL) AS counts, named_struct('a', array(named_struct('x',"
        " CAST(1.5 AS DECIMAL(4,1)))), 'c', CAST(NULL AS STRING)) AS deep"
    )
    nothing = ", ".join(f"CAST(NULL AS {each.type}) AS {each.name}" for each in columns[1:])
    frame = frame.union(spark.sql(f"SELECT 2L AS id, {nothing}"))
    resolved = {"URL": registry.url, "USERNAME": "app", "PASSWORD": Secret("first-of-app")}

    def written(format_: str) -> list[bytes]:
        spec = QuerySpec(
            item_id="u2", name=ItemName("default", "k"), kind="sink",
            external=External(
                connector="KAFKA", options={"TOPIC": f"out {format_}"}, format=format_, key=("id",)
            ),
            columns=columns, connection={"BROKER": "nobody:1"}, shard="", checkpoint="",
            registry=resolved, registry_name="default.r",
        )  # fmt: skip
        rows = KafkaSink(spec).records(frame, 0).collect()
        return [bytes(row["value"]) for row in sorted(rows, key=lambda row: row["key"])]

    values = written("AVRO")
    decode, spec = decoder(spark, registry, columns, "AVRO")
    good, bad = decoded(spark, decode, spec, *values)
    assert not bad
    assert [tuple(row)[:14] for row in good.values()] == [
        tuple(row) for row in frame.orderBy("id").collect()
    ]
    for value in written("JSON SCHEMA"):
        schema = json.loads(registry.schemas[int.from_bytes(value[1:5], "big")]["schema"])
        jsonschema.validate(json.loads(value[5:]), schema)
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate({**json.loads(value[5:]), "other": 1}, schema)
