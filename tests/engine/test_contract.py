"""What every engine must do alike: the same assertions on Spark and on the simulated one."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from catalog_migrate.engine.port import (
    BindRequest,
    Engine,
    FillRequest,
    FunctionSpec,
    QueryAnalysis,
    QueryRequest,
    Registration,
    RowsRefused,
    RowsRequest,
    ShardSpec,
    ViewSpec,
)
from catalog_migrate.errors import EngineFailure, RowNotConverted
from catalog_migrate.model.names import ItemName
from catalog_migrate.model.objects import Argument, Check, Column
from tests.engine import direct

COLUMNS = (Column("id", "BIGINT", False, comment="key"), Column("note", "STRING"))
PROJECTION = (("id", "id"), ("note", "note"))


class Kit:
    """An engine, an own schema, a warehouse, and rows appended as a foreign writer would.

    ``apply`` appends them as an application on Spark does, where the engine is Spark.
    """

    def __init__(self, engine: Engine, schema: str, warehouse: str, append, apply) -> None:
        self.engine, self.schema, self.warehouse, self.append = engine, schema, warehouse, append
        self.apply = apply
        engine.ensure_schema(schema)

    def name(self, name: str) -> ItemName:
        return ItemName(self.schema, name)

    def shard(self, name: str, columns=COLUMNS, **more) -> str:
        path = f"{self.warehouse}/{self.schema}/{name}"
        self.engine.create_shard(ShardSpec(path, columns, **more))
        return path


@pytest.fixture(
    params=[
        pytest.param("spark", marks=pytest.mark.spark),
        pytest.param("spark_connect", marks=[pytest.mark.spark, pytest.mark.services]),
        "simulated",
    ]
)
def kit(request, schema_name, warehouse):
    if request.param == "simulated":
        from catalog_migrate.testing.engine import SimulatedEngine

        engine = SimulatedEngine()

        def append(path, rows):
            engine.world.append(path, [{"id": number, "note": note} for number, note in rows])
    else:
        from catalog_migrate.engine.spark.engine import SparkEngine

        spark = request.getfixturevalue(request.param)
        engine = SparkEngine(spark)

        def append(path, rows):
            direct.append(path, [{"id": number, "note": note} for number, note in rows])

        def append_by_spark(path, rows):
            frame = spark.createDataFrame(rows, "id BIGINT, note STRING")
            frame.write.format("delta").mode("append").save(path)

        return Kit(engine, schema_name, warehouse, append, append_by_spark)

    return Kit(engine, schema_name, warehouse, append, append)


def test_a_shard_is_created_once_and_keeps_its_columns(kit):
    """Creating a shard again in the same form does nothing; its columns come back canonical."""
    path = kit.shard("a")
    assert kit.engine.shard_version(path) == 0
    assert kit.engine.find_shard_problem(path) is None
    assert tuple(kit.engine.shard_columns(path)) == COLUMNS
    assert kit.engine.shard_size(path)[0] == 0
    kit.shard("a")
    assert kit.engine.shard_version(path) == 0
    with pytest.raises(EngineFailure) as caught:
        kit.shard("a", columns=(Column("other", "INT"),))
    assert caught.value.condition == "DELTA_TABLE_ALREADY_EXISTS"


def test_there_is_no_version_where_no_shard_is(kit):
    """shard_version of an empty place is None, and the quick look sees nothing either."""
    assert kit.engine.shard_version(f"{kit.warehouse}/nothing") is None
    assert kit.engine.find_shard_problem(f"{kit.warehouse}/nothing")


def test_a_table_is_registered_observed_and_dropped(kit):
    """register_table is repeatable, shows in names and observe, and drop keeps the files."""
    path = kit.shard("a")
    kit.engine.register_table(kit.name("a"), path)
    kit.engine.register_table(kit.name("a"), path)
    (seen,) = kit.engine.observe(kit.schema)
    assert (seen.name, seen.kind, seen.location) == (kit.name("a"), "table", path)
    assert kit.engine.names(kit.schema) == {kit.name("a")}
    kit.engine.drop(seen)
    kit.engine.drop(seen)
    assert kit.engine.names(kit.schema) == frozenset()
    assert kit.engine.shard_version(path) == 0


def test_registering_needs_a_shard_and_a_free_name(kit):
    """register_table refuses a place without a log, and a name that stands elsewhere."""
    with pytest.raises(EngineFailure):
        kit.engine.register_table(kit.name("a"), f"{kit.warehouse}/nothing")
    kit.engine.register_table(kit.name("a"), kit.shard("a"))
    with pytest.raises(EngineFailure) as caught:
        kit.engine.register_table(kit.name("a"), kit.shard("b"))
    assert caught.value.condition == "TABLE_OR_VIEW_ALREADY_EXISTS"


def test_a_schema_goes_only_when_it_is_empty(kit):
    """drop_schema_if_empty leaves a schema that holds a name; an absent schema holds none."""
    path = kit.shard("a")
    kit.engine.register_table(kit.name("a"), path)
    kit.engine.drop_schema_if_empty(kit.schema)
    assert kit.engine.names(kit.schema) == {kit.name("a")}
    kit.engine.drop(kit.engine.observe(kit.schema)[0])
    kit.engine.drop_schema_if_empty(kit.schema)
    assert list(kit.engine.observe(kit.schema)) == []
    with pytest.raises(EngineFailure):
        kit.engine.register_table(kit.name("a"), path)


def test_a_schema_goes_only_with_the_catalog_it_was_made_for(kit):
    """drop_schema_if_empty with a lineage leaves a schema of others, and one that holds a name."""
    ours, theirs = f"{kit.schema}_ours", f"{kit.schema}_theirs"
    kit.engine.ensure_schema(ours, "aa")
    kit.engine.ensure_schema(ours, "bb")  # is there: stays what it is
    kit.engine.ensure_schema(theirs, "bb")
    held = ItemName(ours, "a")
    kit.engine.register_table(held, kit.shard("a"))
    for schema in (ours, theirs, kit.schema, "nowhere"):
        kit.engine.drop_schema_if_empty(schema, "aa")
    assert kit.engine.names(ours) == {held}
    kit.engine.drop(kit.engine.observe(ours)[0])
    for schema in (ours, theirs, kit.schema):
        kit.engine.drop_schema_if_empty(schema, "aa")
    for schema in (theirs, kit.schema):
        kit.engine.register_table(ItemName(schema, "a"), kit.shard("a"))
    with pytest.raises(EngineFailure):
        kit.engine.register_table(held, kit.shard("a"))
    kit.engine.drop(kit.engine.observe(theirs)[0])
    kit.engine.drop_schema_if_empty(theirs, "bb")
    with pytest.raises(EngineFailure):
        kit.engine.register_table(ItemName(theirs, "a"), kit.shard("a"))


def test_a_view_is_recognised_by_its_properties(kit):
    """create_view replaces what was seen, carries properties and text; observe reads them back."""
    kit.engine.register_table(kit.name("a"), kit.shard("a"))
    sql = f"SELECT id, note FROM {kit.schema}.a"
    over = None
    for fingerprint in ("1:aa", "1:bb"):
        view = ViewSpec(
            kit.name("v"), COLUMNS, sql, comment="it's a view",
            properties={
                "catalog_migrate.id": "s2",
                "catalog_migrate.fingerprint": fingerprint,
            },
        )
        kit.engine.create_view(view, over=over)
        seen = {found.name.name: found for found in kit.engine.observe(kit.schema)}
        over = seen["v"]
    assert seen["v"].kind == "view"
    assert seen["v"].text == sql
    assert dict(seen["v"].properties) == {
        "catalog_migrate.id": "s2", "catalog_migrate.fingerprint": "1:bb",
    }
    kit.engine.drop(seen["v"])
    assert kit.engine.names(kit.schema) == {kit.name("a")}


def test_dropping_a_table_never_drops_a_view(kit):
    """drop of a table registration is refused when a view stands under the name."""
    path = kit.shard("a")
    kit.engine.register_table(kit.name("a"), path)
    (table,) = kit.engine.observe(kit.schema)
    kit.engine.drop(table)
    kit.engine.create_view(ViewSpec(kit.name("a"), [Column("one", "INT", False)], "SELECT 1"))
    with pytest.raises(EngineFailure) as caught:
        kit.engine.drop(table)
    assert caught.value.condition == "WRONG_COMMAND_FOR_OBJECT_TYPE"
    assert kit.engine.names(kit.schema) == {kit.name("a")}


def test_a_function_is_created_and_recognised(kit):
    """create_function is repeatable; its properties come back with observe; drop is repeatable."""
    function = FunctionSpec(
        kit.name("twice"), [Argument("x", "INT")], "INT", "x * 2",
        comment="doubles", properties={"catalog_migrate.id": "s9"},
    )
    kit.engine.create_function(function)
    kit.engine.create_function(function)
    (seen,) = kit.engine.observe(kit.schema)
    assert (seen.name, seen.kind) == (kit.name("twice"), "function")
    assert dict(seen.properties) == {"catalog_migrate.id": "s9"}
    kit.engine.drop(seen)
    kit.engine.drop(seen)
    assert list(kit.engine.observe(kit.schema)) == []


def _named_function(kit, constant, stamp):
    return FunctionSpec(
        kit.name("twice"), [Argument("x", "INT")], "INT", f"x * {constant}",
        properties={"catalog_migrate.id": stamp},
    )


def _named_view(kit, constant, stamp):
    return ViewSpec(
        kit.name("one"), [Column("one", "INT", False)], f"SELECT {constant} AS one",
        properties={"catalog_migrate.id": stamp},
    )


@pytest.mark.parametrize(
    ("act", "spec", "taken"),
    [
        ("create_function", _named_function, "ROUTINE_ALREADY_EXISTS"),
        ("create_view", _named_view, "TABLE_OR_VIEW_ALREADY_EXISTS"),
    ],
)
def test_only_what_was_seen_is_replaced_or_dropped(kit, act, spec, taken):
    """A name is free, or holds the very same or what was seen; else it is another's by now."""
    create = getattr(kit.engine, act)
    create(spec(kit, 2, "s9"))
    create(spec(kit, 2, "s9"))
    (seen,) = kit.engine.observe(kit.schema)
    with pytest.raises(EngineFailure) as caught:
        create(spec(kit, 3, "s10"))
    assert caught.value.condition == taken
    assert list(kit.engine.observe(kit.schema)) == [seen]
    create(spec(kit, 3, "s10"), over=seen)
    (now,) = kit.engine.observe(kit.schema)
    assert dict(now.properties) == {"catalog_migrate.id": "s10"}
    with pytest.raises(EngineFailure) as caught:
        create(spec(kit, 4, "s11"), over=seen)
    assert caught.value.condition == taken
    kit.engine.drop(seen)
    assert list(kit.engine.observe(kit.schema)) == [now]
    kit.engine.drop(now)
    kit.engine.drop(now)
    assert list(kit.engine.observe(kit.schema)) == []
    create(spec(kit, 4, "s11"), over=seen)
    kit.engine.drop(kit.engine.observe(kit.schema)[0])


def test_those_that_are_dropped_together_are_each_looked_at(kit):
    """Of a group goes what is still what was seen, also where something went before; no other."""
    def view(name, stamp):
        return ViewSpec(
            kit.name(name), [Column("one", "INT", False)], "SELECT 1 AS one",
            properties={"catalog_migrate.id": stamp},
        )

    for name in ("a", "b", "c"):
        kit.engine.create_view(view(name, "s9"))
    kit.engine.create_function(_named_function(kit, 2, "s9"))
    seen = {each.name.name: each for each in kit.engine.observe(kit.schema)}
    group = tuple(seen.values())
    kit.engine.create_view(view("b", "theirs"), over=seen["b"])
    kit.engine.drop(seen["c"])
    for each in group:
        kit.engine.drop(each, beside=group)
    (left,) = kit.engine.observe(kit.schema)
    assert (left.name, left.properties["catalog_migrate.id"]) == (kit.name("b"), "theirs")
    kit.engine.create_view(view("a", "s10"))
    kit.engine.drop(seen["a"], beside=group)
    assert kit.engine.names(kit.schema) == {kit.name("a"), kit.name("b")}
    for each in kit.engine.observe(kit.schema):
        kit.engine.drop(each)


@pytest.mark.parametrize("act", ["create_function", "create_view"])
def test_without_marks_a_name_that_is_held_is_refused(kit, act):
    """What carries no marks, as of an export, can't pass for somebody else's under its name."""
    make = {"create_function": _named_function, "create_view": _named_view}[act]
    create = getattr(kit.engine, act)
    create(make(kit, 2, "s9"))
    before = list(kit.engine.observe(kit.schema))
    with pytest.raises(EngineFailure) as caught:
        create(replace(make(kit, 3, ""), properties={}))
    assert caught.value.condition in ("ROUTINE_ALREADY_EXISTS", "TABLE_OR_VIEW_ALREADY_EXISTS")
    assert list(kit.engine.observe(kit.schema)) == before


def test_what_a_schema_that_is_gone_had_is_dropped_already(kit):
    """drop of any kind succeeds where not even the schema is there."""
    for kind in ("table", "view", "function"):
        kit.engine.drop(Registration(ItemName("nowhere", "x"), kind))


def test_a_table_of_another_place_is_not_dropped(kit):
    """A name that was seen at one shard and stands at another by now is left."""
    first, second = kit.shard("a"), kit.shard("b")
    kit.engine.register_table(kit.name("t"), first)
    (seen,) = kit.engine.observe(kit.schema)
    kit.engine.drop(seen)
    kit.engine.register_table(kit.name("t"), second)
    (now,) = kit.engine.observe(kit.schema)
    kit.engine.drop(seen)
    assert list(kit.engine.observe(kit.schema)) == [now]
    kit.engine.drop(now)
    assert list(kit.engine.observe(kit.schema)) == []


def test_rows_are_copied_in_bulk_and_then_the_tail(kit):
    """copy_rows takes one version, copy_tail what came after it; counts agree."""
    source, target = kit.shard("a"), kit.shard("b")
    kit.append(source, [(1, "x"), (2, "y")])
    bulk = kit.engine.copy_rows(source, 1, target, PROJECTION)
    assert (bulk.rows, bulk.version) == (2, 1)
    kit.append(source, [(3, "z")])
    kit.engine.fence(source, "catalog_migrate/test", 4)
    upto = kit.engine.shard_version(source)
    tail = kit.engine.copy_tail(source, 1, upto, target, PROJECTION)
    assert tail is not None
    assert tail.rows == 1
    assert kit.engine.count_rows(target, tail.version) == 3
    assert kit.engine.count_rows(source, 1) == 2
    size = kit.engine.shard_size(target)
    assert (size.rows, kit.engine.bytes_written(target) >= size.bytes > 0) == (3, True)
    assert kit.engine.bytes_written(f"{target}/nothing") == 0


def test_a_table_is_filled_by_a_query_over_versions(kit):
    """Through a view, by position, whatever names there are; a row that does not fit is told by
    what it violates, and leaves nothing."""
    source = kit.shard("a")
    columns = (Column("key", "BIGINT", False), Column("text", "STRING"))
    target = kit.shard("b", columns, checks=(Check("early", "key > 1"),))
    kit.append(source, [(1, "x"), (2, "y"), (3, None)])
    kit.append(source, [(4, "z")])
    view = ViewSpec(
        kit.name("v"), COLUMNS, f"SELECT id, note FROM {kit.schema}.a WHERE id > 1"
    )
    request = FillRequest(
        f"SELECT id, note FROM {kit.schema}.v", ("key", "text"), {kit.name("a"): (source, 1)},
        (view,),
    )
    filled = kit.engine.fill_rows(target, request)
    assert (filled.rows, filled.version) == (2, kit.engine.shard_version(target))
    assert kit.engine.count_rows(target, filled.version) == 2
    kit.engine.truncate_shard(target)
    assert kit.engine.fill_rows(target, request).rows == 2
    broken = replace(request, query=f"SELECT id, note FROM {kit.schema}.a")
    with pytest.raises(RowNotConverted) as caught:
        kit.engine.fill_rows(target, broken)
    assert caught.value.condition == "DELTA_VIOLATE_CONSTRAINT_WITH_VALUES"
    assert "x" not in caught.value.message.replace("fails", "")
    nowhere = replace(request, query=f"SELECT id, note FROM {kit.schema}.nowhere")
    with pytest.raises(EngineFailure) as failed:
        kit.engine.fill_rows(target, nowhere)
    assert (type(failed.value), failed.value.condition) == (
        EngineFailure, "TABLE_OR_VIEW_NOT_FOUND"
    )
    assert kit.engine.shard_size(target)[0] == 2
    assert list(kit.engine.observe(kit.schema)) == []


def test_an_empty_tail_copies_nothing(kit):
    """copy_tail over commits without rows gives 0 rows and the target's version."""
    source, target = kit.shard("a"), kit.shard("b")
    kit.append(source, [(1, "x")])
    kit.engine.fence(source, "catalog_migrate/test", 1)
    tail = kit.engine.copy_tail(source, 1, 2, target, PROJECTION)
    assert (tail.rows, tail.version) == (0, 0)


def test_a_tail_that_is_not_append_only_is_refused(kit):
    """copy_tail gives None when rows went meanwhile."""
    source, target = kit.shard("a"), kit.shard("b")
    kit.append(source, [(1, "x")])
    kit.engine.truncate_shard(source)
    assert kit.engine.copy_tail(source, 1, 2, target, PROJECTION) is None


def test_a_failing_expression_names_table_column_and_row(kit):
    """copy_rows fails with the target and the column when a cast fails on a row, not its value."""
    source = kit.shard("a")
    target = kit.shard("b", columns=(Column("id", "BIGINT", False), Column("note", "INT")))
    kit.append(source, [(1, "11"), (2, "twelve")])
    with pytest.raises(EngineFailure) as caught:
        kit.engine.copy_rows(source, 1, target, [("id", "id"), ("note", "CAST(note AS INT)")])
    assert caught.value.condition == "CAST_INVALID_INPUT"
    assert target in caught.value.message
    assert "note" in caught.value.message
    assert "on a row" in caught.value.message
    assert "twelve" not in caught.value.message
    assert kit.engine.shard_size(target)[0] == 0


def test_rows_are_looked_at_before_they_are_copied(kit):
    """refused_rows counts NULL under NOT NULL and rows that violate a CHECK, names a column that
    fails, writes nothing; where all fits there is nothing to say."""
    source = kit.shard("a")
    kit.append(source, [(1, "11"), (2, "twelve"), (3, None)])
    request = RowsRequest(
        kit.name("a"), source, 1, PROJECTION,
        (Column("id", "BIGINT", False), Column("note", "STRING", False)), ("note",),
        (Check("late", "id > 2"),),
    )
    assert list(kit.engine.find_refused_rows(request)) == [
        RowsRefused("null", "note", 1), RowsRefused("check", "late", 2)
    ]
    cast = replace(
        request, projection=(("id", "id"), ("note", "CAST(note AS INT)")),
        columns=(Column("id", "BIGINT", False), Column("note", "INT")),
    )
    assert list(kit.engine.find_refused_rows(cast)) == [
        RowsRefused("fails", "note", condition="CAST_INVALID_INPUT")
    ]
    fits = replace(request, columns=COLUMNS, checks=(Check("late", "id > 0"),))
    assert list(kit.engine.find_refused_rows(fits)) == []
    assert kit.engine.shard_version(source) == 1


def test_a_sealed_shard_refuses_appends_until_it_is_unsealed(kit):
    """seal lands at the next version; unseal puts the shard back into use."""
    path = kit.shard("a")
    kit.append(path, [(1, "x")])
    before = kit.engine.seal_properties(path)
    assert set(before.values()) == {None}
    assert kit.engine.seal(path, follows=1, app_id="catalog_migrate/test", epoch=1) == 2
    assert kit.engine.is_sealed(path)
    with pytest.raises(Exception, match=r"(?i)seal|constraint"):
        kit.apply(path, [(2, "y")])
    with pytest.raises(EngineFailure):
        kit.engine.truncate_shard(path)
    kit.engine.unseal(path, before)
    kit.engine.unseal(path, before)
    assert not kit.engine.is_sealed(path)
    kit.apply(path, [(2, "y")])
    assert kit.engine.shard_size(path)[0] == 2


def test_a_seal_goes_behind_appends(kit):
    """A writer that took the next versions is followed: the seal comes after its rows."""
    path = kit.shard("a")
    kit.append(path, [(1, "x")])
    kit.append(path, [(2, "y")])
    assert kit.engine.seal(path, follows=0, app_id="catalog_migrate/test", epoch=1) == 3
    assert kit.engine.is_sealed(path)
    assert kit.engine.count_rows(path, 2) == 2


def test_a_seal_loses_against_metadata(kit):
    """Metadata changed since, another seal included, is SEAL_CONFLICT, and nothing is changed."""
    path = kit.shard("a")
    changed = ShardSpec(path, COLUMNS, properties={"delta.appendOnly": "true"})
    kit.engine.evolve(path, COLUMNS, changed)
    version = kit.engine.shard_version(path)
    with pytest.raises(EngineFailure) as caught:
        kit.engine.seal(path, follows=0, app_id="catalog_migrate/test", epoch=1)
    assert caught.value.condition == "SEAL_CONFLICT"
    assert not kit.engine.is_sealed(path)
    assert kit.engine.seal(path, follows=version, app_id="catalog_migrate/test", epoch=1)
    with pytest.raises(EngineFailure) as caught:
        kit.engine.seal(path, follows=version, app_id="catalog_migrate/test", epoch=1)
    assert caught.value.condition == "SEAL_CONFLICT"


def test_a_fence_makes_a_late_seal_lose(kit):
    """A holder whose successor has fenced the shard cannot seal it, its successor can."""
    path = kit.shard("a")
    kit.engine.fence(path, "catalog_migrate/test", 7)
    kit.append(path, [(1, "x")])
    with pytest.raises(EngineFailure) as caught:
        kit.engine.seal(path, follows=0, app_id="catalog_migrate/test", epoch=6)
    assert caught.value.condition == "SEAL_CONFLICT"
    assert kit.engine.seal(path, follows=0, app_id="catalog_migrate/test", epoch=7) == 3


def test_a_shard_evolves_in_place_and_once(kit):
    """evolve adds, relaxes, comments and constrains; a repetition commits nothing."""
    path = kit.shard("a")
    kit.append(path, [(1, "x")])
    columns = (
        Column("id", "BIGINT", comment="the key"), Column("note", "STRING"),
        Column("extra", "INT", comment="new"),
    )
    shard = ShardSpec(
        path, columns, comment="a table", checks=[Check("pos", "id > 0")], properties={"k": "v"}
    )
    kit.engine.evolve(path, columns, shard)
    assert tuple(kit.engine.shard_columns(path)) == columns
    version = kit.engine.shard_version(path)
    kit.engine.evolve(path, columns, shard)
    assert kit.engine.shard_version(path) == version
    assert kit.engine.shard_size(path)[0] == 1


def test_a_text_of_a_length_evolves_in_place(kit):
    """VARCHAR is added, made longer and made STRING by metadata alone; the shard can be sealed."""
    path = kit.shard("a")
    kit.append(path, [(1, "x")])
    for kind in ("VARCHAR(5)", "VARCHAR(9)", "STRING"):
        columns = (*COLUMNS, Column("code", kind), Column("codes", "ARRAY<CHAR(2)>"))
        kit.engine.evolve(path, columns, ShardSpec(path, columns))
        assert tuple(kit.engine.shard_columns(path)) == columns
    version = kit.engine.shard_version(path)
    assert version == 4
    kit.engine.evolve(path, columns, ShardSpec(path, columns))
    assert kit.engine.shard_version(path) == version
    assert kit.engine.shard_size(path)[0] == 1
    assert kit.engine.seal(path, follows=version, app_id="catalog_migrate/test", epoch=1)
    assert kit.engine.is_sealed(path)


@pytest.mark.parametrize(
    "columns",
    [
        (Column("id", "BIGINT", False, comment="key"),),
        (Column("id", "BIGINT", False, comment="key"), Column("note", "INT")),
        (Column("id", "BIGINT", False, comment="key"), Column("note", "VARCHAR(9)")),
        (*COLUMNS, Column("extra", "INT", False)),
        (COLUMNS[0], Column("note", "STRING", False)),
    ],
)
def test_what_needs_a_copy_is_not_done_in_place(kit, columns):
    """evolve refuses to drop, retype, tighten, or add a NOT NULL column."""
    path = kit.shard("a")
    with pytest.raises(EngineFailure):
        kit.engine.evolve(path, columns, ShardSpec(path, columns))
    assert tuple(kit.engine.shard_columns(path)) == COLUMNS


def test_shards_are_listed_and_deleted(kit):
    """delete_shard removes a shard and is repeatable; deleting data keeps the log."""
    kept, gone = kit.shard("a"), kit.shard("b")
    kit.append(kept, [(1, "x")])
    assert list(kit.engine.list_shards(kit.warehouse)) == [kept, gone]
    kit.engine.delete_shard(gone)
    kit.engine.delete_shard(gone)
    kit.engine.delete_shard_data(kept)
    assert list(kit.engine.list_shards(kit.warehouse)) == [kept]
    assert kit.engine.shard_version(kept) == 1


def bind(kit, sql, contract, functions=()):
    view = ViewSpec(kit.name("v"), contract, sql)
    (result,) = kit.engine.bind([BindRequest(view, {kit.name("parent"): COLUMNS}, functions)])
    return result


def test_a_view_binds_against_parents_that_do_not_exist(kit):
    """bind gives the analysed columns of the body and leaves no name behind."""
    result = bind(kit, f"SELECT p.note, id FROM {kit.schema}.parent AS p", [
        Column("n", "STRING"), Column("i", "BIGINT", False),
    ])
    assert result.reason is None
    assert [(c.type, c.nullable) for c in result.columns] == [("STRING", True), ("BIGINT", False)]
    assert kit.engine.names(kit.schema) == frozenset()


@pytest.mark.parametrize(
    ("sql", "contract", "word"),
    [
        ("SELECT nothing FROM {s}.parent", [Column("a", "STRING")], "nothing"),
        ("SELECT id FROM {s}.other", [Column("a", "BIGINT")], "other"),
        ("SELECT id FROM {s}.parent", [Column("a", "INT")], "no up-cast"),
        ("SELECT note FROM {s}.parent", [Column("a", "STRING", False)], "NOT NULL"),
        ("SELECT id, note FROM {s}.parent", [Column("a", "BIGINT")], "2 columns"),
    ],
)
def test_a_view_that_does_not_fit_says_why(kit, sql, contract, word):
    """bind names what is missing, lossy, nullable or of the wrong number."""
    reason = bind(kit, sql.format(s=kit.schema), contract).reason
    assert reason is not None
    assert word in reason


def test_a_view_binds_with_a_function_of_the_new_state(kit):
    """bind knows functions that do not exist yet."""
    function = FunctionSpec(kit.name("twice"), [Argument("x", "BIGINT")], "BIGINT", "x * 2")
    sql = f"SELECT {kit.schema}.twice(id) AS d FROM {kit.schema}.parent"
    assert bind(kit, sql, [Column("d", "BIGINT")], [function]).reason is None
    assert bind(kit, sql, [Column("d", "BIGINT")]).reason is not None
    assert list(kit.engine.observe(kit.schema)) == []


def test_how_a_shard_grew(kit):
    """count_appended counts what came after a version, and is None once rows of before went."""
    source = kit.shard("a")
    kit.append(source, [(1, "x")])
    kit.append(source, [(2, "y"), (3, "z")])
    kit.engine.fence(source, "catalog_migrate/test", 1)
    assert kit.engine.count_appended(source, 1) == 2
    assert kit.engine.count_appended(source, 0, 1) == 1
    assert kit.engine.count_appended(source, 2) == 0
    kit.engine.truncate_shard(source)
    assert kit.engine.count_appended(source, 1) is None
    assert kit.engine.count_appended(source, 1, 2) == 2


def analyse(kit, sql, parents=None, **more):
    """A query of a user over ``parent``, or over ``parents``."""
    if parents is None:
        parents = {"parent": COLUMNS}
    named = {kit.name(name): columns for name, columns in parents.items()}
    request = QueryRequest(kit.name("theirs"), sql.format(s=kit.schema), named, **more)
    (found,) = kit.engine.analyse([request])
    assert kit.engine.names(kit.schema) == frozenset()
    return found


def test_a_users_query_is_analysed_against_columns_that_do_not_exist(kit):
    """analyse gives the columns of the query; a name without a schema is of the namespace."""
    found = analyse(kit, "SELECT p.note, id AS i FROM {s}.parent AS p")
    assert found == QueryAnalysis((Column("note", "STRING"), Column("i", "BIGINT", False)))
    found = analyse(kit, "SELECT parent.id FROM parent", namespace=kit.schema)
    assert found == QueryAnalysis((Column("id", "BIGINT", False),))


@pytest.mark.parametrize(
    ("sql", "parents", "condition", "missing"),
    [
        ("SELECT id, nope FROM {s}.parent", {"parent": COLUMNS},
         "UNRESOLVED_COLUMN.WITH_SUGGESTION", "nope"),
        ("SELECT p.nope FROM {s}.parent AS p", {"parent": COLUMNS},
         "UNRESOLVED_COLUMN.WITH_SUGGESTION", "p.nope"),
        ("SELECT id FROM {s}.parent", {"parent": None}, "TABLE_OR_VIEW_NOT_FOUND", "{s}.parent"),
        ("SELECT id FROM {s}.other", {}, "TABLE_OR_VIEW_NOT_FOUND", "{s}.other"),
        ("SELECT {s}.f(id) AS x FROM {s}.parent", {"parent": COLUMNS, "f": None},
         "UNRESOLVED_ROUTINE", "{s}.f"),
    ],
)
def test_what_a_users_query_does_not_find_is_named_with_its_place(
    kit, sql, parents, condition, missing
):
    """analyse gives Spark's error class, the missing name, and its offsets in the query."""
    found = analyse(kit, sql, parents)
    missing, sql = missing.format(s=kit.schema), sql.format(s=kit.schema)
    assert (found.columns, found.condition, found.missing) == (None, condition, missing)
    assert missing in found.reason.replace("`", "")
    assert sql[slice(*found.place)] == missing


def test_a_users_function_is_analysed_by_its_body(kit):
    """Its arguments are columns of what has its name; a value's column has no name."""
    arguments = [Argument("x", "BIGINT"), Argument("y", "STRING")]
    found = analyse(kit, "theirs.x", {}, arguments=arguments, scalar=True)
    assert found == QueryAnalysis((Column("", "BIGINT"),))
    found = analyse(kit, "nope", {}, arguments=arguments, scalar=True)
    assert (found.condition, found.missing, found.place) == (
        "UNRESOLVED_COLUMN.WITH_SUGGESTION", "nope", (0, 4)
    )


def test_users_queries_are_analysed_with_the_functions_of_the_new_state(kit):
    """analyse knows functions that do not exist yet, and answers in the order of the requests."""
    function = FunctionSpec(kit.name("twice"), [Argument("x", "BIGINT")], "BIGINT", "x * 2")
    parents = {kit.name("parent"): COLUMNS}
    sql = f"SELECT {kit.schema}.twice(id) AS d FROM {kit.schema}.parent"
    requests = [
        QueryRequest(kit.name(f"v{number}"), sql if number % 3 else "SELECT 1 AS one", parents,
                     [function] if number % 2 else [])
        for number in range(12)
    ]
    found = kit.engine.analyse(requests)
    assert [each.columns and each.columns[0].name for each in found] == [
        "one", "d", None, "one", None, "d", "one", "d", None, "one", None, "d"
    ]
    assert {each.condition for each in found} == {None, "UNRESOLVED_ROUTINE"}
    assert list(kit.engine.observe(kit.schema)) == []


def test_views_and_functions_without_marks_are_a_users(kit):
    """user_definitions has texts, columns and arguments, and nothing that has marks or is left out.

    relations_read follows views down to tables; a schema that is not there holds nothing.
    """
    kit.engine.register_table(kit.name("t"), kit.shard("t"))
    marked = {"catalog_migrate.id": "s1"}
    columns = (Column("key", "BIGINT"), Column("text", "STRING"))
    first = ViewSpec(kit.name("v"), columns, f"SELECT id, note FROM {kit.schema}.t")
    second = ViewSpec(kit.name("w"), columns[:1], f"SELECT key FROM {kit.schema}.v")
    kit.engine.create_view(first)
    kit.engine.create_view(second)
    kit.engine.create_view(replace(first, name=kit.name("ours"), properties=marked))
    plus = FunctionSpec(kit.name("plus"), (Argument("n", "INT"),), "INT", "n + 1")
    kit.engine.create_function(plus)
    kit.engine.create_function(replace(plus, name=kit.name("ours"), properties=marked))

    assert kit.schema in kit.engine.schemas()
    found = sorted(kit.engine.user_definitions(kit.schema), key=lambda each: each.name)
    assert [(each.name.name, each.kind, each.unread) for each in found] == [
        ("plus", "function", None), ("v", "view", None), ("w", "view", None),
    ]
    function, view, above = found
    assert (function.sql, function.arguments) == ("n + 1", (Argument("n", "INT"),))
    assert function.columns == (Column("", "INT"),)
    assert view.sql == first.sql
    assert [(column.name, column.type) for column in view.columns] == [
        ("key", "BIGINT"), ("text", "STRING"),
    ]
    assert above.sql == second.sql
    left_out = {("relation", kit.schema.lower(), "v"), ("function", kit.schema.lower(), "plus")}
    rest = kit.engine.user_definitions(kit.schema, but=left_out)
    assert [each.name for each in rest] == [kit.name("w")]
    assert sorted(kit.engine.relations_read(view)) == [kit.name("t")]
    assert kit.name("t") in kit.engine.relations_read(above)
    assert kit.engine.user_definitions(f"{kit.schema}_missing") == []


def test_a_users_text_is_replaced_unless_it_changed(kit):
    """replace_text gives another text; refused once what was looked at is not there any more."""
    s = kit.schema
    kit.engine.register_table(kit.name("t"), kit.shard("t"))
    columns = (Column("key", "BIGINT"), Column("text", "STRING"))
    made = ViewSpec(kit.name("v"), columns, f"SELECT id AS key, note AS text FROM {s}.t")
    kit.engine.create_view(made)
    kit.engine.create_function(
        FunctionSpec(kit.name("plus"), (Argument("n", "INT"),), "INT", "n + 1", comment="adds")
    )

    def read(name):
        found = kit.engine.user_definitions(s)
        return next((each for each in found if each.name == kit.name(name)), None)

    view, function = read("v"), read("plus")
    text = f"SELECT note AS text, id AS key FROM {s}.t WHERE id > 1"
    kit.engine.replace_text(view, text)
    kit.engine.replace_text(function, "n + 2")
    assert (read("v").sql, read("plus").sql) == (text, "n + 2")
    assert [column.name for column in read("v").columns] == ["text", "key"]
    assert read("plus").arguments == function.arguments
    for changed in (view, function):
        with pytest.raises(EngineFailure) as refused:
            kit.engine.replace_text(changed, changed.sql)
        assert refused.value.condition == "CHANGED"
    kit.engine.replace_text(read("v"), view.sql)
    assert read("v").sql == view.sql
    for each in kit.engine.observe(s):
        kit.engine.drop(each)
    for dropped in (view, function):
        with pytest.raises(EngineFailure) as refused:
            kit.engine.replace_text(dropped, dropped.sql)
        assert refused.value.condition == "CHANGED"
