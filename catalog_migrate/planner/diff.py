"""What differs between a baseline and a release, object by object, and the impact of a change."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import takewhile
from typing import TYPE_CHECKING, TypeVar

import msgspec

from catalog_migrate.model.hashes import decision_hashes
from catalog_migrate.model.layout import longest_increasing
from catalog_migrate.model.names import Identity, ItemKey, namespace_of, split_name
from catalog_migrate.model.objects import Column, ObjectDefinition
from catalog_migrate.model.renames import match
from catalog_migrate.planner.baseline import Baseline, BaselineObject
from catalog_migrate.planner.plan import Action, ColumnChange, OptionChange
from catalog_migrate.release.release import (
    Facts,
    Release,
    facts_in,
    is_same_definition,
    is_written_alike,
)

if TYPE_CHECKING:
    from catalog_migrate.model.graph import DependencyGraph


T = TypeVar("T")


class ColumnDelta(msgspec.Struct, frozen=True):
    """Columns of two shapes of one object, matched.

    ``pairs`` holds every new column in order with the old one that it continues (None: added);
    ``removed`` the old columns that nothing continues.
    """

    pairs: tuple[tuple[Column, Column | None], ...]
    removed: tuple[Column, ...]
    changes: tuple[ColumnChange, ...]


class Compared(msgspec.Struct, frozen=True):
    """One object of the release against its predecessor.

    ``identity`` and ``key`` are its name in the release, folded and as written. ``old`` is None
    when it has none in force; ``old_identity`` is the name of ``old`` there. ``action`` is what its
    own difference asks for (None: unchanged), before its impact. ``created_over`` marks a new
    object under the name of an old one of another kind; ``kept_item_id`` is then its ItemId, kept
    (``WAS``), else None.
    """

    identity: Identity
    key: ItemKey
    definition: ObjectDefinition
    facts: Facts
    uses: tuple[Identity, ...]
    old: BaselineObject | None
    old_identity: Identity | None
    action: Action | None
    delta: ColumnDelta
    options: tuple[OptionChange, ...] = ()
    created_over: bool = False
    kept_item_id: str | None = None

    @property
    def is_renamed(self) -> bool:
        """Whether it stands under another name in force."""
        return self.old_identity is not None and self.old_identity != self.identity

    @property
    def pairs(self) -> Sequence[tuple[Column, Column | None]]:
        """Every column with the one that it continues, itself where none changed."""
        return self.delta.pairs or [(column, column) for column in self.definition.columns]


class IgnoredRename(msgspec.Struct, frozen=True):
    """An object that does not continue what is in force under an earlier name of it, and why."""

    key: ItemKey
    earlier: ItemKey
    reason: str


class Difference(msgspec.Struct, frozen=True):
    """All objects of the release, compared, and the identities of OLD that have no successor.

    ``ignored`` are renames that the release asks for, of what is in force, and does not get.
    """

    objects: Mapping[Identity, Compared]
    removed: tuple[Identity, ...]
    ignored: tuple[IgnoredRename, ...] = ()


_NO_DELTA = ColumnDelta((), (), ())


def is_unchanged(baseline: Baseline, release: Release) -> bool:
    """Return whether the release is in force as it stands, decided by hashes alone.

    No graph is built and no column compared: this is what every start without a change costs.
    """
    return len(baseline.objects) == len(release.objects) and all(
        _is_in_force(release, identity, definition, baseline.objects.get(identity))
        for identity, definition in release.by_identity.items()
    )


def _is_in_force(
    release: Release, identity: Identity, definition: ObjectDefinition, old: BaselineObject | None
) -> bool:
    if old is None or old.definition.kind != definition.kind:
        return False
    definition, facts = _against(release, identity, definition, old)
    if facts.decisions and not set(old.applied).issuperset(facts.decisions.values()):
        return False
    return _is_alike(definition, facts, release.uses.get(identity, ()), old)


def _is_alike(
    definition: ObjectDefinition, facts: Facts, uses: tuple[Identity, ...], old: BaselineObject
) -> bool:
    """Whether an object is what it is in force, by its hashes and by what it uses."""
    return (
        facts.hashes[:-1] == old.hashes[:-1]  # texts may be laid out in another way
        and definition.is_derived == old.definition.is_derived
        and (uses == old.uses or set(uses) == set(old.uses))
    )


def compare(
    baseline: Baseline,
    release: Release,
    predecessors: Mapping[Identity, Identity] | None = None,
    former_columns: Mapping[Identity, Mapping[str, str]] | None = None,
    refilled: Collection[Identity] = (),
) -> Difference:
    """Match every object of the release with its predecessor and classify what changed.

    Where it is known already what continues what, ``predecessors`` says so for objects (new
    identity -> old one) and ``former_columns`` for the columns of tables (folded names, likewise).
    ``refilled`` are tables that get other rows, however alike their definitions are.
    """
    ignored: tuple[IgnoredRename, ...] = ()
    if predecessors is None:
        predecessors, ignored = _predecessors(baseline, release.by_identity)
    known = former_columns or {}
    objects = {
        identity: _compare_one(
            baseline,
            release,
            identity,
            predecessors.get(identity),
            tuple(release.uses.get(identity, ())),
            known.get(identity),
            refilled=identity in refilled,
        )
        for identity in release.by_identity
    }
    continued = {
        compared.old_identity for compared in objects.values() if compared.old is not None
    }
    removed = tuple(identity for identity in baseline.objects if identity not in continued)
    return Difference(objects, removed, ignored)


def _predecessors(
    baseline: Baseline, objects: Mapping[Identity, ObjectDefinition]
) -> tuple[dict[Identity, Identity], tuple[IgnoredRename, ...]]:
    """(new identity -> the old one that it continues, earlier names in force that nothing gets).

    By name, but for renames that were not applied yet.
    """
    old = baseline.objects
    found: dict[Identity, Identity] = {}
    asked: dict[Identity, list[Identity]] = {}
    for identity, definition in objects.items():
        held = old.get(identity)
        if held is not None and _may_continue(definition, held):
            found[identity] = identity
        if definition.renamed_from is not None:
            asked[identity] = _earlier_objects(old, identity, definition, held)
    if not any(asked.values()):
        return found, ()
    fitting = {
        identity: [name for name in names if _may_continue(objects[identity], old[name])]
        for identity, names in asked.items()
    }
    moved = match(found.keys(), fitting)
    heirs = {source: identity for identity, source in (found | moved).items()}
    ignored = tuple(
        IgnoredRename(objects[identity].key, old[names[0]].definition.key,
                      _reason(objects[identity], old[names[0]], objects, heirs))
        for identity, names in sorted(asked.items())
        if names and moved.get(identity) not in names
    )
    return found | moved, ignored


def _may_continue(definition: ObjectDefinition, held: BaselineObject) -> bool:
    return held.definition.kind in (definition.kind, definition.was)


def _earlier_objects(
    old: Mapping[Identity, BaselineObject], identity: Identity, definition: ObjectDefinition,
    held: BaselineObject | None,
) -> list[Identity]:
    """What is in force under an earlier name of an object, newest first, less what was applied.

    What is in force says which renames led to it: a release that carries them on, with names added
    or another schema before them, asks for nothing.
    """
    if held is not None and decision_hashes(definition)["renamed_from"] in held.applied:
        return []
    names = [name for name in _earlier_identities(definition) if name != identity]
    listed = [name for name in names if name in old]
    if held is not None:
        own: Identity | None = identity
    else:
        listed = listed or _of_other_kinds(old, names)
        own = next((name for name in listed if name[2] == identity[2]), None)
    if own is None:
        return listed
    led_to_it = set(_earlier_identities(old[own].definition))
    new = _new_names(listed, led_to_it)
    return new if own == identity or own in new else [*new, own]


def _new_names(names: Iterable[T], led_to_it: Collection[T]) -> list[T]:
    """The newest of an object's earlier names, up to one that led to what is in force."""
    return [*takewhile(lambda name: name not in led_to_it, names)]


def _of_other_kinds(
    old: Mapping[Identity, BaselineObject], names: Sequence[Identity]
) -> list[Identity]:
    """What has one of the names and is of another kind, which is no rename."""
    return [
        other for _, schema, bare in names for space in ("relation", "function", "type")
        if (other := (space, schema, bare)) in old
    ]


def _earlier_identities(definition: ObjectDefinition) -> list[Identity]:
    """The identities of an object's earlier names."""
    space = namespace_of(definition.was or definition.kind)
    return [
        (space, (schema or definition.schema).lower(), bare.lower())
        for schema, bare in map(split_name, definition.earlier_names)
    ]


def _reason(
    definition: ObjectDefinition, earlier: BaselineObject,
    objects: Mapping[Identity, ObjectDefinition], heirs: Mapping[Identity, Identity],
) -> str:
    """Why an object does not continue what is in force under its earlier name."""
    name = earlier.definition.key
    if not _may_continue(definition, earlier):
        return f"{name} is a {earlier.definition.kind} in force"
    heir = heirs.get(earlier.definition.identity)
    if heir is None:
        return f"{definition.key} is in force itself, beside {name}"
    if heir == earlier.definition.identity:
        return f"the release still has {name}, under its own name"
    return f"{objects[heir].key} continues {name}"


def _compare_one(
    baseline: Baseline,
    release: Release,
    identity: Identity,
    old_identity: Identity | None,
    uses: tuple[Identity, ...],
    former_columns: Mapping[str, str] | None,
    *,
    refilled: bool = False,
) -> Compared:
    definition = release.by_identity[identity]
    old = baseline.objects[old_identity] if old_identity is not None else None
    if old is None or old_identity is None:
        return Compared(
            identity, definition.key, definition, facts_in(release, definition), uses, None, None,
            "create", _NO_DELTA, created_over=identity in baseline.objects,
        )
    definition, facts = _against(release, identity, definition, old)
    if old.definition.kind != definition.kind:
        is_kept = definition.was == old.definition.kind
        return Compared(
            identity, definition.key, definition, facts, uses, None,
            old_identity if is_kept else None, "create", _NO_DELTA, created_over=True,
            kept_item_id=old.item_id if is_kept else None,
        )
    action = _own_action(definition, facts, uses, old, renamed=old_identity != identity)
    if _are_others(definition.columns, former_columns):
        action = "migrate"  # alike by name, and yet not the columns that they were
    if refilled and action is None:
        action = "update"
    action, delta = _compare_columns(definition, facts, old, action, former_columns)
    return Compared(
        identity, definition.key, definition, facts, uses, old, old_identity, action, delta,
        _options(old.definition, definition) if action else (),
    )


def _are_others(columns: Sequence[Column], former: Mapping[str, str] | None) -> bool:
    """Whether columns are under other names in force; ``former`` are their names there, if known.
    """
    return former is not None and any(
        former.get(column.name.lower()) != column.name.lower() for column in columns
    )


def _compare_columns(
    definition: ObjectDefinition, facts: Facts, old: BaselineObject, action: Action | None,
    former_columns: Mapping[str, str] | None,
) -> tuple[Action | None, ColumnDelta]:
    """What an object's own difference asks for, columns considered, and how they differ."""
    asks = action is None and former_columns is None and _asks_for_renames(definition, facts, old)
    if not asks and action not in ("migrate", "update"):
        return action, _NO_DELTA
    delta = compare_columns(
        old.definition.columns, definition.columns, facts.decisions, old.applied, former_columns
    )
    # columns of one type that swap their names leave the fingerprint as it is
    if any(change.change == "renamed" for change in delta.changes):
        return "migrate", delta
    return action, _NO_DELTA if asks else delta


def _asks_for_renames(
    definition: ObjectDefinition, facts: Facts, old: BaselineObject
) -> bool:
    """Whether a column of a table is to be renamed by a decision that was not applied yet."""
    return definition.kind == "table" and any(
        column.earlier_names
        and decision(facts.decisions, "renamed_from", column.name) not in old.applied
        for column in definition.columns
    )


def _options(old: ObjectDefinition, new: ObjectDefinition) -> tuple[OptionChange, ...]:
    """Properties that differ, and who makes the rows of a table when that does."""
    changes = compare_properties(old.properties, new.properties)
    if old.is_derived == new.is_derived:
        return changes
    before, after = ("derived" if one.is_derived else "retained" for one in (old, new))
    return (OptionChange("contents", "set", old=before, new=after), *changes)


def _own_action(
    definition: ObjectDefinition,
    facts: Facts,
    uses: tuple[Identity, ...],
    old: BaselineObject,
    *,
    renamed: bool,
) -> Action | None:
    if (
        renamed or facts.hashes.fingerprint != old.hashes.fingerprint
        or signature(definition) != signature(old.definition)
    ):
        return "migrate"
    # A table has no text to replace: what it uses (types, functions in checks) only updates edges.
    if definition.kind != "table" and (
        facts.hashes.definition != old.hashes.definition or set(uses) != set(old.uses)
    ):
        return "redefine"
    return None if _is_alike(definition, facts, uses, old) else "update"


def _against(
    release: Release, identity: Identity, definition: ObjectDefinition, old: BaselineObject
) -> tuple[ObjectDefinition, Facts]:
    """An object of the release with its hashes, what is in force where that stands for the same.

    A view whose ``*`` was only written out in another way keeps its text with the hash.
    """
    in_force = old.hashes.definition
    facts = release.facts.get(identity) or facts_in(
        release, definition, old.hashes.text, in_force, old.definition.columns
    )
    asked = facts.hashes.definition
    if asked == in_force:
        return definition, facts
    other_scheme = asked[:2] != in_force[:2]
    if other_scheme and is_same_definition(asked, definition, in_force, old.definition):
        return definition, facts._replace(hashes=facts.hashes._replace(definition=in_force))
    # as in every text with qualified names
    if "`" in f"{old.definition.sql}{definition.sql}" and (
        is_written_alike(old.definition, definition, release)
    ):
        kept = facts.hashes._replace(definition=in_force, text=old.hashes.text)
        text = msgspec.structs.replace(
            definition, sql=old.definition.sql, text_hash=None, definition_hash=None
        )
        return text, facts._replace(hashes=kept)
    return definition, facts


def signature(definition: ObjectDefinition) -> tuple[object, ...]:
    """What callers of a function were built against: argument names, types and what it returns."""
    returns = definition.returns
    if returns is not None and not isinstance(returns, str):
        return (
            _arguments(definition),
            tuple((column.name.lower(), column.type, column.nullable) for column in returns),
        )
    return _arguments(definition), returns


def _arguments(definition: ObjectDefinition) -> tuple[tuple[str, str], ...]:
    return tuple((argument.name.lower(), argument.type) for argument in definition.arguments)


def compare_columns(
    old: Sequence[Column],
    new: Sequence[Column],
    decisions: Mapping[str, str],
    applied: Iterable[str] = (),
    former_columns: Mapping[str, str] | None = None,
) -> ColumnDelta:
    """Match two column lists by name and by renames that are decided and not yet applied.

    With a ``former_columns`` by that alone: folded new name -> folded old one.
    """
    if former_columns is None and old == new and all(column.renamed_from is None for column in new):
        return ColumnDelta(tuple(zip(new, old, strict=True)), (), ())  # only a parent changed
    old_by_name = {column.name.lower(): column for column in old}
    moved = {} if former_columns is not None else _renames(
        old_by_name, new, decisions, frozenset(applied)
    )
    claimed: set[str] = set()
    pairs: list[tuple[Column, Column | None]] = []
    for column in new:
        folded = column.name.lower()
        if former_columns is not None:
            before = old_by_name.get(former_columns.get(folded, ""))
        else:
            before = old_by_name.get(moved.get(folded, folded))
        if before is not None:
            claimed.add(before.name.lower())
        pairs.append((column, before))
    removed = tuple(column for column in old if column.name.lower() not in claimed)
    return ColumnDelta(tuple(pairs), removed, _column_changes(old, pairs, removed))


def _renames(
    old: Mapping[str, Column],
    new: Sequence[Column],
    decisions: Mapping[str, str],
    ran: frozenset[str],
) -> dict[str, str]:
    """New name -> the old name that it continues, folded, for renames not yet applied."""
    earlier: dict[str, list[str]] = {}
    for column in new:
        folded = column.name.lower()
        if column.earlier_names and decision(decisions, "renamed_from", column.name) not in ran:
            held = old.get(folded)
            led_to_it = {folded, *map(str.lower, () if held is None else held.earlier_names)}
            names = _new_names(map(str.lower, column.earlier_names), led_to_it)
            earlier[folded] = [name for name in names if name in old]
    if not any(earlier.values()):
        return {}
    return match({column.name.lower() for column in new} & old.keys(), earlier)


def decision(decisions: Mapping[str, str], label: str, column: str) -> str | None:
    """Return the hash of one decision on a column, whatever case its label is written in."""
    found = decisions.get(f"{label}:{column}")
    return found if found is not None else decisions.get(f"{label}:{column.lower()}")


def _column_changes(
    old: Sequence[Column],
    pairs: Sequence[tuple[Column, Column | None]],
    removed: Sequence[Column],
) -> tuple[ColumnChange, ...]:
    position = {column.name.lower(): index for index, column in enumerate(old)}
    circles = _circles(pairs)

    def place(column: Column, before: Column) -> int:
        """Where it was: of names passed on in a circle, where the name was, as one reads them."""
        name = column.name.lower()
        return position[name if name in circles else before.name.lower()]

    in_place = longest_increasing([place(column, was) for column, was in pairs if was is not None])
    changes: list[ColumnChange] = []
    for column, before in pairs:
        if before is None:
            changes.append(
                ColumnChange(
                    "added",
                    column.name,
                    new_type=column.type,
                    new_nullable=column.nullable,
                )
            )
            continue
        old_name = None
        if before.name.lower() != column.name.lower():
            old_name = before.name
            changes.append(ColumnChange("renamed", column.name, old_name=old_name))
        if before.type != column.type:
            changes.append(
                ColumnChange(
                    "retyped",
                    column.name,
                    old_name=old_name,
                    old_type=before.type,
                    new_type=column.type,
                )
            )
        if before.nullable != column.nullable:
            changes.append(
                ColumnChange(
                    "nullability",
                    column.name,
                    old_name=old_name,
                    old_nullable=before.nullable,
                    new_nullable=column.nullable,
                )
            )
        if place(column, before) not in in_place:
            changes.append(ColumnChange("moved", column.name, old_name=old_name))
    changes.extend(
        ColumnChange("removed", column.name, old_type=column.type, old_nullable=column.nullable)
        for column in removed
    )
    return tuple(changes)


def _circles(pairs: Sequence[tuple[Column, Column | None]]) -> frozenset[str]:
    """Folded names that columns pass on among themselves: two that are swapped, or more."""
    sources = {
        column.name.lower(): before.name.lower() for column, before in pairs if before is not None
    }
    found: set[str] = set()
    for name, source in sources.items():
        seen = [name]
        while source in sources and source not in seen:
            seen.append(source)
            source = sources[source]
        if len(seen) > 1 and source == name:
            found.update(seen)
    return frozenset(found)


def compare_properties(
    old: Mapping[str, str], new: Mapping[str, str]
) -> tuple[OptionChange, ...]:
    """Table properties that are set or dropped, by name."""
    changes: list[OptionChange] = []
    for name in sorted(old.keys() | new.keys()):
        before, after = old.get(name), new.get(name)
        if before != after:
            changes.append(
                OptionChange(name, "drop" if after is None else "set", old=before, new=after)
            )
    return tuple(changes)


def roots_of(difference: Difference) -> frozenset[Identity]:
    """Names of the release under which another id stands than before.

    These are objects that migrate by themselves (renamed ones included) and new objects under the
    name of an old one of another kind. A wholly new name is nobody's root: what reads it now must
    have another definition and is redefined.
    """
    return frozenset(
        identity
        for identity, compared in difference.objects.items()
        if compared.action == "migrate" or compared.created_over
    )


def impact_paths(
    graph: DependencyGraph, roots: frozenset[Identity], difference: Difference
) -> Mapping[Identity, tuple[Identity, ...]]:
    """For each dependent of a root in the NEW graph, the path from its root to it.

    New objects are not among them: they have no earlier id that could change.
    """
    return {
        identity: graph.because(roots, identity)
        for identity in graph.dependents(roots)
        if identity not in roots and difference.objects[identity].action != "create"
    }
