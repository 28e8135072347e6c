"""Builds what the new state needs beside the old one, before anything is committed.

Order: validate views and names; try changes in place on shadow tables; record
the intent; create and fill new shards; seal the old ones, and those that new tables are filled
from; copy what was appended meanwhile, and fill again where that was read; count.
A crash leaves what the intent names.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from dataclasses import replace as replace_context
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from catalog_migrate.catalog.commits import Commit, commit
from catalog_migrate.catalog.marks import marks_of
from catalog_migrate.catalog.records import (
    IntentRecord,
    SealedShard,
    ShardRecord,
    identity_text,
)
from catalog_migrate.catalog.state import State
from catalog_migrate.catalog.updates import Edit, Put
from catalog_migrate.engine.port import (
    AnyRequest,
    BindRequest,
    BindResult,
    ExpressionRequest,
    FunctionRequest,
    ViewSpec,
)
from catalog_migrate.errors import CatalogMigrateError, CommitConflict, EngineFailure, PrepareFailed
from catalog_migrate.model.graph import DependencyGraph
from catalog_migrate.model.layout import Shape
from catalog_migrate.model.names import Identity, ItemName, identity_of
from catalog_migrate.model.objects import Column
from catalog_migrate.model.paths import shard_path
from catalog_migrate.model.sizes import TableSize
from catalog_migrate.model.wording import counted
from catalog_migrate.planner.plan import Fill, Migration, Target
from catalog_migrate.planner.plan_validation import Proof, blocked, with_proofs
from catalog_migrate.planner.program import program
from catalog_migrate.planner.proofs import TableExpression, expressions
from catalog_migrate.program.steps import PREPARE, Op, Step
from catalog_migrate.reconciler.actions import function_spec, is_ours, shard_spec, view_spec
from catalog_migrate.reconciler.copy_progress import PHASE, CopyProgress
from catalog_migrate.reconciler.copy_rows import copy_tail
from catalog_migrate.reconciler.execution_context import (
    ExecutionContext,
    NewShard,
    Progress,
    StreamTables,
)
from catalog_migrate.reconciler.fill_tables import (
    fill_again_if_read_too_early,
    fill_shard,
    read_shards,
)
from catalog_migrate.reconciler.others import describe_holder, find_installation
from catalog_migrate.reconciler.reshape import ReshapeDecision, choose

if TYPE_CHECKING:
    from catalog_migrate.planner.plan_validation import Held

SEAL_CONFLICT = "SEAL_CONFLICT"
SEAL_ATTEMPTS = 10
"""How often others may change a table's metadata while it is to be sealed."""

Populate = Callable[[str, str], None]
"""``populate(table_name, target_path)``: fill a derived table's new shard."""


class Attempt(msgspec.Struct, frozen=True):
    """What an intent says of why it is there."""

    plan_hash: str
    release: str


@dataclass(slots=True)
class Prepared:
    """Everything the commit names: new shards by identity, seals on replaced ones, by path, what
    becomes of tables in place, by identity, and the program that is executed.

    ``unsealing`` are shards that stay in force and were sealed for a new table to be filled."""

    shards: dict[Identity, NewShard] = field(default_factory=dict)
    sealed: dict[str, int] = field(default_factory=dict)
    unsealing: frozenset[str] = frozenset()
    shapes: dict[Identity, Shape] = field(default_factory=dict)
    steps: tuple[Step, ...] = ()

    @property
    def rows(self) -> int:
        """Rows that were copied."""
        return sum(shard.rows for shard in self.shards.values())


Asked = tuple[Target, AnyRequest, TableExpression | None]
"""Whose text it is, what Spark is asked, and which expression of a table it is."""


def bind_requests(migration: Migration) -> list[Asked]:
    """What Spark must bind: every object that changes and every dependent, text by text."""
    by_identity = {target.identity: target for target in migration.targets}
    functions = {
        identity: function_spec(target.definition, {})
        for identity, target in by_identity.items()
        if target.definition.kind == "function"
    }
    calls = DependencyGraph(
        {name: [use for use in by_identity[name].uses if use in functions] for name in functions},
        {name: by_identity[name].definition.key for name in functions},
    )

    def callees(target: Target) -> list[Identity]:
        own = functions.keys() & set(target.uses)
        # what a function calls comes before it
        return [name for wave in calls.waves(own | calls.dependencies(own)) for name in wave]

    def parents(target: Target, called: list[Identity]) -> dict[ItemName, tuple[Column, ...]]:
        found: dict[ItemName, tuple[Column, ...]] = {}
        for reader in (*called, target.identity):
            for use in by_identity[reader].uses:
                if use in by_identity and use not in functions:
                    parent = by_identity[use].definition
                    if parent.columns:
                        found[parent.item_name] = parent.columns
        return found

    requests: list[Asked] = []
    for target in migration.targets:
        definition = target.definition
        if target.fill is not None:
            requests.append((target, _fill_request(target, target.fill), None))
        if target.action is None:
            continue
        if definition.kind == "table":
            requests += [
                (target, ExpressionRequest(
                    definition.item_name, each.role, each.sql, each.type, each.columns
                ), each)
                for each in expressions(target)
            ]
            continue
        called = callees(target)
        read = parents(target, called)
        callable_ = tuple(functions[name] for name in called)
        if definition.kind == "view" and definition.sql is not None:
            view = view_spec(definition, {})
            requests.append((target, BindRequest(view, read, callable_), None))
        elif target.identity in functions and definition.body is not None:
            function = functions[target.identity]
            requests.append((target, FunctionRequest(function, read, callable_), None))
    return requests


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
    """The migration with what :meth:`Engine.bind` says of all that changes."""
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
    """Each name of the new state that something of others holds, those that stay too.

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
    """The migration with whether its views bind; MigrationBlocked when one does not."""
    return _require_applyable(prove(migration, lambda requests: bind(work, requests)))


def _require_applyable(migration: Migration) -> Migration:
    if not migration.plan.applyable:
        raise blocked(migration.plan)
    return migration


def prepare(
    work: ExecutionContext, state: State, migration: Migration, *, populate: Populate | None
) -> Prepared:
    """Build the new shards and seal the old ones; see the module's docstring for the order.

    Raises PrepareFailed (the old release stays in force and what was begun is undone by
    :func:`catalog_migrate.reconciler.cleanup.abandon`), and CommitConflict when the world moved
    under the plan, so that it has to be made again.
    """
    for target in migration.targets:
        definition = target.definition
        if target.action is not None and definition.kind == "view" and definition.sql is None:
            raise PrepareFailed(
                f"{definition.key} has no SQL, so it can be planned but not applied",
                remedy="add its `sql` to the manifest",
            )
    choice = choose(work, state, migration)
    shards = _new_shards(work, state, migration, choice)
    retiring = _retiring(state, migration, shards)
    steps = _program(state, migration, choice)
    work.journal.steps += [step for step in steps if step.phase == PREPARE]
    if not shards and not retiring:
        return Prepared(shapes=choice.shapes, steps=steps)
    filled = [target.fill for target in migration.targets if target.fill is not None]
    read = [path for fill in filled for path in read_shards(state, fill).values()]
    closing = {**dict.fromkeys(read), **retiring}
    _require_no_backfill(work.streams, state, closing)
    attempt = Attempt(migration.plan.plan_hash, migration.plan.target.release)
    prepared = _carry_over(work, state, attempt, shards, closing, populate)
    prepared.shapes, prepared.steps = choice.shapes, steps
    replaced = {shard.target.item_id for shard in shards}
    prepared.unsealing = frozenset(
        path for path in closing.keys() - retiring.keys()
        if state.shards[path].item_id not in replaced
    )
    _verify_empty(work, state, migration, prepared)
    _hand_over_to_streams(work, state, prepared)
    return prepared


def _program(state: State, migration: Migration, choice: ReshapeDecision) -> tuple[Step, ...]:
    """The plan's steps; made again where tables are copied that were to be changed in place."""
    if not choice.copied:
        return migration.plan.steps
    targets = [
        replace(target, contents="copy") if target.identity in choice.copied else target
        for target in migration.targets
    ]
    there = {target.identity: target.definition.key for target in targets}
    new = DependencyGraph(
        {target.identity: [use for use in target.uses if use in there] for target in targets}, there
    )
    return program(
        targets,
        {mapping.identity: (mapping.key, mapping.item_id) for mapping in state.mappings.values()},
        migration.drops, migration.creates, (state.graph, new),
    )


def _require_no_backfill(
    streams: StreamTables, state: State, retiring: Mapping[str, NewShard | None]
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


def copy_into(
    work: ExecutionContext, state: State, attempt: Attempt, shards: list[NewShard]
) -> Prepared:
    """Copy living shards into new ones and seal them, each step named in the intent first."""
    retiring = {shard.source: shard for shard in shards if shard.source is not None}
    prepared = _carry_over(work, state, attempt, shards, retiring, None)
    _hand_over_to_streams(work, state, prepared)
    return prepared


def _carry_over(
    work: ExecutionContext,
    state: State,
    attempt: Attempt,
    shards: list[NewShard],
    retiring: Mapping[str, NewShard | None],
    populate: Populate | None,
) -> Prepared:
    prepared = Prepared()
    _declare(work, attempt, shards)
    _build(work, state, shards, prepared, populate)
    _seal(work, state, attempt, shards, retiring, prepared)
    for identity, shard in prepared.shards.items():
        if shard.read:
            prepared.shards[identity] = fill_again_if_read_too_early(
                work, state, shard, prepared.sealed
            )
    _require_sealed(work, prepared)
    return prepared


def _hand_over_to_streams(work: ExecutionContext, state: State, prepared: Prepared) -> None:
    """Give copies what queries rely on in their old shards.

    A table that takes dead letters knows which batches it has, and one that a sink reads only
    grows, from the copy's first day.
    """
    if not state.streams:
        return
    read = work.streams.append_only(state)
    for shard in prepared.shards.values():
        if shard.source is None:
            continue
        # whose the rows were: a table that comes back has an id that no query knows yet
        item_id = state.shards[shard.source].item_id
        old, new = work.absolute(shard.source), work.absolute(shard.path)
        work.retrying(work.streams.replaced, state, item_id, old, new)
        if item_id not in read:
            continue
        spec = shard_spec(shard.target.definition, work.absolute(shard.path))
        kept = replace(spec, properties={**spec.properties, "delta.appendOnly": "true"})
        work.retrying(work.engine.evolve, kept.path, kept.columns, kept)


def _verify_empty(
    work: ExecutionContext, state: State, migration: Migration, prepared: Prepared
) -> None:
    """A table whose drop needed no approval because it was empty must still be, now sealed.

    The rows of a derived table are the application's to make again: they never need one.
    """
    approved = {name.lower() for name in migration.plan.approved}
    for path, name in left_behind(state, migration).items():
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
    work: ExecutionContext, state: State, migration: Migration, choice: ReshapeDecision
) -> list[NewShard]:
    shards = []
    sizes = {
        change.item_id: TableSize(change.rows, change.bytes) for change in migration.plan.changes
        if change.rows is not None and change.bytes is not None
    }
    for target in migration.targets:
        copied = target.contents == "copy" or target.identity in choice.copied
        if target.definition.kind != "table" or (
            target.contents in {"keep", "evolve"} and not copied
        ):
            continue
        if target.action is None:
            continue
        path = shard_path(target.definition.schema, target.definition.name, work.token())
        source = None
        if copied:
            standing = state.items.get(target.item_id)
            source = target.segments[-1].path if standing is None else standing.shard
        shards.append(NewShard(
            target, path, source, unfilled=_never_filled(state, target),
            size=sizes.get(target.item_id) if copied else None,
        ))
    return shards


def _never_filled(state: State, target: Target) -> bool:
    """Whether a derived table comes back from a shard that its application had not filled yet."""
    return target.definition.is_derived and any(
        segment.path in state.shards and state.shards[segment.path].unfilled
        for segment in target.segments
    )


def _retiring(
    state: State, migration: Migration, shards: list[NewShard]
) -> dict[str, NewShard | None]:
    """Old shards that the commit will retire, with the copy (if any) that follows them."""
    retiring: dict[str, NewShard | None] = {
        shard.source: shard for shard in shards
        # one that comes back from a retired shard has nothing to seal
        if shard.source is not None and state.shards[shard.source].state == "live"
    }
    for path in left_behind(state, migration):
        retiring.setdefault(path, None)
    return retiring


def left_behind(state: State, migration: Migration) -> dict[str, str]:
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


def _declare(work: ExecutionContext, attempt: Attempt, shards: list[NewShard]) -> None:
    """Commit the intent: from here on a crash leaves only what it names."""
    work.journal.paths.extend(shard.path for shard in shards)
    record = IntentRecord(
        epoch=work.epoch,
        plan_hash=attempt.plan_hash,
        release=attempt.release,
        paths=tuple(shard.path for shard in shards),
    )
    building = (
        Put("shard", shard.path, ShardRecord(
            item_id=shard.target.item_id, global_id=shard.target.global_id, state="building",
            source=shard.source,
        ))
        for shard in shards
    )
    updates = (Put("intent", str(work.epoch), record), *building)
    commit(work.log, Commit("intent", updates, (work.held,)))


def _build(
    work: ExecutionContext, state: State, shards: list[NewShard], prepared: Prepared,
    populate: Populate | None,
) -> None:
    def create(shard: NewShard) -> None:
        definition = shard.target.definition
        marks = marks_of(state, shard.target.item_id, definition, shard.source)
        work.engine.create_shard(shard_spec(definition, work.absolute(shard.path), marks))

    work.all(shards, create, phase="build", operations=[*map(_building, shards)])
    for shard in shards:
        prepared.shards[shard.target.identity] = shard
    copies = [shard for shard in shards if shard.source is not None]
    progress = CopyProgress(work, copies)
    with progress.watch():
        copied = replace_context(work, on_progress=progress.report).all(
            copies, progress.copy, phase=PHASE,
            operations=[_on("copy", shard) for shard in copies],
        )
    for shard in copied:
        prepared.shards[shard.target.identity] = shard
    _populate(work, shards, prepared, populate)
    filled = [shard for shard in shards if shard.target.fill is not None]
    for shard in work.all(
        filled, lambda shard: fill_shard(work, state, shard), phase="fill",
        operations=[_on("fill", shard) for shard in filled],
    ):
        prepared.shards[shard.target.identity] = shard


def _populate(
    work: ExecutionContext, shards: list[NewShard], prepared: Prepared, populate: Populate | None
) -> None:
    derived = [shard for shard in shards if _is_populated(shard)]
    for number, shard in enumerate(derived, start=1):
        step = _on("populate", shard)
        if populate is None:
            work.skipped(step, "no populate callback was given")
            prepared.shards[shard.target.identity] = fill(work, shard, None)
        else:
            with work.executing(step):
                prepared.shards[shard.target.identity] = fill(work, shard, populate)
        work.on_progress(
            Progress("populate", number, len(derived), str(shard.target.definition.item_name))
        )


def _is_populated(shard: NewShard) -> bool:
    """Whether its rows are the application's to make."""
    target = shard.target
    return shard.source is None and (target.contents == "derived" or target.definition.is_derived)


def _building(shard: NewShard) -> Step | None:
    """The operation that ends when the shard is there and empty, if any does."""
    if shard.source is not None or shard.target.fill is not None or _is_populated(shard):
        return None
    return _on("build", shard)


def _on(op: Op, shard: NewShard) -> Step:
    key = shard.target.definition.key
    return Step(op, key.kind, str(key), shard.target.item_id)


def fill(work: ExecutionContext, shard: NewShard, populate: Populate | None) -> NewShard:
    """Let the application fill a derived table's shard; without a callback it stays empty."""
    name = str(shard.target.definition.item_name)
    if populate is None:
        return replace(shard, unfilled=True)
    try:
        populate(name, work.absolute(shard.path))
    except CatalogMigrateError:
        raise
    except Exception as error:
        raise PrepareFailed(
            f"populate failed for {name}: {type(error).__name__}: {error}",
            remedy="fix the callback and start again; the old release is still in force",
        ) from error
    work.ensure()
    return replace(shard, version=work.engine.shard_version(work.absolute(shard.path)))


def _seal(
    work: ExecutionContext,
    state: State,
    attempt: Attempt,
    shards: list[NewShard],
    retiring: Mapping[str, NewShard | None],
    prepared: Prepared,
) -> None:
    """Seal every shard that retires or was read, copy the tails, verify the counts.

    A table that is dropped because its rows are gone has nothing to seal.
    """
    pending: dict[str, NewShard | None] = {}
    for path, shard in retiring.items():
        read = any(path == one for made in prepared.shards.values() for one, _ in made.read)
        if shard is not None or read or not _is_gone(work, path):
            pending[path] = shard
        else:
            work.skipped(_sealing(state, path), "its rows are gone")
    for _ in range(SEAL_ATTEMPTS):
        if not pending:
            return
        follows = _declare_seals(work, attempt, shards, list(pending))
        lost: dict[str, NewShard | None] = {}
        for path in list(pending):
            try:
                with work.executing(_sealing(state, path)):
                    work.ensure()
                    sealed = work.engine.seal(
                        work.absolute(path), follows=follows[path], app_id=state.app_id,
                        epoch=work.epoch,
                    )
                    prepared.sealed[path] = sealed
                    shard = pending[path]
                    if shard is not None:
                        current = prepared.shards[shard.target.identity]
                        prepared.shards[shard.target.identity] = copy_tail(work, current, sealed)
            except EngineFailure as error:
                if error.condition != SEAL_CONFLICT:
                    raise
                lost[path] = pending[path]  # its properties are read again: they go back later
        pending = lost
        work.on_progress(
            Progress("seal", len(retiring) - len(pending), len(retiring))
        )
    raise PrepareFailed(
        "others change these tables so often that they could not be sealed: " + ", ".join(pending),
        remedy="pause whoever changes their properties and start again; nothing was changed",
    )


def _sealing(state: State, path: str) -> Step:
    item_id = state.shards[path].item_id
    key = state.items[item_id].definition.key
    return Step("seal", key.kind, str(key), item_id)


def _require_sealed(work: ExecutionContext, prepared: Prepared) -> None:
    """PrepareFailed when a seal is not there any more: rows may have come that were not copied.

    A Spark of somebody else that looked for the seal's version before it was taken renames its own
    commit over it a moment later, on a local file system; and a user may take it off.
    """
    off = [path for path in prepared.sealed if not work.engine.is_sealed(work.absolute(path))]
    if off:
        raise PrepareFailed(
            f"the seal of {', '.join(sorted(off))} was taken off or written over by another writer",
            remedy="start again; nothing was changed, and the old release is still in force",
        )


def _is_gone(work: ExecutionContext, path: str) -> bool:
    """Whether nothing is there; EngineFailure where that cannot be told from here."""
    place = work.absolute(path)
    return work.engine.why_no_shard(place) is not None and work.engine.shard_version(place) is None


class DeclareSeals(msgspec.Struct, frozen=True):
    """Put an attempt's intent with the seals that it is about to make; those of before stay."""

    intent: IntentRecord

    def apply(self, state: State) -> tuple[Edit]:
        """Return the intent."""
        key = str(self.intent.epoch)
        old = state.intents.get(key)
        seals = {seal.path: seal for seal in (*(old.seals if old else ()), *self.intent.seals)}
        return (Put("intent", key, msgspec.structs.replace(
            self.intent, seals=tuple(seals.values())
        )),)


def _declare_seals(
    work: ExecutionContext, attempt: Attempt, shards: list[NewShard], paths: list[str]
) -> dict[str, int]:
    """Record in the intent what each seal will change, before it is made."""
    follows: dict[str, int] = {}
    seals: dict[str, SealedShard] = {}
    for path in paths:
        location = work.absolute(path)
        version = work.engine.shard_version(location)
        if version is None:
            raise PrepareFailed(
                f"the shard {path} is gone",
                remedy="restore the directory and start again",
            )
        follows[path] = version
        seals[path] = SealedShard(
            path=path, follows=version, properties=dict(work.engine.seal_properties(location))
        )

    intent = IntentRecord(
        epoch=work.epoch, plan_hash=attempt.plan_hash, release=attempt.release,
        paths=tuple(shard.path for shard in shards), seals=tuple(seals.values()),
    )
    commit(work.log, Commit("intent", (DeclareSeals(intent),), (work.held,)))
    return follows


__all__ = ["CommitConflict", "NewShard", "Populate", "Prepared", "prepare", "prove", "validate"]
