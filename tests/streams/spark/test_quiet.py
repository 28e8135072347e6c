"""What is handed to the JVM is not in Python's log."""

from __future__ import annotations

import logging
import threading

import pytest

from catalog_migrate.engine.spark.session import silence_py4j


def test_only_this_thread_and_only_meanwhile(caplog: pytest.LogCaptureFixture) -> None:
    """Py4J's commands of other threads, and of this one before and after, are logged as ever."""
    log = logging.getLogger("py4j.clientserver")
    with caplog.at_level(logging.DEBUG, "py4j.clientserver"):
        log.debug("before")
        with silence_py4j(), silence_py4j():
            log.debug("the password")
            other = threading.Thread(target=log.debug, args=("another thread",))
            other.start()
            other.join()
        log.debug("after")
        with pytest.raises(ValueError, match="x"), silence_py4j():
            raise ValueError("x")
        log.debug("after an error")
    # a session of another test lets objects of the JVM go whenever it likes, and logs that
    said = {"before", "the password", "another thread", "after", "after an error"}
    assert [each for each in caplog.messages if each in said] == [
        "before", "another thread", "after", "after an error",
    ]  # fmt: skip
