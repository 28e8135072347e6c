"""The demonstration: a real catalog of 208 objects and 20,817 rows, upgraded twice, killed once.

``run`` starts one process a step, each with a Spark session of its own, as an operator's software
would; the one that is killed with SIGKILL is a real process.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

from catalog_migrate.errors import CatalogMigrateError, PrerequisiteMissing
from catalog_migrate.store import is_seen

KILL_AT = ("copy rows", 3)
"""The killed process dies once it has reported this many steps of this phase."""

PLAN_LINES = 20
"""How much of a plan is shown: its verdict, the first changes."""

THREADS = 4
"""How many tables are filled, or compared, at once: most of the time each waits for Spark."""


INTERRUPTED = (130, -signal.SIGINT)
"""Exit codes of a step's process after Ctrl-C, with and without a handler of the signal."""


class DemoFailed(CatalogMigrateError, RuntimeError):
    """A step of the demonstration failed."""

    code = "CM0900"


def fixtures() -> Path:
    """The PostgreSQL catalog series; PrerequisiteMissing outside a checkout."""
    place = Path(__file__).resolve().parents[1] / "fixtures" / "postgres_catalog"
    if not place.is_dir():
        raise PrerequisiteMissing(
            f"the demonstration's data is not at {place}",
            remedy="run the demonstration from a checkout: `make demo`",
        )
    return place


ON_S3 = "s3://demo"
"""The address for which the S3 server of the tests is started."""
WAREHOUSE = "DEMO_WAREHOUSE"
"""The variable that tells a step's process the address on S3."""


def run(
    directory: Path | None = None, *, keep: bool = False, warehouse: str | None = None
) -> None:
    """Run all steps below ``directory`` (a temporary one by default).

    ``warehouse`` is an address on S3 for catalog and rows, which the variables ``AWS_…`` reach:
    with ``s3://demo`` those of the S3 server of the tests, which is started for it.
    """
    workspace = Path(directory) if directory is not None else Path(tempfile.mkdtemp(prefix="demo-"))
    workspace.mkdir(parents=True, exist_ok=True)
    try:
        with _object_store(workspace) if warehouse == ON_S3 else nullcontext():
            if warehouse is not None:
                os.environ[WAREHOUSE] = warehouse
            _run(workspace, keep or directory is not None)
    finally:
        if directory is None and not keep:
            shutil.rmtree(workspace, ignore_errors=True)


@contextmanager
def _object_store(home: Path) -> Iterator[None]:
    """An S3 server on this machine with the bucket ``demo``, which the variables then reach."""
    try:
        from tests.services.object_store import ObjectStore
    except ImportError as error:
        raise PrerequisiteMissing(
            f"{ON_S3} is on the S3 server of the tests, which is not here",
            remedy="run it from a checkout: `make demo WAREHOUSE=s3://demo`",
        ) from error
    with ObjectStore(home) as store:
        store.bucket(ON_S3.removeprefix("s3://"))
        os.environ.update({name.upper(): value for name, value in store.options.items()})
        yield


def _run(workspace: Path, keep: bool) -> None:
    source = fixtures()
    catalog = _catalog(workspace)
    if is_seen(catalog):
        raise DemoFailed(f"{catalog} exists", remedy="name an empty directory")
    _say("This takes up to five minutes on two cores, and fetches the jars that it uses once.")
    began = time.monotonic()
    try:
        _heading(1, 6, "PostgreSQL 15's own catalog: 208 tables and views, with its real rows")
        _step("load", workspace)
        _heading(2, 6, "What would the upgrade to 16 do? (nothing is written, no Spark)")
        _report(source / "16.json", catalog)
        _heading(3, 6, "Upgrade to 16, and kill -9 it in the middle of copying rows")
        _kill_in_the_middle(workspace)
        _status(catalog)
        _heading(4, 6, "Run it again: the attempt is cleaned up, the upgrade is completed")
        _step("16", workspace)
        _heading(5, 6, "What would the upgrade to 18 do?")
        _report(source / "18.json", catalog)
        _heading(6, 6, "Upgrade to 18, then compare every row of every table with release 15's")
        _step("18", workspace)
        _status(catalog)
        _say(f"\nDone in {time.monotonic() - began:.0f} s. Every row is there.")
        if keep:
            _say(f"The catalog is at {catalog}; try: catalog-migrate status --catalog {catalog}")
    except KeyboardInterrupt:
        what = f"its catalog is left at {workspace}" if keep else "its catalog is removed"
        raise KeyboardInterrupt(
            f"interrupted: the demonstration ends here, {what}; run it again to begin anew"
            + (" in an empty directory" if keep else "")
        ) from None


def _catalog(workspace: Path) -> str:
    warehouse = os.environ.get(WAREHOUSE)
    return str(workspace / "catalog") if warehouse is None else f"{warehouse}/catalog"


def _say(text: str) -> None:
    print(text, flush=True)


def _heading(number: int, total: int, title: str) -> None:
    _say(f"\n[{number}/{total}] {title}")


def _command(workspace: Path, step: str) -> list[str]:
    return [sys.executable, "-m", "examples.demo", step, str(workspace)]


def _step(step: str, workspace: Path) -> None:
    result = subprocess.run(_command(workspace, step), check=False)
    if result.returncode in INTERRUPTED:  # Ctrl-C, which the step alone may have got
        raise KeyboardInterrupt
    if result.returncode != 0:
        raise DemoFailed(
            f"step {step} ended with {result.returncode}",
            remedy="its messages above say why",
        )


def _kill_in_the_middle(workspace: Path) -> None:
    phase, count = KILL_AT
    with subprocess.Popen(
        _command(workspace, "16"), stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        assert process.stdout is not None
        try:
            for line in process.stdout:
                _say("    " + line.rstrip())
                if line.strip().startswith(f"{phase} {count}/"):
                    _kill(process)
                    _say(f"    kill -9 {process.pid}")
                    return
        except BaseException:
            _kill(process)  # it is in a session of its own, where no Ctrl-C comes
            raise
    raise DemoFailed("the upgrade ended before it could be killed", remedy="run it again")


def _kill(process: subprocess.Popen[str]) -> None:
    """SIGKILL for the process and its JVM, which is in its session."""
    with suppress(ProcessLookupError):  # it was killed before
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _report(manifest: Path, catalog: str) -> None:
    from catalog_migrate.api import Catalog
    from catalog_migrate.report import render

    lines = render(Catalog.open(catalog).plan(manifest), "text").splitlines()
    for line in lines[:PLAN_LINES]:
        _say("    " + line)
    _say(f"    … and {len(lines) - PLAN_LINES} lines more, which catalog-migrate plan prints")


def _status(catalog: str) -> None:
    from catalog_migrate.api import Catalog

    status = Catalog.open(catalog).status()
    _say(f"    in force: release {status.release}, serial {status.serial},"
         f" pending work: {status.pending}")
    for entry in status.work[:5]:
        _say(f"      - {entry}")


# -- the steps that need Spark, each in a process of its own --------------------------------------


def _step_main(step: str, workspace: Path) -> None:
    from catalog_migrate.engine.spark.session import local_session, silent_interrupts

    spark = local_session(
        warehouse_dir=str(workspace / "spark-warehouse"), addresses=[_catalog(workspace)],
        kafka=False, on_progress=_say,
    )
    with silent_interrupts():
        _upgrade(step, workspace, spark)
    spark.stop()


def _upgrade(step: str, workspace: Path, spark: Any) -> None:
    from catalog_migrate.hook import bootstrap

    release = "15" if step == "load" else step
    source, warehouse = fixtures(), os.environ.get(WAREHOUSE)
    began = time.monotonic()
    report = bootstrap(
        spark, release=source / f"{release}.json", catalog=_catalog(workspace),
        warehouse=None if warehouse is None else f"{warehouse}/rows", on_progress=_Lines(),
    )
    _say(f"{report.outcome}: release {report.release} is in force, serial {report.serial},"
         f" {report.rows_copied} rows copied, {time.monotonic() - began:.1f} s")
    if step == "load":
        tables, rows = load_rows(spark, source / "rows_15")
        _say(f"loaded {rows:,} rows into {tables} tables")
    if step == "18":
        tables, rows, left_out = verify_rows(spark, source / "rows_15")
        _say(f"compared {rows:,} rows of {tables} tables with release 15's: all equal")
        _say(f"(but for {len(left_out)} columns that were dropped or changed type since: "
             f"{', '.join(left_out[:3])}, …)")


class _Lines:
    """Progress as lines: the first and last step of a phase and every tenth of it."""

    def __init__(self) -> None:
        self.phase = ""

    def __call__(self, progress: Any) -> None:
        step = max(1, progress.total // 10)
        if progress.done in {1, progress.total} or progress.done % step == 0:
            _say(f"{progress.phase} {progress.done}/{progress.total} {progress.name}".rstrip())


def _row_files(rows: Path) -> Iterator[tuple[str, str, Path]]:
    for file in sorted(rows.glob("*.parquet")):
        schema, _, name = file.stem.partition(".")
        yield schema, name, file


def load_rows(spark: Any, rows: Path) -> tuple[int, int]:
    """Append each parquet file to the table of its name; (tables, rows)."""

    def load(row_file: tuple[str, str, Path]) -> int:
        schema, name, file = row_file
        frame = spark.read.parquet(str(file))
        frame.write.insertInto(f"`{schema}`.`{name}`")
        return int(frame.count())

    return _for_each_file(rows, load)


def verify_rows(spark: Any, rows: Path) -> tuple[int, int, list[str]]:
    """Compare each table with its parquet file over all columns that kept name and type.

    (tables, rows, the columns that did not, which are left out). Rows are compared as multisets
    (count and sum of xxhash64 over the columns). DemoFailed names the table that differs.
    """
    from pyspark.sql import functions as f

    left_out: list[str] = []

    def verify(row_file: tuple[str, str, Path]) -> int:
        schema, name, file = row_file
        old = spark.read.parquet(str(file))
        new = spark.table(f"`{schema}`.`{name}`")
        types = {field.name: field.dataType for field in new.schema}
        columns = [
            field.name for field in old.schema if types.get(field.name) == field.dataType
        ]
        left_out.extend(f"{name}.{c}" for c in old.schema.names if c not in columns)
        digests = []
        for frame in (old, new):
            hashed = frame.select(
                f.xxhash64(*[f.col(f"`{column}`") for column in columns]).alias("h")
            )
            digests.append(
                hashed.agg(
                    f.count("*"), f.sum(f.col("h").cast("decimal(38,0)"))
                ).collect()[0]
            )
        if tuple(digests[0]) != tuple(digests[1]):
            raise DemoFailed(f"{schema}.{name} differs: {digests[0]} became {digests[1]}")
        return int(digests[0][0])

    return *_for_each_file(rows, verify), sorted(left_out)


def _for_each_file(rows: Path, act: Callable[[tuple[str, str, Path]], int]) -> tuple[int, int]:
    """Run ``act`` on every file of rows, some at once; (files, sum of what it returns)."""
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(THREADS) as pool:
        counts = list(pool.map(act, _row_files(rows)))
    return len(counts), sum(counts)


if __name__ == "__main__":
    try:
        _step_main(sys.argv[1], Path(sys.argv[2]))
    except KeyboardInterrupt:  # the process that runs the steps says what is left
        sys.exit(INTERRUPTED[0])
