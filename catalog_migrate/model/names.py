"""Names of items: schema and name, as written, compared without case, quoted where they must be.

And their ids, handed out by durable counters, which never come back.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

from catalog_migrate.errors import InvalidName

_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_IN_SPARK = re.compile(r"[A-Za-z0-9_]{1,255}\Z")
_PARTS = re.compile(r"`((?:[^`]|``)+)`|([^`.\s:]+)")

RELATION_KINDS = frozenset({"table", "view", "materialized_view", "source", "log"})
"""Kinds that share the one namespace of relations of a schema."""

REMEMBERED = 1 << 18
"""How many names are remembered: fewer than a release has would cost it every one of them again."""

Identity = tuple[str, str, str]
"""What two names are compared by: (namespace, folded schema, folded name)."""


@lru_cache(maxsize=REMEMBERED)
def quote_part(part: str) -> str:
    """One part of a name for lists and SQL: in backticks unless it is a plain identifier."""
    return part if _PLAIN.match(part) else "`" + part.replace("`", "``") + "`"


def quote_postgres(part: str) -> str:
    """A part of a name as PostgreSQL's SQL takes it, whatever is in it."""
    return '"' + part.replace('"', '""') + '"'


def quote_datafusion(part: str) -> str:
    """A part of a name as the SQL of DataFusion (delta-rs) takes it: always in quotes, so that its
    case is kept."""
    return '"' + part.replace('"', '""') + '"'


def quote_sql(part: str) -> str:
    """One part of a name for generated Spark SQL: always in backticks, so keywords are safe too."""
    return "`" + part.replace("`", "``") + "`"


def spark_refuses(kind: str, schema: str, name: str) -> str | None:
    """Return the part of a relation's (or the schema of a function's) name that Spark cannot have.

    Spark's session catalog takes letters without accents, digits and ``_`` for schemas, tables and
    views, quoted or not (``INVALID_SCHEMA_OR_RELATION_NAME``, ``SessionCatalog.validateName``), and
    a directory 255 bytes. None: it can have both. Columns may be called anything.
    """
    if kind not in RELATION_KINDS and kind != "function":
        return None
    parts = (schema, name) if kind in RELATION_KINDS else (schema,)
    return next((part for part in parts if not _IN_SPARK.match(part)), None)


def namespace_of(kind: str) -> str:
    """The namespace a kind's names live in: ``relation`` for tables, views, sources and logs."""
    return "relation" if kind in RELATION_KINDS else kind


def fold(part: str) -> str:
    """Return the form in which names are compared: Spark's names have no case."""
    return part.lower()


def split_name(text: str) -> tuple[str | None, str]:
    """Split ``s.t`` or ``t`` (parts may stand in backticks) into (schema or None, name).

    Raises :class:`InvalidName` for anything else.
    """
    parts: list[str] = []
    position = 0
    while True:
        match = _PARTS.match(text, position)
        if match is None:
            break
        parts.append(match[1].replace("``", "`") if match[1] is not None else match[2])
        position = match.end()
        if position == len(text):
            if len(parts) == 1:
                return None, parts[0]
            if len(parts) == 2:
                return parts[0], parts[1]
            break
        if text[position] != ".":
            break
        position += 1
    raise InvalidName(f"{text!r} is not a name", remedy="write schema.name, odd parts in backticks")


@lru_cache(maxsize=REMEMBERED)
def identity_of(kind: str, schema: str, name: str) -> Identity:
    """(namespace, folded schema, folded name): what a name of this kind is compared by."""
    return namespace_of(kind), schema.lower(), name.lower()


class ItemName(NamedTuple):
    """(schema, name) as written."""

    schema: str
    name: str

    def __str__(self) -> str:
        return ".".join(map(quote_part, filter(None, self)))

    @property
    def sql(self) -> str:
        """For generated Spark SQL: both parts in backticks."""
        return f"{quote_sql(self.schema)}.{quote_sql(self.name)}"

    @property
    def folded(self) -> tuple[str, str]:
        """What this name is compared by within one namespace."""
        return self.schema.lower(), self.name.lower()


class ItemKey(NamedTuple):
    """(schema, kind, name) as written; ``identity`` is what keys are compared by."""

    schema: str
    kind: str
    name: str

    def __str__(self) -> str:
        text = str(self.item_name)
        return text if self.kind in RELATION_KINDS else f"{self.kind}:{text}"

    @property
    def item_name(self) -> ItemName:
        """The name without its kind."""
        return ItemName(self.schema, self.name)

    @property
    def identity(self) -> Identity:
        """(namespace, folded schema, folded name): equal for two keys that cannot coexist."""
        return identity_of(self.kind, self.schema, self.name)


@lru_cache(maxsize=REMEMBERED)
def parse_reference(text: str, default_schema: str | None = None) -> Identity:
    """The identity that an entry of ``depends_on`` names: ``s.t`` (a relation) or ``kind:s.x``.

    Raises :class:`InvalidName` when it has no schema and there is no default one.
    """
    kind, colon, rest = text.partition(":")
    if not colon or "`" in kind or "." in kind:
        kind, rest = "table", text
    schema, name = split_name(rest)
    schema = schema or default_schema
    if schema is None:
        raise InvalidName(f"{text!r} has no schema", remedy="write schema.name")
    return namespace_of(kind), schema.lower(), name.lower()


class Allocator:
    """Hands out ids from a counter's next value; pure, the new value is committed by the caller.

    ``prefix`` is ``i``, ``s`` or ``u``; ``next_value`` is the first number to be handed out.
    """

    __slots__ = ("next_value", "prefix")

    def __init__(self, prefix: str, next_value: int = 1) -> None:
        self.prefix = prefix
        self.next_value = next_value

    def allocate(self) -> str:
        """Return the next id, e.g. ``s12``."""
        value = f"{self.prefix}{self.next_value}"
        self.next_value += 1
        return value


def number_of(identifier: str) -> int:
    """Return the counter value inside an id: ``number_of("s12") == 12``."""
    return int(identifier[1:])
