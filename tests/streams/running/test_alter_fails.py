"""An ALTER CONNECTION that goes wrong half-way, for good, twice at once, or without any data."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest

from catalog_migrate.errors import AlterFailed, AlterSetBack, CatalogMigrateError, CommitConflict
from catalog_migrate.streams.operations import SETTING_BACK, STARTED
from catalog_migrate.streams.supervisor import LONGEST_BACK_OFF

from .conftest import once

if TYPE_CHECKING:
    from catalog_migrate.streams.execute import Result

    from .conftest import Standing

pytestmark = [pytest.mark.spark, pytest.mark.services]

DEAD = "SET (BROKER '127.0.0.1:1') WITH (VALIDATE = false)"


def test_one_has_committed_when_another_fails(standing: Standing, kafka: Any) -> None:
    """The new user may read one topic and not the other: both end on the old one, nothing lost.

    The first source has committed batches as the new user by then, so its checkpoint stays; the
    other one gets its snapshot back.
    """
    standing.secret("theirs", kafka.users["other"])
    kafka.allow("other", standing.topics["s"], "READ", "DESCRIBE")
    standing.produce(standing.topics["s"], standing.topics["z"], pause=0.2)
    before = standing.options("c")
    runs = standing.run_ids_of(standing.NAMES)
    arrived: dict[str, int] = {}

    def rows() -> int:
        return standing.ids("s").total()

    def one_of_two() -> bool:
        """The first one has rows of its own start, and said so; the other one has failed."""
        return (
            rows() > arrived.get("started", 10**9) and standing.reports("s")
            and standing.broken("z")
        )

    error = standing.fails(
        f"ALTER CONNECTION {standing.q('c')} SET (SASL USERNAME 'other', "
        f"SASL PASSWORD SECRET {standing.q('theirs')}) WITH (VALIDATE = false)", one_of_two,
        on_progress=lambda line: arrived.__setitem__(line.rpartition(": ")[2], rows()),
    )
    assert isinstance(error, AlterSetBack)
    assert standing.q("z") in str(error)
    assert standing.q("s") not in str(error)
    assert standing.options("c") == before
    assert not standing.holds()
    after = standing.run_ids_of(standing.NAMES)
    assert {name for name in runs if after[name] != runs[name]} == set(standing.BELOW_C)
    assert arrived["started"] < arrived["setting back"]
    standing.require_all_once()


def test_the_old_broker_is_dead_too(standing: Standing, kafka: Any) -> None:
    """Nowhere to go back to: the operation failed (exit 6), the old definition is in force, and
    the queries are tried again until their broker is back."""
    standing.send(standing.topics["s"], 20)
    standing.require_all_once()  # else a batch under way is waited for in vain
    before = standing.options("c")
    known = set(standing.catalog.state().operations)
    kafka.stop()
    try:
        error = standing.fails(
            f"ALTER CONNECTION {standing.q('c')} {DEAD}", lambda: standing.broken("s", "z"),
            phases=(STARTED, SETTING_BACK),
        )
        assert isinstance(error, AlterFailed)
        assert error.exit_code == 6
        assert standing.options("c") == before
        (row,) = (row for key, row in standing.catalog.state().operations.items()
                  if key not in known)
        assert row.state == "failed"
        assert not standing.holds()
        assert standing.runtime is not None
        supervisor = standing.runtime.supervisor
        assert supervisor is not None
        source = supervisor.managed[standing.id("s")]
        failures = source.restarts
        standing.until(lambda: source.restarts > failures, "another try")
        assert source.error is not None
    finally:
        kafka.start()
    for topic in standing.topics.values():
        standing.send(topic, 20)
    standing.clock.skip(LONGEST_BACK_OFF)
    standing.require_all_once()


def test_two_at_once(standing: Standing) -> None:
    """Of two ALTERs at one time one is carried out, the other gets SQLSTATE 40001 and is not."""
    both = threading.Barrier(2)
    done: dict[str, list[Result] | CatalogMigrateError] = {}

    def alter(client_id: str) -> None:
        both.wait()
        try:
            done[client_id] = standing.run(
                f"ALTER CONNECTION {standing.q('d')} SET (kafka.client.id '{client_id}')"
            )
        except CatalogMigrateError as error:
            done[client_id] = error

    threads = [threading.Thread(target=alter, args=(name,)) for name in ("one", "two")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    (winner,) = (name for name, result in done.items() if isinstance(result, list))
    (loser,) = (error for error in done.values() if isinstance(error, CatalogMigrateError))
    assert isinstance(loser, CommitConflict)
    assert loser.sqlstate == "40001"
    assert loser.remedy
    now = standing.options("d")
    assert f"'{winner}'" in now
    assert ("'one'" in now) != ("'two'" in now)


def test_idle_queries_on_a_dead_broker(standing: Standing) -> None:
    """Progress alone proves nothing: an idle sink is set back, though its query reports progress.

    Its source is on another connection and does not restart.
    """
    before, runs = standing.options("d"), standing.run_ids_of(standing.NAMES)
    error = standing.fails(
        f"ALTER CONNECTION {standing.q('d')} {DEAD}",
        lambda: standing.reports("d") or standing.broken("d"),
    )
    assert isinstance(error, AlterSetBack)
    assert standing.q("d") in str(error)
    assert standing.options("d") == before
    after = standing.run_ids_of(standing.NAMES)
    assert {name for name in runs if after[name] != runs[name]} == {"d"}
    standing.send(standing.topics["s"], 7)
    standing.require_all_once()


def test_a_sink_waits_for_its_sources_topics(standing: Standing, kafka: Any) -> None:
    """An ALTER does not start a sink whose source was paused before its first start.

    The sink would not know the ids of the topics yet: its row keys would name them, and the same
    rows would have other keys after its next start.
    """
    topic, out = standing.topics["w"], standing.outs["x"]
    standing.send(topic, 5)
    standing.run(f"ALTER CONNECTION {standing.q('w')} SET (kafka.client.id 'x')")
    assert standing.run_ids_of("wx") == {"w": None, "x": None}
    standing.run(f"RESUME SOURCE {standing.q('w')}")
    sent = once(standing.sent[topic])
    standing.until(lambda: standing.kafka_ids(out) == sent, "the rows")
    keys = {dict(record.headers)["catalog_migrate.row"] for record in kafka.consume_all(out)}
    topic_id = kafka.topic_id(topic).encode()
    assert {key.rpartition(b"/")[0].rpartition(b"/")[0] for key in keys} == {topic_id}


def test_another_cluster_that_nobody_validated(standing: Standing, kafka_other: Any) -> None:
    """A cluster with a topic of the same name: set back by the ids, and no hold is left behind."""
    for topic in (standing.topics["s"], standing.topics["z"]):
        kafka_other.create_topic(topic, 2)
        kafka_other.allow("app", topic, "READ", "DESCRIBE")
        kafka_other.produce(topic, [(str(n), f'{{"id": {n}}}') for n in range(500, 600)])
    before = standing.options("c")
    error = standing.fails(
        f"ALTER CONNECTION {standing.q('c')} SET (BROKER '{kafka_other.bootstrap}') "
        "WITH (VALIDATE = false)", lambda: standing.broken("s", "z"),
    )
    assert isinstance(error, AlterSetBack)
    assert "belongs to cluster" in str(error)
    assert standing.options("c") == before
    assert not standing.holds()
    for topic in (standing.topics["s"], standing.topics["z"]):
        standing.send(topic, 30)
    standing.require_all_once()
