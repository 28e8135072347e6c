"""The position of a files source: how much is read of its own list of files.

Spark lists a directory, writes each batch of new files to ``sources/<i>/<n>`` and takes ``n`` as
the offset, ``{"logOffset":n}``. So a position can go back (those files are read again) and forth
up to the end of that list, never beyond it: files not listed yet have no number. Every tenth
number holds the whole list and is called ``<n>.compact``.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import ClassVar

import msgspec

from catalog_migrate.errors import CheckpointCorrupt, InvalidPosition, UnsupportedCheckpoint
from catalog_migrate.streams.checkpoint.lines import (
    START,
    parse_object,
    whole_number,
    write_object,
)

_KEY = "logOffset"
_LISTED = re.compile(r"(\d+)(\.compact)?\Z")
_HEADER = "v1"


class ListedFile(msgspec.Struct, frozen=True):
    """A file that the source has listed: its URI, its time in ms, and the number it came with."""

    path: str
    timestamp: int
    number: int


class FilesCodec:
    """``{"logOffset":n}``: everything up to and with number n of the source's list is read."""

    kind: ClassVar[str] = "FILES"

    def splits(self, line: str) -> tuple[str, ...]:
        """The list is one split, none for START."""
        return () if self.read(line) is None else ("files",)

    def read(self, line: str) -> int | None:
        """The number of a line, None for START; :class:`InvalidPosition` when malformed."""
        if line == START:
            return None
        found = parse_object(line, "FILES")
        if set(found) != {_KEY}:
            raise InvalidPosition(f"not an offset of a FILES source: keys {sorted(found)}")
        return whole_number(found[_KEY], f"{_KEY} of a FILES offset")

    def write(self, position: int | None) -> str:
        """The line of a position; before the first number is START."""
        if position is None or position == -1:
            return START
        return write_object({_KEY: whole_number(position, f"{_KEY} of a FILES offset")})

    def check(self, position: int, bounds: int | None) -> tuple[str, ...]:
        """What is wrong with a position; ``bounds`` is the newest number listed, if any."""
        if bounds is None:
            return (f"number {position} is beyond the end, no file has been listed",)
        if position > bounds:
            return (f"number {position} is beyond the end, {bounds} is the newest listed",)
        return ()


def newest_listed(directory: Path) -> int | None:
    """The newest number in ``sources/<i>``, None when nothing has been listed."""
    return max(_numbers(directory), default=None)


def listed_files(directory: Path) -> tuple[ListedFile, ...]:
    """All files listed in ``sources/<i>``, by number and path, each once.

    Raises :class:`CheckpointCorrupt` and :class:`UnsupportedCheckpoint` naming the file.
    """
    found: dict[tuple[int, str], ListedFile] = {}
    for file in _numbers(directory).values():
        try:
            header, *lines = file.read_text("utf-8").splitlines() or [""]
        except UnicodeDecodeError as error:
            raise _corrupt(file, "bytes that are no text") from error
        if header != _HEADER:
            if re.fullmatch(r"v\d+", header):
                raise UnsupportedCheckpoint(f"{file} is of version {header}, known is {_HEADER}")
            raise _corrupt(file, repr(header[:40]))
        for line in lines:
            try:
                entry = parse_object(line, "FILES")
                number = whole_number(entry.get("batchId"), "batchId")
                timestamp = whole_number(entry.get("timestamp"), "timestamp")
            except InvalidPosition as error:
                raise _corrupt(file, repr(line[:80])) from error
            path = entry.get("path")
            if not isinstance(path, str):
                raise _corrupt(file, repr(line[:80]))
            found[(number, path)] = ListedFile(path, timestamp, number)
    return tuple(found[key] for key in sorted(found))


def _numbers(directory: Path) -> dict[int, Path]:
    if not directory.is_dir():
        return {}
    matches = ((_LISTED.match(entry.name), entry) for entry in directory.iterdir())
    return {int(match[1]): entry for match, entry in matches if match}


def _corrupt(file: Path, found: str) -> CheckpointCorrupt:
    return CheckpointCorrupt(
        f"{file} is not a list of files: found {found}", file=str(file), found=found
    )
