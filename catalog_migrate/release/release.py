"""The release as the planner and the engine see it: resolved definitions and what each uses.

The facts of a definition are its hashes, made with as little work as possible (DESIGN section 4).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from catalog_migrate.model.graph import DependencyGraph
from catalog_migrate.model.hashes import (
    comment_hash,
    decision_hashes,
    definition_hash,
    dependency_hash,
    schema_fingerprint,
    storage_hash,
    text_hash,
)
from catalog_migrate.model.names import Identity
from catalog_migrate.model.objects import Column, ObjectDefinition


class Facts(NamedTuple):
    """What a definition is compared by.

    ``definition_hash`` and ``text_hash`` are empty for a table: it has no SQL. ``decisions`` maps
    labels like ``using:col`` to hashes.
    """

    fingerprint: str
    definition_hash: str
    text_hash: str
    storage_hash: str
    comment_hash: str
    decisions: dict[str, str]


def facts_of(
    definition: ObjectDefinition, *, known_text: str = "", known_definition: str = ""
) -> Facts:
    """The hashes of a resolved definition.

    ``known_text`` and ``known_definition`` are the hashes in force: when the text is the same the
    definition's hash is taken over and nothing is tokenised. Hashes of a compiled manifest are
    taken as they are.
    """
    text, defined = definition_facts(
        definition, known_text=known_text, known_definition=known_definition
    )
    return Facts(
        schema_fingerprint(
            [(column.name, column.type, column.nullable) for column in definition.columns]
        ),
        defined, text, storage_hash(definition), comment_hash(definition),
        decision_hashes(definition),
    )


def definition_facts(
    definition: ObjectDefinition, *, known_text: str = "", known_definition: str = ""
) -> tuple[str, str]:
    """(text hash, definition hash) of a view, function or type; both empty for a table."""
    if definition.kind == "table":
        return "", ""
    if definition.text_hash is not None and definition.definition_hash is not None:
        return definition.text_hash, definition.definition_hash
    text = definition_text(definition)
    if text is None:
        return "", dependency_hash(definition.depends_on or ())
    hashed = text_hash(text)
    if known_definition and hashed == known_text:
        return hashed, known_definition
    from catalog_migrate.sql.references import normalised_tokens

    return hashed, definition_hash(normalised_tokens(text))


def definition_text(definition: ObjectDefinition) -> str | None:
    """The SQL that a definition hash is about: a query, a function's whole declaration, a type."""
    if definition.kind == "function":
        arguments = ", ".join(
            f"`{argument.name}` {argument.type}"
            + (f" DEFAULT {argument.default}" if argument.default is not None else "")
            for argument in definition.arguments
        )
        return f"({arguments}) RETURNS {_returns(definition.returns)} RETURN {definition.body}"
    if definition.kind == "type":
        return definition.definition
    return definition.sql


def _returns(returns: str | tuple[Column, ...] | None) -> str:
    if returns is None or isinstance(returns, str):
        return returns or ""
    columns = ", ".join(
        f"`{column.name}` {column.type}" + ("" if column.nullable else " NOT NULL")
        for column in returns
    )
    return f"TABLE ({columns})"


class Place(NamedTuple):
    """Where something was declared; line and column count from 1, None where unknown."""

    file: str | None = None
    line: int | None = None
    column: int | None = None


class Declared(NamedTuple):
    """One object as declared and where: it, its columns, its query or body, its properties."""

    definition: ObjectDefinition
    place: Place = Place()
    columns: Mapping[str, Place] = {}
    text: Place = Place()
    properties: Mapping[str, Place] = {}


def inside(start: Place, text: str, offset: int) -> Place:
    """The place of an offset in a text that starts at ``start``."""
    if start.line is None or start.column is None:
        return start
    newlines = text.count("\n", 0, offset)
    if not newlines:
        return Place(start.file, start.line, start.column + offset)
    return Place(start.file, start.line + newlines, offset - text.rfind("\n", 0, offset))


@dataclass(frozen=True, slots=True)
class Release:
    """A valid release.

    ``objects`` are resolved: types canonical with user types expanded, SQL with every name of
    the release qualified, so that Spark understands each text as it stands. ``uses`` maps every
    identity to the identities inside the release that it reads or uses, sorted. ``places`` is
    empty for a manifest. ``manifest_hash`` does not depend on file order or blanks.
    ``statements`` are the bundled connections, sources and sinks as CREATE statements, each in its
    one canonical form, in the order in which they can be executed. ``written`` are the objects as
    their author wrote them, for messages about their texts; empty for what comes from a catalog.
    ``dropped`` are the names of the tables that it gives up with their rows, sorted.
    """

    name: str
    objects: tuple[ObjectDefinition, ...]
    manifest_hash: str
    uses: Mapping[Identity, tuple[Identity, ...]]
    places: Mapping[Identity, Place]
    statements: tuple[str, ...] = ()
    written: tuple[Declared, ...] = field(default=(), repr=False, compare=False)
    dropped: tuple[str, ...] = ()
    by_identity: Mapping[Identity, ObjectDefinition] = field(init=False, repr=False, compare=False)
    facts: dict[Identity, Facts] = field(
        init=False, repr=False, compare=False, default_factory=dict
    )
    """Hashes that were computed, so that planning again computes none (:func:`facts_in`)."""

    @property
    def graph(self) -> DependencyGraph:
        """Who uses whom among the objects; bundled streams are not in it."""
        keys = {identity: definition.key for identity, definition in self.by_identity.items()}
        return DependencyGraph(self.uses, keys)

    def __post_init__(self) -> None:
        object.__setattr__(
            self, "by_identity", {definition.identity: definition for definition in self.objects}
        )


def facts_in(
    release: Release, definition: ObjectDefinition, known_text: str = "", known_definition: str = ""
) -> Facts:
    """:func:`~catalog_migrate.release.release.facts_of` an object of the release, computed once.

    What was taken over from ``known_definition`` is not kept: it holds for that baseline only.
    """
    identity = definition.identity
    facts = release.facts.get(identity)
    if facts is None:
        facts = facts_of(definition, known_text=known_text, known_definition=known_definition)
        if not known_definition or definition.definition_hash is not None:
            release.facts[identity] = facts
    return facts
