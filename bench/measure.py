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
    ours: Callable[[], Cost], baseline: Callable[[], Cost], *, rounds: int
) -> tuple[Cost, Cost]:
    """Medians of ``rounds`` pairs run in turn (A B A B), after one pair that is not counted.

    Taking turns spreads whatever else the machine does over both sides.
    """
    ours()
    baseline()
    pairs = [(ours(), baseline()) for _ in range(rounds)]
    return middle([pair[0] for pair in pairs]), middle([pair[1] for pair in pairs])


def middle(costs: list[Cost]) -> Cost:
    """The median of each figure, of the peaks the highest, and the quickest run."""
    return Cost(
        wall=median(cost.wall for cost in costs),
        cpu=median(cost.cpu for cost in costs),
        peak=max(cost.peak for cost in costs),
        best=min(cost.wall for cost in costs),
    )
