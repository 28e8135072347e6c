"""What the catalog's tests share: both logs, a clock moved by hand, and objects to commit."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from catalog_migrate.catalog.delta_log import DeltaLog
from catalog_migrate.catalog.log import CatalogLog
from catalog_migrate.catalog.memory_log import MemoryLog
from catalog_migrate.catalog.opening import create_catalog
from catalog_migrate.catalog.records import (
    AllocatorRecord,
    ItemRecord,
    MappingRecord,
    ShardRecord,
    identity_text,
)
from catalog_migrate.catalog.state import State
from catalog_migrate.model.objects import Column, ObjectDefinition
from catalog_migrate.store.address import Storage
from tests.decisions import Changes


class FakeClock:
    """A clock that moves only by :meth:`sleep`; ``at`` runs an act once its time is reached."""

    def __init__(self) -> None:
        self.now = 100.0
        self.slept: list[float] = []
        self._acts: list[tuple[float, Callable[[], None]]] = []

    def monotonic(self) -> float:
        return self.now

    def wall(self) -> float:
        return 1_800_000_000.0 + self.now

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds
        due = [act for when, act in self._acts if when <= self.now]
        self._acts = [(when, act) for when, act in self._acts if when > self.now]
        for act in due:
            act()

    def at(self, when: float, act: Callable[[], None]) -> None:
        self._acts.append((when, act))


class Users(NamedTuple):
    """Two users of one log, as two processes would open it."""

    first: CatalogLog
    second: CatalogLog


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture(
    params=["delta", "memory", pytest.param("remote", marks=pytest.mark.services)]
)
def users(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Users]:
    """Two views of a place where no log was created yet, for each kind of log."""
    if request.param == "delta":
        place = str(tmp_path / "catalog")
        yield Users(DeltaLog(place), DeltaLog(place))
    elif request.param == "remote":
        bucket = f"{request.getfixturevalue('bucket')}/catalog"
        storage = Storage(request.getfixturevalue("object_store").options)
        yield Users(DeltaLog(bucket, storage), DeltaLog(bucket, storage))
    else:
        log = MemoryLog()
        yield Users(log, log.attach())


@pytest.fixture
def memory() -> MemoryLog:
    """A fresh catalog in memory."""
    log = MemoryLog()
    create_catalog(log, warehouse="warehouse")
    return log


class Build:
    """Puts well-formed tables into a transaction, so that a test can break one thing."""

    def definition(self, name: str, type_: str = "INT", kind: str = "table") -> ObjectDefinition:
        return ObjectDefinition(
            schema="s", kind=kind, name=name, columns=(Column(name="a", type=type_),)
        )

    def mapping(self, number: int, name: str, **fields: object) -> MappingRecord:
        values: dict[str, object] = {
            "schema": "s", "kind": "table", "name": name, "owner": "release",
            "item_id": f"i{number}", "global_id": f"s{number}", "fingerprint": "1:aa",
            "definition_hash": "1:bb", "storage_hash": "1:cc",
        }
        return MappingRecord(**{**values, **fields})  # type: ignore[arg-type]

    def item(self, number: int, name: str, **fields: object) -> ItemRecord:
        values: dict[str, object] = {
            "owner": "release", "global_id": f"s{number}", "definition": self.definition(name),
            "shard": f"s/{name}/1",
        }
        return ItemRecord(**{**values, **fields})  # type: ignore[arg-type]

    def table(self, changes: Changes, number: int, name: str, *uses: str) -> None:
        changes.put("mapping", identity_text(("relation", "s", name)), self.mapping(number, name))
        changes.put("item", f"i{number}", self.item(number, name, uses=uses))
        changes.put(
            "shard", f"s/{name}/1",
            ShardRecord(item_id=f"i{number}", global_id=f"s{number}", state="live"),
        )

    def tables(self, *names: str) -> Callable[[State], Changes]:
        """A decision that creates tables i1.. in a chain, each using the one before."""

        def decide(_: State) -> Changes:
            changes = Changes()
            changes.raise_serial()
            for number, name in enumerate(names, start=1):
                self.table(changes, number, name, *([f"i{number - 1}"] if number > 1 else []))
            for counter in ("i", "s"):
                changes.put("allocator", counter, AllocatorRecord(next=len(names) + 1))
            return changes

        return decide


@pytest.fixture
def build() -> Build:
    return Build()
