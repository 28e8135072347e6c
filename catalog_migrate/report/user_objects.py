"""What a plan says of users' views and functions: what breaks first, the untouched counted."""

from __future__ import annotations

from collections import Counter

import msgspec

from catalog_migrate.model.wording import counted
from catalog_migrate.planner.plan import Plan, UserColumn, UserObject
from catalog_migrate.planner.user_objects import describe_break, without_decisions
from catalog_migrate.report.report import Entry

SHOWN = 30
"""How many of each outcome are listed; the others are counted."""

_COLUMNS_SHOWN = 12
_LINES_SHOWN = 12
_TEXT_SHOWN = 1_000
_ORDER = (
    ("breaks", "!", ("breaks", "break")),
    ("changed", "~", ("changes", "change")),
    ("unknown", "?", ("could not be looked at",) * 2),
    ("broken", "", ("did not bind before either",) * 2),
)
_UNTOUCHED = ("unchanged", "", ("goes on untouched", "go on untouched"))


def user_note(plan: Plan, verb: str = "plan") -> str | None:
    """Return how many users' objects read what changes, and what becomes of them.

    None where the plan is for no catalog that could have any. Else that the catalog was not looked
    at, if a change is of what may have been read; ``verb`` is the one whose ``--bind`` looks.
    """
    if plan.users is msgspec.UNSET:
        return None
    if plan.users is None:
        if all(change.action == "create" for change in plan.changes):
            return None
        if plan.target.serial is not msgspec.UNSET:
            return "Not looked at: rollback --bind does, and every rollback before its commit."
        first = "" if plan.bound else f"{verb} --bind does, and "
        return f"Not looked at: {first}every start before its commit."
    number = Counter[str](each.outcome for each in plan.users)
    unknown = number.pop("unknown", 0)
    found = [
        f"{number[outcome]:,} {words[number[outcome] != 1]}"
        for outcome, _, words in (*_ORDER, _UNTOUCHED) if number[outcome]
    ]
    reading = number.total()
    if reading:
        verb = "reads" if reading == 1 else "read"
        said = f"{reading:,} of users' views and functions {verb} what changes: {', '.join(found)}."
    else:
        seen = " that could be looked at" if unknown else ""
        said = f"No view or function of a user{seen} reads what changes."
    return said if not unknown else f"{said} {unknown:,} could not be looked at."


def is_blocked_by_users(plan: Plan) -> bool:
    """Return whether decisions on users' objects are all that a plan waits for."""
    return not plan.applyable and without_decisions(plan).applyable


def list_users(plan: Plan) -> tuple[tuple[Entry, ...], tuple[Entry, ...]]:
    """List the users' objects that do not go on untouched: those to show, and the others."""
    shown: list[Entry] = []
    rest: list[Entry] = []
    for outcome, sign, words in _ORDER:
        found = sorted(
            (each for each in plan.users or () if each.outcome == outcome),
            key=lambda each: each.name,
        )
        entries = [_describe(each, sign, words[0]) for each in found]
        shown += entries[:SHOWN]
        rest += entries[SHOWN:]
    return tuple(shown), tuple(rest)


def _describe(user: UserObject, sign: str, words: str) -> Entry:
    kind = f" ({user.kind})" if "." in user.name else ""  # a schema that could not be listed
    head = f"{user.name}{kind} {words}"
    details = []
    if user.outcome in ("breaks", "broken"):
        head += f": {describe_break(user)}"
    elif user.reason is not None:
        head += f": {user.reason}"
    if len(user.because) > 1:
        details.append(f"because: {' -> '.join(user.because)}")
    details += [_describe_column(each) for each in user.columns[:_COLUMNS_SHOWN]]
    if len(user.columns) > _COLUMNS_SHOWN:
        details.append(f"… and {counted(len(user.columns) - _COLUMNS_SHOWN, 'column')} more")
    if user.remedy is not None:
        details.append(f"remedy: {user.remedy}")
    return Entry(head, sign, tuple(details), text=_text_of(user))


def _text_of(user: UserObject) -> str:
    """The beginning of the statement that has it bind again, line by line; empty without one."""
    if user.repaired is None:
        return ""
    text = f"ALTER VIEW {user.name} AS {user.repaired}" if user.kind == "view" else user.repaired
    shown = text[:_TEXT_SHOWN].splitlines()
    if len(text) <= _TEXT_SHOWN and len(shown) <= _LINES_SHOWN:
        return text
    return "\n".join((*shown[:_LINES_SHOWN], "… (--format json has all of it)"))


def _describe_column(column: UserColumn) -> str:
    name, old, new = column.name, column.old, column.new
    if column.change == "added":
        return f"column {name} added" + (f": {new}" if new else "")
    if column.change == "removed":
        return f"column {name} removed" + (f" (was {old})" if old else "")
    if column.change == "cast":
        return f"column {name} stays {old}: values of {new} are cast to it"
    if column.change == "moved":
        return f"column {name} moved" + (f" from place {old} to {new}" if old and new else "")
    if column.change == "meaning":
        return f"column {name} means something else" + (f": {old} -> {new}" if old or new else "")
    return f"column {name}: {old} -> {new}"
