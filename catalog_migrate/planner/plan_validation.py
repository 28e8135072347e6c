"""Adds to a plan what was seen outside the planner: views that bind, names and rows that stand.

And says of a plan that may not be carried out what stands in the way, and what cures it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import msgspec
from msgspec.structs import replace

from catalog_migrate.errors import DECISION_CODES, MigrationBlocked, StalePlan
from catalog_migrate.model.wording import counted
from catalog_migrate.planner.missing_data import MissingData
from catalog_migrate.planner.plan import Blocked, Migration, Plan, Unparsed, Unproven, Validation
from catalog_migrate.planner.planfile import AGAIN, plan_hash
from catalog_migrate.planner.policy_evaluation import USER_OBJECT_BREAKS

if TYPE_CHECKING:
    from catalog_migrate.planner.plan import Plan, Target
    from catalog_migrate.planner.proofs import TableExpression
    from catalog_migrate.release.release import Release


DOES_NOT_BIND = "CM0330"
DOES_NOT_HOLD = "CM0337"
NAME_HELD = "CM0331"
ROWS_GONE = "CM0332"
SCHEMA_REFUSED = "CM0333"
ROWS_REFUSED = "CM0335"


_ADOPT = "take a Delta table over, with its rows: catalog-migrate init --adopt --table {name}; or "
_FREE = "rename or drop what has the name {name}; it is never replaced"
_APART = (
    "give it another name or schema in one of the two releases, or start each in a session with a"
    " metastore of its own; what stands under {name} is never replaced"
)


class Proof(NamedTuple):
    """What Spark says of one text of an object: ``reason`` None when it accepts it.

    ``expression`` is there for a text of a table: what it is, in the words of the release.
    ``proven`` is False for one that Spark could not try.
    """

    name: str
    kind: str
    reason: str | None
    expression: TableExpression | None = None
    proven: bool = True

    def as_blocked(self, in_force: str | None) -> Blocked:
        """Return the entry for a text that Spark refuses; ``in_force`` is the release of OLD."""
        if self.expression is None and self.kind == "table":
            return Blocked(
                name=self.name, code=DOES_NOT_BIND,
                reason=f"FILLED FROM does not bind to what is in force: {self.reason}",
                remedy=f"correct FILLED FROM of {self.name}: it reads the names and columns of"
                f" release {in_force}, and gives one value for each column of the table",
            )
        if self.expression is None:
            what = "its body" if self.kind == "function" else "the column list"
            return Blocked(
                name=self.name, code=DOES_NOT_BIND,
                reason=f"the {self.kind} does not bind: {self.reason}",
                remedy=f"correct the SQL or {what} of {self.name} in the release",
            )
        each = self.expression
        return Blocked(
            name=self.name, code=DOES_NOT_HOLD,
            reason=f"{each.label} ({each.written}) cannot be in force: {self.reason}",
            remedy=_CURES[each.role].format(name=self.name),
            column=None if each.role == "check" else each.part,
        )


class RowsFound(NamedTuple):
    """What was found of the rows that a table is copied with.

    ``refused`` None: they could not be looked at.
    """

    target: Target
    refused: Sequence[RefusedPart] | None


class RefusedPart(NamedTuple):
    """A column or CHECK of a table, and why rows are refused for it, in words with their number."""

    column: str | None
    reason: str
    remedy: str


_CURES = {
    "check": "correct the CHECK of {name} in the release: a boolean expression over the columns of"
    " the table, by built-in functions that give the same result each time",
    "default": "write a constant of the column's type; an expression over the old columns of"
    " {name} is written USING",
    "generated": "correct the expression in the release: over columns of {name} that are not"
    " generated themselves, of exactly the column's type",
    "using": "correct the USING of {name} in the release: an expression over the columns that the"
    " table has now",
}


class Held(NamedTuple):
    """A name of the new state that something of others holds; what that is, in words.

    ``adoptable``: it is a table of no installation, and the release has a table there;
    ``of_another``: another installation made it.
    """

    name: str
    reason: str
    adoptable: bool
    of_another: bool = False

    @property
    def remedy(self) -> str:
        """What frees the name."""
        way = _APART if self.of_another else _FREE
        return ((_ADOPT if self.adoptable else "") + way).format(name=self.name)


def with_bodies(migration: Migration, release: Release, *, views: bool = True) -> Migration:
    """Return the migration once the SQL of every object that changes by itself was found to parse.

    ``views`` False: Spark's analyser is to read the queries. Raises InvalidRelease with every text
    that no Spark parses.
    """
    changed = {
        change.name for change in migration.plan.changes
        if change.action != "drop" and change.cause != "dependency"
    }
    if not changed:
        return migration
    from catalog_migrate.release.loader import require_bodies

    only = {
        entry.definition.identity for entry in release.written
        if str(entry.definition.key) in changed
    }
    unparsed = require_bodies(release, only, views=views)
    return replace(migration, plan=with_unparsed(migration.plan, unparsed))


def with_unparsed(plan: Plan, unparsed: Iterable[tuple[str, str, str]]) -> Plan:
    """Return the plan with the (object, kind, why) of each text that cannot be parsed here."""
    return replace(plan, unparsed=tuple(Unparsed(*each) for each in unparsed))


def with_proofs(migration: Migration, proofs: Sequence[Proof]) -> Migration:
    """Return the migration with the outcome of each proof; one that failed blocks its plan.

    ``bound`` says that all were tried where Spark could; the others stay unproven.
    """
    in_force = migration.plan.base.release
    blocked = [proof.as_blocked(in_force) for proof in proofs if proof.reason is not None]
    validations = [
        Validation(proof.name, proof.reason is None, proof.reason) for proof in proofs
    ]
    found = _extend(migration, blocked, validations, bound=True)
    unproven = tuple(
        Unproven(proof.name, proof.kind, f"{proof.expression.label} ({proof.expression.written})")
        for proof in proofs if not proof.proven and proof.expression is not None
    )
    return replace(found, plan=replace(found.plan, unproven=unproven))


def with_rows(migration: Migration, found: Sequence[RowsFound]) -> Migration:
    """The migration with every row that its table would not take; unseen ones are unproven."""
    blocked = [
        Blocked(
            str(each.target.definition.key), ROWS_REFUSED, part.reason, part.remedy,
            column=part.column,
        )
        for each in found for part in each.refused or ()
    ]
    unseen = tuple(
        Unproven(str(each.target.definition.key), "table", "FILLED FROM on its rows"
                 if each.target.fill is not None else "its rows")
        for each in found if each.refused is None
    )
    if blocked:
        migration = _extend(migration, blocked, (), bound=migration.plan.bound)
    left = migration.plan.unproven if migration.plan.bound else ()
    return replace(migration, plan=replace(migration.plan, unproven=(*left, *unseen)))


def with_foreign(migration: Migration, held: Sequence[Held]) -> Migration:
    """Return the migration with every name of the new state that something of others holds."""
    if not held:
        return migration
    blocked = [
        Blocked(
            name=each.name,
            code=NAME_HELD,
            reason=each.reason,
            remedy=each.remedy,
        )
        for each in held
    ]
    validations = [Validation(each.name, False, each.reason) for each in held]
    return _extend(migration, blocked, validations, bound=migration.plan.bound)


def with_sinks_asked(
    migration: Migration, said: Sequence[tuple[str, str, str | None]]
) -> Migration:
    """Return the migration with what schema registries say of sinks: (sink, in words, remedy).

    With a remedy it blocks the plan: a sink that comes with the release could not go on. A user's
    never does (I8).
    """
    if not said:
        return migration
    lines = (*migration.plan.shipments, *(line for _, line, _ in said))
    told = replace(migration, plan=replace(migration.plan, shipments=lines))
    blocked = [
        Blocked(name=name, code=SCHEMA_REFUSED, reason=line, remedy=remedy)
        for name, line, remedy in said if remedy is not None
    ]
    return _extend(told, blocked, (), bound=told.plan.bound) if blocked else told


def with_missing_data(migration: Migration, found: Sequence[MissingData]) -> Migration:
    """The migration with every table of the old state whose rows are not where they should be.

    But for one that goes: what is gone for good is given up by dropping it.
    """
    blocked = _by_missing_data(migration.plan, found)
    if not blocked:
        return migration
    return _extend(migration, blocked, (), bound=migration.plan.bound)


def with_unsupported_tables(migration: Migration, found: Sequence[Blocked]) -> Migration:
    """Return the migration with every table that it changes and that has what is not supported."""
    if not found:
        return migration
    return _extend(migration, found, (), bound=migration.plan.bound)


def with_rows_of_now(plan: Plan, found: Sequence[MissingData]) -> Plan:
    """Return a plan that was saved, blocked by rows that are missing since.

    Raises :class:`StalePlan` where it was made while other rows were gone:
    what it says of them does not hold any more.
    """
    blocked = _by_missing_data(plan, found)
    then = {each.name for each in plan.blocked if each.code == ROWS_GONE}
    if not then:
        return _plan_extended(plan, blocked, (), bound=plan.bound) if blocked else plan
    now = {each.name for each in blocked}
    if now == then:
        return plan
    raise StalePlan(
        "other rows can be seen now than when the plan was made",
        changes=(
            *(f"the rows of {name} are there again" for name in sorted(then - now)),
            *(f"the rows of {name} are missing since" for name in sorted(now - then)),
        ),
        remedy=AGAIN,
    )


def _by_missing_data(plan: Plan, found: Sequence[MissingData]) -> list[Blocked]:
    dropped = {change.name for change in plan.changes if change.action == "drop"}
    return [
        Blocked(each.name, ROWS_GONE, each.reason, each.remedy)
        for each in found if each.name not in dropped
    ]


def _extend(
    migration: Migration,
    blocked: Sequence[Blocked],
    validations: Sequence[Validation],
    *,
    bound: bool,
) -> Migration:
    return replace(
        migration, plan=_plan_extended(migration.plan, blocked, validations, bound=bound)
    )


def _plan_extended(
    before: Plan,
    blocked: Sequence[Blocked],
    validations: Sequence[Validation],
    *,
    bound: bool,
) -> Plan:
    plan = replace(
        before,
        validations=(*before.validations, *validations),
        blocked=(*before.blocked, *blocked),
        bound=bound,
        applyable=before.applyable and not blocked,
    )
    if blocked:  # proofs alone are not part of the hash
        plan = replace(plan, plan_hash=plan_hash(plan))
    return plan


_WRITE = "write what is listed into the release, or approve it at the call"


def blocked_error(plan: Plan) -> MigrationBlocked:
    """Return the error for ``plan``, its decisions told apart from what no approval cures."""
    back = plan.target.serial is not msgspec.UNSET
    decisions = {entry.code for entry in plan.blocked} & DECISION_CODES
    missing = sum(entry.code in decisions for entry in plan.blocked)
    obstacles = len(plan.blocked) - missing
    told = []
    if missing or not obstacles:
        told.append(f"{counted(missing, 'decision')} {'is' if missing == 1 else 'are'} missing")
    if obstacles:
        told.append(f"{counted(obstacles, 'obstacle')} that no approval cures")
    way = "approve what is listed at the call" if back or decisions == {USER_OBJECT_BREAKS} else (
        _WRITE
    )
    if obstacles:
        way = "do what is written below each entry" + (f"; {way}" if missing else "")
    return MigrationBlocked(f"{', '.join(told)}; nothing was touched", plan=plan, remedy=way)
