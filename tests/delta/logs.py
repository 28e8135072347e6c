"""Logs of tables written by hand: features that neither delta-rs nor this Spark writes."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

SCHEMA = {"type": "struct", "fields": [
    {"name": "id", "type": "long", "nullable": True, "metadata": {}},
]}


def write_commit(path: str, version: int, *actions: Mapping[str, Any]) -> None:
    """One commit, as its file has it."""
    log = Path(path) / "_delta_log"
    log.mkdir(parents=True, exist_ok=True)
    text = "".join(json.dumps(action) + "\n" for action in actions)
    (log / f"{version:020d}.json").write_text(text)


def protocol(*features: str, readers: Sequence[str] = ()) -> dict[str, Any]:
    """A protocol that lists features; ``readers`` are those that readers must know too."""
    return {"protocol": {
        "minReaderVersion": 3 if readers else 1, "minWriterVersion": 7,
        **({"readerFeatures": list(readers)} if readers else {}),
        "writerFeatures": [*features, *readers],
    }}


def metadata(schema: Any = None, **configuration: str) -> dict[str, Any]:
    """The metadata of a table of one number, or of a schema."""
    return {"metaData": {
        "id": "00000000-0000-0000-0000-000000000001",
        "format": {"provider": "parquet", "options": {}},
        "schemaString": json.dumps(schema or SCHEMA), "partitionColumns": [],
        "configuration": configuration,
    }}


def add(path: str, rows: int | None, deleted: int = 0, at: int = 1) -> dict[str, Any]:
    """A data file of ten bytes of which some rows are deleted, by a vector at a place."""
    action: dict[str, Any] = {
        "path": path, "partitionValues": {}, "size": 10, "modificationTime": 1, "dataChange": True,
    }
    if rows is not None:
        action["stats"] = json.dumps({"numRecords": rows})
    if deleted:
        action["deletionVector"] = {
            "storageType": "u", "pathOrInlineDv": "vBn[lx{q8@P<9BNH/isA", "offset": at,
            "sizeInBytes": 36, "cardinality": deleted,
        }
    return {"add": action}


def remove(added: Mapping[str, Any]) -> dict[str, Any]:
    """The removal of an added file."""
    kept = {k: v for k, v in added["add"].items() if k in ("path", "deletionVector")}
    return {"remove": {**kept, "deletionTimestamp": 1, "dataChange": True}}
