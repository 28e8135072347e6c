"""A local disk: the store in a directory, and files that somebody named."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from hashlib import sha256
from io import FileIO
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
    """The files below a directory, as a :class:`~catalog_migrate.store.Store`.

    ``on_step`` hears of each step of what is made or put, before it takes effect; a test ends the
    process there.
    """

    __slots__ = ("_on_step", "address")

    def __init__(self, directory: str, on_step: Callable[[str], None] = lambda _: None) -> None:
        self.address = directory
        self._on_step = on_step

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

    def tree(self, folder: str = "") -> Iterator[str]:
        above = self.place(folder)
        for directory, _, files in os.walk(above):
            within = os.path.relpath(directory, self.address)
            for name in files:
                yield name if within == os.curdir else f"{within}/{name}"

    def read_all(self, names: Iterable[str]) -> dict[str, bytes]:
        return {name: self.read(name) for name in names}

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
            self._on_step(f"write {os.path.basename(name)}")
            _write(partial, data, durable=durable)
            self._on_step(f"rename {os.path.basename(name)}")  # in effect, but where one is
            os.link(partial, target)
        except FileExistsError:
            return False
        finally:
            _unlink(partial)
        self._settle(folder, durable=durable)
        return True

    def put_if_match(self, name: str, data: bytes, tag: str, *, durable: bool = True) -> bool:
        """By a rename, under a lock of the folder that all who put so wait for."""
        target = self.place(name)
        folder = os.path.dirname(target)
        partial = os.path.join(folder, f".{uuid4().hex}.tmp")
        with _lock(folder):
            try:
                if self.read_tagged(name)[1] != tag:
                    return False
            except FileNotFoundError:
                return False
            try:
                self._on_step(f"write {os.path.basename(name)}")
                _write(partial, data, durable=durable)
                self._on_step(f"rename {os.path.basename(name)}")
                os.replace(partial, target)
            finally:
                _unlink(partial)
        self._settle(folder, durable=durable)
        return True

    def put_all(self, contents: Mapping[str, bytes], *, durable: bool = True) -> None:
        """All are written first and synced then: the file system writes them in one go."""
        written: dict[str, None] = {}
        for name, data in contents.items():
            target = self.place(name)
            folder = os.path.dirname(target)
            os.makedirs(folder, exist_ok=True)
            _write(target, data, durable=False)
            written |= dict.fromkeys((target, folder))
        for path in written if durable else ():
            _make_durable(path)

    def make_folder(
        self, name: str = "", *, above: bool = False, durable: bool = False
    ) -> None:
        """Without ``above`` FileExistsError where one is."""
        path = self.place(name)
        if above:
            if os.path.isdir(path):
                return
            self._make_above(os.path.dirname(path), durable=durable)
            self._on_step(f"make {os.path.basename(path)}")
            with suppress(FileExistsError):
                os.mkdir(path)
        else:
            os.mkdir(path)
        if durable:
            _make_durable(os.path.dirname(path))

    def _make_above(self, path: str, *, durable: bool) -> None:
        if path and not os.path.isdir(path):
            LocalStore(path, self._on_step).make_folder(above=True, durable=durable)

    def _settle(self, folder: str, *, durable: bool) -> None:
        self._on_step(f"sync {os.path.basename(folder)}")
        if durable:
            _make_durable(folder)

    def remove_folder(self, name: str) -> None:
        os.rmdir(self.place(name))

    def move(self, name: str, to: str) -> None:
        os.rename(self.place(name), self.place(to))

    def delete(self, name: str = "", *, durable: bool = False) -> None:
        path = self.place(name).rstrip("/")
        if os.path.isdir(path) and not os.path.islink(path):
            import shutil  # here: it takes longer than all that a start without changes asks of us

            shutil.rmtree(path)
        else:
            _unlink(path)
        if durable:
            _make_durable(os.path.dirname(path))


def is_there(path: str) -> bool:
    """Return whether something is at a path of this disk, by one question and no store."""
    return os.access(path, os.F_OK)


def read_file(path: str | os.PathLike[str]) -> bytes:
    """Return the bytes of the regular file at ``path``.

    Raises OSError, also for a pipe, socket, device or directory: opening one of those for reading
    may wait for ever, so it is opened without waiting and looked at before a byte is read.
    """
    with _open_regular(path) as file:
        return file.read()


def read_chunks(path: str | os.PathLike[str], size: int = 1 << 20) -> Iterator[memoryview]:
    """Yield the bytes of the regular file at ``path``, in pieces that share one buffer.

    Raises as :func:`read_file`, which takes several times as long where the file is large.
    """
    buffer = memoryview(bytearray(size))
    with _open_regular(path) as file:
        while count := file.readinto(buffer):
            yield buffer[:count]


def _open_regular(path: str | os.PathLike[str]) -> FileIO:
    waiting_not = getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)
    _refuse_odd(os.stat(path).st_mode, path)
    file = FileIO(os.open(path, os.O_RDONLY | waiting_not))
    try:
        _refuse_odd(os.fstat(file.fileno()).st_mode, path)  # it may have been exchanged meanwhile
    except OSError:
        file.close()
        raise
    return file


def damaged_package_error(what: str) -> PrerequisiteMissing:
    """Return the error for a file of this very package that is not as it was installed."""
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
def _lock(directory: str) -> Iterator[None]:
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
