"""Sources with a schema registry: Avro against JSON of the same records."""

from __future__ import annotations

import io
import itertools
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from bench.measure import Cost, Measure, paired
from catalog_migrate.connectors.query import DEAD_LETTER_COLUMNS, PLACE_COLUMNS, QuerySpec
from catalog_migrate.delta.table import load_table
from catalog_migrate.engine.port import ShardSpec
from catalog_migrate.engine.spark.shards import Shards
from catalog_migrate.model.names import ItemName
from catalog_migrate.model.objects import Column, External
from catalog_migrate.streams.spark.engine import SparkQueries
from tests.services.schema_registry import SchemaRegistry

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.services.kafka import KafkaCluster

RECORDS = 200_000
ROUNDS = 7
SCHEMA = {
    "type": "record", "name": "Order", "fields": [
        {"name": "id", "type": "long"},
        {"name": "customer", "type": "string"},
        {"name": "price", "type": "double"},
        {"name": "note", "type": ["null", "string"], "default": None},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
    ],
}  # fmt: skip
COLUMNS = (
    Column("id", "BIGINT", nullable=False), Column("customer", "STRING"),
    Column("price", "DOUBLE"), Column("note", "STRING"), Column("tags", "ARRAY<STRING>"),
)
_numbers = itertools.count(1)


def avro_source(
    spark: SparkSession, kafka: KafkaCluster, directory: Path, *, dead_letters: bool
) -> Measure:
    """All records of a topic into a table, in one batch of a new query."""
    where = "dead-letters" if dead_letters else "fail"
    avro, plain = f"avro-{where}", f"json-{where}"
    for topic in (avro, plain):
        kafka.create_topic(topic, 2)
    with SchemaRegistry() as registry:
        number = registry.register(f"{avro}-value", SCHEMA)
        kafka.produce(avro, _avro(number))
        kafka.produce(plain, (json.dumps(each) for each in _orders()))
        queries = SparkQueries(spark)

        def run(topic: str, external: External, url: str | None) -> Callable[[], Cost]:
            def once() -> Cost:
                place = directory / f"{topic}-{next(_numbers)}"
                bad = str(place / "dead") if dead_letters else None
                columns = COLUMNS + PLACE_COLUMNS
                shards = Shards(spark)
                shards.create_shard(ShardSpec(path=str(place / "rows"), columns=columns))
                if bad is not None:
                    shards.create_shard(ShardSpec(path=bad, columns=DEAD_LETTER_COLUMNS))
                query = queries.prepare(QuerySpec(
                    item_id="i1", name=ItemName("bench", "s"), kind="source", external=external,
                    columns=columns, connection={"BROKER": kafka.plain_bootstrap},
                    shard=str(place / "rows"), checkpoint=str(place / "checkpoint"),
                    dead_letters=bad, registry=None if url is None else {"URL": url},
                ))  # fmt: skip
                began = time.perf_counter()
                started = query.start(once=True)
                assert started.wait(600)
                cost = Cost(time.perf_counter() - began)
                assert started.failure() is None, started.failure()
                assert load_table(str(place / "rows")).count() == RECORDS
                return cost

            return once

        found, baseline = paired(
            run(avro, External(connector="KAFKA", options={"TOPIC": avro}, format="AVRO"),
                registry.url),
            run(plain, External(connector="KAFKA", options={"TOPIC": plain}, format="JSON"), None),
            rounds=ROUNDS, warm=2,
        )  # fmt: skip
    rates = [RECORDS / each.wall for each in (found, baseline)]
    mode = "with dead letters" if dead_letters else "that fails at a bad record"
    return Measure(
        f"{RECORDS:,} records of Avro into a table, by a source {mode}", found,
        "the same records as JSON", baseline, "≥ 0.8× its rate", rates[0] >= 0.8 * rates[1],
        f"{rates[0]:,.0f} records/s against {rates[1]:,.0f}",
    )


def _orders() -> list[dict[str, object]]:
    return [
        {"id": number, "customer": f"customer-{number % 977}", "price": number * 0.25,
         "note": None if number % 3 else "left at the door", "tags": ["new", f"t{number % 7}"]}
        for number in range(RECORDS)
    ]  # fmt: skip


def _avro(number: int) -> list[bytes]:
    import fastavro

    schema = fastavro.parse_schema(SCHEMA)
    head = b"\0" + number.to_bytes(4, "big")
    records = []
    for each in _orders():
        out = io.BytesIO()
        out.write(head)
        fastavro.schemaless_writer(out, schema, each)
        records.append(out.getvalue())
    return records
