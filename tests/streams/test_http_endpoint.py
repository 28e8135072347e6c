"""``/healthz``, ``/readyz`` and ``/metrics`` of a runtime: what is answered, and nothing else."""

from __future__ import annotations

import http.client
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from catalog_migrate.catalog.memory_log import MemoryLog
from catalog_migrate.catalog.opening import create_catalog, read_state
from catalog_migrate.catalog.records import HoldRecord
from catalog_migrate.errors import (
    CatalogWriteRefused,
    EndpointFailed,
    EngineFailure,
    LeaseLost,
    UsageError,
)
from catalog_migrate.streams.catalog import dependencies
from catalog_migrate.streams.catalog.cluster_log import QueryStatus
from catalog_migrate.streams.catalog.queries import OfflineQueries
from catalog_migrate.streams.catalog.tables import DeltaTables
from catalog_migrate.streams.runtime import http_endpoint
from catalog_migrate.streams.runtime.exposition import exposition
from catalog_migrate.streams.runtime.http_endpoint import Address, Endpoint, parse_address
from catalog_migrate.streams.runtime.lag import Lag
from catalog_migrate.streams.runtime.observation import STUCK, Observation, ObservedQuery, observe
from catalog_migrate.streams.runtime.runtime import Runtime, RuntimeOptions
from tests.decisions import Changes, commit
from tests.streams.running.skipping_clock import SkippingClock

Do = Callable[[str], Any]
Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]
LOCAL = Address("127.0.0.1", 0)
PATIENCE = 60.0


def ask(
    endpoint: Endpoint, path: str, method: str = "GET"
) -> tuple[int, str, http.client.HTTPMessage]:
    """One request; (status, body, headers)."""
    connection = http.client.HTTPConnection(
        endpoint.address.host, endpoint.address.port, timeout=PATIENCE
    )
    try:
        connection.request(method, path)
        answer = connection.getresponse()
        return answer.status, answer.read().decode(), answer.headers
    finally:
        connection.close()


def samples(text: str) -> Samples:
    """What Prometheus' own parser reads; each sample once, each metric with type and help."""
    found: Samples = {}
    for family in text_string_to_metric_families(text):
        assert family.documentation
        assert family.type in ("gauge", "counter")
        assert family.type != "counter" or all(s.name.endswith("_total") for s in family.samples)
        for sample in family.samples:
            key = sample.name.removeprefix("catalog_migrate_"), frozenset(sample.labels.items())
            assert key not in found
            found[key] = sample.value
    return found


def one(found: Samples, metric: str, **labels: str) -> float:
    """The one sample of a metric that has these labels, maybe more."""
    (value,) = (
        value for (each, theirs), value in found.items()
        if each == metric and theirs >= frozenset(labels.items())
    )
    return value


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    """One that answers for a runtime that is still to come."""
    with Endpoint(LOCAL, "default.main") as made:
        yield made


@pytest.fixture(scope="module")
def starting() -> Iterator[Endpoint]:
    """One of a process whose session starts, for tests that only ask."""
    with Endpoint(LOCAL, "default.main") as made:
        yield made


@pytest.fixture
def log(tmp_path: Path) -> MemoryLog:
    """An empty catalog, whose clusters write their logs."""
    log = MemoryLog()
    create_catalog(log, warehouse=str(tmp_path))
    return log


class Session:
    """A session of Spark whose names can take for ever to be brought in line."""

    def __init__(self) -> None:
        self.answers, self.asked = threading.Event(), threading.Event()
        self.answers.set()

    def reconcile(self, _: object) -> None:
        self.asked.set()
        assert self.answers.wait(PATIENCE)


@pytest.fixture
def session() -> Session:
    """The runtime's."""
    return Session()


@pytest.fixture
def clock() -> SkippingClock:
    """The runtime's."""
    return SkippingClock()


@pytest.fixture
def runtime(
    log: MemoryLog, do: Do, session: Session, clock: SkippingClock
) -> Iterator[Runtime]:
    """A runtime of cluster ``main`` that can start nothing, with source ``s`` and a held sink."""
    do(
        "CREATE CLUSTER main; CREATE CONNECTION c TO FILES (PATH '/nowhere');"
        "CREATE SOURCE s (id BIGINT) IN CLUSTER main FROM FILES CONNECTION c (PATH 'in') "
        "FORMAT JSON;"
        "CREATE CONNECTION pg TO POSTGRES (HOST 'db.example.com', DATABASE 'shop', USER 'app');"
        "CREATE SINK k IN CLUSTER main FROM s INTO POSTGRES CONNECTION pg (TABLE 't') PAUSED"
    )
    made = Runtime(
        log, "main", OfflineQueries(DeltaTables()), ensure_shards=lambda *_: None, clock=clock,
        reconcile=session.reconcile, options=RuntimeOptions(ttl=2.0, margin=1.0, drain=0.0),
    )
    yield made
    with suppress(LeaseLost, CatalogWriteRefused):  # of a test whose disk is full
        made.close()


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


# -- the pages -------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/", "/metric", "/metrics/", "/HEALTHZ", "/healthz/.."])
@pytest.mark.parametrize("method", ["GET", "POST", "BREW"])
def test_nothing_else(starting: Endpoint, path: str, method: str) -> None:
    """Any other path is not there, whatever is done with it."""
    status, body, _ = ask(starting, path, method)
    assert (status, body) == (404, "not found\n")


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/metrics"])
@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "TRACE", "BREW"])
def test_only_looking(starting: Endpoint, path: str, method: str) -> None:
    """What is there can be read and nothing more."""
    status, body, headers = ask(starting, path, method)
    assert (status, body, headers["Allow"]) == (405, "only GET and HEAD\n", "GET, HEAD")


def test_before_the_runtime(starting: Endpoint) -> None:
    """A process whose session starts lives, and is not ready; HEAD and a query are as GET."""
    assert ask(starting, "/healthz")[:2] == (200, "ok\n")
    assert ask(starting, "/readyz")[:2] == (503, "the session of Spark starts\n")
    assert ask(starting, "/readyz?verbose", "HEAD")[:2] == (503, "")
    status, text, headers = ask(starting, "/metrics")
    assert (status, headers["Content-Type"]) == (200, "text/plain; version=0.0.4; charset=utf-8")
    assert headers["Server"] == "catalog_migrate "
    found = samples(text)
    assert one(found, "runtime_ready", cluster="default.main") == 0
    assert one(found, "runtime_healthy") == 1
    assert abs(one(found, "runtime_start_time_seconds") - time.time()) < PATIENCE
    assert {name for name, _ in found} == {
        "runtime_info", "runtime_start_time_seconds", "runtime_healthy", "runtime_ready",
    }


@pytest.mark.parametrize(
    "request_", [b"\r\n\r\n", b"GET /metrics\r\n\r\n", b"GET " + b"x" * 70_000, b"\x16\x03\x01\x02",
                 b"GET /metrics HTTP/9.9\r\n\r\n", b"GET /<b>secret</b> HTTP\r\n\r\n"],
)
def test_what_is_no_request(starting: Endpoint, request_: bytes) -> None:
    """It is refused, or answered as the oldest clients are; nothing of it is repeated, and the
    next one is answered."""
    with socket.create_connection((starting.address.host, starting.address.port)) as client:
        client.sendall(request_)
        client.shutdown(socket.SHUT_WR)
        answer = b""
        while part := client.recv(65_536):
            answer += part
    assert b"secret" not in answer
    assert b"xxxx" not in answer
    assert ask(starting, "/healthz")[0] == 200


def test_a_silent_client_keeps_nobody_waiting(endpoint: Endpoint) -> None:
    """Others are answered meanwhile, and closing does not wait for it."""
    with socket.create_connection((endpoint.address.host, endpoint.address.port)) as client:
        client.sendall(b"GET /hea")
        assert ask(endpoint, "/healthz")[0] == 200
        began = time.monotonic()
        endpoint.close()
        assert time.monotonic() - began < 3.0
        with pytest.raises(ConnectionRefusedError):
            ask(endpoint, "/healthz")


# -- the address -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:9464", Address("127.0.0.1", 9464)), ("localhost:0", Address("localhost", 0)),
        ("[::1]:80", Address("::1", 80)), (" pod.example:65535 ", Address("pod.example", 65535)),
    ],
)
def test_an_address(text: str, address: Address) -> None:
    """Host and port, an IPv6 address in brackets; it is written as it is read."""
    assert parse_address(text) == address
    assert str(address) == text.strip()


@pytest.mark.parametrize(
    "text", ["", "9464", ":9464", "127.0.0.1", "127.0.0.1:", "::1:9464", "[::1]", "host:65536",
             "host:-1", "http://host:80", "host:80/metrics", "host:8a"],
)
def test_no_address(text: str) -> None:
    """Whatever does not say host and port is a usage error with examples: nothing is bound that
    was not asked for."""
    with pytest.raises(UsageError, match=r"write HOST:PORT: 127\.0\.0\.1:9464 for this"):
        parse_address(text)


def test_only_what_was_asked_for_is_bound(starting: Endpoint) -> None:
    """Another address of the same machine does not answer."""
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.2", starting.address.port), timeout=PATIENCE)


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0"])
def test_a_port_that_is_taken(endpoint: Endpoint, host: str) -> None:
    """It is refused with the address and what to do; the first one goes on, and gives it back."""
    taken = rf"cannot answer at {host}:\d+: Address already in use"
    with pytest.raises(EndpointFailed, match=taken) as caught:
        Endpoint(Address(host, endpoint.address.port), "default.main")
    assert caught.value.code == "CM0603"
    assert caught.value.remedy is not None
    assert ask(endpoint, "/healthz")[0] == 200
    endpoint.close()
    with Endpoint(endpoint.address, "default.main") as again:
        assert ask(again, "/healthz")[0] == 200


@pytest.mark.parametrize("host", ["nowhere.invalid", "192.0.2.1"])
def test_an_address_of_nobody(host: str) -> None:
    """A name that is unknown and an address of another machine are the same kind of error."""
    with pytest.raises(EndpointFailed, match=f"cannot answer at {host}:9464: "):
        Endpoint(Address(host, 9464), "default.main")


# -- a runtime -------------------------------------------------------------------------------------


def test_from_start_to_stop(endpoint: Endpoint, runtime: Runtime, log: MemoryLog) -> None:
    """Not ready before its first round; then its queries are told as it reported them, a failure
    as a restart, a hold by its holder. Once it is asked to stop it is not ready, and still well."""
    endpoint.runtime = runtime
    assert ask(endpoint, "/readyz")[:2] == (503, "it has not got the lease of its cluster yet\n")
    runtime.start()
    until(lambda: ask(endpoint, "/readyz")[0] == 200)
    until(lambda: one(samples(ask(endpoint, "/metrics")[1]), "stream_restarts_total",
                      name="default.s") > 0)
    found = samples(ask(endpoint, "/metrics")[1])
    assert one(found, "runtime_ready", cluster="default.main") == 1
    assert one(found, "runtime_lease_epoch") == 1
    assert one(found, "runtime_lease_age_seconds") < PATIENCE
    source = {"kind": "source", "name": "default.s", "cluster": "default.main"}
    states = {
        dict(labels)["state"]: value for (name, labels), value in found.items()
        if name == "stream_state" and labels >= frozenset(source.items())
    }
    assert set(states) == {
        "running", "starting", "held", "backing_off", "stopped", "quarantined",
    }
    assert sum(states.values()) == 1
    assert states["running"] == 0
    assert one(found, "stream_state", kind="sink", name="default.k", state="held") == 1
    assert one(found, "stream_holds", name="default.k", holder="operator") == 1
    assert not any(name == "stream_holds" and ("name", "default.s") in labels
                   for name, labels in found)
    item = dependencies.find(read_state(log), "source", "s").item_id
    changes = Changes()
    changes.put("hold", f"{item}/operation:1/1", HoldRecord(item, "operation:1", "secret reason"))
    commit(log, lambda _: changes, kind="test")
    until(lambda: "default.s" in str([
        labels for name, labels in samples(ask(endpoint, "/metrics")[1]) if name == "stream_holds"
    ]))
    text = ask(endpoint, "/metrics")[1]
    assert one(samples(text), "stream_holds", name="default.s", holder="operation") == 1
    assert "secret reason" not in text
    runtime.request_stop()
    assert ask(endpoint, "/readyz")[:2] == (503, "it stops\n")
    assert ask(endpoint, "/healthz")[0] == 200


@pytest.mark.parametrize("error", [OSError("the disk is full"), EngineFailure("no answer")])
def test_lags_that_cannot_be_measured(
    endpoint: Endpoint, runtime: Runtime, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """The lags of before are shown, and measured again after the usual time."""
    def fail(*_: object, **__: object) -> Any:
        raise error

    monkeypatch.setattr(http_endpoint, "measure_unreported", fail)
    runtime.start()
    until(lambda: runtime.reported is not None)
    endpoint.runtime = runtime
    endpoint._lags = lags = {"i1": Lag(records=7)}
    before = endpoint._measured
    endpoint._measure()
    assert endpoint._lags is lags
    assert endpoint._measured > before
    assert not endpoint._measuring.locked()


def test_a_lease_that_is_not_renewed(endpoint: Endpoint, runtime: Runtime, log: MemoryLog) -> None:
    """A store that takes nothing any more: the runtime is sick, and not ready."""
    endpoint.runtime = runtime
    runtime.start()
    until(lambda: ask(endpoint, "/readyz")[0] == 200)
    full = threading.Event()

    def disk(call: str) -> None:
        if full.is_set() and call in ("append", "renew"):
            raise CatalogWriteRefused("the disk is full")

    log.on_call = disk
    full.set()
    seen = []
    until(lambda: bool(seen.append(observe(runtime)) or seen[-1].sick or runtime.stopping))
    assert seen[-1].unready
    assert runtime.stopping or seen[-1].sick.startswith("the lease was last renewed ")
    full.clear()


def test_a_loop_that_hangs(
    runtime: Runtime, session: Session, clock: SkippingClock, do: Do
) -> None:
    """Its heartbeat goes on in a thread of its own: ten minutes without a round tell it."""
    runtime.start()
    until(lambda: runtime.reported is not None and runtime.round_at is not None)
    assert observe(runtime).sick == ""
    session.answers.clear()
    session.asked.clear()
    do("CREATE CLUSTER other")  # names are brought in line, which never ends
    assert session.asked.wait(PATIENCE)
    clock.skip(STUCK + 1)
    until(lambda: observe(runtime).sick.startswith("no round has ended for "))
    assert observe(runtime).unready.startswith("no round has ended for ")
    session.answers.set()


# -- the text --------------------------------------------------------------------------------------


HOSTILE = 'a"b\\n\n{x="y"} 1\\\t #é'


def query(name: str = "default.s", **more: Any) -> ObservedQuery:
    values = {"state": "running", **more.pop("status", {})}
    status = QueryStatus("i1", name, "sink", **values)
    return ObservedQuery("sink", name, "default.main", status, **more)


def test_any_name_is_a_label() -> None:
    """Quotes, backslashes and line breaks of a name are escaped: it is read back as it was."""
    seen = Observation(reported=1.5, queries=(query(HOSTILE),))
    found = samples(exposition(seen, cluster=HOSTILE, started=0.1))
    assert one(found, "stream_state", name=HOSTILE, state="running") == 1
    assert one(found, "runtime_report_timestamp_seconds", cluster=HOSTILE) == 1.5
    assert one(found, "runtime_start_time_seconds") == 0.1


@pytest.mark.parametrize(
    ("said", "measured", "shown"),
    [
        (None, Lag(), {}),
        (0, Lag(), {"records": 0.0, "versions": 0.0}),
        (0, Lag(records=5, versions=2), {"records": 0.0, "versions": 0.0}),
        (None, Lag(records=5, versions=2), {"records": 5.0, "versions": 2.0}),
        (7, Lag(), {"records": 7.0}),
        (None, Lag(bytes=10**18, seconds=1.5), {"bytes": 1e18, "seconds": 1.5}),
    ],
)
def test_lags(said: int | None, measured: Lag, shown: dict[str, float]) -> None:
    """What a query says itself goes before what was measured; what nobody knows is left out."""
    seen = Observation(queries=(query(status={"lag": said}),))
    found = samples(exposition(seen, cluster="c", started=0, lags={"i1": measured}))
    assert {
        name.removeprefix("stream_lag_"): value for (name, _), value in found.items()
        if name.startswith("stream_lag_")
    } == shown
