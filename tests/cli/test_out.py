"""Where a result may be saved: not in the place of what it was made from."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from catalog_migrate.cli.main import main
from catalog_migrate.planner.planfile import hash_document


@pytest.mark.parametrize(
    "place",
    ["release/t.sql", "release/release.toml", "catalog_migrate.toml", "c/log/_delta_log/0.json"],
)
def test_a_source_is_not_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], place: str
) -> None:
    """A slip of the hand with --out is refused by each verb that has it; the file stays."""
    monkeypatch.chdir(tmp_path)
    texts = {
        "release/t.sql": "CREATE TABLE s.t (a INT);",
        "release/release.toml": 'name = "1"\n',
        "catalog_migrate.toml": '[output]\ncolor = "never"\n',
        "c/log/_delta_log/0.json": "{}",
    }
    for name, text in texts.items():
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_text(text)
    for words in (
        ["plan", "--catalog", "none", "--release", "release"],
        ["check", "release"],
        ["diff", "release", "release"],
    ):
        assert main([*words, "--out", place]) == 1
        told = capsys.readouterr().err
        assert "CM0602" in told
        assert (
            "in the log of a Delta table" if "_delta_log" in place else "it is not replaced"
        ) in told
    assert {name: Path(name).read_text() for name in texts} == texts


def test_no_way_around(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Links, upper case, a file that would be new in a log, the manifest that is planned."""
    monkeypatch.chdir(tmp_path)
    Path("r").mkdir()
    Path("r/T.SQL").write_text("old")
    Path("r/t.sql").write_text("CREATE TABLE s.t (a INT);")
    Path("link.json").symlink_to("r/t.sql")
    Path("c/log/_delta_log").mkdir(parents=True)
    Path("log").symlink_to("c/log/_delta_log")
    assert main(["release", "compile", "r/t.sql", "--out", "m.json"]) == 0
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    for place in ("r/T.SQL", "link.json", "log/9.json", "c/log/_delta_log/9.json", "m.json"):
        given = ["--catalog", "none", "--release", "m.json", "--out", place]
        assert main(["plan", *given]) == 1
        assert "CM0602" in capsys.readouterr().err
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


def test_a_plan_of_before_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As scripts do."""
    monkeypatch.chdir(tmp_path)
    Path("release").mkdir()
    Path("release/t.sql").write_text("CREATE TABLE s.t (a INT);")
    for _ in range(2):
        assert main(
            ["plan", "--catalog", "none", "--release", "release", "--out", "plan.json"]
        ) == 0


def test_an_init_without_room_speaks_of_what_was_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The verb has no --out, so its remedy names none."""
    opened = Path.open

    def full(self: Path, *args: Any, **more: Any) -> Any:
        if tmp_path in self.parents:
            raise OSError(28, "No space left on device", str(self))
        return opened(self, *args, **more)

    monkeypatch.setattr(Path, "open", full)
    assert main(["init", str(tmp_path / "new")]) == 1
    told = capsys.readouterr().err
    assert "No space left on device" in told
    assert "--out" not in told


def test_drift_without_a_metastore_starts_no_spark(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Names end with the session, so nothing can drift: said at once."""
    from catalog_migrate.api import registrations
    from catalog_migrate.catalog.opening import create_catalog, open_log

    monkeypatch.setattr(registrations, "has_lasting_names", lambda _: False)
    create_catalog(open_log(str(tmp_path / "c")), warehouse=str(tmp_path / "w"))
    assert main(["drift", "--catalog", str(tmp_path / "c")]) == 0
    told = capsys.readouterr()
    assert "nothing can drift" in told.out
    assert "starting Spark" not in told.err


@pytest.mark.parametrize(
    ("verb", "name", "start"),
    [
        ("plan", "plan.json", "{"), ("plan", "plan", "{"), ("plan", "r.html", "<!doctype html>"),
        ("plan", "R.HTM", "<!doctype html>"), ("plan", "r.md", "**SAFE"),
        ("check", "r.html", "<!doctype html>"), ("check", "r.txt", "release 1: "),
        ("diff", "r.md", "**SAFE"), ("diff", "r.svg", "<svg "),
    ],
)
def test_the_name_of_a_file_says_its_form(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verb: str, name: str, start: str
) -> None:
    """Where no form was asked for: a page in .html, Markdown in .md, else a plan to be applied."""
    monkeypatch.chdir(tmp_path)
    for number in "01":
        Path(number).mkdir()
        Path(number, "release.toml").write_text(f'name = "{number}"\n')
        Path(number, "t.sql").write_text(f"CREATE VIEW s.v{number} (a INT) AS SELECT 1 AS a;")
    words = {
        "plan": ["plan", "--catalog", "none", "--release", "1"], "check": ["check", "1"],
        "diff": ["diff", "0", "1"],
    }[verb]
    assert main([*words, "--out", name]) == 0
    assert Path(name).read_text().startswith(start)


def test_a_saved_plan_is_reported_without_catalog_and_release(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As it was made, in every form; one of a newer minor too, what it has beyond left out.

    What it was made with cannot be said beside it, and a file that is none is refused.
    """
    monkeypatch.chdir(tmp_path)
    Path("r").mkdir()
    Path("r/t.sql").write_text("CREATE VIEW s.v (a INT) AS SELECT 1 AS a;")
    assert main(["plan", "--catalog", "none", "--release", "r", "--out", "plan.json"]) == 0
    made = capsys.readouterr().out
    Path("r/t.sql").unlink()
    assert main(["plan", "--show", "plan.json"]) == 0
    assert capsys.readouterr().out == made
    assert main(["plan", "--show", "plan.json", "--out", "plan.html"]) == 0
    assert "s.v" in Path("plan.html").read_text()
    capsys.readouterr()
    document = json.loads(Path("plan.json").read_text())
    document |= {"format_version": "1.99", "news": {"of": "a later tool"}}
    document["plan_hash"] = hash_document(document)
    Path("later.json").write_text(json.dumps(document))
    assert main(["plan", "--show", "later.json"]) == 0
    assert capsys.readouterr().out == made
    assert main(["plan", "--show", "plan.json", "--approve", "s.v"]) == 64
    assert "--show reports a plan as it was made" in capsys.readouterr().err
    assert main(["plan", "--show", "plan.html"]) == 1
    assert "CM0311" in capsys.readouterr().err
