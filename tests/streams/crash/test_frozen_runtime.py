"""A runtime stopped with SIGSTOP, taken over, and woken: nothing doubled, nothing skipped."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from .conftest import number_row

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.services.kafka import KafkaCluster

    from .conftest import Killable

pytestmark = [pytest.mark.spark, pytest.mark.services, pytest.mark.crash, pytest.mark.soak]

SEED = 4
ROUNDS = 1 + int(os.environ.get("CRASH_STREAMS", "3")) // 8
TTL, MARGIN = 30.0, 10.0
"""Seconds of the lease, as users have them: a loaded machine pauses for ten at times."""


def test_a_frozen_runtime_that_wakes_up(
    killable: Killable, kafka: KafkaCluster, spark: SparkSession,
    record_property: Callable[[str, object], None],
) -> None:
    """Frozen in the middle of the rows, it wakes up when another one has its cluster.

    The other goes on under new query ids; the woken one's batches reach nobody, and it leaves with
    exit code 5. By turns the whole process group is frozen, and only the driver: then its JVM goes
    on with the source while the other one takes over.
    """
    killable.spark = spark
    wake_up(killable, kafka, ROUNDS, record_property)


def test_on_s3(
    killable_on_s3: Killable, kafka: KafkaCluster, record_property: Callable[[str, object], None]
) -> None:
    """The same where catalog, rows and checkpoints lie in a bucket."""
    wake_up(killable_on_s3, kafka, 2, record_property)


def wake_up(
    killable: Killable, kafka: KafkaCluster, rounds: int,
    record_property: Callable[[str, object], None],
) -> None:
    """Freeze a runtime, have another one take over, wake it; again and again."""
    moments = random.Random(SEED)
    with kafka.feed(killable.topic_in, rate=20.0, row=number_row) as feed:
        for number in range(rounds):
            frozen = killable.run_cluster(lease_ttl=TTL, lease_margin=MARGIN)
            killable.until(killable.all_run, "three running queries")
            time.sleep(moments.uniform(0.0, 3.0))
            freeze = (frozen.signal, frozen.signal_driver)[(number + rounds - 1) % 2]
            freeze(signal.SIGSTOP)
            at_the_freeze = feed.sent
            successor = killable.start(ttl=TTL, margin=MARGIN)
            for place in range(3):
                killable.until(
                    lambda place=place, least=at_the_freeze: len(killable.arrived()[place]) > least,
                    "rows that came after the freeze",
                )
            freeze(signal.SIGCONT)
            assert frozen.end() == 5, frozen.output[-3000:]
            assert "Traceback" not in frozen.output, frozen.output[-3000:]
            rows = killable.require_all_once(feed)
            killable.runtime = None
            successor.close()
            record_property("rounds", 1)
            print(f"{number + 1}/{rounds} {freeze.__name__} at {at_the_freeze} rows, {rows} in the "
                  "end", flush=True)
