"""SSH tunnels as a connector."""

from __future__ import annotations

from collections.abc import Mapping

from catalog_migrate.connectors.base import Connector
from catalog_migrate.connectors.options import MISSING
from catalog_migrate.connectors.resolved import Resolved
from catalog_migrate.connectors.ssh import options
from catalog_migrate.connectors.values import fingerprint
from catalog_migrate.errors import CatalogMigrateError, InvalidOptions
from catalog_migrate.model.findings import Finding
from catalog_migrate.model.objects import OptionValue


class Tunnel(Connector):
    """Servers that forward connections; other connections name them by their option SSH TUNNEL."""

    name = "SSH TUNNEL"
    help = (
        "An SSH server that forwards connections to servers behind it; others go through it with "
        "`USING SSH TUNNEL t`."
    )
    connection = options.CONNECTION
    has_keys = True
    without_source = "a tunnel leads to a server; create the source on that server's connection"
    without_sink = "a tunnel leads to a server; create the sink on that server's connection"

    def check(
        self, resolved: Resolved, *, subject: str, timeout: float
    ) -> tuple[Finding, ...]:
        """Log in."""
        from catalog_migrate.connectors.ssh.tunnels import try_tunnel

        del timeout
        return try_tunnel(resolved, subject=subject)

    def public_keys(self, resolved: Resolved) -> tuple[str, ...]:
        """Return lines as ``authorized_keys`` takes them."""
        from catalog_migrate.connectors.ssh.tunnels import public_keys

        return public_keys(resolved)

    def explain(self, options: Mapping[str, OptionValue], error: InvalidOptions) -> InvalidOptions:
        """Say what the server shows where HOST KEY is missing, and how to compare it.

        Nothing is taken over from there: an attacker may be what answers.
        """
        from catalog_migrate.connectors.ssh.tunnels import shown_host_keys

        lacks = any(
            problem.code == MISSING and problem.option == "HOST KEY"
            for problem in error.problems
        )
        host = options.get("HOST")
        if not lacks or not isinstance(host, str):
            return error
        try:
            lines = shown_host_keys(host, int(str(options.get("PORT", "22"))))
            keys = "\n".join(f"  {line}\n    {fingerprint(line)}" for line in lines)
            remedy = (
                f"{host} shows these keys now, which were not checked:\n{keys}\n  compare one with "
                "`ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub` on the server itself, or ask "
                "who runs it, then write HOST KEY with the line or the fingerprint"
            )
        except (CatalogMigrateError, ValueError) as failure:
            remedy = f"{host} shows no key from here: {failure}"
        return InvalidOptions(error.message, problems=error.problems, remedy=remedy)


CONNECTOR = Tunnel()
