"""SSH tunnels against asyncssh's own server: the way through, and every way in which it is barred.

What lies behind the tunnel is a server of the tests that sends back what it gets.
"""

from __future__ import annotations

import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from catalog_migrate.connectors.base import find_connector
from catalog_migrate.connectors.secrets import Secret
from catalog_migrate.connectors.ssh import tunnels
from catalog_migrate.connectors.ssh.tunnels import (
    endpoint,
    public_keys,
    shown_host_keys,
    try_tunnel,
)
from catalog_migrate.connectors.validation import validate_connection
from catalog_migrate.connectors.values import canonical_host_key, fingerprint
from catalog_migrate.errors import ConnectionFailed, PrerequisiteMissing
from catalog_migrate.model.findings import Finding
from tests.services.process import free_ports
from tests.services.ssh import USER, SSHServer, new_key

if TYPE_CHECKING:
    from tests.services.kafka import KafkaCluster
    from tests.services.postgres import PostgresServer

PRIVATE, PUBLIC = new_key()
OTHER_PRIVATE, OTHER_PUBLIC = new_key()
BEHIND = "db.internal", 5432
SECONDS = 15.0
"""What a refusal may take."""


@pytest.fixture(scope="module")
def echo() -> Iterator[tuple[str, int]]:
    """A server that sends back what it gets."""
    listener = socket.create_server(("127.0.0.1", 0))

    def answer(connection: socket.socket) -> None:
        with connection:
            try:
                while data := connection.recv(1 << 16):
                    connection.sendall(data)
            except OSError:
                pass

    def serve() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=answer, args=(connection,), daemon=True).start()

    threading.Thread(target=serve, daemon=True).start()
    yield listener.getsockname()
    listener.close()


@pytest.fixture(scope="module")
def bastion(echo: tuple[str, int]) -> Iterator[SSHServer]:
    """An SSH server in front of it, which knows the one behind it by a name of its own."""
    names = {BEHIND: echo, ("down.internal", 1): ("127.0.0.1", free_ports(1)[0])}
    with SSHServer([PUBLIC], names) as server:
        yield server


def options(server: SSHServer, **changes: str | Secret) -> dict[str, str | Secret]:
    """A tunnel's own options."""
    return {
        "HOST": "127.0.0.1", "PORT": str(server.port), "USER": USER,
        "PRIVATE KEY": Secret(PRIVATE), "HOST KEY": server.host_key,
        **{name.replace("_", " "): value for name, value in changes.items()},
    }


def through(server: SSHServer, **changes: str | Secret) -> dict[str, str | Secret]:
    """The options of a connection that goes through it."""
    own = {f"SSH TUNNEL {name}": value for name, value in options(server, **changes).items()}
    return {"SSH TUNNEL": "default.t", **own}


@contextmanager
def connected(server: SSHServer) -> Iterator[socket.socket]:
    with socket.create_connection(endpoint(through(server), *BEHIND), timeout=SECONDS) as found:
        yield found


def is_cut(connection: socket.socket) -> bool:
    try:
        return connection.recv(1) == b""
    except ConnectionError:
        return True


def says_back(connection: socket.socket, data: bytes) -> bool:
    connection.sendall(data)
    got = b""
    while len(got) < len(data) and (more := connection.recv(1 << 16)):
        got += more
    return got == data


def refusal(
    server: SSHServer, target: tuple[str, int] = BEHIND, **changes: str | Secret
) -> Finding:
    """What is said of a tunnel that does not lead there, in time."""
    begun = time.monotonic()
    with pytest.raises(ConnectionFailed) as caught:
        endpoint(through(server, **changes), *target, subject="connection c")
    assert time.monotonic() - begun < SECONDS
    assert PRIVATE not in f"{caught.value!r}{caught.value}"
    (finding,) = caught.value.findings
    assert finding.subject == "connection c"
    assert finding.remedy
    return finding


class TestTheWay:
    """Connections that go through."""

    def test_without_a_tunnel(self) -> None:
        """Host and port are the server's own."""
        assert endpoint({"HOST": "db"}, "db", 5432) == ("db", 5432)

    def test_shared(self, bastion: SSHServer) -> None:
        """Two askers of one tunnel and target get one port and one SSH connection."""
        with connected(bastion) as first, connected(bastion) as second:
            assert first.getpeername() == second.getpeername()
            logins = bastion.logins
            assert says_back(first, b"one" * 100_000)
            assert says_back(second, b"two")
        assert bastion.logins == logins

    def test_a_tunnel_that_died(self, bastion: SSHServer) -> None:
        """What went through it ends; whoever connects next finds a new one at the same port."""
        with connected(bastion) as before:
            assert says_back(before, b"x")
            bastion.stop()
            assert before.recv(1) == b""
            bastion.start()
            with socket.create_connection(before.getpeername(), timeout=SECONDS) as after:
                assert says_back(after, b"y")

    def test_idle(self, bastion: SSHServer, monkeypatch: pytest.MonkeyPatch) -> None:
        """Unused for a while, port and SSH connection are closed; in use they stay."""
        monkeypatch.setattr(tunnels, "_IDLE_SECONDS", 0.1)
        monkeypatch.setattr(tunnels, "_started", None)
        before = bastion.connections
        with connected(bastion) as busy:
            address = busy.getpeername()
            time.sleep(0.4)
            assert says_back(busy, b"x")
        deadline = time.monotonic() + SECONDS
        mine = tunnels.of_this_process()
        # connections of other tests may end meanwhile: the count alone does not tell ours
        while (mine._forwards or bastion.connections > before) and time.monotonic() < deadline:
            time.sleep(0.05)
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(address, timeout=SECONDS)

    def test_the_same_port(self, bastion: SSHServer, echo: tuple[str, int]) -> None:
        """A client that is told where to connect finds the target's own port at the local end.

        Another way takes its place at a start only, and cuts off who goes the old one.
        """
        (port,) = free_ports(1)
        asked = {name: (name, port) for name in ("old.internal", "new.internal")}
        bastion.names |= dict.fromkeys(asked.values(), echo)

        def opened(name: str) -> int:
            return bastion.opened.get(asked[name], 0)

        way = endpoint(through(bastion), *asked["old.internal"], same_port=True)
        assert way == ("127.0.0.1", port)
        with socket.create_connection(way, timeout=SECONDS) as before:
            assert says_back(before, b"x")
            endpoint(through(bastion), *asked["new.internal"], same_port=True, replace=False)
            assert says_back(before, b"y")
            assert opened("new.internal") == 0
            endpoint(through(bastion), *asked["new.internal"], same_port=True)
            assert is_cut(before)
        assert endpoint(through(bastion), *asked["new.internal"], same_port=True) == way
        with socket.create_connection(way, timeout=SECONDS) as after:
            old = opened("old.internal")
            assert says_back(after, b"x")
        assert (opened("old.internal"), opened("new.internal")) == (old, 3)

    def test_a_port_that_is_taken(self, bastion: SSHServer) -> None:
        """By a process of this user it is as good; else it is said."""
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(tunnels, "_listens_as_we", lambda _: False)
                bastion.names["kafka.internal", port] = bastion.names[BEHIND]
                with pytest.raises(ConnectionFailed, match=f"local port {port} is taken") as caught:
                    endpoint(through(bastion), "kafka.internal", port, option="BROKER",
                             same_port=True)
                assert caught.value.findings[0].option == "BROKER"
            assert tunnels._listens_as_we(port) == sys.platform.startswith("linux")

    def test_either_key(self, bastion: SSHServer) -> None:
        """The server may know the next key already, or still the first."""
        own = options(bastion, PRIVATE_KEY=Secret(OTHER_PRIVATE), NEXT_PRIVATE_KEY=Secret(PRIVATE))
        (finding,) = try_tunnel(own, subject="connection t")
        assert finding.ok
        assert public_keys(own) == (OTHER_PUBLIC, PUBLIC)


class TestBarred:
    """Each refusal names the option and what to do, in less than 15 seconds."""

    def test_host_key(self, bastion: SSHServer) -> None:
        """A server that shows another key is not talked to; both are named."""
        logins = bastion.logins
        for pinned in (PUBLIC, fingerprint(PUBLIC)):
            found = refusal(bastion, HOST_KEY=pinned)
            assert found.option == "SSH TUNNEL"
            assert "tunnel default.t: option HOST KEY" in found.message
            assert bastion.fingerprint() in found.message
            assert fingerprint(PUBLIC) in found.message
        assert bastion.logins == logins

    def test_every_key_of_the_server_may_be_pinned(self, bastion: SSHServer) -> None:
        """By its line or by its fingerprint, whichever it would show by itself."""
        shown = shown_host_keys("127.0.0.1", bastion.port)
        assert [fingerprint(line) for line in shown] == [
            bastion.fingerprint(number) for number in range(2)
        ]
        for pinned in (*shown, *map(fingerprint, shown)):
            assert try_tunnel(options(bastion, HOST_KEY=pinned), subject="t")[0].ok

    def test_a_key_that_is_refused(self, bastion: SSHServer) -> None:
        """The remedy has the line for authorized_keys."""
        found = refusal(bastion, PRIVATE_KEY=Secret(OTHER_PRIVATE))
        assert "option PRIVATE KEY: the server refuses user tunnel with this key" in found.message
        assert OTHER_PUBLIC in str(found.remedy)

    def test_no_key(self, bastion: SSHServer) -> None:
        """A text that is no key, and an encrypted one, are told apart; neither is shown."""
        found = refusal(bastion, PRIVATE_KEY=Secret("hunter2hunter2"))
        assert "holds no private key" in found.message
        assert "hunter2" not in str(found)
        encrypted, _ = new_key("sesame")
        found = refusal(bastion, NEXT_PRIVATE_KEY=Secret(encrypted))
        assert "option NEXT PRIVATE KEY: the key is encrypted" in found.message
        assert "ssh-keygen -p" in str(found.remedy)

    def test_to_nowhere(self, bastion: SSHServer, echo: tuple[str, int]) -> None:
        """Nobody listens, the name is not known, or it is no SSH server."""
        (closed,) = free_ports(1)
        assert "option PORT" in refusal(bastion, PORT=str(closed)).message
        assert "option HOST: the name" in refusal(bastion, HOST="nowhere.invalid").message
        assert "does not talk SSH" in refusal(bastion, PORT=str(echo[1])).message

    def test_a_server_that_says_nothing(
        self, bastion: SSHServer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A frozen server takes the connection and never answers."""
        assert tunnels._CONNECT_SECONDS < SECONDS
        monkeypatch.setattr(tunnels, "_CONNECT_SECONDS", 0.5)
        with socket.create_server(("127.0.0.1", 0)) as silent:
            assert "option HOST" in refusal(bastion, PORT=str(silent.getsockname()[1])).message

    def test_the_target(self, bastion: SSHServer) -> None:
        """What is behind the tunnel is down, or may not be reached from there."""
        found = refusal(bastion, target=("down.internal", 1))
        assert found.option == "HOST"
        assert "down.internal:1 takes no connection from the tunnel's server" in found.message
        bastion.forbidden.add(("else.internal", 1))
        found = refusal(bastion, target=("else.internal", 1))
        assert found.option == "SSH TUNNEL"
        assert "option USER: the server does not forward to else.internal:1" in found.message


@pytest.mark.services
class TestServers:
    """Real servers behind a tunnel, which know nothing of it."""

    def test_postgres(self, bastion: SSHServer, postgres: PostgresServer) -> None:
        """Its own refusal comes through as it is, and so does what lets us in."""
        there = postgres.parameters("app", "shop")
        bastion.names["pg.internal", 5432] = there["host"], int(there["port"])
        own: dict[str, str | Secret] = {
            "HOST": "pg.internal", "DATABASE": "shop", "USER": "app", "SSL MODE": "disable",
            **through(bastion),
        }
        password = Secret(str(there["password"]))
        for given, option in ((Secret("wrong"), "PASSWORD"), (password, None)):
            (found,) = validate_connection("POSTGRES", {**own, "PASSWORD": given}, subject="c")
            assert (found.ok, found.option) == (option is None, option)
        found, = validate_connection("POSTGRES", {**own, **through(bastion, PORT="1")}, subject="c")
        assert (found.subject, found.option) == ("c", "SSH TUNNEL")

    def test_kafka(self, bastion: SSHServer, kafka: KafkaCluster, topic_name: str) -> None:
        """A broker that says it is at the tunnel's end works; another is refused, as named."""
        where, local = kafka.tunnelled
        host, _, port = kafka.plain_bootstrap.rpartition(":")
        bastion.names |= {("k.internal", local): where, ("k.internal", 9092): (host, int(port))}
        kafka.create_topic(topic_name)
        own = {"BROKER": f"k.internal:{local}", **through(bastion)}
        (fine,) = validate_connection("KAFKA", own, subject="c")
        assert fine.ok, fine
        found = find_connector("KAFKA").identify(
            own, (topic_name,), subject="connection", timeout=10.0
        )
        assert list(found.topic_ids) == [topic_name]
        begun = time.monotonic()
        past = {"BROKER": "k.internal:9092", **through(bastion)}
        (found,) = validate_connection("KAFKA", past, subject="c")
        assert time.monotonic() - begun < SECONDS
        assert (found.ok, found.option) == (False, "SSH TUNNEL")
        assert f"broker 1 says it is at {kafka.plain_bootstrap}" in found.message
        assert "localhost:9092" in str(found.remedy)


def test_without_the_package(monkeypatch: pytest.MonkeyPatch, bastion: SSHServer) -> None:
    """The error names the extra to install."""
    monkeypatch.setitem(sys.modules, "asyncssh", None)
    with pytest.raises(PrerequisiteMissing, match=r"catalog_migrate\[tunnel\]"):
        try_tunnel(options(bastion), subject="t")


class TestHostKeys:
    """What HOST KEY takes."""

    @pytest.mark.parametrize("more", ["", " root@bastion", "  "])
    def test_forms(self, more: str) -> None:
        """A line of a .pub file, of known_hosts, or a fingerprint; comments are left out."""
        assert canonical_host_key(PUBLIC + more) == PUBLIC
        assert canonical_host_key("bastion.example.com " + PUBLIC + more) == PUBLIC
        assert canonical_host_key(fingerprint(PUBLIC) + "=") == fingerprint(PUBLIC)

    @pytest.mark.parametrize(
        "text",
        ["", "SHA256:short", "MD5:16:27:ac", "ssh-ed25519", "ssh-ed25519 AAAA", "ssh-ed25519 %%%",
         "ssh-rsa " + PUBLIC.split()[1], PRIVATE],
        ids=range(8),  # the keys are made anew by each worker
    )
    def test_others(self, text: str) -> None:
        """Anything else is refused."""
        with pytest.raises(ValueError, match=r"key|fingerprint"):
            canonical_host_key(text)
