"""Delta tables of one feature each, as users make them on Spark."""

from __future__ import annotations

from typing import NamedTuple

TEXT = (("id", "BIGINT"), ("v", "STRING"))
ROWS = "SELECT id, CAST(id AS STRING) FROM range(20)"


class Variant(NamedTuple):
    """A table: columns as Spark makes it, the rest of CREATE TABLE, rows, what is done after them.

    ``shape`` is what a release says of its columns, ``rows`` are (columns, query) of an INSERT.
    """

    columns: str = "id BIGINT, v STRING"
    clause: str = ""
    shape: tuple[tuple[str, str], ...] = TEXT
    rows: tuple[str, str] = ("id, v", ROWS)
    after: tuple[str, ...] = ()
    deletes: bool = True


def of(*properties: str, **more: object) -> Variant:
    """The table with these properties (``key=value``)."""
    pairs = ", ".join("'{}' = '{}'".format(*each.split("=", 1)) for each in properties)
    return Variant(clause=f"TBLPROPERTIES ({pairs})", **more)  # type: ignore[arg-type]


MAPPED = "delta.columnMapping.mode=name"

VARIANTS: dict[str, Variant] = {
    "plain": Variant(),
    "deletionVectors": of("delta.enableDeletionVectors=true"),
    "rowTracking": of("delta.enableRowTracking=true", "delta.enableDeletionVectors=true"),
    "domainMetadata": of("delta.feature.domainMetadata=supported"),
    "clustering": Variant(clause="CLUSTER BY (id)", after=("OPTIMIZE {t}",)),
    "typeWidening (unused)": of("delta.enableTypeWidening=true"),
    "typeWidening": of(
        "delta.enableTypeWidening=true", columns="id INT, v STRING",
        after=("ALTER TABLE {t} ALTER COLUMN id TYPE BIGINT",),
    ),
    "columnMapping by name": of(
        MAPPED, shape=(("id", "BIGINT"), ("w", "STRING")),
        after=("ALTER TABLE {t} RENAME COLUMN v TO w",),
    ),
    "columnMapping by id": of("delta.columnMapping.mode=id"),
    "inCommitTimestamp": of("delta.enableInCommitTimestamps=true"),
    "v2Checkpoint": of("delta.checkpointPolicy=v2", "delta.checkpointInterval=1"),
    "v2Checkpoint with deletionVectors": of(
        "delta.checkpointPolicy=v2", "delta.checkpointInterval=1",
        "delta.enableDeletionVectors=true",
    ),
    "icebergCompatV1": of("delta.enableIcebergCompatV1=true", MAPPED),
    "icebergCompatV2": of("delta.enableIcebergCompatV2=true", MAPPED),
    "icebergCompatV3": of(
        "delta.enableIcebergCompatV3=true", MAPPED, "delta.enableRowTracking=true"
    ),
    "identityColumns": Variant(
        columns="id BIGINT, v STRING, n BIGINT GENERATED ALWAYS AS IDENTITY",
        shape=(*TEXT, ("n", "BIGINT")),
    ),
    "generatedColumns": Variant(
        columns="id BIGINT, v STRING, g BIGINT GENERATED ALWAYS AS (id + 1)",
        shape=(*TEXT, ("g", "BIGINT GENERATED ALWAYS AS (id + 1)")),
    ),
    "allowColumnDefaults": of(
        "delta.feature.allowColumnDefaults=supported", columns="id BIGINT, v STRING DEFAULT 'd'",
    ),
    "timestampNtz": Variant(
        columns="id BIGINT, v TIMESTAMP_NTZ", shape=(("id", "BIGINT"), ("v", "TIMESTAMP_NTZ")),
        rows=("id, v", "SELECT id, TIMESTAMP_NTZ'2020-01-01 00:00:00' FROM range(20)"),
    ),
    "variantType": Variant(
        columns="id BIGINT, v VARIANT", shape=(("id", "BIGINT"), ("v", "VARIANT")),
        rows=("id, v", "SELECT id, parse_json('{\"a\": 1}') FROM range(20)"),
    ),
    "variantShredding": of(
        "delta.enableVariantShredding=true", columns="id BIGINT, v VARIANT",
        shape=(("id", "BIGINT"), ("v", "VARIANT")),
        rows=("id, v", "SELECT id, parse_json('{\"a\": 1}') FROM range(20)"),
    ),
    "appendOnly": of("delta.appendOnly=true", deletes=False),
    "invariants": Variant(columns="id BIGINT NOT NULL, v STRING",
                          shape=(("id", "BIGINT NOT NULL"), ("v", "STRING"))),
    "checkConstraints": Variant(
        after=("ALTER TABLE {t} ADD CONSTRAINT positive CHECK (id >= 0)",),
    ),
    "changeDataFeed": of("delta.enableChangeDataFeed=true"),
    "changeDataFeed by name": of(
        "delta.enableChangeDataFeed=true", "delta.feature.changeDataFeed=supported"
    ),
    "vacuumProtocolCheck": of("delta.feature.vacuumProtocolCheck=supported"),
    "checkpointProtection": of("delta.feature.checkpointProtection=supported"),
    "materializePartitionColumns": of("delta.feature.materializePartitionColumns=supported"),
    "all together": Variant(
        columns="id INT, v STRING DEFAULT 'd', n BIGINT GENERATED ALWAYS AS IDENTITY",
        shape=(*TEXT, ("n", "BIGINT")),
        clause="CLUSTER BY (id) TBLPROPERTIES ('delta.enableDeletionVectors' = 'true',"
        " 'delta.enableRowTracking' = 'true', 'delta.enableInCommitTimestamps' = 'true',"
        " 'delta.enableTypeWidening' = 'true', 'delta.enableChangeDataFeed' = 'true',"
        " 'delta.checkpointPolicy' = 'v2', 'delta.columnMapping.mode' = 'name',"
        " 'delta.feature.allowColumnDefaults' = 'supported')",
        after=("ALTER TABLE {t} ALTER COLUMN id TYPE BIGINT", "OPTIMIZE {t}"),
    ),
}
