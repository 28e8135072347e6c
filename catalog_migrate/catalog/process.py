"""Which process holds a lease or has a session, and whether it can be proven dead from here."""

from __future__ import annotations

import os
from functools import lru_cache
from pathlib import Path

import msgspec

from catalog_migrate.catalog.records import LeaseRecord, SessionRecord

_PROC = Path("/proc")


class ProcessIdentity(msgspec.Struct, frozen=True):
    """One process of one boot of one machine.

    ``boot_id`` also names the namespace that ``pid`` counts in: two containers of one machine see
    the same boot but different processes. ``started`` is the start time in clock ticks since boot.
    ``boot_id`` and ``started`` are empty where the system does not tell them.
    """

    host: str
    boot_id: str
    pid: int
    started: str


def this_process() -> ProcessIdentity:
    """Return the identity of the running process, another one after a ``fork``."""
    return _identity(os.getpid())


@lru_cache(maxsize=1)
def this_host() -> str:
    """Return the name of this machine, for the history, and to tell its processes from others'."""
    from socket import gethostname

    return gethostname()


def this_holder() -> str:
    """Return what a lease calls this process: ``HOST/PID``."""
    return f"{this_host()}/{os.getpid()}"


@lru_cache(maxsize=1)
def this_user() -> str:
    """Who runs this process, for the history: the system's name of the user, else its number."""
    number = os.getuid() if hasattr(os, "getuid") else None
    try:
        import pwd

        return pwd.getpwuid(number).pw_name if number is not None else "unknown"
    except (ImportError, KeyError):
        return "unknown" if number is None else f"uid {number}"


@lru_cache(maxsize=1)
def _identity(pid: int) -> ProcessIdentity:
    life = _life(pid)
    return ProcessIdentity(this_host(), _boot_id(), pid, life[1] if life else "")


def proven_dead(record: LeaseRecord | SessionRecord) -> bool:
    """Return whether the process that took the lease, or started the session, is certainly gone.

    True only for a process of this very boot and process namespace whose number is free, belongs
    to a process that started at another time, or to one that is killed and only not yet reaped.
    """
    if not (record.host and record.boot_id and record.pid and record.started):
        return False
    if record.host != this_host() or record.boot_id != _boot_id():
        return False
    own = this_process()
    if (record.pid, record.started) == (own.pid, own.started):
        return False
    life = _life(record.pid)
    if life is None:
        return not (_PROC / str(record.pid)).exists()
    state, started = life
    return started != record.started or (state in "ZX" and _threads(record.pid) <= 1)


@lru_cache(maxsize=1)
def _boot_id() -> str:
    try:
        boot = (_PROC / "sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot}/{os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return ""


def _life(pid: int) -> tuple[str, str] | None:
    """(state letter, start time in ticks) of a process, None when it cannot be read."""
    try:
        text = (_PROC / str(pid) / "stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    # the second field is the command in parentheses and may itself hold spaces and parentheses
    fields = text.rpartition(")")[2].split()
    return fields[0], fields[19]


def _threads(pid: int) -> int:
    """Number of threads; a group leader that ended before its threads also looks like a zombie."""
    try:
        return len(os.listdir(_PROC / str(pid) / "task"))
    except OSError:
        return 0
