"""What of one object a plan changes: its definition before and after, compared part by part."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice

from catalog_migrate.model.names import quote_part
from catalog_migrate.model.objects import Column, ObjectDefinition
from catalog_migrate.model.wording import list_first
from catalog_migrate.planner.plan import Change
from catalog_migrate.report.report import Aspect, Difference

COMPARED = 200_000
"""Characters of a text up to which its lines are compared; of a longer one the ends are shown."""

SQL: tuple[Aspect, ...] = ("query", "body", "definition", "filled from")
"""What of an object is SQL, of which lines are compared."""

ONLY_ENDS = "… only the ends of lines differ"

_LONG, _LONGEST = 100, 10_000
_CLAUSES = (
    r"SELECT|FROM|WHERE|GROUP\s+BY|HAVING|ORDER\s+BY|LIMIT|UNION|EXCEPT|INTERSECT|AND|OR|ON|WHEN|ELSE"
    r"|(?:(?:LEFT|RIGHT|FULL|INNER|CROSS|NATURAL|OUTER)\s+){0,3}JOIN"
)
_BREAK = re.compile(
    r"""(?P<quoted>'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|`[^`]*`)|(?<=,)\s+"""
    rf"""|(?<!\s)\s+(?=(?:{_CLAUSES})\b)""", re.IGNORECASE,
)
_CONTEXT = 2
_LINES = 8
_CLIPPED = 200
_FIELDS = ("sql", "body", "definition", "filled_from")


def list_differences(change: Change) -> tuple[Difference, ...]:
    """List what of the object differs, columns first; of a new or dropped one, all that it has.

    Empty where only what it depends on changes, and for a plan of format 1.3 or before, which has
    no definitions.
    """
    before, after = change.before, change.after
    if before is None and after is None:
        return ()
    return (
        *_columns(change),
        *_arguments(before, after),
        *_returns(before, after),
        *_single("partitioning", _names(before, "partitioned_by"), _names(after, "partitioned_by")),
        *_single("clustering", _names(before, "clustered_by"), _names(after, "clustered_by")),
        *_compare_named("check", _checks(before), _checks(after)),
        *_compare_named("property", _properties(before), _properties(after)),
        *_single("comment", _text(before, "comment"), _text(after, "comment")),
        *(
            difference
            for aspect, field in zip(SQL, _FIELDS, strict=True)
            for difference in _texts(aspect, _text(before, field), _text(after, field))
        ),
    )


def describe_column(column: Column) -> str:
    """Write a column's type, nullability, default and comment as SQL would, without its name."""
    parts = [column.type, *(() if column.nullable else ("NOT NULL",))]
    if column.generated is not None:
        parts.append(f"GENERATED ALWAYS AS ({column.generated})")
    if column.default is not None:
        parts.append(f"DEFAULT {column.default}")
    if column.comment is not None:
        parts.append(f"COMMENT {_quote(column.comment)}")
    return " ".join(parts)


def describe_clauses(change: Change, differences: Sequence[Difference]) -> list[str]:
    """Say in words what of a definition changes, but for columns' own changes and for its SQL."""
    lines = [
        _change(f"column {new.name} {clause}", old_text, new_text)
        for old, new in pair_columns(change) if old is not None and new is not None
        for clause, old_text, new_text in (
            ("DEFAULT", old.default, new.default),
            ("GENERATED ALWAYS AS", old.generated, new.generated),
            ("COMMENT", old.comment, new.comment),
        ) if old_text != new_text
    ]
    for each in differences:
        if each.aspect in ("partitioning", "clustering", "comment", "returns"):
            lines.append(_change(each.aspect, each.before, each.after))
        elif each.aspect in ("check", "argument"):
            word = "CHECK" if each.aspect == "check" else "argument"
            lines.append(_change(f"{word} {each.name}", each.before, each.after))
    return lines


def _change(what: str, before: str | None, after: str | None) -> str:
    """``… added: x``, ``… removed (was x)``, ``…: x -> y``."""
    if before is None:
        return f"{what} added: {_clip(after or '')}"
    if after is None:
        return f"{what} removed (was {_clip(before)})"
    return f"{what}: {_clip(before)} -> {_clip(after)}"


def _clip(text: str) -> str:
    return text if len(text) <= _CLIPPED else text[:_CLIPPED] + "…"


def list_changed_lines(differences: Sequence[Difference]) -> list[str]:
    """List the first lines of SQL that go and come, each text led by what it is."""
    found = []
    for each in differences:
        if each.aspect not in SQL:
            continue
        shown = list_first(
            [_clip(line) for line in _list_changed(each)], _LINES,
            "… and {:,} more lines (--format html has them)",
        )
        lead = f"{each.aspect}: "
        found += [
            f"{' ' * len(lead) if number else lead}{line}" for number, line in enumerate(shown)
        ]
    return found


def _list_changed(each: Difference) -> list[str]:
    """List what of a text goes and comes; all of one that is new or dropped."""
    if each.before is None or each.after is None:
        sign, text = ("+", each.after) if each.before is None else ("-", each.before)
        return [sign + line for line in (text or "").splitlines()]
    changed = [line for line in each.lines if line[:1] in "+-"]
    return changed or list(each.lines) or ["too long to be compared"]


def pair_columns(change: Change) -> Iterator[tuple[Column | None, Column | None]]:
    """Yield the columns before and after, matched: new ones in their order, then those that go."""
    before, after = change.before, change.after
    old = {} if before is None else {each.name.lower(): each for each in before.columns}
    former = {
        each.name.lower(): (each.old_name or "").lower()
        for each in change.columns if each.change == "renamed"
    }
    taken = set(former.values())
    continued = set[str]()
    for column in () if after is None else after.columns:
        name = column.name.lower()
        earlier = former.get(name, "" if name in taken else name)
        continued.add(earlier)
        yield old.get(earlier), column
    for name, column in old.items():
        if name not in continued:
            yield column, None


def _columns(change: Change) -> Iterator[Difference]:
    before, after = change.before, change.after
    moved = {each.name.lower() for each in change.columns if each.change == "moved"}
    for was, column in pair_columns(change):
        if was is None or column is None:
            if column is not None:
                yield Difference("column", column.name, None, describe_column(column))
            elif was is not None:
                yield Difference("column", was.name, describe_column(was), None)
            continue
        old, new = describe_column(was), describe_column(column)
        if was.name.lower() != column.name.lower():
            old, new = f"{quote_part(was.name)} {old}", f"{quote_part(column.name)} {new}"
        if old != new:
            yield Difference("column", column.name, old, new)
        if column.name.lower() in moved and before is not None and after is not None:
            places = before.columns.index(was) + 1, after.columns.index(column) + 1
            yield Difference("position", column.name, str(places[0]), str(places[1]))


def _arguments(
    before: ObjectDefinition | None, after: ObjectDefinition | None
) -> Iterator[Difference]:
    def describe(definition: ObjectDefinition | None) -> dict[str, str]:
        return {} if definition is None else {
            each.name: each.type
            + (f" DEFAULT {each.default}" if each.default is not None else "")
            + (f" COMMENT {_quote(each.comment)}" if each.comment is not None else "")
            for each in definition.arguments
        }

    old, new = describe(before), describe(after)
    yield from _compare_named("argument", old, new)
    kept = [name for name in old if name in new]
    if kept != [name for name in new if name in old]:
        yield Difference("argument", "order", ", ".join(old), ", ".join(new))


def _returns(
    before: ObjectDefinition | None, after: ObjectDefinition | None
) -> Iterator[Difference]:
    def describe(definition: ObjectDefinition | None) -> str | None:
        found = None if definition is None else definition.returns
        if found is None or isinstance(found, str):
            return found
        columns = (f"{quote_part(each.name)} {describe_column(each)}" for each in found)
        return f"TABLE ({', '.join(columns)})"

    return _single("returns", describe(before), describe(after))


def _names(definition: ObjectDefinition | None, field: str) -> str | None:
    names: tuple[str, ...] = () if definition is None else getattr(definition, field)
    return ", ".join(map(quote_part, names)) or None


def _checks(definition: ObjectDefinition | None) -> dict[str, str]:
    return {} if definition is None else {
        check.name: check.expression for check in definition.checks
    }


def _properties(definition: ObjectDefinition | None) -> Mapping[str, str]:
    return {} if definition is None else definition.properties


def _text(definition: ObjectDefinition | None, field: str) -> str | None:
    found: str | None = None if definition is None else getattr(definition, field)
    return found


def _compare_named(
    aspect: Aspect, before: Mapping[str, str], after: Mapping[str, str]
) -> Iterator[Difference]:
    for name in (*after, *(each for each in before if each not in after)):
        if before.get(name) != after.get(name):
            yield Difference(aspect, name, before.get(name), after.get(name))


def _single(aspect: Aspect, before: str | None, after: str | None) -> Iterator[Difference]:
    if before != after:
        yield Difference(aspect, "", before, after)


def _texts(aspect: Aspect, before: str | None, after: str | None) -> Iterator[Difference]:
    if before != after:
        yield Difference(aspect, "", before, after, compare_lines(before, after))


def compare_lines(before: str | None, after: str | None) -> tuple[str, ...]:
    """Compare two texts line by line, with some lines round each change.

    Each line begins with ``-``, ``+`` or a blank; ``…`` is where equal lines are left out, and says
    where nothing but the ends of lines differs. Empty where one side is absent, and where the texts
    are too long to be compared while a person waits.
    """
    if before is None or after is None or max(len(before), len(after)) > COMPARED:
        return ()
    old, new = before.splitlines(), after.splitlines()
    if old == new:
        return (ONLY_ENDS,)
    broken = break_lines(before), break_lines(after)
    if broken[0] != broken[1]:  # else blanks differ
        old, new = broken
    from difflib import unified_diff

    found = unified_diff(old, new, n=_CONTEXT, lineterm="")
    hunks = islice(found, 2, None)  # the names of files
    lines = ["…" if line.startswith("@@") else line for line in hunks]
    return tuple(lines[1:] if lines[:1] == ["…"] else lines)


def break_lines(text: str) -> list[str]:
    """Split SQL into lines to be compared: one long line is broken at commas and clauses.

    A query of many columns on one line would differ as a whole. Nothing in quotes is broken, but
    in a line so long that it is looked through only once, while a person waits.
    """
    lines = []
    for line in text.splitlines():
        start = 0
        if len(line) > _LONGEST:
            lines += line.replace(", ", ",\n").split("\n")
            continue
        if len(line) > _LONG:
            for found in _BREAK.finditer(line):
                if found["quoted"] is None:
                    lines.append(line[start:found.start()])
                    start = found.end()
        lines.append(line[start:])
    return lines


def _quote(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
