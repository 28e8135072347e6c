"""Why a query failed, as a record from the error to the terminal, and when it becomes a hold.

What an error knows of itself goes with it: its stable code, where it was met, what to do in words,
and the statements that do it. Statements are data: an error carries them as ``statements``, with
:data:`SOURCE` in place of the name of the source (or sink) that it does not know.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from catalog_migrate.catalog.records import HoldRecord
from catalog_migrate.connectors.postgres.types import lsn_text
from catalog_migrate.errors import (
    CatalogMigrateError,
    CatalogWriteRefused,
    ConnectionFailed,
    EngineFailure,
    LeaseLost,
    StoreFailure,
    UnresolvedSecret,
)
from catalog_migrate.sql.statements import QueryKind
from catalog_migrate.sql.tokens import string_literal
from catalog_migrate.streams.catalog.queries import CAUSED_BY, QueryFailure

SOURCE = "{source}"
"""In the statements of an error, in place of the name of the source or sink."""

HOLD_AFTER = 8
"""Failures of the same cause in a row after which a query is held: a minute with the pauses."""

PLACES = ("topic", "partition", "offset", "table", "column", "lsn", "slot", "key")
"""What may say where a failure was met, in the order in which it is shown; ``key`` is a hash."""

_PASSING = (ConnectionFailed, UnresolvedSecret, CatalogWriteRefused, StoreFailure, LeaseLost)
"""What ends by itself, or with a connection, store or secret that is put right: never a hold."""

_UNREADABLE = re.compile(
    r"cannot read the record at topic ([\w.-]+), partition (\d+), offset (\d+):"
)
_KEY = re.compile(r"\(key sha256 ([0-9a-f]+)\)")
_LOST = ("KAFKA_DATA_LOSS", "Some data may have been lost because they are not available in Kafka")
"""What Spark's planner, and what its readers, report of records that are no longer there."""

_VARYING = re.compile(
    r"'[^']*'|\"[^\"]*\"|(?i:request id): [^\s,;)]+"
    r"|[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}"
    r"|\b(?=[A-Za-z]*\d)(?=\d*[A-Za-z])[0-9A-Za-z]{12,}\b|\d+"
)
"""Values, ids of requests, uuids, words that mix letters and digits, numbers."""

CAUSES = 32
"""Causes of one query that are counted at once, those that were met last."""


class Failure(msgspec.Struct, frozen=True, omit_defaults=True):
    """Why a query failed, or must not run.

    ``code`` is stable: ours, or Spark's error class. ``message`` is the chain of causes, outermost
    first; ``remedy`` what to do, in words; ``statements`` do it. ``place`` says where, by
    :data:`PLACES`. ``tries`` failed of the same cause in a row; ``passing`` is what may end by
    itself, as a connection that is down does.
    """

    code: str
    message: str
    remedy: str = ""
    statements: tuple[str, ...] = ()
    place: dict[str, str] = {}
    tries: int = 1
    passing: bool = False

    @property
    def cause(self) -> str:
        """What two failures of one cause have in common, whatever record or value it was."""
        innermost = self.message.rsplit(CAUSED_BY, 1)[-1]
        return f"{self.code} {_VARYING.sub('…', innermost)}"

    def to_hold(self, item_id: str, holder: str, since: str) -> HoldRecord:
        """Make the hold of this failure."""
        return HoldRecord(
            item_id, holder, self.message, since, code=self.code, remedy=self.remedy,
            statements=self.statements, place=self.place, tries=self.tries,
        )


def of_error(error: CatalogMigrateError, name: str) -> Failure:
    """Return what an error of ours says of the source or sink called ``name``."""
    condition = error.condition if isinstance(error, EngineFailure) else None
    return Failure(
        code=condition or error.code, message=error.message,
        remedy=insert_name(error.remedy or "", name),
        statements=tuple(insert_name(each, name) for each in error.data.get("statements", ())),
        place=place_of(error.data), passing=is_passing(error),
    )


def of_query(found: QueryFailure, kind: QueryKind, name: str) -> Failure:
    """Return what a query that ended says of itself."""
    message = CAUSED_BY.join(found.causes)
    place, remedy, statements = dict(found.place), found.remedy, found.statements
    unread = _UNREADABLE.search(message)
    if kind == "source" and unread is not None:
        topic, partition, offset = unread[1], unread[2], int(unread[3])
        place = {"topic": topic, "partition": partition, "offset": str(offset), **place}
        key = _KEY.search(message, unread.end())
        if key is not None:
            place["key"] = key[1]
        statements = (_past(topic, partition, offset),)
        remedy = "pass the record over, or create the source with ON ERROR INTO, which keeps it"
    elif kind == "source" and not statements and is_lost(message):
        statements, remedy = PARTITIONS if "PARTITIONS_DELETED" in message else EXPIRED
    if found.error is not None:
        own = of_error(found.error, name)
        place = {**own.place, **place}
        remedy, statements = remedy or own.remedy, statements or own.statements
    return Failure(
        code=found.condition, message=message, remedy=insert_name(remedy, name),
        statements=tuple(insert_name(each, name) for each in statements),
        place=place, passing=found.passing or (found.error is not None and is_passing(found.error)),
    )


def insert_name(text: str, name: str) -> str:
    """Put the name of the source or sink into a remedy or a statement."""
    return text.replace(SOURCE, name)


def of_hold(hold: HoldRecord) -> Failure:
    """Return what a hold was set for."""
    return Failure(
        code=hold.code, message=hold.reason, remedy=hold.remedy, statements=hold.statements,
        place=hold.place, tries=hold.tries,
    )


def is_passing(error: CatalogMigrateError) -> bool:
    """Return whether a failure may end by itself."""
    return isinstance(error, _PASSING) or bool(error.data.get("transient"))


def is_lost(message: str) -> bool:
    """Return whether a failure says that records are no longer there."""
    return any(mark in message for mark in _LOST)


def place_of(data: Mapping[str, Any]) -> dict[str, str]:
    """Where an error was met, of what it carries."""
    found = {name: data[name] for name in PLACES if data.get(name) not in (None, "")}
    return {
        name: lsn_text(value) if name == "lsn" and isinstance(value, int) else str(value)
        for name, value in found.items()
    }


def describe_place(place: Mapping[str, str]) -> list[str]:
    """Say where in words: ``topic t``, ``offset 5``."""
    words = {"lsn": "LSN", "key": "key sha256"}
    return [f"{words.get(name, name)} {place[name]}" for name in PLACES if name in place]


def _past(topic: str, partition: str, offset: int) -> str:
    where = string_literal(f"{topic}:{partition}")
    return (
        f"ALTER SOURCE {SOURCE} UNSAFE INJECT OFFSETS ({where} = {offset + 1}) REASON 'record"
        f" {offset} cannot be read'"
    )


EXPIRED: tuple[tuple[str, ...], str] = (
    (f"ALTER SOURCE {SOURCE} UNSAFE INJECT OFFSETS (TO committed) WITH (POLICY = clamp)"
     " REASON 'records have expired'",),
    "go on with the oldest record that is there; what expired is lost to this source",
)
"""Statements and remedy where the broker has removed what a position points at."""


PARTITIONS: tuple[tuple[str, ...], str] = (
    (f"ALTER SOURCE {SOURCE} UNSAFE RESET SPLITS REASON 'partitions are missing'",),
    "read the partitions that are there from their beginning",
)
"""The same where partitions are missing."""

NEW_TOPIC = (
    f"ALTER SOURCE {SOURCE} UNSAFE RESET SPLITS WITH (ACCEPT NEW TOPIC = true)"
    " REASON 'the upstream changed'",
)
"""Statements where a topic, or a cluster, is another one and is to be read from the beginning."""


def count_try(failure: Failure, causes: dict[str, int]) -> Failure:
    """Add one to the tries of its cause in ``causes``, which counts those since the last success;
    return the failure with that number."""
    cause = failure.cause
    causes[cause] = tries = causes.pop(cause, 0) + 1
    while len(causes) > CAUSES:
        del causes[next(iter(causes))]
    return msgspec.structs.replace(failure, tries=tries)


def describe_expired(
    lost: Iterable[tuple[str, int, int, int, int]], name: str
) -> Failure | None:
    """Make the failure of a source whose position the broker has nothing at; None where it has.

    ``lost`` are (topic, partition, position, oldest, one past the newest).
    """
    expired: list[str] = []
    first: dict[str, str] = {}
    for topic, partition, position, oldest, end in lost:
        there = (
            f"the broker's oldest record is {oldest}" if position < oldest
            else f"the broker's log ends at {end}"
        )
        expired.append(f"topic {topic}, partition {partition}: the position is {position}, {there}")
        first = first or {
            "topic": topic, "partition": str(partition), "offset": str(position),
        }
    if not expired:
        return None
    statements, remedy = EXPIRED
    return Failure(
        code="CM0752", message=f"records that source {name} was to read next are no longer there: "
        + "; ".join(expired), remedy=remedy, place=first,
        statements=tuple(insert_name(each, name) for each in statements),
    )
