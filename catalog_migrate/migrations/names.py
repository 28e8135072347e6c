"""The operations on names in Spark's catalog, and which of them are called for.

The steps are those of a program that was stored with the commit, if it has all that is observed to
be missing; else they are ordered by what is observed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import TYPE_CHECKING, ClassVar, cast

from msgspec.structs import replace as replace_step

from catalog_migrate.catalog.records import TombstoneRecord, identity_text
from catalog_migrate.catalog.state import State
from catalog_migrate.engine.port import Registration
from catalog_migrate.errors import MetastoreFailure
from catalog_migrate.migrations.actions import DesiredName, Difference, identity_of_tombstone
from catalog_migrate.migrations.execution_context import (
    AfterCommit,
    Ended,
    ExecutionContext,
    relative,
)
from catalog_migrate.migrations.failures import StepFailure, failure_of
from catalog_migrate.model.names import Identity, ItemKey, parse_reference
from catalog_migrate.operations.operation import execute
from catalog_migrate.operations.order import order_creates, order_waves
from catalog_migrate.operations.steps import NAMES, SESSION, Op, Step
from catalog_migrate.release.validation import OUR_SCHEMAS

if TYPE_CHECKING:
    from catalog_migrate.model.graph import DependencyGraph


@dataclass(frozen=True)
class NameOperation(AfterCommit):
    """One change of one name: ``standing`` goes, ``wanted`` comes, or takes its place.

    Both are None where the name is observed to be as it should be. ``after`` are the names without
    whose change this one is left for the next run.
    """

    identity: Identity
    after: frozenset[Identity] = frozenset()
    standing: Registration | None = None
    wanted: DesiredName | None = None

    @property
    def key(self) -> Identity:
        """Two changes of one name depend on each other."""
        return self.identity

    @property
    def needs(self) -> frozenset[Identity]:
        """The names that come or go first."""
        return self.after

    def is_done(self, context: ExecutionContext | None = None) -> str:  # noqa: ARG002
        """Say so where nothing of the kind was found to be missing."""
        return "" if self.standing or self.wanted else "it was as it should be already"

    def is_hopeless(self, error: Exception) -> bool:
        """A metastore that is away or refuses does so for all; so does a lease that is lost."""
        return isinstance(error, MetastoreFailure) or super().is_hopeless(error)


class PutName(NameOperation):
    """Create a view or function, or replace it; register a table."""

    def run(self, context: ExecutionContext) -> None:
        """Issue the statement of the definition."""
        name, over, engine = self.wanted, self.standing, context.engine
        assert name is not None
        # what came under the name since the look is another's: the engine refuses to replace it
        if name.view is not None:
            engine.create_view(name.view, over=over)
        elif name.function is not None:
            engine.create_function(name.function, over=over)
        elif name.location is not None:
            engine.register_table(name.name, context.absolute(name.location))


@dataclass(frozen=True)
class DropName(NameOperation):
    """Drop a name, while what was seen has it.

    ``beside`` are those that are looked at together with it, the same object for each of them: so
    few that all are dropped right after the look.
    """

    beside: Sequence[Registration] = ()

    TOGETHER: ClassVar = 16

    def run(self, context: ExecutionContext) -> None:
        """Issue the DROP of its kind."""
        assert self.standing is not None
        context.engine.drop(self.standing, beside=self.beside)


_CLASSES: Mapping[Op, type[NameOperation]] = {
    "drop": DropName, "create": PutName, "redefine": PutName, "update": PutName,
}


def name_operations(
    state: State, found: Difference, warehouse: str, program: Sequence[Step] = (), *,
    session: bool = False,
) -> list[NameOperation]:
    """Return what brings names in line, in the order of ``program`` where that has it all.

    What it has beyond that is done already. ``session``: names end with their session, which is
    what their steps say. OLD is what the tombstones say of who used what; of a
    name that merely differs it is what the committed state says.
    """
    if not (found.drops or found.replaced or found.missing or program):
        return []
    called_for = _CalledFor(state, found, warehouse)
    operations = called_for.by(program)
    if operations is None:
        operations = called_for.order()
    if session:
        operations = [
            replace(each, step=replace_step(each.step, phase=SESSION)) for each in operations
        ]
    return list(_side_by_side(operations))


class _CalledFor:
    """What is called for of names, each as what happens and to which name."""

    def __init__(self, state: State, found: Difference, warehouse: str) -> None:
        self._found = found
        self._uses, self._keys = list_uses(found.desired)
        self._old = _old_graph(state, found) if found.drops or found.replaced else None
        self._moves = _moves(found, warehouse)
        self._all = frozenset({
            *(("drop", name) for name in found.drops),
            *(("create", name) for name in found.missing),
            *(("redefine", name) for name in found.replaced),
        })

    def by(self, program: Sequence[Step]) -> list[NameOperation] | None:
        """The operations of a program, also of what is done already; None if it has not all."""
        steps = [
            (step, "redefine" if step.op == "update" else step.op, parse_reference(step.name))
            for step in program if step.phase == NAMES
        ]
        if not self._all <= {(what, identity) for _, what, identity in steps}:
            return None
        return [self._operation(*each) for each in steps]

    def order(self) -> list[NameOperation]:
        """Return the operations in the one order, made of what is observed to be missing."""
        found = self._found
        if self._old is None:
            waves = order_creates(self._uses, self._keys, found.missing)
        else:
            from catalog_migrate.model.graph import DependencyGraph

            waves = order_waves(
                self._old, DependencyGraph(self._uses, self._keys), drops=found.drops,
                creates=found.missing, redefines=found.replaced, renames=self._moves,
            )
        return [
            self._operation(_step(found, what, identity, number), what, identity)
            for number, wave in enumerate(waves, start=1) for what, identity in wave
        ]

    def _operation(self, step: Step, what: str, identity: Identity) -> NameOperation:
        made, found = _CLASSES[step.op], self._found
        if (what, identity) not in self._all:
            return made(step, identity)
        if what == "drop":
            after = () if self._old is None else self._old.users_of(identity)
            return made(step, identity, frozenset(after), found.drops[identity])
        first = {*self._uses[identity], *filter(None, [self._moves.get(identity)])}
        return made(
            step, identity, frozenset(first), found.replaced.get(identity),
            found.desired[identity],
        )


def _step(found: Difference, what: str, identity: Identity, wave: int) -> Step:
    """The step of a change that no program has."""
    each = found.drops[identity] if what == "drop" else found.desired[identity]
    key = ItemKey(each.name.schema, each.kind, each.name.name)
    item_id = each.item_id if isinstance(each, DesiredName) else ""
    return Step(cast(Op, what), each.kind, str(key), item_id, wave)


def _side_by_side(operations: Sequence[NameOperation]) -> Iterator[NameOperation]:
    """Tell drops that are run side by side of each other."""
    for (_, drops), alike in groupby(
        operations, key=lambda each: (each.step.wave, isinstance(each, DropName))
    ):
        group = list(alike)
        if not drops:
            yield from group
            continue
        for first in range(0, len(group), DropName.TOGETHER):
            few = group[first : first + DropName.TOGETHER]
            beside = [each.standing for each in few if each.standing is not None]
            yield from (replace(each, beside=beside) for each in few)  # type: ignore[call-arg]


_PHASES = {"drop": "drop", "create": "register", "redefine": "register", "update": "register"}
"""By which words names are counted."""


def execute_names(
    work: ExecutionContext, state: State, operations: Sequence[NameOperation]
) -> tuple[int, list[StepFailure]]:
    """Make the schemas, then change the names: how many, and what failed.

    Our own views are no objects of the release's plan, and not in its progress.
    """
    for schema in sorted({each.wanted.name.schema for each in operations if each.wanted}):
        try:
            work.retrying(work.engine.ensure_schema, schema, state.lineage)
        except MetastoreFailure as error:
            return 0, [failure_of("create", f"the schema {schema}", error)]
    changed: list[NameOperation] = []
    reported = Ended(work.on_progress, _PHASES, [
        each for each in operations
        if not each.is_done() and OUR_SCHEMAS.match(each.identity[1]) is None
    ])

    def on_ended(operation: NameOperation) -> None:
        if not operation.is_done():
            changed.append(operation)
            reported(operation)

    failures = execute(operations, work, keep_going=True, on_ended=on_ended)
    return len(changed), [
        failure_of("drop" if each.step.op == "drop" else "create", each.step.subject, error)
        for each, error in failures
    ]


def _moves(found: Difference, warehouse: str) -> dict[Identity, Identity]:
    """Missing names of tables with the name that goes, where that points at the same directory."""
    standing: dict[str, Identity] = {}
    for identity, each in found.drops.items():
        if each.kind == "table" and each.location is not None:
            standing[relative(warehouse, each.location) or each.location] = identity
    return {
        identity: standing[location] for identity in found.missing
        if (location := found.desired[identity].location) is not None and location in standing
    }


def _old_graph(state: State, found: Difference) -> DependencyGraph:
    """Who uses whom among the names that stand there and go or are replaced."""
    from catalog_migrate.model.graph import DependencyGraph

    there = {**found.drops, **found.replaced}
    serials: dict[Identity, int] = {}
    tombstones = [(identity_of_tombstone(each), each) for each in state.tombstones]
    for used, tombstone in tombstones:  # the oldest first: what is there is of that serial
        serials.setdefault(used, tombstone.serial)
    uses = _find_uses_of_tombstones(tombstones, there, serials)
    by_item = {name.item_id: identity for identity, name in found.desired.items()}
    for identity, standing in there.items():
        if identity in serials:
            if standing.kind == "view":
                uses[identity].update(_find_changed_since(found, serials, serials[identity]))
        elif identity in found.desired:
            if identity not in found.replaced:
                used_now = {by_item[i] for i in found.desired[identity].uses if i in by_item}
                uses[identity].update(used_now & (found.drops.keys() - serials.keys()))
        elif standing.kind == "view":
            uses[identity].update(_find_left_over(found))
    return DependencyGraph(uses, {
        identity: ItemKey(each.name.schema, each.kind, each.name.name)
        for identity, each in there.items()
    })


def _find_left_over(found: Difference) -> Iterator[Identity]:
    """What a view that is left over may read: it is not on record."""
    for used, each in found.drops.items():
        if each.kind != "view" and used not in found.desired:
            yield used


def _find_changed_since(
    found: Difference, serials: Mapping[Identity, int], serial: int
) -> Iterator[Identity]:
    """Tables that a view of ``serial`` may read: registered again, or dropped by a later one."""
    for identity, each in found.drops.items():
        if each.kind == "table":
            gone = serials.get(identity)
            if (identity in found.desired) if gone is None else gone > serial:
                yield identity


def _find_uses_of_tombstones(
    tombstones: Iterable[tuple[Identity, TombstoneRecord]], there: Collection[Identity],
    serials: Mapping[Identity, int],
) -> dict[Identity, set[Identity]]:
    """What each name that stands there used by the tombstones of its serial."""
    uses: dict[Identity, set[Identity]] = {identity: set() for identity in there}
    texts = {identity_text(identity): identity for identity in there}
    for used, tombstone in tombstones:
        serial = tombstone.serial
        if used in uses and serials[used] == serial:
            for text in tombstone.users:
                user = texts.get(text)
                if user is not None and serials.get(user, serial) == serial:
                    uses[user].add(used)
    return uses


def list_uses(
    names: Mapping[Identity, DesiredName]
) -> tuple[Mapping[Identity, Sequence[Identity]], Mapping[Identity, ItemKey]]:
    """Who uses whom among names that are to stand, and their keys."""
    by_item = {name.item_id: identity for identity, name in names.items()}
    return (
        {
            identity: [
                by_item[item] for item in name.uses if item in by_item and item != name.item_id
            ]
            for identity, name in names.items()
        },
        {
            identity: ItemKey(name.name.schema, name.kind, name.name.name)
            for identity, name in names.items()
        },
    )
