"""One real metastore from adoption to drift: each chapter of metastore_story.py, checked.

Then a second session finds the names that the first one left there; in soak a second process.
"""

from __future__ import annotations

import json
import os
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
    (home / "from").mkdir()
    done = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("metastore_story.py")), str(home)],
        capture_output=True, text=True, timeout=900, check=False, cwd=home / "from",
    )
    assert done.returncode == 0, done.stderr[-4000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert isinstance(found, dict)
    return {**found, "home": home, "stderr": done.stderr}


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
    assert (chapter["rows"], chapter["view"], chapter["files"], chapter["shadow tables"]) == (
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


def test_an_unchanged_start_on_a_metastore_starts_no_job(told: dict[str, Any]) -> None:
    """The second start is ``unchanged`` without one Spark job.

    The query after it is seen by the same counter, so the zero is not for want of counting.
    """
    chapter = told["starts"]
    assert chapter["outcomes"] == ["initialized", "unchanged"]
    assert chapter["jobs"][1] == 0
    assert chapter["names"][0] > 2
    assert (chapter["names"][1], chapter["rows"], chapter["counts_jobs"]) == (0, 0, True)


def test_the_program_is_what_the_metastore_sees(told: dict[str, Any]) -> None:
    """The plan's steps, what the start says it executed, and the events of the metastore agree.

    After none of them does a view that stands read a name that is absent.
    """
    assert [step[0] for step in told["program"][0]["planned"]] == [
        "build", "seal", "create", "redefine", "drop",
    ]
    for chapter in told["program"]:
        assert chapter["executed"] == chapter["planned"]
        assert chapter["outcomes"] == ["done"]
        old, new = chapter["reads"]
        changed, standing = iter(chapter["changed"]), dict(old)
        for op, phase, name in chapter["planned"]:
            if phase != "names":
                continue
            assert next(changed) == f"{'create' if op == 'create' else 'drop'} {name}"
            if op == "redefine":  # Spark drops and creates it in one statement
                assert next(changed) == f"create {name}"
            if op == "drop":
                del standing[name]
            else:
                standing[name] = new[name]
            assert {read for reads in standing.values() for read in reads} <= standing.keys()
        assert list(changed) == []
        assert standing == new


def test_the_command_line_finds_a_lost_name_and_mends_it(told: dict[str, Any]) -> None:
    """A dropped view makes ``drift`` exit 2 by name; --repair brings it back; others' stay."""
    chapter = told["starts"]
    (lost, reported), (mended, repaired), (clean, last) = chapter["drift"]
    assert (lost, mended, clean) == (2, 0, 0)
    assert reported == (
        "DRIFT: 1 name differs: 1 missing\n"
        "names in Spark's catalog, compared with what is committed\n"
        "\nWhat differs\n  + meta.v (view) missing: the name is not registered\n"
        "\nSteps, in this order\n  +   1  create view meta.v\n"
        "\nNext\n  catalog-migrate drift --repair (names that are not ours are left alone).\n"
    )
    assert repaired.startswith("REPAIRED: in 1 step; 0 left\n")
    assert last.startswith("NOTHING TO DO: no drift: every name is what is committed\n")
    assert chapter["standing"] == ["t", "theirs", "v"]


def test_names_in_an_embedded_metastore_outlive_the_session(told: dict[str, Any]) -> None:
    """A view and a Delta table made by one session are found, and others made, by the next; its
    stderr stays empty, and Derby leaves nothing where the process stood."""
    assert told["another session"] == {"passing": False, "rows": [[7, 7]]}
    assert told["stderr"] == ""
    assert list((told["home"] / "from").iterdir()) == []


@pytest.mark.soak
def test_names_in_an_embedded_metastore_outlive_the_process(told: dict[str, Any]) -> None:
    """The same with a process, and a JVM, of its own for the later session."""
    home = told["home"]
    program = (
        "from catalog_migrate.engine.spark.session import local_session\n"
        "from tests.administration.metastore_story import JOINED\n"
        f"spark = local_session(warehouse_dir={str(home / 'spark')!r},"
        f" metastore={str(home / 'metastore')!r})\n"
        "spark.sql('INSERT INTO kept.t VALUES (8)')\n"
        "print(spark.sql(JOINED).collect(), spark.table('kept.v').count())\n"
    )
    found = subprocess.run(
        [sys.executable, "-c", program], cwd=home / "from",
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert (found.returncode, found.stdout, found.stderr) == (0, "[Row(i=7, id=7)] 2\n", "")
    assert list((home / "from").iterdir()) == []
