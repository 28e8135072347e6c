"""Proof that a store has put-if-absent: two commits at one version, of which one must be refused.

A store without it (some network file systems, S3 with an unsafe rename) lets both through, and two
processes could then migrate at once. The commits go straight to delta-rs: the log's own look at the
newest version would refuse the second before the store is asked.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from catalog_migrate.delta.table import load_table, write_rows
from catalog_migrate.errors import CatalogWriteRefused
from catalog_migrate.store import store_at
from catalog_migrate.store.address import Storage, is_remote
from catalog_migrate.store.object_store import refused

if TYPE_CHECKING:
    from deltalake import DeltaTable

ROUNDS = 4
"""One commit after the other, then pairs at the same moment."""


def race(place: str, storage: Storage | None = None, *, rounds: int = ROUNDS) -> None:
    """Race for versions in a table of our own below ``place``, which is removed in the end.

    ``place`` is a directory or an address. Raises CatalogWriteRefused when both of two commits went
    through, StoreFailure when the store does not do what is asked.
    """
    held = storage or Storage()
    with _table(place, held) as address:
        for number in range(rounds):
            wins = _round(address, held, at_once=number > 0)
            if wins != 1:
                raise CatalogWriteRefused(
                    f"two commits at one version in {place}: {wins} succeeded instead of one",
                    remedy="keep the catalog on a store with put-if-absent: a local disk, or an"
                    " object store that delta-rs commits to without an unsafe rename",
                )


def _round(address: str, storage: Storage, *, at_once: bool) -> int:
    """How many of two commits at the next version went through, by their own word."""
    from deltalake.exceptions import CommitFailedError

    tables = [load_table(address, storage) for _ in range(2)]
    won: list[bool] = []
    failed: list[Exception] = []
    line = threading.Barrier(2 if at_once else 1)

    def attempt(table: DeltaTable) -> None:
        try:
            line.wait()
            write_rows(table, _row())
        except CommitFailedError:
            return
        except Exception as error:  # noqa: BLE001 - told without what is secret
            failed.append(error)
            return
        won.append(True)

    threads = [threading.Thread(target=attempt, args=(table,)) for table in tables]
    for thread in threads:
        thread.start()
        if not at_once:
            thread.join()
    for thread in threads:
        thread.join()
    if failed:
        raise refused(address, failed[0], storage) from storage.cause(failed[0])
    return len(won)


@contextmanager
def _table(place: str, storage: Storage) -> Iterator[str]:
    address = f"{place.rstrip('/')}/doctor-{uuid4().hex}"
    made = [] if is_remote(place) else _missing(Path(address).parent)
    try:
        try:
            write_rows(address, _row(), storage=storage)
        except Exception as error:  # noqa: BLE001 - told without what is secret
            raise refused(address, error, storage) from storage.cause(error)
        yield address
    finally:
        _remove(address, storage, made)


def _missing(directory: Path) -> list[Path]:
    """The directories that writing here will make, innermost first."""
    return [each for each in (directory, *directory.parents) if not each.exists()]


def _remove(address: str, storage: Storage, made: list[Path]) -> None:
    try:
        store_at(address, storage).delete()
    except OSError:
        return  # a rest of a few kilobytes
    for directory in made:
        if directory.is_dir() and not any(directory.iterdir()):
            directory.rmdir()


def _row() -> Any:
    from arro3.core import Array, DataType, Table

    return Table.from_pydict({"token": Array([uuid4().hex], DataType.string())})
