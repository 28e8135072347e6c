"""Plays a scenario: processes take turns, suffer their faults, and every step is checked.

A process is a start of the real code (:mod:`catalog_migrate.testing.starts`) on a simulated
engine, with a view of the log and a clock of its own. After every commit, and after every act that
could destroy rows, the catalog is checked; when all processes have ended, one more that nothing
happens to must bring the world in line.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random

from catalog_migrate.catalog.clock import Clock
from catalog_migrate.catalog.lease import acquire
from catalog_migrate.catalog.memory_log import InFlight
from catalog_migrate.catalog.sessions import remove_sessions
from catalog_migrate.engine.workers import Workers
from catalog_migrate.errors import (
    CatalogMigrateError,
    CatalogWriteRefused,
    EngineFailure,
    LeaseHeld,
    LeaseLost,
    MigrationBlocked,
    NotReconciled,
    UnknownSerial,
    UsageError,
)
from catalog_migrate.hook import BootstrapReport
from catalog_migrate.migrations.execution_context import ExecutionContext
from catalog_migrate.migrations.reconcile import reconcile_names
from catalog_migrate.model.names import ItemName
from catalog_migrate.model.objects import Column
from catalog_migrate.model.wording import counted
from catalog_migrate.streams.ddl.migrations import MigratedStreams
from catalog_migrate.testing.engine import SimulatedEngine
from catalog_migrate.testing.world import TableEntry
from tests.simulation.crashes import SimulatedCrash
from tests.simulation.installation import (
    NO_FAULT,
    WAREHOUSE,
    Installation,
    PortFault,
    release_of,
    reordered,
)
from tests.simulation.invariants import (
    InvariantBroken,
    ProgramWatch,
    check_retired,
    check_session,
    require,
)
from tests.simulation.others import Others
from tests.simulation.record_invariants import check_announced, check_signed_in
from tests.simulation.releases import chain_of
from tests.simulation.run import Run
from tests.simulation.scenario import Fault, Scenario
from tests.simulation.scheduler import Endless, ProcessClock, Scheduler, Task
from tests.simulation.sinks import Sinks
from tests.simulation.sometimes import MigrationWatch, Starter, killed_at
from tests.simulation.sources import Sources
from tests.simulation.users import KINDS, Users

CHECKED = 6
"""Every so many starts are planned from definitions in another order as well (I1, I2)."""

READING = frozenset({
    "names", "observe", "shard_version", "shard_columns", "shard_size", "count_rows",
    "seal_properties", "is_sealed", "list_shards", "bind", "read", "schemas", "user_definitions",
    "relations_read", "analyse",
})  # fmt: skip
"""Calls that a read-only process may make (I10)."""

NAMING = frozenset({
    "ensure_schema", "drop_schema_if_empty", "register_table", "create_view", "create_function",
    "drop",
})  # fmt: skip
"""Acts on names, which may be lost to a process that acts late (I7)."""

NAMED = frozenset({
    "register_table.done", "create_view.done", "create_function.done", "drop.done",
})  # fmt: skip
"""Names that have come or gone (I11)."""

ON_NAMES = NAMED | {"ensure_schema.done", "drop_schema_if_empty.done", "replace_text.done"}
"""Acts after which all names of users are looked at (I12)."""

OF_USERS = frozenset({
    "schemas", "user_definitions", "relations_read", "analyse", "replace_text",
})  # fmt: skip
"""Calls about users' objects: where one fails the software starts all the same (I8)."""

DESTROYING = frozenset({
    "truncate_shard.done", "unseal.done", "evolve.done", "alter.done", "delete_shard.done",
    "delete_shard_data.done",
})  # fmt: skip
"""Acts after which rows are looked at."""

ANNOUNCED = frozenset({"create_shard.done", "create_shadow_table.done", "seal.done"})
"""Acts that a process must have left word of before."""

WRITING = frozenset(["append", "append.done", "create", "create.done"])
"""Points of the log at which it can say what is being written."""

NEVER = float("inf")

LOG_CALLS = frozenset(["read", "append", "create", "compact", "renew", "wait"])


class Process:
    """One process of a scenario."""

    def __init__(self, play: ScenarioRun, number: int) -> None:
        scenario = play.scenario
        self.play = play
        self.number = number
        self.start = scenario.starts[number]
        self.name = f"p{number + 1}"
        self.holder = self.name
        self.faults = [fault for fault in scenario.faults if fault.process == number]
        self.due: float = min((fault.call for fault in self.faults), default=NEVER)
        """The first of its calls at which one of the faults may strike."""
        self.turns = {turn.call: turn.to for turn in scenario.turns if turn.process == number}
        self.clock = ProcessClock(play.scheduler, began=1_000.0 * number)
        fault = play.run.place.fault
        self.engine = fault.engine(
            play.run.place.world, persistent=scenario.persistent, on_call=self.on_engine
        )
        self.log = fault.log(play.run.place.log.attach(self.on_log))
        self.task: Task = play.scheduler.add(self.name, self.live, at=self.start.at)
        self.clock.task = self.task
        self.calls = 0
        self.dead = False
        self.touched = False
        self.epoch: int | None = None
        self.starter = Starter(self.holder, bool(self.start.back))
        self.lives: dict[str, tuple[Column, ...]] = {}
        """The tables that a session lives with after its start: columns by path."""

    def __str__(self) -> str:
        return self.name

    # its life --------------------------------------------------------------------------------
    def live(self) -> None:
        """Do what it is there for, to the end; what it may end with is checked."""
        play = self.play
        try:
            report = self.go_back() if self.start.back else self.bring_in()
            self.ended(report)
        except SimulatedCrash:
            play.run.crashes += 1
            raise
        except InvariantBroken as error:
            play.scheduler.fail(error)
        except CatalogMigrateError as error:
            play.trace(f"{self} ends: {type(error).__name__}: {error.message}")
            play.sometimes.end(self.starter, type(error).__name__)
            if not self.excused(error):
                play.scheduler.fail(error)

    def bring_in(self) -> BootstrapReport:
        """Start with the release."""
        play, start = self.play, self.start
        release = min(start.release, len(play.run.chain) - 1)
        draft = play.run.chain[release]
        play.trace(f"{self} starts with release {draft.name}", start.read_only and "read-only")
        self.starter.release = release
        play.sometimes.find(self.starter)
        if (play.scenario.chain + self.number) % CHECKED == 0:
            play.guarded(lambda: play.run.check_plan(release, shuffled=True, read_only=False))
        objects = play.random(self.number).sample(draft.objects, len(draft.objects))
        populate = None
        if start.populating != "absent":
            populate = play.run.place.populate(self.on_engine, fails=start.populating == "fails")
        _, report = play.run.place.start(
            draft, reordered(play.run.releases[release], tuple(objects)), engine=self.engine,
            populate=populate, read_only=start.read_only, log=self.log, clock=self.clock,
            holder=self.holder, session=start.session, repairs=start.repairs,
        )  # fmt: skip
        return report

    def go_back(self) -> BootstrapReport:
        """Roll back to a serial that there was, or (without one) before the newest migration."""
        play = self.play
        history = play.run.ledger.history
        serials = sorted(history)
        to = serials[-min(self.start.back, len(serials))] if serials else None
        draft = play.run.chain[0] if to is None else history[to].draft
        play.trace(f"{self} rolls back to serial {to} (release {draft.name})")
        self.starter.release = int(draft.name) - 1
        play.sometimes.find(self.starter)
        return play.run.place.back(
            to, engine=self.engine, log=self.log, clock=self.clock, holder=self.holder,
            approve=play.run.approvals_back(draft), repairs=self.start.repairs,
        )

    def ended(self, report: BootstrapReport) -> None:
        """It came to its end; a session lives on."""
        self.play.trace(f"{self} ends: {report.outcome}")
        self.play.run.starts += 1
        self.play.sometimes.end(self.starter, report.outcome)
        said = None if report.plan is None else report.plan.users
        if report.outcome in ("migrated", "rolled_back") and not self.play.disturbed:
            self.play.guarded(lambda: self.play.users.said(self.name, said))
        self.play.run.rollbacks += report.outcome == "rolled_back"
        if self.start.session and report.outcome != "fenced_out" and not self.start.read_only:
            self.lives = {
                held.path: self.play.run.place.world.newest(held.path).columns
                for held in self.engine._names.relations.values() if isinstance(held, TableEntry)
            }

    def excused(self, error: CatalogMigrateError) -> bool:
        """Whether a process may end so: something happened to it, or to one that it waits for."""
        if isinstance(error, LeaseHeld):
            return any(player is not self for player in self.play.players)
        if self.touched or self.start.populating == "fails" or self.play.others.meddled:
            return True
        if self.start.back and _is_no_way_back(error):
            return True
        if isinstance(error, LeaseLost) and self.play.scenario.tick > 0.1:
            return True  # calls of others took longer than a lease lasts
        hurt = any(player.touched for player in self.play.players)
        return hurt and isinstance(error, NotReconciled | LeaseLost)

    # its calls -------------------------------------------------------------------------------
    def on_engine(self, call: str) -> None:
        """One point of the engine."""
        if self.start.read_only:
            self.require_reading(call)
        self.point(call, self.engine.about)
        if call in NAMING:  # not when it is done
            self.play.named(self)  # as it is when the statement goes off, after any pause

    def on_log(self, call: str) -> None:
        """One point of the log."""
        if self.start.read_only:
            self.require_reading(call)
        self.point(call, self.log.about if call in WRITING else "")

    def require_reading(self, call: str) -> None:
        """I10: a read-only process only reads."""
        if call.partition(".")[0] not in READING and not self.dead:
            self.play.broken("I10", f"{self} is read-only and does {call}")

    def point(self, call: str, about: object) -> None:
        """A place where anything may happen, told by the number of the call."""
        if self.dead:
            raise SimulatedCrash("dead")
        play = self.play
        play.scheduler.advance()
        self.calls = calls = self.calls + 1
        play.after(self, call, about)
        if calls >= self.due:
            self.suffer_all(call, about)
        to = self.turns.get(calls)
        if to is not None:
            play.scheduler.turn(self.task, to)

    def suffer_all(self, call: str, about: object) -> None:
        """Every fault that this call was drawn for."""
        due = [
            fault for fault in self.faults
            if (fault.call <= self.calls and fault.of in ("", call) if fault.of or fault.during
                else fault.call == self.calls)
            and (not fault.during or self.play.sometimes.holds(self.starter, fault.during))
        ]  # fmt: skip
        for fault in due:
            self.faults.remove(fault)
            self.due = min((left.call for left in self.faults), default=NEVER)
            self.suffer(fault, call, about)

    def suffer(self, fault: Fault, call: str, about: object) -> None:
        """What the scenario wants to happen here."""
        play = self.play
        where = play.where(call, about)
        if fault.kind == "crash":
            self.touched = self.dead = True
            play.sometimes.suffer(self.starter, "killed")
            play.sometimes.reach(killed_at(call))
            play.trace(f"{self} is killed {where}")
            raise SimulatedCrash(f"{self} is killed {where}")
        if fault.kind in ("pause", "suspend"):
            self.touched = True
            word = "its machine is suspended" if fault.kind == "suspend" else "is stopped"
            play.trace(f"{self} {word} for {fault.amount:.0f} s {where}")
            began = play.scheduler.now
            try:
                play.scheduler.pause(self.task, fault.amount)
            finally:
                if fault.kind == "suspend":
                    self.clock.lost += play.scheduler.now - began
            play.trace(f"{self} wakes {where}")
        elif fault.kind == "skew":
            play.trace(f"{self}: its wall clock jumps by {fault.amount / 86_400:.0f} days")
            self.clock.skew += fault.amount
        elif fault.kind == "reorder":
            self.engine.reorders = True
        elif fault.kind == "refuse":
            if call in ("evolve", "alter"):
                play.trace(f"the table refuses for good {where}")
                play.run.place.world.refusing.add(str(about))
        else:
            self.fail(fault, call, where)

    def fail(self, fault: Fault, call: str, where: str) -> None:
        """Make this very call fail, if it is one that can."""
        play = self.play
        if call in ("append", "append.done"):
            self.touched = True
            if call == "append.done":
                play.trace(f"{self}: the reply is lost {where}")
                play.sometimes.suffer(self.starter, "its reply is lost")
                raise OSError("the reply is lost")
            if fault.kind == "in flight":
                play.trace(f"{self}: no answer, the commit is under way {where}")
                play.sometimes.suffer(self.starter, "its commit is under way")
                play.landing.append((play.scheduler.step + max(1, int(fault.amount)), self))
                raise InFlight
            play.trace(f"{self}: refused {where}")
            play.sometimes.suffer(self.starter, "its commit is refused")
            raise CatalogWriteRefused("the store refuses the commit", remedy="try again")
        if call.partition(".")[0] in LOG_CALLS or call == "populate":
            return
        if call.partition(".")[0] in OF_USERS:
            play.users.failed(self.name)
        else:
            self.touched = True
        if call in NAMED:
            play.program.unknown(self.name)
        play.trace(f"{self}: the statement fails {where}")
        play.sometimes.suffer(self.starter, "its statement fails")
        raise EngineFailure(
            "the connection broke", condition="CONNECTION_LOST", transient=fault.amount == 0.0
        )


def _is_no_way_back(error: CatalogMigrateError) -> bool:
    """Whether a rollback may end so: it is refused whole, or a NULL is where none may be again."""
    if isinstance(error, EngineFailure):
        return error.condition == "DELTA_NOT_NULL_CONSTRAINT_VIOLATED"
    return isinstance(error, MigrationBlocked | UsageError | UnknownSerial)


class ScenarioRun:
    """One run of a scenario; ``telling`` keeps every event of note in ``story``."""

    def __init__(
        self, scenario: Scenario, *, telling: bool = False, firsts: Firsts | None = None,
        fault: PortFault = NO_FAULT,
    ) -> None:
        self.scenario = scenario
        self.firsts = firsts or Firsts()
        self.story: list[str] | None = [] if telling else None
        self.scheduler = Scheduler(scenario.tick)
        self.run = Run(
            scenario.releases(), persistent=scenario.persistent, random=self.random(-1),
            records=scenario.chain % 4 == 0,  # it costs a fortieth of a schedule
            fault=fault,
        )
        self.others = Others(self.run, self.trace)
        self.users = Users(self.run, self.trace)
        self.sinks = Sinks(self.run, self.trace)
        self.sources = Sources(self.run, self.sinks, self.trace)
        self.landing: list[tuple[int, Process]] = []
        self.late_names = False
        self.program = ProgramWatch()
        self.sometimes = MigrationWatch()
        self.starters: dict[str, Starter] = {}
        self._seen = 0
        self._commits = self.run.place.log.history
        # the next one last; of two at one step the first one drawn comes first
        self._outside = sorted(scenario.outside, key=lambda each: each.step)[::-1]
        self._next_step: float = self._outside[-1].step if self._outside else NEVER
        self.players: list[Process] = []

    def random(self, salt: int) -> Random:
        """Chance that hangs on the scenario and one number only."""
        return Random(self.scenario.chain * 1_000_003 + salt)

    # the whole ---------------------------------------------------------------------------------
    def run_to_end(self) -> Run:
        """Run all of it; raises what breaks: InvariantBroken, Endless, or any other error."""
        run = self.run
        if self.scenario.installed:
            if self.scenario.first is None or self.scenario.without or self.scenario.letters:
                run.place.start(run.chain[0], run.releases[0], populate=run.place.populate())
            else:
                run.place.take_over(
                    self.firsts.installed(self.scenario.first, persistent=run.place.persistent)
                )
            run.starts += 1
            self.look()
            run.write(3, must=True)
        self.players = [Process(self, number) for number in range(len(self.scenario.starts))]
        self.starters = {player.holder: player.starter for player in self.players}
        self.scheduler.run()
        self.land(None)
        self.look()
        self.settle()
        return run

    def let_go(self) -> None:
        """It is over, and all that it knows goes at once; later the collector would have to look.

        A play and its processes know each other.
        """
        for player in self.players:
            vars(player).clear()
        vars(self).clear()

    def settle(self) -> None:
        """One more process, and the world is what is committed (I6); again, and it is (I3)."""
        run = self.run
        self.others.withdraw()
        target = max(run.release_in_force(), 0)
        self.trace(f"at rest, a process of release {target + 1} starts")
        clock = ProcessClock(self.scheduler, began=50_000.0)
        last = Starter("the last one", back=False, release=target)
        self.starters[last.holder] = last
        self.sometimes.find(last)
        engine, report = run.place.start(
            run.chain[target], run.releases[target], populate=run.place.populate(), clock=clock,
            holder=last.holder,
        )
        run.starts += 1
        self.look()
        self.sometimes.end(last, report.outcome)
        if run.place.persistent and (self.late_names or self.others.meddled):
            self.repair(engine, clock)
        run.check_settled(
            engine, target, again=self.scenario.chain % 4 == 0, late=True
        )
        self.others.check()
        self.users.check()
        if self.users.clean and self.users.acts == self.users.acts_on_record and (
            not self.disturbed
        ):
            self.users.check_record()
        run.write(2, must=True)
        self.sinks.settle(report)
        self.sources.settle(engine, report)
        self.look()
        self.older(target)

    def older(self, target: int) -> None:
        """Any earlier release is fenced out and leaves everything as it is."""
        run = self.run
        if target and self.scenario.chain % 3 == 0:
            before = (run.place.world.writes, run.place.log.version())
            _, report = run.place.start(run.chain[0], run.releases[0])
            after = (run.place.world.writes, run.place.log.version())
            require("I7", report.outcome == "fenced_out", f"an older release: {report.outcome}")
            require("I7", before == after, "a release that is fenced out wrote something")

    def repair(self, engine: SimulatedEngine, clock: Clock) -> None:
        """Observe the names once more, as ``drift --repair`` does after a late statement (I7)."""
        state = self.run.place.state()
        if state is None:
            return
        log = self.run.place.log
        lease = acquire(log, holder="repair", clock=clock)
        work = ExecutionContext(
            engine=engine, log=log, clock=clock, warehouse=WAREHOUSE, streams=MigratedStreams(),
            workers=Workers(1), lease=lease,
        )
        try:
            reconcile_names(work, state)
        finally:
            lease.release()

    # every step ----------------------------------------------------------------------------------
    def after(self, player: Process, call: str, about: object) -> None:
        """What happens at every point: commits land, others act, the catalog is looked at."""
        if self.landing:
            self.land(self.scheduler.step)
        if len(self._commits) != self._seen:
            if call in ("append.done", "create.done"):
                self.trace(f"{player} commits: {about}")
            self.guarded(self.look)
        elif call in ANNOUNCED:
            self.guarded(lambda: self.announced(player, call, str(about)))
        elif call in DESTROYING:
            if self.story is not None:
                self.trace(f"{player}: {self.where(call, about)}")
            self.guarded(self.look)
        elif call in NAMED and self.in_order:
            assert isinstance(about, ItemName)
            name = about
            self.guarded(
                lambda: self.program.executed(player.name, call, name, self.run.place.world)
            )
        elif self.story is not None and call.endswith(".done") and call[:-5] not in READING:
            self.trace(f"{player}: {self.where(call, about)}")
        if self.users.held:
            self.watch(player, call, about)
        while self.scheduler.step >= self._next_step:
            event = self._outside.pop()
            self._next_step = self._outside[-1].step if self._outside else NEVER
            if event.kind == "leave":
                self.guarded(self.leave)
            elif event.kind == "sink":
                self.others.meddled = True  # plans are made again when a user's statement came
                self.guarded(lambda event=event: self.sinks.make(self.random(event.pick)))  # type: ignore[misc]
            elif event.kind == "source":
                self.others.meddled = True
                self.guarded(self.sources.make)
            elif event.kind == "send":
                self.guarded(self.sinks.send)
                self.guarded(self.sources.receive)
            elif event.kind in KINDS:
                self.guarded(lambda event=event: self.users.act(event, self.random(event.pick)))  # type: ignore[misc]
            else:
                self.guarded(lambda event=event: self.others.act(event, self.random(event.pick)))  # type: ignore[misc]

    def watch(self, player: Process, call: str, about: object) -> None:
        """What users' objects are looked at for (I12, I13)."""
        users, name = self.users, player.name
        if call == "schemas":
            users.listed(name)
        if call in ON_NAMES or call in DESTROYING:
            users.changed(name)
        if call in ON_NAMES:
            repairs = player.start.repairs and call == "replace_text.done"
            self.guarded(lambda: users.untouched(name, f"{call} {about}", repairs=repairs))
        if call == "append.done" and about == "users" and not self.disturbed:
            self.guarded(lambda: users.recorded(name))

    @property
    def disturbed(self) -> bool:
        """Whether names are not what the catalog's programs have made of them."""
        return bool(self.others.meddled or self.late_names)

    def announced(self, player: Process, call: str, path: str) -> None:
        """A process has made or sealed something. Late shadow tables are empty, and go at once."""
        state = self.run.place.state()
        if state is None:
            return
        held = state.leases.get("migration")
        late = held is None or held.holder != player.holder
        if not (late and call == "create_shadow_table.done"):
            check_announced(state, call, path.removeprefix(WAREHOUSE + "/"))

    def leave(self) -> None:
        """The first session ends; an operator takes what is on record of those that are gone."""
        first = next((player for player in self.players if player.lives), None)
        if first is not None:
            first.lives = {}
            self.trace(f"the session of {first} ends")
        state = self.run.place.state()
        if state is None:
            return
        gone = {
            player.holder for player in self.players if player.task.ended and not player.lives
        }
        ids = [key for key, row in sorted(state.sessions.items()) if row.holder in gone]
        if ids:
            remove_sessions(self.run.place.log, ids)
            self.trace(f"an operator takes {counted(len(ids), 'session')} off the record")

    def guarded(self, act: Callable[[], object]) -> None:
        """A check: what it finds ends the run, whatever the code under test would catch."""
        try:
            act()
        except (InvariantBroken, CatalogMigrateError) as error:
            self.scheduler.fail(error)

    def look(self) -> None:
        """Follow the catalog and check what holds at any moment."""
        self._seen = len(self._commits)
        self.run.look()
        state = self.run.place.state()
        if state is not None:
            self.program.see(state)
            self.sometimes.see(state, self._commits[-1][1]["kind"], self.starters)
            check_retired(self.run.place.world, state, self.run.ledger, WAREHOUSE)
            self.sinks.check(state)
            self.sources.check(state)
        for player in self.players:
            if player.lives and state is not None:
                check_session(self.run.place.world, player.name, player.lives)
                check_signed_in(state, player.holder)

    def land(self, step: int | None) -> None:
        """Let commits in flight arrive; all that are left when ``step`` is None."""
        due = [entry for entry in self.landing if step is None or entry[0] <= step]
        if due:
            self.landing = [entry for entry in self.landing if entry not in due]
            if self.run.place.log.land():
                self.trace(f"the commit of {due[0][1]} that was under way lands")

    @property
    def in_order(self) -> bool:
        """Whether the names are what the catalog's own programs have made of them so far.

        What others change by hand, late statements and a table that refuses its change after the
        commit are repaired from what is observed.
        """
        meddled = self.others.meddled or self.late_names or self.run.place.world.refusing
        return self.scenario.persistent and not meddled

    def holds(self, player: Process) -> bool:
        """Whether the lease is this process's by the catalog."""
        state = self.run.place.state()
        held = None if state is None else state.leases.get("migration")
        return held is not None and held.holder == player.holder

    def named(self, player: Process) -> None:
        """A process acts on names: late, when the lease is another's by now."""
        if self.scenario.persistent and not self.holds(player):
            self.late_names = True
            if isinstance(player.engine.about, ItemName):
                self.others.lost.add(player.engine.about.folded)

    def broken(self, invariant: str, message: str) -> None:
        """An invariant does not hold: the run ends."""
        self.scheduler.fail(InvariantBroken(invariant, message))

    # telling --------------------------------------------------------------------------------------
    def trace(self, *words: object) -> None:
        """One line of the story."""
        if self.story is not None:
            said = " ".join(str(word) for word in words if word)
            self.story.append(f"{self.scheduler.now:7.2f} s  {said}")

    def where(self, call: str, about: object) -> str:
        """A point in words; only a story needs it."""
        if self.story is None:
            return call
        method, _, done = call.partition(".")
        text = str(about).removeprefix(WAREHOUSE + "/")
        return f"{'after' if done else 'before'} {_WORDS.get(method, method)} {text}".rstrip()


_WORDS: Mapping[str, str] = {
    "append": "the commit:", "create": "the first commit:", "read": "reading the catalog",
    "renew": "renewing its lease", "delete_shard": "deleting the shard",
    "delete_shard_data": "deleting the data of", "register_table": "registering",
}


class Firsts:
    """Installations of first releases, each made once and then copied: for schedules in a row.

    Whoever breaks something on purpose must not share one with those who do not.
    """

    def __init__(self) -> None:
        self._held: dict[bool, tuple[int, Installation]] = {}

    def installed(self, first: int, *, persistent: bool) -> Installation:
        """The first release that is drawn from a seed, in force; to be copied, not used."""
        held = self._held.get(persistent)
        if held is None or held[0] != first:
            draft = chain_of(Random(first), (), first=first)[0]
            place = Installation(persistent)
            place.start(draft, release_of(draft), populate=place.populate())
            held = self._held[persistent] = first, place
        return held[1]


def run_scenario(scenario: Scenario) -> Run:
    """Run a scenario to its end; raises what breaks."""
    return ScenarioRun(scenario).run_to_end()


__all__ = ["Endless", "Firsts", "ScenarioRun", "run_scenario"]
