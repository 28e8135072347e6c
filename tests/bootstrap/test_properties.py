"""Properties of tables through three releases on real Spark: set, left out, set again, with rows.

Each property is on a new table, then comes to a table with rows and a deletion vector, and is left
out again; after every start every table takes INSERT and DELETE and has every row.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from catalog_migrate.delta.table import form_of, set_properties_after, view_table
from catalog_migrate.engine.port import ShardSpec
from catalog_migrate.engine.spark.shards import Shards
from catalog_migrate.errors import EngineFailure
from catalog_migrate.hook import rollback
from catalog_migrate.model.objects import Column
from catalog_migrate.model.table_properties import FEATURES, KNOWN, features_of

pytestmark = pytest.mark.spark

SAMPLE: Mapping[str, Mapping[str, str]] = {
    "tracking": {"delta.enableRowTracking": "true"},
    "timed": {"delta.enableInCommitTimestamps": "true"},
    "mapped": {"delta.columnMapping.mode": "name"},
    "iceberg": {"delta.enableIcebergCompatV2": "true"},
    "plain": {"my.prop": "x", "delta.appendOnly": "false", "delta.logRetentionDuration": "9 days"},
}
"""One of each way, by the name of its tables."""
ALL: Mapping[str, Mapping[str, str]] = {
    **SAMPLE,
    "by_id": {"delta.columnMapping.mode": "id"},
    "widening": {"delta.enableTypeWidening": "true"},
    "vectors": {"delta.enableDeletionVectors": "true"},
    "changes": {"delta.enableChangeDataFeed": "true"},
    "captured": {"delta.enableChangeDataCapture": "true"},
    "checkpoints": {"delta.checkpointPolicy": "v2"},
    "iceberg_1": {"delta.enableIcebergCompatV1": "true"},
    "iceberg_3": {"delta.enableIcebergCompatV3": "true"},
    "shredded": {"delta.enableVariantShredding": "true"},
    "materialised": {"delta.enableMaterializePartitionColumnsFeature": "true"},
    "many": {
        "delta.enableRowTracking": "true", "delta.enableDeletionVectors": "true",
        "delta.enableChangeDataFeed": "true", "delta.columnMapping.mode": "name",
    },
    "by_feature": {"delta.feature.rowTracking": "supported"},
    "timed_by_feature": {"delta.feature.inCommitTimestamp": "supported"},
}

VISIBLE = frozenset(key for properties in ALL.values() for key in properties) - {
    "delta.columnMapping.mode", "delta.enableDeletionVectors", "delta.enableRowTracking",
}
"""What only releases set here: the user sets another, and Iceberg compatibility the rest."""


def table(name: str, properties: Mapping[str, str]) -> str:
    """One table of a release."""
    pairs = ", ".join(f"'{key}' = '{value}'" for key, value in properties.items())
    return f"CREATE TABLE {{s}}.{name} (id INT, a STRING)" + (f" WITH ({pairs});" if pairs else ";")


def release_of(shop: Any, number: str, tables: Mapping[str, Mapping[str, str]]) -> Any:
    """A release of these tables alone."""
    texts = "\n".join(table(name, properties) for name, properties in tables.items())
    return shop.release(number, orders=texts, tags=None, big=None, doubled=None)


def ids(shop: Any, name: str) -> list[int]:
    """The ids of a table's rows, sorted."""
    return [row["id"] for row in shop.rows(name)]


def use(shop: Any, name: str, number: int) -> None:
    """Insert a row and delete another one, as an application does."""
    shop.spark.sql(f"INSERT INTO {shop.schema}.{name} VALUES ({100 + number}, 'new')")
    shop.spark.sql(f"DELETE FROM {shop.schema}.{name} WHERE id = {number}")


def require_properties(shop: Any, name: str, properties: Mapping[str, str]) -> None:
    """The table has these properties of all that a release can set, and what they bring."""
    form = form_of(view_table(shop.shard(name)))
    kept = {key: value for key, value in form.configuration.items() if key in VISIBLE}
    for key in ("delta.columnMapping.mode", "delta.enableRowTracking"):
        if key in properties:
            kept[key] = form.configuration.get(key, "")
    assert kept == {
        key: value for key, value in properties.items()
        if not key.startswith("delta.feature.") and key != "delta.enableDeletionVectors"
    }, name
    if form.features:
        brought = {each for item in properties.items() for each in features_of(*item)}
        assert brought <= form.features, name


@pytest.mark.parametrize(
    "cases", [SAMPLE, pytest.param(ALL, marks=pytest.mark.soak)], ids=["sample", "all"]
)
def test_properties_come_and_go(shop: Any, cases: Mapping[str, Mapping[str, str]]) -> None:
    """New, on a table with rows and a deletion vector, left out, and back again."""
    new = {f"n_{name}": properties for name, properties in cases.items()}
    old = {f"e_{name}": properties for name, properties in cases.items()}
    bare: dict[str, Mapping[str, str]] = {name: {} for name in [*new, *old]}
    shop.start(release_of(shop, "1", bare | new))
    for name in bare:
        shop.spark.sql(
            f"INSERT INTO {shop.schema}.{name} SELECT /*+ COALESCE(1) */ id, 'x' FROM range(1, 9)"
        )
        if name in old:
            place = f"{shop.schema}.{name}"
            shop.spark.sql(
                f"ALTER TABLE {place} SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')"
            )
        use(shop, name, 1)
        require_properties(shop, name, new.get(name, {}))

    for number, tables in ((2, bare | old), (3, bare | new)):
        report = shop.start(release_of(shop, str(number), tables))
        assert report.outcome == "migrated"
        for name in bare:
            use(shop, name, number)
            rows = [*range(number + 1, 9), *range(101, 101 + number)]
            assert ids(shop, name) == rows, name
            require_properties(shop, name, tables[name])
        again = shop.start(release_of(shop, str(number), tables))
        assert again.outcome == "unchanged"


CASES = Path(__file__).parents[2].parent / "shared" / "cases" / "migration"


def case(shop: Any, names: Mapping[str, str], number: int) -> Any:
    """A release of cases that were once handed in, each on a table of its own."""
    found = []
    for name, folder in names.items():
        file = CASES / folder / f"release{number}.sql"
        found.append(file.read_text(encoding="utf-8").replace("TABLE t ", f"TABLE {{s}}.{name} "))
    return shop.release(str(number), orders="\n".join(found), tags=None, big=None, doubled=None)


def test_cases_that_were_handed_in(shop: Any) -> None:
    """Row tracking and column mapping come to rows that are there; what is left out goes.

    What a user set by hand stays, and a table that an earlier version left without its feature
    is put right by the next release.
    """
    names = {"broken": "property_breaks_table", "kept": "property_never_dropped",
             "mapped": "column_mapping_property"}
    shop.start(case(shop, names, 1))
    for name in names:
        shop.spark.sql(f"INSERT INTO {shop.schema}.{name} VALUES (1, 'x'), (2, 'y'), (3, 'z')")
    shop.spark.sql(f"ALTER TABLE {shop.schema}.kept SET TBLPROPERTIES ('hers' = '1')")
    places = {name: shop.shard(name) for name in names}

    release = case(shop, names, 2)
    plan = shop.open().plan(release)
    assert [step.describe().partition(f"{shop.schema}.")[::2] for step in plan.steps] == [
        ("evolve table ", "broken"), ("evolve table ", "kept"), ("evolve table ", "mapped"),
        ("set properties of table ", "broken"), ("set properties of table ", "mapped"),
    ]
    report = shop.start(release)
    assert (report.outcome, {name: shop.shard(name) for name in names}) == ("migrated", places)
    for name in names:
        use(shop, name, 1)
        assert ids(shop, name) == [2, 3, 101], name
    configuration = form_of(view_table(places["kept"])).configuration
    ours = {key for key in configuration if key.startswith("catalog_migrate.")}
    assert configuration.keys() - ours == {"hers"}

    version = view_table(places["kept"]).version()
    wrong = {"delta.enableRowTracking": "true"}  # metadata alone, as this tool once wrote it
    assert set_properties_after(places["kept"], wrong, follows=version) == version + 1
    texts: dict[str, Mapping[str, str]] = {
        "broken": {}, "mapped": {"delta.columnMapping.mode": "name"},
        "kept": {"delta.enableRowTracking": "true"},
    }
    shop.start(release_of(shop, "3", texts))
    for name in names:
        use(shop, name, 2)
        assert ids(shop, name) == [3, 101, 102], name

    before = report.serial
    assert before is not None
    rollback(shop.spark, to=before, catalog=shop.catalog)
    for name in names:
        configuration = form_of(view_table(shop.shard(name))).configuration
        tracked = configuration.get("delta.enableRowTracking") == "true"
        assert (name, tracked) == (name, name == "broken")
        use(shop, name, 3)
        assert ids(shop, name) == [101, 102, 103], name


def test_a_table_that_is_read_and_changed(shop: Any) -> None:
    """FILLED FROM seals it for a moment; its properties are as the release has them afterwards."""
    one = "CREATE TABLE {s}.t (id INT, a STRING) WITH ('delta.appendOnly' = 'true');"
    two = "CREATE TABLE {s}.t (id INT, a STRING) WITH ('delta.enableRowTracking' = 'true');"
    filled = "CREATE TABLE {s}.f (id INT) FILLED FROM (SELECT id FROM {s}.t);"
    others = dict.fromkeys(("tags", "big", "doubled"))
    shop.start(shop.release("1", orders=one, **others))
    shop.spark.sql(f"INSERT INTO {shop.schema}.t VALUES (1, 'x'), (2, 'y')")
    place = shop.shard("t")
    report = shop.start(shop.release("2", orders=two + filled, **others))
    assert (report.outcome, shop.shard("t"), ids(shop, "f")) == ("migrated", place, [1, 2])
    configuration = form_of(view_table(place)).configuration
    assert configuration.get("delta.enableRowTracking") == "true"
    assert "delta.appendOnly" not in configuration
    use(shop, "t", 1)
    assert ids(shop, "t") == [2, 101]


def values_of(scala_map: Any) -> list[Any]:
    """The values of a map of Scala."""
    found, each = [], scala_map.valuesIterator()
    while each.hasNext():
        found.append(each.next())
    return found


def test_the_list_is_that_of_delta(spark: Any) -> None:
    """No property and no feature of the installed Delta is missing or invented."""
    delta = spark._jvm.org.apache.spark.sql.delta
    configs = getattr(getattr(delta, "DeltaConfigs$"), "MODULE$").getAllConfigs()
    elsewhere = {  # Delta knows them by other lists: of columns, of materialised row tracking
        "delta.generationExpression", "delta.rowTracking.materializedRowCommitVersionColumnName",
        "delta.rowTracking.materializedRowIdColumnName",
    }
    keys = {known.key for known in KNOWN.values()}
    assert {config.key() for config in values_of(configs)} == keys - elsewhere
    assert elsewhere < keys

    features = getattr(getattr(delta, "TableFeature$"), "MODULE$").allSupportedFeaturesMap()
    names = {feature.name() for feature in values_of(features)}
    not_by_name = {"catalogManaged", "clustering", "coordinatedCommits-preview"}
    experimental = {
        "adaptiveMetadata-preview", "geospatial", "geospatial-dev", "typeWidening-preview",
        "variantShredding-preview", "variantType-preview",
    }
    assert names == {*FEATURES.values()} | not_by_name | experimental


def test_a_protocol_that_contradicts_itself_is_a_typed_error(tmp_path: Path) -> None:
    """delta-rs panics on it, which no ``except Exception`` catches."""
    spec = ShardSpec(
        str(tmp_path / "t"), [Column(name="id", type="INT")],
        properties={"delta.minReaderVersion": "3"},
    )
    with pytest.raises(EngineFailure, match="cannot create the shard") as caught:
        Shards(None).create_shard(spec)
    assert caught.value.condition == "PanicException"
