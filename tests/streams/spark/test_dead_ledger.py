"""A cluster taken over while one of its databases is dead: only the sinks on it are held."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from catalog_migrate.catalog.clock import SystemClock
from catalog_migrate.catalog.lease import acquire
from catalog_migrate.catalog.memory_log import MemoryLog
from catalog_migrate.catalog.opening import create_catalog, read_state
from catalog_migrate.catalog.records import StreamRecord
from catalog_migrate.catalog.state import State
from catalog_migrate.connectors.postgres.ledger import Ledger
from catalog_migrate.connectors.secrets import Secret
from catalog_migrate.sql.parser import parse
from catalog_migrate.streams.catalog import dependencies
from catalog_migrate.streams.catalog.cluster_log import list_holds
from catalog_migrate.streams.catalog.queries import OfflineQueries
from catalog_migrate.streams.catalog.tables import DeltaTables
from catalog_migrate.streams.ddl.plans import plan_statement
from catalog_migrate.streams.runtime.fencing import fence_out, retry_fencing
from catalog_migrate.streams.runtime.ports import Ports
from catalog_migrate.streams.runtime.supervisor import Supervisor
from tests.decisions import Changes, commit

pytestmark = pytest.mark.services

QUERIES = {
    "p": "4390c917-4440-44d6-bf46-bb59b73796fe", "k": "1f8fa5c2-2e3c-4cf5-8f0c-0a6c0c4ad9f1",
}


def used(checkpoint: Path, query_id: str) -> None:
    """A checkpoint with one committed batch."""
    for part in ("offsets", "commits"):
        (checkpoint / part).mkdir(parents=True)
    (checkpoint / "metadata").write_text(f'{{"id":"{query_id}"}}')
    about = {"batchWatermarkMs": 0, "batchTimestampMs": 0, "conf": {}}
    (checkpoint / "offsets/0").write_text(f"v1\n{json.dumps(about)}\n-")
    (checkpoint / "commits/0").write_text('v1\n{"nextBatchWatermarkMs":0}')


def test_only_the_sinks_on_a_dead_database_wait(
    tmp_path: Path, database: dict[str, Any], sql: Callable[..., Any]
) -> None:
    """The others are fenced and go on; the held one says why with its code, is tried again, and is
    released once its database answers, with its old id barred in the ledger."""
    log = MemoryLog()
    create_catalog(log, warehouse=str(tmp_path))

    def state() -> State:
        return read_state(log)

    def do(text: str) -> None:
        for parsed in parse(text):
            changes = plan_statement(state(), parsed.statement).updates
            commit(log, lambda _, changes=changes: changes, kind="test")  # type: ignore[misc]

    with socket.socket() as closed:  # bound and never listening: nobody else gets the port
        closed.bind(("127.0.0.1", 0))
        do(
            "CREATE SECRET pw AS 'env:PW';"
            f"CREATE CONNECTION pg TO POSTGRES (HOST '127.0.0.1', PORT {closed.getsockname()[1]},"
            f" DATABASE '{database['DATABASE']}', USER '{database['USER']}', PASSWORD SECRET pw,"
            " SSL MODE 'disable');"
            "CREATE CONNECTION kc TO KAFKA (BROKER 'a.example.com:9092');"
            "CREATE SOURCE s (id BIGINT) FROM KAFKA CONNECTION kc (TOPIC 't') FORMAT JSON;"
            "CREATE SINK p FROM s INTO POSTGRES CONNECTION pg (TABLE 't');"
            "CREATE SINK k FROM s INTO KAFKA CONNECTION kc (TOPIC 'o') FORMAT JSON;"
        )
        ids = {name: dependencies.find(state(), "sink", name).item_id for name in QUERIES}
        changes = Changes()
        for name, query_id in QUERIES.items():
            place = f"_checkpoints/{ids[name]}/1"
            used(tmp_path / place, query_id)
            changes.put("stream", ids[name], StreamRecord(checkpoint=place))
        commit(log, lambda _: changes, kind="test")
        cluster = dependencies.find(state(), "cluster", "main").item_id
        key = f"cluster/{cluster}"
        acquire(log, holder="a", clock=SystemClock(), key=key, wait=5).release()
        lease = acquire(log, holder="b", clock=SystemClock(), key=key, wait=5)
        supervisor = Supervisor(
            log=log, lease=lease, engine=OfflineQueries(DeltaTables()), clock=SystemClock(),
            cluster=cluster, ensure_shards=lambda *_: None,
            ports=Ports(lambda _: Secret(database["PASSWORD"].reveal())),
        )
        fence_out(supervisor, state())
        assert state().streams[ids["k"]].checkpoint == f"_checkpoints/{ids['k']}/{lease.epoch}"
        assert list_holds(state(), ids["k"]) == ()
        before = list_holds(state(), ids["p"])
        assert len(before) == 1
        assert before[0].startswith("fence: CM0757 its earlier runtime is not proven dead")
        assert database["PASSWORD"].reveal() not in before[0]
        retry_fencing(supervisor, state())
        assert list_holds(state(), ids["p"]) == before
        assert state().streams[ids["p"]].checkpoint == f"_checkpoints/{ids['p']}/1"
    sql("CREATE TABLE t (id bigint)")
    Ledger(database, "t").read(QUERIES["p"])
    do(f"ALTER CONNECTION pg SET (PORT {database['PORT']})")
    retry_fencing(supervisor, state())
    assert list_holds(state(), ids["p"]) == ()
    assert state().streams[ids["p"]].checkpoint == f"_checkpoints/{ids['p']}/{lease.epoch}"
    assert Ledger(database, "t").read(QUERIES["p"]).fenced
    lease.release()
