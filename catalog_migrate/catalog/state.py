"""The catalog's state at one version: every collection decoded when it is first looked at."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, TypeVar, cast

import msgspec

from catalog_migrate.catalog.log import LogSnapshot
from catalog_migrate.catalog.records import (
    COLLECTIONS,
    FORMAT_VERSION,
    AllocatorRecord,
    ClusterRecord,
    ConfigRecord,
    HoldRecord,
    IntentRecord,
    ItemRecord,
    LeaseRecord,
    MappingRecord,
    OperationRecord,
    Owner,
    Record,
    ReleaseRecord,
    SessionRecord,
    ShardRecord,
    StreamRecord,
    TombstoneRecord,
)
from catalog_migrate.errors import CatalogCorrupt, UnsupportedFormat

R = TypeVar("R")

RawCollections = Mapping[str, Mapping[str, str]]
"""Collection -> key -> the record's JSON text, as it stands in the log."""

_DECODERS = {name: msgspec.json.Decoder(record) for name, record in COLLECTIONS.items()}
SCHEMAS = "schemas"
"""Setting: the schemas that a release has left behind, as JSON."""

_ENCODER = msgspec.json.Encoder(order="deterministic")
_NOTHING: Mapping[str, str] = MappingProxyType({})
_RESTORE = "restore the log from a copy; nothing was written"


def encode_record(record: Record) -> str:
    """A record's JSON text: fields in declared order, mappings sorted, defaults left out."""
    return _ENCODER.encode(record).decode()


def decode_record(collection: str, key: str, text: str) -> Record:
    """Read one record back; :class:`CatalogCorrupt` names collection and key when it is none."""
    try:
        return _DECODERS[collection].decode(text)
    except (msgspec.DecodeError, UnicodeError) as error:
        raise CatalogCorrupt(
            f"{collection} {key!r} of the catalog is not readable: {error}",
            remedy=_RESTORE, collection=collection, key=key,
        ) from error


def app_id_of(lineage: str) -> str:
    """The Delta application under which the holders of an installation seal and fence shards."""
    return f"catalog_migrate/{lineage}"


def sum_rows(rows: Iterable[tuple[str, str, str, int]]) -> list[tuple[str, str, str]]:
    """Sum the rows of a log: what is left once, in the order of its first appearance.

    Raises :class:`CatalogCorrupt` when a sum is neither zero nor one.
    """
    totals: dict[tuple[str, str, str], int] = {}
    for kind, key, value, diff in rows:
        row = (kind, key, value)
        totals[row] = totals.get(row, 0) + diff
    for (kind, key, _), total in totals.items():
        if total not in (0, 1):
            raise CatalogCorrupt(
                f"{kind} {key!r} is in the log {total} times", remedy=_RESTORE,
                collection=kind, key=key,
            )
    return [row for row, total in totals.items() if total]


class State:
    """The committed state at one version of the log; immutable.

    A collection costs nothing until it is looked at. Collections of a kind that this tool does
    not know are carried in ``raw`` untouched.
    """

    __slots__ = ("_decoded", "raw", "version")

    def __init__(
        self, version: int, raw: RawCollections, decoded: dict[str, Any] | None = None
    ) -> None:
        self.version = version
        self.raw = raw
        self._decoded: dict[str, Any] = {} if decoded is None else decoded

    @classmethod
    def from_snapshot(cls, snapshot: LogSnapshot) -> State:
        """Read a snapshot; :class:`CatalogCorrupt` for two values under a key,
        :class:`UnsupportedFormat` for a catalog that a newer tool wrote.

        A snapshot is read once: afterwards it carries its state."""
        if snapshot.state is not None:
            return snapshot.state
        raw: dict[str, dict[str, str]] = {}
        for kind, key, value in snapshot.rows:
            collection = raw.get(kind)
            if collection is None:
                collection = raw[kind] = {}
            if key in collection:
                raise CatalogCorrupt(
                    f"{kind} {key!r} has two values", remedy=_RESTORE, collection=kind, key=key
                )
            collection[key] = value
        state = cls(snapshot.version, raw)
        _require_format(state)
        snapshot.keep(state)
        return state

    def _collection(self, name: str, _: type[R]) -> Mapping[str, R]:
        try:
            found: Mapping[str, R] = self._decoded[name]
        except KeyError:
            return self._decode(name)
        return found

    def _decode(self, name: str) -> Mapping[str, Any]:
        decode = _DECODERS[name].decode
        texts = self.raw.get(name, _NOTHING)
        try:
            values = {key: decode(text) for key, text in texts.items()}
        except (msgspec.DecodeError, UnicodeError):
            values = {key: decode_record(name, key, text) for key, text in texts.items()}
        decoded = self._decoded[name] = MappingProxyType(values)
        return decoded

    @property
    def config(self) -> Mapping[str, ConfigRecord]:
        """Settings by name."""
        return self._collection("config", ConfigRecord)

    @property
    def mappings(self) -> Mapping[str, MappingRecord]:
        """Mappings by :func:`~catalog_migrate.catalog.records.identity_text`."""
        return self._collection("mapping", MappingRecord)

    @property
    def items(self) -> Mapping[str, ItemRecord]:
        """Objects in force by item id."""
        return self._collection("item", ItemRecord)

    @property
    def shards(self) -> Mapping[str, ShardRecord]:
        """Every shard ever handed out, by its path relative to the warehouse."""
        return self._collection("shard", ShardRecord)

    @property
    def intents(self) -> Mapping[str, IntentRecord]:
        """Attempts that may have left something behind, by epoch."""
        return self._collection("intent", IntentRecord)

    @property
    def leases(self) -> Mapping[str, LeaseRecord]:
        """Leases by key, free ones included."""
        return self._collection("lease", LeaseRecord)

    @property
    def allocators(self) -> Mapping[str, AllocatorRecord]:
        """Counters ``i``, ``s`` and ``u``."""
        return self._collection("allocator", AllocatorRecord)

    @property
    def operations(self) -> Mapping[str, OperationRecord]:
        """Long acts by id."""
        return self._collection("operation", OperationRecord)

    @property
    def holds(self) -> Mapping[str, HoldRecord]:
        """Why queries must not run, by ``<item id>/<holder>/<n>``."""
        return self._collection("hold", HoldRecord)

    @property
    def streams(self) -> Mapping[str, StreamRecord]:
        """What the positions of sources and sinks mean, by item id."""
        return self._collection("stream", StreamRecord)

    @property
    def clusters(self) -> Mapping[str, ClusterRecord]:
        """What each cluster's runtime was started with, by item id."""
        return self._collection("cluster", ClusterRecord)

    @property
    def sessions(self) -> Mapping[str, SessionRecord]:
        """Processes that started and may live, by their random ids."""
        return self._collection("session", SessionRecord)

    @property
    def tombstones(self) -> tuple[TombstoneRecord, ...]:
        """Names still to be dropped, in work order: by serial, then position."""
        rows = self.tombstone_rows.values()
        return tuple(sorted(rows, key=lambda row: (row.serial, row.position)))

    @property
    def tombstone_rows(self) -> Mapping[str, TombstoneRecord]:
        """Tombstones by key ``<serial>/<position>``."""
        return self._collection("tombstone", TombstoneRecord)

    @property
    def releases(self) -> tuple[ReleaseRecord, ...]:
        """The history of releases, by owner and order of arrival."""
        rows = self._collection("release", ReleaseRecord)
        return tuple(rows[key] for key in sorted(rows, key=_release_order))

    def release_rows(self, owner: str) -> dict[str, ReleaseRecord]:
        """One owner's history by its keys ``<owner>/<n>``, oldest first."""
        rows = self._collection("release", ReleaseRecord)
        own = [key for key, row in rows.items() if row.owner == owner]
        return {key: rows[key] for key in sorted(own, key=_release_order)}

    def release_in_force(self, owner: Owner = "release") -> ReleaseRecord | None:
        """The release that an owner's objects are of, None before the first."""
        newest: tuple[tuple[str, int, str], ReleaseRecord] | None = None
        for key, row in self._collection("release", ReleaseRecord).items():
            if row.in_force and row.owner == owner:
                order = _release_order(key)
                if newest is None or order > newest[0]:
                    newest = order, row
        return None if newest is None else newest[1]

    def setting(self, name: str) -> str:
        """The value of one setting; :class:`CatalogCorrupt` when it is missing."""
        record = self.config.get(name)
        if record is None:
            raise CatalogCorrupt(f"the catalog has no {name!r}", remedy=_RESTORE, key=name)
        return record.value

    @property
    def former_schemas(self) -> tuple[str, ...]:
        """Schemas that a release had names in once and has left: a late statement may still make
        one there."""
        record = self.config.get(SCHEMAS)
        return () if record is None else msgspec.json.decode(record.value, type=tuple[str, ...])

    def has_owner(self, owner: Owner) -> bool:
        """Whether any object is of this owner; looks at the texts, decodes nothing."""
        mark = f'"owner":"{owner}"'
        return any(mark in text for text in self.raw.get("mapping", _NOTHING).values())

    @property
    def has_streams(self) -> bool:
        """Whether there are connections, sources or sinks; looks at the texts, decodes nothing."""
        marks = ('"kind":"connection"', '"kind":"source"', '"kind":"sink"', '"owner":"shipped"')
        texts = self.raw.get("mapping", _NOTHING).values()
        return any(mark in text for text in texts for mark in marks)

    def set_aside(self) -> tuple[str, ...]:
        """Quarantined objects with the reason; decodes only these."""
        found = [
            self.items[item_id] for item_id, text in self.raw.get("item", _NOTHING).items()
            if '"quarantined":' in text
        ]
        return tuple(sorted(
            f"{item.definition.kind} {item.definition.item_name}: {item.quarantined}"
            for item in found if item.quarantined is not None
        ))

    def shards_of_kind(self, kind: str) -> tuple[str, ...]:
        """Relative paths of the shards of all items of a kind, sorted.

        Looks for the kind in the texts first, so it costs next to nothing without any.
        """
        mark = f'"kind":"{kind}"'
        found = [
            self.items[item_id].shard
            for item_id, text in self.raw.get("item", _NOTHING).items()
            if mark in text and self.items[item_id].definition.kind == kind
        ]
        return tuple(sorted(shard for shard in found if shard is not None))

    @property
    def serial(self) -> int:
        """Raised by every commit that changes mappings, items or committed shards."""
        value = self.setting("serial")
        if not value.isdecimal():
            raise CatalogCorrupt(f"the serial is {value!r}", remedy=_RESTORE, key="serial")
        return int(value)

    @property
    def lineage(self) -> str:
        """The random name that this catalog was born with."""
        return self.setting("lineage")

    @property
    def app_id(self) -> str:
        """The Delta application under which seals and fences of this catalog's holders go."""
        return app_id_of(self.lineage)

    def changed(self, version: int, edits: Mapping[tuple[str, str], str | None]) -> State:
        """The state after ``edits`` ((collection, key) -> new JSON text, None to delete).

        What was decoded already is kept: only the edited records are decoded again, on demand.
        """
        raw = dict(self.raw)
        decoded = dict(self._decoded)
        touched: dict[str, dict[str, str]] = {}
        fresh: dict[str, dict[str, Any]] = {}
        for (collection, key), text in edits.items():
            if collection not in touched:
                touched[collection] = dict(raw.get(collection, _NOTHING))
                if collection in decoded:
                    fresh[collection] = dict(decoded[collection])
            if text is None:
                touched[collection].pop(key, None)
                if collection in fresh:
                    fresh[collection].pop(key, None)
            else:
                touched[collection][key] = text
                if collection in fresh:
                    fresh[collection][key] = decode_record(collection, key, text)
        raw.update(touched)
        decoded.update({name: MappingProxyType(values) for name, values in fresh.items()})
        return State(version, raw, decoded)

    def at(self, version: int) -> State:
        """The same state as of a later version that changed nothing."""
        return State(version, self.raw, self._decoded)


def _release_order(key: str) -> tuple[str, int, str]:
    owner, _, number = key.partition("/")
    return owner, int(number) if number.isdecimal() else 0, key


def _require_format(state: State) -> None:
    text = state.raw.get("config", _NOTHING).get("format_version")
    if text is None:
        raise CatalogCorrupt("the catalog has no 'format_version'", remedy=_RESTORE)
    try:
        found = int(cast("ConfigRecord", decode_record("config", "format_version", text)).value)
    except ValueError as error:
        raise CatalogCorrupt(
            "the format version of the catalog is not a number", remedy=_RESTORE
        ) from error
    if found > FORMAT_VERSION:
        raise UnsupportedFormat(
            f"the catalog has format {found}, this tool knows formats up to {FORMAT_VERSION}",
            remedy="use a newer catalog-migrate", found=found, known=FORMAT_VERSION,
        )
