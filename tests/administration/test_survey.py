"""What stands in a table's log is read once, for every command that looks at tables."""

from __future__ import annotations

from pathlib import Path
from typing import NoReturn

import pytest
from deltalake import DeltaTable

from catalog_migrate.administration.survey import Places, survey_table
from catalog_migrate.catalog.marks import marks_of, put_mark
from catalog_migrate.delta.seal import seal
from catalog_migrate.store.address import HIDDEN

from .conftest import ORDERS, Place, release_of

DESCRIBED = release_of(
    "CREATE TABLE shop.orders (id BIGINT, qty INT, CONSTRAINT few CHECK (qty  <  9));"
).objects[0]


def test_a_directory_without_a_table_and_one_that_cannot_be_read(place: Place) -> None:
    """Neither raises: the first has no version, the second says why."""
    assert survey_table(str(place.home / "nothing")).version is None
    path = place.table("orders")
    Path(path, "_delta_log", f"{0:020d}.json").write_text("{")
    found = survey_table(path)
    assert found.version is None
    assert found.unread


def test_why_a_table_cannot_be_read_is_one_line_without_secrets(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a store answers may have many lines, and the key that it was given."""
    def refuse(_: str) -> NoReturn:
        raise OSError("403 for\n\n  the key open-sesame")

    path = place.table("orders")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "open-sesame")
    monkeypatch.setattr("catalog_migrate.administration.survey.load_table", refuse)
    assert survey_table(path).unread == f"403 for the key {HIDDEN}"


def test_a_table_is_read_with_its_mark_its_seal_and_its_rows(place: Place) -> None:
    """The seal is a CHECK of ours, and none of the table's."""
    state = place.installed()
    path = place.table("orders")
    put_mark(path, marks_of(state, "i7", DESCRIBED), lambda mark: mark is None)
    version = seal(path, follows=1, app_id="another", epoch=1)
    found = survey_table(path)
    assert (found.version, found.size.rows, found.is_sealed) == (version, 3, True)
    assert found.mark is not None
    assert (found.mark.lineage, found.mark.item_id) == (state.lineage, "i7")
    assert found.define(DESCRIBED).checks == ()


def test_a_check_has_the_name_that_the_release_gives_it(place: Place) -> None:
    """Where both say the same; any other keeps its own name. Properties are the release's only."""
    path = place.table("orders", properties={"delta.logRetentionDuration": "interval 9 days"})
    for name, expression in (("a", "qty < 9"), ("b", "id > 0")):
        DeltaTable(path).alter.add_constraint({name: expression})
    found = survey_table(path).define(DESCRIBED)
    assert [check.name for check in found.checks] == ["few", "b"]
    assert found.properties == {}
    assert found.columns == release_of(ORDERS).objects[0].columns


def test_what_a_directory_shares_with_a_catalog(place: Place) -> None:
    """What is in it, or it in something: each with what to do."""
    home = str(place.home / "catalog")
    places = Places(home, f"{home}/warehouse")
    assert [each for each, _ in places.overlaps(f"{home}/warehouse/t")] == [
        f"it lies inside the catalog {home}"
    ]
    assert [each for each, _ in places.overlaps(str(place.home))] == [
        f"the catalog {home} lies inside it",
        f"the catalog's warehouse {home}/warehouse lies inside it",
    ]
    outer = place.table("outer")
    assert [each for each, _ in places.overlaps(f"{outer}/inner")] == [
        f"it lies inside another table, {outer}"
    ]
