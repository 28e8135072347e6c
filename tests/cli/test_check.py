"""``check`` as the gate of a pull request: what it is planned from, its forms, its exit codes."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from catalog_migrate.cli.main import main

Check = Callable[..., tuple[int, str, str]]

OLD = "CREATE TABLE s.orders (id BIGINT, note STRING, flag BOOLEAN);\n"
GOOD = "CREATE TABLE s.orders (id BIGINT, note STRING, flag BOOLEAN, day DATE);\n"
UNDECIDED = "\nCREATE TABLE s.orders (id BIGINT, note STRING);\n"
DECIDED = "CREATE TABLE s.orders (id BIGINT, note STRING) DROPPED (flag);\n"


@pytest.fixture
def run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Check:
    """Runs the command line in a repository whose branch ``main`` has :data:`OLD`."""
    for variable in ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.chdir(tmp_path)
    release(tmp_path, OLD)
    identity = ["-c", "user.name=t", "-c", "user.email=t@t"]
    for command in (["init", "-q", "-b", "main"], ["add", "-A"], ["commit", "-qm", "x"]):
        subprocess.run(["git", *identity, *command], check=True, capture_output=True)

    def call(*args: str) -> tuple[int, str, str]:
        capsys.readouterr()
        code = main(args)
        return (code, *capsys.readouterr())

    return call


def release(home: Path, text: str) -> None:
    """The working tree's release."""
    (home / "release").mkdir(exist_ok=True)
    (home / "release" / "orders.sql").write_text(text)


@pytest.mark.parametrize(
    ("text", "code", "word"),
    [(OLD, 0, "NOTHING TO DO"), (GOOD, 0, "SAFE"), (UNDECIDED, 3, "NEEDS 1 DECISION"),
     (DECIDED, 0, "LOSSES DECIDED")],
)
def test_exit_code_and_verdict_against_a_commit(
    run: Check, tmp_path: Path, text: str, code: int, word: str
) -> None:
    """0 where it may be merged, 3 where a decision is missing; the same word in every form."""
    release(tmp_path, text)
    against = ("release", "--against", "git:main:release")
    found, out, _ = run("check", *against)
    assert found == code
    assert f"against git:main:release: {word}" in out
    found, out, _ = run("check", *against, "--format", "json")
    assert (found, json.loads(out)["verdict"]) == (code, word)
    found, out, _ = run("check", *against, "--format", "markdown", "--out", "comment.md")
    assert (found, out) == (code, "")
    assert (tmp_path / "comment.md").read_text().startswith(f"**{word}**")
    assert run("diff", "git:main:release", "release")[0] == code
    pending = 2 if code == 0 and text != OLD else code
    assert run("check", *against, "--detailed-exitcode")[0] == pending


def test_what_no_rollback_brings_back_has_a_line(run: Check, tmp_path: Path) -> None:
    """Who reviews the change reads which columns go for good; nothing is said where none does."""
    against = ("check", "release", "--against", "git:main:release")
    for text, line in ((DECIDED, True), (GOOD, False)):
        release(tmp_path, text)
        out = run(*against)[1]
        assert ("\nPoint of no return: s.orders.flag\n" in out) is line
        assert ("; no rollback past its commit" in out) is line


def test_a_policy_is_part_of_the_gate(run: Check, tmp_path: Path) -> None:
    """What the release has decided is refused by a rule all the same, and the rule is named."""
    release(tmp_path, DECIDED)
    (tmp_path / "catalog_migrate.toml").write_text(
        '[[policy]]\nrisk = "drop_column"\nname = "s.*"\naction = "approve"\n'
    )
    against = ("check", "release", "--against", "git:main:release")
    code, out, _ = run(*against, "--format", "json")
    (blocked,) = json.loads(out)["blocked"]
    assert code == 3
    assert (blocked["code"], blocked["remedy"]) == ("CM0309", "--approve s.orders.flag")
    assert "policy 1: approve drop_column of s.*" in blocked["reason"]
    assert run(*against, "--approve", "s.orders.flag")[0] == 0


def test_an_annotation_finds_file_and_line(run: Check, tmp_path: Path) -> None:
    """A blocked entry of the JSON says where the object is declared."""
    release(tmp_path, UNDECIDED)
    out = run("check", "release", "--against", "git:main:release", "--format", "json")[1]
    (blocked,) = json.loads(out)["blocked"]
    assert (blocked["file"], blocked["line"]) == ("orders.sql", 2)


@pytest.mark.parametrize("against", ["git:main:release", "old", "old/orders.sql"])
def test_it_may_come_from_a_commit_a_directory_or_a_file(
    run: Check, tmp_path: Path, against: str
) -> None:
    """Whatever names a release names the base."""
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "orders.sql").write_text(OLD)
    release(tmp_path, UNDECIDED)
    assert run("check", "release", "--against", against)[0] == 3


def test_a_release_with_errors_is_exit_1_in_every_form(run: Check, tmp_path: Path) -> None:
    """Text goes to stderr, JSON and markdown are the result; each names file and line."""
    release(tmp_path, "CREATE TABLE s.orders (id NOTYPE);\nCREATE TABLE s.b (id *);")
    code, out, err = run("check", "release")
    assert (code, out) == (1, "")
    assert "orders.sql:1:" in err
    code, out, _ = run("check", "release", "--format", "json")
    assert code == 1
    assert next((p["file"], p["line"]) for p in json.loads(out)["problems"]) == ("orders.sql", 1)
    code, out, _ = run("check", "release", "--format", "markdown")
    assert code == 1
    assert out.startswith("**INVALID**: release release has ")
    assert "- `!` orders.sql:1:" in out
    code, out, err = run("check", "release", "--format", "svg")  # of errors there is no picture
    assert (code, out) == (1, "")
    assert "orders.sql:1:" in err


def test_an_error_in_the_base_names_its_place_in_the_repository(
    run: Check, tmp_path: Path
) -> None:
    """REF:PATH, not a directory that is gone."""
    release(tmp_path, "CREATE TABLE s.orders (id NOTYPE);")
    identity = ["-c", "user.name=t", "-c", "user.email=t@t"]
    subprocess.run(["git", *identity, "commit", "-qam", "x"], check=True)
    release(tmp_path, GOOD)
    code, _, err = run("check", "release", "--against", "git:main:release")
    assert code == 1
    assert "main:release/orders.sql:1:" in err


def test_a_comment_stays_below_the_limit(run: Check, tmp_path: Path) -> None:
    """Many errors are cut and counted."""
    release(tmp_path, "\n".join(f"CREATE TABLE s.t{n} (a {'x' * 200});" for n in range(500)))
    out = run("check", "release", "--format", "markdown")[1]
    assert len(out) < 65_536
    assert out.splitlines()[-1].endswith("more")


@pytest.mark.parametrize("place", ["pipe", "pipe.sql", "pipe.json", "dir", "/dev/zero"])
def test_pipes_and_devices_are_refused_at_once(run: Check, tmp_path: Path, place: str) -> None:
    """plan, diff and check never wait for a writer, nor read without end: a typed error."""
    for name in ("pipe", "pipe.sql", "pipe.json", "dir/x.sql"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        os.mkfifo(tmp_path / name)
    what = "a device" if place == "/dev/zero" else "a named pipe"
    for verb in (
        ["check", place], ["check", "release", "--against", place], ["diff", place, "release"],
        ["diff", "release", place], ["plan", "--release", place, "--catalog", "c"],
    ):
        code, _, err = run(*verb)
        assert code == 1
        assert "CM0100" in err
        assert f"it is {what}, not a file" in err
    assert run("apply", "pipe", "--release", "release", "--catalog", "c", "--yes")[0] == 1


def test_sql_that_does_not_parse_is_an_error_with_its_place(run: Check, tmp_path: Path) -> None:
    """A gate that lets it pass is a trap: check, diff, plan and compile name file, line, column."""
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "orders.sql").write_text(OLD)
    release(
        tmp_path, GOOD + "CREATE VIEW s.v (a BIGINT) AS SELCT id\n  FROM s.nowhere;\n"
        "CREATE VIEW s.w (a BIGINT) AS SELECT id\n  FORM s.orders;\n"
        "CREATE FUNCTION s.f(x INT) RETURNS INT RETURN x +;\n"
        "CREATE TABLE s.t (a INT USING CAST(b INT), CHECK (a >));\n",
    )
    found = (
        "orders.sql:2:31: CM0119 the query of s.v is no SQL of Spark: `SELCT` is not expected",
        "remedy: write SELECT for SELCT",
        "orders.sql:5:8: CM0119 the query of s.w is no SQL of Spark: `s` is not expected",
        "remedy: write FROM for FORM",
        "orders.sql:6:50: CM0119 the body of function:s.f is no SQL of Spark: it ends too early",
        "orders.sql:7:19: CM0119 USING of column a of s.t is no SQL of Spark: `INT` is not",
        "orders.sql:7:14: CM0119 CHECK check_1 of s.t is no SQL of Spark: it ends too early",
    )
    for verb in (
        ("check", "release"), ("check", "release", "--against", "old"), ("diff", "old", "release"),
        ("plan", "--release", "release", "--catalog", "none"),
        ("release", "compile", "release", "--out", "r.json"),
    ):
        code, out, err = run(*verb)
        assert (code, out) == (1, ""), verb
        assert [line for line in found if line not in err] == [], verb
    assert not (tmp_path / "r.json").exists()


def test_what_does_not_change_is_not_parsed_again(run: Check, tmp_path: Path) -> None:
    """What is in force was taken by Spark: a plan for something else does not stumble over it."""
    broken = "CREATE VIEW s.v (a BIGINT) AS SELECT id FORM s.orders;\n"
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "orders.sql").write_text(OLD + broken)
    release(tmp_path, GOOD + broken)
    assert run("diff", "old", "release")[0] == 0
    assert run("check", "release", "--against", "old")[0] == 1


def test_a_body_that_nobody_has_parsed_is_named(run: Check, tmp_path: Path) -> None:
    """Where there is no telling it is a warning, in every form, with who would know."""
    release(tmp_path, GOOD + "CREATE VIEW s.v (a BIGINT) AS SELECT ${x} AS a FROM s.orders;\n")
    said = "s.v: cannot parse the query: Spark puts something in for ${x} first; --bind asks"
    code, out, _ = run("check", "release")
    assert code == 0
    assert f"warning: {said} Spark\n" in out
    assert json.loads(run("check", "release", "--format", "json")[1])["warnings"] == [
        f"{said} Spark"
    ]
    assert said in run("check", "release", "--format", "markdown")[1]
    plan = run("plan", "--release", "release", "--catalog", "none", "--out", "plan.json")[1]
    assert "s.v: cannot parse the query" in plan
    assert "s.v" in run("release", "compile", "release", "--out", "r.json")[2]


def test_all_errors_of_a_release_are_told_at_once(run: Check, tmp_path: Path) -> None:
    """What does not parse is told beside what is wrong otherwise."""
    release(tmp_path, "CREATE TABLE s.t (a INTT);\nCREATE VIEW s.v (a INT) AS SELCT a FROM s.t;\n")
    err = run("check", "release")[2]
    assert "has 2 problems" in err
    assert "CM0120" in err
    assert "CM0119" in err
