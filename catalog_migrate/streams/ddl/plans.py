"""From a writing statement to its effect, and what validation finds of that: RENAME, DROP, COMMENT,
and the functions that plan the others."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any

import msgspec

from catalog_migrate.catalog.records import EXTERNAL_FORMAT
from catalog_migrate.catalog.requirements import Requirement
from catalog_migrate.catalog.state import State
from catalog_migrate.catalog.updates import Edit, RaiseFormat, edits_of, find_effects
from catalog_migrate.errors import RefusedStatement
from catalog_migrate.model.findings import Finding
from catalog_migrate.model.names import split_name
from catalog_migrate.operations.kinds import ALTER
from catalog_migrate.sql import statements as st
from catalog_migrate.streams.catalog import dependencies
from catalog_migrate.streams.catalog.cluster_log import failing_queries, runtime_lives
from catalog_migrate.streams.catalog.requirements import NoOperationOn, Unaltered
from catalog_migrate.streams.catalog.statement_changes import Draft, Effect
from catalog_migrate.streams.ddl import alter, create
from catalog_migrate.streams.runtime.judgement import judge
from catalog_migrate.streams.runtime.operations import Program, alter_program
from catalog_migrate.streams.runtime.ports import Ports
from catalog_migrate.streams.runtime.probes import validate
from catalog_migrate.streams.runtime.slots import put_slot, refuse_slot_in_use


def rename(state: State, statement: st.Rename) -> Effect:
    """``ALTER … RENAME TO``: whoever uses it does so by id, so nothing restarts."""
    if statement.if_exists and dependencies.lookup(state, statement.kind, statement.name) is None:
        return Effect(
            "nothing to rename", (), (f"there is no {statement.kind} {statement.name}",)
        )
    found = dependencies.find(state, statement.kind, statement.name)
    schema, last = split_name(statement.to)
    definition = msgspec.structs.replace(
        found.item.definition, schema=schema or found.mapping.schema, name=last
    )
    if definition.item_name == found.item.definition.item_name:
        return Effect("nothing to rename", (), (f"{found.text} has that name",))
    draft = Draft(state)
    draft.redefine(found, definition)
    return Effect(f"{found.text} is now {definition.item_name}", draft.updates)


def create_source(state: State, statement: st.CreateSource) -> Effect:
    """``CREATE SOURCE``; a slot has one source."""
    effect = create.create(state, statement)
    if effect.updates:
        refuse_slot_in_use(state, statement.external)
    return effect


def drop(state: State, statement: st.Drop, *, now: int = 0) -> Effect:
    """``DROP … [RESTRICT | CASCADE]``: refused while used, with the users by name."""
    found = dependencies.lookup(state, statement.kind, statement.name)
    if found is None and statement.if_exists:
        return Effect("nothing to drop", (), (f"there is no {statement.kind} {statement.name}",))
    found = dependencies.find(state, statement.kind, statement.name)
    draft = Draft(state)
    gone = _with_users(state, found, cascade=statement.cascade)
    slots = []
    going = {each.item_id for each in gone}
    for each in gone:
        slots.append(put_slot(draft, each, going))
        draft.remove(each, now=now)
        own = each.item.links.get("log") if each.mapping.kind == "cluster" else None
        if own is not None:
            draft.remove(dependencies.by_id(state, own), now=now)
    others = [each.text for each in gone if each.item_id != found.item_id]
    notices = tuple(f"{text} is dropped with it" for text in others)
    notices += tuple(said for said in slots if said is not None)
    notices += (*_remaining_tables(state, gone), *_append_only(state, going))
    return Effect(
        f"{found.text} dropped", draft.updates, notices,
        removed=tuple(each.item_id for each in gone),
    )


def _remaining_tables(
    state: State, gone: Iterable[dependencies.CatalogEntry]
) -> Iterator[str]:
    for each in gone:
        if each.external.tables:
            tables = (dependencies.display(state, one) for one in dependencies.outputs(each.item))
            yield (
                f"the table of its transactions goes with {each.text}; these stay with their rows: "
                + ", ".join(tables)
            )


def _append_only(state: State, going: Collection[str]) -> Iterator[str]:
    """A notice for each table that had to be append-only for these queries alone."""
    free = dependencies.must_only_grow(state, going) - dependencies.must_only_grow(
        state, [each.item_id for each in dependencies.queries(state) if each.item_id not in going]
    )
    for table in sorted(free):
        name = dependencies.display(state, table)
        yield (
            f"{name} stays append-only; if it need not be: ALTER TABLE {name} SET TBLPROPERTIES"
            " ('delta.appendOnly' = 'false')"
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
    return Effect(f"comment on {found.text} set", draft.updates)


_PLANS: Mapping[type, Callable[[State, Any], Effect]] = {
    **dict.fromkeys(create.CREATES, create.create),
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
    """Return the cluster whose queries an alteration restarts.

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
    effects = find_effects(state, effect.updates)
    if ("config", "format_version") not in effects:
        return effect
    raised = RaiseFormat(EXTERNAL_FORMAT)
    return msgspec.structs.replace(effect, notices=(*effect.notices, raised.notice))


def writes(statement: st.Statement) -> bool:
    """Return whether executing a statement changes the catalog."""
    return type(statement) in _PLANS or isinstance(statement, st.Unsafe)


def is_planned(statement: st.Statement) -> bool:
    """Return whether a statement is one that writes and is known here."""
    return type(statement) in _PLANS


def program_of_effect(state: State, after: State, effect: Effect) -> Program:
    """What the runtime executes for an ALTER; nothing where none is alive, or no query restarts.

    ``after`` is the state with the effect.

    Raises as :func:`~catalog_migrate.streams.ddl.plans.cluster_of`.
    """
    change = effect.alteration
    if change is None or not effect.affected or not effect.updates:
        return ()
    if not runtime_lives(state, cluster_of(state, effect)):
        return ()
    return alter_program(
        after, change.item_id, effect.affected, validate=effect.validate is not False
    )


def validate_effect(
    before: State, after: State, effect: Effect, *, ports: Ports, held: bool = False
) -> tuple[Finding, ...]:
    """Check from this process what a statement gives a definition; a new source or sink that works
    later is created all the same. ``held``: an altered query that is held is validated, too."""
    change = effect.alteration
    if effect.validate is False:
        return ()
    if change is not None:
        queries = effect.affected or (_own(after, change.item_id) if held else ())
        return judge(
            before, after, change.item_id, queries, ports=ports,
            find_failing=lambda: failing_queries(before),
        )
    found: list[Finding] = []
    for root in effect.created:
        item = after.items[root]
        if item.definition.kind in ("connection", "source", "sink"):
            refuses = item.definition.kind == "connection" or dependencies.external_of(item).tables
            found += [
                each if each.ok or refuses else msgspec.structs.replace(each, severity="warning")
                for each in validate(after, root, _own(after, root), ports=ports)
            ]
    return tuple(found)


def _own(state: State, item_id: str) -> tuple[str, ...]:
    return (item_id,) if dependencies.is_query(state.items[item_id]) else ()


class Planned(msgspec.Struct, frozen=True):
    """What a statement writes: its effect, which is of the state at ``version``, or its effect in
    the newest."""

    statement: st.Statement
    effect: Effect
    version: int

    def apply(self, state: State) -> Iterable[Edit]:
        """Return it; typed errors for what cannot be done any more."""
        if state.version == self.version:
            return edits_of(state, self.effect.updates)
        return edits_of(state, plan_statement(state, self.statement).updates)


def requirements_of(effect: Effect) -> tuple[Requirement, ...]:
    """Return what must hold for an effect: what an ALTER was planned from is in force, and no
    operation is at work on it. One of held queries restarts none of them, and may still come into
    a trial."""
    change = effect.alteration
    if change is None:
        return ()
    queries = (each.item_id for each in effect.restarts)
    return (
        Unaltered(change.item_id, change.before),
        NoOperationOn(ALTER, frozenset({change.item_id, *queries})),
    )
