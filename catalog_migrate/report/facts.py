"""What reports say alike: what they are of, and in which schema a name is."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timezone

from catalog_migrate.catalog.state import State
from catalog_migrate.errors import InvalidName
from catalog_migrate.model.names import split_name
from catalog_migrate.model.wording import one_line
from catalog_migrate.version import __version__


def list_facts(
    state: State | None, *, catalog: str | None = None, at: datetime | None = None
) -> Iterator[tuple[str, str]]:
    """List pairs of a label and a value: which catalog at which serial, the tool, the time."""
    yield from list_base(
        catalog=catalog, catalog_id=None if state is None else state.lineage,
        serial=None if state is None else state.serial,
    )
    yield from list_making(__version__, at)


def list_base(
    *, release: str | None = None, catalog: str | None = None, catalog_id: str | None = None,
    serial: int | None = None,
) -> Iterator[tuple[str, str]]:
    """List what a report is of; None leaves a line out."""
    if release is not None:
        yield "Release", release
    if catalog is not None:
        yield "Catalog", catalog
    if catalog_id is not None:
        yield "Catalog id", catalog_id
    if serial is not None:
        yield "Serial", str(serial)


def list_making(version: str, at: datetime | None) -> Iterator[tuple[str, str]]:
    """List which tool made a report, and when where that is said."""
    yield "Made with", f"catalog-migrate {version}"
    if at is not None:
        yield "Made at", at.astimezone(timezone.utc).strftime("%Y-%m-%d %H:%M:%S UTC")


def schema_of(name: str) -> str:
    """Return the schema in a name as it is written in lists: ``s.t``, ``kind:s.x``."""
    kind, colon, rest = name.partition(":")
    in_front = bool(colon) and not set("`.") & set(kind)
    try:
        return one_line(split_name(rest if in_front else name)[0] or "")
    except InvalidName:  # a plan of another tool
        return ""
