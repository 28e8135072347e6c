"""The seal against writers that never pause: real processes on a real Delta log, without Spark."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from deltalake import DeltaTable

from catalog_migrate.delta import seal as seals
from catalog_migrate.delta.table import shard_size, shard_version
from catalog_migrate.engine.port import ShardSpec
from catalog_migrate.engine.spark.shards import Shards
from catalog_migrate.errors import EngineFailure
from catalog_migrate.model.objects import Column

APP = "catalog_migrate/test"
WRITER = Path(__file__).with_name("appending.py")
SECONDS = 120.0


@pytest.fixture
def path(warehouse: str) -> str:
    """An empty shard of two columns."""
    path = f"{warehouse}/t"
    Shards(None).create_shard(ShardSpec(path, (Column("writer", "BIGINT"), Column("n", "BIGINT"))))
    return path


def version_of(path: str) -> int:
    version = shard_version(path)
    assert version is not None
    return version


def test_a_seal_lands_among_writers_that_never_pause(path: str) -> None:
    """Three processes append as fast as they can: the seal lands, and every acknowledged row,
    no more and no fewer, is below it; each writer is refused by an error."""
    writers = [
        subprocess.Popen(
            [sys.executable, str(WRITER), path, str(number)], stdout=subprocess.PIPE, text=True
        )
        for number in range(3)
    ]
    try:
        deadline = time.monotonic() + SECONDS
        while version_of(path) < 10:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        follows = version_of(path)
        sealed = seals.seal(path, follows=follows, app_id=APP, epoch=1)
        said = [json.loads(writer.communicate(timeout=SECONDS)[0]) for writer in writers]
    finally:
        for writer in writers:
            writer.kill()
            writer.wait()
    assert sealed > follows
    assert version_of(path) == sealed
    assert seals.is_sealed(path)
    before = DeltaTable(path, version=sealed - 1)
    assert seals.SEAL.keys().isdisjoint(before.metadata().configuration)
    landed = sum(writer["landed"] for writer in said)
    assert shard_size(path)[0] == landed == sealed - 1
    assert all(writer["refused"] for writer in said)


def test_a_seal_under_way_loses_to_the_fence_of_a_successor(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A holder that stops between its look at the log and its commit finds the fence afterwards."""
    link = os.link

    def stopped_before_the_version_is_taken(partial: str, target: str) -> None:
        monkeypatch.setattr(os, "link", link)
        seals.fence(path, APP, 5)
        link(partial, target)

    monkeypatch.setattr(os, "link", stopped_before_the_version_is_taken)
    with pytest.raises(EngineFailure, match="epoch above 4 has fenced") as caught:
        seals.seal(path, follows=0, app_id=APP, epoch=4)
    assert caught.value.condition == "SEAL_CONFLICT"
    assert not seals.is_sealed(path)
    assert version_of(path) == 1


def test_a_seal_goes_behind_a_deletion(path: str) -> None:
    """Rows that somebody removes meanwhile are a commit of data too."""
    from arro3.core import Array, DataType, Table
    from deltalake import write_deltalake

    rows = Array([1, 2], type=DataType.int64())
    write_deltalake(path, Table.from_pydict({"writer": rows, "n": rows}), mode="append")
    DeltaTable(path).delete("n = 1")
    assert seals.seal(path, follows=1, app_id=APP, epoch=1) == 3
    assert shard_size(path)[0] == 1


def test_an_unsealed_shard_is_as_it_was(path: str) -> None:
    """Sealing and unsealing leaves the earlier values, and the shard takes rows and seals again."""
    DeltaTable(path).alter.set_table_properties({"delta.appendOnly": "true"})
    earlier, before = seals.seal_properties(path), DeltaTable(path).metadata().configuration
    seals.seal(path, follows=version_of(path), app_id=APP, epoch=1)
    seals.unseal(path, earlier)
    assert not seals.is_sealed(path)
    assert DeltaTable(path).metadata().configuration == before
    assert seals.seal(path, follows=version_of(path), app_id=APP, epoch=1) == version_of(path)


def test_a_seal_whose_constraint_somebody_took_off_goes_whole(path: str) -> None:
    """Else the table, in force again, would refuse UPDATE and DELETE for ever; one that was
    append-only before stays so, and what a user sets without a seal is theirs."""
    earlier = seals.seal_properties(path)
    seals.seal(path, follows=0, app_id=APP, epoch=1)
    DeltaTable(path).alter.drop_constraint(seals.SEAL_CONSTRAINT)
    seals.unseal(path, earlier, app_id=APP, epoch=1)
    assert seals.SEAL.keys().isdisjoint(DeltaTable(path).metadata().configuration)
    version = version_of(path)
    seals.unseal(path, earlier, app_id=APP, epoch=1)
    assert version_of(path) == version
    DeltaTable(path).alter.set_table_properties({"delta.appendOnly": "true"})
    seals.unseal(path, earlier, app_id=APP, epoch=1)
    assert version_of(path) == version + 1


def test_a_late_holder_leaves_its_successors_seal_alone(path: str) -> None:
    """One that wakes under an older epoch can neither take the seal off nor lower the epoch."""
    earlier = seals.seal_properties(path)
    seals.seal(path, follows=version_of(path), app_id=APP, epoch=3)
    sealed = version_of(path)
    for act in (
        lambda: seals.unseal(path, earlier, app_id=APP, epoch=2),
        lambda: seals.fence(path, APP, 2),
    ):
        with pytest.raises(EngineFailure) as caught:
            act()
        assert caught.value.condition == "FENCED"
    assert (seals.is_sealed(path), version_of(path)) == (True, sealed)
    seals.unseal(path, earlier, app_id=APP, epoch=3)
    assert not seals.is_sealed(path)


def test_the_order_of_a_columns_metadata_is_no_change(warehouse: str) -> None:
    """delta-rs hands out a field's metadata in any order; only its content is compared."""
    from arro3.core import Array, DataType, Table
    from deltalake import DeltaTable, write_deltalake

    path = f"{warehouse}/mapped"
    Shards(None).create_shard(ShardSpec(path, (Column("n", "BIGINT", comment="a"),)))
    words = {f"key{number}": f"value {number}" for number in range(8)}
    DeltaTable(path).alter.set_column_metadata("n", words)
    follows = version_of(path)
    rows = Table.from_pydict({"n": Array([1], type=DataType.int64())})
    for number in range(4):
        write_deltalake(path, rows, mode="append")
        sealed = seals.seal(path, follows=follows, app_id=APP, epoch=1)
        assert sealed == follows + 2
        seals.unseal(path, {})
        follows = version_of(path)
        assert shard_size(path)[0] == number + 1


def test_the_first_epoch_is_none_too_late(path: str) -> None:
    """A table that carries no epoch is anybody's, of the very first one as well."""
    seals.fence(path, APP, 0)
    with pytest.raises(EngineFailure, match="epoch 0"):
        seals.fence(path, APP, -1)


def test_a_refused_seal_names_the_table(path: str) -> None:
    """And says who came before it."""
    seals.fence(path, APP, 5)
    follows = version_of(path)
    with pytest.raises(EngineFailure) as refused:
        seals.seal(path, follows=follows, app_id=APP, epoch=4)
    assert refused.value.message == (
        f"cannot seal {path}: a holder of an epoch above 4 has fenced it"
    )
    assert refused.value.transient


def test_a_seal_that_is_not_taken_off_names_the_table(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another commit came between the look and the seal's own."""
    earlier = seals.seal_properties(path)
    seals.seal(path, follows=version_of(path), app_id=APP, epoch=1)
    stale = seals.view_table(path)
    seals.fence(path, APP, 1)
    monkeypatch.setattr(seals, "view_table", lambda _: stale)
    with pytest.raises(EngineFailure) as refused:
        seals.unseal(path, earlier)
    assert refused.value.message == f"cannot seal {path}: another commit came between"
