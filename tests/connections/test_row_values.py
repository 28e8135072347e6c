"""Where an error of PostgreSQL was, by what a real server says."""

from __future__ import annotations

from typing import TYPE_CHECKING

import psycopg
import pytest

from catalog_migrate.connectors.row_values import of_postgres, place_in

if TYPE_CHECKING:
    from tests.services.postgres import PostgresServer

pytestmark = pytest.mark.services


def copy_text(postgres: PostgresServer, table: str, column: str) -> None:
    """Copy a number and a text into a column of numbers."""
    with postgres.connect("app", "shop") as connection:
        connection.execute(f'CREATE TEMPORARY TABLE "{table}" ("{column}" int)'.encode())
        with connection.cursor().copy(f'COPY "{table}" FROM STDIN'.encode()) as copy:
            copy.write("1\nprivate\n")


@pytest.mark.parametrize(("table", "column"), [
    ("plain", "amount"), ("two words", "amount due"), ("a:b", "c:d, line 7"),
])
def test_the_place_of_a_refused_copy(
    postgres: PostgresServer, table: str, column: str
) -> None:
    """Table and column are named whatever they are called, and the value is not."""
    with pytest.raises(psycopg.Error) as caught:
        copy_text(postgres, table, column)
    assert place_in(caught.value) == {"table": table, "column": column}
    assert of_postgres(caught.value) == (
        f"InvalidTextRepresentation (22P02): table {table}, column {column}"
    )
