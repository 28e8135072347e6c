"""Closes tables in force for writers before a commit, and carries over what came meanwhile."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import msgspec

from catalog_migrate.catalog.commits import Commit, commit
from catalog_migrate.catalog.records import IntentRecord, SealedShard
from catalog_migrate.catalog.state import State
from catalog_migrate.catalog.updates import Edit, Put
from catalog_migrate.errors import EngineFailure, PrepareFailed
from catalog_migrate.migrations.build_tables import Prepared
from catalog_migrate.migrations.copy_rows import copy_tail
from catalog_migrate.migrations.execution_context import AfterCommit, ExecutionContext
from catalog_migrate.model.names import Identity
from catalog_migrate.model.progress import Progress
from catalog_migrate.operations.operation import Operation, execute

SEAL_CONFLICT = "SEAL_CONFLICT"
SEAL_ATTEMPTS = 10
"""How often others may change a table's metadata while it is to be sealed."""


@dataclass(frozen=True)
class SealTable(Operation[ExecutionContext]):
    """Close the shard at ``path``; ``copied`` is the new table that has its rows, if any.

    What the seal changes is declared in the intent before. A seal that was lost to another writer
    is declared again first; that is why it is not simply made again.
    """

    path: str
    prepared: Prepared
    copied: Identity | None = None
    needed: bool = False
    """Whether its rows must be there: a new table has them."""

    TOGETHER: ClassVar = 1
    ONCE: ClassVar = True

    def is_done(self, context: ExecutionContext) -> str:  # noqa: ARG002 - the intent says it
        """Say so of a table that is dropped because its rows are missing."""
        return "" if self.path in self.prepared.seals else "its rows are missing"

    def run(self, context: ExecutionContext) -> None:
        """Seal it, copy what was appended since its rows were copied, and count."""
        context.ensure()
        sealed = context.engine.seal(
            context.absolute(self.path), follows=self.prepared.seals[self.path].follows,
            app_id=self.prepared.state.app_id, epoch=context.epoch,
        )
        self.prepared.sealed[self.path] = sealed
        if self.copied is not None:
            shards = self.prepared.shards
            shards[self.copied] = copy_tail(context, shards[self.copied], sealed)

    def is_hopeless(self, error: Exception) -> bool:
        """Anything but a lost seal."""
        return not (isinstance(error, EngineFailure) and error.condition == SEAL_CONFLICT)


@dataclass(frozen=True)
class UnsealTable(AfterCommit):
    """Open the shard at ``path`` for writers again; ``properties`` take the place of its seal."""

    path: str
    properties: Mapping[str, str | None]
    app_id: str

    def run(self, context: ExecutionContext) -> None:
        """Take the seal off, where it is still ours."""
        context.engine.unseal(
            context.absolute(self.path), self.properties, app_id=self.app_id, epoch=context.epoch
        )


def seal_tables(
    work: ExecutionContext, prepared: Prepared, operations: Sequence[SealTable]
) -> None:
    """Declare the seals and make them; those that are lost to other writers once more."""
    pending = operations
    for _ in range(SEAL_ATTEMPTS):
        if not pending:
            return
        _declare(work, prepared, pending)
        for operation, error in execute(pending, work, keep_going=True):
            if operation.is_hopeless(error):
                raise error
        pending = [
            each for each in pending
            if each.path in prepared.seals and each.path not in prepared.sealed
        ]
        work.on_progress(
            Progress("seal", len(operations) - len(pending), len(operations))
        )
    raise PrepareFailed(
        "others change these tables so often that they could not be sealed: "
        + ", ".join(each.path for each in pending),
        remedy="pause the writers that change their properties and start again; nothing was"
        " changed",
    )


def _declare(
    work: ExecutionContext, prepared: Prepared, operations: Sequence[SealTable]
) -> None:
    """Record in the intent what each seal will change, before it is made."""
    seals: dict[str, SealedShard] = {}
    for each in operations:
        location = work.absolute(each.path)
        version = work.engine.shard_version(location)
        if version is not None:
            properties = dict(work.engine.seal_properties(location))
            seals[each.path] = SealedShard(
                path=each.path, follows=version, properties=properties
            )
        elif each.needed or work.engine.find_shard_problem(location) is None:
            raise PrepareFailed(
                f"the shard {each.path} is missing", remedy="restore the directory and start again"
            )
    prepared.seals |= seals
    if not seals:
        return

    intent = IntentRecord(
        epoch=work.epoch, plan_hash=prepared.plan_hash, release=prepared.release,
        paths=tuple(shard.path for shard in prepared.shards.values()), seals=tuple(seals.values()),
    )
    commit(work.log, Commit("intent", (DeclareSeals(intent),), (work.held,)))


class DeclareSeals(msgspec.Struct, frozen=True):
    """Put an attempt's intent with the seals that it is about to make; earlier ones stay."""

    intent: IntentRecord

    def apply(self, state: State) -> tuple[Edit]:
        """Return the intent."""
        key = str(self.intent.epoch)
        old = state.intents.get(key)
        seals = {seal.path: seal for seal in (*(old.seals if old else ()), *self.intent.seals)}
        return (Put("intent", key, msgspec.structs.replace(
            self.intent, seals=tuple(seals.values())
        )),)


def require_sealed(work: ExecutionContext, prepared: Prepared) -> None:
    """PrepareFailed when a seal is not there any more: rows may have come that were not copied.

    Another process's Spark that looked for the seal's version before it was taken renames its own
    commit over it a moment later, on a local file system; and a user may take it off.
    """
    off = [path for path in prepared.sealed if not work.engine.is_sealed(work.absolute(path))]
    if off:
        raise PrepareFailed(
            f"the seal of {', '.join(sorted(off))} was taken off or written over by another writer",
            remedy="start again; nothing was changed, and the old release is still in force",
        )
