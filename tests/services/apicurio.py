"""Apicurio Registry 3.0.9, which speaks Confluent's API: for the long series, because its archive
has 109 MB.
"""

from __future__ import annotations

import os
import tarfile
import urllib.request
from pathlib import Path

from catalog_migrate.engine.spark.jars import SETTINGS_VARIABLE, LockedJar, check_java, ensure_jars
from tests.services.process import ServerProcess, free_ports

APICURIO = LockedJar(
    "io.apicurio", "apicurio-registry-app", "3.0.9", 108860403,
    "2b28181501a20cbf6efcd77f9b7153908fc01f3d3a7c32024c0bd9e1b04c8a43", "all", "tar.gz",
)

_BY_ITSELF = """\
<ivysettings>
  <settings defaultResolver="central"/>
  <resolvers><ibiblio name="central" m2compatible="true" usepoms="false"/></resolvers>
</ivysettings>
"""


class Apicurio:
    """A running registry with its schemas in memory. A context manager."""

    def __init__(self, home: Path) -> None:
        java = check_java()
        archive = _archive(home)
        with tarfile.open(archive) as packed:
            packed.extractall(home / "app", filter="data")
        (runner,) = (home / "app").rglob("*-runner.jar")
        (self.port,) = free_ports(1)
        self._server = ServerProcess(
            [
                java, "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1",
                "-Dquarkus.http.host=127.0.0.1", f"-Dquarkus.http.port={self.port}",
                "-Dquarkus.management.host=127.0.0.1", "-Dquarkus.management.port=0",
                "-jar", str(runner),
            ],
            log=home / "apicurio.log", cwd=home,
        )  # fmt: skip
        self._server.await_ready(self._answers, "Apicurio")

    def __enter__(self) -> Apicurio:
        return self

    def __exit__(self, *_: object) -> None:
        self._server.kill()

    @property
    def url(self) -> str:
        """Where its Confluent API is."""
        return url_at(self.port)

    def _answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/subjects", timeout=5) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False


def _archive(home: Path) -> str:
    """Its path, fetched when it is absent: by itself, because not all of its parents are served."""
    settings = home / "ivy-settings.xml"
    settings.write_text(_BY_ITSELF, encoding="utf-8")
    (path,) = ensure_jars(jars=[APICURIO], env={SETTINGS_VARIABLE: str(settings), **os.environ})
    return path


def url_at(port: int) -> str:
    """Where the API is when it, or a proxy before it, listens there."""
    return f"http://127.0.0.1:{port}/apis/ccompat/v7"
