"""A report as text for a terminal: the verdict on the first line."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from catalog_migrate.model.wording import align
from catalog_migrate.report.report import Entry, Report

_COLORS = {
    "safe": "32", "nothing": "32", "unproven": "32", "losses": "33", "decisions": "33",
    "blocked": "31", "fenced": "31",
    "+": "32", "-": "31", "~": "33", "!": "31", "?": "33", "*": "36",
}


def lay_out_text(report: Report, *, color: bool = False, width: int = 100) -> str:
    """Lay ``report`` out in lines of at most ``width`` columns (40 at least), ending in a newline.

    Names longer than the width are never broken, so that they can be copied. ``color`` adds ANSI
    colours to the verdict and the signs.
    """
    width = max(width, 40)
    found = report.verdict
    first = found.line
    if color:
        first = _paint(found.word, found.kind) + found.line[len(found.word):]
    lines = [first, report.route]
    for section in report.sections:
        lines += ["", _paint(section.title, "title") if color else section.title]
        if section.note:
            lines += _wrap(section.note, "  ", "  ", width)
        lines += _table(section.table)
        for entry in section.entries:
            lines += _text_entry(entry, color, width)
        if section.more:
            lines.append(f"  … and {section.more:,} more (--format json lists all)")
    return "\n".join(lines) + "\n"


def _table(rows: Sequence[Sequence[str]]) -> list[str]:
    """Aligned columns, never broken; a column of numbers is flush right."""
    numbers = {
        place for place, column in enumerate(zip(*rows[1:], strict=True))
        if all(cell[:1] in "-0123456789" for cell in column)
    }
    return [f"  {line}".rstrip() for line in align(rows, right=numbers)]


def _text_entry(entry: Entry, color: bool, width: int) -> list[str]:
    lead = f"  {entry.sign} " if entry.sign else "  "
    lines = _wrap(entry.head, lead, " " * (len(lead) + 2), width)
    if color and entry.sign:
        lines[0] = f"  {_paint(entry.sign, entry.sign)} " + lines[0][len(lead):]
    for detail in entry.details:
        lines += _wrap(detail, " " * 6, " " * 8, width)
    lines += [f"      {line}".rstrip() for line in entry.lines]
    lead = f"      {entry.verb}: "
    lines += [
        f"{' ' * len(lead) if number else lead}{line}".rstrip()
        for number, line in enumerate(entry.text.splitlines())
    ]
    return lines


def _wrap(text: str, first: str, rest: str, width: int) -> list[str]:
    """Break at blanks only."""
    if len(first) + len(text) <= width:
        return [first + text]
    return textwrap.wrap(
        text, width, initial_indent=first, subsequent_indent=rest,
        break_long_words=False, break_on_hyphens=False,
    )


def _paint(text: str, what: str) -> str:
    return f"\x1b[{_COLORS.get(what, '1')}m{text}\x1b[0m"
