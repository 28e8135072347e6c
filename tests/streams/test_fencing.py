"""A takeover asks of a sink only what its fence needs: without a ledger neither secret nor server.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from catalog_migrate.catalog.clock import SystemClock
from catalog_migrate.catalog.lease import acquire
from catalog_migrate.catalog.memory_log import MemoryLog
from catalog_migrate.catalog.opening import create_catalog, read_state
from catalog_migrate.catalog.records import StreamRecord
from catalog_migrate.connectors import base
from catalog_migrate.connectors.secrets import Secret
from catalog_migrate.errors import UnresolvedSecret
from catalog_migrate.sql.parser import parse
from catalog_migrate.streams.catalog import dependencies
from catalog_migrate.streams.catalog.queries import OfflineQueries
from catalog_migrate.streams.catalog.tables import DeltaTables
from catalog_migrate.streams.ddl.plans import plan_statement
from catalog_migrate.streams.runtime.fencing import fence_out
from catalog_migrate.streams.runtime.ports import Ports
from catalog_migrate.streams.runtime.supervisor import Supervisor
from tests.decisions import Changes, commit

STATEMENTS = """
CREATE SECRET pw AS 'env:NOT_SET';
CREATE CONNECTION kc TO KAFKA (BROKER 'a.example.com:9092', SECURITY PROTOCOL 'SASL_SSL',
    SASL MECHANISMS 'PLAIN', SASL USERNAME 'u', SASL PASSWORD SECRET pw);
CREATE CONNECTION pg TO POSTGRES (HOST '127.0.0.1', DATABASE 'd', USER 'u', PASSWORD SECRET pw);
CREATE SOURCE s (id BIGINT) FROM KAFKA CONNECTION kc (TOPIC 't') FORMAT JSON;
CREATE SINK k FROM s INTO KAFKA CONNECTION kc (TOPIC 'o') FORMAT JSON;
CREATE SINK p FROM s INTO POSTGRES CONNECTION pg (TABLE 't');
"""


def _no_secret(reference: str) -> Secret:
    raise UnresolvedSecret(f"{reference} is not set")


def _used(checkpoint: Path) -> None:
    for part in ("offsets", "commits"):
        (checkpoint / part).mkdir(parents=True)
    (checkpoint / "metadata").write_text('{"id":"4390c917-4440-44d6-bf46-bb59b73796fe"}')
    about = {"batchWatermarkMs": 0, "batchTimestampMs": 0, "conf": {}}
    (checkpoint / "offsets/0").write_text(f"v1\n{json.dumps(about)}\n-")
    (checkpoint / "commits/0").write_text('v1\n{"nextBatchWatermarkMs":0}')


@pytest.mark.parametrize("installed", [True, False])
def test_only_a_ledger_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, installed: bool
) -> None:
    """A KAFKA sink goes on in its copy though its secret is missing; a sink with a ledger is held,
    and one whose connector is missing with the reason that this is, and no talk of a fence."""
    log = MemoryLog()
    create_catalog(log, warehouse=str(tmp_path))
    for parsed in parse(STATEMENTS):
        updates = plan_statement(read_state(log), parsed.statement).updates
        commit(log, lambda _, updates=updates: updates, kind="test")
    ids = {name: dependencies.find(read_state(log), "sink", name).item_id for name in "kp"}
    changes = Changes()
    for item_id in ids.values():
        place = f"_checkpoints/{item_id}/1"
        _used(tmp_path / place)
        changes.put("stream", item_id, StreamRecord(checkpoint=place))
    commit(log, lambda _: changes, kind="test")
    cluster = dependencies.find(read_state(log), "cluster", "main").item_id
    clock, key = SystemClock(), f"cluster/{cluster}"
    acquire(log, holder="a", clock=clock, key=key, wait=5).release()
    lease = acquire(log, holder="b", clock=clock, key=key, wait=5)
    supervisor = Supervisor(
        log=log, lease=lease, engine=OfflineQueries(DeltaTables()), clock=clock, cluster=cluster,
        ensure_shards=lambda *_: None, ports=Ports(_no_secret),
    )
    if not installed:
        others = {name: place for name, place in base.OURS.items() if name != "POSTGRES"}
        monkeypatch.setattr(base, "OURS", others)
        base._find.cache_clear()
    try:
        fence_out(supervisor, read_state(log))
    finally:
        base._find.cache_clear()
        lease.release()
    state = read_state(log)
    assert state.streams[ids["k"]].checkpoint == f"_checkpoints/{ids['k']}/{lease.epoch}"
    (hold,) = state.holds.values()
    assert hold.item_id == ids["p"]
    assert state.streams[ids["p"]].checkpoint == f"_checkpoints/{ids['p']}/1"
    if installed:
        assert hold.reason.startswith("CM0757 its earlier runtime is not proven dead")
    else:
        assert hold.reason.startswith("CM0722 POSTGRES is no type of connection")
        assert "install the package" in hold.remedy
