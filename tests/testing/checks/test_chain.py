"""Chains of releases on the simulated engine: what they show, and what they find."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from catalog_migrate.policy import Policy, Rule
from catalog_migrate.testing.checks import (
    Check,
    CheckFailed,
    SampleRows,
    SimulatedPlatform,
    chains_of,
    run_chain,
)
from catalog_migrate.testing.engine import SimulatedEngine

POSTGRES = Path(__file__).parents[3] / "fixtures" / "postgres_catalog"


def test_every_pair_and_the_whole_are_chains() -> None:
    """Skipping a release is as common as taking each one."""
    assert chains_of(["a", "b", "c"]) == [("a", "b"), ("a", "c"), ("b", "c"), ("a", "b", "c")]
    assert chains_of(["a", "b"]) == [("a", "b")]


@pytest.mark.parametrize(
    "chain",
    [
        # the whole chain makes the steps of the other pairs
        pytest.param(chain, marks=[] if {"15", "18"} <= {*chain} else [pytest.mark.soak])
        for chain in chains_of(["15", "16", "18"])
    ],
    ids=lambda chain: " to ".join(map(str, chain)),
)
def test_the_postgresql_series_passes(chain: tuple[str, ...]) -> None:
    """Our own series through every chain, with rows in each table that takes made-up ones."""
    rows = SampleRows()
    keeps_the_way_back = Policy(rules=(Rule("drop_in_place", "refuse"),))
    report = run_chain(
        SimulatedPlatform(policy=keeps_the_way_back),
        [POSTGRES / f"{name}.json" for name in chain], checks=[rows],
    )
    assert report.releases == chain
    ups = sum("migrated" in step for step in report.steps if "upgrade" in step)
    assert ups == len(chain) - 1
    assert sum(step.endswith(": rolled_back") for step in report.steps) == len(chain) - 1
    assert report.rows_copied > 0


def test_the_way_back_ends_where_a_column_was_dropped_in_place() -> None:
    """18 drops a column of pg_attribute: said by its plan, so a refused rollback is no failure."""
    report = run_chain(
        SimulatedPlatform(), [POSTGRES / f"{name}.json" for name in ("15", "16", "18")],
        checks=[SampleRows()],
    )
    assert report.steps[-1] == "no way back to 16: pg_catalog.pg_attribute.attcacheoff"
    assert not any("rolled_back" in step for step in report.steps)


def test_the_teams_writers_and_validations_run_in_order(shop: list[Path], schema_name: str) -> None:
    """After each start the team validates, writes, and validates again after a restart."""
    calls: list[str] = []

    class Orders(Check):
        def write(self, platform: Any, release: Any) -> None:
            calls.append(f"write {release.name}")
            platform.append(f"{schema_name}.orders", [{"id": len(calls), "qty": 5}])

        def validate(self, platform: Any, release: Any) -> None:
            rows = platform.rows(f"{schema_name}.orders")
            calls.append(f"validate {release.name}: {len(rows)}")

    run_chain(SimulatedPlatform(), shop[:2], checks=[Orders()], rollback=False)
    assert calls == [
        "validate 1.0: 0", "write 1.0", "validate 1.0: 1",
        "validate 1.1: 1", "write 1.1", "validate 1.1: 2",
    ]  # fmt: skip


def test_a_lost_row_is_found(shop: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """An engine that forgets a row of a copy is told with the table and the numbers."""
    insert = SimulatedEngine._insert
    count = SimulatedEngine.count_rows

    def forgetful(self: Any, rows: Any, target: str, projection: Any) -> Any:
        return insert(self, rows[:-1], target, projection)

    monkeypatch.setattr(SimulatedEngine, "_insert", forgetful)
    # the product counts both sides itself, and would refuse to commit
    monkeypatch.setattr(
        SimulatedEngine, "count_rows",
        lambda self, path, version: count(self, path, version) and 3,
    )
    with pytest.raises(CheckFailed, match=r"(?s)an upgrade to 2\.0.*3 rows became 2; 1 are gone"):
        run_chain(SimulatedPlatform(), [shop[0], shop[2]], checks=[SampleRows()])


def test_all_that_is_wrong_is_told_at_once(shop: list[Path], schema_name: str) -> None:
    """A name dropped by somebody else and two failing checks come in one error."""

    class Wrong(Check):
        def validate(self, platform: Any, release: Any) -> None:
            raise AssertionError("this team is never content")

    class Meddling(Check):
        def validate(self, platform: Any, release: Any) -> None:
            platform.engine._names.relations.pop((schema_name, "big"), None)

    with pytest.raises(CheckFailed) as caught:
        run_chain(SimulatedPlatform(), shop[:2], checks=[Meddling(), Wrong(), Wrong()])
    assert caught.value.phase == "a first start to 1.0"
    assert caught.value.found == ["Wrong: this team is never content"] * 2
    with pytest.raises(CheckFailed) as second:
        run_chain(
            _Forgetting(schema_name), shop[:2], checks=[Wrong()]
        )
    assert any("drift" in one for one in second.value.found)
    assert any(f"{schema_name}.big cannot be read" in one for one in second.value.found)


class _Forgetting(SimulatedPlatform):
    """A platform where somebody drops a view behind our back, right after each start."""

    def __init__(self, schema: str) -> None:
        super().__init__()
        self.schema = schema

    def start(self, release: Any, *, approve: Any = ()) -> Any:
        report = super().start(release, approve=approve)
        self.engine._names.relations.pop((self.schema, "big"), None)
        return report
