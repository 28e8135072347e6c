"""Messages of pgoutput as PostgreSQL's manual describes them, written by hand for the tests."""

from __future__ import annotations

import struct
from collections.abc import Sequence

from catalog_migrate.connectors.postgres.types import Column

EPOCH = 946_684_800_000_000
UNCHANGED = object()
"""A value that is not sent because it stayed the same."""


def begin(lsn: int, committed: int, xid: int) -> bytes:
    return b"B" + struct.pack("!QqI", lsn, committed - EPOCH, xid)


def commit(lsn: int, committed: int) -> bytes:
    return b"C" + struct.pack("!BQQq", 0, lsn, lsn + 48, committed - EPOCH)


def relation(
    number: int, name: str, columns: Sequence[Column], *, identity: str = "d",
    xid: int | None = None,
) -> bytes:
    schema, _, table = name.partition(".")
    parts = [b"R", _xid(xid), struct.pack("!I", number), _text(schema), _text(table)]
    parts += [identity.encode(), struct.pack("!h", len(columns))]
    for column in columns:
        parts += [bytes([column.key]), _text(column.name)]
        parts.append(struct.pack("!Ii", column.type_oid, column.modifier))
    return b"".join(parts)


def insert(number: int, new: Sequence[object], *, xid: int | None = None) -> bytes:
    return b"I" + _xid(xid) + struct.pack("!I", number) + b"N" + values(new)


def update(
    number: int, new: Sequence[object], *, old: Sequence[object] | None = None, kind: str = "K",
    xid: int | None = None,
) -> bytes:
    before = b"" if old is None else kind.encode() + values(old)
    return b"U" + _xid(xid) + struct.pack("!I", number) + before + b"N" + values(new)


def delete(
    number: int, old: Sequence[object], *, kind: str = "K", xid: int | None = None
) -> bytes:
    return b"D" + _xid(xid) + struct.pack("!I", number) + kind.encode() + values(old)


def truncate(*numbers: int, xid: int | None = None) -> bytes:
    listed = b"".join(struct.pack("!I", number) for number in numbers)
    return b"T" + _xid(xid) + struct.pack("!IB", len(numbers), 0) + listed


def stream_start(xid: int, first: bool) -> bytes:
    return b"S" + struct.pack("!IB", xid, first)


STREAM_STOP = b"E"


def stream_commit(xid: int, lsn: int, committed: int) -> bytes:
    return b"c" + struct.pack("!IBQQq", xid, 0, lsn, lsn + 48, committed - EPOCH)


def stream_abort(xid: int, part: int, *, parallel: bool = False) -> bytes:
    return b"A" + struct.pack("!II", xid, part) + (struct.pack("!Qq", 1, 2) if parallel else b"")


def message(*, xid: int | None = None) -> bytes:
    return b"M" + _xid(xid) + struct.pack("!BQ", 1, 5) + _text("hb") + struct.pack("!I", 0)


def values(row: Sequence[object]) -> bytes:
    parts = [struct.pack("!h", len(row))]
    for value in row:
        if value is None:
            parts.append(b"n")
        elif value is UNCHANGED:
            parts.append(b"u")
        else:
            data = value if isinstance(value, bytes) else str(value).encode()
            parts.append(b"t" + struct.pack("!I", len(data)) + data)
    return b"".join(parts)


def _xid(xid: int | None) -> bytes:
    return b"" if xid is None else struct.pack("!I", xid)


def _text(text: str) -> bytes:
    return text.encode() + b"\0"
