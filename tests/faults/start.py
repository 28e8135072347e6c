"""A process that starts a release without a JVM, and may stop itself in the middle.

Run as ``start.py CATALOG RELEASE TTL MARGIN [CALL NUMBER]``. With a call it stops itself (SIGSTOP)
before the NUMBER-th one, until somebody continues it. Prints one line of JSON: ``outcome``,
``rows``, or ``error`` (its class) and ``message``.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections import Counter
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from direct_engine import DirectEngine

from catalog_migrate.catalog.clock import SystemClock
from catalog_migrate.catalog.opening import open_log
from catalog_migrate.errors import CatalogMigrateError
from catalog_migrate.release.loader import load_release
from catalog_migrate.testing.starts import migrate


class Stopping:
    """Stops the process before one call of engine or log."""

    def __init__(self, call: str, number: int) -> None:
        self.at = (call, number)
        self.seen: Counter[str] = Counter()

    def on_call(self, name: str) -> None:
        """Hear of a call."""
        self.seen[name] += 1
        if (name, self.seen[name]) == self.at:
            os.kill(os.getpid(), signal.SIGSTOP)


class Heard:
    """A log whose appends are heard as ``append KIND`` and ``append KIND.done``."""

    def __init__(self, log: Any, on_call: Any) -> None:
        self._log = log
        self._on_call = on_call

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._log, name)
        if name != "append":
            return value

        def append(*args: Any, **kwargs: Any) -> Any:
            kind = kwargs.get("metadata", {}).get("kind")
            self._on_call(f"append {kind}")
            result = value(*args, **kwargs)
            self._on_call(f"append {kind}.done")
            return result

        return append


def start(
    catalog: str, release: str, ttl: float, margin: float, stopping: Stopping
) -> dict[str, Any]:
    """Start a release in this process; what came of it."""
    try:
        report = migrate(
            DirectEngine(stopping.on_call),
            Heard(open_log(catalog), stopping.on_call),
            load_release(release),
            warehouse=None,
            clock=SystemClock(),
            holder=f"process {os.getpid()}",
            timeout=300.0,
            ttl=ttl,
            margin=margin,
        )
    except CatalogMigrateError as error:
        return {"error": type(error).__name__, "message": str(error)}
    return {"outcome": report.outcome, "rows": report.rows_copied}


def main(arguments: list[str]) -> None:
    """Start, and say what came of it."""
    catalog, release, ttl, margin = arguments[:4]
    stopping = Stopping(arguments[4], int(arguments[5])) if len(arguments) > 4 else Stopping("", 0)
    print(json.dumps(start(catalog, release, float(ttl), float(margin), stopping)))


if __name__ == "__main__":
    main(sys.argv[1:])
