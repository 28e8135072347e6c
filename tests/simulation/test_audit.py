"""A process killed anywhere leaves an audit that the next one completes."""

from __future__ import annotations

import pytest

from catalog_migrate.catalog.history import entries
from catalog_migrate.model.objects import Column, ObjectDefinition
from catalog_migrate.release.release import Release
from tests.simulation.draft import DraftedRelease
from tests.simulation.installation import Installation, release_of


class Killed(BaseException):
    """The process ends here."""


def draft(name: str, *columns: str) -> tuple[DraftedRelease, Release]:
    """A release of one table."""
    definition = ObjectDefinition(
        schema="s", kind="table", name="t",
        columns=tuple(Column(name=column, type="INT") for column in columns),
    )
    drafted = DraftedRelease(name, (definition,), {}, (), ())
    return drafted, release_of(drafted)


@pytest.mark.parametrize("persistent", [True, False])
def test_killed_anywhere(persistent: bool) -> None:
    """Whatever call a start dies at, after the next start each commit is audited once."""
    one, two = draft("1", "a"), draft("2", "a", "b")
    calls = 0
    at = 0
    while True:
        at += 1
        place = Installation(persistent)
        place.start(*one)
        assert [e.version for e in place.log.audit] == [e.version for e in entries(place.log)][::-1]
        calls = 0

        def die(_: str, at: int = at) -> None:
            nonlocal calls
            calls += 1
            if calls == at:
                raise Killed

        try:
            place.start(*two, on_call=die)
        except Killed:
            _, report = place.start(*two)
            assert report.outcome in {"migrated", "resumed", "unchanged"}
        whole = [(e.version, e.commit_id) for e in entries(place.log)][::-1]
        assert [(e.version, e.commit_id) for e in place.log.audit] == whole
        if calls < at:
            break
    assert at > 10
