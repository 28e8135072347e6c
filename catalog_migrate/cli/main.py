"""Entry point: runs a verb and turns every error into a sentence and its frozen exit code.

``--version`` is answered before click is imported: a bare question must not cost 0.1 s.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

USAGE = 64
INTERRUPTED = 130


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line ``argv`` (default: this process') and return its exit code."""
    args = list(sys.argv[1:] if argv is None else argv)
    if args in (["--version"], ["version"]):
        from catalog_migrate.version import __version__

        print(f"catalog-migrate {__version__}")
        return 0
    return _run(args)


def _run(args: list[str]) -> int:
    import gc

    import click

    from catalog_migrate.cli import logs
    from catalog_migrate.cli.group import cli

    # a verb makes many objects that live until it ends: looking for cycles among them costs 20 %
    gc.set_threshold(200_000, 20, 20)
    with logs.logging_to_stderr():
        try:
            outcome = cli.main(args, prog_name="catalog-migrate", standalone_mode=False)
        except click.exceptions.Exit as error:
            return error.exit_code
        except BrokenPipeError:
            return _reader_left()
        except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 - each is told
            return _failed(error)
    return outcome if isinstance(outcome, int) else 0


def _failed(error: BaseException) -> int:
    """Tell an error as configured; its exit code. What is no error of ours is a defect."""
    import logging

    import click

    from catalog_migrate.cli import logs
    from catalog_migrate.errors import CatalogMigrateError

    if isinstance(error, CatalogMigrateError):
        logs.log_error(error)
        return error.exit_code
    if isinstance(error, (click.Abort, KeyboardInterrupt)):
        told = (
            "interrupted: nothing is half done that the same command would not finish; run it again"
            " to resume (catalog-migrate status says what is pending)"
        )
        logs.log(logging.WARNING, "interrupted", told, {"exit_code": INTERRUPTED})
        return INTERRUPTED
    if not logs.is_json():
        if not isinstance(error, click.ClickException):
            raise error
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


def _reader_left() -> int:
    """Whoever read our output (head, a pager) closed it: no error, and no message at exit."""
    import os

    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


if __name__ == "__main__":
    sys.exit(main())
