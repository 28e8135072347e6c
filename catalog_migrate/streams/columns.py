"""Which of a query's columns are the user's and which are the product's own."""

from __future__ import annotations

from collections.abc import Iterable

from catalog_migrate.delta import datatypes
from catalog_migrate.errors import EngineFailure
from catalog_migrate.model.names import fold, quote_sql
from catalog_migrate.model.objects import Column
from catalog_migrate.streams.queries import QuerySpec

TOPIC, PARTITION, OFFSET, TIMESTAMP = "_topic", "_partition", "_offset", "_timestamp"
POSITION = (TOPIC, PARTITION, OFFSET, TIMESTAMP)
"""What every row of a Kafka source carries: where in the topic it came from."""


def declared_columns(spec: QuerySpec) -> tuple[Column, ...]:
    """A source's columns that come out of the record itself, not from INCLUDE or its position."""
    own = {fold(name) for name in spec.external.include.values()}
    if spec.external.connector == "KAFKA":
        own |= set(POSITION)
    return tuple(column for column in spec.columns if fold(column.name) not in own)


def written_columns(spec: QuerySpec) -> tuple[Column, ...]:
    """The columns that a sink writes: all, but positions only where KEY or ORDER BY names them."""
    if not reads_kafka_source(spec):
        return spec.columns
    named = {fold(name) for name in (*spec.external.key, *spec.external.order_by)}
    return tuple(
        column
        for column in spec.columns
        if fold(column.name) not in POSITION or fold(column.name) in named
    )


def reads_kafka_source(spec: QuerySpec) -> bool:
    """Whether a sink reads the shard of a Kafka source, whose rows have positions."""
    return bool(spec.topic_ids) or (
        spec.reads_stream and any(column.name == TOPIC for column in spec.columns)
    )


def find_columns(columns: Iterable[Column], names: Iterable[str], *, where: str) -> list[Column]:
    """The columns of those names, in the order of the names.

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
