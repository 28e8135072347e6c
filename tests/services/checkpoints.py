"""The files of a checkpoint as ``pathlib`` has them, on a disk and on S3."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from catalog_migrate.store import Store
from catalog_migrate.store.address import is_remote
from catalog_migrate.streams.checkpoint.directory import Checkpoint
from catalog_migrate.streams.checkpoint.files import Mark, write_mark
from catalog_migrate.streams.checkpoint.guards import claim
from catalog_migrate.streams.checkpoint.snapshots import Snapshot, Snapshots


def root(checkpoint: Checkpoint) -> Any:
    """The directory of a checkpoint: a Path, or what does as one on S3."""
    return path_in(checkpoint.store)


def adopt(checkpoint: Checkpoint, *, item: str, sources: Sequence[str]) -> Mark:
    """Mark a checkpoint that was written for a test, as the first start of its query would."""
    if checkpoint.mark is None:
        write_mark(checkpoint.files, checkpoint.store, Mark(item))
    return claim(checkpoint, item=item, sources=sources)


def taken(snapshots: Snapshots) -> list[Snapshot]:
    """All snapshots, oldest first."""
    return [snapshots._read(number)[0] for number in snapshots._numbers()]


def path_in(store: Store) -> Any:
    """The directory that a store's names are relative to."""
    return ObjectPath(store) if is_remote(store.address) else Path(store.address)


class ObjectPath:
    """A name in an object store: what tests ask of a path, by pathlib's names."""

    def __init__(self, store: Store, name: str = "") -> None:
        self._store, self._name = store, name

    def __truediv__(self, more: str) -> ObjectPath:
        return ObjectPath(self._store, f"{self._name}/{more}".lstrip("/"))

    def __str__(self) -> str:
        return self._store.place(self._name)

    @property
    def name(self) -> str:
        return self._name.rpartition("/")[2]

    def mkdir(self, *, parents: bool = False, exist_ok: bool = False) -> None:
        """There are no folders."""

    def read_bytes(self) -> bytes:
        return self._store.read(self._name)

    def read_text(self) -> str:
        return self.read_bytes().decode()

    def write_bytes(self, data: bytes) -> None:
        self._store.put_all({self._name: data})

    def write_text(self, text: str) -> None:
        self.write_bytes(text.encode())

    def exists(self) -> bool:
        return self.is_file() or self._store.exists(f"{self._name}/")

    def is_file(self) -> bool:
        return bool(self._name) and self._store.exists(self._name)

    def unlink(self) -> None:
        self._store.delete(self._name)

    def iterdir(self) -> Iterator[ObjectPath]:
        return (self / name for name in self._store.names(self._name))

    def files(self) -> dict[str, bytes]:
        """Everything below, by relative name."""
        start = len(self._name) + 1 if self._name else 0
        found = self._store.read_all(self._store.tree(self._name))
        return {name[start:]: data for name, data in found.items()}
