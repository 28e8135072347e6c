"""A Spark catalog that persists its names: a start with nothing to do costs no Spark job."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.spark


def test_an_unchanged_start_on_a_metastore_starts_no_job(tmp_path: Path) -> None:
    """On the embedded Derby metastore the second start is ``unchanged`` without one Spark job.

    It needs a session of another kind than the suite's, so it runs in a process of its own. The
    query after it is seen by the same counter, so the zero is not for want of counting.
    """
    release = tmp_path / "release"
    release.mkdir()
    (release / "a.sql").write_text(
        "CREATE TABLE meta.t (id BIGINT NOT NULL);"
        "CREATE VIEW meta.v (id BIGINT) AS SELECT id FROM meta.t;", encoding="utf-8"
    )
    (release / "release.toml").write_text('name = "1"\n', encoding="utf-8")
    script = Path(__file__).with_name("metastore_start.py")
    done = subprocess.run(
        [sys.executable, str(script), str(tmp_path / "home"), str(release)],
        capture_output=True, text=True, timeout=300, check=False, cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    said = json.loads(done.stdout.splitlines()[-1])
    assert said["outcomes"] == ["initialized", "unchanged"]
    assert said["jobs"][1] == 0
    assert (said["names"][1], said["rows"], said["counts_jobs"]) == (0, 0, True)
