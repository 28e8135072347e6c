"""Unsafe operations on sources on a real PostgreSQL: a lost slot, positions, one table anew."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from catalog_migrate.catalog.records import HoldRecord
from catalog_migrate.errors import EngineFailure, UnsafeBlocked
from catalog_migrate.sql import statements as st
from catalog_migrate.sql.parser import parse_one
from catalog_migrate.streams.positions.positions_file import export
from catalog_migrate.streams.positions.requests import request_of
from catalog_migrate.streams.positions.restore import undo_request
from catalog_migrate.streams.spark import postgres_source
from catalog_migrate.streams.upstreams.databases import ServerDatabases
from tests.services.postgres import PostgresServer
from tests.streams.running.test_postgres_source import ACCOUNTS, Bank

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from catalog_migrate.streams.positions.plan import UnsafePlan
    from tests.services.kafka import KafkaCluster

pytestmark = [pytest.mark.spark, pytest.mark.services, pytest.mark.soak]


@pytest.fixture
def bank(
    tmp_path_factory: pytest.TempPathFactory, spark: SparkSession, kafka: KafkaCluster
) -> Iterator[Bank]:
    """A bank with both sources and a runtime with an open gate, on a server of its own."""
    settings = {"max_connections": "30"}
    with (
        PostgresServer(tmp_path_factory.mktemp("own"), settings=settings) as server,
        pytest.MonkeyPatch.context() as monkeypatch,
    ):
        server.create_user("app", "first-of-app")
        server.create_database("shop")
        server.create_user("cdc", "cdc's secret word", replication=True)
        server.execute("GRANT CREATE ON DATABASE shop TO app", database="shop")
        directory: Path = tmp_path_factory.mktemp("bank")
        made = Bank(directory, spark, kafka, server, monkeypatch)
        made.begin()
        made.lay_out()
        made.source_of("c", "CHANGES", "_c", "WITH (TRIGGER '500 milliseconds')")
        made.source_of("m", "MIRROR", "_m", "WITH (TRIGGER '500 milliseconds')")
        made.start(unsafe=True)
        made.until(lambda: len(list(directory.glob("**/loaded.json"))) == 2, "the first snapshots")
        yield made
        made.stop()


def unsafe(bank: Bank, source: str, actions: str) -> str | None:
    (result,) = bank.run(
        f"ALTER SOURCE {bank.q(source)} UNSAFE {actions} REASON 'test'", confirm=lambda _: True
    )
    return result.operation


def plan(bank: Bank, source: str, actions: str) -> UnsafePlan:
    statement = parse_one(f"ALTER SOURCE {bank.q(source)} UNSAFE {actions} REASON 'test'")
    assert isinstance(statement, st.Unsafe)
    return bank.catalog.unsafe().plan(request_of(bank.catalog.state(), statement), "test")


def stands_still(bank: Bank, source: str) -> bool:
    assert bank.runtime is not None
    assert bank.runtime.supervisor is not None
    each = bank.runtime.supervisor.managed.get(bank.id(source))
    return each is None or (each.query is None and each.starting is None)


def position(bank: Bank, source: str) -> str:
    return str(export(bank.catalog.state(), "source", bank.q(source)).lsn)


def hold_of(bank: Bank, source: str) -> HoldRecord | None:
    return next((
        hold for hold in bank.catalog.state().holds.values()
        if hold.item_id == bank.id(source) and hold.holder == "upstream"
    ), None)


def lsn_now(bank: Bank) -> str:
    ((lsn,),) = bank.postgres.execute("SELECT pg_current_wal_flush_lsn()::text")
    return str(lsn)


def lose_the_slots(bank: Bank) -> None:
    """Let the server throw the log away that both slots need."""
    pg = bank.postgres
    pg.execute("ALTER SYSTEM SET max_slot_wal_keep_size = '1MB'")
    pg.execute("SELECT pg_reload_conf()")
    for _ in range(50):
        pg.execute("SELECT pg_switch_wal()")
        bank.upstream(f"UPDATE {bank.accounts} SET owner = owner WHERE id = 3")
        pg.execute("CHECKPOINT")
        states = [row[0] for row in pg.execute(
            "SELECT wal_status FROM pg_replication_slots WHERE NOT temporary"
        )]
        if states == ["lost", "lost"]:
            break
    else:
        raise AssertionError(states)
    pg.execute("ALTER SYSTEM RESET max_slot_wal_keep_size")
    pg.execute("SELECT pg_reload_conf()")


def once(bank: Bank, table: str) -> list[tuple[Any, ...]]:
    """The changes in a table, each of which must stand once."""
    changes = [row for row in bank.rows(table, "_lsn, _sequence, _operation, id")
               if row[2] != "snapshot"]
    assert len({row[:2] for row in changes}) == len(changes)
    return changes


def test_a_lost_slot_and_back_and_forth(bank: Bank) -> None:
    """A hold says the statement; it takes a new snapshot; positions move within what a slot has."""
    bank.await_running(2)
    for n in range(5):
        bank.transfer(1 + n, 20 + n, "1.25")
    bank.until(bank.is_mirrored, "the mirror")
    bank.until(lambda: len(bank.rows("transfers_c", "id")) == 5, "the changes")

    # a slot is lost while its sources are paused
    for name in "cm":
        bank.run(f"PAUSE SOURCE {bank.q(name)}")
    bank.upstream(f"DELETE FROM {bank.transfers} WHERE paid = 2")
    bank.upstream(f"DELETE FROM {bank.accounts} WHERE id = 40")
    bank.transfer(7, 8, "3")
    lose_the_slots(bank)
    for name in "cm":
        bank.run(f"RESUME SOURCE {bank.q(name)}")
    bank.until(lambda: all(hold_of(bank, name) for name in "cm"), "two holds")
    for name in "cm":
        hold = hold_of(bank, name)
        assert hold is not None
        assert hold.statements == (
            f"ALTER SOURCE {bank.q(name)} UNSAFE RESET SPLITS REASON"
            " 'changes cannot be read any more'",
        )
    with pytest.raises(UnsafeBlocked, match="cannot be put there") as refused:
        plan(bank, "m", "INJECT OFFSETS (TO latest)")
    assert "is lost" in str(refused.value)
    with pytest.raises(UnsafeBlocked, match="cannot read on"):
        plan(bank, "m", f"RESET SPLITS ('public.{bank.accounts}')")
    dry = plan(bank, "m", "RESET SPLITS")
    assert dry.changes
    assert not dry.totals.exact
    key = unsafe(bank, "m", "RESET SPLITS")
    unsafe(bank, "c", "RESET SPLITS")
    bank.until(bank.is_mirrored, "the mirror of the new snapshot")
    assert all(hold_of(bank, name) is None for name in "cm")
    bank.until(
        lambda: Counter(row[0] for row in bank.rows("accounts_c", "_operation"))["snapshot"]
        == ACCOUNTS + ACCOUNTS - 1, "the rows of both snapshots",
    )
    before = len(once(bank, "transfers_c"))
    bank.transfer(9, 10, "2")
    bank.until(bank.is_mirrored, "the mirror of after")
    bank.until(lambda: len(once(bank, "transfers_c")) == before + 1, "the change of after")
    state = bank.catalog.state()
    assert key is not None
    with pytest.raises(UnsafeBlocked, match="has taken a new snapshot"):
        undo_request(state, key)
    with pytest.raises(UnsafeBlocked, match="--restore-table"):
        undo_request(state, key, restore_table=True)

    # back and forth, while they stand still
    for name in "cm":
        bank.run(f"PAUSE SOURCE {bank.q(name)}")
    bank.until(lambda: all(stands_still(bank, name) for name in "cm"), "both to stand still")
    marks = []
    for _ in range(4):
        bank.transfer(11, 12, "1")
        marks.append(lsn_now(bank))
    start = {name: position(bank, name) for name in "cm"}
    forth = plan(bank, "c", f"INJECT OFFSETS (TO '{marks[1]}')")
    assert forth.totals.exact
    assert {row.topic: row.skipped for row in forth.items[0].rows} == {
        f"public.{bank.accounts}": 4, f"public.{bank.transfers}": 2,
    }
    forward = unsafe(bank, "c", f"INJECT OFFSETS (TO '{marks[1]}')")
    assert forward is not None
    assert position(bank, "c") == marks[1]
    back = plan(bank, "c", f"INJECT OFFSETS (TO '{start['c']}')")
    assert (back.totals.doubled, back.totals.skipped, back.totals.exact) == (6, 0, True)
    with pytest.raises(UnsafeBlocked) as gone:
        plan(bank, "c", "INJECT OFFSETS (TO '0/1')")
    assert "the slot has the changes from" in str(gone.value)
    with pytest.raises(UnsafeBlocked) as beyond:
        plan(bank, "c", "INJECT OFFSETS (TO 'FF/1')")
    assert "beyond the end" in str(beyond.value)
    outcome = bank.catalog.unsafe().run(
        undo_request(bank.catalog.state(), forward), "back", confirm=lambda _: True
    )
    assert outcome.row is not None
    assert position(bank, "c") == start["c"]
    unsafe(bank, "m", "INJECT OFFSETS (TO latest)")
    for name in "cm":
        bank.run(f"RESUME SOURCE {bank.q(name)}")
    bank.until(lambda: len(once(bank, "transfers_c")) == before + 5, "what was put back")
    bank.upstream(f"UPDATE {bank.transfers} SET note = NULL WHERE paid = 9")
    bank.until(
        lambda: (9, None) in bank.rows("transfers_m", "paid, note"), "the change behind the gap"
    )
    assert len(bank.rows("transfers_m", "id")) == len(bank.there(bank.transfers, "id")) - 4

    # a table alone, with the other going on
    unsafe(bank, "m", f"RESET SPLITS ('public.{bank.transfers}')")
    unsafe(bank, "c", f"RESET SPLITS ('public.{bank.accounts}')")
    for n in range(5):
        bank.transfer(13 + n, 12, "1")
    bank.until(
        lambda: Counter(bank.rows("transfers_m", "id, paid, got, amount, note"))
        == Counter(bank.there(bank.transfers, "id, paid, got, amount, note::text")),
        "the mirror of the table that was copied anew",
    )
    bank.until(lambda: len(once(bank, "transfers_c")) == before + 11, "every change, once")
    assert Counter(row[0] for row in bank.rows("accounts_c", "_operation"))["snapshot"] == (
        ACCOUNTS + 2 * (ACCOUNTS - 1)
    )
    changed = [row for row in bank.rows("accounts_m", "id, amount") if row[0] in (11, 13)]
    there = dict(bank.there(bank.accounts, "id, amount"))
    assert dict(changed)[13] == there[13]
    assert dict(changed)[11] == there[11] + 4  # what was skipped, until it is copied anew
    ((slots,),) = bank.postgres.execute("SELECT count(*) FROM pg_replication_slots")
    assert slots == 2


def test_starts_that_are_cut_off(bank: Bank, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before the manifest a start begins anew, behind it the tables take the rows once."""
    bank.until(lambda: not any(hold_of(bank, name) for name in "cm"), "no hold")
    before = Counter(row[0] for row in bank.rows("accounts_c", "_operation"))["snapshot"]
    cuts = Counter[str]()

    def cut(owner: Any, name: str, *, behind: bool) -> None:
        act = getattr(owner, name)

        def once_cut(*arguments: Any, **options: Any) -> Any:
            cuts[name] += 1
            if cuts[name] > 2:
                return act(*arguments, **options)
            if behind:
                act(*arguments, **options)
            raise EngineFailure(f"cut off at {name}", transient=True)

        monkeypatch.setattr(owner, name, staticmethod(once_cut))

    cut(ServerDatabases, "copy", behind=False)
    cut(postgres_source, "load", behind=True)
    for name in "cm":
        unsafe(bank, name, "RESET SPLITS")
    for n in range(3):
        bank.transfer(21 + n, 22, "1")
    bank.until(bank.is_mirrored, "the mirror")
    rows = len(bank.there(bank.accounts, "id"))
    bank.until(
        lambda: Counter(row[0] for row in bank.rows("accounts_c", "_operation"))["snapshot"]
        == before + rows, "the rows of the snapshot",
    )
    once(bank, "transfers_c")
    assert cuts["copy"] >= 3
    assert cuts["load"] >= 3
