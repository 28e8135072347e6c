"""Validation of a connection with its dependents, and probes of queries, one or all of them.

Validation runs before a commit, on definitions that may not be committed yet; a probe runs when a
query was started, because an idle sink on a dead broker makes progress and shows no error.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import Future
from types import TracebackType

from catalog_migrate.catalog.state import State
from catalog_migrate.connectors.base import Access, find_connector
from catalog_migrate.connectors.options import option_of, replaceable_options
from catalog_migrate.connectors.query import QuerySpec
from catalog_migrate.connectors.secrets import Redactor
from catalog_migrate.errors import (
    CatalogMigrateError,
    ConnectionFailed,
    InvalidOptions,
    UpstreamChanged,
    ValidationFailed,
)
from catalog_migrate.model.findings import MISSING, Finding, findings_of
from catalog_migrate.sql import statements as st
from catalog_migrate.streams.catalog import dependencies
from catalog_migrate.streams.catalog.query_spec import resolved_connection, spec_of
from catalog_migrate.streams.catalog.upstream_tables import apply_discovery
from catalog_migrate.streams.runtime.ports import Ports, Threads
from catalog_migrate.streams.upstreams.upstream import (
    Upstream,
    Upstreams,
    require_same_cluster_and_topics,
    topics_of_query,
)


def validate(
    state: State, target: str, dependents: Sequence[str], *, ports: Ports, timeout: float = 10.0,
) -> list[Finding]:
    """Probe the connections at and below ``target``, and each dependent's own access.

    Everything at once in threads; the answers in the order connections, then dependents. Names
    and options only, never a secret's value.
    """
    with ports.threads.pool(1, "validate") as pool:
        queries = pool.submit(
            probe_queries, state, dependents, ports=ports, timeout=timeout
        )
        verdicts = probe_connections(
            state, connections_using(state, target), ports=ports, timeout=timeout
        )
        return [*verdicts, *queries.result()[0]]


def probe_connections(
    state: State, item_ids: Sequence[str] | None = None, *, ports: Ports, timeout: float = 10.0
) -> list[Finding]:
    """Whether connections (by default all of a catalog) answer, at least one verdict for each."""
    if item_ids is None:
        item_ids = [
            item_id for item_id, item in sorted(state.items.items())
            if item.definition.kind == "connection"
        ]
    with ports.threads.pool(16, "probe") as pool:
        asked = [
            pool.submit(_connection, state, item_id, ports, timeout) for item_id in item_ids
        ]
        return [verdict for answer in asked for verdict in answer.result()]


def with_upstream(state: State, statement: st.CreateSource, *, ports: Ports) -> st.CreateSource:
    """A statement of a POSTGRES source with what the server says of its tables; else as it is.

    Raises ValidationFailed with all that is wrong where the server does not answer or has no such
    table, UnknownItem for the connection, UnresolvedSecret.
    """
    external = statement.external
    if not external.tables or external.connection is None:
        return statement
    if statement.if_not_exists and dependencies.lookup(state, "source", statement.name):
        return statement
    connection = dependencies.find(state, "connection", external.connection)
    resolved = resolved_connection(state, connection.item_id, resolve=ports.resolve)
    names = [table.postgres_name for table in external.tables]
    publication = str(external.options.get("PUBLICATION", ""))
    subject = f"source {statement.name}, {connection.text}"
    try:
        found = ports.databases.tables(resolved, names, publication=publication, subject=subject)
    except ConnectionFailed as error:
        slot = external.options.get("SLOT", "catalog_migrate_new")
        findings = ports.databases.preflight(
            resolved, external, names, slot=str(slot), subject=subject
        )
        bad = [each for each in findings or error.findings if not each.ok]
        raise ValidationFailed(
            f"{statement.name} was refused by validation, nothing was changed",
            findings=bad or findings_of(error, subject), remedy="fix what is named",
        ) from None
    return apply_discovery(statement, found)


def connections_using(state: State, target: str) -> tuple[str, ...]:
    """Return the connections at and below a connection or secret, by number of id."""
    found = []
    for item_id, item in state.items.items():
        if item.definition.kind == "connection" and target in dependencies.stands_on(
            state, item_id
        ):
            found.append(item_id)
    return tuple(sorted(found, key=lambda each: int(each[1:])))


def probe_queries(
    state: State, item_ids: Sequence[str], *, ports: Ports,
    timeout: float = 10.0,
) -> tuple[list[Finding], dict[str, Upstream]]:
    """Return whether each query's own access works now, and whom it reaches.

    Queries on one Kafka connection share a client, see :func:`share_clients`. Verdicts are in the
    order of ``item_ids``, at least one for each; an upstream that did not answer is left out.
    """
    verdicts: dict[str, list[Finding]] = {}
    found: dict[str, Upstream] = {}
    specs: dict[str, QuerySpec] = {}
    for item_id in item_ids:
        try:
            specs[item_id] = spec_of(state, item_id, resolve=ports.resolve)
        except CatalogMigrateError as error:
            verdicts[item_id] = [refusal(state, item_id, error)]
    shared = share_clients(state, list(specs.values()))
    with ports.threads.pool(16, "probe") as pool:
        schemas = {
            item_id: pool.submit(ports.upstreams.check_schemas, spec, timeout=timeout)
            for item_id, spec in specs.items() if spec.registry is not None
        }
        groups = [
            pool.submit(ask_together, group, ports.upstreams, timeout) for group in shared
        ]
        for group in groups:
            for item_id, (findings, upstream, whole) in group.result().items():
                if item_id in schemas:
                    findings = (*findings, *schemas[item_id].result())
                verdicts[item_id] = _judged(
                    state, specs[item_id], findings, upstream, whole=whole
                )
                if upstream is not None and whole:
                    found[item_id] = upstream
    return [verdict for item_id in item_ids for verdict in verdicts[item_id]], found


def _shares_client(spec: QuerySpec) -> bool:
    return find_connector(spec.external.connector).shares_client


def share_clients(state: State, specs: Sequence[QuerySpec]) -> list[list[QuerySpec]]:
    """Group queries by what one client can ask for: those on one connection, with the same options
    of their own and the same values of what a query may put in the place of its connection's. One
    whose connector shares no client is a group of its own."""
    groups: dict[object, list[QuerySpec]] = {}
    for spec in specs:
        if not _shares_client(spec):
            groups[spec.item_id] = [spec]
            continue
        own = tuple(sorted(spec.external.overrides.items(), key=lambda option: option[0]))
        replaced = tuple(
            option_of(spec.connection, spec.external.connector or "", name)
            for name in replaceable_options(spec.external.connector or "")
        )
        connection = state.items[spec.item_id].links["connection"]
        groups.setdefault((connection, own, replaced), []).append(spec)
    return list(groups.values())


Answered = tuple[tuple[Finding, ...], Upstream | None, bool]
"""Findings, who answered (None: nobody), and whether all of its topics are known."""


def ask_together(
    specs: Sequence[QuerySpec], upstreams: Upstreams, timeout: float = 10.0
) -> dict[str, Answered]:
    """Ask for the queries of one group of :func:`share_clients`; the answers by item id."""
    if not _shares_client(specs[0]):
        return _alone(specs[0], upstreams, timeout)
    wanted = [
        Access(
            spec.item_id, topics_of_query(spec), "READ" if spec.kind == "source" else "WRITE"
        )
        for spec in specs
    ]
    identity, findings = upstreams.access(
        specs[0].external.connector or "", specs[0].connection, wanted, timeout=timeout
    )
    answers: dict[str, Answered] = {}
    for spec in specs:
        if identity is None:
            answers[spec.item_id] = findings[spec.item_id], None, False
            continue
        topics = topics_of_query(spec)
        seen = {topic: identity.topic_ids[topic] for topic in topics if topic in identity.topic_ids}
        waiting = sum(
            identity.open_records.get(topic, 0) for topic in topics if spec.kind == "source"
        )
        # a topic that may not be seen is not gone: whoever starts the query asks for itself
        answers[spec.item_id] = (
            findings[spec.item_id], Upstream(identity.cluster_id, seen, waiting),
            len(seen) == len(topics),
        )
    return answers


def _alone(spec: QuerySpec, upstreams: Upstreams, timeout: float) -> dict[str, Answered]:
    """A query that shares nothing."""
    findings = upstreams.check_query(spec, timeout=timeout)
    upstream: Upstream | None = None
    whole = all(finding.ok for finding in findings)
    if all(finding.ok or finding.code == MISSING for finding in findings):
        try:
            upstream = upstreams.identify(spec)
        except CatalogMigrateError as error:
            findings = (*findings, *findings_of(error, ""))
    return {spec.item_id: (findings, upstream, whole and upstream is not None)}


def _judged(
    state: State, spec: QuerySpec, findings: Sequence[Finding], upstream: Upstream | None, *,
    whole: bool,
) -> list[Finding]:
    """Findings as verdicts, and whether the upstream is the one that positions belong to."""
    name = f"{spec.kind} {spec.name}"
    well = Finding(name, None, "ok", "there and accessible", item_id=spec.item_id)
    scrub = spec.redactor.scrub
    verdicts = [finding.of_item(spec.item_id, name, scrub) for finding in findings]
    stream = state.streams.get(spec.item_id)
    if stream is None or not stream.upstream or upstream is None:
        return verdicts or [well]
    fine = whole and all(verdict.ok for verdict in verdicts)
    if fine or upstream.upstream != stream.upstream:
        try:
            require_same_cluster_and_topics(spec, stream, upstream)
        except UpstreamChanged as error:  # it says more than that a topic is missing there
            (refused,) = findings_of(error, name)
            verdicts.insert(0, refused.of_item(spec.item_id, name, scrub))
    return verdicts or [well]


def require_valid(
    findings: Iterable[Finding], what: str, remedy: str = "fix what is named", *,
    may_skip: bool = True,
) -> None:
    """:class:`ValidationFailed` with all that is wrong; ``may_skip``: it goes without validation,
    too."""
    bad = [finding for finding in findings if finding.severity == "error"]
    if bad:
        if may_skip:
            remedy += (
                "; where it cannot be reached from here, WITH (VALIDATE = false) behind the"
                " statement goes on without"
            )
        raise ValidationFailed(
            f"{what} was refused by validation, nothing was changed", findings=bad, remedy=remedy
        )


def explain_options(statement: object, error: InvalidOptions) -> InvalidOptions:
    """Return the error of a statement on a connection with what its server says to it."""
    external = getattr(statement, "external", None)
    if external is None or external.connector is None:
        return error
    return find_connector(external.connector).explain(external.options, error)


def _connection(state: State, item_id: str, ports: Ports, timeout: float) -> list[Finding]:
    name = f"connection {dependencies.display(state, item_id)}"
    try:
        resolved = resolved_connection(state, item_id, resolve=ports.resolve)
    except CatalogMigrateError as error:
        return [_refusal(item_id, name, error)]
    connector = dependencies.effective(state, item_id).connector
    scrub = Redactor.of(resolved).scrub
    return [
        finding.of_item(item_id, name, scrub)
        for finding in ports.upstreams.check_connection(connector, resolved, timeout=timeout)
    ]


def refusal(state: State, item_id: str, error: CatalogMigrateError) -> Finding:
    """Return what refused a source or sink, as what validation says of it."""
    definition = state.items[item_id].definition
    return _refusal(item_id, f"{definition.kind} {definition.item_name}", error)


def _refusal(item_id: str, name: str, error: CatalogMigrateError) -> Finding:
    return Finding(name, None, "error", error.message, error.remedy, item_id, error.code)


Answer = tuple[Mapping[str, Finding], Mapping[str, Upstream]]
"""By item id: what is wrong with a query's access, or that all is well; and whom it reaches."""


class Probing:
    """Asks for all queries of an operation at once, in a thread of its own.

    ``probe`` gives an :data:`Answer` for the items of a state; what it raises is raised where the
    answer is read. A context manager, whose end waits for the probe that is under way.
    """

    __slots__ = ("_asked", "_first", "_items", "_pool", "_probe", "_verdicts")

    def __init__(
        self, probe: Callable[[State, Sequence[str]], Answer], threads: Threads
    ) -> None:
        self._probe = probe
        self._pool = threads.pool(1, "probe")
        self._items: frozenset[str] | None = None
        self._first: Future[Answer] | None = None
        self._asked: Future[Answer] | None = None
        self._verdicts: dict[str, Finding] = {}

    def __enter__(self) -> Probing:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._pool.shutdown(wait=True)

    def ask(self, state: State, item_ids: Collection[str]) -> None:
        """Begin with these items, unless that was begun already."""
        if self._items != frozenset(item_ids):
            self._items = frozenset(item_ids)
            self._first = self._asked = self._pool.submit(self._probe, state, sorted(item_ids))
            self._verdicts.clear()

    def ask_again(self, state: State, item_ids: Collection[str]) -> bool:
        """Begin with some of the items once more; False while a probe is under way."""
        if self._asked is not None and not self._asked.done():
            return False
        self._asked = self._pool.submit(self._probe, state, sorted(item_ids))
        return True

    def verdicts(self) -> Mapping[str, Finding]:
        """Return the newest answers that are there."""
        if self._asked is not None and self._asked.done():
            self._verdicts.update(self._asked.result()[0])
        return self._verdicts

    def upstreams(self) -> Mapping[str, Upstream]:
        """Whom each query reaches; waits for the first answer."""
        return {} if self._first is None else self._first.result()[1]
