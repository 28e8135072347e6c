"""Queries that an operation starts again: each is waited for until it is healthy, or is not.

Healthy is a first progress and a probe with the definition in force, asked since the stop; both are
awaited side by side. Queries that were sick before are started and not waited for, and those that
fail again of what they failed of before no longer. The limit begins again while queries wait for
their turn to start, and while all that is waited for is the first batch of queries whose tasks get
on: an outage's backlog takes longer than any limit.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from catalog_migrate.catalog.records import OperationRecord
from catalog_migrate.catalog.state import State
from catalog_migrate.model.findings import Finding
from catalog_migrate.operations.operation import Operation
from catalog_migrate.operations.steps import Step
from catalog_migrate.streams.catalog import dependencies
from catalog_migrate.streams.catalog.cluster_log import summarize_error
from catalog_migrate.streams.catalog.failures import Failure
from catalog_migrate.streams.runtime.judgement import is_same_failure
from catalog_migrate.streams.runtime.operations import (
    NOT_RUNNING,
    OperationRun,
    StartQuery,
    list_restarted,
)
from catalog_migrate.streams.runtime.probes import Probing
from catalog_migrate.streams.runtime.supervisor import Known, Managed
from catalog_migrate.streams.upstreams.upstream import input_known

PROBE_AGAIN = 1.0
"""Seconds between two probes of what did not work."""

LOOK = 0.01
"""Seconds between two looks at queries that are starting; each asks the JVM about every one."""


def list_awaited(state: State, row: OperationRecord) -> set[str]:
    """List what an operation starts again and waits for: no query that was sick before, and no sink
    that waits for the ids of such a source's topics."""
    return {
        item_id for item_id in list_restarted(state, row.dependents) if item_id not in row.sick
        and (input_known(state, item_id) or state.items[item_id].links["reads"] not in row.sick)
    }


@dataclass(slots=True)
class _Waiting:
    """A query that is not healthy yet; ``failure`` is its last one, also while it starts again.

    ``worked`` is the most that its tasks had done at an end of the limit: work that a restart only
    does again does not count, so no query that fails is waited for without end.
    """

    step: Step
    began: float
    worked: int = 0
    failure: Failure | None = None

    def gets_on(self, managed: Managed) -> bool:
        """Return whether its tasks have done more than they ever had."""
        if not managed.active or managed.query is None:
            return False
        before, now = self.worked, managed.query.worked()
        self.worked = max(before, now)
        return now > before


@dataclass
class Watch:
    """The queries that one operation starts, from their starts to the last one's health."""

    run: OperationRun
    state: State
    row: OperationRecord
    probing: Probing
    sick: dict[str, str] = field(default_factory=dict)
    """Queries that turned out to fail of what they failed of before, by item id, and of what."""
    _waiting: dict[str, _Waiting] = field(default_factory=dict)
    _starts: dict[str, Step] = field(default_factory=dict)
    _late: set[str] = field(default_factory=set)
    _deadline: float = 0.0
    _probe_again: float = 0.0

    def begin(self, known: Known | None = None) -> None:
        """Begin to start the queries, and to wait for those that were well before.

        One that reads a source whose topics have no ids yet is started when they are on record.
        ``known`` gives the upstreams where more than the probe is to be waited for.
        """
        self.ask()
        state = self.state
        ready = set(list_restarted(state, self.row.dependents))
        waited = list_awaited(state, self.row)
        waits = {item_id for item_id in ready if not input_known(state, item_id)}
        known = known or self.probing.upstreams
        self._starts = {step.id: step for step in self.run.steps("start")}
        goes_off, self._late = ready - waits, waits & waited & self._starts.keys()
        self.run.execute([
            *(
                StartQuery(step, state, item_id in goes_off, known)
                for item_id, step in self._starts.items() if item_id not in self._late
            ),
            *(ProbeQuery(step, self, step.id in waited) for step in self.run.steps("probe")),
        ])

    def ask(self) -> None:
        """Begin to probe those that are waited for, unless that was begun already."""
        self.probing.ask(self.state, list_awaited(self.state, self.row))

    def wait_for(self, step: Step) -> None:
        """Wait for the query of a step, too."""
        self._waiting[step.id] = _Waiting(step, self.run.wall())

    def wait(self) -> list[str]:
        """Wait until each is healthy; return what is wrong with those that are not.

        Of a query that no waiting helps it is said at once, and nothing of the others, which were
        not given their time.
        """
        clock = self.run.supervisor.clock
        self._deadline = clock.monotonic() + self.row.limit
        while self._waiting and self._tick():
            clock.sleep(LOOK)
        complaints = {item_id: self._complain(item_id) for item_id in sorted(self._waiting)}
        for item_id, complaint in complaints.items():
            self._record(item_id, f"failed: {complaint}")
        return list(complaints.values())

    def _tick(self) -> bool:
        """Look at each once; return whether to look again."""
        self.run.alive()
        self.run.supervisor.collect()
        probed, now = self.probing.verdicts(), self.run.supervisor.clock.monotonic()
        for item_id in self._not_late():
            outcome = self._look(item_id, probed.get(item_id), now)
            if outcome:
                self._record(item_id, outcome)
                del self._waiting[item_id]
        bad = {item_id: each for item_id, each in probed.items() if not each.ok}
        final = [each for each in sorted(self._waiting) if each in bad and bad[each].final]
        if final:
            for item_id in self._waiting.keys() - set(final):
                self._record(item_id, "skipped: not waited for")
            self._waiting = {item_id: self._waiting[item_id] for item_id in final}
        if final or not self._waiting or self._is_over(probed, now):
            return False
        self._ask_again(self._waiting.keys() & bad.keys(), now)
        return True

    def _ask_again(self, item_ids: Collection[str], now: float) -> None:
        """Probe once more what did not work, when it is time."""
        if item_ids and now >= self._probe_again and self.probing.ask_again(self.state, item_ids):
            self._probe_again = now + PROBE_AGAIN

    def _not_late(self) -> list[str]:
        """List those that can start: what they read is known."""
        if self._late:
            state = self.run.follow()
            self._late = {item_id for item_id in self._late if not input_known(state, item_id)}
        return sorted(self._waiting.keys() - self._late)

    def _look(self, item_id: str, verdict: Finding | None, now: float) -> str:
        """Start a query again where it has ended; return what its probe comes to, if it has."""
        managed = self._manage(item_id)
        query, waiting = managed.query, self._waiting[item_id]
        waiting.failure = managed.failure or waiting.failure
        if query is None and managed.starting is None and managed.next_try <= now:
            state = self.run.follow()
            if item_id not in state.items:  # it was dropped meanwhile
                return f"skipped: {NOT_RUNNING}"
            self.run.execute([StartQuery(self._starts[item_id], state, waits=False)])
        if verdict is None or not verdict.ok:
            return ""
        if query is not None and query.progress() is not None and query.active:
            return "done"
        earlier = self.row.failing.get(item_id)
        if earlier is None or not managed.failures or not is_same_failure(
            summarize_error(managed.error or ""), earlier
        ):
            return ""
        self.sick[item_id] = f"{managed.name}: {earlier}"
        return f"skipped: {NOT_RUNNING}"

    def _is_over(self, probed: Mapping[str, Finding], now: float) -> bool:
        """Whether the limit is over, and waiting on is not worth while."""
        waiting = {item_id: self._manage(item_id) for item_id in sorted(self._waiting)}
        turns = [
            each for item_id, each in waiting.items()
            if item_id not in self._late and each.waits_for_its_turn and not each.failures
        ]
        if not turns and now < self._deadline:
            return False
        well = all(item_id in probed and probed[item_id].ok for item_id in waiting)
        if not turns and (self._late or not well or not self._get_on(waiting)):
            return True
        self._deadline = now + self.row.limit
        return False

    def _get_on(self, waiting: Mapping[str, Managed]) -> bool:
        """Whether a query gets on, and no other one has failed.

        One whose tasks have not begun may only wait for the cores that the others have.
        """
        getting_on = [
            item_id for item_id, each in waiting.items() if self._waiting[item_id].gets_on(each)
        ]
        return bool(getting_on) and all(
            item_id in getting_on or not each.failures for item_id, each in waiting.items()
        )

    def _manage(self, item_id: str) -> Managed:
        return self.run.supervisor.managed.setdefault(item_id, Managed(item_id))

    def _record(self, item_id: str, outcome: str) -> None:
        waiting = self._waiting[item_id]
        self.run.record(waiting.step, waiting.began, outcome)

    def _complain(self, item_id: str) -> str:
        name = dependencies.display(self.state, item_id)
        verdict = self.probing.verdicts().get(item_id)
        failure = self._manage(item_id).failure or self._waiting[item_id].failure
        if failure is not None:
            remedy = f" (remedy: {failure.remedy})" if failure.remedy else ""
            return f"{name}: {failure.message}{remedy}"
        if verdict is not None and not verdict.ok:
            return f"{name}: {verdict.message}"
        return f"{name}: made no progress in {self.row.limit:.0f} s"


@dataclass(frozen=True)
class ProbeQuery(Operation[OperationRun]):
    """Waits until a query that was started is healthy: one look is for all of a watch.

    ``runs`` is False for one that is held, or was sick before.
    """

    watch: Watch
    runs: bool

    TOGETHER: ClassVar[int | None] = 1
    GOES_ON: ClassVar[bool] = True

    def is_done(self, context: OperationRun) -> str:
        """Leave out what is not waited for."""
        del context
        return "" if self.runs else NOT_RUNNING

    def run(self, context: OperationRun) -> None:
        """Begin to wait for it."""
        del context
        self.watch.wait_for(self.step)
