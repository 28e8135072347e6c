"""A program as waves of steps, with the names that are absent meanwhile."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from catalog_migrate.model.wording import one_line
from catalog_migrate.program.operations import Operation, interruptions
from catalog_migrate.report.report import Wave


def list_waves(steps: Sequence[Operation]) -> tuple[Wave, ...]:
    """List the waves of a program; steps of a file that has no waves go one after the other.

    A name that goes for good is absent nowhere: it is dropped.
    """
    returning = [
        (one_line(name), taken, back)
        for name, taken, back in interruptions(steps) if back is not None
    ]
    found = []
    grouped = groupby(enumerate(steps, start=1), key=lambda each: each[1].wave or -each[0])
    for number, (_, group) in enumerate(grouped, start=1):
        inside = tuple(group)
        last = inside[-1][0]
        phases = dict.fromkeys(step.phase for _, step in inside if step.phase)
        found.append(Wave(
            f"wave {number}: {', '.join(phases)}".rstrip(": "),
            tuple((place, step.symbol, one_line(step.describe())) for place, step in inside),
            tuple(name for name, taken, back in returning if taken <= last < back),
        ))
    return tuple(found)


def describe_absences(steps: Sequence[Operation]) -> dict[str, str]:
    """Map each name that a program takes away to the steps between which it is absent."""
    return {name: _describe(number, back) for name, number, back in interruptions(steps)}


def _describe(number: int, back: int | None) -> str:
    if back is None:
        return f"from step {number} for good"
    return f"from step {number} to step {back}"
