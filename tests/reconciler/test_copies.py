"""What copies took goes on record, and says how long the next ones take."""

from __future__ import annotations

import threading
from dataclasses import replace
from itertools import count
from types import SimpleNamespace
from typing import Any, cast

import pytest

from catalog_migrate.catalog.memory_log import MemoryLog
from catalog_migrate.catalog.opening import read_state
from catalog_migrate.catalog.records import ShardRecord
from catalog_migrate.engine.port import CopyResult, Engine
from catalog_migrate.hook import BootstrapReport
from catalog_migrate.migrations.copy_progress import CopyProgress
from catalog_migrate.migrations.execution_context import ExecutionContext, NewShard
from catalog_migrate.model.objects import Hashes
from catalog_migrate.model.progress import OnProgress, Progress, silent
from catalog_migrate.model.sizes import TableSize
from catalog_migrate.planner.plan import Change, Target
from catalog_migrate.release.loader import load_texts
from catalog_migrate.streams.ddl.migrations import MigratedStreams
from catalog_migrate.testing.engine import BYTES_PER_ROW, SimulatedEngine
from catalog_migrate.testing.starts import migrate
from catalog_migrate.testing.world import SimulatedClock, World

ONE = "CREATE TABLE t (id INT); CREATE TABLE u (id INT);"
T = "CREATE TABLE t (id STRING USING CAST(id AS STRING)); "
TWO = T + "CREATE TABLE u (id INT);"
THREE = T + "CREATE TABLE u (id STRING USING CAST(id AS STRING), x INT);"


class Site:
    """A catalog in a simulated world whose copies take time."""

    def __init__(self, start: float, per_row: float) -> None:
        self.world, self.log, self.clock = World(), MemoryLog(), SimulatedClock()
        self._start, self._per_row, self._tokens = start, per_row, count()
        self.engine = SimulatedEngine(self.world, persistent=True, on_call=self._hear)

    def _hear(self, method: str) -> None:
        if method == "copy_rows.done":
            rows = len(self.world.newest(str(self.engine.about)).rows)
            self.clock.sleep(self._start + self._per_row * rows)

    def begin(
        self, name: str, sql: str, *, read_only: bool = False, on_progress: OnProgress = silent
    ) -> BootstrapReport:
        """One start of a release."""
        return migrate(
            self.engine, self.log, load_texts([("all.sql", sql)], name=name, default_schema="s"),
            warehouse="/w", clock=self.clock, holder="start", read_only=read_only,
            on_progress=on_progress, token=lambda: f"{next(self._tokens)}", ttl=1e6,
        )

    def shard(self, table: str) -> tuple[str, ShardRecord]:
        """Where a table's rows are, and the record of it."""
        state = read_state(self.log)
        (path,) = (
            item.shard for item in state.items.values() if item.definition.name == table
        )
        assert path is not None
        return f"/w/{path}", state.shards[path]

    def fill(self, table: str, rows: int) -> None:
        """Append rows as an application does."""
        self.world.append(self.shard(table)[0], [{"id": number} for number in range(rows)])


@pytest.fixture
def site() -> Site:
    """Two tables of 30 and 200 rows; starting a copy takes 2 s and each row 0.1 s."""
    site = Site(2.0, 0.1)
    site.begin("1", ONE)
    site.fill("t", 30)
    site.fill("u", 200)
    return site


def planned(site: Site, sql: str) -> Change:
    """The change of the one table whose rows are copied."""
    plan = site.begin("later", sql, read_only=True).plan
    assert plan is not None
    (change,) = plan.changes
    assert change.contents == "copy"
    return change


def test_nothing_is_estimated_before_the_first_copy(site: Site) -> None:
    """What the table has is known from its log all the same."""
    change = planned(site, TWO)
    assert (change.rows, change.bytes, change.files, change.seconds) == (30, 3_000, 1, None)


def test_a_copy_is_on_record_and_the_next_is_estimated_by_it(site: Site) -> None:
    """With the bytes that were read and the time that it took; a table that is not copied again
    keeps them, and an older tool reads past them."""
    assert site.shard("t")[1].copied_bytes == 0
    site.begin("2", TWO)
    record = site.shard("t")[1]
    assert (record.copied_bytes, record.copy_seconds) == (30 * BYTES_PER_ROW, 5.0)
    assert (site.shard("u")[1].copied_bytes, site.shard("u")[1].copy_seconds) == (0, 0.0)
    # one copy alone is a rate: 5 s for 3,000 bytes
    assert planned(site, THREE).seconds == 33.3

    site.begin("3", THREE)
    assert site.shard("u")[1].copy_seconds == 22.0
    assert site.shard("t")[1].copy_seconds == 5.0
    # two tell what starting takes from what the rows take
    site.fill("t", 70)
    again = THREE.replace(T, "CREATE TABLE t (id INT USING CAST(id AS INT)); ")
    assert planned(site, again).seconds == 12.0


def test_a_copy_without_time_is_not_on_record() -> None:
    """A clock that stands still says nothing of others; simulations stay alike to the byte."""
    site = Site(0.0, 0.0)
    site.begin("1", ONE)
    site.fill("t", 30)
    site.begin("2", TWO)
    assert site.shard("t")[1].copy_seconds == 0.0
    assert planned(site, THREE).seconds is None


def figures(one: Progress) -> tuple[object, ...]:
    """All that a report says of copies."""
    return one.done, one.rows, one.total_rows, one.bytes, one.total_bytes, one.seconds_left


def test_progress_says_what_is_copied_and_what_is_left(site: Site) -> None:
    """Rows and bytes of all tables, by the sizes of the plan; the rest by the rate so far."""
    heard: list[Progress] = []
    site.begin("2", THREE, on_progress=heard.append)
    assert [figures(one) for one in heard if one.phase == "copy rows"] == [
        # 5 s for 3,000 of 23,000 bytes
        (1, 30, 230, 3_000, 23_000, 33.3), (2, 230, 230, 23_000, 23_000, 0.0),
    ]
    assert {figures(one)[1:] for one in heard if one.phase != "copy rows"} == {(None,) * 5}


class Copying:
    """An engine in the middle of a copy: what it has written is looked at from outside."""

    def __init__(self) -> None:
        self.at_once = lambda: None
        self.written = 0

    def shard_version(self, _: str) -> int:
        return 1

    def shard_size(self, _: str) -> TableSize:
        return TableSize(0, 0)

    def bytes_written(self, _: str) -> int:
        return self.written

    def copy_rows(self, *_: object) -> CopyResult:
        self.at_once()
        return CopyResult(70, 1)


def begin_copy(
    engine: Copying, clock: SimulatedClock, on_progress: OnProgress
) -> tuple[CopyProgress, NewShard]:
    """The figures of one table of 70 rows and 1,000 bytes, and what is to be copied."""
    work = ExecutionContext(
        cast(Engine, engine), MemoryLog(), clock, "/w", MigratedStreams(), on_progress=on_progress
    )
    definition = load_texts([("t.sql", "CREATE TABLE s.t (id INT);")], name="1").objects[0]
    target = Target(
        definition, definition.identity, "i1", "s1", Hashes(), (), (), "migrate", None
    )
    shard = NewShard(target, "s/t/1", "s/t/0", size=TableSize(70, 1_000))
    return CopyProgress(work, [shard]), shard


def test_a_table_that_is_being_copied_counts_by_the_bytes_that_are_written() -> None:
    """Never beyond what it has; its rows count when it ends, and nothing is told behind the end."""
    heard: list[Progress] = []
    engine, clock, over = Copying(), SimulatedClock(), threading.Event()
    progress, shard = begin_copy(engine, clock, heard.append)

    def middle() -> None:
        for seconds, written in ((10, 0), (10, 250), (10, 2_000)):
            clock.sleep(seconds)
            engine.written = written
            progress.look(over)
        over.set()
        progress.look(over)

    engine.at_once = middle
    copied = progress.copy(shard)
    progress.report(Progress("copy rows", 1, 1, "s.t"))
    assert (copied.rows, copied.size) == (70, TableSize(70, 1_000, None, 30.0))
    assert [figures(one) for one in heard] == [
        (0, 0, 70, 0, 1_000, None), (0, 0, 70, 250, 1_000, 60.0), (0, 0, 70, 1_000, 1_000, 0.0),
        (1, 70, 70, 1_000, 1_000, 0.0),
    ]
    assert {one.name for one in heard} == {"s.t"}


class Watched:
    """A lock that looks at the figures whenever it is free again."""

    def __init__(self, progress: CopyProgress) -> None:
        self._progress = progress
        self.seen: list[int | None] = []

    def __enter__(self) -> None:
        return None

    def __exit__(self, *_: object) -> None:
        self.seen.append(self._progress._with_figures(Progress("copy rows", 0, 1)).bytes)


def test_a_table_that_ends_is_never_counted_twice() -> None:
    """It stops to be one that is being copied at the moment that it counts as copied."""
    engine, over = Copying(), threading.Event()
    progress, shard = begin_copy(engine, SimulatedClock(), silent)
    watched = Watched(progress)
    progress._lock = cast(Any, watched)
    engine.written = 900
    engine.at_once = lambda: progress.look(over)
    progress.copy(shard)
    assert watched.seen == [0, 900, 900, 1_000]


def test_one_table_of_unknown_size_leaves_the_totals_out(site: Site) -> None:
    """The rows so far are all that can be said."""
    heard: list[Progress] = []
    site.engine.shard_size = lambda _: TableSize(-1, 0)  # type: ignore[method-assign]
    site.engine.truncate_shard = lambda _: None  # type: ignore[method-assign]
    site.begin("2", TWO, on_progress=heard.append)
    assert [figures(one) for one in heard if one.phase == "copy rows"] == [
        (1, 30, None, None, None, None)
    ]


@pytest.mark.parametrize("is_real", [True, False])
def test_copies_are_watched_in_real_time_alone(is_real: bool) -> None:
    """By a thread that ends with them; a clock that stands still needs none."""
    progress, _ = begin_copy(Copying(), SimulatedClock(), silent)
    lease = SimpleNamespace(wants_heartbeat=is_real)
    progress._work = replace(progress._work, lease=cast(Any, lease))

    def count_watchers() -> int:
        return sum(each.name == "copies" for each in threading.enumerate())

    with progress.watch():
        assert count_watchers() == is_real
    assert count_watchers() == 0
