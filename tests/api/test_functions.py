"""What verbs call, as a program calls it: values come back, nothing is printed or asked."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from catalog_migrate.api import Catalog, administration, registrations, releases, starts
from catalog_migrate.api.configured import open_catalog, warehouse_of
from catalog_migrate.catalog.opening import create_catalog, open_log
from catalog_migrate.config import Settings, load
from catalog_migrate.errors import (
    CatalogNotFound,
    InvalidRelease,
    MigrationBlocked,
    StalePlan,
    UsageError,
)
from catalog_migrate.planner.plan import Plan
from catalog_migrate.report import render
from tests.cli.test_main import bring_in_force, manifest

Configured = Callable[..., Settings]


@pytest.fixture
def configured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Configured:
    """The configuration of a directory with release 1 in force; Spark must not be started."""

    def no_spark(*_: object) -> None:
        raise AssertionError("Spark was started")

    for module in (administration, registrations, releases, starts):
        monkeypatch.setattr(module, "open_spark", no_spark)
    # another test of the same worker may have left a session running
    for module in (registrations, releases):
        monkeypatch.setattr(module, "has_lasting_names", lambda _: False)
    bring_in_force(tmp_path, manifest(tmp_path / "1.json", "1", [("a", "INT"), ("b", "INT")]))

    def settings(release: str = "1.json", catalog: str = "c") -> Settings:
        return load(
            tmp_path, {}, {"catalog.uri": catalog, "release.path": str(tmp_path / release)}
        )

    return settings


def test_a_plan_is_shown_and_not_carried_out_when_the_answer_is_no(
    configured: Configured, tmp_path: Path
) -> None:
    """``confirm`` gets the plan that would be applied; None comes back, and nothing was begun."""
    manifest(tmp_path / "2.json", "2", [("a", "INT"), ("b", "INT"), ("c", "INT")])
    settings = configured("2.json")
    shown: list[Plan] = []

    def no(plan: Plan) -> bool:
        shown.append(plan)
        return False

    assert starts.apply_release(settings, confirm=no) is None
    assert shown == [releases.plan_release(settings)]
    assert open_catalog(settings).status().release == "1"


def test_a_plan_that_may_not_be_applied_is_raised_with_it(
    configured: Configured, tmp_path: Path
) -> None:
    """Nobody is asked about a plan that lacks a decision."""
    manifest(tmp_path / "2.json", "2", [("a", "INT")])
    with pytest.raises(MigrationBlocked) as caught:
        starts.apply_release(configured("2.json"), confirm=lambda _: pytest.fail("was asked"))
    assert [entry.column for entry in caught.value.plan.blocked] == ["b"]


def test_a_saved_plan_is_stale_before_spark_is_started(
    configured: Configured, tmp_path: Path
) -> None:
    """A plan for another release than the configured one is refused, with what differs."""
    manifest(tmp_path / "2.json", "2", [("a", "INT"), ("b", "INT"), ("c", "INT")])
    saved = tmp_path / "plan.json"
    saved.write_text(render(releases.plan_release(configured("2.json")), "json"))
    with pytest.raises(StalePlan, match="made for release 2, this is 1"):
        starts.apply_release(configured(), str(saved))


def test_errors_of_a_release_that_is_checked_are_a_value(
    configured: Configured, tmp_path: Path
) -> None:
    """They are what was asked for; an unreadable release to come from is raised."""
    bad = tmp_path / "bad"
    bad.mkdir()
    (bad / "t.sql").write_text("CREATE TABLE s.t (a NOTHING);\n")
    found = releases.check_release(configured("bad"))
    assert isinstance(found, InvalidRelease)
    assert len(found.problems) == 1
    with pytest.raises(InvalidRelease):
        releases.check_release(configured(), against=str(bad))
    sound = releases.check_release(configured(), against="catalog:")
    assert isinstance(sound, releases.Check)
    assert (sound.base, sound.plan.is_noop) == ("catalog:", True)


def test_notes_are_heard_not_printed(
    configured: Configured, capsys: pytest.CaptureFixture[str]
) -> None:
    """A catalog that is not there yet, and an approval that met nothing."""
    heard: list[str] = []
    releases.plan_release(configured(catalog="none"), approve=["s.u"], on_note=heard.append)
    assert [line.split(" at ")[0].split(":")[0] for line in heard] == [
        "there is no catalog", "--approve s.u met nothing",
    ]
    assert capsys.readouterr() == ("", "")


def test_a_rollback_needs_something_to_go_back_to(configured: Configured) -> None:
    """The first release is the end of the way back."""
    with pytest.raises(UsageError, match=r"first release|no migration|no release was"):
        releases.plan_rollback(configured())


def test_administration_from_a_program(configured: Configured, tmp_path: Path) -> None:
    """Export as SQL, what would be adopted, a move that is followed; each needs no Spark."""
    settings = configured()
    assert "CREATE TABLE" in administration.registrations_sql(settings)
    with pytest.raises(UsageError, match="--names-too belongs to --new-lineage"):
        administration.relocate(settings, names_too=True)
    with pytest.raises(UsageError, match="is given twice"):
        administration.relocate(settings, tables=["s.t=x", "s.t=y"])
    table = next((tmp_path / "warehouse").rglob("_delta_log")).parent
    found = administration.adopt(
        configured(catalog="other"), tables=[f"s.t={table}"], dry_run=True
    )
    assert ([each.name for each in found.prospects], found.serial) == (["s.t"], None)
    assert not (tmp_path / "other").exists()
    (tmp_path / "c").rename(tmp_path / "moved")
    done = administration.relocate(configured(catalog="moved"), dry_run=True)
    assert (done.changed, done.home) == (True, str(tmp_path / "moved"))


def test_what_is_freed_by_hand(configured: Configured) -> None:
    """A lease that nobody holds, and sessions older than a serial; read-only frees nothing."""
    catalog = open_catalog(configured(), write=True)
    assert catalog.unlock("somebody") is False
    assert catalog.forget_sessions(before=0) == ()
    with pytest.raises(UsageError, match="read-only"):
        Catalog(catalog.log).unlock("somebody")


def test_names_that_end_with_the_session_cannot_differ(configured: Configured) -> None:
    """Without a metastore there is nothing to compare, and Spark is not started for that."""
    assert registrations.compare_registrations(configured()) is None


def test_a_catalog_that_is_named_has_to_be_there(configured: Configured) -> None:
    """``against`` a catalog does not mean the one that would be made."""
    with pytest.raises(CatalogNotFound):
        releases.check_release(configured(catalog="none"), against="catalog:")


def test_a_table_is_adopted_by_its_path(configured: Configured, tmp_path: Path) -> None:
    """An address of a file is the path that Spark would show."""
    wanted, _ = administration._look_up(
        configured(), (), (f"s.t=file://{tmp_path}/rows",), lambda _: None
    )
    assert [each.path for each in wanted] == [f"{tmp_path}/rows"]


@pytest.mark.parametrize(
    ("flags", "rows"),
    [
        ({"catalog.uri": "c", "catalog.warehouse": "s3://b/w"}, "s3://b/w"),
        ({"catalog.uri": "s3://b/c", "catalog.warehouse": "/w"}, "/w"),
        ({"catalog.warehouse": "s3://b/w"}, "s3://b/w"),
        ({}, None),
    ],
)
def test_rows_where_the_configuration_says(
    tmp_path: Path, flags: dict[str, str], rows: str | None
) -> None:
    """Spark is given what the rows need, wherever the catalog itself is."""
    assert warehouse_of(load(tmp_path, {}, flags)) == rows


def test_rows_where_the_catalog_says(configured: Configured, tmp_path: Path) -> None:
    """The warehouse is said once: from then on the catalog knows; before, it is beside it."""
    create_catalog(open_log(str(tmp_path / "far")), warehouse=str(tmp_path / "rows"))
    assert warehouse_of(configured(catalog=str(tmp_path / "far"))) == str(tmp_path / "rows")
    assert warehouse_of(configured(catalog=str(tmp_path / "none"))) == str(tmp_path / "none")
