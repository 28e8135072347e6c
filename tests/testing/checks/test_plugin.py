"""The pytest plugin, as a team's own test run finds it by the entry point."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from .conftest import write_releases

TEST = """
from catalog_migrate.testing.checks import SampleRows, run_chain

def test_upgrades(simulated_platform, release_chain):
    run_chain(simulated_platform, release_chain, checks=[SampleRows()])
"""


def run_pytest(directory: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Pytest in a process of its own, in a project that knows nothing but the entry point."""
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:randomly", "-p", "no:cacheprovider",
         *arguments],
        cwd=directory, capture_output=True, text=True, timeout=300, check=False,
    )


def test_a_test_runs_for_every_chain(tmp_path: Path) -> None:
    """Releases named in the ini file: three pairs and the whole chain."""
    write_releases(tmp_path / "releases", "shop")
    (tmp_path / "pytest.ini").write_text(
        "[pytest]\ncatalog_migrate_releases = releases/1.0 releases/1.1 releases/2.0\n"
    )
    (tmp_path / "test_upgrades.py").write_text(TEST)
    result = run_pytest(tmp_path)
    assert result.returncode == 0, result.stdout + result.stderr
    assert "4 passed" in result.stdout


def test_releases_that_are_not_there_are_named(tmp_path: Path) -> None:
    """Nothing configured, or a path that does not exist: what to do is said, not a traceback."""
    (tmp_path / "test_upgrades.py").write_text(TEST)
    nothing = run_pytest(tmp_path)
    assert nothing.returncode != 0
    assert "release_chain needs two releases or more" in nothing.stdout + nothing.stderr
    absent = run_pytest(tmp_path, "--catalog-release", "old", "--catalog-release", "new")
    assert "no such release: old, new" in absent.stdout + absent.stderr
