"""A release in force is told by its digest: what is read then, and what must not be passed over."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec import convert

from catalog_migrate.api.catalog import Catalog
from catalog_migrate.api.releases import plan_release
from catalog_migrate.catalog import state as states
from catalog_migrate.catalog.clock import SystemClock
from catalog_migrate.catalog.delta_log import DeltaLog
from catalog_migrate.catalog.opening import open_log, read_state
from catalog_migrate.catalog.records import (
    RECONCILE,
    ConfigRecord,
    IntentRecord,
    OperationRecord,
    TombstoneRecord,
    identity_text,
)
from catalog_migrate.catalog.state import State, encode_record
from catalog_migrate.config import Settings, load
from catalog_migrate.errors import UnsupportedFormat
from catalog_migrate.model.objects import Column, ObjectDefinition
from catalog_migrate.planner.plan import Plan
from catalog_migrate.policy import Policy
from catalog_migrate.release import manifest
from catalog_migrate.release.digest import hash_of
from catalog_migrate.release.loader import load_manifest
from catalog_migrate.release.manifest import compile_release
from catalog_migrate.testing.engine import SimulatedEngine
from catalog_migrate.testing.starts import migrate
from catalog_migrate.testing.world import World
from tests.decisions import Changes, commit

OBJECTS = 1_000


def compiled(objects: int, comment: str | None = None, release: str = "1.0") -> bytes:
    """The manifest of so many objects, tables and a view of each."""
    column = (Column(name="a", type="INT"),)
    made = []
    for number in range(objects // 2):
        made.append(ObjectDefinition("s", "table", f"t{number}", column))
        made.append(ObjectDefinition(
            "s", "view", f"v{number}", column, sql=f"SELECT a FROM s.t{number}", comment=comment,
            depends_on=(f"s.t{number}",),
        ))
    data = manifest.encode_manifest(release, made)
    return compile_release(load_manifest(data, contracts=False), None)


class Site:
    """A catalog with a release in force, its rows where a plan looks for them."""

    def __init__(self, place: Path, objects: int) -> None:
        self.place, self.world = place, World()
        self.manifest = place / "release.json"
        self.manifest.write_bytes(compiled(objects))
        self.start()
        for path in self.world.shards:
            folder = Path(path, "_delta_log")
            folder.mkdir(parents=True)
            (folder / f"{0:020}.json").touch()

    def start(self, **options: Any) -> Any:
        """A start of the software on an engine that keeps names, in a process of its own."""
        return migrate(
            SimulatedEngine(self.world, persistent=True), open_log(str(self.place / "c")),
            load_manifest(self.manifest.read_bytes()), warehouse=str(self.place / "rows"),
            clock=SystemClock(), holder="a test", **options,
        )

    def settings(self) -> Settings:
        """What a command line is told."""
        return load(self.place, {}, {
            "catalog.uri": str(self.place / "c"), "release.path": str(self.manifest),
        })

    def plan(self, **options: Any) -> Plan:
        """What `plan` says."""
        return plan_release(self.settings(), **options)

    def put(self, collection: str, key: str, record: Any) -> None:
        """Another process commits one record; then a start keeps the state."""
        def decide(_: State) -> Changes:
            changes = Changes()
            changes.put(collection, key, record)
            return changes

        log = open_log(str(self.place / "c"))
        commit(log, decide, kind="a test")
        log.keep_state()


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Site:
    """1,000 objects, which no test changes."""
    return Site(tmp_path_factory.mktemp("large"), OBJECTS)


@pytest.fixture
def site(tmp_path: Path) -> Site:
    """Two tables and their views."""
    return Site(tmp_path, 4)


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How many records of each collection are decoded, ``log`` times the log is queried, and how
    many ``manifest``s are read."""
    counts: Counter[str] = Counter()

    class Counting:
        def __init__(self, name: str, decode: Callable[[Any], Any]) -> None:
            self.name, self._decode = name, decode

        def decode(self, data: Any) -> Any:
            counts[self.name] += 1
            return self._decode(data)

    for name, decoder in states._DECODERS.items():
        monkeypatch.setitem(states._DECODERS, name, Counting(name, decoder.decode))
    monkeypatch.setattr(manifest, "_MANIFEST", Counting("manifest", manifest._MANIFEST.decode))
    query: Callable[..., Any] = DeltaLog._query

    def _query(self: DeltaLog, table: Any) -> Any:
        counts["log"] += 1
        return query(self, table)

    monkeypatch.setattr(DeltaLog, "_query", _query)
    return counts


class TestNothingIsRead:
    def test_by_a_plan(self, large: Site, decoded: Counter[str]) -> None:
        """No manifest, no object, no row of the log: at any size a plan decodes as much."""
        plan = large.plan()
        assert (plan.is_empty, plan.summary["unchanged"]) == (True, OBJECTS)
        assert decoded["config"] + decoded["release"] + decoded["allocator"] <= 16
        assert decoded.total() <= 16
        assert not decoded.keys() & {"item", "mapping", "shard", "manifest", "log"}

    def test_by_a_start(self, large: Site, decoded: Counter[str]) -> None:
        """No item, so no definition; names are compared by mappings and shards."""
        assert large.start().outcome == "unchanged"
        assert decoded["item"] == 0
        assert decoded["log"] == 1
        assert decoded["manifest"] == 1  # that of the software, which the test itself loads

    def test_by_status(self, large: Site, decoded: Counter[str]) -> None:
        """No item; the log is read once."""
        status = Catalog.open(large.place / "c").status()
        assert (status.objects, status.unfilled, status.gone) == (OBJECTS, (), ())
        assert (decoded["item"], decoded["log"]) == (0, 1)

    def test_without_a_kept_state_no_definition_either(
        self, site: Site, decoded: Counter[str]
    ) -> None:
        """A catalog that another tool wrote last is read whole, and its items stay texts."""
        for file in (site.place / "c" / "states").iterdir():
            file.unlink()
        assert site.plan().is_empty
        assert (decoded["item"], decoded["manifest"], decoded["log"]) == (0, 0, 1)


class TestSomethingIsToDo:
    """The digest says that the release is in force, and yet there is something to be told."""

    def test_an_edited_manifest(self, site: Site) -> None:
        """One byte below the same name and format: it is compared, and is no no-op."""
        data = site.manifest.read_bytes()
        site.manifest.write_bytes(compiled(4, comment="new"))
        assert site.manifest.read_bytes()[:60] == data[:60]
        assert sorted(change.name for change in site.plan().changes) == ["s.v0", "s.v1"]

    def test_a_manifest_spelled_otherwise(self, site: Site, decoded: Counter[str]) -> None:
        """Other bytes of the same objects are compared; a start puts their hash on record."""
        made = json.loads(site.manifest.read_bytes())
        site.manifest.write_text(json.dumps(made))
        assert site.plan().is_noop
        assert decoded["manifest"] >= 1
        site.start()
        decoded.clear()
        assert site.plan().is_noop
        assert decoded["manifest"] == 0

    def test_a_broken_manifest(self, site: Site) -> None:
        """What is cut off is no release in force."""
        site.manifest.write_bytes(site.manifest.read_bytes()[:-9])
        with pytest.raises(ValueError, match="cannot be read"):
            site.plan()

    @pytest.mark.parametrize("what", ["operation", "tombstone", "intent"])
    def test_pending_work(self, site: Site, what: str) -> None:
        """A reconcile row, a name to be dropped: a plan notes it, and a start does it."""
        if what == "operation":
            site.put("operation", RECONCILE, OperationRecord(kind=RECONCILE, state="pending"))
        elif what == "tombstone":
            site.put("tombstone", f"{1:010d}/{0:06d}", TombstoneRecord(
                item_id="i9", global_id="s9", schema="s", kind="view", name="old", serial=1,
                position=0, definition_hash="1:aa",
            ))
        else:
            epoch = read_state(open_log(str(site.place / "c"))).leases["migration"].epoch
            site.put("intent", str(epoch), IntentRecord(epoch=epoch, plan_hash="", release="1.0"))
        heard: list[str] = []
        assert site.plan(on_note=heard.append).is_empty
        assert any("was interrupted" in line for line in heard)
        assert site.start().outcome == "resumed"
        heard.clear()
        assert site.plan(on_note=heard.append).is_empty
        assert heard == []

    def test_rows_that_are_missing(self, site: Site) -> None:
        """A table whose directory shows no log blocks the plan, by its name."""
        path = next(path for path in site.world.shards if "/t1/" in path)
        (Path(path) / "_delta_log" / f"{0:020}.json").unlink()
        plan = site.plan()
        assert not plan.applyable
        assert [entry.name for entry in plan.blocked] == ["s.t1"]

    def test_hashes_of_an_earlier_recipe(self, site: Site, decoded: Counter[str]) -> None:
        """An object stamped by an earlier scheme has the release compared, to be stamped again."""
        state = read_state(open_log(str(site.place / "c")))
        key = identity_text(("relation", "s", "v0"))
        old = json.loads(encode_record(state.mappings[key]))
        old["fingerprint"] = "0:" + old["fingerprint"].partition(":")[2]
        site.put("mapping", key, convert(old, type(state.mappings[key])))
        decoded.clear()
        site.plan()
        assert decoded["manifest"] >= 1
        assert decoded["item"] > 0

    def test_approvals_that_meet_nothing(self, site: Site, decoded: Counter[str]) -> None:
        """A plan that is asked to approve compares, and says that the approval met nothing."""
        heard: list[str] = []
        site.plan(approve=["s.x"], on_note=heard.append)
        assert decoded["manifest"] >= 1
        assert any("met nothing" in line for line in heard)

    def test_a_default_schema_from_outside(self, site: Site, decoded: Counter[str]) -> None:
        """The same bytes are another release under it."""
        settings = load(site.place, {}, {
            "catalog.uri": str(site.place / "c"), "release.path": str(site.manifest),
            "release.default_schema": "elsewhere",
        })
        assert plan_release(settings).is_noop
        assert decoded["manifest"] >= 1

    def test_a_catalog_of_a_newer_tool(self, site: Site) -> None:
        """Its format is above ours: refused, whatever was kept."""
        site.put("config", "format_version", ConfigRecord(value="99"))
        with pytest.raises(UnsupportedFormat):
            site.plan()

    def test_another_release_since(self, site: Site) -> None:
        """A process that has looked before, and one that looks now, see what is in force now."""
        catalog = Catalog.open(site.place / "c")
        first = site.manifest.read_bytes()
        assert catalog.plan_in_force(hash_of(first)) is not None
        site.manifest.write_bytes(second := compiled(4, comment="new", release="2.0"))
        assert site.start(policy=Policy()).outcome == "migrated"
        for each in (catalog, Catalog.open(site.place / "c")):
            assert each.plan_in_force(hash_of(first)) is None
            assert each.plan_in_force(hash_of(second)) is not None
