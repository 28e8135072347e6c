"""The command line, which gets a terminal's Ctrl-C as soon as it copies the rows of a table.

Run as ``interrupted_cli.py ARGUMENT…``. SIGINT goes to the whole process group, as a terminal sends
it, while the copy is under way: not from outside, where nobody can tell whether it still is.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from typing import Any

from catalog_migrate.cli.main import main
from catalog_migrate.engine.spark.engine import SparkEngine

copy_rows = SparkEngine.copy_rows
first = threading.Lock()


def interrupted(engine: SparkEngine, *args: Any, **kwargs: Any) -> Any:
    """Copy rows, interrupted when that begins; once, however many tables are copied."""
    if first.acquire(blocking=False):
        print("rows are being copied", file=sys.stderr, flush=True)
        os.killpg(0, signal.SIGINT)
    return copy_rows(engine, *args, **kwargs)


if __name__ == "__main__":
    SparkEngine.copy_rows = interrupted  # type: ignore[method-assign]
    sys.exit(main(sys.argv[1:]))
