"""From a baseline and a release to a plan with everything needed to carry it out. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Literal

import msgspec
from msgspec.structs import replace

from catalog_migrate.model.collector import collector_paused
from catalog_migrate.model.names import Allocator, Identity, ItemKey, parse_reference
from catalog_migrate.model.sizes import TableSize
from catalog_migrate.operations.steps import Step
from catalog_migrate.planner.assembly import complete, empty_plan, nothing_to_do
from catalog_migrate.planner.baseline import Baseline, BaselineObject
from catalog_migrate.planner.column_ids import plan_column_ids
from catalog_migrate.planner.contents import (
    ENOUGH_ALIKE,
    NAME_TAKEN,
    VIEW_WITHOUT_SQL,
    Movement,
    block_drop,
    block_ignored_rename,
    contents_of_new,
    likeness,
    movement_of,
    pair_by_rank,
    pending,
)
from catalog_migrate.planner.diff import (
    Compared,
    Difference,
    compare,
    impact_paths,
    is_unchanged,
    roots_of,
    signature,
)
from catalog_migrate.planner.filling import plan_filling
from catalog_migrate.planner.plan import (
    Action,
    Blocked,
    Change,
    GraphObject,
    Migration,
    Move,
    Plan,
    PlanTarget,
    Question,
    Replaced,
    Target,
    Validation,
)
from catalog_migrate.planner.policy_evaluation import (
    Approvals,
    Risk,
    apply_policy,
    risks_of_missing_decisions,
)
from catalog_migrate.planner.program import program
from catalog_migrate.planner.proofs import unproven
from catalog_migrate.planner.record_format import find_record_format
from catalog_migrate.planner.rollback import (
    GoingBack,
    behind_adoption,
    movement_back,
    revive,
)
from catalog_migrate.release.release import is_same_definition

if TYPE_CHECKING:
    from catalog_migrate.model.graph import DependencyGraph
    from catalog_migrate.model.objects import ObjectDefinition
    from catalog_migrate.operations.order import Order
    from catalog_migrate.policy import Policy
    from catalog_migrate.release.release import Release

Sizes = Callable[[str], TableSize | None]
"""ItemId -> what the table has, and how long a copy takes; None where that is unknown."""


_UNKNOWN = TableSize(-1, -1)


def _if_known(number: int) -> int | None:
    return number if number >= 0 else None


def _no_sizes(_: str) -> TableSize | None:
    return None


@collector_paused()
def plan_migration(
    baseline: Baseline,
    release: Release,
    *,
    approve: Collection[str] = (),
    sizes: Sizes = _no_sizes,
    policy: Policy | None = None,
    back: GoingBack | None = None,
) -> Migration:
    """Everything that has to happen to get from ``baseline`` to ``release``.

    Missing decisions do not raise: they are all in ``plan.blocked``, and the plan is not
    applyable. ``approve`` allows losses (``schema.table`` or ``schema.table.column``); ``sizes``
    gives what a table has; ``policy`` refuses risks, asks for approvals or allows losses
    by its rules; ``back`` says that the release is what was at an earlier serial, and how. The
    targets of an empty plan are empty when not even a
    decision is new.
    Raises :class:`DependencyCycle` and, for an approval that is no name,
    :class:`~catalog_migrate.errors.UsageError`.
    """
    approvals = Approvals(approve, policy)
    if back is None and is_unchanged(baseline, release):
        return nothing_to_do(
            baseline, release.name, release.manifest_hash, unchanged=len(release.objects)
        )
    return _Planning(baseline, release, approvals, sizes, back).migration()


class _Decided(msgspec.Struct, frozen=True):
    """What happens to one object of the release, all things considered."""

    compared: Compared
    action: Action | None
    cause: Literal["self", "dependency"] | None
    because: tuple[str, ...]
    movement: Movement
    item_id: str
    global_id: str


class _Planning:
    """One run of the planner over a release that differs from what is in force."""

    def __init__(
        self, baseline: Baseline, release: Release, approvals: Approvals, sizes: Sizes,
        back: GoingBack | None,
    ) -> None:
        self._baseline = baseline
        self._release = release
        self._approvals = approvals
        self._sizes = sizes
        self._back = back
        self._difference: Difference = (
            compare(baseline, release) if back is None
            else compare(baseline, release, back.predecessors, back.columns, back.refilled)
        )
        self._names = {
            identity: str(compared.key) for identity, compared in self._difference.objects.items()
        }
        self._old_graph, self._new_graph = _graphs(baseline, self._difference)
        self._blocked: list[Blocked] = []
        self._questions: list[Question] = []
        self._risks: list[tuple[ItemKey, Risk]] = []
        self._given_up = frozenset(map(parse_reference, release.dropped))

    def migration(self) -> Migration:
        """Decide impact, order, ids, contents and what is missing, in this order."""
        difference = self._difference
        paths = impact_paths(self._new_graph, roots_of(difference), difference)
        actions = {
            identity: "migrate" if identity in paths else compared.action
            for identity, compared in difference.objects.items()
        }
        order = self._order(actions)
        for identity in order.recreated:
            actions[identity] = "redefine"
        items = Allocator("i", self._baseline.next_item)
        ids = Allocator("s", self._baseline.next_global)
        decided: dict[Identity, _Decided] = {}
        for identity in order.creates:
            decided[identity] = self._decide(identity, actions, paths, items, ids)
        topological = self._new_graph.topological()
        for identity in topological:
            if identity not in decided:
                decided[identity] = self._decide(identity, actions, paths, items, ids)
        targets = tuple(self._target(decided[identity]) for identity in topological)
        steps = program(
            targets,
            {name: (held.definition.key, held.item_id)
             for name, held in self._baseline.objects.items()},
            order.drops, order.creates, (self._old_graph, self._new_graph),
        )
        self._blocked.extend(map(block_ignored_rename, difference.ignored))
        plan = self._finish_plan(
            order, [decided[identity] for identity in topological], steps, targets
        )
        heirs = {
            compared.old_identity
            for compared in difference.objects.values()
            if compared.kept_item_id is not None
        }
        removed = set(difference.removed) - heirs
        return Migration(
            plan=plan,
            targets=targets,
            drops=order.drops,
            creates=order.creates,
            removed=tuple(identity for identity in order.drops if identity in removed),
            next_item=items.next_value,
            next_global=ids.next_value,
            manifest_hash=self._release.manifest_hash,
        )

    def _order(self, actions: Mapping[Identity, Action | None]) -> Order:
        from catalog_migrate.operations.order import order_steps

        objects = self._difference.objects
        migrated = [identity for identity, action in actions.items() if action == "migrate"]
        drops = set(self._difference.removed)
        for identity in migrated:
            before = objects[identity].old_identity
            if before is not None:
                drops.add(before)
        return order_steps(
            self._old_graph,
            self._new_graph,
            drops=drops,
            creates={
                *migrated,
                *(identity for identity, action in actions.items() if action == "create"),
            },
            redefines={identity for identity, action in actions.items() if action == "redefine"},
        )

    def _decide(
        self,
        identity: Identity,
        actions: Mapping[Identity, Action | None],
        paths: Mapping[Identity, tuple[Identity, ...]],
        items: Allocator,
        ids: Allocator,
    ) -> _Decided:
        compared = self._difference.objects[identity]
        action = actions[identity]
        old = compared.old
        item_id = compared.kept_item_id or (old.item_id if old is not None else items.allocate())
        keeps_id = old is not None and action != "migrate"
        global_id = old.global_id if old is not None and keeps_id else ids.allocate()
        cause: Literal["self", "dependency"] | None = None
        because: tuple[str, ...] = ()
        if compared.action == "migrate" or (
            action in ("redefine", "update") and compared.action == action
        ):
            cause, because = "self", (self._names[identity],)
        elif identity in paths:
            cause = "dependency"
            because = tuple(self._names[step] for step in paths[identity])
        elif action == "redefine":
            cause, because = "dependency", self._find_recreation_path(identity, actions)
        return _Decided(
            compared,
            action,
            cause,
            because,
            self._movement(compared, action),
            item_id,
            global_id,
        )

    def _find_recreation_path(
        self, identity: Identity, actions: Mapping[Identity, Action | None]
    ) -> tuple[str, ...]:
        """The path from the redefined object whose recreation this one is drawn into."""
        roots = frozenset(
            name
            for name, compared in self._difference.objects.items()
            if compared.action == "redefine" and actions[name] == "redefine"
        )
        return tuple(self._names[step] for step in self._new_graph.because(roots, identity))

    def _movement(self, compared: Compared, action: Action | None) -> Movement:
        if compared.definition.kind != "table":
            return Movement()
        if self._back is not None:
            return self._movement_back(self._back, compared, action)
        if compared.old is None:
            if compared.definition.filled_from is not None:
                return plan_filling(
                    compared, self._baseline.objects, self._difference.objects, self._old_graph,
                    self._approvals,
                )
            return Movement(contents_of_new(compared.definition))
        if action is None:
            return Movement()
        if action == "migrate" and compared.definition.is_derived:
            return Movement("derived")
        return movement_of(compared, compared.old, self._approvals)

    def _movement_back(
        self, back: GoingBack, compared: Compared, action: Action | None
    ) -> Movement:
        origin = back.origins.get(compared.identity)
        if compared.old is None:
            return revive(compared.definition, origin, self._approvals)
        if action is None:
            return Movement()
        rows = _if_known(self._size(compared.old).rows)
        return movement_back(compared, compared.old, origin, self._approvals, rows)

    def _target(self, decided: _Decided) -> Target:
        compared, facts = decided.compared, decided.compared.facts
        ran: Collection[str] = compared.old.applied if compared.old is not None else ()
        decisions: Collection[str] = facts.decisions.values()
        if self._back is not None:  # decisions of later releases are to run again some day
            ran, decisions = self._back.applied.get(compared.identity, ()), ()
        return Target(
            definition=compared.definition,
            identity=compared.identity,
            item_id=decided.item_id,
            global_id=decided.global_id,
            hashes=facts.hashes,
            applied=tuple(sorted({*ran, *decisions})),
            uses=compared.uses,
            action=decided.action,
            old=compared.old_identity,
            contents=decided.movement.contents,
            projection=decided.movement.projection,
            segments=decided.movement.segments,
            reshape=decided.movement.reshape,
            sets_properties=decided.movement.sets_properties,
            column_ids=plan_column_ids(compared, decided.movement, self._back),
            fill=decided.movement.fill,
            reads=compared.old.definition.columns
            if compared.old is not None and decided.movement.projection
            and not decided.movement.segments
            and compared.old.definition.kind == "table" else (),
            decided=tuple(
                column.name for column in compared.definition.columns
                if column.default is not None and self._back is None
                and pending(column, facts.decisions, ran)[1] is not None
            ),
        )

    def _finish_plan(
        self, order: Order, decided: Sequence[_Decided], steps: tuple[Step, ...],
        targets: Sequence[Target],
    ) -> Plan:
        changes = [self._drop_change(identity) for identity in self._list_removed(order)]
        for one in decided:
            if one.action is not None:
                changes.append(self._change(one))
                self._blocked.extend(one.movement.blocked)
                self._risks.extend(_risks_of(one))
                self._questions.extend(one.movement.questions)
        self._blocked = apply_policy(self._risks, self._blocked, self._approvals)
        self._block_taken_names(decided)
        without_text = _views_without_text(decided)
        self._blocked.extend(map(_no_text, without_text))
        if self._back is None:
            self._questions.extend(self._probable_renames(decided))
        target = PlanTarget(
            self._release.name, self._release.manifest_hash,
            msgspec.UNSET if self._back is None else self._back.serial,
        )
        plan = replace(
            empty_plan(self._baseline.base, target),
            changes=tuple(changes),
            drops=tuple(str(self._old(identity).definition.key) for identity in order.drops),
            creates=tuple(self._names[identity] for identity in order.creates),
            steps=steps,
            validations=tuple(Validation(name, False, _NO_TEXT) for name in without_text),
            questions=tuple(self._questions),
            blocked=tuple(self._blocked),
            approved=tuple(sorted(self._approvals.used)),
            locks_out=self._locks_out(targets),
            # what was in force before was proven then
            unproven=unproven(targets) if self._back is None else (),
            replaced=self._find_replaced(steps),
            graph=self._graph(),
        )
        return complete(plan, unchanged=sum(one.action is None for one in decided))

    def _graph(self) -> tuple[GraphObject, ...]:
        """Every object of OLD and NEW once, by name, with what it uses in each."""
        objects = self._difference.objects
        continued = {compared.old_identity for compared in objects.values()}
        nodes = [
            (self._names[identity], compared.key.kind, compared.old_identity, identity)
            for identity, compared in objects.items()
        ] + [
            (str(old.key), old.key.kind, identity, None) for identity in self._old_graph
            if identity not in continued for old in (self._old(identity).definition,)
        ]
        nodes.sort(key=lambda node: (node[0], node[3] is not None, node[3] or node[2]))
        old = {before: place for place, (_, _, before, _) in enumerate(nodes)}
        new = {after: place for place, (_, _, _, after) in enumerate(nodes)}
        return tuple(
            GraphObject(
                name, kind, _places(self._old_graph, before, old),
                _places(self._new_graph, after, new),
            )
            for name, kind, before, after in nodes
        )

    def _find_replaced(self, steps: Sequence[Step]) -> tuple[Replaced, ...]:
        """The views that are replaced, each with who reads it, directly or through others."""
        names = (
            parse_reference(step.name) for step in steps
            if step.op in {"redefine", "update"} and step.kind == "view"
        )
        return tuple(
            Replaced(self._names[name], tuple(sorted(
                self._names[each] for each in self._new_graph.dependents([name])
                if each != name
            )))
            for name in names
        )

    def _locks_out(self, targets: Sequence[Target]) -> str | None:
        """Which versions the commit locks out: those that would misread what it puts on record."""
        known = self._baseline.record_format
        if known is None or self._baseline.base.release is None:
            return None
        needed = find_record_format(
            targets, lambda target: None if target.old is None else self._old(target.old).definition
        )
        if needed <= known:
            return None
        return (
            f"The commit raises the record format of the catalog from {known} to"
            f" {needed}. Until then older and newer versions of catalog-migrate work"
            " side by side; from then on a version that does not know the format is refused"
            " (CM0110)."
        )

    def _old(self, identity: Identity) -> BaselineObject:
        return self._baseline.objects[identity]

    def _list_removed(self, order: Order) -> list[Identity]:
        removed = set(self._difference.removed)
        return [identity for identity in order.drops if identity in removed]

    def _drop_change(self, identity: Identity) -> Change:
        old = self._old(identity)
        key = old.definition.key
        size = self._size(old)
        rows = _if_known(size.rows)
        risk = None
        if identity in self._given_up and key.kind == "table":
            self._approvals.used.add(str(key.item_name))  # whatever rows it has by then
        if self._back is not None and identity in self._back.adopted:
            self._blocked.append(behind_adoption(key))
        elif key.kind == "table" and not old.definition.is_derived and rows != 0:
            risk = "drops the table and its rows"
            self._risks.append((key, Risk("drop_table", risk)))
            if identity not in self._given_up and not self._approvals.cover("drop_table", key):
                self._blocked.append(block_drop(key, in_release=self._back is None))
        else:
            if key.kind == "table":
                self._approvals.is_given(key)  # not needed, and yet meant: rows may come until then
            self._risks.append((key, Risk("drop", f"drops the {key.kind}")))
        return Change(
            name=str(key),
            kind=key.kind,
            action="drop",
            item_id=old.item_id,
            old_id=old.global_id,
            rows=rows,
            bytes=_if_known(size.bytes),
            files=size.files,
            risk=risk,
            before=_without_hashes(old.definition),
        )

    def _size(self, old: BaselineObject) -> TableSize:
        size = self._sizes(old.item_id) if old.definition.kind == "table" else None
        return size or _UNKNOWN

    def _change(self, decided: _Decided) -> Change:
        compared, movement = decided.compared, decided.movement
        old = compared.old
        move: Move = "none" if movement.contents == "keep" else movement.contents
        size = _UNKNOWN
        if old is not None and movement.contents != "none":
            size = self._size(old)
        rows = size.rows
        if movement.fill is not None and movement.fill.counted is not None:
            rows = self._size(self._old(movement.fill.counted)).rows
        old_name = str(old.definition.key) if old is not None and compared.is_renamed else None
        action = decided.action
        assert action is not None
        before = None if old is None else _without_hashes(old.definition)
        after: ObjectDefinition | None = _without_hashes(compared.definition)
        if before == after:
            before = after = None
        return Change(
            name=self._names[compared.identity],
            kind=compared.key.kind,
            action=action,
            old_name=old_name,
            cause=decided.cause,
            because=decided.because,
            item_id=decided.item_id,
            old_id=old.global_id if old is not None else None,
            new_id=decided.global_id,
            columns=compared.delta.changes,
            options=compared.options,
            contents=move,
            rows=_if_known(rows),
            bytes=_if_known(size.bytes),
            files=size.files,
            seconds=size.seconds if move == "copy" else None,
            risk=movement.risk,
            copied_because=movement.copied_because,
            before=before,
            after=after,
        )

    def _block_taken_names(self, decided: Sequence[_Decided]) -> None:
        for one in decided:
            owner = self._baseline.taken.get(one.compared.identity)
            if owner is None:
                continue
            name = self._names[one.compared.identity]
            self._blocked.append(
                Blocked(
                    name,
                    NAME_TAKEN,
                    f"the name belongs to an object of another owner ({owner})",
                    f"rename or drop that object, or call the {one.compared.key.kind} "
                    "of the release otherwise",
                )
            )

    def _probable_renames(self, decided: Sequence[_Decided]) -> list[Question]:
        """New objects that look exactly like one that goes: asked, never guessed."""
        gone = [
            self._old(identity) for identity in sorted(self._difference.removed)
            if identity not in self._given_up
        ]
        if not gone:
            return []
        new = [
            one.compared for one in decided
            if one.action == "create" and not one.compared.created_over
        ]
        questions: list[Question] = []
        for compared, old in pair_by_rank(new, gone, _rank):
            before = old.definition
            remedy = f"RENAMED FROM {before.key.item_name}"
            if before.name.lower() == compared.key.name.lower():  # in another schema
                remedy += (
                    f"; for the whole schema, in release.toml: [schema.{compared.key.schema}]"
                    f' renamed_from = "{before.schema}"'
                )
            questions.append(Question(str(compared.key), str(before.key), None, remedy))
        return questions


def _places(
    graph: DependencyGraph, identity: Identity | None, places: Mapping[Identity | None, int]
) -> tuple[int, ...] | None:
    if identity is None:
        return None
    return tuple(sorted(places[used] for used in graph.uses(identity)))


def _rank(new: Compared, old: BaselineObject) -> tuple[float, str] | None:
    key = old.definition.key
    return (-likeness(key.name, new.key.name), str(key)) if _looks_like(old, new) else None


def _looks_like(old: BaselineObject, new: Compared) -> bool:
    """Whether a new object may be an old one under another name.

    Relations by their columns; what has none by all that callers see of it, and by its body or a
    name that is a spelling of the old one.
    """
    before, after = old.hashes, new.facts.hashes
    if old.definition.kind != new.key.kind or before.fingerprint != after.fingerprint:
        return False
    if new.definition.columns:
        return True
    if signature(old.definition) != signature(new.definition):
        return False
    return (
        is_same_definition(before.definition, old.definition, after.definition, new.definition)
        or (new.key.kind == "function"
            and likeness(old.definition.name, new.key.name) >= ENOUGH_ALIKE)
    )


def _without_hashes(definition: ObjectDefinition) -> ObjectDefinition:
    """A definition as it was written: a manifest has hashes in it, a directory has none."""
    return replace(definition, definition_hash=None, text_hash=None)


def _risks_of(decided: _Decided) -> list[tuple[ItemKey, Risk]]:
    """What a policy may have a word about in the change of one object, decided or not."""
    key, movement = decided.compared.key, decided.movement
    risks = [(key, risk) for risk in movement.risks]
    risks.extend(risks_of_missing_decisions(key, movement.blocked))
    if movement.contents == "copy":
        risks.append((key, Risk("copy", "copies the rows of the table")))
    elif movement.contents == "derived" and decided.compared.old is not None:
        risks.append((key, Risk("refill", "empties the derived table to fill it again")))
    return risks


def _views_without_text(decided: Sequence[_Decided]) -> list[str]:
    """Changed views that cannot be built, because the release has no SQL for them."""
    return [
        str(one.compared.key)
        for one in decided
        if one.compared.key.kind == "view"
        and one.compared.definition.sql is None
        and one.action in ("create", "migrate", "redefine")
    ]


_NO_TEXT = "the release has no sql for it: it can be planned, not applied"


def _no_text(name: str) -> Blocked:
    return Blocked(name, VIEW_WITHOUT_SQL, _NO_TEXT, f"write the SQL of {name} into the release")


def _graphs(
    baseline: Baseline, difference: Difference
) -> tuple[DependencyGraph, DependencyGraph]:
    """The graphs of OLD and NEW, one where these are alike; edges that leave the release are left
    out."""
    from catalog_migrate.model.graph import DependencyGraph

    sides = [
        (
            {name: [used for used in each.uses if used in there] for name, each in there.items()},
            {name: each.definition.key for name, each in there.items()},
        )
        for there in (baseline.objects, difference.objects)
    ]
    old = DependencyGraph(*sides[0])
    return old, old if sides[0] == sides[1] else DependencyGraph(*sides[1])
