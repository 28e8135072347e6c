"""A schema registry's answers, and what is said when it gives none: against the tests' own."""

from __future__ import annotations

import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from catalog_migrate.connectors.registry.client import (
    Incompatible,
    SchemaRegistry,
    UnknownSchema,
    subject_of,
)
from catalog_migrate.connectors.secrets import Secret
from catalog_migrate.connectors.validation import validate_connection
from catalog_migrate.errors import ConnectionFailed
from catalog_migrate.model.findings import Finding
from tests.services import schema_registry
from tests.services.ssh import USER, SSHServer, new_key

ORDER = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}
WIDER = {**ORDER, "fields": [
    *ORDER["fields"], {"name": "note", "type": ["null", "string"], "default": None}]}  # type: ignore[misc] # fmt: skip
BROKEN = {**ORDER, "fields": [{"name": "id", "type": "string"}, {"name": "x", "type": "int"}]}


@pytest.fixture(scope="module")
def server() -> Iterator[schema_registry.SchemaRegistry]:
    with schema_registry.SchemaRegistry(login=("app", "pa:ss")) as one:
        yield one


@pytest.fixture
def client(server: schema_registry.SchemaRegistry) -> SchemaRegistry:
    return SchemaRegistry(options(server.url))


def options(url: str, **more: Any) -> dict[str, Any]:
    return {"URL": url, "USERNAME": "app", "PASSWORD": Secret("pa:ss"), **more}


def finding(resolved: dict[str, Any], timeout: float = 2.0) -> Finding:
    """What validation says, which must be one thing and not take long."""
    began = time.monotonic()
    (found,) = validate_connection(
        "SCHEMA REGISTRY", resolved, subject="connection s.r", timeout=timeout
    )
    assert time.monotonic() - began < 15.0
    assert found.subject == "connection s.r"
    return found


class TestSchemas:
    def test_by_number_and_subject(
        self, server: schema_registry.SchemaRegistry, client: SchemaRegistry
    ) -> None:
        """A schema is found by its number and by its subject, with what it imports."""
        import json

        inner = server.register("inner", {"type": "fixed", "name": "F", "size": 4})
        outer = server.register(
            "a/b c", {"type": "array", "items": "F"}, "AVRO",
            [{"name": "F", "subject": "inner", "version": 1}],
        )
        found = client.schema(outer)
        assert (found.id, found.kind) == (outer, "AVRO")
        assert json.loads(found.references["F"])["size"] == 4
        assert client.latest("a/b c") == found
        assert client.schema(inner).references == {}
        with pytest.raises(UnknownSchema):
            client.schema(999)
        with pytest.raises(UnknownSchema):
            client.latest("nobody")

    def test_registering(
        self, server: schema_registry.SchemaRegistry, client: SchemaRegistry
    ) -> None:
        """A schema is registered once; what the subject does not allow is told and refused."""
        import json

        first = client.register("r-value", json.dumps(ORDER), "AVRO")
        assert client.register("r-value", json.dumps(ORDER), "AVRO") == first
        assert client.incompatibilities("r-value", json.dumps(WIDER), "AVRO") == ()
        assert client.incompatibilities("new", json.dumps(BROKEN), "AVRO") == ()
        reasons = client.incompatibilities("r-value", json.dumps(BROKEN), "AVRO")
        assert reasons == ("TYPE_MISMATCH id", "READER_FIELD_MISSING_DEFAULT_VALUE x")
        with pytest.raises(Incompatible, match="TYPE_MISMATCH id"):
            client.register("r-value", json.dumps(BROKEN), "AVRO")
        assert len(server.subjects["r-value"]) == 1

    def test_names_of_subjects(self) -> None:
        """Confluent's three strategies."""
        assert [subject_of(each, "t", "a.R") for each in ("topic", "record", "topic-record")] == [
            "t-value", "a.R", "t-a.R",
        ]


class TestFailures:
    def test_fine(self, server: schema_registry.SchemaRegistry) -> None:
        assert finding(options(server.url)).ok

    def test_login(self, server: schema_registry.SchemaRegistry) -> None:
        """A wrong password and a missing login are told apart; no password is shown."""
        wrong = finding(options(server.url, PASSWORD=Secret("not-this-one")))
        assert (wrong.ok, wrong.option) == (False, "PASSWORD")
        assert "401" in wrong.message
        assert "not-this-one" not in str(wrong)
        assert finding({"URL": server.url}).option == "USERNAME"

    def test_page(self) -> None:
        """HTML, another API and a place where nothing is are no schema registry."""
        with schema_registry.SchemaRegistry() as page:
            page.page = True
            found = finding({"URL": page.url})
            assert (found.option, "HTML" in found.message) == ("URL", True)
            assert "ccompat" in (found.remedy or "")
            page.page = False
            assert finding({"URL": page.url + "/elsewhere"}).option == "URL"

    def test_nobody(self) -> None:
        """A port where nobody listens, and a name without an address."""
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            closed = finding({"URL": f"http://127.0.0.1:{taken.getsockname()[1]}"})
        assert (closed.option, "cannot be reached" in closed.message) == ("URL", True)
        nowhere = finding({"URL": "http://registry.invalid:8081"})
        assert (nowhere.option, nowhere.ok) == ("URL", False)

    def test_silence(self) -> None:
        """Somebody who listens and never answers."""
        with socket.socket() as silent:
            silent.bind(("127.0.0.1", 0))
            silent.listen()
            found = finding({"URL": f"http://127.0.0.1:{silent.getsockname()[1]}"}, 0.3)
        assert (found.option, found.ok) == ("URL", False)

    def test_redirect(self, server: schema_registry.SchemaRegistry) -> None:
        """An answer that leads elsewhere is not followed: the login would go there."""
        with socket.socket() as door:
            door.bind(("127.0.0.1", 0))
            door.listen()

            def lead_away() -> None:
                with door.accept()[0] as asked:
                    asked.recv(4096)
                    asked.sendall(
                        f"HTTP/1.1 302 Found\r\nLocation: {server.url}/subjects\r\n"
                        "Content-Length: 0\r\n\r\n".encode()
                    )

            thread = threading.Thread(target=lead_away, daemon=True)
            thread.start()
            found = finding(options(f"http://127.0.0.1:{door.getsockname()[1]}"))
            thread.join(10)
        assert (found.option, found.ok) == ("URL", False)

    def test_tls(self, tmp_path: Path) -> None:
        """A certificate is checked against the authority that is given, or the platform's."""
        openssl = shutil.which("openssl")
        if openssl is None:
            pytest.skip("no openssl here")
        key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
        subprocess.run(
            [openssl, "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj",
             "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key),
             "-out", str(certificate)], check=True, capture_output=True,
        )  # fmt: skip
        authority = certificate.read_text(encoding="utf-8")
        with schema_registry.SchemaRegistry(tls=(str(certificate), str(key))) as secure:
            url = {"URL": secure.url}
            assert finding({**url, "SSL CERTIFICATE AUTHORITY": authority}).ok
            refused = finding(url)
            assert refused.option == "SSL CERTIFICATE AUTHORITY"
            assert finding({"URL": secure.url.replace("https:", "http:")}).option == "URL"
            nonsense = "-----BEGIN CERTIFICATE-----\nQQ==\n-----END CERTIFICATE-----\n"
            broken = finding({**url, "SSL CERTIFICATE AUTHORITY": nonsense})
            assert broken.option == "SSL CERTIFICATE AUTHORITY"

    def test_who_cannot_go_on(self) -> None:
        """Whoever needs an answer gets an error that names the option."""
        with pytest.raises(ConnectionFailed, match="cannot be reached") as caught:
            SchemaRegistry({"URL": "http://127.0.0.1:1"}, subject="connection s.r").latest("t")
        assert caught.value.findings[0].option == "URL"

    def test_through_a_tunnel(self, server: schema_registry.SchemaRegistry) -> None:
        """A registry behind an SSH server is reached through it, under its own name."""
        private, public = new_key()
        here = "127.0.0.1", int(server.url.rpartition(":")[2])
        with SSHServer([public], {("registry.internal", 8081): here}) as bastion:
            tunnel = {
                "SSH TUNNEL": "default.t", "SSH TUNNEL HOST": "127.0.0.1",
                "SSH TUNNEL PORT": str(bastion.port), "SSH TUNNEL USER": USER,
                "SSH TUNNEL PRIVATE KEY": Secret(private), "SSH TUNNEL HOST KEY": bastion.host_key,
            }
            assert finding(options("http://registry.internal:8081", **tunnel)).ok
            nowhere = finding(options("http://nobody.internal:8081", **tunnel))
            assert (nowhere.ok, nowhere.option) == (False, "URL")
            assert "tunnel default.t" in nowhere.message
