"""A PostgreSQL server in memory: where it answers, its timelines, its slots, one table.

Its one table has a row for each transaction, numbered as they were committed: number ``n`` stands
at the LSN ``STEP * (n + 1)`` of the log.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from catalog_migrate.connectors.postgres.survey import Survey, SurveyedTable, Watch
from catalog_migrate.connectors.postgres.types import DiscoveredColumn, DiscoveredTable, Position
from catalog_migrate.errors import ConnectionFailed, OtherTimeline
from catalog_migrate.model.findings import Finding

STEP = 1_000
TABLE = "public.g"
SYSTEM = "7000"


@dataclass(slots=True)
class Server:
    """A server: how many transactions it has, from which of them on a column is there, and up to
    where each of its slots was confirmed; a slot that is made leaves one of the ``records`` behind
    the last of them.

    ``hosts`` says where it answers, ``left`` where its present timeline began.
    """

    rows: int = 3
    columns: dict[str, int] = field(default_factory=lambda: {"id": 0})
    slots: dict[str, int] = field(default_factory=dict)
    hosts: set[str] = field(default_factory=lambda: {"db1", "db3"})
    timeline: int = 1
    left: int = 0
    records: int = 1

    @property
    def end(self) -> int:
        """Behind the newest transaction."""
        return STEP * self.rows + self.records

    @property
    def here(self) -> Position:
        """The end of its log."""
        return Position(self.end, self.timeline, SYSTEM)

    def promote(self) -> None:
        """A standby takes over, under another address; it has every slot."""
        self.hosts = {"db2"}
        self.timeline += 1
        self.left = self.end

    def at(self, connection: Mapping[str, Any], subject: str) -> Server:
        """Itself, where it answers; else ConnectionFailed."""
        if str(connection["HOST"]) not in self.hosts:
            finding = Finding(subject, "HOST", "error", "nothing answers", "another host")
            raise ConnectionFailed(
                f"{subject}: nothing answers", findings=(finding,), remedy="another host"
            )
        return self

    def present(self, position: Position) -> Position:
        """A position on its present timeline."""
        if position.timeline > self.timeline or (
            position.timeline < self.timeline and position.lsn > self.left
        ):
            raise OtherTimeline(f"{position} is not on timeline {self.timeline}")
        return msgspec.structs.replace(position, timeline=self.timeline)

    def between(self, start: int, end: int) -> range:
        """The numbers of the transactions with ``start`` <= commit < ``end``."""
        return range(max(0, -(-start // STEP) - 1), max(0, -(-end // STEP) - 1))

    def columns_at(self, number: int) -> list[str]:
        """The columns that a transaction's row has."""
        return [name for name, first in self.columns.items() if first <= number]

    # what a port asks of its tables -------------------------------------------------------------
    def discover(
        self, names: Sequence[str], publication: str, subject: str
    ) -> tuple[DiscoveredTable, ...]:
        """The one table, as it is now."""
        del names, publication, subject
        return (DiscoveredTable("public", "g", tuple(
            DiscoveredColumn(name, "bigint", 20, -1, "BIGINT", name == "id", "")
            for name in self.columns
        ), ("id",), "default"),)  # fmt: skip

    def preflight(
        self, names: Sequence[str], publication: str, subject: str, *, new: bool
    ) -> tuple[Finding, ...]:
        """Nothing keeps its changes from being read."""
        del names, publication, new
        return (Finding(subject, None, "ok", "fine"),)

    def look(self, watch: Watch, position: Position | None) -> Survey:
        """The one table, which no DDL but ADD COLUMN is played on: nothing is ever missing."""
        del position
        return Survey("0", watch.publication, (SurveyedTable(TABLE, 1, 1),))

    def recorded(self, watch: Watch) -> Survey:
        """What is there of it."""
        return self.look(watch, None)

    def staged(self, table: DiscoveredTable) -> Sequence[Any]:
        """What a snapshot copies."""
        del table
        return list(range(self.rows))

    def counted(self, start: int, end: int) -> dict[str, int]:
        """Changes between two places of the log."""
        return {TABLE: len(self.between(start, end))}
