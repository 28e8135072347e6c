"""An ALTER under running queries, as the runtime carries it out.

``validating``: connection and every dependent are probed with the new options, nothing is
committed. ``trial``: the new definition is committed and the affected queries are held, stopped,
settled, snapshotted, started and watched. ``confirmed``: all are healthy. ``set_back``: the old
definition is back and the queries run on it. ``failed``: not even that, or it was refused.
``unconfirmed``: not all are healthy, and the new definition stays, because its probes answer and
those of the old one do not: there is nothing to go back to.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from catalog_migrate.catalog.commits import Commit
from catalog_migrate.catalog.operation_states import phase_of
from catalog_migrate.catalog.records import OperationRecord
from catalog_migrate.catalog.state import State
from catalog_migrate.catalog.updates import preview
from catalog_migrate.errors import AlterFailed, CatalogMigrateError, ValidationFailed
from catalog_migrate.model.findings import Finding
from catalog_migrate.operations.kinds import ROLLED_BACK, ROLLING_BACK, STARTED, UNCONFIRMED
from catalog_migrate.operations.operation import Operation
from catalog_migrate.streams.catalog import dependencies
from catalog_migrate.streams.catalog.cluster_log import summarize_error
from catalog_migrate.streams.catalog.dependencies import is_defined_as
from catalog_migrate.streams.catalog.updates import Redefine
from catalog_migrate.streams.checkpoint.snapshots import Snapshots
from catalog_migrate.streams.runtime.judgement import (
    Refusals,
    find_refusals,
    is_of_query,
    judge,
    pause_remedy,
    sick,
    sick_notice,
)
from catalog_migrate.streams.runtime.operations import (
    OperationRun,
    Program,
    StopQuery,
    alter_program,
    rollback_program,
)
from catalog_migrate.streams.runtime.probes import Probing, probe_queries
from catalog_migrate.streams.runtime.watch import Watch, list_awaited
from catalog_migrate.streams.upstreams.upstream import Upstream


@dataclass
class AlterOperation(OperationRun):
    """One ALTER: validated, tried by its queries, confirmed or taken back."""

    title = "ALTER of "
    snapshots: dict[str, int] = field(init=False, default_factory=dict)
    """Numbers of the snapshots that were taken, by item id."""

    def about(self, state: State) -> str:
        """Return what it alters, as ``connection default.c``, by its old name once dropped."""
        row = state.operations[self.key]
        item = state.items.get(row.target)
        definition = item.definition if item is not None else row.before
        assert definition is not None
        return f"{definition.kind} {definition.item_name}"

    def planned(self, state: State, row: OperationRecord) -> Program:
        """To try it, or to take it back where that was begun."""
        dependents = [item_id for item_id in row.dependents if item_id in state.items]
        if phase_of(row) == ROLLING_BACK:
            return rollback_program(state, dependents, row.snapshots, ())
        return alter_program(state, row.target, dependents, validate=row.validate)

    def abandoned(self) -> CatalogMigrateError:
        """Nothing is lost by running the statement again."""
        return AlterFailed(
            "the runtime ended while it validated; nothing was changed",
            remedy="start the runtime and run the statement again; or run it again now: it is then "
            "applied at the runtime's next start",
        )

    # -- validating ----------------------------------------------------------------------------

    def _validate(self) -> None:
        """Probe everything with the new definition; commit it with the holds when all is well.

        Spark makes the plans of the new queries meanwhile: most of what a start costs is spent
        while the old ones still run, and what it refuses is refused before the commit.
        """
        state = self.follow()
        row = state.operations[self.key]
        failing = self._failing(row)
        found = self.validate(lambda: self._judge(state, row, failing))
        refusing, were_sick = find_refusals(found), sick(found)
        if refusing:
            raise ValidationFailed(
                "refused by validation", findings=refusing, remedy=pause_remedy(state, refusing)
            )
        if not is_defined_as(self.follow(), row.target, row.before):
            raise AlterFailed(
                "the definition changed meanwhile; nothing was done",
                remedy="look at it (SHOW CREATE), then run the statement again",
            )

        redefine = Redefine(row.target, row.after, row.links_after)
        self.move(
            "trial", Commit("alter", (redefine,)),
            sick={
                each.item_id: str(each) for each in reversed(were_sick) if is_of_query(state, each)
            },
            failing={item_id: summarize_error(error) for item_id, error in failing.items()},
        )
        names = ", ".join(dependencies.display(state, each) for each in row.dependents)
        self.say(f"operation {self.key}: committed, these restart: {names}")
        for each in were_sick:
            self.say(f"operation {self.key}: {sick_notice(each)}")

    def _judge(
        self, state: State, row: OperationRecord, failing: Mapping[str, str]
    ) -> tuple[Finding, ...]:
        """What the alteration breaks; nothing where the statement wants no validation."""
        after, before = preview_altered(state, row), preview_altered(state, row, back=True)
        with self.supervisor.ports.threads.pool(1, "plans") as pool:
            planning = pool.submit(self.supervisor.prepare, after, row.dependents)
            if not row.validate:
                return ()

            def plan(of: State, item_ids: Sequence[str]) -> Refusals:
                return planning.result() if of is after else self.supervisor.prepare(of, item_ids)

            return judge(
                before, after, row.target, row.dependents, ports=self.supervisor.ports,
                find_failing=lambda: failing, plan=plan,
            )

    def _failing(self, row: OperationRecord) -> dict[str, str]:
        """What the queries fail of that make no progress now, by item id."""
        self.supervisor.collect()
        managed = self.supervisor.managed
        return {
            item_id: error for item_id in row.dependents
            if item_id in managed and (error := managed[item_id].error) is not None
        }

    # -- trial ---------------------------------------------------------------------------------

    def _try(self) -> None:
        row, stays, late = self.row, "", ""
        if not is_defined_as(self.follow(), row.target, row.after):
            self._go_back(["the definition changed meanwhile"])
            return
        with Probing(self._probe, self.supervisor.ports.threads) as probing:
            watch = Watch(self, self.follow(), row, probing)
            if phase_of(row) == STARTED:
                watch.begin()
            else:
                self._restart(watch)
            problems = watch.wait()
            if problems:
                stays = self._nothing_to_go_back_to(row)
            if stays:
                late = f"{'; '.join(problems)}; {stays}"
                self.say(f"operation {self.key}: {late}")
                watch.begin()
                problems = watch.wait()
        if not problems:
            self.end("confirmed", late, sick={**row.sick, **watch.sick})
        elif stays:
            self.end(UNCONFIRMED, f"{'; '.join(problems)}, and as long again; {stays}")
        else:
            self._go_back(problems)

    def _restart(self, watch: Watch) -> None:
        """Stop all; as soon as one stands still, settle what was under way on the old options and
        snapshot its checkpoint. One commit then writes that down and lifts the holds, while the
        probe with the new options is under way and the starts are made ready; none goes off before
        the commit.
        """
        state, before = watch.state, preview_altered(watch.state, watch.row, back=True)
        self.execute([
            *map(StopQuery, self.steps("stop")),
            *(SettleCheckpoint(step, state, before) for step in self.steps("settle")),
        ])
        watch.ask()
        with self.supervisor.ports.threads.pool(1, "written") as pool:
            written = pool.submit(
                self.move, "trial", Commit("snapshot", reason=self.about(state)), phase=STARTED,
                snapshots=dict(sorted(self.snapshots.items())),
            )

            def known() -> Mapping[str, Upstream]:
                written.result()
                return watch.probing.upstreams()

            watch.begin(known)
        written.result()

    def _probe(
        self, state: State, item_ids: Sequence[str]
    ) -> tuple[dict[str, Finding], dict[str, Upstream]]:
        """The first thing that is wrong with each query's access, else that all is well; and whom
        each one reaches."""
        verdicts, reached = probe_queries(state, item_ids, ports=self.supervisor.ports)
        found: dict[str, Finding] = {}
        for verdict in verdicts:
            if verdict.item_id not in found or found[verdict.item_id].ok:
                found[verdict.item_id] = verdict
        return found, reached

    # -- setting back --------------------------------------------------------------------------

    def _nothing_to_go_back_to(self, row: OperationRecord) -> str:
        """Why the new definition stays though not every query is healthy, in words; empty when the
        old one may come back.

        Both are probed now: a definition that answers does not give way to one that does not.
        """
        state = self.follow()
        awaited = sorted(list_awaited(state, row))
        new, _ = self._probe(state, awaited)
        if not all(verdict.ok for verdict in new.values()):
            return ""
        self.alive()
        old, _ = self._probe(preview_altered(state, row, back=True), awaited)
        dead = [each for _, each in sorted(old.items()) if not each.ok]
        if not dead:
            return ""
        said = f"{dead[0].subject}: {dead[0].message}"
        return f"the new definition answers and stays, the old one does not answer ({said})"

    def _go_back(self, problems: Sequence[str]) -> None:
        """Commit the old definition again, unless somebody has changed it since."""
        reason = "; ".join(problems)
        state, row = self.follow(), self.row
        redefine = Redefine(row.target, row.before, row.links_before, over=row.after)
        self.move(
            "trial", Commit("set back", (redefine,), reason=f"{self.about(state)}: {reason}"),
            phase=ROLLING_BACK,
            detail={"reason": reason},
            program=rollback_program(state, row.dependents, row.snapshots, self.program),
        )
        self.say(f"operation {self.key}: the old definition is committed again: {reason}")

    def _roll_back(self) -> None:
        state = self.follow()
        row = state.operations[self.key]
        limit = min(5.0, self.supervisor.drain)
        self.execute([
            *(StopQuery(step, limit) for step in self.steps("stop")),
            *(
                RestoreSnapshot(step, state, row.snapshots[step.id])
                for step in self.steps("edit")
            ),
        ])
        with Probing(self._probe, self.supervisor.ports.threads) as probing:
            watch = Watch(self, self.follow(), row, probing)
            watch.begin()
            problems = watch.wait()
        reason = row.detail.get("reason", "")
        if problems:
            also = "the old definition is back, and does not work either: "
            self.end("failed", f"{reason}; {also}{'; '.join(problems)}")
        else:
            self.end(ROLLED_BACK, reason)

    states: ClassVar = {
        "validating": _validate,
        "trial": _try,
        f"trial, {STARTED}": _try,
        f"trial, {ROLLING_BACK}": _roll_back,
    }


@dataclass(frozen=True)
class SettleCheckpoint(Operation[AlterOperation]):
    """Settles what was under way on the old options, and keeps a snapshot of the checkpoint.

    A batch that can neither be finished nor removed (the old broker is gone) stays with its entry:
    the next start runs the same range on the new options, by the same upstream. ``before`` has the
    old definition.
    """

    state: State
    before: State

    def run(self, context: AlterOperation) -> str | None:
        """Settle it; return why it could not be."""
        context.alive()
        checkpoint = context.supervisor.checkpoint(self.state, self.step.id)
        if checkpoint.query_id is None:
            return "it was never started"
        why = None
        try:
            if not context.settle(context.supervisor.spec(self.before, self.step.id)):
                why = "its batch is run once more on the new options"
        except CatalogMigrateError as error:
            why = error.message
        context.snapshots[self.step.id] = context.snapshot(checkpoint)
        return why


@dataclass(frozen=True)
class RestoreSnapshot(Operation[AlterOperation]):
    """Gives a checkpoint the snapshot back that was kept of it."""

    state: State
    number: int

    def run(self, context: AlterOperation) -> str | None:
        """Restore it, or return why the query keeps its checkpoint: a sink has a newer batch, or
        cannot say what it has. The checkpoint is valid as it stands."""
        context.alive()
        if self.step.id not in self.state.items:
            return "it was dropped"
        supervisor = context.supervisor
        checkpoint = supervisor.checkpoint(self.state, self.step.id)
        try:
            spec = supervisor.spec(self.state, self.step.id)
            sinks = supervisor.engine.last_batch(spec, checkpoint.query_id or "")
            if not sinks:
                return "its destination cannot say what it has"
            Snapshots(checkpoint).restore(self.number, sinks_latest=sinks)
        except CatalogMigrateError as error:
            return error.message
        return None


def preview_altered(state: State, row: OperationRecord, *, back: bool = False) -> State:
    """Return the state as it would be with the operation's new (or, ``back``, old) definition."""
    definition, links = (row.before, row.links_before) if back else (row.after, row.links_after)
    return preview(state, [Redefine(row.target, definition, links)])
