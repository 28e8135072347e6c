"""Looks at Delta tables that may be adopted, and says everything that stands in the way.

And whether the catalog that marks name stands, or is lost.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

from catalog_migrate.catalog.delta_log import DeltaLog
from catalog_migrate.catalog.log import is_withheld
from catalog_migrate.catalog.marks import Mark, read_mark
from catalog_migrate.catalog.opening import EXPORTED, HOME, open_log, read_state
from catalog_migrate.catalog.records import identity_text
from catalog_migrate.catalog.state import State
from catalog_migrate.delta import datatypes
from catalog_migrate.delta.log import has_log, is_same_commit
from catalog_migrate.delta.seal import CONSTRAINTS, SEAL_CONSTRAINT
from catalog_migrate.delta.table import (
    clustering_columns,
    load_table,
    shard_size,
    shard_version,
    table_around,
    unsupported_at,
)
from catalog_migrate.errors import (
    CatalogCorrupt,
    CatalogMigrateError,
    CatalogNotFound,
    NotACatalog,
    Problem,
    RebuildRefused,
    UsageError,
)
from catalog_migrate.model.names import ItemName, identity_of
from catalog_migrate.model.objects import Check, ObjectDefinition
from catalog_migrate.model.paths import is_absolute, is_placeholder, shard_location
from catalog_migrate.store import is_seen
from catalog_migrate.store.address import (
    UNTRIED,
    hidden,
    is_remote,
    is_same_place,
    is_within,
    plainly,
    resolved,
    rows_address,
)

if TYPE_CHECKING:
    from catalog_migrate.engine.port import Registration
    from catalog_migrate.release.release import Release


NOT_A_TABLE = "CM0811"
INSIDE = "CM0812"
TWICE = "CM0813"
NAME_IN_FORCE = "CM0814"
UNWRITABLE = "CM0815"
NOT_DESCRIBED = "CM0816"
ADOPTED_ELSEWHERE = "CM0817"
SEALED = "CM0818"


class AdoptionRequest(msgspec.Struct, frozen=True):
    """A table that was asked for: its name, where it lies, how it stands in the session's catalog.

    ``registration`` is ``managed``, ``external`` or ``path`` (no name); ``asked`` is whether it
    was named, so that what cannot be done is an error and not a table left alone.
    """

    name: ItemName
    path: str
    registration: str
    asked: bool = True


class Candidate(msgspec.Struct, frozen=True):
    """A table that can be adopted, as it lies there at ``version``.

    ``definition`` has its columns, layout, CHECKs and comments under the release's name; ``rows``
    is -1 where the log's statistics do not say.
    """

    wanted: AdoptionRequest
    definition: ObjectDefinition
    version: int
    rows: int
    size: int


class LeftAlone(msgspec.Struct, frozen=True):
    """A relation of the schema that stays as it is, and why."""

    name: ItemName
    reason: str


class Survey(msgspec.Struct, frozen=True):
    """What was found: tables to adopt, relations left alone, and every problem."""

    candidates: tuple[Candidate, ...]
    left_alone: tuple[LeftAlone, ...]
    problems: tuple[Problem, ...]


def survey(
    wanted: Sequence[AdoptionRequest], release: Release, state: State | None, *, home: str,
    warehouse: str,
    forgotten: Iterable[str] = (), left_alone: Iterable[LeftAlone] = (),
) -> Survey:
    """Look at each table once; nothing is written.

    ``home`` is the directory of the catalog, ``warehouse`` of its shards; ``state`` is None where
    there is no catalog yet. ``forgotten`` are lineages whose marks do not count any more.
    """
    left = list(left_alone)
    problems: list[Problem] = list(_twice(wanted))
    candidates: list[Candidate] = []
    forgotten = frozenset(forgotten)
    for each in sorted(wanted, key=lambda one: one.name.folded):
        described = release.by_identity.get(identity_of("table", *each.name))
        if described is None or described.kind != "table":
            reason = (
                "the release does not describe it" if described is None
                else f"the release has a {described.kind} of this name"
            )
            if each.asked:
                problems.append(_problem(
                    NOT_DESCRIBED, each, reason, "declare the table in the release"
                ))
            else:
                left.append(LeftAlone(each.name, reason))
            continue
        found = list(_misplaced(each, wanted, state, home, warehouse))
        if not found:
            candidate, found = _look(each, described, state, forgotten)
            if candidate is not None and not found:
                candidates.append(candidate)
        problems += found
    return Survey(
        tuple(candidates), tuple(sorted(left, key=lambda one: one.name.folded)), tuple(problems)
    )


def registered(
    found: Iterable[Registration], *, asked: bool
) -> tuple[list[AdoptionRequest], list[LeftAlone]]:
    """What the registrations of a schema come to: tables that are wanted, and the rest."""
    wanted: list[AdoptionRequest] = []
    left: list[LeftAlone] = []
    for each in found:
        if each.kind != "table" or each.location is None:
            left.append(LeftAlone(each.name, f"it is a {each.kind}"))
            continue
        if not asked and not has_log(each.location):
            left.append(LeftAlone(each.name, "it is no Delta table"))
            continue
        if is_placeholder(each.location):
            left.append(LeftAlone(
                each.name, "it is the empty placeholder of a table whose name was being dropped"
            ))
            continue
        kind = "managed" if each.managed else "external"
        wanted.append(AdoptionRequest(each.name, each.location, kind, asked))
    return wanted, left


def definition_at(path: str, described: ObjectDefinition) -> tuple[ObjectDefinition, int]:
    """The table as it lies at ``path`` under the name of ``described``, and its version.

    Of the table properties only those count that the release sets too, and its clustering where the
    release has one: the others are the table's own and stay. A CHECK that says the same as the
    release's has the release's name.
    """
    table = load_table(path)
    metadata = table.metadata()
    configuration = metadata.configuration
    definition = ObjectDefinition(
        schema=described.schema,
        kind="table",
        name=described.name,
        columns=tuple(datatypes.columns_of(json.loads(table.schema().to_json()))),
        contents=described.contents,
        comment=metadata.description or None,
        properties={
            name: configuration[name] for name in described.properties if name in configuration
        },
        partitioned_by=tuple(metadata.partition_columns),
        clustered_by=clustering_columns(path) if described.clustered_by else (),
        checks=tuple(_checks(configuration, described)),
    )
    return definition, int(table.version())


def _checks(configuration: Mapping[str, str], described: ObjectDefinition) -> Iterator[Check]:
    from catalog_migrate.sql.normalisation import normalised_tokens

    def meaning(expression: str) -> tuple[str, ...]:
        return tuple(normalised_tokens(expression))

    known = {meaning(check.expression): check for check in described.checks}
    for name, expression in sorted(configuration.items()):
        if not name.startswith(CONSTRAINTS):
            continue
        same = known.get(meaning(expression))
        yield same if same is not None else Check(name[len(CONSTRAINTS):], expression)


def _look(
    each: AdoptionRequest, described: ObjectDefinition, state: State | None,
    forgotten: frozenset[str],
) -> tuple[Candidate | None, list[Problem]]:
    try:
        lacking = unsupported_at(each.path)
        if lacking is not None:
            return None, [_problem(UNWRITABLE, each, lacking.reason, lacking.remedy)]
        table = load_table(each.path)
        definition, version = definition_at(each.path, described)
        rows, size, *_ = shard_size(each.path)
    except (CatalogMigrateError, Exception) as error:  # noqa: BLE001 - told as what it is
        said = hidden(plainly(error))
        first = said.splitlines()[0] if said else type(error).__name__
        return None, [_problem(
            NOT_A_TABLE, each, f"its log cannot be read: {first}", "fix the table first"
        )]
    problems: list[Problem] = []
    configuration = table.metadata().configuration
    if CONSTRAINTS + SEAL_CONSTRAINT in configuration:
        problems.append(_problem(
            SEALED, each, "it is sealed: a migration has replaced it",
            "adopt the table that took its place",
        ))
    mark = read_mark(configuration)
    if not may_take(mark, None if state is None else state.lineage, forgotten):
        assert mark is not None
        problems.append(elsewhere(each, mark))
    elif mark is not None and mark.lineage in forgotten and still_has(mark, each.path):
        problems.append(_problem(
            ADOPTED_ELSEWHERE, each,
            f"it belongs to the installation {mark.lineage}, whose catalog stands at {mark.home}",
            "export it there first: --forget is for a catalog that is gone for good",
        ))
    return Candidate(each, definition, version, rows, size), problems


def may_take(mark: Mark | None, lineage: str | None, forgotten: frozenset[str]) -> bool:
    """Whether a table with this mark is free for the installation ``lineage``."""
    return mark is None or mark.lineage == lineage or mark.lineage in forgotten


def elsewhere(each: AdoptionRequest, mark: Mark) -> Problem:
    """The problem of a table that another installation has adopted or made."""
    place = f" at {mark.home}" if mark.home else ""
    return _problem(
        ADOPTED_ELSEWHERE, each, f"it belongs to the installation {mark.lineage}{place}",
        "export it there first; if that catalog is gone for good, "
        f"add --forget {mark.lineage}",
    )


def _misplaced(
    each: AdoptionRequest, wanted: Sequence[AdoptionRequest], state: State | None, home: str,
    warehouse: str,
) -> Iterator[Problem]:
    if is_remote(each.path):
        try:
            rows_address(each.path, UNTRIED)
        except UsageError as error:
            yield _problem(NOT_A_TABLE, each, error.message, error.remedy or "copy its rows")
            return
    real = resolved(each.path)
    for place, what in places(home, warehouse):
        if is_within(real, resolved(place)):
            yield _problem(INSIDE, each, f"it lies inside {what} {place}",
                           "adopt tables that lie elsewhere")
            return
    for inside in held(real, state, home, warehouse):
        yield _problem(INSIDE, each, f"{inside} lies inside it", "move that out first")
    if state is not None and identity_text(identity_of("table", *each.name)) in state.mappings:
        yield _problem(NAME_IN_FORCE, each, "the catalog has an object of this name already",
                       "leave it out, or adopt it under a name that is free")
    if state is not None:
        for path, record in state.shards.items():
            lies = resolved(shard_location(state.setting("warehouse"), path))
            if record.state in ("live", "retired") and lies == real:
                yield _problem(TWICE, each, f"the catalog has it already, as {record.item_id}",
                               "leave it out")
    if not has_log(real):
        yield _problem(NOT_A_TABLE, each, "there is no Delta table", "give the table's directory")
        return
    outer = table_around(real)
    if outer is not None:
        yield _problem(INSIDE, each, f"it lies inside another table, {outer}",
                       "move the inner table out first")
    for other in wanted:
        there = resolved(other.path)
        if there != real and is_within(there, real):
            yield _problem(INSIDE, each, f"the table {other.name} lies inside it",
                           "move the inner table out first")


def _twice(wanted: Sequence[AdoptionRequest]) -> Iterator[Problem]:
    names: dict[tuple[str, str], AdoptionRequest] = {}
    places: dict[str, AdoptionRequest] = {}
    for each in wanted:
        before = names.setdefault(each.name.folded, each)
        if before is not each and before.path != each.path:
            yield _problem(TWICE, each, f"the name is given to {before.path} too", "name it once")
            continue
        other = places.setdefault(resolved(each.path), each)
        if other is not each:
            yield _problem(TWICE, each, f"the same table is asked for as {other.name} too",
                           "name it once")


def _problem(code: str, each: AdoptionRequest, message: str, remedy: str) -> Problem:
    return Problem(code, f"{each.name} at {each.path}: {message}", remedy=remedy)


# -- where directories lie: in one another, or in one place by links -------------------------------

def held(directory: str, state: State | None, home: str, warehouse: str) -> Iterator[str]:
    """What of a catalog lies inside a real directory: a migration would remove that one day."""
    for place, what in places(home, warehouse):
        if is_within(resolved(place), directory):
            yield f"{what} {place}"
    if state is None:
        return
    for path, record in sorted(state.shards.items()):
        if not is_absolute(path) or record.state not in ("live", "retired"):
            continue
        lies = resolved(path)
        if lies != directory and is_within(lies, directory):
            yield f"{path}, a table of {record.item_id},"


def places(home: str, warehouse: str) -> Iterator[tuple[str, str]]:
    """The places of a catalog, and what each is."""
    yield home, "the catalog"
    yield warehouse, "the catalog's warehouse"


def originals_shards(state: State) -> frozenset[str]:
    """Real directories of every shard that the installation which this is a copy of has now.

    Empty when that one is missing or does not answer: then nobody can say.
    """
    record = state.config.get(HOME)
    if record is None:
        return frozenset()
    try:
        original = read_state(open_log(record.value))
    except (CatalogMigrateError, OSError):
        return frozenset()
    if original.lineage != state.lineage:
        return frozenset()
    place = original.setting("warehouse")
    return frozenset(resolved(shard_location(place, shard)) for shard in original.shards)


def shared(state: State, old: str, new: str, theirs: Collection[str]) -> Iterator[str]:
    """Directories in the warehouse ``new`` of a copy that are the original's, by links.

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


def misplaced(path: str, state: State, home: str, warehouse: str) -> Iterator[str]:
    """Why a directory cannot be an adopted table's own: what is inside it, and what it is in."""
    real = resolved(path)
    for inside in held(real, state, home, warehouse):
        yield f"{inside} lies inside it"
    for place, what in places(home, warehouse):
        around = resolved(place)
        if real != around and is_within(real, around):
            yield f"it lies inside {what} {place}"
    outer = table_around(real)
    if outer is not None:
        yield f"it lies inside another table, {outer}"


def went_on(old: str, new: str) -> bool:
    """Whether a table that still stands in its old place has a commit that the new one lacks.

    It was copied then and not moved, and rows that came meanwhile would be left behind.
    """
    if is_same_place(old, new) or shard_version(new) is None:
        return False
    try:
        version = shard_version(old)
        return version is not None and not is_same_commit(old, new, version)
    except (CatalogMigrateError, OSError):
        return False  # what stands there cannot be read any more


# -- whether a catalog is lost: only then is it made again -----------------------------------------

NOTHING_LOST = "CM0831"
WHOSE = "CM0835"
WITHHELD = "CM0838"


def require_lost(log: DeltaLog) -> None:
    """A log that can be read whole is not made again, nor one that may not be read."""
    state = whole(log)
    if state is None:
        return
    raise RebuildRefused(
        f"the catalog at {log.uri} can be read whole, at serial {state.serial}",
        problems=[Problem(
            NOTHING_LOST, "a rebuild would forget its history, ids and streams",
            remedy="use it as it is; names are repaired by catalog-migrate drift --repair",
        )],
        remedy="nothing is lost",
    )


def require_homeless(
    log: DeltaLog, marks: Iterable[Mark | None], lineage: str, *, said: bool
) -> None:
    """Shards whose own catalog still stands are not given a second one of the same lineage.

    Of one on an object store that is not known here: people have to say so, by the lineage.
    """
    homes = {mark.home for mark in marks if mark is not None and mark.lineage == lineage}
    for home in sorted(homes - {"", log.home or ""}):
        if is_remote(home):  # which options its store wants is not known here
            if said:
                continue
            raise RebuildRefused(
                f"these tables are of the catalog at {home}; nothing was written",
                problems=[Problem(
                    WHOSE, "a second catalog would own the same rows while that one stands",
                    remedy=f"use it: --catalog {home}; or, when it is gone for good, say so: "
                    f"--lineage {lineage}",
                )],
                remedy="nothing is lost while that catalog stands",
            )
        state = whole(DeltaLog(home))
        if state is not None and state.lineage == lineage:
            raise RebuildRefused(
                f"the catalog at {home} is whole, at serial {state.serial}, and these tables are "
                "its own; nothing was written",
                problems=[Problem(
                    NOTHING_LOST, "a second catalog would own the same rows",
                    remedy=f"use it: --catalog {home}",
                )],
                remedy="nothing is lost; names are repaired by catalog-migrate drift --repair, "
                "a catalog that is to be elsewhere is moved (docs/administration.md)",
            )


def still_has(mark: Mark, path: str) -> bool:
    """Whether the catalog that a mark names stands and has the table at ``path`` in force.

    One that does not answer, or may not be read, counts as standing.
    """
    if not mark.home:
        return False
    if is_remote(mark.home):
        return False  # which options its store wants is not known here: people's word counts
    try:
        state = whole(DeltaLog(mark.home))
    except CatalogMigrateError:
        return True
    if state is None or state.lineage != mark.lineage or EXPORTED in state.config:
        return False
    place = state.setting("warehouse")
    return any(
        record.state == "live"
        and resolved(shard_location(place, shard)) == resolved(path)
        for shard, record in state.shards.items()
    )


def whole(log: DeltaLog) -> State | None:
    """The state of a log that can be read whole, None for one that is lost.

    Raises RebuildRefused for one that only may not be read: nothing says that it is lost.
    """
    try:
        return read_state(log)
    except (CatalogNotFound, NotACatalog):
        return None
    except CatalogCorrupt as error:
        if not is_withheld(error.__cause__):
            return None
        raise RebuildRefused(
            f"the catalog at {log.uri} cannot be read, which does not say that it is lost; "
            "nothing was written",
            problems=[Problem(WITHHELD, error.message, remedy=error.remedy)],
            remedy="make it readable, and run again",
        ) from error
