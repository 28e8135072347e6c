"""The port to the streams that read and write tables.

A migration replaces and removes shards below running queries: it asks here what must stay, and
says what was replaced. The implementation is in :mod:`catalog_migrate.streams.migrations`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from catalog_migrate.catalog.state import State
from catalog_migrate.catalog.transaction import Changes
from catalog_migrate.engine.port import Engine
from catalog_migrate.planner.plan import Migration


class StreamTables(Protocol):
    """What a migration of tables asks of the streams that use them, and what it tells them.

    Items are named by their ids, tables by absolute directories. Nothing is asked of a catalog
    without streams.
    """

    def being_filled(self, state: State) -> Mapping[str, str]:
        """Tables that an operation is writing into now, and the operation: they cannot move."""

    def append_only(self, state: State) -> frozenset[str]:
        """Tables that may only grow, because a started query reads them."""

    def still_read(self, state: State) -> frozenset[str]:
        """Paths of retired shards that a query has still to read: they must be kept."""

    def replaced(self, state: State, item_id: str, old: str, new: str) -> None:
        """The shard of a table was copied from ``old`` (sealed) to ``new``; repeatable."""

    def put_migrated(self, changes: Changes, state: State, migration: Migration) -> None:
        """Put sources and sinks as they are after a migration, into its own commit."""

    def with_streams(
        self, migration: Migration, state: State, statements: Sequence[str]
    ) -> Migration:
        """A migration whose plan says what becomes of connections, sources and sinks.

        Raises what is wrong with the release's ``statements``.
        """

    def bring_in(self, state: State, statements: Sequence[str]) -> BundledChanges:
        """What puts the bundled streams of a release in force."""

    def make_shard(self, state: State, item_id: str, engine: Engine) -> None:
        """Make the shards of a new source, of its dead letters and of its cluster's log."""


class BundledChanges(Protocol):
    """What brings a release's bundled streams in."""

    @property
    def changes(self) -> Changes | None:
        """What is to be committed; None when all is as the release has it."""

    @property
    def created(self) -> tuple[str, ...]:
        """Items that come."""

    @property
    def waiting(self) -> tuple[str, ...]:
        """What an object of the user's is in the way of, in words."""
