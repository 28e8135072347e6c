"""What is said of users' objects before an upgrade is what is afterwards, on metastores."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.crash.conftest import reduced
from tests.postgres.conftest import FIXTURES
from tests.users.postgres_users import TWELVE

if TYPE_CHECKING:
    from tests.services.metastore import HiveMetastore

pytestmark = [pytest.mark.spark, pytest.mark.soak]

NOTHING = [["15 to 16", []], ["16 to 15", []], ["15 to 16", []], ["16 to 18", []]]


def told(
    home: Path, releases: dict[int, Path], *, only: Collection[str] | None, load: bool,
    spark: dict[str, str], metastore: str | None,
) -> Any:
    """What the program found in a process of its own."""
    (home / "settings.json").write_text(json.dumps({
        "spark": spark, "metastore": metastore, "only": only, "load": load,
        "releases": {version: str(path) for version, path in releases.items()},
    }))
    done = subprocess.run(
        [sys.executable, "-m", "tests.users.on_metastore", str(home)],
        capture_output=True, text=True, timeout=1800, check=False,
    )
    assert done.returncode == 0, (done.stdout, done.stderr[-4000:])
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_postgresql_on_a_shared_metastore(metastore: HiveMetastore, tmp_path: Path) -> None:
    """15, 16, back, 16 again, 18 with the real rows: every column of 44 views and seven functions
    becomes what the plan, and the start before its commit, said; status has those that broke."""
    releases = {version: FIXTURES / f"{version}.json" for version in (15, 16, 18)}
    conf = {
        "spark.sql.catalogImplementation": "hive",
        "spark.hadoop.hive.metastore.uris": metastore.address,
    }
    assert told(
        tmp_path, releases, only=None, load=True, spark=conf, metastore=None
    ) == NOTHING


def test_a_part_of_postgresql_on_an_embedded_metastore(tmp_path: Path) -> None:
    """The same on Derby, with fourteen views and two functions."""
    releases = {}
    for version in (15, 16, 18):
        releases[version] = tmp_path / f"{version}.json"
        reduced(FIXTURES / f"{version}.json", releases[version])
    assert told(
        tmp_path, releases, only=TWELVE, load=False, spark={},
        metastore=str(tmp_path / "metastore"),
    ) == NOTHING
