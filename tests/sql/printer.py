"""The way back: a definition as the statement that declares it, for people and for round trips."""

from __future__ import annotations

from collections.abc import Sequence

from catalog_migrate.model.names import quote_part, split_name
from catalog_migrate.model.objects import Column, ObjectDefinition
from catalog_migrate.sql.tokens import string_literal

_WORDS_APART = frozenset({"check", "constraint"})


def print_definition(definition: ObjectDefinition) -> str:
    """The CREATE statement of one object, with its decisions, ending in ``;``.

    Parsing it gives the definition back, except for what SQL has no place for: the declared
    ``depends_on`` and the hashes of a compiled manifest.
    """
    head = f"CREATE {definition.kind.upper()} {_name(definition)}"
    lines: list[str]
    if definition.kind == "table":
        elements = [print_column(column) for column in definition.columns]
        elements += [
            f"CONSTRAINT {quote_part(check.name)} CHECK ({check.expression})"
            for check in definition.checks
        ]
        lines = [head + _block(elements), *_clauses(definition)]
    elif definition.kind == "view":
        columns = [print_column(column) for column in definition.columns]
        lines = [head + (_block(columns) if columns else ""), *_clauses(definition)]
        lines.append(f"AS {definition.sql or ''}")
    elif definition.kind == "function":
        arguments = ", ".join(
            f"{quote_part(argument.name)} {argument.type}"
            + (f" DEFAULT {argument.default}" if argument.default is not None else "")
            for argument in definition.arguments
        )
        lines = [f"{head}({arguments}) RETURNS {_returns(definition)}", *_clauses(definition)]
        lines.append(f"RETURN {definition.body or ''}")
    else:
        lines = [f"{head} AS {definition.definition or ''}", *_clauses(definition)]
    return "\n".join(lines) + ";"


def print_column(column: Column) -> str:
    """One column of a list, with its options and decisions."""
    name = f"`{column.name}`" if column.name.lower() in _WORDS_APART else quote_part(column.name)
    parts = [name, column.type]
    if not column.nullable:
        parts.append("NOT NULL")
    if column.generated is not None:
        parts.append(f"GENERATED ALWAYS AS ({column.generated})")
    if column.using is not None:
        parts.append(f"USING {column.using}")
    if column.default is not None:
        parts.append(f"DEFAULT {column.default}")
    if column.renamed_from is not None:
        parts.append(f"RENAMED FROM {_earlier(column.renamed_from, dotted=False)}")
    if column.comment is not None:
        parts.append(f"COMMENT {string_literal(column.comment)}")
    return " ".join(parts)


def _name(definition: ObjectDefinition) -> str:
    return f"{quote_part(definition.schema)}.{quote_part(definition.name)}"


def _returns(definition: ObjectDefinition) -> str:
    returns = definition.returns
    if returns is None or isinstance(returns, str):
        return returns or ""
    return "TABLE (" + ", ".join(print_column(column) for column in returns) + ")"


def _block(elements: Sequence[str]) -> str:
    return " (\n  " + ",\n  ".join(elements) + "\n)"


def _clauses(definition: ObjectDefinition) -> list[str]:
    clauses: list[str] = []
    if definition.renamed_from is not None:
        clauses.append(f"RENAMED FROM {_earlier(definition.renamed_from, dotted=True)}")
    if definition.was is not None:
        clauses.append(f"WAS {definition.was.upper()}")
    for word, names in (
        ("DROPPED", definition.dropped),
        ("PARTITIONED BY", definition.partitioned_by),
        ("CLUSTER BY", definition.clustered_by),
    ):
        if names:
            clauses.append(f"{word} ({', '.join(map(quote_part, names))})")
    if definition.comment is not None:
        clauses.append(f"COMMENT {string_literal(definition.comment)}")
    settings = [] if definition.contents is None else [f"contents = '{definition.contents}'"]
    settings += [
        f"{string_literal(key)} = {string_literal(value)}"
        for key, value in sorted(definition.properties.items())
    ]
    if settings:
        clauses.append(f"WITH ({', '.join(settings)})")
    return clauses


def _earlier(names: str | tuple[str, ...], *, dotted: bool) -> str:
    if isinstance(names, str):
        return _one_earlier(names, dotted)
    return "(" + ", ".join(_one_earlier(name, dotted) for name in names) + ")"


def _one_earlier(name: str, dotted: bool) -> str:
    if not dotted:
        return quote_part(name)
    schema, bare = split_name(name)
    return quote_part(bare) if schema is None else f"{quote_part(schema)}.{quote_part(bare)}"
