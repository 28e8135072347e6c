"""A standby that is promoted: the slot is there, and changes go on from the same position."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from catalog_migrate.connectors.postgres import server, survey
from catalog_migrate.connectors.postgres.pgoutput import decode
from catalog_migrate.connectors.secrets import Secret
from tests.services.postgres import PostgresServer, Standby
from tests.services.replication import slot_state

pytestmark = [pytest.mark.services, pytest.mark.soak]

PATIENCE = 240.0


def test_a_slot_survives_the_promotion_of_a_standby(tmp_path: Path) -> None:
    """What was committed behind the position is read from the new primary, each change once."""
    with PostgresServer(tmp_path / "primary", settings={"max_wal_senders": "10"}) as primary:
        primary.create_database("shop")
        primary.create_user("cdc", "word", replication=True)
        primary.execute("CREATE TABLE t (id int PRIMARY KEY)", database="shop")
        primary.execute("CREATE PUBLICATION p FOR TABLE t", database="shop")

        def connection(of: PostgresServer) -> dict[str, str | Secret]:
            return {"HOST": "127.0.0.1", "PORT": str(of.port), "DATABASE": "shop", "USER": "cdc",
                    "PASSWORD": Secret("word"), "SSL MODE": "disable"}

        (table,) = survey.discover(connection(primary), ["t"], publication="p")
        with server.create_slot(connection(primary), "s") as slot:
            position = slot.position
        with Standby(tmp_path / "standby", primary) as standby:
            done = 0
            deadline = time.monotonic() + PATIENCE
            while not standby.has_slots(["s"]):
                assert time.monotonic() < deadline
                done += 1
                primary.execute("INSERT INTO t VALUES (%s)", [done], database="shop")
                primary.execute("SELECT pg_log_standby_snapshot()")
                state = slot_state(connection(primary), "s")
                assert state is not None
                position = type(position)(state.log_end, position.timeline, position.system)
                server.advance(connection(primary), "s", position.lsn)
                time.sleep(0.5)
            for number in range(5):
                primary.execute("INSERT INTO t VALUES (%s)", [1000 + number], database="shop")
            primary.stop()
            standby.promote()
            standby.execute("INSERT INTO t VALUES (2000)", database="shop")
            with server.session(connection(standby)) as opened, opened.transaction():
                here = server.check_position(opened, connection(standby), position)
                state = server.read_slot(opened, "s")
                end = server.check_slot(state, "s", here).log_end
                found = [change.after for change in decode(
                    server.peek(opened, "s", "p", end), start=here.lsn, end=end,
                    tables={table.full_name: table.expected()},
                )]
            assert here.timeline == position.timeline + 1
            assert found == [(str(1000 + number),) for number in range(5)] + [("2000",)]
