"""Executes the operations of one cluster, each kind by its own class.

What executes a kind is named by import string: unsafe operations stand on the runtime's supervisor,
and are loaded when there is one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pkgutil import resolve_name

from catalog_migrate.catalog.records import OperationRecord
from catalog_migrate.catalog.state import State
from catalog_migrate.operations.kinds import ALTER, UNSAFE
from catalog_migrate.streams.runtime.operations import OperationRun, pending
from catalog_migrate.streams.runtime.supervisor import Supervisor

RUNS: Mapping[str, str] = {
    ALTER: "catalog_migrate.streams.runtime.alter_operation:AlterOperation",
    UNSAFE: "catalog_migrate.streams.positions.operation:UnsafeOperation",
}
"""What executes an operation of each kind."""

BACKFILLS = "catalog_migrate.streams.positions.backfill:Backfills"
"""What reads skipped records beside the queries, and counts what unsafe operations did."""


@dataclass(slots=True)
class Runner:
    """Carries out the operations of one cluster with its supervisor's queries.

    ``follow`` gives the newest state, ``alive`` raises once the lease is lost, ``say`` hears what
    becomes of each operation, by its key.
    """

    supervisor: Supervisor
    follow: Callable[[], State]
    alive: Callable[[], None]
    say: Callable[[str], None] = lambda _: None

    def pending(self, state: State) -> list[tuple[str, OperationRecord]]:
        """Open operations of this cluster, oldest first."""
        return pending(state, self.supervisor.cluster)

    def carry_out(self, key: str, *, inherited: bool = False) -> None:
        """Take one operation to its end. ``inherited``: another process had begun it."""
        run: type[OperationRun] = resolve_name(RUNS[self.follow().operations[key].kind])
        run(self.supervisor, self.follow, self.alive, self.say, key, inherited).run()
