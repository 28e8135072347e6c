"""What keeps changes of PostgreSQL tables from being read, each with what to do next.

Codes CM0770 to CM0780. :func:`marked` puts an error into the text of an exception, which is all
that comes through Spark of what a reader raised; :func:`parse_failure` takes it out again.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import msgspec

from catalog_migrate.connections.findings import ConnectionFailed
from catalog_migrate.errors import CatalogMigrateError
from catalog_migrate.replication.types import Column

MARK = "catalog_migrate.failure"
"""Stands before the JSON of an error in the text of an exception."""


NEW_SNAPSHOT = "take a new snapshot: ALTER SOURCE … UNSAFE RESET SPLITS REASON '…'"
"""What helps where changes are not to be had any more; a hold says the source's name in it."""


class ReplicationFailed(CatalogMigrateError, RuntimeError):
    """The server would not give its changes, for a reason that has no class of its own."""

    code = "CM0770"
    exit_code = 6


class PublicationMissing(ReplicationFailed, LookupError):
    """There is no publication of that name in the database."""

    code = "CM0771"


class ReplicationNotAllowed(ReplicationFailed, PermissionError):
    """The role may not read changes: it lacks REPLICATION."""

    code = "CM0772"

    def __str__(self) -> str:
        return CatalogMigrateError.__str__(self)


class SlotInUse(ReplicationFailed):
    """Another process reads from the slot."""

    code = "CM0773"


class SlotLost(ReplicationFailed):
    """The server threw away the log that the slot needs (``max_slot_wal_keep_size``)."""

    code = "CM0774"


class SlotMissing(ReplicationFailed, LookupError):
    """There is no slot of that name: it was dropped, or a promotion did not bring it along."""

    code = "CM0775"


class SlotAhead(ReplicationFailed):
    """The slot was advanced past the position to read from: what lies between is not to be had."""

    code = "CM0776"


class OtherServer(ReplicationFailed):
    """The position belongs to a server with another system identifier."""

    code = "CM0777"


class OtherTimeline(ReplicationFailed):
    """The server was promoted or restored before the position: its log went another way there."""

    code = "CM0778"


class TableChanged(ReplicationFailed):
    """A table upstream has other columns than expected.

    ``old`` and ``new`` are :class:`~catalog_migrate.replication.types.Column` values.
    """

    code = "CM0779"

    def __init__(
        self, message: str, *, table: str, old: Sequence[Any], new: Sequence[Any],
        remedy: str | None = None, **data: Any,
    ) -> None:
        super().__init__(
            message, remedy=remedy, table=table, old=tuple(old), new=tuple(new), **data
        )
        self.table, self.old, self.new = table, tuple(old), tuple(new)


class UnreadableMessage(ReplicationFailed, ValueError):
    """A message of pgoutput that cannot be decoded, or one of a protocol that is not asked for."""

    code = "CM0780"


_MARKED: tuple[type[CatalogMigrateError], ...] = (
    ConnectionFailed, ReplicationFailed, PublicationMissing, ReplicationNotAllowed, SlotInUse,
    SlotLost, SlotMissing, SlotAhead, OtherServer, OtherTimeline, TableChanged, UnreadableMessage,
)


def marked(error: CatalogMigrateError) -> str:
    """The message of an error, and behind it the error for :func:`parse_failure`, on one line."""
    data = {} if isinstance(error, ConnectionFailed) else msgspec.to_builtins(error.data)
    told = {"code": error.code, "message": error.message, "remedy": error.remedy, "data": data}
    return f"{error.code}: {error.message} {MARK} {json.dumps(told)}"


def parse_failure(text: str) -> CatalogMigrateError | None:
    """The error that a reader marked, from the text of whatever came out of Spark; else None."""
    _, mark, rest = text.rpartition(MARK + " ")
    if not mark:
        return None
    try:
        told, _ = json.JSONDecoder().raw_decode(rest)
        (kind,) = (one for one in _MARKED if one.code == told["code"])
        data = dict(told["data"])
        if kind is TableChanged:
            for name in ("old", "new"):
                data[name] = msgspec.convert(data[name], tuple[Column, ...])
        return kind(told["message"], remedy=told["remedy"], **data)
    except (ValueError, KeyError, TypeError):
        return None
