"""Generated releases of any size: tables and views of eight columns, the same on every machine."""

from __future__ import annotations

from collections.abc import Iterable

from catalog_migrate.model.objects import Column, ObjectDefinition
from catalog_migrate.release.loader import load_manifest
from catalog_migrate.release.manifest import compile_release, encode_manifest
from catalog_migrate.release.release import Release

SCHEMA = "bench"
_TYPES = ("BIGINT", "INT", "STRING", "DOUBLE", "BOOLEAN", "DATE", "TIMESTAMP", "DECIMAL(18,2)")
WIDENED = 1
"""The column whose type :func:`changed` widens from INT to BIGINT."""

_FAN_OUT = 20
"""So many views read the root itself; every further one reads one of these levels below it."""


def columns(*, widened: bool = False) -> tuple[Column, ...]:
    """Eight columns, ``c0`` to ``c7``, one of each type."""
    types = ["BIGINT" if widened and n == WIDENED else text for n, text in enumerate(_TYPES)]
    return tuple(Column(name=f"c{n}", type=text) for n, text in enumerate(types))


def table(name: str, *, widened: bool = False) -> ObjectDefinition:
    """A table of eight columns."""
    return ObjectDefinition(
        schema=SCHEMA, kind="table", name=name, columns=columns(widened=widened),
        contents="retained", comment=f"rows of {name}",
    )


def view(name: str, reads: str, *, widened: bool = False) -> ObjectDefinition:
    """A view of eight columns over one relation, with its contract."""
    items = ", ".join(f"c{n}" for n in range(len(_TYPES)))
    return ObjectDefinition(
        schema=SCHEMA, kind="view", name=name, columns=columns(widened=widened),
        depends_on=(f"{SCHEMA}.{reads}",), sql=f"SELECT {items} FROM {SCHEMA}.{reads}",
        comment=f"what {reads} holds",
    )


def objects(tables: int, views: int, *, reached: int = 0, widened: bool = False) -> (
    list[ObjectDefinition]
):
    """``tables`` tables and ``views`` views, ``reached`` of them depending on the root ``t00000``.

    The other views read one table each. ``widened``: the root and everything that it reaches with
    a wider column.
    """
    made = [table(f"t{n:05}", widened=widened and n == 0) for n in range(tables)]
    for n in range(views):
        if n < reached:
            reads = "t00000" if n < _FAN_OUT else f"v{(n - _FAN_OUT) // 2:05}"
        else:
            reads = f"t{1 + n % (tables - 1):05}"
        made.append(view(f"v{n:05}", reads, widened=widened and n < reached))
    return made


def manifest(name: str, definitions: Iterable[ObjectDefinition]) -> bytes:
    """The compiled manifest of a release with these objects, hashes filled in."""
    return compile_release(loaded(name, definitions), None)


def loaded(name: str, definitions: Iterable[ObjectDefinition]) -> Release:
    """The same release in memory."""
    return load_manifest(encode_manifest(name, list(definitions)), name=name)
