"""Carries out statements: plan, validate, commit; an ALTER under running queries by operation."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import msgspec

from catalog_migrate.catalog.commits import Commit, commit
from catalog_migrate.catalog.opening import read_state
from catalog_migrate.catalog.operation_states import phase_of
from catalog_migrate.catalog.records import OperationRecord
from catalog_migrate.catalog.state import State
from catalog_migrate.catalog.updates import preview
from catalog_migrate.errors import (
    AlterFailed,
    AlterRolledBack,
    AlterUnfinished,
    InvalidOptions,
    RefusedStatement,
    ValidationFailed,
)
from catalog_migrate.model.findings import Finding
from catalog_migrate.operations.kinds import (
    ALTER,
    BACKFILLING,
    ROLLED_BACK,
    ROLLING_BACK,
    UNCONFIRMED,
)
from catalog_migrate.operations.steps import Executed, store_program
from catalog_migrate.sql import statements as st
from catalog_migrate.sql.parser import Parsed, parse
from catalog_migrate.streams.catalog import dependencies
from catalog_migrate.streams.catalog.cluster_log import runtime_lives, utc_now
from catalog_migrate.streams.catalog.operation_records import Totals, findings_in, sick_in
from catalog_migrate.streams.catalog.query_spec import spec_of
from catalog_migrate.streams.catalog.requirements import NoRuntime
from catalog_migrate.streams.catalog.rows import Rows
from catalog_migrate.streams.catalog.statement_changes import Effect
from catalog_migrate.streams.ddl.explanation import Explanation, describe, explain
from catalog_migrate.streams.ddl.log_entries import log_entries
from catalog_migrate.streams.ddl.plans import (
    Planned,
    cluster_of,
    is_planned,
    plan_statement,
    program_of_effect,
    requirements_of,
    validate_effect,
)
from catalog_migrate.streams.ddl.show import show, show_create
from catalog_migrate.streams.positions.client import Confirm, Outcome, UnsafeClient, never_confirm
from catalog_migrate.streams.positions.render import kept_by_sinks, sentence
from catalog_migrate.streams.positions.requests import request_of
from catalog_migrate.streams.runtime.client import OperationClient, operation_key
from catalog_migrate.streams.runtime.judgement import find_refusals, pause_remedy, sick, sick_notice
from catalog_migrate.streams.runtime.lag import with_sink_lag, with_source_lag
from catalog_migrate.streams.runtime.operations import Program
from catalog_migrate.streams.runtime.probes import (
    explain_options,
    require_valid,
    validate,
    with_upstream,
)
from catalog_migrate.streams.runtime.slots import (
    describe_slots,
    drop_slots,
    slots_to_drop,
)
from catalog_migrate.streams.upstreams.upstream import first_positions


class Result(msgspec.Struct, frozen=True):
    """What one statement did: a sentence, notices, and rows where it shows something.

    ``operation`` is the key of the operation that carried it out, ``restarted`` the names of the
    queries that were restarted. ``executed`` is what was executed, of EXPLAIN ``steps`` what would
    be, both in their order, and ``explanation`` all that it says, as values.
    """

    summary: str
    notices: tuple[str, ...] = ()
    rows: Rows | None = None
    operation: str | None = None
    restarted: tuple[str, ...] = ()
    steps: Program = ()
    executed: tuple[Executed, ...] = ()
    explanation: Explanation | None = None


@dataclass(slots=True)
class Executor(OperationClient):
    """Executes statements on one catalog; by default with the machine's clock and secrets of this
    process.

    ``confirm`` is asked before an unsafe operation begins (nobody else may say yes).
    """

    confirm: Confirm = never_confirm

    def run(
        self, sql: str | Sequence[Parsed], on_result: Callable[[Result], None] | None = None
    ) -> list[Result]:
        """Execute all statements of a text, or parsed ones, each its own commit; the first error
        ends it.

        The whole text is parsed first: a mistake in the last statement leaves all undone.
        """
        results = []
        for parsed in parse(sql) if isinstance(sql, str) else sql:
            result = self.execute(parsed.statement)
            results.append(result)
            if on_result is not None:
                on_result(result)
        return results

    def execute(self, statement: st.Statement) -> Result:
        """Execute one statement."""
        state = read_state(self.log)
        if isinstance(statement, st.Show):
            return self._show(state, statement)
        if isinstance(statement, st.ShowLog):
            found = dependencies.find(state, statement.kind, statement.name)
            rows = log_entries(state, found.item_id, limit=statement.limit)
            return Result(f"{len(rows.values)} entries", rows=rows)
        if isinstance(statement, st.ShowCreate):
            found = dependencies.find(state, statement.kind, statement.name)
            return Result(show_create(state, found, resolve=self.ports.resolve))
        if isinstance(statement, st.ValidateConnection):
            return self._validate_connection(state, statement)
        if isinstance(statement, st.ValidateSource):
            return self._validate_source(state, statement)
        if isinstance(statement, st.Explain):
            would = explain(state, statement.statement, ports=self.ports)
            return Result(describe(would), steps=would.program, explanation=would)
        if isinstance(statement, st.Unsafe):
            return self._unsafe(state, statement)
        return self._execute_planned(state, statement)

    def _show(self, state: State, statement: st.Show) -> Result:
        rows = show(state, statement.what, resolve=self.ports.resolve)
        if statement.what == "sources":
            rows = with_source_lag(state, rows, ports=self.ports)
        elif statement.what == "sinks":
            rows = with_sink_lag(state, rows, ports=self.ports)
        return Result(f"{len(rows.values)} {statement.what}", rows=rows)

    def _execute_planned(self, state: State, statement: st.Statement) -> Result:
        if not is_planned(statement):
            raise RefusedStatement(
                "this statement is not supported yet", remedy="see docs/statements.md"
            )
        if isinstance(statement, st.CreateSource):
            statement = with_upstream(state, statement, ports=self.ports)
        try:
            effect = plan_statement(state, statement)
        except InvalidOptions as error:
            raise explain_options(statement, error) from None
        if not effect.updates:
            return Result(effect.summary, effect.notices)
        if effect.affected and effect.alteration is not None:
            return self._alter(state, statement, effect)
        return self._commit(state, statement, effect)

    # -- unsafe operations ---------------------------------------------------------------------

    @property
    def unsafe(self) -> UnsafeClient:
        """Asks for unsafe operations on the same catalog."""
        return UnsafeClient(
            self.log, self.make_shards, self.clock, self.ports, self.limit, self.on_progress
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

    def _commit(
        self, state: State, statement: st.Statement, effect: Effect, *, cluster: str = ""
    ) -> Result:
        """Validate from here and commit; queries of ``cluster`` restart when it has a runtime."""
        after = preview(state, effect.updates)
        notices = effect.notices
        if effect.validate is not False:
            notices += tuple(self._validation(state, after, effect))

        wanted = Commit(
            "alter" if cluster else "statement", (Planned(statement, effect, state.version),),
            (*requirements_of(effect), *((NoRuntime(cluster),) if cluster else ())),
            reason=effect.summary,
        )
        after = commit(self.log, wanted)
        for item_id in effect.created:
            if item_id in after.items:
                self._shards(after, item_id)
        slots = {
            key: row for key, row in slots_to_drop(after).items()
            if key not in state.operations and not runtime_lives(after, row.cluster)
        }
        drop_slots(after, slots, ports=self.ports, commit=partial(commit, self.log))
        if slots:
            notices += describe_slots(read_state(self.log))
        if cluster:
            name = dependencies.display(after, cluster)
            notices += (
                f"no runtime of cluster {name} is alive: {len(effect.affected)} queries will start "
                f"on the new definition with the next `catalog-migrate run --cluster {name}`",
            )
        return Result(effect.summary, notices)

    def _shards(self, state: State, item_id: str) -> None:
        self.make_shards(state, item_id)
        cluster = state.items[item_id].links.get("cluster")
        if cluster is not None:
            self.make_shards(state, cluster)

    def _validation(self, before: State, after: State, effect: Effect) -> Iterator[str]:
        """What could not be validated from this process, what was sick before an alteration, and
        what a new source or sink cannot reach; ValidationFailed for a connection that does not
        work, and for what an alteration breaks."""
        change = effect.alteration
        if change is not None and change.after.kind == "secret" and not effect.affected:
            return
        found = validate_effect(before, after, effect, ports=self.ports)
        if change is not None:
            name = dependencies.by_id(after, change.item_id).text
            yield from _altered_notices(after, name, found, running=bool(effect.affected))
        for item_id in effect.created:
            kind = after.items[item_id].definition.kind
            its = [each for each in found if each.item_id == item_id]
            text = dependencies.by_id(after, item_id).text
            require_valid(its, text, may_skip=kind == "connection")
            yield from (str(each) for each in its if not each.ok)
            if kind in ("source", "sink") and all(each.ok for each in its):
                self._start_offsets(after, item_id)

    def _start_offsets(self, after: State, item_id: str) -> None:
        """EngineFailure for START OFFSETS that are not there: a CREATE alone can say them."""
        external = dependencies.external_of(after.items[item_id])
        if "START OFFSETS" in external.options:
            spec = spec_of(after, item_id, resolve=self.ports.resolve)
            with self.ports.upstreams.contents(spec, sample=False) as contents:
                first_positions(external, contents, self.clock.wall())

    # -- under running queries -----------------------------------------------------------------

    def _alter(self, state: State, statement: st.Statement, effect: Effect) -> Result:
        """An alteration that restarts queries: by their runtime, or at its next start."""
        change = effect.alteration
        assert change is not None
        cluster = cluster_of(state, effect)
        if not runtime_lives(state, cluster):
            return self._commit(state, statement, effect, cluster=cluster)
        key = operation_key(self.clock)
        row = OperationRecord(
            kind=ALTER, state="validating", cluster=cluster, target=change.item_id,
            before=change.before, after=change.after, links_before=dict(change.links_before),
            links_after=dict(change.links_after), dependents=effect.affected, limit=self.limit,
            validate=effect.validate is not False,
            detail={"since": utc_now(self.clock), "summary": effect.summary},
            program=store_program(
                program_of_effect(state, preview(state, effect.updates), effect)
            ),
        )
        self.ask(row, key, "operation", effect.summary)
        ended = self.wait(key, partial(_alter_unfinished, key, effect))
        return _result_of(key, ended.row, effect, ended.state)

    def _validate_connection(self, state: State, statement: st.ValidateConnection) -> Result:
        found = dependencies.find(state, "connection", statement.name)
        verdicts = validate(
            state, found.item_id, dependencies.dependents(state, found.item_id),
            ports=self.ports,
        )
        require_valid(verdicts, found.text)
        rows = Rows(
            ("item", "ok", "message"),
            tuple((verdict.subject, verdict.ok, verdict.message) for verdict in verdicts),
        )
        return Result(f"{found.text} is valid", rows=rows)

    def _validate_source(self, state: State, statement: st.ValidateSource) -> Result:
        from catalog_migrate.streams.ddl.validation import validate_source

        rows, notices = validate_source(
            state, statement, follow=partial(read_state, self.log), ports=self.ports,
            clock=self.clock, say=self.on_progress,
        )
        return Result(f"source {statement.name} is what its tables are upstream", notices, rows)


def _altered_notices(
    after: State, name: str, found: Sequence[Finding], *, running: bool
) -> Iterator[str]:
    """Notices of an altered object's findings; ValidationFailed for what the alteration breaks."""
    # the secrets of running queries are there where they run
    late = [each for each in find_refusals(found) if each.unresolved and running]
    refusing = [each for each in find_refusals(found) if each not in late]
    require_valid(refusing, f"the new definition of {name}", pause_remedy(after, refusing))
    yield from map(sick_notice, sick(found))
    yield from (f"not validated from here: {each}" for each in late)


def _result_of(key: str, row: OperationRecord, effect: Effect, state: State) -> Result:
    names = tuple(dependencies.display(state, each) for each in row.dependents)
    reason = row.detail.get("reason", "")
    if row.state == "confirmed":
        late = (reason,) if reason else ()
        were_sick = map(sick_notice, sick_in(row))
        return Result(
            effect.summary,
            (
                *effect.notices, *late, *were_sick,
                f"{len(names)} queries restarted: {', '.join(names)}",
            ),
            operation=key, restarted=names, executed=row.executed,
        )
    if row.state == UNCONFIRMED:
        raise AlterUnfinished(
            f"{effect.summary}, and not confirmed: {reason}",
            remedy="the new definition is in force and its queries are tried on it; SHOW "
            "SOURCES and SHOW SINKS say what each one lacks",
            operation=key,
        )
    findings = findings_in(row)
    if findings:
        assert effect.alteration is not None
        raise ValidationFailed(
            f"{effect.alteration.text} not altered: validation by the runtime refused it, nothing"
            " was changed and nothing stopped",
            findings=findings,
            remedy=f"{row.detail.get('remedy', 'fix what is named')}; SHOW OPERATIONS keeps this",
        )
    if row.state == ROLLED_BACK:
        raise AlterRolledBack(
            f"rolled back: {reason}",
            remedy="all queries run on the old definition; fix the new one and run the statement "
            "again",
            operation=key,
        )
    raise AlterFailed(
        f"operation {key} failed: {reason}",
        remedy=row.detail.get("remedy") or "the old definition is in force; SHOW SOURCES and SHOW "
        "SINKS say what each query lacks, they are tried again with back-off",
        operation=key,
    )


def _alter_unfinished(key: str, effect: Effect, state: State, why: str) -> AlterUnfinished:
    """The error of an operation that nobody carries on now, whatever became of it by then."""
    row = state.operations[key]
    names = ", ".join(dependencies.display(state, each) for each in row.dependents)
    stands = (
        "nothing of it is committed yet" if row.state == "validating"
        else "the old definition is in force again" if phase_of(row) == ROLLING_BACK
        else f"{effect.summary} and committed"
    )
    return AlterUnfinished(
        f"operation {key} ({phase_of(row) or row.state}): {why}; {stands}, and these "
        f"queries wait for a runtime: {names}",
        remedy=f"catalog-migrate run --cluster {dependencies.display(state, row.cluster)}: it "
        "takes the operation to its end",
        operation=key,
    )


def unsafe_result(outcome: Outcome) -> Result:
    """Return what an unsafe operation did, in words."""
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
        restarted=() if outcome.alone else act.sources, executed=outcome.row.executed,
    )
