"""What an earlier serial had, and how the objects of now continue it: pure, from committed states.

The states between then and now are walked once; item ids lead from one to the next, and the columns
of a table are followed through the renames that were decided on the way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property

import msgspec
from msgspec.structs import replace

from catalog_migrate.catalog.records import ItemRecord, MappingRecord, identity_text
from catalog_migrate.catalog.state import State
from catalog_migrate.model.hashes import SCHEME, decision_hashes
from catalog_migrate.model.names import Identity
from catalog_migrate.model.objects import Column, ObjectDefinition
from catalog_migrate.model.paths import is_absolute
from catalog_migrate.planner.contents import changes_values
from catalog_migrate.planner.diff import compare_columns
from catalog_migrate.planner.rollback import GoingBack, Origin, Source
from catalog_migrate.planner.shard_provenance import last_holders, rows_of, where_now
from catalog_migrate.release.facts import Facts
from catalog_migrate.release.release import Release

Grown = Callable[[str, int, int | None], int | None]
"""(shard path, after, upto) -> rows that came, -1 unknown, None when rows were changed."""

Names = Mapping[str, str]
"""Folded names of columns at one serial -> those that the same columns have at another."""


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


class _Followed(msgspec.Struct, frozen=True):
    """The columns of a table, from one step to a later one.

    ``reborn`` are those that a rollback took and a release brought in again: the same columns, and
    nothing of what was in them. ``converted`` are those whose values a decision replaced by others.
    """

    names: Names
    reborn: frozenset[str] = frozenset()
    converted: frozenset[str] = frozenset()


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
        self._known: dict[tuple[str, int, int], _Followed | None] = {}

    def result(self) -> GoingBack:
        predecessors = self._predecessors()
        columns: dict[Identity, Names] = {}
        origins: dict[Identity, Origin] = {}
        applied: dict[Identity, tuple[str, ...]] = {}
        for row in self._then.mappings.values():
            if row.owner != "release":
                continue
            applied[row.identity] = row.applied
            if row.kind != "table":
                continue
            now = self._mapping_now.get(predecessors.get(row.identity))
            if now is not None and now.kind == "table" and now.item_id == row.item_id:
                names = self.names(row.item_id, self._start, len(self._steps) - 1)
                if names is not None:
                    columns[row.identity] = names
            origin = self._origin(row, now)
            if origin is not None:
                origins[row.identity] = origin
        return GoingBack(
            self._serial, predecessors, columns, origins, applied,
            self._adopted(frozenset(predecessors.values())),
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

    def names(self, item_id: str, first: int, last: int) -> Names | None:
        """The columns of an item at one step -> at a later one; None when it was not a table."""
        followed = self._follow(item_id, first, last)
        return None if followed is None else followed.names

    def _follow(self, item_id: str, first: int, last: int) -> _Followed | None:
        key = (item_id, first, last)
        if key not in self._known:
            self._known[key] = self._traced(item_id, first, last)
        return self._known[key]

    def _traced(self, item_id: str, first: int, last: int) -> _Followed | None:
        start = _table(self._steps[first].state, item_id)
        if start is None:
            return None
        names: Names = {column.name.lower(): column.name.lower() for column in start.columns}
        reborn: frozenset[str] = frozenset()
        converted: frozenset[str] = frozenset()
        lost: dict[str, str] = {}
        for number in range(first, last):
            place = self._went_back_to(number)
            if place is not None and self._is_same(item_id, place, number + 1):
                back = self._between(item_id, first, place)  # what went meanwhile has come back
                if back is not None:
                    lost |= {one: now for one, now in names.items() if one not in back.names}
                    if self._put_together(item_id, number + 1):
                        reborn, converted = back.reborn, back.converted
                    else:  # it kept the values that there were, or cast them
                        reborn = reborn | back.reborn
                        converted |= back.names.keys() - names.keys()
                        converted |= self._recast(item_id, number, names, back.names)
                    names = back.names
                    continue
            followed = self._step(item_id, number)
            if followed is None:
                return None
            step = followed.names
            forward = {old: new for new, old in step.items()}
            went = {one: now for one, now in names.items() if now not in forward}
            names = {one: forward[now] for one, now in names.items() if now in forward}
            converted |= {one for one, now in names.items() if now in followed.converted}
            if self._steps[number + 1].rollback_to is not None:
                lost |= went  # no release gave it up: one that brings it in again means the same
                continue
            after = _table(self._steps[number + 1].state, item_id)
            for column in after.columns if after is not None else ():
                name = column.name.lower()
                again = [one for one, was in lost.items() if was == name and name not in step]
                names = {**names, **dict.fromkeys(again, name)}
                reborn = reborn.union(again)
        return _Followed(names, reborn.intersection(names), converted.intersection(names))

    def _between(self, item_id: str, first: int, place: int) -> _Followed | None:
        """The columns at one step -> at another, be that later or earlier."""
        if first <= place:
            return self._follow(item_id, first, place)
        forth = self._follow(item_id, place, first)
        if forth is None:
            return None
        names = {now: then for then, now in forth.names.items()}
        return _Followed(
            names,
            frozenset(forth.names[then] for then in forth.reborn),
            frozenset(forth.names[then] for then in forth.converted),
        )

    def _went_back_to(self, number: int) -> int | None:
        """The place, among the steps, that a rollback after a step led back to."""
        serial = self._steps[number + 1].rollback_to
        place = None if serial is None else self._place.get(serial)
        return place if place is not None and place <= number else None

    def _is_same(self, item_id: str, place: int, number: int) -> bool:
        """Whether an item is a table with the same columns at two steps."""
        then = _table(self._steps[place].state, item_id)
        now = _table(self._steps[number].state, item_id)
        return then is not None and now is not None and then.columns == now.columns

    def _put_together(self, item_id: str, number: int) -> bool:
        """Whether the rows that a rollback led to are those of the shards of then."""
        shard = self._steps[number].state.items[item_id].shard
        record = None if shard is None else self._now.shards.get(shard)
        return record is not None and bool(record.rows_of)

    def _recast(
        self, item_id: str, number: int, before: Names, after: Names
    ) -> frozenset[str]:
        """Columns whose values a rollback after a step cast to the type that they had then."""
        old, new = (
            {} if table is None else {column.name.lower(): column for column in table.columns}
            for table in (_table(step.state, item_id) for step in self._steps[number : number + 2])
        )
        return frozenset(
            one for one in before.keys() & after.keys()
            if before[one] in old and after[one] in new
            and changes_values(
                replace(new[after[one]], using=None, default=None), old[before[one]], {}, ()
            )
        )

    def _step(self, item_id: str, number: int) -> _Followed | None:
        """The columns after one step -> before it."""
        before, after = self._steps[number], self._steps[number + 1]
        old, new = _table(before.state, item_id), _table(after.state, item_id)
        if old is None or new is None:
            return None
        if after.rollback_to is not None and after.rollback_to in self._place:
            place = self._place[after.rollback_to]
            if place <= number:
                known = self._follow(item_id, place, number)
                if known is not None:
                    return known
        if old is new or old.columns == new.columns:
            return _Followed({column.name.lower(): column.name.lower() for column in new.columns})
        row = next(one for one in before.state.mappings.values() if one.item_id == item_id)
        decisions = decision_hashes(new)
        delta = compare_columns(old.columns, new.columns, decisions, row.applied)
        pairs = [(column, was) for column, was in delta.pairs if was is not None]
        return _Followed(
            {column.name.lower(): was.name.lower() for column, was in pairs},
            converted=frozenset(
                column.name.lower() for column, was in pairs
                if changes_values(column, was, decisions, row.applied)
            ),
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
        followed = None
        if present is not None and not derived:
            followed = self._follow(then.item_id, self._start, len(self._steps) - 1)
        followed = followed or _Followed({})
        counts = base.dropped or base.others or followed.converted or apart
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
        reborn, converted = followed.reborn, followed.converted
        if base.rows == 0 and all(tail.rows == 0 for tail in tails if tail.path != present):
            converted = frozenset()  # there was no row to convert
        return Origin(
            base, tuple(tails), gone, rewritten,
            differs or (bool(reborn) and not rewritten), reborn, converted,
        )

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
        names: Names | None = None
        definition: ObjectDefinition | None = None
        dropped: frozenset[str] = frozenset()
        for number in range(len(self._steps) - 1, self._start - 1, -1):
            item = _holder(self._steps[number].state, path)
            if item is None:
                continue
            definition = item[1].definition
            if item[0] == then.item_id:
                names = self.names(then.item_id, self._start, number)
                dropped = self._dropped(then.item_id, path, names, number)
            break
        if definition is None:
            definition = self._then.items[then.item_id].definition
        held = {column.name.lower(): column for column in definition.columns}
        if names is None:
            names = {name: name for name in held}
        used = {now for now in names.values() if now in held}
        standing = self._standing(path, definition)
        columns: dict[str, Column] = {
            one: replace(held[now], name=standing.get(now, held[now].name))
            for one, now in names.items() if now in held
        }
        others = tuple(column for name, column in held.items() if name not in used)
        return Source(path, after, upto, columns, others, rows, dropped)

    def _standing(self, path: str, definition: ObjectDefinition) -> Names:
        """Names by which a shard still has columns that were to be renamed in place and were not.

        The copy that was made instead tells them: it began with the definition of its source.
        """
        for successor, record in self._now.shards.items():
            if record.source != path or not record.renamed:
                continue
            begun = (_holder(step.state, successor) for step in self._steps[self._start :])
            first = next((item for item in begun if item is not None), None)
            if first is not None and first[1].definition == definition:
                return {new.lower(): old for new, old in record.renamed.items()}
        return {}

    def _dropped(
        self, item_id: str, path: str, names: Names | None, last: int
    ) -> frozenset[str]:
        """Columns of then that a shard had when its table got it, and not at its last step."""
        first = next(
            number for number in range(self._start, last + 1)
            if _holder(self._steps[number].state, path) is not None
        )
        begun = self.names(item_id, self._start, first)
        return frozenset(begun or ()).difference(names or ())


def _table(state: State, item_id: str) -> ObjectDefinition | None:
    item = state.items.get(item_id)
    return None if item is None or item.definition.kind != "table" else item.definition


def _holder(state: State, path: str) -> tuple[str, ItemRecord] | None:
    record = state.shards.get(path)
    item = None if record is None else state.items.get(record.item_id)
    if record is None or item is None or item.shard != path:
        return None
    return record.item_id, item


def _gone(path: str) -> str:
    return f"the files of the shard {path} were deleted when its retention was over"
