"""What a migration makes of users' objects, before it is carried out; writes nothing.

Those that read ours are bound on the shapes in force and on those to come, what is read before what
reads it: the columns that a view has afterwards are what the views above it are bound on. Whatever
fails on the way is an entry ``unknown``, with its reason.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

import msgspec
from msgspec.structs import replace

from catalog_migrate.engine.port import QueryAnalysis, QueryRequest, UserDefinition
from catalog_migrate.model.graph import DependencyGraph
from catalog_migrate.model.names import Identity, ItemKey, ItemName, identity_of
from catalog_migrate.model.progress import OnProgress, silent
from catalog_migrate.model.wording import list_first
from catalog_migrate.planner.plan import UserColumn, UserObject
from catalog_migrate.users.asking import (
    Analyse,
    ask,
    function_of,
    guard,
    request_stored,
    shorten,
)
from catalog_migrate.users.column_changes import ShapeChange, compare_shape
from catalog_migrate.users.finding import Readers, find_readers, list_definitions
from catalog_migrate.users.judgement import Judgement, judge, judge_unmoved
from catalog_migrate.users.meaning import Comparison, compare_plans
from catalog_migrate.users.plan_need import needs_plans
from catalog_migrate.users.repair import folded_names, propose_repair
from catalog_migrate.users.surface import Surface, surface_after, surface_in_force

if TYPE_CHECKING:
    from catalog_migrate.catalog.state import State
    from catalog_migrate.engine.port import Engine, FunctionSpec
    from catalog_migrate.model.objects import Column
    from catalog_migrate.planner.plan import Migration
    from catalog_migrate.users.settings import UserSettings

Outcome = Literal["unchanged", "changed", "breaks", "broken", "unknown"]

_UNREADABLE = ("breaks", "broken")
_REPORTED = 20
"""How many entries that are not known a start reports one by one."""
_UNCLEAR = "its text has names that only Spark can read, so it cannot be tried on what changes"
_EVERYTHING = "*"
"""Stands for the schemas of a catalog that does not say which it has."""


class Found(msgspec.Struct, frozen=True):
    """Users' objects that read ours, and the schemas that could not be listed, with the reason."""

    readers: Readers = Readers(DependencyGraph({}, {}), {})
    unlisted: Mapping[str, str] = {}

    def unread_reason(self, key: ItemKey) -> str | None:
        """Return why an object, or its schema, could not be read; None where it could."""
        for each in self.readers.unread:
            if identity_of(each.kind, *each.name) == key.identity:
                return each.unread
        return self.unlisted.get(key.schema, self.unlisted.get(""))

    @property
    def entries(self) -> tuple[UserObject, ...]:
        """What could not be read, as entries of a plan."""
        schemas = [
            UserObject(name or _EVERYTHING, "view", "unknown", reason=shorten(reason))
            for name, reason in sorted(self.unlisted.items())
        ]
        objects = [
            UserObject(str(each.name), each.kind, "unknown", reason=shorten(each.unread))
            for each in self.readers.unread
        ]
        return (*schemas, *objects)


class Examination(msgspec.Struct, frozen=True):
    """What a migration makes of users' objects.

    ``entries`` are of those that read what it changes, by identity; ``found`` has all that read
    ours.
    """

    found: Found = Found()
    entries: Mapping[Identity, UserObject] = {}

    @property
    def users(self) -> tuple[UserObject, ...]:
        """The entries of its plan, by name, those that could not be read last."""
        return (*(self.entries[each] for each in sorted(self.entries)), *self.found.entries)


def find(
    engine: Engine, state: State, settings: UserSettings, on_progress: OnProgress = silent,
    migration: Migration | None = None,
) -> Found:
    """Find every user's object that reads one of ours, as the catalog has it now.

    Ours is what is in force, and what comes with ``migration``. Raises nothing but LeaseLost and
    LeaseHeld.
    """
    targets = () if migration is None else migration.targets
    identities = {*state.item_ids, *(target.identity for target in targets)}

    def find_all() -> Found:
        listing = list_definitions(engine, settings, on_progress, ours=identities)
        if not listing.definitions:
            return Found(unlisted=listing.unlisted)
        keys = {mapping.identity: mapping.key for mapping in state.mappings.values()}
        keys |= {target.identity: target.definition.key for target in targets}
        readers = find_readers(
            listing.definitions, DependencyGraph({}, keys), catalog=engine.catalog,
            relations_read=engine.relations_read,
        )
        return Found(readers, listing.unlisted)

    found = guard(find_all)
    return Found(unlisted={"": found}) if isinstance(found, str) else found


def describe_unknown(entries: Iterable[UserObject]) -> list[str]:
    """Return what could not be found out of users' objects, in words for a start's report."""
    reported = [
        f"{each.kind} {each.name}: not known whether it goes on: {each.reason}"
        for each in entries if each.outcome == "unknown"
    ]
    return reported and list_first(reported, _REPORTED, "and {:,} more users' objects")


def examine(
    engine: Engine, state: State, migration: Migration, settings: UserSettings,
    on_progress: OnProgress = silent,
) -> Examination:
    """Find what reads ours, and bind what reads something that ``migration`` changes.

    Looks at nothing where nothing of ours is in force yet, or nothing changes. Raises nothing but
    LeaseLost and LeaseHeld.
    """
    changed = _list_changed(migration)
    if not changed or not state.mappings:
        return Examination()
    found = find(engine, state, settings, on_progress, migration)
    if not found.readers.definitions:
        return Examination(found)
    originals = {
        identity: row.original for row in state.user_objects.values()
        if row.original is not None
        and (identity := row.key.identity) in found.readers.definitions
        and found.readers.definitions[identity].sql == row.repaired
    }
    entries = judge_readers(
        found.readers, surface_in_force(state), surface_after(state, migration), migration,
        engine.analyse, repairs=settings.repair and engine.persistent_names, originals=originals,
    )
    return Examination(found, entries)


def _list_changed(migration: Migration) -> frozenset[Identity]:
    """What a migration changes, by the names of before and after it."""
    changed = {*migration.removed}
    for target in migration.targets:
        if target.action is not None:
            changed |= {target.identity, target.old or target.identity}
    return frozenset(changed)


def judge_readers(
    readers: Readers, old: Surface, new: Surface, migration: Migration, analyse: Analyse, *,
    repairs: bool = False, originals: Mapping[Identity, str] | None = None,
) -> dict[Identity, UserObject]:
    """Say what becomes of every user's object that reads what ``migration`` changes.

    Spark is asked about those that read something whose shape differs. With ``repairs`` what reads
    an object that will be repaired is bound on what that gives then. ``originals`` are texts that
    earlier repairs replaced: where one binds again it is the repair.
    """
    changed = _list_changed(migration)
    differing = old.differing(new) & changed
    bound = readers.graph.dependents(differing) & readers.definitions.keys()
    look = _Look(
        readers, old, new, analyse, repairs, originals or {}, _changes(migration, old, new),
        {
            target.old: target.identity for target in migration.targets
            if target.old is not None and target.identity in new.relations
        },
        _Causes(readers.graph, migration, differing),
    )
    for wave in readers.waves:
        look.judge([node for node in wave if node in bound])
    look.causes = _Causes(readers.graph, migration, changed)
    look.judge_unmoved(
        sorted((readers.graph.dependents(changed) & readers.definitions.keys()) - bound)
    )
    return look.entries


def _changes(
    migration: Migration, old: Surface, new: Surface
) -> dict[Identity, ShapeChange]:
    """How the columns of each relation of ours change, by its identity afterwards."""
    renames: dict[str, dict[str, str]] = {
        change.name: {
            column.old_name: column.name for column in change.columns
            if column.change == "renamed" and column.old_name is not None
        }
        for change in migration.plan.changes
    }
    found = {}
    for target in migration.targets:
        before = old.relations.get(target.old or target.identity)
        after = new.relations.get(target.identity)
        if before is not None and after is not None and target.action is not None:
            found[target.identity] = compare_shape(
                before.name, before.columns, after.columns,
                renames.get(str(target.definition.key)),
            )
    return found


class _Causes:
    """Explains which change reaches an object."""

    def __init__(
        self, graph: DependencyGraph, migration: Migration, roots: frozenset[Identity]
    ) -> None:
        self._graph, self._roots = graph, roots
        self._because = {change.name: change.because for change in migration.plan.changes}

    def of(self, node: Identity) -> tuple[str, ...]:
        """Return the names from the root cause to an object."""
        path = tuple(str(self._graph.key(each)) for each in self._graph.because(self._roots, node))
        return (*self._because.get(path[0], ())[:-1], *path) if path else ()


@dataclass(slots=True)
class _Look:
    """Judges users' objects wave by wave; knows what those of earlier waves give."""

    readers: Readers
    old: Surface
    new: Surface
    analyse: Analyse
    repairs: bool
    originals: Mapping[Identity, str]
    changes: dict[Identity, ShapeChange]
    renamed: Mapping[Identity, Identity]
    causes: _Causes
    entries: dict[Identity, UserObject] = field(default_factory=dict)
    before: dict[Identity, Sequence[Column] | None] = field(default_factory=dict)
    after: dict[Identity, Sequence[Column] | None] = field(default_factory=dict)

    def judge(self, wave: Sequence[Identity]) -> None:
        """Judge objects whose own parents are judged."""
        asked: list[Identity] = []
        for node in wave:
            known = self._find_known(node)
            if known is None:
                asked.append(node)
            else:
                self.entries[node] = known
        requests = [
            self._request(node, side, plan=self._compares(node))
            for node in asked for side in (self.old, self.new)
        ]
        answers = ask(self.analyse, [*requests, *map(self._request_stored, asked)])
        for at, node in enumerate(asked):
            found = answers[2 * at], answers[2 * at + 1], answers[len(requests) + at]
            judged = guard(lambda n=node, f=found: self._judge(n, *f))  # type: ignore[misc]
            self.entries[node] = self._unknown(node, judged) if isinstance(judged, str) else judged

    def judge_unmoved(self, nodes: Iterable[Identity]) -> None:
        """Judge objects that read something that changes, and nothing that has other columns."""
        asked = []
        for node in nodes:
            if node in self.readers.in_circles:
                self.entries[node] = self._in_circle(node)
            else:
                asked.append(node)
        for node, stored in zip(
            asked, ask(self.analyse, [*map(self._request_stored, asked)]), strict=True
        ):
            judged = judge_unmoved(self.readers.definitions[node], stored)
            self.entries[node] = self._entry_of(node, judged)

    def _find_known(self, node: Identity) -> UserObject | None:
        """The entry of an object of which Spark need not be asked: its parents say it."""
        if node in self.readers.in_circles:
            return self._in_circle(node)
        parents = [self.entries[each] for each in self._parents(node) if each in self.entries]
        for parent in parents:
            if parent.outcome in _UNREADABLE and not self._is_repaired(parent):
                word = "breaks" if parent.outcome == "breaks" else "is broken"
                reason = f"it reads {parent.name}, which {word}"
                return replace(
                    self._entry(node, parent.outcome, reason), condition=parent.condition,
                    missing=parent.missing,
                )
        unknown = next((each for each in parents if each.outcome == "unknown"), None)
        if unknown is not None:
            return self._unknown(node, f"it reads {unknown.name}: {unknown.reason}")
        return None

    def _in_circle(self, node: Identity) -> UserObject:
        loop = self.readers.graph.loop(node)
        path = " -> ".join(str(self.readers.graph.key(each)) for each in loop)
        return self._unknown(
            node, f"it reads itself: {path}" if path
            else "it reads objects of users that read each other in a circle",
        )

    def _is_repaired(self, entry: UserObject) -> bool:
        return self.repairs and entry.outcome == "breaks" and entry.repaired is not None

    def _judge(
        self, node: Identity, old: QueryAnalysis, new: QueryAnalysis, stored: QueryAnalysis
    ) -> UserObject:
        definition = self.readers.definitions[node]
        self.before[node] = judge(definition, old, old).output
        absent = self._absent_function(node)
        if absent is not None:
            new = QueryAnalysis(
                condition="UNRESOLVED_ROUTINE", missing=absent,
                reason=f"the function {absent} is missing",
            )
        judged = judge(definition, old, new, stored)
        unclear = self._is_unclear(node)
        if judged.output is not None and unclear:
            return self._unknown(node, _UNCLEAR)
        entry = self._entry_of(node, judged)
        self.after[node] = judged.output
        if judged.output is not None:
            entry = self._compare(node, entry, old.plan, new.plan)
        if entry.outcome != "breaks" or unclear or absent is not None:
            return entry  # Spark still has what a migration takes away: it cannot say what binds
        return self._with_repair(node, entry)

    def _compare(
        self, node: Identity, entry: UserObject, old: str | None, new: str | None
    ) -> UserObject:
        """The entry with what means something else; what the readers of it see is kept."""
        definition, compared = self.readers.definitions[node], Comparison()
        if old is not None and new is not None:
            outputs = definition.outputs if definition.kind == "view" else None
            compared = compare_plans(old, new, self._changes_of(node), outputs or None)
        meaning: frozenset[str] = frozenset()
        if compared:
            entry, meaning = _with_meaning(entry, definition, compared)
        before = self.before[node]
        if before is not None:
            self.changes[node] = compare_shape(
                definition.name, before, self.after[node] or (), meaning=meaning,
                rows=bool(compared.rows),
            )
        return entry

    # -- what is asked ---------------------------------------------------------------------------

    def _parents(self, node: Identity) -> list[Identity]:
        """What an object reads, and what the functions that it calls read."""
        found = dict.fromkeys(self.readers.graph.uses(node))
        for used in list(found):
            if used[0] == "function":
                found |= dict.fromkeys(self._calls(used, self.old) | self._calls(used, self.new))
        return list(found)

    def _is_unclear(self, node: Identity) -> bool:
        """Whether a text, or one that it calls, reads something by a name that stays as it is."""
        return not self.readers.unclear.isdisjoint({node, *self._list_called(node)})

    def _list_called(self, node: Identity) -> Iterator[Identity]:
        for used in self.readers.graph.uses(node):
            yield from self._calls(used, self.old)

    def _calls(self, function: Identity, side: Surface) -> dict[Identity, None]:
        """A function and all that it uses, what is used first."""
        done: dict[Identity, None] = {}
        trail = [(function, iter(self._uses(function, side)))]
        seen = {function}
        while trail:
            node, rest = trail[-1]
            used = next((each for each in rest if each not in seen), None)
            if used is None:
                trail.pop()
                done[node] = None
            else:
                seen.add(used)
                trail.append((used, iter(self._uses(used, side))))
        return done

    def _uses(self, node: Identity, side: Surface) -> Iterable[Identity]:
        if node[0] != "function":
            return ()
        if node in self.readers.definitions:
            return self.readers.graph.uses(node)
        return side.uses.get(node, ())

    def _request(
        self, node: Identity, side: Surface, *, sql: str | None = None, plan: bool = False
    ) -> QueryRequest:
        """What Spark is asked of an object on one side of the migration."""
        definition = self.readers.definitions[node]
        used: dict[Identity, None] = {}
        for each in self.readers.graph.uses(node):
            used |= self._calls(each, side)
        theirs = self.before if side is self.old else self.after
        relations: dict[ItemName, Sequence[Column] | None] = {}
        functions: list[FunctionSpec] = []
        for each in used:
            if each in self.readers.definitions:
                parent = self.readers.definitions[each]
                if parent.kind == "function":
                    functions.append(function_of(parent))
                elif each in theirs:  # else nothing of it changes: it is read as it is
                    relations[parent.name] = theirs[each]
            elif each in side.functions:
                functions.append(side.functions[each])
            elif each in side.relations:
                relations[side.relations[each].name] = side.relations[each].columns
            elif each[0] != "function":
                relations[self.readers.graph.key(each).item_name] = None
                renamed = self.renamed.get(each) if side is self.new else None
                if renamed is not None:
                    relations[side.relations[renamed].name] = side.relations[renamed].columns
        return QueryRequest(
            definition.name, definition.sql if sql is None else sql, relations, tuple(functions),
            definition.namespace, definition.arguments, definition.is_scalar, plan,
        )

    def _request_stored(self, node: Identity) -> QueryRequest:
        return request_stored(self.readers.definitions[node])

    def _absent_function(self, node: Identity) -> str | None:
        """A function of ours that an object calls and that there will not be; Spark has it yet."""
        for each in self._parents(node):
            if each[0] == "function" and each in self.old and each not in self.new:
                return str(self.old.functions[each].name)
        return None

    def _changes_of(self, node: Identity) -> dict[tuple[str, str], ShapeChange]:
        return {
            (each[1], each[2]): self.changes[each]
            for each in self._parents(node) if each in self.changes
        }

    def _compares(self, node: Identity) -> bool:
        definition = self.readers.definitions[node]
        outputs = (definition.outputs or None) if definition.kind == "view" else None
        needed = guard(lambda: needs_plans(definition.sql, self._changes_of(node), outputs))
        return needed is not False

    # -- entries ---------------------------------------------------------------------------------

    def _entry(self, node: Identity, outcome: Outcome, reason: str | None) -> UserObject:
        definition = self.readers.definitions[node]
        return UserObject(
            str(definition.name), definition.kind, outcome, self.causes.of(node),
            reason=shorten(reason) or None,
        )

    def _entry_of(self, node: Identity, judged: Judgement) -> UserObject:
        return replace(
            self._entry(node, judged.outcome, judged.reason), columns=judged.columns,
            condition=judged.condition, missing=judged.missing,
        )

    def _unknown(self, node: Identity, reason: str) -> UserObject:
        return self._entry(node, "unknown", reason)

    def _with_repair(self, node: Identity, entry: UserObject) -> UserObject:
        """The entry with the text that binds again, if there is one that means the same."""
        repaired, remedy = self._repair(node)
        if repaired is None:
            return entry
        if self.repairs:
            answer = ask(self.analyse, [self._request(node, self.new, sql=repaired)])[0]
            self.after[node] = answer.columns
        return replace(entry, repaired=repaired, remedy=remedy)

    def _binds_as_it_is(self, node: Identity, sql: str) -> bool:
        definition = self.readers.definitions[node]
        answer = ask(self.analyse, [self._request(node, self.new, sql=sql)])[0]
        return answer.columns is not None and (
            definition.is_scalar or folded_names(answer.columns) == folded_names(definition.columns)
        )

    def _repair(self, node: Identity) -> tuple[str | None, str | None]:
        definition = self.readers.definitions[node]
        original = self.originals.get(node)
        if original is not None and self._binds_as_it_is(node, original):
            return original, "the text that it had before it was repaired binds again"
        changes = {(each[1], each[2]): change for each, change in self.changes.items()}
        old, new = self._request(node, self.old), self._request(node, self.new)
        read = {name.folded for name in old.parents}
        moved = {  # what it reads may be called otherwise
            relation.name: relation.columns for each, change in self.changes.items()
            if change.continues in read
            and (relation := self.new.relations.get(each)) is not None
        }
        new = replace(new, parents={**new.parents, **moved})
        proposed = guard(lambda: propose_repair(definition, old, new, changes, self.analyse))
        if proposed is None or isinstance(proposed, str):
            return None, None
        if not proposed.renamed:
            return proposed.sql, "its text binds again once it is written again"
        renamed = ", ".join(f"{old} to {new}" for old, new in proposed.renamed)
        return proposed.sql, f"rename {renamed} in its text"


def _with_meaning(
    entry: UserObject, definition: UserDefinition, compared: Comparison
) -> tuple[UserObject, frozenset[str]]:
    """The entry with what means something else, and the names of these columns."""
    names = [column.name for column in definition.columns]
    columns = []
    for each in compared.columns:
        inside = definition.kind == "view" and each.position < len(names)
        columns.append(UserColumn(names[each.position] if inside else each.name, "meaning"))
    reasons = [*(each.reason for each in compared.columns), *compared.rows]
    entry = replace(
        entry, outcome="changed", columns=(*entry.columns, *columns),
        reason=shorten("; ".join(filter(None, (entry.reason, *dict.fromkeys(reasons))))),
    )
    return entry, frozenset(column.name for column in columns)
