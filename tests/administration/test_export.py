"""Every table goes back as a plain registration: as text, or in a session, and killed anywhere."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from itertools import count

import pytest

from catalog_migrate.administration.adoption import adopt
from catalog_migrate.administration.export import Exported, export_catalog, registrations_sql
from catalog_migrate.catalog.memory_log import MemoryLog
from catalog_migrate.catalog.opening import read_state
from catalog_migrate.engine.port import Registration, ViewSpec
from catalog_migrate.errors import CatalogExported, CatalogMoved, NotSettled, Refusal
from catalog_migrate.model.names import ItemName
from catalog_migrate.model.objects import Column
from catalog_migrate.release.release import Release
from catalog_migrate.testing.engine import SimulatedEngine
from catalog_migrate.testing.starts import migrate
from catalog_migrate.testing.world import SimulatedClock, World
from tests.decisions import Changes, commit
from tests.simulation.crashes import CrashPoint, SimulatedCrash

from .conftest import ORDERS, Place, properties, release_of, wanted

SHOP = release_of(
    ORDERS + "CREATE VIEW shop.big (id BIGINT) AS SELECT id FROM shop.orders;"
    "CREATE VIEW shop.bigger (id BIGINT) AS SELECT id FROM shop.big;"
)


class Simulated:
    """One installation on a simulated metastore."""

    def __init__(self) -> None:
        self.world = World()
        self.log = MemoryLog()
        self.clock = SimulatedClock(stretch=10.0)
        self.tokens: Iterator[int] = count()

    def start(self, release: Release = SHOP) -> str:
        """One start of the software; its outcome."""
        return migrate(
            SimulatedEngine(self.world, persistent=True), self.log.attach(None), release,
            warehouse="/warehouse", clock=self.clock, holder="software", timeout=600.0,
            token=lambda: f"{next(self.tokens):06d}",
        ).outcome

    def export(self, points: CrashPoint | None = None) -> Exported:
        """One export, which may die at a point."""
        heard = points.on_call if points is not None else None
        return export_catalog(
            SimulatedEngine(self.world, persistent=True, on_call=heard), self.log.attach(heard),
            wait=600.0, clock=self.clock, on_step=heard or (lambda _: None),
        )

    def names(self) -> dict[str, dict[str, str]]:
        """What stands in the schema: name -> the marks that it carries."""
        found = SimulatedEngine(self.world, persistent=True).observe("shop")
        return {
            str(each.name): {
                key: value for key, value in each.properties.items()
                if key.startswith("catalog_migrate.")
            }
            for each in found
        }


PLAIN: dict[str, dict[str, str]] = {"shop.orders": {}, "shop.big": {}, "shop.bigger": {}}


class TestInASession:
    def test_leaves_plain_names_and_a_closed_catalog(self) -> None:
        """All names stand without our marks; a later start is refused and changes nothing."""
        place = Simulated()
        assert place.start() == "initialized"
        assert all(place.names()[view] for view in ("shop.big", "shop.bigger"))
        given = place.export()
        assert (given.tables, given.below) == (1, "/warehouse")  # not to be removed by its owner
        assert place.names() == PLAIN
        with pytest.raises(CatalogExported):
            place.start()
        with pytest.raises(CatalogExported):
            commit(place.log, lambda _: Changes(), kind="anything")
        assert place.names() == PLAIN

    def test_killed_at_every_step_it_is_finished_by_running_it_again(self) -> None:
        """Whatever the point of the kill, the second run ends where an undisturbed one does."""
        at = 0
        while True:
            at += 1
            place = Simulated()
            place.start()
            points = CrashPoint(at)
            try:
                place.export(points)
            except SimulatedCrash:
                place.export()
                assert place.names() == PLAIN, points.calls[-1]
                assert read_state(place.log).setting("given_back") == "done"
                continue
            break
        assert at > 20

    def test_run_again_it_leaves_what_others_made_of_the_names_since(self) -> None:
        """Another installation took the tables over and has views of its own under the names:
        a second export replaces none and says so."""
        place = Simulated()
        place.start()
        place.export()
        engine = SimulatedEngine(place.world, persistent=True)
        theirs = ViewSpec(
            ItemName("shop", "big"), (Column("id", "BIGINT"),),
            "SELECT id + 1 AS id FROM shop.orders",
            properties={"catalog_migrate.lineage": "theirs"},
        )
        users = ViewSpec(
            ItemName("shop", "bigger"), (Column("id", "BIGINT"),),
            "SELECT id + 2 AS id FROM shop.big",
        )
        for view in (theirs, users):
            engine.create_view(view, over=Registration(view.name, "view"))
        before = engine.observe("shop")
        given = place.export()
        assert engine.observe("shop") == before
        assert (given.tables, given.views, given.left) == (1, 0, ("shop.big", "shop.bigger"))
        plain = ViewSpec(theirs.name, theirs.columns, "SELECT id FROM shop.orders")
        engine.create_view(plain, over=Registration(theirs.name, "view"))
        assert place.export().left == ("shop.bigger",)

    def test_is_refused_while_something_is_unfinished(self) -> None:
        """A pending drop is told, and no name changes."""
        place = Simulated()
        place.start()
        before = place.names()
        state = read_state(place.log)

        def pend(_: object) -> Changes:
            from catalog_migrate.catalog.records import OperationRecord

            changes = Changes()
            changes.put("operation", "reconcile", OperationRecord("reconcile", "pending"))
            return changes

        commit(place.log, pend, kind="test")
        with pytest.raises(NotSettled) as refused:
            place.export()
        assert refused.value.pending == ("reconcile: ",)
        assert place.names() == before
        assert read_state(place.log).serial == state.serial


def test_a_copy_gives_nothing_back(place: Place) -> None:
    """What is in a copied catalog is the original's: refused before a name or a mark goes."""
    place.installed()
    path = place.table("outside")
    adopt(place.log(), release_of("CREATE TABLE shop.outside (id BIGINT, qty INT);"),
          [wanted("shop.outside", path)], warehouse="ignored")
    settle(place)
    shutil.copytree(place.home / "catalog", place.home / "copy")
    before = place.files()
    world = World()
    with pytest.raises(CatalogMoved):
        export_catalog(SimulatedEngine(world, persistent=True), place.log("copy"), wait=0.0)
    assert place.files() == before


class TestAsText:
    def test_is_plain_sql_in_an_order_that_can_be_run(self, place: Place) -> None:
        """Schema first, then the table where it lies; not one byte is written."""
        path = place.table("orders")
        adopt(place.log(), release_of(ORDERS), [wanted("shop.orders", path)],
              warehouse=place.warehouse())
        settle(place)
        before = place.files()
        text = registrations_sql(place.state())
        assert [line for line in text.splitlines() if not line.startswith("--")] == [
            "CREATE SCHEMA IF NOT EXISTS `shop`", ";",
            f"CREATE TABLE IF NOT EXISTS `shop`.`orders` USING delta LOCATION '{path}'", ";",
        ]
        assert place.files() == before

    def test_views_come_after_what_they_read_and_without_marks(self) -> None:
        """The contract's types are cast to, since no analyser is asked."""
        from catalog_migrate.administration.export import _own, _statement, in_order

        place = Simulated()
        place.start()
        state = read_state(place.log)
        names = _own(state)
        ordered = list(in_order(names))
        assert [str(name.name) for name in ordered] == ["shop.orders", "shop.big", "shop.bigger"]
        assert _statement(state, ordered[1]) == (
            "CREATE OR REPLACE VIEW `shop`.`big` (`id`) WITH SCHEMA BINDING AS SELECT CAST(c0 AS"
            " BIGINT) AS `id` FROM (SELECT id FROM shop.orders\n) AS body (c0)"
        )

    def test_a_table_whose_directory_is_gone_is_told(self, place: Place) -> None:
        """Nothing is exported then."""
        path = place.table("orders")
        adopt(place.log(), release_of(ORDERS), [wanted("shop.orders", path)],
              warehouse=place.warehouse())
        settle(place)
        shutil.rmtree(path)
        with pytest.raises(Refusal) as refused:
            registrations_sql(place.state())
        assert [problem.code for problem in refused.value.problems] == ["CM0841"]
        assert not os.path.exists(path)


def test_an_exported_table_may_be_adopted_by_another(place: Place) -> None:
    """The mark is off the table after an export in a session without names of it."""
    path = place.table("orders")
    adopt(place.log("one"), release_of(ORDERS), [wanted("shop.orders", path)],
          warehouse=place.warehouse("one"))
    settle(place, "one")
    world = World()
    from catalog_migrate.engine.port import ShardSpec

    engine = SimulatedEngine(world, persistent=True)
    engine.create_shard(ShardSpec(path, place.state("one").items["i1"].definition.columns))
    export_catalog(engine, place.log("one"))
    assert properties(path)["catalog_migrate.lineage"] == ""
    done = adopt(place.log("two"), release_of(ORDERS), [wanted("shop.orders", path)],
                 warehouse=place.warehouse("two"))
    assert done.serial == 1


def settle(place: Place, name: str = "catalog") -> None:
    """As the first start after an adoption leaves it: nothing pending."""

    def decide(_: object) -> Changes:
        changes = Changes()
        changes.delete("operation", "reconcile")
        return changes

    commit(place.log(name), decide, kind="test")
