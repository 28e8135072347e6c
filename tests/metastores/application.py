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
from random import Random
from typing import Any

import msgspec

from catalog_migrate.engine.spark.engine import SparkEngine
from catalog_migrate.engine.spark.session import local_session
from catalog_migrate.errors import CatalogMigrateError
from catalog_migrate.hook import bootstrap
from catalog_migrate.store.address import Storage
from catalog_migrate.users.settings import UserSettings
from tests.crash.victims import OwnJvm


class Application:
    """What one process does with its session."""

    def __init__(self, home: Path) -> None:
        storage = home / "storage.json"
        options = json.loads(storage.read_text()) if storage.exists() else {}
        self.spark = local_session(
            str(home / "spark"), conf=json.loads((home / "settings.json").read_text()),
            addresses=["s3://any"] if options else [], storage=Storage(options),
        )

    def start(self, release: str, catalog: str, repair: bool = False) -> dict[str, Any]:
        """Start the software of a release: its outcome, or the error as a person reads it.

        ``repair``: users' objects that only need binding again are repaired.
        """
        began = time.monotonic()
        told: dict[str, Any] = {}
        try:
            report = bootstrap(
                self.spark, release=release, catalog=catalog, session=False, timeout=900,
                users=UserSettings(repair=repair),
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

    def statements(self, *statements: str) -> list[str | None]:
        """Statements one after the other: what each failed with, None where it did not."""
        return [_failure(lambda s=each: self.spark.sql(s)) for each in statements]  # type: ignore[misc]

    def binds(self, *queries: str) -> list[str | None]:
        """Which error class each query has when it is analysed, None where it has none."""
        return [_failure(lambda q=each: self.spark.sql(q).schema) for each in queries]  # type: ignore[misc]

    def definitions(self, schema: str) -> dict[str, list[str]]:
        """The text and the comment of every view of a schema, as the catalog has them."""
        found = {}
        for row in self.spark.sql(f"SHOW VIEWS IN {schema}").collect():
            described = self.spark.sql(f"DESCRIBE TABLE EXTENDED {schema}.{row.viewName}").collect()
            told = {each.col_name: each.data_type for each in described}
            found[row.viewName] = [told["View Text"], told.get("Comment", "")]
        return found

    def meddle(self, schema: str, texts: dict[str, list[str]], until: str, seed: int) -> list[Any]:
        """Alter, drop and make views again, one after the other, until a file is there.

        ``texts`` are those that each view may have. What each has at the end, None for one that is
        dropped, how many statements went through, and how many did not.
        """
        chance = Random(seed)
        left: dict[str, str | None] = {}
        counts = [0, 0]
        while not Path(until).exists():
            name = chance.choice(sorted(texts))
            text = chance.choice(texts[name])
            if name in left and left[name] is None:
                statement = f"CREATE VIEW {schema}.{name} COMMENT 'theirs' AS {text}"
            elif chance.random() < 0.3:
                statement, text = f"DROP VIEW {schema}.{name}", ""
            else:
                statement = f"ALTER VIEW {schema}.{name} AS {text}"
            failed = _failure(lambda s=statement: self.spark.sql(s))  # type: ignore[misc]
            counts[failed is not None] += 1
            if failed is None:
                left[name] = text or None
        return [left, *counts]

    def gateway(self) -> list[str]:
        """How a process works in this JVM that outlives it."""
        java = self.spark.sparkContext._gateway.java_parameters  # type: ignore[union-attr]
        return ["--jvm", str(java.port), java.auth_token]

    def serving(self) -> list[int]:
        """Threads of this JVM that work for a Python process."""
        return sorted(OwnJvm.threads_for_python(self.spark))

    def locations(self, schema: str) -> dict[str, str]:
        """Where the names of a schema lead; a view's leads to no place."""
        found = {}
        for row in self.spark.sql(f"SHOW TABLE EXTENDED IN {schema} LIKE '*'").collect():
            place = re.search(r"^Location: (.*)$", row.information, re.MULTILINE)
            found[row.tableName] = "" if place is None else place[1]
        return found

    def user_definitions(self, schema: str) -> list[dict[str, Any]]:
        """Users' views and functions of a schema, as the engine reads them."""
        found = SparkEngine(self.spark).user_definitions(schema)
        return [msgspec.to_builtins(each) for each in found]

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


def _failure(act: Callable[[], object]) -> str | None:
    """What an act of Spark fails with: error class, or else first line; None where it does not."""
    from pyspark.errors import PySparkException

    try:
        act()
    except PySparkException as error:
        return error.getCondition() or str(error).splitlines()[0]
    except Exception as error:  # noqa: BLE001 - told to the test
        return str(error).splitlines()[0]
    return None


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
