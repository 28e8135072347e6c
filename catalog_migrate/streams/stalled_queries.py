"""Sources and sinks that stand still, why, and what to do next."""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec

from catalog_migrate.catalog.records import HoldRecord
from catalog_migrate.catalog.state import State
from catalog_migrate.streams import dependencies
from catalog_migrate.streams.show import current
from catalog_migrate.streams.status import QueryStatus, cluster_name, latest, runtime_lives
from catalog_migrate.streams.takeover import FENCE

_STILL = frozenset({"backing_off", "failed", "held"})
_UNREADABLE = re.compile(
    r"cannot read the record at topic ([\w.-]+), partition (\d+), offset (\d+):"
)


_LOST = ("KAFKA_DATA_LOSS", "Some data may have been lost because they are not available in Kafka")
"""What Spark's planner, and what its readers, say of records that are no longer there."""


class StalledQuery(msgspec.Struct, frozen=True):
    """A query that does not run; ``reasons`` are its holds, or what it failed of.

    ``next`` is the command to go on with.
    """

    kind: str
    name: str
    state: str
    reasons: tuple[str, ...]
    next: str


def stalled_queries(state: State) -> tuple[StalledQuery, ...]:
    """All of them, by name; reads the catalog and the logs of clusters, no Spark."""
    queries = [
        dependencies.CatalogEntry(mapping, state.items[mapping.item_id])
        for mapping in state.mappings.values() if mapping.kind in ("source", "sink")
    ]
    if not queries:
        return ()
    statuses = latest(state)
    found = (_still(state, each, statuses) for each in queries)
    return tuple(sorted((each for each in found if each is not None), key=lambda each: each.name))


def _still(
    state: State, found: dependencies.CatalogEntry, statuses: Mapping[str, QueryStatus]
) -> StalledQuery | None:
    kind, name = found.mapping.kind, str(found.item.definition.item_name)
    holds = [hold for _, hold in sorted(state.holds.items()) if hold.item_id == found.item_id]
    status = current(state, found.item, statuses.get(found.item_id))
    if found.item.quarantined is not None:
        reasons: tuple[str, ...] = (found.item.quarantined,)
        return StalledQuery(
            kind, name, "quarantined", reasons, f"DROP {kind.upper()} {name}, or fix it"
        )
    if holds:
        reasons = tuple(_reason(hold) for hold in holds)
        return StalledQuery(kind, name, "held", reasons, _lifting(state, found, holds[0]))
    if not _runs(state, found):
        return StalledQuery(kind, name, "no runtime", (), _start(state, found))
    again = status is not None and status.state == "starting" and bool(status.error)
    if status is None or not (status.state in _STILL or again):
        return None
    return StalledQuery(
        kind, name, status.state, (status.error or "",),
        _onward(kind, name, _connection(state, found), status.error or ""),
    )


def _runs(state: State, found: dependencies.CatalogEntry) -> bool:
    return runtime_lives(state, found.item.links.get("cluster", ""))


def _start(state: State, found: dependencies.CatalogEntry) -> str:
    return f"catalog-migrate run --cluster {cluster_name(state, found.item_id)}"


def _connection(state: State, found: dependencies.CatalogEntry) -> str:
    return dependencies.display(state, found.item.links["connection"])


def _onward(kind: str, name: str, connection: str, error: str) -> str:
    """What to say next, by what a query failed of; a dry run where it would be an operation."""
    unread = _UNREADABLE.search(error)
    if kind == "source" and unread is not None:
        topic, partition, offset = unread[1], unread[2], int(unread[3])
        return (
            f"catalog-migrate unsafe inject-offsets {name} --partition "
            f"{topic}:{partition}={offset + 1} --reason 'record {offset} cannot be read' --plan"
        )
    if kind == "source" and "PARTITIONS_DELETED" in error:
        return (
            f"catalog-migrate unsafe reset-splits {name} --reason 'partitions are gone' --plan"
        )
    if kind == "source" and any(mark in error for mark in _LOST):
        return (
            f"catalog-migrate unsafe inject-offsets {name} --to committed --policy clamp "
            "--reason 'records are gone' --plan"
        )
    return f'catalog-migrate sql -c "VALIDATE CONNECTION {connection}"'


def _reason(hold: HoldRecord) -> str:
    since = f" (since {hold.since})" if hold.since else ""
    return f"{hold.holder}: {hold.reason}{since}"


def _lifting(state: State, found: dependencies.CatalogEntry, hold: HoldRecord) -> str:
    """What lifts a hold; those of operations and of a fence are lifted by a runtime alone."""
    kind, name = found.mapping.kind, str(found.item.definition.item_name)
    if hold.holder.startswith(("operation:", FENCE)) and not _runs(state, found):
        return _start(state, found)
    if hold.holder == FENCE:
        return f'catalog-migrate sql -c "VALIDATE CONNECTION {_connection(state, found)}"'
    statement = re.search(r"ALTER SOURCE .*?\)", hold.reason)
    if hold.holder == "upstream" and found.external.tables and statement is not None:
        return f'catalog-migrate sql -c "{statement[0]}; RESUME SOURCE {name}"'
    if hold.holder == "upstream" and kind == "source":
        return (
            f"catalog-migrate unsafe reset-splits {name} --accept-new-topic "
            "--reason 'the upstream changed' --plan"
        )
    if hold.holder.startswith("operation:"):
        return "wait for the operation: catalog-migrate sql -c 'SHOW OPERATIONS'"
    if hold.holder.startswith("migration:"):
        return "catalog-migrate bootstrap, or start the application"
    if hold.holder == "upstream":
        return f'catalog-migrate sql -c "SHOW CREATE {kind.upper()} {name}"'
    return f'catalog-migrate sql -c "RESUME {kind.upper()} {name}"'
