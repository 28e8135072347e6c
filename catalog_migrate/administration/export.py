"""Exports every table as a plain registration, so that whoever leaves takes everything along.

Rows stay where they lie. As SQL text nothing is written anywhere. Done in a session, the names are
made plain, the marks are taken off the tables and the catalog is closed: first it is closed to
other processes, last it is noted as done, so that a killed export is finished by running it again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TypeAlias

import msgspec
from msgspec.structs import replace

from catalog_migrate.catalog.clock import Clock, SystemClock
from catalog_migrate.catalog.commits import Commit, commit
from catalog_migrate.catalog.lease import MIGRATION, Lease, acquire
from catalog_migrate.catalog.log import CatalogLog
from catalog_migrate.catalog.marks import clear_mark
from catalog_migrate.catalog.opening import EXPORTED, read_state, require_at_home
from catalog_migrate.catalog.process import this_holder
from catalog_migrate.catalog.records import ConfigRecord
from catalog_migrate.catalog.state import State
from catalog_migrate.catalog.updates import Put
from catalog_migrate.delta import datatypes
from catalog_migrate.delta.table import shard_version
from catalog_migrate.engine.port import Engine, Registration
from catalog_migrate.engine.spark import statements
from catalog_migrate.errors import EngineFailure, NotSettled, Problem, Refusal
from catalog_migrate.migrations.actions import (
    PREFIX,
    DesiredName,
    find_desired_names,
    is_ours,
    matches,
)
from catalog_migrate.migrations.execution_context import ExecutionContext
from catalog_migrate.migrations.names import list_uses
from catalog_migrate.migrations.reconcile import list_pending_work, observe
from catalog_migrate.model.names import Identity, identity_of, quote_sql
from catalog_migrate.model.objects import SHARD_KINDS, Column
from catalog_migrate.model.paths import is_absolute, shard_location
from catalog_migrate.model.wording import counted
from catalog_migrate.operations.order import order_creates
from catalog_migrate.sql.tokens import escape_doubled_quotes
from catalog_migrate.streams.ddl.migrations import MigratedStreams

SHARD_MISSING = "CM0841"
NAME_TAKEN = "CM0842"


class Exported(msgspec.Struct, frozen=True):
    """What a session's catalog has now: how many tables, views and functions, plain.

    ``left`` are names that somebody else has by now: they stay as they are. ``below`` is the
    directory that the rows of tables lie in which were not adopted, empty when there are none.
    """

    tables: int
    views: int
    functions: int
    left: tuple[str, ...] = ()
    below: str = ""


def registrations_sql(state: State) -> str:
    """Every object in force as Spark SQL in an order that can be run; our own views stay out.

    Raises NotSettled while work is pending, and Refusal when a table's directory is missing.
    """
    _require_settled(state)
    unmade = _require_shards(state, shard_version)
    names = {item_id: name for item_id, name in _own(state).items() if item_id not in unmade}
    in_force = state.release_in_force("release")
    warehouse = state.setting("warehouse")
    retired = (
        shard_location(warehouse, path)
        for path, row in state.shards.items() if row.state == "retired"
    )
    others = (
        f"{mapping.kind} {mapping.key.item_name}" for mapping in state.mappings.values()
        if mapping.owner != "system" and state.items[mapping.item_id].definition.external
    )
    lines = [
        "-- Plain registrations of every object of a catalog: run with any Spark that has Delta.",
        f"-- release {_line(in_force.name if in_force else 'none')}, serial {state.serial},"
        f" lineage {state.lineage}",
        "-- The rows stay where they lie; nothing below copies or removes one.",
        *(
            f"CREATE SCHEMA IF NOT EXISTS {quote_sql(schema)}\n;"
            for schema in _schemas(names.values())
        ),
        *(f"{escape_doubled_quotes(_statement(state, name))}\n;" for name in in_order(names)),
        *_remark("Earlier versions of tables, still there and not registered:", retired),
        *_remark("Not part of Spark's catalog, and so not here:", others),
    ]
    return "\n".join(lines) + "\n"


def export_catalog(
    engine: Engine, log: CatalogLog, *, wait: float | None = None, clock: Clock | None = None,
    on_step: Callable[[str], None] = lambda _: None,
) -> Exported:
    """Make every name of the session's catalog plain, unmark the tables and close the catalog.

    ``wait`` is how long another holder of the lease is waited for, in seconds; ``on_step`` hears
    ``close``, each name, ``unmark`` and ``done`` before the step. Run again after a kill, and in
    any further session whose names die with it. Raises CatalogMoved, NotSettled, Refusal,
    LeaseHeld.
    """
    # an export that was cut off goes on; a catalog that is not at home has the original's tables
    require_at_home(read_state(log), log)
    clock = clock or SystemClock()
    lease = acquire(log, holder=this_holder(), clock=clock, wait=wait, anyway=True)
    with lease.keep():
        state = lease.read_state()
        work = ExecutionContext(
            engine, log, clock, state.setting("warehouse"), MigratedStreams(), lease=lease
        )
        if EXPORTED not in state.config:
            _require_settled(state)
            _require_shards(state, engine.shard_version)
            _require_names(work, state)
            on_step("close")
            state = _note(log, lease, "pending")
        given = _make_plain(work, state, on_step)
        if state.setting(EXPORTED) != "done":
            on_step("unmark")
            for path, row in sorted(state.shards.items()):
                if row.state in ("live", "retired"):
                    clear_mark(work.absolute(path), state.lineage)
            on_step("done")
            _note(log, lease, "done")
        return given


def _note(log: CatalogLog, lease: Lease, value: str) -> State:
    note = Put("config", EXPORTED, ConfigRecord(value=value))
    return commit(log, Commit("export", (note,), (lease.held,), anyway=True))


def _make_plain(work: ExecutionContext, state: State, on_step: Callable[[str], None]) -> Exported:
    """Drop our own views, register what is missing, replace what carries our marks.

    Any other name is plain already, or came since the catalog was closed: it is left alone.
    """
    names = _own(state)
    wanted = {name.identity for name in names.values()}
    world = find_desired_names(state)
    ours, others = _observe(work, state)
    for identity, registration in ours.items():
        if identity not in wanted and identity in world:
            on_step(f"drop {registration.name}")
            work.engine.drop(registration)
    schemas = _schemas(names.values())
    for schema in schemas:
        work.engine.ensure_schema(schema)
    for name in in_order(names):
        if name.identity not in others:
            on_step(f"export {name.name}")
            _make_name(work, name, ours.get(name.identity))
    for schema in _schemas(world.values()):
        if schema not in schemas:
            work.engine.drop_schema_if_empty(schema)
    return _report(work, names, others)


def _report(
    work: ExecutionContext, names: Mapping[str, DesiredName], others: _Registered
) -> Exported:
    left = [
        name for name in names.values() if name.identity in others
        and not _is_plain(name, others[name.identity], work.warehouse)
    ]
    kinds = [name.kind for name in names.values() if name not in left]
    below = any(name.location and not is_absolute(name.location) for name in names.values())
    return Exported(
        kinds.count("table"), kinds.count("view"), kinds.count("function"),
        tuple(sorted(str(name.name) for name in left)), work.warehouse if below else "",
    )


def _make_name(work: ExecutionContext, name: DesiredName, there: Registration | None) -> None:
    if name.view is not None:
        work.engine.create_view(name.view, over=there)
    elif name.function is not None:
        work.engine.create_function(name.function, over=there)
    else:
        if there is not None and there.managed:
            work.engine.drop(there)
        work.engine.register_table(name.name, work.absolute(name.location or ""))


_Registered: TypeAlias = dict[Identity, Registration]


def _observe(work: ExecutionContext, state: State) -> tuple[_Registered, _Registered]:
    """Return the names that are there now: ours, and those of others."""
    ours: _Registered = {}
    others: _Registered = {}
    for each in observe(work, state):
        found = ours if is_ours(state, work.warehouse, each) else others
        found[identity_of(each.kind, *each.name)] = each
    return ours, others


def _own(state: State) -> dict[str, DesiredName]:
    """Names by item id as an export leaves them, those of our own built-ins left out."""
    owners = {mapping.item_id: mapping.owner for mapping in state.mappings.values()}
    return {
        name.item_id: _plain(name) for name in find_desired_names(state).values()
        if owners[name.item_id] != "system"
    }


def _plain(name: DesiredName) -> DesiredName:
    view, function = name.view, name.function
    if view is not None:
        kept = {key: each for key, each in view.properties.items() if not key.startswith(PREFIX)}
        view = replace(view, properties=kept)
    return replace(name, view=view, function=function and replace(function, properties={}))


def _is_plain(name: DesiredName, found: Registration, warehouse: str) -> bool:
    """Whether a registration is what an earlier run of this export made of a name."""
    return PREFIX + "lineage" not in found.properties and matches(name, found, warehouse)


def _schemas(names: Iterable[DesiredName]) -> list[str]:
    return sorted({name.name.schema for name in names})


def in_order(names: Mapping[str, DesiredName]) -> Iterator[DesiredName]:
    """Yield the names, each behind all that it uses."""
    by_identity = {name.identity: name for name in names.values()}
    for wave in order_creates(*list_uses(by_identity), by_identity):
        yield from (by_identity[identity] for _, identity in wave)


def _statement(state: State, name: DesiredName) -> str:
    if name.view is not None:
        columns = [
            Column(c.name, datatypes.without_lengths(c.type), c.nullable, comment=c.comment)
            for c in name.view.columns
        ]
        view = replace(name.view, columns=columns)
        # without an analyser at hand each column is cast to the contract's type
        return statements.create_view(view, [statements.BodyColumn("")] * len(columns))
    if name.function is not None:
        return statements.create_function(name.function)
    location = shard_location(state.setting("warehouse"), name.location or "")
    create = statements.register_table(name.name, location)
    return create.replace("CREATE TABLE ", "CREATE TABLE IF NOT EXISTS ", 1)


def _require_settled(state: State) -> None:
    pending = list_pending_work(state)
    pending += [
        f"the lease {key!r} is held by {lease.holder}" for key, lease in state.leases.items()
        if lease.holder and key != MIGRATION
    ]
    if pending:
        raise NotSettled(
            f"{counted(len(pending), 'thing')} must be finished before the tables are exported",
            pending=pending,
            remedy="run catalog-migrate bootstrap, and stop what catalog-migrate run has started",
        )


def _require_shards(state: State, version: Callable[[str], int | None]) -> set[str]:
    """Refuse an export while a directory in force has no Delta table any more.

    Return the ids of sources and logs without a table, which no query has needed yet.
    """
    started = any(state.items[each].definition.kind == "source" for each in state.streams
                  if each in state.items)
    unmade: set[str] = set()
    problems = []
    for item_id, path in _find_absent(state, version):
        definition = state.items[item_id].definition
        needed = {"source": item_id in state.streams, "log": started}
        if needed.get(definition.kind, True):
            problems.append(Problem(
                SHARD_MISSING, f"{definition.item_name}: there is no Delta table at {path}",
                remedy="restore the directory from a backup; a new table would be empty",
            ))
        unmade.add(item_id)
    if problems:
        raise Refusal(
            f"the rows of {counted(len(problems), 'table')} are not there; nothing was exported",
            problems=problems, remedy="restore the directories, or say where they are: "
            "catalog-migrate relocate",
        )
    return unmade


def _find_absent(
    state: State, version: Callable[[str], int | None]
) -> Iterator[tuple[str, str]]:
    """Yield each item whose directory holds no Delta table that can be read, and the directory."""
    for item_id, item in state.items.items():
        if item.shard is not None and item.definition.kind in SHARD_KINDS:
            path = shard_location(state.setting("warehouse"), item.shard)
            try:
                found = version(path)
            except EngineFailure:
                found = None
            if found is None:
                yield item_id, path


def _require_names(work: ExecutionContext, state: State) -> None:
    wanted = {name.identity for name in _own(state).values()}
    _, others = _observe(work, state)
    problems = [
        Problem(NAME_TAKEN, f"{each.name}: a {each.kind} that is not ours has that name",
                remedy="rename or drop it")
        for identity, each in others.items() if identity in wanted
    ]
    if problems:
        raise Refusal(
            f"somebody else has {counted(len(problems), 'name')} of these; nothing was exported",
            problems=problems, remedy="rename or drop what is listed",
        )


def _remark(title: str, texts: Iterable[str]) -> Iterator[str]:
    """Yield a comment with a list, where there is anything to list."""
    listed = sorted(texts)
    if listed:
        yield f"-- {title}"
        yield from (f"--   {_line(text)}" for text in listed)


def _line(text: str) -> str:
    """Text for a comment: a line break would end it."""
    return " ".join(text.splitlines())
