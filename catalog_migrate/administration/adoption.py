"""Takes existing Delta tables over where they lie: an id and a fingerprint, no copy of a row.

Order: look at everything and refuse with all reasons; take the lease; mark each table by a commit
of its own log (of two installations one wins); one commit of the catalog. Killed in between, the
marks name this lineage, so that the same call goes on; an error takes the marks off again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import msgspec

from catalog_migrate.administration.survey import (
    ADOPTED_ELSEWHERE,
    AdoptionRequest,
    Candidate,
    LeftAlone,
    Survey,
    definition_at,
    elsewhere,
    may_take,
    survey,
)
from catalog_migrate.catalog.clock import SystemClock
from catalog_migrate.catalog.commits import Commit, commit
from catalog_migrate.catalog.lease import Lease, acquire
from catalog_migrate.catalog.log import CatalogLog
from catalog_migrate.catalog.marks import (
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
    ItemRecord,
    MappingRecord,
    ShardRecord,
    identity_text,
    to_reconcile,
)
from catalog_migrate.catalog.requirements import SerialIs
from catalog_migrate.catalog.state import State
from catalog_migrate.catalog.updates import Put, RaiseSerial, Update
from catalog_migrate.errors import (
    AdoptedElsewhere,
    AdoptionRefused,
    CatalogNotFound,
    CommitConflict,
    Problem,
)
from catalog_migrate.model.names import Allocator
from catalog_migrate.model.sizes import TableSize
from catalog_migrate.model.wording import counted
from catalog_migrate.planner.baseline import Baseline, BaselineObject
from catalog_migrate.planner.planning import plan_migration
from catalog_migrate.release.release import facts_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from catalog_migrate.planner.plan import Plan
    from catalog_migrate.release.release import Release


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


def propose(
    log: CatalogLog, release: Release, wanted: Sequence[AdoptionRequest], *, warehouse: str,
    forgotten: Iterable[str] = (), left_alone: Iterable[LeftAlone] = (),
) -> Adoption:
    """What adopting would do; nothing is written. Raises AdoptionRefused with all reasons."""
    state = _state(log)
    found = _surveyed(log, release, wanted, state, warehouse, forgotten, left_alone)
    return _adoption(log, release, state, found)


def adopt(
    log: CatalogLog, release: Release, wanted: Sequence[AdoptionRequest], *, warehouse: str,
    forgotten: Iterable[str] = (), left_alone: Iterable[LeftAlone] = (),
    wait: float | None = None, on_step: Callable[[str], None] = lambda _: None,
) -> Adoption:
    """Adopt the tables into the catalog of ``log``, which is created when there is none.

    ``warehouse`` is where later copies go; ``wait`` bounds in seconds how long another holder of
    the lease is waited for; ``on_step`` hears ``mark <path>`` and ``commit`` before each step.

    Raises AdoptionRefused with every reason, AdoptedElsewhere when another installation has one of
    the tables, LeaseHeld. Nothing is adopted then, and it may be run again.
    """
    state = _state(log)
    found = _surveyed(log, release, wanted, state, warehouse, forgotten, left_alone)
    proposed = _adoption(log, release, state, found)
    if not found.candidates:
        return proposed
    if state is None:
        refuse_lost(log, warehouse)
        try:
            create_catalog(log, warehouse=warehouse)
        except CommitConflict:
            read_state(log)  # another process created it in this very moment
    with acquire(log, holder=this_holder(), clock=SystemClock(), wait=wait).kept() as lease:
        # another process may have adopted one of them while the lease was waited for
        state = lease.read_state()
        found = _surveyed(log, release, wanted, state, warehouse, forgotten, left_alone)
        after = _under_lease(log, lease, release, found.candidates, frozenset(forgotten), on_step)
    return Adoption(proposed.prospects, found.left_alone, proposed.plan, after.serial)


def _under_lease(
    log: CatalogLog, lease: Lease, release: Release, candidates: Sequence[Candidate],
    forgotten: frozenset[str], on_step: Callable[[str], None],
) -> State:
    state = read_state(log)
    items = Allocator("i", state.allocators["i"].next)
    ids = Allocator("s", state.allocators["s"].next)
    marked: list[str] = []
    updates: list[Update] = [RaiseSerial()]
    try:
        for candidate in candidates:
            path = candidate.wanted.path
            described = release.by_identity[candidate.definition.identity]
            item_id, global_id = items.allocate(), ids.allocate()
            lease.ensure()
            on_step(f"mark {path}")
            before = mark_at(path)
            put_mark(
                path, marks_of(state, item_id, described),
                lambda mark: may_take(mark, state.lineage, forgotten),
            )
            if before is None or before.lineage != state.lineage:
                marked.append(path)
            # read again: whoever wrote before the mark is in this version
            definition, version = definition_at(path, described)
            updates.append(Put("mapping", identity_text(definition.identity), MappingRecord.of(
                definition, facts_of(definition).hashes, owner="release", item_id=item_id,
                global_id=global_id,
            )))
            updates.append(Put("item", item_id, ItemRecord(
                owner="release", global_id=global_id, definition=definition, shard=path,
            )))
            updates.append(Put("shard", path, ShardRecord(
                item_id=item_id, global_id=global_id, state="live", version=version,
            )))
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
        return commit(log, Commit("adopt", tuple(updates), (lease.held, unmoved)))
    except Marked as lost:
        _take_back(marked, state.lineage)
        wanted = next(c.wanted for c in candidates if c.wanted.path == lost.path)
        raise _refusal([elsewhere(wanted, lost.mark)]) from None
    except Exception:
        if read_state(log).serial == state.serial:
            _take_back(marked, state.lineage)
        raise


def _take_back(paths: Iterable[str], lineage: str) -> None:
    for path in paths:
        clear_mark(path, lineage)


def _surveyed(
    log: CatalogLog, release: Release, wanted: Sequence[AdoptionRequest], state: State | None,
    warehouse: str, forgotten: Iterable[str], left_alone: Iterable[LeftAlone],
) -> Survey:
    found = survey(
        wanted, release, state, home=log.home or log.uri,
        warehouse=warehouse if state is None else state.setting("warehouse"),
        forgotten=forgotten, left_alone=left_alone,
    )
    if found.problems:
        raise _refusal(found.problems)
    return found


def _refusal(problems: Sequence[Problem]) -> AdoptionRefused:
    kind = (
        AdoptedElsewhere
        if any(problem.code == ADOPTED_ELSEWHERE for problem in problems) else AdoptionRefused
    )
    return kind(
        f"{counted(len(problems), 'reason')} against adopting; nothing was adopted",
        problems=problems, remedy="do what is written below each, or leave the table out",
    )


def _adoption(
    log: CatalogLog, release: Release, state: State | None, found: Survey
) -> Adoption:
    baseline = (
        Baseline.empty() if state is None
        else Baseline.from_state(state, owner="release", uri=log.uri)
    )
    items = Allocator("i", baseline.next_item)
    ids = Allocator("s", baseline.next_global)
    objects = dict(baseline.objects)
    sizes: dict[str, TableSize] = {}
    for candidate in found.candidates:
        item_id = items.allocate()
        objects[candidate.definition.identity] = BaselineObject(
            definition=candidate.definition, item_id=item_id, global_id=ids.allocate(),
            hashes=facts_of(candidate.definition).hashes,
        )
        sizes[item_id] = TableSize(candidate.rows, candidate.size)
    adopted = Baseline(
        objects=objects, taken=baseline.taken, next_item=items.next_value,
        next_global=ids.next_value, base=baseline.base,
    )
    plan = plan_migration(adopted, release, sizes=sizes.get).plan
    prospects = tuple(
        Prospect(
            str(candidate.definition.item_name), candidate.wanted.path,
            candidate.wanted.registration, candidate.rows, candidate.size,
            _first(plan, str(candidate.definition.item_name)),
        )
        for candidate in found.candidates
    )
    return Adoption(prospects, found.left_alone, plan)


def _first(plan: Plan, name: str) -> str:
    """What a plan does with one table, in a word or two."""
    reasons = [entry for entry in plan.blocked if entry.name == name]
    for change in plan.changes:
        if change.name == name:
            how = change.action if change.contents == "none" else (
                f"{change.action} ({change.contents})"
            )
            return f"{how}, {counted(len(reasons), 'decision')} missing" if reasons else how
    return "unchanged"


def _state(log: CatalogLog) -> State | None:
    try:
        return read_state(log)
    except CatalogNotFound:
        return None
