"""Plays runtimes, clients and producers against one another: ALTERs and unsafe operations.

Runtimes of one cluster come, are stopped, suspended and killed in every state of an operation;
clients change a connection or a position meanwhile; records arrive. The real supervisor,
operations, take-over and checkpoint code runs on :mod:`tests.simulation.streaming`. At the
end one more runtime that nothing happens to must end every operation, and every record must be in
its table as often as the positions that were committed say: once, but for what an unsafe operation
moved (I6, I7).
"""

from __future__ import annotations

import shutil
import tempfile
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

from catalog_migrate.catalog.memory_log import MemoryLog
from catalog_migrate.catalog.opening import create_catalog, read_state
from catalog_migrate.catalog.operation_states import find_declared_state
from catalog_migrate.catalog.records import OperationRecord
from catalog_migrate.catalog.state import State
from catalog_migrate.connectors.kafka.positions import KafkaCodec
from catalog_migrate.errors import CatalogMigrateError, CatalogWriteRefused
from catalog_migrate.operations.kinds import ALTER, BACKFILLING, UNSAFE
from catalog_migrate.streams.catalog import dependencies
from catalog_migrate.streams.catalog.cluster_log import FAILURE
from catalog_migrate.streams.catalog.operation_records import chunks_in, moves_in
from catalog_migrate.streams.catalog.query_spec import first_stream
from catalog_migrate.streams.catalog.tables import transaction
from catalog_migrate.streams.checkpoint.directory import Checkpoint
from catalog_migrate.streams.checkpoint.files import Files
from catalog_migrate.streams.ddl.execute import Executor
from catalog_migrate.streams.positions.restore import undo_request
from catalog_migrate.streams.runtime.ports import Ports
from catalog_migrate.streams.runtime.runtime import Runtime, RuntimeOptions
from tests.services.checkpoints import root
from tests.simulation import databases, mirrors
from tests.simulation.crashes import SimulatedCrash
from tests.simulation.invariants import InvariantBroken, require
from tests.simulation.object_store import (
    ADDRESS,
    READS,
    REQUEST,
    Bucket,
    Conflict,
    InFlight,
    ReplyLost,
    SlowDown,
)
from tests.simulation.scenario import Fault
from tests.simulation.scheduler import ProcessClock, Scheduler, Task
from tests.simulation.sometimes import StreamWatch, killed_at, stream_call
from tests.simulation.stream_faults import NO_FAULT, StreamFault
from tests.simulation.stream_ports import (
    NoLog,
    SimulatedTables,
    SimulatedThreads,
    SimulatedUpstreams,
    simulated_ports,
)
from tests.simulation.stream_scenario import (
    CATALOG,
    CATALOG_STATEMENTS,
    DATABASE,
    DATABASE_STATEMENTS,
    MOVED,
    MOVES,
    STATEMENTS,
    UNDO,
    WRITE,
    Client,
    DatabaseEvent,
    StreamScenario,
)
from tests.simulation.stream_sinks import unsent
from tests.simulation.streaming import PLAIN, Record, SimulatedQueries, StreamWorld, resolve
from tests.simulation.upstream import CatalogServer, Refused

CONNECTIONS = """
CREATE CLUSTER main;
CREATE SECRET p AS 'env:FIRST';
CREATE CONNECTION c TO KAFKA (BROKER 'a:9092', SECURITY PROTOCOL 'SASL_PLAINTEXT',
  SASL MECHANISMS 'SCRAM-SHA-512', SASL USERNAME 'u', SASL PASSWORD SECRET p);
"""
SETTING = CONNECTIONS + """
CREATE SOURCE s (id BIGINT) IN CLUSTER main FROM KAFKA CONNECTION c (TOPIC 't') FORMAT JSON;
CREATE SOURCE r (id BIGINT) IN CLUSTER main FROM KAFKA CONNECTION c (TOPIC 'u') FORMAT JSON;
"""
SOURCES = ("s", "r")
SINK = (
    "CREATE SINK {} IN CLUSTER main FROM s INTO KAFKA CONNECTION c (TOPIC 'o') KEY (id);"
)

DATABASE_SOURCE = """
CREATE CONNECTION d TO POSTGRES (HOST 'db1', PORT 5432, DATABASE 'shop', USER 'u',
  PASSWORD SECRET p, SSL MODE 'disable');
CREATE SOURCE g IN CLUSTER main FROM POSTGRES CONNECTION d (PUBLICATION 'p', TABLES (g AS rows));
"""


class _Clock(ProcessClock):
    """A process's clock: while it sleeps its queries go on, and its lease is renewed."""

    actor: Actor

    def sleep(self, seconds: float) -> None:
        """Let queries take a step, renew, and let others go on."""
        self.actor.idle()
        super().sleep(seconds)


class Actor(ABC):
    """One process: a runtime or a client."""

    def __init__(self, play: StreamRun, number: int, name: str, at: float) -> None:
        self.play = play
        self.name = name
        self.faults = [fault for fault in play.scenario.faults if fault.process == number]
        self.clock = _Clock(play.scheduler, began=1_000.0 * number)
        self.clock.actor = self
        self.log = play.fault.log(play.log.attach(self.point))
        self.upstreams = SimulatedUpstreams(play.world)
        self.threads = SimulatedThreads(self.clock)
        self.engine = SimulatedQueries(play.world, self.point, self.upstreams.told)
        self.ports = play.fault.ports(Ports(
            resolve, self.upstreams, SimulatedTables(play.world), self.threads,
            Files(lambda step: self.point(f"file: {step}"), durable=False), NoLog,
            self.engine.databases,
        ))
        self.runtime: Runtime | None = None
        self.calls = self.strides = 0
        self.dead = False
        self.task: Task = play.scheduler.add(name, self.live, at=at)
        self.clock.task = self.task

    def live(self) -> None:
        """What it does, to its end; any error of ours may end it."""
        self.play.trace(f"{self.name} begins")
        try:
            self.act()
        except CatalogMigrateError as error:
            self.play.trace(f"{self.name} ends: {type(error).__name__}: {error.message}")
            try:
                self.play.keep_still(f"{error} {error.remedy} {error.data}")
            except InvariantBroken as broken:
                self.play.scheduler.fail(broken)
        else:
            self.play.trace(f"{self.name} ends")

    @abstractmethod
    def act(self) -> None:
        """What this kind of process does."""

    def idle(self) -> None:
        """While it sleeps: queries take a step, more where they have just woken up, and the lease
        is renewed in time."""
        if self.dead:
            raise SimulatedCrash("dead")
        self.engine.step()
        while self.strides:
            self.strides -= 1
            self.engine.step()
        self.threads.go_on()

    def point(self, call: str) -> None:
        """A place where anything may happen."""
        if self.dead:
            raise SimulatedCrash("dead")
        self.play.scheduler.advance()
        self.calls += 1
        self.play.after(self, call)
        for fault in [
            each for each in self.faults
            if (call.startswith(each.of) and self.calls >= each.call if each.of or each.during
                else each.call == self.calls)
            and (not each.during or self.holds(each, call))
        ]:
            self.faults.remove(fault)
            self.suffer(fault, call)
        if not call.startswith(("read", *READS)):
            self.play.acts += 1  # what was announced is done next, before anybody else has a turn

    def holds(self, fault: Fault, call: str) -> bool:
        """Whether a fault of a state may strike: not at the end of the commit that led there."""
        led = call.endswith(".done") and not fault.of.endswith(".done")
        return not led and self.play.sometimes.holds(self.name, fault.during)

    def suffer(self, fault: Fault, call: str) -> None:
        """What the scenario wants here."""
        play = self.play
        if fault.kind == "crash":
            self.dead = True
            play.sometimes.suffer(self.name, "killed")
            play.sometimes.reach(killed_at(stream_call(call)))
            play.trace(f"{self.name} is killed at {call}")
            raise SimulatedCrash(f"{self.name} is killed")
        if fault.kind in ("pause", "suspend"):
            play.trace(f"{self.name}: {fault.kind} of {fault.amount:.0f} s at {call}")
            began = play.scheduler.now
            try:
                play.scheduler.pause(self.task, fault.amount)
            finally:
                if fault.kind == "suspend":
                    self.clock.lost += play.scheduler.now - began
            self.strides = play.scenario.strides
            play.trace(f"{self.name} wakes at {call}")
        elif call.startswith(REQUEST):
            self.be_answered(fault, call)
        elif call == "append":
            play.trace(f"{self.name}: the commit is refused ({self.log.about})")
            play.sometimes.suffer(self.name, "its commit is refused")
            raise CatalogWriteRefused("the store refuses the commit", remedy="try again")
        elif call == "append.done":
            play.trace(f"{self.name}: the reply is lost ({self.log.about})")
            play.sometimes.suffer(self.name, "its reply is lost")
            raise OSError("the reply is lost")

    def be_answered(self, fault: Fault, call: str) -> None:
        """What the scenario wants of a request to the object store, where it means one."""
        play, done = self.play, ".done" in call.split(" ")[1]
        put = call.startswith(f"{REQUEST}put ")
        if fault.kind == "fail" and done:
            play.trace(f"{self.name}: the reply is lost at {call}")
            if fault.amount:  # until the client sends it again
                play.scheduler.pause(self.task, fault.amount)
            raise ReplyLost(again=bool(fault.amount))
        if fault.kind == "fail":
            play.trace(f"{self.name}: the store is throttling at {call}")
            raise SlowDown
        if fault.kind == "in flight" and not done and not call.startswith(READS):
            self.dead = True
            play.sometimes.suffer(self.name, "killed")
            play.trace(f"{self.name} is killed, {fault.amount} s in flight: {call}")
            raise InFlight(fault.amount)
        if fault.kind == "refuse" and put:
            play.trace(f"{self.name}: another request is under way at {call}")
            raise Conflict


class RuntimeActor(Actor):
    """A runtime of the cluster; it goes on until ``rounds`` sleeps are over."""

    rounds = 700

    def act(self) -> None:
        """Run until told to stop."""
        self.runtime = self.play.runtime(self)
        self.runtime.run()

    def idle(self) -> None:
        """It also ends, at some time."""
        self.rounds -= 1
        if self.runtime is not None and (self.rounds <= 0 or self.enough()):
            self.runtime.request_stop()
        super().idle()

    def enough(self) -> bool:
        """Whether clients are done and nothing is left to do."""
        play = self.play
        return all(client.task.ended for client in play.clients) and play.quiet()


class LastRuntime(RuntimeActor):
    """The one that ends all: a take-over may bring back work that had seemed to be done."""

    def enough(self) -> bool:
        """As of any, once it has the cluster."""
        return self.runtime is not None and self.runtime.ready.is_set() and super().enough()


class ClientActor(Actor):
    """One that says a statement and waits for what becomes of it."""

    def __init__(self, play: StreamRun, number: int, client: Client) -> None:
        number_ = client.statement
        said, first = next(
            each for each in (
                (CATALOG_STATEMENTS, CATALOG), (DATABASE_STATEMENTS, DATABASE), (MOVES, MOVED),
                (STATEMENTS, 0),
            )
            if number_ >= each[1]
        )
        self.statement = said[(number_ - first) % len(said)]
        name = f"client {number - len(play.scenario.runtimes) + 1}"
        super().__init__(play, number, name, client.at)

    def act(self) -> None:
        """Say it."""
        self.play.trace(f"{self.name} says {self.statement}")
        executor = Executor(
            self.log, lambda _state, _item: None, self.clock, self.ports, confirm=lambda _: True,
            limit=20.0,
        )
        if self.statement != UNDO:
            executor.run(self.statement)
            return
        state = read_state(self.log)
        done = [key for key, row in sorted(state.operations.items()) if row.kind == UNSAFE]
        if done:
            executor.unsafe.run(
                undo_request(state, done[-1]), "simulated", confirm=lambda _: True
            )


class OperatorActor(ClientActor):
    """An operator who says statements that a hold has named, one after another."""

    def __init__(self, play: StreamRun, number: int, statements: Sequence[str]) -> None:
        super().__init__(play, number, Client(0, play.scheduler.now))
        self.name, self.statements, self.faults = "the operator", statements, []

    def act(self) -> None:
        """Say them; what is refused names what to do upstream."""
        executor = Executor(
            self.log, lambda _state, _item: None, self.clock, self.ports, confirm=lambda _: True,
            limit=60.0,
        )
        left, tries = list(self.statements), 5
        while left:
            self.play.trace(f"the operator says {left[0]}")
            try:
                executor.run(left[0])
                left.pop(0)
            except mirrors.REFUSALS as refused:
                self.play.trace(f"{refused.message}: {refused.data}")
                remedies, tries = mirrors.remedies(refused), tries - 1
                if (refused.remedy or "").startswith("DROP SOURCE"):  # another type since the hold
                    left = list(mirrors.statements_again())
                elif not remedies or not tries:
                    raise
                for remedy in remedies:
                    mirrors.execute(self.play, remedy)


ROUNDS = 8
"""How many holds in a row an operator does what they say."""


class StreamRun:
    """One run of a scenario; ``telling`` keeps every event of note in ``story``.

    ``fault`` is put in on purpose.
    """

    def __init__(
        self, scenario: StreamScenario, *, telling: bool = False, fault: StreamFault = NO_FAULT
    ) -> None:
        self.scenario = scenario
        self.fault = fault
        self.story: list[str] | None = [] if telling else None
        self.scheduler = Scheduler(scenario.tick)
        self.world = StreamWorld({"t": [3, 2], "u": [4], "v": [1, 2], "o": [0]})
        self.sinks = {f"k{number}": lag for number, lag in enumerate(scenario.sinks, 1)}
        self.world.lag.update(self.sinks)
        self.log = MemoryLog()
        self.bucket: Bucket | None = None
        if scenario.page:
            self.bucket = fault.bucket(self.hear, page=scenario.page, seed=scenario.seed)
            self.warehouse = f"{ADDRESS}/warehouse"
        else:
            shm = Path("/dev/shm")
            self.warehouse = tempfile.mkdtemp(dir=shm if shm.is_dir() else None)
        self.actors: list[Actor] = []
        self.ended: list[Actor] = []
        self.clients: list[ClientActor] = []
        self.untried = False
        self.sometimes = StreamWatch()
        self.acts = 0
        self._quiet = (-1, False)
        self._seen = self._rows = 0
        self._records = list(scenario.records)
        self._events = list(scenario.database)
        self._ddl = list(scenario.ddl)
        self.sources = () if scenario.ddl else SOURCES
        if scenario.ddl:
            self.world.database = CatalogServer()
        self._again = sorted(
            event for each in scenario.again for event in (
                (each.step, 0, each.topic, 0),
                (each.step + each.later, 1, each.topic, each.partitions),
            )
        )

    def run_to_end(self) -> None:
        """Run all of it; raises what breaks."""
        if self.bucket is not None:
            with self.bucket.served():
                self._play()
            return
        try:
            self._play()
        finally:
            shutil.rmtree(self.warehouse, ignore_errors=True)

    def let_go(self) -> None:
        """As :meth:`tests.simulation.scenario_run.ScenarioRun.let_go`."""
        for actor in (*self.ended, *self.actors):
            vars(actor).clear()
        vars(self).clear()

    def _play(self) -> None:
        create_catalog(self.log, warehouse=self.warehouse)
        clock = ProcessClock(self.scheduler)
        Executor(
            self.log, lambda _state, _item: None, clock, simulated_ports(self.world, clock)
        ).run(
            (CONNECTIONS + mirrors.SOURCE if self._ddl else SETTING)
            + DATABASE_SOURCE * bool(self._events)
            + "".join(SINK.format(name) for name in self.sinks)
        )
        runtimes = len(self.scenario.runtimes)
        for number, at in enumerate(self.scenario.runtimes):
            self.actors.append(RuntimeActor(self, number, f"runtime {number + 1}", at))
        for number, client in enumerate(self.scenario.clients):
            self.clients.append(ClientActor(self, runtimes + number, client))
        self.actors += self.clients
        self.scheduler.run()
        if self.bucket is not None:
            self.bucket.arrive()
        with self.looking():
            state = self.state()
            if self.scenario.ddl and self.mirror_came(state) and mirrors.hold_of(state) is None:
                mirrors.require_equal(self, state)
        self.trace("at rest, one more runtime begins")
        self._records.clear()
        self._events.clear()
        self._ddl.clear()
        self.world.lag.clear()
        for _, comes, topic, partitions in self._again:  # none comes during the last
            if comes and topic not in self.world.topics:
                self.world.create(topic, partitions)
        self._again.clear()
        last = LastRuntime(self, len(self.actors), "the last runtime", self.scheduler.now)
        self.ended, self.actors = self.actors, [last]
        self.scheduler.run()
        with self.looking():
            self.check()
        if self.scenario.ddl:
            self._do_as_told()

    def _do_as_told(self) -> None:
        """An operator does what the holds of a mirror say, until it runs and equals its source."""
        for _ in range(ROUNDS):
            state = self.state()
            found = dependencies.find(state, "source", mirrors.NAME)
            hold = mirrors.hold_of(state)
            if hold is None and not any(
                each.item_id == found.item_id for each in state.holds.values()
            ):
                mirrors.require_equal(self, state)
                return
            statements = [f"RESUME SOURCE {mirrors.NAME}"]
            if hold is not None:
                self.trace(f"m is held: {hold.reason}; {hold.remedy}")
                for statement in mirrors.upstream_statements(hold):
                    self.trace(f"upstream: {statement}")
                    mirrors.execute(self, statement)
                statements = list(mirrors.operator_statements(hold))
            operator = OperatorActor(self, len(self.scenario.runtimes), statements)
            last = LastRuntime(self, 10_000, "a runtime for the operator", self.scheduler.now)
            last.rounds, self.clients = 700, [operator]
            self.ended, self.actors = [*self.ended, *self.actors], [operator, last]
            self.scheduler.run()
        require("I6", False, f"m is held still: {mirrors.hold_of(self.state())}")

    def runtime(self, actor: Actor) -> Runtime:
        """A runtime on an actor's engine, log, clock and ports."""
        runtime = Runtime(
            actor.log, "main", self.fault.engine(actor.engine),
            ensure_shards=lambda _state, _item: None, reconcile=lambda _: None,
            clock=actor.clock, ports=actor.ports, on_event=self.keep_still,
            options=RuntimeOptions(
                wait=1_000.0, drain=5.0, threads=1, unsafe=True, starts_at_once=64
            ),
        )
        actor.engine.alive = runtime.require_alive
        return runtime

    # every step ---------------------------------------------------------------------------------
    def hear(self, call: str) -> None:
        """A request to the object store, of the process whose turn it is."""
        current = self.scheduler.current
        for actor in self.actors if current is not None else ():
            if actor.task is current:
                actor.point(call)

    def looking(self) -> AbstractContextManager[None]:
        """For looks that no process takes."""
        return nullcontext() if self.bucket is None else self.bucket.unheard()

    def after(self, actor: Actor, call: str) -> None:
        """Records arrive; commits are told, and looked through for secrets (I9)."""
        if len(self.log.history) != self._seen:
            try:
                self.look_through()
            except InvariantBroken as broken:
                self.scheduler.fail(broken)
        if call == "append.done":
            with self.looking():
                living = [each.name for each in self.actors if not (each.dead or each.task.ended)]
                self.sometimes.see(self.state(), actor.name, living)
            self.trace(f"{actor.name} commits: {actor.log.about}")
            if isinstance(actor, ClientActor) and actor.log.about == "alter":
                self.untried = True
        if self.world.wrong:
            self.scheduler.fail(InvariantBroken("I6", self.world.wrong))
        if self.bucket is not None:
            for name in self.bucket.arrive(self.scheduler.now):
                self.acts += 1
                self.trace(f"what was in flight arrives: {name}")
        while self._again and self._again[0][0] <= self.scheduler.step:
            _, comes, topic, partitions = self._again.pop(0)
            self.acts += 1
            if comes:
                self.world.create(topic, partitions)
                self.trace(f"the topic {topic} is created again")
            else:
                self.world.remove(topic)
                self.trace(f"the topic {topic} is deleted")
        while self._events and self._events[0][0] <= self.scheduler.step:
            self.happen(self._events.pop(0)[1])
        while self._ddl and self._ddl[0][0] <= self.scheduler.step:
            self.alter(self._ddl.pop(0)[1])
        fed = ("t", "u", "v") if self.sinks else ("t", "u")
        while self._records and self._records[0][0] <= self.scheduler.step:
            _, pick = self._records.pop(0)
            counts = self.world.topics.get(fed[pick % len(fed)])
            if counts is not None:
                counts[pick % len(counts)] += 1
                self.acts += 1

    def happen(self, event: DatabaseEvent) -> None:
        """Something happens to the PostgreSQL server."""
        server = self.world.database
        self.acts += 1
        if event == "promote":
            server.promote()
        elif event == "lose slot":
            server.slots.clear()
        elif event == "column":
            server.columns[f"c{len(server.columns)}"] = server.rows
        if event in ("write", "column"):
            server.rows += 1
        if event != "write":
            self.trace(f"the database: {event}")

    def alter(self, statement: str) -> None:
        """A statement or a transaction upstream, on a server with a catalog."""
        server = self.world.database
        assert isinstance(server, CatalogServer)
        self.acts += 1
        if statement.startswith(WRITE):
            server.write(int(statement.removeprefix(WRITE)))
            return
        try:
            server.execute(statement)
        except Refused as refused:
            self.trace(f"upstream refuses {statement}: {refused}")
        else:
            self.trace(f"upstream: {statement}")

    def look_through(self) -> None:
        """I9: no secret's value is in a commit, its metadata included."""
        first, self._seen = self._seen, len(self.log.history)
        for _, metadata in self.log.history[first:]:
            self.keep_still(str(metadata))
        for row in self.log.rows[self._rows :]:
            self.keep_still(row.value)
        self._rows = len(self.log.rows)

    def keep_still(self, text: str) -> None:
        """I9: no secret's value is in what anybody is told."""
        require("I9", PLAIN not in text, f"a secret is told: {text}")

    def state(self) -> State:
        """The committed state."""
        return read_state(self.log)

    def quiet(self) -> bool:
        """Whether no operation is open and every source has read all there is.

        Runtimes ask whenever they sleep: it is looked at when anything was done or came since.
        """
        if self._quiet[0] != self.acts:
            with self.looking():
                self._quiet = self.acts, self._is_quiet()
        return self._quiet[1]

    def _is_quiet(self) -> bool:
        state = self.state()
        if any(find_declared_state(row).leads_to for row in state.operations.values()):
            return False
        return self.has_all_rows(state) and all(
            self.came(state, name) or self.stuck(state, name) for name in self.sources
        ) and all(
            not self.unsent(state, name) or self.held(state, "sink", name) for name in self.sinks
        )

    def came(self, state: State, name: str) -> bool:
        """Whether a source has read all there is."""
        position, ends = self.position(state, name), self.world.ends(topic_of(state, name))
        return position == ends or (position is None and not any(ends.values()))

    def has_all_rows(self, state: State) -> bool:
        """Whether the source on PostgreSQL has read all there is, or is held."""
        if self.scenario.ddl:
            return self.held(state, "source", mirrors.NAME) or self.mirror_came(state)
        if not self.scenario.database or self.held(state, "source", "g"):
            return True
        found = dependencies.find(state, "source", "g")
        position = databases.position_of(state, found.item_id)
        return position is not None and position.lsn >= self.world.database.end

    def mirror_came(self, state: State) -> bool:
        """Whether the mirror has read all there is, and looked at its tables then."""
        found = dependencies.find(state, "source", mirrors.NAME)
        position = databases.position_of(state, found.item_id)
        read = position is not None and position.lsn >= self.world.database.end
        return read and self.world.looked >= self.world.database.end

    def stuck(self, state: State, name: str) -> bool:
        """Whether the topic of a source is not the one that it read."""
        stream = state.streams.get(dependencies.find(state, "source", name).item_id)
        if stream is None or not stream.topics:
            return False
        return self.world.topic_ids(stream.upstream, stream.topics) != stream.topics

    def held(self, state: State, kind: str, name: str) -> bool:
        """Whether somebody holds a query."""
        item_id = dependencies.find(state, kind, name).item_id
        return any(hold.item_id == item_id for hold in state.holds.values())

    def unsent(self, state: State, name: str) -> int:
        """How many rows a sink has not sent yet."""
        found = dependencies.find(state, "sink", name)
        source = state.items[found.item.links["reads"]]
        return unsent(self.world, found.item_id, f"{self.warehouse}/{source.shard}")

    def position(self, state: State, name: str) -> dict[tuple[str, int], int] | None:
        """Where a source stands: its newest entry, once that is committed."""
        item_id = dependencies.find(state, "source", name).item_id
        stream = state.streams.get(item_id) or first_stream(item_id)
        checkpoint = Checkpoint(f"{self.warehouse}/{stream.checkpoint}")
        latest = checkpoint.latest_offsets
        initial = root(checkpoint) / "sources/0/0"
        if latest is None and initial.is_file():
            return dict(KafkaCodec().read_initial(initial.read_bytes(), str(initial)))
        if latest is None or checkpoint.latest_commits != latest:
            return None
        return dict(KafkaCodec().read(checkpoint.entry(latest).sources[0]) or {})

    # at rest ------------------------------------------------------------------------------------
    def check(self) -> None:
        """I6, I7, I11: operations ended by their programs, no hold of theirs left, every record as
        often as committed."""
        state = self.state()
        self.look_through()
        for data in self.files():
            self.keep_still(data.decode(errors="replace"))
        left = [key for key, hold in state.holds.items() if hold.holder.startswith("operation:")]
        require("I6", not left, f"holds are left: {left}")
        failed = [hold.reason for hold in state.holds.values() if hold.holder == FAILURE]
        require("I6", not failed, f"failed until it was held: {failed}")
        broker = state.items[
            dependencies.find(state, "connection", "c").item_id
        ].definition.external
        assert broker is not None
        address = broker.options["BROKER"]
        # another cluster is fine for sources that had no positions yet
        works = address in ("a:9092", "b:9092", "far:9092")
        open_rows = {
            key: row.state for key, row in state.operations.items()
            # what was skipped cannot be read where nothing answers
            if find_declared_state(row).leads_to and (works or row.state != BACKFILLING)
        }
        require("I6", not open_rows, f"operations are left open: {open_rows}")
        # without a runtime a definition is committed untried; the next start shows what it is worth
        require("I6", works or self.untried, f"the connection leads to {address}, through a trial")
        for key, row in state.operations.items():
            if row.program and row.state in ("confirmed", "set_back", "done", BACKFILLING):
                self._check_program(state, key, row)
        for name in self.sources:
            self._check_source(state, name, topic_of(state, name), works=works)
        for name in self.sinks:
            self._check_sink(state, name, works=works)
        if self.scenario.database:
            databases.check(self, state)
        if self.scenario.ddl:
            mirrors.check(self, state)

    def files(self) -> Iterable[bytes]:
        """What stands in checkpoints and snapshots."""
        if self.bucket is not None:
            return self.bucket.objects.values()
        return (file.read_bytes() for file in Path(self.warehouse).rglob("*") if file.is_file())

    def _check_program(self, state: State, key: str, row: OperationRecord) -> None:
        """I11: every step of the program was executed, wave by wave, whoever died meanwhile; of an
        ALTER a sink stopped before its source and started after it.

        Two kinds of steps have no order. What is passed over, because its query is held, is put on
        record at the end; a query that died in its trial is started again by itself.
        """
        waves = {(str(step["op"]), str(step["id"])): step["wave"] for step in row.program}
        last: dict[tuple[str, str], int] = {}
        for number, each in enumerate(row.executed):
            started = last.get(("start", each.id), -1) > last.get(("stop", each.id), -1)
            if each.op != "start" or not started:
                last[each.op, each.id] = number
        left = waves.keys() - last.keys()
        require("I11", not left, f"operation {key} ended without {sorted(left)}")
        require("I11", not waves or any(
            not each.outcome.startswith("skip") for each in row.executed
        ), f"operation {key} passed over all of its program")
        acted = {step for step in waves if not row.executed[last[step]].outcome.startswith("skip")}
        order = [
            (waves[step], step) for step in sorted(acted, key=last.__getitem__)
            if step[0] not in ("validate", "probe")
        ]
        require("I11", order == sorted(order, key=lambda each: int(each[0])), f"{key}: {order}")
        for op, sink in acted if row.kind == ALTER else ():
            item = state.items.get(sink)
            read = (op, item.links.get("reads", "") if item is not None else "")
            if op in ("stop", "start") and read in acted:
                before = last[op, sink] < last[read]
                require("I11", before is (op == "stop"), f"{key}: {op} of {sink} and {read[1]}")

    def _check_sink(self, state: State, name: str, *, works: bool) -> None:
        """Every row was sent, once where nobody was killed or stopped; each with its own key."""
        require("I6", not self.world.wrong, self.world.wrong)
        left = self.unsent(state, name)
        held = self.held(state, "sink", name)
        require("I6", not left or held or not works, f"{name} has {left} rows left to send")
        item_id = dependencies.find(state, "sink", name).item_id
        sent = self.world.sent.get(item_id, Counter())
        twice = sorted(row for row, times in sent.items() if times > 1)
        again = bool(self.scenario.faults) or any(
            row.target == item_id and row.kind == UNSAFE for row in state.operations.values()
        )
        require("I6", not twice or again, f"{name} sent {twice} twice")

    def _check_source(self, state: State, name: str, topic: str, *, works: bool) -> None:
        found = dependencies.find(state, "source", name)
        position = self.position(state, name)
        ends = self.world.ends(topic)
        came = self.came(state, name) or self.stuck(state, name)
        require("I6", came or not works, f"{name} stands at {position}, not at {ends}")
        if position is None:
            return  # a batch is under way that cannot be finished where the connection leads
        expected = self._expected(state, found.item_id, {**dict.fromkeys(ends, 0), **position})
        rows = Counter(self.world.table(f"{self.warehouse}/{found.item.shard}").rows)
        if rows != expected:
            lost, doubled = expected - rows, rows - expected
            raise InvariantBroken(
                "I6", f"{name}: lost {sorted(lost.items())}, doubled {sorted(doubled.items())}"
            )

    def _expected(
        self, state: State, item_id: str, end: dict[tuple[str, int], int]
    ) -> Counter[Record]:
        """How often each record is to be there: once, and again for what was moved back over."""
        at: dict[tuple[str, int], int] = {}
        expected: Counter[Record] = Counter()
        moves = []
        for row in state.operations.values():
            if row.kind == UNSAFE and row.state == "done":
                moves += [
                    move for move in moves_in(row) if move.item_id == item_id and move.target
                ]
        for key, row in state.operations.items():
            chunks = chunks_in(row) if row.state in ("done", BACKFILLING) else ()
            if row.state == BACKFILLING:  # nothing answers any more: those that came
                table = self.world.table(f"{self.warehouse}/{state.items[item_id].shard}")
                chunks = chunks[: table.batches.get(transaction(key), -1) + 1]
            for chunk in chunks:
                for topic, number, first, last in chunk.places if chunk.item_id == item_id else ():
                    expected.update((topic, number, offset) for offset in range(first, last))
        for move in sorted(moves, key=lambda move: move.generation):
            _count(expected, at, KafkaCodec().read(move.line) or {})
            at = {**at, **(KafkaCodec().read(move.target) or {})}
        _count(expected, at, end)
        return expected

    def trace(self, *words: object) -> None:
        """One line of the story."""
        if self.story is not None:
            said = " ".join(str(word) for word in words if word)
            self.story.append(f"{self.scheduler.now:7.2f} s  {said}")


def topic_of(state: State, name: str) -> str:
    """The topic that a source reads."""
    return str(dependencies.find(state, "source", name).external.options["TOPIC"])


def _count(
    expected: Counter[Record], start: Mapping[tuple[str, int], int],
    end: Mapping[tuple[str, int], int],
) -> None:
    for place, last in end.items():
        for offset in range(start.get(place, 0), last):
            expected[place[0], place[1], offset] += 1


def failure_of(scenario: StreamScenario, fault: StreamFault = NO_FAULT) -> str | None:
    """In which way a scenario fails, None when it does not."""
    try:
        StreamRun(scenario, fault=fault).run_to_end()
    except InvariantBroken as broken:
        return broken.invariant
    except Exception as error:  # noqa: BLE001 - whatever it is, it is what has to be found again
        return type(error).__name__
    return None


def explain(scenario: StreamScenario) -> str:
    """A scenario as a story."""
    run = StreamRun(scenario, telling=True)
    ending = "it ends well"
    try:
        run.run_to_end()
    except Exception as error:  # noqa: BLE001 - it is told, not handled
        ending = f"{type(error).__name__}: {error}"
    return "\n".join((*(run.story or ()), f"==> {ending}"))
