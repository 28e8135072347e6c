"""The jars of a single-node Kafka 4.1 broker, by a committed lock, fetched as Spark's jars are.

Thirty make the broker; the last three let it store zstd, lz4 and snappy.
``python -m tests.services.broker_jars`` fetches them, those that Spark needs for S3 and for Avro
and what a metastore needs for PostgreSQL, and prints progress.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping

from catalog_migrate.engine.spark.jars import (
    LockedJar,
    Progress,
    avro_jars,
    ensure_jars,
    pyspark_version,
    read_locked_jars,
)
from catalog_migrate.engine.spark.jars import main as fetch
from catalog_migrate.engine.spark.object_stores.settings import S3_PYSPARK, s3_jars
from tests.services.metastore import POSTGRES_DRIVER

JOSE4J = LockedJar(
    "org.bitbucket.b_c", "jose4j", "0.9.6", 299502,
    "7314af50cde9c99e8eaf43eee617a23edcc6bb43036221064355094999d837ef",
)
"""What the broker checks the tokens of OAUTHBEARER with."""


def broker_jars() -> tuple[LockedJar, ...]:
    """The committed lock of the broker, in its order."""
    return read_locked_jars("tests.services", "kafka.lock.json")


def ensure_broker_jars(
    on_progress: Progress | None = None, *, env: Mapping[str, str] | None = None
) -> list[str]:
    """Return the paths of the broker's verified jars, fetching those that are missing or damaged.

    Arguments and errors are those of :func:`catalog_migrate.engine.spark.jars.ensure_jars`.
    """
    return ensure_jars(on_progress, jars=(*broker_jars(), JOSE4J), env=env)


if __name__ == "__main__":
    has_s3 = pyspark_version() in S3_PYSPARK
    more = (JOSE4J, POSTGRES_DRIVER, *avro_jars(), *(s3_jars() if has_s3 else ()))
    sys.exit(fetch((*broker_jars(), *more)))
