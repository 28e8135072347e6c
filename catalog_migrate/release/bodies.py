"""Whether the queries and expressions of a release parse, without Spark."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import NamedTuple

from catalog_migrate.errors import Problem
from catalog_migrate.model.names import Identity, quote_part
from catalog_migrate.release.release import Declared, Place, inside

DOES_NOT_PARSE = "CM0119"
_SHOWN = 60


class Bodies(NamedTuple):
    """What came of reading: the texts that no Spark parses, and those that nobody has parsed.

    ``unparsed`` are (object, kind, why), where the grammar at hand has no opinion.
    """

    problems: list[Problem]
    unparsed: list[tuple[str, str, str]]


class _Text(NamedTuple):
    """One text of an object: what it is, what it may be, where it starts or (not exact) belongs."""

    what: str
    text: str
    starts: tuple[str, ...]
    place: Place
    exact: bool = False


def read_bodies(
    declared: Iterable[Declared], only: Collection[Identity] | None = None,
    kinds: Collection[str] = ("table", "view", "function"),
) -> Bodies:
    """Parse every query and expression of the objects (those of ``kinds``, ``only`` these)."""
    from catalog_migrate.sql.grammar import NotUnderstood, refusal

    found = Bodies([], [])
    for entry in declared:
        definition = entry.definition
        if definition.kind not in kinds or (only is not None and definition.identity not in only):
            continue
        for each in _texts(entry):
            try:
                refused = refusal(each.text, *each.starts)
            except NotUnderstood as error:
                found.unparsed.append(
                    (str(definition.key), definition.kind, f"{each.what}: {error}")
                )
                continue
            if refused is None:
                continue
            place = inside(each.place, each.text, refused.offset) if each.exact else each.place
            said = f"`{refused.token}` is not expected" if refused.token else "it ends too early"
            found.problems.append(
                Problem(
                    DOES_NOT_PARSE,
                    f"{each.what} of {definition.key} is no SQL of Spark: {said}", *place,
                    _line(each.text, refused.offset),
                    f"write {refused.meant}" if refused.meant else
                    "correct it there" + (
                        "; where a newer Spark takes it, plan and check with --bind"
                        if definition.kind == "view" else ""
                    ),
                )
            )
    return found


def _texts(entry: Declared) -> Iterator[_Text]:
    definition = entry.definition
    if definition.sql is not None:
        yield _Text("the query", definition.sql, ("query",), entry.text, exact=True)
    if definition.body is not None:
        starts = ("query", "expression")
        yield _Text("the body", definition.body, starts, entry.text, exact=True)
    for argument in definition.arguments:
        if argument.default is not None:
            what = f"DEFAULT of argument {quote_part(argument.name)}"
            yield _Text(what, argument.default, ("expression",), entry.place)
    for column in definition.columns:
        place = entry.columns.get(column.name.lower(), entry.place)
        for word in ("using", "default", "generated"):
            text = getattr(column, word)
            if text is not None:
                what = f"{word.upper()} of column {quote_part(column.name)}"
                yield _Text(what, text, ("expression",), place)
    for check in definition.checks:
        what = f"CHECK {quote_part(check.name)}"
        yield _Text(what, check.expression, ("expression",), entry.place)


def _line(text: str, offset: int) -> str:
    """The line of ``offset``, the part around it where it is long."""
    start = text.rfind("\n", 0, offset) + 1
    end = text.find("\n", offset)
    line = text[start : len(text) if end < 0 else end]
    at = offset - start
    if len(line) <= _SHOWN:
        return line.strip()
    first = max(0, at - _SHOWN // 2)
    return ("…" if first else "") + line[first : first + _SHOWN].strip() + (
        "…" if first + _SHOWN < len(line) else ""
    )
