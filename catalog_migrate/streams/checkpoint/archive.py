"""Files of a directory as one tar file and back.

A checkpoint keeps hundreds of files of a line each. As one file they are made durable by one sync
instead of one each, and nobody who edits the checkpoint by hand can change the copy with it.
"""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePosixPath

from catalog_migrate.streams.checkpoint.files import is_litter

Tree = Mapping[str, bytes | None]
"""Relative names to contents, None for a directory, each after the directory that it is in."""


def read_tree(root: Path, names: Iterable[str]) -> dict[str, bytes | None]:
    """What stands below ``root`` under ``names``, files or directories; litter is left out."""
    found: dict[str, bytes | None] = {}

    def add(path: Path, name: str) -> None:
        if path.is_dir():
            found[name] = None
            for entry in sorted(path.iterdir()):
                if not is_litter(entry):
                    add(entry, f"{name}/{entry.name}")
        elif path.exists():
            found[name] = path.read_bytes()

    for name in names:
        add(root / name, name)
    return found


def pack(tree: Tree) -> bytes:
    """The tar file of ``tree``, the same for the same contents."""
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
    """What :func:`pack` was given. ValueError for anything else, a file cut off among it."""
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


def subtree(tree: Tree, directory: str) -> dict[str, bytes | None]:
    """The part of a tree in one of its directories, with names relative to that."""
    start = f"{directory}/"
    return {name[len(start) :]: data for name, data in tree.items() if name.startswith(start)}
