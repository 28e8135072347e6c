"""What is on record of users' objects that read ours, and the look that brings it up to date.

The commit of a migration puts there what was found before it. From then on the record is older than
the release in force, until a start has looked at each of them again and says so in a commit of its
own. Repairs belong to that look: one that is due is on record before it is made.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone
from itertools import chain
from typing import TYPE_CHECKING, Literal

import msgspec
from msgspec.structs import replace

from catalog_migrate.catalog.commits import Commit, commit
from catalog_migrate.catalog.records import UserObjectRecord, identity_text
from catalog_migrate.catalog.requirements import Requirement
from catalog_migrate.catalog.updates import Delete, Edit, Put
from catalog_migrate.engine.port import QueryAnalysis, UserDefinition
from catalog_migrate.users.asking import ask, guard, is_dropped, request_stored, shorten

if TYPE_CHECKING:
    from catalog_migrate.catalog.log import CatalogLog
    from catalog_migrate.catalog.state import State
    from catalog_migrate.engine.port import Engine
    from catalog_migrate.model.names import Identity
    from catalog_migrate.planner.plan import Migration
    from catalog_migrate.users.examination import Examination, Found
    from catalog_migrate.users.finding import Readers

Rows = dict[str, UserObjectRecord]
"""Records by their keys."""

_STATES: Mapping[str, Literal["bound", "broken", "unknown"]] = {
    "unchanged": "bound", "changed": "bound", "breaks": "broken", "broken": "broken",
    "unknown": "unknown",
}


# -- with the commit -----------------------------------------------------------------------------


def predict(
    state: State, examination: Examination, migration: Migration, *, repairs: bool, now: float
) -> Rows:
    """Return the records to put with the commit of ``migration``: all that read ours, as was found.

    ``repairs`` makes the repairs due that were found, and the way back from earlier ones.
    """
    rows: Rows = {}
    release, before = migration.plan.target.release, state.release_in_force("release")
    readers = examination.found.readers
    for identity, definition in readers.definitions.items():
        key = identity_text(identity)
        row = _settled(_row(state, readers, identity), definition.sql)
        entry = examination.entries.get(identity)
        if entry is not None:
            was_broken = key not in state.user_objects and entry.outcome == "broken"
            row = _with_state(
                row, _STATES[entry.outcome], entry.condition, entry.reason, now,
                before.name if was_broken and before is not None else release,
            )
        if repairs and row.original is not None and _goes_behind(migration, row.repaired_at):
            row = replace(row, due="put back")
        elif repairs and entry is not None and entry.outcome == "breaks":
            row = _with_repair(row, definition, entry.repaired, state.serial + 1)
        rows[key] = replace(row, serial=0)
    return rows


def _settled(row: UserObjectRecord, sql: str) -> UserObjectRecord:
    """The record by the text that is there: a kill may have come between, or an ALTER since."""
    if row.due is not None:
        return _after_repair(row, sql)
    if row.original is not None and sql != row.repaired:
        return _without_repair(row)
    return row


def _with_repair(
    row: UserObjectRecord, definition: UserDefinition, repaired: str | None, serial: int
) -> UserObjectRecord:
    """The record with the text that is to be put in its place from ``serial`` on, if any."""
    if not repaired:
        return row
    if repaired == row.original:
        return replace(row, due="put back")
    return replace(
        row, due="repair", repaired=repaired, replaces=definition.sql,
        original=row.original or definition.sql, repaired_at=row.repaired_at or serial,
    )


class PredictUsers(msgspec.Struct, frozen=True):
    """Put on record what a migration makes of users' objects, as :func:`predict` has it."""

    examination: Examination
    migration: Migration
    repairs: bool
    now: float

    def apply(self, state: State) -> Iterator[Edit]:
        """Return the records."""
        rows = predict(
            state, self.examination, self.migration, repairs=self.repairs, now=self.now
        )
        for key, row in rows.items():
            yield Put("user_object", key, row)


def _goes_behind(migration: Migration, serial: int) -> bool:
    """Whether a migration goes back to what was before a serial."""
    target = migration.plan.target.serial
    return target is not msgspec.UNSET and target < serial


# -- after it ------------------------------------------------------------------------------------


class Look(msgspec.Struct, frozen=True):
    """What users' objects are now: the records of those that read ours, and what failed.

    ``replaced`` names those whose text was replaced in this look.
    """

    rows: Rows
    serial: int
    failures: tuple[str, ...] = ()
    replaced: tuple[str, ...] = ()

    def apply(self, state: State) -> Iterator[Edit]:
        """Return the records; those that another process found of a later release stay."""
        for key, row in self.rows.items():
            known = state.user_objects.get(key)
            if known is None or known.serial <= self.serial:
                yield Put("user_object", key, row)
        for key, row in state.user_objects.items():
            if key not in self.rows and row.serial <= self.serial:
                yield Delete("user_object", key)


def bind_again(
    engine: Engine, state: State, found: Found, *, now: float, repairs: bool | None = None,
    ensure: Callable[[], None] = lambda: None,
) -> Look:
    """Bind each reader as it is now, and with ``repairs`` make the repairs that are due.

    A text is only replaced where it is the one that the repair was found for. All of it may be
    repeated after a kill at any point. ``repairs`` False forgets those that are due, None leaves
    them to a start. ``ensure`` proves the lease before each. Raises nothing but LeaseLost and
    LeaseHeld.
    """
    readers = found.readers
    rows = {identity: _row(state, readers, identity) for identity in readers.definitions}
    answers = _bind(engine, readers.definitions)
    repairing = _Repairing(engine, ensure)
    for identity in chain.from_iterable(() if repairs is None else readers.waves):
        if rows[identity].due is None:
            continue
        definition, row = readers.definitions[identity], rows[identity]
        text = _text_due(definition, row, answers[identity]) if repairs else None
        if text is not None:
            repairing.touched.append(identity)
        now_there = definition.sql if text is None else repairing.repair(definition, row, text)
        rows[identity] = _after_repair(row, now_there)
    if repairing.touched:
        again = {
            each for each in rows if each in repairing.touched or answers[each].columns is None
        }
        answers |= _bind(engine, {each: readers.definitions[each] for each in again})
    return _look(state, found, rows, answers, now, repairing)


@dataclass(slots=True)
class _Repairing:
    """The repairs of one look: what was done, and what could not be."""

    engine: Engine
    ensure: Callable[[], None]
    touched: list[Identity] = field(default_factory=list)
    replaced: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)

    def repair(self, definition: UserDefinition, row: UserObjectRecord, text: str) -> str:
        """Replace a text; return the one that is there afterwards."""
        self.ensure()
        failure = guard(lambda: self.engine.replace_text(definition, text))
        if failure is not None:
            self.failures.append(f"{row.what} could not be repaired: {failure}")
            return definition.sql
        back = " (its text from before a repair)" if row.due == "put back" else ""
        self.replaced.append(f"{row.what}{back}")
        return text


def _look(
    state: State, found: Found, rows: Mapping[Identity, UserObjectRecord],
    answers: Mapping[Identity, QueryAnalysis], now: float, repairing: _Repairing,
) -> Look:
    """Return the records as the answers have them."""
    definitions = found.readers.definitions
    in_force = state.release_in_force("release")
    release = "" if in_force is None else in_force.name
    looked = {
        identity_text(identity): _with_answer(row, answers[identity], now, release)
        for identity, row in rows.items()
        if not is_dropped(definitions[identity], answers[identity])
    }
    for key, row in state.user_objects.items():
        reason = None if key in looked else found.unread_reason(row.key)
        if reason is not None:
            looked[key] = _with_answer(row, QueryAnalysis(reason=reason), now, release)
    looked = {
        key: row if row.due is not None else replace(row, serial=state.serial)
        for key, row in looked.items()
    }
    return Look(looked, state.serial, tuple(repairing.failures), tuple(repairing.replaced))


def record_look(log: CatalogLog, looked: Look, *requirements: Requirement) -> State:
    """Put on record what was found; what is no reader any more goes. Nothing where all is so.

    Needs no lease: of two that looked at once, what the later one found counts.
    """
    return commit(log, Commit("users", (looked,), requirements))


def _bind(
    engine: Engine, definitions: Mapping[Identity, UserDefinition]
) -> dict[Identity, QueryAnalysis]:
    """What Spark makes of each object itself, over what is there."""
    requests = [request_stored(each) for each in definitions.values()]
    return dict(zip(definitions, ask(engine.analyse, requests), strict=True))


# -- one record ----------------------------------------------------------------------------------


def _row(state: State, readers: Readers, identity: Identity) -> UserObjectRecord:
    """The record of a reader, with what it reads now."""
    name, key = readers.definitions[identity].name, identity_text(identity)
    known = state.user_objects.get(key)
    row = known or UserObjectRecord(name.schema, readers.definitions[identity].kind, name.name)
    return replace(row, reads=tuple(map(identity_text, readers.graph.uses(identity))))


def _with_state(
    row: UserObjectRecord, state: Literal["bound", "broken", "unknown"], condition: str | None,
    reason: str | None, now: float, release: str,
) -> UserObjectRecord:
    """The record in a state; since when, where it was in it before. What is known to be broken
    stays so until it is known not to be."""
    if state == "unknown" and row.state == "broken":
        return row
    if row.state != state or not row.since:
        since = datetime.fromtimestamp(now, timezone.utc).isoformat(timespec="seconds")
        row = replace(row, state=state, since=since, release=release)
    return replace(row, condition=condition, reason=shorten(reason) or None)


def _with_answer(
    row: UserObjectRecord, answer: QueryAnalysis, now: float, release: str
) -> UserObjectRecord:
    if answer.columns is None and answer.condition is None:
        return _with_state(row, "unknown", None, answer.reason, now, release)
    if answer.columns is None:
        return _with_state(row, "broken", answer.condition, answer.reason, now, release)
    return _with_state(row, "bound", None, None, now, release)


def _text_due(
    definition: UserDefinition, row: UserObjectRecord, answer: QueryAnalysis
) -> str | None:
    """The text to put in place of the present one; None where nothing is to be done."""
    if row.due == "put back":
        return row.original if definition.sql == row.repaired else None
    if definition.sql == (row.replaces or row.original) and answer.columns is None:
        return row.repaired
    return None


def _after_repair(row: UserObjectRecord, text: str) -> UserObjectRecord:
    """The record where nothing is due any more and ``text`` is what the object has."""
    if text == row.repaired and not (row.due == "put back" and text == row.original):
        return replace(row, due=None, replaces=None)
    if row.due == "repair" and text == row.replaces != row.original:  # what an earlier repair gave
        return replace(row, due=None, repaired=text, replaces=None)
    return _without_repair(row)


def _without_repair(row: UserObjectRecord) -> UserObjectRecord:
    return replace(
        row, due=None, original=None, repaired=None, repaired_at=0, replaces=None
    )
