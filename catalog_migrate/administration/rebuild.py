"""Makes a lost catalog again: from the shards, what their logs say, and the release in force.

Rows are never touched, and nothing is guessed where a guess could cost one: of two shards that
could both be the table, people say which; a table of the release without a shard is either named
or said to be missing. What was only in the lost log is listed, not invented.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple
from urllib.parse import unquote
from uuid import uuid4

import msgspec

from catalog_migrate.administration.survey import (
    WHOSE,
    SurveyedTable,
    put_table,
    require_homeless,
    require_lost,
    survey_table,
)
from catalog_migrate.catalog.check import check
from catalog_migrate.catalog.clock import SystemClock
from catalog_migrate.catalog.delta_log import DeltaLog
from catalog_migrate.catalog.lease import MIGRATION
from catalog_migrate.catalog.marks import Mark, Marked, marks_of, put_mark
from catalog_migrate.catalog.opening import (
    USUAL_SESSIONS,
    SessionSettings,
    first_rows,
    first_settings,
)
from catalog_migrate.catalog.records import (
    RECONCILE,
    AllocatorRecord,
    ConfigRecord,
    IntentRecord,
    LeaseRecord,
    SealedShard,
    ShardRecord,
    to_reconcile,
)
from catalog_migrate.catalog.state import State
from catalog_migrate.catalog.updates import Put, preview
from catalog_migrate.delta.table import tables_below
from catalog_migrate.engine.port import Registration
from catalog_migrate.errors import CatalogMigrateError, CatalogWriteRefused, Problem, RebuildRefused
from catalog_migrate.migrations.execution_context import relative
from catalog_migrate.model.names import (
    Identity,
    ItemKey,
    identity_of,
    number_of,
    parse_reference,
    split_name,
)
from catalog_migrate.model.objects import ObjectDefinition
from catalog_migrate.model.wording import counted
from catalog_migrate.release.release import Release, facts_of
from catalog_migrate.store import is_seen, store_at
from catalog_migrate.store.address import rows_address
from catalog_migrate.streams.catalog.query_spec import CHECKPOINTS

WHICH_SHARD = "CM0832"
SHORT_COPY = "CM0833"
NO_SHARD = "CM0834"
UNREADABLE = "CM0836"

GAP = 1_000_000
"""Ids, serials and epochs of a rebuilt catalog start at a multiple of this above all known ones."""


class _Shard(NamedTuple):
    """A Delta table below the warehouse, or named by hand; ``shard`` is its path on record."""

    shard: str
    table: SurveyedTable

    @property
    def path(self) -> str:
        return self.table.path

    @property
    def mark(self) -> Mark | None:
        return self.table.mark

    @property
    def source(self) -> str:
        """The shard that its rows were copied from, empty where none is known."""
        return "" if self.mark is None else self.mark.source

    @property
    def key(self) -> ItemKey | None:
        """The object that it was made for: by its mark, else by its path."""
        if self.mark is not None and self.mark.key is not None:
            return self.mark.key
        parts = self.shard.split("/")
        if len(parts) != 3:
            return None
        return ItemKey(_decode(parts[0]), "table", _decode(parts[1]))


class Rebuilt(msgspec.Struct, frozen=True):
    """What was made again: tables in force by name, and what could not be known."""

    lineage: str
    tables: tuple[tuple[str, str, str], ...]
    unknown: tuple[str, ...]
    left_alone: tuple[str, ...]
    set_aside: str | None = None


class Answers(NamedTuple):
    """What people say of a lost catalog.

    ``named`` says for a table which directory is its own (an adopted table, or one of several);
    ``missing`` are tables of the release that are known to have no rows. ``lineage`` chooses among
    several installations.
    """

    named: Mapping[str, str] | None = None
    missing: Collection[str] = ()
    lineage: str | None = None


_NONE = Answers()


def rebuild(
    log: DeltaLog, release: Release, *, warehouse: str, answers: Answers = _NONE,
    registrations: Iterable[Registration] = (), sessions: SessionSettings = USUAL_SESSIONS,
    dry_run: bool = False, on_step: Callable[[str], None] = lambda _: None,
) -> Rebuilt:
    """Make the catalog of ``log`` again from ``warehouse`` and the ``release`` that was in force.

    ``registrations`` are names that a metastore still has: a table's name points at the shard
    in force. ``sessions`` are taken for what sessions had. What is left of the log is moved, never
    removed.

    Raises RebuildRefused with every question; nothing was written then. Killed anywhere, the same
    call goes on.
    """
    require_lost(log)
    search = _Search(
        release, warehouse, answers,
        {parse_reference(name): rows_address(p) for name, p in (answers.named or {}).items()},
    )
    search.look()
    lineage = search.choose_lineage(log)
    search.choose_tables(registrations)
    search.ask_for_missing()
    if search.problems:
        raise RebuildRefused(
            f"{counted(len(search.problems), 'question')} that only people can answer; "
            "nothing was written",
            problems=search.problems, remedy="answer each as is written below it, and run again",
        )
    state = search.make_state(log, sessions, lineage)
    search.unknown += _unknown(release, sessions)
    check(state)
    moved = None
    if not dry_run:
        on_step("mark")
        _mark_all(log, state, search.live)
        moved = _create(log, state, search.unknown, on_step)
    return Rebuilt(
        lineage=lineage,
        tables=tuple(
            (str(item.definition.item_name), item_id, str(item.shard))
            for item_id, item in sorted(state.items.items(), key=lambda pair: number_of(pair[0]))
        ),
        unknown=tuple(search.unknown),
        left_alone=tuple(search.left_alone),
        set_aside=moved,
    )


def _mark_all(log: DeltaLog, state: State, live: Mapping[Identity, _Shard]) -> None:
    """Mark the tables without a mark of ours; RebuildRefused where others have by now."""
    by_shard = {each.shard: each for each in live.values()}
    for item_id, item in state.items.items():
        each = by_shard[str(item.shard)]
        # by a mark that names another home, a new catalog in ours would not be refused
        if each.mark is not None and each.mark.home == (log.home or ""):
            continue
        try:
            put_mark(
                each.path, marks_of(state, item_id, item.definition),
                lambda mark: mark is None or mark.lineage == state.lineage,
            )
        except Marked as lost:
            raise RebuildRefused(
                f"another installation has taken {each.path} meanwhile; no catalog was written",
                problems=[Problem(
                    WHOSE, f"{each.path} is of {lost.mark.lineage}", remedy="name another"
                )],
                remedy="run again without it",
            ) from lost


def _create(
    log: DeltaLog, state: State, unknown: list[str], on_step: Callable[[str], None]
) -> str | None:
    """Write the catalog; return where what was left of the old one is now."""
    on_step("move the log away")
    moved = log.move_lost_log()
    on_step("create")
    try:
        log.recreate(first_rows(state), commit_id=uuid4().hex, serial=state.serial)
    except CatalogWriteRefused as error:
        left = f"; what was left of the old log is in {moved}" if moved is not None else ""
        raise CatalogWriteRefused(
            f"{error.message}{left}",
            remedy="make the directory writable for this user, or free space on its disk, and call"
            " this again: it goes on from here",
        ) from error
    try:
        log.keep_audit()  # our own views read it
    except CatalogMigrateError as error:  # the catalog is there; every start copies what is missing
        unknown.append(f"the audit table is left to the next start: {error.message}")
    return moved


@dataclass(slots=True)
class _Search:
    """The search for the tables of a lost catalog: what was asked, and what is found so far.

    ``found`` are all shards that may be this catalog's, ``live`` those in force and ``retired``
    those that they replaced, by the table's name; ``problems`` are questions to people.
    """

    release: Release
    warehouse: str
    answers: Answers
    named: Mapping[Identity, str]
    found: list[_Shard] = field(default_factory=list)
    live: dict[Identity, _Shard] = field(default_factory=dict)
    retired: list[tuple[Identity, _Shard]] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    left_alone: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)

    def ask(self, code: str, message: str, remedy: str) -> None:
        """Note what only people can answer."""
        self.problems.append(Problem(code, message, remedy=remedy))

    def look(self) -> None:
        """Survey every table below the warehouse and those that are named."""
        by_hand = set(self.named.values())
        for path in sorted({*tables_below(self.warehouse), *by_hand}):
            table = survey_table(path)
            unread = table.unread or ("there is no Delta table" if table.version is None else "")
            if not unread:
                self.found.append(_Shard(relative(self.warehouse, path) or path, table))
            elif path in by_hand:
                self.ask(
                    UNREADABLE, f"{path} cannot be read: {unread}",
                    "restore it, or name another directory",
                )
            else:
                self.left_alone.append(f"{path}: it cannot be read: {unread}")

    # -- whose they are ----------------------------------------------------------------------------

    def choose_lineage(self, log: DeltaLog) -> str:
        """Return the one lineage of all shards; another installation's are left alone."""
        wanted = self.answers.lineage
        lineages = sorted({each.mark.lineage for each in self.found if each.mark is not None})
        if wanted is None and len(lineages) > 1:
            self.ask(
                WHOSE, f"the shards are of {len(lineages)} installations: {', '.join(lineages)}",
                "say which: --lineage " + lineages[0],
            )
        if wanted is not None and wanted not in lineages:
            self.ask(WHOSE, f"no shard is of {wanted}", "those found: " + ", ".join(lineages))
        if not lineages:
            self.unknown.append("the catalog id: earlier views and functions are not recognised")
        chosen = (wanted or lineages[0]) if lineages else uuid4().hex
        self._leave_others(chosen)
        if not self.problems:  # else whose they are is not known yet
            marks = (each.mark for each in self.found)
            require_homeless(log, marks, chosen, said=wanted is not None)
        return chosen

    def _leave_others(self, lineage: str) -> None:
        found, self.found = self.found, []
        for each in found:
            if each.mark is None or each.mark.lineage == lineage:
                self.found.append(each)
            else:
                self.left_alone.append(f"{each.path}: it is of {each.mark.lineage}")

    # -- which of them are in force ----------------------------------------------------------------

    def choose_tables(self, registrations: Iterable[Registration]) -> None:
        """Choose for each table the shard in force, and those that it replaced."""
        by_path = {each.path: each for each in self.found}
        pointed = {
            identity_of("table", *each.name): each.location
            for each in registrations if each.kind == "table" and each.location in by_path
        }
        groups: dict[Identity, list[_Shard]] = {}
        for each in self.found:
            owner = self._owner_of(each, pointed)
            if owner is not None:
                groups.setdefault(owner, []).append(each)
                continue
            key = each.key
            what = (
                "its name is unknown" if key is None else f"it is of the {key.kind} {key.item_name}"
            )
            self.left_alone.append(f"{each.path}: {what}, which only the lost log described")
        for identity, shards in sorted(groups.items()):
            self._divide(identity, shards, self._pick(identity, shards, pointed.get(identity)))

    def _owner_of(self, each: _Shard, pointed: Mapping[Identity, str | None]) -> Identity | None:
        """Return the table that a shard is of: by people's word, by a name, by itself."""
        for places in (self.named, pointed):
            for identity, path in places.items():
                if path == each.path:
                    return identity
        return each.key.identity if each.key is not None and each.key.kind == "table" else None

    def _divide(self, identity: Identity, shards: Sequence[_Shard], picked: _Shard | None) -> None:
        if picked is None:
            self.left_alone += [f"{each.path}: sealed, and no table in force" for each in shards]
            return
        self.live[identity] = picked
        replaced = _replaced_by(picked, shards)
        for each in shards:
            if each in replaced:
                self.retired.append((identity, each))
            elif each is not picked:
                self.left_alone.append(
                    f"{each.path}: beside the table in force"
                    + ("" if each.table.is_sealed else ": an attempt that was never committed")
                )

    def _pick(
        self, identity: Identity, shards: Sequence[_Shard], pointed: str | None
    ) -> _Shard | None:
        """Return the shard in force; None, mostly with a question, where that is not known."""
        for path in (self.named.get(identity), pointed):
            for each in shards:
                if each.path == path:
                    return each
        name = _name_of(identity)
        unsealed = _find_unsealed(shards)
        if len(unsealed) == 1:
            self._ask_if_short(name, unsealed[0], shards)
            return unsealed[0]
        if unsealed:
            self.ask(
                WHICH_SHARD, f"{name}: any of these may be the table: "
                + ", ".join(each.path for each in unsealed),
                f"say which: --table {name}=PATH",
            )
        elif identity in self.release.by_identity:  # else sealed when it was dropped
            self.ask(
                WHICH_SHARD, f"{name}: all its shards are sealed: "
                + ", ".join(each.path for each in shards),
                f"the newest is the table if an upgrade was cut off: --table {name}=PATH",
            )
        return None

    def _ask_if_short(self, name: str, chosen: _Shard, shards: Sequence[_Shard]) -> None:
        """Ask about a copy with fewer rows than the sealed shard that it was made from."""
        rows = chosen.table.size.rows
        for source in shards:
            before = source.table.size.rows
            if source.table.is_sealed and source.shard == chosen.source and 0 <= rows < before:
                self.ask(
                    SHORT_COPY, f"{name}: {chosen.path} has {rows} rows, and the sealed shard "
                    f"that it was copied from, {source.path}, has {before}",
                    "either rows were removed since, or the copy was never committed: say which "
                    f"is the table, --table {name}=PATH",
                )

    def ask_for_missing(self) -> None:
        """Ask for each table of the release that has no shard, unless that is said already."""
        asked = {problem.message.partition(":")[0] for problem in self.problems}
        known = {*self.live, *(parse_reference(name) for name in self.answers.missing)}
        for definition in self.release.objects:
            name = definition.item_name
            if definition.kind != "table" or _name_of(definition.identity) in asked:
                continue
            if known.isdisjoint(_identities_of(definition)):
                self.ask(
                    NO_SHARD, f"{name}: no shard of it was found",
                    f"say where it lies, --table {name}=PATH (an adopted table), or "
                    f"that there are no rows, --missing {name}",
                )

    # -- the catalog -------------------------------------------------------------------------------

    def make_state(self, log: DeltaLog, sessions: SessionSettings, lineage: str) -> State:
        """Return the state of the catalog that is made again."""
        base = self._base()
        ids = self._item_ids(base)
        fresh = base + len(ids) + 1  # some of the tables may have had no id that is known
        settings = first_settings(log, self.warehouse, sessions, lineage=lineage, serial=base)
        updates = [Put("config", name, ConfigRecord(value=each)) for name, each in settings.items()]
        updates += (
            Put("allocator", "i", AllocatorRecord(next=fresh)),
            Put("allocator", "s", AllocatorRecord(next=fresh)),
            Put("allocator", "u", AllocatorRecord(next=base)),
            Put("lease", MIGRATION, LeaseRecord(epoch=base)),
            Put("operation", RECONCILE, to_reconcile("bring in what was rebuilt")),
        )
        now = int(SystemClock().wall())  # their retention begins again
        updates += [
            Put("shard", each.shard, ShardRecord(
                item_id=ids.get(identity, "i0"), global_id="s0", state="retired", retired_at=now,
            ))
            for identity, each in self.retired
        ]
        for number, (identity, each) in enumerate(sorted(self.live.items()), start=1):
            updates += self._put_live(identity, each, (ids[identity], f"s{base + number}"))
        seals = tuple(self._find_seals())
        if seals:  # the next start takes them off, as it does after any attempt that died
            updates.append(Put(
                "intent", "0", IntentRecord(epoch=0, plan_hash="", release="rebuild", seals=seals)
            ))
        return preview(State(0, {}), updates)

    def _put_live(self, identity: Identity, each: _Shard, ids: tuple[str, str]) -> tuple[Put, ...]:
        described = self.release.by_identity.get(identity)
        if described is None or described.kind != "table":
            described = _describe(identity, each)
        definition, wanted = each.table.define(described), facts_of(described)
        is_as_released = wanted.hashes.fingerprint == facts_of(definition).hashes.fingerprint
        return put_table(
            each.table, each.shard, definition, ids, source=each.source or None,
            applied=tuple(sorted(set(wanted.decisions.values()))) if is_as_released else (),
        )

    def _find_seals(self) -> Iterator[SealedShard]:
        for identity, each in sorted(self.live.items()):
            if each.table.is_sealed:
                name = _name_of(identity)
                self.unknown.append(f"{name}: whether it was append-only before it was sealed")
                yield SealedShard(
                    path=each.shard, follows=each.table.version or 0, properties={}
                )

    def _base(self) -> int:
        """Where ids, serials and epochs start: above whatever shards and checkpoints know of.

        A catalog that is lost a second time had ids, and left epochs in its shards, above the first
        such number. A source that got an id again would go on from another's checkpoint.
        """
        ids = [each.mark.item_id for each in self.found if each.mark is not None]
        if is_seen(f"{self.warehouse}/{CHECKPOINTS}"):
            ids += store_at(self.warehouse).names(CHECKPOINTS)
        known = [
            *(each.table.epoch for each in self.found), *map(number_of, filter(_is_item_id, ids))
        ]
        return GAP * (max(known, default=0) // GAP + 1)

    def _item_ids(self, base: int) -> dict[Identity, str]:
        """The item id that each table's mark carries; a fresh one where it has none."""
        ids: dict[Identity, str] = {}
        for identity, each in sorted(self.live.items()):
            found = "" if each.mark is None else each.mark.item_id
            if _is_item_id(found) and found not in ids.values():
                ids[identity] = found
        fresh = base + 1
        for identity in sorted(self.live.keys() - ids.keys()):
            ids[identity] = f"i{fresh}"
            fresh += 1
            self.unknown.append(f"{_name_of(identity)}: its item id; it has a new one")
        return ids


def _replaced_by(live: _Shard, shards: Sequence[_Shard]) -> list[_Shard]:
    """The sealed shards that the rows of the one in force came from, one after the other."""
    by_shard = {each.shard: each for each in shards}
    found: list[_Shard] = []
    at = by_shard.get(live.source)
    while at is not None and at is not live and at not in found and at.table.is_sealed:
        found.append(at)
        at = by_shard.get(at.source)
    return found


def _find_unsealed(shards: Sequence[_Shard]) -> list[_Shard]:
    """Return the shards that may be in force: not what one of them is being copied to."""
    unsealed = [each for each in shards if not each.table.is_sealed]
    sources = {each.source for each in unsealed}
    return [each for each in unsealed if each.shard in sources] or unsealed


def _describe(identity: Identity, each: _Shard) -> ObjectDefinition:
    """Return the name and kind of contents of a table that the release does not have."""
    key = each.key
    return ObjectDefinition(
        key.schema if key is not None else identity[1], "table",
        key.name if key is not None and key.identity == identity else identity[2],
        contents="derived" if each.mark and each.mark.contents == "derived" else None,
    )


def _identities_of(definition: ObjectDefinition) -> Iterator[Identity]:
    """Return what a table of the release is, or was, found by."""
    yield definition.identity
    for earlier in definition.earlier_names:
        schema, name = split_name(earlier)
        yield identity_of("table", schema or definition.schema, name)


def _name_of(identity: Identity) -> str:
    return f"{identity[1]}.{identity[2]}"


def _is_item_id(text: str) -> bool:
    return text[:1] == "i" and text[1:].isdecimal()


def _unknown(release: Release, sessions: SessionSettings) -> Iterator[str]:
    yield "ids of shapes: those handed out earlier are not known, new ones start far above"
    yield "the history of releases and serials, and the audit"
    ansi = "on" if sessions.ansi else "off"
    yield f"session settings: taken as ANSI {ansi}, time zone {sessions.time_zone}"
    yield (
        "connections, secrets, sources, sinks, their positions and holds: declare them again; "
        "checkpoints still lie in the warehouse"
    )
    if any(facts_of(definition).decisions for definition in release.objects):
        yield "which decisions were applied: those of tables that have the release's columns"
    others = sum(definition.kind != "table" for definition in release.objects)
    if others:
        yield (
            f"{counted(others, 'view')}, functions and types: the release brings them in again, "
            "with new ids"
        )


def _decode(part: str) -> str:
    """A part of a shard's path as the name that it was made from."""
    return unquote(part.replace("=", "%"))
