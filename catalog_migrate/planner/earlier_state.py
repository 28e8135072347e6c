"""What an earlier serial had, and how the objects of now continue it: pure, from committed states.

Item ids lead from then to now, and within a table the ids of its columns. The states between say
which shards it had on the way, and what was in them: the rows that came to a shard after it was
made are its own, a copy has besides the own rows of everything that its source has, and what a
rollback made has those of the shards that it names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property

import msgspec
from msgspec.structs import replace

from catalog_migrate.catalog.records import (
    ColumnIds,
    ItemRecord,
    MappingRecord,
    ShardRecord,
    identity_text,
)
from catalog_migrate.catalog.state import State
from catalog_migrate.model.hashes import (
    SCHEME,
    decision_hashes,
    restamp_decisions,
    restamp_storage,
)
from catalog_migrate.model.names import Identity
from catalog_migrate.model.objects import Column
from catalog_migrate.model.paths import is_absolute
from catalog_migrate.planner.column_ids import Moment, over
from catalog_migrate.planner.rollback import GoingBack, Origin, Source
from catalog_migrate.release.release import Facts, Release

Shards = Mapping[str, ShardRecord]

Grown = Callable[[str, int, int | None], int | None]
"""(shard path, after, upto) -> rows that came, -1 unknown, None when rows were changed."""


def where_now(path: str, shards: Shards) -> str:
    """The path that a shard is known by since an adopted table's directory was moved."""
    while (record := shards.get(path)) is not None and record.moved_to is not None:
        path = record.moved_to
    return path


def rows_of(path: str, shards: Shards) -> tuple[str, ...]:
    """Return the shards whose own rows are in this one, oldest first and itself the last."""
    chain: list[str] = []
    made_of: tuple[str, ...] = ()
    following: str | None = path
    while following is not None and following in shards and following not in chain:
        chain.append(following)
        made_of = shards[following].rows_of
        following = None if made_of else shards[following].source
    return tuple(dict.fromkeys((*made_of, *reversed(chain))))


def last_holders(shards: Shards) -> Mapping[str, str]:
    """By shard: the retired one, of those that have its rows, that was in force last."""
    found: dict[str, tuple[int, str]] = {}
    for path, record in shards.items():
        if record.retired_serial is None:
            continue  # in force, or an attempt that ended
        for held in rows_of(path, shards):
            found[held] = max(found.get(held, (0, "")), (record.retired_serial, path))
    return {held: path for held, (_, path) in found.items()}


class Step(msgspec.Struct, frozen=True):
    """The state of one serial; ``rollback_to`` when the commit that led to it was a rollback."""

    state: State
    rollback_to: int | None = None


def release_of(then: State) -> Release | None:
    """Return the release that was in force, as its objects were; None when there was none."""
    record = then.release_in_force("release")
    if record is None:
        return None
    names = {row.item_id: row.identity for row in then.mappings.values()}
    own = {row.identity: row for row in then.mappings.values() if row.owner == "release"}
    release = Release(
        name=record.name,
        objects=tuple(then.items[row.item_id].definition for row in own.values()),
        manifest_hash=record.manifest_hash,
        uses={
            identity: tuple(sorted(
                names[use] for use in then.items[row.item_id].uses
                if use in names and names[use] in own
            ))
            for identity, row in own.items()
        },
        places={},
    )
    for identity, row in own.items():
        if row.fingerprint.startswith(f"{SCHEME}:"):
            definition = release.by_identity[identity]
            storage = restamp_storage(row.storage_hash, definition)
            release.facts[identity] = Facts(
                row.hashes._replace(storage=storage), decision_hashes(definition)
            )
    return release


def going_back(steps: Sequence[Step], serial: int, grown: Grown) -> GoingBack:
    """How now continues ``serial``; ``steps`` are ascending, ``serial`` among them, now the last.

    Serials that a rollback in between went back to must be among the steps too.
    """
    return _Walk(steps, serial, grown).result()


class _Walk:
    """One look back from the last step to the one of ``serial``."""

    def __init__(self, steps: Sequence[Step], serial: int, grown: Grown) -> None:
        self._steps = steps
        self._place = {step.state.serial: number for number, step in enumerate(steps)}
        self._start = self._place[serial]
        self._serial = serial
        self.then = steps[self._start].state
        self._now = steps[-1].state
        self.shards = self._now.shards
        self.grown = grown
        self._known: dict[str, tuple[ItemRecord | None, ...]] = {}

    def result(self) -> GoingBack:
        predecessors = self._predecessors()
        column_ids: dict[Identity, ColumnIds] = {}
        columns: dict[Identity, Mapping[str, str]] = {}
        origins: dict[Identity, Origin] = {}
        applied: dict[Identity, tuple[str, ...]] = {}
        for row in self.then.mappings.values():
            if row.owner != "release":
                continue
            applied[row.identity] = restamp_decisions(
                row.applied, self.then.items[row.item_id].definition
            )
            if row.kind != "table":
                continue
            now = self._mapping_now.get(predecessors.get(row.identity))
            since = self.since(row.item_id)
            if since is not None:
                names, names_now = (table.name_of for table in since)
                column_ids[row.identity] = since[0].ids
                columns[row.identity] = {
                    name.lower(): names_now[number].lower() for number, name in names.items()
                    if number in names_now
                }
            origin = self._origin(row, now)
            if origin is not None:
                origins[row.identity] = origin
        return GoingBack(
            self._serial, predecessors, columns, origins, applied,
            self._find_adopted(frozenset(predecessors.values())), column_ids,
        )

    def _find_adopted(self, kept: frozenset[Identity]) -> frozenset[Identity]:
        """Tables that lie outside of the warehouse and were not there then."""
        shards = {
            row.identity: self._now.items[row.item_id].shard
            for row in self._mapping_now.values() if row.identity not in kept
        }
        return frozenset(
            identity for identity, shard in shards.items()
            if shard is not None and is_absolute(shard)
        )

    @cached_property
    def _mapping_now(self) -> Mapping[Identity | None, MappingRecord]:
        return {
            row.identity: row for row in self._now.mappings.values() if row.owner == "release"
        }

    def _predecessors(self) -> dict[Identity, Identity]:
        """By item id, which renames do not change; else by name and kind."""
        by_item = {row.item_id: row.identity for row in self._mapping_now.values()}
        found: dict[Identity, Identity] = {}
        rest: list[MappingRecord] = []
        for row in self.then.mappings.values():
            if row.owner != "release":
                continue
            if row.item_id in by_item:
                found[row.identity] = by_item[row.item_id]
            else:
                rest.append(row)
        taken = set(found.values())
        for row in rest:
            now = self._mapping_now.get(row.identity)
            if now is not None and now.kind == row.kind and row.identity not in taken:
                found[row.identity] = row.identity
        return found

    # -- columns -------------------------------------------------------------------------------

    def _tables(self, item_id: str) -> tuple[ItemRecord | None, ...]:
        """An item at each step, its columns with their ids; None where it was no table."""
        if item_id not in self._known:
            self._known[item_id] = over(
                [self._moment(item_id, number) for number in range(len(self._steps))]
            )
        return self._known[item_id]

    def _moment(self, item_id: str, number: int) -> Moment:
        step = self._steps[number]
        item = step.state.items.get(item_id)
        if item is None or item.definition.kind != "table":
            return Moment(None)
        shard = self.shards.get(item.shard or "")
        return Moment(
            item,
            () if item.column_ids is not None else self._applied[number].get(item_id, ()),
            None if step.rollback_to is None else self._place.get(step.rollback_to),
            together=shard is not None and bool(shard.rows_of),
        )

    @cached_property
    def _applied(self) -> Sequence[Mapping[str, tuple[str, ...]]]:
        """The decisions that had run by each step, by item id."""
        return [
            {row.item_id: row.applied for row in step.state.mappings.values()}
            for step in self._steps
        ]

    def since(self, item_id: str, last: int = -1) -> tuple[ItemRecord, ItemRecord] | None:
        """A table then and at a later step (now), None when it has not been one all the while."""
        begun, *more = self._tables(item_id)[self._start : last % len(self._steps) + 1]
        ended = more[-1] if more else begun
        return None if begun is None or ended is None or None in more else (begun, ended)

    def tables_since(self, item_id: str) -> Iterator[ItemRecord]:
        """Return a table at each step from then on at which it was one."""
        return filter(None, self._tables(item_id)[self._start :])

    # -- shards --------------------------------------------------------------------------------

    def _origin(self, then: MappingRecord, now: MappingRecord | None) -> Origin | None:
        path = self.then.items[then.item_id].shard
        if path is None:
            return None
        base = where_now(self._in_shape(path), self.shards)
        present: str | None = None
        if now is not None and now.kind == "table":
            present = self._now.items[now.item_id].shard
        return Origin() if present == base else _Rows(self, then, base, present).origin()

    def _in_shape(self, path: str) -> str:
        """The copy that got the columns of then, where the shard of then was refused them."""
        record = self.then.shards.get(path)
        if record is None or not record.evolve:
            return path
        copies = (
            other for other, made in self.shards.items()
            if made.source == path and (made.state == "live" or made.retired_serial is not None)
        )
        return next(copies, path)

    def namesakes(self, then: MappingRecord) -> tuple[str, ...]:
        """Return the last shards of other tables that had the name since, and were dropped too."""
        found: dict[str, str] = {}
        for step in self._steps[self._start + 1 : -1]:
            row = step.state.mappings.get(identity_text(then.identity))
            if row is None or row.kind != "table" or row.item_id == then.item_id:
                continue
            shard = step.state.items[row.item_id].shard
            if shard is not None and row.item_id not in self._now.items:
                found[row.item_id] = shard
        return tuple(found.values())

    def was_there(self, path: str) -> bool:
        """Return whether a shard was in force then, or had been; one in the making was not."""
        record = self.then.shards.get(path)
        return record is not None and (
            record.state == "live" or record.retired_serial is not None
        )

    @cached_property
    def last_holders(self) -> Mapping[str, str]:
        return last_holders(self.shards)

    def source(
        self, then: MappingRecord, path: str, after: int | None, upto: int | None, rows: int = -1
    ) -> Source:
        """A shard with the columns of then that it has, by what its table was at its last."""
        begun, ended = self._in_force(path)
        item_id = _holder(self._steps[ended].state, path) or then.item_id
        first, item = (self._tables(item_id)[number] for number in (begun, ended))
        assert item is not None
        there = self._columns_in(path, item)
        since = self.since(item_id, ended) if item_id == then.item_id else None
        wanted = {name.lower(): number for number, name in (since or (item,))[0].name_of.items()}
        dropped = set[int]()
        if since is not None and first is not None:
            dropped = {*first.ids.ids} - there.keys()
        return Source(
            path, after, upto,
            {name: there[number] for name, number in wanted.items() if number in there},
            tuple(column for number, column in there.items() if number not in wanted.values()),
            rows,
            frozenset(name for name, number in wanted.items() if number in dropped),
        )

    def _in_force(self, path: str) -> tuple[int, int]:
        """The first and the last step at which a shard was in force, from then on."""
        held = [
            number for number in range(self._start, len(self._steps))
            if _holder(self._steps[number].state, path) is not None
        ] or [self._start]
        return held[0], held[-1]

    def _columns_in(self, path: str, item: ItemRecord) -> dict[int, Column]:
        """The columns of a shard by their ids, under the names that they have there."""
        names = self._standing(path, item)
        return {
            number: replace(column, name=names.get(number, column.name))
            for number, column in zip(item.ids.ids, item.definition.columns, strict=True)
        }

    def _standing(self, path: str, item: ItemRecord) -> Mapping[int, str]:
        """The names that columns have in a shard by their ids, where they are not those of its
        table: where they were to be renamed in place, and the shard refused it.

        In the records of format 2 and before only the copy that was made instead tells that: it
        began with the definition of its source.
        """
        record = self.shards.get(path)
        if record is not None and record.columns:
            return {number: name for name, number in record.columns.items()}
        for successor, made in self.shards.items():
            if made.source != path or not made.renamed:
                continue
            first = next(
                (step.state.items[made.item_id] for step in self._steps[self._start :]
                 if _holder(step.state, successor) is not None),
                None,
            )
            if first is not None and first.definition == item.definition:
                return {
                    number: made.renamed[name] for number, name in item.name_of.items()
                    if name in made.renamed
                }
        return {}


class _Rows:
    """The rows of one table that has another shard now than then.

    ``base`` is the shard of then, ``present`` the one that has its name now, None where none has.
    """

    def __init__(
        self, walk: _Walk, then: MappingRecord, base: str, present: str | None
    ) -> None:
        self._walk = walk
        self._then = then
        self._base = base
        self._present = present
        self._shards = walk.shards
        self._held = frozenset(rows_of(base, self._shards))
        self._has = () if present is None else rows_of(present, self._shards)
        self._since = self._find_since()
        self._apart = self._held.isdisjoint(self._has)
        self._gone = next(map(_deleted_note, filter(self._is_gone, (base, *self._since))), None)

    def origin(self) -> Origin:
        converted, returned = self._find_converted()
        base = self._count_base(self._walk.source(
            self._then, self._base, None,
            self._shards[self._base].sealed_version if self._base in self._shards else None,
        ), is_needed=bool(converted))
        tails, rewritten = self._find_tails()
        if base.rows == 0 and all(tail.rows == 0 or tail.path == self._present for tail in tails):
            converted = frozenset()  # there was no row to convert
        return Origin(
            base, tails, self._gone, rewritten, self._differs(base, tails, rewritten),
            converted, returned & converted,
        )

    def _find_since(self) -> tuple[str, ...]:
        """The shards whose own rows came since; others may have, or have had, the table's name."""
        ends = [self._has]
        if self._base not in self._has:
            last = self._walk.last_holders.get(self._base, self._base)
            dropped = (last, *self._walk.namesakes(self._then))
            ends = [*(rows_of(path, self._shards) for path in dropped), self._has]
        return tuple(dict.fromkeys(
            path for end in ends for path in end
            if path not in self._held and not self._walk.was_there(path)
        ))

    def _is_gone(self, path: str) -> bool:
        return path not in self._shards or self._shards[path].state == "gone"

    def _find_converted(self) -> tuple[frozenset[str], frozenset[str]]:
        """The columns of then that have other values now, and those that were away meanwhile."""
        since = None if self._present is None else self._walk.since(self._then.item_id)
        if since is None or self._is_derived:
            return frozenset(), frozenset()
        before, values = (table.ids.values_of for table in since)
        names = {number: name.lower() for number, name in since[0].name_of.items()}
        away = {
            number for table in self._walk.tables_since(self._then.item_id)
            for number in names.keys() - table.ids.ids
        }
        return (
            frozenset(
                name for number, name in names.items()
                if values.get(number, before[number]) != before[number]
            ),
            frozenset(names[number] for number in away),
        )

    @property
    def _is_derived(self) -> bool:
        return self._walk.then.items[self._then.item_id].definition.is_derived

    def _count_base(self, base: Source, *, is_needed: bool) -> Source:
        """The shard of then with its number of rows, where anything hangs on that."""
        is_needed = is_needed or self._apart or bool(base.dropped or base.others)
        if not is_needed or self._gone or is_absolute(self._base):
            # version 0 of a shard of ours has no row; of one that was adopted it is not known
            return base
        rows = self._walk.grown(self._base, 0, base.upto)
        return base if rows is None else replace(base, rows=rows)

    def _find_tails(self) -> tuple[tuple[Source, ...], bool]:
        """What was written since, oldest first, and whether rows were changed in it.

        Where the present shard is taken whole, what is in it comes with it, whatever became of it.
        """
        is_whole = self._apart and bool(self._has) and {*self._has} <= {*self._since}
        found = [
            self._tail(path, is_whole=is_whole and path == self._present)
            for path in self._since
            if not is_whole or path not in self._has or path == self._present
        ]
        return tuple(tail for tail, _ in found), any(is_changed for _, is_changed in found)

    def _tail(self, path: str, *, is_whole: bool) -> tuple[Source, bool]:
        record = self._shards[path]
        after = None if is_whole and not _is_filled(record) else record.version or 0
        rows = -1 if self._gone else self._walk.grown(path, after or 0, None)
        tail = self._walk.source(self._then, path, after, None, -1 if rows is None else rows)
        return tail, rows is None and after is not None

    def _differs(self, base: Source, tails: Sequence[Source], rewritten: bool) -> bool:
        """Whether the present shard lacks rows, or has some that are neither of then nor since."""
        if self._present is None or self._is_derived:
            return False
        is_lacking = base.rows != 0 if self._apart else not self._held.issubset(self._has)
        return (
            is_lacking
            or any(tail.rows != 0 for tail in tails if tail.path not in self._has)
            or (not rewritten and any(
                self._has_own(path) for path in self._has
                if path not in self._held and path not in self._since
            ))
        )

    def _has_own(self, path: str) -> bool:
        """Whether rows came to a shard after it was made, as far as is known."""
        if self._is_gone(path):
            return True
        return self._walk.grown(path, self._shards[path].version or 0, None) != 0


def _holder(state: State, path: str) -> str | None:
    """The table that has a shard in force."""
    record = state.shards.get(path)
    item = None if record is None else state.items.get(record.item_id)
    return None if record is None or item is None or item.shard != path else record.item_id


def _is_filled(record: ShardRecord) -> bool:
    """Whether a table began with rows of others, which are those that it began with then too."""
    return record.source is None and bool(record.version)


def _deleted_note(path: str) -> str:
    return f"the files of the shard {path} were deleted when its retention was over"
