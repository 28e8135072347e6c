"""Replication slots of sources that were dropped: a slot that nobody reads fills upstream's disk.

Nothing brings a dropped source back, so its slot goes with it: the DROP writes down which one, and
the runtime of its cluster drops it once the query has stopped; without a runtime whoever says DROP
does. What could not be dropped stays on record, and ``status`` names it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from catalog_migrate.catalog.records import OperationRecord
from catalog_migrate.catalog.state import State
from catalog_migrate.catalog.transaction import Changes
from catalog_migrate.errors import CatalogMigrateError
from catalog_migrate.streams import dependencies
from catalog_migrate.streams.ports import Ports
from catalog_migrate.streams.specs import resolved_connection, slot_of

SLOT = "slot"
"""The kind of the record of a slot that is still to be dropped."""

Commit = Callable[[Callable[[Changes, State], None]], object]
"""Commits what a function puts."""


def put_slot(changes: Changes, state: State, source: dependencies.CatalogEntry) -> str | None:
    """Write down the slot of a source that is dropped; its name, None where there is none."""
    if not source.external.tables or source.item_id not in state.streams:
        return None
    slot = slot_of(state, source.item_id)
    links = source.item.links
    changes.put("operation", f"{SLOT}/{source.item_id}", OperationRecord(
        kind=SLOT, state="pending", cluster=links.get("cluster", ""), target=links["connection"],
        detail={"slot": slot, "source": str(source.item.definition.item_name)},
    ))
    return slot


def slots_to_drop(state: State) -> dict[str, OperationRecord]:
    """What is on record, by key."""
    return {key: row for key, row in sorted(state.operations.items()) if row.kind == SLOT}


def drop_slots(
    state: State, rows: Mapping[str, OperationRecord], *, ports: Ports, commit: Commit
) -> None:
    """Drop these slots on their servers and take them off the record, or note why not."""
    for key, row in rows.items():
        try:
            connection = resolved_connection(state, row.target, resolve=ports.resolve)
            ports.upstreams.drop_slot(connection, row.detail["slot"])
        except KeyError:
            reason = "its connection was dropped too"
        except CatalogMigrateError as error:
            reason = error.message
        else:
            commit(lambda changes, _, key=key: changes.delete("operation", key))  # type: ignore[misc]
            continue
        if row.detail.get("reason") != reason:
            noted = msgspec.structs.replace(row, detail={**row.detail, "reason": reason})
            commit(lambda changes, _, key=key, noted=noted: changes.put(  # type: ignore[misc]
                "operation", key, noted
            ))


def described_slots(state: State) -> tuple[str, ...]:
    """For ``status``: each slot that is still to be dropped, why it is there, and what to do."""
    return tuple(
        f"{row.detail['slot']} of the dropped source {row.detail['source']} keeps the log of its"
        f" server ({dependencies.display(state, row.target)})"
        + (f": {row.detail['reason']}" if "reason" in row.detail else ": its runtime drops it")
        + f"; by hand: SELECT pg_drop_replication_slot('{row.detail['slot']}')"
        for row in slots_to_drop(state).values()
    )
