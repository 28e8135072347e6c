"""The first stages: what is in force is read, and what is to come is planned from it.

The plan that people are shown and the one that a start carries out are made by the same function.
It needs no Spark: what it asks of shards is answered by an engine, or by their own logs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from catalog_migrate.errors import UnsupportedTable
from catalog_migrate.model.paths import shard_location
from catalog_migrate.model.sizes import Copied, TableSize, estimate_seconds
from catalog_migrate.planner.assembly import in_force
from catalog_migrate.planner.baseline import Baseline
from catalog_migrate.planner.missing_data import missing_data
from catalog_migrate.planner.plan_validation import with_missing_data, with_unsupported_tables
from catalog_migrate.planner.unsupported_tables import find_unsupported_tables

if TYPE_CHECKING:
    from catalog_migrate.catalog.log import CatalogLog
    from catalog_migrate.catalog.records import Owner
    from catalog_migrate.catalog.state import State
    from catalog_migrate.delta.shard_logs import ShardLogs
    from catalog_migrate.engine.port import Engine
    from catalog_migrate.migrations.execution_context import StreamTables
    from catalog_migrate.migrations.options import BootstrapOptions
    from catalog_migrate.migrations.rollback import Past
    from catalog_migrate.planner.plan import Migration
    from catalog_migrate.planner.planning import Sizes
    from catalog_migrate.release.release import Release


class ReleaseToApply(msgspec.Struct, frozen=True):
    """A release that is to come into force: the software's, or our own built-ins beside it.

    ``past`` is what an earlier serial had, where the release is that one's.
    """

    release: Release
    owner: Owner = "release"
    past: Past | None = None

    @property
    def bundled(self) -> tuple[str, ...] | None:
        """The streams that come with it, as statements; None leaves what was bundled as it is."""
        if self.owner != "release" or self.past is not None:
            return None
        return self.release.statements

    def is_in_force(self, state: State) -> bool:
        """Return whether this very release is the one on record."""
        standing = state.release_in_force(self.owner)
        return standing is not None and (standing.name, standing.manifest_hash) == (
            self.release.name, self.release.manifest_hash
        )


def going_back_to(
    log: CatalogLog, to: int | None, options: BootstrapOptions
) -> tuple[ReleaseToApply, BootstrapOptions]:
    """What the catalog had at serial ``to`` (None: before the newest migration), and how it may be.

    Raises as :func:`~catalog_migrate.migrations.rollback.read_past`.
    """
    from catalog_migrate.migrations.rollback import going_back_by, read_past

    past = read_past(log, to, options.plan)
    return ReleaseToApply(past.release, past=past), msgspec.structs.replace(
        options, policy=going_back_by(options.policy)
    )


NEWEST = 20
"""How many of the last copies an estimate is made from."""


def last_copies(state: State) -> Sequence[Copied]:
    """Return the newest copies on record, by the numbers of the shapes that they were made for."""
    copied = sorted(
        (int(shard.global_id[1:]), shard.copied_bytes, shard.copy_seconds)
        for shard in state.shards.values() if shard.copied_bytes and shard.copy_seconds
    )
    return [Copied(size, seconds) for _, size, seconds in copied[-NEWEST:]]


class PlanningInputs(msgspec.Struct, frozen=True):
    """What planning looks at beside the state: history, shards, and the streams that use them.

    ``streams`` None: those in the catalog's records.
    """

    log: CatalogLog
    shards: Engine | ShardLogs
    streams: StreamTables | None = None

    def sizes(self, state: State) -> Sizes:
        """Return what each table has, and what a copy takes by the last ones of this catalog.

        The records of shards are looked through once, when the first size is asked for.
        """
        copies: Sequence[Copied] | None = None

        def size(item_id: str) -> TableSize | None:
            nonlocal copies
            found = self._size(state, item_id)
            if found is None:
                return None
            if copies is None:
                copies = last_copies(state)
            seconds = estimate_seconds(found.bytes, copies) if copies else None
            return found._replace(seconds=seconds)

        return size

    def _size(self, state: State, item_id: str) -> TableSize | None:
        item = state.items.get(item_id)
        if item is None or item.shard is None:
            return None
        path = shard_location(state.setting("warehouse"), item.shard)
        if self.shards.find_shard_problem(path) is not None:
            return None
        try:
            found = self.shards.shard_size(path)
        except UnsupportedTable:
            return None
        return None if found.rows < 0 else found

    def count_appended(self, path: str, after: int, upto: int | None = None) -> int | None:
        """As :meth:`~catalog_migrate.engine.port.Engine.count_appended`; -1 for what is not
        supported.
        """
        try:
            return self.shards.count_appended(path, after, upto)
        except UnsupportedTable:
            return -1


def plan_release(
    part: ReleaseToApply, state: State, inputs: PlanningInputs, options: BootstrapOptions
) -> Migration:
    """The migration from ``state`` to ``part``, blocked where rows of tables in force are gone.

    And where a table that it changes has a Delta feature under which it cannot be.

    Raises DependencyCycle, UsageError for an approval that is no name, and what is wrong with the
    statements that the release bundles.
    """
    if part.past is not None:
        from catalog_migrate.migrations.rollback import plan_rollback

        warehouse = state.setting("warehouse")
        migration = plan_rollback(
            inputs.log, part.past, state,
            grown=lambda path, *versions: inputs.count_appended(
                shard_location(warehouse, path), *versions
            ),
            sizes=inputs.sizes(state), approve=options.approvals, policy=options.policy,
        )
    else:
        migration = _release_planned(part, state, inputs, options)
    if part.owner != "release":
        return migration
    touched = {target.item_id for target in migration.targets if target.action is not None}
    migration = with_unsupported_tables(
        migration, tuple(find_unsupported_tables(migration.plan, state, inputs.shards.unsupported))
    )
    missing = missing_data(state, inputs.shards.find_shard_problem, touched)
    return with_missing_data(migration, missing)


def _release_planned(
    part: ReleaseToApply, state: State, inputs: PlanningInputs, options: BootstrapOptions
) -> Migration:
    release, owner, approve, uri = part.release, part.owner, options.approvals, inputs.log.uri
    known = None if approve else in_force(
        state, release.name, release.manifest_hash, len(release.objects), owner=owner,
        uri=uri,
    )
    if known is not None:
        return known
    from catalog_migrate.planner.planning import plan_migration

    migration = plan_migration(
        Baseline.from_state(state, owner=owner, uri=uri), release,
        approve=approve, sizes=inputs.sizes(state),
        policy=options.policy if owner == "release" else None,
    )
    if owner != "release" or not (release.statements or state.has_streams):
        return migration
    from catalog_migrate.streams.ddl.migrations import MigratedStreams

    return (inputs.streams or MigratedStreams()).with_streams(migration, state, release.statements)


def plan_from_baseline(
    baseline: Baseline, release: Release, options: BootstrapOptions
) -> Migration:
    """Return the migration from what is no catalog's: from nothing, or from another release."""
    from catalog_migrate.planner.planning import plan_migration

    return plan_migration(baseline, release, approve=options.approvals, policy=options.policy)
