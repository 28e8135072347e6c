"""A program as waves of steps, with the names that are absent meanwhile."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby, islice

from catalog_migrate.model.wording import one_line
from catalog_migrate.operations.steps import STREAMS, Step, describe_interruption, interruptions
from catalog_migrate.report.report import Wave

_ABSENT_SHOWN = 20
"""Names that a wave lists as absent; in a long chain of views each wave has almost all of them."""


def list_waves(steps: Sequence[Step]) -> tuple[Wave, ...]:
    """List the waves of a program; steps of a file that has no waves go one after the other.

    A name that goes for good is absent nowhere: it is dropped. A wave is called after its phase;
    those of running queries, which have one, after what is done.
    """
    taken: dict[int, list[str]] = {}
    returned: dict[int, list[str]] = {}
    for name, number, back in interruptions(steps):
        if back is not None:
            taken.setdefault(number, []).append(name)
            returned.setdefault(back, []).append(name)
    found = []
    absent: dict[str, None] = {}
    grouped = groupby(enumerate(steps, start=1), key=lambda each: each[1].wave or -each[0])
    for number, (_, group) in enumerate(grouped, start=1):
        inside = tuple(group)
        for place, _ in inside:
            absent.update(dict.fromkeys(taken.get(place, ())))
            for name in returned.get(place, ()):
                absent.pop(name, None)
        phases = dict.fromkeys(step.phase for _, step in inside if step.phase)
        words = dict.fromkeys(
            step.op if step.phase == STREAMS else step.phase for _, step in inside if step.phase
        )
        found.append(Wave(
            f"wave {number}: {', '.join(words)}".rstrip(": "),
            tuple((place, step.symbol, one_line(step.describe())) for place, step in inside),
            tuple(map(one_line, islice(absent, _ABSENT_SHOWN))),
            max(len(absent) - _ABSENT_SHOWN, 0),
            "stopped" if STREAMS in phases else "absent",
        ))
    return tuple(found)


def describe_absences(steps: Sequence[Step]) -> dict[str, str]:
    """Map each name that a program takes away to the steps between which it is absent."""
    return {
        name: describe_interruption(number, back) for name, number, back in interruptions(steps)
    }
