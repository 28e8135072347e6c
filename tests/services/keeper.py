"""Runs one server as its child and ends it when whoever started the keeper is gone.

Started by :mod:`tests.services.process` as a script of its own, so that it has
one thread and imports nothing of the product. Its arguments are the name of the signal that ends
the server when the starter has died, the user and group ids to run the server under ("-" "-" for
the keeper's own), and the server's command. It writes the server's process id as a line on its
standard output and then obeys lines on its standard input: each is the name of a signal for the
server. The end of that input means that the starter is gone.
"""

from __future__ import annotations

import ctypes
import os
import select
import signal
import subprocess
import sys
import time

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_GRACE = 5.0


def _prctl(option: int, value: int) -> None:
    """Linux's ``prctl``; elsewhere nothing happens."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def _die_with_keeper() -> None:
    """Asks Linux to kill this process when the keeper is killed."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _await_orphans() -> None:
    """Wait until the processes that the server left behind have ended, for a while."""
    end = time.monotonic() + _GRACE
    while time.monotonic() < end:
        try:
            if os.waitpid(-1, os.WNOHANG)[0] == 0:
                time.sleep(0.01)
        except ChildProcessError:
            return


def _end(server: subprocess.Popen[bytes], last: signal.Signals) -> None:
    server.send_signal(signal.SIGCONT)
    server.send_signal(last)
    try:
        server.wait(_GRACE)
    except subprocess.TimeoutExpired:
        server.kill()
        server.wait()


def main(arguments: list[str]) -> int:
    """Keep the server until it ends; return its exit status as a shell would give it."""
    last = signal.Signals[arguments[0]]
    # what a killed server leaves behind comes to us, not to a container's init that never reaps
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    wake, woken = os.pipe()
    os.set_blocking(woken, False)
    signal.set_wakeup_fd(woken)
    signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
    user, group = (None if text == "-" else int(text) for text in arguments[1:3])
    server = subprocess.Popen(
        arguments[3:],
        stdin=subprocess.DEVNULL,
        stdout=sys.stderr,
        user=user,
        group=group,
        extra_groups=None if user is None else [],
        preexec_fn=_die_with_keeper,
    )
    sys.stdout.write(f"{server.pid}\n")
    sys.stdout.flush()
    orders = sys.stdin.fileno()
    pending = b""
    while server.poll() is None:
        ready, _, _ = select.select([orders, wake], [], [])
        if wake in ready:
            os.read(wake, 512)
        if orders in ready:
            said = os.read(orders, 512)
            if not said:
                _end(server, last)
                break
            *lines, pending = (pending + said).split(b"\n")
            for line in lines:
                server.send_signal(signal.Signals[line.decode()])
    status = server.wait()
    _await_orphans()
    return status if status >= 0 else 128 - status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
