"""Every statement of the language as a frozen value, and the words of the language.

The words are data that the parser, the printer and the recognition share: kinds, connectors,
reserved words, and how names are made canonical.

Names of items are text in canonical form, ``schema.name`` or ``name``, with backticks where a part
needs them (:func:`catalog_migrate.model.names.split_name` takes them apart). Names of columns are
bare. Options and settings carry canonical names; whether they exist, fit together and may be
altered is decided in planning.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Literal

import msgspec

from catalog_migrate.model.connector_names import OURS
from catalog_migrate.model.objects import Column, External, OptionValue

Kind = Literal["secret", "connection", "source", "sink", "cluster"]
QueryKind = Literal["source", "sink"]
Listing = Literal["sources", "sinks", "connections", "clusters", "operations", "secrets"]

KINDS: Mapping[str, Kind] = {
    "SECRET": "secret",
    "CONNECTION": "connection",
    "SOURCE": "source",
    "SINK": "sink",
    "CLUSTER": "cluster",
}
QUERY_KINDS: Mapping[str, QueryKind] = {"SOURCE": "source", "SINK": "sink"}
LISTINGS: Mapping[str, Listing] = {
    "SOURCES": "sources",
    "SINKS": "sinks",
    "CONNECTIONS": "connections",
    "CLUSTERS": "clusters",
    "OPERATIONS": "operations",
    "SECRETS": "secrets",
}
CONNECTORS: Mapping[str, str] = {name: name for name in OURS}
"""Our connectors; that of another package is one word, which it registers."""

INCLUDED: Mapping[str, str] = {
    "KEY": "key", "PARTITION": "partition", "OFFSET": "offset", "TIMESTAMP": "timestamp"
}
"""What INCLUDE may show, with the column name it gets without AS."""

SPLIT_OPTIONS = frozenset({"START OFFSETS"})
"""Options whose value is written ``('topic:0' = target, …)``; kept as ``topic:0=target,…``."""

PAUSED = "paused"
"""The reason of a hold that was given none."""

BASE_CONNECTION = "USING CONNECTION"
"""Key under which an ALTER CONNECTION's actions name the base of the connection."""

USED_CONNECTIONS = frozenset({"SSH TUNNEL"})
"""Options of connections whose value names another connection, of the type that the option is
called after; written with USING before it: ``USING SSH TUNNEL t``."""

RESERVED = frozenset(
    {
        "AS", "CASCADE", "CONNECTION", "DROP", "EXISTS", "FROM", "IF", "IN", "INTO", "IS", "NOT",
        "ON", "REASON", "RENAME", "RESET", "RESTRICT", "SET", "TO", "UNSAFE", "WITH",
    }
)
"""Words that name an item only in backticks, so that a statement cut off before its name (``DROP
SOURCE IF``) is an error and never the name of something else."""

_PLAIN_OPTION = re.compile(r"[A-Z][A-Z0-9]*(?: [A-Z][A-Z0-9]*)*\Z")
_PLAIN_DOTTED = re.compile(r"[a-z_][a-z0-9_]*(?:\.[a-z_][a-z0-9_]*)+\Z")


def option_name(written: str) -> str:
    """Return the canonical name of an option or of a setting after WITH.

    Upper-case words joined by one space, an underscore counts as one (``SASL PASSWORD``,
    ``ON CHANGE``); a name with a dot is a client's own (``kafka.linger.ms``) and becomes lower
    case. Applying it twice changes nothing.
    """
    if "." in written:
        return " ".join(written.lower().split())
    return " ".join(written.replace("_", " ").upper().split())


def is_plain_option(name: str) -> bool:
    """Return whether a canonical name may be written without backticks."""
    if name.startswith(BASE_CONNECTION):
        return False
    return bool(_PLAIN_OPTION.match(name) or _PLAIN_DOTTED.match(name))


class CreateSecret(msgspec.Struct, frozen=True):
    """``CREATE SECRET name AS 'reference' [COMMENT …]``: only the reference is ever stored."""

    name: str
    reference: str
    if_not_exists: bool = False
    comment: str | None = None


class AlterSecret(msgspec.Struct, frozen=True):
    """``ALTER SECRET name [AS 'reference'] [WITH (VALIDATE = …)]``: raises the revision, also
    without a reference."""

    name: str
    reference: str | None = None
    if_exists: bool = False
    validate: bool | None = None


class Drop(msgspec.Struct, frozen=True):
    """``DROP kind name [RESTRICT | CASCADE]``; RESTRICT is the default."""

    kind: Kind
    name: str
    if_exists: bool = False
    cascade: bool = False


class CreateConnection(msgspec.Struct, frozen=True):
    """``CREATE CONNECTION name TO connector (…)``; ``validate`` is None when WITH was not given.

    ``external`` holds ``connector``, ``options`` and, of USING CONNECTION, ``connection``.
    """

    name: str
    external: External
    if_not_exists: bool = False
    validate: bool | None = None
    comment: str | None = None


class SetOptions(msgspec.Struct, frozen=True):
    """``SET (…)``; of a connection, the key ``USING CONNECTION`` names another base."""

    options: dict[str, OptionValue]


class DropOptions(msgspec.Struct, frozen=True):
    """``DROP (…)``: the options are taken away."""

    names: tuple[str, ...]


class ResetOptions(msgspec.Struct, frozen=True):
    """``RESET (…)``: the options get their declared defaults."""

    names: tuple[str, ...]


Action = SetOptions | DropOptions | ResetOptions


class AlterConnection(msgspec.Struct, frozen=True):
    """``ALTER CONNECTION name [AS connector] [ROTATE KEYS,] action, …``.

    ``connector`` is what AS says and is only compared with the catalog; ``validate`` is None when
    WITH was not given. ``rotate`` is done before the actions, of which there may be none then.
    """

    name: str
    actions: tuple[Action, ...]
    if_exists: bool = False
    connector: str | None = None
    validate: bool | None = None
    rotate: bool = False


class AlterItem(msgspec.Struct, frozen=True):
    """``ALTER SOURCE | SINK name action, …`` for options that may change in place."""

    kind: QueryKind
    name: str
    actions: tuple[Action, ...]
    if_exists: bool = False


class SetConnection(msgspec.Struct, frozen=True):
    """``ALTER SOURCE | SINK name SET CONNECTION connection``."""

    kind: QueryKind
    name: str
    connection: str
    if_exists: bool = False


class Rename(msgspec.Struct, frozen=True):
    """``ALTER kind name RENAME TO to``."""

    kind: Kind
    name: str
    to: str
    if_exists: bool = False


class ShowCreate(msgspec.Struct, frozen=True):
    """``SHOW CREATE kind name``."""

    kind: Kind
    name: str


class ValidateConnection(msgspec.Struct, frozen=True):
    """``VALIDATE CONNECTION name``."""

    name: str


class ValidateSource(msgspec.Struct, frozen=True):
    """``VALIDATE SOURCE name [WITH (…)]``: compare a mirror with the tables that it mirrors."""

    name: str
    settings: dict[str, str] = {}


class CreateSource(msgspec.Struct, frozen=True):
    """``CREATE SOURCE name [(columns)] FROM connector CONNECTION c (…) …``.

    ``columns`` are the declared ones with their types as written; ``external`` holds
    ``connector``, ``connection``, ``options``, ``format`` with its ``registry`` and
    ``key_format``, ``include``, ``dead_letters``, ``cluster`` and the ``settings`` of WITH.
    ``paused`` is the reason of PAUSED, None without it.
    """

    name: str
    columns: tuple[Column, ...]
    external: External
    if_not_exists: bool = False
    comment: str | None = None
    paused: str | None = None


class CreateSink(msgspec.Struct, frozen=True):
    """``CREATE SINK name FROM relation INTO connector CONNECTION c (…) …``.

    ``external`` holds ``reads``, ``connector``, ``connection``, ``options``, ``key``,
    ``order_by``, ``format`` with its ``registry``, ``dead_letters``, ``cluster`` and the
    ``settings`` of WITH.
    ``paused`` is the reason of PAUSED, None without it.
    """

    name: str
    external: External
    if_not_exists: bool = False
    comment: str | None = None
    paused: str | None = None


class CreateCluster(msgspec.Struct, frozen=True):
    """``CREATE CLUSTER name``."""

    name: str
    if_not_exists: bool = False


class Pause(msgspec.Struct, frozen=True):
    """``PAUSE SOURCE | SINK name [REASON 'text']``: adds the operator's hold."""

    kind: QueryKind
    name: str
    reason: str | None = None


class Resume(msgspec.Struct, frozen=True):
    """``RESUME SOURCE | SINK name [REASON 'text']``: removes the operator's hold."""

    kind: QueryKind
    name: str
    reason: str | None = None


class Show(msgspec.Struct, frozen=True):
    """``SHOW SOURCES | SINKS | CONNECTIONS | CLUSTERS | OPERATIONS | SECRETS``."""

    what: Listing


class ShowLog(msgspec.Struct, frozen=True):
    """``SHOW SOURCE | SINK name LOG [LIMIT n]``: what its cluster's log has of it."""

    kind: QueryKind
    name: str
    limit: int | None = None


class Comment(msgspec.Struct, frozen=True):
    """``COMMENT ON kind name IS 'text' | NULL``."""

    kind: Kind
    name: str
    text: str | None


class ResetSplits(msgspec.Struct, frozen=True):
    """``RESET SPLITS [('topic:0', …)]``: forget what was discovered; none named means all."""

    splits: tuple[str, ...] = ()


class InjectOffsets(msgspec.Struct, frozen=True):
    """``INJECT OFFSETS (…)``: the next record to read, for each split or for all of them.

    ``targets`` maps a split (``topic:0``) to its target as written, None for NULL (START, resolved
    now). ``everywhere`` is the one target of ``TO``. Exactly one of the two is given.
    """

    targets: dict[str, str | None] = {}
    everywhere: str | None = None


class InjectVersion(msgspec.Struct, frozen=True):
    """``INJECT VERSION n``: the version of the table that a sink reads next."""

    version: int


UnsafeAction = SetOptions | DropOptions | ResetOptions | ResetSplits | InjectOffsets | InjectVersion


class Unsafe(msgspec.Struct, frozen=True):
    """``ALTER SOURCE | SINK name UNSAFE action, … [WITH (…)] REASON 'text'``: one operation.

    ``said`` is whether the word UNSAFE was; without it, or a reason, nothing but a dry run is done.
    """

    kind: QueryKind
    name: str
    actions: tuple[UnsafeAction, ...]
    reason: str
    settings: dict[str, str] = {}
    if_exists: bool = False
    said: bool = True


Explainable = (
    CreateSecret | AlterSecret | Drop | CreateConnection | AlterConnection | AlterItem
    | SetConnection | Rename | ShowCreate | ValidateConnection | ValidateSource | CreateSource
    | CreateSink | CreateCluster | Pause | Resume | Show | ShowLog | Comment | Unsafe
)


class Explain(msgspec.Struct, frozen=True):
    """``EXPLAIN statement``: the plan is shown and nothing is done."""

    statement: Explainable


Statement = Explainable | Explain
