"""Fills derived tables that an earlier start left empty because it had no populate callback."""

from __future__ import annotations

from catalog_migrate.catalog.commits import Commit
from catalog_migrate.catalog.records import (
    RECONCILE,
    ShardRecord,
    to_reconcile,
)
from catalog_migrate.catalog.state import State
from catalog_migrate.catalog.updates import Delete, Put, RaiseSerial
from catalog_migrate.migrations import cleanup
from catalog_migrate.migrations.build_tables import Populate, Prepared
from catalog_migrate.migrations.commit import ReplaceShard
from catalog_migrate.migrations.execution_context import ExecutionContext, NewShard
from catalog_migrate.migrations.in_place import target_of
from catalog_migrate.migrations.prepare import carry_over
from catalog_migrate.migrations.reconcile import finish_shared
from catalog_migrate.model.paths import shard_path
from catalog_migrate.operations.steps import Step


def refill(work: ExecutionContext, state: State, populate: Populate) -> State:
    """Fill each unfilled table into a *new* shard and put those in force in one commit.

    Each attempt uses shards of its own, so that a callback killed half-way leaves no rows behind.
    """
    pending = [
        (item_id, item) for item_id, item in sorted(state.items.items())
        if item.shard is not None and state.shards[item.shard].unfilled
    ]
    shards = [
        NewShard(
            target_of(state, item_id),
            shard_path(item.definition.schema, item.definition.name, work.token()),
        )
        for item_id, item in pending
    ]
    steps = tuple(
        Step("populate", item.definition.kind, str(item.definition.key), item_id)
        for item_id, item in pending
    )
    work.journal.steps += steps
    prepared = Prepared(
        state, "", "refill", steps, replaced={item_id: item.shard for item_id, item in pending}
    )
    try:
        carry_over(work, prepared, steps, shards, populate=populate)
    except Exception:
        cleanup.abandon(work)
        raise
    now = int(work.clock.wall())

    filled = (
        ReplaceShard(shard.path, ShardRecord(
            item_id=shard.target.item_id, global_id=shard.target.global_id, state="live",
            version=shard.version,
        ), now)
        for shard in prepared.shards.values()
    )
    register = to_reconcile(f"register {len(pending)} filled table(s)")
    state = work.commit(Commit("refill", (
        RaiseSerial(), *filled, Delete("intent", str(work.epoch)),
        Put("operation", RECONCILE, register),
    )))
    return finish_shared(work, state)
