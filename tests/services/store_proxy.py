"""A proxy before the object store of the tests, which does to requests what networks do."""

from __future__ import annotations

import http.client
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Literal
from urllib.parse import urlsplit

from tests.services.object_store import ObjectStore

Fault = Literal["slow down", "cut", "delay"]
"""Answer 503 without asking the server; carry it out and hang up without an answer; wait 2 s."""

SLOW_DOWN = (
    b'<?xml version="1.0" encoding="UTF-8"?><Error><Code>SlowDown</Code>'
    b"<Message>Please reduce your request rate.</Message></Error>"
)
DELAY = 2.0


@dataclass(frozen=True)
class Request:
    """What was asked, as far as a test tells requests apart."""

    method: str
    path: str
    headers: Mapping[str, str]

    @property
    def is_conditional_put(self) -> bool:
        """Whether an object is put only where none is."""
        return self.method == "PUT" and "if-none-match" in self.headers


class StoreProxy:
    """A running proxy; :attr:`options` reach the store through it, by delta-rs and by Spark."""

    def __init__(self, store: ObjectStore) -> None:
        self._upstream = urlsplit(store.options["aws_endpoint_url"])
        self._options = store.options
        self._faults: list[tuple[Fault, Callable[[Request], bool]]] = []
        self._lock = threading.Lock()
        self.seen: list[Request] = []
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_: object) -> None:
                """Nothing is logged."""

            def _handle(self) -> None:
                proxy._handle(self)

        for method in ("GET", "PUT", "POST", "DELETE", "HEAD"):
            setattr(Handler, f"do_{method}", Handler._handle)
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    def __enter__(self) -> StoreProxy:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    @property
    def options(self) -> dict[str, str]:
        """Storage options of delta-rs."""
        port = self._server.server_address[1]
        return {**self._options, "aws_endpoint_url": f"http://127.0.0.1:{port}"}

    def next(self, fault: Fault, when: Callable[[Request], bool], times: int = 1) -> None:
        """Do this to the next requests that ``when`` holds for."""
        with self._lock:
            self._faults += [(fault, when)] * times

    @property
    def pending(self) -> int:
        """Faults that no request has met yet."""
        return len(self._faults)

    def _fault(self, request: Request) -> Fault | None:
        with self._lock:
            self.seen.append(request)
            for place, (fault, when) in enumerate(self._faults):
                if when(request):
                    del self._faults[place]
                    return fault
        return None

    def _handle(self, asked: BaseHTTPRequestHandler) -> None:
        body = asked.rfile.read(int(asked.headers.get("Content-Length") or 0))
        headers = {name.lower(): value for name, value in asked.headers.items()}
        fault = self._fault(Request(asked.command, asked.path, headers))
        if fault == "slow down":
            self._answer(asked, 503, {"Content-Type": "application/xml"}, SLOW_DOWN)
            return
        if fault == "delay":
            time.sleep(DELAY)
        headers.pop("expect", None)
        server = http.client.HTTPConnection(
            self._upstream.hostname or "", self._upstream.port, timeout=60
        )
        try:
            server.request(asked.command, asked.path, body, headers)
            answer = server.getresponse()
            data = answer.read()
        finally:
            server.close()
        if fault == "cut":
            asked.close_connection = True
            asked.connection.close()
            return
        kept = {
            name: value for name, value in answer.getheaders()
            if name.lower() not in ("connection", "transfer-encoding", "date", "server")
        }
        self._answer(asked, answer.status, kept, data)

    def _answer(
        self, asked: BaseHTTPRequestHandler, status: int, headers: Mapping[str, str], data: bytes
    ) -> None:
        asked.send_response(status)
        lengths = {name.lower() for name in headers}
        for name, value in headers.items():
            asked.send_header(name, value)
        if "content-length" not in lengths:
            asked.send_header("Content-Length", str(len(data)))
        asked.end_headers()
        if asked.command != "HEAD":
            asked.wfile.write(data)
