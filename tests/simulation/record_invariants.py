"""What the fields of records promise (:mod:`catalog_migrate.catalog.records`), held to it at every
commit: each row that a commit changes is compared with the release in force and with the world."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from catalog_migrate.catalog.records import ItemRecord, ShardRecord
from catalog_migrate.catalog.state import State
from catalog_migrate.model.names import Identity
from catalog_migrate.model.objects import Hashes, ObjectDefinition
from catalog_migrate.release.release import Release, facts_of
from catalog_migrate.testing.world import Shard, World
from tests.simulation.draft import DraftedRelease
from tests.simulation.invariants import InvariantBroken, require
from tests.simulation.ledger import Ledger

APPEND_ONLY = "delta.appendOnly"

_NOTHING: Mapping[str, str] = {}


class RecordWatch:
    """I6: what is on record is what is, row by row, as far as a commit changed it."""

    def __init__(
        self, world: World, ledger: Ledger, releases: Sequence[Release], warehouse: str
    ) -> None:
        self._world = world
        self._ledger = ledger
        self._warehouse = warehouse
        self._releases = {
            release.name: (release, {each.identity: each for each in release.objects})
            for release in releases
        }
        self._seen: Mapping[str, Mapping[str, str]] = {}
        self._serial = 0
        self._looked_at = -1
        self._names: set[str] = set()
        self._columns: dict[str, dict[int, int]] = {}  # by item: which column an id stood for
        self._standing: dict[str, dict[int, int]] = {}

    def see(self, state: State) -> None:
        """Look at a committed state, after the ledger has heard of its release."""
        raw = state.raw
        before, self._seen = self._seen, raw
        if raw.get("release") is not before.get("release"):
            self._check_releases(state)
        if raw.get("item") is not before.get("item"):
            items = _changed(state, before, "item")
            if before and items:  # what a plan was made of is told by its serial
                require("I6", state.serial > self._serial, f"objects change under {self._serial}")
            self._check_items(state, items)
            self._serial = state.serial
        if raw.get("mapping") is not before.get("mapping"):
            for key in _changed(state, before, "mapping"):
                self._check_hashes(state, key)
        if raw.get("shard") is not before.get("shard"):
            for path in _changed(state, before, "shard"):
                self._check_shard(state, path, state.shards[path])
        self._looked_at = state.serial

    def _check_releases(self, state: State) -> None:
        """A release that was once in force stays on record, or it could come back."""
        names = {record.name for record in state.releases}
        require("I7", self._names <= names, f"forgotten: {sorted(self._names - names)}")
        self._names = names
        for record in state.releases:
            if record.serial > state.serial:
                raise InvariantBroken("I7", f"{record} is of a serial to come")

    def _check_items(self, state: State, keys: Sequence[str]) -> None:
        """An object is what its release declares, and uses what it declares."""
        draft = self._ledger.in_force
        if draft is None:
            return
        release, declared = self._releases[draft.name]
        identities = {row.item_id: row.identity for row in state.mappings.values()}
        for key in keys:
            item = state.items[key]
            if item.owner != "release":
                continue
            definition = declared.get(item.definition.identity)
            if item.definition != definition and not self._went_back(item, definition):
                raise InvariantBroken("I6", f"{key} is {item.definition}")
            self._check_uses(key, item, release, identities)
            if item.definition.kind == "table":
                self._check_column_ids(key, item, draft)

    def _check_column_ids(self, key: str, item: ItemRecord, draft: DraftedRelease) -> None:
        """I5: a column goes on under its id, and no id ever stands for two columns."""
        shapes = {shape.name: shape for shape in draft.tables.values()}
        numbers = {
            column.name.lower(): column.number
            for column in shapes[item.definition.name].columns
        }
        before = self._columns.get(key, {})
        now = {number: numbers[name.lower()] for number, name in item.name_of.items()}
        moved = {
            number for number, column in now.items()
            if before.get(number, column) != column
            or (column in self._standing.get(key, {}).values() and number not in before)
        }
        require("I5", not moved, f"ids {moved} of {key} are of other columns now: {now}, {before}")
        self._columns[key] = {**before, **now}
        self._standing[key] = now

    def _went_back(self, item: ItemRecord, definition: ObjectDefinition | None) -> bool:
        """Whether an object is that of a release which the one in force had found nothing to change
        in: a rollback to there brings it back."""
        identity = item.definition.identity
        earlier = (declared.get(identity) for _, declared in self._releases.values())
        return (
            definition is not None and item.definition in earlier
            and self._hashes(item.definition) == self._hashes(definition)
        )

    @staticmethod
    def _check_uses(
        key: str, item: ItemRecord, release: Release, identities: Mapping[str, Identity]
    ) -> None:
        found = {identities.get(use) for use in item.uses}
        wanted = set(release.uses.get(item.definition.identity, ()))
        if found != wanted:
            raise InvariantBroken("I6", f"{key} uses {found}, declared are {wanted}")

    def _check_hashes(self, state: State, key: str) -> None:
        """What is compared at the next start is what the object is."""
        row = state.mappings[key]
        if row.owner != "release":
            return
        definition = state.items[row.item_id].definition
        same = row.hashes == self._hashes(definition)
        require("I6", same, f"the hashes of {key} are not those of its definition")

    @staticmethod
    def _hashes(definition: ObjectDefinition) -> Hashes:
        return facts_of(definition).hashes

    def _check_shard(self, state: State, path: str, record: ShardRecord) -> None:
        require("I6", not record.removing or record.state == "gone", f"{path} is in use and goes")
        require("I6", record.shape is None or record.evolve, f"{path} has a shape to come to never")
        require("I6", not record.evolve or record.state == "live", f"{path} evolves, out of use")
        if record.state == "live":
            self._check_live(state, path, record)
        elif record.state == "retired":
            self._check_retired(state, path, record)

    def _check_live(self, state: State, path: str, record: ShardRecord) -> None:
        item = state.items[record.item_id]
        require("I6", item.shard == path, f"{path} is live, {record.item_id} has {item.shard}")
        same = item.global_id == record.global_id
        require("I6", same, f"{path} is of {record.global_id}, its table is {item.global_id}")
        source = state.shards.get(record.source or "")
        if source is None:
            require("I6", record.source is None, f"{path} came from {record.source}, unknown")
            return
        if source.state == "retired" and not item.definition.is_derived:
            sealed_at = source.sealed_version
            if sealed_at is not None and sealed_at != record.source_version:
                raise InvariantBroken(
                    "I6", f"{path} was copied up to {record.source_version} of {source}"
                )
    def _check_retired(self, state: State, path: str, record: ShardRecord) -> None:
        """Since when is on record, and behind which version nobody's row can be."""
        require("I6", record.retired_at is not None, f"{path} is retired since nobody knows when")
        serial = record.retired_serial
        # a start that is looked at when it has ended may have committed more than once
        within = serial is not None and self._looked_at < serial <= state.serial
        require("I6", within, f"{path} is retired by {serial}, seen at {state.serial} only")
        held = self._world.shards.get(f"{self._warehouse}/{path}")
        self._check_columns(path, record, held)
        at = record.sealed_version
        if held is None or at is None:
            derived = path.split("/")[1] in self._ledger.derived
            require("I6", derived, f"{path} is retired, and its seal is not on record")
            return
        sealed = at < len(held.versions) and held.versions[at].is_sealed
        require("I6", sealed, f"{path} is not sealed at version {at}")
        same = held.versions[-1].rows == held.versions[at].rows
        require("I6", same, f"{path} has got rows behind its seal")


    def _check_columns(self, path: str, record: ShardRecord, held: Shard | None) -> None:
        """Each column that a retired shard is said to have is there, under that name."""
        if held is not None:
            there = {column.name.lower() for column in held.versions[-1].columns}
            missing = {name.lower() for name in record.columns} - there
            require("I6", not missing, f"{path} never had the columns {missing}")


def check_announced(state: State, call: str, path: str) -> None:
    """I6: what a process makes or seals is on record beforehand, so that it can be undone if the
    process dies at this very moment; a path that was on record once is looked at by every start."""
    if call == "seal.done":
        record = state.shards.get(path)
        known = record is not None and record.state == "retired"
        known = known or any(
            sealed.path == path for intent in state.intents.values() for sealed in intent.seals
        )
    else:
        known = path in state.shards or any(
            path in intent.paths for intent in state.intents.values()
        )
    require("I6", known, f"{call} of {path}, and nothing on record says so")


def check_tables(world: World, state: State, warehouse: str) -> None:
    """I6 at rest: comments, partitions and properties of every table are the declared ones.

    A table that a sink reads may be append-only besides.
    """
    read = {item.links.get("reads") for item in state.items.values()}
    for item_id, item in state.items.items():
        if item.definition.kind != "table" or item.shard is None or item.owner != "release":
            continue
        held = world.shards[f"{warehouse}/{item.shard}"]
        newest, definition = held.versions[-1], item.definition
        kept = dict(newest.properties)
        if item_id in read:
            kept.pop(APPEND_ONLY, None)
        found = (
            newest.comment, [column.comment for column in newest.columns], held.partitioned_by,
            kept,
        )
        wanted = (
            definition.comment, [column.comment for column in definition.columns],
            definition.partitioned_by, dict(definition.properties),
        )
        if found != wanted:
            raise InvariantBroken("I6", f"{item.shard}: {found}, declared {wanted}")


def check_signed_in(state: State, holder: str) -> None:
    """I6 for a process that lives on: it is on record, so that nobody changes what it reads."""
    there = "others" in state.sessions or any(
        session.holder == holder for session in state.sessions.values()
    )
    require("I6", there, f"{holder} lives, and no session is on record")


def _changed(
    state: State, before: Mapping[str, Mapping[str, str]], kind: str
) -> Sequence[str]:
    """Keys of the rows that are not as they were, ascending."""
    rows, old = state.raw.get(kind, _NOTHING), before.get(kind, _NOTHING)
    return sorted(key for key, text in rows.items() if old.get(key) != text)
