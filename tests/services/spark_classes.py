"""Spark's classes, kept parsed between the JVMs of the tests: a third of what a start costs.

``python -m tests.services.spark_classes`` runs a short session whose JVM writes them to a file when
it ends (application class-data sharing); ``make test`` does so once a set-up. A JVM checks that the
file is one of its own Java and class path, and does without it otherwise.
"""

from __future__ import annotations

import os
import shlex
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ARCHIVE = Path(__file__).parents[2] / "build" / "spark-classes.jsa"
PROPERTIES = Path(__file__).parents[1] / "spark_conf" / "spark-defaults.conf"
"""Settings of every session of the tests. Not by SPARK_CONF_DIR, which stands on the class path:
there is no archive for a class path with a directory that has files."""

_QUIET = "-Xlog:cds=off -Xlog:cds+dynamic=off"
_SECONDS = 120.0


def submit_arguments() -> str:
    """What PySpark is to give to ``spark-submit`` (``PYSPARK_SUBMIT_ARGS``)."""
    return f"--properties-file {shlex.quote(str(PROPERTIES))} pyspark-shell"


def mapped() -> str:
    """Flags of a JVM that maps the archive; none while there is none."""
    if not ARCHIVE.is_file():
        return ""  # the flag alone would take the JDK's own archive away
    return f"-XX:SharedArchiveFile={ARCHIVE} -Xshare:auto {_QUIET}"


def archive() -> None:
    """Write the archive by a session that does a little of what the tests do.

    Raises :class:`subprocess.TimeoutExpired` when the JVM takes over two minutes to write it.
    """
    from catalog_migrate.engine.spark.jars import prefer_short_runs
    from catalog_migrate.engine.spark.session import local_session

    ARCHIVE.parent.mkdir(exist_ok=True)
    arriving = ARCHIVE.with_suffix(f".{os.getpid()}")
    prefer_short_runs(os.environ)
    os.environ["PYSPARK_SUBMIT_ARGS"] = submit_arguments()
    os.environ["SPARK_SUBMIT_OPTS"] = f"-XX:ArchiveClassesAtExit={arriving} {_QUIET}"
    with tempfile.TemporaryDirectory() as directory:
        spark = local_session(warehouse_dir=directory)
        spark.sql(f"CREATE TABLE t (a BIGINT, b STRING) USING delta LOCATION '{directory}/t'")
        spark.sql("INSERT INTO t VALUES (1, 'x')")
        spark.sql("ALTER TABLE t ADD COLUMNS (c INT)")
        spark.sql("CREATE VIEW v AS SELECT a, count(b) AS n FROM t GROUP BY a")
        spark.sql("SELECT * FROM v").collect()
        spark.sql("SHOW TABLE EXTENDED LIKE '*'").collect()
        copy = spark.readStream.table("t").writeStream.format("delta").trigger(availableNow=True)
        copy = copy.option("checkpointLocation", f"{directory}/c")
        copy.start(f"{directory}/u").awaitTermination()
        gateway: Any = spark.sparkContext._gateway
        spark.stop()
        gateway.shutdown()
        gateway.proc.stdin.close()  # a JVM ends with its parent
        gateway.proc.wait(_SECONDS)
    arriving.replace(ARCHIVE)


if __name__ == "__main__":
    started = time.monotonic()
    archive()
    sys.stdout.write(f"classes of Spark kept parsed in {time.monotonic() - started:.0f} s\n")
