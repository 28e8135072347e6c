"""The key by which a consumer of a Kafka sink tells a repeated row from a new one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 (the name everybody knows it by)
from pyspark.sql.window import Window

from catalog_migrate.streams.spark.columns import OFFSET, PARTITION, TOPIC
from catalog_migrate.streams.spark.json_text import json_of

if TYPE_CHECKING:
    from pyspark.sql import Column as Expression
    from pyspark.sql import DataFrame

ROW_KEY = "__catalog_migrate_row_key"
_HASH = "__catalog_migrate_hash"


def with_position_keys(frame: DataFrame, topic_ids: Mapping[str, str]) -> DataFrame:
    """Rows of a Kafka source: ``<topic id>/<partition>/<offset>``, unique for ever.

    A topic without a known id goes by its name.
    """
    topic: Expression = F.col(TOPIC)
    if topic_ids:
        known = F.create_map(*(F.lit(text) for pair in topic_ids.items() for text in pair))
        topic = F.coalesce(F.try_element_at(known, topic), topic)
    return frame.withColumn(
        ROW_KEY,
        F.concat_ws(
            "/", topic, F.col(PARTITION).cast("string"), F.col(OFFSET).cast("string")
        ),
    )


def with_content_keys(frame: DataFrame, columns: Sequence[str], batch: int) -> DataFrame:
    """Other rows: ``<hash>/<batch>/<occurrence>``, the same when the batch is run again.

    The hash is over all columns (as JSON, since maps cannot be hashed); equal rows of a batch are
    numbered from 1, and which of them gets which number makes no difference.
    """
    # Without nulls: a column that was added between the two runs of a batch must change no key.
    hashed = frame.withColumn(_HASH, F.xxhash64(json_of(columns, nulls=False)))
    occurrence = F.row_number().over(Window.partitionBy(_HASH).orderBy(_HASH))
    key = F.concat_ws(
        "/", F.lower(F.hex(F.col(_HASH))), F.lit(str(batch)), occurrence.cast("string")
    )
    return hashed.withColumn(ROW_KEY, key).drop(_HASH)
