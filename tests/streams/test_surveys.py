"""What is on record of the tables that a source depends on, over holds and new snapshots."""

from __future__ import annotations

import msgspec

from catalog_migrate.catalog.records import StreamRecord
from catalog_migrate.connectors.postgres.survey import (
    Survey,
    SurveyedColumn,
    SurveyedTable,
    survey_from,
)
from catalog_migrate.streams.catalog import surveys

A, B = SurveyedTable("public.a", 1, 10), SurveyedTable("public.b", 2, 10)
FIRST = Survey("f1", "p", (A, B))
NEW = StreamRecord("c")
RECORDED = surveys.with_survey(NEW, FIRST)


def test_recorded() -> None:
    """As it was found; a record of an earlier version has none, and says nothing of it."""
    assert survey_from(RECORDED.survey) == FIRST
    assert survey_from(NEW.survey) is None
    assert msgspec.json.encode(NEW) == b'{"checkpoint":"c"}'


def test_resumed_from_a_hold() -> None:
    """What was seen at the hold counts, once more to be found well; of a table that is missing then
    the one before. A newer survey that lacks nothing ends that."""
    other = SurveyedTable("public.a", 9, 20)
    held = surveys.with_hold(RECORDED, Survey("f2", "p", (other,)))
    assert held.survey == RECORDED.survey
    resumed = surveys.accept_hold(held)
    assert survey_from(resumed.survey) == Survey("", "p", (other, B))
    assert surveys.accept_hold(resumed) == resumed
    assert surveys.with_survey(held, FIRST) == RECORDED


def test_resumed_from_a_server_that_did_not_answer() -> None:
    """Whatever is there at the next start is recorded then."""
    resumed = surveys.accept_hold(surveys.with_hold(RECORDED, None))
    assert survey_from(resumed.survey) == Survey()


def test_a_new_snapshot() -> None:
    """Of all tables, or of those that it takes, nothing is on record until the next start."""
    held = surveys.with_hold(RECORDED, FIRST)
    assert surveys.copy_again(held, ()) == StreamRecord("c", snapshot=2)
    some = surveys.copy_again(held, ["public.a"])
    assert survey_from(some.survey) == Survey("", "p", (B,))
    assert (some.snapshot, some.snapshot_tables) == (2, ("public.a",))


def test_a_column_that_is_missing_stays_on_record() -> None:
    """Under its name another may come, with another number: also after a hold, and of the same
    table only."""
    first = SurveyedColumn("v", 2, 25)
    before = Survey("f1", "p", (SurveyedTable("public.a", 1, 10, columns=(first,)), B))
    recorded = surveys.with_survey(NEW, before)
    without = Survey("f2", "p", (SurveyedTable("public.a", 1, 20), B))
    kept = (SurveyedTable("public.a", 1, 20, columns=(first,)), B)
    assert survey_from(surveys.with_survey(recorded, without).survey) == Survey("f2", "p", kept)
    resumed = surveys.accept_hold(surveys.with_hold(recorded, without))
    assert survey_from(resumed.survey) == Survey("", "p", kept)
    again = SurveyedTable("public.a", 1, 30, columns=(SurveyedColumn("v", 4, 25),))
    assert Survey("f3", "p", (again,)).with_missing(before) == Survey("f3", "p", (again,))
    other = Survey("f4", "p", (SurveyedTable("public.a", 9, 30),))
    assert other.with_missing(before) == other
