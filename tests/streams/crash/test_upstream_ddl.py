"""Mirrors under random DDL upstream and four writers: equal to their source, or held.

``SOAK_MINUTES`` (10) says how long, ``DDL_SEED`` which of the histories. A mirror that is held has
come to its end; another table takes its place.
"""

from __future__ import annotations

import math
import os
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psycopg
import pytest

from catalog_migrate.delta.table import load_table
from catalog_migrate.errors import CatalogMigrateError, SourceDiffers, SourceNotCompared
from catalog_migrate.streams.catalog import dependencies
from catalog_migrate.streams.catalog.cluster_log import latest, list_holds
from tests import series
from tests.services.postgres import OWNER, PostgresServer

from .conftest import Killable
from .runtime_process import PATIENCE
from .upstream_ddl import ROLE, STEPS, Subject, draw_step

pytestmark = [pytest.mark.spark, pytest.mark.services, pytest.mark.crash, pytest.mark.soak]

MINUTES = 10.0 if math.isinf(series.MINUTES) else series.MINUTES
SEED = int(os.environ.get("DDL_SEED", "1"))
SUBJECTS, WRITERS = 4, 4
DECIDED = 150.0
"""Seconds in which a mirror is equal or held after a step, on a loaded machine."""


class Upstreams(Killable):
    """A server with some subjects, each of them mirrored by a source of its own."""

    def lay_out(self) -> None:
        self.postgres.create_user(ROLE, "word of cdc", replication=True)
        self.postgres.create_database("shop")
        self.secret(ROLE, "word of cdc")
        self.run(f"CREATE CLUSTER {self.q('main')}")
        self.run(
            f"CREATE CONNECTION {self.q('pg')} TO POSTGRES (HOST '127.0.0.1',"
            f" PORT {self.postgres.port}, DATABASE 'shop', USER '{ROLE}',"
            f" PASSWORD SECRET {self.q(ROLE)}, SSL MODE 'disable')"
        )
        self.subjects: dict[int, Subject] = {}
        self.locks: dict[int, threading.Lock] = {}
        self.ended = threading.Event()
        self.failures: list[str] = []
        self.counts: Counter[str] = Counter()
        self.causes: Counter[str] = Counter()
        self._number = 0
        self._laying_out = threading.Lock()

    def sql(self, *statements: str) -> None:
        """One transaction as the owner of everything; locks are waited for a moment."""
        with self.postgres.connect(OWNER, "shop") as connection:
            connection.execute("SET lock_timeout = '10s'; SET client_min_messages = error")
            if len(statements) == 1:  # VACUUM cannot be within one
                connection.execute(statements[0].encode())
                return
            with connection.transaction():
                for statement in statements:
                    connection.execute(statement.encode())

    # -- subjects ------------------------------------------------------------------------------

    def begin_subject(self, chance: random.Random) -> Subject:
        """Another table and its source, which is running and equal."""
        with self._laying_out:
            self._number += 1
            subject = Subject.draw(self._number, chance)
            for statement in subject.laid_out:
                self.sql(statement)
            more = "WITH (TRIGGER = '1 second')"
            self.run(
                f"CREATE SOURCE {self.q(f's{subject.number}')} IN CLUSTER {self.q('main')} FROM"
                f" POSTGRES CONNECTION {self.q('pg')} (PUBLICATION '{subject.publication}', TABLES"
                f" ({subject.table} AS {self.q(f'm{subject.number}')})) FORMAT MIRROR {more}"
            )
            self.locks[subject.number] = threading.Lock()
        assert self.decide(subject) == "equal", f"{subject} is not mirrored at first"
        self.subjects[subject.number] = subject
        return subject

    def end_subject(self, subject: Subject) -> None:
        """Drop table and source."""
        del self.subjects[subject.number]
        with self._laying_out, self.locks[subject.number]:
            self.run(f"DROP SOURCE {self.q(f's{subject.number}')}")
            for statement in subject.removed:
                with suppress(psycopg.Error):
                    self.sql(statement)

    def drive(self, chance: random.Random) -> None:
        """One subject after the other, a step at a time."""
        subject = self.begin_subject(chance)
        while not self.ended.is_set():
            name = draw_step(subject, chance)
            subject.steps.append(name)
            step = STEPS[name]
            self.carry_out(step.do(subject, chance))
            if step.undo is not None and chance.random() < 0.5:
                self.ended.wait(chance.choice((0.0, 0.3, 3.0)))
                subject.steps.append(f"{name}, undone")
                self.carry_out(step.undo(subject))
            self.counts["steps"] += 1
            found = self.judge(subject, harmless=step.harmless)
            if found != "equal":
                self.end_subject(subject)
                subject = self.begin_subject(chance)

    def carry_out(self, groups: list[list[str]]) -> None:
        """Transactions; the server may refuse any of them, and then those behind it."""
        with suppress(psycopg.Error):
            for group in groups:
                self.sql(*group)
                self.ended.wait(0.05)

    def judge(self, subject: Subject, *, harmless: bool) -> str:
        """What became of a mirror after a step, its failure on record."""
        found = self.decide(subject)
        said = f"{subject}: seed {SEED}"
        if found == "equal":
            self.counts["equal"] += 1
            try:
                self.run(f"VALIDATE SOURCE {self.q(f's{subject.number}')}")
                self.counts["validated"] += 1
            except SourceDiffers as error:
                if self.decide(subject) == "equal":
                    self.failures.append(f"VALIDATE found what is not there: {said}: {error}")
            except (SourceNotCompared, CatalogMigrateError) as error:
                self.counts[f"not validated: {error.code}"] += 1
        elif found == "held":
            self.counts["held"] += 1
            (reason, *_) = self.holds_of(subject)
            self.causes[f"{subject.steps[-1]}: {reason[:150]}"] += 1
            if not {subject.table, subject.publication} & set(_words(reason)):
                self.failures.append(f"a hold that does not say of what: {said}: {reason}")
            # what copies a table again cannot, under a policy of an earlier step
            if harmless and "row-level security" not in reason:
                self.failures.append(f"held without a cause: {said}: {reason}")
        else:
            self.failures.append(f"{found}: {said}")
        return found

    def holds_of(self, subject: Subject) -> tuple[str, ...]:
        return list_holds(self.catalog.state(), self.id(f"s{subject.number}"))

    def decide(self, subject: Subject) -> str:
        """``equal`` or ``held``, else what is wrong, with this subject's writers kept off.

        A last change of it makes the server send its columns.
        """
        deadline = time.monotonic() + DECIDED
        with self.locks[subject.number]:
            row = 7_000 + len(subject.steps)
            for statement in (
                f"INSERT INTO {subject.table} (id, v) VALUES ({row}, 'last')",
                f"UPDATE {subject.table} SET v = v || '.' WHERE id % 50 = 0",
            ):
                with suppress(psycopg.Error):
                    self.sql(statement)
            while time.monotonic() < deadline:
                if self.holds_of(subject):
                    return "held"
                if self.is_equal(subject):
                    return "equal"
                time.sleep(0.5)
            state = self.catalog.state()
            status = latest(state).get(self.id(f"s{subject.number}"))
            found = "without a status" if status is None else f"{status.state} {status.error or ''}"
            validated = ""
            if status is not None and status.state == "running":
                try:
                    self.run(f"VALIDATE SOURCE {self.q(f's{subject.number}')}")
                    validated = ", and VALIDATE did not see it"
                except CatalogMigrateError as error:
                    validated = f", {error.code} {getattr(error, 'differences', '')}"
            return f"{found}, and different{validated}"

    # -- rows ----------------------------------------------------------------------------------

    def is_equal(self, subject: Subject) -> bool:
        """Whether the mirror has the published rows of upstream, read by neither product."""
        schema, table = subject.table.split(".")
        there = self.postgres.execute(
            "SELECT a.attname FROM pg_attribute a WHERE a.attrelid = to_regclass(%s)"
            " AND a.attnum > 0 AND NOT a.attisdropped", [subject.table], database="shop",
        )
        names = [name for name, in there]
        state = self.catalog.state()
        item = dependencies.find(state, "relation", self.q(f"m{subject.number}")).item
        path = f"{state.config['warehouse'].value}/{item.shard}"
        ours = load_table(path)
        if not names or not set(names) <= {field.name for field in ours.schema().fields}:
            return False
        filters = self.postgres.execute(
            "SELECT rowfilter FROM pg_publication_tables WHERE pubname = %s AND schemaname = %s"
            " AND tablename = %s", [subject.publication, schema, table], database="shop",
        )
        where = f"WHERE {filters[0][0]}" if filters and filters[0][0] else ""
        only = "" if subject.partitioned else "ONLY"
        listed = ", ".join(f'"{name}"::text' for name in names)
        wanted = Counter(self.postgres.execute(
            f"SELECT {listed} FROM {only} {subject.table} {where}", database="shop"
        ))
        rows = ours.to_pyarrow_table(columns=names)
        columns = [rows.column(name).to_pylist() for name in names]
        return wanted == Counter(
            tuple(None if value is None else _text(value) for value in row)
            for row in zip(*columns, strict=True)
        )

    def write(self, seed: int) -> None:
        """Transactions over all subjects, some rolled back; what the server refuses is left."""
        chance = random.Random(seed)
        while not self.ended.is_set():
            with suppress(psycopg.Error), self.postgres.connect(OWNER, "shop") as connection:
                connection.execute("SET lock_timeout = '3s'")
                while not self.ended.wait(0.03):
                    subjects = list(self.subjects.values())
                    if subjects:
                        subject = chance.choice(subjects)
                        with self.locks[subject.number], suppress(psycopg.Error):
                            self._transaction(connection, subject, chance)

    def _transaction(
        self, connection: psycopg.Connection[Any], subject: Subject, chance: random.Random
    ) -> None:
        table = subject.table
        with connection.transaction():
            for _ in range(chance.randrange(1, 5)):
                row, other = chance.randrange(400), chance.randrange(400)
                connection.execute(chance.choice((
                    f"INSERT INTO {table} (id, v, n, large) SELECT {row}, 'new', {other},"
                    f" repeat('y', {chance.choice((1, 4000))})"
                    f" WHERE NOT EXISTS (SELECT FROM {table} WHERE id = {row})",
                    f"UPDATE {table} SET v = v || '{other}', yes = NOT yes WHERE id = {row}",
                    f"UPDATE {table} SET n = n + 1 WHERE id BETWEEN {row} AND {row + 9}",
                    f"UPDATE {table} SET large = repeat('z', 3500) WHERE id = {row}",
                    f"UPDATE {table} SET id = {other}, large = 'moved' WHERE id = {row}"
                    f" AND NOT EXISTS (SELECT FROM {table} WHERE id = {other})",
                    f"DELETE FROM {table} WHERE id = {row}",
                )).encode())
            if chance.random() < 0.1:
                raise psycopg.Rollback


def _text(value: Any) -> str:
    """A value as PostgreSQL's cast to text has it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _words(text: str) -> list[str]:
    return text.replace(",", " ").replace(";", " ").replace(":", " ").replace('"', "").split()


@pytest.fixture
def upstreams(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Upstreams]:
    """A server of its own, with the runtime of its sources in a process."""
    settings = {"max_wal_senders": "30", "max_replication_slots": "30", "max_connections": "100"}
    with PostgresServer(tmp_path / "pg", settings=settings) as server:
        made = Upstreams(tmp_path, None, None, server, monkeypatch)  # type: ignore[arg-type]
        made.lay_out()
        made.run_cluster()
        yield made
        made.ended.set()
        made.stop()


def test_never_running_and_different(
    upstreams: Upstreams, record_property: Callable[[str, object], None]
) -> None:
    """After each step of random DDL beside four writers a mirror is equal to its source at one
    LSN, by VALIDATE SOURCE and by a comparison of its own, or held with the table and the cause;
    and what cannot lose a change holds none."""
    record_property("series", "random DDL upstream under mirrors")
    errors: list[BaseException] = []

    def caught(act: Callable[[], None]) -> None:
        try:
            act()
        except BaseException as error:  # noqa: BLE001 - raised below
            errors.append(error)
            upstreams.ended.set()

    def driver(seed: int) -> Callable[[], None]:
        return lambda: upstreams.drive(random.Random(SEED * 1000 + seed))

    def writer(seed: int) -> Callable[[], None]:
        return lambda: upstreams.write(SEED * 1000 + 500 + seed)

    acts = [*map(driver, range(SUBJECTS)), *map(writer, range(WRITERS))]
    threads = [threading.Thread(target=caught, args=(act,), daemon=True) for act in acts]
    for thread in threads:
        thread.start()
    upstreams.ended.wait(MINUTES * 60)
    upstreams.ended.set()
    for thread in threads:
        thread.join(2 * DECIDED + PATIENCE)
        assert not thread.is_alive(), "a thread goes on"
    for subject in list(upstreams.subjects.values()):
        upstreams.judge(subject, harmless=False)
    for text, count in sorted(upstreams.causes.items()):
        print(f"{count} times {text}")
    print(dict(upstreams.counts))
    record_property("rounds", upstreams.counts["steps"])
    record_property("failures", len(upstreams.failures))
    if errors:
        raise errors[0]
    assert upstreams.process is not None
    assert upstreams.process.running
    assert upstreams.failures == [], "\n".join(upstreams.failures)
    assert upstreams.counts["steps"] >= 4
    assert upstreams.counts["validated"] > 0
