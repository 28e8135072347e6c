"""What `make test`, `make test-all` and `.ci/run` run: together everything that guards a merge."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.stories import STORIES

ROOT = Path(__file__).parents[2]


def selections() -> list[list[str]]:
    """The arguments of each call of pytest by `make test-all`, without those of a run around."""
    make = shutil.which("make")
    if make is None:
        pytest.fail("there is no make")
    given = ("MAKEFLAGS", "MAKELEVEL", "PYTEST", "WORKERS")
    done = subprocess.run(
        [make, "--dry-run", "test-all"], cwd=ROOT, text=True, capture_output=True, check=True,
        env={name: value for name, value in os.environ.items() if name not in given},
    )
    calls = [shlex.split(line) for line in done.stdout.splitlines() if " -m pytest " in line]
    return [call[call.index("pytest") + 1 :] for call in calls]


def test_what_make_test_leaves_out_is_in_the_rest() -> None:
    """Two runs without a path of their own, the second of all that the first has not chosen."""
    first, rest = selections()
    for call in (first, rest):
        assert [each for each in call if not each.startswith("--")] == [
            "loadgroup", "-n", "3", "-m", call[-1]
        ]
    assert first[-1] == "story or not jvm"
    assert rest[-1] == f"not ({first[-1]})"


def test_each_mechanism_has_its_story_in_make_test() -> None:
    """Of the tests with a JVM in these files `make test` runs the stories and no other."""
    assert set(STORIES) == {
        "a migration with rows and kills", "ALTER CONNECTION on a broker", "an unsafe operation",
        "a PostgreSQL source", "rows and catalog on S3", "Spark Connect",
    }
    files = sorted({test.partition("::")[0] for test in STORIES.values()})
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "--collect-only", "-q", "-n", "0",
         "-m", f"({selections()[0][-1]}) and jvm", *files],
        cwd=ROOT, text=True, capture_output=True, check=True,
    )  # fmt: skip
    chosen = {line for line in done.stdout.splitlines() if "::" in line}
    assert chosen == set(STORIES.values())


@pytest.mark.parametrize("failing", ["", "lint", "test", "test-rest"])
def test_ci_runs_all_and_says_when_a_part_fails(tmp_path: Path, failing: str) -> None:
    """Lint comes first and alone ends it; each half writes its own report, whatever the other does.

    A ``make`` of the test's own writes down how it is called.
    """
    calls = tmp_path / "calls"
    make = tmp_path / "make"
    make.write_text(f'#!/bin/sh\necho "$@" >> {calls}\n[ "$1" != "{failing}" ]\n')
    make.chmod(0o755)
    (tmp_path / "chromium").symlink_to("/bin/true")
    done = subprocess.run(
        [ROOT / ".ci" / "run"], env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    )
    halves = [
        "test PYTEST=--junitxml=build/junit.xml", "test-rest PYTEST=--junitxml=build/junit-rest.xml"
    ]
    assert calls.read_text().splitlines() == ["lint", *([] if failing == "lint" else halves)]
    assert (done.returncode != 0) == bool(failing)


def test_ci_fails_without_a_browser(tmp_path: Path) -> None:
    """A Chromium that is missing and cannot be installed ends it before the tests, and is named."""
    for name, answer in (("make", "exit 0"), ("apt-get", "exit 100"), ("id", "echo 0")):
        (tmp_path / name).write_text(f"#!/bin/sh\n{answer}\n")
        (tmp_path / name).chmod(0o755)
    for name in ("bash", "env", "dirname"):
        (tmp_path / name).symlink_to(str(shutil.which(name)))
    done = subprocess.run(
        [ROOT / ".ci" / "run"], env={"PATH": str(tmp_path)}, capture_output=True, text=True
    )
    assert done.returncode == 1
    assert done.stderr == (
        "ci: there is no Chromium, and it could not be installed\n"
        "  remedy: install it (Debian and Ubuntu: apt-get install chromium)\n"
    )
