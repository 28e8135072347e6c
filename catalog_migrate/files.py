"""Files that somebody named, and our own: nothing waits for a pipe, nothing missing is nothing."""

from __future__ import annotations

import errno
import os
import stat

from catalog_migrate.errors import PrerequisiteMissing

_KINDS = (
    (stat.S_ISFIFO, "a named pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
    (stat.S_ISDIR, "a directory"),
)


def read_file(path: str | os.PathLike[str]) -> bytes:
    """The bytes of the regular file at ``path``.

    Raises OSError, also for a pipe, socket, device or directory: opening one of those for reading
    may wait for ever, so it is opened without waiting and looked at before a byte is read.
    """
    waiting_not = getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)
    _refuse_odd(os.stat(path).st_mode, path)
    handle = os.open(path, os.O_RDONLY | waiting_not)
    with os.fdopen(handle, "rb") as file:
        _refuse_odd(os.fstat(handle).st_mode, path)  # it may have been exchanged meanwhile
        return file.read()


def damaged(what: str) -> PrerequisiteMissing:
    """The error for a file of this very package that is not as it was installed."""
    return PrerequisiteMissing(
        f"this installation of catalog-migrate is damaged: {what}",
        remedy="install catalog-migrate again (pip install --force-reinstall)",
    )


def _refuse_odd(mode: int, path: str | os.PathLike[str]) -> None:
    if stat.S_ISREG(mode):
        return
    kind = next((name for is_kind, name in _KINDS if is_kind(mode)), "something else")
    raise OSError(errno.EINVAL, f"it is {kind}, not a file", os.fspath(path))
