"""What a catalog says of itself: what is in force and pending, and one object in full."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from catalog_migrate.catalog.process import proven_dead
from catalog_migrate.catalog.records import (
    LeaseRecord,
    SessionRecord,
    UserObjectRecord,
    identity_text,
)
from catalog_migrate.errors import UnknownObject, suggest
from catalog_migrate.model.names import parse_reference, quote_part
from catalog_migrate.model.paths import shard_location

if TYPE_CHECKING:
    from catalog_migrate.catalog.state import State
    from catalog_migrate.planner.missing_data import MissingData
    from catalog_migrate.streams.ddl.show import StalledQuery
    from catalog_migrate.streams.positions.audit import Unseen


class Status(msgspec.Struct, frozen=True):
    """What is in force and what is still to be done.

    ``pending`` counts the entries of ``work``: 0 means reconciled. ``failure`` is the step that
    the last reconciliation could not take (step, condition, reason, attempts), or None. ``lease``
    is the migration lease's row, None when nobody ever took it. ``unsafe`` are unsafe operations
    that nobody has acknowledged. ``sessions`` are processes that may
    live, by id, in the order of their starts. ``refused`` are definitions that go on as they are
    and that no CREATE takes any more. ``still`` are sources and sinks that do not run,
    ``gone`` tables (or the warehouse) that are not where their rows should be, ``slots``
    replication slots of dropped sources that are still to be dropped, in words, ``earlier`` sources
    that read as the version that created them did. ``users`` are views and functions of users that
    read ours and are broken, or could not be bound when they were looked at last.
    """

    release: str | None
    serial: int
    lineage: str
    pending: int
    work: tuple[str, ...]
    failure: dict[str, str] | None
    lease: LeaseRecord | None
    objects: int
    unfilled: tuple[str, ...]
    warehouse: str
    history: tuple[tuple[str, int, bool], ...]
    unsafe: tuple[Unseen, ...] = ()
    refused: tuple[str, ...] = ()
    sessions: tuple[tuple[str, SessionRecord], ...] = ()
    still: tuple[StalledQuery, ...] = ()
    gone: tuple[MissingData, ...] = ()
    slots: tuple[str, ...] = ()
    earlier: tuple[str, ...] = ()
    users: tuple[UserObjectRecord, ...] = ()

    @property
    def holder_ended(self) -> bool:
        """Whether the process that holds the lease is known to have ended."""
        return self.lease is not None and bool(self.lease.holder) and proven_dead(self.lease)


def status_of(state: State, *, gone: tuple[MissingData, ...] = ()) -> Status:
    """Return the status of a state; ``gone`` are tables whose rows are not where they should be."""
    from catalog_migrate.catalog.records import RECONCILE
    from catalog_migrate.migrations.reconcile import list_pending_work

    in_force = state.release_in_force("release")
    pending = tuple(list_pending_work(state))
    last = state.operations.get(RECONCILE)
    failed = last if last is not None and last.state == "failed" else None
    return Status(
        release=in_force.name if in_force is not None else None,
        serial=state.serial,
        lineage=state.lineage,
        pending=len(pending),
        work=pending,
        failure=dict(failed.detail) if failed is not None else None,
        lease=state.leases.get("migration"),
        objects=sum(m.owner != "system" for m in state.mappings.values()),
        unfilled=state.unfilled_tables,
        warehouse=state.config["warehouse"].value,
        history=tuple(
            (row.name, row.serial, row.in_force)
            for row in state.releases if row.owner == "release"
        ),
        sessions=tuple(sorted(
            ((key, row) for key, row in state.sessions.items() if not proven_dead(row)),
            key=lambda pair: pair[1].since,
        )),
        gone=gone,
        users=state.unbound_user_objects,
        **_facts_of_streams(state),
    )


def _facts_of_streams(state: State) -> dict[str, Any]:
    """The fields of a status about streams; nothing is imported where there are none."""
    kinds = {row.kind for row in state.mappings.values()}
    found: dict[str, Any] = {}
    if "connection" in kinds:
        from catalog_migrate.streams.catalog.accepted import describe_refused

        found["refused"] = describe_refused(state)
    if "cluster" in kinds:
        from catalog_migrate.streams.ddl.show import stalled_queries

        found["still"] = stalled_queries(state)
    if "source" in kinds:
        from catalog_migrate.streams.catalog.earlier_options import describe_earlier

        found["earlier"] = describe_earlier(state)
    if any(row.kind == "slot" for row in state.operations.values()):
        from catalog_migrate.streams.runtime.slots import describe_slots

        found["slots"] = describe_slots(state)
    if any(row.unsafe is not None for row in state.operations.values()):
        from catalog_migrate.streams.positions.audit import unseen

        found["unsafe"] = unseen(state)
    return found


def describe_object(state: State, name: str) -> dict[str, Any]:
    """One object; see :meth:`~catalog_migrate.api.catalog.Catalog.show`."""
    key = identity_text(parse_reference(name))
    mapping = state.mappings.get(key)
    if mapping is None:
        if key in state.user_objects:
            return _describe_user_object(state, state.user_objects[key])
        raise unknown_object(state, name)
    item = state.items[mapping.item_id]
    by_item = {m.item_id: str(m.key) for m in state.mappings.values()}
    used_by = sorted(
        by_item[item_id] for item_id, other in state.items.items()
        if mapping.item_id in other.uses and item_id in by_item
    )
    warehouse = state.config["warehouse"].value
    definition = item.definition
    return {
        "name": str(mapping.key),
        "kind": mapping.kind,
        "owner": mapping.owner,
        "item_id": mapping.item_id,
        "id": mapping.global_id,
        "fingerprint": mapping.fingerprint,
        "definition_hash": mapping.definition_hash,
        "columns": [
            {"name": c.name, "type": c.type, "nullable": c.nullable, "comment": c.comment}
            for c in definition.columns
        ],
        "checks": [{"name": c.name, "expression": c.expression} for c in definition.checks],
        "depends_on": sorted(by_item[use] for use in item.uses if use in by_item),
        "used_by": used_by,
        "users_objects": _readers(state, key),
        "location": shard_location(warehouse, item.shard) if item.shard is not None else None,
        "contents": definition.contents if mapping.kind == "table" else None,
        "comment": definition.comment,
        "sql": definition.sql,
        "filled_from": definition.filled_from,
    }


def _describe_user_object(state: State, record: UserObjectRecord) -> dict[str, Any]:
    """A user's view or function that reads ours, as of the newest look."""
    names = {key: str(row.key) for key, row in state.user_objects.items()}
    names |= {key: str(row.key) for key, row in state.mappings.items()}
    return {
        "name": str(record.key),
        "kind": record.kind,
        "owner": "user",
        "item_id": None,
        "id": None,
        "columns": [],
        "depends_on": sorted(names[key] for key in record.reads if key in names),
        "used_by": [],
        "users_objects": _readers(state, identity_text(record.key.identity)),
        "state": record.state,
        "condition": record.condition,
        "reason": record.reason,
        "release": record.release,
        "since": record.since,
        "original": record.original,
        "repaired": record.repaired if record.original is not None else None,
    }


def _readers(state: State, key: str) -> list[str]:
    """Users' objects that read an object directly."""
    return sorted(str(row.key) for row in state.user_objects.values() if key in row.reads)


def unknown_object(state: State, name: str) -> UnknownObject:
    """Return the error for a name that nothing has, with the nearest names."""
    names = [str(row.key) for row in state.mappings.values()]
    names += [str(row.key) for row in state.user_objects.values()]
    return UnknownObject(
        f"nothing in this catalog is called {name}",
        remedy=suggest(
            name, names, f"names are written {quote_part('schema')}.name; see `catalog-migrate"
            " graph`, and `catalog-migrate status --users`, which looks for users' views", most=3,
        ),
    )
