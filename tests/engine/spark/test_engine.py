"""What only the real engine can show: Spark's and Delta's own behaviour."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import datetime

import pytest
from deltalake import DeltaTable

from catalog_migrate.engine.port import BindRequest, FunctionSpec, ShardSpec, ViewSpec
from catalog_migrate.engine.spark.engine import SparkEngine, check_session, limits
from catalog_migrate.engine.spark.registrations import Registrations
from catalog_migrate.errors import EngineFailure, UnsuitableSession
from catalog_migrate.model.conversion import conversion
from catalog_migrate.model.names import ItemName
from catalog_migrate.model.objects import Argument, Check, Column
from tests.engine import direct

pytestmark = pytest.mark.spark


@pytest.fixture
def engine(spark):
    return SparkEngine(spark)


def test_every_type_lands_in_a_table_that_spark_reads_and_seals(engine, spark, warehouse):
    """Lengths, TIMESTAMP_NTZ, VARIANT, generated columns, NOT NULL and checks work together."""
    columns = (
        Column("id", "INT", False), Column("name", "VARCHAR(3)"), Column("at", "TIMESTAMP_NTZ"),
        Column("v", "VARIANT"), Column("next", "INT", generated="id + 1"),
    )
    path = f"{warehouse}/a"
    shard = ShardSpec(path, columns, checks=[Check("Pos", "id > 0")], comment="it's")
    engine.create_shard(shard)
    engine.create_shard(shard)
    assert tuple(engine.shard_columns(path)) == columns
    spark.sql(
        f"INSERT INTO delta.`{path}` (id, name, at, v) "
        "SELECT 1, 'abc', timestamp_ntz'2020-01-02 03:04:05', parse_json('[1]')"
    )
    row = spark.sql(f"SELECT * EXCEPT (v) FROM delta.`{path}`").collect()[0]
    assert tuple(row) == (1, "abc", datetime(2020, 1, 2, 3, 4, 5), 2)
    for values in ("-1, 'a'", "2, 'abcd'"):
        with pytest.raises(Exception, match="DELTA_"):
            spark.sql(f"INSERT INTO delta.`{path}` (id, name) SELECT {values}")
    version = engine.shard_version(path)
    assert engine.seal(path, follows=version, app_id="x", epoch=1) == version + 1
    with pytest.raises(Exception, match="catalog_migrate_sealed"):
        spark.sql(f"INSERT INTO delta.`{path}` (id) SELECT 3")
    assert engine.count_rows(path, version) == 1


def test_clustering_is_left_to_spark_and_intervals_are_refused(engine, warehouse):
    """delta-rs cannot cluster; a type that Delta does not know is an error, not a broken table."""
    columns = (Column("id", "INT"),)
    engine.create_shard(ShardSpec(f"{warehouse}/c", columns, clustered_by=["id"]))
    assert tuple(engine.shard_columns(f"{warehouse}/c")) == columns
    with pytest.raises(EngineFailure) as caught:
        engine.create_shard(ShardSpec(f"{warehouse}/i", [Column("i", "INTERVAL YEAR")]))
    assert caught.value.condition == "DELTA_UNSUPPORTED_DATA_TYPES"


def test_a_column_is_added_where_the_definition_has_it(engine, spark, warehouse):
    """evolve puts a new column into the middle, and one with a table feature too."""
    path = f"{warehouse}/a"
    old = (Column("a", "INT"), Column("c", "VARCHAR(5)", comment="x"))
    new = (old[0], Column("b", "TIMESTAMP_NTZ"), Column("c", "VARCHAR(5)"))
    engine.create_shard(ShardSpec(path, old))
    engine.evolve(path, new, ShardSpec(path, new))
    assert tuple(engine.shard_columns(path)) == new
    assert spark.sql(f"SELECT * FROM delta.`{path}`").columns == ["a", "b", "c"]


def test_a_longer_text_needs_no_table_feature(engine, spark, warehouse):
    """The protocol stays, delta-rs reads the table, and Spark writes up to the new length only."""
    path = f"{warehouse}/a"
    old, new = (
        (Column("a", f"VARCHAR({most})"), *more)
        for most, more in ((3, ()), (9, (Column("b", "VARCHAR(2)"),)))
    )
    engine.create_shard(ShardSpec(path, old))
    spark.sql(f"INSERT INTO delta.`{path}` VALUES ('abc')")
    before = DeltaTable(path).protocol()
    engine.evolve(path, new, ShardSpec(path, new))
    assert DeltaTable(path).protocol() == before
    spark.sql(f"INSERT INTO delta.`{path}` VALUES ('abcdefghi', 'no')")
    for values in ("('abcdefghij', 'no')", "('abc', 'yes')"):
        with pytest.raises(Exception, match=r"EXCEED|exceed|char_length"):
            spark.sql(f"INSERT INTO delta.`{path}` VALUES {values}")
    rows = DeltaTable(path).to_pyarrow_table().to_pylist()
    assert sorted(row["a"] for row in rows) == ["abc", "abcdefghi"]
    shorter = conversion("a", "VARCHAR(9)", "VARCHAR(3)", or_null=True)
    found = spark.sql(f"SELECT {shorter} AS a FROM delta.`{path}` ORDER BY 1").collect()
    assert [row["a"] for row in found] == [None, "abc"]


def test_a_null_under_not_null_names_column_and_row(engine, spark, warehouse):
    """A copy into a stricter shard says which row is NULL."""
    source, target = f"{warehouse}/a", f"{warehouse}/b"
    engine.create_shard(ShardSpec(source, [Column("id", "INT"), Column("n", "INT")]))
    engine.create_shard(ShardSpec(target, [Column("id", "INT"), Column("n", "INT", False)]))
    direct.append(source, [{"id": 1, "n": 1}, {"id": 2, "n": None}])
    with pytest.raises(EngineFailure) as caught:
        engine.copy_rows(source, 1, target, [("id", "id"), ("n", "n")])
    told = caught.value.message
    assert "column `n` = n is NULL on a row; WHERE (n) IS NULL finds them all" in told
    assert "id" not in told.partition(": ")[2]  # what the expression does not read is left out


def test_a_null_struct_is_copied_as_null_or_not_at_all(engine, spark, warehouse):
    """Delta 4.0 makes it a struct of NULLs when the INSERT has to cast: refused there."""
    wide = "STRUCT<a: BIGINT, b: STRING>"
    source, given, cast = (f"{warehouse}/{name}" for name in "abc")
    engine.create_shard(
        ShardSpec(source, [Column("id", "INT"), Column("s", "STRUCT<a: INT, b: STRING>")])
    )
    for path in (given, cast):
        engine.create_shard(ShardSpec(path, [Column("id", "INT"), Column("s", wide)]))
    spark.sql(f"INSERT INTO delta.`{source}` SELECT 1, CAST(NULL AS STRUCT<a: INT, b: STRING>)")
    projection = [("id", "id"), ("s", "coalesce(s, NULL)")]
    if spark.version.startswith("4.0."):
        with pytest.raises(EngineFailure) as caught:
            engine.copy_rows(source, 1, given, projection)
        assert caught.value.remedy == f"USING CAST(coalesce(s, NULL) AS {wide}), or Spark 4.1"
        assert engine.shard_size(given)[0] == 0
    else:
        engine.copy_rows(source, 1, given, projection)
        assert DeltaTable(given).to_pyarrow_table()["s"].to_pylist() == [None]
    engine.copy_rows(source, 1, cast, [("id", "id"), ("s", f"CAST(s AS {wide})")])
    assert DeltaTable(cast).to_pyarrow_table()["s"].to_pylist() == [None]


def test_a_doubled_quote_is_one_character(engine, spark, schema_name, warehouse):
    """In a view, its comment, a function and a CHECK: Spark 4.0 would read ``its``."""
    engine.ensure_schema(schema_name)
    said = ItemName(schema_name, "said")
    engine.create_function(
        FunctionSpec(said, [Argument("x", "STRING")], "STRING", "concat(x, 'it''s')", "it's")
    )
    view = ViewSpec(
        ItemName(schema_name, "v"), [Column("a", "STRING", comment="it's")],
        f"SELECT {schema_name}.said('it''s ') AS a", "it's",
    )
    engine.create_view(view)
    assert spark.sql(f"SELECT a FROM {schema_name}.v").collect() == [("it's it's",)]
    shard = ShardSpec(f"{warehouse}/t", [Column("a", "STRING")], checks=[Check("c", "a = 'it''s'")])
    engine.create_shard(shard)
    spark.sql(f"INSERT INTO delta.`{warehouse}/t` VALUES ('it\\'s')")
    with pytest.raises(Exception, match="DELTA_VIOLATE_CONSTRAINT"):
        spark.sql(f"INSERT INTO delta.`{warehouse}/t` VALUES ('its')")


def test_a_function_of_a_dropped_schema_is_created_again(engine, spark, schema_name):
    """Before 4.2 a session that has called it goes on describing it, and refuses another one."""
    name = ItemName(schema_name, "twice")
    function = FunctionSpec(
        name, [Argument("x", "INT")], "INT", "x * 2", properties={"catalog_migrate.id": "s1"}
    )
    for _ in range(2):
        engine.ensure_schema(schema_name)
        assert list(engine.observe(schema_name)) == []
        engine.create_function(function)
        (seen,) = engine.observe(schema_name)
        assert seen.properties == {"catalog_migrate.id": "s1"}
        assert spark.sql(f"SELECT {schema_name}.twice(4)").collect() == [(8,)]
        spark.sql(f"DROP SCHEMA {schema_name} CASCADE")


def test_a_view_takes_its_contract_by_casts(engine, spark, schema_name):
    """An up-cast is made by the view; a later change of the base is caught by SCHEMA BINDING."""
    engine.ensure_schema(schema_name)
    view = ViewSpec(
        ItemName(schema_name, "v"), [Column("Wide", "BIGINT"), Column("b", "STRING")],
        "SELECT 1 AS x, 'a' AS x -- two of one name",
    )
    engine.create_view(view)
    assert spark.table(f"{schema_name}.v").dtypes == [("Wide", "bigint"), ("b", "string")]
    with pytest.raises(EngineFailure) as caught:
        engine.create_view(ViewSpec(view.name, [Column("a", "INT")], "SELECT 'x'"))
    assert caught.value.condition == "CANNOT_UP_CAST_DATATYPE"


def test_binding_leaves_nothing_behind_and_speaks_of_the_real_names(engine, spark, schema_name):
    """Many requests at once, one reason with a line in it, no temporary view left."""
    parent = ItemName(schema_name, "parent")
    columns = [Column("id", "BIGINT", False), Column("tags", "ARRAY<STRUCT<k: STRING NOT NULL>>")]
    requests = [
        BindRequest(
            ViewSpec(
                ItemName(schema_name, f"v{number}"),
                [Column("k", "STRING"), Column("id", "BIGINT")],
                f"WITH q AS (SELECT * FROM {schema_name}.parent)\nSELECT e.k, {column} FROM q\n"
                "LATERAL VIEW explode(q.tags) AS e",
            ),
            {parent: columns},
        )
        for number, column in enumerate(["q.id"] * 5 + ["q.nope"])
    ]
    results = engine.bind(requests)
    assert [result.reason for result in results[:5]] == [None] * 5
    assert [result.columns for result in results[:5]] == [
        (Column("k", "STRING"), Column("id", "BIGINT", False))
    ] * 5
    assert "nope" in results[5].reason
    assert "line 2" in results[5].reason
    left = [row["tableName"] for row in spark.sql("SHOW TABLES").collect()]
    assert not [name for name in left if name.startswith("catalog_migrate_bind")]


def test_registrations_are_made_from_many_threads(engine, schema_name, warehouse):
    """Eight threads register, create views and observe without getting in each other's way."""
    engine.ensure_schema(schema_name)
    names = [ItemName(schema_name, f"t{number}") for number in range(8)]

    def work(name: ItemName) -> None:
        path = f"{warehouse}/{name.name} with a space"
        engine.create_shard(ShardSpec(path, [Column("id", "INT")]))
        engine.register_table(name, path)
        view = ItemName(name.schema, f"v_{name.name}")
        engine.create_view(
            ViewSpec(view, [Column("id", "INT")], f"SELECT id FROM {schema_name}.{name.name}")
        )

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, names))
    seen = {found.name: found for found in engine.observe(schema_name)}
    assert len(seen) == 16
    assert seen[names[3]].location == f"{warehouse}/t3 with a space"


def test_a_session_without_delta_is_refused():
    """check_session names the settings that are missing."""

    class Bare:
        """A session's settings, all of them unset."""

        version = "4.2.0"

        class conf:  # noqa: N801
            get = staticmethod(lambda key, default=None: default)

    with pytest.raises(UnsuitableSession, match=r"spark\.sql\.extensions"):
        check_session(Bare())


def test_a_session_of_another_major_version_is_refused():
    """check_session says which version it is and which one is needed."""

    class Old:
        """A session of Spark 3."""

        version = "3.5.4"

    with pytest.raises(UnsuitableSession, match=r"Spark 3\.5\.4; Spark 4\.2 is needed"):
        check_session(Old())


@pytest.mark.parametrize(
    ("version", "said"),
    [
        ("4.2.0", ""),
        ("4.1.1-amzn-0", ""),
        ("4.0.1", "no rows or checkpoints on S3"),
        ("4.3.0", "not tried: the tests run on 4.0, 4.1, 4.2"),
    ],
)
def test_what_a_minor_cannot_do_is_told(version, said):
    """`doctor` says so of the session at hand."""
    assert limits(version) == said


def test_an_absent_schema_is_empty(engine):
    """names and observe of a schema that is not there are empty, and dropping it is fine."""
    assert engine.names("nowhere") == frozenset()
    assert list(engine.observe("nowhere")) == []
    engine.drop_schema_if_empty("nowhere")
    assert engine.persistent_names is False


def test_a_name_alone_is_seen_as_in_a_look_at_all(spark, schema_name, warehouse):
    """What is looked at again before a DROP is compared with what SHOW TABLE EXTENDED said."""
    registrations = Registrations(spark)
    registrations.ensure_schema(schema_name)
    spark.sql(f"CREATE TABLE {schema_name}.away (c INT) USING delta LOCATION '{warehouse}/a way'")
    spark.sql(f"CREATE TABLE {schema_name}.managed (c INT) USING delta")
    spark.sql(
        f"CREATE VIEW {schema_name}.V (c COMMENT 'it\\'s') TBLPROPERTIES "
        "('catalog_migrate.id' = 'u1', 'other' = 'a, [b]') AS SELECT 1 AS c\n-- View Text: x\n"
    )
    seen = registrations.observe(schema_name)
    assert {each.name.name for each in seen} == {"away", "managed", "v"}
    assert [registrations.find(each.name) for each in seen] == seen
    spark.sql("CREATE TEMPORARY VIEW gone AS SELECT 1 AS c")
    try:
        assert registrations.find(ItemName(schema_name, "gone")) is None
    finally:
        spark.catalog.dropTempView("gone")
    assert registrations.find(ItemName("nowhere", "away")) is None
