"""The demonstration of streams: rotate a password, move the broker, count every row.

Everything is real: a Kafka broker and a PostgreSQL server are started on free ports, one process
runs the cluster ``main``, this one sends it statements only.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from catalog_migrate.errors import CatalogMigrateError
from examples.demo import DemoFailed

if TYPE_CHECKING:
    from catalog_migrate.api import Catalog
    from tests.services.kafka import KafkaCluster
    from tests.services.postgres import PostgresServer

PATIENCE = 180.0
"""Seconds that anything may take on a slow machine."""

PASSWORDS = ("first-password", "second-password")


def run(*, keep: bool = False) -> None:
    """Run all steps in a temporary directory."""
    from tests.services.kafka import KafkaCluster
    from tests.services.postgres import PostgresServer

    workspace = Path(tempfile.mkdtemp(prefix="demo-streams-"))
    began = time.monotonic()
    try:
        _heading(1, "A Kafka broker and a PostgreSQL server, both real, on free ports")
        with KafkaCluster(
            workspace / "kafka", users={"app": PASSWORDS[0]}
        ) as kafka, PostgresServer(workspace / "postgres") as postgres:
            postgres.create_user("app", "pg-password")
            postgres.create_database("shop")
            _steps(workspace, kafka, postgres)
        _say(f"\nDone in {time.monotonic() - began:.0f} s. No row was lost or doubled.")
    finally:
        if not keep:
            shutil.rmtree(workspace, ignore_errors=True)


def _steps(workspace: Path, kafka: KafkaCluster, postgres: PostgresServer) -> None:
    from catalog_migrate.api import Catalog
    from catalog_migrate.catalog.opening import create_catalog, open_log

    (workspace / "kafka-password").write_text(PASSWORDS[0], encoding="utf-8")
    (workspace / "postgres-password").write_text("pg-password", encoding="utf-8")
    for name in ("kafka-password", "postgres-password"):
        os.chmod(workspace / name, 0o600)
    kafka.create_topic("orders", 2)
    kafka.create_topic("mirror", 1)
    postgres.execute(
        "CREATE TABLE orders (id bigint, item text)", user="app", database="shop"
    )
    create_catalog(open_log(str(workspace / "catalog")), warehouse=str(workspace / "warehouse"))
    catalog = Catalog.open(workspace / "catalog", mode="write")
    pg = postgres.parameters("app", "shop")

    _heading(2, "Connections, a source and two sinks; secrets are references, never values")
    _do(catalog, f"CREATE SECRET kafka_pw AS 'file:{workspace}/kafka-password'")
    _do(catalog, f"CREATE SECRET pg_pw AS 'file:{workspace}/postgres-password'")
    _do(catalog, f"CREATE CONNECTION broker TO KAFKA (BROKER '{kafka.bootstrap}', "
        "SECURITY PROTOCOL 'SASL_PLAINTEXT', SASL MECHANISMS 'SCRAM-SHA-512', "
        "SASL USERNAME 'app', SASL PASSWORD SECRET kafka_pw)")
    _do(catalog, f"CREATE CONNECTION shop TO POSTGRES (HOST '{pg['host']}', PORT {pg['port']}, "
        "DATABASE 'shop', USER 'app', PASSWORD SECRET pg_pw, SSL MODE 'disable')")
    _do(catalog, "CREATE SOURCE orders (id BIGINT, item STRING) FROM KAFKA CONNECTION broker "
        "(TOPIC 'orders') FORMAT JSON")
    _do(catalog, "CREATE SINK to_shop FROM orders INTO POSTGRES CONNECTION shop (TABLE 'orders')")
    _do(catalog, "CREATE SINK to_mirror FROM orders INTO KAFKA CONNECTION broker (TOPIC 'mirror') "
        "KEY (id) FORMAT JSON")

    _heading(3, "catalog-migrate run --cluster main, in a process of its own; a producer starts")
    with _runtime(workspace) as process, kafka.feed("orders", rate=20.0, row=_order) as feed:
        _until(lambda: _running(catalog) == 3, process, "three running queries")
        _do(catalog, "SHOW SOURCES; SHOW SINKS")

        _heading(4, "The password is rotated: the broker first, then one statement")
        kafka.set_password("app", PASSWORDS[1])
        (workspace / "kafka-password").write_text(PASSWORDS[1], encoding="utf-8")
        _do(catalog, "ALTER SECRET kafka_pw")

        _heading(5, "The broker moves to another port: EXPLAIN, then ALTER")
        kafka.move()
        statement = f"ALTER CONNECTION broker SET (BROKER '{kafka.bootstrap}')"
        _do(catalog, f"EXPLAIN {statement}")
        _do(catalog, statement)

        _heading(6, "A mistake is refused before anything stops")
        _refused(catalog, "ALTER CONNECTION broker SET (BROKER '127.0.0.1:1')")
        time.sleep(3)
        _say("    the producer stops")
    sent = feed.sent
    with _runtime(workspace) as process:
        _heading(7, f"{sent} records were produced; how many arrived, and how often?")
        _until(lambda: _arrived(kafka, postgres) == (sent, sent), process, "all rows")
    rows = postgres.execute(
        "SELECT count(*), count(DISTINCT id) FROM orders", user="app", database="shop"
    )[0]
    mirrored = _mirrored(kafka)
    _say(f"    PostgreSQL: {rows[0]} rows, {rows[1]} different; Kafka, repeats dropped by header: "
         f"{sum(mirrored.values())} records, {len(mirrored)} different")
    if rows != (sent, sent) or mirrored != Counter(range(sent)):
        raise DemoFailed("not every row arrived exactly once", remedy="please report this")


def _order(number: int) -> tuple[str, str]:
    return str(number), json.dumps({"id": number, "item": f"thing {number}"})


class _runtime:  # noqa: N801 - used as a statement
    """The runtime as an operator starts it; SIGTERM lets current batches end."""

    def __init__(self, workspace: Path) -> None:
        self._command = [
            sys.executable, "-m", "catalog_migrate.cli.main", "run", "--cluster", "main",
            "--catalog", str(workspace / "catalog"),
        ]

    def __enter__(self) -> subprocess.Popen[bytes]:
        self.process = subprocess.Popen(self._command)
        return self.process

    def __exit__(self, *_: object) -> None:
        self.process.terminate()
        try:
            self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self.process.kill()


def _do(catalog: Catalog, text: str) -> None:
    from catalog_migrate.cli.output import as_columns

    _say(f"  > {text}")
    started = time.monotonic()
    for result in catalog.execute(text, on_progress=lambda line: _say(f"    .. {line}")):
        for notice in result.notices:
            _say(f"    note: {notice}")
        if result.rows is not None:
            rows = [tuple("" if v is None else str(v) for v in row) for row in result.rows.values]
            table = as_columns([result.rows.columns, *rows])
            _say("\n".join("    " + line for line in table.splitlines()))
        else:
            lines = result.summary.splitlines()
            _say("\n".join("    " + line for line in lines))
    _say(f"    ({time.monotonic() - started:.1f} s)")


def _refused(catalog: Catalog, text: str) -> None:
    try:
        _do(catalog, text)
    except CatalogMigrateError as error:
        _say("\n".join("    " + line for line in str(error).splitlines()))
        return
    raise DemoFailed("a dead broker was accepted", remedy="please report this")


def _running(catalog: Catalog) -> int:
    results = catalog.execute("SHOW SOURCES; SHOW SINKS")
    return sum(
        dict(zip(result.rows.columns, row, strict=True))["state"] == "running"
        for result in results if result.rows is not None for row in result.rows.values
    )


def _arrived(kafka: KafkaCluster, postgres: PostgresServer) -> tuple[int, int]:
    rows = postgres.execute("SELECT count(*) FROM orders", user="app", database="shop")
    return int(rows[0][0]), len(_mirrored(kafka))


def _mirrored(kafka: KafkaCluster) -> Counter[int]:
    """Ids in the mirror, repeats dropped by their headers as any consumer would."""
    found: dict[tuple[bytes | None, bytes | None], int] = {}
    for record in kafka.consume_all("mirror"):
        key = record.header("catalog_migrate.item"), record.header("catalog_migrate.row")
        found[key] = json.loads(record.value or b"{}")["id"]
    return Counter(found.values())


def _until(
    condition: Callable[[], bool], process: subprocess.Popen[bytes], what: str
) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        if process.poll() is not None:
            raise DemoFailed(f"the runtime ended with {process.returncode}")
        if time.monotonic() > deadline:
            raise DemoFailed(f"waited {PATIENCE:.0f} s for {what}")
        time.sleep(0.5)


def _say(text: str) -> None:
    print(text, flush=True)


def _heading(number: int, title: str) -> None:
    _say(f"\n[{number}/7] {title}")
