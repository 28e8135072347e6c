"""What is on record of the tables that a POSTGRES source depends on, and what becomes of that.

A survey is recorded before the first rows are copied, compared at each start and with each batch,
and replaced by a newer one that lacks nothing. A hold keeps the survey that it was set for: once an
operator resumes the source, that is the one on record, without its fingerprint: the next start sees
to it that changes can be read now. A table of which a new snapshot is taken has none until then.
"""

from __future__ import annotations

from collections.abc import Collection

import msgspec

from catalog_migrate.catalog.records import StreamRecord
from catalog_migrate.connectors.postgres.positions import PostgresCodec
from catalog_migrate.connectors.postgres.survey import Survey, Watch, names_of, survey_from
from catalog_migrate.connectors.postgres.types import Position
from catalog_migrate.connectors.query import QuerySpec
from catalog_migrate.streams.catalog.upstream_tables import is_mirror
from catalog_migrate.streams.checkpoint.directory import Checkpoint


def watch_of(spec: QuerySpec) -> Watch:
    """Return what of a POSTGRES source is looked at, beside what is on record of it."""
    return Watch(
        spec.slot, spec.publication,
        names_of([table.upstream.postgres_name for table in spec.tables]),
        {
            table.upstream.full_name: tuple(each.name for each in table.upstream.columns)
            for table in spec.tables
        },
        spec.survey or Survey(), "MIRROR" if is_mirror(spec.external) else "CHANGES",
    )


def read_planned(checkpoint: Checkpoint) -> Position | None:
    """Read the position that the newest batch of a POSTGRES source ends at; None before the first.
    """
    return PostgresCodec().read(checkpoint.planned_line)


def with_survey(stream: StreamRecord, found: Survey) -> StreamRecord:
    """Return the record with a newer survey that lacks nothing."""
    recorded = survey_from(stream.survey) or Survey()
    return msgspec.structs.replace(
        stream, survey=found.with_missing(recorded).json(), survey_at_hold=""
    )


def with_hold(stream: StreamRecord, found: Survey | None) -> StreamRecord:
    """The record with the survey that a hold is set for; None where the server did not give it.

    Of a table or a column that is missing the one before stays: under its name another may come.
    """
    recorded = survey_from(stream.survey) or Survey()
    if found is None:
        return msgspec.structs.replace(stream, survey_at_hold=Survey().json())
    there = {each.name for each in found.tables}
    missing = tuple(each for each in recorded.tables if each.name not in there)
    kept = found.with_missing(recorded)
    seen = msgspec.structs.replace(kept, fingerprint="", tables=(*kept.tables, *missing))
    return msgspec.structs.replace(stream, survey_at_hold=seen.json())


def accept_hold(stream: StreamRecord) -> StreamRecord:
    """Take the survey that a hold was set for as the one on record: an operator resumes it."""
    if not stream.survey_at_hold:
        return stream
    return msgspec.structs.replace(stream, survey=stream.survey_at_hold, survey_at_hold="")


def copy_again(stream: StreamRecord, tables: Collection[str]) -> StreamRecord:
    """Ask for a new snapshot of ``tables`` (``schema.table``; none: of all), under the next number.
    """
    recorded = survey_from(stream.survey)
    kept = "" if recorded is None or not tables else recorded.without(tables).json()
    return msgspec.structs.replace(
        stream, survey=kept, survey_at_hold="", snapshot=stream.snapshot + 1,
        snapshot_tables=tuple(tables),
    )
