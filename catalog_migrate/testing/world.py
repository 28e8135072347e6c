"""The world that simulated processes share: shards with all their versions and, maybe, names.

It outlives any :class:`~catalog_migrate.testing.engine.SimulatedEngine`, as a warehouse outlives
the processes that work on it. Foreign writers append through :meth:`World.append`, which respects
the seal exactly as Delta's constraint does.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Literal

import msgspec
from msgspec.structs import replace

from catalog_migrate.engine.port import FunctionSpec, ViewSpec
from catalog_migrate.errors import EngineFailure
from catalog_migrate.model.layout import Layout, PlacedColumn
from catalog_migrate.model.names import ItemName
from catalog_migrate.model.objects import Column
from catalog_migrate.testing.bodies import Row, compile_check

SEAL = {
    "delta.constraints.catalog_migrate_sealed": "1 = 0",
    "delta.appendOnly": "true",
    "delta.minWriterVersion": "3",
}
"""What sealing sets, as the Spark engine does."""

SEAL_MARK = "delta.constraints.catalog_migrate_sealed"


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
        return SEAL_MARK in self.properties


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


Relation = TableEntry | ViewSpec


@dataclass(slots=True)
class Names:
    """One catalog of names: schemas with their relations and functions, keyed by folded names."""

    schemas: set[str] = field(default_factory=set)
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
        self._lock = threading.RLock()

    def copy_from(self, other: World) -> None:
        """Hold what another world holds now; versions and registrations never change."""
        self.shards.update(
            (path, replace(shard, versions=list(shard.versions)))
            for path, shard in other.shards.items()
        )
        self.names.schemas.update(other.names.schemas)
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

    def commit(self, path: str, version: Version, *, follows: int | None = None) -> int:
        """Append a version and return its number.

        With ``follows`` it must become exactly ``follows + 1``, else EngineFailure
        DELTA_CONCURRENT_WRITE.
        """
        with self._lock:
            versions = self.shard(path).versions
            if follows is not None and len(versions) - 1 != follows:
                raise EngineFailure(
                    f"{path} is at version {len(versions) - 1}, not {follows}",
                    condition="DELTA_CONCURRENT_WRITE",
                )
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
                f"data files of {path} are gone", condition="FAILED_READ_FILE.FILE_NOT_EXIST"
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
