"""Two installations on one metastore: each has the schema of its own built-ins."""

from __future__ import annotations

from catalog_migrate.catalog.log import CatalogLog
from catalog_migrate.catalog.store import read_state
from catalog_migrate.engine.port import Engine
from catalog_migrate.reconciler.actions import former
from catalog_migrate.reconciler.desired import PREFIX
from catalog_migrate.release.builtin import SYSTEM_SCHEMA, schema_beside


def system_schema(engine: Engine, log: CatalogLog, catalog_uri: str) -> str:
    """Where our own views are: as committed, else the usual schema unless another has it.

    Asks Spark only before the first start on a metastore.
    """
    state = read_state(log) if log.exists() else None
    if state is not None and state.has_owner("system"):
        return next(m.schema for m in state.mappings.values() if m.owner == "system")
    if not engine.persistent_names:
        return SYSTEM_SCHEMA
    ours = {state.lineage, *former(state)[1]} if state is not None else set()
    for registration in engine.observe(SYSTEM_SCHEMA):
        lineage = registration.properties.get(PREFIX + "lineage")
        if lineage is not None and lineage not in ours:
            return schema_beside(catalog_uri)
    return SYSTEM_SCHEMA
