"""What preflight and the look at schemas report when the server cannot be reached; no server."""

from __future__ import annotations

from typing import Any

import pytest

from catalog_migrate.connectors.postgres import preflight
from catalog_migrate.connectors.query import QuerySpec
from catalog_migrate.connectors.registry.client import SchemaRegistry
from catalog_migrate.errors import ConnectionFailed
from catalog_migrate.model.findings import Finding
from catalog_migrate.model.names import ItemName
from catalog_migrate.model.objects import External
from catalog_migrate.streams.upstreams import schemas


def unreachable(*_: Any, **__: Any) -> Any:
    """Nothing answers, and no probe has left a finding."""
    raise ConnectionFailed("nothing answers", remedy="start it")


def test_a_preflight_without_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Expect the error itself as the finding: none at all would be read as all is well."""
    monkeypatch.setattr(preflight, "session", unreachable)
    found = preflight.preflight({}, "p", "s", ["t"], format="CHANGES", subject="source q")
    assert found == (Finding(
        "source q", None, "error", "nothing answers", "start it", code=ConnectionFailed.code
    ),)


def test_schemas_without_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Expect the same of a schema registry, about its connection."""
    monkeypatch.setattr(SchemaRegistry, "latest", unreachable)
    spec = QuerySpec(
        "i1", ItemName("s", "q"), "source",
        External(connector="KAFKA", options={"TOPIC": "orders"}, format="AVRO"), (),
        connection={}, shard="", checkpoint="", registry={"URL": "http://127.0.0.1:1"},
        registry_name="s.r",
    )
    assert schemas.check_schemas(spec) == (Finding(
        "connection s.r", None, "error", "nothing answers", "start it", code=ConnectionFailed.code
    ),)
