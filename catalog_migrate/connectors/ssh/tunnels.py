"""SSH tunnels: where this process reaches a server that stands behind one.

:func:`endpoint` is the one place that says to which host and port a client library connects. For a
connection USING SSH TUNNEL it is a local port of this process, the driver's or an executor's, that
each asker for the same tunnel and target shares. The private key is read into memory and given to
nothing else: no command line, no file, no environment.

A forward takes local connections and carries each to its target through the one SSH connection of
its tunnel. That is closed when nothing goes through it, and made again when it is needed or has
died. All of them are on an event loop in a thread of its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import os
import socket
import threading
import time
from collections.abc import Coroutine, Mapping
from concurrent.futures import TimeoutError as TookTooLong
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from catalog_migrate.connectors.findings import failed
from catalog_migrate.connectors.secrets import Secret, reveal
from catalog_migrate.connectors.values import fingerprint
from catalog_migrate.errors import PrerequisiteMissing
from catalog_migrate.model.findings import Finding

if TYPE_CHECKING:
    import asyncssh

OPTION = "SSH TUNNEL"
"""The option of a connection that goes through a tunnel, and the type of the tunnel itself.

Among resolved options its value is the tunnel's name, and the tunnel's own options stand beside it
as ``SSH TUNNEL HOST`` and so on.
"""
PRIVATE_KEYS = ("PRIVATE KEY", "NEXT PRIVATE KEY")

_ALGORITHMS = {
    "ssh-ed25519": ("ssh-ed25519",),
    "ecdsa": ("ecdsa-sha2-nistp256", "ecdsa-sha2-nistp384", "ecdsa-sha2-nistp521"),
    "ssh-rsa": ("rsa-sha2-512", "rsa-sha2-256"),
}
"""The kinds of keys that a server may have, with the algorithms that make it show one of them."""

LOOPBACK = "127.0.0.1"

_SECONDS = 8.0
"""For the whole way to the target: with a client's own limits it stays below 15 seconds."""
_CONNECT_SECONDS = 5.0
_KEEPALIVE_SECONDS = 5
"""A tunnel that does not answer three of them is dead."""
_IDLE_SECONDS = 60.0
_CHUNK = 1 << 16

Result = TypeVar("Result")


class Tunnel(msgspec.Struct, frozen=True):
    """Where a tunnel begins and who logs in; ``name`` begins messages, unless it is the subject."""

    name: str
    host: str
    port: int
    user: str
    keys: tuple[tuple[str, Secret], ...]
    host_key: str

    @property
    def identity(self) -> tuple[str, ...]:
        """What is equal for those who may share one SSH connection; holds no key."""
        digests = (hashlib.sha256(key.reveal().encode()).hexdigest() for _, key in self.keys)
        return (self.host, str(self.port), self.user, self.host_key, *digests)


def tunnel_of(resolved: Mapping[str, str | Secret]) -> Tunnel | None:
    """The tunnel that a connection with these options goes through, None for none."""
    if OPTION not in resolved:
        return None
    prefix = f"{OPTION} "
    options = {
        name[len(prefix):]: value for name, value in resolved.items() if name.startswith(prefix)
    }
    return tunnel_from_options(options, f"tunnel {reveal(resolved[OPTION])}: ")


def tunnel_from_options(options: Mapping[str, str | Secret], name: str = "") -> Tunnel:
    """The tunnel with these options of its own."""
    return Tunnel(
        name=name, host=reveal(options["HOST"]), port=int(reveal(options.get("PORT", "22"))),
        user=reveal(options["USER"]), host_key=reveal(options["HOST KEY"]),
        keys=tuple(
            (name, value) for name in PRIVATE_KEYS
            if isinstance(value := options.get(name), Secret)
        ),
    )


class TunnelError(Exception):
    """A way that does not open: which option of the tunnel is at fault ("": of the target)."""

    def __init__(self, option: str, message: str, remedy: str) -> None:
        super().__init__(message)
        self.option = option
        self.message = message
        self.remedy = remedy

    def finding(self, tunnel: Tunnel, subject: str, target: str) -> Finding:
        """For who asked: of a tunnel's own fault it names the tunnel, then the tunnel's option."""
        if not self.option:
            return Finding(subject, target, "error", f"{tunnel.name}{self.message}", self.remedy)
        if not tunnel.name:
            return Finding(subject, self.option, "error", self.message, self.remedy)
        message = f"{tunnel.name}option {self.option}: {self.message}"
        return Finding(subject, OPTION, "error", message, self.remedy)


def algorithms(host_key: str = "") -> tuple[tuple[str, ...], ...]:
    """What to ask a server for, in this order, until it shows the key; of a line only its own.

    A fingerprint does not say of which kind its key is.
    """
    kind = host_key.partition(" ")[0]
    family = "ecdsa" if kind.startswith("ecdsa-") else kind
    return (_ALGORITHMS[family],) if family in _ALGORITHMS else tuple(_ALGORITHMS.values())


# -- keys ------------------------------------------------------------------------------------------


def _ssh() -> Any:
    """asyncssh, which few installations need."""
    try:
        import asyncssh
    except ImportError as error:
        raise PrerequisiteMissing(
            "SSH tunnels need the package asyncssh",
            remedy="pip install 'catalog_migrate[tunnel]', wherever queries run",
        ) from error
    logging.getLogger("asyncssh").setLevel(logging.WARNING)
    return asyncssh


def private_keys(tunnel: Tunnel) -> list[asyncssh.SSHKey]:
    """The private keys of a tunnel, in the order in which a server is asked to take them."""
    ssh = _ssh()
    keys = []
    for option, secret in tunnel.keys:
        try:
            keys.append(ssh.import_private_key(secret.reveal()))
        except (ssh.KeyImportError, ssh.KeyEncryptionError, ValueError) as error:
            if "passphrase" in str(error).lower() or isinstance(error, ssh.KeyEncryptionError):
                raise TunnelError(
                    option, "the key is encrypted, and nobody is here to type its passphrase",
                    "keep it without one where only this process reads it: ssh-keygen -p -N '' -f "
                    "a-copy",
                ) from None
            raise TunnelError(
                option, "the secret holds no private key of SSH (its text is not shown)",
                "the whole file that ssh-keygen writes is expected, from -----BEGIN on",
            ) from None
    return keys


def public_line(key: asyncssh.SSHKey) -> str:
    """A public key on a line, without a comment."""
    kind, data = key.export_public_key("openssh").decode().split()[:2]
    return f"{kind} {data}"


def _no_way(host: str, port: int, error: BaseException) -> TunnelError:
    """For errors before anybody logged in."""
    if isinstance(error, socket.gaierror):
        return TunnelError(
            "HOST", f"the name {host} is not known", "check it, from the machine where this runs"
        )
    if isinstance(error, (asyncio.TimeoutError, TimeoutError, TookTooLong)):
        return TunnelError("HOST", f"no answer from {host}:{port}", "check HOST, PORT and firewall")
    if isinstance(error, OSError):
        return TunnelError(
            "PORT", f"{host}:{port} takes no connection ({error})",
            "check HOST and PORT, and that the SSH server runs",
        )
    said = str(error) or type(error).__name__
    return TunnelError(
        "HOST", f"{host}:{port} does not talk SSH with us: {said}",
        "check HOST and PORT, and the server's log",
    )


# -- the SSH connection ----------------------------------------------------------------------------


async def _login(tunnel: Tunnel) -> asyncssh.SSHClientConnection:
    """A connection to a server that has shown the pinned key, logged in with one of ours."""
    ssh = _ssh()
    from asyncssh import SSHClient

    keys = private_keys(tunnel)
    pinned = fingerprint(tunnel.host_key)
    shown: list[str] = []
    lost: Exception | None = None

    class Client(SSHClient):
        def validate_host_public_key(
            self, host: str, addr: str, port: int, key: asyncssh.SSHKey  # noqa: ARG002
        ) -> bool:
            shown.append(public_line(key))
            return fingerprint(shown[-1]) == pinned

    # Nothing of what this account has in its home directory, no agent, no password.
    options = {
        "client_factory": Client, "known_hosts": ssh.import_known_hosts(""), "config": None,
        "agent_path": None, "client_keys": keys, "client_certs": (), "preferred_auth": "publickey",
        "gss_host": None, "connect_timeout": _CONNECT_SECONDS, "login_timeout": _SECONDS,
        "keepalive_interval": _KEEPALIVE_SECONDS, "keepalive_count_max": 3,
    }
    for offered in algorithms(tunnel.host_key):
        try:
            connection: asyncssh.SSHClientConnection = await ssh.connect(
                tunnel.host, tunnel.port, username=tunnel.user,
                server_host_key_algs=list(offered), **options,
            )
            return connection
        except (ssh.HostKeyNotVerifiable, ssh.KeyExchangeFailed):
            continue
        except ssh.ConnectionLost as error:
            lost = error  # a server without a key of the kind may just hang up
        except ssh.PermissionDenied:
            lines = "  and  ".join(map(public_line, keys))
            raise TunnelError(
                "PRIVATE KEY", f"the server refuses user {tunnel.user} with this key",
                f"check USER, and add the public key to its authorized_keys there: {lines}",
            ) from None
        except (OSError, ssh.Error, asyncio.TimeoutError) as error:
            raise _no_way(tunnel.host, tunnel.port, error) from None
    if lost is not None and pinned in map(fingerprint, shown):
        raise _no_way(tunnel.host, tunnel.port, lost)
    found = shown or await shown_keys(tunnel.host, tunnel.port)
    said = " and ".join(f"{key.split()[0]} {fingerprint(key)}" for key in found)
    raise TunnelError(
        "HOST KEY", f"{tunnel.host}:{tunnel.port} shows {said}, not {pinned}",
        "somebody may stand between, or the server is a new one: compare with `ssh-keygen -lf "
        "/etc/ssh/ssh_host_…_key.pub` on the server before you SET another HOST KEY",
    )


async def shown_keys(host: str, port: int) -> tuple[str, ...]:
    ssh = _ssh()
    found = []
    lost: Exception | None = None
    for offered in algorithms():
        try:
            key = await ssh.get_server_host_key(
                host, port, server_host_key_algs=list(offered), config=None
            )
        except ssh.KeyExchangeFailed:
            continue
        except ssh.ConnectionLost as error:
            lost = error
            continue
        except (OSError, ssh.Error, asyncio.TimeoutError) as error:
            raise _no_way(host, port, error) from None
        if key is not None:
            found.append(public_line(key))
    if not found and lost is not None:
        raise _no_way(host, port, lost)
    if not found:
        raise TunnelError(
            "HOST", f"{host}:{port} shows no key of a kind that we know",
            "give the server a key of the kind ed25519, ecdsa or rsa",
        )
    return tuple(found)


async def check_login(tunnel: Tunnel, subject: str) -> tuple[Finding, ...]:
    """That a new connection logs in; TunnelError when it does not."""
    async with await _login(tunnel) as connection:
        key = connection.get_server_host_key()
    assert key is not None
    said = fingerprint(public_line(key))
    message = f"logged in to {tunnel.host}:{tunnel.port} ({said}) as {tunnel.user}"
    return (Finding(subject, None, "ok", message),)


class _SshConnection:
    """The SSH connection of one tunnel: at most one, made when a channel is asked for."""

    def __init__(self, tunnel: Tunnel) -> None:
        self.tunnel = tunnel
        self.used = time.monotonic()
        self.channels = 0
        self._connection: asyncssh.SSHClientConnection | None = None
        self._lock = asyncio.Lock()

    async def channel(self, host: str, port: int) -> tuple[Any, Any]:
        """A reader and a writer of bytes to a target behind the tunnel."""
        ssh = _ssh()
        while True:
            self.used = time.monotonic()
            known = self._connection
            connection = await self._connected()
            try:
                return await connection.open_connection(host, port)
            except ssh.ChannelOpenError as error:
                if connection is known and connection.is_closed():
                    continue  # it died unseen; a new one is tried once
                if error.code == ssh.OPEN_ADMINISTRATIVELY_PROHIBITED:
                    raise TunnelError(
                        "USER", f"the server does not forward to {host}:{port} for "
                        f"{self.tunnel.user}", "allow it there: AllowTcpForwarding, PermitOpen, "
                        "and the options in authorized_keys",
                    ) from None
                raise TunnelError(
                    "", f"{host}:{port} takes no connection from the tunnel's server "
                    f"({error.reason})", "check host and port as the tunnel's server sees them, and"
                    " that the server behind it runs",
                ) from None
            except (OSError, ssh.Error) as error:
                raise _no_way(self.tunnel.host, self.tunnel.port, error) from None

    async def _connected(self) -> asyncssh.SSHClientConnection:
        async with self._lock:
            if self._connection is None or self._connection.is_closed():
                self._connection = await _login(self.tunnel)
            return self._connection

    def close(self) -> None:
        """Close it; the next channel connects anew."""
        if self._connection is not None:
            self._connection.abort()
            self._connection = None


# -- local ports -----------------------------------------------------------------------------------


class _Forward:
    """A local port from which everything goes to one target through an SSH connection."""

    def __init__(self, connection: _SshConnection, host: str, port: int) -> None:
        self.connection = connection
        self.target = host, port
        self.used = time.monotonic()
        self.relays: set[asyncio.StreamWriter] = set()
        self._server: asyncio.Server | None = None

    @property
    def port(self) -> int:
        """The local port."""
        assert self._server is not None, "it listens"
        return int(self._server.sockets[0].getsockname()[1])

    @property
    def listens(self) -> bool:
        """Whether the port is this process' own."""
        return self._server is not None

    def leads(self, connection: _SshConnection, host: str, port: int) -> bool:
        """Whether it is this way, by the one SSH connection that the tunnel has now."""
        return self.connection is connection and self.target == (host, port)

    async def listen(self, port: int) -> None:
        """Take a local port (0: any)."""
        try:
            self._server = await asyncio.start_server(self._relay, LOOPBACK, port)
        except OSError as error:
            if _listens_as_we(port):
                return  # the runtime, say, where this is the command line: it goes the same way
            raise TunnelError(
                "", f"the local port {port} is taken ({error.strerror}), and the brokers behind a "
                "tunnel are reached by their own port numbers", f"end what listens on {port} here, "
                "or give the broker's listener another port",
            ) from None

    async def probe(self) -> None:
        """Go the whole way once."""
        self.used = time.monotonic()
        _, writer = await self.connection.channel(*self.target)
        writer.close()

    def close(self) -> None:
        """Take no more connections; those that stand go on."""
        if self._server is not None:
            self._server.close()

    def cut(self) -> None:
        """Close, and end what goes through."""
        self.close()
        for writer in self.relays:
            writer.transport.abort()

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.relays.add(writer)
        self.connection.channels += 1
        connection = self.connection
        try:
            from_far, to_far = await connection.channel(*self.target)
            ways = [asyncio.ensure_future(_pump(reader, to_far)),
                    asyncio.ensure_future(_pump(from_far, writer))]
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)
            to_far.close()
        except TunnelError as error:
            # Whoever asks for an endpoint is told why; a client sees that its connection ends.
            logging.getLogger(__name__).debug("no way for a connection: %s", error)
        finally:
            writer.close()
            self.relays.discard(writer)
            connection.channels -= 1
            self.used = connection.used = time.monotonic()


async def _pump(reader: Any, writer: Any) -> None:
    """Bytes from one side to the other until it ends."""
    while data := await reader.read(_CHUNK):
        writer.write(data)
        await writer.drain()


def _listens_as_we(port: int) -> bool:
    """Whether a process of this very user listens on a local port (known on Linux only)."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        for line in Path("/proc/net/tcp").read_text(encoding="ascii").splitlines()[1:]:
            fields = line.split()
            if int(fields[1].partition(":")[2], 16) == port and fields[3] == "0A":
                return int(fields[7]) == os.getuid()
    return False


class Forwards:
    """All SSH connections and forwards of this process, on an event loop in a thread of its own."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self._connections: dict[tuple[str, ...], _SshConnection] = {}
        self._forwards: dict[tuple[object, ...], _Forward] = {}
        self._loop = asyncio.new_event_loop()
        self._locks: dict[tuple[object, ...], asyncio.Lock] = {}
        threading.Thread(target=self._run, daemon=True, name="catalog_migrate tunnels").start()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.create_task(self._close_idle())
        self._loop.run_forever()

    def ask(self, act: Coroutine[Any, Any, Result]) -> Result:
        """Run on the loop's thread; TunnelError also when it takes too long."""
        asked = asyncio.run_coroutine_threadsafe(act, self._loop)
        try:
            return asked.result(_SECONDS + 1)
        except TookTooLong:
            asked.cancel()
            raise TunnelError(
                "HOST", f"no way through within {_SECONDS:.0f} s",
                "check HOST, PORT and firewall, and that both servers are well",
            ) from None

    async def forward(self, tunnel: Tunnel, host: str, port: int) -> int:
        """A local port for a target, shared; the way was gone to its end just now."""
        key = (tunnel.identity, host, port)
        async with self._locks.setdefault(key, asyncio.Lock()):
            connection = self._connection_of(tunnel)
            known = self._forwards.get(key)
            if known is not None and known.connection is connection:
                await known.probe()
                return known.port
            made = _Forward(connection, host, port)
            await made.probe()
            await made.listen(0)
            self._forwards[key] = made
            return made.port

    async def same_port(self, tunnel: Tunnel, host: str, port: int, *, replace: bool) -> int:
        """The target's own port at the local end, by this way unless another one is in use.

        With ``replace`` whoever still goes another way is cut off: a definition that is no more.
        """
        async with self._locks.setdefault((port,), asyncio.Lock()):
            connection = self._connection_of(tunnel)
            known = self._forwards.get((port,))
            if known is not None and not known.listens:
                known = None  # the process that had the port may be gone
            if known is not None and known.leads(connection, host, port):
                await known.probe()
                return port
            if known is not None and known.relays and not replace:
                return port
            made = _Forward(connection, host, port)
            await made.probe()
            if known is not None:
                known.cut()
            await made.listen(port)
            self._forwards[port,] = made
            return port

    def _connection_of(self, tunnel: Tunnel) -> _SshConnection:
        connection = self._connections.setdefault(tunnel.identity, _SshConnection(tunnel))
        connection.tunnel = tunnel  # its name may be another by now
        return connection

    async def _close_idle(self) -> None:
        """Close what nobody used for a while, again and again."""
        while True:
            await asyncio.sleep(_IDLE_SECONDS / 4)
            old = time.monotonic() - _IDLE_SECONDS
            for key, forward in list(self._forwards.items()):
                if len(key) > 1 and not forward.relays and forward.used < old:
                    forward.close()
                    del self._forwards[key]
            for identity, connection in list(self._connections.items()):
                if connection.channels or connection.used >= old:
                    continue
                connection.close()
                if all(each.connection is not connection for each in self._forwards.values()):
                    del self._connections[identity]
            for key in [key for key, lock in self._locks.items() if not lock.locked()]:
                if key not in self._forwards:
                    del self._locks[key]


_started: Forwards | None = None
_starting = threading.Lock()


def of_this_process() -> Forwards:
    """Those of this process: a fork has none of its parent's."""
    global _started  # ports belong to the process
    with _starting:
        if _started is None or _started.pid != os.getpid():
            _started = Forwards()
        return _started


# -- where clients connect -------------------------------------------------------------------------


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
    forwards = of_this_process()
    try:
        way = forwards.same_port(tunnel, host, port, replace=replace) if same_port else (
            forwards.forward(tunnel, host, port)
        )
        return LOOPBACK, forwards.ask(way)
    except TunnelError as error:
        raise failed(error.finding(tunnel, subject, option)) from None


def try_tunnel(resolved: Mapping[str, str | Secret], *, subject: str) -> tuple[Finding, ...]:
    """Whether the options of a tunnel itself lead into its server, by a new SSH connection."""
    tunnel = tunnel_from_options(resolved)
    try:
        return of_this_process().ask(check_login(tunnel, subject))
    except TunnelError as error:
        return (error.finding(tunnel, subject, "HOST"),)


def shown_host_keys(host: str, port: int) -> tuple[str, ...]:
    """The keys that a server shows to whoever asks, on a line each; nobody has checked them yet.

    Raises ConnectionFailed when nothing answers.
    """
    try:
        return of_this_process().ask(shown_keys(host, port))
    except TunnelError as error:
        raise failed(
            Finding("tunnel", error.option, "error", error.message, error.remedy)
        ) from None


def public_keys(resolved: Mapping[str, str | Secret]) -> tuple[str, ...]:
    """The public keys of a tunnel's private ones, on a line each: PRIVATE KEY, then the next.

    Raises ConnectionFailed for a text that is no key.
    """
    tunnel = tunnel_from_options(resolved)
    try:
        return tuple(public_line(key) for key in private_keys(tunnel))
    except TunnelError as error:
        raise failed(error.finding(tunnel, "tunnel", "HOST")) from None
