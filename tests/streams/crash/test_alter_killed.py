"""SIGKILL at a random moment of an ALTER CONNECTION: everything agrees after the restart."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec
import pytest

from catalog_migrate.streams.catalog import dependencies
from tests.series import within_minutes

from .conftest import number_row
from .runtime_process import PATIENCE

if TYPE_CHECKING:
    from catalog_migrate.model.objects import ObjectDefinition
    from tests.services.kafka import KafkaCluster

    from .conftest import Killable
    from .runtime_process import CommandProcess

pytestmark = [pytest.mark.spark, pytest.mark.services, pytest.mark.crash, pytest.mark.soak]

SEED = 4
ROUNDS = int(os.environ.get("CRASH_STREAMS", "3"))

KINDS = ("option", "dead broker", "secret", "dead server", "other secret")
"""What is altered, by turns; every second round kills the runtime, so ten rounds try each pair."""

HEALTHY, DEAD = 60.0, 12.0
"""Seconds of a trial that can succeed, and of one that cannot."""


def statement(pipeline: Killable, kind: str, number: int) -> tuple[str, str, str, float]:
    """The statement of a round, kind and name of what it alters, and the limit of its trial."""
    c, pg = pipeline.q("c"), pipeline.q("pg")
    dead = "WITH (VALIDATE = false)"
    return {
        "option": (f"ALTER CONNECTION {c} SET (kafka.client.id 'round-{number}')",
                   "connection", "c", HEALTHY),
        "dead broker": (f"ALTER CONNECTION {c} SET (BROKER '127.0.0.1:1') {dead}",
                        "connection", "c", DEAD),
        "secret": (f"ALTER SECRET {pipeline.q('pw')}", "secret", "pw", HEALTHY),
        "dead server": (f"ALTER CONNECTION {pg} SET (PORT 1) {dead}", "connection", "pg", DEAD),
        "other secret": (f"ALTER SECRET {pipeline.q('pg')}", "secret", "pg", HEALTHY),
    }[kind]


def kill_at_some_moment(
    pipeline: Killable, client: CommandProcess, victim: str, moments: random.Random
) -> str:
    """Kill the client or the runtime a few commits and a moment after the operation began.

    Commits are counted, so that each step is as likely as the others on any machine. One in seven
    clients dies whatever it has done by then.
    """
    before = pipeline.log.version()
    known = set(pipeline.operations())
    commits, pause = moments.randrange(0, 7), moments.uniform(0.0, 2.5)
    if victim == "client" and commits == 6:
        time.sleep(pause)
        client.kill()
        return f"{pause:.2f} s after its start"
    deadline = time.monotonic() + PATIENCE
    while pipeline.log.version() < before + 1 + commits and client.running:
        assert time.monotonic() < deadline, client.output
        time.sleep(0.02)
    time.sleep(pause)
    assert pipeline.process is not None
    (client if victim == "client" else pipeline.process).kill()
    begun = set(pipeline.operations()) - known
    rows = [pipeline.operations()[key] for key in begun]
    phase = [row.detail.get("phase", row.state) for row in rows]
    return f"{commits} commits and {pause:.2f} s after it began: {phase}"


def definition_of(pipeline: Killable, kind: str, name: str) -> ObjectDefinition:
    return dependencies.find(pipeline.catalog.state(), kind, pipeline.q(name)).item.definition


def require_agreement(
    pipeline: Killable, known: set[str], kind: str, name: str, before: ObjectDefinition
) -> str:
    """The catalog's definition is what the operation's row says, and the queries run on it."""
    assert pipeline.process is not None
    rows = {key: row for key, row in pipeline.operations().items() if key not in known}
    assert len(rows) <= 1
    now = definition_of(pipeline, kind, name)
    final = "never begun"
    for row in rows.values():
        final = row.state
        assert final in {"confirmed", "set_back", "failed"}, row
        wanted = row.after if final == "confirmed" else row.before
        assert wanted is not None
        assert now.external == wanted.external, row
    if not rows:
        assert now == before
    external = definition_of(pipeline, "connection", "c").external
    assert external is not None
    client_id = external.options.get("kafka.client.id")
    if client_id is not None:
        assert pipeline.process.kafka_client_ids() == {client_id}
    return final


def test_an_alter_that_is_killed(
    killable: Killable, kafka: KafkaCluster, record_property: Callable[[str, object], None]
) -> None:
    """Client and runtime are killed by turns; after each round catalog, operation, queries agree.

    Rows are produced all the time; after each round every one is in Delta and PostgreSQL once, and
    in Kafka once when repeats are dropped by their headers.
    """
    moments = random.Random(SEED)
    killable.run_cluster()
    with kafka.feed(killable.topic_in, rate=10.0, row=number_row) as feed:
        killable.until(killable.all_run, "three running queries")
        for number in within_minutes(range(ROUNDS)):
            began = time.monotonic()
            kind, victim = KINDS[number % len(KINDS)], ("client", "runtime")[number % 2]
            text, target_kind, target, limit = statement(killable, kind, number)
            known = set(killable.operations())
            before = msgspec.structs.replace(definition_of(killable, target_kind, target))
            client = killable.client(text, limit=limit)
            try:
                moment = kill_at_some_moment(killable, client, victim, moments)
                if victim == "runtime":
                    assert client.end() >= 0
                    assert "Traceback" not in client.output, client.output
                    killable.run_cluster()
            finally:
                client.kill()
            killable.until(killable.is_settled, "the end of the operation")
            killable.until(killable.all_run, "three running queries")
            final = require_agreement(killable, known, target_kind, target, before)
            rows = killable.require_all_once(feed)
            record_property("rounds", 1)
            record_property("kills", 1)
            print(f"{number + 1}/{ROUNDS} {kind}, {victim} killed {moment}; {final}; {rows} rows; "
                  f"{time.monotonic() - began:.0f} s", flush=True)
    record_property("rows", rows)
