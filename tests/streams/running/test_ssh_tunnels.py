"""Servers behind SSH tunnels: rows arrive once while tunnels die, move and change their keys."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from catalog_migrate.errors import (
    CatalogMigrateError,
    InvalidOptions,
    RefusedStatement,
    ValidationFailed,
)
from tests.services.ssh import USER, SSHServer, new_key, secret_part

from .conftest import once

if TYPE_CHECKING:
    from .conftest import Pipeline

pytestmark = [pytest.mark.spark, pytest.mark.services]

BEHIND = "db.internal", 5432


@pytest.fixture
def bastion(pipeline: Pipeline) -> Iterator[SSHServer]:
    """In front of the PostgreSQL server, which is ``db.internal`` there; keys ``k1`` and ``k2``."""
    there = pipeline.postgres.parameters("app", "shop")
    pipeline.keys = {name: new_key() for name in ("k1", "k2")}
    for name, (private, _) in pipeline.keys.items():
        file = pipeline.directory / name
        file.write_text(private)
        pipeline.run(f"CREATE SECRET {pipeline.q(name)} AS 'file:{file}'")
    with SSHServer([pipeline.keys["k1"][1]], {BEHIND: (there["host"], int(there["port"]))}) as made:
        yield made


def tunnel(pipeline: Pipeline, server: SSHServer, host_key: str) -> str:
    return (
        f"CREATE CONNECTION {pipeline.q('t')} TO SSH TUNNEL (HOST '127.0.0.1', PORT {server.port}, "
        f"USER {USER}, PRIVATE KEY SECRET {pipeline.q('k1')}{host_key})"
    )


def behind(pipeline: Pipeline, name: str, user: str = "app", secret: str = "pg") -> None:
    pipeline.run(
        f"CREATE CONNECTION {pipeline.q(name)} TO POSTGRES (USING SSH TUNNEL {pipeline.q('t')}, "
        f"HOST '{BEHIND[0]}', PORT {BEHIND[1]}, DATABASE 'shop', USER '{user}', "
        f"PASSWORD SECRET {pipeline.q(secret)}, SSL MODE 'disable')"
    )


@pytest.mark.soak
def test_a_sink_behind_a_tunnel(pipeline: Pipeline, bastion: SSHServer) -> None:
    """From its statement without HOST KEY to rotated keys: each row once, others undisturbed."""
    q, run = pipeline.q, pipeline.run
    with pytest.raises(InvalidOptions) as refused:
        run(tunnel(pipeline, bastion, ""))
    assert bastion.fingerprint() in str(refused.value)
    assert "ssh-keygen -lf" in str(refused.value)
    run(tunnel(pipeline, bastion, f", HOST KEY '{bastion.fingerprint()}'"))
    pipeline.kafka_connection("c")
    pipeline.postgres_connection("direct")
    behind(pipeline, "far")
    topic = pipeline.topic("t", 1)
    pipeline.source("s", "c", topic)
    tables = {name: pipeline.table(name) for name in ("near", "beyond")}
    for name, connection in (("near", "direct"), ("beyond", "far")):
        run(f"CREATE SINK {q(name)} IN CLUSTER {q('main')} FROM {q('s')} INTO POSTGRES CONNECTION "
            f"{q(connection)} (TABLE '{tables[name]}')")
    pipeline.start()
    pipeline.await_running(3)

    def arrived() -> None:
        pipeline.send(topic, 5)
        for table in tables.values():
            pipeline.until(lambda table=table: pipeline.postgres_ids(table)
                           == once(pipeline.sent[topic]), f"all rows in {table}")

    def restarted_by(statement: str) -> set[str]:
        before = pipeline.run_ids()
        (result,) = run(statement)
        assert set(result.restarted) == {
            name for name, run_id in pipeline.run_ids().items() if run_id != before[name]
        }
        return set(result.restarted)

    arrived()
    assert bastion.opened[BEHIND] > 0
    bastion.stop()
    bastion.start()
    arrived()

    # another port, as of a new bastion; then keys, of which the server forgets the first
    bastion.stop()
    bastion.port = 0
    bastion.start()
    t = f"ALTER CONNECTION {q('t')}"
    assert restarted_by(f"{t} SET (PORT {bastion.port})") == {q("beyond")}
    arrived()
    for wrong, option in ((f"SET (HOST KEY '{pipeline.keys['k1'][1]}')", "HOST KEY"),
                          (f"SET (PRIVATE KEY SECRET {q('k2')})", "PRIVATE KEY"),
                          ("SET (PORT 1)", "PORT")):
        with pytest.raises(ValidationFailed, match=f"option {option}") as failed:
            run(f"{t} {wrong}")
        assert f"connection {q('far')}, option SSH TUNNEL" in str(failed.value)
    assert restarted_by(f"{t} SET (NEXT PRIVATE KEY SECRET {q('k2')})") == {q("beyond")}
    with pytest.raises(ValidationFailed, match="option PRIVATE KEY"):
        run(f"{t} ROTATE KEYS")  # the server does not know it yet
    (shown,) = run(f"SHOW CREATE CONNECTION {q('t')}")
    assert f"next public key: {pipeline.keys['k2'][1]}" in shown.summary
    bastion.authorized.append(pipeline.keys["k2"][1])
    assert restarted_by(f"{t} ROTATE KEYS") == {q("beyond")}
    bastion.authorized.remove(pipeline.keys["k1"][1])
    bastion.stop()
    bastion.start()
    arrived()
    with pytest.raises(InvalidOptions, match="no NEXT PRIVATE KEY"):
        run(f"{t} ROTATE KEYS")
    with pytest.raises(RefusedStatement, match="is used by connection"):
        run(f"DROP CONNECTION {q('t')}")
    with pytest.raises(CatalogMigrateError, match=r"not known|takes no connection"):
        run(f"ALTER CONNECTION {q('far')} DROP (SSH TUNNEL)")
    require_key_nowhere(pipeline)


@pytest.mark.soak
def test_sources_behind_a_tunnel(pipeline: Pipeline, bastion: SSHServer) -> None:
    """Changes of a database and records of a broker come through, on executors as on the driver:
    once, though the tunnel is away for seconds and then at another port."""
    q, run, postgres = pipeline.q, pipeline.run, pipeline.postgres
    where, local = pipeline.kafka.tunnelled
    bastion.names["k.internal", local] = where
    run(tunnel(pipeline, bastion, f", HOST KEY '{bastion.host_key}'"))
    run(f"CREATE CONNECTION {q('k')} TO KAFKA (USING SSH TUNNEL {q('t')}, "
        f"BROKER 'k.internal:{local}')")
    table, reader = pipeline.table("upstream", "id bigint PRIMARY KEY"), f"{pipeline.name}_cdc"
    postgres.create_user(reader, "cdc's secret word", replication=True)
    for statement in (f"GRANT SELECT ON {table} TO {reader}",
                      f"CREATE PUBLICATION {pipeline.name} FOR TABLE {table}"):
        postgres.execute(statement, database="shop")
    pipeline.secret("cdc", "cdc's secret word")
    behind(pipeline, "far", reader, "cdc")
    topic = pipeline.topic("t", 1)
    pipeline.source("s", "k", topic)
    run(f"CREATE SOURCE {q('m')} IN CLUSTER {q('main')} FROM POSTGRES CONNECTION {q('far')} "
        f"(PUBLICATION '{pipeline.name}', TABLES ({table} AS {q('copy')})) FORMAT MIRROR")
    pipeline.start()
    pipeline.await_running(2)
    rows = 0

    def arrived() -> None:
        nonlocal rows
        pipeline.send(topic, 5)
        postgres.execute(f"INSERT INTO {table} SELECT * FROM generate_series({rows}, {rows + 4})",
                         user="app", database="shop")
        rows += 5
        pipeline.until(lambda: pipeline.ids("s") == once(rows), "all records")
        pipeline.until(lambda: pipeline.ids("copy", "relation") == once(rows), "all changes")

    arrived()
    bastion.stop()
    time.sleep(5.0)
    bastion.start()
    arrived()
    bastion.stop()
    bastion.port = 0
    bastion.start()
    (result,) = run(f"ALTER CONNECTION {q('t')} SET (PORT {bastion.port})")
    assert set(result.restarted) == {q("s"), q("m")}
    arrived()
    require_key_nowhere(pipeline)


def require_key_nowhere(pipeline: Pipeline) -> None:
    """The secret part of no private key is in a file of the catalog, its tables, checkpoints."""
    pipeline.stop()
    parts = [secret_part(key).encode() for key, _ in pipeline.keys.values()]
    files = [path for path in pipeline.directory.rglob("*")
             if path.is_file() and path.name not in pipeline.keys]
    assert len(files) > 50
    assert [path for path in files for part in parts if part in path.read_bytes()] == []
