"""A loaded catalog at release 15 that each round starts from, and what must come out of a round.

The releases are PostgreSQL's own catalog, reduced to nine objects with every kind of change that
15 -> 16 makes: four tables whose rows are copied (one of them empty), views that change, that
follow their parents, that are new, and tables that nothing touches. So a round takes seconds.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from catalog_migrate.bootstrap import BootstrapReport

FIXTURES = Path(__file__).parents[2] / "fixtures" / "postgres_catalog"
CHILD = Path(__file__).with_name("killed_upgrade.py")
CHILD_SECONDS = 600.0
GROUP_SECONDS = 60.0

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
class Loaded:
    """The catalog in ``home``, how it was when it was loaded, and what an upgrade leaves.

    Paths inside a catalog are absolute, so a round restores ``home`` in place.
    """

    spark: SparkSession
    home: Path
    pristine: Path
    rows: Path
    releases: dict[str, Path]
    columns: dict[str, dict[str, list[dict[str, Any]]]]
    calls_file: Path
    calls: list[tuple[str, int]] = field(default_factory=list)
    expected: dict[str, Any] = field(default_factory=dict)

    @property
    def catalog(self) -> Path:
        """The catalog's directory."""
        return self.home / "catalog"

    def restore(self) -> None:
        """Release 15 with its rows again, and nothing of it in this session's memory."""
        self.forget()
        shutil.rmtree(self.home, ignore_errors=True)
        shutil.copytree(self.pristine, self.home)

    def forget(self) -> None:
        """Take all names and cached snapshots of the catalog out of this session."""
        for schema in SCHEMAS:
            self.spark.sql(f"DROP SCHEMA IF EXISTS `{schema}` CASCADE")
        self.spark.catalog.clearCache()
        jvm: Any = self.spark._jvm
        jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()

    def command(self) -> list[str]:
        """The command of an upgrade to 16 in a process of its own."""
        return [
            sys.executable,
            str(CHILD),
            str(self.catalog),
            str(self.releases["16"]),
            str(self.home / "spark"),
            str(self.calls_file),
        ]

    def upgrade_in_child(self) -> str:
        """Let a process upgrade to the end; what it printed."""
        done = subprocess.run(
            self.command(), capture_output=True, text=True, timeout=CHILD_SECONDS, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def kill_child_at(self, label: str, number: int, moment: str) -> None:
        """Let a process upgrade until it kills itself at one call; returns when all of it is gone.

        ``moment`` is ``before``, ``during`` or ``after``. How often the lease is renewed depends
        on the time that all takes: a renewal may not come, then the upgrade goes through.
        """
        with subprocess.Popen(
            [*self.command(), label, str(number), moment],
            start_new_session=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            _, said = process.communicate(timeout=CHILD_SECONDS)
        if label == "renew" and process.returncode == 0:
            return
        assert process.returncode == -signal.SIGKILL, said
        wait_for_group(process.pid)

    def bootstrap(self, release: str) -> BootstrapReport:
        """Start the software of ``release`` in this process; it waits for nobody."""
        from catalog_migrate.bootstrap import bootstrap

        phases: list[str] = []
        report = bootstrap(
            self.spark,
            release=self.releases[release],
            catalog=self.catalog,
            session=False,  # else this process would keep the killed ones from acting in place
            on_progress=lambda progress: phases.append(progress.phase),
        )
        assert "wait for the lease" not in phases, "the killed holder was not proven dead"
        return report

    def expected_rows(self) -> dict[str, DataFrame]:
        """What release 16 must show of each loaded table: release 15's rows through ``USING``."""
        from pyspark.sql import functions as f

        frames = {}
        for file in sorted(self.rows.glob("*.parquet")):
            old = self.spark.read.parquet(str(file))
            frames[file.stem] = old.select(
                *[
                    (
                        f.expr(column.get("using") or f"`{column['name']}`")
                        if "using" in column or column["name"] in old.columns
                        else f.lit(None)
                    )
                    .cast(column["type"])
                    .alias(column["name"])
                    for column in self.columns["16"][file.stem]
                ]
            )
        return frames

    def verify(self) -> None:
        """The world is exactly what an upgrade that nobody disturbed leaves."""
        assert committed(self.catalog) == self.expected["committed"]
        assert world(self) == self.expected["world"]
        verify_disk(self)

    def finish_and_verify(self) -> BootstrapReport:
        """Start release 16 here after a kill, and compare everything with the expectation."""
        from catalog_migrate.api import Catalog

        report = self.bootstrap("16")
        assert report.outcome in {"migrated", "resumed", "unchanged"}
        catalog = Catalog.open(self.catalog)
        assert catalog.status().pending == 0
        assert catalog.plan(self.releases["16"]).is_empty
        self.verify()
        again = self.bootstrap("16")
        assert (again.outcome, again.names, again.rows_copied) == ("unchanged", 0, 0)
        return report


def wait_for_group(group: int) -> None:
    """Return when no process of a killed group is left: the JVM may take a moment to go."""
    deadline = time.monotonic() + GROUP_SECONDS
    while time.monotonic() < deadline:
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return
        time.sleep(0.05)
    raise AssertionError(f"process group {group} outlives SIGKILL")


def committed(catalog: Path) -> dict[str, Any]:
    """The catalog's state without what may differ: paths of shards, versions, epochs, times."""
    from catalog_migrate.catalog.store import open_log, read_state

    state = read_state(open_log(str(catalog)))
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
        "holders": {key: lease.holder for key, lease in state.leases.items()},
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


def world(loaded: Loaded) -> dict[str, Any]:
    """Every name of the release as this session sees it: its columns, and its rows' digest."""
    frames = {name: loaded.spark.table(name) for name in loaded.columns["16"]}
    return {
        "columns": {name: frame.dtypes for name, frame in frames.items()},
        "rows": digests(frames),
    }


def verify_disk(loaded: Loaded) -> None:
    """Directories of shards are the catalog's, and those that were replaced are sealed."""
    from catalog_migrate.catalog.store import open_log, read_state
    from catalog_migrate.engine.spark.engine import SparkEngine

    state = read_state(open_log(str(loaded.catalog)))
    warehouse = Path(state.config["warehouse"].value)
    engine = SparkEngine(loaded.spark)
    kept = {path for path, record in state.shards.items() if record.state != "gone"}
    assert {record.state for record in state.shards.values()} <= {"live", "retired", "gone"}
    found = {
        str(place.relative_to(warehouse)) for place in warehouse.glob("*/*/*") if place.is_dir()
    }
    assert found == kept
    assert {
        str(Path(path).relative_to(warehouse)) for path in engine.list_shards(str(warehouse))
    } == kept
    sealed = {path: engine.is_sealed(str(warehouse / path)) for path in kept}
    assert sealed == {path: state.shards[path].state == "retired" for path in kept}


@pytest.fixture(scope="session")
def series(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Loaded:
    """The reduced catalog at release 15 with its rows, made once."""
    from catalog_migrate.demo import load_rows

    base = tmp_path_factory.mktemp("crash")
    releases, columns = {}, {}
    for name in ("15", "16"):
        releases[name] = base / f"{name}.json"
        manifest = reduced(FIXTURES / f"{name}.json", releases[name])
        columns[name] = {
            f"{entry['schema']}.{entry['name']}": entry["columns"] for entry in manifest["objects"]
        }
    rows = base / "rows"
    rows.mkdir()
    for file in sorted((FIXTURES / "rows_15").glob("*.parquet")):
        if file.stem in columns["15"]:
            shutil.copy(file, rows)
    loaded = Loaded(
        spark=spark,
        home=base / "home",
        pristine=base / "pristine",
        rows=rows,
        releases=releases,
        columns=columns,
        calls_file=base / "calls.json",
    )
    loaded.home.mkdir()
    loaded.forget()
    assert loaded.bootstrap("15").outcome == "initialized"
    load_rows(spark, rows)
    loaded.forget()
    shutil.copytree(loaded.home, loaded.pristine)
    return loaded


@pytest.fixture(scope="session")
def undisturbed(series: Loaded) -> Loaded:
    """The same with the calls of an upgrade that nobody disturbs, and what it leaves."""
    series.restore()
    assert series.upgrade_in_child().startswith("migrated ")
    series.calls = [
        (label, number) for label, number, _ in json.loads(series.calls_file.read_text())
    ]
    assert series.bootstrap("16").outcome == "unchanged"
    series.expected = {"committed": committed(series.catalog), "world": world(series)}
    verify_disk(series)
    return series


@pytest.fixture
def upgrade(undisturbed: Loaded) -> Iterator[Loaded]:
    """Release 15 with its rows, ready for a round; no name is left in the session afterwards."""
    undisturbed.restore()
    yield undisturbed
    undisturbed.forget()
