"""Version checksums beside what delta-rs commits: exact, or not there."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from catalog_migrate.delta.log import write_checksum
from catalog_migrate.engine.port import ShardSpec
from catalog_migrate.model.objects import Column

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

METADATA = {"id": "m", "schemaString": "{}", "configuration": {}}
PROTOCOL = {"minReaderVersion": 1, "minWriterVersion": 2}


def commit(table: Path, version: int, *actions: dict[str, Any]) -> None:
    """Write one commit file."""
    log = table / "_delta_log"
    log.mkdir(parents=True, exist_ok=True)
    lines = ({"commitInfo": {}}, *actions)
    (log / f"{version:020d}.json").write_text("\n".join(json.dumps(line) for line in lines))


def checksum(table: Path, version: int) -> dict[str, Any]:
    """The checksum of one version."""
    text = (table / "_delta_log" / f"{version:020d}.crc").read_text()
    found: dict[str, Any] = json.loads(text)
    return found


def test_a_new_table_has_the_checksum_of_an_empty_one(tmp_path: Path) -> None:
    """No files, the commit's own metadata and protocol; nothing else is left behind."""
    commit(tmp_path, 0, {"protocol": PROTOCOL}, {"metaData": METADATA})
    assert write_checksum(str(tmp_path), 0)
    assert checksum(tmp_path, 0) == {
        "tableSizeBytes": 0, "numFiles": 0, "numMetadata": 1, "numProtocol": 1,
        "setTransactions": [], "domainMetadata": [], "allFiles": [],
        "metadata": METADATA, "protocol": PROTOCOL,
    }
    assert len(list((tmp_path / "_delta_log").iterdir())) == 2


def test_a_change_of_metadata_carries_the_files_over(tmp_path: Path) -> None:
    """It keeps sizes and counts and changes the metadata alone."""
    commit(tmp_path, 0, {"protocol": PROTOCOL}, {"metaData": METADATA})
    before = {"txnId": "x", "numFiles": 3, "tableSizeBytes": 9, "metadata": METADATA,
              "protocol": PROTOCOL}
    (tmp_path / "_delta_log" / f"{0:020d}.crc").write_text(json.dumps(before))
    sealed = {**METADATA, "configuration": {"delta.appendOnly": "true"}}
    commit(tmp_path, 1, {"metaData": sealed})
    assert write_checksum(str(tmp_path), 1)
    assert checksum(tmp_path, 1) == {
        "numFiles": 3, "tableSizeBytes": 9, "metadata": sealed, "protocol": PROTOCOL
    }


@pytest.mark.parametrize("action", [
    {"add": {"path": "x"}}, {"remove": {"path": "x"}},
    {"domainMetadata": {"domain": "d"}}, {"txn": {"appId": "a", "version": 1}},
    {"metaData": {**METADATA, "configuration": {"delta.enableInCommitTimestamps": "true"}}},
])  # fmt: skip
def test_any_other_commit_has_none(tmp_path: Path, action: dict[str, Any]) -> None:
    """Rows, domains and commit times are for Spark to sum up."""
    commit(tmp_path, 0, {"protocol": PROTOCOL}, {"metaData": METADATA})
    write_checksum(str(tmp_path), 0)
    commit(tmp_path, 1, action)
    assert not write_checksum(str(tmp_path), 1)


def test_one_that_is_there_stays(tmp_path: Path) -> None:
    """What Spark has written is not replaced, and without a predecessor none is made up."""
    commit(tmp_path, 0, {"protocol": PROTOCOL}, {"metaData": METADATA})
    place = tmp_path / "_delta_log" / f"{0:020d}.crc"
    place.write_text("Spark's")
    assert not write_checksum(str(tmp_path), 0)
    assert place.read_text() == "Spark's"
    place.unlink()
    commit(tmp_path, 1, {"metaData": METADATA})
    assert not write_checksum(str(tmp_path), 1)


@pytest.mark.spark
def test_spark_reads_a_new_shard_without_replaying_its_log(
    spark: SparkSession, warehouse: str
) -> None:
    """The first insert into a shard that delta-rs made is one job, and its rows are all there."""
    from catalog_migrate.engine.spark.engine import SparkEngine

    engine = SparkEngine(spark)
    path = f"{warehouse}/a"
    engine.create_shard(ShardSpec(path, [Column("a", "INT", False), Column("b", "TIMESTAMP_NTZ")]))
    context: Any = spark.sparkContext
    before = context._jsc.sc().dagScheduler().numTotalJobs()
    spark.sql(f"INSERT INTO delta.`{path}` VALUES (1, NULL), (2, NULL)")
    assert context._jsc.sc().dagScheduler().numTotalJobs() - before == 1
    version = engine.shard_version(path)
    assert version is not None
    assert engine.seal(path, follows=version, app_id="x", epoch=1) == version + 1
    assert spark.sql(f"SELECT sum(a) FROM delta.`{path}`").collect()[0][0] == 3
