"""What a query is started from, and which of its columns are the user's and which our own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import msgspec

from catalog_migrate.connectors.resolved import Resolved
from catalog_migrate.connectors.secrets import Redactor, Secret
from catalog_migrate.delta import datatypes
from catalog_migrate.errors import EngineFailure
from catalog_migrate.model.names import ItemName, fold, quote_sql
from catalog_migrate.model.objects import Column, External, UpstreamTable


class OutputTable(msgspec.Struct, frozen=True):
    """A table that a POSTGRES source writes: what it takes from upstream, its columns and their
    ids, where."""

    upstream: UpstreamTable
    name: ItemName
    columns: tuple[Column, ...]
    ids: tuple[int, ...]
    shard: str

    @property
    def mapped_columns(self) -> list[tuple[int, Column]]:
        """Our columns that upstream has, with their place there; one that a release dropped is
        left out."""
        ours = dict(zip(self.ids, self.columns, strict=True))
        return [
            (place, ours[column.column_id])
            for place, column in enumerate(self.upstream.columns) if column.column_id in ours
        ]

    @property
    def key(self) -> list[Column]:
        """Our columns of the key."""
        names = [column.name for column in self.upstream.columns]
        return [
            column for place, column in self.mapped_columns if names[place] in self.upstream.key
        ]


SHARD = "shard"
"""What a source's own table is called among its destinations; it is written last."""

FENCE = 2**63 - 1
"""The batch that a fenced query id has in its destinations, and that no query reaches: every batch
of a process that woke up late is below it."""


@dataclass(frozen=True, slots=True)
class QuerySpec:
    """Everything that one query is started from.

    ``columns`` are those of the shard: of a source what it writes (declared columns, then what
    INCLUDE shows, then ``_topic _partition _offset _timestamp`` for Kafka), of a sink what it
    reads. ``connection`` holds the connection's effective options with secrets resolved, so a
    spec must never be printed or stored. ``shard``, ``dead_letters`` and ``checkpoint`` are
    absolute directories, or addresses on an object store. ``topic_ids`` (sinks on the shard of a
    Kafka source) maps a topic's name to its id, for row keys. ``registry`` holds the options of the
    schema registry of its format like ``connection``, ``registry_name`` is that connection's.
    ``tables``, ``slot`` and ``ignores_new_columns`` are of a POSTGRES source, so are
    ``snapshot_number`` and ``snapshot_tables`` (``schema.table``; empty: all), and ``survey``, what
    its tables depended on upstream when they were looked at last.
    """

    item_id: str
    name: ItemName
    kind: Literal["source", "sink"]
    external: External
    columns: tuple[Column, ...]
    connection: Resolved = field(repr=False)
    shard: str
    checkpoint: str
    dead_letters: str | None = None
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    reads_stream: bool = False
    registry: Resolved | None = field(default=None, repr=False)
    registry_name: str = ""
    tables: tuple[OutputTable, ...] = ()
    slot: str = ""
    ignores_new_columns: bool = False
    snapshot_number: int = 1
    snapshot_tables: tuple[str, ...] = ()
    survey: Any = field(default=None, repr=False)

    @property
    def redactor(self) -> Redactor:
        """Takes the secrets of its connections out of texts."""
        resolved = (*self.connection.values(), *(self.registry or {}).values())
        return Redactor(value for value in resolved if isinstance(value, Secret))

    @property
    def publication(self) -> str:
        """The publication that a POSTGRES source reads."""
        return str(self.external.options["PUBLICATION"])

    @property
    def snapshot(self) -> str:
        """The folder of a POSTGRES source's newest snapshot, see :meth:`snapshot_at`."""
        return self.snapshot_at(self.snapshot_number)

    def snapshot_at(self, number: int) -> str:
        """The folder of a snapshot, beside all checkpoints that the source ever has."""
        folder = self.checkpoint.rpartition("/")[0] + "/snapshot"
        return folder if number == 1 else f"{folder}-{number}"

    @property
    def destinations(self) -> Mapping[str, str]:
        """The tables that a source's query writes, by the name that a message calls them."""
        if self.kind != "source":
            return {}
        found = {SHARD: self.shard, **{str(each.name): each.shard for each in self.tables}}
        if self.dead_letters is not None:
            found["dead_letters"] = self.dead_letters
        return found


TOPIC, PARTITION, OFFSET, TIMESTAMP = "_topic", "_partition", "_offset", "_timestamp"
POSITION = (TOPIC, PARTITION, OFFSET, TIMESTAMP)
"""What every row of a source with records carries: where in the topic it came from."""

PLACE_COLUMNS = tuple(
    Column(name, type_)
    for name, type_ in zip(POSITION, ("STRING", "INT", "BIGINT", "TIMESTAMP"), strict=True)
)
"""What every shard of a source with records holds beside the declared columns."""

DEAD_LETTER_COLUMNS = (
    *PLACE_COLUMNS, Column("key", "BINARY"), Column("value", "BINARY"), Column("error", "STRING"),
)
"""What the table of ON ERROR INTO holds: the records that a source could not read."""


def declared_columns(spec: QuerySpec) -> tuple[Column, ...]:
    """Return the columns that come out of the record itself, not from INCLUDE or its position, of a
    source with records."""
    own = {fold(name) for name in spec.external.include.values()} | set(POSITION)
    return tuple(column for column in spec.columns if fold(column.name) not in own)


def written_columns(spec: QuerySpec) -> tuple[Column, ...]:
    """Return the columns that a sink writes: positions only where KEY or ORDER BY names them."""
    if not has_record_positions(spec):
        return spec.columns
    named = {fold(name) for name in (*spec.external.key, *spec.external.order_by)}
    return tuple(
        column
        for column in spec.columns
        if fold(column.name) not in POSITION or fold(column.name) in named
    )


def has_record_positions(spec: QuerySpec) -> bool:
    """Return whether a sink reads the shard of a source with records, whose rows have positions."""
    return bool(spec.topic_ids) or (
        spec.reads_stream and any(column.name == TOPIC for column in spec.columns)
    )


def find_columns(columns: Iterable[Column], names: Iterable[str], *, where: str) -> list[Column]:
    """Return the columns of those names, in the order of the names.

    Raises :class:`EngineFailure` for a name that is none of them.
    """
    by_name = {fold(column.name): column for column in columns}
    try:
        return [by_name[fold(name)] for name in names]
    except KeyError as missing:
        raise EngineFailure(
            f"{where} has no column {missing.args[0]}",
            condition="UNRESOLVED_COLUMN",
            remedy="its columns: " + ", ".join(column.name for column in by_name.values()),
        ) from missing


def ddl(column: Column) -> str:
    """A column as a query sees it (CHAR and VARCHAR are strings to it), for a DDL schema."""
    return f"{quote_sql(column.name)} {datatypes.without_lengths(column.type)}"
