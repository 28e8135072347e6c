"""ALTER TABLE on the simulated world: refuses what Delta refuses, with its conditions."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from catalog_migrate.errors import EngineFailure
from catalog_migrate.model.layout import Alter
from catalog_migrate.model.objects import Column
from catalog_migrate.model.types import is_longer_text
from catalog_migrate.testing.world import Shard, Version, World

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
        altered = _mapped(newest)
    elif step.op == "add":
        altered = _added(shard, declared[step.names[0].lower()], step.after)
    elif step.op == "move":
        altered = _moved(newest, step.names[0], step.after)
    else:
        _require_free(shard, newest, step)
        if step.op == "drop":
            altered = _dropped(newest, {name.lower() for name in step.names})
        else:
            altered = _renamed(newest, step.names[0], step.to or "")
            _rename_partition(shard, step)
    world.commit(path, replace(altered, act="metadata", transactions=marks))


def _physical(version: Version) -> tuple[str, ...]:
    return version.physical or tuple(column.name for column in version.columns)


def _mapped(version: Version) -> Version:
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


def _dropped(version: Version, names: set[str]) -> Version:
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


def _renamed(version: Version, name: str, to: str) -> Version:
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


def _added(shard: Shard, column: Column, after: str | None) -> Version:
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


def _moved(version: Version, name: str, after: str | None) -> Version:
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


def evolved_columns(
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
        old = before.get(column.name.lower())
        if old is None and not column.nullable:
            raise EngineFailure(
                f"{path}: cannot add the NOT NULL column {column.name}",
                condition="DELTA_ADD_COLUMN_NOT_NULL",
            )
        if (
            old is not None
            and old.type != column.type
            and not is_longer_text(old.type, column.type)
        ):
            raise EngineFailure(
                f"{path}: cannot change {column.name} from {old.type} to {column.type}",
                condition="DELTA_ALTER_TABLE_CHANGE_COL_NOT_SUPPORTED",
            )
        if old is not None and old.nullable and not column.nullable:
            raise EngineFailure(
                f"{path}: cannot make {column.name} NOT NULL in place",
                condition="DELTA_ALTER_TABLE_CHANGE_COL_NOT_SUPPORTED",
            )
    return tuple(bare(column) for column in wanted)
