"""An OAuth 2 token endpoint that issues what the tests' broker accepts, and its ways to refuse."""

from __future__ import annotations

import base64
import json
import ssl
import subprocess
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs

from joserfc import jwt

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType

    from joserfc.jwk import ECKey
    from typing_extensions import Self

ISSUER, AUDIENCE, SCOPE = "https://tokens.test", "kafka", "streams"
Refusal = tuple[int, str, str]
"""Status, content type and body."""


class TokenServer:
    """Client credentials at ``/token`` for ``clients`` (id to secret), which tests may change.

    ``key`` signs; ``lifetime`` is a token's in seconds; ``pem`` and ``key_file`` make it speak TLS.
    ``refuse`` answers in place of the server while it is set, ``asked`` counts the requests.
    """

    def __init__(
        self, key: ECKey, clients: dict[str, str], *, lifetime: int = 60,
        pem: Path | None = None, key_file: Path | None = None,
    ) -> None:
        self.key, self.clients, self.lifetime = key, clients, lifetime
        self.refuse: Refusal | None = None
        self.asked = 0
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self.answer))
        if pem is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(pem, key_file)
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        scheme = "http" if pem is None else "https"
        self.url = f"{scheme}://127.0.0.1:{self._server.server_port}/token"
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.shutdown()
        self._server.server_close()

    def answer(self, path: str, login: str, form: dict[str, list[str]]) -> Refusal:
        """The answer to one request, as RFC 6749 wants it."""
        self.asked += 1
        client, _, secret = base64.b64decode(login.removeprefix("Basic ")).decode().partition(":")
        scope = " ".join(form.get("scope", [""]))
        if self.refuse is not None:
            return self.refuse
        if path != "/token":
            return 404, "text/html", "<html>not here</html>"
        if form.get("grant_type") != ["client_credentials"]:
            return _error("unsupported_grant_type")
        if client not in self.clients:
            return _error("invalid_client", "Client not found", 401)
        if secret != self.clients[client]:
            return _error("invalid_client", "Invalid client secret", 401)
        if scope not in ("", SCOPE):
            return _error("invalid_scope", f"Invalid scopes: {scope}")
        now = int(time.time())
        token = jwt.encode(
            {"alg": "ES256", "kid": self.key.kid},
            {"iss": ISSUER, "sub": client, "aud": AUDIENCE, "scope": SCOPE, "iat": now,
             "exp": now + self.lifetime},
            self.key,
        )
        body = {"access_token": token, "token_type": "Bearer", "expires_in": self.lifetime}
        return 200, "application/json", json.dumps(body)


def _error(name: str, said: str = "", status: int = 400) -> Refusal:
    return status, "application/json", json.dumps({"error": name, "error_description": said})


def _handler(answer: Callable[[str, str, dict[str, list[str]]], Refusal]) -> Any:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0))).decode()
            status, kind, text = answer(
                self.path, self.headers.get("Authorization", ""), parse_qs(body)
            )
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(text)))
            if 300 <= status < 400:
                self.send_header("Location", "https://login.test/")
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *_: object) -> None:
            """Nothing: the requests hold secrets."""

    return Handler


def make_certificate(directory: Path) -> tuple[Path, Path]:
    """A self-signed certificate for 127.0.0.1 and its key, both PEM."""
    pem, key_file = directory / "endpoint.pem", directory / "endpoint.key"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256",
         "-nodes", "-days", "2", "-subj", "/CN=tokens.test", "-addext",
         "subjectAltName=IP:127.0.0.1", "-keyout", str(key_file), "-out", str(pem)],
        check=True, capture_output=True,
    )  # fmt: skip
    return pem, key_file
