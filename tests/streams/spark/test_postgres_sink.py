"""POSTGRES sinks on a real server: exactly once, upserts, refusals, fences."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest

from catalog_migrate.connectors.postgres.ledger import Ledger
from catalog_migrate.connectors.query import FENCE
from catalog_migrate.connectors.secrets import Secret
from catalog_migrate.errors import EngineFailure, LedgerMismatch, QueryFenced
from catalog_migrate.model.objects import Column

from .conftest import POSITION

pytestmark = [pytest.mark.spark, pytest.mark.services]

ALL_TYPES = (
    Column("id", "BIGINT", nullable=False), Column("small", "TINYINT"),
    Column("price", "DECIMAL(12,3)"), Column("ratio", "DOUBLE"), Column("yes", "BOOLEAN"),
    Column("text", "STRING"), Column("raw", "BINARY"), Column("day", "DATE"),
    Column("at", "TIMESTAMP"), Column("tags", "ARRAY<STRING>"),
    Column("inner", "STRUCT<a: INT, b: STRING>"), Column("bag", "MAP<STRING, INT>"),
)  # fmt: skip
CREATE_ALL_TYPES = """CREATE TABLE "Everything" (id bigint, small smallint, price numeric,
  ratio double precision, yes boolean, "TEXT" text, raw bytea, day date, at timestamptz,
  tags jsonb, "inner" jsonb, bag jsonb)"""
PAIR = (Column("id", "BIGINT"), Column("v", "STRING"))
Sql = Callable[..., list[tuple[Any, ...]]]


def test_every_type_exactly_once(
    workshop: Any, database: dict[str, Any], sql: Sql, forget_commit: Callable[..., int]
) -> None:
    """Values of every type arrive as they were, and a batch that is run again adds nothing."""
    sql(CREATE_ALL_TYPES)
    shard = workshop.shard("all", ALL_TYPES)
    workshop.insert(
        shard,
        """(1, -5, 12.345, 0.1, true, 'a\\tb\\\\N\\n\\r"ü', X'00FF5C', DATE'2026-01-02',
            TIMESTAMP'2026-01-02 03:04:05.123456Z', array('x', NULL),
            named_struct('a', 1, 'b', NULL), map('k', 2)),
           (2, NULL, NULL, double('-Infinity'), NULL, '', X'', NULL, NULL, NULL,
            CAST(NULL AS STRUCT<a: INT, b: STRING>), NULL),
           (3, NULL, -0.001, double('NaN'), false, '\\\\N', NULL, DATE'0001-01-01', NULL, array(),
            NULL, map())""",
    )
    spec = workshop.sink("POSTGRES", database, (shard, ALL_TYPES), {"TABLE": '"Everything"'})
    query = workshop.run(spec, rows=3)
    expected = [
        (
            1, -5, Decimal("12.345"), 0.1, True, 'a\tb\\N\n\r"ü', b"\x00\xff\\", "2026-01-02",
            "2026-01-02 03:04:05.123456", ["x", None], {"a": 1, "b": None}, {"k": 2},
        ),
        (2, None, None, float("-inf"), None, "", b"", None, None, None, None, None),
        (3, None, Decimal("-0.001"), "NaN", False, "\\N", None, "0001-01-01", None, [], None, {}),
    ]  # fmt: skip
    select = (
        'SELECT id, small, price, ratio, yes, "TEXT", raw, day::text,'
        " (at AT TIME ZONE 'UTC')::text, tags, \"inner\", bag FROM \"Everything\" ORDER BY id"
    )
    found = [
        tuple("NaN" if isinstance(v, float) and v != v else v for v in row) for row in sql(select)
    ]
    assert found == expected

    assert workshop.queries.last_batch(spec, query.query_id) == {"postgres": 0}
    forget_commit(spec)
    workshop.insert(
        shard,
        "(4, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL)",
    )
    workshop.run(spec, rows=1)
    assert sql('SELECT id, count(*) FROM "Everything" GROUP BY id ORDER BY id') == [
        (1, 1), (2, 1), (3, 1), (4, 1),
    ]  # fmt: skip
    assert sql("SELECT query_id, batch, item FROM catalog_migrate_ledger ORDER BY batch") == [
        (query.query_id, 0, spec.item_id), (query.query_id, 1, spec.item_id),
    ]  # fmt: skip


def test_last_row_of_each_key(workshop: Any, database: dict[str, Any], sql: Sql) -> None:
    """The last row of a key by ORDER BY stands, within a batch and over batches; NULL is first."""
    columns = (Column("id", "BIGINT"), Column("version", "INT"), Column("v", "STRING"))
    sql("CREATE SCHEMA sales")
    sql("CREATE TABLE sales.orders (id bigint PRIMARY KEY, version int, v text)")
    shard = workshop.shard("keyed", columns)
    workshop.insert(shard, "(1, 2, 'b'), (1, 1, 'a'), (2, 5, 'x'), (3, NULL, 'n'), (3, 1, 'm')")
    spec = workshop.sink(
        "POSTGRES", database, (shard, columns), {"TABLE": "sales.orders"},
        key=("ID",), order_by=("version",),
    )  # fmt: skip
    workshop.run(spec, rows=5)
    select = "SELECT * FROM sales.orders ORDER BY id"
    assert sql(select) == [(1, 2, "b"), (2, 5, "x"), (3, 1, "m")]
    workshop.insert(shard, "(1, 3, 'c'), (2, 4, 'late'), (3, NULL, 'n'), (4, NULL, 'q')")
    workshop.run(spec, rows=4)
    assert sql(select) == [(1, 3, "c"), (2, 5, "x"), (3, 1, "m"), (4, None, "q")]
    assert sql("SELECT count(*) FROM sales.catalog_migrate_ledger") == [(2,)]


def test_order_that_is_missing(workshop: Any, database: dict[str, Any]) -> None:
    """KEY on rows without positions needs ORDER BY; refused before anything starts."""
    shard = workshop.shard("pair", PAIR)
    spec = workshop.sink("POSTGRES", database, (shard, PAIR), {"TABLE": "t"}, key=("id",))
    with pytest.raises(EngineFailure, match="ORDER BY") as caught:
        workshop.queries.prepare(spec).start()
    assert caught.value.condition == "ORDER_BY_MISSING"


def test_failures_keep_the_secret(workshop: Any, database: dict[str, Any], sql: Sql) -> None:
    """A refused login and a missing table say what they are, without the password."""
    shard = workshop.shard("pair", PAIR)
    workshop.insert(shard, "(1, 'a')")
    sql("CREATE TABLE narrow (id bigint)")
    wrong = {**database, "PASSWORD": Secret("wrong-marker-1")}
    refused, missing, narrow = (
        workshop.start(workshop.sink("POSTGRES", connection, (shard, PAIR), {"TABLE": table}))
        for connection, table in ((wrong, "t"), (database, "nowhere"), (database, "narrow"))
    )
    failure = workshop.await_failure(refused)
    assert failure.condition == "OperationalError"
    assert "password authentication failed" in failure.causes[-1]
    assert "wrong-marker-1" not in repr(failure)

    failure = workshop.await_failure(missing)
    assert failure.condition == "LedgerMismatch"
    assert failure.causes[-1].startswith('LedgerMismatch: there is no table "nowhere"')

    failure = workshop.await_failure(narrow)
    assert failure.condition == "UNDEFINED_COLUMN"
    assert failure.causes == ("EngineFailure: table narrow has no column v",)


def test_rows_that_the_table_refuses(
    workshop: Any, database: dict[str, Any], sql: Sql, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With ON ERROR INTO they are among the dead letters with key, offset and reason, and every
    other row is in the table, once each, wherever the runtime dies; of a key the last row that the
    table takes is there. Without it the error names table, column and the hash of the key, and
    shows no value."""
    from catalog_migrate.connectors.postgres import sink as postgres_sink

    columns = (
        Column("id", "BIGINT"), Column("v", "STRING"), Column("parent", "BIGINT"),
        Column("day", "DATE"), *POSITION,
    )  # fmt: skip
    sql(
        "CREATE TABLE t (id int PRIMARY KEY, v varchar(7) NOT NULL CHECK (v <> 'never'),"
        " parent int REFERENCES t DEFERRABLE INITIALLY DEFERRED, day date)"
    )
    rows = (
        ("1", "concat('secr', char(0))", "NULL"), ("2", "'secretly'", "NULL"),
        ("3", "'good'", "NULL"), ("4", "NULL", "NULL"), ("5", "'never'", "NULL"),
        ("6", "'child'", "7"), ("7", "'parent'", "NULL"), ("8", "'orphan'", "99"),
        ("9", "'grand'", "8"), ("3000000000", "'far'", "NULL"), ("NULL", "'no key'", "NULL"),
        ("10", "'first'", "NULL"), ("10", "'second'", "NULL"), ("10", "'far too long'", "NULL"),
        ("NULL", "'no key'", "NULL"),
    )  # fmt: skip
    shard = workshop.shard("refused", columns)
    workshop.insert(shard, ", ".join(
        f"({id_}, {v}, {parent}, DATE'-0043-03-15', 'in', 0, {offset}, TIMESTAMP'2026-01-02')"
        for offset, (id_, v, parent) in enumerate(rows)
    ))
    alone = workshop.shard("alone", columns)
    workshop.spark.sql(
        f"INSERT INTO delta.`{alone}` SELECT * FROM delta.`{shard}` WHERE _offset IN (0, 2)"
    )
    failing, spec = (
        workshop.sink(
            "POSTGRES", database, (path, columns), {"TABLE": "t"}, key=("id",),
            topic_ids={"in": "ID"}, dead_letters=path == shard,
        )
        for path in (alone, shard)
    )  # fmt: skip
    failure = workshop.await_failure(workshop.start(failing))
    assert failure.condition == "CM0747"
    assert failure.causes[-1] == (
        f"RowRefused: table t refuses a row of sink {failing.name}: character not in repertoire"
        " (22021), column v (key sha256 6b86b273ff34fce1), from topic in, partition 0, offset 0"
    )
    assert failure.place == {
        "topic": "in", "partition": "0", "offset": "0", "table": "t", "column": "v",
        "key": "6b86b273ff34fce1",
    }
    assert "ON ERROR INTO" in failure.remedy
    assert "secr" not in repr(failure)
    assert sql("SELECT * FROM t") == []

    with monkeypatch.context() as dying:
        dying.setattr(postgres_sink, "append_refused", lambda *_: 1 / 0)
        assert "ZeroDivisionError" in repr(workshop.await_failure(workshop.start(spec)))
    expected = [
        (3, "good", None), (6, "child", 7), (7, "parent", None), (10, "second", None),
    ]  # fmt: skip
    select = "SELECT id, v, parent FROM t ORDER BY id"
    assert sql(select) == expected
    assert workshop.rows(spec.dead_letters) == []
    assert sql("SELECT count(*) FROM catalog_migrate_refused") == [(10,)]
    workshop.insert(
        shard, "(11, 'later', NULL, DATE'+10000-01-01', 'in', 0, 100, TIMESTAMP'2026-01-02')"
    )
    workshop.run(spec, rows=1)
    assert sql(select) == [*expected, (11, "later", None)]
    assert sql("SELECT day::text FROM t WHERE id IN (3, 11) ORDER BY id") == [
        ("0044-03-15 BC",), ("10000-01-01",),
    ]  # fmt: skip
    letters = workshop.rows(
        spec.dead_letters, "_offset, CAST(key AS STRING), split(error, ':')[0], _topic, _partition,"
        " CAST(value AS STRING)"
    )
    assert [(row[0], row[1], row[2].partition(" (")[2]) for row in letters] == [
        (0, "1", "22021)"), (1, "2", "22001)"), (3, "4", "23502)"),
        (4, "5", "23514, constraint t_v_check)"), (7, "8", "23503, constraint t_parent_fkey)"),
        (8, "9", "23503, constraint t_parent_fkey)"), (9, "3000000000", "22003)"),
        (10, None, "23502)"), (13, "10", "22001)"), (14, None, "23502)"),
    ]  # fmt: skip
    assert {row[3:5] for row in letters} == {("in", 0)}
    assert json.loads(letters[0][5])["v"] == "secr\0"
    assert sql("SELECT count(*) FROM catalog_migrate_refused") == [(0,)]


def test_stop_while_the_server_hangs(
    workshop: Any, database: dict[str, Any], sql: Sql, postgres: Any
) -> None:
    """A batch that waits for a lock is broken off after the drain time; nothing is doubled."""
    sql("CREATE TABLE t (id bigint, v text)")
    shard = workshop.shard("pair", PAIR)
    workshop.insert(shard, "(1, 'a'), (2, 'b')")
    spec = workshop.sink("POSTGRES", database, (shard, PAIR), {"TABLE": "t"})
    with (
        postgres.connect(database["USER"], database["DATABASE"]) as blocker,
        blocker.transaction(),
    ):
        blocker.execute("LOCK TABLE t")
        query = workshop.start(spec)
        waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
        deadline = time.monotonic() + 120
        while sql(waiting) != [(1,)]:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert not query.stop(drain=0.3)  # the lock is still held: only a broken-off batch ends
        assert not query.active
    assert sql("SELECT * FROM t") == []
    workshop.queries.finish_batch(spec, timeout=120)
    assert sql("SELECT * FROM t ORDER BY id") == [(1, "a"), (2, "b")]


def test_ledger_is_compared(workshop: Any, database: dict[str, Any], sql: Sql) -> None:
    """A server without the committed batch, one that is ahead, and a fence are refused."""
    sql("CREATE TABLE t (id bigint, v text)")
    ledger = Ledger(database, "t")
    assert ledger.check("q", None).last_batch is None
    with pytest.raises(LedgerMismatch, match=r"ends at batch none .* checkpoint at batch 4"):
        ledger.check("q", 4)
    with ledger.connect("q") as connection:
        ledger.create(connection)
        for batch in range(103):
            with connection.transaction():
                assert ledger.claim(connection, "q", batch, "u1")
        with connection.transaction():
            assert not ledger.claim(connection, "q", 102, "u1")
    assert sql("SELECT min(batch), count(*) FROM catalog_migrate_ledger") == [(3, 100)]
    assert ledger.check("q", 102).last_batch == 102
    assert ledger.check("q", 101).last_batch == 102
    with pytest.raises(LedgerMismatch, match="passed over"):
        ledger.check("q", 100)
    with pytest.raises(LedgerMismatch, match="lags behind"):
        ledger.check("q", 103)


def test_fence_against_a_frozen_runtime(
    workshop: Any, database: dict[str, Any], sql: Sql
) -> None:
    """A fence ends the open transaction of a frozen writer, and no later batch gets in."""
    sql("CREATE TABLE t (id bigint, v text)")
    shard = workshop.shard("pair", PAIR)
    workshop.insert(shard, "(1, 'a')")
    spec = workshop.sink("POSTGRES", database, (shard, PAIR), {"TABLE": "t"})
    query = workshop.run(spec, rows=1)
    ledger = Ledger(database, "t")
    frozen = ledger.connect(query.query_id)
    try:
        assert ledger.claim(frozen, query.query_id, 1, spec.item_id)
        frozen.execute("INSERT INTO t VALUES (9, 'never')")
        ledger.fence(query.query_id, spec.item_id)
        with pytest.raises(Exception, match="terminating connection"):
            frozen.commit()
    finally:
        frozen.close()
    state = ledger.read(query.query_id)
    assert (state.last_batch, state.fenced) == (0, True)
    with pytest.raises(QueryFenced):
        ledger.check(query.query_id, 0)
    workshop.insert(shard, "(2, 'b')")
    failure = workshop.await_failure(workshop.start(spec))
    assert failure.condition == "QueryFenced"
    assert sql("SELECT * FROM t") == [(1, "a")]
    assert sql("SELECT max(batch) FROM catalog_migrate_ledger") == [(FENCE,)]
