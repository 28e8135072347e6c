"""Where the first start of a source begins whose CREATE names offsets of single partitions.

Initial offsets after KIP-995 of Kafka Connect: there they are put down before a connector runs, and
here in the checkpoint, by the first start itself.
"""

from __future__ import annotations

from catalog_migrate.errors import EngineFailure
from catalog_migrate.model.objects import External
from catalog_migrate.streams.checkpoint.codecs import KafkaCodec, KafkaPositions, Partition
from catalog_migrate.streams.checkpoint.directory import Checkpoint
from catalog_migrate.streams.checkpoint.files import tag_of
from catalog_migrate.streams.checkpoint.targets import Place, land, moment_of, start_targets
from catalog_migrate.streams.queries import QuerySpec
from catalog_migrate.streams.upstream import TopicContents, Upstreams


def first_positions(external: External, contents: TopicContents, now: float) -> KafkaPositions:
    """Where the first start of a source with START OFFSETS begins: every partition, in numbers.

    What is not named begins at START. A time without a record that young is the end, as with START.
    ``now`` is in seconds. Raises :class:`EngineFailure` with everything that is not there.
    """
    start, starts = start_targets(external)
    found: dict[Partition, int] = {}
    for partition, (low, high) in sorted(contents.bounds.items()):
        target = starts.pop(partition, start)
        moment = moment_of(target, now)
        later = {} if moment is None else {moment: contents.at(moment, [partition])[partition]}
        landed = land(target, Place(None, low, high, later), now).offset
        assert landed is not None  # a START knows no target that hangs on a position
        found[partition] = landed
    wrong = [f"{topic}-{number} does not exist" for topic, number in starts]
    wrong += KafkaCodec().check(found, contents.bounds)
    if wrong:
        raise EngineFailure(
            f"START OFFSETS: {'; '.join(wrong)}", condition="START_OFFSETS",
            remedy="name partitions and offsets that are there; of a source that is created "
            "already: ALTER SOURCE … UNSAFE INJECT OFFSETS (…)",
        )
    return found


def begin_at_offsets(
    spec: QuerySpec, checkpoint: Checkpoint, upstreams: Upstreams, now: float
) -> None:
    """Write down where the first start begins, if START OFFSETS says so and nothing was read yet.

    Spark wants an offset for every partition or for none, so they are asked for here; a start that
    is cut off goes on from what was written. Raises as :func:`first_positions`.
    """
    if "START OFFSETS" not in spec.external.options or checkpoint.latest_offsets is not None:
        return
    initial = checkpoint.initial_offsets(0)
    if tag_of(checkpoint.store, initial) is not None:
        return
    with upstreams.contents(spec, sample=False) as contents:
        positions = first_positions(spec.external, contents, now)
    checkpoint.files.put(
        checkpoint.store, initial, KafkaCodec().write_initial(positions), None
    )
