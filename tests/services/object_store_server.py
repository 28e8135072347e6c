"""moto's server with what S3 does besides: ``object_store_server.py PORT [CLOCK]``.

A put on a condition is one act in S3; moto looks, and puts afterwards, and two that come at once
may both go through. So one request that changes something is served at a time.

With ``CLOCK`` it is strict: moto compares signatures and reads the policies of users and roles once
it is told to (``INITIAL_NO_AUTH_ACTION_COUNT`` in its documentation), and how old a request is, and
whether its token has expired, is looked at here. The file, if it is there, says how many seconds
the server's clock is ahead of this machine's.
"""

from __future__ import annotations

import http.client
import re
import sys
import threading
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta, timezone
from io import BytesIO
from pathlib import Path
from typing import Any

_SKEW = timedelta(minutes=15)
_STATUS = {
    "AccessDenied": 403, "InvalidAccessKeyId": 403, "RequestTimeTooSkewed": 403,
    "SignatureDoesNotMatch": 403, "ExpiredToken": 400, "InvalidToken": 400,
}
"""By code (Amazon S3 API Reference, *Error responses*); moto has another status for some."""
_MESSAGES = {
    "AccessDenied": "Access Denied",
    "ExpiredToken": "The provided token has expired.",
    "RequestTimeTooSkewed":
        "The difference between the request time and the current time is too large.",
}
_KEY = re.compile(r"Credential=([^/]+)/")


class _OneAtATime:
    """moto's application; what changes something waits for the change before it."""

    def __init__(self, application: Any) -> None:
        self._application = application
        self._changes = threading.Lock()

    def __call__(self, environ: dict[str, Any], start: Any) -> Iterable[bytes]:
        if environ["REQUEST_METHOD"] in ("GET", "HEAD"):
            return self._application(environ, start)  # type: ignore[no-any-return]
        # read before: a client that stops in the midst of its bytes holds nobody up
        length = int(environ.get("CONTENT_LENGTH") or 0)
        environ["wsgi.input"] = BytesIO(environ["wsgi.input"].read(length))
        with self._changes:
            return self._application(environ, start)  # type: ignore[no-any-return]


class _Gate:
    """moto's application, behind what S3 looks at and moto does not."""

    def __init__(self, application: Any, clock: Path) -> None:
        self._application = application
        self._clock = clock

    def __call__(self, environ: dict[str, Any], start: Any) -> Iterable[bytes]:
        refused = self._refused(environ)
        if refused is not None:
            told = f"<Error><Code>{refused}</Code><Message>{_MESSAGES[refused]}</Message></Error>"
            return _answer(environ, start, refused, told.encode())
        begun: list[Any] = []
        answered = self._application(environ, lambda *given: begun.extend(given))
        status, headers = begun[0], begun[1]
        if not status.startswith("4"):
            start(status, headers)
            return answered  # type: ignore[no-any-return]
        body = b"".join(answered)
        code = re.search(r"<Code>(\w+)</Code>", body.decode("utf-8", errors="replace"))
        if code is None or code[1] not in _STATUS:
            start(status, headers)
            return [body]
        return _answer(environ, start, code[1], body)

    def _refused(self, environ: Mapping[str, Any]) -> str | None:
        """The code with which a request is refused before moto sees it."""
        from moto import settings

        if settings.INITIAL_NO_AUTH_ACTION_COUNT or environ["PATH_INFO"].startswith("/moto-api"):
            return None
        asked, signed = environ.get("HTTP_X_AMZ_DATE"), environ.get("HTTP_AUTHORIZATION", "")
        if not asked or not signed:
            return "AccessDenied"
        then = datetime.strptime(asked, "%Y%m%dT%H%M%SZ").replace(tzinfo=timezone.utc)
        ahead = float(self._clock.read_text()) if self._clock.exists() else 0.0
        now = datetime.now(timezone.utc) + timedelta(seconds=ahead)
        if abs(now - then) > _SKEW:
            return "RequestTimeTooSkewed"
        return "ExpiredToken" if self._has_expired(signed, now) else None

    @staticmethod
    def _has_expired(signed: str, now: datetime) -> bool:
        from moto.core.models import DEFAULT_ACCOUNT_ID
        from moto.sts.models import sts_backends

        key = _KEY.search(signed)
        roles = sts_backends[DEFAULT_ACCOUNT_ID]["aws"].assumed_roles
        return key is not None and any(
            role.access_key_id == key[1] and role.expiration < now.replace(tzinfo=None)
            for role in roles
        )


def _answer(
    environ: Mapping[str, Any], start: Any, code: str, body: bytes
) -> Iterable[bytes]:
    status = _STATUS[code]
    start(
        f"{status} {http.client.responses[status]}",
        [("Content-Type", "application/xml"), ("Content-Length", str(len(body)))],
    )
    return [] if environ["REQUEST_METHOD"] == "HEAD" else [body]


def _serve(port: int, clock: Path | None = None) -> None:
    from moto.moto_server.werkzeug_app import (
        DomainDispatcherApplication,
        MotoRequestHandler,
        create_backend_app,
    )
    from werkzeug.serving import run_simple

    application: Any = _OneAtATime(DomainDispatcherApplication(create_backend_app))
    if clock is not None:
        application = _Gate(application, clock)
    run_simple(
        "127.0.0.1", port, application, threaded=True, request_handler=MotoRequestHandler
    )


if __name__ == "__main__":
    _serve(int(sys.argv[1]), *map(Path, sys.argv[2:]))
