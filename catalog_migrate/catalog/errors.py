"""What reading and writing the durable catalog can raise."""

from __future__ import annotations

from typing import ClassVar

from catalog_migrate.errors import CatalogMigrateError


class CatalogNotFound(CatalogMigrateError, FileNotFoundError):
    """No catalog at the address given."""

    code = "CM0200"


class NotACatalog(CatalogMigrateError, ValueError):
    """Something else lies at the catalog's address."""

    code = "CM0201"


class CatalogCorrupt(CatalogMigrateError, RuntimeError):
    """The durable log cannot be read whole, or its records contradict each other."""

    code = "CM0202"


class UnknownSerial(CatalogMigrateError, LookupError):
    """A serial that the catalog never had."""

    code = "CM0205"


class CatalogMoved(CatalogMigrateError, RuntimeError):
    """The catalog is not where it is at home: it was moved, or it is a copy of another."""

    code = "CM0801"


class CatalogExported(CatalogMigrateError, RuntimeError):
    """The catalog's tables were exported as plain registrations; it is not used any more."""

    code = "CM0802"


class CommitConflict(CatalogMigrateError, RuntimeError):
    """Another writer changed what this commit was computed from (SQLSTATE 40001)."""

    code = "CM0210"
    sqlstate: ClassVar[str] = "40001"

    def __str__(self) -> str:
        head = f"{self.code}: "
        return super().__str__().replace(head, f"{self.code} (SQLSTATE {self.sqlstate}): ", 1)


class CommitOutcomeUnknown(CatalogMigrateError, RuntimeError):
    """A commit neither found in the log nor surely refused."""

    code = "CM0211"


class CheckFailed(CatalogMigrateError, RuntimeError):
    """A commit would break an invariant of the catalog; nothing was written."""

    code = "CM0212"


class LeaseHeld(CatalogMigrateError, RuntimeError):
    """A living process holds the lease; holder, host, process and since when are in ``data``."""

    code = "CM0220"
    exit_code = 5


class LeaseLost(CatalogMigrateError, RuntimeError):
    """The lease was taken over: this process' epoch is older than the catalog's."""

    code = "CM0221"
    exit_code = 5


class LeaseExpired(LeaseLost):
    """The lease was renewed too long ago to act under it; whether another process has it is not
    known. Renewing it decides that: it is taken again, or lost."""


class UnknownSession(CatalogMigrateError, KeyError):
    """A session was named that the catalog has no row of."""

    code = "CM0610"

    def __str__(self) -> str:
        return CatalogMigrateError.__str__(self)
