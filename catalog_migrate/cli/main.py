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

    from catalog_migrate.cli.group import cli
    from catalog_migrate.errors import CatalogMigrateError

    # a verb makes many objects that live until it ends: looking for cycles among them costs 20 %
    gc.set_threshold(200_000, 20, 20)
    try:
        outcome = cli.main(args, prog_name="catalog-migrate", standalone_mode=False)
    except click.UsageError as error:
        error.show()
        return USAGE
    except click.Abort:
        return _interrupted()
    except click.exceptions.Exit as error:
        return error.exit_code
    except click.ClickException as error:
        error.show()
        return 1
    except CatalogMigrateError as error:
        print(f"error {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        return _interrupted()
    except BrokenPipeError:
        return _reader_left()
    return outcome if isinstance(outcome, int) else 0


def _interrupted() -> int:
    print(
        "interrupted: nothing is half done that the same command would not finish; run it again"
        " to resume (catalog-migrate status says what is pending)",
        file=sys.stderr,
    )
    return INTERRUPTED


def _reader_left() -> int:
    """Whoever read our output (head, a pager) closed it: no error, and no message at exit."""
    import os

    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


if __name__ == "__main__":
    sys.exit(main())
