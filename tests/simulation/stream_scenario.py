"""Scenarios of runtimes, clients and producers: what a seed decides, and smaller ones."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Literal

import msgspec
from msgspec.structs import replace

from tests.simulation.object_store import REQUEST
from tests.simulation.scenario import Fault, FaultKind
from tests.simulation.shrink import less

STATEMENTS = (
    "ALTER CONNECTION c SET (BROKER 'b:9092')",
    "ALTER CONNECTION c SET (BROKER 'a:9092')",
    "ALTER CONNECTION c SET (BROKER 'lame:9092')",
    "ALTER CONNECTION c SET (BROKER 'lame:9092')",
    "ALTER CONNECTION c SET (BROKER 'dead:9092')",
    "ALTER CONNECTION c SET (BROKER 'far:9092')",
    "ALTER CONNECTION c SET (kafka.client.id = 'mine')",
    "ALTER SOURCE s UNSAFE INJECT OFFSETS (TO earliest) REASON 'simulated'",
    "ALTER SOURCE s UNSAFE INJECT OFFSETS (TO latest) REASON 'simulated'",
    "ALTER SOURCE r UNSAFE INJECT OFFSETS (TO 'shift -2') REASON 'simulated'",
    "ALTER SOURCE s UNSAFE INJECT OFFSETS (TO 'shift -1') REASON 'simulated'",
    "ALTER SECRET p AS 'env:SECOND'",
    "ALTER SOURCE s UNSAFE INJECT OFFSETS (TO latest) WITH (BACKFILL = true, CHUNK = 1)"
    " REASON 'simulated'",
    "ALTER SOURCE r UNSAFE INJECT OFFSETS (TO latest) WITH (BACKFILL = true, CHUNK = 2)"
    " REASON 'simulated'",
)
"""What clients say: changes that go well, that are refused, that are rolled back, and moves."""

_ANEW = "WITH (ACCEPT NEW TOPIC = true) REASON 'simulated'"
UNDO = "UNDO"
"""The newest unsafe operation is taken back, which no statement says."""

MOVES = (
    f"ALTER SOURCE s UNSAFE SET (TOPIC = 'v'), RESET SPLITS {_ANEW}",
    f"ALTER SOURCE s UNSAFE SET (TOPIC = 't'), RESET SPLITS {_ANEW}",
    f"ALTER SOURCE s UNSAFE RESET SPLITS {_ANEW}",
    "ALTER SOURCE s UNSAFE SET (TOPIC = 'v'), INJECT OFFSETS (TO latest) WITH"
    " (ACCEPT NEW TOPIC = true, BACKFILL = true, CHUNK = 1) REASON 'simulated'",
    "ALTER SOURCE s UNSAFE INJECT OFFSETS (TO 'shift -1') REASON 'simulated'",
    UNDO,
    "PAUSE SINK k1",
    "RESUME SINK k1",
    "ALTER CONNECTION c SET (kafka.client.id = 'other')",
    "ALTER SINK k1 UNSAFE INJECT VERSION 1 REASON 'simulated'",
)
"""What clients say where sinks lag and topics come again; numbered from :data:`MOVED`."""

BACK = len(MOVES) - 1
"""The number of the one that a sink is moved back by, which came later than the draws of others."""

MOVED = 100
"""The number of the first of :data:`MOVES`."""


DATABASE = 200
"""The number of the first of :data:`DATABASE_STATEMENTS`."""

DATABASE_STATEMENTS = (
    "ALTER CONNECTION d SET (HOST 'db2')",
    "ALTER CONNECTION d SET (HOST 'db3')",
    "ALTER CONNECTION d SET (HOST 'nowhere')",
    "ALTER SECRET p AS 'env:SECOND'",
    "ALTER SOURCE g UNSAFE INJECT OFFSETS (TO earliest) REASON 'simulated'",
    "ALTER SOURCE g UNSAFE INJECT OFFSETS (TO latest) REASON 'simulated'",
    "ALTER SOURCE g UNSAFE RESET SPLITS REASON 'simulated'",
    "ALTER SOURCE g UNSAFE RESET SPLITS ('public.g') REASON 'simulated'",
    UNDO,
    "PAUSE SOURCE g",
    "RESUME SOURCE g",
)
"""What clients say of a source on PostgreSQL and of what it reads through."""

CATALOG = 300
"""The number of the first of :data:`CATALOG_STATEMENTS`."""

CATALOG_STATEMENTS = (
    "ALTER CONNECTION d SET (HOST 'db3')",
    "ALTER CONNECTION d SET (HOST 'nowhere')",
    "ALTER CONNECTION d SET (HOST 'db1')",
    "ALTER SECRET p AS 'env:SECOND'",
    "ALTER SOURCE m UNSAFE RESET SPLITS REASON 'simulated'",
    "ALTER SOURCE m UNSAFE RESET SPLITS ('public.g') REASON 'simulated'",
    "ALTER SOURCE m UNSAFE RESET SPLITS ('public.h') REASON 'simulated'",
    "PAUSE SOURCE m",
    UNDO,
)
"""What clients say of a mirror. None resumes it: that would accept what is missing."""

ALL = "insert, update, delete, truncate"
BEYOND = "FOR VALUES FROM (200) TO (300)"

HARMLESS: tuple[tuple[str, ...], ...] = (
    ("GRANT SELECT ON g TO PUBLIC",),
    ("CREATE INDEX ON g (n)", "CREATE INDEX ON h (n)"),
    ("VACUUM FULL g",),
    ("VACUUM FULL h_1", "ANALYZE h_1"),
    ("ANALYZE h", "ALTER TABLE g ALTER n SET DEFAULT 1"),
    ("TRUNCATE g",),
    ("ALTER TABLE g REPLICA IDENTITY FULL", "ALTER TABLE g REPLICA IDENTITY DEFAULT"),
    ("ALTER TABLE g REPLICA IDENTITY FULL",),
    ("CREATE TABLE other (id int PRIMARY KEY)", "ALTER PUBLICATION p ADD TABLE other",
     "ALTER PUBLICATION p DROP TABLE other", "DROP TABLE other"),
    (f"CREATE TABLE h_3 PARTITION OF h {BEYOND}",),
    ("CREATE TABLE h_3 (LIKE h)", f"ALTER TABLE h ATTACH PARTITION h_3 {BEYOND}"),
    ("ALTER TABLE g ADD COLUMN x int",),
    ("ALTER TABLE g ADD COLUMN x int DEFAULT 7",),
    ("ALTER TABLE h ADD COLUMN y int DEFAULT 7", "VACUUM FULL h_1"),
    ("ALTER TABLE g ADD COLUMN z int DEFAULT random()",),
    ("ALTER TABLE h ADD COLUMN z int DEFAULT random()", "VACUUM FULL h_2"),
)
"""What never loses a change, whenever a source looks: it must never be held for it."""

DDL: tuple[tuple[str, ...], ...] = (
    *HARMLESS,
    # where it hangs on when a source looks
    ("TRUNCATE h",),
    (f"CREATE TABLE h_3 PARTITION OF h {BEYOND}", "TRUNCATE h"),
    ("ALTER TABLE g ENABLE ROW LEVEL SECURITY", "ALTER TABLE g DISABLE ROW LEVEL SECURITY"),
    ("ALTER TABLE h ENABLE ROW LEVEL SECURITY",),
    ("ALTER TABLE g RENAME TO gone", "ALTER TABLE gone RENAME TO g"),
    ("ALTER TABLE g DROP CONSTRAINT g_pkey", "ALTER TABLE g ADD PRIMARY KEY (id)"),
    # columns
    ("ALTER TABLE g DROP COLUMN n",),
    ("ALTER TABLE h DROP COLUMN v",),
    ("ALTER TABLE g RENAME COLUMN v TO w",),
    ("ALTER TABLE g RENAME COLUMN v TO w", "ALTER TABLE g RENAME COLUMN w TO v"),
    ("ALTER TABLE g DROP COLUMN v", "ALTER TABLE g ADD COLUMN v text"),
    ("ALTER TABLE g ALTER n TYPE bigint",),
    ("ALTER TABLE h ALTER n TYPE bigint",),
    ("ALTER TABLE g ALTER n TYPE bigint", "ALTER TABLE g ALTER n TYPE int USING n + 1"),
    ("ALTER TABLE h ALTER n TYPE int USING n + 1",),
    # tables
    ("DROP TABLE g", "CREATE TABLE g (id int PRIMARY KEY, v text, n int)"),
    ("DROP TABLE g", "CREATE TABLE g (id int PRIMARY KEY, v text, n int)",
     "ALTER PUBLICATION p ADD TABLE g"),
    ("DROP TABLE g",),
    ("DROP TABLE h",),
    ("ALTER TABLE g RENAME TO moved",),
    ("ALTER TABLE h RENAME TO moved",),
    ("CREATE TABLE o (id int PRIMARY KEY, v text, n int)", "ALTER PUBLICATION p ADD TABLE o",
     "ALTER TABLE g RENAME TO q", "ALTER TABLE o RENAME TO g", "ALTER TABLE q RENAME TO o"),
    ("CREATE TABLE g_c () INHERITS (g)",),
    ("CREATE TABLE g_c () INHERITS (g)", "ALTER TABLE g_c NO INHERIT g"),
    # publications
    ("ALTER PUBLICATION p DROP TABLE g",),
    ("ALTER PUBLICATION p DROP TABLE g", "ALTER PUBLICATION p ADD TABLE g"),
    ("ALTER PUBLICATION p SET TABLE g, h WHERE (id > 50)",),
    ("ALTER PUBLICATION p SET TABLE g WHERE (id > 40), h", "ALTER PUBLICATION p SET TABLE g, h"),
    ("ALTER PUBLICATION p SET TABLE g, h",),
    ("ALTER PUBLICATION p SET (publish = 'insert')",),
    ("ALTER PUBLICATION p SET (publish = 'insert, delete')",
     f"ALTER PUBLICATION p SET (publish = '{ALL}')"),
    ("DROP PUBLICATION p",),
    ("DROP PUBLICATION p",
     "CREATE PUBLICATION p FOR TABLE g, h WITH (publish_via_partition_root = true)"),
    ("ALTER PUBLICATION p RENAME TO q", "ALTER PUBLICATION q RENAME TO p"),
    ("ALTER PUBLICATION p SET (publish_via_partition_root = false)",),
    ("ALTER PUBLICATION p SET (publish_via_partition_root = false)",
     "ALTER PUBLICATION p SET (publish_via_partition_root = true)"),
    # keys
    ("ALTER TABLE g REPLICA IDENTITY FULL", "ALTER TABLE g DROP CONSTRAINT g_pkey"),
    ("ALTER TABLE g REPLICA IDENTITY FULL", "ALTER TABLE g DROP CONSTRAINT g_pkey",
     "DELETE DOUBLES OF g", "ALTER TABLE g ADD PRIMARY KEY (id)"),
    ("ALTER TABLE g DROP CONSTRAINT g_pkey", "ALTER TABLE g REPLICA IDENTITY FULL",
     "DELETE DOUBLES OF g", "ALTER TABLE g ADD PRIMARY KEY (id)",
     "ALTER TABLE g REPLICA IDENTITY DEFAULT"),
    # partitions
    ("TRUNCATE h_1",),
    ("ALTER TABLE h DETACH PARTITION h_1",),
    ("DROP TABLE h_2",),
    ("ALTER TABLE h DETACH PARTITION h_1",
     "ALTER TABLE h ATTACH PARTITION h_1 FOR VALUES FROM (0) TO (100)"),
    ("ALTER TABLE h DETACH PARTITION h_2", "TRUNCATE h_2",
     "ALTER TABLE h ATTACH PARTITION h_2 FOR VALUES FROM (100) TO (200)"),
    ("TRUNCATE h_2", "TRUNCATE h"),
)
"""Statements that are run one after another upstream, between which there may be anything."""

WRITE = "write "
"""What a transaction upstream begins with; a number says what it does."""

REQUESTS = (
    "put", "put", "put.done", "put.done", "put offsets", "put.done offsets", "put commits",
    "put.done commits", "put catalog_migrate.json", "put.done catalog_migrate.json",
    "put attempt", "put.done attempt", "put.done loaded", "get", "list", "delete", "delete.done",
)
"""Which requests to an object store a fault is for."""

DatabaseEvent = Literal["write", "column", "promote", "lose slot"]
"""What happens to the server: a transaction, a new column, a standby's promotion, a lost slot."""


class Client(msgspec.Struct, frozen=True):
    """One that says a statement (by number) at a time (seconds)."""

    statement: int
    at: float


class Again(msgspec.Struct, frozen=True):
    """A topic that is deleted at a step and comes again ``later`` steps after, with so many empty
    partitions."""

    topic: str
    step: int
    later: int
    partitions: int


class StreamScenario(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Everything that decides a run: faults and turns are of runtimes first, then of clients.

    ``runtimes`` are their times of beginning (seconds), ``records`` (step, pick) new records.
    ``sinks``: how many steps each sink of the source ``s`` rests after a batch; ``again`` are
    topics that come again. ``database`` says at which steps what happens to a PostgreSQL server;
    with any there is a source on it. ``ddl`` are statements and transactions, at steps, on a server
    with a catalog; with any there is a mirror of its tables. With a ``page`` checkpoints and
    snapshots are on an object store, whose listings have pages of so many names; else they are on a
    local disk. ``strides`` are the steps that the queries of a process that wakes up take before it
    looks at its lease.
    """

    seed: int
    runtimes: tuple[float, ...]
    clients: tuple[Client, ...]
    faults: tuple[Fault, ...] = ()
    records: tuple[tuple[int, int], ...] = ()
    tick: float = 0.02
    sinks: tuple[int, ...] = ()
    again: tuple[Again, ...] = ()
    database: tuple[tuple[int, DatabaseEvent], ...] = ()
    page: int = 0
    strides: int = 0
    ddl: tuple[tuple[int, str], ...] = ()


def draw_streams(seed: int) -> StreamScenario:
    """The scenario of a seed."""
    random = Random(seed)
    more = random.choice((0, 1, 1, 2))
    runtimes = (0.0, *(random.choice((20.0, 60.0, 120.0)) for _ in range(more)))
    clients = tuple(
        Client(random.randrange(len(STATEMENTS)), random.choice((1.0, 3.0, 10.0, 40.0)))
        for _ in range(random.choice((1, 1, 2, 3)))
    )
    faults = []
    for _ in range(random.choice((0, 1, 1, 2, 3))):
        late = random.random() < 0.2
        process = len(runtimes) + random.randrange(len(clients)) if late else random.randrange(
            len(runtimes)
        )
        kind: FaultKind = random.choice(("crash", "crash", "pause", "suspend", "fail", "in flight"))
        amount = random.choice((12.0, 45.0, 90.0, 200.0))
        if kind == "in flight":
            amount = random.choice((1.0, 5.0, 20.0))
        call = random.randint(5, random.choice((60, 150, 300)))
        faults.append(Fault(process, call, kind, amount))
    if any("BACKFILL" in STATEMENTS[client.statement] for client in clients):
        kind = random.choice(("crash", "crash", "pause", "suspend"))
        aim = random.choice(("chunk 0.done", "chunk 1", "chunk"))
        faults.append(Fault(0, 1, kind, random.choice((45.0, 90.0)), aim))
    records = tuple((random.randint(1, 600), random.randrange(1000)) for _ in range(12))
    return StreamScenario(
        seed=seed, runtimes=runtimes, clients=clients, faults=tuple(faults),
        records=tuple(sorted(records)),
    )


_LEADING = (
    ("validating", (0, 1, 6, 4)), ("trial", (0, 6, 1)), ("trial, started", (0, 6, 1)),
    ("trial, setting back", (2, 3)), ("requested", (7, 9)), ("stopping", (7, 8, 9, 10)),
    ("committed", (7, 9, 10)), ("backfilling", (12,)),
)
"""States of an operation, and statements that lead there."""

_CALLS = (
    "append", "append.done", "renew", "renew.done", "stop", "offsets", "rows", "commits",
    "file: write", "file: sync", "file: rename", "file: make", "file: put", "file: copy",
    "file: remove",
)


def draw_aimed(seed: int) -> StreamScenario:
    """That of a seed with processes that are struck in states that are seldom come to."""
    random = Random(f"aimed {seed}")
    if random.random() < 0.15:
        return draw_streams(seed)
    clients: list[Client] = []
    faults: list[Fault] = []
    runtimes: tuple[float, ...] = (0.0, 20.0, 40.0)
    more: list[tuple[int, int]] = []
    untried = random.random() < 0.1
    if untried:  # a definition that nothing was tried on gives way to one that works as little
        runtimes = (20.0, 40.0)
        clients.append(Client(4, 1.0))
        clients.append(Client(random.choice((2, 3, 5)), 100.0))
    for number in range(2 * (not untried)):  # who lost the cluster in the first has not the second
        state, statements = random.choice((*_LEADING, _LEADING[-1])[: None if not number else -2])
        at = 300.0 * number + 10.0
        if state == "backfilling":  # what it skips comes right then
            at = 2.0
            more = [(random.randint(60, 300), 2 * random.randrange(500)) for _ in range(60)]
        clients.append(Client(random.choice(statements), at))
        kind: FaultKind = random.choice(("crash", "crash", "suspend", "pause", "fail", "fail"))
        of = random.choice(("append", "append", "append.done")) if kind == "fail" else ""
        process = range(number + 1)
        if of == "append.done" and state in ("validating", "requested"):
            process = range(len(runtimes), len(runtimes) + 2)  # of clients: it is they who ask
        if kind == "crash" and random.random() < 0.6:
            of, state = random.choice(_CALLS), ""
            if clients[-1].statement in _LEADING[-1][1]:
                of = random.choice(("chunk 0", "chunk 0.done", "chunk 0.done"))
        call = random.choice((1, random.randint(1, 200))) if of in _CALLS else 1
        faults += (Fault(each, call, kind, 200.0, of, state) for each in process)
    records = tuple((random.randint(1, 900), random.randrange(1000)) for _ in range(12))
    return StreamScenario(
        seed=seed, runtimes=runtimes, clients=tuple(clients), faults=tuple(faults),
        records=tuple(sorted((*records, *more))),
    )


_RARE = {
    "moves": ("send", "send", "file: copy", "file: remove", "renew"),
    "database": ("advance", "load", "load 1.done", "manifest", "copy"),
    "catalog": ("advance", "decode", "decode", "load 1.done"),
}


def strike(scenario: StreamScenario, kind: str) -> StreamScenario:
    """A scenario whose first runtime is killed at a call that is seldom come to, too."""
    random = Random(f"struck {scenario.seed}")
    calls = _RARE[kind] + (f"{REQUEST}delete", f"{REQUEST}delete.done") * 3 * bool(scenario.page)
    call = random.choice((1, 1, random.randint(1, 300)))
    fault = Fault(0, call, "crash", of=random.choice(calls))
    return replace(scenario, faults=(fault, *scenario.faults))


def draw_moves(seed: int) -> StreamScenario:
    """That of a seed with sinks that lag, topics that come again, and moves between topics."""
    drawn = draw_streams(seed)
    random = Random(f"moves {seed}")
    clients = tuple(
        Client(MOVED + random.randrange(BACK), random.choice((2.0, 5.0, 12.0, 30.0, 60.0)))
        for _ in range(random.choice((1, 2, 2, 3, 4)))
    )
    later = Random(f"back {seed}")
    back = (Client(MOVED + BACK, later.choice((20.0, 70.0))),) if later.random() < 0.25 else ()
    return replace(
        drawn,
        clients=drawn.clients[: random.choice((0, 0, 1))] + clients + back,
        sinks=tuple(
            random.choice((0, 3, 20, 100)) for _ in range(random.choice((1, 1, 2)))
        ),
        again=tuple(
            Again(
                random.choice(("t", "t", "v")), random.randint(1, 600),
                random.choice((0, 0, 50)), random.choice((1, 2, 3)),
            )
            for _ in range(random.choice((0, 0, 1, 2)))
        ),
        faults=tuple(
            replace(each, process=min(each.process, len(drawn.runtimes)))
            for each in drawn.faults
        ),
        records=(
            *drawn.records,
            *sorted((random.randint(1, 1500), random.randrange(1000)) for _ in range(6)),
        ),
    )


def draw_database(seed: int) -> StreamScenario:
    """That of a seed with a source on PostgreSQL, to whose server things happen."""
    drawn = draw_streams(seed)
    random = Random(f"database {seed}")
    clients = tuple(
        Client(
            DATABASE + random.randrange(len(DATABASE_STATEMENTS)),
            random.choice((2.0, 5.0, 12.0, 30.0, 60.0)),
        )
        for _ in range(random.choice((0, 1, 2, 2, 3)))
    )
    events: list[tuple[int, DatabaseEvent]] = [
        (random.randint(1, 500), "write") for _ in range(10)
    ]
    events += [(random.randint(1, 400), "column") for _ in range(random.choice((0, 0, 1, 2)))]
    if random.random() < 0.3:
        events.append((random.randint(40, 400), "promote"))
        clients = (*clients, Client(DATABASE, random.choice((20.0, 70.0))))
    if random.random() < 0.2:
        events.append((random.randint(40, 400), "lose slot"))
    clients = drawn.clients[: random.choice((0, 0, 1))] + clients
    last = len(drawn.runtimes) + len(clients) - 1  # the one behind it must suffer nothing
    faults = tuple(replace(each, process=min(each.process, last)) for each in drawn.faults)
    aim = random.choice(("slot", "copy", "manifest", "load", "alive", "rows", ""))
    if aim:
        kind: FaultKind = random.choice(("crash", "crash", "suspend"))
        faults += (Fault(0, 1, kind, random.choice((45.0, 90.0)), aim),)
    return replace(
        drawn, clients=clients, faults=faults, database=tuple(sorted(events)),
        strides=Random(f"strides {seed}").choice((0, 0, 3, 8)),
    )


def draw_catalog(seed: int) -> StreamScenario:
    """That of a seed with a mirror of tables that are altered upstream while they are written."""
    drawn = draw_streams(seed)
    random = Random(f"catalog {seed}")
    clients = tuple(
        Client(
            CATALOG + random.randrange(len(CATALOG_STATEMENTS)),
            random.choice((2.0, 5.0, 12.0, 30.0, 60.0)),
        )
        for _ in range(random.choice((0, 0, 1, 1, 2)))
    )
    events = [
        (random.randint(1, 500), f"{WRITE}{random.randrange(1_000)}")
        for _ in range(random.choice((8, 16, 30)))
    ]
    groups = HARMLESS if random.random() < 0.2 else DDL
    for _ in range(random.choice((1, 1, 1, 2, 2, 3))):
        step, gap = random.randint(1, 400), random.choice((0, 0, 3, 15, 40))
        for number, statement in enumerate(random.choice(groups)):
            events.append((step + number * gap, statement))
            if random.random() < 0.5:
                more = random.randint(0, gap), random.randrange(1_000)
                events.append((step + number * gap + more[0], f"{WRITE}{more[1]}"))
    # a TRUNCATE of a partition leaves no trace behind a look at its rows (docs/postgres-sources.md)
    said = {statement for _, statement in events}
    if not said.isdisjoint(("TRUNCATE h_1", "TRUNCATE h_2")):
        events = [
            event for event in events
            if event[1] not in ("ANALYZE h", "ANALYZE h_1", "VACUUM FULL h_1", "VACUUM FULL h_2")
        ]
    last = len(drawn.runtimes) + len(clients) - 1  # the one behind it must suffer nothing
    faults = tuple(replace(each, process=min(each.process, last)) for each in drawn.faults)
    aim = random.choice(
        ("slot", "copy", "manifest", "load", "offsets", "decode", "behind", "rows", "commits", "")
    )
    if aim:
        kind: FaultKind = random.choice(("crash", "crash", "suspend"))
        faults += (Fault(0, random.randint(1, 200), kind, random.choice((45.0, 90.0)), aim),)
    return replace(
        drawn, clients=clients, faults=faults, records=(),
        ddl=tuple(sorted(events, key=lambda event: event[0])),
        strides=random.choice((0, 0, 3, 8)),
    )


def on_object_store(scenario: StreamScenario) -> StreamScenario:
    """A scenario with its checkpoints and snapshots on an object store, and faults of requests."""
    random = Random(f"object store {scenario.seed}")
    page = random.choice((1, 2, 3, 1000))
    faults = []
    for _ in range(random.choice((1, 1, 2, 3))):
        process = random.choice((0, 0, random.randrange(len(scenario.runtimes))))
        kind: FaultKind = random.choice(
            ("crash", "crash", "pause", "suspend", "fail", "fail", "fail", "in flight", "refuse")
        )
        of, amount = random.choice(REQUESTS), random.choice((12.0, 45.0, 90.0))
        if kind == "fail":
            amount = random.choice((0.0, 0.0, 2.0))
        if kind == "in flight":
            amount = random.choice((0.5, 2.0, 10.0))
        faults.append(Fault(process, random.randint(1, random.choice((30, 200, 600))), kind,
                            amount, f"{REQUEST}{of}"))
    return replace(scenario, page=page, faults=(*scenario.faults, *faults))


def encode_streams(scenario: StreamScenario) -> bytes:
    """A scenario as JSON, to be kept."""
    return msgspec.json.format(msgspec.json.encode(scenario, order="deterministic"), indent=1)


def decode_streams(text: bytes) -> StreamScenario:
    """A kept scenario."""
    return msgspec.json.decode(text, type=StreamScenario)


def smaller(scenario: StreamScenario) -> Iterator[StreamScenario]:
    """Scenarios with something taken away; processes keep their numbers, the last go first."""
    for faults in less(scenario.faults):
        yield replace(scenario, faults=faults)
    for records in less(scenario.records):
        yield replace(scenario, records=records)
    for events in less(scenario.database):
        if events:
            yield replace(scenario, database=events)
    for statements in less(scenario.ddl):
        if statements:
            yield replace(scenario, ddl=statements)
    for again in less(scenario.again):
        yield replace(scenario, again=again)
    if len(scenario.sinks) > 1:
        yield replace(scenario, sinks=scenario.sinks[:-1])
    if scenario.clients:
        yield replace(scenario, clients=scenario.clients[:-1])
    # a runtime stands before the clients in number, so that leaving one out renumbers them
    for gone in range(len(scenario.runtimes)):
        yield replace(
            scenario,
            runtimes=scenario.runtimes[:gone] + scenario.runtimes[gone + 1 :],
            faults=tuple(
                replace(each, process=each.process - (each.process > gone))
                for each in scenario.faults if each.process != gone
            ),
        )
