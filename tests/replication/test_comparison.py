"""Buckets of a table on a real server: each row in one, the same there and here."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from catalog_migrate.connectors.postgres import server, snapshot
from catalog_migrate.connectors.postgres.comparison import (
    Bucket,
    ComparedColumn,
    estimate_rows,
    is_behind,
    look,
)
from catalog_migrate.connectors.postgres.sessions import session
from catalog_migrate.connectors.postgres.snapshot import chunks, copy_lines, selection
from catalog_migrate.connectors.postgres.survey import discover
from catalog_migrate.connectors.postgres.types import DiscoveredTable, Position
from catalog_migrate.connectors.postgres.values import (
    bucket_numbers,
    bucket_sql,
    key_sql,
    key_texts,
    upstream_values,
)
from catalog_migrate.errors import ReplicationFailed, SlotMissing, UnfitValue
from catalog_migrate.model.names import quote_postgres
from tests.services.postgres_types import NOT_KEYS, TYPES, literal

if TYPE_CHECKING:
    from tests.services.upstream import Upstream

pytestmark = pytest.mark.services
BUCKETS = 7


def columns_of(table: DiscoveredTable) -> list[ComparedColumn]:
    return [
        ComparedColumn(each.name, each.name, str(each.spark_type), each.name in table.key)
        for each in table.columns
    ]


def test_a_key_of_each_type_is_in_the_same_bucket_on_both_sides(upstream: Upstream) -> None:
    """The server's number of a row, by its SQL, is that of its value here, by Python."""
    types = [type_ for type_ in TYPES if type_ not in NOT_KEYS]
    listed = ", ".join(f"k{n} {type_}" for n, type_ in enumerate(types))
    rows = [
        ", ".join(literal(TYPES[type_][row % len(TYPES[type_])], type_) for type_ in types)
        for row in range(max(map(len, TYPES.values())))
    ]
    upstream.sql(
        f"CREATE TABLE k (id int PRIMARY KEY, {listed})",
        f"INSERT INTO k VALUES {', '.join(f'({n}, {row})' for n, row in enumerate(rows))}",
        "INSERT INTO k (id) VALUES (-1)",
    )
    (table,) = discover(upstream.connection, ["k"])
    assert len({each.spark_type for each in table.columns}) >= 12
    for column in table.columns:
        type_ = str(column.spark_type)
        number = bucket_sql([key_sql(type_, quote_postgres(column.name))], BUCKETS, 0)
        number = number.removesuffix(" = 0")
        with session(upstream.connection) as opened:
            query = selection(opened, table, "p", [quote_postgres(column.name), number])
            values = [each for part in chunks(copy_lines(opened, query), 2, 1000)
                      for each in part]
        ours = upstream_values(type_, pa.array(values[::2], pa.string()))
        found = bucket_numbers([key_texts(type_, ours)], BUCKETS)
        assert found.tolist() == [int(str(each)) for each in values[1::2]], column.type


def test_buckets_are_the_table(upstream: Upstream) -> None:
    """Together they have each published row once, and what differs in a value differs in its digest
    alone; a row that is written again is another version of itself."""
    upstream.sql(
        'CREATE TABLE "T" ("Id" int, part text, v numeric(10,2), PRIMARY KEY ("Id", part))',
        """INSERT INTO "T" SELECT n, 'é' || n % 3, n FROM generate_series(1, 300) AS n""",
        'CREATE PUBLICATION p FOR TABLE "T" WHERE ("Id" > 100)', 'ANALYZE "T"',
    )
    (table,) = discover(upstream.connection, ['"T"'], publication="p")
    columns = columns_of(table)

    def read(buckets: int) -> list[tuple[int, int, int]]:
        looks = [
            look(upstream.connection, table, columns, Bucket(number, buckets), publication="p")
            for number in range(buckets)
        ]
        assert all(one.begun <= one.lsn for one in looks)
        assert min(len(one.rows) for one in looks) > 0
        return sorted(
            row for one in looks for row in zip(
                one.rows.keys.tolist(), one.rows.digests.tolist(), one.rows.marks.tolist(),
                strict=True,
            )
        )

    whole = read(1)
    assert len(whole) == len({key for key, _, _ in whole}) == 200
    assert read(5) == whole
    upstream.sql(
        """UPDATE "T" SET v = 0 WHERE "Id" = 200""", """UPDATE "T" SET v = v WHERE "Id" = 201"""
    )
    changed = read(5)
    assert [key for key, _, _ in changed] == [key for key, _, _ in whole]
    assert sum(a[1] != b[1] for a, b in zip(whole, changed, strict=True)) == 1
    assert sum(a[2] != b[2] for a, b in zip(whole, changed, strict=True)) == 2
    assert estimate_rows(upstream.connection, table) == 300


def test_what_the_server_refuses(upstream: Upstream) -> None:
    """Policies that would hide rows are an error, and a value that is none of its type here says
    nothing of itself."""
    upstream.sql(
        "CREATE TABLE t (id int PRIMARY KEY, v text)", "INSERT INTO t VALUES (1, 'confidential')",
        "CREATE PUBLICATION p FOR TABLE t",
    )
    (table,) = discover(upstream.connection, ["t"], publication="p")
    one = Bucket(0, 1)
    wrong = [ComparedColumn("id", "id", "INT", key=True), ComparedColumn("v", "v", "INT")]
    with pytest.raises(ReplicationFailed, match="a value of column v is no INT") as caught:
        look(upstream.connection, table, wrong, one, publication="p")
    assert "confidential" not in f"{caught.value} {caught.value.__cause__}"
    upstream.sql(
        "ALTER TABLE t ENABLE ROW LEVEL SECURITY", "ALTER TABLE t FORCE ROW LEVEL SECURITY"
    )
    with pytest.raises(ReplicationFailed, match="row-level security") as caught:
        look(upstream.connection, table, columns_of(table), one, publication="p")
    assert f"ALTER ROLE {upstream.role} BYPASSRLS" in str(caught.value.remedy)


def test_a_value_that_is_no_text(upstream: Upstream, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a database without an encoding any bytes may come: the column is named, and nothing of the
    row is in the error."""
    upstream.sql(
        "CREATE TABLE t (id int PRIMARY KEY, left_out text, v text)",
        "CREATE PUBLICATION p FOR TABLE t",
    )
    (table,) = discover(upstream.connection, ["t"], publication="p")
    columns = [each for each in columns_of(table) if each.upstream != "left_out"]

    def lines(*_: object) -> Iterator[str]:
        yield str(b"1\tconfidential\xff\t1/2/3", "utf-8")

    monkeypatch.setattr(snapshot, "copy_lines", lines)
    with pytest.raises(UnfitValue, match=r"column v of public\.t is no text") as caught:
        look(upstream.connection, table, columns, Bucket(0, 1), publication="p")
    assert caught.value.data["column"] == "v"
    assert "confidential" not in f"{caught.value} {caught.value.data} {caught.value.__cause__}"


def test_whether_a_reader_is_behind(upstream: Upstream) -> None:
    """By changes of the publication alone: what others write does not count, what was committed
    and is not in the log yet does."""
    upstream.sql(
        "CREATE TABLE t (id int PRIMARY KEY)", "CREATE TABLE other (id int)",
        "CREATE PUBLICATION p FOR TABLE t",
    )
    (table,) = discover(upstream.connection, ["t"], publication="p")
    with server.create_slot(upstream.connection, upstream.slot("s")) as slot:
        start = slot.position

    def behind(position: Position, lsn: int) -> bool:
        return is_behind(upstream.connection, slot.name, "p", position, lsn)

    def seen() -> int:
        return look(
            upstream.connection, table, columns_of(table), Bucket(0, 1), publication="p"
        ).lsn

    upstream.sql("INSERT INTO other SELECT generate_series(1, 1000)", "CHECKPOINT", owner=True)
    assert not behind(start, seen())
    for _ in range(20):  # also where the log ends with a page
        upstream.sql("SELECT pg_switch_wal()", owner=True)
        assert not behind(start, seen())
    upstream.sql("INSERT INTO t VALUES (1)")
    lsn = seen()
    assert behind(start, lsn)
    upstream.sql("CHECKPOINT", owner=True)  # the server may have logged something since, unflushed
    with session(upstream.connection) as opened:
        end = server.log_end(opened)
    assert not behind(Position(end, start.timeline, start.system), lsn)
    upstream.sql("SET synchronous_commit = off; INSERT INTO t VALUES (2)")
    assert behind(Position(end, start.timeline, start.system), seen())
    with pytest.raises(SlotMissing):
        is_behind(upstream.connection, "none", "p", start, lsn)
