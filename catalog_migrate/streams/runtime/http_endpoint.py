"""``/healthz``, ``/readyz`` and ``/metrics`` of a runtime over HTTP, and nothing else.

No token is asked for: a kubelet has none, and nothing that is answered is a secret or a value of a
row. Answers come from threads of their own, and from what the runtime knows already.
"""

from __future__ import annotations

import re
import socket
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from http.server import BaseHTTPRequestHandler
from socketserver import TCPServer, ThreadingMixIn
from typing import Any

import msgspec

from catalog_migrate.errors import CatalogMigrateError, EndpointFailed, UsageError
from catalog_migrate.streams.runtime.exposition import CONTENT_TYPE, exposition
from catalog_migrate.streams.runtime.lag import Lag, measure_unreported
from catalog_migrate.streams.runtime.observation import Observable, observe

MEASURE = 60.0
"""Seconds between two measurements of what queries do not say of their lag, at least."""

CLIENT = 5.0
"""Seconds that a client may be silent before its connection is closed."""

_ADDRESS = re.compile(r"(?:\[([^\[\]]+)\]|([^\[\]:]+)):(\d{1,5})\Z")


class Address(msgspec.Struct, frozen=True):
    """A host (name or IP) and a port; port 0 is any that is free."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_address(text: str) -> Address:
    """``HOST:PORT``, of IPv6 ``[HOST]:PORT``; UsageError for anything else, a port alone too."""
    match = _ADDRESS.match(text.strip())
    if match is None or int(match[3]) > 65_535:
        raise UsageError(
            f"{text!r} is no address to answer at",
            remedy="write HOST:PORT: 127.0.0.1:9464 for this machine alone, 0.0.0.0:9464 for all"
            " that reach it (a kubelet, Prometheus), [::1]:9464 with IPv6",
        )
    return Address(match[1] or match[2], int(match[3]))


class Endpoint:
    """Answers from the moment it is made until :meth:`close`; bound to exactly one address.

    ``runtime`` is looked at once it is set; before that the process lives and is not ready.
    """

    def __init__(self, address: Address, cluster: str) -> None:
        self.cluster = cluster
        self.runtime: Observable | None = None
        self._started = time.time()
        self._lags: Mapping[str, Lag] = {}
        self._measured = -MEASURE
        self._measuring = threading.Lock()
        self._server = _server(address, self._answers())
        host, port = self._server.server_address[:2]
        self.address = Address(str(host), int(port))
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.1}, name="http",
            daemon=True,
        )
        self._thread.start()

    def close(self) -> None:
        """Answer nothing more, and give the port back."""
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def __enter__(self) -> Endpoint:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _answers(self) -> type[BaseHTTPRequestHandler]:
        endpoint = self

        class Answers(_Handler):
            pages: Mapping[str, Callable[[], Page]] = {
                "/healthz": endpoint.health, "/readyz": endpoint.readiness,
                "/metrics": endpoint.metrics,
            }

        return Answers

    # -- what is answered ----------------------------------------------------------------------

    def health(self) -> Page:
        """200 as long as the process is on its way or its runtime makes progress, else 503."""
        sick = observe(self.runtime).sick
        return Page(503, f"{sick}\n") if sick else Page(200, "ok\n")

    def readiness(self) -> Page:
        """200 once the lease is held and the first round has ended, else 503 and why."""
        unready = observe(self.runtime).unready
        return Page(503, f"{unready}\n") if unready else Page(200, "ok\n")

    def metrics(self) -> Page:
        """All metrics; the lag that has to be asked for may be :data:`MEASURE` seconds old."""
        seen = observe(self.runtime)
        if seen.queries and time.monotonic() - self._measured >= MEASURE:
            threading.Thread(target=self._measure, name="lag", daemon=True).start()
        text = exposition(
            seen, cluster=self.cluster, started=self._started, lags=dict(self._lags)
        )
        return Page(200, text, CONTENT_TYPE)

    def _measure(self) -> None:
        """Ask tables and servers for lags; one thread at a time."""
        if not self._measuring.acquire(blocking=False):
            return
        try:
            runtime = self.runtime
            report = None if runtime is None else runtime.reported
            if runtime is not None and runtime.supervisor is not None and report is not None:
                with suppress(CatalogMigrateError, OSError):  # the lags of before are kept
                    self._lags = measure_unreported(
                        report.state, report.statuses, ports=runtime.supervisor.ports
                    )
        finally:
            self._measured = time.monotonic()
            self._measuring.release()


class Page(msgspec.Struct, frozen=True):
    """One answer."""

    status: int
    text: str
    type: str = "text/plain; charset=utf-8"


class _Handler(BaseHTTPRequestHandler):
    """GET and HEAD of the pages; 405 for other methods on them, 404 for all else."""

    pages: Mapping[str, Callable[[], Page]] = {}
    timeout = CLIENT
    server_version = "catalog_migrate"
    sys_version = ""

    def do_GET(self) -> None:
        """Answer a page."""
        page = self._page()
        self._send(page() if page is not None else Page(404, "not found\n"))

    do_HEAD = do_GET  # noqa: N815

    def __getattr__(self, name: str) -> Any:
        """Whatever other method there is: ``http.server`` looks for ``do_METHOD``."""
        if name.startswith("do_"):
            return self._refuse
        raise AttributeError(name)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Log nothing: a probe comes every few seconds."""

    def send_error(self, code: int, *_: str | None) -> None:
        """Answer what is no request; nothing of it is repeated."""
        self.close_connection = True
        self._send(Page(code, "bad request\n"))

    def _page(self) -> Callable[[], Page] | None:
        return self.pages.get(self.path.partition("?")[0])

    def _refuse(self) -> None:
        if self._page() is None:
            self._send(Page(404, "not found\n"))
        else:
            self._send(Page(405, "only GET and HEAD\n"), {"Allow": "GET, HEAD"})

    def _send(self, page: Page, headers: Mapping[str, str] | None = None) -> None:
        data = page.text.encode("utf-8", "backslashreplace")
        self.send_response(page.status)
        for name, value in {
            "Content-Type": page.type, "Content-Length": str(len(data)),
            "Cache-Control": "no-store", "Connection": "close", **(headers or {}),
        }.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)


class _Server(ThreadingMixIn, TCPServer):
    """As ``ThreadingHTTPServer``, which looks for the name of its host in the DNS first."""

    allow_reuse_address = True
    daemon_threads = True
    block_on_close = False  # a client that is silent does not keep the process
    request_queue_size = 32

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore a client that left in the middle."""


def _server(address: Address, answers: type[BaseHTTPRequestHandler]) -> _Server:
    """A server that is bound; EndpointFailed with what to do."""
    try:
        family, _, _, _, place = socket.getaddrinfo(
            address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        kind = type("_Bound", (_Server,), {"address_family": family})
        server: _Server = kind(place, answers)
    except OSError as error:
        raise EndpointFailed(
            f"the runtime cannot answer at {address}: {error.strerror or error}",
            remedy="end the process that has the port, or give --http another address of this"
            " machine",
            address=str(address),
        ) from error
    return server
