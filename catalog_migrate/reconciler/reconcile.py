"""Drives the world to the committed state: level-triggered, idempotent, safe to kill anywhere.

*Shared* work (shards, tombstones, retirement, names of a metastore) is done under the lease;
*local* work (names of a per-session catalog) by every process for itself.

A change in place may be refused after its commit. The commit stands: the table has its new columns
by all that is on record, and only its shard has not. So a shard that has them is made, as prepare
would have made it, and put in the other's place.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec
from msgspec.structs import replace

from catalog_migrate.catalog.commits import Commit, commit
from catalog_migrate.catalog.opening import read_state
from catalog_migrate.catalog.operation_kinds import FAILED
from catalog_migrate.catalog.records import (
    RECONCILE,
    IntentRecord,
    ItemRecord,
    OperationRecord,
    ShardRecord,
)
from catalog_migrate.catalog.state import State
from catalog_migrate.catalog.updates import (
    Amend,
    Delete,
    Edit,
    Put,
    RaiseSerial,
    Swap,
    Update,
    WhileAt,
)
from catalog_migrate.engine.port import Registration, ShardSpec
from catalog_migrate.errors import (
    EngineFailure,
    LeaseHeld,
    LeaseLost,
    MetastoreFailure,
    NotReconciled,
    PrepareFailed,
)
from catalog_migrate.model.collector import collector_paused
from catalog_migrate.model.paths import is_absolute, shard_path
from catalog_migrate.model.table_properties import APPEND_ONLY
from catalog_migrate.model.wording import counted
from catalog_migrate.planner.plan import Target
from catalog_migrate.program.operations import execute
from catalog_migrate.program.steps import SESSION, Op, Step
from catalog_migrate.reconciler import cleanup
from catalog_migrate.reconciler.actions import (
    Difference,
    desired_names_only,
    desired_world,
    difference,
    shard_spec,
)
from catalog_migrate.reconciler.build_tables import Prepared
from catalog_migrate.reconciler.cleanup import RETENTION_SECONDS, expired, remove_data, removing
from catalog_migrate.reconciler.commit import ReplaceShard, stored_program
from catalog_migrate.reconciler.execution_context import ExecutionContext, NewShard, Progress
from catalog_migrate.reconciler.names import NameOperation, NamesEnded, name_operations
from catalog_migrate.reconciler.others import describe_holder, find_installation
from catalog_migrate.reconciler.prepare import carry_over, seals_of
from catalog_migrate.reconciler.reshape import is_refusal, projection_from, standing_names


class StepFailure(msgspec.Struct, frozen=True):
    """One step that failed: what, on which name, Spark's error class, how often it was tried.

    ``held``: it was not tried, because something of others has the name.
    """

    step: str
    name: str
    reason: str
    condition: str | None = None
    attempts: int = 1
    remedy: str | None = None
    held: bool = False

    def __str__(self) -> str:
        condition = f" [{self.condition}]" if self.condition else ""
        tries = counted(self.attempts, "attempt")
        return f"{self.step} {self.name}{condition} after {tries}: {self.reason}"


def shared_pending(
    state: State, given_up: Sequence[str] = (), *, session: bool = True
) -> list[str]:
    """What shared work the committed state still calls for, in words; empty when there is none.

    ``session`` False: without the names of a session, for which no start needs the lease.
    ``given_up`` are paths of shards whose retention is over
    (:func:`~catalog_migrate.reconciler.cleanup.expired`).
    """
    pending = [
        f"unfinished attempt of epoch {i.epoch}" for i in state.intents.values() if not i.committed
    ]
    pending += [
        f"unsealing of {seal.path}"
        for intent in state.intents.values() if intent.committed for seal in intent.seals
    ]
    pending += [f"drop of {t.kind} {t.schema}.{t.name}" for t in state.tombstones]
    pending += [f"evolve of {path}" for path, s in state.shards.items() if s.evolve]
    pending += [f"removal of {path}" for path in removing(state)]
    pending += [f"{o.kind}: {o.detail.get('step', '')}" for o in state.operations.values()
                if o.kind == RECONCILE and o.state in {"pending", FAILED}
                and (session or not _is_of_session(o))]
    pending += [f"removal of {path}" for path in given_up]
    return pending


def observe(work: ExecutionContext, state: State) -> list[Registration]:
    """Everything that stands under a schema that this catalog has ever used."""
    def look(schema: str) -> Sequence[Registration]:
        return work.retrying(work.engine.observe, schema)

    return [
        each for _, found in work.workers.each(schemas_of(state), look) for each in found
    ]


def schemas_of(state: State) -> list[str]:
    """Schemas of all living names, tombstones and shards ever handed out, and those that releases
    have left, folded once."""
    names = {m.schema.lower(): m.schema for m in state.mappings.values()}
    for tombstone in state.tombstones:
        names.setdefault(tombstone.schema.lower(), tombstone.schema)
    for shard in state.shards:
        schema = shard.split("/", 1)[0]
        if "=" not in schema and not is_absolute(shard):
            names.setdefault(schema.lower(), schema)
    for schema in state.former_schemas:
        names.setdefault(schema.lower(), schema)
    return sorted(names.values())


def names_complete(work: ExecutionContext, state: State) -> bool:
    """Whether every committed relation has a name: the cheap look of a start on a metastore."""
    wanted = desired_names_only(state)
    schemas = {mapping.schema for mapping in state.mappings.values()}
    standing: set[tuple[str, str]] = set()
    for schema in sorted(schemas):
        standing.update(name.folded for name in work.engine.names(schema))
    return wanted <= standing


def compare(work: ExecutionContext, state: State) -> Difference:
    """The difference between the committed state and the world, read afresh."""
    observed = observe(work, state)
    with collector_paused():
        return difference(state, desired_world(state), observed, work.warehouse)


def reconcile_names(
    work: ExecutionContext, state: State, program: Sequence[Step] = (), *,
    keep_foreign_names: bool = False,
) -> int:
    """Bring names in line, in the order of ``program``; returns how many steps were taken.

    What ``program`` has and is observed to be done already is skipped. Where something else is
    missing too, the order is made anew from all that is observed.

    Steps that fail do not stop the others; what depends on them is left for the next run. Raises
    NotReconciled with all failures, but for those on users' objects where ``work`` tolerates them,
    and names that are not ours where ``keep_foreign_names``.
    """
    try:
        found = compare(work, state)
    except MetastoreFailure as error:
        failure = _failure("look at", "the names", error)
        raise NotReconciled(
            f"committed, but the names in Spark's catalog could not be read: {error.message}",
            failures=[failure], remedy=_remedy([failure]),
        ) from error
    if found.drops or found.replaced:
        _confirm(work)
    failures = [
        StepFailure(
            "create", str(r.name),
            describe_holder(r, find_installation(r, work.warehouse)) + " has the name",
            held=True,
        )
        for r in ([] if keep_foreign_names else found.foreign)
    ]
    held = found.held_views
    if held is not None and work.journal.tolerated is not None:
        work.journal.tolerated.append(f"schema {held.name}: {held.reason}; {held.remedy}")
    operations = name_operations(state, found, work.warehouse, program)
    steps = 0
    if operations:
        steps, failed = _execute(work, state, operations)
        failures += failed
    if failures and work.journal.tolerated is not None:
        failures = _tolerated(work.journal.tolerated, state, failures)
    if failures:
        raise NotReconciled(
            f"committed, but {counted(len(failures), 'step')} could not be taken: {failures[0]}",
            failures=failures,
            remedy="".join(f"{each.remedy}; " for each in found.drift if each.kind == "foreign")
            + _remedy(failures),
        )
    _drop_schemas(work, state, found)
    return steps


def _execute(
    work: ExecutionContext, state: State, operations: Sequence[NameOperation]
) -> tuple[int, list[StepFailure]]:
    """How many names were changed, and what failed."""
    if not work.engine.persistent_names:
        operations = [
            dataclasses.replace(each, step=replace(each.step, phase=SESSION))
            for each in operations
        ]
    work.journal.steps += [each.step for each in operations]
    for schema in sorted({each.wanted.name.schema for each in operations if each.wanted}):
        try:
            work.retrying(work.engine.ensure_schema, schema, state.lineage)
        except MetastoreFailure as error:
            return 0, [_failure("create", f"the schema {schema}", error)]
    ended = NamesEnded(work, operations)
    failures = execute(operations, work, keep_going=True, on_ended=ended)
    work.journal.names += ended.count
    return ended.count, [
        _failure("drop" if each.step.op == "drop" else "create", each.step.subject, error)
        for each, error in failures
    ]


def _remedy(failures: Iterable[StepFailure]) -> str:
    """What to do about steps that failed: what one of them says, else the cause is to be found."""
    said = next((each.remedy for each in failures if each.remedy), None)
    return f"{said or 'fix the cause and run `catalog-migrate bootstrap` again'}; nothing is lost"


def _confirm(work: ExecutionContext) -> None:
    """LeaseLost when the lease is another's by now, whatever our own clock says.

    A machine that was suspended while it looked does not know: what it saw may be old, and names
    that it would drop or replace may be a user's since.
    """
    if work.lease is not None:
        work.lease.held.check(read_state(work.log))


def _tolerated(
    told: list[str], state: State, failures: list[StepFailure]
) -> list[StepFailure]:
    """The failures that stop a start; the others are told, and tried again at each start.

    Those are on users' objects, and a name of our own views that something else has.
    """
    owners = {str(m.key.item_name).lower(): m.owner for m in state.mappings.values()}

    def stops(failure: StepFailure) -> bool:
        owner = owners.get(failure.name.lower())
        return owner != "user" and not (owner == "system" and failure.held)

    told += [str(failure) for failure in failures if not stops(failure)]
    return [failure for failure in failures if stops(failure)]


_Pending = tuple[str, ItemRecord]
"""A shard that is to be changed in place, and what has it."""
_Planned = Mapping[tuple[Op, str], Step]


def _drop_schemas(work: ExecutionContext, state: State, found: Difference) -> None:
    """Drop the schemas made for this catalog that have lost their last object.

    The tombstones say which, until the commit that clears them, so that what a kill leaves is
    dropped by the next start. One that cannot be dropped is nothing a start fails for.
    """
    left = {t.schema.lower(): t.schema for t in state.tombstones}
    for registration in found.drops.values():
        left.setdefault(registration.name.schema.lower(), registration.name.schema)
    living = {mapping.schema.lower() for mapping in state.mappings.values()}
    for folded in sorted(left.keys() - living):
        work.ensure()
        try:
            work.engine.drop_schema_if_empty(left[folded], state.lineage)
        except MetastoreFailure:
            return  # the next one would wait as long for the same answer
        except EngineFailure:
            continue


def _failure(step: str, name: str, error: Exception) -> StepFailure:
    if isinstance(error, LeaseLost | LeaseHeld):
        raise error
    if isinstance(error, EngineFailure):
        return StepFailure(
            step, name, error.message, error.condition, int(error.data.get("attempts", 1)),
            error.remedy if isinstance(error, MetastoreFailure) else None,
        )
    raise error


def finish_shared(work: ExecutionContext, state: State) -> State:
    """Finish pending shared work from the catalog alone, under the lease; idempotent.

    Evolves shards, takes off the seals of those that new tables were filled from, brings a
    metastore's names in line, then clears tombstones and flags and gives up expired shards in one
    commit; only after that their data goes. Raises NotReconciled (recorded for ``status``) when a
    step keeps failing.
    """
    sealed = {key: intent for key, intent in state.intents.items() if intent.committed}
    try:
        program, before = stored_program(state), state
        steady = [path for path, record in state.shards.items() if not record.evolve]
        failures = _unseal(work, state, program, sealed, steady)
        state, evolved, refused = _evolve(work, state, program)
        failures += refused
        failures += _unseal(work, state, program, sealed, evolved)
        if failures:
            raise NotReconciled(
                f"committed, but {counted(len(failures), 'table')} could not be changed:"
                f" {failures[0]}",
                failures=failures, remedy=_remedy(failures),
            )
        if work.engine.persistent_names:
            # a table that was copied after all is registered anew, which no program has
            reconcile_names(work, state, program if state is before else ())
    except NotReconciled as error:
        record_failure(work, error)
        raise
    given_up = expired(state, work.clock.wall(), RETENTION_SECONDS, work.streams)
    cleared = tuple(
        f"{tombstone.serial:010d}/{tombstone.position:06d}" for tombstone in state.tombstones
    )

    updates: tuple[Update, ...] = (
        *(Delete("intent", key) for key in sealed),
        *(Delete("tombstone", key) for key in cleared),
        *(Amend("shard", path, _EVOLVED) for path in evolved),
        *(Amend("shard", path, _GIVEN_UP) for path in given_up),
    )
    end = EndReconcile(work.engine.persistent_names)
    if updates or end.apply(state):
        with work.journal.unlogged() as executed:
            state = commit(work.log, Commit(
                "reconcile", (*updates, end), (work.held,), executed=tuple(executed)
            ))
    return remove_data(work, state)


_EVOLVED = {"evolve": False, "shape": None, "unset": ()}
_GIVEN_UP = {"state": "gone", "removing": True, "columns": {}}


class EndReconcile(msgspec.Struct, frozen=True):
    """Nothing is to be reconciled any more; what is pending in a session stays, unless names
    last."""

    names_last: bool

    def apply(self, state: State) -> tuple[Edit, ...]:
        """Return that the pending operation goes."""
        row = state.operations.get(RECONCILE)
        if row is None or (_is_of_session(row) and not self.names_last):
            return ()
        return (Delete("operation", RECONCILE),)


def _unseal(
    work: ExecutionContext, state: State, program: Sequence[Step],
    sealed: Mapping[str, IntentRecord], paths: Iterable[str],
) -> list[StepFailure]:
    """Take the seals off that a commit left on those of the tables in force; what failed.

    Idempotent. It is the turn of those that are also changed in place behind that change: a row
    that came in between could have values for columns that go, and no table would have them.
    """
    planned = {step.id: step for step in program if step.op == "unseal"}
    failures: list[StepFailure] = []
    wanted = set(paths) if sealed else set()
    for seal in (seal for intent in sealed.values() for seal in intent.seals):
        record = state.shards.get(seal.path)
        if seal.path not in wanted or record is None or record.state != "live":
            continue
        definition = state.items[record.item_id].definition
        key = definition.key
        step = planned.get(record.item_id) or Step("unseal", key.kind, str(key), record.item_id)
        work.journal.steps.append(step)
        earlier = dict(seal.properties)
        if record.evolve:  # what the release declares, or leaves out, has been changed just now
            left = dict.fromkeys(_unset(work, state, seal.path))
            changed = {**left, **definition.properties}
            earlier |= {name: changed[name] for name in earlier.keys() & changed.keys()}
        earlier = cleanup.relied_on(work, state, record, earlier)
        try:
            with work.executing(step):
                work.retrying(
                    work.engine.unseal, work.absolute(seal.path), earlier, app_id=state.app_id,
                    epoch=work.epoch,
                )
        except EngineFailure as error:
            failures.append(_failure("unseal", str(definition.item_name), error))
    return failures


def _unset(work: ExecutionContext, state: State, path: str) -> tuple[str, ...]:
    """The properties that a shard loses; one that a stream's output needs stays."""
    record = state.shards[path]
    if APPEND_ONLY in record.unset and record.item_id in work.streams.append_only(state):
        return tuple(key for key in record.unset if key != APPEND_ONLY)
    return record.unset


def _evolve(
    work: ExecutionContext, state: State, program: Sequence[Step]
) -> tuple[State, list[str], list[StepFailure]]:
    """Make pending changes in place; what is refused for good is copied instead.

    The state, the paths of those that are changed, and what failed.
    """
    pending = [
        (path, state.items[record.item_id])
        for path, record in sorted(state.shards.items())
        if record.evolve and record.item_id in state.items
    ]
    if not pending:
        return state, [], []
    pending.sort(key=lambda pair: str(pair[1].definition.key).lower())
    planned: _Planned = {
        (step.op, step.id): step
        for step in program if step.op in {"evolve", "properties"}
    }
    specs = {
        path: shard_spec(
            item.definition, work.absolute(path),
            unset=_unset(work, state, path),
        )
        for path, item in pending
    }

    steps = [_in_place("evolve", state, pair, planned) for pair in pending]
    work.journal.steps += steps
    failures: list[StepFailure] = []
    refused: list[tuple[str, str, StepFailure]] = []

    def took(pair: _Pending, result: object) -> bool:
        if not isinstance(result, Exception):
            return True
        name = str(pair[1].definition.item_name)
        failure = _failure("evolve", name, result)
        if is_refusal(result):
            refused.append((pair[0], name, failure))
        else:
            failures.append(failure)
        return False

    evolved = []
    for number, (pair, result) in enumerate(
        work.each(
            pending,
            lambda pair: work.engine.evolve(
                work.absolute(pair[0]), pair[1].definition.columns, specs[pair[0]],
                state.shards[pair[0]].shape, app_id=state.app_id, epoch=work.epoch,
            ),
            steps,
        ),
        start=1,
    ):
        work.on_progress(
            Progress("evolve", number, len(pending), str(pair[1].definition.item_name))
        )
        if took(pair, result):
            evolved.append(pair)
    done = [path for path, _ in evolved]
    declared = [pair for pair in evolved if specs[pair[0]].properties or specs[pair[0]].unset]
    for pair, result in _set_properties(work, state, declared, specs, planned):
        if not took(pair, result):
            done.remove(pair[0])
    for path, name, failure in refused:
        try:
            state = recopy(work, state, path)
        except (EngineFailure, PrepareFailed) as error:
            also = f"{failure.reason}; the copy instead failed too: {error.message}"
            failures.append(StepFailure("evolve", name, also, failure.condition, failure.attempts))
    return state, done, failures


def _in_place(op: Op, state: State, pair: _Pending, planned: _Planned) -> Step:
    """The planned operation on a shard, or one that no program has."""
    item_id, key = state.shards[pair[0]].item_id, pair[1].definition.key
    return planned.get((op, item_id)) or Step(op, key.kind, str(key), item_id)


def _set_properties(
    work: ExecutionContext, state: State, declared: Sequence[_Pending],
    specs: Mapping[str, ShardSpec], planned: _Planned,
) -> Iterator[tuple[_Pending, Exception | None]]:
    """Set the properties that a shard lacks and only Delta's ALTER TABLE gives it."""
    if not declared:
        return
    lacking = []
    for pair, missing in work.each(
        declared,
        lambda pair: work.engine.missing_properties(work.absolute(pair[0]), specs[pair[0]]),
    ):
        step = _in_place("properties", state, pair, planned)
        if missing:  # an error is one too, and is raised again where they are set
            lacking.append((pair, step))
        elif ("properties", step.id) in planned:
            work.journal.steps.append(step)
            work.skipped(step, "they were as they should be already")
    steps = [step for _, step in lacking]
    work.journal.steps += steps
    yield from work.each(
        [pair for pair, _ in lacking],
        lambda pair: work.engine.set_properties(
            work.absolute(pair[0]), specs[pair[0]], app_id=state.app_id, epoch=work.epoch
        ),
        steps,
    )


def record_failure(work: ExecutionContext, error: NotReconciled) -> None:
    """Write the failing step into the catalog, so that ``status`` can name it without Spark."""
    record = _failure_record(error)
    if record is None:
        return

    fences = () if work.lease is None else (work.held,)
    with work.journal.unlogged() as executed:
        commit(work.log, Commit(
            "reconcile", (RecordFailure(record),), fences, executed=tuple(executed)
        ))


class RecordFailure(msgspec.Struct, frozen=True):
    """Record what fails in the pending reconciliation, whose program stays."""

    record: OperationRecord

    def apply(self, state: State) -> tuple[Edit]:
        """Return the operation."""
        pending = state.operations.get(RECONCILE)
        program = () if pending is None else pending.program
        return (Put("operation", RECONCILE, replace(self.record, program=program)),)


def record_session_failure(work: ExecutionContext, seen: State, error: NotReconciled) -> None:
    """Leave word that names of this session could not be made, unless it is on record.

    Not where the catalog moved on from ``seen`` or calls for shared work: that says pending itself.
    """
    record, known = _failure_record(error), seen.operations.get(RECONCILE)
    if record is None or (known is not None and not _is_of_session(known)):
        return
    record = replace(record, detail={**record.detail, **_OF_SESSION})
    if record == known:
        return
    note = WhileAt(seen.serial, Swap("operation", RECONCILE, known, record))
    commit(work.log, Commit("reconcile", (note,)))


def clear_session_failure(work: ExecutionContext, state: State) -> State:
    """The state without the word of :func:`record_session_failure`, once names were made."""
    known = state.operations.get(RECONCILE)
    if known is None or not _is_of_session(known):
        return state
    return commit(work.log, Commit("reconcile", (Swap("operation", RECONCILE, known, None),)))


_OF_SESSION = {"phase": "session"}
"""What a failure has in its detail when it is about names that end with their session."""


def _is_of_session(record: OperationRecord) -> bool:
    return record.state == FAILED and _OF_SESSION.items() <= record.detail.items()


def _failure_record(error: NotReconciled) -> OperationRecord | None:
    failures: Iterable[StepFailure] = error.failures
    first = next(iter(failures), None)
    if first is None:
        return None
    return OperationRecord(
        kind=RECONCILE,
        state=FAILED,
        detail={
            "step": f"{first.step} {first.name}",
            "condition": first.condition or "",
            "reason": first.reason[:1000],
            "attempts": str(first.attempts),
            "failures": str(len(error.failures)),
        },
    )


_RECOPIED: Sequence[Op] = ("copy", "seal")
"""What becomes of a table whose change in place was refused: a program of its own."""


def recopy(work: ExecutionContext, state: State, path: str) -> State:
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
        _target(state, item, record, projection_from(layout, item, record.shape)),
        shard_path(item.definition.schema, item.definition.name, work.token()),
        path,
    )
    key = item.definition.key
    steps = [
        Step(op, key.kind, str(key), record.item_id, wave)
        for wave, op in enumerate(_RECOPIED, start=1)
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
    with work.journal.unlogged() as executed:
        committed = commit(work.log, Commit(
            "copy after a refusal", updates, (work.held,), executed=executed
        ))
    work.on_progress(Progress("copy, not in place", 1, 1, name))
    return committed


def _target(
    state: State, item: ItemRecord, record: ShardRecord, projection: tuple[tuple[str, str], ...]
) -> Target:
    mapping = next(m for m in state.mappings.values() if m.item_id == record.item_id)
    return Target(
        definition=item.definition, identity=mapping.identity, item_id=mapping.item_id,
        global_id=mapping.global_id, hashes=mapping.hashes, applied=mapping.applied, uses=(),
        action="migrate", old=mapping.identity, contents="copy", projection=projection,
    )
