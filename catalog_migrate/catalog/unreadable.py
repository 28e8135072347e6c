"""Files of a catalog that cannot be read: whether they are lost, and what is to be done."""

from __future__ import annotations

from catalog_migrate.catalog.process import this_user
from catalog_migrate.errors import CatalogCorrupt
from catalog_migrate.store.address import plainly

_RESTORE = (
    "restore this file from a backup, or the whole catalog directory; nothing was written"
)
_NOT_ALLOWED = (
    "permission denied", "operation not permitted", "os error 13)", "os error 1)",
)
_FAILING = ("input/output error", "os error 5)")


def damaged(place: str, what: str, cause: Exception | None = None) -> CatalogCorrupt:
    """The error for a file of the catalog's log that is missing or not as commits are."""
    return CatalogCorrupt(
        f"the file {place} of the catalog's log {what}",
        remedy=remedy_unreadable(cause, _RESTORE), file=place,
    )


def is_withheld(error: BaseException | None) -> bool:
    """Whether the cause of a failed read is the system's, and says nothing of the log itself.

    A file of another user, a directory without its mode bits, a mount that does not answer: the
    log may be whole. Only what is not there, or holds something else, is lost.
    """
    if isinstance(error, FileNotFoundError | NotADirectoryError):
        return False
    if isinstance(error, OSError) and error.errno is not None:
        return True
    return error is not None and any(
        each in plainly(error).lower() for each in (*_NOT_ALLOWED, *_FAILING)
    )


def remedy_unreadable(error: BaseException | None, otherwise: str) -> str:
    """What to do about a file of the catalog that cannot be read because of ``error``.

    A backup put over a log that merely may not be read would forget what was committed since.
    """
    if not is_withheld(error):
        return otherwise
    if isinstance(error, PermissionError) or any(
        each in plainly(error or OSError()).lower() for each in _NOT_ALLOWED
    ):
        return (
            f"make it readable for this user ({this_user()}): the log may well be whole, do not "
            "restore or rebuild it; nothing was written"
        )
    return (
        "see that its disk or mount answers and try again: the log may well be whole; only if the "
        "file is lost restore it from a backup; nothing was written"
    )
