"""``release compile``: the manifest of a release, with contracts and hashes filled in once.

Views without a typed column list get the columns that an analyser (Spark's, given by the caller)
finds; a ``*`` in a view's query is written out, so that a column added to a parent later does not
change what the view selects.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from catalog_migrate.errors import InvalidRelease, Problem
from catalog_migrate.model.names import Identity, quote_sql
from catalog_migrate.model.objects import Column, ObjectDefinition
from catalog_migrate.model.types import canonical_type
from catalog_migrate.release.manifest import decode_manifest, encode_manifest
from catalog_migrate.release.release import Place, Release, definition_facts
from catalog_migrate.release.validation import NO_CONTRACT
from catalog_migrate.sql.references import has_star

Analysed = Mapping[Identity, Sequence[tuple[str, str, bool]]]
Analyse = Callable[[Sequence[ObjectDefinition]], Analysed]
"""Given all objects in dependency order, the (name, type, nullable) columns of every view without
a typed list."""

AMBIGUOUS_STAR = "CM0114"


def compile_release(release: Release, analyse: Analyse | None) -> bytes:
    """The manifest of a release loaded with ``contracts=False``.

    ``analyse`` is called at most once, and only when a view lacks its typed list; None means that
    such views are refused. Raises InvalidRelease naming all views that cannot be completed.
    """
    ordered = creation_order(release)
    lacking = [
        definition for definition in ordered
        if definition.kind == "view" and not definition.columns
    ]
    analysed: Analysed = analyse(ordered) if lacking and analyse is not None else {}
    problems: list[Problem] = []
    known: dict[tuple[str, str], tuple[Column, ...]] = {}
    objects: list[ObjectDefinition] = []
    for definition in ordered:
        changes: dict[str, Any] = {
            "depends_on": tuple(
                str(release.by_identity[used].key)
                for used in release.uses.get(definition.identity, ())
            )
        }
        if definition.kind == "view":
            place = release.places.get(definition.identity, Place())
            columns = definition.columns or _columns(analysed.get(definition.identity, ()))
            if not columns:
                problems.append(
                    Problem(
                        NO_CONTRACT, f"view {definition.key} has no typed column list", place.file,
                        place.line, place.column,
                        remedy="write the list, or compile with a Spark session",
                    )
                )
            changes["columns"] = columns
            if definition.sql is not None and has_star(definition.sql):
                expanded = expand_star(definition.sql, known, columns)
                if expanded is None:
                    problems.append(
                        Problem(
                            AMBIGUOUS_STAR, f"the * of view {definition.key} cannot be written out",
                            place.file, place.line, place.column, definition.sql,
                            "name the columns in the query",
                        )
                    )
                else:
                    changes["sql"] = expanded
            known[definition.identity[1:]] = columns
        elif definition.kind == "table":
            known[definition.identity[1:]] = definition.columns
        done = msgspec.structs.replace(definition, **changes)
        if done.kind != "table":
            text, defined = definition_facts(done)
            done = msgspec.structs.replace(done, text_hash=text or None, definition_hash=defined)
        objects.append(done)
    if problems:
        raise InvalidRelease(f"release {release.name} cannot be compiled", problems=problems)
    return encode_manifest(
        release.name, objects, statements=release.statements, dropped=release.dropped
    )


def is_stale(manifest: bytes, release: Release) -> tuple[str, ...]:
    """Names of the objects in which a compiled manifest differs from the release, sorted.

    Asks no analyser: columns of views without a typed list are taken from the manifest, and such
    a view counts as stale when anything it reads, however far off, does.
    """
    written = decode_manifest(manifest)
    compiled = {entry.identity: entry for entry in written.objects}
    columns = {
        identity: [(column.name, column.type, column.nullable) for column in entry.columns]
        for identity, entry in compiled.items()
    }
    undeclared = {
        identity for identity, definition in release.by_identity.items()
        if definition.kind == "view" and not definition.columns
    }
    missing = {identity for identity in undeclared if not columns.get(identity)}
    if missing:
        placeholder = [("missing", "STRING", True)]
        columns |= dict.fromkeys(missing, placeholder)
    fresh = {
        entry.identity: entry
        for entry in decode_manifest(compile_release(release, lambda _: columns)).objects
    }
    stale = {
        identity for identity in compiled.keys() | fresh.keys()
        if identity in missing or compiled.get(identity) != fresh.get(identity)
    }
    for definition in creation_order(release):
        identity = definition.identity
        if identity in undeclared and stale.intersection(release.uses.get(identity, ())):
            stale.add(identity)
    given_up = set(written.dropped) ^ set(release.dropped)
    return tuple(
        sorted({*given_up, *(str((fresh.get(one) or compiled[one]).key) for one in stale)})
    )


def creation_order(release: Release) -> list[ObjectDefinition]:
    """All objects, what is used before what uses it, else by kind and name."""
    return [release.by_identity[identity] for identity in release.graph.topological()]


def expand_star(
    sql: str, known: Mapping[tuple[str, str], Sequence[Column]], columns: Sequence[Column]
) -> str | None:
    """``sql`` with every ``*`` written out by the columns of the relations it reads.

    ``known`` maps folded (schema, name) to columns, ``columns`` is the view's contract. Where the
    query cannot be rewritten the names of the contract are selected from the query as it is; None
    when those are ambiguous.
    """
    import sqlglot
    from sqlglot import exp
    from sqlglot.errors import SqlglotError
    from sqlglot.optimizer.qualify import qualify

    schema: dict[str, object] = {}
    for namespace in {namespace for namespace, _ in known}:
        # types play no role in the expansion; a dialect that does not know one must not matter
        schema[namespace] = {
            name: {column.name: "STRING" for column in parents}
            for (of, name), parents in known.items() if of == namespace
        }
    try:
        tree = qualify(
            sqlglot.parse_one(sql, dialect="spark"), schema=schema, dialect="spark",
            quote_identifiers=True, identify=True, validate_qualify_columns=False,
        )
        if not any(
            isinstance(star.parent, (exp.Select, exp.Column)) for star in tree.find_all(exp.Star)
        ):
            return tree.sql(dialect="spark")
    except SqlglotError:
        pass  # Spark SQL that sqlglot does not know: the query is wrapped instead
    names = [column.name for column in columns]
    if not names or len({name.lower() for name in names}) != len(names):
        return None
    return f"SELECT {', '.join(map(quote_sql, names))} FROM ({sql})"


def _columns(analysed: Sequence[tuple[str, str, bool]]) -> tuple[Column, ...]:
    return tuple(
        Column(name=name, type=canonical_type(kind), nullable=nullable)
        for name, kind, nullable in analysed
    )
