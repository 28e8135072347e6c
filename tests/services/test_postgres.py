"""The PostgreSQL server of the tests does to its clients what a real one does."""

from __future__ import annotations

from typing import TYPE_CHECKING

import psycopg
import pytest

if TYPE_CHECKING:
    from tests.services.postgres import PostgresServer

pytestmark = pytest.mark.services


def test_a_user_writes_and_reads(postgres: PostgresServer, table_name: str) -> None:
    """The user made for the tests owns what it creates, and values go in by parameters."""
    where = {"user": "app", "database": "shop"}
    postgres.execute(f"CREATE TABLE {table_name} (id INT)", **where)
    postgres.execute(f"INSERT INTO {table_name} VALUES (%s), (%s)", [1, 2], **where)
    rows = postgres.execute(f"SELECT id FROM {table_name} ORDER BY id", **where)
    assert rows == [(1,), (2,)]
    assert postgres.execute("SHOW server_version")[0][0].startswith("18.")


def test_a_moved_server_is_the_same_at_another_port(
    postgres: PostgresServer, table_name: str
) -> None:
    """After a move the old port refuses; identity, data and passwords are the same."""
    postgres.execute(f"CREATE TABLE {table_name} AS SELECT 7 AS id")
    old = postgres.parameters()
    identity = postgres.system_identifier
    postgres.move()
    assert postgres.port != old["port"]
    with pytest.raises(psycopg.OperationalError, match="refused"):
        psycopg.connect(**old)
    assert postgres.system_identifier == identity
    assert postgres.execute(f"SELECT id FROM {table_name}") == [(7,)]


def test_a_changed_password_ends_connections_when_asked(
    postgres: PostgresServer, user_name: str
) -> None:
    """The old password is refused at once; a live connection ends only with ``disconnect``."""
    postgres.create_user(user_name, "one")
    old = postgres.parameters(user_name)
    with postgres.connect(user_name) as live:
        postgres.set_password(user_name, "two")
        with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
            psycopg.connect(**old)
        assert live.execute("SELECT 1").fetchall() == [(1,)]
        postgres.set_password(user_name, "three", disconnect=True)
        with pytest.raises(psycopg.OperationalError):
            live.execute("SELECT 1")
    assert postgres.execute("SELECT 1", user=user_name) == [(1,)]
