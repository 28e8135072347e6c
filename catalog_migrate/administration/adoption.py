"""Takes existing Delta tables over where they lie: an id and a fingerprint, no copy of a row.

Order: look at everything and refuse with all reasons; take the lease; mark each table by a commit
of its own log (of two installations one wins); one commit of the catalog. Killed in between, the
marks name this lineage, so that the same call goes on; an error takes the marks off again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import msgspec

from catalog_migrate.administration.survey import (
    Places,
    SurveyedTable,
    put_table,
    read_table,
    still_has,
    survey_table,
)
from catalog_migrate.catalog.clock import SystemClock
from catalog_migrate.catalog.commits import Commit, commit
from catalog_migrate.catalog.lease import Lease, acquire
from catalog_migrate.catalog.log import CatalogLog
from catalog_migrate.catalog.marks import (
    Mark,
    Marked,
    clear_mark,
    mark_at,
    marks_of,
    put_mark,
    refuse_lost,
)
from catalog_migrate.catalog.opening import create_catalog, read_state
from catalog_migrate.catalog.process import this_holder
from catalog_migrate.catalog.records import (
    RECONCILE,
    AllocatorRecord,
    identity_text,
    to_reconcile,
)
from catalog_migrate.catalog.requirements import SerialIs
from catalog_migrate.catalog.updates import Put, RaiseSerial, Update
from catalog_migrate.delta.log import has_log
from catalog_migrate.delta.table import find_unsupported
from catalog_migrate.errors import (
    AdoptedElsewhere,
    AdoptionRefused,
    CatalogNotFound,
    CommitConflict,
    Problem,
    UsageError,
)
from catalog_migrate.model.names import Allocator, ItemName, identity_of
from catalog_migrate.model.paths import is_placeholder
from catalog_migrate.model.sizes import TableSize
from catalog_migrate.model.wording import counted
from catalog_migrate.planner.baseline import Baseline, BaselineObject
from catalog_migrate.planner.planning import plan_migration
from catalog_migrate.release.release import facts_of
from catalog_migrate.store.address import UNTRIED, is_remote, is_within, resolved, rows_address

if TYPE_CHECKING:
    from catalog_migrate.catalog.state import State
    from catalog_migrate.engine.port import Registration
    from catalog_migrate.model.objects import ObjectDefinition
    from catalog_migrate.planner.plan import Plan
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
    """A table that was asked for: its name, where it lies, how the session's catalog has it.

    ``registration`` is ``managed``, ``external`` or ``path`` (no name); ``asked`` is whether it
    was named, so that what cannot be done is an error and not a table left alone.
    """

    name: ItemName
    path: str
    registration: str
    asked: bool = True

    def problem(self, code: str, message: str, remedy: str) -> Problem:
        """Return what is wrong with it."""
        return Problem(code, f"{self.name} at {self.path}: {message}", remedy=remedy)


class LeftAlone(msgspec.Struct, frozen=True):
    """A relation of the schema that stays as it is, and why."""

    name: ItemName
    reason: str


class Prospect(msgspec.Struct, frozen=True):
    """One table to adopt: ``first`` is what the first migration would do with it."""

    name: str
    path: str
    registration: str
    rows: int
    size: int
    first: str


class Adoption(msgspec.Struct, frozen=True):
    """What would be, or was, adopted; ``plan`` is the first migration after it."""

    prospects: tuple[Prospect, ...]
    left_alone: tuple[LeftAlone, ...]
    plan: Plan
    serial: int | None = None


class _Candidate(msgspec.Struct, frozen=True):
    """A table that can be adopted, as it lies there."""

    request: AdoptionRequest
    described: ObjectDefinition
    table: SurveyedTable

    @property
    def definition(self) -> ObjectDefinition:
        return self.table.define(self.described)


class _Found(msgspec.Struct, frozen=True):
    candidates: tuple[_Candidate, ...]
    left_alone: tuple[LeftAlone, ...]


def propose(
    log: CatalogLog, release: Release, wanted: Sequence[AdoptionRequest], *, warehouse: str,
    forgotten: Iterable[str] = (), left_alone: Iterable[LeftAlone] = (),
) -> Adoption:
    """Return what adopting would do; nothing is written. Raises AdoptionRefused with all reasons.
    """
    asked = _Asked(
        log, release, tuple(wanted), warehouse, frozenset(forgotten), tuple(left_alone)
    )
    state = asked.read_state()
    return asked.propose(state, asked.survey(state))


def adopt(
    log: CatalogLog, release: Release, wanted: Sequence[AdoptionRequest], *, warehouse: str,
    forgotten: Iterable[str] = (), left_alone: Iterable[LeftAlone] = (),
    wait: float | None = None, on_step: Callable[[str], None] = lambda _: None,
) -> Adoption:
    """Adopt the tables into the catalog of ``log``, which is created when there is none.

    ``warehouse`` is where later copies go; ``forgotten`` are lineages whose marks do not count any
    more; ``wait`` bounds in seconds how long another holder of the lease is waited for; ``on_step``
    hears ``mark <path>`` and ``commit`` before each step.

    Raises AdoptionRefused with every reason, AdoptedElsewhere when another installation has one of
    the tables, LeaseHeld. Nothing is adopted then, and it may be run again.
    """
    asked = _Asked(
        log, release, tuple(wanted), warehouse, frozenset(forgotten), tuple(left_alone)
    )
    state = asked.read_state()
    found = asked.survey(state)
    proposed = asked.propose(state, found)
    if not found.candidates:
        return proposed
    if state is None:
        refuse_lost(log, warehouse)
        try:
            create_catalog(log, warehouse=warehouse)
        except CommitConflict:
            read_state(log)  # another process created it in this very moment
    with acquire(log, holder=this_holder(), clock=SystemClock(), wait=wait).keep() as lease:
        # another process may have adopted one of them while the lease was waited for
        found = asked.survey(lease.read_state())
        after = asked.commit(lease, found.candidates, on_step)
    return msgspec.structs.replace(proposed, left_alone=found.left_alone, serial=after.serial)


def sort_registrations(
    found: Iterable[Registration], *, asked: bool
) -> tuple[list[AdoptionRequest], list[LeftAlone]]:
    """Return what the registrations of a schema come to: tables that are wanted, and the rest."""
    wanted: list[AdoptionRequest] = []
    left: list[LeftAlone] = []
    for each in found:
        if each.kind != "table" or each.location is None:
            left.append(LeftAlone(each.name, f"it is a {each.kind}"))
        elif not asked and not has_log(each.location):
            left.append(LeftAlone(each.name, "it is no Delta table"))
        elif is_placeholder(each.location):
            left.append(LeftAlone(
                each.name, "it is the empty placeholder of a table whose name was being dropped"
            ))
        else:
            kind = "managed" if each.managed else "external"
            wanted.append(AdoptionRequest(each.name, each.location, kind, asked))
    return wanted, left


class _Asked(msgspec.Struct, frozen=True):
    """What was asked for, of which catalog."""

    log: CatalogLog
    release: Release
    wanted: tuple[AdoptionRequest, ...]
    warehouse: str
    forgotten: frozenset[str]
    left_alone: tuple[LeftAlone, ...]

    def read_state(self) -> State | None:
        """Return the catalog's; None where none is yet."""
        try:
            return read_state(self.log)
        except CatalogNotFound:
            return None

    # -- looking -----------------------------------------------------------------------------------

    def survey(self, state: State | None) -> _Found:
        """Look at each table once; AdoptionRefused with every problem of all of them."""
        places = Places.of(
            state, self.log.home or self.log.uri,
            self.warehouse if state is None else state.setting("warehouse"),
        )
        left = list(self.left_alone)
        problems = list(self._find_twice())
        candidates: list[_Candidate] = []
        for each in sorted(self.wanted, key=lambda one: one.name.folded):
            described = self.release.by_identity.get(identity_of("table", *each.name))
            if described is not None and described.kind == "table":
                unreachable = _find_unreachable(each)
                table = SurveyedTable(each.path) if unreachable else survey_table(each.path)
                problems += (
                    unreachable or [*self._find_misplaced(each, table, state, places)]
                    or self._find_unfit(each, table, state)
                )
                candidates.append(_Candidate(each, described, table))
                continue
            reason = (
                "the release does not describe it" if described is None
                else f"the release has a {described.kind} of this name"
            )
            if each.asked:
                problems.append(
                    each.problem(NOT_DESCRIBED, reason, "declare the table in the release")
                )
            else:
                left.append(LeftAlone(each.name, reason))
        if problems:
            raise _refusal(problems)
        return _Found(tuple(candidates), tuple(sorted(left, key=lambda one: one.name.folded)))

    def _find_twice(self) -> Iterator[Problem]:
        names: dict[tuple[str, str], AdoptionRequest] = {}
        places: dict[str, AdoptionRequest] = {}
        for each in self.wanted:
            before = names.setdefault(each.name.folded, each)
            if before is not each and before.path != each.path:
                yield each.problem(TWICE, f"the name is given to {before.path} too", "name it once")
                continue
            other = places.setdefault(resolved(each.path), each)
            if other is not each:
                yield each.problem(
                    TWICE, f"the same table is asked for as {other.name} too", "name it once"
                )

    def _find_misplaced(
        self, each: AdoptionRequest, table: SurveyedTable, state: State | None, places: Places
    ) -> Iterator[Problem]:
        """Say what else has the directory, or the name, and where nothing is."""
        real = resolved(each.path)
        for reason, remedy in places.overlaps(real):
            yield each.problem(INSIDE, reason, remedy)
        for other in self.wanted:
            there = resolved(other.path)
            if there != real and is_within(there, real):
                yield each.problem(
                    INSIDE, f"the table {other.name} lies inside it",
                    "move the inner table out first",
                )
        if state is not None and identity_text(identity_of("table", *each.name)) in state.mappings:
            yield each.problem(
                NAME_IN_FORCE, "the catalog has an object of this name already",
                "leave it out, or adopt it under a name that is free",
            )
        if real in places.shards:
            _, record = places.shards[real]
            yield each.problem(
                TWICE, f"the catalog has it already, as {record.item_id}", "leave it out"
            )
        if table.version is None and not table.unread:
            yield each.problem(NOT_A_TABLE, "there is no Delta table", "give the table's directory")

    def _find_unfit(
        self, each: AdoptionRequest, table: SurveyedTable, state: State | None
    ) -> Iterator[Problem]:
        """Say why the table cannot be adopted as it is."""
        lacking = find_unsupported(each.path)
        if lacking is not None:
            yield each.problem(UNWRITABLE, lacking.reason, lacking.remedy)
            return
        if table.unread:
            yield each.problem(
                NOT_A_TABLE, f"its log cannot be read: {table.unread}", "fix the table first"
            )
            return
        if table.is_sealed:
            yield each.problem(
                SEALED, "it is sealed: a migration has replaced it",
                "adopt the table that took its place",
            )
        mark = table.mark
        if mark is not None and not self._may_take(mark, state):
            yield _elsewhere_problem(each, mark)
        elif mark is not None and mark.lineage in self.forgotten and still_has(mark, each.path):
            yield each.problem(
                ADOPTED_ELSEWHERE,
                f"it belongs to the installation {mark.lineage}, whose catalog is still at "
                f"{mark.home}",
                "export it there first: --forget is for a catalog that is lost for good",
            )

    def _may_take(self, mark: Mark | None, state: State | None) -> bool:
        """Return whether a table with this mark is free for the installation."""
        own = None if state is None else state.lineage
        return mark is None or mark.lineage == own or mark.lineage in self.forgotten

    # -- the first migration -----------------------------------------------------------------------

    def propose(self, state: State | None, found: _Found) -> Adoption:
        """Return what was found, with the plan of the first migration after it."""
        baseline = (
            Baseline.empty() if state is None
            else Baseline.from_state(state, owner="release", uri=self.log.uri)
        )
        items = Allocator("i", baseline.next_item)
        ids = Allocator("s", baseline.next_global)
        objects = dict(baseline.objects)
        sizes: dict[str, TableSize] = {}
        for each in found.candidates:
            item_id, definition = items.allocate(), each.definition
            objects[definition.identity] = BaselineObject(
                definition, item_id, ids.allocate(), facts_of(definition).hashes
            )
            sizes[item_id] = each.table.size
        plan = plan_migration(msgspec.structs.replace(
            baseline, objects=objects, next_item=items.next_value, next_global=ids.next_value,
        ), self.release, sizes=sizes.get).plan
        prospects = tuple(
            Prospect(
                str(each.described.item_name), each.request.path, each.request.registration,
                each.table.size.rows, each.table.size.bytes,
                _describe_first(plan, str(each.described.item_name)),
            )
            for each in found.candidates
        )
        return Adoption(prospects, found.left_alone, plan)

    # -- adopting ----------------------------------------------------------------------------------

    def commit(
        self, lease: Lease, candidates: Sequence[_Candidate], on_step: Callable[[str], None]
    ) -> State:
        """Mark the tables and commit them; an error takes the marks off again."""
        state = read_state(self.log)
        items = Allocator("i", state.allocators["i"].next)
        ids = Allocator("s", state.allocators["s"].next)
        marked: list[str] = []
        updates: list[Update] = [RaiseSerial()]
        try:
            for each in candidates:
                item_id, path = items.allocate(), each.request.path
                lease.ensure()
                on_step(f"mark {path}")
                before = mark_at(path)
                put_mark(
                    path, marks_of(state, item_id, each.described),
                    lambda mark: self._may_take(mark, state),
                )
                if before is None or before.lineage != state.lineage:
                    marked.append(path)
                # read again: this version has what others wrote before the mark
                table = read_table(path)
                updates += put_table(
                    table, path, table.define(each.described), (item_id, ids.allocate())
                )
            updates += (
                Put("allocator", "i", AllocatorRecord(next=items.next_value)),
                Put("allocator", "s", AllocatorRecord(next=ids.next_value)),
                # a name that is managed must become plain
                Put("operation", RECONCILE, to_reconcile("bring in adopted tables")),
            )
            unmoved = SerialIs(
                state.serial, "the catalog moved while tables were adopted", "run again"
            )
            on_step("commit")
            return commit(self.log, Commit("adopt", tuple(updates), (lease.held, unmoved)))
        except Marked as lost:
            _unmark(marked, state.lineage)
            request = next(c.request for c in candidates if c.request.path == lost.path)
            raise _refusal([_elsewhere_problem(request, lost.mark)]) from lost
        except Exception:
            if read_state(self.log).serial == state.serial:
                _unmark(marked, state.lineage)
            raise


def _find_unreachable(each: AdoptionRequest) -> list[Problem]:
    """Say why its address is none of a table's, before a store is called."""
    if is_remote(each.path):
        try:
            rows_address(each.path, UNTRIED)
        except UsageError as error:
            return [each.problem(NOT_A_TABLE, error.message, error.remedy or "copy its rows")]
    return []


def _elsewhere_problem(each: AdoptionRequest, mark: Mark) -> Problem:
    """Return the problem of a table that another installation has adopted or made."""
    place = f" at {mark.home}" if mark.home else ""
    return each.problem(
        ADOPTED_ELSEWHERE, f"it belongs to the installation {mark.lineage}{place}",
        "export it there first; if that catalog is lost for good, "
        f"add --forget {mark.lineage}",
    )


def _unmark(paths: Iterable[str], lineage: str) -> None:
    for path in paths:
        clear_mark(path, lineage)


def _refusal(problems: Sequence[Problem]) -> AdoptionRefused:
    kind = (
        AdoptedElsewhere
        if any(problem.code == ADOPTED_ELSEWHERE for problem in problems) else AdoptionRefused
    )
    return kind(
        f"{counted(len(problems), 'reason')} against adopting; nothing was adopted",
        problems=problems, remedy="do what is written below each, or leave the table out",
    )


def _describe_first(plan: Plan, name: str) -> str:
    """Say what a plan does with one table, in a word or two."""
    reasons = [entry for entry in plan.blocked if entry.name == name]
    for change in plan.changes:
        if change.name == name:
            how = change.action if change.contents == "none" else (
                f"{change.action} ({change.contents})"
            )
            return f"{how}, {counted(len(reasons), 'decision')} missing" if reasons else how
    return "unchanged"
