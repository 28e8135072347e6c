"""A table as delta-rs opens it, without Spark: version, files, rows and bytes, properties.

Its form (protocol and metadata), and empty tables that are made in one. The directories of tables:
found, emptied and removed; what else lies in them stays.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, TypeAlias
from uuid import uuid4

from catalog_migrate.delta.commit import commit_onto_newest, is_overtaken
from catalog_migrate.delta.datatypes import columns_of
from catalog_migrate.delta.files import (
    DataFile,
    Sizes,
    file_of,
    list_added_files,
    newest_actions,
    size_of,
)
from catalog_migrate.delta.log import (
    LOG,
    checksum_name,
    commit_name,
    encode,
    has_log,
    put_commit,
    transaction,
    versions_of,
    write_checksum,
)
from catalog_migrate.delta.replay import forget
from catalog_migrate.engine_failures import failing
from catalog_migrate.errors import EngineFailure, StoreFailure, UnsupportedTable
from catalog_migrate.model.objects import Column
from catalog_migrate.model.sizes import TableSize
from catalog_migrate.model.table_features import Unsupported, find_unsupported_features
from catalog_migrate.store import Store, store_at
from catalog_migrate.store.address import (
    directory_of,
    folders_above,
    is_remote,
    local_path,
    storage_of,
)

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


_PLAIN_FEATURES = frozenset({"appendOnly", "invariants", "timestampNtz"})


def require_plain(table: DeltaTable, *, rewritten: int | None = None) -> None:
    """EngineFailure for an open table whose rows are Spark's to write: one with constraints, or
    with features that delta-rs keeps to in part.

    ``rewritten``: files are to be written again; not where there are more bytes than these, or rows
    are only appended.
    """
    protocol = table.protocol()
    plain = protocol.min_writer_version <= 2 or (
        protocol.min_writer_version == 7
        and _PLAIN_FEATURES.issuperset(protocol.writer_features or ())
    )
    if plain and rewritten is not None:
        append_only = table.metadata().configuration.get("delta.appendOnly") == "true"
        plain = not append_only and table_size(table)[1] <= rewritten
    if not plain:
        raise EngineFailure(f"the rows of {table.table_uri} are written by Spark")


def at_this_version(
    said: Mapping[str, str] | None = None, transaction: Transaction | None = None
) -> CommitProperties:
    """Commit at the version that follows, or not at all (Delta protocol, *Delta Log Entries*)."""
    from deltalake import CommitProperties

    return CommitProperties(
        max_commit_retries=0, custom_metadata=None if said is None else dict(said),
        app_transactions=None if transaction is None else [transaction],
    )


def options_for(address: str, storage: Storage | None = None) -> dict[str, str] | None:
    """What delta-rs is told of the store at an address: ``storage``, or what was given for it."""
    return (storage or storage_of(address)).options() or None


def open_table(path: str, *, version: int | None = None) -> DeltaTable:
    """Return the table at a path, newest version or the one asked for.

    EngineFailure where none is, :class:`UnsupportedTable` where it has what is not supported.
    """
    with _refusing_unsupported(path), failing(f"read the shard {path}"):
        return load_table(local_path(path), version=version)


def view_table(path: str, *, version: int | None = None) -> TableView:
    """Like :func:`open_table`, for questions alone: on an object store they cost few requests."""
    if not is_remote(path):
        return open_table(path, version=version)
    from catalog_migrate.delta.replay import replay

    with _refusing_unsupported(path), failing(f"read the shard {path}"):
        return replay(path, version, lambda found: load_table(path, version=found))


@contextmanager
def _refusing_unsupported(path: str) -> Iterator[None]:
    """Raise :class:`UnsupportedTable` where that is why a table could not be opened.

    delta-rs opens no table that has a reader feature which it does not know.
    """
    try:
        yield
    except EngineFailure:
        protocol: Mapping[str, Any] = {}
        with suppress(EngineFailure):
            protocol = protocol_at(path)
        refuse_unsupported(path, protocol)
        raise


def _address_of(table: TableView) -> str:
    """Where an open table is; delta-rs quotes what is in a directory's name."""
    uri = table.table_uri
    return directory_of(uri) if uri.startswith("file:") else uri.rstrip("/")


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


def shard_size(path: str) -> TableSize:
    """Rows (or -1), bytes and data files by the statistics in the log; needs no Spark."""
    return table_size(view_table(path))


def data_size(path: str) -> int:
    """Bytes of the data files at a table's address, in a commit or not; 0 where none are seen.

    On an object store those of partitions are left out: each would be a request of its own.
    """
    table = store_at(path)

    def below(folder: str) -> int:
        size = sum(size for name, size in table.sizes(folder).items() if not _is_hidden(name))
        if is_remote(path):
            return size
        folders = (name for name in table.folders(folder) if not _is_hidden(name))
        return size + sum(below(_in(folder, name)) for name in folders)

    try:
        return below("")
    except FileNotFoundError:
        return 0


def count_appended(path: str, after: int, upto: int | None = None) -> int | None:
    """Rows that came after a version, -1 when unknown, None when rows of before went; no Spark."""
    newest = view_table(path).version() if upto is None else upto
    before, until = (file_sizes(view_table(path, version=each)) for each in (after, newest))
    if before.keys() - until.keys():
        return None
    rows = [size[0] for file, size in until.items() if file not in before]
    return -1 if -1 in rows else sum(rows)


def data_files(path: str, version: int) -> frozenset[DataFile]:
    """Return a version's data files; one in which rows were deleted is another one."""
    return frozenset(file_sizes(view_table(path, version=version)))


def file_sizes(table: TableView) -> Sizes:
    """Data file -> (rows or -1, bytes): by statistics, less what deletion vectors delete."""
    from deltalake import DeltaTable

    if not isinstance(table, DeltaTable):
        return table.files
    if "deletionVectors" in (table.protocol().writer_features or ()):
        path = _address_of(table)
        with failing(f"list the files of {path}"):
            return {file_of(add): size_of(add) for add in list_added_files(path, table.version())}
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
        DataFile(path): (-1 if count is None else count, size)
        for path, count, size in zip(paths, counts, columns.get("size_bytes", []), strict=True)
    }


def table_size(table: TableView) -> TableSize:
    """Rows (or -1), bytes and data files of an open table by its log."""
    files = file_sizes(table).values()
    rows = -1 if any(count < 0 for count, _ in files) else sum(count for count, _ in files)
    return TableSize(rows, sum(size for _, size in files), len(files))


def remove_files(path: str) -> None:
    """Remove all rows of a table that no other process writes to, by one commit if there are any.

    Data files stay for older versions. Not refused by ``delta.appendOnly``, which is for users.
    """
    table = view_table(path)
    added = list_added_files(path, table.version())
    if not added:
        return
    now = int(time.time() * 1000)
    removed = [
        {
            "path": add["path"], "deletionTimestamp": now, "dataChange": True,
            **({"deletionVector": add["deletionVector"]} if add.get("deletionVector") else {}),
        }
        for add in added
    ]
    commit_actions(
        table, [{"remove": each} for each in removed], operation="TRUNCATE", behind_data=False
    )


# -- what is supported -----------------------------------------------------------------------------


_CLUSTERING = "delta.clustering"
PHYSICAL_NAME = "delta.columnMapping.physicalName"
"""Column metadata: a column's name in data files, where column mapping is on."""


def protocol_at(path: str) -> Mapping[str, Any]:
    """Return the ``protocol`` action in force; empty where the log has none."""
    with failing(f"read the log of {path}"):
        return next(newest_actions(path, "protocol"), {})


def clustering_columns(path: str) -> tuple[str, ...]:
    """Return the columns that a table is clustered by (Delta protocol, *Clustered Table*)."""
    for domain in newest_actions(path, "domainMetadata"):
        if domain.get("domain") != _CLUSTERING:
            continue
        if domain.get("removed"):
            return ()
        schema = json.loads(view_table(path).schema().to_json())
        names = {
            (column.get("metadata") or {}).get(PHYSICAL_NAME, column["name"]): column["name"]
            for column in schema["fields"]
        }
        listed = json.loads(domain["configuration"]).get("clusteringColumns") or ()
        return tuple(".".join((names.get(first, first), *rest)) for first, *rest in listed)
    return ()


def find_unsupported(path: str) -> Unsupported | None:
    """Return what the table at ``path`` has that is not supported, if anything; no Spark.

    None also for a table that cannot be read: whatever reads it says why.
    """
    try:
        return _find_unsupported(form_of(view_table(path)).protocol)
    except UnsupportedTable:
        return _find_unsupported(protocol_at(path))
    except EngineFailure:
        return None


def _find_unsupported(protocol: Mapping[str, Any]) -> Unsupported | None:
    return find_unsupported_features(
        protocol.get("minReaderVersion", 1), protocol.get("minWriterVersion", 2),
        (*protocol.get("readerFeatures", ()), *protocol.get("writerFeatures", ())),
    )


def refuse_unsupported(path: str, protocol: Mapping[str, Any]) -> None:
    """Raise :class:`UnsupportedTable` for a protocol (as its action) that is not supported."""
    found = _find_unsupported(protocol)
    if found is not None:
        raise UnsupportedTable(
            f"nothing can be done to the table at {path}: {found.reason}",
            condition="DELTA_UNSUPPORTED_FEATURES_FOR_WRITE", remedy=found.remedy,
        )


# -- commits of ours -------------------------------------------------------------------------------


def commit_actions(
    table: TableView, actions: Sequence[Mapping[str, Any]], *, operation: str,
    behind_data: bool = True, app_id: str = "", epoch: int = 0,
) -> int:
    """Commit actions on a table as it was opened; the version that they have.

    They are right for every feature that the table has, if they are of metadata, protocol or
    transactions, or remove data files. Raises what :func:`~catalog_migrate.delta.log.put_commit`
    does, and :class:`UnsupportedTable`.
    """
    path, form = _address_of(table), form_of(table)
    refuse_unsupported(path, form.protocol)
    return put_commit(
        path, actions, follows=table.version(), operation=operation, behind_data=behind_data,
        app_id=app_id, epoch=epoch, timed=form.is_timed,
    )


def commit_transactions(
    table: TableView, transactions: Mapping[str, int], *, behind_data: bool = False
) -> bool:
    """Commit nothing but transactions of applications, by the application's id.

    Returns whether they are in the table: not where another commit came first, or with
    ``behind_data`` one that is not only of data. EngineFailure for all else.
    """
    actions = [{"txn": transaction(app, version)} for app, version in transactions.items()]
    try:
        commit_actions(table, actions, operation="TRANSACTION", behind_data=behind_data)
    except EngineFailure as failure:
        if not is_overtaken(failure):
            raise
        return False
    return True


# -- properties ------------------------------------------------------------------------------------


def make_append_only(path: str) -> bool:
    """Refuse UPDATE, DELETE and MERGE in a shard from now on; whether that is new. No Spark.

    Appends under way go on: what they race for is only the next version.
    """
    def attempt() -> bool:
        table = view_table(path)
        form = form_of(table)
        if form.configuration.get("delta.appendOnly", "").lower() == "true":
            return False
        wanted = form.with_configuration({**form.configuration, "delta.appendOnly": "true"})
        commit_actions(
            table, wanted.under_protocol(2, "appendOnly").actions(form),
            operation="SET TBLPROPERTIES",
        )
        return True

    return commit_onto_newest(attempt)


def set_properties_after(path: str, properties: dict[str, str], *, follows: int) -> int | None:
    """Set properties that no writer obeys, at exactly version ``follows + 1``.

    None when another writer took it.
    """
    table = view_table(path)
    if table.version() != follows:
        return None
    form = form_of(table)
    wanted = form.with_configuration({**form.configuration, **properties})
    try:
        return commit_actions(
            table, wanted.actions(form), operation="SET TBLPROPERTIES", behind_data=False
        )
    except EngineFailure as failure:
        if not is_overtaken(failure):
            raise
        return None


# -- form ------------------------------------------------------------------------------------------

_NAMED = 7
"""The version of writers from which a protocol names its features."""
IN_COMMIT_TIMESTAMPS = "delta.enableInCommitTimestamps"
_HIGH_WATER_MARK = "delta.identity.highWaterMark"
"""Column metadata that an INSERT changes: the last number that an identity column has given."""


@dataclass(frozen=True)
class Form:
    """Two actions of the Delta protocol, *Protocol Evolution* and *Change Metadata*, as JSON.

    Equal forms are the same table but for its data: lists of features are sorted, and so are the
    keys of the schema, which delta-rs writes in any order. ``identity`` (id, name, time of
    creation) stays the table's own whatever form it takes.
    """

    protocol: Mapping[str, Any]
    metadata: Mapping[str, Any]
    identity: Mapping[str, Any] = field(default_factory=dict)

    @property
    def configuration(self) -> Mapping[str, str]:
        """Properties and CHECK constraints."""
        found: Mapping[str, str] = self.metadata["configuration"]
        return found

    @property
    def features(self) -> frozenset[str]:
        """Writer features by name; none where the protocol is by version alone."""
        return frozenset(self.protocol.get("writerFeatures", ()))

    @property
    def is_timed(self) -> bool:
        """Whether each commit must have an in-commit timestamp."""
        return self.configuration.get(IN_COMMIT_TIMESTAMPS, "").lower() == "true"

    def defines_same(self, other: Form) -> bool:
        """Return whether two forms differ in nothing but what an INSERT changes."""
        return self == other or _without_high_water_marks(self) == _without_high_water_marks(other)

    def under_protocol(self, version: int, *features: str) -> Form:
        """This form under a protocol by which each writer obeys some features.

        Where its protocol names none, ``version`` is that of writers which know them all.
        """
        if self.protocol["minWriterVersion"] >= _NAMED:
            return self.with_features(self.features | set(features))
        newest = max(version, self.protocol["minWriterVersion"])
        return replace(self, protocol={**self.protocol, "minWriterVersion": newest})

    def with_features(self, features: frozenset[str]) -> Form:
        """This form with these writer features, where its protocol names any."""
        if features == self.features:
            return self
        return replace(self, protocol={**self.protocol, "writerFeatures": sorted(features)})

    def with_configuration(self, configuration: Mapping[str, str]) -> Form:
        """This form with these properties and CHECK constraints."""
        return replace(self, metadata={**self.metadata, "configuration": dict(configuration)})

    def actions(self, standing: Form | None = None) -> list[dict[str, Any]]:
        """The actions that give a table this form: all for a new one, else what is missing of it.

        ``standing`` is what the table is now, and keeps its identity.
        """
        identity = self.identity if standing is None else standing.identity
        found: list[dict[str, Any]] = []
        if standing is None or standing.protocol != self.protocol:
            found.append({"protocol": dict(self.protocol)})
        if standing is None or standing.metadata != self.metadata:
            found.append({"metaData": {**identity, **self.metadata}})
        return found


def _without_high_water_marks(form: Form) -> Form:
    schema = json.loads(form.metadata["schemaString"])
    for column in schema["fields"]:
        (column.get("metadata") or {}).pop(_HIGH_WATER_MARK, None)
    return replace(form, metadata={**form.metadata, "schemaString": json.dumps(schema)})


def form_of(table: TableView) -> Form:
    """Return the form of an open table at its version."""
    protocol, metadata = table.protocol(), table.metadata()
    versions: dict[str, Any] = {
        "minReaderVersion": protocol.min_reader_version,
        "minWriterVersion": protocol.min_writer_version,
    }
    if protocol.min_reader_version >= 3:
        versions["readerFeatures"] = sorted(protocol.reader_features or ())
    if protocol.min_writer_version >= _NAMED:
        versions["writerFeatures"] = sorted(protocol.writer_features or ())
    described: dict[str, Any] = {
        "format": {"provider": "parquet", "options": {}},
        "schemaString": json.dumps(
            json.loads(table.schema().to_json()), sort_keys=True, separators=(",", ":")
        ),
        "partitionColumns": list(metadata.partition_columns),
        "configuration": dict(metadata.configuration),
    }
    if metadata.description:
        described["description"] = metadata.description
    identity = {"id": str(metadata.id), "name": metadata.name, "createdTime": metadata.created_time}
    known = {name: value for name, value in identity.items() if value is not None}
    return Form(versions, described, known)


def create_empty(path: str, form: Form) -> None:
    """Make an empty table of a form, unless one is there, with an identity of its own.

    Its log is one commit with the form's own actions, which no API of either library writes.
    """
    now = int(time.time() * 1000)
    own = replace(form, identity={"id": str(uuid4()), "createdTime": now}).actions()
    if form.is_timed:
        info = {"inCommitTimestamp": now, "timestamp": now, "operation": "CREATE TABLE",
                "operationParameters": {}}
        own.insert(0, {"commitInfo": info})
    table = store_at(path)
    table.make_folder(LOG, above=True)
    table.put_if_absent(commit_name(0), encode(own), durable=False)
    write_checksum(path, 0)


def publish(here: str, address: str) -> bool:
    """Put the log of a table without rows, made on this machine, where none is; whether it was.

    Commit by commit, each with its checksum: as if it had been made there, by a tenth of the
    requests that delta-rs makes of it.
    """
    made, there = store_at(here), store_at(address)
    for version in sorted(versions_of(made.names(LOG))[0]):
        if not there.put_if_absent(commit_name(version), made.read(commit_name(version))):
            return False
        if made.exists(checksum_name(version)):
            there.put_if_absent(checksum_name(version), made.read(checksum_name(version)))
    return True


CLUSTERED = "clustering"
"""The writer feature whose state (by which columns) is in an action of its own, in no form."""


def create_shadow_table(path: str, form: Form) -> None:
    """Make an empty table that takes and refuses the statements which the one of ``form`` does.

    Raises EngineFailure for a form that says not all of the table it is of.
    """
    refuse_unsupported(path, form.protocol)
    if CLUSTERED in form.features:
        raise EngineFailure(
            f"a table with {CLUSTERED} has no shadow table to try statements on",
            condition="NO_SHADOW_TABLE",
        )
    with failing(f"create the shadow table {path}"):
        create_empty(path, form)


# -- directories -----------------------------------------------------------------------------------

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
    """Return the table that a directory lies in, the innermost one; None outside all tables."""
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
    """Return the name of a new shadow table inside the table that it is a shadow of."""
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
