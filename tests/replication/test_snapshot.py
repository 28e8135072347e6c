"""Rows before a slot and changes after it are the table, whoever writes meanwhile."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from catalog_migrate.connectors.postgres import server, survey
from catalog_migrate.connectors.postgres.pgoutput import Change, decode
from catalog_migrate.connectors.postgres.sessions import session
from catalog_migrate.connectors.postgres.snapshot import MANIFEST, Manifest, read_manifest, stage
from catalog_migrate.connectors.postgres.types import DiscoveredTable
from catalog_migrate.errors import ReplicationFailed, RowsHidden

if TYPE_CHECKING:
    from tests.services.upstream import Upstream


def rows_of(files: dict[str, bytes], manifest: Manifest, table: str) -> list[dict[str, Any]]:
    """The staged rows of a table, in their order."""
    (found,) = [one for one in manifest.tables if one.table == table]
    rows = [row for name in found.files
            for row in pq.read_table(pa.BufferReader(files[name])).to_pylist()]
    assert len(rows) == found.rows
    return rows


def changes_of(
    upstream: Upstream, slot: server.CreatedSlot, tables: tuple[DiscoveredTable, ...]
) -> list[Change]:
    """What the slot has."""
    with session(upstream.connection) as opened, opened.transaction():
        return list(decode(
            server.peek(opened, slot.name, "p", 1 << 62), start=slot.position.lsn, end=1 << 62,
            tables={one.full_name: one.expected() for one in tables},
        ))


def test_no_gap_and_no_repeat_under_writers(upstream: Upstream) -> None:
    """Two tables written in one transaction a time, through the whole making of slot and snapshot:
    snapshot and changes together have every row once, and both tables agree in the snapshot."""
    upstream.sql(
        "CREATE TABLE a (id int PRIMARY KEY)", "CREATE TABLE b (id int PRIMARY KEY)",
        "CREATE PUBLICATION p FOR TABLE a, b",
    )
    stop = threading.Event()
    written = []

    def write(first: int) -> None:
        with upstream.server.connect(upstream.role, upstream.database) as writer:
            number = first
            while not stop.is_set():
                writer.execute(
                    f"WITH x AS (INSERT INTO a VALUES ({number})) INSERT INTO b VALUES ({number})"
                    .encode()
                )
                number += 1
        written.append(number - first)

    writers = [threading.Thread(target=write, args=(10_000_000 * n,)) for n in range(3)]
    for one in writers:
        one.start()
    tables = survey.discover(upstream.connection, ["a", "b"], publication="p")
    files: dict[str, bytes] = {}
    progress: list[tuple[str, int]] = []
    with server.create_slot(upstream.connection, upstream.slot("s")) as slot:
        manifest = stage(
            upstream.connection, slot, tables, files.__setitem__, publication="p", rows=100,
            on_progress=lambda table, rows: progress.append((table, rows)),
        )
    stop.set()
    for one in writers:
        one.join()
    found = changes_of(upstream, slot, tables)
    before = {name: [row["after"][0] for row in rows_of(files, manifest, f"public.{name}")]
              for name in "ab"}
    after = {name: [one.after[0] for one in found if one.table == f"public.{name}" and one.after]
             for name in "ab"}
    assert sorted(before["a"]) == sorted(before["b"])
    for name in "ab":
        rows = before[name] + after[name]
        assert len(rows) == len(set(rows)) == sum(written)
    assert read_manifest(files[MANIFEST]) == manifest
    assert list(files)[-1] == MANIFEST
    assert progress[-1] == ("public.b", len(before["b"]))
    assert (manifest.slot, manifest.position) == (slot.name, slot.position)


def test_values_are_those_of_the_stream(upstream: Upstream) -> None:
    """Each type in one text, before and after the slot, whatever the role has set; rows that the
    publication leaves out are left out; files end by rows."""
    upstream.sql(
        'CREATE TABLE v (id int PRIMARY KEY, t text, "c" char(5), b bool, raw bytea,'
        " at timestamptz, local timestamp, d date, i interval, n numeric(10,2), f float8, r real,"
        " l text[], j jsonb, u uuid, m money)",
        """INSERT INTO v VALUES
           (1, E'tab\\tnew\\nline \\\\ \\\\N é', 'ab', true, '\\xdeadbeef',
            '0044-03-15 12:00:00+00 BC', '2024-01-02 03:04:05.678', 'infinity', '1 day 2:03:04',
            1.5, 'NaN', 0.1, ARRAY['a,b', NULL, E'q"\\\\'], '{"a": [1, null]}',
            '00000000-0000-0000-0000-000000000001', 1.5),
           (2, '', '', false, '', '-infinity', 'infinity', '0001-01-01 BC', '-1 mon', NULL,
            '-Infinity', 1e-30, '{}', 'null', NULL, -2)""",
        "INSERT INTO v (id, t) VALUES (3, '\\N'), (-4, 'not published')",
        f"ALTER ROLE {upstream.role} SET datestyle = 'German'",
        f"ALTER ROLE {upstream.role} SET bytea_output = 'escape'",
        f"ALTER ROLE {upstream.role} SET timezone = 'Asia/Tokyo'",
        f"ALTER ROLE {upstream.role} SET extra_float_digits = -5",
        "CREATE PUBLICATION p FOR TABLE v WHERE (id > 0)",
    )
    tables = survey.discover(upstream.connection, ["v"], publication="p")
    files: dict[str, bytes] = {}
    with server.create_slot(upstream.connection, upstream.slot("s")) as slot:
        manifest = stage(
            upstream.connection, slot, tables, files.__setitem__, publication="p", rows=2
        )
    upstream.sql("UPDATE v SET id = id")
    rows = rows_of(files, manifest, "public.v")
    found = {one.after[0]: one.after for one in changes_of(upstream, slot, tables) if one.after}
    assert {row["after"][0]: tuple(row["after"]) for row in rows} == found
    assert sorted(found) == ["1", "2", "3"]
    assert found["1"][1:9] == (
        "tab\tnew\nline \\ \\N é", "ab   ", "t", "\\xdeadbeef", "0044-03-15 12:00:00+00 BC",
        "2024-01-02 03:04:05.678", "infinity", "1 day 02:03:04",
    )
    assert found["3"][1] == "\\N"
    assert [row["sequence"] for row in rows] == [0, 1, 2]
    assert {(row["operation"], row["lsn"]) for row in rows} == {("snapshot", slot.position.lsn)}
    assert len(manifest.tables[0].files) == 2


def test_a_table_that_is_rewritten_meanwhile(upstream: Upstream) -> None:
    """Its old rows cannot be seen any more: refused, without a manifest."""
    upstream.sql(
        "CREATE TABLE t (id int PRIMARY KEY)", "INSERT INTO t VALUES (1)",
        "CREATE PUBLICATION p FOR TABLE t",
    )
    tables = survey.discover(upstream.connection, ["t"], publication="p")
    files: dict[str, bytes] = {}
    with server.create_slot(upstream.connection, upstream.slot("s")) as slot:
        upstream.sql("ALTER TABLE t ALTER id TYPE bigint")
        with pytest.raises(ReplicationFailed, match="truncated or rewritten while its snapshot"):
            stage(upstream.connection, slot, tables, files.__setitem__, publication="p")
    assert files == {}


def test_policies_hide_rows(upstream: Upstream) -> None:
    """An error that says what the role needs, where row level security would leave some rows only;
    a row filter of the publication is no policy."""
    upstream.sql(
        "CREATE TABLE t (id int PRIMARY KEY)", "INSERT INTO t SELECT generate_series(1, 5)",
        "CREATE PUBLICATION p FOR TABLE t WHERE (id > 1)",
        "ALTER TABLE t ENABLE ROW LEVEL SECURITY",
        "ALTER TABLE t FORCE ROW LEVEL SECURITY", "CREATE POLICY few ON t USING (id < 3)",
    )
    tables = survey.discover(upstream.connection, ["t"], publication="p")
    files: dict[str, bytes] = {}
    with server.create_slot(upstream.connection, upstream.slot("s")) as slot:
        with pytest.raises(RowsHidden, match=r"public\.t: role .* row-level security") as caught:
            stage(upstream.connection, slot, tables, files.__setitem__, publication="p")
        assert (caught.value.remedy or "").startswith(f"ALTER ROLE {upstream.role} BYPASSRLS")
        assert files == {}
        upstream.sql(f"ALTER ROLE {upstream.role} BYPASSRLS", owner=True)
        stage(upstream.connection, slot, tables, files.__setitem__, publication="p")
    rows = pq.read_table(pa.BufferReader(files["0000-000000.parquet"])).to_pylist()
    assert [row["after"] for row in rows] == [["2"], ["3"], ["4"], ["5"]]
