"""One story of another package's connector on real Spark: rows through, and what operators do."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from catalog_migrate.api import Catalog
from catalog_migrate.catalog.opening import create_catalog, open_log
from catalog_migrate.delta.table import load_table
from catalog_migrate.errors import CatalogMigrateError
from catalog_migrate.streams.catalog import dependencies
from catalog_migrate.streams.ddl.execute import Result

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from catalog_migrate.streams.runtime.runtime import Runtime

pytestmark = pytest.mark.spark

PATIENCE = 60.0
"""Seconds that anything may take on a loaded machine; nothing is asserted about times."""


class Story:
    """Queue ``orders`` into source ``s``, its rows by sink ``o`` into queue ``sent``."""

    def __init__(self, place: Path, spark: SparkSession) -> None:
        from catalog_migrate_queue.directory import Directory

        self.place = place
        self.directory = Directory(str(place / "q"))
        self.directory.create()
        self.directory.create_queue("orders", 2)
        self.directory.create_queue("sent")
        log = open_log(str(place / "catalog"))
        create_catalog(log, warehouse=str(place / "warehouse"))
        self.catalog = Catalog.open(str(place / "catalog"), mode="write")
        self.run(
            "CREATE CLUSTER q_main;"
            f"CREATE CONNECTION q_c TO QUEUE (PATH '{self.directory.path}');"
            "CREATE SOURCE q_s (id BIGINT) IN CLUSTER q_main FROM QUEUE CONNECTION q_c"
            " (QUEUE 'orders') FORMAT JSON INCLUDE KEY AS key;"
            "CREATE SINK q_o IN CLUSTER q_main FROM q_s INTO QUEUE CONNECTION q_c (QUEUE 'sent')"
            " KEY (id) FORMAT JSON"
        )
        self.spark = spark
        self.runtime: Runtime | None = None

    def start(self) -> None:
        """A runtime of the cluster, its gate open."""
        from catalog_migrate.streams.runtime.runtime import RuntimeOptions

        self.runtime = self.catalog.runtime(
            self.spark, "q_main", options=RuntimeOptions(drain=20.0, unsafe=True)
        ).start()
        assert self.runtime.ready.wait(PATIENCE)

    def run(self, text: str, **options: Any) -> list[Result]:
        return self.catalog.execute(text, **{"limit": PATIENCE, **options})

    def unsafe(self, actions: str) -> None:
        self.run(
            f"ALTER SOURCE q_s UNSAFE {actions} REASON 'test'", confirm=lambda _: True
        )

    def send(self, numbers: range) -> None:
        """Records with these ids, in both partitions by turns."""
        for number in numbers:
            record = (str(number), json.dumps({"id": number}))
            self.directory.append("orders", number % 2, [record])

    @property
    def item(self) -> dependencies.CatalogEntry:
        return dependencies.find(self.catalog.state(), "source", "q_s")

    def received(self) -> Counter[int]:
        """How often each id is in the source's table."""
        path = self.place / "warehouse" / str(self.item.item.shard)
        if not (path / "_delta_log").exists():
            return Counter()
        return Counter(load_table(str(path)).to_pyarrow_table().column("id").to_pylist())

    def sent(self) -> Counter[int]:
        """How often each id is in the queue of the sink."""
        oldest, newest = self.directory.bounds("sent", 0)
        return Counter(
            json.loads(record.value)["id"]
            for record in self.directory.read("sent", 0, oldest, newest)
        )

    def until(self, condition: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + PATIENCE
        while not condition():
            if self.runtime is not None and self.runtime._failure is not None:
                raise self.runtime._failure
            if time.monotonic() > deadline:
                shown = [str(result.rows) for result in self.run("SHOW SOURCES; SHOW SINKS")]
                pytest.fail("\n".join(
                    (what, f"{self.received()} received", f"{self.sent()} sent", *shown)
                ))
            time.sleep(0.2)

    def until_all(self, numbers: range, again: range = range(0)) -> None:
        """Each of these arrives once at both ends, and some once more."""
        wanted = Counter(numbers) + Counter(again)
        self.until(lambda: self.received() == wanted, f"{wanted} received")
        self.until(lambda: self.sent() == wanted, f"{wanted} sent")

    def holds(self) -> list[str]:
        """What to do about each query that is held."""
        return [hold.remedy for hold in self.catalog.state().holds.values()]

    def stop(self) -> None:
        if self.runtime is not None:
            runtime, self.runtime = self.runtime, None
            runtime.close()


@pytest.fixture
def story(
    installed: Path, on_executors: None, tmp_path: Path, spark: SparkSession
) -> Iterator[Story]:
    """The queues and the catalog, nothing running yet."""
    made = Story(tmp_path, spark)
    yield made
    made.stop()


def test_from_the_first_row_to_the_last(story: Story, uninstall: Callable[[], None]) -> None:
    """Rows arrive once, through ALTER CONNECTION with its fan-out, PAUSE, positions of choice, and
    a start without the package, which leaves all as it is."""
    story.send(range(10))
    story.start()
    story.until_all(range(10))

    # another directory is refused, the same one in another place is taken by both
    other = type(story.directory)(str(story.place / "other"))
    other.create()
    other.create_queue("orders", 2)
    other.create_queue("sent")
    with pytest.raises(CatalogMigrateError, match="belongs to directory"):
        story.run(f"ALTER CONNECTION q_c SET (PATH = '{other.path}')")
    link = story.place / "link"
    link.symlink_to(story.directory.path)
    (altered,) = story.run(f"ALTER CONNECTION q_c SET (PATH = '{link}')")
    assert set(altered.restarted) == {"default.q_s", "default.q_o"}
    story.send(range(10, 20))
    story.until_all(range(20))

    story.run("PAUSE SOURCE q_s")
    story.send(range(20, 30))
    story.run("EXPLAIN ALTER SOURCE q_s UNSAFE INJECT OFFSETS (TO latest)")
    assert story.received() == Counter(range(20))
    story.run("RESUME SOURCE q_s")
    story.until_all(range(30))

    story.unsafe("RESET SPLITS")
    story.until_all(range(30), again=range(30))
    story.run("PAUSE SOURCE q_s")
    story.send(range(30, 40))
    story.unsafe("INJECT OFFSETS (TO latest)")
    story.run("RESUME SOURCE q_s")
    story.send(range(40, 50))
    skipped = [*range(30), *range(40, 50)]
    wanted = Counter(skipped) + Counter(range(30))
    story.until(lambda: story.sent() == wanted, "the skipped ones left out")
    story.stop()

    uninstall()
    story.start()
    story.until(lambda: len(story.holds()) == 2, "both held")
    assert all("pip install catalog-migrate-queue" in remedy for remedy in story.holds())
    assert "FROM QUEUE" in story.run("SHOW CREATE SOURCE q_s")[0].summary
    assert story.sent() == wanted
