"""What connections, sources and sinks of PostgreSQL take."""
# ruff: noqa: S106 - `secret="must"` declares a rule, it is no password.

from __future__ import annotations

from catalog_migrate.connectors.common_options import ON_CHANGE, PEM, SSH_TUNNEL_OPTION, TRIGGER
from catalog_migrate.connectors.sections import Section
from catalog_migrate.connectors.values import Option, When

_NO_TLS = (When("SSL MODE", ("disable",)),)

CONNECTION = Section(
    options=(
        Option("HOST", "host", "The server.", "db.example.com", required=True),
        Option(
            "PORT", "integer", "Its port.", "5433", default="5432", minimum=1, maximum=65535
        ),
        Option("DATABASE", "text", "The database.", "shop", required=True),
        Option("USER", "text", "The role.", "app", secret="may", required=True),
        Option("PASSWORD", "text", "The role's password.", "pg_password", secret="must"),
        Option(
            "SSL MODE", "choice", "How much of TLS is insisted on.", "verify-full",
            default="prefer",
            choices=("disable", "prefer", "require", "verify-ca", "verify-full"),
        ),
        Option(
            "SSL CERTIFICATE AUTHORITY", "pem",
            "Certificates (PEM) that the server's is checked against; verify-full without it "
            "takes those that the platform trusts.", PEM, secret="may",
            required_when=(When("SSL MODE", ("verify-ca",)),), exclusive_with=_NO_TLS,
        ),
        Option(
            "SSL CERTIFICATE", "pem", "Our own certificate (PEM).", PEM, secret="may",
            required_when=(When("SSL KEY"),), exclusive_with=_NO_TLS,
        ),
        Option(
            "SSL KEY", "pem", "The key of our certificate (PEM).", "pg_key", secret="must",
            required_when=(When("SSL CERTIFICATE"),), exclusive_with=_NO_TLS,
        ),
        SSH_TUNNEL_OPTION,
    ),
)  # fmt: skip

SOURCE = Section(
    options=(
        Option(
            "PUBLICATION", "text",
            "The publication upstream that holds the tables; it is never created for you.",
            "shop_changes", required=True, alterable=False,
            fixed_because="its positions are of the slot that reads this publication; create "
            "another source", moves=True,
        ),
        Option(
            "SLOT", "text",
            "The replication slot, which the first start creates; by default a name with the "
            "catalog's and the source's id.", "catalog_migrate_shop", alterable=False,
            fixed_because="its positions are of this slot; create another source", moves=True,
        ),
    ),
    settings=(
        TRIGGER,
        Option(
            "SOFT DELETES", "boolean",
            "Whether FORMAT MIRROR keeps rows that were deleted upstream, with the time in "
            "_deleted.", "true", default="false", alterable=False,
            fixed_because="the tables would have another column; create another source",
        ),
        Option(
            "UPSTREAM COLUMNS", "choice",
            "What becomes of a column that is added upstream: it is added here too, the source "
            "is held, or it is left out. `follow` is `evolve`, and a column that is missing or "
            "renamed upstream stays here, NULL from then on. By default what the runtime's "
            "`[streams] upstream_columns` says.", "ignore",
            choices=("evolve", "follow", "hold", "ignore"),
        ),
    ),
    default_format="CHANGES",
    formats=("CHANGES", "MIRROR"),
    tables=True,
)  # fmt: skip

SINK = Section(
    options=(
        Option(
            "TABLE", "table",
            "The table that rows are written to; as in SQL, names without double quotes are "
            "lower case.", "public.orders", required=True, alterable=False,
            fixed_because="rows already written stay in the old table; create another sink",
        ),
    ),
    settings=(TRIGGER, ON_CHANGE),
    dead_letters=True,
    order_by=True,
    replaces=True,
)  # fmt: skip
