"""Settling an uncommitted entry: what becomes of the batch that was under way.

Its entry says a range; whether its rows arrived, only the sinks know. The batch id is never used
again for another range. The cases (DESIGN, section 9):

    sinks that have it   its sources live          its sources are gone
    all                  Finish: run it once       WriteCommit when stateless, else Refuse
    none                 Remove                    Remove
    some, or unknown     Complete: run it once     Refuse
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import msgspec

from catalog_migrate.streams.checkpoint.codecs import write_object
from catalog_migrate.streams.checkpoint.directory import VERSION, Checkpoint
from catalog_migrate.streams.checkpoint.errors import UnsettledCheckpoint
from catalog_migrate.streams.checkpoint.guards import require_stopped


class Settled(msgspec.Struct, frozen=True):
    """Nothing is uncommitted."""


class Finish(msgspec.Struct, frozen=True):
    """All sinks have ``batch``: run the query with ``trigger(once=True)``, they skip it."""

    batch: int


class WriteCommit(msgspec.Struct, frozen=True):
    """All sinks have ``batch`` and it cannot run again: commit it by hand."""

    batch: int


class Remove(msgspec.Struct, frozen=True):
    """No sink has ``batch``: take its entry away."""

    batch: int


class Complete(msgspec.Struct, frozen=True):
    """``missing`` lack ``batch``, or cannot say: run it with ``trigger(once=True)``."""

    batch: int
    missing: tuple[str, ...]


class Refuse(msgspec.Struct, frozen=True):
    """No way to settle ``batch`` without losing or doubling rows; ``reason`` is for people."""

    batch: int | None
    reason: str


Decision = Settled | Finish | WriteCommit | Remove | Complete | Refuse


def settlement(
    checkpoint: Checkpoint,
    *,
    sinks: Mapping[str, int | None],
    unknown: Collection[str] = (),
    source_alive: bool,
    stateful: bool | None = None,
) -> Decision:
    """What to do with the checkpoint's uncommitted entry; reads only.

    ``sinks`` gives the newest batch that each sink has (a Delta table's transaction, a ledger's
    row; dead letters count as a sink), None for none; ``unknown`` names sinks that cannot say
    (Kafka). ``source_alive`` is whether every source can still serve the entry's range;
    ``stateful`` None asks the checkpoint itself.
    """
    state = checkpoint.state()
    batch = state.batch
    if state.kind == "broken":
        return Refuse(batch, state.reason)
    above = [
        f"{name} has batch {has}"
        for name, has in sorted(sinks.items())
        if has is not None and (batch is None or has > batch)
    ]
    if above:
        newest = "no batch" if batch is None else f"batch {batch}"
        return Refuse(batch, f"{', '.join(above)}, but the checkpoint ends with {newest}")
    if state.kind != "uncommitted" or batch is None:
        return Settled()
    missing = tuple(sorted([name for name, has in sinks.items() if has != batch]))
    silent = tuple(sorted(unknown))
    if not sinks and not silent:
        silent = ("the query's output",)
    if not silent and len(missing) == len(sinks):
        return Remove(batch)
    if not silent and not missing:
        if source_alive:
            return Finish(batch)
        if checkpoint.is_stateful if stateful is None else stateful:
            return Refuse(
                batch,
                f"every sink has batch {batch}, but its source is gone, so that the state after it"
                " cannot be computed",
            )
        return WriteCommit(batch)
    if source_alive:
        return Complete(batch, tuple(sorted(missing + silent)))
    lacking = [f"{name} lacks" for name in missing] + [f"{name} may lack" for name in silent]
    return Refuse(batch, f"{', '.join(lacking)} batch {batch}, and its source is gone")


def write_commit(checkpoint: Checkpoint, batch: int, *, active: Collection[str]) -> None:
    """Commit ``batch`` by hand: every sink has it, the query is stateless. Repeatable.

    Raises :class:`QueryRunning`, :class:`UnsettledCheckpoint` when it is not the uncommitted one.
    """
    require_stopped(checkpoint, active)
    if checkpoint.latest_commits == batch == checkpoint.latest_offsets:
        return
    _require_uncommitted(checkpoint, batch)
    watermark = checkpoint.committed_watermark(batch - 1) if batch > 0 else 0
    content = f"{VERSION}\n{write_object({'nextBatchWatermarkMs': watermark})}"
    checkpoint.files.replace(
        checkpoint.store, checkpoint.commits_file(batch), content.encode()
    )


def remove_entry(checkpoint: Checkpoint, batch: int, *, active: Collection[str]) -> None:
    """Take the uncommitted entry of ``batch`` away, and the state it left. Repeatable.

    Raises :class:`QueryRunning`, :class:`UnsettledCheckpoint` when it is not the uncommitted one.
    """
    require_stopped(checkpoint, active)
    before = batch - 1 if batch > 0 else None
    if checkpoint.latest_offsets == before == checkpoint.latest_commits:
        return
    _require_uncommitted(checkpoint, batch)
    # the state first: a crash in between leaves an entry that can be removed, or run, again
    checkpoint.forget_state_after(before)
    checkpoint.files.remove(checkpoint.store, checkpoint.offsets_file(batch))


def perform(checkpoint: Checkpoint, decision: Decision, *, active: Collection[str]) -> bool:
    """Do the part of a decision that is done on files; whether the checkpoint is settled now.

    False: run the query once (Finish, Complete). Raises :class:`UnsettledCheckpoint` for Refuse.
    """
    match decision:
        case WriteCommit(batch):
            write_commit(checkpoint, batch, active=active)
        case Remove(batch):
            remove_entry(checkpoint, batch, active=active)
        case Refuse(batch, reason):
            raise UnsettledCheckpoint(
                f"the checkpoint {checkpoint.address} cannot be settled: {reason}",
                remedy="bring the source back and start the query, which completes the batch",
                batch=batch,
            )
        case Settled():
            pass
        case _:
            return False
    return True


def _require_uncommitted(checkpoint: Checkpoint, batch: int) -> None:
    state = checkpoint.state()
    if state.kind != "uncommitted" or state.batch != batch:
        raise UnsettledCheckpoint(
            f"batch {batch} is not the uncommitted one of {checkpoint.address}: it is"
            f" {state.kind} at {state.batch}",
            batch=state.batch,
        )
