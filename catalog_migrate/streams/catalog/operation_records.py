"""What operations on running queries leave on record, and how it is read back (pure).

An unsafe operation has on record its request and its commit: of each item what was there before and
what takes its place, and what it skipped, cut into chunks that stay as they are while they are
read. A record holds these as values, one of format 5 and before as JSON texts.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeVar

import msgspec

from catalog_migrate.catalog.records import UNSAFE_FORMAT, OperationRecord, StreamRecord, UnsafeAct
from catalog_migrate.catalog.state import State
from catalog_migrate.connectors.positions import OffsetRange, Partition, PartitionCodec
from catalog_migrate.errors import UnsafeBlocked
from catalog_migrate.model.findings import Finding
from catalog_migrate.model.objects import ObjectDefinition
from catalog_migrate.operations.kinds import BACKFILLING, UNSAFE
from catalog_migrate.streams.checkpoint.edit import Edit

T = TypeVar("T")


def kind_of(row: OperationRecord) -> str:
    """Return what an operation is counted as: the widest thing that it does."""
    act = row.unsafe
    if act is None or act.undoes:
        return "undo"
    return "alter" if act.keys else "reset" if act.reset else "inject"


def findings_in(row: OperationRecord) -> tuple[Finding, ...]:
    """Return what refused an operation."""
    return row.findings or tuple(
        Finding("", None, "error", text) for text in _list_numbered(row, "finding")
    )


def sick_in(row: OperationRecord) -> list[str]:
    """Return what was sick before an operation and was not waited for, in words."""
    return _list_numbered(row, "sick") or [row.sick[item_id] for item_id in sorted(row.sick)]


def _list_numbered(row: OperationRecord, word: str) -> list[str]:
    """Texts that an earlier version kept in the details, in their order."""
    return [text for name, text in sorted(row.detail.items()) if name.startswith(f"{word} ")]


def with_act(row: OperationRecord, **fields: object) -> OperationRecord:
    """Return the row of an unsafe operation with more fields of its act."""
    assert row.unsafe is not None
    return msgspec.structs.replace(row, unsafe=msgspec.structs.replace(row.unsafe, **fields))


class Totals(msgspec.Struct, frozen=True):
    """Sums over partitions (and sources); ``exact`` false means "at most"."""

    doubled: int = 0
    skipped: int = 0
    expired: int = 0
    exact: bool = True

    @classmethod
    def of(cls, counted: Iterable[Any], *, exact: bool) -> Totals:
        """Sum rows, or other totals."""
        listed = tuple(counted)
        return cls(
            sum(each.doubled for each in listed), sum(each.skipped for each in listed),
            sum(each.expired for each in listed), exact,
        )

    @classmethod
    def over(cls, parts: Iterable[Totals]) -> Totals:
        """Sum totals; exact when all are."""
        listed = tuple(parts)
        return cls.of(listed, exact=all(each.exact for each in listed))


class Restore(msgspec.Struct, frozen=True):
    """RESTORE of the shard at ``path`` (relative to the warehouse) to version ``to``.

    The commit follows exactly version ``follows``. ``gone`` rows leave by it, and ``back`` rows
    come back that an earlier one had taken away.
    """

    path: str
    to: int
    follows: int
    gone: int = 0
    back: int = 0

    @property
    def version(self) -> int:
        """The version of the table that it makes."""
        return self.follows + 1


class Move(msgspec.Struct, frozen=True, omit_defaults=True):
    """One item of an unsafe operation: what was there before, and what takes its place.

    ``line`` is the position after the newest committed batch, of ``topics`` at ``upstream``;
    ``target`` the line that is written, with the exact ``edit`` ("" and None when positions stay),
    of ``topics_after`` at ``upstream_after`` (empty: the same). ``generation`` is the one
    that is committed. ``version`` is that of the table at ``shard`` after the stop, which
    ``restore`` takes back. ``past``: a sink that only moves past a RESTORE of the table that it
    reads. ``expired`` counts by partition what is passed over and was not there to be read: no
    longer, or not yet. ``retaken``: a POSTGRES source takes a new snapshot of these tables, () of
    all of them. ``snapshot`` is the number of the checkpoint's snapshot.
    """

    item_id: str
    definition: ObjectDefinition
    links: dict[str, str]
    line: str
    generation: int
    target: str = ""
    upstream: str = ""
    topics: dict[str, str] = {}
    version: int | None = None
    shard: str = ""
    restore: Restore | None = None
    past: bool = False
    expired: dict[str, int] = {}
    edit: Edit | None = None
    upstream_after: str = ""
    topics_after: dict[str, str] = {}
    retaken: tuple[str, ...] | None = None
    snapshot: int | None = None

    @property
    def base(self) -> int | None:
        """The version of the table that what comes twice is counted from."""
        return self.version if self.restore is None else self.restore.version


class Chunk(msgspec.Struct, frozen=True):
    """Exact ranges of one source that are read and appended as one; its number is its place."""

    item_id: str
    places: tuple[OffsetRange, ...]


class UnsafeCommit(msgspec.Struct, frozen=True, omit_defaults=True):
    """Everything that the one commit of an unsafe operation writes.

    It is in the row before a RESTORE, so that a process which resumes after that commits the very
    same. ``expired`` and ``moved`` are in words, as the history has them; ``injected`` counts the
    partitions among ``moved``.
    """

    moves: tuple[Move, ...]
    totals: Totals = Totals()
    chunks: tuple[Chunk, ...] = ()
    expired: tuple[str, ...] = ()
    moved: tuple[str, ...] = ()
    injected: int = 0

    @property
    def restore(self) -> Restore | None:
        """The RESTORE that comes before it."""
        return next((move.restore for move in self.moves if move.restore is not None), None)


# -- read back -------------------------------------------------------------------------------------


def value_in(record: object, kind: type[T]) -> T:
    """Decode a value of a record, which is JSON text in one of format 5 and before."""
    if isinstance(record, str):
        return msgspec.json.decode(record, type=kind)
    return msgspec.convert(record, kind)


def edit_in(stream: StreamRecord) -> Edit | None:
    """Return the newest committed edit of positions."""
    return value_in(stream.edit, Edit) if stream.edit else None


def encode_edit(state: State, edit: Edit | None) -> dict[str, Any] | str:
    """Encode an edit as the catalog's record format has it."""
    if edit is None:
        return ""
    if int(state.setting("format_version")) < UNSAFE_FORMAT:
        return msgspec.json.encode(edit).decode()
    value: dict[str, Any] = msgspec.to_builtins(edit)
    return value


def commit_in(row: OperationRecord) -> UnsafeCommit:
    """Return what an operation commits, or has committed."""
    act = row.unsafe
    assert act is not None
    if act.commit is not None:
        return value_in(act.commit, UnsafeCommit)
    found: dict[str, Any] = msgspec.json.decode(act.prepared) if act.prepared else {
        "images": msgspec.json.decode(act.images or "[]"),
        "chunks": msgspec.json.decode(act.backfill or "[]"),
        "partitions": act.partitions,
    }
    moves = [_of_format_5(act, image, found) for image in found["images"]]
    commit = {**found, "moves": moves, "moved": found["partitions"]}
    return msgspec.convert(commit, UnsafeCommit)


def _of_format_5(
    act: UnsafeAct, image: dict[str, Any], prepared: dict[str, Any]
) -> dict[str, Any]:
    """A move; what was prepared said in other places what takes the place of the item's image."""
    item_id = image["item_id"]
    restore = prepared.get("restore") or {
        "path": image.get("shard"), "to": act.restored, "follows": image.get("restored", 0) - 1,
        "gone": act.removed, "back": act.brought_back,
    }
    return {
        **image,
        "restore": restore if "restored" in image else None,
        "edit": prepared.get("edits", {}).get(item_id),
        "upstream_after": prepared.get("upstreams", {}).get(item_id, ""),
        "topics_after": prepared.get("topics", {}).get(item_id, {}),
        "retaken": prepared.get("retaken", {}).get(item_id),
        "snapshot": prepared.get("snapshots", {}).get(item_id),
    }


def moves_in(row: OperationRecord) -> tuple[Move, ...]:
    """Return what an operation has changed, item by item; empty until it is committed."""
    if row.unsafe is None or row.state == "restoring":
        return ()
    return commit_in(row).moves


def chunks_in(row: OperationRecord) -> tuple[Chunk, ...]:
    """Return the chunks of an operation; empty until it is committed."""
    if row.unsafe is None or row.state == "restoring":
        return ()
    return commit_in(row).chunks


def backfilling(state: State) -> dict[str, frozenset[str]]:
    """Return operations that are reading what they skipped, and the sources that it is read for."""
    return {
        key: frozenset(chunk.item_id for chunk in chunks_in(row))
        for key, row in sorted(state.operations.items()) if row.state == BACKFILLING
    }


def dead_letter_tables(state: State) -> dict[str, str]:
    """Tables that a backfill may write dead letters into: item id and the operation."""
    return {
        state.items[item_id].links["dead_letters"]: key
        for key, items in backfilling(state).items() for item_id in items
        if item_id in state.items and "dead_letters" in state.items[item_id].links
    }


def earlier_rows(state: State, item_id: str) -> dict[str, int]:
    """Topics of which a source's table may hold rows of another one of the same name, and the
    newest version of the table that may have brought some (-1: none is known)."""
    stream = state.streams.get(item_id)
    known = stream.known_topics if stream is not None else {}
    found: dict[str, int] = {}
    for row in state.operations.values():
        for move in moves_in(row):
            if move.item_id != item_id:
                continue
            version = -1 if move.version is None else move.version
            for topic, topic_id in move.topics.items():
                if known.get(topic, topic_id) != topic_id:
                    found[topic] = max(version, found.get(topic, -1))
    return found


def read_before(state: State, item_id: str) -> dict[str, dict[Partition, int]]:
    """Up to where a source has read each topic that an operation took it away from, by its id."""
    found: dict[str, dict[Partition, int]] = {}
    for row in state.operations.values():
        for move in moves_in(row):
            if move.item_id != item_id or not move.topics:
                continue
            for partition, at in (PartitionCodec().read(move.line) or {}).items():
                if (topic_id := move.topics.get(partition[0])) is not None:
                    places = found.setdefault(topic_id, {})
                    places[partition] = max(at, places.get(partition, 0))
    return found


def earlier_topics(state: State, item_id: str) -> frozenset[str]:
    """Topics of which a source's table may hold records of another one of the same name."""
    return frozenset(earlier_rows(state, item_id))


def find_moved_ranges(move: Move, *, back: bool) -> tuple[OffsetRange, ...]:
    """List what an operation put back (else: passed over), where it is the same partition."""
    codec = PartitionCodec()
    before, after = codec.read(move.line) or {}, codec.read(move.target or "-") or {}
    found = []
    for partition in sorted(before.keys() & after.keys()):
        old, new = before[partition], after[partition]
        if (new < old) is back and new != old:
            found.append(OffsetRange(*partition, min(old, new), max(old, new)))
    return tuple(found)


def operation_row(state: State, key: str) -> OperationRecord:
    """Return the row of an unsafe operation; :class:`UnsafeBlocked` with the newest keys."""
    row = state.operations.get(key)
    if row is None or row.kind != UNSAFE:
        known = sorted(each for each, row in state.operations.items() if row.kind == UNSAFE)
        raise UnsafeBlocked(
            f"there is no unsafe operation {key}",
            remedy=f"the newest: {', '.join(known[-3:]) or 'none'}",
        )
    return row
