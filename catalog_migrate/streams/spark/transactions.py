"""The newest batch of a query in a Delta table's log."""

from __future__ import annotations

from typing import TYPE_CHECKING

from catalog_migrate.failures import failing

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def delta_transaction(spark: SparkSession, path: str, query_id: str) -> int | None:
    """The batch that a query wrote last into the table at ``path``; None when it wrote none.

    By delta-rs, which takes milliseconds; tables with features that it does not know (widened
    types) are opened by Spark. Raises :class:`~catalog_migrate.errors.EngineFailure` when there is
    no table.
    """
    from deltalake import DeltaTable
    from deltalake.exceptions import DeltaError, TableNotFoundError

    with failing(f"read the transactions of {path}"):
        try:
            found = DeltaTable(path).transaction_version(query_id)
        except TableNotFoundError:
            raise
        except DeltaError:
            log = spark._jvm.org.apache.spark.sql.delta.DeltaLog  # type: ignore[union-attr]
            snapshot = log.forTable(spark._jsparkSession, path).unsafeVolatileSnapshot()
            entry = snapshot.transactions().get(query_id)
            return int(entry.get()) if entry.isDefined() else None
        return None if found is None else int(found)
