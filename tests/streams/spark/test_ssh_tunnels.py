"""A source on Kafka and a sink into PostgreSQL that both stand behind an SSH tunnel."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from catalog_migrate.connectors.secrets import Secret
from catalog_migrate.errors import EngineFailure
from tests.services.ssh import USER, SSHServer, new_key

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = [pytest.mark.spark, pytest.mark.services]

PRIVATE, PUBLIC = new_key()


@pytest.fixture
def tunnel(kafka: Any, database: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The options of connections behind it: the broker as k.internal, the database as d.internal.
    """
    where, local = kafka.tunnelled
    names = {
        ("k.internal", local): where,
        ("d.internal", 5432): (database["HOST"], int(database["PORT"])),
    }
    with SSHServer([PUBLIC], names) as server:
        yield {
            "SSH TUNNEL": "default.t", "SSH TUNNEL HOST": "127.0.0.1",
            "SSH TUNNEL PORT": str(server.port), "SSH TUNNEL USER": USER,
            "SSH TUNNEL PRIVATE KEY": Secret(PRIVATE), "SSH TUNNEL HOST KEY": server.host_key,
        }
        assert set(server.opened) == set(names)


def test_from_kafka_into_postgres(
    workshop: Any, kafka: Any, database: dict[str, Any], topic: str, tunnel: dict[str, Any],
    sql: Callable[..., list[tuple[Any, ...]]], monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each record becomes a row, each row arrives; executors on other machines are refused."""
    kafka.produce(topic, [(str(n), f'{{"id": {n}}}') for n in range(20)])
    broker = {"BROKER": f"k.internal:{kafka.tunnelled[1]}", **tunnel}
    source = workshop.source("KAFKA", broker, "id BIGINT", {"TOPIC": topic}, format="JSON")
    workshop.run(source, rows=20)
    sql("CREATE TABLE behind (id bigint)")
    there = {**database, "HOST": "d.internal", "PORT": "5432", **tunnel}
    columns = source.columns[:1]
    sink = workshop.sink("POSTGRES", there, (source.shard, columns), {"TABLE": "behind"})
    workshop.run(sink, rows=20)
    assert sql("SELECT count(DISTINCT id), count(*) FROM behind") == [(20, 20)]

    elsewhere = SimpleNamespace(sparkContext=SimpleNamespace(master="spark://cluster:7077"))
    monkeypatch.setattr(workshop.queries, "_spark", elsewhere)
    with pytest.raises(EngineFailure, match="its executors are elsewhere"):
        workshop.queries.prepare(source)
