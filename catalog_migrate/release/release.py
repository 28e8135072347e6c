"""The release as the planner and the engine see it: resolved definitions and what each uses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from catalog_migrate.model.graph import DependencyGraph
from catalog_migrate.model.names import Identity
from catalog_migrate.model.objects import ObjectDefinition
from catalog_migrate.release.facts import Facts, facts_of


class Place(NamedTuple):
    """Where something was declared; line and column count from 1, None where unknown."""

    file: str | None = None
    line: int | None = None
    column: int | None = None


class Declared(NamedTuple):
    """One object as declared and where: its name, its columns, its query or body."""

    definition: ObjectDefinition
    place: Place = Place()
    columns: Mapping[str, Place] = {}
    text: Place = Place()


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
    """:func:`~catalog_migrate.release.facts.facts_of` an object of the release, computed once.

    What was taken over from ``known_definition`` is not kept: it holds for that baseline only.
    """
    identity = definition.identity
    facts = release.facts.get(identity)
    if facts is None:
        facts = facts_of(definition, known_text=known_text, known_definition=known_definition)
        if not known_definition or definition.definition_hash is not None:
            release.facts[identity] = facts
    return facts
