"""A story: releases, starts, crashes and writers spelled out, instead of drawn from a seed.

For tests that choose each of these themselves and want the smallest story that breaks something.
"""

from __future__ import annotations

from random import Random

import msgspec

from catalog_migrate.errors import CatalogMigrateError
from tests.simulation.draft import DraftedRelease
from tests.simulation.installation import NO_FAULT, PortFault
from tests.simulation.invariants import InvariantBroken
from tests.simulation.run import Populating, Run


class Start(msgspec.Struct, frozen=True):
    """A process that starts with a release of the chain (counted from 0).

    It is killed at its ``crash_at``-th point (None: never); a foreign writer appends a row before
    each of the points in ``writes``, counted from 0.
    """

    release: int
    crash_at: int | None = None
    populating: Populating = "fills"
    writes: frozenset[int] = frozenset()

    def __str__(self) -> str:
        words = [f"a process of release {self.release + 1}"]
        if self.crash_at is not None:
            words.append(f"is killed at point {self.crash_at}")
        if self.populating != "fills":
            words.append(f"its callback {self.populating.replace('absent', 'is absent')}")
        if self.writes:
            words.append(f"rows come before points {', '.join(map(str, sorted(self.writes)))}")
        return "; ".join(words)


class Trace(msgspec.Struct, frozen=True):
    """A chain of releases and the processes that start on one installation, in order.

    ``persistent`` says whether names outlive a process.
    """

    chain: tuple[DraftedRelease, ...]
    starts: tuple[Start, ...]
    persistent: bool = False

    def __str__(self) -> str:
        lines = [f"names {'outlive' if self.persistent else 'die with'} a process"]
        for draft in self.chain:
            lines.append(f"release {draft.name}: {', '.join(draft.mutations) or 'the first'}")
            lines.extend(
                f"  {definition.key} {definition.sql or draft.columns_of(definition)}"
                for definition in sorted(draft.objects, key=lambda one: str(one.key))
            )
        return "\n".join((*lines, *map(str, self.starts)))


class TraceFailed(AssertionError):
    """A story broke an invariant or ended in an error; its message tells the whole of it."""


def carry_out(story: Trace, fault: PortFault = NO_FAULT) -> Run:
    """Run a trace to its end, with every invariant checked after each step, and return the run.

    After the last start a process of the latest release that any start had brings everything in
    line. Raises TraceFailed.
    """
    run = Run(story.chain, persistent=story.persistent, random=Random(0), fault=fault)
    try:
        for start in story.starts:
            _play(run, start)
        latest = max((start.release for start in story.starts), default=0)
        _play(run, Start(max(latest, run.release_in_force())), again=True)
        run.write(2, must=True)
    except (InvariantBroken, CatalogMigrateError) as error:
        raise TraceFailed("\n".join((str(error), str(story), *run.trace))) from error
    return run


def _play(run: Run, start: Start, *, again: bool = False) -> None:
    run.check_plan(start.release, shuffled=True, read_only=True)
    engine = run.attempt(
        start.release,
        crash_at=start.crash_at,
        populating=start.populating,
        writes=start.writes,
    )
    # an older release is fenced out and finishes nothing
    if engine is not None and start.release == run.release_in_force():
        run.check_settled(engine, start.release, again=again)
