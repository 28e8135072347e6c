"""Ctrl-C while Spark works, as far as it is shown without Spark."""

from __future__ import annotations

import logging
import signal
import threading
from types import FrameType

import pytest

from catalog_migrate.cli.interrupt import silent_interrupts


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
