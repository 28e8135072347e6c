"""What an earlier serial had, and the plan that leads back to it; a start carries it out.

What a rollback means object by object is in docs/rollback.md.
"""

from __future__ import annotations

from collections.abc import Collection

import msgspec

from catalog_migrate.catalog.history import Entry, entries, state_at
from catalog_migrate.catalog.log import CatalogLog
from catalog_migrate.catalog.opening import read_state
from catalog_migrate.catalog.state import State
from catalog_migrate.errors import UnknownSerial, UsageError
from catalog_migrate.model.paths import shard_path
from catalog_migrate.operations.kinds import MIGRATE, ROLLBACK
from catalog_migrate.planner.baseline import Baseline
from catalog_migrate.planner.earlier_state import Grown, Step, going_back, release_of
from catalog_migrate.planner.plan import Migration, Plan
from catalog_migrate.planner.planning import Sizes, plan_migration
from catalog_migrate.planner.policy_evaluation import with_fence
from catalog_migrate.policy import Policy
from catalog_migrate.release.release import Release


class Past(msgspec.Struct, frozen=True):
    """What an earlier serial had: its state and, of it, the release."""

    serial: int
    state: State
    release: Release


def read_past(log: CatalogLog, to: int | None = None, plan: Plan | None = None) -> Past:
    """What the catalog had at serial ``to``; None: before the newest migration of the release.

    Of a ``plan`` that is to be carried out the serial counts. Raises UnknownSerial, and UsageError
    where the plan leads elsewhere, where there is nothing to go back to, or where the newest change
    is itself a rollback, so that the same call twice never goes back and forth.
    """
    if plan is not None:
        planned = plan.target.serial
        if planned is msgspec.UNSET or to not in (None, planned):
            raise UsageError(
                "the plan is not one of a rollback to this serial",
                remedy="apply it as what it is, or plan the rollback again",
            )
        to = planned
    serial = default_serial(log) if to is None else to
    now = read_state(log)
    if serial > now.serial:
        raise UnknownSerial(
            f"the catalog never had serial {serial}: it is at {now.serial}",
            remedy="catalog-migrate history lists the serials", serial=serial, newest=now.serial,
        )
    state = state_at(log, serial)
    release = release_of(state)
    if release is None:
        first = now.release_in_force("release")
        if to is None and first is not None:
            raise UsageError(
                f"{first.name} is the first release; there is nothing to go back to",
                remedy="leave it in force, or bring in another release",
            )
        raise UsageError(
            f"no release was in force at serial {serial}",
            remedy="choose a later serial: catalog-migrate history lists them",
        )
    return Past(serial, state, release)


def default_serial(log: CatalogLog) -> int:
    """Return the serial before the newest migration of the software's release."""
    for entry in entries(log):
        if entry.serial_before in (None, entry.serial_after):
            continue
        if entry.verb == ROLLBACK:
            raise UsageError(
                f"the newest change is a rollback to serial {entry.rollback_to}",
                remedy=f"say where to: --to {entry.serial_before} undoes it, "
                "catalog-migrate history lists the others",
            )
        if entry.verb == MIGRATE and entry.serial_before is not None:
            return entry.serial_before
    raise UsageError(
        "there is no migration that could be taken back",
        remedy="catalog-migrate history lists what was"
    )


def steps_since(log: CatalogLog, past: Past, now: State) -> list[Step]:
    """The states from ``past`` (or what a rollback since went back to) up to ``now``, ascending."""
    raised: dict[int, Entry] = {}
    newest: dict[int, int] = {}
    oldest = past.serial
    for entry in entries(log, upto=now.version):
        newest.setdefault(entry.serial_after, entry.version)
        if entry.serial_before != entry.serial_after:
            raised[entry.serial_after] = entry
            if entry.rollback_to is not None and entry.serial_after > oldest:
                oldest = min(oldest, entry.rollback_to)
        if entry.serial_after < oldest:
            break
    relevant = _tables(past.state) | _tables(now) | _namesakes(past.state, now)
    steps: list[Step] = []
    targets = {each.rollback_to for each in raised.values()} | {past.serial}
    for serial in sorted(filter(oldest.__le__, newest)):
        by = raised.get(serial)
        state = {past.serial: past.state, now.serial: now}.get(serial)
        if state is None:
            if serial not in targets and by is not None and not _concerns(by, relevant):
                continue
            state = log.read_at(newest[serial])
        steps.append(Step(state, None if by is None else by.rollback_to))
    return steps


def _concerns(entry: Entry, item_ids: set[str]) -> bool:
    """Whether a change may be one of these items."""
    return (
        entry.items is None or entry.rollback_to is not None
        or not item_ids.isdisjoint(entry.items)
    )


def _tables(state: State) -> set[str]:
    return {
        row.item_id for row in state.mappings.values()
        if row.owner == "release" and row.kind == "table"
    }


def _namesakes(then: State, now: State) -> set[str]:
    """Tables of which nothing is left but a retired shard, made under the name of one of then."""
    places = {
        shard_path(row.schema, row.name, "").rstrip("/")
        for row in then.mappings.values() if row.kind == "table" and row.item_id not in now.items
    }
    return {
        record.item_id for path, record in now.shards.items()
        if places and record.retired_serial is not None and path.rpartition("/")[0] in places
    }


def plan_rollback(
    log: CatalogLog,
    past: Past,
    now: State,
    *,
    grown: Grown,
    sizes: Sizes,
    approve: Collection[str] = (),
    policy: Policy | None = None,
) -> Migration:
    """Return the plan that leads from ``now`` back to ``past``; writes nothing.

    ``grown`` and ``sizes`` look at shards by their relative paths and item ids.
    """
    back = going_back(steps_since(log, past, now), past.serial, grown)
    migration = plan_migration(
        Baseline.from_state(now, owner="release", uri=log.uri), past.release, approve=approve,
        sizes=sizes, policy=policy, back=back,
    )
    return with_fence(migration, now, past.release, going_back_by(policy))


def going_back_by(policy: Policy | None) -> Policy:
    """Return the policy of a rollback: it is meant, so that nothing but a rule refuses it."""
    return Policy(allow_downgrade=True, rules=policy.rules if policy is not None else ())
