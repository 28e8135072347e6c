"""A table as delta-rs opens it: version, files, rows and bytes, properties. Needs no Spark."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from catalog_migrate.delta.datatypes import columns_of
from catalog_migrate.engine_failures import failing
from catalog_migrate.model.objects import Column
from catalog_migrate.store.address import is_remote, local_path, storage_of

if TYPE_CHECKING:
    from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties, Transaction

    from catalog_migrate.delta.replay import ReplayedTable
    from catalog_migrate.store.address import Storage

    TableView: TypeAlias = DeltaTable | ReplayedTable
    """A table that is looked at and not written by."""


def load_table(
    address: str, storage: Storage | None = None, *, version: int | None = None
) -> DeltaTable:
    """The table at an address, newest version or the one asked for; raises what delta-rs does.

    Without ``storage`` the options that were given for that place hold.
    """
    from deltalake import DeltaTable

    return DeltaTable(address, version=version, storage_options=options_for(address, storage))


def write_rows(
    table: DeltaTable | str, rows: Any, *, mode: Literal["append", "overwrite"] = "append",
    storage: Storage | None = None, configuration: Mapping[str, str] | None = None,
    said: Mapping[str, str] | None = None, transaction: Transaction | None = None,
    hooks: PostCommitHookProperties | None = None,
) -> None:
    """Rows (an Arrow table) as exactly the version behind that of an open table, or not at all.

    An address: a table with this ``configuration`` is made there, where none is. ``said`` is what
    the commit says of itself, ``hooks`` what is done after it. Raises what delta-rs does,
    CommitFailedError where another commit has the version.
    """
    from deltalake import write_deltalake

    making = isinstance(table, str)
    write_deltalake(
        table, rows, mode="error" if making else mode,
        configuration=dict(configuration) if making and configuration else None,
        storage_options=options_for(table, storage) if isinstance(table, str) else None,
        commit_properties=at_this_version(said, transaction), post_commithook_properties=hooks,
    )


def at_this_version(
    said: Mapping[str, str] | None = None, transaction: Transaction | None = None
) -> CommitProperties:
    """Commit at the version that follows, or not at all (Delta protocol, *Delta Log Entries*)."""
    from deltalake import CommitProperties

    return CommitProperties(
        max_commit_retries=0, custom_metadata=None if said is None else dict(said),
        app_transactions=None if transaction is None else [transaction],
    )


def commit_nothing(
    table: DeltaTable, transactions: Mapping[str, int] | None = None, *, races: int = 0
) -> None:
    """An empty commit that carries transactions of applications, by the application's id.

    ``races`` are the versions that others may take from it. Raises what delta-rs does.
    """
    from deltalake import CommitProperties, Transaction

    carried = [Transaction(app, version) for app, version in (transactions or {}).items()]
    table.create_write_transaction(
        [],
        "append",
        table.schema(),
        partition_by=list(table.metadata().partition_columns) or None,
        commit_properties=CommitProperties(
            max_commit_retries=races, app_transactions=carried or None
        ),
    )


def options_for(address: str, storage: Storage | None = None) -> dict[str, str] | None:
    """What delta-rs is told of the store at an address: ``storage``, or what was given for it."""
    return (storage or storage_of(address)).options() or None


def open_table(path: str, *, version: int | None = None) -> DeltaTable:
    """The table at a path, newest version or the one asked for; EngineFailure where none is."""
    with failing(f"read the shard {path}"):
        return load_table(local_path(path), version=version)


def view_table(path: str, *, version: int | None = None) -> TableView:
    """Like :func:`open_table`, for questions alone: on an object store they cost few requests."""
    if not is_remote(path):
        return open_table(path, version=version)
    from catalog_migrate.delta.replay import replayed

    with failing(f"read the shard {path}"):
        return replayed(path, version, lambda found: load_table(path, version=found))


def shard_version(path: str) -> int | None:
    """Newest version of the Delta table at ``path``, None when there is none; needs no Spark."""
    from deltalake import DeltaTable

    path = local_path(path)
    with failing(f"read the shard {path}"):
        if is_remote(path):
            from catalog_migrate.delta.replay import newest_version

            return newest_version(path)
        if not DeltaTable.is_deltatable(path):
            return None
        return DeltaTable(path).version()


def shard_columns(path: str) -> Sequence[Column]:
    """Columns as the log has them now, with canonical types; needs no Spark."""
    return columns_of(json.loads(view_table(path).schema().to_json()))


def shard_size(path: str) -> tuple[int, int]:
    """(rows or -1, bytes) by the statistics in the log; needs no Spark."""
    return table_size(view_table(path))


def grown(path: str, after: int, upto: int | None = None) -> int | None:
    """Rows that came after a version, -1 when unknown, None when files of before went; no Spark."""
    newest = view_table(path).version() if upto is None else upto
    before, until = data_files(path, after), data_files(path, newest)
    if before - until:
        return None
    if not until - before:
        return 0
    rows = [table_size(view_table(path, version=version))[0] for version in (after, newest)]
    return -1 if -1 in rows else rows[1] - rows[0]


def data_files(path: str, version: int) -> frozenset[str]:
    """Paths of a version's data files, as the log has them."""
    return frozenset(file_sizes(view_table(path, version=version)))


def file_sizes(table: TableView) -> Mapping[str, tuple[int, int]]:
    """Data file -> (rows or -1, bytes)."""
    from deltalake import DeltaTable

    if not isinstance(table, DeltaTable):
        return table.files
    with failing(f"list the files of {table.table_uri}"):
        actions = table.get_add_actions(flatten=True)
        names = actions.schema.names
        columns: dict[str, list[Any]] = {
            name: list(actions.column(name).to_pylist())
            for name in ("path", "size_bytes", "num_records")
            if name in names
        }
    paths = columns.get("path", [])
    counts = columns.get("num_records") or [None] * len(paths)
    return {
        path: (-1 if count is None else count, size)
        for path, count, size in zip(paths, counts, columns.get("size_bytes", []), strict=True)
    }


def table_size(table: TableView) -> tuple[int, int]:
    """(rows or -1, bytes) of an open table by the statistics in its log."""
    files = file_sizes(table).values()
    rows = -1 if any(count < 0 for count, _ in files) else sum(count for count, _ in files)
    return rows, sum(size for _, size in files)


# -- properties ------------------------------------------------------------------------------------

_APPEND_ONLY_ATTEMPTS = 20
"""Races for the next version that are lost before a table counts as too busy."""


def make_append_only(path: str) -> bool:
    """Refuse UPDATE, DELETE and MERGE in a shard from now on; whether that is new. No Spark.

    Appends under way go on: what they race for is only the next version.
    """
    from deltalake.exceptions import CommitFailedError

    for attempt in range(_APPEND_ONLY_ATTEMPTS):
        table = open_table(path)
        if table.metadata().configuration.get("delta.appendOnly", "").lower() == "true":
            return False
        with failing(f"make {path} append-only"):
            try:
                table.alter.set_table_properties(
                    {"delta.appendOnly": "true"}, raise_if_not_exists=False
                )
            except CommitFailedError:
                if attempt == _APPEND_ONLY_ATTEMPTS - 1:
                    raise
                continue
        return True
    return False


def set_properties_after(path: str, properties: dict[str, str], *, follows: int) -> int | None:
    """Set properties at exactly version ``follows + 1``; None when another writer took it."""
    from deltalake import CommitProperties
    from deltalake.exceptions import CommitFailedError

    table = open_table(path, version=follows)
    if shard_version(path) != follows:
        return None
    with failing(f"mark {path}"):
        try:
            table.alter.set_table_properties(
                properties, raise_if_not_exists=False,
                commit_properties=CommitProperties(max_commit_retries=0),
            )
        except CommitFailedError:
            if shard_version(path) == follows:
                raise  # no race: the table has a feature that cannot be written
            return None
    if table.version() != follows + 1:
        return None
    return follows + 1
