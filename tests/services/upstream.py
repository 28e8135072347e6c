"""A database whose changes are read, on the run's PostgreSQL, with a role that may read them."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

from catalog_migrate.connectors.secrets import Secret

if TYPE_CHECKING:
    from tests.services.postgres import PostgresServer

_numbers = itertools.count(1)


class Upstream:
    """A database whose changes are read: statements, slots, and the options to connect by."""

    def __init__(self, server: PostgresServer) -> None:
        number = next(_numbers)
        self.server = server
        self.database, self.role = f"upstream{number}", f"reader{number}"
        self.password = f"pg-marker-{number}-of-upstream"
        server.create_database(self.database)
        server.create_user(self.role, self.password, replication=True)
        self.sql(f"GRANT CREATE ON DATABASE {self.database} TO {self.role}", owner=True)

    @property
    def connection(self) -> dict[str, Any]:
        """Effective options of a connection as the role, at the server's present address."""
        return {
            "HOST": "127.0.0.1",
            "PORT": str(self.server.port),
            "DATABASE": self.database,
            "USER": self.role,
            "PASSWORD": Secret(self.password),
            "SSL MODE": "disable",
        }

    def sql(self, *statements: str, owner: bool = False) -> list[tuple[Any, ...]]:
        """Run statements as the role, or as the server's owner; the rows of the last."""
        rows: list[tuple[Any, ...]] = []
        who = {} if owner else {"user": self.role}
        for statement in statements:
            rows = self.server.execute(statement, database=self.database, **who)
        return rows

    def slot(self, name: str) -> str:
        """A name for a slot: slots of all databases share one list."""
        return f"{self.database}_{name}"

    def close(self) -> None:
        """Drop its slots."""
        self.sql(
            "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots"
            f" WHERE database = '{self.database}'", owner=True,
        )
