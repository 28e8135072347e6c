"""Tests of the release generator."""

from __future__ import annotations

from catalog_migrate.catalog.memory_log import MemoryLog
from catalog_migrate.catalog.opening import create_catalog
from catalog_migrate.model.names import ItemName, parse_reference
from catalog_migrate.planner.assembly import rebase
from catalog_migrate.planner.baseline import Baseline
from catalog_migrate.planner.planning import plan_migration
from catalog_migrate.testing.bodies import analyse, read_body
from tests.simulation.draft import SCHEMAS
from tests.simulation.installation import release_of
from tests.simulation.mutations import MUTATIONS
from tests.simulation.releases import draft_chain

SEEDS = range(60)


def test_a_chain_is_a_function_of_its_seed() -> None:
    """The same seed gives the same releases, another seed others."""
    assert draft_chain(7, 4) == draft_chain(7, 4)
    assert draft_chain(7, 4) != draft_chain(8, 4)


def test_every_reference_is_declared_and_exists() -> None:
    """depends_on names objects of the same release only."""
    for seed in SEEDS:
        for draft in draft_chain(seed, 4):
            there = {definition.identity for definition in draft.objects}
            assert len(there) == len(draft.objects)
            for definition in draft.objects:
                assert {parse_reference(r) for r in definition.depends_on or ()} <= there


def test_every_view_yields_its_contract() -> None:
    """A view's body analyses to exactly the columns that it declares."""
    for seed in SEEDS:
        for draft in draft_chain(seed, 4):
            columns = {d.item_name: d.columns for d in draft.objects if d.kind != "function"}
            functions = {d.item_name for d in draft.objects if d.kind == "function"}

            def returns(name: ItemName, known: set[ItemName] = functions) -> str | None:
                return "BIGINT" if name in known else None

            for definition in draft.objects:
                if definition.kind == "view":
                    body = read_body(definition.sql or "")
                    assert analyse(body, columns.get, returns) == definition.columns


def test_all_mutations_occur() -> None:
    """Sixty chains show every kind of change."""
    seen = {m for seed in SEEDS for draft in draft_chain(seed, 4) for m in draft.mutations}
    assert seen == set(MUTATIONS)


def test_a_name_never_means_two_things() -> None:
    """Within a chain a table's or column's name belongs to one lasting number."""
    for seed in SEEDS:
        tables: dict[str, int] = {}
        columns: dict[tuple[int, str], int] = {}
        for draft in draft_chain(seed, 4):
            for number, shape in draft.tables.items():
                assert tables.setdefault(shape.name, number) == number
                for column in shape.columns:
                    assert columns.setdefault((number, column.name), column.number) == column.number


def test_a_plan_from_nothing_is_the_plan_of_an_empty_catalog() -> None:
    """A first start plans once: what allowed it to create the catalog serves that catalog."""
    for seed in SEEDS:
        release = release_of(draft_chain(seed, 1)[0])
        state = create_catalog(MemoryLog(), warehouse="/warehouse")
        empty = Baseline.from_state(state, uri="memory")
        made = plan_migration(Baseline.empty(), release)
        assert rebase(made, empty.base) == plan_migration(empty, release)


def test_every_kind_of_thing_occurs() -> None:
    """Chains hold each kind in both schemas, derived tables, CHECKs and objects of another kind."""
    definitions = [d for seed in SEEDS for draft in draft_chain(seed, 4) for d in draft.objects]
    assert {d.kind for d in definitions} == {"table", "view", "function", "type"}
    assert {d.schema for d in definitions} == set(SCHEMAS)
    assert any(d.is_derived for d in definitions)
    assert any(d.checks for d in definitions)
    assert {d.was for d in definitions} == {None, "table", "view"}
