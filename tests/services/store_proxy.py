"""A proxy before the object store of the tests, which does to requests what networks and S3 do.

It is a process of its own (``python store_proxy.py PORT UPSTREAM``, the standard library alone):
delta-rs holds Python's lock while it waits for some answers.
"""

from __future__ import annotations

import http.client
import json
import re
import socket
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from tests.services.object_store import ObjectStore

DELAY = 2.0
"""Seconds that ``delay`` takes."""

REFUSALS = {
    "AccessDenied": (403, "Access Denied"),
    "AuthorizationHeaderMalformed": (
        400, "The authorization header is malformed; the region 'us-east-1' is wrong; expecting"
        " 'eu-west-1'",
    ),
    "ExpiredToken": (400, "The provided token has expired."),
    "InternalError": (500, "We encountered an internal error. Please try again."),
    "InvalidAccessKeyId": (
        403, "The AWS Access Key Id you provided does not exist in our records.",
    ),
    "InvalidToken": (400, "The provided token is malformed or otherwise invalid."),
    "NotImplemented": (
        501, "A header you provided implies functionality that is not implemented.",
    ),
    "RequestTimeTooSkewed": (
        403, "The difference between the request time and the current time is too large.",
    ),
    "SignatureDoesNotMatch": (
        403, "The request signature we calculated does not match the signature you provided. Check"
        " your key and signing method.",
    ),
    "SlowDown": (503, "Please reduce your request rate."),
}
"""What S3 answers, without carrying anything out (Amazon S3 API Reference, *Error responses*)."""

OTHER_FAULTS = ("cut", "delay", "unconditional")
"""Carry it out and hang up without an answer; wait 2 s first; pass a conditional put over as one
without a condition, as stores do that know of none."""


@dataclass(frozen=True)
class Request:
    """What was asked, as far as a test tells requests apart."""

    method: str
    path: str
    headers: Mapping[str, str]
    when: float = 0.0

    @property
    def is_conditional_put(self) -> bool:
        """Whether an object is put only where none is."""
        return self.method == "PUT" and "if-none-match" in self.headers

    @property
    def client(self) -> str:
        """Who asks: Spark, delta-rs or our own store."""
        agent = self.headers.get("user-agent", "")
        if "aws-sdk-java" in agent or "Hadoop" in agent:
            return "Spark"
        return "delta-rs" if agent.startswith("object_store") else "obstore"


@dataclass
class _Fault:
    """One fault, and which requests it is for."""

    fault: str
    method: str
    path: str
    conditional: bool
    times: int
    """How many requests are left for it; -1 for all."""
    each: bool
    """Of one path and query only the first."""
    met: set[str] = field(default_factory=set)

    def meets(self, request: Request) -> bool:
        return (
            self.times != 0
            and (not self.method or request.method == self.method)
            and re.search(self.path, request.path) is not None
            and (not self.conditional or request.is_conditional_put)
            and not (self.each and request.path in self.met)
        )


class StoreProxy:
    """A running proxy; :attr:`options` reach the store through it, by delta-rs and by Spark."""

    def __init__(self, store: ObjectStore, home: Path) -> None:
        from tests.services.process import ServerProcess, free_ports

        self._options = store.options
        (self._port,) = free_ports(1)
        self._server = ServerProcess(
            [
                sys.executable, "-I", "-S", __file__, str(self._port),
                store.options["aws_endpoint_url"],
            ],
            log=home / "store-proxy.log", cwd=home,
        )
        self._server.await_ready(lambda: self.pending == 0, "the proxy did not answer")

    def __enter__(self) -> StoreProxy:
        return self

    def __exit__(self, *_: object) -> None:
        self._server.kill()

    @property
    def options(self) -> dict[str, str]:
        """Storage options of delta-rs."""
        return {**self._options, "aws_endpoint_url": f"http://127.0.0.1:{self._port}"}

    def next(
        self, fault: str, *, method: str = "", path: str = "", conditional: bool = False,
        times: int = 1, each: bool = False,
    ) -> None:
        """Do this to the next requests of a method whose path and query a pattern is found in.

        ``fault`` is one of :data:`OTHER_FAULTS` or the code of an answer (:data:`REFUSALS`);
        ``conditional``: only to what puts an object where none is; ``times`` -1: to all of them,
        with ``each`` to the first of each path.
        """
        assert fault in OTHER_FAULTS or fault in REFUSALS, fault
        told = {
            "fault": fault, "method": method, "path": path, "conditional": conditional,
            "times": times, "each": each,
        }
        self._ask("POST", told)

    def clear(self) -> None:
        """No fault any more, and nothing seen."""
        self._ask("DELETE")

    @property
    def pending(self) -> int:
        """Requests that a fault waits for, those for all of them apart."""
        return int(self._ask("GET")["pending"])

    @property
    def seen(self) -> list[Request]:
        """Every request so far, in order."""
        return [Request(*each) for each in self._ask("GET")["seen"]]

    def _ask(self, method: str, told: Mapping[str, Any] | None = None) -> Any:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=30)
        try:
            connection.request(method, _CONTROL, json.dumps(told))
            return json.loads(connection.getresponse().read())
        finally:
            connection.close()


# -- the process -----------------------------------------------------------------------------------

_CONTROL = "/-/"


class _Proxy(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, port: int, upstream: str) -> None:
        super().__init__(("127.0.0.1", port), _Handler)
        self.upstream = urlsplit(upstream)
        self.lock = threading.Lock()
        self.faults: list[_Fault] = []
        self.seen: list[Request] = []

    def handle_error(self, *_: object) -> None:
        """A client that hung up is no news."""

    def fault(self, request: Request) -> str | None:
        """Take note of a request; what is to be done to it."""
        with self.lock:
            self.seen.append(request)
            for each in self.faults:
                if each.meets(request):
                    each.times -= each.times > 0
                    each.met.add(request.path)
                    return each.fault
        return None


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: _Proxy

    def log_message(self, *_: object) -> None:
        """Nothing is logged."""

    def _handle(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        headers = {name.lower(): value for name, value in self.headers.items()}
        if self.path == _CONTROL:
            self._control(body)
            return
        fault = self.server.fault(Request(self.command, self.path, headers, time.time()))
        if fault in REFUSALS:
            status, message = REFUSALS[fault]
            answer = f"<Error><Code>{fault}</Code><Message>{message}</Message></Error>"
            self._answer(status, {"Content-Type": "application/xml"}, answer.encode())
            return
        if fault == "delay":
            time.sleep(DELAY)
        if fault == "unconditional":
            headers = {name: value for name, value in headers.items() if name[:3] != "if-"}
        headers.pop("expect", None)
        upstream = self.server.upstream
        server = http.client.HTTPConnection(upstream.hostname or "", upstream.port, timeout=60)
        try:
            server.request(self.command, self.path, body, headers)
            answered = server.getresponse()
            data = answered.read()
        finally:
            server.close()
        if fault == "cut":
            self.close_connection = True
            with suppress(OSError):
                self.connection.shutdown(socket.SHUT_RDWR)
            return
        kept = {
            name: value for name, value in answered.getheaders()
            if name.lower() not in ("connection", "transfer-encoding", "date", "server")
        }
        self._answer(answered.status, kept, data)

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = _handle  # noqa: N815 (as its base has them)

    def _control(self, body: bytes) -> None:
        with self.server.lock:
            if self.command == "POST":
                self.server.faults.append(_Fault(**json.loads(body)))
            if self.command == "DELETE":
                self.server.faults.clear()
                self.server.seen.clear()
            told = {
                "pending": sum(max(each.times, 0) for each in self.server.faults),
                "seen": [
                    (each.method, each.path, dict(each.headers), each.when)
                    for each in self.server.seen
                ],
            }
        self._answer(200, {}, json.dumps(told).encode())

    def _answer(self, status: int, headers: Mapping[str, str], data: bytes) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        if "content-length" not in {name.lower() for name in headers}:
            self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)


if __name__ == "__main__":
    _Proxy(int(sys.argv[1]), sys.argv[2]).serve_forever()
