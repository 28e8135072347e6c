"""A store that is asked the same thing once, for whoever alone works at an address for a while."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from catalog_migrate.store import Store

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

    def _changed(self) -> Store:
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
        return self._changed().put_if_absent(name, data, durable=durable)

    def put_if_match(self, name: str, data: bytes, tag: str, *, durable: bool = True) -> bool:
        return self._changed().put_if_match(name, data, tag, durable=durable)

    def put_all(self, contents: Mapping[str, bytes], *, durable: bool = True) -> None:
        self._changed().put_all(contents, durable=durable)

    def make_folder(
        self, name: str = "", *, above: bool = False, durable: bool = False
    ) -> None:
        self._changed().make_folder(name, above=above, durable=durable)

    def remove_folder(self, name: str) -> None:
        self._changed().remove_folder(name)

    def move(self, name: str, to: str) -> None:
        self._changed().move(name, to)

    def delete(self, name: str = "", *, durable: bool = False) -> None:
        self._changed().delete(name, durable=durable)
