"""A program as SVG: a column a wave, a box a step, and below them which names are absent how long.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import NamedTuple

from catalog_migrate.model.wording import counted, one_line
from catalog_migrate.operations.steps import Step, interruptions
from catalog_migrate.report.program import list_waves
from catalog_migrate.report.report import Wave, spell_sign
from catalog_migrate.report.svg import (
    STYLE,
    STYLES,
    escape,
    shorten,
    trim,
)

_WIDTH, _HEIGHT, _DOWN, _BETWEEN, _MARGIN = 264, 38, 44, 36, 16
_STEPS = 16
_NAMES = 16
"""How many steps of a wave, and how many absent names below a row of waves, are drawn."""
_BESIDE, _WAVES = 10, 100
"""So many waves are beside each other, and so many are drawn."""
_NAME = re.compile(r"(.+?) (\S*[.`].*|\S+)\Z")
"""What a step does, and to what: a name has a schema, the words in front of it no full stop."""


class _Absence(NamedTuple):
    """A name that is absent from one wave to another, which brings it back."""

    name: str
    taken: int
    back: int


def draw_steps(steps: Sequence[Step]) -> str:
    """Draw a program from left to right, in several rows where there are many waves.

    A bar below them leads from the wave that takes a name away to the one that brings it back.
    """
    all_waves = list_waves(steps)
    waves = all_waves[:_WAVES]
    absences = _list_absences(steps, all_waves)
    rows = math.ceil(len(waves) / _BESIDE)
    across = math.ceil(len(waves) / max(rows, 1))
    parts: list[str] = []
    y = float(_MARGIN)
    for first in range(0, len(waves), max(across, 1)):
        inside = range(first, min(first + across, len(waves)))
        drawn, y = _draw_row(waves, absences, inside, y)
        parts += drawn
    if not waves:
        parts, y = [f'<text class="faint" x="{_MARGIN}" y="28">no steps</text>'], 28.0
    if len(all_waves) > _WAVES:
        more = counted(len(all_waves) - _WAVES, "more wave")
        parts.append(f'<text class="faint" x="{_MARGIN}" y="{trim(y + 12)}">… and {more}</text>')
        y += 20
    width = 2 * _MARGIN + max(across, 1) * (_WIDTH + _BETWEEN) - _BETWEEN
    size = f'width="{width}" height="{trim(y + _MARGIN)}"'
    words = (
        f"{counted(len(steps), 'step')} in {counted(len(all_waves), 'wave')}; those of a wave go"
        " side by side. A bar below shows how long a name is absent."
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="picture" {size}'
        f' viewBox="0 0 {width} {trim(y + _MARGIN)}" role="img"'
        ' aria-labelledby="program-title program-desc">'
        '<title id="program-title">The program of a plan</title>'
        f'<desc id="program-desc">{escape(words)}</desc><style>{STYLE}</style>'
        f'<rect class="paper" {size}/>{"".join(parts)}</svg>\n'
    )


def _list_absences(steps: Sequence[Step], waves: Sequence[Wave]) -> list[_Absence]:
    """Names that come back in a later wave, those that are absent longest first."""
    wave_of = {number: place for place, wave in enumerate(waves) for number, _, _ in wave.steps}
    found = [
        _Absence(name, wave_of[taken], wave_of[back])
        for name, taken, back in interruptions(steps)
        if back is not None and wave_of[taken] < wave_of[back]
    ]
    return sorted(found, key=lambda each: (each.taken - each.back, each.taken))


def _draw_row(
    waves: Sequence[Wave], absences: Sequence[_Absence], inside: range, top: float
) -> tuple[list[str], float]:
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
            parts.append(f'<text class="faint" x="{x}" y="{trim(y + 12)}">… and {more}'
                         "</text>")
            y += 20
        below = max(below, y)
    bars, end = _draw_bars(absences, inside, below + 6)
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


def _draw_bars(
    absences: Sequence[_Absence], inside: range, top: float
) -> tuple[list[str], float]:
    """A line a name, from the middle of the wave that takes it away to that of its return."""
    here = [each for each in absences if each.taken < inside.stop and each.back >= inside.start]
    parts = []
    for name, taken, back in here[:_NAMES]:
        first, last = max(taken, inside.start), min(back, inside.stop)
        x = _find_column(first, inside) + (_WIDTH / 2 if taken in inside else 0)
        to_x = _find_column(last, inside) + (_WIDTH / 2 if back in inside else -_BETWEEN)
        room = max(int((to_x - x) / 7.3) - 10, 6)
        words = f"{name} is absent from wave {taken + 1} to wave {back + 1}"
        parts.append(
            f'<g class="drop"><title>{escape(words)}</title>'
            f'<rect x="{trim(x)}" y="{trim(top)}" width="{trim(to_x - x)}" height="20" rx="3"/>'
            f'<text x="{trim(x + 8)}" y="{trim(top + 14)}">'
            f"absent: {escape(shorten(one_line(name), room))}</text></g>"
        )
        top += 24
    if len(here) > _NAMES:
        more = counted(len(here) - _NAMES, "more name")
        parts.append(f'<text class="faint" x="{_MARGIN}" y="{trim(top + 12)}">… and {more} absent'
                     " meanwhile</text>")
        top += 20
    return parts, top


def _find_column(place: int, inside: range) -> float:
    return _MARGIN + (place - inside.start) * (_WIDTH + _BETWEEN)
