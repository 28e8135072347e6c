"""A report as one HTML file: without network and libraries, and with script only for what is long.

What must not be overlooked (verdict, losses, decisions, every section, the first drawing of the
graph, the waves) is HTML. Table and panels are made by ``page/page.js`` from a block of JSON,
since ten thousand of them are too much to lay out at once.
"""

from __future__ import annotations

import hashlib
import html
from base64 import b64encode
from collections.abc import Iterator, Sequence
from importlib.resources import files

from catalog_migrate.model.wording import counted, one_line, visible
from catalog_migrate.report.page_data import encode_data
from catalog_migrate.report.report import Decision, Entry, Part, Report, Section, Wave
from catalog_migrate.report.svg import draw_picture, encode_picture
from catalog_migrate.report.verdict import Verdict

DECISIONS_SHOWN = 100
WAVES_SHOWN = 60
STEPS_SHOWN = 12
"""How many are HTML; the script shows the others when it is asked to."""

ENTRIES_SHOWN = 500
"""How many of those that a text only counts a section lists."""

ENTRIES_IN_ROWS = 12
"""More than so many lines without a word below them stand in columns."""

_TOLD = 60
"""So many characters of a text are in the name of the button that copies it."""

_SIGNS = {
    "+": "created", "-": "dropped", "~": "changed", "*": "updated", "!": "attention",
    "?": "open question",
}

_Piece = tuple[str, str, int, str]
"""Anchor, title and number of things (0: not said) for the contents, and the HTML."""


def lay_out_page(report: Report, *, drawing: str = "") -> str:
    """Lay ``report`` out as a page that shows all of it, and runs nothing of what is in it.

    ``drawing`` is an SVG of its program, which is above the waves.
    """
    script = f"{_read('graph.js')}\n{_read('page.js')}"
    pieces = list(_pieces(report, drawing))
    return "".join((
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n',
        f'<meta http-equiv="Content-Security-Policy" content="{_policy(script)}">\n',
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n',
        '<meta name="color-scheme" content="light dark">\n',
        f"<title>{_text(report.title)}</title>\n<style>\n{_read('page.css')}</style>\n</head>\n",
        '<body>\n<a class="skip" href="#main">Skip to the report</a>\n',
        f'<header class="top">\n<p class="route">{_text(report.route)}</p>\n',
        f"<h1>{_text(report.title.removesuffix(f': {report.verdict.word}'))}</h1>\n",
        _verdict(report.verdict),
        _header(report),
        "</header>\n",
        _contents(pieces),
        '<main id="main" tabindex="-1">\n',
        *(text for *_, text in pieces),
        "</main>\n",
        "<footer>\n<p>This file loads nothing and sends nothing. All of it, uncut, is in"
        " <code>--format json</code>.</p>\n</footer>\n",
        '<p id="live" class="unseen" role="status" aria-live="polite"></p>\n',
        _json("data", encode_data(
            report, decisions=DECISIONS_SHOWN, waves=WAVES_SHOWN, steps=STEPS_SHOWN,
        )),
        _json("picture", encode_picture(report.picture)),
        f"<script>{script}</script>\n</body>\n</html>\n",
    ))


def _read(name: str) -> str:
    return (files("catalog_migrate.report") / "page" / name).read_text(encoding="utf-8")


def _policy(script: str) -> str:
    """Nothing is loaded, and no script runs but the one whose hash this is."""
    digest = b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return (
        "default-src 'none'; base-uri 'none'; form-action 'none'; style-src 'unsafe-inline';"
        f" script-src 'sha256-{digest}'"
    )


def _json(name: str, text: str) -> str:
    """Data beside the page; both encoders leave nothing in it that ends the element."""
    return f'<script type="application/json" id="{name}">{text}</script>\n'


def _text(text: str) -> str:
    return html.escape(visible(text))


def _verdict(verdict: Verdict) -> str:
    """The first line of the text; nothing for a picture, which is no plan."""
    if not verdict.word:
        return ""
    line = verdict.line.removeprefix(verdict.word).removeprefix(": ")
    return (
        f'<p class="verdict {verdict.kind}"><strong>{_text(verdict.word)}</strong>'
        f" <span>{_text(line)}</span></p>\n"
    )


def _header(report: Report) -> str:
    if not report.header:
        return ""
    rows = "".join(
        f"<div><dt>{_text(label)}</dt><dd>{_text(value)}</dd></div>\n"
        for label, value in report.header
    )
    return f'<dl class="facts">\n{rows}</dl>\n'


def _contents(pieces: Sequence[_Piece]) -> str:
    if len(pieces) < 2:
        return ""
    links = "".join(
        f'<li><a href="#{anchor}">{_text(title.partition(",")[0])}'
        + (f' <span class="count">{number:,}</span>' if number else "") + "</a></li>\n"
        for anchor, title, number, _ in pieces
    )
    return f'<nav class="contents" aria-label="Contents">\n<ul>\n{links}</ul>\n</nav>\n'


def _pieces(report: Report, drawing: str) -> Iterator[_Piece]:
    """The sections in their order, those with a part of the page as that part.

    Graph and objects come before the program: what precedes it is what is to be read first.
    """
    parts: dict[Part, list[_Piece]] = {
        "decisions": list(_decisions(report)),
        "objects": [*_graph(report), *_objects(report)],
        "steps": list(_program(report, drawing)),
    }
    shown = {part for part, pieces in parts.items() if pieces}
    for number, section in enumerate(report.sections, start=1):
        if section.part == "steps":
            yield from parts.pop("objects", ())
        if section.part not in shown:
            yield _section(section, f"section-{number}")
        elif section.part != "objects":
            yield from parts.pop(section.part, ())
    for rest in parts.values():
        yield from rest


def _choose_title(report: Report, part: Part, default: str) -> tuple[str, str]:
    """The titles of the sections that a part replaces, as one, and their notes."""
    found = [section for section in report.sections if section.part == part]
    first, *others = [section.title for section in found] or [default]
    title = " and ".join((first, *(f"{each[:1].lower()}{each[1:]}" for each in others)))
    return title, "".join(map(_note, found))


def _frame(anchor: str, title: str, inside: str, classes: str) -> str:
    return (
        f'<section id="{anchor}" class="{classes}" aria-labelledby="{anchor}-title">\n'
        f'<h2 id="{anchor}-title">{_text(title)}</h2>\n{inside}</section>\n'
    )


def _section(section: Section, anchor: str) -> _Piece:
    """A section as it is; how it is marked follows from the signs in it."""
    entries = (*section.entries, *section.rest[:ENTRIES_SHOWN])
    signs = {entry.sign for entry in entries}
    tone = "alarm" if "!" in signs else "ask" if "?" in signs else "calm"
    items = "".join(map(_entry, entries))
    more = section.more - len(section.rest[:ENTRIES_SHOWN])
    if more:
        items += f"<li>… and {more:,} more (--format json lists all)</li>\n"
    is_short = not any(map(_below, entries)) and "!" not in signs
    plain = is_short and (signs == {""} or len(entries) > ENTRIES_IN_ROWS)
    listed = f'<ul class="{"plain" if plain else "entries"}">\n{items}</ul>\n' if items else ""
    inside = _note(section) + _table(section) + listed
    return anchor, section.title, 0, _frame(anchor, section.title, inside, f"card {tone}")


def _table(section: Section) -> str:
    """The table of a section, in a frame that scrolls by itself where it is too wide."""
    if not section.table:
        return ""
    head = "".join(f'<th scope="col">{_text(cell)}</th>' for cell in section.table[0])
    body = "".join(
        f'<tr><th scope="row">{_text(row[0])}</th>'
        + "".join(f"<td>{_text(cell)}</td>" for cell in row[1:]) + "</tr>\n"
        for row in section.table[1:]
    )
    name = f'aria-label="{_text(section.title)}"'
    return (
        f'<div class="scroll" tabindex="0" role="region" {name}>'
        f'<table class="cells" {name}>\n<thead><tr>{head}</tr></thead>\n<tbody>{body}</tbody>\n'
        "</table></div>\n"
    )


def _note(section: Section) -> str:
    return f'<p class="note">{_text(section.note)}</p>\n' if section.note else ""


def _entry(entry: Entry) -> str:
    return (
        f"<li>{_sign(entry.sign)}<div>{_text(entry.head)}{_below(entry)}</div></li>\n"
    )


def _sign(sign: str) -> str:
    if not sign.strip():
        return ""
    label = _text(_SIGNS.get(sign, sign))
    tone = {"!": " bad", "?": " open"}.get(sign, "")
    return f'<span class="sign{tone}" role="img" aria-label="{label}">{_text(sign)}</span> '


def _below(entry: Entry) -> str:
    """What is under the head of an entry; the text to copy is one block."""
    details = "".join(f"<li>{_text(line)}</li>" for line in entry.details)
    lines = "\n".join(entry.lines)
    return (
        (f'<ul class="details">{details}</ul>' if details else "")
        + (f'<pre class="details">{_text(lines)}</pre>' if lines else "")
        + (_copyable(f"{entry.verb}:", entry.text) if entry.text else "")
    )


def _copyable(label: str, text: str) -> str:
    """A text with its button, which the script shows: it does nothing without."""
    return (
        f'<div class="copyable"><span class="label">{_text(label)}</span><pre>{_text(text)}</pre>'
        f'<button type="button" class="copy" aria-label="Copy {_text(one_line(text[:_TOLD]))}"'
        " hidden>Copy</button></div>"
    )


def _decisions(report: Report) -> Iterator[_Piece]:
    if not report.decisions:
        return
    title, notes = _choose_title(report, "decisions", "How to decide")
    items = "".join(
        _decision(number, each)
        for number, each in enumerate(report.decisions[:DECISIONS_SHOWN], start=1)
    )
    rest = len(report.decisions) - DECISIONS_SHOWN
    inside = f'{notes}<ol class="decisions">\n{items}</ol>\n'
    if rest > 0:
        inside += _more("decisions", f"Show {counted(rest, 'further decision')}")
    number = len(report.decisions)
    yield "decisions", title, number, _frame("decisions", title, inside, "card ask")


def _more(what: str, label: str) -> str:
    return (
        f'<p><button type="button" class="more" data-more="{what}" hidden>{label}</button></p>\n'
        f"<noscript><p>{label}: needs script; <code>--format json</code> has all.</p></noscript>\n"
    )


def _decision(number: int, decision: Decision) -> str:
    code = f' <span class="code">{_text(decision.code)}</span>' if decision.code else ""
    text = _copyable(f"{decision.verb}:", decision.text) if decision.text else ""
    return (
        f'<li id="decision-{number}"><p><strong class="name">{_text(decision.name)}</strong>'
        f" {_text(decision.reason)}{code}</p>\n{text}</li>\n"
    )


def _graph(report: Report) -> Iterator[_Piece]:
    """The picture as it opens, drawn here, so that it is there without script as well."""
    if not report.picture.nodes:
        return
    inside = f'<div id="graph" class="scroll">{draw_picture(report.picture)}</div>\n'
    yield "graph-part", "Graph", 0, _frame("graph-part", "Graph", inside, "card calm")


def _objects(report: Report) -> Iterator[_Piece]:
    """The frame of the table and of the panels; what they show is for the script to fill in."""
    if not report.objects:
        return
    changed = sum(each.action != "unchanged" for each in report.objects)
    covered = counted(len(report.objects), "object")
    covered += f", {changed:,} of them changed, and what changes in each," if changed else ""
    table = (
        f"<noscript><p>The table of {covered} needs script."
        " <code>--format json</code> has all of it."
        '</p></noscript>\n<div id="table" hidden></div>\n'
    )
    panels = '<div id="panels"></div>\n'
    name, number = "Objects", len(report.objects)
    inside = table if changed else f"{table}{panels}"
    yield "objects", name, number, _frame("objects", name, inside, "card calm")
    if changed:
        title, notes = _choose_title(report, "objects", "What will happen")
        yield "changes", title, changed, _frame("changes", title, f"{notes}{panels}", "open")


def _program(report: Report, drawing: str) -> Iterator[_Piece]:
    """The waves as a timeline, each with the names that are absent when it has ended."""
    if not report.waves:
        return
    title, notes = _choose_title(report, "steps", "Steps, in this order")
    items = "".join(
        _wave(number, wave) for number, wave in enumerate(report.waves[:WAVES_SHOWN])
    )
    above = (
        '<div class="scroll" role="region" tabindex="0" aria-label="The waves, drawn">'
        f"{drawing}</div>\n"
    ) if drawing else ""
    inside = f'{notes}{above}<ol class="waves">\n{items}</ol>\n'
    rest = len(report.waves) - WAVES_SHOWN
    if rest > 0:
        inside += _more("waves", f"Show {counted(rest, 'further wave')}")
    number = sum(len(wave.steps) for wave in report.waves)
    yield "steps", title, number, _frame("steps", title, inside, "card calm")


def _wave(number: int, wave: Wave) -> str:
    steps = "".join(
        f'<li><span class="number">{place:,}</span> {_sign(sign)}<span>{_text(text)}</span></li>\n'
        for place, sign, text in wave.steps[:STEPS_SHOWN]
    )
    rest = len(wave.steps) - STEPS_SHOWN
    more = _more(f"steps-{number}", f"Show {counted(rest, 'further step')}") if rest > 0 else ""
    return (
        f'<li class="wave" id="wave-{number}"><h3>{_text(wave.title)}</h3>\n'
        f'<ul class="steps">\n{steps}</ul>\n{more}{_absent(wave)}</li>\n'
    )


def _absent(wave: Wave) -> str:
    if not wave.absent:
        return ""
    names = "".join(f'<li class="name">{_text(name)}</li>' for name in wave.absent)
    if wave.more:
        names += f"<li>… and {wave.more:,} more; each object says from when to when it is</li>"
    number = counted(len(wave.absent) + wave.more, "name")
    return (
        f'<div class="absent"><p>{wave.word.capitalize()} after this: {number}'
        f'</p>\n<ul class="names">{names}</ul></div>\n'
    )
