"""A token endpoint that gives no token for Kafka: which option is at fault, in time, no secret."""

from __future__ import annotations

import base64
import functools
import json
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from joserfc.jwk import ECKey

from catalog_migrate.connectors.kafka import probe as kafka_probe
from catalog_migrate.connectors.kafka.token_endpoint import token_finding
from catalog_migrate.connectors.secrets import Secret
from catalog_migrate.connectors.validation import validate_connection
from catalog_migrate.model.findings import Finding
from tests.services.token_server import TokenServer, make_certificate

if TYPE_CHECKING:
    from tests.services.kafka import KafkaCluster

MARKER = "MARKER/7a+b%"
LIMIT = 15.0


@pytest.fixture(scope="module")
def key() -> ECKey:
    """A key that no broker knows."""
    return ECKey.generate_key("P-256", {"kid": "other"})


@pytest.fixture
def tokens(key: ECKey) -> Iterator[TokenServer]:
    """A token server with the client ``app``."""
    with TokenServer(key, {"app": MARKER}) as server:
        yield server


def connection(url: str, **more: str | Secret) -> dict[str, str | Secret]:
    """A connection's resolved options."""
    return {
        "BROKER": "127.0.0.1:1", "SECURITY PROTOCOL": "SASL_PLAINTEXT",
        "SASL MECHANISMS": "OAUTHBEARER", "OAUTH TOKEN ENDPOINT": url, "OAUTH CLIENT ID": "app",
        "OAUTH CLIENT SECRET": Secret(MARKER),
        **{name.replace("_", " "): value for name, value in more.items()},
    }


def wrong(url: str, option: str, **more: str | Secret) -> str:
    """The message of what is wrong with ``option``, told in time."""
    begun = time.monotonic()
    found = token_finding(connection(url, **more), subject="connection s.c", timeout=1.5)
    assert time.monotonic() - begun < LIMIT
    require_bad(found, option)
    return found.message


def require_bad(found: Finding, option: str) -> None:
    """It names connection, option and remedy, and shows neither secret nor login."""
    assert not found.ok
    assert (found.subject, found.option) == ("connection s.c", option), found
    assert found.remedy
    login = base64.b64encode(f"app:{MARKER}".encode()).decode()
    assert MARKER not in str(found)
    assert login not in str(found)


class TestRefusals:
    """The endpoint answers, and gives no token."""

    def test_reasons(self, tokens: TokenServer) -> None:
        """Secret, client and scope are told apart by what the endpoint says."""
        assert token_finding(connection(tokens.url), subject="c").ok
        secret = wrong(tokens.url, "OAUTH CLIENT SECRET", OAUTH_CLIENT_SECRET=Secret("other"))
        said = "the token endpoint refuses OAUTH CLIENT SECRET: invalid_client: "
        assert secret == f"{said}Invalid client secret"
        assert "Client not found" in wrong(tokens.url, "OAUTH CLIENT ID", OAUTH_CLIENT_ID="nobody")
        assert "invalid_scope" in wrong(tokens.url, "OAUTH SCOPE", OAUTH_SCOPE="admin")
        assert "status 404" in wrong(f"{tokens.url}s", "OAUTH TOKEN ENDPOINT")

    @pytest.mark.parametrize(
        ("status", "kind", "body", "said"),
        [
            (200, "text/html", "<html>Sign in</html>", "answers text/html with status 200"),
            (302, "text/html", "", "answers text/html with status 302"),
            (503, "text/html", "<html>Bad gateway</html>", "answers text/html with status 503"),
            (200, "application/json", '{"access_token": "opaque"}', "no JSON Web Token"),
            (200, "application/json", '{"id": 1}', "no JSON Web Token"),
            (200, "application/json", json.dumps({"access_token": "e30.eyJleHAiOjF9.x"}), "no sub"),
            (400, "application/json", '{"error": "unsupported_grant_type"}', "unsupported_grant"),
            (500, "application/json", json.dumps({"error": MARKER}), "refuses: ***"),
        ],
    )
    def test_answers(
        self, tokens: TokenServer, status: int, kind: str, body: str, said: str
    ) -> None:
        """Pages for people, redirects, other tokens: each names the endpoint."""
        tokens.refuse = status, kind, body
        assert said in wrong(tokens.url, "OAUTH TOKEN ENDPOINT")
        assert tokens.asked == 1, "nothing is followed"


class TestConnections:
    """The endpoint is not reached, or not trusted."""

    def test_unreachable(self) -> None:
        """Closed port, unknown host, a server that never answers, one that is no HTTP."""
        assert "refused" in wrong("http://127.0.0.1:1/token", "OAUTH TOKEN ENDPOINT")
        assert "no address" in wrong("http://no-such-host.invalid/t", "OAUTH TOKEN ENDPOINT")
        with socket.create_server(("127.0.0.1", 0)) as server:
            port = server.getsockname()[1]
            assert "no answer" in wrong(f"http://127.0.0.1:{port}/", "OAUTH TOKEN ENDPOINT")

    def test_tls(self, tokens: TokenServer, key: ECKey, tmp_path: Path) -> None:
        """Only the right authority is trusted, for the right name; plain and TLS are told apart."""
        pem, key_file = make_certificate(tmp_path)
        with TokenServer(key, {"app": MARKER}, pem=pem, key_file=key_file) as tls:
            authority = {"OAUTH_CERTIFICATE_AUTHORITY": pem.read_text()}
            assert token_finding(connection(tls.url, **authority), subject="c").ok
            assert "self-signed" in wrong(tls.url, "OAUTH CERTIFICATE AUTHORITY")
            other = tls.url.replace("127.0.0.1", "localhost")
            assert "another name" in wrong(other, "OAUTH TOKEN ENDPOINT", **authority)
            plain = tls.url.replace("https", "http")
            assert "cannot be reached" in wrong(plain, "OAUTH TOKEN ENDPOINT")
        assert "no TLS" in wrong(tokens.url.replace("http", "https"), "OAUTH TOKEN ENDPOINT")
        bad = "-----BEGIN CERTIFICATE-----\nx\n"
        assert "holds no certificates" in wrong(
            tokens.url, "OAUTH CERTIFICATE AUTHORITY", OAUTH_CERTIFICATE_AUTHORITY=bad
        )


@pytest.mark.services
def test_validation(
    kafka: KafkaCluster, tokens: TokenServer, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A login by token works, also over TLS; what fails is told as the endpoint tells it."""

    def validate(url: str, **more: str | Secret) -> tuple[Finding, ...]:
        begun = time.monotonic()
        options = {**connection(url, **more), "BROKER": kafka.bootstrap}
        found = validate_connection("KAFKA", options, subject="connection s.c")
        assert time.monotonic() - begun < LIMIT
        return found

    # a client of librdkafka would wait 20 s for the one that is silent
    patient = functools.partial(token_finding, timeout=0.5)
    monkeypatch.setattr(kafka_probe, "token_finding", patient)
    pem, key_file = make_certificate(tmp_path)
    with (
        TokenServer(kafka.token_key, {"app": MARKER}, pem=pem, key_file=key_file) as right,
        socket.create_server(("127.0.0.1", 0)) as silent,
    ):
        port = silent.getsockname()[1]
        trusted = {"OAUTH_CERTIFICATE_AUTHORITY": pem.read_text()}
        (good,) = validate(right.url, OAUTH_SCOPE="streams", **trusted)
        assert good.ok, good
        cases: tuple[tuple[str, Callable[[], tuple[Finding, ...]]], ...] = (
            ("OAUTH CERTIFICATE AUTHORITY", lambda: validate(right.url)),
            ("OAUTH CLIENT SECRET",
             lambda: validate(right.url, OAUTH_CLIENT_SECRET=Secret("other"), **trusted)),
            ("OAUTH TOKEN ENDPOINT", lambda: validate("http://127.0.0.1:1/token")),
            ("OAUTH TOKEN ENDPOINT", lambda: validate(f"http://127.0.0.1:{port}/token")),
            ("OAUTH SCOPE", lambda: validate(tokens.url)),
        )
        for option, asked in cases:
            (found,) = asked()
            require_bad(found, option)
    assert "does not take the endpoint's tokens" in (found.remedy or "")
