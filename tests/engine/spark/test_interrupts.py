"""Ctrl-C while Spark starts and while it works, as far as it is shown without Spark."""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Iterator
from types import FrameType

import pytest

from catalog_migrate.engine.spark.session import interrupts_wait, silent_interrupts


@pytest.fixture(autouse=True)
def _a_handler_stands() -> Iterator[None]:
    """A shell has its background processes ignore SIGINT."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_what_py4j_logs_is_silent_from_the_interrupt_on(caplog: pytest.LogCaptureFixture) -> None:
    """The handler that stood runs, what it logs is dropped, and all is as before in the end."""
    py4j = logging.getLogger("py4j.clientserver")
    seen: list[str] = []

    def pyspark(number: int, frame: FrameType | None) -> None:
        seen.append("cancelled")
        logging.error("Exception while sending command.")
        py4j.error("reentrant call")
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, pyspark)
    try:
        with silent_interrupts():
            py4j.error("before")
            with pytest.raises(KeyboardInterrupt):
                signal.raise_signal(signal.SIGINT)
        assert signal.getsignal(signal.SIGINT) is pyspark
    finally:
        signal.signal(signal.SIGINT, before)
    py4j.error("after")
    assert seen == ["cancelled"]
    assert [record.getMessage() for record in caplog.records] == ["before", "after"]


def test_another_thread_has_no_handler() -> None:
    """Off the main thread nothing is put in place, and nothing fails."""
    standing, found = signal.getsignal(signal.SIGINT), []

    def work() -> None:
        with silent_interrupts():
            found.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert found == [standing]


def test_while_spark_starts_an_interrupt_waits() -> None:
    """What is in between ends; then it is an interrupt, and the handler is the one before."""
    standing, said, ended = signal.getsignal(signal.SIGINT), [], []

    def start() -> None:
        with interrupts_wait(said.append):
            signal.raise_signal(signal.SIGINT)
            ended.append(True)

    with pytest.raises(KeyboardInterrupt):
        start()
    assert ended == [True]
    assert signal.getsignal(signal.SIGINT) is standing
    assert said == ["interrupted: this ends as soon as Spark has started"]


def test_a_second_interrupt_does_not_wait() -> None:
    """A start that hangs can be left."""
    standing, passed = signal.getsignal(signal.SIGINT), []

    def start() -> None:
        with interrupts_wait(None):
            for number in (1, 2):
                signal.raise_signal(signal.SIGINT)
                passed.append(number)

    with pytest.raises(KeyboardInterrupt):
        start()
    assert passed == [1]
    assert signal.getsignal(signal.SIGINT) is standing


def test_an_error_of_the_start_is_told_and_not_the_interrupt() -> None:
    """Spark did not start: why is more than that somebody had given up on it."""

    def start() -> None:
        with interrupts_wait(None):
            signal.raise_signal(signal.SIGINT)
            raise ValueError("no memory")

    with pytest.raises(ValueError, match="no memory"):
        start()


def test_the_handler_that_the_start_has_put_in_place_stays() -> None:
    """PySpark's own, which cancels jobs."""
    standing = signal.getsignal(signal.SIGINT)
    try:
        with interrupts_wait(None):
            signal.signal(signal.SIGINT, signal.default_int_handler)
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, standing)
