"""Fills new tables by a query over those in force, whose last read is behind their seals."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from catalog_migrate.catalog.records import identity_text
from catalog_migrate.catalog.state import State
from catalog_migrate.engine.port import FillRequest, FunctionSpec, ViewSpec, function_spec
from catalog_migrate.errors import PrepareFailed, RowNotConverted
from catalog_migrate.migrations.actions import view_spec
from catalog_migrate.migrations.build_tables import BuildTable
from catalog_migrate.migrations.execution_context import ExecutionContext, NewShard
from catalog_migrate.model.names import ItemName
from catalog_migrate.planner.plan import Fill


class FillTable(BuildTable):
    """Fill a new directory by a query over the tables in force."""

    def bring_rows(self, context: ExecutionContext) -> NewShard:
        """Return what the directory is with what the query finds now."""
        return fill_shard(context, self.prepared.state, self.shard)


def read_shards(state: State, fill: Fill) -> dict[ItemName, str]:
    """The shards in force that a fill reads, by the names of their tables."""
    found: dict[ItemName, str] = {}
    for each in fill.objects:
        if each.kind == "table":
            mapping = state.mappings[identity_text(each.identity)]
            path = state.items[mapping.item_id].shard
            if path is None:
                raise PrepareFailed(
                    f"{each.item_name} has no rows to read",
                    remedy="start again; nothing was changed",
                )
            found[each.item_name] = path
    return found


def fill_shard(
    work: ExecutionContext, state: State, shard: NewShard, upto: Mapping[str, int] | None = None
) -> NewShard:
    """Fill a new shard from what its tables have now, or at the versions ``upto``; repeatable.

    The shard is of this attempt alone: what an earlier try left there goes first.
    """
    fill = shard.target.fill
    assert fill is not None
    versions: dict[str, int] = {}
    tables: dict[ItemName, tuple[str, int]] = {}
    for name, path in read_shards(state, fill).items():
        location = work.absolute(path)
        version = work.engine.shard_version(location) if upto is None else upto[path]
        if version is None:
            raise PrepareFailed(
                f"the shard of {name} is missing: {path}",
                remedy="restore the directory and start again; nothing was changed",
            )
        versions[path] = version
        tables[name] = location, version
    target = work.absolute(shard.path)
    if work.engine.shard_size(target)[0] != 0:
        work.engine.truncate_shard(target)
    try:
        filled = work.engine.fill_rows(target, FillRequest(
            fill.query,
            tuple(c.name for c in shard.target.definition.columns if c.generated is None),
            tables,
            tuple(_specs(fill)),
        ))
    except RowNotConverted as failure:
        raise RowNotConverted(
            f"{shard}: FILLED FROM {failure.message}", condition=failure.condition,
            remedy="the old release is in force; correct the rows, or the FILLED FROM of"
            f" {shard} in the release, and start again",
        ) from failure
    return replace(
        shard, version=filled.version, rows=filled.rows, read=tuple(sorted(versions.items()))
    )


def _specs(fill: Fill) -> list[ViewSpec | FunctionSpec]:
    return [
        view_spec(each, {}) if each.kind == "view" else function_spec(each, {})
        for each in fill.objects if each.kind != "table"
    ]


def fill_again_if_read_too_early(
    work: ExecutionContext, state: State, shard: NewShard, sealed: Mapping[str, int]
) -> NewShard:
    """Return the shard filled from what its tables had when they were sealed.

    Nothing is done where no row came or went between the read and the seal of any of them.
    """
    last = {path: sealed[path] - 1 for path, _ in shard.read}
    if all(
        last[path] <= version
        or work.engine.count_appended(work.absolute(path), version, last[path]) == 0
        for path, version in shard.read
    ):
        return shard
    return fill_shard(work, state, shard, last)
