"""The plan of an unsafe operation, as a value and as a file: what a dry run found, item by item."""

from __future__ import annotations

from pathlib import Path

import msgspec

from catalog_migrate.connectors.postgres.types import lsn_text
from catalog_migrate.errors import EditedPlan, UnsupportedFormat
from catalog_migrate.streams.catalog.operation_records import Move, Totals
from catalog_migrate.streams.catalog.query_spec import hide_secrets
from catalog_migrate.streams.positions.requests import Request, split_of

FORMAT = 1
"""Newest form of a plan's file that is written and read."""


class Row(msgspec.Struct, frozen=True, omit_defaults=True):
    """One partition: next records to read before and after, what the broker holds, what it costs.

    ``current`` is None for a partition (or a topic) that was not read yet, ``target`` for one that
    is no longer read; ``low`` and ``high`` are None when it is not there. ``expired`` counts
    records on the way that the broker no longer has. With ``log`` it is one table of a PostgreSQL
    server: ``topic`` is its name, positions are LSNs, and what is counted are changes.
    """

    topic: str
    partition: int
    current: int | None = None
    target: int | None = None
    low: int | None = None
    high: int | None = None
    doubled: int = 0
    skipped: int = 0
    expired: int = 0
    note: str = ""
    log: bool = False

    @property
    def moves(self) -> bool:
        """Whether the position is another one."""
        return self.current != self.target

    @property
    def name(self) -> str:
        """``topic:0``, or the table."""
        return self.topic if self.log else split_of((self.topic, self.partition))

    def format_position(self, position: int | None) -> str:
        """Format a position as people write it, ``-`` for none."""
        if position is None:
            return "-"
        return lsn_text(position) if self.log else str(position)

    @property
    def absent(self) -> int:
        """Of what is passed over, what is not there to be read: expired, or not written yet."""
        if self.current is None or self.target is None or self.target <= self.current:
            return 0
        end = self.target if self.high is None else min(self.high, self.target)
        return min(self.expired, self.target - self.current) + self.target - max(self.current, end)


class Job(msgspec.Struct, frozen=True):
    """Something below an item; ``takes`` is ``append``, ``keyed`` or ``stateful``."""

    kind: str
    name: str
    takes: str


class Refusal(msgspec.Struct, frozen=True):
    """What validation refused, and what to do about it."""

    text: str
    remedy: str = ""


class ItemPlan(msgspec.Struct, frozen=True):
    """One item of a plan; ``topics`` are the ids that were found, ``foreign`` says which are new
    and why, ``findings`` is what validation of its new properties refused, ``definition`` the
    statement that would create it afterwards ("" where it stays), ``restores`` whether its table
    goes back to an earlier version. ``unread`` counts what topics that are no longer read hold
    behind its position; it is left out where there are none, or it is not known. ``stays`` counts
    the rows of a sink that stay in the system that it writes to though they go from its table.
    ``edited`` is there where positions change, ``snapshot`` where a POSTGRES source copies tables
    again: which ones. ``refusals`` are the findings with their remedies apart. A survey
    has ``problems``, for which the choice of positions is refused, ``move``, what is committed, and
    ``initial``, what a checkpoint without any batch is given instead of a line; a plan has none of
    them, for they are found again before the commit."""

    item_id: str
    kind: str
    name: str
    keys: tuple[str, ...] = ()
    rows: tuple[Row, ...] = ()
    totals: Totals = Totals()
    topics: dict[str, str] = {}
    foreign: dict[str, str] = {}
    notes: tuple[str, ...] = ()
    jobs: tuple[Job, ...] = ()
    findings: tuple[str, ...] = ()
    definition: str = ""
    restores: bool = False
    unread: int | msgspec.UnsetType = msgspec.UNSET
    stays: int | msgspec.UnsetType = msgspec.UNSET
    edited: bool | msgspec.UnsetType = msgspec.UNSET
    snapshot: tuple[str, ...] | msgspec.UnsetType = msgspec.UNSET
    refusals: tuple[Refusal, ...] | msgspec.UnsetType = msgspec.UNSET
    problems: tuple[str, ...] | msgspec.UnsetType = msgspec.UNSET
    initial: bytes | msgspec.UnsetType = msgspec.UNSET
    move: Move | msgspec.UnsetType = msgspec.UNSET

    @property
    def moves(self) -> bool:
        """Whether any position is another one."""
        return any(row.moves for row in self.rows)

    @property
    def recorded(self) -> Move:
        """What is committed of it, by a survey."""
        assert self.move is not msgspec.UNSET
        return self.move


class UnsafePlan(msgspec.Struct, frozen=True):
    """A dry run as a file holds it: bound to lineage, generations, definitions and topic ids."""

    lineage: str
    at: str
    reason: str
    cluster: str
    request: Request
    items: tuple[ItemPlan, ...]
    totals: Totals
    format: int = FORMAT

    @property
    def changes(self) -> bool:
        """Whether it would change anything at all."""
        return any(part.redefines for part in self.request.parts) or any(
            item.restores or item.foreign or item.snapshot
            or item.moves
            or (part.chooses and not item.rows)
            for item, part in zip(self.items, self.request.parts, strict=True)
        )

    @property
    def edited(self) -> tuple[str, ...]:
        """The items whose positions change."""
        return tuple(item.item_id for item in self.items if item.edited is True)

    @property
    def refused(self) -> bool:
        """Whether validation refuses the new properties of an item."""
        return any(item.findings for item in self.items)


_ABSENT = msgspec.Raw(b"null")

# -- plans as files ------------------------------------------------------------------------------


def encode_plan(plan: UnsafePlan) -> bytes:
    """Encode a plan as its file: itself and its hash; a secret in plain text is ``***``."""
    shown = _hide_secrets(plan)
    return msgspec.json.format(
        msgspec.json.encode({"plan": shown, "hash": _hash(shown)}), indent=1
    ) + b"\n"


def _hide_secrets(plan: UnsafePlan) -> UnsafePlan:
    parts = tuple(
        msgspec.structs.replace(
            part, before=hide_secrets(part.before), after=hide_secrets(part.after)
        )
        for part in plan.request.parts
    )
    return msgspec.structs.replace(
        plan, request=msgspec.structs.replace(plan.request, parts=parts)
    )


def decode_plan(data: bytes, where: str) -> UnsafePlan:
    """Read a plan's file; :class:`EditedPlan`, :class:`UnsupportedFormat`."""
    try:
        sealed = msgspec.json.decode(data, type=dict[str, msgspec.Raw])
        plan = msgspec.json.decode(sealed.get("plan", _ABSENT), type=UnsafePlan)
        written = msgspec.json.decode(sealed.get("hash", _ABSENT), type=str)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise EditedPlan(
            f"{where} is no plan of an unsafe operation: {error}", remedy="make one with --out"
        ) from error
    if plan.format > FORMAT:
        raise UnsupportedFormat(
            f"{where} is of format {plan.format}, known is {FORMAT}",
            remedy="use the newer version of this tool that wrote it",
        )
    if written != _hash(plan):
        raise EditedPlan(
            f"{where} was edited after it was made", remedy="plan again, and approve that"
        )
    if plan != _hide_secrets(plan):
        raise EditedPlan(
            f"{where} was made by an older version and has a secret as plain text in it",
            remedy="remove the file and plan again; `doctor` says what else there is to do",
        )
    return plan


def read_plan(path: str) -> UnsafePlan:
    """Read the plan in a file."""
    return decode_plan(Path(path).read_bytes(), path)


def _hash(plan: UnsafePlan) -> str:
    import xxhash

    return "1:" + xxhash.xxh3_128_hexdigest(msgspec.json.encode(plan, order="deterministic"))
