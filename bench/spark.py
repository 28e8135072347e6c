"""The start-up hook inside one warm Spark session, against the same statements issued bare."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from bench import generated
from bench.measure import Cost, Measure, paired
from catalog_migrate.catalog.clock import SystemClock
from catalog_migrate.catalog.opening import open_log, read_state
from catalog_migrate.engine.spark.engine import SparkEngine
from catalog_migrate.engine.spark.session import local_session
from catalog_migrate.hook import BootstrapReport
from catalog_migrate.model.objects import ObjectDefinition
from catalog_migrate.release.loader import load_manifest
from catalog_migrate.release.release import Release
from catalog_migrate.testing.starts import migrate

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from catalog_migrate.store.address import Storage

THREADS = 4
ROUNDS = 3
ROWS = 1_000
DEPENDENTS = 57


def measures(directory: Path) -> Iterator[Measure]:
    """All of them in one session, which is stopped at the end."""
    session = local_session(warehouse_dir=str(directory / "spark"))
    try:
        bench = Bench(session, str(directory))
        yield bench.first_apply()
        yield bench.dependents()
        yield bench.registrations()
        yield bench.unchanged()
    finally:
        session.stop()


class Bench:
    """The session, and a new place for every catalog and every table."""

    def __init__(
        self, spark: SparkSession, directory: str, storage: Storage | None = None
    ) -> None:
        self.spark = spark
        self.directory = directory
        self.storage = storage
        self.places = 0
        context: Any = spark.sparkContext
        self.jvm = int(context._gateway.jvm.java.lang.ProcessHandle.current().pid())

    # -- the measures --------------------------------------------------------------------------

    def first_apply(self, limit: float = 1.0, *, where: str = "") -> Measure:
        """100 tables and 100 views in an empty session, by at most ``limit`` of the bare time."""
        definitions = generated.objects(100, 100)
        release = release_of("1.0", definitions)

        def ours() -> Cost:
            self.clear()
            place = self.place()
            return self.timed(lambda: self.start(place, release))

        def bare() -> Cost:
            self.clear()
            place = self.place()
            return self.timed(lambda: self.create(definitions, place))

        mine, base = paired(ours, bare, rounds=ROUNDS)
        return Measure(
            f"first apply of 100 tables and 100 views{where}", mine,
            "the same CREATE statements", base, f"≤ {limit:.2f}× bare",
            mine.wall <= limit * base.wall,
        )

    def dependents(self) -> Measure:
        """One column of a table with rows changes, under 57 views."""
        old = generated.objects(2, DEPENDENTS, reached=DEPENDENTS)
        new = generated.objects(2, DEPENDENTS, reached=DEPENDENTS, widened=True)
        before, after = release_of("1.0", old), release_of("2.0", new)
        root = f"{generated.SCHEMA}.t00000"

        def ours() -> Cost:
            self.clear()
            place = self.place()
            self.start(place, before)
            self.insert(root)
            return self.timed(lambda: self.start(place, after))

        def bare() -> Cost:
            self.clear()
            self.create(old, self.place())
            self.insert(root)
            return self.timed(lambda: self.recreate(root, new, self.place()))

        # the first pair takes four times as long as the fourth, on both sides
        mine, base = paired(ours, bare, rounds=6, warm=3)
        return Measure(
            f"migration of {DEPENDENTS} dependent views of a root table with {ROWS:,} rows", mine,
            "DROP, CREATE and INSERT … SELECT", base, "≤ 1.15× bare",
            mine.wall <= 1.15 * base.wall,
        )

    def registrations(self) -> Measure:
        """200 tables get their names in a session that has none."""
        release = release_of("1.0", generated.objects(200, 0))
        place = self.place()
        self.clear()
        self.start(place, release)
        state = read_state(open_log(f"{place}/catalog"))
        paths = {
            mapping.name: f"{place}/warehouse/{state.items[mapping.item_id].shard}"
            for mapping in state.mappings.values()
        }
        statements = [
            f"CREATE TABLE {generated.SCHEMA}.{name} USING delta LOCATION '{path}'"
            for name, path in sorted(paths.items())
        ]

        def ours() -> Cost:
            self.clear()
            return self.timed(lambda: self.start(place, release))

        def bare() -> Cost:
            self.clear()
            return self.timed(lambda: self.issue(self.schema(), statements))

        # Delta's code for it is compiled late: the fifth pair is still quicker than the fourth
        mine, base = paired(ours, bare, rounds=8, warm=4)
        return Measure(
            "re-registration of 200 tables in a session without names", mine,
            "CREATE TABLE … LOCATION", base, "≤ 1.15× bare", mine.wall <= 1.15 * base.wall,
        )

    def unchanged(self) -> Measure:
        """A start with nothing to do, all names there; the baseline only lists the names."""
        release = release_of("1.0", generated.objects(200, 800))
        place = self.place()
        self.clear()
        self.start(place, release)
        jobs: list[int] = []

        def ours() -> Cost:
            before = self.jobs()
            cost = self.timed(lambda: self.start(place, release))
            jobs.append(self.jobs() - before)
            return cost

        def bare() -> Cost:
            listing = f"SHOW TABLE EXTENDED IN {generated.SCHEMA} LIKE '*'"
            return self.timed(lambda: self.spark.sql(listing).collect())

        mine, base = paired(ours, bare, rounds=9)
        return Measure(
            "start with nothing changed, 1,000 objects, names there, warm session", mine,
            "`SHOW TABLE EXTENDED`", base, "≤ 0.30 s, no Spark job",
            mine.wall <= 0.30 and not any(jobs), f"{median(jobs):.0f} Spark jobs",
        )

    # -- acts ----------------------------------------------------------------------------------

    def start(self, place: str, release: Release, **given: Any) -> BootstrapReport:
        """What the start-up hook does, without our own built-ins (the bare side has none)."""
        return migrate(
            SparkEngine(self.spark, threads=THREADS), open_log(f"{place}/catalog", self.storage),
            release, warehouse=f"{place}/warehouse", clock=SystemClock(), holder="bench",
            threads=THREADS, **given,
        )

    def create(self, definitions: Sequence[ObjectDefinition], place: str) -> None:
        """The objects by their SQL: all tables, then views level by level."""
        tables = [create_table(d, place) for d in definitions if d.kind == "table"]
        self.issue(self.schema(), tables, *_create_views(definitions))

    def recreate(
        self, root: str, definitions: Sequence[ObjectDefinition], place: str
    ) -> None:
        """The migration by hand: views away, the table anew with its rows, views again."""
        old = f"{root}_old"
        self.issue(
            *_drop_views(definitions), [f"ALTER TABLE {root} RENAME TO {old}"],
            [create_table(definitions[0], place)], [f"INSERT INTO {root} SELECT * FROM {old}"],
            [f"DROP TABLE {old}"], *_create_views(definitions),
        )

    def insert(self, name: str) -> None:
        """Rows for a table."""
        items = ", ".join(
            f"CAST({'current_date()' if c.type == 'DATE' else 'NULL'} AS {c.type}) AS {c.name}"
            for c in generated.columns()
        )
        self.spark.sql(f"INSERT INTO {name} SELECT {items} FROM range({ROWS})")

    def issue(self, *steps: Sequence[str]) -> None:
        """Statements of a step in parallel, one step after the other."""
        with ThreadPoolExecutor(THREADS) as pool:
            for statements in steps:
                list(pool.map(self.spark.sql, statements))

    def schema(self) -> list[str]:
        """The statement for the schema that all objects are in."""
        return [f"CREATE SCHEMA IF NOT EXISTS {generated.SCHEMA}"]

    def clear(self) -> None:
        """A session without names; files stay."""
        self.spark.sql(f"DROP SCHEMA IF EXISTS {generated.SCHEMA} CASCADE")

    def place(self) -> str:
        """A directory that nothing else uses."""
        self.places += 1
        return f"{self.directory}/place{self.places}"

    def jobs(self) -> int:
        """How many jobs the session has run so far, by Spark's own counter."""
        context: Any = self.spark.sparkContext
        return int(context._jsc.sc().dagScheduler().numTotalJobs())

    def timed(self, act: Callable[[], object]) -> Cost:
        """What an act costs here and in the JVM, in CPU time where the system tells."""
        cpu, began = self.cpu(), time.perf_counter()
        act()
        wall = time.perf_counter() - began
        return Cost(wall, self.cpu() - cpu)

    def cpu(self) -> float:
        """Seconds of CPU that this process and the JVM have used, all threads; 0 where unknown."""
        own = os.times()
        place = Path(f"/proc/{self.jvm}/stat")
        if not place.exists():
            return 0.0
        fields = place.read_text(encoding="utf-8").rpartition(")")[2].split()
        ticks = int(fields[11]) + int(fields[12])
        return own.user + own.system + ticks / os.sysconf("SC_CLK_TCK")


def release_of(name: str, definitions: Sequence[ObjectDefinition]) -> Release:
    return load_manifest(generated.manifest(name, definitions), name=name)


def create_table(definition: ObjectDefinition, place: str) -> str:
    columns = ", ".join(f"{column.name} {column.type}" for column in definition.columns)
    name = f"{definition.schema}.{definition.name}"
    return (
        f"CREATE TABLE {name} ({columns}) USING delta COMMENT '{definition.comment}'"
        f" LOCATION '{place}/{definition.name}'"
    )


def _create_views(definitions: Sequence[ObjectDefinition]) -> list[list[str]]:
    """The CREATE VIEW statements by level."""
    return [[_create_view(definition) for definition in level] for level in _levels(definitions)]


def _drop_views(definitions: Sequence[ObjectDefinition]) -> list[list[str]]:
    """The DROP VIEW statements, users before what they use: nothing breaks in between."""
    return [
        [f"DROP VIEW {definition.schema}.{definition.name}" for definition in level]
        for level in reversed(_levels(definitions))
    ]


def _create_view(definition: ObjectDefinition) -> str:
    columns = ", ".join(column.name for column in definition.columns)
    return (
        f"CREATE VIEW {definition.schema}.{definition.name} ({columns})"
        f" COMMENT '{definition.comment}' WITH SCHEMA BINDING AS {definition.sql}"
    )


def _levels(definitions: Sequence[ObjectDefinition]) -> list[list[ObjectDefinition]]:
    """The views by level: those of one read only tables and views of earlier ones."""
    level: dict[str, int] = {}
    levels: list[list[ObjectDefinition]] = []
    for definition in definitions:
        if definition.kind != "view":
            continue
        reads = (definition.depends_on or ("",))[0].rpartition(".")[2]
        number = level[definition.name] = level.get(reads, -1) + 1
        if number == len(levels):
            levels.append([])
        levels[number].append(definition)
    return levels
