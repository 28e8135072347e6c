"""SHOW and SHOW CREATE: the catalog's objects as rows and as statements (secrets by name).

What an older version stored of a secret as plain text is shown as ``***``, which no statement sets.
And which sources and sinks do not run, why, and what to do next.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from datetime import datetime, timezone
from functools import partial

import msgspec

from catalog_migrate.catalog.operation_states import phase_of
from catalog_migrate.catalog.process import proven_dead
from catalog_migrate.catalog.records import HoldRecord, ItemRecord, OperationRecord, identity_text
from catalog_migrate.catalog.state import State
from catalog_migrate.connectors.base import find_if_installed
from catalog_migrate.connectors.postgres.sessions import RESET_SPLITS
from catalog_migrate.errors import CatalogMigrateError
from catalog_migrate.operations.kinds import BACKFILLING
from catalog_migrate.sql.statements import QueryKind
from catalog_migrate.streams.catalog import dependencies
from catalog_migrate.streams.catalog.cluster_log import (
    FENCE,
    OF_QUERIES,
    OPERATION,
    UPSTREAM,
    QueryStatus,
    cluster_key,
    cluster_name,
    decode_failure,
    hold_text,
    latest,
    list_holds,
    runtime_lives,
    summarize_error,
)
from catalog_migrate.streams.catalog.create_statement import create_statement
from catalog_migrate.streams.catalog.failures import (
    NEW_TOPIC,
    Failure,
    insert_name,
    of_hold,
    of_query,
)
from catalog_migrate.streams.catalog.operation_records import findings_in, kind_of
from catalog_migrate.streams.catalog.queries import QueryFailure
from catalog_migrate.streams.catalog.query_spec import (
    Resolve,
    resolve_secret,
    resolved_connection,
)
from catalog_migrate.streams.catalog.rows import Rows

_STILL = frozenset({"backing_off", "held"})
_BEFORE_A_HOLD = frozenset({"starting", "backing_off", "stopped"})


def show(state: State, what: str, *, resolve: Resolve = resolve_secret) -> Rows:
    """Return the rows of ``SHOW what``; the public keys of tunnels are derived by ``resolve``."""
    return _connections(state, resolve) if what == "connections" else _LISTINGS[what](state)


def show_create(
    state: State, found: dependencies.CatalogEntry, *, resolve: Resolve = resolve_secret
) -> str:
    """The statement that would create an object, and for a tunnel what its server must know."""
    keys = _public_keys(state, found.item, resolve)
    notes = [f"-- {said}" for said in keys]
    return "\n".join([create_statement(state, found, held=True), *notes])


def _list_kind(state: State, kind: str) -> list[dependencies.CatalogEntry]:
    found = [
        dependencies.CatalogEntry(mapping, state.items[mapping.item_id])
        for mapping in state.mappings.values() if mapping.kind == kind
    ]
    return sorted(found, key=lambda each: str(each.item.definition.item_name))


def _name(found: dependencies.CatalogEntry) -> str:
    return str(found.item.definition.item_name)


def _connections(state: State, resolve: Resolve) -> Rows:
    return Rows(
        ("name", "type", "uses", "queries", "comment", "public_keys"),
        tuple(
            (
                _name(each), each.external.connector,
                ", ".join(
                    dependencies.display(state, used) for role, used in each.item.links.items()
                    if role == "connection" or role.startswith(dependencies.USING)
                ) or None,
                len(dependencies.dependents(state, each.item_id)), each.item.definition.comment,
                "\n".join(_public_keys(state, each.item, resolve)) or None,
            )
            for each in _list_kind(state, "connection")
        ),
    )


def _public_keys(state: State, item: ItemRecord, resolve: Resolve) -> list[str]:
    """A line for each public key of a tunnel, as its server's ``authorized_keys`` takes it."""
    connector = find_if_installed(dependencies.external_of(item).connector)
    if connector is None or not connector.has_keys:
        return []
    item_id = state.mappings[identity_text(item.definition.identity)].item_id
    try:
        keys = connector.public_keys(resolved_connection(state, item_id, resolve=resolve))
    except CatalogMigrateError as error:
        return [f"public key: not known here ({error.message})"]
    said = ("public key", "next public key")
    return [f"{name}: {key}" for name, key in zip(said, keys, strict=False)]


def _secrets(state: State) -> Rows:
    return Rows(
        ("name", "reference", "revision", "queries"),
        tuple(
            (
                _name(each), each.external.reference, each.external.revision,
                len(dependencies.dependents(state, each.item_id)),
            )
            for each in _list_kind(state, "secret")
        ),
    )


def _clusters(state: State) -> Rows:
    rows = []
    for each in _list_kind(state, "cluster"):
        lease = state.leases.get(cluster_key(each.item_id))
        runtime = None
        if lease is not None and lease.holder:
            runtime = lease.holder + (" (dead)" if proven_dead(lease) else "")
        log = state.items[each.item.links["log"]].definition
        rows.append(
            (
                _name(each), runtime, lease.since if lease is not None and runtime else None,
                sum(1 for _ in dependencies.queries(state, each.item_id)), str(log.item_name),
                log.properties.get("primary_index"), _gate(state, each.item_id),
            )
        )
    return Rows(
        ("name", "runtime", "since", "queries", "log", "log_index", "unsafe_ops"), tuple(rows)
    )


def _gate(state: State, cluster: str) -> str:
    """The gate of unsafe operations; that of the last runtime is not told as one that lives."""
    row = state.clusters.get(cluster)
    if row is None:
        return "closed: no runtime was ever started"
    gate = "open" if row.unsafe else "closed"
    if runtime_lives(state, cluster):
        return gate
    return f"no runtime lives; the last one left it {gate}"


def list_queries(
    state: State, kind: QueryKind, statuses: Mapping[str, QueryStatus] | None = None
) -> Rows:
    """Return the rows of SHOW SOURCES or SHOW SINKS; ``statuses`` as in :func:`stalled_queries`."""
    reads = ("reads",) if kind == "sink" else ()
    head = (
        "name", "type", "connection", *reads, "cluster", "state", "holds", "batch", "rows", "lag",
        "at", "error", "run_id", "earlier", "remedy", "next",
    )
    reported = latest(state) if statuses is None else statuses
    repaired = _find_repairs(state)
    return Rows(head, tuple(
        _query_row(state, each, reported, repaired.get(each.item_id, ""))
        for each in _list_kind(state, kind)
    ))


def _query_row(
    state: State, each: dependencies.CatalogEntry, statuses: Mapping[str, QueryStatus],
    repaired: str,
) -> tuple[object, ...]:
    links = each.item.links
    said = statuses.get(each.item_id)
    status = current(state, each.item, said)
    earlier = said if status is None else None
    holds = list_holds(state, each.item_id)
    alive = runtime_lives(state, links.get("cluster", ""))
    error = _error(status, "") if alive else _error(earlier, repaired)
    still = _still(state, each, statuses)
    reads = [dependencies.display(state, links["reads"])] if each.mapping.kind == "sink" else []
    return (
        _name(each), each.external.connector, dependencies.display(state, links["connection"]),
        *reads, cluster_name(state, each.item_id),
        "quarantined" if each.item.quarantined is not None else _state_of(status, holds, alive),
        "; ".join(holds) or None,
        *_numbers(status),
        each.item.quarantined or error,
        None if status is None else status.run_id,
        None if earlier is None else _earlier(earlier),
        *((None, None) if still is None else (
            still.remedy or None, "; ".join(still.statements) or None
        )),
    )


def _numbers(status: QueryStatus | None) -> tuple[object, ...]:
    """Batch, rows and lag of a query, and when they were reported."""
    if status is None:
        return (None, None, None, None)
    return (status.batch, status.rows, status.lag, status.at)


def current(state: State, item: ItemRecord, said: QueryStatus | None) -> QueryStatus | None:
    """Return what was said of a query, if the runtime that lives has said it.

    The same process may have been an earlier runtime too, or another one of its host and number.
    """
    cluster = item.links.get("cluster", "")
    if said is None or not runtime_lives(state, cluster):
        return None
    lease = state.leases[cluster_key(cluster)]
    own = said.runtime == lease.holder and _second(said.at) >= _second(lease.since)
    return said if own else None


def _earlier(said: QueryStatus) -> str:
    """What a runtime that has ended said last of a query, with the age of it."""
    numbers = (("batch", said.batch), ("rows", said.rows), ("lag", said.lag))
    told = ", ".join(
        (said.state, *(f"{name} {number}" for name, number in numbers if number is not None))
    )
    return f"{told}: a runtime that has ended, {_age(said.at)} ago"


def _age(at: str) -> str:
    """How long ago a moment was, in the largest unit that fits."""
    moment = datetime.fromisoformat(_second(at)).replace(tzinfo=timezone.utc)
    seconds = max(0, int((datetime.now(timezone.utc) - moment).total_seconds()))
    for unit, long in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * long:
            return f"{seconds // long} {unit}"
    return f"{seconds} s"


def _find_repairs(state: State) -> dict[str, str]:
    """When the newest unsafe operation on each item was asked for that was done, to the second."""
    found: dict[str, str] = {}
    for row in state.operations.values():
        if row.unsafe is not None and row.state in ("done", BACKFILLING):
            for item_id in row.dependents:
                found[item_id] = max(found.get(item_id, ""), _second(row.unsafe.at))
    return found


def _error(status: QueryStatus | None, repaired: str) -> str | None:
    """What a query failed of, unless it was put on another footing since and did not run yet.

    ``repaired`` is for queries without a runtime: one that lives reports again.
    """
    if status is None or status.error is None or _second(status.at) <= repaired:
        return None
    return summarize_error(status.error)


def _second(at: str) -> str:
    return at[:19].replace("T", " ")


def _state_of(status: QueryStatus | None, holds: tuple[str, ...], alive: bool) -> str:
    if not alive:
        return "held" if holds else "no runtime"
    if status is None:
        return "held" if holds else "starting"
    # what it was doing when it was held is on record until the runtime's next report
    return "held" if holds and status.state in _BEFORE_A_HOLD else status.state


def _operations(state: State) -> Rows:
    rows = [
        (
            key, f"unsafe {kind_of(row)}" if row.unsafe is not None else row.kind,
            dependencies.display(state, row.target), row.state,
            ", ".join(dependencies.display(state, each) for each in row.dependents),
            phase_of(row) or None, row.detail.get("since"),
            row.unsafe.reason if row.unsafe is not None else None, _outcome(row),
        )
        for key, row in sorted(state.operations.items()) if row.target
    ]
    return Rows(
        (
            "operation", "kind", "target", "state", "queries", "phase", "since", "reason",
            "outcome",
        ),
        tuple(rows),
    )


def _outcome(row: OperationRecord) -> str | None:
    """Why an operation was refused, rolled back or failed, with everything that was found."""
    reason, found = row.detail.get("reason"), "; ".join(map(str, findings_in(row)))
    return ": ".join(filter(None, (reason, found))) or None


_LISTINGS: Mapping[str, Callable[[State], Rows]] = {
    "secrets": _secrets,
    "clusters": _clusters,
    "sources": partial(list_queries, kind="source"),
    "sinks": partial(list_queries, kind="sink"),
    "operations": _operations,
}


# -- what stands still -----------------------------------------------------------------------------


class StalledQuery(msgspec.Struct, frozen=True):
    """A query that does not run; ``reasons`` are its holds, or what it failed of.

    ``next`` is the command to go on with, for a shell: ``statements`` are those in it, each one of
    the product's own, none where it is no statement that helps. ``remedy`` explains, in words.
    """

    kind: str
    name: str
    state: str
    reasons: tuple[str, ...]
    next: str
    statements: tuple[str, ...] = ()
    remedy: str = ""


class _Step(msgspec.Struct, frozen=True):
    """What to do next: statements, or a command that is none, and why that helps."""

    statements: tuple[str, ...] = ()
    remedy: str = ""
    command: str = ""

    @property
    def next(self) -> str:
        """For a shell."""
        return self.command or f"catalog-migrate sql -c {_quote('; '.join(self.statements))}"


def _quote(text: str) -> str:
    """One word of a shell; in double quotes where nothing in it means something there."""
    return shlex.quote(text) if set(text) & set('"$`\\!') else f'"{text}"'


def stalled_queries(
    state: State, statuses: Mapping[str, QueryStatus] | None = None
) -> tuple[StalledQuery, ...]:
    """Return all of them, by name; reads the catalog and the logs of clusters, no Spark.

    ``statuses`` are what :func:`~catalog_migrate.streams.catalog.cluster_log.latest` has read of
    those logs; None: they are read now.
    """
    queries = [
        dependencies.CatalogEntry(mapping, state.items[mapping.item_id])
        for mapping in state.mappings.values() if mapping.kind in ("source", "sink")
    ]
    if not queries:
        return ()
    reported = latest(state) if statuses is None else statuses
    found = (_still(state, each, reported) for each in queries)
    return tuple(sorted((each for each in found if each is not None), key=lambda each: each.name))


def _still(
    state: State, found: dependencies.CatalogEntry, statuses: Mapping[str, QueryStatus]
) -> StalledQuery | None:
    kind, name = found.mapping.kind, str(found.item.definition.item_name)
    holds = [hold for _, hold in sorted(state.holds.items()) if hold.item_id == found.item_id]
    status = current(state, found.item, statuses.get(found.item_id))
    reasons: tuple[str, ...] = ()
    if found.item.quarantined is not None:
        shown, reasons = "quarantined", (found.item.quarantined,)
        step = _Step((f"SHOW CREATE {kind.upper()} {name}",), f"fix it, or DROP {kind.upper()} it")
    elif holds:
        shown, reasons = "held", tuple(map(hold_text, holds))
        step = _lifting(state, found, holds[0])
    elif not _runs(state, found):
        shown, step = "no runtime", _start(state, found)
    else:
        if status is None or not (status.state in _STILL or _waits(status)):
            return None
        shown, reasons = status.state, (status.error or "",)
        failure = decode_failure(status) or Failure(code="", message="")
        step = _onward(kind, name, _connection(state, found), failure)
    return StalledQuery(kind, name, shown, reasons, step.next, step.statements, step.remedy)


def _waits(status: QueryStatus) -> bool:
    """Whether a query that is to start again, or waits for its source, says why."""
    return status.state in ("starting", "stopped") and bool(status.error)


def _runs(state: State, found: dependencies.CatalogEntry) -> bool:
    return runtime_lives(state, found.item.links.get("cluster", ""))


def _start(state: State, found: dependencies.CatalogEntry) -> _Step:
    cluster = cluster_name(state, found.item_id)
    return _Step(
        remedy="start the runtime of its cluster",
        command=f"catalog-migrate run --cluster {shlex.quote(cluster)}",
    )


def _connection(state: State, found: dependencies.CatalogEntry) -> str:
    return dependencies.display(state, found.item.links["connection"])


def _onward(kind: str, name: str, connection: str, failure: Failure) -> _Step:
    """What to do about what a query failed of; without a word of its own, ask its connection."""
    if not failure.statements:  # a runtime of an earlier version has only the text on record
        of: QueryKind = "source" if kind == "source" else "sink"
        known = of_query(QueryFailure(failure.code, (failure.message,)), of, name)
        failure = msgspec.structs.replace(
            known, remedy=failure.remedy or known.remedy,
        )
    if failure.statements:
        return _Step(failure.statements, failure.remedy)
    return _Step((f"VALIDATE CONNECTION {connection}",), failure.remedy)


def _lifting(state: State, found: dependencies.CatalogEntry, hold: HoldRecord) -> _Step:
    """What lifts a hold; those of operations and of a fence are lifted by a runtime alone."""
    kind, name = found.mapping.kind, str(found.item.definition.item_name)
    resume = f"RESUME {kind.upper()} {name}"
    if hold.holder.startswith((OPERATION, FENCE)) and not _runs(state, found):
        return _start(state, found)
    if hold.holder == FENCE and hold.remedy:
        return _Step((), hold.remedy)
    if hold.holder == FENCE:
        return _Step(
            (f"VALIDATE CONNECTION {_connection(state, found)}",),
            "its hold goes once the destination answers",
        )
    if hold.holder.startswith(OPERATION):
        return _Step(("SHOW OPERATIONS",), "wait for the operation")
    if hold.holder in OF_QUERIES:
        before = hold.holder == UPSTREAM and not hold.code
        failure = _of_before(kind, name, hold) if before else of_hold(hold)
        return _Step(failure.statements or (resume,), failure.remedy)
    return _Step((resume,))


def _of_before(kind: str, name: str, hold: HoldRecord) -> Failure:
    """The statements of a hold that a runtime of an earlier version set, by its text."""
    statement = f"RESUME {kind.upper()} {name}"
    if "UPSTREAM COLUMNS = " in hold.reason:
        policy = hold.reason.split("UPSTREAM COLUMNS = '", 1)[1].split("'", 1)[0]
        return Failure("", hold.reason, statements=(
            f"ALTER SOURCE {name} SET (UPSTREAM COLUMNS = '{policy}')", statement
        ))
    if kind == "sink":
        statement = f"SHOW CREATE SINK {name}"
    elif "UNSAFE RESET SPLITS REASON" in hold.reason:
        statement = insert_name(RESET_SPLITS[0], name)
    elif "create it again" not in hold.reason:
        statement = insert_name(NEW_TOPIC[0], name)
    else:
        statement = f"SHOW CREATE SOURCE {name}"
    return Failure("", hold.reason, statements=(statement,))
