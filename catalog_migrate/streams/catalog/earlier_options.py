"""Sources that were created before CREATE stored an option with each: what they mean without it.

They go on as they did. ``status`` reports them until an ALTER says what is wanted.
"""

from __future__ import annotations

from collections.abc import Mapping

from catalog_migrate.catalog.state import State
from catalog_migrate.connectors.base import find_if_installed
from catalog_migrate.connectors.common_options import DECODING, ISOLATION_LEVEL
from catalog_migrate.connectors.options import complete_options, section_of
from catalog_migrate.model.objects import OptionValue
from catalog_migrate.sql.printer import render
from catalog_migrate.sql.statements import AlterItem, QueryKind, SetOptions
from catalog_migrate.streams.catalog import dependencies

_MEANS: Mapping[tuple[str, str], str] = {
    (DECODING, "lenient"): "values that a column cannot hold arrive as others (rounded, cut off, a"
    " number as seconds)",
    (ISOLATION_LEVEL, "read_uncommitted"): "records of aborted transactions arrive",
}


def find_unstored_options(
    state: State, found: dependencies.CatalogEntry
) -> dict[str, OptionValue]:
    """The options that a source's or sink's definition was stored without, and what they mean."""
    external = found.external
    if find_if_installed(external.connector) is None:
        return {}
    connection = dependencies.effective(state, found.item.links["connection"])
    _, absent = complete_options(
        external.connector or "", _kind(found), external.options, connection=connection.options,
        before=external.options,
    )
    return absent


def describe_earlier(state: State) -> tuple[str, ...]:
    """Describe each source that reads as before, in what, and the ALTER that changes it."""
    return tuple(
        line for found in dependencies.queries(state)
        if (line := _describe(state, found)) is not None
    )


def _describe(state: State, found: dependencies.CatalogEntry) -> str | None:
    external = found.external
    if find_if_installed(external.connector) is None:
        return None
    section = section_of(external.connector or "", _kind(found))
    absent = find_unstored_options(state, found)
    if external.format in ("TEXT", "BYTES"):  # nothing of a record is decoded
        absent.pop(DECODING, None)
    wanted: dict[str, OptionValue] = {
        option.name: option.default for option in section.options
        if option.default is not None and absent.get(option.name, option.default) != option.default
    }
    if not wanted:
        return None
    means = " and ".join(
        _MEANS.get((name, str(absent[name])), f"{name} is {absent[name]}") for name in wanted
    )
    name = str(found.item.definition.item_name)
    statement = render(AlterItem(_kind(found), name, (SetOptions(wanted),))).rstrip(";")
    return (
        f"{found.text} reads as the version that created it did: {means}; to change that: "
        f"{' '.join(statement.split())}"
    )


def _kind(found: dependencies.CatalogEntry) -> QueryKind:
    return "source" if found.mapping.kind == "source" else "sink"
