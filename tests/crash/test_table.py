"""The table of ``make soak``."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.soak import run, table

TESTS = '''
import pytest

@pytest.mark.parametrize("number", [1, 2, 3])
def test_rounds_of_one_kind(number, record_property):
    record_property("rounds", 1)
    record_property("rows", 10 * number)
    assert number < 3

def test_points(record_property):
    record_property("series", "15 to 16")
    record_property("rounds", 114)
    record_property("kills", 113)
    record_property("failures", 2)
    assert False

@pytest.mark.skip(reason="not now")
def test_left_out(): pass
'''


def test_series_are_summed(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """A line a series: rounds and rows add up, points that failed count one by one."""
    file = tmp_path / "test_some.py"
    file.write_text(TESTS)
    found = run("some", {}, ["-p", "no:randomly", "--rootdir", str(tmp_path), str(file)], tmp_path)
    capfd.readouterr()
    lines = [line.split("  ") for line in table(found).splitlines()]
    assert [[cell.strip() for cell in line if cell][:-1] for line in lines] == [
        ["part", "series", "tests", "rounds", "kills", "rows", "refused", "lost", "doubled",
         "failures"],
        ["some", "rounds of one kind", "3", "3", "-", "60", "-", "-", "-", "1"],
        ["some", "15 to 16", "1", "114", "113", "-", "-", "-", "-", "2"],
    ]  # fmt: skip


def test_a_part_that_cannot_run_has_failed(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """No test at all is no success."""
    missing = tmp_path / "test_none.py"
    (found,) = run("some", {}, ["--rootdir", str(tmp_path), str(missing)], tmp_path)
    capfd.readouterr()
    assert (found.name, found.failures) == ("ended with 4", 1)
