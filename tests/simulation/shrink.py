"""Makes a failing scenario small: fewer processes, faults, turns, releases and objects.

A smaller scenario counts when it fails in the same way. What is left is told as a story.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from msgspec.structs import replace

from tests.simulation.installation import NO_FAULT, PortFault
from tests.simulation.invariants import InvariantBroken
from tests.simulation.scenario import Scenario, Start, encode
from tests.simulation.scenario_run import ScenarioRun

S = TypeVar("S")
T = TypeVar("T")

ATTEMPTS = 1_500
"""How many smaller scenarios are tried at most."""


def failure_of(scenario: Scenario, fault: PortFault = NO_FAULT) -> str | None:
    """In which way a scenario fails, None when it does not: an invariant or a class of error."""
    try:
        ScenarioRun(scenario, fault=fault).run_to_end()
    except InvariantBroken as broken:
        return broken.invariant
    except Exception as error:  # noqa: BLE001 - whatever it is, it is what has to be found again
        return type(error).__name__
    return None


def shrink(
    scenario: Scenario, fault: PortFault = NO_FAULT, *, attempts: int = ATTEMPTS
) -> Scenario:
    """The smallest scenario found that fails as this one does; itself when it does not fail."""
    return make_small(
        scenario, smaller, lambda each: failure_of(each, fault), attempts=attempts
    )


def make_small(
    scenario: S, smaller_than: Callable[[S], Iterator[S]], fails: Callable[[S], str | None], *,
    attempts: int = ATTEMPTS,
) -> S:
    """The smallest that fails as this one does, of what ``smaller_than`` yields."""
    wanted = fails(scenario)
    if wanted is None:
        return scenario
    left = attempts
    found = True
    while found and left > 0:
        found = False
        for candidate in smaller_than(scenario):
            left -= 1
            if left <= 0:
                break
            if _fails_so(candidate, fails, wanted):
                scenario, found = candidate, True
                break
    return scenario


def _fails_so(candidate: S, fails: Callable[[S], str | None], wanted: str) -> bool:
    try:
        return fails(candidate) == wanted
    except ValueError:  # an object was left out that others use
        return False


def smaller(scenario: Scenario) -> Iterator[Scenario]:
    """Scenarios with something taken away, the most first."""
    for turns in less(scenario.turns):
        yield replace(scenario, turns=turns)
    for outside in less(scenario.outside):
        yield replace(scenario, outside=outside)
    for number in range(len(scenario.starts)):
        yield _without_process(scenario, number)
    for faults in less(scenario.faults):
        yield replace(scenario, faults=faults)
    yield from _less_releases(scenario)
    for number, start in enumerate(scenario.starts):
        for simpler in _simpler(start):
            starts = (*scenario.starts[:number], simpler, *scenario.starts[number + 1 :])
            yield replace(scenario, starts=starts)
    if scenario.letters:
        yield replace(scenario, letters=())
    if scenario.persistent:
        yield replace(scenario, persistent=False)
    if not scenario.installed:
        yield replace(scenario, installed=True)
    if scenario.tick != 0.02:
        yield replace(scenario, tick=0.02)


def less(held: tuple[T, ...]) -> Iterator[tuple[T, ...]]:
    """A tuple without halves, quarters, and at last without each one."""
    size = len(held)
    while size >= 1:
        for at in range(0, len(held), size):
            yield held[:at] + held[at + size :]
        size //= 2


def _without_process(scenario: Scenario, gone: int) -> Scenario:
    def number(process: int) -> int:
        return process - (process > gone)

    return replace(
        scenario,
        starts=scenario.starts[:gone] + scenario.starts[gone + 1 :],
        faults=tuple(
            replace(each, process=number(each.process))
            for each in scenario.faults if each.process != gone
        ),
        turns=tuple(
            replace(each, process=number(each.process))
            for each in scenario.turns if each.process != gone
        ),
    )  # fmt: skip


def _less_releases(scenario: Scenario) -> Iterator[Scenario]:
    groups = scenario.groups
    for number in range(len(groups)):
        yield replace(scenario, groups=groups[:number] + groups[number + 1 :])
    for number, group in enumerate(groups):
        if len(group) > 1:
            for fewer in _each_left_out(group):
                yield replace(
                    scenario, groups=(*groups[:number], fewer, *groups[number + 1 :])
                )
    releases = scenario.releases()
    numbers = sorted({draft.number_of(each) for draft in releases for each in draft.objects})
    for number in reversed(numbers):
        yield replace(scenario, without=scenario.without | {number})


def _each_left_out(group: Sequence[T]) -> Iterator[tuple[T, ...]]:
    for at in range(len(group)):
        yield (*group[:at], *group[at + 1 :])


def _simpler(start: Start) -> Iterator[Start]:
    if start.at:
        yield replace(start, at=0.0)
    if start.populating != "fills":
        yield replace(start, populating="fills")
    if start.read_only:
        yield replace(start, read_only=False)


def explain(scenario: Scenario, fault: PortFault = NO_FAULT) -> str:
    """A scenario as a story: its releases, what happened, and how it ended."""
    run = ScenarioRun(scenario, telling=True, fault=fault)
    ending = "it ends well"
    try:
        run.run_to_end()
    except InvariantBroken as broken:
        ending = str(broken)
    except Exception as error:  # noqa: BLE001 - it is told, not handled
        ending = f"{type(error).__name__}: {error}"
    lines = [f"names {'outlive' if scenario.persistent else 'die with'} a process"]
    for draft in run.run.chain:
        lines.append(f"release {draft.name}: {', '.join(draft.mutations) or 'the first'}")
        lines.extend(
            f"  {definition.key} {definition.sql or draft.columns_of(definition)}".rstrip()
            for definition in sorted(draft.objects, key=lambda one: str(one.key))
        )
    return "\n".join((*lines, *(run.story or ()), f"==> {ending}"))


def keep(scenario: Scenario, file: str) -> None:
    """Write a scenario to a file, to be played again by ``simulate --replay``."""
    from pathlib import Path

    Path(file).write_bytes(encode(scenario) + b"\n")
