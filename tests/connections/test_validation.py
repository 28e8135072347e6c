"""Probes of real servers: a failure says which option is at fault, in time, without secrets."""

from __future__ import annotations

import contextlib
import shutil
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from catalog_migrate.connectors.base import Identity, find_connector
from catalog_migrate.connectors.findings import TookTooLong, within
from catalog_migrate.connectors.kafka.probe import KafkaProbe, kafka_identity
from catalog_migrate.connectors.postgres.probe import fits
from catalog_migrate.connectors.resolved import Resolved
from catalog_migrate.connectors.secrets import Secret
from catalog_migrate.connectors.validation import validate_connection, validate_query
from catalog_migrate.errors import ConnectionFailed, InvalidOptions
from catalog_migrate.model.findings import Finding
from catalog_migrate.model.objects import Column, External
from tests.services.ssh import USER, SSHServer, new_key

if TYPE_CHECKING:
    from tests.services.kafka import KafkaCluster
    from tests.services.postgres import PostgresServer

MARKER = "MARKER-e4c1"
LIMIT = 60.0
"""Seconds that a probe which cannot work may take; clients left to themselves take minutes."""

COLUMNS = (Column("id", "BIGINT"), Column("name", "STRING"))


def identity(connector: str, resolved: Resolved, names: Sequence[str] = ()) -> Identity:
    """Return which upstream answers."""
    return find_connector(connector).identify(resolved, names, subject="connection", timeout=10.0)


@pytest.fixture(autouse=True)
def in_time() -> Iterator[None]:
    """Every probe of this file ends long before the clients' own limits, so whole tests do."""
    begun = time.monotonic()
    yield
    assert time.monotonic() - begun < 2 * LIMIT


def scram(kafka: KafkaCluster, user: str = "app", **more: str | Secret) -> dict[str, str | Secret]:
    """A connection's resolved options for one user."""
    return {
        "BROKER": kafka.bootstrap,
        "SECURITY PROTOCOL": "SASL_PLAINTEXT",
        "SASL MECHANISMS": "SCRAM-SHA-512",
        "SASL USERNAME": user,
        "SASL PASSWORD": Secret(kafka.users[user]),
        **more,
    }


def only(found: tuple[Finding, ...], subject: str, option: str) -> str:
    """The message of the one finding, which is bad, names subject and option and has a remedy."""
    (finding,) = found
    assert not finding.ok
    assert finding.subject == subject
    assert finding.option == option
    assert finding.remedy
    assert MARKER not in str(finding)
    assert str(finding).startswith(f"{subject}, option {option}: ")
    return finding.message


def kafka_failure(resolved: Resolved, option: str) -> str:
    """What validation of a connection that cannot work says, in time."""
    begun = time.monotonic()
    found = validate_connection("KAFKA", resolved, subject="connection s.c")
    assert time.monotonic() - begun < LIMIT
    return only(found, "connection s.c", option)


class TestWithoutServers:
    """What needs no server."""

    def test_unknown_host(self) -> None:
        """A host without address: BROKER."""
        assert "no-such-host.invalid" in kafka_failure(
            {"BROKER": "no-such-host.invalid:9092"}, "BROKER"
        )

    def test_closed_port(self) -> None:
        """A port that nobody listens on: BROKER, and PORT of a database."""
        assert "Connection refused" in kafka_failure({"BROKER": "127.0.0.1:1"}, "BROKER")
        found = validate_connection(
            "POSTGRES",
            {"HOST": "127.0.0.1", "PORT": "1", "DATABASE": "d", "USER": "u",
             "PASSWORD": Secret(MARKER)},
            subject="connection s.d",
        )  # fmt: skip
        assert "Connection refused" in only(found, "connection s.d", "PORT")

    def test_silent_server(self) -> None:
        """A server that takes connections and never answers costs no more than the time limit."""
        with socket.create_server(("127.0.0.1", 0)) as server:
            port = server.getsockname()[1]
            begun = time.monotonic()
            message = kafka_failure({"BROKER": f"127.0.0.1:{port}"}, "BROKER")
            assert "timed out" in message
            found = validate_connection(
                "POSTGRES",
                {"HOST": "127.0.0.1", "PORT": str(port), "DATABASE": "d", "USER": "u"},
                timeout=3.0,
            )
            only(found, "connection", "HOST")
            assert time.monotonic() - begun < LIMIT

    def test_hanging_up(self) -> None:
        """A listener that hangs up on us wants another protocol."""
        with socket.create_server(("127.0.0.1", 0)) as server:
            port = server.getsockname()[1]
            done = threading.Event()
            thread = threading.Thread(target=_hang_up, args=(server, done), daemon=True)
            thread.start()
            kafka_failure({"BROKER": f"127.0.0.1:{port}"}, "SECURITY PROTOCOL")
            done.set()

    def test_broken_certificates(self) -> None:
        """Texts that are no PEM are the options' fault, and a key is not shown."""
        pem = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"
        tls = {"BROKER": "127.0.0.1:1", "SECURITY PROTOCOL": "SSL"}
        kafka_failure({**tls, "SSL CERTIFICATE AUTHORITY": pem}, "SSL CERTIFICATE AUTHORITY")
        key = Secret(f"-----BEGIN PRIVATE KEY-----\n{MARKER}\n-----END PRIVATE KEY-----\n")
        kafka_failure({**tls, "SSL KEY": key}, "SSL KEY")

    def test_unknown_database_host(self) -> None:
        """A database host without address: HOST."""
        found = validate_connection(
            "POSTGRES", {"HOST": "no-such-host.invalid", "DATABASE": "d", "USER": "u"}
        )
        assert "no-such-host.invalid" in only(found, "connection", "HOST")

    def test_within(self) -> None:
        """A call is waited for no longer than it may take, and its error is its own."""
        assert within(5, lambda: 1) == 1
        with pytest.raises(TookTooLong):
            within(0.05, lambda: time.sleep(1))
        with pytest.raises(ZeroDivisionError):
            within(5, lambda: 1 / 0)

    def test_no_such_section(self) -> None:
        """A FILES sink is refused with the reason."""
        with pytest.raises(InvalidOptions, match="has no sinks"):
            validate_query("FILES", "sink", {}, External(), ())

    @pytest.mark.parametrize(
        ("spark_type", "name", "category", "fine"),
        [
            ("BIGINT", "int8", "N", True),
            ("BIGINT", "int4", "N", False),
            ("INT", "numeric", "N", True),
            ("DECIMAL(10,2)", "numeric", "N", True),
            ("DECIMAL(10,2)", "float8", "N", False),
            ("STRING", "varchar", "S", True),
            ("STRING", "int4", "N", False),
            ("STRING", "mood", "E", True),
            ("STRING", "jsonb", "U", True),
            ("TIMESTAMP", "timestamptz", "D", True),
            ("TIMESTAMP_NTZ", "timestamptz", "D", False),
            ("BINARY", "bytea", "U", True),
            ("BIGINT", "bytea", "U", False),
            ("STRUCT<a: INT>", "jsonb", "U", True),
            ("ARRAY<INT>", "_int4", "A", True),
            ("ARRAY<INT>", "int4", "N", False),
            ("BOOLEAN", "text", "S", True),
        ],
    )
    def test_fits(self, spark_type: str, name: str, category: str, fine: bool) -> None:
        """A column is accepted when its type holds every value."""
        assert fits(spark_type, name, category) is fine


def _hang_up(server: socket.socket, done: threading.Event) -> None:
    server.settimeout(0.2)
    while not done.is_set():
        try:
            server.accept()[0].close()
        except OSError:
            continue


class TestFiles:
    """Directories."""

    def test_directory(self, tmp_path: Path) -> None:
        """A directory that is there is fine; its identity is where it really lies."""
        resolved = {"PATH": str(tmp_path)}
        (found,) = validate_connection("FILES", resolved)
        assert found.ok
        link = tmp_path / "link"
        link.symlink_to(tmp_path)
        assert identity("FILES", {"PATH": str(link)}) == identity("FILES", resolved)

    def test_failures(self, tmp_path: Path) -> None:
        """What is missing, no directory, or outside is PATH's fault."""
        (tmp_path / "file").write_text("x")
        missing = {"PATH": str(tmp_path / "none")}
        assert "is not there" in only(validate_connection("FILES", missing), "connection", "PATH")
        with pytest.raises(ConnectionFailed, match="is not there"):
            identity("FILES", missing)
        for sub, why in {"file": "is no directory", "none": "is not there", "..": "leads"}.items():
            external = External(options={"PATH": sub})
            found = validate_query(
                "FILES", "source", {"PATH": str(tmp_path)}, external, subject="source s"
            )
            assert why in only(found, "source s", "PATH")


@pytest.mark.services
class TestKafka:
    """A real broker with SCRAM and ACLs."""

    def test_fine(self, kafka: KafkaCluster) -> None:
        """A connection that works says which cluster it reached."""
        (found,) = validate_connection("KAFKA", scram(kafka), subject="connection s.c")
        assert found == Finding(
            "connection s.c", None, "ok", f"connected to cluster {kafka.cluster_id}, 1 brokers"
        )

    def test_one_of_several_brokers_is_enough(self, kafka: KafkaCluster) -> None:
        """A closed port beside an open one is no failure, as for Kafka's own clients."""
        resolved = scram(kafka, BROKER=f"127.0.0.1:1,{kafka.bootstrap}")
        assert [found.ok for found in validate_connection("KAFKA", resolved)] == [True]

    def test_odd_password(self, kafka: KafkaCluster, user_name: str) -> None:
        """Quotes, backslashes and blanks in a password reach the broker as they are."""
        kafka.set_password(user_name, "p\"'\\ ;=x")
        assert validate_connection("KAFKA", scram(kafka, user_name))[0].ok

    def test_wrong_password(self, kafka: KafkaCluster) -> None:
        """A wrong password is named, without it, long before the time limit of the probe."""
        begun = time.monotonic()
        wrong = {**scram(kafka), "SASL PASSWORD": Secret(MARKER)}
        found = validate_connection("KAFKA", wrong, subject="connection s.c", timeout=4 * LIMIT)
        assert time.monotonic() - begun < LIMIT
        only(found, "connection s.c", "SASL PASSWORD")

    def test_tls_where_none_is(self, kafka: KafkaCluster) -> None:
        """TLS to listeners without it: SECURITY PROTOCOL."""
        for broker in (kafka.plain_bootstrap, kafka.bootstrap):
            kafka_failure({"BROKER": broker, "SECURITY PROTOCOL": "SSL"}, "SECURITY PROTOCOL")

    def test_login_where_none_is(self, kafka: KafkaCluster) -> None:
        """A login to the plain listener: SECURITY PROTOCOL."""
        kafka_failure({**scram(kafka), "BROKER": kafka.plain_bootstrap}, "SECURITY PROTOCOL")

    def test_no_login_where_one_is(self, kafka: KafkaCluster) -> None:
        """No login to the listener that wants one: SECURITY PROTOCOL."""
        kafka_failure({"BROKER": kafka.bootstrap}, "SECURITY PROTOCOL")

    def test_topic(self, kafka: KafkaCluster, topic_name: str) -> None:
        """A topic that is there is fine for source and sink; one that is not is TOPIC's fault."""
        kafka.create_topic(topic_name, 2)
        there = External(options={"TOPIC": topic_name})
        assert validate_query("KAFKA", "source", scram(kafka), there)[0].message == (
            f"topic {topic_name} has 2 partitions and allows READ"
        )
        assert validate_query("KAFKA", "sink", scram(kafka), there, COLUMNS)[0].ok
        gone = External(options={"TOPIC": f"{topic_name},no-such-topic"})
        good, bad = validate_query("KAFKA", "source", scram(kafka), gone, subject="source s.s")
        assert good.ok
        assert only((bad,), "source s.s", "TOPIC") == "there is no topic no-such-topic"

    def test_no_permission(self, kafka: KafkaCluster, topic_name: str) -> None:
        """A user who may not see, read or write a topic is told so before anything starts."""
        kafka.create_topic(topic_name)
        topic = External(options={"TOPIC": topic_name})
        kafka.allow("other", topic_name)
        assert validate_query("KAFKA", "source", scram(kafka, "other"), topic)[0].ok
        found = validate_query("KAFKA", "source", scram(kafka), topic, subject="source s.s")
        assert only(found, "source s.s", "TOPIC") == f"this user may not see topic {topic_name}"
        kafka.allow("app", topic_name, "READ")
        assert validate_query("KAFKA", "source", scram(kafka), topic)[0].ok
        found = validate_query("KAFKA", "sink", scram(kafka), topic, COLUMNS, subject="sink s.k")
        assert only(found, "sink s.k", "TOPIC") == f"this user may not WRITE topic {topic_name}"
        kafka.revoke(topic_name)
        kafka.allow("other", topic_name)
        with pytest.raises(ConnectionFailed, match="may not see"):
            identity("KAFKA", scram(kafka), [topic_name])

    def test_identity(
        self, kafka: KafkaCluster, kafka_other: KafkaCluster, topic_name: str
    ) -> None:
        """Cluster and topic ids tell another cluster and a recreated topic from the first ones."""
        for cluster in (kafka, kafka_other):
            cluster.create_topic(topic_name)
        first = identity("KAFKA", scram(kafka), [topic_name])
        assert first == Identity(
            "KAFKA", kafka.cluster_id, {topic_name: kafka.topic_id(topic_name)}
        )
        elsewhere = identity("KAFKA", scram(kafka_other), [topic_name])
        assert elsewhere.cluster_id == kafka_other.cluster_id != first.cluster_id
        with KafkaProbe(scram(kafka)) as probe:
            assert kafka_identity(probe, [topic_name]) == first
            kafka.delete_topic(topic_name)
            assert kafka_identity(probe, [topic_name]) == Identity("KAFKA", kafka.cluster_id)
            kafka.create_topic(topic_name)
            again = kafka_identity(probe, [topic_name])
        assert again.topic_ids[topic_name] != first.topic_ids[topic_name]

    def test_bounds(self, kafka: KafkaCluster, topic_name: str) -> None:
        """First and next offsets per partition, after records were deleted too."""
        kafka.create_topic(topic_name, 2)
        kafka.produce(topic_name, [f"v{n}" for n in range(5)])
        expected = kafka.watermarks(topic_name)
        assert sum(high - low for low, high in expected.values()) == 5
        wanted = {(topic_name, number): held for number, held in expected.items()}
        with KafkaProbe(scram(kafka)) as probe:
            assert probe.bounds([topic_name]) == wanted
            kafka.delete_records(topic_name)
            assert probe.bounds([topic_name]) == {
                place: (high, high) for place, (_, high) in wanted.items()
            }
            with pytest.raises(ConnectionFailed, match="there is no topic no-such"):
                probe.bounds(["no-such"])

    def test_suspended_broker(self, kafka: KafkaCluster) -> None:
        """A broker that stopped answering is given up in time."""
        kafka.suspend()
        try:
            assert "timed out" in kafka_failure(scram(kafka), "BROKER")
        finally:
            kafka.wake()


@pytest.mark.services
class TestTls:
    """A real broker with a certificate of its own."""

    def test_trusted(self, kafka_other: KafkaCluster) -> None:
        """With the certificate given, TLS works with and without login."""
        authority = kafka_other.certificate.read_text()
        tls = {"SECURITY PROTOCOL": "SSL", "SSL CERTIFICATE AUTHORITY": authority}
        assert validate_connection("KAFKA", {"BROKER": kafka_other.ssl_bootstrap, **tls})[0].ok
        both = {
            **scram(kafka_other), **tls,
            "SECURITY PROTOCOL": "SASL_SSL", "BROKER": kafka_other.sasl_ssl_bootstrap,
        }  # fmt: skip
        assert validate_connection("KAFKA", both)[0].ok

    def test_not_trusted(self, kafka_other: KafkaCluster) -> None:
        """Without it the broker's certificate is not trusted."""
        kafka_failure(
            {"BROKER": kafka_other.ssl_bootstrap, "SECURITY PROTOCOL": "SSL"},
            "SSL CERTIFICATE AUTHORITY",
        )

    def test_plain_to_tls(self, kafka_other: KafkaCluster) -> None:
        """No TLS to a listener that wants it: SECURITY PROTOCOL."""
        kafka_failure({"BROKER": kafka_other.ssl_bootstrap}, "SECURITY PROTOCOL")
        kafka_failure(
            {**scram(kafka_other), "BROKER": kafka_other.sasl_ssl_bootstrap}, "SECURITY PROTOCOL"
        )


def login(postgres: PostgresServer, user: str = "app", **more: str) -> dict[str, str | Secret]:
    """A connection's resolved options for one user of the database shop."""
    parameters = postgres.parameters(user)
    return {
        "HOST": "127.0.0.1",
        "PORT": str(postgres.port),
        "DATABASE": "shop",
        "USER": user,
        "PASSWORD": Secret(parameters["password"]),
        **more,
    }


def into(table: str, *key: str) -> External:
    """The external part of a sink."""
    return External(connector="POSTGRES", options={"TABLE": table}, key=key)


def bad(found: tuple[Finding, ...]) -> list[tuple[str | None, str]]:
    """(option, message) of what is wrong; each has a remedy."""
    assert all(finding.remedy for finding in found if not finding.ok)
    return [(finding.option, finding.message) for finding in found if not finding.ok]


@pytest.mark.services
class TestPostgres:
    """A real server."""

    def test_fine(self, postgres: PostgresServer) -> None:
        """A connection that works says what it reached."""
        (found,) = validate_connection("POSTGRES", login(postgres))
        assert found.ok
        assert found.message.startswith("connected to PostgreSQL 18")

    @pytest.mark.parametrize(
        ("change", "option"),
        [
            ({"PASSWORD": Secret(MARKER)}, "PASSWORD"),
            ({"DATABASE": "no_such"}, "DATABASE"),
            ({"SSL MODE": "require"}, "SSL MODE"),
            ({"SSL MODE": "verify-full"}, "SSL MODE"),
        ],
    )
    def test_refused(
        self, postgres: PostgresServer, change: dict[str, str | Secret], option: str
    ) -> None:
        """Each reason for which the server turns us away is one option's fault."""
        resolved = {**login(postgres), **change}
        found = validate_connection("POSTGRES", resolved, subject="connection d")
        only(found, "connection d", option)

    def test_password_of_the_environment_is_not_used(
        self, postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A connection without PASSWORD has none, whatever the process' environment holds."""
        resolved = login(postgres)
        monkeypatch.setenv("PGPASSWORD", str(postgres.parameters("app")["password"]))
        del resolved["PASSWORD"]
        only(validate_connection("POSTGRES", resolved), "connection", "PASSWORD")

    def test_table(self, postgres: PostgresServer, table_name: str) -> None:
        """A table with the columns is fine, names compare without case, a key wants its index."""
        postgres.execute(
            f'CREATE TABLE {table_name} (id bigint PRIMARY KEY, "Name" text, at date)',
            user="app", database="shop",
        )  # fmt: skip
        found = validate_query("POSTGRES", "sink", login(postgres), into(table_name, "ID"), COLUMNS)
        assert bad(found) == []
        assert f"{table_name} takes rows of 2 columns by ID" in [each.message for each in found]
        found = validate_query(
            "POSTGRES", "sink", login(postgres), into(table_name, "name"), COLUMNS
        )
        assert bad(found) == [
            ("TABLE", f"{table_name} has no unique index on exactly (name)"),
        ]

    def test_everything_wrong_with_a_table(self, postgres: PostgresServer, table_name: str) -> None:
        """Missing and generated columns, types, columns that would stay empty: all at once."""
        postgres.execute(
            f"CREATE TABLE {table_name} (id int, name text GENERATED ALWAYS AS ('x') STORED,"
            " must text NOT NULL)",
            user="app", database="shop",
        )  # fmt: skip
        columns = (*COLUMNS, Column("extra", "DATE"))
        found = validate_query("POSTGRES", "sink", login(postgres), into(table_name), columns)
        assert bad(found) == [
            ("TABLE", f"column id of {table_name} is integer, which does not hold every BIGINT"),
            ("TABLE", f"column name of {table_name} is generated there"),
            ("TABLE", f"{table_name} has no column extra (DATE)"),
            (
                "TABLE",
                f"column must of {table_name} is NOT NULL without a default, and the sink has no "
                "such column",
            ),
        ]

    def test_missing_table(self, postgres: PostgresServer) -> None:
        """A table that is not there, and a view."""
        found = validate_query("POSTGRES", "sink", login(postgres), into("no_such"), COLUMNS)
        assert bad(found) == [("TABLE", "there is no table no_such")]
        found = validate_query(
            "POSTGRES", "sink", login(postgres), into("pg_catalog.pg_tables"), COLUMNS
        )
        assert bad(found) == [("TABLE", "pg_catalog.pg_tables is no table of rows")]

    def test_privileges(
        self, postgres: PostgresServer, table_name: str, user_name: str, schema_name: str
    ) -> None:
        """Each missing privilege is named: on the schema, the table, its key and the ledger."""
        postgres.create_user(user_name, "pw")
        table = f"{schema_name}.{table_name}"
        for statement in (
            f"CREATE SCHEMA {schema_name}",
            f"CREATE TABLE {table} (id bigint PRIMARY KEY, name text)",
        ):
            postgres.execute(statement, database="shop")
        sink = into(table, "id")

        def problems() -> list[tuple[str | None, str]]:
            return bad(validate_query(
                "POSTGRES", "sink", login(postgres, user_name), sink, COLUMNS)
            )

        assert problems() == [("TABLE", f"this role may not look into the schema of {table}")]
        postgres.execute(f"GRANT USAGE ON SCHEMA {schema_name} TO {user_name}", database="shop")
        ledger = (
            "USER",
            "the table catalog_migrate_ledger, which makes a sink exactly once, cannot be created "
            f"in schema {schema_name} by this role",
        )
        assert problems() == [
            ("TABLE", f"this role may not INSERT into {table}"),
            ("TABLE", f"this role may not UPDATE and SELECT {table}"),
            ledger,
        ]
        postgres.execute(
            f"GRANT SELECT, INSERT, UPDATE ON {table} TO {user_name}", database="shop"
        )
        assert problems() == [ledger]
        postgres.execute(
            f"CREATE TABLE {schema_name}.catalog_migrate_ledger (batch bigint)", database="shop"
        )
        assert problems() == [
            ("USER", f"this role may not use the table {schema_name}.catalog_migrate_ledger")
        ]
        postgres.execute(
            f"GRANT SELECT, INSERT, DELETE ON {schema_name}.catalog_migrate_ledger TO {user_name}",
            database="shop",
        )
        assert problems() == []

    def test_read_only_role(self, postgres: PostgresServer, user_name: str) -> None:
        """A role that is set to read only is refused."""
        postgres.create_user(user_name, "pw")
        postgres.execute(f"ALTER ROLE {user_name} SET default_transaction_read_only = on")
        found = validate_connection("POSTGRES", login(postgres, user_name))
        assert "writes nothing" in only(found, "connection", "USER")

    def test_identity(self, postgres: PostgresServer) -> None:
        """Server and database make the identity; any role may ask."""
        first = identity("POSTGRES", login(postgres))
        assert first.cluster_id.startswith(f"{postgres.system_identifier}/")
        postgres.create_database("identity_of_another")
        second = identity("POSTGRES", login(postgres, DATABASE="identity_of_another"))
        assert second.cluster_id.startswith(f"{postgres.system_identifier}/")
        assert second.cluster_id != first.cluster_id

    def test_suspended_server(self, postgres: PostgresServer) -> None:
        """A server that stopped answering is given up in time."""
        postgres.suspend()
        try:
            only(validate_connection("POSTGRES", login(postgres)), "connection", "HOST")
        finally:
            postgres.wake()


@pytest.mark.services
def test_standby(tmp_path: Path) -> None:
    """A hot standby lets us in and takes no writes: refused."""
    from tests.services.postgres import PostgresServer

    with PostgresServer(tmp_path / "standby") as server:
        server.create_database("shop")
        data = Path(str(server.execute("SHOW data_directory")[0][0]))
        server.stop()
        (data / "standby.signal").touch()
        server.start()
        found = validate_connection("POSTGRES", login(server, "owner"), subject="connection d")
        assert "standby" in only(found, "connection d", "HOST")
        found = validate_query("POSTGRES", "sink", login(server, "owner"), into("t"), COLUMNS)
        assert found[0].message == "the server is a standby and takes no writes"


class TlsFront:
    """TLS before a PostgreSQL server, as a proxy would give it; asks clients for a certificate."""

    def __init__(self, server_port: int, certificate: Path, key: Path) -> None:
        self._server_port = server_port
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(certificate, key)
        self._context.load_verify_locations(certificate)
        self._context.verify_mode = ssl.CERT_OPTIONAL
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.certificates: list[object] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """Take no more connections."""
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with contextlib.suppress(OSError), client:
            client.recv(8)  # SSLRequest
            client.sendall(b"S")
            with (
                self._context.wrap_socket(client, server_side=True) as inner,
                socket.create_connection(("127.0.0.1", self._server_port)) as server,
            ):
                self.certificates.append(inner.getpeercert())
                back = threading.Thread(target=_pump, args=(server, inner), daemon=True)
                back.start()
                _pump(inner, server)
                back.join(2)


def _pump(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)


@pytest.mark.services
@pytest.mark.skipif(shutil.which("openssl") is None, reason="makes its certificate with openssl")
def test_postgres_over_tls(postgres: PostgresServer, tmp_path: Path) -> None:
    """Certificates given as text are what the server's and ours are checked by."""
    certificate, key = tmp_path / "server.crt", tmp_path / "server.key"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj",
         "/CN=app", "-addext", "subjectAltName=IP:127.0.0.1,DNS:db.internal",
         "-keyout", str(key), "-out", str(certificate)],
        check=True, capture_output=True,
    )  # fmt: skip
    front = TlsFront(postgres.port, certificate, key)
    try:
        full = login(postgres, PORT=str(front.port), **{"SSL MODE": "verify-full"})
        trusted = {**full, "SSL CERTIFICATE AUTHORITY": certificate.read_text()}
        assert validate_connection("POSTGRES", trusted)[0].ok
        mine = {"SSL CERTIFICATE": certificate.read_text(), "SSL KEY": Secret(key.read_text())}
        assert validate_connection("POSTGRES", {**trusted, **mine})[0].ok
        assert front.certificates[0] in (None, {})
        assert dict(front.certificates[1])["subject"] == ((("commonName", "app"),),)  # type: ignore[call-overload]
        found = validate_connection("POSTGRES", full)
        only(found, "connection", "SSL CERTIFICATE AUTHORITY")
        found = validate_connection("POSTGRES", {**trusted, "HOST": "localhost"})
        only(found, "connection", "HOST")
        # behind a tunnel the name counts as well, not the address of the tunnel's end
        private, public = new_key()
        names = {(name, 5432): ("127.0.0.1", front.port) for name in ("db.internal", "other")}
        with SSHServer([public], names) as bastion:
            behind: dict[str, str | Secret] = {
                **trusted, "PORT": "5432", "SSH TUNNEL": "t", "SSH TUNNEL HOST": "127.0.0.1",
                "SSH TUNNEL PORT": str(bastion.port), "SSH TUNNEL USER": USER,
                "SSH TUNNEL PRIVATE KEY": Secret(private), "SSH TUNNEL HOST KEY": bastion.host_key,
            }
            assert validate_connection("POSTGRES", {**behind, "HOST": "db.internal"})[0].ok
            found = validate_connection("POSTGRES", {**behind, "HOST": "other"})
            assert "other" in only(found, "connection", "HOST")
    finally:
        front.close()
