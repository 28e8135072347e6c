"""File operations that may be cut off between any two steps without leaving half a file.

On a disk a file is replaced by writing a hidden temporary name in the same directory, fsync,
rename, fsync of the directory. Hidden names that end in ``.tmp`` are litter of crashes; Spark
ignores them too. On an object store it is one conditional PUT, and there is no litter. Everywhere
only those bytes are replaced that were read: a driver that was fenced and wakes up writes nothing
over what its successor wrote.

Hadoop keeps a checksum ``.<name>.crc`` beside every file of a local file system. It goes *before*
the file changes: a file without one is read without a check, one with an old one is refused.

The mark is a file of ours in a checkpoint's root, which Spark tolerates: whose the checkpoint is,
the newest generation of position edits applied, and what the query's sources were, in order,
because Spark tells sources apart by their order only.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from catalog_migrate.errors import CheckpointCorrupt, EditConflict, UnsupportedCheckpoint
from catalog_migrate.store import Store, store_at
from catalog_migrate.store.address import directory_of, is_remote
from catalog_migrate.store.local import LocalStore

Step = Callable[[str], None]
"""Hears of each step before it takes effect; a test ends the process there."""

_HIDDEN_SUFFIX = ".tmp"


def _unheard(_: str) -> None:
    """The listener of production: nobody."""


class Files:
    """The operations on files in a store; a name is relative to the store's address.

    ``on_step`` hears of each step, named by what it does to which file. Without ``durable`` what
    was written may be lost with the machine.
    """

    __slots__ = ("_durable", "_on_step")

    def __init__(self, on_step: Step = _unheard, *, durable: bool = True) -> None:
        self._on_step = on_step
        self._durable = durable

    def store(self, address: str) -> Store:
        """Return the store at a directory, a ``file:`` URI or an address on an object store."""
        if is_remote(address):
            return store_at(address)
        return LocalStore(directory_of(address), self._on_step)

    def replace(self, store: Store, name: str, data: bytes) -> None:
        """Make ``data`` the whole contents of a file, which may be there or not.

        EditConflict where another process replaces it meanwhile.
        """
        self.put(store, name, data, tag_of(store, name))

    def put(self, store: Store, name: str, data: bytes, tag: str | None) -> None:
        """Make ``data`` the whole contents of the file that a tag was read of; None for no file.

        EditConflict, and nothing is written, where it is another one now.
        """
        if is_remote(store.address):
            self._on_step(f"put {_last(name)}")
        else:
            store.make_folder(name.rpartition("/")[0], above=True, durable=self._durable)
            self._remove(store, checksum_of(name))
        if tag is None:
            is_put = store.put_if_absent(name, data, durable=self._durable)
        else:
            is_put = store.put_if_match(name, data, tag, durable=self._durable)
        if not is_put:
            raise EditConflict(
                f"{store.place(name)} is not as it was read: another process has written it since",
                remedy="find out who else works on this checkpoint, then try again",
            )

    def remove(self, store: Store, name: str) -> None:
        """Remove a file and its checksum; one that is not there is fine."""
        if not is_remote(store.address):
            self._remove(store, checksum_of(name))
        self._remove(store, name)

    def _remove(self, store: Store, name: str) -> None:
        if store.exists(name):
            self._on_step(f"remove {_last(name)}")
            store.delete(name, durable=self._durable)

    def remove_tree(self, store: Store, folder: str) -> None:
        """Remove a folder with all that is in it; one that is not there is fine."""
        if store.exists(f"{folder}/"):
            self._on_step(f"remove {_last(folder)}")
            store.delete(folder, durable=self._durable)

    def copy_tree(self, source: Store, target: Store) -> None:
        """Put a copy of all files of one address at another, which is nobody's yet.

        What another attempt left there is replaced. FileNotFoundError where the owner of the
        original takes a file away meanwhile.
        """
        target.delete()
        contents = source.read_all(name for name in source.tree() if not is_litter(name))
        self._on_step(f"copy {source.address}")
        target.put_all(contents, durable=self._durable)

    def clear_litter(self, store: Store) -> None:
        """Remove what crashes left directly at an address; an object store has nothing such."""
        if is_remote(store.address) or not store.exists("/"):
            return
        for name in store.names():
            if is_litter(name):
                self._on_step(f"clear {name}")
                store.delete(name)


def tag_of(store: Store, name: str) -> str | None:
    """Return the tag of what is under a name now, None where nothing is."""
    try:
        return store.read_tagged(name)[1]
    except FileNotFoundError:
        return None


def checksum_of(name: str) -> str:
    """The name of the checksum that Hadoop keeps of a file."""
    folder, slash, last = name.rpartition("/")
    return f"{folder}{slash}.{last}.crc"


def is_checksum(name: str) -> bool:
    """Return whether a name is that of a checksum."""
    return _last(name).startswith(".") and name.endswith(".crc")


def is_litter(name: str) -> bool:
    """Whether a name, or a folder in it, is a temporary one, of ours or of Spark's, or the checksum
    of such."""
    return any(
        part.startswith(".") and part.removesuffix(".crc").endswith(_HIDDEN_SUFFIX)
        for part in name.split("/")
    )


def _last(name: str) -> str:
    return name.rpartition("/")[2]


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
    """Return the mark in a checkpoint's root, None without one.

    Raises :class:`CheckpointCorrupt`, and :class:`UnsupportedCheckpoint` for one of a newer tool.
    """
    return read_tagged_mark(store)[0]


def read_tagged_mark(store: Store) -> tuple[Mark | None, str | None]:
    """Return the mark, and the tag to replace it by; errors as in :func:`read_mark`."""
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
