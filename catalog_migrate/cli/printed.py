"""stdout that never stops a verb: what cannot be printed is remembered and told in the end."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, TextIO, cast


class Printed:
    """Stands before ``sys.stdout`` while a verb runs.

    The verb has committed what it prints about: a disk that is full, a stdout that is closed and a
    reader that left may neither end it nor change what it was. After the first failure nothing more
    is written. ``failure`` is the reason, None also for a reader that left (``head``, a pager): it
    had what it wanted.
    """

    def __init__(self, stream: TextIO | None) -> None:
        self._stream = stream
        self._ended = False
        self.failure: str | None = None

    def __getattr__(self, name: str) -> Any:
        if self._stream is None:
            if name == "encoding":
                return "utf-8"
            raise AttributeError(name)
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """As a stream does; the whole length also when it went nowhere."""
        if not isinstance(text, str):
            raise TypeError("text is wanted")
        if self._stream is None:
            self._end("it is closed")
        elif not self._ended:
            try:
                self._stream.write(text)
            except OSError as error:
                self._failed(error)
        return len(text)

    def writelines(self, lines: Iterator[str]) -> None:
        """As a stream does."""
        for line in lines:
            self.write(line)

    def flush(self) -> None:
        """Hand over what was written."""
        if self._stream is None or self._ended:
            return
        try:
            self._stream.flush()
        except OSError as error:
            self._failed(error)

    def isatty(self) -> bool:
        """Whether a terminal reads it."""
        return self._stream is not None and self._stream.isatty()

    def fileno(self) -> int:
        """The file below; OSError when there is none."""
        if self._stream is None:
            raise OSError("stdout is closed")
        return self._stream.fileno()

    def _failed(self, error: OSError) -> None:
        left = isinstance(error, BrokenPipeError)
        self._end(None if left else error.strerror or str(error))
        # what is still held back would fail once more when the interpreter ends, and be told then
        if self._stream is sys.__stdout__ and self._stream is not None:
            with suppress(OSError):
                nowhere = os.open(os.devnull, os.O_WRONLY)
                os.dup2(nowhere, self._stream.fileno())
                os.close(nowhere)

    def _end(self, reason: str | None) -> None:
        if not self._ended:
            self._ended, self.failure = True, reason


@contextmanager
def printing() -> Iterator[Printed]:
    """``sys.stdout`` as one :class:`Printed`; the former one is put back in the end."""
    _fill_closed()
    before = sys.stdout
    printed = Printed(before)
    sys.stdout = cast(TextIO, printed)
    try:
        yield printed
    finally:
        printed.flush()
        sys.stdout = before


def _fill_closed() -> None:
    """A standard stream that was closed is open on nothing from here on.

    The next file that is opened would have its number, and be written to by whatever is started.
    """
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
    if sys.stdin is None:
        sys.stdin = open(os.devnull, encoding="utf-8")  # noqa: SIM115 - until the process ends
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
