"""Entry point: runs a verb and turns every error into a sentence and its frozen exit code.

stdout never stops a verb: what cannot be printed is remembered and told in the end.

``--version`` is answered before click is imported: a bare question must not cost 0.1 s.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, TextIO, cast

from catalog_migrate.errors import CatalogMigrateError, OutputFailed, missing_extra

USAGE = 64
INTERRUPTED = 130
INTERRUPT = (
    "interrupted: run the same command again, it finishes what was begun"
    " (catalog-migrate status says what is pending)"
)
NOTHING_BEGUN = "interrupted: nothing was changed"
"""What is said of a verb that only looks."""
FORMATS = ("text", "json")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line ``argv`` (default: this process') and return its exit code."""
    args = list(sys.argv[1:] if argv is None else argv)
    with printing() as printed:
        try:
            return _run(args, printed)
        except KeyboardInterrupt:  # before there was anything that could tell it
            if sys.stderr is not None:
                with suppress(OSError):
                    print(INTERRUPT, file=sys.stderr, flush=True)
            return INTERRUPTED


def _run(args: list[str], printed: Printed) -> int:
    if args in (["--version"], ["version"]):
        from catalog_migrate.version import __version__

        print(f"catalog-migrate {__version__}")
        printed.flush()
        if printed.failure is None:
            return 0
    from catalog_migrate.cli import logs

    with logs.logging_to_stderr():
        logs.choose(_log_format(args), given=True)
        code = 0 if printed.failure is not None else _verb(args)
        printed.flush()
        return code if printed.failure is None else _not_printed(printed.failure, code)


def _verb(args: list[str]) -> int:
    import atexit
    import gc

    import click

    # a verb makes many objects that live until it ends: looking for cycles among them costs 20 %
    gc.set_threshold(200_000, 20, 20)
    atexit.register(gc.freeze)  # or the interpreter looks at all of them once more when it ends
    try:
        from catalog_migrate.cli.group import cli

        outcome = cli.main(args, prog_name="catalog-migrate", standalone_mode=False)
    except click.exceptions.Exit as error:
        return error.exit_code
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 - each is told
        return _report_error(error, args)
    return outcome if isinstance(outcome, int) else 0


def _log_format(args: list[str]) -> str | None:
    """``--log-format`` before the verb: it holds for a command line that is refused as well."""
    for place, arg in enumerate(args):
        if not arg.startswith("-") and (place == 0 or args[place - 1] != "--config"):
            return None
        name, given, value = arg.partition("=")
        if name == "--log-format":
            chosen = value if given else "".join(args[place + 1:place + 2])
            return chosen if chosen in FORMATS else None
    return None


def _not_printed(reason: str, code: int) -> int:
    """Tell that stdout did not take the result; the verb's own exit code stays, 0 becomes 1."""
    from catalog_migrate.cli import logs

    done = "; what was requested is done" if code in (0, 2) else ""
    error = OutputFailed(
        f"the result could not be printed: {reason}{done}",
        remedy="look with catalog-migrate status, or ask again with a stdout that can be written",
    )
    logs.log_error(error, exit_code=code or error.exit_code)
    return code or error.exit_code


def _describe_interrupt(args: list[str]) -> str:
    """What Ctrl-C leaves: a verb that only looks has begun nothing."""
    from catalog_migrate.cli.group import LOOKING, VERBS

    verb = next((arg for arg in args if arg in VERBS), None)
    return NOTHING_BEGUN if verb in LOOKING else INTERRUPT


def _report_error(error: BaseException, args: list[str]) -> int:
    """Tell an error as configured; its exit code. What is no error of ours is a defect."""
    import logging

    import click

    from catalog_migrate.cli import logs

    error = missing_extra(error) or error
    if isinstance(error, CatalogMigrateError):
        logs.log_error(error)
        return error.exit_code
    if isinstance(error, (click.Abort, KeyboardInterrupt)):
        # a verb may know better what is left; click wraps what it says
        said = error.__cause__ if isinstance(error, click.Abort) else error
        message = str(said) if isinstance(said, KeyboardInterrupt) else ""
        message = message or _describe_interrupt(args)
        logs.log(logging.WARNING, "interrupted", message, {"exit_code": INTERRUPTED})
        return INTERRUPTED
    if not logs.is_json():
        if not isinstance(error, click.ClickException):
            raise error
        with suppress(OSError):
            error.show()
    elif isinstance(error, click.ClickException):
        code = USAGE if isinstance(error, click.UsageError) else 1
        fields = {"code": "CM0601", "exit_code": code}
        logs.log(logging.ERROR, "usage", error.format_message(), fields)
    else:
        import traceback

        lines = "".join(traceback.format_exception(type(error), error, error.__traceback__))
        fields = {"exit_code": 1, "traceback": lines}
        logs.log(logging.CRITICAL, "defect", f"{type(error).__name__}: {error}", fields)
    return USAGE if isinstance(error, click.UsageError) else 1


# -- stdout ----------------------------------------------------------------------------------------


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
                self._discard_output(error)
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
            self._discard_output(error)

    def isatty(self) -> bool:
        """Whether a terminal reads it."""
        return self._stream is not None and self._stream.isatty()

    def fileno(self) -> int:
        """The file below; OSError when there is none."""
        if self._stream is None:
            raise OSError("stdout is closed")
        return self._stream.fileno()

    def _discard_output(self, error: OSError) -> None:
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


if __name__ == "__main__":
    sys.exit(main())
