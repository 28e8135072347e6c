"""Control characters in a release are shown, never obeyed: none rewrites what a reviewer sees."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from catalog_migrate.cli.main import main
from catalog_migrate.model.wording import one_line, visible
from catalog_migrate.planner.baseline import Baseline
from catalog_migrate.planner.planning import plan_migration
from catalog_migrate.release.loader import load_texts
from catalog_migrate.report import render

WIPE = "x\x1b[2J\x9b31m\rSAFE\u202e"
RAW = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e]")
SHOWN = "x\\u001b[2J\\u009b31m\\u000dSAFE\\u202e"

OLD = f"CREATE TABLE s.t (id INT, `{WIPE}` STRING, `a\n! b` INT);"
NEW = f"CREATE TABLE s.t (id INT COMMENT '{WIPE}', `n{WIPE}` STRING) COMMENT '{WIPE}';"


@pytest.fixture
def releases(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two releases with a hostile name, column and comment; the second gives two columns up."""
    monkeypatch.chdir(tmp_path)
    for name, sql in (("old", OLD), ("new", NEW)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "t.sql").write_text(sql)
    (tmp_path / "new" / "release.toml").write_text('name = "2\\u001B[2J"\n')


@pytest.mark.parametrize("form", ["text", "markdown", "html"])
def test_a_report_holds_none(form: str) -> None:
    """In every form; what is there is the escape, and a line feed in a name forges no line.

    A page shows a text to copy as it is, lines and all, in a box of its own.
    """
    old = load_texts([("t.sql", OLD)], name="1")
    plan = plan_migration(
        Baseline.from_release(old), load_texts([("t.sql", NEW)], name=f"2{WIPE}")
    ).plan
    told = render(plan, form)
    assert RAW.search(told) is None
    assert SHOWN.replace("[", "\\[").replace("\\u", "\\\\u") in told or SHOWN in told
    outside = re.sub("<pre>.*?</pre>", "", told, flags=re.DOTALL)
    assert not [line for line in outside.splitlines() if line.startswith("! b")]


@pytest.mark.parametrize(
    "args",
    [
        ("check", "new", "--against", "old"),
        ("check", "new", "--against", "old", "--format", "json"),
        ("check", "new", "--against", "old", "--format", "markdown"),
        ("diff", "old", "new"),
        ("diff", "old", "new", "--format", "html"),
        ("plan", "--release", "new", "--catalog", "c"),
    ],
)
@pytest.mark.usefixtures("releases")
def test_a_command_prints_none(args: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    """Neither on stdout nor on stderr."""
    main(args)
    out, err = capsys.readouterr()
    assert out
    assert RAW.search(out + err) is None


def test_an_error_prints_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A release that is refused is quoted, and its control characters are shown too."""
    (tmp_path / "t.sql").write_text(f"CREATE TABLE s.t (`{WIPE}` NOTYPE);")
    assert main(["check", str(tmp_path)]) == 1
    err = capsys.readouterr().err
    assert RAW.search(err) is None
    assert SHOWN in err


def test_everything_else_is_as_written() -> None:
    """Letters of any script, line feeds and tabs stay; one line has no line feed."""
    assert visible("Ünï 日本 🙂\n\tx") == "Ünï 日本 🙂\n\tx"
    assert one_line("a\nb\r\nc") == "a b c"
