"""JSON lines on stderr: whatever is told there is one object a line, and nothing else."""

from __future__ import annotations

import json
import logging
import re
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from catalog_migrate.cli import environment, logs
from catalog_migrate.cli.logs import Lines, progress
from catalog_migrate.cli.main import main
from catalog_migrate.cli.output import note
from catalog_migrate.errors import CommitConflict
from catalog_migrate.model.progress import Progress

Run = Callable[..., tuple[int, str, list[dict[str, Any]]]]


@pytest.fixture
def run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Run:
    """Runs a command line; (exit code, stdout, the objects on stderr)."""
    monkeypatch.chdir(tmp_path)

    def call(*args: str) -> tuple[int, str, list[dict[str, Any]]]:
        capsys.readouterr()
        code = main(args)
        out, err = capsys.readouterr()
        return code, out, [json.loads(line) for line in err.splitlines()]

    return call


@pytest.fixture
def release(tmp_path: Path) -> Path:
    """A release with two errors."""
    (tmp_path / "release").mkdir()
    (tmp_path / "release" / "t.sql").write_text("CREATE TABLE s.t (a NO, b TYPE);")
    return tmp_path / "release"


def test_an_error_has_code_remedy_and_problems_as_fields(run: Run, release: Path) -> None:
    """A program reads the code and each problem's place; the message is the sentence alone."""
    code, out, (line,) = run("--log-format", "json", "check", "release")
    assert (code, out) == (1, "")
    assert line["level"] == "error"
    assert line["event"] == "error"
    assert (line["code"], line["exit_code"]) == ("CM0100", 1)
    assert line["message"] == "release release has 2 problems"
    assert [(p["file"], p["line"]) for p in line["problems"]] == [("t.sql", 1), ("t.sql", 1)]
    assert line["time"].endswith("Z")


@pytest.mark.parametrize("way", ["flag", "file", "environment"])
def test_the_form_comes_from_flag_file_or_environment(
    run: Run, release: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    """Each is enough, and notes are objects too."""
    (release / "t.sql").write_text("CREATE TABLE s.t (a INT);")
    before = ["--log-format", "json"] if way == "flag" else []
    if way == "file":
        (tmp_path / "catalog_migrate.toml").write_text('[output]\nlog_format = "json"\n')
    if way == "environment":
        monkeypatch.setenv("CATALOG_MIGRATE__OUTPUT__LOG_FORMAT", "json")
    code, _, (line,) = run(*before, "plan", "--release", "release", "--catalog", "c")
    assert code == 0
    assert (line["event"], line["level"]) == ("note", "info")
    assert line["message"].startswith("there is no catalog at ")


def test_the_flag_stands_above_the_configuration(
    release: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """--log-format text is text, whatever the file says."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "catalog_migrate.toml").write_text('[output]\nlog_format = "json"\n')
    assert main(["--log-format", "text", "check", "release"]) == 1
    assert capsys.readouterr().err.startswith("error CM0100: ")


def test_usage_and_interruption_are_objects(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An unknown option and Ctrl-C keep their exit codes."""
    monkeypatch.setenv("CATALOG_MIGRATE__OUTPUT__LOG_FORMAT", "json")
    code, _, (line,) = run("plan", "--nope")
    assert (code, line["event"], line["exit_code"]) == (64, "usage", 64)
    monkeypatch.setattr(environment.show, "callback", _interrupt)
    code, _, (line,) = run("config", "show")
    assert (code, line["event"]) == (130, "interrupted")


def test_a_defect_is_one_line_with_its_traceback(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is no error of ours does not break the form."""
    monkeypatch.setattr(environment.show, "callback", _break)
    code, _, (line,) = run("--log-format", "json", "config", "show")
    assert (code, line["event"], line["level"]) == (1, "defect", "critical")
    assert line["message"] == "RuntimeError: a defect"
    assert "in _break" in line["traceback"]


def _interrupt(**_: object) -> None:
    raise KeyboardInterrupt


def _break(**_: object) -> None:
    raise RuntimeError("a defect")


def test_progress_has_its_numbers_and_other_threads_are_heard(
    capsys: pytest.CaptureFixture[str]
) -> None:
    """Steps come with phase and count; a runtime's events come from threads of its own."""
    with logs.logging_to_stderr():
        logs.choose("json", given=True)
        with progress() as step:
            step(Progress("copy", 1, 2, "s.t"))
            step(Progress("copy rows", 1, 2, "s.t", 7, 9, 10, 20, 1.5))
        thread = threading.Thread(target=note, args=("from a thread\nof two lines",))
        thread.start()
        thread.join()
    first, copies, second = (json.loads(line) for line in capsys.readouterr().err.splitlines())
    assert {"rows", "bytes"} & first.keys() == set()
    assert [copies[name] for name in (
        "rows", "total_rows", "bytes", "total_bytes", "seconds_left",
    )] == [7, 9, 10, 20, 1.5]
    assert (first["event"], first["phase"], first["done"], first["total"], first["name"]) == (
        "progress", "copy", 1, 2, "s.t",
    )
    assert second["message"] == "from a thread\nof two lines"
    assert not logging.getLogger("catalog_migrate.cli").handlers


@pytest.mark.parametrize("form", ["text", "json"])
def test_a_conflict_has_its_sqlstate(capsys: pytest.CaptureFixture[str], form: str) -> None:
    """What a program may try again is told by SQLSTATE 40001 beside our own code."""
    with logs.logging_to_stderr() as handler:
        handler.form = form
        logs.log_error(CommitConflict("c was changed: BROKER", remedy="run the statement again"))
    said = capsys.readouterr().err
    if form == "json":
        assert json.loads(said)["sqlstate"] == "40001"
    else:
        assert said == "error CM0210 (SQLSTATE 40001): c was changed: BROKER\n" \
                       "  remedy: run the statement again\n"


@pytest.mark.parametrize("terminal", [False, True])
def test_notes_and_progress_have_times_where_no_terminal_shows_them(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, terminal: bool
) -> None:
    """A log is read later; a person needs none, and an error is found by its first words."""
    monkeypatch.setattr("sys.stderr.isatty", lambda: terminal, raising=False)
    with logs.logging_to_stderr():
        note("a note")
        logs.log(logging.INFO, "note", "\x1b[1mof a report\x1b[0m", {"painted": True})
        Lines(logs._say)(Progress("copy", 1, 2, "s.t"))
        logs.log_error(CommitConflict("c was changed", remedy="run it again"))
        logs.show_times()
        note("a note of a runtime")
    found = re.sub(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", "12:00", capsys.readouterr().err)
    time = "" if terminal else "12:00 "
    assert found == (
        f"{time}a note\n\x1b[1mof a report\x1b[0m\n{time}copy 1/2 s.t\n"
        "error CM0210 (SQLSTATE 40001): c was changed\n  remedy: run it again\n"
        "12:00 a note of a runtime\n"
    )
