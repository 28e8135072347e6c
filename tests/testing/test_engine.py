"""Tests of the simulated engine: it refuses what Spark refuses and keeps every version."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from catalog_migrate.engine.port import BindRequest, FunctionSpec, Registration, ShardSpec, ViewSpec
from catalog_migrate.errors import EngineFailure
from catalog_migrate.model.names import ItemName
from catalog_migrate.model.objects import Argument, Column
from catalog_migrate.testing.engine import SimulatedEngine
from catalog_migrate.testing.world import World

T, V = ItemName("s", "t"), ItemName("s", "v")
COLUMNS = (Column("k", "BIGINT", False), Column("a", "INT"))
PATH = "/w/s/t/1"
APP = "catalog_migrate/test"


@pytest.fixture
def engine() -> SimulatedEngine:
    engine = SimulatedEngine()
    engine.ensure_schema("s")
    engine.create_shard(ShardSpec(PATH, COLUMNS))
    engine.register_table(T, PATH)
    return engine


VIEW = Registration(V, "view")
"""Whatever view stands under the name."""


def view(sql: str, *columns: Column, name: ItemName = V) -> ViewSpec:
    return ViewSpec(name, columns, sql)


def refused(act: Callable[[], object]) -> str | None:
    with pytest.raises(EngineFailure) as failure:
        act()
    return failure.value.condition


def test_a_table_shows_the_rows_of_its_shard(engine: SimulatedEngine) -> None:
    """Rows that anyone appended by path are read by name."""
    engine.world.append(PATH, [{"k": 1, "a": 2}, {"K": 2}])
    assert engine.read(T) == ({"k": 1, "a": 2}, {"k": 2, "a": None})
    assert engine.shard_size(PATH) == (2, 200, 1, None)
    assert engine.count_rows(PATH, 0) == 0


def test_registering_is_safe_to_repeat_and_exclusive(engine: SimulatedEngine) -> None:
    """The same registration again is fine; another path, an absent shard or schema is refused."""
    engine.register_table(T, PATH)
    engine.create_shard(ShardSpec("/w/s/t/2", COLUMNS))
    assert refused(lambda: engine.register_table(T, "/w/x")) == "DELTA_PATH_DOES_NOT_EXIST"
    assert refused(lambda: engine.register_table(T, "/w/s/t/2")) == "TABLE_OR_VIEW_ALREADY_EXISTS"
    elsewhere = ItemName("x", "t")
    assert refused(lambda: engine.register_table(elsewhere, PATH)) == "SCHEMA_NOT_FOUND"


def test_views_are_analysed_when_created(engine: SimulatedEngine) -> None:
    """A view needs its parents, an up-cast to its contract, a free name, and not itself."""
    good = view("SELECT a AS x FROM s.t", Column("x", "BIGINT"))
    engine.create_view(good)
    engine.create_view(good)
    lost = view("SELECT a FROM s.gone", Column("a", "INT"))
    narrow = view("SELECT k FROM s.t", Column("k", "INT"))
    strict = view("SELECT a FROM s.t", Column("a", "INT", False))
    itself = view("SELECT x FROM s.v", Column("x", "BIGINT"))
    on_table = view("SELECT a FROM s.t", Column("a", "INT"), name=T)
    assert refused(lambda: engine.create_view(lost, over=VIEW)) == "TABLE_OR_VIEW_NOT_FOUND"
    assert refused(lambda: engine.create_view(narrow, over=VIEW)) == "CANNOT_UP_CAST_DATATYPE"
    assert refused(lambda: engine.create_view(strict, over=VIEW)) == "CANNOT_UP_CAST_DATATYPE"
    assert refused(lambda: engine.create_view(itself, over=VIEW)) == "RECURSIVE_VIEW"
    assert refused(lambda: engine.create_view(on_table)) == "EXPECT_VIEW_NOT_TABLE.NO_ALTERNATIVE"


def test_a_circle_through_another_view_is_refused(engine: SimulatedEngine) -> None:
    """Replacing a view so that it reads a view that reads it is refused."""
    other = ItemName("s", "w")
    engine.create_view(view("SELECT a FROM s.t", Column("a", "INT")))
    engine.create_view(view("SELECT a FROM s.v", Column("a", "INT"), name=other))
    circle = view("SELECT a FROM s.w", Column("a", "INT"))
    assert refused(lambda: engine.create_view(circle, over=VIEW)) == "RECURSIVE_VIEW"


def test_check_views_finds_a_view_that_lost_its_parent(engine: SimulatedEngine) -> None:
    """A view whose table was dropped below it cannot be read."""
    engine.create_view(view("SELECT a FROM s.t", Column("a", "INT")))
    engine.check_views()
    engine.drop(Registration(T, "table"))
    assert refused(engine.check_views) == "TABLE_OR_VIEW_NOT_FOUND"


def test_drop_needs_the_right_kind_and_leaves_files(engine: SimulatedEngine) -> None:
    """The wrong kind is refused, absent is fine, and a dropped table's shard stays."""
    assert refused(lambda: engine.drop(Registration(T, "view"))) == "WRONG_COMMAND_FOR_OBJECT_TYPE"
    engine.drop(Registration(T, "table"))
    engine.drop(Registration(T, "table"))
    engine.drop(Registration(T, "function"))
    assert engine.shard_version(PATH) == 0
    assert engine.names("s") == frozenset()


def test_observe_tells_what_recognises_each_name(engine: SimulatedEngine) -> None:
    """Tables by location, views by properties and text, functions by properties."""
    stamped = {"catalog_migrate.id": "s2"}
    sql = "SELECT a FROM s.t"
    engine.create_view(ViewSpec(V, (Column("a", "INT"),), sql, properties=stamped))
    function = ItemName("s", "f")
    engine.create_function(
        FunctionSpec(function, (Argument("x", "INT"),), "INT", "x", properties=stamped)
    )
    assert engine.observe("S") == [
        Registration(T, "table", location=PATH),
        Registration(V, "view", properties=stamped, text=sql),
        Registration(function, "function", properties=stamped),
    ]
    assert engine.names("s") == frozenset({T, V})


def test_a_schema_goes_only_when_empty(engine: SimulatedEngine) -> None:
    """A schema that holds a name is left alone."""
    engine.drop_schema_if_empty("s")
    engine.register_table(T, PATH)
    engine.drop(Registration(T, "table"))
    engine.drop_schema_if_empty("s")
    assert refused(lambda: engine.register_table(T, PATH)) == "SCHEMA_NOT_FOUND"


def test_seal_stops_every_writer_and_unseal_restores(engine: SimulatedEngine) -> None:
    """A sealed shard refuses appends and truncation; unsealing puts earlier properties back."""
    earlier = engine.seal_properties(PATH)
    assert engine.seal(PATH, follows=0, app_id=APP, epoch=1) == 1
    assert engine.is_sealed(PATH)
    condition = refused(lambda: engine.world.append(PATH, [{"k": 1}]))
    assert condition == "DELTA_VIOLATE_CONSTRAINT_WITH_VALUES"
    assert refused(lambda: engine.truncate_shard(PATH)) == "DELTA_CANNOT_MODIFY_APPEND_ONLY"
    assert refused(lambda: engine.seal(PATH, follows=0, app_id=APP, epoch=1)) == "SEAL_CONFLICT"
    engine.unseal(PATH, earlier)
    assert not engine.is_sealed(PATH)
    assert engine.seal_properties(PATH) == earlier
    assert engine.world.append(PATH, [{"k": 1}]) == 3


def test_a_seal_goes_behind_a_writer_and_loses_to_a_fence(engine: SimulatedEngine) -> None:
    """Rows that came meanwhile go before the seal; a successor's fence keeps it off."""
    engine.world.append(PATH, [{"k": 1}])
    engine.fence(PATH, APP, 7)
    assert refused(lambda: engine.seal(PATH, follows=1, app_id=APP, epoch=6)) == "SEAL_CONFLICT"
    assert engine.world.newest(PATH).transactions == {APP: 7}
    assert engine.seal(PATH, follows=0, app_id=APP, epoch=8) == 3
    assert engine.world.newest(PATH).transactions == {APP: 8}


def test_copy_and_tail_bring_every_row_once(engine: SimulatedEngine) -> None:
    """A bulk copy at a version and the tail after it give all rows, projected."""
    target = "/w/s/t/2"
    engine.create_shard(ShardSpec(target, (Column("k", "BIGINT", False), Column("x", "STRING"))))
    projection = [("k", "`k`"), ("x", "CAST(`a` AS STRING)")]
    engine.world.append(PATH, [{"k": 1, "a": 10}])
    assert engine.copy_rows(PATH, 1, target, projection).rows == 1
    engine.world.append(PATH, [{"k": 2, "a": None}])
    sealed = engine.seal(PATH, follows=2, app_id=APP, epoch=1)
    tail = engine.copy_tail(PATH, 1, sealed, target, projection)
    assert tail is not None
    assert (tail.rows, tail.version) == (1, 2)
    assert engine.world.rows(target) == ({"k": 1, "x": "10"}, {"k": 2, "x": None})
    assert engine.count_rows(target, 1) == 1


def test_a_tail_with_a_rewrite_is_no_tail(engine: SimulatedEngine) -> None:
    """Rows were removed in between: the caller must copy again."""
    engine.create_shard(ShardSpec("/w/s/t/2", COLUMNS))
    engine.world.append(PATH, [{"k": 1}])
    engine.truncate_shard(PATH)
    assert engine.copy_tail(PATH, 1, 2, "/w/s/t/2", [("k", "k"), ("a", "a")]) is None


def test_a_failing_expression_names_column_and_row(engine: SimulatedEngine) -> None:
    """A value that does not fit fails the copy, and nothing of it is written."""
    engine.create_shard(ShardSpec("/w/s/t/2", (Column("x", "INT"),)))
    engine.world.append(PATH, [{"k": 1}, {"k": 2**40}])
    with pytest.raises(EngineFailure, match=r"column x fails .*number 1") as failure:
        engine.copy_rows(PATH, 1, "/w/s/t/2", [("x", "CAST(k AS INT)")])
    assert failure.value.condition == "CAST_OVERFLOW"
    assert engine.shard_version("/w/s/t/2") == 0


def test_null_in_a_not_null_column_is_refused(engine: SimulatedEngine) -> None:
    """Neither a writer nor a copy gets NULL into a NOT NULL column."""
    condition = refused(lambda: engine.world.append(PATH, [{"a": 1}]))
    assert condition == "DELTA_NOT_NULL_CONSTRAINT_VIOLATED"


def test_evolve_adds_and_relaxes_once(engine: SimulatedEngine) -> None:
    """Old rows show NULL in a new column; the same evolution again makes no version."""
    engine.world.append(PATH, [{"k": 1, "a": 2}])
    wanted = (Column("k", "BIGINT"), Column("a", "INT", comment="note"), Column("b", "STRING"))
    engine.evolve(PATH, wanted, ShardSpec(PATH, wanted, comment="table"))
    assert engine.shard_columns(PATH) == wanted
    assert engine.world.rows(PATH) == ({"k": 1, "a": 2, "b": None},)
    assert engine.shard_version(PATH) == 2
    engine.evolve(PATH, wanted, ShardSpec(PATH, wanted, comment="table"))
    assert engine.shard_version(PATH) == 2


@pytest.mark.parametrize(
    ("columns", "condition"),
    [
        ((*COLUMNS, Column("b", "INT", False)), "DELTA_ADD_COLUMN_NOT_NULL"),
        (COLUMNS[:1], "DELTA_UNSUPPORTED_DROP_COLUMN"),
        (
            (COLUMNS[0], Column("a", "BIGINT")),
            "DELTA_ALTER_TABLE_CHANGE_COL_NOT_SUPPORTED",
        ),
        (
            (COLUMNS[0], Column("a", "INT", False)),
            "DELTA_ALTER_TABLE_CHANGE_COL_NOT_SUPPORTED",
        ),
    ],
)
def test_evolve_refuses_what_needs_a_copy(
    engine: SimulatedEngine, columns: tuple[Column, ...], condition: str
) -> None:
    """NOT NULL additions, drops, other types and stricter nullability are refused."""
    assert refused(lambda: engine.evolve(PATH, columns, ShardSpec(PATH, columns))) == condition


def test_create_shard_repeats_but_never_replaces(engine: SimulatedEngine) -> None:
    """The very same empty shard again is fine, anything else at the path is refused."""
    engine.create_shard(ShardSpec(PATH, COLUMNS))
    other = ShardSpec(PATH, COLUMNS[:1])
    assert refused(lambda: engine.create_shard(other)) == "DELTA_TABLE_ALREADY_EXISTS"


def test_deleting_data_keeps_the_log_and_its_seal(engine: SimulatedEngine) -> None:
    """A retired shard's rows go, its sealed log stays, so that a late writer is refused."""
    engine.seal(PATH, follows=0, app_id=APP, epoch=1)
    engine.delete_shard_data(PATH)
    assert refused(lambda: engine.world.rows(PATH)) == "FAILED_READ_FILE.FILE_NOT_EXIST"
    assert engine.is_sealed(PATH)
    engine.delete_shard("/w/absent")
    assert engine.list_shards("/w/") == [PATH]
    engine.delete_shard(PATH)
    assert engine.list_shards("/w") == []


def test_bind_proves_against_the_new_parents_only(engine: SimulatedEngine) -> None:
    """The columns handed in count, not those that stand; nothing is written."""
    writes = engine.world.writes
    parents = {T: (Column("a", "STRING"),)}
    results = engine.bind(
        [
            BindRequest(view("SELECT a FROM s.t", Column("a", "STRING")), parents),
            BindRequest(view("SELECT a FROM s.t", Column("a", "INT")), parents),
            BindRequest(view("SELECT k FROM s.t", Column("k", "BIGINT")), parents),
        ]
    )
    assert [result.reason is None for result in results] == [True, False, False]
    assert results[2].columns is None
    assert engine.world.writes == writes


def test_names_outlive_the_process_only_in_a_metastore() -> None:
    """Another engine on the same world sees persistent names, and none of a session's."""
    world = World()
    for persistent, standing in ((False, frozenset()), (True, frozenset({T}))):
        engine = SimulatedEngine(world, persistent=persistent)
        engine.ensure_schema("s")
        engine.create_shard(ShardSpec(PATH, COLUMNS))
        engine.register_table(T, PATH)
        assert SimulatedEngine(world, persistent=persistent).names("s") == standing


def test_calls_are_announced_before_and_after_their_effect() -> None:
    """``<method>`` comes before the effect, ``<method>.done`` after it."""
    heard: list[str] = []
    engine = SimulatedEngine(on_call=heard.append)
    engine.ensure_schema("s")
    assert engine.shard_version("/w") is None
    assert heard == [
        "ensure_schema", "ensure_schema.done", "shard_version", "shard_version.done"
    ]
