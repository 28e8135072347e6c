"""What an earlier serial had, and how the objects of now continue it: pure, from committed states.

Item ids lead from then to now, and within a table the ids of its columns. The states between say
which shards it had on the way, and what was in them.
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
    identity_text,
)
from catalog_migrate.catalog.state import State
from catalog_migrate.model.hashes import SCHEME, decision_hashes
from catalog_migrate.model.names import Identity
from catalog_migrate.model.paths import is_absolute
from catalog_migrate.planner.column_ids import Moment, over
from catalog_migrate.planner.rollback import GoingBack, Origin, Source
from catalog_migrate.planner.shard_provenance import last_holders, rows_of, where_now
from catalog_migrate.release.facts import Facts
from catalog_migrate.release.release import Release

Grown = Callable[[str, int, int | None], int | None]
"""(shard path, after, upto) -> rows that came, -1 unknown, None when rows were changed."""

class Step(msgspec.Struct, frozen=True):
    """The state of one serial; ``rollback_to`` when the commit that led to it was a rollback."""

    state: State
    rollback_to: int | None = None


def release_of(then: State) -> Release | None:
    """The release that was in force, as its objects stood; None when there was none."""
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
            release.facts[identity] = Facts(
                row.fingerprint, row.definition_hash, row.text_hash, row.storage_hash,
                row.comment_hash, decision_hashes(then.items[row.item_id].definition),
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
        self._then = steps[self._start].state
        self._now = steps[-1].state
        self._grown = grown
        self._known: dict[str, tuple[ColumnIds | None, ...]] = {}

    def result(self) -> GoingBack:
        predecessors = self._predecessors()
        column_ids: dict[Identity, ColumnIds] = {}
        columns: dict[Identity, Mapping[str, str]] = {}
        origins: dict[Identity, Origin] = {}
        applied: dict[Identity, tuple[str, ...]] = {}
        for row in self._then.mappings.values():
            if row.owner != "release":
                continue
            applied[row.identity] = row.applied
            if row.kind != "table":
                continue
            now = self._mapping_now.get(predecessors.get(row.identity))
            names = self._names(row.item_id, len(self._steps) - 1)
            ids = self._ids(row.item_id)[self._start]
            if names is not None and ids is not None:
                columns[row.identity] = names
                column_ids[row.identity] = ids
            origin = self._origin(row, now)
            if origin is not None:
                origins[row.identity] = origin
        return GoingBack(
            self._serial, predecessors, columns, origins, applied,
            self._adopted(frozenset(predecessors.values())), column_ids,
        )

    def _adopted(self, kept: frozenset[Identity]) -> frozenset[Identity]:
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
        for row in self._then.mappings.values():
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

    def _ids(self, item_id: str) -> tuple[ColumnIds | None, ...]:
        """The ids of a table's columns at each step; None where it was none."""
        if item_id not in self._known:
            self._known[item_id] = over([self._moment(item_id, step) for step in self._steps])
        return self._known[item_id]

    def _moment(self, item_id: str, step: Step) -> Moment:
        item = step.state.items.get(item_id)
        if item is None or item.definition.kind != "table":
            return Moment(None)
        shard = self._now.shards.get(item.shard or "")
        return Moment(
            item,
            next(row.applied for row in step.state.mappings.values() if row.item_id == item_id),
            None if step.rollback_to is None else self._place.get(step.rollback_to),
            together=shard is not None and bool(shard.rows_of),
        )

    def _names(self, item_id: str, last: int) -> Mapping[str, str] | None:
        """Folded names of a table's columns then -> those that they have at a later step.

        None when it has not been a table all the while.
        """
        begun, *between = self._ids(item_id)[self._start : last + 1]
        ended = between[-1] if between else begun
        if begun is None or ended is None or None in between:
            return None
        then, now = (
            [column.name.lower() for column in self._steps[number].state.items[item_id]
             .definition.columns]
            for number in (self._start, last)
        )
        name_of = dict(zip(ended.ids, now, strict=True))
        return {
            name: name_of[number] for name, number in zip(then, begun.ids, strict=True)
            if number in name_of
        }

    def _converted(self, item_id: str) -> frozenset[str]:
        """Columns of then that are there now, with other values in the rows of then."""
        begun, ended = self._ids(item_id)[self._start], self._ids(item_id)[-1]
        if begun is None or ended is None or None in self._ids(item_id)[self._start :]:
            return frozenset()
        values = ended.values_of
        columns = self._then.items[item_id].definition.columns
        return frozenset(
            column.name.lower()
            for column, (number, known) in zip(columns, begun.values_of.items(), strict=True)
            if values.get(number, known) != known
        )

    # -- shards --------------------------------------------------------------------------------

    def _origin(self, then: MappingRecord, now: MappingRecord | None) -> Origin | None:
        base_path = self._then.items[then.item_id].shard
        if base_path is None:
            return None
        base_path = where_now(self._in_shape(base_path), self._now.shards)
        present: str | None = None
        if now is not None and now.kind == "table":
            present = self._now.items[now.item_id].shard
        if present == base_path:
            return Origin()
        shards = self._now.shards
        held = rows_of(base_path, shards)
        has = () if present is None else rows_of(present, shards)
        ends = [has]
        if base_path not in has:  # the table of then is gone; others had, or have, its name
            last = (self._last_holders.get(base_path, base_path), *self._namesakes(then))
            ends = [*(rows_of(path, shards) for path in last), has]
        since = tuple(dict.fromkeys(
            path for end in ends for path in end
            if path not in held and not self._was_there(path)
        ))
        gone = next(
            (_gone(path) for path in (base_path, *since)
             if path not in shards or shards[path].state == "gone"),
            None,
        )
        upto = shards[base_path].sealed_version if base_path in shards else None
        apart = not set(held).intersection(has)
        base = self._source(then, base_path, None, upto)
        derived = self._then.items[then.item_id].definition.is_derived
        converted: frozenset[str] = frozenset()
        if present is not None and not derived:
            converted = self._converted(then.item_id)
        counts = base.dropped or base.others or converted or apart
        if counts and not gone and not is_absolute(base_path):
            # version 0 of a shard of ours has no row; of one that was adopted nobody knows
            rows = self._grown(base_path, 0, upto)
            base = replace(base, rows=-1 if rows is None else rows)
        tails: list[Source] = []
        rewritten = False
        whole = apart and present is not None and set(has) <= set(since)
        for path in since:
            if whole and path in has and path != present:
                continue  # it is in the present one, which is taken whole, whatever became of it
            after = None if whole and path == present else shards[path].version or 0
            rows = -1 if gone else self._grown(path, after or 0, None)
            if rows is None and after is not None:
                rewritten = True
            tails.append(self._source(then, path, after, None, -1 if rows is None else rows))
        differs = False
        if present is not None and not derived:
            lacking = base.rows != 0 if apart else not set(held) <= set(has)
            lacking = lacking or any(
                tail.rows != 0 for tail in tails if tail.path not in has
            )
            more = any(self._has_own(path) for path in has if path not in (*held, *since))
            differs = lacking or (more and not rewritten)
        if base.rows == 0 and all(tail.rows == 0 for tail in tails if tail.path != present):
            converted = frozenset()  # there was no row to convert
        return Origin(base, tuple(tails), gone, rewritten, differs, converted)

    def _in_shape(self, path: str) -> str:
        """The copy that got the columns of then, where the shard of then was refused them."""
        record = self._then.shards.get(path)
        if record is None or not record.evolve:
            return path
        copies = (
            other for other, made in self._now.shards.items()
            if made.source == path and (made.state == "live" or made.retired_serial is not None)
        )
        return next(copies, path)

    def _namesakes(self, then: MappingRecord) -> Iterator[str]:
        """The last shards of other tables that had the name since, and have gone as well."""
        found: dict[str, str] = {}
        for step in self._steps[self._start + 1 : -1]:
            row = step.state.mappings.get(identity_text(then.identity))
            if row is None or row.kind != "table" or row.item_id == then.item_id:
                continue
            shard = step.state.items[row.item_id].shard
            if shard is not None and row.item_id not in self._now.items:
                found[row.item_id] = shard
        yield from found.values()

    def _was_there(self, path: str) -> bool:
        """Whether a shard was in force then, or had been; one in the making was not."""
        record = self._then.shards.get(path)
        return record is not None and (
            record.state == "live" or record.retired_serial is not None
        )

    def _has_own(self, path: str) -> bool:
        """Whether rows came to a shard after it was made, as far as anybody knows."""
        record = self._now.shards.get(path)
        return (
            record is None or record.state == "gone"
            or self._grown(path, record.version or 0, None) != 0
        )

    @cached_property
    def _last_holders(self) -> Mapping[str, str]:
        return last_holders(self._now.shards)

    def _source(
        self, then: MappingRecord, path: str, after: int | None, upto: int | None, rows: int = -1
    ) -> Source:
        """A shard with the columns of then that it has, by what its table was at its last."""
        names: Mapping[str, str] | None = None
        definition = self._then.items[then.item_id].definition
        standing: Mapping[str, str] = {}
        dropped: frozenset[str] = frozenset()
        for number in range(len(self._steps) - 1, self._start - 1, -1):
            held = _holder(self._steps[number].state, path)
            if held is None:
                continue
            item_id, item = held
            definition = item.definition
            standing = self._standing(path, item_id, number)
            if item_id == then.item_id:
                names = self._names(item_id, number)
                dropped = self._dropped(item_id, path, names, number)
            break
        there = {
            column.name.lower(): replace(
                column, name=standing.get(column.name.lower(), column.name)
            )
            for column in definition.columns
        }
        if names is None:
            names = {name: name for name in there}
        columns = {one: there[now] for one, now in names.items() if now in there}
        used = set(names.values())
        others = tuple(column for name, column in there.items() if name not in used)
        return Source(path, after, upto, columns, others, rows, dropped)

    def _standing(self, path: str, item_id: str, number: int) -> Mapping[str, str]:
        """The names that columns have in a shard, by the folded ones that its table had at a step.

        They differ where columns were to be renamed in place and the shard refused it. In the
        records of format 2 and before only the copy that was made instead tells that: it began with
        the definition of its source.
        """
        record = self._now.shards.get(path)
        definition = self._steps[number].state.items[item_id].definition
        if record is not None and record.columns:
            ids = self._ids(item_id)[number]
            name_of = {number: name for name, number in record.columns.items()}
            return {
                column.name.lower(): name_of[each]
                for column, each in zip(definition.columns, ids.ids if ids else (), strict=True)
                if each in name_of
            }
        for successor, made in self._now.shards.items():
            if made.source != path or not made.renamed:
                continue
            begun = (_holder(step.state, successor) for step in self._steps[self._start :])
            first = next((held for held in begun if held is not None), None)
            if first is not None and first[1].definition == definition:
                return {new.lower(): old for new, old in made.renamed.items()}
        return {}

    def _dropped(
        self, item_id: str, path: str, names: Mapping[str, str] | None, last: int
    ) -> frozenset[str]:
        """Columns of then that a shard had when its table got it, and not at its last step."""
        first = next(
            number for number in range(self._start, last + 1)
            if _holder(self._steps[number].state, path) is not None
        )
        begun = self._names(item_id, first)
        return frozenset(begun or ()).difference(names or ())


def _holder(state: State, path: str) -> tuple[str, ItemRecord] | None:
    record = state.shards.get(path)
    item = None if record is None else state.items.get(record.item_id)
    if record is None or item is None or item.shard != path:
        return None
    return record.item_id, item


def _gone(path: str) -> str:
    return f"the files of the shard {path} were deleted when its retention was over"
