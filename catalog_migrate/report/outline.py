"""A plan sorted into the sections of a report; text, markdown and html only lay it out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime

import msgspec

from catalog_migrate.model.wording import (
    counted,
    describe_duration,
    describe_size,
    list_first,
)
from catalog_migrate.operations.steps import (
    PREPARE,
    describe_interruption,
    interruptions,
    number_steps,
)
from catalog_migrate.planner.plan import (
    Blocked,
    Change,
    ColumnChange,
    OptionChange,
    Plan,
    Replaced,
)
from catalog_migrate.planner.plan_validation import NAME_HELD
from catalog_migrate.planner.user_objects import list_user_decisions
from catalog_migrate.report.differences import (
    describe_clauses,
    list_changed_lines,
    list_differences,
)
from catalog_migrate.report.facts import list_base, list_making, schema_of
from catalog_migrate.report.program import describe_absences, list_waves
from catalog_migrate.report.report import (
    OWN_CHANGE,
    Decision,
    Difference,
    Edge,
    Entry,
    Node,
    Picture,
    Report,
    ReportObject,
    Risk,
    Section,
    find_sign,
    make_visible,
)
from catalog_migrate.report.user_objects import SHOWN, list_users, user_note
from catalog_migrate.report.verdict import (
    decisions,
    goes_back,
    list_failed_proofs,
    list_unparsed,
    losses,
    remedy_label,
    unproven_lines,
    unresolvable,
    verdict,
)

_ABSENT_SHOWN = 12
_STEPS_SHOWN = 20
_DEPENDENTS_SHOWN = 8
_MOVES = {
    "evolve": "rows stay where they are, metadata changes only",
    "copy": "rows are copied into a new table",
    "derived": "rows come from the application's populate callback",
    "fill": "rows are filled from the tables in force",
}

_Differences = Mapping[int, tuple[Difference, ...]]
"""Those of each change, by its ``id``: to compare long texts takes most of the time of a report."""


def outline(plan: Plan, *, at: datetime | None = None) -> Report:
    """Make the report of ``plan``; ``at`` is when it is made, None leaves that out.

    Empty sections are left out but for the losses, which say so. Each text is one line without
    control characters, whatever the names in the plan hold, but for those to be copied and the
    lines of a difference.
    """
    found = verdict(plan)
    waves = list_waves(plan.steps)
    differences = {id(change): list_differences(change) for change in plan.changes}
    if found.kind == "nothing":
        sections: tuple[Section, ...] = (_questions(plan),) if plan.questions else ()
    else:
        sections = (
            _fence(plan),
            _losses(plan),
            _happens(plan, differences),
            _users(plan),
            _no_return(plan),
            Section("Older versions of catalog-migrate", note=plan.locks_out),
            _questions(plan),
            _obstacles(plan),
            _decide(plan),
            _steps(plan, len(waves)),
            _absences(plan),
            _shipments(plan),
            Section("What is not touched", note=_unchanged_note(plan)),
            _validation(plan),
        )
    kept = (part for part in sections if part.entries or part.note or part.more)
    return make_visible(Report(
        title=f"Release {plan.target.release}: {found.word}",
        verdict=found,
        route=_route(plan),
        header=tuple(describe_plan(plan, at)),
        sections=tuple(kept),
        objects=_objects(plan, differences),
        decisions=tuple(_list_decisions(plan)),
        waves=waves,
        picture=_picture(plan),
    ))


def describe_plan(plan: Plan, at: datetime | None) -> Iterator[tuple[str, str]]:
    """Yield what a report is of, as labels and values, for one who finds it later."""
    base = plan.base
    yield from list_base(
        release=f"{base.release or 'none'} \u2192 {plan.target.release}",
        catalog=base.catalog, catalog_id=base.lineage, serial=base.serial,
    )
    yield "Plan hash", plan.plan_hash
    yield from list_making(plan.tool_version, at)


def _list_decisions(plan: Plan) -> Iterator[Decision]:
    """Yield obstacles and decisions; those on users' objects, of which there may be many, last."""
    of_users = set(list_user_decisions(plan))
    entries = (*unresolvable(plan), *decisions(plan))
    yield from (_decision(entry) for entry in entries if entry not in of_users)
    for proof in list_failed_proofs(plan):
        yield Decision(proof.name, "", proof.reason or "", "", "remedy")
    yield from (_decision(entry) for entry in entries if entry in of_users)


def _decision(entry: Blocked) -> Decision:
    return Decision(
        _where(entry.name, entry.column), entry.code, entry.reason,
        entry.remedy, remedy_label(entry),
    )


def _objects(plan: Plan, differences: _Differences) -> tuple[ReportObject, ...]:
    """Every object with an action, in the order of the plan, then the others by name."""
    absent = {
        **dict.fromkeys((each.name for each in plan.replaced), "for a moment, on a metastore"),
        **describe_absences(plan.steps),
    }
    waiting: dict[str, list[Decision]] = {}
    for entry in plan.blocked:
        waiting.setdefault(entry.name, []).append(_decision(entry))
    losing = {id(change): reasons for change, reasons in losses(plan)}
    became = _became(plan)
    changed = []
    for change in plan.changes:
        lost = losing.get(id(change), [])
        missing = tuple(waiting.get(change.name, ()))
        gone = absent.get(change.name) or absent.get(change.old_name or "", "")
        before = became.get(id(change))
        found = differences[id(change)]
        is_own = bool(found) and change.action not in ("create", "drop")
        changed.append(ReportObject(
            name=change.name,
            kind=change.kind,
            schema=schema_of(change.name),
            action=change.action,
            risk=_risk(missing, lost, gone),
            old_name=change.old_name,
            because=change.because,
            why=OWN_CHANGE if is_own else "",
            rows=_known_rows(change),
            bytes=change.bytes,
            files=change.files,
            seconds=change.seconds,
            moves=_moves(change),
            differences=found,
            lost=tuple(lost),
            absent=gone,
            decisions=missing,
            notes=() if before is None else (_former(before),),
        ))
    touched = {(change.kind, change.name) for change in plan.changes}
    others = [
        ReportObject(each.name, each.kind, schema_of(each.name), "unchanged")
        for each in plan.graph if (each.kind, each.name) not in touched
    ]
    return (*changed, *others)


def _risk(missing: Sequence[Decision], lost: Sequence[str], gone: str) -> Risk:
    """The worst that is to be said of an object."""
    risks: tuple[tuple[Risk, object], ...] = (
        ("blocked", any(each.verb != "write" for each in missing)), ("decide", missing),
        ("loses", lost), ("absent", gone), ("", True),
    )
    return next(risk for risk, is_there in risks if is_there)


def _picture(plan: Plan) -> Picture:
    """Who uses what before and after, with what the plan does to each."""
    actions = {
        (change.action == "drop", change.kind, change.name): change.action
        for change in plan.changes
    }
    edges: dict[tuple[int, int], list[bool]] = {}
    for user, each in enumerate(plan.graph):
        for side, uses in enumerate((each.old, each.new)):
            for used in uses or ():
                edges.setdefault((used, user), [False, False])[side] = True
    return Picture(
        tuple(
            Node(
                each.name, each.kind, schema_of(each.name),
                actions.get((each.new is None, each.kind, each.name), "unchanged"),
                each.old is not None, each.new is not None,
            )
            for each in plan.graph
        ),
        tuple(Edge(used, user, "", *sides) for (used, user), sides in sorted(edges.items())),
    )


def amount(change: Change) -> str:
    """Write ``1,204 rows, 3.4 MiB, 4 files``; empty when nothing is known."""
    parts = []
    rows = _known_rows(change)
    if rows is not None:
        parts.append(counted(rows, "row"))
    if change.bytes is not None:
        parts.append(describe_size(change.bytes))
    if change.files is not None:
        parts.append(counted(change.files, "file"))
    return ", ".join(parts)


def _known_rows(change: Change) -> int | None:
    return None if change.rows is None or change.rows < 0 else change.rows


def column_line(column: ColumnChange) -> str:
    """Write one column change in words."""
    if column.change == "added":
        not_null = " NOT NULL" if column.new_nullable is False else ""
        return f"column {column.name} added: {column.new_type}{not_null}"
    if column.change == "removed":
        return f"column {column.name} removed (was {column.old_type})"
    if column.change == "renamed":
        return f"column {column.old_name} renamed to {column.name}"
    if column.change == "retyped":
        return f"column {column.name}: {column.old_type} -> {column.new_type}"
    if column.change == "nullability":
        return f"column {column.name}: {'NOT NULL' if not column.new_nullable else 'NULL allowed'}"
    return f"column {column.name} moved"


def _route(plan: Plan) -> str:
    """Which release of which catalog leads to which."""
    base = plan.base.release or ("an empty catalog" if plan.base.serial is None else "no release")
    serial = f" (serial {plan.base.serial})" if plan.base.serial is not None else ""
    return f"from {base}{serial} to {plan.target.release}"


def _fence(plan: Plan) -> Section:
    """What to do about a release that may not be brought in force; empty for every other."""
    if plan.fenced_out is None:
        return Section("")
    title = "A start does nothing with this release"
    if plan.target.serial is not msgspec.UNSET:
        return Section(title, note="A rule of the policy refuses to go back; have it changed.")
    return Section(title, note=(
        f"Start the software of {plan.base.release}, which is in force. To bring back what the"
        " catalog had at an earlier serial: catalog-migrate rollback --to N (history lists them)."
        " To bring this release in force as it is, with the changes below, where no rule of the"
        " policy refuses that: plan and apply it with --allow-downgrade."
    ))


def _happens(plan: Plan, differences: _Differences) -> Section:
    """Roots by weight (bytes, rows, dependents), the dependents folded under them.

    A dependent whose rows move is never folded: that is work and risk of its own.
    """
    became = _became(plan)
    replaced = {id(before) for before in became.values()}
    roots = [
        change for change in plan.changes
        if change.cause != "dependency" and id(change) not in replaced
    ]
    folded: dict[str, list[Change]] = {}
    for change in plan.changes:
        if change.cause == "dependency":
            folded.setdefault(change.because[0] if change.because else "", []).append(change)
    entries: list[tuple[tuple[int, int, int, str], Entry]] = []
    for change in roots:
        below = folded.pop(change.name, []) or folded.pop(change.old_name or change.name, [])
        before = became.get(id(change))
        entry = _root(change, below, before, differences[id(change)])
        entries.append(((*_weight(change, below), change.name), entry))
    for root, below in folded.items():
        head = f"because of {root}" if root else "without a named cause"
        heaviest = (0, 0, -len(below), root)
        entries.append((heaviest, Entry(head, "*", tuple(_dependents(below)))))
    ordered = sorted(entries, key=lambda pair: pair[0])
    shown = tuple(entry for _, entry in ordered)
    return Section("What will happen", shown, _work(plan), part="objects")


def _root(
    change: Change, below: list[Change], before: Change | None, differences: Sequence[Difference]
) -> Entry:
    words, lines = _details(change, differences)
    details = [*words, *_dependents(below)]
    head, sign = _head(change), find_sign(change.action)
    if before is not None:
        head, sign = f"{change.name} ({change.kind}) create, {_former(before)}", "~"
        if change.kind == "table" and change.contents == "none":
            details.insert(0, f"starts empty: a {before.kind} has no rows of its own")
    return Entry(head, sign, tuple(details), tuple(lines))


def _became(plan: Plan) -> dict[int, Change]:
    """Drops of objects that go on as another kind (``WAS``), by the id() of what creates them.

    An item id is never given to a second object, so it is the same one.
    """
    gone = {change.item_id: change for change in plan.changes if change.action == "drop"}
    return {
        id(change): gone[change.item_id]
        for change in plan.changes
        if change.action == "create" and change.item_id is not None and change.item_id in gone
    }


def _former(before: Change) -> str:
    """``was the view shop.v``, with the rows that a table had."""
    held = amount(before)
    return f"was the {before.kind} {before.name}{': ' + held if held else ''}"


def _weight(change: Change, below: list[Change]) -> tuple[int, int, int]:
    """Sort key, heaviest first: bytes, rows, dependents."""
    rows, volume = _touched([change, *below])
    return -volume, -rows, -len(below)


def _touched(changes: Sequence[Change]) -> tuple[int, int]:
    """The known rows and bytes of some changes together."""
    return (
        sum(max(each.rows or 0, 0) for each in changes), sum(each.bytes or 0 for each in changes)
    )


def _head(change: Change) -> str:
    """``shop.orders (table) migrate, was shop.order``."""
    renamed = f", was {change.old_name}" if change.old_name else ""
    moved = change.contents in ("copy", "evolve", "derived", "fill")
    held = amount(change) if moved or change.action == "drop" else ""
    if change.contents == "copy" and change.seconds is not None:
        held += f", {describe_duration(change.seconds)}"
    return f"{change.name} ({change.kind}) {change.action}{renamed}{': ' + held if held else ''}"


def _work(plan: Plan) -> str | None:
    """What all copies together cost, where there is a measure for it."""
    copied = [change for change in plan.changes if change.contents == "copy"]
    measured = [change.seconds for change in copied if change.seconds is not None]
    if not measured:
        return None
    others = [change for change in copied if change.seconds is None]
    rows, volume = _touched(copied)
    some = "at least " if others else ""
    lacking = _unmeasured_note(others)
    apart = "" if len(measured) == 1 else " one after the other"
    return (
        f"{counted(len(copied), 'table')} {'is' if len(copied) == 1 else 'are'} copied:"
        f" {counted(rows, 'row')}, {describe_size(volume)},"
        f" {some}{describe_duration(sum(measured))}{apart}"
        f" by the last copies of this catalog{lacking}."
    )


def _unmeasured_note(others: Sequence[Change]) -> str:
    if not others:
        return ""
    largest = max(others, key=lambda change: change.bytes or 0).name
    several = f"{counted(len(others), 'table')}, the largest " if len(others) > 1 else ""
    return f"; no measure for {several}{largest}"


def _moves(change: Change) -> str:
    """What happens to the rows, and of a copy, why."""
    words = _MOVES.get(change.contents, "")
    return f"{words}: {'; '.join(change.copied_because)}" if change.copied_because else words


def _details(
    change: Change, differences: Sequence[Difference]
) -> tuple[list[str], list[str]]:
    """What changes in an object, in words and as lines of SQL."""
    lines = [_moves(change)] if change.contents in _MOVES else []
    if change.action != "create":
        lines += _column_lines(change)
    kept = change.before is not None and change.after is not None
    if kept:
        lines += describe_clauses(change, differences)
    word = "property" if change.kind in ("table", "view") else "option"
    lines += [
        f"{word} {option.name}: {option.change}"
        + (_set_to(option) if option.change == "set" else "")
        + (_of_feature(option, change) if change.kind == "table" else "")
        for option in change.options
    ]
    return lines, list_changed_lines(differences) if kept else []


def _column_lines(change: Change) -> Iterator[str]:
    swapped = _find_swapped(change)
    for new, old in swapped.items():
        if old < new:
            yield f"columns {old} and {new} swap their names"
    for column in change.columns:
        if column.change != "renamed" or column.name.lower() not in swapped:
            yield column_line(column)


def _of_feature(option: OptionChange, change: Change) -> str:
    """Which table feature comes with a property, or stays when it goes: not in a new table."""
    from catalog_migrate.model.table_properties import features_of

    brought = features_of(option.name, option.new)
    if brought:
        return f" (brings the table feature {', '.join(brought)})"
    is_new = change.contents in ("copy", "derived")
    left = () if is_new else features_of(option.name, option.old)
    return f" (UNSET leaves the table feature {', '.join(left)})" if left else ""


def _find_swapped(change: Change) -> dict[str, str]:
    """New name -> old name, folded, of columns that have each other's."""
    renamed = {
        column.name.lower(): (column.old_name or "").lower()
        for column in change.columns if column.change == "renamed"
    }
    return {new: old for new, old in renamed.items() if renamed.get(old) == new}


def _set_to(option: OptionChange) -> str:
    return f" to {option.new}" if option.old is None else f" {option.old} -> {option.new}"


def _dependents(below: list[Change]) -> list[str]:
    """``+ 37 dependents (30 views, 7 functions): s.a, s.b, … and 35 more``; before it
    those whose rows move."""
    lines = [
        f"{_head(change)} ({_moves(change)})"
        for change in below
        if change.contents in _MOVES
    ]
    rest = [change for change in below if change.contents not in _MOVES]
    if not rest:
        return lines
    kinds = Counter(change.kind.replace("_", " ") for change in rest)
    split = ", ".join(counted(number, kind) for kind, number in sorted(kinds.items()))
    shown = list_first([change.name for change in rest], _DEPENDENTS_SHOWN)
    return [*lines, f"+ {counted(len(rest), 'dependent')} ({split}): {', '.join(shown)}"]


def _losses(plan: Plan) -> Section:
    """Everything whose values do not all survive as they are, decided or not."""
    entries = []
    heaviest = sorted(losses(plan), key=lambda each: (*_weight(each[0], []), each[0].name))
    for change, reasons in heaviest:
        held = amount(change)
        head = f"{change.name}: {reasons[0]}" if len(reasons) == 1 else change.name
        details = () if len(reasons) == 1 else tuple(reasons)
        entries.append(Entry(f"{head}{f' ({held})' if held else ''}", "!", details))
    note = None if entries else "Nothing: every row and every value is kept."
    if note and set(decisions(plan)).difference(list_user_decisions(plan)):
        note = "Only what is listed below."
    elif note and goes_back(plan) and any(map(_loses_columns, plan.changes)):
        note += " No row was written since to the columns that go."
    return Section("What could be lost", tuple(entries), note)


def _loses_columns(change: Change) -> bool:
    return change.kind == "table" and any(each.change == "removed" for each in change.columns)


def _users(plan: Plan) -> Section:
    """What becomes of the views and functions of users that read what changes."""
    shown, rest = list_users(plan)
    return Section("Users' objects", shown, user_note(plan), len(rest), rest=rest)


def _obstacles(plan: Plan) -> Section:
    shown, more = _shorten(plan, unresolvable(plan))
    entries = [
        Entry(
            f"{_where(entry.name, entry.column)}: {entry.reason} [{entry.code}]", "!",
            (f"remedy: {entry.remedy}",) if entry.remedy else (),
        )
        for entry in shown
    ]
    entries += [
        Entry(f"{proof.name}: {proof.reason or 'validation failed'}", "!")
        for proof in list_failed_proofs(plan)
    ]
    return Section("What is in the way", tuple(entries), more=more, part="decisions")


def _decide(plan: Plan) -> Section:
    shown, more = _shorten(plan, decisions(plan))
    entries = tuple(
        Entry(
            f"{_where(entry.name, entry.column)}: {entry.reason} [{entry.code}]",
            "?",
            text=entry.remedy,
        )
        for entry in shown
    )
    note = "Nothing is touched until each of these is decided." if entries else None
    return Section("How to decide", entries, note, more, "decisions")


def _shorten(plan: Plan, blocked: Sequence[Blocked]) -> tuple[list[Blocked], int]:
    """The first ones of those on users' objects, of which there may be thousands, and all others.

    With the number of those left out.
    """
    of_users = set(list_user_decisions(plan))
    left_out = set([entry for entry in blocked if entry in of_users][SHOWN:])
    return [entry for entry in blocked if entry not in left_out], len(left_out)


def _questions(plan: Plan) -> Section:
    entries = []
    for question in plan.questions:
        old = question.old_name
        new = _where(question.name, question.column)
        entries.append(
            Entry(
                f"is {new} the former {old}?", "?", text=question.remedy, verb="if so, write"
            )
        )
    asked = {(entry.name, entry.column) for entry in plan.blocked}
    decides = any(
        asked & {(each.name, each.column), (each.name, each.old_name), (each.old_name, None)}
        for each in plan.questions
    )
    note = "If one is meant, its line also decides what is asked about both names."
    return Section("Probable renames, not guessed", tuple(entries), note if decides else None)


def _steps(plan: Plan, waves: int) -> Section:
    """The program, step by step; steps of one wave may go side by side."""
    if not plan.steps:
        return Section("Steps")
    shown = tuple(Entry(line, sign) for sign, line in number_steps(plan.steps, _STEPS_SHOWN))
    before = sum(step.phase == PREPARE for step in plan.steps)
    until = "before the commit, until which the old release stays in force."
    note = f"{counted(len(plan.steps), 'step')} in {counted(waves, 'wave')}" + (
        f"; {counted(before, 'step')} {until}" if before
        else ", all of them right after the commit."
    )
    more = len(plan.steps) - len(shown)
    return Section("Steps, in this order", shown, note, more, "steps")


def _absences(plan: Plan) -> Section:
    """Each dropped name in order, with the step that takes it away and the one that returns it."""
    drops = interruptions(plan.steps)
    creates = {step.name for step in plan.steps if step.op == "create"}
    standing = _count_in_place(plan, creates)
    if not drops and not standing and not plan.replaced:
        return Section("Which names are absent")
    meanwhile = sum(back is not None for *_, back in drops)
    notes = ["No name." if not drops else (
        f"{counted(len(drops), 'drop')} and {counted(len(creates), 'create')} among the steps;"
        f" {counted(meanwhile, 'name')} absent meanwhile,"
        f" {counted(len(drops) - meanwhile, 'name')} for good."
    )]
    if standing:
        verbs = ("is", "stays") if standing == 1 else ("are", "stay")
        notes.append(
            f"{counted(standing, 'table')} {verbs[0]} changed in place and {verbs[1]}"
            " registered all the time."
        )
    if plan.replaced:
        notes.append(
            f"{counted(len(plan.replaced), 'view')} {'is' if len(plan.replaced) == 1 else 'are'}"
            " replaced: on a metastore that is a drop and a create."
        )
    entries = [
        *(Entry(_interruption(*each), "-") for each in drops),
        *(Entry(_moment(each), "-") for each in plan.replaced),
    ]
    return _cut_section("Which names are absent, in this order", entries, " ".join(notes))


def _count_in_place(plan: Plan, creates: Collection[str]) -> int:
    """How many tables are changed without a step that creates them."""
    return 0 if not plan.steps else sum(
        change.kind == "table" and change.action in ("migrate", "redefine")
        and change.name not in creates
        for change in plan.changes
    )


def _cut_section(
    title: str, entries: Sequence[Entry], note: str | None, before: Sequence[Entry] = ()
) -> Section:
    """A section of which a page shows the rest on request; ``before`` is always shown."""
    rest = tuple(entries[_ABSENT_SHOWN:])
    return Section(title, (*before, *entries[:_ABSENT_SHOWN]), note, len(rest), rest=rest)


def _interruption(name: str, number: int, back: int | None) -> str:
    length = "" if back is None else f" ({counted(back - number, 'step')})"
    return f"{name}: {describe_interruption(number, back)}{length}"


def _moment(view: Replaced) -> str:
    """What a replaced view means for whoever reads it."""
    readers = list_first(view.readers, _DEPENDENTS_SHOWN)
    read = f", and what reads it fails: {', '.join(readers)}" if readers else ""
    return f"{view.name}: replaced; on a metastore absent for a moment{read}"


def _no_return(plan: Plan) -> Section:
    """From when on there is no way back."""
    point = plan.point_of_no_return
    title = "Point of no return"
    if point is None:
        return Section(title)
    sign = "!" if point.after == "commit" else ""
    shown = [Entry(name, sign) for name in point.names[:_ABSENT_SHOWN]]
    rest = tuple(Entry(name, sign) for name in point.names[_ABSENT_SHOWN:])
    if point.kept:
        number = counted(len(point.kept), "table")
        tables = f"and, seven days later, the old directories of {number}"
        shown.append(Entry(tables, details=point.kept[:_ABSENT_SHOWN]))
    return Section(title, tuple(shown), point.meaning or None, len(rest), rest=rest)


def _shipments(plan: Plan) -> Section:
    """What becomes of bundled connections, sources and sinks; a user's ALTER always stays."""
    return Section("Connections, sources and sinks", tuple(Entry(line) for line in plan.shipments))


def _unchanged_note(plan: Plan) -> str:
    return f"{counted(plan.summary.get('unchanged', 0), 'object')} unchanged."


def _validation(plan: Plan) -> Section:
    """What was proven, and object by object what only Spark can prove."""
    waiting = [Entry(line, "?") for line in unproven_lines(plan)]
    unparsed = [Entry(line, "!") for line in list_unparsed(plan)]
    return _cut_section("Validation", waiting, _proof(plan), unparsed)


def _proof(plan: Plan) -> str:
    if plan.bound:
        # a name that somebody else holds is a validation too, of whatever was to have it
        held = {(entry.name, entry.reason) for entry in plan.blocked if entry.code == NAME_HELD}
        tried = [each for each in plan.validations if (each.name, each.reason) not in held]
        if not tried:
            return "bound: nothing to try with Spark's analyser."
        bound = sum(1 for each in tried if each.ok)
        return (
            f"bound: Spark's analyser accepted {bound} and refused {len(tried) - bound} of the"
            " views, functions and expressions."
        )
    if goes_back(plan):
        return "not bound: the rollback tries its views with Spark's analyser before its commit."
    if not plan.unproven:
        return "not bound: nothing to try with Spark's analyser."
    return (
        "not bound: only Spark can prove what is listed; plan --bind does, and every start before"
        " its commit."
    )


def _where(name: str, column: str | None) -> str:
    return f"{name}.{column}" if column else name
