"""Options and the forms of their values: what is written, the one way it is kept, what it means."""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from collections.abc import Callable, Mapping
from datetime import datetime, timezone
from ipaddress import IPv6Address
from pathlib import PurePosixPath
from typing import Literal
from urllib.parse import urlsplit

import msgspec

from catalog_migrate.model.names import quote_part, quote_postgres, split_name

ValueKind = Literal[
    "text", "integer", "boolean", "duration", "choice", "path", "pem",
    "addresses", "host", "topic", "topics", "table", "position", "connection", "host key",
    "splits", "url", "pairs",
]  # fmt: skip
"""The form of a value."""

SecretUse = Literal["never", "must", "may"]

_DURATION = re.compile(
    r"\s*(?:interval\s+)?'?\s*(\d{1,12})\s*'?\s*([a-z]+)\s*'?\s*\Z", re.IGNORECASE | re.ASCII
)
_MILLISECONDS = {"day": 86_400_000, "hour": 3_600_000, "minute": 60_000, "second": 1000}
_UNITS = {
    **dict.fromkeys(("ms", "millisecond", "milliseconds"), 1),
    **dict.fromkeys(("s", "sec", "second", "seconds"), 1000),
    **dict.fromkeys(("min", "minute", "minutes"), 60_000),
    **dict.fromkeys(("h", "hour", "hours"), 3_600_000),
    **dict.fromkeys(("d", "day", "days"), 86_400_000),
}
_TRUE = frozenset({"true", "on", "yes", "1"})
_FALSE = frozenset({"false", "off", "no", "0"})
_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}\Z")
_HOST = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_.-]*[A-Za-z0-9_])?\.?\Z")
_BROKER = re.compile(r"(?:\[([^\[\]]+)\]|([^\[\]:@/\s]+)):([0-9]{1,5})\Z")
_TIME = re.compile(
    r"(\d{4}-\d\d-\d\d[T ]\d\d:\d\d)(:\d\d)?(?:\.(\d{1,9}))?([zZ]|[+-]\d\d:\d\d)?\Z", re.ASCII
)
_FINGERPRINT = re.compile(r"SHA256:([A-Za-z0-9+/]{43})=?\Z")
_KEY_TYPE = re.compile(r"(?:ssh|ecdsa|rsa)-[a-z0-9-]+\Z")
_TABLE_PART = re.compile(r'(?:"((?:[^"\0]|"")+)"|([^\W\d]\w*))')


class When(msgspec.Struct, frozen=True):
    """A condition on another option: its value (default included) is one of ``values``.

    Without values: the option is set at all.
    """

    option: str
    values: tuple[str, ...] = ()

    def __str__(self) -> str:
        if not self.values:
            return f"{self.option} is set"
        return f"{self.option} is {' or '.join(self.values)}"


class Option(msgspec.Struct, frozen=True):
    """One option or setting.

    ``secret`` says whether the value must, may or cannot be a secret. ``required_when`` and
    ``exclusive_with`` each hold when any of their conditions does; while the latter holds, nothing
    requires it. ``alterable`` is whether ALTER may change it in place, ``fixed_because`` why not.
    ``minimum`` and ``maximum`` bound an integer. ``moves``: positions mean nothing under another
    value, so that an unsafe statement which changes it must say where to go on.
    ``example`` is a valid value; every message that asks for the option shows it.

    An option with ``earlier`` is stored by CREATE whether it was written or not, so that no later
    version of the default changes what exists: ``earlier`` is what it means in a definition that
    was stored before there was such an option. CREATE takes it from the option ``from_connection``
    of the connection where that is set, else it is the default.
    """

    name: str
    value: ValueKind
    help: str
    example: str
    secret: SecretUse = "never"  # noqa: S105 - a rule, no password
    required: bool = False
    required_when: tuple[When, ...] = ()
    exclusive_with: tuple[When, ...] = ()
    alterable: bool = True
    fixed_because: str = ""
    default: str | None = None
    choices: tuple[str, ...] = ()
    minimum: int = 0
    maximum: int | None = None
    earlier: str | None = None
    from_connection: str = ""
    moves: bool = False


class BadValue(ValueError):
    """A value of the wrong form; the message says what was expected, never the value itself."""


def canonical_value(option: Option, text: str) -> str:
    """The one way to write ``text`` as a value of ``option``; equal meanings become equal texts.

    Raises :class:`BadValue`.
    """
    if "\0" in text:
        raise BadValue("a text without zero bytes is expected")
    bounded = _BOUNDED.get(option.value)
    return _FORMS[option.value](text) if bounded is None else bounded(option, text)


def milliseconds(duration: str) -> int:
    """How long a duration is."""
    match = _DURATION.match(duration)
    unit = _UNITS.get(match[2].lower()) if match else None
    if match is None or unit is None:
        raise BadValue("a duration is expected, as '1 second' or '500 milliseconds'")
    return int(match[1]) * unit


def topics_of(text: str) -> tuple[str, ...]:
    """The topics of a TOPIC option, in the order written; a repeated one raises BadValue."""
    names = tuple(part.strip() for part in text.split(","))
    for name in names:
        if not _TOPIC.match(name) or name in (".", ".."):
            raise BadValue(
                "topic names are 1 to 249 letters, digits, '.', '_' and '-', several separated "
                "by commas"
            )
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        raise BadValue(f"topic {repeated[0]} appears twice")
    return names


def addresses_of(text: str) -> tuple[tuple[str, int], ...]:
    """The (host, port) pairs of a BROKER option."""
    pairs = []
    for part in text.split(","):
        match = _BROKER.match(part.strip())
        host = (match[1] or match[2]) if match else ""
        if match is None or not _is_host(host) or not 0 < int(match[3]) < 65536:
            raise BadValue("'host:port' is expected, several separated by commas")
        pairs.append((host, int(match[3])))
    if len(set(pairs)) < len(pairs):
        raise BadValue("an address appears twice")
    return tuple(pairs)


def table_of(text: str) -> tuple[str | None, str]:
    """(schema or None, table) of a TABLE option, folded as PostgreSQL folds names."""
    parts: list[str] = []
    position = 0
    stripped = text.strip()
    while match := _TABLE_PART.match(stripped, position):
        parts.append(match[1].replace('""', '"') if match[1] is not None else match[2].lower())
        position = match.end()
        if position == len(stripped):
            if len(parts) <= 2:
                return (parts[0] if len(parts) == 2 else None), parts[-1]
            break
        if stripped[position] != ".":
            break
        position += 1
    raise BadValue("a table is expected, as 'orders', 'public.orders' or 'public.\"Orders\"'")


def start_of(text: str) -> datetime | None:
    """The moment of a START option, None for ``earliest`` and ``latest``."""
    if text in ("earliest", "latest"):
        return None
    match = _TIME.match(text.strip())
    try:
        if match is None:
            raise ValueError("another form")
        # Python 3.10 knows neither the Z nor every number of digits that ISO 8601 has.
        fraction = (match[3] or "0").ljust(6, "0")[:6]
        offset = "+00:00" if match[4] in ("z", "Z") else match[4] or ""
        moment = datetime.fromisoformat(f"{match[1]}{match[2] or ':00'}.{fraction}{offset}")
    except ValueError as error:
        raise BadValue(
            "'earliest', 'latest' or a time as '2026-01-31T12:00:00Z' is expected"
        ) from error
    if moment.tzinfo is None:
        raise BadValue("a time needs its offset: add 'Z' or '+02:00'")
    return moment.astimezone(timezone.utc)


def splits_of(text: str) -> dict[tuple[str, int], str]:
    """By (topic, partition) the target of a START OFFSETS option: a number, or as START takes it.

    Sorted; the targets are canonical. Raises BadValue.
    """
    found: dict[tuple[str, int], str] = {}
    for part in text.split(","):
        split, sign, target = (each.strip() for each in part.partition("="))
        topic, colon, number = split.rpartition(":")
        if not (sign and colon and _TOPIC.match(topic) and re.fullmatch("[0-9]{1,9}", number)):
            raise BadValue("('topic:0' = 123, 'topic:1' = '2026-01-31T12:00:00Z') is expected")
        if (topic, int(number)) in found:
            raise BadValue(f"partition {split} appears twice")
        if re.fullmatch("[0-9]{1,18}", target):
            found[topic, int(number)] = str(int(target))
        else:
            found[topic, int(number)] = _position(re.sub("(?i)^timestamp +", "", target))
    return dict(sorted(found.items()))


def _splits(text: str) -> str:
    return ",".join(
        f"{topic}:{number}={target}" for (topic, number), target in splits_of(text).items()
    )


def _text(text: str) -> str:
    if not text:
        raise BadValue("a text that is not empty is expected")
    return text


def _integer(option: Option, text: str) -> str:
    stripped = text.strip()
    if not re.fullmatch(r"[0-9]{1,18}", stripped):
        raise BadValue("a whole number is expected")
    number = int(stripped)
    if number < option.minimum or (option.maximum is not None and number > option.maximum):
        upper = "" if option.maximum is None else f" and at most {option.maximum}"
        raise BadValue(f"a whole number of at least {option.minimum}{upper} is expected")
    return str(number)


def _boolean(text: str) -> str:
    folded = text.strip().lower()
    if folded in _TRUE:
        return "true"
    if folded in _FALSE:
        return "false"
    raise BadValue("true or false is expected")


def _duration(text: str) -> str:
    total = milliseconds(text)
    for name, size in _MILLISECONDS.items():
        if total and total % size == 0:
            count = total // size
            return f"{count} {name}" if count == 1 else f"{count} {name}s"
    return f"{total} millisecond" if total == 1 else f"{total} milliseconds"


def _choice(option: Option, text: str) -> str:
    folded = text.strip().lower().replace("_", "-")
    for choice in option.choices:
        if choice.lower().replace("_", "-") == folded:
            return choice
    raise BadValue("one of " + ", ".join(option.choices) + " is expected")


def _path(option: Option, text: str) -> str:
    path = PurePosixPath(text)
    if not text.strip() or ".." in path.parts:
        raise BadValue("a path without '..' is expected")
    from_root = option.required or bool(option.required_when)
    if from_root and not path.is_absolute():
        raise BadValue(f"a path from the root is expected, as {option.example!r}")
    if not from_root and path.is_absolute():
        raise BadValue("a path below the connection's is expected, as 'orders'")
    return str(path)


def _pem(text: str) -> str:
    if not text.lstrip().startswith("-----BEGIN "):
        raise BadValue("PEM is expected: the text itself, from -----BEGIN on, not a file's name")
    return text.strip() + "\n"


def _addresses(text: str) -> str:
    return ",".join(
        f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        for host, port in addresses_of(text)
    )


def _host(text: str) -> str:
    stripped = text.strip()
    if not _is_host(stripped):
        raise BadValue("the name or the address of one host is expected, without port")
    return stripped


def _is_host(text: str) -> bool:
    if ":" not in text:
        return bool(_HOST.match(text))
    try:
        return IPv6Address(text).version == 6
    except ValueError:
        return False


def _url(text: str) -> str:
    """An address of HTTP; nothing in it is a login, which it would be shown with."""
    stripped = text.strip().rstrip("/")
    try:
        parts = urlsplit(stripped)
        port = parts.port
    except ValueError:
        parts, port = urlsplit(""), None
    known = parts.scheme in ("http", "https") and parts.hostname and _is_host(parts.hostname)
    if not known or port == 0 or re.search(r"\s", stripped) or not stripped.isascii():
        raise BadValue("an address is expected, as 'https://registry.example.com:8081'")
    if "@" in parts.netloc:
        raise BadValue("no user and no password stand in it: they have options of their own")
    if parts.query or parts.fragment:
        raise BadValue("an address without '?' and '#' is expected")
    return stripped


def _topics(text: str) -> str:
    return ",".join(topics_of(text))


def _topic(text: str) -> str:
    names = topics_of(text)
    if len(names) > 1:
        raise BadValue("one topic is expected")
    return names[0]


def pairs_of(text: str) -> dict[str, str]:
    """The names and values of an OAUTH EXTENSIONS option; what Kafka would refuse is BadValue."""
    found: dict[str, str] = {}
    for part in text.split(","):
        name, sign, value = (each.strip() for each in part.partition("="))
        if not sign or not re.fullmatch("[A-Za-z]+", name) or name.lower() == "auth" or not value:
            raise BadValue("'name=value' is expected, several separated by commas, names of A-Z")
        if name in found or not value.isprintable():
            raise BadValue(f"{name} is given twice, or has a value that cannot be printed")
        found[name] = value
    return found


def _pairs(text: str) -> str:
    return ",".join(f"{name}={value}" for name, value in sorted(pairs_of(text).items()))


def _table(text: str) -> str:
    schema, name = table_of(text)
    parts = (name,) if schema is None else (schema, name)
    return ".".join(
        part if re.fullmatch(r"[a-z_][a-z0-9_]*", part) else quote_postgres(part)
        for part in parts
    )


def _connection(text: str) -> str:
    try:
        schema, name = split_name(text.strip())
    except ValueError as error:
        raise BadValue("the name of a connection is expected, as 't' or 'schema.t'") from error
    return ".".join(quote_part(part) for part in (schema, name) if part is not None)


def canonical_host_key(text: str) -> str:
    """``SHA256:…`` or ``type base64``; a comment, or the host of a ``known_hosts`` line, is left
    out. Raises :class:`BadValue`."""
    words = text.split()
    if len(words) == 1 and (match := _FINGERPRINT.match(words[0])):
        return f"SHA256:{match[1]}"
    at = next((number for number, word in enumerate(words[:2]) if _KEY_TYPE.match(word)), None)
    if at is None or len(words) < at + 2:
        raise BadValue("a public key on one line, or SHA256: and its fingerprint, is expected")
    kind, data = words[at], words[at + 1]
    try:
        blob = base64.b64decode(data, validate=True)
    except binascii.Error as error:
        raise BadValue("the key on the line is not whole") from error
    except ValueError as error:
        raise BadValue(str(error)) from error
    if not blob.startswith(len(kind).to_bytes(4, "big") + kind.encode()):
        raise BadValue(f"the key on the line is not of the type {kind}")
    return f"{kind} {data}"


def fingerprint(host_key: str) -> str:
    """``SHA256:…`` of a canonical host key, as ``ssh-keygen -l`` prints it."""
    kind, _, data = host_key.partition(" ")
    if not data:
        return kind
    digest = hashlib.sha256(base64.b64decode(data)).digest()
    return "SHA256:" + base64.b64encode(digest).decode().rstrip("=")


def _position(text: str) -> str:
    folded = text.strip().lower()
    if folded in ("earliest", "latest"):
        return folded
    moment = start_of(text)
    if moment is None or moment.timestamp() < 0:
        raise BadValue("a time after 1970 is expected")
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


_FORMS: Mapping[str, Callable[[str], str]] = {
    "text": _text,
    "boolean": _boolean,
    "duration": _duration,
    "pem": _pem,
    "addresses": _addresses,
    "host": _host,
    "url": _url,
    "topics": _topics,
    "topic": _topic,
    "table": _table,
    "position": _position,
    "connection": _connection,
    "host key": canonical_host_key,
    "splits": _splits,
    "pairs": _pairs,
}
_BOUNDED: Mapping[str, Callable[[Option, str], str]] = {
    "integer": _integer,
    "choice": _choice,
    "path": _path,
}
