"""Whether a start may let a session commit to tables on an object store.

Safe is what a race has shown, once for a LogStore and a version of Hadoop in a catalog, or what the
configuration lists. Nothing of it concerns tables on a local disk.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from catalog_migrate.catalog.commits import Commit, commit
from catalog_migrate.catalog.records import ConfigRecord
from catalog_migrate.catalog.updates import Swap
from catalog_migrate.errors import CatalogMigrateError, UnsafeCommits, UnsuitableSession
from catalog_migrate.migrations.options import BootstrapOptions
from catalog_migrate.store.address import Storage, bucket_of, is_remote, show_address, storage_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from catalog_migrate.catalog.log import CatalogLog
    from catalog_migrate.catalog.state import State
    from catalog_migrate.engine.spark.object_stores.commit_safety import LogStoreInUse

_DEFAULTS = BootstrapOptions()

RACED = "safe_commits"
"""Begins the settings of a catalog that remember what was raced."""


def rows_addresses(warehouse: str, state: State | None) -> Sequence[str]:
    """Return the warehouse, and an address for each scheme and bucket that other tables are in.

    Adopted tables stay where they are; Spark has a LogStore for each scheme.
    """
    found = {bucket_of(warehouse) if is_remote(warehouse) else "": warehouse}
    for path in () if state is None else state.shards:
        if is_remote(path):
            found.setdefault(bucket_of(path), path.rstrip("/").rpartition("/")[0])
    return tuple(found.values())


def require_safe_rows(
    spark: SparkSession, warehouse: str, state: State | None, *, storage: Storage,
    options: BootstrapOptions = _DEFAULTS, on_note: Callable[[str], None] | None = None,
) -> Sequence[LogStoreInUse]:
    """:func:`require_safe_commits` wherever the catalog has rows; what was raced now."""
    raced = (
        require_safe_commits(
            spark, address, storage=storage_of(address) or storage, state=state, options=options,
            on_note=on_note,
        )
        for address in rows_addresses(warehouse, state)
    )
    return tuple(used for used in raced if used is not None)


def require_safe_commits(
    spark: SparkSession, warehouse: str, *, storage: Storage | None = None,
    state: State | None = None, options: BootstrapOptions = _DEFAULTS,
    on_note: Callable[[str], None] | None = None,
) -> LogStoreInUse | None:
    """Return what the session commits with to ``warehouse``, after a look at whether that is safe.

    ``storage`` are the options by which delta-rs reaches it; ``state`` is the catalog's, which
    remembers earlier races (None: none counts). Returns the LogStore where it was raced now, for
    :func:`remember`; None where there was nothing to race, or it was lost.

    Raises UnsafeCommits where ``options`` require safe commits and a race shows that they are not,
    which ``on_note`` hears otherwise; UnsuitableSession where the session cannot commit there, or
    does not tell how, StoreFailure where the store does not answer.
    """
    if not is_remote(warehouse):
        return None
    from catalog_migrate.engine.spark.connect import is_connect
    from catalog_migrate.engine.spark.object_stores.commit_safety import log_store, race_session

    if is_connect(spark):
        _take_at_its_word(spark, warehouse, options, on_note)
        return None
    used = log_store(spark, warehouse)
    known = used.name in options.safe_log_stores or (
        state is not None and setting_of(used) in state.config
    )
    if known:
        return None
    try:
        return race_session(spark, warehouse, storage)
    except UnsafeCommits as error:
        if options.require_safe_commits:
            raise
        if on_note is not None:
            on_note(error.message)
        return None


def _take_at_its_word(
    spark: SparkSession, warehouse: str, options: BootstrapOptions,
    on_note: Callable[[str], None] | None,
) -> None:
    """UnsuitableSession unless a Spark Connect server names our LogStore, or one listed as safe.

    A client has no hold of the moment in which the server commits, so there is nothing to race.
    """
    from catalog_migrate.engine.spark.object_stores.settings import LOG_STORE

    scheme = warehouse.partition("://")[0]
    name = spark.conf.get(f"spark.delta.logStore.{scheme}.impl", "") or "Delta's own LogStore"
    if name in options.safe_log_stores or name == LOG_STORE:
        return
    said = (
        f"the Spark Connect server commits to {show_address(warehouse)} with {name}, which a"
        " client cannot try: unless it puts commits where there is none, it writes over those of"
        " other processes"
    )
    if options.require_safe_commits:
        raise UnsuitableSession(
            said,
            remedy=f"set spark.delta.logStore.{scheme}.impl to {LOG_STORE} on the server, or list"
            " its LogStore in storage.safe_log_stores once you know that it does",
        )
    if on_note is not None:
        on_note(said)


def setting_of(used: LogStoreInUse) -> str:
    """Return the catalog's setting that remembers a race."""
    return f"{RACED} {used.key}"


def remember(log: CatalogLog, used: LogStoreInUse) -> None:
    """Have the catalog remember that these commits were raced, and that each was refused in time.

    Without the lease: it is true for every process.
    """
    raced = Swap("config", setting_of(used), None, ConfigRecord(value="raced"))
    commit(log, Commit(RACED, (raced,)))
    with suppress(CatalogMigrateError):  # the next process that opens the log finds its state kept
        log.keep_audit()
        log.keep_state()
