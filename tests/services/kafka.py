"""A real Kafka: one KRaft node in a JVM of its own, with SCRAM, ACLs and TLS where asked for."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from catalog_migrate.engine.spark.jars import Progress
from tests.services.broker import QUIET, Broker
from tests.services.feed import Feed, json_row
from tests.services.kafka_properties import REAUTHENTICATION
from tests.services.process import Deadline, ServiceFailed
from tests.services.records import Record, Row, consume, send

if TYPE_CHECKING:
    from confluent_kafka.admin import AclBinding, AclBindingFilter

_REQUEST = 60.0
_MECHANISMS = ("SCRAM_SHA_512", "SCRAM_SHA_256")


class KafkaCluster(Broker):
    """A Kafka cluster of one node, started by its constructor.

    ``directory`` keeps its logs and certificates and must be empty or absent. ``users`` are names
    with passwords; each can log in by SCRAM-SHA-512, SCRAM-SHA-256 and PLAIN. ``acls`` turns on
    Kafka's authorizer: a topic without any ACL is open to everybody, one with ACLs only to whom
    they allow; the plain listener is the owner's and may do everything. ``tls`` adds two listeners
    with a self-signed certificate, one with a login and one without. ``heap`` is the broker's in
    megabytes, ``reauthentication`` the time in seconds after which live connections authenticate
    again (so that a changed password bites).

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
        self.users = dict(users)
        super().__init__(
            directory,
            users=users,
            acls=acls,
            tls=tls,
            heap=heap,
            reauthentication=reauthentication,
            on_progress=on_progress,
        )
        try:
            for name, password in users.items():
                self._store_password(name, password)
        except BaseException:
            self.kill()
            raise

    # --- users -------------------------------------------------------------------------------

    def client(self, user: str | None = None) -> dict[str, Any]:
        """librdkafka's settings of a client that logs in as ``user`` by SCRAM-SHA-512.

        None is the owner, who comes by the plain listener. The password is the present one.
        """
        if user is None:
            return self._owner()
        return {
            "bootstrap.servers": self.bootstrap,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": user,
            "sasl.password": self.users[user],
            **QUIET,
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

    @contextmanager
    def feed(
        self, topic: str, *, rate: float = 50.0, row: Callable[[int], Row] = json_row
    ) -> Iterator[Feed]:
        """Keep writing rows 0, 1, 2, … at ``rate`` per second, each once, until the block ends.

        The owner writes them, so no password stops it; a stopped broker's rows wait for its
        return, and :meth:`move` takes the feed along. On leaving, all rows are in the topic.
        """
        feed = Feed(self._owner, topic, rate=rate, row=row)
        self._feeds.append(feed)
        try:
            with feed:
                yield feed
        finally:
            self._feeds.remove(feed)

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
        for future in self._client().delete_acls([_acls_of(topic)]).values():
            future.result(_REQUEST)
        self._await_acls(topic, lambda standing: not standing)

    def _add_acls(self, topic: str, entries: Iterable[tuple[str, str, str]]) -> None:
        from confluent_kafka.admin import (
            AclBinding,
            AclOperation,
            AclPermissionType,
            ResourcePatternType,
            ResourceType,
        )

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
        self._await_acls(topic, lambda standing: set(bindings) <= set(standing))

    def _await_acls(self, topic: str, there: Callable[[Sequence[AclBinding]], bool]) -> None:
        """The controller answers before the broker that asks for rights has heard of a change."""
        deadline = Deadline(_REQUEST)
        while not deadline.passed:
            if there(self._client().describe_acls(_acls_of(topic)).result(_REQUEST)):
                return
            time.sleep(0.05)
        raise ServiceFailed(
            f"the broker does not know the ACLs of {topic}", remedy="read the broker's log"
        )

    # --- inside ------------------------------------------------------------------------------

    def _await_partitions(self, name: str, count: int) -> None:
        """The broker names itself the leader a moment before it answers as one."""
        deadline = Deadline(_REQUEST)
        while not deadline.passed:
            known = self._client().list_topics(name, timeout=_REQUEST).topics.get(name)
            led = [] if known is None else [part.leader == 1 for part in known.partitions.values()]
            if len(led) == count and all(led) and self._answers(name):
                return
            time.sleep(0.02)
        raise ServiceFailed(f"the {count} partitions of {name} have no leader after {_REQUEST} s")

    def _answers(self, name: str) -> bool:
        from confluent_kafka import KafkaError, KafkaException

        try:
            self.watermarks(name)
        except KafkaException as error:
            if error.args[0].code() not in (
                KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.LEADER_NOT_AVAILABLE,
                KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.UNKNOWN_LEADER_EPOCH,
                KafkaError.FENCED_LEADER_EPOCH,
            ):
                raise
            return False
        return True

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


def _acls_of(topic: str) -> AclBindingFilter:
    """Everything that is said of a topic."""
    from confluent_kafka.admin import (
        AclBindingFilter,
        AclOperation,
        AclPermissionType,
        ResourcePatternType,
        ResourceType,
    )

    return AclBindingFilter(
        ResourceType.TOPIC,
        topic,
        ResourcePatternType.LITERAL,
        None,  # type: ignore[arg-type] # any; the annotation forgets it
        None,  # type: ignore[arg-type]
        AclOperation.ANY,
        AclPermissionType.ANY,
    )
