"""The demonstration: its screen, its processes, what it compares, and how it ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest
from deltalake import write_deltalake

from catalog_migrate.cli.main import main
from catalog_migrate.model.objects import Column, ObjectDefinition
from examples import demo

ROOT = Path(__file__).parents[2]

Story = Callable[[str], "demo.Software"]


@pytest.fixture
def told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Story:
    """A process of the software that is a program in Python instead."""

    def told(program: str) -> demo.Software:
        monkeypatch.setattr(demo, "command", lambda _: [sys.executable, "-c", program])
        place = demo.Place(str(tmp_path), str(tmp_path), tmp_path, tmp_path)
        return demo.Software(place, demo.Screen())

    return told


STEP = '{"phase": "copy rows", "done": %d, "total": 4, "name": "s.t"}'


class TestSoftware:
    """The processes that have a Spark."""

    def test_it_is_killed_at_a_step(self, told: Story) -> None:
        """It stands still there, and neither it nor its own child is left."""
        program = (
            "import subprocess, sys; subprocess.Popen(['sleep', '600'])\n"
            f"print('{STEP % 1}', flush=True); print('{STEP % 2}', flush=True); sys.stdin.read()"
        )
        with told(program) as software:
            reached = software.start(Path("16.json"), kill_at=("copy rows", 2))
            assert software.process.returncode == -signal.SIGKILL
        assert (reached["done"], reached["total"]) == (2, 4)
        assert_no_process_of(software.process.pid)

    def test_it_ends_with_the_demonstration(self, told: Story) -> None:
        """It is in a session of its own, where no Ctrl-C comes: it is killed."""
        with pytest.raises(KeyboardInterrupt), told("import time; time.sleep(600)") as software:
            raise KeyboardInterrupt
        assert_no_process_of(software.process.pid)

    @pytest.mark.parametrize(("program", "message"), [
        ("raise SystemExit(3)", "a process of the software ended with 3"),
        ('print(\'{"failed": "no such table", "remedy": "make one"}\')', "no such table"),
    ])
    def test_its_failure_is_the_demonstrations(
        self, program: str, message: str, told: Story
    ) -> None:
        """One that ends by itself fails the demonstration, with what it says."""
        with pytest.raises(demo.DemoFailed, match=message), told(program) as software:
            software.start(Path("16.json"))


def assert_no_process_of(group: int) -> None:
    """None is left in a group, a moment after it was killed."""
    until = time.monotonic() + 20
    while time.monotonic() < until:
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return
        time.sleep(0.05)
    pytest.fail(f"a process of group {group} is left")


class TestScreen:
    """One screen of lines."""

    def test_a_figure_is_behind_its_seconds(self, capsys: pytest.CaptureFixture[str]) -> None:
        """Long ones go on below, no line is longer than 100 columns; nothing passes in a file."""
        screen = demo.Screen()
        screen.chapter("What happens")
        screen.passing("bind 1/2")
        screen.figure(f"{'a word and ' * 8}the end")
        first, second, third = capsys.readouterr().out.splitlines()
        assert first == "1. What happens"
        assert second.startswith("    0.0 s  a word and a word")
        assert third == "           the end"
        assert len(second) <= 100

    def test_progress_passes_on_a_terminal(
        self, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """It stands below the lines until the next one takes its place, and never wraps."""
        monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
        monkeypatch.setenv("COLUMNS", "40")
        screen = demo.Screen()
        screen.passing(f"bind {'x' * 100}")
        screen.say("done")
        passing, done = capsys.readouterr().out.removeprefix("\r\x1b[K").split("\r\x1b[K")
        assert passing == f"           bind {'x' * 23}"
        assert done == "done\n"


BEFORE = {"id": [1, 2], "old": ["a", None], "tags": [["x"], []], "unused": [7, 8]}


class TestCompare:
    """Rows of the fixtures and of the catalog's tables."""

    @staticmethod
    def catalog(tmp_path: Path, **columns: Any) -> Any:
        """One table ``s.t`` with the columns ``id``, ``new``, ``tags``."""
        pyarrow.parquet.write_table(pyarrow.table(BEFORE), tmp_path / "s.t.parquet")
        write_deltalake(tmp_path / "t", pyarrow.table(columns))
        definition = ObjectDefinition(
            schema="s", kind="table", name="t", dropped=("unused",),
            columns=(
                Column("id", "SMALLINT"), Column("new", "STRING", renamed_from="old"),
                Column("tags", "ARRAY<STRING>"),
            ),
        )
        return SimpleNamespace(
            state=lambda: SimpleNamespace(items={"i1": SimpleNamespace(definition=definition)}),
            show=lambda _: {"location": str(tmp_path / "t")},
        )

    def test_the_same_rows_are_equal(self, tmp_path: Path) -> None:
        """In another order, in a narrower type and under a new name; dropped columns are left out.
        """
        catalog = self.catalog(
            tmp_path, id=pyarrow.array([2, 1], pyarrow.int16()), new=[None, "a"],
            tags=[[], ["x"]], more=[True, False],
        )
        assert demo.compare_rows(catalog, tmp_path) == (1, 2, ["t.unused"])

    @pytest.mark.parametrize("new", [["a", "b"], ["a", ""]])
    def test_a_changed_value_fails(self, new: list[str], tmp_path: Path) -> None:
        """The table is named, and how many rows differ."""
        catalog = self.catalog(tmp_path, id=[1, 2], new=new, tags=[["x"], []])
        with pytest.raises(demo.DemoFailed, match=r"s\.t differs: 1 row missing or changed, 1 row"):
            demo.compare_rows(catalog, tmp_path)

    def test_a_doubled_row_fails(self, tmp_path: Path) -> None:
        """How often a row is there counts."""
        catalog = self.catalog(
            tmp_path, id=[1, 2, 2], new=["a", None, None], tags=[["x"], [], []]
        )
        with pytest.raises(demo.DemoFailed, match="0 rows missing or changed, 1 row more"):
            demo.compare_rows(catalog, tmp_path)


class TestEnding:
    """What is left, and what is missing."""

    @pytest.mark.parametrize("named", [False, True])
    def test_it_says_what_is_left(
        self, named: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        """Its own directory is removed, one that was named stays; nothing can be resumed."""
        homes: list[Path] = []

        def interrupt(place: demo.Place) -> None:
            place.home.mkdir(parents=True)
            homes.extend((place.home, place.scratch))
            raise KeyboardInterrupt

        monkeypatch.setattr(demo, "_tell", interrupt)
        monkeypatch.setattr(demo, "ROOT", tmp_path)
        place = tmp_path / "here"
        assert main(["demo", *(["--directory", str(place)] if named else [])]) == 130
        told = capsys.readouterr().err
        assert "resume" not in told
        assert (f"its catalog is left at {place}" if named else "its catalog is removed") in told
        home, scratch = homes
        assert home == (place if named else tmp_path / "build" / "demo")
        assert (home.exists(), scratch.exists()) == (named, False)

    def test_two_do_not_share_a_directory(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """The second is refused while the first one runs."""
        monkeypatch.setattr(demo, "ROOT", tmp_path)
        with demo._own_directory():
            assert main(["demo"]) == 1
        assert "another demonstration runs in" in capsys.readouterr().err
        with demo._own_directory() as home:
            assert home == tmp_path / "build" / "demo"

    def test_a_missing_java_is_said_first(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """Before any process is started, with what to do."""
        monkeypatch.setenv("JAVA_HOME", str(tmp_path))
        assert main(["demo", "--directory", str(tmp_path / "demo")]) == 1
        told = capsys.readouterr().err
        assert told.startswith(f"error CM0500: JAVA_HOME is {tmp_path}")
        assert not (tmp_path / "demo").exists()

    @pytest.mark.spark
    def test_ctrl_c_leaves_nothing(self, tmp_path: Path) -> None:
        """The real one, interrupted while a JVM starts: exit 130, no process, no file."""
        scratch = tmp_path / "scratch"
        scratch.mkdir()
        process = subprocess.Popen(
            [sys.executable, "-m", "catalog_migrate.cli.main", "demo",
             "--directory", str(tmp_path / "demo")],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT,
            start_new_session=True, env={**os.environ, "TMPDIR": str(scratch)},
            # a test run that a shell put behind has it ignored
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )
        until = time.monotonic() + 120
        while not (groups := groups_of_jvms(scratch)):
            assert process.poll() is None, process.communicate()
            assert time.monotonic() < until
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        out, told = process.communicate(timeout=120)
        assert process.returncode == 130
        assert out.splitlines()[-1].startswith("1. ")
        assert told.lstrip().startswith("interrupted: the demonstration ends here")
        assert "Traceback" not in told
        for group in groups:
            assert_no_process_of(group)
        assert list(scratch.iterdir()) == []

    @pytest.mark.spark
    @pytest.mark.soak
    def test_it_is_one_screen(self, tmp_path: Path) -> None:
        """The whole story fits 30 lines of 100 columns, and leaves the report and the catalog."""
        home = tmp_path / "demo"
        done = subprocess.run(
            [sys.executable, "-m", "catalog_migrate.cli.main", "demo", "--directory", str(home)],
            capture_output=True, text=True, cwd=ROOT, timeout=900,
        )
        assert (done.returncode, done.stderr) == (0, "")
        lines = done.stdout.splitlines()
        assert len(lines) <= 30
        assert max(len(line.replace(str(home), "build/demo")) for line in lines) <= 100
        assert "20,817 rows of 39 tables are equal" in done.stdout
        assert f"    {home / 'report.html'}" in lines
        assert sorted(path.name for path in home.iterdir()) == ["catalog", "report.html", "rows"]


def groups_of_jvms(scratch: Path) -> list[int]:
    """The process groups of JVMs that start Spark with directories below ``scratch``."""
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        try:
            facts = (place / "stat").read_text().rpartition(")")[2].split()
            command = (place / "cmdline").read_bytes()
        except OSError:
            continue  # it has ended
        if b"org.apache.spark.deploy.SparkSubmit" in command and os.fsencode(scratch) in command:
            found.append(int(facts[2]))
    return found
