"""One real metastore from adoption to farewell: each chapter of metastore_story.py, checked."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the story found; it needs a session of another kind, so a process of its own."""
    home = tmp_path_factory.mktemp("story")
    done = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("metastore_story.py")), str(home)],
        capture_output=True, text=True, timeout=900, check=False, cwd=home,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert isinstance(found, dict)
    return found


def test_a_managed_table_is_adopted_where_it_lies(told: dict[str, Any]) -> None:
    """Partitioned and with a CHECK it equals the release; its name becomes plain, its files stay;
    what the release does not describe is left alone; the dry run wrote nothing."""
    chapter = told["adoption"]
    code, said = chapter["dry"]
    assert (code, chapter["wrote"]) == (0, False)
    assert "unchanged" in said
    assert "shop.theirs  the release does not describe it" in said
    code, adopted = chapter["done"]
    assert (code, [
        (table["name"], table["registration"], table["rows"], table["first_migration"])
        for table in adopted["tables"]
    ]) == (0, [("shop.orders", "managed", 2, "unchanged")])
    assert chapter["kinds"] == ["MANAGED", "EXTERNAL"]
    assert (chapter["rows"], chapter["view"], chapter["files"], chapter["twins"]) == (
        2, 1, True, []
    )


def test_an_adopted_table_is_migrated_and_the_old_files_stay(told: dict[str, Any]) -> None:
    """The copy has every row; what was adopted is kept for the time of retention."""
    chapter = told["migration"]
    assert chapter == {"outcome": "migrated", "rows": 12, "type": "bigint", "kept": True}


def test_two_installations_share_a_metastore(told: dict[str, Any]) -> None:
    """A name of the other is refused and untouched; both go on, each with views of its own."""
    chapter = told["neighbours"]
    assert chapter["clash"].startswith("CM0300")
    assert chapter["outcome"] == "initialized"
    assert chapter["again"] == ["unchanged", "unchanged"]
    assert (chapter["views"], chapter["rows"]) == ([1, 1], 2)


def test_a_copy_is_refused_until_it_has_a_lineage_of_its_own(told: dict[str, Any]) -> None:
    """Afterwards the names of the original are another's to it."""
    chapter = told["copy"]
    assert chapter["refused"].startswith("CM0801")
    assert chapter["relocated"] == 0
    assert chapter["clash"][:6] in ("CM0300", "CM0410")


def test_a_moved_installation_is_followed(told: dict[str, Any]) -> None:
    """Refused where it is not at home; told its place, the names point there."""
    chapter = told["move"]
    assert chapter["away"].startswith("CM0801")
    assert chapter["followed"] == 0
    assert (chapter["outcome"], chapter["rows"], chapter["view"]) == ("resumed", 2, 1)


def test_a_lost_log_is_made_again(told: dict[str, Any]) -> None:
    """Nothing is made anew in its place; the table keeps its rows and the view comes back."""
    chapter = told["loss"]
    assert chapter["refused"].startswith("CM0201")
    code, said = chapter["rebuilt"]
    assert (code, "could not be known" in said) == (0, True)
    assert (chapter["rows"], chapter["view"], chapter["again"]) == (12, 1, "unchanged")


def test_an_exported_installation_leaves_plain_names(told: dict[str, Any]) -> None:
    """Text and session agree; the closed catalog is refused, the neighbour is not."""
    chapter = told["farewell"]
    assert [chapter["text"][0], chapter["given"][0]] == [0, 0], chapter
    assert (chapter["marks"], chapter["rows"], chapter["replayed"]) == ([], 1, 1)
    assert chapter["refused"].startswith("CM0802")
    assert chapter["neighbour"] == "unchanged"
