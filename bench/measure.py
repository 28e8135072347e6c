"""What a measurement is, and how one becomes a row of the page."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from statistics import median


@dataclass(frozen=True, slots=True)
class Cost:
    """What one run cost: seconds on the clock, seconds of CPU (user and system), peak bytes.

    ``cpu`` and ``peak`` are 0 where they cannot be told apart from those of the rest. ``best`` is
    the quickest of the runs that the others are the median of, 0 for a single run.
    """

    wall: float
    cpu: float = 0.0
    peak: int = 0
    best: float = 0.0


@dataclass(frozen=True, slots=True)
class Measure:
    """One row of the page: medians of paired runs and what was asked for.

    ``target`` is the sentence of the target, ``met`` whether the figures reach it, ``note`` what
    else is to be known (a number of jobs, a rate).
    """

    name: str
    ours: Cost
    baseline_name: str
    baseline: Cost
    target: str
    met: bool
    note: str = ""

    @property
    def cpu_ratio(self) -> float:
        """Ours by the baseline in CPU time, 0 where it is unknown."""
        return self.ours.cpu / self.baseline.cpu if self.baseline.cpu else 0.0

    @property
    def ratio(self) -> float:
        """Ours by the baseline, on the clock."""
        return self.ours.wall / self.baseline.wall if self.baseline.wall else 0.0


def paired(
    ours: Callable[[], Cost], baseline: Callable[[], Cost], *, rounds: int, warm: int = 1
) -> tuple[Cost, Cost]:
    """Medians of ``rounds`` pairs whose order alternates, after ``warm`` that are not counted.

    Taking turns spreads whatever else the machine does over both sides. The second run of a pair
    finds a JVM a little warmer, so neither side may always be it.
    """
    for _ in range(warm):
        baseline()
        ours()
    mine: list[Cost] = []
    base: list[Cost] = []
    for number in range(rounds):
        sides = [(mine, ours), (base, baseline)]
        for costs, run in sides if number % 2 == 0 else reversed(sides):
            costs.append(run())
    return middle(mine), middle(base)


def middle(costs: list[Cost]) -> Cost:
    """The median of each figure, of the peaks the highest, and the quickest run."""
    return Cost(
        wall=median(cost.wall for cost in costs),
        cpu=median(cost.cpu for cost in costs),
        peak=max(cost.peak for cost in costs),
        best=min(cost.wall for cost in costs),
    )
