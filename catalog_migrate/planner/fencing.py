"""Which release a start may bring in force: the history decides, so that pods cannot flip-flop."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from msgspec.structs import replace

from catalog_migrate.policy import Policy

if TYPE_CHECKING:
    from catalog_migrate.catalog.state import State
    from catalog_migrate.planner.plan import Migration
    from catalog_migrate.release.release import Release


def fenced_out(state: State, release: Release, policy: Policy) -> str | None:
    """Why this release must not be brought in force by a start, or None when it may.

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
    mine, theirs = version_of(release.name), version_of(in_force.name)
    if mine is not None and theirs is not None and mine < theirs:
        return (
            f"release {release.name} is older than {in_force.name}, which is in force{by_policy}"
        )
    return None


def with_fence(
    migration: Migration, state: State, release: Release, policy: Policy | None
) -> Migration:
    """The migration whose plan says so when its release is fenced out."""
    refusal = fenced_out(state, release, policy or Policy())
    if refusal is None:
        return migration
    return replace(migration, plan=replace(migration.plan, fenced_out=refusal))


def version_of(name: str) -> tuple[int, ...] | None:
    """The dotted number that a release name starts with (``v16.2`` -> (16, 2)), else None."""
    match = re.match(r"v?(\d+(?:\.\d+)*)", name)
    return tuple(int(part) for part in match[1].split(".")) if match else None
