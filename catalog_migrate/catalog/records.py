"""The records of the durable log, one frozen struct a collection, and their JSON form.

A record's JSON is a contract between releases of this tool: fields are only ever added, with a
default. The format version in ``config`` is raised when an older tool could misread a record;
``tests/catalog/golden`` freezes the bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from catalog_migrate.model.findings import Finding
from catalog_migrate.model.layout import Shape
from catalog_migrate.model.names import Identity, ItemKey, identity_of, quote_part
from catalog_migrate.model.objects import Hashes, ObjectDefinition
from catalog_migrate.operations.steps import Executed

FORMAT_VERSION = 6
"""Newest record format this tool reads and writes.

2: a shard has a shape to come to, which an older tool would make of it by names, and wrongly. 3: a
table's columns have ids, which an older tool would leave out of the records that it writes. The
first migration of a table leads a catalog there. 4: sources have tables upstream and schema
registries, connections have tunnels, which an older tool would leave out; the first statement with
one leads a catalog there. 5: a seal outlives the commit, which an older tool would undo too early;
a shard loses properties or gains features in place, which an older tool would leave out or write
without their protocol; a function has no RETURNS, which an older tool would make one of STRING. The
first migration with one of them leads a catalog there. 6: what an unsafe operation was asked for
and commits, and the edit of a checkpoint, are values and no JSON texts, which an older tool could
not read; the first unsafe operation leads a catalog there.
"""

COLUMN_IDS_FORMAT = 3
"""The format of columns with ids."""

EXTERNAL_FORMAT = 4
"""The format of tables upstream, schema registries, tunnels and START OFFSETS."""

IN_PLACE_FORMAT = 5
"""The format of tables that are filled from others, of properties that are unset or set by Spark,
and of functions without RETURNS."""

UNSAFE_FORMAT = 6
"""The format of unsafe operations, and of edits of checkpoints, as values."""

FIRST_FORMAT = 1
"""What a catalog is created with: tools of that format misread nothing in it."""

RECONCILE = "reconcile"
"""Key of the operation row that stands from a commit until the world was brought in line."""

Owner = Literal["release", "system", "user", "shipped"]
"""Whose an object is: the software's release, our own built-ins, or a user.

``shipped`` are a release's connections, sources and sinks: a user may ALTER them."""

ShardState = Literal["building", "live", "retired", "gone"]


def identity_text(identity: Identity) -> str:
    """Return the durable key of a mapping: ``relation:s.t`` with odd parts in backticks, folded."""
    namespace, schema, name = identity
    return f"{namespace}:{quote_part(schema)}.{quote_part(name)}"


class ConfigRecord(msgspec.Struct, frozen=True):
    """One setting: ``format_version lineage serial warehouse ansi time_zone home former schemas``,
    and ``given_back`` once the names were exported."""

    value: str


class ReleaseRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """A release that was once put in force at ``serial``; key ``<owner>/<n>``, n ascending."""

    owner: Owner
    name: str
    manifest_hash: str
    serial: int
    in_force: bool = False


class AllocatorRecord(msgspec.Struct, frozen=True):
    """The next number of a counter; keys ``i``, ``s``, ``u``."""

    next: int


class MappingRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """ItemKey -> the ids and hashes of what has that name; key :func:`identity_text`."""

    schema: str
    kind: str
    name: str
    owner: Owner
    item_id: str
    global_id: str
    fingerprint: str
    definition_hash: str
    storage_hash: str
    text_hash: str = ""
    comment_hash: str = ""
    applied: tuple[str, ...] = ()

    @property
    def key(self) -> ItemKey:
        """(schema, kind, name) as written."""
        return ItemKey(self.schema, self.kind, self.name)

    @property
    def identity(self) -> Identity:
        """What the mapping is found by."""
        return identity_of(self.kind, self.schema, self.name)

    @property
    def hashes(self) -> Hashes:
        """What its definition is compared by."""
        return Hashes(
            self.fingerprint, self.definition_hash, self.storage_hash, self.comment_hash,
            self.text_hash,
        )

    @classmethod
    def of(
        cls, definition: ObjectDefinition, hashes: Hashes, *, owner: Owner, item_id: str,
        global_id: str, applied: tuple[str, ...] = (),
    ) -> MappingRecord:
        """Return the mapping of a definition's name to what it is from now on."""
        return cls(
            definition.schema, definition.kind, definition.name, owner, item_id, global_id,
            hashes.fingerprint, hashes.definition, hashes.storage, hashes.text, hashes.comment,
            applied,
        )


class ColumnIds(msgspec.Struct, frozen=True, omit_defaults=True):
    """Which column of a table is which, whatever it is called by now (as Iceberg's field ids).

    ``ids`` are those of the columns in their order; ``last`` is the highest number handed out, for
    an id never comes back to another column. ``values`` are the numbers that the values of each
    column go by, empty where those are the ids: a decision that replaces all values of a column
    gives them a new number, and the column keeps its id. ``taken`` are columns that a rollback took
    away, by folded name: no release gave them up, so one that brings the name in means them.
    """

    ids: tuple[int, ...]
    last: int
    values: tuple[int, ...] = ()
    taken: dict[str, int] = {}

    @classmethod
    def number(cls, count: int) -> ColumnIds:
        """Those of a new table, and of one that stands in the records of an earlier format."""
        return cls(tuple(range(1, count + 1)), count)

    @property
    def values_of(self) -> dict[int, int]:
        """The number of a column's values by its id."""
        return dict(zip(self.ids, self.values or self.ids, strict=True))


class ItemRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """An object in force: everything needed to build it again; key is its ItemId.

    ``uses`` are the ItemIds that it reads or uses; ``shard`` is the path, relative to the
    warehouse, of the Delta table directory that holds its rows (tables only). ``quarantined`` is
    the reason why a user's object is left out of the world, else None. ``links`` says by role
    (``connection``, ``registry``, ``reads``, ``dead_letters``, ``cluster``, ``secret:<OPTION>``,
    ``table:<upstream table>``) which item a name in ``definition.external`` stands for, so that a
    rename reaches nobody; every linked item is one of ``uses``. ``shipped`` is what the release
    declared, to tell a user's ALTER by.
    ``column_ids`` are a table's; None until its first migration that gives them (:attr:`ids`).
    """

    owner: Owner
    global_id: str
    definition: ObjectDefinition
    uses: tuple[str, ...] = ()
    shard: str | None = None
    quarantined: str | None = None
    links: dict[str, str] = {}
    shipped: ObjectDefinition | None = None
    column_ids: ColumnIds | None = None

    @property
    def ids(self) -> ColumnIds:
        """The ids of the columns: those on record, else their numbers in order."""
        return self.column_ids or ColumnIds.number(len(self.definition.columns))

    @property
    def name_of(self) -> dict[int, str]:
        """The name of each column by its id."""
        names = (column.name for column in self.definition.columns)
        return dict(zip(self.ids.ids, names, strict=True))


def name_item(
    item_id: str, item: ItemRecord, hashes: Hashes, applied: tuple[str, ...] = ()
) -> tuple[str, MappingRecord]:
    """Return the mapping of an item's name to it, behind its key."""
    mapping = MappingRecord.of(
        item.definition, hashes, owner=item.owner, item_id=item_id, global_id=item.global_id,
        applied=applied,
    )
    return identity_text(mapping.identity), mapping


class ShardRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """One physical Delta table directory; key is its path relative to the warehouse, never reused.

    ``source`` / ``source_version`` / ``version``: the shard the rows came from, the version of it
    up to which they were copied (its seal), and the version of *this* shard that holds them.
    ``evolve`` marks metadata changes that were committed and are still to be made.
    ``shape`` is what they lead to by physical names, where columns are renamed, dropped or moved;
    ``unset`` are the keys of properties that a release has left out.
    ``sealed_version`` is the version of the sealing commit; ``retired_at`` is wall-clock seconds,
    used for retention only. ``unfilled`` marks a derived table that is still to be populated.
    ``columns`` are the ids of a retired table's columns by the names that they have in this shard.
    ``renamed`` (format 2 and before) has the names that columns have in ``source`` by those here.
    ``removing`` marks a shard that is gone for everybody, and whose files are still to be deleted.
    ``rows_of`` are the shards, oldest first, whose own rows a rollback put together here; where
    there are none, it has what ``source`` has. ``moved_to`` is the path by which an adopted table
    is known since its directory was moved. ``copied_bytes`` (of ``source``) and ``copy_seconds``
    say what the copy took, for estimates of others; 0 where none was made or timed.
    """

    item_id: str
    global_id: str
    state: ShardState
    source: str | None = None
    source_version: int | None = None
    version: int | None = None
    evolve: bool = False
    sealed_version: int | None = None
    retired_at: int | None = None
    retired_serial: int | None = None
    renamed: dict[str, str] = {}
    unfilled: bool = False
    shape: Shape | None = None
    unset: tuple[str, ...] = ()
    removing: bool = False
    moved_to: str | None = None
    rows_of: tuple[str, ...] = ()
    columns: dict[str, int] = {}
    copied_bytes: int = 0
    copy_seconds: float = 0.0

    def retire(
        self, at: int, serial: int, sealed: int | None, columns: Mapping[int, str]
    ) -> ShardRecord:
        """Return the record from ``serial`` on, when another shard takes the place of this one.

        ``columns`` are the names of its columns by their ids.
        """
        return msgspec.structs.replace(
            self, state="retired", evolve=False, shape=None, unset=(), retired_at=at,
            retired_serial=serial, sealed_version=sealed,
            columns={name: number for number, name in columns.items()},
        )


class UserObjectRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """A user's view or SQL function that reads ours, as of the newest look; key as of a mapping.

    ``reads`` are the keys of what it reads, ours and other users'. ``state`` is ``bound``,
    ``broken`` or ``unknown``, since ``since`` (ISO 8601, UTC) by the release ``release``, with
    Spark's error class and reason. ``original`` is the text that a repair replaced with
    ``repaired`` after the migration to ``repaired_at``; None where nothing was repaired.

    ``serial`` is the one that it was looked at in, 0 where its state is what was found before the
    commit: what is older than the release in force is to be looked at again. ``due`` is what that
    look does to its text: ``repair`` puts ``repaired`` there in place of ``replaces``, ``put back``
    puts ``original``.
    """

    schema: str
    kind: str
    name: str
    reads: tuple[str, ...] = ()
    state: Literal["bound", "broken", "unknown"] = "bound"
    condition: str | None = None
    reason: str | None = None
    release: str = ""
    since: str = ""
    original: str | None = None
    repaired: str | None = None
    repaired_at: int = 0
    serial: int = 0
    due: Literal["repair", "put back"] | None = None
    replaces: str | None = None

    @property
    def key(self) -> ItemKey:
        """(schema, kind, name) as written."""
        return ItemKey(self.schema, self.kind, self.name)

    @property
    def what(self) -> str:
        """Kind and name, for people."""
        return f"{self.kind} {self.key.item_name}"

    def __str__(self) -> str:
        reason, by = self.reason or "", f" by release {self.release}" if self.release else ""
        if self.condition and not reason.startswith(f"[{self.condition}]"):
            reason = f"[{self.condition}] {reason}"
        return f"{self.what}: {self.state} since {self.since}{by}: {reason}"


class TombstoneRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """A name still to be dropped, with exactly what stood there; key ``<serial>/<position>``.

    Work goes by ascending serial, then position (drops order of the OLD graph). ``location`` is a
    table's shard path (relative), ``definition_hash`` a view's or function's.
    """

    item_id: str
    global_id: str
    schema: str
    kind: str
    name: str
    serial: int
    position: int
    location: str | None = None
    definition_hash: str | None = None
    users: tuple[str, ...] = ()


class SealedShard(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a seal changed: to put back when its attempt dies.

    ``properties`` holds the earlier value of each table property (None: it was not set);
    ``follows`` is the version behind which the seal goes, and whatever data comes after it.
    """

    path: str
    follows: int
    properties: dict[str, str | None]


class IntentRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a prepare under ``epoch`` may leave behind; key ``<epoch>``.

    ``abandoned``: its own holder has begun to undo it, so that its commit cannot land any more.
    ``committed``, key ``<epoch>/sealed``: the commit was made, and ``seals`` of tables that stay in
    force are to be taken off behind the changes in place.
    """

    epoch: int
    plan_hash: str
    release: str
    paths: tuple[str, ...] = ()
    seals: tuple[SealedShard, ...] = ()
    abandoned: bool = False
    committed: bool = False


class LeaseRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """Who may work on the world; key ``migration`` or ``cluster/<item id>``.

    ``epoch`` rises at every take-over and never falls. ``holder`` is empty when the lease is
    free. ``host``, ``boot_id``, ``pid`` and ``started`` (the process' start time in clock ticks)
    let a challenger on the same host prove the holder dead; ``since`` is for people.
    ``confirmed`` counts how often the holder, late with its heartbeat, made sure by a commit.
    ``alone`` says that nobody of an earlier epoch could act any more when it was taken.
    """

    epoch: int
    holder: str = ""
    host: str = ""
    boot_id: str = ""
    pid: int = 0
    started: str = ""
    since: str = ""
    confirmed: int = 0
    alone: bool = False


class SessionRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """A process that started, and may live, with the names and columns of ``serial``.

    The key is a random id. ``host``, ``boot_id``, ``pid`` and ``started`` are as in a lease;
    ``since`` is for people. The row ``others`` stands for ``folded`` processes, the newest of
    which is of ``serial``.
    """

    release: str
    serial: int
    holder: str = ""
    host: str = ""
    boot_id: str = ""
    pid: int = 0
    started: str = ""
    since: str = ""
    folded: int = 0


class UnsafeAct(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the history of an unsafe operation says; its row is never retracted.

    ``who`` ran it on ``host`` at ``at`` (ISO 8601, UTC) and gave ``reason``. ``request`` is what is
    carried out and ``commit`` everything that its one commit writes, with what was there before:
    values, which :mod:`~catalog_migrate.streams.catalog.operation_records` reads. ``sources`` and
    ``jobs`` (everything below) are names of that time, ``keys`` the properties touched (never a
    value), ``injected`` the partitions put elsewhere. ``doubled``, ``skipped`` and ``expired`` are
    records, predicted (at most that many unless ``exact``); ``actual_…`` were counted later, None
    until then. ``seconds`` is how long it took, ``undoes`` the operation taken back,
    ``acknowledged`` who has seen it. ``partitions`` are those put elsewhere, in words (``orders:0
    from 6 to 2``). ``restored`` is the version of the table that came back, by which ``removed``
    rows went and ``brought_back`` came; ``backfill_records`` are read into the table afterwards. In
    format 5 and before ``request`` is JSON as text, and so are, in place of ``commit``, ``images``
    (what was there before), ``prepared`` (what is committed after a RESTORE) and ``backfill`` (the
    chunks of what was skipped).
    """

    who: str
    host: str
    at: str
    reason: str
    request: dict[str, Any] | str
    sources: tuple[str, ...] = ()
    jobs: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()
    reset: bool = False
    injected: int = 0
    doubled: int = 0
    skipped: int = 0
    expired: int = 0
    exact: bool = False
    actual_doubled: int | None = None
    actual_skipped: int | None = None
    images: str = ""
    seconds: float = 0.0
    undoes: str = ""
    acknowledged: str = ""
    prepared: str = ""
    backfill: str = ""
    partitions: tuple[str, ...] = ()
    restored: int | None = None
    removed: int = 0
    brought_back: int = 0
    backfill_records: int = 0
    commit: dict[str, Any] | None = None


class OperationRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """A long act on running queries (ALTER CONNECTION and its like), by its id; or what follows a
    commit, by :data:`RECONCILE`.

    ``state`` goes as :data:`~catalog_migrate.operations.kinds.KINDS` declares for ``kind``;
    only the holder of the lease of ``cluster`` moves it. ``target`` is the item that is
    altered from ``before`` to ``after`` (with the links of each); ``dependents`` are the items
    whose queries restart; ``limit`` is how many seconds they have to become healthy;
    ``snapshots`` the number of each dependent's checkpoint snapshot. ``detail`` is for people.
    ``program`` holds the operations that follow the commit, in their order, as JSON, ``executed``
    those of a statement that were executed up to the row's newest commit. ``sick`` has the
    dependents that are not waited for, by item id, with what was wrong before the statement, and
    ``failing`` what their queries failed of. ``findings`` are those that refused it.
    """

    kind: str
    state: str
    detail: dict[str, str] = {}
    cluster: str = ""
    target: str = ""
    before: ObjectDefinition | None = None
    after: ObjectDefinition | None = None
    links_before: dict[str, str] = {}
    links_after: dict[str, str] = {}
    dependents: tuple[str, ...] = ()
    limit: float = 0.0
    validate: bool = True
    snapshots: dict[str, int] = {}
    unsafe: UnsafeAct | None = None
    program: tuple[dict[str, Any], ...] = ()
    executed: tuple[Executed, ...] = ()
    sick: dict[str, str] = {}
    failing: dict[str, str] = {}
    findings: tuple[Finding, ...] = ()


def to_reconcile(step: str, program: tuple[dict[str, Any], ...] = ()) -> OperationRecord:
    """Return the row :data:`RECONCILE` of a commit; ``step`` says in words what is to be done.

    A start looks at names alone, so what changes behind a name must be on record.
    """
    return OperationRecord(
        kind=RECONCILE, state="pending", detail={"step": step}, program=program
    )


class ClusterRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the runtime of a cluster was started with; key is the cluster's item id.

    ``unsafe`` is whether it carries out unsafe operations; a client that acts alone obeys it too.
    """

    unsafe: bool = False


class HoldRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """A reason why a query must not run; key ``<item id>/<holder>/<n>``.

    A query runs when no hold names it, so one holder's release never lifts another's hold; but
    RESUME lifts those of a changed upstream and of repeated failures too. ``holder`` is
    ``operator``, ``operation:<id>``, ``upstream``, ``failure`` or ``fence``.
    ``code`` is that of the error, or Spark's class of it; ``place`` says where (topic, partition,
    offset, table, column, lsn, slot, key as a hash); ``tries`` failed so in a row, 0 where nothing
    was tried. ``remedy`` says what to do, ``statements`` do it: each is one of the product's own.
    """

    item_id: str
    holder: str
    reason: str
    since: str = ""
    code: str = ""
    remedy: str = ""
    statements: tuple[str, ...] = ()
    place: dict[str, str] = {}
    tries: int = 0


class StreamRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the positions of a source or sink mean; key is its item id.

    ``checkpoint`` is its directory, relative to the warehouse. ``upstream`` identifies what the
    positions (or the ledger) belong to: the Kafka cluster's id or the Postgres system identifier,
    ``topics`` a topic's id by its name; both are written before the first batch and compared at
    every start. ``former`` are the topics that a source read before it was moved to others: its
    table holds their rows, whose keys in a sink are formed with their ids. ``generation`` rises
    with every committed edit of positions. ``reads`` is the shard that a sink's positions are of:
    after a migration it stays the old one until that is read to its end. ``edit`` is the newest
    committed edit of positions, its exact lines (JSON as text in format 5 and before): the start of
    the query repeats it on a checkpoint that lacks it. ``snapshot`` numbers the snapshots of a
    POSTGRES source, of ``snapshot_tables`` upstream (``schema.table``; empty: of all, and its slot
    is made again): the start of the query takes the newest where that was not done. ``survey`` is
    what its tables depended on upstream when they were looked at last, as JSON
    (:class:`~catalog_migrate.connectors.postgres.survey.Survey`), ``survey_at_hold`` the one that
    it is held for, which counts once an operator resumes it.
    """

    checkpoint: str
    reads: str = ""
    edit: dict[str, Any] | str = ""
    upstream: str = ""
    topics: dict[str, str] = {}
    former: dict[str, str] = {}
    generation: int = 0
    snapshot: int = 1
    snapshot_tables: tuple[str, ...] = ()
    survey: str = ""
    survey_at_hold: str = ""

    @property
    def known_topics(self) -> dict[str, str]:
        """The id of every topic that rows may be of, those of before included."""
        return {**self.former, **self.topics}


Record = (
    ConfigRecord | ReleaseRecord | AllocatorRecord | MappingRecord | ItemRecord | ShardRecord
    | TombstoneRecord | IntentRecord | LeaseRecord | OperationRecord | HoldRecord | StreamRecord
    | ClusterRecord | SessionRecord | UserObjectRecord
)

COLLECTIONS: dict[str, type[Record]] = {
    "config": ConfigRecord,
    "release": ReleaseRecord,
    "allocator": AllocatorRecord,
    "mapping": MappingRecord,
    "item": ItemRecord,
    "shard": ShardRecord,
    "tombstone": TombstoneRecord,
    "intent": IntentRecord,
    "lease": LeaseRecord,
    "operation": OperationRecord,
    "hold": HoldRecord,
    "stream": StreamRecord,
    "cluster": ClusterRecord,
    "session": SessionRecord,
    "user_object": UserObjectRecord,
}
"""Collection name (the log's ``kind`` column) -> its record type. The set is open."""
