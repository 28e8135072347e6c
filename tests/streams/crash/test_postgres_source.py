"""Sources on PostgreSQL under eight writers, killed at random moments, altered and moved.

``POSTGRES_CHANGES`` and ``POSTGRES_KILLS`` say how many changes the writers make, and how often the
runtime is killed.
"""

from __future__ import annotations

import os
import random
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from catalog_migrate.delta.table import load_table
from catalog_migrate.streams.catalog import dependencies
from tests.services.postgres import PostgresServer, Standby

from .conftest import Killable
from .runtime_process import PATIENCE

if TYPE_CHECKING:
    from decimal import Decimal

pytestmark = [pytest.mark.spark, pytest.mark.services, pytest.mark.crash, pytest.mark.soak]

CHANGES = int(os.environ.get("POSTGRES_CHANGES", "200000"))
KILLS = int(os.environ.get("POSTGRES_KILLS", "10"))
SEED = int(os.environ.get("POSTGRES_SEED", "1"))
WRITERS, ACCOUNTS, PAIRS = 8, 400, 3
TABLES = ("accounts", "tellers", "transfers")


class Writers:
    """Eight threads of transactions over all tables, up to a number of changes that may rise.

    Each ends with a row in ``transfers`` that says how many changes it has. Some are rolled back.
    """

    def __init__(self, bank: Bank) -> None:
        self.bank = bank
        self.allowed = self.done = 0
        self._lock, self._ended = threading.Lock(), threading.Event()
        self._free = threading.Event()
        self._free.set()
        self._busy = 0
        self.failures: list[Exception] = []
        self._threads = [
            threading.Thread(target=self._work, args=(number,), daemon=True)
            for number in range(WRITERS)
        ]
        for thread in self._threads:
            thread.start()

    def _work(self, number: int) -> None:
        chance = random.Random(SEED * 100 + number)
        server: PostgresServer | None = None
        connection: psycopg.Connection[Any] | None = None
        with ExitStack() as opened:
            while not self._ended.is_set():
                with self._lock:
                    may = self._free.is_set() and self.done < self.allowed
                    self._busy += may
                if not may:
                    time.sleep(0.02)
                    continue
                try:
                    if server is not self.bank.postgres:
                        server = self.bank.postgres
                        opened.close()
                        connection = opened.enter_context(server.connect("app", "shop"))
                    assert connection is not None
                    changes = self._transaction(connection, number, chance)
                    with self._lock:
                        self.done += changes
                except psycopg.errors.DeadlockDetected:
                    pass
                except Exception as error:  # noqa: BLE001 - raised by the test
                    self.failures.append(error)
                    return
                finally:
                    with self._lock:
                        self._busy -= 1

    def _transaction(
        self, connection: psycopg.Connection[Any], number: int, chance: random.Random
    ) -> int:
        changes = 0

        def run(sql: str, *values: Any) -> None:
            nonlocal changes
            changes += connection.execute(sql.encode(), values).rowcount

        try:
            with connection.transaction():
                places = sorted(chance.sample(range(ACCOUNTS), 2 * PAIRS))
                amounts = [chance.randrange(1, 900) / 100 for _ in range(PAIRS)]
                for place, amount in zip(places, [*amounts, *(-a for a in amounts)], strict=True):
                    run("UPDATE accounts SET amount = amount + %s WHERE place = %s", amount, place)
                kind = chance.randrange(12)
                if kind == 0:  # another key
                    run("UPDATE accounts SET id = -id WHERE place = %s", places[0])
                elif kind == 1:
                    run("INSERT INTO accounts VALUES (%s, %s, 0)",
                        chance.getrandbits(60), ACCOUNTS + number)
                elif kind == 2:
                    run("DELETE FROM accounts WHERE place = %s", ACCOUNTS + number)
                elif kind == 3:  # the large value, which is not sent else
                    run("UPDATE tellers SET note = %s WHERE id = %s",
                        chance.randbytes(2500).hex(), number)
                elif kind == 4 and self.bank.tagged:
                    run("UPDATE accounts SET tag = %s WHERE place = %s", str(changes), places[0])
                run("UPDATE tellers SET done = done + 1 WHERE id = %s", number)
                run("INSERT INTO transfers (teller, changes) VALUES (%s, %s)", number, changes + 1)
                if kind == 5:
                    raise psycopg.Rollback
        except psycopg.Rollback:
            return 0
        return 0 if kind == 5 else changes

    def go_on_to(self, count: int) -> None:
        """Let them make changes until there are so many."""
        self.allowed = max(self.allowed, min(count, CHANGES))

    def hold(self) -> None:
        """Keep them from beginning another transaction; returns when none is under way."""
        self._free.clear()
        deadline = time.monotonic() + PATIENCE
        while self._busy:
            assert time.monotonic() < deadline
            time.sleep(0.02)

    def resume(self) -> None:
        self._free.set()

    def finish(self) -> None:
        """Wait until all that is allowed is done, and end them."""
        deadline = time.monotonic() + 4 * PATIENCE
        while self.done < self.allowed and not self.failures:
            assert time.monotonic() < deadline, (self.done, self.allowed)
            time.sleep(0.1)
        self.close()
        assert not self.failures, self.failures

    def close(self) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join(60)


class Bank(Killable):
    """Three tables upstream, of which a source keeps every change and one the rows."""

    writers: Writers
    tagged = False

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.standbys: list[Standby] = []

    def lay_out(self) -> None:
        self.postgres.create_user("app", "word of app")
        self.postgres.create_database("shop")
        self.postgres.create_user("cdc", "first word of cdc", replication=True)
        self.upstream(
            "CREATE TABLE accounts (id bigint PRIMARY KEY, place int NOT NULL, "
            "amount numeric(14,2) NOT NULL)",
            "CREATE INDEX ON accounts (place)",
            "CREATE TABLE tellers (id int PRIMARY KEY, done bigint, note text)",
            "ALTER TABLE tellers ALTER note SET STORAGE EXTERNAL",
            "CREATE TABLE transfers (id bigserial PRIMARY KEY, teller int, changes int,"
            " at timestamptz DEFAULT clock_timestamp())",
            f"INSERT INTO accounts SELECT n + 1, n, 100 FROM generate_series(0, {ACCOUNTS - 1}) n",
            f"INSERT INTO tellers SELECT n, 0, repeat('x', 5000)"
            f" FROM generate_series(0, {WRITERS - 1}) n",
            "INSERT INTO transfers (teller, changes) SELECT n, 0 FROM generate_series(1, 60000) n",
            "UPDATE tellers SET done = 60000 WHERE id = 0",
            "GRANT SELECT ON accounts, tellers, transfers TO cdc",
        )
        self.postgres.execute(
            "CREATE PUBLICATION p FOR TABLE accounts, tellers, transfers", database="shop"
        )
        self.word = self.directory / "word"
        self.write_word("first word of cdc")
        self.run(f"CREATE CLUSTER {self.q('main')}")
        self.run(f"CREATE SECRET {self.q('cdc')} AS 'file:{self.word}'")
        self.run(
            f"CREATE CONNECTION {self.q('pg')} TO POSTGRES (HOST '127.0.0.1',"
            f" PORT {self.postgres.port}, DATABASE 'shop', USER 'cdc',"
            f" PASSWORD SECRET {self.q('cdc')}, SSL MODE 'disable')"
        )
        self.release(1)
        for name, format_ in (("c", "CHANGES"), ("m", "MIRROR")):
            tables = ", ".join(f"{table} AS {self.q(f'{table}_{name}')}" for table in TABLES)
            self.run(
                f"CREATE SOURCE {self.q(name)} IN CLUSTER {self.q('main')} FROM POSTGRES"
                f" CONNECTION {self.q('pg')} (PUBLICATION 'p', TABLES ({tables}))"
                f" FORMAT {format_} WITH (TRIGGER '1 second')"
            )
        self.writers = Writers(self)

    def release(
        self, number: int, at: str = "at TIMESTAMP", more: str = "", how: str = ""
    ) -> None:
        """Put a release in force that has the table for the changes of transfers."""
        directory = self.directory / f"release-{number}"
        directory.mkdir()
        (directory / "release.toml").write_text(f'name = "r{number}"\n')
        (directory / "tables.sql").write_text(
            f"CREATE TABLE {self.q('transfers_c')} (id BIGINT, teller INT, changes INT,"
            f" {at}, _lsn BIGINT, _sequence INT, _operation STRING, _transaction BIGINT,"
            " _committed TIMESTAMP, _before MAP<STRING, STRING>, _unchanged ARRAY<STRING>"
            f"{more}){how};\n"
        )
        done = self._command(f"release-{number}.log", "bootstrap", "--release", str(directory))
        assert done.end() == 0, done.output

    def move_to_standby(self) -> None:
        """Promote a standby in place of the server, with changes that were not read yet."""
        primary = self.postgres
        standby = Standby(self.directory / "standby", primary)
        self.standbys.append(standby)
        slots = self.slots()

        def synchronized() -> bool:
            # a slot that does not move is not kept
            self.writers.go_on_to(self.writers.done + WRITERS)
            return standby.has_slots(slots)

        self.until(synchronized, "the slots on the standby")
        self.writers.go_on_to(self.writers.done + 20 * WRITERS)
        time.sleep(1.0)
        self.writers.hold()
        primary.stop()
        standby.promote()
        self.postgres = standby
        self.run(f"ALTER CONNECTION {self.q('pg')} SET (PORT {standby.port})")
        self.writers.resume()

    def stop(self) -> None:
        self.writers.close()
        super().stop()

    def write_word(self, word: str) -> None:
        self.word.write_text(word)
        self.word.chmod(0o600)

    def upstream(self, *statements: str) -> None:
        with self.postgres.connect("app", "shop") as connection, connection.transaction():
            for statement in statements:
                connection.execute(statement.encode())

    def mine_run(self, pid: int) -> bool:
        mine = [state for state, runtime, _ in self.statuses().values()
                if runtime.endswith(f"/{pid}")]
        return mine == ["running"] * 2

    def path(self, name: str, kind: str = "relation") -> str:
        state = self.catalog.state()
        item = dependencies.find(state, kind, self.q(name)).item
        return f"{state.config['warehouse'].value}/{item.shard}"

    def rows(self, name: str, kind: str = "relation", version: int | None = None) -> list[Any]:
        """Rows of one of our tables as dictionaries."""
        from deltalake import QueryBuilder

        table = load_table(self.path(name, kind), version=version)
        found = QueryBuilder().register("t", table).execute("SELECT * FROM t").read_all()
        names = found.column_names
        values = [found.column(each).to_pylist() for each in names]
        return [dict(zip(names, row, strict=True)) for row in zip(*values, strict=True)]

    def there(self, table: str) -> list[Any]:
        with self.postgres.connect("app", "shop") as connection:
            cursor = connection.execute(f"SELECT * FROM {table}".encode())
            names = [each.name for each in cursor.description or ()]
            return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]

    def snapshots(self) -> list[Path]:
        """The folders of both snapshots, once they are there."""
        return list(self.directory.glob("**/snapshot"))

    def slots(self) -> list[str]:
        return [name for (name,) in self.postgres.execute(
            "SELECT slot_name FROM pg_replication_slots WHERE slot_type = 'logical'"
        )]

    def kill_when(self, condition: Callable[[], bool], what: str) -> None:
        """Start the runtime, kill it as soon as a condition holds."""
        process = self.run_cluster()
        deadline = time.monotonic() + PATIENCE
        while not condition():
            assert process.running, process.output[-3000:]
            assert time.monotonic() < deadline, (what, self.statuses(), process.output[-3000:])
            time.sleep(0.005)
        process.kill()
        print(f"killed {what}")

    def is_caught_up(self) -> bool:
        """Whether both sources have every transfer; the writers rest."""
        count = self.postgres.execute("SELECT count(*) FROM transfers", database="shop")[0][0]
        return all(
            load_table(self.path(f"transfers_{name}")).count() == count for name in "cm"
        )


@pytest.fixture
def bank(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bank]:
    """A bank on a server of its own, its writers at rest."""
    with PostgresServer(tmp_path / "primary", settings={"max_wal_senders": "10"}) as server:
        made = Bank(tmp_path, None, None, server, monkeypatch)  # type: ignore[arg-type]
        made.lay_out()
        yield made
        made.stop()
        for standby in made.standbys:
            standby.close()


def test_a_bank_through_everything(bank: Bank) -> None:
    """Every change once, mirrors that are their tables at the same LSN, sums that agree at every
    transaction boundary; through kills, a column, a password, a promotion and a migration."""
    chance = random.Random(SEED)
    writers = bank.writers
    steps = KILLS + 4
    step = CHANGES // steps
    writers.go_on_to(step)
    moments: list[tuple[Callable[[], bool], str]] = [
        (lambda: bool(bank.slots()), "between a slot and its manifest"),
        (lambda: any(list(each.glob("*/manifest.json")) for each in bank.snapshots()),
         "behind a manifest"),
        (lambda: any((each / "loaded.json").exists() for each in bank.snapshots()),
         "behind a snapshot"),
    ]
    for number in range(KILLS):
        if number < len(moments):
            bank.kill_when(*moments[number])
            continue
        writers.go_on_to(writers.allowed + step)
        if number % 2:
            end = time.monotonic() + chance.uniform(4.0, 40.0)
            bank.kill_when(lambda end=end: time.monotonic() > end, "some time after its start")
        else:
            begun: list[float] = []
            wait = chance.uniform(0.0, 3.0)

            def running(begun: list[float] = begun, wait: float = wait) -> bool:
                if not begun and bank.all_run():
                    begun.append(time.monotonic())
                return bool(begun) and time.monotonic() > begun[0] + wait

            bank.kill_when(running, f"{wait:.1f} s after it ran")
    bank.run_cluster()
    bank.until(bank.all_run, "both sources to run")

    writers.go_on_to(writers.allowed + step // 2)
    bank.upstream("ALTER TABLE accounts ADD COLUMN tag text")
    bank.tagged = True
    writers.go_on_to(writers.allowed + step // 2)
    bank.until(
        lambda: all("tag" in columns_of(bank.path(f"accounts_{name}")) for name in "cm"),
        "the column of upstream",
    )

    writers.go_on_to(writers.allowed + step)
    bank.postgres.set_password("cdc", "second word of cdc", disconnect=True)
    bank.write_word("second word of cdc")
    bank.run(f"ALTER SECRET {bank.q('cdc')}")

    writers.go_on_to(writers.allowed + step)
    before = bank.path("transfers_c")
    bank.release(
        2, "happened TIMESTAMP RENAMED FROM (at)", ", checked BOOLEAN",
        " PARTITIONED BY (_operation)",
    )
    bank.until(
        lambda: bank.path("transfers_c") != before
        and "checked" in columns_of(bank.path("transfers_c")), "the migrated table",
    )

    bank.move_to_standby()
    writers.go_on_to(CHANGES)
    writers.finish()
    bank.until(bank.is_caught_up, "every transfer", 4 * PATIENCE)
    require_exact(bank)


def require_exact(bank: Bank) -> None:
    """What the tables here hold, against upstream and against each other."""
    for table in TABLES:
        wanted = Counter(map(row_of, bank.there(table)))
        found = Counter(map(row_of, bank.rows(f"{table}_m")))
        assert found == wanted, (table, list((found - wanted).items())[:5],
                                 list((wanted - found).items())[:5])
    changes = {table: bank.rows(f"{table}_c") for table in TABLES}
    assert not [row for row in changes["transfers"] if row["happened"] is None]
    at: dict[int, list[tuple[int, str, Any]]] = defaultdict(list)
    for table, rows in changes.items():
        for row in rows:
            if row["_operation"] != "snapshot":
                at[row["_lsn"]].append((row["_sequence"], table, row))
    states = {
        table: {row["id"]: row for row in rows if row["_operation"] == "snapshot"}
        for table, rows in changes.items()
    }
    own = Counter({row["_lsn"]: row["changes"] for row in bank.rows("c", "source")})
    assert own == Counter({lsn: len(rows) for lsn, rows in at.items()})
    versions = {row[0]: row for row in mirror_versions(bank)}
    total, done = sums(states)
    assert (total, done) == (100 * ACCOUNTS, len(states["transfers"]))
    compared = 0
    for lsn in sorted(at):
        rows = sorted(at[lsn], key=lambda each: each[0])
        assert len({sequence for sequence, _, _ in rows}) == len(rows), f"doubled at {lsn}"
        (transfer,) = (row for _, table, row in rows if table == "transfers")
        assert transfer["changes"] == len(rows), f"lost at {lsn}"
        for _, table, row in rows:
            total, done = apply(states, table, row, total, done)
        assert (total, done) == (100 * ACCOUNTS, len(states["transfers"])), lsn
        if lsn in versions:
            _, version, found = versions[lsn]
            wanted = {key: row["amount"] for key, row in states["accounts"].items()}
            assert found == wanted, f"the mirror at version {version}, {lsn}"
            compared += 1
    assert compared == len(versions)
    print(f"{sum(own.values())} changes in {len(at)} transactions; {compared} mirrors compared")


def mirror_versions(bank: Bank) -> Iterator[tuple[int, int, dict[int, Decimal]]]:
    """(newest LSN, version, amounts) of a mirror at some of its versions behind the snapshot."""
    newest = load_table(bank.path("accounts_m")).version()
    for version in range(2, newest + 1, max(1, newest // 12)):
        rows = bank.rows("accounts_m", version=version)
        lsn = max((row["_lsn"] for row in rows), default=0)
        if lsn > min((row["_lsn"] for row in rows), default=0):
            yield lsn, version, {row["id"]: row["amount"] for row in rows}


def sums(states: dict[str, dict[int, Any]]) -> tuple[Any, int]:
    return (sum(row["amount"] for row in states["accounts"].values()),
            sum(row["done"] for row in states["tellers"].values()))


def apply(
    states: dict[str, dict[int, Any]], table: str, row: Any, total: Any, done: int
) -> tuple[Any, int]:
    """One change on the rows as they were; the sums behind it."""
    before = row["_before"]
    key = int(dict(before)["id"]) if before else row["id"]
    old = states[table].pop(key, None)
    new = None if row["_operation"] == "delete" else row
    assert (old is None) == (row["_operation"] == "insert"), (table, row, old)
    if new is not None:
        if old is not None and row["_unchanged"]:
            new = {**new, **{name: old[name] for name in row["_unchanged"]}}
        states[table][row["id"]] = new
    for each, sign in ((old, -1), (new, 1)):
        if each is not None:
            total += sign * each["amount"] if table == "accounts" else 0
            done += sign * each["done"] if table == "tellers" else 0
    return total, done


def columns_of(path: str) -> set[str]:
    return {field.name for field in load_table(path).schema().fields}


def row_of(row: Any) -> tuple[Any, ...]:
    """A row without the product's own columns."""
    return tuple(sorted((name, value) for name, value in row.items() if not name.startswith("_")))
