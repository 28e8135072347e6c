"""Durable catalogs to measure on: real Delta logs on disk, filled through the start-up hook.

Runs as a process of its own (``python -m bench.corpus DIRECTORY N REACHED``), so that its memory
is not part of what is measured afterwards.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from bench import generated
from catalog_migrate.bootstrap import migrate
from catalog_migrate.catalog.clock import SystemClock
from catalog_migrate.catalog.store import open_log, read_state
from catalog_migrate.release.loader import load_manifest
from catalog_migrate.testing.engine import SimulatedEngine


def build(directory: Path, size: int, reached: int) -> None:
    """A catalog of ``size`` objects in ``<directory>/catalog`` with two manifests beside it.

    ``same.json`` is the release in force, ``changed.json`` the next one, in which one table has a
    wider column and so have the ``reached`` views that depend on it. Names and rows are simulated;
    the log and the changed table's shard are real.
    """
    tables = size // 2
    same = generated.objects(tables, size - tables, reached=reached)
    changed = generated.objects(tables, size - tables, reached=reached, widened=True)
    data = generated.manifest("1.0", same)
    directory.mkdir(parents=True)
    (directory / "same.json").write_bytes(data)
    (directory / "changed.json").write_bytes(generated.manifest("2.0", changed))
    log = open_log(str(directory / "catalog"))
    migrate(
        SimulatedEngine(persistent=True), log, load_manifest(data),
        warehouse=str(directory / "warehouse"), clock=SystemClock(), holder="bench",
    )
    _create_root(directory / "warehouse", log.uri)


def _create_root(warehouse: Path, uri: str) -> None:
    """The shard of the root as a real Delta table: a plan that replaces it looks at its size."""
    from deltalake import DeltaTable, Schema

    from catalog_migrate.engine.spark.datatypes import json_schema

    state = read_state(open_log(uri))
    mapping = next(m for m in state.mappings.values() if m.name == "t00000")
    shard = state.items[mapping.item_id].shard
    DeltaTable.create(
        str(warehouse / str(shard)),
        schema=Schema.from_json(json.dumps(json_schema(generated.columns(), stored=True))),
    )


if __name__ == "__main__":
    build(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
