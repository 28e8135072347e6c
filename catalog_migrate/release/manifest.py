"""The release manifest: JSON decoded straight into definitions, and written back (DESIGN 8)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

import msgspec
import xxhash

from catalog_migrate.errors import InvalidRelease, Problem, UnsupportedFormat
from catalog_migrate.model.objects import ObjectDefinition, order_key

MANIFEST_FORMAT = "1.0"
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


class ManifestOutline(NamedTuple):
    """What tells one manifest from another: its name, its hash, how many objects it declares."""

    name: str
    manifest_hash: str
    objects: int


class _Outline(msgspec.Struct, frozen=True):
    format_version: str
    release: str
    objects: tuple[msgspec.Raw, ...]
    default_schema: str | None = None


class _Header(msgspec.Struct, frozen=True):
    format_version: str


_MANIFEST = msgspec.json.Decoder(Manifest)
_OUTLINE = msgspec.json.Decoder(_Outline)
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
    """The bytes of a manifest, objects in a fixed order: equal releases give equal bytes."""
    ordered = tuple(sorted(objects, key=lambda definition: order_key(definition.key)))
    data = _ENCODER.encode(
        Manifest(
            format_version=MANIFEST_FORMAT, release=release, objects=ordered,
            statements=tuple(statements), dropped=tuple(dropped),
        )
    )
    return msgspec.json.format(data, indent=1) + b"\n" if pretty else data


def hash_of(data: bytes, *, default_schema: str | None = None) -> str:
    """The manifest hash of canonical bytes: 32 hex digits of xxh3_128.

    ``default_schema`` is one that stands above the manifest's own: it changes what bare names
    mean, so it makes another release of the same bytes.
    """
    if default_schema is not None:
        data += b"\0default_schema=" + default_schema.lower().encode()
    return xxhash.xxh3_128_hexdigest(data)


def overriding(given: str | None, own: str | None) -> str | None:
    """The default schema that a caller gives, None when it says nothing new."""
    return None if not given or given == own else given


def outline_of(data: bytes, *, default_schema: str | None = None) -> ManifestOutline | None:
    """The outline of a manifest, objects left undecoded; None when it has to be read to say more.

    It is no proof that the manifest is valid: only the hash of one that was read before says that.
    """
    try:
        found = _OUTLINE.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return ManifestOutline(
        found.release,
        hash_of(data, default_schema=overriding(default_schema, found.default_schema)),
        len(found.objects),
    )


def _version_of(data: bytes) -> str:
    try:
        return _HEADER.decode(data).format_version
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return MANIFEST_FORMAT  # not even a header: the first error is the one to report


def _check_version(version: str, file: str | None) -> None:
    major = version.partition(".")[0]
    if major == MANIFEST_FORMAT.partition(".")[0]:
        return
    where = file or "the manifest"
    if major.isdigit():
        raise UnsupportedFormat(
            f"{where} has format_version {version}; this tool reads {MANIFEST_FORMAT}",
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
