"""An S3-compatible object store for tests: moto's server, in memory, on this machine alone."""

from __future__ import annotations

import http.client
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from tests.services.process import ServerProcess, ServiceFailed, free_ports

if TYPE_CHECKING:
    from typing_extensions import Self

SERVER = Path(__file__).with_name("object_store_server.py")
_REQUEST = re.compile(r'"(?:\x1b\[[0-9;]*m)*([A-Z]+) (\S+) HTTP/')


class ObjectStore:
    """A running server; :meth:`bucket` makes a bucket, :attr:`options` reach it by delta-rs.

    It refuses an object that is there to a conditional put, as S3 does
    (:mod:`tests.services.object_store_server`).
    """

    def __init__(self, home: Path, *, key: str = "a-key-id", secret: str = "a-secret") -> None:
        (self._port,) = free_ports(1)
        self._server = ServerProcess(
            self._command(self._port), log=home / "object-store.log", cwd=home
        )
        self._log = home / "object-store.log"
        self._key = key
        self._secret = secret
        self._server.await_ready(
            lambda: self._ask("GET", "/")[0] == 200, "the object store did not answer"
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._server.kill()  # it keeps nothing

    @property
    def options(self) -> Mapping[str, str]:
        """Storage options of delta-rs."""
        return {
            "aws_endpoint_url": f"http://127.0.0.1:{self._port}",
            "aws_allow_http": "true",
            "aws_access_key_id": self._key,
            "aws_secret_access_key": self._secret,
            "aws_region": "us-east-1",
        }

    def bucket(self, name: str) -> str:
        """Make a bucket; returns its address."""
        status, body = self._ask("PUT", f"/{quote(name)}")
        if status != 200:
            raise ServiceFailed(f"no bucket {name}: {status} {body}", remedy="read the log")
        return f"s3://{name}"

    def mark_folder(self, address: str) -> None:
        """Put the object without bytes that Hadoop marks a folder with."""
        self._ask("PUT", f"/{quote(address.partition('://')[2])}/")

    def objects(self, name: str) -> str:
        """The listing of a bucket, as the server writes it."""
        return self._ask("GET", f"/{quote(name)}?list-type=2&max-keys=1000")[1]

    def requests(self, bucket: str) -> list[tuple[str, str]]:
        """(method, path and query) of every request for a bucket so far, in order."""
        asked = _REQUEST.findall(self._log.read_text("utf-8", errors="replace"))
        own = (f"/{bucket}", f"/{bucket}/", f"/{bucket}?")
        return [
            (method, path) for method, path in asked if path == own[0] or path.startswith(own[1:])
        ]

    def _command(self, port: int) -> list[str]:
        # alone: what lies beside it has the names of other modules
        return [sys.executable, "-I", str(SERVER), str(port)]

    def _headers(self, method: str, path: str) -> dict[str, str]:
        """What a request of our own has besides."""
        return {}

    def _ask(self, method: str, path: str) -> tuple[int, str]:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=30)
        try:
            connection.request(method, path, headers=self._headers(method, path))
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        finally:
            connection.close()
