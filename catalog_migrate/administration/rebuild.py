"""Makes a lost catalog again: from the shards, what their logs say, and the release in force.

Rows are never touched, and nothing is guessed where a guess could cost one: of two shards that
could both be the table, people say which; a table of the release without a shard is either named
or said to be missing. What stood only in the lost log is listed, not invented.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple
from uuid import uuid4

import msgspec

from catalog_migrate.administration.survey import (
    WHOSE,
    definition_at,
    require_homeless,
    require_lost,
)
from catalog_migrate.catalog.check import check
from catalog_migrate.catalog.clock import SystemClock
from catalog_migrate.catalog.delta_log import DeltaLog
from catalog_migrate.catalog.marks import Mark, Marked, marks_of, put_mark, read_mark
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
    ItemRecord,
    LeaseRecord,
    MappingRecord,
    Record,
    SealedShard,
    ShardRecord,
    identity_text,
    to_reconcile,
)
from catalog_migrate.catalog.state import State, app_id_of, encode_record
from catalog_migrate.delta.seal import CONSTRAINTS, SEAL_CONSTRAINT
from catalog_migrate.delta.table import load_table, shard_columns, shard_size, tables_below
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


class FoundShard(msgspec.Struct, frozen=True):
    """A Delta table below the warehouse, or named by hand."""

    shard: str
    path: str
    mark: Mark | None
    sealed: bool
    rows: int
    columns: tuple[tuple[str, str, bool], ...]
    epoch: int = 0
    """The newest epoch of its installation that a seal or fence left in its log."""

    @property
    def key(self) -> ItemKey | None:
        """The object that it was made for: by its mark, else by its path."""
        if self.mark is not None and self.mark.key is not None:
            return self.mark.key
        parts = self.shard.split("/")
        if len(parts) != 3:
            return None
        return ItemKey(_decoded(parts[0]), "table", _decoded(parts[1]))


class Rebuilt(msgspec.Struct, frozen=True):
    """What was made again: tables in force by name, and what could not be known."""

    lineage: str
    tables: tuple[tuple[str, str, str], ...]
    unknown: tuple[str, ...]
    left_alone: tuple[str, ...]
    set_aside: str | None = None


@dataclass(slots=True)
class _Findings:
    """What the decisions rest on, gathered before anything is written."""

    found: list[FoundShard] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    left_alone: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)


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

    ``registrations`` are names that still stand in a metastore: a table's name points at the shard
    in force. ``sessions`` are taken for what sessions had. What is left of the log is moved, never
    removed.

    Raises RebuildRefused with every question; nothing was written then. Killed anywhere, the same
    call goes on.
    """
    require_lost(log)
    findings = _Findings()
    lineage = _survey(findings, log, warehouse, answers)
    base = _base(findings, warehouse)
    live, retired = _choose(findings, release, _places(answers), registrations)
    _require_all(findings, release, live, answers.missing)
    if findings.problems:
        raise RebuildRefused(
            f"{counted(len(findings.problems), 'question')} that only people can answer; "
            "nothing was written",
            problems=findings.problems, remedy="answer each as is written below it, and run again",
        )
    state = _state(
        findings, release, live, retired, base,
        first_settings(log, warehouse, sessions, lineage=lineage, serial=base),
    )
    findings.unknown += _unknown(release, sessions)
    check(state)
    moved = None
    if not dry_run:
        on_step("mark")
        _mark_all(log, state, live)
        moved = _create(findings, log, state, on_step)
    return Rebuilt(
        lineage=lineage,
        tables=tuple(
            (str(item.definition.item_name), item_id, str(item.shard))
            for item_id, item in sorted(state.items.items(), key=lambda pair: number_of(pair[0]))
        ),
        unknown=tuple(findings.unknown),
        left_alone=tuple(findings.left_alone),
        set_aside=moved,
    )


def _places(answers: Answers) -> dict[str, str]:
    named = answers.named or {}
    return {identity_text(parse_reference(n)): rows_address(p) for n, p in named.items()}


def _survey(findings: _Findings, log: DeltaLog, warehouse: str, answers: Answers) -> str:
    """Find the shards; return the lineage of those that are this catalog's."""
    _look(findings, warehouse, _places(answers))
    chosen = _lineage(findings, answers.lineage)
    if not findings.problems:  # else whose they are is not known yet
        marks = (each.mark for each in findings.found)
        require_homeless(log, marks, chosen, said=answers.lineage is not None)
    return chosen


def _mark_all(log: DeltaLog, state: State, live: Mapping[Identity, FoundShard]) -> None:
    by_path = {shard.shard: shard for shard in live.values()}
    for item_id, item in state.items.items():
        shard = by_path[str(item.shard)]
        # a mark that names another home would not keep anybody from a new catalog in ours
        if shard.mark is None or shard.mark.home != (log.home or ""):
            _mark(shard.path, marks_of(state, item_id, item.definition), state.lineage)


def _create(
    findings: _Findings, log: DeltaLog, state: State, on_step: Callable[[str], None]
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
        findings.unknown.append(f"the audit table is left to the next start: {error.message}")
    return moved


def _mark(path: str, marks: Mapping[str, str], lineage: str) -> None:
    """Mark a table that nobody had marked; RebuildRefused when somebody has by now."""
    try:
        put_mark(path, marks, lambda mark: mark is None or mark.lineage == lineage)
    except Marked as lost:
        raise RebuildRefused(
            f"another installation has taken {path} meanwhile; no catalog was written",
            problems=[Problem(WHOSE, f"{path} is of {lost.mark.lineage}", remedy="name another")],
            remedy="run again without it",
        ) from lost


def _base(findings: _Findings, warehouse: str) -> int:
    """Where ids, serials and epochs start: above whatever shards and checkpoints know of.

    A catalog that is lost a second time had ids, and left epochs in its shards, above the first
    such number. A source that got an id again would go on from another's checkpoint.
    """
    known = [each.epoch for each in findings.found]
    ids = [each.mark.item_id for each in findings.found if each.mark is not None]
    if is_seen(f"{warehouse}/{CHECKPOINTS}"):
        ids += store_at(warehouse).names(CHECKPOINTS)
    known += [number_of(each) for each in ids if each[:1] == "i" and each[1:].isdecimal()]
    return GAP * (max(known, default=0) // GAP + 1)


def _look(findings: _Findings, warehouse: str, named: Mapping[str, str]) -> None:
    places = {path: relative(warehouse, path) or path for path in tables_below(warehouse)}
    for path in named.values():
        places.setdefault(path, relative(warehouse, path) or path)
    for path, shard in sorted(places.items()):
        try:
            table = load_table(path)
            configuration = table.metadata().configuration
            mark = read_mark(configuration)
            epoch = 0 if mark is None else table.transaction_version(app_id_of(mark.lineage)) or 0
            columns = tuple((c.name, c.type, c.nullable) for c in shard_columns(path))
            rows = shard_size(path).rows
        except (CatalogMigrateError, Exception) as error:  # noqa: BLE001 - told as what it is
            first = str(error).splitlines()[0] if str(error) else type(error).__name__
            if path in named.values():
                findings.problems.append(Problem(
                    UNREADABLE, f"{path} cannot be read: {first}",
                    remedy="restore it, or name another directory",
                ))
            else:
                findings.left_alone.append(f"{path}: it cannot be read: {first}")
            continue
        findings.found.append(FoundShard(
            shard, path, mark, CONSTRAINTS + SEAL_CONSTRAINT in configuration, rows, columns, epoch,
        ))


def _lineage(findings: _Findings, wanted: str | None) -> str:
    """The one lineage of all shards; another installation's are left alone."""
    lineages = sorted({each.mark.lineage for each in findings.found if each.mark is not None})
    if wanted is None and len(lineages) > 1:
        findings.problems.append(Problem(
            WHOSE, f"the shards are of {len(lineages)} installations: {', '.join(lineages)}",
            remedy="say which: --lineage " + lineages[0],
        ))
    if wanted is not None and wanted not in lineages:
        findings.problems.append(Problem(
            WHOSE, f"no shard is of {wanted}", remedy="those found: " + ", ".join(lineages),
        ))
    if not lineages:
        findings.unknown.append("the lineage: views and functions of before are not recognised")
        return uuid4().hex
    chosen = wanted or lineages[0]
    for each in findings.found:
        if each.mark is not None and each.mark.lineage != chosen:
            findings.left_alone.append(f"{each.path}: it is of {each.mark.lineage}")
    findings.found = [
        each for each in findings.found if each.mark is None or each.mark.lineage == chosen
    ]
    return chosen


def _choose(
    findings: _Findings, release: Release, named: Mapping[str, str],
    registrations: Iterable[Registration],
) -> tuple[dict[Identity, FoundShard], list[tuple[Identity, FoundShard]]]:
    """For each table the shard in force, and those that it replaced."""
    by_path = {each.path: each for each in findings.found}
    pointed: dict[Identity, str] = {
        identity_of("table", *each.name): each.location
        for each in registrations if each.kind == "table" and each.location in by_path
    }
    groups: dict[Identity, list[FoundShard]] = {}
    for each in findings.found:
        key = each.key
        owner = next((i for i, path in pointed.items() if path == each.path), None)
        by_name = next((t for t, path in named.items() if path == each.path), None)
        if by_name is not None:
            owner = parse_reference(by_name.partition(":")[2])
        if owner is None and key is not None and key.kind == "table":
            owner = key.identity
        if owner is None:
            what = "its name is unknown"
            if key is not None:
                what = f"it is of the {key.kind} {key.item_name}"
            findings.left_alone.append(f"{each.path}: {what}, which only the lost log described")
            continue
        groups.setdefault(owner, []).append(each)
    live: dict[Identity, FoundShard] = {}
    retired: list[tuple[Identity, FoundShard]] = []
    for identity, shards in sorted(groups.items()):
        picked = _pick(findings, release, identity, shards,
                       named.get(identity_text(identity)), pointed.get(identity))
        if picked is not None:
            live[identity] = picked
        if picked is None:
            findings.left_alone += [
                f"{each.path}: sealed, and no table in force" for each in shards
            ]
            continue
        replaced = _replaced_by(picked, shards)
        for each in shards:
            if each in replaced:
                retired.append((identity, each))
            elif each is not picked:
                findings.left_alone.append(
                    f"{each.path}: beside the table in force"
                    + ("" if each.sealed else ": an attempt that was never committed")
                )
    return live, retired


def _replaced_by(live: FoundShard, shards: Sequence[FoundShard]) -> list[FoundShard]:
    """The sealed shards that the rows of the one in force came from, one after the other."""
    by_shard = {each.shard: each for each in shards}
    found: list[FoundShard] = []
    at: FoundShard | None = live
    while at is not None and at.mark is not None:
        at = by_shard.get(at.mark.source)
        if at is None or at is live or at in found or not at.sealed:
            break
        found.append(at)
    return found


def _pick(
    findings: _Findings, release: Release, identity: Identity, shards: Sequence[FoundShard],
    by_hand: str | None, pointed: str | None,
) -> FoundShard | None:
    name = f"{identity[1]}.{identity[2]}"
    for path in (by_hand, pointed):
        for each in shards:
            if path is not None and each.path == path:
                return each
    open_ones = [each for each in shards if not each.sealed]
    sources = {each.mark.source for each in open_ones if each.mark is not None}
    bases = [each for each in open_ones if each.shard in sources]
    if bases:  # what an unsealed shard is being copied to was never committed
        open_ones = bases
    if len(open_ones) == 1:
        chosen = open_ones[0]
        source = next((each for each in shards if each.sealed and chosen.mark is not None
                       and each.shard == chosen.mark.source), None)
        if source is not None and 0 <= chosen.rows < source.rows:
            findings.problems.append(Problem(
                SHORT_COPY, f"{name}: {chosen.path} has {chosen.rows} rows, and the sealed shard "
                f"that it was copied from, {source.path}, has {source.rows}",
                remedy="either rows were removed since, or the copy was never committed: say which "
                f"is the table, --table {name}=PATH",
            ))
        return chosen
    if open_ones:
        findings.problems.append(Problem(
            WHICH_SHARD, f"{name}: any of these may be the table: "
            + ", ".join(each.path for each in open_ones),
            remedy=f"say which: --table {name}=PATH",
        ))
        return None
    if identity not in release.by_identity:
        return None  # sealed when it was dropped
    findings.problems.append(Problem(
        WHICH_SHARD, f"{name}: all its shards are sealed: "
        + ", ".join(each.path for each in shards),
        remedy=f"the newest is the table if an upgrade was cut off: --table {name}=PATH",
    ))
    return None


def _require_all(
    findings: _Findings, release: Release, live: Mapping[Identity, FoundShard],
    missing: Collection[str],
) -> None:
    asked = {problem.message.partition(":")[0] for problem in findings.problems}
    excused = {parse_reference(name) for name in missing}
    for definition in release.objects:
        identity = definition.identity
        earlier = {
            identity_of("table", *_named(name, definition.schema))
            for name in definition.earlier_names
        }
        if (
            definition.kind != "table" or identity in live or identity in excused
            or f"{identity[1]}.{identity[2]}" in asked or earlier & live.keys()
        ):
            continue
        findings.problems.append(Problem(
            NO_SHARD, f"{definition.item_name}: no shard of it was found",
            remedy=f"say where it lies, --table {definition.item_name}=PATH (an adopted table), or "
            f"that there are no rows, --missing {definition.item_name}",
        ))


def _named(text: str, schema: str) -> tuple[str, str]:
    found, name = split_name(text)
    return found or schema, name


def _state(
    findings: _Findings, release: Release, live: Mapping[Identity, FoundShard],
    retired: Sequence[tuple[Identity, FoundShard]], base: int, settings: Mapping[str, str],
) -> State:
    ids = _item_ids(findings, live, base)
    records: dict[tuple[str, str], Record] = {}
    seals: list[SealedShard] = []
    for number, (identity, shard) in enumerate(sorted(live.items()), start=1):
        item_id, global_id = ids[identity], f"s{base + number}"
        described = release.by_identity.get(identity)
        if described is None or described.kind != "table":
            key = shard.key
            described = ObjectDefinition(
                key.schema if key is not None else identity[1], "table",
                key.name if key is not None and key.identity == identity else identity[2],
                contents="derived" if shard.mark and shard.mark.contents == "derived" else None,
            )
        definition, version = definition_at(shard.path, described)
        definition = _without_seal(definition)
        hashes = facts_of(definition).hashes
        wanted = facts_of(described)
        applied = (
            tuple(sorted(set(wanted.decisions.values())))
            if wanted.hashes.fingerprint == hashes.fingerprint else ()
        )
        records["mapping", identity_text(identity)] = MappingRecord.of(
            definition, hashes, owner="release", item_id=item_id, global_id=global_id,
            applied=applied,
        )
        records["item", item_id] = ItemRecord(
            owner="release", global_id=global_id, definition=definition, shard=shard.shard,
        )
        records["shard", shard.shard] = ShardRecord(
            item_id=item_id, global_id=global_id, state="live", version=version,
            source=(shard.mark.source or None) if shard.mark is not None else None,
        )
        if shard.sealed:
            seals.append(SealedShard(path=shard.shard, follows=version, properties={}))
            findings.unknown.append(
                f"{definition.item_name}: whether it was append-only before it was sealed"
            )
    now = int(SystemClock().wall())  # their retention begins anew
    for identity, shard in retired:
        records.setdefault(("shard", shard.shard), ShardRecord(
            item_id=ids.get(identity, "i0"), global_id="s0", state="retired", retired_at=now,
        ))
    if seals:
        # the next start takes the seals off, as it does after any attempt that died
        records["intent", "0"] = IntentRecord(
            epoch=0, plan_hash="", release="rebuild", seals=tuple(seals)
        )
    fresh = base + len(ids) + 1  # some of the tables may have had no id that is known
    records["allocator", "i"] = AllocatorRecord(next=fresh)
    records["allocator", "s"] = AllocatorRecord(next=fresh)
    records["allocator", "u"] = AllocatorRecord(next=base)
    records["lease", "migration"] = LeaseRecord(epoch=base)
    records["operation", RECONCILE] = to_reconcile("bring in what was rebuilt")
    for name, value in settings.items():
        records["config", name] = ConfigRecord(value=value)
    raw: dict[str, dict[str, str]] = {}
    for (collection, key_text), record in records.items():
        raw.setdefault(collection, {})[key_text] = encode_record(record)
    return State(0, raw)


def _without_seal(definition: ObjectDefinition) -> ObjectDefinition:
    checks = tuple(each for each in definition.checks if each.name.lower() != SEAL_CONSTRAINT)
    return msgspec.structs.replace(definition, checks=checks)


def _item_ids(
    findings: _Findings, live: Mapping[Identity, FoundShard], base: int
) -> dict[Identity, str]:
    """The item id that each table's mark carries; a fresh one where it has none."""
    ids: dict[Identity, str] = {}
    taken: set[str] = set()
    for identity, shard in sorted(live.items()):
        found = shard.mark.item_id if shard.mark is not None else ""
        if found[:1] == "i" and found[1:].isdecimal() and found not in taken:
            ids[identity] = found
            taken.add(found)
    fresh = base + 1
    for identity in sorted(live):
        if identity not in ids:
            ids[identity] = f"i{fresh}"
            fresh += 1
            findings.unknown.append(f"{identity[1]}.{identity[2]}: its item id; it has a new one")
    return ids


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


def _decoded(part: str) -> str:
    """A part of a shard's path as the name that it was made from."""
    def octets(match: re.Match[str]) -> str:
        return bytes.fromhex(match[0].replace("=", "")).decode("utf-8", "replace")

    return re.sub(r"(?:=[0-9a-f]{2})+", octets, part)
