"""An object store, as far as delta-rs opens its own to others: it reads, lists and deletes.

delta-rs puts nothing but its commits where nothing is: other bytes cannot be put here yet.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

from catalog_migrate.errors import CatalogMigrateError
from catalog_migrate.store.address import Storage, plainly


class StoreFailure(CatalogMigrateError, OSError):
    """An object store that did not answer, or refused; no option of it is in the message."""

    code = "CM0230"

    def __str__(self) -> str:
        return CatalogMigrateError.__str__(self)


class ObjectStore:
    """The objects below an address (``s3://bucket/path`` and the like)."""

    __slots__ = ("_handler", "_storage", "address")

    def __init__(self, address: str, storage: Storage) -> None:
        self.address = address.rstrip("/")
        self._storage = storage
        self._handler: Any = None

    def place(self, name: str) -> str:
        return f"{self.address}/{name}" if name else self.address

    def read(self, name: str) -> bytes:
        """By a question for the length and one for the bytes."""
        with self._objects() as objects:
            return bytes(objects.open_input_file(name).read())

    def size(self, name: str) -> int:
        """By a question for the length."""
        with self._objects() as objects:
            return int(objects.open_input_file(name).size())

    def exists(self, name: str) -> bool:
        """A folder is there when anything is in it."""
        if not name or name.endswith("/"):
            return any(self.names(name))
        try:
            self.size(name)
        except FileNotFoundError:
            return False
        return True

    def names(self, folder: str = "") -> Iterator[str]:
        """By a listing, for which delta-rs needs pyarrow."""
        return (str(each.base_name) for each in self._listed(folder))

    def folders(self, folder: str = "") -> Iterator[str]:
        """By the same listing."""
        return (str(each.base_name) for each in self._listed(folder) if not each.is_file)

    def put_if_absent(self, name: str, data: bytes, *, durable: bool = True) -> NoReturn:  # noqa: ARG002 (the port names them)
        """StoreFailure: delta-rs has no conditional put but that of its commits."""
        self._cannot(f"put {name}")

    def move(self, name: str, to: str) -> NoReturn:
        """StoreFailure: an object store moves nothing at once."""
        self._cannot(f"move {name} to {to}")

    def make_folder(self, name: str = "", *, above: bool = False) -> None:
        """An object store has no folders."""

    def remove_folder(self, name: str) -> None:
        """An object store has no folders."""

    def delete(self, name: str = "") -> None:
        """Everything whose name begins so, folder or object."""
        with self._objects() as objects:
            objects.delete_dir(name.rstrip("/"))
            if name:
                objects.delete_file(name.rstrip("/"))

    def _listed(self, folder: str) -> list[Any]:
        with self._objects() as objects:
            return list(objects.get_file_info_selector(folder.rstrip("/"), True, False))

    def _cannot(self, act: str) -> NoReturn:
        raise StoreFailure(
            f"cannot {act} in {self.address}: an object store takes only commits of delta-rs",
            remedy="use a directory that every process sees (a mounted volume)",
        )

    @contextmanager
    def _objects(self) -> Iterator[Any]:
        """delta-rs' own store; what it raises but a missing object is a StoreFailure."""
        from deltalake._internal import DeltaFileSystemHandler

        try:
            if self._handler is None:
                self._handler = DeltaFileSystemHandler(self.address, self._storage.options())
            yield self._handler
        except FileNotFoundError as error:
            raise FileNotFoundError(self.address) from self._storage.cause(error)
        except Exception as error:  # noqa: BLE001 - raised again without what is secret
            raise refused(self.address, error, self._storage) from self._storage.cause(error)


def refused(address: str, error: BaseException, storage: Storage) -> StoreFailure:
    """The typed error for a store that did not answer, or said no."""
    return StoreFailure(
        f"the store of {address} did not do what was asked: {storage.hidden(plainly(error))}",
        remedy="check the address, the network, permissions and [storage_options] (or the store's"
        " own variables); nothing was changed that is not in the log",
    )
