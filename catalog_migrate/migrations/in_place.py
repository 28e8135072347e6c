"""Changes tables in place behind their commit, and takes off the seals of those that stay.

A change in place may be refused after its commit. The commit stands: the table has its new columns
by all that is on record, and only its shard has not. So a shard that has them is made, as prepare
would have made it, and put in the other's place.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from catalog_migrate.catalog.commits import Commit
from catalog_migrate.catalog.records import RECONCILE, SealedShard, ShardRecord
from catalog_migrate.catalog.state import State
from catalog_migrate.catalog.updates import Amend, Delete, RaiseSerial
from catalog_migrate.engine.port import ShardSpec
from catalog_migrate.errors import EngineFailure, NotReconciled, PrepareFailed
from catalog_migrate.migrations import cleanup
from catalog_migrate.migrations.actions import shard_spec
from catalog_migrate.migrations.build_tables import Prepared
from catalog_migrate.migrations.commit import ReplaceShard
from catalog_migrate.migrations.execution_context import (
    AfterCommit,
    Ended,
    ExecutionContext,
    NewShard,
)
from catalog_migrate.migrations.failures import StepFailure, failure_of, remedy_of
from catalog_migrate.migrations.prepare import carry_over, seals_of
from catalog_migrate.migrations.reshape import is_refusal, projection_from, standing_names
from catalog_migrate.migrations.seals import UnsealTable
from catalog_migrate.model.paths import shard_path
from catalog_migrate.model.progress import Progress
from catalog_migrate.model.table_properties import APPEND_ONLY
from catalog_migrate.model.wording import counted
from catalog_migrate.operations.operation import execute
from catalog_migrate.operations.steps import Op, Step
from catalog_migrate.planner.plan import Target


@dataclass(frozen=True)
class SetProperties(AfterCommit):
    """Set the properties that the shard at ``path`` lacks and only Delta's ALTER TABLE gives it."""

    path: str
    state: State
    spec: ShardSpec

    def is_done(self, context: ExecutionContext) -> str:
        """Look at the table."""
        lacking = context.engine.missing_properties(context.absolute(self.path), self.spec)
        return "" if lacking else "they were as they should be already"

    def run(self, context: ExecutionContext) -> None:
        """Have Spark set and unset them."""
        context.engine.set_properties(
            context.absolute(self.path), self.spec, app_id=self.state.app_id, epoch=context.epoch
        )


@dataclass(frozen=True)
class EvolveTable(AfterCommit):
    """Give the shard at ``path`` its committed columns, comments and properties.

    ``properties`` sets those that only Delta's ALTER TABLE gives, where the program has no step
    that does.
    """

    path: str
    state: State
    spec: ShardSpec
    properties: SetProperties | None = None

    def run(self, context: ExecutionContext) -> None:
        """Change the shard by one commit."""
        context.engine.evolve(
            context.absolute(self.path), self.spec.columns, self.spec,
            self.state.shards[self.path].shape, app_id=self.state.app_id, epoch=context.epoch,
        )
        if self.properties is not None and not self.properties.is_done(context):
            self.properties.run(context)


InPlace = EvolveTable | SetProperties | UnsealTable


def change_in_place(
    work: ExecutionContext, state: State, program: Sequence[Step]
) -> tuple[State, list[str]]:
    """Make pending changes in place, by the steps of ``program``; the state, and what has changed.

    What is refused for good is copied instead. Raises NotReconciled with what failed else.
    """
    operations = list(_operations(work, state, program))
    if not operations:
        return state, []
    work.journal.steps += [each.step for each in operations]
    ended = Ended(work.on_progress, {"evolve": "evolve"}, operations)
    failed = [
        (operation.step, error, _failure(operation.step, error))
        for operation, error in execute(operations, work, keep_going=True, on_ended=ended)
    ]
    unchanged = {step.id for step, *_ in failed}
    places = {each.step.id: each.path for each in operations if each.step.op == "evolve"}
    failures: list[StepFailure] = []
    for step, error, failure in failed:
        left: StepFailure | None = failure
        if step.op != "unseal" and is_refusal(error):
            state, left = _try_a_copy(work, state, places[step.id], failure)
        if left is not None:
            failures.append(left)
    if failures:
        raise NotReconciled(
            f"committed, but {counted(len(failures), 'table')} could not be changed: {failures[0]}",
            failures=failures, remedy=remedy_of(failures),
        )
    return state, [path for item_id, path in places.items() if item_id not in unchanged]


def _failure(step: Step, error: Exception) -> StepFailure:
    return failure_of("unseal" if step.op == "unseal" else "evolve", step.subject, error)


def _try_a_copy(
    work: ExecutionContext, state: State, path: str, refused: StepFailure
) -> tuple[State, StepFailure | None]:
    """The state with a copy in the place of a table that refuses its change; what failed else."""
    try:
        return _copy_instead(work, state, path), None
    except (EngineFailure, PrepareFailed) as error:
        also = f"{refused.reason}; the copy instead failed too: {error.message}"
        return state, StepFailure(
            "evolve", refused.name, also, refused.condition, refused.attempts
        )


def _operations(
    work: ExecutionContext, state: State, program: Sequence[Step]
) -> Iterator[InPlace]:
    """What the committed state calls for: the steps of the program, if it has them all.

    A table that is also changed in place is unsealed behind that change: a row that came in between
    could have values for columns that go, and no table would have them.
    """
    evolving = {
        record.item_id: path for path, record in state.shards.items()
        if record.evolve and record.item_id in state.items
    }
    sealed = _find_seals(state)
    steps = _steps(state, program, evolving, sealed)
    apart = {step.id for step in steps if step.op == "properties"}
    for step in steps:
        if step.op == "unseal":
            seal = sealed[step.id]
            properties = _behind_the_seal(work, state, seal.path, seal.properties)
            yield UnsealTable(step, seal.path, properties, state.app_id)
            continue
        path = evolving[step.id]
        spec = shard_spec(
            state.items[step.id].definition, work.absolute(path), unset=_unset(work, state, path)
        )
        properties_of = SetProperties(step, path, state, spec)
        if step.op == "properties":
            yield properties_of
        else:
            declared = step.id not in apart and (spec.properties or spec.unset)
            yield EvolveTable(step, path, state, spec, properties_of if declared else None)


def _find_seals(state: State) -> dict[str, SealedShard]:
    """The seals that a commit left on tables in force, by item id."""
    seals = chain.from_iterable(
        intent.seals for intent in state.intents.values() if intent.committed
    )
    records = ((state.shards.get(seal.path), seal) for seal in seals)
    return {
        record.item_id: seal for record, seal in records
        if record is not None and record.state == "live"
    }


def _steps(
    state: State, program: Sequence[Step], evolving: Mapping[str, str],
    sealed: Mapping[str, object],
) -> list[Step]:
    """The steps of the program on these tables; new ones where it has not all of them."""
    wanted: dict[Op, Mapping[str, object]] = {
        "evolve": evolving, "properties": evolving, "unseal": sealed,
    }
    planned = [step for step in program if step.id in wanted.get(step.op, ())]
    found = {(step.op, step.id) for step in planned}
    ops: tuple[Op, ...] = ("evolve", "unseal")
    if all((op, item_id) in found for op in ops for item_id in wanted[op]):
        return planned
    return [
        Step(op, key.kind, str(key), item_id, wave)
        for wave, op in enumerate(ops, start=1)
        for key, item_id in sorted(
            ((state.items[item_id].definition.key, item_id) for item_id in wanted[op]),
            key=lambda pair: str(pair[0]).lower(),
        )
    ]


def _behind_the_seal(
    work: ExecutionContext, state: State, path: str, before: Mapping[str, str | None]
) -> dict[str, str | None]:
    """The properties that take the place of a seal which was put over those of ``before``."""
    record, earlier = state.shards[path], dict(before)
    if record.evolve:  # what the release declares, or leaves out, has been changed just now
        declared = state.items[record.item_id].definition.properties
        changed = {**dict.fromkeys(_unset(work, state, path)), **declared}
        earlier |= {name: changed[name] for name in earlier.keys() & changed.keys()}
    return cleanup.find_replacing_properties(work, state, record, earlier)


def _unset(work: ExecutionContext, state: State, path: str) -> tuple[str, ...]:
    """The properties that a shard loses; one that a stream's output needs stays."""
    record = state.shards[path]
    if APPEND_ONLY in record.unset and record.item_id in work.streams.append_only(state):
        return tuple(key for key in record.unset if key != APPEND_ONLY)
    return record.unset


_INSTEAD: Sequence[Op] = ("copy", "seal")
"""What becomes of a table whose change in place was refused: a program of its own."""


def _copy_instead(work: ExecutionContext, state: State, path: str) -> State:
    """Copy the table at ``path`` into a shard with the committed columns, and put that in force.

    Raises PrepareFailed or EngineFailure when that fails too; then nothing has changed.
    """
    record = state.shards[path]
    item = state.items[record.item_id]
    name = str(item.definition.item_name)
    work.on_progress(Progress("copy, not in place", 0, 1, name))
    # one that is sealed already, since a new table was filled from it, stays so throughout: no new
    # table would have a row that came in between
    layout = work.retrying(lambda: work.engine.shard_layout(work.absolute(path)))
    standing = standing_names(layout, item, record.shape)
    shard = NewShard(
        target_of(state, record.item_id, projection_from(layout, item, record.shape)),
        shard_path(item.definition.schema, item.definition.name, work.token()),
        path,
    )
    key = item.definition.key
    steps = [
        Step(op, key.kind, str(key), record.item_id, wave)
        for wave, op in enumerate(_INSTEAD, start=1)
    ]
    work.journal.steps += steps
    prepared = Prepared(state, "", "copy after a refusal", tuple(steps))
    try:
        carry_over(work, prepared, steps, [shard], seals_of(prepared, steps, [shard]))
    except Exception:
        cleanup.abandon(work)
        raise
    made = prepared.shards[shard.target.identity]
    now = int(work.clock.wall())

    copy = ReplaceShard(
        made.path,
        ShardRecord(
            item_id=record.item_id, global_id=record.global_id, state="live", source=path,
            source_version=made.source_version, version=made.version, unfilled=record.unfilled,
        ),
        now, prepared.sealed[path],
        {number: standing[name] for number, name in item.name_of.items() if name in standing},
    )
    updates = (
        RaiseSerial(), copy, Delete("intent", str(work.epoch)),
        # its name moves too: the stored program does not have that
        Amend("operation", RECONCILE, {"program": ()}),
    )
    committed = work.commit(Commit("copy after a refusal", updates))
    work.on_progress(Progress("copy, not in place", 1, 1, name))
    return committed


def target_of(
    state: State, item_id: str, projection: tuple[tuple[str, str], ...] = ()
) -> Target:
    """Return what is in force of a table, as the target of a new directory."""
    mapping = next(m for m in state.mappings.values() if m.item_id == item_id)
    return Target(
        definition=state.items[item_id].definition, identity=mapping.identity, item_id=item_id,
        global_id=mapping.global_id, hashes=mapping.hashes, applied=mapping.applied, uses=(),
        action="migrate", old=mapping.identity, contents="copy", projection=projection,
    )
