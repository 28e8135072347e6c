"""One options value: none of the calls that start lacks what another takes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import click
import pytest

from catalog_migrate import hook
from catalog_migrate.api import Catalog, starts
from catalog_migrate.api.configured import make_options
from catalog_migrate.catalog.memory_log import MemoryLog
from catalog_migrate.cli import releases
from catalog_migrate.config import load
from catalog_migrate.delta.shard_logs import ShardLogs
from catalog_migrate.errors import EditedPlan, InvalidArguments, UsageError
from catalog_migrate.migrations.options import (
    BootstrapArguments,
    BootstrapOptions,
    CallArguments,
    read_arguments,
)
from catalog_migrate.policy import Policy, Rule
from catalog_migrate.release.loader import load_texts
from catalog_migrate.testing.engine import SimulatedEngine
from catalog_migrate.testing.starts import migrate, roll_back
from catalog_migrate.testing.world import SimulatedClock, World
from catalog_migrate.users.settings import UserSettings

OF_THE_PROCESS = {"asks_for_users", "holder", "margin", "sessions", "token", "ttl"}


def _noted(*_: Any) -> None:
    """A function that is passed on."""


GIVEN: BootstrapArguments = {
    "approve": ["s.t"],
    "on_progress": _noted,
    "policy": Policy(rules=(Rule("copy", "allow"),)),
    "populate": _noted,
    "read_only": True,
    "reason": "ticket 4711",
    "require_safe_commits": False,
    "safe_log_stores": {"their.Store"},
    "session": True,
    "threads": 3,
    "timeout": 7.5,
    "untried_stores": ["gs"],
    "users": UserSettings(schemas=("team",)),
    "warehouse": "/w",
}
"""Each option as a caller may say it, and none as it is where it is not said."""

READ: Mapping[str, Any] = {
    **GIVEN, "approve": ("s.t",), "safe_log_stores": ("their.Store",), "untried_stores": ("gs",),
}
"""The same as the one value has them."""

CONFIGURED: Mapping[str, str] = {
    "CATALOG_MIGRATE__BOOTSTRAP__TIMEOUT": "7.5",
    "CATALOG_MIGRATE__CATALOG__WAREHOUSE": "/w",
    "CATALOG_MIGRATE__SPARK__THREADS": "3",
    "CATALOG_MIGRATE__STORAGE__REQUIRE_SAFE_COMMITS": "false",
    "CATALOG_MIGRATE__STORAGE__SAFE_LOG_STORES": "their.Store",
    "CATALOG_MIGRATE__STORAGE__UNTRIED_STORES": "gs",
    "CATALOG_MIGRATE__USERS__SCHEMAS": "team",
}
RULES = '[[policy]]\nrisk = "copy"\naction = "allow"\n'
"""What the configuration says for the options that are no call's."""


def test_an_option_is_said_everywhere() -> None:
    """A field of the value is a keyword of the calls, and is here with what a caller may say."""
    fields = {*BootstrapOptions.__struct_fields__} - OF_THE_PROCESS - {"plan"}
    keywords = BootstrapArguments.__required_keys__ | BootstrapArguments.__optional_keys__
    assert fields == keywords == {*GIVEN} == {*READ}


def _in_sessions(name: str, place: Path, log: MemoryLog) -> Callable[..., Any]:
    """An entry point with all that it needs besides options."""
    catalog, release = Catalog(log, mode="write"), load_texts([("a.sql", SECOND)], name="2")
    settings = load(place, env={
        "CATALOG_MIGRATE__CATALOG__URI": "memory", "CATALOG_MIGRATE__RELEASE__PATH": "2.sql",
        **CONFIGURED,
    })  # fmt: skip
    return {
        "bootstrap": lambda **said: hook.bootstrap(
            "session", release=release, catalog="memory", **said
        ),
        "rollback": lambda **said: hook.rollback("session", catalog="memory", to=1, **said),
        "Catalog.apply": lambda **said: catalog.apply(spark="session", release=release, **said),
        "Catalog.rollback": lambda **said: catalog.rollback(spark="session", to=1, **said),
        "api.apply_release": lambda **said: starts.apply_release(settings, **said),
        "api.start_release": lambda **said: starts.start_release(settings, **said),
        "api.roll_back": lambda **said: starts.roll_back(
            settings, catalog.plan_rollback(1, approve=["s.u"]), **said
        ),
    }[name]


FIRST = "CREATE TABLE s.t (id BIGINT NOT NULL);"
SECOND = "CREATE TABLE s.t (id BIGINT NOT NULL); CREATE TABLE s.u (id BIGINT);"


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> MemoryLog:
    """A catalog at its second release, which every address leads to."""
    log, engine = MemoryLog(), SimulatedEngine(World())
    for number, text in enumerate((FIRST, SECOND), 1):
        migrate(
            engine, log, load_texts([("a.sql", text)], name=str(number)),
            warehouse="/w", holder="a test", clock=SimulatedClock(),
        )
    (tmp_path / "2.sql").write_text(SECOND)
    (tmp_path / "catalog_migrate.toml").write_text(RULES)
    monkeypatch.setattr(ShardLogs, "find_shard_problem", lambda *_: None)  # the rows are in memory
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("catalog_migrate.api.catalog.open_log", lambda *_: log)
    monkeypatch.setattr("catalog_migrate.catalog.opening.open_log", lambda *_: log)
    monkeypatch.setattr(hook, "open_log", lambda *_: log)
    return log


@pytest.mark.parametrize("option", sorted(READ))
@pytest.mark.parametrize(
    "name",
    ["bootstrap", "rollback", "Catalog.apply", "Catalog.rollback", "api.apply_release",
     "api.start_release", "api.roll_back"],
)  # fmt: skip
def test_every_entry_point_passes_every_option_on(
    name: str, option: str, log: MemoryLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Said at the call; where the call has a configuration, what it has a key for is said there."""
    heard: list[BootstrapOptions] = []

    def started(_: Any, __: Any, ___: Any, options: BootstrapOptions) -> Any:
        heard.append(options)
        return hook.BootstrapReport("unchanged", None, "2", 2)

    class Session:
        def __init__(self, *_: Any) -> None: ...
        def __enter__(self) -> str:
            return "session"
        def __exit__(self, *_: object) -> None: ...

    monkeypatch.setattr(hook, "bring_in", started)
    monkeypatch.setattr(starts, "open_spark", Session)
    call = _in_sessions(name, tmp_path, log)
    said = {option: GIVEN[option]}  # type: ignore[literal-required]
    if option == "warehouse":
        said["untried_stores"] = GIVEN["untried_stores"]
    if name.startswith("api.") and option not in CallArguments.__optional_keys__:
        with pytest.raises(InvalidArguments, match=f"there is no {option}"):
            call(**said)
        said = {}
    call(**said)
    (options,) = heard
    found, wanted = getattr(options, option), READ[option]
    if option == "policy":
        assert found.rules == wanted.rules
    elif option == "approve":
        assert "s.t" in found
    elif option == "warehouse" and name == "api.roll_back":
        assert found is None  # the catalog's counts, whatever is configured
    else:
        assert found == wanted


@pytest.mark.parametrize("verb", [releases.apply, releases.bootstrap, releases.rollback])
def test_every_verb_that_starts_takes_what_a_person_can_say(verb: click.Command) -> None:
    """What is no function and no key of the configuration, and the flags of what is one."""
    flags = {flag for each in verb.params for flag in each.opts}
    assert flags >= {"--catalog", "--conf", "--approve", "--reason", "--timeout"}


def test_a_rollback_is_only_looked_at(log: MemoryLog) -> None:
    """``read_only`` plans the way back and writes nothing, as it does for a release."""
    before = log.version()
    report = roll_back(
        SimulatedEngine(World()), log, to=1, read_only=True, holder="a test", clock=SimulatedClock()
    )
    assert (report.outcome, log.version()) == ("planned", before)
    assert report.plan is not None
    assert [change.name for change in report.plan.changes] == ["s.u"]


def test_a_rollback_is_to_the_rows_of_the_catalog(log: MemoryLog) -> None:
    """``warehouse`` names them, or the call is refused as any start is."""
    with pytest.raises(UsageError, match="/elsewhere"):
        roll_back(SimulatedEngine(World()), log, warehouse="/elsewhere", clock=SimulatedClock())


@pytest.mark.parametrize("option", sorted(READ))
def test_a_plan_takes_what_the_start_takes(option: str, log: MemoryLog) -> None:
    """The same arguments plan and apply."""
    said = {name: GIVEN[name] for name in (option, "untried_stores")}  # type: ignore[literal-required]
    catalog = Catalog(log)
    assert catalog.plan(load_texts([("a.sql", SECOND)], name="2"), **said).is_noop
    assert [change.name for change in catalog.plan_rollback(1, **said).changes] == ["s.u"]


def test_a_plan_refuses_another_warehouse_as_a_start_does(log: MemoryLog) -> None:
    """It would say what no start does."""
    catalog, said = Catalog(log), "this catalog's shards are below /w, not /elsewhere"
    with pytest.raises(UsageError, match=said):
        catalog.plan(load_texts([("a.sql", SECOND)], name="2"), warehouse="/elsewhere")
    with pytest.raises(UsageError, match=said):
        catalog.plan_rollback(1, warehouse="/elsewhere")


def test_what_the_configuration_has_no_key_for_is_a_call_argument(tmp_path: Path) -> None:
    """What is configured and what is said make up the one value."""
    (tmp_path / "catalog_migrate.toml").write_text(RULES)
    said = {name: GIVEN[name] for name in CallArguments.__optional_keys__}  # type: ignore[literal-required]
    options = make_options(load(tmp_path, env=CONFIGURED), **said)
    for name in {*READ} - {"policy", "warehouse"}:
        assert getattr(options, name) == READ[name], name
    assert options.policy.rules == READ["policy"].rules


def test_none_stands_for_the_default() -> None:
    """As where the argument is not given at all."""
    nothing: Any = dict.fromkeys(GIVEN)
    base = read_arguments(BootstrapOptions(), **GIVEN)
    assert read_arguments(base, **nothing) == base


def test_everything_that_is_wrong_is_said_at_once() -> None:
    """One error, which is both a ValueError and the TypeError that Python raises itself."""
    wrong: Any = {
        "wharehouse": "w", "approve": "s.t", "threads": 0, "timeout": True, "read_only": "false",
        "policy": [], "populate": 1, "warehouse": b"w",
    }
    with pytest.raises(InvalidArguments) as caught:
        Catalog(MemoryLog(), mode="write").apply({}, spark=None, release="r", **wrong)  # type: ignore[arg-type]
    assert isinstance(caught.value, (TypeError, ValueError))
    assert (caught.value.code, caught.value.exit_code) == ("CM0604", 64)
    assert caught.value.data["problems"] == [
        "plan takes a plan or its file, and this is {}",
        "there is no wharehouse: warehouse?",
        "approve takes a list of texts, and this is 's.t'",
        "threads takes a whole number, 1 or more, and this is 0",
        "timeout takes seconds, 0 or more, and this is True",
        "read_only takes True or False, and this is 'false'",
        "policy takes a Policy, and this is []",
        "populate takes a function, and this is 1",
        "warehouse takes a path or an address, and this is b'w'",
    ]


def test_an_argument_that_there_is_none_of() -> None:
    """It is refused as Python refuses it."""
    catalog = Catalog(MemoryLog(), mode="write")
    with pytest.raises(TypeError, match="wharehouse"):
        catalog.apply(spark=None, release="r", wharehouse="w")  # type: ignore[call-arg]


def test_what_is_no_argument_by_its_value() -> None:
    """A store that is not enabled, a file that is no plan: errors of their own."""
    with pytest.raises(UsageError, match="was not tried: gs"):
        read_arguments(BootstrapOptions(), warehouse="gs://bucket/rows")
    with pytest.raises(EditedPlan, match=r"no\.json cannot be read"):
        read_arguments(BootstrapOptions(), "no.json")
