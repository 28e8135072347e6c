"""EXPLAIN: what a statement would do, as text; nothing is written and nothing stopped."""

from __future__ import annotations

import time

from catalog_migrate.catalog.state import State
from catalog_migrate.program.operations import interruptions
from catalog_migrate.sql import statements as st
from catalog_migrate.streams import dependencies
from catalog_migrate.streams.effects import Effect
from catalog_migrate.streams.plans import cluster_of, plan_statement
from catalog_migrate.streams.ports import Ports
from catalog_migrate.streams.probes import validate, with_upstream
from catalog_migrate.streams.programs import Program, alter_program, lines_of
from catalog_migrate.streams.show import create_statement
from catalog_migrate.streams.status import runtime_lives
from catalog_migrate.streams.unsafe.planning import plan_unsafe
from catalog_migrate.streams.unsafe.render import render
from catalog_migrate.streams.unsafe.requests import request_of
from catalog_migrate.streams.unsafe.rows import missing, unsafe_program


def explain(state: State, statement: st.Statement, *, ports: Ports) -> tuple[str, Program]:
    """The plan of a statement, and the operations that its runtime would execute now.

    Errors are those that executing it would raise at once.
    """
    if isinstance(statement, (st.Show, st.ShowCreate)):
        return "reads the catalog; writes nothing and restarts nothing", ()
    if isinstance(statement, st.ValidateConnection):
        return "reaches out to the connection and to whatever its queries use; writes nothing", ()
    if isinstance(statement, st.Unsafe):
        return _unsafe(state, statement, ports)
    if isinstance(statement, st.CreateSource):
        statement = with_upstream(state, statement, ports=ports)
    effect = plan_statement(state, statement)
    lines = [f"would be: {effect.summary}"]
    lines += [f"note: {notice}" for notice in effect.notices]
    if effect.changes is None:
        return "\n".join([*lines, "nothing changes, nothing restarts"]), ()
    after = state.changed(state.version + 1, effect.changes.effective(state))
    lines += _definition(after, effect)
    lines += _restarts(effect)
    lines += _removed(state, effect)
    program = program_of_effect(state, effect)
    lines += _steps(program)
    lines += _validation(after, effect, ports)
    return "\n".join(lines), program


def program_of_effect(state: State, effect: Effect) -> Program:
    """What the runtime executes for an ALTER; nothing where none is alive, or no query restarts.

    Raises as :func:`~catalog_migrate.streams.plans.cluster_of`.
    """
    change = effect.alteration
    if change is None or not effect.affected or effect.changes is None:
        return ()
    if not runtime_lives(state, cluster_of(state, effect)):
        return ()
    return alter_program(
        state.changed(state.version, effect.changes.effective(state)), change.item_id,
        effect.affected, validate=effect.validate is not False,
    )


def _steps(program: Program) -> list[str]:
    if not program:
        return []
    still = [
        f"  {name}: from step {number}" + (" on" if back is None else f" to step {back}")
        for name, number, back in interruptions(program)
    ]
    told = ["stand still meanwhile:", *still] if still else []
    return ["", "steps, in this order:", *lines_of(program), *told]


def _unsafe(state: State, statement: st.Unsafe, ports: Ports) -> tuple[str, Program]:
    request = request_of(state, statement)
    plan = plan_unsafe(
        state, request, statement.reason, ports=ports, now=time.time(),
        at="",
    )
    closed = missing(
        state, plan.cluster, reason=statement.reason, confirmed=True, said=statement.said,
        kind=statement.kind,
    )
    if not plan.changes:
        return render(plan), ()
    program = unsafe_program(
        state, request, plan.edited, runs=runtime_lives(state, plan.cluster)
    )
    lacking = [f"missing: {each}" for each in closed]
    return "\n".join([render(plan, [*_steps(program), ""]), *lacking]), program


def _definition(after: State, effect: Effect) -> list[str]:
    changed = [effect.alteration.item_id] if effect.alteration is not None else effect.created
    lines: list[str] = []
    for item_id in changed:
        statement = create_statement(after, dependencies.by_id(after, item_id))
        lines += ["", "definition afterwards:", *(f"  {line}" for line in statement.splitlines())]
    return lines


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


def _removed(state: State, effect: Effect) -> list[str]:
    return [f"removes {dependencies.by_id(state, each).text}" for each in effect.removed]


def _validation(after: State, effect: Effect, ports: Ports) -> list[str]:
    if effect.validate is False:
        return ["", "validation: none, the statement says VALIDATE = false"]
    roots = [effect.alteration.item_id] if effect.alteration is not None else [
        each for each in effect.created
        if after.items[each].definition.kind in ("connection", "source", "sink")
    ]
    lines: list[str] = []
    for root in roots:
        own = (root,) if dependencies.is_query(after.items[root]) else ()
        dependents = effect.affected or own
        for verdict in validate(after, root, dependents, ports=ports):
            lines.append(f"  {'ok ' if verdict.ok else 'BAD'} {verdict}")
    return ["", "validation, from this process:", *lines] if lines else []

