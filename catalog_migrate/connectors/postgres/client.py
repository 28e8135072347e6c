"""What psycopg is given."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from catalog_migrate.connectors.options import option_of
from catalog_migrate.connectors.resolved import Resolved, file_with
from catalog_migrate.connectors.ssh import tunnels
from catalog_migrate.connectors.values import table_of
from catalog_migrate.model.names import quote_postgres

if TYPE_CHECKING:
    import psycopg


def postgres_parameters(resolved: Resolved, *, subject: str = "connection") -> dict[str, Any]:
    """psycopg's keyword arguments; ConnectionFailed when a tunnel does not lead to the server.

    Through a tunnel, the name that TLS checks stays that of the server itself.

    libpq takes certificates and keys as files only: they become memory without a name, open as
    long as this process lives, where the platform has that, else private temporary files that go
    with it.
    """
    host, port = _postgres(resolved, "HOST") or "", int(_postgres(resolved, "PORT") or 5432)
    address, local_port = tunnels.endpoint(resolved, host, port, subject=subject)
    parameters: dict[str, Any] = {
        "host": host,
        "port": local_port,
        "dbname": _postgres(resolved, "DATABASE"),
        "user": _postgres(resolved, "USER"),
        # The empty text, for libpq would else look into its environment.
        "password": _postgres(resolved, "PASSWORD") or "",
        "sslmode": _postgres(resolved, "SSL MODE"),
        "connect_timeout": 5,
        "application_name": "catalog_migrate",
        # Without these a server that vanished would be waited for during minutes or hours.
        "keepalives_idle": 10,
        "keepalives_interval": 5,
        "keepalives_count": 3,
        "tcp_user_timeout": 30_000,
        # The connection decides who logs in, not what this account has in its home directory.
        "passfile": os.path.join(os.devnull, "none"),
        "gssencmode": "disable",
    }
    if address != host:
        parameters["hostaddr"] = address
    if parameters["sslmode"] == "verify-full":
        parameters["sslrootcert"] = "system"
    for option, name in (
        ("SSL CERTIFICATE AUTHORITY", "sslrootcert"),
        ("SSL CERTIFICATE", "sslcert"),
        ("SSL KEY", "sslkey"),
    ):
        text = _postgres(resolved, option)
        if text is not None:
            parameters[name] = file_with(text)
    return parameters


def connect_postgres(
    resolved: Resolved, *, subject: str = "connection", **more: Any
) -> psycopg.Connection[Any]:
    """A connection to the database; ``more`` goes to ``psycopg.connect`` and wins.

    Raises psycopg.OperationalError, whose text is not scrubbed, and ConnectionFailed, with
    ``subject``, for a tunnel that does not lead there.
    """
    import psycopg

    return psycopg.connect(**{**postgres_parameters(resolved, subject=subject), **more})


def quoted_table(text: str) -> str:
    """A TABLE option for SQL: each part in double quotes, folded as PostgreSQL would."""
    return ".".join(quote_postgres(part) for part in table_of(text) if part is not None)


def _postgres(resolved: Resolved, name: str) -> str | None:
    return option_of(resolved, "POSTGRES", name)
