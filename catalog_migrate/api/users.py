"""Users' views and functions that read ours, looked at again on a Spark session."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from catalog_migrate.api.configured import (
    OnNote,
    engine_on,
    has_lasting_names,
    make_options,
    open_catalog,
    open_spark,
    unheard,
)
from catalog_migrate.errors import CatalogMigrateError

if TYPE_CHECKING:
    from catalog_migrate.catalog.records import UserObjectRecord
    from catalog_migrate.config import Settings

_NO_NAMES = (
    "no names outlive the session here (spark.metastore is not set), those of users neither: each"
    " start looks at those of its own session"
)


class UserObjects(msgspec.Struct, frozen=True):
    """All users' objects that read ours, and what could not be looked at, in words."""

    records: tuple[UserObjectRecord, ...] = ()
    failures: tuple[str, ...] = ()


def look_at_users(settings: Settings, *, on_note: OnNote = unheard) -> UserObjects:
    """Bind every user's object that reads ours as it is now, and put on record what is found.

    Changes no object. Where the catalog cannot be written the record stays as it was.
    """
    from catalog_migrate.catalog.clock import SystemClock
    from catalog_migrate.users.examination import describe_unknown, find
    from catalog_migrate.users.records import bind_again, record_look

    catalog = open_catalog(settings, write=True)
    if not has_lasting_names(settings):
        on_note(_NO_NAMES)
        return UserObjects()
    with open_spark(settings, on_note) as spark:
        engine = engine_on(spark, settings)
        if not engine.persistent_names:
            on_note(_NO_NAMES)
            return UserObjects()
        state = catalog.state()
        found = find(engine, state, make_options(settings).users)
        looked = bind_again(engine, state, found, now=SystemClock().wall())
    try:
        record_look(catalog.log, looked)
    except CatalogMigrateError as error:
        on_note(f"what was found is not on record: {error.message}")
    rows = tuple(row for _, row in sorted(looked.rows.items()))
    return UserObjects(rows, (*describe_unknown(found.entries), *looked.failures))
