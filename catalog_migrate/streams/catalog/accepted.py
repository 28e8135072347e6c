"""What each kind of source and sink takes: formats, their columns, and clauses (pure).

:class:`~catalog_migrate.connectors.sections.Section` declares it; a CREATE is held to it. What an
earlier version has let in goes on as it is, and ``status`` reports it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType

from catalog_migrate.catalog.state import State
from catalog_migrate.connectors.base import find_connector
from catalog_migrate.connectors.options import effective, section_of
from catalog_migrate.connectors.query import POSITION
from catalog_migrate.connectors.sections import Section
from catalog_migrate.errors import CatalogMigrateError, Problem
from catalog_migrate.model.objects import Column, External, OptionValue
from catalog_migrate.model.types import Array, Atomic, Map, Sized, Struct, parse_type
from catalog_migrate.sql.statements import QueryKind
from catalog_migrate.streams.catalog import dependencies

WHOLE_VALUE: Mapping[str, Column] = MappingProxyType(
    {"TEXT": Column("value", "STRING"), "BYTES": Column("value", "BINARY")}
)
"""Formats whose value is one column, and that column where none is declared."""

CODE = "CM0751"


def format_of(
    kind: QueryKind, external: External, connection: Mapping[str, OptionValue]
) -> str:
    """The format that a source or sink has: as written, else its connection's, else the first."""
    connector = external.connector or ""
    section = section_of(connector, kind)
    if section.format_from:
        return str(effective(connector, connection)[section.format_from]).upper()
    return (external.format or section.default_format).upper()


def problems_of(
    kind: QueryKind, external: External, columns: Sequence[Column],
    connection: Mapping[str, OptionValue],
) -> tuple[Problem, ...]:
    """Everything that a source or sink of that kind does not take.

    ``columns`` are those that the statement declares, ``connection`` the effective options of its
    connection. Formats of a schema registry, and TABLES, have rules of their own.
    """
    section = section_of(external.connector or "", kind)
    found = [*_of_format(kind, section, external, connection)]
    if not found:
        found += _of_columns(kind, external, columns, connection)
    found += _of_clauses(kind, section, external)
    return tuple(found)


def own_problems(
    kind: QueryKind, external: External, connection: Mapping[str, OptionValue]
) -> tuple[Problem, ...]:
    """Return what the connector itself refuses, beside the rules of its options."""
    connector = find_connector(external.connector)
    side = connector.source if kind == "source" else connector.sink
    return () if side is None else tuple(side.problems(external, connection))


def _of_format(
    kind: QueryKind, section: Section, external: External, connection: Mapping[str, OptionValue]
) -> Iterator[Problem]:
    written, connector = external.format, external.connector
    if written is None or external.registry is not None or written in section.registered_formats:
        return
    if written not in section.formats:
        yield Problem(
            CODE, f"{connector} {kind}s have no FORMAT {written}",
            remedy=_formats_of(kind, section, external, connection),
        )
    elif section.format_from and written != format_of(kind, external, connection):
        files = format_of(kind, external, connection)
        yield Problem(
            CODE, f"FORMAT {written}: the files of its connection are {files.lower()}",
            remedy=f"write FORMAT {files}, leave it out, or name a connection whose FORMAT is "
            f"{written.lower()}",
        )


def _formats_of(
    kind: QueryKind, section: Section, external: External, connection: Mapping[str, OptionValue]
) -> str:
    if section.format_from:
        return f"write FORMAT {format_of(kind, external, connection)}, as its connection says, or" \
            " leave it out"
    if not section.formats:
        return "leave FORMAT out: its rows go to the columns of the table"
    registered = section.registered_formats
    return f"write FORMAT {' or '.join(section.formats)}" + (
        f"; with a schema registry there are {', '.join(registered)}" if registered else ""
    )


def _of_columns(
    kind: QueryKind, external: External, columns: Sequence[Column],
    connection: Mapping[str, OptionValue],
) -> Iterator[Problem]:
    if kind != "source" or external.registry is not None:
        return
    format_ = format_of(kind, external, connection)
    only = WHOLE_VALUE.get(format_)
    if only is not None and len(columns) == 1:
        tree = parse_type(columns[0].type)
        fits = isinstance(tree, Atomic) and tree.name == only.type
        if not fits and not (format_ == "TEXT" and isinstance(tree, Sized)):
            section = section_of(external.connector or "", kind)
            other = "" if section.format_from else ", or write FORMAT JSON"
            yield Problem(
                CODE, f"FORMAT {format_} gives {only.type}, and column {columns[0].name} is"
                f" {columns[0].type}",
                remedy=f"declare {columns[0].name} {only.type}{other}",
            )
    if format_ == "CSV":
        for column in columns:
            if isinstance(parse_type(column.type), Array | Map | Struct):
                yield Problem(
                    CODE, f"FORMAT CSV has no {column.type} (column {column.name})",
                    remedy=f"declare {column.name} STRING",
                )


def _of_clauses(kind: QueryKind, section: Section, external: External) -> Iterator[Problem]:
    connector = external.connector
    strange = [name for name in external.include if name not in section.includes]
    if kind == "source" and strange:
        yield Problem(
            CODE, f"{connector} sources have no INCLUDE {', '.join(strange)}",
            remedy=f"INCLUDE is for {' and '.join(section.includes)}" if section.includes
            else "leave it out",
        )
    if kind == "sink" and external.order_by and not section.order_by:
        yield Problem(
            CODE, f"{connector} sinks have no ORDER BY: records go in the order of the table",
            remedy="leave it out",
        )
    if external.dead_letters is not None and not section.dead_letters:
        yield Problem(
            CODE, f"{connector} {kind}s have no ON ERROR INTO",
            remedy="leave it out, or write ON ERROR FAIL",
        )


def describe_refused(state: State) -> tuple[str, ...]:
    """Describe what is in the catalog and CREATE would refuse now; it goes on as it is."""
    found: list[str] = []
    for mapping in sorted(state.mappings.values(), key=lambda each: str(each.key)):
        if mapping.kind not in ("source", "sink", "connection"):
            continue
        entry = dependencies.CatalogEntry(mapping, state.items[mapping.item_id])
        try:
            problems = _of_entry(state, entry)
        except CatalogMigrateError:
            continue  # it has a worse fault, which is reported elsewhere
        found += [
            f"{entry.text}: {each.message}; it goes on as before, and CREATE refuses it now"
            + (f" ({each.remedy})" if each.remedy else "")
            for each in problems
        ]
    return tuple(found)


def _of_entry(state: State, entry: dependencies.CatalogEntry) -> tuple[Problem, ...]:
    external = entry.external
    if entry.mapping.kind == "connection":
        section = section_of(external.connector or "", "connection")
        return tuple(
            Problem(CODE, f"option {name} is none that {section.client} know")
            for name in external.options
            if section.is_open(name) and section.reserved_for(name) is None
            and not section.knows(name)
        )
    kind: QueryKind = "source" if entry.mapping.kind == "source" else "sink"
    if section_of(external.connector or "", kind).tables:
        return ()
    connection = dependencies.effective(state, entry.item.links["connection"]).options
    own = {*POSITION, *external.include.values()}
    columns = [each for each in entry.item.definition.columns if each.name not in own]
    return problems_of(kind, external, columns, connection)
