"""What a plan starts from: the objects in force with their ids and hashes, as plain values.

A baseline comes from a catalog's state, from another release (``diff``) or from nothing. The
planner reads only this, so that it knows neither the durable log nor the files of a release.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from catalog_migrate.model.hashes import restamp_decisions, restamp_storage
from catalog_migrate.model.names import Allocator, Identity
from catalog_migrate.planner.plan import Base

if TYPE_CHECKING:
    from catalog_migrate.catalog.records import ColumnIds, Owner
    from catalog_migrate.catalog.state import State
    from catalog_migrate.model.objects import Hashes, ObjectDefinition
    from catalog_migrate.release.release import Release


class BaselineObject(msgspec.Struct, frozen=True):
    """One object in force; ``uses`` are the identities that it reads or uses.

    ``column_ids`` are a table's, None where they are not on record.
    """

    definition: ObjectDefinition
    item_id: str
    global_id: str
    hashes: Hashes
    applied: tuple[str, ...] = ()
    uses: tuple[Identity, ...] = ()
    column_ids: ColumnIds | None = None


class Baseline(msgspec.Struct, frozen=True):
    """The old side of a plan.

    ``taken`` maps the names of other owners (users, our own built-ins) to their owner;
    ``next_item`` and ``next_global`` are the numbers that the allocators hand out next;
    ``record_format`` is the catalog's, None without one.
    """

    objects: Mapping[Identity, BaselineObject] = msgspec.field(default_factory=dict)
    taken: Mapping[Identity, str] = msgspec.field(default_factory=dict)
    next_item: int = 1
    next_global: int = 1
    base: Base = msgspec.field(default_factory=Base)
    record_format: int | None = None

    @classmethod
    def empty(cls) -> Baseline:
        """Return a catalog that holds nothing."""
        return cls()

    @classmethod
    def from_release(cls, release: Release, *, ordered: bool = True) -> Baseline:
        """Return a release as a fresh catalog would number it: i1.. and s1.. in creation order.

        Where no id will be told, because the release is compared with itself, ``ordered`` False
        spares the sorting.

        Raises :class:`DependencyCycle` when its objects use each other in
        a circle.
        """
        from catalog_migrate.release.release import facts_of

        items, ids = Allocator("i"), Allocator("s")
        objects: dict[Identity, BaselineObject] = {}
        order = release.graph.topological() if ordered else tuple(release.by_identity)
        for identity in order:
            definition = release.by_identity[identity]
            facts = facts_of(definition)
            objects[identity] = BaselineObject(
                definition=definition,
                item_id=items.allocate(),
                global_id=ids.allocate(),
                hashes=facts.hashes,
                applied=tuple(sorted(set(facts.decisions.values()))),
                uses=tuple(release.uses.get(identity, ())),
            )
        return cls(
            objects=objects,
            next_item=items.next_value,
            next_global=ids.next_value,
            base=Base(release=release.name),
        )

    @classmethod
    def from_state(
        cls, state: State, *, owner: Owner = "release", uri: str | None = None
    ) -> Baseline:
        """Return the objects of ``owner`` in a catalog's state; ``uri`` is the catalog's address.

        Edges to items that are gone (a quarantined user's object) are left out.
        """
        identities = {record.item_id: record.identity for record in state.mappings.values()}
        items = state.items
        objects: dict[Identity, BaselineObject] = {}
        taken: dict[Identity, str] = {}
        for mapping in state.mappings.values():
            identity = identities[mapping.item_id]
            if mapping.owner != owner:
                taken[identity] = mapping.owner
                continue
            item, hashes = items[mapping.item_id], mapping.hashes
            if item.definition.checks or _is_generated(item.definition):
                hashes = hashes._replace(
                    storage=restamp_storage(hashes.storage, item.definition)
                )
            objects[identity] = BaselineObject(
                definition=item.definition,
                item_id=mapping.item_id,
                global_id=mapping.global_id,
                hashes=hashes,
                applied=restamp_decisions(mapping.applied, item.definition)
                if mapping.applied else (),
                uses=tuple(identities[used] for used in item.uses if used in identities),
                column_ids=item.column_ids,
            )
        return replace(
            cls.outline(state, owner=owner, uri=uri), objects=objects, taken=taken
        )

    @classmethod
    def outline(
        cls, state: State, *, owner: Owner = "release", uri: str | None = None
    ) -> Baseline:
        """:meth:`from_state` without the objects: what a plan is based on, and the counters."""
        in_force = state.release_in_force(owner)
        allocators = state.allocators
        return cls(
            next_item=allocators["i"].next if "i" in allocators else 1,
            next_global=allocators["s"].next if "s" in allocators else 1,
            base=Base(
                catalog=uri,
                lineage=state.lineage,
                serial=state.serial,
                release=in_force.name if in_force is not None else None,
            ),
            record_format=int(state.setting("format_version")),
        )


def _is_generated(definition: ObjectDefinition) -> bool:
    return any(column.generated is not None for column in definition.columns)
