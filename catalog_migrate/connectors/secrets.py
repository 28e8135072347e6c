"""Secrets: a reference is stored, its value is read where and when it is needed, and stays hidden.

More kinds of reference come from packages with an entry point in the group
``catalog_migrate.secrets``: its name is the scheme, its object a function from what stands after
the colon to the value.
"""

from __future__ import annotations

import base64
import hmac
import json
import os
import re
from collections.abc import Callable, Iterable, Mapping
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any, NoReturn
from urllib.parse import quote, quote_plus

from catalog_migrate.errors import UnresolvedSecret

ENTRY_POINTS = "catalog_migrate.secrets"
HIDDEN = "***"
MAX_BYTES = 1 << 20

_REFERENCE = re.compile(r"([a-z][a-z0-9+.-]*):(.+)\Z", re.DOTALL)


class Secret:
    """A value that shows itself only to who calls :meth:`reveal`.

    Neither repr, str, format, f-strings, pickle, JSON nor msgspec let it out; two secrets compare
    by value, in constant time; it cannot be hashed.
    """

    __slots__ = ("__value",)

    def __init__(self, value: str) -> None:
        self.__value = value

    def reveal(self) -> str:
        """The value, for the client library that needs it and nothing else."""
        return self.__value

    def __repr__(self) -> str:
        return "Secret(***)"

    def __str__(self) -> str:
        return HIDDEN

    def __format__(self, spec: str) -> str:
        return format(HIDDEN, spec)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Secret):
            return NotImplemented
        return hmac.compare_digest(self.reveal().encode(), other.reveal().encode())

    __hash__ = None  # type: ignore[assignment]

    def __copy__(self) -> Secret:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Secret:
        return self

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise TypeError("a secret is not written to anything")


def reveal(value: str | Secret) -> str:
    """The text of an option's value, secret or not."""
    return value.reveal() if isinstance(value, Secret) else value


def schemes() -> tuple[str, ...]:
    """Every scheme that a reference may have in this process."""
    return tuple(sorted({*_SCHEMES, *_plugins()}))


def is_scheme(name: str) -> bool:
    """Whether a reference may begin so; looks for other packages only when it is none of ours."""
    return name in _SCHEMES or name in _plugins()


def parse_reference(reference: str) -> tuple[str, str]:
    """(scheme, rest) of ``env:NAME`` and the like.

    Raises UnresolvedSecret for a text without a known scheme; the text is not shown, because who
    writes no reference may have written the value itself.
    """
    match = _REFERENCE.match(reference)
    if match is None or not is_scheme(match[1]):
        raise UnresolvedSecret(
            "this is no reference to a secret (its text is not shown)",
            remedy="write " + " or ".join(f"'{scheme}:…'" for scheme in schemes()),
        )
    return match[1], match[2]


def resolve(reference: str) -> Secret:
    """The value behind a reference, read now and in this process.

    Raises UnresolvedSecret with the reference and what is wrong with it.
    """
    scheme, rest = parse_reference(reference)
    reader = _SCHEMES.get(scheme)
    value = reader(rest) if reader is not None else _from_plugin(scheme, rest)
    if not isinstance(value, str) or not value:
        raise UnresolvedSecret(
            f"secret {reference} is empty", reference=reference, remedy="give it a value"
        )
    return Secret(value)


class Redactor:
    """Takes the values of secrets out of texts that others wrote: errors, logs, configurations.

    Also found are the forms a value takes in a URL, in JSON, in quoted text of several languages
    and in base64, and each long line of a value of several lines.
    """

    __slots__ = ("__pattern",)

    def __init__(self, secrets: Iterable[Secret]) -> None:
        texts: set[str] = set()
        for secret in secrets:
            texts |= _appearances(secret.reveal())
        # The longest first, or a value that begins with another would leave its rest behind.
        ranked = sorted((text for text in texts if text), key=lambda text: (-len(text), text))
        self.__pattern = re.compile("|".join(_bounded(text) for text in ranked)) if ranked else None

    @classmethod
    def of(cls, resolved: Mapping[str, str | Secret]) -> Redactor:
        """For the secrets among resolved options."""
        return cls(value for value in resolved.values() if isinstance(value, Secret))

    def __repr__(self) -> str:
        return "Redactor(***)"

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise TypeError("a redactor holds secrets and is not written to anything")

    def scrub(self, text: str) -> str:
        """``text`` with every appearance of a secret replaced by ``***``."""
        return text if self.__pattern is None else self.__pattern.sub(HIDDEN, text)


def _appearances(value: str) -> set[str]:
    """Every form in which a value is looked for."""
    lines = {line.strip() for line in value.splitlines() if "\n" in value}
    parts = {value, value.strip(), *(line for line in lines if len(line) >= 16)}
    forms = set(parts)
    for part in parts:
        backslashed = part.replace("\\", "\\\\")
        forms |= {
            quote(part, safe=""),
            quote(part),
            quote_plus(part),
            json.dumps(part)[1:-1],
            json.dumps(part, ensure_ascii=False)[1:-1],
            repr(part)[1:-1],
            backslashed,
            backslashed.replace('"', '\\"'),
            backslashed.replace("'", "\\'"),
            part.replace("'", "''"),
            part.replace('"', '""'),
            base64.b64encode(part.encode()).decode(),
        }
    # percent-escapes come in either case
    forms |= {re.sub(r"%[0-9A-F]{2}", lambda match: match[0].lower(), form) for form in forms}
    return {form for form in forms if form and not form.startswith("-----")}


def _bounded(text: str) -> str:
    """A pattern for one form; the shortest count only as words, or they would hit everything."""
    escaped = re.escape(text)
    return escaped if len(text) > 3 else rf"(?<!\w){escaped}(?!\w)"


def _from_environment(name: str) -> str:
    value = os.environ.get(name)
    if value is None:
        raise UnresolvedSecret(
            f"secret env:{name}: there is no such variable in this process' environment",
            reference=f"env:{name}",
            remedy=f"set {name} where the command line and the runtime are started",
        )
    return value


def _from_file(path: str) -> str:
    reference = f"file:{path}"
    place = Path(path)
    if not place.is_absolute():
        raise UnresolvedSecret(
            f"secret {reference}: the path does not begin at the root", reference=reference,
            remedy="write file:/ and the whole path",
        )
    try:
        with place.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        what = {
            FileNotFoundError: "there is no such file",
            PermissionError: "this process may not read the file",
            IsADirectoryError: "it is a directory",
        }.get(type(error), f"the file cannot be read ({error.strerror})")
        raise UnresolvedSecret(
            f"secret {reference}: {what}", reference=reference,
            remedy="the file is read by the command line and by the runtime, each for itself",
        ) from error
    if len(data) > MAX_BYTES:
        raise UnresolvedSecret(
            f"secret {reference}: more than {MAX_BYTES} bytes", reference=reference,
            remedy="name the file that holds the value alone",
        )
    text = data.decode(errors="replace")
    if "\ufffd" in text:
        # Not by UnicodeDecodeError: it would carry the bytes along.
        raise UnresolvedSecret(
            f"secret {reference}: the file is no UTF-8 text", reference=reference,
            remedy="write the value as text",
        )
    return re.sub(r"\r?\n\Z", "", text, count=1)


def _from_plugin(scheme: str, rest: str) -> str:
    """Ask another package, and keep nothing of its error but the class: it may hold the value."""
    try:
        value: str = _plugins()[scheme].load()(rest)
    except UnresolvedSecret:
        raise
    except Exception as error:  # noqa: BLE001 - foreign code; a typed error follows below
        failure = f"{type(error).__module__}.{type(error).__qualname__}"
    else:
        return value
    raise UnresolvedSecret(
        f"secret {scheme}:{rest}: the reader of {scheme}: failed ({failure})",
        reference=f"{scheme}:{rest}", remedy=f"check the package that provides {scheme}:",
    )


def _plugins() -> dict[str, EntryPoint]:
    """Readers from other packages by scheme; ours cannot be replaced."""
    found = {point.name: point for point in entry_points(group=ENTRY_POINTS)}
    return {name: point for name, point in found.items() if name not in _SCHEMES}


_SCHEMES: Mapping[str, Callable[[str], str]] = {"env": _from_environment, "file": _from_file}
