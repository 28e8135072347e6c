"""What random schedules must reach *sometimes*: else a check that never fails says nothing.

An invariant holds in a state that no schedule comes to, too. So each play says what it came to
(:class:`MigrationWatch`, :class:`StreamWatch`), as points: a process was killed in a state of an
operation, was overtaken in it, its commit was refused or lost its reply; a state was found by the
next start, and left as ``docs/states.md`` says; one state followed another; a process was killed
before or after one of its calls; a start ended with an outcome. :data:`POINTS` are all there are,
made from the tables of the product. A run of :data:`SCHEDULES` must reach each of them in
:data:`NEEDED` schedules; what it cannot reach is in :data:`UNREACHED`, with the reason.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import get_args

import msgspec

from catalog_migrate.catalog.lease import MIGRATION
from catalog_migrate.catalog.operation_states import find_declared_state, state_of
from catalog_migrate.catalog.state import State
from catalog_migrate.hook import Outcome
from catalog_migrate.operations.kinds import (
    ABANDONED,
    ALTER,
    BUILDING,
    COMMITTED,
    FAILED,
    KINDS,
    LATER,
    MIGRATE,
    ROLLBACK,
    SEALED,
    SEALING,
    UNCONFIRMED,
    UNSAFE,
)
from tests.simulation import states

SCHEDULES = 20_000
"""A run of so many schedules, from seed 0 on, is held to :data:`NEEDED`."""

NEEDED = 2
"""In so many of them each point is reached."""

EVENTS = (
    "killed", "overtaken", "its statement fails", "its commit is refused", "its reply is lost",
    "its commit is under way",
)
"""What happens to the process that has an operation in hand."""

STREAM_EVENTS = ("killed", "overtaken", "its commit is refused", "its reply is lost")

CALLS = (
    "create_shard", "create_shadow_table", "copy_rows", "copy_tail", "fill_rows", "populate",
    "truncate_shard", "seal", "unseal", "fence", "evolve", "alter", "delete_shard",
    "delete_shard_data", "ensure_schema", "drop_schema_if_empty", "register_table", "create_view",
    "create_function", "drop", "replace_text", "create", "append", "renew", "audit",
)
"""The calls of engine, log and callback that change something, in the order of a life."""

STREAM_CALLS = (
    "append", "renew", "start", "stop", "offsets", "rows", "commits", "send", "chunk", "slot",
    "copy", "manifest", "load", "decode", "advance", "file: make", "file: write", "file: sync",
    "file: rename", "file: put", "file: copy", "file: remove", "store: put", "store: delete",
)
"""The same of runtimes, by the first words of each."""

_DONE = ("append", "renew", "chunk", "load", "store: put", "store: delete")
"""Which of them are told of when they are done, too."""

SAME, OLD, THIRD, NEXT = "the same release", "the old release", "a third release", "the next start"

_FILLS_NOTHING = "A rollback fills no table from another: none stays sealed behind its commit."
_ONE_COMMIT = "One commit ends all that is left of a migration: no part of it ends alone."
_NO_RESTORE = (
    "Tables of streams are not restored here: tests/streams/unsafe/test_killed.py kills in it."
)
_ALONE = "Clients of schedules are refused while an operation is open: nothing changes below it."

AFTER_COMMIT = tuple(
    name for name in KINDS[MIGRATE].states if name not in (BUILDING, SEALING, ABANDONED, LATER)
)

def event(what: str, kind: str, state: str) -> str:
    """Something happened to the process that had an operation of a kind in hand."""
    return f"{what} while {kind}: {state}"


def follows(kind: str, state: str, after: str) -> str:
    """One state followed another."""
    return f"{kind}: {state} -> {after}"


def found(kind: str, state: str, who: str) -> str:
    """What a killed process left was found, and left as the table says."""
    return f"found by {who}: {kind}: {state}"


def killed_at(call: str) -> str:
    """A process was killed at a call."""
    return f"killed at {call}"


def _open(kind: str) -> Iterable[str]:
    return (name for name, state in KINDS[kind].states.items() if state.leads_to)


UNREACHED: Mapping[str, str] = {
    **{
        event(what, ROLLBACK, SEALED): _FILLS_NOTHING for what in EVENTS
    },
    found(ROLLBACK, SEALED, NEXT): _FILLS_NOTHING,
    follows(ROLLBACK, SEALED, "done"): _FILLS_NOTHING,
    **{
        follows(kind, state, after): _ONE_COMMIT
        for kind in (MIGRATE, ROLLBACK) for state in (FAILED, *COMMITTED)
        for after in COMMITTED if after != state
    },
    **{event(what, UNSAFE, "restoring"): _NO_RESTORE for what in STREAM_EVENTS},
    found(UNSAFE, "restoring", NEXT): _NO_RESTORE,
    follows(UNSAFE, "stopping", "restoring"): _NO_RESTORE,
    **{
        follows(UNSAFE, "restoring", after): _NO_RESTORE
        for after in KINDS[UNSAFE].states["restoring"].leads_to
    },
    follows(ALTER, "trial", "trial, setting back"): _ALONE,
    follows(UNSAFE, "requested", "stale"): _ALONE,
    follows(UNSAFE, "stopping", "stale"): _ALONE,
    follows(ROLLBACK, LATER, "undone"):
        "Schedules come to it in migrations; none has yet undone a later attempt of a rollback.",
    follows(ALTER, "trial, started", UNCONFIRMED):
        "In too few schedules a server is promoted in the middle of the trial that leads to it.",
    "ends LeaseHeld": "No process of a schedule has a lease for longer than another one waits.",
}
"""Points that the simulation cannot reach, each with its reason."""


def _points() -> Iterable[str]:
    for kind in (MIGRATE, ROLLBACK):
        for state in _open(kind):
            yield from (event(what, kind, state) for what in EVENTS)
            if kind == ROLLBACK:
                yield found(kind, state, NEXT)
    for row in states.AT_REST:
        yield event("killed", MIGRATE, row.name)
    for row in (*states.MIGRATIONS, *states.AT_REST):
        for who, then in ((SAME, row.same), (OLD, row.old), (THIRD, row.third)):
            if then.outcome is not None:
                yield found(MIGRATE, row.name, who)
    for kind in (ALTER, UNSAFE):
        for state in _open(kind):
            yield from (event(what, kind, state) for what in STREAM_EVENTS)
            yield found(kind, state, NEXT)
    for word, kind_ in KINDS.items():
        for name, declared in kind_.states.items():
            yield from (follows(word, name, after) for after in declared.leads_to)
    for call in CALLS:
        yield killed_at(call)
        if call != "populate":
            yield killed_at(f"{call}.done")
    for call in STREAM_CALLS:
        yield killed_at(f"stream {call}")
        if call in _DONE:
            yield killed_at(f"stream {call}.done")
    yield from (f"ends {outcome}" for outcome in get_args(Outcome) if outcome != "planned")
    yield from (f"ends {error}" for error in ENDS)


ENDS = ("LeaseHeld", "LeaseLost", "NotReconciled", "MigrationBlocked")
"""Errors that a race or a decision ends a start with."""

POINTS = dict.fromkeys(_points()).keys()
"""All there is to reach, group by group."""


class Reached(msgspec.Struct, frozen=True):
    """In how many schedules a point was reached, and the seed of the first of them."""

    times: int
    seed: int


Points = Mapping[str, Reached]


def merge(*runs: Points) -> dict[str, Reached]:
    """What several runs reached, together."""
    all_: dict[str, Reached] = {}
    for run in runs:
        for point, reached in run.items():
            held = all_.get(point)
            all_[point] = reached if held is None else Reached(
                held.times + reached.times, min(held.seed, reached.seed)
            )
    return all_


def missed(points: Points) -> list[str]:
    """The points that too few schedules reached, but for those that cannot be."""
    return [
        f"{point}: in {points[point].times if point in points else 0} of {NEEDED} schedules"
        for point in POINTS
        if point not in UNREACHED and (point not in points or points[point].times < NEEDED)
    ]


class Watch:
    """What one play reached."""

    def __init__(self) -> None:
        self.points: set[str] = set()

    def reach(self, point: str) -> None:
        """A point was reached; one that is not declared is of no interest."""
        if point in POINTS:
            self.points.add(point)


class Starter(msgspec.Struct):
    """A process that starts, or goes back: what the watch has to know of it.

    ``release`` is the number of the one that it brings in. ``found`` is the point that is reached
    when it ends with ``expected``.
    """

    holder: str
    back: bool
    release: int = -1
    lives: bool = True
    found: str = ""
    expected: frozenset[str] = frozenset()


_ENDED_WELL = frozenset({"initialized", "migrated", "resumed", "rolled_back", "unchanged"})


class MigrationWatch(Watch):
    """Starts and rollbacks: what happened to them, and what was found of them."""

    def __init__(self) -> None:
        super().__init__()
        self.state: State | None = None
        self.name: str | None = None
        """The state of the migration or rollback under way."""
        self.kind = MIGRATE
        self.holder = ""
        self.left: Starter | None = None
        """The process that was killed last, when none has taken up its work."""

    def see(self, state: State, verb: str, starters: Mapping[str, Starter]) -> None:
        """A commit was made."""
        before, self.state = self.state, state
        was, self.name = self.name, states.migration_state(state)
        lease = state.leases.get(MIGRATION)
        holder = "" if lease is None else lease.holder
        actor = starters.get(holder)
        if verb in (MIGRATE, ROLLBACK):
            self.kind = verb
        elif was is None and self.name is not None and actor is not None:
            self.kind = ROLLBACK if actor.back else MIGRATE
        moved = before is not None and before.serial != state.serial
        if was is not None and was != self.name and not (moved and was in AFTER_COMMIT):
            over = moved or was in AFTER_COMMIT or verb in ("refill", "copy after a refusal")
            self.reach(follows(self.kind, was, self.name or ("done" if over else "undone")))
        if holder != self.holder:
            late = starters.get(self.holder)
            if holder and late is not None and late.lives and self.name is not None:
                self.reach(event("overtaken", self.kind, self.name))
            if actor is not None:
                self.find(actor)
            self.holder = holder

    def suffer(self, starter: Starter, what: str) -> None:
        """Something happens to a process."""
        if what == "killed":
            starter.lives = False
            if self.state is not None and self.holder in (starter.holder, ""):
                self.reach(event(what, self.kind, self.stands(starter)))
                self.left = starter
        elif self.name is not None and self.holder == starter.holder:
            self.reach(event(what, self.kind, self.name))

    def holds(self, starter: Starter, state: str) -> bool:
        """Whether a process has an operation in hand that is in such a state."""
        return self.holder == starter.holder and (self.name or "").startswith(state)

    def stands(self, starter: Starter) -> str:
        """The state of the table, seen from a process that was killed."""
        assert self.state is not None
        if self.name is not None:
            return self.name
        held = _in_force(self.state)
        if held < 0:
            return states.state_of(self.state, "none").name
        return states.state_of(self.state, "new" if held >= starter.release else "old").name

    def find(self, starter: Starter) -> None:
        """A process looks at what a killed one left, when it begins and when it has the lease."""
        left = self.left
        if left is None or left is starter or self.state is None:
            return
        if starter.found and self.name is None:
            return  # it was found at the beginning; the lease is its own by now
        if self.kind == ROLLBACK and self.name is not None:
            starter.found, starter.expected = found(ROLLBACK, self.name, NEXT), _ENDED_WELL
            return
        held, stands = _in_force(self.state), self.stands(left)
        row = next(each for each in (*states.MIGRATIONS, *states.AT_REST) if each.name == stands)
        if starter.release == left.release:
            who, then = SAME, row.same
        elif starter.release > max(left.release, held):
            who, then = THIRD, row.third
        elif starter.release < left.release and starter.release <= held:
            who, then = OLD, row.old
        else:
            return
        if then.outcome is not None and not starter.back:
            starter.found, starter.expected = found(MIGRATE, stands, who), frozenset({then.outcome})

    def end(self, starter: Starter, outcome: str) -> None:
        """A process came to its end."""
        starter.lives = False
        self.reach(f"ends {outcome}")
        if starter.found and outcome in starter.expected:
            self.reach(starter.found)
        if outcome in ("initialized", "migrated", "resumed", "rolled_back"):
            self.left = None


def _in_force(state: State) -> int:
    held = state.release_in_force()
    return -1 if held is None else int(held.name) - 1


class StreamWatch(Watch):
    """Operations on running queries: processes are told apart by their names."""

    def __init__(self) -> None:
        super().__init__()
        self.open: dict[str, tuple[str, str]] = {}
        """Kind and state of each operation that is not over."""
        self.holder = ""
        self.epoch = 0
        self.taken: dict[str, str] = {}
        """The point that is reached when an operation moves on."""

    def see(self, state: State, actor: str, living: Iterable[str]) -> None:
        """A commit was made, by an actor."""
        before, self.open = self.open, {}
        for key, row in state.operations.items():
            if row.kind not in (ALTER, UNSAFE):
                continue
            now = state_of(row)
            was = before.get(key)
            if was is not None and was[1] != now:
                self.reach(follows(row.kind, was[1], now))
                self.reach(self.taken.pop(key, ""))
            if find_declared_state(row).leads_to:
                self.open[key] = row.kind, now
        lease = next((each for key, each in state.leases.items() if key != MIGRATION), None)
        epoch = 0 if lease is None or not lease.holder else lease.epoch
        if epoch == self.epoch:
            return
        if epoch:
            for key, (kind, now) in self.open.items():
                if self.holder in living:
                    self.reach(event("overtaken", kind, now))
                self.taken[key] = found(kind, now, NEXT)
        self.epoch, self.holder = epoch, actor if epoch else ""

    def suffer(self, actor: str, what: str) -> None:
        """Something happens to a process."""
        for kind, state in self.open.values():
            if actor == self.holder or KINDS[kind].states[state].alone:
                self.reach(event(what, kind, state))

    def holds(self, actor: str, state: str) -> bool:
        """Whether a process has an operation in hand that is in such a state."""
        return any(
            now.startswith(state) and (actor == self.holder or KINDS[kind].states[now].alone)
            for kind, now in self.open.values()
        )


def stream_call(call: str) -> str:
    """The first words of a call of a runtime: what it does, not to what."""
    done = ".done" * (".done" in call)
    words = call.replace(".done", "").split(" ")
    first = " ".join(words[:2]) if words[0] in ("file:", "store:") else words[0]
    return f"stream {re.sub(r'[0-9].*', '', first)}{done}"


# what docs/simulation.md shows of it --------------------------------------------------------------
BEGIN, END = "<!-- points: written by make simulate-table -->", "<!-- end of points -->"


def with_page(text: str, points: Points) -> str:
    """A text with the tables between the two marks written anew."""
    before, rest = text.split(BEGIN)
    return f"{before}{BEGIN}\n\n{page(points)}\n{END}{rest.split(END)[1]}"


def page(points: Points) -> str:
    """In how many schedules each point was reached, as tables."""
    def cell(point: str) -> str:
        if point not in POINTS:
            return ""
        times = points[point].times if point in points else 0
        return "-" if point in UNREACHED else f"{times:,}"

    lines: list[str] = []

    def table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> None:
        lines.extend((
            f"| {' | '.join(head)} |", f"|{'---|' * len(head)}",
            *(f"| {' | '.join(row)} |" for row in rows), "",
        ))

    kinds = tuple(KINDS)
    titles = {kind: KINDS[kind].title for kind in kinds}
    lines += ["What happened to the process that had an operation in hand, in each state:", ""]
    table(("operation", "state", *EVENTS), (
        (titles[kind], state, *(cell(event(what, kind, state)) for what in EVENTS))
        for kind in kinds for state in _open(kind)
    ))
    lines += ["What a killed process left, found by the next start, which did what it says:", ""]
    table(("state", "killed in it", SAME, OLD, THIRD), (
        (row.name, cell(event("killed", MIGRATE, row.name)),
         *(cell(found(MIGRATE, row.name, who)) for who in (SAME, OLD, THIRD)))
        for row in (*states.MIGRATIONS, *states.AT_REST)
    ))
    table(("operation", "state", "taken up by the next one"), (
        (titles[kind], state, cell(found(kind, state, NEXT)))
        for kind in (ROLLBACK, ALTER, UNSAFE) for state in _open(kind)
    ))
    lines += ["Which state followed which:", ""]
    table(("operation", "state", "followed by"), (
        (titles[kind], state, ", ".join(
            f"{after}: {cell(follows(kind, state, after))}"
            for after in KINDS[kind].states[state].leads_to
        ))
        for kind in kinds for state in _open(kind)
    ))
    lines += ["At which calls processes were killed, before and after its effect:", ""]
    table(("call", "before", "after"), (
        (call.removeprefix("stream ") + " (runtime)" * call.startswith("stream "),
         cell(killed_at(call)), cell(killed_at(f"{call}.done")))
        for call in (*CALLS, *(f"stream {call}" for call in STREAM_CALLS))
    ))
    lines += ["What starts ended with:", ""]
    table(("end", "schedules"), (
        (point.removeprefix("ends "), cell(point)) for point in POINTS if point.startswith("ends ")
    ))
    if UNREACHED:
        lines += ["Not reached (`-`), because:", ""]
        by_reason: dict[str, list[str]] = {}
        for point, reason in UNREACHED.items():
            by_reason.setdefault(reason, []).append(point)
        lines += [f"- {reason} ({'; '.join(held)})" for reason, held in by_reason.items()]
    return "\n".join(lines).rstrip() + "\n"
