"""Numbered copies of a checkpoint, beside it, with retention.

A snapshot is the tar file ``<checkpoint>.snapshots/<n>.tar``: ``snapshot.json`` about itself, then
metadata, offsets, commits, sources and our mark, never state. It appears whole. Numbers
rise and are not used again while a newer one is kept.

A checkpoint keeps hundreds of files of a line each. As one file they are made durable by one sync
instead of one each, or by one request to an object store, and nobody who edits the checkpoint by
hand can change the copy with it.
"""

from __future__ import annotations

import io
import tarfile
from collections.abc import Mapping
from pathlib import PurePosixPath

import msgspec

from catalog_migrate.errors import (
    BehindSink,
    CheckpointCorrupt,
    SnapshotNotFound,
    UnsupportedCheckpoint,
    UsageError,
)
from catalog_migrate.store import Store
from catalog_migrate.streams.checkpoint.directory import RESTORING_NAME, Checkpoint
from catalog_migrate.streams.checkpoint.files import MARK_NAME, is_checksum, is_litter

Tree = Mapping[str, bytes | None]
"""Relative names to contents; None for a directory, which earlier versions kept too."""


def read_tree(store: Store) -> dict[str, bytes]:
    """Return all files of a checkpoint that a snapshot has; no litter."""
    found = sorted(
        name for name in store.tree() if name.partition("/")[0] in _PARTS and not is_litter(name)
    )
    return dict(store.read_all(found))


def pack(tree: Tree) -> bytes:
    """Return the tar file of ``tree``, the same for the same contents."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name, data in tree.items():
            member = tarfile.TarInfo(name)
            member.mode = 0o755 if data is None else 0o644
            member.type = tarfile.DIRTYPE if data is None else tarfile.REGTYPE
            member.size = len(data or b"")
            archive.addfile(member, io.BytesIO(data or b""))
    return out.getvalue()


def unpack(data: bytes) -> dict[str, bytes | None]:
    """Return what :func:`pack` was given. ValueError for anything else, a file cut off among it."""
    found: dict[str, bytes | None] = {}
    try:
        with tarfile.open(fileobj=io.BytesIO(data), mode="r:") as archive:
            for member in archive:
                if ".." in PurePosixPath(member.name).parts or member.name.startswith("/"):
                    raise ValueError(f"it holds {member.name!r}")
                if member.isdir():
                    found[member.name] = None
                    continue
                stream = archive.extractfile(member) if member.isfile() else None
                if stream is None:
                    raise ValueError(f"{member.name!r} is neither a file nor a directory")
                found[member.name] = stream.read()
                if len(found[member.name] or b"") != member.size:
                    raise ValueError(f"{member.name!r} is cut off")
            if not data[archive.offset :].startswith(b"\0" * tarfile.BLOCKSIZE):
                raise ValueError("its end is cut off")
    except tarfile.TarError as error:
        raise ValueError(str(error)) from error
    return found


_FORMAT = 2
_SUFFIX = ".tar"
_ABOUT = "snapshot.json"
_PARTS = ("metadata", MARK_NAME, "offsets", "commits", "sources")


class Snapshot(msgspec.Struct, frozen=True):
    """What a snapshot says of itself: its number, why it was taken, and the newest batches."""

    number: int
    reason: str
    latest_offsets: int | None
    latest_commits: int | None
    query_id: str | None
    format: int = _FORMAT


class Snapshots:
    """The snapshots of one checkpoint.

    A copy of it is restored from those ``taken_of`` the original.
    """

    __slots__ = ("checkpoint", "store")

    def __init__(self, checkpoint: Checkpoint, taken_of: Checkpoint | None = None) -> None:
        self.checkpoint = checkpoint
        self.store = checkpoint.files.store(f"{(taken_of or checkpoint).address}.snapshots")

    def _read(self, number: int) -> tuple[Snapshot, Tree]:
        """A snapshot and its files; :class:`UnsupportedCheckpoint` for one of a newer tool."""
        file = self.store.place(_name(number))
        try:
            data = self.store.read(_name(number))
        except FileNotFoundError as error:
            known = ", ".join(str(each) for each in self._numbers()) or "none"
            raise SnapshotNotFound(
                f"{self.checkpoint.address} has no snapshot {number}; there are: {known}",
                number=number,
            ) from error
        try:
            tree = unpack(data)
            about = tree.pop(_ABOUT, None) or b""
            found = msgspec.json.decode(about, type=Snapshot)
        except (ValueError, msgspec.MsgspecError) as error:
            raise CheckpointCorrupt(
                f"{file} is no snapshot ({error})", file=file, found=repr(data[:80]),
            ) from error
        if found.format > _FORMAT:
            raise UnsupportedCheckpoint(f"{file} is of format {found.format}, known is {_FORMAT}")
        return found, tree

    def take(self, reason: str, *, keep: int = 5) -> Snapshot:
        """Copy the checkpoint as it stands, an uncommitted entry included, and drop old copies.

        ``keep`` is how many snapshots stay, this one among them. Raises :class:`UsageError`
        when ``keep`` is below 1 or a restore was cut off.
        """
        if keep < 1:
            raise UsageError(f"at least one snapshot must be kept, not {keep}")
        checkpoint, files = self.checkpoint, self.checkpoint.files
        if checkpoint.restoring is not None:
            raise UsageError(
                f"the restore of snapshot {checkpoint.restoring} of {checkpoint.address} was cut"
                " off",
                remedy="repeat it first",
            )
        files.clear_litter(self.store)
        numbers = self._numbers()
        snapshot = Snapshot(
            number=max(numbers, default=0) + 1,
            reason=reason,
            latest_offsets=checkpoint.latest_offsets,
            latest_commits=checkpoint.latest_commits,
            query_id=checkpoint.query_id,
        )
        tree = read_tree(checkpoint.store)
        about = msgspec.json.encode(snapshot)
        files.put(self.store, _name(snapshot.number), pack({_ABOUT: about, **tree}), None)
        for number in (*numbers, snapshot.number)[:-keep]:
            files.remove(self.store, _name(number))
        return snapshot

    def restore(self, number: int, *, sinks_latest: Mapping[str, int | None]) -> Snapshot:
        """Put a snapshot back in the checkpoint's place; repeatable after a cut.

        ``sinks_latest`` is the newest batch that each sink has, None for none. State that later
        batches left is removed. Until it is through, the checkpoint counts as broken.

        Raises before anything is written: :class:`BehindSink` when a batch newer than the
        snapshot's is committed, in ``commits`` or in any sink (Delta sinks would skip the batches
        that come again, without an error); :class:`SnapshotNotFound`, :class:`CheckpointCorrupt`,
        :class:`UnsupportedCheckpoint` for one of a newer tool.
        """
        checkpoint, files = self.checkpoint, self.checkpoint.files
        snapshot, tree = self._read(number)
        interrupted = checkpoint.restoring
        if interrupted is not None and interrupted != number:
            raise UsageError(
                f"the restore of snapshot {interrupted} of {checkpoint.address} was cut off",
                remedy=f"repeat it before snapshot {number} is restored",
            )
        committed = dict(sinks_latest)
        if interrupted is None:
            committed["its own commits"] = checkpoint.latest_commits
        self._require_none_newer(snapshot, committed)

        files.replace(checkpoint.store, RESTORING_NAME, str(number).encode())
        present = read_tree(checkpoint.store)
        for name in sorted(present.keys() - tree.keys()):
            files.remove(checkpoint.store, name)
        kept = {name.partition("/")[0] for name in tree}
        for part in _PARTS:
            if part not in kept:
                files.remove_tree(checkpoint.store, part)
        for name, data in tree.items():
            # an older checksum that a replaced file has lost is not missed
            if data is not None and not is_checksum(name) and present.get(name) != data:
                files.replace(checkpoint.store, name, data)
        checkpoint.forget_state_after(snapshot.latest_commits)
        files.clear_litter(checkpoint.store)
        files.remove(checkpoint.store, RESTORING_NAME)
        return snapshot

    def _require_none_newer(self, snapshot: Snapshot, committed: Mapping[str, int | None]) -> None:
        newest = snapshot.latest_offsets
        for name, batch in sorted(committed.items()):
            if batch is not None and (newest is None or batch > newest):
                raise BehindSink(
                    f"snapshot {snapshot.number} of {self.checkpoint.address} ends with"
                    f" {'no batch' if newest is None else f'batch {newest}'}, {name} has {batch}",
                    remedy="keep the checkpoint as it is, and change the position instead",
                    sink=name,
                    batch=batch,
                    latest=newest,
                )

    def _numbers(self) -> tuple[int, ...]:
        try:
            names = [name.removesuffix(_SUFFIX) for name in self.store.names()
                     if name.endswith(_SUFFIX)]
        except FileNotFoundError:
            return ()
        return tuple(sorted(int(name) for name in names if name.isascii() and name.isdecimal()))


def _name(number: int) -> str:
    return f"{number}{_SUFFIX}"
