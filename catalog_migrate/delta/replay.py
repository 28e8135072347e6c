"""Tables on an object store as their own commits tell of them, each of which is read once.

delta-rs opens a table of n commits by 2 + 2n requests, and again for every question. Here a
question costs the listing of the log, and a request for each commit that came since the last one:
an object with the same ETag is the same. Only what is asked of a table without its rows is known.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from catalog_migrate.delta.files import Sizes, reconcile, size_of
from catalog_migrate.delta.log import (
    LOG,
    commit_name,
    decode,
    info_in,
    transactions_in,
    versions_of,
)
from catalog_migrate.store.address import normalise, storage_of
from catalog_migrate.store.object_store import ObjectStore, object_store_at

if TYPE_CHECKING:
    from deltalake import DeltaTable, Schema

_MANY = 16
"""More commits than these are left to delta-rs, which reads them beside each other."""
_TABLES = 256
"""So many tables are remembered, those asked for last."""
_STATES = 3
"""So many versions of each."""


@dataclass(frozen=True)
class ReplayedTable:
    """A table at one version; answers as :class:`deltalake.DeltaTable` does, without a request.

    ``files`` are its data files, ``said`` what the newest commit says of
    itself.
    """

    table_uri: str
    number: int
    protocol_action: Mapping[str, Any]
    metadata_action: Mapping[str, Any]
    transactions: Mapping[str, int]
    files: Sizes
    said: Mapping[str, Any] = field(default_factory=dict)

    def version(self) -> int:
        return self.number

    def protocol(self) -> Any:
        found = self.protocol_action
        return SimpleNamespace(
            min_reader_version=found["minReaderVersion"],
            min_writer_version=found["minWriterVersion"],
            reader_features=found.get("readerFeatures"),
            writer_features=found.get("writerFeatures"),
        )

    def metadata(self) -> Any:
        found = self.metadata_action
        return SimpleNamespace(
            id=found["id"], name=found.get("name"), description=found.get("description"),
            partition_columns=found.get("partitionColumns") or [],
            configuration=found.get("configuration") or {}, created_time=found.get("createdTime"),
        )

    @cached_property
    def _schema(self) -> Schema:
        from deltalake import Schema

        return Schema.from_json(self.metadata_action["schemaString"])

    def schema(self) -> Schema:
        return self._schema

    def transaction_version(self, app_id: str) -> int | None:
        return self.transactions.get(app_id)

    def history(self, limit: int) -> list[dict[str, Any]]:
        """Return what the newest commit says of itself; of the others nothing is kept."""
        return [{**self.said, "version": self.number}][:limit]


@dataclass(slots=True)
class _Known:
    """What was seen of one table: by version, the mark of its commits and the table at it."""

    states: OrderedDict[int, tuple[int, ReplayedTable | DeltaTable]] = field(
        default_factory=OrderedDict
    )


# What an object with an ETag holds is the same whoever asks, so a process remembers it.
_known: OrderedDict[str, _Known] = OrderedDict()
_lock = threading.Lock()


def newest_version(address: str) -> int | None:
    """Return the newest version by one listing; None where no table is."""
    commits, checkpoints = versions_of(_objects(address)[1])
    return max([*commits, *checkpoints], default=None)


def replay(
    address: str, version: int | None, load: Callable[[int], DeltaTable]
) -> ReplayedTable | DeltaTable:
    """The table at an address, at its newest version or the one asked for; never to be written by.

    A log with more in it than is kept account of here is left to delta-rs, by ``load`` of a
    version. FileNotFoundError where there is none, StoreFailure where the store does not answer.
    """
    if version is not None and (seen := _find_known(address).get(version)) is not None:
        return seen[1]
    store, objects = _objects(address)
    commits, checkpoints = versions_of(objects)
    newest = max([*commits, *checkpoints], default=-1)
    wanted = newest if version is None else version
    if newest < 0 or wanted > newest:
        raise FileNotFoundError(f"no table of version {version or 0} is at {address}")
    tags = {each: objects[_name(each)] for each in commits}
    base = _base(address, wanted, tags)
    if base is not None and base.number == wanted:
        return base
    found: ReplayedTable | DeltaTable | None = None
    # a checkpoint says more than the commits behind it, which may be missing
    if base is not None or min(checkpoints, default=wanted + 1) > wanted:
        first = 0 if base is None else base.number + 1
        found = _replay(address, store, base, range(first, wanted + 1), commits)
    if found is None:
        found = load(wanted)
    _remember(address, wanted, _mark(tags, wanted), found)
    return found


def forget(address: str) -> None:
    """Know nothing of a table that was removed."""
    with _lock:
        _known.pop(normalise(address), None)


def _objects(address: str) -> tuple[ObjectStore, dict[str, str]]:
    store = object_store_at(address, storage_of(address))
    return store, store.tags(LOG)


def _name(version: int) -> str:
    return commit_name(version).rpartition("/")[2]


def _mark(tags: Mapping[int, str], upto: int) -> int:
    """Told from the ETags of all commits: a session with an unsafe LogStore overwrites any."""
    return hash(tuple(sorted(each for each in tags.items() if each[0] <= upto)))


def _find_known(address: str) -> dict[int, tuple[int, ReplayedTable | DeltaTable]]:
    with _lock:
        known = _known.get(normalise(address))
        return {} if known is None else dict(known.states)


def _base(address: str, wanted: int, tags: Mapping[int, str]) -> ReplayedTable | None:
    """The newest state that is remembered, not above ``wanted``, and is in this very log."""
    seen = _find_known(address)
    for version in sorted(seen, reverse=True):
        if version > wanted:
            continue
        mark, state = seen[version]
        if isinstance(state, ReplayedTable) and _mark(tags, version) == mark:
            return state
    return None


def _remember(
    address: str, version: int, mark: int, state: ReplayedTable | DeltaTable
) -> None:
    with _lock:
        known = _known.setdefault(normalise(address), _Known())
        _known.move_to_end(normalise(address))
        for other, (_, held) in tuple(known.states.items()):
            if other == version or held is state:
                del known.states[other]
        known.states[version] = mark, state
        while len(known.states) > _STATES:
            known.states.popitem(last=False)
        while len(_known) > _TABLES:
            _known.popitem(last=False)


def _replay(
    address: str, store: ObjectStore, base: ReplayedTable | None, versions: range,
    there: Collection[int],
) -> ReplayedTable | None:
    """The state behind some commits; None where they are too many, or not all ``there``, and where
    it has what is not kept account of here."""
    if len(versions) > _MANY or not set(versions) <= set(there):
        return None
    commits = [decode(store.read(commit_name(version))) for version in versions]
    held = base or ReplayedTable(address, -1, {}, {}, {}, {})
    files = dict(held.files)
    for actions in commits:
        reconcile(files, actions, size_of)
    every = [action for actions in commits for action in actions]
    newest = {kind: told for action in every for kind, told in action.items()}
    protocol = newest.get("protocol", held.protocol_action)
    metadata = newest.get("metaData", held.metadata_action)
    if not protocol or not metadata:
        return None
    return ReplayedTable(
        address, versions[-1], protocol, metadata, {**held.transactions, **transactions_in(every)},
        files, info_in(commits[-1]),
    )
