"""The words of the language: kinds, connectors, reserved words, and how names are made canonical.

Everything here is data that the parser, the printer and the recognition share.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Literal

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
CONNECTORS: Mapping[str, str] = {
    "KAFKA": "KAFKA", "POSTGRES": "POSTGRES", "FILES": "FILES",
    "SCHEMA REGISTRY": "SCHEMA REGISTRY", "SSH TUNNEL": "SSH TUNNEL",
}
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
    """The canonical name of an option or of a setting after WITH.

    Upper-case words joined by one space, an underscore counts as one (``SASL PASSWORD``,
    ``ON CHANGE``); a name with a dot is a client's own (``kafka.linger.ms``) and becomes lower
    case. Applying it twice changes nothing.
    """
    if "." in written:
        return " ".join(written.lower().split())
    return " ".join(written.replace("_", " ").upper().split())


def is_plain_option(name: str) -> bool:
    """Whether a canonical name may be written without backticks."""
    if name.startswith(BASE_CONNECTION):
        return False
    return bool(_PLAIN_OPTION.match(name) or _PLAIN_DOTTED.match(name))
