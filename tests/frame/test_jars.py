"""The lock of jars, and what the user reads when a jar or Java is missing or wrong."""

from __future__ import annotations

import hashlib
import os
import re
import threading
from pathlib import Path

import pytest

from catalog_migrate.engine.spark import jars as jars_module
from catalog_migrate.engine.spark.jars import (
    SETTINGS_VARIABLE,
    LockedJar,
    cache_directory,
    check_java,
    delta_jars,
    ensure_jars,
    ivy_module,
    java_version,
    prefer_short_runs,
    read_locked_jars,
)
from catalog_migrate.engine.spark.object_stores.settings import s3_jars
from catalog_migrate.engine.spark.session import session_jars
from catalog_migrate.errors import PrerequisiteMissing

CONTENTS = {"first": b"the first jar", "second": b"the second jar, a longer one"}


def _jar(name: str, contents: bytes) -> LockedJar:
    return LockedJar("org.made", name, "1.0", len(contents), hashlib.sha256(contents).hexdigest())


def _lock() -> list[LockedJar]:
    return [_jar(name, contents) for name, contents in CONTENTS.items()]


@pytest.fixture
def mirror(tmp_path: Path) -> Path:
    """A repository of two jars on disk, and the Ivy settings file that names it."""
    for name, contents in CONTENTS.items():
        directory = tmp_path / "mirror" / "org" / "made" / name / "1.0"
        directory.mkdir(parents=True)
        (directory / f"{name}-1.0.jar").write_bytes(contents)
        (directory / f"{name}-1.0.pom").write_text(
            "<project><modelVersion>4.0.0</modelVersion><groupId>org.made</groupId>"
            f"<artifactId>{name}</artifactId><version>1.0</version></project>"
        )
    root = (tmp_path / "mirror").as_uri()
    settings = tmp_path / "ivysettings.xml"
    settings.write_text(
        '<ivysettings><settings defaultResolver="mirror"/><resolvers>'
        f'<ibiblio name="mirror" m2compatible="true" root="{root}"/>'
        "</resolvers></ivysettings>"
    )
    return settings


@pytest.fixture
def env(tmp_path: Path, mirror: Path) -> dict[str, str]:
    """This machine's environment with an empty cache and the mirror."""
    return {
        **os.environ,
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
        SETTINGS_VARIABLE: str(mirror),
    }


@pytest.mark.parametrize(
    ("version", "count", "size", "first"),
    [
        ("4.0.1", 6, 17707802, "io.delta:delta-spark_2.13:4.0.1"),
        ("4.1.1", 9, 22148844, "io.delta:delta-spark_4.1_2.13:4.3.1"),
        ("4.2.0", 11, 23317519, "io.delta:delta-spark_4.2_2.13:4.4.0"),
    ],
)
def test_a_lock_names_its_jars_with_size_and_checksum(
    monkeypatch: pytest.MonkeyPatch, version: str, count: int, size: int, first: str
) -> None:
    """One lock for each PySpark; each jar has a sha256 and a file name of its own."""
    monkeypatch.setattr(jars_module, "pyspark_version", lambda: version)
    jars = read_locked_jars()
    assert len(jars) == count
    assert sum(jar.size for jar in jars) == size
    assert all(re.fullmatch(r"[0-9a-f]{64}", jar.sha256) for jar in jars)
    assert len({jar.filename for jar in jars}) == count
    assert jars[0].coordinates == first
    assert f"org.apache.spark:spark-sql-kafka-0-10_2.13:{version}" in {
        jar.coordinates for jar in jars
    }


@pytest.mark.parametrize(("version", "count"), [("4.0.1", 2), ("4.1.1", 5), ("4.2.0", 7)])
def test_without_kafka_delta_is_left(
    monkeypatch: pytest.MonkeyPatch, version: str, count: int
) -> None:
    """A session that reads no topic, such as the demonstration's, has Delta's jars alone."""
    monkeypatch.setattr(jars_module, "pyspark_version", lambda: version)
    left = delta_jars()
    assert len(left) == count
    assert {jar.organisation for jar in read_locked_jars()[: len(left)]} == {
        jar.organisation for jar in left
    }
    assert all(
        "kafka" in jar.artifact or jar.artifact == "commons-pool2"
        for jar in read_locked_jars() if jar not in left
    )


@pytest.mark.parametrize("version", ["3.5.4", "4.0.0", "4.1.0", "4.2.1", "4.3.0"])
def test_a_pyspark_without_a_lock_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, version: str
) -> None:
    """One in between or outside: the sentence has the list of those that are locked."""
    (tmp_path / "version.py").write_text(f'# text\n\n__version__: str = "{version}"\n')
    monkeypatch.setattr(jars_module, "locate_pyspark", lambda: tmp_path)
    with pytest.raises(PrerequisiteMissing) as caught:
        ensure_jars()
    assert caught.value.message == (
        f"PySpark {version} is installed, and jars are locked for 4.0.1, 4.1.1 and 4.2.0 only"
    )
    assert (caught.value.remedy or "").startswith("pip install pyspark==4.2.0, or hand over")


def test_s3_needs_a_hadoop_that_writes_on_a_condition(monkeypatch: pytest.MonkeyPatch) -> None:
    """The Hadoop of 4.0 is too old: rows on S3 are refused before a jar is fetched."""
    monkeypatch.setattr(jars_module, "pyspark_version", lambda: "4.1.1")
    assert s3_jars()[0].coordinates == "org.apache.hadoop:hadoop-aws:3.4.2"
    monkeypatch.setattr(jars_module, "pyspark_version", lambda: "4.0.1")
    with pytest.raises(PrerequisiteMissing, match=r"PySpark 4\.0\.1 has a Hadoop without") as error:
        session_jars(["s3://bucket/w"])
    assert error.value.remedy == (
        "use PySpark 4.1.1 or 4.2.0 for rows on S3, or keep them on a disk"
    )


def test_every_jar_is_asked_for_without_what_it_depends_on() -> None:
    """The Ivy file holds each jar once, none of them transitively."""
    text = ivy_module(_lock())
    assert text.count("<dependency ") == 2
    assert text.count('transitive="false"') == 2
    assert '<dependency org="org.made" name="first" rev="1.0" transitive="false"/>' in text


def test_the_cache_follows_xdg_only_when_it_is_absolute(tmp_path: Path) -> None:
    """A relative XDG_CACHE_HOME is ignored, as its specification says."""
    assert cache_directory({"XDG_CACHE_HOME": str(tmp_path)}) == (
        tmp_path / "catalog-migrate" / "jars"
    )
    home = Path.home() / ".cache" / "catalog-migrate" / "jars"
    assert cache_directory({"XDG_CACHE_HOME": "relative"}) == home
    assert cache_directory({}) == home


@pytest.mark.spark
def test_missing_jars_are_fetched_once_and_then_only_looked_at(env: dict[str, str]) -> None:
    """The first call downloads and says so; the second says nothing and starts no Java."""
    said: list[str] = []
    paths = ensure_jars(said.append, jars=_lock(), env=env)
    assert [Path(path).read_bytes() for path in paths] == list(CONTENTS.values())
    directory = cache_directory(env)
    assert said == [
        f"fetching 2 of 2 jars (0.0 MB) into {directory}",
        "downloading first-1.0.jar",
        "downloading second-1.0.jar",
        "all 2 jars are there and verified",
    ]
    said.clear()
    assert ensure_jars(said.append, jars=_lock(), env={**env, "PATH": "", "JAVA_HOME": ""}) == paths
    assert said == []
    assert sorted(entry.name for entry in directory.iterdir()) == [
        "org.made_first-1.0.jar",
        "org.made_first-1.0.jar.verified",
        "org.made_second-1.0.jar",
        "org.made_second-1.0.jar.verified",
    ]


@pytest.mark.spark
def test_only_a_damaged_jar_is_fetched_again(env: dict[str, str]) -> None:
    """A jar changed on disk, its size kept, is recognised by its checksum and replaced."""
    paths = ensure_jars(jars=_lock(), env=env)
    Path(paths[0]).write_bytes(CONTENTS["first"].upper())
    os.utime(paths[0], ns=(1, 1))
    said: list[str] = []
    ensure_jars(said.append, jars=_lock(), env=env)
    assert said[0].startswith("fetching 1 of 2 jars")
    assert Path(paths[0]).read_bytes() == CONTENTS["first"]


@pytest.mark.spark
def test_a_download_with_a_wrong_checksum_is_not_kept(env: dict[str, str]) -> None:
    """The sentence names the jar and both checksums; the cache stays without it."""
    wrong = LockedJar("org.made", "first", "1.0", len(CONTENTS["first"]), "0" * 64)
    with pytest.raises(PrerequisiteMissing) as caught:
        ensure_jars(jars=[wrong], env=env)
    assert caught.value.message == (
        "the download of org.made:first:1.0 is not the locked jar: 13 bytes with sha256"
        f" {hashlib.sha256(CONTENTS['first']).hexdigest()}, where 13 bytes with {'0' * 64} are"
        " locked; nothing was kept"
    )
    assert "mirror" in (caught.value.remedy or "")
    assert list(cache_directory(env).iterdir()) == []


@pytest.mark.spark
def test_a_refused_download_names_the_jar_and_the_settings_variable(env: dict[str, str]) -> None:
    """A jar that the mirror does not have is named, with the way to another mirror."""
    with pytest.raises(PrerequisiteMissing) as caught:
        ensure_jars(jars=[*_lock(), _jar("third", b"?")], env=env)
    assert caught.value.message.startswith("3 of 3 jars could not be downloaded: ")
    assert "org.made:third:1.0" in caught.value.message
    assert SETTINGS_VARIABLE in (caught.value.remedy or "")
    assert any("third" in line for line in caught.value.data["complaints"])
    assert list(cache_directory(env).iterdir()) == []


@pytest.mark.soak
@pytest.mark.spark
def test_a_mirror_that_refuses_connections_is_quoted(env: dict[str, str], mirror: Path) -> None:
    """Ivy's own reason stands in the sentence, before what follows from it."""
    mirror.write_text(
        '<ivysettings><settings defaultResolver="closed"/><resolvers>'
        '<ibiblio name="closed" m2compatible="true" root="http://127.0.0.1:1/"/>'
        "</resolvers></ivysettings>"
    )
    with pytest.raises(PrerequisiteMissing) as caught:
        ensure_jars(jars=_lock(), env=env)
    assert caught.value.message.startswith(
        "2 of 2 jars could not be downloaded: org.made:first:1.0, org.made:second:1.0 ("
    )
    assert "Connection refused" in caught.value.message


@pytest.mark.spark
def test_settings_that_are_not_a_file_are_said_so(env: dict[str, str], tmp_path: Path) -> None:
    """The variable's name and its value stand in the sentence."""
    with pytest.raises(PrerequisiteMissing) as caught:
        ensure_jars(jars=_lock(), env={**env, SETTINGS_VARIABLE: str(tmp_path / "none.xml")})
    assert caught.value.message == (
        f"{SETTINGS_VARIABLE} names {tmp_path / 'none.xml'}, which is not a file"
    )


def test_a_missing_java_is_said_before_anything_is_downloaded(env: dict[str, str]) -> None:
    """Without Java the jars cannot be fetched, and the remedy is Java's."""
    with pytest.raises(PrerequisiteMissing, match="there is no Java"):
        ensure_jars(jars=_lock(), env={**env, "PATH": "", "JAVA_HOME": ""})


@pytest.mark.spark
def test_two_processes_at_once_both_end_with_whole_jars(env: dict[str, str]) -> None:
    """Fetching twice at the same time works, and no private directory is left behind."""
    check_java()
    answers: list[list[str]] = []
    threads = [
        threading.Thread(target=lambda: answers.append(ensure_jars(jars=_lock(), env=env)))
        for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(answers) == 2
    assert answers[0] == answers[1]
    assert [Path(path).read_bytes() for path in answers[0]] == list(CONTENTS.values())
    assert len(list(cache_directory(env).iterdir())) == 4


# -- Java ------------------------------------------------------------------------------------------

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
