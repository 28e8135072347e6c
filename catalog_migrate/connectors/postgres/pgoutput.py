"""What the output plugin pgoutput writes, protocol 1 to 4, decoded into changes of rows.

Pure: bytes in, :class:`Change` values out. The source of every format is PostgreSQL's manual,
"Logical Replication Message Formats". A transaction belongs to a batch by
``start <= commit LSN < end``, where the commit LSN is the *beginning* of its commit record: that is
the rule by which the server passes over what a slot has confirmed.

Changes of a stream and rows of a snapshot have one form as Arrow. Columns: table STRING, lsn
BIGINT, sequence INT, operation STRING, transaction BIGINT, committed TIMESTAMP, before and after
ARRAY<STRING>, unchanged ARRAY<INT>, as :class:`Change` has them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from operator import attrgetter
from struct import Struct
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, NoReturn

import msgspec

from catalog_migrate.connectors.postgres.sessions import NEW_SNAPSHOT, RESET_SPLITS
from catalog_migrate.connectors.postgres.types import NUMERIC, Column, Expected
from catalog_migrate.errors import ChangesMissing, TableChanged, UnfitValue, UnreadableMessage

if TYPE_CHECKING:
    import pyarrow as pa

Operation = Literal["insert", "update", "delete", "truncate"]
Image = tuple[str | None, ...]
"""The values of a row as PostgreSQL prints them, in the order of the columns expected."""

_EPOCH = 946_684_800_000_000
"""PostgreSQL counts microseconds from the year 2000."""

_SHORT, _INT = Struct("!h"), Struct("!I")
_BEGIN, _COMMIT = Struct("!xQqI"), Struct("!xBQQq")
_STREAM_COMMIT, _STREAM_ABORT = Struct("!xIBQQq"), Struct("!xII")
_TWO_PHASE = frozenset(b"bPKrp")


class Change(msgspec.Struct, frozen=True, gc=False):
    """One change of one row, or one TRUNCATE.

    ``lsn`` and ``committed`` (microseconds since 1970, UTC) are those of the commit, ``sequence``
    counts the changes of the transaction over all tables of the publication. ``before`` is the old
    row with REPLICA IDENTITY FULL; else the old key of a row deleted, or whose key changed, with
    None in the other columns; else None. ``unchanged`` are positions in ``after`` of large values
    that were not sent because they stayed the same (None stands there).
    """

    table: str
    operation: Operation
    lsn: int
    sequence: int
    transaction: int
    committed: int
    before: Image | None
    after: Image | None
    unchanged: tuple[int, ...] = ()


def decode(
    messages: Iterable[tuple[int, bytes]], *, start: int, end: int, tables: Mapping[str, Expected]
) -> Iterator[Change]:
    """The changes of the transactions of one batch, in the order of their commits.

    ``messages`` are (LSN, message) as the functions ``pg_logical_slot_*_binary_changes`` give them;
    ``tables`` are those wanted, as ``schema.name``. The transaction under way is not kept in
    memory, streamed ones are until their commit.

    A table expected by its oid keeps its name of there whatever it is called meanwhile. Raises
    TableChanged at the first change of a table whose columns are not those expected, ChangesMissing
    at that of another table of its name, and
    UnreadableMessage for two-phase and binary messages, and when a transaction has no end.
    """
    for run in _runs(messages, start=start, end=end, tables=tables):
        yield from run.changes()


def _runs(
    messages: Iterable[tuple[int, bytes]], *, start: int, end: int, tables: Mapping[str, Expected],
    rows: int = 1000, size: int = 1 << 20,
) -> Iterator[_Run]:
    """What :func:`decode` gives, undecoded: up to ``rows`` messages, or ``size`` bytes of them."""
    run: list[bytes] = []
    current: _Relation | None = None
    head, first, taken = b"", 0, 0
    wanted_tables = _Tables(tables)
    relations: dict[int, _Relation] = {}
    streams: dict[int, _Stream] = {}
    stream: _Stream | None = None
    under_way = wanted = False
    lsn = committed = transaction = sequence = 0
    for _, data in messages:
        if data[:6] == head and len(run) < rows and taken < size:
            run.append(data)
            taken += len(data)
            sequence += 1
            continue
        if current is not None:
            yield _Run(current, run, 5, lsn, first, transaction, committed)
            head, current = b"", None
        kind = data[0]
        if stream is not None:
            if kind == 69:  # E: the end of a part of a streamed transaction
                stream = None
            elif not stream.keep(kind, data, relations):
                _refuse(data)
        elif kind in _ROW_KINDS:
            if not under_way:
                _refuse(data, "a change outside of a transaction")
            if not wanted:
                continue
            relation = relations[_INT.unpack_from(data, 1)[0]]
            if relation.is_wanted(lsn):
                head, run, current, first, taken = data[:6], [data], relation, sequence, len(data)
            sequence += 1
        elif kind == 66:  # B: begin
            lsn, since, transaction = _BEGIN.unpack_from(data)
            committed = since + _EPOCH
            under_way, wanted, sequence = True, start <= lsn < end, 0
        elif kind == 67:  # C: commit
            if not under_way or _COMMIT.unpack_from(data)[1] != lsn:
                _refuse(data, "the commit of another transaction")
            under_way = False
        elif kind == 82:  # R: relation
            number, relation = _relation(data, 1, wanted_tables)
            relations[number] = relation
        elif kind == 84:  # T: truncate
            if wanted:
                for relation in _truncated(data, 1, relations):
                    if relation.is_wanted(lsn):
                        yield _Run(relation, [data], 0, lsn, sequence, transaction, committed)
                    sequence += 1
        elif kind == 83:  # S: a part of a streamed transaction
            xid = _INT.unpack_from(data, 1)[0]
            stream = streams.setdefault(xid, _Stream(xid, wanted_tables))
        elif kind == 99:  # c: commit of a streamed transaction
            xid, _, lsn, _, since = _STREAM_COMMIT.unpack_from(data)
            done = streams.pop(xid, None)
            if done is None:
                _refuse(data, "the commit of a transaction that was never streamed")
            relations.update(done.relations)
            if start <= lsn < end:
                yield from done.read_runs(lsn, since + _EPOCH)
        elif kind == 65:  # A: abort of a streamed transaction, or of a part of it
            xid, part = _STREAM_ABORT.unpack_from(data)
            if xid == part:
                streams.pop(xid, None)
            elif xid in streams:
                streams[xid].drop(part)
        elif kind not in _PASSED_OVER:
            _refuse(data)
    if current is not None:
        yield _Run(current, run, 5, lsn, first, transaction, committed)
    if under_way or stream is not None:
        raise UnreadableMessage(
            "the changes end in the middle of a transaction",
            remedy="read them again; when it happens again, look at the server's log",
        )


def oldest_change(messages: Iterable[bytes], start: int = 0) -> int | None:
    """When the first transaction with a change, of those that commit at ``start`` or later, was
    committed (microseconds since 1970, UTC)."""
    committed, wanted = 0, False
    for data in messages:
        if data[0] == 66:  # B
            commit_lsn, at = _BEGIN.unpack_from(data)[:2]
            committed, wanted = at + _EPOCH, commit_lsn >= start
        elif wanted and (data[0] in _ROW_KINDS or data[0] == 84):  # T
            return committed
    return None


def count(messages: Iterable[tuple[int, bytes]], *, start: int, end: int) -> dict[str, int]:
    """How many changes each table has in the transactions of one batch, as :func:`decode` gives.

    Columns are not looked at. For protocol 1 only, which streams no transaction under way.
    """
    names: dict[int, str] = {}
    found: dict[str, int] = {}
    wanted = False
    for _, data in messages:
        kind = data[0]
        if kind == 66:
            wanted = start <= _BEGIN.unpack_from(data)[0] < end
        elif kind == 82:
            schema, name, _ = data[5:].split(b"\0", 2)
            full = f"{schema.decode() or 'pg_catalog'}.{name.decode()}"
            names[_INT.unpack_from(data, 1)[0]] = full
        elif wanted and (kind in _ROW_KINDS or kind == 84):
            numbers = (
                [_INT.unpack_from(data, 1)[0]] if kind in _ROW_KINDS
                else [each for (each,) in _INT.iter_unpack(data[6:])]
            )
            for number in numbers:
                found[names[number]] = found.get(names[number], 0) + 1
    return found


def find_truncates(messages: Iterable[bytes], table: int) -> frozenset[int]:
    """The transactions that truncate a table, by its oid. For protocol 1 only."""
    found, transaction = set(), 0
    for data in messages:
        if data[0] == 66:  # B
            transaction = _BEGIN.unpack_from(data)[2]
        elif data[0] == 84 and (table,) in _INT.iter_unpack(data[6:]):  # T
            found.add(transaction)
    return frozenset(found)


_ROW_KINDS = frozenset(b"IUD")
_PASSED_OVER = frozenset(b"OYM")
"""Origins, types and messages of applications (heartbeats among them)."""


class _Tables:
    """The tables that are wanted, by name and, where that is known, by oid."""

    __slots__ = ("_by_name", "_by_oid")

    def __init__(self, tables: Mapping[str, Expected]) -> None:
        self._by_name = tables
        self._by_oid = {each.oid: (name, each) for name, each in tables.items() if each.oid}

    def find(self, oid: int, name: str) -> tuple[str, Expected | None, bool]:
        """(the name that it is expected by, what is expected, whether it is another table)."""
        known = self._by_oid.get(oid)
        if known is not None:
            return (*known, False)
        expected = self._by_name.get(name)
        return name, expected, expected is not None and bool(expected.oid)


class _Relation:
    """A table as the last message about it describes it, beside what is expected of it.

    ``foreign``: it has the name of one that is expected, and another oid.
    """

    __slots__ = ("changed", "columns", "expected", "foreign", "missing", "name", "order")

    def __init__(
        self, name: str, columns: tuple[Column, ...], expected: Expected | None,
        foreign: bool = False,
    ) -> None:
        self.name, self.columns, self.expected = name, columns, expected
        self.foreign = foreign
        self.changed: str | None = None
        self.order: tuple[int, ...] | None = None
        self.missing: tuple[Column, ...] = ()
        """Columns that it has not, and that a table need not have all the time."""
        if expected is None or foreign:
            return
        there = {column.name: number for number, column in enumerate(columns)}
        self.changed = difference(expected, columns)
        if self.changed is None:
            self.missing = tuple(c for c in expected.columns if c.name not in there)
            order = tuple(there.get(column.name, _MISSING) for column in expected.columns)
            if order != tuple(range(len(columns))):
                self.order = order

    def is_wanted(self, lsn: int) -> bool:
        """Whether its changes of a commit at ``lsn`` are to be read."""
        return self.expected is not None and lsn >= self.expected.since

    def check(self, lsn: int) -> None:
        """Raise TableChanged when the columns are not those expected of a commit at ``lsn``,
        ChangesMissing when it is another table."""
        if self.foreign:
            raise ChangesMissing(
                f"changes may be missing of {self.name}: the log has a change of another table of"
                " that name",
                remedy=NEW_SNAPSHOT, statements=RESET_SPLITS, table=self.name, lsn=lsn,
            )
        changed = self.changed or ", ".join(
            f"column {column.name} is gone" for column in self.missing
            if not column.may_be_missing(lsn)
        )
        if changed:
            assert self.expected is not None
            raise TableChanged(
                f"table {self.name} has changed upstream: {changed}", table=self.name,
                old=self.expected.columns, new=self.columns, lsn=lsn,
                remedy="ALTER SOURCE … SET (UPSTREAM COLUMNS = …) says what becomes of it",
            )

    def row(
        self, kind: int, data: bytes, at: int, lsn: int
    ) -> tuple[Operation, Image | None, Image | None, tuple[int, ...]]:
        """(operation, before, after, unchanged) of an insert, update or delete, from ``at`` on."""
        if self.changed is not None or self.missing or self.foreign:
            self.check(lsn)
        if kind == 73:  # I
            after, missing, _ = _values(data, at + 1)
            return "insert", None, self._aligned(after), self._positions(missing)
        if kind == 68:  # D
            before, _, _ = _values(data, at + 1)
            return "delete", self._aligned(before), None, ()
        old: list[str | None] | None = None
        if data[at] != 78:  # K or O before N: there is an old image
            is_full = data[at] == 79
            old, _, at = _values(data, at + 1)
            after, missing, _ = _values(data, at + 1)
            for number in missing:
                after[number] = old[number]
            if is_full:
                return "update", self._aligned(old), self._aligned(after), ()
            # a large value of the key comes with the old key, whether that changes or not
            missing = [number for number in missing if after[number] is None]
            keys = [number for number, column in enumerate(self.columns) if column.key]
            if all(old[number] == after[number] for number in keys):
                old = None
        else:
            after, missing, _ = _values(data, at + 1)
        return (
            "update", None if old is None else self._aligned(old), self._aligned(after),
            self._positions(missing),
        )

    def no_text(self, value: bytes, data: bytes, at: int, lsn: int) -> UnfitValue:
        """The typed error for a row with a value that is not UTF-8."""
        columns = [
            column.name for image in _images(data, at)
            for column, found in zip(self.columns, image, strict=True) if found == value
        ]
        return unfit_text(self.name, columns[0], lsn)

    def _aligned(self, values: list[str | None]) -> Image:
        if self.order is None:
            return tuple(values)
        return tuple([values[at] if at != _MISSING else None for at in self.order])

    def _positions(self, numbers: list[int] | tuple[()]) -> tuple[int, ...]:
        if not numbers:
            return ()
        if self.order is None:
            return tuple(numbers)
        return tuple(at for at, number in enumerate(self.order) if number in numbers)


class _Run(NamedTuple):
    """Changes that follow one another in a transaction: rows of one table in messages that are
    alike up to the byte ``at`` where the old or new row begins, or a TRUNCATE; ``first`` is the
    sequence of the first."""

    relation: _Relation
    messages: Sequence[bytes]
    at: int
    lsn: int
    first: int
    transaction: int
    committed: int

    @property
    def is_new(self) -> bool:
        """Whether there are new rows, and none of before."""
        data = self.messages[0]
        return data[0] in b"IU" and data[self.at] == 78  # N

    def changes(self) -> Iterator[Change]:
        """Them, decoded."""
        relation, messages, at, lsn, first, transaction, committed = self
        name = relation.name
        for sequence, data in enumerate(messages, first):
            if data[0] == 84:  # T
                relation.check(lsn)
                yield Change(name, "truncate", lsn, sequence, transaction, committed, None, None)
                continue
            try:
                operation, before, after, unchanged = relation.row(data[0], data, at, lsn)
            except UnicodeDecodeError as error:
                raise relation.no_text(error.object, data, at, lsn) from None
            yield Change(
                name, operation, lsn, sequence, transaction, committed, before, after, unchanged
            )


class _Stream:
    """A transaction that is sent before it has committed, in parts, with its parts by sub-xid."""

    __slots__ = ("_rows", "_tables", "relations", "xid")

    def __init__(self, xid: int, tables: _Tables) -> None:
        self.xid = xid
        self.relations: dict[int, _Relation] = {}
        self._tables = tables
        self._rows: list[tuple[int, _Relation, bytes]] = []

    def keep(self, kind: int, data: bytes, others: Mapping[int, _Relation]) -> bool:
        """Take a message of a part; whether it is one that may stand there."""
        if kind in _ROW_KINDS:
            part, number = _INT.unpack_from(data, 1)[0], _INT.unpack_from(data, 5)[0]
            relation = self.relations.get(number) or others[number]
            self._rows.append((part, relation, data))
        elif kind == 82:
            number, relation = _relation(data, 5, self._tables)
            self.relations[number] = relation
        elif kind == 84:
            part = _INT.unpack_from(data, 1)[0]
            known = {**others, **self.relations}
            self._rows += [(part, one, b"T") for one in _truncated(data, 5, known)]
        else:
            return kind in _PASSED_OVER
        return True

    def drop(self, part: int) -> None:
        """A subtransaction was rolled back."""
        self._rows = [row for row in self._rows if row[0] != part]

    def read_runs(self, lsn: int, committed: int) -> Iterator[_Run]:
        """What it has changed, once it has committed."""
        for sequence, (_, relation, data) in enumerate(self._rows):
            if relation.is_wanted(lsn):
                yield _Run(relation, [data], 9, lsn, sequence, self.xid, committed)


def difference(expected: Expected, columns: tuple[Column, ...]) -> str | None:
    """In words what a table's columns have that was not expected, or lack; None when nothing."""
    there = {column.name: column for column in columns}
    found: list[str | None] = []
    if expected.new_columns != "ignore":
        known = {column.name for column in expected.columns}
        found += [f"column {name} is new" for name in there if name not in known]
    found += [_column_difference(column, there.get(column.name)) for column in expected.columns]
    return ", ".join(filter(None, found)) or None


def _column_difference(column: Column, now: Column | None) -> str | None:
    if now is None:
        # of one that comes or goes, the LSN of the change tells whether it may be missing
        return None if column.since or column.until else f"column {column.name} is gone"
    if now.type_oid != column.type_oid or (
        now.type_oid == NUMERIC and now.modifier != column.modifier
    ):
        return f"column {column.name} has another type"
    if column.key and not now.key:
        return f"column {column.name} is no longer in the key"
    return None


def _values(data: bytes, at: int) -> tuple[list[str | None], list[int] | tuple[()], int]:
    """(values, positions of those not sent, where the tuple ends)."""
    (count,) = _SHORT.unpack_from(data, at)
    at += 2
    values: list[str | None] = []
    missing: list[int] | None = None
    for number in range(count):
        kind = data[at]
        if kind == 116:  # t: text
            first = at + 5
            at = first + int.from_bytes(data[at + 1 : first], "big")
            values.append(str(data[first:at], "utf-8"))
            continue
        if kind == 117:  # u: an unchanged value outside of the row
            if missing is None:
                missing = []
            missing.append(number)
        elif kind != 110:  # n: NULL
            raise UnreadableMessage(
                "a value came in PostgreSQL's binary form", remedy="do not ask pgoutput for binary"
            )
        values.append(None)
        at += 1
    return values, missing or (), at


def _images(data: bytes, at: int) -> Iterator[list[bytes | None]]:
    """The tuples of a change as they came: the old one where there is one, and the new one."""
    while at < len(data):
        (count,) = _SHORT.unpack_from(data, at + 1)
        at += 3
        image: list[bytes | None] = []
        for _ in range(count):
            first = at + 5 if data[at] == 116 else at + 1
            at = first + (_INT.unpack_from(data, at + 1)[0] if data[at] == 116 else 0)
            image.append(data[first:at] or None)
        yield image


def unfit_text(table: str, column: str, lsn: int | None = None) -> UnfitValue:
    """The typed error for a value that is not UTF-8, of a database that does not say what it is."""
    return UnfitValue(
        f"a value of column {column} of {table} is no text in UTF-8, and the server does not"
        " convert it (its database has the encoding SQL_ASCII)",
        remedy="write the value again upstream in UTF-8, or leave the column out of the"
        f" publication; then {NEW_SNAPSHOT}",
        table=table, column=column, lsn=lsn, statements=RESET_SPLITS,
    )


def _relation(
    data: bytes, at: int, tables: _Tables
) -> tuple[int, _Relation]:
    """A Relation message from its oid on."""
    (number,) = _INT.unpack_from(data, at)
    schema, at = _text(data, at + 4)
    name, at = _text(data, at)
    (count,) = _SHORT.unpack_from(data, at + 1)
    at += 3
    columns = []
    for _ in range(count):
        is_key = bool(data[at] & 1)
        column, at = _text(data, at + 1)
        type_oid, modifier = _TYPE.unpack_from(data, at)
        at += 8
        columns.append(Column(column, type_oid, modifier, is_key))
    # an empty namespace stands for pg_catalog
    full, expected, foreign = tables.find(number, f"{schema or 'pg_catalog'}.{name}")
    return number, _Relation(full, tuple(columns), expected, foreign)


_TYPE = Struct("!Ii")
_MISSING = -1


def _truncated(
    data: bytes, at: int, relations: Mapping[int, _Relation]
) -> Iterator[_Relation]:
    (count,) = _INT.unpack_from(data, at)
    for number in range(count):
        yield relations[_INT.unpack_from(data, at + 5 + 4 * number)[0]]


def _text(data: bytes, at: int) -> tuple[str, int]:
    end = data.index(0, at)
    return str(data[at:end], "utf-8"), end + 1


def _refuse(data: bytes, what: str = "") -> NoReturn:
    if data[0] in _TWO_PHASE:
        raise UnreadableMessage(
            "a message of a two-phase transaction: its rows would come before its COMMIT PREPARED,"
            " and again after it",
            remedy="read from a slot that was created without two_phase",
        )
    kind = chr(data[0])
    raise UnreadableMessage(
        f"message {kind!r} of pgoutput was not expected" + (f": {what}" if what else ""),
        remedy="ask for protocol version 1 to 4",
    )


SNAPSHOT = "snapshot"
"""Operation of a row that stood before the first change."""
NAMES = (
    "table", "lsn", "sequence", "operation", "transaction", "committed", "before", "after",
    "unchanged",
)


def arrow_batch(found: Sequence[Change]) -> pa.RecordBatch:
    """Changes of a stream."""
    return _record_batch([[getattr(one, name) for one in found] for name in NAMES])


def _record_batch(columns: Sequence[Sequence[Any]]) -> pa.RecordBatch:
    """Columns of values, in the order of NAMES."""
    import pyarrow as pa

    text, number, long = pa.string(), pa.int32(), pa.int64()
    types = (text, long, number, text, long, pa.timestamp("us", tz="UTC"))
    arrays = [pa.array(values, type_) for values, type_ in zip(columns, types, strict=False)]
    arrays += [
        _lists(values, type_)
        for values, type_ in zip(columns[len(types) :], (text, text, number), strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, names=list(NAMES))


def decode_batches(
    messages: Iterable[tuple[int, bytes]], *, start: int, end: int, tables: Mapping[str, Expected],
    rows: int, size: int,
) -> Iterator[pa.RecordBatch]:
    """The changes of one batch, as :func:`decode` gives them, then its :class:`Summary`, as Arrow
    with at most ``rows`` rows and about ``size`` bytes of messages each."""
    few: list[Change] = []
    summary, taken = Summary(), 0
    for run in _runs(messages, start=start, end=end, tables=tables, rows=rows, size=size):
        count = len(run.messages)
        batch = _columnwise(run) if count >= _MANY and run.is_new else None
        if few and (batch is not None or len(few) + count > rows or taken >= size):
            summary.add(few, taken)
            yield arrow_batch(few)
            few, taken = [], 0
        run_size = sum(map(len, run.messages))
        if batch is not None:
            summary.add_new(run, run_size)
            yield batch
        else:
            few += run.changes()
            taken += run_size
    summary.add(few, taken)
    yield arrow_batch(few)
    yield summary.batch()


_MANY = 64
"""So many new rows that follow one another are decoded column by column."""


def _columnwise(run: _Run) -> pa.RecordBatch | None:
    """New rows as Arrow; None where one has a value that was not sent, or that is no text."""
    import numpy as np
    import pyarrow as pa

    relation, found, at = run.relation, run.messages, run.at
    relation.check(run.lsn)
    width = len(relation.columns)
    text = np.frombuffer(b"".join(found) + bytes(4), np.uint8)
    ends = np.cumsum(list(map(len, found)))
    place = np.concatenate(([0], ends[:-1])) + at + 3
    begins, lengths, nulls = [], [], []
    for _ in range(width):
        kind = text[place]
        null = kind == 110  # n
        if not (null | (kind == 116)).all():  # t
            return None
        length = np.zeros(len(found), np.int64)
        for shift in range(1, 5):
            length = length << 8 | text[place + shift]
        length[null] = 0
        begins.append(place + 5)
        lengths.append(length)
        nulls.append(null)
        place = place + np.where(null, 1, 5 + length)
    if (place != ends).any():
        return None
    # in the order of the columns expected, row by row; of a missing one NULL
    order = range(width) if relation.order is None else relation.order
    absent = np.zeros(len(found), np.int64)
    begin, length, null = (
        np.stack([each[column] if column != _MISSING else other for column in order], 1).ravel()
        for each, other in ((begins, absent), (lengths, absent), (nulls, absent == 0))
    )
    offsets = np.concatenate(([0], np.cumsum(length)))
    values = pa.Array.from_buffers(pa.string(), len(length), [
        pa.py_buffer(np.packbits(~null, bitorder="little")),
        pa.py_buffer(offsets.astype(np.int32)),
        pa.py_buffer(text[np.repeat(begin - offsets[:-1], length) + np.arange(offsets[-1])]),
    ])
    try:
        values.validate(full=True)
    except pa.ArrowInvalid:  # not UTF-8
        return None
    return _new_rows(run, values, len(order))


def _new_rows(run: _Run, values: pa.Array, width: int) -> pa.RecordBatch:
    """New rows, from their values one behind the other, ``width`` to a row."""
    import pyarrow as pa

    count, number, text, long = len(run.messages), pa.int32(), pa.string(), pa.int64()
    operation = "insert" if run.messages[0][0] == 73 else "update"  # I
    columns = [
        pa.repeat(pa.scalar(run.relation.name, text), count),
        pa.repeat(pa.scalar(run.lsn, long), count),
        pa.array(range(run.first, run.first + count), number),
        pa.repeat(pa.scalar(operation, text), count),
        pa.repeat(pa.scalar(run.transaction, long), count),
        pa.repeat(pa.scalar(run.committed, pa.timestamp("us", tz="UTC")), count),
        pa.nulls(count, pa.list_(text)),
        pa.ListArray.from_arrays(pa.array(range(0, width * count + 1, width), number), values),
        pa.ListArray.from_arrays(pa.array([0] * (count + 1), number), pa.array([], number)),
    ]
    return pa.RecordBatch.from_arrays(columns, names=list(NAMES))


COMMIT, TABLE = "commit", "table"
"""Operations of the rows of a :class:`Summary`."""


class Summary:
    """What a batch has of each transaction and of each table, counted while it is read.

    Behind the changes it is sent as rows of the same form. A row for each transaction: operation
    COMMIT, ``sequence`` its changes. One for each table: operation TABLE, ``lsn``, ``sequence`` and
    ``committed`` those of its last TRUNCATE or NULL, ``transaction`` the bytes of all messages, and
    in ``unchanged`` three times 0 or 1: whether a value was not sent because it stayed the same,
    whether one was not sent of a row that is new under its key, and whether there are old images.
    """

    __slots__ = ("_size", "_tables", "_transactions")

    def __init__(self) -> None:
        self._size = 0
        self._transactions: dict[tuple[int, int, int], int] = {}
        self._tables: dict[str, _Seen] = {}

    def add(self, found: Sequence[Change], size: int) -> None:
        """Count changes, in their order, and the bytes of their messages."""
        self._size += size
        counts, tables = self._transactions, self._tables
        for of, changes in groupby(found, attrgetter("lsn", "transaction", "committed")):
            counts[of] = counts.get(of, 0) + sum(1 for _ in changes)
        for change in found:
            seen = tables.get(change.table)
            if seen is None:
                seen = tables[change.table] = _Seen()
            before = change.before is not None
            if change.unchanged:
                seen.unchanged = True
                seen.moved |= before or change.operation == "insert"
            if before:
                seen.gone = True
            elif change.operation == "truncate":
                seen.truncated = (change.lsn, change.sequence, change.committed)

    def add_new(self, run: _Run, size: int) -> None:
        """Count new rows that have every value."""
        self._size += size
        of = run.lsn, run.transaction, run.committed
        self._transactions[of] = self._transactions.get(of, 0) + len(run.messages)
        self._tables.setdefault(run.relation.name, _Seen())

    def batch(self) -> pa.RecordBatch:
        """Its rows as Arrow."""
        rows: list[tuple[Any, ...]] = [
            (None, lsn, count, COMMIT, transaction, committed, None, None, None)
            for (lsn, transaction, committed), count in self._transactions.items()
        ]
        for table, seen in self._tables.items():
            lsn, sequence, committed = seen.truncated
            flags = [int(each) for each in (seen.unchanged, seen.moved, seen.gone)]
            rows.append((table, lsn, sequence, TABLE, self._size, committed, None, None, flags))
        return _record_batch([[row[place] for row in rows] for place in range(len(NAMES))])


class _Seen:
    """What was seen of one table."""

    __slots__ = ("gone", "moved", "truncated", "unchanged")

    def __init__(self) -> None:
        self.unchanged = self.moved = self.gone = False
        self.truncated: tuple[int, int, int] | tuple[None, None, None] = (None, None, None)


def snapshot_batch(
    table: str, lsn: int, taken: int, first: int, values: list[str | None], width: int
) -> pa.RecordBatch:
    """Rows of a snapshot, from their values one behind the other, ``width`` to a row.

    ``taken`` is the time of the snapshot in microseconds, ``first`` the number of the first row.
    """
    import pyarrow as pa

    text, number = pa.string(), pa.int32()
    count = len(values) // width
    offsets = pa.array(range(0, len(values) + 1, width), number)
    columns = [
        pa.repeat(pa.scalar(table, text), count),
        pa.repeat(pa.scalar(lsn, pa.int64()), count),
        pa.array([at & 0x7FFFFFFF for at in range(first, first + count)], number),
        pa.repeat(pa.scalar(SNAPSHOT, text), count),
        pa.nulls(count, pa.int64()),
        pa.repeat(pa.scalar(taken, pa.timestamp("us", tz="UTC")), count),
        pa.nulls(count, pa.list_(text)),
        pa.ListArray.from_arrays(offsets, pa.array(values, text)),
        pa.ListArray.from_arrays(pa.array([0] * (count + 1), number), pa.array([], number)),
    ]
    return pa.RecordBatch.from_arrays(columns, names=list(NAMES))


def _lists(values: Sequence[Sequence[Any] | None], kind: pa.DataType) -> pa.Array:
    """A column of lists, from flat values and offsets: several times faster than by pa.array."""
    import pyarrow as pa

    flat: list[Any] = []
    offsets: list[int | None] = []
    at = 0
    for value in values:
        if value is None:
            offsets.append(None)
            continue
        offsets.append(at)
        flat += value
        at += len(value)
    offsets.append(at)
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), pa.array(flat, kind))
