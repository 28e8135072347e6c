"""What cannot be printed neither ends a verb nor changes its exit code without a word."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from catalog_migrate.cli.main import Printed, main
from tests.cli.test_main import Answer, bring_in_force, manifest

ROOT = Path(__file__).parents[2]
PROGRAM = f"{sys.executable} -m catalog_migrate.cli.main"


def shell(line: str, at: Path) -> Answer:
    """What a shell leaves of a line in which ``cm`` is the command line."""
    script = f"set -o pipefail; cm() {{ {PROGRAM} \"$@\"; }}; {line}"
    done = subprocess.run(
        ["bash", "-c", script], capture_output=True, text=True, cwd=at, check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    return Answer(done.returncode, done.stdout, done.stderr)


@pytest.mark.parametrize("to", [">&-", ">/dev/full"])
@pytest.mark.parametrize(
    ("line", "code"),
    [("--version", 1), ("--help", 1), ("check 1.json", 1), ("diff 1.json 2.json", 3)],
)
def test_a_stdout_that_takes_nothing(tmp_path: Path, line: str, code: int, to: str) -> None:
    """One sentence says so; the verb's own exit code stays where it has one."""
    manifest(tmp_path / "1.json", "1", [("a", "INT")])
    manifest(tmp_path / "2.json", "2", [("b", "INT")])
    found = shell(f"cm {line} {to}", tmp_path)
    assert found.code == code
    assert found.err.startswith("error CM0602: the result could not be printed: ")
    assert ("what was requested is done" in found.err) == (code == 1)
    assert len(found.err.splitlines()) == 2


@pytest.mark.parametrize("to", [">&-", ">/dev/full", "| true"])
def test_every_statement_is_done_all_the_same(tmp_path: Path, to: str) -> None:
    """Statements are their own commits, and none is left out because nobody can read of one."""
    bring_in_force(tmp_path, manifest(tmp_path / "1.json", "1", [("a", "INT")]))
    text = "; ".join(f"CREATE SECRET s{n} AS 'env:X'" for n in range(3))
    found = shell(f'cm sql --catalog c -c "{text}" {to}', tmp_path)
    assert found.code == (0 if to == "| true" else 1), found.err
    assert "Traceback" not in found.err
    listed = shell("cm sql --catalog c -c 'SHOW SECRETS' --format json", tmp_path)
    assert [row["name"] for row in json.loads(listed.out)] == [
        f"default.s{n}" for n in range(3)
    ]


def test_a_reader_that_left(tmp_path: Path) -> None:
    """A closed pipe is no error: all is done, in silence, with the exit code of the verb."""
    manifest(tmp_path / "1.json", "1", [("a", "INT")])
    manifest(tmp_path / "2.json", "2", [("b", "INT")])
    assert shell("cm diff 1.json 2.json | true", tmp_path) == Answer(3, "", "")
    assert shell("cm init d | true", tmp_path) == Answer(0, "", "")
    assert len([path for path in (tmp_path / "d").rglob("*") if path.is_file()]) > 1


def test_as_json(tmp_path: Path) -> None:
    """The sentence is a JSON object like any other, with the exit code that follows."""
    found = shell("cm --log-format json --help >/dev/full", tmp_path)
    told = json.loads(found.err)
    assert (told["code"], told["exit_code"], found.code) == ("CM0602", 1, 1)


def test_stderr_that_takes_nothing(tmp_path: Path) -> None:
    """Notes that nobody can read do not change the exit code, and never go to stdout."""
    manifest(tmp_path / "2.json", "2", [("b", "INT")])
    for to in ("2>&-", "2>/dev/full"):
        found = shell(f"cm plan --catalog c --release 2.json --format json {to}", tmp_path)
        assert found.code == 0
        assert json.loads(found.out)["target"]["release"] == "2"
        assert shell(f"cm nope {to}", tmp_path).code == 64


def test_nobody_to_ask(tmp_path: Path) -> None:
    """A closed stdin is nobody to ask: the remedy is --yes. Nor are there statements in it."""
    manifest(tmp_path / "1.json", "1", [("a", "INT")])
    found = shell("cm apply --catalog c --warehouse w --release 1.json 0<&-", tmp_path)
    assert found.code == 64
    assert "add --yes" in found.err
    assert shell("cm sql --catalog c -f - 0<&-", tmp_path).code == 64
    assert "Traceback" not in found.err


def test_stdout_is_put_back(capsys: pytest.CaptureFixture[str]) -> None:
    """Whoever calls ``main`` keeps the stdout that was there, with the result in it."""
    before = sys.stdout
    assert main(["--version"]) == 0
    assert sys.stdout is before
    assert capsys.readouterr().out.startswith("catalog-migrate ")


def test_nothing_is_written_after_a_failure() -> None:
    """The first reason is kept, and what follows goes nowhere instead of half a line."""

    class Full:
        written = 0

        def write(self, text: str) -> int:
            self.written += 1
            raise OSError(28, "No space left on device")

    full = Full()
    printed = Printed(full)  # type: ignore[arg-type]
    assert [printed.write("one"), printed.write("three")] == [3, 5]
    assert (full.written, printed.failure) == (1, "No space left on device")


@pytest.mark.parametrize(
    "line",
    [["check", "1.json", "--against", ""], ["diff", "", "1.json"], ["diff", "1.json", ""],
     ["check", "1.json", "--against", " "]],
)
def test_an_empty_text_is_no_release(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
    line: list[str],
) -> None:
    """A variable that is not set must not compare the release with itself, and pass."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CATALOG_MIGRATE__RELEASE__PATH", "1.json")
    manifest(tmp_path / "1.json", "1", [("a", "INT")])
    assert main(line) == 64
    assert "a release is named by an empty text" in capsys.readouterr().err


@pytest.mark.parametrize(
    "line", [["nope"], ["--config", "nope.toml", "status"], ["status", "--nope"]]
)
def test_a_refused_command_line_is_json_too(
    capsys: pytest.CaptureFixture[str], line: list[str]
) -> None:
    """``--log-format`` holds before click has read the rest of the line."""
    for given in (["--log-format", "json"], ["--log-format=json"]):
        assert main([*given, *line]) == 64
        assert json.loads(capsys.readouterr().err)["code"] == "CM0601"


def test_interrupted_while_modules_load(tmp_path: Path) -> None:
    """Ctrl-C in the first moments is the sentence and exit 130, no traceback."""
    code = (
        "import sys\n"
        "class Interrupt:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == WHEN: raise KeyboardInterrupt\n"
        "sys.meta_path.insert(0, Interrupt())\n"
        "from catalog_migrate.cli.main import main\n"
        "sys.exit(main(['status', '--catalog', 'c']))\n"
    )
    for when in ("click", "catalog_migrate.cli.logs", "catalog_migrate.cli.inspection"):
        done = subprocess.run(
            [sys.executable, "-c", f"WHEN = {when!r}\n{code}"], capture_output=True, text=True,
            cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)}, check=False,
        )
        assert done.returncode == 130
        assert done.stderr.strip().startswith("interrupted: ")
        assert len(done.stderr.strip().splitlines()) == 1
