"""A server as a child process that never outlives us, and the free ports that it listens on."""

from __future__ import annotations

import atexit
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path

import psutil

from catalog_migrate.errors import CatalogMigrateError

_KEEPER = Path(__file__).with_name("keeper.py")
_TAIL_LINES = 20
_FROZEN = 20.0
READY = 120.0
"""Seconds that a server may take until it is ready."""
# Below the range from which Linux and macOS take the ports of outgoing connections: a port that a
# stopped server gave up is still free when the server comes back.
_PORTS = range(20000, 32000)


class ServiceFailed(CatalogMigrateError, RuntimeError):
    """A server of the tests that does not start, answer or end."""

    code = "CM0790"


def free_ports(count: int) -> tuple[int, ...]:
    """So many different TCP ports of 127.0.0.1 that nobody listens on just now."""
    found: list[int] = []
    with ExitStack() as held:
        while len(found) < count:
            port = random.choice(_PORTS)
            if port in found:  # two that only reuse an address may both be bound to it
                continue
            probe = held.enter_context(socket.socket(socket.AF_INET, socket.SOCK_STREAM))
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            found.append(port)
    return tuple(found)


class ServerProcess:
    """One running server: its end, its signals, its log.

    ``command`` is the argument list, ``log`` the file that collects its output (appended to),
    ``cwd`` and ``env`` are the server's, ``account`` is the (user, group) ids to run it under
    (None: our own), ``last_signal`` ends it when this process has died without stopping it.
    A keeper process stands between us and the server, so that the server also ends when we are
    killed; it does not hear the terminal's Ctrl-C.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        log: Path,
        cwd: Path,
        env: Mapping[str, str] | None = None,
        account: tuple[int, int] | None = None,
        last_signal: signal.Signals = signal.SIGKILL,
    ) -> None:
        self.log = log
        self._owner = os.getpid()
        user, group = ("-", "-") if account is None else (str(account[0]), str(account[1]))
        keeper = [sys.executable, "-I", "-S", str(_KEEPER), last_signal.name, user, group]
        with log.open("ab") as output:
            self._keeper = subprocess.Popen(
                [*keeper, *command],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=output,
                cwd=cwd,
                env=None if env is None else dict(env),
                start_new_session=True,
            )
        atexit.register(self.kill)
        assert self._keeper.stdout is not None
        line = self._keeper.stdout.readline().strip()
        if not line:
            self._close()
            raise ServiceFailed(
                f"{command[0]} could not be started:\n{self.tail()}",
                remedy="fix what the log says",
            )
        self.pid = int(line)

    @property
    def running(self) -> bool:
        """Whether the server has not ended."""
        return self._keeper.poll() is None

    def await_ready(self, ready: Callable[[], bool], what: str) -> None:
        """Wait until the server is ready; an OSError says that it is not yet.

        Raises ServiceFailed with the end of its log, after which the server is gone.
        """
        deadline = Deadline(READY)
        try:
            while not deadline.passed and self.running:
                with suppress(OSError):
                    if ready():
                        return
                time.sleep(0.1)
            raise ServiceFailed(f"{what}:\n{self.tail()}", remedy="read its log")
        except BaseException:
            self.kill()
            raise

    def send(self, number: signal.Signals) -> None:
        """Have the keeper send the server a signal; nothing happens when it has ended."""
        if not self.running or os.getpid() != self._owner:
            return
        assert self._keeper.stdin is not None
        try:
            self._keeper.stdin.write(f"{number.name}\n".encode())
            self._keeper.stdin.flush()
        except BrokenPipeError:
            return

    def suspend(self) -> None:
        """Freeze the server; it does nothing any more when this returns.

        Raises ServiceFailed when it has ended or still runs after 20 seconds.
        """
        self.send(signal.SIGSTOP)
        deadline = Deadline(_FROZEN)
        while not deadline.passed and self.running:
            # The keeper sends the signal a moment after it was asked to.
            with suppress(psutil.NoSuchProcess):
                if psutil.Process(self.pid).status() == psutil.STATUS_STOPPED:
                    return
            time.sleep(0.005)
        raise ServiceFailed(
            f"the server {self.pid} was not frozen:\n{self.tail()}", remedy="read its log"
        )

    def wake(self) -> None:
        """Let a frozen server go on."""
        self.send(signal.SIGCONT)

    def stop(self, number: signal.Signals = signal.SIGTERM, *, timeout: float = 20.0) -> None:
        """Ask the server to end; kill it after ``timeout`` seconds."""
        self.wake()
        self.send(number)
        try:
            self._keeper.wait(timeout)
        except subprocess.TimeoutExpired:
            self.kill()
        self._close()

    def kill(self) -> None:
        """End the server at once by SIGKILL, as a power cut would."""
        if os.getpid() != self._owner:
            return
        self.send(signal.SIGKILL)
        self._keeper.wait()
        self._close()

    def said(self) -> str:
        """The whole log."""
        return self.log.read_text(encoding="utf-8", errors="replace")

    def tail(self) -> str:
        """The last lines of the log, indented; not what a JVM says of its archive of classes."""
        lines = [line for line in self.said().splitlines() if "[cds]" not in line]
        return "\n".join(f"    {line}" for line in lines[-_TAIL_LINES:])

    def _close(self) -> None:
        atexit.unregister(self.kill)
        for pipe in (self._keeper.stdin, self._keeper.stdout):
            if pipe is not None and not pipe.closed:
                try:
                    pipe.close()
                except BrokenPipeError:
                    continue
        self._keeper.wait()


class Deadline:
    """A point in time that a wait must not pass."""

    def __init__(self, seconds: float) -> None:
        self._end = time.monotonic() + seconds

    @property
    def left(self) -> float:
        """Seconds until then, never negative."""
        return max(0.0, self._end - time.monotonic())

    @property
    def passed(self) -> bool:
        """Whether it lies behind us."""
        return time.monotonic() >= self._end
