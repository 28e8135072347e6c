"""Commits of ours to tables with features: a time in each, and none where one is not known."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from catalog_migrate.delta import seal as seals
from catalog_migrate.delta.log import commit_name, put_commit, read_actions
from catalog_migrate.delta.table import (
    commit_transactions,
    create_empty,
    find_unsupported,
    form_of,
    make_append_only,
    set_properties_after,
    shard_size,
    view_table,
)
from catalog_migrate.errors import EngineFailure, UnsupportedTable
from tests.delta.logs import SCHEMA, add, metadata, protocol, write_commit

APP = "catalog_migrate/test"
TIMED = "delta.enableInCommitTimestamps"
FUTURE = 4_102_444_800_000
"""2100, by a writer whose clock is off."""


def timed_commit(path: str, version: int, at: int, *actions: Any) -> None:
    write_commit(path, version, {"commitInfo": {"inCommitTimestamp": at, "timestamp": 1}}, *actions)


@pytest.fixture
def timed(tmp_path: Path) -> str:
    """A table with in-commit timestamps, ahead of this machine's clock."""
    path = str(tmp_path / "t")
    timed_commit(path, 0, FUTURE, protocol("inCommitTimestamp"), metadata(**{TIMED: "true"}))
    return path


def times(path: str) -> list[int]:
    """The in-commit timestamp of each version, which is the first thing in it."""
    return [
        json.loads((Path(path) / commit_name(version)).read_text().splitlines()[0])["commitInfo"][
            "inCommitTimestamp"
        ]
        for version in range(view_table(path).version() + 1)
    ]


def test_each_commit_of_ours_has_a_time_above_the_one_before(timed: str) -> None:
    """Whatever it is for, and whatever clock the last writer had."""
    earlier = seals.seal_properties(timed)
    seals.fence(timed, APP, 1)
    seals.seal(timed, follows=1, app_id=APP, epoch=1)
    seals.unseal(timed, earlier, app_id=APP, epoch=1)
    set_properties_after(timed, {"a.b": "c"}, follows=3)
    commit_transactions(view_table(timed), {"a": 1})
    assert make_append_only(timed)
    assert times(timed) == list(range(FUTURE, FUTURE + 7))


def test_a_commit_that_was_raced_for_is_above_the_one_that_came(
    timed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The time is made again for each version that is tried."""
    link = os.link

    def late(partial: str, target: str) -> None:
        monkeypatch.setattr(os, "link", link)
        timed_commit(timed, 1, FUTURE + 50, add("a", 3))
        timed_commit(timed, 2, FUTURE + 90, add("b", 3))
        link(partial, target)

    monkeypatch.setattr(os, "link", late)
    assert seals.seal(timed, follows=0, app_id=APP, epoch=1) == 3
    assert times(timed) == [FUTURE, FUTURE + 50, FUTURE + 90, FUTURE + 91]


def test_the_time_of_a_commit_that_was_cleaned_up_is_in_its_checksum(timed: str) -> None:
    """Without that nothing is committed: a time that goes back breaks the table."""
    timed_commit(timed, 1, FUTURE + 5)
    DeltaTable(timed).create_checkpoint()
    log = Path(timed) / "_delta_log"
    for version in (0, 1):
        (log / f"{version:020d}.json").unlink()
    with pytest.raises(EngineFailure, match=r"version 1 .* is missing"):
        put_commit(timed, [], follows=1, operation="TEST", timed=True)
    (log / f"{1:020d}.crc").write_text(json.dumps({"inCommitTimestampOpt": FUTURE + 5}))
    put_commit(timed, [], follows=1, operation="TEST", timed=True)
    assert read_actions(timed, 2)[0]["commitInfo"]["inCommitTimestamp"] == FUTURE + 6


def test_a_table_without_the_property_has_no_times(tmp_path: Path) -> None:
    """That its protocol has the feature asks for none."""
    path = str(tmp_path / "t")
    write_commit(path, 0, protocol("inCommitTimestamp"), metadata())
    seals.fence(path, APP, 1)
    assert "inCommitTimestamp" not in read_actions(path, 1)[0]["commitInfo"]


def test_an_empty_table_of_a_form_has_a_time_too(timed: str, tmp_path: Path) -> None:
    """A shadow table, on which Spark's statements are tried."""
    create_empty(str(tmp_path / "shadow"), form_of(view_table(timed)))
    assert len(times(str(tmp_path / "shadow"))) == 1


def test_an_empty_table_of_a_form_has_a_checksum(tmp_path: Path) -> None:
    """Of its one commit, where that has no time of its own."""
    path = str(tmp_path / "t")
    write_commit(path, 0, protocol(), metadata())
    create_empty(str(tmp_path / "shadow"), form_of(view_table(path)))
    assert (tmp_path / "shadow" / "_delta_log" / f"{0:020d}.crc").is_file()


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({"minReaderVersion": 1, "minWriterVersion": 2}, {"minWriterVersion": 3}),
        ({"minReaderVersion": 2, "minWriterVersion": 5}, {"minWriterVersion": 5}),
        (
            protocol("rowTracking", "domainMetadata")["protocol"],
            {"writerFeatures": ["appendOnly", "checkConstraints", "domainMetadata", "rowTracking"]},
        ),
    ],
)
def test_a_seal_is_obeyed_by_each_writer(
    tmp_path: Path, before: dict[str, Any], after: dict[str, Any]
) -> None:
    """By the version of writers, or where features are listed by both of them."""
    path = str(tmp_path / "t")
    write_commit(path, 0, {"protocol": before}, metadata())
    seals.seal(path, follows=0, app_id=APP, epoch=1)
    assert form_of(view_table(path)).protocol == {**before, **after}
    seals.unseal(path, {})
    assert form_of(view_table(path)).configuration == {}


def test_an_insert_into_an_identity_column_is_no_change_of_metadata(tmp_path: Path) -> None:
    """Its commit has the column's last number among the metadata: the seal goes behind it."""
    path = str(tmp_path / "t")

    def schema(number: int, start: int = 1) -> Any:
        (field,) = SCHEMA["fields"]
        said = {"delta.identity.start": start, "delta.identity.highWaterMark": number}
        return {"type": "struct", "fields": [{**field, "metadata": said}]}

    write_commit(path, 0, protocol("identityColumns"), metadata(schema(0)))
    write_commit(path, 1, metadata(schema(7)), add("a", 7))
    sealed = seals.seal(path, follows=0, app_id=APP, epoch=1)
    assert (sealed, shard_size(path)[0]) == (2, 7)
    kept = json.loads(form_of(view_table(path)).metadata["schemaString"])
    assert kept["fields"][0]["metadata"]["delta.identity.highWaterMark"] == 7
    seals.unseal(path, {})
    write_commit(path, 4, metadata(schema(7, start=5)))
    with pytest.raises(EngineFailure, match="its metadata changed after version 3"):
        seals.seal(path, follows=3, app_id=APP, epoch=1)


ACTS: dict[str, Callable[[str], object]] = {
    "seal": lambda path: seals.seal(path, follows=0, app_id=APP, epoch=1),
    "fence": lambda path: seals.fence(path, APP, 1),
    "mark": lambda path: set_properties_after(path, {"a.b": "c"}, follows=0),
    "transaction": lambda path: commit_transactions(view_table(path), {"a": 1}),
    "append-only": make_append_only,
}


@pytest.mark.parametrize("act", ACTS)
@pytest.mark.parametrize(
    ("held", "said"),
    [
        (protocol("madeUp"), "table feature madeUp, which this version does not know"),
        (protocol(readers=["madeUp"]), "table feature madeUp, which this version does not know"),
        (
            protocol("inCommitTimestamp", readers=["catalogManaged"]),
            "table feature catalogManaged: its commits go through a catalog service",
        ),
        (protocol("coordinatedCommits-preview"), "coordinatedCommits-preview: its commits go"),
        ({"protocol": {"minReaderVersion": 1, "minWriterVersion": 8}}, "writer version 8"),
    ],
)
def test_a_feature_that_is_not_known_is_no_lost_race(
    tmp_path: Path, held: dict[str, Any], said: str, act: str
) -> None:
    """A typed error names it, and says what to do; nothing is written, nothing tried again."""
    path = str(tmp_path / "t")
    write_commit(path, 0, held, metadata())
    with pytest.raises(UnsupportedTable, match=said) as caught:
        ACTS[act](path)
    assert caught.value.code == "CM0406"
    assert not caught.value.transient
    assert caught.value.remedy
    assert [each.name for each in (Path(path) / "_delta_log").iterdir()] == [f"{0:020d}.json"]
    found = find_unsupported(path)
    assert found is not None
    assert found.reason in caught.value.message


@pytest.mark.parametrize("feature", ["collations", "collations-preview"])
def test_a_table_with_collations_is_counted_sealed_and_unsealed(
    tmp_path: Path, feature: str
) -> None:
    """Its columns, its statistics by collation and its domains stay as they are."""
    path = str(tmp_path / "t")
    said = {"__COLLATIONS": {"name": "icu.de_CI.75.1"}}
    field = {"name": "name", "type": "string", "nullable": True, "metadata": said}
    schema = {"type": "struct", "fields": [field]}
    domain = {"domainMetadata": {"domain": "a.b", "configuration": "{}", "removed": False}}
    write_commit(
        path, 0, protocol("domainMetadata", feature, readers=["deletionVectors"]),
        metadata(schema), domain, add("a", 9),
    )
    deleted = add("b", 7, deleted=3)
    stats = {"numRecords": 7, "statsWithCollation": {"icu.de_CI.75.1": {"min": {"name": "a"}}}}
    deleted["add"]["stats"] = json.dumps(stats)
    write_commit(path, 1, deleted)
    before = form_of(view_table(path))
    assert find_unsupported(path) is None
    assert shard_size(path)[0] == 13
    assert seals.seal(path, follows=0, app_id=APP, epoch=1) == 2
    sealed = form_of(view_table(path))
    assert seals.is_sealed(path)
    assert json.loads(sealed.metadata["schemaString"]) == schema
    assert {"domainMetadata", feature} <= sealed.features
    assert not any("domainMetadata" in action for action in read_actions(path, 2))
    seals.unseal(path, {}, app_id=APP, epoch=1)
    after = form_of(view_table(path))
    assert (after.configuration, after.metadata["schemaString"]) == (
        before.configuration, before.metadata["schemaString"]
    )
    assert shard_size(path)[0] == 13
