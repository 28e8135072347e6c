"""Statements carried out without any service: commits, secrets, EXPLAIN, IF EXISTS, errors."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from catalog_migrate.catalog.clock import SystemClock
from catalog_migrate.catalog.opening import read_state
from catalog_migrate.connectors.kafka import probe as kafka_probe
from catalog_migrate.errors import (
    CatalogMigrateError,
    SyntaxProblem,
    UnknownItem,
    UnsafeRefused,
    ValidationFailed,
)
from catalog_migrate.model.findings import Finding
from catalog_migrate.sql.parser import parse
from catalog_migrate.sql.statements import Explain
from catalog_migrate.streams.catalog import dependencies
from catalog_migrate.streams.ddl.execute import Executor

if TYPE_CHECKING:
    from catalog_migrate.catalog.memory_log import MemoryLog


@pytest.fixture(autouse=True)
def _a_closed_port_is_believed_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody listens at the brokers of this file; how long that is doubted is not its subject."""
    monkeypatch.setattr(kafka_probe, "_SETTLED_SECONDS", 0.0)


@pytest.fixture
def executor(log: MemoryLog) -> Executor:
    """Executes on an empty catalog; nothing has a table."""
    return Executor(log, lambda _state, _item: None, SystemClock())


LAID_OUT = """
CREATE SECRET pw AS 'env:NOT_SET_ANYWHERE';
CREATE CLUSTER main;
CREATE CONNECTION c TO KAFKA (BROKER '127.0.0.1:1') WITH (VALIDATE = false);
CREATE CONNECTION alone TO KAFKA (BROKER '127.0.0.1:1') WITH (VALIDATE = false);
CREATE SOURCE s (id BIGINT) IN CLUSTER main FROM KAFKA CONNECTION c (TOPIC 't') FORMAT JSON;
CREATE SINK k IN CLUSTER main FROM s INTO KAFKA CONNECTION c (TOPIC 'o') KEY (id) FORMAT JSON
"""


def test_each_is_a_commit(executor: Executor, log: MemoryLog, tmp_path: Path) -> None:
    """The first error ends a text; what stands before it is done, and what comes after is not."""
    before = log.version()
    seen: list[str] = []
    with pytest.raises(UnknownItem, match="nope"):
        executor.run(
            f"CREATE CLUSTER a; CREATE CONNECTION f TO FILES (PATH '{tmp_path}');"
            "DROP CLUSTER nope; CREATE CLUSTER b",
            lambda result: seen.append(result.summary),
        )
    assert seen == ["cluster default.a created", "connection default.f created"]
    assert log.version() == before + 2
    state = read_state(log)
    assert dependencies.lookup(state, "connection", "f") is not None
    assert dependencies.lookup(state, "cluster", "b") is None


def test_a_slip_leaves_all_undone(executor: Executor, log: MemoryLog) -> None:
    """A text is parsed whole: a mistake in its last statement is found before the first is done."""
    before = log.version()
    with pytest.raises(SyntaxProblem, match=r"line 2"):
        executor.run("CREATE CLUSTER a;\nCREATE CLUSTER")
    assert log.version() == before


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE CONNECTION d TO KAFKA (BROKER 'b.example.com:9092', SECURITY PROTOCOL "
        "'SASL_PLAINTEXT', SASL MECHANISMS 'SCRAM-SHA-512', SASL USERNAME 'u', "
        "SASL PASSWORD SECRET pw)",
        "ALTER CONNECTION alone SET (SECURITY PROTOCOL = 'SASL_PLAINTEXT', SASL MECHANISMS = "
        "'SCRAM-SHA-512', SASL USERNAME = 'u', SASL PASSWORD = SECRET pw)",
        "VALIDATE CONNECTION c",
        "ALTER CONNECTION c AS POSTGRES SET (kafka.linger.ms = 5)",
        "ALTER CONNECTION c DROP (BROKER)",
        "ALTER CONNECTION c SET (USING CONNECTION = c)",
        "DROP CONNECTION c",
        "ALTER SINK k SET CONNECTION nope",
        "ALTER SOURCE s SET (TOPIC = 'u')",
    ],
)
def test_refused(executor: Executor, log: MemoryLog, statement: str) -> None:
    """What cannot be, or cannot be reached, or has a secret that does not resolve: a typed error
    with a remedy, and nothing is committed."""
    executor.run(LAID_OUT)
    before = log.version()
    with pytest.raises(CatalogMigrateError) as caught:
        executor.run(statement)
    assert caught.value.remedy or caught.value.data.get("problems")
    assert caught.value.code != "CM0000"
    assert log.version() == before
    if "SECRET pw" in statement:
        assert "NOT_SET_ANYWHERE" in str(caught.value)


@pytest.mark.parametrize(
    "statement",
    [
        "ALTER CONNECTION IF EXISTS nope SET (BROKER = 'x:1')",
        "ALTER SECRET IF EXISTS nope",
        "ALTER SOURCE IF EXISTS nope SET (TRIGGER = '5 seconds')",
        "ALTER SINK IF EXISTS nope SET (TRIGGER = '5 seconds')",
        "ALTER SOURCE IF EXISTS nope UNSAFE RESET SPLITS REASON 'r'",
        "ALTER CONNECTION IF EXISTS nope RENAME TO other",
        "DROP SINK IF EXISTS nope",
    ],
)
def test_if_exists(executor: Executor, log: MemoryLog, statement: str) -> None:
    """On nothing it does nothing, and a notice says so."""
    before = log.version()
    (result,) = executor.run(statement)
    assert result.notices
    assert log.version() == before


def test_a_secret_keeps_its_comment(executor: Executor) -> None:
    """Whether it came with CREATE or with COMMENT ON, SHOW CREATE prints it, as one statement."""
    shown = []
    for name, given in (
        ("a", "CREATE SECRET a AS 'env:X' COMMENT 'it''s why'"),
        ("b", "CREATE SECRET b AS 'env:X'; COMMENT ON SECRET b IS 'it''s why'"),
    ):
        executor.run(given)
        shown.append(executor.run(f"SHOW CREATE SECRET {name}")[-1].summary)
    assert "COMMENT" in shown[0]
    assert shown[1].replace("SECRET default.b", "SECRET default.a") == shown[0]
    executor.run("DROP SECRET a")
    executor.run(shown[0])
    assert executor.run("SHOW CREATE SECRET a")[-1].summary == shown[0]


def test_a_cluster_keeps_its_comment(executor: Executor) -> None:
    """Its CREATE has no clause for it, so SHOW CREATE prints a second statement."""
    executor.run("CREATE CLUSTER a; COMMENT ON CLUSTER a IS 'it''s why'")
    shown = executor.run("SHOW CREATE CLUSTER a")[-1].summary
    assert shown == "CREATE CLUSTER default.a;\nCOMMENT ON CLUSTER default.a IS 'it\\'s why';"
    executor.run("DROP CLUSTER a")
    executor.run(shown)
    assert executor.run("SHOW CREATE CLUSTER a")[-1].summary == shown


def test_explaining_writes_nothing(executor: Executor, log: MemoryLog) -> None:
    """EXPLAIN of every documented statement says something or refuses it, and commits nothing."""
    executor.run(LAID_OUT)
    before, told, refused = log.version(), 0, []
    page = (Path(__file__).parents[2] / "docs" / "statements.md").read_text("utf-8")
    blocks = re.findall(r"^```sql\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    for each in (parsed for block in blocks for parsed in parse(block)):
        statement: Any = each.statement
        if isinstance(statement, Explain):
            statement = statement.statement
        try:
            result = executor.execute(Explain(statement))
        except CatalogMigrateError as error:
            refused.append(error.remedy or getattr(error, "problems", None))
            continue
        assert result.summary, each.text
        told += 1
    assert told
    assert all(refused)
    assert log.version() == before


@pytest.mark.parametrize(
    ("statement", "what"),
    [
        ("CREATE CONNECTION d TO KAFKA (BROKER '127.0.0.1:1')", "connection default.d"),
        ("ALTER CONNECTION alone SET (BROKER = '127.0.0.1:2')",
         "the new definition of connection default.alone"),
        ("ALTER CONNECTION c SET (BROKER = '127.0.0.1:2')",
         "the new definition of connection default.c"),
        ("VALIDATE CONNECTION c", "connection default.c"),
    ],
)
def test_what_validation_refuses(executor: Executor, statement: str, what: str) -> None:
    """It is named as what it is, used or not, and each finding names its object once."""
    executor.run(LAID_OUT)
    with pytest.raises(ValidationFailed) as caught:
        executor.run(statement)
    assert caught.value.message == f"{what} was refused by validation, nothing was changed"
    for line in map(str, caught.value.findings):
        name = line.partition(",")[0].partition(":")[0]
        assert line.count(f"{name}:") + line.count(f"{name},") == 1


@pytest.mark.parametrize(
    ("message", "option", "code", "said"),
    [
        ("source s.x belongs to cluster a", None, "CM0752", "source s.x belongs to cluster a"),
        ("source s.xy is another", None, "", "source s.x: source s.xy is another"),
        ("nobody answers", None, "", "source s.x: nobody answers"),
        ("nobody answers", "BROKER", "", "source s.x, option BROKER: nobody answers"),
    ],
)
def test_a_finding_names_its_object_once(
    message: str, option: str | None, code: str, said: str
) -> None:
    """The sentence about another upstream names it already, by what it is and not by its words."""
    assert str(Finding("source s.x", option, "error", message, code=code)) == said


@pytest.mark.parametrize("kind", ["source", "sink"])
def test_whose_name_is_asked_for(executor: Executor, kind: str) -> None:
    """What is missing of an unsafe operation speaks of a source or of a sink, as it is."""
    executor.run(LAID_OUT)
    name = {"source": "s", "sink": "k"}[kind]
    action = {"source": "INJECT OFFSETS (TO latest)", "sink": "INJECT VERSION 1"}[kind]
    with pytest.raises(UnsafeRefused) as caught:
        executor.run(f"ALTER {kind} {name} {action}")
    missing = caught.value.data["missing"]
    assert f"the word: UNSAFE after the name of the {kind}" in missing
    assert f"the confirmation: --yes, or the {kind}'s name typed on a terminal" in missing
