"""What connections to schema registries take."""
# ruff: noqa: S106 - `secret="must"` declares a rule, it is no password.

from __future__ import annotations

from catalog_migrate.connectors.common_options import SSH_TUNNEL_OPTION, tls_options
from catalog_migrate.connectors.sections import Section
from catalog_migrate.connectors.values import Option, When

CONNECTION = Section(
    options=(
        Option(
            "URL", "url", "Where Confluent's API is.",
            "https://registry.example.com:8081", required=True,
        ),
        Option(
            "USERNAME", "text", "The user of HTTP's basic authentication.", "app", secret="may",
            required_when=(When("PASSWORD"),),
        ),
        Option(
            "PASSWORD", "text", "The user's password.", "registry_password", secret="must",
            required_when=(When("USERNAME"),),
        ),
        *tls_options("registry's is", "PEM", "registry_key"),
        SSH_TUNNEL_OPTION,
    ),
)  # fmt: skip
