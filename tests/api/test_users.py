"""Users' objects in plans of programs: when nothing has looked, and what a start is left."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from catalog_migrate.api import configured, releases, starts
from catalog_migrate.api.configured import has_lasting_names, open_catalog
from catalog_migrate.config import Settings, load
from catalog_migrate.errors import MigrationBlocked
from catalog_migrate.planner.plan import Blocked, UserObject
from catalog_migrate.planner.planfile import encode_plan
from tests.cli.test_main import bring_in_force, manifest

Configured = Callable[..., Settings]
CITIES = UserObject("team.cities", "view", "breaks", ("s.t", "team.cities"), missing="b")
ASKED = Blocked("team.cities", "CM0338", "breaks a user's view", "--approve team.cities")


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Configured:
    """The configuration of a directory with release 1 in force; Spark must not be started."""

    def no_spark(*_: object) -> None:
        raise AssertionError("Spark was started")

    for module in (releases, starts):
        monkeypatch.setattr(module, "open_spark", no_spark)
    # another test of the same worker may have left a session running
    monkeypatch.setattr(configured, "session_runs", lambda: False)
    bring_in_force(tmp_path, manifest(tmp_path / "1.json", "1", [("a", "INT"), ("b", "INT")]))
    manifest(tmp_path / "2.json", "2", [("a", "INT"), ("b", "INT"), ("c", "INT")])

    def load_settings(release: str = "2.json", **flags: str) -> Settings:
        named = {key.replace("_", "."): value for key, value in flags.items()}
        return load(tmp_path, {}, {
            "catalog.uri": "c", "release.path": str(tmp_path / release), **named,
        })

    return load_settings


@pytest.mark.parametrize(
    ("flags", "lasting"),
    [
        ({}, False),
        ({"spark.metastore": "metastore"}, True),
        ({"spark.remote": "sc://server"}, True),
        ({"spark.catalog": "unity"}, True),
        ({"spark_conf.spark.sql.catalogImplementation": "hive"}, True),
        ({"spark_conf.spark.sql.catalogImplementation": "in-memory"}, False),
    ],
)
def test_names_that_outlive_the_session_are_told_by_the_configuration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flags: dict[str, str], lasting: bool
) -> None:
    """An embedded metastore, a server, another catalog, or Hive by Spark's own setting."""
    monkeypatch.setattr(configured, "session_runs", lambda: False)
    assert has_lasting_names(load(tmp_path, {}, flags)) is lasting


def test_a_plan_says_where_nothing_has_looked(settings: Configured) -> None:
    """Only where the session's catalog may have users' objects over what is in force."""
    lasting = settings(spark_metastore="metastore")
    assert releases.plan_release(lasting).users is None
    assert releases.plan_release(settings()).users is msgspec.UNSET
    assert releases.plan_release(settings(catalog_uri="none", spark_metastore="m")).users is (
        msgspec.UNSET
    )
    assert releases.plan_release(settings("1.json", spark_metastore="m")).users is msgspec.UNSET
    checked = releases.check_release(lasting)
    assert isinstance(checked, releases.Check)
    assert checked.plan.users is None
    old, new = (lasting.text("release.path").replace("2.", f"{n}.") for n in "12")  # type: ignore[union-attr]
    assert releases.compare_releases(lasting, old, new).users is msgspec.UNSET


def test_an_approval_that_may_be_a_users_is_not_called_useless(settings: Configured) -> None:
    """Without a look nothing is known of it; a column is none of a user's object."""
    heard: list[str] = []
    wanted = ["team.cities", "s.t.b"]
    releases.plan_release(
        settings(spark_metastore="m"), approve=wanted, on_note=heard.append
    )
    releases.plan_release(settings(), approve=wanted[:1], on_note=heard.append)
    nothing = "met nothing: no change of this plan needs it"
    assert heard == [
        f"--approve team.cities {nothing}; a user's object may: the start looks, and --bind does"
        " beforehand",
        f"--approve s.t.b {nothing}; did you mean s.t?",
        f"--approve team.cities {nothing}",
    ]


def test_decisions_on_users_in_a_saved_plan_are_left_to_the_start(
    settings: Configured, tmp_path: Path
) -> None:
    """What users have by then counts; what else is undecided is refused before Spark starts."""
    plan = replace(
        releases.plan_release(settings()), users=(CITIES,), blocked=(ASKED,), applyable=False
    )
    saved = tmp_path / "plan.json"
    saved.write_bytes(encode_plan(plan))
    with pytest.raises(AssertionError, match="Spark was started"):
        starts.apply_release(settings(), str(saved))
    manifest(tmp_path / "3.json", "3", [("a", "INT")])
    undecided = releases.plan_release(settings("3.json"))
    saved.write_bytes(encode_plan(
        replace(undecided, users=(CITIES,), blocked=(*undecided.blocked, ASKED))
    ))
    with pytest.raises(MigrationBlocked) as caught:
        starts.apply_release(settings("3.json"), str(saved))
    assert [entry.code for entry in caught.value.plan.blocked] == ["CM0302"]
    assert open_catalog(settings()).status().release == "1"
