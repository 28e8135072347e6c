"""Carries out statements: plan, validate, commit; an ALTER under running queries by operation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timezone
from uuid import uuid4

import msgspec

from catalog_migrate.catalog.clock import Clock, SystemClock
from catalog_migrate.catalog.errors import CommitConflict, LeaseHeld
from catalog_migrate.catalog.lease import Lease, acquire
from catalog_migrate.catalog.log import CatalogLog
from catalog_migrate.catalog.opening import read_state
from catalog_migrate.catalog.records import LeaseRecord, OperationRecord
from catalog_migrate.catalog.state import State
from catalog_migrate.catalog.transaction import Changes, commit
from catalog_migrate.sql import statements as st
from catalog_migrate.sql.parser import parse
from catalog_migrate.streams import dependencies
from catalog_migrate.streams.effects import Effect
from catalog_migrate.streams.errors import (
    AlterFailed,
    AlterSetBack,
    AlterUnfinished,
    RefusedStatement,
    ValidationFailed,
)
from catalog_migrate.streams.explain import explain
from catalog_migrate.streams.operation_records import BACKFILLING
from catalog_migrate.streams.operations import (
    ALTER,
    OPEN,
    ROLLING_BACK,
    UNCONFIRMED,
    redefine,
    submit,
)
from catalog_migrate.streams.plans import is_planned, plan_statement
from catalog_migrate.streams.ports import Ports
from catalog_migrate.streams.probes import (
    require_valid,
    validate,
)
from catalog_migrate.streams.show import Rows, create_statement, show
from catalog_migrate.streams.status import cluster_key, moment, runtime_lives
from catalog_migrate.streams.unsafe.client import Confirm, Outcome, UnsafeClient, nobody
from catalog_migrate.streams.unsafe.forecast import Totals
from catalog_migrate.streams.unsafe.render import kept_by_sinks, sentence
from catalog_migrate.streams.unsafe.requests import request_of

TRIAL_LIMIT = 60.0
"""Seconds that restarted queries have to become healthy before they are set back."""

LEASE_TTL = 30.0
"""Seconds without a heartbeat after which a runtime counts as dead for whoever waits for it."""

_POLL = 0.01
_LISTEN = 1.0
"""Seconds between two looks for a runtime's heartbeat, which cost more than one for a commit."""


class Result(msgspec.Struct, frozen=True):
    """What one statement did: a sentence, notices, and rows where it shows something.

    ``operation`` is the key of the operation that carried it out, ``restarted`` the names of the
    queries that were restarted.
    """

    summary: str
    notices: tuple[str, ...] = ()
    rows: Rows | None = None
    operation: str | None = None
    restarted: tuple[str, ...] = ()


@dataclass(slots=True)
class Executor:
    """Executes statements on one catalog.

    ``make_shards`` creates the tables of new items (state, item id). ``limit`` is the time limit
    of a trial in seconds, ``on_progress`` is told what is waited for, ``confirm`` is asked before
    an unsafe operation begins (nobody else may say yes).
    """

    log: CatalogLog
    make_shards: Callable[[State, str], None]
    clock: Clock
    ports: Ports = field(default_factory=Ports)
    limit: float = TRIAL_LIMIT
    on_progress: Callable[[str], None] = lambda _: None
    confirm: Confirm = nobody

    @classmethod
    def on(cls, log: CatalogLog, make_shards: Callable[[State, str], None]) -> Executor:
        """With the machine's clock and secrets of this process."""
        return cls(log, make_shards, SystemClock())

    def run(self, text: str, on_result: Callable[[Result], None] | None = None) -> list[Result]:
        """Execute all statements of a text, each its own commit; the first error ends it.

        The whole text is parsed first: a mistake in the last statement leaves all undone.
        """
        results = []
        for parsed in parse(text):
            result = self.execute(parsed.statement)
            results.append(result)
            if on_result is not None:
                on_result(result)
        return results

    def execute(self, statement: st.Statement) -> Result:
        """Execute one statement."""
        state = read_state(self.log)
        if isinstance(statement, st.Show):
            rows = show(state, statement.what)
            return Result(f"{len(rows.values)} {statement.what}", rows=rows)
        if isinstance(statement, st.ShowCreate):
            found = dependencies.find(state, statement.kind, statement.name)
            return Result(create_statement(state, found))
        if isinstance(statement, st.ValidateConnection):
            return self._validated(state, statement)
        if isinstance(statement, st.Explain):
            return Result(explain(state, statement.statement, ports=self.ports))
        if isinstance(statement, st.Unsafe):
            return self._unsafe(state, statement)
        if not is_planned(statement):
            raise RefusedStatement(
                "this statement is not supported yet", remedy="see docs/statements.md"
            )
        effect = plan_statement(state, statement)
        if effect.changes is None:
            return Result(effect.summary, effect.notices)
        if effect.affected and effect.alteration is not None:
            return self._alter(state, effect)
        return self._commit(state, statement, effect)

    # -- unsafe operations ---------------------------------------------------------------------

    @property
    def unsafe(self) -> UnsafeClient:
        """Asks for unsafe operations on the same catalog."""
        return UnsafeClient(
            self.log, self.clock, self.ports, self.make_shards, self.limit, self.on_progress,
            operation_key,
        )

    def _unsafe(self, state: State, statement: st.Unsafe) -> Result:
        if (
            statement.if_exists
            and dependencies.lookup(state, statement.kind, statement.name) is None
        ):
            return Result(f"no {statement.kind} {statement.name}", ("nothing was altered",))
        outcome = self.unsafe.run(
            request_of(state, statement), statement.reason, confirm=self.confirm,
            said=statement.said,
        )
        return unsafe_result(outcome)

    # -- without running queries ---------------------------------------------------------------

    def _commit(self, state: State, statement: st.Statement, effect: Effect) -> Result:
        notices = list(effect.notices)
        assert effect.changes is not None
        after = state.changed(state.version + 1, effect.changes.effective(state))
        if effect.validate is not False:
            notices += self._client_validation(after, effect)

        def planned(current: State) -> Changes | None:
            # an ALTER of held queries restarts none of them, and may still come into a trial
            self._same_target(current, effect)
            if current.version == state.version:
                return effect.changes
            return plan_statement(current, statement).changes

        after = commit(self.log, planned, kind="statement", reason=effect.summary)
        for item_id in effect.created:
            if item_id in after.items:
                self._shards(after, item_id)
        return Result(effect.summary, tuple(notices))

    def _shards(self, state: State, item_id: str) -> None:
        self.make_shards(state, item_id)
        cluster = state.items[item_id].links.get("cluster")
        if cluster is not None:
            self.make_shards(state, cluster)

    def _client_validation(self, after: State, effect: Effect) -> list[str]:
        """Validate from this process; what a new source or sink cannot reach is only noticed."""
        if effect.alteration is not None:
            target = effect.alteration.item_id
            if after.items[target].definition.kind == "secret":
                return []
            require_valid(
                validate(after, target, (), ports=self.ports),
                _new_definition(after, target),
            )
            return []
        notices: list[str] = []
        for item_id in effect.created:
            kind = after.items[item_id].definition.kind
            if kind == "connection":
                require_valid(
                    validate(after, item_id, (), ports=self.ports),
                    dependencies.by_id(after, item_id).text,
                )
            elif kind in ("source", "sink"):
                verdicts = validate(after, item_id, (item_id,), ports=self.ports)
                notices += [str(verdict) for verdict in verdicts if not verdict.ok]
        return notices

    def _same_target(self, current: State, effect: Effect) -> None:
        """40001 when what was planned from is no more, or somebody is at work on it."""
        change = effect.alteration
        if change is None:
            return
        item = current.items.get(change.item_id)
        if item is None:
            raise CommitConflict(
                f"{change.before.item_name} was dropped meanwhile", remedy="nothing is left to do"
            )
        if item.definition.external != change.before.external:
            raise CommitConflict(
                f"{change.before.item_name} was changed by somebody else meanwhile: "
                + dependencies.changed_options(change.before, item.definition),
                remedy="look at it (SHOW CREATE), then say it again",
            )
        mine = {change.item_id, *(each.item_id for each in effect.restarts)}
        for key, row in current.operations.items():
            if row.kind != ALTER or row.state not in OPEN:
                continue
            if not mine.isdisjoint((row.target, *row.dependents)):
                raise CommitConflict(
                    f"operation {key} is at work on {change.before.item_name} ({row.state})",
                    remedy="wait for it (SHOW OPERATIONS), then say it again",
                )

    # -- under running queries -----------------------------------------------------------------

    def _alter(self, state: State, effect: Effect) -> Result:
        """An alteration that restarts queries: by their runtime, or at its next start."""
        change = effect.alteration
        assert change is not None
        clusters = {state.items[each].links["cluster"] for each in effect.affected}
        if len(clusters) > 1:
            names = ", ".join(sorted(dependencies.display(state, each) for each in clusters))
            raise RefusedStatement(
                f"the queries below {change.before.item_name} run in several clusters ({names}); "
                "they cannot be restarted as one",
                remedy="give each cluster a connection of its own (USING CONNECTION)",
            )
        (cluster,) = clusters
        if not runtime_lives(state, cluster):
            return self._deferred(state, effect, cluster)
        key = operation_key(self.clock)
        row = OperationRecord(
            kind=ALTER, state="validating", cluster=cluster, target=change.item_id,
            before=change.before, after=change.after, links_before=dict(change.links_before),
            links_after=dict(change.links_after), dependents=effect.affected, limit=self.limit,
            validate=effect.validate is not False,
            detail={"since": moment(self.clock), "summary": effect.summary},
        )
        submit(lambda changes: commit(
            self.log, changes, kind="operation", reason=effect.summary
        ), row, key)
        return self._wait(key, effect, cluster)

    def _deferred(self, state: State, effect: Effect, cluster: str) -> Result:
        """No runtime lives: validate what can be validated from here, and commit."""
        assert effect.changes is not None
        assert effect.alteration is not None
        notices = list(effect.notices)
        after = state.changed(state.version + 1, effect.changes.effective(state))
        if effect.validate is not False:
            verdicts = validate(
                after, effect.alteration.item_id, effect.affected,
                ports=self.ports,
            )
            unresolved = [each for each in verdicts if each.unresolved]
            require_valid(
                [each for each in verdicts if not each.unresolved],
                _new_definition(after, effect.alteration.item_id),
            )
            notices += [f"not validated from here: {verdict}" for verdict in unresolved]

        def redefined(current: State) -> Changes | None:
            self._same_target(current, effect)
            if current.version == state.version:
                return effect.changes
            changes = Changes()
            change = effect.alteration
            assert change is not None
            redefine(changes, current, change.item_id, change.after, change.links_after)
            return changes

        commit(self.log, redefined, kind="alter", reason=effect.summary)
        name = dependencies.display(state, cluster)
        notices.append(
            f"no runtime of cluster {name} is alive: {len(effect.affected)} queries will start on "
            f"the new definition with the next `catalog-migrate run --cluster {name}`"
        )
        return Result(effect.summary, tuple(notices))

    def _wait(self, key: str, effect: Effect, cluster: str) -> Result:
        """Wait for the runtime to end the operation; Ctrl-C leaves it going on."""
        lease_key = cluster_key(cluster)
        beat: tuple[LeaseRecord | None, str | None] | None = None
        heard = self.clock.monotonic()
        listened = heard - _LISTEN
        said = ""
        version = -1
        state = read_state(self.log)
        while True:
            newest = self.log.version()
            if newest != version:
                state, version = read_state(self.log), newest
                row = state.operations[key]
                if row.state not in OPEN:
                    return self._ended(key, row, effect, state)
                doing = row.detail.get("phase") or row.state
                if doing != said:
                    said = doing
                    self.on_progress(f"operation {key}: {doing}")
            now = self.clock.monotonic()
            if now >= listened + _LISTEN:
                listened = now
                current = (state.leases.get(lease_key), self.log.heartbeat(lease_key))
                if current != beat:
                    beat, heard = current, now
            if not runtime_lives(state, cluster):
                self._abandoned(key, effect)
            elif now - heard > LEASE_TTL:
                silent = (
                    f"nothing was heard of its runtime for {LEASE_TTL:.0f} s, which is not proven "
                    "dead"
                )
                raise _unfinished(state, key, effect, silent)
            self.clock.sleep(_POLL)

    def _abandoned(self, key: str, effect: Effect) -> None:
        """The runtime died: what it had not committed is over, the rest its successor finishes.

        Raises what that comes to; returns where somebody has the cluster again, or it has ended.
        """
        state = read_state(self.log)
        row = state.operations[key]
        if row.state not in OPEN or runtime_lives(state, row.cluster):
            return
        if row.state != "validating":
            raise _unfinished(state, key, effect, "its runtime ended in the middle")

        def fence(_: Lease) -> None:
            raise _unfinished(state, key, effect, "its runtime is gone, and not proven dead")

        lease_key = cluster_key(row.cluster)
        try:
            lease = acquire(
                self.log, holder=f"statement {key}", clock=self.clock, key=lease_key, wait=0,
                fence=fence,
            )
        except LeaseHeld:
            return
        reason = "the runtime ended while it validated; nothing was changed"

        def failed(current: State) -> Changes | None:
            standing = current.operations[key]
            if standing.state != "validating":
                return None
            changes = Changes()
            changes.put("operation", key, _ended_row(standing, reason))
            return changes

        try:
            after = commit(
                self.log, failed, epoch=lease.epoch, lease_key=lease_key, kind="failed",
                reason=effect.summary,
            )
        finally:
            lease.release()
        if after.operations[key].state == "failed":
            raise AlterFailed(
                f"operation {key}: {reason}",
                remedy="start the runtime and say it again, or say it again now: it is then "
                "applied at the runtime's next start",
            )

    def _ended(self, key: str, row: OperationRecord, effect: Effect, state: State) -> Result:
        names = tuple(dependencies.display(state, each) for each in row.dependents)
        reason = row.detail.get("reason", "")
        if row.state == "confirmed":
            late = (reason,) if reason else ()
            return Result(
                effect.summary,
                (*effect.notices, *late, f"{len(names)} queries restarted: {', '.join(names)}"),
                operation=key, restarted=names,
            )
        if row.state == UNCONFIRMED:
            raise AlterUnfinished(
                f"{effect.summary}, and not confirmed: {reason}",
                remedy="the new definition is in force and its queries are tried on it; SHOW "
                "SOURCES and SHOW SINKS say what each one lacks",
                operation=key,
            )
        findings = [text for name, text in sorted(row.detail.items())
                    if name.startswith("finding")]
        if findings:
            raise ValidationFailed(
                f"{effect.summary.rpartition(' ')[0]} not altered: validation by the runtime "
                "refused it, nothing was changed and nothing stopped",
                verdicts=findings,
                remedy="fix what is named; SHOW OPERATIONS keeps this",
            )
        if row.state == "set_back":
            raise AlterSetBack(
                f"set back: {reason}",
                remedy="all queries run on the old definition; fix the new one and say it again",
                operation=key,
            )
        raise AlterFailed(
            f"operation {key} failed: {reason}",
            remedy="the old definition is in force; SHOW SOURCES and SHOW SINKS say what each "
            "query lacks, they are tried again with back-off",
            operation=key,
        )

    def _validated(self, state: State, statement: st.ValidateConnection) -> Result:
        found = dependencies.find(state, "connection", statement.name)
        verdicts = validate(
            state, found.item_id, dependencies.dependents(state, found.item_id),
            ports=self.ports,
        )
        require_valid(verdicts, found.text)
        rows = Rows(
            ("item", "ok", "message"),
            tuple((verdict.name, verdict.ok, verdict.message) for verdict in verdicts),
        )
        return Result(f"{found.text} is valid", rows=rows)


def _unfinished(state: State, key: str, effect: Effect, why: str) -> AlterUnfinished:
    """The error of an operation that nobody carries on now, whatever became of it by then."""
    row = state.operations[key]
    names = ", ".join(dependencies.display(state, each) for each in row.dependents)
    stands = (
        "nothing of it is committed yet" if row.state == "validating"
        else "the old definition is in force again" if row.detail.get("phase") == ROLLING_BACK
        else f"{effect.summary} and committed"
    )
    return AlterUnfinished(
        f"operation {key} ({row.detail.get('phase', row.state)}): {why}; {stands}, and these "
        f"queries wait for a runtime: {names}",
        remedy=f"catalog-migrate run --cluster {dependencies.display(state, row.cluster)}: it "
        "takes the operation to its end",
        operation=key,
    )


def unsafe_result(outcome: Outcome) -> Result:
    """What an unsafe operation did, in words."""
    if outcome.row is None or outcome.row.unsafe is None:
        return Result("nothing changes, nothing restarts")
    act = outcome.row.unsafe
    totals = Totals(act.doubled, act.skipped, act.expired, act.exact)
    kept = kept_by_sinks(outcome.plan) if outcome.plan is not None else ""
    notices: tuple[str, ...] = (sentence(totals) + kept,)
    if outcome.row.state == BACKFILLING:
        notices += (
            f"what it skipped is read by the runtime{' when one is started' * outcome.alone}, or "
            f"from here: catalog-migrate unsafe backfill {outcome.key}",
        )
    if outcome.alone:
        notices += ("no runtime is alive: the queries go on from there at their next start",)
    if "reason" in outcome.row.detail:
        notices += (outcome.row.detail["reason"],)
    if act.undoes and outcome.plan is not None:  # what stays; a RESTORE itself was announced
        notices += tuple(
            note for item in outcome.plan.items if not item.restores for note in item.notes
        )
    names = ", ".join(act.sources)
    return Result(
        f"operation {outcome.key} {outcome.row.state}: {names}", notices, operation=outcome.key,
        restarted=() if outcome.alone else act.sources,
    )


def operation_key(clock: Clock) -> str:
    """A key that sorts by time: newer operations come last."""
    stamp = datetime.fromtimestamp(clock.wall(), timezone.utc).strftime("%Y%m%dT%H%M%S%f")
    return f"{stamp}-{uuid4().hex[:6]}"


def _new_definition(after: State, item_id: str) -> str:
    return f"the new definition of {dependencies.by_id(after, item_id).text}"


def _ended_row(row: OperationRecord, reason: str) -> OperationRecord:
    return msgspec.structs.replace(row, state="failed", detail={**row.detail, "reason": reason})
