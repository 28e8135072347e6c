"""A source on a real topic with a checkpoint as Spark leaves it; no Spark is needed to move it."""

from __future__ import annotations

import itertools
import json
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from catalog_migrate.catalog.clock import SystemClock
from catalog_migrate.catalog.log import CatalogLog
from catalog_migrate.catalog.opening import read_state
from catalog_migrate.catalog.records import ClusterRecord, OperationRecord
from catalog_migrate.catalog.state import State
from catalog_migrate.connectors.kafka.positions import KafkaCodec
from catalog_migrate.streams.catalog import dependencies
from catalog_migrate.streams.catalog.query_spec import first_stream
from catalog_migrate.streams.checkpoint.directory import Checkpoint
from catalog_migrate.streams.ddl.execute import Executor, Result
from catalog_migrate.streams.positions.plan import UnsafePlan
from tests.decisions import Changes, commit
from tests.services.checkpoints import adopt, root

if TYPE_CHECKING:
    from tests.services.kafka import KafkaCluster

_numbers = itertools.count(1)


class Stage:
    """Source ``s`` on connection ``c`` of cluster ``main``, at ``positions`` after batch ``N``."""

    def __init__(self, log: CatalogLog, warehouse: Path, kafka: KafkaCluster) -> None:
        self.log, self.warehouse, self.kafka = log, warehouse, kafka
        self.number = next(_numbers)
        self.plans: list[UnsafePlan] = []
        self.progress: list[str] = []

    # -- setting ---------------------------------------------------------------------------------

    def topic(self, name: str, counts: list[int], **config: str) -> str:
        """A topic with so many records in each partition."""
        full = f"u{self.number}-{name}"
        self.kafka.create_topic(full, len(counts), config or None)
        self.kafka.allow("app", full, "READ", "WRITE", "DESCRIBE", "DESCRIBE_CONFIGS")
        for partition, count in enumerate(counts):
            self.produce(full, partition, count)
        return full

    def produce(self, topic: str, partition: int, count: int) -> None:
        """Records ``{"id": n}`` in one partition."""
        self.kafka.produce(
            topic, [(str(number), json.dumps({"id": number})) for number in range(count)],
            partition=partition,
        )

    def source(self, topic: str, more: str = "") -> None:
        """Declare connection and source; ``more`` goes behind the topic."""
        kafka = self.kafka
        self.run(
            "CREATE CLUSTER IF NOT EXISTS main; CREATE SECRET IF NOT EXISTS pw AS 'env:STAGE_PW';"
            f"CREATE CONNECTION IF NOT EXISTS c TO KAFKA (BROKER '{kafka.bootstrap}', "
            "SECURITY PROTOCOL 'SASL_PLAINTEXT', SASL MECHANISMS 'SCRAM-SHA-512', "
            "SASL USERNAME 'app', SASL PASSWORD SECRET pw);"
            f"CREATE SOURCE s (id BIGINT) IN CLUSTER main FROM KAFKA CONNECTION c "
            f"(TOPIC '{topic}'{more}) FORMAT JSON"
        )

    def open_gate(self, unsafe: bool = True) -> None:
        """As the cluster's runtime does that was started with the gate open."""
        cluster = dependencies.find(self.state, "cluster", "main").item_id
        self.put("cluster", cluster, ClusterRecord(unsafe=unsafe))

    def started(self, topic: str, positions: dict[int, int], batches: int = 3) -> None:
        """As if batches 0 to N-1 had been read, the newest up to ``positions``."""
        item = self.id
        stream = msgspec.structs.replace(
            first_stream(item), upstream=self.cluster_id, topics={topic: self.kafka.topic_id(topic)}
        )
        self.put("stream", item, stream)
        path = root(self.checkpoint)
        for name in ("offsets", "commits", "sources/0"):
            (path / name).mkdir(parents=True)
        (path / "metadata").write_text(json.dumps({"id": str(uuid.uuid4())}))
        start = KafkaCodec().write_initial({(topic, number): 0 for number in positions})
        (path / "sources" / "0" / "0").write_bytes(start)
        for batch in range(batches):
            part = {(topic, number): at * (batch + 1) // batches
                    for number, at in positions.items()}
            self.write_offsets(batch, KafkaCodec().write(part))
            self.write_commit(batch)
        adopt(self.checkpoint, item=item, sources=[f"source {item}"])

    def write_offsets(self, batch: int, line: str) -> None:
        """An entry of the offset log."""
        meta = '{"batchWatermarkMs":0,"batchTimestampMs":1795277816210,"conf":{}}'
        file = root(self.checkpoint) / f"offsets/{batch}"
        file.write_text(f"v1\n{meta}\n{line}")

    def write_commit(self, batch: int) -> None:
        """An entry of the commit log."""
        (root(self.checkpoint) / f"commits/{batch}").write_text('v1\n{"nextBatchWatermarkMs":0}')

    def put(self, collection: str, key: str, record: Any) -> None:
        """Commit one row."""
        changes = Changes()
        changes.put(collection, key, record)
        commit(self.log, lambda _: changes, kind="test")

    # -- acting ----------------------------------------------------------------------------------

    def executor(self, yes: bool = True, log: CatalogLog | None = None) -> Executor:
        """Statements of an operator who says ``yes`` or no to every plan."""
        def confirm(plan: UnsafePlan) -> bool:
            self.plans.append(plan)
            return yes

        return Executor(
            log or self.log, lambda _state, _item: None, SystemClock(), confirm=confirm,
            on_progress=self.progress.append,
        )

    def run(self, text: str, **options: Any) -> list[Result]:
        """Execute statements."""
        return self.executor(**options).run(text)

    def unsafe(self, actions: str, **options: Any) -> Result:
        """``ALTER SOURCE s UNSAFE <actions> REASON 'test'``."""
        reason = "" if "REASON" in actions else " REASON 'test'"
        return self.run(f"ALTER SOURCE s UNSAFE {actions}{reason}", **options)[0]

    # -- looking ---------------------------------------------------------------------------------

    @property
    def state(self) -> State:
        """The newest state."""
        return read_state(self.log)

    @property
    def id(self) -> str:
        """The source's item."""
        return dependencies.find(self.state, "source", "s").item_id

    @property
    def cluster_id(self) -> str:
        """The broker's cluster."""
        return self.kafka.cluster_id

    @property
    def checkpoint(self) -> Checkpoint:
        """The source's checkpoint."""
        return Checkpoint(f"{self.warehouse}/{first_stream(self.id).checkpoint}")

    @property
    def operation(self) -> OperationRecord:
        """The newest unsafe operation."""
        rows = self.state.operations
        return rows[max(key for key, row in rows.items() if row.kind == "unsafe")]

    def lines(self) -> list[str]:
        """The lines of the last two entries."""
        latest = self.checkpoint.latest_offsets
        assert latest is not None
        return [self.checkpoint.entry(batch).sources[0] for batch in (latest - 1, latest)]

    def positions_untouched(self) -> bool:
        """Whether no edit was ever applied."""
        mark = self.checkpoint.mark
        return mark is not None and mark.generation == 0

    def positions(self) -> dict[int, int]:
        """Next record by partition; after an edit both entries must say the same."""
        before, now = self.lines()
        assert before == now or self.positions_untouched()
        (partitions,) = json.loads(now).values()
        return {int(number): offset for number, offset in partitions.items()}
