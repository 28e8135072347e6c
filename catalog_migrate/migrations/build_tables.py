"""Makes the directories of tables that a commit is to put in force.

Each is of one attempt alone, so that what an earlier try left in it may go. How its rows come is in
``copy_rows`` and ``fill_tables``, or the application's to know.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import ClassVar

from msgspec.structs import replace

from catalog_migrate.catalog.marks import marks_of
from catalog_migrate.catalog.records import SealedShard
from catalog_migrate.catalog.state import State
from catalog_migrate.errors import CatalogMigrateError, PrepareFailed
from catalog_migrate.migrations.actions import shard_spec
from catalog_migrate.migrations.execution_context import ExecutionContext, NewShard
from catalog_migrate.model.layout import Shape
from catalog_migrate.model.names import Identity
from catalog_migrate.operations.operation import Operation
from catalog_migrate.operations.steps import Step

Populate = Callable[[str, str], None]
"""``populate(table_name, target_path)``: fill a derived table's new shard."""


@dataclass(slots=True)
class Prepared:
    """What one attempt makes beside ``state``, for its commit.

    ``plan_hash`` and ``release`` are what its intent says of why it is there. ``shards`` are new,
    by identity; ``seals`` by path as they were declared, ``sealed`` by path at which version they
    were made; ``unsealing`` are shards that stay in force and were sealed for a new table to be
    filled. ``replaced`` are shards whose place new ones take without their rows, by item id.
    ``shapes`` are what becomes of tables in place, ``steps`` the program that is executed.
    """

    state: State
    plan_hash: str
    release: str
    steps: tuple[Step, ...]
    shapes: dict[Identity, Shape] = field(default_factory=dict)
    shards: dict[Identity, NewShard] = field(default_factory=dict)
    seals: dict[str, SealedShard] = field(default_factory=dict)
    sealed: dict[str, int] = field(default_factory=dict)
    unsealing: frozenset[str] = frozenset()
    replaced: dict[str, str | None] = field(default_factory=dict)

    @property
    def rows(self) -> int:
        """Rows that were copied."""
        return sum(shard.rows for shard in self.shards.values())


@dataclass(frozen=True)
class BuildTable(Operation[ExecutionContext]):
    """Make the directory of a table, and put into ``prepared`` what it is then."""

    shard: NewShard
    prepared: Prepared
    created: Callable[[NewShard], None]

    ONCE: ClassVar = True

    def run(self, context: ExecutionContext) -> str | None:
        """Make the directory, then the rows: each again where it failed for what may pass.

        The directory is only made where nothing is, rows are put in place of those that landed.
        """
        context.retrying(self.create, context)
        self.created(self.shard)
        made = context.retrying(self.bring_rows, context)
        self.prepared.shards[self.shard.target.identity] = made
        return None

    def create(self, context: ExecutionContext) -> None:
        """Make the directory, empty."""
        target = self.shard.target
        marks = marks_of(
            self.prepared.state, target.item_id, target.definition,
            self.shard.source or self.prepared.replaced.get(target.item_id),
        )
        context.engine.create_shard(
            shard_spec(target.definition, context.absolute(self.shard.path), marks)
        )

    def bring_rows(self, context: ExecutionContext) -> NewShard:  # noqa: ARG002 - for those with rows
        """Return what the directory is once its rows are there."""
        return self.shard


@dataclass(frozen=True)
class PopulateTable(BuildTable):
    """Let the application fill a derived table; without a callback it stays empty."""

    populate: Populate | None = None

    TOGETHER: ClassVar = 1

    def run(self, context: ExecutionContext) -> str | None:
        """Make the directory, and call the application once."""
        context.retrying(self.create, context)
        self.created(self.shard)
        self.prepared.shards[self.shard.target.identity] = self.bring_rows(context)
        return None if self.populate else "no populate callback was given"

    def bring_rows(self, context: ExecutionContext) -> NewShard:
        """Call the application back."""
        if self.populate is None:
            return replace(self.shard, unfilled=True)
        location = context.absolute(self.shard.path)
        try:
            self.populate(str(self.shard), location)
        except CatalogMigrateError:
            raise
        except Exception as error:
            raise PrepareFailed(
                f"populate failed for {self.shard}: {type(error).__name__}: {error}",
                remedy="fix the callback and start again; the old release is still in force",
            ) from error
        context.ensure()
        return replace(self.shard, version=context.engine.shard_version(location))
