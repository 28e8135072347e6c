"""Ctrl-C in the demonstration: all of its processes end, and it says what is left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from catalog_migrate.cli.main import main
from examples import demo

if TYPE_CHECKING:
    from subprocess import Popen


def test_the_process_that_is_to_be_killed_ends_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is in a session of its own, so that no Ctrl-C comes there."""
    killed: list[int] = []

    def interrupt(_: str) -> None:
        raise KeyboardInterrupt

    def kill(process: Popen[str], kill: Any = demo._kill) -> None:
        killed.append(process.pid)
        kill(process)

    sleeper = "import time; print('bind 0/60', flush=True); time.sleep(600)"
    monkeypatch.setattr(demo, "_command", lambda *_: [sys.executable, "-c", sleeper])
    monkeypatch.setattr(demo, "_say", interrupt)
    monkeypatch.setattr(demo, "_kill", kill)
    with pytest.raises(KeyboardInterrupt):
        demo._kill_in_the_middle(tmp_path)
    (pid,) = killed
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


@pytest.mark.parametrize("named", [False, True])
def test_it_says_what_is_left(
    named: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The temporary directory is removed, one that was named stays; nothing can be resumed."""
    homes: list[Path] = []

    def interrupt(_: str, home: Path) -> None:
        homes.append(home)
        raise KeyboardInterrupt

    monkeypatch.setattr(demo, "_step", interrupt)
    place = tmp_path / "here"
    assert main(["demo", *(["--directory", str(place)] if named else [])]) == 130
    told = capsys.readouterr().err
    assert "resume" not in told
    assert (f"its catalog is left at {place}" if named else "its catalog is removed") in told
    assert homes[0].exists() is named


@pytest.mark.parametrize("ending", ["raise SystemExit(130)", "os.kill(os.getpid(), signal.SIGINT)"])
def test_a_step_that_was_interrupted_ends_the_demonstration(
    ending: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Also if the step alone got Ctrl-C, as a background job of a script does."""
    program = f"import os, signal; signal.signal(signal.SIGINT, signal.SIG_DFL); {ending}"
    monkeypatch.setattr(demo, "_command", lambda *_: [sys.executable, "-c", program])
    with pytest.raises(KeyboardInterrupt):
        demo._step("16", tmp_path)
    assert main(["demo"]) == 130
    told = capfd.readouterr().err
    assert told.lstrip().startswith("interrupted: the demonstration ends here")
    assert "Traceback" not in told


@pytest.mark.spark
def test_a_step_takes_ctrl_c_without_a_traceback(tmp_path: Path) -> None:
    """The real process of a step, interrupted while its JVM starts, which ends as well."""
    command = demo._command(tmp_path, "load")
    process = subprocess.Popen(
        command, stderr=subprocess.PIPE, text=True, start_new_session=True,
        # a test run that a shell put behind has it ignored
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    until = time.monotonic() + 60
    while not jvms_of(process.pid):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < until
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, told = process.communicate(timeout=240)
    assert process.returncode == 130
    assert "KeyboardInterrupt" not in told
    until = time.monotonic() + 120
    while time.monotonic() < until:
        try:
            os.killpg(process.pid, 0)  # its JVM is in its group, and ends when it sees that
        except ProcessLookupError:
            return
        time.sleep(0.2)
    pytest.fail("a JVM is left behind")


def jvms_of(group: int) -> list[str]:
    """The processes of a group that start Spark."""
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        try:
            facts = (place / "stat").read_text().rpartition(")")[2].split()
            command = (place / "cmdline").read_bytes()
        except OSError:
            continue  # it has ended
        if int(facts[2]) == group and b"org.apache.spark.deploy.SparkSubmit" in command:
            found.append(place.name)
    return found
