"""Keeps what is handed to the JVM out of Python's own log.

At DEBUG, Py4J logs every command that it sends, arguments and all: the options of a Kafka reader
among them, with the login in them.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_LOGGERS = ("py4j.clientserver", "py4j.java_gateway")


class _Here(threading.local):
    depth = 0


_here = _Here()


class _Silence(logging.Filter):
    """Lets nothing through from a thread that is within :func:`unlogged`."""

    def filter(self, record: logging.LogRecord) -> bool:  # noqa: ARG002 (named by the base)
        return _here.depth == 0


_silence = _Silence()


@contextmanager
def unlogged() -> Iterator[None]:
    """Py4J logs nothing of this thread meanwhile; the application's logging stays as it is."""
    for name in _LOGGERS:
        logging.getLogger(name).addFilter(_silence)  # added once, however often it is said
    _here.depth += 1
    try:
        yield
    finally:
        _here.depth -= 1
