"""A schema registry of the tests' own: Confluent's API, as much of it as clients use.

Subjects, versions, schemas by number, and compatibility BACKWARD of records (or NONE, or NOTHING
at all), with basic authentication and TLS where asked. It can be down, answer as a web page, or
refuse.
"""

from __future__ import annotations

import base64
import json
import re
import ssl
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any
from urllib.parse import unquote, urlsplit

Answer = tuple[int, Any]


class SchemaRegistry:
    """One registry on 127.0.0.1. A context manager; stop and start keep its port and schemas.

    ``login`` is (user, password) of who may ask, None for everybody; ``tls`` the PEM files of
    certificate and key. ``page`` makes it answer with HTML. ``asked`` is every path asked for.
    """

    def __init__(
        self, *, login: tuple[str, str] | None = None, tls: tuple[str, str] | None = None
    ) -> None:
        self.login, self.tls = login, tls
        self.page = False
        self.compatibility = "BACKWARD"
        self.schemas: dict[int, dict[str, Any]] = {}
        self.subjects: dict[str, list[int]] = {}
        self.asked: list[str] = []
        self._port = 0
        self._server: ThreadingHTTPServer | None = None
        self._lock = threading.Lock()

    def __enter__(self) -> SchemaRegistry:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    @property
    def url(self) -> str:
        """Where it is, also while it is down."""
        return f"{'http' if self.tls is None else 'https'}://127.0.0.1:{self._port}"

    def start(self) -> None:
        """Listen, on the port that it had."""
        server = ThreadingHTTPServer(("127.0.0.1", self._port), _handler(self))
        server.daemon_threads = True
        if self.tls is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*self.tls)
            server.socket = context.wrap_socket(server.socket, server_side=True)
        self._server, self._port = server, server.server_address[1]
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()

    def stop(self) -> None:
        """Be down."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None

    def register(
        self, subject: str, schema: Any, kind: str = "AVRO", references: Any = ()
    ) -> int:
        """The number of a schema under a subject, a new one where it has none yet."""
        text = schema if isinstance(schema, str) else json.dumps(schema)
        entry = {"schema": text, "schemaType": kind, "references": list(references)}
        with self._lock:
            number = next((n for n, each in self.schemas.items() if each == entry), None)
            if number is None:
                number = len(self.schemas) + 1
                self.schemas[number] = entry
            versions = self.subjects.setdefault(subject, [])
            if number not in versions:
                versions.append(number)
            return number

    def answer(self, method: str, path: str, body: Any) -> Answer:
        """What it says to one question."""
        for pattern, reply in _ROUTES:
            match = re.fullmatch(pattern, path)
            if match is not None:
                return reply(self, method, [unquote(part) for part in match.groups()], body)
        return 404, {"error_code": 404, "message": "HTTP 404 Not Found"}

    # -- answers -----------------------------------------------------------------------------------

    def listed(self, _method: str, _parts: Any, _body: Any) -> Answer:
        return 200, sorted(self.subjects)

    def by_number(self, _method: str, parts: list[str], _body: Any) -> Answer:
        found = self.schemas.get(int(parts[0]))
        return (200, _shown(found)) if found else _missing(40403, "Schema not found")

    def versions(self, method: str, parts: list[str], body: Any) -> Answer:
        subject, version = parts[0], parts[1] if len(parts) > 1 else None
        if method == "POST":
            wrong = self._wrong(subject, body)
            if wrong:
                return 409, {
                    "error_code": 409,
                    "message": "Schema being registered is incompatible: " + "; ".join(wrong),
                }
            number = self.register(
                subject, body["schema"], body.get("schemaType", "AVRO"), body.get("references", ())
            )
            return 200, {"id": number}
        known = self.subjects.get(subject)
        if not known:
            return _missing(40401, f"Subject '{subject}' not found.")
        if version is None:
            return 200, list(range(1, len(known) + 1))
        at = len(known) if version == "latest" else int(version)
        if not 0 < at <= len(known):
            return _missing(40402, "Version not found.")
        number = known[at - 1]
        entry = _shown(self.schemas[number])
        return 200, {"subject": subject, "version": at, "id": number, **entry}

    def compatible(self, _method: str, parts: list[str], body: Any) -> Answer:
        if parts[0] not in self.subjects:
            return _missing(40401, f"Subject '{parts[0]}' not found.")
        wrong = self._wrong(parts[0], body)
        return 200, {"is_compatible": not wrong, "messages": wrong}

    def _wrong(self, subject: str, body: Any) -> list[str]:
        """Why a record cannot be read by a new schema of Avro; nothing is known of others."""
        known = self.subjects.get(subject)
        if not known or self.compatibility == "NONE" or body.get("schemaType", "AVRO") != "AVRO":
            return []
        if self.compatibility == "NOTHING":
            return ["NOTHING is compatible"]
        old, new = json.loads(self.schemas[known[-1]]["schema"]), json.loads(body["schema"])
        if old == new:
            return []
        before = {field["name"]: field["type"] for field in old["fields"]}
        wrong = [f"name {old['name']} became {new['name']}"] if old["name"] != new["name"] else []
        for field in new["fields"]:
            if field["name"] not in before:
                if "default" not in field:
                    wrong.append(f"READER_FIELD_MISSING_DEFAULT_VALUE {field['name']}")
            elif before[field["name"]] != field["type"]:
                wrong.append(f"TYPE_MISMATCH {field['name']}")
        return wrong


def _shown(entry: dict[str, Any]) -> dict[str, Any]:
    """As Confluent's does: what is the rule is left out."""
    return {
        name: value for name, value in entry.items()
        if name == "schema" or (name == "schemaType" and value != "AVRO") or
        (name == "references" and value)
    }


def _missing(code: int, message: str) -> Answer:
    return 404, {"error_code": code, "message": message}


_Reply = Callable[[SchemaRegistry, str, Any, Any], Answer]
_ROUTES: tuple[tuple[str, _Reply], ...] = (
    (r"/subjects", SchemaRegistry.listed),
    (r"/schemas/ids/(\d+)", SchemaRegistry.by_number),
    (r"/subjects/([^/]+)/versions", SchemaRegistry.versions),
    (r"/subjects/([^/]+)/versions/(latest|\d+)", SchemaRegistry.versions),
    (r"/compatibility/subjects/([^/]+)/versions/latest", SchemaRegistry.compatible),
)


def _handler(registry: SchemaRegistry) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        """One question."""

        def do_GET(self) -> None:
            self._reply("GET")

        def do_POST(self) -> None:
            self._reply("POST")

        def _reply(self, method: str) -> None:
            path = urlsplit(self.path).path
            registry.asked.append(path)
            length = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(length)) if length else None
            if registry.page:
                self._send(200, b"<html><body>Please log in</body></html>", "text/html")
                return
            if registry.login is not None:
                wanted = base64.b64encode(":".join(registry.login).encode()).decode()
                if self.headers.get("Authorization") != f"Basic {wanted}":
                    refusal = {"error_code": 40101, "message": "Unauthorized"}
                    self._send(401, json.dumps(refusal).encode())
                    return
            status, found = registry.answer(method, path, body)
            self._send(status, json.dumps(found).encode())

        def _send(
            self, status: int, content: bytes,
            kind: str = "application/vnd.schemaregistry.v1+json",
        ) -> None:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: Any) -> None:
            """Nothing on stderr."""

    return Handler
