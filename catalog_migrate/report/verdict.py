"""The first line of every report: may this plan be applied, and if not, what is it waiting for.

And what a plan loses, which decides between SAFE and LOSSES DECIDED.
"""

from __future__ import annotations

from collections import Counter
from typing import Literal

import msgspec

from catalog_migrate.errors import DECISION_CODES, FencedOut, MigrationBlocked, UnknownType
from catalog_migrate.model.wording import counted, one_line
from catalog_migrate.planner.plan import Blocked, Change, ColumnChange, Plan, Validation

Kind = Literal["nothing", "safe", "unproven", "losses", "decisions", "blocked", "fenced"]

_DONE = (
    ("create", "created"),
    ("migrate", "migrated"),
    ("redefine", "redefined"),
    ("update", "updated"),
    ("refresh", "refreshed"),
    ("restart", "restarted"),
    ("drop", "dropped"),
)

_OUTCOMES: dict[str, tuple[str, str]] = {
    "breaks": ("breaks", "break"), "changed": ("changes", "change"),
    "unknown": ("unknown", "unknown"),
}
"""Outcomes for users' objects that the first line counts, in words for one and for several."""


class Verdict(msgspec.Struct, frozen=True):
    """Whether a plan may be applied.

    ``word`` is the fixed text a script may look for (``SAFE``, ``SAFE, NOT PROVEN``: no row is
    lost, and Spark has still to try what the report lists, ``LOSSES DECIDED``,
    ``BREAKS 2 USERS' OBJECTS``: no row is lost, and what others built over the release no longer
    binds, ``NEEDS 2 DECISIONS``, ``BLOCKED``, ``FENCED OUT``, ``NOTHING TO DO``), ``line`` the
    whole first line of a report, ``decisions`` how many texts are missing.
    """

    kind: Kind
    word: str
    line: str
    decisions: int = 0


def verdict(plan: Plan) -> Verdict:
    """Judge ``plan``: FENCED OUT when a later release is in force, whatever else is to be decided.

    BLOCKED when anything stands in the way that no decision cures; SAFE when nothing is lost.
    """
    return _find_obstacle(plan, len(decisions(plan))) or _describe_outcome(plan)


def _find_obstacle(plan: Plan, missing: int) -> Verdict | None:
    """What keeps a plan from being applied as it is."""
    if plan.fenced_out is not None:
        line = f"FENCED OUT: {one_line(plan.fenced_out)}"
        return Verdict("fenced", "FENCED OUT", line, missing)
    if unresolvable(plan) or list_failed_proofs(plan) or not (plan.applyable or missing):
        return Verdict("blocked", "BLOCKED", f"BLOCKED: {_describe_blocked(plan)}", missing)
    if missing:
        word = f"NEEDS {missing} DECISION{'S' if missing != 1 else ''}"
        return Verdict("decisions", word, f"{word}: {_counts(plan)}", missing)
    return None


def _describe_outcome(plan: Plan) -> Verdict:
    """What comes of a plan that may be applied."""
    if plan.only_release:  # told as a change: it is asked for and committed
        return Verdict(
            "safe", "SAFE", "SAFE: release "
            + one_line(f"{plan.base.release} goes out of force for {plan.target.release}")
            + ", no object changes",
        )
    if plan.is_noop:
        unchanged = plan.summary.get("unchanged", 0)
        return Verdict(
            "nothing", "NOTHING TO DO", f"NOTHING TO DO: {counted(unchanged, 'object')} unchanged"
        )
    if losing := len(losses(plan)):
        line = (
            f"LOSSES DECIDED: {_counts(plan)}; "
            f"rows or values of {counted(losing, 'table')} are lost or converted"
        )
        return Verdict("losses", "LOSSES DECIDED", line)
    if breaking := sum(each.outcome == "breaks" for each in plan.users or ()):
        word = "BREAKS 1 USER'S OBJECT" if breaking == 1 else f"BREAKS {breaking} USERS' OBJECTS"
        return Verdict("losses", word, f"{word}: {_counts(plan)}")
    if plan.unproven or any(each.outcome == "unknown" for each in plan.users or ()):
        return Verdict("unproven", "SAFE, NOT PROVEN", f"SAFE, NOT PROVEN: {_counts(plan)}")
    return Verdict("safe", "SAFE", f"SAFE: {_counts(plan)}")


def exit_code(plan: Plan, *, detailed: bool) -> int:
    """5 for a release that is fenced out, 3 for a plan that may not be applied, else 0.

    2 stands for pending changes where ``detailed`` asks for it.
    """
    if plan.fenced_out is not None:
        return FencedOut.exit_code
    if not plan.applyable or plan.blocked:
        return MigrationBlocked.exit_code
    return 2 if detailed and not plan.is_noop else 0


def decisions(plan: Plan) -> tuple[Blocked, ...]:
    """Return the blocked entries that a word in the release or an approval cures."""
    return tuple(entry for entry in plan.blocked if entry.code in DECISION_CODES)


def unresolvable(plan: Plan) -> tuple[Blocked, ...]:
    """Return the blocked entries that no decision cures."""
    return tuple(entry for entry in plan.blocked if entry.code not in DECISION_CODES)


def remedy_label(entry: Blocked) -> Literal["write", "remedy"]:
    """Return the word before the remedy of ``entry``: it is to be written, or to be done."""
    return "write" if entry.code in DECISION_CODES else "remedy"


def list_failed_proofs(plan: Plan) -> tuple[Validation, ...]:
    """Validations that failed and are not told, with their reason, by a blocked entry already."""
    return tuple(
        proof for proof in plan.validations
        if not proof.ok and not any(
            entry.name == proof.name and (proof.reason or "") in entry.reason
            for entry in plan.blocked
        )
    )


def list_unparsed(plan: Plan) -> list[str]:
    """Return a line for each text that cannot be parsed here, with what parses it."""
    return [
        f"{entry.name}: cannot parse {entry.reason}; "
        + ("--bind asks Spark" if entry.kind == "view" else "Spark reads it at the start")
        for entry in plan.unparsed
    ]


def unproven_lines(plan: Plan) -> list[str]:
    """Return what only Spark can prove, object by object."""
    by_object: dict[str, list[str]] = {}
    for each in plan.unproven:
        by_object.setdefault(each.name, []).append(each.what)
    return [f"{name}: {', '.join(parts)}" for name, parts in by_object.items()]


def change_counts(plan: Plan) -> str:
    """``1 created, 40 migrated; 168 unchanged``: what the summary counts, zeros left out."""
    parts = [
        f"{plan.summary[action]:,} {done}" for action, done in _DONE if plan.summary.get(action)
    ]
    return f"{', '.join(parts) or 'no changes'}; {plan.summary.get('unchanged', 0):,} unchanged"


def user_counts(plan: Plan) -> str:
    """``2 break, 3 change, 1 unknown``: what becomes of users' objects; empty where all go on."""
    number = Counter[str](each.outcome for each in plan.users or ())
    return ", ".join(
        f"{number[outcome]:,} {words[number[outcome] != 1]}"
        for outcome, words in _OUTCOMES.items() if number[outcome]
    )


def _counts(plan: Plan) -> str:
    """What changes, for users too, and whether that can be taken back."""
    point = plan.point_of_no_return
    final = point is not None and point.after == "commit"
    users = user_counts(plan)
    return (
        change_counts(plan)
        + (f"; users' objects: {users}" if users else "")
        + ("; no rollback past its commit" if final else "")
    )


def _describe_blocked(plan: Plan) -> str:
    """How much stands in the way, told apart by whether a decision would cure it."""
    obstacles = len(unresolvable(plan)) + len(list_failed_proofs(plan))
    if not obstacles:
        return "the plan says that it cannot be applied"
    verb = "stands" if obstacles == 1 else "stand"
    line = f"{counted(obstacles, 'obstacle')} {verb} in the way that no decision cures"
    missing = len(decisions(plan))
    return f"{line}; {counted(missing, 'decision')} missing besides" if missing else line


def losses(plan: Plan) -> list[tuple[Change, list[str]]]:
    """Return the changes that lose something, decided or not, with what it is."""
    told = ((change, list_losses(change, back=goes_back(plan))) for change in plan.changes)
    return [(change, reasons) for change, reasons in told if reasons]


def goes_back(plan: Plan) -> bool:
    """Return whether it leads to what the catalog had at an earlier serial."""
    return plan.target.serial is not msgspec.UNSET


def list_losses(change: Change, *, back: bool = False) -> list[str]:
    """Return why values of a table are not all kept as they are; empty for every other change.

    A plan that goes ``back`` names every loss as a risk: it takes what it can from old shards, and
    a column that goes loses nothing where no row was written since.
    """
    if change.risk is not None:
        in_place = change.contents == "evolve" and any(
            column.change == "removed" for column in change.columns
        )
        return [change.risk + (", in place: no rollback brings it back" if in_place else "")]
    if back or change.kind != "table" or change.contents not in {"copy", "evolve"}:
        return []  # a table without rows, and one that the application fills again, go without
    return [
        f"the values of column {column.name} go"
        if column.change == "removed"
        else f"column {column.name} becomes what the conversion to {column.new_type} makes of it"
        for column in change.columns
        if column.change == "removed" or (column.change == "retyped" and not _keeps(column))
    ]


def _keeps(column: ColumnChange) -> bool:
    """Whether every value of the old type is one of the new type."""
    from catalog_migrate.model.types import is_lossless

    if column.old_type is None or column.new_type is None:
        return False
    try:
        return is_lossless(column.old_type, column.new_type)
    except UnknownType:
        # a plan of a newer tool may hold a type that this one does not know: say so, not nothing
        return False
