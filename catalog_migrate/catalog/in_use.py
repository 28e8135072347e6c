"""Whether a catalog may be worked on: not where it was copied from or moved, nor after an export.

Apart from commits, because planning asks as well.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from catalog_migrate.errors import CatalogExported, CatalogMoved

if TYPE_CHECKING:
    from catalog_migrate.catalog.log import CatalogLog
    from catalog_migrate.catalog.state import State

GIVEN_BACK = "given_back"
"""Setting: ``pending`` from the moment that an export begins, ``done`` when it has ended."""


def require_in_use(state: State, log: CatalogLog) -> None:
    """Raise :class:`CatalogMoved` when the catalog was made elsewhere: a copy, or moved.

    A copy with the same lineage would work on the rows of the installation that it was copied
    from. Raises :class:`CatalogExported` after an export. Reading is free.
    """
    if GIVEN_BACK in state.config:
        raise CatalogExported(
            f"the tables of the catalog at {log.uri} were given back as plain registrations",
            remedy="adopt them into a new catalog: catalog-migrate init --adopt; "
            "an export that was cut off is finished by catalog-migrate export",
        )
    require_at_home(state, log)


def require_at_home(state: State, log: CatalogLog) -> None:
    """Raise :class:`CatalogMoved` when the catalog was made elsewhere: a copy, or moved."""
    record = state.config.get("home")
    here = log.home
    if record is None or here is None or record.value == here:
        return
    there = record.value
    if os.path.isdir(there) and os.path.isdir(here) and os.path.samefile(there, here):
        return
    raise CatalogMoved(
        f"the catalog at {here} is at home in {there}: it was moved or copied",
        remedy=f"moved: catalog-migrate relocate --catalog {here}; "
        "a copy beside the original: add --new-lineage",
        home=there, here=here, lineage=state.lineage,
    )
