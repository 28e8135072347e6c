"""Builds what the new state needs beside the old one, before anything is committed.

Order: validate views and names; try changes in place on shadow tables; record
the intent; create and fill new shards; seal the old ones, and those that new tables are filled
from; copy what was appended meanwhile, and fill again where that was read; count.
A crash leaves what the intent names.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace

from catalog_migrate.catalog.commits import Commit, commit
from catalog_migrate.catalog.records import IntentRecord, ShardRecord, identity_text
from catalog_migrate.catalog.state import State
from catalog_migrate.catalog.updates import Put
from catalog_migrate.engine.port import (
    AnyRequest,
    BindRequest,
    BindResult,
    ExpressionRequest,
    FunctionRequest,
    ViewSpec,
    function_spec,
)
from catalog_migrate.errors import CommitConflict, PrepareFailed
from catalog_migrate.migrations.actions import is_ours, shard_spec, view_spec
from catalog_migrate.migrations.build_tables import (
    BuildTable,
    Populate,
    PopulateTable,
    Prepared,
)
from catalog_migrate.migrations.copy_progress import PHASE, CopyProgress
from catalog_migrate.migrations.copy_rows import CopyTable
from catalog_migrate.migrations.execution_context import (
    Ended,
    ExecutionContext,
    NewShard,
    StreamTables,
)
from catalog_migrate.migrations.fill_tables import (
    FillTable,
    fill_again_if_read_too_early,
    read_shards,
)
from catalog_migrate.migrations.others import describe_holder, find_installation
from catalog_migrate.migrations.seals import SealTable, require_sealed, seal_tables
from catalog_migrate.model.layout import Shape
from catalog_migrate.model.names import Identity, ItemName, identity_of
from catalog_migrate.model.objects import Column
from catalog_migrate.model.paths import shard_path
from catalog_migrate.model.progress import Progress
from catalog_migrate.model.sizes import TableSize
from catalog_migrate.model.wording import counted
from catalog_migrate.operations.operation import execute
from catalog_migrate.operations.steps import PREPARE, Op, Step
from catalog_migrate.planner.plan import Fill, Migration, Target
from catalog_migrate.planner.plan_validation import Proof, blocked_error, with_proofs
from catalog_migrate.planner.proofs import TableExpression, expressions

if TYPE_CHECKING:
    from catalog_migrate.planner.plan_validation import Held

_PHASES = {"copy": PHASE, "populate": "populate", "fill": "fill"}
"""By which words tables are counted whose rows have come."""

Asked = tuple[Target, AnyRequest, TableExpression | None]
"""Whose text it is, what Spark is asked, and which expression of a table it is."""


def bind_requests(migration: Migration) -> list[Asked]:
    """Return what Spark must bind: every object that changes and every dependent, text by text."""
    texts = _Texts(migration)
    requests: list[Asked] = []
    for target in migration.targets:
        if target.fill is not None:
            requests.append((target, _fill_request(target, target.fill), None))
        if target.action is None:
            continue
        if target.definition.kind == "table":
            requests += _expression_requests(target)
        else:
            requests += texts.requests(target)
    return requests


class _Texts:
    """The texts of views and functions, each with what it reads and calls."""

    def __init__(self, migration: Migration) -> None:
        from catalog_migrate.model.graph import DependencyGraph

        self._targets = {target.identity: target for target in migration.targets}
        self._functions = {
            identity: function_spec(target.definition, {})
            for identity, target in self._targets.items()
            if target.definition.kind == "function"
        }
        self._calls = DependencyGraph(
            {
                name: [use for use in self._targets[name].uses if use in self._functions]
                for name in self._functions
            },
            {name: self._targets[name].definition.key for name in self._functions},
        )

    def requests(self, target: Target) -> Iterator[Asked]:
        """Yield what is asked of a view or function, if it has a text."""
        definition, function = target.definition, self._functions.get(target.identity)
        if (definition.sql if function is None else definition.body) is None:
            return
        own = self._functions.keys() & set(target.uses)
        # what a function calls comes before it
        called = [
            name for wave in self._calls.waves(own | self._calls.dependencies(own))
            for name in wave
        ]
        read = self._read(target, called)
        callable_ = tuple(self._functions[name] for name in called)
        if function is not None:
            yield target, FunctionRequest(function, read, callable_), None
        elif definition.kind == "view":
            yield target, BindRequest(view_spec(definition, {}), read, callable_), None

    def _read(
        self, target: Target, called: Sequence[Identity]
    ) -> dict[ItemName, tuple[Column, ...]]:
        found: dict[ItemName, tuple[Column, ...]] = {}
        for reader in (*called, target.identity):
            for use in self._targets[reader].uses:
                if use in self._targets and use not in self._functions:
                    parent = self._targets[use].definition
                    if parent.columns:
                        found[parent.item_name] = parent.columns
        return found


def _expression_requests(target: Target) -> Iterator[Asked]:
    for each in expressions(target):
        yield target, ExpressionRequest(
            target.definition.item_name, each.role, each.sql, each.type, each.columns
        ), each


def _fill_request(target: Target, fill: Fill) -> BindRequest:
    """What fills a new table, over the columns of OLD."""
    definition = target.definition
    return BindRequest(
        ViewSpec(
            definition.item_name,
            tuple(column for column in definition.columns if column.generated is None), fill.query,
        ),
        {each.item_name: each.columns for each in fill.objects if each.kind != "function"},
        tuple(function_spec(each, {}) for each in fill.objects if each.kind == "function"),
        fills=True,
    )


def prove(
    migration: Migration, bind: Callable[[list[AnyRequest]], Sequence[BindResult]]
) -> Migration:
    """Return the migration with what :meth:`Engine.bind` says of all that changes."""
    asked = bind_requests(migration)
    results = bind([request for _, request, _ in asked]) if asked else []
    return with_proofs(migration, [
        Proof(
            str(target.definition.key), target.definition.kind, result.reason, expression,
            result.proven,
        )
        for (target, _, expression), result in zip(asked, results, strict=True)
    ])


def bind(work: ExecutionContext, requests: list[AnyRequest]) -> list[BindResult]:
    """Bind what a migration changes; writes nothing."""
    work.on_progress(Progress("bind", 0, len(requests)))
    results = list(work.retrying(lambda: work.engine.bind(requests)))
    work.on_progress(Progress("bind", len(requests), len(requests)))
    return results


def foreign_names(
    work: ExecutionContext, state: State | None, migration: Migration
) -> list[Held]:
    """Return each name of the new state that something of others holds, those that stay too.

    What stays was taken in another session, maybe: names of this one may be another installation's.
    ``state`` None: nothing is ours, because there is no catalog yet.
    """
    from catalog_migrate.planner.plan_validation import Held

    wanted: dict[Identity, Target] = {target.identity: target for target in migration.targets}
    schemas = sorted({target.definition.schema for target in wanted.values()})
    observe = work.engine.observe
    observed = work.retrying(lambda: [each for schema in schemas for each in observe(schema)])
    found = []
    for registration in observed:
        identity = identity_of(registration.kind, *registration.name)
        if identity not in wanted or (
            state is not None and is_ours(state, work.warehouse, registration)
        ):
            continue
        other = find_installation(registration, work.warehouse)
        kinds = {registration.kind, wanted[identity].definition.kind}
        found.append(Held(
            str(registration.name), describe_holder(registration, other),
            kinds == {"table"} and not other, bool(other),
        ))
    return found


def with_validation(
    work: ExecutionContext, state: State | None, migration: Migration
) -> Migration:
    """The migration with what stands under its names, and what Spark says of its texts."""
    from catalog_migrate.planner.plan_validation import with_foreign

    foreign = foreign_names(work, state, migration)
    migration = with_foreign(migration, foreign)
    if migration.plan.bound:  # by the look that was taken before the catalog was made
        return migration
    return prove(migration, lambda requests: bind(work, requests))


def validate(work: ExecutionContext, state: State | None, migration: Migration) -> Migration:
    """:func:`with_validation`; MigrationBlocked with the plan when a validation fails."""
    return _require_applyable(with_validation(work, state, migration))


def validate_views(work: ExecutionContext, migration: Migration) -> Migration:
    """Return the migration with whether its views bind; MigrationBlocked when one does not."""
    return _require_applyable(prove(migration, lambda requests: bind(work, requests)))


def _require_applyable(migration: Migration) -> Migration:
    if not migration.plan.applyable:
        raise blocked_error(migration.plan)
    return migration


def prepare(
    work: ExecutionContext, state: State, migration: Migration, shapes: Mapping[Identity, Shape],
    *, populate: Populate | None,
) -> Prepared:
    """Build the new shards and seal the old ones; see the module's docstring for the order.

    ``shapes`` are what becomes of tables in place, as a rehearsal found them.

    Raises PrepareFailed (the old release stays in force and what was begun is undone by
    :func:`catalog_migrate.migrations.cleanup.abandon`), and CommitConflict when the world moved
    under the plan, so that it has to be made again.
    """
    for target in migration.targets:
        definition = target.definition
        if target.action is not None and definition.kind == "view" and definition.sql is None:
            raise PrepareFailed(
                f"{definition.key} has no SQL, so it can be planned but not applied",
                remedy="add its `sql` to the manifest",
            )
    plan = migration.plan
    prepared = Prepared(state, plan.plan_hash, plan.target.release, plan.steps, dict(shapes))
    begin = [step for step in plan.steps if step.phase == PREPARE]
    if begin:
        work.journal.steps += begin
        _execute(work, prepared, begin, migration, populate)
    return prepared


def _execute(
    work: ExecutionContext, prepared: Prepared, steps: Sequence[Step], migration: Migration,
    populate: Populate | None,
) -> None:
    state = prepared.state
    made: dict[str, Op] = {step.id: step.op for step in steps if step.op != "seal"}
    shards = _new_shards(work, state, migration, made)
    read = {
        path for target in migration.targets if target.fill is not None
        for path in read_shards(state, target.fill).values()
    }
    seals = seals_of(prepared, steps, shards, read)
    gone = find_departing_tables(state, migration)
    _require_sealing(state, shards, gone, {each.path for each in seals})
    _require_no_backfill(work.streams, state, {each.path for each in seals})
    carry_over(work, prepared, steps, shards, seals, populate)
    replaced = {shard.target.item_id for shard in shards}
    prepared.unsealing = frozenset(
        each.path for each in seals if each.path not in gone and each.step.id not in replaced
    )
    _verify_empty(work, migration, prepared)


def _require_sealing(
    state: State, shards: Iterable[NewShard], gone: Iterable[str], sealed: Collection[str]
) -> None:
    """PrepareFailed for a program by which a table in force stays open that is copied or goes:
    rows that are written to it meanwhile would be lost."""
    copied = [
        shard.source for shard in shards
        if shard.source is not None and state.shards[shard.source].state == "live"
    ]
    left_open = sorted({*copied, *gone} - set(sealed))
    if left_open:
        raise PrepareFailed(
            f"the plan leaves tables open for writers whose rows it moves: {', '.join(left_open)}",
            remedy="this is a fault of the program, not of your release: please report it",
        )


def _require_no_backfill(
    streams: StreamTables, state: State, retiring: Collection[str]
) -> None:
    """PrepareFailed while an operation reads skipped records with dead letters for a table here."""
    if not state.streams:
        return
    for item_id, key in streams.being_filled(state).items():
        item = state.items[item_id]
        if item.shard in retiring:
            raise PrepareFailed(
                f"operation {key} is reading what it skipped, and {item.definition.key} takes its "
                "dead letters",
                remedy="wait until it is done (SHOW OPERATIONS), then start again",
            )


def seals_of(
    prepared: Prepared, steps: Iterable[Step], shards: Iterable[NewShard],
    read: Collection[str] = (),
) -> list[SealTable]:
    """What closes the tables in force that the steps seal; ``read`` are those that fills read."""
    copied = {shard.source: shard.target.identity for shard in shards if shard.source is not None}
    places = [
        (step, prepared.state.items[step.id].shard) for step in steps if step.op == "seal"
    ]
    return [
        SealTable(step, path, prepared, copied.get(path), path in copied or path in read)
        for step, path in places if path is not None
    ]


def carry_over(
    work: ExecutionContext, prepared: Prepared, steps: Iterable[Step], shards: Sequence[NewShard],
    seals: Sequence[SealTable] = (), populate: Populate | None = None,
) -> None:
    """Build, copy, populate, fill and seal, each step named in the intent first."""
    state, made = prepared.state, prepared.shards
    made |= {shard.target.identity: shard for shard in shards}
    _declare(work, prepared)
    progress = CopyProgress(
        work, [shard for shard in shards if shard.source is not None], len(shards)
    )
    by_item = {shard.target.item_id: shard for shard in shards}

    def operation(step: Step, shard: NewShard) -> BuildTable:
        if step.op == "copy":
            return CopyTable(step, shard, prepared, progress.report_created, progress.copy)
        if step.op == "populate":
            return PopulateTable(step, shard, prepared, progress.report_created, populate)
        return (FillTable if step.op == "fill" else BuildTable)(
            step, shard, prepared, progress.report_created
        )

    building = [operation(step, by_item[step.id]) for step in steps if step.op != "seal"]
    with progress.watch():
        execute(building, work, on_ended=Ended(progress.report, _PHASES, building))
    seal_tables(work, prepared, seals)
    for identity, shard in made.items():
        if shard.read:
            made[identity] = fill_again_if_read_too_early(work, state, shard, prepared.sealed)
    require_sealed(work, prepared)
    _hand_over_to_streams(work, prepared)


def _hand_over_to_streams(work: ExecutionContext, prepared: Prepared) -> None:
    """Give copies what queries rely on in their old shards.

    A table that takes dead letters knows which batches it has, and one that a sink reads only
    grows, from the copy's first day.
    """
    state = prepared.state
    if not state.streams:
        return
    read = work.streams.append_only(state)
    for shard in prepared.shards.values():
        if shard.source is None:
            continue
        # whose the rows were: a table that comes back has an id that no query knows yet
        item_id = state.shards[shard.source].item_id
        old, new = work.absolute(shard.source), work.absolute(shard.path)
        work.retrying(work.streams.follow_copy, state, item_id, old, new)
        if item_id not in read:
            continue
        spec = shard_spec(shard.target.definition, work.absolute(shard.path))
        kept = replace(spec, properties={**spec.properties, "delta.appendOnly": "true"})
        work.retrying(work.engine.evolve, kept.path, kept.columns, kept)


def _verify_empty(
    work: ExecutionContext, migration: Migration, prepared: Prepared
) -> None:
    """A table whose drop needed no approval because it was empty must still be, now sealed.

    The rows of a derived table are the application's to make again: they never need one.
    """
    state = prepared.state
    approved = {name.lower() for name in migration.plan.approved}
    for path, name in find_departing_tables(state, migration).items():
        if name.lower() in approved or path not in prepared.sealed:
            continue
        if state.items[state.shards[path].item_id].definition.is_derived:
            continue
        rows = work.engine.count_rows(work.absolute(path), prepared.sealed[path])
        if rows:
            raise CommitConflict(
                f"{name} was empty when its drop was planned and has {counted(rows, 'row')} now",
                remedy=f"keep the table, or start again with --approve {name}",
            )


def _new_shards(
    work: ExecutionContext, state: State, migration: Migration, made: Mapping[str, Op]
) -> list[NewShard]:
    """The shards of tables that are made, by which operation; ``made`` is by item id."""
    shards = []
    sizes = {
        change.item_id: TableSize(change.rows, change.bytes) for change in migration.plan.changes
        if change.rows is not None and change.bytes is not None
    }
    for target in migration.targets:
        op = made.get(target.item_id)
        if op is None:
            continue
        path = shard_path(target.definition.schema, target.definition.name, work.token())
        source = None
        if op == "copy":
            standing = state.items.get(target.item_id)
            source = target.segments[-1].path if standing is None else standing.shard
        shards.append(NewShard(
            target, path, source, unfilled=_never_filled(state, target),
            size=sizes.get(target.item_id) if op == "copy" else None,
        ))
    return shards


def _never_filled(state: State, target: Target) -> bool:
    """Whether a derived table comes back from a shard that its application had not filled yet."""
    return target.definition.is_derived and any(
        segment.path in state.shards and state.shards[segment.path].unfilled
        for segment in target.segments
    )


def find_departing_tables(state: State, migration: Migration) -> dict[str, str]:
    """Shard path -> name of each table that goes for good, or becomes a view under its id."""
    kinds = {target.item_id: target.definition.kind for target in migration.targets}
    paths: dict[str, str] = {}
    for identity in migration.drops:
        mapping = state.mappings.get(identity_text(identity))
        if mapping is None or mapping.kind != "table":
            continue
        path = state.items[mapping.item_id].shard
        if path is not None and kinds.get(mapping.item_id) != "table":
            paths[path] = str(mapping.key)
    return paths


def _declare(work: ExecutionContext, prepared: Prepared) -> None:
    """Commit the intent: from here on a crash leaves only what it names."""
    shards = prepared.shards.values()
    paths = tuple(shard.path for shard in shards)
    work.journal.paths.extend(paths)
    intent = IntentRecord(
        epoch=work.epoch, plan_hash=prepared.plan_hash, release=prepared.release, paths=paths
    )
    building = (
        Put("shard", shard.path, ShardRecord(
            item_id=shard.target.item_id, global_id=shard.target.global_id, state="building",
            source=shard.source,
        ))
        for shard in shards
    )
    updates = (Put("intent", str(work.epoch), intent), *building)
    commit(work.log, Commit("intent", updates, (work.held,)))
