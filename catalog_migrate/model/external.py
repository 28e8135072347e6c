"""What an object that reaches outside the catalog declares: secret, connection, source, sink.

One frozen value serves the statement that declares it, the manifest that ships it and the durable
item, as :class:`~catalog_migrate.model.objects.ObjectDefinition` does for the columns.
"""

from __future__ import annotations

import msgspec

from catalog_migrate.model.names import quote_postgres, split_name

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

    ``connector`` is ``KAFKA``, ``POSTGRES``, ``FILES`` or ``SCHEMA REGISTRY``; ``connection`` the
    connection used (a connection's base, a source's upstream, a sink's destination); ``registry``
    the connection to the schema registry of ``format`` and ``key_format`` (a source's KEY FORMAT);
    ``reads`` the relation that a sink reads; ``options`` the connector's options and ``settings``
    those of ``WITH (…)``, both by canonical name. ``include`` maps what a source shows (``KEY``,
    ``PARTITION``, ``OFFSET``, ``TIMESTAMP``) to column names; ``dead_letters`` is the table of
    ``ON ERROR INTO``, None for FAIL. ``key`` and ``order_by`` are columns of a sink: of one key,
    the last row by ``order_by`` counts. ``overrides`` are options of its connection that an unsafe
    operation replaced for this source or sink alone. ``tables`` are those that a POSTGRES
    source reads. ``reference`` (``env:NAME``, ``file:/path``) and ``revision`` belong to a secret.

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
