"""Durable catalogs to measure on: real Delta logs on disk, filled through the start-up hook.

Runs as a process of its own (``python -m bench.corpus DIRECTORY N REACHED``), so that its memory
is not part of what is measured afterwards.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from bench import generated
from catalog_migrate.catalog.clock import SystemClock
from catalog_migrate.catalog.opening import open_log, read_state
from catalog_migrate.release.loader import load_manifest
from catalog_migrate.testing.engine import SimulatedEngine
from catalog_migrate.testing.starts import migrate


def build(directory: Path, size: int, reached: int) -> None:
    """A catalog of ``size`` objects in ``<directory>/catalog`` with two manifests beside it.

    ``same.json`` is the release in force, ``changed.json`` the next one, in which one table has a
    wider column and so have the ``reached`` views that depend on it. Names and rows are simulated;
    the log and the changed table's shard are real, and every other shard has the directory that a
    plan looks for.
    """
    tables = size // 2
    same = generated.objects(tables, size - tables, reached=reached)
    changed = generated.objects(tables, size - tables, reached=reached, widened=True)
    data = generated.manifest("1.0", same)
    directory.mkdir(parents=True)
    (directory / "same.json").write_bytes(data)
    (directory / "changed.json").write_bytes(generated.manifest("2.0", changed))
    log = open_log(str(directory / "catalog"))
    engine = SimulatedEngine(persistent=True)
    migrate(
        engine, log, load_manifest(data),
        warehouse=str(directory / "warehouse"), clock=SystemClock(), holder="bench",
    )
    root = _create_root(directory / "warehouse", log.uri)
    for path in engine.world.shards:
        if path != root:
            place = Path(path, "_delta_log")
            place.mkdir(parents=True)
            (place / f"{0:020}.json").touch()


def _create_root(warehouse: Path, uri: str) -> str:
    """The shard of the root as a real Delta table: a plan that replaces it looks at its size."""
    from deltalake import DeltaTable, Schema

    from catalog_migrate.delta.datatypes import json_schema

    state = read_state(open_log(uri))
    mapping = next(m for m in state.mappings.values() if m.name == "t00000")
    path = str(warehouse / str(state.items[mapping.item_id].shard))
    DeltaTable.create(
        path, schema=Schema.from_json(json.dumps(json_schema(generated.columns(), stored=True)))
    )
    return path


if __name__ == "__main__":
    build(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
