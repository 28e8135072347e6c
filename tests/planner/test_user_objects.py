"""Users' objects in a plan: what breaks waits for a decision where somebody can be asked."""

from __future__ import annotations

import importlib
import sys
from typing import Any

import pytest
from msgspec.structs import replace

from catalog_migrate.planner.plan import Blocked, Migration, Plan, UserObject
from catalog_migrate.planner.plan_validation import blocked_error
from catalog_migrate.planner.planfile import decode_plan, encode_plan
from catalog_migrate.planner.planning import plan_migration
from catalog_migrate.planner.user_objects import describe_break, with_users, without_decisions
from catalog_migrate.policy import Policy, Rule

CITIES = UserObject(
    "team.cities", "view", "breaks", ("s.t", "team.cities"),
    condition="UNRESOLVED_COLUMN.WITH_SUGGESTION", missing="city", repaired="SELECT town FROM s.t",
)
AREA = UserObject(
    "team.area", "function", "breaks", ("s.t", "s.v", "team.area"), reason="it does not bind here"
)
OTHERS = tuple(
    UserObject(f"team.{outcome}", "view", outcome, ("s.t",))  # type: ignore[arg-type]
    for outcome in ("unchanged", "changed", "broken", "unknown")
)
REMEDY = (
    '--approve {0} (or a rule of the policy: risk = "break_user_object", name = "{0}",'
    ' action = "allow")'
)


@pytest.fixture
def migration(make: Any) -> Migration:
    """A migration that waits for nothing."""
    old, new = make.table("t", "a INT"), make.table("t", "a INT, b INT")
    return plan_migration(make.baseline(old), make.release(new))


def judged(
    migration: Migration, *rules: tuple[str, ...], approve: tuple[str, ...] = (),
    asks: bool = True, repairs: bool = False,
) -> Plan:
    """The plan with a view and a function that break, and one object of each other outcome."""
    policy = Policy(rules=tuple(
        Rule(risk, action, *name, origin="test") for risk, action, *name in rules
    ))
    users = (CITIES, AREA, *OTHERS)
    found = with_users(migration, users, approve, policy, asks=asks, repairs=repairs).plan
    assert found.users == users
    assert found.plan_hash == migration.plan.plan_hash
    assert decode_plan(encode_plan(found)) == found
    assert found.applyable is not bool(found.blocked)
    return found


def test_what_breaks_is_asked_for_by_name(migration: Migration) -> None:
    """Only what breaks, with what is missing and why, and the text to copy."""
    assert judged(migration).blocked == (
        Blocked(
            "team.cities", "CM0338",
            "breaks a user's view: city is missing (UNRESOLVED_COLUMN.WITH_SUGGESTION), because of"
            " s.t",
            REMEDY.format("team.cities"),
        ),
        Blocked(
            "function:team.area", "CM0338",
            "breaks a user's function: it does not bind here, because of s.t",
            REMEDY.format("team.area"),
        ),
    )


def test_the_error_says_to_approve(migration: Migration) -> None:
    """There is nothing to write into the release for what a user built."""
    error = blocked_error(judged(migration))
    assert (error.message, error.remedy) == (
        "2 decisions are missing; nothing was touched", "approve what is listed at the call",
    )


def test_a_start_of_the_software_goes_on(migration: Migration) -> None:
    """Where nobody can be asked nothing waits, and nothing counts as approved."""
    plan = judged(migration, asks=False)
    assert (plan.applyable, plan.blocked, plan.approved) == (True, (), ())


@pytest.mark.parametrize("asks", [True, False])
@pytest.mark.parametrize(
    ("rules", "approve", "blocked", "approved"),
    [
        ([("break_user_object", "refuse")], ("team.cities", "team.area"), ["CM0308", "CM0308"], ()),
        ([("break_user_object", "approve")], (), ["CM0309", "CM0309"], ()),
        ([("break_user_object", "approve")], ("TEAM.Cities", "team.area"), [],
         ("team.area", "team.cities")),
        ([("break_user_object", "allow")], (), [], ("team.area", "team.cities")),
        ([("any", "refuse")], (), ["CM0308", "CM0308"], ()),
        ([("break_user_object", "allow", "team.c*"), ("any", "refuse", "TEAM.*")], (), ["CM0308"],
         ("team.cities",)),
        ([("break_user_object", "refuse", "other.*"), ("drop", "refuse")],
         ("team.cities", "team.area", "team.other"), [], ("team.area", "team.cities")),
    ],
)  # fmt: skip
def test_the_first_rule_that_fits_decides_everywhere(
    migration: Migration, rules: list[tuple[str, ...]], approve: tuple[str, ...],
    blocked: list[str], approved: tuple[str, ...], asks: bool,
) -> None:
    """A rule holds for commands and for starts of the software alike."""
    plan = judged(migration, *rules, approve=approve, asks=asks)
    assert ([entry.code for entry in plan.blocked], plan.approved) == (blocked, approved)


def test_the_entry_of_a_rule_says_what_to_do(migration: Migration) -> None:
    """Refused: the rule and the owner; an approval that is missing: the text to copy."""
    refused = judged(migration, ("break_user_object", "refuse", "team.area"), ("any", "approve"))
    assert [(entry.reason, entry.remedy) for entry in refused.blocked] == [
        ("breaks a user's view: city is missing (UNRESOLVED_COLUMN.WITH_SUGGESTION), because of"
         " s.t: needs an approval by test: approve any of *", "--approve team.cities"),
        ("breaks a user's function: it does not bind here, because of s.t: refused by test: refuse"
         " break_user_object of team.area",
         "have the owner of team.area change it first, or have the owner of the policy change the"
         " rule"),
    ]


def test_what_the_start_repairs_is_not_asked_for(migration: Migration) -> None:
    """The view has a text that binds again, the function has none."""
    plan = judged(migration, repairs=True)
    assert [entry.name for entry in plan.blocked] == ["function:team.area"]


def test_a_start_judges_again(migration: Migration) -> None:
    """Users' objects of a saved plan may be others by now; its approvals count."""
    saved = judged(migration, approve=("team.area",))
    free = without_decisions(saved)
    assert (free.applyable, free.blocked, free.approved) == (True, (), ("team.area",))
    assert decode_plan(encode_plan(free)) == free
    again = with_users(
        replace(migration, plan=saved), (AREA,), saved.approved, Policy(), asks=True
    ).plan
    assert (again.applyable, again.users, again.approved) == (True, (AREA,), ("team.area",))
    gone = with_users(replace(migration, plan=saved), (), saved.approved, Policy(), asks=True).plan
    assert (gone.applyable, gone.users, gone.approved) == (True, (), ())
    assert decode_plan(encode_plan(gone)) == gone


def test_other_decisions_stay(make: Any) -> None:
    """What the release itself waits for is not taken away with the decisions on users."""
    old, new = make.table("t", "a INT, b INT"), make.table("t", "a INT")
    waiting = plan_migration(make.baseline(old), make.release(new))
    plan = with_users(waiting, (CITIES,), (), Policy(), asks=True).plan
    assert [(entry.name, entry.code) for entry in plan.blocked] == [
        ("s.t", "CM0302"), ("team.cities", "CM0338"),
    ]
    assert without_decisions(plan).blocked == waiting.plan.blocked
    assert not without_decisions(plan).applyable


def test_odd_names_can_be_copied(migration: Migration) -> None:
    """The approval parses to the object, the rule is TOML whose pattern fits it."""
    from catalog_migrate.planner.policy_evaluation import approval_parts

    odd = replace(CITIES, name='`we "b`.`ti``ck\\`')
    (entry,) = with_users(migration, (odd,), (), Policy(), asks=True).plan.blocked
    approval, _, rule = entry.remedy.removeprefix("--approve ").partition(" (or a ")
    assert approval_parts(approval) == ('we "b', "ti`ck\\")
    written = rule.partition(": ")[2].removesuffix(")").replace(", ", "\n")
    toml = importlib.import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")
    read = toml.loads(written)
    assert Rule(**read).fits("break_user_object", [odd.name])
    assert with_users(migration, (odd,), (approval,), Policy(), asks=True).plan.applyable


@pytest.mark.parametrize(
    ("user", "words"),
    [
        (CITIES, "city is missing (UNRESOLVED_COLUMN.WITH_SUGGESTION)"),
        (replace(CITIES, condition=None), "city is missing"),
        (replace(CITIES, missing=None), "UNRESOLVED_COLUMN.WITH_SUGGESTION"),
        (AREA, "it does not bind here"),
        (replace(AREA, reason=None), "it does not bind"),
    ],
)
def test_a_break_is_said_in_sparks_words(user: UserObject, words: str) -> None:
    """What is missing and Spark's error class, as far as they are known."""
    assert describe_break(user) == words
