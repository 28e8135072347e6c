"""The policy applied: every risk of a plan is judged, and whether its release may come in force.

What may not be is blocked. Which release a start may bring in force the history decides too, so
that pods of two releases cannot undo each other.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace

from catalog_migrate.errors import UsageError
from catalog_migrate.model.names import ItemKey, quote_part
from catalog_migrate.planner.plan import Blocked
from catalog_migrate.policy import Policy

if TYPE_CHECKING:
    from catalog_migrate.catalog.state import State
    from catalog_migrate.planner.plan import Migration
    from catalog_migrate.release.release import Release

POLICY_REFUSES = "CM0308"
POLICY_ASKS = "CM0309"
USER_OBJECT_BREAKS = "CM0338"
USERS_DECISIONS = frozenset({POLICY_REFUSES, POLICY_ASKS, USER_OBJECT_BREAKS})
"""Codes of the decisions on users' objects; the first two are those of other risks as well."""

UNDECIDED = {
    "CM0301": "convert", "CM0302": "drop_column", "CM0304": "not_null", "CM0305": "drop_table",
    "CM0334": "start_empty", USER_OBJECT_BREAKS: "break_user_object",
}
"""Code of a missing decision -> the kind of risk that it is about."""

_APPROVAL_PART = re.compile(r"`((?:[^`]|``)+)`|([^`.\s]+)")


class Risk(NamedTuple):
    """One risk of a change: its kind (:data:`~catalog_migrate.policy.RISKS`) and what it is."""

    kind: str
    text: str
    column: str | None = None


def names_of(key: ItemKey, column: str | None) -> tuple[str, ...]:
    """Return what a rule's pattern may fit: the object's name, and the column's below it."""
    name = str(key.item_name)
    return (name,) if column is None else (name, f"{name}.{quote_part(column)}")


class Approvals:
    """What the caller allows: ``schema.table`` (all of it) or ``schema.table.column``.

    ``policy`` allows more by its rules. ``used`` collects what mattered, in canonical spelling, be
    it the caller's or the policy's: it belongs to the plan. Raises :class:`UsageError` for an entry
    that is neither.
    """

    __slots__ = ("_entries", "policy", "used")

    def __init__(self, entries: Collection[str] = (), policy: Policy | None = None) -> None:
        self._entries = frozenset(approval_parts(entry) for entry in entries)
        self.policy = policy or Policy()
        self.used: set[str] = set()

    def cover(self, risk: str, key: ItemKey, column: str | None = None) -> bool:
        """Return whether a loss of the object, or of one of its columns, is allowed; notes the use.

        ``risk`` is its kind, for the policy.
        """
        if self.is_given(key, column):
            return True
        names = names_of(key, column)
        if not self.policy.says("allow", risk, *names):
            return False
        self.used.add(names[-1])
        return True

    def bear(self, risk: str, key: ItemKey, column: str) -> bool:
        """Return whether a risk that the plan can avoid at a price is to be taken.

        It is unless the policy refuses it, or asks for an approval that was not given.
        """
        rule = self.policy.judge(risk, *names_of(key, column))
        if rule is None or rule.action == "allow":
            return True
        return rule.action == "approve" and self.is_given(key, column)

    def is_given(self, key: ItemKey, column: str | None = None) -> bool:
        """Return whether the caller approved it; notes the use."""
        name = (key.schema.lower(), key.name.lower())
        if name in self._entries:
            self.used.add(str(key.item_name))
            return True
        if column is not None and (*name, column.lower()) in self._entries:
            self.used.add(f"{key.item_name}.{quote_part(column)}")
            return True
        return False


def approval_parts(entry: str) -> tuple[str, ...]:
    """The names of an approval in small letters: schema, table, and a column; UsageError else."""
    parts: list[str] = []
    rest = "." + entry
    while rest.startswith(".") and (match := _APPROVAL_PART.match(rest, 1)):
        quoted, plain = match.groups()
        parts.append((quoted.replace("``", "`") if quoted is not None else plain).lower())
        rest = rest[match.end() :]
    if rest or len(parts) not in (2, 3):
        raise UsageError(
            f"{entry!r} is not an approval",
            remedy="write schema.table or schema.table.column, odd parts in backticks",
        )
    return tuple(parts)


def apply_policy(
    risks: Iterable[tuple[ItemKey, Risk]], blocked: Iterable[Blocked], approvals: Approvals
) -> list[Blocked]:
    """Return what is blocked once the policy had its say.

    ``blocked`` are the decisions that are missing without it; where a rule refuses, or asks for an
    approval that was not given, its entry takes the place of the missing decision.
    """
    entries = list(blocked)
    if not approvals.policy.rules:
        return entries
    found: dict[tuple[str, str | None, str], Blocked] = {}
    for key, risk in risks:
        entry = find_rule_against(key, risk, approvals)
        if entry is not None:
            found.setdefault((str(key), risk.column, risk.kind), entry)
    kept: list[Blocked] = []
    for standing in entries:
        place = (standing.name, standing.column, UNDECIDED.get(standing.code, ""))
        kept.append(found.pop(place, standing))
    return [*kept, *found.values()]


def risks_of_missing_decisions(
    key: ItemKey, blocked: Iterable[Blocked]
) -> Iterator[tuple[ItemKey, Risk]]:
    """Yield the risks that the missing decisions on one object are about."""
    for entry in blocked:
        kind = UNDECIDED.get(entry.code)
        if kind is not None:
            yield key, Risk(kind, entry.reason, entry.column)


def find_rule_against(key: ItemKey, risk: Risk, approvals: Approvals) -> Blocked | None:
    """The entry of a risk that a rule refuses, or asks a missing approval for; None for others."""
    names = names_of(key, risk.column)
    rule = approvals.policy.judge(risk.kind, *names)
    if rule is None or rule.action == "allow":
        return None
    if rule.action == "refuse":
        return Blocked(
            str(key), POLICY_REFUSES, f"{risk.text}: refused by {rule}",
            "leave it as it is in the release, or have the owner of the policy change the rule",
            risk.column,
        )
    if approvals.is_given(key, risk.column):
        return None
    return Blocked(
        str(key), POLICY_ASKS, f"{risk.text}: needs an approval by {rule}",
        f"--approve {names[-1]}", risk.column,
    )


def find_fence(state: State, release: Release, policy: Policy) -> str | None:
    """Return why this release must not be brought in force by a start, or None when it may.

    A name that was in force once and is not any more is fenced out, so that processes of two
    releases cannot undo each other; an unknown name whose version compares lower is refused too,
    unless a rule of the policy allows downgrades to it. A rule that refuses them stands above the
    call's own ``allow_downgrade``.
    """
    in_force = state.release_in_force("release")
    if in_force is None or in_force.name == release.name:
        return None
    rule = policy.judge("downgrade", release.name)
    refused = rule is not None and rule.action == "refuse"
    if policy.allow_downgrade and not refused:
        return None
    by_policy = f", and {rule}" if refused else ""
    if any(row.name == release.name and row.owner == "release" for row in state.releases):
        return (
            f"release {release.name} was replaced by {in_force.name} (serial {in_force.serial})"
            f"{by_policy}"
        )
    if rule is not None and rule.action == "allow":
        return None
    if not _is_older(release.name, in_force.name):
        return None
    return f"release {release.name} is older than {in_force.name}, which is in force{by_policy}"


def _is_older(name: str, other: str) -> bool:
    mine, theirs = version_of(name), version_of(other)
    return mine is not None and theirs is not None and mine < theirs


def with_fence(
    migration: Migration, state: State, release: Release, policy: Policy | None
) -> Migration:
    """The migration whose plan says so when its release is fenced out."""
    refusal = find_fence(state, release, policy or Policy())
    if refusal is None:
        return migration
    return replace(migration, plan=replace(migration.plan, fenced_out=refusal))


def version_of(name: str) -> tuple[int, ...] | None:
    """The dotted number that a release name starts with (``v16.2`` -> (16, 2)), else None."""
    match = re.match(r"v?(\d+(?:\.\d+)*)", name)
    return tuple(int(part) for part in match[1].split(".")) if match else None
