"""The text of one source's offset, as the offset log holds it: strict JSON, or none yet."""

from __future__ import annotations

import json
from typing import Any

from catalog_migrate.streams.checkpoint.errors import InvalidPosition

START = "-"
"""The line of a source that has no offset: it begins where its START option says."""


def parse_object(line: str, what: str) -> dict[str, Any]:
    """The JSON object of a line; ``what`` names the source type in messages.

    Raises :class:`InvalidPosition` on anything else, on a key given twice and on NaN.
    """
    try:
        value = json.loads(line, object_pairs_hook=once, parse_constant=_refuse)
    except json.JSONDecodeError as error:
        raise InvalidPosition(
            f"not an offset of a {what} source: {_short(line)} ({error.msg} at {error.pos})"
        ) from error
    if not isinstance(value, dict):
        raise InvalidPosition(f"not an offset of a {what} source: {_short(line)}")
    return value


def whole_number(value: object, where: str, *, least: int = 0) -> int:
    """``value`` as a whole number that fits Spark's LONG.

    Raises :class:`InvalidPosition` for texts, fractions, truth values and what is below ``least``.
    """
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidPosition(
            f"{where} is no number: {_short(json.dumps(value))}",
            remedy="write a whole number: the next record to read",
        )
    if not least <= value < 2**63:
        raise InvalidPosition(f"{where} is out of range: {value} (from {least} to 2^63-1)")
    return value


def write_object(value: dict[str, Any]) -> str:
    """JSON as Spark writes it: no spaces, keys in the order given."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object whose keys are all different; :class:`InvalidPosition`, where the last would
    win in silence."""
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise InvalidPosition(
                f"{key!r} is given twice in one object", remedy="leave one of them out"
            )
        found[key] = value
    return found


def _refuse(constant: str) -> Any:
    raise InvalidPosition(f"{constant} in an offset is no number")


def _short(text: str) -> str:
    """A text for a message, never longer than a line."""
    return repr(text if len(text) <= 80 else f"{text[:77]}…")
