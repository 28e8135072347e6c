"""Ctrl-C in the demonstration: nothing of it goes on, and it says what is left."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from catalog_migrate import demo
from catalog_migrate.cli.main import main

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
