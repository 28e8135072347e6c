"""Drives the world to the committed state: level-triggered, idempotent, safe to kill anywhere.

*Shared* work (shards, tombstones, retirement, names of a metastore) is done under the lease;
*local* work (names of a per-session catalog) by every process for itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import chain

from catalog_migrate.catalog.commits import Commit
from catalog_migrate.catalog.opening import read_state
from catalog_migrate.catalog.records import RECONCILE
from catalog_migrate.catalog.state import State
from catalog_migrate.catalog.updates import Amend, Delete, Update
from catalog_migrate.engine.port import Registration
from catalog_migrate.errors import EngineFailure, MetastoreFailure, NotReconciled
from catalog_migrate.migrations.actions import (
    Difference,
    difference,
    find_desired_keys,
    find_desired_names,
)
from catalog_migrate.migrations.cleanup import (
    RETENTION_SECONDS,
    find_expired,
    remove_data,
    removing,
)
from catalog_migrate.migrations.commit import read_stored_program
from catalog_migrate.migrations.execution_context import ExecutionContext
from catalog_migrate.migrations.failures import (
    EndReconcile,
    StepFailure,
    failure_of,
    is_of_session,
    not_tolerated,
    record_failure,
    remedy_of,
)
from catalog_migrate.migrations.in_place import change_in_place
from catalog_migrate.migrations.names import NameOperation, execute_names, name_operations
from catalog_migrate.migrations.others import describe_holder, find_installation
from catalog_migrate.model.collector import collector_paused
from catalog_migrate.model.paths import is_absolute
from catalog_migrate.model.wording import counted
from catalog_migrate.operations.kinds import FAILED
from catalog_migrate.operations.steps import Step


def list_pending_work(
    state: State, given_up: Sequence[str] = (), *, session: bool = True
) -> list[str]:
    """What shared work the committed state still calls for, in words; empty when there is none.

    ``session`` False: without the names of a session, for which no start needs the lease.
    ``given_up`` are paths of shards whose retention is over
    (:func:`~catalog_migrate.migrations.cleanup.find_expired`).
    """
    return list(_pending(state, given_up, session=session))


_UNFINISHED = frozenset({"pending", FAILED})


def _pending(state: State, given_up: Sequence[str], *, session: bool) -> Iterator[str]:
    yield from _pending_of_attempts(state)
    yield from (f"drop of {t.kind} {t.schema}.{t.name}" for t in state.tombstones)
    yield from (f"evolve of {path}" for path, record in state.shards.items() if record.evolve)
    yield from (f"removal of {path}" for path in removing(state))
    rows = [row for row in state.operations.values() if row.kind == RECONCILE]
    yield from (
        f"{row.kind}: {row.detail.get('step', '')}" for row in rows
        if row.state in _UNFINISHED and (session or not is_of_session(row))
    )
    yield from (f"removal of {path}" for path in given_up)


def _pending_of_attempts(state: State) -> Iterator[str]:
    intents = state.intents.values()
    yield from (f"unfinished attempt of epoch {i.epoch}" for i in intents if not i.committed)
    kept = chain.from_iterable(intent.seals for intent in intents if intent.committed)
    yield from (f"unsealing of {seal.path}" for seal in kept)


def observe(work: ExecutionContext, state: State) -> list[Registration]:
    """Everything that stands under a schema that this catalog has ever used."""
    look: Callable[[str], Sequence[Registration]]
    look = partial(work.retrying, work.engine.observe)  # type: ignore[call-arg]
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
    wanted = find_desired_keys(state)
    schemas = {mapping.schema for mapping in state.mappings.values()}
    standing: set[tuple[str, str]] = set()
    for schema in sorted(schemas):
        standing.update(name.folded for name in work.engine.names(schema))
    return wanted <= standing


def compare(
    work: ExecutionContext, state: State, program: Sequence[Step] = (), *, session: bool = False
) -> tuple[Difference, list[NameOperation]]:
    """Return the difference between the committed state and the world, read afresh, and what
    repairs it; ``program`` and ``session`` are as for :func:`name_operations`."""
    observed = observe(work, state)
    with collector_paused():
        found = difference(state, find_desired_names(state), observed, work.warehouse)
        return found, name_operations(state, found, work.warehouse, program, session=session)


def reconcile_names(
    work: ExecutionContext, state: State, program: Sequence[Step] = (), *,
    keep_foreign_names: bool = False,
) -> int:
    """Bring names in line, in the order of ``program``; returns how many steps were taken.

    What ``program`` has and is observed to be done already is skipped. Where something else is
    missing too, the order is made again from all that is observed.

    Steps that fail do not stop the others; what depends on them is left for the next run. Raises
    NotReconciled with all failures, but for those on users' objects where ``work`` tolerates them,
    and names that are not ours where ``keep_foreign_names``.
    """
    found, operations = _compare_or_tell(work, state, program)
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
    steps = 0
    if operations:
        work.journal.steps += [each.step for each in operations]
        steps, failed = execute_names(work, state, operations)
        failures += failed
        work.journal.names += steps
    if failures and work.journal.tolerated is not None:
        failures = not_tolerated(work.journal.tolerated, state, failures)
    if failures:
        raise NotReconciled(
            f"committed, but {counted(len(failures), 'step')} could not be taken: {failures[0]}",
            failures=failures,
            remedy="".join(f"{each.remedy}; " for each in found.drift if each.kind == "foreign")
            + remedy_of(failures),
        )
    _drop_schemas(work, state, found)
    return steps


def _compare_or_tell(
    work: ExecutionContext, state: State, program: Sequence[Step]
) -> tuple[Difference, list[NameOperation]]:
    try:
        return compare(work, state, program, session=not work.engine.persistent_names)
    except MetastoreFailure as error:
        failure = failure_of("look at", "the names", error)
        raise NotReconciled(
            f"committed, but the names in Spark's catalog could not be read: {error.message}",
            failures=[failure], remedy=remedy_of([failure]),
        ) from error


def _confirm(work: ExecutionContext) -> None:
    """LeaseLost when the lease is another's by now, whatever our own clock says.

    A machine that was suspended while it looked does not know: what it saw may be old, and names
    that it would drop or replace may be a user's since.
    """
    if work.lease is not None:
        work.lease.held.check(read_state(work.log))


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


def finish_shared(work: ExecutionContext, state: State) -> State:
    """Finish pending shared work from the catalog alone, under the lease; idempotent.

    Evolves shards, takes off the seals of those that new tables were filled from, brings a
    metastore's names in line, then clears tombstones and flags and gives up expired shards in one
    commit; only after that their data goes. Raises NotReconciled (recorded for ``status``) when a
    step keeps failing.
    """
    names_last = work.engine.persistent_names
    sealed = [key for key, intent in state.intents.items() if intent.committed]
    try:
        program, before = read_stored_program(state), state
        state, evolved = change_in_place(work, state, program)
        if names_last:
            # a table that was copied after all is registered again, which no program has
            reconcile_names(work, state, program if state is before else ())
    except NotReconciled as error:
        record_failure(work, error)
        raise
    given_up = find_expired(state, work.clock.wall(), RETENTION_SECONDS, work.streams)
    cleared = tuple(
        f"{tombstone.serial:010d}/{tombstone.position:06d}" for tombstone in state.tombstones
    )

    updates: tuple[Update, ...] = (
        *(Delete("intent", key) for key in sealed),
        *(Delete("tombstone", key) for key in cleared),
        *(Amend("shard", path, _EVOLVED) for path in evolved),
        *(Amend("shard", path, _GIVEN_UP) for path in given_up),
    )
    end = EndReconcile(names_last)
    if updates or end.apply(state):
        state = work.commit(Commit("reconcile", (*updates, end)))
    return remove_data(work, state)


_EVOLVED = {"evolve": False, "shape": None, "unset": ()}
_GIVEN_UP = {"state": "gone", "removing": True, "columns": {}}
