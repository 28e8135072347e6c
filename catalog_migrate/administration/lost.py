"""Whether a catalog is lost: only then is it made again, from what its shards say."""

from __future__ import annotations

from collections.abc import Iterable
from shlex import quote

from catalog_migrate.catalog.delta_log import DeltaLog
from catalog_migrate.catalog.errors import CatalogCorrupt, CatalogNotFound, NotACatalog
from catalog_migrate.catalog.log import CatalogLog, is_withheld
from catalog_migrate.catalog.marks import Mark, read_mark
from catalog_migrate.catalog.opening import EXPORTED, read_state
from catalog_migrate.catalog.state import State
from catalog_migrate.delta.table import load_table, tables_below
from catalog_migrate.errors import CatalogMigrateError, Problem, Refusal
from catalog_migrate.model.paths import shard_location
from catalog_migrate.store import is_seen
from catalog_migrate.store.address import is_remote, remember, resolved

NOTHING_LOST = "CM0831"
WHOSE = "CM0835"
WITHHELD = "CM0838"


class CatalogLost(CatalogMigrateError, RuntimeError):
    """There is no catalog, but there are shards of the one that was at this very address."""

    code = "CM0804"


class RebuildRefused(Refusal):
    """What is left of an installation leaves a question that only people can answer."""

    code = "CM0830"


def require_lost(log: DeltaLog) -> None:
    """A log that can be read whole is not made again, nor one that may not be read."""
    state = whole(log)
    if state is None:
        return
    raise RebuildRefused(
        f"the catalog at {log.uri} can be read whole, at serial {state.serial}",
        problems=[Problem(
            NOTHING_LOST, "a rebuild would forget its history, ids and streams",
            remedy="use it as it is; names are repaired by catalog-migrate drift --repair",
        )],
        remedy="nothing is lost",
    )


def require_homeless(
    log: DeltaLog, marks: Iterable[Mark | None], lineage: str, *, said: bool
) -> None:
    """Shards whose own catalog still stands are not given a second one of the same lineage.

    Of one on an object store that is not known here: people have to say so, by the lineage.
    """
    homes = {mark.home for mark in marks if mark is not None and mark.lineage == lineage}
    for home in sorted(homes - {"", log.home or ""}):
        if is_remote(home):  # which options its store wants is not known here
            if said:
                continue
            raise RebuildRefused(
                f"these tables are of the catalog at {home}; nothing was written",
                problems=[Problem(
                    WHOSE, "a second catalog would own the same rows while that one stands",
                    remedy=f"use it: --catalog {home}; or, when it is gone for good, say so: "
                    f"--lineage {lineage}",
                )],
                remedy="nothing is lost while that catalog stands",
            )
        state = whole(DeltaLog(home))
        if state is not None and state.lineage == lineage:
            raise RebuildRefused(
                f"the catalog at {home} is whole, at serial {state.serial}, and these tables are "
                "its own; nothing was written",
                problems=[Problem(
                    NOTHING_LOST, "a second catalog would own the same rows",
                    remedy=f"use it: --catalog {home}",
                )],
                remedy="nothing is lost; names are repaired by catalog-migrate drift --repair, "
                "a catalog that is to be elsewhere is moved (docs/administration.md)",
            )


def refuse_lost(log: CatalogLog, warehouse: str) -> None:
    """Raise CatalogLost when shards below ``warehouse`` are of the catalog that ``log`` was.

    For whoever finds no catalog there: its tables would be made anew beside their rows. The rows
    are looked at with the options of the log: no catalog says yet that these are theirs.
    """
    home = log.home
    remember(warehouse, log.storage)
    if home is None or not is_seen(warehouse):
        return
    for path in tables_below(warehouse):
        try:
            mark = read_mark(load_table(path).metadata().configuration)
        except Exception:  # noqa: BLE001, S112 - what cannot be read says nothing
            continue
        if mark is not None and mark.home == home:
            raise CatalogLost(
                f"the catalog at {home} is gone, and {path} is one of its tables",
                remedy="restore the directory from a backup, or make it again from the release that"
                f" was in force: catalog-migrate rebuild --catalog {quote(home)}"
                f" --warehouse {quote(warehouse)} --release RELEASE",
                home=home, path=path,
            )


def still_has(mark: Mark, path: str) -> bool:
    """Whether the catalog that a mark names stands and has the table at ``path`` in force.

    One that does not answer, or may not be read, counts as standing.
    """
    if not mark.home:
        return False
    if is_remote(mark.home):
        return False  # which options its store wants is not known here: people's word counts
    try:
        state = whole(DeltaLog(mark.home))
    except CatalogMigrateError:
        return True
    if state is None or state.lineage != mark.lineage or EXPORTED in state.config:
        return False
    place = state.setting("warehouse")
    return any(
        record.state == "live"
        and resolved(shard_location(place, shard)) == resolved(path)
        for shard, record in state.shards.items()
    )


def whole(log: DeltaLog) -> State | None:
    """The state of a log that can be read whole, None for one that is lost.

    Raises RebuildRefused for one that only may not be read: nothing says that it is lost.
    """
    try:
        return read_state(log)
    except (CatalogNotFound, NotACatalog):
        return None
    except CatalogCorrupt as error:
        if not is_withheld(error.__cause__):
            return None
        raise RebuildRefused(
            f"the catalog at {log.uri} cannot be read, which does not say that it is lost; "
            "nothing was written",
            problems=[Problem(WITHHELD, error.message, remedy=error.remedy)],
            remedy="make it readable, and run again",
        ) from error
