"""A source and a sink that log in by token, from the first start at chosen offsets on."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

import pytest

from catalog_migrate.errors import EngineFailure, ValidationFailed
from tests.services.token_server import TokenServer, make_certificate

from .conftest import once

if TYPE_CHECKING:
    from pathlib import Path

    from .conftest import Pipeline

pytestmark = [pytest.mark.spark, pytest.mark.services]

SECOND = 'second"\\'


@pytest.fixture
def tokens(kafka: Any, tmp_path: Path) -> Iterator[TokenServer]:
    """A token server that speaks TLS, and whose tokens the broker takes."""
    pem, key_file = make_certificate(tmp_path)
    with TokenServer(kafka.token_key, {"app": "first"}, pem=pem, key_file=key_file) as server:
        yield server


@pytest.mark.soak
def test_first_start_and_rotation(
    pipeline: Pipeline, tokens: TokenServer, tmp_path: Path
) -> None:
    """Nothing is read before RESUME, then each partition from where it was said to.

    A client secret that was rotated at the endpoint alone stops the start, with the option; ALTER
    SECRET heals it. Offsets that are not there, and wrong secrets, commit nothing.
    """
    topic, out, q = pipeline.topic("t", 4), pipeline.topic("o", 1), pipeline.q
    connect(pipeline, tokens, tmp_path)
    moment = fill(pipeline, topic)
    create = (
        f"CREATE SOURCE {q('s')} (id BIGINT) IN CLUSTER {q('main')} FROM KAFKA CONNECTION {q('c')} "
        f"(TOPIC '{topic}', START 'latest', START OFFSETS (%s)) FORMAT JSON PAUSED"
    )
    version = pipeline.catalog.state().version
    for bad, why in (("'%s:4' = 0", "t-4 does not exist"), ("'%s:1' = 6", "6 is beyond the end")):
        with pytest.raises(EngineFailure, match=why):
            pipeline.run(create % bad % topic)
    with pytest.raises(ValidationFailed) as refused:
        pipeline.run(f"ALTER CONNECTION {q('c')} SET (OAUTH CLIENT SECRET SECRET {q('wrong')})")
    assert "option OAUTH CLIENT SECRET" in str(refused.value)
    assert pipeline.catalog.state().version == version

    pipeline.run(create % f"'{topic}:0' = 3, '{topic}:1' = earliest, '{topic}:2' = '{moment}'")
    pipeline.run(
        f"CREATE SINK {q('k')} IN CLUSTER {q('main')} FROM {q('s')} INTO KAFKA CONNECTION "
        f"{q('c')} (TOPIC '{out}') KEY (id) FORMAT JSON"
    )
    tokens.clients["app"] = SECOND
    pipeline.start()
    supervisor = pipeline.runtime.supervisor  # type: ignore[union-attr]
    assert supervisor is not None
    pipeline.run(f"RESUME SOURCE {q('s')}")
    pipeline.until(lambda: pipeline.id("s") in supervisor.managed, "the first try")
    pipeline.until(lambda: pipeline.broken("s"), "the reason")
    error = str(supervisor.managed[pipeline.id("s")].error)
    assert "token endpoint refuses OAUTH CLIENT SECRET: invalid_client" in error

    rotate(pipeline)
    wanted = Counter([3, 4, *range(100, 105), 205, 206])
    pipeline.until(lambda: pipeline.ids("s") == wanted, "the rows from there on")
    pipeline.until(lambda: pipeline.kafka_ids(out) == wanted, "the rows that were sent")


@pytest.mark.soak
def test_rotated_at_the_endpoint_alone(
    pipeline: Pipeline, tokens: TokenServer, tmp_path: Path
) -> None:
    """A running query ends with its token, its restart says why, ALTER SECRET goes on exactly."""
    tokens.lifetime = 12
    connect(pipeline, tokens, tmp_path)
    topic = pipeline.topic("t")
    pipeline.source("s", "c", topic)
    pipeline.start()
    pipeline.produce(topic)
    pipeline.await_running(1)
    asked = tokens.asked
    pipeline.until(lambda: tokens.asked > asked + 1, "a renewed token")
    (before,) = pipeline.run_ids().values()

    tokens.clients["app"] = SECOND
    pipeline.until(lambda: pipeline.broken("s"), "the end of the token")
    supervisor = pipeline.runtime.supervisor  # type: ignore[union-attr]
    assert supervisor is not None
    managed = supervisor.managed[pipeline.id("s")]
    pipeline.until(lambda: "refuses OAUTH CLIENT SECRET" in str(managed.error), "the reason")
    rotate(pipeline)
    pipeline.await_running(1)
    assert pipeline.run_ids() != {pipeline.q("s"): before}
    pipeline.stop_producing()
    sent = once(pipeline.sent[topic])
    pipeline.until(lambda: pipeline.ids("s") == sent, "all rows")


def connect(pipeline: Pipeline, tokens: TokenServer, tmp_path: Path) -> None:
    """The connection ``c`` with the secret ``client``, and the secret ``wrong``."""
    for name, value in (("first", "first"), ("wrong", "wrong"), ("second", SECOND)):
        pipeline.secret(name, value)
    client = pipeline.q("client")
    pipeline.run(f"CREATE SECRET {client} AS 'env:{pipeline.name.upper()}_FIRST'")
    authority = (tmp_path / "endpoint.pem").read_text()
    pipeline.run(
        f"CREATE CONNECTION {pipeline.q('c')} TO KAFKA (BROKER '{pipeline.kafka.bootstrap}', "
        "SECURITY PROTOCOL 'SASL_PLAINTEXT', SASL MECHANISMS 'OAUTHBEARER', OAUTH TOKEN ENDPOINT "
        f"'{tokens.url}', OAUTH CLIENT ID 'app', OAUTH CLIENT SECRET SECRET {client}, "
        f"OAUTH SCOPE 'streams', OAUTH CERTIFICATE AUTHORITY '{authority}')"
    )


def rotate(pipeline: Pipeline) -> None:
    """ALTER SECRET to the second value."""
    pipeline.run(f"ALTER SECRET {pipeline.q('client')} AS 'env:{pipeline.name.upper()}_SECOND'")


def fill(pipeline: Pipeline, topic: str) -> str:
    """Five records in each of four partitions and two later ones in the third; the time between."""
    for partition in range(4):
        first = 100 * partition
        pipeline.kafka.produce(
            topic, [f'{{"id": {n}}}' for n in range(first, first + 5)], partition=partition
        )
    time.sleep(0.01)
    moment = datetime.now(timezone.utc).isoformat(timespec="milliseconds")
    time.sleep(0.01)
    pipeline.kafka.produce(topic, ['{"id": 205}', '{"id": 206}'], partition=2)
    return moment
