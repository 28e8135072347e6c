"""What a checkpoint directory holds, and how it stands.

The layout is Spark's (``metadata``, ``offsets/<n>``, ``commits/<n>``, ``sources/<i>``, ``state``),
offset log version 1. Spark writes offsets/n before batch n and commits/n after it, so at any moment
at most one entry is uncommitted.
"""

from __future__ import annotations

import json
import os
import re
import uuid
from pathlib import Path
from typing import Any, Literal, NoReturn
from urllib.parse import unquote, urlsplit

import msgspec

from catalog_migrate.errors import UsageError
from catalog_migrate.streams.checkpoint.errors import (
    CheckpointCorrupt,
    UnsettledCheckpoint,
    UnsupportedCheckpoint,
)
from catalog_migrate.streams.checkpoint.files import Files
from catalog_migrate.streams.checkpoint.lines import START
from catalog_migrate.streams.checkpoint.mark import Mark, read_mark

VERSION = "v1"
"""The one version of the offset and commit logs that is known."""

RESTORING_NAME = "catalog_migrate.restoring"
"""A file in the root while a snapshot is being restored: it names the snapshot."""

StateKind = Literal["none", "first", "settled", "uncommitted", "broken"]

_STATE_VERSION = re.compile(r"\.?(\d+)(?:_[^.]*)?\.")


class State(msgspec.Struct, frozen=True):
    """How a checkpoint stands.

    ``none``: no batch yet. ``first``: batch 0 is there and committed, no other. ``settled``: the
    newest batch, at least 1, is committed. ``uncommitted``: the newest batch has no commit.
    ``broken``: Spark could not go on rightly, ``reason`` says why. ``batch`` is the newest one.
    """

    kind: StateKind
    batch: int | None = None
    reason: str = ""

    @property
    def is_settled(self) -> bool:
        """Whether nothing is uncommitted or broken, however young."""
        return self.kind in ("none", "first", "settled")


class OffsetEntry(msgspec.Struct, frozen=True):
    """One batch's entry: its ``metadata`` (line 2) and one line for each source, in order."""

    version: str
    metadata: dict[str, Any]
    sources: tuple[str, ...]

    @property
    def watermark_ms(self) -> int:
        """The event-time watermark of the batch, ms since 1970; 0 without one."""
        return int(self.metadata["batchWatermarkMs"])

    @property
    def timestamp_ms(self) -> int:
        """When the batch was planned, ms since 1970."""
        return int(self.metadata["batchTimestampMs"])

    @property
    def conf(self) -> dict[str, str]:
        """The session settings that the query keeps over those of the session it runs in."""
        conf: dict[str, str] = self.metadata["conf"]
        return conf


class Checkpoint:
    """A checkpoint directory on a local path, which need not exist yet.

    Nothing is remembered: every property reads the files. ``files`` carries out changes.
    """

    __slots__ = ("files", "path")

    def __init__(self, path: str | os.PathLike[str], *, files: Files | None = None) -> None:
        self.path = _local(os.fspath(path))
        self.files = files or Files()

    def __repr__(self) -> str:
        return f"Checkpoint({str(self.path)!r})"

    # what is there -----------------------------------------------------------------------
    @property
    def query_id(self) -> str | None:
        """The query's id, None before the first start; :class:`CheckpointCorrupt` if not one."""
        file = self.path / "metadata"
        try:
            text = file.read_text("utf-8")
            found = json.loads(text)["id"]
            return str(uuid.UUID(found))
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise CheckpointCorrupt(
                f"{file} holds no query id: found {file.read_bytes()[:80]!r}",
                file=str(file),
                found=repr(file.read_bytes()[:80]),
            ) from error

    @property
    def mark(self) -> Mark | None:
        """Our mark, None on a checkpoint that we never touched."""
        return read_mark(self.path)

    @property
    def latest_offsets(self) -> int | None:
        """The newest batch that was planned."""
        return max(self._numbers("offsets"), default=None)

    @property
    def latest_commits(self) -> int | None:
        """The newest batch that was committed."""
        return max(self._numbers("commits"), default=None)

    @property
    def is_stateful(self) -> bool:
        """Whether the query keeps state between batches."""
        directory = self.path / "state"
        return directory.is_dir() and any(directory.iterdir())

    @property
    def restoring(self) -> int | None:
        """The number of the snapshot whose restore was cut off, None when none was."""
        file = self.path / RESTORING_NAME
        try:
            return int(file.read_text("ascii"))
        except FileNotFoundError:
            return None
        except ValueError:
            _corrupt(file, "names no snapshot")

    def state(self) -> State:
        """How the checkpoint stands; reads the newest two entries whole.

        Raises :class:`CheckpointCorrupt` and :class:`UnsupportedCheckpoint`.
        """
        offsets, commits = self._numbers("offsets"), self._numbers("commits")
        latest, committed = max(offsets, default=None), max(commits, default=None)
        if self.restoring is not None:
            return State(
                "broken", latest, f"the restore of snapshot {self.restoring} was cut off: repeat it"
            )
        if latest is None:
            if committed is not None:
                return State("broken", None, f"commits/{committed} has no offsets/{committed}")
            return State("none")
        if self.query_id is None:
            return State("broken", latest, "there are batches, but no file metadata")
        newest = self.entry(latest)
        if latest > 0:
            if latest - 1 not in offsets:
                return State("broken", latest, f"offsets/{latest - 1} is missing")
            before = self.entry(latest - 1)
            if len(before.sources) != len(newest.sources):
                return State(
                    "broken",
                    latest,
                    f"offsets/{latest - 1} has {len(before.sources)} sources,"
                    f" offsets/{latest} has {len(newest.sources)}",
                )
        if committed is not None:
            self.committed_watermark(committed)
        if committed == latest:
            return State("first" if latest == 0 else "settled", latest)
        if (committed is None and latest == 0) or committed == latest - 1:
            return State("uncommitted", latest)
        if committed is not None and committed > latest:
            return State("broken", latest, f"commits/{committed} has no offsets/{committed}")
        newest_commit = "none" if committed is None else f"commits/{committed}"
        return State(
            "broken",
            latest,
            f"more than one entry is uncommitted: the newest is offsets/{latest}, the newest"
            f" commit {newest_commit}",
        )

    def settled_batch(self) -> int | None:
        """The newest batch of a settled checkpoint, None when it has none yet.

        Raises :class:`UnsettledCheckpoint` when an entry is uncommitted or something is broken.
        """
        state = self.state()
        if state.kind == "uncommitted":
            raise UnsettledCheckpoint(
                f"batch {state.batch} of {self.path} is not committed",
                remedy="settle it first: finish it, or remove it when no sink has it",
                batch=state.batch,
            )
        if state.kind == "broken":
            raise UnsettledCheckpoint(
                f"the checkpoint {self.path} is broken: {state.reason}",
                remedy="restore a snapshot of it",
                batch=state.batch,
            )
        return state.batch

    def entry(self, batch: int) -> OffsetEntry:
        """The entry of one batch.

        Raises :class:`CheckpointCorrupt` naming the file and what was found, and
        :class:`UnsupportedCheckpoint` for another version of the log.
        """
        file = self.offsets_file(batch)
        header, *lines = _text_lines(file)
        _require_version(file, header)
        if not lines:
            _corrupt(file, "ends after its first line")
        try:
            metadata = json.loads(lines[0])
            usable = (
                isinstance(metadata["conf"], dict)
                and type(metadata["batchWatermarkMs"]) is int
                and type(metadata["batchTimestampMs"]) is int
            )
        except (ValueError, KeyError, TypeError):
            usable = False
        if not usable:
            _corrupt(file, f"line 2 is no batch metadata: {lines[0][:80]!r}")
        sources = tuple(lines[1:])
        if not sources:
            _corrupt(file, "names no source")
        for number, line in enumerate(sources, start=3):
            if line != START:
                try:
                    json.loads(line)
                except ValueError:
                    _corrupt(file, f"line {number} is no offset: {line[:80]!r}")
        return OffsetEntry(header, metadata, sources)

    def committed_watermark(self, batch: int) -> int:
        """The watermark, ms, that a commit hands to the batch after it; errors as in entry."""
        file = self.commits_file(batch)
        header, *lines = _text_lines(file)
        _require_version(file, header)
        try:
            watermark = json.loads(lines[0])["nextBatchWatermarkMs"]
        except (ValueError, KeyError, TypeError, IndexError):
            watermark = None
        if type(watermark) is not int:
            _corrupt(file, f"no commit: {lines[:1]!r}")
        return watermark

    # places ------------------------------------------------------------------------------
    def offsets_file(self, batch: int) -> Path:
        """Where the offsets of a batch are."""
        return self.path / "offsets" / str(batch)

    def commits_file(self, batch: int) -> Path:
        """Where the commit of a batch is."""
        return self.path / "commits" / str(batch)

    def source_directory(self, source: int) -> Path:
        """Where a source keeps its initial offsets or its list of files."""
        return self.path / "sources" / str(source)

    # changes -----------------------------------------------------------------------------
    def replace_line(self, batch: int, source: int, line: str) -> None:
        """Overwrite one source's line of one entry; every other byte of the file stays."""
        file = self.offsets_file(batch)
        lines = file.read_bytes().split(b"\n")
        lines[2 + source] = line.encode()
        self.files.replace(file, b"\n".join(lines))

    def forget_state_after(self, batch: int | None) -> None:
        """Remove the state that batches after ``batch`` left (state version n+1 is batch n's).

        A batch that runs again under its id writes deltas anew, but would believe in a snapshot
        file that the maintenance task made of the earlier attempt.
        """
        directory = self.path / "state"
        if not directory.is_dir():
            return
        keep = 0 if batch is None else batch + 1
        for file in sorted(directory.rglob("*")):
            match = _STATE_VERSION.match(file.name)
            if match and int(match[1]) > keep and file.is_file() and "_metadata" not in file.parts:
                self.files.remove(file)

    def _numbers(self, log: str) -> frozenset[int]:
        """The batches in a log; names that are no numbers are litter."""
        try:
            names = os.listdir(os.path.join(self.path, log))
        except FileNotFoundError:
            return frozenset()
        return frozenset(int(name) for name in names if name.isascii() and name.isdecimal())


def _local(path: str) -> Path:
    """The directory behind a path or a ``file:`` URI."""
    parts = urlsplit(path)
    if parts.scheme == "file" and parts.netloc in ("", "localhost"):
        return Path(unquote(parts.path))
    if "://" in path:
        raise UsageError(
            f"checkpoints on {parts.scheme} are not supported: {path}",
            remedy="put checkpoints on a file system that every process sees as local paths",
        )
    return Path(path)


def _text_lines(file: Path) -> list[str]:
    """The lines of a log file, at least one; a newline at the very end adds none."""
    try:
        text = file.read_bytes().decode("utf-8")
    except FileNotFoundError as error:
        raise CheckpointCorrupt(f"{file} is missing", file=str(file), found="nothing") from error
    except UnicodeDecodeError:
        _corrupt(file, "bytes that are no text")
    if not text:
        _corrupt(file, "it is empty")
    return text.removesuffix("\n").split("\n")


def _require_version(file: Path, header: str) -> None:
    if header == VERSION:
        return
    if re.fullmatch(r"v\d+", header):
        raise UnsupportedCheckpoint(
            f"{file} is of log version {header}, known is {VERSION}",
            remedy="run the query with version 1 of the offset log",
            file=str(file),
        )
    _corrupt(file, f"the first line is {header[:40]!r}, not {VERSION}")


def _corrupt(file: Path, found: str) -> NoReturn:
    raise CheckpointCorrupt(
        f"{file} is corrupt: {found}",
        file=str(file),
        found=found,
        remedy="restore a snapshot of the checkpoint",
    ) from None
