"""What Spark's analyser is asked before a commit."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from msgspec.structs import replace

from catalog_migrate.catalog.clock import SystemClock
from catalog_migrate.catalog.commits import Commit, commit
from catalog_migrate.catalog.lease import Unlock, acquire
from catalog_migrate.catalog.memory_log import MemoryLog
from catalog_migrate.catalog.opening import create_catalog
from catalog_migrate.engine.port import BindRequest, BindResult, Engine
from catalog_migrate.engine.workers import Workers
from catalog_migrate.errors import LeaseLost
from catalog_migrate.migrations.build_tables import PopulateTable, Prepared
from catalog_migrate.migrations.execution_context import ExecutionContext, NewShard
from catalog_migrate.migrations.look_at_rows import _find_refused_parts
from catalog_migrate.migrations.prepare import bind, bind_requests
from catalog_migrate.migrations.reshape import _shadow_of
from catalog_migrate.model.names import ItemName
from catalog_migrate.model.progress import Progress
from catalog_migrate.model.sizes import TableSize
from catalog_migrate.operations.steps import Step
from catalog_migrate.planner.baseline import Baseline
from catalog_migrate.planner.planning import plan_migration
from catalog_migrate.planner.proofs import RowsAtRisk
from catalog_migrate.release.loader import load_texts
from catalog_migrate.streams.ddl.migrations import MigratedStreams
from catalog_migrate.testing.world import SimulatedClock

TEXT = """
CREATE TABLE t (a INT);
CREATE TABLE u (b INT);
CREATE FUNCTION inner_one(x INT) RETURNS INT RETURN x + (SELECT max(b) FROM s.u);
CREATE FUNCTION a_caller(x INT) RETURNS INT RETURN s.inner_one(x);
CREATE FUNCTION unused(x INT) RETURNS INT RETURN x;
CREATE VIEW v (a INT) AS SELECT s.a_caller(a) AS a FROM s.t;
"""


def test_a_view_is_bound_with_what_its_functions_call_and_read() -> None:
    """What a function calls comes before it, its tables are parents too; others stay out."""
    release = load_texts([("all.sql", TEXT)], name="1", default_schema="s")
    asked = bind_requests(plan_migration(Baseline.empty(), release))
    (request,) = [each for _, each, _ in asked if isinstance(each, BindRequest)]
    assert [str(function.name) for function in request.functions] == ["s.inner_one", "s.a_caller"]
    assert {str(name): [column.name for column in columns]
            for name, columns in request.parents.items()} == {"s.t": ["a"], "s.u": ["b"]}


def work(engine: object = None, **settings: Any) -> ExecutionContext:
    return ExecutionContext(
        cast(Engine, engine), MemoryLog(), SystemClock(), "/w", MigratedStreams(),
        workers=Workers(1), **settings,
    )


def test_a_view_without_sql_is_not_bound() -> None:
    """There is nothing to bind; the release may leave it to another."""
    release = load_texts([("all.sql", TEXT)], name="1", default_schema="s")
    migration = plan_migration(Baseline.empty(), release)
    targets = tuple(
        replace(each, definition=replace(each.definition, sql=None)) for each in migration.targets
    )
    asked = bind_requests(replace(migration, targets=targets))
    assert {str(target.definition.key) for target, _, _ in asked} == {
        "function:s.inner_one", "function:s.unused", "function:s.a_caller",
    }


def test_progress_of_binding_has_an_end() -> None:
    """It is told before the engine is asked, and when all are bound."""
    heard: list[Progress] = []
    bound = BindResult(ItemName("s", "t"), None)
    engine = SimpleNamespace(bind=lambda requests: [bound for _ in requests])
    assert len(bind(work(engine, on_progress=heard.append), [cast(Any, None)] * 2)) == 2
    assert heard == [Progress("bind", 0, 2), Progress("bind", 2, 2)]


@pytest.mark.parametrize(("version", "refused"), [(None, None), (0, [])])
def test_rows_of_a_shard_that_cannot_be_seen(version: int | None, refused: object) -> None:
    """Nothing is known of them; of one without rows, none is refused."""
    release = load_texts([("all.sql", "CREATE TABLE t (a INT);")], name="1", default_schema="s")
    (target,) = plan_migration(Baseline.empty(), release).targets
    engine = SimpleNamespace(
        shard_version=lambda _: version, shard_size=lambda _: TableSize(0, 0),
    )
    assert _find_refused_parts(work(engine), target, RowsAtRisk(("a",), ()), "/w/s/t/1") == refused


def test_a_shadow_lies_beside_the_table() -> None:
    """By schema, name and a word of its own."""
    release = load_texts([("all.sql", "CREATE TABLE t (a INT);")], name="1", default_schema="s")
    (target,) = plan_migration(Baseline.empty(), release).targets
    assert _shadow_of(work(token=lambda: "7f"), target) == "s/t/7f"


def test_a_table_is_not_taken_as_filled_once_the_lease_is_lost() -> None:
    """The callback took longer than that: the shard is another process's by then."""
    release = load_texts([("all.sql", "CREATE TABLE t (a INT);")], name="1", default_schema="s")
    (target,) = plan_migration(Baseline.empty(), release).targets
    log, clock, asked = MemoryLog(), SimulatedClock(), list[str]()

    def populate(*_: object) -> None:
        clock.sleep(1_000)
        commit(log, Commit("unlock", (Unlock("a"),)))

    create_catalog(log, warehouse="/w")
    context = ExecutionContext(
        cast(Engine, SimpleNamespace(shard_version=asked.append)), log, clock, "/w",
        MigratedStreams(), lease=acquire(log, holder="a", clock=clock),
    )
    build = PopulateTable(
        Step("build", "table", "s.t", target.item_id), NewShard(target, "s/t/1"),
        cast(Prepared, None), lambda _: None, populate=populate,
    )
    with pytest.raises(LeaseLost):
        build.bring_rows(context)
    assert not asked
