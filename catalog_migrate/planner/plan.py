"""The plan: the contract that is printed, saved, handed round and applied.

A migration is a plan with what applying it needs beyond: definitions, hashes, ids, projections.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from catalog_migrate.model.names import Identity, ItemKey, quote_part, split_name
from catalog_migrate.model.objects import Column, Hashes, ObjectDefinition
from catalog_migrate.operations.steps import Step

if TYPE_CHECKING:
    from catalog_migrate.catalog.records import ColumnIds

PLAN_FORMAT = "1.4"
"""1.1: ``steps`` is the whole program. 1.2: steps ``fill``, ``unseal`` and ``properties``, contents
``fill``, ``unproven`` and ``replaced``. 1.3: ``users``. 1.4: ``graph``, and of a change ``before``,
``after``, ``files``, ``seconds`` and ``copied_because``."""

Action = Literal["create", "drop", "migrate", "redefine", "update", "refresh", "restart"]
ACTIONS: tuple[Action, ...] = (
    "create", "drop", "migrate", "redefine", "update", "refresh", "restart"
)
Move = Literal["none", "evolve", "copy", "derived", "fill"]


class Base(msgspec.Struct, frozen=True):
    """What the plan starts from; all None where two releases are compared without a catalog."""

    catalog: str | None = None
    lineage: str | None = None
    serial: int | None = None
    release: str | None = None


class PlanTarget(msgspec.Struct, frozen=True):
    """What the plan leads to; ``serial`` is there when it goes back to what was then."""

    release: str
    manifest_hash: str | None = None
    serial: int | msgspec.UnsetType = msgspec.UNSET


class ColumnChange(msgspec.Struct, frozen=True):
    """One (column, change): a column both renamed and retyped has two entries."""

    change: Literal["added", "removed", "retyped", "renamed", "nullability", "moved"]
    name: str
    old_name: str | None = None
    old_type: str | None = None
    new_type: str | None = None
    old_nullable: bool | None = None
    new_nullable: bool | None = None


class OptionChange(msgspec.Struct, frozen=True):
    """A changed option of a connection, source or sink, or a table property."""

    name: str
    change: Literal["set", "drop", "reset"]
    old: str | None = None
    new: str | None = None


class Change(msgspec.Struct, frozen=True):
    """What happens to one object and why; ``because`` leads from the root cause to it.

    ``rows``, ``bytes`` and ``files`` (of data) are what it has now, ``seconds`` what copying them
    takes by the last copies of this catalog; None where unknown. ``copied_because`` says why
    a table that is copied is not changed in place. ``before`` and ``after`` are its
    definitions, None where it is absent and, both, where only what it depends on changes.
    """

    name: str
    kind: str
    action: Action
    old_name: str | None = None
    cause: Literal["self", "dependency"] | None = None
    because: tuple[str, ...] = ()
    item_id: str | None = None
    old_id: str | None = None
    new_id: str | None = None
    columns: tuple[ColumnChange, ...] = ()
    options: tuple[OptionChange, ...] = ()
    contents: Move = "none"
    rows: int | None = None
    bytes: int | None = None
    risk: str | None = None
    files: int | None = None
    seconds: float | None = None
    copied_because: tuple[str, ...] = ()
    before: ObjectDefinition | None = None
    after: ObjectDefinition | None = None


class GraphObject(msgspec.Struct, frozen=True, gc=False):
    """One object and what it uses before and after, as positions in ``Plan.graph``.

    ``old`` and ``new`` are None where it is absent before or after. ``name`` is the new one.
    """

    name: str
    kind: str
    old: tuple[int, ...] | None = None
    new: tuple[int, ...] | None = None


class Validation(msgspec.Struct, frozen=True):
    """One proof (a view bound, a name free) and its outcome."""

    name: str
    ok: bool
    reason: str | None = None


class Unparsed(msgspec.Struct, frozen=True):
    """An object with a text that cannot be parsed here, and why."""

    name: str
    kind: str
    reason: str


class Unproven(msgspec.Struct, frozen=True):
    """What of an object only Spark can prove, in words: its query, a CHECK with its expression."""

    name: str
    kind: str
    what: str


class Replaced(msgspec.Struct, frozen=True):
    """A view that is replaced under its name, and the views and functions that read it.

    On a metastore that is a drop and a create: the name is absent for a moment.
    """

    name: str
    readers: tuple[str, ...] = ()


class UserColumn(msgspec.Struct, frozen=True):
    """One column of a user's object whose type, nullability, place or meaning changes.

    ``old`` and ``new`` are types, ``NULL`` and ``NOT NULL``, positions from 1, or empty. ``cast``
    is a type that the view hides: its column keeps its own, and values of ``new`` are cast to it.
    """

    name: str
    change: Literal["added", "removed", "retyped", "cast", "nullability", "moved", "meaning"]
    old: str = ""
    new: str = ""


class UserObject(msgspec.Struct, frozen=True):
    """A view or SQL function of a user that reads what changes, and what becomes of it.

    ``because`` leads from the object of the release that changes to it. ``changed`` goes on with
    the ``columns`` named, or with other rows (``reason``). ``breaks`` and ``broken`` (it did not
    bind before either) have Spark's error class and the name that is ``missing``; ``remedy`` is
    what repairs it, ``repaired`` the text of its query that does. ``unknown`` could not be read or
    bound beforehand, for ``reason``.
    """

    name: str
    kind: Literal["view", "function"]
    outcome: Literal["unchanged", "changed", "breaks", "broken", "unknown"]
    because: tuple[str, ...] = ()
    columns: tuple[UserColumn, ...] = ()
    condition: str | None = None
    missing: str | None = None
    reason: str | None = None
    remedy: str | None = None
    repaired: str | None = None

    @property
    def key(self) -> ItemKey:
        """(schema, kind, name) as written; an entry ``unknown`` may be about a whole schema."""
        schema, name = split_name(self.name)
        return ItemKey(schema or "", self.kind, name)


class Question(msgspec.Struct, frozen=True):
    """A probable rename that is not guessed: what to write if it is one."""

    name: str
    old_name: str
    column: str | None
    remedy: str


class Blocked(msgspec.Struct, frozen=True):
    """One decision that is missing, with the text to write."""

    name: str
    code: str
    reason: str
    remedy: str
    column: str | None = None


class PointOfNoReturn(msgspec.Struct, frozen=True):
    """From when on there is no way back, what it is that is lost, and what that means in words.

    ``after`` is ``commit``: the values of the columns ``names`` go in place right after it; or
    ``retention``: the directories of the replaced tables ``names`` are kept for that long.
    ``kept`` are, beside columns that go in place, the tables of which the second is true.
    """

    after: Literal["commit", "retention"]
    names: tuple[str, ...]
    kept: tuple[str, ...] = ()
    meaning: str = ""


class Plan(msgspec.Struct, frozen=True):
    """A whole plan; ``plan_hash`` covers all but rows, bytes, tool version, address and times.

    ``steps`` is its program, in the order in which it is executed.
    ``approved`` are the approvals that the plan was made with, ``bound`` whether every view was
    bound by Spark's analyser. ``shipments`` says in words what becomes of the connections,
    sources and sinks that the release ships. ``point_of_no_return`` follows from the changes; None
    where no value ever goes. ``fenced_out`` says why the release may not be brought in force as the
    catalog is now, whatever the changes are; None when it may. ``unparsed`` are the objects of the
    release whose SQL neither the grammar of this tool nor Spark has read. ``locks_out`` says which
    older versions can no longer open the catalog behind the commit; None where none is locked out.
    ``unproven`` is what only Spark can prove and has not: empty once ``bound``. ``replaced`` are
    the views that are replaced under their names. ``users`` are the views and functions of users
    that read what changes: None where there may be some and the catalog was not looked at, UNSET
    where the plan is for no catalog that could have any. ``graph`` has every object before and
    after, by name; empty where nothing is to do, and in plans of format 1.3 and before.
    ``details_hash`` is that of a file: of what ``plan_hash`` leaves out of changes, and of the
    graph.
    """

    format_version: str
    tool_version: str
    plan_hash: str
    base: Base
    target: PlanTarget
    summary: dict[str, int]
    changes: tuple[Change, ...]
    drops: tuple[str, ...]
    creates: tuple[str, ...]
    steps: tuple[Step, ...]
    queries: tuple[dict[str, Any], ...] = ()
    validations: tuple[Validation, ...] = ()
    questions: tuple[Question, ...] = ()
    blocked: tuple[Blocked, ...] = ()
    approved: tuple[str, ...] = ()
    bound: bool = False
    applyable: bool = True
    shipments: tuple[str, ...] = ()
    point_of_no_return: PointOfNoReturn | None = None
    fenced_out: str | None = None
    unparsed: tuple[Unparsed, ...] = ()
    locks_out: str | None = None
    unproven: tuple[Unproven, ...] = ()
    replaced: tuple[Replaced, ...] = ()
    users: tuple[UserObject, ...] | msgspec.UnsetType | None = msgspec.UNSET
    graph: tuple[GraphObject, ...] = ()
    details_hash: str = ""

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to do."""
        return not self.changes

    @property
    def is_noop(self) -> bool:
        """Whether neither an object nor a bundled connection, source or sink changes."""
        return not self.changes and not self.shipments

    @property
    def only_release(self) -> bool:
        """Whether a way back changes no object and still puts another release in force."""
        goes_back = self.target.serial is not msgspec.UNSET
        return self.is_noop and goes_back and self.base.release != self.target.release


_AT_THE_COMMIT = (
    "The commit. Right after it the reconciler drops these columns in place, with their values,"
    " and from then on a rollback to a serial before it is refused (CM0340)."
)
_AFTER_RETENTION = (
    "When the old directories of these tables are removed: seven days after the commit. Until then"
    " a rollback takes their rows from there."
)


def point_of_no_return(changes: Sequence[Change]) -> PointOfNoReturn | None:
    """Until when a plan can be taken back: dropped columns in place go at once, tables later."""
    columns = tuple(
        f"{change.name}.{quote_part(column.name)}"
        for change in changes
        if change.contents == "evolve"
        for column in change.columns
        if column.change == "removed"
    )
    tables = tuple(
        change.old_name or change.name
        for change in changes
        if (change.contents in ("copy", "derived") and change.action != "create")
        or (change.kind == "table" and change.action == "drop")
    )
    if columns:
        return PointOfNoReturn("commit", columns, tables, _AT_THE_COMMIT)
    return PointOfNoReturn("retention", tables, (), _AFTER_RETENTION) if tables else None


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


class Fill(msgspec.Struct, frozen=True):
    """How a new table is filled from objects in force.

    ``query`` names them as they are in force, and ``objects`` has all that it reads and calls,
    directly or not, what is used first. ``counted`` is the table that it takes every row of, where
    that is seen from its text.
    """

    query: str
    objects: tuple[ObjectDefinition, ...]
    counted: Identity | None = None

    @property
    def tables(self) -> tuple[Identity, ...]:
        """The tables whose rows it reads."""
        return tuple(each.identity for each in self.objects if each.kind == "table")


class Target(msgspec.Struct, frozen=True):
    """One object of the new state, changed or not.

    ``action`` is None for an unchanged object. ``old`` is the identity it has in the catalog now
    (None when it is new); ``uses`` are identities in the new state. ``contents`` says where a
    table's rows come from: ``none`` for a new retained table (a new, empty shard), for unchanged
    ones and for views; ``evolve`` and ``copy`` from the old shard; ``derived`` from the callback;
    ``fill`` from what ``fill`` says.
    ``keep`` (action migrate by impact only, or update in place) takes the old shard over untouched.
    ``projection`` holds, for a copy, (column, SQL expression over the OLD columns) in order.
    ``segments``, where there are any, say it shard by shard instead, the present one last (a table
    that goes back to an earlier shape, or comes back from a retired shard).
    ``reshape`` holds, for an ``evolve`` that renames, drops or moves columns, (column, column of
    OLD that it continues); what is in neither is added or dropped. Such a table has a projection
    too, for the case that it has to be copied after all. ``sets_properties`` marks an ``evolve``
    that needs Delta's own ALTER TABLE for its properties, with a projection for the same case.
    ``column_ids`` are there for a table. ``reads`` are the columns of OLD that ``projection`` is
    over, where there is a table to read; ``decided`` names the columns whose DEFAULT was not
    applied before.
    """

    definition: ObjectDefinition
    identity: Identity
    item_id: str
    global_id: str
    hashes: Hashes
    applied: tuple[str, ...]
    uses: tuple[Identity, ...]
    action: Action | None
    old: Identity | None
    contents: Literal["none", "keep", "evolve", "copy", "derived", "fill"] = "none"
    projection: tuple[tuple[str, str], ...] = ()
    segments: tuple[Segment, ...] = ()
    reshape: tuple[tuple[str, str], ...] = ()
    sets_properties: bool = False
    column_ids: ColumnIds | None = None
    fill: Fill | None = None
    reads: tuple[Column, ...] = ()
    decided: tuple[str, ...] = ()


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
