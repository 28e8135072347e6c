"""Stories drawn by hypothesis: what breaks an invariant shrinks to the least that does.

The seeded schedules of ``test_schedule.py`` are fast and many; these are few, and readable when
one fails.
"""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, Phase, find, given, note, settings
from hypothesis import strategies as st

from tests.simulation.faulty import ForgetsToDrop
from tests.simulation.installation import PortFault
from tests.simulation.mutations import MUTATIONS
from tests.simulation.releases import chain_of
from tests.simulation.trace import Start, Trace, TraceFailed, carry_out

GROUP = st.lists(st.sampled_from(sorted(MUTATIONS)), min_size=1, max_size=3, unique=True)


@st.composite
def stories(draw: st.DrawFn, *, releases: int = 4, starts: int = 4) -> Trace:
    """A first release, others that are one group of mutations each, and starts of any of them."""
    groups = draw(st.lists(GROUP, min_size=1, max_size=releases - 1))
    chain = chain_of(draw(st.randoms(use_true_random=False)), groups)
    start = st.builds(
        Start,
        release=st.integers(0, len(chain) - 1),
        crash_at=st.none() | st.integers(1, 120),
        populating=st.sampled_from(("fills", "absent", "fails")),
        writes=st.frozensets(st.integers(0, 120), max_size=3),
    )
    return Trace(chain, tuple(draw(st.lists(start, max_size=starts))), draw(st.booleans()))


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(stories())
def test_no_story_breaks_an_invariant(story: Trace) -> None:
    """Any chain, any start killed at any call, any writer: I1 to I3, I5, I6 and I10 hold."""
    note(str(story))
    carry_out(story)


def test_a_fault_shrinks_to_its_story() -> None:
    """An engine that forgets to drop names is told of by one change of release, whatever else
    hypothesis leaves in it."""
    fault = PortFault(ForgetsToDrop)

    def breaks(story: Trace) -> bool:
        try:
            carry_out(story, fault)
        except TraceFailed:
            return True
        return False

    story = find(
        stories(releases=2, starts=2),
        breaks,
        settings=settings(
            max_examples=400,
            database=None,
            derandomize=True,
            phases=(Phase.generate, Phase.shrink),
            suppress_health_check=list(HealthCheck),
        ),
    )
    assert len(story.starts) <= 2
    assert all(start.crash_at is None for start in story.starts)
    with pytest.raises(TraceFailed, match=r"(?s)names .*release 1: the first\n.*a process of"):
        carry_out(story, fault)
