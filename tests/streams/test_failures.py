"""What a query failed of, from the error to the terminal: records, holds, statements to paste."""

from __future__ import annotations

import ast
import importlib
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from catalog_migrate.catalog.memory_log import MemoryLog
from catalog_migrate.catalog.opening import create_catalog, read_state
from catalog_migrate.catalog.records import HoldRecord
from catalog_migrate.catalog.state import State
from catalog_migrate.connectors.postgres.sessions import marked, parse_failure
from catalog_migrate.connectors.postgres.types import Column
from catalog_migrate.errors import (
    CatalogMigrateError,
    CatalogWriteRefused,
    ChangesMissing,
    ConnectionFailed,
    EngineFailure,
    InvalidOptions,
    LeaseExpired,
    LeaseLost,
    PositionLost,
    SlotMissing,
    StoreFailure,
    TableChanged,
    UnreadableMessage,
    UpstreamChanged,
)
from catalog_migrate.sql import statements as st
from catalog_migrate.sql.parser import parse
from catalog_migrate.streams.catalog import dependencies, failures
from catalog_migrate.streams.catalog.cluster_log import (
    FAILURE,
    FENCE,
    OPERATION,
    OPERATOR,
    UPSTREAM,
)
from catalog_migrate.streams.catalog.failures import Failure
from catalog_migrate.streams.catalog.queries import QueryFailure
from catalog_migrate.streams.catalog.statement_changes import Effect
from catalog_migrate.streams.catalog.upstream_tables import FINAL, hold_of
from catalog_migrate.streams.ddl.plans import is_planned, plan_statement
from catalog_migrate.streams.ddl.show import show, stalled_queries
from catalog_migrate.streams.positions.requests import request_of
from catalog_migrate.streams.runtime import supervisor
from catalog_migrate.streams.runtime.supervisor import Supervisor
from tests.decisions import Changes, commit
from tests.simulation.databases import SimulatedDatabases
from tests.streams.test_operations import Stage, StreamWorld
from tests.streams.test_show import runtime

Do = Callable[[str], list[Effect]]

HELD = (*FINAL, UpstreamChanged, PositionLost)
"""Errors that hold a query at once, beside TableChanged, which decides by the columns."""

ROOT = Path(__file__).parents[2] / "catalog_migrate"

AWKWARD = "`$(odd)`.`it's \"quoted\"`"
"""A name with everything that SQL or a shell takes for something else; the grammar takes it."""

RESERVED = "default.`1a`"
"""A name of the catalog in backticks, which a shell would carry out."""


def raised() -> Iterator[tuple[str, int, ast.Call]]:
    """Every place in the code that makes an error which holds a query."""
    names = {each.__name__ for each in HELD}
    # a slot is dropped there, of a source that is no longer
    own = {"streams/upstreams/databases.py"}
    for path in sorted(ROOT.rglob("*.py")):
        if str(path.relative_to(ROOT)) in own:
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) \
                    and node.func.id in names:
                yield str(path.relative_to(ROOT)), node.lineno, node


def statements_of(path: str, call: ast.Call) -> tuple[str, ...] | None:
    """What the call gives as ``statements``, evaluated in its own module."""
    module = importlib.import_module("catalog_migrate." + path[:-3].replace("/", "."))
    for keyword in call.keywords:
        if keyword.arg == "statements":
            code = compile(ast.Expression(keyword.value), path, "eval")
            found = eval(code, vars(module), {"spec": _Spec})
            return tuple(found)
    return None


class _Spec:
    kind = "source"


RAISED = list(raised())


@pytest.mark.parametrize(
    ("path", "call"), [(path, call) for path, _, call in RAISED],
    ids=[f"{path}:{line}" for path, line, _ in RAISED],
)
def test_every_error_that_holds_has_its_statements(path: str, call: ast.Call) -> None:
    """Each carries statements as data, and each is one of the grammar once it has the name."""
    assert isinstance(call.func, ast.Name)
    found = statements_of(path, call)
    if call.func.id == UnreadableMessage.__name__:
        assert found is None  # nothing but another version reads it: RESUME
        return
    assert found
    for each in found:
        (parsed,) = parse(failures.insert_name(each, AWKWARD))
        named = parsed.statement
        assert getattr(named, "name", AWKWARD) == AWKWARD
        assert "…" not in each


def changed(*new: Column) -> TableChanged:
    old = (Column("id", 20, key=True), Column("a", 25))
    return TableChanged("it changed", table="public.t", old=old, new=new, lsn=100)


def of_errors(name: str) -> dict[str, Failure]:
    """A hold of every kind that an error leads to, for the source of that name."""
    errors: dict[str, CatalogMigrateError] = {
        "slot": SlotMissing("no slot", statements=("ALTER SOURCE {source} UNSAFE RESET SPLITS "
                                                   "REASON 'r'",)),
        "message": UnreadableMessage("no message"),
        "added": changed(Column("id", 20, key=True), Column("a", 25), Column("b", 25)),
        "missing": changed(Column("id", 20, key=True)),
        "retyped": changed(Column("id", 20, key=True), Column("a", 23)),
    }
    found = {kind: hold_of(error, name) for kind, error in errors.items()}
    found["topic"] = failures.of_error(
        UpstreamChanged("another topic", statements=("ALTER SOURCE {source} UNSAFE RESET SPLITS "
                        "WITH (ACCEPT NEW TOPIC = true) REASON 'r'",)), name
    )
    expired = failures.describe_expired([("t", 0, 5, 10, 20)], name)
    assert expired is not None
    found["expired"] = expired
    for kind, text in (
        ("record", "cannot read the record at topic t-1, partition 2, offset 30: it has no value"),
        ("partitions", "[KAFKA_DATA_LOSS.PARTITIONS_DELETED] Partitions t-1 were deleted"),
        ("lost", "[KAFKA_DATA_LOSS.COULD_NOT_READ_OFFSET_RANGE] they are gone"),
        ("other", "a fault without a remedy"),
    ):
        found[kind] = failures.of_query(QueryFailure("X", (text,)), "source", name)
    return found


SOURCES = f"""
CREATE CLUSTER main; CREATE CONNECTION c TO KAFKA (BROKER 'a.example.com:9092');
CREATE SOURCE s (id BIGINT) IN CLUSTER main FROM KAFKA CONNECTION c (TOPIC 't-1') FORMAT JSON;
CREATE SOURCE {RESERVED} (id BIGINT) IN CLUSTER main FROM KAFKA CONNECTION c (TOPIC 't-1')
  FORMAT JSON;
CREATE SINK k IN CLUSTER main FROM s INTO KAFKA CONNECTION c (TOPIC 'o')
"""


@pytest.fixture
def log(tmp_path: Path) -> MemoryLog:
    """An empty catalog."""
    log = MemoryLog()
    create_catalog(log, warehouse=str(tmp_path))
    return log


HOLDERS = {
    OPERATOR: Failure("", "because"), f"{OPERATION}1": Failure("", "under way"),
    FENCE: Failure("", "not proven dead"),
    **{f"{UPSTREAM}/{kind}": each for kind, each in of_errors("{source}").items()},
    **{f"{FAILURE}/{kind}": each for kind, each in of_errors("{source}").items()},
    f"{UPSTREAM}/before": Failure("", "topic t was recreated"),
    f"{UPSTREAM}/slot before": Failure(
        "", "no slot; take a new snapshot: ALTER SOURCE s UNSAFE RESET SPLITS REASON '…' (the)"
    ),
    f"{UPSTREAM}/columns before": Failure(
        "", "it: write ALTER SOURCE s SET (UPSTREAM COLUMNS = 'evolve') to take it over"
    ),
}
"""Every reason for which a query is held, by its holder."""


@pytest.mark.parametrize("lives", [True, False], ids=["runtime", "no runtime"])
@pytest.mark.parametrize("name", ["default.s", RESERVED], ids=["plain", "in backticks"])
@pytest.mark.parametrize("holder", HOLDERS)
def test_next_can_be_pasted(
    log: MemoryLog, do: Do, holder: str, name: str, lives: bool
) -> None:
    """A shell takes ``next`` apart into words, and its statements are planned as they stand."""
    do(SOURCES)
    if lives:
        runtime(log)
    state = read_state(log)
    item = dependencies.find(state, "source", name).item_id
    failure = HOLDERS[holder]
    failure = msgspec.structs.replace(
        failure, statements=tuple(failures.insert_name(each, name) for each in failure.statements)
    )
    put(log, f"{item}/{holder}", failure.to_hold(item, holder.split("/")[0], "2026-01-31"))
    (found,) = (each for each in stalled_queries(read_state(log)) if each.name == name)
    words = shlex.split(found.next)
    if not found.statements:
        assert words == ["catalog-migrate", "run", "--cluster", "default.main"]
        return
    assert words[:3] == ["catalog-migrate", "sql", "-c"]
    assert words[3] == "; ".join(found.statements)
    parsed = parse(words[3])
    assert len(parsed) == len(found.statements)
    for each in parsed:
        act(read_state(log), each.statement)
    rows = show(read_state(log), "sources")
    (row,) = (
        each for each in (dict(zip(rows.columns, values, strict=True)) for values in rows.values)
        if each["name"] == name
    )
    assert (row["next"], row["remedy"] or "") == (words[3], found.remedy)


def act(state: State, statement: st.Statement) -> None:
    """Have a statement planned as far as it can be without a server."""
    if isinstance(statement, st.Unsafe):
        request_of(state, statement)
    elif isinstance(statement, st.AlterItem):  # for POSTGRES, and all here are of KAFKA
        with pytest.raises(InvalidOptions, match="no option UPSTREAM COLUMNS"):
            plan_statement(state, statement)
    elif is_planned(statement):
        plan_statement(state, statement)
    else:
        assert isinstance(statement, (st.Show, st.ShowCreate, st.ValidateConnection))


def put(log: MemoryLog, key: str, record: HoldRecord) -> None:
    changes = Changes()
    changes.put("hold", key, record)
    commit(log, lambda _: changes, kind="test")


def test_an_error_keeps_its_record_through_spark() -> None:
    """Statements, remedy and place come out of the text that Spark hands on."""
    error = SlotMissing(
        "no slot", remedy="a new snapshot", slot="x", statements=("RESUME SOURCE {source}",)
    )
    found = parse_failure(f"org.apache.spark.SparkException: {marked(error)}\n at x")
    assert found is not None
    assert failures.of_error(found, "a.b") == Failure(
        "CM0775", "no slot", "a new snapshot", ("RESUME SOURCE a.b",), {"slot": "x"}
    )


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("value 'a' at offset 7", "value 'b' at offset 8", True),
        ("no slot", "no table", False),
        ("Query x / caused by: no slot", "Query y / caused by: no slot", True),
        (
            "id 0a1b2c3d-aaaa-bbbb-cccc-0123456789ab", "id ffffffff-aaaa-bbbb-cccc-abcdefabcdef",
            True,
        ),
        ("refused (4442587FB7D0A2F9)", "refused (A442587FB7D0A2FE)", True),
        ("Extended Request ID: vPB+x/a=, no", "Extended Request ID: k/Q9+z==, no", True),
        ("the topic orders_of_europe", "the topic orders_of_africa", False),
    ],
)
def test_a_cause(one: str, other: str, same: bool) -> None:
    """Two failures are of one cause whatever record, value or query it was."""
    assert (Failure("C", one).cause == Failure("C", other).cause) is same
    assert Failure("C", one).cause != Failure("D", one).cause


def test_causes_without_end() -> None:
    """Only the causes that were met last are counted, each from its first time on."""
    causes: dict[str, int] = {}
    for number in range(10 * failures.CAUSES):
        word = "".join(chr(ord("a") + int(digit)) for digit in str(number))
        failures.count_try(Failure("C", f"other {word}"), causes)
        again = failures.count_try(Failure("C", "the same"), causes)
        assert again.tries == number + 1
    assert len(causes) == failures.CAUSES


@pytest.mark.parametrize(
    "error", [StoreFailure("no answer"), LeaseLost("taken over"), LeaseExpired("renewed 21 s ago")]
)
def test_a_store_or_a_lease_is_never_a_hold(error: CatalogMigrateError) -> None:
    """An outage ends by itself, however often a query fails of it."""
    assert failures.of_error(error, "a.b").passing


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (ChangesMissing("it was altered"), "source default.s is not held yet: no space left"),
        (
            changed(Column("id", 20, key=True), Column("a", 25), Column("b", 25)),
            "source default.s: column change not applied yet: no space left",
        ),
    ],
)
def test_what_became_of_a_table_cannot_be_written(
    error: CatalogMigrateError, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk is reported, and the next failure meets the change again."""
    stage = Stage(tmp_path, StreamWorld({"t": [3, 2], "u": [4]}))
    stage.run_all()
    source = dependencies.find(stage.state, "source", "s").item_id
    monkeypatch.setattr(Supervisor, "_table", lambda *_: None)
    monkeypatch.setattr(supervisor, "tables_to_copy", lambda *_: None)
    monkeypatch.setattr(SimulatedDatabases, "survey", lambda *_: None)

    def full(*_: object) -> None:
        raise CatalogWriteRefused("no space left")

    monkeypatch.setattr(Supervisor, "commit", full)
    stage.supervisor._upstream_failed(source, error)
    assert stage.said[-1] == told
    assert not stage.state.holds


def test_a_hold_that_cannot_be_written(tmp_path: Path) -> None:
    """A full disk is reported, and the next failure sets the hold."""
    stage = Stage(tmp_path, StreamWorld({"t": [3, 2], "u": [4]}))
    stage.run_all()
    source = dependencies.find(stage.state, "source", "s").item_id

    def full(call: str) -> None:
        if call == "append":
            raise CatalogWriteRefused("no space left on device")

    stage.log.on_call = full
    stage.supervisor.hold(source, Failure("C", "no slot"))
    assert stage.said[-1] == "source default.s is not held yet: no space left on device"
    stage.log.on_call = None
    assert not stage.state.holds
    stage.supervisor.hold(source, Failure("C", "no slot"))
    (hold,) = stage.state.holds.values()
    assert hold.reason == "no slot"


@pytest.mark.parametrize(
    ("error", "passing"),
    [
        (ConnectionFailed("nothing answers"), True),
        (EngineFailure("later", transient=True), True),
        (EngineFailure("never"), False),
        (SlotMissing("no slot"), False),
    ],
)
def test_what_passes(error: CatalogMigrateError, passing: bool) -> None:
    """A connection that is down, and what says that a retry may help."""
    assert failures.is_passing(error) is passing


class TestRepeated:
    """A query that fails again and again, on the simulated engine."""

    @pytest.fixture
    def stage(self, tmp_path: Path) -> Stage:
        """Two sources that run."""
        stage = Stage(tmp_path, StreamWorld({"t": [3, 2], "u": [4]}))
        stage.run_all()
        return stage

    def turns(self, stage: Stage, number: int = 600) -> None:
        for _ in range(number):
            stage.turn()
            stage.supervisor.clock.sleep(0.2)

    def test_the_same_cause_becomes_a_hold(self, stage: Stage) -> None:
        """After so many tries as declared; it says how many, and RESUME begins at the first."""
        stage.supervisor.hold_after = 3
        item = dependencies.find(stage.state, "source", "s").item_id
        stage.world.topics["t"] = [1, 2]
        self.turns(stage)
        (hold,) = (each for each in stage.state.holds.values() if each.item_id == item)
        assert (hold.holder, hold.code, hold.tries) == (FAILURE, "OFFSETS_OUT_OF_RANGE", 3)
        assert stage.supervisor.managed[item].restarts == 3
        assert any(
            line.startswith("source default.s is held, failure: records of") and "3 tries" in line
            for line in stage.said
        )
        (status,) = (
            each for each in stage.supervisor.statuses(stage.state) if each.item_id == item
        )
        assert (status.state, status.error) == ("held", hold.reason)
        assert status.failure is not None
        assert msgspec.json.decode(status.failure, type=Failure).tries == 3
        stage.run("RESUME SOURCE s")
        stage.turn()
        assert not stage.state.holds
        self.turns(stage)
        (hold,) = stage.state.holds.values()
        assert hold.tries == 3
        assert stage.supervisor.managed[item].restarts == 6
        stage.world.topics["t"] = [3, 2]
        stage.run("RESUME SOURCE s")
        self.turns(stage, 50)
        assert stage.supervisor.managed[item].active
        assert stage.supervisor.managed[item].failure is None

    @pytest.mark.parametrize("broker", ["a", "lame"])
    def test_a_connection_is_tried_on(self, stage: Stage, broker: str) -> None:
        """Never a hold, however long nothing answers, or the broker drops what it is asked."""
        stage.supervisor.hold_after = 2
        if broker == "a":
            stage.world.addresses["a:9092"] = ""
        else:
            stage.world.addresses["lame:9092"] = "one"
            connection = dependencies.find(stage.state, "connection", "c")
            external = msgspec.structs.replace(
                connection.external, options={"BROKER": "lame:9092"}
            )
            definition = msgspec.structs.replace(connection.item.definition, external=external)
            stage.put("item", connection.item_id, msgspec.structs.replace(
                connection.item, definition=definition
            ))
        self.turns(stage)
        item = dependencies.find(stage.state, "source", "s").item_id
        assert stage.supervisor.managed[item].restarts > 5
        assert not stage.state.holds
