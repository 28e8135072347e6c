"""The demonstration: a real catalog of 208 objects and 20,817 rows, upgraded twice, killed once.

:func:`run` tells it in one screen. Two processes do what an operator's software does, one after the
other, each with a Spark session of its own; the first is killed with SIGKILL in the middle of an
upgrade. What needs no Spark is done by the process that tells: plans, the report, loading the rows
and comparing them in the end.
"""

from __future__ import annotations

import fcntl
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from datetime import datetime, timezone
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import msgspec

from catalog_migrate.errors import CatalogMigrateError, PrerequisiteMissing
from catalog_migrate.model.wording import counted
from catalog_migrate.store import is_seen

if TYPE_CHECKING:
    from pyarrow import Table

    from catalog_migrate.api import Catalog
    from catalog_migrate.model.objects import ObjectDefinition
    from catalog_migrate.model.progress import Progress
    from catalog_migrate.planner.plan import Plan

KILL_AT = ("copy rows", 2)
"""The first process is killed when it has done this many steps of this phase."""

ON_S3 = "s3://demo"
"""The address for which the S3 server of the tests is started."""

SHORT_RUN = {
    "spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
"""Settings of Spark for queries that run once on some thousand rows: to generate and compile Java
for each takes longer than to interpret it."""

WIDTH = 100
"""Columns of a line at most."""

ROOT = Path(__file__).resolve().parents[1]
"""The checkout."""


class DemoFailed(CatalogMigrateError, RuntimeError):
    """A step of the demonstration failed."""

    code = "CM0900"


def run(directory: Path | None = None, *, warehouse: str | None = None) -> None:
    """Tell the whole story on stdout; catalog and report are left in ``directory``.

    By default that is ``build/demo`` of the checkout, where the one before makes way. ``warehouse``
    is an address on S3 for catalog and rows, which the variables ``AWS_…`` reach: with
    ``s3://demo`` those of the S3 server of the tests, which is started for it.
    """
    with ExitStack() as stack:
        home = stack.enter_context(_own_directory()) if directory is None else directory.absolute()
        scratch = Path(stack.enter_context(
            TemporaryDirectory(prefix="demo-", ignore_cleanup_errors=True)
        ))
        if warehouse == ON_S3:
            stack.enter_context(_object_store(scratch))
        place = str(home) if warehouse is None else warehouse
        catalog = f"{place}/catalog"
        if is_seen(catalog):
            raise DemoFailed(f"{catalog} exists", remedy="name an empty directory")
        try:
            _tell(Place(catalog, f"{place}/rows", home, scratch, passes=warehouse == ON_S3))
        except KeyboardInterrupt:
            if directory is None:
                shutil.rmtree(home, ignore_errors=True)
                left, where = "its catalog is removed", ""
            else:
                left, where = f"its catalog is left at {home}", " in an empty directory"
            raise KeyboardInterrupt(
                f"interrupted: the demonstration ends here, {left};"
                f" run it again to start over{where}"
            ) from None


@contextmanager
def _own_directory() -> Iterator[Path]:
    """``build/demo`` of the checkout, emptied, and ours until the end."""
    build = ROOT / "build"
    build.mkdir(exist_ok=True)
    handle = os.open(build, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(build / "demo", ignore_errors=True)
        yield build / "demo"
    except BlockingIOError:
        raise DemoFailed(
            f"another demonstration runs in {build / 'demo'}",
            remedy="wait for its end, or name another place: --directory DIR",
        ) from None
    finally:
        os.close(handle)


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


def fixtures() -> Path:
    """The PostgreSQL catalog series; PrerequisiteMissing outside a checkout."""
    place = ROOT / "fixtures" / "postgres_catalog"
    if not place.is_dir():
        raise PrerequisiteMissing(
            f"the demonstration's data is not at {place}",
            remedy="run the demonstration from a checkout: `make demo`",
        )
    return place


# -- the story -------------------------------------------------------------------------------------


class Place(msgspec.Struct, frozen=True):
    """Where everything lies: addresses of catalog and rows, directories for what stays and goes.

    ``passes`` where catalog and rows end with the demonstration.
    """

    catalog: str
    rows: str
    home: Path
    scratch: Path
    passes: bool = False


def _tell(place: Place) -> None:
    from catalog_migrate.api import Catalog

    releases = {name: fixtures() / f"{name}.json" for name in ("15", "16", "18")}
    screen = Screen()
    began = time.monotonic()
    screen.say(
        "PostgreSQL's own system catalog, 208 tables and views with the rows of a real server, is\n"
        "upgraded from release 15 to 16 to 18, in about a minute.\n"
    )
    _require_java(place, screen)

    screen.chapter("A process of the software starts for the first time: release 15")
    with Software(place, screen) as first:
        first.start(releases["15"])
        catalog = Catalog.open(place.catalog)
        screen.figure(f"{_objects(catalog)} created")
        tables, rows = load_rows(catalog, fixtures() / "rows_15")
        screen.figure(f"{rows:,} rows of the server loaded into {tables} tables")

        screen.chapter("What would release 16 do? A plan needs no Spark and changes nothing")
        screen.figure(_verdict(catalog.plan(releases["16"])))

        screen.chapter("The process starts with release 16, and is killed while it copies rows")
        reached = first.start(releases["16"], kill_at=KILL_AT)
        screen.figure(
            f"kill -9 {first.process.pid} after {reached['done']} of {reached['total']} tables;"
            f" {_in_force(catalog)}"
        )

    screen.chapter("Another process starts with release 16: it cleans up, and upgrades")
    with Software(place, screen) as second:
        screen.figure(_done(second.start(releases["16"])))

        screen.chapter("What would release 18 do? This plan is the report, too")
        plan = catalog.plan(releases["18"])
        report = _save_report(plan, place.home)
        screen.figure(_verdict(plan))

        screen.chapter("The process starts with release 18")
        screen.figure(_done(second.start(releases["18"])))

    screen.chapter("Are all rows there? Each is compared with the server's, column by column")
    tables, rows, left_out = compare_rows(catalog, fixtures() / "rows_15")
    screen.figure(
        f"{rows:,} rows of {tables} tables are equal, without {', '.join(left_out)}, which 18 drops"
    )
    seconds = time.monotonic() - began
    screen.say(f"\nDone in {seconds:.0f} s: {_in_force(catalog)}, no row is lost.\n")
    _say_what_next(place, report, screen)


def _say_what_next(place: Place, report: Path, screen: Screen) -> None:
    command = "catalog-migrate"
    if shutil.which(command) is None:
        command = os.path.relpath(Path(sys.executable).with_name(command))
    screen.say("report of 16 to 18, object by object, for a browser:")
    screen.say(f"    {_near(report)}")
    if not place.passes:
        screen.say("the catalog is left there to look at:")
        where = shlex.quote(_near(place.catalog))
        for verb in ("history", "show pg_catalog.pg_attribute"):
            screen.say(f"    {command} {verb} --catalog {where}")
    screen.say("your own release, in five minutes: README.md")


def _near(place: str | Path) -> str:
    """A path below the working directory as one types it."""
    with suppress(ValueError):
        return str(Path(place).relative_to(Path.cwd()))
    return str(place)


def _objects(catalog: Catalog) -> str:
    items = catalog.state().items.values()
    kinds = Counter(item.definition.kind for item in items if item.owner != "system")
    return f"{counted(kinds['table'], 'table')} and {counted(kinds['view'], 'view')}"


def _verdict(plan: Plan) -> str:
    from catalog_migrate.report.verdict import verdict

    return verdict(plan).line


def _in_force(catalog: Catalog) -> str:
    status = catalog.status()
    work = f"; on record: {', '.join(status.work)}" if status.work else ""
    return f"release {status.release} is in force, serial {status.serial}{work}"


def _done(report: Mapping[str, Any]) -> str:
    return (
        f"{report['outcome']}: release {report['release']} is in force, serial {report['serial']};"
        f" {report['rows_copied']:,} rows copied, {report['steps']:,} steps"
    )


def _save_report(plan: Plan, home: Path) -> Path:
    from catalog_migrate.report import render

    home.mkdir(parents=True, exist_ok=True)
    report = home / "report.html"
    report.write_text(render(plan, "html", at=datetime.now(timezone.utc)), encoding="utf-8")
    return report


def _require_java(place: Place, screen: Screen) -> None:
    """What every process needs, before the first one: Java, and jars, which are fetched once."""
    from catalog_migrate.engine.spark.jars import check_java
    from catalog_migrate.engine.spark.session import session_jars

    check_java()
    session_jars([place.catalog], screen.say, kafka=False)


class Screen:
    """Lines on stdout, and on a terminal one more that passes."""

    def __init__(self) -> None:
        self._since = time.monotonic()
        self._chapter = 0
        self._columns = 0
        if sys.stdout.isatty():
            self._columns = min(WIDTH, shutil.get_terminal_size().columns) - 1

    def say(self, line: str) -> None:
        """A line as it is: a path or a command stays whole."""
        self._write(f"{line}\n")

    def chapter(self, title: str) -> None:
        self._chapter += 1
        self._since = time.monotonic()
        self.say(f"{self._chapter}. {title}")

    def figure(self, text: str) -> None:
        """What came of it, behind the seconds since the chapter or the figure before."""
        now = time.monotonic()
        seconds, self._since = f"{now - self._since:7.1f} s  ", now
        self._write(textwrap.fill(
            text, WIDTH, initial_indent=seconds, subsequent_indent=" " * len(seconds),
            break_on_hyphens=False,
        ) + "\n")

    def passing(self, text: str) -> None:
        """Where it is, until the next line takes its place."""
        if self._columns:
            self._write(f"           {text}"[: self._columns])

    def _write(self, text: str) -> None:
        sys.stdout.write(f"\r\x1b[K{text}" if self._columns else text)
        sys.stdout.flush()


# -- the processes that have a Spark ---------------------------------------------------------------


def command(place: Place) -> list[str]:
    """What starts a process of the software."""
    scratch = str(place.scratch)
    return [sys.executable, "-m", "examples.demo", place.catalog, place.rows, scratch]


class Software:
    """A process of the software with its own Spark session; with its JVM it ends in the end."""

    def __init__(self, place: Place, screen: Screen) -> None:
        self._place = place
        self._screen = screen

    def __enter__(self) -> Software:
        scratch = str(self._place.scratch)
        env = {**os.environ, "TMPDIR": scratch, "SPARK_LOCAL_DIRS": scratch}
        env["SPARK_SUBMIT_OPTS"] = " ".join(
            filter(None, (env.get("SPARK_SUBMIT_OPTS"), f"-Djava.io.tmpdir={shlex.quote(scratch)}"))
        )
        # in a session of its own: SIGKILL reaches its JVM too, Ctrl-C the process that tells alone
        self.process = subprocess.Popen(
            command(self._place), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            env=env, start_new_session=True, cwd=ROOT,
        )
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            with suppress(BrokenPipeError):
                pipe.close()

    def kill(self) -> None:
        """SIGKILL for the process and its JVM."""
        with suppress(ProcessLookupError):  # killed before
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def start(
        self, release: Path, *, kill_at: tuple[str, int] | None = None
    ) -> Mapping[str, Any]:
        """Have it start with a release; what came of it, or the step that it was killed at.

        DemoFailed with what it said when it ends before.
        """
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        with suppress(BrokenPipeError):  # it has ended; what it said is read below
            self.process.stdin.write(json.dumps([str(release), kill_at]) + "\n")
            self.process.stdin.flush()
        self._screen.passing("Spark")
        for line in self.process.stdout:
            message: dict[str, Any] = json.loads(line)
            if "failed" in message:
                raise DemoFailed(message["failed"], remedy=message["remedy"])
            if "outcome" in message:
                return message
            if kill_at is not None and (message["phase"], message["done"]) == kill_at:
                self.kill()
                return message
            self._screen.passing("{phase} {done}/{total} {name}".format_map(message))
        raise DemoFailed(
            f"a process of the software ended with {self.process.wait()}",
            remedy="its messages above say why",
        )


def _main(catalog: str, rows: str, scratch: str) -> None:
    """The process of the software: a line of stdin names a release to start with.

    It answers by lines of JSON: each step, and what came of the start.
    """
    from catalog_migrate.engine.spark.session import local_session
    from catalog_migrate.hook import bootstrap

    try:
        spark = local_session(
            warehouse_dir=f"{scratch}/spark-warehouse", addresses=[catalog], kafka=False,
            conf=SHORT_RUN,
        )
        for line in sys.stdin:
            release, hold_at = json.loads(line)
            report = bootstrap(
                spark, release=release, catalog=catalog, warehouse=rows,
                on_progress=_Steps(hold_at),
            )
            _answer({
                "outcome": report.outcome, "release": report.release, "serial": report.serial,
                "rows_copied": report.rows_copied, "steps": len(report.executed),
            })
    except CatalogMigrateError as error:
        _answer({"failed": error.message, "remedy": error.remedy})


class _Steps:
    """Answers each step, and stands still at one of them until the process is killed."""

    def __init__(self, hold_at: list[Any] | None) -> None:
        self._hold_at = hold_at

    def __call__(self, progress: Progress) -> None:
        _answer(msgspec.structs.asdict(progress))
        if self._hold_at == [progress.phase, progress.done]:
            sys.stdin.read()


def _answer(message: Mapping[str, Any]) -> None:
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


# -- rows ------------------------------------------------------------------------------------------


def load_rows(catalog: Catalog, rows: Path) -> tuple[int, int]:
    """Append each parquet file to the table of its name, by delta-rs; (tables, rows)."""
    from deltalake import write_deltalake

    counts = []
    for location, _, table in _tables(catalog, rows):
        write_deltalake(location, table, mode="append")
        counts.append(table.num_rows)
    return len(counts), sum(counts)


def compare_rows(catalog: Catalog, rows: Path) -> tuple[int, int, list[str]]:
    """Compare each table with its parquet file, read by delta-rs: the same rows in any order.

    A column that was renamed since is read under its new name, one that was dropped is left out.
    (tables, rows, the columns left out). DemoFailed names a table that differs.
    """
    import pyarrow
    from deltalake import DeltaTable, QueryBuilder

    counts, left_out = [], []
    for location, definition, table in _tables(catalog, rows):
        query = QueryBuilder().register("t", DeltaTable(location))
        now = pyarrow.table(query.execute("SELECT * FROM t").read_all())
        renamed = {old: new.name for new in definition.columns for old in new.earlier_names}
        columns = [name for name in table.schema.names if name not in definition.dropped]
        before = _multiset(table, columns)
        after = _multiset(now, [renamed.get(name, name) for name in columns])
        if before != after:
            raise DemoFailed(
                f"{definition.key} differs: {counted((before - after).total(), 'row')} missing or"
                f" changed, {counted((after - before).total(), 'row')} more",
                remedy="please report this",
            )
        counts.append(table.num_rows)
        left_out += [f"{definition.name}.{name}" for name in definition.dropped]
    return len(counts), sum(counts), left_out


def _multiset(table: Table, columns: list[str]) -> Counter[str]:
    """How often each row is there. A number equals itself in a narrower type."""
    return Counter(map(repr, zip(*(table[name].to_pylist() for name in columns), strict=True)))


def _tables(catalog: Catalog, rows: Path) -> Iterator[tuple[str, ObjectDefinition, Table]]:
    """For each parquet file the table of its name, where its rows are, and those in the file."""
    import pyarrow.parquet

    items = catalog.state().items.values()
    definitions = {str(item.definition.key): item.definition for item in items}
    for file in sorted(rows.glob("*.parquet")):
        location = catalog.show(file.stem)["location"]
        yield location, definitions[file.stem], pyarrow.parquet.read_table(file)


if __name__ == "__main__":
    _main(*sys.argv[1:])
