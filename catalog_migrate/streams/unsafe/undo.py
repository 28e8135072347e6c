"""Taking an unsafe operation back: an operation of its own, from the images of before.

No directory is restored: the present last two entries are edited, so that batch ids go on.
"""

from __future__ import annotations

import msgspec

from catalog_migrate.catalog.errors import CommitConflict
from catalog_migrate.catalog.operation_kinds import BACKFILLING, UNSAFE
from catalog_migrate.catalog.records import OperationRecord
from catalog_migrate.catalog.state import State
from catalog_migrate.streams import dependencies
from catalog_migrate.streams.checkpoint.codecs import DeltaCodec, KafkaCodec, PostgresCodec
from catalog_migrate.streams.errors import UnsafeBlocked
from catalog_migrate.streams.operation_records import Image, images_in
from catalog_migrate.streams.unsafe.forecast import split_of
from catalog_migrate.streams.unsafe.requests import Part, Request, bound_hash, request_in
from catalog_migrate.streams.unsafe.restore import readers


def operation_row(state: State, key: str) -> OperationRecord:
    """The row of an unsafe operation; :class:`UnsafeBlocked` with the newest keys."""
    row = state.operations.get(key)
    if row is None or row.kind != UNSAFE:
        known = sorted(each for each, row in state.operations.items() if row.kind == UNSAFE)
        raise UnsafeBlocked(
            f"there is no unsafe operation {key}",
            remedy=f"the newest: {', '.join(known[-3:]) or 'none'}",
        )
    return row


def undo_request(state: State, key: str, *, restore_table: bool = False) -> Request:
    """The request that puts back what an operation changed.

    With ``restore_table`` the source's table too: to its version after the operation's stop, with
    the positions of that moment, and the sinks below go on after that. Raises
    :class:`UnsafeBlocked` when it changed nothing, :class:`CommitConflict` when somebody has
    changed definition or positions since.
    """
    row = operation_row(state, key)
    images = images_in(row)
    if row.state == BACKFILLING:
        raise UnsafeBlocked(
            f"operation {key} is reading what it skipped ({row.detail.get('phase', 'not begun')})",
            remedy="wait until it is done (SHOW OPERATIONS), then undo it",
        )
    if row.state != "done" or not images:
        raise UnsafeBlocked(
            f"operation {key} is {row.state}: there is nothing to take back",
            remedy="only an operation that is done can be undone",
        )
    done = {part.item_id: part for part in request_in(row).parts}
    own = tuple(image for image in images if not image.past)
    if restore_table and any(part.is_postgres for part in done.values()):
        raise UnsafeBlocked(
            f"operation {key} is on a POSTGRES source, which writes a table for each one upstream:"
            " --restore-table does not take several back as one",
            remedy="undo without --restore-table, which puts the position back; RESET SPLITS "
            "brings mirrors to what is upstream",
        )
    parts = tuple(
        _part(state, key, done[image.item_id], image, restore=restore_table) for image in own
    )
    if restore_table:
        parts += _dependent_sinks(state, key, parts, own)
    return Request(
        parts, policy="error", accept_new_topic=True, undoes=key,
        topics={
            image.item_id: image.topics for image in own
            if image.topics and (image.target or restore_table)
        },
    )


def _names(parts: tuple[Part, ...]) -> str:
    listed = [f"{each.before.kind} {each.before.item_name}" for each in parts]
    return ", ".join(listed[:3]) + (f" and {len(listed) - 3} more" if len(listed) > 3 else "")


def _dependent_sinks(
    state: State, key: str, parts: tuple[Part, ...], images: tuple[Image, ...]
) -> tuple[Part, ...]:
    """The sinks that read a table which goes back: each is moved past that."""
    image = images[0]
    kinds = {each.before.kind for each in parts}
    if len(parts) > 1 or kinds != {"source"}:
        raise UnsafeBlocked(
            f"operation {key} is on {_names(parts)}: --restore-table takes the table of one "
            "source back, for an operation on that source alone",
            remedy="undo without --restore-table, which puts definitions and positions of all of "
            "them back; rows that came since stay",
        )
    if image.version is None:
        raise UnsafeBlocked(
            "the operation did not write down the version of the table",
            remedy="undo without --restore-table, which puts definition and positions back",
        )
    found = []
    for user in readers(state, image.item_id):
        item, stream = state.items[user], state.streams.get(user)
        found.append(
            Part(
                item_id=user, generation=stream.generation if stream is not None else 0,
                bound=bound_hash(item.definition), before=item.definition, after=item.definition,
                links_before=dict(item.links), links_after=dict(item.links), past=image.item_id,
            )
        )
    return tuple(found)


def _part(state: State, key: str, done: Part, image: Image, *, restore: bool) -> Part:
    item = state.items.get(image.item_id)
    if item is None:
        raise CommitConflict(
            f"{done.before.item_name} was dropped meanwhile", remedy="nothing is left to undo"
        )
    stream = state.streams.get(image.item_id)
    generation = stream.generation if stream is not None else 0
    if item.definition.external != done.after.external or generation != image.generation:
        raise CommitConflict(
            f"{item.definition.item_name} was changed again since operation {key}",
            remedy="undo the later operation first, or inject the positions that are wanted",
        )
    before = msgspec.structs.replace(item.definition, external=image.definition.external)
    part = Part(
        item_id=image.item_id, generation=generation, bound=bound_hash(item.definition),
        before=item.definition, after=before, links_before=dict(item.links),
        links_after=dict(image.links),
        restore=image.version if restore else None, shard=image.shard,
    )
    if not image.target and not restore:
        return part
    connector = dependencies.external_of(item).connector
    if item.definition.kind == "sink":
        position = DeltaCodec().read(image.line)
        return msgspec.structs.replace(part, version=0 if position is None else position.version)
    if connector == "POSTGRES":
        standing = PostgresCodec().read(image.line)
        if done.reset is not None or standing is None:
            raise UnsafeBlocked(
                f"{item.definition.item_name} has taken a new snapshot: the slot of before is not "
                "there any more, and rows that went from a mirror are not brought back",
                remedy="nothing is to be done: its tables are what is upstream; among CHANGES the "
                "rows of the snapshot can be left out by their _lsn",
            )
        return msgspec.structs.replace(part, everywhere=str(standing))
    if connector != "KAFKA":
        raise UnsafeBlocked(
            f"{item.definition.item_name} reads files: what was listed anew is not forgotten",
            remedy="nothing is to be done: files that were read twice are in the table twice",
        )
    positions = KafkaCodec().read(image.line)
    if positions is None:
        return msgspec.structs.replace(part, reset=())
    return msgspec.structs.replace(
        part, only=True, origin=image.line,
        targets={split_of(partition): str(offset) for partition, offset in positions.items()},
    )
