"""Asking an OAuth token endpoint ourselves: what the Kafka clients say about theirs is too little.

librdkafka has a text for it, a running query of Spark only a time-out (of the broker, to which it
never gets). The request is the one that both clients make: client credentials (RFC 6749, section
4.4), with client and secret in the header of Basic authentication.
"""

from __future__ import annotations

import base64
import json
import socket
import ssl
from collections.abc import Mapping
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import urlencode
from urllib.request import HTTPRedirectHandler, HTTPSHandler, Request, build_opener

from catalog_migrate.connectors.findings import TookTooLong, within
from catalog_migrate.connectors.options import option_of
from catalog_migrate.connectors.resolved import Resolved
from catalog_migrate.connectors.secrets import Redactor, Secret
from catalog_migrate.model.findings import Finding

ENDPOINT, AUTHORITY = "OAUTH TOKEN ENDPOINT", "OAUTH CERTIFICATE AUTHORITY"
CLIENT, SECRET, SCOPE = "OAUTH CLIENT ID", "OAUTH CLIENT SECRET", "OAUTH SCOPE"
_MOST = 1 << 16
"""Bytes of an answer that are read; a token has a few thousand."""
_SHOWN = 200
_OTHER_HOST = (62, 64)
"""OpenSSL's X509_V_ERR_HOSTNAME_MISMATCH and _IP_ADDRESS_MISMATCH."""

_REFUSALS: Mapping[str, tuple[str, str]] = {
    "invalid_client": (
        SECRET, "check OAUTH CLIENT ID and OAUTH CLIENT SECRET; after a rotation: ALTER SECRET"
    ),
    "unauthorized_client": (CLIENT, "allow client credentials to this client at the endpoint"),
    "access_denied": (CLIENT, "allow client credentials to this client at the endpoint"),
    "invalid_scope": (SCOPE, "name scopes that the endpoint gives to this client"),
    "invalid_target": (SCOPE, "name scopes that the endpoint gives to this client"),
    "unsupported_grant_type": (ENDPOINT, "name an endpoint that takes client credentials"),
}
"""What RFC 6749 (section 5.2) and those who go on from it call the reasons."""
_UNKNOWN_CLIENT = ("not found", "unknown", "does not exist", "no such", "not registered")


def token_finding(resolved: Resolved, *, subject: str, timeout: float = 3.0) -> Finding:
    """Whether the token endpoint of a KAFKA connection gives its client a token that Kafka takes.

    Ends within ``timeout`` seconds. No text has the client's secret, nor a token.
    """
    url = option_of(resolved, "KAFKA", ENDPOINT) or ""
    client, secret = (option_of(resolved, "KAFKA", name) or "" for name in (CLIENT, SECRET))
    scope = option_of(resolved, "KAFKA", SCOPE)
    login = base64.b64encode(f"{client}:{secret}".encode()).decode()
    hidden = Redactor([Secret(secret), Secret(login)])

    def bad(option: str, message: str, remedy: str) -> Finding:
        return Finding(subject, option, "error", hidden.scrub(message), remedy)

    try:
        authority = option_of(resolved, "KAFKA", AUTHORITY)
        trusted = ssl.create_default_context(cadata=authority)
    except (ssl.SSLError, ValueError):
        return bad(AUTHORITY, f"{AUTHORITY} holds no certificates", "they must be in PEM")
    form = {"grant_type": "client_credentials", **({} if scope is None else {"scope": scope})}
    request = Request(  # noqa: S310 - the form of the option lets http and https through
        url, data=urlencode(form).encode(), method="POST",
        headers={"Authorization": f"Basic {login}", "Accept": "application/json"},
    )

    def ask() -> tuple[int, str, bytes]:
        opener = build_opener(NoRedirects, HTTPSHandler(context=trusted))
        try:
            with opener.open(request, timeout=timeout) as answer:
                return answer.status, answer.headers.get_content_type(), answer.read(_MOST)
        except HTTPError as error:
            with error:
                return error.code, error.headers.get_content_type(), error.read(_MOST)

    try:
        status, kind, body = within(timeout, ask)
    except (TookTooLong, TimeoutError):
        return bad(ENDPOINT, f"no answer from {url} within {timeout:g} s", _REACH)
    except URLError as error:
        return bad(*_unreachable(url, error.reason))
    except (OSError, ValueError) as error:
        return bad(*_unreachable(url, error))
    except Exception as error:  # noqa: BLE001 - http.client's, for what is no HTTP at all
        return bad(ENDPOINT, f"{url} speaks no HTTP ({type(error).__name__})", _REACH)
    problem = _problem(url, status, kind, body)
    if problem is not None:
        return bad(*problem)
    return Finding(subject, None, "ok", hidden.scrub(f"{url} gives client {client} a token"))


_REACH = "check the URL, the firewall, and that the server is well, from where this runs"


class NoRedirects(HTTPRedirectHandler):
    """An answer that leads elsewhere is the answer: a redirected login would go on as a GET, and
    tell another server the secret."""

    def redirect_request(self, *_: Any) -> None:
        """None: not followed."""


def _unreachable(url: str, reason: object) -> tuple[str, str, str]:
    """Option, message and remedy of a connection that did not come about."""
    if isinstance(reason, ssl.SSLCertVerificationError):
        if reason.verify_code in _OTHER_HOST:
            return (ENDPOINT, f"the certificate at {url} is for another name",
                    "write the name that the endpoint's certificate is for")
        return (AUTHORITY, f"the certificate at {url} is not trusted: {reason.verify_message}",
                "give the certificate that signed the endpoint's")
    if isinstance(reason, ssl.SSLError):
        return (ENDPOINT, f"no TLS with {url}: {reason.reason or 'the server hangs up'}",
                "if it speaks no TLS: http://; check the port")
    if isinstance(reason, socket.gaierror):
        return ENDPOINT, f"the host of {url} has no address", "check the host's name"
    if isinstance(reason, TimeoutError):
        return ENDPOINT, f"no answer from {url}", _REACH
    said = getattr(reason, "strerror", None) or type(reason).__name__
    return ENDPOINT, f"{url} cannot be reached: {said}", _REACH


def _problem(url: str, status: int, kind: str, body: bytes) -> tuple[str, str, str] | None:
    """Option, message and remedy of an answer that has no token for Kafka."""
    try:
        answer = json.loads(body)
    except ValueError:
        answer = None
    if not isinstance(answer, dict):
        where = f"{url} answers {kind} with status {status}, no token"
        if status >= 500:
            return ENDPOINT, where, "check the server of the token endpoint"
        return ENDPOINT, where, "name the token endpoint itself, no page for people, no issuer"
    if status != 200 or "error" in answer:
        name = str(answer.get("error", f"status {status}"))
        about = str(answer.get("error_description") or "")
        option, remedy = _REFUSALS.get(name, (ENDPOINT, "check the server of the token endpoint"))
        if option == SECRET and any(word in about.lower() for word in _UNKNOWN_CLIENT):
            option, remedy = CLIENT, "check OAUTH CLIENT ID, and that the endpoint has this client"
        text = " ".join(f"{name}: {about}".rstrip(": ").split())[:_SHOWN]
        what = "" if option == ENDPOINT else f" {option}"
        return option, f"the token endpoint refuses{what}: {text}", remedy
    missing = _missing_claims(answer.get("access_token"))
    if missing is None:
        return (ENDPOINT, f"what {url} gives is no JSON Web Token, and Kafka's clients take "
                "no other", "have the server issue JWT access tokens to this client")
    if missing:
        return (ENDPOINT, f"the token has no {' and no '.join(missing)}, which Kafka's clients "
                "want", "have the server put them into the access tokens of this client")
    return None


def _missing_claims(token: object) -> list[str] | None:
    """Claims that Kafka's clients want and a token lacks; None for what is no JWT."""
    parts = token.split(".") if isinstance(token, str) else []
    try:
        claims = json.loads(base64.urlsafe_b64decode(parts[1] + "==")) if len(parts) == 3 else None
    except ValueError:
        claims = None
    if not isinstance(claims, dict):
        return None
    return [name for name in ("exp", "sub") if not claims.get(name)]
