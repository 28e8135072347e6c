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
from collections.abc import Iterable
from typing import Any, Literal, NoReturn

import msgspec

from catalog_migrate.connectors.positions import START
from catalog_migrate.errors import (
    CheckpointCorrupt,
    EditConflict,
    UnsettledCheckpoint,
    UnsupportedCheckpoint,
)
from catalog_migrate.store import RememberedStore, Store
from catalog_migrate.streams.checkpoint.files import Files, Mark, read_mark

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
    def conf(self) -> dict[str, str]:
        """The session settings that the query keeps over those of the session it runs in."""
        conf: dict[str, str] = self.metadata["conf"]
        return conf


class Checkpoint:
    """A checkpoint at a local path or an address on an object store, which need not exist yet.

    Nothing is remembered: every property reads the ``store``. ``files`` carries out changes.
    """

    __slots__ = ("files", "store")

    def __init__(self, address: str | os.PathLike[str], *, files: Files | None = None) -> None:
        self.files = files or Files()
        self.store: Store = self.files.store(os.fspath(address))

    def __repr__(self) -> str:
        return f"Checkpoint({self.address!r})"

    def remembered(self) -> Checkpoint:
        """The same, for a while in which nobody else changes it: what it reads it reads once, up to
        the next change. On an object store each look is a request."""
        same = type(self)(self.address, files=self.files)
        same.store = RememberedStore(self.store)
        return same

    # what is there -----------------------------------------------------------------------
    @property
    def address(self) -> str:
        """The directory, or the address on an object store."""
        return self.store.address

    @property
    def query_id(self) -> str | None:
        """The query's id, None before the first start; :class:`CheckpointCorrupt` if not one."""
        try:
            data = self.store.read("metadata")
        except FileNotFoundError:
            return None
        try:
            return str(uuid.UUID(json.loads(data.decode("utf-8"))["id"]))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            file = self.store.place("metadata")
            raise CheckpointCorrupt(
                f"{file} holds no query id: found {data[:80]!r}", file=file, found=repr(data[:80])
            ) from error

    @property
    def mark(self) -> Mark | None:
        """Our mark, None on a checkpoint that we never touched."""
        return read_mark(self.store)

    @property
    def latest_offsets(self) -> int | None:
        """The newest batch that was planned."""
        return max(self._numbers("offsets"), default=None)

    @property
    def latest_commits(self) -> int | None:
        """The newest batch that was committed."""
        return max(self._numbers("commits"), default=None)

    @property
    def planned_line(self) -> str:
        """The line of the first source after the newest planned batch; START without one."""
        return self._line(self.latest_offsets)

    @property
    def committed_line(self) -> str:
        """The line of the first source after the newest committed batch; START without one."""
        return self._line(self.latest_commits)

    def _line(self, batch: int | None) -> str:
        return START if batch is None else self.entry(batch).sources[0]

    @property
    def is_stateful(self) -> bool:
        """Whether the query keeps state between batches."""
        return any(self._names("state"))

    @property
    def restoring(self) -> int | None:
        """The number of the snapshot whose restore was cut off, None when none was."""
        try:
            return int(self.store.read(RESTORING_NAME).decode("ascii"))
        except FileNotFoundError:
            return None
        except ValueError:
            _corrupt(self.store.place(RESTORING_NAME), "names no snapshot")

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
        """Return the newest batch of a settled checkpoint, None when it has none yet.

        Raises :class:`UnsettledCheckpoint` when an entry is uncommitted or something is broken.
        """
        state = self.state()
        if state.kind == "uncommitted":
            raise UnsettledCheckpoint(
                f"batch {state.batch} of {self.address} is not committed",
                remedy="settle it first: finish it, or remove it when no sink has it",
                batch=state.batch,
            )
        if state.kind == "broken":
            raise UnsettledCheckpoint(
                f"the checkpoint {self.address} is broken: {state.reason}",
                remedy="restore a snapshot of it",
                batch=state.batch,
            )
        return state.batch

    def entry(self, batch: int) -> OffsetEntry:
        """Return the entry of one batch.

        Raises :class:`CheckpointCorrupt` naming the file and what was found, and
        :class:`UnsupportedCheckpoint` for another version of the log.
        """
        return self.tagged_entry(batch)[0]

    def tagged_entry(self, batch: int) -> tuple[OffsetEntry, str]:
        """Return the entry of one batch and the tag by which it is replaced; errors as in entry."""
        file = self.store.place(self.offsets_file(batch))
        (header, *lines), tag = self._lines(self.offsets_file(batch))
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
        return OffsetEntry(header, metadata, sources), tag

    def committed_watermark(self, batch: int) -> int:
        """The watermark, ms, that a commit hands to the batch after it; errors as in entry."""
        file = self.store.place(self.commits_file(batch))
        (header, *lines), _ = self._lines(self.commits_file(batch))
        _require_version(file, header)
        try:
            watermark = json.loads(lines[0])["nextBatchWatermarkMs"]
        except (ValueError, KeyError, TypeError, IndexError):
            watermark = None
        if type(watermark) is not int:
            _corrupt(file, f"no commit: {lines[:1]!r}")
        return watermark

    # names -------------------------------------------------------------------------------
    def offsets_file(self, batch: int) -> str:
        """Return the name of the offsets of a batch."""
        return f"offsets/{batch}"

    def commits_file(self, batch: int) -> str:
        """Return the name of the commit of a batch."""
        return f"commits/{batch}"

    def source_directory(self, source: int) -> str:
        """Return the name of the folder with a source's initial offsets, or its list of files."""
        return f"sources/{source}"

    def initial_offsets(self, source: int) -> str:
        """The name of the file that says where a source without a batch begins."""
        return f"{self.source_directory(source)}/0"

    # changes -----------------------------------------------------------------------------
    def write_offset(self, batch: int, source: int, line: str, tag: str | None = None) -> None:
        """Overwrite one source's line of one entry; every other byte of the file stays.

        ``tag`` is that of the entry as it was looked at (default: as it is now). Raises
        :class:`EditConflict`, and nothing is written, when it is another one by now.
        """
        name = self.offsets_file(batch)
        data, found = self.store.read_tagged(name)
        if tag not in (None, found):
            raise EditConflict(
                f"{self.store.place(name)} was changed by another process since it was looked at",
                remedy="find out who else works on this checkpoint, then try again",
            )
        lines = data.split(b"\n")
        lines[2 + source] = line.encode()
        self.files.put(self.store, name, b"\n".join(lines), found)

    def forget_state_after(self, batch: int | None) -> None:
        """Remove the state that batches after ``batch`` left (state version n+1 is batch n's).

        A batch that runs again under its id writes deltas anew, but would believe in a snapshot
        file that the maintenance task made of the earlier attempt.
        """
        keep = 0 if batch is None else batch + 1
        for name in sorted(self.store.tree("state")):
            *folders, last = name.split("/")
            match = _STATE_VERSION.match(last)
            if match and int(match[1]) > keep and "_metadata" not in folders:
                self.files.remove(self.store, name)

    def _names(self, folder: str) -> Iterable[str]:
        try:
            return self.store.names(folder)
        except FileNotFoundError:
            return ()

    def _numbers(self, log: str) -> frozenset[int]:
        """The batches in a log; names that are no numbers are litter."""
        return frozenset(
            int(name) for name in self._names(log) if name.isascii() and name.isdecimal()
        )

    def _lines(self, name: str) -> tuple[list[str], str]:
        """The lines of a log file, at least one, and its tag; a newline at the end adds none."""
        file = self.store.place(name)
        try:
            data, tag = self.store.read_tagged(name)
            text = data.decode("utf-8")
        except FileNotFoundError as error:
            raise CheckpointCorrupt(f"{file} is missing", file=file, found="nothing") from error
        except UnicodeDecodeError:
            _corrupt(file, "bytes that are no text")
        if not text:
            _corrupt(file, "it is empty")
        return text.removesuffix("\n").split("\n"), tag


def batch_number(batch: int | None) -> int:
    """Return the number of a batch, -1 for none."""
    return -1 if batch is None else batch


def _require_version(file: str, header: str) -> None:
    if header == VERSION:
        return
    if re.fullmatch(r"v\d+", header):
        raise UnsupportedCheckpoint(
            f"{file} is of log version {header}, known is {VERSION}",
            remedy="run the query with version 1 of the offset log",
            file=file,
        )
    _corrupt(file, f"the first line is {header[:40]!r}, not {VERSION}")


def _corrupt(file: str, found: str) -> NoReturn:
    raise CheckpointCorrupt(
        f"{file} is corrupt: {found}",
        file=file,
        found=found,
        remedy="restore a snapshot of the checkpoint",
    ) from None
