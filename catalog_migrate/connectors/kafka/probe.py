"""Asking a Kafka cluster: whether it lets us in, what its ids are, and what we may do there.

librdkafka tells why nothing works only through its error callback, in words; the table below maps
them to the option that is wrong.
"""

from __future__ import annotations

import logging
import socket
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from catalog_migrate.connectors.base import Identity
from catalog_migrate.connectors.findings import code_of, failed
from catalog_migrate.connectors.kafka.client import librdkafka_config
from catalog_migrate.connectors.kafka.token_endpoint import token_finding
from catalog_migrate.connectors.options import option_of
from catalog_migrate.connectors.resolved import Resolved
from catalog_migrate.connectors.secrets import Redactor
from catalog_migrate.connectors.ssh.tunnels import OPTION
from catalog_migrate.connectors.values import addresses_of
from catalog_migrate.errors import ConnectionFailed, PrerequisiteMissing
from catalog_migrate.model.findings import FORBIDDEN, MISSING, Finding
from catalog_migrate.retry import retry, until

if TYPE_CHECKING:
    from confluent_kafka import KafkaError


Result = TypeVar("Result")

_SETTLED_SECONDS = 1.0
"""How long all brokers must be down before it is believed."""
_NODE_SECONDS = 3.0
_LOCAL_NAMES = ("localhost", "127.0.0.1")
"""Where the local end of a tunnel is."""
_KEPT_LINES = 50
"""The reconnects repeat themselves; the first lines tell."""

_REFUSED = {
    "OAUTHBEARER": (
        "OAUTH SCOPE",
        "the broker does not take the endpoint's tokens: check the audience that OAUTH SCOPE asks "
        "for, and that the broker knows this issuer; its log has the reason",
    ),
    "AWS_MSK_IAM": (
        "AWS REGION",
        "check the credentials that AWS's clients find here, AWS REGION and AWS ROLE, and that a "
        "policy allows kafka-cluster:Connect",
    ),
    "GSSAPI": (
        "KERBEROS PRINCIPAL", "check KERBEROS PRINCIPAL and KERBEROS KEYTAB, by kinit -kt",
    ),
}  # fmt: skip
"""The option at fault and what to do where a login without a password is refused."""

_CAUSES: tuple[tuple[tuple[str, ...], str, str], ...] = (
    (
        ("no provider for sasl mechanism",),
        "SASL MECHANISMS",
        "the installed librdkafka has no such login: build confluent-kafka against one with "
        "libsasl2 (pip install --no-binary confluent-kafka confluent-kafka)",
    ),
    (
        ("sasl oauthbearer token",),
        "OAUTH TOKEN ENDPOINT",
        "librdkafka gets no token where this process does: see what it says of the endpoint",
    ),
    (
        ("unsupported sasl mechanism",),
        "SASL MECHANISMS",
        "take one of those that the broker names",
    ),
    (
        ("sasl state", "illegal sasl", "request not valid in current sasl"),
        "SECURITY PROTOCOL",
        "this listener wants no login: PLAINTEXT or SSL, or take the port of another listener",
    ),
    (
        ("authentication failed", "sasl authentication error", "invalid credentials"),
        "SASL PASSWORD",
        "check SASL USERNAME, SASL PASSWORD and SASL MECHANISMS, and that the user exists",
    ),
    (
        ("hostname mismatch", "ip address mismatch", "hostname verification"),
        "BROKER",
        "write the name that the broker's certificate is for",
    ),
    (
        ("certificate verify failed", "unable to get local issuer", "self-signed"),
        "SSL CERTIFICATE AUTHORITY",
        "give the certificate that signed the broker's",
    ),
    (
        ("ssl.certificate", "ssl.key", "bad decrypt", "private key", "key values mismatch"),
        "SSL KEY",
        "check that SSL KEY belongs to SSL CERTIFICATE, and SSL KEY PASSWORD",
    ),
    (
        ("certificate required", "peer did not return a certificate", "bad certificate"),
        "SSL CERTIFICATE",
        "the broker asks for a certificate: give SSL CERTIFICATE and SSL KEY",
    ),
    (
        ("ssl.ca", "no start line", "pem lib"),
        "SSL CERTIFICATE AUTHORITY",
        "it must be certificates in PEM",
    ),
    (
        ("plaintext broker", "wrong version number", "ssl handshake failed: disconnected",
         "packet length too long"),
        "SECURITY PROTOCOL",
        "this listener speaks no TLS: PLAINTEXT or SASL_PLAINTEXT, or take the port of another",
    ),
    (
        ("verify that security.protocol", "might require", "invalid response size",
         "closed by peer"),
        "SECURITY PROTOCOL",
        "this listener wants TLS or a login: SASL_PLAINTEXT, SSL or SASL_SSL; or it is no Kafka",
    ),
    (
        ("failed to resolve", "name or service not known", "no such host"),
        "BROKER",
        "check the host's name, from the machine where this runs",
    ),
    (
        ("connection refused",),
        "BROKER",
        "check the port, and that the broker runs",
    ),
    (
        ("timed out",),
        "BROKER",
        "check host, port and firewall, and that the broker is well",
    ),
)  # fmt: skip
"""(texts in librdkafka's messages, lower case; the option at fault; what to do), first hit wins."""


class KafkaProbe:
    """A client of one cluster for questions; use it as a context, or keep it and close it.

    ``subject`` names the connection in findings, ``timeout`` (seconds) bounds every question.
    """

    def __init__(
        self, resolved: Resolved, *, subject: str = "connection", timeout: float = 10.0
    ) -> None:
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import AdminClient

        self._subject = subject
        self._timeout = timeout
        self._redactor = Redactor.of(resolved)
        self._committed = option_of(resolved, "KAFKA", "kafka.isolation.level") == "read_committed"
        self._address = option_of(resolved, "KAFKA", "BROKER") or ""
        self._tunnel = resolved.get(OPTION)
        self._resolved = resolved
        self._mechanism = option_of(resolved, "KAFKA", "SASL MECHANISMS")
        self._errors: list[str] = []
        self._down_since: float | None = None
        # librdkafka waits 20 s for an endpoint that does not answer, also to be closed meanwhile
        self._require_token()
        try:
            config = {**librdkafka_config(resolved, subject=subject), "error_cb": self._note}
        except PrerequisiteMissing as error:
            raise failed(
                Finding(subject, "SASL MECHANISMS", "error", error.message, error.remedy)
            ) from None
        # Some reasons are in its log only, which would go to standard error.
        log = logging.Logger("librdkafka", logging.INFO)
        log.addHandler(_Lines(self._errors))
        try:
            self._admin: Any = AdminClient(config, logger=log)
        except KafkaException as error:
            raise failed(self.diagnose(error.args[0].str())) from None

    def __enter__(self) -> KafkaProbe:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let the client go; its threads end with it."""
        self._admin = None

    def cluster(self) -> tuple[str, tuple[tuple[int, str, int], ...]]:
        """The cluster's id and its brokers as (id, host, port).

        Raises ConnectionFailed, also for brokers behind a tunnel that say they are elsewhere.
        """
        answer = self._ask(lambda seconds: self._admin.describe_cluster(request_timeout=seconds))
        nodes = tuple((node.id, node.host, node.port) for node in answer.nodes)
        self._require_in_tunnel(nodes)
        return answer.cluster_id, nodes

    def _require_in_tunnel(self, nodes: Iterable[tuple[int, str, int]]) -> None:
        """ConnectionFailed where clients would be led past the tunnel, or to where none is."""
        if self._tunnel is None:
            return
        ports = {port for _, port in addresses_of(self._address)}
        past = [
            f"broker {number} says it is at {host}:{port}" for number, host, port in nodes
            if host not in _LOCAL_NAMES or port not in ports
        ]
        if past:
            listed = " or ".join(f"localhost:{port}" for port in sorted(ports))
            raise failed(Finding(
                self._subject, OPTION, "error",
                f"{', '.join(past)}, where no client comes through a tunnel",
                f"give each broker a listener of its own whose advertised.listeners is {listed}, "
                "and name all of them in BROKER",
            ))

    def topics(self, names: Sequence[str]) -> dict[str, Any]:
        """Each topic's description with what we may do there, or its KafkaError."""
        from confluent_kafka import KafkaException, TopicCollection

        found: dict[str, Any] = {}
        collection = TopicCollection(list(names))
        asked: dict[str, Future[Any]] = {}

        def describe(seconds: float) -> Future[Any]:
            asked.update(
                self._admin.describe_topics(
                    collection, include_authorized_operations=True, request_timeout=seconds
                )
            )
            return next(iter(asked.values()))

        for name in names:
            try:
                found[name] = self._ask(
                    describe if not asked else lambda _seconds, name=name: asked[name],
                    expected=(_TOPIC_UNKNOWN, _TOPIC_FORBIDDEN),
                )
            except KafkaException as error:
                found[name] = error.args[0]
        return found

    def bounds(self, topics: Sequence[str]) -> dict[tuple[str, int], tuple[int, int]]:
        """Per (topic, partition) the first offset that is there and the one after the last.

        In two questions for all of them. Where the connection reads committed transactions only,
        the last is the last stable offset: nothing is read beyond it. Raises ConnectionFailed, also
        for a topic that is not there.
        """
        from confluent_kafka.admin import OffsetSpec

        places = self._places(topics)
        low = self._offsets(places, OffsetSpec.earliest())
        high = self._offsets(places, OffsetSpec.latest())
        return {place: (low[place], high[place]) for place in places}

    def open_records(self, topics: Sequence[str]) -> dict[str, int]:
        """Offsets between the last stable offset and the high watermark, by topic.

        They are of transactions that are open, or lie behind such ones; a reader of committed
        transactions waits for their end. Raises as :meth:`bounds` does.
        """
        from confluent_kafka.admin import OffsetSpec

        if not self._committed:
            return {}
        places = self._places(topics)
        stable = self._offsets(places, OffsetSpec.latest())
        high = self._offsets(places, OffsetSpec.latest(), committed=False)
        found: dict[str, int] = {}
        for place in places:
            found[place[0]] = found.get(place[0], 0) + max(0, high[place] - stable[place])
        return found

    def _places(self, topics: Sequence[str]) -> list[tuple[str, int]]:
        """Every partition of topics; ConnectionFailed for one that is not there."""
        described = self.topics(topics) if topics else {}
        places: list[tuple[str, int]] = []
        for topic, each in described.items():
            if not hasattr(each, "partitions"):
                raise failed(self.topic_finding(topic, each, "READ"))
            places += [(topic, partition.id) for partition in each.partitions]
        return places

    def since(
        self, moment: int, places: Iterable[tuple[str, int]]
    ) -> dict[tuple[str, int], int | None]:
        """Per (topic, partition) the first record at or after ``moment`` (ms), None for none."""
        from confluent_kafka.admin import OffsetSpec

        found = self._offsets(list(places), OffsetSpec.for_timestamp(moment))
        return {place: offset if offset >= 0 else None for place, offset in found.items()}

    def keeps_every_record(self, topics: Sequence[str]) -> bool:
        """Whether no topic is compacted; False too where its configuration may not be read."""
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import ConfigResource, ResourceType

        asked = self._admin.describe_configs(
            [ConfigResource(ResourceType.TOPIC, topic) for topic in topics],
            request_timeout=self._timeout,
        )
        try:
            answers = [
                self._ask(lambda _seconds, f=future: f, expected=(_TOPIC_FORBIDDEN,))
                for future in asked.values()
            ]
        except KafkaException:
            return False
        return all(answer["cleanup.policy"].value == "delete" for answer in answers)

    def _offsets(
        self, places: Sequence[tuple[str, int]], spec: Any, *, committed: bool | None = None
    ) -> dict[tuple[str, int], int]:
        """One answer a partition, all asked at once; -1 where there is no such record.

        Partitions whose leader is just changing are asked again, as long as there is time.
        """
        from confluent_kafka import IsolationLevel, KafkaException, TopicPartition

        isolation = (
            IsolationLevel.READ_COMMITTED
            if (self._committed if committed is None else committed)
            else IsolationLevel.READ_UNCOMMITTED
        )
        found: dict[tuple[str, int], int] = {}

        def ask() -> None:
            left = [TopicPartition(*place) for place in places if place not in found]
            if not left:
                return
            asked = self._admin.list_offsets(
                dict.fromkeys(left, spec), isolation_level=isolation,
                request_timeout=self._timeout,
            )
            passing = None
            for at, future in asked.items():
                try:
                    answer = self._ask(lambda _seconds, f=future: f, expected=_LEADER_CHANGES)
                except KafkaException as error:
                    passing = error
                else:
                    found[at.topic, at.partition] = answer.offset
            if passing is not None:
                raise passing

        try:
            retry(ask, KafkaException, until(self._timeout, _LEADER_SECONDS))
        except KafkaException as error:
            raise failed(self.diagnose(error.args[0].str())) from None
        return found

    def topic_finding(
        self, topic: str, described: Any, operation: str, subject: str | None = None
    ) -> Finding:
        """Whether a topic is there and lets us do ``operation`` (READ, WRITE)."""

        def bad(message: str, remedy: str | None = None, code: str = "") -> Finding:
            return Finding(subject or self._subject, "TOPIC", "error", message, remedy, code=code)

        if not hasattr(described, "partitions"):
            code = described.code()
            if code == _TOPIC_UNKNOWN:
                return bad(
                    f"there is no topic {topic}", "create it, or write another TOPIC", code=MISSING
                )
            if code == _TOPIC_FORBIDDEN:
                return bad(
                    f"this user may not see topic {topic}",
                    f"allow DESCRIBE and {operation} on it to the user of SASL USERNAME",
                    code=FORBIDDEN,
                )
            return bad(self._redactor.scrub(described.str()), code=code_of(described.str()))
        allowed = {each.name for each in described.authorized_operations or ()}
        if allowed and not allowed & {operation, "ALL"}:
            return bad(
                f"this user may not {operation} topic {topic}",
                f"allow {operation} on it to the user of SASL USERNAME", code=FORBIDDEN,
            )
        headless = [part.id for part in described.partitions if part.leader is None]
        if headless:
            return bad(
                f"topic {topic} has partitions without a leader: {headless}",
                "check the brokers that hold them",
            )
        return Finding(
            subject or self._subject, "TOPIC", "ok",
            f"topic {topic} has {len(described.partitions)} partitions and allows {operation}",
        )

    def unreachable(self, nodes: Iterable[tuple[int, str, int]]) -> tuple[Finding, ...]:
        """A finding for each broker whose advertised address takes no connection from here."""
        listed = tuple(nodes)
        with ThreadPoolExecutor(max_workers=max(1, min(16, len(listed)))) as pool:
            answers = list(pool.map(lambda node: _connects(node[1], node[2]), listed))
        return tuple(
            Finding(
                self._subject, "BROKER", "error",
                f"broker {number} says it is at {host}:{port}, which takes no connection from here",
                "set advertised.listeners on the broker to an address that clients can reach",
            )
            for (number, host, port), reached in zip(listed, answers, strict=True)
            if not reached
        )

    def diagnose(self, last: str = "") -> Finding:
        """What the errors of the client so far come down to."""
        try:
            self._require_token()
        except ConnectionFailed as error:
            return error.findings[0]  # type: ignore[no-any-return]
        texts = [*self._errors, last] if last else self._errors
        refused = next((text for text in texts if "authentication" in text.lower()), None)
        login = _REFUSED.get(self._mechanism or "")
        if refused is not None and login is not None and "unsupported" not in refused.lower():
            option, remedy = login
            return Finding(self._subject, option, "error", self._say(refused), remedy)
        for words, option, remedy in _CAUSES:
            for text in texts:
                if any(word in text.lower() for word in words):
                    return Finding(self._subject, option, "error", self._say(text), remedy)
        open_ = [
            f"{host}:{port}" for host, port in addresses_of(self._address) if _connects(host, port)
        ]
        if open_ and self._down_since is not None:
            return Finding(
                self._subject, "SECURITY PROTOCOL", "error",
                f"{', '.join(open_)} takes the connection and hangs up",
                "this listener wants TLS or a login, or is no Kafka: SASL_PLAINTEXT, SSL, SASL_SSL",
            )
        said = f" ({self._say(texts[-1])})" if texts else ""
        return Finding(
            self._subject, "BROKER", "error", f"no answer from {self._address}{said}",
            "check host, port, firewall and SECURITY PROTOCOL, and that the broker is well",
        )

    def _require_token(self) -> None:
        """ConnectionFailed where a login by token gets none."""
        if self._mechanism == "OAUTHBEARER":
            finding = token_finding(self._resolved, subject=self._subject)
            if not finding.ok:
                raise failed(finding)

    def _say(self, text: str) -> str:
        """librdkafka's words without its internals."""
        plain = text.split("]: ")[-1].replace("sasl_plaintext://", "").replace("sasl_ssl://", "")
        return self._redactor.scrub(plain.replace("ssl://", "").strip())

    def _note(self, error: KafkaError) -> None:
        from confluent_kafka import KafkaError

        if error.code() == KafkaError._ALL_BROKERS_DOWN:
            self._down_since = self._down_since or time.monotonic()
            return
        self._errors.append(error.str())

    def _ask(self, start: Any, expected: tuple[int, ...] = ()) -> Any:
        """Start a question and wait for its answer, serving the error callback meanwhile.

        A KafkaException with a code of ``expected`` goes through; everything else becomes
        ConnectionFailed, early when the login is refused or nothing is reachable.
        """
        from confluent_kafka import KafkaException

        self._errors.clear()
        self._down_since = None
        begun = time.monotonic()
        future: Future[Any] = start(self._timeout)
        while not future.done():
            wait((future,), timeout=0.05)  # poll alone would sleep on after the answer
            self._admin.poll(0)
            now = time.monotonic()
            settled = self._down_since is not None and now - self._down_since > _SETTLED_SECONDS
            if settled or self._is_refused() or now - begun > self._timeout:
                raise failed(self.diagnose())
        try:
            return future.result()
        except KafkaException as error:
            if error.args[0].code() in expected:
                raise
            raise failed(self.diagnose(error.args[0].str())) from None

    def _is_refused(self) -> bool:
        """Whether an error came that waiting does not heal."""
        return any(word in text.lower() for word in _FINAL for text in self._errors)


class _Lines(logging.Handler):
    """Keeps what librdkafka logs, as far as it is new."""

    def __init__(self, lines: list[str]) -> None:
        super().__init__()
        self._lines = lines

    def emit(self, record: logging.LogRecord) -> None:
        if len(self._lines) < _KEPT_LINES:
            self._lines.append(record.getMessage())


_FINAL = ("authentication", "failed to acquire sasl oauthbearer token")


def kafka_identity(probe: KafkaProbe, topics: Sequence[str]) -> Identity:
    """Return who answers over a probe that is kept; topics that are missing are left out."""
    cluster, _ = probe.cluster()
    described = probe.topics(topics) if topics else {}
    ids: dict[str, str] = {}
    for topic, description in described.items():
        if hasattr(description, "topic_id"):
            ids[topic] = str(description.topic_id)
            continue
        finding = probe.topic_finding(topic, description, "READ")
        if finding.code != MISSING:
            raise failed(finding)
    return Identity("KAFKA", cluster, ids)


def _connects(host: str, port: int) -> bool:
    try:
        with socket.create_connection((host, port), timeout=_NODE_SECONDS):
            return True
    except OSError:
        return False


_TOPIC_UNKNOWN = 3
"""KafkaError.UNKNOWN_TOPIC_OR_PART, a number of Kafka's protocol."""
_LEADER_CHANGES = (6, 74, 75)
"""KafkaError.NOT_LEADER_FOR_PARTITION, FENCED_LEADER_EPOCH and UNKNOWN_LEADER_EPOCH: the leader is
changing, or one side has not heard of it yet."""
_LEADER_SECONDS = 0.1
_TOPIC_FORBIDDEN = 29
"""KafkaError.TOPIC_AUTHORIZATION_FAILED."""
