"""A catalog in memory with connections, sources and sinks, for everything that needs no engine."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from catalog_migrate.catalog.memory_log import MemoryLog
from catalog_migrate.catalog.opening import create_catalog, read_state
from catalog_migrate.catalog.state import State
from catalog_migrate.sql.parser import parse
from catalog_migrate.streams.catalog.statement_changes import Effect
from catalog_migrate.streams.ddl.plans import plan_statement
from tests.decisions import commit

Do = Callable[[str], list[Effect]]

SETTING = """
CREATE SECRET pw AS 'env:PW';
CREATE CONNECTION base TO KAFKA (BROKER 'a.example.com:9092', SECURITY PROTOCOL 'SASL_PLAINTEXT',
  SASL MECHANISMS 'SCRAM-SHA-512', SASL USERNAME 'app', SASL PASSWORD SECRET pw);
CREATE CONNECTION c TO KAFKA (USING CONNECTION base, kafka.linger.ms '5');
CREATE CONNECTION other TO KAFKA (BROKER 'b.example.com:9092');
CREATE CONNECTION pg TO POSTGRES (HOST 'db.example.com', DATABASE 'shop', USER 'app');
CREATE SOURCE s (id BIGINT, name STRING) FROM KAFKA CONNECTION c (TOPIC 't') FORMAT JSON;
CREATE SOURCE far (id BIGINT) FROM KAFKA CONNECTION other (TOPIC 'u') FORMAT JSON;
CREATE SINK k FROM s INTO KAFKA CONNECTION c (TOPIC 'o') KEY (id) FORMAT JSON;
CREATE SINK p FROM s INTO POSTGRES CONNECTION pg (TABLE 'orders');
"""


@pytest.fixture
def log() -> MemoryLog:
    """An empty catalog."""
    log = MemoryLog()
    create_catalog(log, warehouse="/warehouse")
    return log


@pytest.fixture
def do(log: MemoryLog) -> Do:
    """Plan and commit each statement of a text, without validation or engine."""

    def run(text: str) -> list[Effect]:
        effects = []
        for parsed in parse(text):
            effect = plan_statement(read_state(log), parsed.statement)
            if effect.updates:
                changes = effect.updates
                commit(log, lambda _, changes=changes: changes, kind="test")  # type: ignore[misc]
            effects.append(effect)
        return effects

    return run


@pytest.fixture
def plan(log: MemoryLog) -> Callable[[str], Effect]:
    """Plan one statement on the present state; nothing is committed."""

    def run(text: str) -> Effect:
        (parsed,) = parse(text)
        return plan_statement(read_state(log), parsed.statement)

    return run


@pytest.fixture
def state(log: MemoryLog) -> Callable[[], State]:
    """The present state."""
    return lambda: read_state(log)


@pytest.fixture
def setting(do: Do) -> list[Effect]:
    """The setting of most tests: two branches of connections with sources and sinks."""
    return do(SETTING)


@pytest.fixture
def source_and_sink(do: Do) -> None:
    """Source ``s`` on Kafka and sink ``k`` below it, in cluster ``main``."""
    do(
        "CREATE CLUSTER main; CREATE CONNECTION c TO KAFKA (BROKER 'a.example.com:9092');"
        "CREATE SOURCE s (id BIGINT) IN CLUSTER main FROM KAFKA CONNECTION c (TOPIC 't') "
        "FORMAT JSON;"
        "CREATE SINK k IN CLUSTER main FROM s INTO KAFKA CONNECTION c (TOPIC 'o') KEY (id) "
        "FORMAT JSON"
    )
