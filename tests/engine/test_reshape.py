"""Columns renamed, dropped and moved in place: the same assertions on both engines."""

from __future__ import annotations

import pytest

from catalog_migrate.engine.port import Engine, ShardSpec
from catalog_migrate.errors import EngineFailure
from catalog_migrate.model.layout import Layout, PlacedColumn, Shape
from catalog_migrate.model.objects import Check, Column
from tests.engine import direct

A, B, C = Column("a", "BIGINT", False), Column("b", "STRING"), Column("c", "STRING")
PLACED = (
    PlacedColumn("a", "a", "BIGINT"), PlacedColumn("b", "b", "STRING"),
    PlacedColumn("c", "c", "STRING"),
)


class Shards:
    """An engine with shards of three columns, rows appended by a foreign writer, and reads."""

    def __init__(self, engine: Engine, warehouse: str, append, rows) -> None:
        self.engine, self.warehouse, self.append, self.rows = engine, warehouse, append, rows

    def append_as(self, path: str, row: dict[str, tuple[str, object]]) -> None:
        """Append one row as a writer does that has columns of its own in mind: type and value."""
        values = [{name: value for name, (_, value) in row.items()}]
        self.append(path, values, {name: type_ for name, (type_, _) in row.items()})

    def shard(self, name: str, columns=(A, B, C), **more) -> str:
        path = f"{self.warehouse}/s/{name}"
        self.engine.create_shard(ShardSpec(path, columns, **more))
        return path

    def evolve(self, path: str, columns, shape: Shape) -> None:
        self.engine.evolve(path, columns, ShardSpec(path, columns), shape)

    def names(self, path: str) -> list[str]:
        return [column.name for column in self.engine.shard_columns(path)]


@pytest.fixture(params=[pytest.param("spark", marks=pytest.mark.spark), "simulated"])
def shards(request, warehouse):
    if request.param == "simulated":
        from catalog_migrate.testing.engine import SimulatedEngine

        simulated = SimulatedEngine()
        world = simulated.world

        def rows(path):
            names = [column.name.lower() for column in world.newest(path).columns]
            return sorted((tuple(row[n] for n in names) for row in world.rows(path)), key=str)

        def append(path, rows, types=None):
            world.append(path, rows)

        return Shards(simulated, warehouse, append, rows)
    from catalog_migrate.engine.spark.engine import SparkEngine

    spark = request.getfixturevalue("spark")
    engine = SparkEngine(spark)

    def append(path, rows, types=None):
        if types is None and not engine.shard_layout(path).mapped:  # which delta-rs cannot write
            direct.append(path, rows)
            return
        types = types or {c.name: c.type for c in engine.shard_columns(path)}
        schema = ", ".join(f"{name} {types[name]}" for name in rows[0])
        frame = spark.createDataFrame([tuple(row.values()) for row in rows], schema)
        frame.write.format("delta").mode("append").save(path)

    def read(path):
        return sorted(map(tuple, spark.read.format("delta").load(path).collect()), key=str)

    return Shards(engine, warehouse, append, read)


def test_a_shard_without_mapping_is_laid_out_by_its_names(shards):
    """Physical names are the names until column mapping is on."""
    assert shards.engine.shard_layout(shards.shard("t")) == Layout(False, PLACED)


def test_columns_are_renamed_dropped_added_and_moved_in_place(shards):
    """One evolve with a shape keeps the rows under their new names; a repetition does nothing.

    Afterwards the shard is sealed, unsealed, appended to, copied and evolved like any other.
    """
    engine, path = shards.engine, shards.shard("t")
    shards.append(path, [{"a": 1, "b": "x", "c": "y"}])
    columns = (Column("d", "INT"), C, Column("key", "BIGINT", False, comment="was a"))
    shape = Shape(
        (PlacedColumn("", "d", "INT"), PLACED[2], PlacedColumn("a", "key", "BIGINT")), ("b",)
    )
    shards.evolve(path, columns, shape)
    assert tuple(engine.shard_columns(path)) == columns
    assert shards.rows(path) == [(None, "y", 1)]
    layout = engine.shard_layout(path)
    assert layout.mapped
    assert [(c.physical, c.name) for c in layout.columns[1:]] == [("c", "c"), ("a", "key")]
    version = engine.shard_version(path)
    shards.evolve(path, columns, shape)
    assert engine.shard_version(path) == version

    target = shards.shard("copy", columns)
    projection = [(c.name, f"`{c.name}`") for c in columns]
    engine.copy_rows(path, version, target, projection)
    shards.append(path, [{"d": 7, "c": "z", "key": 2}])
    before = engine.seal_properties(path)
    sealed = engine.seal(path, follows=version + 1, app_id="catalog_migrate/test", epoch=1)
    engine.copy_tail(path, version, sealed, target, projection)
    assert shards.rows(target) == [(7, "z", 2), (None, "y", 1)]
    with pytest.raises(Exception, match=r"(?i)seal|constraint"):
        shards.append(path, [{"d": 8, "c": "z", "key": 3}])
    engine.fence(path, "catalog_migrate/test", 3)
    engine.unseal(path, before)
    more = (*columns, Column("e", "INT", comment="later"))
    engine.evolve(path, more, ShardSpec(path, more))
    assert tuple(engine.shard_columns(path)) == more
    assert engine.shard_size(path)[0] == 2
    engine.truncate_shard(path)
    assert shards.rows(path) == []


def test_a_swap_that_stopped_half_way_is_finished_by_physical_names(shards):
    """After any part of a swap, repeating it ends with each value under the other's name."""
    path = shards.shard("t")
    shards.append(path, [{"a": 1, "b": "of b", "c": "of c"}])
    swapped = Shape((PLACED[0], PlacedColumn("c", "b", "STRING"), PlacedColumn("b", "c", "STRING")))
    shards.evolve(
        path, (A, Column("catalog_migrate_moving_1", "STRING"), B),
        Shape((
            PLACED[0], PlacedColumn("b", "catalog_migrate_moving_1", "STRING"),
            PlacedColumn("c", "b", "STRING"),
        )),
    )
    for _ in range(2):
        shards.evolve(path, (A, B, C), swapped)
        assert shards.names(path) == ["a", "b", "c"]
        assert shards.rows(path) == [(1, "of c", "of b")]


def refused(shards, path: str, columns, shape: Shape) -> str | None:
    """The condition that evolving a shadow table of the shard is refused with; the shard stays."""
    before = shards.engine.shard_layout(path), shards.engine.shard_version(path)
    shadow = f"{path}-twin"
    shards.engine.create_shadow_table(path, shadow)
    shards.engine.create_shadow_table(path, shadow)
    assert shards.engine.shard_layout(shadow) == before[0]
    assert shards.engine.shard_size(shadow)[0] == 0
    with pytest.raises(EngineFailure) as caught:
        shards.evolve(shadow, columns, shape)
    assert not caught.value.transient
    assert (shards.engine.shard_layout(path), shards.engine.shard_version(path)) == before
    return caught.value.condition


def test_a_column_under_a_check_is_refused_on_the_shadow_table(shards):
    """The shadow table has the CHECK, so it refuses what the shard would refuse, and the shard
    stays."""
    path = shards.shard("t", checks=(Check("positive", "a > 0"),))
    shards.append(path, [{"a": 1, "b": "x", "c": "y"}])
    condition = refused(
        shards, path, (Column("key", "BIGINT", False), B, C),
        Shape((PlacedColumn("a", "key", "BIGINT"), *PLACED[1:])),
    )
    assert condition == "DELTA_CONSTRAINT_DEPENDENT_COLUMN_CHANGE"


def test_a_dropped_name_that_comes_again_is_another_column(shards):
    """Its physical name is new, so nothing of the first shows, and the drop is not repeated on it.

    In a change of its own, as a later release makes it, and in the very change that drops the
    first; a NOT NULL column goes like any other.
    """
    engine, path = shards.engine, shards.shard("t", (A, Column("b", "STRING", False), C))
    shards.append(path, [{"a": 1, "b": "old", "c": "y"}])
    dropped = Shape((PLACED[0], PLACED[2]), ("b",))
    shards.evolve(path, (A, C), dropped)
    assert shards.rows(path) == [(1, "y")]
    again = (A, C, B)
    engine.evolve(path, again, ShardSpec(path, again))
    shards.append(path, [{"a": 2, "c": "z", "b": "new"}])
    rows = [(1, "y", None), (2, "z", "new")]
    assert shards.rows(path) == rows
    layout = engine.shard_layout(path)
    assert [c.name for c in layout.columns] == ["a", "c", "b"]
    assert layout.columns[2].physical != "b"
    shards.evolve(path, again, Shape((PLACED[0], PLACED[2], layout.columns[2]), ("b",)))
    assert (engine.shard_layout(path), shards.rows(path)) == (layout, rows)

    at_once = Shape(
        (PLACED[0], PLACED[2], PlacedColumn("", "b", "INT")), (layout.columns[2].physical,)
    )
    other = (A, C, Column("b", "INT"))
    for _ in range(2):
        shards.evolve(path, other, at_once)
        assert tuple(engine.shard_columns(path)) == other
        assert shards.rows(path) == [(1, "y", None), (2, "z", None)]


def test_rows_appended_around_a_drop_are_kept_or_refused(shards):
    """By the old columns until the drop, refused behind it; by the new ones they go on."""
    path = shards.shard("t")
    shards.append(path, [{"a": 1, "b": "x", "c": "y"}])
    shards.evolve(path, (A, B, C), Shape((PLACED[0], PLACED[1], PLACED[2])))
    renamed = (A, Column("k", "STRING"))
    shards.evolve(path, renamed, Shape((PLACED[0], PlacedColumn("c", "k", "STRING")), ("b",)))
    with pytest.raises(Exception, match=r"(?i)schema|no column|mismatch"):
        shards.append_as(path, {"a": ("BIGINT", 2), "b": ("STRING", "x"), "c": ("STRING", "y")})
    shards.append(path, [{"a": 3, "k": "z"}])
    assert shards.rows(path) == [(1, "y"), (3, "z")]


def test_a_partition_column_is_not_dropped(shards):
    """The shadow table has the partitions of the shard."""
    path = shards.shard("t", partitioned_by=("c",))
    assert refused(shards, path, (A, B), Shape(PLACED[:2], ("c",))) == (
        "DELTA_UNSUPPORTED_DROP_PARTITION_COLUMN"
    )


def test_a_shadow_table_takes_what_the_shard_takes(shards):
    """A sequence that the shadow table accepts is accepted by the shard, mapped before or not."""
    path = shards.shard("t")
    shards.append(path, [{"a": 1, "b": "x", "c": "y"}])
    for names, gone in ((("k", "b", "c"), ()), (("k", "c"), ("b",))):
        kept = [c for c in shards.engine.shard_layout(path).columns if c.physical not in gone]
        shape = Shape(
            tuple(PlacedColumn(c.physical, n, c.type) for c, n in zip(kept, names, strict=True)),
            gone,
        )
        columns = tuple(Column(c.name, c.type, c.physical != "a") for c in shape.columns)
        for place in (f"{path}-{len(names)}", path):
            if place != path:
                shards.engine.create_shadow_table(path, place)
            shards.evolve(place, columns, shape)
            assert shards.names(place) == list(names)
    assert shards.rows(path) == [(1, "y")]


def test_a_shard_that_others_changed_is_refused(shards):
    """A column that the shape keeps and the shard has not is no matter of a name."""
    path = shards.shard("t", (A, B))
    with pytest.raises(EngineFailure) as caught:
        shards.evolve(path, (A, B, C), Shape(PLACED))
    assert caught.value.condition == "SHARD_LAYOUT_CHANGED"
    assert shards.names(path) == ["a", "b"]
