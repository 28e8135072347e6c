"""A Spark catalog that persists its names: no Spark job for nothing to do, and drift mended."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What two starts and a mended drift on the embedded Derby metastore said.

    They need a session of another kind than the suite's, so they run in a process of their own.
    """
    tmp_path = tmp_path_factory.mktemp("metastore")
    release = tmp_path / "release"
    release.mkdir()
    (release / "a.sql").write_text(
        "CREATE TABLE meta.t (id BIGINT NOT NULL);"
        "CREATE VIEW meta.v (id BIGINT) AS SELECT id FROM meta.t;",
        encoding="utf-8",
    )
    (release / "release.toml").write_text('name = "1"\n', encoding="utf-8")
    script = Path(__file__).with_name("metastore_start.py")
    done = subprocess.run(
        [sys.executable, str(script), str(tmp_path / "home"), str(release)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    answer = json.loads(done.stdout.splitlines()[-1])
    assert isinstance(answer, dict)
    return answer


def test_an_unchanged_start_on_a_metastore_starts_no_job(said: dict[str, Any]) -> None:
    """The second start is ``unchanged`` without one Spark job.

    The query after it is seen by the same counter, so the zero is not for want of counting.
    """
    assert said["outcomes"] == ["initialized", "unchanged"]
    assert said["jobs"][1] == 0
    assert (said["names"][1], said["rows"], said["counts_jobs"]) == (0, 0, True)


def test_the_command_line_finds_a_lost_name_and_mends_it(said: dict[str, Any]) -> None:
    """A dropped view makes ``drift`` exit 2 by name; --repair brings it back; others' stay."""
    (lost, reported), (mended, told), (clean, last) = said["drift"]
    assert (lost, mended, clean) == (2, 0, 0)
    assert reported == "missing  meta.v  the name is not registered\n"
    assert told.endswith("mended in 1 step; 0 left\n")
    assert last == "no drift: every name is what is committed\n"
    assert said["standing"] == ["t", "theirs", "v"]
