"""Which tables are reshaped in place, decided at prepare; and the copy of one that was refused.

The planner says that a table *can* keep its shard while columns are renamed, dropped or moved. The
last word is said here, where the world is known: no other session may live with the old names, no
stream may hang on the shard, and an empty shadow table of it must have taken the very statements.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from catalog_migrate.catalog.commits import Commit, commit
from catalog_migrate.catalog.records import IntentRecord, ItemRecord
from catalog_migrate.catalog.sessions import other_sessions
from catalog_migrate.catalog.state import State
from catalog_migrate.catalog.updates import Put
from catalog_migrate.errors import EngineFailure
from catalog_migrate.migrations.actions import shard_spec
from catalog_migrate.migrations.execution_context import ExecutionContext
from catalog_migrate.model.conversion import conversion
from catalog_migrate.model.layout import Layout, PlacedColumn, Shape
from catalog_migrate.model.names import Identity, quote_sql
from catalog_migrate.model.objects import Column
from catalog_migrate.model.paths import shard_path
from catalog_migrate.model.progress import Progress
from catalog_migrate.model.table_properties import list_omitted
from catalog_migrate.model.wording import counted
from catalog_migrate.planner.plan import Migration, Target

_ERROR_CLASS = re.compile(r"[A-Z][A-Z0-9_]+(?:\.[A-Z0-9_]+)*")
_NEVER_DONE = "UnsupportedOperationException"


@dataclass(slots=True)
class ReshapeDecision:
    """Shapes of tables that keep their shard, and why others are copied instead, by identity.

    Those that are ``barred`` would take the change, but for those who use them.
    """

    shapes: dict[Identity, Shape] = field(default_factory=dict)
    copied: dict[Identity, str] = field(default_factory=dict)
    barred: set[Identity] = field(default_factory=set)


class Rehearsed(NamedTuple):
    """A migration whose changes in place were tried.

    It is another one where tables are copied; ``refused`` says which of them, and why, that the
    plan could not know of by the sessions and streams on record.
    """

    migration: Migration
    shapes: Mapping[Identity, Shape]
    refused: tuple[str, ...] = ()


def rehearse(work: ExecutionContext, state: State, migration: Migration) -> Rehearsed:
    """Try changes in place, and plan again where they are refused."""
    choice = choose(work, state, migration)
    if not choice.copied:
        return Rehearsed(migration, choice.shapes)
    from catalog_migrate.planner.replanning import replan_with_copies

    names = {target.identity: target.definition.key for target in migration.targets}
    return Rehearsed(
        replan_with_copies(migration, choice.copied, state), choice.shapes,
        tuple(
            f"{names[identity]} has to be copied: {reason}"
            for identity, reason in choice.copied.items() if identity not in choice.barred
        ),
    )


def choose(work: ExecutionContext, state: State, migration: Migration) -> ReshapeDecision:
    """Decide for each table that the plan reshapes or sets properties of.

    A reshape is tried on an empty shadow table first, properties on a clone with the rows.

    The shadow tables are named in the intent while they stand. Nothing that users see is touched.
    """
    choice = ReshapeDecision()
    tried = _not_barred(work, state, migration, choice)
    set_on = [
        (target, state.items[target.item_id].shard, _shadow_of(work, target))
        for target in migration.targets
        if target.sets_properties and target.identity not in choice.copied
    ]
    if tried or set_on:
        shadows = [shadow for _, _, shadow, _ in tried] + [shadow for _, _, shadow in set_on]
        _declare(work, migration, shadows)
    for target, path, shadow, shape in tried:
        reason = _rehearse(work, target, path, shadow, shape)
        if reason is None:
            choice.shapes[target.identity] = shape
        else:
            choice.copied[target.identity] = reason
    for target, shard, shadow in set_on:
        if shard is None or target.identity in choice.copied:
            continue
        reason = _rehearse_properties(work, state, target, shard, shadow)
        if reason is not None:
            choice.shapes.pop(target.identity, None)
            choice.copied[target.identity] = reason
    _report(work, migration, choice)
    return choice


def _not_barred(
    work: ExecutionContext, state: State, migration: Migration, choice: ReshapeDecision
) -> list[tuple[Target, str, str, Shape]]:
    """Tables that are to be reshaped, each with its shard, a shadow's path, and its shape."""
    tried: list[tuple[Target, str, str, Shape]] = []
    for target in migration.targets:
        if not target.reshape:
            continue
        reason, shape = find_obstacle(work, state, target.item_id), None
        path = state.items[target.item_id].shard
        if reason is not None:
            choice.barred.add(target.identity)
        elif path is not None:
            layout = work.retrying(work.engine.shard_layout, work.absolute(path))
            shape = shape_of(layout, state.items[target.item_id], target)
            reason = "its columns are not the committed ones" if shape is None else None
        if reason is not None:
            choice.copied[target.identity] = reason
        elif path is not None and shape is not None:
            tried.append((target, path, _shadow_of(work, target), shape))
    return tried


def _report(work: ExecutionContext, migration: Migration, choice: ReshapeDecision) -> None:
    wanted = [target for target in migration.targets if target.reshape]
    wanted += [
        target for target in migration.targets
        if target.sets_properties and not target.reshape
    ]
    for number, target in enumerate(wanted, start=1):
        reason = choice.copied.get(target.identity)
        if reason is not None:
            name = str(target.definition.item_name)
            work.on_progress(
                Progress("copy, not in place", number, len(wanted), f"{name}: {reason}")
            )


def find_obstacle(work: ExecutionContext, state: State, item_id: str) -> str | None:
    """Why the columns of a table must not change under those who use it; None when they may."""
    sessions = sessions_in_the_way(state, work.holder)
    if sessions is not None:
        return sessions
    streams = sorted(
        str(item.definition.item_name)
        for item in state.items.values()
        if item_id in item.links.values()
    )
    return f"{', '.join(streams)} streams from or into it" if streams else None


def sessions_in_the_way(state: State, holder: str) -> str | None:
    """Which processes but this one may live with the columns as they are; None when none does."""
    others = other_sessions(state, holder)
    if not others:
        return None
    count = sum(row.folded or 1 for row in others.values())
    return (
        f"{counted(count, 'other session')} may live at an older serial ({', '.join(others)});"
        " catalog-migrate unlock --session"
    )


def shape_of(layout: Layout, item: ItemRecord, target: Target) -> Shape | None:
    """The new columns by their physical names; None when the shard is not as it was committed."""
    committed = [(column.name.lower(), column.type) for column in item.definition.columns]
    if [(column.name.lower(), column.type) for column in layout.columns] != committed:
        return None
    physical = {column.name.lower(): column.physical for column in layout.columns}
    source = dict(target.reshape)
    columns = tuple(
        PlacedColumn(
            physical.pop(source.get(column.name, "").lower(), ""), column.name, column.type
        )
        for column in target.definition.columns
    )
    return Shape(columns, tuple(physical.values()))


def _declare(work: ExecutionContext, migration: Migration, shadows: list[str]) -> None:
    plan = migration.plan
    work.journal.paths.extend(shadows)
    intent = IntentRecord(
        epoch=work.epoch, plan_hash=plan.plan_hash, release=plan.target.release,
        paths=tuple(shadows),
    )
    commit(work.log, Commit("intent", (Put("intent", str(work.epoch), intent),), (work.held,)))


def _rehearse(
    work: ExecutionContext, target: Target, path: str, shadow: str, shape: Shape
) -> str | None:
    """Why an empty shadow table refused the change, None when it took it. The shadow table goes
    in either case."""
    location = work.absolute(shadow)
    spec = shard_spec(target.definition, location)
    try:
        work.retrying(lambda: work.engine.create_shadow_table(work.absolute(path), location))
        work.retrying(lambda: work.engine.evolve(location, spec.columns, spec, shape))
    except EngineFailure as error:
        return f"an empty shadow table refused it: {error.message} [{error.condition}]"
    finally:
        work.retrying(lambda: work.engine.delete_shard(location))
    return None


def _rehearse_properties(
    work: ExecutionContext, state: State, target: Target, path: str, shadow: str
) -> str | None:
    """Why a clone of the table, rows and all, refused its properties; None when it took them."""
    location = work.absolute(shadow)
    before = state.items[target.item_id].definition.properties
    spec = shard_spec(
        target.definition, location,
        unset=list_omitted((*state.shards[path].unset, *before), target.definition.properties),
    )
    try:
        work.retrying(lambda: work.engine.clone_shard(work.absolute(path), location))
        work.retrying(lambda: work.engine.set_properties(location, spec))
    except EngineFailure as error:
        if not is_refusal(error):
            raise
        return f"a clone of it refused the properties: {error.message} [{error.condition}]"
    finally:
        work.retrying(lambda: work.engine.delete_shard(location))
    return None


def _shadow_of(work: ExecutionContext, target: Target) -> str:
    return shard_path(target.definition.schema, target.definition.name, work.token())


def is_refusal(error: Exception) -> bool:
    """Return whether a committed change was refused for good, so that only a copy makes it true.

    By the error class: a full disk or a lost file has none, and a copy would fail as well. Delta
    has none for some of what it never does.
    """
    if not isinstance(error, EngineFailure) or error.transient:
        return False
    condition = error.condition or ""
    return condition == _NEVER_DONE or _ERROR_CLASS.fullmatch(condition) is not None


def projection_from(
    layout: Layout, item: ItemRecord, shape: Shape | None
) -> tuple[tuple[str, str], ...]:
    """How the rows get from a shard, changed in part or not at all, to the committed columns.

    A column that is not there is NULL, and so is a field of a struct.
    """
    standing = standing_names(layout, item, shape)
    types = {column.name: column.type for column in layout.columns}

    def expression(column: Column) -> str:
        name = standing.get(column.name)
        if name is None:
            return f"CAST(NULL AS {column.type})"
        return conversion(quote_sql(name), types[name], column.type)

    return tuple((column.name, expression(column)) for column in item.definition.columns)


def standing_names(layout: Layout, item: ItemRecord, shape: Shape | None) -> dict[str, str]:
    """Committed columns that a shard, changed in part or not at all, has: by what name it does.

    By physical names where there is a shape, else by names.
    """
    if shape is None:
        placed = {column.name.lower(): column.name for column in layout.columns}
        found = {c.name: placed.get(c.name.lower()) for c in item.definition.columns}
    else:
        standing = {column.physical: column.name for column in layout.columns}
        known = {column.physical for column in shape.columns} | set(shape.gone)
        added = {
            column.name.lower(): column.name
            for column in layout.columns
            if column.physical not in known
        }
        found = {
            column.name: standing.get(column.physical) if column.physical
            else added.get(column.name.lower())
            for column in shape.columns
        }
    return {column: name for column, name in found.items() if name is not None}
