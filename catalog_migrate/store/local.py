"""A local disk: the store in a directory, and files that somebody named."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from uuid import uuid4

from catalog_migrate.errors import PrerequisiteMissing

_KINDS = (
    (stat.S_ISFIFO, "a named pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
    (stat.S_ISDIR, "a directory"),
)


class LocalStore:
    """The files below a directory, as a :class:`~catalog_migrate.store.Store`."""

    __slots__ = ("address",)

    def __init__(self, directory: str) -> None:
        self.address = directory

    def place(self, name: str) -> str:
        return f"{self.address}/{name}" if name else self.address

    def read(self, name: str) -> bytes:
        with open(self.place(name), "rb") as file:
            return file.read()

    def read_tagged(self, name: str) -> tuple[bytes, str]:
        """The tag is a hash of the bytes."""
        data = self.read(name)
        return data, sha256(data).hexdigest()

    def size(self, name: str) -> int:
        return os.stat(self.place(name)).st_size

    def exists(self, name: str) -> bool:
        """Links are followed; OSError for what may not be looked at, or does not answer."""
        try:
            os.stat(self.place(name))
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError as error:
            if error.errno == errno.ELOOP:
                return False
            raise
        return True

    def names(self, folder: str = "", after: str = "") -> list[str]:
        found = os.listdir(self.place(folder))
        return [name for name in found if name > after] if after else found

    def sizes(self, folder: str) -> dict[str, int]:
        with os.scandir(self.place(folder)) as entries:
            return {each.name: each.stat().st_size for each in entries if not each.is_dir()}

    def folders(self, folder: str = "") -> list[str]:
        with os.scandir(self.place(folder)) as entries:
            return [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]

    def put_if_absent(self, name: str, data: bytes, *, durable: bool = True) -> bool:
        """By a hard link, which the file system itself refuses where a file is."""
        target = self.place(name)
        if os.path.exists(target):
            return False
        folder = os.path.dirname(target)
        partial = os.path.join(folder, f".{uuid4().hex}.tmp")
        try:
            _write(partial, data, durable=durable)
            os.link(partial, target)
        except FileExistsError:
            return False
        finally:
            _unlink(partial)
        if durable:
            _make_durable(folder)
        return True

    def put_if_match(self, name: str, data: bytes, tag: str, *, durable: bool = True) -> bool:
        """By a rename, under a lock of the folder that all who put so wait for."""
        target = self.place(name)
        folder = os.path.dirname(target)
        partial = os.path.join(folder, f".{uuid4().hex}.tmp")
        with _locked(folder):
            try:
                if self.read_tagged(name)[1] != tag:
                    return False
            except FileNotFoundError:
                return False
            try:
                _write(partial, data, durable=durable)
                os.replace(partial, target)
            finally:
                _unlink(partial)
        if durable:
            _make_durable(folder)
        return True

    def make_folder(self, name: str = "", *, above: bool = False) -> None:
        """Without ``above`` FileExistsError where one is."""
        if above:
            os.makedirs(self.place(name), exist_ok=True)
        else:
            os.mkdir(self.place(name))

    def remove_folder(self, name: str) -> None:
        os.rmdir(self.place(name))

    def move(self, name: str, to: str) -> None:
        os.rename(self.place(name), self.place(to))

    def delete(self, name: str = "") -> None:
        path = self.place(name)
        if os.path.isdir(path) and not os.path.islink(path):
            import shutil  # here: it takes longer than all that a start without changes asks of us

            shutil.rmtree(path)
        else:
            _unlink(path)


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


def _write(path: str, data: bytes, *, durable: bool) -> None:
    with open(path, "wb") as file:
        file.write(data)
        if durable:
            file.flush()
            os.fsync(file.fileno())


@contextmanager
def _locked(directory: str) -> Iterator[None]:
    """Whoever locks the same directory on this machine waits; a process that ends lets go."""
    import fcntl  # here: nothing that starts without changes needs it

    descriptor = os.open(directory, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _unlink(path: str) -> None:
    try:
        os.unlink(path)
    except FileNotFoundError:
        return


def _make_durable(directory: str) -> None:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
