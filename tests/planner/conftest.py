"""Short ways to write releases and to carry a migration's end state over into a new baseline."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pytest

from catalog_migrate.catalog.records import (
    FORMAT_VERSION,
    AllocatorRecord,
    ConfigRecord,
    ItemRecord,
    MappingRecord,
    ReleaseRecord,
    identity_text,
)
from catalog_migrate.catalog.state import State, encode_record
from catalog_migrate.model.names import parse_reference
from catalog_migrate.model.objects import Column, ObjectDefinition
from catalog_migrate.planner.baseline import Baseline, BaselineObject
from catalog_migrate.planner.plan import Base, Migration
from catalog_migrate.release.release import Release


def _columns(columns: str | Sequence[Column]) -> tuple[Column, ...]:
    """``"a INT, b STRING NOT NULL"`` or columns as they are."""
    if not isinstance(columns, str):
        return tuple(columns)
    found = []
    for text in columns.split(", "):
        name, type_, *rest = text.split(" ")
        found.append(Column(name, type_, nullable=not rest))
    return tuple(found)


class Make:
    """Builds definitions, releases and baselines."""

    @staticmethod
    def table(name: str, columns: str | Sequence[Column] = "a INT", **more: Any) -> Any:
        """A table of schema ``s``."""
        return ObjectDefinition("s", "table", name, _columns(columns), **more)

    @staticmethod
    def view(
        name: str, uses: Iterable[str] = (), columns: str = "a INT", body: str = "", **more: Any
    ) -> Any:
        """A view of schema ``s`` over ``uses``; its hash depends on them and on ``body``."""
        text = f"{body} {sorted(uses)}"
        return ObjectDefinition(
            "s", "view", name, _columns(columns), depends_on=tuple(uses), sql=text,
            text_hash=text, definition_hash=text, **more,
        )

    @staticmethod
    def release(*objects: ObjectDefinition, name: str = "2") -> Release:
        """A release; edges are the declared ones."""
        return Release(
            name=name,
            objects=objects,
            manifest_hash=f"hash of {name}",
            uses={
                one.identity: tuple(parse_reference(use, "s") for use in one.depends_on or ())
                for one in objects
            },
            places={},
        )

    def baseline(self, *objects: ObjectDefinition) -> Baseline:
        """What stands in a fresh catalog after release 1 of these objects."""
        return Baseline.from_release(self.release(*objects, name="1"))

    @staticmethod
    def after(baseline: Baseline, migration: Migration) -> Baseline:
        """The baseline that committing the migration leaves behind."""
        release = migration.plan.target.release
        if migration.plan.is_empty and not migration.targets:
            return Baseline(
                baseline.objects, baseline.taken, baseline.next_item, baseline.next_global,
                Base(release=release),
            )
        return Baseline(
            {
                target.identity: BaselineObject(
                    target.definition, target.item_id, target.global_id, target.hashes,
                    target.applied, target.uses,
                )
                for target in migration.targets
            },
            baseline.taken, migration.next_item, migration.next_global, Base(release=release),
        )


@pytest.fixture(scope="session")
def make() -> Make:
    """Builders; without state."""
    return Make()


def _committed(baseline: Baseline, owner: str = "release") -> State:
    """The state of a catalog that holds exactly this baseline, at serial 3."""
    records: list[tuple[str, str, Any]] = [
        ("config", "format_version", ConfigRecord(str(FORMAT_VERSION))),
        ("config", "serial", ConfigRecord("3")),
        ("config", "lineage", ConfigRecord("abc")),
        ("allocator", "i", AllocatorRecord(baseline.next_item)),
        ("allocator", "s", AllocatorRecord(baseline.next_global)),
        ("release", "release/000001", ReleaseRecord("release", "1", "h", 3, in_force=True)),
    ]
    for identity, held in baseline.objects.items():
        records.append((
            "mapping", identity_text(identity),
            MappingRecord.of(
                held.definition, held.hashes, owner=owner, item_id=held.item_id,  # type: ignore[arg-type]
                global_id=held.global_id, applied=held.applied,
            ),
        ))
        records.append((
            "item", held.item_id,
            ItemRecord(
                owner, held.global_id, held.definition,  # type: ignore[arg-type]
                tuple(sorted(baseline.objects[used].item_id for used in held.uses)),
            ),
        ))
    return State.from_rows(
        9, [(kind, key, encode_record(record)) for kind, key, record in records]
    )


@pytest.fixture(scope="session")
def committed() -> Callable[..., State]:
    """``committed(baseline, owner="release")``: the state of a catalog that holds it."""
    return _committed
