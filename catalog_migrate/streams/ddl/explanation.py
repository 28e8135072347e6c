"""EXPLAIN: what a statement would do, as values and as text; nothing is written or stopped."""

from __future__ import annotations

import time

import msgspec

from catalog_migrate.catalog.state import State
from catalog_migrate.catalog.updates import preview
from catalog_migrate.model.findings import Finding
from catalog_migrate.operations.steps import describe_interruption, interruptions
from catalog_migrate.sql import statements as st
from catalog_migrate.streams.catalog import dependencies
from catalog_migrate.streams.catalog.cluster_log import runtime_lives
from catalog_migrate.streams.catalog.create_statement import create_statement
from catalog_migrate.streams.catalog.statement_changes import Effect
from catalog_migrate.streams.ddl.plans import plan_statement, program_of_effect, validate_effect
from catalog_migrate.streams.ddl.validation import explain_validation
from catalog_migrate.streams.positions.operation_row import Missing, list_missing, unsafe_program
from catalog_migrate.streams.positions.plan import UnsafePlan
from catalog_migrate.streams.positions.planning import plan_unsafe
from catalog_migrate.streams.positions.render import render
from catalog_migrate.streams.positions.requests import request_of
from catalog_migrate.streams.runtime.judgement import find_refusals, sick
from catalog_migrate.streams.runtime.operations import Program, lines_of
from catalog_migrate.streams.runtime.ports import Ports
from catalog_migrate.streams.runtime.probes import with_upstream


class Explanation(msgspec.Struct, frozen=True):
    """What a statement would do to ``before``, and the ``program`` that its runtime would execute.

    Of a statement that writes there is ``effect``, with the state ``after`` it (the same where
    nothing changes) and what validation from this process says; of an unsafe one ``unsafe``, with
    what is ``lacking`` for it to begin. ``reads`` says what any other does.
    """

    statement: st.Statement
    before: State
    after: State
    effect: Effect | None = None
    program: Program = ()
    findings: tuple[Finding, ...] = ()
    unsafe: UnsafePlan | None = None
    lacking: tuple[Missing, ...] = ()
    reads: str = ""

    @property
    def refusing(self) -> tuple[Finding, ...]:
        """The findings for which the statement would be refused.

        A secret of a query has its value where the query runs: one without a value here is none.
        """
        effect = self.effect
        if effect is None or effect.alteration is None:
            return find_refusals(self.findings)
        if effect.alteration.after.kind == "secret" and not effect.affected:
            return ()
        return tuple(
            each for each in find_refusals(self.findings)
            if not (each.unresolved and effect.affected)
        )

    @property
    def sick(self) -> tuple[Finding, ...]:
        """The findings that stood before an alteration."""
        altered = self.effect is not None and self.effect.alteration is not None
        return sick(self.findings) if altered else ()


def explain(state: State, statement: st.Statement, *, ports: Ports) -> Explanation:
    """Say what a statement would do on ``state``; errors are those that executing it would raise
    at once."""
    if isinstance(statement, (st.Show, st.ShowCreate, st.ShowLog)):
        reads = "reads the catalog; writes nothing and restarts nothing"
        return Explanation(statement, state, state, reads=reads)
    if isinstance(statement, st.ValidateConnection):
        reads = "reaches out to the connection and to whatever its queries use; writes nothing"
        return Explanation(statement, state, state, reads=reads)
    if isinstance(statement, st.ValidateSource):
        return Explanation(statement, state, state, reads=explain_validation(state, statement))
    if isinstance(statement, st.Unsafe):
        return _unsafe(state, statement, ports)
    if isinstance(statement, st.CreateSource):
        statement = with_upstream(state, statement, ports=ports)
    effect = plan_statement(state, statement)
    if not effect.updates:
        return Explanation(statement, state, state, effect)
    after = preview(state, effect.updates)
    return Explanation(
        statement, state, after, effect, program_of_effect(state, after, effect),
        validate_effect(state, after, effect, ports=ports, held=True),
    )


def _unsafe(state: State, statement: st.Unsafe, ports: Ports) -> Explanation:
    request = request_of(state, statement)
    plan = plan_unsafe(state, request, statement.reason, ports=ports, now=time.time(), at="")
    lacking = list_missing(
        state, plan.cluster, reason=statement.reason, confirmed=True, said=statement.said,
        kind=statement.kind,
    )
    program: Program = ()
    if plan.changes:
        program = unsafe_program(
            state, request, plan.edited, runs=runtime_lives(state, plan.cluster)
        )
    return Explanation(
        statement, state, state, program=program, unsafe=plan, lacking=lacking
    )


# -- as text ---------------------------------------------------------------------------------------


def describe(found: Explanation) -> str:
    """Write an explanation as the statement's result: lines for people."""
    effect = found.effect
    if found.unsafe is not None:
        if not found.unsafe.changes:
            return render(found.unsafe)
        lacking = [f"missing: {each}" for each in found.lacking]
        return "\n".join([render(found.unsafe, [*_steps(found.program), ""]), *lacking])
    if effect is None:
        return found.reads
    lines = [f"would be: {effect.summary}"]
    lines += [f"note: {notice}" for notice in effect.notices]
    if not effect.updates:
        return "\n".join([*lines, "nothing changes, nothing restarts"])
    for item_id in list_changed_items(effect):
        lines += ["", "definition afterwards:"]
        lines += [f"  {line}" for line in write_definition(found.after, item_id).splitlines()]
    lines += _restarts(effect)
    lines += [f"removes {dependencies.by_id(found.before, each).text}" for each in effect.removed]
    lines += _steps(found.program)
    lines += _validation(found, effect)
    return "\n".join(lines)


def list_changed_items(effect: Effect) -> tuple[str, ...]:
    """Return the items that a statement gives a definition."""
    return effect.created if effect.alteration is None else (effect.alteration.item_id,)


def write_definition(state: State, item_id: str) -> str:
    """Return the statement that would create an item."""
    return create_statement(state, dependencies.by_id(state, item_id))


def _steps(program: Program) -> list[str]:
    if not program:
        return []
    still = [
        f"  {name}: {describe_interruption(number, back, lasting='on')}"
        for name, number, back in interruptions(program)
    ]
    stopped = ["stopped meanwhile:", *still] if still else []
    return ["", "steps, in this order:", *lines_of(program), *stopped]


def _restarts(effect: Effect) -> list[str]:
    if effect.alteration is None:
        return []
    restarted = [each for each in effect.restarts if each.restarts]
    others = [each for each in effect.restarts if not each.restarts]
    lines = ["", f"restarts {len(restarted)} of {len(effect.restarts)} queries below it:"]
    lines += [f"  {each.kind} {each.name}: {each.reason}" for each in restarted]
    if others:
        lines += ["does not restart:"]
        lines += [f"  {each.kind} {each.name}: {each.reason}" for each in others]
    return lines


def _validation(found: Explanation, effect: Effect) -> list[str]:
    if effect.validate is False:
        return ["", "validation: none, the statement says VALIDATE = false"]
    words = {True: "ok ", False: "BAD"}
    lines = [
        f"  {'sick before' if each in found.sick else words[each.ok]} {each}"
        for each in found.findings
    ]
    return ["", "validation, from this process:", *lines] if lines else []
