"""A picture as SVG: layers from left to right, a shape a kind, a colour and a sign an action.

It is complete by itself, on paper as well, and has no script; ``page/graph.js`` takes it as the
first state of the interactive one, so what it draws, :func:`draw_picture` draws the same.
"""

from __future__ import annotations

import html
import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import msgspec

from catalog_migrate.model.wording import counted, one_line
from catalog_migrate.report.boxes import (
    OTHERS,
    Arrow,
    Box,
    Side,
    is_changed,
    open_boxes,
)
from catalog_migrate.report.layering import arrange
from catalog_migrate.report.report import Node, Picture, find_sign, spell_sign

WIDTH, HEIGHT = 208, 40
_BETWEEN, _LABELLED, _BESIDE, _BELOW, _MARGIN = 72, 140, 20, 16, 16
_ACROSS, _DOWN = WIDTH + _BESIDE, HEIGHT + _BELOW
_LEAST = 680
"""How wide a picture is at least, so that its legend has room."""
_ASPECT = 1.6
_LONG = 8
"""So many boxes stand in one column, whatever is beside it."""
_LETTERS = 24
_LABELS = 40
"""Roles are written at the arrows where there are no more of them."""


class Place(NamedTuple):
    """The corner of a box, and the layer it is in: its number, left and right edge."""

    x: float
    y: float
    layer: int = 0
    left: float = 0.0
    right: float = 0.0


class Layout(NamedTuple):
    """Where each box is, how large all is, and where the grid of the unconnected begins.

    ``between`` is the space between two layers, which is more where arrows have labels.
    """

    places: list[Place]
    width: float
    height: float
    grid: float | None
    between: int


def draw_picture(
    picture: Picture, *, side: Side = "both", focus: str | None = None,
    title: str = "What uses what",
) -> str:
    """Draw ``picture`` as it opens: what changes and one hop round it, the rest group by group.

    ``side`` shows what is there before (``old``), after (``new``) or either; ``focus`` is the name
    of the object that it opens round instead. Names draw nothing of their own.
    """
    boxes, arrows = open_boxes(picture, side, focus)
    legend, top = _draw_legend(picture, boxes, side)
    layout = place_boxes(boxes, arrows, side, top)
    text = _Text(picture, boxes, side)
    size = f"{trim(layout.width)} {trim(layout.height)}"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" class="picture" viewBox="0 0 {size}"'
        f' width="{trim(layout.width)}" height="{trim(layout.height)}" role="img"'
        f' aria-labelledby="picture-title picture-desc" data-top="{trim(top)}">',
        f'<title id="picture-title">{escape(title)}</title>',
        f'<desc id="picture-desc">{escape(text.describe())}</desc>',
        f"<style>{STYLE}</style>",
        _DEFINED,
        f'<rect class="paper" width="{trim(layout.width)}" height="{trim(layout.height)}"/>',
        f'<g class="legend">{legend}</g>',
        '<g class="arrows">',
        *_draw_arrows(arrows, side, layout, text),
        '</g><g class="boxes">',
    ]
    for box, at in zip(boxes, layout.places, strict=True):
        where = "" if box.node is None else f' data-node="{box.node}"'
        chosen = " focus" if box.node is not None and text.nodes[box.node].name == focus else ""
        parts.append(
            f'<g class="box {text.classes(box)}{chosen}"{where}'
            f' transform="translate({_point(at.x, at.y)})">'
            f"<title>{escape(text.whole(box))}</title>{_draw_box(box, text)}</g>"
        )
    if layout.grid is not None:
        parts.append(
            f'<text class="faint" x="{_MARGIN}" y="{trim(layout.grid - 8)}">'
            f"{UNCONNECTED}</text>"
        )
    return "".join([*parts, "</g></svg>\n"])


_GROUP_NAMES = {OTHERS: "other groups", "": "without a schema"}
UNCONNECTED = "without a connection to another box:"


def encode_picture(picture: Picture) -> str:
    """Encode ``picture`` as the JSON that ``startGraph`` of ``page/graph.js`` takes.

    It may stand in a script element: no ``<`` is in it.
    """
    value = {
        "nodes": [
            [node.name, node.kind, node.group, node.action, node.old, node.new,
             spell_sign(find_sign(node.action))]
            for node in picture.nodes
        ],
        "edges": [
            [edge.used, edge.user, edge.label, edge.old, edge.new] for edge in picture.edges
        ],
    }
    return msgspec.json.encode(value).decode().replace("<", "\\u003c")


# -- where things are ------------------------------------------------------------------------------


def place_boxes(boxes: Sequence[Box], arrows: Sequence[Arrow], side: Side, top: float) -> Layout:
    """Place connected boxes in columns, layer by layer, and the others in a grid below them.

    A layer that is much longer than others has several columns.
    """
    layers = _layers(boxes, arrows, side)
    between = _LABELLED if _count_labels(arrows) else _BETWEEN
    rows = _count_rows(layers, between)
    places = [Place(0.0, 0.0)] * len(boxes)
    x = _MARGIN
    split = [math.ceil(len(layer) / rows) for layer in layers]
    deep = [math.ceil(len(layer) / columns) for layer, columns in zip(layers, split, strict=True)]
    tall = max(deep, default=0)
    for number, layer in enumerate(layers):
        columns = split[number]
        right = x + columns * _ACROSS - _BESIDE
        # all layers have the same rows, so that an arrow passes between the boxes of each
        above = top + (tall - deep[number]) // 2 * _DOWN
        for place, box in enumerate(layer):
            places[box] = Place(
                x + place % columns * _ACROSS, above + place // columns * _DOWN, number, x, right
            )
        x = right + between
    width: float = max(x - between + _MARGIN if layers else 0, _LEAST)
    height = top + tall * _DOWN
    alone = sorted(set(range(len(boxes))).difference(*layers))
    if not alone:
        return Layout(places, width, height - _BELOW + _MARGIN, None, between)
    grid = height + (28 if layers else 18)
    width, bottom = _place_grid(places, alone, width, grid)
    return Layout(places, width, bottom, grid, between)


def _layers(boxes: Sequence[Box], arrows: Sequence[Arrow], side: Side) -> list[list[int]]:
    """Arrange the connected boxes: what is used first."""
    joined = sorted({end for arrow in arrows for end in (arrow.used, arrow.user)})
    position = {box: place for place, box in enumerate(joined)}
    ends = [
        (arrow.new or side == "old", (position[arrow.used], position[arrow.user]))
        for arrow in arrows
    ]
    return [
        [joined[place] for place in layer]
        for layer in arrange(
            len(joined), [edge for firm, edge in ends if firm],
            [edge for firm, edge in ends if not firm],
            [math.floor(boxes[box].rank + 0.5) for box in joined],
        )
    ]


def _place_grid(
    places: list[Place], alone: Sequence[int], width: float, grid: float
) -> tuple[float, float]:
    """Place unconnected boxes below ``grid``; return the width and height of all."""
    fitting = int((width - 2 * _MARGIN + _BESIDE) // _ACROSS)
    columns = max(fitting, math.ceil(math.sqrt(len(alone) * _ASPECT * _DOWN / _ACROSS)))
    for place, box in enumerate(alone):
        places[box] = Place(_MARGIN + place % columns * _ACROSS, grid + place // columns * _DOWN)
    width = max(width, 2 * _MARGIN + min(columns, len(alone)) * _ACROSS - _BESIDE)
    return width, grid + math.ceil(len(alone) / columns) * _DOWN - _BELOW + _MARGIN


def _count_labels(arrows: Sequence[Arrow]) -> int:
    """How many arrows have a label that is drawn."""
    count = sum(bool(arrow.labels) for arrow in arrows)
    return count if count <= _LABELS else 0


def _count_rows(layers: Sequence[Sequence[int]], between: int) -> int:
    """After how many boxes a layer goes on in another column: near a screen's proportions."""
    if not layers:
        return 1
    longest = max(map(len, layers))
    best, nearest = longest, math.inf
    for rows in range(min(_LONG, longest), longest + 1):
        columns = sum(math.ceil(len(layer) / rows) for layer in layers)
        width = columns * _ACROSS + len(layers) * (between - _BESIDE)
        off = abs(math.log(width / (rows * _DOWN) / _ASPECT))
        if off < nearest:
            best, nearest = rows, off
    return best


# -- words -----------------------------------------------------------------------------------------


class _Text:
    """The words in and behind each box and arrow."""

    def __init__(self, picture: Picture, boxes: Sequence[Box], side: Side) -> None:
        self.nodes = picture.nodes
        self.boxes = boxes
        self.side = side

    def classes(self, box: Box) -> str:
        if box.node is None:
            return "group"
        return f"{_choose_style(self.nodes[box.node])}"

    def whole(self, box: Box) -> str:
        """Return what a pointer on the box shows and a screen reader reads."""
        if box.node is None:
            return f"{self.name(box)}: {counted(len(box.members), 'object')}{self._more(box)}"
        node = self.nodes[box.node]
        return f"{node.name} ({spell_kind(node.kind)}){self._change(node)}"

    def name(self, box: Box) -> str:
        """Return the whole name of a box, without its group."""
        if box.node is None:
            return _GROUP_NAMES.get(box.group, box.group)
        return shorten_name(self.nodes[box.node])

    def caption(self, box: Box) -> str:
        """Return the small line above the name."""
        if box.node is None:
            count = f"{len(box.members):,}"
            return f"{count} {'object' + 's' * (count != '1') if box.whole else 'more'}"
        node = self.nodes[box.node]
        return " · ".join(filter(None, (spell_kind(node.kind), node.group)))

    def actions(self, box: Box) -> list[tuple[str, int]]:
        """Return how many of the objects of a group have each sign."""
        signs = Counter(find_sign(self.nodes[place].action) for place in box.members)
        return [(sign, signs[sign]) for sign in "+-~*" if signs[sign]]

    def describe(self) -> str:
        """Return the picture in a sentence."""
        groups = [box for box in self.boxes if box.node is None]
        single = len(self.boxes) - len(groups)
        collapsed = sum(len(box.members) for box in groups)
        text = f"{counted(single, 'object')} as boxes"
        if groups:
            text += f", {counted(collapsed, 'more object')} in {counted(len(groups), 'group')}"
        changed = sum(map(is_changed, self.nodes))
        if changed:
            text += f"; {changed:,} of {counted(len(self.nodes), 'object')} change"
        return f"{text}. An arrow leads from what is used to what uses it."

    def arrow(self, arrow: Arrow) -> str:
        used, user = (self.boxes[end] for end in (arrow.used, arrow.user))
        text = f"{self.name(user)} uses {self.name(used)}"
        if arrow.count > 1:
            text += f", {arrow.count:,} times"
        if arrow.labels:
            text += f": {', '.join(arrow.labels)}"
        if self.side == "both" and arrow.old != arrow.new:
            text += " (only before)" if arrow.old else " (only after)"
        return text

    def fade(self, arrow: Arrow) -> str:
        """The class of an arrow between two groups: there may be one between any two of them."""
        ends = (self.boxes[arrow.used], self.boxes[arrow.user])
        return " rest" if all(box.node is None for box in ends) else ""

    def _change(self, node: Node) -> str:
        return f": {node.action}" if is_changed(node) else ""

    def _more(self, box: Box) -> str:
        found = Counter(self.nodes[place].action for place in box.members)
        del found["unchanged"]
        return "".join(f", {count:,} {action}" for action, count in sorted(found.items()))


def spell_kind(kind: str) -> str:
    """Return a kind as people write it."""
    return kind.replace("_", " ")


def shorten_name(node: Node) -> str:
    """Return the name without what is above it: its kind, and the schema that is its group."""
    prefix = f"{node.kind}:"
    name = node.name.removeprefix(prefix)
    return name.removeprefix(f"{node.group}.") or name


def shorten(text: str, room: int = _LETTERS) -> str:
    """Take out of the middle what is more than ``room`` letters; one of East Asia counts twice."""
    letters = list(text)
    wide = [2 if ord(letter) >= 0x1100 else 1 for letter in letters]
    if sum(wide) <= room:
        return text
    left = right = 0
    taken = 1
    while True:
        ahead = left <= right
        place = left if ahead else len(letters) - 1 - right
        if taken + wide[place] > room:
            return "".join([*letters[:left], "…", *letters[len(letters) - right:]])
        taken += wide[place]
        left, right = left + ahead, right + (not ahead)


# -- shapes ----------------------------------------------------------------------------------------


def _draw_box(box: Box, text: _Text) -> str:
    name = escape(shorten(text.name(box)))
    caption = escape(shorten(text.caption(box), 32))
    if box.node is None:
        counts = "".join(
            f'<tspan class="{STYLES[sign]}" dx="7">{spell_sign(sign)}{count:,}</tspan>'
            for sign, count in text.actions(box)
        )
        return (
            f'{_use("group")}<text class="caption" x="28" y="15">{caption}{counts}</text>'
            f'<text x="28" y="31">{name}</text>'
            '<text class="sign" x="15" y="26">▸</text>'
        )
    node = text.nodes[box.node]
    sign = find_sign(node.action)
    shown = f'<text class="sign" x="16" y="27">{spell_sign(sign)}</text>' if sign else ""
    return (
        f'{_use(node.kind)}<text class="caption" x="28" y="15">{caption}</text>'
        f'<text x="28" y="31">{name}</text>{shown}'
    )


STYLES = {"+": "create", "-": "drop", "~": "migrate", "*": "update", "": "unchanged"}


def _choose_style(node: Node) -> str:
    return STYLES[find_sign(node.action)]


def _use(kind: str) -> str:
    return f'<use href="#picture-{kind if kind in _SHAPES else "other"}"/>'


def _trace(kind: str, width: int, height: int) -> str:
    """The shape of a kind: its border, and lines within, which no style of an action changes."""
    border, *lines = _SHAPES.get(kind, _trace_other)(width, height)
    marks = "".join(
        f'<path d="{line}" fill="none" stroke-width="1" stroke-dasharray="none"/>'
        for line in lines
    )
    return f'<path d="{border}"/>{marks}'


def _trace_table(w: int, h: int) -> tuple[str, ...]:
    return f"M0 0H{w}V{h}H0Z", f"M0 4H{w}"


def _trace_view(w: int, h: int) -> tuple[str, ...]:
    r = h // 4
    return (_trace_rounded(w, h, r),)


def _trace_materialized(w: int, h: int) -> tuple[str, ...]:
    return (*_trace_view(w, h), f"M{h // 4} 4H{w - h // 4}")


def _trace_function(w: int, h: int) -> tuple[str, ...]:
    s = h // 4
    return (f"M{s} 0H{w}L{w - s} {h}H0Z",)


def _trace_type(w: int, h: int) -> tuple[str, ...]:
    s = h // 4
    return (f"M{s} 0H{w - s}L{w} {h / 2:g}L{w - s} {h}H{s}L0 {h / 2:g}Z",)


def _trace_connection(w: int, h: int) -> tuple[str, ...]:
    return (_trace_rounded(w, h, h / 2),)


def _trace_source(w: int, h: int) -> tuple[str, ...]:
    s = h * 3 // 8
    return (f"M0 0H{w - s}L{w} {h / 2:g}L{w - s} {h}H0Z",)


def _trace_sink(w: int, h: int) -> tuple[str, ...]:
    s = h // 4
    return (f"M0 0H{w}V{h}H0L{s} {h / 2:g}Z",)


def _trace_secret(w: int, h: int) -> tuple[str, ...]:
    s = h // 4
    return (f"M{s} 0H{w - s}L{w} {s}V{h - s}L{w - s} {h}H{s}L0 {h - s}V{s}Z",)


def _trace_cluster(w: int, h: int) -> tuple[str, ...]:
    return f"M0 0H{w}V{h}H0Z", f"M4 4H{w - 4}V{h - 4}H4Z"


def _trace_log(w: int, h: int) -> tuple[str, ...]:
    s = h // 4
    return f"M0 0H{w - s}L{w} {s}V{h}H0Z", f"M{w - s} 0V{s}H{w}"


def _trace_step(w: int, h: int) -> tuple[str, ...]:
    return (_trace_rounded(w, h, 4),)


def _trace_group(w: int, h: int) -> tuple[str, ...]:
    return _trace_rounded(w, h, 3), f"M4 {h + 3}H{w + 3}V4"


def _trace_other(w: int, h: int) -> tuple[str, ...]:
    s = h // 4
    return (f"M{s} 0H{w}V{h - s}L{w - s} {h}H0V{s}Z",)


def _trace_rounded(w: int, h: int, r: float) -> str:
    a = f"a{r:g} {r:g} 0 0 1"
    return (
        f"M{r:g} 0H{w - r:g}{a} {r:g} {r:g}V{h - r:g}{a} {-r:g} {r:g}"
        f"H{r:g}{a} {-r:g} {-r:g}V{r:g}{a} {r:g} {-r:g}Z"
    )


_SHAPES: dict[str, Callable[[int, int], tuple[str, ...]]] = {
    "table": _trace_table, "view": _trace_view, "materialized_view": _trace_materialized,
    "function": _trace_function, "type": _trace_type, "connection": _trace_connection,
    "source": _trace_source, "sink": _trace_sink, "secret": _trace_secret,
    "cluster": _trace_cluster, "log": _trace_log, "step": _trace_step, "group": _trace_group,
    "other": _trace_other,
}


def _draw_arrows(
    arrows: Sequence[Arrow], side: Side, layout: Layout, text: _Text
) -> list[str]:
    labelled = _count_labels(arrows)
    drawn = []
    for arrow in arrows:
        style = "kept"
        if side == "both" and arrow.old != arrow.new:
            style = "before" if arrow.old else "after"
        path, middle = _curve(
            layout.places[arrow.used], layout.places[arrow.user], arrow.used, layout.between
        )
        label = ""
        if labelled and arrow.labels:
            label = (
                f'<text x="{trim(middle[0])}" y="{trim(middle[1] - 4)}">'
                f"{escape(shorten(', '.join(arrow.labels), 20))}</text>"
            )
        drawn.append(
            f'<g class="arrow {style}{text.fade(arrow)}"><title>{escape(text.arrow(arrow))}</title>'
            f'<path d="{path}" marker-end="url(#picture-{style})"/>{label}</g>'
        )
    return drawn


def _curve(
    used: Place, user: Place, lane: int, between: int
) -> tuple[str, tuple[float, float]]:
    """The path of an arrow, and the middle of it, where a label is.

    It goes from the right of what is used to the left of its user. Where boxes are between, it
    goes past them in the space above or below a row; ``lane`` distinguishes those in one space.
    """
    beside = (lane % 5 - 2) * 2.0
    middle = HEIGHT / 2
    x, y = used.x + WIDTH, used.y + middle
    to_x, to_y = user.x - 1, user.y + middle
    if user.layer <= used.layer:
        low, right, left = used.y + HEIGHT + _BELOW / 2 + beside, x + 18, to_x - 18
        return (
            f"M{_point(x, y)}C{_point(right, y)} {_point(right, low)} {_point(x, low)}"
            f"H{trim(user.x)}C{_point(left, low)} {_point(left, to_y)} {_point(to_x, to_y)}"
        ), ((x + to_x) / 2, low)
    path = f"M{_point(x, y)}"
    if x < used.right:
        low = used.y + HEIGHT + _BELOW / 2 + beside
        path = f"M{_point(x - 16, y + middle)}Q{_point(x - 16, low)} {_point(x - 6, low)}"
        path += f"H{trim(used.right)}"
        y = low
    x = used.right
    if user.layer == used.layer + 1 and user.x == user.left:
        half = (x + to_x) / 2
        path += f"C{_point(half, y)} {_point(half, to_y)} {_point(to_x, to_y)}"
        return path, (half, (y + to_y) / 2)
    high = user.y - _BELOW / 2 + beside
    turn = x + between - 10
    half = (x + turn) / 2
    path += f"C{_point(half, y)} {_point(half, high)} {_point(turn, high)}"
    if user.x == user.left:
        start = user.left - 34
        path += f"H{trim(start)}C{_point(start + 16, high)} {_point(start + 14, to_y)}"
        return f"{path} {_point(to_x, to_y)}", (half, (y + high) / 2)
    path += f"H{trim(user.x + 6)}Q{_point(user.x + 16, high)} {_point(user.x + 16, user.y - 1)}"
    return path, (half, (y + high) / 2)


def _draw_legend(
    picture: Picture, boxes: Sequence[Box], side: Side
) -> tuple[str, float]:
    """What shapes, colours and lines mean, of those that occur, and where the picture begins."""
    drawn = []
    x, y = _MARGIN, _MARGIN
    for shape, words in (
        *_explain_shapes(picture, boxes), *_explain_signs(picture), *_explain_lines(picture, side)
    ):
        room = 28 + 8 + len(words) * 7 + 18
        if x > _MARGIN and x + room > _LEAST:
            x, y = _MARGIN, y + 26
        drawn.append(
            f'<g transform="translate({x} {y})">{shape}'
            f'<text class="faint" x="36" y="12">{escape(words)}</text></g>'
        )
        x += room
    return "".join(drawn), float(y + 26 + _MARGIN)


def _explain_shapes(picture: Picture, boxes: Sequence[Box]) -> Iterator[tuple[str, str]]:
    for kind in sorted({node.kind for node in picture.nodes}, key=lambda kind: (
        list(_SHAPES).index(kind) if kind in _SHAPES else len(_SHAPES), kind
    )):
        yield f'<g class="unchanged">{_trace(kind, 28, 16)}</g>', spell_kind(kind)
    if any(box.node is None for box in boxes):
        yield (
            f'<g class="group">{_trace("group", 28, 16)}</g>', "objects of one schema or cluster"
        )


def _explain_signs(picture: Picture) -> Iterator[tuple[str, str]]:
    found = Counter(node.action for node in picture.nodes if is_changed(node))
    for sign in "+-~*":
        actions = [action for action in found if find_sign(action) == sign]
        if actions:
            yield (
                f'<g class="{STYLES[sign]}">{_trace("step", 28, 16)}'
                f'<text class="sign" x="14" y="13">{spell_sign(sign)}</text></g>',
                ", ".join(f"{found[action]:,} {action}" for action in sorted(actions)),
            )


def _explain_lines(picture: Picture, side: Side) -> Iterator[tuple[str, str]]:
    edges = picture.edges if side == "both" else ()
    for style, words, there in (
        ("before", "used only before", any(edge.old and not edge.new for edge in edges)),
        ("after", "used only after", any(edge.new and not edge.old for edge in edges)),
        ("kept", "used by", bool(picture.edges)),
    ):
        if there:
            line = f'<path d="M0 8H26" marker-end="url(#picture-{style})"/>'
            yield f'<g class="arrow {style}">{line}</g>', words


_DEFINED = "<defs>" + "".join(
    f'<marker id="picture-{style}" class="head {style}" viewBox="0 0 8 8" refX="7" refY="4"'
    ' markerWidth="8" markerHeight="8" markerUnits="userSpaceOnUse" orient="auto">'
    '<path d="M0 0L8 4L0 8Z"/></marker>'
    for style in ("kept", "before", "after")
) + "".join(
    f'<g id="picture-{kind}">{_trace(kind, WIDTH, HEIGHT)}</g>' for kind in _SHAPES
) + "</defs>"


class _Colors(NamedTuple):
    """The colours of one scheme: border and area for each action, all with enough contrast."""

    paper: str
    ink: str
    faint: str
    line: str
    unchanged: str
    create: tuple[str, str]
    drop: tuple[str, str]
    migrate: tuple[str, str]
    update: tuple[str, str]

    def style(self) -> str:
        """The rules; every colour is written out, as not every program that draws has variables."""
        rules = [
            f".picture .paper{{fill:{self.paper}}}",
            f".picture text{{fill:{self.ink};stroke:none}}",
            f".picture .faint,.picture .caption,.picture .arrow text{{fill:{self.faint}}}",
            f".picture .arrow text{{stroke:{self.paper};stroke-width:3px;paint-order:stroke}}",
            f".picture .arrow{{stroke:{self.line}}}.picture .head{{fill:{self.line}}}",
            f".picture .unchanged,.picture .group{{stroke:{self.line};fill:{self.unchanged}}}",
            f".picture .arrow.before{{stroke:{self.drop[0]}}}",
            f".picture .head.before{{fill:{self.drop[0]}}}",
            f".picture .arrow.after{{stroke:{self.create[0]}}}",
            f".picture .head.after{{fill:{self.create[0]}}}",
        ]
        for name in ("create", "drop", "migrate", "update"):
            border, area = getattr(self, name)
            rules.append(
                f".picture .{name}{{stroke:{border};fill:{area}}}"
                f".picture .{name} .sign,.picture tspan.{name}{{fill:{border}}}"
            )
        return "".join(rules)


_LIGHT = _Colors(
    "#fff", "#1f2328", "#57606a", "#818b98", "#f6f8fa", ("#116329", "#dafbe1"),
    ("#b3131f", "#ffebe9"), ("#7d4e00", "#fff3c4"), ("#0550ae", "#ddf0ff"),
)
_DARK = _Colors(
    "#0d1117", "#e6edf3", "#9da7b3", "#7d8998", "#161b22", ("#4ac26b", "#12261a"),
    ("#ff8182", "#2d1618"), ("#e3b341", "#2a2111"), ("#79b8ff", "#112036"),
)
STYLE = (
    ".picture{font:12px ui-monospace,'DejaVu Sans Mono',Menlo,Consolas,monospace}"
    ".picture text{unicode-bidi:isolate}"
    ".picture .faint,.picture .caption{font:11px system-ui,-apple-system,'Segoe UI',sans-serif}"
    ".picture .sign{font-weight:bold;font-size:20px;text-anchor:middle}"
    ".picture .legend .sign{font-size:15px}"
    ".picture tspan{font-weight:bold;stroke:none}"
    ".picture .unchanged,.picture .group{stroke-width:1.2}"
    ".picture .create{stroke-width:2.4}"
    ".picture .drop{stroke-width:1.8;stroke-dasharray:6 4}"
    ".picture .migrate{stroke-width:1.8;stroke-dasharray:12 3 2 3}"
    ".picture .update{stroke-width:1.8;stroke-dasharray:2 3}"
    ".picture .focus{stroke-width:4}"
    ".picture .arrow{fill:none;stroke-width:1.1}"
    ".picture .arrow.before{stroke-dasharray:5 4;stroke-width:1.3}"
    ".picture .arrow.after{stroke-width:2.4}"
    ".picture .arrow.rest{stroke-width:.6}"
    ".picture .arrow text{font-size:10px;text-anchor:middle}"
    ".picture .box[role=button]{cursor:pointer}"
    ".picture .box:focus-visible{outline:3px solid #2f81f7;outline-offset:4px}"
    ".picture.lit .arrow:not(.near){opacity:.12}.picture.lit .arrow.near{stroke-width:2.4}"
    f"{_LIGHT.style()}@media screen and (prefers-color-scheme:dark){{{_DARK.style()}}}"
)
_UNFIT = re.compile("[\ud800-\udfff\ufffe\uffff]")


def escape(text: str) -> str:
    """``text`` as SVG has it: one line, with no markup and no character that XML cannot have."""
    shown = _UNFIT.sub(lambda found: f"\\u{ord(found[0]):04x}", one_line(text))
    return html.escape(shown)


def trim(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")


def _point(x: float, y: float) -> str:
    return f"{trim(x)} {trim(y)}"
