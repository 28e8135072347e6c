"""The data files of a version by the log's own actions: their rows, bytes and deletion vectors.

delta-rs does not tell of deletion vectors, without which a table has more rows in its statistics
than it has. So commits, and the checkpoint below them, are read here. Data files are not.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple, TypeAlias, TypeVar

from catalog_migrate.delta.log import LOG, commit_name, decode, encode, read_actions, versions_of
from catalog_migrate.store import Store, store_at


class DataFile(NamedTuple):
    """A data file as one version has it; with other rows deleted it is another (Delta protocol,
    *Action Reconciliation*)."""

    path: str
    deletion_vector: str = ""


Kept = TypeVar("Kept")
Sizes: TypeAlias = Mapping[DataFile, tuple[int, int]]
"""(rows or -1 where the statistics do not say, bytes) of each data file."""


def file_of(action: Mapping[str, Any]) -> DataFile:
    """Return the data file of an ``add`` or a ``remove``."""
    vector: Mapping[str, Any] | None = action.get("deletionVector")
    if not vector or not vector.get("storageType"):
        return DataFile(action["path"])
    offset = vector.get("offset")
    at = "" if offset is None or vector["storageType"] == "i" else f"@{offset}"
    return DataFile(action["path"], f"{vector['storageType']}{vector['pathOrInlineDv']}{at}")


def size_of(add: Mapping[str, Any]) -> tuple[int, int]:
    """(rows or -1, bytes) of an added file: what its statistics say less what is deleted in it."""
    rows = json.loads(add.get("stats") or "{}").get("numRecords")
    if rows is None:
        rows = add.get("numRecords")
    if rows is None:
        return -1, int(add["size"])
    return int(rows) - int((add.get("deletionVector") or {}).get("cardinality") or 0), int(
        add["size"]
    )


def reconcile(
    files: dict[DataFile, Kept], actions: Iterable[Mapping[str, Any]],
    kept: Callable[[Mapping[str, Any]], Kept],
) -> None:
    """Let the actions of one commit, in any order, happen to files; what is ``kept`` of an add."""
    actions = tuple(actions)
    for action in actions:
        if "remove" in action:
            files.pop(file_of(action["remove"]), None)
    for action in actions:
        if "add" in action:
            files[file_of(action["add"])] = kept(action["add"])


def rows_brought(actions: Iterable[Mapping[str, Any]]) -> int:
    """Rows that one commit brought, as far as statistics say.

    A file that only loses rows, under a new deletion vector, brings none.
    """
    actions = tuple(actions)
    before = {action["remove"]["path"] for action in actions if "remove" in action}
    return sum(
        max(0, size_of(action["add"])[0]) for action in actions
        if action.get("add", {}).get("dataChange") and action["add"]["path"] not in before
    )


def rows_added(path: str, first: int, upto: int) -> int:
    """Rows that the commits from version ``first`` to before ``upto`` appended to a table."""
    return sum(rows_brought(read_actions(path, version)) for version in range(first, upto))


def list_added_files(path: str, version: int) -> Sequence[Mapping[str, Any]]:
    """Return the ``add`` action of each data file of a version of the table at ``path``.

    EngineFailure where a commit that is needed is missing or cannot be read.
    """
    table = store_at(path)
    since, names = newest_checkpoint(table.names(LOG), version)
    files: dict[DataFile, dict[str, Any]] = {}
    reconcile(files, read_checkpoint(table, names), dict)
    for each in range(since + 1, version + 1):
        reconcile(files, read_actions(path, each), dict)
    return tuple(files.values())


def newest_actions(path: str, kind: str) -> Iterator[Mapping[str, Any]]:
    """Yield what the actions of one kind (``protocol``, ``domainMetadata``) say, newest first.

    Those of the commits behind the newest checkpoint, then that checkpoint's.
    """
    table = store_at(path)
    names = tuple(table.names(LOG))
    commits, checkpoints = versions_of(names)
    since, checkpoint = newest_checkpoint(names, max([*commits, *checkpoints], default=-1))
    for version in sorted((each for each in commits if each > since), reverse=True):
        yield from (each[kind] for each in read_actions(path, version) if kind in each)
    yield from (each[kind] for each in read_checkpoint(table, checkpoint) if kind in each)


def newest_checkpoint(names: Iterable[str], version: int) -> tuple[int, tuple[str, ...]]:
    """The newest whole checkpoint at or before a version: its version (-1: none) and its files.

    Several may be there of one version; one in parts counts where every part is.
    """
    names = tuple(names)
    _, checkpoints = versions_of(names)
    for each in sorted((one for one in checkpoints if one <= version), reverse=True):
        begin = f"{each:020d}.checkpoint."
        found = sorted(name for name in names if name.startswith(begin))
        whole = [name for name in found if name.count(".") < 4]
        if whole:
            return each, (whole[0],)
        # <version>.checkpoint.<number>.<of>.parquet
        for parts in {name.split(".")[3] for name in found}:
            together = tuple(name for name in found if name.split(".")[3] == parts)
            if len(together) == int(parts):
                return each, together
    return -1, ()


def read_checkpoint(table: Store, names: Iterable[str]) -> Iterator[Mapping[str, Any]]:
    """The actions of a checkpoint's files: ``add``, those in its sidecars included, ``protocol``
    and ``domainMetadata``."""
    for name in names:
        data = table.read(f"{LOG}/{name}")
        actions = decode(data) if name.endswith(".json") else tuple(_of_parquet(data))
        for action in actions:
            if "sidecar" not in action:
                yield action
            else:
                side: str = action["sidecar"]["path"]
                yield from _of_parquet(table.read(f"{LOG}/_sidecars/{side.rpartition('/')[2]}"))


def _of_parquet(data: bytes) -> Iterator[Mapping[str, Any]]:
    """``add``, ``sidecar``, ``protocol`` and ``domainMetadata`` actions of a checkpoint's file.

    delta-rs reads it as the one data file of a table that is made for the purpose.
    """
    from deltalake import DeltaTable, QueryBuilder

    with TemporaryDirectory(prefix="catalog-migrate-") as here:
        table = store_at(here)
        table.make_folder(LOG, above=True)
        table.put_if_absent("actions.parquet", data, durable=False)
        table.put_if_absent(commit_name(0), encode([
            {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}},
            {"metaData": {
                "id": "actions", "format": {"provider": "parquet", "options": {}},
                "schemaString": json.dumps(_ACTIONS), "partitionColumns": [], "configuration": {},
            }},
            {"add": {
                "path": "actions.parquet", "partitionValues": {}, "size": len(data),
                "modificationTime": 0, "dataChange": True,
            }},
        ]), durable=False)
        found = QueryBuilder().register("t", DeltaTable(here)).execute(_QUERY).read_all()
        columns = [found.column(name).to_pylist() for name in found.column_names]
    for (
        reader, writer, readers, writers, domain, setting, removed,
        sidecar, path, size, stats, parsed, kind, vector, offset, deleted,
    ) in zip(*columns, strict=True):
        if reader:
            yield {"protocol": {
                "minReaderVersion": reader, "minWriterVersion": writer,
                "readerFeatures": readers or (), "writerFeatures": writers or (),
            }}
        if domain:
            yield {"domainMetadata": {
                "domain": domain, "configuration": setting, "removed": removed,
            }}
        if sidecar:
            yield {"sidecar": {"path": sidecar}}
        if not path:
            continue  # an action of another kind
        held = None if not kind else {
            "storageType": kind, "pathOrInlineDv": vector, "offset": offset,
            "cardinality": deleted,
        }
        yield {"add": {
            "path": path, "size": size, "stats": stats,
            "numRecords": parsed or None,  # 0 is also read where there is none
            "deletionVector": held,
        }}


def _struct(**fields: Any) -> dict[str, Any]:
    return {"type": "struct", "fields": [
        {"name": name, "type": kind, "nullable": True, "metadata": {}}
        for name, kind in fields.items()
    ]}


_NAMES = {"type": "array", "elementType": "string", "containsNull": True}
_ACTIONS = _struct(
    protocol=_struct(
        minReaderVersion="integer", minWriterVersion="integer", readerFeatures=_NAMES,
        writerFeatures=_NAMES,
    ),
    domainMetadata=_struct(domain="string", configuration="string", removed="boolean"),
    add=_struct(
        path="string", size="long", stats="string",
        stats_parsed=_struct(numRecords="long"),
        deletionVector=_struct(
            storageType="string", pathOrInlineDv="string", offset="integer", cardinality="long",
        ),
    ),
    sidecar=_struct(path="string"),
)
_QUERY = """
SELECT t.protocol['minReaderVersion'] AS reader, t.protocol['minWriterVersion'] AS writer,
  t.protocol['readerFeatures'] AS readers, t.protocol['writerFeatures'] AS writers,
  t."domainMetadata"['domain'] AS domain, t."domainMetadata"['configuration'] AS setting,
  t."domainMetadata"['removed'] AS removed,
  t.sidecar['path'] AS sidecar, t."add"['path'] AS path, t."add"['size'] AS size,
  t."add"['stats'] AS stats, t."add"['stats_parsed']['numRecords'] AS parsed,
  t."add"['deletionVector']['storageType'] AS kind,
  t."add"['deletionVector']['pathOrInlineDv'] AS vector,
  t."add"['deletionVector']['offset'] AS at,
  t."add"['deletionVector']['cardinality'] AS deleted
FROM t
"""
