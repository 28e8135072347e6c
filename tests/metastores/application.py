"""An application on a shared metastore: ``python -m tests.metastores.application HOME``.

It reads orders from standard input, one JSON list a line (a method of :class:`Application` and its
arguments), and answers each with one JSON value. ``HOME/settings.json`` has its Spark settings,
``HOME/storage.json``, if it is there, the options by which it reaches an object store.
"""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from catalog_migrate.engine.spark.session import local_session
from catalog_migrate.errors import CatalogMigrateError
from catalog_migrate.hook import bootstrap
from catalog_migrate.store.address import Storage


class Application:
    """What one process does with its session."""

    def __init__(self, home: Path) -> None:
        storage = home / "storage.json"
        options = json.loads(storage.read_text()) if storage.exists() else {}
        self.spark = local_session(
            str(home / "spark"), conf=json.loads((home / "settings.json").read_text()),
            addresses=["s3://any"] if options else [], storage=Storage(options),
        )

    def start(self, release: str, catalog: str) -> dict[str, Any]:
        """Start the software of a release: its outcome, or the error as a person reads it."""
        began = time.monotonic()
        told: dict[str, Any] = {}
        try:
            report = bootstrap(
                self.spark, release=release, catalog=catalog, session=False, timeout=900,
            )
            told["outcome"] = report.outcome
            told["executed"] = [[each.op, each.name, each.outcome] for each in report.executed]
        except CatalogMigrateError as error:
            told["error"], told["message"], told["remedy"] = error.code, error.message, error.remedy
        return {**told, "seconds": time.monotonic() - began}

    def sql(self, query: str) -> Any:
        """The rows of a query as text, or its error's class and first line."""
        try:
            return sorted(str(tuple(row)) for row in self.spark.sql(query).collect())
        except Exception as error:  # noqa: BLE001 - told to the test
            return {"error": type(error).__name__, "message": str(error).splitlines()[0]}

    def table(self, name: str) -> tuple[list[str], list[str]]:
        """The columns of a relation, and its rows as text."""
        frame = self.spark.table(name)
        return frame.columns, sorted(str(tuple(row)) for row in frame.collect())

    def locations(self, schema: str) -> dict[str, str]:
        """Where the names of a schema lead; a view's leads to no place."""
        found = {}
        for row in self.spark.sql(f"SHOW TABLE EXTENDED IN {schema} LIKE '*'").collect():
            place = re.search(r"^Location: (.*)$", row.information, re.MULTILINE)
            found[row.tableName] = "" if place is None else place[1]
        return found

    def watch(self, schema: str, names: list[str], until: str) -> dict[str, Any]:
        """List a schema and query its names, side by side, until a file is there.

        Tells which names were absent from a listing, which queries failed and how, and how many
        listings and queries there were.
        """
        absent: set[str] = set()
        failed: dict[str, str] = {}
        rounds = [0, 0]

        def listing() -> None:
            found = self.spark.sql(f"SHOW TABLES IN {schema}").collect()
            absent.update(set(names) - {row["tableName"] for row in found})
            rounds[0] += 1

        def querying() -> None:
            name = names[rounds[1] % len(names)]
            try:
                self.spark.sql(f"SELECT * FROM {schema}.{name}").collect()
            except Exception as error:  # noqa: BLE001 - told to the test
                failed[name] = str(error).splitlines()[0]
            rounds[1] += 1

        def over_and_over(look: Callable[[], None]) -> None:
            while not Path(until).exists():
                look()

        with ThreadPoolExecutor(2) as pool:
            for each in [pool.submit(over_and_over, look) for look in (listing, querying)]:
                each.result()
        return {"absent": sorted(absent), "failed": failed, "rounds": rounds}


def main(home: Path) -> None:
    answers = sys.stdout
    sys.stdout = sys.stderr
    application = Application(home)
    print(json.dumps("ready"), file=answers, flush=True)
    for line in sys.stdin:
        order, *arguments = json.loads(line)
        print(json.dumps(getattr(application, order)(*arguments)), file=answers, flush=True)
    application.spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
