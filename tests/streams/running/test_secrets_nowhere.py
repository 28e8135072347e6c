"""I9: a password is in no file, output, error, log, plan, setting or command line."""

from __future__ import annotations

import base64
import itertools
import json
import logging
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, quote_plus

import pytest

from tests.services.ssh import SSHServer, new_key, secret_part
from tests.services.token_server import TokenServer

from .marked_run import logging_properties, play

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.services]

MARKED_RUN = Path(__file__).with_name("marked_run.py")
LIMIT = 900.0
ROWS = 5

KAFKA = "ZqkMark7\"w'v\\x %41=,;$mark{a}"
POSTGRES = "ZqpMark8'\"w\\n %2B=,;$mark@:/?#"
WRONG = "ZqwMark9\"u't\\ end=;"
CLIENT = "ZqoMark5\"u't\\ %3D=;{b}"
PLAIN = "ZqvMark3\"u't\\ end=;"
SSH, SSH_PUBLIC = new_key()
MARKED = {"MARKED_KAFKA": KAFKA, "MARKED_WRONG": WRONG, "MARKED_PLAIN": PLAIN,
          "MARKED_CLIENT": CLIENT}
MARKERS = {"client": CLIENT, "kafka": KAFKA, "postgres": POSTGRES, "wrong": WRONG, "plain": PLAIN,
           "ssh": secret_part(SSH)}
_numbers = itertools.count(1)


def forms(value: str) -> set[bytes]:
    """How a value may be spelled: raw, escaped for JSON, SQL, Java or a URL, and in base64."""
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    texts = {
        value, escaped, escaped.replace("\\", "\\\\"), value.replace("\\", "\\\\"),
        value.replace("'", "''"), value.replace('"', '""'), value.replace("'", "\\'"),
        json.dumps(value)[1:-1], json.dumps(escaped)[1:-1], repr(value)[1:-1],
        quote(value, safe=""), quote(value), quote_plus(value),
        # the beginning is enough: no spelling changes it
        value[:8],
    }
    whole = {value, f"\0app\0{value}", f"app:{value}"}
    encoded = {base64.b64encode(text.encode()) for text in whole}
    encoded |= {base64.urlsafe_b64encode(text.encode()) for text in whole}
    # within a longer text base64 begins at any of three places; what is cut off is the end
    encoded |= {base64.b64encode(b"x" * pad + value.encode())[4:-4] for pad in (1, 2)}
    encoded |= {value.encode("utf-16-le"), value.encode("utf-16-be")}
    return {text.encode() for text in texts} | encoded


def found_in(data: bytes) -> list[str]:
    return sorted({name for name, value in MARKERS.items()
                   for form in forms(value) if form in data})


def command_lines() -> bytes:
    lines = []
    for process in Path("/proc").iterdir():
        if process.name.isdigit():
            try:
                lines.append((process / "cmdline").read_bytes())
            except OSError:
                continue  # it ended meanwhile
    return b"\n".join(lines)


def test_the_search_finds_what_is_there() -> None:
    """Each spelling is recognised, or the test below would prove nothing."""
    for name, value in MARKERS.items():
        for text in (value, json.dumps(value), quote(value), repr(value)):
            assert name in found_in(f"before {text} after".encode())
        assert name in found_in(base64.b64encode(f"user:xy{value}".encode()))
    assert found_in(b"SASL PASSWORD SECRET kafka ***") == []


@pytest.fixture
def tokens(kafka: Any) -> Iterator[TokenServer]:
    """A token server with a client whose secret is marked."""
    with TokenServer(kafka.token_key, {"app": CLIENT}) as server:
        yield server


@pytest.fixture
def place(
    tmp_path: Path, kafka: Any, postgres: Any, tokens: TokenServer
) -> Iterator[Path]:
    """A directory whose setting has servers with a user with marked passwords.

    In the end everything below it is searched.
    """
    name = f"marked{next(_numbers)}"
    kafka.set_password(name, KAFKA)
    postgres.create_user(name, POSTGRES, replication=True)
    for topic in (f"{name}-in", f"{name}-out"):
        kafka.create_topic(topic, 1)
        kafka.allow(name, topic, "READ", "WRITE", "DESCRIBE")
        kafka.allow("app", topic, "READ", "WRITE", "DESCRIBE")
    kafka.produce(f"{name}-in", [(str(n), json.dumps({"id": n})) for n in range(ROWS)])
    with postgres.connect(database="shop") as connection:
        # a schema of its own: the ledger beside other tests' tables belongs to another role
        connection.execute(f"CREATE SCHEMA {name}")
        connection.execute(f"CREATE TABLE {name}.marked_rows (id bigint PRIMARY KEY)")
        connection.execute(f"CREATE PUBLICATION {name} FOR TABLE {name}.marked_rows")
        connection.execute(f"GRANT ALL ON {name}.marked_rows TO {name}")
        connection.execute(f"GRANT ALL ON SCHEMA {name} TO {name}")
    kept = tmp_path / "secrets"
    kept.mkdir()
    (kept / "postgres").write_text(POSTGRES)
    (kept / "again").write_text(KAFKA)
    (kept / "ssh").write_text(SSH)
    port = postgres.parameters(name, "shop")["port"]
    bastion = SSHServer([SSH_PUBLIC], {("127.0.0.1", int(port)): ("127.0.0.1", int(port))})
    seen = tmp_path / "seen"
    seen.mkdir()
    (seen / "setting.json").write_text(json.dumps({
        "references": {
            "kafka": "env:MARKED_KAFKA", "postgres": f"file:{kept / 'postgres'}",
            "again": f"file:{kept / 'again'}", "wrong": "env:MARKED_WRONG",
            "ssh": f"file:{kept / 'ssh'}",
            "client": "env:MARKED_CLIENT",
        },
        "tokens": tokens.url,
        "broker": kafka.bootstrap, "user": name, "rows": ROWS, "topic": f"{name}-in",
        "out": f"{name}-out", "table": f"{name}.marked_rows",
        "publication": name, "port": port, "ssh_port": bastion.port, "host_key": bastion.host_key,
    }))
    slots = postgres.execute("SELECT slot_name FROM pg_replication_slots")
    with bastion:
        yield seen
    postgres.execute(
        "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots"
        " WHERE NOT slot_name = ANY(%s)", [[slot for (slot,) in slots]], database="shop",
    )
    assert bastion.opened
    count = postgres.execute(f"SELECT count(*) FROM {name}.marked_rows", database="shop")
    assert count == [(ROWS,)]
    files = [path for path in seen.rglob("*") if path.is_file()]
    leaks = {
        str(path.relative_to(seen)): names
        for path in files if (names := found_in(path.read_bytes()))
    }
    assert leaks == {}
    # the logs were really at DEBUG, and what was unpacked is the catalog
    assert b" DEBUG " in (seen / "logs" / "spark.log").read_bytes()
    assert "DEBUG:py4j" in (seen / "logs" / "python.log").read_text()
    assert any((seen / "logs" / "events").rglob("*"))
    assert any("env:MARKED_KAFKA" in path.read_text() for path in (seen / "unpacked").iterdir())


@contextmanager
def logged(seen: Path, spark: SparkSession) -> Iterator[None]:
    """Every log of this process and its JVM goes there at DEBUG, and Spark's events."""
    properties = logging_properties(seen)
    jvm, context = spark.sparkContext._jvm, spark.sparkContext._jsc.sc()
    log4j = jvm.org.apache.logging.log4j.LogManager.getContext(False)
    before = log4j.getConfigLocation()
    conf = spark.sparkContext._jsc.getConf()
    for name, value in (("compress", "false"), ("rolling.enabled", "false")):
        conf.set(f"spark.eventLog.{name}", value)
    events = jvm.org.apache.spark.scheduler.EventLoggingListener(
        "marked", jvm.scala.Option.empty(), jvm.java.net.URI((seen / "logs" / "events").as_uri()),
        conf,
    )
    root, handler = logging.getLogger(), logging.FileHandler(seen / "logs" / "python.log")
    handler.setFormatter(logging.Formatter(logging.BASIC_FORMAT))
    level = root.level
    log4j.setConfigLocation(jvm.java.net.URI(properties.as_uri()))
    events.start()
    context.addSparkListener(events)
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    try:
        yield
    finally:
        root.setLevel(level)
        root.removeHandler(handler)
        handler.close()
        context.removeSparkListener(events)
        events.stop()
        log4j.setConfigLocation(before)


def test_a_password_is_nowhere(
    place: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Statements, validation, failures, set-back, EXPLAIN, views and settings, logs at DEBUG."""
    for name, value in MARKED.items():
        monkeypatch.setenv(name, value)
    # the built-in views of another catalog may stand in this session
    spark.sql("DROP DATABASE IF EXISTS catalog_migrate CASCADE")
    over, found = threading.Event(), set[str]()

    def watch() -> None:
        while not over.wait(0.5):
            found.update(found_in(command_lines()))

    watching = threading.Thread(target=watch, daemon=True)
    watching.start()
    try:
        with (place / "output").open("w") as output, redirect_stdout(output), logged(place, spark):
            play(place, spark)
    finally:
        over.set()
        watching.join()
    assert found == set()


@pytest.mark.soak
def test_nor_of_a_process_of_its_own(place: Path) -> None:
    """The same with a JVM that logs at DEBUG from its start, and all that both processes print."""
    output = place / "output"
    with output.open("wb") as stream:
        child = subprocess.Popen(
            [sys.executable, str(MARKED_RUN), str(place)], env={**os.environ, **MARKED},
            stdout=stream, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
        )
        try:
            deadline = time.monotonic() + LIMIT
            while child.poll() is None:
                assert time.monotonic() < deadline, output.read_text()[-3000:]
                assert found_in(command_lines()) == []
                time.sleep(0.5)
        finally:
            if child.poll() is None:
                child.kill()
            child.wait()
    said = output.read_text()
    assert child.returncode == 0, said[-5000:]
    assert said.endswith("the end\n")
