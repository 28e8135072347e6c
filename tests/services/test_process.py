"""A server never outlives the process that started it, and says why it did not start."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.services.process import ServerProcess, ServiceFailed, free_ports

SLEEP = [sys.executable, "-c", "import time; time.sleep(600)"]
STARTER = """
import sys, time
from pathlib import Path
from tests.services.process import ServerProcess
directory = Path(sys.argv[1])
server = ServerProcess([sys.executable, "-c", sys.argv[2]], log=directory / "log", cwd=directory)
print(server.pid, flush=True)
time.sleep(float(sys.argv[3]))
"""
COUNTER = "while True: print(1, flush=True)"
FAMILY = "import os, time; os.fork(); print(os.getpid(), flush=True); time.sleep(600)"


def _gone(pid: int) -> bool:
    """Whether a process has ended within ten seconds (one that nobody reaped has, too)."""
    end = time.monotonic() + 10
    while time.monotonic() < end:
        try:
            os.kill(pid, 0)
            state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
        except (ProcessLookupError, FileNotFoundError):
            return True
        if state == "Z":
            return True
        time.sleep(0.02)
    return False


@pytest.mark.parametrize("ending", ["killed", "returns"])
def test_a_server_ends_with_its_starter(tmp_path: Path, ending: str) -> None:
    """Whether the starter is killed or just ends without stopping it."""
    seconds = "600" if ending == "killed" else "0"
    command = [sys.executable, "-c", STARTER, str(tmp_path), SLEEP[2], seconds]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as starter:
        assert starter.stdout is not None
        server = int(starter.stdout.readline())
        if ending == "killed":
            os.kill(server, 0)
            starter.kill()
    assert _gone(server)


def test_a_stopped_server_has_ended_when_stop_returns(tmp_path: Path) -> None:
    """SIGTERM is enough for this one, and its process is gone."""
    server = ServerProcess(SLEEP, log=tmp_path / "log", cwd=tmp_path)
    assert server.running
    server.stop(timeout=10)
    assert not server.running
    with pytest.raises(ProcessLookupError):
        os.kill(server.pid, 0)


def test_one_that_does_not_listen_is_killed(tmp_path: Path) -> None:
    """A server deaf to SIGTERM ends by SIGKILL after the time given."""
    deaf = "import signal, time; signal.signal(15, signal.SIG_IGN); print(1, flush=True)"
    command = [sys.executable, "-c", f"{deaf}; time.sleep(600)"]
    server = ServerProcess(command, log=tmp_path / "log", cwd=tmp_path)
    while "1" not in (tmp_path / "log").read_text():
        time.sleep(0.01)
    server.stop(timeout=0.2)
    assert not server.running


def test_what_a_killed_server_leaves_behind_is_waited_for(tmp_path: Path) -> None:
    """A child of the killed server that ends by itself is reaped, not left as a zombie."""
    command = [sys.executable, "-c", FAMILY.replace("600", "0.5")]
    server = ServerProcess(command, log=tmp_path / "log", cwd=tmp_path)
    while len(pids := (tmp_path / "log").read_text().split()) < 2:
        time.sleep(0.01)
    server.kill()
    for pid in map(int, pids):
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_a_suspended_server_stops_nevertheless(tmp_path: Path) -> None:
    """A frozen server is woken to hear that it shall end."""
    server = ServerProcess(SLEEP, log=tmp_path / "log", cwd=tmp_path)
    server.suspend()
    server.stop(timeout=10)
    assert not server.running


def test_a_suspended_server_does_nothing_from_then_on(tmp_path: Path) -> None:
    """What it has written when it is frozen stays all that it wrote until it is woken."""
    log = tmp_path / "log"
    server = ServerProcess([sys.executable, "-c", COUNTER], log=log, cwd=tmp_path)
    for _ in range(20):
        before = log.stat().st_size
        while log.stat().st_size == before:
            time.sleep(0.001)
        server.suspend()
        frozen = log.stat().st_size
        time.sleep(0.02)
        assert log.stat().st_size == frozen
        server.wake()
    server.kill()


def test_one_that_has_ended_is_not_suspended(tmp_path: Path) -> None:
    """Nobody is told that a server hangs that is gone."""
    server = ServerProcess(SLEEP, log=tmp_path / "log", cwd=tmp_path)
    server.kill()
    with pytest.raises(ServiceFailed, match="was not frozen"):
        server.suspend()


def test_a_program_that_is_not_there_is_said_with_the_reason(tmp_path: Path) -> None:
    """The sentence carries the program and the system's reason."""
    with pytest.raises(ServiceFailed, match="No such file") as caught:
        ServerProcess(["not-a-program"], log=tmp_path / "log", cwd=tmp_path)
    assert caught.value.message.startswith("not-a-program could not be started:")


def test_the_ports_are_different_and_nobody_listens_on_them() -> None:
    """Below the range of outgoing connections, each once."""
    ports = free_ports(20)
    assert len(set(ports)) == 20
    assert all(20000 <= port < 32000 for port in ports)
