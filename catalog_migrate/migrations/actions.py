"""The desired world, derived from the committed state alone, and its difference from the observed.

All of it is pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Literal

import msgspec

from catalog_migrate.catalog.records import (
    ItemRecord,
    MappingRecord,
    TombstoneRecord,
)
from catalog_migrate.catalog.state import State
from catalog_migrate.engine.port import (
    FunctionSpec,
    Registration,
    ShardSpec,
    ViewSpec,
    function_spec,
)
from catalog_migrate.migrations.execution_context import relative
from catalog_migrate.model.hashes import is_present
from catalog_migrate.model.names import Identity, ItemName, identity_of
from catalog_migrate.model.objects import REGISTERED_KINDS, SHARD_KINDS, ObjectDefinition
from catalog_migrate.model.paths import without_placeholder
from catalog_migrate.release.release import is_same_definition
from catalog_migrate.release.validation import SYSTEM_SCHEMA
from catalog_migrate.store.address import is_remote, is_same_place

PREFIX = "catalog_migrate."
DEFINITION = PREFIX + "definition"


class DesiredName(msgspec.Struct, frozen=True):
    """One name that should stand in Spark's catalog.

    ``location`` (tables) is a relative shard path; ``view`` / ``function`` hold the statement to
    issue, and ``definition`` is what they were made of. ``uses`` are the item ids that must be
    there first.
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
    definition: ObjectDefinition | None = None


def stamps(
    lineage: str, global_id: str, fingerprint: str, definition_hash: str, comment_hash: str
) -> dict[str, str]:
    """The properties by which a view or function of ours is recognised."""
    return {
        PREFIX + "lineage": lineage,
        PREFIX + "id": global_id,
        PREFIX + "fingerprint": fingerprint,
        DEFINITION: definition_hash,
        PREFIX + "comment": comment_hash,
    }


def view_spec(definition: ObjectDefinition, properties: Mapping[str, str]) -> ViewSpec:
    """Return the statement of a view; user properties stand beside our stamps."""
    return ViewSpec(
        name=definition.item_name,
        columns=definition.columns,
        sql=definition.sql or "",
        comment=definition.comment,
        properties={**definition.properties, **properties},
    )


def shard_spec(
    definition: ObjectDefinition, path: str, marks: Mapping[str, str] | None = None,
    unset: Sequence[str] = (),
) -> ShardSpec:
    """How a table's shard is created, or what it is evolved to.

    ``marks`` say whose it is, ``unset`` which properties it loses.
    """
    return ShardSpec(
        path=path,
        columns=definition.columns,
        comment=definition.comment,
        partitioned_by=definition.partitioned_by,
        clustered_by=definition.clustered_by,
        checks=definition.checks,
        properties=definition.properties,
        stamps=marks or {},
        unset=unset,
    )


def find_desired_name(lineage: str, mapping: MappingRecord, item: ItemRecord) -> DesiredName | None:
    """The registration one item calls for; None for kinds without one and quarantined items."""
    if mapping.kind not in REGISTERED_KINDS or item.quarantined is not None:
        return None
    definition = item.definition
    properties = stamps(
        lineage, item.global_id, mapping.fingerprint, mapping.definition_hash, mapping.comment_hash
    )
    return DesiredName(
        identity=mapping.identity,
        name=ItemName(definition.schema, definition.name),
        kind="table" if mapping.kind in SHARD_KINDS else mapping.kind,
        item_id=mapping.item_id,
        global_id=item.global_id,
        uses=item.uses,
        location=item.shard if mapping.kind in SHARD_KINDS else None,
        view=view_spec(definition, properties) if mapping.kind == "view" else None,
        function=function_spec(definition, properties) if mapping.kind == "function" else None,
        definition=definition,
    )


def find_desired_names(state: State) -> dict[Identity, DesiredName]:
    """Return all names that the committed state calls for, by identity."""
    world: dict[Identity, DesiredName] = {}
    lineage = state.lineage
    for mapping in state.mappings.values():
        name = find_desired_name(lineage, mapping, state.items[mapping.item_id])
        if name is not None:
            world[name.identity] = name
    return world


def find_desired_keys(state: State) -> set[tuple[str, str]]:
    """Return the folded names of all relations: enough to see that nothing is missing.

    As in :func:`find_desired_names`, what is quarantined has none: no start makes it.
    """
    return {
        (mapping.schema.lower(), mapping.name.lower())
        for mapping in state.mappings.values()
        if (mapping.kind in SHARD_KINDS or mapping.kind == "view")
        and (mapping.owner in _ALWAYS_NAMED or state.items[mapping.item_id].quarantined is None)
    }


_ALWAYS_NAMED = frozenset({"release", "system"})
"""Owners whose objects are never quarantined: their items need not be decoded."""


OWN_VIEWS = "own_views"
"""Setting: the schema that our own views are to be in, where a relocation moves them."""
FORMER = "former"
"""Setting: what the installation was before it was moved or copied, as JSON."""

DriftKind = Literal["missing", "different", "leftover", "foreign"]


class Drift(msgspec.Struct, frozen=True):
    """One name where the world is not what is committed, and what repairs it.

    ``object`` is the kind of what has the name, or is to have it.
    """

    kind: DriftKind
    name: str
    reason: str
    remedy: str
    object: str = ""


class Difference(msgspec.Struct, frozen=True):
    """Where the names in Spark's catalog are not what is ``desired``, and it all in words.

    ``drops`` are names of ours that go, ``replaced`` those that get another definition under their
    id, ``missing`` those that are to come; ``foreign`` are names of others that are in the way.
    ``held_views`` is there where another installation has its own views in the schema of ours,
    which are left out then.
    """

    desired: Mapping[Identity, DesiredName]
    drops: Mapping[Identity, Registration]
    replaced: Mapping[Identity, Registration]
    missing: frozenset[Identity]
    foreign: tuple[Registration, ...]
    drift: tuple[Drift, ...]
    held_views: Drift | None = None


def is_ours(state: State, warehouse: str, registration: Registration) -> bool:
    """Return whether a registration was made by this catalog.

    A table is recognised by its location, a shard path that was handed out: Delta keeps a table's
    properties in the shard. Anything else by the catalog id in its properties.
    """
    if registration.kind == "table":
        if registration.location is None:
            return False
        return shard_at(state, warehouse, registration.location) is not None
    return registration.properties.get(PREFIX + "lineage") in (state.lineage, *former(state)[1])


def own_views_place(state: State) -> str | None:
    """Return the schema that our own views are in, or are to move to; None while they have none."""
    chosen = state.config.get(OWN_VIEWS)
    if chosen is not None:
        return chosen.value
    if not state.has_owner("system"):
        return None
    return next(mapping.schema for mapping in state.mappings.values() if mapping.owner == "system")


def shard_at(state: State, warehouse: str, location: str) -> str | None:
    """The path of the shard that lies at a location, or lay there before the warehouse moved."""
    location = without_placeholder(location)
    if location in state.shards and not (
        state.shards[location].state == "gone" and location in originals(state)
    ):
        return location  # adopted: it stays where it lay
    for place in (warehouse, *former(state)[0]):
        path = relative(place, location)
        if path is not None and path in state.shards:
            return path
    return None


def former(state: State) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """(warehouses, lineages) that this installation had before it was moved or copied."""
    decoded = _former(state)
    return decoded.get("warehouses", ()), decoded.get("lineages", ())


def originals(state: State) -> tuple[str, ...]:
    """Directories that the installation which this one is a copy of has adopted: not ours."""
    return _former(state).get("originals", ())


def _former(state: State) -> dict[str, tuple[str, ...]]:
    record = state.config.get(FORMER)
    if record is None:
        return {}
    return msgspec.json.decode(record.value, type=dict[str, tuple[str, ...]])


def matches(desired: DesiredName, registration: Registration, warehouse: str) -> bool:
    """Return whether a registration of ours is exactly what is desired under its name."""
    if desired.kind != registration.kind:
        return False
    if desired.kind == "table":
        # a managed name would take its rows along when it is dropped one day
        location = registration.location
        return location is not None and not registration.managed and (
            desired.location in (relative(warehouse, location), location)
            or (is_remote(location) and is_same_place(desired.location or "", location))
        )
    return all(
        registration.properties.get(key) == value
        or (key == DEFINITION and _is_defined_by(desired, registration.properties.get(key), value))
        for key, value in _stamps(desired).items()
    ) and _reads_as(desired, registration.text)


def _is_defined_by(desired: DesiredName, stamp: str | None, wanted: str) -> bool:
    """Whether a stamp of the present scheme is of the definition that is stored under another."""
    definition = desired.definition
    return definition is not None and stamp is not None and is_present(stamp) and (
        is_same_definition(stamp, definition, wanted, definition)
    )


def _reads_as(desired: DesiredName, text: str | None) -> bool:
    """Whether a view's stored text is the committed one: ALTER VIEW AS keeps our stamps.

    Spark drops comments at either end, and the engine puts casts around a body whose types are
    not the contract's, so it is the tokens that are compared, of the body and of ``(body) AS
    body (...)``.
    """
    if desired.view is None or text is None or text == desired.view.sql:
        return True
    from catalog_migrate.sql.tokens import escape_doubled_quotes, tokenise

    wanted = escape_doubled_quotes(desired.view.sql.rstrip().rstrip(";"))
    body = [token.text for token in tokenise(wanted, hints=True)]
    found = [token.text for token in tokenise(escape_doubled_quotes(text), hints=True)]
    inside = "\0".join(["(", *body, ")", "AS", "body", "("])
    return body == found or inside in "\0".join(found)


def _stamps(desired: DesiredName) -> Mapping[str, str]:
    spec = desired.view or desired.function
    if spec is None:
        return {}
    return {key: value for key, value in spec.properties.items() if key.startswith(PREFIX)}


def difference(
    state: State,
    desired: Mapping[Identity, DesiredName],
    observed: Iterable[Registration],
    warehouse: str,
) -> Difference:
    """Return what is to be done, from the two worlds.

    A view or function of the same id is replaced, so that its name is there all the time, unless a
    tombstone wants it dropped. None of our own views is put beside those of another installation:
    it would read them.
    """
    whose = [(each, is_ours(state, warehouse, each)) for each in observed]
    held_views = _find_other_views(state, [each for each, ours in whose if not ours])
    if held_views is not None:
        desired = _without_own(state, desired)
    foreign = {
        identity: each for each, ours in whose
        if not ours and (identity := _identity(each)) in desired
    }
    found, drift = _judge_all(state, desired, [each for each, ours in whose if ours], warehouse)
    drift += [*map(_foreign, foreign.values()), *filter(None, [held_views])]
    missing = desired.keys() - (
        found["standing"].keys() | foreign.keys() | found["replaced"].keys()
    )
    drift += _missing(desired, missing, {entry.name for entry in drift})
    return Difference(
        desired, found["dropped"], found["replaced"], frozenset(missing),
        foreign=tuple(foreign.values()),
        drift=tuple(sorted(drift, key=lambda entry: (entry.name, entry.kind))),
        held_views=held_views,
    )


def _without_own(
    state: State, desired: Mapping[Identity, DesiredName]
) -> dict[Identity, DesiredName]:
    own = {mapping.identity for mapping in state.mappings.values() if mapping.owner == "system"}
    return {identity: name for identity, name in desired.items() if identity not in own}


def _judge_all(
    state: State, desired: Mapping[Identity, DesiredName], ours: Iterable[Registration],
    warehouse: str,
) -> tuple[dict[str, dict[Identity, Registration]], list[Drift]]:
    """Registrations of ours by what becomes of them, and in words why."""
    found: dict[str, dict[Identity, Registration]] = {"standing": {}, "replaced": {}, "dropped": {}}
    drift: list[Drift] = []
    to_drop = {identity_of_tombstone(each): each.global_id for each in state.tombstones}
    for registration in ours:
        identity = _identity(registration)
        what, entry = _judge(desired.get(identity), registration, warehouse)
        if what == "replaced" and to_drop.get(identity) == desired[identity].global_id:
            what = "dropped"
        found[what][identity] = registration
        drift += filter(None, [entry])
    return found, drift


def _missing(
    desired: Mapping[Identity, DesiredName], missing: Iterable[Identity], mentioned: set[str]
) -> Iterator[Drift]:
    for identity in missing:
        name, kind = str(desired[identity].name), desired[identity].kind
        if name not in mentioned:
            yield Drift("missing", name, "the name is not registered", _REPAIR, kind)


_REPAIR = "catalog-migrate drift --repair"


def _judge(
    wanted: DesiredName | None, registration: Registration, warehouse: str
) -> tuple[str, Drift | None]:
    """What becomes of a registration of ours, and in words why."""
    if wanted is not None and matches(wanted, registration, warehouse):
        return "standing", None
    if wanted is not None and _replaceable(wanted, registration):
        return "replaced", Drift(
            "different", str(wanted.name), "its definition is not the committed one", _REPAIR,
            wanted.kind,
        )
    name, kind = str(registration.name), registration.kind
    if wanted is None:
        return "dropped", Drift("leftover", name, "nothing committed has this name", _REPAIR, kind)
    where = registration.location or "an earlier definition"
    return "dropped", Drift("different", name, f"it points at {where}", _REPAIR, kind)


def _find_other_views(state: State, foreign: Iterable[Registration]) -> Drift | None:
    """Whether another installation has its own views where ours are, and what to do then."""
    for registration in foreign:
        lineage = registration.properties.get(PREFIX + "lineage")
        if lineage is None or not any(
            mapping.owner == "system" and mapping.schema == registration.name.schema.lower()
            for mapping in state.mappings.values()
        ):
            continue
        return Drift(
            "foreign", registration.name.schema,
            f"another installation (catalog id {lineage}) has its own views in this schema, so"
            " those of this one are not there",
            f"catalog-migrate relocate --own-views {SYSTEM_SCHEMA}_{state.lineage[:8]}, and start"
            " again: they move there for good",
            "schema",
        )
    return None


def _foreign(registration: Registration) -> Drift:
    return Drift(
        "foreign", str(registration.name),
        f"a {registration.kind} that is not ours has that name",
        f"rename or drop {registration.name.sql} yourself; it is never replaced",
        registration.kind,
    )


def _replaceable(wanted: DesiredName, registration: Registration) -> bool:
    """Same kind and same id: CREATE OR REPLACE keeps the name there all the time."""
    return (
        wanted.kind == registration.kind
        and wanted.kind != "table"
        and registration.properties.get(PREFIX + "id") == wanted.global_id
    )


def _identity(registration: Registration) -> Identity:
    return identity_of(registration.kind, *registration.name)


def identity_of_tombstone(tombstone: TombstoneRecord) -> Identity:
    return identity_of(tombstone.kind, tombstone.schema, tombstone.name)
