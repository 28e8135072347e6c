"""Policy: the first rule that fits the kind of risk and the name decides, decided or not."""

from __future__ import annotations

from typing import Any

import pytest

from catalog_migrate.model.objects import Column
from catalog_migrate.planner.plan import Blocked, Plan
from catalog_migrate.planner.planning import plan_migration
from catalog_migrate.planner.policy_evaluation import find_fence
from catalog_migrate.policy import RISKS, Policy, Rule, read_rules


def planned(make: Any, old: Any, new: Any, *rules: Rule, approve: tuple[str, ...] = ()) -> Plan:
    """The plan from table(s) ``old`` to ``new`` under these rules."""
    return plan_migration(
        make.baseline(*old), make.release(*new), approve=approve, policy=Policy(rules=rules)
    ).plan


def refuse(risk: str, name: str = "*") -> Rule:
    """A rule that refuses."""
    return Rule(risk, "refuse", name, "test")


def approve(risk: str, name: str = "*") -> Rule:
    """A rule that wants an approval."""
    return Rule(risk, "approve", name, "test")


def allow(risk: str, name: str = "*") -> Rule:
    """A rule that allows."""
    return Rule(risk, "allow", name, "test")


def codes(plan: Plan) -> list[tuple[str, str | None, str]]:
    """Name, column and code of what is blocked."""
    return [(entry.name, entry.column, entry.code) for entry in plan.blocked]


def test_without_rules_nothing_changes(make: Any) -> None:
    """A missing decision stays a missing decision."""
    plan = planned(make, [make.table("t", "a INT, b INT")], [make.table("t", "a INT")])
    assert codes(plan) == [("s.t", "b", "CM0302")]


def test_allow_decides_a_loss_and_is_on_the_plan(make: Any) -> None:
    """What a rule allows needs no word; the plan carries it as an approval."""
    old = [make.table("t", "a BIGINT, b INT"), make.table("gone")]
    new = [make.table("t", "a INT")]
    plan = planned(make, old, new, allow("any"))
    assert plan.applyable
    assert plan.approved == ("s.gone", "s.t.a", "s.t.b")
    elsewhere = plan_migration(make.baseline(*old), make.release(*new), approve=plan.approved).plan
    assert elsewhere.plan_hash == plan.plan_hash


def test_the_first_rule_that_fits_decides(make: Any) -> None:
    """Order is everything: the narrow exception stands before the wide rule, or is useless."""
    old = [make.table("t"), make.table("keep"), make.table("u")]
    narrow = [allow("drop_table", "S.T"), refuse("drop_table"), allow("any")]
    assert codes(planned(make, old, [make.table("u")], *narrow)) == [("s.keep", None, "CM0308")]
    assert codes(planned(make, old, [make.table("u")], *narrow[::-1])) == []


def test_refuse_stands_above_decision_and_approval(make: Any) -> None:
    """DROPPED in the release and --approve do not help; entry and remedy name the rule."""
    old = [make.table("t", "a INT, b INT")]
    new = [make.table("t", "a INT", dropped=("b",))]
    plan = planned(make, old, new, refuse("drop_column", "s.*.b"), approve=("s.t",))
    assert plan.blocked == (
        Blocked(
            "s.t", "CM0308",
            "drops column b: refused by test: refuse drop_column of s.*.b",
            "leave it as it is in the release, or have the owner of the policy change the rule",
            "b",
        ),
    )
    assert not plan.applyable


def test_approve_wants_more_than_the_decision_of_the_release(make: Any) -> None:
    """With the rule, a decided loss still waits for --approve; the remedy says which."""
    old = [make.table("t", "a BIGINT, b INT")]
    new = [make.table("t", [Column("a", "INT", using="CAST(a AS INT)")], dropped=("b",))]
    plan = planned(make, old, new, approve("drop_column"), approve("convert", "s.t"))
    assert codes(plan) == [("s.t", "a", "CM0309"), ("s.t", "b", "CM0309")]
    assert [entry.remedy for entry in plan.blocked] == ["--approve s.t.a", "--approve s.t.b"]
    plan = planned(
        make, old, new, approve("drop_column"), approve("convert"), approve=("s.t.a", "s.t.b")
    )
    assert plan.applyable
    assert plan.approved == ("s.t.a", "s.t.b")


def test_a_rule_takes_the_place_of_the_missing_decision(make: Any) -> None:
    """One entry for one loss: not the missing decision and the rule as well."""
    old = [make.table("t", "a BIGINT, b INT, c INT"), make.table("gone")]
    new = [make.table("t", "a INT, c INT NOT NULL")]
    rules = [refuse("convert"), approve("drop_column"), refuse("not_null"), approve("drop_table")]
    assert codes(planned(make, old, new, *rules)) == [
        ("s.gone", None, "CM0309"), ("s.t", "a", "CM0308"), ("s.t", "c", "CM0308"),
        ("s.t", "b", "CM0309"),
    ]


@pytest.mark.parametrize("risk", ["copy", "refill", "drop"])
def test_what_costs_can_be_refused_too(make: Any, risk: str) -> None:
    """A copy, a refill and the end of a view are free, unless a rule says otherwise."""
    old = [make.table("t", "a INT"), make.table("d", "a INT", contents="derived"), make.view("v")]
    new = [make.table("t", "a BIGINT"), make.table("d", "a BIGINT", contents="derived")]
    assert planned(make, old, new).applyable
    name = {"copy": "s.t", "refill": "s.d", "drop": "s.v"}[risk]
    assert codes(planned(make, old, new, refuse(risk))) == [(name, None, "CM0308")]
    assert codes(planned(make, old, new, approve(risk))) == [(name, None, "CM0309")]
    assert planned(make, old, new, approve(risk), approve=(name,)).applyable


def test_a_plan_made_under_other_rules_has_another_hash(make: Any) -> None:
    """A laxer policy elsewhere cannot slip a plan through: the plan made here differs."""
    old, new = [make.table("t", "a INT, b INT")], [make.table("t", "a INT", dropped=("b",))]
    lax, strict = planned(make, old, new), planned(make, old, new, refuse("any"))
    assert lax.applyable
    assert not strict.applyable
    assert lax.plan_hash != strict.plan_hash


def test_patterns_know_two_wild_characters_and_no_others(make: Any) -> None:
    """``*`` and ``?`` are wild; brackets, dots and backticks are themselves."""
    assert refuse("copy", "s.t?").fits("copy", ["S.T1"])
    assert not refuse("copy", "s.t?").fits("copy", ["s.t12"])
    assert refuse("copy", "s.`a[b]`").fits("copy", ["s.`a[b]`"])
    assert not refuse("copy", "s.[t]").fits("copy", ["s.t"])
    assert not refuse("copy", "s.t").fits("copy", ["sxt", "s.t.a"])
    assert refuse("copy", "*").fits("copy", ["s.`a\nb`"])
    assert not refuse("drop", "*").fits("copy", ["s.t"])


def test_a_downgrade_is_refused_or_allowed_by_rule(make: Any, committed: Any) -> None:
    """An unknown older release is fenced out, unless allowed; a refusal stands above the flag."""
    state = committed(make.baseline(make.table("t")))
    older = make.release(make.table("t"), name="0.9")
    assert find_fence(state, older, Policy()) == "release 0.9 is older than 1, which is in force"
    assert find_fence(state, older, Policy(rules=(allow("downgrade", "0.*"),))) is None
    assert find_fence(state, older, Policy(allow_downgrade=True)) is None
    refused = find_fence(state, older, Policy(allow_downgrade=True, rules=(refuse("any"),)))
    assert refused == (
        "release 0.9 is older than 1, which is in force, and test: refuse any of *"
    )


def test_everything_wrong_in_a_list_of_rules_is_told_with_the_word_meant() -> None:
    """Unknown keys, kinds and actions, missing ones and bad names: all at once."""
    rules, problems = read_rules(
        [
            {"risk": "drop_tabel", "action": "deny"},
            {"action": "allow", "names": "s.*"},
            {"risk": "any", "action": "allow", "name": ""},
            {"risk": "copy", "action": "approve", "name": "s.*"},
        ],
        origin="f", file="f",
    )
    assert rules == (Rule("copy", "approve", "s.*"),)
    assert str(rules[0]) == "f, policy 4: approve copy of s.*"
    assert [(problem.message, problem.remedy) for problem in problems] == [
        ("policy 1: risk is 'drop_tabel', which is none", "did you mean drop_table?"),
        ("policy 1: action is 'deny', which is none", "write one of refuse, approve, allow"),
        ("policy 2: names is not a key of a rule", "did you mean name?"),
        ("policy 2: risk is missing", f"write one of {', '.join((*RISKS, 'any'))}"),
        ("policy 3: name is '', which is no pattern",
         'write name = "schema.*", or leave it out for every name'),
    ]
    assert len(read_rules("x", origin="f")[1]) == 1
