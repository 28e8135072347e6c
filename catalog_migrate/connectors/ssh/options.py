"""What SSH tunnels take."""
# ruff: noqa: S106 - `secret="must"` declares a rule, it is no password.

from __future__ import annotations

from catalog_migrate.connectors.sections import Section
from catalog_migrate.connectors.values import Option

CONNECTION = Section(
    options=(
        Option("HOST", "host", "The SSH server.", "bastion.example.com", required=True),
        Option("PORT", "integer", "Its port.", "2222", default="22", minimum=1, maximum=65535),
        Option("USER", "text", "Who logs in there.", "tunnel", required=True),
        Option(
            "PRIVATE KEY", "text",
            "The key of that user, without a passphrase, as ssh-keygen writes it; the server "
            "has its public one in `authorized_keys`.", "ssh_key", secret="must", required=True,
        ),
        Option(
            "NEXT PRIVATE KEY", "text",
            "The key that ROTATE KEYS puts in its place; the server may know either.",
            "ssh_key_next", secret="must",
        ),
        Option(
            "HOST KEY", "host key",
            "The server's own public key, on one line as in its `ssh_host_…_key.pub`, or its "
            "fingerprint; a server that shows another one is not talked to.",
            "SHA256:uNiVztksCsDhcc0u9e8BgrJXVGDBdd0YkcbgxLF6o8c", required=True,
        ),
    ),
    rotation=("PRIVATE KEY", "NEXT PRIVATE KEY"),
)  # fmt: skip
