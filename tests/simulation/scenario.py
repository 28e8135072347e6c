"""A scenario: releases, processes, faults, turns and what others do, written down as plain data.

Drawn from a seed (:func:`draw`), kept as JSON where it once broke something, made smaller by
:mod:`tests.simulation.shrink`. Every part can be taken away and the rest still means the
same, because faults and turns are told by a process's own calls and the rest by the step.
"""

from __future__ import annotations

from random import Random
from typing import Literal

import msgspec
from msgspec.structs import replace

from tests.simulation.dead_letters import Fate, with_letters
from tests.simulation.draft import DraftedRelease
from tests.simulation.mutations import MUTATIONS
from tests.simulation.releases import chain_of
from tests.simulation.run import Populating

FaultKind = Literal[
    "crash", "pause", "suspend", "fail", "refuse", "in flight", "skew", "reorder"
]
"""What happens to a process at one of its calls.

``crash`` ends it; ``pause`` stops it for so many seconds, ``suspend`` its machine with it (the
monotonic clock stands still); ``fail`` makes the call fail: before its effect, or after it, so that
the reply is lost; ``refuse`` makes a table refuse its change in place, now and for good; ``in
flight`` is a commit whose outcome nobody can tell, and which lands so many
steps later; ``skew`` moves its wall clock; ``reorder`` turns its listings round from then on.
"""

OutsideKind = Literal[
    "row", "row by name", "drop", "change", "foreign", "leave", "sink", "send", "source",
    "view", "function", "alter", "remove", "recreate",
]
"""What others do: rows appended by path or by name; a user who drops one of our names, changes a
view under it, or makes a view of his own under a name that a later release wants; a session that
ends, and an operator who takes the records of those that are gone away (``leave``); a user who
makes a sink on a table, and its runtime that sends what has come (``send``), or a source with a
sink on it (``source``); a user who makes a ``view`` or ``function`` of his own over what is there,
and alters, drops (``remove``) or drops and makes again one of these."""


class Start(msgspec.Struct, frozen=True):
    """A process that begins with a release (counted from 0) at a time (seconds).

    With ``session`` it is on record as living with the names that it made, and lives on after its
    start. With ``back`` it is no start of a release but an operator's rollback, to the ``back``-th
    newest of the serials that there were. With ``repairs`` it repairs what users have.
    """

    release: int
    at: float = 0.0
    populating: Populating = "fills"
    read_only: bool = False
    session: bool = False
    back: int = 0
    repairs: bool = False


class Fault(msgspec.Struct, frozen=True):
    """What happens to process number ``process`` at its ``call``-th call, counted from 1.

    With ``of``, the name of a call, it waits for the first such call from there on; with
    ``during``, what the name of a state begins with, for the first one while the process has an
    operation in hand that is in it. ``amount``: seconds, or steps for a commit in flight.
    """

    process: int
    call: int
    kind: FaultKind
    amount: float = 0.0
    of: str = ""
    during: str = ""


class Turn(msgspec.Struct, frozen=True):
    """After its ``call``-th call process number ``process`` lets the ``to``-th other one go on."""

    process: int
    call: int
    to: int


class Outside(msgspec.Struct, frozen=True):
    """What others do at a step of the whole run; ``pick`` chooses among what there is."""

    step: int
    kind: OutsideKind
    pick: int


class Scenario(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that decides a run.

    ``chain`` is the seed that answers what the ``groups`` of mutations leave open, ``first`` that
    of the first release (None: ``chain`` too), ``without`` are the numbers of objects that are left
    out of every release. ``letters`` says what each release has of a table for dead letters.
    ``installed``: the first release is in force, with rows, before the first process begins.
    ``tick`` is how many seconds a call takes.
    """

    chain: int
    groups: tuple[tuple[str, ...], ...]
    starts: tuple[Start, ...]
    faults: tuple[Fault, ...] = ()
    turns: tuple[Turn, ...] = ()
    outside: tuple[Outside, ...] = ()
    without: frozenset[int] = frozenset()
    persistent: bool = False
    installed: bool = True
    tick: float = 0.02
    first: int | None = None
    letters: tuple[Fate, ...] = ()

    def releases(self) -> tuple[DraftedRelease, ...]:
        """The chain of releases."""
        random = Random(self.chain)
        drafts = chain_of(random, self.groups, first=self.first)
        if self.without:
            drafts = tuple(draft.less(self.without) for draft in drafts)
        return with_letters(drafts, self.letters) if self.letters else drafts


def encode(scenario: Scenario) -> bytes:
    """A scenario as JSON, to be kept."""
    return msgspec.json.format(msgspec.json.encode(scenario, order="deterministic"), indent=1)


def decode(text: bytes | str) -> Scenario:
    """A kept scenario; msgspec.ValidationError when it is none."""
    return msgspec.json.decode(text, type=Scenario)


CALLS = 130
"""Faults and turns are drawn from so many calls of a process; one that migrates makes as many."""

SHARED = 16
"""So many seeds in a row begin with the same first release, which is then installed only once."""

USERS, OBJECTS = 10, 4
"""In every so many schedules users have sources of their own, in one of these views and functions.
"""

_KINDS: tuple[FaultKind, ...] = (
    "crash", "crash", "pause", "pause", "suspend", "suspend", "fail", "fail", "in flight", "skew",
    "reorder",
)  # fmt: skip
_UNRENAMED = tuple(
    name for name in MUTATIONS if not name.startswith("rename") and name != "move table"
)
"""Tables that had one name in turn are told to belong together by that name, and their columns by
theirs: what was renamed in between is another."""

_COPYING = ("add NOT NULL column", "narrow column", "widen column", "partition")
_AIMS = (
    "append", "append", "append", "seal", "fence", "unseal", "evolve", "copy_rows", "copy_tail",
    "truncate_shard", "delete_shard", "create_shard", "delete_shard_data", "drop", "create_view",
    "register_table", "observe", "read", "renew",
)  # fmt: skip
_OUTSIDE: tuple[OutsideKind, ...] = (
    "row", "row", "row", "row", "row by name", "row by name", "drop", "change", "foreign"
)


LONG, LONG_AT = 50, 37
"""Of so many seeds this one is of a long chain, gone up and down again and again."""


AIMED = (1, 5, 7)
"""Of so many schedules (:data:`USERS`) these aim at what is seldom come to."""


def draw(seed: int) -> Scenario:
    """The scenario of a seed."""
    if seed % LONG == LONG_AT:
        return back_and_forth(seed)
    if seed % USERS in AIMED:
        return draw_aimed(seed)
    drawn = _drawn(seed)
    if seed % USERS == USERS - 1:
        return _with_sources(Random(f"users {seed}"), drawn)
    if seed % USERS == OBJECTS:
        return _repairing(draw_users(seed)) if seed % LONG == OBJECTS else draw_users(seed)
    return drawn


def _drawn(seed: int) -> Scenario:
    random = Random(seed)
    names = list(MUTATIONS)
    groups = tuple(
        tuple(random.sample(names, random.randint(1, 3)))
        for _ in range(random.choice((1, 1, 1, 2)))
    )
    count = random.choice((2, 2, 3, 3, 4))
    starts = tuple(
        Start(
            random.choice((random.randint(0, len(groups)), len(groups), 1)),
            random.choice((0.0, 0.0, 0.5, 2.0, 30.0, 120.0)) if number else 0.0,
            random.choice(("fills", "fills", "fills", "fails", "absent")),
            random.random() < 0.05,
        )
        for number in range(count)
    )
    kind = random.random()
    if kind < 0.1:
        groups = ((random.choice(_COPYING), *groups[0]), *groups[1:])
        starts, faults = _cleaning(random, len(groups))
    elif kind < 0.5:
        starts, faults = _relay(random, starts)
    else:
        faults = tuple(_fault(random, count) for _ in range(random.choice((0, 1, 2, 2, 3, 4))))
    turns = tuple(
        Turn(process, call, random.randrange(count))
        for process in range(count)
        for call in _gaps(random, random.choice((3, 10, 30)), CALLS)
    )
    outside = tuple(
        Outside(step, random.choice(_OUTSIDE), random.randrange(1_000_000))
        for step in _gaps(random, 35, CALLS * count)
    )
    drawn = Scenario(
        chain=seed, groups=groups, starts=starts, faults=faults, turns=turns, outside=outside,
        persistent=random.random() < 0.6, installed=random.random() < 0.9,
        tick=random.choice((0.02, 0.02, 0.3)), first=seed // SHARED,
    )  # fmt: skip
    more = random.random()
    if more < 0.16:
        return _going_back(random, drawn)
    if more < 0.26:
        return _with_sessions(random, drawn)
    if more < 0.32:
        return _refusing(random, drawn)
    if more < 0.44:
        return _with_sinks(random, drawn)
    return drawn


def _going_back(random: Random, drawn: Scenario) -> Scenario:
    """Operators go back to earlier serials, between and under the others, and forth again."""
    backs = tuple(
        Start(0, random.choice((0.5, 5.0, 40.0, 120.0, 300.0)), back=random.choice((1, 1, 1, 2, 3)))
        for _ in range(random.choice((1, 1, 2)))
    )
    latest = Start(len(drawn.groups), random.choice((45.0, 130.0, 320.0)))
    starts = (*drawn.starts, *backs, latest)
    faults = list(drawn.faults)
    if random.random() < 0.5:
        process = len(drawn.starts) + random.randrange(len(backs))
        kind: FaultKind = random.choice(("crash", "crash", "pause", "suspend", "fail", "in flight"))
        amount = 5.0 if kind == "in flight" else random.choice((0.0, 12.0, 45.0, 90.0))
        faults.append(Fault(process, random.randint(1, 60), kind, amount, _aim(random)))
    return replace(drawn, starts=starts, faults=tuple(faults), installed=True)


def back_and_forth(seed: int) -> Scenario:
    """Up and down a chain of up to five releases: rollbacks over rollbacks, and rows in between."""
    random = Random(f"back and forth {seed}")
    latest = random.choice((2, 3, 3, 4))
    groups = tuple(tuple(random.sample(_UNRENAMED, random.randint(1, 3))) for _ in range(latest))
    starts: list[Start] = []
    at = 0.0
    for _ in range(random.randint(4, 9)):
        at += random.choice((0.0, 0.5, 5.0, 40.0, 40.0, 120.0))
        if random.random() < 0.4:
            starts.append(Start(0, at, back=random.choice((1, 1, 1, 2, 2, 3, 4))))
        else:
            starts.append(Start(
                random.randint(1, latest), at, random.choice(("fills", "fills", "fails", "absent")),
                session=random.random() < 0.15,
            ))
    count = len(starts)
    faults = [_fault(random, count) for _ in range(random.choice((0, 0, 1, 2, 3)))]
    if random.random() < 0.25:
        faults.append(Fault(random.randrange(count), 1, "skew", 30 * 86_400.0))
    if random.random() < 0.15:
        of = random.choice(("evolve", "alter"))
        faults.append(Fault(random.randrange(count), random.choice((1, 20, 40)), "refuse", of=of))
    turns = tuple(
        Turn(process, call, random.randrange(count))
        for process in range(count)
        for call in _gaps(random, random.choice((10, 30, 100)), CALLS)
    )
    outside = tuple(
        Outside(step, random.choice(_OUTSIDE[:-1]), random.randrange(1_000_000))
        for step in _gaps(random, 25, CALLS * count)
    )
    return Scenario(
        chain=seed, groups=groups, starts=tuple(starts), faults=tuple(faults), turns=turns,
        outside=outside, persistent=random.random() < 0.6, tick=random.choice((0.02, 0.02, 0.3)),
        first=seed // SHARED,
    )


_COPIED, _IN_PLACE_ONLY = ("add NOT NULL column", "narrow column"), ("rename column", "drop column")
_LEADING: tuple[tuple[str, tuple[str, ...], tuple[str, ...], int], ...] = (
    ("building", _COPIED, ("create_shard", "copy_rows", "create_shadow_table"), 2),
    ("sealing", (*_COPIED, "partition"), ("seal", "copy_tail", "count_rows"), 2),
    ("abandoned", _COPIED, ("fence", "unseal", "delete_shard"), 4),
    ("later attempt", ("add derived table",), ("create_shard", "populate"), 3),
    ("later attempt", _IN_PLACE_ONLY, ("create_shard", "copy_rows", "seal"), 6),
    ("failed", ("add view", "rewrite view", "add nullable column"), ("observe", "create_view"), 9),
    ("committed, sealed", ("add filled table",), ("unseal", "evolve"), 3),
    ("committed, evolve pending", (*_IN_PLACE_ONLY, "add nullable column"), ("evolve",), 3),
    ("committed, tombstones pending", ("rename table", "drop view", "drop table"),
     ("drop", "observe"), 3),
    ("committed, reconciling", ("rewrite view", "add view", "call function"),
     ("create_view", "observe"), 5),
    ("", ("add derived table",), ("populate",), 1),
    ("", ("add filled table",), ("fill_rows", "unseal"), 1),
    ("", ("drop table", "narrow column"), ("delete_shard_data",), 2),
    ("", ("move table",), ("drop_schema_if_empty",), 3),
    ("", ("rename column",), ("evolve", "create_shadow_table"), 1),
    ("", ("add function", "rewrite function"), ("create_function",), 1),
    ("", ("comment", "add check", "drop check"), ("alter",), 2),
    ("", _COPIED, ("truncate_shard",), 1),
    ("", _COPIED, ("copy_tail", "seal", "renew"), 2),
    ("", (*_COPIED, "add view"), ("audit", "audit", "bind", "names", "read", "append"), 4),
    ("", ("add derived table",), ("audit",), 3),
    ("", ("add view", "rename table"), ("drop", "register_table", "create_view"), 1),
    ("", ("add view",), ("create",), 1),
)
"""States of a migration, what a release changes so that one comes to them, the calls that are made
in them, and how many of the schedules that aim are for each. Without a state a call is aimed at."""

_STRUCK: tuple[FaultKind, ...] = (
    "crash", "crash", "pause", "suspend", "fail", "fail", "fail", "in flight"
)


def draw_aimed(seed: int) -> Scenario:
    """One process is struck in a state or at a call that is seldom come to; others go on."""
    random = Random(f"aimed {seed}")
    state, changes, calls, _ = random.choices(_LEADING, [weight for *_, weight in _LEADING])[0]
    groups: tuple[tuple[str, ...], ...] = (
        (random.choice(changes), *random.sample(list(MUTATIONS), random.choice((0, 1)))),
    )
    if random.random() < 0.8:  # a third release
        groups = (*groups, (random.choice(list(MUTATIONS)),))
    back = bool(state) and random.random() < 0.5
    late, call = random.choice((20.0, 60.0, 130.0)), random.choice(calls)
    derived = "derived" in changes[0] and call != "populate"
    kind: FaultKind = random.choice(_STRUCK) if state else "crash"
    of, amount = "", 0.0
    if kind == "in flight":
        of, amount = "append", random.choice((3.0, 20.0))
    elif kind == "fail":
        of, amount = random.choice(("append", "append.done", call)), random.choice((0.0, 1.0))
    elif kind != "crash":
        amount = 200.0
    elif not state or random.random() < 0.5:
        of = call + random.choice(("", ".done"))
    late_data = call == "delete_shard_data"
    fills: Populating = "absent" if derived else "fills"
    starts = [Start(1, populating=fills)] * ((derived and bool(state)) or back or late_data)
    struck = len(starts)
    faults: list[Fault] = []
    starts.append(Start(
        0 if back else 1, 150.0 * struck, "absent" if derived and not state else "fills",
        back=int(back),
    ))
    if state == "abandoned":
        first = random.choice(("copy_rows", "seal", "create_shard.done", "bind"))
        faults.append(Fault(struck, 1, "fail", 1.0, first))
    elif state == "failed":
        step = random.choice(("create_view", "evolve", "drop", "register_table", "observe"))
        faults.append(Fault(struck, 1, "fail", 1.0, step, "committed"))
        if random.random() < 0.8:  # it is the next one that is struck
            starts.append(Start(random.choice((1, len(groups))), starts[-1].at + late))
            struck += 1
    elif state == "later attempt" and not derived:
        faults.append(Fault(struck, 1, "refuse", of="evolve", during="committed"))
    elif call == "truncate_shard":
        faults.append(Fault(struck, 1, "fail", 0.0, "copy_rows.done"))
    elif late_data:
        faults.append(Fault(struck, 1, "skew", 30 * 86_400.0))
    faults.append(Fault(
        struck, random.choice((1, 1, random.randint(1, 60))), kind, amount, of, state
    ))
    for _ in range(random.choice((1, 1, 2))):
        starts.append(Start(random.choice((1, 0, len(groups))), starts[-1].at + late))
    outside = tuple(
        Outside(step, random.choice(("row", "row by name")), random.randrange(1_000_000))
        for step in _gaps(random, 35, CALLS * len(starts))
    )
    return Scenario(
        chain=seed, groups=groups, starts=tuple(starts), faults=tuple(faults), outside=outside,
        persistent=random.random() < 0.8, installed=call != "create",
        first=seed // SHARED,
    )


_IN_PLACE = ("rename column", "rename column", "add nullable column", "drop column", "relax column")
"""Changes that a table may take in place."""


def _with_sessions(random: Random, drawn: Scenario) -> Scenario:
    """Processes live on with the columns of their start while others rename and drop them."""
    starts = tuple(
        replace(start, session=not start.read_only and random.random() < 0.7)
        for start in (Start(0), *drawn.starts)
    )
    faults = tuple(replace(fault, process=fault.process + 1) for fault in drawn.faults)
    turns = tuple(replace(turn, process=turn.process + 1) for turn in drawn.turns)
    leave = tuple(
        Outside(random.randint(40, 400), "leave", 0) for _ in range(random.choice((0, 1, 2, 3)))
    )
    return replace(
        _in_place(random, drawn), starts=starts, faults=faults, turns=turns,
        outside=(*drawn.outside, *leave),
    )


def _refusing(random: Random, drawn: Scenario) -> Scenario:
    """Tables that took the change on their shadow tables refuse it once it is committed."""
    refusals = tuple(
        Fault(
            random.randrange(len(drawn.starts)), random.choice((1, 20, 40, 60)), "refuse",
            of=random.choice(("evolve", "evolve", "alter")),
        )
        for _ in range(random.choice((1, 2, 3)))
    )
    return replace(_in_place(random, drawn), faults=(*drawn.faults, *refusals))


_MOVING = (
    "add NOT NULL column", "narrow column", "partition", "rename column", "rename table",
    "drop column", "drop table", "table becomes view",
)
"""Changes that sinks have to follow, or that set them aside."""


def _with_sinks(random: Random, drawn: Scenario) -> Scenario:
    """Users' sinks read tables that are migrated, renamed and dropped; some are far behind."""
    if random.random() < 0.3:
        drawn = _going_back(random, drawn)
    made = tuple(
        Outside(random.randint(1, 120), "sink", random.randrange(1_000_000))
        for _ in range(random.choice((1, 1, 2)))
    )
    sent = tuple(
        Outside(random.randint(20, 500), "send", 0) for _ in range(random.choice((0, 1, 3, 6)))
    )
    faults = drawn.faults
    if random.random() < 0.2:  # retention is over before what they read is
        late = Fault(random.randrange(len(drawn.starts)), 1, "skew", 30 * 86_400.0)
        faults = (*faults, late)
    *earlier, last = drawn.groups
    return replace(
        drawn, groups=(*earlier, (random.choice(_MOVING), *last[:1])), installed=True,
        faults=faults, outside=(*drawn.outside, *made, *sent),
    )


_SEEN = (
    "rename column", "rename column", "drop column", "widen column", "narrow column",
    "relax column", "add nullable column", "add NOT NULL column", "rename table", "drop table",
    "table becomes view",
)
"""Changes that a user's object over a table may notice."""

_MADE: tuple[OutsideKind, ...] = ("view", "view", "view", "function")
_CHANGED: tuple[OutsideKind, ...] = ("alter", "alter", "remove", "recreate", "view")


def draw_users(seed: int) -> Scenario:
    """Users have views and functions over what a release brings, and change them meanwhile."""
    random, drawn = Random(f"objects {seed}"), _drawn(seed)
    *earlier, last = drawn.groups
    latest = len(drawn.groups)
    starts = drawn.starts
    if random.random() < 0.4:  # two applications at once
        starts = (Start(latest), Start(latest), *starts[2:])
    backs = [number for number, start in enumerate(starts) if start.back]
    if backs:  # one is enough here
        starts = tuple(
            replace(start, back=0, release=latest) if number in backs[1:] else start
            for number, start in enumerate(starts)
        )
    elif random.random() < 0.2:
        back, forth = random.choice((40.0, 120.0, 300.0)), random.choice((45.0, 130.0, 320.0))
        starts = (*starts, Start(0, back, back=1), Start(latest, forth))
    if random.random() < 0.6:
        starts = tuple(replace(start, repairs=random.random() < 0.7) for start in starts)
    outside = drawn.outside
    if random.random() < 0.7:
        outside = tuple(each for each in outside if each.kind in ("row", "row by name"))
    acts = [
        Outside(random.randint(1, 40), random.choice(_MADE), random.randrange(1_000_000))
        for _ in range(random.choice((1, 2, 4, 6)))
    ] + [
        Outside(random.randint(1, 400), random.choice(_CHANGED), random.randrange(1_000_000))
        for _ in range(random.choice((0, 0, 1, 2, 5)))
    ]
    return replace(
        drawn, groups=(*earlier, (random.choice(_SEEN), *last[:1])), starts=starts, persistent=True,
        installed=True, outside=(*outside, *acts),
    )


def _repairing(drawn: Scenario) -> Scenario:
    """Each process repairs what users have, and is killed at its first one."""
    starts = tuple(replace(start, repairs=True) for start in drawn.starts)
    done = ".done" * (drawn.chain // LONG % 2)
    return replace(drawn, starts=starts, faults=(*drawn.faults, *(
        Fault(process, 1, "crash", of=f"replace_text{done}") for process in range(len(starts))
    )))


def _with_sources(random: Random, drawn: Scenario) -> Scenario:
    """Users have sources that need a table of a release's."""
    if random.random() < 0.5:
        drawn = _going_back(random, drawn)
    releases = len(drawn.groups) + 1
    kept = random.randint(1, releases)
    last: Fate = random.choice(("dropped", "dropped", "view", "renamed"))
    made = tuple(
        Outside(random.randint(1, 120), "source", 0) for _ in range(random.choice((1, 1, 2)))
    )
    sent = tuple(
        Outside(random.randint(20, 500), "send", 0) for _ in range(random.choice((1, 3, 6)))
    )
    return replace(
        drawn, installed=True, outside=(*drawn.outside, *made, *sent),
        letters=("table",) * kept + (last,) * (releases - kept),
    )


def _in_place(random: Random, drawn: Scenario) -> Scenario:
    """The last release changes a table as it may be changed in place."""
    *earlier, last = drawn.groups
    return replace(drawn, groups=(*earlier, (random.choice(_IN_PLACE), *last[:1])))


def _cleaning(random: Random, latest: int) -> tuple[tuple[Start, ...], tuple[Fault, ...]]:
    """One dies when it has sealed, the next is stopped while it cleans up, a third goes on."""
    times = (0.0, 50.0, random.choice((60.0, 90.0)))
    starts = tuple(Start(latest if at else 1, at) for at in times)
    stopped: FaultKind = random.choice(("pause", "suspend"))
    last = random.choice(("seal.done", "copy_rows.done", "create_shard.done"))
    return starts, (
        Fault(0, 1, "crash", of=last),
        Fault(1, 1, stopped, 300.0, random.choice(("fence", "unseal", "unseal", "delete_shard"))),
    )


def _relay(
    random: Random, starts: tuple[Start, ...]
) -> tuple[tuple[Start, ...], tuple[Fault, ...]]:
    """Each process takes up what the one before left: all but the last are killed or stopped."""
    at, told, faults = 0.0, [], []
    for number, start in enumerate(starts):
        told.append(replace(start, at=at, populating="fills", read_only=False))
        at += random.choice((0.0, 10.0, 40.0, 100.0))
        if number + 1 < len(starts):
            kind: FaultKind = random.choice(("crash", "crash", "pause", "suspend", "in flight"))
            amount = random.choice((12.0, 45.0, 90.0, 200.0))
            if kind == "in flight":
                amount = random.choice((3.0, 20.0, 60.0))
            aim = _aim(random) if random.random() < 0.5 else ""
            call = random.randint(1, 20) if aim else random.randint(5, 75)
            faults.append(Fault(number, call, kind, amount, aim))
    return tuple(told), tuple(faults)


def _fault(random: Random, processes: int) -> Fault:
    kind = random.choice(_KINDS)
    amount = 0.0
    if kind in ("pause", "suspend"):
        amount = random.choice((1.0, 12.0, 45.0, 45.0, 90.0, 90.0))
    elif kind == "in flight":
        amount = float(random.choice((1, 3, 10, 40)))
    elif kind == "skew":
        amount = random.choice((-30.0, 30.0, 1.0)) * 86_400.0
    latest = random.choice((20, 60, 60, CALLS))
    call = random.randint(1, latest)
    return Fault(
        random.randrange(processes), call, kind, amount,
        _aim(random) if random.random() < 0.4 else "",
    )


def _aim(random: Random) -> str:
    return random.choice(_AIMS) + random.choice(("", ".done"))


def _gaps(random: Random, mean: int, until: int) -> list[int]:
    """Rising numbers at random distances."""
    found: list[int] = []
    at = 0
    while True:
        at += 1 + int(random.expovariate(1 / mean))
        if at > until:
            return found
        found.append(at)
