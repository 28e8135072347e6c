"""A program as SVG: a column a wave, a box a step, and below them which names are absent how long.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence
from itertools import groupby

from catalog_migrate.model.wording import counted
from catalog_migrate.report.report import Wave
from catalog_migrate.report.svg import (
    STYLE,
    STYLES,
    escape,
    shorten,
    spell_sign,
    trim,
)

_WIDTH, _HEIGHT, _DOWN, _BETWEEN, _MARGIN = 264, 38, 44, 36, 16
_STEPS = 16
_NAMES = 16
"""How many steps of a wave, and how many absent names below a row of waves, are drawn."""
_BESIDE = 10
"""So many waves are beside each other."""
_NAME = re.compile(r"(.+?) (\S*[.`].*|\S+)\Z")
"""What a step does, and to what: a name has a schema, the words in front of it no full stop."""


def draw_waves(waves: Sequence[Wave], *, title: str = "The program of a plan") -> str:
    """Draw the waves from left to right, in several rows where there are many.

    A bar below them leads from the wave that takes a name away to the one that brings it back.
    """
    rows = math.ceil(len(waves) / _BESIDE)
    across = math.ceil(len(waves) / max(rows, 1))
    parts: list[str] = []
    y = float(_MARGIN)
    for first in range(0, len(waves), max(across, 1)):
        drawn, y = _draw_row(waves, range(first, min(first + across, len(waves))), y)
        parts += drawn
    if not waves:
        parts, y = [f'<text class="faint" x="{_MARGIN}" y="28">no steps</text>'], 28.0
    width = 2 * _MARGIN + max(across, 1) * (_WIDTH + _BETWEEN) - _BETWEEN
    size = f'width="{width}" height="{trim(y + _MARGIN)}"'
    steps = sum(len(wave.steps) for wave in waves)
    told = (
        f"{counted(steps, 'step')} in {counted(len(waves), 'wave')}; those of a wave go side by"
        " side. A bar below shows how long a name is absent."
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="picture" {size}'
        f' viewBox="0 0 {width} {trim(y + _MARGIN)}" role="img"'
        ' aria-labelledby="program-title program-desc">'
        f'<title id="program-title">{escape(title)}</title>'
        f'<desc id="program-desc">{escape(told)}</desc><style>{STYLE}</style>'
        f'<rect class="paper" {size}/>{"".join(parts)}</svg>\n'
    )


def _draw_row(waves: Sequence[Wave], inside: range, top: float) -> tuple[list[str], float]:
    parts = []
    below = top
    for column, place in enumerate(inside):
        wave = waves[place]
        x = _MARGIN + column * (_WIDTH + _BETWEEN)
        y = top + 24
        parts.append(f'<text font-weight="bold" x="{x}" y="{trim(top + 13)}">'
                     f"{escape(shorten(wave.title, 40))}</text>")
        if place:
            parts.append(f'<path class="arrow" d="M{x - _BETWEEN + 8} {trim(top + 9)}h16'
                         'm-5 -4l5 4l-5 4"/>')
        for step in wave.steps[:_STEPS]:
            parts.append(_draw_step(step, x, y))
            y += _DOWN
        if len(wave.steps) > _STEPS:
            more = counted(len(wave.steps) - _STEPS, "more step")
            parts.append(f'<text class="faint" x="{x}" y="{trim(y + 12)}">… and {more} more'
                         "</text>")
            y += 20
        below = max(below, y)
    bars, end = _draw_bars(waves, inside, below + 6)
    return [*parts, *bars], end + 18


def _draw_step(step: tuple[int, str, str], x: float, y: float) -> str:
    place, sign, text = step
    found = _NAME.match(text)
    act, name = found.groups() if found else ("", text)
    style = STYLES.get(sign.strip(), "unchanged")
    return (
        f'<g class="{style}" transform="translate({trim(x)} {trim(y)})">'
        f"<title>{escape(f'step {place}: {text}')}</title>"
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" rx="4"/>'
        f'<text class="sign" x="14" y="26">{escape(spell_sign(sign.strip()))}</text>'
        f'<text class="caption" x="28" y="15">{place} · {escape(shorten(act, 36))}</text>'
        f'<text x="28" y="30">{escape(shorten(name, 31))}</text></g>'
    )


def _draw_bars(waves: Sequence[Wave], inside: range, top: float) -> tuple[list[str], float]:
    """A line a name, those that are absent longest first.

    It leads from the middle of the wave that takes the name away to that of its return.
    """
    count = Counter(name for place in inside for name in waves[place].absent)
    names = sorted(count, key=lambda name: -count[name])
    parts = []
    for name in names[:_NAMES]:
        absent = [place for place in inside if name in waves[place].absent]
        for _, places in groupby(enumerate(absent), key=lambda each: each[1] - each[0]):
            run = [place for _, place in places]
            begins = run[0] > 0 and name in waves[run[0] - 1].absent
            ends = run[-1] + 1 in inside
            x = _find_column(run[0], inside) + (0 if begins else _WIDTH / 2)
            to_x = _find_column(run[-1] + 1, inside) + (_WIDTH / 2 if ends else -_BETWEEN)
            parts.append(
                f'<g class="drop"><title>{escape(f"{name} is absent")}</title>'
                f'<rect x="{trim(x)}" y="{trim(top)}" width="{trim(to_x - x)}" height="20"'
                f' rx="3"/><text x="{trim(x + 8)}" y="{trim(top + 14)}">'
                f"{escape('absent: ' + shorten(name, max(int((to_x - x) / 7.3) - 10, 6)))}"
                "</text></g>"
            )
        top += 24
    if len(names) > _NAMES:
        parts.append(f'<text class="faint" x="{_MARGIN}" y="{trim(top + 12)}">… and'
                     f" {counted(len(names) - _NAMES, 'more name')} absent meanwhile</text>")
        top += 20
    return parts, top


def _find_column(place: int, inside: range) -> float:
    return _MARGIN + (place - inside.start) * (_WIDTH + _BETWEEN)
