"""VALIDATE SOURCE: the rows of a mirror against those upstream, a bucket of keys at a time.

Counts and checksums of values after our own conversion are compared. Each bucket is read upstream
in one moment, at an LSN of its own; the mirror as it is then. Where they differ, the mirror is read
again once it has passed that LSN, and a row differs for good when two looks in a row find it so,
while neither side has changed it in between: a stream that is running under writers gives no false
difference. Rows that changed at every look are counted.

Without Spark: the mirror is read by delta-rs. What was compared is kept in a file beside the
source's checkpoints, so that a comparison that was cut off goes on; it goes with its end.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import msgspec

from catalog_migrate.catalog.clock import Clock
from catalog_migrate.catalog.state import State
from catalog_migrate.connectors.postgres.types import lsn_text
from catalog_migrate.connectors.query import OutputTable, QuerySpec
from catalog_migrate.engine_failures import failing
from catalog_migrate.errors import (
    CatalogMigrateError,
    RefusedStatement,
    SlotAhead,
    SlotInUse,
    SourceDiffers,
    SourceNotCompared,
)
from catalog_migrate.model.names import fold, quote_datafusion
from catalog_migrate.model.wording import join_some
from catalog_migrate.sql import statements as st
from catalog_migrate.sql.printer import render
from catalog_migrate.store import Store, store_at
from catalog_migrate.streams.catalog import dependencies
from catalog_migrate.streams.catalog.cluster_log import list_holds, runtime_lives
from catalog_migrate.streams.catalog.query_spec import spec_of
from catalog_migrate.streams.catalog.rows import Rows as ShownRows
from catalog_migrate.streams.catalog.upstream_tables import DELETED, VALIDATION, is_mirror
from catalog_migrate.streams.checkpoint.directory import Checkpoint
from catalog_migrate.streams.positions.positions import postgres_position
from catalog_migrate.streams.runtime.ports import Ports

if TYPE_CHECKING:
    from catalog_migrate.connectors.postgres.comparison import ComparedColumn, Look, Rows
    from catalog_migrate.connectors.postgres.types import DiscoveredTable, Position

PROGRESS = "progress.json"
"""The file in which a comparison keeps how far it is."""

_BUCKET_ROWS = 1_000_000
"""Each bucket is a scan of the table upstream, and each reading of the mirror one of that; digests
take 24 bytes a row on either side."""
_ROWS_PER_SECOND = 100_000
_AT_ONCE = 1_000_000
"""Rows of the mirror whose digests are in memory: so many buckets are compared by one reading."""
_LOOKS = 8
"""How often a bucket is looked at whose rows go on changing."""
_PAUSE = 1.0
"""Seconds between two looks; a commit is in the server's log a moment before others see it."""
_PATIENCE = 120.0
"""Seconds without a commit after which a running source is not waited for any longer."""
_OLDEST = 86_400.0
"""Seconds without a bucket after which what was compared is no longer gone on from."""
_LISTED = 20
"""Buckets that an error names of each table."""


class ComparedBucket(msgspec.Struct, frozen=True, omit_defaults=True):
    """What came of a bucket: so many ``rows`` upstream at ``lsn``, and of them and of ours so many
    that are missing here, are not upstream, or have other values. ``changing`` are rows that
    changed at every look."""

    number: int
    lsn: int
    rows: int
    missing: int = 0
    surplus: int = 0
    other: int = 0
    changing: int = 0

    @property
    def differing(self) -> int:
        """Rows that differ."""
        return self.missing + self.surplus + self.other


class ComparedTable(msgspec.Struct, frozen=True):
    """How far the comparison of a table is; it goes on while shard and columns are the same."""

    shard: str
    columns: tuple[str, ...]
    buckets: int
    done: tuple[ComparedBucket, ...] = ()


class Progress(msgspec.Struct, frozen=True):
    """How far a comparison is: ``run`` is of the process that goes on with it, ``saved`` when that
    was written, in seconds since 1970, ``generation`` of the source's positions, which an UNSAFE
    statement raises, ``tables`` by their names upstream."""

    run: str
    saved: float
    bucket_rows: int
    generation: int
    tables: Mapping[str, ComparedTable] = {}


class DifferingKey(msgspec.Struct, frozen=True):
    """A key whose rows differ: digests and versions upstream, and when ours changed last."""

    upstream: tuple[tuple[int, int], ...]
    here: int
    lsn: int


# -- the statement ---------------------------------------------------------------------------------


def require_mirror(found: dependencies.CatalogEntry) -> None:
    """RefusedStatement for a source whose rows cannot be compared with rows upstream."""
    if not found.external.tables:
        raise RefusedStatement(
            f"{found.text} reads {found.external.connector}, and a mirror of PostgreSQL tables can"
            " be compared", remedy="SHOW SOURCES has its lag and its error",
        )
    if not is_mirror(found.external):
        raise RefusedStatement(
            f"{found.text} is of FORMAT CHANGES: it has every change, and not the current rows,"
            " which could be compared",
            remedy="create a second source of these tables with FORMAT MIRROR and validate that",
        )


def settings_of(settings: Mapping[str, str]) -> tuple[int, int]:
    """(rows of a bucket, rows a second); RefusedStatement for what is no such setting."""
    known = {"BUCKET ROWS": _BUCKET_ROWS, "ROWS PER SECOND": _ROWS_PER_SECOND}
    for name, value in settings.items():
        if name not in known:
            raise RefusedStatement(
                f"VALIDATE SOURCE has no setting {name}", remedy="write " + " or ".join(known)
            )
        if not value.isdecimal() or int(value) < 1:
            raise RefusedStatement(
                f"{name} is {value!r}", remedy="write a whole number of rows, at least 1"
            )
        known[name] = int(value)
    return known["BUCKET ROWS"], known["ROWS PER SECOND"]


def explain_validation(state: State, statement: st.ValidateSource) -> str:
    """Return what VALIDATE SOURCE would do; raises as it does."""
    found = dependencies.find(state, "source", statement.name)
    require_mirror(found)
    rows, rate = settings_of(statement.settings)
    tables = ", ".join(each.full_name for each in found.external.tables)
    return (
        f"compares {tables} with the mirror of each: buckets of {rows:,} rows, at most {rate:,}"
        " rows a second from the server; writes nothing but how far it is"
    )


def validate_source(
    state: State, statement: st.ValidateSource, *, follow: Callable[[], State], ports: Ports,
    clock: Clock, say: Callable[[str], None],
) -> tuple[ShownRows, tuple[str, ...]]:
    """Compare; (a row for each table, what is to be said beside them).

    ``follow`` gives the newest state. Raises RefusedStatement, SourceDiffers with every bucket that
    differs, SourceNotCompared for what could not be decided, and what the server refuses.
    """
    found = dependencies.find(state, "source", statement.name)
    require_mirror(found)
    bucket_rows, rate = settings_of(statement.settings)
    comparison = _Comparison(
        found.item_id, spec_of(state, found.item_id, resolve=ports.resolve), follow, ports, clock,
        say, rate,
    )
    return comparison.run(state, bucket_rows)


@dataclass
class _Comparison:
    item_id: str
    spec: QuerySpec
    follow: Callable[[], State]
    ports: Ports
    clock: Clock
    say: Callable[[str], None]
    rate: int
    _notes: list[str] = field(default_factory=list)
    _undecided: dict[str, list[int]] = field(default_factory=dict)
    _standstill: str = ""

    @property
    def name(self) -> str:
        return f"source {self.spec.name}"

    def run(self, state: State, bucket_rows: int) -> tuple[ShownRows, tuple[str, ...]]:
        from catalog_migrate.connectors.postgres.comparison import estimate_rows

        spec = self.spec
        if postgres_position(Checkpoint(spec.checkpoint), spec) is None:
            raise SourceNotCompared(
                f"{self.name} has not taken its snapshot yet",
                remedy="start its cluster (catalog-migrate run), or RESUME it",
            )
        there = self.ports.databases.tables(
            spec.connection, [each.upstream.postgres_name for each in spec.tables],
            publication=spec.publication, subject=self.name,
        )
        kept = _Kept.take(self.spec, bucket_rows, self.clock, state, self.item_id)
        if kept.compared:
            self.say(f"{self.name}: goes on, {kept.compared} buckets were compared before")
        for table, upstream in zip(spec.tables, there, strict=True):
            columns = self._columns(table, upstream)
            rows = max(_rows_here(table), estimate_rows(spec.connection, upstream))
            kept.begin(table, columns, max(1, -(-rows // bucket_rows)))
            self._compare(_Table(table, upstream, columns, kept), rows)
        kept.save()
        if self._undecided:
            raise self._not_compared(kept)
        kept.end()
        self._refuse_differences(kept)
        return self._show(kept), tuple(self._notes)

    # -- columns -----------------------------------------------------------------------------------

    def _columns(self, table: OutputTable, there: DiscoveredTable) -> list[ComparedColumn]:
        """What can be compared of a table; the rest is noted. SourceNotCompared for a key."""
        from catalog_migrate.connectors.postgres.comparison import ComparedColumn
        from catalog_migrate.connectors.postgres.values import is_comparable

        known = {each.name: each for each in there.published}
        stored = {fold(each.name) for each in _stored_columns(table.shard)}
        found, left = [], {}
        for place, ours in table.mapped_columns:
            column = table.upstream.columns[place]
            now = known.get(column.name)
            key = column.name in table.upstream.key
            if now is None:
                left[column.name] = "is not published upstream"
            elif (now.type_oid, now.modifier) != (column.type_oid, column.modifier):
                left[column.name] = f"is {now.type} upstream now"
            elif fold(ours.name) not in stored:
                left[column.name] = "is not in the table here yet"
            elif not is_comparable(ours.type):
                left[column.name] = f"is {ours.type} here"
            else:
                found.append(ComparedColumn(column.name, ours.name, ours.type, key))
                continue
            if key:
                raise SourceNotCompared(
                    f"{self.name}: column {column.name} of the key of {there.full_name}"
                    f" {left[column.name]}",
                    remedy=f"SHOW SOURCES says whether {self.name} is held, and what to write",
                )
        mapped = {each.name for each in table.upstream.columns}
        left |= {name: "is not taken over yet" for name in known if name not in mapped}
        self._notes += [
            f"column {name} of {there.full_name} was not compared: it {why}"
            for name, why in left.items()
        ]
        return found

    # -- buckets -----------------------------------------------------------------------------------

    def _compare(self, table: _Table, rows: int) -> None:
        done = {each.number for each in table.kept.table(table.name).done}
        open_ = [number for number in range(table.buckets) if number not in done]
        at_once = max(1, _AT_ONCE * table.buckets // max(rows, 1))
        for start in range(0, len(open_), at_once):
            self._require_unchanged()
            self._compare_buckets(table, open_[start:start + at_once])
            self.say(
                f"{self.name}: {len(table.kept.table(table.name).done)} of {table.buckets} buckets"
                f" of {table.name} compared"
            )

    def _compare_buckets(self, table: _Table, numbers: Sequence[int]) -> None:
        """Compare some buckets at one reading of the mirror, those that differ again."""
        here = table.rows_here(numbers)
        looks: dict[int, Look] = {}
        for number in numbers:
            look = self._look(table, number)
            if find_differences(look, here[number]):
                looks[number] = look
            else:
                table.kept.put(table.name, ComparedBucket(number, look.lsn, len(look.rows)))
        before: dict[int, dict[int, DifferingKey]] = {number: {} for number in looks}
        for turn in range(_LOOKS):
            if turn and looks:
                self.clock.sleep(_PAUSE)
                looks = {number: self._look(table, number) for number in looks}
            if not looks:
                return
            self._require_unchanged()
            if not self._wait_until_passed(max(look.lsn for look in looks.values())):
                self._undecided.setdefault(table.name, []).extend(looks)
                return
            here = table.rows_here(list(looks))
            for number, look in list(looks.items()):
                found = find_differences(look, here[number])
                result, known = classify_bucket(number, look, found, before[number])
                before[number] = found
                if known or turn == _LOOKS - 1:
                    table.kept.put(table.name, result)
                    del looks[number]

    def _look(self, table: _Table, number: int) -> Look:
        """A bucket upstream; takes at least as long as its rows may take by the rate."""
        from catalog_migrate.connectors.postgres.comparison import Bucket, look

        began = self.clock.monotonic()
        found = look(
            self.spec.connection, table.upstream, table.columns, Bucket(number, table.buckets),
            publication=self.spec.publication,
        )
        left = len(found.rows) / self.rate - (self.clock.monotonic() - began)
        if left > 0:
            self.clock.sleep(left)
        return found

    def _wait_until_passed(self, lsn: int) -> bool:
        """Wait until the mirror has passed an LSN; False where it does not come so far."""
        last, since, reported = None, self.clock.monotonic(), False
        while True:
            position = self._position()
            now = self.clock.monotonic()
            passed = position is not None and self._has_passed(lsn, position)
            if passed:
                return True
            if position != last or passed is None:
                last, since = position, now
            reason = self._find_standstill(now - since)
            if reason:
                self._standstill = (
                    f"its mirror is at {position}, before {lsn_text(lsn)}, and {reason}"
                )
                return False
            if not reported:
                reported = True
                self.say(f"{self.name}: waits until the mirror has passed {lsn_text(lsn)}")
            self.clock.sleep(_PAUSE)

    def _position(self) -> Position | None:
        return postgres_position(Checkpoint(self.spec.checkpoint), self.spec)

    def _has_passed(self, lsn: int, position: Position) -> bool | None:
        """Whether a mirror at ``position`` has passed an LSN; None while a batch is being read."""
        from catalog_migrate.connectors.postgres.comparison import is_behind

        spec = self.spec
        try:
            return not is_behind(spec.connection, spec.slot, spec.publication, position, lsn)
        except SlotInUse:
            return None
        except SlotAhead:
            # a batch is committed before the slot moves on, maybe since the first look
            if self._position() == position:
                raise
            return False

    def _find_standstill(self, seconds: float) -> str:
        """Why a mirror that has not moved for so long will not do so soon; "" where it may."""
        state = self.follow()
        item = state.items.get(self.item_id)
        if item is None:
            return "it was dropped"
        holds = list_holds(state, self.item_id)
        if holds:
            return f"it is held: {'; '.join(holds)}"
        if not runtime_lives(state, item.links.get("cluster", "")):
            return "no runtime of its cluster is alive"
        return f"it has not moved for {_PATIENCE:.0f} s" if seconds > _PATIENCE else ""

    def _require_unchanged(self) -> None:
        """SourceNotCompared where the source was altered, reset or migrated meanwhile."""
        state = self.follow()
        now = None
        if self.item_id in state.items:
            now = spec_of(state, self.item_id, resolve=self.ports.resolve)
        mine = self.spec
        if now is None or (now.tables, now.checkpoint, now.snapshot_number) != (
            mine.tables, mine.checkpoint, mine.snapshot_number
        ):
            raise SourceNotCompared(
                f"{self.name} was changed while it was compared",
                remedy=f"run it again: {self._statement}",
            )

    # -- what came of it ---------------------------------------------------------------------------

    @property
    def _statement(self) -> str:
        return render(st.ValidateSource(str(self.spec.name)))

    def _not_compared(self, kept: _Kept) -> SourceNotCompared:
        open_ = "; ".join(
            f"{name}: "
            + _list_buckets([str(each) for each in sorted(numbers)], kept.table(name).buckets)
            for name, numbers in self._undecided.items()
        )
        return SourceNotCompared(
            f"{self.name} differs from its tables upstream by more than its lag explains:"
            f" {self._standstill}; not decided are {open_}",
            remedy=f"let it go on until it has caught up, then {self._statement}",
        )

    def _refuse_differences(self, kept: _Kept) -> None:
        """SourceDiffers with every table and bucket, and the statement that copies these again."""
        lines, tables, total = [], [], 0
        for table in self.spec.tables:
            name = table.upstream.full_name
            compared = kept.table(name)
            bad = [each for each in compared.done if each.differing]
            if not bad:
                continue
            tables.append(name)
            total += sum(each.differing for each in bad)
            lines.append(
                f"{name}, here {table.name}: {_describe_counts(bad)};"
                f" {_describe_buckets(bad, compared.buckets)}"
            )
        if not tables:
            return
        raise SourceDiffers(
            f"{self.name} is not what its tables are upstream: {total} rows differ in"
            f" {', '.join(tables)}; the remedy is a new snapshot of these tables alone",
            differences=lines,
            remedy=render(st.Unsafe(
                "source", str(self.spec.name), (st.ResetSplits(tuple(tables)),),
                f"{total} rows differ",
            )),
        )

    def _show(self, kept: _Kept) -> ShownRows:
        rows = []
        for table in self.spec.tables:
            compared = kept.table(table.upstream.full_name)
            rows.append((
                str(table.name), table.upstream.full_name,
                sum(each.rows for each in compared.done), compared.buckets,
                sum(each.changing for each in compared.done),
                lsn_text(max(each.lsn for each in compared.done)),
            ))
        return ShownRows(
            ("table", "upstream", "equal_rows", "buckets", "changing_rows", "lsn"), tuple(rows)
        )


def _describe_counts(buckets: Sequence[ComparedBucket]) -> str:
    words = {"missing": "missing here", "surplus": "not upstream", "other": "with other values"}
    counts = {word: sum(getattr(each, name) for each in buckets) for name, word in words.items()}
    return ", ".join(f"{count} {word}" for word, count in counts.items() if count)


def _describe_buckets(bad: Sequence[ComparedBucket], buckets: int) -> str:
    """Which buckets, and at which LSN each."""
    return _list_buckets([
        f"{each.number} at {lsn_text(each.lsn)} ({each.differing})"
        for each in sorted(bad, key=lambda each: each.number)
    ], buckets)


def _list_buckets(texts: Sequence[str], buckets: int) -> str:
    return f"bucket {join_some(texts, _LISTED)} of {buckets}"


# -- rows ------------------------------------------------------------------------------------------


@dataclass
class _Table:
    """A table on both sides."""

    output: OutputTable
    upstream: DiscoveredTable
    columns: list[ComparedColumn]
    kept: _Kept

    @property
    def name(self) -> str:
        return self.output.upstream.full_name

    @property
    def buckets(self) -> int:
        return self.kept.table(self.name).buckets

    def rows_here(self, numbers: Sequence[int]) -> dict[int, Rows]:
        """Return the rows of the mirror in its newest version, by bucket; marks are their LSNs."""
        import numpy as np
        import pyarrow as pa

        from catalog_migrate.connectors.postgres.comparison import Rows, digests, texts_of_keys
        from catalog_migrate.connectors.postgres.values import bucket_numbers, table_values

        soft = any(fold(each.name) == DELETED.name for each in self.output.columns)
        names = [each.ours for each in self.columns]
        parts = []
        for batch in _batches(self.output.shard, [*names, "_lsn"], alive=soft):
            values = [
                table_values(column.type, value)
                for column, value in zip(self.columns, batch, strict=False)
            ]
            at = batch[-1].to_numpy(zero_copy_only=False).astype(np.int64)
            found: Any = np.zeros(len(at), np.int64)
            if self.buckets > 1:
                found = bucket_numbers(texts_of_keys(self.columns, values), self.buckets)
                wanted = np.isin(found, numbers)
                values = [value.filter(pa.array(wanted)) for value in values]
                found, at = found[wanted], at[wanted]
            if len(at):
                parts.append((found, *digests(self.columns, values), at))
        if not parts:
            nothing: Any = np.zeros(0, np.uint64)
            return dict.fromkeys(numbers, Rows(nothing, nothing, nothing.astype(np.int64)))
        found, keys, rows, at = (np.concatenate(each) for each in zip(*parts, strict=True))
        return {
            number: Rows(*(each[found == number] for each in (keys, rows, at)))
            for number in numbers
        }


def _batches(path: str, names: Sequence[str], *, alive: bool) -> Iterator[list[Any]]:
    """The columns of the newest version of a table, some rows at a time; ``alive`` leaves out rows
    that were deleted upstream."""
    import pyarrow as pa
    from deltalake import QueryBuilder

    from catalog_migrate.delta.table import open_table

    listed = ", ".join(map(quote_datafusion, names))
    where = f" WHERE {quote_datafusion(DELETED.name)} IS NULL" if alive else ""
    table = open_table(path)
    with failing(f"read the rows of {path}"):
        for batch in QueryBuilder().register("t", table).execute(f"SELECT {listed} FROM t{where}"):
            yield list(pa.record_batch(batch).columns)


def _stored_columns(path: str) -> Sequence[Any]:
    from catalog_migrate.delta.table import shard_columns

    return shard_columns(path)


def _rows_here(table: OutputTable) -> int:
    from catalog_migrate.delta.table import shard_size

    return shard_size(table.shard)[0]


def find_differences(look: Look, here: Rows) -> dict[int, DifferingKey]:
    """The keys whose rows upstream and here are not the same, by digest; none when count and
    checksum are equal."""
    import numpy as np

    there = look.rows
    mine, theirs = _checksums(here), _checksums(there)
    if len(mine) == len(theirs) and int(mine.sum()) == int(theirs.sum()):
        return {}
    values, places = np.unique(np.concatenate([mine, theirs]), return_inverse=True)
    counts = (
        np.bincount(places[:len(mine)], minlength=len(values))
        - np.bincount(places[len(mine):], minlength=len(values))
    )
    apart = values[counts != 0]
    keys = np.unique(np.concatenate([
        here.keys[np.isin(mine, apart)], there.keys[np.isin(theirs, apart)]
    ]))
    versions: dict[int, list[tuple[int, int]]] = {int(key): [] for key in keys}
    lsns: dict[int, list[int]] = {int(key): [] for key in keys}
    of_keys = np.isin(there.keys, keys)
    for key, digest, mark in zip(
        there.keys[of_keys].tolist(), there.digests[of_keys].tolist(),
        there.marks[of_keys].tolist(), strict=True,
    ):
        versions[key].append((digest, mark))
    of_keys = np.isin(here.keys, keys)
    for key, lsn in zip(here.keys[of_keys].tolist(), here.marks[of_keys].tolist(), strict=True):
        lsns[key].append(lsn)
    return {
        key: DifferingKey(
            tuple(sorted(versions[key])), len(lsns[key]), max(lsns[key], default=0)
        )
        for key in versions
    }


def _checksums(rows: Rows) -> Any:
    """A digest of key and values of each row."""
    import numpy as np

    return rows.keys * np.uint64(0x9E3779B97F4A7C15) + rows.digests


def classify_bucket(
    number: int, look: Look, found: Mapping[int, DifferingKey],
    before: Mapping[int, DifferingKey],
) -> tuple[ComparedBucket, bool]:
    """What a bucket comes to, and whether that is known: no row differs, or each that does was so
    in the look ``before`` too, the same version of it upstream, and was not changed here since this
    one began. ``found`` is of a mirror that has passed the look's LSN.
    """
    counts = Counter[str]()
    for key, each in found.items():
        earlier = before.get(key)
        if each.lsn >= look.begun or earlier is None or earlier.upstream != each.upstream:
            counts["changing"] += 1
        else:
            counts["missing" if not each.here else "other" if each.upstream else "surplus"] += 1
    return (
        ComparedBucket(number, look.lsn, len(look.rows), **counts),
        not counts["changing"],
    )


# -- how far it is ---------------------------------------------------------------------------------


class _Kept:
    """How far a comparison is, kept where the next one finds it."""

    def __init__(
        self, store: Store, progress: Progress, tag: str | None, clock: Clock
    ) -> None:
        self._store, self.progress, self._tag, self._clock = store, progress, tag, clock
        self._saved = 0.0

    @classmethod
    def take(
        cls, spec: QuerySpec, bucket_rows: int, clock: Clock, state: State, item_id: str
    ) -> _Kept:
        """Go on with what an earlier comparison has left, or begin; an older one that is still at
        work ends."""
        store = store_at(spec.checkpoint.rpartition("/")[0] + "/" + VALIDATION)
        stream, now = state.streams.get(item_id), clock.wall()
        new = Progress(uuid4().hex, now, bucket_rows, stream.generation if stream else 0)
        tag = None
        try:
            data, tag = store.read_tagged(PROGRESS)
            old = msgspec.json.decode(data, type=Progress)
        except (FileNotFoundError, msgspec.MsgspecError):
            old = new
        if (old.bucket_rows, old.generation) == (new.bucket_rows, new.generation) and (
            0 <= now - old.saved < _OLDEST
        ):
            new = msgspec.structs.replace(old, run=new.run)
        store.make_folder(above=True)
        made = cls(store, new, tag, clock)
        made.save()
        return made

    @property
    def compared(self) -> int:
        """Buckets."""
        return sum(len(each.done) for each in self.progress.tables.values())

    def table(self, name: str) -> ComparedTable:
        """How far a table is."""
        return self.progress.tables[name]

    def begin(
        self, table: OutputTable, columns: Sequence[ComparedColumn], buckets: int
    ) -> None:
        """Note that a table is compared in so many buckets, unless that goes on."""
        signature = tuple(f"{each.upstream} {each.ours} {each.type}" for each in columns)
        old = self.progress.tables.get(table.upstream.full_name)
        if old is None or (old.shard, old.columns) != (table.shard, signature):
            self._replace(
                table.upstream.full_name, ComparedTable(table.shard, signature, buckets)
            )

    def put(self, name: str, bucket: ComparedBucket) -> None:
        """Note what came of a bucket; it is written within a second."""
        old = self.table(name)
        self._replace(name, msgspec.structs.replace(old, done=(*old.done, bucket)))
        if self._clock.monotonic() - self._saved >= 1.0:
            self.save()

    def save(self) -> None:
        """Write it; SourceNotCompared where another comparison of the source has begun."""
        self.progress = msgspec.structs.replace(self.progress, saved=self._clock.wall())
        data = msgspec.json.encode(self.progress)
        if self._tag is None:
            written = self._store.put_if_absent(PROGRESS, data)
        else:
            written = self._store.put_if_match(PROGRESS, data, self._tag)
        if not written:
            raise _taken_over_error()
        found, self._tag = self._store.read_tagged(PROGRESS)
        if found != data:
            raise _taken_over_error()
        self._saved = self._clock.monotonic()

    def end(self) -> None:
        """It is over: the next comparison begins with the first bucket."""
        self._store.delete(PROGRESS)

    def _replace(self, name: str, table: ComparedTable) -> None:
        tables = {**self.progress.tables, name: table}
        self.progress = msgspec.structs.replace(self.progress, tables=tables)


def _taken_over_error() -> CatalogMigrateError:
    return SourceNotCompared(
        "another VALIDATE SOURCE of this source has begun and goes on from here",
        remedy="wait for that one",
    )
