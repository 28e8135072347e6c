"""What the world should be, derived from the committed state alone (pure)."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from catalog_migrate.catalog.records import ItemRecord, MappingRecord
from catalog_migrate.catalog.state import State
from catalog_migrate.engine.port import FunctionSpec, ShardSpec, ViewSpec
from catalog_migrate.model.names import Identity, ItemName
from catalog_migrate.model.objects import Column, ObjectDefinition

PREFIX = "catalog_migrate."
SHARD_KINDS = frozenset({"table", "source", "log"})
"""Kinds whose rows lie in a shard: all are tables to Spark."""
REGISTERED_KINDS = SHARD_KINDS | {"view", "function"}


class DesiredName(msgspec.Struct, frozen=True):
    """One name that should stand in Spark's catalog.

    ``location`` (tables) is a relative shard path; ``view`` / ``function`` hold the statement to
    issue. ``uses`` are the item ids that must be there first.
    """

    identity: Identity
    name: ItemName
    kind: str
    item_id: str
    global_id: str
    uses: tuple[str, ...]
    location: str | None = None
    view: ViewSpec | None = None
    function: FunctionSpec | None = None


def stamps(
    lineage: str, global_id: str, fingerprint: str, definition_hash: str, comment_hash: str
) -> dict[str, str]:
    """The properties by which a view or function of ours is recognised (DESIGN section 3)."""
    return {
        PREFIX + "lineage": lineage,
        PREFIX + "id": global_id,
        PREFIX + "fingerprint": fingerprint,
        PREFIX + "definition": definition_hash,
        PREFIX + "comment": comment_hash,
    }


def view_spec(definition: ObjectDefinition, properties: Mapping[str, str]) -> ViewSpec:
    """The statement of a view; user properties stand beside our stamps."""
    return ViewSpec(
        name=definition.item_name,
        columns=definition.columns,
        sql=definition.sql or "",
        comment=definition.comment,
        properties={**definition.properties, **properties},
    )


def function_spec(definition: ObjectDefinition, properties: Mapping[str, str]) -> FunctionSpec:
    """The statement of a SQL function."""
    returns: str | tuple[Column, ...] = definition.returns or "STRING"
    return FunctionSpec(
        name=definition.item_name,
        arguments=definition.arguments,
        returns=returns,
        body=definition.body or "",
        comment=definition.comment,
        properties=properties,
    )


def shard_spec(
    definition: ObjectDefinition, path: str, marks: Mapping[str, str] | None = None
) -> ShardSpec:
    """How a table's shard is created, or what it is evolved to; ``marks`` say whose it is."""
    return ShardSpec(
        path=path,
        columns=definition.columns,
        comment=definition.comment,
        partitioned_by=definition.partitioned_by,
        clustered_by=definition.clustered_by,
        checks=definition.checks,
        properties=definition.properties,
        stamps=marks or {},
    )


def desired_name(lineage: str, mapping: MappingRecord, item: ItemRecord) -> DesiredName | None:
    """The registration one item calls for; None for kinds without one and quarantined items."""
    if mapping.kind not in REGISTERED_KINDS or item.quarantined is not None:
        return None
    definition = item.definition
    properties = stamps(
        lineage, item.global_id, mapping.fingerprint, mapping.definition_hash, mapping.comment_hash
    )
    return DesiredName(
        identity=mapping.identity,
        name=definition.item_name,
        kind="table" if mapping.kind in SHARD_KINDS else mapping.kind,
        item_id=mapping.item_id,
        global_id=item.global_id,
        uses=item.uses,
        location=item.shard if mapping.kind in SHARD_KINDS else None,
        view=view_spec(definition, properties) if mapping.kind == "view" else None,
        function=function_spec(definition, properties) if mapping.kind == "function" else None,
    )


def desired_world(state: State) -> dict[Identity, DesiredName]:
    """All names that the committed state calls for, by identity."""
    world: dict[Identity, DesiredName] = {}
    lineage = state.lineage
    for mapping in state.mappings.values():
        name = desired_name(lineage, mapping, state.items[mapping.item_id])
        if name is not None:
            world[name.identity] = name
    return world


def desired_names_only(state: State) -> set[tuple[str, str]]:
    """The folded names of all relations: enough to see that nothing is missing.

    As in :func:`desired_world`, what is quarantined has none: a start would look for it in vain.
    """
    return {
        (mapping.schema.lower(), mapping.name.lower())
        for mapping in state.mappings.values()
        if (mapping.kind in SHARD_KINDS or mapping.kind == "view")
        and (mapping.owner in _ALWAYS_NAMED or state.items[mapping.item_id].quarantined is None)
    }


_ALWAYS_NAMED = frozenset({"release", "system"})
"""Owners whose objects are never quarantined: their items need not be decoded."""
