"""Looks at tables and catalogs where they lie, before anything is done to them.

A table as its log says (:func:`survey_table`), what its directory shares with a catalog
(:class:`Places`), the records that take it in (:func:`put_table`), and whether the catalog that
marks name is still there, or lost.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

import msgspec

from catalog_migrate.catalog.delta_log import DeltaLog
from catalog_migrate.catalog.log import is_withheld
from catalog_migrate.catalog.marks import Mark, read_mark
from catalog_migrate.catalog.opening import EXPORTED, read_state
from catalog_migrate.catalog.records import ItemRecord, ShardRecord
from catalog_migrate.catalog.state import State, app_id_of
from catalog_migrate.catalog.updates import Put, put_object
from catalog_migrate.delta.datatypes import columns_of
from catalog_migrate.delta.log import has_log
from catalog_migrate.delta.seal import CONSTRAINTS, SEAL_CONSTRAINT
from catalog_migrate.delta.table import (
    clustering_columns,
    load_table,
    table_around,
    table_size,
)
from catalog_migrate.errors import (
    CatalogCorrupt,
    CatalogMigrateError,
    CatalogNotFound,
    NotACatalog,
    Problem,
    RebuildRefused,
)
from catalog_migrate.model.objects import Check, Column, ObjectDefinition
from catalog_migrate.model.paths import is_absolute, shard_location
from catalog_migrate.model.sizes import TableSize
from catalog_migrate.release.release import facts_of
from catalog_migrate.store.address import hide_options, is_remote, is_within, plainly, resolved


class SurveyedTable(msgspec.Struct, frozen=True):
    """A Delta table as its log has it at ``version``, which is None where no table is.

    ``unread`` says why its log cannot be read, empty when it was. ``size`` has -1 rows where the
    statistics do not say, ``epoch`` is the newest that a seal or fence of the installation of its
    mark left.
    """

    path: str
    version: int | None = None
    unread: str = ""
    columns: tuple[Column, ...] = ()
    comment: str | None = None
    properties: Mapping[str, str] = {}
    partitioned_by: tuple[str, ...] = ()
    clustered_by: tuple[str, ...] = ()
    size: TableSize = TableSize(-1, 0)
    epoch: int = 0

    @property
    def mark(self) -> Mark | None:
        """Whose it is; None for a table without a mark."""
        return read_mark(self.properties)

    @property
    def is_sealed(self) -> bool:
        """Whether a migration has replaced it."""
        return CONSTRAINTS + SEAL_CONSTRAINT in self.properties

    def define(self, described: ObjectDefinition) -> ObjectDefinition:
        """Return it under the name of ``described``, the release's.

        Of the table properties only those count that the release sets too, and its clustering
        where the release has one: the others are the table's own and stay. A CHECK that says the
        same as the release's has the release's name; the seal is none.
        """
        return ObjectDefinition(
            schema=described.schema, kind="table", name=described.name, columns=self.columns,
            contents=described.contents, comment=self.comment,
            properties={
                name: self.properties[name] for name in described.properties
                if name in self.properties
            },
            partitioned_by=self.partitioned_by,
            clustered_by=self.clustered_by if described.clustered_by else (),
            checks=tuple(self._checks(described)),
        )

    def _checks(self, described: ObjectDefinition) -> Iterator[Check]:
        from catalog_migrate.sql.normalisation import normalised_tokens

        known = {tuple(normalised_tokens(each.expression)): each for each in described.checks}
        for name, expression in sorted(self.properties.items()):
            if name.startswith(CONSTRAINTS) and name.lower() != CONSTRAINTS + SEAL_CONSTRAINT:
                same = known.get(tuple(normalised_tokens(expression)))
                yield same or Check(name.removeprefix(CONSTRAINTS), expression)


def survey_table(path: str) -> SurveyedTable:
    """Look at what is at ``path``, without Spark; nothing is raised."""
    try:
        return read_table(path) if has_log(path) else SurveyedTable(path)
    except (CatalogMigrateError, Exception) as error:  # noqa: BLE001 - reported as what it is
        return SurveyedTable(path, unread=hide_options(plainly(error)) or type(error).__name__)


def read_table(path: str) -> SurveyedTable:
    """Return the table at ``path``, without Spark; raises what delta-rs does."""
    table = load_table(path)
    metadata = table.metadata()
    mark = read_mark(metadata.configuration)
    features = table.protocol().writer_features or ()
    return SurveyedTable(
        path, int(table.version()), "", tuple(columns_of(json.loads(table.schema().to_json()))),
        metadata.description or None, metadata.configuration, tuple(metadata.partition_columns),
        clustering_columns(path) if "clustering" in features else (), table_size(table),
        0 if mark is None else table.transaction_version(app_id_of(mark.lineage)) or 0,
    )


def put_table(
    table: SurveyedTable, shard: str, definition: ObjectDefinition, ids: tuple[str, str], *,
    source: str | None = None, applied: tuple[str, ...] = (),
) -> tuple[Put, ...]:
    """Take a table in under ``ids`` (item, global) as it lies there; ``shard`` is its path."""
    item_id, global_id = ids
    item = ItemRecord(owner="release", global_id=global_id, definition=definition, shard=shard)
    return (
        *put_object(item_id, item, facts_of(definition).hashes, applied=applied),
        Put("shard", shard, ShardRecord(
            item_id=item_id, global_id=global_id, state="live", version=table.version,
            source=source,
        )),
    )


class Places(NamedTuple):
    """What a catalog has: its directory, its warehouse, and the shards of its tables.

    ``shards`` are those whose files may be removed one day, by their real directories.
    """

    home: str
    warehouse: str
    shards: Mapping[str, tuple[str, ShardRecord]] = {}

    @classmethod
    def of(cls, state: State | None, home: str, warehouse: str) -> Places:
        """Return those of a catalog, which need not be there yet."""
        return cls(home, warehouse, {} if state is None else {
            resolved(shard_location(state.setting("warehouse"), path)): (path, record)
            for path, record in sorted(state.shards.items())
            if record.state in ("live", "retired")
        })

    @property
    def _named(self) -> tuple[tuple[str, str], ...]:
        return (self.home, "the catalog"), (self.warehouse, "the catalog's warehouse")

    def overlaps(self, directory: str) -> Iterator[tuple[str, str]]:
        """Say why a real directory cannot be a table's own, each with what to do.

        A migration would remove what lies in it one day, or it with what it lies in.
        """
        for place, what in self._named:
            if is_within(directory, resolved(place)):
                yield f"it lies inside {what} {place}", "adopt tables that lie elsewhere"
                return
        for inside in self.found_inside(directory):
            yield f"{inside} lies inside it", "move that out first"
        outer = table_around(directory)
        if outer is not None:
            yield f"it lies inside another table, {outer}", "move the inner table out first"

    def found_inside(self, directory: str) -> Iterator[str]:
        """Name what of the catalog lies inside a real directory."""
        for place, what in self._named:
            if is_within(resolved(place), directory):
                yield f"{what} {place}"
        for real, (path, record) in self.shards.items():
            if is_absolute(path) and real != directory and is_within(real, directory):
                yield f"{path}, a table of {record.item_id},"


# -- whether a catalog is lost: only then is it made again -----------------------------------------

NOTHING_LOST = "CM0831"
WHOSE = "CM0835"
WITHHELD = "CM0838"


def require_lost(log: DeltaLog) -> None:
    """Raise RebuildRefused for a log that can be read whole, and for one that may not be read."""
    state = read_if_whole(log)
    if state is None:
        return
    raise RebuildRefused(
        f"the catalog at {log.uri} can be read whole, at serial {state.serial}",
        problems=[Problem(
            NOTHING_LOST, "a rebuild would forget its history, ids and streams",
            remedy="use it as it is; names are repaired by catalog-migrate drift --repair",
        )],
        remedy="nothing is lost",
    )


def require_homeless(
    log: DeltaLog, marks: Iterable[Mark | None], lineage: str, *, said: bool
) -> None:
    """Raise RebuildRefused where the catalog of these shards, of this lineage, is still whole.

    Of one on an object store that is not known here: people have to say so, by the lineage.
    """
    homes = {mark.home for mark in marks if mark is not None and mark.lineage == lineage}
    for home in sorted(homes - {"", log.home or ""}):
        if is_remote(home):  # which options its store wants is not known here
            if said:
                continue
            raise RebuildRefused(
                f"these tables are of the catalog at {home}; nothing was written",
                problems=[Problem(
                    WHOSE, "a second catalog would own the same rows while that one is there",
                    remedy=f"use it: --catalog {home}; or, when it is lost for good, say so: "
                    f"--lineage {lineage}",
                )],
                remedy="nothing is lost while that catalog is there",
            )
        state = read_if_whole(DeltaLog(home))
        if state is not None and state.lineage == lineage:
            raise RebuildRefused(
                f"the catalog at {home} is whole, at serial {state.serial}, and these tables are "
                "its own; nothing was written",
                problems=[Problem(
                    NOTHING_LOST, "a second catalog would own the same rows",
                    remedy=f"use it: --catalog {home}",
                )],
                remedy="nothing is lost; names are repaired by catalog-migrate drift --repair, "
                "a catalog that is to be elsewhere is moved (docs/administration.md)",
            )


def still_has(mark: Mark, path: str) -> bool:
    """Return whether the catalog that a mark names has the table at ``path`` in force.

    One that may not be read counts as having it, one on an object store or without a home as not.
    """
    if not mark.home:
        return False
    if is_remote(mark.home):
        return False  # which options its store wants is not known here: people's word counts
    try:
        state = read_if_whole(DeltaLog(mark.home))
    except CatalogMigrateError:
        return True
    if state is None or state.lineage != mark.lineage or EXPORTED in state.config:
        return False
    place = state.setting("warehouse")
    return any(
        record.state == "live"
        and resolved(shard_location(place, shard)) == resolved(path)
        for shard, record in state.shards.items()
    )


def read_if_whole(log: DeltaLog) -> State | None:
    """Return the state of a log that can be read whole, None for one that is lost.

    Raises RebuildRefused for one that only may not be read: nothing says that it is lost.
    """
    try:
        return read_state(log)
    except (CatalogNotFound, NotACatalog):
        return None
    except CatalogCorrupt as error:
        if not is_withheld(error.__cause__):
            return None
        raise RebuildRefused(
            f"the catalog at {log.uri} cannot be read, which does not say that it is lost; "
            "nothing was written",
            problems=[Problem(WITHHELD, error.message, remedy=error.remedy)],
            remedy="make it readable, and run again",
        ) from error
