"""From a writing statement to its effect: RENAME, DROP, COMMENT, and who plans the others.

And EXPLAIN: what a statement would do, as text; nothing is written and nothing stopped.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from catalog_migrate.catalog.records import EXTERNAL_FORMAT
from catalog_migrate.catalog.state import State
from catalog_migrate.model.names import split_name
from catalog_migrate.program.operations import interruptions
from catalog_migrate.sql import statements as st
from catalog_migrate.streams import alter, declare, dependencies
from catalog_migrate.streams.effects import Draft, Effect
from catalog_migrate.streams.errors import RefusedStatement
from catalog_migrate.streams.judgement import judge
from catalog_migrate.streams.operations import Program, alter_program, lines_of
from catalog_migrate.streams.ports import Ports
from catalog_migrate.streams.probes import validate, with_upstream
from catalog_migrate.streams.show import create_statement
from catalog_migrate.streams.slots import put_slot, refuse_slot_in_use
from catalog_migrate.streams.status import failing_queries, runtime_lives
from catalog_migrate.streams.unsafe.operation_row import missing, unsafe_program
from catalog_migrate.streams.unsafe.planning import plan_unsafe
from catalog_migrate.streams.unsafe.render import render
from catalog_migrate.streams.unsafe.requests import request_of
from catalog_migrate.streams.validation import explain_validation


def rename(state: State, statement: st.Rename) -> Effect:
    """``ALTER … RENAME TO``: whoever uses it does so by id, so nothing restarts."""
    if statement.if_exists and dependencies.lookup(state, statement.kind, statement.name) is None:
        return Effect(
            "nothing to rename", None, (f"there is no {statement.kind} {statement.name}",)
        )
    found = dependencies.find(state, statement.kind, statement.name)
    schema, last = split_name(statement.to)
    definition = msgspec.structs.replace(
        found.item.definition, schema=schema or found.mapping.schema, name=last
    )
    if definition.item_name == found.item.definition.item_name:
        return Effect("nothing to rename", None, (f"{found.text} has that name",))
    draft = Draft(state)
    draft.redefine(found, definition)
    return Effect(f"{found.text} is now {definition.item_name}", draft.changes)


def create_source(state: State, statement: st.CreateSource) -> Effect:
    """``CREATE SOURCE``; a slot has one source."""
    effect = declare.create(state, statement)
    if effect.changes is not None:
        refuse_slot_in_use(state, statement.external)
    return effect


def drop(state: State, statement: st.Drop, *, now: int = 0) -> Effect:
    """``DROP … [RESTRICT | CASCADE]``: refused while used, with the users by name."""
    found = dependencies.lookup(state, statement.kind, statement.name)
    if found is None and statement.if_exists:
        return Effect("nothing to drop", None, (f"there is no {statement.kind} {statement.name}",))
    found = dependencies.find(state, statement.kind, statement.name)
    draft = Draft(state)
    gone = _with_users(state, found, cascade=statement.cascade)
    slots = []
    going = {each.item_id for each in gone}
    for each in gone:
        slots.append(put_slot(draft.changes, state, each, going))
        draft.remove(each, now=now)
        own = each.item.links.get("log") if each.mapping.kind == "cluster" else None
        if own is not None:
            draft.remove(dependencies.by_id(state, own), now=now)
    others = [each.text for each in gone if each.item_id != found.item_id]
    notices = tuple(f"{text} is dropped with it" for text in others)
    notices += tuple(said for said in slots if said is not None)
    notices += tuple(
        f"the table of its transactions goes with {each.text}; these stay with their rows: "
        + ", ".join(dependencies.display(state, table) for table in dependencies.outputs(each.item))
        for each in gone if each.external.tables
    )
    ids = {each.item_id for each in gone}
    free = dependencies.must_only_grow(state, ids) - dependencies.must_only_grow(
        state, [each.item_id for each in dependencies.queries(state) if each.item_id not in ids]
    )
    notices += tuple(
        f"{dependencies.display(state, table)} stays append-only; if it need not be: ALTER TABLE "
        f"{dependencies.display(state, table)} SET TBLPROPERTIES ('delta.appendOnly' = 'false')"
        for table in sorted(free)
    )
    return Effect(
        f"{found.text} dropped", draft.changes, notices,
        removed=tuple(each.item_id for each in gone),
    )


def _with_users(
    state: State, found: dependencies.CatalogEntry, *, cascade: bool
) -> list[dependencies.CatalogEntry]:
    """What goes, users first; RefusedStatement unless everything that goes is allowed to."""
    users = dependencies.users_of(state, found.item_id)
    if users and not cascade:
        texts = sorted(dependencies.by_id(state, user).text for user in users)
        raise RefusedStatement(
            f"{found.text} is used by " + ", ".join(texts),
            remedy=f"drop those first, or write DROP {found.mapping.kind.upper()} "
            f"{found.item.definition.item_name} CASCADE",
        )
    root = found.mapping.identity
    waves = dependencies.topological(
        state, [found.item_id, *dependencies.ids_of(state, state.graph.dependents([root]))]
    )
    order = [dependencies.by_id(state, item_id) for wave in reversed(waves) for item_id in wave]
    for each in order:
        if each.mapping.owner in ("release", "shipped"):
            raise RefusedStatement(
                f"{each.text} belongs to the release",
                remedy="the next release may leave it out; a user cannot drop it",
            )
    return order


def comment(state: State, statement: st.Comment) -> Effect:
    """``COMMENT ON … IS``: restarts nothing."""
    found = dependencies.find(state, statement.kind, statement.name)
    draft = Draft(state)
    draft.redefine(
        found, msgspec.structs.replace(found.item.definition, comment=statement.text)
    )
    return Effect(f"comment on {found.text} set", draft.changes)


_PLANS: Mapping[type, Callable[[State, Any], Effect]] = {
    **dict.fromkeys(declare.CREATES, declare.create),
    st.CreateSource: create_source,
    st.Rename: rename,
    st.Drop: drop,
    st.Comment: comment,
    st.AlterSecret: alter.alter_secret,
    st.AlterConnection: alter.alter_connection,
    st.AlterItem: alter.alter_query,
    st.SetConnection: alter.set_connection,
    st.Pause: alter.pause,
    st.Resume: alter.resume,
}


def cluster_of(state: State, effect: Effect) -> str:
    """The cluster whose queries an alteration restarts.

    Raises RefusedStatement where they run in several, which cannot restart as one.
    """
    assert effect.alteration is not None
    cluster, *others = sorted({state.items[each].links["cluster"] for each in effect.affected})
    if others:
        clusters = (cluster, *others)
        names = ", ".join(sorted(dependencies.display(state, each) for each in clusters))
        raise RefusedStatement(
            f"the queries that use {effect.alteration.before.item_name} run in several clusters"
            f" ({names}); they cannot be restarted as one",
            remedy="give each cluster a connection of its own (USING CONNECTION)",
        )
    return cluster


def plan_statement(state: State, statement: st.Statement) -> Effect:
    """What a writing statement would do on ``state``; typed errors for what cannot be done."""
    effect = _PLANS[type(statement)](state, statement)
    edits = effect.changes.effective(state) if effect.changes is not None else {}
    if ("config", "format_version") not in edits:
        return effect
    said = (
        f"the record format of the catalog is raised to {EXTERNAL_FORMAT}: a version of"
        " catalog-migrate that does not know it is refused from then on (CM0110)"
    )
    return msgspec.structs.replace(effect, notices=(*effect.notices, said))


def writes(statement: st.Statement) -> bool:
    """Whether executing a statement changes the catalog."""
    return type(statement) in _PLANS or isinstance(statement, st.Unsafe)


def is_planned(statement: st.Statement) -> bool:
    """Whether a statement is one that writes and is known here."""
    return type(statement) in _PLANS


def explain(state: State, statement: st.Statement, *, ports: Ports) -> tuple[str, Program]:
    """The plan of a statement, and the operations that its runtime would execute now.

    Errors are those that executing it would raise at once.
    """
    if isinstance(statement, (st.Show, st.ShowCreate, st.ShowLog)):
        return "reads the catalog; writes nothing and restarts nothing", ()
    if isinstance(statement, st.ValidateConnection):
        return "reaches out to the connection and to whatever its queries use; writes nothing", ()
    if isinstance(statement, st.ValidateSource):
        return explain_validation(state, statement), ()
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
    lines += _validation(state, after, effect, ports)
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


def _validation(before: State, after: State, effect: Effect, ports: Ports) -> list[str]:
    if effect.validate is False:
        return ["", "validation: none, the statement says VALIDATE = false"]
    lines: list[str] = []
    change = effect.alteration
    if change is not None:
        judgement = judge(
            before, after, change.item_id, effect.affected or _own(after, change.item_id),
            ports=ports, find_failing=lambda: failing_queries(before),
        )
        lines += [
            f"  {'ok ' if verdict.ok else 'sick before' if verdict in judgement.sick else 'BAD'}"
            f" {verdict}" for verdict in judgement.verdicts
        ]
    for root in () if change is not None else effect.created:
        if after.items[root].definition.kind in ("connection", "source", "sink"):
            lines += [
                f"  {'ok ' if verdict.ok else 'BAD'} {verdict}"
                for verdict in validate(after, root, _own(after, root), ports=ports)
            ]
    return ["", "validation, from this process:", *lines] if lines else []


def _own(state: State, item_id: str) -> tuple[str, ...]:
    return (item_id,) if dependencies.is_query(state.items[item_id]) else ()
