"""Spark's text of an analysed plan, as a tree: what ``EXPLAIN EXTENDED`` and ``queryExecution``
print of it, which all versions and Spark Connect print in one way.

A literal is printed as it is, without quotes: it may hold brackets, commas, ``#1`` and new lines.
What is read here is therefore never more than what both texts of one query have in common.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

ATTRIBUTE = re.compile(r"#(\d+)L?(?!\w)")
"""The id behind the name of an attribute; ``L`` marks a BIGINT."""

_LINE = re.compile(r"((?::  |   )*)(:- |\+- )(.*)", re.DOTALL)
_ROOT = re.compile(r"'?[A-Z][A-Za-z0-9]+(?=[ \[(]|$)")
_OPEN, _CLOSE = "([{", ")]}"


class UnreadablePlan(ValueError):
    """A text that is no complete plan, or one of a form that is not known."""


@dataclass(slots=True)
class Node:
    """One operator: its name, what it prints behind that, its inputs and the plans of the
    subqueries in its expressions, in the order of the text."""

    name: str
    text: str
    children: list[Node] = field(default_factory=list)
    subqueries: list[Node] = field(default_factory=list)


def read_plan(text: str) -> Node:
    """Return the tree of a plan; UnreadablePlan where fields were left out or there is none.

    A line with the names and types of the columns before it is passed over.
    """
    if " more fields" in text:
        raise UnreadablePlan("Spark left fields out: spark.sql.debug.maxToStringFields")
    lines = text.strip("\n").split("\n")
    first = next((at for at, line in enumerate(lines) if _ROOT.match(line)), None)
    if first is None:
        raise UnreadablePlan("no operator in it")
    texts: list[tuple[int, str]] = [(0, lines[first])]
    for line in lines[first + 1 :]:
        match = _LINE.fullmatch(line)
        if match is None or not _ROOT.match(match[3]):
            depth, before = texts[-1]
            texts[-1] = (depth, f"{before}\n{line}")
        else:
            texts.append((len(match[1]) // 3 + 1, match[3]))
    root = _node(texts[0][1])
    above: list[tuple[int, Node]] = [(0, root)]
    for depth, operator in texts[1:]:
        node = _node(operator)
        while above and above[-1][0] >= depth:
            above.pop()
        if not above:
            raise UnreadablePlan("two roots")
        parent_depth, parent = above[-1]
        if depth == parent_depth + 1:
            parent.children.append(node)
        elif depth == parent_depth + 2:  # the plan of a subquery is a level deeper than an input
            parent.subqueries.append(node)
        else:
            raise UnreadablePlan("a level is missing")
        above.append((depth, node))
    return root


def _node(text: str) -> Node:
    match = _ROOT.match(text)
    assert match is not None
    return Node(match[0].lstrip("'"), text[match.end() :].strip(" "))


def lists_of(text: str) -> list[str]:
    """Return what is in each pair of square brackets that is in no other bracket.

    Where the brackets do not match, a literal has one: then ``], [`` is taken for the border.
    """
    found: list[str] = []
    depth, start = 0, 0
    for at, sign in enumerate(text):
        if sign in _OPEN:
            if depth == 0:
                start = at
            depth += 1
        elif sign in _CLOSE:
            depth -= 1
            if depth < 0:
                break
            if depth == 0 and text[start] == "[":
                found.append(text[start + 1 : at])
    if depth != 0:
        first, last = text.find("["), text.rfind("]")
        return text[first + 1 : last].split("], [") if 0 <= first < last else []
    return found


def split_items(text: str) -> list[str]:
    """Return the items of a list."""
    items: list[str] = []
    depth = start = 0
    for at, sign in enumerate(text):
        if sign in _OPEN:
            depth += 1
        elif sign in _CLOSE:
            depth = max(depth - 1, 0)
        elif sign == "," and depth == 0:
            items.append(text[start:at].strip(" "))
            start = at + 1
    last = text[start:].strip(" ")
    return [*items, last] if last else items


def split_columns(
    text: str, known: Mapping[int, tuple[str, object]]
) -> list[tuple[str | None, str, int]]:
    """(expression or None for an attribute as it is, name, id) of the items of a list of columns.

    ``known`` has the names of the attributes that the items are made of: each item is one of them
    or ends with ``AS`` and one that is new. UnreadablePlan where that does not come out.
    """
    for by_brackets in (True, False):
        columns, end = _columns(text, known, by_brackets=by_brackets)
        if end >= len(text):
            return columns
    raise UnreadablePlan(f"a list of another form: {text[end : end + 60]}")


def _columns(
    text: str, known: Mapping[int, tuple[str, object]], *, by_brackets: bool
) -> tuple[list[tuple[str | None, str, int]], int]:
    """The columns, and where they end; ``by_brackets`` where no literal has one alone."""
    columns: list[tuple[str | None, str, int]] = []
    start = depth = seen = 0
    for match in ATTRIBUTE.finditer(text):
        item, number, end = text[start : match.start()], int(match[1]), match.end()
        if by_brackets:
            depth += sum(
                (sign in _OPEN) - (sign in _CLOSE) for sign in text[seen : match.start()]
            )
            seen = match.start()
        if item.startswith("outer(") and text.startswith(")", end):
            item, end = item[len("outer(") :], end + 1
        elif by_brackets and depth:
            continue
        if end < len(text) and not text.startswith(", ", end):
            continue
        if number in known and item.lower() == known[number][0].lower():
            columns.append((None, item, number))
        elif (at := _alias(item, known, is_new=number not in known)) is not None:
            columns.append((item[:at], item[at + 4 :], number))
        else:
            continue
        start = end + 2
    return columns, start


def _alias(
    item: str, known: Mapping[int, tuple[str, object]], *, is_new: bool
) -> int | None:
    """Where ``AS`` and the name of an item begin; None where it does not end here.

    The name of a column may have one too, of those that Spark makes for PIVOT.
    """
    names = [
        range(match.start() - len(known[number][0]), match.start())
        for match in ATTRIBUTE.finditer(item) if (number := int(match[1])) in known
    ]
    depth = 0
    for at, sign in enumerate(item):
        if sign in _OPEN:
            depth += 1
        elif sign in _CLOSE:
            depth -= 1
            if depth < 0:
                break
        elif sign == " " and depth == 0 and item.startswith(" AS ", at) and (
            not any(at in name for name in names)
        ):
            return at
    # a literal has a bracket, or the item goes on
    at = item.rfind(" AS ")
    return at if is_new and at >= 0 else None


def attributes_of(text: str) -> Iterator[tuple[str, int]]:
    """(name, id) of a list of attributes, with or without a blank behind its commas."""
    start = text.find("[") + 1
    for match in ATTRIBUTE.finditer(text, start):
        name = text[start : match.start()].lstrip(", ")
        yield name[name.rfind("[") + 1 :], int(match[1])
        start = match.end()
