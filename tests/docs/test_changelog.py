"""The notes in ``changelog.d`` join into a change log."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
NAME = re.compile(r"\d+(\.\d+)?\.(added|changed|fixed)\.md")


def test_fragments_are_named_so_that_they_are_found() -> None:
    """Issue, number and kind: towncrier passes over any other name."""
    names = {path.name for path in (ROOT / "changelog.d").iterdir()} - {"template.md"}
    assert [name for name in sorted(names) if NAME.fullmatch(name) is None] == []


def test_notes_of_one_issue_stand_together_oldest_first(tmp_path: Path) -> None:
    """Without their numbers; a fragment is one note, or a list with a note on each line."""
    for name in ("pyproject.toml", "changelog.d/template.md", "catalog_migrate/version.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text((ROOT / name).read_text())
    (tmp_path / "catalog_migrate" / "__init__.py").write_text("")
    for name, text in {
        "12.added": "twelfth,\nin two lines\n", "3.added": "- third\n- and more\n",
        "12.10.added": "its last", "12.2.added": "its second", "4.fixed": "mended",
    }.items():
        (tmp_path / "changelog.d" / f"{name}.md").write_text(text)
    draft = subprocess.run(
        [Path(sys.executable).with_name("towncrier"), "build", "--draft", "--version", "0.1.0",
         "--date", "2026-11-27"],
        cwd=tmp_path, capture_output=True, text=True, check=True,
    )
    assert draft.stdout.strip() == """\
## 0.1.0 (2026-11-27)

### Added

- third
- and more
- twelfth,
  in two lines
- its last
- its second

### Fixed

- mended"""
