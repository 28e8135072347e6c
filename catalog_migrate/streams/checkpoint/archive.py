"""Files of a directory as one tar file and back.

A checkpoint keeps hundreds of files of a line each. As one file they are made durable by one sync
instead of one each, or by one request to an object store, and nobody who edits the checkpoint by
hand can change the copy with it.
"""

from __future__ import annotations

import io
import tarfile
from collections.abc import Collection, Mapping
from pathlib import PurePosixPath

from catalog_migrate.store import Store
from catalog_migrate.streams.checkpoint.files import is_litter

Tree = Mapping[str, bytes | None]
"""Relative names to contents; None for a directory, which earlier versions kept too."""


def read_tree(store: Store, names: Collection[str]) -> dict[str, bytes]:
    """All files in a store that are, or lie in a folder that is, among ``names``; no litter."""
    found = sorted(
        name for name in store.tree() if name.partition("/")[0] in names and not is_litter(name)
    )
    return dict(store.read_all(found))


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
