"""A shared metastore does to starts what happens to one: company, readers, death, delay, refusal.

Three applications of their own processes on one Hive metastore; soak, for their JVMs alone take a
minute to start.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.metastores.conftest import Process
from tests.services.metastore import HiveMetastore, SlowWire
from tests.services.postgres import PostgresServer

pytestmark = [pytest.mark.spark, pytest.mark.soak]

ONE = """
CREATE TABLE {s}.orders (id BIGINT NOT NULL, qty STRING);
CREATE TABLE {s}.buyers (id BIGINT, name STRING);
CREATE TABLE {s}.tags (tag STRING);
CREATE VIEW {s}.big (id BIGINT, qty STRING) AS SELECT id, qty FROM {s}.orders WHERE id > 1;
CREATE VIEW {s}.top (id BIGINT) AS SELECT id FROM {s}.big;
CREATE VIEW {s}.labels (tag STRING) AS SELECT tag FROM {s}.tags;
CREATE FUNCTION {s}.twice (x BIGINT) RETURNS BIGINT RETURN x * 2;
"""
TWO = """
CREATE TABLE {s}.orders (id BIGINT NOT NULL, qty INT USING CAST(qty AS INT));
CREATE TABLE {s}.buyers (id BIGINT, name STRING, email STRING);
CREATE TABLE {s}.tags (tag STRING);
CREATE VIEW {s}.big (id BIGINT, qty INT) AS SELECT id, qty FROM {s}.orders WHERE id > 1;
CREATE VIEW {s}.top (id BIGINT) AS SELECT id FROM {s}.big;
CREATE VIEW {s}.labels (tag STRING) AS SELECT tag FROM {s}.tags;
CREATE FUNCTION {s}.twice (x BIGINT) RETURNS BIGINT RETURN x * 2;
"""
LITTLE = "CREATE TABLE {s}.orders (id BIGINT NOT NULL, qty {type});"
NAMES = ["big", "buyers", "labels", "orders", "tags", "top"]


class Place:
    """A catalog and releases of it, with one schema in the metastore."""

    def __init__(self, home: Path, schema: str) -> None:
        self.schema = schema
        self._home = home

    @property
    def catalog(self) -> str:
        return str(self._home / "catalog")

    def release(self, name: str, text: str) -> str:
        """A release directory."""
        directory = self._home / f"release-{name}"
        directory.mkdir()
        (directory / "all.sql").write_text(text.replace("{s}", self.schema))
        (directory / "release.toml").write_text(f'name = "{name}"\n')
        return str(directory)

    def more(self, count: int) -> str:
        """Release 2 with so many tables more, and a view on each."""
        return TWO + "".join(
            f"CREATE TABLE {{s}}.x{number} (a INT);\n"
            f"CREATE VIEW {{s}}.y{number} (a INT) AS SELECT a FROM {{s}}.x{number};\n"
            for number in range(count)
        )

    def listed(self, application: Process) -> list[str]:
        """The names that the metastore has."""
        rows = application.do("sql", f"SHOW TABLES IN {self.schema}")
        return sorted(row.split("'")[3] for row in rows)


@pytest.fixture
def place(tmp_path: Path, schema_name: str) -> Place:
    """A catalog that is not there yet."""
    return Place(tmp_path, f"shop_{schema_name}")


def test_two_of_one_release(applications: list[Process], place: Place) -> None:
    """At one moment: one brings it in, the other follows; then nobody has anything to do."""
    first, second, third = applications
    one = place.release("1", ONE)
    for each in (first, second):
        each.ask("start", one, place.catalog)
    told = [each.answer() for each in (first, second)]
    outcomes = sorted(each["outcome"] for each in told)
    assert outcomes in (["followed", "initialized"], ["initialized", "unchanged"]), told
    assert third.do("start", one, place.catalog)["outcome"] == "unchanged"
    assert place.listed(third) == NAMES


def test_two_of_two_releases(applications: list[Process], place: Place) -> None:
    """At one moment: the later is in force, whoever comes first, and the older is refused."""
    first, second, third = applications
    one, two = place.release("1", ONE), place.release("2", TWO)
    assert first.do("start", one, place.catalog)["outcome"] == "initialized"
    assert first.do("sql", f"INSERT INTO {place.schema}.orders VALUES (1, '5'), (2, '7')") == []
    first.ask("start", one, place.catalog)
    second.ask("start", two, place.catalog)
    told = [first.answer(), second.answer()]
    assert told[0]["outcome"] in {"unchanged", "fenced_out"}, told
    assert told[1]["outcome"] == "migrated", told
    assert first.do("start", one, place.catalog)["outcome"] == "fenced_out"
    assert third.do("start", two, place.catalog)["outcome"] == "unchanged"
    assert third.do("sql", f"SELECT * FROM {place.schema}.big") == ["(2, 7)"]


def test_a_reader_misses_no_name_that_is_not_listed(
    applications: list[Process], place: Place, tmp_path: Path,
    record_property: Callable[[str, object], None],
) -> None:
    """Listing and querying all through an upgrade: what was absent, the report has as dropped."""
    first, _, reader = applications
    assert first.do("start", place.release("1", ONE), place.catalog)["outcome"] == "initialized"
    until = tmp_path / "until"
    reader.ask("watch", place.schema, NAMES, str(until))
    time.sleep(10)  # the reader's first queries are its slowest
    told = first.do("start", place.release("2", TWO), place.catalog)
    until.touch()
    seen = reader.answer()
    record_property("reader", seen)
    assert told["outcome"] == "migrated", told
    dropped = {
        name.removeprefix(f"{place.schema}.") for op, name, _ in told["executed"] if op == "drop"
    }
    assert dropped == {"big", "orders", "top"}
    assert set(seen["absent"]) <= dropped, seen
    assert set(seen["failed"]) <= dropped, seen
    listings, queries = seen["rounds"]
    assert (listings > 10, queries > 2) == (True, True), seen


def test_killed_in_a_wave(
    applications: list[Process], place: Place, metastore: HiveMetastore, wire: SlowWire,
    postgres: PostgresServer, record_property: Callable[[str, object], None],
) -> None:
    """The start says which server is away and what to do; said again, it finishes.

    While it is away, a start in a new place is refused before anything is written.
    """
    first, second, _ = applications
    assert first.do("start", place.release("1", ONE), place.catalog)["outcome"] == "initialized"
    more = place.release("2", place.more(8))
    first.ask("start", more, place.catalog)
    query = (
        'SELECT count(*) FROM "TBLS" JOIN "DBS" USING ("DB_ID")'
        ' WHERE "NAME" = %s AND "TBL_NAME" LIKE %s'
    )
    while postgres.execute(query, [place.schema, "x%"], database=metastore.database)[0][0] < 3:
        time.sleep(0.02)
    metastore.kill()
    killed = time.monotonic()
    told = first.answer()
    record_property("seconds until it said so", round(time.monotonic() - killed))
    record_property("kills", 1)
    assert told["error"] == "CM0410", told
    assert f"the metastore {wire.address} does not answer" in told["message"]
    assert told["remedy"].startswith("start it, or correct hive.metastore.uris")
    again = second.do("start", more, place.catalog)
    assert (again["error"], wire.address in again["message"]) == ("CM0410", True), again
    elsewhere = second.do("start", more, f"{place.catalog}-other")
    assert (elsewhere["error"], wire.address in elsewhere["message"]) == ("CM0404", True), elsewhere
    metastore.start()
    told = second.do("start", more, place.catalog)
    assert told["outcome"] == "resumed", told
    numbers = range(8)
    assert place.listed(first) == sorted(
        [*NAMES, *(f"x{number}" for number in numbers), *(f"y{number}" for number in numbers)]
    )
    assert first.do("start", more, place.catalog)["outcome"] == "unchanged"


def test_killed_and_started_again_at_once(
    applications: list[Process], place: Place, metastore: HiveMetastore,
) -> None:
    """Down for some seconds: the start rides over it, or says so; then every name is there."""
    first, _, _ = applications
    one = place.release("1", ONE)
    first.ask("start", one, place.catalog)
    time.sleep(3)
    metastore.kill()
    metastore.start()
    told = first.answer()
    assert told.get("outcome") == "initialized" or told["error"] in {"CM0404", "CM0410"}, told
    assert "outcome" in first.do("start", one, place.catalog)
    assert place.listed(first) == NAMES


def test_slow(
    applications: list[Process], place: Place, wire: SlowWire,
    record_property: Callable[[str, object], None],
) -> None:
    """Two seconds a call: the upgrade takes long, keeps its lease, and others wait for it."""
    first, second, third = applications
    one = place.release("1", LITTLE.replace("{type}", "STRING"))
    two = place.release("2", LITTLE.replace("{type}", "INT USING CAST(qty AS INT)"))
    assert first.do("start", one, place.catalog)["outcome"] == "initialized"
    before = wire.calls
    wire.delay = 2.0
    try:
        for each in (first, second):
            each.ask("start", two, place.catalog)
        told: list[Any] = [each.answer() for each in (first, second)]
    finally:
        wire.delay = 0.0
    record_property("calls", wire.calls - before)
    record_property("seconds", [round(each["seconds"]) for each in told])
    assert sorted(each.get("outcome", "") for each in told) in (
        ["followed", "migrated"], ["migrated", "unchanged"]
    ), told
    assert min(each["seconds"] for each in told) > 60.0  # longer than two leases last
    assert third.do("start", two, place.catalog)["outcome"] == "unchanged"
    assert place.listed(third) == ["orders"]


def test_refusing(
    applications: list[Process], place: Place, metastore: HiveMetastore, wire: SlowWire,
    postgres: PostgresServer, user_name: str,
) -> None:
    """A metastore whose database may only be read: the start says so; let in, it finishes."""
    first, second, _ = applications
    assert first.do("start", place.release("1", ONE), place.catalog)["outcome"] == "initialized"
    postgres.create_user(user_name, "may-read")
    postgres.execute("REVOKE CREATE ON SCHEMA public FROM PUBLIC", database=metastore.database)
    postgres.execute(
        f"GRANT SELECT ON ALL TABLES IN SCHEMA public TO {user_name}", database=metastore.database
    )
    owner, metastore.user = metastore.user, user_name
    metastore.kill()
    metastore.start()
    two = place.release("2", TWO)
    try:
        told = first.do("start", two, place.catalog)
    finally:
        metastore.user = owner
        metastore.kill()
        metastore.start()
    assert told["error"] == "CM0410", told
    assert f"the metastore {wire.address} refuses" in told["message"]
    assert told["remedy"].startswith("have its operator let this user create")
    assert second.do("start", two, place.catalog)["outcome"] == "resumed"
    assert place.listed(second) == NAMES
