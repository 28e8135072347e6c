"""Users' views and functions over a part of PostgreSQL's catalog, through its releases."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.crash.conftest import FIXTURES, SCHEMAS, reduced
from tests.users.postgres_users import FIVE, Users, tell

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


@pytest.fixture(params=["spark", pytest.param("spark_connect", marks=pytest.mark.soak)])
def users(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Users]:
    """Five views and a function; names of this test are not there before, nor afterwards."""
    spark: SparkSession = request.getfixturevalue(request.param)
    # before 4.2 Spark shows no body of a function, so what it is cannot be compared
    views = [name for name in FIVE if spark.version >= "4.2" or name != "team.columns_of"]
    users = Users(spark, tmp_path / "catalog", only=views)

    def forget() -> None:
        users.forget()
        for schema in SCHEMAS:
            spark.sql(f"DROP DATABASE IF EXISTS `{schema}` CASCADE")

    forget()
    yield users
    forget()


def test_what_was_said_beforehand_is_what_is_afterwards(users: Users, tmp_path: Path) -> None:
    """15, 16, back to 15, then 18: every object and column, in the plan, the start and status."""
    releases: dict[int, Path] = {}
    for version in (15, 16, 18):
        releases[version] = tmp_path / f"{version}.json"
        reduced(FIXTURES / f"{version}.json", releases[version])
    assert list(tell(users, releases, (16, 15, 18))) == [
        ("15 to 16", []), ("16 to 15", []), ("15 to 18", []),
    ]
