"""Acts side by side under a lease: none of them outlives the call, however that ends."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

import pytest

from catalog_migrate.catalog.clock import SystemClock
from catalog_migrate.catalog.memory_log import MemoryLog
from catalog_migrate.engine.port import Engine
from catalog_migrate.engine.workers import Workers
from catalog_migrate.errors import EngineFailure
from catalog_migrate.migrations.execution_context import Ended, ExecutionContext
from catalog_migrate.model.progress import Progress
from catalog_migrate.operations.operation import Operation, execute
from catalog_migrate.operations.steps import Step
from catalog_migrate.streams.ddl.migrations import MigratedStreams


def work(**settings: object) -> ExecutionContext:
    return ExecutionContext(
        cast(Engine, None), MemoryLog(), SystemClock(), "/warehouse", MigratedStreams(),
        workers=Workers(2), **settings,  # type: ignore[arg-type]
    )


@dataclass(frozen=True)
class Act(Operation[ExecutionContext]):
    """Does what a test says, with the number of its step."""

    act: Callable[[int], None]

    def run(self, context: ExecutionContext) -> None:
        self.act(int(self.step.name))


def acts(count: int, act: Callable[[int], None]) -> list[Act]:
    """So many operations of one wave."""
    return [Act(Step("create", "view", str(number), f"i{number}"), act) for number in range(count)]


def test_nothing_goes_on_when_the_caller_of_progress_fails() -> None:
    """A pipe that nobody reads any more: whoever catches that gives the lease back."""
    begun: list[int] = []
    ended: list[int] = []

    def act(number: int) -> None:
        begun.append(number)
        time.sleep(0.05)
        ended.append(number)

    def heard(_: Progress) -> None:
        raise BrokenPipeError

    operations = acts(40, act)
    with pytest.raises(BrokenPipeError) as failure:
        execute(operations, work(), on_ended=Ended(heard, {"create": "x"}, operations))
    assert failure.traceback, "it holds every frame that it came through"
    seen = list(begun)
    assert sorted(ended) == sorted(seen)
    time.sleep(0.2)
    assert begun == seen
    assert len(seen) < 10


def test_all_end_before_the_first_failure_is_raised() -> None:
    ended: list[int] = []

    def act(number: int) -> None:
        if number in (1, 3):
            raise EngineFailure(f"act {number}")
        time.sleep(0.01 * number)
        ended.append(number)

    heard: list[int] = []
    operations = acts(6, act)
    told = Ended(lambda step: heard.append(step.done), {"create": "x"}, operations)
    with pytest.raises(EngineFailure, match="act 1"):
        execute(operations, work(), on_ended=told)
    assert sorted(ended) == [0, 2, 4, 5]
    assert heard == [1, 2, 3, 4, 5, 6]
