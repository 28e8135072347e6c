"""A source on a real PostgreSQL: snapshot, changes and mirror under one runtime."""

from __future__ import annotations

import re
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest
from deltalake.exceptions import CommitFailedError

from catalog_migrate.delta.table import load_table
from catalog_migrate.errors import SourceDiffers
from catalog_migrate.streams.catalog import dependencies
from tests.streams.running.conftest import Pipeline

if TYPE_CHECKING:
    from pathlib import Path

    from deltalake import DeltaTable
    from pyspark.sql import SparkSession

    from catalog_migrate.catalog.records import HoldRecord
    from tests.services.kafka import KafkaCluster
    from tests.services.postgres import PostgresServer

pytestmark = [pytest.mark.spark, pytest.mark.services]

ACCOUNTS = 40


class Bank(Pipeline):
    """Accounts whose sum never changes, and a log with a row for each transfer."""

    def lay_out(self) -> None:
        self.secret("cdc", self.postgres.parameters("cdc", "shop")["password"])
        p = self.postgres.parameters("cdc", "shop")
        self.run(
            f"CREATE CONNECTION {self.q('pg')} TO POSTGRES (HOST '{p['host']}', PORT {p['port']}, "
            f"DATABASE 'shop', USER 'cdc', PASSWORD SECRET {self.q('cdc')}, SSL MODE 'disable')"
        )
        self.accounts = self.table(
            "accounts", "id bigint PRIMARY KEY, owner text, amount numeric(12,2) NOT NULL"
        )
        self.transfers = self.table(
            "transfers", "id bigserial PRIMARY KEY, paid bigint, got bigint, amount numeric(12,2),"
            " note jsonb, at timestamptz DEFAULT now()",
        )
        self.upstream(
            f"INSERT INTO {self.accounts} SELECT n, 'owner ' || n, 100 FROM"
            f" generate_series(1, {ACCOUNTS}) AS n",
            f"CREATE PUBLICATION {self.name} FOR TABLE {self.accounts}, {self.transfers}",
            f"GRANT SELECT ON {self.accounts}, {self.transfers} TO cdc",
        )

    def upstream(self, *statements: str) -> None:
        with self.postgres.connect("app", "shop") as connection, connection.transaction():
            for statement in statements:
                connection.execute(statement)

    def transfer(self, paid: int, got: int, amount: str) -> None:
        """One transaction over both tables."""
        self.upstream(
            f"UPDATE {self.accounts} SET amount = amount - {amount} WHERE id = {paid}",
            f"UPDATE {self.accounts} SET amount = amount + {amount} WHERE id = {got}",
            f"INSERT INTO {self.transfers} (paid, got, amount, note)"
            f" VALUES ({paid}, {got}, {amount}, '{{\"a\": [1]}}')",
        )

    def source_of(self, name: str, format_: str, suffix: str, more: str = "") -> None:
        self.run(
            f"CREATE SOURCE {self.q(name)} IN CLUSTER {self.q('main')} FROM POSTGRES CONNECTION"
            f" {self.q('pg')} (PUBLICATION '{self.name}', TABLES ({self.accounts} AS"
            f" {self.q('accounts' + suffix)}, {self.transfers} AS {self.q('transfers' + suffix)}))"
            f" FORMAT {format_} {more}"
        )

    def rows(self, table: str, columns: str) -> list[tuple[Any, ...]]:
        """Rows of one of our tables, by delta-rs."""
        from deltalake import QueryBuilder

        state = self.catalog.state()
        item = dependencies.find(state, "relation", self.q(table)).item
        path = f"{state.config['warehouse'].value}/{item.shard}"
        found = QueryBuilder().register("t", load_table(path)).execute(f"SELECT {columns} FROM t")
        table_ = found.read_all()
        return list(zip(*(table_.column(name.strip()).to_pylist()
                          for name in columns.split(",")), strict=True))

    def there(self, table: str, columns: str) -> list[tuple[Any, ...]]:
        return list(self.postgres.execute(
            f"SELECT {columns} FROM {table}", user="app", database="shop"
        ))

    def is_mirrored(self) -> bool:
        """Whether both mirrors have the rows of upstream, value for value."""
        return (
            Counter(self.rows("accounts_m", "id, owner, amount"))
            == Counter(self.there(self.accounts, "id, owner, amount"))
            and Counter(self.rows("transfers_m", "id, paid, got, amount, note"))
            == Counter(self.there(self.transfers, "id, paid, got, amount, note::text"))
        )


@pytest.fixture
def bank(
    tmp_path_factory: pytest.TempPathFactory, spark: SparkSession, kafka: KafkaCluster,
    publisher: PostgresServer,
) -> Iterator[Bank]:
    """A bank with both sources and a runtime."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        directory: Path = tmp_path_factory.mktemp("bank")
        made = Bank(directory, spark, kafka, publisher, monkeypatch)
        made.begin()
        made.lay_out()
        made.source_of("c", "CHANGES", "_c")
        made.source_of("m", "MIRROR", "_m")
        made.start(unsafe=True)
        yield made
        made.stop()
        for name in "cm":  # whoever drops a source without a runtime drops its slot, too
            made.run(f"DROP SOURCE IF EXISTS {made.q(name)}")
        assert not made.catalog.status().slots


def snapshot_changes_and_mirror(bank: Bank) -> None:
    """Under writers every change comes once, the mirror is the table, and sums agree at every
    transaction boundary."""
    bank.await_running(2)
    writers = [
        threading.Thread(
            target=lambda first=first: [
                bank.transfer(1 + first, 21 + n % 20, "1.25") for n in range(20)
            ], daemon=True,
        )
        for first in range(3)
    ]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(120)
    bank.upstream(
        f"UPDATE {bank.accounts} SET id = 1000 WHERE id = 1",
        f"DELETE FROM {bank.transfers} WHERE paid = 2",
    )
    bank.until(bank.is_mirrored, "the mirror")
    (validated,) = bank.run(f"VALIDATE SOURCE {bank.q('m')}")
    assert validated.rows is not None
    assert [row[2] for row in validated.rows.values] == [ACCOUNTS, 40]
    bank.until(
        lambda: len(bank.rows("transfers_c", "id")) == 60 + 20, "every change of transfers"
    )
    changes = bank.rows("accounts_c", "id, amount, _lsn, _sequence, _operation")
    assert Counter(row[4] for row in changes) == {"snapshot": ACCOUNTS, "update": 121}
    assert len({row[2:4] for row in changes if row[4] != "snapshot"}) == 121
    deleted = bank.rows("transfers_c", "id, _operation, amount")
    assert Counter(row[1] for row in deleted) == {"insert": 60, "delete": 20}
    amounts = {row[0]: row[1] for row in changes if row[4] == "snapshot"}
    total = sum(amounts.values())
    by_transaction: dict[int, list[tuple[Any, ...]]] = {}
    for row in sorted((row for row in changes if row[4] != "snapshot"), key=lambda row: row[2:4]):
        by_transaction.setdefault(row[2], []).append(row)
    for lsn in sorted(by_transaction):
        for row in by_transaction[lsn]:
            if row[0] == 1000:
                del amounts[1]
            amounts[row[0]] = row[1]
        assert sum(amounts.values()) == total
    # all is there: the lag is none, whatever else the server writes, and the slots have followed
    bank.postgres.execute("SELECT pg_logical_emit_message(true, 'noise', repeat('x', 90000))")
    shown = bank.run("SHOW SOURCES")[0].rows
    assert shown is not None
    assert shown.columns[-2:] == ("lag_bytes", "lag_seconds")
    assert [row[-2:] for row in shown.values] == [(0, 0.0)] * 2
    newest = max(row[2] for row in changes)
    bank.until(
        lambda: bank.postgres.execute(
            "SELECT count(*) FROM pg_replication_slots WHERE slot_name LIKE %s"
            " AND confirmed_flush_lsn - '0/0' > %s",
            (f"catalog_migrate_{bank.catalog.state().lineage[:8]}_%", newest),
        ) == [(2,)], "slots that have followed",
    )
    transactions = bank.rows("c", "_lsn, changes")
    assert {lsn for lsn, _ in transactions} >= set(by_transaction)
    assert sum(count for _, count in transactions) == 121 + 80


def against_the_source(path: str, act: Callable[[DeltaTable], object]) -> None:
    """Change a table that a source writes several times a second."""
    for _ in range(100):
        with suppress(CommitFailedError):
            act(load_table(path))
            return
    raise AssertionError("the source was quicker a hundred times")


def rows_are_lost_here(bank: Bank) -> None:
    """VALIDATE SOURCE finds them under writers, with the statement that brings them back."""
    state = bank.catalog.state()
    item = dependencies.find(state, "relation", bank.q("accounts_m")).item
    path = f"{state.config['warehouse'].value}/{item.shard}"
    ended = threading.Event()

    def write() -> None:
        while not ended.wait(0.05):
            bank.transfer(11, 12, "0.01")

    writer = threading.Thread(target=write, daemon=True)
    writer.start()
    try:
        against_the_source(path, lambda table: table.delete("id IN (30, 31)"))
        against_the_source(
            path, lambda table: table.update({"owner": "'somebody'"}, predicate="id = 32")
        )
        with pytest.raises(SourceDiffers) as caught:
            bank.run(f"VALIDATE SOURCE {bank.q('m')}")
        (difference,) = caught.value.differences
        assert "2 missing here, 1 with other values" in difference
        bank.run(str(caught.value.remedy), confirm=lambda _: True)
        bank.until(
            lambda: len(bank.rows("accounts_m", "id")) == ACCOUNTS, "the snapshot of the one table"
        )
        bank.run(f"VALIDATE SOURCE {bank.q('m')}")
    finally:
        ended.set()
        writer.join(60)


def changes_were_not_published(bank: Bank) -> None:
    """Dropped from the publication and added again between two looks: both are held, with cause
    and statement; resumed, the changes go on without what is missing."""
    bank.upstream(f"GRANT SELECT ON {bank.accounts} TO PUBLIC")
    bank.upstream(
        f"ALTER PUBLICATION {bank.name} DROP TABLE {bank.transfers}",
        f"INSERT INTO {bank.transfers} (paid, got, amount) VALUES (7, 8, 1)",
        f"ALTER PUBLICATION {bank.name} ADD TABLE {bank.transfers}",
    )

    def held() -> list[HoldRecord]:
        holds = bank.catalog.state().holds.values()
        return [hold for hold in holds if hold.holder == "upstream"]

    bank.until(lambda: len(held()) == 2, "two holds")
    for hold in held():
        assert hold.code == "CM0781"
        assert f"dropped from publication {bank.name} and added again" in hold.reason
        assert hold.place["table"] == f"public.{bank.transfers}"
        assert "UNSAFE RESET SPLITS" in hold.statements[0]
    bank.run(f"RESUME SOURCE {bank.q('c')}")
    bank.upstream(f"INSERT INTO {bank.transfers} (paid, got, amount) VALUES (9, 9, 1)")
    bank.until(lambda: (9, 9) in bank.rows("transfers_c", "paid, got"), "the change of after")
    assert (7, 8) not in bank.rows("transfers_c", "paid, got")
    assert len(held()) == 1


def a_column_is_added_upstream(bank: Bank) -> None:
    """Both sources take it over, and no change before or behind it is lost or doubled."""
    bank.upstream(
        f"ALTER TABLE {bank.accounts} ADD COLUMN tag text",
        f"UPDATE {bank.accounts} SET tag = 'gold' WHERE id < 5",
        f"ALTER TABLE {bank.accounts} ADD COLUMN limited numeric(6,1) DEFAULT 7.5",
        f"UPDATE {bank.accounts} SET limited = 9.5 WHERE id = 7",
    )
    columns = "id, owner, amount, tag, limited"

    def equal() -> bool:
        if not columns_of(bank, "accounts_m") >= {"tag", "limited"}:
            return False
        # defaults of old rows never come by the log: the mirror's table is copied again
        ours = Counter(bank.rows("accounts_m", columns))
        return ours == Counter(bank.there(bank.accounts, columns))

    bank.until(equal, "the new columns in the mirror")
    bank.until(
        lambda: columns_of(bank, "accounts_c") >= {"tag", "limited"}
        and sum(row[0] == 9.5 for row in bank.rows("accounts_c", "limited")) == 1,
        "the new columns among the changes",
    )
    changed = bank.rows("accounts_c", "_lsn, _sequence, _operation")
    assert len(set(changed)) == len(changed)
    state = bank.catalog.state()
    assert not any(shard.evolve for shard in state.shards.values())


def a_column_is_renamed_upstream(bank: Bank) -> None:
    """Both are held and told what to write, which takes the new name over; no change is lost."""
    bank.upstream(
        f"ALTER TABLE {bank.accounts} RENAME COLUMN owner TO holder",
        f"UPDATE {bank.accounts} SET holder = 'another' WHERE id = 9",
    )
    bank.until(lambda: len(bank.catalog.state().holds) == 2, "two holds")
    for name in "cm":
        hold = next(each for each in bank.catalog.state().holds.values()
                    if each.item_id == bank.id(name))
        statement = f"ALTER SOURCE {bank.q(name)} SET (UPSTREAM COLUMNS = 'follow')"
        assert hold.statements == (statement, f"RESUME SOURCE {bank.q(name)}")
        assert hold.place["table"] == f"public.{bank.accounts}"
        bank.run(statement)
        bank.run(f"RESUME SOURCE {bank.q(name)}")
    bank.until(
        lambda: "holder" in columns_of(bank, "accounts_m")
        and (9, None, "another") in bank.rows("accounts_m", "id, owner, holder"),
        "the new name in the mirror",
    )
    assert (10, "owner 10", None) in bank.rows("accounts_m", "id, owner, holder")
    bank.until(
        lambda: "holder" in columns_of(bank, "accounts_c")
        and ("another",) in bank.rows("accounts_c", "holder"), "the new name among the changes",
    )


def a_password_is_rotated(bank: Bank) -> None:
    """ALTER SECRET restarts both sources, with writers at work; the mirror is the table."""
    before = bank.run_ids()
    bank.upstream(f"INSERT INTO {bank.transfers} (paid, got, amount) VALUES (3, 4, 1)")
    bank.postgres.set_password("cdc", "another word", disconnect=True)
    bank.secret("cdc", "another word")
    bank.run(f"ALTER SECRET {bank.q('cdc')}")
    bank.upstream(f"INSERT INTO {bank.transfers} (paid, got, amount) VALUES (4, 5, 1)")
    bank.until(
        lambda: len(bank.rows("transfers_m", "id")) == len(bank.there(bank.transfers, "id")),
        "the transfers of after",
    )
    assert all(bank.run_ids()[name] != run_id for name, run_id in before.items())
    changes = bank.rows("transfers_c", "_lsn, _sequence")
    assert len(set(changes)) == len(changes)


def a_source_is_dropped(bank: Bank) -> None:
    """Its slot goes once its query has stopped; its tables keep their rows."""
    slots = (
        "SELECT count(*) FROM pg_replication_slots WHERE slot_name LIKE"
        f" 'catalog_migrate_{bank.catalog.state().lineage[:8]}_%'"
    )
    assert bank.postgres.execute(slots) == [(2,)]
    rows = len(bank.rows("accounts_c", "id"))
    bank.run(f"DROP SOURCE {bank.q('c')}")
    bank.until(lambda: bank.postgres.execute(slots) == [(1,)], "one slot less")
    bank.until(lambda: not bank.catalog.status().slots, "nothing on record")
    assert len(bank.rows("accounts_c", "id")) == rows


def a_first_start_waits(bank: Bank) -> None:
    """For a transaction of another session, whose process and age the source names in its state;
    it goes on when that ends."""
    def said() -> str:
        rows = bank.run("SHOW SOURCES")[0].rows
        assert rows is not None
        shown = [dict(zip(rows.columns, row, strict=True)) for row in rows.values]
        (row,) = (each for each in shown if each["name"] == bank.q("w"))
        assert row["state"] in ("starting", "backing_off", "running", "stopped")
        return str(row["error"] or "")

    with bank.postgres.connect("app", "shop") as writer:
        writer.execute("BEGIN")
        writer.execute(f"UPDATE {bank.accounts} SET owner = owner".encode())
        bank.source_of("w", "MIRROR", "_w")
        who = f"process {writer.info.backend_pid} of the server (user app), open for at least "
        bank.until(lambda: who in said(), "the transaction's name")
        assert re.search(r"open for at least \d+ s", said())
        writer.execute("ROLLBACK")
    bank.await_running(3)
    bank.until(lambda: said() == "", "a source that waits for nothing")
    bank.run(f"DROP SOURCE {bank.q('w')}")
    bank.until(lambda: not bank.catalog.status().slots, "its slot to go")


CHAPTERS = (
    snapshot_changes_and_mirror, rows_are_lost_here, a_first_start_waits,
    a_column_is_added_upstream, a_column_is_renamed_upstream, a_password_is_rotated,
    a_source_is_dropped,
)


@pytest.mark.parametrize(
    "chapters",
    [
        pytest.param((*CHAPTERS[:2], changes_were_not_published), id="a mirror"),
        pytest.param(CHAPTERS, marks=pytest.mark.soak, id="whole"),
    ],
)
def test_a_bank(bank: Bank, chapters: tuple[Callable[[Bank], None], ...]) -> None:
    """From its snapshot over columns that change and a password to the end of one source."""
    for chapter in chapters:
        chapter(bank)


def columns_of(bank: Bank, table: str) -> set[str]:
    """The columns that one of our tables has on the disk."""
    state = bank.catalog.state()
    item = dependencies.find(state, "relation", bank.q(table)).item
    found = load_table(f"{state.config['warehouse'].value}/{item.shard}")
    return {field.name for field in found.schema().fields}
