"""Catalogs at releases 15 and 16 that each round starts from, and what must come out of a round.

The releases are PostgreSQL's own catalog, reduced to nine objects with every kind of change that
15 -> 16 -> 18 makes: tables whose rows are copied (one of them empty), columns that go and come,
views that change, that follow their parents, that are new, and tables that nothing touches. So a
round takes seconds.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from catalog_migrate.catalog.process import proven_dead

from .victims import OwnJvm, Victims

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from catalog_migrate.hook import BootstrapReport
    from tests.services.object_store import ObjectStore

FIXTURES = Path(__file__).parents[2] / "fixtures" / "postgres_catalog"
RELEASES = ("15", "16", "18")
ROOTS = (
    "pg_catalog.pg_attribute",
    "pg_catalog.pg_constraint",
    "pg_catalog.pg_subscription",
    "pg_catalog.pg_group",
    "pg_catalog.pg_stat_io",
    "pg_catalog.pg_stat_subscription",
    "information_schema.sql_features",
)
"""What the reduced releases hold, with everything that it reads."""

SCHEMAS = ("information_schema", "pg_catalog", "catalog_migrate")

Digest = tuple[int, int | None]
"""Number of rows, and the sum of the hashes of whole rows: equal multisets are equal."""


def reduced(manifest: Path, target: Path) -> dict[str, Any]:
    """Write the reduced form of a manifest; returns it."""
    whole = json.loads(manifest.read_text())
    by_name = {f"{entry['schema']}.{entry['name']}": entry for entry in whole["objects"]}
    wanted: set[str] = set()
    queue = [name for name in ROOTS if name in by_name]
    while queue:
        name = queue.pop()
        if name not in wanted:
            wanted.add(name)
            queue.extend(by_name[name].get("depends_on", ()))
    whole["objects"] = [entry for name, entry in sorted(by_name.items()) if name in wanted]
    target.write_text(json.dumps(whole))
    return dict(whole)


@dataclass
class Series:
    """The one place in which all upgrades happen, and how it was at release 15 and 16.

    Paths inside a catalog are absolute, so a round restores ``home`` in place.
    """

    spark: SparkSession
    base: Path
    releases: dict[str, Path]
    columns: dict[str, dict[str, list[dict[str, Any]]]]
    victims: Victims
    jvm: OwnJvm
    kept: set[str] = field(default_factory=set)
    name: str = "disk"

    @property
    def home(self) -> Path:
        """Where the catalog lives."""
        return self.base / "home"

    @property
    def rows(self) -> Path:
        """Release 15's rows, a parquet file a table."""
        return self.base / "rows"

    @property
    def catalog(self) -> str:
        """The catalog's directory, or its address."""
        return str(self.home / "catalog")

    @property
    def warehouse(self) -> str | None:
        """Where the rows are, where that has to be said."""
        return None

    def restore(self, release: str) -> None:
        """A release with its rows again, and nothing of it in this session's memory."""
        self.forget()
        if release not in self.kept:  # 15 was laid down when all began
            self.restore("15")
            self.bootstrap(release)
            self.keep(release)
        self.copy(f"pristine-{release}", "home")

    def keep(self, release: str) -> None:
        """Remember what is there now as ``release``."""
        self.forget()
        self.copy("home", f"pristine-{release}")
        self.kept.add(release)

    def copy(self, one: str, other: str) -> None:
        """Have all of one place in another, and nothing else there."""
        shutil.rmtree(self.base / other, ignore_errors=True)
        shutil.copytree(self.base / one, self.base / other)

    def directories(self, warehouse: str) -> set[str]:
        """What lies where shards do, below the warehouse."""
        places = Path(warehouse).glob("*/*/*")
        return {str(each.relative_to(warehouse)) for each in places if each.is_dir()}

    def forget(self) -> None:
        """Take all names and cached snapshots of the catalog out of this session."""
        for schema in SCHEMAS:
            self.spark.sql(f"DROP SCHEMA IF EXISTS `{schema}` CASCADE")
        self.spark.catalog.clearCache()
        jvm: Any = self.spark._jvm
        jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()

    def bootstrap(self, release: str) -> BootstrapReport:
        """Start the software of ``release`` in this process; it waits for nobody."""
        from catalog_migrate.hook import bootstrap

        phases: list[str] = []
        report = bootstrap(
            self.spark,
            release=self.releases[release],
            catalog=self.catalog,
            warehouse=self.warehouse,
            session=False,  # else this process would keep the killed ones from acting in place
            on_progress=lambda progress: phases.append(progress.phase),
        )
        assert "wait for the lease" not in phases, "the killed holder was not proven dead"
        return report


@dataclass
class SeriesOnS3(Series):
    """The same in a bucket, where victims find it by their variables."""

    name: str = "s3"
    bucket: str = ""

    @property
    def catalog(self) -> str:
        return f"{self.bucket}/home/catalog"

    @property
    def warehouse(self) -> str:
        return f"{self.bucket}/home/rows"

    def copy(self, one: str, other: str) -> None:
        from obstore import store

        objects: Any = store.from_url(self.bucket)
        for some in objects.list(other):
            objects.delete([each["path"] for each in some])
        for some in objects.list(one):
            for each in some:
                objects.copy(each["path"], other + each["path"].removeprefix(one))

    def directories(self, warehouse: str) -> set[str]:
        from obstore import store

        rows: Any = store.from_url(warehouse)
        return {"/".join(each["path"].split("/")[:3]) for some in rows.list() for each in some}


@dataclass
class Upgrade:
    """One upgrade of the series: its calls, and what it leaves when nobody disturbs it."""

    series: Series
    old: str
    new: str
    calls: list[tuple[str, int]] = field(default_factory=list)
    expected: dict[str, Any] = field(default_factory=dict)

    @property
    def calls_file(self) -> Path:
        """The calls with their seconds, which a victim reads."""
        return self.series.base / f"calls-{self.series.name}-{self.old}-{self.new}.json"

    @property
    def catalog(self) -> str:
        """The catalog's directory, or its address."""
        return self.series.catalog

    @property
    def home(self) -> Path:
        """A directory that a round may use."""
        return self.series.home

    @property
    def release(self) -> Path:
        """The manifest of the new release."""
        return self.series.releases[self.new]

    def bootstrap(self, release: str) -> BootstrapReport:
        """Start the software of ``release`` in this process; it waits for nobody."""
        return self.series.bootstrap(release)

    def restore(self) -> None:
        """The old release with its rows again, and nothing of it in this session's memory."""
        self.series.restore(self.old)

    def learn(self) -> None:
        """Upgrade undisturbed: the calls of it, and what it leaves."""
        from catalog_migrate.engine.spark.engine import SparkEngine

        from .killed_upgrade import Calls, upgrade

        self.restore()
        calls = Calls([], None, "")
        engine = SparkEngine(self.series.spark, threads=4)
        assert upgrade(engine, self.catalog, str(self.release), calls).rows_copied > 0
        self.calls_file.write_text(json.dumps(calls.made))
        self.calls = [(label, number) for label, number, _ in calls.made]
        assert self.bootstrap(self.new).outcome == "unchanged"
        self.expected = {"committed": committed(self.catalog), "world": self.world()}
        verify_disk(self.series)

    def kill_at(self, label: str, number: int, moment: str, *, whole: bool = False) -> None:
        """Let a process upgrade until it kills itself at one call; returns when all of it is gone.

        ``whole``: a JVM of its own dies with it. Else it works in the JVM of the checks, which ends
        the statement that it was at and forgets every name.

        ``moment`` is ``before``, ``during`` or ``after``. How often the lease is renewed depends
        on the time that all takes: a renewal may not come, then the upgrade goes through.
        """
        within = None if whole else self.series.jvm
        code, _, wrong = self.series.victims.run(self.task((label, number, moment)), within)
        self.series.forget()
        if label == "renew" and code == 0:
            return
        assert code == -signal.SIGKILL, wrong

    def task(self, fatal: tuple[str, int, str] | None) -> Any:
        """What a process is told."""
        return {
            "catalog": self.catalog,
            "release": str(self.release),
            "calls": str(self.calls_file),
            "fatal": fatal,
            "repair": False,
        }

    @property
    def undisturbed(self) -> Any:
        """What a process is told that shall go through, its calls unknown."""
        return {**self.task(None), "calls": os.devnull}

    def expected_rows(self) -> dict[str, DataFrame]:
        """What the new release must show of each loaded table: release 15's rows, as decided."""
        from pyspark.sql import functions as f

        frames = {}
        for file in sorted(self.series.rows.glob("*.parquet")):
            before = {one["name"]: one for one in self.series.columns["15"][file.stem]}
            frames[file.stem] = self.series.spark.read.parquet(str(file)).select(
                *[
                    f.expr(decided(column, before)).alias(column["name"])
                    for column in self.series.columns[self.new][file.stem]
                ]
            )
        return frames

    def world(self) -> dict[str, Any]:
        """Every name of the new release as this session sees it: columns, and digest of rows."""
        spark = self.series.spark
        frames = {name: spark.table(name) for name in self.series.columns[self.new]}
        return {
            "columns": {name: frame.dtypes for name, frame in frames.items()},
            "rows": digests(frames),
        }

    def verify(self, *, lease_left: bool = False) -> None:
        """The world is exactly what an upgrade that nobody disturbed leaves.

        ``lease_left``: the lease may still name a process that is dead. A start with nothing to do
        writes nothing, so it leaves it to whoever needs it next.
        """
        found = committed(self.catalog)
        wanted = dict(self.expected["committed"])
        if lease_left:
            assert all(not row.holder or proven_dead(row) for row in found["leases"].values())
        else:
            assert [row.holder for row in found["leases"].values()] == [""]
        del found["leases"], wanted["leases"]
        assert found == wanted
        assert self.world() == self.expected["world"]
        verify_disk(self.series)

    def finish_and_verify(self) -> BootstrapReport:
        """Start the new release here after a kill, and compare everything with the expectation."""
        from catalog_migrate.api import Catalog

        report = self.bootstrap(self.new)
        assert report.outcome in {"migrated", "resumed", "unchanged"}
        catalog = Catalog.open(self.catalog)
        assert catalog.status().pending == 0
        assert catalog.plan(self.release).is_empty
        self.verify(lease_left=report.outcome == "unchanged")
        again = self.bootstrap(self.new)
        assert (again.outcome, again.names, again.rows_copied) == ("unchanged", 0, 0)
        return report


def decided(column: dict[str, Any], before: dict[str, dict[str, Any]]) -> str:
    """What a column must hold, as an expression over release 15's row, by the decisions alone."""
    old = before.get(column["name"]) or before.get(column.get("renamed_from", ""))
    if old is not None and old["type"] == column["type"]:
        return f"`{old['name']}`"
    source = "NULL" if old is None else f"`{old['name']}`"
    return f"CAST({column.get('using', source)} AS {column['type']})"


def committed(catalog: str) -> dict[str, Any]:
    """The catalog's state without what may differ: paths of shards, versions, epochs, times."""
    from catalog_migrate.catalog.opening import open_log, read_state

    state = read_state(open_log(catalog))
    shards: dict[str, Counter[str]] = {}
    for record in state.shards.values():
        if record.state != "gone":
            shards.setdefault(record.item_id, Counter())[record.state] += 1
    return {
        "serial": state.serial,
        "mappings": dict(state.mappings),
        "items": {
            item_id: (
                item.owner,
                item.global_id,
                item.definition,
                item.uses,
                item.quarantined,
                item.shard is not None,
            )
            for item_id, item in state.items.items()
        },
        "shards": {item_id: dict(counts) for item_id, counts in shards.items()},
        "releases": state.releases,
        "allocators": dict(state.allocators),
        "tombstones": state.tombstones,
        "intents": dict(state.intents),
        "operations": dict(state.operations),
        "leases": dict(state.leases),
    }


def digests(frames: dict[str, DataFrame]) -> dict[str, Digest]:
    """Count and hash of the rows of each frame, in one Spark job."""
    from functools import reduce

    from pyspark.sql import functions as f

    parts = [
        frame.select(f.xxhash64(*[f.col(f"`{name}`") for name in frame.columns]).alias("h"))
        .agg(f.count("*").alias("rows"), f.sum(f.col("h").cast("decimal(38,0)")).alias("hash"))
        .select(f.lit(name).alias("name"), "rows", "hash")
        for name, frame in sorted(frames.items())
    ]
    union = reduce(lambda left, right: left.unionAll(right), parts)
    return {
        row["name"]: (row["rows"], None if row["hash"] is None else int(row["hash"]))
        for row in union.collect()
    }


def verify_disk(series: Series) -> None:
    """Directories of shards are the catalog's, and those that were replaced are sealed."""
    from catalog_migrate.catalog.opening import open_log, read_state
    from catalog_migrate.engine.spark.engine import SparkEngine

    state = read_state(open_log(series.catalog))
    warehouse = state.config["warehouse"].value
    engine = SparkEngine(series.spark)
    kept = {path for path, record in state.shards.items() if record.state != "gone"}
    assert {record.state for record in state.shards.values()} <= {"live", "retired", "gone"}
    assert series.directories(warehouse) == kept
    assert {path.removeprefix(f"{warehouse}/") for path in engine.list_shards(warehouse)} == kept
    sealed = {path: engine.is_sealed(f"{warehouse}/{path}") for path in kept}
    assert sealed == {path: state.shards[path].state == "retired" for path in kept}


@pytest.fixture(scope="session")
def series(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Series]:
    """The reduced catalog at release 15 with its rows, made once."""
    base = tmp_path_factory.mktemp("crash")
    releases, columns = {}, {}
    for name in RELEASES:
        releases[name] = base / f"{name}.json"
        manifest = reduced(FIXTURES / f"{name}.json", releases[name])
        columns[name] = {
            f"{entry['schema']}.{entry['name']}": entry["columns"] for entry in manifest["objects"]
        }
    made = Series(spark, base, releases, columns, Victims(base / "spark"), OwnJvm(spark))
    made.rows.mkdir()
    for file in sorted((FIXTURES / "rows_15").glob("*.parquet")):
        if file.stem in columns["15"]:
            shutil.copy(file, made.rows)
    made.home.mkdir()
    _lay_down(made)
    yield made
    made.jvm.close()


def _lay_down(series: Series) -> None:
    """Release 15 with its rows."""
    from catalog_migrate.api import Catalog
    from examples.demo import load_rows

    series.forget()
    assert series.bootstrap("15").outcome == "initialized"
    load_rows(Catalog.open(series.catalog), series.rows)
    series.keep("15")


@pytest.fixture(scope="session")
def series_on_s3(series: Series, object_store: ObjectStore) -> Iterator[SeriesOnS3]:
    """The same on S3: reached by variables, which the processes that are killed inherit."""
    from catalog_migrate.engine.spark.object_stores.settings import hadoop_settings
    from catalog_migrate.engine.spark.session import hand_over
    from catalog_migrate.store.address import Storage

    with pytest.MonkeyPatch.context() as variables:
        for name, value in object_store.options.items():
            variables.setenv(name.upper(), value)
        bucket = object_store.bucket("crash")
        variables.setenv("CRASH_ADDRESS", bucket)
        hand_over(series.spark.sparkContext, hadoop_settings(Storage(object_store.options)))
        made = SeriesOnS3(
            series.spark, series.base, series.releases, series.columns,
            Victims(series.base / "spark-s3"), series.jvm, bucket=bucket,
        )
        _lay_down(made)
        yield made


_Learned = dict[tuple[str, str, str], Upgrade]


@pytest.fixture(scope="session")
def learned() -> _Learned:
    """Upgrades by place and releases, each tried undisturbed when it is first asked for."""
    return {}


def _upgrades(series: Series, known: _Learned) -> Iterator[Callable[[str, str], Upgrade]]:
    def ready(old: str, new: str) -> Upgrade:
        key = (series.name, old, new)
        if key not in known:
            known[key] = Upgrade(series, old, new)
            known[key].learn()
        known[key].restore()
        return known[key]

    yield ready
    if series.jvm.alive:
        series.forget()


@pytest.fixture
def upgrades(series: Series, learned: _Learned) -> Iterator[Callable[[str, str], Upgrade]]:
    """Asks for an upgrade, its old release ready for a round; no name is left afterwards."""
    yield from _upgrades(series, learned)


@pytest.fixture
def upgrades_on_s3(
    series_on_s3: SeriesOnS3, learned: _Learned
) -> Iterator[Callable[[str, str], Upgrade]]:
    """The same of what lies on S3."""
    yield from _upgrades(series_on_s3, learned)


@pytest.fixture
def upgrade(upgrades: Callable[[str, str], Upgrade]) -> Upgrade:
    """The upgrade from 15 to 16, ready for a round."""
    return upgrades("15", "16")
