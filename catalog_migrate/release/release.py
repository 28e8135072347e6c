"""The release as the planner and the engine see it: resolved definitions and what each uses.

The facts of a definition are its hashes, made with as little work as possible.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from catalog_migrate.model.hashes import (
    comment_hash,
    decision_hashes,
    definition_hash,
    dependency_hash,
    is_present,
    schema_fingerprint,
    storage_hash,
    text_hash,
)
from catalog_migrate.model.names import Identity
from catalog_migrate.model.objects import Column, Hashes, ObjectDefinition

if TYPE_CHECKING:
    from catalog_migrate.model.graph import DependencyGraph


class Facts(NamedTuple):
    """What a definition is compared by; ``decisions`` maps labels like ``using:col`` to hashes."""

    hashes: Hashes
    decisions: dict[str, str]


def facts_of(
    definition: ObjectDefinition, *, known_text: str = "", known_definition: str = ""
) -> Facts:
    """Return the hashes of a resolved definition.

    ``known_text`` and ``known_definition`` are the hashes in force: when the text is the same the
    definition's hash is taken over and nothing is tokenised. Hashes of a compiled manifest are
    taken as they are where they are of the present scheme.
    """
    text, defined = definition_facts(
        definition, known_text=known_text, known_definition=known_definition
    )
    fingerprint = schema_fingerprint(definition.columns)
    return Facts(
        Hashes(fingerprint, defined, storage_hash(definition), comment_hash(definition), text),
        decision_hashes(definition),
    )


def definition_facts(
    definition: ObjectDefinition, *, known_text: str = "", known_definition: str = ""
) -> tuple[str, str]:
    """(text hash, definition hash) of a view, function or type; both empty for a table."""
    if definition.kind == "table":
        return "", ""
    hashed = definition.text_hash
    text = None
    if hashed is None:
        text = definition_text(definition)
        if text is None:
            return "", dependency_hash(definition.depends_on or ())
        hashed = text_hash(text)
    if known_definition and hashed == known_text:
        return hashed, known_definition
    compiled = definition.definition_hash
    if compiled is not None and definition.text_hash is not None and is_present(compiled):
        return hashed, compiled
    text = definition_text(definition) if text is None else text
    return hashed, _hash_of(definition, text) if text is not None else compiled or ""


def is_same_definition(
    left: str, left_definition: ObjectDefinition, right: str, right_definition: ObjectDefinition
) -> bool:
    """Return whether two hashes stand for one definition, be they of different schemes.

    A hash of an earlier scheme is made again, from its definition, where the two are not equal.
    """
    if left == right or is_present(left) == is_present(right):
        return left == right
    return _in_present_scheme(left, left_definition) == (
        _in_present_scheme(right, right_definition)
    )


def is_written_alike(
    left: ObjectDefinition, right: ObjectDefinition, release: Release
) -> bool:
    """Return whether two views differ only in how this version and one before wrote a ``*`` out.

    ``release`` says which columns the relations have that they read.
    """
    texts = (left.sql, right.sql)
    if None in texts or [each.name for each in left.columns] != [
        each.name for each in right.columns
    ]:
        return False
    from catalog_migrate.sql.qualified import is_qualified_form, may_be_qualified_form

    def columns_of(schema: str, name: str) -> list[str] | None:
        definition = release.by_identity.get(("relation", schema, name))
        return None if definition is None else [column.name for column in definition.columns]

    one, other = map(str, texts)
    return any(
        may_be_qualified_form(was) and is_qualified_form(was, now, columns_of)
        for was, now in ((one, other), (other, one))
    )


def _in_present_scheme(stored: str, definition: ObjectDefinition) -> str:
    text = None if is_present(stored) else definition_text(definition)
    return stored if text is None else _hash_of(definition, text)


def _hash_of(definition: ObjectDefinition, text: str) -> str:
    """The hash of the text's tokens, and of a view's column names in their case.

    That case is no part of a schema, and can be read in what ``to_json(struct(v.*))`` gives.
    """
    from catalog_migrate.sql.normalisation import normalised_tokens

    names = [column.name for column in definition.columns] if definition.kind == "view" else []
    return definition_hash((*normalised_tokens(text), *names))


def definition_text(definition: ObjectDefinition) -> str | None:
    """The SQL that a definition hash is about: a query, a function's whole declaration, a type."""
    if definition.kind == "function":
        arguments = ", ".join(
            f"`{argument.name}` {argument.type}"
            + (f" DEFAULT {argument.default}" if argument.default is not None else "")
            + (f" COMMENT {argument.comment!r}" if argument.comment is not None else "")
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
    from catalog_migrate.sql.tokens import LineIndex

    line, column = LineIndex(text).place(offset)
    if line == 1:
        return Place(start.file, start.line, start.column + offset)
    return Place(start.file, start.line + line - 1, column)


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
        from catalog_migrate.model.graph import DependencyGraph

        keys = {identity: definition.key for identity, definition in self.by_identity.items()}
        return DependencyGraph(self.uses, keys)

    def __post_init__(self) -> None:
        object.__setattr__(
            self, "by_identity", {definition.identity: definition for definition in self.objects}
        )


def facts_in(
    release: Release, definition: ObjectDefinition, known_text: str = "",
    known_definition: str = "", known_columns: Sequence[Column] | None = None,
) -> Facts:
    """:func:`~catalog_migrate.release.release.facts_of` an object of the release, computed once.

    What was taken over from ``known_definition`` is not kept: it holds for that baseline only, and
    for a view only with ``known_columns`` of the same names.
    """
    identity = definition.identity
    if known_definition and known_columns is not None and definition.kind == "view" and [
        column.name for column in definition.columns
    ] != [column.name for column in known_columns]:
        known_text = known_definition = ""
    facts = release.facts.get(identity)
    if facts is None:
        facts = facts_of(definition, known_text=known_text, known_definition=known_definition)
        compiled = definition.definition_hash
        if not known_definition or (compiled is not None and is_present(compiled)):
            release.facts[identity] = facts
    return facts
