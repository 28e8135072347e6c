"""What must hold of the items that a statement or an operation is on, as values."""

from __future__ import annotations

import msgspec

from catalog_migrate.catalog.commits import Commit
from catalog_migrate.catalog.operation_states import is_open
from catalog_migrate.catalog.records import UNSAFE_FORMAT, OperationRecord
from catalog_migrate.catalog.requirements import Requirement
from catalog_migrate.catalog.state import State
from catalog_migrate.catalog.updates import RaiseFormat, Swap
from catalog_migrate.errors import CommitConflict
from catalog_migrate.model.objects import ObjectDefinition
from catalog_migrate.operations.kinds import ALTER, BACKFILLING, UNSAFE
from catalog_migrate.streams.catalog import dependencies
from catalog_migrate.streams.catalog.cluster_log import runtime_lives


def require_same(
    state: State, item_id: str, before: ObjectDefinition, *, is_same: bool, again: str
) -> None:
    """:class:`CommitConflict` for an item that was dropped since ``before``, or is not the same.

    ``again`` says what to do about another one.
    """
    item = state.items.get(item_id)
    if item is None:
        raise CommitConflict(
            f"{before.item_name} was dropped meanwhile", remedy="nothing is left to do"
        )
    if not is_same:
        raise CommitConflict(
            f"{item.definition.item_name} was changed by another process meanwhile: "
            + dependencies.compare_options(before, item.definition),
            remedy=f"look at it (SHOW CREATE), then {again}",
        )


class Unaltered(msgspec.Struct, frozen=True):
    """An item is defined as an ALTER of it was planned on, beside its name and comment."""

    item_id: str
    before: ObjectDefinition

    def check(self, state: State) -> None:
        """Raise :class:`CommitConflict` when it was dropped or changed since."""
        same = dependencies.is_defined_as(state, self.item_id, self.before)
        require_same(
            state, self.item_id, self.before, is_same=same, again="run the statement again"
        )


class NoOperationOn(msgspec.Struct, frozen=True):
    """No operation is at work on these items that one of this kind gives way to.

    An ALTER gives way to ALTERs only: the holder of the lease carries out one after the other. An
    unsafe operation was planned on what there is, so it gives way to all, and to a backfill.
    """

    kind: str
    item_ids: frozenset[str]

    def check(self, state: State) -> None:
        """Raise :class:`CommitConflict` when one is."""
        for key, row in state.operations.items():
            at_work = is_open(row) or row.state == BACKFILLING
            shared = {row.target, *row.dependents}.intersection(self.item_ids)
            if at_work and shared and (self.kind == UNSAFE or row.kind == ALTER):
                names = ", ".join(sorted(dependencies.display(state, each) for each in shared))
                raise CommitConflict(
                    f"operation {key} is at work on the same query: {names} ({row.state})",
                    remedy="wait for it (SHOW OPERATIONS), then run the statement again",
                    operation=key,
                )


class NoRuntime(msgspec.Struct, frozen=True):
    """No runtime of a cluster is alive."""

    cluster: str

    def check(self, state: State) -> None:
        """Raise :class:`CommitConflict` when one was started."""
        if runtime_lives(state, self.cluster):
            raise CommitConflict(
                f"a runtime of cluster {dependencies.display(state, self.cluster)} was started "
                "meanwhile", remedy="run the statement again: the runtime then carries it out",
            )


class Unless(msgspec.Struct, frozen=True):
    """Requirements of an operation that is not on record yet; one that is, is so for good."""

    key: str
    requirements: tuple[Requirement, ...]

    def check(self, state: State) -> None:
        """Raise what the first one says that does not hold."""
        if self.key not in state.operations:
            for each in self.requirements:
                each.check(state)


def ask_for(
    row: OperationRecord, key: str, kind: str, reason: str | None,
    requirements: tuple[Requirement, ...] = (),
) -> Commit:
    """Return the commit of an operation's first row; under a key that is known it writes nothing.

    No other operation may be at work on its items, and those of an ALTER must be what it was
    planned on. ``kind`` and ``reason`` are for the history.
    """
    free = NoOperationOn(row.kind, frozenset({row.target, *row.dependents}))
    of_kind = (Unaltered(row.target, row.before),) if row.kind == ALTER and row.before else ()
    raised = (RaiseFormat(UNSAFE_FORMAT),) if row.kind == UNSAFE else ()
    return Commit(
        kind, (*raised, Swap("operation", key, None, row)),
        (Unless(key, (free, *of_kind, *requirements)),), reason=reason,
    )
