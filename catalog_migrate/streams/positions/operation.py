"""Carrying an unsafe operation out, exactly once, under the lease of its cluster.

``requested``: properties and targets are tried while the queries run; what is refused here stops
nothing. ``stopping``: the queries are held by the operation, stopped and settled, everything is
resolved again to numbers, and the checkpoints are snapshotted. Then one commit holds definitions,
generations and the exact lines. ``restoring`` (undo with a table only): all of that is in the row,
then comes the RESTORE, then the commit. ``committed``: from here it only rolls forward: each
start of the query repeats the edit (see ``checkpoint.edit``). ``done``: the queries may start;
``backfilling`` too, while ``backfill`` reads what was skipped. An operation that is found before
its commit is over, and nothing was changed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import msgspec

from catalog_migrate.catalog.commits import Commit
from catalog_migrate.catalog.records import UNSAFE_FORMAT, OperationRecord
from catalog_migrate.catalog.state import State
from catalog_migrate.catalog.updates import RaiseFormat, Update
from catalog_migrate.errors import (
    CatalogMigrateError,
    CommitConflict,
    LeaseLost,
    StalePlan,
    UnsafeBlocked,
    ValidationFailed,
)
from catalog_migrate.operations.kinds import BACKFILLING, UNSAFE
from catalog_migrate.operations.operation import Operation
from catalog_migrate.streams.catalog import dependencies
from catalog_migrate.streams.catalog.operation_records import (
    Chunk,
    Move,
    Restore,
    Totals,
    UnsafeCommit,
    chunks_in,
    commit_in,
    moves_in,
)
from catalog_migrate.streams.catalog.queries import OfflineQueries
from catalog_migrate.streams.catalog.updates import LiftHolds, MovePositions, Redefine
from catalog_migrate.streams.checkpoint.edit import begin, write_commit
from catalog_migrate.streams.checkpoint.edit import move as edit_position
from catalog_migrate.streams.positions import restore
from catalog_migrate.streams.positions.audit import measure
from catalog_migrate.streams.positions.backfill import (
    chunks_of,
    expired_ranges,
    records_in,
    skipped_ranges,
)
from catalog_migrate.streams.positions.operation_row import list_missing, require, unsafe_program
from catalog_migrate.streams.positions.plan import ItemPlan, Row
from catalog_migrate.streams.positions.planning import (
    Bound,
    preview_parts,
    require_same_topics,
    sends,
    survey_parts,
    surveys_of,
    unsent,
    validate_parts,
)
from catalog_migrate.streams.positions.requests import (
    Request,
    request_in,
    require_checked,
    split_of,
)
from catalog_migrate.streams.runtime.judgement import find_refusals
from catalog_migrate.streams.runtime.operations import (
    OperationRun,
    Program,
    StartQuery,
    StopQuery,
    list_restarted,
)
from catalog_migrate.streams.runtime.shard_handover import apply_committed

FINISH_LIMIT = 60.0
"""Seconds that an uncommitted batch may take when it must be run before positions change."""

_LOOK = 0.25
"""Seconds between two looks at sinks that are sending, or at queries that start."""


@dataclass
class UnsafeOperation(OperationRun):
    """One unsafe operation: looked at, stopped for, committed, rolled forward."""

    problems: list[str] = field(init=False, default_factory=list)
    """What could not be edited, and is repeated by the start, in words."""
    _early: tuple[ItemPlan, ...] = field(init=False, default=())

    def about(self, state: State) -> str:
        """Return what it is on, by the names at that time."""
        return state.operations[self.key].detail["summary"]

    def planned(self, state: State, row: OperationRecord) -> Program:
        """Return a program with an edit of each part that asks for positions."""
        request = request_in(row)
        edited = [part.item_id for part in request.parts if part.chooses or part.past]
        return unsafe_program(state, request, edited, runs=not self._alone)

    @property
    def _alone(self) -> bool:
        """Whether no query can be started: there is no runtime."""
        return isinstance(self.supervisor.engine, OfflineQueries)

    def abandoned(self) -> CatalogMigrateError:
        """Return what refuses it: the process that began it may have been stopped for a reason."""
        return UnsafeBlocked(
            "the process running it stopped before the commit; nothing was changed",
            remedy="run the command again",
        )

    def refused_as(self, error: CatalogMigrateError) -> str:
        """Return ``stale`` where another plan may still do it."""
        return "stale" if isinstance(error, (StalePlan, CommitConflict)) else "refused"

    def run(self) -> None:
        """Take it to its end, and count it."""
        super().run()
        measure(self.row, self.supervisor.clock.wall())

    # -- up to the commit ------------------------------------------------------------------------

    def _look(self) -> None:
        """What is refused now stops nothing."""
        state, row = self.follow(), self.row
        request = request_in(row)
        assert row.unsafe is not None
        require(
            list_missing(state, row.cluster, reason=row.unsafe.reason, confirmed=True),
            self.about(state),
        )
        Bound(request).check(state)
        require_checked(request)
        after = preview_parts(state, request.parts)
        self._validate(after, request)
        self._early = self._survey(state, after, request, sample=False, wait=True)
        self.move("stopping", Commit("hold"))

    def _stop(self) -> None:
        """Stop, settle, resolve everything again to numbers, keep snapshots; then commit.

        A batch is settled on the definition and the upstream of before.
        """
        state, row = self.follow(), self.row
        request = request_in(row)
        Bound(request).check(state)
        copied = {part.item_id for part in request.parts if part.copies_all}
        self.execute([
            *(StopQuery(step) for step in self.steps("stop") if step.id in row.dependents),
            *(SettleCheckpoint(step, state, step.id in copied) for step in self.steps("settle")),
        ])
        if request.policy != "allow":
            self._await_sent(self._early, row.limit)
        items = self._survey(state, preview_parts(state, request.parts), request)
        require_same_topics(request, items)
        totals = Totals.over(item.totals for item in items)
        _require_tolerated(request, totals)
        moves = tuple(self._settle_move(state, item) for item in items)
        commit = commit_of(request, items, moves, totals)
        if commit.restore is None:
            self._commit(request, commit)
        else:
            self._announce(request, commit)

    def _announce(self, request: Request, commit: UnsafeCommit) -> None:
        """Write down what follows the RESTORE before it."""
        self.alive()
        self.move(
            "restoring",
            Commit("restoring", (RaiseFormat(UNSAFE_FORMAT),), (Bound(request),)),
            act={"commit": msgspec.to_builtins(commit)},
        )

    def _restore(self) -> None:
        """A table goes back, then what follows that is committed; all of it is in the row.

        A RESTORE of a process that died before it is barred, which refuses the operation. Once it
        has happened no error ends the operation: it is taken up again.
        """
        commit = commit_in(self.row)
        back = commit.restore
        assert back is not None
        try:
            (step,) = self.steps("restore")
            self.execute([RestoreTable(step, back)])
            self._commit(request_in(self.row), commit)
        except LeaseLost:
            raise
        except CatalogMigrateError as error:
            if self.row.state == "committed":
                return  # the commit landed, only its reply was lost
            if restore.is_restored(self.follow(), back, self.key):
                raise
            self.refuse(error)

    def _validate(self, after: State, request: Request) -> None:
        refusing = find_refusals(self.validate(
            lambda: validate_parts(after, request, ports=self.supervisor.ports)
        ))
        if refusing:
            raise ValidationFailed(
                "the new properties were refused by validation, nothing was changed",
                findings=refusing, remedy="fix what is named, or --skip-validate",
            )

    def _settle_move(self, state: State, item: ItemPlan) -> Move:
        """A move with the edit of its settled checkpoint, of which a snapshot is kept.

        Only now is it known whether there is a batch: the query ran while it was looked at.
        """
        move = item.recorded
        checkpoint = self.supervisor.checkpoint(state, move.item_id)
        edit = None
        if move.target and item.initial and checkpoint.settled_batch() is None:
            edit = begin(checkpoint, 0, item.initial)
        elif move.target:
            edit = edit_position(checkpoint, 0, move.target)
        kept = None if checkpoint.query_id is None else self.snapshot(checkpoint)
        return msgspec.structs.replace(move, edit=edit, snapshot=kept)

    def _survey(
        self, state: State, after: State, request: Request, *, sample: bool = True,
        wait: bool = False,
    ) -> tuple[ItemPlan, ...]:
        supervisor = self.supervisor
        surveys = surveys_of(
            state, after, request, ports=supervisor.ports, now=supervisor.clock.wall(),
            sample=sample,
        )
        return survey_parts(surveys, sends=self._sends if wait else lambda _: False)

    def _sends(self, sink: str) -> bool:
        """Whether a sink is at work; one of this cluster by its query."""
        state, mine = self.follow(), self.supervisor.managed.get(sink)
        if state.items[sink].links.get("cluster") == self.supervisor.cluster:
            return mine is not None and mine.active
        return sends(state, sink)

    def _await_sent(self, items: Sequence[ItemPlan], limit: float) -> None:
        """Let sinks send what they have of a topic that another one takes the name of.

        The source stands still by now, so they come to an end also under load; the last batch that
        it ended is one more to send. What they have not sent within the limit, or can not, is
        refused by the look that follows.
        """
        clock = self.supervisor.clock
        deadline = clock.monotonic() + limit
        for item in items:
            while late := unsent(self.follow(), item, self.supervisor.ports):
                self.alive()
                if clock.monotonic() >= deadline or not all(map(self._sends, late)):
                    return
                clock.sleep(_LOOK)

    def _commit(self, request: Request, commit: UnsafeCommit) -> None:
        """The one commit: definitions, generations, the exact lines, and the row.

        After a RESTORE no other process's change of a definition refuses it any more.
        """
        self.alive()
        back, totals = commit.restore, commit.totals
        edited = [move for move in commit.moves if move.edit is not None]
        updates: tuple[Update, ...] = (
            RaiseFormat(UNSAFE_FORMAT),
            *(
                Redefine(part.item_id, part.after, part.links_after)
                for part in request.parts if part.redefines
            ),
            *map(MovePositions, edited),
        )
        act: dict[str, Any] = {
            "injected": commit.injected, "doubled": totals.doubled, "skipped": totals.skipped,
            "expired": totals.expired, "exact": totals.exact, "prepared": "",
            "commit": msgspec.to_builtins(commit),
            "partitions": commit.moved, "backfill_records": records_in(commit.chunks),
        }
        if back is not None:
            act |= {"restored": back.to, "removed": back.gone, "brought_back": back.back}
        lost = {f"expired {number:03d}": text for number, text in enumerate(commit.expired)}
        self.move(
            "committed",
            Commit(UNSAFE, updates, (Bound(request),) if back is None else ()),
            detail=lost, act=act, snapshots={
                move.item_id: move.snapshot for move in commit.moves if move.snapshot is not None
            },
            program=unsafe_program(
                self.follow(), request, [move.item_id for move in edited], runs=not self._alone
            ),
        )
        self.say(f"operation {self.key}: committed; it only rolls forward from here")

    # -- after it ----------------------------------------------------------------------------------

    def _roll_forward(self) -> None:
        """Edit, start, and end it; what could not be edited is in force all the same.

        Every start repeats an edit that the checkpoint lacks, and says why when it cannot. A sink
        that runs forms its row keys with the ids that it was started with.
        """
        state, row = self.follow(), self.row
        moved = {move.item_id for move in moves_in(row) if move.target and not move.past}
        starts = self.steps("start")
        wanted = [step.id for step in starts]
        goes_off = set() if self._alone else {*list_restarted(state, wanted, moved)}
        self.execute([
            *(EditCheckpoint(step, state) for step in self.steps("edit")),
            *(StopQuery(step) for step in self.steps("stop") if step.id not in row.dependents),
            *(StartQuery(step, state, step.id in goes_off) for step in starts),
        ])
        self._await_turns(wanted)
        self.supervisor.await_starts(wanted)
        final = BACKFILLING if chunks_in(row) else "done"
        lift = LiftHolds(frozenset(moved))
        self.end(final, "; ".join(self.problems), kind="done", updates=(lift,))

    def _await_turns(self, wanted: Sequence[str]) -> None:
        """Wait until every start has begun: one that waits for its turn would be called back."""
        managed = self.supervisor.managed
        while any(managed[each].waits_for_its_turn for each in wanted if each in managed):
            self.alive()
            self.supervisor.collect()
            self.supervisor.clock.sleep(_LOOK)

    states: ClassVar = {
        "requested": _look,
        "stopping": _stop,
        "restoring": _restore,
        "committed": _roll_forward,
    }


@dataclass(frozen=True)
class SettleCheckpoint(Operation[UnsafeOperation]):
    """Settles what was under way; runs its batch where that takes Spark.

    ``copied``: the query takes a new snapshot, so that its batch need not be run.
    """

    state: State
    copied: bool

    def run(self, context: UnsafeOperation) -> None:
        """Settle it; raises :class:`EngineFailure` where nothing can."""
        supervisor = context.supervisor
        spec = supervisor.spec(self.state, self.step.id)
        if context.settle(spec, stateless=True):
            return
        try:
            supervisor.engine.finish_batch(spec, timeout=FINISH_LIMIT)
        except CatalogMigrateError:
            # where the slot is lost it cannot be run; its rows are in the new snapshot
            checkpoint = supervisor.ports.checkpoint(spec.checkpoint)
            batch = checkpoint.state().batch
            if not self.copied or batch is None:
                raise
            write_commit(checkpoint, batch)


@dataclass(frozen=True)
class RestoreTable(Operation[UnsafeOperation]):
    """Takes a source's table back to an earlier version, exactly once."""

    back: Restore

    def is_done(self, context: UnsafeOperation) -> str:
        """Ask the table's log where another process had begun it."""
        if context.inherited and restore.is_restored(context.follow(), self.back, context.key):
            return "it was restored before"
        return ""

    def run(self, context: UnsafeOperation) -> None:
        """Commit the RESTORE. One that another process had begun is barred instead, which raises
        :class:`UnsafeBlocked`, unless it came first."""
        state = context.follow()
        if not context.inherited:
            restore.restore_table(state, self.back, context.key)
            return
        restore.block_restore(state, self.back)
        if not restore.is_restored(state, self.back, context.key):
            raise UnsafeBlocked(
                "the process running it stopped before its table was restored"
            )


@dataclass(frozen=True)
class EditCheckpoint(Operation[UnsafeOperation]):
    """Writes into a checkpoint what was committed for it."""

    state: State

    def run(self, context: UnsafeOperation) -> str | None:
        """Write it; return why it could not be: the start repeats it."""
        item_id = self.step.id
        stream = self.state.streams.get(item_id)
        if stream is None or item_id not in self.state.items:
            return "it was dropped"
        try:
            apply_committed(context.supervisor.checkpoint(self.state, item_id), item_id, stream)
        except CatalogMigrateError as error:
            name = dependencies.display(self.state, item_id)
            context.problems.append(
                f"{name}: the start repeats what failed now: {error.message}"
            )
            return f"the start repeats it: {error.message}"
        return None


def commit_of(
    request: Request, items: Sequence[ItemPlan], moves: tuple[Move, ...], totals: Totals
) -> UnsafeCommit:
    """Return what is committed of what was found; ``moves`` are those of the items."""
    chunks: tuple[Chunk, ...] = ()
    expired: list[str] = []
    for item in items if request.backfill else ():
        chunks += chunks_of(item.item_id, skipped_ranges(item.rows), request.chunk)
        expired += expired_ranges(item.rows)
    moved = [
        _describe_move(item, row) for item in items if not item.recorded.past
        for row in item.rows if row.moves
    ]
    return UnsafeCommit(
        moves=tuple(map(_with_expired, items, moves)), totals=totals, chunks=chunks,
        expired=tuple(expired), injected=len(moved),
        moved=(
            *moved, *(f"{table} copied again" for item in items for table in item.snapshot or ())
        ),
    )


def _describe_move(item: ItemPlan, row: Row) -> str:
    """``orders:0 from 6 to 2``; of a sink ``version from 6 to 2``."""
    name = "version" if item.kind == "sink" else row.name
    before, after = map(row.format_position, (row.current, row.target))
    return f"{name} from {before} to {after}"


def _with_expired(item: ItemPlan, move: Move) -> Move:
    return msgspec.structs.replace(move, expired={
        split_of((row.topic, row.partition)): row.absent for row in item.rows if row.absent
    })


def _require_tolerated(request: Request, totals: Totals) -> None:
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
