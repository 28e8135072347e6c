"""The difference between the desired and the observed world, as ordered steps (pure)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

import msgspec

from catalog_migrate.catalog.records import identity_text
from catalog_migrate.catalog.state import State
from catalog_migrate.engine.port import Registration
from catalog_migrate.model.names import Identity, namespace_of
from catalog_migrate.model.paths import without_placeholder
from catalog_migrate.reconciler.desired import PREFIX, DesiredName
from catalog_migrate.reconciler.execution_context import relative

FORMER = "former"
"""Setting: what the installation was before it was moved or copied, as JSON."""

DriftKind = Literal["missing", "different", "leftover", "foreign"]


class Drift(msgspec.Struct, frozen=True):
    """One name where the world is not what is committed, and what mends it."""

    kind: DriftKind
    name: str
    reason: str
    remedy: str


class Actions(msgspec.Struct, frozen=True):
    """Drops and creates in waves, names of others that are in the way, and it all in words.

    ``replaced`` has what stands there of a view or function in an earlier form, by item id.
    """

    drops: tuple[tuple[Registration, ...], ...]
    waves: tuple[tuple[DesiredName, ...], ...]
    foreign: tuple[Registration, ...]
    drift: tuple[Drift, ...]
    replaced: Mapping[str, Registration] = msgspec.field(default_factory=dict)

    @property
    def empty(self) -> bool:
        """Whether the world is what is committed."""
        return not (self.drops or self.waves or self.foreign)


def is_ours(state: State, warehouse: str, registration: Registration) -> bool:
    """Whether a registration was made by this catalog (DESIGN section 3, *ours*)."""
    if registration.kind == "table":
        if registration.location is None:
            return False
        return shard_at(state, warehouse, registration.location) is not None
    return registration.properties.get(PREFIX + "lineage") in (state.lineage, *former(state)[1])


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
    """Whether a registration of ours is exactly what is desired under its name."""
    if desired.kind != registration.kind:
        return False
    if desired.kind == "table":
        # a managed name would take its rows along when it is dropped one day
        return registration.location is not None and not registration.managed and (
            desired.location in (relative(warehouse, registration.location), registration.location)
        )
    return all(
        registration.properties.get(key) == value
        for key, value in _stamps(desired).items()
    ) and _reads_as(desired, registration.text)


def _reads_as(desired: DesiredName, text: str | None) -> bool:
    """Whether a view's stored text is the committed one: ALTER VIEW AS keeps our stamps.

    Spark drops comments at either end, and the engine puts casts around a body whose types are
    not the contract's, so it is the tokens that are compared, of the body and of ``(body) AS
    body (...)``.
    """
    if desired.view is None or text is None or text == desired.view.sql:
        return True
    from catalog_migrate.sql.tokens import tokenise

    body = [token.value for token in tokenise(desired.view.sql.rstrip().rstrip(";"))]
    found = [token.value for token in tokenise(text)]
    inside = "\0".join(["(", *body, ")", "as", "body", "("])
    return body == found or inside in "\0".join(found)


def _stamps(desired: DesiredName) -> Mapping[str, str]:
    spec = desired.view or desired.function
    if spec is None:
        return {}
    return {key: value for key, value in spec.properties.items() if key.startswith(PREFIX)}


def decide(
    state: State,
    desired: Mapping[Identity, DesiredName],
    observed: Iterable[Registration],
    warehouse: str,
) -> Actions:
    """What to do, from the two worlds.

    Drops go by tombstone order (the OLD graph's reverse topological order); what has no tombstone
    (drift) goes by the reverse of the NEW order, before its tombstoned parents. A view of the same
    id is replaced in place, never dropped first.
    """
    standing: dict[Identity, Registration] = {}
    foreign: list[Registration] = []
    drops: list[Registration] = []
    drift: list[Drift] = []
    create: dict[str, DesiredName] = {}
    replaced: dict[str, Registration] = {}
    for registration in observed:
        folded = registration.name.folded
        identity = (namespace_of(registration.kind), folded[0], folded[1])
        wanted = desired.get(identity)
        if not is_ours(state, warehouse, registration):
            if wanted is not None:
                foreign.append(registration)
                drift.append(_foreign(registration))
            continue
        if wanted is not None and matches(wanted, registration, warehouse):
            standing[identity] = registration
        elif wanted is not None and _replaceable(wanted, registration):
            replaced[wanted.item_id] = registration
            drift.append(
                Drift("different", str(wanted.name), "its definition is not the committed one",
                      "catalog-migrate drift --repair")
            )
        else:
            drops.append(registration)
            drift.append(
                Drift("leftover" if wanted is None else "different", str(registration.name),
                      "nothing committed has this name" if wanted is None
                      else f"it points at {registration.location or 'an earlier definition'}",
                      "catalog-migrate drift --repair")
            )
    in_the_way = {
        (namespace_of(r.kind), *r.name.folded) for r in foreign
    }
    mentioned = {entry.name for entry in drift}
    for identity, wanted in desired.items():
        if identity in standing or identity in in_the_way:
            continue
        create[wanted.item_id] = wanted
        if str(wanted.name) not in mentioned:
            drift.append(
                Drift("missing", str(wanted.name), "the name is not registered",
                      "catalog-migrate drift --repair")
            )
    return Actions(
        drops=_drop_waves(state, desired, drops),
        waves=waves(create, {name.item_id: name for name in desired.values()}),
        foreign=tuple(foreign),
        drift=tuple(sorted(drift, key=lambda entry: (entry.name, entry.kind))),
        replaced=replaced,
    )


def _foreign(registration: Registration) -> Drift:
    return Drift(
        "foreign", str(registration.name),
        f"a {registration.kind} that is not ours stands there",
        f"rename or drop {registration.name.sql} yourself; it is never replaced",
    )


def _replaceable(wanted: DesiredName, registration: Registration) -> bool:
    """Same kind and same id: CREATE OR REPLACE keeps the name there all the time."""
    return (
        wanted.kind == registration.kind
        and wanted.kind != "table"
        and registration.properties.get(PREFIX + "id") == wanted.global_id
    )


def _drop_waves(
    state: State, desired: Mapping[Identity, DesiredName], drops: Sequence[Registration]
) -> tuple[tuple[Registration, ...], ...]:
    levels = _tombstone_levels(state)
    depth: dict[Identity, int] = {}
    if any(_identity(registration) not in levels for registration in drops):
        for level, wave in enumerate(waves({name.item_id: name for name in desired.values()})):
            depth.update({name.identity: level for name in wave})
    # drift first (deepest views before what they may read), then tombstones, oldest serial first
    grouped: dict[tuple[int, int, int], list[Registration]] = {}
    for registration in drops:
        identity = _identity(registration)
        if identity in levels:
            key = (1, *levels[identity])
        else:
            key = (0, -depth.get(identity, 0), _DROP_RANK[registration.kind])
        grouped.setdefault(key, []).append(registration)
    return tuple(
        tuple(sorted(grouped[key], key=lambda registration: registration.name.folded))
        for key in sorted(grouped)
    )


_DROP_RANK = {"view": 0, "table": 1, "function": 2}


def _tombstone_levels(state: State) -> dict[Identity, tuple[int, int]]:
    """(serial, longest path of users above it in the OLD graph) for every tombstoned name."""
    levels: dict[Identity, tuple[int, int]] = {}
    by_text: dict[tuple[int, str], int] = {}
    for tombstone in state.tombstones:  # in work order: users come before what they use
        identity = (
            namespace_of(tombstone.kind), tombstone.schema.lower(), tombstone.name.lower()
        )
        above = [by_text.get((tombstone.serial, user), -1) for user in tombstone.users]
        level = max(above, default=-1) + 1
        by_text[tombstone.serial, identity_text(identity)] = level
        levels.setdefault(identity, (tombstone.serial, level))
    return levels


def _identity(registration: Registration) -> Identity:
    return namespace_of(registration.kind), *registration.name.folded


def waves(
    create: Mapping[str, DesiredName], standing: Mapping[str, DesiredName] | None = None
) -> tuple[tuple[DesiredName, ...], ...]:
    """Steps by longest path over what is created; within a wave nothing uses anything else.

    Paths lead through ``standing`` names too (all by item id, created ones may be among them): a
    view that stands cannot be read while what it reads is missing.
    """
    world = create if standing is None else {**standing, **create}
    level: dict[str, int] = {}
    for start in create:
        stack = [start]
        while stack:
            item_id = stack[-1]
            if item_id in level:
                stack.pop()
                continue
            parents = [use for use in world[item_id].uses if use in world and use != item_id]
            missing = [use for use in parents if use not in level]
            if missing:
                stack.extend(missing)
                continue
            level[item_id] = max((level[use] + (use in create) for use in parents), default=0)
            stack.pop()
    grouped: dict[int, list[DesiredName]] = {}
    for item_id, depth in level.items():
        if item_id not in create:
            continue
        grouped.setdefault(depth, []).append(create[item_id])
    return tuple(
        tuple(sorted(grouped[depth], key=lambda name: name.sort_key)) for depth in sorted(grouped)
    )
