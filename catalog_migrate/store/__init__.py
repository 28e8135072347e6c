"""What lies at an address: bytes by name, on a local disk or an object store.

No module here knows what the bytes mean: Delta's log is read and written by
:mod:`catalog_migrate.delta`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from catalog_migrate.store.address import Storage, is_remote, local_path


class Store(Protocol):
    """Bytes by name below one address; a name is relative and has ``/`` between its parts.

    OSError where a local disk refuses, StoreFailure where an object store does; what is not there
    is FileNotFoundError for both.
    """

    @property
    def address(self) -> str:
        """The address that names are relative to."""
        ...

    def place(self, name: str) -> str:
        """The whole address of a name, for messages."""
        ...

    def read(self, name: str) -> bytes:
        """All bytes under a name."""
        ...

    def size(self, name: str) -> int:
        """How many bytes are under a name."""
        ...

    def exists(self, name: str) -> bool:
        """Whether anything is there; a name that ends with ``/`` asks for a folder."""
        ...

    def names(self, folder: str = "") -> Iterable[str]:
        """The names directly in a folder, without its own; in no order."""
        ...

    def folders(self, folder: str = "") -> Iterable[str]:
        """Those of the names directly in a folder that are folders; links are none."""
        ...

    def put_if_absent(self, name: str, data: bytes, *, durable: bool = True) -> bool:
        """Put all bytes under a name where nothing is; False where something is, which stays.

        With ``durable`` they are there after a power failure too. A local folder must be there.
        """
        ...

    def make_folder(self, name: str = "", *, above: bool = False) -> None:
        """Make a folder, where a store has any; with ``above`` those that it lies in too."""
        ...

    def remove_folder(self, name: str) -> None:
        """Remove an empty folder, where a store has any; an error where something is in it."""
        ...

    def move(self, name: str, to: str) -> None:
        """Give an object or folder another name, whole and at once."""
        ...

    def delete(self, name: str = "") -> None:
        """Delete what is under a name, or all below the address; a link and not what it names."""
        ...


def store_at(address: str, storage: Storage | None = None) -> Store:
    """The store at an address; nothing is read or written yet. ``storage`` are its options."""
    if is_remote(address):
        from catalog_migrate.store.object_store import ObjectStore

        return ObjectStore(address, storage or Storage())
    from catalog_migrate.store.local import LocalStore

    return LocalStore(local_path(address))


def is_seen(address: str) -> bool:
    """Whether a folder is seen at an address; what may not be looked at shows none."""
    try:
        return store_at(address).exists("/")
    except OSError:
        return False
