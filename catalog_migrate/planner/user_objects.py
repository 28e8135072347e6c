"""Users' objects in a plan: what becomes of them, and which of it waits for a decision. Pure.

The decisions belong to the moment: users create and drop views between plan and start. So the hash
of a plan does not cover them, and a start judges again.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace

from catalog_migrate.planner.plan import Blocked, UserObject
from catalog_migrate.planner.policy_evaluation import (
    POLICY_REFUSES,
    USER_OBJECT_BREAKS,
    USERS_DECISIONS,
    Approvals,
    Risk,
    find_rule_against,
)

if TYPE_CHECKING:
    from catalog_migrate.planner.plan import Migration, Plan
    from catalog_migrate.policy import Policy

_RISK = "break_user_object"


def with_users(
    migration: Migration, users: Sequence[UserObject], approve: Collection[str], policy: Policy, *,
    asks: bool, repairs: bool = False,
) -> Migration:
    """The migration with what becomes of ``users``; what breaks blocks its plan where it may not.

    A rule on ``break_user_object`` that refuses, or asks for an approval that ``approve`` has not,
    blocks every plan. Where no rule fits only one that ``asks`` is blocked. ``repairs`` says that
    the start repairs what has a text that does: such an object breaks nothing. What was approved is
    among the plan's approvals.
    """
    approvals = Approvals(approve, policy)
    blocked = tuple(
        _judge(
            (each for each in users
             if each.outcome == "breaks" and not (repairs and each.repaired is not None)),
            approvals, asks=asks,
        )
    )
    plan = without_decisions(migration.plan)
    of_release = {*plan.approved} - {each.name for each in plan.users or ()}
    plan = replace(
        plan,
        users=tuple(users),
        blocked=(*plan.blocked, *blocked),
        approved=tuple(sorted(of_release | approvals.used)),
        applyable=plan.applyable and not blocked,
    )
    return replace(migration, plan=plan)


def list_user_decisions(plan: Plan) -> tuple[Blocked, ...]:
    """Return the blocked entries of a plan that are about users' objects."""
    names = {str(each.key) for each in plan.users or () if each.outcome == "breaks"}
    return tuple(
        entry for entry in plan.blocked if entry.code in USERS_DECISIONS and entry.name in names
    )


def without_decisions(plan: Plan) -> Plan:
    """The plan without the decisions on users' objects that it waits for: a start judges again."""
    of_users = list_user_decisions(plan)
    if not of_users:
        return plan
    kept = tuple(entry for entry in plan.blocked if entry not in of_users)
    return replace(plan, blocked=kept, applyable=not kept)


def describe_break(user: UserObject) -> str:
    """Why a user's object does not bind, in Spark's words: its error class and what is missing."""
    if user.missing is None:
        return user.condition or user.reason or "it does not bind"
    return f"{user.missing} is missing" + (f" ({user.condition})" if user.condition else "")


def _judge(
    users: Iterable[UserObject], approvals: Approvals, *, asks: bool
) -> Iterator[Blocked]:
    for user in users:
        key = user.key
        root = f", because of {user.because[0]}" if user.because else ""
        reason = f"breaks a user's {user.kind}: {describe_break(user)}{root}"
        ruled = find_rule_against(key, Risk(_RISK, reason), approvals)
        if ruled is not None:
            remedy = ruled.remedy
            if ruled.code == POLICY_REFUSES:
                remedy = (
                    f"have the owner of {user.name} change it first, or have the owner of the"
                    " policy change the rule"
                )
            yield replace(ruled, remedy=remedy)
        elif not approvals.cover(_RISK, key) and asks:
            name = json.dumps(user.name, ensure_ascii=False)
            yield Blocked(
                str(key), USER_OBJECT_BREAKS, reason,
                f'--approve {user.name} (or a rule of the policy: risk = "{_RISK}",'
                f' name = {name}, action = "allow")',
            )
