"""The world that simulated processes share: shards with all their versions and, maybe, names.

It outlives any :class:`~catalog_migrate.testing.engine.SimulatedEngine`, as a warehouse outlives
the processes that work on it. Foreign writers append through :meth:`World.append`, which respects
the seal exactly as Delta's constraint does. ALTER TABLE is refused where Delta refuses it, with
Delta's conditions.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Literal

import msgspec
from msgspec.structs import replace

from catalog_migrate.delta.seal import CONSTRAINTS, SEAL_CONSTRAINT
from catalog_migrate.engine.port import FunctionSpec, SchemaMode, ViewSpec
from catalog_migrate.errors import EngineFailure
from catalog_migrate.model.layout import Alter, Layout, PlacedColumn
from catalog_migrate.model.names import ItemName
from catalog_migrate.model.objects import Column
from catalog_migrate.model.types import find_added_fields, is_longer_text
from catalog_migrate.testing.bodies import Row, compile_check


class Version(msgspec.Struct, frozen=True):
    """One version of a shard: everything as of then. ``act`` says what its commit did.

    ``physical`` are the columns' names in the files (empty: the same), ``mapped`` is whether
    column mapping is on.
    """

    act: Literal["create", "append", "rewrite", "metadata", "fence"]
    columns: tuple[Column, ...]
    rows: tuple[Row, ...] = ()
    properties: Mapping[str, str] = msgspec.field(default_factory=dict)
    comment: str | None = None
    checks: Mapping[str, str] = msgspec.field(default_factory=dict)
    transactions: Mapping[str, int] = msgspec.field(default_factory=dict)
    physical: tuple[str, ...] = ()
    mapped: bool = False

    @property
    def layout(self) -> Layout:
        """The columns with their physical names: the first names that they had."""
        physical = self.physical or tuple(column.name for column in self.columns)
        return Layout(
            self.mapped,
            tuple(
                PlacedColumn(name, column.name, column.type)
                for name, column in zip(physical, self.columns, strict=True)
            ),
        )

    @property
    def is_sealed(self) -> bool:
        """Whether the commit left the seal's constraint standing."""
        return CONSTRAINTS + SEAL_CONSTRAINT in self.properties


class Shard(msgspec.Struct):
    """A Delta table directory: its log, and whether its data files were deleted."""

    versions: list[Version]
    partitioned_by: tuple[str, ...] = ()
    clustered_by: tuple[str, ...] = ()
    data_deleted: bool = False


class TableEntry(msgspec.Struct, frozen=True):
    """A table's registration: its name as written and its directory."""

    name: ItemName
    path: str


class UserView(ViewSpec, frozen=True):
    """A view of a user, with what the catalog keeps of it beside its text and columns.

    ``outputs`` are the names that its query gave when it was stored, one for each of ``columns``;
    names without a schema in the text are of ``namespace``.
    """

    schema_mode: SchemaMode = "COMPENSATION"
    outputs: tuple[str, ...] = ()
    namespace: str = "default"


Relation = TableEntry | ViewSpec


@dataclass(slots=True)
class Names:
    """One catalog of names: schemas with their relations and functions, keyed by folded names."""

    schemas: set[str] = field(default_factory=set)
    lineages: dict[str, str] = field(default_factory=dict)
    """For which catalog a schema was made."""
    relations: dict[tuple[str, str], Relation] = field(default_factory=dict)
    functions: dict[tuple[str, str], FunctionSpec] = field(default_factory=dict)


class World:
    """Shards by absolute path, the names of a metastore, and how often anything was written."""

    def __init__(self) -> None:
        self.shards: dict[str, Shard] = {}
        self.names = Names()
        self.writes = 0
        self.refusing: set[str] = set()
        """Paths of shards that refuse every change in place."""
        self.unreadable: set[tuple[str, str]] = set()
        """Folded names of views and functions whose definitions cannot be read."""
        self._lock = threading.RLock()

    def copy_from(self, other: World) -> None:
        """Hold what another world holds now; versions and registrations never change."""
        self.shards.update(
            (path, replace(shard, versions=list(shard.versions)))
            for path, shard in other.shards.items()
        )
        self.names.schemas.update(other.names.schemas)
        self.names.lineages.update(other.names.lineages)
        self.names.relations.update(other.names.relations)
        self.names.functions.update(other.names.functions)
        self.writes = other.writes

    def shard(self, path: str) -> Shard:
        """The shard at a path; EngineFailure DELTA_PATH_DOES_NOT_EXIST when there is none."""
        try:
            return self.shards[path]
        except KeyError as error:
            raise EngineFailure(
                f"{path} is not a Delta table", condition="DELTA_PATH_DOES_NOT_EXIST"
            ) from error

    def newest(self, path: str) -> Version:
        """The newest version of the shard at a path."""
        return self.shard(path).versions[-1]

    def locked(self) -> AbstractContextManager[object]:
        """Let nobody commit between a look at a shard and a commit on it."""
        return self._lock

    def commit(self, path: str, version: Version) -> int:
        """Append a version and return its number."""
        with self._lock:
            versions = self.shard(path).versions
            versions.append(version)
            self.writes += 1
            return len(versions) - 1

    def append(self, path: str, rows: Iterable[Row]) -> int:
        """Append rows as any writer would, ours or a foreign one; the new version's number.

        EngineFailure: DELTA_VIOLATE_CONSTRAINT_WITH_VALUES on a sealed shard and for a row that
        breaks a CHECK, an unknown column, NULL in a NOT NULL column. Missing columns become NULL.
        """
        with self._lock:
            newest = self.newest(path)
            if newest.is_sealed:
                raise EngineFailure(
                    f"CHECK constraint catalog_migrate_sealed (1 = 0) violated in {path}",
                    condition="DELTA_VIOLATE_CONSTRAINT_WITH_VALUES",
                )
            complete = tuple(_complete(row, newest.columns, path) for row in rows)
            for name, expression in newest.checks.items():
                if not all(map(compile_check(expression), complete)):
                    raise EngineFailure(
                        f"CHECK constraint {name} ({expression}) violated in {path}",
                        condition="DELTA_VIOLATE_CONSTRAINT_WITH_VALUES",
                    )
            grown = Version(
                "append", newest.columns, newest.rows + complete, newest.properties,
                newest.comment, newest.checks, newest.transactions, newest.physical, newest.mapped,
            )  # fmt: skip
            return self.commit(path, grown)

    def rows(self, path: str, version: int | None = None) -> tuple[Row, ...]:
        """All rows at a version (None: the newest); EngineFailure when version or data are gone."""
        shard = self.shard(path)
        if shard.data_deleted:
            raise EngineFailure(
                f"data files of {path} are missing", condition="FAILED_READ_FILE.FILE_NOT_EXIST"
            )
        if version is None:
            return shard.versions[-1].rows
        if not 0 <= version < len(shard.versions):
            raise EngineFailure(
                f"{path} has no version {version}", condition="DELTA_VERSION_NOT_FOUND"
            )
        return shard.versions[version].rows


def _complete(row: Row, columns: Sequence[Column], path: str) -> dict[str, Any]:
    """The row with every column, folded names, missing ones NULL."""
    folded = {name.lower(): value for name, value in row.items()}
    complete: dict[str, Any] = {}
    for column in columns:
        name = column.name.lower()
        value = folded.pop(name, None)
        if value is None and not column.nullable:
            raise EngineFailure(
                f"NULL in the NOT NULL column {column.name} of {path}",
                condition="DELTA_NOT_NULL_CONSTRAINT_VIOLATED",
            )
        complete[name] = value
    if folded:
        raise EngineFailure(
            f"{path} has no column {', '.join(sorted(folded))}",
            condition="DELTA_METADATA_MISMATCH",
        )
    return complete


# -- time ------------------------------------------------------------------------------------------


class SimulatedClock:
    """Implements :class:`catalog_migrate.catalog.clock.Clock`; seconds, from ``start``.

    Leases expire in no time, and always alike.

    ``stretch`` lets every sleep last so many times longer than asked for, as on a busy machine:
    a challenger then needs few looks to see a lease expire.
    """

    simulated = True
    """Time does not pass while an act is under way, so no thread has to renew a lease."""

    def __init__(self, start: float = 1_700_000_000.0, *, stretch: float = 1.0) -> None:
        self._wall = start
        self._stretch = stretch
        self._elapsed = 0.0

    def monotonic(self) -> float:
        """Seconds that were slept so far."""
        return self._elapsed

    def wall(self) -> float:
        """Wall-clock seconds: ``start`` plus what was slept."""
        return self._wall + self._elapsed

    def sleep(self, seconds: float) -> None:
        """Return at once, ``seconds`` (stretched) later."""
        self._elapsed += seconds * self._stretch


_WORD = re.compile(r"[A-Za-z_]\w*")


def alter(
    world: World, path: str, step: Alter, declared: Mapping[str, Column], marks: Mapping[str, int]
) -> None:
    """Commit one statement; ``declared`` has the columns that may be added, by folded name.

    ``marks`` are the transactions that the table has then, by application.

    EngineFailure: column mapping is off, a CHECK or the partitioning needs the column, no column
    would be left, the new name is taken, no such column.
    """
    shard = world.shard(path)
    newest = shard.versions[-1]
    if step.op == "map":
        altered = _map_columns(newest)
    elif step.op == "add":
        altered = _add_column(shard, declared[step.names[0].lower()], step.after)
    elif step.op == "move":
        altered = _move_column(newest, step.names[0], step.after)
    else:
        _require_free(shard, newest, step)
        if step.op == "drop":
            altered = _drop_columns(newest, {name.lower() for name in step.names})
        else:
            altered = _rename_column(newest, step.names[0], step.to or "")
            _rename_partition(shard, step)
    world.commit(path, replace(altered, act="metadata", transactions=marks))


def _physical(version: Version) -> tuple[str, ...]:
    return version.physical or tuple(column.name for column in version.columns)


def _map_columns(version: Version) -> Version:
    return replace(version, physical=_physical(version), mapped=True)


def _index(version: Version, name: str) -> int:
    for index, column in enumerate(version.columns):
        if column.name.lower() == name.lower():
            return index
    raise EngineFailure(f"no column {name}", condition="UNRESOLVED_COLUMN.WITH_SUGGESTION")


def _require_free(shard: Shard, version: Version, step: Alter) -> None:
    """What keeps a column from being renamed or dropped."""
    doing = "DROP" if step.op == "drop" else "RENAME"
    if not version.mapped:
        raise EngineFailure("column mapping is off", condition=f"DELTA_UNSUPPORTED_{doing}_COLUMN")
    for name in step.names:
        _index(version, name)
        for check, expression in version.checks.items():
            if name.lower() in {word.lower() for word in _WORD.findall(expression)}:
                raise EngineFailure(
                    f"the CHECK {check} ({expression}) needs {name}",
                    condition="DELTA_CONSTRAINT_DEPENDENT_COLUMN_CHANGE",
                )
        for by, what in ((shard.partitioned_by, "PARTITION"), (shard.clustered_by, "CLUSTERING")):
            if step.op == "drop" and name.lower() in {part.lower() for part in by}:
                raise EngineFailure(
                    f"the table is laid out by {name}",
                    condition=f"DELTA_UNSUPPORTED_DROP_{what}_COLUMN",
                )


def _rename_partition(shard: Shard, step: Alter) -> None:
    old, new = step.names[0].lower(), step.to or ""
    shard.partitioned_by = tuple(new if n.lower() == old else n for n in shard.partitioned_by)
    shard.clustered_by = tuple(new if n.lower() == old else n for n in shard.clustered_by)


def _drop_columns(version: Version, names: set[str]) -> Version:
    kept = [i for i, column in enumerate(version.columns) if column.name.lower() not in names]
    if not kept:
        raise EngineFailure(
            "no column would be left", condition="DELTA_DROP_COLUMN_ON_SINGLE_FIELD_SCHEMA"
        )
    return replace(
        version,
        columns=tuple(version.columns[i] for i in kept),
        physical=tuple(version.physical[i] for i in kept),
        rows=tuple(
            {name: value for name, value in row.items() if name not in names}
            for row in version.rows
        ),
    )


def _rename_column(version: Version, name: str, to: str) -> Version:
    index = _index(version, name)
    if any(column.name.lower() == to.lower() for column in version.columns):
        raise EngineFailure(f"there is a column {to} already", condition="FIELD_ALREADY_EXISTS")
    old = version.columns[index]
    column = Column(to, old.type, old.nullable, comment=old.comment)
    return replace(
        version,
        columns=(*version.columns[:index], column, *version.columns[index + 1 :]),
        rows=tuple(
            {(to.lower() if key == name.lower() else key): value for key, value in row.items()}
            for row in version.rows
        ),
    )


def fresh_name(shard: Shard, column: Column) -> str:
    """The physical name of a column that is added: with column mapping never one that was there."""
    mapped = shard.versions[-1].mapped
    return f"col-{len(shard.versions)}-{column.name}" if mapped else column.name


def _add_column(shard: Shard, column: Column, after: str | None) -> Version:
    version = shard.versions[-1]
    place = 0 if after is None else _index(version, after) + 1
    bare = Column(column.name, column.type, column.nullable, comment=column.comment)
    if not column.nullable:
        raise EngineFailure(
            f"cannot add the NOT NULL column {column.name}", condition="DELTA_ADD_COLUMN_NOT_NULL"
        )
    physical = _physical(version)
    return replace(
        version, columns=(*version.columns[:place], bare, *version.columns[place:]),
        physical=(*physical[:place], fresh_name(shard, column), *physical[place:]),
        rows=tuple({**row, column.name.lower(): None} for row in version.rows),
    )


def _move_column(version: Version, name: str, after: str | None) -> Version:
    index = _index(version, name)
    columns, physical = list(version.columns), list(_physical(version))
    column, place = columns.pop(index), physical.pop(index)
    target = 0
    if after is not None:
        target = next(i for i, c in enumerate(columns) if c.name.lower() == after.lower()) + 1
    columns.insert(target, column)
    physical.insert(target, place)
    return replace(version, columns=tuple(columns), physical=tuple(physical))


def bare(column: Column) -> Column:
    """A column as a shard keeps it: without the release's decisions."""
    return Column(column.name, column.type, column.nullable, comment=column.comment)


def evolve_columns(
    standing: Sequence[Column], wanted: Sequence[Column], path: str
) -> tuple[Column, ...]:
    """The columns after an evolution in place; EngineFailure when it cannot be made so."""
    before = {column.name.lower(): column for column in standing}
    lost = before.keys() - {column.name.lower() for column in wanted}
    if lost:
        raise EngineFailure(
            f"{path}: cannot drop {', '.join(sorted(lost))} in place",
            condition="DELTA_UNSUPPORTED_DROP_COLUMN",
        )
    for column in wanted:
        _refuse_evolution(before.get(column.name.lower()), column, path)
    return tuple(bare(column) for column in wanted)


def _refuse_evolution(old: Column | None, column: Column, path: str) -> None:
    """EngineFailure for a column that no table gets in place."""
    if old is None:
        if not column.nullable:
            raise EngineFailure(
                f"{path}: cannot add the NOT NULL column {column.name}",
                condition="DELTA_ADD_COLUMN_NOT_NULL",
            )
        return
    fits = old.type == column.type or is_longer_text(old.type, column.type)
    if not fits and find_added_fields(old.type, column.type) is None:
        raise EngineFailure(
            f"{path}: cannot change {column.name} from {old.type} to {column.type}",
            condition="DELTA_ALTER_TABLE_CHANGE_COL_NOT_SUPPORTED",
        )
    if old.nullable and not column.nullable:
        raise EngineFailure(
            f"{path}: cannot make {column.name} NOT NULL in place",
            condition="DELTA_ALTER_TABLE_CHANGE_COL_NOT_SUPPORTED",
        )
