"""What a report says, before it is laid out: one value for every kind of plan.

Text, Markdown, the page and the picture are layouts of it. Every text in it is one line without
control characters, but for the texts to copy and the lines of a difference, which are several.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeVar

import msgspec

from catalog_migrate.model.wording import one_line, visible
from catalog_migrate.report.verdict import Verdict

Aspect = Literal[
    "column", "partitioning", "clustering", "check", "property", "comment", "argument", "returns",
    "query", "body", "definition", "filled from", "option", "position", "name",
]
Risk = Literal["", "absent", "loses", "decide", "blocked"]
Part = Literal["", "objects", "steps", "decisions"]


class Entry(msgspec.Struct, frozen=True):
    """One line of a section: a sign (``+ - ~ * ! ?`` or none), a text, and lines under it.

    ``details`` are in words, ``lines`` are SQL or a difference, whose blanks and breaks stay as
    they are; ``text`` is to be copied, and ``verb`` says what for.
    """

    head: str
    sign: str = ""
    details: tuple[str, ...] = ()
    lines: tuple[str, ...] = ()
    text: str = ""
    verb: str = "write"


class Section(msgspec.Struct, frozen=True):
    """A titled list of entries, most important first; ``note`` is the text under the title.

    ``table`` has rows of cells, its head first; a column of numbers is known by its cells.
    ``more`` counts entries that are left out already; ``rest`` has those of them that a page lists
    as well, which has the room. ``part`` names the part of the page that shows the same in full;
    text and Markdown have no such parts and lay the entries out.
    """

    title: str
    entries: tuple[Entry, ...] = ()
    note: str | None = None
    more: int = 0
    part: Part = ""
    table: tuple[tuple[str, ...], ...] = ()
    rest: tuple[Entry, ...] = ()


def cut_section(
    title: str, entries: Sequence[Entry], most: int, note: str | None = None, part: Part = ""
) -> Section:
    """Return a section of at most so many entries, which counts the rest."""
    return Section(title, tuple(entries[:most]), note, max(len(entries) - most, 0), part)


class Difference(msgspec.Struct, frozen=True, gc=False):
    """One thing of an object before and after; None on the side where it is absent.

    ``name`` distinguishes things of one aspect (a column, a property); empty where there is one.
    ``lines`` is the line diff of a text of several lines: each begins with ``-``, ``+`` or a blank.
    """

    aspect: Aspect
    name: str = ""
    before: str | None = None
    after: str | None = None
    lines: tuple[str, ...] = ()


class Decision(msgspec.Struct, frozen=True):
    """What is to be decided or done about ``name`` before a plan may be applied.

    ``text`` is to be copied: it is written into the release (``verb`` write), or says what to do.
    """

    name: str
    code: str
    reason: str
    text: str
    verb: Literal["write", "remedy"] = "write"


class ReportObject(msgspec.Struct, frozen=True):
    """One object: what happens to it, why, what of it changes, and what that costs.

    ``action`` is ``unchanged`` for an object that the picture shows beside the others. ``because``
    leads from the object that changes by itself to this one, where it is another; else ``why`` says
    the reason, where there is one beyond the action. ``moves`` says what happens to rows.
    ``rows``, ``bytes`` and ``files`` are those that it has now, ``seconds`` is about how long they
    take to copy; None where unknown. ``lost`` says which values are not kept, ``absent`` from which
    step to which its name is absent.
    """

    name: str
    kind: str
    schema: str
    action: str
    risk: Risk = ""
    old_name: str | None = None
    because: tuple[str, ...] = ()
    rows: int | None = None
    bytes: int | None = None
    files: int | None = None
    seconds: float | None = None
    moves: str = ""
    differences: tuple[Difference, ...] = ()
    lost: tuple[str, ...] = ()
    absent: str = ""
    decisions: tuple[Decision, ...] = ()
    notes: tuple[str, ...] = ()
    why: str = ""


class Wave(msgspec.Struct, frozen=True):
    """Steps that go side by side: number, sign and text of each.

    ``absent`` are names that are absent when the wave has ended, ``more`` counts those left out.
    """

    title: str
    steps: tuple[tuple[int, str, str], ...]
    absent: tuple[str, ...] = ()
    more: int = 0
    word: Literal["absent", "stopped"] = "absent"


class Node(msgspec.Struct, frozen=True, gc=False):
    """An object of a picture; ``old`` and ``new`` say whether it is there before and after.

    ``group`` is what collapses to one box: its schema, or the cluster of a source or sink.
    """

    name: str
    kind: str
    group: str
    action: str = "unchanged"
    old: bool = True
    new: bool = True


class Edge(msgspec.Struct, frozen=True, gc=False):
    """An arrow from what is used to its user, both as positions in the nodes.

    ``label`` is the role of the use, empty where the two ends tell it.
    """

    used: int
    user: int
    label: str = ""
    old: bool = True
    new: bool = True


class Picture(msgspec.Struct, frozen=True):
    """Who uses what, before and after."""

    nodes: tuple[Node, ...] = ()
    edges: tuple[Edge, ...] = ()


class Report(msgspec.Struct, frozen=True):
    """A whole report. ``header`` says what it is of: pairs of a label and a value."""

    title: str
    verdict: Verdict
    route: str
    header: tuple[tuple[str, str], ...] = ()
    sections: tuple[Section, ...] = ()
    objects: tuple[ReportObject, ...] = ()
    decisions: tuple[Decision, ...] = ()
    waves: tuple[Wave, ...] = ()
    picture: Picture = Picture()


OWN_CHANGE = "its own definition changes"
"""Why an object that is kept has an action, where its definition differs."""

_SIGNS = {"create": "+", "drop": "-", "migrate": "~", "unchanged": ""}

Value = TypeVar("Value")

_WHOLE = frozenset({"text", "before", "after"})


def find_sign(action: str) -> str:
    """Return ``+ - ~``, ``*`` for every other action, or nothing for what does not change."""
    return _SIGNS.get(action, "*")


def spell_sign(sign: str) -> str:
    """Return ``sign`` as it is drawn: a minus is as wide as a plus."""
    return "\N{MINUS SIGN}" if sign == "-" else sign


def make_visible(value: Value) -> Value:
    """Put every text in a part of a report on one line without control characters.

    Texts to copy and the two sides of a difference keep their lines.
    """
    made: Value = _make_visible(value, one_line)
    return made


def _make_visible(value: Any, make: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return make(value)
    if isinstance(value, tuple):
        return tuple(_make_visible(each, make) for each in value)
    if isinstance(value, msgspec.Struct):
        return type(value)(**{
            name: _make_visible(getattr(value, name), visible if name in _WHOLE else one_line)
            for name in value.__struct_fields__
        })
    return value
