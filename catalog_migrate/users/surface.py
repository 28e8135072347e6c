"""What users' objects can read of ours at one time: columns of relations, and functions. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from catalog_migrate.engine.port import FunctionSpec, function_spec
from catalog_migrate.model.names import Identity, ItemName
from catalog_migrate.model.objects import REGISTERED_KINDS, Column, ObjectDefinition

if TYPE_CHECKING:
    from catalog_migrate.catalog.state import State
    from catalog_migrate.planner.plan import Migration


class Relation(msgspec.Struct, frozen=True):
    """A table or view: its name as written, and its columns."""

    name: ItemName
    columns: tuple[Column, ...]


class Surface(msgspec.Struct, frozen=True):
    """Every relation and function of ours by identity, and what each function uses."""

    relations: Mapping[Identity, Relation]
    functions: Mapping[Identity, FunctionSpec]
    uses: Mapping[Identity, tuple[Identity, ...]]

    def __contains__(self, identity: object) -> bool:
        return identity in self.relations or identity in self.functions

    def differing(self, other: Surface) -> frozenset[Identity]:
        """What is in one alone, or has other columns, arguments or another body in the other."""
        return frozenset(
            identity
            for identity in {*self.relations, *self.functions, *other.relations, *other.functions}
            if self.relations.get(identity) != other.relations.get(identity)
            or self.functions.get(identity) != other.functions.get(identity)
        )


def surface_in_force(state: State) -> Surface:
    """Return the shapes of all that is registered for a state."""
    return _surface(
        (item.definition, state.graph.uses(item.definition.identity))
        for item in state.items.values() if item.quarantined is None
    )


def surface_after(state: State, migration: Migration) -> Surface:
    """The shapes once a migration of ``state`` is in force; other owners' objects stay."""
    replaced = {target.item_id for target in migration.targets}
    removed = {*migration.removed}
    kept = (
        (item.definition, state.graph.uses(item.definition.identity))
        for item_id, item in state.items.items()
        if item.quarantined is None and item_id not in replaced
        and item.definition.identity not in removed
    )
    made = ((target.definition, target.uses) for target in migration.targets)
    return _surface([*kept, *made])


def _surface(found: Iterable[tuple[ObjectDefinition, Sequence[Identity]]]) -> Surface:
    relations: dict[Identity, Relation] = {}
    functions: dict[Identity, FunctionSpec] = {}
    uses: dict[Identity, tuple[Identity, ...]] = {}
    for definition, used in found:
        if definition.kind not in REGISTERED_KINDS:
            continue
        identity = definition.identity
        if definition.kind == "function":
            functions[identity] = replace(function_spec(definition, {}), comment=None)
            uses[identity] = tuple(used)
        else:
            relations[identity] = Relation(
                definition.item_name,
                tuple(Column(c.name, c.type, c.nullable) for c in definition.columns),
            )
    return Surface(relations, functions, uses)
