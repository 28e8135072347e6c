"""One Kafka broker in a JVM of its own: where it listens, and its life from format to end."""

from __future__ import annotations

import base64
import json
import re
import signal
import subprocess
import time
import uuid
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from joserfc.jwk import ECKey
from msgspec.structs import replace

from catalog_migrate.engine.spark.jars import Progress, check_java, locate_pyspark
from tests.services.broker_jars import broker_jars, ensure_broker_jars
from tests.services.certificates import make_certificates
from tests.services.class_archive import ClassArchive
from tests.services.feed import Feed
from tests.services.kafka_properties import (
    LOGGING,
    REAUTHENTICATION,
    Keystore,
    Ports,
    server_properties,
)
from tests.services.process import (
    Deadline,
    ServerProcess,
    ServiceFailed,
    free_ports,
)

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient
    from typing_extensions import Self

QUIET: Mapping[str, Any] = {"log_level": 0, "error_cb": lambda _error: None}
_START_TIMEOUT = 120.0
_ATTEMPTS = 3
_FLAGS = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:+ExitOnOutOfMemoryError")
_BOUND = re.compile(r"Address already in use|BindException")


class Broker:
    """A KRaft node that is controller and broker, started by its constructor.

    :class:`~tests.services.kafka.KafkaCluster` says what the arguments mean.
    """

    def __init__(
        self,
        directory: Path,
        *,
        users: Mapping[str, str],
        acls: bool = False,
        tls: bool = False,
        heap: int = 256,
        reauthentication: float = REAUTHENTICATION,
        on_progress: Progress | None = None,
    ) -> None:
        self.directory = Path(directory).absolute()
        self._first_users = dict(users)
        self._acls = acls
        self._heap = heap
        self._reauthentication = reauthentication
        self._java = check_java()
        self._classpath = _classpath(ensure_broker_jars(on_progress))
        self.directory.mkdir(parents=True, exist_ok=True)
        (self.directory / "log4j2.xml").write_text(LOGGING, encoding="utf-8")
        self._archive = ClassArchive(self._java, self._classpath, self.directory)
        self._certificates = make_certificates(self.directory / "tls", self._java) if tls else None
        self.token_key = ECKey.generate_key("P-256", {"kid": "tests", "use": "sig"})
        self._jwks = self.directory / "jwks.json"
        self._jwks.write_text(json.dumps({"keys": [self.token_key.as_dict(private=False)]}))
        self.cluster_id = _new_cluster_id()
        self._process: ServerProcess | None = None
        self._admin: AdminClient | None = None
        self._feeds: list[Feed] = []
        self._ports = Ports(*free_ports(7))
        self._write_properties()
        self._format()
        self._start_on_free_ports()

    # --- where it is -------------------------------------------------------------------------

    @property
    def bootstrap(self) -> str:
        """Address of the listener with SASL and without TLS, ``127.0.0.1:port``."""
        return f"127.0.0.1:{self._ports.sasl}"

    @property
    def plain_bootstrap(self) -> str:
        """Address of the listener without login and TLS, the owner's way in."""
        return f"127.0.0.1:{self._ports.plaintext}"

    @property
    def ssl_bootstrap(self) -> str:
        """Address of the listener with TLS and without login (only with ``tls``)."""
        return f"127.0.0.1:{self._ports.ssl}"

    @property
    def sasl_ssl_bootstrap(self) -> str:
        """Address of the listener with TLS and SASL (only with ``tls``)."""
        return f"127.0.0.1:{self._ports.sasl_ssl}"

    @property
    def tunnelled(self) -> tuple[tuple[str, int], int]:
        """Where the listener for tunnels is, and on which port of localhost it says that it is."""
        return ("127.0.0.1", self._ports.tunnelled), self._ports.local

    @property
    def certificate(self) -> Path:
        """PEM file with the certificate that clients must trust (only with ``tls``)."""
        if self._certificates is None:
            raise ValueError("this cluster was started without tls")
        return self._certificates.pem

    @property
    def client_keystore(self) -> Keystore:
        """PKCS12 file of a client that the TLS listeners know as user ``app`` (only with ``tls``).

        On the listener with TLS and without login it is its bearer's login.
        """
        if self._certificates is None:
            raise ValueError("this cluster was started without tls")
        return self._certificates.client

    @property
    def running(self) -> bool:
        """Whether the broker's process runs."""
        return self._process is not None and self._process.running

    @property
    def pid(self) -> int:
        """Process id of the broker's JVM."""
        if self._process is None:
            raise ValueError("the broker is stopped")
        return self._process.pid

    # --- its life ----------------------------------------------------------------------------

    def stop(self) -> None:
        """End the broker as an operator does (SIGTERM); killed when that takes 20 s."""
        self._admin = None
        if self._process is not None:
            self._process.stop(signal.SIGTERM)
            self._process = None
            self._archive.keep()

    def kill(self) -> None:
        """End the broker at once, without a farewell to its clients."""
        self._admin = None
        if self._process is not None:
            self._process.kill()
            self._process = None

    def start(self) -> None:
        """Start the stopped broker again: same cluster, same topics, same addresses."""
        if self.running:
            return
        self._start()

    def move(self) -> None:
        """Restart the same cluster on new addresses; nobody listens on the old ones any more.

        Feeds wait meanwhile, and go on at the new address.
        """
        if self._feeds and not self.running:
            raise ValueError("a feed has rows for the old address: start the broker, then move it")
        for feed in self._feeds:
            feed.hold()
        self.stop()
        self._take_other_ports()
        self._start_on_free_ports()
        for feed in self._feeds:
            feed.resume()

    def suspend(self) -> None:
        """Freeze the broker: it accepts connections and never answers."""
        if self._process is not None:
            self._process.suspend()

    def wake(self) -> None:
        """Let a frozen broker go on."""
        if self._process is not None:
            self._process.wake()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    # --- inside ------------------------------------------------------------------------------

    def _write_properties(self) -> None:
        text = server_properties(
            self._ports,
            data=self.directory / "data",
            users=self._first_users,
            acls=self._acls,
            keys=None if self._certificates is None else self._certificates.server,
            jwks=self._jwks,
            reauthentication=self._reauthentication,
        )
        (self.directory / "server.properties").write_text(text, encoding="utf-8")

    def _format(self) -> None:
        answer = subprocess.run(
            [
                *self._command("-Xmx128m", self._archive.reading()),
                "kafka.tools.StorageTool",
                "format",
                "--standalone",
                "-t",
                self.cluster_id,
                "-c",
                str(self.directory / "server.properties"),
            ],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_START_TIMEOUT,
            check=False,
            cwd=self.directory,
        )
        if answer.returncode != 0:
            said = f"{answer.stdout}{answer.stderr}".strip()
            raise ServiceFailed(
                f"Kafka's storage in {self.directory} could not be formatted:\n{said}",
                remedy="give an empty directory that can be written",
            )

    def _command(self, heap: str, archive: Iterable[str]) -> list[str]:
        logging = f"-Dlog4j2.configurationFile={self.directory / 'log4j2.xml'}"
        allowed = f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={self._jwks.as_uri()}"
        return [self._java, heap, *_FLAGS, *archive, logging, allowed, "-cp", self._classpath]

    def _take_other_ports(self) -> None:
        """New addresses for the clients; the controller's stands in the cluster's own metadata."""
        self._ports = replace(Ports(*free_ports(7)), controller=self._ports.controller)
        self._write_properties()

    def _start_on_free_ports(self) -> None:
        """Start, on other ports when somebody took one of ours since we looked."""
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                self._start()
                return
            except _PortTaken:
                if attempt == _ATTEMPTS:
                    raise
                self._take_other_ports()

    def _start(self) -> None:
        log = self.directory / "broker.log"
        log.write_bytes(b"")
        self._process = ServerProcess(
            [
                *self._command(f"-Xmx{self._heap}m", self._archive.reading_or_writing()),
                "kafka.Kafka",
                str(self.directory / "server.properties"),
            ],
            log=log,
            cwd=self.directory,
        )
        try:
            self._await_metadata(self._process)
        except BaseException:
            self.kill()
            raise

    def _await_metadata(self, process: ServerProcess) -> None:
        """Wait until the broker answers a metadata request with itself as the only node."""
        from confluent_kafka import KafkaException

        deadline = Deadline(_START_TIMEOUT)
        while not deadline.passed:
            if not process.running:
                kind = _PortTaken if _BOUND.search(process.said()) else ServiceFailed
                raise kind(f"the Kafka broker ended while it started:\n{process.tail()}")
            try:
                answer = self._client().describe_cluster(request_timeout=1.0).result(1.5)
            except (KafkaException, TimeoutError):
                time.sleep(0.05)
                continue
            if len(answer.nodes) == 1:
                self.cluster_id = answer.cluster_id or self.cluster_id
                return
            time.sleep(0.05)
        raise ServiceFailed(
            f"the Kafka broker did not answer within {_START_TIMEOUT:.0f} s:\n{process.tail()}",
            remedy="look at the end of its log above, and at how busy the machine is",
        )

    def _owner(self) -> dict[str, Any]:
        """librdkafka's settings of whom the broker obeys in everything."""
        return {"bootstrap.servers": self.plain_bootstrap, **QUIET}

    def _client(self) -> AdminClient:
        from confluent_kafka.admin import AdminClient

        if self._admin is None:
            self._admin = AdminClient(
                {
                    **self._owner(),
                    "reconnect.backoff.ms": 20,
                    "reconnect.backoff.max.ms": 200,
                    "topic.metadata.refresh.interval.ms": -1,
                }
            )
        return self._admin


class _PortTaken(ServiceFailed):
    """Somebody else took a port between our look and the broker's start."""


def _classpath(jars: Iterable[str]) -> str:
    """The broker's jars, but with Spark's logging: the lock's own binding is a silent one."""
    said_by = sorted(
        str(path)
        for pattern in ("slf4j-api-*.jar", "log4j-slf4j2-impl-*.jar", "log4j-*.jar")
        for path in (locate_pyspark() / "jars").glob(pattern)
        if not path.name.startswith("log4j-1.2")
    )
    silent = {jar.filename for jar in broker_jars() if jar.artifact == "slf4j-nop"}
    return ":".join([*said_by, *(jar for jar in jars if Path(jar).name not in silent)])


def _new_cluster_id() -> str:
    """22 characters of a random id; a dash in front would be an option to Kafka's formatter."""
    while True:
        text = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        if not text.startswith("-"):
            return text
