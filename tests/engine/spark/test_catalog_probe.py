"""What a catalog of names must be able to do is tried on it, and what it lacks is told."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from catalog_migrate.api.configured import use_catalog
from catalog_migrate.api.doctor import probed
from catalog_migrate.config import load
from catalog_migrate.engine.spark.engine import SparkEngine
from catalog_migrate.errors import CatalogUnfit, UnsuitableSession
from catalog_migrate.hook import bootstrap

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

DELTA = "org.apache.spark.sql.delta.catalog.DeltaCatalog"
JDBC = "org.apache.spark.sql.execution.datasources.v2.jdbc.JDBCTableCatalog"


@pytest.fixture
def other(spark: SparkSession) -> SparkSession:
    """A session beside that of the run, which knows two catalogs more."""
    conf = {
        "second": DELTA, "derby": JDBC, "derby.driver": "org.apache.derby.jdbc.EmbeddedDriver",
        "derby.url": "jdbc:derby:memory:probe;create=true",
    }
    session = spark.newSession()
    for name, value in conf.items():
        session.conf.set(f"spark.sql.catalog.{name}", value)
    return session


def test_doctor_tells_what_a_catalog_can_do(spark: SparkSession, tmp_path: Path) -> None:
    """Each requirement with what follows; the schema is named, and nothing of it is left."""
    settings = load(tmp_path, env={}, flags={"catalog.warehouse": str(tmp_path)})
    said = probed(SparkEngine(spark), settings)
    schema = re.search(r"catalog_migrate_probe_\w+", said)
    assert schema is not None
    assert said == (
        f"spark_catalog, tried in the schema {schema[0]}, which is dropped again; a schema: yes"
        " (any name); external tables with a location: yes (tables); rows by their path: yes"
        " (copies and changes in place); views with properties: yes (views, and telling ours from"
        " others'); SHOW TABLE EXTENDED: yes (upgrades, drift and its repair); SQL functions with"
        " comments: yes (functions); dropping: yes (objects that go, and all that is replaced);"
        " names end with the session"
    )
    assert schema[0] not in {row[0] for row in spark.sql("SHOW SCHEMAS").collect()}
    assert list(tmp_path.iterdir()) == []


def test_a_catalog_that_lacks_what_is_needed_is_refused(
    other: SparkSession, tmp_path: Path
) -> None:
    """A database behind JDBC has no table at a location: a start says so before it writes."""
    (tmp_path / "release").mkdir()
    (tmp_path / "release" / "a.sql").write_text("CREATE TABLE s.t (a INT);")
    use_catalog(other, load(tmp_path, env={}, flags={"spark.catalog": "derby"}))
    with pytest.raises(CatalogUnfit) as caught:
        bootstrap(other, release=tmp_path / "release", catalog=tmp_path / "catalog")
    assert caught.value.code == "CM0405"
    assert caught.value.message.startswith("the catalog derby cannot have the names of a release")
    lacks = {"external tables with a location", "views with properties", "SHOW TABLE EXTENDED"}
    assert lacks <= {each.name for each in caught.value.probe.lacking}
    assert not (tmp_path / "catalog").exists()


@pytest.mark.parametrize(("name", "why"), [
    ("nobody", "[CATALOG_NOT_FOUND] "), ("second", "NullPointerException"),
])
def test_a_catalog_that_cannot_be_used_is_refused(
    other: SparkSession, tmp_path: Path, name: str, why: str
) -> None:
    """One that nobody defines; Delta's own under another name, for it stands on Spark's alone."""
    with pytest.raises(UnsuitableSession) as caught:
        use_catalog(other, load(tmp_path, env={}, flags={"spark.catalog": name}))
    assert caught.value.message.startswith(f"cannot use the catalog {name} (spark.catalog): ")
    assert why in caught.value.message
    assert f"spark.sql.catalog.{name}" in (caught.value.remedy or "")
    if name == "second":
        with pytest.raises(UnsuitableSession, match="ask for the session's current catalog"):
            SparkEngine(other)
