"""What ``doctor`` looks at of streams: runtimes, connections, replication slots, checkpoints, and
sources and sinks that do not run; each finding says what to do."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timezone
from typing import NamedTuple, TypeVar

from catalog_migrate.catalog.log import CatalogLog
from catalog_migrate.catalog.state import State
from catalog_migrate.connectors.postgres import sessions
from catalog_migrate.errors import CatalogMigrateError
from catalog_migrate.model.findings import Check, Finding, Severity, run_check
from catalog_migrate.streams.catalog import dependencies
from catalog_migrate.streams.catalog.failures import insert_name
from catalog_migrate.streams.catalog.query_spec import spec_of
from catalog_migrate.streams.ddl.health import (
    SILENT_AFTER,
    QueryHealth,
    RuntimeHealth,
    StreamsHealth,
    streams_health,
)
from catalog_migrate.streams.runtime.ports import Ports
from catalog_migrate.streams.runtime.probes import probe_connections
from catalog_migrate.streams.runtime.slots import describe_slots

Result = TypeVar("Result")

LONG_START = 600.0
"""Seconds after which a start that has not ended needs a look."""

_BACKUP = "bring {} back from a backup of the warehouse"
_TIMEOUT = 10.0
_AT_ONCE = 16


def examine_streams(
    state: State, log: CatalogLog, *, ports: Ports, now: float,
    silent_after: float = SILENT_AFTER,
) -> tuple[Finding, ...]:
    """Everything that was looked at, what is well in one finding a kind; nothing where no
    connection and no cluster is declared.

    ``now`` is in seconds since 1970. Writes nothing.
    """
    kinds = {mapping.kind for mapping in state.mappings.values()}
    if not kinds & {"connection", "cluster"}:
        return ()
    health = streams_health(
        state, log, ports=ports, now=now, lags=False, silent_after=silent_after
    )
    look = _Look(state, ports, health, now)
    return tuple(found for check in _CHECKS for found in run_check(check, look, "streams"))


class _Look(NamedTuple):
    """What all checks are made of."""

    state: State
    ports: Ports
    health: StreamsHealth
    now: float


def _grouped(kind: str, well: Sequence[str], bad: Sequence[Finding]) -> Iterator[Finding]:
    """What is well in one line, what is not in a line each."""
    if well:
        yield Finding(kind, None, "ok", "; ".join(well))
    yield from bad


# -- runtimes, and what runs under them -----------------------------------------------------------


def _runtimes(look: _Look) -> Iterator[Finding]:
    used = {query.cluster for query in look.health.queries}
    return (_runtime(each, used=each.cluster in used) for each in look.health.runtimes)


def _runtime(runtime: RuntimeHealth, *, used: bool) -> Finding:
    subject, start = "runtime", f"catalog-migrate run --cluster {runtime.cluster}"
    renewed = "" if runtime.heartbeat is None else (
        f", lease renewed {runtime.heartbeat:.0f} s ago"
    )
    if runtime.lives:
        text = f"{runtime.cluster}: {runtime.holder} since {runtime.since}{renewed}"
        return Finding(subject, None, "ok", text)
    if runtime.holder is None:
        text = f"{runtime.cluster}: none"
        severity: Severity = "error" if used and runtime.started else "ok"
        return Finding(subject, None, severity, text, start)
    what = "is dead" if runtime.dead else f"does not renew its lease{renewed}"
    return Finding(
        subject, None, "error",
        f"{runtime.cluster}: {runtime.holder}, which has it since {runtime.since}, {what}",
        f"{start}, which takes over; look first why that process ended",
    )


def _queries(look: _Look) -> Iterator[Finding]:
    bad, states, now = [], dict[str, int](), look.now
    for query in look.health.queries:
        began = _seconds(query.at) if query.state == "starting" else None
        if not query.ok:
            reasons = "; ".join(query.reasons) or "no reason is known"
            bad.append(Finding(
                query.kind, None, "error", f"{query.name}: {query.state}: {reasons}", query.next
            ))
        elif began is not None and now - began > LONG_START:
            bad.append(Finding(
                query.kind, None, "error",
                f"{query.name}: starting for {now - began:.0f} s",
                f"catalog-migrate source log {query.name}{_sink(query)} --since 1h, and the"
                " runtime's own lines; whatever waits for an upstream names it",
            ))
        else:
            states[query.state] = states.get(query.state, 0) + 1
    well = ", ".join(f"{number} {state}" for state, number in sorted(states.items()))
    yield from _grouped("streams", [well] if well else [], bad)


def _sink(query: QueryHealth) -> str:
    return " --sink" if query.kind == "sink" else ""


def _seconds(at: str | None) -> float | None:
    """Seconds since 1970 of a moment of a cluster's log, to the second."""
    if at is None:
        return None
    moment = datetime.fromisoformat(at[:19].replace("T", " "))
    return moment.replace(tzinfo=timezone.utc).timestamp()


# -- connections -----------------------------------------------------------------------------------


def _connections(look: _Look) -> Iterator[Finding]:
    found = probe_connections(look.state, ports=look.ports, timeout=_TIMEOUT)
    bad = [
        Finding(
            "connection", each.option, "error",
            f"{dependencies.display(look.state, each.item_id)}: {each.message}",
            "run doctor where the runtime runs: it has the secret there" if each.unresolved
            else each.remedy,
        )
        for each in found if not each.ok
    ]
    failed = {each.item_id for each in found if not each.ok}
    well = len({each.item_id for each in found} - failed)
    yield from _grouped("connection", [f"{well} answer"] if well else [], bad)


# -- checkpoints and slots -------------------------------------------------------------------------


def _checkpoints(look: _Look) -> Iterator[Finding]:
    """Of queries that were started once: without its checkpoint one would begin at START again."""
    state, ports = look.state, look.ports

    def check(found: dependencies.CatalogEntry) -> Finding | None:
        stream = state.streams[found.item_id]
        place = dependencies.location(state, stream.checkpoint)
        name, kind = str(found.item.definition.item_name), found.mapping.kind
        try:
            checkpoint = ports.checkpoint(place)
            if checkpoint.query_id is None:
                return Finding(
                    "checkpoint", None, "error",
                    f"{kind} {name} was started before, and its checkpoint is missing: {place}",
                    f"PAUSE {kind.upper()} {name} before a runtime starts it where START says;"
                    " bring the directory back from a backup of the warehouse, then RESUME",
                )
            standing = checkpoint.state()
        except CatalogMigrateError as error:
            return Finding(
                "checkpoint", None, "error", f"{kind} {name}: {error.message}",
                error.remedy or _BACKUP.format(place),
            )
        if standing.kind == "broken":
            return Finding(
                "checkpoint", None, "error", f"{kind} {name}: {standing.reason} ({place})",
                _BACKUP.format(place),
            )
        return None

    started = _started(state)
    found = _each(ports, check, started)
    bad = [each for each in found if each is not None]
    well = len(started) - len(bad)
    yield from _grouped("checkpoint", [f"{well} present"] if well else [], bad)


def _started(state: State) -> list[dependencies.CatalogEntry]:
    """Queries that have had a start: it is on record which server they read or write."""
    return [
        found for found in dependencies.queries(state)
        if found.item_id in state.streams and state.streams[found.item_id].upstream
    ]


def _slots(look: _Look) -> Iterator[Finding]:
    """The replication slot of each source on PostgreSQL, and those of dropped ones."""
    state, ports = look.state, look.ports
    sources = [found for found in _started(state) if found.external.tables]
    looked = _each(ports, lambda found: _slot(state, found, ports), sources)
    yield from _grouped(
        "slot", [each.message for each in looked if each.ok],
        [
            *(each for each in looked if not each.ok),
            *(Finding("slot", None, "error", text, "drop it by hand if no runtime does")
              for text in describe_slots(state)),
        ],
    )


def _slot(state: State, found: dependencies.CatalogEntry, ports: Ports) -> Finding:
    name = str(found.item.definition.item_name)
    try:
        spec = spec_of(state, found.item_id, resolve=ports.resolve)
        there = ports.databases.slot_state(spec, timeout=_TIMEOUT)
    except CatalogMigrateError as error:
        return Finding("slot", None, "error", f"source {name}: {error.message}", error.remedy)
    slot = there.slot
    again = insert_name(sessions.RESET_SPLITS[0], name)
    if slot is None:
        return Finding(
            "slot", None, "error", f"source {name}: there is no slot {spec.slot}",
            f"{sessions.AGAIN}: {again}",
        )
    if slot.lost:
        return Finding(
            "slot", None, "error",
            f"source {name}: slot {slot.name} is lost ({slot.invalidation or 'wal_removed'})",
            f"{sessions.KEEP_MORE}: {again}",
        )
    kept = "" if slot.restart is None else f" keeps {slot.log_end - slot.restart:,} bytes of log"
    limit = "" if there.most == "-1" else f" of {there.most} at most"
    reader = f"process {slot.active_pid} reads it" if slot.active_pid else "no process reads it"
    text = f"source {name}: slot {slot.name}{kept}{limit} ({slot.wal_status}), {reader}"
    if slot.wal_status == "unreserved":
        return Finding(
            "slot", None, "error", text,
            "it is lost at the server's next checkpoint: start its runtime, or raise"
            " max_slot_wal_keep_size on the server now",
        )
    return Finding("slot", None, "ok", text)


def _each(
    ports: Ports, look: Callable[[dependencies.CatalogEntry], Result],
    queries: Sequence[dependencies.CatalogEntry],
) -> list[Result]:
    """What a look at each of these gives, several at once."""
    if not queries:
        return []
    with ports.threads.pool(min(_AT_ONCE, len(queries)), "doctor") as pool:
        return list(pool.map(look, queries))


_CHECKS: tuple[Check[_Look], ...] = (_runtimes, _connections, _queries, _checkpoints, _slots)
