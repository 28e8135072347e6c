"""A real Kafka: one KRaft node in a JVM of its own, with SCRAM, ACLs and TLS where asked for."""

from __future__ import annotations

import base64
import re
import signal
import subprocess
import time
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from catalog_migrate.engine.spark.jars import Progress, locate_pyspark
from catalog_migrate.engine.spark.java import check_java
from catalog_migrate.testing.services.broker_jars import broker_jars, ensure_broker_jars
from catalog_migrate.testing.services.certificates import make_certificate
from catalog_migrate.testing.services.kafka_properties import (
    LOGGING,
    REAUTHENTICATION,
    Ports,
    server_properties,
)
from catalog_migrate.testing.services.process import (
    Deadline,
    ServerProcess,
    ServiceFailed,
    free_ports,
)
from catalog_migrate.testing.services.records import Record, Row, consume, send

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient, DescribeClusterResult

_START_TIMEOUT = 60.0
_REQUEST = 10.0
_ATTEMPTS = 3
_FLAGS = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:+ExitOnOutOfMemoryError")
_BOUND = re.compile(r"Address already in use|BindException")
_MECHANISMS = ("SCRAM_SHA_512", "SCRAM_SHA_256")


class KafkaCluster:
    """A Kafka cluster of one node, started by its constructor.

    ``directory`` keeps its logs and certificates and must be empty or absent. ``users`` are names
    with passwords; each can log in by SCRAM-SHA-512, SCRAM-SHA-256 and PLAIN. ``acls`` turns on
    Kafka's authorizer: a topic without any ACL is open to everybody, one with ACLs only to whom
    they allow; the plain listener is the owner's and may do everything. ``tls`` adds listeners with
    a self-signed certificate. ``heap`` is the broker's in megabytes, ``reauthentication`` the time
    in seconds after which live connections authenticate again (so that a changed password bites).

    Raises :class:`~catalog_migrate.errors.PrerequisiteMissing` without Java or jars, and
    :class:`ServiceFailed` with the end of the broker's log when it does not answer in time.
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
        self.users = dict(users)
        self._first_users = dict(users)
        self._acls = acls
        self._heap = heap
        self._reauthentication = reauthentication
        self._java = check_java()
        self._classpath = _classpath(ensure_broker_jars(on_progress))
        self.directory.mkdir(parents=True, exist_ok=True)
        (self.directory / "log4j2.xml").write_text(LOGGING, encoding="utf-8")
        self._certificate = make_certificate(self.directory / "tls", self._java) if tls else None
        self.cluster_id = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        self._process: ServerProcess | None = None
        self._admin: AdminClient | None = None
        self._ports = Ports(*free_ports(5))
        self._write_properties()
        self._format()
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                self._start()
                break
            except _PortTaken:
                if attempt == _ATTEMPTS:
                    raise
                self._ports = replace(Ports(*free_ports(5)), controller=self._ports.controller)
                self._write_properties()
        for name, password in self.users.items():
            self._store_password(name, password)

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
    def certificate(self) -> Path:
        """PEM file with the certificate that clients must trust (only with ``tls``)."""
        if self._certificate is None:
            raise ValueError("this cluster was started without tls")
        return self._certificate.pem

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
        """Restart the same cluster on new addresses; nobody listens on the old ones any more."""
        self.stop()
        self._ports = replace(Ports(*free_ports(5)), controller=self._ports.controller)
        self._write_properties()
        self._start()

    def suspend(self) -> None:
        """Freeze the broker: it accepts connections and never answers."""
        if self._process is not None:
            self._process.send(signal.SIGSTOP)

    def wake(self) -> None:
        """Let a frozen broker go on."""
        if self._process is not None:
            self._process.send(signal.SIGCONT)

    def __enter__(self) -> KafkaCluster:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    # --- users -------------------------------------------------------------------------------

    def client(self, user: str | None = None) -> dict[str, Any]:
        """librdkafka's settings of a client that logs in as ``user`` by SCRAM-SHA-512.

        None is the owner, who comes by the plain listener. The password is the present one.
        """
        if user is None:
            return {"bootstrap.servers": self.plain_bootstrap, **_QUIET}
        return {
            "bootstrap.servers": self.bootstrap,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": user,
            "sasl.password": self.users[user],
            **_QUIET,
        }

    def spark_options(self, user: str | None = None) -> dict[str, str]:
        """Options of Spark's Kafka source and sink for a client that logs in as ``user``."""
        if user is None:
            return {"kafka.bootstrap.servers": self.plain_bootstrap}
        return {
            "kafka.bootstrap.servers": self.bootstrap,
            "kafka.security.protocol": "SASL_PLAINTEXT",
            "kafka.sasl.mechanism": "SCRAM-SHA-512",
            "kafka.sasl.jaas.config": (
                "org.apache.kafka.common.security.scram.ScramLoginModule required"
                f' username="{user}" password="{self.users[user]}";'
            ),
        }

    def set_password(self, user: str, password: str) -> None:
        """Give ``user`` (made when new) this SCRAM password; live connections notice within 5 s.

        Returns when a login with it succeeds. PLAIN keeps the password of the start.
        """
        self._store_password(user, password)
        self.users[user] = password

    def drop_user(self, user: str) -> None:
        """Take a user's SCRAM passwords away."""
        from confluent_kafka.admin import ScramMechanism, UserScramCredentialDeletion

        # the controller takes a user once per request, whatever the mechanism
        for name in _MECHANISMS:
            deletion = UserScramCredentialDeletion(user, getattr(ScramMechanism, name))
            self._client().alter_user_scram_credentials([deletion])[user].result(_REQUEST)
        self.users.pop(user, None)

    # --- topics ------------------------------------------------------------------------------

    def create_topic(
        self, name: str, partitions: int = 1, config: Mapping[str, str] | None = None
    ) -> None:
        """Create a topic and wait until the broker serves its partitions."""
        from confluent_kafka.admin import NewTopic

        topic = NewTopic(
            name, num_partitions=partitions, replication_factor=1, config=dict(config or {})
        )
        self._client().create_topics([topic])[name].result(_REQUEST)
        self._await_partitions(name, partitions)

    def delete_topic(self, name: str) -> None:
        """Delete a topic and wait until the broker no longer knows it."""
        admin = self._client()
        admin.delete_topics([name])[name].result(_REQUEST)
        deadline = Deadline(_REQUEST)
        while name in admin.list_topics(timeout=_REQUEST).topics:
            if deadline.passed:
                raise ServiceFailed(f"topic {name} is still there {_REQUEST:.0f} s after its end")
            time.sleep(0.02)

    def add_partitions(self, name: str, total: int) -> None:
        """Raise a topic's number of partitions to ``total``."""
        from confluent_kafka.admin import NewPartitions

        self._client().create_partitions([NewPartitions(name, total)])[name].result(_REQUEST)
        self._await_partitions(name, total)

    def topic_id(self, name: str) -> str:
        """The topic's id as Kafka writes it (22 characters); another one after a re-creation."""
        from confluent_kafka import TopicCollection

        answers = self._client().describe_topics(TopicCollection([name]))
        return str(answers[name].result(_REQUEST).topic_id)

    def topics(self) -> tuple[str, ...]:
        """Names of all topics, sorted, without Kafka's own."""
        names = self._client().list_topics(timeout=_REQUEST).topics
        return tuple(sorted(name for name in names if not name.startswith("__")))

    def watermarks(self, name: str) -> dict[int, tuple[int, int]]:
        """Partition -> (first offset that is still there, offset of the next record)."""
        from confluent_kafka import TopicPartition
        from confluent_kafka.admin import OffsetSpec

        admin = self._client()
        numbers = admin.list_topics(name, timeout=_REQUEST).topics[name].partitions
        bounds = []
        for spec in (OffsetSpec.earliest(), OffsetSpec.latest()):
            wanted = {TopicPartition(name, number): spec for number in numbers}
            answers = admin.list_offsets(wanted)
            bounds.append({at.partition: f.result(_REQUEST).offset for at, f in answers.items()})
        return {number: (bounds[0][number], bounds[1][number]) for number in sorted(numbers)}

    def delete_records(self, name: str, before: Mapping[int, int] | None = None) -> None:
        """Delete the records below an offset per partition; without ``before`` all of them."""
        from confluent_kafka import TopicPartition

        bounds = (
            {number: high for number, (_, high) in self.watermarks(name).items()}
            if before is None
            else before
        )
        wanted = [TopicPartition(name, number, offset) for number, offset in bounds.items()]
        for future in self._client().delete_records(wanted).values():
            future.result(_REQUEST)

    # --- records -----------------------------------------------------------------------------

    def produce(
        self,
        topic: str,
        rows: Iterable[Row],
        *,
        partition: int | None = None,
        user: str | None = None,
    ) -> int:
        """Send rows in their order, wait until the broker has them all, return their number.

        A row is the value alone or (key, value) or (key, value, headers). ``partition`` is where
        they go (None: by key). ``user`` sends them (None: the owner).
        """
        return send(self.client(user), topic, rows, partition=partition)

    def consume_all(
        self, topic: str, *, user: str | None = None, committed: bool = True
    ) -> list[Record]:
        """All records of a topic up to its present end, by partition and offset.

        ``committed`` leaves out the records of aborted and open transactions.
        """
        return consume(self.client(user), topic, committed=committed)

    # --- permissions -------------------------------------------------------------------------

    def allow(self, user: str, topic: str, *operations: str) -> None:
        """Allow ``user`` these operations (``READ``, ``WRITE``, ``DESCRIBE``, …; none: ``ALL``).

        From its first ACL on, a topic is closed to everybody who is not allowed.
        """
        self._add_acls(topic, [(f"User:{user}", op, "ALLOW") for op in operations or ("ALL",)])

    def deny(self, user: str, topic: str, *operations: str) -> None:
        """Deny ``user`` these operations (none: ``ALL``); everybody else keeps all of them."""
        entries = [(f"User:{user}", op, "DENY") for op in operations or ("ALL",)]
        self._add_acls(topic, [("User:*", "ALL", "ALLOW"), *entries])

    def revoke(self, topic: str) -> None:
        """Remove all ACLs of a topic: it is open to everybody again."""
        from confluent_kafka.admin import (
            AclBindingFilter,
            AclOperation,
            AclPermissionType,
            ResourcePatternType,
            ResourceType,
        )

        everything = AclBindingFilter(
            ResourceType.TOPIC,
            topic,
            ResourcePatternType.LITERAL,
            None,  # type: ignore[arg-type] # any; the annotation forgets it
            None,  # type: ignore[arg-type]
            AclOperation.ANY,
            AclPermissionType.ANY,
        )
        for future in self._client().delete_acls([everything]).values():
            future.result(_REQUEST)

    def _add_acls(self, topic: str, entries: Iterable[tuple[str, str, str]]) -> None:
        from confluent_kafka.admin import (
            AclBinding,
            AclOperation,
            AclPermissionType,
            ResourcePatternType,
            ResourceType,
        )

        if not self._acls:
            raise ValueError("this cluster was started without acls")
        bindings = [
            AclBinding(
                ResourceType.TOPIC,
                topic,
                ResourcePatternType.LITERAL,
                principal,
                "*",
                AclOperation[operation],
                AclPermissionType[permission],
            )
            for principal, operation, permission in entries
        ]
        for future in self._client().create_acls(bindings).values():
            future.result(_REQUEST)

    # --- inside ------------------------------------------------------------------------------

    def _write_properties(self) -> None:
        text = server_properties(
            self._ports,
            data=self.directory / "data",
            users=self._first_users,
            acls=self._acls,
            keystore=None if self._certificate is None else self._certificate.keystore,
            reauthentication=self._reauthentication,
        )
        (self.directory / "server.properties").write_text(text, encoding="utf-8")

    def _format(self) -> None:
        answer = subprocess.run(
            [
                *self._command("-Xmx128m"),
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

    def _command(self, heap: str) -> list[str]:
        logging = f"-Dlog4j2.configurationFile={self.directory / 'log4j2.xml'}"
        return [self._java, heap, *_FLAGS, logging, "-cp", self._classpath]

    def _start(self) -> None:
        log = self.directory / "broker.log"
        log.write_bytes(b"")
        self._process = ServerProcess(
            [
                *self._command(f"-Xmx{self._heap}m"),
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
                said = process.tail()
                kind = _PortTaken if _BOUND.search(said) else ServiceFailed
                raise kind(f"the Kafka broker ended while it started:\n{said}")
            try:
                answer: DescribeClusterResult = (
                    self._client().describe_cluster(request_timeout=1.0).result(1.5)
                )
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

    def _await_partitions(self, name: str, count: int) -> None:
        deadline = Deadline(_REQUEST)
        while not deadline.passed:
            known = self._client().list_topics(name, timeout=_REQUEST).topics.get(name)
            led = [] if known is None else [part.leader == 1 for part in known.partitions.values()]
            if len(led) == count and all(led):
                return
            time.sleep(0.02)
        raise ServiceFailed(f"the {count} partitions of {name} have no leader after {_REQUEST} s")

    def _store_password(self, user: str, password: str) -> None:
        from confluent_kafka.admin import (
            ScramCredentialInfo,
            ScramMechanism,
            UserScramCredentialUpsertion,
        )

        for name in _MECHANISMS:
            upsertion = UserScramCredentialUpsertion(
                user,
                ScramCredentialInfo(getattr(ScramMechanism, name), 4096),
                password.encode(),
            )
            self._client().alter_user_scram_credentials([upsertion])[user].result(_REQUEST)
        self._await_login(user, password)

    def _await_login(self, user: str, password: str) -> None:
        """Wait until the broker has taken up a password that the controller has stored."""
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import AdminClient

        settings = {**self.client(), "bootstrap.servers": self.bootstrap}
        settings |= {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": user,
            "sasl.password": password,
            "reconnect.backoff.ms": 20,
            "reconnect.backoff.max.ms": 100,
        }
        deadline = Deadline(_REQUEST)
        admin = AdminClient(settings)
        while not deadline.passed:
            try:
                admin.list_topics(timeout=1.0)
            except KafkaException:
                continue
            return
        raise ServiceFailed(f"the new password of {user} is not accepted after {_REQUEST:.0f} s")

    def _client(self) -> AdminClient:
        from confluent_kafka.admin import AdminClient

        if self._admin is None:
            self._admin = AdminClient(
                {
                    **self.client(),
                    "reconnect.backoff.ms": 20,
                    "reconnect.backoff.max.ms": 200,
                    "topic.metadata.refresh.interval.ms": -1,
                }
            )
        return self._admin


class _PortTaken(ServiceFailed):
    """Somebody else took a port between our look and the broker's start."""


_QUIET: Mapping[str, Any] = {"log_level": 0, "error_cb": lambda _error: None}


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
