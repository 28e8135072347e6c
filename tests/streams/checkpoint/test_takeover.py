"""Taking a checkpoint over from a runtime that is not proven dead, and may go on meanwhile."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from catalog_migrate.catalog.clock import SystemClock
from catalog_migrate.catalog.lease import Lease, acquire
from catalog_migrate.catalog.memory_log import MemoryLog
from catalog_migrate.catalog.opening import create_catalog
from catalog_migrate.catalog.records import LeaseRecord
from catalog_migrate.streams.runtime.fencing import catch_up
from tests.decisions import Changes, commit

if TYPE_CHECKING:
    from .conftest import Build

KAFKA: dict[str, int | None] = {}
"""A destination that cannot be fenced."""


@pytest.mark.parametrize(
    ("copied", "owners", "arrived", "result"),
    [
        pytest.param((5, 4), (5, 4), {"shard": 5}, (5, 5), id="frozen before its commit"),
        pytest.param((5, 4), (5, 4), {"shard": 4}, (5, 4), id="frozen before its batch"),
        pytest.param((5, 4), (7, 6), {"shard": 6}, (6, 6), id="went on until the fence"),
        pytest.param((5, 4), (9, 9), {"shard": 6}, (6, 6), id="commits of turned away batches"),
        pytest.param((5, 4), (6, 5), {"shard": 6, "dead letters": 5}, (6, 5), id="one of two"),
        pytest.param((7, 4), (7, 6), {"shard": 7}, (7, 7), id="commits copied too early"),
        pytest.param((7, 4), (7, 6), {"shard": 5}, (5, 5), id="its last batch did not arrive"),
        pytest.param((4, 6), (7, 6), {"shard": 6}, (6, 6), id="entries copied too early"),
        pytest.param((0, None), (0, None), {"shard": None}, (0, None), id="first batch"),
        pytest.param((5, 5), (5, 5), {"shard": 4}, (5, 4), id="a copied commit turned away"),
        pytest.param((9, 9), (9, 9), {"shard": 6}, (7, 6), id="copied commits turned away"),
        pytest.param((5, 4), (5, 5), {"shard": 5}, (5, 5), id="committed after the copy"),
        pytest.param((0, None), (0, None), {"shard": 0}, (0, 0), id="the first, and no commit yet"),
        pytest.param((5, 4), (5, 5), {"shard": 5, "t": 5, "u": 5}, (5, 5), id="in all of three"),
        pytest.param((5, 4), (5, 4), {"shard": 4, "t": 5, "u": 4}, (5, 4), id="in one of three"),
        pytest.param((3, 3), (3, 3), {"shard": None}, (0, None), id="all turned away"),
        pytest.param((5, 5), (5, 5), {"shard": 4, "dead letters": 5}, (5, 4),
                     id="arrived as a dead letter only"),
        pytest.param((5, 5), (5, 5), {"shard": 5, "dead letters": None}, (5, 5),
                     id="dead letters that were linked later"),
        pytest.param((5, 4), (7, 6), KAFKA, (7, 6), id="Kafka went on"),
        pytest.param((7, 4), (7, 6), KAFKA, (7, 6), id="Kafka, commits copied too early"),
        pytest.param((4, 6), (7, 6), KAFKA, (7, 6), id="Kafka, entries copied too early"),
        pytest.param((0, None), (0, None), KAFKA, (0, None), id="Kafka, first batch"),
    ],
)
def test_a_copy_is_completed(
    build_on_disk: Build, copied: Any, owners: Any, arrived: dict[str, int | None], result: Any
) -> None:
    """Every batch that arrived has its entry, and its commit where it arrived everywhere; no batch
    that did not has one, and the copy is one that Spark can go on from."""
    old = build_on_disk([["{}"]] * (owners[0] + 1), owners[1], name="old")
    new = build_on_disk([["{}"]] * (copied[0] + 1), copied[1], name="new")
    catch_up(new, old, arrived)
    assert (new.latest_offsets, new.latest_commits) == result
    assert new.state().kind in {"uncommitted", "settled", "first"}
    for number in range(result[0] + 1):
        assert new.entry(number) == old.entry(number)


def test_a_successor_that_dies_while_it_fences() -> None:
    """The next one fences too: without a heartbeat of its predecessor nothing is settled."""
    log = MemoryLog()
    create_catalog(log, warehouse="/warehouse")
    changes = Changes()
    changes.put("lease", "cluster/i1", LeaseRecord(
        epoch=1, holder="frozen", host="elsewhere", boot_id="b", pid=7, started="9", since="",
    ))
    commit(log, lambda _: changes, kind="test")

    class Died(Exception):
        pass

    def dies(_: Lease) -> None:
        raise Died

    fenced: list[int] = []
    clock = SystemClock()
    times = {"ttl": 0.2, "margin": 0.1}
    with pytest.raises(Died):
        acquire(log, holder="b", clock=clock, key="cluster/i1", wait=5, fence=dies, **times)
    assert log.heartbeat("cluster/i1") is None
    lease = acquire(
        log, holder="c", clock=clock, key="cluster/i1", wait=5,
        fence=lambda lease: fenced.append(lease.epoch), **times,
    )
    assert not lease.settled
    assert fenced == [3]
    lease.release()
    acquire(
        log, holder="d", clock=clock, key="cluster/i1", wait=5,
        fence=lambda lease: fenced.append(lease.epoch), **times,
    )
    assert fenced == [3]
