"""File operations that may be cut off between any two steps without leaving half a file.

A file is replaced by writing a hidden temporary name in the same directory, fsync, rename, fsync
of the directory. Hidden names that end in ``.tmp`` are litter of crashes; Spark ignores them too.
Hadoop keeps a checksum ``.<name>.crc`` beside every file of a local file system. It goes *before*
the file changes: a file without one is read without a check, one with an old one is refused.
"""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path

Step = Callable[[str], None]
"""Hears of each step before it takes effect; a test ends the process there."""

_HIDDEN_SUFFIX = ".tmp"


def _unheard(_: str) -> None:
    """The listener of production: nobody."""


class Files:
    """The operations; ``on_step`` hears of each step, named by what it does to which file."""

    __slots__ = ("_on_step",)

    def __init__(self, on_step: Step = _unheard) -> None:
        self._on_step = on_step

    def replace(self, path: Path, data: bytes) -> None:
        """Make ``data`` the whole contents of ``path``, creating missing directories.

        A file that holds just that is left, but made durable: an earlier attempt may have died
        between its rename and the sync.
        """
        self.make_directory(path.parent)
        self.remove(checksum_of(path))
        if path.is_file() and path.read_bytes() == data:
            self.sync(path.parent)
            return
        temporary = _hidden(path)
        try:
            with temporary.open("xb") as stream:
                self._on_step(f"write {path.name}")
                stream.write(data)
                stream.flush()
                os.fsync(stream.fileno())
            self._on_step(f"rename {path.name}")
            os.replace(temporary, path)
        except OSError:
            temporary.unlink(missing_ok=True)
            raise
        self._on_step(f"sync {path.parent.name}")
        self.sync(path.parent)

    def remove(self, path: Path) -> None:
        """Remove a file and its checksum; one that is not there is fine."""
        checksum = checksum_of(path)
        gone = [each for each in (checksum, path) if each.exists()]
        for each in gone:
            self._on_step(f"remove {each.name}")
            each.unlink(missing_ok=True)
        if gone:
            self.sync(path.parent)

    def make_directory(self, path: Path) -> None:
        """Create a directory and its parents, durably; one that is there is fine."""
        if path.is_dir():
            return
        self.make_directory(path.parent)
        self._on_step(f"make {path.name}")
        path.mkdir(exist_ok=True)
        self.sync(path.parent)

    def install_tree(self, contents: Mapping[str, bytes | None], target: Path) -> None:
        """Put a directory in the place of ``target``, which may be there.

        ``contents`` has relative names, None for a directory, each after the one that it is in.
        """
        temporary = _hidden(target)
        self._on_step(f"write {target.name}")
        temporary.mkdir(parents=True)
        written = [temporary]
        for name, data in contents.items():
            path = temporary / name
            written.append(path)
            if data is None:
                path.mkdir()
            else:
                path.write_bytes(data)
        # written first and synced then: the file system writes all of it in one go
        for path in reversed(written):
            self.sync(path)
        self.remove_tree(target)
        self.rename(temporary, target)

    def rename(self, source: Path, target: Path) -> None:
        """Rename within one directory; ``target`` must not exist."""
        self._on_step(f"rename {target.name}")
        source.rename(target)
        self.sync(target.parent)

    def remove_tree(self, path: Path) -> None:
        """Remove a directory: it vanishes at once, its contents follow."""
        if not path.exists():
            return
        removed = _hidden(path)
        self._on_step(f"remove {path.name}")
        path.rename(removed)
        self.sync(path.parent)
        self._on_step(f"empty {path.name}")
        shutil.rmtree(removed, ignore_errors=True)

    def clear_litter(self, directory: Path) -> None:
        """Remove what crashes left directly in a directory."""
        if not directory.is_dir():
            return
        for entry in directory.iterdir():
            if is_litter(entry):
                self._on_step(f"clear {entry.name}")
                if entry.is_dir():
                    shutil.rmtree(entry, ignore_errors=True)
                else:
                    entry.unlink(missing_ok=True)

    def sync(self, path: Path) -> None:
        """Make a file, or renames and removals in a directory, durable."""
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def checksum_of(path: Path) -> Path:
    """Where Hadoop keeps the checksum of a file."""
    return path.with_name(f".{path.name}.crc")


def is_litter(path: Path) -> bool:
    """Whether a name is a temporary one, of ours or of Spark's, or the checksum of such."""
    name = path.name
    return name.startswith(".") and name.removesuffix(".crc").endswith(_HIDDEN_SUFFIX)


def _hidden(path: Path) -> Path:
    """A fresh temporary name beside ``path``."""
    return path.with_name(f".{path.name}.{uuid.uuid4().hex[:12]}{_HIDDEN_SUFFIX}")
