"""Carrying an unsafe operation out, exactly once, under the lease of its cluster.

``requested``: properties and targets are tried while the queries run; what is refused here stops
nothing. ``stopping``: the queries are held by the operation, stopped and settled, everything is
resolved again to numbers, and the checkpoints are snapshotted. Then one commit holds definitions,
generations and the exact lines. ``restoring`` (undo with a table only): all of that is in the row,
then comes the RESTORE, then the commit. ``committed``: from here it only rolls forward: whoever
starts the query repeats the edit (see ``checkpoint.edit``). ``done``: the queries may start;
``backfilling`` too, while ``backfill`` reads what was skipped. An operation that is found before
its commit is over, and nothing was changed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import msgspec

from catalog_migrate.catalog.errors import CommitConflict, LeaseLost
from catalog_migrate.catalog.records import HoldRecord, OperationRecord, StreamRecord
from catalog_migrate.catalog.state import State
from catalog_migrate.catalog.transaction import Changes
from catalog_migrate.errors import CatalogMigrateError
from catalog_migrate.planner.planfile import StalePlan
from catalog_migrate.streams import dependencies
from catalog_migrate.streams.checkpoint.edit import Edit
from catalog_migrate.streams.checkpoint.settle import Finish, WriteCommit, perform, settlement
from catalog_migrate.streams.checkpoint.snapshots import Snapshots
from catalog_migrate.streams.errors import UnsafeBlocked, ValidationFailed
from catalog_migrate.streams.following import apply_committed
from catalog_migrate.streams.operation_records import (
    BACKFILLING,
    UNSAFE,
    Image,
    chunks_in,
    images_in,
)
from catalog_migrate.streams.operations import redefine
from catalog_migrate.streams.specs import first_stream
from catalog_migrate.streams.status import held_by
from catalog_migrate.streams.supervisor import UPSTREAM, Supervisor
from catalog_migrate.streams.unsafe import restore
from catalog_migrate.streams.unsafe.audit import measure
from catalog_migrate.streams.unsafe.backfill import (
    chunks_of,
    expired_places,
    records_in,
    skipped_places,
)
from catalog_migrate.streams.unsafe.forecast import Row, Totals, split_of
from catalog_migrate.streams.unsafe.planning import (
    SurveyedPart,
    require_bound,
    require_same_topics,
    sends,
    survey_parts,
    unsent,
    validated,
)
from catalog_migrate.streams.unsafe.requests import Part, Request, request_in, require_checked
from catalog_migrate.streams.unsafe.rows import OPEN, Prepared, missing, prepared_in, require

FINISH_LIMIT = 60.0
"""Seconds that an uncommitted batch may take when it must be run before positions change."""

_LOOK = 0.25
"""Seconds between two looks at sinks that are sending."""


@dataclass(slots=True)
class UnsafeOperations:
    """Carries out the unsafe operations of one cluster with its supervisor's queries.

    ``say`` hears what becomes of each, by its key.
    """

    supervisor: Supervisor
    follow: Callable[[], State]
    alive: Callable[[], None]
    say: Callable[[str], None] = lambda _: None

    def pending(self, state: State) -> list[tuple[str, OperationRecord]]:
        """Open operations of this cluster, oldest first."""
        found = [
            (key, row) for key, row in state.operations.items()
            if row.kind == UNSAFE and row.state in OPEN and row.cluster == self.supervisor.cluster
        ]
        return sorted(found, key=lambda each: each[0])

    def carry_out(self, state: State, key: str, *, inherited: bool = False) -> None:
        """Take one operation to its end. ``inherited``: somebody else had begun it."""
        row = state.operations[key]
        self.supervisor.pinned.update(row.dependents)
        self.say(f"operation {key}: {row.detail['summary']}, {row.state}")
        begun = self.supervisor.clock.monotonic()
        try:
            if row.state == "committed" or self._prepared(state, key, row, begun, inherited):
                self._roll_forward(key, begun)
        finally:
            self.supervisor.pinned.difference_update(row.dependents)

    # -- up to the commit ------------------------------------------------------------------------

    def _prepared(
        self, state: State, key: str, row: OperationRecord, begun: float, inherited: bool
    ) -> bool:
        """Whether it was committed; else it is refused, and nothing was changed."""
        try:
            if row.state == "restoring":
                self._resume(key, row)
            elif inherited:
                raise UnsafeBlocked("whoever carried it out ended before its commit")
            else:
                self._prepare(state, key, row)
        except LeaseLost:
            raise
        except CatalogMigrateError as error:
            standing = self.follow().operations[key]
            if standing.state == "committed":
                return True  # the commit landed, only its reply was lost
            if standing.state == "restoring" and self._restored(key, prepared_in(standing)):
                raise  # it is taken up again: the table is restored, what belongs to it must follow
            self._refuse(key, error, begun)
            return False
        return True

    def _prepare(self, state: State, key: str, row: OperationRecord) -> None:
        request = request_in(row)
        assert row.unsafe is not None
        require(
            missing(state, row.cluster, reason=row.unsafe.reason, confirmed=True),
            row.detail["summary"],
        )
        require_bound(state, request)
        require_checked(request)
        self._validate(state, request)
        early = self._survey(state, request, sample=False, wait=True)  # refused now, nothing stops
        state = self._hold(key, row)
        require_bound(state, request)
        self.supervisor.stop(row.dependents, state)
        for part in request.parts:
            self._settle(state, part)
        if request.policy != "allow":
            self._await_sent(early, row.limit)
        surveyed = self._survey(state, request)
        require_same_topics(state, request, surveyed)
        totals = Totals.over(each.survey.forecast.totals for each in surveyed)
        _require_tolerated(request, totals)
        snapshots = {}
        for each in surveyed:
            if each.checkpoint.query_id is not None:
                taken = Snapshots(each.checkpoint).take(f"operation {key}", active=())
                snapshots[each.part.item_id] = taken.number
        chunk = request.chunk if request.backfill else 0
        prepared = _prepared_of(surveyed, totals, snapshots, chunk=chunk)
        if prepared.restore is not None:
            self._announce(key, prepared)
            restore.perform(state, prepared.restore, key)
        self._commit(key, request, prepared)

    # -- a table that goes back --------------------------------------------------------------------

    def _announce(self, key: str, prepared: Prepared) -> None:
        """Write down what follows the RESTORE before it."""
        self.alive()

        def put(changes: Changes, current: State) -> None:
            require_bound(current, request_in(current.operations[key]))
            row = current.operations[key]
            assert row.unsafe is not None
            act = msgspec.structs.replace(
                row.unsafe, prepared=msgspec.json.encode(prepared).decode()
            )
            changes.put(
                "operation", key, msgspec.structs.replace(row, state="restoring", unsafe=act)
            )

        self.supervisor.commit(put, "restoring", self._about(key))

    def _resume(self, key: str, row: OperationRecord) -> None:
        """Commit after a RESTORE that happened; bar one that did not, which refuses it."""
        prepared = prepared_in(row)
        if not self._restored(key, prepared):
            assert prepared.restore is not None
            restore.bar(self.follow(), prepared.restore)
            if not self._restored(key, prepared):
                raise UnsafeBlocked("whoever carried it out ended before its table was restored")
        self._commit(key, request_in(row), prepared)

    def _restored(self, key: str, prepared: Prepared) -> bool:
        assert prepared.restore is not None
        return restore.happened(self.follow(), prepared.restore, key)

    # -- in parts ----------------------------------------------------------------------------------

    def _validate(self, state: State, request: Request) -> None:
        bad = [
            str(verdict)
            for verdict in validated(
                state, request, ports=self.supervisor.ports
            )
            if not verdict.ok
        ]
        if bad:
            raise ValidationFailed(
                "the new properties were refused by validation, nothing was changed",
                verdicts=bad, remedy="fix what is named, or --skip-validate",
            )

    def _survey(
        self, state: State, request: Request, *, sample: bool = True, wait: bool = False
    ) -> tuple[SurveyedPart, ...]:
        return survey_parts(
            state, request, ports=self.supervisor.ports,
            now=self.supervisor.clock.wall(), sample=sample,
            sends=self._sends if wait else lambda _: False,
        )

    def _sends(self, sink: str) -> bool:
        """Whether a sink is at work; one of this cluster by its query."""
        state, mine = self.follow(), self.supervisor.managed.get(sink)
        if state.items[sink].links.get("cluster") == self.supervisor.cluster:
            return mine is not None and mine.active
        return sends(state, sink)

    def _await_sent(self, surveyed: Sequence[SurveyedPart], limit: float) -> None:
        """Let sinks send what they have of a topic that another one takes the name of.

        The source stands still by now, so they come to an end also under load; the last batch that
        it ended is one more to send. What they have not sent within the limit, or can not, is
        refused by the look that follows.
        """
        clock = self.supervisor.clock
        deadline = clock.monotonic() + limit
        for each in surveyed:
            while late := unsent(
                self.follow(), each.part, each.again, self.supervisor.ports
            ):
                self.alive()
                if clock.monotonic() >= deadline or not all(map(self._sends, late)):
                    return
                clock.sleep(_LOOK)

    def _hold(self, key: str, row: OperationRecord) -> State:
        def put(changes: Changes, current: State) -> None:
            for item_id in row.dependents:
                changes.put(
                    "hold", f"{item_id}/operation:{key}/1",
                    HoldRecord(
                        item_id=item_id, holder=f"operation:{key}",
                        reason=f"unsafe operation {key} is under way",
                    ),
                )
            standing = current.operations[key]
            changes.put("operation", key, msgspec.structs.replace(standing, state="stopping"))

        return self.supervisor.commit(put, "hold", row.detail["summary"])

    def _settle(self, state: State, part: Part) -> None:
        """Settle the batch that was under way, on the definition and the upstream of before.

        A source keeps no state: what its tables have is committed by hand, what none has is taken
        away; only a batch that one of them lacks must be run, which needs Spark and the upstream.
        """
        supervisor = self.supervisor
        spec = supervisor.spec(state, part.item_id)
        checkpoint = supervisor.ports.checkpoint(spec.checkpoint)
        if checkpoint.state().kind != "uncommitted":
            return
        sinks = supervisor.engine.last_batch(spec, checkpoint.query_id or "")
        unknown = () if sinks else ("the destination",)
        decision = settlement(
            checkpoint, sinks=sinks, unknown=unknown, source_alive=True, stateful=False
        )
        if isinstance(decision, Finish):
            decision = WriteCommit(decision.batch)  # nothing is kept between batches
        if not perform(checkpoint, decision, active=()):
            supervisor.engine.finish_batch(spec, timeout=FINISH_LIMIT)

    def _commit(self, key: str, request: Request, prepared: Prepared) -> None:
        """The one commit: definitions, generations, the exact lines, and the row.

        After a RESTORE nobody's change of a definition stands against it any more.
        """
        self.alive()

        def put(changes: Changes, current: State) -> None:
            if prepared.restore is None:
                require_bound(current, request)
            for part in request.parts:
                if part.item_id not in current.items:
                    continue
                if part.redefines:
                    redefine(changes, current, part.item_id, part.after, part.links_after)
                edit = prepared.edits.get(part.item_id)
                if edit is not None:
                    moved = _moved(current, part.item_id, edit, prepared)
                    changes.put("stream", part.item_id, moved)
            row = current.operations[key]
            assert row.unsafe is not None
            totals = prepared.totals
            act = msgspec.structs.replace(
                row.unsafe, injected=prepared.injected, doubled=totals.doubled,
                skipped=totals.skipped, expired=totals.expired, exact=totals.exact,
                images=msgspec.json.encode(prepared.images).decode(), prepared="",
                backfill=msgspec.json.encode(prepared.chunks).decode() if prepared.chunks else "",
                partitions=prepared.partitions, backfill_records=records_in(prepared.chunks),
            )
            if prepared.restore is not None:
                back = prepared.restore
                act = msgspec.structs.replace(
                    act, restored=back.to, removed=back.gone, brought_back=back.back
                )
            lost = {f"expired {number:03d}": text for number, text in enumerate(prepared.expired)}
            changes.put(
                "operation", key,
                msgspec.structs.replace(
                    row, state="committed", snapshots=prepared.snapshots, unsafe=act,
                    detail={**row.detail, **lost},
                ),
            )

        self.supervisor.commit(put, UNSAFE, self._about(key))
        self.say(f"operation {key}: committed; it only rolls forward from here")

    # -- after it ----------------------------------------------------------------------------------

    def _roll_forward(self, key: str, begun: float) -> None:
        state = self.follow()
        row = state.operations[key]
        request = request_in(row)
        problems = self._applied(state, request)
        # a sink that runs forms its row keys with the ids that it was started with
        if request.accept_new_topic:
            dependents = [
                user
                for part in request.parts
                for user in dependencies.users_of(state, part.item_id)
                if user in self.supervisor.managed
            ]
            self.supervisor.stop(dependents, state)
        moved = {image.item_id for image in images_in(row) if image.target and not image.past}

        def put(changes: Changes, current: State) -> None:
            self._lift(changes, current, key)
            for hold_key, hold in current.holds.items():
                if hold.holder == UPSTREAM and hold.item_id in moved:
                    changes.delete("hold", hold_key)
            standing = current.operations[key]
            final = BACKFILLING if chunks_in(standing) else "done"
            ended = self._ended(standing, final, begun)
            if problems:
                detail = {**ended.detail, "reason": "; ".join(problems)}
                ended = msgspec.structs.replace(ended, detail=detail)
            changes.put("operation", key, ended)

        state = self.supervisor.commit(put, "done", row.detail["summary"])
        measure(state.operations[key], self.supervisor.clock.wall())
        self.say(f"operation {key}: {state.operations[key].state}")
        ready = [each for each in row.dependents
                 if each in self.supervisor.managed and not held_by(state, each)]
        self.supervisor.start(state, ready)

    def _applied(self, state: State, request: Request) -> list[str]:
        """Apply the committed edits; what could not be is in force all the same.

        Every start repeats an edit that the checkpoint lacks, and says why when it cannot.
        """
        problems = []
        for part in request.parts:
            stream = state.streams.get(part.item_id)
            if stream is None or part.item_id not in state.items:
                continue
            checkpoint = self.supervisor.checkpoint(state, part.item_id)
            try:
                apply_committed(checkpoint, part.item_id, stream)
            except CatalogMigrateError as error:
                name = dependencies.display(state, part.item_id)
                problems.append(f"{name}: the start repeats what failed now: {error.message}")
        return problems

    def _refuse(self, key: str, error: CatalogMigrateError, begun: float) -> None:
        """Nothing was changed: the holds go, and the row says why."""

        def put(changes: Changes, current: State) -> None:
            self._lift(changes, current, key)
            row = current.operations[key]
            detail = {**row.detail, "reason": error.message, "outcome": _outcome(error)}
            if error.remedy:
                detail["remedy"] = error.remedy
            listed = [each for name in ("problems", "verdicts", "changes", "missing")
                      for each in error.data.get(name, ())]
            for number, text in enumerate(listed):
                detail[f"finding {number:03d}"] = str(text)
            row = msgspec.structs.replace(row, detail=detail)
            final = "stale" if isinstance(error, (StalePlan, CommitConflict)) else "refused"
            changes.put("operation", key, self._ended(row, final, begun))

        about = f"{self._about(key)}: {error.message}"
        state = self.supervisor.commit(put, "refused", about)
        measure(state.operations[key], self.supervisor.clock.wall())
        self.say(f"operation {key}: nothing was changed: {error.message}")

    def _ended(self, row: OperationRecord, final: str, begun: float) -> OperationRecord:
        assert row.unsafe is not None
        seconds = round(self.supervisor.clock.monotonic() - begun, 3)
        return msgspec.structs.replace(
            row, state=final,
            unsafe=msgspec.structs.replace(row.unsafe, seconds=seconds, prepared=""),
        )

    def _about(self, key: str) -> str:
        return self.follow().operations[key].detail["summary"]

    def _lift(self, changes: Changes, current: State, key: str) -> None:
        for hold_key, hold in current.holds.items():
            if hold.holder == f"operation:{key}":
                changes.delete("hold", hold_key)


def _outcome(error: CatalogMigrateError) -> str:
    """The code of an error, by which whoever waits raises it again."""
    return error.code


def _prepared_of(
    surveyed: Sequence[SurveyedPart], totals: Totals, snapshots: dict[str, int], *, chunk: int
) -> Prepared:
    """What is committed of what was found; ``chunk`` 0 is no backfill."""
    skipped = [each for each in surveyed if chunk]
    edits = {each.part.item_id: each.survey.edit(each.checkpoint) for each in surveyed}
    return Prepared(
        images=tuple(_image(each, edits[each.part.item_id]) for each in surveyed),
        edits={item_id: edit for item_id, edit in edits.items() if edit is not None},
        upstreams={each.part.item_id: each.survey.cluster for each in surveyed},
        topics={each.part.item_id: dict(each.survey.topics) for each in surveyed},
        totals=totals,
        injected=sum(
            row.moves for each in surveyed if not each.part.past
            for row in each.survey.forecast.rows
        ),
        snapshots=snapshots,
        restore=next((each.restore for each in surveyed if each.restore is not None), None),
        chunks=tuple(
            found for each in skipped
            for found in chunks_of(
                each.part.item_id, skipped_places(each.survey.forecast.rows), chunk
            )
        ),
        expired=tuple(
            text for each in skipped for text in expired_places(each.survey.forecast.rows)
        ),
        partitions=tuple(
            _in_words(each.part, row) for each in surveyed if not each.part.past
            for row in each.survey.forecast.rows if row.moves
        ),
    )


def _in_words(part: Part, row: Row) -> str:
    """``orders:0 from 6 to 2``; of a sink ``version from 6 to 2``."""
    name = split_of((row.topic, row.partition)) if part.version is None else "version"
    numbers = ("-" if each is None else str(each) for each in (row.current, row.target))
    return "{} from {} to {}".format(name, *numbers)


def _image(each: SurveyedPart, edit: Edit | None) -> Image:
    checkpoint, part = each.checkpoint, each.part
    latest = checkpoint.latest_offsets
    batches = () if latest is None else tuple(b for b in (latest - 1, latest) if b >= 0)
    return Image(
        item_id=part.item_id, definition=part.before, links=part.links_before,
        line=each.survey.standing,
        lines=tuple(checkpoint.entry(batch).sources[0] for batch in batches),
        batch=latest,
        generation=each.stream.generation + (edit is not None),
        target=each.survey.line if edit is not None else "",
        upstream=each.stream.upstream, topics=dict(each.stream.topics),
        version=each.version, shard=each.shard,
        restored=None if each.restore is None else each.restore.follows + 1,
        past=bool(part.past),
        expired={
            split_of((row.topic, row.partition)): row.absent
            for row in each.survey.forecast.rows if row.absent
        },
    )


def _moved(current: State, item_id: str, edit: Edit, prepared: Prepared) -> StreamRecord:
    """The record of positions with the edit; ids are those of the upstream that they are of."""
    standing = current.streams.get(item_id) or first_stream(item_id)
    topics = dict(prepared.topics[item_id]) or standing.topics
    known = standing.known_topics
    return msgspec.structs.replace(
        standing, generation=standing.generation + 1,
        edit=msgspec.json.encode(edit).decode(),
        upstream=prepared.upstreams[item_id] or standing.upstream,
        topics=topics,
        former={topic: known[topic] for topic in known if topic not in topics},
    )


def _require_tolerated(request: Request, totals: Totals) -> None:
    """:class:`StalePlan` when it would double or skip more than was approved."""
    if request.approved is None or request.tolerance is None:
        return
    over = [
        f"{name}: {now} records, approved were {was} (tolerance {request.tolerance})"
        for name, was, now in (
            ("doubled", request.approved.doubled, totals.doubled),
            ("skipped", request.approved.skipped, totals.skipped),
        )
        if now > was + request.tolerance
    ]
    if over:
        raise StalePlan(
            "counted again after the stop, it is more than was approved; nothing was changed",
            changes=over, remedy="plan again, or allow more: --tolerance",
        )
