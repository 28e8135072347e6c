"""A plan says SAFE where a start succeeds and its tables work: random releases, real Spark."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pytest

from catalog_migrate.engine.spark.engine import SparkEngine
from catalog_migrate.errors import CatalogMigrateError
from catalog_migrate.planner.plan import Plan
from catalog_migrate.report.verdict import verdict
from tests.bootstrap.random_releases import Drawn, draw_chain

pytestmark = pytest.mark.spark

_APPLIES = ("SAFE", "LOSSES DECIDED", "NOTHING TO DO")


@pytest.mark.parametrize("first", [pytest.param(0, id="sample")])
def test_twenty_chains(first: int, shop: Any) -> None:
    """Of twenty draws; see :func:`judge`."""
    play(shop, range(first, first + 20))


@pytest.mark.soak
@pytest.mark.parametrize("first", range(20, 320, 50))
def test_three_hundred_chains(first: int, shop: Any) -> None:
    """Of three hundred draws; see :func:`judge`."""
    play(shop, range(first, first + 50))


def play(shop: Any, seeds: range) -> None:
    """Judge the releases of each seed's chain; enough of them are applied, and enough refused."""
    outcomes = []
    for seed in seeds:
        installation = type(shop)(shop.spark, shop.home / str(seed), f"{shop.schema}_{seed}")
        installation.home.mkdir()
        shop.forget()
        drawn = draw_chain(Random(seed))
        for number, release in enumerate(drawn, start=1):
            outcomes.append(judge(installation, release, f"{number}", seed))
            if outcomes[-1] == "refused" and number == 1:
                break
        installation.forget()
    assert outcomes.count("applied") >= len(outcomes) // 3, outcomes
    assert outcomes.count("refused") >= len(outcomes) // 20, outcomes


def judge(shop: Any, drawn: Drawn, name: str, seed: int) -> str:
    """Compare what plan and bind say of a release with what a start makes of it.

    What a bound plan lets through is applied, its tables take rows and give them back; what it
    refuses leaves the release before in force, whose tables take rows as before. A plan that was
    not bound and is refused when it is says NOT PROVEN.
    """
    text = drawn.text(shop.schema)
    said = f"seed {seed}, release {name}:\n{text}"
    release = shop.home / f"release-{name}"
    release.mkdir()
    (release / "objects.sql").write_text(text, encoding="utf-8")
    (release / "release.toml").write_text(f'name = "{name}"\n', encoding="utf-8")
    before = shop.open().status().release if shop.catalog.exists() else None
    try:
        looked = shop.start(release, read_only=True).plan
    except CatalogMigrateError:
        looked = None
    planned = None if looked is None else verdict(looked)
    bound = None if before is None or looked is None else verdict(bind(shop, release))
    outcome = _start(shop, release)
    after = shop.open().status() if shop.catalog.exists() else None
    applies = planned is not None and planned.word.startswith(_APPLIES)
    if isinstance(outcome, CatalogMigrateError):
        assert not applies or "NOT PROVEN" in planned.line, f"{said}{planned}, yet {outcome}"
        assert bound is None or not bound.word.startswith(_APPLIES), f"{said}{bound}, yet {outcome}"
        assert (None if after is None else after.release) == before, f"{said}{outcome}"
        return "refused"
    assert applies, f"{said}{planned}"
    assert bound is None or bound.word in _APPLIES, f"{said}{bound}"
    assert outcome in ("initialized", "migrated", "unchanged"), said
    assert (after.release, after.pending) == (name, 0), said
    for table in drawn.tables:
        use(shop, table, said)
    for view in drawn.views:
        shop.spark.sql(f"SELECT * FROM {shop.schema}.{view}").collect()
    return "applied"


def _start(shop: Any, release: Path) -> str | CatalogMigrateError:
    """The outcome of a start, or what it is refused with."""
    try:
        return shop.start(release).outcome
    except CatalogMigrateError as refused:
        return refused


def bind(shop: Any, release: Path) -> Plan:
    """The plan of a release with all that Spark can prove of it beforehand."""
    catalog = shop.open()
    return catalog.bind(catalog.migration(release), SparkEngine(shop.spark))


def use(shop: Any, table: Any, said: str) -> None:
    """Rows can be written, read, and where it is no append-only table deleted."""
    name = f"{shop.schema}.{table.name}"
    first = 1 + shop.spark.table(name).count() * 2
    before = shop.spark.table(name).count()
    try:
        shop.spark.sql(table.insert(shop.schema, first))
        assert shop.spark.table(name).count() == before + 3, said
        if table.properties.get("delta.appendOnly") == "true":
            return
        shop.spark.sql(f"DELETE FROM {name} WHERE id = {first}")
        assert shop.spark.table(name).count() == before + 2, said
    except Exception as error:
        raise AssertionError(f"{said}{name}: {error}") from error
