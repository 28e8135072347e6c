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
from functools import partial
from typing import ClassVar

from catalog_migrate.catalog.operation_kinds import ROLLING_BACK, STARTED, UNCONFIRMED
from catalog_migrate.catalog.records import OperationRecord
from catalog_migrate.catalog.state import State
from catalog_migrate.catalog.transaction import Changes
from catalog_migrate.errors import AlterFailed, CatalogMigrateError, ValidationFailed
from catalog_migrate.program.steps import stored
from catalog_migrate.streams import dependencies
from catalog_migrate.streams.checkpoint.snapshots import Snapshots
from catalog_migrate.streams.failures import Failure
from catalog_migrate.streams.judgement import (
    Judgement,
    Refusals,
    is_same_failure,
    judge,
    pause_remedy,
)
from catalog_migrate.streams.operations import (
    OperationRun,
    Program,
    alter_program,
    is_defined_as,
    redefine,
    redefined,
    restarted,
    rollback_program,
)
from catalog_migrate.streams.probes import Probing, Verdict, probe_queries
from catalog_migrate.streams.status import shortly
from catalog_migrate.streams.supervisor import Known, Managed
from catalog_migrate.streams.upstream import Upstream, input_known

PROBE_AGAIN = 1.0
"""Seconds between two probes of what did not work."""

_LOOK = 0.01
"""Seconds between two looks at queries that are starting."""


@dataclass
class Trial(OperationRun):
    """One ALTER: validated, tried by its queries, confirmed or taken back."""

    title = "ALTER of "
    found_sick: dict[str, str] = field(init=False, default_factory=dict)
    """Queries that turned out to fail of what they failed of before, by item id, and of what."""

    def about(self, state: State) -> str:
        """What it alters, as ``connection default.c``; by its old name once it is gone."""
        row = state.operations[self.key]
        item = state.items.get(row.target)
        definition = item.definition if item is not None else row.before
        assert definition is not None
        return f"{definition.kind} {definition.item_name}"

    def planned(self, state: State, row: OperationRecord) -> Program:
        """To try it, or to take it back where that was begun."""
        dependents = [item_id for item_id in row.dependents if item_id in state.items]
        if row.detail.get("phase") == ROLLING_BACK:
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
        judgement = self._judge(state, row, failing)
        if judgement.broken:
            raise ValidationFailed(
                "refused by validation", verdicts=list(map(str, judgement.broken)),
                remedy=pause_remedy(state, judgement.broken),
            )
        if not is_defined_as(self.follow(), row.target, row.before):
            raise AlterFailed(
                "the definition changed meanwhile; nothing was done",
                remedy="look at it (SHOW CREATE), then run the statement again",
            )

        def put(changes: Changes, current: State, row: OperationRecord) -> OperationRecord:
            redefine(changes, current, row.target, row.after, row.links_after)
            return row

        self.move(
            "trial", "alter", also=put, sick=judgement.sick_queries,
            failing={item_id: shortly(error) for item_id, error in failing.items()},
        )
        names = ", ".join(dependencies.display(state, each) for each in row.dependents)
        self.say(f"operation {self.key}: committed, these restart: {names}")
        for notice in judgement.notices:
            self.say(f"operation {self.key}: {notice}")

    def _judge(
        self, state: State, row: OperationRecord, failing: Mapping[str, str]
    ) -> Judgement:
        """What the alteration breaks; nothing where the statement wants no validation."""
        after, before = altered(state, row), altered(state, row, back=True)
        judged: list[Judgement] = []
        with self.supervisor.ports.threads.pool(1, "plans") as pool:
            planning = pool.submit(self.supervisor.prepare, after, row.dependents)

            def plan(of: State, item_ids: Sequence[str]) -> Refusals:
                return planning.result() if of is after else self.supervisor.prepare(of, item_ids)

            def probe() -> Sequence[Verdict]:
                judged.append(judge(
                    before, after, row.target, row.dependents, ports=self.supervisor.ports,
                    find_failing=lambda: failing, plan=plan,
                ))
                return judged[0].verdicts

            if row.validate:
                self.validate(probe)
        return judged[0] if judged else Judgement()

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
            if row.detail.get("phase") != STARTED:
                row = self._stand_still(row, probing)
            problems = self._watch(row, probing)
            if problems:
                stays = self._nothing_to_go_back_to(row)
            if stays:
                late = f"{'; '.join(problems)}; {stays}"
                self.say(f"operation {self.key}: {late}")
                problems = self._watch(row, probing)
        if not problems:
            self.end("confirmed", late, detail=self._describe_sick(row))
        elif stays:
            self.end(UNCONFIRMED, f"{'; '.join(problems)}, and as long again; {stays}")
        else:
            self._go_back(problems)

    def _stand_still(self, row: OperationRecord, probing: Probing) -> OperationRecord:
        """Stop all; as soon as one stands still, settle what was under way on the old options and
        snapshot its checkpoint. One commit then writes that down and lifts the holds, while the
        probe with the new options is under way and the starts are made ready; none goes off before
        the commit.

        A batch that can neither be finished nor removed (the old broker is gone) stays with its
        entry: the next start runs the same range on the new options, by the same upstream.
        """
        state = self.follow()
        snapshots: dict[str, int] = {}
        before = altered(state, row, back=True)

        def take(item_id: str) -> str | None:
            self.alive()
            checkpoint = self.supervisor.checkpoint(state, item_id)
            if checkpoint.query_id is None:
                return "it was never started"
            why = None
            try:
                if not self.settled(self.supervisor.spec(before, item_id)):
                    why = "its batch is run once more on the new options"
            except CatalogMigrateError as error:
                why = error.message
            snapshots[item_id] = self.snapshot(checkpoint)
            return why

        self.perform({"stop": self.supervisor.stop_one, "settle": take}, row.dependents)
        probing.ask(state, _awaited(state, row))
        with self.supervisor.ports.threads.pool(1, "written") as pool:
            written = pool.submit(
                self.move, f"trial, {STARTED}", "snapshot", self.about(state),
                snapshots=dict(sorted(snapshots.items())),
            )

            def known() -> Mapping[str, Upstream]:
                written.result()
                return probing.upstreams()

            self._start_all(state, row, known)
        return written.result().operations[self.key]

    def _start_all(self, state: State, row: OperationRecord, known: Known) -> set[str]:
        """Begin to start the queries, those that were sick as well; returns those that have to wait
        for the ids of their source's topics."""
        item_ids = restarted(state, row.dependents)
        late = {item_id for item_id in item_ids if not input_known(state, item_id)}
        self.start(state, set(item_ids) - late, known)
        return late

    def _watch(self, row: OperationRecord, probing: Probing) -> list[str]:
        """Start all and wait until each is healthy; what is wrong with those that are not.

        Healthy is a first progress and a probe with the new options, asked since the stop; both
        are awaited side by side. Queries that were sick before are started and not waited for; so
        are those that fail again of what they failed of before. The limit begins again while
        queries wait for their turn to start, and while all that is waited for is the first batch of
        queries whose tasks get on: an outage's backlog takes longer than any limit.
        """
        supervisor, clock = self.supervisor, self.supervisor.clock
        worked: dict[str, int] = {}
        failed: dict[str, Failure] = {}  # a query that is started again forgets it
        began = clock.wall()
        deadline = clock.monotonic() + row.limit
        state = self.follow()
        waiting = _awaited(state, row)
        probing.ask(state, waiting)
        late = waiting & self._start_all(state, row, probing.upstreams)
        again = 0.0
        while waiting:
            self.alive()
            supervisor.collect()
            probed = probing.verdicts()
            now = clock.monotonic()
            if late:
                state = self.follow()
                late = {item_id for item_id in late if not input_known(state, item_id)}
            for item_id in sorted(waiting - late):
                each = supervisor.managed.setdefault(item_id, Managed(item_id))
                query = each.query
                if each.failure is not None:
                    failed[item_id] = each.failure
                if query is None and each.starting is None and each.next_try <= now:
                    self.start(state, [item_id])
                verdict = probed.get(item_id)
                if verdict is None or not verdict.ok:
                    continue
                if query is not None and query.progress() is not None and query.active:
                    waiting.discard(item_id)
                    self.record(self.step("probe", item_id), began)
                elif item_id in row.failing and each.failures and is_same_failure(
                    shortly(each.error or ""), row.failing[item_id]
                ):
                    waiting.discard(item_id)
                    self.found_sick[item_id] = f"{each.name}: {row.failing[item_id]}"
            final = {each for each in waiting if each in probed and probed[each].final}
            if final:  # the others were not given their time, so nothing is said of them
                waiting = final
                break
            if any(_awaits_first_turn(supervisor.managed[each]) for each in waiting - late):
                deadline = now + row.limit
            if waiting and now >= deadline:
                healthy = {each for each in waiting if each in probed and probed[each].ok}
                if healthy - late != waiting or not _get_on(
                    [supervisor.managed[item_id] for item_id in sorted(waiting)], worked
                ):
                    break
                deadline = now + row.limit
            bad = {each for each in waiting if each in probed and not probed[each].ok}
            if bad and now >= again and probing.ask_again(state, bad):
                again = now + PROBE_AGAIN
            if waiting:
                clock.sleep(_LOOK)
        complaints = {
            item_id: self._complaint(
                state, row, item_id, probing.verdicts(), failed.get(item_id)
            )
            for item_id in sorted(waiting)
        }
        for item_id, complaint in complaints.items():
            self.record(self.step("probe", item_id), began, f"failed: {complaint}")
        return list(complaints.values())

    def _describe_sick(self, row: OperationRecord) -> dict[str, str]:
        """Return, for the row, all that was sick before and was not waited for."""
        found = {**row.sick, **self.found_sick}
        return {
            f"sick {number:03d}": found[item_id] for number, item_id in enumerate(sorted(found))
        }

    def _probe(
        self, state: State, item_ids: Sequence[str]
    ) -> tuple[dict[str, Verdict], dict[str, Upstream]]:
        """The first thing that is wrong with each query's access, else that all is well; and whom
        each one reaches."""
        verdicts, reached = probe_queries(state, item_ids, ports=self.supervisor.ports)
        found: dict[str, Verdict] = {}
        for verdict in verdicts:
            if verdict.item_id not in found or found[verdict.item_id].ok:
                found[verdict.item_id] = verdict
        return found, reached

    def _complaint(
        self, state: State, row: OperationRecord, item_id: str, probed: Mapping[str, Verdict],
        failed: Failure | None,
    ) -> str:
        name = dependencies.display(state, item_id)
        each = self.supervisor.managed.get(item_id)
        verdict = probed.get(item_id)
        failure = (each.failure if each is not None else None) or failed
        if failure is not None:
            return f"{name}: {failure.message}" + (
                f" (remedy: {failure.remedy})" if failure.remedy else ""
            )
        if verdict is not None and not verdict.ok:
            return f"{name}: {verdict.message}"
        return f"{name}: made no progress in {row.limit:.0f} s"

    # -- setting back --------------------------------------------------------------------------

    def _nothing_to_go_back_to(self, row: OperationRecord) -> str:
        """Why the new definition stays though not every query is healthy, in words; empty when the
        old one may come back.

        Both are probed now: a definition that answers does not give way to one that does not.
        """
        state = self.follow()
        awaited = sorted(_awaited(state, row))
        new, _ = self._probe(state, awaited)
        if not all(verdict.ok for verdict in new.values()):
            return ""
        self.alive()
        old, _ = self._probe(altered(state, row, back=True), awaited)
        dead = [each for _, each in sorted(old.items()) if not each.ok]
        if not dead:
            return ""
        said = f"{dead[0].name}: {dead[0].message}"
        return f"the new definition answers and stays, the old one does not answer ({said})"

    def _go_back(self, problems: Sequence[str]) -> None:
        """Commit the old definition again, unless somebody has changed it since."""
        reason = "; ".join(problems)

        def put(changes: Changes, current: State, row: OperationRecord) -> OperationRecord:
            if is_defined_as(current, row.target, row.after):
                redefine(changes, current, row.target, row.before, row.links_before)
            return row

        state, row = self.follow(), self.row
        self.program = rollback_program(state, row.dependents, row.snapshots, self.program)
        self.move(
            f"trial, {ROLLING_BACK}", "set back", f"{self.about(state)}: {reason}",
            detail={"reason": reason}, also=put, program=stored(self.program),
        )
        self.say(f"operation {self.key}: the old definition is committed again: {reason}")

    def _roll_back(self) -> None:
        state = self.follow()
        row = state.operations[self.key]

        def restore(item_id: str) -> str | None:
            self.alive()
            if item_id not in state.items:
                return "it was dropped"
            return self._restore(state, item_id, row.snapshots[item_id])

        stop = partial(self.supervisor.stop_one, limit=min(5.0, self.supervisor.drain))
        self.perform({"stop": stop, "edit": restore}, row.dependents)
        with Probing(self._probe, self.supervisor.ports.threads) as probing:
            problems = self._watch(row, probing)
        reason = row.detail.get("reason", "")
        if problems:
            also = "the old definition is back, and does not work either: "
            self.end("failed", f"{reason}; {also}{'; '.join(problems)}")
        else:
            self.end("set_back", reason)

    def _restore(self, state: State, item_id: str, number: int) -> str | None:
        """Give a query its snapshot back, or say why it keeps its checkpoint: a sink has a newer
        batch, or cannot say what it has. The checkpoint is valid as it stands."""
        checkpoint = self.supervisor.checkpoint(state, item_id)
        try:
            spec = self.supervisor.spec(state, item_id)
            sinks = self.supervisor.engine.last_batch(spec, checkpoint.query_id or "")
            if not sinks:
                return "its destination cannot say what it has"
            Snapshots(checkpoint).restore(number, sinks_latest=sinks)
        except CatalogMigrateError as error:
            return error.message
        return None

    steps: ClassVar = {
        "validating": _validate,
        "trial": _try,
        f"trial, {STARTED}": _try,
        f"trial, {ROLLING_BACK}": _roll_back,
    }


def _awaits_first_turn(each: Managed) -> bool:
    return each.waits_for_its_turn and not each.failures


def _get_on(waiting: Sequence[Managed], worked: dict[str, int]) -> bool:
    """Whether it is worth while to wait on: a query gets on, and no other one has failed.

    One whose tasks have not begun may only wait for the cores that the others have.
    """
    getting_on = [each for each in waiting if _gets_on(each, worked)]
    return bool(getting_on) and all(each in getting_on or not each.failures for each in waiting)


def _gets_on(each: Managed, worked: dict[str, int]) -> bool:
    """Whether the tasks of a query have done more than they ever had; ``worked`` is kept here.

    Work that a restart only does again does not count, so no query that fails waits for ever.
    """
    if not each.active or each.query is None:
        return False
    before, now = worked.get(each.item_id, 0), each.query.worked()
    worked[each.item_id] = max(before, now)
    return now > before


def _awaited(state: State, row: OperationRecord) -> set[str]:
    """The queries that an operation starts again and waits for: not those that were sick before,
    and no sink that waits for the ids of such a source's topics."""
    return {
        item_id for item_id in restarted(state, row.dependents) if item_id not in row.sick
        and (input_known(state, item_id) or state.items[item_id].links["reads"] not in row.sick)
    }


def altered(state: State, row: OperationRecord, *, back: bool = False) -> State:
    """The state as it would be with the operation's new (or, ``back``, old) definition."""
    definition, links = (row.before, row.links_before) if back else (row.after, row.links_after)
    return redefined(state, [(row.target, definition, links)])
