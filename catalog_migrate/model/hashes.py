"""The hashes that say whether something changed (DESIGN section 4), recipe by recipe.

Every hash is ``1:`` and the 32 hex digits of xxh3_128 (seed 0, canonical byte order) over::

    tag byte | part | part | ...        part = length (4 bytes, big-endian) | bytes

The tag's low four bits are the scheme (1), its high four bits say what is hashed, so that two
kinds of hash never agree by accident. Texts are UTF-8; *folded* is ``str.lower``; an *n* below is
a part of four big-endian bytes; a *list* is its n, then its parts; SQL expressions have each run
of white space outside quotes replaced by one space.

======== ===== ==================================================================================
hash     tag   parts
======== ===== ==================================================================================
schema   0x01  n of columns; each in order: folded name, folded canonical type, 01 or 00 (nullable)
defin.   0x11  the normalised tokens in order
depend.  0x21  the folded names, sorted, each once
text     0x31  the text as it is
storage  0x41  list of folded partitioned_by; list of folded clustered_by; n of checks, each sorted
               by folded name: folded name, expression; n of generated columns, sorted: folded
               name, expression; n of properties, sorted by key: key, value
comment  0x51  the object's comment; n of commented columns, sorted: folded name, comment
decision 0x61  label, then what was decided (the expression; the folded earlier names in order)
======== ===== ==================================================================================

The schema hash folds the type too, which touches nothing but the field names of structs: names
compare without case everywhere. A new recipe is scheme 2 and re-stamps what is stored.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import lru_cache

from xxhash import xxh3_128_hexdigest

from catalog_migrate.model.objects import ObjectDefinition

SCHEME = "1"
_SCHEMA = b"\x01"
_DEFINITION = b"\x11"
_DEPENDENCY = b"\x21"
_TEXT = b"\x31"
_STORAGE = b"\x41"
_COMMENT = b"\x51"
_DECISION = b"\x61"

_SPACE_OR_QUOTED = re.compile(
    r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|`[^`]*`|(?P<space>\s+)", re.DOTALL
)


def schema_fingerprint(columns: Iterable[tuple[str, str, bool]]) -> str:
    """The schema's hash; ``columns`` are (name, canonical type, nullable) in order."""
    parts = list(map(_column, columns))
    return _hash(_SCHEMA + _number(len(parts)) + b"".join(parts))


def definition_hash(tokens: Iterable[str]) -> str:
    """The hash of a view's or function's normalised tokens."""
    return _hash(_DEFINITION + b"".join(map(_part, tokens)))


def dependency_hash(names: Iterable[str]) -> str:
    """The definition hash of an object without SQL: what it declares to depend on, in any order."""
    return _hash(_DEPENDENCY + b"".join(map(_part, sorted({name.lower() for name in names}))))


def text_hash(text: str) -> str:
    """The hash of a raw text: when it is equal, nothing needs to be tokenised."""
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
    return _hash(
        _STORAGE
        + _list(name.lower() for name in definition.partitioned_by)
        + _list(name.lower() for name in definition.clustered_by)
        + _pairs(checks)
        + _pairs(generated)
        + _pairs(sorted(definition.properties.items()))
    )


def comment_hash(definition: ObjectDefinition) -> str:
    """The hash of the object's comment and its columns' comments; an empty one is none."""
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
            yield f"using:{column.name.lower()}", (_expression(column.using),)
        if column.default is not None:
            yield f"default:{column.name.lower()}", (_expression(column.default),)
    for name in definition.dropped:
        yield f"dropped:{name.lower()}", ()


@lru_cache(maxsize=4096)
def _decision(label: str, parts: tuple[str, ...]) -> str:
    return _hash(_DECISION + _encode(label) + b"".join(map(_encode, parts)))


def _expression(sql: str) -> str:
    return _SPACE_OR_QUOTED.sub(lambda match: " " if match["space"] else match[0], sql.strip())


def _hash(data: bytes) -> str:
    return f"{SCHEME}:{xxh3_128_hexdigest(data)}"


def _encode(text: str) -> bytes:
    data = text.encode("utf-8", "surrogatepass")
    return len(data).to_bytes(4, "big") + data


# Names, types and tokens repeat from object to object; long texts do not and stay out of it.
_part = lru_cache(maxsize=65536)(_encode)


def _number(value: int) -> bytes:
    return b"\x00\x00\x00\x04" + value.to_bytes(4, "big")


@lru_cache(maxsize=65536)
def _column(column: tuple[str, str, bool]) -> bytes:
    name, canonical, nullable = column
    flag = b"\x00\x00\x00\x01\x01" if nullable else b"\x00\x00\x00\x01\x00"
    return _encode(name.lower()) + _part(canonical.lower()) + flag


def _list(texts: Iterable[str]) -> bytes:
    parts = [_encode(text) for text in texts]
    return _number(len(parts)) + b"".join(parts)


def _pairs(pairs: list[tuple[str, str]]) -> bytes:
    return _number(len(pairs)) + b"".join(_encode(text) for pair in pairs for text in pair)


_PLAIN_STORAGE = _hash(_STORAGE + _number(0) * 5)
_NO_COMMENT = _hash(_COMMENT + _encode("") + _number(0))
