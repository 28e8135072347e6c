"""What a release declares: an object with its columns and decisions, as the manifest spells it.

The same frozen value is decoded straight from a manifest, built from SQL, stored in the catalog's
items and compared by the planner, so there is no mapping between four shapes of one noun.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from catalog_migrate.model.external import External
from catalog_migrate.model.names import Identity, ItemKey, ItemName, identity_of

Contents = Literal["retained", "derived"]

KIND_RANK = {"type": 0, "function": 1, "table": 2, "view": 3}
"""Tie-break between kinds in every order (DESIGN section 7); unknown kinds come last, by name."""


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


class Argument(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """One argument of a function."""

    name: str
    type: str
    default: str | None = None


class ObjectDefinition(msgspec.Struct, frozen=True, omit_defaults=True):
    """One built-in object, field for field as in the release manifest (DESIGN section 8).

    ``columns`` is empty for a type and for a scalar function. ``depends_on`` is None when it was
    not declared (then references are taken from ``sql``). ``definition_hash`` and ``text_hash``
    are written by ``release compile`` so that planning need not tokenise SQL. ``external`` is
    there for secrets, connections, sources and sinks only.
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
