"""Rows of a topic that was created again under its name, and the sinks that would send them."""

from __future__ import annotations

import msgspec
import pytest

from catalog_migrate.catalog.memory_log import MemoryLog
from catalog_migrate.catalog.opening import create_catalog, read_state
from catalog_migrate.catalog.records import OperationRecord, UnsafeAct
from catalog_migrate.catalog.state import State
from catalog_migrate.operations.kinds import UNSAFE
from catalog_migrate.sql.parser import parse
from catalog_migrate.streams.catalog import dependencies
from catalog_migrate.streams.catalog.operation_records import Move, UnsafeCommit, earlier_rows
from catalog_migrate.streams.catalog.query_spec import first_stream
from catalog_migrate.streams.ddl.create import create
from catalog_migrate.streams.ddl.plans import plan_statement
from catalog_migrate.streams.positions.plan import Row
from catalog_migrate.streams.positions.positions import sent_before
from tests.decisions import Changes, commit
from tests.services.left_behind import leave

SETTING = """
CREATE CONNECTION c TO KAFKA (BROKER 'a:9092');
CREATE CONNECTION pg TO POSTGRES (HOST 'db', DATABASE 'shop', USER 'app');
CREATE SOURCE s (id BIGINT) FROM KAFKA CONNECTION c (TOPIC 't') FORMAT JSON;
CREATE SINK k FROM s INTO KAFKA CONNECTION c (TOPIC 'o') FORMAT JSON;
CREATE SINK p FROM s INTO POSTGRES CONNECTION pg (TABLE 'o');
"""
BEFORE, AFTER = {"t": "1"}, {"t": "2"}


@pytest.fixture
def log() -> MemoryLog:
    """A source with two sinks."""
    log = MemoryLog()
    create_catalog(log, warehouse="/warehouse")
    for parsed in parse(SETTING):
        changes = plan_statement(read_state(log), parsed.statement).updates
        assert changes is not None
        commit(log, lambda _, changes=changes: changes, kind="test")  # type: ignore[misc]
    return log


def moved(log: MemoryLog, topics: dict[str, str], former: dict[str, str] | None = None) -> State:
    """The state after a move at version 7 of the table, from what BEFORE says to ``topics``."""
    state = read_state(log)
    found = dependencies.find(state, "source", "s")
    move = Move(
        item_id=found.item_id, definition=found.item.definition, links=dict(found.item.links),
        line="-", generation=1, topics=BEFORE, version=7,
    )
    act = UnsafeAct(
        "who", "host", "at", "why", {}, commit=msgspec.to_builtins(UnsafeCommit((move,)))
    )
    stream = first_stream(found.item_id)

    changes = Changes()
    changes.put("stream", found.item_id, msgspec.structs.replace(
        stream, topics=topics, former=former or {},
    ))
    changes.put("operation", "o1", OperationRecord(UNSAFE, "done", unsafe=act))
    return leave(log, changes)


def test_another_topic_of_the_same_name(log: MemoryLog) -> None:
    """Rows of the earlier one came up to the version at which the source stood still."""
    state = moved(log, AFTER)
    assert earlier_rows(state, dependencies.find(state, "source", "s").item_id) == {"t": 7}


def test_also_when_the_source_has_gone_on_to_a_third(log: MemoryLog) -> None:
    """What it read in between is known by the ids of former topics."""
    state = moved(log, {"v": "3"}, former=AFTER)
    assert earlier_rows(state, dependencies.find(state, "source", "s").item_id) == {"t": 7}


def test_the_same_topic(log: MemoryLog) -> None:
    """A move within one topic, or away from it, leaves its keys as they are."""
    for topics, former in ((BEFORE, {}), ({"v": "3"}, BEFORE)):
        state = moved(log, topics, former)
        assert earlier_rows(state, dependencies.find(state, "source", "s").item_id) == {}


@pytest.mark.parametrize(
    ("name", "target", "refused"), [("k", 7, True), ("k", 8, False), ("p", 1, False)]
)
def test_a_sink_goes_back(log: MemoryLog, name: str, target: int, refused: bool) -> None:
    """A KAFKA sink must not come to the versions with rows of the earlier topic again; Postgres
    has no such keys."""
    state = moved(log, AFTER)
    row = Row("s", 0, current=9, target=target)
    found = sent_before(state, dependencies.find(state, "sink", name).item_id, (row,))
    assert [("t was created again" in each, "version 7" in each) for each in found] == (
        [(True, True)] if refused else []
    )


def test_a_new_sink_says_so(log: MemoryLog) -> None:
    """It would send them all: whoever creates it is told what its consumers will make of that."""
    (parsed,) = parse("CREATE SINK n FROM s INTO KAFKA CONNECTION c (TOPIC 'n') FORMAT JSON")
    assert not any("repeats" in each for each in create(read_state(log), parsed.statement).notices)
    notices = create(moved(log, AFTER), parsed.statement).notices
    assert any("holds rows of t from before it was created again" in each for each in notices)
