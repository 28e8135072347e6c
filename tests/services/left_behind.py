"""Puts on record what a process left, without the way that led there."""

from __future__ import annotations

from uuid import uuid4

from catalog_migrate.catalog.commits import rows_of
from catalog_migrate.catalog.log import CatalogLog
from catalog_migrate.catalog.opening import read_state
from catalog_migrate.catalog.state import State
from tests.decisions import Changes


def leave(log: CatalogLog, changes: Changes) -> State:
    """Write these records as they are: a commit would refuse an operation that begins half-way."""
    state = read_state(log)
    log.append(
        rows_of(state, changes.effective(state)), follows=state.version, commit_id=uuid4().hex,
        metadata={"kind": "test", "serial": str(state.serial)},
    )
    return read_state(log)
