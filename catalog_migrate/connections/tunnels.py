"""SSH tunnels: where this process reaches a server that stands behind one.

:func:`endpoint` is the one place that says to which host and port a client library connects. For a
connection USING SSH TUNNEL it is a local port of this process, the driver's or an executor's, that
each asker for the same tunnel and target shares. The private key is read into memory and given to
nothing else: no command line, no file, no environment.
"""

from __future__ import annotations

from collections.abc import Mapping

from catalog_migrate.connections.findings import Finding, failed
from catalog_migrate.connections.secrets import Secret
from catalog_migrate.connections.ssh import OPTION, Refused, itself, tunnel_of

__all__ = ["OPTION", "endpoint", "public_keys", "shown_host_keys", "try_tunnel"]


def endpoint(
    resolved: Mapping[str, str | Secret], host: str, port: int, *, subject: str = "connection",
    option: str = "HOST", same_port: bool = False, replace: bool = True,
) -> tuple[str, int]:
    """Host and port by which this process reaches ``host:port`` of a connection.

    They are the target's own without a tunnel. With one, the way is tried to its end before this
    returns, within 8 seconds. ``same_port`` asks for the target's own port at the local end, for
    clients that are told by the server where to connect; it stays open then, until another start
    asks for it with another way; without ``replace`` one that is in use stays. ``subject`` and
    ``option`` (that of ``host``) are for the error: ConnectionFailed, which names what is at fault.
    """
    tunnel = tunnel_of(resolved)
    if tunnel is None:
        return host, port
    from catalog_migrate.connections.forwards import LOOPBACK, of_this_process

    forwards = of_this_process()
    try:
        way = forwards.same_port(tunnel, host, port, replace=replace) if same_port else (
            forwards.forward(tunnel, host, port)
        )
        return LOOPBACK, forwards.ask(way)
    except Refused as error:
        raise failed(error.finding(tunnel, subject, option)) from None


def try_tunnel(resolved: Mapping[str, str | Secret], *, subject: str) -> tuple[Finding, ...]:
    """Whether the options of a tunnel itself lead into its server, by a new SSH connection."""
    from catalog_migrate.connections.forwards import of_this_process, tried

    tunnel = itself(resolved)
    try:
        return of_this_process().ask(tried(tunnel, subject))
    except Refused as error:
        return (error.finding(tunnel, subject, "HOST"),)


def shown_host_keys(host: str, port: int) -> tuple[str, ...]:
    """The keys that a server shows to whoever asks, on a line each; nobody has checked them yet.

    Raises ConnectionFailed when nothing answers.
    """
    from catalog_migrate.connections.forwards import of_this_process, shown_keys

    try:
        return of_this_process().ask(shown_keys(host, port))
    except Refused as error:
        raise failed(Finding("tunnel", error.option, False, error.message, error.remedy)) from None


def public_keys(resolved: Mapping[str, str | Secret]) -> tuple[str, ...]:
    """The public keys of a tunnel's private ones, on a line each: PRIVATE KEY, then the next.

    Raises ConnectionFailed for a text that is no key.
    """
    from catalog_migrate.connections.forwards import imported, public_line

    tunnel = itself(resolved)
    try:
        return tuple(public_line(key) for key in imported(tunnel))
    except Refused as error:
        raise failed(error.finding(tunnel, "tunnel", "HOST")) from None
