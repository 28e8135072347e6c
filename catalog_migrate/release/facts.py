"""The hashes of one definition, with as little work as possible (DESIGN section 4)."""

from __future__ import annotations

from typing import NamedTuple

from catalog_migrate.model.hashes import (
    comment_hash,
    decision_hashes,
    definition_hash,
    dependency_hash,
    schema_fingerprint,
    storage_hash,
    text_hash,
)
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

    return hashed, definition_hash(normalised_tokens(text, None))


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
