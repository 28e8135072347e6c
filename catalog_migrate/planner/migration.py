"""What applying a plan needs beyond the plan: definitions, hashes, ids and projections."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import msgspec

from catalog_migrate.model.names import Identity
from catalog_migrate.model.objects import ObjectDefinition
from catalog_migrate.planner.plan import Action, Plan

if TYPE_CHECKING:
    from catalog_migrate.catalog.records import ColumnIds


class Segment(msgspec.Struct, frozen=True):
    """One shard (relative path) that a copy takes rows from.

    ``after`` None: every row of version ``upto``; else those appended after that version.
    ``upto`` None: as far as it goes when it is copied. ``projection`` as in :class:`Target`; None
    where the rows cannot be held: there must be none, unless they are ``left_out``.
    """

    path: str
    after: int | None
    upto: int | None
    projection: tuple[tuple[str, str], ...] | None
    left_out: bool = False


class Target(msgspec.Struct, frozen=True):
    """One object of the new state, changed or not.

    ``action`` is None for an unchanged object. ``old`` is the identity it has in the catalog now
    (None when it is new); ``uses`` are identities in the new state. ``contents`` says where a
    table's rows come from: ``none`` for a new retained table (a new, empty shard), for unchanged
    ones and for views; ``evolve`` and ``copy`` from the old shard; ``derived`` from the callback.
    ``keep`` (action migrate by impact only, or update in place) takes the old shard over untouched.
    ``projection`` holds, for a copy, (column, SQL expression over the OLD columns) in order.
    ``segments``, where there are any, say it shard by shard instead, the present one last (a table
    that goes back to an earlier shape, or comes back from a retired shard).
    ``reshape`` holds, for an ``evolve`` that renames, drops or moves columns, (column, column of
    OLD that it continues); what is in neither is added or dropped. Such a table has a projection
    too, for the case that it has to be copied after all. ``column_ids`` are there for a table.
    """

    definition: ObjectDefinition
    identity: Identity
    item_id: str
    global_id: str
    fingerprint: str
    definition_hash: str
    storage_hash: str
    text_hash: str
    comment_hash: str
    applied: tuple[str, ...]
    uses: tuple[Identity, ...]
    action: Action | None
    old: Identity | None
    contents: Literal["none", "keep", "evolve", "copy", "derived"] = "none"
    projection: tuple[tuple[str, str], ...] = ()
    segments: tuple[Segment, ...] = ()
    reshape: tuple[tuple[str, str], ...] = ()
    column_ids: ColumnIds | None = None


class Migration(msgspec.Struct, frozen=True):
    """A plan with everything needed to carry it out.

    ``targets`` are all objects of the new state in creation order; ``drops`` the identities that
    go, in ``plan.drops`` order and including those that come back; ``creates`` the identities of
    ``plan.creates``; ``next_item`` and ``next_global`` the allocators' values after it.
    """

    plan: Plan
    targets: tuple[Target, ...]
    drops: tuple[Identity, ...]
    creates: tuple[Identity, ...]
    removed: tuple[Identity, ...]
    next_item: int
    next_global: int
    manifest_hash: str
