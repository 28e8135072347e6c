"""Exports every table as a plain registration, so that whoever leaves takes everything along.

Rows stay where they lie. As SQL text nothing is written anywhere. Done in a session, the names are
made plain, the marks are taken off the tables and the catalog is closed: first it is closed to
everybody else, last it is noted as done, so that a killed export is finished by running it again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

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
from catalog_migrate.migrations.actions import PREFIX, DesiredName, desired_world, is_ours, matches
from catalog_migrate.migrations.execution_context import ExecutionContext
from catalog_migrate.migrations.names import list_uses
from catalog_migrate.migrations.reconcile import observe, shared_pending
from catalog_migrate.model.names import quote_sql
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
    _require_shards(state, shard_version)
    unmade = _unmade(state)
    names = {item_id: name for item_id, name in _own(state).items() if item_id not in unmade}
    in_force = state.release_in_force("release")
    lines = [
        "-- Plain registrations of every object of a catalog: run with any Spark that has Delta.",
        f"-- release {_line(in_force.name if in_force else 'none')}, serial {state.serial},"
        f" lineage {state.lineage}",
        "-- The rows stay where they lie; nothing below copies or removes one.",
    ]
    for schema in sorted({name.name.schema for name in names.values()}):
        lines.append(f"CREATE SCHEMA IF NOT EXISTS {quote_sql(schema)}\n;")
    lines += [
        f"{escape_doubled_quotes(_statement(state, name))}\n;" for name in in_order(names)
    ]
    retired = sorted(path for path, row in state.shards.items() if row.state == "retired")
    if retired:
        lines.append("-- Earlier versions of tables, still there and not registered:")
        lines += [
            f"--   {_line(shard_location(state.setting('warehouse'), path))}" for path in retired
        ]
    others = sorted(
        f"{mapping.kind} {mapping.key.item_name}" for mapping in state.mappings.values()
        if mapping.owner != "system" and state.items[mapping.item_id].definition.external
    )
    if others:
        lines.append("-- Not part of Spark's catalog, and so not here:")
        lines += [f"--   {_line(other)}" for other in others]
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
    with lease.kept():
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
    kept = {name.identity for name in names.values()}
    world = desired_world(state)
    standing = {}
    others = {}
    for registration in observe(work, state):
        identity = (
            "function" if registration.kind == "function" else "relation",
            *registration.name.folded,
        )
        if not is_ours(state, work.warehouse, registration):
            others[identity] = registration
            continue
        standing[identity] = registration
        if identity not in kept and identity in world:
            on_step(f"drop {registration.name}")
            work.engine.drop(registration)
    for schema in sorted({name.name.schema for name in names.values()}):
        work.engine.ensure_schema(schema)
    left = []
    for name in in_order(names):
        if name.identity in others:
            if not _is_plain(name, others[name.identity], work.warehouse):
                left.append(name)
            continue
        on_step(f"export {name.name}")
        there = standing.get(name.identity)
        if name.view is not None:
            plain = replace(name.view, properties=_plain(name.view.properties))
            work.engine.create_view(plain, over=there)
        elif name.function is not None:
            work.engine.create_function(replace(name.function, properties={}), over=there)
        else:
            if there is not None and there.managed:
                work.engine.drop(there)
            work.engine.register_table(name.name, work.absolute(name.location or ""))
    for schema in sorted({name.name.schema for name in world.values()}
                         - {name.name.schema for name in names.values()}):
        work.engine.drop_schema_if_empty(schema)
    kinds = [name.kind for name in names.values() if name not in left]
    below = any(name.location and not is_absolute(name.location) for name in names.values())
    return Exported(
        kinds.count("table"), kinds.count("view"), kinds.count("function"),
        tuple(sorted(str(name.name) for name in left)), work.warehouse if below else "",
    )


def _is_plain(name: DesiredName, found: Registration, warehouse: str) -> bool:
    """Whether a registration is what an earlier run of this export made of a name."""
    if PREFIX + "lineage" in found.properties:
        return False
    view = name.view and replace(name.view, properties=_plain(name.view.properties))
    function = name.function and replace(name.function, properties={})
    return matches(replace(name, view=view, function=function), found, warehouse)


def _plain(properties: Mapping[str, str]) -> dict[str, str]:
    return {key: value for key, value in properties.items() if not key.startswith(PREFIX)}


def _own(state: State) -> dict[str, DesiredName]:
    """Names by item id, those of our own built-ins left out."""
    owners = {mapping.item_id: mapping.owner for mapping in state.mappings.values()}
    return {
        name.item_id: name for name in desired_world(state).values()
        if owners[name.item_id] != "system"
    }


def in_order(names: Mapping[str, DesiredName]) -> Iterator[DesiredName]:
    """The names, each behind all that it uses."""
    by_identity = {name.identity: name for name in names.values()}
    for wave in order_creates(*list_uses(by_identity), by_identity):
        yield from (by_identity[identity] for _, identity in wave)


def _unmade(state: State) -> frozenset[str]:
    """Sources and logs whose table nobody has needed yet."""
    return frozenset(
        item_id for item_id, item in state.items.items()
        if item.definition.kind in SHARD_KINDS - {"table"} and item.shard is not None
        and shard_version(shard_location(state.setting("warehouse"), item.shard)) is None
    )


def _statement(state: State, name: DesiredName) -> str:
    if name.view is not None:
        columns = [
            Column(c.name, datatypes.without_lengths(c.type), c.nullable, comment=c.comment)
            for c in name.view.columns
        ]
        view = replace(name.view, columns=columns, properties=_plain(name.view.properties))
        # without an analyser at hand each column is cast to the contract's type
        return statements.create_view(view, [statements.BodyColumn("")] * len(columns))
    if name.function is not None:
        return statements.create_function(replace(name.function, properties={}))
    location = shard_location(state.setting("warehouse"), name.location or "")
    create = statements.register_table(name.name, location)
    return create.replace("CREATE TABLE ", "CREATE TABLE IF NOT EXISTS ", 1)


def _require_settled(state: State) -> None:
    pending = shared_pending(state)
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


def _require_shards(state: State, version: Callable[[str], int | None]) -> None:
    problems = list(missing_shards(state, version))
    if problems:
        raise Refusal(
            f"the rows of {counted(len(problems), 'table')} are not there; nothing was exported",
            problems=problems, remedy="restore the directories, or say where they are: "
            "catalog-migrate relocate",
        )


def missing_shards(state: State, version: Callable[[str], int | None]) -> Iterator[Problem]:
    """One problem for each table in force whose directory holds no Delta table any more.

    A source that was never started, and its cluster's log, may have none yet.
    """
    started = any(state.items[item_id].definition.kind == "source" for item_id in state.streams
                  if item_id in state.items)
    for item_id, item in state.items.items():
        kind = item.definition.kind
        if item.shard is None or kind not in SHARD_KINDS or (kind == "log" and not started):
            continue
        if kind == "source" and item_id not in state.streams:
            continue
        path = shard_location(state.setting("warehouse"), item.shard)
        try:
            found = version(path)
        except EngineFailure:
            found = None
        if found is None:
            yield Problem(
                SHARD_MISSING, f"{item.definition.item_name}: there is no Delta table at {path}",
                remedy="restore the directory from a backup; a new table would be empty",
            )


def _require_names(work: ExecutionContext, state: State) -> None:
    wanted = {name.identity for name in _own(state).values()}
    problems = [
        Problem(NAME_TAKEN, f"{r.name}: a {r.kind} that is not ours stands there",
                remedy="rename or drop it")
        for r in observe(work, state)
        if ("function" if r.kind == "function" else "relation", *r.name.folded) in wanted
        and not is_ours(state, work.warehouse, r)
    ]
    if problems:
        raise Refusal(
            f"somebody else has {counted(len(problems), 'name')} of these; nothing was exported",
            problems=problems, remedy="rename or drop what is listed",
        )


def _line(text: str) -> str:
    """Text for a comment: a line break would end it."""
    return " ".join(text.splitlines())
