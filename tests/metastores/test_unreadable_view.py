"""A view that nobody can read among a hundred others of a schema."""

from __future__ import annotations

import pytest

from tests.metastores.conftest import Process
from tests.services.metastore import HiveMetastore
from tests.services.postgres import PostgresServer

pytestmark = [pytest.mark.spark, pytest.mark.soak]
_OF_VIEW = """
WHERE "PARAM_KEY" = 'spark.sql.sources.schema' AND "TBL_ID" = (
  SELECT "TBL_ID" FROM "TBLS" JOIN "DBS" USING ("DB_ID") WHERE "NAME" = %s AND "TBL_NAME" = %s
)
"""


def test_one_broken_entry_hides_no_other_view(
    applications: list[Process], metastore: HiveMetastore, postgres: PostgresServer,
    schema_name: str,
) -> None:
    """Spark refuses a listing with it as a whole; it alone is unread, the others keep their texts.

    Nullability and types come from the metastore as they were stored.
    """
    application, s = applications[0], schema_name
    application.do("sql", f"CREATE SCHEMA {s}")
    application.do("sql", f"CREATE TABLE {s}.t (id BIGINT NOT NULL, s STRUCT<a: INT>) USING delta")
    for number in range(105):
        made = application.do(
            "sql", f"CREATE VIEW {s}.v{number} AS SELECT id, s FROM {s}.t WHERE id > {number}"
        )
        assert made == []
    database = metastore.database
    row = [s, "v77"]
    ((stored,),) = postgres.execute(
        f'SELECT "PARAM_VALUE" FROM "TABLE_PARAMS" {_OF_VIEW}', row, database=database
    )
    put = f'UPDATE "TABLE_PARAMS" SET "PARAM_VALUE" = %s {_OF_VIEW}'
    postgres.execute(put, ["{nonsense", *row], database=database)
    try:
        found = {each["name"][1]: each for each in application.do("user_definitions", s)}
    finally:
        postgres.execute(put, [stored, *row], database=database)
    assert len(found) == 105
    assert [name for name, each in found.items() if each["unread"]] == ["v77"]
    assert found["v77"]["unread"].startswith("it cannot be read: ")
    assert found["v78"]["sql"] == f"SELECT id, s FROM {s}.t WHERE id > 78"
    columns = [(c["name"], c["type"], c.get("nullable", True)) for c in found["v78"]["columns"]]
    assert columns == [("id", "BIGINT", False), ("s", "STRUCT<a: INT>", True)]
    again = application.do("user_definitions", s)
    assert [each for each in again if each["unread"]] == []
