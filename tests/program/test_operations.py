"""The one executor: order, what is left out, what is put on record."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, TypeVar

import msgspec
import pytest

from catalog_migrate.operations.operation import Execution, Operation, execute
from catalog_migrate.operations.steps import WORDS, Op, Step, decode_program, store_program

T = TypeVar("T")
R = TypeVar("R")


@dataclass
class Place:
    """A context that hears what happens, and fails on purpose."""

    heard: list[str] = field(default_factory=list)
    broken: frozenset[str] = frozenset()
    hopeless: bool = False
    spreads: list[int] = field(default_factory=list)
    execution: Execution = field(default_factory=Execution)
    now: float = 0.0
    attempts: int = 0

    def wall(self) -> float:
        self.now += 1
        return self.now

    def spread(self, items: Sequence[T], act: Callable[[T], R]) -> Iterator[tuple[T, R]]:
        self.spreads.append(len(items))
        for item in items:
            yield item, act(item)

    def retrying(self, act: Callable[[], R]) -> R:
        self.attempts += 1
        return act()

    @property
    def outcomes(self) -> dict[str, str]:
        return {each.name: each.outcome for each in self.execution.executed}


@dataclass(frozen=True)
class Heard(Operation[Place]):
    """Says that it ran."""

    after: frozenset[str] = frozenset()
    done: str = ""

    @property
    def key(self) -> str:
        return self.step.name

    @property
    def needs(self) -> frozenset[str]:
        return self.after

    def is_done(self, context: Place) -> str:
        return self.done

    def run(self, context: Place) -> str | None:
        context.heard.append(self.step.name)
        if self.step.name in context.broken:
            raise ValueError(self.step.name)
        if self.step.name == "interrupted":
            raise KeyboardInterrupt
        return None

    def is_hopeless(self, error: Exception) -> bool:
        return self.step.name == "hopeless"


class FewAtOnce(Heard):
    """Bears two beside each other."""

    TOGETHER: ClassVar = 2


class NotAgain(Heard):
    """Is not tried again."""

    ONCE: ClassVar = True


class Begun(Heard):
    """Is ended by others."""

    GOES_ON: ClassVar = True


def on(name: str, wave: int = 1, *after: str, done: str = "") -> Heard:
    """An operation on an object of this name."""
    return Heard(Step("create", "view", name, wave=wave), frozenset(after), done)


def test_waves_come_in_their_order() -> None:
    """A wave begins when the one before has ended, in whatever order they are given."""
    place = Place()
    assert execute([on("c", 2), on("a"), on("b"), on("d", 3)], place) == []
    assert place.heard == ["a", "b", "c", "d"]
    assert place.spreads == [2, 1, 1]
    assert [(each.name, each.wave) for each in place.execution.executed] == [
        ("a", 1), ("b", 1), ("c", 2), ("d", 3)
    ]


def test_what_is_done_is_skipped_and_says_why() -> None:
    """It is on record as skipped, and is not run."""
    place = Place()
    execute([on("a", done="it is there"), on("b")], place)
    assert place.heard == ["b"]
    assert place.outcomes == {"a": "skipped: it is there", "b": "done"}


def test_the_first_error_is_raised_when_its_wave_has_ended() -> None:
    """What is of one wave is run to its end; no later wave begins."""
    place = Place(broken=frozenset({"a", "b"}))
    with pytest.raises(ValueError, match=r"^a$"):
        execute([on("a"), on("b"), on("c"), on("d", 2)], place)
    assert place.heard == ["a", "b", "c"]
    assert place.outcomes == {"a": "failed: ValueError", "b": "failed: ValueError", "c": "done"}


def test_what_needs_one_that_failed_is_left_out() -> None:
    """So is what needs that in turn, and the second operation on the same object."""
    place = Place(broken=frozenset({"a"}))
    program = [on("a"), on("b", 2, "a"), on("c", 3, "b"), on("d", 3), on("a", 4)]
    failures = execute(program, place, keep_going=True)
    assert [each.operation.step.name for each in failures] == ["a"]
    assert place.heard == ["a", "d"]


def test_a_hopeless_error_ends_it() -> None:
    """No operation after it waits for the same answer."""
    place = Place(broken=frozenset({"hopeless"}))
    assert len(execute([on("hopeless"), on("b", 2)], place, keep_going=True)) == 1
    assert place.heard == ["hopeless"]


def test_an_interruption_is_on_record() -> None:
    """Ctrl-C ends all, whatever may fail; of the operation under way it is said."""
    place = Place()
    with pytest.raises(KeyboardInterrupt):
        execute([on("interrupted"), on("b", 2)], place, keep_going=True)
    assert place.heard == ["interrupted"]
    assert place.outcomes == {"interrupted": "failed: interrupted"}


def test_what_must_not_be_repeated_is_tried_once() -> None:
    """It does without the attempts of the context, which may be more than one."""
    place = Place()
    execute([NotAgain(Step("seal", "table", "a")), on("b", 2)], place)
    assert (place.heard, place.attempts) == (["a", "b"], 1)


def test_what_goes_on_is_put_on_record_by_what_ends_it() -> None:
    """The next wave begins meanwhile; one that could not begin, or need not, is on record."""
    place = Place(broken=frozenset({"b"}))
    begun = [
        Begun(Step("start", "source", name, wave=1), done="it runs" * (name == "c"))
        for name in ("a", "b", "c")
    ]
    execute([*begun, on("d", 2)], place, keep_going=True)
    assert place.heard == ["a", "b", "d"]
    assert place.outcomes == {"b": "failed: ValueError", "c": "skipped: it runs", "d": "done"}


def test_few_run_side_by_side() -> None:
    """A kind that bears only so many at once is given so many, within its wave."""
    place = Place()
    few = [FewAtOnce(Step("drop", "view", f"v{number}", wave=1)) for number in range(5)]
    execute([*few, on("a")], place)
    assert place.spreads == [2, 2, 1, 1]


def test_it_says_of_each_that_it_has_ended() -> None:
    """Progress hears of those that failed, too, on the thread that executes."""
    here = threading.get_ident()
    ended: list[tuple[str, bool]] = []
    execute(
        [on("a"), on("b")], Place(broken=frozenset({"a"})), keep_going=True,
        on_ended=lambda each: ended.append((each.step.name, threading.get_ident() == here)),
    )
    assert ended == [("a", True), ("b", True)]


@pytest.mark.parametrize("op", WORDS)
def test_a_step_is_read_back(op: Op) -> None:
    """What a record carries of it is the step again, with the phase of its kind."""
    step = Step(op, "table", "s.t", "i1", 3)
    assert step.phase == WORDS[op].phase
    assert decode_program(store_program([step])) == (step,)
    assert list(msgspec.to_builtins(step)) == ["op", "kind", "name", "id", "wave", "phase"]


def test_a_step_of_a_newer_tool() -> None:
    """A program with a step that this tool does not know is not carried out in part."""
    known = store_program([Step("create", "view", "s.v")])
    assert decode_program([*known, {**known[0], "op": "unknown"}]) == ()
