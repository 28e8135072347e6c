"""What must hold in the newest state for a commit to be made, as values."""

from __future__ import annotations

from typing import Protocol

import msgspec

from catalog_migrate.catalog.state import State
from catalog_migrate.errors import CommitConflict, LeaseLost


class Requirement(Protocol):
    """What must hold; a value."""

    def check(self, state: State) -> None:
        """Raise what is wrong with ``state``, the newest."""
        ...


class Epoch(msgspec.Struct, frozen=True):
    """The lease still has this epoch and a holder; a commit's metadata says which."""

    lease: str
    epoch: int

    def check(self, state: State) -> None:
        """Raise :class:`LeaseLost` when it was taken over."""
        lease = state.leases.get(self.lease)
        if lease is not None and lease.epoch == self.epoch and lease.holder:
            return
        now = "is gone" if lease is None else (
            f"is at epoch {lease.epoch}" + (f", held by {lease.holder!r}" if lease.holder else "")
        )
        raise LeaseLost(
            f"the lease {self.lease!r} of epoch {self.epoch} was taken over: it {now}",
            remedy="run again; the present holder's work is finished or taken up",
            epoch=self.epoch, current=lease.epoch if lease else None,
            holder=lease.holder if lease else None,
        )


class SerialIs(msgspec.Struct, frozen=True):
    """The catalog is at the serial that the commit was made for.

    ``said`` and ``remedy`` are the words of the error.
    """

    serial: int
    said: str = ""
    remedy: str = "plan again"

    def check(self, state: State) -> None:
        """Raise :class:`CommitConflict` when it moved on."""
        if state.serial != self.serial:
            raise CommitConflict(
                self.said or f"the catalog moved from serial {self.serial} to {state.serial}",
                remedy=self.remedy,
            )
