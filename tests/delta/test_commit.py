"""One optimistic commit, and attempts with pauses under it."""

from __future__ import annotations

from collections.abc import Callable
from itertools import repeat
from typing import Any

import pytest

from catalog_migrate.delta.commit import Overtaken, commit_onto_newest
from catalog_migrate.delta.log import OVERTAKEN
from catalog_migrate.errors import CommitConflict, EngineFailure
from catalog_migrate.retry import retry, until


def failing(*errors: Exception | str) -> Callable[[], str]:
    """An act that raises these one by one and returns what is no error."""
    left = list(errors)

    def act() -> str:
        found = left.pop(0)
        if isinstance(found, Exception):
            raise found
        return found

    return act


class TestRetry:
    """An act that is tried again while what it raises may pass."""

    def test_pauses_lie_between_attempts(self) -> None:
        """One pause is taken before each further attempt, in order; nothing after the last."""
        slept: list[float] = []
        act = failing(OSError("1"), OSError("2"), "done")
        assert retry(act, OSError, (0.2, 0.4, 0.8), sleep=slept.append) == "done"
        assert slept == [0.2, 0.4]

    def test_the_last_error_is_raised_as_it_is(self) -> None:
        """As many attempts as pauses and one; a pause of nothing does not sleep."""
        last = OSError("2")
        with pytest.raises(OSError, match="2") as raised:
            retry(failing(OSError("1"), last, "late"), OSError, repeat(0.0, 1), sleep=pytest.fail)
        assert raised.value is last

    def test_others_are_raised_at_once(self) -> None:
        """An error of another kind, and one of which ``when`` says that it does not pass."""
        with pytest.raises(ValueError, match="no"):
            retry(failing(ValueError("no"), "late"), OSError, repeat(0.0, 9))
        asked: list[OSError] = []

        def passes(error: OSError) -> bool:
            asked.append(error)
            return str(error) == "passes"

        errors = [OSError("passes"), OSError("stays")]
        with pytest.raises(OSError, match="stays"):
            retry(failing(*errors, "late"), OSError, repeat(0.0, 9), when=passes)
        assert asked == errors

    def test_until_a_time_has_passed(self) -> None:
        """Time runs from the call; after it no further attempt is made."""
        now = [100.0]

        def sleep(seconds: float) -> None:
            now[0] += seconds

        begun: list[float] = []

        def act() -> None:
            begun.append(now[0])
            raise OSError("away")

        with pytest.raises(OSError, match="away"):
            retry(act, OSError, until(1.0, 0.4, monotonic=lambda: now[0]), sleep=sleep)
        assert begun == pytest.approx([100.0, 100.4, 100.8, 101.2])


class TestCommit:
    """A commit that looks again where another one came first."""

    @pytest.mark.parametrize(
        "overtaken", [Overtaken(), *(EngineFailure("x", condition=each) for each in OVERTAKEN)],
        ids=["taken", *OVERTAKEN],
    )  # fmt: skip
    def test_it_is_made_again(self, overtaken: Exception) -> None:
        """Whatever says that others came before, up to the last attempt."""
        assert commit_onto_newest(failing(*[overtaken] * 19, "done")) == "done"

    def test_a_table_too_busy(self) -> None:
        """After the last attempt the caller's error, from the one that stood in the way."""
        overtaken = Overtaken()
        with pytest.raises(CommitConflict, match="busy") as raised:
            commit_onto_newest(
                failing(overtaken, overtaken, "late"), attempts=2,
                too_busy=lambda: CommitConflict("busy", remedy="wait"),
            )
        assert raised.value.__cause__ is overtaken

    def test_without_an_error_of_its_own_the_last_one_stays(self) -> None:
        """So that it keeps its condition."""
        last = EngineFailure("x", condition="FENCED", transient=True)
        with pytest.raises(EngineFailure) as raised:
            commit_onto_newest(failing(Overtaken(), last, "late"), attempts=2)
        assert raised.value is last

    @pytest.mark.parametrize("error", [EngineFailure("disk", condition="OTHER"), OSError("disk")])
    def test_any_other_failure_ends_it(self, error: Any) -> None:
        """It is raised as it is, also where the table would count as too busy later."""
        with pytest.raises(type(error), match="disk") as raised:
            commit_onto_newest(failing(error, "late"), too_busy=lambda: pytest.fail("busy"))
        assert raised.value is error
