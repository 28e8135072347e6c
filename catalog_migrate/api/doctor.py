"""Tries everything the product needs on this machine, and says what to do about what fails."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from catalog_migrate.api.configured import (
    OnNote,
    addresses_of,
    engine_on,
    make_options,
    open_catalog,
    open_spark,
    unheard,
    warehouse_of,
)
from catalog_migrate.config import Settings
from catalog_migrate.errors import InvalidOptions
from catalog_migrate.model.findings import Check, Finding, run_check
from catalog_migrate.store.address import Storage, is_remote, refuse_login


def examine(
    settings: Settings, *, spark: bool = True, on_note: OnNote = unheard
) -> tuple[Finding, ...]:
    """Java, jars, the catalog, its lease and secrets, commits against each other, a Delta session.

    And streams, where the catalog has any: runtimes, connections, slots, checkpoints, and what does
    not run. ``spark`` False leaves the session out, which takes 10 s. What needs something that
    failed is not tried: one cause is one finding with a remedy.
    """
    uri = settings.text("catalog.uri")
    if uri is not None and is_remote(uri):
        refuse_login(uri)
    found: dict[str, tuple[Finding, ...]] = {}
    for name, needed, check in _checks(settings, uri, spark, on_note):
        if needed and not all(each.ok for each in found[needed]):
            skipped = Finding(name, None, "error", f"not tried: {needed} failed")
            found[name] = (skipped,) if name != "streams" else ()
        else:
            found[name] = run_check(check, settings, name)
    return tuple(each for findings in found.values() for each in findings)


def _checks(
    settings: Settings, uri: str | None, spark: bool, on_note: OnNote
) -> list[tuple[str, str, Check[Settings]]]:
    """Return each check by name, with what has to be well before it."""
    remote = settings.text("spark.remote") is not None
    checks: list[tuple[str, str, Check[Settings]]] = []
    if not remote:
        checks += [("java", "", says("java", lambda _: _java())),
                   ("jars", "", says("jars", lambda its: _jars(its, on_note)))]
    if uri is not None:
        checks += [
            ("catalog", "", says("catalog", _catalog)),
            ("lease", "catalog", says("lease", _lease)),
            ("secrets", "catalog", says("secrets", _secrets)),
        ]
    checks.append(("commits", "", says("commits", lambda its: race(uri, its.storage))))
    if spark:
        checks.append(("spark", "" if remote else "java", partial(_spark, on_note=on_note)))
    if uri is not None:
        from catalog_migrate.api.streams import examine_streams

        checks.append(("streams", "catalog", examine_streams))
    return checks


def says(name: str, trial: Callable[[Settings], str]) -> Check[Settings]:
    """The check that finds what a trial says."""
    return lambda settings: (Finding(name, None, "ok", trial(settings)),)


def race(uri: str | None, storage: Storage | None = None) -> str:
    """Commits against each other, in a scratch table beside the catalog's log.

    A catalog that is not there yet has its directory tried, and nothing is left of it.
    """
    from catalog_migrate.delta.race import race

    if uri is not None:
        race(uri, storage)
    else:
        with _scratch() as place:
            race(place)
    where = "on the catalog's own store" if uri is not None else "on this machine's disk"
    return f"commits raced for the same version {where}, and one of each two was refused"


@contextmanager
def _scratch() -> Iterator[str]:
    """A directory of our own, removed in the end."""
    place = tempfile.mkdtemp(prefix="catalog-migrate-doctor-")
    try:
        yield place
    finally:
        shutil.rmtree(place, ignore_errors=True)


def _java() -> str:
    from catalog_migrate.engine.spark.jars import check_java, java_version

    executable = check_java()
    return f"{executable}, version {java_version(executable)}"


def _jars(settings: Settings, on_note: OnNote) -> str:
    from catalog_migrate.engine.spark.session import session_jars

    return f"{len(session_jars(addresses_of(settings), on_note))} jars, checksums right"


def _catalog(settings: Settings) -> str:
    status = open_catalog(settings).status()
    return f"release {status.release or 'none'}, serial {status.serial}, pending {status.pending}"


def _lease(settings: Settings) -> str:
    lease = open_catalog(settings).status().lease
    if lease is None or not lease.holder:
        return "free"
    return f"held by {lease.holder} on {lease.host} (process {lease.pid}) since {lease.since}"


def _secrets(settings: Settings) -> str:
    """Whether one stands as plain text, as an older version of this tool would store it."""
    from catalog_migrate.streams.catalog.query_spec import plain_secrets

    found = plain_secrets(open_catalog(settings).state())
    if found:
        raise InvalidOptions(
            "the value of a secret is in the catalog as plain text: "
            + "; ".join(map(str, found)),
            remedy="; ".join(each.remedy for each in found),
        )
    return "none is in the catalog as plain text"


def _spark(settings: Settings, on_note: OnNote) -> Iterator[Finding]:
    """The session itself, and what its catalog can do."""
    with open_spark(settings, on_note) as spark:
        engine = engine_on(spark, settings)
        yield from run_check(says("spark", partial(_delta, spark)), settings, "spark")
        yield from run_check(says("names", partial(probed, engine)), settings, "names")


def _delta(spark: Any, settings: Settings) -> str:
    """Write and read a Delta table where the session has a disk of ours."""
    from catalog_migrate.engine.spark.engine import limits

    lacking = limits(spark.version)
    version = f"Spark {spark.version}{lacking and f' ({lacking})'}"
    if settings.text("spark.remote") is not None:  # its disk is not ours to write to
        return f"{version} with Delta answered by Spark Connect" + safe_commits(spark, settings)
    with _scratch() as place:
        spark.range(1).write.format("delta").save(f"{place}/one")
        rows = spark.read.format("delta").load(f"{place}/one").count()
    return f"{version} wrote and read {rows} row of a Delta table" + safe_commits(spark, settings)


def probed(engine: Any, settings: Settings) -> str:
    """What the catalog of names can do, and which features follow; CatalogUnfit if too little."""
    from catalog_migrate.engine.spark.engine import require_fit_catalog

    warehouse = warehouse_of(settings)
    there = warehouse is not None and (is_remote(warehouse) or Path(warehouse).is_dir())
    found = require_fit_catalog(engine, warehouse if there else None)
    kept = "outlive the session" if engine.persistent_names else "end with the session"
    return f"{found}; names {kept}"


def safe_commits(spark: Any, settings: Settings) -> str:
    """Whether the session's commits are safe where the rows are, as if none was raced before."""
    warehouse = warehouse_of(settings)
    if warehouse is None or not is_remote(warehouse):
        return ""
    from catalog_migrate.engine.spark.connect import is_connect
    from catalog_migrate.migrations.safe_commits import require_safe_commits

    notes: list[str] = []
    used = require_safe_commits(
        spark, warehouse, storage=settings.storage, options=make_options(settings),
        on_note=notes.append,
    )
    if notes:
        return f"; {notes[0]} (and storage.require_safe_commits is false)"
    if used is None and is_connect(spark):
        return "; its server names a LogStore that is safe, which a client cannot try"
    if used is None:
        return "; its LogStore is one of storage.safe_log_stores"
    return f"; its commits to {used.place} with {used.name} write over no other's"
