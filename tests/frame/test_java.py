"""What the user reads when Java is missing or wrong."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from catalog_migrate.engine.spark.java import check_java, java_version, prefer_short_runs
from catalog_migrate.errors import PrerequisiteMissing


def _program(directory: Path, says: str, status: int = 0) -> Path:
    """A real program named ``java`` that answers ``-version`` on stderr, as Java does."""
    directory.mkdir(parents=True, exist_ok=True)
    program = directory / "java"
    program.write_text(f"#!/bin/sh\ncat >&2 <<'TEXT'\n{says}\nTEXT\nexit {status}\n")
    program.chmod(0o755)
    return program


def _path(directory: Path) -> dict[str, str]:
    return {"PATH": str(directory)}


@pytest.mark.parametrize(
    ("says", "major"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('openjdk version "21" 2023-09-19', 21),
        ('java version "1.8.0_402"', 8),
        ('Picked up JAVA_TOOL_OPTIONS: -Xmx1g\nopenjdk version "11.0.2" 2019-01-15', 11),
    ],
)
def test_the_major_version_is_read_from_what_java_says(
    tmp_path: Path, says: str, major: int
) -> None:
    """Old and new ways of writing a version, with lines before it, give the major number."""
    assert java_version(str(_program(tmp_path, says))) == major


@pytest.mark.parametrize("version", ["17.0.15", "21.0.2"])
def test_java_17_and_21_are_accepted_from_the_path(tmp_path: Path, version: str) -> None:
    """The program found on the PATH is returned when Spark runs on its version."""
    program = _program(tmp_path, f'openjdk version "{version}"')
    assert check_java({"PATH": f"{tmp_path}{os.pathsep}{os.defpath}"}) == str(program)


def test_java_home_wins_over_the_path(tmp_path: Path) -> None:
    """As in Spark's launcher, JAVA_HOME decides."""
    _program(tmp_path / "path", 'openjdk version "11"')
    program = _program(tmp_path / "home" / "bin", 'openjdk version "21"')
    env = {
        "JAVA_HOME": str(tmp_path / "home"),
        "PATH": f"{tmp_path / 'path'}{os.pathsep}{os.defpath}",
    }
    assert check_java(env) == str(program)


def test_no_java_says_so_with_the_package_to_install(tmp_path: Path) -> None:
    """Without any Java the sentence says where was looked, the remedy names the package."""
    with pytest.raises(PrerequisiteMissing) as caught:
        check_java(_path(tmp_path))
    assert (
        caught.value.message
        == "there is no Java: JAVA_HOME is not set and no java is on the PATH"
    )
    assert "openjdk-17-jre-headless" in str(caught.value)
    assert caught.value.exit_code == 1


def test_a_wrong_java_says_which_one_it_is(tmp_path: Path) -> None:
    """Java 11 is named with its path, its version and the versions wanted."""
    program = _program(tmp_path, 'openjdk version "11.0.2" 2019-01-15')
    with pytest.raises(PrerequisiteMissing) as caught:
        check_java({"PATH": f"{tmp_path}{os.pathsep}{os.defpath}"})
    assert caught.value.message == f"{program} is Java 11; Spark 4 needs Java 17 or 21"
    assert caught.value.data["version"] == 11
    assert "openjdk-17-jre-headless" in (caught.value.remedy or "")


def test_a_java_home_without_java_says_so(tmp_path: Path) -> None:
    """A JAVA_HOME that leads nowhere is the error, even when a java is on the PATH."""
    with pytest.raises(PrerequisiteMissing) as caught:
        check_java({"JAVA_HOME": str(tmp_path), "PATH": os.defpath})
    assert caught.value.message == (
        f"JAVA_HOME is {tmp_path}, but there is no program {tmp_path / 'bin' / 'java'}"
    )
    assert (caught.value.remedy or "").startswith("unset JAVA_HOME")


def test_a_java_that_only_tells_where_to_get_one_is_quoted(tmp_path: Path) -> None:
    """The placeholder of some systems answers with advice instead of a version."""
    _program(tmp_path, "The operation could not be completed.", status=1)
    with pytest.raises(PrerequisiteMissing, match="The operation could not be completed"):
        check_java({"PATH": f"{tmp_path}{os.pathsep}{os.defpath}"})


def test_a_file_that_cannot_be_run_keeps_its_cause(tmp_path: Path) -> None:
    """What the system said when the program did not start stays attached as the cause."""
    broken = tmp_path / "java"
    broken.write_bytes(b"\x00not a program")
    broken.chmod(0o755)
    with pytest.raises(PrerequisiteMissing) as caught:
        java_version(str(broken))
    assert isinstance(caught.value.__cause__, OSError)


def test_a_short_run_keeps_what_the_user_set_for_java() -> None:
    """Compiling quickly is a preference of demonstrations and tests, never an order."""
    ours: dict[str, str] = {}
    prefer_short_runs(ours)
    assert "TieredStopAtLevel" in ours["JDK_JAVA_OPTIONS"]
    assert "ReservedCodeCacheSize" in ours["JDK_JAVA_OPTIONS"]
    theirs = {"JDK_JAVA_OPTIONS": "-Xmx1g"}
    prefer_short_runs(theirs)
    assert theirs == {"JDK_JAVA_OPTIONS": "-Xmx1g"}
