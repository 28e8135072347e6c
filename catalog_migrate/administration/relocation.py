"""Follows a catalog or warehouse that was moved, or turns a copy into an installation of its own.

Shard rows hold paths relative to the warehouse, so that a move is one commit. A copy takes a new
lineage: until then every write is refused, for it would be made to the original's rows. What was
alive in the original (leases, sessions, operations under way) is not alive in the copy, and its
sinks get checkpoints and query ids of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import nullcontext
from uuid import uuid4

import msgspec

from catalog_migrate.administration.survey import Places, SurveyedTable, survey_table
from catalog_migrate.catalog.clock import SystemClock
from catalog_migrate.catalog.commits import Commit, commit
from catalog_migrate.catalog.history import entries
from catalog_migrate.catalog.lease import MIGRATION, acquire
from catalog_migrate.catalog.log import CatalogLog
from catalog_migrate.catalog.marks import HOME as HOME_MARK
from catalog_migrate.catalog.marks import LINEAGE, marks_of, put_mark
from catalog_migrate.catalog.opening import (
    HOME,
    is_at_home,
    open_log,
    read_state,
    refuse_exported,
    require_in_use,
    require_rows_address,
)
from catalog_migrate.catalog.operation_states import find_declared_state
from catalog_migrate.catalog.process import proven_dead, this_holder
from catalog_migrate.catalog.records import (
    RECONCILE,
    ConfigRecord,
    HoldRecord,
    LeaseRecord,
    ShardRecord,
    StreamRecord,
    identity_text,
    to_reconcile,
)
from catalog_migrate.catalog.requirements import SerialIs
from catalog_migrate.catalog.state import State
from catalog_migrate.catalog.updates import Delete, Edit, Put, RaiseSerial
from catalog_migrate.delta.log import is_same_commit
from catalog_migrate.delta.table import shard_version
from catalog_migrate.errors import (
    CatalogMigrateError,
    CatalogNotFound,
    CheckpointCorrupt,
    CommitConflict,
    NotACatalog,
    Problem,
    RelocationRefused,
    UsageError,
)
from catalog_migrate.migrations.actions import (
    FORMER,
    OWN_VIEWS,
    former,
    originals,
    own_views_place,
)
from catalog_migrate.model.hashes import schema_fingerprint
from catalog_migrate.model.names import parse_reference
from catalog_migrate.model.paths import is_absolute, shard_location
from catalog_migrate.model.wording import counted
from catalog_migrate.release.validation import SYSTEM_SCHEMA, is_our_schema
from catalog_migrate.store import is_seen
from catalog_migrate.store.address import (
    is_same_place,
    move_address,
    resolved,
    rows_address,
)
from catalog_migrate.streams.catalog.cluster_log import OPERATION, OPERATOR
from catalog_migrate.streams.catalog.query_spec import CHECKPOINTS
from catalog_migrate.streams.checkpoint.delta_tables import new_query_id
from catalog_migrate.streams.checkpoint.directory import Checkpoint

ORIGINAL_THERE = "CM0821"
NO_COPY = "CM0822"
SHARED_ROWS = "CM0823"
SHARD_MISSING = "CM0824"
SHARD_DIFFERS = "CM0825"
SHARD_OF_OTHERS = "CM0826"
MISPLACED = "CM0827"
UNREADY = "CM0828"
LEFT_BEHIND = "CM0829"
RUNNING = "CM0806"

COPIED = "copied installation: it would send the same rows a second time"
"""Why the sources and sinks of a copy wait for RESUME."""


class Relocation(msgspec.Struct, frozen=True):
    """Where everything is to be, and whose.

    ``home`` is where the catalog lies (None: it has no directory), ``is_away`` whether that is not
    its home on record; ``moved`` are adopted shards by where they lie now. ``held`` names the
    sources and sinks of a copy that wait for an operator, ``tables`` counts the shards in force,
    ``notes`` is what people should know.
    """

    home: str | None
    is_away: bool
    old_warehouse: str
    warehouse: str
    moved: Mapping[str, str]
    lineage: str
    new_lineage: bool
    names_copied: bool
    tables: int
    held: tuple[str, ...]
    notes: tuple[str, ...]

    @property
    def has_other_warehouse(self) -> bool:
        """Whether the rows are in another place than is on record."""
        return not is_same_place(self.old_warehouse, self.warehouse)

    @property
    def changed(self) -> bool:
        """Whether anything is in another place."""
        return self.is_away or bool(self.moved) or self.has_other_warehouse

    def address_of(self, shard: str) -> str:
        """Return where the rows of a shard are."""
        return self.moved.get(shard) or shard_location(self.warehouse, shard)


def relocate(
    log: CatalogLog, *, warehouse: str | None = None, new_lineage: bool = False,
    names_copied: bool = False, tables: Mapping[str, str] | None = None, dry_run: bool = False,
    wait: float | None = None, on_step: Callable[[str], None] = lambda _: None,
) -> Relocation:
    """Give the catalog of ``log`` the home that it lies in, and its warehouse the place it has.

    ``warehouse`` is where the shards are now (default: where they were, or beside a catalog that
    was moved together with them); ``tables`` maps names of adopted tables to their directories.
    ``new_lineage`` makes a copy an installation of its own; ``names_copied`` says that the
    metastore is a copy as well, so that the names in it are this installation's. ``dry_run``
    looks only.

    Raises RelocationRefused with every reason; nothing was changed then. Killed anywhere, the same
    call goes on.
    """
    state = read_state(log)
    refuse_exported(state, log)
    if new_lineage and _has_just_parted(log, state):
        new_lineage = False  # done; what is left is to see that everything is in its place
    tables = tables or {}
    aim = _aim(
        log, state, warehouse, tables,
        lineage=uuid4().hex if new_lineage else state.lineage, names_copied=names_copied,
    )
    root = aim.home or state.home or log.uri
    problems = list(_find_problems(state, aim, root, tables))
    if problems:
        raise RelocationRefused(
            f"{counted(len(problems), 'reason')} against it; nothing was changed",
            problems=problems, remedy="do what is written below each",
        )
    if aim.changed and not dry_run:
        _move(log, state, aim, wait, on_step)
    return aim


def _move(
    log: CatalogLog, state: State, aim: Relocation, wait: float | None,
    on_step: Callable[[str], None],
) -> None:
    clock = SystemClock()
    # away from home no other process may write, so none is kept out: the commit frees all
    lease = None if aim.is_away else acquire(log, holder=this_holder(), clock=clock, wait=wait)
    with nullcontext() if lease is None else lease.keep():
        if lease is not None:
            lease.read_state()
        _mark(state, aim, on_step)
        parted = (
            copy_checkpoints(state, aim.warehouse, aim.lineage, on_step) if aim.new_lineage else {}
        )
        on_step("commit")
        unmoved = SerialIs(state.serial, "the catalog moved on meanwhile", "run again")
        commit(log, Commit(
            "relocate", (Relocate(aim, parted, int(clock.wall())),),
            (unmoved,) if lease is None else (lease.held, unmoved, NoClusterRuns()),
            anyway=aim.is_away,
        ))


def move_own_views(log: CatalogLog, schema: str, *, wait: float | None = None) -> str | None:
    """Have our own views in another schema from the next start on; returns where they are now.

    They leave the old one then. UsageError for a schema that is not reserved for them; LeaseHeld.
    """
    if not is_our_schema(schema):
        raise UsageError(
            f"our own views cannot be in the schema {schema}: releases may have names there",
            remedy=f"{SYSTEM_SCHEMA}, or {SYSTEM_SCHEMA}_ and eight digits or letters from a to f",
        )
    state = read_state(log)
    require_in_use(state, log)
    before, after = own_views_place(state), schema.lower()
    if before == after:
        return before
    moved = Put("config", OWN_VIEWS, ConfigRecord(value=after))
    with acquire(log, holder=this_holder(), clock=SystemClock(), wait=wait).keep() as lease:
        commit(log, Commit("relocate", (moved,), (lease.held,)))
    return before


def _has_just_parted(log: CatalogLog, state: State) -> bool:
    """Whether the newest change is that this copy, at home since, took a lineage of its own.

    Who was killed right after that may call again; a copy of it has everything before it.
    """
    if not is_at_home(state, log):
        return False
    newest = next((each for each in entries(log) if not each.is_routine), None)
    if newest is None or newest.verb != "relocate" or not newest.version:
        return False
    return log.read_at(newest.version - 1).lineage != state.lineage


def _aim(
    log: CatalogLog, state: State, warehouse: str | None, tables: Mapping[str, str], *,
    lineage: str, names_copied: bool,
) -> Relocation:
    is_away, old = not is_at_home(state, log), state.setting("warehouse")
    place = warehouse
    if place is None:
        place = move_address(old, str(state.home), str(log.home)) if is_away else old
    if not is_same_place(place, old):
        require_rows_address(log, place)
    shards = {_adopted_shard(state, name): path for name, path in tables.items()}
    moved = {
        shard: rows_address(path) for shard, path in shards.items()
        if not is_same_place(shard, path)
    }
    is_new = lineage != state.lineage
    return Relocation(
        log.home, is_away, old, place, moved, lineage, is_new, names_copied,
        sum(1 for _ in _live(state)), _to_hold(state) if is_new else (),
        tuple(_notes(state, place)),
    )


def _adopted_shard(state: State, name: str) -> str:
    mapping = state.mappings.get(identity_text(parse_reference(name)))
    shard = None if mapping is None else state.items[mapping.item_id].shard
    if shard is None or not is_absolute(shard):
        raise UsageError(
            f"{name} is no adopted table of this catalog",
            remedy="shards below the warehouse move with it: --warehouse DIR",
        )
    return shard


# -- why it is refused -----------------------------------------------------------------------------


def _find_problems(
    state: State, aim: Relocation, root: str, tables: Mapping[str, str]
) -> Iterator[Problem]:
    yield from _find_misunderstood(state, aim, root)
    yield from _find_misplaced(state, aim, root, tables)
    for item_id, shard in _live(state):
        yield from _find_wrong_table(state, aim, item_id, shard)
    if aim.new_lineage:
        yield from _find_shared(state, aim)
    if aim.changed and not aim.is_away:
        yield from _find_running(state)


def _find_misunderstood(state: State, aim: Relocation, root: str) -> Iterator[Problem]:
    """Say where a copy is taken for a move, or the other way round."""
    if not aim.new_lineage:
        if aim.is_away and _is_still_at(str(state.home), state.lineage):
            yield Problem(
                ORIGINAL_THERE,
                f"the catalog that this one is a copy of is still at {state.home}",
                remedy="add --new-lineage to make the copy an installation of its own; "
                "if it was meant to move, take the original away first",
            )
    elif not aim.is_away:
        yield Problem(
            NO_COPY, f"the catalog at {root} is at home there: it is no copy",
            remedy="copy its directory, and call this on the copy",
        )
    elif not aim.has_other_warehouse:
        yield Problem(
            SHARED_ROWS, "the copy has no rows of its own: its warehouse is the original's, "
            f"{aim.old_warehouse}",
            remedy="copy that directory too, and say where: --warehouse DIR",
        )


def _find_misplaced(
    state: State, aim: Relocation, root: str, tables: Mapping[str, str]
) -> Iterator[Problem]:
    """Say which directories are not a table's own."""
    named: dict[str, str] = {}
    places = Places.of(state, root, aim.warehouse)
    for name, path in tables.items():
        real = resolved(path)
        reasons = [reason for reason, _ in places.overlaps(real)]
        if real in named:
            reasons.append(f"it is said to be {named[real]}'s too")
        named[real] = name
        for reason in reasons:
            yield Problem(
                MISPLACED, f"{name} at {path}: {reason}",
                remedy="a table has a directory of its own: give the right --table",
            )
    if not (aim.is_away or aim.has_other_warehouse):
        return
    for _, shard in _live(state):
        if is_absolute(shard) and shard not in aim.moved:
            for inside in Places(root, aim.warehouse).found_inside(resolved(shard)):
                yield Problem(
                    MISPLACED, f"{shard}: {inside} lies inside it",
                    remedy="put the catalog and its warehouse elsewhere",
                )


def _live(state: State) -> Iterator[tuple[str, str]]:
    """(item id, shard path) of every table in force; a source not yet started may have none."""
    for item_id, item in sorted(state.items.items()):
        if item.shard is not None and (item.definition.kind == "table" or item_id in state.streams):
            yield item_id, item.shard


def _find_wrong_table(state: State, aim: Relocation, item_id: str, shard: str) -> Iterator[Problem]:
    """Say why what lies where a table should be is not that table."""
    definition = state.items[item_id].definition
    name, path = definition.item_name, aim.address_of(shard)
    if aim.new_lineage and is_absolute(shard) and shard not in aim.moved:
        yield Problem(
            SHARED_ROWS, f"{name} was adopted at {shard}, where it is the original's",
            remedy=f"copy that directory, and say where: --table {name}=PATH",
        )
        return
    table = survey_table(path)
    if table.unread:
        yield Problem(
            SHARD_MISSING, f"{name}: {path} cannot be read: {table.unread}",
            remedy="copy or restore the directory whole",
        )
        return
    if table.version is None:
        yield Problem(
            SHARD_MISSING, f"{name}: there is no Delta table at {path}",
            remedy="copy or restore the directory, or give the right --warehouse",
        )
        return
    expected = state.mappings[identity_text(definition.identity)].fingerprint
    if schema_fingerprint(table.columns) != expected and not state.shards[shard].evolve:
        yield Problem(
            SHARD_DIFFERS, f"{name}: the table at {path} has other columns",
            remedy="that is another table: give the right --warehouse or --table",
        )
    yield from _find_others(state, aim, item_id, shard, table)


def _find_others(
    state: State, aim: Relocation, item_id: str, shard: str, table: SurveyedTable
) -> Iterator[Problem]:
    """Say whose else a table is by its mark, or that it was copied and written since."""
    name, path, mark = state.items[item_id].definition.item_name, table.path, table.mark
    before = shard_location(aim.old_warehouse, shard)
    if shard in aim.moved and mark is not None and mark.item_id not in ("", item_id):
        yield Problem(
            MISPLACED, f"{name}: the table at {path} is another of these, {mark.item_id}",
            remedy="give the right --table",
        )
    elif mark is not None and mark.lineage != state.lineage and mark.home != aim.home:
        yield Problem(
            SHARD_OF_OTHERS, f"{name}: the table at {path} belongs to {mark.lineage}"
            + (f" at {mark.home}" if mark.home else ""),
            remedy="that is another installation's: give the right --warehouse or --table",
        )
    elif not aim.new_lineage and _has_moved_on(before, path):
        yield Problem(
            LEFT_BEHIND, f"{name}: the table at {before} was written after {path} was copied",
            remedy="stop its writers and copy it again; or take the old directory away, and "
            "what was written since with it",
        )


def _has_moved_on(old: str, new: str) -> bool:
    """Whether a table that is still in its old place has a commit that the new one lacks.

    It was copied then and not moved, and rows that came meanwhile would be left behind.
    """
    if is_same_place(old, new):
        return False
    try:
        version = shard_version(old)
        return version is not None and not is_same_commit(old, new, version)
    except (CatalogMigrateError, OSError):
        return False  # what is there cannot be read any more


def _find_running(state: State) -> Iterator[Problem]:
    """Runtimes that may be at work: they would go on in the old place, and lose what they do."""
    for key, lease in sorted(state.leases.items()):
        item = state.items.get(key.removeprefix("cluster/"))
        if key == MIGRATION or not lease.holder or proven_dead(lease):
            continue
        name = key if item is None else str(item.definition.item_name)
        yield Problem(
            RUNNING, f"the runtime of cluster {name} is held by {lease.holder} (process "
            f"{lease.pid} on {lease.host})",
            remedy="stop it; if its process is lost for good, start the cluster once and stop it",
        )


def _find_shared(state: State, aim: Relocation) -> Iterator[Problem]:
    """Why the rows and checkpoints of a copy would not be its own."""
    if not aim.has_other_warehouse:
        return  # that is a problem already
    theirs = _originals_shards(state)
    linked = [*list_shared_directories(state, aim.old_warehouse, aim.warehouse, theirs)]
    linked += [path for path in aim.moved.values() if resolved(path) in theirs]
    for path in linked:
        yield Problem(
            SHARED_ROWS, f"{path} is the original's own directory, by now or by a link",
            remedy="copy that directory, or what the link leads to, and say where it is",
        )
    there, here = (f"{place}/{CHECKPOINTS}" for place in (aim.old_warehouse, aim.warehouse))
    if state.streams and is_same_place(there, here):
        yield Problem(
            SHARED_ROWS, f"{here} is the original's own directory of checkpoints, by a link",
            remedy="copy what the link leads to, and put that in its place",
        )
    for reason in unready_checkpoints(state, aim.warehouse):
        yield Problem(UNREADY, reason, remedy="copy it again when the original has stopped")


def _originals_shards(state: State) -> frozenset[str]:
    """Real directories of every shard that the installation which this is a copy of has now.

    Empty when that one is missing or does not answer: they are not known then.
    """
    if state.home is None:
        return frozenset()
    try:
        original = read_state(open_log(state.home))
    except (CatalogMigrateError, OSError):
        return frozenset()
    if original.lineage != state.lineage:
        return frozenset()
    place = original.setting("warehouse")
    return frozenset(resolved(shard_location(place, shard)) for shard in original.shards)


def list_shared_directories(
    state: State, old: str, new: str, theirs: Collection[str]
) -> Iterator[str]:
    """Yield directories in the warehouse ``new`` of a copy that are the original's, by links.

    Shards that are no table's any more count too, and those of attempts that died: the copy would
    remove them one day, or at once.
    """
    paths = {shard for shard in state.shards if not is_absolute(shard)}
    for intent in state.intents.values():
        paths.update(path for path in intent.paths if not is_absolute(path))
    for path in sorted(paths):
        here = shard_location(new, path)
        # a link is one though what it leads to is away
        if resolved(here) in theirs or (
            is_seen(here) and is_same_place(here, shard_location(old, path))
        ):
            yield here


# -- the move --------------------------------------------------------------------------------------


def _mark(state: State, aim: Relocation, on_step: Callable[[str], None]) -> None:
    """Say in each shard whose it is from now on, before it counts: a second run finds our home."""
    if not (aim.new_lineage or aim.is_away or aim.moved):
        return
    for item_id, shard in _live(state):
        path = aim.address_of(shard)
        marks = marks_of(state, item_id, state.items[item_id].definition)
        marks[LINEAGE] = aim.lineage
        if aim.home is not None:
            marks[HOME_MARK] = aim.home
        on_step(f"mark {path}")
        put_mark(path, marks, lambda _: True)


class NoClusterRuns(msgspec.Struct, frozen=True):
    """No runtime may be at work."""

    def check(self, state: State) -> None:
        """Raise :class:`CommitConflict` when one may be."""
        if any(_find_running(state)):
            raise CommitConflict("a cluster was started meanwhile", remedy="stop it first")


class Relocate(msgspec.Struct, frozen=True):
    """Put on record where everything is, and whose: of a copy, that it is an installation.

    ``parted`` are the sinks of a copy, by item id, with checkpoints of their own; ``now`` is in
    seconds since 1970.
    """

    aim: Relocation
    parted: Mapping[str, StreamRecord]
    now: int

    def apply(self, state: State) -> Iterator[Edit]:
        """Return the settings, the tables that moved, and what ends of another place."""
        aim = self.aim
        settings = {
            FORMER: msgspec.json.encode(self._former(state)).decode(),
            "warehouse": aim.warehouse, "lineage": aim.lineage,
        }
        if aim.home is not None:
            settings[HOME] = aim.home
        for name, value in settings.items():
            yield Put("config", name, ConfigRecord(value=value))
        yield from self._move_shards(state)
        for item_id, stream in {**state.streams, **self.parted}.items():
            if item_id in self.parted or stream.reads in aim.moved:  # the table is elsewhere now
                reads = aim.moved.get(stream.reads, stream.reads)
                yield Put("stream", item_id, msgspec.structs.replace(stream, reads=reads))
        for key, intent in state.intents.items():  # a seal is taken off where the table is now
            yield Put("intent", key, msgspec.structs.replace(intent, seals=tuple(
                msgspec.structs.replace(seal, path=aim.moved.get(seal.path, seal.path))
                for seal in intent.seals
            )))
        if aim.is_away:
            yield from _end_what_lived_elsewhere(state)
            if self.aim.new_lineage:
                yield from self._hold_queries(state)
        yield Put("operation", RECONCILE, to_reconcile("register what was relocated"))

    def _former(self, state: State) -> dict[str, tuple[str, ...]]:
        """Return the addresses and ids by which earlier names are recognised."""
        warehouses, lineages = former(state)
        if self.aim.new_lineage and not self.aim.names_copied:
            return {"originals": tuple(sorted(filter(is_absolute, state.shards)))}
        if self.aim.new_lineage:
            warehouses = (*warehouses, self.aim.old_warehouse)
            lineages = (*lineages, state.lineage)
        else:
            places = {*warehouses}
            if self.aim.has_other_warehouse:
                places.add(self.aim.old_warehouse)
            warehouses = tuple(sorted(places))
        return {"warehouses": warehouses, "lineages": lineages, "originals": originals(state)}

    def _move_shards(self, state: State) -> Iterator[Edit]:
        moved = self.aim.moved
        if self.aim.new_lineage:
            for shard, record in state.shards.items():
                if is_absolute(shard) and shard not in moved:  # the original's, also what retired
                    yield Put("shard", shard, _leave(record, self.now))
        for shard, path in moved.items():
            record = state.shards[shard]
            item = state.items[record.item_id]
            yield Put("shard", shard, _leave(record, self.now, path))
            yield Put("shard", path, record)
            yield Put("item", record.item_id, msgspec.structs.replace(item, shard=path))
            yield RaiseSerial()

    def _hold_queries(self, state: State) -> Iterator[Edit]:
        for item_id, item in state.items.items():
            if item.definition.kind in ("source", "sink"):
                yield Put("hold", f"{item_id}/{OPERATOR}/0", HoldRecord(
                    item_id=item_id, holder=OPERATOR, reason=COPIED, since=str(self.now),
                ))


def _leave(record: ShardRecord, now: int, moved_to: str | None = None) -> ShardRecord:
    """Return the record of a directory that is no longer this catalog's: nothing is done to it."""
    return msgspec.structs.replace(
        record, state="gone", retired_at=record.retired_at or now, evolve=False, shape=None,
        removing=False, moved_to=moved_to,
    )


def _end_what_lived_elsewhere(state: State) -> Iterator[Edit]:
    """Leases, sessions and acts under way belong to processes of the place it was moved from."""
    for key, lease in state.leases.items():
        yield Put("lease", key, LeaseRecord(epoch=lease.epoch + 1))
    for key in state.sessions:
        yield Delete("session", key)
    for key, operation in state.operations.items():
        if ended := find_declared_state(operation).moved:
            yield Put("operation", key, msgspec.structs.replace(
                operation, state=ended,
                detail={**operation.detail, "reason": "the catalog was moved or copied meanwhile"},
            ))
            for hold_key, hold in state.holds.items():  # no other process would ever lift them
                if hold.holder == OPERATION + key:
                    yield Delete("hold", hold_key)


def _to_hold(state: State) -> tuple[str, ...]:
    return tuple(sorted(
        str(item.definition.key) for item in state.items.values()
        if item.definition.kind in ("source", "sink")
    ))


def _notes(state: State, warehouse: str) -> Iterator[str]:
    for shard, row in sorted(state.shards.items()):
        if row.state != "retired" or is_absolute(shard):
            continue
        path = shard_location(warehouse, shard)
        if not is_seen(path):
            yield f"the earlier version of a table is not at {path}: nothing reads it any more"


def _is_still_at(home: str, lineage: str) -> bool:
    try:
        return read_state(open_log(home)).lineage == lineage
    except (CatalogNotFound, NotACatalog):
        return False
    except CatalogMigrateError:
        return True  # something is there that does not answer: better asked than two of one


def unready_checkpoints(state: State, warehouse: str) -> Iterator[str]:
    """Names of sinks whose checkpoint in ``warehouse`` cannot be gone on from, with the reason."""
    for item_id, stream in _sinks(state):
        name = state.items[item_id].definition.item_name
        checkpoint = Checkpoint(shard_location(warehouse, stream.checkpoint))
        try:
            if checkpoint.query_id is not None and checkpoint.restoring is not None:
                yield f"{name}: a snapshot was being put back into {checkpoint.address}"
        except CheckpointCorrupt as error:
            yield f"{name}: {error.message}"


def copy_checkpoints(
    state: State, warehouse: str, lineage: str, on_step: Callable[[str], None]
) -> dict[str, StreamRecord]:
    """Copy the checkpoint of each sink to a place of its own and change its query id there.

    ``warehouse`` is the copy's, ``lineage`` its new one. Returns the records to be committed, by
    item id. Killed before that, the copies belong to no catalog and a second run makes others.
    """
    records: dict[str, StreamRecord] = {}
    for item_id, stream in _sinks(state):
        old = Checkpoint(shard_location(warehouse, stream.checkpoint))
        if old.query_id is None:
            continue
        directory = f"{CHECKPOINTS}/{item_id}/{lineage}"
        new = Checkpoint(shard_location(warehouse, directory))
        on_step(f"part {new.address}")
        new.files.copy_tree(old.store, new.store)
        new_query_id(new, {})
        records[item_id] = msgspec.structs.replace(stream, checkpoint=directory)
    return records


def _sinks(state: State) -> Iterator[tuple[str, StreamRecord]]:
    for item_id, stream in sorted(state.streams.items()):
        item = state.items.get(item_id)
        if item is not None and item.definition.kind == "sink":
            yield item_id, stream
