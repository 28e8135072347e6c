"""Schema registries as a connector."""

from __future__ import annotations

from typing import TYPE_CHECKING

from catalog_migrate.connectors.base import Connector
from catalog_migrate.connectors.registry import options
from catalog_migrate.connectors.resolved import Resolved
from catalog_migrate.model.findings import Finding

if TYPE_CHECKING:
    from catalog_migrate.connectors.registry.client import SchemaRegistry

_ONLY_SCHEMAS = "it holds schemas, no rows; write USING SCHEMA REGISTRY CONNECTION behind FORMAT"


class Registry(Connector):
    """Connections that sources and sinks have beside their own, for the schemas of records."""

    name = "SCHEMA REGISTRY"
    help = (
        "A schema registry that speaks Confluent's API (Confluent, Apicurio, Karapace, Redpanda), "
        "for `FORMAT … USING SCHEMA REGISTRY CONNECTION` of KAFKA sources and sinks."
    )
    connection = options.CONNECTION
    without_source = _ONLY_SCHEMAS
    without_sink = _ONLY_SCHEMAS
    holds_schemas = True

    def check(
        self, resolved: Resolved, *, subject: str, timeout: float
    ) -> tuple[Finding, ...]:
        """Ask for its subjects."""
        return (self.client(resolved, subject=subject, timeout=timeout).check(),)

    def client(
        self, resolved: Resolved, *, subject: str = "connection", timeout: float = 10.0
    ) -> SchemaRegistry:
        """Return a client of Confluent's API."""
        from catalog_migrate.connectors.registry.client import SchemaRegistry

        return SchemaRegistry(resolved, subject=subject, timeout=timeout)


CONNECTOR = Registry()
