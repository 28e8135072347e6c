"""Spark and delta-rs append to one table on an object store at the same time: nothing is lost."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from catalog_migrate.hook import bootstrap
from catalog_migrate.release.loader import load_texts
from tests.engine.spark.appends import (
    append_by_delta_rs,
    append_by_spark,
    located,
    make_table,
    rows_of,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.services.object_store import ObjectStore

pytestmark = [pytest.mark.spark]

ROOT = Path(__file__).parents[3]
PATIENCE = 900.0


def test_threads_of_one_session(
    spark_on_s3: SparkSession, object_store: ObjectStore, bucket: str
) -> None:
    """Two threads of Spark and one of delta-rs: what each was told is done is in the table."""
    options = dict(object_store.options)
    make_table(f"{bucket}/t", options)
    failures: list[BaseException] = []
    writing = [True, True]

    def by_spark(writer: int) -> None:
        try:
            for number in range(2):
                append_by_spark(spark_on_s3, f"{bucket}/t", writer, number)
        finally:
            writing.pop()

    def by_delta_rs(writer: int) -> None:
        while writing:
            append_by_delta_rs(f"{bucket}/t", writer, len(told), options)
            told.append((writer, len(told)))
            time.sleep(0.5)  # Spark is slower, and would win no version

    def run(what: Callable[[int], None], writer: int) -> None:
        try:
            what(writer)
        except BaseException as error:  # noqa: BLE001 - raised by the test
            failures.append(error)

    told: list[tuple[int, int]] = []
    threads = [
        threading.Thread(target=run, args=each)
        for each in ((by_spark, 0), (by_spark, 1), (by_delta_rs, 2))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert len(told) > 2
    assert rows_of(f"{bucket}/t", options) == [(0, 0), (0, 1), (1, 0), (1, 1), *told]


@pytest.mark.soak
def test_processes(
    object_store: ObjectStore, bucket: str, tmp_path: Path,
    record_property: Callable[[str, object], None],
) -> None:
    """Two Spark and two delta-rs processes with 25 commits each: 100 of 100, none twice.

    They find the store, and their login, in the environment.
    """
    address = f"{bucket}/t"
    make_table(address, dict(object_store.options))
    told = _race(object_store, address, 25, tmp_path)
    found = rows_of(address, dict(object_store.options))
    done = [(w, n) for w, each in enumerate(told) for n, said in enumerate(each) if said == "done"]
    record_property("rows", len(found))
    record_property("lost", len(set(done) - set(found)))
    record_property("doubled", len(found) - len(set(found)))
    assert told == [["done"] * 25] * 4
    assert found == done


@pytest.mark.soak
def test_processes_and_migrations(
    spark_on_s3: SparkSession, object_store: ObjectStore, bucket: str, schema_name: str,
    tmp_path: Path, record_property: Callable[[str, object], None],
) -> None:
    """The same writers while four releases copy the table: each row that was told done, once.

    An append to a sealed table is refused, and its writer looks the table up again.
    """
    name = f"{schema_name}.t"
    releases = 0

    def migrate(note: str) -> str:
        nonlocal releases
        releases += 1
        text = f"CREATE TABLE {name} (writer BIGINT, number BIGINT, note {note});"
        return bootstrap(
            spark_on_s3, release=load_texts([("a.sql", text)], name=str(releases)),
            catalog=f"{bucket}/catalog", warehouse=f"{bucket}/w",
            storage_options=object_store.options,
        ).outcome

    def migrations() -> None:
        for kind in ("INT", "STRING", "BIGINT", "DECIMAL(20, 0)"):
            time.sleep(5.0)
            outcomes.append(migrate(f"{kind} USING CAST(note AS {kind})"))

    outcomes = [migrate("STRING")]
    told = _race(object_store, f"{bucket}/catalog#{name}", 25, tmp_path, migrations)
    where = located(f"{bucket}/catalog#{name}", dict(object_store.options))()
    found = rows_of(where, dict(object_store.options))
    done = [(w, n) for w, each in enumerate(told) for n, said in enumerate(each) if said == "done"]
    record_property("rows", len(found))
    record_property("lost", len(set(done) - set(found)))
    record_property("doubled", len(found) - len(set(found)))
    assert outcomes == ["initialized"] + ["migrated"] * 4
    assert told == [["done"] * 25] * 4
    assert found == done
    spark_on_s3.sql(f"DROP DATABASE `{schema_name}` CASCADE")


@pytest.mark.soak
def test_two_drivers_on_one_checkpoint(
    object_store: ObjectStore, bucket: str, tmp_path: Path,
    record_property: Callable[[str, object], None],
) -> None:
    """The second driver of a query, or the first, ends; no batch but one was executed twice."""
    options = dict(object_store.options)
    make_table(f"{bucket}/source", options)
    for number in range(20):
        append_by_delta_rs(f"{bucket}/source", 0, number, options)
    drivers = [_process(object_store, "driver", bucket, tmp_path, 0)]
    try:
        _wait(lambda: len(_batches(tmp_path, 0)) > 2)
        drivers.append(_process(object_store, "driver", bucket, tmp_path, 1))
        for number in range(20, 60):  # until the second one is there, and after that
            append_by_delta_rs(f"{bucket}/source", 0, number, options)
            time.sleep(1.0)
            if any(driver.poll() is not None for driver in drivers):
                break
        _wait(lambda: any(driver.poll() is not None for driver in drivers))
        wanted = {number for _, number in rows_of(f"{bucket}/source", options)}

        def executed() -> list[tuple[int, list[int]]]:
            return [*_batches(tmp_path, 0), *_batches(tmp_path, 1)]

        _wait(lambda: {number for _, rows in executed() for number in rows} == wanted)
        (tmp_path / "stop").touch()
        said = sorted(driver.communicate(timeout=PATIENCE)[0].strip() for driver in drivers)
    finally:
        for driver in drivers:
            driver.kill()
            driver.wait()
    record_property("rows", len(wanted))
    assert "CONCURRENT_STREAM_LOG_UPDATE" in said[0]
    assert said[1] == "stopped"
    batches = executed()
    assert len(batches) - len({batch for batch, _ in batches}) <= 1
    by_number = dict(batches)
    assert all(by_number[batch] == rows for batch, rows in batches)
    assert sorted(number for rows in by_number.values() for number in rows) == sorted(wanted)


def _race(
    store: ObjectStore, address: str, count: int, place: Path,
    meanwhile: Callable[[], None] = lambda: None,
) -> list[list[str]]:
    """What two Spark and two delta-rs processes were told of ``count`` appends each."""
    kinds = ("spark", "spark", "delta-rs", "delta-rs")
    processes = [
        _process(store, "appends", kind, address, number, count, place)
        for number, kind in enumerate(kinds)
    ]
    try:
        deadline = time.monotonic() + PATIENCE
        while len(list(place.glob("ready-*"))) < len(kinds):
            assert all(process.poll() is None for process in processes), "a writer has ended"
            assert time.monotonic() < deadline
            time.sleep(0.1)
        (place / "go").touch()
        meanwhile()
        return [json.loads(process.communicate(timeout=PATIENCE)[0]) for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.wait()


def _process(store: ObjectStore, module: str, *arguments: object) -> subprocess.Popen[str]:
    """A module of the tests as a process, which finds store and login in its environment."""
    return subprocess.Popen(
        [sys.executable, "-m", f"tests.engine.spark.{module}", *map(str, arguments)],
        env={
            **os.environ, **{name.upper(): value for name, value in store.options.items()},
            "PYTHONPATH": str(ROOT),
        },
        cwd=ROOT, stdout=subprocess.PIPE, text=True,
    )


def _batches(place: Path, driver: int) -> list[tuple[int, list[int]]]:
    file = place / f"batches-{driver}"
    return [tuple(json.loads(line)) for line in file.open()] if file.exists() else []


def _wait(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.2)
