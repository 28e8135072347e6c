"""The release manifest: JSON decoded straight into definitions, and written back.

``release compile`` fills contracts and hashes in once. Views without a typed column list get the
columns that an analyser (Spark's, given by the caller) finds; a ``*`` in a view's query is written
out, so that a column added to a parent later does not change what the view selects.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from catalog_migrate.errors import InvalidRelease, Problem, UnsupportedFormat
from catalog_migrate.model.hashes import is_present
from catalog_migrate.model.names import Identity, quote_sql
from catalog_migrate.model.objects import Column, ObjectDefinition, order_key
from catalog_migrate.model.types import canonical_type
from catalog_migrate.release.release import (
    Place,
    Release,
    definition_facts,
    is_written_alike,
)

MANIFEST_FORMAT = "1.0"
"""What tools of every version read."""

NEWEST_FORMAT = "2.0"
"""The format of tables that are filled from others and of functions without RETURNS.

A tool of format 1 would make such a table empty, give up the columns that its rows are in, and take
such a function for one of STRING."""

UNREADABLE = "CM0108"

_BYTE = re.compile(r"\(byte (\d+)\)")
_AT_OBJECT = re.compile(r"\$\.objects\[(\d+)\]")


class Manifest(msgspec.Struct, frozen=True, omit_defaults=True):
    """A manifest file as it is; unknown keys are ignored. ``dropped`` are tables given up."""

    format_version: str
    release: str
    objects: tuple[ObjectDefinition, ...]
    default_schema: str | None = None
    statements: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()


class _Header(msgspec.Struct, frozen=True):
    format_version: str


_MANIFEST = msgspec.json.Decoder(Manifest)
_HEADER = msgspec.json.Decoder(_Header)
_ENCODER = msgspec.json.Encoder()


def decode_manifest(data: bytes, *, file: str | None = None) -> Manifest:
    """Read a manifest.

    Raises UnsupportedFormat for a newer major version, InvalidRelease (with line and column where
    the text is not JSON, else with the path of the value) for anything else.
    """
    try:
        manifest = _MANIFEST.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        _check_version(_version_of(data), file)
        raise InvalidRelease(
            f"{file or 'the manifest'} cannot be read", problems=[_problem(data, error, file)]
        ) from error
    _check_version(manifest.format_version, file)
    return manifest


def encode_manifest(
    release: str, objects: Sequence[ObjectDefinition], *, statements: Sequence[str] = (),
    dropped: Sequence[str] = (), pretty: bool = True,
) -> bytes:
    """Return the bytes of a manifest, objects in a fixed order: equal releases give equal bytes."""
    ordered = tuple(sorted(objects, key=lambda definition: order_key(definition.key)))
    data = _ENCODER.encode(
        Manifest(
            format_version=_format_of(ordered), release=release, objects=ordered,
            statements=tuple(statements), dropped=tuple(dropped),
        )
    )
    return msgspec.json.format(data, indent=1) + b"\n" if pretty else data


def _format_of(objects: Iterable[ObjectDefinition]) -> str:
    """The oldest format whose readers misread none of these objects."""
    newer = any(
        each.filled_from is not None or (each.kind == "function" and each.returns is None)
        for each in objects
    )
    return NEWEST_FORMAT if newer else MANIFEST_FORMAT


def _version_of(data: bytes) -> str:
    try:
        return _HEADER.decode(data).format_version
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return MANIFEST_FORMAT  # not even a header: the first error is the one to report


def _check_version(version: str, file: str | None) -> None:
    major = version.partition(".")[0]
    if major in {known.partition(".")[0] for known in (MANIFEST_FORMAT, NEWEST_FORMAT)}:
        return
    where = file or "the manifest"
    if major.isdigit():
        raise UnsupportedFormat(
            f"{where} has format_version {version}; this tool reads up to {NEWEST_FORMAT}",
            remedy="install a newer catalog-migrate", format_version=version,
        )
    raise InvalidRelease(
        f"{where} cannot be read",
        problems=[
            Problem(
                UNREADABLE, f"format_version {version!r} is not a version", file=file,
                remedy=f'write "format_version": "{MANIFEST_FORMAT}"',
            )
        ],
    )


def _problem(data: bytes, error: Exception, file: str | None) -> Problem:
    message = str(error)
    byte = _BYTE.search(message)
    if byte is not None or isinstance(error, UnicodeDecodeError) or "truncated" in message:
        offset = int(byte[1]) if byte else len(data)
        line = data.count(b"\n", 0, offset) + 1
        column = offset - (data.rfind(b"\n", 0, offset) + 1) + 1
        return Problem(
            UNREADABLE, f"not JSON: {message}", file=file, line=line, column=column,
            remedy="write it anew with `catalog-migrate release compile`, or fix the JSON there",
        )
    return Problem(
        UNREADABLE, message, file=file, text=_object_name(data, message),
        remedy="see the release manifest's format in the documentation",
    )


def _object_name(data: bytes, message: str) -> str | None:
    """The name of the object that a decoding error is about, where it can be told."""
    position = _AT_OBJECT.search(message)
    if position is None:
        return None
    try:
        found = msgspec.json.decode(data)["objects"][int(position[1])]
    except (msgspec.DecodeError, RecursionError, LookupError):
        return None  # what comes after the error is worse
    if not isinstance(found, dict):
        return None
    return ".".join(str(found[key]) for key in ("schema", "name") if key in found) or None


# -- compiled: contracts and hashes filled in ------------------------------------------------------

Analysed = Mapping[Identity, Sequence[tuple[str, str, bool]]]
Analyse = Callable[[Sequence[ObjectDefinition]], Analysed]
"""Given all objects in dependency order, the (name, type, nullable) columns of every view without
a typed list."""

AMBIGUOUS_STAR = "CM0114"


def compile_release(release: Release, analyse: Analyse | None) -> bytes:
    """Return the manifest of a release loaded with ``contracts=False``.

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
            text, refused = _completed(definition, columns, known, place)
            problems += refused
            changes |= {"columns": columns, "sql": text}
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


def _completed(
    view: ObjectDefinition, columns: tuple[Column, ...],
    known: Mapping[tuple[str, str], Sequence[Column]], place: Place,
) -> tuple[str | None, list[Problem]]:
    """The query of a view with its ``*`` written out, and what is missing."""
    from catalog_migrate.release.validation import NO_CONTRACT
    from catalog_migrate.sql.references import has_star

    problems: list[Problem] = []
    if not columns:
        problems.append(
            Problem(
                NO_CONTRACT, f"view {view.key} has no typed column list", *place,
                remedy="write the list, or correct the query, which Spark does not take",
            )
        )
    if view.sql is None or not has_star(view.sql):
        return view.sql, problems
    written = expand_star(view.sql, known, columns)
    if written is None:
        problems.append(
            Problem(
                AMBIGUOUS_STAR, f"the * of view {view.key} cannot be written out", *place,
                view.sql, "name the columns in the query",
            )
        )
    return written, problems


def is_stale(manifest: bytes, release: Release) -> tuple[str, ...]:
    """Names of the objects in which a compiled manifest differs from the release, sorted.

    Asks no analyser: columns of views without a typed list are taken from the manifest, and such
    a view counts as stale when anything it reads, however far off, does.
    """
    written = decode_manifest(manifest)
    compiled = {entry.identity: _in_present_scheme(entry) for entry in written.objects}
    columns = {
        identity: [(column.name, column.type, column.nullable) for column in entry.columns]
        for identity, entry in compiled.items()
    }
    undeclared = [
        definition.identity for definition in creation_order(release)
        if definition.kind == "view" and not definition.columns
    ]
    missing = set(undeclared).difference(identity for identity, known in columns.items() if known)
    columns |= {identity: [("missing", "STRING", True)] for identity in missing}
    fresh = {
        entry.identity: entry
        for entry in decode_manifest(compile_release(release, lambda _: columns)).objects
    }
    stale = missing | {
        identity for identity in compiled.keys() | fresh.keys()
        if not _says_the_same(compiled.get(identity), fresh.get(identity), release)
    }
    _add_readers(stale, undeclared, release)
    given_up = set(written.dropped) ^ set(release.dropped)
    entries = compiled | fresh
    return tuple(sorted({*given_up, *(str(entries[identity].key) for identity in stale)}))


def _add_readers(
    stale: set[Identity], views: Iterable[Identity], release: Release
) -> None:
    """Add the views that read what is stale, however far off; they come in order of creation."""
    for identity in views:
        if not stale.isdisjoint(release.uses.get(identity, ())):
            stale.add(identity)


def _says_the_same(
    written: ObjectDefinition | None, fresh: ObjectDefinition | None, release: Release
) -> bool:
    """Whether two entries are alike, be the ``*`` of a view written out as it was before."""
    if written == fresh or written is None or fresh is None:
        return written == fresh
    from catalog_migrate.sql.references import has_star

    source = release.by_identity[fresh.identity].sql
    hashes = {"text_hash": fresh.text_hash, "definition_hash": fresh.definition_hash}
    if source is None or not has_star(source) or (
        msgspec.structs.replace(written, sql=fresh.sql, **hashes) != fresh
    ):
        return False
    return written.definition_hash == fresh.definition_hash or (
        is_written_alike(written, fresh, release)
    )


def _in_present_scheme(entry: ObjectDefinition) -> ObjectDefinition:
    """The object with its hash made again, where an earlier scheme made it."""
    stored = entry.definition_hash
    if stored is None or entry.text_hash is None or is_present(stored):
        return entry
    return msgspec.structs.replace(
        entry, definition_hash=definition_facts(entry)[1] or stored
    )


def creation_order(release: Release) -> list[ObjectDefinition]:
    """Return all objects, what is used before what uses it, else by kind and name."""
    return [release.by_identity[identity] for identity in release.graph.topological()]


def expand_star(
    sql: str, known: Mapping[tuple[str, str], Sequence[Column]], columns: Sequence[Column]
) -> str | None:
    """``sql`` with every ``*`` written out by the columns of the relations it reads.

    ``known`` maps folded (schema, name) to columns, ``columns`` is the view's contract. Where a
    ``*`` cannot be told in its place the names of the contract are selected from the query as it
    is; None when those are ambiguous.
    """
    from catalog_migrate.sql.stars import write_stars_out

    def columns_of(schema: str, name: str) -> list[str] | None:
        parents = known.get((schema, name))
        return None if parents is None else [column.name for column in parents]

    written = write_stars_out(sql, columns_of)
    if written is not None:
        return written
    names = [column.name for column in columns]
    if not names or len({name.lower() for name in names}) != len(names):
        return None
    return f"SELECT {', '.join(map(quote_sql, names))} FROM ({sql})"


def _columns(analysed: Sequence[tuple[str, str, bool]]) -> tuple[Column, ...]:
    return tuple(
        Column(name=name, type=canonical_type(kind), nullable=nullable)
        for name, kind, nullable in analysed
    )
