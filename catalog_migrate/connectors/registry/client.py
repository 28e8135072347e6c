"""A schema registry that speaks Confluent's API, asked by HTTP: schemas, subjects, compatibility.

Everything ends in time and every failure names the option that it comes from. Redirects are not
followed: the login would go wherever they lead.
"""

from __future__ import annotations

import base64
import http.client
import json
import socket
import ssl
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from urllib.parse import quote, urlsplit

import msgspec

from catalog_migrate.connectors.findings import TookTooLong, failed, within
from catalog_migrate.connectors.kafka.token_endpoint import NoRedirects
from catalog_migrate.connectors.options import option_of
from catalog_migrate.connectors.resolved import Resolved, file_with
from catalog_migrate.connectors.secrets import Redactor
from catalog_migrate.connectors.ssh.tunnels import OPTION, endpoint
from catalog_migrate.errors import ConnectionFailed
from catalog_migrate.model.findings import Finding

_CONTENT = "application/vnd.schemaregistry.v1+json"
_MAX_ANSWER = 16 << 20
_DEPTH = 20


class RegisteredSchema(msgspec.Struct, frozen=True):
    """A schema as registered: ``kind`` is ``AVRO``, ``JSON`` or ``PROTOBUF``, ``id`` its number.

    ``references`` are the texts of what it imports, by the name under which it does, each behind
    what it imports itself.
    """

    id: int
    kind: str
    text: str
    references: dict[str, str] = {}


class UnknownSchema(LookupError):
    """The registry is there and has no such schema or subject."""


class Incompatible(Exception):
    """The registry refuses a schema for a subject; the message is the registry's reason."""


class SchemaRegistry:
    """A client of one registry; ``subject`` names the connection in findings.

    ``timeout`` (seconds) bounds each question as a whole. What is asked raises
    :class:`ConnectionFailed` when the registry does not answer as one.
    """

    def __init__(
        self, resolved: Resolved, *, subject: str = "connection", timeout: float = 10.0
    ) -> None:
        self._resolved = resolved
        self._subject = subject
        self._timeout = timeout
        self._redactor = Redactor.of(resolved)
        self._url = _option(resolved, "URL") or ""
        self._opener: urllib.request.OpenerDirector | None = None

    def __repr__(self) -> str:
        return f"SchemaRegistry({self._url})"

    def check(self) -> Finding:
        """That the registry answers and lets us in."""
        found = self._ask("GET", "/subjects")
        if not isinstance(found, list):
            raise self._no_registry("something else than a list of subjects")
        return Finding(
            self._subject, None, "ok", f"connected to the schema registry, {len(found)} subjects"
        )

    def schema(self, number: int) -> RegisteredSchema:
        """The schema of an id, with what it imports. UnknownSchema when there is none."""
        return self._registered(self._ask("GET", f"/schemas/ids/{number}"), number)

    def latest(self, subject: str) -> RegisteredSchema:
        """The newest schema of a subject. UnknownSchema when there is none."""
        found = self._ask("GET", f"/subjects/{_quoted(subject)}/versions/latest")
        return self._registered(found, None)

    def register(self, subject: str, text: str, kind: str) -> int:
        """Register a schema under a subject, or find it there; returns its id.

        :class:`Incompatible` when the registry refuses it.
        """
        found = self._ask(
            "POST", f"/subjects/{_quoted(subject)}/versions", _body(text, kind), refused=True
        )
        number = found.get("id") if isinstance(found, Mapping) else None
        if not isinstance(number, int):
            raise self._no_registry("an answer without the schema's id")
        return number

    def incompatibilities(self, subject: str, text: str, kind: str) -> tuple[str, ...]:
        """Why the registry would refuse a schema as the subject's next; none when it takes it."""
        path = f"/compatibility/subjects/{_quoted(subject)}/versions/latest?verbose=true"
        try:
            found = self._ask("POST", path, _body(text, kind), refused=True)
        except UnknownSchema:  # the subject's first
            return ()
        except Incompatible as error:
            return (str(error),)
        if not isinstance(found, Mapping) or "is_compatible" not in found:
            raise self._no_registry("an answer that does not say whether they are compatible")
        if found["is_compatible"] is True:
            return ()
        reported = [_short(str(each)) for each in found.get("messages") or ()]
        return tuple(reported) or ("it is not compatible with the newest version",)

    # -- questions ---------------------------------------------------------------------------------

    def _registered(self, found: Any, number: int | None) -> RegisteredSchema:
        text = found.get("schema") if isinstance(found, Mapping) else None
        if not isinstance(text, str):
            raise self._no_registry("an answer without a schema")
        references: dict[str, str] = {}
        try:
            self._collect(found.get("references") or (), references, 0)
        except (KeyError, TypeError, ValueError, AttributeError):
            raise self._no_registry("references that cannot be followed") from None
        return RegisteredSchema(
            number if number is not None else int(found.get("id", 0)),
            str(found.get("schemaType") or "AVRO").upper(), text, references,
        )

    def _collect(self, wanted: Sequence[Any], found: dict[str, str], depth: int) -> None:
        if depth > _DEPTH:
            raise self._no_registry("schemas that import each other in a circle")
        for each in wanted:
            name, subject, version = each["name"], each["subject"], each["version"]
            if name in found:
                continue
            answer = self._ask("GET", f"/subjects/{_quoted(subject)}/versions/{int(version)}")
            self._collect(answer.get("references") or (), found, depth + 1)
            found[name] = str(answer["schema"])

    def _ask(
        self, method: str, path: str, body: Mapping[str, Any] | None = None, *,
        refused: bool = False,
    ) -> Any:
        """The JSON of an answer; ``refused``: 409 and 422 say that a schema is refused."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(  # noqa: S310 - the scheme is checked with the option
            self._url + path, data=data, method=method,
            headers={"Accept": f"{_CONTENT}, application/json", "User-Agent": "catalog_migrate"},
        )
        if data is not None:
            request.add_header("Content-Type", _CONTENT)
        login = self._login()
        if login is not None:
            request.add_unredirected_header("Authorization", login)
        try:
            status, content = within(self._timeout, lambda: self._answer(request))
        except TookTooLong:
            raise self._failed(
                "URL", f"no answer within {self._timeout:.0f} s",
                "see whether the registry runs and a firewall lets us through",
            ) from None
        except (OSError, http.client.HTTPException) as error:
            raise self._unreachable(error) from None
        return self._read_answer(status, content, refused=refused)

    def _answer(self, request: urllib.request.Request) -> tuple[int, bytes]:
        if self._opener is None:
            self._opener = urllib.request.build_opener(
                NoRedirects, _Plain(self._reached), _Secure(self._reached, self._tls()),
                # a proxy of the environment's is no way through a tunnel
                *([urllib.request.ProxyHandler({})] if OPTION in self._resolved else []),
            )
        try:
            with self._opener.open(request, timeout=self._timeout) as answer:
                return int(answer.status), answer.read(_MAX_ANSWER)
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read(_MAX_ANSWER)

    def _reached(
        self, address: tuple[str, int], *more: Any
    ) -> socket.socket:
        """A socket to the registry, through the connection's tunnel if it has one."""
        place = endpoint(self._resolved, *address, subject=self._subject, option="URL")
        return socket.create_connection(place, *more)

    def _read_answer(self, status: int, content: bytes, *, refused: bool) -> Any:
        try:
            found = json.loads(content)
        except ValueError:
            found = None
        if 200 <= status < 300 and found is not None:
            return found
        raise self._failure(status, content, found, refused=refused)

    def _failure(
        self, status: int, content: bytes, found: Any, *, refused: bool
    ) -> ConnectionFailed | UnknownSchema | Incompatible:
        answer = found if isinstance(found, Mapping) else {}
        reported, code = answer.get("message"), answer.get("error_code")
        reason = _short(self._redactor.scrub(str(reported))) if reported else ""
        if status in (401, 403):
            return self._login_refused(status, reason)
        if status == 404 and isinstance(code, int) and code // 100 == 404:  # 40401 to 40403
            return UnknownSchema(reason or "not found")
        if refused and status in (409, 422) and isinstance(found, Mapping):
            return Incompatible(reason or "it is not compatible")
        if status >= 500:
            return self._failed(
                "URL", f"the registry fails ({_status(status, reason)})",
                "check the registry; what needs it is tried again",
            )
        return self._no_registry(_describe(status, content, found))

    def _login_refused(self, status: int, reason: str) -> ConnectionFailed:
        if _option(self._resolved, "USERNAME") is None:
            return self._failed(
                "USERNAME",
                f"the registry refuses us without a login ({_status(status, reason)})",
                "write USERNAME '…' and PASSWORD SECRET …",
            )
        return self._failed(
            "PASSWORD", f"the registry refuses this login ({_status(status, reason)})",
            "check USERNAME and PASSWORD, and what this user may do there",
        )

    def _login(self) -> str | None:
        user = _option(self._resolved, "USERNAME")
        if user is None:
            return None
        pair = f"{user}:{_option(self._resolved, 'PASSWORD') or ''}"
        return "Basic " + base64.b64encode(pair.encode()).decode()

    def _tls(self) -> ssl.SSLContext:
        authority = _option(self._resolved, "SSL CERTIFICATE AUTHORITY")
        try:
            context = ssl.create_default_context(cadata=authority)
        except ssl.SSLError:
            raise self._failed(
                "SSL CERTIFICATE AUTHORITY", "it holds no certificate that can be read",
                "write the certificates themselves, PEM",
            ) from None
        certificate = _option(self._resolved, "SSL CERTIFICATE")
        key = _option(self._resolved, "SSL KEY")
        if certificate is not None and key is not None:
            try:
                context.load_cert_chain(
                    file_with(certificate), file_with(key),
                    _option(self._resolved, "SSL KEY PASSWORD") or "",
                )
            except (ssl.SSLError, OSError):
                raise self._failed(
                    "SSL KEY", "key and certificate cannot be read, or are not of one pair",
                    "check SSL CERTIFICATE, SSL KEY and SSL KEY PASSWORD",
                ) from None
        return context

    # -- failures ----------------------------------------------------------------------------------

    def _unreachable(self, error: Exception) -> ConnectionFailed:
        reason = error.reason if isinstance(error, urllib.error.URLError) else error
        if isinstance(reason, ConnectionFailed):
            return reason
        host = urlsplit(self._url).netloc
        if isinstance(reason, ssl.SSLCertVerificationError):
            return self._failed(
                "SSL CERTIFICATE AUTHORITY",
                f"the certificate of {host} is not accepted: {reason.verify_message}",
                "write the authority that signed it as SSL CERTIFICATE AUTHORITY, and the host"
                " that it is made for in URL",
            )
        if isinstance(reason, ssl.SSLError):
            return self._failed(
                "URL", f"{host} does not speak TLS as we do ({reason.reason})",
                "see whether URL should begin with http:, or SSL CERTIFICATE and SSL KEY are asked",
            )
        if isinstance(reason, socket.gaierror):
            return self._failed("URL", f"{host} has no address", "check the host name")
        if isinstance(reason, TimeoutError):
            return self._failed(
                "URL", f"{host} does not answer in time",
                "see whether the registry runs and a firewall lets us through",
            )
        reported = getattr(reason, "strerror", None) or type(reason).__name__
        return self._failed(
            "URL", f"{host} cannot be reached ({reported})", "see whether the registry runs there"
        )

    def _no_registry(self, what: str) -> ConnectionFailed:
        return self._failed(
            "URL", f"{self._url} answers with {what}: that is no schema registry",
            "give the URL under which Confluent's API itself is (Apicurio: …/apis/ccompat/v7), not"
            " that of a web page or of a proxy's login",
        )

    def _failed(self, option: str, message: str, remedy: str) -> ConnectionFailed:
        return failed(Finding(self._subject, option, "error", message, remedy))


_Reach = Callable[..., socket.socket]


class _Plain(urllib.request.HTTPHandler):
    """HTTP over sockets that somebody else connects."""

    def __init__(self, reach: _Reach) -> None:
        super().__init__()
        self._reach = reach

    def http_open(self, request: urllib.request.Request) -> http.client.HTTPResponse:
        """Open it."""

        def connection(host: str, **more: Any) -> http.client.HTTPConnection:
            made = http.client.HTTPConnection(host, **more)
            made._create_connection = self._reach  # type: ignore[attr-defined]
            return made

        return self.do_open(connection, request)


class _Secure(urllib.request.HTTPSHandler):
    """The same with TLS, whose names are those of the URL."""

    def __init__(self, reach: _Reach, context: ssl.SSLContext) -> None:
        super().__init__(context=context)
        self._reach, self._tls = reach, context

    def https_open(self, request: urllib.request.Request) -> http.client.HTTPResponse:
        """Open it."""

        def connection(host: str, **more: Any) -> http.client.HTTPSConnection:
            made = http.client.HTTPSConnection(host, context=self._tls, **more)
            made._create_connection = self._reach  # type: ignore[attr-defined]
            return made

        return self.do_open(connection, request)


def subject_of(strategy: str, topic: str, record: str) -> str:
    """The subject of a topic's values, by Confluent's three strategies."""
    return {"topic": f"{topic}-value", "record": record}.get(strategy, f"{topic}-{record}")


def _body(text: str, kind: str) -> dict[str, Any]:
    return {"schema": text} if kind == "AVRO" else {"schema": text, "schemaType": kind}


def _option(resolved: Resolved, name: str) -> str | None:
    return option_of(resolved, "SCHEMA REGISTRY", name)


def _quoted(subject: str) -> str:
    return quote(subject, safe="")


def _describe(status: int, content: bytes, found: Any) -> str:
    """What another server than a registry answers with."""
    if content.lstrip()[:1] == b"<":
        return "HTML"
    return "what is no JSON" if found is None else f"status {status}"


def _status(status: int, reason: str) -> str:
    return f"{status}: {reason}" if reason else str(status)


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= 300 else line[:300] + "…"
