"""Ctrl-C while Spark starts and works: no JVM is left behind, nothing of Py4J's is printed."""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType


@contextmanager
def interrupts_wait(say: Callable[[str], None] | None) -> Iterator[None]:
    """Ctrl-C takes effect in the end, a second one at once; ``say`` hears that it was taken.

    For the start of a JVM: when it is interrupted, PySpark removes the directory that the JVM
    writes its port to, and the JVM fails over that before it comes to look whether its parent is
    still there. It never ends then. Nothing is done off the main thread, which gets no signals.
    """
    handler = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(handler):
        yield
        return
    came = False

    def interrupted(number: int, frame: FrameType | None) -> None:
        nonlocal came
        if came:
            handler(number, frame)
        came = True
        if say is not None:
            with suppress(OSError, RuntimeError):  # nobody reads, or it came within a print
                say("interrupted: this ends as soon as Spark has started")

    signal.signal(signal.SIGINT, interrupted)
    try:
        yield
    finally:
        if signal.getsignal(signal.SIGINT) is interrupted:  # PySpark may have put its own there
            signal.signal(signal.SIGINT, handler)
    if came:
        handler(signal.SIGINT, None)


@contextmanager
def silent_interrupts() -> Iterator[None]:
    """From an interrupt on, Py4J logs nothing; as before in the end.

    PySpark's handler cancels the jobs over the very connection that is being read from when the
    signal comes, and Py4J logs that with its traceback, by loggers of its own and by the root one.
    The handler is left to do that: it also has Py4J give the connection up, whose next answer would
    be that to the command before. Nothing is done off the main thread, which gets no signals.
    """
    handler = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(handler):
        yield
        return
    silenced: list[logging.Logger] = []

    def interrupted(number: int, frame: FrameType | None) -> None:
        silenced.extend(_silence())
        handler(number, frame)

    signal.signal(signal.SIGINT, interrupted)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
        for logger in silenced:
            logger.disabled = False


def _silence() -> list[logging.Logger]:
    """Disable the loggers that Py4J uses; those that were not disabled before."""
    names = [
        name for name in tuple(logging.root.manager.loggerDict)
        if name == "py4j" or name.startswith("py4j.")
    ]
    speaking = [
        logger for logger in (logging.root, *map(logging.getLogger, names)) if not logger.disabled
    ]
    for logger in speaking:
        logger.disabled = True
    return speaking
