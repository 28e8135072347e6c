"""The Spark session that the command line uses when nobody hands one over: local, Delta, quiet."""

from __future__ import annotations

import logging
import os
import signal
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType, MappingProxyType
from typing import IO, TYPE_CHECKING

from catalog_migrate.config import REDACTED
from catalog_migrate.engine.spark.jars import (
    Progress,
    check_java,
    delta_jars,
    ensure_jars,
    locate_pyspark,
    read_locked_jars,
)
from catalog_migrate.engine.spark.object_stores import settings as object_stores
from catalog_migrate.errors import PrerequisiteMissing
from catalog_migrate.store.address import Storage

if TYPE_CHECKING:
    from py4j.java_gateway import JavaGateway
    from pyspark import SparkConf, SparkContext
    from pyspark.sql import SparkSession


_SAID_LINES = 12

AVRO_LIMITS: Mapping[str, str] = MappingProxyType({
    "org.apache.avro.limits.bytes.maxLength": str(1 << 27),
    "org.apache.avro.limits.string.maxLength": str(1 << 27),
    "org.apache.avro.limits.collectionItems.maxLength": str(1 << 22),
})
"""Properties of a JVM that reads Avro. A length in a broken record would have it take as much
memory as it says, up to 2 GB, of which a JVM dies."""


def default_warehouse(metastore: str | None) -> Path:
    """Where Spark makes the directories of schemas: beside the metastore, or a temporary place.

    Nothing of ours lies there; Spark insists on a directory for each schema.
    """
    if metastore is not None:
        return Path(f"{metastore}-warehouse")
    return Path(tempfile.gettempdir()) / f"catalog-migrate-{os.getuid()}" / "spark-warehouse"


def session_conf(
    jars: list[str], *, warehouse_dir: str | None = None, metastore: str | None = None,
    extra: Mapping[str, str] | None = None, on_s3: bool = False,
) -> dict[str, str]:
    """Return all settings of the local session, as Spark's own keys.

    ``jars`` are paths of jar files, ``warehouse_dir`` is where Spark puts managed tables (not ours:
    the product's shards have their own addresses), ``metastore`` a directory for an embedded Derby
    metastore that keeps names between sessions (None: names end with the session). ``on_s3`` adds
    what commits and checkpoints on S3 need to be safe. ``extra`` stands above everything; jars
    that it names come beside ours.
    """
    log4j = Path(__file__).with_name("log4j2.properties").as_uri()
    conf = {
        "spark.master": "local[*]",
        "spark.jars": ",".join(jars),
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.ansi.enabled": "true",
        "spark.sql.shuffle.partitions": "2",
        "spark.databricks.delta.snapshotPartitions": "2",
        # a process of Python may take long to come up on a loaded machine
        "spark.python.authenticate.socketTimeout": "600s",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.redaction.regex": REDACTED,
        "spark.sql.redaction.options.regex": REDACTED,
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.extraJavaOptions": (
            f"-Dlog4j2.configurationFile={log4j} -Dderby.stream.error.file={os.devnull}"
        ),
        "spark.executor.extraJavaOptions": " ".join(
            f"-D{name}={value}" for name, value in AVRO_LIMITS.items()
        ),
    }
    # never the directory that the caller happens to stand in, which is Spark's own default
    place = Path(warehouse_dir) if warehouse_dir is not None else default_warehouse(metastore)
    conf["spark.sql.warehouse.dir"] = str(place.absolute())
    if metastore is None:
        conf["spark.sql.catalogImplementation"] = "in-memory"
    else:
        database = Path(metastore).absolute()
        conf["spark.sql.catalogImplementation"] = "hive"
        conf["spark.hadoop.javax.jdo.option.ConnectionURL"] = (
            f"jdbc:derby:;databaseName={database};create=true"
        )
        conf["spark.hadoop.datanucleus.schema.autoCreateAll"] = "true"
        conf["spark.hadoop.hive.metastore.schema.verification"] = "false"
    if on_s3:
        conf.update(object_stores.SETTINGS)
    conf.update(extra or {})
    if not conf["spark.master"].startswith("local"):  # others must reach it: Spark finds the host
        for name in ("spark.driver.host", "spark.driver.bindAddress"):
            if name not in (extra or {}):
                del conf[name]
    conf["spark.jars"] = ",".join(filter(None, [*jars, (extra or {}).get("spark.jars")]))
    return conf


def session_jars(
    addresses: Iterable[str | None] = (), on_progress: Progress | None = None, *,
    kafka: bool = True,
) -> list[str]:
    """Paths of the jars of a session that reads and writes at these addresses, fetched if absent.

    Those of Kafka are left out where ``kafka`` is False.
    Errors are those of :func:`~catalog_migrate.engine.spark.jars.ensure_jars`.
    """
    on_s3 = object_stores.s3_jars() if object_stores.needs_s3(addresses) else ()
    own = read_locked_jars() if kafka else delta_jars()
    return ensure_jars(on_progress, jars=(*own, *on_s3))


def local_session(
    warehouse_dir: str | None = None, metastore: str | None = None, *,
    conf: Mapping[str, str] | None = None, on_progress: Progress | None = None,
    addresses: Iterable[str | None] = (), storage: Storage | None = None,
    hadoop: Mapping[str, str] | None = None, kafka: bool = True,
) -> SparkSession:
    """Start a local Spark session with Delta (8 to 10 s), or return the one already running.

    ``warehouse_dir``, ``metastore`` and ``conf`` are as in :func:`session_conf`; a running session
    keeps its own settings. ``addresses`` are those that Spark is to read and write; when one is on
    S3 the jars for that are fetched too, and the session reaches it by the options of ``storage``,
    which no page, log or command line of Spark shows; nor do they show ``hadoop``, settings of
    Hadoop. ``kafka`` is as in :func:`session_jars`.
    ``on_progress`` hears about jars being fetched, and of a Ctrl-C, which takes effect once
    the JVM has started. What the JVM writes on stdout and stderr is kept from the terminal, and
    quoted when it does not start.

    Raises :class:`PrerequisiteMissing` when Java, PySpark or a jar is missing, or Spark does not
    start.
    """
    check_java()
    locate_pyspark()
    addresses = tuple(addresses)
    on_s3 = object_stores.needs_s3(addresses)
    jars = session_jars(addresses, on_progress, kafka=kafka)
    settings = session_conf(
        [*jars, object_stores.own_jar()] if on_s3 else jars,
        warehouse_dir=warehouse_dir, metastore=metastore, extra=conf, on_s3=on_s3,
    )
    if metastore is not None:
        Path(metastore).absolute().parent.mkdir(parents=True, exist_ok=True)

    from pyspark import SparkConf, SparkContext
    from pyspark.sql import SparkSession

    running = SparkSession.getActiveSession()
    if running is not None:
        return running
    # Python workers must be the interpreter that runs us, not whichever python3 is on the PATH.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    spark_conf = SparkConf(loadDefaults=False)
    spark_conf.setAppName("catalog-migrate")
    for key, value in settings.items():
        spark_conf.set(key, value)
    # A JVM outlives its context: a second session of this process is served by the first one's.
    if getattr(SparkContext, "_gateway", None) is None:
        with interrupts_wait(on_progress):
            context = _start_quietly(spark_conf)
    else:
        context = SparkContext.getOrCreate(spark_conf)
    with silent_interrupts():  # PySpark's own handler is there by now
        context.setLogLevel("ERROR")
        # not by SparkConf: PySpark starts the JVM with all of that on its command line
        hand_over(context, {
            **(object_stores.hadoop_settings(storage or Storage()) if on_s3 else {}),
            **(hadoop or {}),
        })
        return SparkSession.builder.config(conf=spark_conf).getOrCreate()


def _start_quietly(conf: SparkConf) -> SparkContext:
    """Launch the JVM, its output in an unnamed file, which is quoted if it does not start."""
    from py4j.protocol import Py4JError
    from pyspark import SparkContext
    from pyspark.errors import PySparkRuntimeError
    from pyspark.java_gateway import launch_gateway

    with tempfile.TemporaryFile() as said:
        try:
            launch: Callable[..., JavaGateway] = launch_gateway
            gateway = launch(conf, popen_kwargs={"stdout": said, "stderr": said})
            return SparkContext(conf=conf, gateway=gateway)
        except (PySparkRuntimeError, Py4JError, OSError) as error:
            raise PrerequisiteMissing(
                f"Spark did not start: {error}{_quote(said)}",
                remedy="fix what is reported above; SPARK_HOME, when set, must be the Spark that"
                " PySpark is of (unset it to use the one inside PySpark)",
            ) from error


def _quote(said: IO[bytes]) -> str:
    """The last lines that the JVM wrote, indented; empty when it wrote none."""
    said.seek(0)
    lines = said.read().decode("utf-8", errors="replace").splitlines()
    return "".join(f"\n    {line}" for line in lines[-_SAID_LINES:])


# -- Ctrl-C while Spark starts and works -----------------------------------------------------------

@contextmanager
def interrupts_wait(say: Callable[[str], None] | None) -> Iterator[None]:
    """Ctrl-C takes effect in the end, a second one at once; ``say`` hears that it was taken.

    For the start of a JVM: when it is interrupted, PySpark removes the directory that the JVM
    writes its port to, and the JVM fails over that before it comes to look whether its parent is
    still there. It never ends then. Nothing is done off the main thread, which gets no signals.
    """
    handler = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(handler):
        yield
        return
    came = False

    def handle_interrupt(number: int, frame: FrameType | None) -> None:
        nonlocal came
        if came:
            handler(number, frame)
        came = True
        if say is not None:
            with suppress(OSError, RuntimeError):  # nobody reads, or it came within a print
                say("interrupted: this ends as soon as Spark has started")

    signal.signal(signal.SIGINT, handle_interrupt)
    try:
        yield
    finally:
        if signal.getsignal(signal.SIGINT) is handle_interrupt:  # not PySpark's own
            signal.signal(signal.SIGINT, handler)
    if came:
        handler(signal.SIGINT, None)


@contextmanager
def silent_interrupts() -> Iterator[None]:
    """From an interrupt on, Py4J logs nothing; as before in the end.

    PySpark's handler cancels the jobs over the very connection that is being read from when the
    signal comes, and Py4J logs that with its traceback, by loggers of its own and by the root one.
    The handler is left to do that: it also has Py4J give the connection up, whose next answer would
    be that to the command before. Nothing is done off the main thread, which gets no signals.
    """
    handler = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(handler):
        yield
        return
    silenced: list[logging.Logger] = []

    def handle_interrupt(number: int, frame: FrameType | None) -> None:
        silenced.extend(_silence())
        handler(number, frame)

    signal.signal(signal.SIGINT, handle_interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
        for logger in silenced:
            logger.disabled = False


def _silence() -> list[logging.Logger]:
    """Disable the loggers that Py4J uses; those that were not disabled before."""
    names = [
        name for name in tuple(logging.root.manager.loggerDict)
        if name == "py4j" or name.startswith("py4j.")
    ]
    speaking = [
        logger for logger in (logging.root, *map(logging.getLogger, names)) if not logger.disabled
    ]
    for logger in speaking:
        logger.disabled = True
    return speaking


# -- secrets handed to the JVM ---------------------------------------------------------------------

_PY4J = ("py4j.clientserver", "py4j.java_gateway")


class _Here(threading.local):
    depth = 0


_here = _Here()


class _Quiet(logging.Filter):
    """Lets nothing through from a thread that is within :func:`silence_py4j`."""

    def filter(self, record: logging.LogRecord) -> bool:  # noqa: ARG002 (named by the base)
        return _here.depth == 0


_quiet = _Quiet()


def hand_over(context: SparkContext, settings: Mapping[str, str]) -> None:
    """Settings of Hadoop for all sessions of an application; nothing shows or logs them."""
    hadoop = context._jsc.hadoopConfiguration()
    with silence_py4j():
        for name, value in settings.items():
            hadoop.set(name, value)


@contextmanager
def silence_py4j() -> Iterator[None]:
    """Py4J logs nothing of this thread meanwhile; the application's logging stays as it is.

    At DEBUG it logs every command that it sends to the JVM, arguments and all: the options of a
    Kafka reader among them with the login in them, and those of an object store.
    """
    for name in _PY4J:
        logging.getLogger(name).addFilter(_quiet)  # added once, however often it is said
    _here.depth += 1
    try:
        yield
    finally:
        _here.depth -= 1
