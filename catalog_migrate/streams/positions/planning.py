"""The dry run of an unsafe operation: what it would double, skip and lose, and whom it concerns."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from itertools import repeat

import msgspec

from catalog_migrate.catalog.records import UNSAFE_FORMAT
from catalog_migrate.catalog.state import State
from catalog_migrate.catalog.updates import Amend, RaiseFormat, preview
from catalog_migrate.connectors.base import may_have_row_keys
from catalog_migrate.connectors.positions import OffsetRange
from catalog_migrate.errors import (
    CommitConflict,
    StalePlan,
    UnsafeBlocked,
    UnsettledCheckpoint,
)
from catalog_migrate.model.findings import Finding
from catalog_migrate.model.objects import External
from catalog_migrate.retry import retry
from catalog_migrate.streams.catalog import dependencies
from catalog_migrate.streams.catalog.cluster_log import list_holds, runtime_lives
from catalog_migrate.streams.catalog.create_statement import create_statement
from catalog_migrate.streams.catalog.dependencies import refuse_new_loops
from catalog_migrate.streams.catalog.operation_records import (
    Totals,
    earlier_topics,
)
from catalog_migrate.streams.catalog.query_spec import (
    first_stream,
    options_of,
    restore_secrets,
)
from catalog_migrate.streams.catalog.requirements import require_same
from catalog_migrate.streams.catalog.updates import Redefine
from catalog_migrate.streams.checkpoint.directory import Checkpoint
from catalog_migrate.streams.positions.backfill import (
    chunks_of,
    expired_ranges,
    skipped_note,
    skipped_ranges,
)
from catalog_migrate.streams.positions.plan import ItemPlan, Job, Refusal, Row, UnsafePlan
from catalog_migrate.streams.positions.positions import (
    Survey,
    left_unread,
    require_no_problem,
    sent_before,
)
from catalog_migrate.streams.positions.requests import (
    ItemRequest,
    Request,
    bound_hash,
    require_checked,
)
from catalog_migrate.streams.positions.restore import (
    plan_restore,
    resume_sink_after,
    rows_left_behind,
)
from catalog_migrate.streams.runtime.ports import Ports
from catalog_migrate.streams.runtime.probes import validate
from catalog_migrate.streams.runtime.shard_handover import is_drained

_LOOKS = 5


_READ_SINCE = (
    "a running query may have read records of the new topic before it was stopped for it (within"
    " 5 s): those come again, and are not counted"
)


def preview_parts(state: State, parts: tuple[ItemRequest, ...]) -> State:
    """Return the state with the new definitions of parts, which is not committed."""
    return preview(state, [
        Redefine(part.item_id, part.after, part.links_after) for part in parts
    ])


def survey_parts(
    surveys: Iterable[Survey], *, sends: Callable[[str], bool] = lambda _: False
) -> tuple[ItemPlan, ...]:
    """Survey every part; ids of topics are required to be accepted when they are others.

    ``sends``: whether a sink is at work, so that its rows may be waited for; else it must have sent
    them.
    """
    found: dict[str, ItemPlan] = {}
    for survey in surveys:
        request = survey.request
        _require_whole(survey.checkpoint)
        item = found[survey.part.item_id] = _survey(survey, found)
        _require_undoable(request, item)
        _require_accepted(survey, item)
        require_no_problem(survey.name, item)
        if request.policy != "allow":
            _require_own_keys(survey, item)
            _require_sent(survey, item, sends)
    return tuple(found.values())


def surveys_of(
    state: State, after: State, request: Request, *, ports: Ports, now: float, sample: bool = True
) -> list[Survey]:
    """Return a survey of each part of a request; ``after`` is by :func:`preview_parts`."""
    return [Survey(state, after, request, part, ports, now, sample) for part in request.parts]


def _survey(survey: Survey, found: Mapping[str, ItemPlan]) -> ItemPlan:
    part = survey.part
    if part.past:
        return resume_sink_after(survey, found[part.past].recorded)
    item = survey.look()
    if part.restore is None:
        return item
    links = (survey.state.items[each.item_id].links for each in survey.request.parts)
    return plan_restore(survey, item, {each.get("cluster", "") for each in links})


def _require_accepted(survey: Survey, item: ItemPlan) -> None:
    if item.foreign and not survey.request.accept_new_topic:
        what, word = (
            ("another server than the one", "the") if survey.part.has_tables
            else ("topics that are not those", "topic")
        )
        raise UnsafeBlocked(
            f"{survey.name} would read {what} it was reading",
            problems=[f"{word} {topic} {why}" for topic, why in item.foreign.items()],
            remedy="when that is meant: --accept-new-topic, or WITH (ACCEPT NEW TOPIC = true)",
        )


def _require_own_keys(survey: Survey, item: ItemPlan) -> None:
    mixed = sent_before(survey.state, item.item_id, item.rows)
    if mixed:
        raise UnsafeBlocked(
            f"{survey.name} would send rows again under the keys of other ones", problems=mixed,
            remedy="inject a later version, or create another sink into another topic; POLICY"
            " = 'allow' goes on without",
        )


def _require_sent(survey: Survey, item: ItemPlan, sends: Callable[[str], bool]) -> None:
    state = survey.state
    late = unsent(state, item, survey.ports)
    if not all(map(sends, late)):
        name = dependencies.display(state, item.item_id)
        raise UnsafeBlocked(
            f"{survey.name} goes over to another topic of the same name too early",
            problems=[
                f"sink {dependencies.display(state, user)} has rows of the old topic to send"
                for user in late
            ],
            remedy=f"PAUSE SOURCE {name}, let the sinks catch up (SHOW SINKS), run the command "
            "again and RESUME; POLICY = 'allow' goes on without",
        )


def unsent(state: State, item: ItemPlan, ports: Ports) -> tuple[str, ...]:
    """KAFKA sinks that have rows of a topic to send which was created again under its name.

    The keys of their rows are formed with the topic's id at the time of sending: the new id would
    make an old row look like one of the new topic, and a consumer would drop one of the two.
    A sink whose connector is not here counts: it may be such a one.
    """
    stream = state.streams.get(item.item_id)
    known = {} if stream is None else stream.known_topics
    again = any(known.get(topic, now) != now for topic, now in _new_ids(item).items())
    path = dependencies.location(state, state.items[item.item_id].shard or "")
    newest = ports.tables.newest(path) if again else None
    if newest is None:
        return ()
    return tuple(
        user for user in dependencies.users_of(state, item.item_id)
        if may_have_row_keys(state.items[user].definition)
        and not _has_sent(state, user, path, newest, ports)
    )


def _new_ids(item: ItemPlan) -> dict[str, str | None]:
    return {topic: item.topics.get(topic) for topic in item.foreign}


def _has_sent(state: State, sink: str, path: str, newest: int, ports: Ports) -> bool:
    stream = state.streams.get(sink) or first_stream(sink)
    checkpoint = ports.checkpoint(dependencies.location(state, stream.checkpoint))
    begun = checkpoint.latest_commits is not None or not ports.tables.has_rows(path, -1, newest)
    return begun and is_drained(
        checkpoint, path, newest, ports.tables,
        skip_changes=dependencies.skips_changes(state.items[sink]),
    )


def sends(state: State, sink: str) -> bool:
    """Return whether a sink is at work as far as the catalog says: not held, its runtime lives."""
    cluster = state.items[sink].links.get("cluster", "")
    return runtime_lives(state, cluster) and not list_holds(state, sink)


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


def validate_parts(after: State, request: Request, *, ports: Ports) -> tuple[Finding, ...]:
    """Probe the new properties, which ``after`` has by :func:`preview_parts`; ids of topics are
    judged by :func:`survey_parts`."""
    changed = [part for part in request.parts if part.redefines and not request.skip_validate]
    if not changed:
        return ()
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
    """Make the dry run; reads catalog, checkpoints and upstream, writes nothing.

    ``with_times`` says from the tables of sources when doubled records were written.
    """
    Bound(request).check(state)
    require_checked(request)
    after = preview_parts(state, request.parts)
    refuse_new_loops(state, after)
    verdicts = validate_parts(after, request, ports=ports)
    surveys = surveys_of(state, after, request, ports=ports, now=now)
    found = survey_parts(surveys, sends=partial(sends, state))
    items = [
        _plan_item(survey, item, verdicts, with_times=with_times)
        for survey, item in zip(surveys, found, strict=True)
    ]
    cluster = state.items[request.parts[0].item_id].links.get("cluster", "")
    plan = UnsafePlan(
        state.lineage, at, reason, cluster, request, tuple(items),
        Totals.over(item.totals for item in items),
    )
    raised = RaiseFormat(UNSAFE_FORMAT)
    if not plan.changes or not raised.apply(state):
        return plan
    first, *others = items
    first = msgspec.structs.replace(first, notes=(*first.notes, raised.notice))
    return msgspec.structs.replace(plan, items=(first, *others))


def _plan_item(
    survey: Survey, item: ItemPlan, verdicts: Iterable[Finding], *, with_times: bool
) -> ItemPlan:
    unread, unknown = left_unread(survey.state, item, ports=survey.ports)
    refusing = [each for each in verdicts if each.item_id == item.item_id and not each.ok]
    definition = ""
    if survey.part.redefines:
        entry = dependencies.by_id(survey.after, item.item_id)
        definition = create_statement(survey.after, entry)
    refusals = tuple(Refusal(each.text, each.remedy or "") for each in refusing)
    return msgspec.structs.replace(
        item,
        notes=(*item.notes, *unknown, *_notes(survey, item)),
        rows=_with_times(survey, item.rows) if with_times else item.rows,
        jobs=dependent_jobs(survey.state, item.item_id),
        findings=tuple(map(str, refusing)),
        refusals=refusals or msgspec.UNSET,
        definition=definition,
        unread=unread or msgspec.UNSET,
        edited=bool(item.recorded.target) or msgspec.UNSET,
        problems=msgspec.UNSET,
        initial=msgspec.UNSET,
        move=msgspec.UNSET,
    )


def _notes(survey: Survey, item: ItemPlan) -> Iterator[str]:
    state, request, part = survey.state, survey.request, survey.part
    for option in options_of(part.after.external or External()):
        yield f"{option} stands as plain text: `doctor` says what is to be done"
    late = () if request.policy == "allow" else unsent(state, item, survey.ports)
    if late:
        names = ", ".join(dependencies.display(state, user) for user in late)
        yield (
            f"rows of the old topic are still to be sent by {names}: the source is stopped first, "
            "and goes over when they are"
        )
    if not part.has_tables:
        if item.foreign:
            yield _READ_SINCE
        if request.undoes and part.restore is None:
            yield from rows_left_behind(survey)
    if request.backfill:
        chunks = chunks_of(item.item_id, skipped_ranges(item.rows), request.chunk)
        yield skipped_note(chunks, expired_ranges(item.rows))
    if item.restores:
        yield from _describe_kept(state, item.item_id)


def _describe_kept(state: State, item_id: str) -> Iterator[str]:
    """What a RESTORE of a source's table does not reach, beside what sinks have sent."""
    for job in dependent_jobs(state, item_id):
        if job.takes == "stateful":
            yield (
                f"{job.kind} {job.name} keeps what it took of the rows that go until it is filled"
                " again"
            )
    dead = state.items[item_id].links.get("dead_letters")
    if dead is not None:
        yield f"dead letters that came since stay in {dependencies.display(state, dead)}"


def _with_times(survey: Survey, rows: tuple[Row, ...]) -> tuple[Row, ...]:
    """The rows with when what comes twice was written, in their notes, also that it is not known.

    Where a topic was created again under its name, offsets are in the table twice and say nothing
    about which record they are of.
    """
    state, item_id = survey.state, survey.part.item_id
    if survey.part.has_tables:
        return rows
    back = [
        OffsetRange(row.topic, row.partition, row.target, row.current) for row in rows
        if row.doubled and row.target is not None and row.current is not None
    ]
    path = dependencies.location(state, state.items[item_id].shard or "")
    again = earlier_topics(state, item_id)
    spans = survey.ports.tables.time_spans(path, [each for each in back if each.topic not in again])
    read_again = {each.topic_partition for each in back}

    def add_times(row: Row) -> Row:
        partition = (row.topic, row.partition)
        if partition not in read_again:
            return row
        first, last = spans.get(partition, ("", ""))
        span = f"written {first} to {last}" if first else "written at unknown times"
        if row.topic in again:
            span += ": the table holds an earlier topic of that name too"
        return msgspec.structs.replace(row, note="; ".join(filter(None, (row.note, span))))

    return tuple(map(add_times, rows))


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
    """List everything that reads an item, directly or not, in the order of ids, with how it takes
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


def approve(state: State, plan: UnsafePlan, tolerance: int) -> Request:
    """Return the request that applies a plan: its numbers, and by how much they may be exceeded.

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
            part, before=restore_secrets(part.before, present),
            after=restore_secrets(part.after, present),
        )
        for part in plan.request.parts
        for present in (state.items[part.item_id].definition,)
    )
    return msgspec.structs.replace(
        plan.request, parts=parts, approved=plan.totals, tolerance=tolerance,
        topics={item.item_id: item.topics for item in plan.items},
    )


def require_same_topics(request: Request, items: Iterable[ItemPlan]) -> None:
    """Raise :class:`StalePlan` when a topic is not the one that the plan was made for."""
    changes = [change for item in items for change in _other_topics(request, item)]
    if changes:
        raise StalePlan(
            "topics were created again since the plan was made", changes=changes,
            remedy="plan again",
        )


def _other_topics(request: Request, item: ItemPlan) -> list[str]:
    return [
        f"{item.kind} {item.name}: topic {topic} had the id {known} and has {now}"
        for topic, known in request.topics.get(item.item_id, {}).items()
        if (now := item.topics.get(topic)) != known
    ]


def _require_undoable(request: Request, item: ItemPlan) -> None:
    """:class:`UnsafeBlocked` when the earlier topic is missing: no new plan restores it."""
    other = _other_topics(request, item)
    if request.undoes and other:
        raise UnsafeBlocked(
            f"operation {request.undoes} cannot be undone: its topic was created again, and the"
            " positions of before mean nothing there",
            problems=other,
            remedy="inject the positions that are wanted; rows that came since stay",
        )
