"""What lies at an address: bytes by name, on a local disk or an object store.

No module here knows what the bytes mean: Delta's log is read and written by
:mod:`catalog_migrate.delta`. A store that is remembered is asked the same thing once, for whoever
alone works at an address for a while.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol, TypeVar

from catalog_migrate.errors import CatalogMigrateError
from catalog_migrate.store.address import Storage, is_remote, local_path, storage_of


class Store(Protocol):
    """Bytes by name below one address; a name is relative and has ``/`` between its parts.

    OSError where a local disk refuses, StoreFailure where an object store does; what is not there
    is FileNotFoundError for both. What is put on a condition is told from what others put by its
    bytes: an object store may have taken them although its answer was lost, so bytes that two
    processes could put alike need something in them that is one's own.
    """

    @property
    def address(self) -> str:
        """The address that names are relative to."""
        ...

    def place(self, name: str) -> str:
        """Return the whole address of a name, for messages."""
        ...

    def read(self, name: str) -> bytes:
        """Return all bytes under a name."""
        ...

    def read_tagged(self, name: str) -> tuple[bytes, str]:
        """All bytes under a name, and the tag (an ETag) that :meth:`put_if_match` asks for."""
        ...

    def size(self, name: str) -> int:
        """Return how many bytes are under a name."""
        ...

    def exists(self, name: str) -> bool:
        """Return whether anything is there; a name that ends with ``/`` asks for a folder."""
        ...

    def names(self, folder: str = "", after: str = "") -> Iterable[str]:
        """The names directly in a folder, without its own; in no order, those ``after`` one alone.
        """
        ...

    def sizes(self, folder: str) -> Mapping[str, int]:
        """How many bytes are under each name directly in a folder that is no folder itself."""
        ...

    def tree(self, folder: str = "") -> Iterable[str]:
        """Return the names of all files in a folder and those below it, relative to the address.

        None where there is no such folder. Hadoop marks a folder in an object store by an object
        without bytes, so that such ones are left out there.
        """
        ...

    def read_all(self, names: Iterable[str]) -> Mapping[str, bytes]:
        """Return all bytes under each of many names, side by side where a store lets one wait."""
        ...

    def folders(self, folder: str = "") -> Iterable[str]:
        """Return those of the names directly in a folder that are folders; links are none."""
        ...

    def put_if_absent(self, name: str, data: bytes, *, durable: bool = True) -> bool:
        """Put all bytes under a name where nothing is; False where something is, which stays.

        With ``durable`` they are there after a power failure too. A local folder must be there.
        """
        ...

    def put_if_match(self, name: str, data: bytes, tag: str, *, durable: bool = True) -> bool:
        """Put all bytes in place of those that a tag was read with; False where they went."""
        ...

    def put_all(self, contents: Mapping[str, bytes], *, durable: bool = True) -> None:
        """Put many at an address that is nobody else's, on no condition and with their folders."""
        ...

    def make_folder(
        self, name: str = "", *, above: bool = False, durable: bool = False
    ) -> None:
        """Make a folder, where a store has any; with ``above`` those that it lies in too, and then
        it may be there."""
        ...

    def remove_folder(self, name: str) -> None:
        """Remove an empty folder, where a store has any; an error where something is in it."""
        ...

    def move(self, name: str, to: str) -> None:
        """Give a file or folder another name, whole and at once; no object store can."""
        ...

    def delete(self, name: str = "", *, durable: bool = False) -> None:
        """Delete what is under a name, or all below the address; a link and not what it names."""
        ...


def store_at(address: str, storage: Storage | None = None) -> Store:
    """Return the store at an address; nothing is read or written yet.

    ``storage`` are its options; without them, those that were given for that place
    (:func:`~catalog_migrate.store.address.remember`). PrerequisiteMissing where the package for
    object stores is not installed.
    """
    if is_remote(address):
        from catalog_migrate.store.object_store import object_store_at

        return object_store_at(address, storage or storage_of(address))
    from catalog_migrate.store.local import LocalStore

    return LocalStore(local_path(address))


def is_seen(address: str) -> bool:
    """Whether a folder is seen at an address; on a disk what may not be looked at shows none.

    StoreFailure where an object store does not answer: that says nothing of what is there.
    """
    try:
        return store_at(address).exists("/")
    except CatalogMigrateError:
        raise
    except OSError:
        return False


_Answer = TypeVar("_Answer")


class RememberedStore:
    """Another store, as a :class:`~catalog_migrate.store.Store`; what it read is remembered until
    something is written through it.

    A tag may be outdated then, which the store itself says when something is put by it.
    """

    __slots__ = ("_known", "_store", "address")

    def __init__(self, store: Store) -> None:
        self._store, self.address = store, store.address
        self._known: dict[tuple[str, ...], Any] = {}

    def _once(self, key: tuple[str, ...], ask: Callable[[], _Answer]) -> _Answer:
        if key not in self._known:
            try:
                self._known[key] = ask()
            except FileNotFoundError as missing:
                self._known[key] = missing
        answer: _Answer = self._known[key]
        if isinstance(answer, FileNotFoundError):
            raise answer
        return answer

    def _forget(self) -> Store:
        self._known.clear()
        return self._store

    def place(self, name: str) -> str:
        return self._store.place(name)

    def read(self, name: str) -> bytes:
        return self.read_tagged(name)[0]

    def read_tagged(self, name: str) -> tuple[bytes, str]:
        return self._once(("read", name), lambda: self._store.read_tagged(name))

    def names(self, folder: str = "", after: str = "") -> Iterable[str]:
        return self._once(
            ("names", folder, after), lambda: tuple(self._store.names(folder, after))
        )

    def size(self, name: str) -> int:
        return self._store.size(name)

    def sizes(self, folder: str) -> Mapping[str, int]:
        return self._store.sizes(folder)

    def exists(self, name: str) -> bool:
        return self._store.exists(name)

    def tree(self, folder: str = "") -> Iterable[str]:
        return self._store.tree(folder)

    def read_all(self, names: Iterable[str]) -> Mapping[str, bytes]:
        return self._store.read_all(names)

    def folders(self, folder: str = "") -> Iterable[str]:
        return self._store.folders(folder)

    def put_if_absent(self, name: str, data: bytes, *, durable: bool = True) -> bool:
        return self._forget().put_if_absent(name, data, durable=durable)

    def put_if_match(self, name: str, data: bytes, tag: str, *, durable: bool = True) -> bool:
        return self._forget().put_if_match(name, data, tag, durable=durable)

    def put_all(self, contents: Mapping[str, bytes], *, durable: bool = True) -> None:
        self._forget().put_all(contents, durable=durable)

    def make_folder(
        self, name: str = "", *, above: bool = False, durable: bool = False
    ) -> None:
        self._forget().make_folder(name, above=above, durable=durable)

    def remove_folder(self, name: str) -> None:
        self._forget().remove_folder(name)

    def move(self, name: str, to: str) -> None:
        self._forget().move(name, to)

    def delete(self, name: str = "", *, durable: bool = False) -> None:
        self._forget().delete(name, durable=durable)
