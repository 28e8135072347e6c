"""A plan's outline laid out: text for a terminal, markdown for a pull request, an HTML page."""

from __future__ import annotations

import html
import re
import textwrap

from catalog_migrate.errors import InvalidRelease, Problem
from catalog_migrate.model.wording import one_line, visible
from catalog_migrate.planner.plan import Plan
from catalog_migrate.report.outline import GOES_ON, Entry, Outline, Section, outline

# -- text: verdict on the first line ---------------------------------------------------------------
_COLORS = {
    "safe": "32", "nothing": "32", "unproven": "32", "losses": "33", "decisions": "33",
    "blocked": "31", "fenced": "31",
    "+": "32", "-": "31", "~": "33", "!": "31", "?": "33", "*": "36",
}


def render_text(plan: Plan, *, color: bool = False, width: int = 100) -> str:
    """The report of ``plan``, ending in a newline; lines are at most ``width`` columns.

    Names longer than the width are never broken, so that they can be copied. ``color`` adds ANSI
    colours to the verdict and the signs.
    """
    return _lay_out(outline(plan), color, max(width, 40))


def _lay_out(report: Outline, color: bool, width: int) -> str:
    found = report.verdict
    first = found.line
    if color:
        first = _paint(found.word, found.kind) + found.line[len(found.word):]
    lines = [first, report.route]
    for section in report.sections:
        lines += ["", _paint(section.title, "title") if color else section.title]
        if section.note:
            lines += _wrap(section.note, "  ", "  ", width)
        for entry in section.entries:
            lines += _text_entry(entry, color, width)
        if section.more:
            lines.append(f"  … and {section.more:,} more (--format json lists all)")
    return "\n".join(lines) + "\n"


def _text_entry(entry: Entry, color: bool, width: int) -> list[str]:
    lead = f"  {entry.sign} " if entry.sign else "  "
    lines = _wrap(entry.head, lead, " " * (len(lead) + 2), width)
    if color and entry.sign:
        lines[0] = f"  {_paint(entry.sign, entry.sign)} " + lines[0][len(lead):]
    for detail in entry.details:
        lines += _wrap(detail, " " * 6, " " * 8, width)
    return lines


def _wrap(text: str, first: str, rest: str, width: int) -> list[str]:
    """Break at blanks only; text that is to be copied (it has two blanks in a row) stays whole."""
    if len(first) + len(text) <= width or "  " in text:
        return [first + text]
    return textwrap.wrap(
        text, width, initial_indent=first, subsequent_indent=rest,
        break_long_words=False, break_on_hyphens=False,
    )


def _paint(text: str, what: str) -> str:
    return f"\x1b[{_COLORS.get(what, '1')}m{text}\x1b[0m"


# -- markdown: below GitHub's limit, largest first, the rest counted -------------------------------
LIMIT = 65_536
"""Characters a comment may have; a report has fewer."""

_RESERVE = 200
_DETAILS_SHOWN = 30
_LINE_LIMIT = 2_000


def render_markdown(plan: Plan, *, limit: int = LIMIT) -> str:
    """The report of ``plan`` in fewer than ``limit`` characters.

    Each section gets an even share of what the ones before it left over; what does not fit is
    counted. ``limit`` is taken as at least 4,000.
    """
    report = outline(plan)
    found = report.verdict
    head = f"**{found.word}**{_escape(found.line[len(found.word):])}\n\n{_escape(report.route)}\n"
    left = max(limit, 4_000) - len(head) - 1
    parts = [head]
    for number, section in enumerate(report.sections):
        text = _markdown_section(section, left // (len(report.sections) - number))
        parts.append(text)
        left -= len(text)
    return "".join(parts)


def problems_in_markdown(error: InvalidRelease, *, limit: int = LIMIT) -> str:
    """Everything that is wrong with a release, in fewer than ``limit`` characters."""
    parts = [f"**INVALID**: {_escape(error.message)}\n\n"]
    if error.remedy and not error.problems:
        parts.append(f"{_escape(error.remedy)}\n")
    used = sum(map(len, parts))
    for number, problem in enumerate(error.problems):
        text = _item(Entry(_place(problem), "!", _cure(problem)))
        if used + len(text) > max(limit, 4_000) - _RESERVE:
            parts.append(f"- … and {len(error.problems) - number:,} more\n")
            break
        parts.append(text)
        used += len(text)
    return "".join(parts)


def _place(problem: Problem) -> str:
    place = ":".join(
        str(part) for part in (problem.file, problem.line, problem.column) if part is not None
    )
    told = f"{problem.message} [{problem.code}]"
    return f"{place}: {told}" if place else told


def _cure(problem: Problem) -> tuple[str, ...]:
    return (f"remedy: {problem.remedy}",) if problem.remedy else ()


def _markdown_section(section: Section, room: int) -> str:
    lines = [f"\n### {section.title}\n"]
    if section.note:
        lines.append(f"\n{_escape(section.note)}\n")
    if section.entries:
        lines.append("\n")
    used = sum(map(len, lines))
    shown = 0
    for entry in section.entries:
        text = _item(entry)
        if used + len(text) > room - _RESERVE:
            break
        lines.append(text)
        used += len(text)
        shown += 1
    rest = len(section.entries) - shown + section.more
    if rest:
        lines.append(f"- … and {rest:,} more\n")
    return "".join(lines)


def _item(entry: Entry) -> str:
    lines = [f"- {_mark(entry.sign)}{_escape(_clip(entry.head))}\n"]
    shown = entry.details[:_DETAILS_SHOWN]
    for detail in shown:
        key, colon, value = _clip(detail).partition("write: ")
        if colon:
            lines.append(f"  - {_escape(key)}write: {_code(value)}\n")
        elif detail.startswith(GOES_ON):
            lines += [f"  - {_code(_clip(detail).strip())}\n"] if detail.strip() else []
        else:
            lines.append(f"  - {_escape(key)}\n")
    if len(entry.details) > len(shown):
        lines.append(f"  - … and {len(entry.details) - len(shown):,} more\n")
    return "".join(lines)


def _mark(sign: str) -> str:
    return f"`{sign}` " if sign else ""


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


# -- HTML: one page without outside references -----------------------------------------------------
_STYLE = (
    "body{font:15px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}"
    "code,.sign{font-family:ui-monospace,monospace}"
    ".safe,.nothing,.unproven{color:#17692e}.losses,.decisions{color:#8a5a00}.blocked,.fenced{color:#a31515}"
    "@media (prefers-color-scheme:dark){body{background:#111;color:#ddd}"
    ".safe,.nothing,.unproven{color:#6c6}.losses,.decisions{color:#eb5}.blocked,.fenced{color:#f77}}"
)


def render_html(plan: Plan) -> str:
    """The report of ``plan`` as a page without scripts or outside references."""
    report = outline(plan)
    found = report.verdict
    title = html.escape(one_line(f"Release {plan.target.release}: {found.word}"))
    parts = [
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n',
        f"<title>{title}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n",
        f'<h1 class="{found.kind}">{html.escape(found.line)}</h1>\n',
        f"<p>{html.escape(report.route)}</p>\n",
        *(_html_section(section) for section in report.sections),
        "</body>\n</html>\n",
    ]
    return "".join(parts)


def _html_section(section: Section) -> str:
    lines = [f"<h2>{html.escape(section.title)}</h2>\n"]
    if section.note:
        lines.append(f"<p>{html.escape(section.note)}</p>\n")
    if section.entries or section.more:
        lines.append("<ul>\n")
        for entry in section.entries:
            sign = f'<span class="sign">{html.escape(entry.sign)}</span> ' if entry.sign else ""
            details = "".join(
                f"<li><code>{html.escape(line)}</code></li>" for line in entry.details
            )
            below = f"<ul>{details}</ul>" if details else ""
            lines.append(f"<li>{sign}{html.escape(entry.head)}{below}</li>\n")
        if section.more:
            lines.append(f"<li>… and {section.more:,} more</li>\n")
        lines.append("</ul>\n")
    return "".join(lines)
