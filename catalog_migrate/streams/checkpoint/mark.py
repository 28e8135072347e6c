"""Whose a checkpoint is, and which position edit it has: a file of ours in its root.

Spark tolerates the file. It says the item, the newest generation of position edits applied, and
what the query's sources were, in order, because Spark tells sources apart by their order only.
"""

from __future__ import annotations

import msgspec

from catalog_migrate.store import Store
from catalog_migrate.streams.checkpoint.errors import CheckpointCorrupt, UnsupportedCheckpoint
from catalog_migrate.streams.checkpoint.files import Files

MARK_NAME = "catalog_migrate.json"
_FORMAT = 1


class Mark(msgspec.Struct, frozen=True):
    """``item`` id, applied ``generation`` (0: none yet), ``sources`` as the owner describes them.

    A description is any text that changes when another stream stands in that place; an item id and
    the role of an input, say. None means that nobody has described them yet.
    """

    item: str
    generation: int = 0
    sources: tuple[str, ...] | None = None
    format: int = _FORMAT


class _Head(msgspec.Struct):
    format: int


def read_mark(store: Store) -> Mark | None:
    """The mark in a checkpoint's root, None without one.

    Raises :class:`CheckpointCorrupt`, and :class:`UnsupportedCheckpoint` for one of a newer tool.
    """
    return read_tagged_mark(store)[0]


def read_tagged_mark(store: Store) -> tuple[Mark | None, str | None]:
    """The mark, and the tag to replace it by; errors as in :func:`read_mark`."""
    file = store.place(MARK_NAME)
    try:
        data, tag = store.read_tagged(MARK_NAME)
    except FileNotFoundError:
        return None, None
    try:
        written = msgspec.json.decode(data, type=_Head).format
        if written > _FORMAT:
            raise UnsupportedCheckpoint(
                f"{file} is of format {written}, known is {_FORMAT}",
                remedy="use the newer version of this tool that wrote it",
            )
        return msgspec.json.decode(data, type=Mark), tag
    except msgspec.MsgspecError as error:
        raise CheckpointCorrupt(
            f"{file} is not our mark ({error}): found {data[:80]!r}",
            file=file,
            found=repr(data[:80]),
            remedy="make sure that the checkpoint is this item's, then remove the file",
        ) from error


def write_mark(files: Files, store: Store, mark: Mark, tag: str | None = None) -> None:
    """Put a mark in the place of the one that ``tag`` was read with, None for the first one.

    It is durable when this returns. Raises :class:`EditConflict` where another one is there.
    """
    files.put(store, MARK_NAME, msgspec.json.encode(mark), tag)
