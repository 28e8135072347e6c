"""The README shows the example files as they are, and the examples do what it says."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from catalog_migrate.release.loader import load_manifest, load_texts

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "fixtures" / "examples"
FORMAT = ROOT / "docs" / "release-format.md"
README = ROOT / "README.md"


def fenced(language: str, page: Path = README) -> list[str]:
    """The code blocks of one language in a page, the README by default."""
    return re.findall(rf"^```{language}\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL)


def run(*command: str, env: dict[str, str], cwd: Path) -> subprocess.CompletedProcess[str]:
    """One process of an example, with its output."""
    return subprocess.run(command, env=env, cwd=cwd, capture_output=True, text=True, timeout=300)


@pytest.mark.parametrize(("language", "file"), [("python", "app.py"), ("sh", "upgrade.sh")])
def test_the_readme_shows_the_example_files(language: str, file: str) -> None:
    """The hook and the upgrade script in the README are the text of the files that are run."""
    assert (EXAMPLES / file).read_text() in fenced(language)


def test_the_hook_takes_ten_lines() -> None:
    """The application with the hook in it has ten lines that are not blank."""
    lines = (EXAMPLES / "app.py").read_text().splitlines()
    assert len([line for line in lines if line.strip()]) == 10


def test_the_readme_lists_every_exit_code_with_its_page() -> None:
    """The table of exit codes has one row for each runbook page, and no other."""
    rows = re.findall(r"^\| (\d+) \|", README.read_text(), re.MULTILINE)
    pages = [path.stem.removeprefix("exit-") for path in (ROOT / "docs/runbooks").glob("exit-*.md")]
    assert sorted(rows, key=int) == sorted(pages, key=int)


def test_the_documented_statements_are_a_release() -> None:
    """The statements of the release format page load, with the decisions that they show."""
    sql, _ = fenced("sql", FORMAT)
    release = load_texts([("page.sql", sql)], name="2", default_schema="s")
    assert {str(definition.key) for definition in release.objects} == {
        "type:s.money", "function:s.vat", "s.cache", "s.new_name", "s.t", "s.v",
    }
    table = next(o for o in release.objects if o.name == "t")
    assert table.dropped == ("legacy",)
    assert {c.name: c.earlier_names for c in table.columns if c.earlier_names} == {
        "note": ("remark", "memo")
    }


def test_the_documented_split_is_a_release() -> None:
    """The statements that fill a table from another load too."""
    _, sql = fenced("sql", FORMAT)
    release = load_texts([("page.sql", sql)], name="2", default_schema="s")
    assert {definition.name: definition.filled_from for definition in release.objects} == {
        "customers": None,
        "addresses": "SELECT id, street, city FROM s.customers WHERE street IS NOT NULL",
    }


def test_the_documented_manifest_is_a_release() -> None:
    """The manifest of the release format page loads."""
    [manifest] = fenced("json", FORMAT)
    release = load_manifest(manifest.encode())
    assert [str(definition.key) for definition in release.objects] == ["s.t", "s.v"]


def test_init_writes_what_the_readme_says(tmp_path: Path) -> None:
    """The first block of the walk through is what `init` prints."""
    blocks = "".join(fenced("console"))
    shown = blocks.partition("$ catalog-migrate init shop\n")[2].partition("$ cd")[0]
    command = (sys.executable, "-m", "catalog_migrate.cli.main", "init", "shop")
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=600)
    assert (done.returncode, done.stdout) == (0, shown)


@pytest.mark.parametrize(
    ("args", "code", "told"),
    [((), 64, "usage: upgrade.sh RELEASE CATALOG"), (("v1", "nowhere"), 1, "CM0200")],
)
def test_the_script_refuses_what_it_should_not_do(
    tmp_path: Path, args: tuple[str, ...], code: int, told: str
) -> None:
    """Without arguments it says what it takes; where no catalog is it makes none unless told."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    env = {**os.environ, "PATH": path}
    done = run("sh", str(EXAMPLES / "upgrade.sh"), *args, env=env, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (code, "")
    assert told in done.stderr
    assert list(tmp_path.iterdir()) == []
