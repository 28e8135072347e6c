"""The policy applied to a plan: every risk it takes is judged, and what may not be is blocked."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from catalog_migrate.model.names import ItemKey, quote_part
from catalog_migrate.planner.plan import Blocked

if TYPE_CHECKING:
    from catalog_migrate.planner.contents import Approvals

POLICY_REFUSES = "CM0308"
POLICY_ASKS = "CM0309"

UNDECIDED = {
    "CM0301": "convert", "CM0302": "drop_column", "CM0304": "not_null", "CM0305": "drop_table",
}
"""Code of a missing decision -> the kind of risk that it is about."""


class Risk(NamedTuple):
    """One risk of a change: its kind (:data:`~catalog_migrate.policy.RISKS`) and what it is."""

    kind: str
    text: str
    column: str | None = None


def names_of(key: ItemKey, column: str | None) -> tuple[str, ...]:
    """What a rule's pattern may fit: the object's name, and the column's below it."""
    name = str(key.item_name)
    return (name,) if column is None else (name, f"{name}.{quote_part(column)}")


def ruled(
    risks: Iterable[tuple[ItemKey, Risk]], blocked: Iterable[Blocked], approvals: Approvals
) -> list[Blocked]:
    """What is blocked once the policy had its say.

    ``blocked`` are the decisions that are missing without it; where a rule refuses, or asks for an
    approval that was not given, its entry takes the place of the missing decision.
    """
    entries = list(blocked)
    if not approvals.policy.rules:
        return entries
    found: dict[tuple[str, str | None, str], Blocked] = {}
    for key, risk in risks:
        entry = _judged(key, risk, approvals)
        if entry is not None:
            found.setdefault((str(key), risk.column, risk.kind), entry)
    kept: list[Blocked] = []
    for standing in entries:
        place = (standing.name, standing.column, UNDECIDED.get(standing.code, ""))
        kept.append(found.pop(place, standing))
    return [*kept, *found.values()]


def undecided(key: ItemKey, blocked: Iterable[Blocked]) -> Iterator[tuple[ItemKey, Risk]]:
    """The risks that the missing decisions on one object are about."""
    for entry in blocked:
        kind = UNDECIDED.get(entry.code)
        if kind is not None:
            yield key, Risk(kind, entry.reason, entry.column)


def _judged(key: ItemKey, risk: Risk, approvals: Approvals) -> Blocked | None:
    names = names_of(key, risk.column)
    rule = approvals.policy.judge(risk.kind, *names)
    if rule is None or rule.action == "allow":
        return None
    if rule.action == "refuse":
        return Blocked(
            str(key), POLICY_REFUSES, f"{risk.text}: refused by {rule}",
            "leave it as it is in the release, or have the rule changed by whoever keeps it",
            risk.column,
        )
    if approvals.given(key, risk.column):
        return None
    return Blocked(
        str(key), POLICY_ASKS, f"{risk.text}: needs an approval by {rule}",
        f"--approve {names[-1]}", risk.column,
    )
