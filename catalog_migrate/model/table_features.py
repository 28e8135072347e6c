"""Delta's table features by name, and what may be done to a table that has them.

A commit that changes nothing but metadata and protocol (a seal, a mark, a change in place) asks
little of its writer: of all features only in-commit timestamps want something in it. That holds for
the features listed here, and no more is assumed of one that is not.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

WRITTEN_BY_DELTA_RS = frozenset({
    "appendOnly", "changeDataFeed", "checkConstraints", "columnMapping", "deletionVectors",
    "generatedColumns", "invariants", "timestampNtz", "v2Checkpoint", "variantType",
    "variantType-preview",
})  # fmt: skip
"""Writer features whose tables delta-rs changes as well as Spark does."""

SUPPORTED = WRITTEN_BY_DELTA_RS | {
    "allowColumnDefaults", "checkpointProtection", "clustering", "collations",
    "collations-preview", "domainMetadata", "icebergCompatV1", "icebergCompatV2",
    "icebergCompatV3", "identityColumns", "inCommitTimestamp", "materializePartitionColumns",
    "rowTracking", "typeWidening", "typeWidening-preview", "vacuumProtocolCheck",
    "variantShredding", "variantShredding-preview",
}  # fmt: skip
"""Writer features whose tables are counted, copied, changed in place, sealed and dropped."""

COORDINATED = frozenset({
    "catalogManaged", "catalogOwned-preview", "coordinatedCommits-preview", "managedCommits-dev",
})  # fmt: skip
"""Features of tables whose commits are another service's: none by path is one."""

LIMITS = (3, 7)
"""The newest reader and writer versions that are known."""


class Unsupported(msgspec.Struct, frozen=True):
    """What a table has under which nothing is done to it, and what its owner may do."""

    reason: str
    remedy: str


def find_unsupported_features(
    reader: int, writer: int, features: Iterable[str]
) -> Unsupported | None:
    """What of a protocol (versions, and features of readers and writers) is not supported, if any.

    Nothing may be committed to such a table: what its writers promise each other is not known.
    """
    held = frozenset(features)
    coordinated = sorted(held & COORDINATED)
    if coordinated:
        return Unsupported(
            f"it has the table feature {', '.join(coordinated)}: its commits go through a catalog"
            " service, and what is written to its log by path is no part of the table",
            "copy its rows into a table without the feature (CREATE TABLE … AS SELECT), and use"
            " that",
        )
    unknown = sorted(held - SUPPORTED)
    if unknown:
        return Unsupported(
            f"it has the table feature {', '.join(unknown)}, which this version does not know",
            "; ".join(f"ALTER TABLE … DROP FEATURE `{name}`" for name in unknown)
            + ", or copy its rows into a table without it (CREATE TABLE … AS SELECT)",
        )
    if reader > LIMITS[0] or writer > LIMITS[1]:
        return Unsupported(
            f"it asks for reader version {reader} and writer version {writer} of the Delta"
            f" protocol; {LIMITS[0]} and {LIMITS[1]} are the newest that this version knows",
            "upgrade catalog_migrate, or copy its rows into a table of an older protocol",
        )
    return None
