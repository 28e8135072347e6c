"""Avro in, Avro out, through a registry that is altered under running queries."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from catalog_migrate.connectors.positions import OffsetRange
from catalog_migrate.delta.table import load_table
from catalog_migrate.errors import RefusedStatement, ValidationFailed
from catalog_migrate.streams.catalog import dependencies
from tests.services.schema_registry import SchemaRegistry

from .test_oauthbearer import SECOND as SECOND_CLIENT_SECRET
from .test_oauthbearer import connect, rotate

if TYPE_CHECKING:
    from tests.services.kafka import KafkaCluster

    from .conftest import Pipeline

pytestmark = [pytest.mark.spark, pytest.mark.services]

FIRST = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "int"}]}
SECOND = {"type": "record", "name": "Order", "fields": [
    {"name": "id", "type": "long"},
    {"name": "note", "type": ["null", "string"], "default": None},
]}  # fmt: skip


@pytest.fixture
def registries() -> Iterator[tuple[SchemaRegistry, SchemaRegistry]]:
    """Two registries with one login."""
    login = ("app", "of-the-registry")
    with SchemaRegistry(login=login) as one, SchemaRegistry(login=login) as other:
        yield one, other


def avro(number: int, schema: Any, value: Any) -> bytes:
    """A record with the number of its schema."""
    import fastavro

    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(json.loads(json.dumps(schema))), value)
    return b"\0" + number.to_bytes(4, "big") + out.getvalue()


def rows(pipeline: Pipeline, kind: str, name: str, columns: str) -> list[tuple[Any, ...]]:
    """Rows of a table, sorted, read by delta-rs."""
    from deltalake import QueryBuilder

    state = pipeline.catalog.state()
    shard = dependencies.find(state, kind, pipeline.q(name)).item.shard
    path = f"{state.config['warehouse'].value}/{shard}"
    found = QueryBuilder().register("t", load_table(path)).execute(f"SELECT {columns} FROM t")
    table = found.read_all()
    lists = [table.column(each.strip()).to_pylist() for each in columns.split(",")]
    return sorted(zip(*lists, strict=True), key=repr)


def sent(pipeline: Pipeline, topic: str, registry: SchemaRegistry) -> list[tuple[str, Any]]:
    """The keys and values of a sink's topic, each read by the schema that it names."""
    import fastavro

    found = []
    for record in pipeline.kafka.consume_all(topic):
        number = int.from_bytes(record.value[1:5], "big")
        schema = fastavro.parse_schema(json.loads(registry.schemas[number]["schema"]))
        body = io.BytesIO(record.value[5:])
        found.append((record.key.decode(), fastavro.schemaless_reader(body, schema, None)))
        assert not body.read()
    return sorted(found, key=repr)


def test_avro_in_and_out(
    pipeline: Pipeline, registries: tuple[SchemaRegistry, SchemaRegistry]
) -> None:
    """Two schemas in one topic arrive, bad records become dead letters, a sink registers its
    schema; an ALTER of the registry's connection restarts who uses it, and nobody else."""
    one, other = registries
    q = pipeline.q
    pipeline.kafka_connection("c")
    pipeline.secret("rp", "of-the-registry")
    pipeline.run(
        f"CREATE CONNECTION {q('r')} TO SCHEMA REGISTRY (URL '{one.url}', USERNAME 'app',"
        f" PASSWORD SECRET {q('rp')})"
    )
    topics = {name: pipeline.topic(name, 1) for name in ("in", "plain", "out")}
    first, second = (one.register(f"{topics['in']}-value", each) for each in (FIRST, SECOND))
    pipeline.run(
        f"CREATE SOURCE {q('s')} (id BIGINT NOT NULL, note STRING) IN CLUSTER {q('main')} FROM"
        f" KAFKA CONNECTION {q('c')} (TOPIC '{topics['in']}') FORMAT AVRO USING SCHEMA REGISTRY"
        f" CONNECTION {q('r')} ON ERROR INTO {q('dead')}"
    )
    pipeline.source("plain", "c", topics["plain"])
    pipeline.run(
        f"CREATE SINK {q('k')} IN CLUSTER {q('main')} FROM {q('s')} INTO KAFKA CONNECTION"
        f" {q('c')} (TOPIC '{topics['out']}', RECORD NAME 'shop.Order') KEY (id) FORMAT AVRO USING"
        f" SCHEMA REGISTRY CONNECTION {q('r')}"
    )
    pipeline.kafka.produce(topics["in"], [
        (None, avro(first, FIRST, {"id": 1})), (None, avro(second, SECOND, {"id": 2, "note": "n"})),
        (None, b'{"id": 3}'), (None, avro(77, FIRST, {"id": 4})),
        (None, avro(first, FIRST, {"id": 5}) + b"x"),
    ])  # fmt: skip
    pipeline.start()
    pipeline.until(lambda: len(rows(pipeline, "source", "s", "id")) == 2, "the good records")
    assert rows(pipeline, "source", "s", "id, note") == [(1, None), (2, "n")]
    assert rows(pipeline, "relation", "dead", "_offset, error") == [
        (2, "it does not begin with the number of a schema"),
        (3, "its schema 77 is not in the registry"),
        (4, f"it is not one whole record of its schema {first}"),
    ]
    written = [("1", {"id": 1, "note": None}), ("2", {"id": 2, "note": "n"})]
    pipeline.until(lambda: len(pipeline.kafka.consume_all(topics["out"])) == 2, "what is sent on")
    assert sent(pipeline, topics["out"], one) == written

    shown = pipeline.run(f"SHOW CREATE SOURCE {q('s')}")[0].summary
    assert f"FORMAT AVRO USING SCHEMA REGISTRY CONNECTION {q('r')}" in shown
    with pytest.raises(RefusedStatement, match=r"is used by sink .*k, source .*s"):
        pipeline.run(f"DROP CONNECTION {q('r')}")
    alter = f"ALTER CONNECTION {q('r')} SET (URL '{other.url}')"
    with pytest.raises(ValidationFailed) as caught:
        pipeline.run(alter)  # nothing is in that one
    assert f"connection {q('r')} has no subject {topics['in']}-value" in str(caught.value)

    other.schemas, other.subjects = dict(one.schemas), dict(one.subjects)
    before = pipeline.run_ids()
    told = pipeline.run(f"EXPLAIN {alter}")[0].summary
    assert (q("s") in told, q("k") in told, q("plain") in told) == (True, True, False)
    result = pipeline.run(alter)[0]
    assert sorted(result.restarted) == [q("k"), q("s")]
    after = pipeline.run_ids()
    assert {name for name in after if after[name] != before[name]} == {q("k"), q("s")}
    one.stop()
    pipeline.kafka.produce(topics["in"], [(None, avro(second, SECOND, {"id": 6, "note": "m"}))])
    written.append(("6", {"id": 6, "note": "m"}))
    pipeline.until(lambda: len(pipeline.kafka.consume_all(topics["out"])) == 3, "what is sent on")
    assert sent(pipeline, topics["out"], other) == written
    assert rows(pipeline, "source", "s", "id") == [(1,), (2,), (6,)]


@pytest.mark.soak
def test_apicurio(
    pipeline: Pipeline, kafka_other: KafkaCluster, tmp_path: Path
) -> None:
    """Against a real registry and a broker with TLS and OAUTHBEARER, with Confluent's own clients
    at both ends: two schema versions, another client secret, the registry at a new address. Nothing
    is lost or doubled, the dead letters are those that were planted."""
    from confluent_kafka.schema_registry import SchemaRegistryClient
    from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
    from confluent_kafka.serialization import MessageField, SerializationContext

    from tests.services.apicurio import Apicurio, url_at
    from tests.services.metastore import SlowWire
    from tests.services.token_server import TokenServer, make_certificate

    q = pipeline.q
    pipeline.kafka = kafka_other
    pem, key_file = make_certificate(tmp_path)
    topics = {name: pipeline.topic(name, 1) for name in ("in", "out")}
    with (
        TokenServer(kafka_other.token_key, {"app": "first"}, pem=pem, key_file=key_file) as tokens,
        Apicurio(tmp_path) as apicurio, SlowWire(apicurio) as wire,
    ):
        connect(pipeline, tokens, tmp_path)
        pipeline.run(
            f"ALTER CONNECTION {q('c')} SET (BROKER '{kafka_other.sasl_ssl_bootstrap}', SECURITY"
            " PROTOCOL 'SASL_SSL', SSL CERTIFICATE AUTHORITY"
            f" '{kafka_other.certificate.read_text()}')"
        )
        client = SchemaRegistryClient({"url": apicurio.url})
        context = SerializationContext(topics["in"], MessageField.VALUE)
        serializers = [AvroSerializer(client, json.dumps(each)) for each in (FIRST, SECOND)]

        def send(first: int, count: int) -> None:
            """Records of both schemas, and among them one that is none."""
            values = [
                serializers[n % 2]({"id": n, "note": f"n{n}"} if n % 2 else {"id": n}, context)
                for n in range(first, first + count)
            ]
            values.insert(count // 2, (values[0] or b"")[:-1] + b"\xff\xff")
            pipeline.kafka.produce(topics["in"], [(None, value) for value in values])

        send(0, 500)
        pipeline.run(f"CREATE CONNECTION {q('r')} TO SCHEMA REGISTRY (URL '{apicurio.url}')")
        pipeline.run(
            f"CREATE SOURCE {q('s')} (id BIGINT NOT NULL, note STRING) IN CLUSTER {q('main')} FROM"
            f" KAFKA CONNECTION {q('c')} (TOPIC '{topics['in']}') FORMAT AVRO USING SCHEMA REGISTRY"
            f" CONNECTION {q('r')} ON ERROR INTO {q('dead')}"
        )
        pipeline.run(
            f"CREATE SINK {q('k')} IN CLUSTER {q('main')} FROM {q('s')} INTO KAFKA CONNECTION"
            f" {q('c')} (TOPIC '{topics['out']}') KEY (id) FORMAT AVRO USING SCHEMA REGISTRY"
            f" CONNECTION {q('r')}"
        )
        pipeline.start()
        pipeline.until(lambda: len(rows(pipeline, "source", "s", "id")) == 500, "the first records")
        send(500, 250)
        tokens.clients["app"] = SECOND_CLIENT_SECRET
        rotate(pipeline)
        send(750, 250)
        pipeline.run(f"ALTER CONNECTION {q('r')} SET (URL '{url_at(wire.port)}')")
        send(1000, 500)
        pipeline.until(lambda: len(rows(pipeline, "source", "s", "id")) == 1500, "all records")
        assert rows(pipeline, "source", "s", "id, note") == sorted(
            ((n, f"n{n}" if n % 2 else None) for n in range(1500)), key=repr
        )
        dead = rows(pipeline, "relation", "dead", "_offset")
        assert dead == sorted([(250,), (626,), (877,), (1253,)], key=repr)
        read = AvroDeserializer(client)
        out = SerializationContext(topics["out"], MessageField.VALUE)

        def arrived() -> list[int]:
            return sorted(
                found["id"] for record in pipeline.kafka.consume_all(topics["out"])
                if (found := read(record.value, out)) is not None
            )

        pipeline.until(lambda: set(arrived()) == set(range(1500)), "what is sent on")
        assert wire.calls > 0
        assert f"{topics['out']}-value" in client.get_subjects()

        pipeline.run(
            f"CREATE SOURCE {q('strict')} (id BIGINT NOT NULL) IN CLUSTER {q('main')} FROM KAFKA"
            f" CONNECTION {q('c')} (TOPIC '{topics['in']}') FORMAT AVRO USING SCHEMA REGISTRY"
            f" CONNECTION {q('r')}"
        )
        managed = pipeline.runtime.supervisor.managed  # type: ignore[union-attr]

        def told() -> str:
            """Why the source that fails at a bad record does not run."""
            found = managed.get(pipeline.id("strict"))
            return "" if found is None else str(found.error or "")

        place = f"topic {topics['in']}, partition 0, offset 250: it is not one whole record"
        pipeline.until(lambda: place in told(), "the bad record to be told")
        assert rows(pipeline, "source", "strict", "id") == []

        from catalog_migrate.streams.catalog.query_spec import spec_of
        from catalog_migrate.streams.spark.engine import SparkQueries

        spec = spec_of(pipeline.catalog.state(), pipeline.id("s"))  # as a backfill reads
        for _ in range(2):
            SparkQueries(pipeline.spark).append_range(
                spec, [OffsetRange(topics["in"], 0, 249, 252)], app="again", version=1
            )
        assert len(rows(pipeline, "source", "s", "id")) == 1502
        assert len(rows(pipeline, "relation", "dead", "_offset")) == 5
