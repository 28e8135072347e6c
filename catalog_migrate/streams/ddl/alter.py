"""ALTER CONNECTION, SECRET, SOURCE and SINK; PAUSE and RESUME: their effect (pure).

An alteration is merged into the stored definition and the whole is planned again as a CREATE, so
required and exclusive options are checked by the code that checks them there.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

import msgspec

from catalog_migrate.catalog.records import HoldRecord
from catalog_migrate.catalog.state import State
from catalog_migrate.catalog.updates import Delete, Put, Update
from catalog_migrate.connectors.base import require_installed
from catalog_migrate.connectors.options import (
    alterable,
    apply_actions,
    canonical_name,
    check,
    diff,
    partition,
    rotate_keys,
    section_of,
)
from catalog_migrate.errors import RefusedStatement
from catalog_migrate.model.objects import ObjectDefinition
from catalog_migrate.sql import statements as st
from catalog_migrate.sql.statements import BASE_CONNECTION, PAUSED, QueryKind
from catalog_migrate.streams.catalog import dependencies, surveys
from catalog_migrate.streams.catalog.accepted import own_problems
from catalog_migrate.streams.catalog.cluster_log import OF_QUERIES, OPERATOR
from catalog_migrate.streams.catalog.dependencies import refuse_new_loops, refuse_shared_ports
from catalog_migrate.streams.catalog.query_options import check_query, require_own_rules
from catalog_migrate.streams.catalog.statement_changes import (
    Alteration,
    Draft,
    Effect,
    restarts,
)
from catalog_migrate.streams.ddl.create import (
    check_connection,
    check_input,
    check_reference,
)


def _missing(state: State, kind: str, name: str, if_exists: bool) -> Effect | None:
    if not if_exists or dependencies.lookup(state, kind, name) is not None:
        return None
    return Effect(
        f"no {kind} {name}", (), (f"there is no {kind} {name}, nothing was altered",)
    )


def alter_connection(state: State, statement: st.AlterConnection) -> Effect:
    """``ALTER CONNECTION c [AS type] SET (…), DROP (…), RESET (…)``."""
    nothing = _missing(state, "connection", statement.name, statement.if_exists)
    if nothing is not None:
        return nothing
    found = dependencies.find(state, "connection", statement.name)
    require_installed(found.external)
    external = dependencies.as_called_now(state, found.item)
    if statement.connector is not None and statement.connector.upper() != external.connector:
        raise RefusedStatement(
            f"{found.text} is {external.connector}, the statement says AS {statement.connector}",
            remedy=f"leave AS away, or write AS {external.connector}",
        )
    written = dict(external.options)
    if statement.rotate:
        written = rotate_keys(external.connector or "", written, where=found.text)
    if external.connection is not None:
        written[BASE_CONNECTION] = external.connection
    options = apply_actions(
        written, statement.actions, connector=external.connector, section="connection",
        where=found.text,
    )
    base = options.pop(BASE_CONNECTION, None)
    wanted = dependencies.redefine(
        found.item,
        msgspec.structs.replace(
            external, options=options, connection=base if isinstance(base, str) else None
        ),
    )
    definition, links = check_connection(
        state, wanted, item_id=found.item_id, before=external.options
    )
    effect, after = _alter(state, found, definition, links, statement.validate)
    if effect.updates:
        _check_inheriting_connections(state, after, found)
        reached = [each.item_id for each in effect.restarts]
        _check_own_rules(state, after, reached)
        changed = diff(external.options, definition.external.options if definition.external else {})
        effect = msgspec.structs.replace(
            effect, notices=(*effect.notices, *_list_unmoved(state, reached, changed))
        )
    if statement.rotate and not any(name.startswith("NEXT ") for name in options):
        effect = msgspec.structs.replace(
            effect, notices=(
                *effect.notices,
                "the earlier key may be removed from the server; for the next ROTATE KEYS, SET"
                " (NEXT PRIVATE KEY SECRET …) and let the server know its public key",
            ),
        )
    return effect


def _list_unmoved(
    state: State, reached: Iterable[str], changed: Collection[str]
) -> Iterator[str]:
    """What stays as it is for sources that have an option of their own in the place of one here."""
    for item_id in reached:
        query = dependencies.by_id(state, item_id)
        kind: QueryKind = "source" if query.mapping.kind == "source" else "sink"
        own = query.external.options
        for option in section_of(query.external.connector or "", kind).options:
            if option.from_connection in changed and option.name in own:
                yield (
                    f"{query.text} keeps its {option.name} {own[option.name]}, which goes over"
                    f" {option.from_connection}"
                )


def _check_inheriting_connections(
    state: State, after: State, found: dependencies.CatalogEntry
) -> None:
    """What inherits from this connection must still be whole, and nothing that is fixed may change.

    All errors name the connection.
    """
    for item_id, item in after.items.items():
        if item.definition.kind != "connection":
            continue
        whole = dependencies.effective(after, item_id)
        if found.item_id not in whole.chain:
            continue
        where = f"connection {item.definition.item_name}"
        if item_id != found.item_id:
            where += f", which uses {found.item.definition.item_name}"
            standing = dependencies.effective(state, item_id).options
            check(whole.connector, "connection", whole.options, where=where, before=standing)
        before = dependencies.effective(state, item_id)
        alterable(whole.connector, "connection", diff(before.options, whole.options), where=where)


def _check_own_rules(state: State, after: State, reached: Iterable[str]) -> None:
    """Refuse an alteration by which a query breaks a rule of its connector that it kept."""
    for item_id in reached:
        query = dependencies.by_id(after, item_id)
        used = query.item.links["connection"]
        kind: QueryKind = "source" if query.mapping.kind == "source" else "sink"
        if not own_problems(kind, query.external, dependencies.effective(state, used).options):
            require_own_rules(
                query.text, kind, query.external, dependencies.effective(after, used).options
            )


def _alter(
    state: State,
    found: dependencies.CatalogEntry,
    definition: ObjectDefinition,
    links: dict[str, str],
    validate: bool | None,
) -> tuple[Effect, State]:
    """The effect of giving ``found`` another definition, with who restarts; the state with it."""
    if definition == found.item.definition and links == found.item.links:
        return Effect(
            f"{found.text} unchanged", (),
            (f"{found.text} is unchanged: it already has these options; nothing restarts",),
        ), state
    draft = Draft(state)
    draft.redefine(found, definition, links=links)
    after = draft.after()
    refuse_new_loops(state, after)
    refuse_shared_ports(after)
    effect = Effect(
        f"{found.text} altered", draft.updates, validate=validate,
        alteration=Alteration(
            found.item_id, found.item.definition, definition, found.item.links, links
        ),
        restarts=restarts(state, after, [found.item_id]),
    )
    return effect, after


def alter_secret(state: State, statement: st.AlterSecret) -> Effect:
    """``ALTER SECRET s [AS 'ref']``: the revision rises, so that what uses it restarts."""
    nothing = _missing(state, "secret", statement.name, statement.if_exists)
    if nothing is not None:
        return nothing
    found = dependencies.find(state, "secret", statement.name)
    if statement.reference is not None:
        check_reference(found.text, statement.reference)
    external = msgspec.structs.replace(
        found.external, revision=found.external.revision + 1,
        reference=statement.reference or found.external.reference,
    )
    definition = dependencies.redefine(found.item, external)
    effect, _ = _alter(state, found, definition, dict(found.item.links), statement.validate)
    return effect


def alter_query(state: State, statement: st.AlterItem) -> Effect:
    """``ALTER SOURCE | SINK n SET | DROP | RESET (…)`` for what is safe to change in place."""
    nothing = _missing(state, statement.kind, statement.name, statement.if_exists)
    if nothing is not None:
        return nothing
    found = dependencies.find(state, statement.kind, statement.name)
    require_installed(found.external)
    external = dependencies.as_called_now(state, found.item)
    connector = external.connector or ""
    alterable(connector, statement.kind, _names_in(statement), where=found.text)
    both = apply_actions(
        {**external.options, **external.settings}, statement.actions,
        connector=connector, section=statement.kind, where=found.text,
    )
    options, given = partition(connector, statement.kind, both)
    settings = {name: str(value) for name, value in given.items()}
    wanted = msgspec.structs.replace(external, options=options, settings=settings)
    # what RESET takes away is stored again, as its default
    before = {*external.options, *_canonical(connector, statement)}
    checked, links = check_query(state, statement.kind, statement.name, wanted, before)
    effect, _ = _alter(
        state,
        found,
        dependencies.redefine(found.item, checked),
        {**found.item.links, **links},
        None,
    )
    return effect


def _canonical(connector: str, statement: st.AlterItem) -> list[str]:
    section = section_of(connector, statement.kind)
    return [canonical_name(section, name) or name for name in _names_in(statement)]


def _names_in(statement: st.AlterItem) -> list[str]:
    names: dict[str, None] = {}
    for action in statement.actions:
        names.update(
            dict.fromkeys(action.options if isinstance(action, st.SetOptions) else action.names)
        )
    return list(names)


def set_connection(state: State, statement: st.SetConnection) -> Effect:
    """``ALTER SOURCE | SINK n SET CONNECTION c2``: same type; same upstream is validated."""
    nothing = _missing(state, statement.kind, statement.name, statement.if_exists)
    if nothing is not None:
        return nothing
    found = dependencies.find(state, statement.kind, statement.name)
    external = msgspec.structs.replace(
        dependencies.as_called_now(state, found.item), connection=statement.connection
    )
    checked, links = check_query(
        state, statement.kind, statement.name, external, external.options
    )
    if statement.kind == "sink":
        check_input(found.text, dependencies.by_id(state, found.item.links["reads"]), checked)
    effect, _ = _alter(
        state,
        found,
        dependencies.redefine(found.item, checked),
        {**found.item.links, **links},
        None,
    )
    return effect


# -- holds ----------------------------------------------------------------------------------------


def pause(state: State, statement: st.Pause, *, since: str = "") -> Effect:
    """``PAUSE SOURCE | SINK n [REASON 'x']``: one more hold in the set."""
    found = dependencies.find(state, statement.kind, statement.name)
    reason = statement.reason or PAUSED
    mine = _holds(state, found.item_id, OPERATOR)
    if any(hold.reason == reason for hold in mine.values()):
        return Effect(
            f"{found.text} is held", (), (f"{found.text} is held already: {reason}",)
        )
    number = 1 + max((int(key.rsplit("/", 1)[1]) for key in mine), default=0)
    hold = HoldRecord(item_id=found.item_id, holder=OPERATOR, reason=reason, since=since)
    put = Put("hold", f"{found.item_id}/{OPERATOR}/{number}", hold)
    return Effect(f"{found.text} is held: {reason}", (put,))


def resume(state: State, statement: st.Resume) -> Effect:
    """``RESUME SOURCE | SINK n [REASON 'x']``: removes the holds of the operator, of a changed
    upstream and of repeated failures; those of operations and fences stay."""
    found = dependencies.find(state, statement.kind, statement.name)
    mine = _holds(state, found.item_id, OPERATOR, *OF_QUERIES)
    gone = {
        key: hold for key, hold in mine.items()
        if statement.reason is None or hold.reason == statement.reason
    }
    left = [
        f"{hold.holder}: {hold.reason}" for key, hold in state.holds.items()
        if hold.item_id == found.item_id and key not in gone
    ]
    notices = (f"still held by {'; '.join(left)}",) if left else ()
    if not gone:
        return Effect(
            f"{found.text} unchanged", (),
            notices or (f"{found.text} is not held, nothing done",),
        )
    updates: list[Update] = [Delete("hold", key) for key in gone]
    if any(hold.holder in OF_QUERIES for hold in gone.values()):
        updates += _accept_upstream(state, found.item_id)
    return Effect(f"{found.text} resumed", tuple(updates), notices)


def _accept_upstream(state: State, item_id: str) -> list[Update]:
    stream = state.streams.get(item_id)
    accepted = None if stream is None else surveys.accept_hold(stream)
    return [] if accepted is None or accepted == stream else [Put("stream", item_id, accepted)]


def _holds(state: State, item_id: str, *holders: str) -> dict[str, HoldRecord]:
    return {
        key: hold for key, hold in state.holds.items()
        if hold.item_id == item_id and hold.holder in holders
    }
