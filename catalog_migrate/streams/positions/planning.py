"""The dry run of an unsafe operation: what it would double, skip and lose, and whom it concerns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import repeat
from pathlib import Path

import msgspec

from catalog_migrate.catalog.records import StreamRecord
from catalog_migrate.catalog.state import State
from catalog_migrate.catalog.updates import Amend, preview
from catalog_migrate.connectors.base import has_row_keys
from catalog_migrate.connectors.positions import OffsetRange
from catalog_migrate.errors import (
    CommitConflict,
    EditedPlan,
    StalePlan,
    UnsafeBlocked,
    UnsettledCheckpoint,
    UnsupportedFormat,
)
from catalog_migrate.model.findings import Finding
from catalog_migrate.model.objects import External
from catalog_migrate.retry import retry
from catalog_migrate.streams.catalog import dependencies
from catalog_migrate.streams.catalog.cluster_log import held_by, runtime_lives
from catalog_migrate.streams.catalog.create_statement import create_statement
from catalog_migrate.streams.catalog.dependencies import refuse_new_loops
from catalog_migrate.streams.catalog.operation_records import earlier_topics, read_before
from catalog_migrate.streams.catalog.query_spec import (
    first_stream,
    hidden,
    options_of,
    restored,
    spec_of,
)
from catalog_migrate.streams.catalog.requirements import require_same
from catalog_migrate.streams.catalog.tables import Tables
from catalog_migrate.streams.catalog.updates import Redefine
from catalog_migrate.streams.checkpoint.directory import Checkpoint
from catalog_migrate.streams.positions.backfill import (
    chunks_of,
    expired_ranges,
    skipped_note,
    skipped_ranges,
)
from catalog_migrate.streams.positions.forecast import Row, Totals
from catalog_migrate.streams.positions.positions import (
    Survey,
    SurveyRequest,
    left_unread,
    require_no_problem,
    sent_before,
    survey,
)
from catalog_migrate.streams.positions.requests import (
    ItemRequest,
    Request,
    bound_hash,
    require_checked,
)
from catalog_migrate.streams.positions.restore import (
    Restore,
    goes_back_to,
    passed,
    staying,
    taken_back,
)
from catalog_migrate.streams.runtime.ports import Ports
from catalog_migrate.streams.runtime.probes import validate
from catalog_migrate.streams.runtime.shard_handover import is_drained

FORMAT = 1
"""Newest form of a plan's file that is written and read."""

_LOOKS = 5


class Job(msgspec.Struct, frozen=True):
    """Something below an item; ``takes`` is ``append``, ``keyed`` or ``stateful``."""

    kind: str
    name: str
    takes: str


class Refusal(msgspec.Struct, frozen=True):
    """What validation refused, and what to do about it."""

    text: str
    remedy: str = ""


class ItemPlan(msgspec.Struct, frozen=True):
    """One item of a plan; ``topics`` are the ids that were found, ``foreign`` says which are new
    and why, ``findings`` is what validation of its new properties refused, ``definition`` the
    statement that would create it afterwards ("" where it stays), ``restores`` whether its table
    goes back to an earlier version. ``unread`` counts what topics that are no longer read hold
    behind its position; it is left out where there are none, or nobody can say. ``stays`` counts
    the rows of a sink that stay in the system that it writes to though they go from its table.
    ``edited`` is there where positions change, ``snapshot`` where a POSTGRES source copies tables
    anew: which ones. ``refusals`` are the findings with their remedies apart."""

    item_id: str
    kind: str
    name: str
    keys: tuple[str, ...]
    rows: tuple[Row, ...]
    totals: Totals
    topics: dict[str, str]
    foreign: dict[str, str]
    notes: tuple[str, ...]
    jobs: tuple[Job, ...]
    findings: tuple[str, ...] = ()
    definition: str = ""
    restores: bool = False
    unread: int | msgspec.UnsetType = msgspec.UNSET
    stays: int | msgspec.UnsetType = msgspec.UNSET
    edited: bool | msgspec.UnsetType = msgspec.UNSET
    snapshot: tuple[str, ...] | msgspec.UnsetType = msgspec.UNSET
    refusals: tuple[Refusal, ...] | msgspec.UnsetType = msgspec.UNSET


class UnsafePlan(msgspec.Struct, frozen=True):
    """A dry run as a file holds it: bound to lineage, generations, definitions and topic ids."""

    lineage: str
    at: str
    reason: str
    cluster: str
    request: Request
    items: tuple[ItemPlan, ...]
    totals: Totals
    format: int = FORMAT

    @property
    def changes(self) -> bool:
        """Whether it would change anything at all."""
        return any(part.redefines for part in self.request.parts) or any(
            item.restores or item.foreign or item.snapshot
            or any(row.moves for row in item.rows)
            or (part.chooses and not item.rows)
            for item, part in zip(self.items, self.request.parts, strict=True)
        )

    @property
    def edited(self) -> tuple[str, ...]:
        """The items whose positions change."""
        return tuple(item.item_id for item in self.items if item.edited is True)

    @property
    def refused(self) -> bool:
        """Whether validation refuses the new properties of an item."""
        return any(item.findings for item in self.items)


class _Sealed(msgspec.Struct, frozen=True):
    plan: UnsafePlan
    hash: str


class SurveyedPart(msgspec.Struct, frozen=True):
    """A part with what was found for it; ``version`` is the newest of a source's table, ``again``
    are topics that stand for others of their names now, ``unsent`` the sinks that still have rows
    of those to send, and do."""

    part: ItemRequest
    stream: StreamRecord
    checkpoint: Checkpoint
    survey: Survey
    shard: str = ""
    version: int | None = None
    restore: Restore | None = None
    again: tuple[str, ...] = ()
    unsent: tuple[str, ...] = ()


_READ_SINCE = (
    "a running query may have read records of the new topic before it was stopped for it (within"
    " 5 s): those come again, and are not counted"
)


def altered(state: State, parts: tuple[ItemRequest, ...]) -> State:
    """The state with the definitions of afterwards, which is not committed."""
    return preview(state, [
        Redefine(part.item_id, part.after, part.links_after) for part in parts
    ])


def survey_parts(
    state: State, request: Request, *, ports: Ports, now: float,
    sample: bool = True,
    sends: Callable[[str], bool] = lambda _: False,
) -> tuple[SurveyedPart, ...]:
    """Survey every part; ids of topics are required to be accepted when they are others.

    ``sample``: see :class:`~…positions.SurveyRequest`. ``sends``: whether a sink is at work, so
    that its rows may be waited for; else it must have sent them.
    """
    after = altered(state, request.parts)
    clusters = {state.items[part.item_id].links.get("cluster", "") for part in request.parts}
    found: list[SurveyedPart] = []
    for part in request.parts:
        name = _name(state, part)
        stream = state.streams.get(part.item_id) or first_stream(part.item_id)
        spec = spec_of(after, part.item_id, resolve=ports.resolve)
        checkpoint = ports.checkpoint(spec.checkpoint)
        _require_whole(checkpoint)
        asked = SurveyRequest(
            ports, part, spec, stream, checkpoint, request.policy, now, sample,
            read_before(state, part.item_id),
        )
        restore = None
        if part.past:
            source = next(each for each in found if each.part.item_id == part.past)
            each = passed(asked, source.restore, goes_back_to(source.survey))
        else:
            each = survey(asked)
        if part.restore is not None:
            each, restore = taken_back(state, asked, each, clusters)
        _require_undoable(state, request, part, each)
        if each.forecast.foreign and not request.accept_new_topic:
            what, word = (
                ("another server than the one", "the") if part.is_postgres
                else ("topics that are not those", "topic")
            )
            raise UnsafeBlocked(
                f"{name} would read {what} it was reading",
                problems=[f"{word} {topic} {why}" for topic, why in each.forecast.foreign.items()],
                remedy="when that is meant: --accept-new-topic, or WITH (ACCEPT NEW TOPIC = true)",
            )
        require_no_problem(name, each.forecast)
        known = stream.known_topics
        again = [
            topic for topic in each.forecast.foreign
            if topic in known and known[topic] != each.topics.get(topic)
        ]
        mixed = sent_before(state, part.item_id, each.forecast.rows)
        if mixed and request.policy != "allow":
            raise UnsafeBlocked(
                f"{name} would send rows again under the keys of other ones", problems=mixed,
                remedy="inject a later version, or create another sink into another topic; POLICY"
                " = 'allow' goes on without",
            )
        late = () if request.policy == "allow" else unsent(state, part, again, ports)
        if not all(map(sends, late)):
            raise UnsafeBlocked(
                f"{name} goes over to another topic of the same name too early",
                problems=[
                    f"sink {dependencies.display(state, user)} has rows of the old topic to send"
                    for user in late
                ],
                remedy=f"PAUSE SOURCE {dependencies.display(state, part.item_id)}, let the sinks "
                "catch up (SHOW SINKS), run the command again and RESUME; POLICY = 'allow' goes on "
                "without",
            )
        shard = (state.items[part.item_id].shard or "") if spec.kind == "source" else ""
        version = ports.tables.newest(spec.shard) if shard else None
        found.append(
            SurveyedPart(
                part, stream, checkpoint, each, shard, version, restore, tuple(again), late
            )
        )
    return tuple(found)


def unsent(
    state: State, part: ItemRequest, again: Sequence[str], ports: Ports
) -> tuple[str, ...]:
    """KAFKA sinks that have rows of a topic to send which was created again under its name.

    The keys of their rows are formed with the topic's id at the time of sending: the new id would
    make an old row look like one of the new topic, and a consumer would drop one of the two.
    """
    shard = state.items[part.item_id].shard
    path = dependencies.location(state, shard or "")
    newest = ports.tables.newest(path) if again else None
    if newest is None:
        return ()
    found = []
    for user in dependencies.users_of(state, part.item_id):
        item = state.items[user]
        if not has_row_keys(item.definition):
            continue
        stream = state.streams.get(user) or first_stream(user)
        checkpoint = ports.checkpoint(dependencies.location(state, stream.checkpoint))
        begun = checkpoint.latest_commits is not None or not ports.tables.has_rows(
            path, -1, newest
        )
        if not begun or not is_drained(
            checkpoint, path, newest, ports.tables,
            skip_changes=dependencies.skips_changes(item),
        ):
            found.append(user)
    return tuple(found)


def sends(state: State, sink: str) -> bool:
    """Whether a sink is at work as far as the catalog says: nobody holds it, its runtime lives."""
    cluster = state.items[sink].links.get("cluster", "")
    return runtime_lives(state, cluster) and not held_by(state, sink)


def _waiting(state: State, surveyed: SurveyedPart) -> str:
    """That the operation waits for sinks, in words."""
    names = ", ".join(dependencies.display(state, user) for user in surveyed.unsent)
    return (
        f"rows of the old topic are still to be sent by {names}: the source is stopped first, and "
        "goes over when they are"
    )


def _require_whole(checkpoint: Checkpoint) -> None:
    """:class:`UnsettledCheckpoint` for a broken checkpoint.

    A query that runs writes while it is read, so what looks broken is looked at again.
    """
    def look() -> None:
        state = checkpoint.state()
        if state.kind == "broken":
            raise UnsettledCheckpoint(
                f"the checkpoint {checkpoint.address} is broken: {state.reason}",
                remedy="restore a snapshot of it", batch=state.batch,
            )

    retry(look, UnsettledCheckpoint, repeat(0, _LOOKS - 1))


def validated(
    state: State, request: Request, *, ports: Ports
) -> tuple[Finding, ...]:
    """Probe the properties of afterwards; ids of topics are judged by :func:`survey_parts`."""
    if request.skip_validate:
        return ()
    changed = tuple(part for part in request.parts if part.redefines)
    after = altered(state, request.parts)
    after = preview(after, [
        Amend("stream", part.item_id, {"upstream": "", "topics": {}}) for part in changed
    ])
    return tuple(
        verdict for part in changed
        for verdict in validate(after, part.item_id, (part.item_id,), ports=ports)
    )


def plan_unsafe(
    state: State, request: Request, reason: str, *, ports: Ports, now: float, at: str,
    with_times: bool = False,
) -> UnsafePlan:
    """The dry run; reads catalog, checkpoints and upstream, writes nothing.

    ``with_times`` tells from the tables of sources when doubled records were written.
    """
    Bound(request).check(state)
    require_checked(request)
    after = altered(state, request.parts)
    refuse_new_loops(state, after)
    verdicts = validated(state, request, ports=ports)
    items = []
    for surveyed in survey_parts(
        state, request, ports=ports, now=now, sends=partial(sends, state)
    ):
        part, found = surveyed.part, surveyed.survey.forecast
        unread, unknown = left_unread(state, part, surveyed.survey, ports=ports)
        notes = (*found.notes, *unknown)
        for option in options_of(part.after.external or External()):
            notes = (*notes, f"{option} stands as plain text: `doctor` says what is to be done")
        if surveyed.unsent:
            notes = (*notes, _waiting(state, surveyed))
        if found.foreign and not part.is_postgres:
            notes = (*notes, _READ_SINCE)
        if request.undoes and part.restore is None and not part.is_postgres:
            notes = (*notes, *staying(
                state, request, part.item_id, surveyed.checkpoint, ports
            ))
        if request.backfill:
            chunks = chunks_of(part.item_id, skipped_ranges(found.rows), request.chunk)
            notes = (*notes, skipped_note(chunks, expired_ranges(found.rows)))
        item = state.items[part.item_id].definition
        jobs = dependent_jobs(state, part.item_id)
        if surveyed.restore is not None:
            notes = (*notes, *_kept_elsewhere(state, part, jobs))
        shown = found.rows
        if with_times and not part.is_postgres:
            shown = _with_times(state, part, found.rows, ports.tables)
        refusing = [each for each in verdicts if each.item_id == part.item_id and not each.ok]
        items.append(
            ItemPlan(
                part.item_id, item.kind, str(item.item_name), part.keys, shown, found.totals,
                dict(surveyed.survey.topics), dict(found.foreign), notes, jobs,
                tuple(map(str, refusing)),
                create_statement(after, dependencies.by_id(after, part.item_id))
                if part.redefines else "",
                surveyed.restore is not None, unread or msgspec.UNSET,
                found.stays or msgspec.UNSET,
                bool(surveyed.survey.line) or msgspec.UNSET,
                surveyed.survey.copied or msgspec.UNSET,
                tuple(Refusal(each.text, each.remedy or "") for each in refusing) or msgspec.UNSET,
            )
        )
    cluster = state.items[request.parts[0].item_id].links.get("cluster", "")
    return UnsafePlan(
        state.lineage, at, reason, cluster, request, tuple(items),
        Totals.over(item.totals for item in items),
    )


def _kept_elsewhere(state: State, part: ItemRequest, jobs: Sequence[Job]) -> tuple[str, ...]:
    """What a RESTORE of a source's table does not reach, beside what sinks have sent."""
    notes = tuple(
        f"{job.kind} {job.name} keeps what it took of the rows that go until it is filled again"
        for job in jobs if job.takes == "stateful"
    )
    dead = state.items[part.item_id].links.get("dead_letters")
    if dead is not None:
        notes += (f"dead letters that came since stay in {dependencies.display(state, dead)}",)
    return notes


def _with_times(
    state: State, part: ItemRequest, rows: tuple[Row, ...], tables: Tables
) -> tuple[Row, ...]:
    """The rows with when what comes twice was written, in their notes; unknown is said.

    Where a topic was created again under its name, offsets stand in the table twice and say
    nothing about which record they are of.
    """
    back = [
        OffsetRange(row.topic, row.partition, row.target, row.current) for row in rows
        if row.doubled and row.target is not None and row.current is not None
    ]
    path = dependencies.location(state, state.items[part.item_id].shard or "")
    again = earlier_topics(state, part.item_id)
    spans = tables.time_spans(path, [each for each in back if each.topic not in again])
    asked = {each.topic_partition for each in back}

    def noted(row: Row) -> Row:
        partition = (row.topic, row.partition)
        if partition not in asked:
            return row
        first, last = spans.get(partition, ("", ""))
        span = f"written {first} to {last}" if first else "written at unknown times"
        if row.topic in again:
            span += ": the table holds an earlier topic of that name too"
        return msgspec.structs.replace(row, note="; ".join(filter(None, (row.note, span))))

    return tuple(map(noted, rows))


class Bound(msgspec.Struct, frozen=True):
    """The items of an unsafe operation are as its request found them, also in their positions."""

    request: Request

    def check(self, state: State) -> None:
        """Raise :class:`CommitConflict` when one is not."""
        for part in self.request.parts:
            _require_bound(state, part)


def _require_bound(state: State, part: ItemRequest) -> None:
    item = state.items.get(part.item_id)
    same = item is not None and bound_hash(item.definition) == part.bound
    require_same(state, part.item_id, part.before, is_same=same, again="plan again")
    stream = state.streams.get(part.item_id)
    generation = stream.generation if stream is not None else 0
    if generation != part.generation:
        raise CommitConflict(
            f"the positions of {dependencies.display(state, part.item_id)} were changed by another"
            f" process meanwhile (edit {generation}, planned on {part.generation})",
            remedy="look at them (source positions), then plan again",
        )


# -- whom it concerns ----------------------------------------------------------------------------


def dependent_jobs(state: State, item_id: str) -> tuple[Job, ...]:
    """Everything that reads an item, directly or not, in the order of ids, with how it takes
    a record that comes again."""
    graph = state.graph
    item = state.items[item_id]
    tables = dependencies.outputs(item) if dependencies.external_of(item).tables else ()
    roots = [state.items[each].definition.identity for each in (item_id, *tables)]
    jobs = []
    reached = graph.dependents(roots, edge=lambda _, user: graph.key(user).kind not in _NOT_BELOW)
    for user in dependencies.ids_of(state, reached):
        if user == item_id:
            continue
        definition = state.items[user].definition
        keyed = bool(dependencies.external_of(state.items[user]).key)
        takes = "keyed" if keyed else "stateful" if definition.is_derived else "append"
        kind = "derived table" if definition.is_derived else definition.kind
        jobs.append(Job(kind, str(definition.item_name), takes))
    return tuple(jobs)


_NOT_BELOW = frozenset({"cluster", "connection", "secret"})


def _name(state: State, part: ItemRequest) -> str:
    definition = state.items[part.item_id].definition
    return f"{definition.kind} {definition.item_name}"


# -- plans as files ------------------------------------------------------------------------------


def encode_plan(plan: UnsafePlan) -> bytes:
    """The file of a plan: itself and its hash; a secret that stands as plain text is ``***``."""
    shown = _shown(plan)
    return msgspec.json.format(msgspec.json.encode(_Sealed(shown, _hash(shown))), indent=1) + b"\n"


def _shown(plan: UnsafePlan) -> UnsafePlan:
    parts = tuple(
        msgspec.structs.replace(part, before=hidden(part.before), after=hidden(part.after))
        for part in plan.request.parts
    )
    return msgspec.structs.replace(
        plan, request=msgspec.structs.replace(plan.request, parts=parts)
    )


def decode_plan(data: bytes, where: str) -> UnsafePlan:
    """Read a plan's file; :class:`EditedPlan`, :class:`UnsupportedFormat`."""
    try:
        sealed = msgspec.json.decode(data, type=_Sealed)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise EditedPlan(
            f"{where} is no plan of an unsafe operation: {error}", remedy="make one with --out"
        ) from error
    if sealed.plan.format > FORMAT:
        raise UnsupportedFormat(
            f"{where} is of format {sealed.plan.format}, known is {FORMAT}",
            remedy="use the newer version of this tool that wrote it",
        )
    if sealed.hash != _hash(sealed.plan):
        raise EditedPlan(
            f"{where} was edited after it was made", remedy="plan again, and approve that"
        )
    if sealed.plan != _shown(sealed.plan):
        raise EditedPlan(
            f"{where} was made by an older version and has a secret as plain text in it",
            remedy="remove the file and plan again; `doctor` says what else there is to do",
        )
    return sealed.plan


def read_plan(path: str) -> UnsafePlan:
    """The plan in a file."""
    return decode_plan(Path(path).read_bytes(), path)


def approved(state: State, plan: UnsafePlan, tolerance: int) -> Request:
    """The request that applies a plan: its numbers, and by how much they may be exceeded.

    Raises :class:`StalePlan` when the plan is of another catalog, other definitions or positions.
    """
    if plan.lineage != state.lineage:
        raise StalePlan(
            "the plan was made for another catalog", changes=(), remedy="plan on this one"
        )
    try:
        Bound(plan.request).check(state)
    except CommitConflict as error:
        raise StalePlan(
            "the catalog moved on since the plan was made", changes=(error.message,),
            remedy="plan again",
        ) from error
    parts = tuple(
        msgspec.structs.replace(
            part, before=restored(part.before, standing), after=restored(part.after, standing)
        )
        for part in plan.request.parts
        for standing in (state.items[part.item_id].definition,)
    )
    return msgspec.structs.replace(
        plan.request, parts=parts, approved=plan.totals, tolerance=tolerance,
        topics={item.item_id: item.topics for item in plan.items},
    )


def require_same_topics(state: State, request: Request, surveyed: tuple[SurveyedPart, ...]) -> None:
    """:class:`StalePlan` when a topic is not the one that the plan was made for."""
    changes = [
        change for each in surveyed
        for change in _other_topics(state, request, each.part, each.survey)
    ]
    if changes:
        raise StalePlan(
            "topics were created again since the plan was made", changes=changes,
            remedy="plan again",
        )


def _other_topics(state: State, request: Request, part: ItemRequest, found: Survey) -> list[str]:
    return [
        f"{_name(state, part)}: topic {topic} had the id {known} and has {now}"
        for topic, known in request.topics.get(part.item_id, {}).items()
        if (now := found.topics.get(topic)) != known
    ]


def _require_undoable(state: State, request: Request, part: ItemRequest, found: Survey) -> None:
    """:class:`UnsafeBlocked` when the topic of before is gone: no new plan brings it back."""
    gone = _other_topics(state, request, part, found)
    if request.undoes and gone:
        raise UnsafeBlocked(
            f"operation {request.undoes} cannot be undone: its topic was created again, and the"
            " positions of before mean nothing there",
            problems=gone,
            remedy="inject the positions that are wanted; rows that came since stay",
        )


def _hash(plan: UnsafePlan) -> str:
    import xxhash

    return "1:" + xxhash.xxh3_128_hexdigest(msgspec.json.encode(plan, order="deterministic"))
