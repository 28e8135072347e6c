"""What a release declares: an object with its columns and decisions, as the manifest spells it.

The same frozen value is decoded straight from a manifest, built from SQL, stored in the catalog's
items and compared by the planner, so there is no mapping between four shapes of one noun. What
reaches outside the catalog (secret, connection, source, sink) declares the same way.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import msgspec

from catalog_migrate.model.names import (
    Identity,
    ItemKey,
    ItemName,
    identity_of,
    quote_postgres,
    split_name,
)

SHARD_KINDS = frozenset({"table", "source", "log"})
"""Kinds whose rows lie in a shard: all are tables to Spark."""

REGISTERED_KINDS = SHARD_KINDS | {"view", "function"}
"""Kinds that have a name in Spark's catalog."""

CLUSTER_KINDS = frozenset({"source", "sink"})
"""Kinds that run as a query of a cluster."""


class SecretRef(msgspec.Struct, frozen=True, gc=False):
    """An option whose value is kept elsewhere: the name of a secret, as written."""

    secret: str


OptionValue = str | SecretRef
"""A plain text or a reference; a secret's value is never held by any value of this package."""


class UpstreamColumn(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """A column of a PostgreSQL table: its type's OID and modifier there, and our type for it.

    ``since`` is the LSN of the first commit that had a column which was added later, ``until`` that
    of the first without one that went; else 0. ``column_id`` is the id of our column that takes
    it, whatever that is called by now (:class:`~catalog_migrate.catalog.records.ColumnIds`).
    """

    name: str
    type_oid: int
    modifier: int
    type: str
    since: int = 0
    until: int = 0
    column_id: int = 0


class UpstreamTable(msgspec.Struct, frozen=True, omit_defaults=True):
    """A table that a POSTGRES source reads, and the table of ours that takes its changes.

    ``name`` is ``schema.table`` upstream and ``into`` our table, both as written. ``columns`` are
    the upstream's in its order, ``key`` the names of those that tell a row; both are empty until
    the upstream was asked.
    """

    name: str
    into: str
    columns: tuple[UpstreamColumn, ...] = ()
    key: tuple[str, ...] = ()

    @property
    def full_name(self) -> str:
        """``schema.table`` without quotes, as the upstream's changes name it."""
        return ".".join(part for part in split_name(self.name) if part is not None)

    @property
    def postgres_name(self) -> str:
        """``schema.table`` as PostgreSQL's SQL takes it."""
        return ".".join(quote_postgres(part) for part in split_name(self.name) if part)


class External(msgspec.Struct, frozen=True, omit_defaults=True):
    """The part of a definition that only some kinds have.

    ``connector`` is the name of one, as ``KAFKA``; ``package`` is the distribution that had it when
    the object was created, None for ours; ``connection`` the
    connection used (a connection's base, a source's upstream, a sink's destination); ``registry``
    the connection to the schema registry of ``format`` and ``key_format`` (a source's KEY FORMAT);
    ``reads`` the relation that a sink reads; ``options`` the connector's options and ``settings``
    those of ``WITH (…)``, both by canonical name. ``include`` maps what a source shows (``KEY``,
    ``PARTITION``, ``OFFSET``, ``TIMESTAMP``) to column names; ``dead_letters`` is the table of
    ``ON ERROR INTO`` of a source or sink, None for FAIL. ``key`` and ``order_by`` are columns of a
    sink: of one key, the last row by ``order_by`` counts. ``overrides`` are options of its
    connection that an unsafe operation replaced for this source or sink alone. ``tables`` are those
    that a POSTGRES source reads. ``reference`` (``env:NAME``, ``file:/path``) and ``revision``
    belong to a secret.

    Names are as they were written; what they stand for is kept by id in the item's ``links``.
    """

    connector: str | None = None
    connection: str | None = None
    reads: str | None = None
    options: dict[str, OptionValue] = {}
    settings: dict[str, str] = {}
    format: str | None = None
    include: dict[str, str] = {}
    dead_letters: str | None = None
    key: tuple[str, ...] = ()
    order_by: tuple[str, ...] = ()
    cluster: str | None = None
    reference: str | None = None
    revision: int = 1
    overrides: dict[str, OptionValue] = {}
    registry: str | None = None
    key_format: str | None = None
    tables: tuple[UpstreamTable, ...] = ()
    package: str | None = None


Contents = Literal["retained", "derived"]

KIND_RANK = {"type": 0, "function": 1, "table": 2, "view": 3}
"""Tie-break between kinds in every order; unknown kinds come last, by name."""


class Column(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """One column: name and type as written, with the decisions a release takes for it."""

    name: str
    type: str
    nullable: bool = True
    using: str | None = None
    default: str | None = None
    renamed_from: str | tuple[str, ...] | None = None
    comment: str | None = None
    generated: str | None = None

    @property
    def earlier_names(self) -> tuple[str, ...]:
        """``renamed_from`` as a tuple, newest first, empty when the column was never renamed."""
        return _as_tuple(self.renamed_from)


class Check(msgspec.Struct, frozen=True, gc=False):
    """A CHECK constraint of a table: its name (given or derived) and its SQL expression."""

    name: str
    expression: str

    @property
    def folded(self) -> tuple[str, str]:
        """What it is compared by."""
        return self.name.lower(), self.expression


class Argument(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """One argument of a function."""

    name: str
    type: str
    default: str | None = None
    comment: str | None = None


class ObjectDefinition(msgspec.Struct, frozen=True, omit_defaults=True):
    """One built-in object, field for field as in the release manifest.

    ``columns`` is empty for a type and for a scalar function. ``depends_on`` is None when it was
    not declared (then references are taken from ``sql``). ``definition_hash`` and ``text_hash``
    are written by ``release compile`` so that planning need not tokenise SQL. ``external`` is
    there for secrets, connections, sources and sinks only. ``filled_from`` is the query that fills
    a table in the migration that creates it; its names are those of the release before.
    """

    schema: str
    kind: str
    name: str
    columns: tuple[Column, ...] = ()
    contents: Contents | None = None
    renamed_from: str | tuple[str, ...] | None = None
    dropped: tuple[str, ...] = ()
    depends_on: tuple[str, ...] | None = None
    sql: str | None = None
    comment: str | None = None
    properties: dict[str, str] = {}
    was: str | None = None
    partitioned_by: tuple[str, ...] = ()
    clustered_by: tuple[str, ...] = ()
    checks: tuple[Check, ...] = ()
    arguments: tuple[Argument, ...] = ()
    returns: str | tuple[Column, ...] | None = None
    body: str | None = None
    definition: str | None = None
    definition_hash: str | None = None
    text_hash: str | None = None
    external: External | None = None
    filled_from: str | None = None

    @property
    def key(self) -> ItemKey:
        """(schema, kind, name) as written."""
        return ItemKey(self.schema, self.kind, self.name)

    @property
    def item_name(self) -> ItemName:
        """(schema, name) as written."""
        return ItemName(self.schema, self.name)

    @property
    def identity(self) -> Identity:
        """What the object is compared by."""
        return identity_of(self.kind, self.schema, self.name)

    @property
    def earlier_names(self) -> tuple[str, ...]:
        """``renamed_from`` as a tuple of names, newest first."""
        return _as_tuple(self.renamed_from)

    @property
    def is_derived(self) -> bool:
        """Whether the rows of this table are filled by the application at each migration."""
        return self.contents == "derived"


def _as_tuple(names: str | tuple[str, ...] | None) -> tuple[str, ...]:
    if names is None:
        return ()
    return (names,) if isinstance(names, str) else names


def order_key(key: ItemKey) -> tuple[int, str, str, str]:
    """Sort key of every deterministic order: (kind rank, kind, folded schema, folded name)."""
    return (
        KIND_RANK.get(key.kind, len(KIND_RANK)), key.kind, key.schema.lower(), key.name.lower()
    )


class Hashes(NamedTuple):
    """What two definitions of an object are compared by.

    ``definition`` and ``text`` are empty for a table: it has no SQL. ``text`` is that of the raw
    SQL, which says only whether ``definition`` has to be made again: it is no part of what two
    definitions have in common.
    """

    fingerprint: str = ""
    definition: str = ""
    storage: str = ""
    comment: str = ""
    text: str = ""
