"""What each kind of source and sink takes: every format, clause and reference, as one table."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from catalog_migrate.api.status import status_of
from catalog_migrate.catalog.memory_log import MemoryLog
from catalog_migrate.catalog.opening import read_state
from catalog_migrate.errors import InvalidOptions, RefusedStatement
from catalog_migrate.streams.catalog import dependencies
from catalog_migrate.streams.catalog.statement_changes import Effect
from tests.decisions import Changes, commit

Plan = Callable[[str], Effect]

CASES = Path(__file__).parents[3] / "shared" / "cases" / "streams" / "statements.txt"
"""Statements that an earlier version took, or refused as a fault of its own."""

BEFORE = """
CREATE CLUSTER main; CREATE CONNECTION c TO KAFKA (BROKER 'a.example.com:9092');
CREATE CONNECTION p TO POSTGRES (HOST 'db.example.com', DATABASE 'd', USER 'u');
CREATE CONNECTION f TO FILES (PATH '/data');
CREATE CONNECTION csv TO FILES (PATH '/data', FORMAT csv);
CREATE CONNECTION txt TO FILES (PATH '/data', FORMAT text);
CREATE CONNECTION whole TO FILES (PATH '/data', files.multiLine true, files.encoding 'UTF-16');
CREATE SOURCE old (v STRING) FROM FILES CONNECTION whole (PATH 'x', DECODING 'lenient');
CREATE CONNECTION r TO SCHEMA REGISTRY (URL 'https://r.example.com');
CREATE SOURCE s (id BIGINT, v STRING) FROM KAFKA CONNECTION c (TOPIC 'in') FORMAT JSON;
CREATE SOURCE j (id BIGINT, v STRING) FROM FILES CONNECTION f (PATH 'x')
"""

FORMATS = ("JSON", "TEXT", "BYTES", "CSV", "PARQUET", "AVRO", "PROTOBUF", "JSON SCHEMA", "MIRROR",
           "CHANGES", "XML")

SOURCES = {
    ("c", "BIGINT"): {"JSON"},
    ("c", "STRING"): {"JSON", "TEXT"},
    ("c", "VARCHAR(9)"): {"JSON", "TEXT"},
    ("c", "BINARY"): {"JSON", "BYTES"},
    ("c", "BIGINT", "r"): {"AVRO", "PROTOBUF", "JSON SCHEMA"},
    ("f", "BIGINT"): {"JSON"},
    ("csv", "BIGINT"): {"CSV"},
    ("csv", "ARRAY<INT>"): set(),
    ("txt", "STRING"): {"TEXT"},
    ("txt", "BIGINT"): set(),
}
"""Connection, type of the only column, registry; and the formats that it goes with."""

SINKS: dict[tuple[str, ...], set[str]] = {
    ("c", "TOPIC"): {"JSON"}, ("c", "TOPIC", "r"): {"AVRO", "JSON SCHEMA"}, ("p", "TABLE"): set(),
}

KINDS = {"c": "KAFKA", "p": "POSTGRES", "f": "FILES", "csv": "FILES", "txt": "FILES"}


@pytest.fixture(autouse=True)
def before(do: Any) -> None:
    """Connections of each type, and two sources."""
    do(BEFORE)


def using(registry: tuple[str, ...]) -> str:
    return f" USING SCHEMA REGISTRY CONNECTION {registry[0]}" if registry else ""


def taken(plan: Plan, text: str) -> bool:
    """Whether a statement is taken; what is not is the caller's mistake."""
    try:
        plan(text)
    except RefusedStatement as refused:
        return not refused.remedy  # a refusal says what to write
    return True


@pytest.mark.parametrize("place", SOURCES, ids=" ".join)
def test_formats_of_sources(plan: Plan, place: tuple[str, ...]) -> None:
    """Exactly those of the table are taken."""
    connection, type_, *registry = place
    where = "TOPIC 't'" if connection == "c" else "PATH 'x'"
    found = {
        format_ for format_ in FORMATS if taken(
            plan, f"CREATE SOURCE x (v {type_}) FROM {KINDS[connection]} CONNECTION {connection}"
            f" ({where}) FORMAT {format_}{using(tuple(registry))}",
        )
    }
    assert found == SOURCES[place]


@pytest.mark.parametrize("place", SINKS, ids=" ".join)
def test_formats_of_sinks(plan: Plan, place: tuple[str, ...]) -> None:
    """Exactly those of the table are taken."""
    connection, option, *registry = place
    found = {
        format_ for format_ in FORMATS if taken(
            plan, f"CREATE SINK x FROM s INTO {KINDS[connection]} CONNECTION {connection}"
            f" ({option} 'o') FORMAT {format_}{using(tuple(registry))}",
        )
    }
    assert found == SINKS[place]


@pytest.mark.parametrize(
    "text",
    [
        "CREATE SOURCE x FROM KAFKA CONNECTION c (TOPIC 't') FORMAT TEXT",
        "CREATE SOURCE x FROM KAFKA CONNECTION c (TOPIC 't') FORMAT BYTES",
        "CREATE SOURCE x FROM FILES CONNECTION txt (PATH 'x')",
        "CREATE SOURCE x (v BIGINT) FROM FILES CONNECTION csv (PATH 'x')",
        "CREATE SOURCE x (v BIGINT) FROM KAFKA CONNECTION c (TOPIC 't')",
        "CREATE SINK x FROM s INTO POSTGRES CONNECTION p (TABLE 'x') KEY (id)",
        "CREATE SINK x FROM j INTO POSTGRES CONNECTION p (TABLE 'x') KEY (id) ORDER BY (id)",
        "CREATE SOURCE x (v INT) FROM FILES CONNECTION whole (PATH 'x', DECODING 'lenient')",
        "ALTER SOURCE old SET (TRIGGER = '2 seconds')",
        "ALTER CONNECTION f SET (files.multiLine = false, files.encoding = 'utf-8')",
        "ALTER CONNECTION whole SET (files.charset = 'latin1')",
        "ALTER CONNECTION csv SET (files.multiLine = true)",
        "CREATE SECRET x AS 'file:/etc/secret'",
        "CREATE CONNECTION x TO KAFKA (BROKER 'h:1', kafka.max.poll.records = 5)",
        "CREATE CONNECTION x TO KAFKA (BROKER 'h:1', kafka.socket.timeout.ms = 5)",
    ],
)
def test_taken(plan: Plan, text: str) -> None:
    """The neighbours of what is refused."""
    assert plan(text).updates


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("CREATE SOURCE x (v INT) FROM KAFKA CONNECTION c (TOPIC 't') FORMAT JSON"
         " ON ERROR INTO default.X", "into itself"),
        ("CREATE SOURCE x (v INT) FROM FILES CONNECTION f (PATH 'x') ON ERROR INTO dead",
         "FILES sources have no ON ERROR INTO"),
        ("CREATE SINK x FROM j INTO KAFKA CONNECTION c (TOPIC 'o') ON ERROR INTO dead",
         "KAFKA sinks have no ON ERROR INTO"),
        ("CREATE SOURCE x (v INT) FROM FILES CONNECTION f (PATH 'x') INCLUDE KEY",
         "FILES sources have no INCLUDE KEY"),
        ("CREATE SOURCE x (v INT) FROM FILES CONNECTION f (PATH 'x') FORMAT CSV",
         "the files of its connection are json"),
        ("CREATE SINK x FROM s INTO KAFKA CONNECTION c (TOPIC 'o') KEY (id) ORDER BY (id)",
         "KAFKA sinks have no ORDER BY"),
        ("CREATE SINK x FROM j INTO POSTGRES CONNECTION p (TABLE 'x') KEY (id)",
         "has KEY but no ORDER BY"),
        ("CREATE SECRET x AS 'file:etc/secret'",
         "secret default.x: the path of its file does not begin at the root"),
        ("CREATE SECRET x AS 'file:~/secret'",
         "secret default.x: the path of its file does not begin at the root"),
        ("CREATE SECRET x AS 'file:./secret'",
         "secret default.x: the path of its file does not begin at the root"),
        ("CREATE SOURCE x (v INT) FROM FILES CONNECTION whole (PATH 'x')", "its connection says"
         " files.encoding; DECODING 'exact' reads JSON by lines of UTF-8, its connection says"
         " files.multiline"),
        ("ALTER SOURCE old SET (DECODING = 'exact')", "its connection says files.multiline"),
        ("ALTER SOURCE j SET CONNECTION whole", "its connection says files.multiline"),
        ("ALTER CONNECTION f SET (files.charset = 'latin1')",
         "source default.j: DECODING 'exact' reads JSON by lines of UTF-8, its connection says"
         " files.charset"),
        ("CREATE SOURCE x (v BIGINT) FROM KAFKA CONNECTION c (TOPIC 't') FORMAT CSV INCLUDE KEY"
         " ON ERROR INTO dead", "KAFKA sources have no FORMAT CSV"),
        ("CREATE SOURCE x (v BIGINT) FROM FILES CONNECTION f (PATH 'x') FORMAT BYTES INCLUDE KEY"
         " ON ERROR INTO dead", "FORMAT BYTES; FILES sources have no INCLUDE KEY; FILES sources"),
    ],
)
def test_refused(plan: Plan, text: str, says: str) -> None:
    """With what it is about, and all of it at once."""
    with pytest.raises(RefusedStatement) as caught:
        plan(text)
    assert says in caught.value.message
    assert "etc/secret" not in str(caught.value)


def test_an_altered_secret_too(plan: Plan, do: Any) -> None:
    """ALTER SECRET … AS is held to the same."""
    do("CREATE SECRET x AS 'env:X'")
    with pytest.raises(RefusedStatement, match="does not begin at the root"):
        plan("ALTER SECRET x AS 'file:etc/secret'")


def test_every_statement_that_was_taken(plan: Plan) -> None:
    """Each of the statements on record is refused now, as the caller's mistake."""
    lines = CASES.read_text().splitlines() if CASES.exists() else []
    lines = [line for line in lines if line.startswith("CREATE ")]
    assert len(lines) == 13 or not CASES.exists()
    for line in lines:
        with pytest.raises((RefusedStatement, InvalidOptions)):
            plan(line)


def test_what_is_there_goes_on_and_is_reported(do: Any, plan: Plan, log: MemoryLog) -> None:
    """Definitions of an earlier version stay, an ALTER of something else passes, status lists
    them."""
    assert status_of(read_state(log)).refused == ()
    state = read_state(log)
    changes = Changes()
    for kind, name, edit in (
        ("source", "s", {"format": "TEXT"}),
        ("connection", "c", {"options": {
            "BROKER": "a.example.com:9092", "kafka.max.poll.recrods": "5",
        }}),
    ):
        entry = dependencies.find(state, kind, name)  # type: ignore[arg-type]
        external = msgspec.structs.replace(entry.external, **edit)  # type: ignore[arg-type]
        item = entry.item
        if kind == "source":
            columns = item.definition.columns
            definition = msgspec.structs.replace(
                item.definition, external=external, columns=(columns[0], *columns[2:])
            )
        else:
            definition = msgspec.structs.replace(item.definition, external=external)
        changes.put("item", entry.item_id, msgspec.structs.replace(item, definition=definition))
    commit(log, lambda _: changes, kind="test")
    assert status_of(read_state(log)).refused == (
        "connection default.c: option kafka.max.poll.recrods is none that Kafka's clients know; it"
        " goes on as before, and CREATE refuses it now",
        "source default.s: FORMAT TEXT gives STRING, and column id is BIGINT; it goes on as before,"
        " and CREATE refuses it now (declare id STRING, or write FORMAT JSON)",
    )
    assert plan("ALTER SOURCE s SET (TRIGGER = '2 seconds')").updates
    assert plan("ALTER CONNECTION c SET (BROKER 'b.example.com:9092')").updates
