"""Version checksum files beside the commits that delta-rs makes (Delta protocol, *Version Checksum
File*).

Spark writes one with each commit and reads it instead of replaying the log; delta-rs writes none,
so that the first touch of a shard that it created costs Spark three to seven jobs. A new table's is
known, and a commit that touches no data file carries the one of the version before it over. They
are for tables that nobody else knows of yet: readers believe a checksum, also beside a commit that
a Spark has since written over.
"""

from __future__ import annotations

import json
from typing import Any

from catalog_migrate.delta.commits import read_actions
from catalog_migrate.delta.log import checksum_name
from catalog_migrate.errors import EngineFailure
from catalog_migrate.store import store_at

_EMPTY: dict[str, Any] = {
    "tableSizeBytes": 0, "numFiles": 0, "numMetadata": 1, "numProtocol": 1, "setTransactions": [],
    "domainMetadata": [], "allFiles": [],
}
_CARRIED = frozenset({"commitInfo", "metaData", "protocol"})
_IN_COMMIT_TIMESTAMP = "delta.enableInCommitTimestamps"


def write_checksum(path: str, version: int) -> bool:
    """Write the checksum of a version whose commit changes metadata or protocol alone.

    Returns whether one was written: not where the version before has none, where the commit does
    anything else, and where Spark has written its own. It is never needed, only fast.
    """
    checksum = _checksum(path, version)
    if checksum is None:
        return False
    data = json.dumps(checksum, separators=(",", ":")) + "\n"
    try:
        return store_at(path).put_if_absent(
            checksum_name(version), data.encode(), durable=False
        )
    except OSError:
        return False  # the log is whole without it


def _checksum(path: str, version: int) -> dict[str, Any] | None:
    """The checksum of a version, None where it does not follow from the one before it."""
    try:
        if version == 0:
            checksum = dict(_EMPTY)
        else:
            checksum = json.loads(store_at(path).read(checksum_name(version - 1)))
        actions = read_actions(path, version)
    except (OSError, ValueError, EngineFailure):
        return None
    checksum.pop("txnId", None)
    for action in actions:
        if not action.keys() <= _CARRIED:
            return None
        if "metaData" in action:
            checksum["metadata"] = action["metaData"]
        if "protocol" in action:
            checksum["protocol"] = action["protocol"]
    metadata = checksum.get("metadata")
    if metadata is None or "protocol" not in checksum:
        return None
    configuration: dict[str, str] = metadata.get("configuration") or {}
    # then every commit and every checksum carries a time of its own
    return None if configuration.get(_IN_COMMIT_TIMESTAMP, "").lower() == "true" else checksum
