"""An SSH server that forwards, in this process: asyncssh's own, on a thread."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Mapping
from types import TracebackType
from typing import Any, TypeVar

import asyncssh

USER = "tunnel"
Result = TypeVar("Result")


def new_key(passphrase: str | None = None) -> tuple[str, str]:
    """A private key as ssh-keygen writes it, and its public one on a line."""
    key = asyncssh.generate_private_key("ssh-ed25519")
    form = "openssh" if passphrase is None else "pkcs8-pem"
    private = key.export_private_key(form, passphrase).decode()
    kind, data = key.export_public_key("openssh").decode().split()[:2]
    return private, f"{kind} {data}"


def secret_part(private: str) -> str:
    """Of a key of :func:`new_key` a stretch of its file that holds nothing but the secret."""
    return private.splitlines()[4][10:]


class SSHServer:
    """Lets whoever has one of the ``authorized`` public keys in and forwards for them.

    ``names`` maps (host, port) as clients behind the tunnel say them to where that is; nothing else
    is reached. ``opened`` counts forwarded connections by what was asked for, ``logins`` counts
    SSH connections that were authenticated.
    """

    def __init__(
        self, authorized: list[str], names: Mapping[tuple[str, int], tuple[str, int]], *,
        port: int = 0, host_keys: list[asyncssh.SSHKey] | None = None,
    ) -> None:
        self.authorized = list(authorized)
        self.names = dict(names)
        self.opened: dict[tuple[str, int], int] = {}
        self.logins = 0
        self._keys = host_keys or [
            asyncssh.generate_private_key("ssh-ed25519"),
            asyncssh.generate_private_key("ecdsa-sha2-nistp256"),
        ]
        self._connections: set[asyncssh.SSHServerConnection] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True, name="sshd")
        self._thread.start()
        self._server: asyncssh.SSHAcceptor | None = None
        self.port = port
        self.start()

    @property
    def connections(self) -> int:
        """How many SSH connections are open."""
        return len(self._connections)

    @property
    def host_key(self) -> str:
        """The first one, on a line."""
        kind, data = self._keys[0].export_public_key("openssh").decode().split()[:2]
        return f"{kind} {data}"

    def fingerprint(self, number: int = 0) -> str:
        """``SHA256:…`` of a host key."""
        return str(self._keys[number].get_fingerprint())

    def start(self) -> None:
        """Listen, on the port of before."""
        server = self

        class Session(asyncssh.SSHServer):
            def connection_made(self, conn: asyncssh.SSHServerConnection) -> None:
                self._conn = conn
                server._connections.add(conn)

            def connection_lost(self, exc: Exception | None) -> None:
                server._connections.discard(self._conn)

            def public_key_auth_supported(self) -> bool:
                return True

            def validate_public_key(self, username: str, key: asyncssh.SSHKey) -> bool:
                line = " ".join(key.export_public_key("openssh").decode().split()[:2])
                return username == USER and line in server.authorized

            def auth_completed(self) -> None:
                server.logins += 1

            def connection_requested(
                self, dest_host: str, dest_port: int, orig_host: str, orig_port: int
            ) -> Any:
                place = server.names.get((dest_host, dest_port))
                if place is None:  # as PermitOpen
                    raise asyncssh.ChannelOpenError(
                        asyncssh.OPEN_ADMINISTRATIVELY_PROHIBITED, "not permitted"
                    )
                server.opened[dest_host, dest_port] = server.opened.get(
                    (dest_host, dest_port), 0
                ) + 1
                return self._conn.forward_connection(*place)

        async def listen() -> asyncssh.SSHAcceptor:
            return await asyncssh.listen(
                "127.0.0.1", self.port, server_host_keys=self._keys, server_factory=Session,
                password_auth=False, kbdint_auth=False, reuse_address=True,
            )

        self._server = self._run(listen())
        self.port = self._server.get_port()

    def stop(self) -> None:
        """End the server and cut every connection through it."""

        async def end() -> None:
            assert self._server is not None
            self._server.close()
            for connection in list(self._connections):
                connection.abort()

        if self._server is not None:
            self._run(end())
            self._server = None

    def close(self) -> None:
        """The end of it all."""
        self.stop()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(5)

    def __enter__(self) -> SSHServer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _run(self, act: Coroutine[Any, Any, Result]) -> Result:
        return asyncio.run_coroutine_threadsafe(act, self._loop).result(10)
