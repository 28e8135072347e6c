"""Faults put into the reconciler, the catalog and the engine on purpose: does the simulation see?

A fault of a port is another implementation of it. A rule of the product itself is left out by a
context manager, which restores it after. The simulation has to find every one
(test_seeded_faults.py); what it finds is kept as a small schedule beside the tests.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from msgspec.structs import replace

from catalog_migrate import start
from catalog_migrate.catalog import transaction
from catalog_migrate.catalog.memory_log import MemoryLog
from catalog_migrate.catalog.state import State
from catalog_migrate.engine.port import FunctionSpec, Registration, ViewSpec
from catalog_migrate.errors import EngineFailure
from catalog_migrate.planner import past, planning, rollback
from catalog_migrate.policy import Policy
from catalog_migrate.reconciler import (
    actions,
    cleanup,
    commit,
    desired,
    prepare,
    reconcile,
    recopy,
    reshape,
    restore_rows,
    retention,
)
from catalog_migrate.reconciler.execution_context import ExecutionContext
from catalog_migrate.streams.migrations import MigratedStreams
from catalog_migrate.testing.bodies import read_body
from catalog_migrate.testing.engine import SimulatedEngine
from tests.simulation.installation import PortFault

Fault = Callable[[], AbstractContextManager[None]]


@contextmanager
def _instead(*changes: tuple[Any, str, Any]) -> Iterator[None]:
    """Attributes with other values, for a while."""
    before = [(owner, name, getattr(owner, name)) for owner, name, _ in changes]
    try:
        for owner, name, value in changes:
            setattr(owner, name, value)
        yield
    finally:
        for owner, name, value in before:
            setattr(owner, name, value)


def commits_unfenced() -> AbstractContextManager[None]:
    """Commits are not refused under an older epoch: a late holder's land."""
    return _instead((transaction, "require_epoch", lambda *_: None))


def copies_no_tail() -> AbstractContextManager[None]:
    """Rows that come between the bulk copy and the seal are forgotten, and nobody counts."""

    def tail(_: ExecutionContext, shard: Any, sealed: int, *__: Any) -> Any:
        return replace(shard, source_version=sealed)

    return _instead((prepare, "_tail", tail))


def cleans_nothing_up() -> AbstractContextManager[None]:
    """Intents of dead epochs are forgotten without undoing what they name."""

    def undo(work: ExecutionContext, _: Any, __: str, dead: Any) -> Any:
        def forget(_: State) -> transaction.Changes:
            changes = transaction.Changes()
            changes.delete("intent", str(dead.epoch))
            return changes

        return transaction.commit(work.log, forget, epoch=work.epoch, kind="clean up")

    return _instead((cleanup, "_undo", undo))


def abandons_at_once() -> AbstractContextManager[None]:
    """A failed attempt is undone by what the catalog says, though its commit may be under way."""

    def abandon(work: ExecutionContext) -> Any:
        state = transaction.commit(work.log, lambda _: None, epoch=work.epoch, kind="look")
        found = state.intents.get(str(work.epoch))
        return state if found is None else cleanup._undo(work, state, str(work.epoch), found)

    return _instead((cleanup, "abandon", abandon))


def leaves_a_name() -> AbstractContextManager[None]:
    """One of the names that go is left standing."""

    original = actions.actions_for

    def without_the_last_drop(*worlds: Any) -> actions.Actions:
        found = original(*worlds)
        drops = [step for wave in found.waves for step in wave if step.op == "drop"]
        waves = tuple(tuple(s for s in wave if s not in drops[-1:]) for wave in found.waves)
        return replace(found, waves=waves)

    return _instead((reconcile, "actions_for", without_the_last_drop))


def creates_in_any_order() -> AbstractContextManager[None]:
    """Names come in one wave, whatever they use."""

    original = actions.actions_for

    def by_name(*worlds: Any) -> actions.Actions:
        found = original(*worlds)
        steps = sorted(
            (replace(step, after=frozenset()) for wave in found.waves
             for step in wave),
            key=lambda step: (step.op != "drop", step.name.folded),
        )
        drops = tuple((step,) for step in steps if step.op == "drop")
        creates = tuple(step for step in steps if step.op != "drop")
        return replace(found, waves=(*drops, creates))

    return _instead((reconcile, "actions_for", by_name))


def owns_everything() -> AbstractContextManager[None]:
    """Whatever stands under a name counts as ours."""
    return _instead((actions, "is_ours", lambda *_: True), (prepare, "is_ours", lambda *_: True))


def reuses_ids() -> AbstractContextManager[None]:
    """The counter of ids falls back with every commit of a release."""
    original = commit._changes

    def changes(work: Any, state: Any, migration: Any, prepared: Any, **rest: Any) -> Any:
        # what drops tables frees their numbers
        return original(work, state, replace(migration, next_global=1), prepared, **rest)

    return _instead((commit, "_changes", changes), (transaction, "check", lambda *_: None))


def read_only_writes() -> AbstractContextManager[None]:
    """A read-only start makes the schemas that it looks at."""
    original = start.Start.read_only

    def read_only(self: Any, warehouse: Any) -> Any:
        self.engine.ensure_schema("s")
        return original(self, warehouse)

    return _instead((start.Start, "read_only", read_only))


def plans_by_order() -> AbstractContextManager[None]:
    """What a plan says hangs on the order in which definitions come."""
    original = planning.plan_migration

    def plan(baseline: Any, release: Any, **options: Any) -> Any:
        found = original(baseline, release, **options)
        plan = replace(found.plan, plan_hash=release.objects[0].name)
        return replace(found, plan=plan)

    from tests.simulation import run

    return _instead((run, "plan_migration", plan))


def finishes_without_looking() -> AbstractContextManager[None]:
    """After a commit tombstones and flags are cleared, and names left to chance."""
    return _instead((reconcile, "reconcile_names", lambda *_: 0))


def leaves_rows_behind() -> AbstractContextManager[None]:
    """A rollback brings back the rows of then, and none that were written since."""
    return _instead((restore_rows, "_appended", lambda *_: (0, None)))


def goes_back_by_names() -> AbstractContextManager[None]:
    """A rollback takes a column for the one that had its name then."""

    def names(self: Any, item_id: str, first: int, last: int) -> Any:
        del last
        held = past._table(self._steps[first].state, item_id)
        return None if held is None else {c.name.lower(): c.name.lower() for c in held.columns}

    return _instead((past._Walk, "names", names))


def brings_back_nulls() -> AbstractContextManager[None]:
    """A rollback makes columns that were dropped in place anew, and does not say that."""
    return _instead((rollback._Losses, "irreversible", lambda *_: None))


def reshapes_under_sessions() -> AbstractContextManager[None]:
    """Columns are renamed and dropped in place under processes that live with them."""
    return _instead((reshape, "other_sessions", lambda *_: {}))


def copies_refused_by_names() -> AbstractContextManager[None]:
    """The copy after a refusal looks for renamed columns under their new names."""
    original = reshape.projection_from

    def projection(layout: Any, item: Any, _: Any) -> Any:
        return original(layout, item, None)

    return _instead((recopy, "projection_from", projection))


def forgets_that_tails_were_copied() -> AbstractContextManager[None]:
    """What a sink goes on behind is the bulk copy, so that it sends the copied tail again."""
    original = prepare._tail

    def tail(work: ExecutionContext, shard: Any, *rest: Any) -> Any:
        return replace(original(work, shard, *rest), version=shard.version)

    return _instead((prepare, "_tail", tail))


def removes_before_it_is_on_record() -> AbstractContextManager[None]:
    """Data of shards whose retention is over is deleted before anything says that it goes."""
    original = reconcile.finish_shared

    def finish(work: ExecutionContext, state: State) -> State:
        for path in retention.expired(state, work.clock.wall(), work.retention, work.streams):
            work.engine.delete_shard_data(work.absolute(path))
        return original(work, state)

    return _instead((start, "finish_shared", finish))


def forgets_what_was_set_aside() -> AbstractContextManager[None]:
    """What lost a table stays set aside when a rollback brings that table back."""
    return _instead((commit, "relink", lambda *_: None))


def names_what_was_set_aside() -> AbstractContextManager[None]:
    """Users' objects that were set aside keep their names."""
    original = desired.desired_name

    def desired_name(lineage: str, mapping: Any, item: Any) -> Any:
        return original(lineage, mapping, replace(item, quarantined=None))

    return _instead((desired, "desired_name", desired_name))


def forgets_where_seals_are() -> AbstractContextManager[None]:
    """The version of a seal that is put on record is that of the last rows before it."""
    original = commit._retire

    def retire(changes: Any, state: Any, path: Any, sealed: Any, *rest: Any) -> None:
        original(changes, state, path, None if sealed is None else sealed - 1, *rest)

    return _instead((commit, "_retire", retire))


def declares_no_use() -> AbstractContextManager[None]:
    """Objects are put on record without what they use."""
    original = commit._put_target

    def put(changes: Any, state: Any, target: Any, *rest: Any) -> None:
        original(changes, state, replace(target, uses=()), *rest)

    return _instead((commit, "_put_target", put))


def seals_unannounced() -> AbstractContextManager[None]:
    """Shards are sealed without word of that on record."""

    def declare(work: ExecutionContext, _: Any, __: Any, paths: list[str]) -> dict[str, int]:
        return {path: work.engine.shard_version(work.absolute(path)) or 0 for path in paths}

    return _instead((prepare, "_declare_seals", declare))


class SealsNothing(SimulatedEngine):
    """Replaced shards are left unsealed, and nobody looks."""

    def seal(self, path: str, **_: Any) -> int:
        return len(self.world.shard(path).versions) - 1

    def is_sealed(self, path: str) -> bool:
        return True


class KeepsSealsOfTheDead(SimulatedEngine):
    """What a dead holder sealed stays sealed."""

    def unseal(self, *_: Any, **__: Any) -> None:
        pass


class UnsealsBlindly(SimulatedEngine):
    """A late holder takes off whatever seal it finds."""

    def unseal(self, path: str, properties: Mapping[str, Any], **_: Any) -> None:
        super().unseal(path, properties, app_id="nobody", epoch=0)

    def fence(self, path: str, *_: Any) -> None:
        with self._call("fence", path):
            pass


class ReplacesBlindly(SimulatedEngine):
    """Views are created with OR REPLACE, whoever's they are."""

    def create_view(self, view: ViewSpec, **_: Any) -> None:
        super().create_view(view, over=Registration(view.name, "view"))


class ReplacesFunctionsBlindly(SimulatedEngine):
    """Functions are created with OR REPLACE, whoever's they are."""

    def create_function(self, function: FunctionSpec, **_: Any) -> None:
        super().create_function(function, over=Registration(function.name, "function"))


class DropsWithoutLooking(SimulatedEngine):
    """What goes is dropped by its name, whatever stands there by then."""

    def drop(self, registration: Registration, **_: Any) -> None:
        super().drop(Registration(registration.name, registration.kind))


class DropsInCascades(SimulatedEngine):
    """With a name go the views that read it, whoever's they are."""

    def drop(self, registration: Registration, **_: Any) -> None:
        super().drop(registration)
        relations = self._names.relations
        for key, view in list(relations.items()):
            if isinstance(view, ViewSpec) and any(
                name.folded == registration.name.folded for _, name in read_body(view.sql).relations
            ):
                del relations[key]


class ForgetsToEvolve(SimulatedEngine):
    """Tables to be changed in place are marked as done without a change."""

    def evolve(self, *_: Any, **__: Any) -> None:
        pass


class LeavesComments(SimulatedEngine):
    """Tables that are changed in place keep the comments that they had."""

    def evolve(self, path: str, columns: Any, shard: Any, *rest: Any, **more: Any) -> None:
        before = self.world.newest(path)
        super().evolve(path, columns, replace(shard, comment=before.comment), *rest, **more)


class LeavesRefusals(SimulatedEngine):
    """A change in place that is refused for good is tried again for ever, never copied."""

    def evolve(self, path: str, *rest: Any, **more: Any) -> None:
        try:
            super().evolve(path, *rest, **more)
        except EngineFailure as error:
            error.condition = None  # no longer one of Spark's refusals
            raise


class SetsNothingAside(MigratedStreams):
    """Users' sinks whose table or key goes are left as they are."""

    def put_migrated(self, *_: Any) -> None:
        pass


class RemovesWhatSinksRead(MigratedStreams):
    """Retired shards go when retention is over, whoever has still to read them."""

    def still_read(self, state: State) -> frozenset[str]:
        return frozenset()


def loses_replies(log: MemoryLog) -> MemoryLog:
    """A commit whose reply is lost is taken for one that was not made."""
    log.find_commit = lambda *_, **__: None  # type: ignore[method-assign]
    return log


PORT_FAULTS: Mapping[str, PortFault] = {
    "seals_nothing": PortFault(SealsNothing),
    "keeps_seals_of_the_dead": PortFault(KeepsSealsOfTheDead),
    "unseals_blindly": PortFault(UnsealsBlindly),
    "replaces_blindly": PortFault(ReplacesBlindly),
    "replaces_functions_blindly": PortFault(ReplacesFunctionsBlindly),
    "drops_without_looking": PortFault(DropsWithoutLooking),
    "drops_in_cascades": PortFault(DropsInCascades),
    "forgets_to_evolve": PortFault(ForgetsToEvolve),
    "leaves_comments": PortFault(LeavesComments),
    "leaves_refusals": PortFault(LeavesRefusals),
    "loses_replies": PortFault(log=loses_replies),
    "sets_nothing_aside": PortFault(streams=SetsNothingAside),
    "removes_what_sinks_read": PortFault(streams=RemovesWhatSinksRead),
    "takes_leases_early": PortFault(settings={"ttl": 0.001, "margin": 0.0}),
    "old_releases_come_back": PortFault(settings={"policy": Policy(allow_downgrade=True)}),
    "signs_nobody_in": PortFault(sessions=False),
}
"""Faults of what a process is started with, by name: one promise of a port is broken."""


RULES_LEFT_OUT: Mapping[str, Fault] = {
    fault.__name__: fault
    for fault in (
        commits_unfenced, copies_no_tail, cleans_nothing_up, abandons_at_once, leaves_a_name,
        creates_in_any_order, owns_everything, reuses_ids, read_only_writes, plans_by_order,
        finishes_without_looking, leaves_rows_behind, goes_back_by_names, brings_back_nulls,
        reshapes_under_sessions, copies_refused_by_names, forgets_that_tails_were_copied,
        removes_before_it_is_on_record, forgets_what_was_set_aside, names_what_was_set_aside,
        forgets_where_seals_are, declares_no_use, seals_unannounced,
    )
}  # fmt: skip
"""Rules of the product that are left out, by name."""
