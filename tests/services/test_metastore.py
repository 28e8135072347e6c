"""The metastore of the tests keeps names on PostgreSQL, and listens to this machine alone."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.services.metastore import HiveMetastore
    from tests.services.postgres import PostgresServer

pytestmark = [pytest.mark.services, pytest.mark.soak]


def test_it_listens_on_the_loopback(metastore: HiveMetastore, postgres: PostgresServer) -> None:
    """One address is bound, not all of them; after a kill its schemas are still there."""
    socket.create_connection(("127.0.0.1", metastore.port), 5).close()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.2", metastore.port), 5)
    metastore.kill()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", metastore.port), 5)
    metastore.start()
    schemas = postgres.execute('SELECT "NAME" FROM "DBS"', database=metastore.database)
    assert ("default",) in schemas
