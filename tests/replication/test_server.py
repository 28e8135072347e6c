"""A real server: its tables, what it refuses, its slots, and every protocol of its changes."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import msgspec
import psycopg
import pytest

from catalog_migrate.connectors.postgres import server, survey
from catalog_migrate.connectors.postgres.pgoutput import Change, decode
from catalog_migrate.connectors.postgres.preflight import preflight
from catalog_migrate.connectors.postgres.sessions import marked, parse_failure, session
from catalog_migrate.connectors.postgres.types import Column, Position, lsn_number, lsn_text
from catalog_migrate.connectors.secrets import Secret
from catalog_migrate.errors import (
    ConnectionFailed,
    OtherServer,
    OtherTimeline,
    PublicationMissing,
    ReplicationFailed,
    ReplicationNotAllowed,
    SlotAhead,
    SlotInUse,
    SlotLost,
    SlotMissing,
    TableChanged,
)
from catalog_migrate.streams.catalog.failures import is_passing
from tests.services.replication import slot_state

if TYPE_CHECKING:
    from tests.services.upstream import Upstream


def read(upstream: Upstream, slot: str, *tables: str, version: int = 1) -> list[Change]:
    """Everything that a slot has, through a version of the protocol."""
    found = survey.discover(upstream.connection, tables, publication="p")
    more = {1: "", 2: ", 'streaming', 'on'", 4: ", 'streaming', 'parallel'"}[version]
    with session(upstream.connection) as opened:
        opened.execute("SET logical_decoding_work_mem = '64kB'")
        messages = opened.cursor(binary=True).execute(
            f"SELECT 0, data FROM pg_logical_slot_peek_binary_changes('{slot}', NULL, NULL,"
            f" 'proto_version', '{version}', 'publication_names', 'p', 'messages', 'true'{more})"
            .encode()
        ).fetchall()
        kinds = {bytes(data[:1]) for _, data in messages}
        assert (b"S" in kinds) == (version > 1)
    return list(
        decode(messages, start=0, end=1 << 62, tables={t.full_name: t.expected() for t in found})
    )


@contextmanager
def new_slot(upstream: Upstream, name: str = "s") -> Iterator[server.CreatedSlot]:
    with server.create_slot(upstream.connection, upstream.slot(name)) as slot:
        yield slot


def test_discovery(upstream: Upstream) -> None:
    """Types with their own and our text, keys in their order, what is generated, what is published;
    everything that is not there or has no type at once."""
    upstream.sql(
        "CREATE DOMAIN price AS numeric(10,2)", "CREATE TYPE mood AS ENUM ('a', 'b')",
        'CREATE TABLE "Odd name" (b int NOT NULL, a bigint NOT NULL, "Mixed" varchar(9), p price,'
        " n numeric, huge numeric(40,2), m mood, l int[], at timestamptz, local timestamp(0),"
        " d date, raw bytea, j jsonb, r int4range, g int GENERATED ALWAYS AS (b * 2) STORED,"
        " v int GENERATED ALWAYS AS (b * 3), PRIMARY KEY (a, b))",
        "CREATE TABLE bad (id int PRIMARY KEY, t aclitem)", "CREATE VIEW w AS SELECT 1 AS one",
        'CREATE PUBLICATION p FOR TABLE "Odd name" WITH (publish_generated_columns = stored)',
    )
    (table,) = survey.discover(upstream.connection, ['"Odd name"'], publication="p")
    assert (table.full_name, table.key, table.identity) == (
        "public.Odd name", ("a", "b"), "default"
    )
    assert {one.name: (one.type, one.spark_type) for one in table.columns} == {
        "b": ("integer", "INT"), "a": ("bigint", "BIGINT"),
        "Mixed": ("character varying(9)", "STRING"), "p": ("public.price", "DECIMAL(10,2)"),
        "n": ("numeric", "STRING"), "huge": ("numeric(40,2)", "STRING"),
        "m": ("public.mood", "STRING"), "l": ("integer[]", "STRING"),
        "at": ("timestamp with time zone", "TIMESTAMP"),
        "local": ("timestamp(0) without time zone", "TIMESTAMP_NTZ"), "d": ("date", "DATE"),
        "raw": ("bytea", "BINARY"), "j": ("jsonb", "STRING"), "r": ("int4range", "STRING"),
        "g": ("integer", "INT"), "v": ("integer", "INT"),
    }
    assert [one.name for one in table.columns if one.not_null] == ["b", "a"]
    assert [(one.name, one.generated, one.published) for one in table.columns[-2:]] == [
        ("g", "stored", True), ("v", "virtual", False)
    ]
    assert [one.name for one in table.columns if one.filled] == ["b", "a", "g", "v"]
    with pytest.raises(ConnectionFailed) as caught:
        survey.discover(upstream.connection, ["bad", "nothing", "w"])
    assert [one.message for one in caught.value.findings] == [
        "column t of public.bad is aclitem, which has no type here",
        "there is no table nothing", "there is no table w",
    ]


def test_every_protocol_gives_the_same_changes(upstream: Upstream) -> None:
    """Large transactions side by side with parts rolled back, keys that change, large values that
    stay, columns that are added, truncates: through protocol 1, 2 and 4."""
    upstream.sql(
        "CREATE TABLE a (id bigint PRIMARY KEY, doc text)",
        "ALTER TABLE a ALTER doc SET STORAGE EXTERNAL",
        "CREATE TABLE b (id int PRIMARY KEY, v text)", "ALTER TABLE b REPLICA IDENTITY FULL",
        "CREATE PUBLICATION p FOR TABLE a, b",
    )
    with new_slot(upstream) as slot:
        pass
    many = "SELECT i, repeat('x', 200) FROM generate_series(%s::int, %s::int) AS i"
    one = upstream.server.connect(upstream.role, upstream.database)
    other = upstream.server.connect(upstream.role, upstream.database)
    with one, other:
        for number, writer in enumerate((one, other)):
            first = 10_000 * number
            writer.execute("BEGIN")
            writer.execute(f"INSERT INTO a {many}".encode(), (first, first + 999))
            writer.execute("SAVEPOINT s")
            writer.execute(f"INSERT INTO b {many}".encode(), (first, first + 999))
        one.execute("ROLLBACK TO s")
        other.execute("RELEASE s")
        other.execute("UPDATE b SET v = 'w' WHERE id < 10010")
        one.execute("SELECT pg_logical_emit_message(true, 'beat', '')")
        other.execute("UPDATE a SET id = id + 500000 WHERE id < 10003")
        one.execute("DELETE FROM a WHERE id < 5")
        other.execute("COMMIT")
        one.execute("COMMIT")
    upstream.sql(
        "INSERT INTO a VALUES (-1, repeat('y', 9000))", "UPDATE a SET id = -2 WHERE id = -1",
        "TRUNCATE a, b",
    )
    by_version = [read(upstream, slot.name, "a", "b", version=version) for version in (1, 2, 4)]
    assert by_version[0] == by_version[1] == by_version[2]
    found = by_version[0]
    assert len(found) == 1000 + 1000 + 10 + 3 + 1000 + 5 + 1 + 1 + 2
    assert [(one.before, one.after, one.unchanged) for one in found if one.unchanged] == [
        (("-1", None), ("-2", None), (1,))
    ]
    assert len({one.transaction for one in found}) == 5
    tables = {"public.b": survey.discover(upstream.connection, ["b"])[0].expected()}
    upstream.sql("ALTER TABLE b ADD COLUMN more int DEFAULT 5", "INSERT INTO b VALUES (1, 'a')")
    with session(upstream.connection) as opened, opened.transaction():
        messages = list(server.peek(opened, slot.name, "p", 1 << 62))
    with pytest.raises(TableChanged, match="changed upstream: column more is new") as caught:
        list(decode(messages, start=0, end=1 << 62, tables=tables))
    told = parse_failure(f"Job aborted: {marked(caught.value)}\n\tat org.apache")
    assert isinstance(told, TableChanged)
    assert told.new == (
        Column("id", 23, -1, True), Column("v", 25, -1, True), Column("more", 23, -1, True)
    )
    assert (told.table, told.old, told.remedy) == (
        "public.b", tables["public.b"].columns, caught.value.remedy
    )


def findings(upstream: Upstream, *tables: str, **more: Any) -> list[str]:
    """What is wrong, as (option: message; remedy)."""
    asked = {"publication": "p", "slot": upstream.slot("s"), "format": "MIRROR", **more}
    begun = time.monotonic()
    found = preflight(upstream.connection, tables=tables, **asked)
    assert time.monotonic() - begun < 15
    return [f"{one.option}: {one.message}; {one.remedy}" for one in found if not one.ok]


def test_preflight(upstream: Upstream) -> None:
    """Everything at once, with option and remedy; for a publication that is not there the statement
    that makes it, and after it all is well; nothing is written."""
    upstream.sql(
        "CREATE TABLE good (id bigint PRIMARY KEY, v text)", "CREATE TABLE keyless (id int)",
        "CREATE TABLE whole (id int, g int GENERATED ALWAYS AS (id) STORED, PRIMARY KEY (id))",
        "ALTER TABLE whole REPLICA IDENTITY FULL",
        "CREATE TABLE parted (id int PRIMARY KEY) PARTITION BY RANGE (id)",
        "CREATE TABLE part PARTITION OF parted FOR VALUES FROM (0) TO (9)",
        "CREATE TABLE silent (id int PRIMARY KEY)", "ALTER TABLE silent REPLICA IDENTITY NOTHING",
    )
    said = findings(upstream, "good", "keyless", "silent", "nope", slot="Bad-Name")
    assert [one.partition(";")[0] for one in said] == [
        "SLOT: Bad-Name is no name of a slot", "TABLES: there is no table nope",
        "TABLES: public.keyless has no primary key: once it is published, the server refuses UPDATE"
        " and DELETE on it",
        "TABLES: public.silent has REPLICA IDENTITY NOTHING: once it is published, the server"
        " refuses UPDATE and DELETE on it",
        "PUBLICATION: there is no publication p",
    ]
    (said_last,) = findings(upstream, "good", "whole", "parted")
    statement = "CREATE" + said_last.partition("; CREATE")[2]
    assert statement == (
        'CREATE PUBLICATION "p" FOR TABLE "public"."good", "public"."whole", "public"."parted"'
        " WITH (publish_via_partition_root = true, publish_generated_columns = stored);"
    )
    upstream.sql(statement)
    assert findings(upstream, "good", "whole", "parted") == []
    upstream.sql(
        "DROP PUBLICATION p",
        "CREATE PUBLICATION p FOR TABLE good (id), whole WITH (publish = 'insert, delete')",
    )
    assert [one.partition(";")[0] for one in findings(upstream, "good", "whole", "parted")] == [
        "TABLES: public.whole has REPLICA IDENTITY FULL and the generated column g, which is not"
        " published: the server refuses UPDATE and DELETE on it",
        "PUBLICATION: publication p leaves out v of public.good",
        "PUBLICATION: publication p does not hold public.parted",
        "PUBLICATION: publication p does not publish update, truncate, which MIRROR needs",
    ]
    assert upstream.sql(
        f"SELECT count(*) FROM pg_replication_slots WHERE database = '{upstream.database}'"
    ) == [(0,)]


def test_preflight_of_rows(upstream: Upstream) -> None:
    """Policies that apply to the role, rows of tables that inherit, and tables whose changes are in
    no log."""
    upstream.sql(
        "CREATE TABLE hidden (id int PRIMARY KEY)", "ALTER TABLE hidden ENABLE ROW LEVEL SECURITY",
        "ALTER TABLE hidden FORCE ROW LEVEL SECURITY", "CREATE TABLE parent (id int PRIMARY KEY)",
        "CREATE TABLE child (PRIMARY KEY (id)) INHERITS (parent)",
        "CREATE UNLOGGED TABLE loose (id int PRIMARY KEY)",
        "CREATE TABLE parted (id int PRIMARY KEY) PARTITION BY RANGE (id)",
        "CREATE UNLOGGED TABLE part PARTITION OF parted FOR VALUES FROM (0) TO (9)",
        f"ALTER ROLE {upstream.role} SUPERUSER", owner=True,
    )
    for name in ("hidden", "parent", "child", "loose", "parted"):
        upstream.sql(f"ALTER TABLE {name} OWNER TO {upstream.role}", owner=True)
    upstream.sql(
        "CREATE PUBLICATION p FOR ALL TABLES WITH (publish_via_partition_root = true)", owner=True
    )
    upstream.sql(f"ALTER ROLE {upstream.role} NOSUPERUSER", owner=True)
    assert findings(upstream, "hidden", "parent", "loose", "parted", new=True) == [
        f"TABLES: row level security lets role {upstream.role} see some rows of public.hidden only,"
        f" and all of them come first; ALTER ROLE {upstream.role} BYPASSRLS",
        "TABLES: public.child inherits from public.parent: a query of that gives its rows too, and"
        ' their changes come as those of their own table; ALTER TABLE "public"."child" NO INHERIT'
        ' "public"."parent", or name both among TABLES, which mirrors each by itself, or take'
        " FORMAT CHANGES",
        'TABLES: public.loose is unlogged: its changes are not in the server\'s log; ALTER TABLE'
        ' "public"."loose" SET LOGGED',
        "TABLES: partition public.part of public.parted is unlogged: its changes are not in the"
        " server's log; detach it, or leave the table out",
        "PUBLICATION: publication p does not hold public.loose; ALTER PUBLICATION \"p\" ADD TABLE"
        ' "public"."loose"',
    ]
    assert findings(upstream, "hidden") == []  # a stream is told nothing of policies
    upstream.sql(f"ALTER ROLE {upstream.role} BYPASSRLS", owner=True)
    assert findings(upstream, "hidden", "parent", "child", new=True) == []
    assert findings(upstream, "parent", format="CHANGES") == []


def test_slots(upstream: Upstream) -> None:
    """Made, read, advanced and dropped; each way in which a slot or its position is not ours has
    an error of its own, before anything is read."""
    upstream.sql("CREATE TABLE t (id int PRIMARY KEY)", "CREATE PUBLICATION p FOR TABLE t")
    connection = upstream.connection
    with new_slot(upstream) as slot:
        assert server.identity(connection) == (slot.position.system, slot.position.timeline)
        with pytest.raises(SlotInUse, match="already"), new_slot(upstream):
            pass
    assert findings(upstream, "t", new=True) != []
    upstream.sql("INSERT INTO t VALUES (1)")
    state = slot_state(connection, slot.name)
    assert state is not None
    assert (state.confirmed, state.plugin, state.is_here) == (slot.position.lsn, "pgoutput", True)
    assert state.lag == state.log_end - slot.position.lsn > 0
    (change,) = read_plain(upstream, slot.name)
    with session(connection) as opened:
        server.heartbeat(opened)
        now = server.read_slot(opened, slot.name)
        assert now is not None
        assert now.log_end > state.log_end
        assert server.has_changes(opened, now, "p", change.lsn, now.log_end)
        server.advance_slot(opened, slot.name, now.log_end)
        server.advance_slot(opened, slot.name, change.lsn)
        later = server.read_slot(opened, slot.name)
        assert later is not None
        assert later.confirmed == now.log_end
        assert not server.has_changes(opened, later, "p", now.log_end, now.log_end + 1000)
        here = Position(now.log_end, slot.position.timeline, slot.position.system)
        assert server.check_position(opened, connection, here) == here
        assert server.check_slot(later, slot.name, here) == later
        with pytest.raises(SlotAhead, match="the changes between are not to be had"):
            server.check_slot(later, slot.name, slot.position)
        with pytest.raises(OtherTimeline, match="restored from an older copy"):
            server.check_slot(later, slot.name, Position(1 << 60, 1, here.system))
        with pytest.raises(OtherServer):
            server.check_position(opened, connection, Position(here.lsn, here.timeline, "1"))
        with pytest.raises(OtherTimeline):
            server.check_position(opened, connection, Position(here.lsn, 99, here.system))
    upstream.sql("INSERT INTO t VALUES (2)")
    with pytest.raises(PublicationMissing), session(connection) as opened, \
            opened.transaction():
        list(server.peek(opened, slot.name, "another", 1 << 62))
    assert not server.drop_slot(connection, slot.name, confirmed_upto=slot.position.lsn - 1)
    assert server.drop_slot(connection, slot.name, confirmed_upto=now.log_end)
    assert not server.drop_slot(connection, slot.name)
    with pytest.raises(SlotMissing), session(connection) as opened, opened.transaction():
        list(server.peek(opened, slot.name, "p", 1 << 62))
    with pytest.raises(SlotMissing):
        server.check_slot(slot_state(connection, slot.name), slot.name, slot.position)
    upstream.sql(f"ALTER ROLE {upstream.role} NOREPLICATION", owner=True)
    with pytest.raises(ReplicationNotAllowed, match="REPLICATION"), new_slot(upstream):
        pass
    assert "it lacks REPLICATION" in findings(upstream, "t")[0]
    wrong = {**connection, "PASSWORD": Secret("wrong-marker")}
    with pytest.raises(ConnectionFailed) as caught, server.create_slot(wrong, "x"):
        pass
    assert caught.value.findings[0].option == "PASSWORD"


def read_plain(upstream: Upstream, slot: str) -> list[Change]:
    """Everything that a slot has, as the stream reads it."""
    (table,) = survey.discover(upstream.connection, ["t"], publication="p")
    with session(upstream.connection) as opened, opened.transaction():
        return list(decode(
            server.peek(opened, slot, "p", 1 << 62), start=0, end=1 << 62,
            tables={"public.t": table.expected()},
        ))


def test_a_slot_waits_for_open_transactions_in_vain(upstream: Upstream) -> None:
    """Not for ever, and leaves no slot behind: whom it waits for is named meanwhile and in the end,
    with its process and age, or as a prepared transaction; one that ends lets it go on."""
    upstream.sql("CREATE TABLE t (id int PRIMARY KEY)")
    name = upstream.slot("s")
    heard: list[str] = []
    with upstream.server.connect(upstream.role, upstream.database) as writer:
        pid = writer.info.backend_pid
        writer.execute("BEGIN")
        writer.execute("INSERT INTO t VALUES (1)")
        who = (
            rf"process {pid} of the server \(user {upstream.role}, idle in transaction\), open for"
        )
        with pytest.raises(ReplicationFailed, match="waits for the transactions") as caught, \
                server.create_slot(upstream.connection, name, timeout=2.0, on_wait=heard.append):
            pass
        assert re.search(rf"longer than 2 s \({who} [2-9] s\)", caught.value.message)
        assert f"pg_terminate_backend({pid})" in (caught.value.remedy or "")
        assert is_passing(caught.value)  # it is tried for as long as it takes, and never held
        assert re.match(rf"a new slot waits for a transaction: {who} \d s$", heard[0])
        assert heard.pop() == ""
        assert len(heard) >= 2
        heard.clear()
        assert slot_state(upstream.connection, name) is None

        def end(text: str) -> None:
            if text:
                writer.execute("COMMIT")
            heard.append(text)

        with server.create_slot(upstream.connection, name, on_wait=end) as slot:
            assert slot.name == name
        assert heard[-1] == ""
        assert len(heard) >= 2
    # what a role may not see of another one's session, it says so far as it knows
    assert server.drop_slot(upstream.connection, name)
    with upstream.server.connect("owner", upstream.database) as writer:
        writer.execute("BEGIN")
        writer.execute("INSERT INTO t VALUES (2)")
        pid = writer.info.backend_pid
        with pytest.raises(ReplicationFailed) as caught, \
                server.create_slot(upstream.connection, name, timeout=1.0):
            pass
    who = f"process {pid} of the server (user owner), open for at least "
    assert who in caught.value.message


def test_lag(upstream: Upstream) -> None:
    """It is counted from what is committed, of changes that the publication gives: what others
    write, and what the slot has still to follow after, is no lag."""
    upstream.sql(
        "CREATE TABLE t (id int PRIMARY KEY)", "CREATE TABLE other (id int PRIMARY KEY, text text)",
        "CREATE PUBLICATION p FOR TABLE t",
    )
    connection = upstream.connection

    def lag(committed: Position | None = None) -> server.SlotLag | None:
        return server.lag(connection, slot.name, "p", committed)

    def end() -> Position:
        with session(connection) as opened:
            lsn = server.log_end(opened)
        return msgspec.structs.replace(slot.position, lsn=lsn)

    assert server.lag(connection, upstream.slot("s"), "p") is None
    with new_slot(upstream) as slot:
        pass
    upstream.sql("INSERT INTO other SELECT n, repeat('x', 1000) FROM generate_series(1, 300) AS n")
    assert lag() == server.SlotLag(0, 0.0)
    upstream.sql("INSERT INTO t SELECT * FROM generate_series(1, 500)")
    read = end()
    time.sleep(1.1)
    behind = lag()
    assert behind is not None
    assert behind.bytes > 300_000
    assert behind.seconds is not None
    assert 1.0 <= behind.seconds < 60.0
    assert lag(read) == server.SlotLag(0, 0.0)
    upstream.sql("INSERT INTO other VALUES (0, 'more of what is not published')")
    assert lag(read) == server.SlotLag(0, 0.0)
    upstream.sql("INSERT INTO t VALUES (0)")
    behind = lag(read)
    assert behind is not None
    assert 0 < behind.bytes <= end().lsn - read.lsn < 100_000
    assert behind.seconds is not None
    assert behind.seconds < 1.0
    # a position of another server means nothing here
    whole = lag(msgspec.structs.replace(read, system="1", lsn=1 << 60))
    assert whole is not None
    assert whole.bytes > 300_000


def test_a_lag_that_takes_too_long(
    upstream: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its bytes are known all the same, and the age of the oldest change is not."""
    upstream.sql("CREATE TABLE t (id int PRIMARY KEY)", "CREATE PUBLICATION p FOR TABLE t")
    with new_slot(upstream) as slot:
        pass
    upstream.sql("INSERT INTO t SELECT * FROM generate_series(1, 500)")
    monkeypatch.setattr(server, "_LAG_TIMEOUT", 0.2)
    monkeypatch.setattr(server, "PEEK", server.PEEK.replace("data FROM", "data, pg_sleep(5) FROM"))
    behind = server.lag(upstream.connection, slot.name, "p")
    assert behind is not None
    assert behind.bytes > 10_000
    assert behind.seconds is None


def test_a_wait_whose_command_is_not_cancelled_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is cancelled again after a pause, also when the server did not answer the first time, and
    nothing is asked of the server in between."""
    cancelled: list[float] = []
    looked: list[float] = []
    again = threading.Event()

    class Replication:
        info = SimpleNamespace(backend_pid=1)

        def cancel_safe(self, *, timeout: float) -> None:
            assert timeout == 5.0
            cancelled.append(time.monotonic())
            if len(cancelled) > 1:
                again.set()
            raise psycopg.OperationalError("no answer")

    monkeypatch.setattr(server, "_LOOK_AGAIN", 0.5)
    monkeypatch.setattr(server._Wait, "_look", lambda _: looked.append(time.monotonic()))
    wait = server._Wait({}, cast("Any", Replication()), 0.2, lambda _: None)
    assert again.wait(30)
    wait.end()
    assert cancelled[1] - cancelled[0] >= 0.4
    assert len(looked) <= 5


def test_a_lost_slot_and_a_promoted_server(upstream: Upstream) -> None:
    """A slot whose log was removed says so; after a promotion a position goes on upon the new
    timeline, unless it lies behind the place where that began."""
    upstream.sql("CREATE TABLE t (id int PRIMARY KEY)", "CREATE PUBLICATION p FOR TABLE t")
    with new_slot(upstream, "kept") as kept, new_slot(upstream, "lost") as lost:
        pass
    pg = upstream.server
    pg.stop()
    (pg._data / "standby.signal").touch()
    pg.start()
    assert "the server is a standby" in findings(upstream, "t")[0]
    pg.execute("SELECT pg_promote()")
    upstream.sql("INSERT INTO t VALUES (1)")
    with session(upstream.connection) as opened:
        moved = server.check_position(opened, upstream.connection, kept.position)
        assert moved == Position(kept.position.lsn, kept.position.timeline + 1, moved.system)
        state = server.read_slot(opened, kept.name)
        assert state is not None
        server.check_slot(state, kept.name, moved)
        beyond = Position(state.log_end, kept.position.timeline, moved.system)
        with pytest.raises(OtherTimeline, match="which left that timeline at"):
            server.check_position(opened, upstream.connection, beyond)
    assert len(read_plain(upstream, kept.name)) == 1
    pg.execute("ALTER SYSTEM SET max_slot_wal_keep_size = '1MB'")
    pg.execute("SELECT pg_reload_conf()")
    try:
        server.advance(upstream.connection, kept.name, state.log_end)
        for _ in range(3):
            upstream.sql("INSERT INTO t SELECT max(id) + 1 FROM t")
            pg.execute("SELECT pg_switch_wal()")
        pg.execute("CHECKPOINT")
        after = slot_state(upstream.connection, lost.name)
        assert after is not None
        assert after.lost
        with pytest.raises(SlotLost, match="removed the log"):
            server.check_slot(after, lost.name, lost.position)
        with pytest.raises(SlotLost):
            read_plain(upstream, lost.name)
        assert "is lost (wal_removed)" in findings(upstream, "t", slot=lost.name)[0]
    finally:
        pg.execute("ALTER SYSTEM RESET max_slot_wal_keep_size")
        pg.execute("SELECT pg_reload_conf()")


def test_positions_as_text() -> None:
    """LSNs both ways; the JSON is what the stream reader gives Spark; other texts are refused."""
    assert lsn_number("1/16B3748") == 0x1016B3748
    assert lsn_text(0x1016B3748) == "1/16B3748"
    position = Position(0x16B3748, 2, "7712330203330602927")
    assert position.json() == (
        '{"lsn": "0/16B3748", "timeline": 2, "system": "7712330203330602927"}'
    )
    assert Position.of(position.json()) == Position.of(json.loads(position.json())) == position
    for wrong in ('{"lsn": "0/1"}', '{"lsn": "x", "timeline": 1, "system": "1"}', "[]", "{"):
        with pytest.raises(ValueError):
            Position.of(wrong)
