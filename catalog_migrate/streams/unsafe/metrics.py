"""Metrics of unsafe operations through OpenTelemetry's API, where the application has it.

Without the package ``opentelemetry-api`` nothing is measured, and without an SDK that the
application has set up the API does nothing.
"""

from __future__ import annotations

from catalog_migrate.catalog.records import OperationRecord
from catalog_migrate.streams.operation_records import BACKFILLING, kind_of

OPERATIONS = "catalog_migrate.unsafe.operations"
"""Counter; ``kind`` is alter, reset, inject or undo, ``result`` done, refused or stale."""

PARTITIONS = "catalog_migrate.unsafe.partitions"
"""Counter of partitions that were put elsewhere; attribute ``kind``."""

LAST = "catalog_migrate.unsafe.last"
"""Gauge: when the last operation on a source ended, seconds since 1970; attribute ``source``."""


def measure(row: OperationRecord, now: float) -> None:
    """Count an operation that has ended; ``now`` is in seconds since 1970."""
    try:
        from opentelemetry import metrics
    except ImportError:
        return
    act = row.unsafe
    if act is None:
        return
    meter = metrics.get_meter("catalog_migrate")
    kind = kind_of(row)
    result = "done" if row.state == BACKFILLING else row.state
    meter.create_counter(OPERATIONS).add(1, {"kind": kind, "result": result})
    if result != "done":
        return
    meter.create_counter(PARTITIONS).add(act.injected, {"kind": kind})
    for source in act.sources:
        meter.create_gauge(LAST, unit="s").set(now, {"source": source})
