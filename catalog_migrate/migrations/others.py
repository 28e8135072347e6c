"""What others hold: whose a name in the way is, in words, as far as its marks say."""

from __future__ import annotations

from catalog_migrate.catalog.marks import LINEAGE, mark_at
from catalog_migrate.delta.log import has_log
from catalog_migrate.engine.port import Registration
from catalog_migrate.store.address import is_remote, is_same_bucket


def find_installation(registration: Registration, warehouse: str) -> str:
    """The installation that made a registration that is not ours; empty where no mark says one.

    A table's mark is in its log, which is read where it can be reached from our ``warehouse``.
    """
    lineage, home = registration.properties.get(LINEAGE, ""), ""
    location = registration.location
    if location is not None and (not is_remote(location) or is_same_bucket(location, warehouse)):
        try:
            mark = mark_at(location) if has_log(location) else None
        except Exception:  # noqa: BLE001 - a log that cannot be read says nothing
            mark = None
        if mark is not None:
            lineage, home = mark.lineage, mark.home
    if not lineage:
        return ""
    return f"catalog id {lineage}" + (f", at {home}" if home else "")


def describe_holder(registration: Registration, installation: str) -> str:
    """Return what stands under a name, whose it is and where, in words."""
    whose = f"of another installation ({installation})" if installation else "that is not ours"
    where = registration.location or ("" if installation else "with another definition")
    return f"a {registration.kind} {whose}" + (f": {where}" if where else "")
