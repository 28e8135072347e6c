"""The directories of tables: found, emptied and removed; what else lies in them stays."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from uuid import uuid4

from catalog_migrate.delta.log import LOG, has_log
from catalog_migrate.delta.replay import forget
from catalog_migrate.engine_failures import failing
from catalog_migrate.store import Store, store_at
from catalog_migrate.store.address import folders_above
from catalog_migrate.store.object_store import StoreFailure

_SHADOW_TABLE = "_catalog_migrate-"
"""Begins the names of shadow tables: VACUUM and readers pass over such a directory of a table."""
_SHADOW_NAME = re.compile(_SHADOW_TABLE + "[0-9a-f]{32}")


def tables_below(warehouse: str) -> list[str]:
    """Directories below a warehouse that hold a table, sorted; no shadow tables, none in others.

    StoreFailure where an object store does not answer.
    """
    store = store_at(warehouse)
    return sorted(store.place(folder) for folder in _tables(store, ""))


def _tables(store: Store, folder: str) -> Iterator[str]:
    try:
        if store.exists(f"{_in(folder, LOG)}/"):
            yield folder
            return
        for name in list(store.folders(folder)):
            if not _SHADOW_NAME.fullmatch(name):
                yield from _tables(store, _in(folder, name))
    except StoreFailure:
        raise
    except OSError:
        return  # what cannot be listed shows no table


def table_around(path: str) -> str | None:
    """The table that a directory lies in, the innermost one; None outside all tables."""
    return next((above for above in folders_above(path) if has_log(above)), None)


def delete_table(path: str) -> None:
    """Remove a table's directory, log last: what is half removed is still found as a table."""
    table = store_at(path)
    with failing(f"remove {path}"):
        if not table.exists("/"):
            return
        forget(path)
        for name in table.names():
            if name != LOG:
                table.delete(name)
        table.delete()


def delete_data(path: str) -> None:
    """Remove what a VACUUM may remove; the log and other tables inside stay."""
    table = store_at(path)
    with failing(f"remove the data of {path}"):
        if table.exists("/"):
            _delete_data(table, "")


def _delete_data(store: Store, folder: str) -> None:
    """Remove data files below a folder, and the folders that are empty then.

    An adopted directory may hold more than the table: hidden names (a query's ``_checkpoints``)
    and other tables are left alone.
    """
    names = tuple(store.names(folder))  # first: a folder that comes meanwhile is not among them
    folders = frozenset(store.folders(folder))
    for name in names:
        entry = _in(folder, name)
        if _is_hidden(name):
            continue
        if name not in folders:
            store.delete(entry)
        elif not store.exists(f"{entry}/{LOG}/"):
            _delete_data(store, entry)
            if not any(store.names(entry)):
                store.remove_folder(entry)


def _is_hidden(name: str) -> bool:
    """Whether VACUUM passes a name over (Delta's ``DeltaTableUtils.isHiddenDirectory``).

    Hadoop's checksums of data files are hidden too, and go with those.
    """
    if not name.startswith((".", "_")) or "=" in name:
        return False
    return not (name.startswith(("_change_data", "_delta_index")) or name.endswith(".crc"))


def shadow_name() -> str:
    """The name of a new shadow table inside the table that it is a shadow of."""
    return f"{_SHADOW_TABLE}{uuid4().hex}"


def sweep_shadow_tables(path: str) -> None:
    """Remove the shadow tables that a crash has left in a table's directory.

    A holder that lost its lease may be at work on one. Its log goes commit by commit, the first one
    first: what is left of it leads to the newest state, or cannot be read.
    """
    table = store_at(path)
    with suppress(OSError):
        for name in list(table.folders()):
            if _SHADOW_NAME.fullmatch(name) and table.exists(f"{name}/{LOG}/"):
                for entry in sorted(table.names(f"{name}/{LOG}")):
                    table.delete(f"{name}/{LOG}/{entry}")
                discard(table, name)


def discard(store: Store, name: str) -> None:
    """Remove what is of no use any more; a rest that stays is swept another time."""
    with suppress(OSError):
        store.delete(name)


def _in(folder: str, name: str) -> str:
    return f"{folder}/{name}" if folder else name
