"""What a release's migration does to the sinks and sources on its tables, on a simulated engine."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from catalog_migrate.catalog.commits import Commit
from catalog_migrate.catalog.requirements import Epoch, SerialIs
from catalog_migrate.catalog.state import State
from catalog_migrate.catalog.updates import find_effects, preview
from catalog_migrate.errors import InvalidOptions, RefusedStatement
from catalog_migrate.hook import BootstrapReport
from catalog_migrate.migrations.build_tables import Prepared
from catalog_migrate.migrations.commit import PutInForce
from catalog_migrate.model.objects import Column, ObjectDefinition
from catalog_migrate.planner.baseline import Baseline
from catalog_migrate.planner.planning import plan_migration
from catalog_migrate.release.loader import load_texts
from catalog_migrate.sql.parser import parse
from catalog_migrate.streams.catalog import dependencies
from catalog_migrate.streams.catalog.statement_changes import FollowTables, as_in_shard
from catalog_migrate.streams.catalog.tables import ShardMaker
from catalog_migrate.streams.ddl import create
from catalog_migrate.streams.ddl.plans import plan_statement
from catalog_migrate.testing.engine import SimulatedEngine
from tests.decisions import Changes, commit
from tests.simulation.draft import DraftedRelease
from tests.simulation.installation import Installation, release_of

PG = "CREATE CONNECTION pg TO POSTGRES (HOST 'db.example.com', DATABASE 'shop', USER 'app');"
SINK = "CREATE SINK k FROM s.t INTO POSTGRES CONNECTION pg (TABLE 't') KEY (id) ORDER BY (at);"


def table(*columns: Column, **more: Any) -> ObjectDefinition:
    return ObjectDefinition("s", "table", "t", columns, depends_on=(), **more)


V1 = table(Column("id", "BIGINT"), Column("at", "TIMESTAMP"))
V2 = table(Column("key", "BIGINT", renamed_from="id"), Column("at", "TIMESTAMP"))
V3 = table(
    Column("key", "BIGINT", renamed_from="id"), Column("changed", "TIMESTAMP", renamed_from="at")
)


class Place:
    """An installation whose users say statements between the starts of releases."""

    def __init__(self, *, persistent: bool = False) -> None:
        self.world = Installation(persistent)

    @property
    def engine(self) -> SimulatedEngine:
        return SimulatedEngine(self.world.world, persistent=self.world.persistent)

    @property
    def state(self) -> State:
        state = self.world.state()
        assert state is not None
        return state

    def start(
        self, name: str, *objects: ObjectDefinition, statements: tuple[str, ...] = (),
        approve: tuple[str, ...] = (), read_only: bool = False,
    ) -> BootstrapReport:
        draft = DraftedRelease(name, objects, {}, approve, ())
        release = replace(release_of(draft), statements=statements)
        return self.world.start(draft, release, read_only=read_only)[1]

    def do(self, text: str, *, make: bool = True) -> None:
        """Commit statements, and make their tables."""
        maker = ShardMaker(self.engine.create_shard, self.engine.shard_version)
        for parsed in parse(text):
            effect = plan_statement(self.state, parsed.statement)
            commit(self.world.log, lambda _, effect=effect: effect.updates, kind="test")  # type: ignore[misc]
            for item_id in effect.created if make else ():
                maker.ensure(self.state, item_id)
                maker.ensure(self.state, self.state.items[item_id].links.get("cluster", item_id))

    def sink(self) -> dependencies.CatalogEntry:
        return dependencies.find(self.state, "sink", "k")


@pytest.fixture
def place() -> Place:
    """Release 1 with the table ``s.t``, and a user's sink on it."""
    place = Place()
    place.start("1", V1)
    place.do(PG + SINK)
    return place


def test_key_and_order_follow_a_renamed_column(place: Place) -> None:
    """KEY and ORDER BY have the new names after the release, also over several; it is planned."""
    report = place.start("2", V2)
    assert (place.sink().external.key, place.sink().external.order_by) == (("key",), ("at",))
    assert report.plan is not None
    assert report.plan.shipments == (
        "alter sink default.k: columns of its KEY and ORDER BY are renamed: key, at",
    )
    place.start("3", V3)
    assert (place.sink().external.key, place.sink().external.order_by) == (("key",), ("changed",))
    assert place.sink().item.quarantined is None


@pytest.mark.parametrize("by_names_upto", [0, 1, 3])
def test_an_older_shard_is_read_by_its_own_names(place: Place, by_names_upto: int) -> None:
    """What a sink has still to send of a retired shard has that shard's names in its KEY, also by
    the records of a version that knew no ids of columns, or of both one after the other."""
    paths: list[str] = []
    for release in (None, V2, V3):
        if release is not None:
            place.start(str(len(paths) + 1), release)
        paths.append(place.state.items[place.sink().item.links["reads"]].shard or "")
    if by_names_upto:
        commit(place.world.log, lambda state: by_names(state, paths, by_names_upto), kind="test")
    seen = [
        as_in_shard(place.state, place.sink().external, paths[-1], path) for path in paths
    ]
    assert [(each.key, each.order_by) for each in seen] == [
        (("id",), ("at",)), (("key",), ("at",)), (("key",), ("changed",)),
    ]


def by_names(state: State, paths: list[str], upto: int) -> Changes:
    """The records of the first shards as such a version wrote them, which brought in release 2."""
    changes = Changes()
    renamed = ({}, {"key": "id"}, {"changed": "at"})
    for number, path in enumerate(paths):
        record = state.shards[path]
        if number < upto:
            record = msgspec.structs.replace(record, columns={})
        if number < upto + 1:
            record = msgspec.structs.replace(record, renamed=renamed[number])
        changes.put("shard", path, record)
    return changes


def test_a_migration_and_its_streams_are_one_commit(place: Place) -> None:
    """The updates of both compose: each writes its own, and neither what the other does."""
    before = place.state
    release = release_of(DraftedRelease("2", (V2,), {}, (), ()))
    migration = plan_migration(Baseline.from_state(before), release)
    objects = PutInForce(migration, Prepared(before, "", "", ()), "release", epoch=2, now=0)
    streams = FollowTables(migration)
    after = preview(before, (objects, streams))
    table = dependencies.find(after, "table", "s.t")
    assert [column.name for column in table.item.definition.columns] == ["key", "at"]
    assert dependencies.find(after, "sink", "k").external.key == ("key",)
    alone, beside = (find_effects(before, [each]) for each in (objects, streams))
    assert not alone.keys() & beside.keys()
    assert find_effects(before, (objects, streams)) == {**alone, **beside}
    both = Commit("migrate", (objects, streams), (Epoch("migration", 2), SerialIs(before.serial)))
    assert both == Commit(
        "migrate", (objects, FollowTables(migration)),
        (Epoch("migration", 2), SerialIs(before.serial)),
    )
    assert str(both.requirements[0]) == "Epoch(lease='migration', epoch=2)"


def test_a_key_that_is_lost_quarantines_its_sink(place: Place) -> None:
    """Without the column of its KEY a sink is quarantined, and the plan says so."""
    report = place.start("2", table(Column("id", "BIGINT"), dropped=("at",)))
    reason = "s.t lost the column at of its KEY or ORDER BY with release 2"
    assert place.sink().item.quarantined == reason
    assert report.plan is not None
    assert report.plan.shipments == (f"quarantine sink default.k: {reason}",)
    assert report.outstanding == (f"sink default.k: {reason}",)
    assert list(dependencies.queries(place.state)) == []


@pytest.mark.parametrize("was", ["table", None])
def test_a_table_that_becomes_a_view(place: Place, was: str | None) -> None:
    """Its sink is quarantined with the reason and named in plan and report, at every start."""
    columns = (Column("id", "BIGINT"), Column("at", "TIMESTAMP"))
    base = ObjectDefinition("s", "table", "base", columns, depends_on=())
    view = ObjectDefinition(
        "s", "view", "t", columns, depends_on=("s.base",), sql="SELECT id, at FROM s.base",
        text_hash="1", definition_hash="1", was=was,
    )
    first = place.start("2", base, view, approve=("s.t",))
    quarantined = place.sink().item.quarantined
    assert quarantined is not None
    assert "s.t" in quarantined
    assert "release 2" in quarantined
    assert first.plan is not None
    assert first.plan.shipments == (f"quarantine sink default.k: {quarantined}",)
    again = place.start("2", base, view)
    assert again.outcome == "unchanged"
    assert first.outstanding == again.outstanding == (f"sink default.k: {quarantined}",)
    place.do("DROP SINK k")
    assert place.start("2", base, view).outstanding == ()


SHIPPED = """
CREATE CONNECTION base TO KAFKA (BROKER 'a.example.com:9092');
CREATE SOURCE src (id BIGINT) FROM KAFKA CONNECTION base (TOPIC 't') FORMAT JSON;
CREATE CONNECTION spare TO KAFKA (BROKER 'b.example.com:9092');
CREATE SINK out FROM t INTO KAFKA CONNECTION spare (TOPIC 'o') KEY (id) FORMAT JSON;
"""


def shipped(text: str = SHIPPED) -> tuple[str, ...]:
    return tuple(load_texts([("streams.sql", text)], name="r", default_schema="s").statements)


def test_a_first_release_ships_a_table_and_a_sink_on_it() -> None:
    """Ids that the plan gives to tables are not given to what is shipped beside them."""
    place = Place()
    report = place.start("1", V1, statements=shipped())
    assert report.outcome == "initialized"
    assert report.outstanding == ()
    assert place.start("1", V1, statements=shipped()).outcome == "unchanged"
    reads = dependencies.find(place.state, "sink", "s.out").item.links["reads"]
    assert place.state.items[reads].definition.item_name.name == "t"


def test_a_users_object_in_the_way_is_named_and_tried_again() -> None:
    """The software starts without what a user's object keeps out; once that is gone, it comes."""
    place = Place()
    place.start("1", V1)
    place.do("CREATE CONNECTION s.base TO POSTGRES (HOST 'h', DATABASE 'd', USER 'u')")
    report = place.start("2", V1, statements=shipped())
    assert report.outcome == "unchanged"
    (waiting,) = report.outstanding
    assert waiting.startswith("wait source s.src: CM0751 ")
    assert "s.base is POSTGRES" in waiting
    assert dependencies.lookup(place.state, "sink", "s.out") is not None
    assert place.start("2", V1, statements=shipped()).outstanding == (waiting,)
    place.do("DROP CONNECTION s.base")
    assert place.start("2", V1, statements=shipped()).outstanding == ()
    assert dependencies.find(place.state, "source", "s.src").mapping.owner == "shipped"


def test_the_releases_own_mistake_is_not_a_users() -> None:
    """What is wrong whatever users have is refused as ever, and nothing is changed."""
    place = Place()
    place.start("1", V1)
    place.do("CREATE CONNECTION s.mine TO KAFKA (BROKER 'a:1')")
    serial = place.state.serial
    with pytest.raises(InvalidOptions, match="BROKR"):
        place.start("2", V1, statements=("CREATE CONNECTION s.c TO KAFKA (BROKR 'a:1')",))
    assert place.state.serial == serial


def test_a_shipped_sink_must_name_columns_that_are_there() -> None:
    """A release that renames a column and keeps the old name in a sink's KEY is refused."""
    place = Place()
    place.start("1", V1, statements=shipped())
    renamed = shipped(SHIPPED.replace("KEY (id)", "KEY (key)"))
    with pytest.raises(RefusedStatement, match="has no column id"):
        place.start("2", V2, statements=shipped())
    place.start("2", V2, statements=renamed)
    assert dependencies.find(place.state, "sink", "s.out").external.key == ("key",)


def test_a_users_table_that_cannot_be_registered_is_named(place: Place) -> None:
    """A user's source whose table is lost does not keep the software down: it is named (I8)."""
    place.do("CREATE CONNECTION c TO KAFKA (BROKER 'a:1');"
             "CREATE SOURCE src (id BIGINT) FROM KAFKA CONNECTION c (TOPIC 't') FORMAT JSON",
             make=False)
    for _ in range(2):
        report = place.start("1", V1)
        assert report.outcome == "unchanged"
        (named,) = report.outstanding
        assert named.startswith("create default.src [DELTA_PATH_DOES_NOT_EXIST]")


@pytest.mark.parametrize("persistent", [True, False])
def test_what_is_quarantined_costs_a_start_nothing(persistent: bool) -> None:
    """A source whose table of dead letters went has no name any more; a start that finds nothing
    else to do takes no lease and writes nothing, and says what is quarantined, read-only or not."""
    letters = ObjectDefinition(
        "s", "table", "letters", create.DEAD_LETTER_COLUMNS, depends_on=()
    )
    place = Place(persistent=persistent)
    place.start("1", V1, letters)
    place.do("CREATE CONNECTION c TO KAFKA (BROKER 'a:1');"
             "CREATE SOURCE src (id BIGINT) FROM KAFKA CONNECTION c (TOPIC 't') FORMAT JSON"
             " ON ERROR INTO s.letters")
    place.start("1", V1, letters)
    told = ("source default.src: s.letters went with release 2",)
    assert place.start("2", V1, approve=("s.letters",)).outstanding == told
    before = place.world.log.version(), place.world.world.writes
    assert place.start("2", V1).outstanding == told
    assert place.start("2", V1, read_only=True).outstanding == told
    assert (place.world.log.version(), place.world.world.writes) == before
