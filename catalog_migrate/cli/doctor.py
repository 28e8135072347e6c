"""``doctor``: tries everything the product needs, and says what to do about what fails."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from uuid import uuid4

import click

from catalog_migrate.cli.options import catalog_option, format_option, settings_of
from catalog_migrate.cli.output import as_json, emit, note
from catalog_migrate.cli.sources import engine_on, local_spark, open_catalog
from catalog_migrate.config import Settings
from catalog_migrate.errors import CatalogMigrateError, CatalogWriteRefused, CommitConflict


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing tried: whether it works, and what was found or went wrong."""

    name: str
    ok: bool
    text: str
    remedy: str | None = None


@click.command("doctor")
@catalog_option
@click.option("--no-spark", is_flag=True, help="Leave the Spark session out (10 s).")
@format_option("text", "json")
@click.pass_context
def command(ctx: click.Context, catalog: str | None, no_spark: bool, format_: str) -> int:
    """Try Java, jars, the catalog, its lease, commits against each other, and a Delta session.

    Exit 1 when anything fails.

    \b
    Example:
      catalog-migrate doctor --catalog catalog
    """
    settings = settings_of(ctx, catalog=catalog)
    trials: list[tuple[str, Callable[[], str]]] = [("java", _java), ("jars", _jars)]
    if settings.text("catalog.uri") is not None:
        trials += [
            ("catalog", lambda: _catalog(settings)), ("lease", lambda: _lease(settings)),
        ]
    trials.append(("commits", lambda: race(settings.text("catalog.uri"))))
    if not no_spark:
        trials.append(("spark", lambda: _spark(settings)))
    findings = [tried(name, trial) for name, trial in trials]
    if format_ == "json":
        emit(as_json([
            {"name": f.name, "ok": f.ok, "text": f.text, "remedy": f.remedy} for f in findings
        ]))
    else:
        for found in findings:
            emit(f"{'ok  ' if found.ok else 'FAIL'}  {found.name:<8} {found.text}\n")
            if found.remedy:
                emit(f"                remedy: {found.remedy}\n")
    return 0 if all(found.ok for found in findings) else 1


def tried(name: str, trial: Callable[[], str]) -> Finding:
    """The outcome of one trial; our errors become findings, anything else is a defect."""
    try:
        return Finding(name, True, trial())
    except CatalogMigrateError as error:
        return Finding(name, False, f"{error.code} {error.message}", error.remedy)


def race(uri: str | None) -> str:
    """Two commits at one version, in a scratch log beside the catalog's: exactly one must win.

    A store without compare-and-set (some network file systems) would let both through, and two
    processes could then migrate at once.
    """
    from catalog_migrate.catalog.log import LogRow
    from catalog_migrate.catalog.store import create_catalog, open_log

    with _scratch(uri) as place:
        first, second = open_log(place), open_log(place)
        create_catalog(first, warehouse=f"{place}/warehouse")
        version = first.version()
        wins = 0
        for number, log in enumerate((first, second)):
            row = LogRow("operation", f"doctor/{number}", '{"kind":"doctor","state":"tried"}', 1)
            try:
                log.append([row], follows=version, commit_id=uuid4().hex, metadata={})
            except CommitConflict:
                continue
            wins += 1
    if wins != 1:
        raise CatalogWriteRefused(
            f"two commits at one version in {place}: {wins} succeeded instead of one",
            remedy="keep the catalog on a store with put-if-absent, such as a local disk",
        )
    return "two commits raced for one version and one of them won"


@contextmanager
def _scratch(uri: str | None) -> Iterator[str]:
    """A directory of our own on the catalog's store, removed in the end."""
    if uri is not None and os.path.isdir(uri):
        place = os.path.join(uri, f"doctor-{uuid4().hex}")
    else:
        place = tempfile.mkdtemp(prefix="catalog-migrate-doctor-")
    try:
        yield place
    finally:
        shutil.rmtree(place, ignore_errors=True)


def _java() -> str:
    from catalog_migrate.engine.spark.java import check_java, java_version

    executable = check_java()
    return f"{executable}, version {java_version(executable)}"


def _jars() -> str:
    from catalog_migrate.engine.spark.jars import ensure_jars

    return f"{len(ensure_jars(note))} jars, checksums right"


def _catalog(settings: Settings) -> str:
    status = open_catalog(settings).status()
    return f"release {status.release or 'none'}, serial {status.serial}, pending {status.pending}"


def _lease(settings: Settings) -> str:
    lease = open_catalog(settings).status().lease
    if lease is None or not lease.holder:
        return "free"
    return f"held by {lease.holder} on {lease.host} (process {lease.pid}) since {lease.since}"


def _spark(settings: Settings) -> str:
    with local_spark(settings) as spark:
        engine_on(spark, settings)
        with _scratch(None) as place:
            spark.range(1).write.format("delta").save(f"{place}/one")
            rows = spark.read.format("delta").load(f"{place}/one").count()
        return f"Spark {spark.version} wrote and read {rows} row of a Delta table"
