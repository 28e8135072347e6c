"""What an application that has OpenTelemetry set up sees of unsafe operations."""

from __future__ import annotations

import msgspec
import pytest
from opentelemetry import metrics
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from catalog_migrate.catalog.records import OperationRecord, UnsafeAct
from catalog_migrate.streams.catalog.operation_records import kind_of
from catalog_migrate.streams.positions.audit import LAST, OPERATIONS, PARTITIONS, measure

ACT = UnsafeAct(who="ann", host="h", at="2026-01-01", reason="r", request="{}", sources=("a.s",))
ROW = OperationRecord(kind="unsafe", state="done", unsafe=ACT)


def row(state: str = "done", **act: object) -> OperationRecord:
    return msgspec.structs.replace(ROW, state=state, unsafe=msgspec.structs.replace(ACT, **act))


def test_counted_by_kind_and_result() -> None:
    """Operations by kind and result, the partitions of those that are done, the last one's time."""
    reader = InMemoryMetricReader()
    metrics.set_meter_provider(MeterProvider(metric_readers=[reader]))
    for _ in range(2):
        measure(row(injected=3), 100.0)
    measure(row("refused", reset=True), 150.0)
    measure(row(keys=("TOPIC",), reset=True, injected=2), 200.0)
    data = reader.get_metrics_data()
    assert data is not None
    found = {
        (metric.name, *sorted((point.attributes or {}).items())): point.value  # type: ignore[union-attr]
        for metric in data.resource_metrics[0].scope_metrics[0].metrics
        for point in metric.data.data_points
    }
    assert found == {
        (OPERATIONS, ("kind", "inject"), ("result", "done")): 2,
        (OPERATIONS, ("kind", "reset"), ("result", "refused")): 1,
        (OPERATIONS, ("kind", "alter"), ("result", "done")): 1,
        (PARTITIONS, ("kind", "inject")): 6,
        (PARTITIONS, ("kind", "alter")): 2,
        (LAST, ("source", "a.s")): 200.0,
    }


@pytest.mark.parametrize(
    ("act", "kind"),
    [
        ({}, "inject"), ({"reset": True}, "reset"), ({"keys": ("TOPIC",)}, "alter"),
        ({"keys": ("TOPIC",), "undoes": "k"}, "undo"),
    ],
)
def test_kinds(act: dict[str, object], kind: str) -> None:
    """An operation counts as the widest thing that it does."""
    assert kind_of(row(**act)) == kind
