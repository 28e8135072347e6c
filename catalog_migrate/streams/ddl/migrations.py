"""What streams answer, and what they do, when the tables that they use are migrated.

Implements :class:`catalog_migrate.migrations.execution_context.StreamTables`. Whatever it needs is
imported when it is asked: a start without streams loads nothing of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from catalog_migrate.catalog.state import State
    from catalog_migrate.engine.port import Engine
    from catalog_migrate.planner.plan import Migration
    from catalog_migrate.streams.catalog.statement_changes import FollowTables
    from catalog_migrate.streams.ddl.bundled_streams import BundledStreamsPlan


class MigratedStreams:
    """The port's implementation, of the streams in the catalog's records."""

    def being_filled(self, state: State) -> Mapping[str, str]:
        """Tables that take the dead letters of what a backfill reads."""
        from catalog_migrate.streams.catalog.operation_records import dead_letter_tables

        return dead_letter_tables(state)

    def append_only(self, state: State) -> frozenset[str]:
        """Tables that a started sink reads, unless its ON CHANGE is skip."""
        from catalog_migrate.streams.catalog.dependencies import must_only_grow

        return must_only_grow(state, state.streams)

    def still_read(self, state: State) -> frozenset[str]:
        """Shards that a sink has not drained."""
        from catalog_migrate.streams.runtime.shard_handover import still_read

        return still_read(state)

    def follow_copy(self, state: State, item_id: str, old: str, new: str) -> None:
        """The copy of a table that a source writes beside its own knows which batches it has."""
        from catalog_migrate.streams.runtime.shard_handover import carry_transactions

        carry_transactions(state, item_id, old, new)

    def follow(self, migration: Migration) -> FollowTables:
        """KEY and ORDER BY follow renamed columns; what lost its table is quarantined."""
        from catalog_migrate.streams.catalog.statement_changes import FollowTables

        return FollowTables(migration)

    def with_streams(
        self, migration: Migration, state: State, statements: Sequence[str]
    ) -> Migration:
        """The migration with the plan of its bundled streams, and what schema registries say."""
        from catalog_migrate.streams.ddl.bundled_streams import with_bundled_streams

        migration = with_bundled_streams(migration, state, statements)
        if not migration.plan.changes or not state.has_registries:
            return migration
        from catalog_migrate.planner.plan_validation import with_sinks_asked
        from catalog_migrate.streams.upstreams.schemas import migrated_sinks

        return with_sinks_asked(migration, [
            (each.name, str(each), each.remedy if each.ok is False and each.bundled else None)
            for each in migrated_sinks(state, migration)
        ])

    def bring_in(self, state: State, statements: Sequence[str]) -> BundledStreamsPlan:
        """Return the changes of the bundled streams."""
        from catalog_migrate.streams.ddl.bundled_streams import plan_bundled_streams

        return plan_bundled_streams(state, statements)

    def make_shard(self, state: State, item_id: str, engine: Engine) -> None:
        """Through the start's engine."""
        from catalog_migrate.streams.catalog.tables import ShardMaker

        ShardMaker(engine.create_shard, engine.shard_version).ensure(state, item_id)
