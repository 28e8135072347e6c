"""What the script of a page lays out, as compact JSON that may stand in a script element."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from catalog_migrate.model.wording import describe_duration, describe_size, visible
from catalog_migrate.report.report import (
    Decision,
    Difference,
    Node,
    Report,
    ReportObject,
    Wave,
    find_sign,
    spell_sign,
)

TEXT_LIMIT = 20_000
"""Characters of a text or of a difference of lines; what is beyond is cut, and that is said."""

_ROOM, _LEAST = 1_500_000, 100
_DIFFERENCES = 1_000
_ALL_DIFFERENCES = 20_000
_PATH_SHOWN = 8
_MARKUP = str.maketrans({
    "<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"
})


def encode_data(report: Report, *, decisions: int, waves: int, steps: int) -> str:
    """Encode the objects, and what goes beyond so many decisions, waves, and steps of a wave.

    Repeated words and names are numbers: positions in ``words`` and in ``objects``; ``nodes`` has
    for each node of the picture the position of its object. One name may be of two objects, of
    which one goes and the other comes.
    """
    return _Encoder(report).encode(decisions, waves, steps)


def embed(value: Any) -> str:
    """Encode ``value`` as JSON that no parser of HTML takes for a tag or the end of its element."""
    return msgspec.json.encode(value).decode().translate(_MARKUP)


class _Encoder:
    """Numbers for words and names, and how long a text may be so that the page stays small."""

    def __init__(self, report: Report) -> None:
        self._report = report
        self._words: dict[str, int] = {}
        self._numbers: dict[tuple[str, bool], int] = {}
        self._places: dict[tuple[str, ...], int] = {}
        for number, each in enumerate(report.objects):
            self._numbers.setdefault((each.name, each.action == "drop"), number)
            for key in _keys(each):
                self._places.setdefault(key, number)
        self._decisions = {each: number for number, each in enumerate(report.decisions, start=1)}
        self._text_limit, self._most = _limits(report.objects)

    def encode(self, decisions: int, waves: int, steps: int) -> str:
        report = self._report
        objects = [self._object(each) for each in report.objects]
        further = [_decision(each) for each in report.decisions[decisions:]]
        return embed({
            "objects": objects,
            "signs": {
                visible(action): spell_sign(find_sign(action))
                for action in sorted({each.action for each in report.objects})
            },
            "nodes": list(map(self._place, report.picture.nodes)),
            "words": list(self._words),
            "decisions": further,
            "shown": decisions,
            "waves": self._waves(report.waves, waves, steps),
        })

    def _word(self, text: str) -> int:
        return self._words.setdefault(visible(text), len(self._words))

    def _name(self, name: str, dropped: bool = False) -> int | str:
        """The object of a name: of two, the one that goes as well, or that stays as well."""
        found = self._numbers.get((name, dropped), self._numbers.get((name, not dropped)))
        return visible(name) if found is None else found

    def _place(self, node: Node) -> int | None:
        """The object of a node."""
        return next((self._places[key] for key in _keys(node) if key in self._places), None)

    def _object(self, each: ReportObject) -> list[Any]:
        more: dict[str, Any] = {
            "old": visible(each.old_name or ""),
            "because": self._path(each.because, each.action == "drop"),
            "why": self._word(each.why) if each.why else None,
            "files": each.files,
            "size": None if each.bytes is None else describe_size(each.bytes),
            "duration": None if each.seconds is None else describe_duration(each.seconds),
            "moves": self._word(each.moves) if each.moves else None,
            "lost": list(map(visible, each.lost)),
            "absent": visible(each.absent),
            "notes": list(map(visible, each.notes)),
            "decisions": [
                self._decisions.get(found) or _decision(found) for found in each.decisions
            ],
            "differences": [self._difference(found) for found in each.differences[:self._most]],
            "left": max(len(each.differences) - self._most, 0) or None,
        }
        kept = {key: value for key, value in more.items() if value not in (None, "", [])}
        row = [
            visible(each.name), self._word(each.kind), self._word(each.action),
            self._word(each.risk), each.rows, each.bytes,
        ]
        return [*row, kept] if kept else row

    def _path(self, because: Sequence[str], dropped: bool) -> list[int | str]:
        """Empty for an object that changes by itself; the middle of a long path is counted."""
        if len(because) < 2:
            return []
        path = [self._name(each, dropped) for each in because]
        if len(path) <= _PATH_SHOWN:
            return path
        left = len(because) - _PATH_SHOWN + 1
        half = _PATH_SHOWN // 2
        return [
            *path[:half], f"… {left:,} more …", *path[half + left:],
        ]

    def _difference(self, each: Difference) -> list[Any]:
        row: list[Any] = [self._word(each.aspect), visible(each.name)]
        if each.lines:
            return [*row, self._cut("\n".join(each.lines), "\n@ ")]
        return [*row, *(
            None if side is None else self._cut(side, " ") for side in (each.before, each.after)
        )]

    def _cut(self, text: str, mark: str) -> str:
        if len(text) <= self._text_limit:
            return visible(text)
        return (
            f"{visible(text[:self._text_limit])}{mark}… cut here, after {self._text_limit:,} of"
            f" {len(text):,} characters; --format json has all of it"
        )

    def _waves(self, waves: Sequence[Wave], shown: int, steps: int) -> list[Any]:
        """The steps that are not shown yet; title and absent names too of a wave that is not."""
        return [
            [_steps(wave.steps[steps:])] if number < shown else [
                _steps(wave.steps), visible(wave.title), list(map(self._name, wave.absent)),
                wave.more, wave.word.capitalize(),
            ]
            for number, wave in enumerate(waves)
        ]


def _keys(each: Node | ReportObject) -> tuple[tuple[str, ...], ...]:
    """What a node and its object have in common, the most telling first."""
    name = visible(each.name)
    return (name, each.kind, each.action), (name, each.kind)


def _steps(steps: Sequence[tuple[int, str, str]]) -> list[Any]:
    return [[number, sign, visible(text)] for number, sign, text in steps]


def _decision(each: Decision) -> list[str]:
    return list(map(visible, (each.name, each.code, each.reason, each.text, each.verb)))


def _limits(objects: Sequence[ReportObject]) -> tuple[int, int]:
    """How long a text may be, and how many differences an object may show, for all to have room."""
    limit, most = TEXT_LIMIT, _DIFFERENCES
    numbers = [len(each.differences) for each in objects]
    while most > 1 and sum(min(number, most) for number in numbers) > _ALL_DIFFERENCES:
        most //= 2
    lengths = [
        sum(map(len, found.lines)) or len(found.before or "") + len(found.after or "")
        for each in objects for found in each.differences[:most]
    ]
    while limit > _LEAST and sum(min(length, limit) for length in lengths) > _ROOM:
        limit //= 2
    return limit, most
