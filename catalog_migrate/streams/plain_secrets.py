"""Secrets that stand as plain text in the catalog: which they are, and definitions without them.

Nothing puts one there any more; an older version of this tool did, by UNSAFE SET. They go on
working until they are replaced, and are shown nowhere.
"""

from __future__ import annotations

import msgspec

from catalog_migrate.catalog.state import State
from catalog_migrate.connections.options import section_of
from catalog_migrate.connections.secrets import HIDDEN
from catalog_migrate.model.objects import External, ObjectDefinition, SecretRef
from catalog_migrate.sql.printer import render
from catalog_migrate.sql.statements import QueryKind, SetOptions, Unsafe
from catalog_migrate.streams import dependencies


class PlainSecret(msgspec.Struct, frozen=True):
    """One of them, without its value; ``kind`` and ``name`` are of the item that it stands at."""

    kind: QueryKind
    name: str
    option: str

    def __str__(self) -> str:
        return f"{self.kind} {self.name}: {self.option}"

    @property
    def remedy(self) -> str:
        """What takes it out of the definition; that nothing takes it out of the history."""
        put = SetOptions({self.option: SecretRef("name")})
        statement = render(Unsafe(self.kind, self.name, (put,), "rotated")).rstrip(";")
        return (
            f"put a secret in its place ({statement}), then rotate the value where it is checked: "
            "the catalog's history keeps the old one"
        )


def plain_secrets(state: State, cluster: str | None = None) -> tuple[PlainSecret, ...]:
    """All of them, or those of one cluster (by its item id)."""
    return tuple(
        PlainSecret(
            "source" if found.mapping.kind == "source" else "sink",
            str(found.item.definition.item_name), option,
        )
        for found in dependencies.queries(state, cluster)
        for option in options_of(found.external)
    )


def options_of(external: External) -> tuple[str, ...]:
    """The options of an item whose plain text is a secret."""
    if not external.overrides:
        return ()
    section = section_of(external.connector or "", "connection")
    return tuple(
        name for name, value in external.overrides.items()
        if isinstance(value, str) and section.holds_secret(name)
    )


def without_secrets(external: External) -> External:
    """As it may be shown: ``***`` where a secret stands as plain text."""
    hidden = dict.fromkeys(options_of(external), HIDDEN)
    return msgspec.structs.replace(external, overrides={**external.overrides, **hidden})


def hidden(definition: ObjectDefinition) -> ObjectDefinition:
    """A definition with :func:`without_secrets` of its external part."""
    if definition.external is None:
        return definition
    return msgspec.structs.replace(definition, external=without_secrets(definition.external))


def restored(shown: ObjectDefinition, standing: ObjectDefinition) -> ObjectDefinition:
    """A definition as it was before :func:`hidden`; what it hides stands in ``standing``."""
    external, there = shown.external, standing.external
    if external is None or there is None:
        return shown
    back = {
        name: there.overrides[name] for name in options_of(external)
        if external.overrides[name] == HIDDEN and name in there.overrides
    }
    return msgspec.structs.replace(
        shown, external=msgspec.structs.replace(external, overrides={**external.overrides, **back})
    )
