"""What a person and a monitor see of sources and sinks that run, on real servers."""

from __future__ import annotations

import http.client
import json
import re
import signal
import socket
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from catalog_migrate.streams.ddl.health import Limits, streams_health
from catalog_migrate.streams.runtime.http_endpoint import Address, Endpoint
from catalog_migrate.streams.runtime.ports import Ports
from tests.streams.crash.runtime_process import PATIENCE, CommandProcess

if TYPE_CHECKING:
    from pathlib import Path

    from .conftest import Pipeline

pytestmark = [pytest.mark.spark, pytest.mark.services]


def test_a_day_of_a_pipeline(pipeline: Pipeline, kafka: Any) -> None:
    """Source and sinks run: numbers of batches, rows and lags are those of what was sent, in
    /metrics, SHOW and status alike. Two sinks are paused: they fall behind by exactly what arrives,
    and need a person; resumed they catch up. The source's log has its states, the newest last. No
    secret is anywhere."""
    pipeline.kafka_connection("c")
    pipeline.postgres_connection("pg")
    topic, out = pipeline.topic("in"), pipeline.topic("out", 1)
    table = pipeline.table("rows")
    pipeline.source("s", "c", topic, "WITH (TRIGGER '1 second')")
    for name, into in (
        ("k", f"KAFKA CONNECTION {pipeline.q('c')} (TOPIC '{out}') KEY (id) FORMAT JSON"),
        ("p", f"POSTGRES CONNECTION {pipeline.q('pg')} (TABLE '{table}')"),
    ):
        pipeline.run(
            f"CREATE SINK {pipeline.q(name)} IN CLUSTER {pipeline.q('main')} FROM "
            f"{pipeline.q('s')} INTO {into} WITH (TRIGGER '1 second')"
        )
    with Endpoint(Address("127.0.0.1", 0), pipeline.q("main")) as endpoint:
        assert get(endpoint, "/readyz")[0] == 503
        endpoint.runtime = pipeline.start()
        pipeline.until(lambda: get(endpoint, "/readyz")[0] == 200, "readiness")
        pipeline.send(topic, 40)
        for name, rows in (("s", 40), ("k", 40), ("p", 40)):
            pipeline.until(
                lambda name=name, rows=rows: metric(endpoint, "rows_total", pipeline.q(name))
                == rows, f"the rows of {name}",
            )
        for name in "skp":
            state = metric(endpoint, "state", pipeline.q(name), state="running")
            assert (state, metric(endpoint, "lag_records", pipeline.q(name))) == (1, 0)
            assert metric(endpoint, "last_batch", pipeline.q(name)) >= 0
            began = metric(endpoint, "last_batch_timestamp_seconds", pipeline.q(name))
            looked = metric(endpoint, "last_progress_timestamp_seconds", pipeline.q(name))
            assert 0 < began <= looked
        assert health(pipeline).ok

        for name in "kp":
            pipeline.run(f"PAUSE SINK {pipeline.q(name)} REASON 'disk'")
        pipeline.send(topic, 25)
        pipeline.until(lambda: sum(pipeline.ids("s").values()) == 65, "rows of the source")
        shown = rows_of(pipeline, "SHOW SINKS")
        assert {row["name"]: row["lag"] for row in shown} == {
            pipeline.q("k"): 25, pipeline.q("p"): 25,
        }
        assert all(row["lag_versions"] >= 1 for row in shown)
        pipeline.until(
            lambda: metric(endpoint, "state", pipeline.q("k"), state="held") == 1, "a held sink"
        )
        assert metric(endpoint, "holds", pipeline.q("k"), holder="operator") == 1
        endpoint._measured = -1e9  # what was asked for last may be a minute old
        pipeline.until(lambda: metric(endpoint, "lag_records", pipeline.q("k")) == 25, "a lag")
        found = health(pipeline, Limits(records=24))
        assert {query.name: (query.state, query.ok, query.lag.records) for query in found.queries} \
            == {pipeline.q("s"): ("running", True, 0), pipeline.q("k"): ("held", False, 25),
                pipeline.q("p"): ("held", False, 25)}
        (runtime,) = found.runtimes
        assert runtime.lives
        assert runtime.heartbeat is not None
        for name in "kp":
            pipeline.run(f"RESUME SINK {pipeline.q(name)}")
        pipeline.until(
            lambda: [row["lag"] for row in rows_of(pipeline, "SHOW SINKS")] == [0, 0], "no lag"
        )
        assert sum(pipeline.postgres_ids(table).values()) == 65
        assert sum(pipeline.kafka_ids(out).values()) == 65

        pipeline.until(
            lambda: rows_of(pipeline, f"SHOW SOURCE {pipeline.q('s')} LOG")[-1]["rows"] == 65,
            "the last report of the source",
        )
        log = rows_of(pipeline, f"SHOW SOURCE {pipeline.q('s')} LOG")
        assert [row["at"] for row in log] == sorted(row["at"] for row in log)
        assert (log[0]["state"], log[-1]["state"]) == ("starting", "running")
        text = get(endpoint, "/metrics")[1] + json.dumps(log)
        for secret in (kafka.users["app"], pipeline.postgres.parameters("app", "shop")["password"]):
            assert secret not in text
        pipeline.stop()
        assert get(endpoint, "/readyz") == (503, "it stops\n")


def get(endpoint: Endpoint, path: str) -> tuple[int, str]:
    return get_at(endpoint.address.port, path)


def get_at(port: int, path: str) -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


def metric(endpoint: Endpoint, name: str, query: str, **labels: str) -> float:
    """A metric of a query as Prometheus reads it; -1 where it is not there."""
    wanted = {"name": query, **labels}.items()
    return next(
        (
            sample.value
            for family in text_string_to_metric_families(get(endpoint, "/metrics")[1])
            for sample in family.samples
            if sample.name == f"catalog_migrate_stream_{name}" and wanted <= sample.labels.items()
        ), -1,
    )


def health(pipeline: Pipeline, limits: Limits | None = None) -> Any:
    from datetime import datetime, timezone

    return streams_health(
        pipeline.catalog.state(), pipeline.log, ports=Ports(), limits=limits,
        now=datetime.now(timezone.utc).timestamp(),
    )


def rows_of(pipeline: Pipeline, statement: str) -> list[dict[str, Any]]:
    (result,) = pipeline.run(statement)
    assert result.rows is not None
    return [dict(zip(result.rows.columns, row, strict=True)) for row in result.rows.values]


@pytest.mark.soak
def test_a_process_from_start_to_kill(tmp_path: Path) -> None:
    """`catalog-migrate run --http`: it lives while Spark starts, is ready once its first round has
    ended, and is neither once it is gone. Its lines begin with the time. A second one at the same
    port is refused before it starts Spark. Killed, it leaves a status that ends with 7."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.json").write_text('{"id": 1}\n{"id": 2}\n')
    catalog = str(tmp_path / "catalog")
    settings = {"catalog.uri": catalog}
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    address = f"127.0.0.1:{port}"

    def call(name: str, *arguments: str) -> tuple[int, str]:
        process = CommandProcess(tmp_path / name, *arguments, settings=settings)
        return process.end(), process.output

    def answer(path: str) -> tuple[int, str]:
        try:
            return get_at(port, path)
        except OSError:
            return 0, ""

    assert call("init", "init", "--empty", "--catalog", catalog)[0] == 0
    assert call(
        "create", "sql", "-c", f"CREATE CLUSTER main; CREATE CONNECTION f TO FILES (PATH"
        f" '{tmp_path}'); CREATE SOURCE s (id BIGINT) IN CLUSTER main FROM FILES CONNECTION f"
        " (PATH 'in') FORMAT JSON",
    )[0] == 0
    runtime = CommandProcess(tmp_path / "run", "run", "--http", address, settings=settings)
    try:
        seen = []
        until(lambda: seen.append((answer("/healthz")[0], answer("/readyz")[0]))
              or seen[-1] == (200, 200))
        assert (200, 503) in seen
        assert not any(health == 503 for health, _ in seen)
        until(lambda: 'stream_rows_total{kind="source",name="default.s",cluster="default.main"} 2'
              in answer("/metrics")[1])
        code, said = call("second", "run", "--http", address)
        assert code == 1
        assert f"CM0603: the runtime cannot answer at {address}: Address already in use" in said
        assert "starting Spark" not in said
        assert call("well", "status", "--streams")[0] == 0
        runtime.signal_driver(signal.SIGTERM)  # as a supervisor does: the JVM ends after it
        assert runtime.end() == 0
        assert answer("/healthz")[0] == 0
        times = [re.match(r"(\S+Z) ", line) for line in runtime.output.splitlines()]
        assert all(times)
        assert len(times) >= 4
        assert call("stopped", "status", "--streams")[0] == 7

        runtime = CommandProcess(tmp_path / "again", "run", "--http", address, settings=settings)
        until(lambda: answer("/readyz")[0] == 200)
        assert call("runs", "status", "--detailed-exitcode")[0] == 0
        runtime.kill()
        code, said = call("killed", "status", "--detailed-exitcode", "--streams")
        assert code == 7
        assert "source default.s: no runtime" in said
        assert "that process is dead" in said
    finally:
        runtime.close()


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.2)
