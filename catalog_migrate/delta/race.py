"""Proof that a store has put-if-absent: two commits at one version, of which one must be refused.

A store without it (some network file systems, S3 with an unsafe rename) lets both through, and two
processes could then migrate at once. The commits go straight to delta-rs: the log's own look at the
newest version would refuse the second before the store is asked.

Another writer is raced against delta-rs by :func:`race_against`: one that looks whether the version
is there and then puts it writes over what came in between, whatever the store can do.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol
from uuid import uuid4

from catalog_migrate.delta.log import commit_name, encode
from catalog_migrate.delta.table import load_table, write_rows
from catalog_migrate.errors import CatalogWriteRefused
from catalog_migrate.store import store_at
from catalog_migrate.store.address import Storage, is_remote
from catalog_migrate.store.object_store import PROBES, store_error

if TYPE_CHECKING:
    from deltalake import DeltaTable

ROUNDS = 4
"""One commit after the other, then pairs at the same moment."""

PAUSES = (None, 0.0, 0.01, 0.02, 0.04)
"""Rounds against another writer: seconds from the beginning of delta-rs' commit to the end of the
other; None is the round in which the other had begun before, and ends afterwards."""


class HeldCommit(Protocol):
    """A commit of another writer, held up in its midst."""

    def begin(self) -> None:
        """Start it, and wait until the writer asks for the second line."""
        ...

    def release(self) -> None:
        """Let it have the second line, and end; of no effect the second time."""
        ...

    def join(self) -> bool:
        """Wait for its end; whether it went through by its own word. Raises any other failure."""
        ...


def race_against(
    writer: Callable[[str, bytes, bytes], HeldCommit], place: str, storage: Storage | None = None
) -> bool:
    """Whether of each two commits, one of delta-rs and one of ``writer``, what was told stands.

    Whoever was told that its commit went through must find it in the log. (That neither was told so
    loses no row: an answer may get lost on the way.) Before that ``writer``, which gets the address
    of a commit's file and its two lines, commits alone. The table is below ``place`` and removed in
    the end. Raises StoreFailure when the store does not do what delta-rs asks, and what the commit
    of ``writer`` raises.
    """
    held = storage or Storage()
    with _table(place, held) as address:
        return _alone(writer, address, held) and all(
            _round_against(writer, address, held, pause) for pause in PAUSES
        )


def _alone(
    writer: Callable[[str, bytes, bytes], HeldCommit], address: str, storage: Storage
) -> bool:
    """Whether a commit of ``writer`` goes through where nobody makes another.

    One that may not write at all would lose every race.
    """
    name, token = commit_name(load_table(address, storage).version() + 1), uuid4().hex
    other = writer(f"{address}/{name}", *_lines(token))
    other.begin()
    other.release()
    return other.join() and token.encode() in store_at(address, storage).read(name)


def _lines(token: str) -> tuple[bytes, bytes]:
    """The lines of a commit that is known by a token, and changes nothing."""
    told = {"timestamp": int(time.time() * 1000), "operation": "PROBE", "txnId": token}
    return (
        encode([{"commitInfo": told}]), encode([{"txn": {"appId": token, "version": 1}}]),
    )


def _round_against(
    writer: Callable[[str, bytes, bytes], HeldCommit], address: str, storage: Storage,
    pause: float | None,
) -> bool:
    from deltalake.exceptions import CommitFailedError

    table = load_table(address, storage)
    name, token = commit_name(table.version() + 1), uuid4().hex
    other = writer(f"{address}/{name}", *_lines(token))
    releasing = threading.Timer(pause or 0.0, other.release)
    ours_won = True
    try:
        other.begin()
        if pause is not None:
            releasing.start()
        write_rows(table, _row())
    except CommitFailedError:
        ours_won = False
    except Exception as error:  # noqa: BLE001 - told without what is secret
        raise store_error(address, error, storage) from storage.cause(error)
    finally:
        if releasing.ident is not None:
            releasing.join()
        other.release()
        others_won = other.join()
    stands = token.encode() in store_at(address, storage).read(name)
    return not (ours_won and stands) and not (others_won and not stands)


def race(place: str, storage: Storage | None = None, *, rounds: int = ROUNDS) -> None:
    """Race for versions in a table of our own below ``place``, which is removed in the end.

    ``place`` is a directory or an address. Raises CatalogWriteRefused when both of two commits went
    through, StoreFailure when the store does not do what is asked.
    """
    held = storage or Storage()
    with _table(place, held) as address:
        for number in range(rounds):
            wins = _round(address, held, at_once=number > 0)
            if wins > 1:
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
        raise store_error(address, failed[0], storage) from storage.cause(failed[0])
    return len(won)


@contextmanager
def _table(place: str, storage: Storage) -> Iterator[str]:
    address = f"{place.rstrip('/')}/{PROBES[1]}{uuid4().hex}"
    made = [] if is_remote(place) else _missing(Path(address).parent)
    try:
        try:
            write_rows(address, _row(), storage=storage)
        except Exception as error:  # noqa: BLE001 - told without what is secret
            raise store_error(address, error, storage) from storage.cause(error)
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
