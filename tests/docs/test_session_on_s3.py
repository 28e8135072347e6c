"""The recipe of docs/object-stores.md for a session of one's own, as it is written there."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.services.object_store import ObjectStore

ROOT = Path(__file__).parents[2]

START = """
spark.conf.set("spark.sql.ansi.enabled", "true")
spark.conf.set("spark.sql.ansi.enforceReservedKeywords", "true")
import sys
from catalog_migrate.api import Catalog
from catalog_migrate.engine.spark.engine import SparkEngine
from catalog_migrate.hook import bootstrap
from catalog_migrate.release.loader import load_texts

bucket = sys.argv[1]

def start(name, type_, more):
    release = load_texts([("a.sql", f'''
        CREATE TABLE s.orders (id {type_}, `user` STRING{more});
        CREATE VIEW s.`select` (`user` STRING) AS SELECT `user` FROM s.orders;
        CREATE FUNCTION s.f(x INT) RETURNS INT RETURN x + {name};
    ''')], name=name)
    return bootstrap(
        spark, release=release, catalog=f"{bucket}/catalog", warehouse=f"{bucket}/rows",
    ).outcome

print(start("1", "BIGINT", ""))
spark.sql("INSERT INTO s.orders VALUES (1, 'a')")
print(start("2", "INT USING CAST(id AS INT)", ", `order` INT"))
print(start("2", "INT USING CAST(id AS INT)", ", `order` INT"))
print(Catalog.open(f"{bucket}/catalog").drift(SparkEngine(spark)))
print(tuple(spark.table("s.orders").collect()[0]), spark.sql("SELECT s.f(1)").first()[0])
spark.stop()
"""


@pytest.mark.spark
@pytest.mark.services
def test_the_recipe_makes_a_session_that_upgrades(
    object_store: ObjectStore, bucket: str, tmp_path: Path
) -> None:
    """Jars, endpoint and credentials are in it; the session also enforces reserved keywords."""
    page = (ROOT / "docs" / "object-stores.md").read_text(encoding="utf-8")
    recipe = re.search(r"```python\n(.*?)```", page, re.DOTALL)
    assert recipe is not None
    done = subprocess.run(
        [sys.executable, "-c", recipe[1] + START, bucket], cwd=tmp_path, text=True,
        capture_output=True,
        env={**os.environ, **{n.upper(): value for n, value in object_store.options.items()},
             "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert done.stdout.splitlines()[-5:] == [
        "initialized", "migrated", "unchanged", "()", "(1, 'a', None) 3"
    ], done.stderr[-3000:]
