"""Sessions of Spark Connect: opened here or handed over, and what the engine asks of a server."""

from __future__ import annotations

import os
import socket
import time

import pytest

from catalog_migrate.api.configured import open_spark
from catalog_migrate.config import load
from catalog_migrate.engine.port import ShardSpec
from catalog_migrate.engine.spark import connect, statements
from catalog_migrate.engine.spark.connect import is_connect, remote_session, show_server
from catalog_migrate.engine.spark.engine import SparkEngine
from catalog_migrate.engine.spark.object_stores.settings import LOG_STORE
from catalog_migrate.errors import EngineFailure, ServerUnreachable, UnsuitableSession, UsageError
from catalog_migrate.migrations.options import BootstrapOptions
from catalog_migrate.migrations.safe_commits import require_safe_commits
from catalog_migrate.model.names import ItemName
from catalog_migrate.model.objects import Column
from tests.services.process import free_ports


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("sc://spark.internal:15002", "sc://spark.internal:15002"),
        ("sc://spark.internal", "sc://spark.internal"),
        ("sc://spark.internal/", "sc://spark.internal"),
        ("sc://[::1]:15002/;use_ssl=true;token=MARKED", "sc://[::1]:15002"),
        (" sc://spark.internal:1/;token=a=b;user_id=MARKED ", "sc://spark.internal:1"),
    ],
)
def test_an_address_is_shown_without_its_parameters(address, shown):
    """Host and port are told, a token never is."""
    assert show_server(address) == shown


@pytest.mark.parametrize(
    "address", ["spark:MARKED", "http://h/;token=MARKED", "sc://", "sc://MARKED@h:1", "sc://h/MARKED"]
)
def test_what_is_no_address_is_refused_and_not_told(address):
    """It may hold a token in a place of its own."""
    with pytest.raises(UsageError, match=r"spark\.remote") as caught:
        show_server(address)
    assert "MARKED" not in str(caught.value)


@pytest.mark.parametrize("parameter", ["tokenMARKED", "session_id=MARKED"])
def test_parameters_that_nobody_knows_are_not_told(parameter):
    """What PySpark says of them would repeat them."""
    address = f"sc://127.0.0.1:1/;{parameter}"
    with pytest.raises(UsageError, match=r"sc://127\.0\.0\.1:1 with parameters") as caught:
        remote_session(address).__enter__()
    assert "MARKED" not in str(caught.value)


def test_a_server_that_is_not_there_is_told_soon(monkeypatch):
    """The address is named and why, no token is; the session is closed."""
    monkeypatch.setattr(connect, "_START", 0.0)
    (port,) = free_ports(1)
    began = time.monotonic()
    with pytest.raises(ServerUnreachable) as caught:
        remote_session(f"sc://127.0.0.1:{port}/;token=MARKED").__enter__()
    assert time.monotonic() - began < 15
    said = str(caught.value)
    assert f"CM0403: the Spark Connect server sc://127.0.0.1:{port} cannot be used" in said
    assert "refused" in said
    assert "MARKED" not in said


def test_a_server_that_says_nothing_is_told_in_time(monkeypatch):
    """Who takes the connection and answers nothing is given up."""
    assert connect._ANSWER < 15
    monkeypatch.setattr(connect, "_ANSWER", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        with pytest.raises(ServerUnreachable, match=r"no answer within 0\.5 s"):
            remote_session(f"sc://127.0.0.1:{port}").__enter__()


def test_a_local_session_is_none_of_spark_connect():
    """It is told by the class, with nothing imported."""
    assert not is_connect(object())
    client = type("SparkSession", (), {"__module__": "pyspark.sql.connect.session"})
    assert is_connect(client())
    assert is_connect(type("Theirs", (client,), {})())


def test_a_text_is_taken_as_it_stands(spark_connect):
    """A server reads a query again with every action, and puts nothing into it in any."""
    home = "${env:HOME}"
    assert spark_connect.sql(f"SELECT '{home}'").collect()[0][0] == os.environ["HOME"]
    assert statements.rows(spark_connect, f"SELECT '{home}'")[0][0] == home
    assert statements.schema(spark_connect, f"SELECT 1 AS `{home}`").names == [home]
    assert spark_connect.conf.get("spark.sql.variable.substitute") == "true"


def test_a_server_must_see_the_same_files(
    connect_server, spark_connect, schema_name, tmp_path, monkeypatch
):
    """A server elsewhere would make an empty table at the path: the name is refused instead."""
    (tmp_path / "rows").mkdir()
    monkeypatch.chdir(tmp_path / "rows")
    engine = SparkEngine(spark_connect)
    engine.ensure_schema(schema_name)
    name = ItemName(schema_name, "t")
    path = f"/proc/self/cwd/{schema_name}/t"  # another directory in every process

    def create(place: str, mark: str) -> None:
        stamps = {"catalog_migrate.id": mark}
        engine.create_shard(ShardSpec(place, [Column("id", "BIGINT")], stamps=stamps))

    create(path, "u1")
    for _ in ("missing", "another table"):
        with pytest.raises(EngineFailure, match="does not see the Delta table at /proc") as caught:
            engine.register_table(name, path)
        assert caught.value.condition == "DELTA_TABLE_NOT_FOUND"
        create(f"{connect_server.home}/{schema_name}/t", "u2")
    assert engine.names(schema_name) == frozenset()
    engine.register_table(name, str(tmp_path / "rows" / schema_name / "t"))
    assert engine.names(schema_name) == {name}


def test_a_client_sets_what_a_session_may_change(connect_server, tmp_path):
    """What is the server's, a secret above all, is named and not set."""
    env = {
        "CATALOG_MIGRATE__SPARK__REMOTE": connect_server.address,
        "CATALOG_MIGRATE__SPARK_CONF": "spark.sql.shuffle.partitions=3\nspark.master=local[7]\n"
        "spark.hadoop.fs.s3a.secret.key=env:MARKED",
    }
    notes: list[str] = []
    with open_spark(load(tmp_path, env=env), notes.append) as spark:
        assert spark.conf.get("spark.sql.shuffle.partitions") == "3"
        assert spark.conf.get("spark.master") != "local[7]"
    assert notes[1:] == [
        "spark_conf.spark.master belongs to the server: it is not set",
        "spark_conf.spark.hadoop.fs.s3a.secret.key belongs to the server: it is not set",
    ]


def test_names_of_a_server_are_those_of_all_its_clients(connect_server, spark_connect, schema_name):
    """They outlive a session, so they are changed under the lease only."""
    SparkEngine(spark_connect).ensure_schema(schema_name)
    with remote_session(connect_server.address) as other:
        engine = SparkEngine(other)
        assert engine.persistent_names
        found = [row[0] for row in other.sql("SHOW SCHEMAS").collect()]
    assert schema_name in found


class Client:
    """A client's session that tells its settings, and nothing more."""

    __module__ = "pyspark.sql.connect.session"

    def __init__(self, **settings: str) -> None:
        self.conf = {key.replace("_", "."): value for key, value in settings.items()}


@pytest.mark.parametrize(
    ("log_store", "options", "refused"),
    [
        (None, BootstrapOptions(), True),
        (LOG_STORE, BootstrapOptions(), False),
        ("their.Store", BootstrapOptions(), True),
        ("their.Store", BootstrapOptions(safe_log_stores=("their.Store",)), False),
        ("their.Store", BootstrapOptions(require_safe_commits=False), False),
    ],
)
def test_a_server_is_asked_with_what_it_commits(log_store, options, refused):
    """There is nothing to race from a client: our LogStore is safe, and what is listed."""
    settings = {} if log_store is None else {"spark_delta_logStore_s3a_impl": log_store}
    notes: list[str] = []

    def ask():
        require_safe_commits(Client(**settings), "s3a://b/w", options=options, on_note=notes.append)

    if refused:
        with pytest.raises(UnsuitableSession, match=f"with {log_store or 'Delta'}.*cannot try"):
            ask()
    else:
        ask()
    assert bool(notes) == (not options.require_safe_commits)
