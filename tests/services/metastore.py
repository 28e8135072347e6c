"""A Hive metastore of the tests: its Thrift server from PySpark's jars, its rows on PostgreSQL.

:class:`SlowWire` stands between it and those who ask it.
"""

from __future__ import annotations

import socket
import socketserver
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

from catalog_migrate.engine.spark.jars import LockedJar, check_java, ensure_jars, locate_pyspark
from tests.services.postgres import OWNER, PostgresServer
from tests.services.process import ServerProcess, ServiceFailed, free_ports

POSTGRES_DRIVER = LockedJar(
    "org.postgresql", "postgresql", "42.7.14", 1221004,
    "73914527305a40cce504b0d3d90b23caf565136912d607ae8ae7c5895512332c",
)
MADE_BY_HIVE = {
    # foreign keys made by themselves wait for each other on PostgreSQL, for ever
    "datanucleus.schema.autoCreateConstraints": "false",
    "datanucleus.schema.autoCreateTables": "true",
    "datanucleus.schema.autoCreateColumns": "true",
    "hive.metastore.schema.verification": "false",
}
"""What has Hive make the tables of a metastore that are not there yet."""
_OPENED = ("java.net", "java.lang", "java.nio", "java.util")


class HiveMetastore:
    """A running metastore on a database of a PostgreSQL server; :attr:`address` is ``thrift://…``.

    ``database`` is made when it is not there; Hive makes its tables as it needs them. Hive 2.3 has
    no setting for the interface and would listen on all of them, so its server is put together
    here, on the loopback, in a JVM of its own.
    """

    def __init__(
        self, home: Path, postgres: PostgresServer, database: str = "metastore", *,
        user: str = OWNER,
    ) -> None:
        self.home = home
        self._postgres = postgres
        self.database = database
        """Where its rows are."""
        self.user = user
        """As whom it logs in there, from its next start on."""
        (self._port,) = free_ports(1)
        known = postgres.execute("SELECT 1 FROM pg_database WHERE datname = %s", [database])
        if not known:
            postgres.create_database(database)
        self._server: ServerProcess | None = None
        self.start()

    def __enter__(self) -> HiveMetastore:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()  # its rows are PostgreSQL's

    @property
    def port(self) -> int:
        """Where it listens on 127.0.0.1."""
        return self._port

    @property
    def address(self) -> str:
        """What ``hive.metastore.uris`` is to be."""
        return f"thrift://127.0.0.1:{self._port}"

    def start(self) -> None:
        """Start it, or again after :meth:`kill`: same database, same address."""
        pyspark = locate_pyspark()
        (door,) = free_ports(1)
        log = self.home / "metastore.log"
        log.write_bytes(b"")
        driver = ensure_jars(jars=[POSTGRES_DRIVER])
        self._server = ServerProcess(
            [
                check_java(), "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1",
                *(f"--add-opens=java.base/{each}=ALL-UNNAMED" for each in _OPENED),
                "-cp", ":".join([*driver, f"{pyspark}/jars/*"]),
                "py4j.GatewayServer", "--enable-auth", str(door),
            ],
            log=log, cwd=self.home,
        )
        self._server.await_ready(
            lambda: _listens(door) and bool(self._token(door)), "the metastore's JVM did not answer"
        )
        try:
            self._serve(door, self._token(door))
        except BaseException:
            self.kill()
            raise
        self._server.await_ready(lambda: _listens(self._port), "the metastore did not listen")

    def kill(self) -> None:
        """End it by SIGKILL; what it has answered is in PostgreSQL."""
        if self._server is not None:
            self._server.kill()
            self._server = None

    def _token(self, door: int) -> str:
        """What the JVM wants to hear from whoever gives it orders: the line behind its port's."""
        assert self._server is not None
        _, _, behind = self._server.said().partition(f"{door}\n")
        token, end, _ = behind.partition("\n")
        return token if end else ""

    def _settings(self) -> Mapping[str, str]:
        login = self._postgres.parameters(self.user, self.database)
        jdo = "javax.jdo.option.Connection"
        return {
            f"{jdo}URL": f"jdbc:postgresql://127.0.0.1:{login['port']}/{self.database}",
            f"{jdo}DriverName": "org.postgresql.Driver",
            f"{jdo}UserName": self.user,
            f"{jdo}Password": str(login["password"]),
            **MADE_BY_HIVE,
            "hive.metastore.warehouse.dir": (self.home / "hive").as_uri(),
        }

    def _serve(self, door: int, token: str) -> None:
        """Put Hive's server together in the JVM, as its main class does, and run it in a thread."""
        from py4j.java_gateway import GatewayParameters, JavaGateway
        from py4j.protocol import Py4JError

        gateway = JavaGateway(gateway_parameters=GatewayParameters(
            # nobody is to be told of references when the JVM is killed
            port=door, auth_token=token, enable_memory_management=False,
        ))
        java: Any = gateway.jvm.java
        apache: Any = gateway.jvm.org.apache
        hive, thrift = apache.hadoop.hive, apache.thrift
        conf = hive.conf.HiveConf()
        for name, value in self._settings().items():
            conf.set(name, value)
        try:
            base = getattr(hive.metastore, "HiveMetaStore$HMSHandler")("tests", conf, False)
            handler = hive.metastore.HiveMetaStore.newRetryingHMSHandler(base, conf)
            address = java.net.InetSocketAddress("127.0.0.1", self._port)
            parts = getattr(thrift.server, "TThreadPoolServer$Args")(
                thrift.transport.TServerSocket(address)
            )
            parts.processor(hive.metastore.TUGIBasedProcessor(handler))
            parts.transportFactory(getattr(hive.thrift, "TUGIContainingTransport$Factory")())
            parts.protocolFactory(getattr(thrift.protocol, "TBinaryProtocol$Factory")())
            serve = java.lang.invoke.MethodHandles.publicLookup().bind(
                thrift.server.TThreadPoolServer(parts), "serve",
                java.lang.invoke.MethodType.methodType(java.lang.Void.TYPE),
            )
            java.lang.Thread(java.lang.invoke.MethodHandleProxies.asInterfaceInstance(
                java.lang.Class.forName("java.lang.Runnable"), serve
            )).start()
        except Py4JError as error:
            raise ServiceFailed(f"the metastore did not start: {error}") from error
        finally:
            gateway.close()


class Listening(Protocol):
    """A server on 127.0.0.1."""

    @property
    def port(self) -> int:
        """Where it listens."""


class SlowWire:
    """A TCP proxy before a metastore: ``delay`` seconds pass before what a client says arrives.

    A client of Thrift says one call at a time, so this is what a call takes; ``calls`` counts them.
    """

    def __init__(self, metastore: Listening) -> None:
        self.delay = 0.0
        self.calls = 0
        wire = self

        class Handler(socketserver.BaseRequestHandler):
            def handle(self) -> None:
                try:
                    server = socket.create_connection(("127.0.0.1", metastore.port), 5)
                except OSError:
                    return  # the client sees its connection closed
                server.settimeout(None)
                with server:
                    back = threading.Thread(
                        target=_pump, args=(server, self.request, lambda: None), daemon=True
                    )
                    back.start()
                    _pump(self.request, server, wire._wait)

        self._server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._server.block_on_close = False
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def __enter__(self) -> SlowWire:
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    @property
    def address(self) -> str:
        """What ``hive.metastore.uris`` is to be."""
        return f"thrift://127.0.0.1:{self.port}"

    @property
    def port(self) -> int:
        """Where it listens on 127.0.0.1."""
        return int(self._server.server_address[1])

    def _wait(self) -> None:
        self.calls += 1
        time.sleep(self.delay)


def _pump(source: socket.socket, target: socket.socket, before: Callable[[], None]) -> None:
    """Hand on what one says to the other until either hangs up; then both are cut."""
    with suppress(OSError):
        while said := source.recv(1 << 16):
            before()
            target.sendall(said)
    for end in (source, target):
        with suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)


def _listens(port: int) -> bool:
    socket.create_connection(("127.0.0.1", port), 1).close()
    return True
