"""A release read from a commit: places are the repository's, nothing is checked out."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from catalog_migrate.errors import InvalidRelease, PrerequisiteMissing
from catalog_migrate.release.git import load_git
from catalog_migrate.release.loader import load_release
from catalog_migrate.release.manifest import encode_manifest

Git = Callable[..., str]


@pytest.fixture
def git(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Git:
    """Runs git in an empty repository that nobody's settings reach."""
    for variable, value in {
        "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_SYSTEM": "/dev/null",
        "GIT_AUTHOR_NAME": "t", "GIT_AUTHOR_EMAIL": "t@t", "GIT_COMMITTER_NAME": "t",
        "GIT_COMMITTER_EMAIL": "t@t", "GIT_CEILING_DIRECTORIES": str(tmp_path.parent),
    }.items():
        monkeypatch.setenv(variable, value)
    for variable in ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.chdir(tmp_path)

    def run(*args: str) -> str:
        return subprocess.run(
            ["git", *args], check=True, capture_output=True, text=True, cwd=tmp_path
        ).stdout

    run("init", "-q", "-b", "main")
    return run


def write(home: Path, **files: str) -> None:
    """Files of the release in ``<home>/db``; ``a__b`` is ``a/b``."""
    for name, text in files.items():
        path = home / "db" / f"{name.replace('__', '/')}.sql"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def commit(git: Git) -> None:
    """Everything that lies there, as one commit."""
    git("add", "-A")
    git("commit", "-qm", "x")


def test_a_commit_is_the_same_release_as_its_checkout(git: Git, tmp_path: Path) -> None:
    """Nested files, settings and hash are those of the directory; the working tree is not read."""
    view = "CREATE VIEW v (a INT) AS SELECT a FROM t;"
    write(tmp_path, t="CREATE TABLE t (a INT);", deep__é=view)
    write(tmp_path, **{".hidden__x": "CREATE TABLE nope (a INT);"})
    (tmp_path / "db" / "release.toml").write_text('name = "7"\ndefault_schema = "s"\n')
    commit(git)
    there = load_release(tmp_path / "db")
    write(tmp_path, t="garbage")
    found = load_git("git:main:db")
    assert (found.name, found.objects, found.manifest_hash) == (
        "7", there.objects, there.manifest_hash
    )
    places = {place.file for place in found.places.values()}
    assert places == {"main:db/t.sql", "main:db/deep/é.sql"}
    assert load_git("git:HEAD:./db/", directory=str(tmp_path)).manifest_hash == found.manifest_hash


def test_a_directory_below_the_top_reads_the_whole_release(git: Git, tmp_path: Path) -> None:
    """Where the command stands does not narrow what is read."""
    write(tmp_path, a="CREATE TABLE s.a (a INT);", sub__b="CREATE TABLE s.b (a INT);")
    commit(git)
    for directory in (tmp_path, tmp_path / "db" / "sub"):
        found = load_git("git:main:db", directory=str(directory))
        assert [each.name for each in found.objects] == ["a", "b"]
    assert [each.name for each in load_git("git:main:").objects] == ["a", "b"]


def test_a_manifest_and_one_sql_file_are_releases_too(git: Git, tmp_path: Path) -> None:
    """A blob is read by what its name says it is."""
    write(tmp_path, t="CREATE TABLE s.t (a INT);")
    there = load_release(tmp_path / "db" / "t.sql")
    data = encode_manifest("7", there.objects)
    (tmp_path / "r.json").write_bytes(data)
    commit(git)
    assert load_git("git:HEAD:db/t.sql").objects == there.objects
    assert load_git("git:HEAD:r.json").name == "7"


def test_errors_name_the_place_in_the_repository(git: Git, tmp_path: Path) -> None:
    """REF:PATH with line and column; settings likewise."""
    write(tmp_path, t="CREATE TABLE s.t (a INT);\nCREATE TABLE s.u (a NOTYPE);")
    commit(git)
    with pytest.raises(InvalidRelease) as caught:
        load_git("git:main:db")
    assert [problem.file for problem in caught.value.problems] == ["main:db/t.sql"]
    assert "main:db/t.sql:2:" in str(caught.value)
    assert "/tmp" not in str(caught.value)
    (tmp_path / "db" / "release.toml").write_text("nome = 'x'\n")
    commit(git)
    with pytest.raises(InvalidRelease, match=r"main:db/release\.toml: CM0113 unknown key nome"):
        load_git("git:main:db")


@pytest.mark.parametrize(
    ("place", "reason"),
    [
        ("git:main", "does not say which commit"), ("git::db", "does not say which commit"),
        ("git:--all:db", "does not say which commit"), ("git:v99:db", "has no commit v99"),
        ("git:main:nowhere", "no such file or directory"), ("git:main:empty", "holds no"),
    ],
)
def test_what_is_not_there_is_told(git: Git, tmp_path: Path, place: str, reason: str) -> None:
    """A wrong ref, a wrong path and a release without files are typed errors with a remedy."""
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "notes.txt").write_text("x")
    write(tmp_path, t="CREATE TABLE s.t (a INT);")
    commit(git)
    with pytest.raises(InvalidRelease, match=reason) as caught:
        load_git(place)
    assert caught.value.remedy


def test_outside_a_repository_and_without_git(
    git: Git, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both are said as they are."""
    outside = tmp_path.parent / f"{tmp_path.name}-outside"
    outside.mkdir()
    with pytest.raises(InvalidRelease, match="not a git repository"):
        load_git("git:main:db", directory=str(outside))
    monkeypatch.setenv("PATH", str(outside))
    with pytest.raises(PrerequisiteMissing, match="needs git"):
        load_git("git:main:db")
