"""Run by test_metastore_story: one metastore, and what happens on it from adoption to drift.

Argument: a working directory. Prints one JSON object: what each chapter found.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import random
import re
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from catalog_migrate.catalog.opening import open_log, read_state
from catalog_migrate.cli.main import main as command_line
from catalog_migrate.engine.spark.session import local_session
from catalog_migrate.errors import CatalogMigrateError
from catalog_migrate.hook import bootstrap

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ORDERS = (
    "CREATE TABLE shop.orders (id BIGINT NOT NULL COMMENT 'key', day DATE, qty INT,"
    " CHECK (qty > 0)) PARTITIONED BY (day) COMMENT 'what they bought';"
)
WIDER = ORDERS.replace("qty INT", "qty BIGINT")
AFTER = (
    "CREATE SCHEMA kept",
    "CREATE TABLE kept.t (i INT) USING delta LOCATION '{home}/t'",
    "INSERT INTO kept.t VALUES (7)",
    "CREATE VIEW kept.v (i) WITH SCHEMA BINDING AS SELECT i FROM kept.t",
)
"""What a later session makes beside the names that it found."""
JOINED = "SELECT i, id FROM kept.v JOIN meta.v ON i = id"
VIEW = "CREATE VIEW shop.big (id BIGINT) AS SELECT id FROM shop.orders WHERE qty > 5;"


def command(*arguments: object) -> tuple[int, str]:
    """One call of the command line in this process: exit code and what it printed."""
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        code = command_line([str(argument) for argument in arguments])
    return code, said.getvalue()


def drawn(chance: random.Random) -> tuple[dict[str, Any], dict[str, Any]]:
    """Two releases: names, and what each reads (None for a table)."""
    def one() -> dict[str, Any]:
        objects: dict[str, Any] = {}
        for name in ("t0", "t1", "t2"):
            if not objects or chance.random() < 0.7:
                objects[name] = None
        for name in ("v0", "v1", "v2", "v3"):
            if chance.random() < 0.8:
                objects[name] = tuple(sorted(chance.sample(sorted(objects), k=1)))
        return objects

    return one(), one()


def statement(schema: str, name: str, reads: tuple[str, ...] | None, which: int) -> str:
    """The statement of a table, or of a view over what it reads."""
    if reads is None:
        return f"CREATE TABLE {schema}.{name} (a INT);\n"
    return (
        f"CREATE VIEW {schema}.{name} (a INT) AS SELECT a FROM {schema}.{reads[0]}"
        f" WHERE a > {which};\n"
    )


class Story:
    """The metastore's session and the directories of this run."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.spark = self.session()
        self.told: dict[str, Any] = {}

    def session(self) -> SparkSession:
        """A session on the metastore of this run."""
        events = self.home / "events"
        events.mkdir(exist_ok=True)
        return local_session(
            warehouse_dir=str(self.home / "spark"), metastore=str(self.home / "metastore"),
            conf={
                "spark.eventLog.enabled": "true", "spark.eventLog.dir": events.as_uri(),
                "spark.eventLog.compress": "false",
            },
        )

    def names_changed(self) -> list[str]:
        """What the metastore did to names so far, by Spark's own events: ``Drop s.v``."""
        found = []
        for path in sorted((self.home / "events").rglob("events_*")):
            for line in path.read_text().splitlines():
                event = json.loads(line)
                act = re.fullmatch(
                    r"org.apache.spark.sql.catalyst.catalog.(Drop|Create|Alter)(Table|Function)Event",
                    event["Event"],
                )
                if act:
                    found.append(f"{act[1]} {event['database']}.{event['name']}".lower())
        return found

    def release(self, name: str, *texts: str) -> Path:
        """A release directory."""
        directory = self.home / f"release-{name}"
        directory.mkdir(exist_ok=True)
        (directory / "all.sql").write_text("".join(texts), encoding="utf-8")
        (directory / "release.toml").write_text(f'name = "{name}"\n', encoding="utf-8")
        return directory

    def start(self, release: Path, catalog: str, **options: Any) -> str:
        """One start; its outcome, or the code of its error."""
        try:
            return bootstrap(
                self.spark, release=release, catalog=self.home / catalog, **options
            ).outcome
        except CatalogMigrateError as error:
            return f"{error.code}: {error.message}"

    def one(self, query: str) -> Any:
        """The one value of a query."""
        return self.spark.sql(query).collect()[0][0]

    def kind(self, name: str) -> str:
        """MANAGED or EXTERNAL."""
        schema, _, table = name.partition(".")
        rows = self.spark.sql(f"SHOW TABLE EXTENDED IN {schema} LIKE '{table}'").collect()
        lines = rows[0]["information"].splitlines()
        return next(line for line in lines if line.startswith("Type: ")).removeprefix("Type: ")

    def adoption(self) -> None:
        """A managed, partitioned, checked table is adopted where it lies, then migrated."""
        for statement in (
            "CREATE SCHEMA shop",
            "CREATE TABLE shop.orders (id BIGINT NOT NULL COMMENT 'key', day DATE, qty INT)"
            " USING delta PARTITIONED BY (day) COMMENT 'what they bought'",
            "ALTER TABLE shop.orders ADD CONSTRAINT pos CHECK (qty  >  0)",
            "INSERT INTO shop.orders VALUES (1, DATE'2026-01-01', 5), (2, DATE'2026-01-02', 7)",
            "CREATE TABLE shop.theirs (a INT) USING delta",
        ):
            self.spark.sql(statement)
        first = self.release("1", ORDERS, VIEW)
        place = ("--release", first, "--catalog", self.home / "one")
        dry = command("init", "--adopt", "--schema", "shop", *place, "--dry-run")
        nothing = (self.home / "one").exists()
        done = command("init", "--adopt", "--schema", "shop", *place, "--format", "json")
        managed = self.kind("shop.orders")
        outcome = self.start(first, "one")
        directory = self.home / "spark" / "shop.db" / "orders"
        self.told["adoption"] = {
            "dry": dry, "wrote": nothing, "done": [done[0], json.loads(done[1])],
            "kinds": [managed, self.kind("shop.orders")], "outcome": outcome,
            "rows": self.one("SELECT count(*) FROM shop.orders"),
            "view": self.one("SELECT count(*) FROM shop.big"),
            "files": (directory / "_delta_log").is_dir(),
            "shadow tables": [each.name for each in directory.parent.glob("*.twin")],
        }
        second = self.release("2", WIDER, VIEW)
        outcome = self.start(second, "one")
        self.told["migration"] = {
            "outcome": outcome, "rows": self.one("SELECT sum(qty) FROM shop.orders"),
            "type": dict(self.spark.table("shop.orders").dtypes)["qty"],
            "kept": (directory / "_delta_log").is_dir() and any(directory.rglob("*.parquet")),
        }

    def neighbours(self) -> None:
        """A second installation: a clash is told, other names live side by side."""
        clash = self.start(self.release("clash", ORDERS), "two")
        other = self.release(
            "other", "CREATE TABLE shop.more (id BIGINT);",
            "CREATE VIEW shop.many (id BIGINT) AS SELECT id FROM shop.more;",
        )
        outcome = self.start(other, "two")
        self.told["neighbours"] = {
            "clash": clash, "outcome": outcome,
            "again": [self.start(self.home / "release-2", "one"), self.start(other, "two")],
            "views": [
                self.one(f"SELECT count(*) FROM {schema}.objects WHERE name = '{name}'")
                for schema, name in (("catalog_migrate", "orders"), (self.own("two"), "more"))
            ],
            "rows": self.one("SELECT count(*) FROM shop.orders"),
        }

    def own(self, catalog: str) -> str:
        """The schema of an installation's built-in views."""
        state = read_state(open_log(str(self.home / catalog)))
        return next(m.schema for m in state.mappings.values() if m.owner == "system")

    def copy_and_move(self) -> None:
        """A copy is refused until it is one of its own; a moved one is followed."""
        shutil.copytree(self.home / "two", self.home / "copy")
        refused = self.start(self.home / "release-other", "copy")
        relocated = command("relocate", "--catalog", self.home / "copy", "--new-lineage")
        clash = self.start(self.home / "release-other", "copy")
        os.rename(self.home / "one", self.home / "moved")
        away = self.start(self.home / "release-2", "moved")
        followed = command("relocate", "--catalog", self.home / "moved")
        outcome = self.start(self.home / "release-2", "moved")
        self.told["copy"] = {"refused": refused, "relocated": relocated[0], "clash": clash}
        self.told["move"] = {
            "away": away, "followed": followed[0], "outcome": outcome,
            "rows": self.one("SELECT count(*) FROM shop.orders"),
            "view": self.one("SELECT count(*) FROM shop.big"),
        }

    def loss(self) -> None:
        """The log is lost: no empty catalog is made; it is made again, and the view stands."""
        shutil.rmtree(self.home / "moved" / "log")
        release = self.home / "release-2"
        refused = self.start(release, "moved")
        rebuilt = command("rebuild", "--catalog", self.home / "moved", "--release", release)
        outcome = self.start(release, "moved")
        self.told["loss"] = {
            "refused": refused, "rebuilt": list(rebuilt), "outcome": outcome,
            "rows": self.one("SELECT sum(qty) FROM shop.orders"),
            "view": self.one("SELECT count(*) FROM shop.big"),
            "again": self.start(release, "moved"),
        }

    def farewell(self) -> None:
        """Exported names are plain, rows stay, and the neighbour goes on."""
        text = command("export", "--catalog", self.home / "moved", "--sql", "-")
        given = command("export", "--catalog", self.home / "moved", "--yes")
        properties = self.spark.sql("SHOW TBLPROPERTIES shop.big").collect()
        self.told["farewell"] = {
            "text": list(text), "given": list(given),
            "marks": sorted(row["key"] for row in properties
                            if row["key"].startswith("catalog_migrate.")),
            "rows": self.one("SELECT count(*) FROM shop.big"),
            "refused": self.start(self.home / "release-2", "moved"),
            "neighbour": self.start(self.home / "release-other", "two"),
            "replayed": self.replayed(text[1]),
        }

    def replayed(self, sql: str) -> int:
        """Run the exported text after all names are lost: the rows are there again."""
        self.spark.sql("DROP VIEW shop.big")
        self.spark.sql("DROP TABLE shop.orders")
        for statement in sql.split("\n;"):
            lines = [line for line in statement.splitlines() if not line.startswith("--")]
            if any(line.strip() for line in lines):
                self.spark.sql("\n".join(lines))
        rows = self.one("SELECT count(*) FROM shop.big")
        assert isinstance(rows, int)
        return rows

    def starts(self) -> None:
        """A start, then one that finds nothing to do, with the Spark jobs of each counted.

        Then a view is dropped behind our back: ``drift`` is asked before, while and after mending.
        """
        release = self.release(
            "meta", "CREATE TABLE meta.t (id BIGINT NOT NULL);",
            "CREATE VIEW meta.v (id BIGINT) AS SELECT id FROM meta.t;",
        )
        context = self.spark.sparkContext
        tracker = context.statusTracker()
        outcomes, jobs, names = [], [], []
        for group in ("first", "second"):
            before = set(tracker.getJobIdsForGroup(None))
            context.setJobGroup(group, group)
            report = bootstrap(self.spark, release=release, catalog=self.home / "meta")
            after = set(tracker.getJobIdsForGroup(None)) | set(tracker.getJobIdsForGroup(group))
            outcomes.append(report.outcome)
            jobs.append(len(after - before))
            names.append(report.names)
        rows = self.one("SELECT count(*) FROM meta.v")
        counted = len(tracker.getJobIdsForGroup("second"))
        self.spark.sql("INSERT INTO meta.t VALUES (7)")
        self.spark.sql("DROP VIEW meta.v")
        self.spark.sql("CREATE VIEW meta.theirs AS SELECT 42 AS answer")
        drift = []
        for flags in (["--detailed-exitcode"], ["--repair", "--yes"], ["--detailed-exitcode"]):
            said, progress = io.StringIO(), io.StringIO()
            with contextlib.redirect_stdout(said), contextlib.redirect_stderr(progress):
                code = command_line(["drift", "--catalog", str(self.home / "meta"), *flags])
            drift.append([code, said.getvalue()])
        self.told["starts"] = {
            "outcomes": outcomes, "jobs": jobs, "names": names, "rows": rows,
            "counts_jobs": counted > 0, "drift": drift,
            "standing": sorted(
                row.tableName for row in self.spark.sql("SHOW TABLES IN meta").collect()
            ),
        }

    def program(self) -> None:
        """Pairs of releases: the steps of the plan, and what the metastore did.

        In the first one a view lets go of a table that goes; the others are drawn at random.
        """
        pairs = [
            ({"old": None, "v": ("old",)}, {"new": None, "v": ("new",)}),
            *(drawn(random.Random(seed)) for seed in range(3)),
        ]
        self.told["program"] = []
        for number, releases in enumerate(pairs):
            schema, catalog = f"pair{number}", self.home / f"pair{number}"
            for which, objects in enumerate(releases):
                texts = [statement(schema, name, objects[name], which) for name in objects]
                before = len(self.names_changed())
                report = bootstrap(
                    self.spark, release=self.release(f"{schema}-{which}", *texts), catalog=catalog,
                    approve=[f"{schema}.{name}" for name in releases[0]], threads=1, session=False,
                )
            own = {f"{schema}.{name}" for objects in releases for name in objects}
            assert report.plan is not None
            self.told["program"].append({
                "planned": [[step.op, step.phase, step.name] for step in report.plan.steps],
                "executed": [[one.op, one.phase, one.name] for one in report.executed],
                "outcomes": sorted({one.outcome for one in report.executed}),
                "changed": [
                    each for each in self.names_changed()[before:] if each.split()[1] in own
                ],
                "reads": [
                    {f"{schema}.{name}": [f"{schema}.{each}" for each in reads or ()]
                     for name, reads in objects.items()}
                    for objects in releases
                ],
            })

    def another_session(self) -> None:
        """The next session reads a view and a table of the first one, and makes others."""
        self.spark.sql("CREATE TEMPORARY VIEW passing AS SELECT 1")
        self.spark.stop()
        self.spark = self.session()
        for statement in AFTER:
            self.spark.sql(statement.format(home=self.home))
        self.told["another session"] = {
            "passing": self.spark.catalog.tableExists("passing"),
            "rows": [list(row) for row in self.spark.sql(JOINED).collect()],
        }


def main(home: Path) -> None:
    """All chapters in order, in one process."""
    story = Story(home)
    for chapter in (
        story.adoption, story.neighbours, story.copy_and_move, story.loss, story.farewell,
        story.starts, story.program, story.another_session,
    ):
        chapter()
    print(json.dumps(story.told))
    story.spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
