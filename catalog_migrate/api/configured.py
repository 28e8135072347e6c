"""What the configuration names: a catalog, a release, a Spark session (local or a server's)."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from catalog_migrate.config import REDACTED, SPARK_CONF, Settings
from catalog_migrate.errors import (
    CatalogExported,
    CatalogMigrateError,
    CatalogMoved,
    CatalogNotFound,
    EngineFailure,
    UnsuitableSession,
    UsageError,
)
from catalog_migrate.migrations.options import BootstrapOptions, read_call
from catalog_migrate.policy import Policy
from catalog_migrate.store.address import is_remote, rows_address
from catalog_migrate.users.settings import users_of

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from catalog_migrate.api.catalog import Catalog
    from catalog_migrate.catalog.state import State
    from catalog_migrate.engine.port import Engine
    from catalog_migrate.migrations.options import CallArguments
    from catalog_migrate.model.names import Identity
    from catalog_migrate.model.objects import Column
    from catalog_migrate.planner.baseline import Baseline
    from catalog_migrate.release.loader import FindContracts
    from catalog_migrate.release.release import Release

COMMITTED = "catalog:"
"""Prefix that stands for the release in force: ``catalog:`` or ``catalog:URI``."""

_HADOOP = "spark.hadoop."

OnNote = Callable[[str], None]
"""Hears lines for the person who watches: what is being done, and what else is worth knowing."""


def unheard(_: str) -> None:
    """Where nobody watches."""


def need(settings: Settings, path: str, flag: str) -> str:
    """A setting that the call cannot do without; UsageError (exit 64) when nobody gave it."""
    value = settings.text(path)
    if value is None:
        raise UsageError(
            f"{path} is not set",
            remedy=f"give {flag}, or set {path} in catalog_migrate.toml",
        )
    return value


def make_options(
    settings: Settings, **arguments: Unpack[CallArguments]
) -> BootstrapOptions:
    """How a start is to be done: as configured, and as the call says.

    But for the warehouse (:func:`find_rows_location`), which only concerns what leads to a release.
    """
    return read_call(
        BootstrapOptions(
            policy=Policy(rules=settings.policy),
            require_safe_commits=settings.text("storage.require_safe_commits") != "false",
            safe_log_stores=settings.split_list("storage.safe_log_stores"),
            threads=int(settings.number("spark.threads") or 4),
            timeout=settings.number("bootstrap.timeout"),
            untried_stores=settings.untried_stores,
            users=users_of(settings),
        ),
        **arguments,
    )


def find_rows_location(settings: Settings) -> str | None:
    """Where rows are to be as configured; UsageError where they cannot be."""
    warehouse = settings.text("catalog.warehouse")
    return None if warehouse is None else rows_address(warehouse, settings.untried_stores)


def catalog_uri(settings: Settings) -> str:
    """Where the catalog is, or is to be."""
    return need(settings, "catalog.uri", "--catalog URI")


def open_catalog(settings: Settings, *, write: bool = False) -> Catalog:
    """Return the catalog of the configuration.

    CatalogLost where there is none any more, and rows below its warehouse say that there was.
    """
    from catalog_migrate.api.catalog import Catalog

    uri = catalog_uri(settings)
    try:
        return Catalog.open(
            uri, mode="write" if write else "read-only",
            storage_options=settings.storage.options(),
        )
    except CatalogNotFound:
        _refuse_lost(uri, settings)
        raise


def warehouse_of(settings: Settings) -> str | None:
    """Where the rows are; the catalog's own address where they will be beside it, or nobody says.

    None without a catalog.
    """
    warehouse = settings.text("catalog.warehouse")
    return addresses_of(settings)[0] if warehouse is None else warehouse


def addresses_of(settings: Settings) -> Sequence[str | None]:
    """The warehouse, then where else there are rows, which were adopted: all that a session of the
    command line's own is to read and write."""
    from catalog_migrate.migrations.safe_commits import rows_addresses

    warehouse, uri = settings.text("catalog.warehouse"), settings.text("catalog.uri")
    if uri is None:
        return [warehouse]
    try:
        state = open_catalog(settings).state()
    except CatalogMigrateError:  # whoever works on the catalog says what is wrong with it
        return [warehouse or uri]
    return rows_addresses(warehouse or state.setting("warehouse"), state)


def refuse_other_warehouse(opened: Catalog, settings: Settings) -> None:
    """UsageError, as of a start, where the configuration names other rows than the catalog's.

    Not in a catalog that was moved or copied, of which a start says that before.
    """
    from catalog_migrate.catalog.opening import require_in_use, require_warehouse

    if settings.text("catalog.warehouse") is None:
        return
    state = opened.state()
    with suppress(CatalogExported, CatalogMoved):
        require_in_use(state, opened.log)
        require_warehouse(state, find_rows_location(settings))


def _refuse_lost(uri: str, settings: Settings) -> None:
    from catalog_migrate.catalog.marks import refuse_lost
    from catalog_migrate.catalog.opening import default_warehouse, open_log

    log = open_log(uri, settings.storage)
    rows = find_rows_location(settings)
    if rows is not None or not is_remote(uri):
        refuse_lost(log, rows or default_warehouse(log))


def asking_spark(settings: Settings, on_note: OnNote) -> FindContracts:
    """What :func:`read_release` asks for missing column lists; Spark starts when it is asked."""

    def find(release: Release) -> Mapping[Identity, Sequence[Column] | str]:
        from catalog_migrate.migrations.contracts import find_contracts

        with open_spark(settings, on_note) as spark:
            return find_contracts(engine_on(spark, settings), release)

    return find


def read_release(
    settings: Settings, path: str | None = None, *, former: bool = False,
    find: FindContracts | None = None,
) -> Release:
    """Return the release at ``path`` (default: release.path), named and defaulted as configured.

    ``path`` may be ``git:REF:PATH``: what a commit of the repository around has there. ``former``
    is one that another is compared with; its properties are taken as they are. ``find`` is asked
    for the typed column lists that views lack; without it that is an error.
    """
    from catalog_migrate.release import git
    from catalog_migrate.release.loader import load_release

    place = need(settings, "release.path", "--release PATH") if path is None else path
    if not place.strip():
        raise UsageError(
            "a release is named by an empty text",
            remedy="name a directory, a manifest or git:REF:PATH; is a variable not set?",
        )
    is_manifest = Path(place).suffix == ".json"
    load = git.load_git if git.is_git(place) else load_release
    return load(
        place,
        name=None if is_manifest else settings.text("release.name"),
        default_schema=settings.text("release.default_schema"),
        policy=Policy(rules=settings.policy, checks_properties=not former), find=find,
    )


def release_digest(settings: Settings) -> str | None:
    """The manifest hash of the configured release where it is a manifest; its objects are not read.

    None where reading it says why.
    """
    place = Path(need(settings, "release.path", "--release PATH"))
    if place.suffix != ".json":
        return None
    from catalog_migrate.release.digest import hash_file

    try:
        return hash_file(place, default_schema=settings.text("release.default_schema"))
    except (OSError, CatalogMigrateError):
        return None


def address_in(text: str | None) -> str | None:
    """The URI in ``catalog:URI``; None for the configured catalog and for everything else."""
    if text is None or not text.startswith(COMMITTED):
        return None
    return text[len(COMMITTED):] or None


def read_committed(settings: Settings, text: str) -> tuple[Release, Baseline]:
    """Return the release in force as ``catalog:`` (configured) or ``catalog:URI`` names it."""
    from catalog_migrate.api.catalog import Catalog
    from catalog_migrate.planner.baseline import Baseline
    from catalog_migrate.release.release import Release

    uri = address_in(text) or catalog_uri(settings)
    catalog = Catalog.open(uri, storage_options=settings.storage.options())
    state = catalog.state()
    baseline = Baseline.from_state(state, owner="release", uri=catalog.log.uri)
    in_force = state.release_in_force("release")
    release = Release(
        name=in_force.name if in_force else "nothing",
        objects=tuple(entry.definition for entry in baseline.objects.values()),
        manifest_hash=in_force.manifest_hash if in_force else "",
        uses={identity: entry.uses for identity, entry in baseline.objects.items()},
        places={},
        statements=_list_bundled(state),
    )
    return release, baseline


def _list_bundled(state: State) -> tuple[str, ...]:
    if not state.has_owner("shipped"):
        return ()
    from catalog_migrate.streams.ddl.bundled_streams import list_bundled

    return list_bundled(state)


def session_runs() -> bool:
    """Return whether this process has a Spark session already; looking does not import pyspark."""
    pyspark = sys.modules.get("pyspark.sql")
    return pyspark is not None and pyspark.SparkSession.getActiveSession() is not None


def has_lasting_names(settings: Settings) -> bool:
    """Whether the session's catalog may have names of others: it outlives the session, or a session
    of the caller's runs."""
    keys = ("spark.metastore", "spark.remote", "spark.catalog")
    kept = settings.spark_conf.get("spark.sql.catalogImplementation")
    return (
        any(settings.text(path) is not None for path in keys)
        or (kept is not None and str(kept.value) != "in-memory")
        or session_runs()
    )


@contextmanager
def open_spark(settings: Settings, on_note: OnNote = unheard) -> Iterator[Any]:
    """A session on the server of spark.remote, closed in the end; :func:`local_spark` without one.

    Raises ServerUnreachable where the server does not answer.
    """
    remote = settings.text("spark.remote")
    if remote is None:
        with local_spark(settings, on_note) as spark:
            yield spark
        return

    from catalog_migrate.engine.spark.connect import remote_session, show_server

    on_note(f"opening a session on {show_server(remote)}")
    with remote_session(remote) as spark:
        # those of a whole server, secrets among them, are not a client's to set
        for name, setting in settings.spark_conf.items():
            if not re.search(REDACTED, name) and spark.conf.isModifiable(name):
                spark.conf.set(name, str(setting.value))
            else:
                on_note(f"{SPARK_CONF}.{name} belongs to the server: it is not set")
        use_catalog(spark, settings)
        yield spark


def use_catalog(spark: Any, settings: Settings) -> None:
    """Make the catalog of spark.catalog the session's current one, else UnsuitableSession."""
    catalog = settings.text("spark.catalog")
    if catalog is None:
        return
    from catalog_migrate.engine.spark.statements import run
    from catalog_migrate.engine_failures import failing
    from catalog_migrate.model.names import quote_sql

    try:
        with failing(f"use the catalog {catalog} (spark.catalog)"):
            run(spark, f"SET CATALOG {quote_sql(catalog)}")
            spark.catalog.currentCatalog()  # one that cannot tell its name cannot be used either
    except EngineFailure as error:
        raise UnsuitableSession(
            error.message,
            remedy=f"define it by spark.sql.catalog.{catalog} and its jars, or leave spark.catalog"
            " away: docs/catalogs.md says what a catalog must do",
        ) from error


@contextmanager
def local_spark(
    settings: Settings, on_note: OnNote = unheard, *, jars: Sequence[str] = ()
) -> Iterator[Any]:
    """A local session as configured, stopped in the end; one that runs already is left running.

    ``jars`` are paths of what it needs beside what every session has.
    """
    from catalog_migrate.engine.spark.jars import locate_pyspark

    locate_pyspark()
    from pyspark.sql import SparkSession

    from catalog_migrate.engine.spark.session import local_session, silent_interrupts

    running = SparkSession.getActiveSession()
    if running is not None:
        use_catalog(running, settings)
        yield running
        return

    shown, handed = spark_conf(settings)
    if jars:
        shown["spark.jars"] = ",".join(filter(None, [shown.get("spark.jars"), *jars]))
    on_note("starting Spark, 8 to 10 s")
    spark = local_session(
        warehouse_dir=settings.text("spark.warehouse_dir"),
        metastore=settings.text("spark.metastore"),
        on_progress=on_note,
        addresses=addresses_of(settings),
        storage=settings.storage,
        conf=shown,
        hadoop=handed,
    )
    with silent_interrupts():
        try:
            use_catalog(spark, settings)
            yield spark
        finally:
            spark.stop()


def spark_conf(settings: Settings) -> tuple[dict[str, str], dict[str, str]]:
    """Return what ``spark_conf`` sets: settings of Spark, and secret ones of Hadoop, read now.

    UsageError for a secret that is none of Hadoop's: Spark's JVM has its settings on its command
    line. UnresolvedSecret for a reference that leads to no value.
    """
    from catalog_migrate.connectors.secrets import resolve

    shown, handed = {}, {}
    for name, setting in settings.spark_conf.items():
        if not re.search(REDACTED, name):
            shown[name] = str(setting.value)
        elif name.startswith(_HADOOP):
            handed[name.removeprefix(_HADOOP)] = resolve(str(setting.value)).reveal()
        else:
            raise UsageError(
                f"{SPARK_CONF}.{name} would stand on the command line of Spark's JVM",
                remedy="start the session with it yourself and hand it to bootstrap(), or put it"
                " into spark-defaults.conf of SPARK_CONF_DIR",
            )
    return shown, handed


def engine_on(spark: Any, settings: Settings) -> Engine:
    """Return the engine of a session."""
    from catalog_migrate.engine.spark.engine import SparkEngine

    return SparkEngine(spark, threads=make_options(settings).threads)


def refuse_remote(settings: Settings, doing: str) -> None:
    """UnsuitableSession where the session would be a server's; ``doing`` needs one of our own."""
    remote = settings.text("spark.remote")
    if remote is not None:
        from catalog_migrate.engine.spark.connect import show_server, unsuitable

        raise unsuitable(doing, f"spark.remote is {show_server(remote)}")
