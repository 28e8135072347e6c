"""KAFKA sinks below simulated sources: they lag, and what they send is compared row by row (I6).

A consumer tells a repeated row from a new one by its key: the id of its topic, partition and
offset. So a row has the same key whenever it is sent, and it is that of the topic that it was read
of, also when the source went over to another one, or the topic was created again under its name.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from catalog_migrate.connectors.positions import START
from catalog_migrate.streams.checkpoint.codecs import DeltaCodec, DeltaPosition
from catalog_migrate.streams.checkpoint.directory import Checkpoint

if TYPE_CHECKING:
    from tests.simulation.streaming import SimulatedQuery, StreamWorld


def live(query: SimulatedQuery) -> Iterator[None]:
    """A sink's life, a version of its table at a time; between two it rests as long as it lags."""
    spec, world, on_step = query.spec, query.engine.world, query.engine.on_step
    checkpoint = query.begin()
    while True:
        query.reach()
        batch, begun = query.upcoming(checkpoint)
        if not begun:
            first = next_version(checkpoint, batch - 1)
            query.batch = max(batch - 1, 0)
            upto = _next_rows(world, spec.shard, first)
            if upto is None:
                yield
                continue
            for _ in range(world.lag.get(spec.name.name, 0)):
                yield
            on_step(f"offsets {batch}")
            query.between = False
            _plan(checkpoint, batch, spec.shard, upto)
            yield
        query.between = False
        on_step(f"send {batch}")
        _send(query, next_version(checkpoint, batch - 1), next_version(checkpoint, batch))
        yield
        query.commit(checkpoint, batch)
        yield


def next_version(checkpoint: Checkpoint, batch: int) -> int:
    """The version of its table that a sink reads next after a batch (-1: before the first)."""
    line = START if batch < 0 else checkpoint.entry(batch).sources[0]
    position = DeltaCodec().read(line)
    return 0 if position is None else position.version


def _next_rows(world: StreamWorld, path: str, first: int) -> int | None:
    """One past the next version that brought rows, None where there is none yet."""
    versions = world.table(path).versions
    for version in range(max(first, 1), len(versions)):
        if versions[version] > versions[version - 1]:
            return version + 1
    return None


def _plan(checkpoint: Checkpoint, batch: int, path: str, upto: int) -> None:
    from tests.simulation.streaming import write_entry

    write_entry(checkpoint, batch, DeltaCodec().write(DeltaPosition(path, upto)))


def _send(query: SimulatedQuery, first: int, upto: int) -> None:
    """The rows of versions, each with the key that the real sink would give it."""
    spec, world = query.spec, query.engine.world
    table = world.table(spec.shard)
    start = table.versions[first - 1] if first > 0 else 0
    for number in range(start, table.versions[upto - 1]):
        topic, partition, offset = table.rows[number]
        # as streams.spark.row_keys does: a topic without a known id goes by its name
        key = f"{spec.topic_ids.get(topic, topic)}/{partition}/{offset}"
        own = f"{table.ids[number]}/{partition}/{offset}"
        if key != own and not world.wrong:
            world.wrong = f"{spec.name} sends the row {own} with the key {key}"
        world.sent.setdefault(spec.item_id, Counter())[number] += 1
    query.total += table.versions[upto - 1] - start


def unsent(world: StreamWorld, item_id: str, path: str) -> int:
    """How many rows of its table a sink has not sent yet."""
    return len(world.table(path).rows) - len(world.sent.get(item_id, ()))
