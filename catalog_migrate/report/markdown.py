"""A report as Markdown for a comment: below GitHub's limit, largest first, the rest counted."""

from __future__ import annotations

import re
from collections.abc import Sequence

from catalog_migrate.model.wording import list_first, visible
from catalog_migrate.report.report import Entry, Report, Section

LIMIT = 65_536
"""Characters a comment may have; a report has fewer."""

_RESERVE = 200
_DETAILS_SHOWN = 30
_MORE = "  - … and {:,} more\n"
_LINE_LIMIT = 2_000


def lay_out_markdown(report: Report) -> str:
    """Lay ``report`` out in fewer than :data:`LIMIT` characters.

    Each section gets an even share of what the ones before it left over; what does not fit is
    counted.
    """
    found = report.verdict
    head = f"**{found.word}**{_escape(found.line[len(found.word):])}\n"
    if report.route:
        head += f"\n{_escape(report.route)}\n"
    left = LIMIT - len(head) - 1
    parts = [head]
    for number, section in enumerate(report.sections):
        text = _markdown_section(section, left // (len(report.sections) - number))
        parts.append(text)
        left -= len(text)
    return "".join(parts)


def _markdown_section(section: Section, room: int) -> str:
    lines = [f"\n### {section.title}\n"]
    if section.note:
        lines.append(f"\n{_escape(section.note)}\n")
    if section.entries or section.table:
        lines.append("\n")
    used = sum(map(len, lines))
    shown = left = 0
    for number, row in enumerate(section.table):
        text = _row(row) + (_row(("---",) * len(row), escape=False) if number == 0 else "")
        if used + len(text) > room - _RESERVE:
            left = len(section.table) - number
            break
        lines.append(text)
        used += len(text)
    for entry in section.entries:
        text = _item(entry)
        if used + len(text) > room - _RESERVE:
            break
        lines.append(text)
        used += len(text)
        shown += 1
    rest = len(section.entries) - shown + left + section.more
    if rest:
        blank = "\n" if section.table else ""
        lines.append(f"{blank}- … and {rest:,} more\n")
    return "".join(lines)


def _row(cells: Sequence[str], *, escape: bool = True) -> str:
    return f"| {' | '.join(_escape(_clip(cell)) if escape else cell for cell in cells)} |\n"


def _item(entry: Entry) -> str:
    lines = [f"- {_mark(entry.sign)}{_escape(_clip(entry.head))}\n"]
    details = [f"  - {_escape(_clip(detail))}\n" for detail in entry.details]
    lines += list_first(details, _DETAILS_SHOWN, _MORE)
    lines += _verbatim(entry.lines)
    lines += _verbatim(entry.text.splitlines(), f"{_escape(entry.verb)}: ")
    return "".join(lines)


def _verbatim(lines: Sequence[str], lead: str = "") -> list[str]:
    """Lines as code, ``lead`` before the first; blank ones say nothing."""
    written = [line for line in map(_clip, lines) if line.strip()]
    found = [
        f"  - {'' if number else lead}{_code(line)}\n" for number, line in enumerate(written)
    ]
    return list_first(found, _DETAILS_SHOWN, _MORE)


def _mark(sign: str) -> str:
    return f"`{sign}` " if sign.strip() else ""


def _clip(text: str) -> str:
    """One line of bearable length: a line break would end the list item."""
    text = visible(" ".join(text.splitlines()))
    return text if len(text) <= _LINE_LIMIT else text[:_LINE_LIMIT] + "…"


def _code(text: str) -> str:
    """A code span that may hold backticks itself: its fence is longer than any run of them."""
    fence = "`" * (1 + max(map(len, re.findall("`+", text)), default=0))
    blank = " " if text.startswith("`") or text.endswith("`") else ""
    return f"{fence}{blank}{text}{blank}{fence}"


def _escape(text: str) -> str:
    """Names and reasons as they are: nothing in them may start markup."""
    text = visible(text)
    for mark in "\\`*_<>|[]&~":
        text = text.replace(mark, "\\" + mark)
    return text
