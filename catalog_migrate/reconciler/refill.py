"""Fills derived tables that an earlier start left empty because it had no populate callback."""

from __future__ import annotations

from catalog_migrate.catalog.commits import Commit, commit
from catalog_migrate.catalog.marks import marks_of
from catalog_migrate.catalog.records import (
    RECONCILE,
    IntentRecord,
    ShardRecord,
    to_reconcile,
)
from catalog_migrate.catalog.state import State
from catalog_migrate.catalog.updates import Delete, Put, RaiseSerial
from catalog_migrate.errors import PrepareFailed
from catalog_migrate.model.paths import shard_path
from catalog_migrate.program.steps import Step
from catalog_migrate.reconciler import cleanup
from catalog_migrate.reconciler.actions import shard_spec
from catalog_migrate.reconciler.build_tables import Populate
from catalog_migrate.reconciler.commit import ReplaceShard
from catalog_migrate.reconciler.execution_context import ExecutionContext, Progress
from catalog_migrate.reconciler.reconcile import finish_shared


def unfilled(state: State) -> tuple[str, ...]:
    """Names of the living derived tables that nobody has populated yet, sorted."""
    if not any('"unfilled":' in text for text in state.raw.get("shard", {}).values()):
        return ()  # and no item is decoded
    return tuple(
        sorted(
            str(item.definition.item_name)
            for item in state.items.values()
            if item.shard is not None
            and state.shards[item.shard].unfilled
        )
    )


def refill(work: ExecutionContext, state: State, populate: Populate) -> State:
    """Fill each unfilled table into a *new* shard and put those in force in one commit.

    Each attempt uses shards of its own, so that a callback killed half-way leaves no rows behind.
    """
    pending = [
        (item_id, item) for item_id, item in sorted(state.items.items())
        if item.shard is not None and state.shards[item.shard].unfilled
    ]
    paths = {
        item_id: shard_path(item.definition.schema, item.definition.name, work.token())
        for item_id, item in pending
    }

    work.journal.paths.extend(paths.values())
    work.journal.steps += [
        Step("populate", item.definition.kind, str(item.definition.key), item_id)
        for item_id, item in pending
    ]

    intent = IntentRecord(
        epoch=work.epoch, plan_hash="", release="refill", paths=tuple(paths.values())
    )
    building = (
        Put("shard", paths[item_id], ShardRecord(
            item_id=item_id, global_id=item.global_id, state="building"
        ))
        for item_id, item in pending
    )
    updates = (Put("intent", str(work.epoch), intent), *building)
    commit(work.log, Commit("intent", updates, (work.held,)))
    versions: dict[str, int | None] = {}
    try:
        for number, (item_id, item) in enumerate(pending, start=1):
            location = work.absolute(paths[item_id])
            name = str(item.definition.item_name)
            marks = marks_of(state, item_id, item.definition, item.shard)
            key = item.definition.key
            with work.executing(Step("populate", key.kind, str(key), item_id)):
                work.engine.create_shard(shard_spec(item.definition, location, marks))
                populate(name, location)
            work.ensure()
            versions[item_id] = work.engine.shard_version(location)
            work.on_progress(Progress("populate", number, len(pending), name))
    except Exception as error:
        cleanup.abandon(work)
        raise PrepareFailed(
            f"populate failed: {type(error).__name__}: {error}",
            remedy="fix the callback and start again; the tables stay as they were",
        ) from error
    now = int(work.clock.wall())

    filled = (
        ReplaceShard(paths[item_id], ShardRecord(
            item_id=item_id, global_id=item.global_id, state="live", version=versions[item_id]
        ), now)
        for item_id, item in pending
    )
    register = to_reconcile(f"register {len(pending)} filled table(s)")
    with work.journal.unlogged() as executed:
        state = commit(work.log, Commit(
            "refill",
            (
                RaiseSerial(), *filled, Delete("intent", str(work.epoch)),
                Put("operation", RECONCILE, register),
            ),
            (work.held,), executed=tuple(executed),
        ))
    return finish_shared(work, state)
