"""The catalog's state at one version: every collection decoded when it is first looked at."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Generic, TypeVar, cast, overload

import msgspec

from catalog_migrate.catalog.records import (
    COLLECTIONS,
    FORMAT_VERSION,
    RECONCILE,
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
    UserObjectRecord,
)
from catalog_migrate.errors import CatalogCorrupt, UnsupportedFormat
from catalog_migrate.model.names import Identity

if TYPE_CHECKING:
    from catalog_migrate.model.graph import DependencyGraph

RawCollections = Mapping[str, Mapping[str, str]]
"""Collection -> key -> the record's JSON text, as it stands in the log."""

LARGE = frozenset({"item", "mapping", "shard"})
"""Collections that have a row for each object; all others together are small."""

_DECODERS = {name: msgspec.json.Decoder(record) for name, record in COLLECTIONS.items()}
SCHEMAS = "schemas"
"""Setting: the schemas that a release has left behind, as JSON."""

_ENCODER = msgspec.json.Encoder(order="deterministic")
_NOTHING: Mapping[str, str] = MappingProxyType({})
_RESTORE = "restore the log from a copy; nothing was written"


def encode_record(record: Record) -> str:
    """Return a record's JSON text: fields in declared order, mappings sorted, defaults left out."""
    return _ENCODER.encode(record).decode()


def find_differences(
    state: State, edits: Mapping[tuple[str, str], Record | None]
) -> dict[tuple[str, str], str | None]:
    """Return those of ``edits`` (None: the record goes) that change ``state``, encoded."""
    texts = {
        place: None if record is None else encode_record(record)
        for place, record in edits.items()
    }
    return {
        (collection, key): text for (collection, key), text in texts.items()
        if state.raw.get(collection, {}).get(key) != text
    }


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


def _collect(rows: Iterable[tuple[str, str, str]]) -> dict[str, dict[str, str]]:
    """Sort rows into collections; :class:`CatalogCorrupt` for two values under a key."""
    raw: dict[str, dict[str, str]] = {}
    for kind, key, value in rows:
        collection = raw.get(kind)
        if collection is None:
            collection = raw[kind] = {}
        if key in collection:
            raise CatalogCorrupt(
                f"{kind} {key!r} has two values", remedy=_RESTORE, collection=kind, key=key
            )
        collection[key] = value
    return raw


class _External(msgspec.Struct, frozen=True):
    registry: str | None = None


class _Definition(msgspec.Struct, frozen=True):
    kind: str
    external: _External | None = None


class _Item(msgspec.Struct, frozen=True):
    definition: _Definition
    shard: str | None = None
    quarantined: str | None = None


class _Mapping(msgspec.Struct, frozen=True):
    kind: str
    owner: str


class _Shard(msgspec.Struct, frozen=True):
    evolve: bool = False
    unfilled: bool = False


_ITEM = msgspec.json.Decoder(_Item)
_MAPPING = msgspec.json.Decoder(_Mapping)
_SHARD = msgspec.json.Decoder(_Shard)
"""Decoders of the few fields that are asked for of all records."""


class Answers(msgspec.Struct, frozen=True):
    """What a plan without changes asks of the large collections, so that it need not read them.

    ``schemes`` counts each owner's mappings by the scheme of their fingerprints, ``tables`` are the
    release's tables: the item id of each live shard.
    """

    schemes: Mapping[str, Mapping[str, int]]
    tables: Mapping[str, str]


class UnreadCollections(Mapping[str, Mapping[str, str]]):
    """The small collections; ``read`` reads the log when a :data:`LARGE` one is looked at."""

    __slots__ = ("_known", "_read")

    def __init__(self, small: RawCollections, read: Callable[[], State]) -> None:
        self._known = small
        self._read: Callable[[], State] | None = read

    def _whole(self) -> RawCollections:
        read = self._read
        if read is not None:
            self._known = read().raw
            self._read = None
        return self._known

    def __getitem__(self, name: str) -> Mapping[str, str]:
        return (self._whole() if name in LARGE else self._known)[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._whole())

    def __len__(self) -> int:
        return len(self._whole())


V = TypeVar("V")
R = TypeVar("R", bound=Record)


class _Kept(Generic[V]):
    """What follows from some collections: found when it is first looked at, kept while they stand.
    """

    def __init__(self, find: Callable[[State], V], *collections: str) -> None:
        self._find = find
        self.collections = frozenset(collections)
        self.__doc__ = find.__doc__

    def __set_name__(self, _: type[State], name: str) -> None:
        self._name = name

    @overload
    def __get__(self, state: None, _: type[State]) -> _Kept[V]: ...

    @overload
    def __get__(self, state: State, _: type[State]) -> V: ...

    def __get__(self, state: State | None, _: type[State]) -> V | _Kept[V]:
        if state is None:
            return self
        found = state.__dict__[self._name] = self._find(state)
        return found


def _keep(*collections: str) -> Callable[[Callable[[State], V]], _Kept[V]]:
    return lambda find: _Kept(find, *collections)


class _Collection(_Kept[Mapping[str, R]]):
    """A collection's records by their keys; its place in a state holds them once decoded."""

    def __init__(self, name: str) -> None:
        super().__init__(self._decode, name)
        self.name = name

    def _decode(self, state: State) -> Mapping[str, R]:
        texts = state.raw.get(self.name, _NOTHING)
        decode = cast("Callable[[str], R]", _DECODERS[self.name].decode)
        try:
            values = {key: decode(text) for key, text in texts.items()}
        except (msgspec.DecodeError, UnicodeError):
            for key, text in texts.items():
                decode_record(self.name, key, text)  # names the one that is not readable
            raise
        return MappingProxyType(values)


class State:
    """The committed state at one version of the log; immutable.

    A collection costs nothing until it is looked at, and little from then on. Collections of a
    kind that this tool does not know are carried in ``raw`` untouched.
    """

    config = _Collection[ConfigRecord]("config")
    """Settings by name."""
    mappings = _Collection[MappingRecord]("mapping")
    """Mappings by :func:`~catalog_migrate.catalog.records.identity_text`."""
    items = _Collection[ItemRecord]("item")
    """Objects in force by item id."""
    shards = _Collection[ShardRecord]("shard")
    """Every shard ever handed out, by its path relative to the warehouse."""
    intents = _Collection[IntentRecord]("intent")
    """Attempts that may have left something behind, by epoch."""
    leases = _Collection[LeaseRecord]("lease")
    """Leases by key, free ones included."""
    allocators = _Collection[AllocatorRecord]("allocator")
    """Counters ``i``, ``s`` and ``u``."""
    operations = _Collection[OperationRecord]("operation")
    """Long acts by id."""
    holds = _Collection[HoldRecord]("hold")
    """Why queries must not run, by ``<item id>/<holder>/<n>``."""
    streams = _Collection[StreamRecord]("stream")
    """What the positions of sources and sinks mean, by item id."""
    clusters = _Collection[ClusterRecord]("cluster")
    """What each cluster's runtime was started with, by item id."""
    sessions = _Collection[SessionRecord]("session")
    """Processes that started and may live, by their random ids."""
    tombstone_rows = _Collection[TombstoneRecord]("tombstone")
    """Names still to be dropped, by ``<serial>/<position>``."""
    release_records = _Collection[ReleaseRecord]("release")
    """Releases that were ever in force, by ``<owner>/<n>``."""
    user_objects = _Collection[UserObjectRecord]("user_object")
    """Users' views and functions that read ours, by
    :func:`~catalog_migrate.catalog.records.identity_text`."""

    def __init__(self, version: int, raw: RawCollections) -> None:
        self.version = version
        self.raw = raw
        self.is_sound = False
        """Whether :func:`~catalog_migrate.catalog.check.check` has looked at every record of it,
        here or in the states that it came from."""

    @classmethod
    def from_rows(cls, version: int, rows: Iterable[tuple[str, str, str]]) -> State:
        """Read the rows (kind, key, value) that a log sums to, in no order.

        Raises :class:`CatalogCorrupt` for two values under a key, :class:`UnsupportedFormat` for a
        catalog that a newer tool wrote.
        """
        state = cls(version, _collect(rows))
        _require_format(state)
        return state

    @classmethod
    def from_kept(cls, version: int, raw: RawCollections, answers: Answers) -> State:
        """Return the state of collections that were kept, with ``answers``; raises
        :class:`UnsupportedFormat` as :meth:`from_rows` does."""
        state = cls(version, raw)
        state.__dict__["answers"] = answers
        _require_format(state)
        return state

    @property
    def rows(self) -> list[tuple[str, str, str]]:
        """(kind, key, value) of every record: what a log sums to."""
        return [
            (kind, key, value) for kind, held in self.raw.items() for key, value in held.items()
        ]

    @_keep("mapping", "shard")
    def answers(self) -> Answers:
        """See :class:`Answers`."""
        schemes: dict[str, dict[str, int]] = {}
        tables: set[str] = set()
        for row in self.mappings.values():
            counts = schemes.setdefault(row.owner, {})
            scheme = row.fingerprint.partition(":")[0]
            counts[scheme] = counts.get(scheme, 0) + 1
            if row.kind == "table" and row.owner == "release":
                tables.add(row.item_id)
        return Answers(schemes, {
            path: shard.item_id for path, shard in self.shards.items()
            if shard.state == "live" and shard.item_id in tables
        })

    def find(self, collection: str, key: str) -> Record | None:
        """Return one record, None where there is none; decodes no more than that."""
        decoded: Mapping[str, Record] | None = self.__dict__.get(_ATTRIBUTES.get(collection, ""))
        if decoded is not None:
            return decoded.get(key)
        text = self.raw.get(collection, _NOTHING).get(key)
        return None if text is None else decode_record(collection, key, text)

    @_keep("tombstone")
    def tombstones(self) -> tuple[TombstoneRecord, ...]:
        """Names still to be dropped, in work order: by serial, then position."""
        rows = self.tombstone_rows.values()
        return tuple(sorted(rows, key=lambda row: (row.serial, row.position))) if rows else ()

    @_keep("release")
    def releases(self) -> tuple[ReleaseRecord, ...]:
        """Return the history of releases, by owner and order of arrival."""
        rows = self.release_records
        return tuple(rows[key] for key in sorted(rows, key=_release_order))

    def release_rows(self, owner: str) -> dict[str, ReleaseRecord]:
        """One owner's history by its keys ``<owner>/<n>``, oldest first."""
        rows = self.release_records
        own = [key for key, row in rows.items() if row.owner == owner]
        return {key: rows[key] for key in sorted(own, key=_release_order)}

    @_keep("release")
    def _in_force(self) -> Mapping[str, ReleaseRecord]:
        return {row.owner: row for row in self.releases if row.in_force}

    def release_in_force(self, owner: Owner = "release") -> ReleaseRecord | None:
        """The release that an owner's objects are of, None before the first."""
        return self._in_force.get(owner)

    def setting(self, name: str) -> str:
        """Return the value of one setting; :class:`CatalogCorrupt` when it is missing."""
        record = self.config.get(name)
        if record is None:
            raise CatalogCorrupt(f"the catalog has no {name!r}", remedy=_RESTORE, key=name)
        return record.value

    @_keep("config")
    def former_schemas(self) -> tuple[str, ...]:
        """Schemas that a release had names in once and has left: a late statement may still make
        one there."""
        record = self.config.get(SCHEMAS)
        return () if record is None else msgspec.json.decode(record.value, type=tuple[str, ...])

    def has_owner(self, owner: Owner) -> bool:
        """Return whether any object is of this owner."""
        return any(row.owner == owner for _, row in self._glance("mapping", _MAPPING))

    @property
    def is_pending(self) -> bool:
        """Whether an attempt or what a commit calls for is unfinished; decodes nothing."""
        return bool(
            self.raw.get("intent") or self.raw.get("tombstone")
            or RECONCILE in self.raw.get("operation", {})
        )

    @property
    def has_streams(self) -> bool:
        """Whether there are connections, sources or sinks, or what a release brought beside
        them."""
        kinds = {"connection", "source", "sink"}
        return any(
            row.kind in kinds or row.owner == "shipped"
            for _, row in self._glance("mapping", _MAPPING)
        )

    @property
    def has_registries(self) -> bool:
        """Whether a source or sink uses a schema registry."""
        externals = (item.definition.external for _, item in self._glance("item", _ITEM))
        return any(each is not None and each.registry is not None for each in externals)

    @property
    def has_pending_changes(self) -> bool:
        """Whether a shard has changes in place that are still to be made."""
        return any(shard.evolve for _, shard in self._glance("shard", _SHARD))

    @property
    def unfilled_tables(self) -> tuple[str, ...]:
        """Names of the living derived tables that were not populated yet, sorted."""
        found = {path for path, shard in self._glance("shard", _SHARD) if shard.unfilled}
        if not found:
            return ()  # and no item is decoded
        return tuple(sorted(
            str(item.definition.item_name) for item in self.items.values() if item.shard in found
        ))

    def list_quarantined(self) -> tuple[str, ...]:
        """Quarantined objects with the reason; decodes only these."""
        found = {
            item_id: item.quarantined for item_id, item in self._glance("item", _ITEM)
            if item.quarantined is not None
        }
        definitions = ((self.items[item_id].definition, why) for item_id, why in found.items())
        return tuple(sorted(f"{each.kind} {each.item_name}: {why}" for each, why in definitions))

    @property
    def unbound_user_objects(self) -> tuple[UserObjectRecord, ...]:
        """Users' views and functions that are broken, or could not be bound when they were looked
        at last, by name."""
        return tuple(
            row for _, row in sorted(self.user_objects.items())
            if row.state in ("broken", "unknown")
        )

    @property
    def is_users_look_due(self) -> bool:
        """Whether a user's object was looked at last before a release in force came in.

        Decodes nothing where none is on record.
        """
        if not self.raw.get("user_object"):
            return False
        newest = max((row.serial for row in self.releases if row.in_force), default=0)
        return any(row.serial < newest for row in self.user_objects.values())

    def shards_of_kind(self, kind: str) -> tuple[str, ...]:
        """Relative paths of the shards of all items of a kind, sorted."""
        return tuple(sorted(
            item.shard for _, item in self._glance("item", _ITEM)
            if item.shard is not None and item.definition.kind == kind
        ))

    def _glance(
        self, collection: str, decoder: msgspec.json.Decoder[V]
    ) -> Iterator[tuple[str, V]]:
        """Give each record by its key with few of its fields: that costs a tenth of decoding it,
        and nothing of it is kept."""
        for key, text in self.raw.get(collection, _NOTHING).items():
            try:
                yield key, decoder.decode(text)
            except (msgspec.DecodeError, UnicodeError):
                decode_record(collection, key, text)  # names it
                raise

    @_keep("item")
    def item_ids(self) -> Mapping[Identity, str]:
        """Return the ids of the items in force by their names."""
        return {item.definition.identity: item_id for item_id, item in self.items.items()}

    @_keep("item")
    def graph(self) -> DependencyGraph:
        """Who uses whom by name, with the roles of the items' ``links``: all objects in force.

        Edges to what is gone (a quarantined object may have them) are left out.
        """
        from catalog_migrate.model.graph import DependencyGraph

        items = self.items
        names = {item_id: name for name, item_id in self.item_ids.items()}
        return DependencyGraph(
            {
                names[item_id]: [names[use] for use in item.uses if use in names]
                for item_id, item in items.items()
            },
            {names[item_id]: item.definition.key for item_id, item in items.items()},
            {
                names[item_id]: {
                    role: names[use] for role, use in item.links.items() if use in names
                }
                for item_id, item in items.items() if item.links
            },
        )

    def select_graph(self, *, system: bool) -> DependencyGraph:
        """Return :attr:`graph`, without our own built-ins unless ``system``."""
        if system:
            return self.graph
        owners = {name: self.items[item_id].owner for name, item_id in self.item_ids.items()}
        return self.graph.part(name for name, owner in owners.items() if owner != "system")

    @_keep("config")
    def serial(self) -> int:
        """Raised by every commit that changes mappings, items or committed shards."""
        value = self.setting("serial")
        if not value.isdecimal():
            raise CatalogCorrupt(f"the serial is {value!r}", remedy=_RESTORE, key="serial")
        return int(value)

    @_keep("config")
    def lineage(self) -> str:
        """Return the random name that this catalog was born with."""
        return self.setting("lineage")

    @property
    def home(self) -> str | None:
        """The directory that it is at home in; None for a catalog without one."""
        record = self.config.get("home")
        return None if record is None else record.value

    @property
    def app_id(self) -> str:
        """The Delta application under which seals and fences of this catalog's holders go."""
        return app_id_of(self.lineage)

    def apply_edits(self, version: int, edits: Mapping[tuple[str, str], str | None]) -> State:
        """Return the state after ``edits`` ((collection, key) -> new JSON text, None to delete).

        What was decoded already is kept: only the edited records are decoded again, on demand.
        """
        raw = dict(self.raw)
        touched: dict[str, dict[str, str]] = {}
        fresh: dict[str, dict[str, Record]] = {}
        for (collection, key), text in edits.items():
            if collection not in touched:
                touched[collection] = raw[collection] = dict(raw.get(collection, _NOTHING))
                decoded = self.__dict__.get(_ATTRIBUTES.get(collection, ""))
                if decoded is not None:
                    fresh[collection] = dict(decoded)
            texts, records = touched[collection], fresh.get(collection, {})
            if text is None:
                texts.pop(key, None)
                records.pop(key, None)
            else:
                texts[key] = text
                if collection in fresh:
                    records[key] = decode_record(collection, key, text)
        after = State(version, raw)
        after.__dict__ |= {
            name: value for name, value in dict(self.__dict__).items()
            if name in _KEPT and _KEPT[name].isdisjoint(touched)
        }
        after.__dict__ |= {
            _ATTRIBUTES[name]: MappingProxyType(records) for name, records in fresh.items()
        }
        return after

    def at(self, version: int) -> State:
        """Return the same state as of a later version that changed nothing."""
        if version == self.version:
            return self
        later = State(version, self.raw)
        later.__dict__ = {**self.__dict__, "version": version}
        return later


_KEPT = {
    name: kept.collections for name, kept in vars(State).items() if isinstance(kept, _Kept)
}
_ATTRIBUTES = {
    kept.name: name for name, kept in vars(State).items() if isinstance(kept, _Collection)
}
"""A collection -> the attribute that holds it."""


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
