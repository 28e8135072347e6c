"""Whether a connection, a source or a sink would work: real questions to real servers, in time.

Nothing is written anywhere. Every failure says which option is at fault and what to do; what
works is said too. The process that will run the queries should ask: another one may see other
networks and other secrets.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from catalog_migrate.connectors.files.client import files_directory
from catalog_migrate.connectors.findings import TookTooLong, failed, within
from catalog_migrate.connectors.kafka.probe import KafkaProbe
from catalog_migrate.connectors.options import section_of
from catalog_migrate.connectors.postgres.probe import (
    database_identity,
    postgres_session,
    server_findings,
    table_findings,
)
from catalog_migrate.connectors.resolved import Resolved
from catalog_migrate.connectors.ssh.tunnels import try_tunnel
from catalog_migrate.connectors.values import topics_of
from catalog_migrate.errors import ConnectionFailed, InvalidOptions
from catalog_migrate.model.findings import MISSING, Finding
from catalog_migrate.model.objects import Column, External


class Identity(msgspec.Struct, frozen=True):
    """Which upstream it is, whatever its address.

    ``cluster_id`` is Kafka's cluster id, PostgreSQL's ``system identifier/database oid``, or the
    real path of a directory; ``topic_ids`` maps the topics that are there to their ids. A topic
    that was dropped and created again has another id. ``open_records`` lie there behind the last
    stable offset, by topic, where committed transactions are read only.
    """

    connector: str
    cluster_id: str
    topic_ids: dict[str, str] = {}
    open_records: dict[str, int] = {}


def validate_connection(
    connector: str, resolved: Resolved, *, subject: str = "connection", timeout: float = 10.0,
) -> tuple[Finding, ...]:
    """What a connection's effective, resolved options lead to; ends within ``timeout`` plus 3 s.

    ``subject`` names it in the findings (``connection public.c``).
    """
    try:
        if connector == "KAFKA":
            with KafkaProbe(resolved, subject=subject, timeout=timeout) as probe:
                cluster, nodes = probe.cluster()
                bad = probe.unreachable(nodes)
            reached = f"connected to cluster {cluster}, {len(nodes)} brokers"
            return (Finding(subject, None, "ok", reached), *bad)
        if connector == "POSTGRES":
            with postgres_session(resolved, subject=subject, timeout=timeout) as session:
                return server_findings(session, subject=subject)
        if connector == "SCHEMA REGISTRY":
            from catalog_migrate.connectors.registry.client import SchemaRegistry

            return (SchemaRegistry(resolved, subject=subject, timeout=timeout).check(),)
        if connector == "SSH TUNNEL":
            return try_tunnel(resolved, subject=subject)
        return (_directory_finding(resolved, None, subject, timeout),)
    except ConnectionFailed as error:
        return _findings_of(error)


def validate_source(
    connector: str,
    resolved: Resolved,
    external: External,
    columns: Sequence[Column] = (),  # noqa: ARG001 - every item is asked about alike
    *,
    subject: str = "source",
    timeout: float = 10.0,
) -> tuple[Finding, ...]:
    """Whether a source's own access works: topics are there and readable, the path is."""
    section_of(connector, "source", where=subject)
    try:
        if connector == "KAFKA":
            names = topics_of(str(external.options["TOPIC"]))
            return _topic_findings(resolved, names, "READ", subject, timeout)
        sub = external.options.get("PATH")
        return (_directory_finding(resolved, None if sub is None else str(sub), subject, timeout),)
    except ConnectionFailed as error:
        return _findings_of(error)


def validate_sink(
    connector: str, resolved: Resolved, external: External, columns: Sequence[Column], *,
    subject: str = "sink", timeout: float = 10.0,
) -> tuple[Finding, ...]:
    """Whether a sink's own access works; ``columns`` are those that it writes.

    KAFKA: the topic is there and writable. POSTGRES: the server takes writes, the ledger is there
    or can be made, the table has the columns, takes their types, lets us insert and, with KEY,
    replace.
    """
    section_of(connector, "sink", where=subject)
    try:
        if connector == "KAFKA":
            names = topics_of(str(external.options["TOPIC"]))
            return _topic_findings(resolved, names, "WRITE", subject, timeout)
        with postgres_session(resolved, subject=subject, timeout=timeout) as session:
            server = server_findings(session, subject=subject, temporary=bool(external.key))
            table = str(external.options["TABLE"])
            return server + table_findings(session, table, columns, external.key, subject=subject)
    except ConnectionFailed as error:
        return _findings_of(error)


def identity(
    connector: str, resolved: Resolved, topics: Sequence[str] = (), *, subject: str = "connection",
    timeout: float = 10.0, reads: bool = False,
) -> Identity:
    """Which upstream answers now; topics that are not there are left out.

    ``reads``: open transactions in the topics are asked for too.
    Raises ConnectionFailed when nothing answers, or a topic may not be seen.
    """
    if connector == "KAFKA":
        with KafkaProbe(resolved, subject=subject, timeout=timeout) as probe:
            found = kafka_identity(probe, topics)
            waiting = _open_records(probe, found.topic_ids if reads else ())
            return msgspec.structs.replace(found, open_records=waiting)
    if connector == "POSTGRES":
        with postgres_session(resolved, subject=subject, timeout=timeout) as session:
            return Identity(connector, database_identity(session))
    finding = _directory_finding(resolved, None, subject, timeout)
    if not finding.ok:
        raise failed(finding)
    return Identity(connector, str(files_directory(resolved).resolve()))


class TopicAccess(msgspec.Struct, frozen=True):
    """What one item needs of a cluster: ``operation`` (READ, WRITE) on each of ``topics``."""

    subject: str
    topics: tuple[str, ...]
    operation: str


def kafka_access(
    resolved: Resolved, wanted: Sequence[TopicAccess], *, timeout: float = 10.0
) -> tuple[Identity | None, dict[str, tuple[Finding, ...]]]:
    """Who the cluster is and whether each item may do what it needs, by one client for all.

    Findings are by subject; the identity is None when nothing answers. A topic that may not be
    seen is a finding and has no id. Open transactions are asked for in the topics that are read.
    """
    try:
        with KafkaProbe(resolved, subject="connection", timeout=timeout) as probe:
            cluster, _ = probe.cluster()
            names = tuple(sorted({topic for each in wanted for topic in each.topics}))
            described = probe.topics(names) if names else {}
            ids = {
                topic: str(found.topic_id)
                for topic, found in described.items() if hasattr(found, "topic_id")
            }
            findings = {
                each.subject: tuple(
                    probe.topic_finding(topic, described[topic], each.operation, each.subject)
                    for topic in each.topics
                )
                for each in wanted
            }
            read = {topic for each in wanted if each.operation == "READ" for topic in each.topics}
            waiting = _open_records(probe, sorted(read & ids.keys()))
            return Identity("KAFKA", cluster, ids, waiting), findings
    except ConnectionFailed as error:
        return None, {each.subject: _findings_of(error) for each in wanted}


def _open_records(probe: KafkaProbe, topics: Collection[str]) -> dict[str, int]:
    """What lies behind the last stable offsets; nothing where that cannot be found out now."""
    with suppress(ConnectionFailed):  # partitions whose leader is changing
        return probe.open_records(list(topics)) if topics else {}
    return {}


def kafka_identity(probe: KafkaProbe, topics: Sequence[str]) -> Identity:
    """The same over a probe that is kept, for whoever asks again and again."""
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


def _topic_findings(
    resolved: Resolved, names: Sequence[str], operation: str, subject: str, timeout: float
) -> tuple[Finding, ...]:
    with KafkaProbe(resolved, subject=subject, timeout=timeout) as probe:
        described: Mapping[str, object] = probe.topics(names)
        return tuple(probe.topic_finding(name, described[name], operation) for name in names)


def _directory_finding(
    resolved: Resolved, sub: str | None, subject: str, timeout: float
) -> Finding:
    """Whether a directory is there and can be listed."""
    try:
        path = within(timeout, lambda: files_directory(resolved, sub))
        problem = within(timeout, lambda: _unreadable(path))
    except InvalidOptions as error:
        return Finding(subject, "PATH", "error", error.message, error.remedy)
    except TookTooLong:
        return Finding(
            subject, "PATH", "error", f"no answer from the file system within {timeout:.0f} s",
            "see to the server of that directory",
        )
    if problem is not None:
        return Finding(
            subject, "PATH", "error", f"{path} {problem}",
            "every process of the cluster must see it under this path, and may read it",
        )
    return Finding(subject, "PATH", "ok", f"{path} can be read")


def _unreadable(path: Path) -> str | None:
    if not path.exists():
        return "is not there"
    if not path.is_dir():
        return "is no directory"
    try:
        with os.scandir(path) as entries:
            next(entries, None)
    except PermissionError:
        return "may not be listed by this process"
    return None


def _findings_of(error: ConnectionFailed) -> tuple[Finding, ...]:
    return tuple(finding for finding in error.findings if isinstance(finding, Finding))
