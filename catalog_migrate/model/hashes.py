"""The hashes that say whether something changed, recipe by recipe.

Every hash is the number of its scheme, ``:`` and the 32 hex digits of xxh3_128 (seed 0, canonical
byte order) over::

    tag byte | part | part | ...        part = length (4 bytes, big-endian) | bytes

The tag's low four bits are the scheme, its high four bits say what is hashed, so that two
kinds of hash never agree by accident. Texts are UTF-8; *folded* is ``str.lower``; an *n* below is
a part of four big-endian bytes; a *list* is its n, then its parts.

======== ===== ==================================================================================
hash     tag   parts
======== ===== ==================================================================================
schema   0x01  n of columns; each in order: folded name, folded canonical type, 01 or 00 (nullable)
defin.   0x12  the normalised tokens in order
depend.  0x21  the folded names, sorted, each once
text     0x31  the text as it is
storage  0x41  list of folded partitioned_by; list of folded clustered_by; n of checks, each sorted
               by folded name: folded name, expression; n of generated columns, sorted: folded
               name, expression; n of properties, sorted by key: key, value
comment  0x51  the object's comment; n of commented columns, sorted: folded name, comment
decision 0x61  label, then what was decided (the expression; the folded earlier names in order)
======== ===== ==================================================================================

The schema hash folds the type too, which touches nothing but the field names of structs: names
compare without case everywhere.

In SQL expressions each run of white space and comments outside quotes is one space. Scheme 1 took
white space alone, wherever a comment or a raw string ends: storage and decisions with a text that
it took for another one are of scheme 2 (tags 0x42, 0x62), and equal ones kept their hash. The
definitions of scheme 1 (0x11) folded the case of every name. What is stored under it is compared by
its definition, and is stamped again by the commit that writes the object.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache

from xxhash import xxh3_128_hexdigest

from catalog_migrate.model.objects import Column, ObjectDefinition

SCHEME = "1"
"""That of the schema's hash, by which a catalog is known to be comparable."""
_SCHEMA = b"\x01"
_DEFINITION = b"\x12"
_DEPENDENCY = b"\x21"
_TEXT = b"\x31"
_STORAGE = b"\x41"
_COMMENT = b"\x51"
_DECISION = b"\x61"

_QUOTED = r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|`[^`]*`"
_SPACE_OR_QUOTED = re.compile(rf"{_QUOTED}|(?P<space>\s+)", re.DOTALL)
_BLANK_OR_QUOTED = re.compile(
    rf"[rR]'[^']*'|[rR]\"[^\"]*\"|{_QUOTED}"
    r"|(?P<space>(?:\s|--(?:\\\n|[^\r\n])*|/\*(?!\+)(?:(?!/\*|\*/).)*\*/)+)",
    re.DOTALL,
)
_NESTED_COMMENT = re.compile(r"/\*(?!\+)(?:(?!\*/).)*/\*", re.DOTALL)


def schema_fingerprint(columns: Iterable[Column]) -> str:
    """Return the schema's hash: names, canonical types and nullability of the columns in order."""
    parts = list(map(_column, columns))
    return _hash(_SCHEMA + _number(len(parts)) + b"".join(parts))


def definition_hash(tokens: Iterable[str]) -> str:
    """Return the hash of a view's or function's normalised tokens."""
    return _hash(_DEFINITION + b"".join(map(_part, tokens)))


def is_present(definition_hash: str) -> bool:
    """Return whether the hash of a text is of the scheme that :func:`definition_hash` gives."""
    return definition_hash.startswith("2:")


def dependency_hash(names: Iterable[str]) -> str:
    """The definition hash of an object without SQL: what it declares to depend on, in any order."""
    return _hash(_DEPENDENCY + b"".join(map(_part, sorted({name.lower() for name in names}))))


def text_hash(text: str) -> str:
    """Return the hash of a raw text: when it is equal, nothing needs to be tokenised."""
    return _hash(_TEXT + _encode(text))


def storage_hash(definition: ObjectDefinition) -> str:
    """The hash of how a table is stored: layout, CHECKs, generated columns and properties."""
    checks = sorted(
        (check.name.lower(), _expression(check.expression)) for check in definition.checks
    )
    generated = sorted(
        (column.name.lower(), _expression(column.generated))
        for column in definition.columns
        if column.generated is not None
    )
    if not (
        checks
        or generated
        or definition.properties
        or definition.partitioned_by
        or definition.clustered_by
    ):
        return _PLAIN_STORAGE
    written = [check.expression for check in definition.checks] + [
        column.generated for column in definition.columns if column.generated is not None
    ]
    return _hash(
        _scheme_of(_STORAGE, written)
        + _list(name.lower() for name in definition.partitioned_by)
        + _list(name.lower() for name in definition.clustered_by)
        + _pairs(checks)
        + _pairs(generated)
        + _pairs(sorted(definition.properties.items()))
    )


def comment_hash(definition: ObjectDefinition) -> str:
    """Return the hash of the object's comment and its columns' comments; an empty one is none."""
    comments = sorted(
        (column.name.lower(), column.comment) for column in definition.columns if column.comment
    )
    if not comments and not definition.comment:
        return _NO_COMMENT
    return _hash(_COMMENT + _part(definition.comment or "") + _pairs(comments))


def decision_hashes(definition: ObjectDefinition) -> dict[str, str]:
    """One hash for each decision a release takes, by label, in order of the columns.

    Labels: ``renamed_from`` and ``filled_from`` (the object), ``renamed_from:col``, ``using:col``,
    ``default:col``, ``dropped:col``; ``col`` is folded.
    """
    return {label: _decision(label, parts) for label, parts in _decisions(definition)}


def restamp_storage(stored: str, definition: ObjectDefinition) -> str:
    """Return the hash of how a table is stored, made again where ``stored`` is of scheme 1."""
    present = storage_hash(definition)
    return present if stored[:2] != present[:2] else stored


def restamp_decisions(applied: Sequence[str], definition: ObjectDefinition) -> tuple[str, ...]:
    """Decisions that ran, with the hash of scheme 2 for each that ran under one of scheme 1."""
    found = list(applied)
    for label, parts in _decisions(definition):
        present = _decision(label, parts)
        if present not in found and _decision_in_scheme_1(label, parts) in applied:
            found.append(present)
    return tuple(found)


def _decisions(definition: ObjectDefinition) -> Iterator[tuple[str, tuple[str, ...]]]:
    if definition.renamed_from is not None:
        yield "renamed_from", tuple(name.lower() for name in definition.earlier_names)
    if definition.filled_from is not None:
        yield "filled_from", (_expression(definition.filled_from),)
    for column in definition.columns:
        if column.renamed_from is not None:
            earlier = tuple(name.lower() for name in column.earlier_names)
            yield f"renamed_from:{column.name.lower()}", earlier
        # The type is no part of a USING decision: an old one must not decide a later change.
        if column.using is not None:
            yield f"using:{column.name.lower()}", (column.using,)
        if column.default is not None:
            yield f"default:{column.name.lower()}", (column.default,)
    for name in definition.dropped:
        yield f"dropped:{name.lower()}", ()


@lru_cache(maxsize=4096)
def _decision(label: str, parts: tuple[str, ...]) -> str:
    if not label.startswith(("using:", "default:")):
        return _hash(_DECISION + _encode(label) + b"".join(map(_encode, parts)))
    return _hash(
        _scheme_of(_DECISION, parts) + _encode(label)
        + b"".join(_encode(_expression(part)) for part in parts)
    )


def _decision_in_scheme_1(label: str, parts: tuple[str, ...]) -> str:
    return _hash(
        _DECISION + _encode(label) + b"".join(_encode(_expression_in_scheme_1(x)) for x in parts)
    )


def _scheme_of(tag: bytes, expressions: Iterable[str]) -> bytes:
    """The tag, of scheme 2 where scheme 1 would take one of the expressions for another."""
    plain = all(_expression(each) == _expression_in_scheme_1(each) for each in expressions)
    return tag if plain else bytes((tag[0] + 1,))


def _expression(sql: str) -> str:
    if "--" not in sql and "/*" not in sql and "'" not in sql and '"' not in sql:
        return _expression_in_scheme_1(sql)
    if _NESTED_COMMENT.search(sql):
        return sql
    return _BLANK_OR_QUOTED.sub(
        lambda match: " " if match["space"] else match[0], sql.strip()
    ).strip()


def _expression_in_scheme_1(sql: str) -> str:
    return _SPACE_OR_QUOTED.sub(lambda match: " " if match["space"] else match[0], sql.strip())


def _hash(data: bytes) -> str:
    return f"{data[0] & 0x0F}:{xxh3_128_hexdigest(data)}"


def _encode(text: str) -> bytes:
    data = text.encode("utf-8", "surrogatepass")
    return len(data).to_bytes(4, "big") + data


# Names, types and tokens repeat from object to object; long texts do not and stay out of it.
_part = lru_cache(maxsize=65536)(_encode)


def _number(value: int) -> bytes:
    return b"\x00\x00\x00\x04" + value.to_bytes(4, "big")


@lru_cache(maxsize=65536)
def _column(column: Column) -> bytes:
    flag = b"\x00\x00\x00\x01\x01" if column.nullable else b"\x00\x00\x00\x01\x00"
    return _encode(column.name.lower()) + _part(column.type.lower()) + flag


def _list(texts: Iterable[str]) -> bytes:
    parts = [_encode(text) for text in texts]
    return _number(len(parts)) + b"".join(parts)


def _pairs(pairs: list[tuple[str, str]]) -> bytes:
    return _number(len(pairs)) + b"".join(_encode(text) for pair in pairs for text in pair)


_PLAIN_STORAGE = _hash(_STORAGE + _number(0) * 5)
_NO_COMMENT = _hash(_COMMENT + _encode("") + _number(0))
