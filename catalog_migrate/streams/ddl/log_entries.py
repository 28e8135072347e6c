"""What the log of a cluster has of one source or sink, read without Spark."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING

from catalog_migrate.catalog.state import State
from catalog_migrate.delta.log import has_log
from catalog_migrate.delta.table import load_table
from catalog_migrate.engine_failures import failing
from catalog_migrate.errors import UsageError
from catalog_migrate.streams.catalog.cluster_log import LOG_COLUMNS, log_path
from catalog_migrate.streams.catalog.rows import Rows

if TYPE_CHECKING:
    from deltalake import DeltaTable

LIMIT = 100
"""Rows that are read where nothing else is asked for."""

_MOST = 2**31
_WINDOWS = (timedelta(hours=1), timedelta(days=1))
"""How far back the newest rows are looked for first: by their times, the files of a log that has
grown for months are passed over."""

_SAME = ("item_id", "name", "kind")
"""Columns that say the same in each row of a query."""

_UNITS = {"s": "seconds", "m": "minutes", "min": "minutes", "h": "hours", "d": "days"}
_AGO = re.compile(r"(\d{1,9})\s*(s|m|min|h|d)\Z")


def log_entries(
    state: State, item_id: str, *, since: datetime | None = None, limit: int | None = None
) -> Rows:
    """The newest ``limit`` rows of a query, none older than ``since``; the newest comes last.

    Raises :class:`~catalog_migrate.errors.EngineFailure` where the log cannot be read.
    """
    path = log_path(state, state.items[item_id].links["cluster"])
    columns = [column.name for column in LOG_COLUMNS if column.name not in _SAME]
    if not has_log(path):
        return Rows(tuple(columns), ())
    limit = min(LIMIT if limit is None else limit, _MOST)
    now = datetime.now(timezone.utc)
    found: list[tuple[object, ...]] = []
    with failing(f"read the log of the cluster at {path}"):
        table = load_table(path)
        there = {field.name for field in table.schema().fields}  # an older one lacks what is new
        columns = [name for name in columns if name in there]
        for start in (*(now - window for window in _WINDOWS if since is None), since):
            found = _newest(table, columns, item_id, start, limit)
            if len(found) >= limit:
                break
    return Rows(tuple(columns), tuple(reversed(found)))


def _newest(
    table: DeltaTable, columns: Sequence[str], item_id: str, start: datetime | None, limit: int
) -> list[tuple[object, ...]]:
    """The rows of a query from a moment on, newest first."""
    from deltalake import QueryBuilder

    shown = ", ".join("cast(at AS varchar) AS moment" if each == "at" else each for each in columns)
    after = "" if start is None else (
        f" AND at >= arrow_cast('{start.astimezone(timezone.utc):%Y-%m-%dT%H:%M:%S.%fZ}',"
        " 'Timestamp(Microsecond, Some(\"UTC\"))')"
    )
    rows = QueryBuilder().register("log", table).execute(
        f"SELECT {shown} FROM log WHERE item_id = '{item_id}'{after}"
        f" ORDER BY at DESC LIMIT {limit}"
    ).read_all()
    return list(zip(*(rows.column(at).to_pylist() for at in range(len(columns))), strict=True))


def moment_of(text: str, now: datetime) -> datetime:
    """The moment that ``1h``, ``30m``, ``2d`` or a time (ISO 8601, UTC unless it says) stands for.

    UsageError for anything else.
    """
    ago = _AGO.match(text.strip().lower())
    try:
        if ago is not None:
            return now - timedelta(**{_UNITS[ago[2]]: int(ago[1])})
        found = datetime.fromisoformat(re.sub(r"[zZ]\Z", "+00:00", text.strip()))
    except (ValueError, OverflowError):
        raise UsageError(
            f"{text!r} is no time", remedy="write how long ago (30s, 45m, 1h, 2d), or a time such"
            " as 2026-01-31T02:15:00Z",
        ) from None
    return found if found.tzinfo is not None else found.replace(tzinfo=timezone.utc)
