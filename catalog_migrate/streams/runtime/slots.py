"""Replication slots of sources on PostgreSQL that were dropped, or are about to be.

A slot that nobody reads fills its server's disk. Nothing brings a dropped source back, so its slot
goes with it: the DROP writes down which one, and the runtime of its cluster drops it once the query
has stopped; without a runtime whoever says DROP does. What could not be dropped stays on record,
and ``status`` names it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

import msgspec

from catalog_migrate.catalog.commits import Commit
from catalog_migrate.catalog.records import OperationRecord
from catalog_migrate.catalog.state import State
from catalog_migrate.catalog.updates import Delete, Put
from catalog_migrate.errors import CatalogMigrateError, RefusedStatement
from catalog_migrate.model.objects import External
from catalog_migrate.store import Store, store_at
from catalog_migrate.streams.catalog import dependencies
from catalog_migrate.streams.catalog.query_spec import resolved_connection, slot_of
from catalog_migrate.streams.catalog.statement_changes import Draft
from catalog_migrate.streams.catalog.upstream_tables import SNAPSHOT_ATTEMPT, VALIDATION
from catalog_migrate.streams.runtime.ports import Ports

SLOT = "slot"
"""The kind of the record of a slot that is still to be dropped."""


def put_slot(
    draft: Draft, source: dependencies.CatalogEntry, gone: Collection[str] = ()
) -> str | None:
    """Write down the slot of a source that is dropped; what to say of it, None where there is none.

    ``gone`` are the item ids that go with it.
    """
    state = draft.state
    stream = state.streams.get(source.item_id)
    if not source.external.tables or stream is None:
        return None
    slot, links = slot_of(state, source.item_id), source.item.links
    connection = links["connection"]
    options = dependencies.effective(state, connection).options
    server = f"{options.get('HOST')}/{options.get('DATABASE')}"
    if connection in gone or links.get("cluster") in gone:
        return (
            f"its replication slot is not dropped, and keeps the log of {server}: SELECT"
            f" pg_drop_replication_slot('{slot}')"
        )
    folder = dependencies.location(state, stream.checkpoint).rpartition("/")[0]
    draft.add(Put("operation", f"{SLOT}/{source.item_id}", OperationRecord(
        kind=SLOT, state="pending", cluster=links.get("cluster", ""), target=connection,
        detail={
            "slot": slot, "source": str(source.item.definition.item_name), "server": server,
            "upstream": stream.upstream, "folder": folder,
        },
    )))
    return f"its replication slot {slot} goes too, and with it what was not read yet"


def refuse_slot_in_use(state: State, external: External) -> None:
    """RefusedStatement for a SLOT that another source of this catalog reads, or has read."""
    wanted = external.options.get("SLOT")
    other = next((
        found for found in dependencies.queries(state)
        if found.external.tables and slot_of(state, found.item_id) == wanted
    ), None)
    if wanted is not None and other is not None:
        raise RefusedStatement(
            f"slot {wanted} is read by {other.text} of this catalog",
            remedy="leave SLOT out, or name another: each source has its own",
        )
    dropped = next((
        row for row in slots_to_drop(state).values() if row.detail["slot"] == wanted
    ), None)
    if wanted is not None and dropped is not None:
        raise RefusedStatement(
            f"slot {wanted} of the dropped source {dropped.detail['source']} is to be dropped yet",
            remedy="leave SLOT out, or name another; status says when it is dropped",
        )


def slots_to_drop(state: State) -> dict[str, OperationRecord]:
    """Return what is on record, by key."""
    return {key: row for key, row in sorted(state.operations.items()) if row.kind == SLOT}


def drop_slots(
    state: State, rows: Mapping[str, OperationRecord], *, ports: Ports,
    commit: Callable[[Commit], State],
) -> None:
    """Drop these slots on their servers and take them off the record, or note why not.

    A slot that no start of the source has made is somebody else's, and stays.
    """
    for key, row in rows.items():
        snapshots = _snapshots(row.detail["folder"])
        try:
            if any(store.exists(SNAPSHOT_ATTEMPT) for store in snapshots):
                connection = resolved_connection(state, row.target, resolve=ports.resolve)
                ports.databases.drop_slot(
                    connection, row.detail["slot"], upstream=row.detail["upstream"]
                )
            for store in snapshots:
                store.delete()
        except KeyError:
            reason = "its connection was dropped since"
        except CatalogMigrateError as error:
            reason = error.message
        else:
            commit(Commit(SLOT, (Delete("operation", key),)))
            continue
        if row.detail.get("reason") != reason:
            noted = msgspec.structs.replace(row, detail={**row.detail, "reason": reason})
            commit(Commit(SLOT, (Put("operation", key, noted),)))


def _snapshots(folder: str) -> list[Store]:
    """The folders of a source's snapshots and of its validation, beside its checkpoints."""
    beside = store_at(folder)
    try:
        return [
            store_at(beside.place(name)) for name in beside.folders()
            if name.startswith("snapshot") or name == VALIDATION
        ]
    except FileNotFoundError:
        return []


def describe_slots(state: State) -> tuple[str, ...]:
    """For ``status``: each slot that is still to be dropped, why it is there, and what to do."""
    return tuple(
        f"{row.detail['slot']} of the dropped source {row.detail['source']} keeps the log of its"
        f" server ({row.detail['server']})"
        + (f": {row.detail['reason']}" if "reason" in row.detail else ": its runtime drops it")
        + f"; by hand: SELECT pg_drop_replication_slot('{row.detail['slot']}')"
        for row in slots_to_drop(state).values()
    )
