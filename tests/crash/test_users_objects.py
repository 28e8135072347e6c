"""Upgrades on a shared metastore under users' views: killed at every call, while a user acts.

A view is as its user left it, or as a repair that is on record did; what is on record of each is
what Spark makes of it. Every round is one on the same metastore: a user in a process of its own
alters, drops and makes views until the upgrade is killed, then another start finishes it.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from catalog_migrate.catalog.opening import open_log, read_state
from tests.crash.conftest import committed
from tests.crash.test_kill_at_every_step import FIRST, LAST, Point, points
from tests.crash.victims import Jvm, Victims
from tests.metastores.conftest import Process
from tests.series import spread, within_minutes
from tests.services.metastore import HiveMetastore

pytestmark = [pytest.mark.spark, pytest.mark.crash, pytest.mark.services, pytest.mark.soak]

ONE = """
CREATE TABLE depot.orders (id BIGINT NOT NULL, qty INT, buyer STRING, note STRING);
CREATE TABLE depot.buyers (id BIGINT, name STRING);
CREATE VIEW depot.big (id BIGINT, qty INT) AS SELECT id, qty FROM depot.orders WHERE id > 1;
CREATE FUNCTION depot.twice (x BIGINT) RETURNS BIGINT RETURN x * 2;
"""
TWO = """
CREATE TABLE depot.orders (
  id BIGINT NOT NULL, qty STRING USING CAST(qty AS STRING), customer STRING RENAMED FROM buyer
) DROPPED (note);
CREATE TABLE depot.buyers (id BIGINT, name STRING, email STRING);
CREATE VIEW depot.big (id BIGINT, qty STRING) AS SELECT id, qty FROM depot.orders WHERE id > 1;
CREATE FUNCTION depot.twice (x BIGINT) RETURNS BIGINT RETURN x * 3;
"""
SCHEMAS = ("depot", "team", "catalog_migrate")
OURS = ("depot.orders", "depot.buyers", "depot.big")

KEPT = {
    "kept_id": "SELECT id FROM depot.orders",
    "kept_buyer": "SELECT buyer FROM depot.orders",
    "kept_note": "SELECT o.note AS n FROM depot.orders o",
    "kept_all": "SELECT * FROM depot.buyers",
    "kept_above": "SELECT buyer FROM team.kept_buyer",
}
"""Views of ``team`` that no user changes: two go on, one is repaired, one breaks."""

BOUND = (
    "CREATE VIEW team.kept_bound COMMENT 'theirs' WITH SCHEMA BINDING AS SELECT qty FROM depot.big"
)
"""One that only needs binding again."""

CHANGED = {
    f"changed_{number}": [
        "SELECT id, qty FROM depot.orders", "SELECT buyer FROM depot.orders", "SELECT 1 AS one",
        "SELECT b.name, o.id FROM depot.buyers b JOIN depot.orders o ON b.id = o.id",
        "SELECT depot.twice(id) AS t FROM depot.big",
    ]
    for number in range(4)
}  # fmt: skip
"""Views that a user alters, drops and makes again, and the texts that they may have."""


class TheirJvm(Jvm):
    """The JVM of an application."""

    def __init__(self, application: Process) -> None:
        self._application = application
        self.address = application.do("gateway")

    def serving(self) -> set[int]:
        return set(self._application.do("serving"))


@dataclass
class Metastore:
    """Two applications on a metastore: one starts the software, the other is a user's."""

    base: Path
    starts: Process
    user: Process
    victims: Victims
    jvm: TheirJvm
    releases: dict[str, str]
    calls: list[tuple[str, int]] = field(default_factory=list)
    expected: dict[str, Any] = field(default_factory=dict)

    @property
    def home(self) -> Path:
        """Where the catalog and its rows are."""
        return self.base / "home"

    @property
    def catalog(self) -> str:
        return str(self.home / "catalog")

    def restore(self) -> None:
        """Release 1 with its rows, and the views as they were first."""
        self.starts.do("statements", *(f"DROP SCHEMA IF EXISTS {each} CASCADE" for each in SCHEMAS))
        shutil.rmtree(self.home, ignore_errors=True)
        kept = self.base / "pristine"
        if kept.exists():
            shutil.copytree(kept, self.home)
        assert "outcome" in self.starts.do("start", self.releases["1"], self.catalog)
        if not kept.exists():
            values = ", ".join(f"({n}, {n}, 'b{n}', 'n{n}')" for n in range(9))
            done(self.starts, f"INSERT INTO depot.orders VALUES {values}",
                 "INSERT INTO depot.buyers VALUES (1, 'a'), (2, 'b')")
            shutil.copytree(self.home, kept)
        first = {name: texts[0] for name, texts in CHANGED.items()}
        done(
            self.user, "CREATE SCHEMA team", BOUND,
            *(f"CREATE VIEW team.{name} COMMENT 'theirs' AS {text}"
              for name, text in {**KEPT, **first}.items()),
        )  # fmt: skip

    def learn(self) -> None:
        """Upgrade undisturbed: which calls there are, and what is left."""
        file = self.base / "calls.json"
        self.restore()
        code, _, wrong = self.victims.run(self.task(None), self.jvm)
        assert code == 0, wrong
        self.calls = [(label, number) for label, number, _ in json.loads(file.read_text())]
        assert self.start()["outcome"] == "unchanged"
        self.expected = self.left()

    def task(self, fatal: Point | None) -> Any:
        """What a process is told."""
        return {
            "catalog": self.catalog, "release": self.releases["2"], "fatal": fatal,
            "calls": str(self.base / "calls.json"), "repair": True,
        }

    def start(self) -> Any:
        """Start release 2 in the first application."""
        told = self.starts.do("start", self.releases["2"], self.catalog, True)
        assert "outcome" in told, told
        return told

    def left(self) -> dict[str, Any]:
        """What is committed, and our names with columns and rows."""
        found = committed(self.catalog)
        del found["leases"]
        return {**found, "names": {name: self.starts.do("table", name) for name in OURS}}

    def meddled(self, seed: int, act: Any) -> tuple[dict[str, str | None], int]:
        """Do something while a user changes views: what each is left as, by how many statements."""
        until = self.base / "until"
        until.unlink(missing_ok=True)
        self.user.ask("meddle", "team", CHANGED, str(until), seed)
        try:
            act()
        finally:
            until.touch()
            left, went, _ = self.user.answer()
        return left, went

    def verify(self, left: dict[str, str | None], *, looked: bool) -> int:
        """Each view is as its user left it or a repair on record did; what is on record is true.

        ``looked``: the last start looked at them; else what the user changed may be on record as it
        was. How many were repaired.
        """
        texts = {name: texts[0] for name, texts in CHANGED.items()}
        wanted = {**KEPT, "kept_bound": BOUND.partition(" AS ")[2], **texts, **left}
        found = self.starts.do("definitions", "team")
        assert set(found) == {name for name, text in wanted.items() if text is not None}
        state = read_state(open_log(self.catalog))
        records = {
            row.name: row for row in state.user_objects.values() if row.schema == "team"
        }
        names = sorted(found)
        binds = self.starts.do("binds", *(f"SELECT * FROM team.{name}" for name in names))
        repaired = 0
        for name, condition in zip(names, binds, strict=True):
            text, comment = found[name]
            assert comment == "theirs", name
            if text != wanted[name]:
                row = records[name]
                assert (row.original, row.repaired) == (wanted[name], text), name
                repaired += 1
            if "depot" in text and (looked or name not in left):
                row = records[name]
                assert (row.state == "broken") == (condition is not None), (name, row, condition)
                assert row.condition == condition, (name, row, condition)
        if looked:
            gone = set(records) - set(found)
            assert not gone, gone
        assert not [row for row in records.values() if row.due is not None]
        return repaired


def done(application: Process, *statements: str) -> None:
    """Have statements done that must go through."""
    told = application.do("statements", *statements)
    assert told == [None] * len(statements), [
        (statement, failed) for statement, failed in zip(statements, told, strict=True) if failed
    ]


@pytest.fixture(scope="module")
def place(
    metastore: HiveMetastore, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Metastore]:
    """The applications' sessions are there; nothing is installed."""
    base = tmp_path_factory.mktemp("users-objects")
    releases = {}
    for name, text in (("1", ONE), ("2", TWO)):
        directory = base / f"release-{name}"
        directory.mkdir()
        (directory / "all.sql").write_text(text)
        (directory / "release.toml").write_text(f'name = "{name}"\n')
        releases[name] = str(directory)
    started = [Process(base / f"application-{number}", metastore.address) for number in range(2)]
    try:
        for each in started:
            assert each.answer() == "ready"
        settings = {
            "spark.master": "local[2]", "spark.driver.memory": "768m",
            "spark.sql.catalogImplementation": "hive",
            "spark.hadoop.hive.metastore.uris": metastore.address,
        }
        yield Metastore(
            base, *started, Victims(base / "spark", settings), TheirJvm(started[0]), releases
        )
    finally:
        for each in started:
            each.end()


@pytest.mark.skipif(not os.environ.get("CRASH_ALL"), reason="more than an hour: make crash")
def test_every_call_may_be_the_last_while_a_user_changes_views(
    place: Metastore, record_property: Any
) -> None:
    """Killed at every call that changes something: each time the next start ends the same."""
    place.learn()
    chosen = points(place.calls)
    failed: dict[Point, str] = {}
    outcomes: Counter[str] = Counter()
    changes = repairs = rounds = 0
    for number, point in within_minutes(spread(list(enumerate(chosen, start=1))[FIRST - 1 : LAST])):
        rounds += 1
        began = time.monotonic()
        place.restore()
        try:
            left, went = place.meddled(number, lambda point=point: killed(place, point))
            told = place.start()
            assert place.left() == place.expected
            repairs += place.verify(left, looked=told["outcome"] != "unchanged")
            assert place.start()["outcome"] == "unchanged"
            outcome = told["outcome"]
            changes += went
        except AssertionError as error:
            failed[point] = str(error)
            outcome = f"FAILED {error}"
        outcomes[outcome] += 1
        print(
            f"{number}/{len(chosen)} {' '.join(map(str, point))}: {outcome};"
            f" {went} changes by the user; {time.monotonic() - began:.0f} s", flush=True,
        )
    record_property("series", "killed at every call while a user changes views")
    record_property("rounds", rounds)
    record_property("kills", rounds)
    record_property("failures", len(failed))
    print(dict(outcomes), f"{changes} changes by the user, {repairs} views repaired", flush=True)
    assert not failed


def killed(place: Metastore, point: Point) -> None:
    """An upgrade until it kills itself, in the middle of a call with its JVM."""
    within = None if point[2] == "during" else place.jvm
    code, _, wrong = place.victims.run(place.task(point), within)
    assert code == -signal.SIGKILL or (point[0] in ("renew", "replace_text") and code == 0), wrong


def test_two_applications_at_once_over_users_views(
    place: Metastore, record_property: Any
) -> None:
    """One migrates, the other follows it; every view is as it was left or repaired, once."""
    place.restore()
    for each in (place.starts, place.user):
        each.ask("start", place.releases["2"], place.catalog, True)
    told = [each.answer() for each in (place.starts, place.user)]
    outcomes = sorted(each["outcome"] for each in told)
    assert outcomes in (["followed", "migrated"], ["migrated", "unchanged"]), told
    place.verify({}, looked=True)
    assert place.start()["outcome"] == "unchanged"
    record_property("rounds", 1)
