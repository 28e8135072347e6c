"""The policy at the start of a process: it holds for whatever plan is handed in."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from catalog_migrate.catalog.clock import SystemClock
from catalog_migrate.catalog.memory_log import MemoryLog
from catalog_migrate.catalog.opening import read_state
from catalog_migrate.errors import MigrationBlocked, StalePlan
from catalog_migrate.policy import Policy, Rule
from catalog_migrate.release.loader import load_texts
from catalog_migrate.testing.engine import SimulatedEngine
from catalog_migrate.testing.starts import migrate

FIRST = "CREATE TABLE s.t (a BIGINT, b INT);"
SECOND = "CREATE TABLE s.t (a INT) DROPPED (b);"


class Start:
    """Starts of one software on one simulated installation."""

    def __init__(self) -> None:
        self.log = MemoryLog()
        self.engine = SimulatedEngine(persistent=True)

    def __call__(self, text: str, name: str, **options: Any) -> Any:
        """One start with a release of this text."""
        return migrate(
            self.engine, self.log, load_texts([("r.sql", text)], name=name),
            warehouse="/w", clock=SystemClock(), holder="a test", **options,
        )


def test_rules_hold_in_a_start_and_for_a_plan_made_elsewhere(tmp_path: Path) -> None:
    """Refused: blocked with nothing touched, even with an approved plan. Allowed: applied."""
    start = Start()
    start(FIRST, "1")
    lax = Policy(rules=(Rule("convert", "allow", "s.t"),))
    strict = Policy(rules=(Rule("drop_column", "refuse", origin="here"), *lax.rules))
    plan = start(SECOND, "2", policy=lax, read_only=True).plan
    assert plan.approved == ("s.t.a",)
    version = start.log.version()
    for given in (None, plan):
        with pytest.raises(MigrationBlocked) as caught:
            start(SECOND, "2", policy=strict, plan=given)
        assert [entry.code for entry in caught.value.plan.blocked] == ["CM0308"]
        assert "refused by here: refuse drop_column of *" in str(caught.value)
    assert start.log.version() == version
    # where nothing is said, the approval that the plan carries is enough
    assert start(SECOND, "2", plan=plan).outcome == "migrated"


def test_a_rule_of_everything_leaves_our_own_views_alone() -> None:
    """Users' rules are about users' objects: an upgrade of the built-ins is not judged."""
    start = Start()
    system = "CREATE VIEW sys.v (a INT) AS SELECT 1 AS a;"
    start(FIRST, "1", system=load_texts([("s.sql", system)], name="sys-1"))
    other = "CREATE VIEW sys.w (a INT) AS SELECT 1 AS a;"
    report = start(
        FIRST, "1", system=load_texts([("s.sql", other)], name="sys-2"),
        policy=Policy(rules=(Rule("any", "refuse"),)),
    )
    assert report.outcome == "unchanged"
    assert [seen.name.name for seen in start.engine.observe("sys")] == ["w"]


def test_a_rule_that_keeps_the_way_back_makes_a_copy() -> None:
    """Nothing is blocked; a plan made under other rules says another thing, and is not applied."""
    dropped = "CREATE TABLE s.t (a BIGINT) DROPPED (b);"
    keep = Policy(rules=(Rule("drop_in_place", "refuse"),))
    for rules, other, contents in ((keep, None, "copy"), (None, keep, "evolve")):
        start = Start()
        start(FIRST, "1")
        start.engine.world.append(next(iter(start.engine.world.shards)), [{"a": 1, "b": 2}])
        plan = start(dropped, "2", policy=rules, read_only=True).plan
        assert plan.applyable
        assert plan.changes[0].contents == contents
        with pytest.raises(StalePlan):
            start(dropped, "2", policy=other, plan=plan)
        assert dict(read_state(start.log).intents) == {}
        assert read_state(start.log).release_in_force("release").name == "1"
        report = start(dropped, "2", policy=rules, plan=plan)
        assert (report.outcome, report.rows_copied) == ("migrated", 1 if contents == "copy" else 0)
